"""Token and position embeddings: a table of vectors, read by row."""
import torch
from torch import nn


def one_hot(idx, n):
    return (idx[..., None] == torch.arange(n, device=idx.device)).float()   # (..., n)


def embedding_backward(grad, idx, n):
    grad_weight = torch.zeros(n, grad.shape[-1], dtype=grad.dtype, device=grad.device)
    rows = grad.reshape(-1, grad.shape[-1])                   # (N, n_embd)
    return grad_weight.index_add(0, idx.reshape(-1), rows)    # rows of equal tokens add up


class Embedding(nn.Module):
    def __init__(self, n, n_embd):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(n, n_embd))

    def forward(self, idx):
        return self.weight[idx]                               # (..., n_embd)


class TokenAndPosition(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = Embedding(config.vocab_size, config.n_embd)
        self.wpe = Embedding(config.n_ctx, config.n_embd)

    def forward(self, idx):
        tok = self.wte(idx)                                   # (B, T, C)
        pos = self.wpe(torch.arange(idx.shape[1], device=idx.device))   # (T, C)
        return tok + pos
