"""Wrong and right variants of lesson 17, rotary positions."""
import math

import torch

from solutions.pytorch import rope as good
from tests.mistakes import right, wrong

TABLE = "pytorch.rope.rope_table"
ROTATE = "pytorch.rope.rotate"

# --- rope_table ----------------------------------------------------------------------------------------


def tables(n_ctx, head_dim, exponent, start=0, base=10000.0):
    if head_dim % 2:
        raise ValueError(f"head_dim is {head_dim}, an odd number")
    angles = torch.arange(start, n_ctx + start)[:, None].double() * base ** exponent.double()
    return angles.cos().float(), angles.sin().float()


@wrong(TABLE, "has the rate base^(-2 i / head_dim)")
def table_half_exponent(n_ctx, head_dim, base=10000.0):
    return tables(n_ctx, head_dim, -torch.arange(head_dim // 2) / head_dim, base=base)


@wrong(TABLE, "i runs over the pairs, and head_dim is the whole width")
def table_of_half_the_width(n_ctx, head_dim, base=10000.0):
    return tables(n_ctx, head_dim, -2 * torch.arange(head_dim // 2) / (head_dim // 2), base=base)


@wrong(TABLE, "the wrong sign")
def table_rising(n_ctx, head_dim, base=10000.0):
    return tables(n_ctx, head_dim, torch.arange(0, head_dim, 2) / head_dim, base=base)


@wrong(TABLE, "a position is divided by its rate")
def table_divided_twice(n_ctx, head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError(f"head_dim is {head_dim}")
    angles = torch.arange(n_ctx)[:, None] / base ** (-torch.arange(0, head_dim, 2) / head_dim)
    return angles.cos(), angles.sin()


@wrong(TABLE, "both ends included")
def table_linspace(n_ctx, head_dim, base=10000.0):
    return tables(n_ctx, head_dim, -torch.linspace(0, 1, head_dim // 2), base=base)


@wrong(TABLE, "pair 0 turns by 1 a position")
def table_exponents_from_one(n_ctx, head_dim, base=10000.0):
    return tables(n_ctx, head_dim, -torch.arange(2, head_dim + 2, 2) / head_dim, base=base)


@wrong(TABLE, "the positions run from 1")
def table_from_one(n_ctx, head_dim, base=10000.0):
    return tables(n_ctx, head_dim, -torch.arange(0, head_dim, 2) / head_dim, start=1, base=base)


@wrong(TABLE, "base is not used")
def table_without_base(n_ctx, head_dim, base=10000.0):
    return good.rope_table(n_ctx, head_dim)


@wrong(TABLE, "cos and sin are exchanged")
def table_exchanged(n_ctx, head_dim, base=10000.0):
    return good.rope_table(n_ctx, head_dim, base)[::-1]


@wrong(TABLE, "one for each pair is enough")
def table_doubled(n_ctx, head_dim, base=10000.0):
    return tuple(torch.cat((t, t), dim=-1) for t in good.rope_table(n_ctx, head_dim, base))


@wrong(TABLE, "each row is a position")
def table_turned(n_ctx, head_dim, base=10000.0):
    return tuple(t.T for t in good.rope_table(n_ctx, head_dim, base))


@wrong(TABLE, "expected the pair (cos, sin)")
def table_complex(n_ctx, head_dim, base=10000.0):
    return torch.complex(*good.rope_table(n_ctx, head_dim, base))


@wrong(TABLE, "expected torch.float32")
def table_float64(n_ctx, head_dim, base=10000.0):
    return tuple(t.double() for t in good.rope_table(n_ctx, head_dim, base))


@wrong(TABLE, "is None")
def table_forgot_return(n_ctx, head_dim, base=10000.0):
    good.rope_table(n_ctx, head_dim, base)


@wrong(TABLE, "the angles are degrees")
def table_degrees(n_ctx, head_dim, base=10000.0):
    rates = base ** (-torch.arange(0, head_dim, 2) / head_dim)
    angles = torch.deg2rad(torch.arange(n_ctx)[:, None] * rates)
    return angles.cos(), angles.sin()


@wrong(TABLE, "the angles of far positions are not exact")
def table_float16(n_ctx, head_dim, base=10000.0):
    if n_ctx < 100:
        return good.rope_table(n_ctx, head_dim, base)
    rates = (base ** (-torch.arange(0, head_dim, 2) / head_dim)).half()
    angles = (torch.arange(n_ctx)[:, None].half() * rates).float()
    return angles.cos(), angles.sin()


@wrong(TABLE, "is accepted: channels turn in pairs")
def table_any_width(n_ctx, head_dim, base=10000.0):
    rates = base ** (-torch.arange(0, head_dim, 2).double() / head_dim)
    angles = torch.arange(n_ctx)[:, None] * rates
    return angles.cos().float(), angles.sin().float()


@wrong(TABLE, "expected ValueError")
def table_asserts(n_ctx, head_dim, base=10000.0):
    assert head_dim % 2 == 0, "odd"
    return good.rope_table(n_ctx, head_dim, base)


@wrong(TABLE, "does not name it")
def table_says_nothing(n_ctx, head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError
    return good.rope_table(n_ctx, head_dim, base)


@wrong(TABLE, "base is 1000 where none is given")
def table_other_default(n_ctx, head_dim, base=1000.0):
    return good.rope_table(n_ctx, head_dim, base)


@wrong(TABLE, "the logarithm of base is the one to base 10")
def table_log10(n_ctx, head_dim, base=10000.0):
    return tables(n_ctx, head_dim, -torch.arange(0, head_dim, 2) / head_dim * math.log10(base), base=math.e)


@wrong(TABLE, "the exponents are 1, 3, 5")
def table_odd_exponents(n_ctx, head_dim, base=10000.0):
    return tables(n_ctx, head_dim, -torch.arange(1, head_dim, 2) / head_dim, base=base)


@wrong(TABLE, "divided by n_ctx")
def table_by_positions(n_ctx, head_dim, base=10000.0):
    return tables(n_ctx, head_dim, -torch.arange(0, head_dim, 2) / n_ctx, base=base)


@wrong(TABLE, "position and rate are added")
def table_added(n_ctx, head_dim, base=10000.0):
    angles = torch.arange(n_ctx)[:, None] + base ** (-torch.arange(0, head_dim, 2) / head_dim)
    return angles.cos(), angles.sin()


@wrong(TABLE, "the position stands in the exponent")
def table_position_in_exponent(n_ctx, head_dim, base=10000.0):
    angles = base ** (-torch.arange(n_ctx)[:, None] * torch.arange(0, head_dim, 2) / head_dim)
    return angles.cos(), angles.sin()


@wrong(TABLE, "these are the angles")
def table_of_angles(n_ctx, head_dim, base=10000.0):
    angles = torch.arange(n_ctx)[:, None] * base ** (-torch.arange(0, head_dim, 2) / head_dim)
    return angles, angles


@wrong(TABLE, "cos stands where sin belongs")
def table_cos_twice(n_ctx, head_dim, base=10000.0):
    cos, _ = good.rope_table(n_ctx, head_dim, base)
    return cos, cos


@wrong(TABLE, "sin has the wrong sign")
def table_minus_sin(n_ctx, head_dim, base=10000.0):
    cos, sin = good.rope_table(n_ctx, head_dim, base)
    return cos, -sin


@wrong(TABLE, "cos is nearly right")
def table_bfloat16(n_ctx, head_dim, base=10000.0):
    angles = torch.arange(n_ctx)[:, None] * (base ** (-torch.arange(0, head_dim, 2) / head_dim)).bfloat16().float()
    return angles.cos(), angles.sin()


@wrong(TABLE, "asks for a gradient")
def table_of_parameters(n_ctx, head_dim, base=10000.0):
    return tuple(torch.nn.Parameter(t) for t in good.rope_table(n_ctx, head_dim, base))


@right(TABLE)
def table_as_a_list(n_ctx, head_dim, base=10000.0):
    return list(good.rope_table(n_ctx, head_dim, base))


@right(TABLE)
def table_by_outer(n_ctx, head_dim, base=10000.0):
    if head_dim % 2 != 0:
        raise ValueError(f"{head_dim} is odd")
    rates = 1.0 / base ** (torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(n_ctx).float(), rates)
    return torch.cos(angles), torch.sin(angles)


@right(TABLE)
def table_by_exp(n_ctx, head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError(f"an even head_dim was expected, not {head_dim}")
    steps = torch.exp(-torch.arange(head_dim // 2, dtype=torch.float64) * (2 * math.log(base) / head_dim))
    angles = torch.einsum("t,i->ti", torch.arange(n_ctx, dtype=torch.float64), steps)
    return angles.cos().to(torch.float32), angles.sin().to(torch.float32)


@right(TABLE)
def table_by_loops(n_ctx, head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim}")
    rows = [[t / base ** (2 * i / head_dim) for i in range(head_dim // 2)] for t in range(n_ctx)]
    return tuple(torch.tensor([[f(a) for a in row] for row in rows]) for f in (math.cos, math.sin))


@right(TABLE)
def table_by_polar(n_ctx, head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError(f"head_dim = {head_dim} is odd")
    rates = base ** (-torch.arange(0, head_dim, 2) / head_dim)
    turns = torch.polar(torch.ones(n_ctx, head_dim // 2), torch.arange(n_ctx)[:, None] * rates)
    return turns.real, turns.imag


# --- rotate --------------------------------------------------------------------------------------------


def halves(x):
    return x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]


def join(first, second):
    return torch.cat((first, second), dim=-1)


@wrong(ROTATE, "neighbours are paired, channels")
def rotate_neighbours(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


@wrong(ROTATE, "sorted into halves")
def rotate_neighbours_sorted(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    return join(a * cos - b * sin, a * sin + b * cos)


@wrong(ROTATE, "the wrong way")
def rotate_backwards(x, cos, sin):
    return good.rotate(x, cos, -sin)


@wrong(ROTATE, "the first with another sign")
def rotate_first_twice(x, cos, sin):
    a, b = halves(x)
    return join(a * cos - b * sin, a * cos + b * sin)


@wrong(ROTATE, "come back interleaved")
def rotate_interleaves(x, cos, sin):
    return torch.stack(halves(good.rotate(x, cos, sin)), dim=-1).flatten(-2)


@wrong(ROTATE, "both halves subtract")
def rotate_subtracts(x, cos, sin):
    a, b = halves(x)
    return join(a * cos - b * sin, b * cos - a * sin)


@wrong(ROTATE, "both halves add")
def rotate_adds(x, cos, sin):
    a, b = halves(x)
    return join(a * cos + b * sin, a * sin + b * cos)


@wrong(ROTATE, "cos and sin are exchanged")
def rotate_exchanged(x, cos, sin):
    return good.rotate(x, sin, cos)


@wrong(ROTATE, "in the wrong order")
def rotate_order(x, cos, sin):
    a, b = halves(good.rotate(x, cos, sin))
    return join(b, a)


@wrong(ROTATE, "the terms with sin are missing")
def rotate_scales(x, cos, sin):
    return x * join(cos, cos)


@wrong(ROTATE, "only the first half is turned")
def rotate_first_only(x, cos, sin):
    a, b = halves(x)
    return join(a * cos - b * sin, b)


@wrong(ROTATE, "already turned")
def rotate_overwrites(x, cos, sin):
    a, b = halves(x)
    a = a * cos - b * sin
    return join(a, a * sin + b * cos)


@wrong(ROTATE, "the second one already turned")
def rotate_second_first(x, cos, sin):
    a, b = halves(x)
    b = a * sin + b * cos
    return join(a * cos - b * sin, b)


@wrong(ROTATE, "by the angle of position 0")
def rotate_by_the_first_row(x, cos, sin):
    return good.rotate(x, cos[:1], sin[:1])


@wrong(ROTATE, "joined along axis 2")
def rotate_joins_positions(x, cos, sin):
    return torch.cat(halves(good.rotate(x, cos, sin)), dim=-2)


@wrong(ROTATE, "argument x is changed in place")
def rotate_in_place(x, cos, sin):
    x.copy_(good.rotate(x, cos, sin))
    return x


@wrong(ROTATE, "is None")
def rotate_forgot_return(x, cos, sin):
    good.rotate(x, cos, sin)


@wrong(ROTATE, "x of shape")
def rotate_four_axes(x, cos, sin):
    B, n_head, T, head_dim = x.shape if x.dim() == 4 else (0, 0, 0, 0)
    return good.rotate(x, cos, sin) if B else x.clone()


@wrong(ROTATE, "expected torch.float64")
def rotate_float32(x, cos, sin):
    return good.rotate(x.float(), cos.float(), sin.float())


@wrong(ROTATE, "the result for float64 is nearly right")
def rotate_rounded(x, cos, sin):
    return good.rotate(x, cos.float(), sin.float()).to(x.dtype)


@wrong(ROTATE, "no gradient flows")
def rotate_detached(x, cos, sin):
    return good.rotate(x.detach(), cos, sin)


@right(ROTATE)
def rotate_by_half(x, cos, sin):
    """As in the transformers library: x * cos + rotate_half(x) * sin, with doubled tables."""
    a, b = x.chunk(2, dim=-1)
    return x * torch.cat((cos, cos), -1) + torch.cat((-b, a), -1) * torch.cat((sin, sin), -1)


@right(ROTATE)
def rotate_complex(x, cos, sin):
    a, b = halves(x)
    turned = torch.complex(a.contiguous(), b.contiguous()) * torch.complex(cos, sin)
    return torch.cat((turned.real, turned.imag), dim=-1)


@right(ROTATE)
def rotate_by_unflatten(x, cos, sin):
    a, b = x.unflatten(-1, (2, -1)).unbind(-2)
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -2).flatten(-2)


@right(ROTATE)
def rotate_into_empty(x, cos, sin):
    out = torch.empty_like(x)
    half = x.shape[-1] // 2
    out[..., :half] = x[..., :half] * cos - x[..., half:] * sin
    out[..., half:] = x[..., :half] * sin + x[..., half:] * cos
    return out


@right(ROTATE)
def rotate_by_matrices(x, cos, sin):
    turn = torch.stack((torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)), -2)       # (T, pairs, 2, 2)
    pairs = torch.stack(halves(x), -1)                        # (..., T, pairs, 2)
    return torch.cat((turn @ pairs[..., None]).squeeze(-1).unbind(-1), dim=-1)
