# %% [markdown]
# # 10 MindSpore basics
#
# You built a GPT in PyTorch. From here on you build it again, in MindSpore, the framework that is at home on Huawei's
# Ascend processors. Why not rename the functions and be done? Because most names match, many defaults do not, and
# nothing warns you. A port that runs is not yet a port that computes the same.
#
# So every piece is ported alone and proved equal to yours: outputs and gradients, in both of MindSpore's modes. This
# lesson prepares that. It shows where the two frameworks differ in kind, each difference in a cell, and ports the
# pieces of lesson 02:
#
# 1. `linear`: a matrix product that must mean the same in two modes,
# 2. `softmax` and `log_softmax`: the same formula, other names for the same arguments,
# 3. `cross_entropy`: integer targets of either width,
# 4. `Linear`: a `Cell`, which is what a module is called here.
#
# Time: about 75 minutes. You need `linear`, `softmax`, `log_softmax`, `cross_entropy` and `Linear` of lesson 02; where
# you have not passed one, the reference stands in.
#
# The course pins MindSpore 2.10.0 and a NumPy below 2: with NumPy 2 this MindSpore imports and then fails at its first
# transpose. Everything below ran on a CPU. The same cells run on an Ascend where there is one; none of the results
# printed here comes from one.

# %%
import math
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn as torch_nn

from course import check, device, exercise, piece, setup, show, timing
from course.parity import carry, largest_difference, relative_difference

setup()                                                   # before MindSpore is imported

import mindspore as ms
from mindspore import mint, nn, ops

torch_linear = piece("pytorch.primitives.linear")
torch_softmax = piece("pytorch.primitives.softmax")
torch_log_softmax = piece("pytorch.primitives.log_softmax")
torch_cross_entropy = piece("pytorch.primitives.cross_entropy")
TorchLinear = piece("pytorch.primitives.Linear")

ms.set_device(device.mindspore_target())                  # "Ascend" where there is one

# %% [markdown]
# `device.mindspore_target()` asks whether there is an Ascend and never raises. A device is chosen once for the whole
# process. There is no `.to("cuda")` for a single tensor to be forgotten.
#
# ## 1. Tensors and their types
#
# A tensor is made from a list or from a NumPy array, and `.asnumpy()` leads back. The type is taken over from what
# came in. Predict the four types before you run the cell.

# %%
made = {
    "1.5": ms.Tensor(1.5),
    "[1, 2]": ms.Tensor([1, 2]),
    "np.ones(2)": ms.Tensor(np.ones(2)),
    "np.ones(2, np.float32)": ms.Tensor(np.ones(2, np.float32)),
}
show.table([(source, str(x.dtype)) for source, x in made.items()], ["ms.Tensor of", "dtype"])
mixed = made["np.ones(2)"] * made["np.ones(2, np.float32)"]
print("\nfloat64 times float32 is", mixed.dtype)

# %% [markdown]
# NumPy computes in float64, and MindSpore keeps it, as PyTorch does with `torch.tensor(array)`. One forgotten
# `astype(np.float32)` turns everything it touches into float64: twice the memory, and numbers that no longer compare
# with those of a float32 model. Weights drawn by NumPy are where it happens.
#
# Three names look familiar and mean something else:

# %%
a = np.array([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]], dtype=np.float32)
x, x_torch = ms.Tensor(a), torch.from_numpy(a)            # (2, 3) each
rows = [
    ("x.size", x.size, tuple(x_torch.size())),
    ("x.shape", x.shape, tuple(x_torch.shape)),
    ("x.std()", x.std().item(), x_torch.std().item()),
    ("x.max(1)", "a pair" if isinstance(x.max(1), tuple) else "a tensor", "a pair"),
    ("x.max(dim=1)", "a pair" if isinstance(x.max(dim=1), tuple) else "a tensor", "a pair"),
    ("x.max(axis=1)", "a pair" if isinstance(x.max(axis=1), tuple) else "a tensor", "a pair"),
]
show.table(rows, ["", "MindSpore", "PyTorch"])

# %% [markdown]
# `size` is a number, not a method: use `shape`. `std` and `var` divide by n here and by n - 1 in PyTorch, and so the
# LayerNorm of lesson 14 needs no correction. `x.max(1)` and `x.max(dim=1)` give the largest entries *and* where they
# are, as PyTorch does. `x.max(axis=1)` gives the entries alone, as NumPy does. One method, two results, chosen by the name of
# the argument. The functions of this course use `axis=` and `keepdims=True`.
#
# ## 2. In-place operations that do nothing
#
# In PyTorch a method whose name ends in `_` changes its tensor. MindSpore has the same names. The next cell calls
# each as a line of its own, as one does in PyTorch, on a parameter of `[1, 2]`, and looks at it afterwards.

# %%
def after(change):
    """The values of the parameter [1, 2] after change(parameter)."""
    x = ms.Parameter(ms.Tensor([1.0, 2.0]))
    change(x)
    return str(x.asnumpy().tolist())


one = ms.Tensor([1.0, 1.0])
calls = {
    "x.add_(one)": lambda x: x.add_(one),
    "x.sub_(one)": lambda x: x.sub_(one),
    "x.mul_(3.0)": lambda x: x.mul_(3.0),
    "x.div_(2.0)": lambda x: x.div_(2.0),
    "x.exp_()": lambda x: x.exp_(),
    "x.copy_(one)": lambda x: x.copy_(one),
    "x[0] = 7": lambda x: x.__setitem__(0, 7.0),
    "ops.assign(x, one)": lambda x: ops.assign(x, one),
}
show.table([(name, after(change)) for name, change in calls.items()], ["call", "x afterwards"])
x = ms.Tensor([1.0, 2.0])
returned = x.add_(one)
print("\nx.add_(one) returns", returned.asnumpy().tolist(), "and x is", x.asnumpy().tolist())

# %% [markdown]
# The first five return the right value and leave the tensor as it was, without an error. On a CPU the kernel's result
# is not written back. The last three do what they say. In graph mode, which comes next, `add_` does change the
# tensor:

# %%
def add_in_place(x, y):
    x = x * 1                                             # a tensor of our own
    x.add_(y)
    return x


print("eager:", add_in_place(x, one).asnumpy().tolist())
print("graph:", ms.jit(add_in_place)(x, one).asnumpy().tolist())

# %% [markdown]
# What this costs is best seen at an optimizer. `mint.optim.SGD` updates its parameters in place. On a CPU, eagerly, the
# weight stays where it is:

# %%
def one_step(SGD):
    weight = ms.Parameter(ms.Tensor([1.0, 2.0]), name="weight")
    SGD([weight], lr=0.1)((ms.Tensor([1.0, 1.0]),))       # one step along the gradient [1, 1]
    return [round(n, 2) for n in weight.asnumpy().tolist()]


from mindspore.experimental import optim

print("mint.optim.SGD:        ", one_step(mint.optim.SGD))
print("experimental optim.SGD:", one_step(optim.SGD))

# %% [markdown]
# A training with the first one runs, prints losses, and learns nothing. Two rules follow. The pieces of this course
# use no method that ends in `_`. And a test of any optimizer starts with the question whether a step changes the
# weights.
#
# One more habit to unlearn: `y += 1` makes a new tensor here. In PyTorch it changes the tensor, for everybody who
# holds it.

# %%
x, x_torch = ms.Tensor([1.0, 2.0]), torch.tensor([1.0, 2.0])
y, y_torch = x, x_torch
y += 1
y_torch += 1
print("x after y += 1:  MindSpore", x.asnumpy().tolist(), "  PyTorch", x_torch.tolist())

# %% [markdown]
# ## 3. Two modes
#
# So far each operation ran when its line was reached, as in PyTorch. MindSpore calls this PyNative mode, and here it
# is called eager. `ms.jit` takes a function, reads its *source*, translates all of it into one graph, and runs the
# graph from then on. PyTorch's `torch.compile` falls back to Python for what it does not understand. This compiler
# reads a part of Python, and gives it meanings of its own. The meanings mostly agree:

# %%
def swap_axes(x):
    return x.swapaxes(0, 1)


def transpose(x):
    return x.transpose(0, 1)


x = ms.Tensor(a)                                          # (2, 3)
for function in (swap_axes, transpose):
    eager, graph = function(x).shape, ms.jit(function)(x).shape
    print(f"{function.__name__:10} eager {eager}, graph {graph}")

# %% [markdown]
# `x.transpose(0, 1)` swaps two axes in eager mode, as in PyTorch. In graph mode the numbers are a permutation: axis
# 0 stays first, axis 1 stays second, and nothing moves. With a square matrix nobody complains about shapes, and the
# numbers are wrong. `swapaxes` and `.T` mean the same in both modes.
#
# `+=` is another such word. Eagerly it made a new tensor. Predict what the caller's tensor is afterwards in graph mode.

# %%
def plus_equals(x):
    x += 1
    return x


for mode, function in [("eager", plus_equals), ("graph", ms.jit(plus_equals))]:
    given = ms.Tensor([1.0, 2.0])
    function(given)
    print(f"{mode}: the caller's tensor afterwards", given.asnumpy().tolist())

# %% [markdown]
# In graph mode `+=` writes into the tensor, also when that belongs to the caller. `x = x + 1` makes a new one in both
# modes. This is why every check from here on runs your function twice, eagerly and in graph mode.
#
# ### The port of linear
#
# $$y = x\,W^\top + b$$
#
# | name | shape | meaning |
# |---|---|---|
# | x | (..., d_in) | any number of leading axes, also none |
# | weight | (d_out, d_in) | row j makes output j, as in lesson 02 |
# | bias | (d_out,) or None | |
# | result | (..., d_out) | of the dtype of x |
#
# <details><summary>Hint 1</summary>
#
# It is your function of lesson 02. `@` and `ops.matmul` take any number of leading axes; the primitive `ops.MatMul`
# takes two axes and no others.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Which of the ways to transpose survived the cell above? And the bias: ask with `is not None`, and add it with `+`.
# What does `add_` do on a CPU?
#
# </details>

# %%
@exercise("mindspore.primitives.linear")
def linear(x: ms.Tensor, weight: ms.Tensor, bias: ms.Tensor | None = None) -> ms.Tensor:
    """A linear layer: x times weight transposed, plus bias. Eagerly and in graph mode.

    Args:
        x: (..., d_in), any number of leading axes, also none.
        weight: (d_out, d_in).
        bias: (d_out,), or None for no bias.

    Returns:
        (..., d_out), of the dtype of x. x itself stays as it is.
    """
    raise NotImplementedError


# %%
check(linear)

# %% [markdown]
# Now the proof that counts: the same numbers go into your PyTorch function and into its port.

# %%
random = np.random.default_rng(0)


def normal(*shape):
    return random.standard_normal(shape).astype(np.float32)


def parity(name, torch_function, function, *arrays):
    """Print whether a port gives the numbers of the PyTorch function, eagerly and in graph mode."""
    right = torch_function(*[torch.from_numpy(x) for x in arrays])
    given = [ms.Tensor(x) for x in arrays]
    eager = largest_difference(function(*given), right)
    graph = largest_difference(ms.jit(function)(*given), right)
    print(f"{name:14} within 2e-6: eager {eager < 2e-6}, graph {graph < 2e-6}")


x, weight, bias = normal(2, 5, 8), normal(6, 8), normal(6)  # (B, T, d_in), (d_out, d_in)
parity("linear", torch_linear, linear, x, weight, bias)

# %% [markdown]
# `largest_difference` compares shapes first and broadcasts nothing. 2e-6 leaves room for another order of the same
# additions, and for nothing else.
#
# ## 4. Gradients without backward()
#
# In PyTorch a tensor remembers where it came from, and `loss.backward()` walks back and leaves gradients in `.grad`.
# In MindSpore differentiation is an operation on *functions*. `ms.value_and_grad(f, ...)` returns a new function,
# which gives the value and the gradients.
#
# | PyTorch | MindSpore |
# |---|---|
# | `loss.backward()`, then `x.grad` | `value, grads = ms.value_and_grad(f, positions)(x, ...)` |
# | `p.grad` of each parameter | `ms.value_and_grad(f, None, parameters)(...)`: a tuple in the order of `parameters` |
# | `optimizer.zero_grad()` | nothing: no gradient is kept anywhere |
# | `x.detach()` | `ops.stop_gradient(x)` |
# | `with torch.no_grad()` | nothing: without `grad` nothing is recorded |

# %%
g = normal(2, 5, 6)                                       # how the loss weighs each output


def loss(x, weight, bias):
    return (linear(x, weight, bias) * ms.Tensor(g)).sum()


given = ms.Tensor(x), ms.Tensor(weight), ms.Tensor(bias)
value, grads = ms.value_and_grad(loss, (0, 1, 2))(*given)

leaves = [torch.from_numpy(n.copy()).requires_grad_() for n in (x, weight, bias)]
(torch_linear(*leaves) * torch.from_numpy(g)).sum().backward()
for name, mine, leaf in zip(("x", "weight", "bias"), grads, leaves):
    near = relative_difference(mine, leaf.grad) < 5e-6
    print(f"{name:7} {str(mine.shape):10} within 5e-6: {near}")

# %% [markdown]
# Three silences to know. A function with more than one output is differentiated as if its outputs were added up, where
# PyTorch refuses. What leaves the framework takes its gradient along:

# %%
v = ms.Tensor([1.0, 2.0, 3.0])


def squares(v):
    return v * v                                          # three outputs, no sum


def through_numpy(v):
    return (ms.Tensor(v.asnumpy()) * v).sum()             # also v², half of it behind NumPy


print("squares, eager:      ", ms.grad(squares)(v).asnumpy().tolist())
print("through NumPy, eager:", ms.grad(through_numpy)(v).asnumpy().tolist())
print("through NumPy, graph:", ms.jit(ms.grad(through_numpy))(v).asnumpy().tolist())

# %% [markdown]
# The gradient of $v^2$ is $2v$. The way through NumPy halves it eagerly, loses it whole in graph mode, and raises
# nothing. In PyTorch `v.numpy()` of a tensor that needs a gradient is an error. So: no `.asnumpy()` between a
# parameter and a loss.
#
# The third is `/=` and its like once more. The gradient of a division needs the number above the fraction, and in
# graph mode `/=` has written over it. PyTorch notices that and stops. In MindSpore the values are right, and the
# gradient is not:

# %%
def first_share(v):
    e = ops.exp(v)
    e = e / e.sum()
    return e[0]


def first_share_in_place(v):
    e = ops.exp(v)
    e /= e.sum()
    return e[0]


right = ms.grad(first_share)(v)
for mode, wrap in [("eager", lambda f: f), ("graph", ms.jit)]:
    value = largest_difference(wrap(first_share_in_place)(v), first_share(v)) < 1e-6
    slope = largest_difference(wrap(ms.grad(first_share_in_place))(v), right) < 1e-3
    print(f"{mode}: value right {value}, gradient right {slope}")
leaf = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
e = leaf.exp()
e /= e.sum()
try:
    e[0].backward()
except RuntimeError as error:
    print("PyTorch: RuntimeError, says inplace operation:", "inplace operation" in str(error))

# %% [markdown]
# So the pieces of this course use no `+=` on tensors either.
#
# ## 5. Softmax, twice
#
# $$y_i = \frac{e^{x_i - m}}{\sum_k e^{x_k - m}}, \qquad m = \max_k x_k$$
#
# Your functions of lesson 02 again. The names of the arguments change, the traps of the formula do not: the largest
# entry of each row is subtracted, along `dim`, with the axis kept.
#
# | name | shape | meaning |
# |---|---|---|
# | x | any | scores |
# | dim | int | the axis along which shares sum to 1; may be negative |
# | result | shape of x | shares, of the dtype of x |
#
# <details><summary>Hint 1</summary>
#
# Three steps: subtract the largest entry along dim, take `ops.exp`, divide by the sum along dim. In MindSpore the
# methods are called with `axis=dim, keepdims=True`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `max` with `dim=`, or with the axis by position alone, gives two things. `max` with `axis=` gives one. The shift
# cancels, so no gradient has to pass through it: `ops.stop_gradient` saves the work, and is not needed for the result.
#
# </details>

# %%
@exercise("mindspore.primitives.softmax")
def softmax(x: ms.Tensor, dim: int) -> ms.Tensor:
    """exp(x) divided by its sum along dim, without overflow. Eagerly and in graph mode.

    Args:
        x: any shape, a floating point dtype. Entries may be -inf, but not all along dim.
        dim: the axis that sums to 1.

    Returns:
        Of the shape and dtype of x.
    """
    raise NotImplementedError


# %%
check(softmax)

# %%
scores = 3 * normal(4, 7)                                 # (4, 7)


def softmax_rows(x):
    return softmax(x, -1)


parity("softmax", lambda x: torch_softmax(x, -1), softmax_rows, scores)
hidden = ms.Tensor(np.full((1, 64), -np.inf, dtype=np.float32))         # nothing but -inf
print("a row of -inf gives nan:", end=" ")
print("torch.softmax", torch.full((1, 64), -np.inf).softmax(-1).isnan().all().item(), end=", ")
print("yours", np.isnan(softmax_rows(hidden).asnumpy()).all(), end=", ")
print("ops.softmax", np.isnan(ops.softmax(hidden, -1).asnumpy()).all())

# %% [markdown]
# Here the frameworks differ, on purpose or by accident: a row that is hidden entirely has no shares. PyTorch says nan.
# MindSpore's own softmax gives numbers on a CPU, and so a wrong mask stays unseen. Yours, if it is the formula, says
# nan like PyTorch. Lesson 12 comes back to this row.
#
# ### log_softmax
#
# The logarithm of a share where the share itself is rounded to 0:
#
# $$\log y_i = x_i - m - \log \sum_k e^{x_k - m}$$
#
# | name | shape | meaning |
# |---|---|---|
# | x | any | scores |
# | dim | int | the axis whose exponentials sum to 1 |
# | result | shape of x | logarithms of shares, at most 0, of the dtype of x |
#
# <details><summary>Hint 1</summary>
#
# Shift as in softmax, first. Then no exp is taken of what is returned: log(exp(x)) is x.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `ops.log` of the sum of `ops.exp`, with the axis kept, is subtracted from the shifted x.
#
# </details>

# %%
@exercise("mindspore.primitives.log_softmax")
def log_softmax(x: ms.Tensor, dim: int) -> ms.Tensor:
    """log(softmax(x, dim)) in one step, finite where the softmax is rounded to 0.

    Args:
        x: any shape, a floating point dtype. Entries may be -inf, but not all along dim.
        dim: the axis whose exponentials sum to 1.

    Returns:
        Of the shape and dtype of x.
    """
    raise NotImplementedError


# %%
check(log_softmax)

# %%
def log_softmax_rows(x):
    return log_softmax(x, -1)


parity("log_softmax", lambda x: torch_log_softmax(x, -1), log_softmax_rows, scores)

scores = (3 * normal(200, 50)).astype(np.float64)
exact = torch.log_softmax(torch.from_numpy(scores), -1)
mine = largest_difference(log_softmax_rows(ms.Tensor(scores)), exact)
stock = largest_difference(ops.log_softmax(ms.Tensor(scores), -1), exact)
print("float64 in, off by more than 1e-7:", f"yours {mine > 1e-7}, ops.log_softmax {stock > 1e-7}")

# %% [markdown]
# MindSpore's own `log_softmax` is no better than float32 on a CPU, even when it is given float64, and was off by 5e-6
# here. That is harmless for training. It is too much for a proof of equality to 2e-6, and one reason why the pieces of
# this course are written from smaller operations.
#
# ## 6. What the compiler reads
#
# Graph mode reads source, so a statement it does not know stops it. Which ones? The next cell tries eleven, and
# prints the first line of what the compiler says. Guess first: `if` on the values of a tensor, an f-string, a list
# comprehension, `try`.

# %%
def if_on_values(x):
    if x.sum() > 0:
        return x
    return -x


def list_comprehension(x):
    return ops.stack([x[i] * i for i in range(3)])


def f_string_and_assert(x):
    assert x.shape[0] == 3, f"expected 3, got {x.shape[0]}"
    return x


def inner_function(x):
    def twice(y):
        return 2 * y

    return twice(x)


def dict_result(x):
    return {"x": x}


def try_statement(x):
    try:
        return x + 1
    except ValueError:
        return x


def match_statement(x):
    match x.ndim:
        case 1:
            return x
    return x + 1


def walrus(x):
    return (y := x + 1) * y


def import_inside(x):
    import math

    return x * math.pi


def del_statement(x):
    y = x + 1
    del x
    return y


def set_literal(x):
    return x if 3 in {1, 2, 3} else -x


FUNCTIONS = (
    if_on_values, list_comprehension, f_string_and_assert, inner_function, dict_result,
    try_statement, match_statement, walrus, import_inside, del_statement, set_literal,
)


def compiles(function, *args):
    """"yes", or the first line of what the graph compiler says."""
    home = os.getcwd()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chdir(folder)                                  # a failed compile leaves files behind
        try:
            ms.jit(function)(*args)
            return "yes"
        except Exception as error:
            return str(error).split("\n")[0]
        finally:
            os.chdir(home)


v = ms.Tensor([1.0, 2.0, 3.0])
show.table([(f.__name__, compiles(f, v)) for f in FUNCTIONS], ["function", "compiles"])

# %% [markdown]
# Branches, loops and comprehensions are fine, and exceptions, imports, `match`, `:=`, `del` and sets are not. All of
# them work eagerly. The message goes on for two pages. What you want is the line of yours that it quotes above a row
# of `~` or `^`:

# %%
def quoted_line(function, *args):
    """The learner's line in MindSpore's message: the one above the underlining."""
    home = os.getcwd()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chdir(folder)
        try:
            ms.jit(function)(*args)
        except Exception as error:
            lines = str(error).split("\n")
            marked = [i for i, line in enumerate(lines) if line.strip()[:1] in ("~", "^")]
            return lines[marked[0] - 1].strip() if marked else ""
        finally:
            os.chdir(home)


print(quoted_line(walrus, v))

# %% [markdown]
# A compiled function is a photograph. It was taken when the function was first called, and shows what everything it
# mentions was at that time:

# %%
factor = 2.0


def scaled(x):
    return factor * x


graph = ms.jit(scaled)
print("factor 2: ", graph(v).asnumpy().tolist())
factor = 10.0
print("factor 10:", graph(v).asnumpy().tolist(), "- eager", scaled(v).asnumpy().tolist())

# %% [markdown]
# The same happens to a helper that you define anew in a notebook: the graph goes on with the old one. After a change,
# call `ms.jit` again. (`check` does, each time.)
#
# The photograph is also of one *shape*. Another shape is compiled again, and so is another Python number among the
# arguments. Predict how much longer a first call takes than a later one.

# %% tags=["nbval-ignore-output"]
def chain(x):
    for _ in range(20):
        x = ops.tanh(x) + 0.1 * x
    return x.sum()


graph = ms.jit(chain)
seconds = {}
calls = [("(8,), first", 8), ("(8,), again", 8), ("(9,), first", 9), ("(9,), again", 9)]
for name, size in calls:
    given = ms.Tensor(np.ones(size, np.float32))
    start = time.perf_counter()
    graph(given).asnumpy()
    seconds[name] = time.perf_counter() - start
show.table([(name, f"{1e3 * s:.1f}") for name, s in seconds.items()], ["call", "ms"])

# %%
for size in (8, 9):
    given = ms.Tensor(np.ones(size, np.float32))
    gap = abs(graph(given).asnumpy() - chain(given).asnumpy())
    print(f"shape ({size},): graph and eager differ by less than 1e-4:", gap < 1e-4)

# %% [markdown]
# So a training step is compiled once if every batch has the same shape, and a sampling loop that grows by one token a
# step compiles at every step. Lesson 21 deals with that.
#
# ### The port of cross_entropy
#
# $$L = -\frac{1}{n} \sum_{\text{counted } i} \log p_i[t_i], \qquad p_i = \text{softmax}(\text{logits}_i)$$
#
# | name | shape | dtype | meaning |
# |---|---|---|---|
# | logits | (N, V) | float | scores |
# | targets | (N,) | int32 or int64 | the token that came, 0 to V - 1, or ignore_index |
# | ignore_index | | int | a target that does not count |
# | result | () | dtype of logits | the mean over the counted positions |
#
# Two integer types, since either arrives: a Python list becomes int64, and some of MindSpore's own operations insist
# on int32. An index that is negative wraps around silently on a CPU, as in Python: -100 must not become one.
#
# <details><summary>Hint 1</summary>
#
# `targets != ignore_index` is the mask of what counts. `targets.masked_fill(where, 0)` gives an index that exists
# to those that do not; the mask of `masked_fill` must be bool.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `ops.gather_elements(x, 1, index)` reads from each row of x the columns that the same row of index names. The index
# needs as many axes as x: `expand_dims(1)` before, `squeeze(1)` after.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Set what does not count to 0, add up, divide by how many count. The sum of a bool tensor is how many are True.
#
# </details>

# %%
@exercise("mindspore.primitives.cross_entropy")
def cross_entropy(
    logits: ms.Tensor, targets: ms.Tensor, ignore_index: int = -100
) -> ms.Tensor:
    """Mean of -log softmax(logits)[target] over the positions whose target is not ignore_index.

    Args:
        logits: (N, V).
        targets: (N,) int32 or int64, each from 0 to V - 1 or equal to ignore_index.
        ignore_index: the target of positions that do not count.

    Returns:
        (), of the dtype of logits. If no position counts: nan, as in PyTorch, or 0.
    """
    raise NotImplementedError


# %%
check(cross_entropy)

# %%
logits, ids = 2 * normal(6, 9), np.array([3, 0, -100, 8, 8, 1])        # (N=6, V=9), (N=6,)
leaf = torch.from_numpy(logits).requires_grad_()
right = torch_cross_entropy(leaf, torch.from_numpy(ids))
right.backward()


def loss_of(logits):
    return cross_entropy(logits, ms.Tensor(ids))


step = ms.value_and_grad(loss_of)
for mode, step in [("eager", step), ("graph", ms.jit(step))]:
    value, grad = step(ms.Tensor(logits))
    close = largest_difference(value, right) < 2e-6, relative_difference(grad, leaf.grad) < 5e-6
    print(f"{mode}: loss within 2e-6 {close[0]}, gradient within 5e-6 {close[1]}")

uniform = cross_entropy(ms.Tensor(np.zeros((4, 81), np.float32)), ms.Tensor([5, 80, 0, 7]))
print(f"a uniform guess of 81: {uniform.item():.3f}, ln 81 = {math.log(81):.3f}")

# %% [markdown]
# The framework's own cell computes the same and takes one of the two integer types:

# %%
for dtype in (ms.int32, ms.int64):
    try:
        loss = nn.CrossEntropyLoss()(ms.Tensor(logits), ms.Tensor(ids, dtype))
        print(f"{dtype}: equal within 1e-5: {largest_difference(loss, right) < 1e-5}")
    except TypeError as error:
        print(f"{dtype}: TypeError: {error}")

# %% [markdown]
# ## 7. Cell and construct
#
# A module is an `nn.Cell` here, and its `forward` is called `construct`. A parameter is an `ms.Parameter`. Its
# name is the path of attributes that leads to it, as in PyTorch. What is different:

# %%
class Scale(nn.Cell):
    def __init__(self, name=None):
        super().__init__()
        factor = np.ones(3, np.float32)
        self.factor = ms.Parameter(factor, name=name) if name else ms.Parameter(factor)

    def construct(self, x):
        return self.factor * x


class Pair(nn.Cell):
    def __init__(self, as_list):
        super().__init__()
        scales = [Scale(), Scale()]
        self.scales = scales if as_list else nn.CellList(scales)


def names(cell):
    return [(path, p.name) for path, p in cell.parameters_and_names()]


print("fresh:       training", Scale().training, "- in PyTorch", torch_nn.Linear(1, 1).training)
print("path, name: ", names(Scale()))
print("with name=: ", names(Scale(name="w")))
print("in a list:  ", names(Pair(as_list=True)))
print("in CellList:", names(Pair(as_list=False)))

# %% [markdown]
# A fresh cell is *not* in training mode. Dropout does nothing until somebody calls `set_train()`. A `name=` gives a
# parameter a second name, and a checkpoint would hold it under that one, so leave it out. And cells in a Python
# list have no parameters, as modules in one have none in PyTorch.
#
# The receiver's name matters too. Graph mode looks for the word `self`:

# %%
class Other(nn.Cell):
    def construct(this, x):
        return x + 1


print("eager:", Other()(v).asnumpy().tolist())
print("graph:", compiles(Other(), v))

# %% [markdown]
# ### The port of Linear
#
# | parameter | shape | start |
# |---|---|---|
# | weight | (d_out, d_in) | uniform within ±1/√d_in |
# | bias | (d_out,), none with bias=False | uniform within ±1/√d_in, with d_in as for the weight |
#
# The start is that of lesson 02, and of both `nn.Linear` in PyTorch and `nn.Dense` in MindSpore. The numbers drawn
# are others: the two frameworks have different generators, and no seed makes them agree. Weights are carried over
# instead.
#
# <details><summary>Hint 1</summary>
#
# `np.random.uniform(low, high, shape)` draws float64. What does `ms.Parameter` make of that, and what does a model in
# float64 cost?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# First `super().__init__()`. Without a bias set `self.bias = None`; then `construct` is a call of `linear` in either
# case.
#
# </details>

# %%
@exercise("mindspore.primitives.Linear")
class Linear(nn.Cell):
    """A linear layer with the parameters and the start of torch.nn.Linear.

    Args:
        d_in: width of the input.
        d_out: width of the output.
        bias: whether there is a bias.

    Parameters:
        weight: (d_out, d_in), float32, uniform within 1/sqrt(d_in).
        bias: (d_out,), float32, uniform within 1/sqrt(d_in); absent with bias=False.

    construct(x): (..., d_in) -> (..., d_out).
    """

    def __init__(self, d_in: int, d_out: int, bias: bool = True):
        raise NotImplementedError

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        raise NotImplementedError


# %%
check(Linear)

# %% [markdown]
# `carry` copies every parameter of a PyTorch module into the cell of the same names, and refuses if a name or a shape
# does not fit. Then outputs and gradients are compared once more, this time with a module.

# %%
torch_module, cell = TorchLinear(8, 6), Linear(8, 6)
carry(torch_module, cell)
x, g = normal(2, 5, 8), normal(2, 5, 6)                   # (B=2, T=5, 8), (B=2, T=5, 6)

right = torch_module(torch.from_numpy(x))
(right * torch.from_numpy(g)).sum().backward()


def weighted(x):
    return (cell(x) * ms.Tensor(g)).sum()


parameters = cell.trainable_params()
for mode, run in [("eager", cell), ("graph", ms.jit(cell))]:
    print(f"{mode}: output within 2e-6: {largest_difference(run(ms.Tensor(x)), right) < 2e-6}")
for mode, wrap in [("eager", lambda f: f), ("graph", ms.jit)]:
    _, grads = wrap(ms.value_and_grad(weighted, None, parameters))(ms.Tensor(x))
    for p, grad in zip(parameters, grads):
        near = relative_difference(grad, getattr(torch_module, p.name).grad) < 5e-6
        print(f"{mode}: gradient of {p.name:6} within 5e-6: {near}")

# %% [markdown]
# Why not assign the weights by hand? Because `set_data` checks nothing:

# %%
weight = Linear(8, 6).weight
before = weight.shape
weight.set_data(ms.Tensor(np.zeros((3, 3), np.float32)))
print("a weight of shape", before, "after set_data of a (3, 3):", weight.shape)

# %% [markdown]
# ## 8. When errors surface
#
# In eager mode Python does not wait. A line hands its operation to a queue and goes on, and a result exists when
# somebody asks for it. An error in an operation therefore appears at a later line, which has done nothing wrong.
#
# Below, one line asks for row 7 of three rows and never looks at the result. The next line doubles the table, and is
# right. Which of them raises? An error in the queue can spoil what follows, so this is tried in a process of its own,
# twice. The second time `ms.runtime.launch_blocking()` makes every call wait.

# %%
SCRIPT = """
import sys
import mindspore as ms
from mindspore import ops

if sys.argv[1] == "wait":
    ms.runtime.launch_blocking()
table = ops.ones((3, 3))
table.asnumpy()
line = "none"
try:
    line = "the line that asks for row 7"
    ops.gather(table, ms.Tensor([7]), 0)
    line = "the line after it"
    (2 * table).asnumpy()
    line = "none"
except RuntimeError as error:
    print(line, "raises:\\n   ", str(error).split(", error_code")[0])
"""
for mode in ("as usual", "wait"):
    command = [sys.executable, "-c", SCRIPT, mode]
    with tempfile.TemporaryDirectory() as folder:
        found = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    print(f"{mode}: {found.stdout.strip()}")

# %% [markdown]
# As usual, the wrong line passes and an innocent one is blamed. So while you look for a mistake, switch on
# `launch_blocking`, or ask for `.asnumpy()` after each step.
#
# A negative index raises nothing at all on a CPU, as long as there is a row to count back to: -1 is the last row, as
# in Python. So a padding id of -1 is silently learned as the last token. PyTorch's `nn.Embedding` refuses it.

# %%
table = ms.Tensor(np.eye(3, dtype=np.float32))            # (3, 3)
print("MindSpore, row -1:", ops.gather(table, ms.Tensor([-1]), 0).asnumpy().tolist())
try:
    torch_nn.Embedding(3, 3)(torch.tensor([-1]))
except IndexError as error:
    print("PyTorch:  IndexError:", error)

# %% [markdown]
# ## 9. How to time what does not wait
#
# The same queue makes a fool of a stopwatch. Twenty products of two 512 by 512 matrices, each waiting for the one
# before, timed twice: once until the last call has returned, once until its result can be read. Predict the ratio.

# %% tags=["nbval-ignore-output"]
matrix = ms.Tensor(normal(512, 512) / 23)                 # about 1/sqrt(512), so that nothing grows


def products(count):
    y = matrix
    for _ in range(count):
        y = ops.matmul(y, matrix)
    return y


def stopwatch(count, wait):
    start = time.perf_counter()
    y = products(count)
    if wait:
        y.asnumpy()
    seconds = time.perf_counter() - start
    y.asnumpy()                                           # the next one starts with an empty queue
    return seconds


stopwatch(20, wait=True)                                  # warm up
measured = {}
for name, wait in [("without waiting", False), ("with .asnumpy()", True)]:
    seconds = [stopwatch(20, wait) for _ in range(9)]
    measured[name] = timing.Timing(name, seconds[0], seconds)
print(timing.report(measured))

counts = list(range(2, 21, 3))
curves = {
    "calls have returned": [1e3 * min(stopwatch(n, False) for _ in range(5)) for n in counts],
    "result is there": [1e3 * min(stopwatch(n, True) for _ in range(5)) for n in counts],
}
show.lines(curves, "Products of 512 x 512 matrices", "number of products", "ms", x=counts)
waiting = measured["with .asnumpy()"].median / measured["without waiting"].median
print("waiting takes more than twice as long:", waiting > 2)

# %%
print(f"20 products of 512 x 512 matrices: {20 * 2 * 512**3 / 1e9:.2f} billion operations")

# %% [markdown]
# The lower curve measures how fast Python can fill a queue. It says nothing about a matrix product, and a change that
# makes the products slower would not move it. The upper one is the time. Every timing in this course ends in
# `.asnumpy()` of a result, on any device. It also keeps the first call apart, which in graph mode holds the
# compilation. And it gives each framework a process of its own, since their threads would fight over the same cores.
#
# ## 10. The map of names
#
# Each row is shown by the cells below, or by a section above.
#
# | | PyTorch | MindSpore | what bites |
# |---|---|---|---|
# | 1 | `nn.Module`, `forward` | `nn.Cell`, `construct` | receiver must be called `self` (section 7) |
# | 2 | `loss.backward()` | `ms.value_and_grad(f, positions, parameters)` | order of gradients is that of `parameters` (section 4) |
# | 3 | `x.detach()` | `ops.stop_gradient(x)` | `.asnumpy()` cuts without a word (section 4) |
# | 4 | `torch.compile` | `ms.jit` | reads source, keeps old values (section 6) |
# | 5 | `x.add_(y)`, `x += y` | the same | `add_` does nothing on a CPU, eager (section 2); `+=` writes into x in graph mode only (section 3) |
# | 6 | `x.size(0)` | `x.shape[0]` | `x.size` is an int (section 1) |
# | 7 | `x.transpose(0, 1)` | `x.swapaxes(0, 1)` | a permutation in graph mode (section 3) |
# | 8 | `x.permute(0, 2, 1)` | `x.transpose(0, 2, 1)` | `ops.transpose` wants a tuple |
# | 9 | `x.amax(dim=1, keepdim=True)` | `x.max(axis=1, keepdims=True)` | `dim=` gives a pair (section 1) |
# | 10 | `x.var(unbiased=False)` | `x.var()` | biased by default |
# | 11 | `x.softmax(dim=-1)` | `ops.softmax(x, axis=-1)` | `dim=` is a TypeError |
# | 12 | `x.masked_fill(mask, v)` | `x.masked_fill(mask, v)` | mask must be bool |
# | 13 | `x.split(2, dim=1)` | `ops.split(x, 2, axis=1)` | `ops.Split` takes the number of pieces |
# | 14 | `x.gather(1, i)` | `ops.gather_elements(x, 1, i)` | `ops.gather` picks whole rows |
# | 15 | `nn.Linear(i, o)` | `nn.Dense(i, o)` | the option is `has_bias` |
# | 16 | `nn.Embedding(...).weight` | `nn.Embedding(...).embedding_table` | starts at N(0, 0.01), PyTorch's at N(0, 1) |
# | 17 | `nn.LayerNorm(C)` | `nn.LayerNorm((C,))` | eps is 1e-7, names are gamma and beta |
# | 18 | `nn.GELU()` | `nn.GELU(approximate=False)` | the default is the tanh form |
# | 19 | `nn.Dropout(0.1)` | `nn.Dropout(p=0.1)` | a plain 0.1 is what is *kept* |
# | 20 | `module.train()` | `cell.set_train()` | a fresh cell is not in training (section 7) |
# | 21 | `nn.CrossEntropyLoss()` | `ops.cross_entropy` | the cell takes int32 targets only (section 6) |
# | 22 | `torch.optim.AdamW` | `mindspore.experimental.optim.AdamW` | `nn.AdamWeightDecay` has no bias correction |
# | 23 | `torch.manual_seed(0)` | `ms.set_seed(0)` | seeds NumPy too; other numbers than PyTorch's |

# %%
def attempt(function):
    """The values of the result, or the type of the error."""
    try:
        return function().asnumpy().tolist()
    except TypeError as error:
        return type(error).__name__


def fill(x, mask):
    return x.masked_fill(mask, 0.0)


x = ms.Tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
two = ms.Tensor(np.arange(12, dtype=np.float32).reshape(2, 6))
four = ms.Tensor([[1.0, 2.0, 3.0, 4.0]])
index = ms.Tensor([[0], [1]])
print(" 8  x.transpose(0, 2, 1)", x.transpose(0, 2, 1).shape, end="   ")
print("ops.transpose(x, 0, 2, 1)", attempt(lambda: ops.transpose(x, 0, 2, 1)))
unbiased = torch.arange(1.0, 5.0).var().item()
print("10  var", f"MindSpore {four.var().item():.3f}   PyTorch {unbiased:.3f}")
print("11  ops.softmax(x, dim=-1)", attempt(lambda: ops.softmax(four, dim=-1)))
print("12  an int mask:", compiles(fill, four, ms.Tensor([[1, 0, 0, 1]])))
print("13  ops.split(x, 2)", [p.shape for p in ops.split(two, 2, axis=1)], end="   ")
print("ops.Split(1, 2)", [p.shape for p in ops.Split(1, 2)(two)])
print("14  gather_elements", ops.gather_elements(two, 1, index).shape, end="   ")
print("gather", ops.gather(two, index, 1).shape)

# %%
print("15 ", [name for name, _ in nn.Dense(3, 5, has_bias=False).parameters_and_names()])
ms.set_seed(0)
embedding = nn.Embedding(1000, 64)
print("16 ", [(n, f"std {p.asnumpy().std():.2f}") for n, p in embedding.parameters_and_names()])
norm = nn.LayerNorm((4,))
small = 1e-3 * four.asnumpy()                             # a row of small variance
right = torch_nn.LayerNorm(4)(torch.from_numpy(small)).tolist()[0]
print("17 ", [name for name, _ in norm.parameters_and_names()])
print("    default:     ", [round(n, 2) for n in norm(ms.Tensor(small)).asnumpy().tolist()[0]])
same = nn.LayerNorm((4,), epsilon=1e-5)(ms.Tensor(small))
print("    epsilon=1e-5:", [round(n, 2) for n in same.asnumpy().tolist()[0]])
print("    PyTorch:     ", [round(n, 2) for n in right])

# %%
x = ms.Tensor([-2.0, -1.0, 1.0, 2.0])
right = torch_nn.GELU()(torch.from_numpy(x.asnumpy()))
for name, gelu in [("nn.GELU()", nn.GELU()), ("nn.GELU(False)", nn.GELU(approximate=False))]:
    gap = largest_difference(gelu(x), right)
    print(f"18  {name:15} as torch.nn.GELU() within 1e-3 {gap < 1e-3}, within 1e-5 {gap < 1e-5}")
many = ms.Tensor(np.ones(10_000, np.float32))
dropouts = {"nn.Dropout(0.1)": nn.Dropout(0.1), "nn.Dropout(p=0.1)": nn.Dropout(p=0.1)}
for name, dropout in dropouts.items():
    share = (dropout.set_train()(many).asnumpy() == 0).mean()
    print(f"19  {name:18} drops {share:.1f}")


def first_update(optimizer):
    weight = ms.Parameter(ms.Tensor([1.0]), name="weight")
    optimizer([weight])((ms.Tensor([0.5]),))
    return 1.0 - weight.asnumpy().item()


adamw = first_update(lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.0))
other = first_update(lambda p: nn.AdamWeightDecay(p, learning_rate=0.1))
print(f"22  first step, learning rate 0.1: AdamW {adamw:.3f}, AdamWeightDecay {other:.3f}")

# %%
def drawn(seed):
    seed(0)
    return [np.random.rand(), ms.ops.standard_normal((1,)).asnumpy().item()]


repeats = drawn(ms.set_seed) == drawn(ms.set_seed)
print("23  ms.set_seed repeats NumPy's numbers and its own:", repeats)
ms.set_seed(0)
torch.manual_seed(0)
equal = abs(ops.standard_normal((1,)).asnumpy().item() - torch.randn(1).item()) < 1e-6
print("    and they are PyTorch's:", equal)

# %% [markdown]
# Most rows raise nothing. The wrong variant runs, has the right shape, and computes something near. Only a comparison
# with numbers tells, and only if it is strict: a tolerance of 1e-3 passes the wrong GELU of row 18.
#
# ## What you built, what comes next
#
# You ported the primitives and proved them equal to your own, eagerly and in graph mode, with their gradients. You
# know what the graph compiler reads and what it keeps from the day it was called. Errors come late, a stopwatch needs
# `.asnumpy()`, and neither a method ending in `_` nor `+=` on a tensor is to be trusted.
#
# The next lessons take the same path with larger pieces, from the embedding in lesson 11 to the whole GPT in lesson
# 15. Each has the same five parts: the port, its check, the parity with your own, what the framework brings along, and
# the time.
