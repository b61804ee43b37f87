"""LayerNorm, GELU and the MLP: what a block does to each position by itself."""
import math

import torch
from torch import nn

from .primitives import Linear


class LayerNorm(nn.Module):
    """Each vector of the last axis to mean 0 and variance 1, then a learned scale and shift (Ba et al. 2016).

    The variance is the biased one, as in GPT-2. forward(x): (..., n_embd) -> the same shape and dtype.
    """

    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(n_embd))
        self.bias = nn.Parameter(torch.zeros(n_embd))

    def forward(self, x):
        x = x - x.mean(dim=-1, keepdim=True)                  # (..., n_embd)
        variance = (x * x).mean(dim=-1, keepdim=True)         # (..., 1)
        x = x * (variance + self.eps).rsqrt()
        return self.weight * x + self.bias


def layer_norm_backward(grad, x, weight, eps=1e-5):
    """(grad_x, grad_weight, grad_bias) of LayerNorm.

    grad and x (..., n_embd), weight (n_embd,) -> (..., n_embd), (n_embd,), (n_embd,), of the dtype of x.
    """
    x = x - x.mean(dim=-1, keepdim=True)
    std = ((x * x).mean(dim=-1, keepdim=True) + eps).sqrt()   # (..., 1)
    x = x / std                                               # the normalised input
    rows = (grad * x).reshape(-1, x.shape[-1])
    grad_weight = rows.sum(dim=0)                             # (n_embd,)
    grad_bias = grad.reshape(-1, x.shape[-1]).sum(dim=0)      # (n_embd,)
    grad = grad * weight
    grad_mean = grad.mean(dim=-1, keepdim=True)
    grad_scale = (grad * x).mean(dim=-1, keepdim=True)
    grad_x = (grad - grad_mean - x * grad_scale) / std
    return grad_x, grad_weight, grad_bias


def gelu(x):
    """GPT-2's GELU, the tanh form 0.5 x (1 + tanh z) of Hendrycks and Gimpel 2016; any shape, same dtype."""
    a = 2 * math.sqrt(2 / math.pi)
    two_z = x * (a + a * 0.044715 * x.square())               # z is what the formula takes the tanh of
    return x * two_z.sigmoid()                                # (1 + tanh z) / 2 = sigmoid(2 z)


class MLP(nn.Module):
    """GPT-2's feed-forward network, each position by itself: C -> 4C, GELU, 4C -> C.

    config: has n_embd. forward(x): (..., n_embd) -> (..., n_embd).
    """

    def __init__(self, config):
        super().__init__()
        self.c_fc = Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x):
        x = self.c_fc(x)                                      # (B, T, 4C)
        x = gelu(x)
        return self.c_proj(x)                                 # (B, T, C)
