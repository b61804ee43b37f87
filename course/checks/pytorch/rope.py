"""Checks of lesson 17: rotary positions. The oracle is NumPy in float64, and for rotate a product of complex numbers."""
import math

import numpy as np
import torch

from course.checks import checks
from course.checks.pytorch import call, close, difference, equal, fail, gradients_close, is_tensor, rand

TABLE = "pytorch.rope.rope_table"
ROTATE = "pytorch.rope.rotate"


# --- rope_table ----------------------------------------------------------------------------------------


WRONG_SIGN = "the exponent has the wrong sign, or a position is divided by its rate: the rates fall with i, base^(-2 i / head_dim), and multiply."


def angles(n_ctx, head_dim, base=10000.0):
    return np.arange(n_ctx)[:, None] * float(base) ** (-np.arange(0, head_dim, 2) / head_dim)


def expected_table(n_ctx, head_dim, base=10000.0):
    a = angles(n_ctx, head_dim, base)
    return np.cos(a).astype(np.float32), np.sin(a).astype(np.float32)


def table_mistakes(n_ctx, head_dim, base=10000.0):
    """(words, (cos, sin) in float64) of what common mistakes give."""
    t, i, d = np.arange(n_ctx)[:, None], np.arange(head_dim // 2), head_dim
    right = angles(n_ctx, head_dim, base)
    exponents = [
        ("the exponent is i / head_dim; pair i has the rate base^(-2 i / head_dim).", -i / d),
        ("the exponent is 2 i / (head_dim / 2): i runs over the pairs, and head_dim is the whole width.", -4 * i / d),
        (WRONG_SIGN, 2 * i / d),
        ("the exponents run from 1: pair 0 turns by 1 a position.", -2 * (i + 1) / d),
        ("all pairs turn at the same rate: the exponent does not depend on i.", 0.0 * i),
        ("the exponents are 1, 3, 5, ... below the fraction; they are 0, 2, 4, ...", -(2 * i + 1) / d),
        ("the exponents are divided by n_ctx; the width of a head counts.", -2 * i / n_ctx),
        ("the logarithm of base is the one to base 10: exp wants the natural one.", -2 * i / d / math.log(10)),
    ]
    found = [(words, t * float(base) ** e) for words, e in exponents]
    found += [
        ("the positions run from 1: position 0 is not turned, cos 1 and sin 0.", right + angles(2, head_dim, base)[1]),
        ("the positions run backwards.", right[::-1]),
        ("the rates are spaced from 1 to 1 / base, both ends included; the last pair has base^(-(head_dim - 2) / head_dim).", t * float(base) ** -(i / max(d // 2 - 1, 1))),
        ("the angles are degrees: cos and sin take radians.", np.deg2rad(right)),
        ("the angles are multiplied by 2 pi: the angle is position * rate, in radians.", 2 * np.pi * right),
        ("base is not used: it is 10,000 whatever is given.", angles(n_ctx, head_dim)),
        ("the rates come in the wrong order: pair 0 turns fastest.", right[:, ::-1]),
        ("position and rate are added: the angle is their product.", t + right[min(1, n_ctx - 1)]),
        ("the position stands in the exponent: the angle is position * base^(-2 i / head_dim).", float(base) ** (-2 * t * i / d)),
    ]
    found += [(f"base is {other:g} where none is given, expected 10000.", angles(n_ctx, head_dim, other)) for other in (100, 1000, 1e5, 5e5, 1e6) if base == 10000]
    tables = [(words, (np.cos(a), np.sin(a))) for words, a in found]
    return tables + [
        ("these are the angles: cos and sin are still to be taken.", (right, right)),
        ("cos stands where sin belongs.", (np.cos(right), np.cos(right))),
        ("sin has the wrong sign.", (np.cos(right), -np.sin(right))),
    ]


def as_torch(x):
    return torch.from_numpy(np.ascontiguousarray(x)).float()


def compare_tables(got, n_ctx, head_dim, base=10000.0, atol=2e-6, at=""):
    want = expected_table(n_ctx, head_dim, base)
    if isinstance(got, tuple) and len(got) == 2 and all(isinstance(g, torch.Tensor) and g.shape == want[0].shape for g in got):
        if np.allclose(got[0], want[1], atol=1e-4) and np.allclose(got[1], want[0], atol=1e-4):
            fail("cos and sin are exchanged: cos comes first.", example=f"at position 0 the first table has {got[0][0, 0]:.4g}, expected 1")
        rising = np.cos(angles(n_ctx, head_dim, 1 / base))
        if not np.allclose(rising, want[0], atol=0.1) and np.allclose(got[0].detach(), rising, atol=0.01):   # in float32 these are far from exact
            fail(WRONG_SIGN, example=f"at position 1 the angles should be {np.round(angles(2, head_dim, base)[1], 4).tolist()}")
    for which, (name, mine) in enumerate(zip(("cos", "sin"), got)):
        known = [(words, as_torch(tables[which])) for words, tables in table_mistakes(n_ctx, head_dim, base)]
        right = torch.from_numpy(want[which])
        if not equal(mine, right, atol) and equal(mine, right, 0.02) and not any(equal(mine, table, 1e-5) for _, table in known):
            fail(f"{name} is nearly right: the angles are rounded on the way.", example=difference(mine, right, name), look="a dtype of few digits, float16 or bfloat16: round at the very end, to float32")
        close(mine, right, atol, name=name + at, known=known)


@checks(TABLE, "two tables")
def table_shapes(rope_table):
    got = call(rope_table, 5, 6)
    if got is None:
        fail("the result is None. Is there a return at the end of every branch?")
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        fail(f"the result is one {type(got).__name__} of {len(got) if hasattr(got, '__len__') else 'no'} parts, expected the pair (cos, sin).", look="return cos, sin")
    for name, mine in zip(("cos", "sin"), got):
        if isinstance(mine, torch.Tensor) and mine.shape == (5, 6):
            fail(f"{name} has an entry for each channel, (n_ctx, head_dim); one for each pair is enough, (n_ctx, head_dim / 2).", look="the step of 2 in the exponents, and cat or repeat after it")
        if isinstance(mine, torch.Tensor) and mine.shape == (3, 5):
            fail(f"{name} has shape (pairs, positions); each row is a position.", look="which of the two gets the new axis")
        is_tensor(mine, (5, 3), torch.float32, name=name)
        if mine.requires_grad:
            fail(f"{name} asks for a gradient: the table is a constant, nothing in it is trained.", look="nn.Parameter and requires_grad")


@checks(TABLE, "values")
def table_values(rope_table):
    compare_tables(call(rope_table, 7, 8), 7, 8)


@checks(TABLE, "other sizes and bases")
def table_sizes(rope_table):
    for n_ctx, head_dim, base in [(1, 2, 10000.0), (9, 4, 500.0), (3, 16, 1e6), (12, 10, 2.0)]:
        compare_tables(call(rope_table, n_ctx, head_dim, base), n_ctx, head_dim, base, at=f" for n_ctx = {n_ctx}, head_dim = {head_dim}, base = {base:g}")
    compare_tables(call(rope_table, 6, 4, base=100.0), 6, 4, 100.0, at=" for base=100.0")


@checks(TABLE, "far positions")
def table_far(rope_table):
    got = call(rope_table, 4000, 8)
    for name, mine, want in zip(("cos", "sin"), got, expected_table(4000, 8)):
        off = np.abs(np.asarray(mine.detach()) - want).max(axis=1)
        if off.max() > 2e-3:
            fail(
                "the angles of far positions are not exact: they grow to thousands, and a dtype of few digits loses what cos and sin need.",
                example=f"{name} at position {int(off.argmax())} is off by {off.max():.2g}",
                look="float16 or bfloat16 on the way: make the angles in float32 or float64 and round at the end",
            )


@checks(TABLE, "an odd width")
def table_odd(rope_table):
    try:
        got = rope_table(4, 7)
    except ValueError as error:
        if "7" not in str(error):
            fail("the ValueError for an odd head_dim does not name it.", example=f"it says: {str(error) or 'nothing'}", look="say what was given and what was expected")
        return
    except Exception as error:
        fail(f"head_dim = 7 raises {type(error).__name__}, expected ValueError with the number in its text: channels turn in pairs.")
    fail("head_dim = 7 is accepted: channels turn in pairs, and one would be left over. Raise ValueError.", example=f"the tables have {got[0].shape[-1]} columns")


# --- rotate --------------------------------------------------------------------------------------------


def expected_rotation(x, cos, sin):
    """Each pair (i, i + head_dim / 2) as a complex number, times cos + i sin. NumPy arrays, in float64."""
    half = x.shape[-1] // 2
    turned = (x[..., :half] + 1j * x[..., half:]) * (cos + 1j * sin)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def rotation_mistakes(x, cos, sin):
    """(words, array) of what common mistakes give; NumPy, float64."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * (cos + 1j * sin)
    interleaved = np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape)

    def both(first, second):
        return np.concatenate(np.broadcast_arrays(first, second), axis=-1)

    return [
        ("neighbours are paired, channels 2 i and 2 i + 1; here channel i goes with i + head_dim / 2.", interleaved),
        ("neighbours are paired and then sorted into halves; here channel i goes with i + head_dim / 2.", both(pairs.real, pairs.imag)),
        ("x turns the wrong way: the sign of sin is exchanged.", both(a * cos + b * sin, b * cos - a * sin)),
        ("the second half is the first with another sign: it is first * sin + second * cos.", both(a * cos - b * sin, a * cos + b * sin)),
        ("the halves come back interleaved: the first half of the channels holds all of a', the second all of b'.", np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(x.shape)),
        ("both halves subtract: the second is first * sin + second * cos.", both(a * cos - b * sin, b * cos - a * sin)),
        ("both halves add: the first is first * cos - second * sin.", both(a * cos + b * sin, a * sin + b * cos)),
        ("cos and sin are exchanged.", both(a * sin - b * cos, a * cos + b * sin)),
        ("the halves come back in the wrong order.", both(a * sin + b * cos, a * cos - b * sin)),
        ("the channels are scaled by cos and not mixed: the terms with sin are missing.", both(a * cos, b * cos)),
        ("only the first half is turned.", both(a * cos - b * sin, b)),
        ("only the second half is turned.", both(a, a * sin + b * cos)),
        ("the second half is computed from the first one already turned.", both(a * cos - b * sin, (a * cos - b * sin) * sin + b * cos)),
        ("the first half is computed from the second one already turned.", both(a * cos - (a * sin + b * cos) * sin, a * sin + b * cos)),
        ("every position is turned by the angle of position 0.", both(a * cos[:1] - b * sin[:1], a * sin[:1] + b * cos[:1])),
        ("x is added to what is turned.", both(a * cos - b * sin, a * sin + b * cos) + x),
        ("x is not turned at all.", x),
        *((f"the halves are joined along axis {axis}; the channels are the last one.", np.concatenate(np.split(both(a * cos - b * sin, a * sin + b * cos), 2, axis=-1), axis=axis)) for axis in range(x.ndim - 1)),
    ]


ROUNDED = "a step on the way has fewer digits than x."


def numbers(*shape, T, head_dim, seed):
    x = rand(*shape, T, head_dim, seed=seed)
    a = 3 * rand(T, head_dim // 2, seed=seed + 1)
    return x, a.cos(), a.sin()


def compare_rotation(rotate, x, cos, sin, atol=2e-6, name="the result"):
    arrays = [t.detach().double().numpy() for t in (x, cos, sin)]
    known = [(words, torch.from_numpy(np.ascontiguousarray(value)).to(x.dtype)) for words, value in rotation_mistakes(*arrays)]
    got, right = call(rotate, x, cos, sin), torch.from_numpy(expected_rotation(*arrays)).to(x.dtype)
    if not equal(got, right, atol) and equal(got, right, 0.02) and got.dtype == right.dtype and not any(equal(got, value, 1e-5) for _, value in known):
        fail(f"{name} is nearly right: {ROUNDED}", example=f"the largest difference is {(got - right).abs().max().item():.1g}", look="casts to a dtype that is written out: x's own is x.dtype")
    close(got, right, atol, name=name, known=known)


@checks(ROTATE, "values")
def rotate_values(rotate):
    compare_rotation(rotate, *numbers(2, 3, T=5, head_dim=8, seed=1))


@checks(ROTATE, "any leading axes")
def rotate_shapes(rotate):
    for lead, T, head_dim in [((), 5, 4), ((3,), 4, 2), ((2, 3, 2), 3, 6), ((4, 5), 1, 8)]:
        x, cos, sin = numbers(*lead, T=T, head_dim=head_dim, seed=3)
        compare_rotation(rotate, x, cos, sin, name=f"the result for x of shape {tuple(x.shape)}")
    x, cos, sin = numbers(2, 4, T=3, head_dim=6, seed=4)
    turned = x.transpose(1, 2).contiguous().transpose(1, 2)   # as split_heads gives it
    compare_rotation(rotate, turned, cos, sin, name="the result for an x whose axes were swapped")


@checks(ROTATE, "float64 stays float64")
def rotate_dtype(rotate):
    angles = rand(5, 3, seed=8, dtype=torch.float64)
    x, cos, sin = rand(2, 5, 6, seed=5, dtype=torch.float64), angles.cos(), angles.sin()
    compare_rotation(rotate, x, cos, sin, atol=1e-12, name="the result for float64")


@checks(ROTATE, "gradients")
def rotate_gradients(rotate):
    def reference(x, cos, sin):
        half = x.shape[-1] // 2
        turned = torch.complex(x[..., :half], x[..., half:]) * torch.complex(cos, sin)
        return torch.cat([turned.real, turned.imag], dim=-1)

    x, cos, sin = numbers(2, 3, T=4, head_dim=6, seed=6)
    gradients_close(lambda x: rotate(x, cos, sin), lambda x: reference(x, cos, sin), [x.requires_grad_()], 2e-6, ["x"])
