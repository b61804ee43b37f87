# %% [markdown]
# # 06 GPT
#
# All the parts are on the table: embeddings, attention, LayerNorm, the MLP. A GPT is how they are put together, and that
# takes fewer lines than any part. What it takes instead is care. A residual in the wrong place, a LayerNorm too few, a
# head that is a copy and not the table itself: each gives a model with the right shapes that trains a little worse, or
# that cannot load a weight. At the end of this lesson your model has the 124,439,808 parameters of GPT-2 small, under
# its names.
#
# In this lesson you write
#
# 1. `Block`: attention and MLP, each added to a stream that runs through the whole model,
# 2. `init_weights`: how large the first random numbers are, and why that depends on the depth,
# 3. `GPT`: tokens in, logits out, and the loss.
#
# Time: about 75 minutes. You need pieces of lessons 02 to 05; the reference stands in for those you have not passed.
#
# Letters for shapes: B sequences in a batch, T positions, C channels (`n_embd`), V tokens in the vocabulary.

# %%
import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from course import check, exercise, piece, setup, show, timing

setup()
linear = piece("pytorch.primitives.linear")
cross_entropy = piece("pytorch.primitives.cross_entropy")
Embedding = piece("pytorch.embeddings.Embedding")
CausalSelfAttention = piece("pytorch.attention.CausalSelfAttention")
LayerNorm = piece("pytorch.layers.LayerNorm")
MLP = piece("pytorch.layers.MLP")

# %% [markdown]
# Five numbers fix a GPT-2. They are held in a dataclass, which is given. Without arguments it describes GPT-2 small; the
# model for trying things out is 3 layers deep and knows 65 tokens.

# %%
@dataclass
class GPTConfig:
    """Sizes of a model; the defaults are GPT-2 small's (Radford et al. 2019)."""

    vocab_size: int = 50257
    n_ctx: int = 1024
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768


small = GPTConfig(vocab_size=65, n_ctx=32, n_layer=3, n_head=4, n_embd=64)
print(small)

# %% [markdown]
# ## 1. The block
#
# Think of a vector of C numbers for each position that runs through the whole model, from the embedding to the head: the
# **residual stream**. A block does not replace it. It reads from it, computes, and adds what it found, twice:
#
# $$x \leftarrow x + \text{attn}(\text{ln}_1(x))$$
# $$x \leftarrow x + \text{mlp}(\text{ln}_2(x))$$
#
# The first line lets positions exchange information, the second works on each position by itself. The LayerNorm stands
# at the entry of each branch (pre-LN), so a branch always reads numbers of size 1, however large the stream has become.
# Nothing stands on the stream itself. That is the point: what one block adds reaches the last block unchanged,
# and the gradient of the last block reaches the first one by the same way. The first transformer had its LayerNorm on
# the stream, after each sum (post-LN); GPT-2 moved it (Radford et al. 2019, section 2.3).
#
# | step | shape |
# |---|---|
# | x | (B, T, C) |
# | `ln_1`, then `attn`, added to x | (B, T, C) |
# | `ln_2`, then `mlp`, added to that sum | (B, T, C) |
#
# <details><summary>Hint 1</summary>
#
# `__init__` makes four parts, under the names in the docstring. Each LayerNorm has n_embd channels; attention and MLP
# take the config as it is.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `forward` is the two formulas. Read them from the inside out: normalise a copy for the branch, run the branch, add the
# result to what came in. The second line starts from the x that the first one made.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `x += ...` changes the tensor that the caller gave you. Give the sum to a name instead.
#
# </details>

# %%
@exercise("pytorch.gpt.Block")
class Block(nn.Module):
    """A block that normalises before each branch (openai/gpt-2, src/model.py, function block).

    Args:
        config: has n_embd and n_head.

    Parts:
        ln_1, ln_2: LayerNorm(n_embd), before attention and before the MLP.
        attn: CausalSelfAttention(config).
        mlp: MLP(config).

    forward(x): (B, T, n_embd) -> (B, T, n_embd), of x's dtype and device; x is not changed.
    """

    def __init__(self, config):
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


# %%
check(Block)

# %% [markdown]
# The last layer of each branch is called `c_proj`. With both set to 0 the branches fall silent, and
# what is left is the stream alone. The block must then hand on x to the last bit, and the gradient with it.

# %%
torch.manual_seed(0)
block = Block(small)
for branch in (block.attn, block.mlp):
    branch.c_proj.weight.data.zero_()
    branch.c_proj.bias.data.zero_()
x = torch.randn(2, 8, 64, requires_grad=True)                          # (B=2, T=8, C=64)
y = block(x)
y.sum().backward()
print("output equals input:", torch.equal(y, x))
print("gradient of every entry is 1:", torch.equal(x.grad, torch.ones_like(x)))

# %% [markdown]
# ## 2. How large the first weights are
#
# Before training, the weights are random, and their size is a choice. All matrices and both embedding tables are drawn
# from a normal distribution with standard deviation 0.02, and biases are set to 0. LayerNorms keep weight 1 and bias 0.
# These are the numbers of `transformers`. (OpenAI's own code, openai/gpt-2, src/model.py, differs in one: 0.01 for `wpe`.)
#
# One kind of matrix is special. `c_proj` of attention and `c_proj` of the MLP write into the stream, and there are
# `2 * n_layer` of them. Adding $n$ independent random numbers of variance $\sigma^2$ gives variance $n\sigma^2$: like a
# random walk, the stream grows with the square root of the number of steps. GPT-2 makes each step
# smaller by just that root:
#
# $$\sigma_{c\_proj} = \frac{0.02}{\sqrt{2\,n_{layer}}} \qquad \sigma_{others} = 0.02$$
#
# This is the factor $1/\sqrt N$ of Radford et al. 2019, section 2.3, with $N$ the number of branches. All
# branches together then add as much to the stream at 48 layers as at 12.
#
# | parameter | name ends in | start |
# |---|---|---|
# | both `c_proj` weights of a block | `c_proj.weight` | normal, 0.02 / sqrt(2 n_layer) |
# | all other tensors with two axes | `weight` | normal, 0.02 |
# | biases of linear layers and LayerNorms | `bias` | 0 |
# | LayerNorm weights | `weight`, one axis | stay 1 |
#
# Go by names: `model.named_parameters()` gives pairs such as `("h.0.attn.c_proj.weight", tensor)`.
#
# <details><summary>Hint 1</summary>
#
# One loop over `named_parameters()` and a chain of questions to each: does its name end in `c_proj.weight`? If not, has
# it two axes (`p.dim()`)? If not, is it a bias? What is left are LayerNorm weights.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `p.data` is the same memory without the bookkeeping of gradients. A tensor's `normal_(mean, std)` and `zero_()` write
# into it. `p = torch.randn(...)` would only give your name p to another tensor.
#
# </details>

# %%
@exercise("pytorch.gpt.init_weights")
def init_weights(model: nn.Module, n_layer: int) -> None:
    """Draw the weights of a model anew, in place (Radford et al. 2019, section 2.3).

    Args:
        model: any module whose parameters have GPT-2's names.
        n_layer: number of blocks of the whole model.

    Matrices: normal, mean 0, std 0.02; those named ...c_proj.weight 0.02 / sqrt(2 n_layer).
    Biases: 0. LayerNorm weights: 1, as they are made.
    Every parameter stays the same object, on its device and of its dtype. Random numbers come
    from torch's own generator, so that torch.manual_seed of the caller decides.
    """
    raise NotImplementedError


# %%
check(init_weights)

# %% [markdown]
# Does the factor do what it promises? Send a random stream through stacks of blocks and measure its standard deviation
# behind each block. A stack without the factor comes from the same function: tell it that `n_layer` is 1/2, and the
# root becomes 1.

# %%
class Stack(nn.Module):
    """Nothing but blocks."""

    def __init__(self, config):
        super().__init__()
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])


@torch.no_grad()
def spread(n_layer, told):
    """Standard deviation of the stream at the start and behind each block."""
    torch.manual_seed(0)
    stack = Stack(GPTConfig(n_layer=n_layer, n_head=4, n_embd=128))
    init_weights(stack, told)
    x = 0.02 * math.sqrt(2) * torch.randn(4, 32, 128)                  # as large as wte + wpe
    found = [x.std().item()]
    for block in stack.h:
        x = block(x)                                                   # (B=4, T=32, C=128)
        found.append(x.std().item())
    return found


rows = []
for n_layer in (6, 12, 24):
    with_factor, without = spread(n_layer, n_layer)[-1], spread(n_layer, 0.5)[-1]
    rows.append((n_layer, f"{with_factor:.2f}", f"{without:.2f}"))
show.table(rows, header=("layers", "end of the stream, with the factor", "without"))

# %% [markdown]
# With the factor, the stream leaves 24 layers as it leaves 6. Without it, each doubling of the depth makes it 1.5
# times as large. A random walk would say $\sqrt 2 \approx 1.4$; the steps are not quite independent, since each branch
# reads what the ones before it wrote. Here is the way through the deepest stack.

# %%
with_factor, without = spread(24, 24), spread(24, 0.5)
print(f"growth over 24 blocks: with the factor {with_factor[-1] / with_factor[0]:.1f}, ", end="")
print(f"without {without[-1] / without[0]:.0f}")
show.lines(
    {"c_proj with 0.02 / sqrt(2 n_layer)": with_factor, "c_proj with 0.02": without},
    "The residual stream at the start of training",
    "blocks behind it",
    "standard deviation",
)

# %% [markdown]
# ## 3. The model
#
# Tokens become vectors by `wte`, positions by `wpe`; the sum is the start of the stream. The blocks `h` work on it one
# after another. A last LayerNorm, `ln_f`, brings it to size 1, and the head compares each position with the vector
# of each token. The dot products are the logits.
#
# | step | shape |
# |---|---|
# | idx | (B, T), int64 |
# | `wte` of the tokens + `wpe` of the positions 0 … T-1 | (B, T, C) + (T, C) |
# | blocks `h[0]` … `h[n_layer - 1]` | (B, T, C) |
# | `ln_f` | (B, T, C) |
# | head: dot product with every row of `wte.weight` | (B, T, V) logits |
# | loss, if there are targets | one number |
#
# **The head is wte itself.** A token is described once, when it comes in and when it is a candidate to go out (weight
# tying: Press and Wolf 2017). Itself means the very tensor: there is no layer for the head and no name for it in the
# state dict. A copy would be equal at the start and go its own way from the first step.
#
# **The loss** is the mean cross entropy over all B·T positions. Targets come from `get_batch` of lesson 01, which has
# shifted them: `targets[:, t]` is the token after `idx[:, t]`. Nothing is left to shift. A target of -100 does not
# count, as in lesson 02.
#
# **Too long.** There are n_ctx positions and no more. For T > n_ctx raise a `ValueError` that says so in a sentence. To
# crop is the caller's decision.
#
# <details><summary>Hint 1</summary>
#
# `__init__` keeps the config, makes `wte`, `wpe`, `h` and `ln_f`, and calls `init_weights` when all are there. The
# blocks go into an `nn.ModuleList`: a module does not see parameters inside a Python list. Build every block anew;
# `[block] * 3` is one block three times.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `forward` is the table, a line or two for each row. The positions are `torch.arange` up to T, on the device of idx. The
# head is `linear` of lesson 02 with a weight that you already have.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `cross_entropy` of lesson 02 wants (N, V) and (N,). Flatten the first two axes of the logits and both axes of the
# targets with `reshape`, in this order and without a transpose. What you return keeps its three axes.
#
# </details>

# %%
@exercise("pytorch.gpt.GPT")
class GPT(nn.Module):
    """GPT-2 (Radford et al. 2019) with its state-dict names.

    Args:
        config: vocab_size, n_ctx, n_layer, n_head, n_embd; kept as self.config.

    State dict, and nothing else in it:
        wte.weight (V, C), wpe.weight (n_ctx, C),
        h.0.ln_1.weight and so on, up to h.{n_layer - 1}.mlp.c_proj.bias,
        ln_f.weight (C,), ln_f.bias (C,).

    The weights start as init_weights draws them.
    """

    def __init__(self, config):
        raise NotImplementedError

    def forward(
        self, idx: torch.Tensor, targets: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits for the token after each position, and the loss.

        Args:
            idx: (B, T) int64, T at most n_ctx.
            targets: (B, T) int64, the token that follows each position; -100 where none counts.

        Returns:
            logits: (B, T, V).
            loss: the mean cross entropy, a tensor of shape (); None without targets.

        Raises:
            ValueError: T is larger than n_ctx.
        """
        raise NotImplementedError


# %%
check(GPT)

# %%
torch.manual_seed(0)
model = GPT(small)
idx = torch.randint(65, (4, 32))                                       # (B=4, T=32)
logits, loss = model(idx)
print("logits", tuple(logits.shape), "- loss without targets:", loss)
try:
    model(torch.zeros(1, 33, dtype=torch.int64))
except ValueError as error:
    print("33 tokens:", error)

# %% [markdown]
# ## 4. What a model knows before it has seen anything
#
# Nothing, and so it should give every token about the same probability, 1/V. The loss is then $-\ln(1/V) = \ln V$.
# This number costs one forward pass and finds many mistakes before a day of training does.

# %%
torch.manual_seed(0)
model = GPT(small)
idx, targets = torch.randint(65, (2, 16, 32))                          # each (B=16, T=32)
_, loss = model(idx, targets)
print(f"loss {loss.item():.2f}, ln V = {math.log(65):.2f}")

# %% [markdown]
# How it looks when the numbers start too large: PyTorch's own `nn.Embedding` draws with standard deviation 1, and the
# same table is the head. A logit is then a sum of C products of numbers of size 1, about $\sqrt C = 8$ large. One of
# them is larger still: the token that was just read meets its own row of the table, and that sum is near C = 64. The
# model is very sure that every token repeats itself, and wrong.

# %%
model.wte.weight.data.normal_(0, 1)
logits, loss = model(idx, targets)
own = logits.gather(-1, idx[..., None])                                # (16, 32, 1)
print(f"mean logit of the token itself {own.mean().item():.0f}")
print(f"loss {loss.item():.0f}")

# %% [markdown]
# ## 5. Counting to 124,439,808
#
# A model on the device `meta` has shapes and no numbers. That is enough to count, and takes no memory.

# %%
with torch.device("meta"):
    gpt2 = GPT(GPTConfig())

kinds = {"wte": "wte", "wpe": "wpe", "attn": "attention", "mlp": "MLP", "ln": "LayerNorm"}
counts = dict.fromkeys(kinds.values(), 0)
for name, p in gpt2.named_parameters():
    kind = next(words for key, words in kinds.items() if key in name)
    counts[kind] += p.numel()

total = sum(counts.values())
formulas = ["V·C", "n_ctx·C", "12 · (4C² + 4C)", "12 · (8C² + 5C)", "25 · 2C"]
rows = []
for (kind, n), formula in zip(counts.items(), formulas):
    rows.append((kind, formula, f"{n:,}", f"{100 * n / total:.1f} %"))
rows.append(("all", "", f"{total:,}", ""))
show.table(rows, header=("piece", "formula", "parameters", "share"))

# %%
millions = {kind: n / 1e6 for kind, n in counts.items()}
show.bars(millions, f"GPT-2 small: {total:,} parameters", "millions")
untied = total + counts["wte"]
print(f"with a head of its own it would be {untied:,}, {100 * (untied / total - 1):.0f} % more")

# %% [markdown]
# Two thirds of a block are its MLP, and nearly a third of the model is one table of words. (The paper says 117 million;
# the README of openai/gpt-2 calls that an error and names the model 124M.)
#
# ## 6. One table, two jobs
#
# As an embedding, a row of `wte` gets a gradient only if its token occurs in the batch. As a head, every row takes part
# in every guess, so every row gets one. Tied, both gradients add up in the same tensor. Give the model a text of four
# different tokens and look which rows learn.

# %%
torch.manual_seed(0)
model = GPT(small)
idx = torch.tensor([[3, 14, 15, 9, 3, 14, 15, 9]])                     # (B=1, T=8)
targets = idx.roll(-1, dims=1)                                         # (1, 8): what follows
_, loss = model(idx, targets)
loss.backward()
size = model.wte.weight.grad.norm(dim=1)                               # (65,)
print(f"rows with a gradient: {(size > 0).sum().item()} of 65")
print("the four largest belong to tokens", sorted(size.topk(4).indices.tolist()))

# %% [markdown]
# One step of plain gradient descent moves the table, and with it both ends of the model. If the head were a copy, the
# logits would from now on not be the products with the table any more.

# %%
with torch.no_grad():
    for p in model.parameters():
        p -= 0.5 * p.grad
x = model.wte(idx) + model.wpe(torch.arange(8))                        # (1, 8, 64)
for block in model.h:
    x = block(x)
by_hand = linear(model.ln_f(x), model.wte.weight)                      # (1, 8, 65)
logits, after = model(idx, targets)
print("the head has moved with wte:", torch.allclose(logits, by_hand, atol=1e-5))
print("the loss has fallen:", (after < loss).item())

# %% [markdown]
# The mask was tested in lesson 04 for attention alone. Through the whole model the claim is the same: another token at
# position 5 may move the logits from there on, and none before.

# %%
changed = idx.clone()
changed[0, 5] = 60
moved = (model(changed)[0] - model(idx)[0]).abs().amax(dim=-1)[0] > 0   # (8,)
print("positions whose logits moved:", moved.nonzero().flatten().tolist())

# %% [markdown]
# ## 7. Where the time goes
#
# A multiplication with a matrix of $n$ parameters costs $2n$ operations for each token: one product and one sum per
# parameter. So the table of parameters is nearly a table of costs. There is one difference, `wte`: as an embedding it is
# only read, as a head it is multiplied with.
#
# The model below has GPT-2 small's proportions at a third of its width: 12 layers, and V / C as large as there.
# Predict before you run: which kind of piece takes most, and how many blocks does the head cost?

# %% tags=["nbval-ignore-output"]
config = GPTConfig(vocab_size=16752, n_ctx=128, n_layer=12, n_head=4, n_embd=256)
torch.manual_seed(0)
model = GPT(config)
idx = torch.randint(16752, (1, 128))                                   # (B=1, T=128)
x = torch.randn(1, 128, 256)                                           # (B=1, T=128, C=256)
positions = torch.arange(128)


def embeddings():
    return model.wte(idx) + model.wpe(positions)


def all_attention():
    return [block.attn(x) for block in model.h]


def all_mlps():
    return [block.mlp(x) for block in model.h]


def all_norms():
    return [ln(x) for block in model.h for ln in (block.ln_1, block.ln_2)], model.ln_f(x)


candidates = {
    "whole forward": partial(model, idx),
    "embeddings": embeddings,
    "12 attentions": all_attention,
    "12 MLPs": all_mlps,
    "25 LayerNorms": all_norms,
    "head": partial(linear, x, model.wte.weight),
}
with torch.no_grad():
    timings = timing.measure(candidates, seconds=5)
print(timing.report(timings))
parts = {name: 1e3 * t.median for name, t in timings.items() if name != "whole forward"}
show.bars(parts, "Forward of 128 tokens, by piece", "ms, median")

# %% [markdown]
# The times depend on the machine. What does not: the head multiplies more than a block, though it is one product, and
# reading rows of the table costs next to nothing beside multiplying with it.

# %%
print("multiplications of the head, in blocks:", round(16752 * 256 / (12 * 256**2), 1))

# %% [markdown]
# ## What you built, what comes next
#
# You built GPT-2. A block adds to a stream and never stands on it; you silenced its branches and got the identity. The
# first weights keep the stream at the same size whatever the depth, the loss starts at ln V, and 124,439,808 parameters
# are where they should be, with one table at both ends. Your state dict has GPT-2's names, which will pay off in
# lesson 09, when its trained weights go in.
#
# So far the model knows nothing. Lesson 07 writes the optimizer and trains it on Shakespeare.
