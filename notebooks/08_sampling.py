# %% [markdown]
# # 08 Sampling
#
# A GPT never says a word. It gives V numbers for each position, and that is all. To get text out of it somebody has to
# choose a token, put it behind the others, and ask again. How one chooses decides between "the the the the" and
# noise, with one and the same model. How one asks again decides whether the next token costs as much as one
# position or as much as all positions so far.
#
# In this lesson you write
#
# 1. `keep_top_k` and `keep_top_p`: which tokens may be drawn at all,
# 2. `sample`: the loop that turns a model into text,
# 3. `KVCache`: the memory that keeps it from computing the past again.
#
# Time: about 75 minutes. You need `linear` and `softmax` of lesson 02, `attention` and its helpers of lesson 04, and the
# GPT of lesson 06, and to train a small model the optimizer of lesson 07; for each that you have not passed, the reference
# stands in.
#
# Letters for shapes: B sequences in a batch, T positions, C channels (`n_embd`), V tokens in the vocabulary. In sections 1
# to 4, $T$ in a formula or in a label such as "T = 0.5" is the temperature, as everywhere in the literature.

# %%
import math
import string
import time
from types import SimpleNamespace

import numpy as np
import torch

from course import check, corpus, device, exercise, piece, setup, show, timing

setup()
linear = piece("pytorch.primitives.linear")
softmax = piece("pytorch.primitives.softmax")
causal_mask = piece("pytorch.attention.causal_mask")
attention = piece("pytorch.attention.attention")
split_heads = piece("pytorch.attention.split_heads")
merge_heads = piece("pytorch.attention.merge_heads")
GPT = piece("pytorch.gpt.GPT")
CharTokenizer = piece("pytorch.tokens.CharTokenizer")
get_batch = piece("pytorch.tokens.get_batch")
AdamW = piece("pytorch.training.AdamW")
clip_grad_norm = piece("pytorch.training.clip_grad_norm")
cosine_lr = piece("pytorch.training.cosine_lr")

# %% [markdown]
# ## 1. Temperature
#
# First a distribution that needs no model: which letter follows "ma" in Shakespeare's plays? Counting answers it. The
# logarithm of a count is as good a logit as any, since the softmax of the logarithms gives back the shares.

# %%
text = corpus.load("shakespeare")
found = [(text.count("ma" + letter), letter) for letter in string.ascii_lowercase]
frequent = sorted(sorted(found)[-9:], key=lambda pair: pair[1])        # nine of them, by alphabet
counts, letters = zip(*frequent)
logits = torch.tensor(counts).log()                                    # (V=9,)
shares = [f"{p:.4f}" for p in softmax(logits, dim=-1).tolist()]
show.table(zip(letters, counts, shares), ["letter", "count", "share"])

# %% [markdown]
# To draw from these shares as they are is the honest way: it says what the model believes. But a model spreads a little
# belief over thousands of tokens that make no sense, and in a long text one of them is drawn sooner or later. The
# temperature $T$ bends the distribution before the draw:
#
# $$p_i = \frac{e^{z_i / T}}{\sum_j e^{z_j / T}}$$
#
# With $T < 1$ the differences between logits grow, and the likeliest gains. With $T > 1$ they shrink, and rare
# tokens gain. In the limit $T \to 0$ the likeliest has everything: this is called greedy. The division has to come before
# the softmax. Dividing probabilities by $T$ changes nothing, since they are made to sum to 1 again.

# %%
temperatures = (0.5, 1.0, 2.0)
bent = {f"T = {T}": softmax(logits / T, dim=-1) for T in temperatures}
for name, p in bent.items():
    rest = 1 - p.topk(3).values.sum()
    print(f"{name}: the likeliest has {p.max():.2f}, all but the three likeliest {rest:.2f}")

# %%
fig, axes = show.figure(width=9.0, columns=3)
for axis, (name, p) in zip(axes, bent.items()):
    axis.bar(letters, p, color=show.BLUE)
    axis.set(title=name, ylim=(0, 0.9))
    axis.grid(axis="x", visible=False)
axes[0].set(ylabel="probability")
print("likeliest letter at each temperature:", [letters[p.argmax()] for p in bent.values()])
show.finish()

# %% [markdown]
# The order of the letters stays the same at every temperature. What changes is how much the first gets of the share
# of the others.
#
# ## 2. Top-k
#
# The temperature never rules anything out. Top-k does: only the k likeliest tokens may be drawn, the rest gets
# probability 0 (Fan et al. 2018). With k = 1 this is greedy again, with k = V nothing happens.
#
# A token is ruled out by its logit, not by its probability: $-\infty$ before the softmax becomes 0 behind it, and the
# others share the 1 among themselves.
#
# | name | shape | meaning |
# |---|---|---|
# | logits | (..., V) | one row for each text that is written |
# | k | int | how many stay; more than V means all |
# | result | (..., V) | the k largest of each row unchanged, $-\infty$ elsewhere |
#
# For the logits `[1, 3, 0, 2]` and k = 2 the result is `[-inf, 3, -inf, 2]`.
#
# <details><summary>Hint 1</summary>
#
# `logits.topk(k, dim=-1).values` holds the k largest of each row, the largest first. Its last column is the bar: whoever
# is below it goes. Whoever equals it stays.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep the bar as a column of shape (..., 1), by a slice and not by an index, so that it can be compared with all V logits
# of its row. And `topk` refuses a k beyond V: how large may k be at most?
#
# </details>

# %%
@exercise("pytorch.sampling.keep_top_k")
def keep_top_k(logits: torch.Tensor, k: int) -> torch.Tensor:
    """Rule out all but the k likeliest tokens of each row (Fan et al. 2018).

    Args:
        logits: (..., V), not changed; may hold -inf for tokens that were ruled out before.
        k: at least 1; more than V keeps all.

    Returns:
        (..., V), of the dtype and on the device of logits: the k largest of each row as they are,
        -inf for the others. Where several equal the k-th, they may all stay.
    """
    raise NotImplementedError


# %%
check(keep_top_k)

# %%
for k in (1, 3):
    p = softmax(keep_top_k(logits, k), dim=-1)
    stays = [f"{letter} {share:.2f}" for letter, share in zip(letters, p.tolist()) if share > 0]
    print(f"k = {k}:", ", ".join(stays))

# %% [markdown]
# ## 3. Top-p
#
# One k does not fit all. After "q" there is nothing but "u", and a k of 3 lets nonsense in. After a space many
# letters make sense, and a k of 3 shuts most of them out. Top-p lets the number follow the distribution: it
# keeps the smallest set of likeliest tokens whose probabilities reach p together (Holtzman et al. 2020, section 3.1).
#
# Sort the probabilities, likeliest first, and write beside each the sum of those *before* it:
#
# | token | probability | sum before it | with p = 0.7 |
# |---|---|---|---|
# | c | 0.5 | 0 | stays |
# | a | 0.3 | 0.5 | stays: 0.7 is not reached yet |
# | d | 0.15 | 0.8 | goes |
# | b | 0.05 | 0.95 | goes |
#
# A token goes if the likelier ones already reach p. The token that carries the sum past p stays; whoever compares the
# sum *with* the token loses it, and with one token at 0.97 and p = 0.9 loses everything.
#
# | name | shape | meaning |
# |---|---|---|
# | logits | (..., V) | as above |
# | p | float in (0, 1] | how much probability has to be covered; 1 keeps all |
# | result | (..., V) | logits that stay unchanged and in their places, $-\infty$ elsewhere |
#
# <details><summary>Hint 1</summary>
#
# `values, order = logits.sort(dim=-1, descending=True)` gives the sorted logits and where each came from. `cumsum` adds
# up probabilities from the left, each one included. How do you get the sum of those before from the sum that
# includes the token?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Fill with -inf while everything is sorted, then bring it back. `result.scatter(-1, order, values)` writes the i-th value to
# place `order[i]`, which is where it came from.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# With p = 1 every token is needed. A sum in float32 may still round up to 1 before the last of them.
#
# </details>

# %%
@exercise("pytorch.sampling.keep_top_p")
def keep_top_p(logits: torch.Tensor, p: float) -> torch.Tensor:
    """Rule out all but the likeliest tokens that reach p together (Holtzman et al. 2020).

    Args:
        logits: (..., V), not changed; may hold -inf for tokens that were ruled out before.
        p: 0 < p <= 1; 1 keeps all.

    Returns:
        (..., V), of the dtype and on the device of logits: the fewest likeliest tokens of each row
        whose probabilities sum to p or more, with their logits as they are, -inf for the others.
        At least one stays.
    """
    raise NotImplementedError


# %%
check(keep_top_p)

# %% [markdown]
# Does the number follow the distribution? Here are three places in the plays, with the same p = 0.9.

# %%
def logits_after(start):
    """(V,): log of how often each character follows `start`, -inf for those that never do."""
    return torch.tensor([text.count(start + symbol) for symbol in sorted(set(text))]).log()


for start in ("q", "th", " "):
    seen = logits_after(start)                                         # (V=81,)
    stays = keep_top_p(seen, 0.9)
    occur, reach = seen.isfinite().sum(), stays.isfinite().sum()
    print(f"after {start!r:4} {occur:2} characters occur, {reach:2} reach 0.9")

# %% [markdown]
# Now the three filters side by side, on the letters after "ma". The order matters when they are combined: the temperature
# comes first, then top-k, then top-p on what is left. A high temperature flattens the distribution, and then more
# tokens are needed to reach p.

# %%
ways = {
    "as it is": logits,
    "T = 2": logits / 2,
    "T = 2, top-k 3": keep_top_k(logits / 2, 3),
    "T = 2, top-p 0.8": keep_top_p(logits / 2, 0.8),
}
fig, axes = show.figure(width=11.0, columns=4)
for axis, (name, filtered) in zip(axes, ways.items()):
    axis.bar(letters, softmax(filtered, dim=-1), color=show.BLUE)
    axis.set(title=name, ylim=(0, 0.7))
    axis.grid(axis="x", visible=False)
    print(f"{name:17} {filtered.isfinite().sum()} letters can be drawn")
axes[0].set(ylabel="probability")
show.finish()

# %% [markdown]
# ## 4. The loop
#
# Text comes token by token: ask the model what follows, choose, append, ask again. The model gives logits for all
# positions, and only the last position knows what comes after the whole text. It sees at most n_ctx tokens, so
# the text is cropped to its last n_ctx before it goes in. The text itself is not cropped.
#
# The next cell does the asking, so that your loop can leave it alone. Its argument `cache` is for section 5; as long as
# it is None, only the first two lines matter.

# %%
def next_logits(model, idx, cache=None):
    """(B, V): what the model expects after idx. A cache computes only columns it has not seen."""
    n_ctx = model.config.n_ctx
    if cache is None:
        return model(idx[:, -n_ctx:])[0][:, -1]
    if idx.shape[1] > n_ctx:                         # the window slides, every position changes
        cache.reset()
        idx = idx[:, -n_ctx:]
    return cache.forward(idx[:, cache.length :])[:, -1]

# %% [markdown]
# | step | shape |
# |---|---|
# | idx | (B, T) |
# | `next_logits(model, idx, cache)` | (B, V) |
# | divided by the temperature, then `keep_top_k`, then `keep_top_p` | (B, V) |
# | softmax, and a draw for each row | (B, 1) |
# | appended to idx | (B, T + 1) |
#
# Around the loop there is some housekeeping, and it is forgotten more often than the loop:
#
# - The model runs in eval mode, and is handed back in the mode in which it came. A call in the middle of a training must not
#   change the training.
# - No gradients: nobody will ask for them, and recording them costs time and memory.
# - With a generator, all chance comes from it: the same seed gives the same text, and the global random state stays
#   as it was.
# - Temperature 0 cannot be divided by. It means: no draw, the likeliest token.
# - A cache that comes in may still hold another prompt: `cache.reset()` before the first step, if there is one.
#
# <details><summary>Hint 1</summary>
#
# `torch.multinomial(probs, num_samples=1, generator=generator)` draws one index for each row of a (B, V) tensor of
# probabilities and gives (B, 1). `torch.cat` puts it behind idx.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `model.training` is True or False, `model.eval()` sets it to False, and `model.train(...)` takes the value that you kept.
# `with torch.no_grad():` goes around the call of next_logits.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# top_k and top_p may each be None, or both be given: two separate ifs, one after the other.
#
# </details>

# %%
@exercise("pytorch.sampling.sample")
def sample(
    model, idx: torch.Tensor, max_new_tokens: int, temperature: float = 1.0,
    top_k: int | None = None, top_p: float | None = None,
    generator: torch.Generator | None = None, cache=None,
) -> torch.Tensor:
    """Continue a text, one drawn token at a time.

    Args:
        model: gives (logits (B, T, V), loss); has config.n_ctx, training, eval(), train(mode).
        idx: (B, T) int64, T at least 1, may be longer than n_ctx. Not changed.
        max_new_tokens: how many tokens are added, 0 or more.
        temperature: the logits are divided by it, before the filters; 0 takes the likeliest token.
        top_k, top_p: given to keep_top_k, then keep_top_p; None leaves a filter out.
        generator: the only source of chance if it is given; None uses PyTorch's global one.
        cache: None, or a KVCache of this model; the text is the same with it. It is reset first.

    Returns:
        (B, T + max_new_tokens) int64: idx, and the new tokens behind it.
    """
    raise NotImplementedError


# %%
check(sample)

# %% [markdown]
# Now a model to sample from. The next cell says how a small GPT is trained on the plays, with 2 layers of 64 channels, and
# how it writes.

# %%
tokenizer = CharTokenizer(text)
tokens = np.array(tokenizer.encode(corpus.split(text)[0]), dtype=np.uint16)
config = SimpleNamespace(vocab_size=81, n_ctx=32, n_layer=2, n_head=4, n_embd=64)


def train(steps):
    """A trained model and its last 50 losses."""
    torch.manual_seed(0)
    model, losses = GPT(config), []
    optimizer = AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1)
    generator = torch.Generator().manual_seed(0)
    for it in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = cosine_lr(it, max_lr=1e-2, min_lr=1e-3, warmup=20, total=steps)
        x, y = get_batch(tokens, 32, config.n_ctx, generator=generator)   # (B=32, T=32) each
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm(list(model.parameters()), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return model, losses[-50:]


def write(temperature, n, rows=1, seed=1, **options):
    """Texts of n characters after a line break."""
    prompt = torch.tensor(tokenizer.encode("\n")).expand(rows, 1)      # (rows, 1)
    generator = torch.Generator().manual_seed(seed)
    idx = sample(model, prompt, n, temperature, generator=generator, **options)
    return [tokenizer.decode(row) for row in idx.tolist()]

# %% [markdown]
# 900 steps take about a quarter of a minute on one core, and are not enough to be good: the model will spell many words and
# write no sense. Below, it writes four texts with the same prompt and the same seed. Which temperature would you take?

# %% tags=["nbval-ignore-output"]
model, losses = train(900)
final_loss = sum(losses) / len(losses)
print(f"loss {final_loss:.2f}, ln V {math.log(81):.2f}")
for T in (0, 0.5, 1.0, 1.5):
    print(f"\n--- T = {T}{write(T, 200)[0]}")

# %%
print("loss below 2.3:", final_loss < 2.3)
greedy, drawn = (set(write(T, 400)[0].split()) for T in (0, 1.0))
print("greedy text has less than half as many different words:", len(greedy) < len(drawn) / 2)

# %% [markdown]
# Greedy text runs in a circle. At every step the likeliest token is the best choice, and the text as a whole is like
# nothing that Shakespeare wrote: Holtzman et al. (2020) found the same for GPT-2. High temperatures stop spelling words.
# At T = 0.5 most words look real, and the sense is missing at any temperature: sampling takes from a model what is
# there and adds nothing.
#
# Whether words are real can be counted. Which share of the words that the model writes stands somewhere in the plays?
# Predict before you run: how does it change with the temperature, and what does a top-p of 0.9 do at T = 1? The numbers
# stand above the bars.

# %%
words = set(text.split())


def real_words(texts):
    """Share of the words that stand in the plays, without the last of each text: it is cut off."""
    written = [word for one in texts for word in one.split()[:-1]]
    return sum(word in words for word in written) / len(written)


real = {f"T = {T}": real_words(write(T, 150, rows=32)) for T in (0.5, 1.0, 1.5)}
real["T = 1, top-p 0.9"] = real_words(write(1.0, 150, rows=32, top_p=0.9))
real["T = 1, top-k 5"] = real_words(write(1.0, 150, rows=32, top_k=5))
print("colder text has more real words:", real["T = 0.5"] > real["T = 1.0"] > real["T = 1.5"])
print("top-p 0.9 has more than no filter:", real["T = 1, top-p 0.9"] > real["T = 1.0"])
show.bars(real, "How many of the words exist", "share of the words")

# %% [markdown]
# ## 5. What can be kept
#
# Count the work of the loop. To draw the token behind T others, the model computes all T positions, and uses the logits of
# one. For the next token it computes the T positions again, and one more.

# %%
prompt, new = 1, 200
again = sum(range(prompt, prompt + new))
print(f"{new} tokens, computing the past each time: {again:,} positions")
print(f"{new} tokens, each position once: {prompt + new - 1}")

# %% [markdown]
# Is the second number possible? The mask says that no position looks into the future. So nothing that was computed for the
# old positions changes when a token is added. And the new position needs little of them: in each block it asks with
# its own query, and looks at the keys and values of the past. LayerNorm, MLP and the logits work on one position at a
# time. What has to be kept is therefore, for each layer, the keys and the values of all positions so far.
#
# A KV cache keeps exactly these. Its `forward` takes only the *new* tokens:
#
# | step | shape |
# |---|---|
# | idx, the new tokens | (B, T) |
# | embeddings: positions `length` to `length + T - 1`, not 0 to T - 1 | (B, T, C) |
# | q, k, v of the new tokens, in heads | (B, n_head, T, head_dim) |
# | keys and values, old and new: what `append` gives back | (B, n_head, length + T, head_dim) |
# | mask: T queries, length + T keys | (T, length + T) |
# | attention, and the rest of the block as ever | (B, T, C) |
# | logits of the new tokens | (B, T, V) |
#
# The prompt goes in at once, as a first call with T of its length. Then come single tokens. The classes of the GPT stay as
# they are: your cache walks through its blocks and does itself what `Block.forward` and `CausalSelfAttention.forward`
# do, with `append` in between. What it finds there has GPT-2's names: `model.wte`, `model.wpe`, `model.h`, `model.ln_f`; in
# each block `ln_1`, `attn.c_attn`, `attn.c_proj`, `attn.n_head`, `ln_2` and `mlp`. The head is `wte.weight` again.
#
# The mask of lesson 04 was made for this case: `causal_mask(2, 4)` has the rows `1110` and `1111`, since the queries are
# the last positions.
#
# When length + T exceeds n_ctx, there is no position embedding left. A sentence is better than an IndexError from
# somewhere inside: raise ValueError before anything is changed.
#
# <details><summary>Hint 1</summary>
#
# Write `forward` as the GPT's own forward, with the block written out: `x + c_proj(merge_heads(...))`, then
# `x + mlp(ln_2(x))`. Run it on a whole prompt with an empty cache: its logits must equal those of the model.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `append` may join old and new along the time axis, dim 2, with `torch.cat`, and keep the result in a list with one place
# for each layer. Which is None while the layer has nothing yet.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# All layers of one call work at the same positions. So `length` moves once, after the last layer.
#
# </details>
#
# <details><summary>Hint 4, for speed</summary>
#
# `torch.cat` copies the whole past at each step. A buffer of n_ctx positions for each layer, made at the first call with
# `k.new_empty(...)`, takes only the new ones. Hand back the part that is filled.
#
# </details>

# %%
@exercise("pytorch.sampling.KVCache")
class KVCache:
    """Keys and values of the positions that a GPT has seen.

    Args:
        model: a GPT with GPT-2's names; it is not changed.

    Attributes:
        length: int, how many positions are held.

    reset(): forget everything; the next prompt may have another batch size.
    append(layer, k, v): keep the new keys and values (B, n_head, T, head_dim) of a layer, and
        return all that it holds, each (B, n_head, length + T, head_dim).
    forward(idx): (B, T) int64 new tokens -> (B, T, V), the logits that the model gives at these
        positions for everything fed since the last reset. Several tokens may come at any time.
        Records no gradients. ValueError if length + T exceeds n_ctx, and nothing is changed then.
    """

    def __init__(self, model):
        raise NotImplementedError

    def reset(self):
        raise NotImplementedError

    def append(self, layer: int, k: torch.Tensor, v: torch.Tensor):
        raise NotImplementedError

    def forward(self, idx: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


# %%
check(KVCache)

# %% [markdown]
# The cache is a promise: nothing changes but the time. So compare at every step, on the model that you trained, with two
# prompts in a row and beyond n_ctx, where the window slides.

# %%
cache = KVCache(model)
model.eval()
for start in ("\nKING", "\nWhat, "):
    idx = torch.tensor([tokenizer.encode(start)])
    cache.reset()
    gap = 0.0
    for _ in range(config.n_ctx + 10):
        with torch.no_grad():
            plain, cached = next_logits(model, idx), next_logits(model, idx, cache)   # (1, V) each
        gap = max(gap, (plain - cached).abs().max().item())
        idx = torch.cat((idx, plain.argmax(dim=-1, keepdim=True)), dim=1)
    print(f"{start!r}: {idx.shape[1]} tokens, n_ctx {config.n_ctx}, equal within 1e-5:", gap < 1e-5)
same = write(1.0, 100) == write(1.0, 100, cache=cache)
print("sample writes the same text with the cache and without:", same)

# %% [markdown]
# ## 6. What it wins
#
# Speed does not depend on the weights, so a larger model may stay untrained: 6 layers, 384 channels, n_ctx 256, and 200
# tokens from a prompt of one. Both ways take turns at each token, so that a slow moment of the machine hits both.
#
# You have counted the positions: 20,100 against 200. Predict before you run: is it a hundred times faster? What will the
# time of one token look like against its position, with and without the cache?

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
large = GPT(SimpleNamespace(vocab_size=81, n_ctx=256, n_layer=6, n_head=6, n_embd=384)).eval()
cache = KVCache(large)
idx = torch.zeros(1, 1, dtype=torch.int64)
seconds = {"without": [], "with the cache": []}
gap = 0.0
for _ in range(200):
    got = []
    for name, kept in (("without", None), ("with the cache", cache)):
        begin = time.perf_counter()
        with torch.no_grad():
            got.append(next_logits(large, idx, kept))
        seconds[name].append(time.perf_counter() - begin)
    gap = max(gap, (got[0] - got[1]).abs().max().item())
    idx = torch.cat((idx, torch.multinomial(softmax(got[0], dim=-1), num_samples=1)), dim=1)
total = {name: sum(times) for name, times in seconds.items()}
ratio = total["without"] / total["with the cache"]
print(device.banner())
for name, positions in (("without", again), ("with the cache", new)):
    operations = 2 * sum(p.numel() for p in large.h.parameters()) * positions
    rate = operations / total[name] / 1e9
    print(f"{name}: {total[name]:.2f} s, {rate:.0f} billion operations a second")
print(f"ratio {ratio:.1f}")
show.lines(
    {name: [1e3 * s for s in times] for name, times in seconds.items()},
    "Time for one token, 6 layers of 384 channels", "position", "ms",
)

# %%
print("logits equal within 1e-5 at each of 200 steps:", gap < 1e-5)
print("positions computed:", again, "and", new)

# %% [markdown]
# Not a hundred times. The cached way needs a hundredth of the operations, and gets through far fewer of them in a second: the
# lines above the plot say how many. A matrix product with one row reads all weights, and uses each for that one row. With two
# hundred rows it reads them as well, and uses each two hundred times. And every operation of PyTorch takes some
# microseconds to start, however little it computes.
#
# If that is so, further rows should cost the cached way little. Predict: what does a step cost for 8 texts at once,
# compared with a step for one?

# %% tags=["nbval-ignore-output"]
def step(rows):
    """One cached token for each of `rows` texts."""
    cache = KVCache(large)

    def run():
        cache.reset()
        cache.forward(torch.zeros(rows, 1, dtype=torch.int64))

    return run


timings = timing.measure({"1 text": step(1), "8 texts": step(8)}, seconds=1.5)
print(timing.report(timings))

# %%
several = KVCache(large).forward(torch.zeros(8, 1, dtype=torch.int64))
alone = KVCache(large).forward(torch.zeros(1, 1, dtype=torch.int64))
gap = (several - alone).abs().max().item()
print("each of 8 equal texts gets the logits of one, within 1e-5:", gap < 1e-5)

# %% [markdown]
# This is why those who serve models collect many texts into one batch.
#
# The cache is paid for with memory: two tensors for each layer, each (B, n_head, n_ctx, head_dim).

# %%
sizes = {"the model above": (6, 384, 256), "GPT-2 small": (12, 768, 1024)}
for name, (n_layer, n_embd, n_ctx) in sizes.items():
    numbers = 2 * n_layer * n_embd * n_ctx                             # keys and values of one text
    print(f"{name}: {numbers:,} numbers, {4 * numbers / 1e6:.1f} MB in float32 for each text")

# %% [markdown]
# And it ends at n_ctx. GPT-2 learned a vector for each absolute position. When the window slides by one, every token
# moves to another position, and every key changes. `next_logits` then resets the cache and feeds the whole window: past
# n_ctx each token costs as much as without a cache. Models that encode distances in place of positions, as RoPE does, lose less here.
#
# ## What you built, what comes next
#
# You built the loop that makes a GPT write, with temperature, top-k and top-p in their order, and saw that the choice changes
# how many words are real and never adds sense. You built a cache that computes each position once, and
# proved it equal at every step, which is the only proof of a cache.
#
# What is missing for text worth reading is a better model. Lesson 09 gets one: it loads GPT-2's own weights into your classes,
# name by name, and your `sample` writes with them.
