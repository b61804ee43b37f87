"""Wrong and right variants of lesson 17, rotate ported."""
import mindspore as ms
import numpy as np
from mindspore import ops

from solutions.mindspore import rope as good
from tests.mistakes import right, wrong

ROTATE = "mindspore.rope.rotate"


def halves(x):
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def join(first, second):
    return ops.concat((first, second), -1)


@wrong(ROTATE, "neighbours are paired, channels")
def ms_rotate_neighbours(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    return ops.stack((a * cos - b * sin, a * sin + b * cos), -1).reshape(x.shape)


@wrong(ROTATE, "the wrong way")
def ms_rotate_backwards(x, cos, sin):
    return good.rotate(x, cos, -sin)


@wrong(ROTATE, "cos and sin are exchanged")
def ms_rotate_exchanged(x, cos, sin):
    return good.rotate(x, sin, cos)


@wrong(ROTATE, "both halves subtract")
def ms_rotate_subtracts(x, cos, sin):
    a, b = halves(x)
    return join(a * cos - b * sin, b * cos - a * sin)


@wrong(ROTATE, "already turned")
def ms_rotate_overwrites(x, cos, sin):
    a, b = halves(x)
    a = a * cos - b * sin
    return join(a, a * sin + b * cos)


@wrong(ROTATE, "the terms with sin are missing")
def ms_rotate_scales(x, cos, sin):
    return x * join(cos, cos)


@wrong(ROTATE, "in the wrong order")
def ms_rotate_order(x, cos, sin):
    a, b = halves(good.rotate(x, cos, sin))
    return join(b, a)


@wrong(ROTATE, "joined along axis 0")
def ms_rotate_axis_forgotten(x, cos, sin):
    return ops.concat(halves(good.rotate(x, cos, sin)))


@wrong(ROTATE, "type numpy.ndarray")
def ms_rotate_numpy(x, cos, sin):
    return good.rotate(x, cos, sin).asnumpy()


@wrong(ROTATE, "argument x is changed in place")
def ms_rotate_in_place(x, cos, sin):
    x[...] = good.rotate(x, cos, sin)
    return x


@wrong(ROTATE, "x of shape")
def ms_rotate_axis_three(x, cos, sin):
    a, b = halves(x)
    return ops.concat((a * cos - b * sin, a * sin + b * cos), 3) if x.ndim == 4 else x * 1


@wrong(ROTATE, "joined along axis 2")
def ms_rotate_joins_positions(x, cos, sin):
    return ops.concat(halves(good.rotate(x, cos, sin)), -2)


@wrong(ROTATE, "nearly right")
def ms_rotate_in_float16(x, cos, sin):
    return good.rotate(*(t.astype(ms.float16) for t in (x, cos, sin))).astype(x.dtype)


@wrong(ROTATE, "expected Float16")
def ms_rotate_float32(x, cos, sin):
    return good.rotate(x.astype(ms.float32), cos, sin)


@wrong(ROTATE, "no gradient reaches x")
def ms_rotate_stopped(x, cos, sin):
    return good.rotate(ops.stop_gradient(x), cos, sin)


@wrong(ROTATE, "it works eagerly and not in graph mode")
def ms_rotate_tries(x, cos, sin):
    try:
        return good.rotate(x, cos, sin)
    except ValueError:
        return x


@right(ROTATE)
def ms_rotate_by_half(x, cos, sin):
    a, b = halves(x)
    return x * join(cos, cos) + join(-b, a) * join(sin, sin)


@right(ROTATE)
def ms_rotate_by_ops_split(x, cos, sin):
    a, b = ops.split(x, x.shape[-1] // 2, axis=-1)
    return ops.cat((ops.mul(a, cos) - ops.mul(b, sin), ops.mul(a, sin) + ops.mul(b, cos)), axis=-1)


@right(ROTATE)
def ms_rotate_by_stack(x, cos, sin):
    a, b = halves(x)
    return ops.stack((a * cos - b * sin, a * sin + b * cos), -2).reshape(x.shape)


@right(ROTATE)
def ms_rotate_by_roll(x, cos, sin):
    """The halves exchanged by a product with a permutation, the sign in the table."""
    half = x.shape[-1] // 2
    swap = ms.Tensor(np.roll(np.eye(2 * half, dtype=np.float32), half, axis=1)).astype(x.dtype)
    return x * join(cos, cos) + ops.matmul(x, swap) * join(-sin, sin)
