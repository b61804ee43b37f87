# %% [markdown]
# # 14 Porting LayerNorm
#
# Of all pieces of the GPT this one has the same name in both frameworks, the same formula and the same paper behind it. `nn.LayerNorm` becomes `nn.LayerNorm`: a rename, one would
# think, and the model runs, trains and loses nothing that a loss curve would show. Yet two numbers inside are different, and on a vector that is nearly constant the two results
# differ by more than 1. You will see that number, find its cause, and write the port so that it cannot happen.
#
# In this lesson you write
#
# 1. `LayerNorm`: mean 0 and variance 1 for each vector, equal to your PyTorch piece in values and in every gradient.
#
# Time: about 45 minutes. You need your own `LayerNorm` of lesson 05 to compare with; if you have not passed it, the reference stands in.
#
# Letters for shapes, in all lessons: B sequences in a batch, T positions, C channels (`n_embd`), V tokens in the vocabulary.

# %%
import numpy as np
import torch

from course import check, device, exercise, parity, piece, setup, show, timing
from course.bench import port

setup()

import mindspore as ms
from mindspore import nn, ops

ms.set_device(device.mindspore_target())
ms.runtime.launch_blocking()                   # lesson 10: errors come where they are made
TorchLayerNorm = piece("pytorch.layers.LayerNorm")

# %% [markdown]
# `device.mindspore_target()` looks for an Ascend and says "CPU" where there is none, so the same cells run on both. All numbers stored here come from a CPU: nothing in this lesson
# was run on an Ascend.
#
# ## 1. The rename, and what it does
#
# Take one vector with four entries: 0.001, 0.002, 0.003, 0.004. Its mean is 0.0025, its variance 0.00000125. Give it to the LayerNorm of each framework, each as it comes.
#
# Predict before you run: LayerNorm makes the variance 1. Will both give a vector of standard deviation 1?

# %%
row = np.array([[0.001, 0.002, 0.003, 0.004]], np.float32)             # (1, C=4)
in_torch = torch.nn.LayerNorm(4)(torch.from_numpy(row)).detach().numpy()
in_mindspore = nn.LayerNorm((4,))(ms.Tensor(row)).asnumpy()
for name, y in [("PyTorch", in_torch), ("MindSpore", in_mindspore)]:
    print(f"{name:9} {np.round(y[0], 2)}, standard deviation {y.std():.2f}")

# %% [markdown]
# Neither vector is wrong. Both computed
#
# $$y_i = w_i\,\frac{x_i - \mu}{\sqrt{\sigma^2 + \varepsilon}} + b_i$$
#
# with another $\varepsilon$. PyTorch takes $10^{-5}$ where nothing is said, and so does GPT-2 (openai/gpt-2, src/model.py, function norm). MindSpore 2.10 takes $10^{-7}$. Against
# $\sigma^2 = 1.25 \cdot 10^{-6}$ the first is large, the second small. With ordinary numbers, of size 1, both vanish beside $\sigma^2$, and this is why nobody notices:

# %%
random = np.random.default_rng(0)
normal = random.standard_normal((64, 32)).astype(np.float32)           # (64, C=32)
sizes = [10.0**k for k in (-4, -3.5, -3, -2.5, -2, -1.5, -1, -0.5, 0)]
theirs, stock, told = torch.nn.LayerNorm(32), nn.LayerNorm((32,)), nn.LayerNorm((32,), epsilon=1e-5)
gaps = {"nn.LayerNorm((32,))": [], "the same with epsilon=1e-5": []}
for size in sizes:
    x = np.float32(size) * normal                                      # (64, 32)
    want = theirs(torch.from_numpy(x))
    for name, cell in zip(gaps, (stock, told)):
        gaps[name].append(parity.largest_difference(cell(ms.Tensor(x)), want))
for size, gap, right in list(zip(sizes, *gaps.values()))[::2]:
    print(f"input of size {size:7.4f}: off by {gap:.1g}", end=", ")
    print("with epsilon=1e-5 within 2e-6:", right < 2e-6)
curves = {name: np.log10(np.maximum(found, 1e-9)) for name, found in gaps.items()}
x_label, y_label = "log10 of the size of the input", "log10 of the difference"
show.lines(curves, "Distance from PyTorch's LayerNorm", x_label, y_label, x=np.log10(sizes))

# %% [markdown]
# At size 1 the difference is 0.00003, below any tolerance that feels natural. At size 0.001 it is above 1. Such vectors occur: at the start of training the stream of GPT-2 has a standard
# deviation of 0.03, and a model trained in half precision meets smaller ones. A test on normal numbers with a tolerance of 0.001 would have passed this port.
#
# ## 2. The piece
#
# The parameters are called `weight` and `bias`, as in your PyTorch piece and in GPT-2's checkpoint. MindSpore's own cell calls them `gamma` and `beta`.
#
# | name | shape | meaning |
# |---|---|---|
# | x | (..., C) | vectors, one a position |
# | $\mu$, $\sigma^2$ | (..., 1) | one number for each vector |
# | weight, bias | (C,) | parameters, start at 1 and 0 |
# | result | (..., C) | |
#
# Four things to know about the operations you will want.
#
# - `x.mean(axis=-1, keep_dims=True)` and `x.sum(axis=-1, keepdims=True)`: the methods do not agree on how to spell it, and the wrong spelling is a TypeError.
# - `x.var(axis=-1)` divides by C, the biased variance that LayerNorm wants. PyTorch's `x.var(dim=-1)` divides by C - 1. Whoever adds `ddof=1` "to be like PyTorch" brings back the mistake
#   that lesson 05 avoided.
# - A parameter made from `np.ones(n)` is float64, because NumPy's is. Say `np.float32`.
# - `construct` may hold neither `try` nor `import`, and its first argument must be called `self`: the graph compiler reads the source.
#
# The second point as numbers, for 0, 1, 2, 3:

# %%
four = np.arange(4, dtype=np.float32)                                  # (4,)
print(f"x.var() in PyTorch {torch.from_numpy(four).var().item():.2f}", end=", ")
print(f"in MindSpore {ms.Tensor(four).var().item():.2f}", end=", ")
print(f"with ddof=1 {ms.Tensor(four).var(ddof=1).item():.2f}")

# %% [markdown]
# And the shortcut that does not pay, here as in lesson 05. The variance is also mean(x²) - mean(x)², one pass over the numbers instead of two. For numbers around 100 it takes the
# difference of two numbers near 10,000 to find a 1, and float32 has seven digits:

# %%
shifted = 100 + normal                                                 # (64, 32)
want = theirs(torch.from_numpy(shifted))
x = ms.Tensor(shifted)
mean = x.mean(axis=-1, keep_dims=True)                                 # (64, 1)
one_pass = (x * x).mean(axis=-1, keep_dims=True) - mean * mean         # (64, 1)
two_pass = ops.square(x - mean).mean(axis=-1, keep_dims=True)          # (64, 1)
for name, variance in [("one pass", one_pass), ("two passes", two_pass)]:
    gap = parity.largest_difference((x - mean) / ops.sqrt(variance + 1e-5), want)
    print(f"{name:10} within 0.0001 of PyTorch at mean 100: {gap < 1e-4}")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Open your LayerNorm of lesson 05 beside this cell. `nn.Module` becomes `nn.Cell`, `forward` becomes `construct`, `nn.Parameter` becomes `ms.Parameter`, and each method gets MindSpore's spelling
# of the axis. The order of the steps stays.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Subtract the mean first. The variance is then the mean of the squares of what is left; eps is added to it, and only then comes the root: `ops.rsqrt` is one over the root.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `ms.Parameter(array)` takes the name of the attribute it is put into: leave `name=` out.
#
# </details>

# %%
@exercise("mindspore.layers.LayerNorm")
class LayerNorm(nn.Cell):
    """Each vector to mean 0 and variance 1, then a learned scale and shift (Ba et al. 2016).

    Args:
        n_embd: length of each vector.
        eps: added to the variance, under the root.

    Parameters:
        weight: (n_embd,) float32, starts at 1.
        bias: (n_embd,) float32, starts at 0.

    construct(x): (..., n_embd) -> the same shape and dtype. The variance is the biased one, and
    x stays as it is. The same in graph mode.
    """

    def __init__(self, n_embd: int, eps: float = 1e-5):
        raise NotImplementedError

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        raise NotImplementedError


# %%
check(LayerNorm)

# %%
y = LayerNorm(4)(ms.Tensor(row)).asnumpy()
print(f"yours     {np.round(y[0], 2)}, standard deviation {y.std():.2f}")

# %% [markdown]
# ## 3. Equal, in both modes
#
# The comparison of lessons 11 to 13: same weights, same input, a loss that weighs every number of the result differently; eagerly and in graph mode. Weight and bias are random, since 1 and 0 would hide
# a forgotten one. And one row of the input is a thousand times smaller than the others: it is the row on which $\varepsilon$ shows.

# %%
def differences(theirs, mine, x, weighting):
    """{mode: {"values" or what has a gradient: difference}} of a module and its port."""
    given = torch.from_numpy(x).requires_grad_()
    theirs.zero_grad()
    out = theirs(given)
    (out * torch.from_numpy(weighting)).sum().backward()
    slopes = {"x": given.grad, **{name: p.grad for name, p in theirs.named_parameters()}}
    parameters = dict(mine.parameters_and_names())
    weights = [parameters[name] for name in slopes if name != "x"]
    here, factors = ms.Tensor(x), ms.Tensor(weighting)

    def loss(v):
        result = mine(v)
        return (result * factors).sum(), result

    step = ms.value_and_grad(loss, 0, weights=weights, has_aux=True)
    found = {}
    for mode, run in [("eager", step), ("graph", ms.jit(step))]:
        (_, result), (to_x, to_weights) = run(here)
        found[mode] = {"values": parity.largest_difference(result, out)}
        for name, grad in zip(slopes, [to_x, *to_weights]):
            found[mode][name] = parity.relative_difference(grad, slopes[name])
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
torch.manual_seed(0)
theirs = TorchLayerNorm(128)
with torch.no_grad():
    theirs.weight.uniform_(-1, 1)
    theirs.bias.uniform_(-1, 1)
mine = LayerNorm(128)
parity.carry(theirs, mine)
x = random.standard_normal((4, 16, 128)).astype(np.float32)            # (B=4, T=16, C=128)
x[0, 3] *= 1e-3                                                        # one row of tiny variance
weighting = random.standard_normal((4, 16, 128)).astype(np.float32)    # (4, 16, 128)
show_differences(differences(theirs, mine, x, weighting))

# %% [markdown]
# Would the comparison have seen the wrong $\varepsilon$? Give your own cell MindSpore's, and compare once with the tiny row and once without it.

# %%
renamed = LayerNorm(128, eps=1e-7)
parity.carry(theirs, renamed)
gap_with = parity.largest_difference(renamed(ms.Tensor(x)), theirs(torch.from_numpy(x)))
gap_without = parity.largest_difference(renamed(ms.Tensor(x[1:])), theirs(torch.from_numpy(x[1:])))
print("with the tiny row, within 0.001:   ", gap_with < 1e-3)
print("without it,        within 0.001:   ", gap_without < 1e-3)
print("without it,        within 0.000002:", gap_without < 2e-6)

# %% [markdown]
# Two things made the mistake visible, and either alone would do: an input that reaches the place where the two differ, and a bound as tight as the arithmetic allows.
#
# ## 4. What the framework's own cells do differently
#
# `nn.LayerNorm` wants the shape of what it normalises as a tuple or a list, even if it is one number. PyTorch takes either.

# %%
try:
    nn.LayerNorm(128)
except TypeError as error:
    print("TypeError:", str(error).split("\n")[0])
cell = nn.LayerNorm((128,))
print("parameters:", ", ".join(name for name, _ in cell.parameters_and_names()))
try:
    parity.carry(theirs, cell)
except parity.ParityError as error:
    print("ParityError:", error)

# %% [markdown]
# `carry` refuses what does not fit by name. A map of names makes it fit; lesson 15 does that for the whole model. Here are the wrong number and the right one:

# %%
framework_names = {"weight": "gamma", "bias": "beta"}.get
for given in ({}, {"epsilon": 1e-5}):
    cell = nn.LayerNorm((128,), **given)
    parity.carry(theirs, cell, rename=framework_names)
    gap = parity.largest_difference(cell(ms.Tensor(x)), theirs(torch.from_numpy(x)))
    print("nn.LayerNorm with", given or "its default", end=": ")
    print(f"off by more than 1: {gap > 1}, within 2e-6: {gap < 2e-6}")

# %% [markdown]
# Below the cell lies a primitive, `ops.LayerNorm`, one kernel for the whole formula. It has defaults of its own: $\varepsilon = 10^{-7}$ again, and `begin_norm_axis=1`, which for an input of
# (B, T, C) means positions and channels together. That is the mistake of lesson 05 by which a token learns of its future. And it returns three tensors: the result, the mean, and a third that on
# this CPU holds the variance.

# %%
small = random.standard_normal((2, 3, 4)).astype(np.float32)           # (B=2, T=3, C=4)
ones, zeros = ops.ones((4,), ms.float32), ops.zeros((4,), ms.float32)
wide_ones, wide_zeros = ops.ones((3, 4), ms.float32), ops.zeros((3, 4), ms.float32)
_, mean, _ = ops.LayerNorm()(ms.Tensor(small), wide_ones, wide_zeros)
print("axes as they come: one mean for each sequence, shape", mean.shape)
y, mean, variance = ops.LayerNorm(-1, -1, 1e-5)(ms.Tensor(small), ones, zeros)
print("axes -1 and -1: one mean for each position, shape", mean.shape)
want = torch.nn.functional.layer_norm(torch.from_numpy(small), (4,))
print("values within 2e-6:", parity.largest_difference(y, want) < 2e-6)

# %% [markdown]
# With both axes and `epsilon` given, the primitive is as right as your piece, and a valid answer to the exercise. (`mint.nn.LayerNorm` and `ops.layer_norm`, whose signatures are PyTorch's, have no kernel for the CPU in
# MindSpore 2.10: they wait for an Ascend.)
#
# ## 5. What it costs
#
# LayerNorm does little arithmetic: a dozen operations for each number. What costs is to fetch the numbers from memory, once for each operation that is a kernel of its own. So predict: which of the three is ahead,
# PyTorch, MindSpore eager, or MindSpore in graph mode? Each runs forward and backward, in a process of its own.

# %% tags=["nbval-ignore-output"]
timings = port.compare("layers.LayerNorm", [[8, 128, 384]], config=[384], seconds=1.0)
print(timing.report(timings))
print(f"\nfirst call in graph mode, compile included: {timings['MindSpore graph'].first:.2f} s")
fastest = timings["PyTorch"].median
show.bars(
    {name: t.median / fastest for name, t in timings.items()},
    "LayerNorm forward and backward, 8 x 128 x 384", "times PyTorch",
)

# %% [markdown]
# The ratios belong to this machine and its cores, and say nothing about an Ascend. What holds anywhere is how much has to move: each kernel reads its input from memory and writes its result back.

# %%
print(f"numbers in one pass through memory: {8 * 128 * 384:,}")

# %% [markdown]
# The readable form pays for its readability: each of its lines is a kernel with its own way through memory, forward and backward. Lesson 16 writes the two means as one matrix product, which is the fastest
# form on this CPU, and proves it equal to this one.
#
# ## What you built, what comes next
#
# You ported a piece whose name needed no change and whose numbers did. Its default $\varepsilon$ differs by a factor of 100, its parameters have other names, its shape is a tuple, and its primitive normalises over
# other axes unless told. A comparison found all of that, because it had a row of tiny variance and a bound of 2e-6.
#
# All pieces are now ported. Lesson 15 puts them together: the whole GPT, with one table for both ends, the weights of your PyTorch model carried over by name, and every gradient equal.
