"""Token and position embeddings: a table of vectors, read by row."""
import mindspore as ms
import numpy as np
from mindspore import nn, ops


class Embedding(nn.Cell):
    """A table of n vectors of width n_embd, read by row; it starts as N(0, 0.02), as GPT-2's (Radford et al. 2018).

    construct(idx): (...) int32 or int64 -> (..., n_embd). On CPU RuntimeError for an id of n or more.
    """

    def __init__(self, n, n_embd):
        super().__init__()
        self.weight = ms.Parameter(0.02 * np.random.randn(n, n_embd).astype(np.float32))

    def construct(self, idx):
        return ops.gather(self.weight, idx, 0)                # (..., n_embd)


class TokenAndPosition(nn.Cell):
    """GPT-2's input: the row of the token plus the row of its position (openai/gpt-2, src/model.py, function model).

    config: has vocab_size, n_ctx and n_embd. construct(idx): (B, T) ids, T <= n_ctx -> (B, T, n_embd).
    """

    def __init__(self, config):
        super().__init__()
        self.wte = Embedding(config.vocab_size, config.n_embd)
        self.wpe = Embedding(config.n_ctx, config.n_embd)

    def construct(self, idx):
        tok = self.wte(idx)                                   # (B, T, C)
        pos = self.wpe(ops.arange(idx.shape[1]))              # (T, C)
        return tok + pos
