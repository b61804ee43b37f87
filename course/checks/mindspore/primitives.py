"""Checks of lesson 10: the ports of linear, softmax, log-softmax, cross entropy and Linear. The oracle is torch in float64."""
import math

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import nn, ops

from course.checks import checks
from course.checks.mindspore import (
    Mismatch, call, close, equal, fail, fill, gradients_close, gradients_of, in_a_folder_of_its_own, is_tensor, parameters_are, rand, same_gradient_in_graph_mode,
    same_in_graph_mode,
)
from course.checks.pytorch import primitives as pytorch

LINEAR = "mindspore.primitives.linear"
SOFTMAX = "mindspore.primitives.softmax"
LOG_SOFTMAX = "mindspore.primitives.log_softmax"
CROSS_ENTROPY = "mindspore.primitives.cross_entropy"
MODULE = "mindspore.primitives.Linear"

FUSED = 1e-5    # ops.log_softmax of MindSpore is off by 4e-6 on a CPU, in float64 too: it is a right answer all the same
HALFWAY = "ms.float32 written down, .astype, and tensors that you create without dtype=x.dtype"
CUT = "ops.stop_gradient, .asnumpy() and ms.Tensor(...) cut the graph"


# --- words shared by all -------------------------------------------------------------------------------


IN_PLACE = "(A line such as `{}` changes nothing on a CPU: keep what the operation returns.)"

MORE = {   # what else the mistake may come from here
    "the bias is not added.": IN_PLACE.format("y.add_(bias)"),
    "the exponentials are not divided by their sum: each row must sum to 1.": IN_PLACE.format("e.div_(total)"),
}


def t(x):
    """The array as a torch tensor; everything else as it is."""
    return torch.from_numpy(np.ascontiguousarray(x)) if isinstance(x, np.ndarray) else x


def port(known):
    """The mistakes that the PyTorch lesson names, with their results as arrays and MindSpore's word for keepdim."""
    found = []
    for words, value in known:
        words = words.replace("keepdim=True", "keepdims=True")
        found.append((f"{words} {MORE[words]}" if words in MORE else words, value.detach().numpy()))
    return found


def attempt(function, *args, words, look="", **kwargs):
    """call(...), with words of our own for what does not fit."""
    try:
        return call(function, *args, **kwargs)
    except (AttributeError, IndexError, RuntimeError, ValueError, TypeError) as error:
        text = str(error).strip().split("\n")[0] or "nothing more"
        look = next((there for mark, there in WHERE if mark in text), look)
        fail(f"{words} {'MindSpore' if 'mindspore' in str(error) else 'Python'} says: {type(error).__name__}: {text[:200]}", look=look)


TWO_THINGS = "x.max(axis=...) gives the largest entries; x.max(dim=...) and ops.max give two things, the largest entries and where they are"

WHERE = [   # what an error says, and where to look
    ("Int64]infer_type", TWO_THINGS),
    ("Tuple<", TWO_THINGS),
    ("'tuple' object", TWO_THINGS),
    ("unexpected keyword argument", "the names of arguments, in the call and in the line that begins with def"),
    ("positional argument", "the number of arguments, in the call and in the line that begins with def"),
    ("converted to Python scalars", "functions of math, float() and int(): they take one number; ops.log and ops.exp take tensors"),
    ("numpy.ndarray", "functions of NumPy and .asnumpy(): NumPy's arrays do not mix with tensors"),
]


def stays_exact(got, want, atol=1e-12, name="the result"):
    """got is float64 and as exact as float64 is."""
    is_tensor(got, want.shape, ms.float64, name)
    if not equal(got, want, atol) and equal(got, want, 1e-4):
        fail(f"{name} is float64 and only as exact as float32: a step in between is float32, or a small number is added on the way.", look=f"{HALFWAY}, and constants such as 1e-6")
    close(got, want, atol, name)


def not_through_float32(got, want, name="the result", own=None):
    """got is float64 and close to want; every entry a float32 number means that it was computed in float32.

    own: what the framework's own operation gives, which does just that and counts as right.
    """
    is_tensor(got, want.shape, ms.float64, name)
    value = got.asnumpy()
    if own is not None and not equal(got, own, 1e-6):
        stays_exact(got, want, name=name)
    if np.array_equal(value, value.astype(np.float32)) and not (own is not None and equal(got, own, 0)):
        fail(f"{name} is float64 and only as exact as float32: a step in between is float32.", look=HALFWAY)
    close(got, want, FUSED, name)


def shape_of_sums(got, want, dim, law):
    """pattern() of the PyTorch lesson: a wrong factor, sums that are not 1."""
    if not isinstance(got, ms.Tensor) or tuple(got.shape) != want.shape or got.dtype not in (ms.float32, ms.float64):
        return []
    return [(words, value.numpy()) for words, value in pytorch.pattern(t(got.asnumpy()), t(want), dim, law)]


def torch_gradients(function, *inputs):
    """The gradients that gradients_of(...) must give, from PyTorch in float64."""
    leaves = [t(x).double().requires_grad_() for x in inputs]
    out = function(*leaves)
    weighting = t(np.asarray(rand(*out.shape, seed=99))).double()
    return [g.float().numpy() for g in torch.autograd.grad((out * weighting).sum(), leaves)]


def compiled(function, *args):
    """What ms.jit(function) gives; None if it does not compile: same_in_graph_mode then says why."""

    def run(*x):
        return function(*x)

    try:
        with in_a_folder_of_its_own():
            out = ms.jit(run)(*[ms.Tensor(a) for a in args])
            out.asnumpy()
        return out
    except Exception:
        return None


# --- linear --------------------------------------------------------------------------------------------


def stock_linear(x, weight, bias=None):
    return pytorch.stock_linear(t(x), t(weight), t(bias)).numpy()


def linear_mistakes(x, weight, bias=None):
    return port(pytorch.linear_mistakes(t(x), t(weight), t(bias)))


def only_half(got, want, atol=2e-5, look=HALFWAY.replace("ms.float32", "ms.float16")):
    """Fails if got is as exact as float16 and not as float32, which is atol."""
    if equal(got, want, 100 * atol) and not equal(got, want, atol) and got.dtype == ms.float32:
        fail("the result is only as exact as float16: a step in between is float16.", look=look)


@checks(LINEAR, "a square weight")
def linear_square(linear):
    x, weight, bias = rand(4, 4, seed=1), rand(4, 4, seed=2), rand(4, seed=3)
    got = attempt(linear, x, weight, bias, words="a plain call does not work: x (4, 4), weight (4, 4), bias (4,).")
    only_half(got, stock_linear(x, weight, bias))
    close(got, stock_linear(x, weight, bias), known=linear_mistakes(x, weight, bias))


@checks(LINEAR, "more outputs than inputs")
def linear_rectangular(linear):
    for N, d_in, d_out in [(2, 3, 5), (6, 4, 1)]:
        x, weight, bias = rand(N, d_in, seed=4), rand(d_out, d_in, seed=5), rand(d_out, seed=6)
        close(
            attempt(linear, x, weight, bias, words=f"x ({N}, {d_in}) and weight ({d_out}, {d_in}) do not work."), stock_linear(x, weight, bias),
            name=f"the result for {d_in} inputs and {d_out} outputs", known=linear_mistakes(x, weight, bias), look="sizes that are written as numbers",
        )


@checks(LINEAR, "no bias")
def linear_without_bias(linear):
    x, weight = rand(2, 3, seed=7), rand(5, 3, seed=8)
    for more in [{}, {"bias": None}]:
        got = attempt(linear, x, weight, words="linear(x, weight) without a bias does not work.", look="the default of bias, and `if bias is not None`", **more)
        close(got, stock_linear(x, weight), look="the case bias is None: with it the result is the product alone")


@checks(LINEAR, "a bias of zeros and ones")
def linear_plain_bias(linear):
    x, weight = rand(3, 4, seed=9), rand(2, 4, seed=10)
    for bias in ([0.0, 0.0], [0.0, 1.0], [1.0, 1.0]):
        b = np.array(bias, dtype=np.float32)
        close(call(linear, x, weight, b), stock_linear(x, weight, b), name=f"the result for the bias {bias}", look="`if bias is not None`: a tensor's truth is that of its one number")


@checks(LINEAR, "leading axes")
def linear_leading(linear):
    weight, bias = rand(5, 3, seed=11), rand(5, seed=12)
    for lead in [(), (4,), (2, 4), (2, 1, 4)]:
        x = rand(*lead, 3, seed=13)
        got = attempt(
            linear, x, weight, bias, words=f"x of shape {x.shape} does not work: x may have any number of axes, the last is d_in.",
            look="the operators: the primitive ops.MatMul takes two axes and no others, ops.matmul and @ take any number",
        )
        close(got, stock_linear(x, weight, bias), name=f"the result for x of shape {x.shape}")


@checks(LINEAR, "float64 stays float64, float16 stays float16")
def linear_dtypes(linear):
    x, weight, bias = (rand(*s, seed=15).astype(np.float64) / 3 for s in [(2, 3), (5, 3), (5,)])
    stays_exact(call(linear, x, weight, bias), stock_linear(x, weight, bias))
    stays_exact(call(linear, x, weight), stock_linear(x, weight))
    half = [a.astype(np.float16) for a in (x, weight, bias)]
    close(call(linear, *half), stock_linear(*half), 5e-3, name="the result in float16", look=HALFWAY)
    close(call(linear, *half[:2]), stock_linear(*half[:2]), 5e-3, name="the result in float16 without a bias", look=f"{HALFWAY}; a bias of zeros in its place")


@checks(LINEAR, "gradients")
def linear_gradients(linear):
    inputs = [rand(2, 4, 3, seed=16), rand(5, 3, seed=17), rand(5, seed=18)]
    gradients_close(gradients_of(linear, inputs), torch_gradients(F.linear, *inputs), ["x", "weight", "bias"])


TRANSPOSE = "in graph mode the weight is not transposed: there x.transpose(0, 1) is a permutation, and (0, 1) leaves everything in its place."


@checks(LINEAR, "the same in graph mode", seconds=20)
def linear_graph(linear):
    x, weight, bias = rand(4, 4, seed=19), rand(4, 4, seed=20), rand(4, seed=21)
    got = compiled(linear, x, weight, bias)
    if got is not None and equal(got, x @ weight + bias, 1e-5):
        fail(TRANSPOSE, look="swapaxes(0, 1) and .T mean the same in both modes")
    same_in_graph_mode(linear, x, weight, bias)
    same_in_graph_mode(linear, rand(2, 4, 3, seed=22), rand(5, 3, seed=23))


# --- softmax and log_softmax ---------------------------------------------------------------------------


LARGE = pytorch.LARGE


def large_rows():
    return pytorch.large_rows().numpy()


def stock(name, x, dim):
    return getattr(torch, name)(t(x).double(), dim).to(t(x).dtype).numpy()


def square(function, name, mistakes, law, seed):
    x = rand(4, 4, seed=seed, scale=2.0)
    got = attempt(function, x, -1, words="a plain call does not work: x (4, 4), dim = -1.")
    want = stock(name, x, -1)
    close(got, want, FUSED, known=port(mistakes(t(x), -1)) + shape_of_sums(got, want, -1, law))


def each_dim(function, name, mistakes, law):
    """The result for every axis of several shapes, by position and by name, counted from either end."""
    look = "maximum and sum: both along dim, both with keepdims=True"
    for shape in [(2, 3, 4), (3, 5), (2, 3, 2, 5), (6,)]:
        for dim in pytorch.all_dims(shape):
            x = rand(*shape, seed=41, scale=2.0)
            got = attempt(function, x, dim=dim, words=f"shape {shape} with dim = {dim} does not work.", look=look)
            want = stock(name, x, dim)
            close(got, want, FUSED, name=f"the result for shape {shape}, dim = {dim}", known=port(mistakes(t(x), dim)) + shape_of_sums(got, want, dim, law), look=look)
        close(call(function, x, dim), want, FUSED, name=f"the result for shape {shape}, dim = {dim}, given by position,")


def different_rows(function, name, what):
    """Each row along dim has a maximum of its own."""
    for x, dim in [(large_rows(), 1), (large_rows().T, 0), (np.broadcast_to(large_rows().T, (2, 5, 4)), 1)]:
        x = np.ascontiguousarray(x)
        got, want = call(function, x, dim), stock(name, x, dim)
        if not equal(got, want, LARGE):
            is_tensor(got, want.shape, ms.float32)
            gap = np.nan_to_num(np.abs(got.asnumpy() - want), nan=np.inf).argmax()
            fail(
                f"rows of very different size disturb each other: what is subtracted is not each row's own maximum, every exp of a small row is then 0, and {what}.",
                example=f"one row near 1000 and one near -1000: the result holds {got.asnumpy().flat[gap]:.6g} where {want.flat[gap]:.6g} is expected",
                look="the maximum: along dim, with keepdims=True. With axis= there are only values, and [0] of them is the first row",
            )


def rounded(x):
    return [float(f"{n:.4g}") for n in np.asarray(x).flatten().tolist()]


def hidden(seed):
    """Rows with entries of minus infinity."""
    x = rand(3, 5, seed=seed)
    x[0, 1:], x[1, 0], x[2, 3:] = -np.inf, -np.inf, -np.inf
    return x


def dtypes(function, name):
    x = 3 * rand(3, 5, seed=43).astype(np.float64)
    for dim in (0, 1):
        got, want = call(function, x, dim), stock(name, x, dim)
        if name == "softmax":
            stays_exact(got, want)
        else:
            not_through_float32(got, want, own=ops.log_softmax(ms.Tensor(x), dim).asnumpy())
    x = x.astype(np.float16)
    close(call(function, x, 1), stock(name, x, 1), 2e-2, name="the result in float16", look=HALFWAY)


def graph_of(function):
    """In graph mode with the axis fixed, for two axes and two numbers of axes."""

    def along(dim):
        def with_dim(x):
            return function(x, dim)

        return with_dim

    for shape, dim in [((3, 5), -1), ((2, 3, 4), 1)]:
        same_in_graph_mode(along(dim), rand(*shape, seed=50, scale=2.0))
    last, x = along(-1), large_rows()
    got, eager = compiled(last, x), last(ms.Tensor(x))
    if got is not None and equal(eager, eager.asnumpy(), 0) and not equal(got, eager.asnumpy(), LARGE):
        fail("it works eagerly and gives other numbers in graph mode for large entries.", look="an `if` that looks at the values of a tensor, and .asnumpy()")
    same_gradient_in_graph_mode(last, rand(3, 5, seed=52))


@checks(SOFTMAX, "four rows of four")
def softmax_square(softmax):
    square(softmax, "softmax", pytorch.softmax_mistakes, "one", 51)


@checks(SOFTMAX, "every dim")
def softmax_each_dim(softmax):
    each_dim(softmax, "softmax", pytorch.softmax_mistakes, "one")


@checks(SOFTMAX, "large logits")
def softmax_large(softmax):
    for row in large_rows():
        x = row[None]
        got, want = call(softmax, x, -1), stock("softmax", x, -1)
        is_tensor(got, want.shape, ms.float32)
        if not np.isfinite(got.asnumpy()).all():
            example = f"softmax({x.tolist()[0]}) is {rounded(got.asnumpy())}, expected {rounded(want)}"
            if x.max() < -88:
                fail("entries that are all very negative give nan: every exp is 0, and 0 / 0 is nan.", example=example, look="what is subtracted before exp: the largest entry itself, which may be negative")
            fail(
                f"large entries overflow: exp of more than 88 is inf in float32, and inf / inf is nan. {IN_PLACE.format('x.sub_(largest)')}",
                example=example, look="subtract the largest entry of each row before exp; the shares stay the same",
            )
        close(got, want, LARGE, name=f"softmax({x.tolist()[0]})", look="anything that cuts or scales large entries: clamp, nan_to_num, a division")


@checks(SOFTMAX, "rows of very different size")
def softmax_rows(softmax):
    different_rows(softmax, "softmax", "0 / 0 is nan")


@checks(SOFTMAX, "entries of minus infinity")
def softmax_masked(softmax):
    x = hidden(45)
    close(call(softmax, x, 1), stock("softmax", x, 1), name="with entries of -inf, which attention uses to hide keys, the result", look="-inf needs no special case: exp(-inf) is 0")


@checks(SOFTMAX, "float64 stays float64, float16 stays float16")
def softmax_dtypes(softmax):
    dtypes(softmax, "softmax")


@checks(SOFTMAX, "gradients")
def softmax_gradients(softmax):
    words = "the gradient of x misses the sum below the fraction: it is cut off there."
    for shape, dim in [((3, 5), 1), ((2, 3, 4), 0), ((2, 3, 4), -2)]:
        x = rand(*shape, seed=46)
        weighted = stock("softmax", x, dim) * rand(*shape, seed=99)
        largest = (x == x.max(dim, keepdims=True)) * weighted.sum(dim, keepdims=True)
        mine = gradients_of(lambda x: softmax(x, dim), [x])
        gradients_close(mine, torch_gradients(lambda x: x.softmax(dim), x), ["x"], known=[(words, weighted), (words, weighted - largest)])
    x = np.array([[1000.0, 998.0, -1000.0], [0.5, -np.inf, 0.0]], dtype=np.float32)
    gradients_close(gradients_of(lambda x: softmax(x, -1), [x]), torch_gradients(lambda x: x.softmax(-1), x), ["x with large entries and -inf"], LARGE)


@checks(SOFTMAX, "the same in graph mode", seconds=20)
def softmax_graph(softmax):
    graph_of(softmax)


@checks(LOG_SOFTMAX, "four rows of four")
def log_softmax_square(log_softmax):
    square(log_softmax, "log_softmax", pytorch.log_softmax_mistakes, "log of one", 47)


@checks(LOG_SOFTMAX, "every dim")
def log_softmax_each_dim(log_softmax):
    each_dim(log_softmax, "log_softmax", pytorch.log_softmax_mistakes, "log of one")


@checks(LOG_SOFTMAX, "large logits")
def log_softmax_large(log_softmax):
    for row in large_rows():
        x = row[None]
        got, want = call(log_softmax, x, -1), stock("log_softmax", x, -1)
        is_tensor(got, want.shape, ms.float32)
        if equal(got, want, LARGE):
            continue
        example = f"log_softmax({x.tolist()[0]}) is {rounded(got.asnumpy())}, expected {rounded(want)}"
        share = stock("softmax", x, -1)
        share[share < 1.2e-38] = 0                            # MindSpore has no smaller numbers
        with np.errstate(divide="ignore"):
            late = np.log(share)
        if equal(got, late, LARGE):
            fail(
                "the softmax is rounded to 0 where it is below 1e-45, and log(0) is -inf: the logarithm of a finished softmax comes too late.",
                example=example, look="log(a / b) = log(a) - log(b): then log(exp(x)) is x, and no exp is taken of it",
            )
        for epsilon in (1e-38, 1e-30, 1e-20, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5):
            if equal(got, np.log(share + epsilon), 1e-4) or equal(got, np.log(np.maximum(share, epsilon)), 1e-4):
                fail(
                    "a small number inside the logarithm hides the -inf and gives a wrong value: no result can be below its logarithm.",
                    example=example, look="log(a / b) = log(a) - log(b): no small number is needed",
                )
        if not np.isfinite(got.asnumpy()).all():
            if x.max() < -88:
                fail("entries that are all very negative: every exp is 0, and log(0) is -inf.", example=example, look="what is subtracted before exp: the largest entry itself, which may be negative")
            fail(
                f"large entries overflow: exp of more than 88 is inf in float32. {IN_PLACE.format('x.sub_(largest)')}",
                example=example, look="subtract the largest entry of each row before exp",
            )
        close(got, want, LARGE, name=f"log_softmax({x.tolist()[0]})", look="anything that cuts or scales large entries: clamp, nan_to_num, a division")


@checks(LOG_SOFTMAX, "rows of very different size")
def log_softmax_rows(log_softmax):
    different_rows(log_softmax, "log_softmax", "log(0) is -inf")


@checks(LOG_SOFTMAX, "entries of minus infinity")
def log_softmax_masked(log_softmax):
    x = hidden(48)
    close(call(log_softmax, x, 1), stock("log_softmax", x, 1), FUSED, name="with entries of -inf the result", look="-inf needs no special case: exp(-inf) is 0, and -inf minus a number is -inf")


@checks(LOG_SOFTMAX, "float64 stays float64, float16 stays float16")
def log_softmax_dtypes(log_softmax):
    dtypes(log_softmax, "log_softmax")


@checks(LOG_SOFTMAX, "gradients")
def log_softmax_gradients(log_softmax):
    words = "the gradient of x misses the logarithm of the sum: it is cut off there."
    for shape, dim in [((3, 5), 1), ((2, 3, 4), 0), ((2, 3, 4), -2)]:
        x = rand(*shape, seed=49)
        mine = gradients_of(lambda x: log_softmax(x, dim), [x])
        weighting = rand(*shape, seed=99)
        largest = (x == x.max(dim, keepdims=True)) * weighting.sum(dim, keepdims=True)
        known = [(words, weighting), (words, weighting - largest)]
        gradients_close(mine, torch_gradients(lambda x: x.log_softmax(dim), x), ["x"], known=known)
    x = np.array([[1000.0, 998.0, -1000.0], [-1000.0, -1000.5, -1001.0]], dtype=np.float32)
    gradients_close(gradients_of(lambda x: log_softmax(x, -1), [x]), torch_gradients(lambda x: x.log_softmax(-1), x), ["x with large entries"], LARGE)


@checks(LOG_SOFTMAX, "the same in graph mode", seconds=20)
def log_softmax_graph(log_softmax):
    graph_of(log_softmax)


# --- cross_entropy -------------------------------------------------------------------------------------


def stock_cross_entropy(logits, targets, ignore_index=-100):
    return pytorch.stock_cross_entropy(t(logits), t(targets).long(), ignore_index).numpy()


def cross_entropy_mistakes(logits, targets, ignore_index=-100):
    found = port(pytorch.cross_entropy_mistakes(t(logits), t(targets).long(), ignore_index))
    counts = targets != ignore_index
    log_p = t(logits).double().log_softmax(1).numpy()[counts][:, targets[counts]]
    found.append(("the sum is divided by V; divide by the number of counted targets.", -np.trace(log_p) / logits.shape[1]))
    if counts.all() and (targets == 0).any() and (targets > 0).any():
        found.append(("targets of 0 are left out: without an ignore_index -100 is left out, and nothing else.", stock_cross_entropy(logits, targets, 0)))
    return found


def logits_and_targets(N=5, V=7, seed=61, dtype=np.int32):
    return rand(N, V, seed=seed, scale=2.0), pytorch.rand_ids(N, n=min(N, V), seed=seed).numpy().astype(dtype)


def ignored_example(dtype=np.int32):
    """V above 100, so that the index -100 exists and is wrong; targets 3 of 6 counted."""
    return rand(6, 120, seed=62, scale=2.0), np.array([4, -100, 0, 119, -100, -100], dtype=dtype)


@checks(CROSS_ENTROPY, "a uniform guess")
def cross_entropy_uniform(cross_entropy):
    logits, targets = np.full((5, 8), 0.5, dtype=np.float32), np.array([0, 3, 7, 3, 1], dtype=np.int32)
    got = attempt(cross_entropy, logits, targets, words="a plain call does not work: logits (5, 8) and targets (5,) int32.", look="how row n is read at column targets[n]")
    if isinstance(got, ms.Tensor) and got.shape == () and not equal(got, np.array(math.log(8)), FUSED):
        try:                                                  # equal logits make some mistakes look alike: others tell them apart
            cross_entropy_values(cross_entropy)
        except Mismatch as mismatch:
            if "wrong values" not in str(mismatch):
                raise
    close(got, np.float32(math.log(8)), FUSED, name="the loss of equal logits for 8 tokens", known=cross_entropy_mistakes(logits, targets), look="a uniform guess costs ln V = ln 8 = 2.0794")


@checks(CROSS_ENTROPY, "values")
def cross_entropy_values(cross_entropy):
    logits, targets = logits_and_targets()
    close(call(cross_entropy, logits, targets), stock_cross_entropy(logits, targets), FUSED, name="the loss", known=cross_entropy_mistakes(logits, targets))


@checks(CROSS_ENTROPY, "targets of either integer type")
def cross_entropy_integers(cross_entropy):
    logits, targets = logits_and_targets(dtype=np.int64)
    got = attempt(
        cross_entropy, logits, targets, words="targets of dtype int64 stop the function; int32 and int64 are both allowed.",
        look="nn.CrossEntropyLoss, which takes int32 and nothing else, and indices that are built with one dtype written down",
    )
    close(got, stock_cross_entropy(logits, targets), FUSED, name="the loss for int64 targets")


@checks(CROSS_ENTROPY, "other sizes")
def cross_entropy_sizes(cross_entropy):
    for N, V in [(1, 4), (9, 3), (4, 4), (3, 130), (6, 2)]:
        logits, targets = logits_and_targets(N, V, seed=63)
        targets[0] = V - 1
        got = attempt(cross_entropy, logits, targets, words=f"logits of shape ({N}, {V}) stop the function.", look="sizes that are written as numbers")
        close(got, stock_cross_entropy(logits, targets), FUSED, name=f"the loss for logits of shape ({N}, {V})", known=cross_entropy_mistakes(logits, targets), look="sizes that are written as numbers")


@checks(CROSS_ENTROPY, "large logits")
def cross_entropy_large(cross_entropy):
    logits, targets = large_example()
    got, want = call(cross_entropy, logits, targets), stock_cross_entropy(logits, targets)
    is_tensor(got, (), ms.float32, "the loss")
    value, right = got.asnumpy().item(), want.item()
    if not math.isfinite(value):
        fail(
            f"a target far below the largest logit gives {value}: its probability is rounded to 0 before the logarithm, or exp overflows.",
            example=f"logits [1000, -1000, 0] with target 1 cost 2000; this batch costs {right:.6g}",
            look="log_softmax: one step, not the logarithm of a softmax",
        )
    if 0 < value < right - 1:
        fail(
            "the loss of a target far below the largest logit is cut off: a small number inside the logarithm, or a clamp, sets a limit.",
            example=f"the loss is {value:.6g}, expected {right:.6g}", look="log_softmax needs neither",
        )
    close(got, want, LARGE, name="the loss")


def large_example():
    return (
        np.array([[1000.0, -1000.0, 0.0], [-1000.0, -1001.0, -999.0], [3.0, 100.0, 99.0]], dtype=np.float32),
        np.array([1, 1, 0], dtype=np.int32),
    )


@checks(CROSS_ENTROPY, "ignored positions")
def cross_entropy_ignored(cross_entropy):
    logits, targets = ignored_example()
    for V in (120, 7):
        part, ids = np.ascontiguousarray(logits[:, :V]), np.minimum(targets, V - 1)
        got = attempt(
            cross_entropy, part, ids, words="a target of -100 stops the function: it says that the position does not count, and is no index.",
            look="the targets that you index with: an ignored one needs a valid index in its place, or its row left out",
        )
        close(got, stock_cross_entropy(part, ids), FUSED, name="the loss with three of six positions ignored", known=cross_entropy_mistakes(part, ids))


@checks(CROSS_ENTROPY, "another ignore_index")
def cross_entropy_other_index(cross_entropy):
    look = "where targets are compared with ignore_index; -100 written as a number"
    for index in (3, -1, 0):
        logits = rand(6, 7, seed=65, scale=2.0)
        targets = np.array([index, 2, 5, index, 4, 0 if index else 6], dtype=np.int32)
        got = attempt(cross_entropy, logits, targets, ignore_index=index, words=f"ignore_index={index} stops the function.", look=look)
        close(got, stock_cross_entropy(logits, targets, index), FUSED, name=f"the loss with ignore_index={index}", known=cross_entropy_mistakes(logits, targets, index), look=look)


@checks(CROSS_ENTROPY, "every position ignored")
def cross_entropy_all_ignored(cross_entropy):
    logits, targets = rand(3, 5, seed=66), np.full(3, -100, dtype=np.int32)
    try:
        got = call(cross_entropy, logits, targets)
    except (ArithmeticError, IndexError, RuntimeError, ValueError, TypeError) as error:
        fail(
            f"a batch in which every position is ignored stops the function ({type(error).__name__}: {str(error).strip().splitlines()[0][:200]}). The result is nan, as in PyTorch: 0 / 0 in a tensor does not raise.",
            look="a division of Python numbers, an empty list, an empty tensor",
        )
    is_tensor(got, (), ms.float32, "the loss")
    if not (np.isnan(got.asnumpy()) or got.asnumpy() == 0):
        fail("a batch in which every position is ignored still has a loss.", example=f"the loss is {got.asnumpy():.6g}, expected nan as in PyTorch")


@checks(CROSS_ENTROPY, "float64 stays float64, float16 stays float16")
def cross_entropy_dtypes(cross_entropy):
    logits, targets = logits_and_targets()
    logits = logits.astype(np.float64)
    not_through_float32(call(cross_entropy, logits, targets), stock_cross_entropy(logits, targets), name="the loss")
    half = logits.astype(np.float16)
    close(call(cross_entropy, half, targets), stock_cross_entropy(half, targets), 2e-2, name="the loss in float16", look="ms.float32 written down: mask and count too need the dtype of logits, or an integer one")


@checks(CROSS_ENTROPY, "gradients")
def cross_entropy_gradients(cross_entropy):
    for (logits, targets), atol in [(logits_and_targets(), 5e-6), (ignored_example(), 5e-6), (large_example(), LARGE)]:
        ids = t(targets).long()

        def mine(x):
            return cross_entropy(x, ms.Tensor(targets)).reshape((1,))

        def right(x):
            return F.cross_entropy(x, ids).reshape(1)

        n = (targets != -100).sum()
        cut = rand(1, seed=99) * -F.one_hot(ids.clamp(min=0), logits.shape[1]).numpy() * (targets != -100)[:, None] / n
        top = logits == logits.max(1, keepdims=True)
        gradients_close(gradients_of(mine, [logits]), torch_gradients(right, logits), ["logits"], atol, known=[
            ("the gradient of logits misses the logarithm of the sum: it is cut off there.", cut.astype(np.float32)),
            ("the gradient of logits misses the logarithm of the sum: it is cut off there.", (cut - top * cut.sum(1, keepdims=True)).astype(np.float32)),
        ])


@checks(CROSS_ENTROPY, "the same in graph mode", seconds=20)
def cross_entropy_graph(cross_entropy):
    same_in_graph_mode(cross_entropy, *logits_and_targets())
    same_in_graph_mode(cross_entropy, *ignored_example(np.int64))
    same_gradient_in_graph_mode(cross_entropy, *logits_and_targets())


# --- Linear --------------------------------------------------------------------------------------------


@checks(MODULE, "parameters")
def module_parameters(Linear):
    if isinstance(Linear, type) and issubclass(Linear, nn.Cell) and Linear.construct is nn.Cell.construct:
        fail("the method that computes is called construct here; yours is not found.", look="forward is PyTorch's name")
    cell = Linear(3, 5)
    parameters_are(cell, {"weight": (5, 3), "bias": (5,)}, "Linear")
    for key, p in cell.parameters_and_names():
        if p.dtype != ms.float32:
            fail(f"{key} has dtype {p.dtype}, expected Float32: NumPy draws float64, and MindSpore keeps it.", look="astype(np.float32) before ms.Parameter")


@checks(MODULE, "values")
def module_values(Linear):
    for d_in, d_out in [(4, 4), (3, 5)]:
        cell = Linear(d_in, d_out)
        old = [p.asnumpy().copy() for p in (cell.weight, cell.bias)]
        fill(cell)
        weight, bias = (p.asnumpy() for p in (cell.weight, cell.bias))
        x = rand(4, d_in, seed=81)
        kept = "construct works with numbers kept from __init__: when the optimizer changes {} nothing happens."
        known = linear_mistakes(x, weight, bias) + [
            (kept.format("weight and bias"), stock_linear(x, *old)),
            (kept.format("weight"), stock_linear(x, old[0], bias)),
            (kept.format("bias"), stock_linear(x, weight, old[1])),
        ]
        got = attempt(cell, x, words=f"Linear({d_in}, {d_out}) stops for x of shape {x.shape}.", look="construct")
        only_half(got, stock_linear(x, weight, bias))
        close(got, stock_linear(x, weight, bias), name=f"the result of Linear({d_in}, {d_out})", known=known, look="construct")


@checks(MODULE, "no bias")
def module_without_bias(Linear):
    cell = Linear(3, 5, bias=False)
    extra = [name for name, _ in cell.parameters_and_names() if name != "weight"]
    if extra:
        fail(f"Linear(3, 5, bias=False) still has the parameter {extra[0]}.", look="what __init__ does with its argument bias")
    parameters_are(cell, {"weight": (5, 3)}, "Linear")
    fill(cell)
    x = rand(2, 3, seed=82)
    got = attempt(cell, x, words="Linear(3, 5, bias=False) stops.", look="construct without a bias")
    close(got, stock_linear(x, cell.weight.asnumpy()), name="the result of Linear(3, 5, bias=False)")


@checks(MODULE, "the start of weight")
def module_weight_start(Linear):
    right_start("weight", Linear(64, 400).weight, 64, 400)
    right_start("weight", Linear(9, 3000).weight, 9, 3000)
    right_start("weight", Linear(64, 400, bias=False).weight, 64, 400)


@checks(MODULE, "the start of bias")
def module_bias_start(Linear):
    right_start("bias", Linear(64, 4000).bias, 64, 4000)


ELSEWHERE = {   # PyTorch's names for where to look, and MindSpore's
    ": torch.empty holds whatever was in memory": "",
    "randn and normal_ against uniform_": "standard_normal and Normal against uniform",
    "rand gives numbers": "np.random.rand gives numbers",
    "expand, repeat, and sizes of the draw": "broadcast_to, repeat, and sizes of the draw",
    "as in nn.Linear": "as in nn.Linear and nn.Dense",
}


def right_start(name, parameter, d_in, d_out):
    """Uniform between -1/sqrt(d_in) and 1/sqrt(d_in), in the words of the PyTorch lesson."""
    try:
        pytorch.right_start(name, t(parameter.asnumpy()), d_in, d_out)
    except Exception as mismatch:
        text = str(mismatch)
        for theirs, ours in ELSEWHERE.items():
            text = text.replace(theirs, ours)
        fail(text)


@checks(MODULE, "two modules")
def module_two(Linear):
    first, second = Linear(3, 5), Linear(3, 5)
    for name in ("weight", "bias"):
        a, b = getattr(first, name), getattr(second, name)
        before = b.asnumpy().copy()
        a.set_data(a + 1)
        if a is b or not np.array_equal(b.asnumpy(), before):
            fail(f"two modules share one {name}: training one changes the other.", look="parameters that are made outside __init__, and defaults that are made once")
    third, fourth = Linear(3, 5), Linear(3, 5)
    for name in ("weight", "bias"):
        if equal(getattr(third, name), getattr(fourth, name).asnumpy(), 0):
            fail(f"two modules start with the same {name}: each draws its own numbers.", look="ms.set_seed, np.random.seed or a generator inside __init__")


@checks(MODULE, "leading axes")
def module_leading(Linear):
    cell = fill(Linear(3, 5))
    for lead in [(2, 4), (2, 1, 4), ()]:
        x = rand(*lead, 3, seed=83)
        got = attempt(
            cell, x, words=f"x of shape {x.shape} does not work: x may have any number of axes, the last is d_in.",
            look="the operators: the primitive ops.MatMul takes two axes and no others, ops.matmul and @ take any number",
        )
        close(got, stock_linear(x, cell.weight.asnumpy(), cell.bias.asnumpy()), name=f"the result for x of shape {x.shape}")


@checks(MODULE, "gradients of every parameter")
def module_gradients(Linear):
    cell = fill(Linear(3, 5))
    x = rand(2, 4, 3, seed=84)
    mine = gradients_of(cell, [x], params=[cell.weight, cell.bias])
    wanted = torch_gradients(F.linear, x, cell.weight.asnumpy(), cell.bias.asnumpy())
    gradients_close(mine, wanted, ["x", "weight", "bias"])


@checks(MODULE, "the same in graph mode", seconds=20)
def module_graph(Linear):
    cell = fill(Linear(4, 4))
    x = rand(3, 4, seed=86)
    got = compiled(cell, x)
    if got is not None and equal(got, x @ cell.weight.asnumpy() + cell.bias.asnumpy(), 1e-5):
        fail(TRANSPOSE, look="swapaxes(0, 1) and .T mean the same in both modes")
    same_in_graph_mode(cell, x)
    same_in_graph_mode(fill(Linear(3, 5, bias=False)), rand(2, 4, 3, seed=87))
