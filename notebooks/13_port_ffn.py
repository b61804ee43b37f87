# %% [markdown]
# # 13 Porting the feed-forward network
#
# The feed-forward network is two matrix products with a bend between them. The products port without trouble. The bend does not: GELU comes in two
# forms that differ by less than 0.0005, MindSpore has both, and which of them you get depends on whether you write `nn.GELU()` or `ops.gelu`. And when you write the right formula yourself, with the
# framework's own tanh, the result is off all the same. A loss curve shows none of this. A comparison number by number does.
#
# In this lesson you write
#
# 1. `gelu`: the tanh form, written so that it is exact,
# 2. `MLP`: the feed-forward network of GPT-2.
#
# Time: about 50 minutes. You need `Linear` of lesson 10, and your own `gelu` and `MLP` of lesson 05 to compare with; if you have not passed them, the reference
# stands in.
#
# Letters for shapes, in all lessons: B sequences in a batch, T positions, C channels (`n_embd`), V tokens in the vocabulary.

# %%
import math
from types import SimpleNamespace

import numpy as np
import torch

from course import check, device, exercise, parity, piece, setup, show, timing
from course.bench import port

setup()

import mindspore as ms
from mindspore import nn, ops

ms.set_device(device.mindspore_target())
Linear = piece("mindspore.primitives.Linear")

# %% [markdown]
# ## 1. One formula, two results
#
# GPT-2's GELU is the tanh form of Hendrycks and Gimpel (2016, section 2; openai/gpt-2, src/model.py, function gelu):
#
# $$\text{gelu}(x) = \frac{x}{2}\,(1 + \tanh z) \qquad z = \sqrt{\frac{2}{\pi}}\,\left(x + 0.044715\,x^3\right)$$
#
# Port it word for word and compare it with the same formula in float64.
#
# Predict before you run: how far is a correct formula in float32 from the exact value?

# %%
def word_for_word(x):
    z = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + ops.tanh(z))


def exact(x):
    """The tanh form in float64."""
    x = x.astype(np.float64)
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


x = np.linspace(-6, 6, 1201, dtype=np.float32)                         # (1201,)
ported = word_for_word(ms.Tensor(x)).asnumpy()                         # (1201,)
in_torch = piece("pytorch.layers.gelu")(torch.from_numpy(x)).numpy()
for name, y in [("MindSpore, word for word", ported), ("your PyTorch piece", in_torch)]:
    off = np.abs(y - exact(x))
    print(f"{name:25} within 0.000002: {off.max() < 2e-6}, within 0.0001: {off.max() < 1e-4}")

# %% [markdown]
# The formula is right and the result is not. The constants are fine, so it must be one of the operations. Take them one by one, against float64:

# %%
operations = {
    "square": (ops.square, np.square),
    "tanh": (ops.tanh, np.tanh),
    "sigmoid": (ops.sigmoid, lambda v: 1 / (1 + np.exp(-v))),
}
wide = np.linspace(-12, 12, 2401, dtype=np.float32)                    # (2401,)
errors = {}
for name, (mine, oracle) in operations.items():
    want = oracle(wide.astype(np.float64))
    errors[name] = np.abs(mine(ms.Tensor(wide)).asnumpy() - want) / np.maximum(1, np.abs(want))
rows = [
    (name, *(str(e.max() < bound) for bound in (1e-3, 3e-5, 2e-6)))
    for name, e in errors.items()
]
show.table(rows, ["operation", "error below 1e-3", "3e-5", "2e-6"])
print(f"ops.tanh is worst at |x| = {abs(wide[errors['tanh'].argmax()]):.1f}")
print("ops.tanh(4.999) is above 1:", ops.tanh(ms.Tensor(4.999)).item() > 1)
tiny = 1e-9                                                     # zero has no place on a log scale
curves = {name: np.log10(errors[name] + tiny) for name in ("tanh", "sigmoid")}
show.lines(curves, "Error of two operations on this CPU", "x", "log10 of the error", x=wide)

# %% [markdown]
# On a CPU, MindSpore's `ops.tanh` is an approximation that drifts as $|x|$ comes near 5: it even passes 1, which no tanh does. From there on it returns 1, and tanh(5) is 0.99991. An error of one in ten thousand is nothing for a network that is trained with it. It is too much for a
# port that is to be proved equal, since it hides any other mistake of that size. What an Ascend's tanh does was not tried here.
#
# Lesson 05 had a second writing of the same function, chosen for speed:
#
# $$\frac{1 + \tanh z}{2} = \text{sigmoid}(2z) \qquad\text{so}\qquad \text{gelu}(x) = x\,\text{sigmoid}(2z)$$
#
# The picture says that `ops.sigmoid` has no such flaw. Here the second writing is not only faster but right.
#
# | name | shape | meaning |
# |---|---|---|
# | x | any, float32 or float16 | each number by itself |
# | result | that of x, and its dtype | about x for large x, about 0 for very negative x |
#
# For checking by hand: gelu(1) = 0.8412, gelu(-1) = -0.1588, gelu(0) = 0.
#
# <details><summary>Hint 1</summary>
#
# Two lines: $2z$ first, then the result. There is no 0.5 and no 1 left. Python's `math.sqrt(2 / math.pi)` is a plain number and keeps the dtype of x; a NumPy array would make everything float64.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# x comes out of the bracket: $2z = x\,(a + b\,x^2)$ with two constants, $a = 2\sqrt{2/\pi}$ and $b$ = 0.044715 a. `ops.square` is the square. Leave `x ** 3` alone: a power costs more than two products, and more still in the backward pass.
#
# </details>

# %%
@exercise("mindspore.layers.gelu")
def gelu(x: ms.Tensor) -> ms.Tensor:
    """GELU in the tanh form (Hendrycks and Gimpel 2016), as GPT-2 uses it.

    Args:
        x: float tensor of any shape.

    Returns:
        0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) within 0.000002, of the shape and
        dtype of x; finite also for large x. x stays as it is.
    """
    raise NotImplementedError


# %%
check(gelu)

# %%
mine = gelu(ms.Tensor(x)).asnumpy()                                    # (1201,)
three = gelu(ms.Tensor([-1.0, 0.0, 1.0])).asnumpy()
print("gelu at -1, 0, 1:", [round(float(v), 4) for v in three])
print("within 0.000002 of float64:", np.abs(mine - exact(x)).max() < 2e-6)
print("within 0.000002 of your PyTorch piece:", parity.largest_difference(mine, in_torch) < 2e-6)

# %% [markdown]
# ## 2. The MLP
#
# Widen, bend, come back: `c_fc` makes 4C channels out of C, GELU bends each of them, `c_proj` mixes them down to C.
#
# | step | shape |
# |---|---|
# | x | (B, T, C) |
# | `c_fc(x)` | (B, T, 4C) |
# | gelu | (B, T, 4C) |
# | `c_proj` | (B, T, C) |
#
# $$\text{MLP}(x) = \text{gelu}(x W_1^\top + b_1)\,W_2^\top + b_2$$
#
# `Linear` is the one of lesson 10, its weight stored (out, in) as in PyTorch. A function called from `construct` becomes part of the graph, so `gelu` can stay a plain function. The layers need names: a cell that stands in a Python list
# is not seen by the cell around it, and its parameters are never trained.
#
# <details><summary>Hint 1</summary>
#
# Two `Linear` in `__init__`, after `super().__init__()`, with the widths of the table, which come from `config.n_embd`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `construct` is the table, a line for each row. Compare with your `forward` of lesson 05: if more than the name of the method differs, one of the two can be made simpler.
#
# </details>

# %%
@exercise("mindspore.layers.MLP")
class MLP(nn.Cell):
    """GPT-2's feed-forward network (openai/gpt-2, src/model.py, function mlp).

    Args:
        config: has n_embd.

    Parameters:
        c_fc: Linear(n_embd, 4 * n_embd).
        c_proj: Linear(4 * n_embd, n_embd).

    construct(x): (..., n_embd) -> (..., n_embd), each position by itself.
    """

    def __init__(self, config):
        raise NotImplementedError

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        raise NotImplementedError


# %%
check(MLP)

# %% [markdown]
# ## 3. Equal, in both modes
#
# The comparison of lesson 11, now with a gradient for the input as well: same weights, same input, a loss that weighs every number of the result differently, once eagerly and once in graph mode. For each gradient the largest difference is
# divided by its largest value.

# %%
def differences(theirs, mine, x, weighting):
    """{mode: {"values" or what has a gradient: difference}} of a module and its port."""
    given = torch.from_numpy(x).requires_grad_()
    theirs.zero_grad()
    out = theirs(given)
    (out * torch.from_numpy(weighting)).sum().backward()
    slopes = [given.grad, *(p.grad for p in theirs.parameters())]
    names = ["x", *(name for name, _ in mine.parameters_and_names())]
    weights = mine.trainable_params()
    here, factors = ms.Tensor(x), ms.Tensor(weighting)

    def loss(v):
        result = mine(v)
        return (result * factors).sum(), result

    step = ms.value_and_grad(loss, 0, weights=weights, has_aux=True)
    found = {}
    for mode, run in [("eager", step), ("graph", ms.jit(step))]:
        (_, result), (to_x, to_weights) = run(here)
        found[mode] = {"values": parity.largest_difference(result, out)}
        for name, grad, slope in zip(names, [to_x, *to_weights], slopes):
            found[mode][name] = parity.relative_difference(grad, slope)
    return found


def show_differences(found, values=2e-6, gradients=5e-6):
    """A row for each number: within its bound or not."""
    rows = []
    for mode, gaps in found.items():
        for name, gap in gaps.items():
            bound = values if name == "values" else gradients
            what = name if name == "values" else f"gradient of {name}"
            rows.append((mode, what, f"{bound:.0e}", gap <= bound))
    show.table(rows, ["mode", "what", "bound", "within"])


# %%
config = SimpleNamespace(n_embd=128)
torch.manual_seed(0)
random = np.random.default_rng(0)
theirs = piece("pytorch.layers.MLP")(config)
mine = MLP(config)
parity.carry(theirs, mine)
x = random.standard_normal((4, 16, 128)).astype(np.float32)            # (B=4, T=16, C=128)
weighting = random.standard_normal((4, 16, 128)).astype(np.float32)    # (4, 16, 128)
show_differences(differences(theirs, mine, x, weighting))

# %% [markdown]
# Would the comparison have noticed the tanh? Put the word-for-word GELU into the same cell and look at the same numbers, this time with an input that is a little larger, so that more of it lies where the two differ:

# %%
class WithBend(nn.Cell):
    """The MLP with another function between its layers."""

    def __init__(self, inside, bend):
        super().__init__()
        self.c_fc, self.c_proj = inside.c_fc, inside.c_proj
        self.bend = bend

    def construct(self, x):
        return self.c_proj(self.bend(self.c_fc(x)))


large = 4 * x                                                          # (4, 16, 128)
want = theirs(torch.from_numpy(large))                                 # (4, 16, 128)
with_sigmoid = parity.largest_difference(mine(ms.Tensor(large)), want)
with_tanh = parity.largest_difference(WithBend(mine, word_for_word)(ms.Tensor(large)), want)
print("with your gelu, values within 0.00001:", with_sigmoid < 1e-5)
print("with ops.tanh,  values within 0.00001:", with_tanh < 1e-5)
print("with ops.tanh,  values within 0.001:  ", with_tanh < 1e-3)

# %% [markdown]
# It would, and with a looser bound it would not. A comparison is worth as much as its bound: one of 0.001 passes the wrong tanh, and the wrong GELU of the next section as well.
#
# ## 4. What the framework's own cells do differently
#
# **Which GELU.** PyTorch's `nn.GELU()` is the exact form with erf, and one asks for tanh by name. A port by name meets four spellings. Predict the two that are tanh:

# %%
values = np.linspace(-6, 6, 1201, dtype=np.float32)                    # (1201,)
there, here = torch.from_numpy(values), ms.Tensor(values)
spellings = {
    "torch  nn.GELU()": torch.nn.GELU()(there).numpy(),
    "torch  nn.GELU('tanh')": torch.nn.GELU("tanh")(there).numpy(),
    "mindspore  nn.GELU()": nn.GELU()(here).asnumpy(),
    "mindspore  nn.GELU(False)": nn.GELU(approximate=False)(here).asnumpy(),
    "mindspore  ops.gelu(x)": ops.gelu(here).asnumpy(),
    "mindspore  ops.gelu(x, 'tanh')": ops.gelu(here, approximate="tanh").asnumpy(),
}
rows = []
for name, y in spellings.items():
    off = np.abs(y - exact(values)).max()
    rows.append((name, "tanh" if off < 5e-6 else "erf", f"{off:.5f}"))
show.table(rows, ["spelling", "form", "distance from the tanh form"])

# %% [markdown]
# The two frameworks' `nn.GELU()` are different functions, and MindSpore's cell and MindSpore's function disagree with each other. And the documentation that comes with version 2.10 announces that the default of `nn.GELU` "will change" after version 2.9; in 2.10 it has not. So the rule is short: never rely on a default of
# GELU, and say the form. The wrong number in the model, and then the right one:

# %%
for name, bend in [("ops.gelu", ops.gelu), ("gelu", gelu)]:
    gap = parity.largest_difference(WithBend(mine, bend)(ms.Tensor(large)), want)
    print(f"{name:9} values within 0.00001: {gap < 1e-5}, within 0.001: {gap < 1e-3}")

# %% [markdown]
# **Linear layers.** `nn.Dense` is MindSpore's `nn.Linear`. Its weight is (out, in), its parameters are called weight and bias, and it starts with the same uniform numbers as PyTorch's.
# Here the names and the start agree, for once (in MindSpore 1.x they did not). What does not fit is the checkpoint of GPT-2 itself: it stores its layers as Conv1D, (in, out), as lesson 09 showed. For `c_fc` of shape (4C, C) the shapes
# give that away. A square weight gives nothing away, and `set_data` does not even look:

# %%
layer = nn.Dense(768, 3072)
bound = 1 / math.sqrt(768)
w, b = layer.weight.asnumpy(), layer.bias.asnumpy()
print("nn.Dense(768, 3072): weight", w.shape, "within 1/sqrt(768):", np.abs(w).max() <= bound)
print(f"deviation over that of a uniform distribution: {w.std() / (bound / math.sqrt(3)):.2f}")
conv1d = random.standard_normal((768, 3072)).astype(np.float32)        # (in, out), as stored
layer.weight.set_data(ms.Tensor(conv1d))
print("after set_data the weight has shape", layer.weight.shape)
layer.weight.set_data(ms.Tensor(np.ascontiguousarray(conv1d.T)))       # (out, in)
row = np.ones((1, 768), np.float32)                                    # (1, C)
gap = parity.largest_difference(layer(ms.Tensor(row)), row @ conv1d + b)
print("transposed, equal to x @ w + b within 0.001:", gap < 1e-3)

# %% [markdown]
# `set_data` took a matrix of another shape without a word. `parity.carry` looks at names and shapes before it copies anything.
#
# **Dropout.** The first GPT was trained with a dropout of 0.1 after this part (Radford et al. 2018, section 4.1), and Hugging Face's GPT-2 has one after `c_proj`. The GPT of this course has none. Whoever ports another model will meet it here, and it fails
# silently in two ways. Predict before you run: what share of the ones does `nn.Dropout(0.1)` set to 0, in a cell that was just made, and then while training?

# %%
ones = ms.Tensor(np.ones(1_000_000, np.float32))                       # (1000000,)


def dropped(cell):
    y = cell(ones).asnumpy()
    return f"{100 * (y == 0).mean():3.0f} % are 0, the largest is {y.max():.2f}"


ms.set_seed(0)
born, positional, named = nn.Dropout(0.1), nn.Dropout(0.1), nn.Dropout(p=0.1)
positional.set_train()
named.set_train()
print("nn.Dropout(0.1), new:               ", dropped(born))
print("nn.Dropout(0.1), after set_train(): ", dropped(positional))
print("nn.Dropout(p=0.1), after set_train():", dropped(named))
there = torch.nn.Dropout(0.1)
print("training at birth:", born.training, "in MindSpore,", there.training, "in PyTorch")

# %% [markdown]
# A cell starts in evaluation mode, so a dropout does nothing until `set_train()` is called on the model; PyTorch's modules start in training mode. And the first argument of `nn.Dropout` is the share it **keeps**: 0.1 drops nine in ten and multiplies the rest by ten. Write
# `p=0.1`. The documentation announces that the old argument will go after version 2.9; in 2.10 it is still there.
#
# ## 5. The stopwatch
#
# First the bend alone, then the whole MLP; forward and backward, each candidate in a process of its own. Eager mode starts one operation after another, six of them for `gelu` and a few more for the MLP, and more again for the gradients.
#
# Predict before you run: by what factor does graph mode shorten each of the two, and how near does it come to PyTorch?

# %% tags=["nbval-ignore-output"]
of_gelu = port.compare("layers.gelu", [(12, 64, 512)], seconds=1.0)
of_mlp = port.compare("layers.MLP", [(12, 64, 128)], config={"n_embd": 128}, seconds=1.0)
print("gelu of (12, 64, 512)")
print(timing.report(of_gelu))
print("\nMLP of (12, 64, 128)")
print(timing.report(of_mlp))
for name, found in [("gelu", of_gelu), ("MLP", of_mlp)]:
    first = found["MindSpore graph"].first
    print(f"{name}, graph mode, first call with compiling: {first:.2f} s")
ratios = {}
for name, found in [("gelu", of_gelu), ("MLP", of_mlp)]:
    for label in ("MindSpore eager", "MindSpore graph"):
        ratios[f"{name}\n{label}"] = found[label].median / found["PyTorch"].median
show.bars(ratios, "Forward and backward", "time over PyTorch's")

# %% [markdown]
# Eager mode pays a price for each operation it starts, forward and backward, on top of the arithmetic. In graph mode the operations are known beforehand and that price is paid once, by the compiler; what is left is mostly arithmetic, and there the two
# frameworks are not far apart. Lesson 16 looks at what still lies between them. These are figures of a CPU; nothing here was run on an Ascend. The next cell counts, which gives the same on any machine.

# %%
print(f"gelu: {12 * 64 * 512:,} numbers in, as many out")
print(f"MLP: {2 * 12 * 64 * 128 * 512:,} multiplications forward, twice as many backward")

# %% [markdown]
# ## What you built, what comes next
#
# You ported the part of the GPT that holds two thirds of each block's parameters, and proved it equal: values within 0.000002, every gradient within 0.000005 of its largest value, in both modes. On the way you found an operation that is not what its name says, by taking a formula apart
# until one step was left. You saw that a port by name would have changed the function (`ops.gelu`), that a checkpoint can be read the wrong way round without an error, and that a dropout can be off when it should be on, or drop nine in ten.
#
# Lesson 14 ports LayerNorm, where the default that bites is smaller still: 0.0000001 in the place of 0.00001.
