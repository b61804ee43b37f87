"""Token and position embeddings: a table of vectors, read by row."""
import torch
from torch import nn


def one_hot(idx, n):
    """(...) int64 ids below n -> (..., n) float32: a 1 in column idx, 0 elsewhere."""
    return (idx[..., None] == torch.arange(n, device=idx.device)).float()   # (..., n)


def embedding_backward(grad, idx, n):
    """The gradient of the table that Embedding reads: a scatter-add.

    grad (..., n_embd), idx (...) int64 -> (n, n_embd), of the dtype and on the device of grad.
    """
    grad_weight = torch.zeros(n, grad.shape[-1], dtype=grad.dtype, device=grad.device)
    rows = grad.reshape(-1, grad.shape[-1])                   # (N, n_embd)
    return grad_weight.index_add(0, idx.reshape(-1), rows)    # rows of equal tokens add up


class Embedding(nn.Module):
    """A table of n vectors of width n_embd, read by row; it starts as N(0, 0.02), as GPT-2's (Radford et al. 2018).

    forward(idx): (...) int64 -> (..., n_embd). IndexError for an id of n or more.
    """

    def __init__(self, n, n_embd):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(n, n_embd))

    def forward(self, idx):
        return self.weight[idx]                               # (..., n_embd)


class TokenAndPosition(nn.Module):
    """GPT-2's input: the row of the token plus the row of its position (openai/gpt-2, src/model.py, function model).

    config: has vocab_size, n_ctx and n_embd. forward(idx): (B, T) int64, T <= n_ctx -> (B, T, n_embd).
    """

    def __init__(self, config):
        super().__init__()
        self.wte = Embedding(config.vocab_size, config.n_embd)
        self.wpe = Embedding(config.n_ctx, config.n_embd)

    def forward(self, idx):
        tok = self.wte(idx)                                   # (B, T, C)
        pos = self.wpe(torch.arange(idx.shape[1], device=idx.device))   # (T, C)
        return tok + pos
