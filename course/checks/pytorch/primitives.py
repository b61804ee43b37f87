"""Checks of lesson 02: linear, softmax, log-softmax, cross entropy and their backward. The oracle is torch in float64."""
import math

import torch
import torch.nn.functional as F

from course.checks import checks
from course.checks.pytorch import (
    call, close, equal, fail, fill, gradients_close, is_tensor, keeps_device, number, parameters_are, rand, rand_ids,
)

LINEAR = "pytorch.primitives.linear"
LINEAR_BACKWARD = "pytorch.primitives.linear_backward"
SOFTMAX = "pytorch.primitives.softmax"
SOFTMAX_BACKWARD = "pytorch.primitives.softmax_backward"
LOG_SOFTMAX = "pytorch.primitives.log_softmax"
LOG_SOFTMAX_BACKWARD = "pytorch.primitives.log_softmax_backward"
CROSS_ENTROPY = "pytorch.primitives.cross_entropy"
CROSS_ENTROPY_BACKWARD = "pytorch.primitives.cross_entropy_backward"
MODULE = "pytorch.primitives.Linear"

GRAPH = ".detach(), .data, .item(), torch.tensor(...) and NumPy cut the graph"
HALFWAY = ".float(), and tensors that you create without dtype=x.dtype"


# --- words shared by all -------------------------------------------------------------------------------


def possible(*pairs):
    """The pairs (mistake in words, function) whose function can be computed for these shapes, with its tensor."""
    found = []
    for words, function in pairs:
        try:
            found.append((words, function()))
        except (RuntimeError, IndexError):
            pass
    return found


def attempt(function, *args, words, look="", **kwargs):
    """call(...), with words of our own for an index or a shape that does not fit."""
    try:
        return call(function, *args, **kwargs)
    except (IndexError, RuntimeError) as error:
        fail(f"{words} PyTorch says: {type(error).__name__}: {str(error).splitlines()[0]}", look=look)


def stays_exact(got, want, atol=1e-12, name="the result", look=HALFWAY):
    """got is float64 and as exact as float64 is."""
    is_tensor(got, want.shape, torch.float64, name=name)
    if not equal(got, want, atol):
        if equal(got, want, 1e-4):
            fail(
                f"{name} is float64 and only as exact as float32: a step in between is float32, or a small number is added on the way.",
                example=example(got, want),
                look=f"{look}, and constants such as 1e-6",
            )
        close(got, want, atol, name=name)


def example(got, want):
    at = (got.detach() - want).abs().nan_to_num(nan=math.inf).argmax()
    return f"{got.detach().flatten()[at].item():.15g}, expected {want.flatten()[at].item():.15g}"


def by_hand(function, *args):
    """Fails if autograd does the work: a backward runs where no graph is recorded."""
    try:
        with torch.no_grad():
            function(*(a.clone() for a in args if isinstance(a, torch.Tensor)), *(a for a in args if not isinstance(a, torch.Tensor)))
    except RuntimeError as error:
        if "grad" not in str(error):
            raise
        fail(
            "autograd does the work here. A backward runs where no graph is recorded, so it has to compute the gradient from its formula.",
            example="under torch.no_grad() your code stops",
            look="backward(), torch.autograd.grad and requires_grad",
        )


def pattern(got, want, dim=None, law=None):
    """What an unknown mistake looks like from outside, for the end of a list of known ones.

    law: what must hold along dim: "one" (the entries sum to 1), "log of one" (their exponentials do), "zero".
    """
    if not isinstance(got, torch.Tensor) or got.shape != want.shape or got.device.type == "meta" or not got.is_floating_point():
        return []
    got = got.detach().double()
    if not got.isfinite().all():
        return []
    want, found = want.double(), []
    if not got.any():
        return [("every entry is 0: what is subtracted takes all of it away, or nothing is added.", got)]
    factor = ((got * want).sum() / want.square().sum()).item()
    found.append((f"every entry is {factor:.4g} times what it should be: a factor or a division is wrong.", factor * want))
    if law is not None:
        sums = (got.exp() if law == "log of one" else got).sum(dim).flatten()
        goal = 0.0 if law == "zero" else 1.0
        worst = sums[(sums - goal).abs().argmax()].item()
        words = {
            "one": f"the entries along dim = {dim} sum to {worst:.6g}, and must sum to 1.",
            "log of one": f"the exponentials of the result along dim = {dim} sum to {worst:.6g}, and must sum to 1: it is not the logarithm of shares.",
            "zero": f"the gradient sums to {worst:.4g} along dim = {dim}, and must sum to 0: a shift of all scores changes no share.",
        }
        if abs(worst - goal) > 1e-4:
            found.append((words[law], got))
    return found


def all_dims(shape):
    """0, 1, ..., and then -1, -2, ..."""
    return [*range(len(shape)), *range(-1, -len(shape) - 1, -1)]


def other_axes(x, dim):
    return [k for k in range(x.dim()) if k != dim % x.dim()]


# --- linear --------------------------------------------------------------------------------------------


def stock_linear(x, weight, bias=None):
    return F.linear(x.double(), weight.double(), None if bias is None else bias.double()).to(x.dtype)


def linear_mistakes(x, weight, bias=None):
    b = torch.zeros(weight.shape[0]) if bias is None else bias
    right = F.linear(x, weight)
    return possible(
        ("weight is stored (d_out, d_in) and has to be transposed in the product.", lambda: x @ weight + b),
        ("weight is stored (d_out, d_in) and has to be transposed in the product; and the bias is missing.", lambda: x @ weight),
        ("the bias is not added.", lambda: right),
        ("the bias is subtracted; it is added.", lambda: right - b),
        ("the bias is added twice.", lambda: right + 2 * b),
        ("the bias is multiplied; it is added.", lambda: right * b),
        ("every output gets the same bias: bias[j] belongs to output j.", lambda: right + b.mean()),
        ("every output gets the same bias: bias[j] belongs to output j.", lambda: right + b.sum()),
        ("every output gets the same bias: bias[j] belongs to output j.", lambda: right + b[0]),
        ("the bias is added along the rows: bias[j] belongs to output j, the last axis.", lambda: right + b[:, None]),
        ("the bias is added to x, before the product; it belongs to the result.", lambda: F.linear(x + b, weight)),
        ("the weight is multiplied entry by entry; `@` is the matrix product.", lambda: x * weight + b),
        ("the weight is multiplied entry by entry; `@` is the matrix product.", lambda: x * weight.T + b),
        ("the result is transposed: a row for each row of x.", lambda: right.T + b[:, None]),
        ("the result is transposed: a row for each row of x.", lambda: right.T + b),
        ("x is transposed in the product: its rows stay rows.", lambda: x.T @ weight.T + b),
        ("x is transposed in the product: its rows stay rows.", lambda: x.T @ weight + b),
        ("the result is divided by sqrt(d_in); a linear layer does not scale.", lambda: right / math.sqrt(x.shape[-1]) + b),
        ("negative results are set to 0; a linear layer has no activation.", lambda: (right + b).relu()),
        ("the input is added to the result; the residual belongs to the block.", lambda: right + b + x),
    )


@checks(LINEAR, "a square weight")
def linear_square(linear):
    x, weight, bias = rand(4, 4, seed=1), rand(4, 4, seed=2), rand(4, seed=3)
    close(call(linear, x, weight, bias), stock_linear(x, weight, bias), atol=2e-6, known=linear_mistakes(x, weight, bias))


@checks(LINEAR, "more outputs than inputs")
def linear_rectangular(linear):
    for N, d_in, d_out in [(2, 3, 5), (6, 4, 1)]:
        x, weight, bias = rand(N, d_in, seed=4), rand(d_out, d_in, seed=5), rand(d_out, seed=6)
        close(
            call(linear, x, weight, bias), stock_linear(x, weight, bias), atol=2e-6,
            name=f"the result for {d_in} inputs and {d_out} outputs", known=linear_mistakes(x, weight, bias), look="sizes that are written as numbers",
        )


@checks(LINEAR, "no bias")
def linear_without_bias(linear):
    x, weight = rand(2, 3, seed=7), rand(5, 3, seed=8)
    for more in [{}, {"bias": None}]:
        try:
            got = call(linear, x, weight, **more)
        except TypeError as error:
            fail(
                f"linear(x, weight) without a bias does not work. Python says: {str(error).splitlines()[0]}",
                look="the default of bias, and `if bias is not None`",
            )
        close(got, stock_linear(x, weight), atol=2e-6, known=possible(
            ("without a bias something is still added: with bias=None the result is the product alone.", lambda: F.linear(x, weight) + 1),
        ), look="the case bias is None")


@checks(LINEAR, "a bias of zeros and ones")
def linear_plain_bias(linear):
    x, weight = rand(3, 4, seed=9), rand(2, 4, seed=10)
    for bias in [torch.zeros(2), torch.tensor([0.0, 1.0]), torch.ones(2)]:
        close(call(linear, x, weight, bias), stock_linear(x, weight, bias), atol=2e-6, name=f"the result for the bias {bias.tolist()}", look="`if bias is not None`: a tensor's truth is that of its one number")


@checks(LINEAR, "leading axes")
def linear_leading(linear):
    weight, bias = rand(5, 3, seed=11), rand(5, seed=12)
    for lead in [(), (4,), (2, 4), (2, 1, 4)]:
        x = rand(*lead, 3, seed=13)
        got = attempt(linear, x, weight, bias, words=f"x of shape {tuple(x.shape)} does not work: x may have any number of axes, the last is d_in.")
        close(got, stock_linear(x, weight, bias), atol=2e-6, name=f"the result for x of shape {tuple(x.shape)}")
    x = rand(3, 4, 2, seed=14).permute(2, 1, 0)
    got = attempt(linear, x, weight, bias, words="an x that is not contiguous does not work.", look="view needs contiguous memory, reshape copies where it must")
    close(got, stock_linear(x, weight, bias), atol=2e-6, name="the result for an x that is not contiguous")


@checks(LINEAR, "float64 stays float64")
def linear_float64(linear):
    x, weight, bias = (rand(*s, seed=15, dtype=torch.float64) for s in [(2, 3), (5, 3), (5,)])
    stays_exact(call(linear, x, weight, bias), F.linear(x, weight, bias))
    stays_exact(call(linear, x, weight), F.linear(x, weight))


@checks(LINEAR, "gradients")
def linear_gradients(linear):
    x, weight, bias = rand(2, 4, 3, seed=16), rand(5, 3, seed=17), rand(5, seed=18)
    gradients_close(linear, F.linear, [x, weight, bias], 1e-5, ["x", "weight", "bias"])


@checks(LINEAR, "the device of the input")
def linear_device(linear):
    keeps_device(linear, rand(2, 3), rand(5, 3), rand(5))
    keeps_device(linear, rand(2, 3), rand(5, 3))


# --- linear_backward -----------------------------------------------------------------------------------


PARTS = ("grad_x", "grad_weight", "grad_bias")


def linear_gradients_of(grad, x, weight):
    x, weight = x.double().detach().requires_grad_(), weight.double().detach().requires_grad_()
    bias = torch.zeros(weight.shape[0], dtype=torch.float64, requires_grad=True)
    wanted = torch.autograd.grad(F.linear(x, weight, bias), (x, weight, bias), grad.double())
    return [w.to(grad.dtype) for w in wanted]


def three(got):
    """The three gradients; fails if there is another number of them."""
    if got is None:
        fail("the result is None. Is there a return?")
    if not isinstance(got, (tuple, list)):
        fail(f"linear_backward returns three gradients, (grad_x, grad_weight, grad_bias); yours is of type {type(got).__name__}.")
    if len(got) != 3:
        fail(f"linear_backward returns three gradients, (grad_x, grad_weight, grad_bias); yours returns {len(got)}.")
    return list(got)


def grad_x_mistakes(grad, x, weight):
    return possible(
        ("grad_x multiplies by weight transposed: the forward transposed it, the way back does not.", lambda: grad @ weight.T),
        ("grad_x is transposed: it has the shape of x.", lambda: (grad @ weight).T),
        ("grad_x is transposed: it has the shape of x.", lambda: weight.T @ grad.T),
        ("grad_x is the weight: by the chain rule it is still multiplied by grad.", lambda: weight.expand(x.shape)),
        ("grad_x multiplies by x; the slope of y in x is weight.", lambda: grad @ x),
        ("grad_x multiplies grad and weight entry by entry; it sums over the outputs with `@`.", lambda: grad * weight),
        ("grad_x has the wrong sign.", lambda: -grad @ weight),
        ("grad_x is divided by the number of rows; each row has a gradient of its own.", lambda: grad @ weight / x.shape[0]),
        ("the gradients come in the wrong order: grad_x, grad_weight, grad_bias it is.", lambda: grad.T @ x),
        ("the gradients come in the wrong order: grad_x, grad_weight, grad_bias it is.", lambda: grad.sum(0)),
    )


def grad_weight_mistakes(grad, x, weight):
    rows = x.shape[0]
    return possible(
        ("grad_weight is transposed: it has the shape of weight, (d_out, d_in).", lambda: x.T @ grad),
        ("grad_weight is not summed over the rows: it is `@` that sums, with grad transposed.", lambda: grad @ x),
        ("grad_weight sums over the wrong axes: the axis that goes away is that of the rows.", lambda: grad @ x.T),
        ("grad_weight sums over the wrong axes: the axis that goes away is that of the rows.", lambda: x @ grad.T),
        ("grad_weight is averaged over the rows; gradients of rows add up. (The mean, if there is one, is already in grad.)", lambda: grad.T @ x / rows),
        ("grad_weight has the wrong sign.", lambda: -grad.T @ x),
        ("grad_weight multiplies by weight; the slope of y in weight is x.", lambda: grad.T @ weight),
        ("grad_weight multiplies grad and x entry by entry.", lambda: grad * x),
        ("grad_weight is made of x alone: by the chain rule it is still multiplied by grad.", lambda: torch.ones_like(grad).T @ x),
        ("the gradients come in the wrong order: grad_x, grad_weight, grad_bias it is.", lambda: grad @ weight),
        ("the gradients come in the wrong order: grad_x, grad_weight, grad_bias it is.", lambda: grad.sum(0)),
    )


def grad_bias_mistakes(grad):
    rows = grad.reshape(-1, grad.shape[-1])
    total = rows.sum(0)
    return possible(
        ("grad_bias is not summed over the rows: one bias serves every row, so its gradients add up.", lambda: grad),
        ("grad_bias is summed over the first axis only; one bias serves all leading axes.", lambda: grad.sum(0)),
        ("grad_bias sums over the outputs; the sum runs over the rows and leaves the last axis.", lambda: grad.sum(-1)),
        ("grad_bias is averaged over the rows; gradients of rows add up.", lambda: rows.mean(0)),
        ("grad_bias is averaged over the first axis; gradients add up.", lambda: grad.mean(0)),
        ("grad_bias is summed over everything: each output has a bias of its own.", lambda: rows.sum()),
        ("grad_bias is summed over everything: each output has a bias of its own.", lambda: rows.sum().expand(total.shape)),
        ("grad_bias has an axis too many: it has the shape of bias, (d_out,).", lambda: total[None]),
        ("grad_bias is a vector of ones: by the chain rule it is still multiplied by grad.", lambda: torch.ones_like(total)),
        ("grad_bias is the number of rows: by the chain rule each row is still multiplied by its grad.", lambda: torch.full_like(total, len(rows))),
        ("grad_bias has the wrong sign.", lambda: -total),
        ("grad_bias takes the first row of grad alone.", lambda: rows[0]),
        ("grad_bias takes the last row of grad alone.", lambda: rows[-1]),
        ("grad_bias is 0: the bias has a slope too.", lambda: torch.zeros_like(total)),
    )


def square_backward():
    return rand(4, 4, seed=21), rand(4, 4, seed=22), rand(4, 4, seed=23)


@checks(LINEAR_BACKWARD, "the gradient of x")
def backward_of_x(linear_backward):
    grad, x, weight = square_backward()
    got = three(call(linear_backward, grad, x, weight))
    close(got[0], linear_gradients_of(grad, x, weight)[0], 2e-6, name="grad_x", known=grad_x_mistakes(grad, x, weight) + pattern(got[0], linear_gradients_of(grad, x, weight)[0]))


@checks(LINEAR_BACKWARD, "the gradient of weight")
def backward_of_weight(linear_backward):
    grad, x, weight = square_backward()
    got = three(call(linear_backward, grad, x, weight))
    close(got[1], linear_gradients_of(grad, x, weight)[1], 2e-6, name="grad_weight", known=grad_weight_mistakes(grad, x, weight) + pattern(got[1], linear_gradients_of(grad, x, weight)[1]))


@checks(LINEAR_BACKWARD, "the gradient of bias")
def backward_of_bias(linear_backward):
    for rows, d_out in [(4, 4), (6, 5)]:
        grad, x, weight = rand(rows, d_out, seed=24), rand(rows, 4, seed=25), rand(d_out, 4, seed=26)
        got = three(call(linear_backward, grad, x, weight))
        close(got[2], linear_gradients_of(grad, x, weight)[2], 2e-6, name="grad_bias", known=grad_bias_mistakes(grad) + pattern(got[2], linear_gradients_of(grad, x, weight)[2]))


@checks(LINEAR_BACKWARD, "leading axes")
def backward_leading(linear_backward):
    for lead in [(4,), (2, 4), (2, 3, 4), (1,), ()]:
        grad, x, weight = rand(*lead, 5, seed=27), rand(*lead, 3, seed=28), rand(5, 3, seed=29)
        words = f"x of shape {tuple(x.shape)} does not work: x may have any number of axes, the last is d_in."
        got = three(attempt(linear_backward, grad, x, weight, words=words, look="bring grad and x to two axes first: rows and channels"))
        wanted = linear_gradients_of(grad, x, weight)
        known = [
            (),
            possible(
                ("grad_weight is summed over one axis only: all leading axes are rows.", lambda: grad.transpose(-1, -2) @ x),
                ("grad_weight is averaged over an axis; gradients add up.", lambda: (grad.transpose(-1, -2) @ x).mean(0)),
                ("grad_weight takes one sequence of the batch alone.", lambda: (grad.transpose(-1, -2) @ x)[0]),
                ("grad_weight takes one sequence of the batch alone.", lambda: (grad.transpose(-1, -2) @ x)[-1]),
            ),
            grad_bias_mistakes(grad),
        ]
        for name, mine, want, mistakes in zip(PARTS, got, wanted, known):
            close(mine, want, 4e-6, name=f"{name} for x of shape {tuple(x.shape)}", known=mistakes)


@checks(LINEAR_BACKWARD, "a grad that is not contiguous")
def backward_not_contiguous(linear_backward):
    x, weight = rand(3, 4, 2, seed=30).permute(2, 1, 0), rand(5, 3, seed=31)
    for grad in [torch.ones(()).expand(2, 4, 5), rand(5, 4, 2, seed=32).permute(2, 1, 0)]:     # .sum().backward() hands over the first
        got = three(attempt(
            linear_backward, grad, x, weight, words="tensors that are not contiguous do not work; .sum().backward() hands over such a grad.",
            look="view needs contiguous memory, reshape copies where it must",
        ))
        for name, mine, want in zip(PARTS, got, linear_gradients_of(grad, x, weight)):
            close(mine, want, 4e-6, name=name)


@checks(LINEAR_BACKWARD, "float64 stays float64")
def backward_float64(linear_backward):
    grad, x, weight = (rand(*s, seed=33, dtype=torch.float64) for s in [(2, 4, 5), (2, 4, 3), (5, 3)])
    got = three(call(linear_backward, grad, x, weight))
    for name, mine, want in zip(PARTS, got, linear_gradients_of(grad, x, weight)):
        stays_exact(mine, want, name=name)


@checks(LINEAR_BACKWARD, "without autograd")
def backward_by_hand(linear_backward):
    by_hand(linear_backward, *square_backward())


@checks(LINEAR_BACKWARD, "the device of the input")
def backward_device(linear_backward):
    for i in range(3):
        keeps_device(lambda *args: three(linear_backward(*args))[i], rand(2, 4, 5), rand(2, 4, 3), rand(5, 3))


# --- softmax and log_softmax ---------------------------------------------------------------------------


def softmax_mistakes(x, dim):
    """What common mistakes give on these inputs, in float64."""
    x = x.double()
    e = (x - x.amax(dim, keepdim=True)).exp()
    plain = x.exp()
    row = plain / plain.sum(dim, keepdim=True)
    wrong_axis = [
        (f"the sum runs over axis {k}; dim = {dim} was asked for: {'the last axis is not always the one' if k == x.dim() - 1 else 'which axis sums to 1 is the caller' + chr(39) + 's choice'}.", lambda k=k: x.softmax(k))
        for k in other_axes(x, dim)
    ]
    wrong_axis += [
        (f"the maximum is taken over axis {k} and the sum over axis {dim}: what is subtracted has to be the same along dim = {dim}.", lambda k=k: (x - x.amax(k, keepdim=True)).softmax(dim))
        for k in other_axes(x, dim)
    ] + [
        (f"the sum runs over axis {k}; dim = {dim} was asked for.", lambda k=k: e / e.sum(k, keepdim=True)) for k in other_axes(x, dim)
    ]
    return possible(
        *wrong_axis,
        ("the softmax runs over all entries at once: each row along dim sums to 1 by itself.", lambda: plain / plain.sum()),
        ("the sum below the fraction has lost its axis: without keepdim=True the sum of row i is broadcast to column i.", lambda: e / e.sum(dim)),
        ("the sum below the fraction has lost its axis: without keepdim=True the sum of row i is broadcast to column i.", lambda: plain / plain.sum(dim)),
        ("the largest entry has lost its axis: without keepdim=True the maximum of row i is subtracted from column i.", lambda: (x - x.amax(dim)).softmax(dim)),
        ("maximum and sum have lost their axis: without keepdim=True those of row i are broadcast to column i.", lambda: (x - x.amax(dim)).exp() / (x - x.amax(dim)).exp().sum(dim)),
        *(("the largest entry is subtracted in exp and not in the sum (or the other way round): above and below the fraction must be shifted alike.", value) for value in (lambda: e / plain.sum(dim, keepdim=True), lambda: plain / e.sum(dim, keepdim=True))),
        ("x itself is divided by its sum: exp is missing.", lambda: x / x.sum(dim, keepdim=True)),
        ("x itself is divided by its sum: exp is missing.", lambda: (x - x.amax(dim, keepdim=True)) / (x - x.amax(dim, keepdim=True)).sum(dim, keepdim=True)),
        ("the exponentials are not divided by their sum: each row must sum to 1.", lambda: e),
        ("the exponentials are not divided by their sum: each row must sum to 1.", lambda: plain),
        ("the exponentials are divided by their mean: each row sums to its length, and must sum to 1.", lambda: e / e.mean(dim, keepdim=True)),
        ("the exponentials are divided by the largest of them: each row must sum to 1.", lambda: e / e.amax(dim, keepdim=True)),
        ("the exponentials are divided by their Euclidean length, not by their sum.", lambda: e / e.norm(dim=dim, keepdim=True)),
        ("all entries are equal: x has no influence.", lambda: torch.full_like(x, 1 / x.shape[dim])),
        ("the base is 2, not e.", lambda: (x * math.log(2)).softmax(dim)),
        ("the base is 10, not e.", lambda: (x * math.log(10)).softmax(dim)),
        ("the sign is wrong: the largest entry must get the largest share.", lambda: (-x).softmax(dim)),
        ("this is the sigmoid: the entries do not share a sum.", lambda: x.sigmoid()),
        ("this is the logarithm of the softmax.", lambda: x.log_softmax(dim)),
        ("the softmax is taken twice.", lambda: x.softmax(dim).softmax(dim)),
        ("this is one-hot at the largest entry; the softmax gives every entry a share.", lambda: (x == x.amax(dim, keepdim=True)).double()),
        *(("x is scaled before exp (by its maximum, its standard deviation, a root of its length, a temperature): no scale belongs here.", scaled) for scaled in (
            lambda: (x / math.sqrt(x.shape[dim])).softmax(dim),
            lambda: (x / x.std(dim, keepdim=True)).softmax(dim),
            lambda: (x / x.std(dim, keepdim=True, unbiased=False)).softmax(dim),
            lambda: (x / x.std()).softmax(dim),
            lambda: (x / x.amax(dim, keepdim=True)).softmax(dim),
            lambda: (x / x.max()).softmax(dim),
            lambda: (x / x.abs().amax(dim, keepdim=True)).softmax(dim),
            lambda: (x / x.norm(dim=dim, keepdim=True)).softmax(dim),
            lambda: (x / 2).softmax(dim),
        )),
        ("the absolute values are used: negative entries must get a small share.", lambda: x.abs().softmax(dim)),
        ("the squares of the exponentials are divided by their sum.", lambda: (2 * x).softmax(dim)),
        ("x is squared where exp is meant.", lambda: x.square() / x.square().sum(dim, keepdim=True)),
    )


def log_softmax_mistakes(x, dim):
    x = x.double()
    m = x.amax(dim, keepdim=True)
    lse = x.logsumexp(dim, keepdim=True)
    wrong_axis = [
        (f"the sum runs over axis {k}; dim = {dim} was asked for.", lambda k=k: x.log_softmax(k)) for k in other_axes(x, dim)
    ] + [
        (f"the maximum is taken over axis {k} and the sum over axis {dim}: what is subtracted has to be the same along dim = {dim}.", lambda k=k: (x - x.amax(k, keepdim=True)).log_softmax(dim))
        for k in other_axes(x, dim)
    ] + [
        (f"the sum runs over axis {k}; dim = {dim} was asked for.", lambda k=k: x - m - (x - m).logsumexp(k, keepdim=True)) for k in other_axes(x, dim)
    ]
    return possible(
        *wrong_axis,
        ("the sum runs over all entries at once: each row along dim is normalised by itself.", lambda: x - x.flatten().logsumexp(0)),
        ("the logarithm of the sum has lost its axis: without keepdim=True that of row i is broadcast to column i.", lambda: x - x.logsumexp(dim)),
        ("the logarithm of the sum has lost its axis: without keepdim=True that of row i is broadcast to column i.", lambda: x - m - (x - m).logsumexp(dim)),
        ("the largest entry has lost its axis: without keepdim=True the maximum of row i is subtracted from column i.", lambda: (x - x.amax(dim)).log_softmax(dim)),
        ("maximum and sum have lost their axis: without keepdim=True those of row i are broadcast to column i.", lambda: (x - x.amax(dim)) - (x - x.amax(dim)).logsumexp(dim)),
        ("the largest entry is subtracted inside the sum only: subtract it from x in front of the sum as well.", lambda: x - (lse - m)),
        ("the largest entry is subtracted from x in front and not inside the sum: it then counts twice.", lambda: x - m - lse),
        ("the largest entry is added where it should be subtracted.", lambda: x + m - lse),
        ("this is the softmax: its logarithm is asked for.", lambda: x.softmax(dim)),
        ("the logarithm to base 2 is taken; it is the natural one.", lambda: x.log_softmax(dim) / math.log(2)),
        ("the logarithm to base 2 is taken of the sum; it is the natural one.", lambda: x - m - (x - m).exp().sum(dim, keepdim=True).log2()),
        ("the logarithm to base 2 is taken of the sum; it is the natural one.", lambda: x - x.exp().sum(dim, keepdim=True).log2()),
        ("the logarithm to base 10 is taken; it is the natural one.", lambda: x.log_softmax(dim) / math.log(10)),
        ("the logarithm to base 10 is taken of the sum; it is the natural one.", lambda: x - m - (x - m).exp().sum(dim, keepdim=True).log10()),
        ("log1p(s) is log(1 + s); the logarithm of the sum itself is needed.", lambda: x - m - (x - m).exp().sum(dim, keepdim=True).log1p()),
        ("the sum is subtracted without its logarithm.", lambda: x - m - (x - m).exp().sum(dim, keepdim=True)),
        ("the sum is subtracted without its logarithm.", lambda: x - x.exp().sum(dim, keepdim=True)),
        ("the sum of x is used where the sum of exp(x) is meant.", lambda: x - x.sum(dim, keepdim=True)),
        ("only the largest entry is subtracted: the logarithm of the sum is missing.", lambda: x - m),
        ("the mean of the exponentials is used, not their sum.", lambda: x - lse + math.log(x.shape[dim])),
        ("the sign is wrong: logarithms of probabilities are at most 0.", lambda: lse - x),
        ("the logarithm of the sum is added; it is subtracted, as log(a / b) = log(a) - log(b).", lambda: x + lse),
        ("the logarithm of the sum is added; it is subtracted, as log(a / b) = log(a) - log(b).", lambda: x - m + (x - m).exp().sum(dim, keepdim=True).log()),
        ("x is divided by the logarithm of the sum; log(a / b) is log(a) - log(b).", lambda: (x - m) / (x - m).exp().sum(dim, keepdim=True).log()),
        ("x is divided by the logarithm of the sum; log(a / b) is log(a) - log(b).", lambda: x / lse),
        ("only the logarithm of the sum is returned; it is subtracted from x.", lambda: lse),
        ("only the logarithm of the sum is returned; it is subtracted from x.", lambda: lse.expand(x.shape)),
        ("the sign of x is wrong.", lambda: (-x).log_softmax(dim)),
        ("the sigmoid's logarithm is taken: the entries do not share a sum.", lambda: F.logsigmoid(x)),
        ("log_softmax is applied to the softmax: exp is taken twice.", lambda: x.softmax(dim).log_softmax(dim)),
    )


LARGE = 2e-4   # float32 near 1000 is exact to 6e-5: x - logsumexp(x) is right and no better


def large_rows():
    return torch.tensor([
        [3.0, 100.0, 1.0, 99.0, 0.0],
        [1000.0, 999.0, -1000.0, 0.0, 998.5],
        [-1000.0, -1001.0, -999.5, -1002.0, -1000.5],
        [0.0, -100.0, -99.0, 0.5, -1.0],
    ])


def each_dim(function, stock, mistakes, law):
    """The result for every axis of several shapes, by position and by name, counted from either end."""
    for shape in [(2, 3, 4), (3, 5), (2, 3, 2, 5), (6,)]:
        for dim in all_dims(shape):
            x = rand(*shape, seed=41, scale=2.0)
            name = f"the result for shape {shape}, dim = {dim}"
            words = f"shape {shape} with dim = {dim} does not work."
            look = "maximum and sum: both along dim, both with keepdim=True"
            got = attempt(function, x, dim=dim, words=words, look=look)
            want = stock(x.double(), dim).float()
            close(got, want, 2e-6, name=name, known=mistakes(x, dim) + pattern(got, want, dim, law), look=look)
            close(call(function, x, dim), want, 2e-6, name=name)
    x = rand(4, 3, 2, seed=42).permute(2, 1, 0)
    got = attempt(function, x, 1, words="an x that is not contiguous does not work.", look="view needs contiguous memory, reshape copies where it must")
    close(got, stock(x.double(), 1).float(), 2e-6, name="the result for an x that is not contiguous")


def dtypes(function, stock):
    x = 3 * rand(3, 5, seed=43, dtype=torch.float64)
    for dim in (0, 1):
        stays_exact(call(function, x, dim), stock(x, dim))
    for dtype in (torch.float16, torch.bfloat16):
        got = call(function, x.to(dtype), 1)
        close(got, stock(x.to(dtype).double(), 1).to(dtype), 6e-2, name=f"the result in {dtype}", look=HALFWAY)


@checks(SOFTMAX, "four rows of four")
def softmax_square(softmax):
    x = rand(4, 4, seed=44, scale=2.0)
    got, want = call(softmax, x, -1), x.double().softmax(-1).float()
    if isinstance(got, torch.Tensor) and got.shape == want.shape and not equal(got, want, 2e-6):
        sums = got.detach().double().sum(-1, keepdim=True)
        if 0 < (1 - sums).max() < 1e-2 and equal(got / sums, want, 2e-6):
            fail(
                "the shares sum to a little less than 1: a small number is added to the sum below the fraction. With the maximum subtracted the sum is at least 1, and no division by 0 can occur.",
                example=f"the entries of a row sum to {number(sums.min())}",
            )
    close(got, want, 2e-6, known=softmax_mistakes(x, -1) + pattern(got, want, -1, "one"))


@checks(SOFTMAX, "every dim")
def softmax_each_dim(softmax):
    each_dim(softmax, torch.softmax, softmax_mistakes, "one")


@checks(SOFTMAX, "large logits")
def softmax_large(softmax):
    for i, row in enumerate(large_rows()):
        x = row[None]
        got = call(softmax, x, -1)
        want = x.double().softmax(-1).float()
        if isinstance(got, torch.Tensor) and got.shape == want.shape and not got.isfinite().all():
            if x.amax() < -88:
                fail(
                    "entries that are all very negative give nan: every exp is 0, and 0 / 0 is nan.",
                    example=f"softmax({x.tolist()[0]}) is {rounded(got[0])}, expected {rounded(want[0])}",
                    look="what is subtracted before exp: the largest entry itself, which may be negative",
                )
            fail(
                "large entries overflow: exp of more than 88 is inf in float32, and inf / inf is nan.",
                example=f"softmax({x.tolist()[0]}) is {rounded(got[0])}, expected {rounded(want[0])}",
                look="subtract the largest entry of each row before exp; the shares stay the same",
            )
        close(got, want, LARGE, name=f"softmax({x.tolist()[0]})", look="anything that cuts or scales large entries: clamp, nan_to_num, a division")


@checks(SOFTMAX, "rows of very different size")
def softmax_rows(softmax):
    for x, dim in [(large_rows(), 1), (large_rows().T, 0), (large_rows().T.expand(2, 5, 4), 1)]:
        got = call(softmax, x, dim)
        different_rows(got, x.double().softmax(dim).float(), "0 / 0 is nan")


def different_rows(got, want, what):
    """Each row along dim has a maximum of its own."""
    if equal(got, want, LARGE):
        return
    if isinstance(got, torch.Tensor) and got.shape == want.shape:
        fail(
            f"rows of very different size disturb each other: what is subtracted is not each row's own maximum, every exp of a small row is then 0, and {what}.",
            example=f"one row near 1000 and one near -1000: the result holds {number(want.new_tensor(worst(got, want)))} where {number(want.new_tensor(worst(want, got)))} is expected",
            look="the maximum: along dim, with keepdim=True",
        )
    is_tensor(got, want.shape)


def worst(a, b):
    at = (a - b).detach().abs().nan_to_num(nan=math.inf).argmax()
    return a.detach().flatten()[at].item()


def rounded(x):
    return [float(f"{n:.4g}") for n in x.detach().tolist()]


@checks(SOFTMAX, "entries of minus infinity")
def softmax_masked(softmax):
    x = rand(3, 5, seed=45)
    x[0, 1:], x[1, 0], x[2, 3:] = -math.inf, -math.inf, -math.inf
    close(
        call(softmax, x, 1), x.double().softmax(1).float(), 2e-6,
        name="with entries of -inf, which attention uses to hide keys, the result", look="-inf needs no special case: exp(-inf) is 0",
    )


@checks(SOFTMAX, "float64 stays float64, float16 stays float16")
def softmax_dtypes(softmax):
    dtypes(softmax, torch.softmax)


@checks(SOFTMAX, "gradients")
def softmax_gradients(softmax):
    for shape, dim in [((3, 5), 1), ((2, 3, 4), 0), ((2, 3, 4), -2)]:
        x = rand(*shape, seed=46)
        weighted = x.softmax(dim) * rand(*shape, seed=99)
        largest = (x == x.amax(dim, keepdim=True)) * weighted.sum(dim, keepdim=True)
        words = "the gradient of x misses the sum below the fraction: it is cut off there."
        gradients_close(lambda x: softmax(x, dim), lambda x: x.softmax(dim), [x], 1e-5, ["x"], known=[(words, weighted), (words, weighted - largest)])
    x = torch.tensor([[1000.0, 998.0, -1000.0], [0.5, -math.inf, 0.0]])
    gradients_close(lambda x: softmax(x, -1), lambda x: x.softmax(-1), [x], LARGE, ["x with large entries and -inf"])


@checks(SOFTMAX, "the device of the input")
def softmax_device(softmax):
    keeps_device(softmax, rand(3, 5), 1)


@checks(LOG_SOFTMAX, "four rows of four")
def log_softmax_square(log_softmax):
    x = rand(4, 4, seed=47, scale=2.0)
    got, want = call(log_softmax, x, -1), x.double().log_softmax(-1).float()
    close(got, want, 2e-6, known=log_softmax_mistakes(x, -1) + pattern(got, want, -1, "log of one"))


@checks(LOG_SOFTMAX, "every dim")
def log_softmax_each_dim(log_softmax):
    each_dim(log_softmax, torch.log_softmax, log_softmax_mistakes, "log of one")


@checks(LOG_SOFTMAX, "large logits")
def log_softmax_large(log_softmax):
    for x in large_rows().split(1):
        got = call(log_softmax, x, -1)
        want = x.double().log_softmax(-1).float()
        if equal(got, want, LARGE):
            is_tensor(got, want.shape, want.dtype)
            continue
        example = ""
        if isinstance(got, torch.Tensor) and got.shape == want.shape:
            example = f"log_softmax({x.tolist()[0]}) is {rounded(got[0])}, expected {rounded(want[0])}"
        if equal(got, x.softmax(-1).log(), LARGE):
            fail(
                "the softmax is rounded to 0 where it is below 1e-45, and log(0) is -inf: the logarithm of a finished softmax comes too late.",
                example=example, look="log(a / b) = log(a) - log(b): then log(exp(x)) is x, and no exp is taken of it",
            )
        for epsilon in (1e-45, 1e-38, 1e-30, 1e-20, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5):
            if equal(got, (x.softmax(-1) + epsilon).log(), 1e-4) or equal(got, x.softmax(-1).clamp(min=epsilon).log(), 1e-4):
                fail(
                    "a small number inside the logarithm hides the -inf and gives a wrong value: no result can be below its logarithm.",
                    example=example, look="log(a / b) = log(a) - log(b): no small number is needed",
                )
        if isinstance(got, torch.Tensor) and got.shape == want.shape and not got.isfinite().all():
            if x.amax() < -88:
                fail(
                    "entries that are all very negative: every exp is 0, and log(0) is -inf.",
                    example=example, look="what is subtracted before exp: the largest entry itself, which may be negative",
                )
            fail("large entries overflow: exp of more than 88 is inf in float32.", example=example, look="subtract the largest entry of each row before exp")
        close(got, want, LARGE, name=f"log_softmax({x.tolist()[0]})", look="anything that cuts or scales large entries: clamp, nan_to_num, a division")


@checks(LOG_SOFTMAX, "rows of very different size")
def log_softmax_rows(log_softmax):
    for x, dim in [(large_rows(), 1), (large_rows().T, 0), (large_rows().T.expand(2, 5, 4), 1)]:
        got = call(log_softmax, x, dim)
        different_rows(got, x.double().log_softmax(dim).float(), "log(0) is -inf")


@checks(LOG_SOFTMAX, "entries of minus infinity")
def log_softmax_masked(log_softmax):
    x = rand(3, 5, seed=48)
    x[0, 1:], x[1, 0], x[2, 3:] = -math.inf, -math.inf, -math.inf
    close(
        call(log_softmax, x, 1), x.double().log_softmax(1).float(), 2e-6,
        name="with entries of -inf the result", look="-inf needs no special case: exp(-inf) is 0, and -inf minus a number is -inf",
    )


@checks(LOG_SOFTMAX, "float64 stays float64, float16 stays float16")
def log_softmax_dtypes(log_softmax):
    dtypes(log_softmax, torch.log_softmax)


@checks(LOG_SOFTMAX, "gradients")
def log_softmax_gradients(log_softmax):
    for shape, dim in [((3, 5), 1), ((2, 3, 4), 0), ((2, 3, 4), -2)]:
        gradients_close(lambda x: log_softmax(x, dim), lambda x: x.log_softmax(dim), [rand(*shape, seed=49)], 1e-5, ["x"], known=[(
            "the gradient of x misses the logarithm of the sum: it is cut off there.", rand(*shape, seed=99),
        )])
    x = torch.tensor([[1000.0, 998.0, -1000.0], [-1000.0, -1000.5, -1001.0]])
    gradients_close(lambda x: log_softmax(x, -1), lambda x: x.log_softmax(-1), [x], LARGE, ["x with large entries"])


@checks(LOG_SOFTMAX, "the device of the input")
def log_softmax_device(log_softmax):
    keeps_device(log_softmax, rand(3, 5), 1)


# --- softmax_backward and log_softmax_backward ---------------------------------------------------------


def backward_of(stock, grad, x, dim):
    """(y, gradient of x) in float64."""
    x = x.double().detach().requires_grad_()
    y = stock(x, dim)
    return y.detach(), torch.autograd.grad(y, x, grad.double())[0]


def softmax_backward_mistakes(grad, y, dim):
    grad, y = grad.double(), y.double()
    shared = (grad * y).sum(dim, keepdim=True)
    return possible(
        *((f"the sum runs over axis {k}; dim = {dim} was asked for.", lambda k=k: y * (grad - (grad * y).sum(k, keepdim=True))) for k in other_axes(y, dim)),
        ("the sum runs over all entries: each row along dim has a sum of its own.", lambda: y * (grad - (grad * y).sum())),
        ("the sum has lost its axis: without keepdim=True that of row i is broadcast to column i.", lambda: y * (grad - (grad * y).sum(dim))),
        ("the shared term is missing: when one entry grows, all others of its row shrink.", lambda: y * grad),
        ("only the diagonal of the Jacobian is used, y * (1 - y): each entry also depends on the others of its row.", lambda: grad * y * (1 - y)),
        ("only the part off the diagonal is used: y * grad is missing.", lambda: -y * shared),
        ("only the part off the diagonal is used, and its sign is wrong.", lambda: y * shared),
        ("the shared term is added; it is subtracted.", lambda: y * (grad + shared)),
        ("the sign is wrong.", lambda: y * (shared - grad)),
        ("the shared term is not multiplied by y: y stands in front of the whole bracket.", lambda: y * grad - shared),
        ("the whole is not multiplied by y.", lambda: grad - shared),
        ("the shared term is the sum of grad; it is the sum of grad * y.", lambda: y * (grad - grad.sum(dim, keepdim=True))),
        ("the shared term is a mean; it is a sum.", lambda: y * (grad - (grad * y).mean(dim, keepdim=True))),
        ("the shared term is the mean of grad; it is the sum of grad * y.", lambda: y * (grad - grad.mean(dim, keepdim=True))),
        ("this is the backward of log_softmax.", lambda: grad - y * grad.sum(dim, keepdim=True)),
        ("this is the backward of log_softmax.", lambda: grad - y.exp() * grad.sum(dim, keepdim=True)),
        ("the softmax is taken again: y already is the softmax.", lambda: y.softmax(dim) * (grad - (grad * y.softmax(dim)).sum(dim, keepdim=True))),
        ("y is multiplied twice.", lambda: y * y * (grad - shared)),
        ("the shared term is multiplied by y once more than grad.", lambda: y * (grad - y * shared)),
        ("y * (1 - y) stands in front of the bracket; it is y.", lambda: y * (1 - y) * (grad - shared)),
        ("grad is not used: by the chain rule the slopes of y are multiplied by grad.", lambda: y * (1 - y)),
        ("the gradient is divided by the length of the row.", lambda: y * (grad - shared) / y.shape[dim]),
        ("y and grad are exchanged.", lambda: grad * (y - shared)),
    )


def log_softmax_backward_mistakes(grad, y, dim):
    grad, y = grad.double(), y.double()
    p, total = y.exp(), grad.sum(dim, keepdim=True)
    return possible(
        *((f"the sum runs over axis {k}; dim = {dim} was asked for.", lambda k=k: grad - p * grad.sum(k, keepdim=True)) for k in other_axes(y, dim)),
        *((f"the sum, or the softmax, runs over axis {k}; dim = {dim} was asked for.", lambda k=k: grad - y.softmax(k) * grad.sum(k, keepdim=True)) for k in other_axes(y, dim)),
        *((f"the softmax runs over axis {k}; dim = {dim} was asked for.", lambda k=k: grad - y.softmax(k) * total) for k in other_axes(y, dim)),
        ("the sum runs over all entries: each row along dim has a sum of its own.", lambda: grad - p * grad.sum()),
        ("the sum has lost its axis: without keepdim=True that of row i is broadcast to column i.", lambda: grad - p * grad.sum(dim)),
        ("y is used as if it were a probability: y is the logarithm of one, and exp(y) the probability.", lambda: grad - y * total),
        ("the shared term is missing: when one entry grows, all others of its row shrink.", lambda: grad),
        ("the shared term is not multiplied by the probabilities exp(y).", lambda: grad - total),
        ("grad is not summed: every entry of a row loses exp(y) times the sum of grad.", lambda: grad - p * grad),
        ("the sum of grad is missing: it is 1 only by chance.", lambda: grad - p),
        ("the sum is that of grad * exp(y); it is that of grad alone.", lambda: grad - p * (grad * p).sum(dim, keepdim=True)),
        ("the sum is that of grad * y; it is that of grad alone.", lambda: grad - p * (grad * y).sum(dim, keepdim=True)),
        ("the shared term is added; it is subtracted.", lambda: grad + p * total),
        ("the sign is wrong.", lambda: p * total - grad),
        ("the shared term is a mean; it is a sum.", lambda: grad - p * grad.mean(dim, keepdim=True)),
        ("only the shared term is returned: grad itself is missing.", lambda: p * total),
        ("only the shared term is returned: grad itself is missing.", lambda: -p * total),
        ("this is the backward of softmax, and y is taken for its result.", lambda: y * (grad - (grad * y).sum(dim, keepdim=True))),
        ("this is the backward of softmax.", lambda: p * (grad - (grad * p).sum(dim, keepdim=True))),
        ("the whole is multiplied by the probabilities; only the sum is.", lambda: p * (grad - total)),
        ("the gradient is divided by the length of the row.", lambda: (grad - p * total) / y.shape[dim]),
        ("the base is 2, not e.", lambda: grad - torch.exp2(y) * total),
        ("exp is taken of -y.", lambda: grad - (-y).exp() * total),
        ("only the diagonal is used, 1 - exp(y): each entry also depends on the others of its row.", lambda: grad * (1 - p)),
        ("the slope of the logarithm, 1 / y, has no place here: y already is the logarithm.", lambda: grad / y),
        ("grad is divided by the probabilities: that is the slope of the logarithm alone, and the softmax before it is left out.", lambda: grad / p),
        ("the sum is that of exp(y), which is always 1; it is that of grad.", lambda: grad - p.sum(dim, keepdim=True) * grad),
        ("the sum is that of grad * exp(y); it is that of grad alone, times exp(y) afterwards.", lambda: grad - (grad * p).sum(dim, keepdim=True)),
    )


def backward_square(function, stock, mistakes):
    grad, x = rand(4, 4, seed=51), rand(4, 4, seed=52)
    y, want = backward_of(stock, grad, x, -1)
    got = call(function, grad, y.float(), -1)
    close(got, want.float(), 4e-6, name="the gradient", known=mistakes(grad, y, -1) + pattern(got, want, -1, "zero"))


def backward_each_dim(function, stock, mistakes):
    for shape in [(2, 3, 4), (3, 5), (2, 3, 2, 5), (6,)]:
        for dim in all_dims(shape):
            grad, x = rand(*shape, seed=53), rand(*shape, seed=54)
            y, want = backward_of(stock, grad, x, dim)
            look = "the sum: along dim, with keepdim=True"
            got = attempt(function, grad, y.float(), dim=dim, words=f"shape {shape} with dim = {dim} does not work.", look=look)
            close(got, want.float(), 4e-6, name=f"the gradient for shape {shape}, dim = {dim}", known=mistakes(grad, y, dim) + pattern(got, want, dim, "zero"), look=look)
            close(call(function, grad, y.float(), dim), want.float(), 4e-6, name=f"the gradient for shape {shape}, dim = {dim}")


def backward_strided(function, stock):
    x = rand(4, 3, 2, seed=55).permute(2, 1, 0)
    for grad in [torch.ones(()).expand(2, 3, 4), rand(4, 3, 2, seed=56).permute(2, 1, 0)]:     # .sum().backward() hands over the first
        y, want = backward_of(stock, grad, x, 1)
        got = attempt(
            function, grad, y.float(), 1, words="tensors that are not contiguous do not work; .sum().backward() hands over such a grad.",
            look="view needs contiguous memory, reshape copies where it must",
        )
        close(got, want.float(), 4e-6, name="the gradient for tensors that are not contiguous")


def backward_dtypes(function, stock):
    grad, x = rand(3, 5, seed=57, dtype=torch.float64), rand(3, 5, seed=58, dtype=torch.float64)
    y, want = backward_of(stock, grad, x, 1)
    stays_exact(call(function, grad, y, 1), want, name="the gradient")


@checks(SOFTMAX_BACKWARD, "four rows of four")
def softmax_backward_square(softmax_backward):
    backward_square(softmax_backward, torch.softmax, softmax_backward_mistakes)


@checks(SOFTMAX_BACKWARD, "every dim")
def softmax_backward_each_dim(softmax_backward):
    backward_each_dim(softmax_backward, torch.softmax, softmax_backward_mistakes)


@checks(SOFTMAX_BACKWARD, "shares of exactly 0 and 1")
def softmax_backward_saturated(softmax_backward):
    y = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0]])
    grad = rand(3, 3, seed=59)
    want = y * (grad - (grad * y).sum(1, keepdim=True))
    got = call(softmax_backward, grad, y, 1)
    if isinstance(got, torch.Tensor) and got.shape == want.shape and not got.isfinite().all():
        fail(
            "a share of exactly 0 gives nan or inf: hidden keys in attention have such a share, and their gradient is 0.",
            example=f"for y = {y[0].tolist()} the gradient is {rounded(got[0])}, expected {rounded(want[0])}",
            look="divisions by y, and its logarithm: neither is needed",
        )
    close(got, want, 2e-6, name="the gradient for shares of exactly 0 and 1", look="the formula needs y and grad alone: no small number, no x")


@checks(SOFTMAX_BACKWARD, "tensors that are not contiguous")
def softmax_backward_strided(softmax_backward):
    backward_strided(softmax_backward, torch.softmax)


@checks(SOFTMAX_BACKWARD, "float64 stays float64")
def softmax_backward_float64(softmax_backward):
    backward_dtypes(softmax_backward, torch.softmax)


@checks(SOFTMAX_BACKWARD, "without autograd")
def softmax_backward_by_hand(softmax_backward):
    by_hand(softmax_backward, rand(3, 5), rand(3, 5, seed=1).softmax(1), 1)


@checks(SOFTMAX_BACKWARD, "the device of the input")
def softmax_backward_device(softmax_backward):
    keeps_device(softmax_backward, rand(3, 5), rand(3, 5), 1)


@checks(LOG_SOFTMAX_BACKWARD, "four rows of four")
def log_softmax_backward_square(log_softmax_backward):
    backward_square(log_softmax_backward, torch.log_softmax, log_softmax_backward_mistakes)


@checks(LOG_SOFTMAX_BACKWARD, "every dim")
def log_softmax_backward_each_dim(log_softmax_backward):
    backward_each_dim(log_softmax_backward, torch.log_softmax, log_softmax_backward_mistakes)


@checks(LOG_SOFTMAX_BACKWARD, "very small probabilities")
def log_softmax_backward_saturated(log_softmax_backward):
    x = torch.tensor([[1000.0, 0.0, -1000.0], [-500.0, -499.0, -800.0]])
    grad = rand(2, 3, seed=60)
    y, want = backward_of(torch.log_softmax, grad, x, 1)
    got = call(log_softmax_backward, grad, y.float(), 1)
    if isinstance(got, torch.Tensor) and got.shape == want.shape and not got.isfinite().all():
        fail(
            "a very small probability gives nan or inf.",
            example=f"for y = {rounded(y[0])} the gradient is {rounded(got[0])}, expected {rounded(want[0])}",
            look="divisions by exp(y), which is 0 for y below -104 in float32: none is needed",
        )
    close(got, want.float(), 4e-6, name="the gradient for very small probabilities", look="the formula needs y and grad alone: no small number, no x")


@checks(LOG_SOFTMAX_BACKWARD, "tensors that are not contiguous")
def log_softmax_backward_strided(log_softmax_backward):
    backward_strided(log_softmax_backward, torch.log_softmax)


@checks(LOG_SOFTMAX_BACKWARD, "float64 stays float64")
def log_softmax_backward_float64(log_softmax_backward):
    backward_dtypes(log_softmax_backward, torch.log_softmax)


@checks(LOG_SOFTMAX_BACKWARD, "without autograd")
def log_softmax_backward_by_hand(log_softmax_backward):
    by_hand(log_softmax_backward, rand(3, 5), rand(3, 5, seed=1).log_softmax(1), 1)


@checks(LOG_SOFTMAX_BACKWARD, "the device of the input")
def log_softmax_backward_device(log_softmax_backward):
    keeps_device(log_softmax_backward, rand(3, 5), rand(3, 5), 1)


# --- cross_entropy -------------------------------------------------------------------------------------


def stock_cross_entropy(logits, targets, ignore_index=-100):
    return F.cross_entropy(logits.double(), targets, ignore_index=ignore_index).to(logits.dtype)


def cross_entropy_mistakes(logits, targets, ignore_index=-100):
    """What common mistakes give on these inputs; some of them only where no position is ignored."""
    logits = logits.double()
    N, V = logits.shape
    log_p = logits.log_softmax(-1)
    counts = targets != ignore_index
    safe = torch.where(counts, targets, 0)
    wrapped = torch.where((targets >= -V) & (targets < V), targets % V, 0)      # -100 as an index counts from the end
    rows = torch.arange(N)
    picked = log_p[rows, safe]
    mine = picked[counts]
    right = -mine.mean()
    yes = torch.zeros(N, V, dtype=torch.float64)
    yes[rows, safe] = 1.0
    yes = yes * counts[:, None]
    p = log_p.exp()
    everything_wrong = [
        ("the loss is nan: no position counts, and 0 / 0 is nan. Is the mask of counted positions inverted?", lambda: torch.tensor(math.nan)),
        ("the loss is 0: no position counts. Is the mask of counted positions inverted?", lambda: torch.tensor(0.0)),
    ] if counts.all() else [
        *([] if ignore_index == -100 else [
            ("the default -100 is left out and not the ignore_index that was given.", lambda: -log_p[rows, wrapped].mean()),
            ("the default -100 is left out and not the ignore_index that was given.", lambda: F.cross_entropy(logits, targets)),
            ("every target up to ignore_index is left out; only those equal to it are.", lambda: -picked[targets > ignore_index].mean()),
            ("every target from ignore_index on is left out; only those equal to it are.", lambda: -picked[targets < ignore_index].mean()),
        ]),
        ("ignored positions count in the number that the sum is divided by: divide by the number of counted targets.", lambda: -mine.sum() / N),
        ("ignore_index is not honoured: the target -100 is used as an index, which counts from the end.", lambda: -log_p[rows, wrapped].mean()),
        ("ignore_index is not honoured: the target -100 is used as an index, which counts from the end.", lambda: -log_p[rows, wrapped].sum() / counts.sum()),
        ("the positions after the first ignored one are lost: an ignored position is skipped, and the loop goes on.", lambda: -picked[: int((~counts).int().argmax())].sum() / counts.sum()),
        ("the positions after the first ignored one are lost: an ignored position is skipped, and the loop goes on.", lambda: -picked[: int((~counts).int().argmax())].mean()),
        ("ignored positions count as class 0.", lambda: -picked.mean()),
        ("ignored positions count as class 0 in the sum, though not in the number it is divided by.", lambda: -picked.sum() / counts.sum()),
        ("ignored positions count as class 0 in the sum, though not in the number it is divided by.", lambda: -log_p[rows, targets.clamp(min=0)].sum() / counts.sum()),
        ("an ignored position costs as much as a uniform guess: its logits are cleared, and the position still counts.", lambda: -(mine.sum() - (~counts).sum() * math.log(V)) / N),
        ("the counted positions are left out and the ignored ones counted: the condition is inverted.", lambda: -log_p[rows, wrapped][~counts].mean()),
        ("all negative targets are left out and nothing else; ignore_index says which.", lambda: -log_p[rows, targets.clamp(min=0)][targets >= 0].mean()),
        ("all negative targets and class 0 are left out; ignore_index says which.", lambda: -log_p[rows, targets.clamp(min=0)][targets > 0].mean()),
    ]
    return possible(
        *everything_wrong,
        ("the losses are added up; their mean is asked for.", lambda: -mine.sum()),
        ("there is a loss for each position; their mean is asked for.", lambda: -mine),
        ("there is a loss for each position; their mean is asked for.", lambda: -picked * counts),
        ("the minus is missing: the logarithm of a probability is negative, the loss positive.", lambda: -right),
        ("the logarithm to base 2 is taken: the loss is 1.4427 times too large. The natural one is asked for.", lambda: right / math.log(2)),
        ("the logarithm to base 10 is taken; the natural one is asked for.", lambda: right / math.log(10)),
        ("the softmax is taken twice: the logits go through softmax and then through log_softmax.", lambda: -p.log_softmax(-1)[rows, safe][counts].mean()),
        ("the logarithm is missing: this is the mean probability of the targets.", lambda: -mine.exp().mean()),
        ("the logarithm is missing: this is the mean probability of the targets.", lambda: mine.exp().mean()),
        ("the logarithm is missing: this is 1 minus the mean probability of the targets.", lambda: 1 - mine.exp().mean()),
        ("the log-softmax is missing: this is the mean logit of the targets.", lambda: -logits[rows, safe][counts].mean()),
        ("the logits are taken for probabilities: the softmax is missing.", lambda: -logits[rows, safe][counts].log().mean()),
        ("the sum is divided by N * V; divide by the number of counted targets.", lambda: right / V),
        ("the log-softmax runs over the positions (dim=0): each row of logits is a distribution over V.", lambda: -logits.log_softmax(0)[rows, safe][counts].mean()),
        ("every row is read at the targets of all rows: log_p[:, targets] is (N, N). Row n is read at target n alone.", lambda: -log_p[:, safe[counts]].mean()),
        ("every row is read at the targets of all rows: log_p[:, targets] is (N, N). Row n is read at target n alone.", lambda: -log_p[:, safe[counts]].sum() / counts.sum()),
        ("rows and columns are exchanged: log_p[n, targets[n]] is the right entry.", lambda: -log_p[safe, rows][counts].mean()),
        ("whole rows are taken, log_p[targets]: row n is read at column targets[n].", lambda: -log_p[safe][counts].mean()),
        ("targets are shifted by one: in this function they already are what the logits should predict.", lambda: -log_p[rows, (safe + 1) % V][counts].mean()),
        ("targets are shifted by one: in this function they already are what the logits should predict.", lambda: -log_p[rows, safe - 1][counts].mean()),
        ("targets come from the neighbouring position: row n belongs to target n.", lambda: F.cross_entropy(logits[:-1], targets[1:], ignore_index=ignore_index)),
        ("targets come in the wrong order: row n belongs to target n.", lambda: -log_p[rows, safe.flip(0)].mean()),
        ("the most likely token is read, not the target.", lambda: -log_p.amax(-1).mean()),
        ("the mean runs over all V tokens; only the target's logarithm counts.", lambda: -log_p.mean()),
        ("the targets are multiplied as if they were amounts; they are indices.", lambda: -(log_p * safe[:, None])[counts].sum(-1).mean()),
        ("this is the entropy of the prediction: weighted by p, not read at the target.", lambda: -(p * log_p).sum(-1).mean()),
        ("this is the perplexity, exp(loss).", lambda: right.exp()),
        ("the logarithm of the mean probability is taken; it is the mean of the logarithms.", lambda: -mine.exp().mean().log()),
        ("this is the mean squared error between p and one-hot.", lambda: (p - yes).square().mean()),
        ("this is the mean squared error between p and one-hot.", lambda: (p - yes).square().sum(-1).mean()),
        ("log(1 - p) of the other tokens is added, as for independent yes-or-no questions; here only the target's logarithm counts.", lambda: F.binary_cross_entropy(p, yes, reduction="sum") / counts.sum()),
        ("log(1 - p) of the other tokens is added, as for independent yes-or-no questions; here only the target's logarithm counts.", lambda: F.binary_cross_entropy(p, yes)),
        ("the largest loss of all positions is returned; their mean is asked for.", lambda: -mine.min()),
        ("the targets are smoothed; all of the weight belongs to the target.", lambda: F.cross_entropy(logits[counts], targets[counts], label_smoothing=0.1)),
        ("the median is taken; the mean is asked for.", lambda: -mine.median()),
        ("the sum is divided by one less than the number of counted targets.", lambda: -mine.sum() / (len(mine) - 1)),
        ("the result has shape (1,); a single number has shape ().", lambda: right[None]),
    )


def small_number(got, logits, targets):
    """Fails if got is the loss with a small number inside the logarithm."""
    p = logits.double().softmax(-1)[torch.arange(len(targets)), targets]
    want = -p.log().mean()
    if not isinstance(got, torch.Tensor) or got.dim() or not got.is_floating_point() or got.device.type == "meta":
        return
    for k in range(3, 13):
        off = (-(p + 10.0**-k).log().mean() - want).item()
        if abs(off) > 3e-6 and abs((got.detach().double() - want).item() - off) < 0.1 * abs(off) + 1e-6:
            fail(
                "a small number is added inside the logarithm: every loss comes out a little too small, and that of an unlikely target far too small.",
                example=f"the loss is {number(got)}, expected {number(want)}",
                look="log_softmax needs no such number",
            )


def logits_and_targets(N=5, V=7, seed=61, scale=2.0, dtype=torch.float32):
    return rand(N, V, seed=seed, scale=scale, dtype=dtype), rand_ids(N, n=min(N, V), seed=seed)


def ignored_example():
    """V above 100, so that the index -100 exists and is wrong; targets 3 of 6 counted."""
    logits, targets = rand(6, 120, seed=62, scale=2.0), torch.tensor([4, -100, 0, 119, -100, -100])
    return logits, targets


@checks(CROSS_ENTROPY, "a uniform guess")
def cross_entropy_uniform(cross_entropy):
    logits, targets = torch.full((5, 8), 0.5), torch.tensor([0, 3, 7, 3, 1])
    words = "a plain call does not work: logits (5, 8) and targets (5,) int64."
    got = attempt(cross_entropy, logits, targets, words=words, look="how row n is read at column targets[n]")
    close(got, torch.tensor(math.log(8)), 2e-6, name="the loss of equal logits for 8 tokens", known=cross_entropy_mistakes(logits, targets), look="a uniform guess costs ln V = ln 8 = 2.0794")


@checks(CROSS_ENTROPY, "values")
def cross_entropy_values(cross_entropy):
    logits, targets = logits_and_targets()
    got = call(cross_entropy, logits, targets)
    small_number(got, logits, targets)
    close(got, stock_cross_entropy(logits, targets), 2e-6, name="the loss", known=cross_entropy_mistakes(logits, targets))


@checks(CROSS_ENTROPY, "other sizes")
def cross_entropy_sizes(cross_entropy):
    for N, V in [(1, 4), (9, 3), (4, 4), (3, 130), (6, 2)]:
        logits, targets = logits_and_targets(N, V, seed=63)
        targets[0] = V - 1
        got = call(cross_entropy, logits, targets)
        small_number(got, logits, targets)
        close(got, stock_cross_entropy(logits, targets), 2e-6, name=f"the loss for logits of shape ({N}, {V})", known=cross_entropy_mistakes(logits, targets), look="sizes that are written as numbers")
    logits, targets = logits_and_targets(6, 5, seed=64)
    transposed = logits.T.contiguous().T
    close(call(cross_entropy, transposed, targets), stock_cross_entropy(logits, targets), 2e-6, name="the loss for logits that are not contiguous")


@checks(CROSS_ENTROPY, "large logits")
def cross_entropy_large(cross_entropy):
    logits, targets = torch.tensor([[1000.0, -1000.0, 0.0], [-1000.0, -1001.0, -999.0], [3.0, 100.0, 99.0]]), torch.tensor([1, 1, 0])
    got, want = call(cross_entropy, logits, targets), stock_cross_entropy(logits, targets)
    if isinstance(got, torch.Tensor) and got.shape == want.shape and not got.isfinite().all():
        fail(
            f"a target far below the largest logit gives {got.item()}: its probability is rounded to 0 before the logarithm, or exp overflows.",
            example=f"logits [1000, -1000, 0] with target 1 cost 2000; this batch costs {number(want)}",
            look="log_softmax: one step, not the logarithm of a softmax",
        )
    if isinstance(got, torch.Tensor) and got.shape == want.shape and 0 < got.item() < want.item() - 1:
        fail(
            "the loss of a target far below the largest logit is cut off: a small number inside the logarithm, or a clamp, sets a limit.",
            example=f"the loss is {number(got)}, expected {number(want)}",
            look="log_softmax needs neither",
        )
    close(got, want, LARGE, name="the loss")


@checks(CROSS_ENTROPY, "ignored positions")
def cross_entropy_ignored(cross_entropy):
    logits, targets = ignored_example()
    words = "a target of -100 stops the function: it says that the position does not count, and is no index."
    look = "the targets that you index with: an ignored one needs a valid index in its place, or its row left out"
    for N, V in [(6, 120), (6, 7)]:
        part, ids = logits[:N, :V], targets.clamp(max=V - 1)
        got = attempt(cross_entropy, part, ids, words=words, look=look)
        close(got, stock_cross_entropy(part, ids), 2e-6, name="the loss with three of six positions ignored", known=cross_entropy_mistakes(part, ids))


@checks(CROSS_ENTROPY, "another ignore_index")
def cross_entropy_other_index(cross_entropy):
    for index in (3, -1, 0):
        logits = rand(6, 7, seed=65, scale=2.0)
        targets = torch.tensor([index, 2, 5, index, 4, 0 if index else 6])
        words = f"ignore_index={index} stops the function."
        got = attempt(cross_entropy, logits, targets, ignore_index=index, words=words, look="where targets are compared with ignore_index; -100 written as a number")
        close(got, stock_cross_entropy(logits, targets, index), 2e-6, name=f"the loss with ignore_index={index}", known=cross_entropy_mistakes(logits, targets, index), look="where targets are compared with ignore_index; -100 written as a number")


@checks(CROSS_ENTROPY, "every position ignored")
def cross_entropy_all_ignored(cross_entropy):
    logits, targets = rand(3, 5, seed=66), torch.full((3,), -100)
    try:
        got = call(cross_entropy, logits, targets)
    except (ArithmeticError, IndexError, RuntimeError) as error:
        fail(
            f"a batch in which every position is ignored stops the function ({type(error).__name__}: {str(error).splitlines()[0]}). PyTorch gives nan: 0 / 0 in a tensor does not raise.",
            look="a division of Python numbers, and torch.stack of an empty list",
        )
    is_tensor(got, (), torch.float32, name="the loss")
    if not (got.isnan() or got == 0):
        fail("a batch in which every position is ignored still has a loss.", example=f"the loss is {number(got)}, expected nan as in PyTorch")


@checks(CROSS_ENTROPY, "float64 stays float64, float16 stays float16")
def cross_entropy_dtypes(cross_entropy):
    logits, targets = logits_and_targets(dtype=torch.float64)
    stays_exact(call(cross_entropy, logits, targets), stock_cross_entropy(logits, targets), name="the loss", look=".float(), .item(), and tensors that you create without dtype=logits.dtype")
    for dtype in (torch.float16, torch.bfloat16):
        got = call(cross_entropy, logits.to(dtype), targets)
        close(got, stock_cross_entropy(logits.to(dtype), targets), 6e-2, name=f"the loss in {dtype}", look=".float(), and tensors that you create without dtype=logits.dtype")


@checks(CROSS_ENTROPY, "gradients")
def cross_entropy_gradients(cross_entropy):
    def one(function):
        def call_one(logits):
            out = function(logits, targets)
            return out.reshape(1) if isinstance(out, torch.Tensor) else out

        return call_one

    large = torch.tensor([[1000.0, -1000.0, 0.0], [-1000.0, -1001.0, -999.0]]), torch.tensor([1, 1])
    for (logits, targets), atol in [(logits_and_targets(), 1e-5), (ignored_example(), 1e-5), (large, LARGE)]:
        gradients_close(one(cross_entropy), one(F.cross_entropy), [logits], atol, ["logits"], known=possible((
            "the gradient of logits misses the logarithm of the sum: it is cut off there.",
            lambda: rand(1, seed=99) * -F.one_hot(targets, logits.shape[1]) / len(targets),
        )))


@checks(CROSS_ENTROPY, "the device of the input")
def cross_entropy_device(cross_entropy):
    keeps_device(cross_entropy, *logits_and_targets())


# --- cross_entropy_backward ----------------------------------------------------------------------------


def cross_entropy_gradient(logits, targets, ignore_index=-100):
    leaf = logits.double().detach().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(leaf, targets, ignore_index=ignore_index), leaf)[0].to(logits.dtype)


def cross_entropy_backward_mistakes(logits, targets, ignore_index=-100):
    logits = logits.double()
    N, V = logits.shape
    counts = targets != ignore_index
    n = counts.sum()
    safe = torch.where(counts, targets, 0)
    wrapped = torch.where((targets >= -V) & (targets < V), targets % V, 0)

    def one_hot(ids):
        return F.one_hot(ids, V).double()

    p, keep = logits.softmax(-1), counts[:, None].double()
    right = (p - one_hot(safe)) * keep / n
    y = one_hot(safe) * keep
    ignoring = [
        ("the gradient is nan: no position counts, and 0 / 0 is nan. Is the mask of counted positions inverted?", lambda: torch.full_like(logits, math.nan)),
        ("the gradient is 0 everywhere: no position counts. Is the mask of counted positions inverted?", lambda: torch.zeros_like(logits)),
    ] if counts.all() else [
        *([] if ignore_index == -100 else [
            ("the default -100 is left out and not the ignore_index that was given.", lambda: (p - one_hot(wrapped)) / N),
            ("every target up to ignore_index is left out; only those equal to it are.", lambda: (p - one_hot(safe)) * (targets > ignore_index)[:, None] / (targets > ignore_index).sum()),
        ]),
        ("the gradient is divided by N; divide by the number of counted targets, as the loss does.", lambda: right * n / N),
        ("ignored rows have a gradient: they do not count in the loss, so their gradient is 0.", lambda: (p - one_hot(safe)) / n),
        ("ignored rows have a gradient: they do not count in the loss, so their gradient is 0.", lambda: (p - one_hot(safe)) / N),
        ("ignored rows have the gradient p: they do not count in the loss, so their gradient is 0.", lambda: (p - y) / n),
        ("ignored rows have the gradient p: they do not count in the loss, so their gradient is 0.", lambda: (p - y) / N),
        ("ignore_index is not honoured: the target -100 is used as an index, which counts from the end.", lambda: (p - one_hot(wrapped)) / N),
        ("ignore_index is not honoured: the target -100 is used as an index, which counts from the end.", lambda: (p - one_hot(wrapped)) / n),
        ("ignored rows lose 1 at class 0: their gradient is 0.", lambda: (p * keep - one_hot(safe)) / n),
        ("the rows are exchanged: the ignored ones have a gradient, the counted ones none.", lambda: (p - one_hot(wrapped)) * (1 - keep) / n),
        ("the rows are exchanged: the ignored ones have a gradient, the counted ones none.", lambda: (p - one_hot(wrapped)) * (1 - keep) / (~counts).sum()),
        ("all negative targets are left out and nothing else; ignore_index says which.", lambda: cross_entropy_gradient(logits, torch.where(targets < 0, -100, targets))),
    ]
    return possible(
        *ignoring,
        ("the gradient is not divided by the number of counted targets: the loss is a mean.", lambda: right * n),
        ("the gradient is divided by N * V; divide by the number of counted targets.", lambda: right / V),
        ("the gradient is divided by the number of targets twice.", lambda: right / n),
        ("the gradient is divided by V; divide by the number of counted targets.", lambda: right * n / V),
        ("the sign is wrong: p - y it is.", lambda: -right),
        ("1 is not subtracted at the target: this is p / n.", lambda: p * keep / n),
        ("the target's entry is set to -1; 1 is subtracted from it: p - 1.", lambda: (p * (1 - one_hot(safe)) - one_hot(safe)) * keep / n),
        ("1 is added at the target; it is subtracted.", lambda: (p + y) * keep / n),
        ("p is missing: this is -1 / n at the target alone.", lambda: -y / n),
        ("only the targets have a gradient: the other logits lie in the sum below the fraction and have one too.", lambda: right * y),
        ("only the others have a gradient: 1 is subtracted and the target's entry lost.", lambda: right * (1 - y)),
        ("the softmax is missing: the logits themselves are used.", lambda: (logits - one_hot(safe)) * keep / n),
        ("the logarithm of the softmax is used; the gradient is made of the probabilities.", lambda: (p.log() - one_hot(safe)) * keep / n),
        ("the softmax is taken twice.", lambda: (p.softmax(-1) - one_hot(safe)) * keep / n),
        ("the softmax runs over the positions (dim=0): each row of logits is a distribution over V.", lambda: (logits.softmax(0) - one_hot(safe)) * keep / n),
        ("the 1 is subtracted at all targets in every row: row n loses it at target n alone.", lambda: (p - one_hot(safe[counts]).amax(0)) * keep / n),
        ("rows and columns are exchanged: 1 is subtracted at [n, targets[n]].", lambda: (p - F.one_hot(safe, N).double().T @ torch.eye(N, V).double()) * keep / n),
        ("the targets are shifted by one.", lambda: (p - one_hot((safe + 1) % V)) * keep / n),
        ("the targets are shifted by one.", lambda: (p - one_hot((safe - 1) % V)) * keep / n),
        ("targets come in the wrong order: row n belongs to target n.", lambda: (p - one_hot(safe.flip(0))) * keep / n),
        ("this is the gradient with respect to the probabilities, -1 / p at the target; that of the logits is asked for.", lambda: -y / p / n),
        ("the result has the shape of the transposed logits.", lambda: right.T),
        ("the base is 2: the gradient is 1.4427 times too large.", lambda: right / math.log(2)),
        ("this is the gradient of each row, summed; each logit has its own.", lambda: right.sum(0)),
    )


@checks(CROSS_ENTROPY_BACKWARD, "values")
def cross_entropy_backward_values(cross_entropy_backward):
    logits, targets = logits_and_targets(seed=71)
    words = "a plain call does not work: logits (5, 7) and targets (5,) int64."
    got = attempt(cross_entropy_backward, logits, targets, words=words, look="how row n is changed at column targets[n]")
    want = cross_entropy_gradient(logits, targets)
    close(got, want, 2e-6, name="the gradient", known=cross_entropy_backward_mistakes(logits, targets) + pattern(got, want, 1, "zero"))


@checks(CROSS_ENTROPY_BACKWARD, "other sizes")
def cross_entropy_backward_sizes(cross_entropy_backward):
    for N, V in [(1, 4), (9, 3), (4, 4), (3, 130), (6, 2)]:
        logits, targets = logits_and_targets(N, V, seed=72)
        targets[0] = V - 1
        close(call(cross_entropy_backward, logits, targets), cross_entropy_gradient(logits, targets), 2e-6, name=f"the gradient for logits of shape ({N}, {V})", known=cross_entropy_backward_mistakes(logits, targets), look="sizes that are written as numbers")
    logits, targets = logits_and_targets(6, 5, seed=73)
    close(call(cross_entropy_backward, logits.T.contiguous().T, targets), cross_entropy_gradient(logits, targets), 2e-6, name="the gradient for logits that are not contiguous")


@checks(CROSS_ENTROPY_BACKWARD, "large logits")
def cross_entropy_backward_large(cross_entropy_backward):
    logits, targets = torch.tensor([[1000.0, -1000.0, 0.0], [-1000.0, -1001.0, -999.0], [3.0, 100.0, 99.0]]), torch.tensor([1, 1, 0])
    got, want = call(cross_entropy_backward, logits, targets), cross_entropy_gradient(logits, targets)
    if isinstance(got, torch.Tensor) and got.shape == want.shape and not got.isfinite().all():
        fail(
            "large logits give nan or inf: exp of more than 88 overflows, or a division by a probability that is rounded to 0.",
            example=f"for the logits {logits[0].tolist()} the gradient is {rounded(got[0])}, expected {rounded(want[0])}",
            look="softmax, with the largest logit of each row subtracted",
        )
    close(got, want, LARGE, name="the gradient")


@checks(CROSS_ENTROPY_BACKWARD, "ignored positions")
def cross_entropy_backward_ignored(cross_entropy_backward):
    logits, targets = ignored_example()
    words = "a target of -100 stops the function: it says that the position does not count, and is no index."
    look = "the targets that you index with: an ignored one needs a valid index in its place"
    for N, V in [(6, 120), (6, 7)]:
        part, ids = logits[:N, :V], targets.clamp(max=V - 1)
        got = attempt(cross_entropy_backward, part, ids, words=words, look=look)
        close(got, cross_entropy_gradient(part, ids), 2e-6, name="the gradient with three of six positions ignored", known=cross_entropy_backward_mistakes(part, ids))


@checks(CROSS_ENTROPY_BACKWARD, "another ignore_index")
def cross_entropy_backward_other_index(cross_entropy_backward):
    look = "where targets are compared with ignore_index; -100 written as a number"
    for index in (3, -1, 0):
        logits = rand(6, 7, seed=74, scale=2.0)
        targets = torch.tensor([index, 2, 5, index, 4, 0 if index else 6])
        got = attempt(cross_entropy_backward, logits, targets, ignore_index=index, words=f"ignore_index={index} stops the function.", look=look)
        want = cross_entropy_gradient(logits, targets, index)
        close(got, want, 2e-6, name=f"the gradient with ignore_index={index}", known=cross_entropy_backward_mistakes(logits, targets, index), look=look)


@checks(CROSS_ENTROPY_BACKWARD, "float64 stays float64")
def cross_entropy_backward_float64(cross_entropy_backward):
    logits, targets = logits_and_targets(dtype=torch.float64)
    stays_exact(call(cross_entropy_backward, logits, targets), cross_entropy_gradient(logits, targets), name="the gradient")


@checks(CROSS_ENTROPY_BACKWARD, "without autograd")
def cross_entropy_backward_by_hand(cross_entropy_backward):
    by_hand(cross_entropy_backward, *logits_and_targets())


@checks(CROSS_ENTROPY_BACKWARD, "the device of the input")
def cross_entropy_backward_device(cross_entropy_backward):
    keeps_device(cross_entropy_backward, *logits_and_targets())


# --- Linear --------------------------------------------------------------------------------------------


def module_mistakes(module, x):
    return linear_mistakes(x, module.weight.detach(), module.bias.detach())


@checks(MODULE, "parameters")
def module_parameters(Linear):
    parameters_are(Linear(3, 5), {"weight": (5, 3), "bias": (5,)}, "Linear")


@checks(MODULE, "values")
def module_values(Linear):
    for d_in, d_out in [(4, 4), (3, 5)]:
        module = Linear(d_in, d_out)
        old = module.weight.detach().clone(), module.bias.detach().clone()
        fill(module)
        x = rand(4, d_in, seed=81)
        kept = "forward works with numbers kept from __init__: when the optimizer changes {} nothing happens."
        close(call(module, x), stock_linear(x, module.weight, module.bias), 2e-6, name=f"the result of Linear({d_in}, {d_out})", known=module_mistakes(module, x) + [
            (kept.format("weight and bias"), stock_linear(x, *old)),
            (kept.format("weight"), stock_linear(x, old[0], module.bias)),
            (kept.format("bias"), stock_linear(x, module.weight, old[1])),
        ], look="forward")


@checks(MODULE, "no bias")
def module_without_bias(Linear):
    module = Linear(3, 5, bias=False)
    extra = [name for name, _ in module.named_parameters() if name != "weight"]
    if extra:
        fail(f"Linear(3, 5, bias=False) still has the parameter {extra[0]}.", look="what __init__ does with its argument bias")
    parameters_are(module, {"weight": (5, 3)}, "Linear")
    fill(module)
    x = rand(2, 3, seed=82)
    close(call(module, x), stock_linear(x, module.weight), 2e-6, name="the result of Linear(3, 5, bias=False)")


@checks(MODULE, "the start of weight")
def module_weight_start(Linear):
    right_start("weight", Linear(64, 400).weight.detach(), 64, 400)
    right_start("weight", Linear(9, 3000).weight.detach(), 9, 3000)
    right_start("weight", Linear(64, 400, bias=False).weight.detach(), 64, 400)


@checks(MODULE, "the start of bias")
def module_bias_start(Linear):
    right_start("bias", Linear(64, 4000).bias.detach(), 64, 4000)


def right_start(name, values, d_in, d_out):
    """Uniform between -1/sqrt(d_in) and 1/sqrt(d_in)."""
    bound = d_in**-0.5
    low, high, std = values.min().item(), values.max().item(), values.std().item()
    seen = f"Linear({d_in}, {d_out}): {name} lies between {low:.3g} and {high:.3g} with standard deviation {std:.3g}, expected {-bound:.3g}, {bound:.3g} and {bound / 3**0.5:.3g}"
    if not math.isfinite(low + high + std):
        fail(f"{name} starts with nan or inf: torch.empty holds whatever was in memory.", example=seen, look="a tensor that is made and not filled")

    def near(a, b):
        return abs(a - b) < 0.04 * abs(b)

    if values.numel() > 1 and (values == values.flatten()[0]).all():
        fail(f"{name} starts with the same number everywhere ({low:.3g}): all outputs then compute the same, and go on doing so." if name == "weight" else f"{name} starts with the same number everywhere ({low:.3g}): it starts uniform between -1/sqrt(d_in) and 1/sqrt(d_in), as in nn.Linear.", example=seen, look="__init__")
    if values.dim() == 2 and (values == values[0]).all() or values.dim() == 2 and (values == values[:, :1]).all():
        fail(f"rows or columns of {name} start equal: every number is drawn by itself.", example=seen, look="expand, repeat, and sizes of the draw")
    uniform = near(std, (high - low) / 12**0.5)
    if uniform and near(-low, bound) and near(high, bound) and abs(values.mean().item()) < 0.1 * bound:
        return
    if uniform and low > -0.05 * high:
        fail(f"{name} starts positive: half of the numbers must be negative.", example=seen, look="rand gives numbers between 0 and 1; the range here goes from -1/sqrt(d_in) to 1/sqrt(d_in)")
    if uniform:
        for words, other in [
            ("1/sqrt(d_out)", d_out**-0.5), ("1/d_in", 1 / d_in), ("1/d_out", 1 / d_out), ("1", 1.0), ("1/2", 0.5), ("sqrt(d_in)", d_in**0.5),
            ("sqrt(6/(d_in + d_out)) (Glorot)", (6 / (d_in + d_out)) ** 0.5), ("sqrt(6/d_in) (He)", (6 / d_in) ** 0.5), ("sqrt(3/d_in)", (3 / d_in) ** 0.5),
            ("1/sqrt(d_in + d_out)", (d_in + d_out) ** -0.5), ("1/(2 sqrt(d_in))", bound / 2),
        ]:
            if near(high, other) and near(-low, other):
                fail(f"{name} starts uniform within {words}; the bound is 1/sqrt(d_in).", example=seen, look="the bound in __init__")
    if not uniform and max(-low, high) > 2.2 * std:
        fail(f"{name} starts with normal numbers; it starts uniform between -1/sqrt(d_in) and 1/sqrt(d_in), as in nn.Linear.", example=seen, look="randn and normal_ against uniform_")
    fail(f"{name} does not start uniform between -1/sqrt(d_in) and 1/sqrt(d_in).", example=seen, look="the numbers in __init__")


@checks(MODULE, "two modules")
def module_two(Linear):
    first, second = Linear(3, 5), Linear(3, 5)
    for name in ("weight", "bias"):
        a, b = getattr(first, name), getattr(second, name)
        if a is b or a.data_ptr() == b.data_ptr():
            fail(f"two modules share one {name}: training one changes the other.", look="parameters that are made outside __init__, and defaults that are made once")
        if equal(a, b, 0):
            fail(f"two modules start with the same {name}: each draws its own numbers.", look="torch.manual_seed or a generator inside __init__")


@checks(MODULE, "leading axes")
def module_leading(Linear):
    module = fill(Linear(3, 5))
    for lead in [(2, 4), (2, 1, 4), ()]:
        x = rand(*lead, 3, seed=83)
        got = attempt(module, x, words=f"x of shape {tuple(x.shape)} does not work: x may have any number of axes, the last is d_in.")
        close(got, stock_linear(x, module.weight, module.bias), 2e-6, name=f"the result for x of shape {tuple(x.shape)}")


@checks(MODULE, "gradients of every parameter")
def module_gradients(Linear):
    module = fill(Linear(3, 5))
    x = rand(2, 4, 3, seed=84, grad=True)
    weighting = rand(2, 4, 5, seed=85)
    frozen = [name for name, p in module.named_parameters() if not p.requires_grad]
    if frozen:
        fail(f"{frozen[0]} has requires_grad=False: no optimizer can train it.", look="nn.Parameter(..., requires_grad=False) and requires_grad_(False)")
    leaves = [module.weight, module.bias, x]
    wanted = torch.autograd.grad((F.linear(x, module.weight, module.bias) * weighting).sum(), leaves)
    out = module(x)
    mine = torch.autograd.grad((out * weighting).sum(), leaves, allow_unused=True) if out.requires_grad else [None] * 3
    for name, got, want in zip(("weight", "bias", "x"), mine, wanted):
        if got is None:
            fail(f"no gradient reaches {name}.", look=GRAPH)
        close(got, want, 1e-5, name=f"the gradient of {name}")


@checks(MODULE, "device and dtype")
def module_device(Linear):
    module = fill(Linear(3, 5))
    x = rand(2, 3, seed=86)
    keeps_device(lambda m, x: m(x), module, x)
    module = module.double()
    close(call(module, x.double()), F.linear(x.double(), module.weight, module.bias), 1e-12, name="the result in float64", look="float32 tensors made on the way, and copies of weight kept from __init__")
