# %% [markdown]
# # 04 Causal attention
#
# An embedding knows its own token and its own position. It knows nothing of its neighbours: in "the bank of the
# river" the vector of "bank" is the same as in "the bank of England". Attention is the one place in a GPT where
# positions exchange information. Everything else in the model treats each position by itself.
#
# In this lesson you write
#
# 1. `causal_mask`: who may look at whom,
# 2. `attention`: a weighted average, with weights that depend on the content,
# 3. `split_heads` and `merge_heads`: several such averages side by side,
# 4. `CausalSelfAttention`: the module of GPT-2, with its parameter names.
#
# Time: about 75 minutes. You need `Linear` and `softmax` of lesson 02; if you have not passed it, the
# reference stands in.
#
# Letters for shapes, in all lessons: B sequences in a batch, T positions, C channels (`n_embd`), V tokens in the vocabulary.

# %%
import math
from functools import partial
from types import SimpleNamespace

import torch
from torch import nn

from course import check, exercise, piece, setup, show, timing

setup()
Linear = piece("pytorch.primitives.Linear")
softmax = piece("pytorch.primitives.softmax")

# %% [markdown]
# ## 1. Who may look at whom
#
# A language model is trained to guess the next token. All guesses of a sequence are made at once, and so the answer
# to position 5 stands right beside it, at position 6. If position 5 could look there, it would learn to copy and
# nothing else. The mask closes that window: a query may attend to a key that is not in its future.
#
# | name | shape | dtype | meaning |
# |---|---|---|---|
# | result | (n_query, n_key) | bool | True where the query may attend to the key |
#
# When there are more keys than queries, the queries are the last positions. You will need this in lesson 08, where the
# keys of the past are kept in a cache and only the newest token asks. Query $i$ then stands at position
# $i + n_{key} - n_{query}$, and may attend to key $j$ when
#
# $$j \le i + n_{key} - n_{query}$$
#
# For 2 queries and 4 keys the rows are `1110` and `1111`.
#
# <details><summary>Hint 1</summary>
#
# Write down the mask for 3 queries and 3 keys: the rows are `100`, `110`, `111`. PyTorch has an operation that keeps
# the lower triangle of a matrix and clears the rest.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# That operation is `tril`, and its argument `diagonal` moves the edge of the triangle to the right. By how much must it
# move when there are n_key - n_query more keys than queries?
#
# </details>

# %%
@exercise("pytorch.attention.causal_mask")
def causal_mask(n_query: int, n_key: int) -> torch.Tensor:
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
print(causal_mask(2, 4).int())

# %% [markdown]
# ## 2. Attention
#
# Each position asks a question, the query $q$. Each position also offers a key $k$, which says what it has, and a value
# $v$, which is what it gives. Query $i$ is compared with every key it may see by a dot product. The softmax turns these
# scores into weights that sum to 1, and the result is the average of the values under these weights:
#
# $$\text{attention}(q, k, v) = \text{softmax}\left(\frac{q\,k^\top}{\sqrt{d}}\right) v$$
#
# with $d$ the width of one query (Vaswani et al. 2017, equation 1).
#
# | name | shape | meaning |
# |---|---|---|
# | q | (..., T_q, d) | a query for each position that asks |
# | k | (..., T_k, d) | a key for each position that may be looked at |
# | v | (..., T_k, d_v) | what these positions give |
# | mask | (T_q, T_k) bool, or any shape that broadcasts to (..., T_q, T_k) | True: may attend. None: all may |
# | result | (..., T_q, d_v) | an average of values for each query |
#
# **Why the square root.** A dot product of two random vectors of width $d$ has a standard deviation of $\sqrt d$. Without
# the division the scores grow with the width, and the softmax gives nearly all weight to one key. The weights then hardly
# move when the scores do, and the gradient dies. The next cell measures the deviation, and the weight of the likeliest of
# 10 keys.

# %%
torch.manual_seed(0)
for d in (16, 64, 256):
    q, k = torch.randn(2, 10_000, d)
    scores = (q * k).sum(dim=-1)                          # (10000,)
    print(f"d = {d:3}: deviation of q·k {scores.std():5.1f}, sqrt(d) {math.sqrt(d):4.1f}", end="")
    rows = scores.reshape(1000, 10)                       # 1000 queries with 10 keys each
    raw, divided = (softmax(s, dim=-1).amax(dim=-1).mean() for s in (rows, rows / math.sqrt(d)))
    print(f", largest weight {raw:.2f}, after the division {divided:.2f}")

# %% [markdown]
# **Where the mask goes.** Hidden scores become $-\infty$ before the softmax, since $e^{-\infty} = 0$. A mask after the
# softmax comes too late: the hidden keys have then already taken their share of the sum below the fraction.
#
# <details><summary>Hint 1</summary>
#
# Five steps, one line each: scores by `@` with k's last two axes swapped; the scale; the mask; the softmax over the
# keys; the average by `@` with v. `softmax` of lesson 02 keeps exp from overflowing.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `scores.masked_fill(where, value)` writes value where its first argument is True. The mask is True where a query
# may attend, so what you fill is its opposite, `~mask`. Only fill if there is a mask.
#
# </details>

# %%
@exercise("pytorch.attention.attention")
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017, equation 1).

    Args:
        q: (..., T_q, d).
        k: (..., T_k, d).
        v: (..., T_k, d_v).
        mask: bool, broadcasts to (..., T_q, T_k), True where the query may attend; None for
            no mask. Every query may attend to at least one key.

    Returns:
        (..., T_q, d_v), of the dtype and on the device of q.
    """
    raise NotImplementedError


# %%
check(attention)

# %% [markdown]
# The claim behind the mask is about causes, so test it as one: change a token, and nothing before it may move.

# %%
torch.manual_seed(0)
q, k, v = torch.randn(3, 6, 8)                            # three times (T=6, d=8)
mask = causal_mask(6, 6)
before = attention(q, k, v, mask)
k[3], v[3] = torch.randn(2, 8)                            # another token at position 3
moved = (attention(q, k, v, mask) - before).abs().amax(dim=-1) > 0  # (6,)
print("positions that moved:", moved.nonzero().flatten().tolist())

# %% [markdown]
# Positions 0, 1 and 2 stand exactly still. Now do it for every position, and draw who is moved by whom. This is the
# receptive field, measured and not assumed.

# %%
def reach(mask):
    """(T, T): entry (i, j) is 1 if the result at i moves when the token at j changes."""
    torch.manual_seed(1)
    q, k, v, new = torch.randn(4, 6, 8)
    before = attention(q, k, v, mask)
    columns = []
    for j in range(6):
        k_j, v_j = k.clone(), v.clone()
        k_j[j], v_j[j] = new[j], -new[j]
        columns.append((attention(q, k_j, v_j, mask) - before).abs().amax(dim=-1) > 0)
    return torch.stack(columns, dim=1).int()


causal, free = reach(causal_mask(6, 6)), reach(None)
print("pairs that influence each other, of 36:")
print("with the mask", causal.sum().item(), "- without", free.sum().item())
show.heatmaps(
    {"with the causal mask": causal, "without a mask": free},
    x_label="token that changes",
    y_label="result that moves",
)

# %% [markdown]
# ## 3. Several heads
#
# One average for each position is little: the word before, the subject of the sentence and the opening bracket are three
# questions. GPT-2 cuts its C channels into `n_head` groups and lets each attend by itself. Nothing is added: the same
# C channels are looked at as `n_head` vectors of width C / n_head.
#
# | | shape |
# |---|---|
# | before | (B, T, C) |
# | after `split_heads` | (B, n_head, T, C / n_head) |
# | after `merge_heads` | (B, T, C) again |
#
# Head 0 gets the first C / n_head channels, head 1 the next, and so on. The heads stand before the time axis so that
# `attention`, which works on the last two axes, needs no change.
#
# A reshape never moves numbers in memory, it only draws the borders anew. The channels of one position lie side by
# side, so they can be cut into heads by a reshape. To bring heads before time the axes must change places, and
# a reshape cannot do that. This is the mistake that gives the right shape and mixes positions:

# %%
x = torch.arange(2 * 6).reshape(1, 2, 6)          # (B=1, T=2, C=6): position 0 holds 0 to 5
print("wrong, straight to (B, n_head, T, head_dim):")
print(x.reshape(1, 3, 2, 2)[0, 0])

# %% [markdown]
# Head 0 should hold `[0, 1]` of position 0 and `[6, 7]` of position 1. It holds `[2, 3]` in its second row, which belongs
# to position 0. With this mistake a position reads channels of another one, past the mask.
#
# <details><summary>Hint 1</summary>
#
# Two steps: cut the channels into (n_head, head_dim) so that there are four axes, then change the places of two of them.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# After the cut the shape is (B, T, n_head, C // n_head). Which two axes does `transpose` have to swap to
# get (B, n_head, T, head_dim)?
#
# </details>

# %%
@exercise("pytorch.attention.split_heads")
def split_heads(x: torch.Tensor, n_head: int) -> torch.Tensor:
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
# The way back takes the same two steps in the other order.
#
# <details><summary>Hint 1</summary>
#
# First swap heads and time back, then put the heads side by side along the channels.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# After a transpose the numbers no longer lie in memory in the order of the axes. `view` refuses that, `reshape` copies
# where it must.
#
# </details>

# %%
@exercise("pytorch.attention.merge_heads")
def merge_heads(x: torch.Tensor) -> torch.Tensor:
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
x = torch.arange(2 * 6).reshape(1, 2, 6)
print("head 0:", split_heads(x, 3)[0, 0].tolist())
print("there and back:", torch.equal(merge_heads(split_heads(x, 3)), x))

# %% [markdown]
# ## 4. The module
#
# GPT-2 makes q, k and v with one linear layer, `c_attn`, three times as wide as its input: the first third of its
# output is q, the second k, the last v. A second linear layer, `c_proj`, mixes the heads after they are merged. These
# are GPT-2's names, and lesson 09 loads its weights into them.
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
# <details><summary>Hint 1</summary>
#
# The `forward` is the table above, a line for each row. `x.split(C, dim=-1)` cuts a tensor into pieces of width C.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The mask is T by T for the T that came in, which may be less than n_ctx. It belongs on the device of x: `.to(x.device)`.
#
# </details>

# %%
@exercise("pytorch.attention.CausalSelfAttention")
class CausalSelfAttention(nn.Module):
    """Multi-head causal self-attention as in GPT-2 (openai/gpt-2, src/model.py, function attn).

    Args:
        config: has n_embd and n_head; n_embd is a multiple of n_head.

    Parameters:
        c_attn: Linear(n_embd, 3 * n_embd), gives q, k and v in this order.
        c_proj: Linear(n_embd, n_embd).

    Attributes:
        n_head: that of the config; the cache of lesson 08 reads it.

    forward(x): (B, T, n_embd) -> (B, T, n_embd), for any T. The same in train and eval mode.
    """

    def __init__(self, config):
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


# %%
check(CausalSelfAttention)

# %% [markdown]
# ## 5. What a head looks at
#
# The module hides its weights, but attention gives them away: let the values be the unit vectors, and the average of
# the values is the weights themselves. Here are four heads of a fresh module on random input. The
# rows are nearly even, each over its own past: an untrained model averages. Lesson 07 looks again after training.

# %%
torch.manual_seed(2)
config = SimpleNamespace(n_embd=32, n_head=4)
module = CausalSelfAttention(config)
x = torch.randn(1, 8, 32)                                 # (B=1, T=8, C=32)
q, k, v = module.c_attn(x).split(32, dim=-1)
q, k = split_heads(q, 4), split_heads(k, 4)               # (1, 4, 8, 8)
unit = torch.eye(8).expand(1, 4, 8, 8)                    # a unit vector for each key
weights = attention(q, k, unit, causal_mask(8, 8))[0].detach()  # (n_head=4, T, T)
print("weights of each row sum to 1:", torch.allclose(weights.sum(dim=-1), torch.ones(4, 8)))
show.heatmaps({f"head {h}": weights[h] for h in range(4)})

# %% [markdown]
# ## 6. What it costs
#
# The scores are T by T for each head. Twice the context makes four times the scores, and they all go through memory:
# written by the product, read and written by the mask, by the softmax, and read by the last product. A fused kernel
# (FlashAttention, Dao et al. 2022) works on tiles that stay in the cache and never stores the scores.
# PyTorch offers one as `scaled_dot_product_attention`. It is not used in your GPT, but it tells what there is to win.
#
# Predict before you run: how much longer does attention take for T = 512 than for T = 128, and is your function or the
# fused one ahead?

# %% tags=["nbval-ignore-output"]
def inputs(T):
    return torch.randn(3, 1, 4, T, 64).unbind(0)        # three times (B=1, n_head=4, T, 64)


def yours(q, k, v, mask):
    return attention(q, k, v, mask)


def fused(q, k, v, mask):
    return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


candidates = {}
for T in (128, 512):
    arguments = (*inputs(T), causal_mask(T, T))
    candidates[f"yours, T = {T}"] = partial(yours, *arguments)
    candidates[f"fused, T = {T}"] = partial(fused, *arguments)
timings = timing.measure(candidates, seconds=3)
print(timing.report(timings))
medians = {name: 1e3 * t.median for name, t in timings.items()}
show.bars(medians, "Attention forward, 4 heads of width 64", "ms, median")

# %% [markdown]
# The times depend on the machine. T = 512 has 16 times the scores of T = 128, so a ratio near 16 is no surprise, and one
# above it suggests that the scores no longer fit into a cache close by. What must hold on any machine: the two compute the
# same, and the number of scores grows with the square of the length.

# %%
arguments = (*inputs(512), causal_mask(512, 512))
same = torch.allclose(yours(*arguments), fused(*arguments), atol=1e-5)
print("same result within 1e-5:", same)
for T in (128, 512):
    print(f"T = {T}: {4 * T * T:,} scores in 4 heads")

# %% [markdown]
# ## What you built, what comes next
#
# You built the part of a GPT that lets positions talk: a mask that is True where a query may look, a weighted average,
# heads, and the module around them. You tested causality by changing the future, and saw that a right shape proves
# nothing.
#
# Attention mixes positions and does little else: once the weights are fixed, the result is linear in the values. Lesson 05 adds
# the part that computes at each position, the MLP, and LayerNorm, which keeps the numbers in range on the way.
