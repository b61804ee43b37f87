import math

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from .primitives import Linear


class LayerNorm(nn.Cell):
    """Each vector of the last axis to mean 0 and variance 1, then a learned scale and shift (Ba et al. 2016).

    The variance is the biased one, as in GPT-2. construct(x): (..., n_embd) -> the same shape and dtype.
    """

    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = ms.Parameter(np.ones(n_embd, np.float32))
        self.bias = ms.Parameter(np.zeros(n_embd, np.float32))

    def construct(self, x):
        x = x - x.mean(axis=-1, keep_dims=True)               # (..., n_embd)
        variance = (x * x).mean(axis=-1, keep_dims=True)      # (..., 1)
        x = x * ops.rsqrt(variance + self.eps)
        return self.weight * x + self.bias


def gelu(x):
    """GPT-2's GELU, the tanh form 0.5 x (1 + tanh z) of Hendrycks and Gimpel 2016; any shape, same dtype."""
    a = 2 * math.sqrt(2 / math.pi)
    two_z = x * (a + a * 0.044715 * ops.square(x))            # z is what the formula takes the tanh of
    return x * ops.sigmoid(two_z)                             # (1 + tanh z) / 2 = sigmoid(2 z)


class MLP(nn.Cell):
    """GPT-2's feed-forward network, each position by itself: C -> 4C, GELU, 4C -> C.

    config: has n_embd. construct(x): (..., n_embd) -> (..., n_embd).
    """

    def __init__(self, config):
        super().__init__()
        self.c_fc = Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = Linear(4 * config.n_embd, config.n_embd)

    def construct(self, x):
        x = self.c_fc(x)                                      # (B, T, 4C)
        x = gelu(x)
        return self.c_proj(x)                                 # (B, T, C)
