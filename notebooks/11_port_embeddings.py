# %% [markdown]
# # 11 Porting the embeddings
#
# An embedding is a table that is read by row. In PyTorch, in lesson 03, it took two lines. In MindSpore it takes two lines as well, and
# that is why it is the first piece to be ported: there is nothing in it that could hide what porting really means.
#
# A port that runs is not yet a port. `nn.Embedding` exists in both frameworks, takes the same two numbers and gives the same shape. It starts
# with other numbers, under another name, and answers a bad id in another way. None of this raises an error. So every lesson from here to 15
# has the same five parts: write the piece, check it, prove it equal to your own PyTorch piece, compare it with what the framework brings along,
# and put all three under the stopwatch.
#
# In this lesson you write
#
# 1. `Embedding`: the table,
# 2. `TokenAndPosition`: the input of a GPT.
#
# Time: about 45 minutes. You need lesson 10 for the words Cell, `value_and_grad` and graph mode. Your own pieces of lesson 03 are what the port is compared
# with; if you have not passed them, the reference stands in.
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
from mindspore import mint, nn, ops
from mindspore.common.initializer import Normal

ms.set_device(device.mindspore_target())

# %% [markdown]
# `mindspore_target()` looks for an Ascend and says "CPU" where there is none, so the same cells run on both. Everything printed in this course
# came from a CPU. Nothing here was run on an Ascend, and where the text speaks of one, it says what the documentation says.
#
# ## 1. The table
#
# Line by line, the port of lesson 03 looks like a rename:
#
# | PyTorch | MindSpore | what is different |
# |---|---|---|
# | `nn.Module`, `forward` | `nn.Cell`, `construct` | a cell with a `forward` and no `construct` does nothing |
# | `nn.Parameter(tensor)` | `ms.Parameter(array or tensor)` | takes the dtype as it comes |
# | `table[idx]` | `ops.gather(table, idx, axis)` | the axis is said, not meant |
# | ids are int64 | int32 or int64 | int32 is the usual one here |
# | `device=idx.device` | nothing | one device for the whole process |
#
# The second row is the one that bites. PyTorch's random numbers are float32. Where do MindSpore users get theirs? Most often from NumPy, and NumPy counts in float64.

# %%
drawn = 0.02 * np.random.randn(3, 2)                                   # (3, 2)
print("straight from NumPy:", ms.Parameter(drawn).dtype)
print("cast on the way in: ", ms.Parameter(drawn.astype(np.float32)).dtype)

# %% [markdown]
# A float64 table doubles the memory, makes everything it touches float64, and meets the first operation without a float64 kernel some way down
# the model. The check looks at the dtype.
#
# | name | shape | dtype | meaning |
# |---|---|---|---|
# | weight | (n, n_embd) | float32 | one row for each id, a parameter |
# | idx | (...) | int32 or int64 | ids from 0 to n - 1 |
# | result | (..., n_embd) | that of weight | row idx of weight |
#
# $$\text{Embedding}(i) = W_i \qquad W \sim N(0,\ 0.02^2) \text{ at the start}$$
#
# <details><summary>Hint 1</summary>
#
# `super().__init__()` comes first, as in PyTorch. Then one `ms.Parameter`, made from a float32 NumPy array. `np.random.randn(rows, columns)` has a standard deviation of 1.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `ops.gather` takes the table, the ids and an axis, in this order. Rows are axis 0. Whatever the shape of the ids is, it comes back in front of the channels, so there is nothing to reshape.
#
# </details>

# %%
@exercise("mindspore.embeddings.Embedding")
class Embedding(nn.Cell):
    """A table of vectors, read by row.

    Args:
        n: number of rows: tokens of the vocabulary, or positions.
        n_embd: width of each row.

    Parameters:
        weight: (n, n_embd) float32. Starts normal with mean 0 and standard deviation 0.02
            (Radford et al. 2018).

    construct(idx): (...) int32 or int64, ids from 0 to n - 1 -> (..., n_embd), of the
        dtype of weight.
    """

    def __init__(self, n: int, n_embd: int):
        raise NotImplementedError

    def construct(self, idx: ms.Tensor) -> ms.Tensor:
        raise NotImplementedError


# %%
check(Embedding)

# %% [markdown]
# ## 2. Equal, and how to tell
#
# "The two give the same numbers" needs three things. The same weights: `parity.carry` copies every parameter from the PyTorch module to the cell and
# refuses if a name or a shape does not fit. The same input. And the same question for the gradients: a loss that weighs every number of the
# result differently, since a plain sum gives the same gradient to all of them.
#
# The function below asks both modules, once eagerly and once in graph mode, and returns the largest difference: for the values as it is, for each gradient
# divided by the gradient's largest value. Differences of float32 in another order of operations are about 0.000001. A wrong constant is far larger.

# %%
def differences(theirs, mine, idx, weighting):
    """{mode: {"values" or a parameter's name: largest difference}} of a module and its port."""
    out = theirs(torch.from_numpy(idx).long())
    (out * torch.from_numpy(weighting)).sum().backward()
    slopes = {name: p.grad for name, p in theirs.named_parameters()}
    weights = mine.trainable_params()
    names = [name for name, _ in mine.parameters_and_names()]
    ids, factors = ms.Tensor(idx), ms.Tensor(weighting)

    def loss(ids):
        result = mine(ids)
        return (result * factors).sum(), result

    step = ms.value_and_grad(loss, None, weights=weights, has_aux=True)
    found = {}
    for mode, run in [("eager", step), ("graph", ms.jit(step))]:
        (_, result), grads = run(ids)
        found[mode] = {"values": parity.largest_difference(result, out)}
        for name, grad in zip(names, grads):
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
random = np.random.default_rng(0)
theirs = piece("pytorch.embeddings.Embedding")(5000, 128)
mine = Embedding(5000, 128)
parity.carry(theirs, mine)
idx = random.integers(0, 5000, (8, 64)).astype(np.int32)               # (B=8, T=64)
weighting = random.standard_normal((8, 64, 128)).astype(np.float32)    # (8, 64, C=128)
gaps = differences(theirs, mine, idx, weighting)
show_differences(gaps)
print("values equal bit by bit:", gaps["eager"]["values"] == gaps["graph"]["values"] == 0)

# %% [markdown]
# A look-up computes nothing, so there is nothing to round: the values are equal to the last bit. The gradient is a sum, the scatter-add of lesson 03. Is it the same
# operation here? The example of lesson 03, token 1 in three places:

# %%
small = Embedding(3, 2)


def total(ids):
    return small(ids).sum()                                     # a gradient of 1 for each place


grad = ms.grad(total, None, weights=small.weight)(ms.Tensor([1, 1, 1, 0], ms.int32))
print(grad)

# %% [markdown]
# 3 for token 1, 1 for token 0, and exactly 0 for token 2, which did not occur. The result has all rows of the table, as PyTorch's has: for 50,257 tokens of width 768 that are 154 MB, whatever the batch holds.
#
# ## 3. An id that is not in the table
#
# Predict before you run: a table of 5 rows, and the ids 5, -1, and a 3 that is stored as uint16, as in the token file of lesson 01. Which of them raise, in which framework?

# %%
def attempt(function):
    """What a look-up gives: a row of the table, or the kind of error."""
    try:
        row = np.asarray(function())[0]
    except (RuntimeError, TypeError, IndexError) as error:
        return type(error).__name__
    return f"row {np.abs(table - row).sum(axis=1).argmin()}"


table = np.arange(10, dtype=np.float32).reshape(5, 2)                  # (n=5, C=2)
theirs, mine = piece("pytorch.embeddings.Embedding")(5, 2), Embedding(5, 2)
stock = nn.Embedding(5, 2)
theirs.weight.data.copy_(torch.from_numpy(table))
mine.weight.set_data(ms.Tensor(table))
stock.embedding_table.set_data(ms.Tensor(table))


def in_graph(ids):
    return mine(ids)


compiled = ms.jit(in_graph)
rows = []
for ids in (np.array([3]), np.array([5]), np.array([-1]), np.array([3], np.uint16)):
    here, there = ms.Tensor(ids), torch.from_numpy(ids)
    rows.append((
        f"{ids[0]} as {ids.dtype}",
        attempt(lambda: theirs(there).detach()),
        attempt(lambda: torch.nn.functional.embedding(there, theirs.weight).detach()),
        attempt(lambda: mine(here).asnumpy()),
        attempt(lambda: stock(here).asnumpy()),
    ))
header = ["id", "lesson 03", "torch embedding", "this lesson", "nn.Embedding"]
show.table(rows, header)
print("-1 in graph mode:", attempt(lambda: compiled(ms.Tensor([-1], ms.int32)).asnumpy()))

# %% [markdown]
# Too large is an error everywhere. Here it is one because the cell asks for `.asnumpy()`: without that, as lesson 10 showed, it would come up some lines later.
# **-1 is the dangerous one.** PyTorch's own embedding refuses it. MindSpore's returns the last row, and so do both of your pieces: in lesson 03 because Python counts negative indices from the end, here because `ops.gather` does.
# The documentation of `nn.Embedding` promises a vector of zeros for an id out of range; on this CPU it is an error or the last row. For an Ascend the documentation of `ops.gather` says that "the results may be undefined", without an error. The uint16 of the token file is refused by all of them: cast ids to int32 when you read them.
#
# It matters because -1 and -100 are the usual marks for "no token". Forgotten in the input, they train a row counted from the end of the table instead. A look at every id inside the model would cost time at
# every step. So check ids once, in NumPy, where they are made:

# %%
def refuse_bad_ids(ids, n):
    """ids as they are, for a table of n rows."""
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= n:
        raise ValueError(f"token ids run from {low} to {high}; the table has rows 0 to {n - 1}.")
    return ids


try:
    refuse_bad_ids(np.array([3, -1, 2]), 5)
except ValueError as error:
    print(error)

# %% [markdown]
# ## 4. Token and position
#
# The sum of lesson 03, with the same two names. Only the positions need a thought: T is the length of what came in. In graph mode the shape of idx is known when the function is
# compiled, so T is a plain number there and the positions become a constant of the graph. The price: another T is another graph, and compiles anew.
#
# | name | shape | meaning |
# |---|---|---|
# | idx | (B, T), T ≤ n_ctx | token ids |
# | `wte` | Embedding(vocab_size, n_embd) | a row for each token |
# | `wpe` | Embedding(n_ctx, n_embd) | a row for each position |
# | result | (B, T, C) | row of the token plus row of the position |
#
# $$x_{b,t} = \text{wte}_{\,\text{idx}_{b,t}} + \text{wpe}_{\,t}$$
#
# <details><summary>Hint 1</summary>
#
# Two of your own `Embedding` in `__init__`. In `construct` the ids of the tokens are given, and the ids of the positions are 0, 1, ..., T-1.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `ops.arange(T)` counts the positions, and `idx.shape` is a tuple. (`idx.size` is a number here, not a method.) There is no device to pass on.
#
# </details>

# %%
@exercise("mindspore.embeddings.TokenAndPosition")
class TokenAndPosition(nn.Cell):
    """A row for the token plus one for its position: the input of GPT-2.

    Source: openai/gpt-2, src/model.py, function model.

    Args:
        config: has vocab_size, n_ctx and n_embd.

    Parameters:
        wte: Embedding(vocab_size, n_embd), read with the token ids.
        wpe: Embedding(n_ctx, n_embd), read with the positions 0 to T - 1.

    construct(idx): (B, T) int32 or int64, T at most n_ctx -> (B, T, n_embd).
    """

    def __init__(self, config):
        raise NotImplementedError

    def construct(self, idx: ms.Tensor) -> ms.Tensor:
        raise NotImplementedError


# %%
check(TokenAndPosition)

# %% [markdown]
# The same comparison, now with two tables, and with fewer tokens than the table has positions:

# %%
config = SimpleNamespace(vocab_size=5000, n_ctx=64, n_embd=128)
theirs = piece("pytorch.embeddings.TokenAndPosition")(config)
mine = TokenAndPosition(config)
parity.carry(theirs, mine)
idx = random.integers(0, 5000, (8, 48)).astype(np.int32)               # (B=8, T=48)
weighting = random.standard_normal((8, 48, 128)).astype(np.float32)    # (8, 48, 128)
show_differences(differences(theirs, mine, idx, weighting))

# %% [markdown]
# ## 5. What the framework's own cell does differently
#
# Why not take `nn.Embedding`? Try to carry the weights over:

# %%
class WithStockTables(nn.Cell):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_ctx, config.n_embd)

    def construct(self, idx):
        return self.wte(idx) + self.wpe(ops.arange(idx.shape[1]))


stock = WithStockTables(config)
try:
    parity.carry(theirs, stock)
except parity.ParityError as error:
    print(error)
for own, other in [(stock.wte, theirs.wte), (stock.wpe, theirs.wpe)]:
    own.embedding_table.set_data(ms.Tensor(other.weight.detach().numpy()))
there = theirs(torch.from_numpy(idx).long())                           # (8, 48, 128)
gap = parity.largest_difference(stock(ms.Tensor(idx)), there)
print("renamed by hand, largest difference:", gap)

# %% [markdown]
# The parameter is called `embedding_table`, and a checkpoint with `wte.weight` finds no place for it. Once the numbers are there the cell is right, so it is the **start** that has to be
# watched:

# %%
torch.manual_seed(0)
np.random.seed(0)
ms.set_seed(0)
starts = {
    "torch nn.Embedding": torch.nn.Embedding(5000, 768).weight.detach().numpy(),
    "mindspore nn.Embedding": nn.Embedding(5000, 768).embedding_table.asnumpy(),
    "GPT-2, and yours": Embedding(5000, 768).weight.asnumpy(),
}
edges = np.linspace(-0.08, 0.08, 65)
middles = (edges[1:] + edges[:-1]) / 2
curves = {}
for name, numbers in starts.items():
    counts, _ = np.histogram(numbers, edges)
    curves[name] = counts / (numbers.size * (edges[1] - edges[0]))
    print(f"{name:23} standard deviation {numbers.std():.3f}")
show.lines(curves, "Three starts for the same table", "entry", "density", x=middles)

# %% [markdown]
# The deviations are 1, 0.01 and 0.02, and the shape of the result is the same for all of them. What does it do to a model? The table is used once more, at the output (lesson 06): the logits are
# the product of a normalised vector of C numbers with every row. Untrained, the loss should be about $\ln V$, since no token is likelier than another.

# %%
def first_loss(rows, x):
    """Mean cross entropy of random targets for logits x @ rows.T, in float64."""
    logits = x @ rows.astype(np.float64).T                             # (N, V)
    largest = logits.max(axis=1, keepdims=True)
    norm = np.log(np.exp(logits - largest).sum(axis=1)) + largest[:, 0]
    targets = np.random.default_rng(1).integers(0, len(rows), len(x))
    return (norm - logits[np.arange(len(x)), targets]).mean()


x = np.random.default_rng(2).standard_normal((500, 768))               # (N=500, C=768)
print(f"ln V = {math.log(5000):.2f}")
for name, numbers in starts.items():
    print(f"{name:23} loss at the start {first_loss(numbers, x):6.2f}")

# %% [markdown]
# PyTorch's default starts more than ninety above that, and training has to undo it. MindSpore's does no such harm at the output. It is still another model: what enters the first block is half as
# large as in GPT-2, so each block's first contribution weighs twice as much beside it, and two runs that should be compared start at different points.
# With the start said, both are right:

# %%
said = nn.Embedding(5000, 768, embedding_table=Normal(0.02))
print(f"standard deviation {said.embedding_table.asnumpy().std():.3f}")

# %% [markdown]
# There is a second one, `mint.nn.Embedding`, from the package that is named after PyTorch's. Its parameter is called `weight`, and it starts with N(0, 1) as PyTorch's does. On an Ascend that may be the one to take, according to the documentation. Here:

# %%
try:
    mint.nn.Embedding(5, 2)(ms.Tensor([1], ms.int32)).asnumpy()
except RuntimeError as error:
    print(str(error).splitlines()[0])

# %% [markdown]
# It has no kernel for a CPU. `ops.gather` has one for both, according to its documentation, which is why the piece is written with it. (The same page announces that the order of its arguments will change after version 2.9.
# In 2.10, the version of this course, it has not. If an update breaks your `Embedding`, look there first.)
#
# ## 6. The stopwatch
#
# Forward and backward for a batch of 8 sequences of 64 tokens, tables of 5000 and 64 rows, 128 wide. Each candidate runs in a process of its own, since the thread pools of the two
# frameworks disturb each other. The work is tiny: 512 rows are copied, and 512 rows are added up.
#
# Predict before you run: with so little to compute, what is being timed?

# %% tags=["nbval-ignore-output"]
timings = port.compare(
    "embeddings.TokenAndPosition",
    [{"ids": (8, 64), "below": 5000}],
    config={"vocab_size": 5000, "n_ctx": 64, "n_embd": 128},
    seconds=1.0,
)
print(timing.report(timings))
graph = timings["MindSpore graph"]
print(f"graph mode, first call with compiling: {graph.first:.2f} s")
base = timings["PyTorch"].median
ratios = {name: t.median / base for name, t in timings.items()}
show.bars(ratios, "Token and position, forward and backward", "time over PyTorch's")

# %% [markdown]
# Not the look-up. PyTorch needs a fraction of a millisecond. In eager mode MindSpore's time goes into starting operations and into taking the gradient apart, a fixed price for each operation,
# whatever its size. Graph mode pays most of it once, when it compiles. What is left is the price of one call. A piece as small as this one shows the overhead and nothing else; in a whole training step, lesson 16, it is shared by many large operations.
#
# These are figures of a CPU, and of this one. They say nothing about an Ascend. The next cell counts the work, which is the same on any machine.

# %%
print("tokens in the batch:", 8 * 64, "numbers copied and added up:", f"{2 * 8 * 64 * 128:,}")

# %% [markdown]
# ## What you built, what comes next
#
# You ported the input of the GPT and proved it equal to your own PyTorch piece: values to the last bit, gradients of both tables within the rounding of float32, eagerly and in graph mode. You saw what a rename
# would have missed: the float64 that NumPy brings along, a parameter with another name, a start of 0.01, an id of -1 that reads the last row, and a cell of the same name without a kernel.
#
# Lesson 12 ports the causal attention, with the same five parts.
