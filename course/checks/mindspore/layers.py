"""Checks of lessons 13 and 14: GELU, the MLP and LayerNorm, ported. The oracles are torch.nn.functional and autograd, in float64."""
import math
from types import SimpleNamespace

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import nn, ops

from course.checks import checks
from course.checks.mindspore import (
    FLOAT32, arrays, call, close, equal, fail, fill, gradients_close, gradients_of, in_plain_words, is_tensor, parameters_are, rand,
    same_gradient_in_graph_mode, same_in_graph_mode, through_float16,
)
from course.checks.pytorch import layers as in_pytorch

GELU = "mindspore.layers.gelu"
MLP = "mindspore.layers.MLP"

CUT = ".asnumpy(), ms.Tensor(...), ops.stop_gradient and .value() cut the graph"
HALF = "the result is float32 and only as exact as float16: a step in between is float16."
DEFAULTS = "which GELU a name means: nn.GELU() is the tanh form, ops.gelu(x) is erf unless approximate='tanh' is given"


def slope_of(function, inputs, weighting):
    """Gradients by autograd in float64, as arrays of the inputs' dtype. inputs: arrays."""
    leaves = [torch.from_numpy(np.asarray(x)).double().requires_grad_() for x in inputs]
    found = torch.autograd.grad((function(*leaves) * torch.from_numpy(weighting).double()).sum(), leaves)
    return [g.numpy().astype(x.dtype) for g, x in zip(found, inputs)]


# --- gelu ----------------------------------------------------------------------------------------------


def expected_gelu(x):
    return in_pytorch.expected_gelu(torch.from_numpy(x)).numpy()


def with_tanh(x):
    """The formula with MindSpore's own tanh, which on a CPU is off by 0.0001."""
    return 0.5 * x * (1 + ops.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


TANH = (
    "the formula is right, and ops.tanh is not: on a CPU it is off by up to 0.0001, which makes 0.0002 here at |x| = 3.8. "
    "(1 + tanh z) / 2 is sigmoid(2 z): written with ops.sigmoid it is the same function, and exact."
)


def gelu_mistakes(x):
    rounded = "a constant is rounded"                             # these come last: the tanh of the CPU looks like one
    half = "the result is half of what it should be: x * sigmoid(2 z) has no 0.5 before it, 0.5 x (1 + tanh z) has one."
    found = [(half if "is 0.25" in words else words, value) for words, value in in_pytorch.gelu_mistakes(torch.from_numpy(x))]
    own = (TANH, lambda: with_tanh(ms.Tensor(x)).asnumpy())
    wide = x.astype(np.float64)
    a = 2 * math.sqrt(2 / math.pi)
    own_too = [
        ("the factor sqrt(2/pi) multiplies x alone: it multiplies the whole bracket, the cubic term too.", wide / (1 + np.exp(-np.clip(a * wide + 0.044715 * wide**3, -60, 60)))),
        ("this is x * sigmoid(2 x): z is not x, it has the factor sqrt(2/pi) and a cubic term.", wide / (1 + np.exp(-np.clip(2 * wide, -60, 60)))),
    ]
    return [own, *own_too, *(f for f in found if rounded not in f[0]), *(f for f in found if rounded in f[0])]


@checks(GELU, "values")
def gelu_values(gelu):
    x = np.linspace(-6, 6, 121, dtype=np.float32).reshape(11, 11)
    got = call(gelu, x)
    if through_float16(got):
        fail(HALF)
    close(got, expected_gelu(x), known=gelu_mistakes(x), look=f"the formula, factor by factor; {DEFAULTS}")


@checks(GELU, "large numbers")
def gelu_large(gelu):
    x = np.array([-1e3, -100.0, -30.0, -12.0, 12.0, 30.0, 100.0, 1e3], np.float32)
    got = call(gelu, x)
    if isinstance(got, ms.Tensor) and tuple(got.shape) == x.shape and not np.isfinite(got.asnumpy()).all():
        at = int(np.argmin(np.isfinite(got.asnumpy())))
        fail(
            "large numbers overflow: exp of more than 88 is inf in float32, and inf / inf is nan.",
            example=f"gelu({x[at]:g}) is {got.asnumpy()[at]}, expected {max(x[at], 0.0):g}",
            look="ops.sigmoid is safe for any number; a fraction of exps is not",
        )
    close(got, np.maximum(x, 0), atol=1e-5, known=gelu_mistakes(x), look="far to the right gelu(x) is x, far to the left 0")


@checks(GELU, "inputs of any shape")
def gelu_shapes(gelu):
    for shape in [(), (1,), (7,), (2, 3, 5), (2, 1, 3, 2)]:
        x = np.asarray(rand(*shape, seed=80, scale=2.0), np.float32)
        close(call(gelu, x), expected_gelu(x), name=f"the result for x of shape {shape}", known=gelu_mistakes(x))


@checks(GELU, "each number by itself")
def gelu_elementwise(gelu):
    x = rand(4, 6, seed=82)
    alone = call(gelu, x).asnumpy()
    for more in (np.full((1, 6), 50.0, np.float32), np.full((1, 6), -50.0, np.float32)):
        together = call(gelu, np.concatenate([x, more])).asnumpy()[:4]
        if not np.allclose(together, alone, atol=1e-6):
            fail("what one number becomes depends on the others: GELU works on each number by itself.", look="max, mean and softmax over the tensor")


@checks(GELU, "gradients")
def gelu_gradients(gelu):
    x = np.linspace(-5, 5, 60, dtype=np.float32)
    weighting = rand(60, seed=99)
    want = slope_of(in_pytorch.tanh_gelu, [x], weighting)
    gradients_close(gradients_of(gelu, [x]), want, ["x"])
    far = np.array([-1e3, -30.0, -15.0, 15.0, 30.0, 1e3], np.float32)
    slope, = gradients_of(gelu, [far])
    if not np.isfinite(slope).all():
        at = int(np.argmin(np.isfinite(slope)))
        fail(
            "the gradient is nan or inf for large numbers although the values are right: exp overflows on the way.", example=f"at x = {far[at]:g}",
            look="ops.sigmoid has a safe gradient; a fraction of exps has not",
        )
    close(ms.Tensor(slope), (far > 0) * rand(6, seed=99), 1e-4, name="the slope far from 0")


@checks(GELU, "float16")
def gelu_dtype(gelu):
    x = np.linspace(-6, 6, 61).astype(np.float16)
    got = call(gelu, x)
    is_tensor(got, (61,), ms.float16)
    close(got, expected_gelu(x), atol=6e-3)


@checks(GELU, "the same in graph mode", seconds=20)
def gelu_graph(gelu):
    for shape in [(3, 7), (5,)]:
        same_in_graph_mode(gelu, rand(*shape, seed=83, scale=3.0))
    same_gradient_in_graph_mode(gelu, rand(3, 4, seed=84))


# --- MLP -----------------------------------------------------------------------------------------------

CONFIG = SimpleNamespace(vocab_size=11, n_ctx=7, n_layer=2, n_head=3, n_embd=6)


def mlp_as_torch(cell):
    """The parameters as the PyTorch checks know them."""
    held = {name: torch.from_numpy(value) for name, value in arrays(cell).items()}
    layers = {name: SimpleNamespace(weight=held[f"{name}.weight"], bias=held[f"{name}.bias"]) for name in ("c_fc", "c_proj")}
    return SimpleNamespace(**layers)


def expected_mlp(cell, x):
    layers = mlp_as_torch(cell)
    for layer in (layers.c_fc, layers.c_proj):
        layer.weight, layer.bias = layer.weight.double(), layer.bias.double()
    return in_pytorch.expected_mlp(layers, torch.from_numpy(x).double()).numpy().astype(x.dtype)


def mlp_mistakes(cell, x):
    found = in_pytorch.mlp_mistakes(mlp_as_torch(cell), torch.from_numpy(x))
    W, b, P, p = (arrays(cell)[n] for n in ("c_fc.weight", "c_fc.bias", "c_proj.weight", "c_proj.bias"))
    tanh = ("the GELU between the layers uses ops.tanh, which on a CPU is off by up to 0.0001; take the gelu above, written with a sigmoid.", lambda: with_tanh(ms.Tensor(x @ W.T + b)).asnumpy() @ P.T + p)
    return [*found, tanh]


@checks(MLP, "parameters")
def mlp_parameters(MLP):
    with in_plain_words():
        cell = MLP(CONFIG)
    got = {name: tuple(p.shape) for name, p in cell.parameters_and_names()} if isinstance(cell, ms.nn.Cell) else {}
    width = {"c_fc.weight": 0, "c_proj.weight": 1}
    for name, axis in width.items():
        shape = got.get(name, ())
        if len(shape) == 2 and shape[1 - axis] == 6 and shape[axis] not in (6, 24):
            fail(f"the layer in the middle is {shape[axis]} wide for n_embd = 6; GPT-2 makes it 4 * n_embd, 24.", example=f"{name} has shape {shape}, expected {(24, 6) if axis == 0 else (6, 24)}")
    if got.get("c_fc.weight") == (6, 6):
        fail("the layer in the middle is as wide as its input; GPT-2 makes it 4 * n_embd, 24 for n_embd = 6.", example="c_fc.weight has shape (6, 6), expected (24, 6)")
    if got.get("c_fc.weight") == (6, 24) and got.get("c_proj.weight") == (24, 6):
        fail("the shapes of c_fc and c_proj are exchanged: c_fc goes from n_embd to 4 * n_embd, c_proj back, and weights are stored (out, in).", example="c_fc.weight has shape (6, 24), expected (24, 6)")
    if isinstance(cell, ms.nn.Cell) and not got and any(isinstance(v, (list, tuple)) and any(isinstance(c, ms.nn.Cell) for c in v) for v in vars(cell).values()):
        fail("the layers stand in a Python list: the cell does not see them, and has no parameters.", look="give each layer a name of its own, self.c_fc and self.c_proj")
    parameters_are(cell, {"c_fc.weight": (24, 6), "c_fc.bias": (24,), "c_proj.weight": (6, 24), "c_proj.bias": (6,)}, "MLP")
    for name, p in cell.parameters_and_names():
        if p.dtype != ms.float32:
            fail(f"{name} has dtype {p.dtype}, expected Float32.", look=".astype(np.float32): NumPy's random numbers are float64")


@checks(MLP, "the same result twice")
def mlp_repeatable(MLP):
    for training in (True, False):
        cell = fill(MLP(CONFIG), seed=97).set_train(training)
        x = rand(2, 5, 6, seed=98)
        first, again = call(cell, x), call(cell, x)
        if isinstance(first, ms.Tensor) and isinstance(again, ms.Tensor) and not np.array_equal(first.asnumpy(), again.asnumpy()):
            fail(
                f"two calls with the same input differ{' after set_train()' if training else ''}: something random is at work.",
                look="dropout, which is not part of this GPT and sleeps until set_train() is called, or parameters that are created in construct",
            )


@checks(MLP, "values")
def mlp_values(MLP):
    cell = fill(MLP(CONFIG), seed=90)
    x = rand(2, 5, 6, seed=91, scale=2.0)
    got = call(cell, x)
    if through_float16(got):
        fail(HALF)
    close(got, expected_mlp(cell, x), atol=5e-6, known=mlp_mistakes(cell, x), look=DEFAULTS)


@checks(MLP, "other sizes")
def mlp_sizes(MLP):
    for n_embd in (3, 8):
        cell = MLP(SimpleNamespace(vocab_size=5, n_ctx=4, n_layer=1, n_head=1, n_embd=n_embd))
        C = n_embd
        parameters_are(cell, {"c_fc.weight": (4 * C, C), "c_fc.bias": (4 * C,), "c_proj.weight": (C, 4 * C), "c_proj.bias": (C,)}, f"for n_embd = {C}, MLP")
        fill(cell, seed=92)
        for shape in [(1, 1), (3, 4), (2, 9)]:
            x = rand(*shape, C, seed=93)
            close(
                call(cell, x), expected_mlp(cell, x), atol=5e-6, name=f"the result for n_embd = {C} and x of shape {(*shape, C)}", known=mlp_mistakes(cell, x),
                look="sizes that are written as numbers: take them from config",
            )


@checks(MLP, "each position by itself")
def mlp_positions(MLP):
    cell = fill(MLP(CONFIG), seed=94)
    x = rand(3, 6, 6, seed=95)
    changed = x.copy()
    changed[1, 2] = 20 * rand(6, seed=96)
    moved = np.abs(call(cell, changed).asnumpy() - call(cell, x).asnumpy()).max(axis=-1) > 1e-6
    moved[1, 2] = False
    if moved.any():
        at = np.argwhere(moved)[0].tolist()
        fail("a token changes the result at another position: the MLP works on each position by itself.", example=f"a new token at sequence 1, position 2 moves sequence {at[0]}, position {at[1]}")


@checks(MLP, "gradients")
def mlp_gradients(MLP):
    cell = fill(MLP(CONFIG), seed=100)
    x = rand(2, 5, 6, seed=101)
    held = dict(cell.parameters_and_names())

    def in_torch(x, W, b, P, p):
        return F.linear(in_pytorch.tanh_gelu(F.linear(x, W, b)), P, p)

    names = ["c_fc.weight", "c_fc.bias", "c_proj.weight", "c_proj.bias"]
    want = slope_of(in_torch, [x, *(held[n].asnumpy() for n in names)], rand(2, 5, 6, seed=99))
    got = gradients_of(cell, [x], [held[n] for n in names])
    gradients_close(got, want, ["x", *names])


@checks(MLP, "float16")
def mlp_dtype(MLP):
    cell = fill(MLP(CONFIG), seed=103)
    for layer in (cell.c_fc, cell.c_proj):
        layer.weight, layer.bias = (ms.Parameter(p.asnumpy().astype(np.float16)) for p in (layer.weight, layer.bias))
    x = rand(2, 5, 6, seed=104).astype(np.float16)
    got = call(cell, x)
    is_tensor(got, (2, 5, 6), ms.float16)
    close(got, expected_mlp(cell, x), atol=2e-2)


@checks(MLP, "the same in graph mode", seconds=20)
def mlp_graph(MLP):
    cell = fill(MLP(CONFIG), seed=105)
    for shape in [(2, 5, 6), (3, 2, 6)]:
        same_in_graph_mode(cell, rand(*shape, seed=106))


# --- LayerNorm -----------------------------------------------------------------------------------------

NORM = "mindspore.layers.LayerNorm"


def expected_norm(x, weight, bias, eps=1e-5):
    x, weight, bias = (torch.from_numpy(a).double() for a in (x, weight, bias))
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps).float().numpy()


def norm_mistakes(x, weight, bias, eps=1e-5):
    """The mistakes of lesson 05 in MindSpore's words, and what they give on these arrays."""
    said = {
        "dim=": "axis=",
        "PyTorch's default in var and std": "ddof=1, PyTorch's default; MindSpore's var and std have ddof=0",
        "0.0": "0",
    }
    found = in_pytorch.norm_mistakes(*(torch.from_numpy(a) for a in (x, weight, bias)), eps)
    found.sort(key=lambda pair: "it should be" not in pair[0] or "outside" in pair[0])    # a wrong eps first: what follows looks like it
    for words, value in found:
        for theirs, ours in said.items():
            words = words.replace(theirs, ours)
        if "eps is missing or far too small: it should be 1e-05" in words:
            words += " nn.LayerNorm and ops.LayerNorm of MindSpore have 1e-7 where nothing is given."
        yield words, value.numpy()


def norm_for(LayerNorm, C, *args, seed=30, **kwargs):
    return fill(LayerNorm(C, *args, **kwargs), seed=seed)


def kept_arrays(module):
    """The parameters as arrays of their own: what construct does to a weight later does not reach them."""
    return {name: p.copy() for name, p in arrays(module).items()}


def norm_alone(module):
    """module as a function of x: call() then knows the argument's name, and the graph compiler can read it."""

    def run(x):
        return module(x)

    return run


def compare_norm(module, x, eps=1e-5, atol=FLOAT32, **words):
    p = kept_arrays(module)
    want = expected_norm(x, p["weight"], p["bias"], eps)
    got = call(norm_alone(module), x)
    known = [] if equal(got, want, atol) else list(norm_mistakes(x, p["weight"], p["bias"], eps))
    close(got, want, atol, known=known, **words)


@checks(NORM, "parameters")
def norm_parameters(LayerNorm):
    with in_plain_words():
        module = LayerNorm(6)
    if isinstance(module, nn.Cell):
        names = [name for name, _ in module.parameters_and_names()]
        if any(name.endswith(("gamma", "beta")) for name in names):
            fail(
                f"the parameters are {' and '.join(names)}, the names of MindSpore's own LayerNorm: here they are weight and bias, as in GPT-2.",
                look="self.weight and self.bias in __init__",
            )
    parameters_are(module, {"weight": (6,), "bias": (6,)}, "LayerNorm")
    for name, p in module.parameters_and_names():
        if p.dtype != ms.float32:
            fail(f"{name} has dtype {p.dtype}, expected Float32.", look="np.ones and np.zeros give float64 where no dtype is given, and MindSpore keeps it")


@checks(NORM, "weight starts at 1 and bias at 0")
def norm_initial(LayerNorm):
    p = arrays(LayerNorm(6))
    if not p["weight"].any() and (p["bias"] == 1).all():
        fail("weight starts at 0 and bias at 1: it should be the other way round.", example="a fresh cell would answer 1 to every input")
    for name, want, why in [
        ("weight", 1.0, "with 0 the cell would answer 0 to every input, with random numbers it would start as some other layer"),
        ("bias", 0.0, "a fresh LayerNorm only normalises"),
    ]:
        if not (p[name] == want).all():
            fail(f"{name} does not start at {want:g} everywhere: {why}.", example=f"{name}[0] is {p[name][0]:.4g}, expected {want:g}")


@checks(NORM, "values")
def norm_values(LayerNorm):
    compare_norm(norm_for(LayerNorm, 6), 0.7 + rand(2, 5, 6, seed=31, scale=4.0), atol=1e-5, look="the axis of the mean, what is subtracted, what divides")


@checks(NORM, "eps that is given")
def norm_eps(LayerNorm):
    x = rand(2, 5, 6, seed=32)
    for eps in (0.5, 0.01):
        module = norm_for(LayerNorm, 6, eps=eps)
        compare_norm(module, x, eps, name=f"the result for eps = {eps}", look="where eps is kept in __init__ and used in construct")
    compare_norm(norm_for(LayerNorm, 6, 0.5), x, 0.5, name="the result for LayerNorm(6, 0.5)")


@checks(NORM, "numbers of small variance")
def norm_small_variance(LayerNorm):
    for scale in (2e-3, 1e-4):
        compare_norm(
            norm_for(LayerNorm, 6), rand(2, 5, 6, seed=33, scale=scale), atol=5e-6,
            name=f"the result for numbers of size {scale:g}", look="the default of eps, 1e-5, and its place under the root",
        )


@checks(NORM, "inputs of any shape")
def norm_shapes(LayerNorm):
    for shape in [(4,), (7, 4), (1, 1, 4), (5, 1, 4), (2, 3, 5, 4), (3, 3, 3)]:
        x = 0.5 + rand(*shape, seed=35, scale=4.0)
        compare_norm(norm_for(LayerNorm, shape[-1]), x, name=f"the result for x of shape {shape}", look="axis=-1 is the last axis however many there are; with the axis kept at length 1 the mean broadcasts")
    module, turned = norm_for(LayerNorm, 5), rand(5, 3, 2, seed=36)
    p = kept_arrays(module)
    got = module(ms.Tensor(turned).swapaxes(0, 2))
    close(got, expected_norm(np.ascontiguousarray(turned.swapaxes(0, 2)), p["weight"], p["bias"]), name="the result for an x whose axes were swapped before")


@checks(NORM, "a vector of equal numbers")
def norm_constant(LayerNorm):
    module = norm_for(LayerNorm, 8)
    x = np.stack([np.full(8, 3.0), np.zeros(8)]).astype(np.float32)
    got = call(norm_alone(module), x)
    is_tensor(got, (2, 8), name="the result")
    if not np.isfinite(got.asnumpy()).all():
        fail("a vector of equal numbers has variance 0, and the result is nan or inf: 0 is divided by 0.", example="LayerNorm of [3, 3, 3, 3, ...]", look="eps keeps the number below the fraction above 0")
    close(got, np.broadcast_to(arrays(module)["bias"], (2, 8)), 1e-5, name="the result for equal numbers, which is the bias,")
    slope, = gradients_of(norm_alone(module), [x])
    if not np.isfinite(slope).all():
        fail("the gradient for a vector of equal numbers is nan or inf: the square root of 0 has no slope.", look="eps must be under the square root, added before the root is taken")


@checks(NORM, "a mean far from 0")
def norm_large_mean(LayerNorm):
    module = norm_for(LayerNorm, 32)
    x = 1000 + rand(16, 32, seed=34)
    p = kept_arrays(module)
    got = call(norm_alone(module), x)
    is_tensor(got, (16, 32), ms.float32)
    want = expected_norm(x, p["weight"], p["bias"])
    if not equal(got, want, 1e-3):
        gap = float(np.abs(got.asnumpy() - want).max())
        how = f"off by up to {gap:.2g}" if np.isfinite(gap) else "nan or inf"
        fail(
            "digits are lost when the mean is large: the mean of the squares minus the square of the mean takes the difference of two numbers near 1,000,000 to find a 1.",
            example=f"for numbers of mean 1000 and standard deviation 1 the result is {how}",
            look="subtract the mean first, then average the squares of what is left",
        )


@checks(NORM, "nothing is kept from call to call")
def norm_repeatable(LayerNorm):
    module = norm_for(LayerNorm, 6)
    before = kept_arrays(module)
    x, other = 2 + rand(2, 5, 6, seed=38), rand(2, 5, 6, seed=39)
    results = []
    for training in (True, False, True):
        module.set_train(training)
        results.append(call(norm_alone(module), x))
        call(norm_alone(module), other)
    for name, p in arrays(module).items():
        if not np.array_equal(p, before[name]):
            fail(f"construct changes {name}.", look="assignments into weights in construct")
    if not all(np.array_equal(results[0].asnumpy(), r.asnumpy()) for r in results[1:]):
        fail("calls with the same input differ: something is kept from call to call, or depends on set_train, as in BatchNorm.", look="what construct stores in self")


@checks(NORM, "gradients")
def norm_gradients(LayerNorm):
    module = norm_for(LayerNorm, 6)
    x = 0.3 + rand(2, 5, 6, seed=37, scale=1.5)
    leaves = [torch.from_numpy(a.copy()).requires_grad_() for a in (x, *arrays(module).values())]
    grad = torch.from_numpy(rand(2, 5, 6, seed=99))
    by_name = dict(zip(["x", *arrays(module)], leaves))
    out = F.layer_norm(leaves[0], (6,), by_name["weight"], by_name["bias"], 1e-5)
    wanted = [g.numpy() for g in torch.autograd.grad((out * grad).sum(), leaves)]
    with torch.no_grad():
        std = (leaves[0].var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        hat, g = (leaves[0] - leaves[0].mean(-1, keepdim=True)) / std, grad * by_name["weight"]
    frozen = "the {} is treated as a constant in the backward pass: it depends on x and must pass its gradient on."
    known = [
        (frozen.format("mean and the variance"), g / std),
        (frozen.format("variance"), (g - g.mean(-1, keepdim=True)) / std),
        (frozen.format("mean"), (g - hat * (g * hat).mean(-1, keepdim=True)) / std),
    ]
    got = gradients_of(norm_alone(module), [x], module.trainable_params())
    for name, mine, want in zip(by_name, got, wanted, strict=True):
        gradients_close([mine], [want], [name], known=[(words, value.numpy()) for words, value in known] if name == "x" else ())


@checks(NORM, "the same in graph mode", seconds=20)
def norm_graph(LayerNorm):
    module = norm_for(LayerNorm, 6)
    same_in_graph_mode(norm_alone(module), rand(2, 5, 6, seed=40))
    same_gradient_in_graph_mode(norm_alone(module), rand(2, 5, 6, seed=41), params=[module.weight, module.bias])

