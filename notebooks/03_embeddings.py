# %% [markdown]
# # 03 Embeddings
#
# Lesson 01 turned text into integers. An integer is a poor input: token 12 is not twice token 6, and nothing about token 300
# lies between 299 and 301. The id is a name, not a quantity. So a GPT looks the name up in a table and goes on with what it
# finds there: a vector of C numbers, one row of the table for each token. The rows start as noise, and training
# moves them.
#
# Order gets the same treatment. Attention, in the next lesson, compares vectors and does not see where they stand. So each
# position has a row of its own in a second table, and the two rows are added.
#
# In this lesson you write
#
# 1. `one_hot`: the id as a vector of zeros with a single 1,
# 2. `Embedding`: the table, read by row,
# 3. `embedding_backward`: what the table learns from one batch,
# 4. `TokenAndPosition`: the input of a GPT.
#
# Time: about 50 minutes. You need the idea of lesson 02, that a gradient has the shape of what it belongs to. No code of
# earlier lessons is used.
#
# Letters for shapes, in all lessons: B sequences in a batch, T positions, C channels (`n_embd`), V tokens in the vocabulary.

# %%
from functools import partial
from types import SimpleNamespace

import torch
from torch import nn

from course import check, corpus, exercise, setup, show, timing

setup()

# %% [markdown]
# ## 1. An id as a vector
#
# The honest way to write a name as numbers is a vector with one place for each name: 0 everywhere, and 1 at the token's own
# place. No token is larger than another, and each is equally far from every other.
#
# | name | shape | dtype | meaning |
# |---|---|---|---|
# | idx | (...) | int64 | token ids, from 0 to n - 1 |
# | n | | int | length of each vector: the size of the vocabulary |
# | result | (..., n) | float32 | 1 in column idx, 0 in all others |
#
# $$\text{one\_hot}(i)_v = \begin{cases} 1 & v = i \\ 0 & \text{otherwise} \end{cases}$$
#
# The dots stand for any axes: a single id of shape `()`, a sequence `(T,)`, a batch `(B, T)`. For `idx = [2, 0]` and
# n = 3 the rows are `0 0 1` and `1 0 0`.
#
# <details><summary>Hint 1</summary>
#
# The formula is a comparison: every id with every column number. `torch.arange(n)` holds the column numbers. It belongs on the
# device of idx.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# For the comparison to run over all pairs, idx needs one more axis at its end: `idx[..., None]` has shape (..., 1), and
# broadcasting does the rest. A comparison gives bool, and the result is float32.
#
# </details>

# %%
@exercise("pytorch.embeddings.one_hot")
def one_hot(idx: torch.Tensor, n: int) -> torch.Tensor:
    """Each id as a vector with a single 1.

    Args:
        idx: (...) int64, ids from 0 to n - 1.
        n: length of each vector, at least the largest id + 1.

    Returns:
        (..., n) float32, on the device of idx: 1 in column idx, 0 elsewhere.
        A new tensor at each call.
    """
    raise NotImplementedError


# %%
check(one_hot)

# %% [markdown]
# Now multiply such a vector with a table of n rows. Every row is taken times 0, but for one, which is taken times 1.

# %%
table = torch.tensor([[0.1, 0.2], [1.1, 1.2], [2.1, 2.2]])             # (n=3, C=2)
idx = torch.tensor([2, 0, 2])                                          # (T=3,)
print(one_hot(idx, 3))
print(one_hot(idx, 3) @ table)                                       # (3, 3) @ (3, 2) -> (3, 2)

# %% [markdown]
# Rows 2, 0 and 2 of the table. An embedding is a linear layer without bias on one-hot input, and a product with a one-hot
# vector is a look-up.
#
# ## 2. The table
#
# If the product only picks a row, the row can be picked directly. That is all an embedding layer does:
#
# | name | shape | dtype | meaning |
# |---|---|---|---|
# | weight | (n, n_embd) | float32 | one row for each id, a parameter |
# | idx | (...) | int64 | ids from 0 to n - 1 |
# | result | (..., n_embd) | that of weight | row idx of weight |
#
# $$\text{Embedding}(i) = W_i = \text{one\_hot}(i)\,W$$
#
# The rows start as normal random numbers with mean 0 and standard deviation 0.02 (Radford et al. 2018, section 4.1).
# PyTorch's own `nn.Embedding` starts with a standard deviation of 1. That is 50 times as much, and it matters in
# lesson 06, where the same table is used once more, at the output.
#
# `nn.Parameter(tensor)` tells a module that a tensor is to be trained. A plain tensor works as well in the forward pass
# and never learns: no optimizer will see it.
#
# <details><summary>Hint 1</summary>
#
# `super().__init__()` comes first. Then one parameter: `torch.randn(rows, columns)` has a standard deviation of 1, and a
# factor changes that.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A tensor can be indexed by a tensor of integers of any shape. `table[idx]` takes a row for each entry of idx and keeps idx's
# shape in front. `table[:, idx]` would take columns.
#
# </details>

# %%
@exercise("pytorch.embeddings.Embedding")
class Embedding(nn.Module):
    """A table of vectors, read by row.

    Args:
        n: number of rows: tokens of the vocabulary, or positions.
        n_embd: width of each row.

    Parameters:
        weight: (n, n_embd) float32. Starts normal with mean 0 and standard deviation 0.02
            (Radford et al. 2018).

    forward(idx): (...) int64, ids from 0 to n - 1 -> (..., n_embd).
    """

    def __init__(self, n: int, n_embd: int):
        raise NotImplementedError

    def forward(self, idx: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


# %%
check(Embedding)

# %% [markdown]
# Both ways give the same numbers, for any shape of ids:

# %%
torch.manual_seed(0)
wte = Embedding(5000, 128)
idx = torch.randint(5000, (8, 64))                                     # (B=8, T=64)
looked_up = wte(idx)                                                   # (8, 64, 128)
multiplied = one_hot(idx, 5000) @ wte.weight                       # (8, 64, 5000) @ (5000, 128)
print("shapes:", tuple(looked_up.shape), tuple(multiplied.shape))
print("largest difference:", (looked_up - multiplied).abs().max().item())

# %% [markdown]
# They differ in what they cost. The product multiplies all 5000 rows to keep one, and stores a one-hot matrix first. For
# GPT-2's vocabulary that matrix alone would be

# %%
ones = 8 * 1024 * 50257                                                # B * T * V entries
print(f"one-hot matrix for 8 sequences of 1024 tokens: {4 * ones / 1e9:.2f} GB")
print(f"the rows that are wanted, 768 wide: {4 * 8 * 1024 * 768 / 1e6:.0f} MB")
print(f"GPT-2 small's token table: {50257 * 768:,} of its 124,439,808 parameters")

# %% [markdown]
# Predict before you run: 512 ids, a table of 1250 rows and one of 10,000, both of width 128. By what factor is the look-up
# faster than the product, and does the factor grow with V?

# %% tags=["nbval-ignore-output"]
def by_product(idx, weight):
    return one_hot(idx, len(weight)) @ weight


candidates = {}
for V in (1250, 10_000):
    tokens, table = torch.randint(V, (8, 64)), torch.randn(V, 128)
    candidates[f"product, V = {V}"] = partial(by_product, tokens, table)
    candidates[f"look-up, V = {V}"] = partial(table.__getitem__, tokens)
timings = timing.measure(candidates, seconds=3)
print(timing.report(timings))
medians = {name: 1e3 * t.median for name, t in timings.items()}
show.bars(medians, "512 ids, rows of width 128", "ms, median")

# %% [markdown]
# The work of the product grows with V. The look-up reads 512 rows whatever V is; it only finds them in the processor's cache less
# often when the table is large. The next cell counts: multiplications of the product, numbers that the look-up copies.

# %%
for V in (1250, 10_000):
    products, copies = tokens.numel() * V * 128, tokens.numel() * 128
    print(f"V = {V:6}: {products:,} multiplications, {copies:,} copies")
print("same rows:", torch.equal(by_product(tokens, table), table[tokens]))

# %% [markdown]
# ## 3. What the table learns
#
# Training hands back a gradient for each vector that came out: `grad`, of shape (..., C). Which rows of the table does it
# belong to? The product knows the answer. It is a linear layer, $y = X W$ with $X$ the one-hot rows, and lesson 02
# found its gradient: $X^\top$ times the gradient of the result. (There the weight was stored transposed, and so was its
# gradient.) Row $v$ of $X^\top$ has a 1 at each place where token $v$
# stood, so the product collects the gradients of those places:
#
# $$\frac{\partial L}{\partial W_v} = \sum_{t \,:\, i_t = v} \frac{\partial L}{\partial y_t}$$
#
# The look-up gathers rows, its gradient scatters them back and adds them up: a **scatter-add**. A token that stands in three
# places gets three contributions. A token that does not occur gets exactly 0.
#
# The obvious line of code gets this wrong, and says nothing:

# %%
idx = torch.tensor([1, 1, 1, 0])                                       # token 1 three times
grad = torch.ones(4, 2)                                         # a gradient of 1 for each place
wrong = torch.zeros(3, 2)
wrong[idx] += grad
print(wrong)

# %% [markdown]
# Token 1 should have 3 in its row. `wrong[idx] += grad` reads the three rows first, adds 1 to each copy, and then writes all
# three to the same place. The last one stays.
#
# | name | shape | dtype | meaning |
# |---|---|---|---|
# | grad | (..., n_embd) | float | gradient of the loss with respect to each looked-up vector |
# | idx | (...) | int64 | the ids that were looked up |
# | n | | int | rows of the table |
# | result | (n, n_embd) | that of grad | gradient of the loss with respect to the table |
#
# <details><summary>Hint 1</summary>
#
# Where a token stood does not matter, only which token it was. So all axes but the last can become one: grad as (N, n_embd),
# idx as (N,).
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Start with zeros of shape (n, n_embd), with the dtype and the device of grad. PyTorch has an operation that adds rows
# at given places and counts places that repeat: look up `index_add`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# A loop over the N rows is right too, and so is the transposed one-hot matrix times grad. They are slower.
#
# </details>

# %%
@exercise("pytorch.embeddings.embedding_backward")
def embedding_backward(grad: torch.Tensor, idx: torch.Tensor, n: int) -> torch.Tensor:
    """The gradient of an embedding's table: a scatter-add.

    Args:
        grad: (..., n_embd), gradient with respect to the looked-up vectors.
        idx: (...) int64, the ids that were looked up.
        n: number of rows of the table.

    Returns:
        (n, n_embd), of the dtype and on the device of grad: row v is the sum of the rows of
        grad where idx is v, and 0 if there are none. A new tensor at each call; the arguments
        stay as they are.
    """
    raise NotImplementedError


# %%
check(embedding_backward)

# %% [markdown]
# The example again, and then autograd on a batch of the real size:

# %%
print(embedding_backward(torch.ones(4, 2), torch.tensor([1, 1, 1, 0]), 3))
torch.manual_seed(1)
idx = torch.randint(5000, (8, 64))
grad = torch.randn(8, 64, 128)
wte(idx).backward(grad)                                         # autograd fills wte.weight.grad
mine = embedding_backward(grad, idx, 5000)                             # (5000, 128)
print("equal to autograd within 1e-5:", torch.allclose(mine, wte.weight.grad, atol=1e-5))
moved = mine.abs().amax(dim=1) > 0                                     # (5000,)
print("rows that move:", moved.sum().item(), "of 5000")
print("different tokens in the batch:", idx.unique().numel())

# %% [markdown]
# Most rows of a large table get nothing from a batch, and a rare token learns seldom. How seldom? Take Shakespeare once as
# characters and once as words, and ask how much of each table has had a gradient after so many tokens.

# %%
def as_ids(items):
    """(N,) int64, and how many different items there are."""
    names = {name: i for i, name in enumerate(sorted(set(items)))}
    return torch.tensor([names[item] for item in items]), len(names)


def share_reached(ids, n, count):
    """Percent of the n rows that get a gradient from the first `count` tokens."""
    grad = torch.ones(count, 1)
    return 100 * (embedding_backward(grad, ids[:count], n) > 0).float().mean().item()


text = corpus.load("shakespeare")
counts = [2**k for k in range(4, 20)]                                  # 16 to 524,288 tokens
curves = {}
for kind, items in [("characters", list(text)), ("words", text.lower().split())]:
    ids, n = as_ids(items)
    curves[f"{kind}, {n:,} rows"] = [share_reached(ids, n, count) for count in counts]
for name, curve in curves.items():
    at = ", ".join(f"{counts[k]:,} tokens {curve[k]:.1f} %" for k in (0, 8, 15))
    print(f"{name}: {at}")
late = sorted(set(text) - set(text[: counts[-1]]))
print("characters that have not come by then:", *late)
title = "Rows of the table that got a gradient"
show.lines(curves, title, "tokens seen, power of 2", "percent", x=range(4, 20))

# %% [markdown]
# Seven characters in ten have come after four thousand tokens. Those that never came are digits, brackets and the like,
# which stand in later plays only. After half a million tokens three words in ten have never had a gradient: their rows
# are still noise. Here lies one reason for byte-pair encoding, lesson 01. It has far fewer rows than there are words, and a
# merged token exists only because its pair was frequent.
#
# ## 4. Token and position
#
# "The dog bites the man" and "the man bites the dog" hold the same tokens. What tells them apart is where they stand. GPT-2 learns
# a vector for each place, in a second table, and adds it:
#
# $$x_{b,t} = \text{wte}_{\,\text{idx}_{b,t}} + \text{wpe}_{\,t}$$
#
# | name | shape | meaning |
# |---|---|---|
# | idx | (B, T), T ≤ n_ctx | token ids |
# | `wte` | Embedding(vocab_size, n_embd) | a row for each token |
# | `wpe` | Embedding(n_ctx, n_embd) | a row for each position |
# | `wte` of the tokens | (B, T, C) | depends on the token, not on the place |
# | `wpe` of the positions | (T, C) | depends on the place, not on the token: the same for each sequence |
# | result | (B, T, C) | their sum |
#
# `wte` and `wpe` are GPT-2's names. Both start as `Embedding` does; OpenAI's code gives wpe a standard deviation of 0.01
# (openai/gpt-2, src/model.py), Hugging Face's and this course 0.02. Positions count from 0 at the start of each sequence. n_ctx is the largest T; a shorter
# sequence uses the first T rows. Nothing is scaled: the original transformer multiplies by $\sqrt C$ and adds fixed sines and cosines
# (Vaswani et al. 2017, sections 3.4 and 3.5), GPT-2 does neither.
#
# <details><summary>Hint 1</summary>
#
# Two embeddings in `__init__`, with the sizes of the table above. In `forward` the ids of the tokens are given. The ids of the positions
# are 0, 1, ..., T-1, and you make them.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.arange(T)` counts the positions; give it the device of idx. T is the length of what came in, axis 1 of idx, not n_ctx.
# (B, T, C) + (T, C) broadcasts over the batch.
#
# </details>

# %%
@exercise("pytorch.embeddings.TokenAndPosition")
class TokenAndPosition(nn.Module):
    """A row for the token plus one for its position: the input of GPT-2.

    Source: openai/gpt-2, src/model.py, function model.

    Args:
        config: has vocab_size, n_ctx and n_embd.

    Parameters:
        wte: Embedding(vocab_size, n_embd), read with the token ids.
        wpe: Embedding(n_ctx, n_embd), read with the positions 0 to T - 1.

    forward(idx): (B, T) int64, T at most n_ctx -> (B, T, n_embd).
    """

    def __init__(self, config):
        raise NotImplementedError

    def forward(self, idx: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


# %%
check(TokenAndPosition)

# %% [markdown]
# "banana" has one letter three times and another twice. Compare its six vectors with each other, by the cosine of the angle between
# them: 1 for the same direction, about 0 for vectors that have nothing to do with each other.

# %%
def cosines(x):
    """(T, T) cosines between the rows of x (T, C)."""
    x = x / x.norm(dim=-1, keepdim=True)
    return (x @ x.T).detach()


torch.manual_seed(2)
config = SimpleNamespace(vocab_size=26, n_ctx=6, n_embd=768)
embed = TokenAndPosition(config)
word = "banana"
idx = torch.tensor([[ord(letter) - ord("a") for letter in word]])      # (B=1, T=6)
tokens = cosines(embed.wte(idx)[0])                                    # (6, 6)
positions = cosines(embed.wpe.weight)
both = cosines(embed(idx)[0])
for name, c in [("tokens", tokens), ("positions", positions), ("sum", both)]:
    print(f"{name:9} the first two a's {abs(c[1, 3]):.2f}, b and a {abs(c[0, 1]):.2f}")
titles = {"token": tokens, "position": positions, "token + position": both}
show.heatmaps(titles, labels=list(word), x_label="", y_label="")

# %% [markdown]
# By the token alone the three a's are one vector. With the position they are three, still related: half of each
# is the same. That is what one wants, alike and yet distinct.
#
# ## 5. Can a sum be taken apart?
#
# Adding loses information in general: from 5 nobody can tell 2 + 3 from 1 + 4. Yet the model must be able to read the
# token and the position out of one vector. Two random vectors of many channels are nearly at right angles, as the
# heatmaps show, and then a dot product with the right row stands out from all others. Test it: read token and position back by
# the largest dot product, for tables of different width.
#
# Predict before you run: with 64 tokens and 64 positions, how many channels does it take until every sum is read correctly?

# %%
def share_read(n_embd):
    """Percent of the pairs (token, position) from whose sum each of the two can be read."""
    torch.manual_seed(3)
    embed = TokenAndPosition(SimpleNamespace(vocab_size=64, n_ctx=64, n_embd=n_embd))
    idx = (torch.arange(64)[:, None] + torch.arange(64)) % 64        # (64, 64): every pair once
    x = embed(idx)                                                     # (64, 64, n_embd)
    token = (x @ embed.wte.weight.T).argmax(dim=-1)                    # (64, 64)
    position = (x @ embed.wpe.weight.T).argmax(dim=-1)
    right = [(token == idx), (position == torch.arange(64))]
    return [100 * r.float().mean().item() for r in right]


widths = [2**k for k in range(1, 9)]                                   # 2 to 256
read = [share_read(width) for width in widths]
rows = [(width, f"{t:.0f}", f"{p:.0f}") for width, (t, p) in zip(widths, read)]
show.table(rows, ["n_embd", "token read, %", "position read, %"])
curves = {"token": [t for t, _ in read], "position": [p for _, p in read]}
show.lines(curves, "Read back from the sum", "n_embd, power of 2", "percent", x=range(1, 9))

# %% [markdown]
# With few channels the sum is a muddle. From 64 on there is room for both, without a channel being set aside for either.
# GPT-2 small has far more rows, and 768 channels. Are they enough?

# %%
torch.manual_seed(4)
embed = TokenAndPosition(SimpleNamespace(vocab_size=50257, n_ctx=1024, n_embd=768))
idx = torch.randint(50257, (1, 256))                                   # (B=1, T=256)
with torch.no_grad():
    x = embed(idx)                                                     # (1, 256, 768)
    token = (x @ embed.wte.weight.T).argmax(dim=-1)                    # (1, 256)
    position = (x @ embed.wpe.weight.T).argmax(dim=-1)
print("tokens read:", (token == idx).sum().item(), "of 256")
print("positions read:", (position == torch.arange(256)).sum().item(), "of 256")

# %% [markdown]
# They are. These tables are random; training moves the rows, and may let tokens with like meaning overlap on purpose.
#
# ## What you built, what comes next
#
# You built the input of a GPT: ids become one-hot vectors in theory and rows of a table in practice, the two are equal, and the
# look-up hardly notices the size of the vocabulary. You wrote its gradient, a scatter-add, and saw that rows
# of tokens that do not occur stay where they are. And you added a second table, so that equal tokens at different places differ.
#
# Each vector now knows its token and its place, and nothing of its neighbours. Lesson 04 lets them talk.
