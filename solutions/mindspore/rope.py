"""Rotary positions (Su et al. 2021): q and k are turned by an angle that grows with the position, and nothing is learned."""
import mindspore as ms
import numpy as np
from mindspore import ops


def rope_table(n_ctx, head_dim, base=10000.0):
    """(cos, sin), each (n_ctx, head_dim / 2) float32: of position * base^(-2 i / head_dim) for pair i. Su et al. 2021, section 3.2.2.

    Raises:
        ValueError: head_dim is odd: channels turn in pairs.
    """
    if head_dim % 2:
        raise ValueError(f"head_dim is {head_dim} and must be even: channels turn in pairs")
    rates = base ** (-np.arange(0, head_dim, 2) / head_dim)   # (head_dim / 2,), in float64
    angles = np.arange(n_ctx)[:, None] * rates                # (n_ctx, head_dim / 2)
    return ms.Tensor(np.cos(angles).astype(np.float32)), ms.Tensor(np.sin(angles).astype(np.float32))


def rotate(x, cos, sin):
    """x (..., T, head_dim), cos and sin (T, head_dim / 2) -> x turned, of its shape. Channel i pairs with i + head_dim / 2."""
    first, second = x.split(x.shape[-1] // 2, axis=-1)        # (..., T, head_dim / 2) each
    return ops.concat((first * cos - second * sin, first * sin + second * cos), -1)
