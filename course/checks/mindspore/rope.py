"""Checks of lesson 17: rotate, ported. The oracle is lesson 17's PyTorch one, a product of complex numbers in NumPy."""
import mindspore as ms
import numpy as np

from course.checks import checks
from course.checks.mindspore import FLOAT32, call, close, equal, fail, gradients_close, gradients_of, is_tensor, rand, same_in_graph_mode
from course.checks.pytorch import rope as in_pytorch

ms.runtime.launch_blocking()

ROTATE = "mindspore.rope.rotate"


def numbers(*shape, T, head_dim, seed):
    angles = rand(T, head_dim // 2, seed=seed + 1, scale=3.0)
    return rand(*shape, T, head_dim, seed=seed), np.cos(angles), np.sin(angles)


def expected(x, cos, sin):
    return in_pytorch.expected_rotation(*(a.astype(np.float64) for a in (x, cos, sin))).astype(x.dtype)


def compare(rotate, x, cos, sin, **words):
    known = [(said, value.astype(x.dtype)) for said, value in in_pytorch.rotation_mistakes(x, cos, sin)]
    right = expected(x, cos, sin)
    if x.ndim > 1:
        known.insert(0, ("the halves are joined along axis 0: ops.concat takes the axis after the tuple.", np.concatenate(np.split(right, 2, axis=-1), axis=0)))
    got = call(rotate, x, cos, sin)
    if not equal(got, right, FLOAT32) and equal(got, right, 0.02) and got.dtype == ms.float32 and not any(equal(got, value, 1e-5) for _, value in known):
        fail(f"{words.get('name', 'the result')} is nearly right: {in_pytorch.ROUNDED}", example=f"the largest difference is {np.abs(got.asnumpy() - right).max():.1g}", look="casts to float16: x's own dtype is x.dtype")
    close(got, right, known=known, **words)


@checks(ROTATE, "values")
def rotate_values(rotate):
    compare(rotate, *numbers(2, 3, T=5, head_dim=8, seed=1))


@checks(ROTATE, "any leading axes")
def rotate_shapes(rotate):
    for lead, T, head_dim in [((), 5, 4), ((3,), 4, 2), ((2, 3, 2), 3, 6), ((4, 5), 1, 8)]:
        x, cos, sin = numbers(*lead, T=T, head_dim=head_dim, seed=3)
        compare(rotate, x, cos, sin, name=f"the result for x of shape {x.shape}")


@checks(ROTATE, "float16")
def rotate_dtype(rotate):
    x, cos, sin = (a.astype(np.float16) for a in numbers(2, T=5, head_dim=6, seed=5))
    got = call(rotate, x, cos, sin)
    is_tensor(got, x.shape, ms.float16, name="the result for float16")
    close(got, expected(x, cos, sin), atol=5e-3, name="the result for float16")


@checks(ROTATE, "gradients")
def rotate_gradients(rotate):
    x, cos, sin = numbers(2, 3, T=4, head_dim=6, seed=6)
    table = ms.Tensor(cos), ms.Tensor(sin)

    def turned(x):
        return rotate(x, table[0], table[1])

    want = expected(rand(2, 3, 4, 6, seed=99), cos, -sin)     # the gradient turns back
    gradients_close(gradients_of(turned, [x]), [want], ["x"])


@checks(ROTATE, "the same in graph mode", seconds=20)
def rotate_in_graph_mode(rotate):
    same_in_graph_mode(rotate, *numbers(2, 3, T=5, head_dim=8, seed=1))
