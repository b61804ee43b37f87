# %% [markdown]
# # 12 Port: causal attention
#
# The formula of attention fits on one line, and the port looks like a matter of names. It is not. Of the operations
# of lesson 04, two work while you try them out and fail when the model is compiled, one gives another thing under the
# same index, and one that stopped you in PyTorch is silent here. This lesson writes the five pieces again and proves
# each of them equal to yours from lesson 04: values, every gradient, eager and compiled.
#
# You write
#
# 1. `causal_mask`, the same triangle from other operations,
# 2. `attention`,
# 3. `split_heads` and `merge_heads`,
# 4. `CausalSelfAttention`, now an `nn.Cell` with a `construct`.
#
# Time: about 60 minutes. You need `Linear` and `softmax` of lesson 10; the PyTorch pieces to compare with are yours of
# lesson 04. Where you have not passed one, the reference stands in.

# %%
import math
import os
import tempfile
import time
from types import SimpleNamespace

import numpy as np
import torch

from course import check, device, exercise, parity, piece, setup, show, timing
from course.bench import port

setup()

import mindspore as ms
from mindspore import nn, ops

ms.set_device(device.mindspore_target())                  # Ascend if there is one, else CPU
Linear = piece("mindspore.primitives.Linear")
softmax = piece("mindspore.primitives.softmax")
torch_mask = piece("pytorch.attention.causal_mask")
torch_attention = piece("pytorch.attention.attention")
torch_split_heads = piece("pytorch.attention.split_heads")
TorchAttention = piece("pytorch.attention.CausalSelfAttention")

# %% [markdown]
# The outputs stored here come from a CPU. The same cells run on an Ascend, but nothing in this lesson was run on one.
#
# ## 1. Words that look alike
#
# | PyTorch, lesson 04 | MindSpore, both modes | what bites |
# |---|---|---|
# | `x.transpose(1, 2)` | `x.swapaxes(1, 2)`, or all axes: `x.permute(0, 2, 1, 3)` | `x.transpose(1, 2)` works eagerly; the graph compiler refuses it |
# | `x.split(C, dim=-1)` | `x.split(C, axis=-1)` | with `dim=` it works eagerly and has no kernel in graph mode on a CPU |
# | `q @ k` | `ops.matmul(q, k)` | `ops.MatMul`, with capitals, multiplies two axes and no more |
# | `x.max(dim=-1, keepdim=True)` | `x.max(axis=-1, keepdims=True)` | PyTorch gives values and indices, and `[0]` takes the values. Here there are only values, and `[0]` takes the first sequence |
# | `~mask` | `ops.logical_not(mask)` | `masked_fill` wants bools, not numbers |
# | `x.view(...)` after a swap raises | `x.view(...)` after a swap copies | the error that told you of a wrong order of steps is gone |
#
# Try some of them, once eagerly and once compiled. Predict which of the eight results are errors.

# %%
def attempt(function, *args):
    """The shape of the result, or how the error begins."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:         # a failed compile leaves files
        os.chdir(folder)
        try:
            found = function(*args)
            first = found[0] if isinstance(found, tuple) else found
            first.asnumpy()                               # errors come late: ask for values
            return f"{tuple(first.shape)}"
        except Exception as error:
            return type(error).__name__
        finally:
            os.chdir(here)


def transpose(x):
    return x.transpose(1, 2)


def swapaxes(x):
    return x.swapaxes(1, 2)


def split_dim(x):
    return x.split(4, dim=-1)


def split_axis(x):
    return x.split(4, axis=-1)


x = ms.Tensor(np.ones((2, 5, 3, 12), np.float32))
for function in (transpose, swapaxes, split_dim, split_axis):
    eager, graph = attempt(function, x), attempt(ms.jit(function), x)
    print(f"{function.__name__:10}  eager {eager:14} graph {graph}")

# %% [markdown]
# A port that was only tried eagerly is half tried. Every check below also compiles your answer.
#
# ## 2. Who may look at whom
#
# The triangle of lesson 04, bottom-right aligned: with more keys than queries, the queries are the last positions.
#
# | name | shape | dtype | meaning |
# |---|---|---|---|
# | result | (n_query, n_key) | bool | True where the query may attend to the key |
#
# $$j \le i + n_{key} - n_{query}$$
#
# <details><summary>Hint 1</summary>
#
# `ops.ones` takes the shape as one tuple; a second number would be read as the dtype. `ops.tril(x, k)` is PyTorch's
# `x.tril(diagonal=k)`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Make the triangle of numbers, then ask a question of it: a comparison with 0 gives bools.
#
# </details>

# %%
@exercise("mindspore.attention.causal_mask")
def causal_mask(n_query: int, n_key: int) -> ms.Tensor:
    """Which keys each query may attend to. The last query stands at the last key.

    Args:
        n_query: number of queries, at least 1.
        n_key: number of keys, at least n_query.

    Returns:
        (n_query, n_key) bool, True where key j is not in the future of query i.
        A new tensor at each call.
    """
    raise NotImplementedError


# %%
check(causal_mask)

# %%
print(causal_mask(2, 4).asnumpy().astype(int))
pairs = [(q, k) for k in range(1, 9) for q in range(1, k + 1)]
equal = [
    np.array_equal(causal_mask(q, k).asnumpy(), torch_mask(q, k).numpy()) for q, k in pairs
]
print(f"equal to PyTorch's in {sum(equal)} of {len(pairs)} sizes")

# %% [markdown]
# ## 3. Attention
#
# $$\text{attention}(q, k, v) = \text{softmax}\left(\frac{q\,k^\top}{\sqrt{d}}\right) v$$
#
# | name | shape | meaning |
# |---|---|---|
# | q | (..., T_q, d) | a query for each position that asks |
# | k | (..., T_k, d) | a key for each position that may be looked at |
# | v | (..., T_k, d_v) | what these positions give |
# | mask | (T_q, T_k) bool, or any shape that broadcasts to (..., T_q, T_k) | True: may attend. None: all may |
# | result | (..., T_q, d_v) | an average of values for each query |
#
# Two traps of the table lie on the way. The primitive with a capital M does not know batches and heads. And `max` with
# `axis=` returns no pair: the old `[0]` picks a sequence, and its maxima are then subtracted from the scores of all
# others. For small scores nobody sees it, since any shift cancels in a softmax. For large ones `exp` overflows. Without
# the word `axis` it is worse: `x.max(-1)` is a pair in one mode and not in the other.

# %%
scores = np.arange(2 * 3 * 4 * 4, dtype=np.float32).reshape(2, 3, 4, 4)
scores = ms.Tensor(scores)                                # (B, n_head, T, T)


def capital(x):
    return ops.MatMul()(x, x)


def small(x):
    return ops.matmul(x, x)


def max_by_position(x):
    return x.max(-1)


print("ops.MatMul:", attempt(ms.jit(capital), scores))
print("ops.matmul:", attempt(ms.jit(small), scores))
pair, graph = max_by_position(scores), ms.jit(max_by_position)(scores)
print("max(-1): eager", type(pair).__name__, "- graph", type(graph).__name__)
largest = scores.max(axis=-1, keepdims=True)
print("max(axis=-1):", largest.shape, "and max[0]:", largest[0].shape)
print("largest number left after max:    ", float((scores - largest).asnumpy().max()))
print("largest number left after max[0]: ", float((scores - largest[0]).asnumpy().max()))

# %% [markdown]
# A score of 48 above the supposed maximum is more than halfway to what `exp` can bear: at 89 it gives inf.
#
# <details><summary>Hint 1</summary>
#
# Lay your `attention` of lesson 04 beside the table of section 1 and go line by line. Five lines, and all five
# have a counterpart.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `masked_fill` takes -inf here as well, and a bool mask: `ops.logical_not` turns one around. Your `softmax` of lesson 10
# subtracts the right maximum already.
#
# </details>

# %%
@exercise("mindspore.attention.attention")
def attention(
    q: ms.Tensor, k: ms.Tensor, v: ms.Tensor, mask: ms.Tensor | None = None
) -> ms.Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017, equation 1).

    Args:
        q: (..., T_q, d).
        k: (..., T_k, d).
        v: (..., T_k, d_v).
        mask: bool, broadcasts to (..., T_q, T_k), True where the query may attend; None for
            no mask. Every query may attend to at least one key.

    Returns:
        (..., T_q, d_v), of the dtype of q. The same eagerly and in graph mode.
    """
    raise NotImplementedError


# %%
check(attention)

# %% [markdown]
# ### The same causes, the same effects
#
# Change a token, and nothing before it may move. Lesson 04 tested that for your PyTorch piece. Do it in both
# frameworks, for every position, and compare the two receptive fields.

# %%
random = np.random.default_rng(0)
q, k, v, new = random.standard_normal((4, 6, 8)).astype(np.float32)     # four times (T=6, d=8)


def reach(attention, mask, tensor):
    """(T, T): entry (i, j) is 1 if the result at i moves when the token at j changes."""
    before = parity.array(attention(tensor(q), tensor(k), tensor(v), mask))
    columns = []
    for j in range(6):
        k_j, v_j = k.copy(), v.copy()
        k_j[j], v_j[j] = new[j], -new[j]
        after = parity.array(attention(tensor(q), tensor(k_j), tensor(v_j), mask))
        columns.append(np.abs(after - before).max(axis=-1) > 0)
    return np.stack(columns, axis=1).astype(int)


in_torch = reach(torch_attention, torch_mask(6, 6), torch.from_numpy)
in_mindspore = reach(attention, causal_mask(6, 6), ms.Tensor)
print("pairs that influence each other, of 36:")
print("PyTorch", in_torch.sum(), "- MindSpore", in_mindspore.sum())
print("the same pairs:", np.array_equal(in_torch, in_mindspore))

# %% [markdown]
# ### Parity
#
# How near can the two come? The softmax takes `exp`, and the two frameworks compute that differently:

# %%
numbers = np.linspace(-20, 0, 20_001, dtype=np.float32)
exact = np.exp(numbers.astype(np.float64))
for name, found in [
    ("torch.exp", torch.from_numpy(numbers).exp()),
    ("ops.exp", ops.exp(ms.Tensor(numbers))),
]:
    off = np.abs(parity.array(found) / exact - 1).max()
    print(f"{name:9} off by more than 2e-6 of its value: {off > 2e-6}, than 3e-5: {off > 3e-5}")

# %% [markdown]
# MindSpore's `exp` on a CPU was off by up to 8e-6 of its value here, a hundred times more than rounding alone. In a
# softmax it stands above the fraction and below it, and most of the error cancels. So values must agree within 2e-6 of
# their largest, and gradients within 5e-6 of theirs.
#
# Same numbers into both, and every gradient out of both. MindSpore has no `backward()`: `ms.grad` makes of a function
# another one, which returns the gradients.

# %%
random = np.random.default_rng(1)
arrays = [random.standard_normal((2, 3, 5, 8)).astype(np.float32) for _ in range(4)]
*qkv, weighting = arrays
mask = causal_mask(5, 5)
weights = ms.Tensor(weighting)


def masked(q, k, v):
    return attention(q, k, v, mask)


def total(q, k, v):
    return (attention(q, k, v, mask) * weights).sum()


torch_qkv = [torch.tensor(x, requires_grad=True) for x in qkv]
want = torch_attention(*torch_qkv, torch_mask(5, 5))
(want * torch.from_numpy(weighting)).sum().backward()
ms_qkv = [ms.Tensor(x) for x in qkv]
gradients = ms.grad(total, (0, 1, 2))
for mode, forward, backward in [
    ("eager", masked, gradients),
    ("graph", ms.jit(masked), ms.jit(gradients)),
]:
    off = parity.relative_difference(forward(*ms_qkv), want)
    print(f"{mode}: values within 2e-6: {off < 2e-6}")
    for name, mine, theirs in zip("qkv", backward(*ms_qkv), torch_qkv):
        off = parity.relative_difference(mine, theirs.grad)
        print(f"{mode}: gradient of {name} within 5e-6: {off < 5e-6}")

# %% [markdown]
# ### A query that may look at nothing
#
# The contract says that every query may attend to at least one key. What if one may not? It happens with padded
# batches, and with a mask that is the wrong way round: the last query then sees nothing. The softmax has to divide 0 by
# 0. Predict what PyTorch makes of it, what your function makes of it, and what `ops.softmax` does.

# %%
random = np.random.default_rng(2)
scores = random.standard_normal((4, 64, 64)).astype(np.float32)         # (n_head, T, T)
scores[0, 0] = -np.inf                                    # query 0 of head 0: nothing to see
built_in = ops.softmax(ms.Tensor(scores), -1).asnumpy()
by_hand = softmax(ms.Tensor(scores), -1).asnumpy()
by_torch = torch.from_numpy(scores).softmax(dim=-1).numpy()
for name, found in [("PyTorch", by_torch), ("yours", by_hand), ("ops.softmax", built_in)]:
    print(f"{name:12} NaN in the empty row: {np.isnan(found[0, 0]).all()}")
off = np.abs(built_in - by_torch).max(axis=-1) > 1e-3     # (4, 64)
off[0, 0] = False                                         # the empty row itself does not count
print("other rows that ops.softmax gets wrong, more than none:", off.sum() > 0)

# %% [markdown]
# PyTorch and your function give NaN, and a NaN in the loss is hard to miss. `ops.softmax` of
# MindSpore 2.10 on a CPU gives a number for the empty row, often 0. That looks kinder. But
# the last line shows the price: rows behind it, of queries that may look at plenty, come out wrong too, as if the
# kernel had stopped at the empty row. Nothing is raised. How many rows depends on the number of threads.
# So never leave a row empty: let a padded query look at itself, and throw its result away later. What an Ascend does
# with an empty row was not tried here.
#
# ### What the framework has of its own
#
# PyTorch has `scaled_dot_product_attention`. MindSpore 2.10 has no public function of that kind that runs on a CPU. For
# the Ascend there is `ops.flash_attention_score`. A CPU has no kernel for it, so what follows is from its documentation
# and was not run:
#
# - `attn_mask` means the opposite: True (or 1) is a pair to **discard**.
# - `scalar_value`, the factor for the scores, is 1.0 unless you give it; it has to be 1/√d.
# - q, k and v are float16 or bfloat16, and `input_layout` says in which order their axes come ("BNSD" is yours).
#
# Neither of the first two raises an error if you forget it. Lesson 21 is about this function.
#
# ## 4. Several heads
#
# | | shape |
# |---|---|
# | before | (B, T, C) |
# | after `split_heads` | (B, n_head, T, C / n_head) |
# | after `merge_heads` | (B, T, C) again |
#
# In PyTorch, `view` on swapped axes raised an error: the numbers no longer lie in the order of the axes. In
# MindSpore it copies, as `reshape` does, and says nothing. The result is right. But you have lost a guard that
# stood there, and only a comparison of numbers tells you if you forgot the swap.

# %%
x = np.arange(2 * 6, dtype=np.float32).reshape(1, 2, 6)                 # (B=1, T=2, C=6)
cut = torch.from_numpy(x).reshape(1, 2, 3, 2)             # (B, T, n_head, head_dim)
try:
    cut.transpose(1, 2).view(1, 3, 4)
except RuntimeError:
    print("PyTorch:   view on swapped axes raises a RuntimeError")
cut = ms.Tensor(x).reshape(1, 2, 3, 2)
print("MindSpore:", cut.swapaxes(1, 2).view(1, 3, 4)[0].asnumpy().tolist())
print("no swap:  ", cut.view(1, 3, 4)[0].asnumpy().tolist())

# %% [markdown]
# Both have the same shape, and only one keeps the heads apart: row 0 should hold channels 0 and 1 of both positions.
#
# <details><summary>Hint 1</summary>
#
# Two steps, as in lesson 04: cut the channels into (n_head, head_dim), then swap time and heads.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `x.shape` is a plain tuple and unpacks in graph mode too; `x.size` is a number here, not a method. For the swap, take
# the one of section 1 that both modes know.
#
# </details>

# %%
@exercise("mindspore.attention.split_heads")
def split_heads(x: ms.Tensor, n_head: int) -> ms.Tensor:
    """Cut the channels into heads and bring the heads before the time axis.

    Args:
        x: (B, T, C), C a multiple of n_head.
        n_head: number of heads.

    Returns:
        (B, n_head, T, C // n_head). Head h holds channels h * C // n_head and following.
    """
    raise NotImplementedError


# %%
check(split_heads)

# %% [markdown]
# And back: the same two steps in the other order.
#
# <details><summary>Hint 1</summary>
#
# Swap first, then put the heads side by side along the channels.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# After the swap the shape is (B, T, n_head, head_dim), and the last two axes become one of n_head · head_dim.
#
# </details>

# %%
@exercise("mindspore.attention.merge_heads")
def merge_heads(x: ms.Tensor) -> ms.Tensor:
    """Undo split_heads: put the heads side by side again.

    Args:
        x: (B, n_head, T, head_dim).

    Returns:
        (B, T, n_head * head_dim), so that merge_heads(split_heads(x, n_head)) equals x.
    """
    raise NotImplementedError


# %%
check(merge_heads)

# %%
x = np.random.default_rng(3).standard_normal((2, 5, 12)).astype(np.float32)
heads = split_heads(ms.Tensor(x), 3)
theirs = torch_split_heads(torch.from_numpy(x), 3)
print("heads", heads.shape, "difference to PyTorch:", parity.largest_difference(heads, theirs))
print("there and back, difference:", parity.largest_difference(merge_heads(heads), x))

# %% [markdown]
# ## 5. The module
#
# `nn.Module` becomes `nn.Cell`, `forward` becomes `construct`, and the names of the parameters stay, so that the
# weights can be carried over by name.
#
# | step | shape |
# |---|---|
# | x | (B, T, C) |
# | `c_attn(x)` | (B, T, 3C), cut into q, k, v of (B, T, C) |
# | heads | (B, n_head, T, head_dim) each |
# | attention with the causal mask | (B, n_head, T, head_dim) |
# | merged | (B, T, C) |
# | `c_proj` | (B, T, C) |
#
# One word is left. `split(x, 3)` reads like "in three". As in PyTorch, the number is the width of a piece, and the axis
# is 0 unless you give one. The `split` of `ms.numpy` does count pieces, as NumPy does:

# %%
x = ms.Tensor(np.ones((2, 5, 12), np.float32))            # (B, T, 3C) with C = 4
print("ops.split(x, 3):          ", [part.shape for part in ops.split(x, 3)])
print("ops.split(x, 3, axis=-1): ", [part.shape for part in ops.split(x, 3, axis=-1)])
print("ops.split(x, 4, axis=-1): ", [part.shape for part in ops.split(x, 4, axis=-1)])
print("ms.numpy.split(x, 3, -1): ", [part.shape for part in ms.numpy.split(x, 3, axis=-1)])

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The `construct` is the table above, a line for each row. Its first argument must be called `self`, or the
# compiler counts the arguments wrongly.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Take the width for the split from the shape of x, and the mask for the T that came in. There is no `.to(device)`: a
# MindSpore process works on one device.
#
# </details>

# %%
@exercise("mindspore.attention.CausalSelfAttention")
class CausalSelfAttention(nn.Cell):
    """Multi-head causal self-attention as in GPT-2 (openai/gpt-2, src/model.py, function attn).

    Args:
        config: has n_embd and n_head; n_embd is a multiple of n_head.

    Parameters:
        c_attn: Linear(n_embd, 3 * n_embd), gives q, k and v in this order.
        c_proj: Linear(n_embd, n_embd).

    Attributes:
        n_head: that of the config; the cache of lesson 16 reads it.

    construct(x): (B, T, n_embd) -> (B, T, n_embd), for any T, eagerly and in graph mode.
    """

    def __init__(self, config):
        raise NotImplementedError

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        raise NotImplementedError


# %%
check(CausalSelfAttention)

# %% [markdown]
# ## 6. The same weights in both
#
# `parity.carry` copies every parameter of the PyTorch module into the cell of the same names, and refuses if one is
# missing, too many or of another shape. Then values, and the gradients of x and of all four parameters.

# %%
config = SimpleNamespace(n_embd=32, n_head=4)
torch.manual_seed(2)
torch_module = TorchAttention(config)
module = CausalSelfAttention(config)
parity.carry(torch_module, module)
random = np.random.default_rng(4)
x, weighting = random.standard_normal((2, 2, 8, 32)).astype(np.float32)   # twice (B=2, ...)
print("x", x.shape, "parameters", [name for name, _ in module.parameters_and_names()])

# %%
torch_x = torch.tensor(x, requires_grad=True)
want = torch_module(torch_x)
(want * torch.from_numpy(weighting)).sum().backward()
wanted = [torch_x.grad, *(p.grad for p in torch_module.parameters())]
names = ["x", *(name for name, _ in torch_module.named_parameters())]
weights = ms.Tensor(weighting)


def forward(x):
    return module(x)


def total(x):
    return (module(x) * weights).sum()


both = ms.grad(total, 0, weights=list(module.trainable_params()))
for mode, run, backward in [("eager", forward, both), ("graph", ms.jit(forward), ms.jit(both))]:
    off = parity.relative_difference(run(ms.Tensor(x)), want)
    print(f"{mode}: values within 2e-6: {off < 2e-6}")
    to_x, to_parameters = backward(ms.Tensor(x))
    for name, mine, theirs in zip(names, (to_x, *to_parameters), wanted):
        off = parity.relative_difference(mine, theirs)
        print(f"{mode}: gradient of {name} within 5e-6: {off < 5e-6}")

# %% [markdown]
# Look at it too. Values that are unit vectors make attention give its weights away, as in lesson 04. All
# four heads are compared, and head 1 is drawn, with the same weights and the same input in both:

# %%
def torch_maps(x):
    q, k, _ = torch_module.c_attn(torch.from_numpy(x)).split(32, dim=-1)
    q, k = torch_split_heads(q, 4), torch_split_heads(k, 4)             # (B, 4, 8, 8)
    return parity.array(torch_attention(q, k, torch.eye(8), torch_mask(8, 8)))[0]


def mindspore_maps(x):
    q, k, _ = module.c_attn(ms.Tensor(x)).split(32, axis=-1)
    q, k = split_heads(q, 4), split_heads(k, 4)                         # (B, 4, 8, 8)
    values = ms.Tensor(np.broadcast_to(np.eye(8, dtype=np.float32), (2, 4, 8, 8)))
    return parity.array(attention(q, k, values, causal_mask(8, 8)))[0]


theirs, mine = torch_maps(4 * x), mindspore_maps(4 * x)   # (n_head=4, T=8, T=8) each
off = np.abs(mine - theirs).max()
print("largest difference of a weight, over four heads, below 2e-6:", off < 2e-6)
show.heatmaps({"PyTorch, head 1": theirs[1], "MindSpore, head 1": mine[1]})

# %% [markdown]
# ### What the framework's own cell does differently
#
# `nn.MultiheadAttention` holds the same four tensors under other names. Two of its habits are not yours: the first axis
# is time unless you say `batch_first=True`, and True in its mask means "may **not** attend". Give it your weights and see
# what each habit does to the numbers.

# %%
def stock(**options):
    """MindSpore's own cell with the weights of module."""
    cell = nn.MultiheadAttention(32, 4, **options)
    cell.in_proj_weight.set_data(module.c_attn.weight)
    cell.in_proj_bias.set_data(module.c_attn.bias)
    cell.out_proj.weight.set_data(module.c_proj.weight)
    cell.out_proj.bias.set_data(module.c_proj.bias)
    return cell


inputs = ms.Tensor(x[:, :2])                              # (B=2, T=2, C=32): B = T
mask = causal_mask(2, 2)
want = module(inputs)
first_axis_is_time = stock()(*3 * [inputs], attn_mask=ops.logical_not(mask))[0]
mask_as_yours = stock(batch_first=True)(*3 * [inputs], attn_mask=mask)[0]
right = stock(batch_first=True)(*3 * [inputs], attn_mask=ops.logical_not(mask))[0]
for name, found in [
    ("batch_first forgotten", first_axis_is_time),
    ("your mask as it is", mask_as_yours),
    ("both as it wants them", right),
]:
    off = parity.relative_difference(found, want)
    print(f"{name:22} right shape: {found.shape == want.shape}, within 2e-6: {off < 2e-6}")

# %% [markdown]
# Three results of the same shape, and one of them right. Your own piece has neither habit, and its
# names are those of the checkpoint.
#
# ## 7. A new length compiles again
#
# The graph compiler works for one shape. Call the compiled module with another T, and it starts anew. The next cell
# calls it with two lengths and then with the same two again. Predict how much longer a first call takes than a later one.

# %% tags=["nbval-ignore-output"]
def compiled(x):
    return module(x)


compiled = ms.jit(compiled)


def seconds(T):
    """Seconds of one call for a batch of 2 and length T."""
    inputs = ms.Tensor(np.ones((2, T, 32), np.float32))
    start = time.perf_counter()
    compiled(inputs).asnumpy()
    return time.perf_counter() - start


first = {T: seconds(T) for T in (24, 32)}
later = {T: min(seconds(T) for _ in range(5)) for T in (24, 32)}
show.table(
    [(T, 1e3 * first[T], 1e3 * later[T], first[T] / later[T]) for T in (24, 32)],
    ("T", "first call, ms", "later call, ms", "ratio"),
)

# %%
x = ms.Tensor(np.ones((2, 32, 32), np.float32))
whole, part = compiled(x), compiled(x[:, :24])
print("each length has a graph of its own, and both compute the same, within 2e-6:",
      parity.relative_difference(whole[:, :24], part) < 2e-6)

# %% [markdown]
# The second length paid the whole price again, although the code was the same. Training with a fixed `n_ctx` pays once.
# Sampling lets T grow by one with every token, and would compile at each: lesson 21 writes a cache whose shapes stay.
#
# ## 8. What it costs
#
# Forward and all gradients of the module, for 4 sequences of 64 tokens, 64 channels and 4 heads. PyTorch, MindSpore
# eager and MindSpore graph run in a process each, since the thread pools of the two frameworks get in each other's way.
# Predict the order, and by how much the compiled port beats the eager one.

# %% tags=["nbval-ignore-output"]
timings = port.compare(
    "attention.CausalSelfAttention", [(4, 64, 64)], {"n_embd": 64, "n_head": 4}, seconds=1.0
)
print(timing.report(timings))
print(f"first call in graph mode, with compiling: {timings['MindSpore graph'].first:.2f} s")
base = timings["PyTorch"].median
ratios = {name: t.median / base for name, t in timings.items()}
show.bars(ratios, "Causal self-attention, forward and backward", "times PyTorch, median")

# %%
print(f"scores in a forward pass: {4 * 4 * 64 * 64:,}")

# %% [markdown]
# These are figures of small operations on a CPU, and none stands for an Ascend. Eager MindSpore pays for each operation
# on its way from Python to the kernel, and attention with its gradients is many small operations. The compiled module
# pays for the trip once. Lesson 16 walks the way from here to a step that keeps up with PyTorch.
#
# ## What you built, what comes next
#
# You ported the part of a GPT that lets positions talk, and you have it in numbers that nothing changed: values, all
# gradients and the receptive field agree, eagerly and compiled. You met operations that work only until they are
# compiled, and a built-in softmax that spoils other rows when one query may look at nothing.
#
# Lesson 13 ports the MLP. Its port has a trap of another kind: there the operation means the same and is less
# exact.
