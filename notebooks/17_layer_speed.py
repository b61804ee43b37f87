# %% [markdown]
# # 17 Layer speed
#
# The port is equal. Is it fast? Lesson 16 took a whole training step and made it faster in five strides. This lesson
# takes one layer, the smallest part that is worth a stopwatch, and asks of each change by itself what it brings. A
# layer is built in a minute, compiled in seconds and compared with its readable twin by numbers. Twelve of them are
# nearly all of GPT-2.
#
# Advice on speed is cheap, and much of it was right on another machine. So the rule of this lesson: predict, measure, compare
# values and gradients, and only then keep a change. You write
#
# 1. `rope_table` and `rotate`: positions that are turned in and not learned, in PyTorch,
# 2. `rotate` once more, in MindSpore,
# 3. `LayerNorm`, `CausalSelfAttention` and `Block`: a layer written for the graph compiler, equal to the slow one.
#
# Time: about 75 minutes. You need the attention of lessons 04 and 12, and the MLP, LayerNorm and Block of lessons 13 to 15; for what
# you have not passed, the reference stands in.
#
# Letters for shapes: B sequences in a batch, T positions, C channels (`n_embd`), N = B · T rows.

# %%
import inspect
import math
from types import SimpleNamespace

import numpy as np
import torch

from course import check, device, exercise, parity, piece, setup, show, timing
from course.bench import layer as bench

setup()
import mindspore as ms
from mindspore import nn, ops

ms.set_device(device.mindspore_target())
TorchAttention = piece("pytorch.attention.CausalSelfAttention")
torch_attention = piece("pytorch.attention.attention")
torch_mask = piece("pytorch.attention.causal_mask")
torch_split_heads = piece("pytorch.attention.split_heads")
torch_merge_heads = piece("pytorch.attention.merge_heads")
TorchBlock = piece("pytorch.gpt.Block")
ReadableAttention = piece("mindspore.attention.CausalSelfAttention")
ReadableBlock = piece("mindspore.gpt.Block")
attention = piece("mindspore.attention.attention")
causal_mask = piece("mindspore.attention.causal_mask")
split_heads = piece("mindspore.attention.split_heads")
merge_heads = piece("mindspore.attention.merge_heads")
gelu = piece("mindspore.layers.gelu")

# %% [markdown]
# `mindspore_target()` gives "Ascend" where there is one. Nothing in this lesson was run on an Ascend: every figure that you will see
# is a CPU's, and what wins here need not win there. What carries over is the way to find out.
#
# ## 1. What is to be computed
#
# Before the clock, count. A product of (n, k) and (k, m) takes 2·n·k·m operations, a multiplication and an addition for each.
# A layer's products, forward:
#
# | product | shapes | operations |
# |---|---|---|
# | `c_attn` | (N, C) · (C, 3C) | 6 N C² |
# | scores, and weights times v | (T, d) · (d, T) and (T, T) · (T, d), for each head | 4 N T C |
# | `c_proj` of attention | (N, C) · (C, C) | 2 N C² |
# | `c_fc` and `c_proj` of the MLP | (N, C) · (C, 4C) and back | 16 N C² |
#
# The backward pass has two products for each of these, one for the gradient of each operand. So forward and backward
# together take three times as many. Everything else (norms, GELU, softmax, sums) is little arithmetic, but each of its operations
# reads and writes whole tensors.

# %%
rows = []
for size in ("small", "mid", "gpt2"):
    s = bench.SIZES[size]
    count = bench.flops("layer", "both", size)
    shape = (s["n_embd"], s["n_head"], s["n_ctx"], s["batch"])
    rows.append((size, *shape, f"{count / 1e9:.2f}"))
show.table(rows, ("size", "C", "heads", "T", "B", "10⁹ operations, both passes"))

# %% [markdown]
# The size `gpt2` is a layer of GPT-2 small. This notebook measures `small`, which takes seconds, and a command at
# the end does the same for `gpt2`.
#
# ## 2. Predict, then measure
#
# Four ways to run one and the same layer, forward and backward, each in a process of its own:
#
# - PyTorch, eager: the block of lesson 06;
# - MindSpore, eager: the block of lesson 15, as ported;
# - the same as one graph (`ms.jit`, jit_level O0: a kernel for each operation);
# - and in section 7 your fast layer, as one graph with kernel fusion.
#
# Write down what you expect, as multiples of PyTorch's time, before you run the cell after it. A wrong guess is worth more than none.

# %%
guesses = {"eager": 3.0, "graph": 1.5, "fast": 1.0}

# %% tags=["nbval-ignore-output"]
measured = bench.measure("small", ["pytorch", "eager", "graph"], seconds=1.0, profile=True)
print(*dict.fromkeys(m.banner for m in measured), sep="\n")
print("\n".join(bench.table(measured, "small")))
base = measured[0].median
for m in measured[1:]:
    print(f"{m.mode}: you guessed {guesses[m.mode]:.1f} times PyTorch, it is {m.median / base:.1f}")

# %% [markdown]
# How to read the table. `of peak` is the speed of the layer's products as a share of the speed that one large product reaches
# in the same process: the roof. `first s` is the first call, and in graph mode it holds the compilation. `memory MB` is what the
# process had at its peak beyond what it had before the layer was built. The last column is the largest difference from PyTorch's
# values and gradients, as a share of the largest number.
#
# Memory has to come from the operating system, because MindSpore's own counters know nothing of a CPU:

# %%
print("ms.runtime.memory_allocated on a CPU says", ms.runtime.memory_allocated())
worst = max(max(m.output_gap, m.gradient_gap) for m in measured)
print("values and gradients of all candidates within 1e-5:", worst < 1e-5)

# %% [markdown]
# The comparison of values comes first in every table of this lesson. A fast layer that computes something else is of no use.
#
# ## 3. Where the time goes
#
# `mindspore.profiler` with `ProfilerActivity.CPU` writes a table of operators: type, calls, milliseconds. The
# benchmark ran it for ten calls in each process, in a folder that is gone by now. Predict which type of operator leads.

# %% tags=["nbval-ignore-output"]
for profiled in measured[1:]:
    print("\n".join(bench.operator_lines(profiled, most=6)))

# %%
def calls(m):
    """Operators in one forward and backward pass."""
    return sum(operator.calls for operator in m.operators) // 10


by_mode = {m.mode: m for m in measured}
for mode in ("eager", "graph"):
    print(f"{mode}: more than 100 operators a pass:", calls(by_mode[mode]) > 100)

# %% [markdown]
# A layer has six products forward and twelve backward, and here are far more operators than that. Each costs a trip from Python (eager) or from the
# graph's dispatcher, and each reads its input from memory and writes its result back. There are two ways out: let
# the compiler make one kernel of many (fusion), and write the layer so that fewer are needed and fewer stand in the way of
# fusion. Now for the advice in circulation, one piece at a time.
#
# **Transposed operands.** `x @ weight.T` asks for a copy of the weight with its axes swapped, before the product. The primitive
# `ops.MatMul(transpose_b=True)` reads the weight as it lies. It takes exactly two axes, which is why the fast layers work on a
# stream of (N, C) and not of (B, T, C).

# %%
matmul = ops.MatMul()
matmul_t = ops.MatMul(transpose_b=True)                    # (N, d_in), (d_out, d_in) -> (N, d_out)
batch_matmul = ops.BatchMatMul()
batch_matmul_t = ops.BatchMatMul(transpose_b=True)         # (..., T, d), (..., S, d) -> (..., T, S)
softmax = ops.Softmax(axis=-1)

random = np.random.default_rng(0)
x = ms.Tensor(random.standard_normal((12, 8)).astype(np.float32))       # (N=12, d_in=8)
weight = ms.Tensor(random.standard_normal((5, 8)).astype(np.float32))   # (d_out=5, d_in=8)
off = parity.largest_difference(matmul_t(x, weight), ops.matmul(x, weight.swapaxes(0, 1)))
print("transposed operand and transposed copy within 1e-5:", off < 1e-5)

# %% [markdown]
# **An additive mask.** A boolean mask has to be inverted, spread over the heads and written into the scores. A matrix of
# 0 and −1e9, made once in `__init__`, is only added. Is it exact? exp of a number near −1e9 is 0 in float32, so a hidden key gets
# no weight. And −1e9 in place of −∞ keeps a row that hides everything free of NaN.

# %%
scores = ms.Tensor(10 * random.standard_normal((2, 6, 6)).astype(np.float32))   # (B, T, T)
future = np.triu(np.ones((6, 6), np.float32), k=1)                              # (T, T)
boolean = softmax(scores.masked_fill(ms.Tensor(future > 0), -math.inf))
additive = softmax(scores + ms.Tensor(-1e9 * future))
print("the two masks within 1e-6:", parity.largest_difference(boolean, additive) < 1e-6)
print("weight of every hidden key below 1e-30:", float((additive.asnumpy() * future).max()) < 1e-30)

# %% [markdown]
# **One fused operation for many small ones.** `ops.Softmax` is one. `ops.GeLU` and `ops.LayerNorm` are one each, too. Fast or not,
# are they the function you mean? Compare with float64:

# %%
x = np.linspace(-6, 6, 1000).astype(np.float32)
right = torch.nn.functional.gelu(torch.from_numpy(x).double(), approximate="tanh")
a = math.sqrt(2 / math.pi)
tensor = ms.Tensor(x)
ways = {
    "x sigmoid(2z), lesson 13": gelu(tensor),
    "ops.GeLU": ops.GeLU()(tensor),
    "0.5 x (1 + ops.tanh(z))": 0.5 * tensor * (1 + ops.tanh(a * (tensor + 0.044715 * tensor**3))),
}
for name, found in ways.items():
    off = parity.largest_difference(found, right)
    print(f"{name:26} within 1e-5: {off < 1e-5}   within 1e-3: {off < 1e-3}")

# %% [markdown]
# The formula with a tanh is less exact on a CPU, as lesson 13 found. Which of the other two is faster depends on the rest:
# without fusion the sigmoid is several kernels, with fusion it melts into its neighbours.
#
# **Preallocated buffers.** "Write into memory that is there already." Let us see what the frameworks allow:

# %%
print("ops.matmul takes out=:", "out" in inspect.signature(ops.matmul).parameters)
left = torch.ones(2, 2, requires_grad=True)
try:
    torch.matmul(left, torch.ones(2, 2), out=torch.empty(2, 2))
except RuntimeError:
    print("torch.matmul with out= and a gradient: RuntimeError")

# %% [markdown]
# In training a result may not be written over, because the backward pass still needs it. What is left is to write results
# into Parameters with `ops.assign`: that is a copy on top, and not one saved. Memory is reused all the same: both frameworks keep a pool,
# and a compiled graph plans its memory before it runs.
#
# ## 4. Rotary positions
#
# A change of another kind: the learned position table `wpe` gives way to RoPE (Su et al. 2021), which most models after GPT-2
# use. Nothing is added to the input. In each head, channel i and channel i + d/2 of q and k form a pair, a point in a plane, and
# the pair is turned by an angle that grows with the position t:
#
# $$\theta_{t,i} = t \cdot \text{base}^{-2i/d} \qquad i = 0 \ldots d/2 - 1$$
#
# The dot product of two turned vectors depends on the difference of their angles alone. So a score knows how far apart
# query and key are, and not where they stand. The table of cosines and sines does not depend on x: computed once it can be kept,
# and to compute it again at each call is a waste that benchmarks love to find.
#
# | name | shape | meaning |
# |---|---|---|
# | n_ctx, head_dim | numbers | rows of the table; width of a head, even |
# | cos, sin | (n_ctx, head_dim / 2) | of the angle of position t and pair i |
#
# For head_dim = 4 and base 10,000 the two rates are 1 and 0.01: pair 0 has turned by 3 radians at position 3, and pair 1 by 0.03.
#
# <details><summary>Hint 1</summary>
#
# The exponents are 0, 2, 4, … divided by head_dim, with a minus. `torch.arange` takes a step.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Positions as a column times rates as a row give all angles at once. In float64 the angles of far positions keep their digits;
# round at the very end.
#
# </details>

# %%
@exercise("pytorch.rope.rope_table")
def rope_table(n_ctx: int, head_dim: int, base: float = 10000.0) -> tuple:
    """Cosines and sines of all positions.

    Source: Su et al. 2021, RoFormer, section 3.2.2.

    Args:
        n_ctx: number of positions, from 0.
        head_dim: width of a head, an even number.
        base: how slowly the last pairs turn.

    Returns:
        (cos, sin), each (n_ctx, head_dim / 2) float32.

    Raises:
        ValueError: head_dim is odd; the message names it.
    """
    raise NotImplementedError


# %%
check(rope_table)

# %%
cos, sin = rope_table(64, 16)                              # (64, 8) each
print("position 0:", cos[0].tolist()[:3], sin[0].tolist()[:3])
curves = {f"pair {i}": cos[:, i].tolist() for i in (0, 1, 2, 4)}
show.lines(curves, "cos of four of the eight pairs", "position", "cos")

# %% [markdown]
# Each pair is a hand of a clock. Pair 0 goes round in about six positions, pair 4 hardly moves in 64. Together they tell
# every position from every other.
#
# Now turn. With a pair (a, b) and its angle:
#
# $$a' = a\cos\theta - b\sin\theta \qquad b' = a\sin\theta + b\cos\theta$$
#
# The a of all pairs are the first half of the channels, the b the second half. (Other code pairs neighbours, 2i and 2i + 1. Both
# are right, and weights trained for one are wrong for the other.)
#
# | name | shape |
# |---|---|
# | x | (..., T, head_dim) |
# | cos, sin | (T, head_dim / 2) |
# | result | the shape and dtype of x |
#
# <details><summary>Hint 1</summary>
#
# Cut x along its last axis into two halves. The tables broadcast over all axes in front of T by themselves.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Both new halves need both old ones. Compute the two before you put anything together.
#
# </details>

# %%
@exercise("pytorch.rope.rotate")
def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn each pair of channels (i, i + head_dim / 2) by its angle.

    Args:
        x: (..., T, head_dim), q or k. Not changed.
        cos, sin: (T, head_dim / 2), of the dtype of x.

    Returns:
        (..., T, head_dim), of the dtype of x.
    """
    raise NotImplementedError


# %%
check(rotate)

# %% [markdown]
# The property that makes RoPE worth the trouble: take one q and one k, put them at positions (t, t − 3), and
# move both along. The score must not change; their distance alone counts.

# %%
torch.manual_seed(0)
q, k = torch.randn(2, 16)                                  # (head_dim,) each
qs, ks = rotate(q.expand(64, 16), cos, sin), rotate(k.expand(64, 16), cos, sin)   # (64, 16)
all_scores = qs @ ks.T                                     # (query at t, key at s)
same_distance = all_scores.diagonal(-3)                    # s = t - 3, for all t
print("61 scores at distance 3 are equal within 1e-4:", bool(same_distance.std() < 1e-4))
print(f"scores at distances 0 to 3: {[round(all_scores[40, 40 - d].item(), 2) for d in range(4)]}")
show.lines(
    {"score of one q and one k": all_scores[63].flip(0)}, "What RoPE lets a score see",
    "distance of query and key", "score",
)

# %% [markdown]
# The port is short, and it is yours.
#
# <details><summary>Hint 1</summary>
#
# `split` wants the width of a part and `axis=-1`, in both modes.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `ops.concat` takes a tuple and the axis. A slice in place of split works as well, and so does `ops.stack` if you think of the
# order in which it lays the halves down.
#
# </details>

# %%
torch_rotate = rotate


@exercise("mindspore.rope.rotate")
def rotate(x: ms.Tensor, cos: ms.Tensor, sin: ms.Tensor) -> ms.Tensor:
    """Turn each pair of channels (i, i + head_dim / 2) by its angle.

    Args:
        x: (..., T, head_dim), q or k. Not changed.
        cos, sin: (T, head_dim / 2), of the dtype of x.

    Returns:
        (..., T, head_dim), of the dtype of x; works in graph mode.
    """
    raise NotImplementedError


# %%
check(rotate)

# %% [markdown]
# The swap: a model with RoPE has no `wpe`, and its attention turns q and k after the heads are split. In both frameworks, with the same
# weights. The MindSpore cell makes its table in `__init__`: a tensor of a Cell is a constant of the graph.

# %%
class TorchRotaryAttention(TorchAttention):
    def forward(self, x):
        B, T, C = x.shape
        parts = self.c_attn(x).split(C, dim=-1)            # three times (B, T, C)
        q, k, v = (torch_split_heads(part, self.n_head) for part in parts)
        table = rope_table(T, C // self.n_head)
        y = torch_attention(torch_rotate(q, *table), torch_rotate(k, *table), v, torch_mask(T, T))
        return self.c_proj(torch_merge_heads(y))


class RotaryAttention(ReadableAttention):
    def __init__(self, config):
        super().__init__(config)
        table = rope_table(config.n_ctx, config.n_embd // config.n_head)
        self.cos, self.sin = (ms.Tensor(t.numpy()) for t in table)

    def construct(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, axis=-1)         # three times (B, T, C)
        q = rotate(split_heads(q, self.n_head), self.cos[:T], self.sin[:T])
        k = rotate(split_heads(k, self.n_head), self.cos[:T], self.sin[:T])
        y = attention(q, k, split_heads(v, self.n_head), causal_mask(T, T))
        return self.c_proj(merge_heads(y))


config = SimpleNamespace(n_ctx=16, n_head=4, n_embd=32, batch=2)
torch.manual_seed(1)
theirs, mine = TorchRotaryAttention(config), RotaryAttention(config)
parity.carry(theirs, mine)
x = np.random.default_rng(1).standard_normal((2, 16, 32)).astype(np.float32)   # (B, T, C)
off = parity.largest_difference(mine(ms.Tensor(x)), theirs(torch.from_numpy(x)))
print("rotary attention, MindSpore and PyTorch within 5e-6:", off < 5e-6)
more = len(mine.trainable_params()) - len(ReadableAttention(config).trainable_params())
print("parameters for the positions:", more)

# %% [markdown]
# ## 5. One change at a time
#
# A change is judged against the same layer without it, and nothing else may differ. `course.bench.forms` has a block in which
# every piece of advice is a word. The next cell compiles eight forms in this process and takes them in turn, so that a
# machine that slows down slows all of them. Predict for each: below 1, about 1, or above?
#
# - three projections in place of one for q, k and v;
# - a boolean mask in place of the added one;
# - operands transposed by an operation of their own;
# - the whole block as one Cell, without Cells inside;
# - intermediate results also written into Parameters that are there already;
# - RoPE from a table, and RoPE computed at each call.

# %% tags=["nbval-ignore-output"]
from course.bench import forms

changes = {
    "the fast form": {}, "three projections": {"qkv": "three"}, "boolean mask": {"mask": "boolean"},
    "transposed copies": {"operands": "swapped"}, "one Cell": {"cells": "one"},
    "into Parameters": {"buffers": "reused"}, "RoPE, table": {"positions": "table"},
    "RoPE, computed": {"positions": "computed"},
}
values, candidates = {}, {}
for name, change in changes.items():
    values[name], candidates[name] = bench.in_this_process("tiny", change)
print(timing.report(timing.measure(candidates, seconds=1.0)))

# %%
for name in list(changes)[:6]:
    off = parity.relative_difference(values[name], values["the fast form"])
    print(f"{name:18} the same values within 1e-5: {off < 1e-5}")
off = parity.relative_difference(values["RoPE, computed"], values["RoPE, table"])
print(f"{'RoPE, both ways':18} the same values within 1e-4: {off < 1e-4}")

# %% [markdown]
# All compute the same, so the clock may decide. Look at your ratios with two questions. Is a difference larger than the
# distance of the quartiles? If not, you have measured the machine. And why should it differ? One Cell or many is
# settled when the graph is built: the compiler inlines them all, so the number of Cells cannot matter in graph mode, and a ratio that says so
# is noise. A copy into a Parameter is more work and no less. A table saves the sines.
#
# These were tiny tensors and plain graph mode. `python -m course bench layer --size gpt2 --modes forms,rope` asks the same questions
# of a real layer under fusion, and the answers are not all the same: with fusion on, a change can gain by being fused or lose by
# standing between two that would have been.
#
# And fusion needs watching. With MindSpore 2.10 on the CPU that this was written on, one of these forms, the one with transposed
# copies, gives right values and a right gradient for every parameter but one: that of the bias of attention's `c_proj` is
# wrong by most of its size. Without fusion it is right. Nothing is raised, and a model would still train somehow. The table's last column
# shows it, and marks the row WRONG: `python -m course bench layer --modes pytorch,form-operands-swapped`. Compare every
# gradient, not the loss.
#
# ## 6. A LayerNorm for the compiler
#
# A mean over a row is a reduction, and reductions end a chain of fused operations. But a mean is also a product, with
# a column that holds 1/C everywhere:
#
# $$\mu = x\,u \qquad u = (1/C, \ldots, 1/C)^T \in \mathbb{R}^{C \times 1}$$
#
# and products are what the library does best, in the backward pass too. So: subtract $x\,u$, square, and multiply with $u$ again for
# the variance. What is left between the two products is a chain without reductions.
#
# | name | shape |
# |---|---|
# | x | (N, C): two axes, since `ops.MatMul` takes no more |
# | `weight`, `bias` | (C,), Parameters |
# | the column | (C, 1), a constant and no Parameter |
# | result | (N, C) |
#
# <details><summary>Hint 1</summary>
#
# A tensor that you store in `__init__` with `ms.Tensor(...)` becomes a constant of the graph. `np.full` makes the column, in
# float32.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The variance is the mean of the squares of what is left after the mean is subtracted. eps goes under the root, and
# `ops.rsqrt` is one over a root.
#
# </details>

# %%
@exercise("mindspore.fast.LayerNorm")
class LayerNorm(nn.Cell):
    """LayerNorm with its means as products (Ba et al. 2016); the numbers are those of lesson 14's.

    Args:
        n_embd: number of channels.
        eps: added to the variance.

    Parameters:
        weight, bias: (n_embd,), start at 1 and 0.

    construct(x): (N, n_embd) -> (N, n_embd), eagerly and in graph mode.
    """

    def __init__(self, n_embd: int, eps: float = 1e-5):
        raise NotImplementedError

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        raise NotImplementedError


# %%
check(LayerNorm)

# %% [markdown]
# A LayerNorm with plain means passes the check too, if it takes two axes: the numbers are the same. The stopwatch at the end tells them apart.

# %%
x = random.standard_normal((6, 8)).astype(np.float32) + 3   # (N=6, C=8)
norm = LayerNorm(8)
right = torch.nn.functional.layer_norm(torch.from_numpy(x), (8,))
off = parity.largest_difference(norm(ms.Tensor(x)), right)
print("as torch.nn.functional.layer_norm within 1e-5:", off < 1e-5)

# %% [markdown]
# ## 7. The fast layer
#
# The other parts it is made of: a `Linear` that reads its weight transposed, and the MLP on top of it.

# %%
class Linear(nn.Cell):
    """(N, d_in) -> (N, d_out)."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = ms.Parameter(np.zeros((d_out, d_in), np.float32))
        self.bias = ms.Parameter(np.zeros(d_out, np.float32))

    def construct(self, x):
        return matmul_t(x, self.weight) + self.bias


class MLP(nn.Cell):
    """(N, n_embd) -> (N, n_embd)."""

    def __init__(self, config):
        super().__init__()
        self.c_fc = Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = Linear(4 * config.n_embd, config.n_embd)

    def construct(self, x):
        return self.c_proj(gelu(self.c_fc(x)))


print([name for name, _ in MLP(config).parameters_and_names()])

# %% [markdown]
# Attention on a stream of N = B · T rows, for full windows: T is `n_ctx`, a number known when the graph is built. B is what is left.
#
# | step | shape |
# |---|---|
# | x | (N, C) |
# | `c_attn(x)` | (N, 3C), cut into q, k, v of (N, C) |
# | heads | (B, n_head, T, head_dim) each, from (N, C) by one reshape and a swap |
# | scores | (B, n_head, T, T): `batch_matmul_t` reads k transposed |
# | + mask | (T, T), 0 or −1e9, made once |
# | weights times v | (B, n_head, T, head_dim) |
# | merged, `c_proj` | (N, C) |
#
# Two small savings: scale q before the product, which has N · C numbers where the scores are T / head_dim times as many, and
# take the softmax as one operation.
#
# <details><summary>Hint 1</summary>
#
# Everything that does not depend on x belongs into `__init__`: the scale, the sizes, the mask as an `ms.Tensor` from `np.triu`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A method of your own that turns (N, C) into heads saves writing it three times: reshape with −1 for B, in the order of
# the memory (which is B, T, head, channel), then swap T and heads.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# On the way back, swap T and heads first, and then reshape to the shape that x had.
#
# </details>

# %%
@exercise("mindspore.fast.CausalSelfAttention")
class CausalSelfAttention(nn.Cell):
    """Causal self-attention for graph mode: parameters and numbers of lesson 12's.

    Args:
        config: has n_ctx, n_embd and n_head.

    Parameters:
        c_attn: Linear(n_embd, 3 * n_embd), gives q, k and v in this order.
        c_proj: Linear(n_embd, n_embd).

    construct(x): (B * n_ctx, n_embd) -> the same shape.
        Row b * n_ctx + t is position t of sequence b.
    """

    def __init__(self, config):
        raise NotImplementedError

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        raise NotImplementedError


# %%
check(CausalSelfAttention)

# %%
cell = CausalSelfAttention(config)
readable = ReadableAttention(config)
for p, r in zip(cell.trainable_params(), readable.trainable_params()):
    p.set_data(ms.Tensor(r.asnumpy()))
x = random.standard_normal((2, 16, 32)).astype(np.float32)               # (B, T, C)
fast, slow = cell(ms.Tensor(x.reshape(32, 32))), readable(ms.Tensor(x))
off = parity.largest_difference(fast.reshape(2, 16, 32), slow)
print("as lesson 12's within 5e-6:", off < 5e-6)

# %% [markdown]
# And the block. It has held since lesson 06, and it does here: the parts are faster, the arrangement is the same.
#
# <details><summary>Hint 1</summary>
#
# Four parts under the names that the checkpoint knows: `ln_1`, `attn`, `ln_2`, `mlp`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Two sums. Each branch reads a normalised copy of the stream; the stream itself is only added to.
#
# </details>

# %%
@exercise("mindspore.fast.Block")
class Block(nn.Cell):
    """One pre-LayerNorm block on a stream of rows, from the fast parts.

    Args:
        config: has n_ctx, n_embd and n_head.

    Parameters: those of lesson 15's Block, by the same names.

    construct(x): (B * n_ctx, n_embd) -> the same shape.
    """

    def __init__(self, config):
        raise NotImplementedError

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        raise NotImplementedError


# %%
check(Block)

# %% [markdown]
# Fast and slow with the same weights: the values, and the gradient of each parameter, as one graph each.

# %%
torch.manual_seed(2)
theirs, slow, quick = TorchBlock(config), ReadableBlock(config), Block(config)
parity.carry(theirs, slow)
parity.carry(theirs, quick)
x = random.standard_normal((2, 16, 32)).astype(np.float32)               # (B, T, C)


def gradients_of(cell, x):
    """The result, and the gradients of its squares' sum to x and all parameters, in graph mode."""

    def total(x):
        y = cell(x)
        return (y * y).sum(), y

    both = ms.jit(ms.value_and_grad(total, 0, weights=cell.trainable_params(), has_aux=True))
    (_, y), (to_x, to_weights) = both(x)
    return y.reshape(32, 32), [to_x.reshape(32, 32), *to_weights]


slow_y, slow_gradients = gradients_of(slow, ms.Tensor(x))
quick_y, quick_gradients = gradients_of(quick, ms.Tensor(x.reshape(32, 32)))
print("values within 1e-5:", parity.relative_difference(quick_y, slow_y) < 1e-5)
names = ["x", *(p.name for p in slow.trainable_params())]
pairs = list(zip(names, quick_gradients, slow_gradients))
off = max(parity.relative_difference(a, b) for _, a, b in pairs)
print(f"{len(pairs)} gradients within 1e-5 of their largest:", off < 1e-5)

# %% [markdown]
# ### Timed
#
# The last candidate: your block as one graph, with kernel fusion, and a Python thread that sleeps while the graph runs (lesson 16's
# `Fetch`). Fusion compiles kernels, so the first call takes seconds. What did you guess?

# %% tags=["nbval-ignore-output"]
measured += bench.measure("small", ["fast"], seconds=1.0, profile=True)
last = measured[3]
print("\n".join(bench.table(measured, "small")))
if not last.error:                                                      # fusion needs Linux
    print(f"fast: you guessed {guesses['fast']:.1f} times PyTorch, it is {last.median / base:.2f}")
print("\n".join(bench.waterfall_lines(measured) + bench.operator_lines(last, most=6)))
bench.draw(measured, "small")
show.finish()

# %% [markdown]
# On the left the waterfall. Each bar is a median. The grey part is what the change has taken away from the bar before, so the grey parts
# together are the whole way from the naive port to the last one. Where the axis is logarithmic, equal lengths are equal ratios.
# On the right the roofline: grey is what one large product reaches in that process, blue what the layer's products reach. What is
# missing is the time of everything that is no product, and what a small product is slower than a large one.

# %%
by_mode = {m.mode: m for m in measured}
quick, plain = by_mode["fast"], by_mode["graph"]
print("values and gradients within 1e-4:", max(quick.output_gap, quick.gradient_gap) < 1e-4)
print("fewer than three quarters of the operators of graph:", calls(quick) < 0.75 * calls(plain))

# %% [markdown]
# ### The full search
#
# The steps in between, for a real layer of GPT-2, are a command that runs some minutes. A candidate that fails is a line in the table,
# and Ctrl-C keeps what was measured:
#
# ```
# python -m course bench layer --size gpt2 --modes waterfall --json layer.json --plot layer.png
# python -m course bench layer --size gpt2 --modes run,forms,rope
# python -m course bench layer --size gpt2 --pieces all --modes pytorch,graph,fast --passes forward,both
# python -m course bench layer --help
# ```
#
# Run it on an idle machine. Three things to look for. In the waterfall, which change gains most: for small layers it is the
# way the layer is run, for large ones products are nearly everything and the way of writing shows less. In the column
# `of peak`, whether PyTorch and MindSpore have the same roof: each brings its own library for products, and on some processors these
# differ by far. And in `first s`, what a fast step costs before the first one is done.
#
# ## What you built, what comes next
#
# You have a layer that is fast because of what you know about it: its count of operations, its operators one by one, the roof above
# them. It is equal to the readable one, in values and in every gradient, and you kept no change on faith. You saw one
# piece of advice that cannot matter (one Cell or many), one that is work on top (buffers of your own), and some that depend on
# whether the compiler fuses.
#
# All of this was in float32. Lesson 18 asks what fewer bits do to each part of the layer.
