"""Rotary positions (Su et al. 2021): q and k are turned by an angle that grows with the position, and nothing is learned."""
import torch


def rope_table(n_ctx, head_dim, base=10000.0):
    """(cos, sin), each (n_ctx, head_dim / 2) float32: of position * base^(-2 i / head_dim) for pair i. Su et al. 2021, section 3.2.2.

    Raises:
        ValueError: head_dim is odd: channels turn in pairs.
    """
    if head_dim % 2:
        raise ValueError(f"head_dim is {head_dim} and must be even: channels turn in pairs")
    rates = base ** (-torch.arange(0, head_dim, 2).double() / head_dim)   # (head_dim / 2,)
    angles = torch.arange(n_ctx)[:, None] * rates             # (n_ctx, head_dim / 2), in float64: position 1000 needs its digits
    return angles.cos().float(), angles.sin().float()


def rotate(x, cos, sin):
    """x (..., T, head_dim), cos and sin (T, head_dim / 2) -> x turned, of its shape. Channel i pairs with i + head_dim / 2."""
    first, second = x.split(x.shape[-1] // 2, dim=-1)         # (..., T, head_dim / 2) each
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
