"""Causal self-attention (Vaswani et al. 2017, section 3.2), as GPT-2 arranges it."""
import math

import mindspore as ms
from mindspore import nn, ops

from .primitives import Linear, softmax


def causal_mask(n_query, n_key):
    """(n_query, n_key) bool: True where key j is not in the future of query i. The last query stands at the last key."""
    return ops.tril(ops.ones((n_query, n_key), ms.int32), n_key - n_query) > 0


def attention(q, k, v, mask=None):
    """q (..., T_q, d), k (..., T_k, d), v (..., T_k, d_v), bool mask that broadcasts to (..., T_q, T_k) -> (..., T_q, d_v).

    Vaswani et al. 2017, equation 1. mask True: may attend.
    """
    q = q / math.sqrt(q.shape[-1])                            # (..., T_q, head_dim)
    scores = ops.matmul(q, k.swapaxes(-2, -1))                # (..., T_q, T_k)
    if mask is not None:
        scores = scores.masked_fill(ops.logical_not(mask), -math.inf)
    weights = softmax(scores, dim=-1)                         # each row sums to 1
    return ops.matmul(weights, v)                             # (..., T_q, head_dim)


def split_heads(x, n_head):
    """(B, T, C) -> (B, n_head, T, C / n_head)."""
    B, T, C = x.shape
    x = x.reshape(B, T, n_head, C // n_head)
    return x.swapaxes(1, 2)                                   # (B, n_head, T, head_dim)


def merge_heads(x):
    """(B, n_head, T, head_dim) -> (B, T, n_head * head_dim): undoes split_heads."""
    B, n_head, T, head_dim = x.shape
    x = x.swapaxes(1, 2)                                      # (B, T, n_head, head_dim)
    return x.reshape(B, T, n_head * head_dim)


class CausalSelfAttention(nn.Cell):
    """(B, T, n_embd) -> (B, T, n_embd); openai/gpt-2, src/model.py, function attn."""

    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = Linear(config.n_embd, config.n_embd)

    def construct(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, axis=-1)            # three times (B, T, C)
        q = split_heads(q, self.n_head)                       # (B, n_head, T, head_dim)
        k = split_heads(k, self.n_head)
        v = split_heads(v, self.n_head)
        y = attention(q, k, v, causal_mask(T, T))
        return self.c_proj(merge_heads(y))                    # (B, T, C)
