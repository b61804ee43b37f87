"""From text to batches: character tokens, byte-level BPE (Sennrich et al. 2016), a token file, random windows."""
from collections import Counter, defaultdict

import numpy as np
import regex
import torch

# How GPT-2 cuts text before merging (openai/gpt-2, src/encoder.py): words keep the space before them.
WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


class CharTokenizer:
    """One id for each symbol of a text, 0 to V - 1 in sorted order.

    encode(str) -> list of ids, ValueError for a symbol the text did not have; decode(ids) -> str.
    """

    def __init__(self, text):
        self.symbols = sorted(set(text))                      # id -> symbol
        self.ids = {symbol: i for i, symbol in enumerate(self.symbols)}

    def encode(self, text):
        unknown = set(text) - set(self.ids)
        if unknown:
            raise ValueError(f"{min(unknown)!r} is not among the {len(self.symbols)} symbols of the vocabulary")
        return [self.ids[symbol] for symbol in text]

    def decode(self, ids):
        return "".join(self.symbols[i] for i in ids)


def merge_pair(ids, pair, new):
    """A new list: ids with new in the place of every pair, from left to right, without overlaps."""
    merged = []
    i = 0
    while i < len(ids):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            merged.append(new)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def split_special(text, special_tokens):
    """The text in pieces, special tokens as pieces of their own; of two that match, the longer wins."""
    if not special_tokens:
        return [text]
    longest_first = sorted(special_tokens, key=len, reverse=True)
    return regex.split("(" + "|".join(regex.escape(s) for s in longest_first) + ")", text)


def train_bpe(text, vocab_size, special_tokens=()):
    """Byte-level BPE (Sennrich et al. 2016): merge the most frequent pair, again and again.

    Returns vocab, id -> bytes (256 bytes, merged tokens, special tokens), and merges, pairs of bytes in the order
    of learning. Of equally frequent pairs the greater pair of bytes wins (Stanford CS336, assignment 1).
    ValueError if vocab_size has no room for bytes and special tokens. Ends early when no pair is left.
    """
    n_merges = vocab_size - 256 - len(special_tokens)
    if n_merges < 0:
        raise ValueError(f"vocab_size {vocab_size} has no room for 256 bytes and {len(special_tokens)} special tokens")
    vocab = {i: bytes([i]) for i in range(256)}
    counts = Counter()                                        # word -> how often
    for piece in split_special(text, special_tokens):
        if piece not in special_tokens:
            counts.update(regex.findall(WORDS, piece))
    words = [list(word.encode("utf-8")) for word in counts]   # each as a list of ids
    times = list(counts.values())

    pairs = Counter()                                         # pair -> how often, over all words
    where = defaultdict(set)                                  # pair -> words that hold it
    for w, ids in enumerate(words):
        for pair in zip(ids, ids[1:]):
            pairs[pair] += times[w]
            where[pair].add(w)

    merges = []
    for new in range(256, 256 + n_merges):
        if not pairs:
            break                                             # every word is one token already
        most = max(pairs.values())
        tied = [pair for pair, n in pairs.items() if n == most]
        best = max(tied, key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))   # of equals, the greater bytes
        merges.append((vocab[best[0]], vocab[best[1]]))
        vocab[new] = vocab[best[0]] + vocab[best[1]]
        for w in where.pop(best):                             # only these words change
            old = words[w]
            words[w] = merge_pair(old, best, new)
            for pair in zip(old, old[1:]):
                pairs[pair] -= times[w]
                if pairs[pair] == 0:
                    del pairs[pair]
            for pair in zip(words[w], words[w][1:]):
                pairs[pair] += times[w]
                where[pair].add(w)
    for special in special_tokens:
        vocab[len(vocab)] = special.encode("utf-8")
    return vocab, merges


class BPETokenizer:
    """Text to ids and back with what train_bpe returned, as GPT-2 does it (openai/gpt-2, src/encoder.py).

    encode(str) -> list of ids, for any text; decode(ids) -> str, U+FFFD for bytes that are no UTF-8.
    Special tokens must be in vocab; each becomes one id.
    """

    def __init__(self, vocab, merges, special_tokens=()):
        self.vocab = vocab                                    # id -> bytes
        self.ids = {token: i for i, token in vocab.items()}
        self.special_tokens = special_tokens
        self.ranks = {}                                       # pair of ids -> (when it was learned, merged id)
        for rank, (a, b) in enumerate(merges):
            self.ranks[self.ids[a], self.ids[b]] = (rank, self.ids[a + b])
        self.seen = {}                                        # word -> ids: most words come again

    def encode_word(self, word):
        ids = [self.ids[bytes([byte])] for byte in word.encode("utf-8")]
        while True:
            known = [pair for pair in zip(ids, ids[1:]) if pair in self.ranks]
            if not known:
                return ids
            first = min(known, key=self.ranks.get)            # merge in the order of learning
            ids = merge_pair(ids, first, self.ranks[first][1])

    def encode(self, text):
        ids = []
        for piece in split_special(text, self.special_tokens):
            if piece in self.special_tokens:
                ids.append(self.ids[piece.encode("utf-8")])
                continue
            for word in regex.findall(WORDS, piece):
                if word not in self.seen:
                    self.seen[word] = self.encode_word(word)
                ids.extend(self.seen[word])
        return ids

    def decode(self, ids):
        data = b"".join(self.vocab[i] for i in ids)
        return data.decode("utf-8", errors="replace")         # a lone part of a character is no UTF-8


def save_tokens(path, ids):
    """Write ids to a file, two bytes each, and return it as a read-only memory map (N,) uint16.

    ValueError for no ids at all, or an id that is not in 0 to 65535; nothing is written then.
    """
    ids = np.asarray(ids)
    if ids.size == 0:
        raise ValueError("there are no tokens to save")
    if ids.max() > 65535 or ids.min() < 0:
        raise ValueError("uint16 holds ids 0 to 65535: this vocabulary needs a wider dtype")
    ids.astype(np.uint16).tofile(path)
    return np.memmap(path, dtype=np.uint16, mode="r")


def get_batch(tokens, batch_size, n_ctx, generator=None):
    """Random windows x and their targets y, one step later: int64, both (batch_size, n_ctx).

    tokens: (N,) integers, for example a uint16 memory map; every window is equally likely.
    ValueError if N < n_ctx + 1.
    """
    if len(tokens) < n_ctx + 1:
        raise ValueError(f"{len(tokens)} tokens are too few: a window of n_ctx = {n_ctx} needs one more, its last target")
    starts = torch.randint(len(tokens) - n_ctx, (batch_size,), generator=generator)   # (B,)
    windows = [np.asarray(tokens[s : s + n_ctx + 1], dtype=np.int64) for s in starts.tolist()]
    windows = torch.from_numpy(np.stack(windows))             # (B, T + 1)
    x = windows[:, :-1].contiguous()                          # (B, T)
    y = windows[:, 1:].contiguous()                           # y is x one step later
    return x, y
