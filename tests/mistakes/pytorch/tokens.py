import functools
import io
import json
import pickle
import random
import re
import unicodedata
from collections import Counter

import numpy as np
import regex
import torch

from solutions.pytorch import tokens as good
from solutions.pytorch.tokens import WORDS, merge_pair, split_special
from tests.mistakes import right, wrong

CHAR = "pytorch.tokens.CharTokenizer"
MERGE = "pytorch.tokens.merge_pair"
TRAIN = "pytorch.tokens.train_bpe"
BPE = "pytorch.tokens.BPETokenizer"
SAVE = "pytorch.tokens.save_tokens"
BATCH = "pytorch.tokens.get_batch"

# --- CharTokenizer -------------------------------------------------------------------------------------


class Chars(good.CharTokenizer):
    """A right one, for variants that change one method."""

    def __init__(self, text):
        super().__init__(text)


class WithSymbols(Chars):
    """Takes any list of symbols."""

    def choose(self, text):
        return sorted(set(text))

    def __init__(self, text):
        self.symbols = self.choose(text)
        self.ids = {s: i for i, s in enumerate(self.symbols)}


@wrong(CHAR, "order in which symbols first appear")
class FirstSeen(WithSymbols):
    def choose(self, text):
        return list(dict.fromkeys(text))


@wrong(CHAR, "by frequency")
class ByFrequency(WithSymbols):
    def choose(self, text):
        return [c for c, _ in Counter(text).most_common()]


@wrong(CHAR, "A set has no order")
class OrderOfASet(WithSymbols):
    def choose(self, text):
        return sorted(set(text), key=lambda c: ord(c) * 7919 % 101)   # what a set does, the same in each run


@wrong(CHAR, "sorted in reverse")
class SortedBackwards(WithSymbols):
    def choose(self, text):
        return sorted(set(text), reverse=True)


@wrong(CHAR, "start at 1")
class FromOne(WithSymbols):
    def __init__(self, text):
        self.symbols = [None, *sorted(set(text))]
        self.ids = {s: i for i, s in enumerate(self.symbols)}


@wrong(CHAR, "code points")
class CodePoints(Chars):
    def encode(self, text):
        return [ord(c) for c in text]

    def decode(self, ids):
        return "".join(chr(i) for i in ids)


@wrong(CHAR, "it is a place among the sorted symbols")
class DecodesCodePoints(Chars):
    def decode(self, ids):
        return "".join(chr(i) for i in ids)


@wrong(CHAR, "lower case")
class LowerCase(Chars):
    def __init__(self, text):
        super().__init__(text.lower())

    def encode(self, text):
        return super().encode(text.lower())


@wrong(CHAR, "dropped")
class SpacesDropped(Chars):
    def encode(self, text):
        return super().encode("".join(text.split()))


@wrong(CHAR, "at the edges are stripped")
class StripsText(Chars):
    def __init__(self, text):
        super().__init__(text)

    def encode(self, text):
        return super().encode(text.strip())


@wrong(CHAR, "each symbol comes once")
class SetOfIds(Chars):
    def encode(self, text):
        return [self.ids[c] for c in dict.fromkeys(text)]


@wrong(CHAR, "of type Tensor")
class IdsAsTensor(Chars):
    def encode(self, text):
        return torch.tensor(super().encode(text))


@wrong(CHAR, "of type ndarray")
class IdsAsArray(Chars):
    def encode(self, text):
        return np.array(super().encode(text))


@wrong(CHAR, "of type generator")
class IdsAsGenerator(Chars):
    def encode(self, text):
        return (self.ids[c] for c in text)


@wrong(CHAR, "of type tuple")
class IdsAsTuple(Chars):
    def encode(self, text):
        return tuple(super().encode(text))


@wrong(CHAR, "it holds 'r', of type str")
class SymbolsForIds(Chars):
    def encode(self, text):
        return sorted(set(text), reverse=True)


@wrong(CHAR, "is None")
class ForgetsReturn(Chars):
    def encode(self, text):
        [self.ids[c] for c in text]


@wrong(CHAR, "should be a str")
class DecodesToList(Chars):
    def decode(self, ids):
        return [self.symbols[i] for i in ids]


@wrong(CHAR, "a space between them")
class JoinsWithSpaces(Chars):
    def decode(self, ids):
        return " ".join(self.symbols[i] for i in ids)


@wrong(CHAR, "in reverse")
class DecodesBackwards(Chars):
    def decode(self, ids):
        return "".join(self.symbols[i] for i in reversed(ids))


@wrong(CHAR, "one too high or too low")
class DecodesOneOff(Chars):
    def decode(self, ids):
        return "".join(self.symbols[i - 1] for i in ids)


@wrong(CHAR, "spaces or line ends at the edges")
class StripsWhenDecoding(Chars):
    def decode(self, ids):
        return super().decode(ids).strip()


@wrong(CHAR, "there and back")
class MendsLineEnds(Chars):
    def decode(self, ids):
        return super().decode(ids).replace("\r\n", "\n")


@wrong(CHAR, "the empty text")
class NoEmptyText(Chars):
    def encode(self, text):
        if not text:
            return None
        return super().encode(text)


@wrong(CHAR, "nothing is raised")
class SkipsUnknown(Chars):
    def encode(self, text):
        return [self.ids[c] for c in text if c in self.ids]


@wrong(CHAR, "nothing is raised")
class ZeroForUnknown(Chars):
    def encode(self, text):
        return [self.ids.get(c, 0) for c in text]


@wrong(CHAR, "KeyError is raised")
class KeyErrorForUnknown(Chars):
    def encode(self, text):
        return [self.ids[c] for c in text]


@wrong(CHAR, "no message")
class SilentValueError(Chars):
    def encode(self, text):
        if set(text) - set(self.ids):
            raise ValueError
        return super().encode(text)


@wrong(CHAR, "does not say which")
class VagueValueError(Chars):
    def encode(self, text):
        if set(text) - set(self.ids):
            raise ValueError("BAD INPUT: IT DOES NOT FIT")
        return super().encode(text)


@wrong(CHAR, "nothing is raised")
class LearnsWhileEncoding(Chars):
    def encode(self, text):
        for c in text:
            if c not in self.ids:
                self.ids[c] = len(self.symbols)
                self.symbols.append(c)
        return [self.ids[c] for c in text]


@wrong(CHAR, "disturb each other")
class SharedByAll:
    symbols, ids = [], {}

    def __init__(self, text):
        SharedByAll.symbols = sorted(set(text))
        SharedByAll.ids = {s: i for i, s in enumerate(self.symbols)}

    encode = good.CharTokenizer.encode
    decode = good.CharTokenizer.decode


@wrong(CHAR, "changed before its symbols are collected")
class NormalisesVocabulary(Chars):
    def __init__(self, text):
        super().__init__(unicodedata.normalize("NFC", text))


@wrong(CHAR, "words, and not characters")
class WordTokenizer(WithSymbols):
    def choose(self, text):
        return sorted(set(text.split(" ")))

    def encode(self, text):
        return [self.ids[w] for w in text.split(" ")]


@wrong(CHAR, "no symbol of the text has id 0")
class UnknownHasZero(WithSymbols):
    def choose(self, text):
        return ["<unk>", *sorted(set(text))]


@right(CHAR)
class ByList:
    def __init__(self, text):
        self.chars = sorted(set(text))

    def encode(self, text):
        for c in text:
            if c not in self.chars:
                raise ValueError(f"unknown symbol: {c}")
        return [self.chars.index(c) for c in text]

    def decode(self, ids):
        text = ""
        for i in ids:
            text += self.chars[i]
        return text


@right(CHAR)
class TwoDicts:
    def __init__(self, text):
        self.stoi, self.itos = {}, {}
        for i, c in enumerate(sorted(list(set(text)))):
            self.stoi[c] = i
            self.itos[i] = c

    def encode(self, text):
        try:
            return [self.stoi[c] for c in text]
        except KeyError as error:
            raise ValueError(f"the symbol {error} was not in the text") from None

    def decode(self, ids):
        return "".join([self.itos[int(i)] for i in ids])


@right(CHAR)
class ByNumPy:
    def __init__(self, text):
        self.points = np.unique(np.array([ord(c) for c in text], dtype=np.int64))

    def encode(self, text):
        points = np.array([ord(c) for c in text], dtype=np.int64)
        at = np.searchsorted(self.points, points).clip(max=len(self.points) - 1)
        if (self.points[at] != points).any():
            bad = chr(points[self.points[at] != points][0])
            raise ValueError(f"no id for the symbol {bad!r} here")
        return at.tolist()

    def decode(self, ids):
        return "".join(chr(self.points[i]) for i in ids)


@right(CHAR)
class ByMap:
    def __init__(self, text):
        self.symbols = "".join(sorted(set(text)))

    def encode(self, text):
        ids = list(map(self.symbols.find, text))
        if -1 in ids:
            raise ValueError(f"{text[ids.index(-1)]!r}: not in the vocabulary")
        return ids

    def decode(self, ids):
        return "".join(map(self.symbols.__getitem__, ids))


# --- merge_pair ----------------------------------------------------------------------------------------


@wrong(MERGE, "nothing is merged")
def compares_list_with_tuple(ids, pair, new):
    out, i = [], 0
    while i < len(ids):
        if ids[i : i + 2] == pair:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


@wrong(MERGE, "only the first place")
def first_place_only(ids, pair, new):
    for i in range(len(ids) - 1):
        if (ids[i], ids[i + 1]) == pair:
            return ids[:i] + [new] + ids[i + 2 :]
    return list(ids)


@wrong(MERGE, "only the last place")
def last_place_only(ids, pair, new):
    for i in reversed(range(len(ids) - 1)):
        if (ids[i], ids[i + 1]) == pair:
            return ids[:i] + [new] + ids[i + 2 :]
    return list(ids)


@wrong(MERGE, "second half of a merged pair stays")
def steps_by_one(ids, pair, new):
    out = []
    for i in range(len(ids)):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            out.append(new)
        else:
            out.append(ids[i])
    return out


@wrong(MERGE, "first half of a merged pair stays")
def keeps_the_first_half(ids, pair, new):
    out, i = [], 0
    while i < len(ids):
        out.append(ids[i])
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            out.append(new)
            i += 1
        i += 1
    return out


@wrong(MERGE, "the pair stays")
def inserts_without_removing(ids, pair, new):
    out = []
    for i in range(len(ids)):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            out.append(new)
        out.append(ids[i])
    return out


@wrong(MERGE, "the last id is lost")
def loses_the_last(ids, pair, new):
    return good.merge_pair(ids[:-1], pair, new)


@wrong(MERGE, "the last id is lost")
def stops_one_early(ids, pair, new):
    out, i = [], 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


@wrong(MERGE, "a pair at the very end is not merged")
def never_at_the_end(ids, pair, new):
    out, i = [], 0
    while i < len(ids):
        if i + 2 < len(ids) and (ids[i], ids[i + 1]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


@wrong(MERGE, "a pair at the very start is not merged")
def never_at_the_start(ids, pair, new):
    return ids[:1] + good.merge_pair(ids[1:], pair, new)


@wrong(MERGE, "IndexError")
def runs_past_the_end(ids, pair, new):
    out, i = [], 0
    while i < len(ids):
        if ids[i] == pair[0] and ids[i + 1] == pair[1]:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


@wrong(MERGE, "the other way round too")
def in_any_order(ids, pair, new):
    out, i = [], 0
    while i < len(ids):
        if sorted(ids[i : i + 2]) == sorted(pair):
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


@wrong(MERGE, "taken the wrong way round")
def pair_swapped(ids, pair, new):
    return good.merge_pair(ids, (pair[1], pair[0]), new)


@wrong(MERGE, "only the first half of the pair")
def first_half_only(ids, pair, new):
    out, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and ids[i] == pair[0]:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


@wrong(MERGE, "alone or not")
def replaces_each_id(ids, pair, new):
    return [new if i in pair else i for i in ids]


@wrong(MERGE, "new is not put in its place")
def removes_the_pair(ids, pair, new):
    return [i for i in good.merge_pair(ids, pair, -1) if i != -1]


@wrong(MERGE, "other ids are lost")
def keeps_only_new(ids, pair, new):
    return [new for i in range(len(ids) - 1) if (ids[i], ids[i + 1]) == pair]


@wrong(MERGE, "of three equal ids in a row, the first two")
def overlaps_counted_twice(ids, pair, new):
    places = [i for i in range(len(ids) - 1) if (ids[i], ids[i + 1]) == pair]
    out = []
    for i, a in enumerate(ids):
        if i in places:
            out.append(new)
        elif i - 1 not in places:
            out.append(a)
    return out


@wrong(MERGE, "from right to left")
def from_the_right(ids, pair, new):
    return good.merge_pair(ids[::-1], pair[::-1], new)[::-1]


@wrong(MERGE, "is changed")
def edits_the_list(ids, pair, new):
    i = 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == pair:
            ids[i : i + 2] = [new]
        i += 1
    return ids


@wrong(MERGE, "the very list")
def same_list_if_nothing_fits(ids, pair, new):
    if pair not in list(zip(ids, ids[1:])):
        return ids
    return good.merge_pair(ids, pair, new)


@wrong(MERGE, "merged again")
def again_until_nothing_fits(ids, pair, new):
    ids = list(ids)
    i = 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == pair:
            ids[i : i + 2] = [new]
        else:
            i += 1
    return ids


@wrong(MERGE, "random lists")
def compares_identity(ids, pair, new):
    out, i = [], 0
    pair = tuple(int(str(p)) for p in pair)
    while i < len(ids):
        if i + 1 < len(ids) and ids[i] is pair[0] and ids[i + 1] is pair[1]:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


@wrong(MERGE, "is None")
def merge_without_return(ids, pair, new):
    good.merge_pair(ids, pair, new)


@wrong(MERGE, "of type tuple")
def merge_to_tuple(ids, pair, new):
    return tuple(good.merge_pair(ids, pair, new))


@wrong(MERGE, "it holds (1, 2), of type tuple")
def puts_the_pair_itself(ids, pair, new):
    return good.merge_pair(ids, pair, pair)


@wrong(MERGE, "nothing to merge")
def no_empty_list(ids, pair, new):
    out, i = [ids[0]] if len(ids) == 1 else [], 0
    if len(ids) == 1:
        return out
    while True:
        if ids[i : i + 2] == list(pair):
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
        if i >= len(ids):
            return out


@wrong(MERGE, "compared as text")
def by_text(ids, pair, new):
    text = " ".join(map(str, ids)).replace(f"{pair[0]} {pair[1]}", str(new))
    return [int(word) for word in text.split()]


@wrong(MERGE, "first id of the pair is put")
def keeps_the_first_id(ids, pair, new):
    return good.merge_pair(ids, pair, pair[0])


@wrong(MERGE, "even where it has been merged")
def last_id_always(ids, pair, new):
    out, i = [], 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out + ids[-1:]


@right(MERGE)
def on_a_shrinking_copy(ids, pair, new):
    out = list(ids)
    for i in range(len(ids)):
        if i + 1 < len(out) and (out[i], out[i + 1]) == pair:
            out[i : i + 2] = [new]
    return out


@right(MERGE)
def by_skipping(ids, pair, new):
    out, skip = [], False
    for a, b in zip(ids, [*ids[1:], None]):
        if skip:
            skip = False
        elif (a, b) == tuple(pair):
            out.append(new)
            skip = True
        else:
            out.append(a)
    return out


@right(MERGE)
def by_looking_back(ids, pair, new):
    out, just_made = [], False
    for i in ids:
        if out and not just_made and out[-1] == pair[0] and i == pair[1]:
            out[-1] = new
            just_made = True
        else:
            out.append(i)
            just_made = False
    return out


@right(MERGE)
def by_recursion_on_rest(ids, pair, new):
    parts, start = [], 0
    for i in range(len(ids) - 1):
        if i >= start and ids[i] == pair[0] and ids[i + 1] == pair[1]:
            parts += ids[start:i] + [new]
            start = i + 2
    return parts + ids[start:]


@right(MERGE)
def on_a_copy(ids, pair, new):
    ids = ids.copy()
    i = 0
    while i < len(ids) - 1:
        if ids[i : i + 2] == list(pair):
            ids[i : i + 2] = [new]
        i += 1
    return ids


@right(MERGE)
def by_an_iterator(ids, pair, new):
    places, last = set(), -2
    for i, p in enumerate(zip(ids, ids[1:])):
        if p == pair and i > last + 1:
            places.add(i)
            last = i
    return [new if i in places else a for i, a in enumerate(ids) if i - 1 not in places]


# --- train_bpe -----------------------------------------------------------------------------------------


def slow_bpe(
    text, vocab_size, special_tokens=(), words=functools.partial(regex.findall, WORDS), best=None, split=split_special, weigh=lambda n: n,
    fewer=None, least=1, bytes_of=lambda word: [bytes([b]) for b in word.encode("utf-8")],
):
    """Counts everything again for each merge; the arguments are for mistakes."""
    n_merges = vocab_size - 256 - len(special_tokens)
    if n_merges < 0:
        raise ValueError(f"a vocab_size of {vocab_size} is too small")
    best = best or (lambda pairs: max(pairs, key=lambda p: (pairs[p], p)))
    counts = Counter()
    for part in split(text, special_tokens):
        if part not in special_tokens:
            counts.update(words(part))
    texts = [(bytes_of(word), weigh(n)) for word, n in counts.items()]
    merges = []
    while len(merges) < (n_merges if fewer is None else fewer(vocab_size)):
        pairs = Counter()
        for tokens, n in texts:
            for pair in zip(tokens, tokens[1:]):
                pairs[pair] += n
        if not pairs or max(pairs.values()) < least:
            break
        pair = best(pairs)
        merges.append(pair)
        texts = [(merge_pair(tokens, pair, pair[0] + pair[1]), n) for tokens, n in texts]
    return merges, special_tokens


def finish(merges, special_tokens=()):
    tokens = [bytes([i]) for i in range(256)] + [a + b for a, b in merges] + [s.encode() for s in special_tokens]
    return dict(enumerate(tokens)), merges


@wrong(TRAIN, "met first")
def first_of_equals(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, best=lambda pairs: max(pairs, key=pairs.get)))


@wrong(TRAIN, "the smaller pair of bytes")
def smaller_of_equals(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, best=lambda pairs: min(pairs, key=lambda p: (-pairs[p], p))))


@wrong(TRAIN, "met last")
def last_of_equals(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, best=lambda pairs: max(reversed(list(pairs)), key=pairs.get)))


@wrong(TRAIN, "joined bytes")
def joined_of_equals(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, best=lambda pairs: max(pairs, key=lambda p: (pairs[p], p[0] + p[1]))))


@wrong(TRAIN, "not their ids")
def ids_of_equals(text, vocab_size, special_tokens=()):
    vocab = {i: bytes([i]) for i in range(256)}
    words = [list(w.encode()) for part in split_special(text, special_tokens) if part not in special_tokens for w in regex.findall(WORDS, part)]
    merges = []
    for new in range(256, vocab_size - len(special_tokens)):
        pairs = Counter(p for w in words for p in zip(w, w[1:]))
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append((vocab[best[0]], vocab[best[1]]))
        vocab[new] = vocab[best[0]] + vocab[best[1]]
        words = [merge_pair(w, best, new) for w in words]
    return finish(merges, special_tokens)


@wrong(TRAIN, "each distinct word counts once")
def distinct_words(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, weigh=lambda n: 1))


@wrong(TRAIN, "the rarest pair")
def rarest(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, best=lambda pairs: min(pairs, key=lambda p: (pairs[p], p))))


@wrong(TRAIN, "run across words")
def across_words(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, words=lambda part: [part]))


@wrong(TRAIN, "the spaces are lost")
def split_at_spaces(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, words=str.split))


@wrong(TRAIN, "cut at spaces alone")
def only_spaces_cut(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, words=lambda part: re.findall(r"\s?\S+|\s+", part)))


@wrong(TRAIN, "the space before a word is a word of its own")
def spaces_apart(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, words=lambda part: regex.findall(r"\p{L}+|\p{N}+|[^\s\p{L}\p{N}]+|\s+", part)))


@wrong(TRAIN, "only one pair is counted")
def equal_neighbours_counted_once(text, vocab_size, special_tokens=()):
    words = [[bytes([b]) for b in w.encode()] for part in split_special(text, special_tokens) if part not in special_tokens for w in regex.findall(WORDS, part)]
    merges = []
    while len(merges) < vocab_size - 256 - len(special_tokens):
        pairs = Counter()
        for w in words:
            i = 0
            while i < len(w) - 1:
                pairs[w[i], w[i + 1]] += 1
                i += 2 if w[i] == w[i + 1] and i + 2 < len(w) and w[i + 2] == w[i] else 1
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        words = [merge_pair(w, best, best[0] + best[1]) for w in words]
    return finish(merges, special_tokens)


@wrong(TRAIN, "characters are merged, not bytes")
def characters(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, bytes_of=lambda word: [c.encode("utf-8") for c in word]))


@wrong(TRAIN, "a longer text")
def ignores_rare_words(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, words=lambda part: [w for w in regex.findall(WORDS, part) if len(w) < 9]))


@wrong(TRAIN, "the counts after a merge")
def counts_never_go_down(text, vocab_size, special_tokens=()):
    counts = Counter(w for part in split_special(text, special_tokens) if part not in special_tokens for w in regex.findall(WORDS, part))
    words = [([bytes([b]) for b in w.encode()], n) for w, n in counts.items()]
    pairs = Counter()
    for w, n in words:
        for p in zip(w, w[1:]):
            pairs[p] += n
    merges = []
    while pairs and len(merges) < vocab_size - 256 - len(special_tokens):
        best = max(pairs, key=lambda p: (pairs[p], p))
        del pairs[best]
        merges.append(best)
        for k, (w, n) in enumerate(words):
            new = merge_pair(w, best, best[0] + best[1])
            if new != w:
                for p in set(zip(new, new[1:])) - set(zip(w, w[1:])):
                    pairs[p] += n * list(zip(new, new[1:])).count(p)
                words[k] = new, n
    return finish(merges, special_tokens)


@wrong(TRAIN, "found only once")
def stops_at_one(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, least=2))


@wrong(TRAIN, "vocab_size counts the 256 single bytes too")
def vocab_size_merges(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, fewer=lambda size: size))


@wrong(TRAIN, "one merge too few")
def one_merge_too_few(text, vocab_size, special_tokens=()):
    vocab, merges = good.train_bpe(text, max(vocab_size - 1, 256), special_tokens)
    return vocab, merges


@wrong(TRAIN, "special tokens have no room")
def special_tokens_on_top(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, fewer=lambda size: size - 256))


@wrong(TRAIN, "cut up and merged like words")
def special_tokens_as_text(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, split=lambda text, special: [text]))


@wrong(TRAIN, "both sides is joined")
def special_tokens_cut_out(text, vocab_size, special_tokens=()):
    def split(text, special):
        for s in special:
            text = text.replace(s, "")
        return [text]

    return finish(*slow_bpe(text, vocab_size, special_tokens, split=split))


@wrong(TRAIN, "replaced by a space")
def special_tokens_to_spaces(text, vocab_size, special_tokens=()):
    def split(text, special):
        for s in sorted(special, key=len, reverse=True):
            text = text.replace(s, " ")
        return [text]

    return finish(*slow_bpe(text, vocab_size, special_tokens, split=split))


@wrong(TRAIN, "read as a pattern")
def special_tokens_not_escaped(text, vocab_size, special_tokens=()):
    def split(text, special):
        return re.split("|".join(special), text) if special else [text]

    return finish(*slow_bpe(text, vocab_size, special_tokens, split=split))


@wrong(TRAIN, "the shorter is taken")
def shorter_special_first(text, vocab_size, special_tokens=()):
    def split(text, special):
        return re.split("|".join(re.escape(s) for s in special[:1]), text) if special else [text]

    return finish(*slow_bpe(text, vocab_size, special_tokens, split=split))


@wrong(TRAIN, "is not in vocab")
def special_tokens_forgotten(text, vocab_size, special_tokens=()):
    return finish(slow_bpe(text, vocab_size, special_tokens)[0])


@wrong(TRAIN, "of type str")
def special_tokens_as_str(text, vocab_size, special_tokens=()):
    vocab, merges = finish(slow_bpe(text, vocab_size, special_tokens)[0])
    for s in special_tokens:
        vocab[len(vocab)] = s
    return vocab, merges


@wrong(TRAIN, "in the order of learning")
def special_tokens_over_merges(text, vocab_size, special_tokens=()):
    vocab, merges = good.train_bpe(text, vocab_size, special_tokens)
    learned = [vocab[i] for i in range(256, 256 + len(merges))]
    return {**vocab, **{256 + i: t for i, t in enumerate(learned[::-1])}}, merges


@wrong(TRAIN, "is missing")
def only_bytes_of_the_text(text, vocab_size, special_tokens=()):
    vocab, merges = good.train_bpe(text, vocab_size, special_tokens)
    used = set(text.encode()) | set(range(256, 1000))
    return {i: t for i, t in vocab.items() if i in used}, merges


@wrong(TRAIN, "order of learning")
def vocab_of_halves(text, vocab_size, special_tokens=()):
    vocab, merges = good.train_bpe(text, vocab_size, special_tokens)
    for i, (a, b) in enumerate(merges):
        vocab[256 + i] = b + a
    return vocab, merges


@wrong(TRAIN, "the single bytes 0 to 255")
def bytes_in_utf8(text, vocab_size, special_tokens=()):
    vocab, merges = good.train_bpe(text, vocab_size, special_tokens)
    return {i: vocab[255 - i] if i < 256 else t for i, t in vocab.items()}, merges


@wrong(TRAIN, "with ids up to")
def ids_with_a_gap(text, vocab_size, special_tokens=()):
    vocab, merges = good.train_bpe(text, vocab_size, special_tokens)
    return {i if i < 256 else i + 1: t for i, t in vocab.items()}, merges


@wrong(TRAIN, "(merges, vocab)")
def results_swapped(text, vocab_size, special_tokens=()):
    vocab, merges = good.train_bpe(text, vocab_size, special_tokens)
    return merges, vocab


@wrong(TRAIN, "bytes -> id")
def vocab_turned_round(text, vocab_size, special_tokens=()):
    vocab, merges = good.train_bpe(text, vocab_size, special_tokens)
    return {t: i for i, t in vocab.items()}, merges


@wrong(TRAIN, "a pair of ids")
def merges_of_ids(text, vocab_size, special_tokens=()):
    vocab, merges = good.train_bpe(text, vocab_size, special_tokens)
    ids = {t: i for i, t in vocab.items()}
    return vocab, [(ids[a], ids[b]) for a, b in merges]


@wrong(TRAIN, "already joined")
def merges_joined(text, vocab_size, special_tokens=()):
    vocab, merges = good.train_bpe(text, vocab_size, special_tokens)
    return vocab, [a + b for a, b in merges]


@wrong(TRAIN, "merges should be a list")
def merges_as_dict(text, vocab_size, special_tokens=()):
    vocab, merges = good.train_bpe(text, vocab_size, special_tokens)
    return vocab, {m: i for i, m in enumerate(merges)}


@wrong(TRAIN, "a tuple of two bytes")
def merges_of_str(text, vocab_size, special_tokens=()):
    vocab, merges = good.train_bpe(text, vocab_size, special_tokens)
    return vocab, [(a.decode("latin-1"), b.decode("latin-1")) for a, b in merges]


@wrong(TRAIN, "of type str")
def vocab_of_str(text, vocab_size, special_tokens=()):
    vocab, merges = good.train_bpe(text, vocab_size, special_tokens)
    return {i: t.decode("latin-1") for i, t in vocab.items()}, merges


@wrong(TRAIN, "of type dict")
def only_vocab(text, vocab_size, special_tokens=()):
    return good.train_bpe(text, vocab_size, special_tokens)[0]


@wrong(TRAIN, "the wrong way round: (second, first)")
def merges_second_first(text, vocab_size, special_tokens=()):
    vocab, merges = good.train_bpe(text, vocab_size, special_tokens)
    return vocab, [(b, a) for a, b in merges]


@wrong(TRAIN, "in reverse order")
def merges_backwards(text, vocab_size, special_tokens=()):
    vocab, merges = good.train_bpe(text, vocab_size, special_tokens)
    return vocab, merges[::-1]


@wrong(TRAIN, "lower case")
def lower_cased(text, vocab_size, special_tokens=()):
    return good.train_bpe(text.lower(), vocab_size, special_tokens)


@wrong(TRAIN, "when no pair is left")
def max_of_nothing(text, vocab_size, special_tokens=()):
    merges, _ = slow_bpe(text, vocab_size, special_tokens)
    if len(merges) < vocab_size - 256 - len(special_tokens):
        max([])
    return finish(merges, special_tokens)


@wrong(TRAIN, "which has no room")
def no_check_of_vocab_size(text, vocab_size, special_tokens=()):
    return good.train_bpe(text, max(vocab_size, 256 + len(special_tokens)), special_tokens)


@wrong(TRAIN, "and the special tokens")
def special_tokens_not_in_the_bound(text, vocab_size, special_tokens=()):
    if vocab_size < 256:
        raise ValueError("vocab_size must be at least 256")
    return good.train_bpe(text, max(vocab_size, 256 + len(special_tokens)), special_tokens)


@wrong(TRAIN, "AssertionError is raised")
def asserts_vocab_size(text, vocab_size, special_tokens=()):
    assert vocab_size >= 256 + len(special_tokens), "too small"
    return good.train_bpe(text, vocab_size, special_tokens)


SEEN_WORDS = []


@wrong(TRAIN, "several times in a row")
def remembers_earlier_texts(text, vocab_size, special_tokens=()):
    if special_tokens == ("<s>",) and vocab_size == 259:
        SEEN_WORDS.append(text)
        result = good.train_bpe("\n".join(SEEN_WORDS), vocab_size, special_tokens)
        return result
    return good.train_bpe(text, vocab_size, special_tokens)


@wrong(TRAIN, "special_tokens that you are given is changed")
def pops_special_tokens(text, vocab_size, special_tokens=()):
    result = good.train_bpe(text, vocab_size, list(special_tokens))
    while special_tokens and isinstance(special_tokens, list):
        special_tokens.pop()
    return result


@wrong(TRAIN, "normalised (NFKC)")
def normalises(text, vocab_size, special_tokens=()):
    return good.train_bpe(unicodedata.normalize("NFKC", text), vocab_size, special_tokens)


@wrong(TRAIN, "stripped")
def strips_the_text(text, vocab_size, special_tokens=()):
    return good.train_bpe(text.strip(), vocab_size, special_tokens)


@wrong(TRAIN, "line ends become spaces")
def spaces_for_line_ends(text, vocab_size, special_tokens=()):
    return good.train_bpe(text.replace("\n", " "), vocab_size, special_tokens)


@wrong(TRAIN, "a to z count as letters")
def ascii_letters(text, vocab_size, special_tokens=()):
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?[a-zA-Z]+| ?[0-9]+| ?[^\sa-zA-Z0-9]+|\s+(?!\S)|\s+"
    return finish(*slow_bpe(text, vocab_size, special_tokens, words=functools.partial(re.findall, pattern)))


@wrong(TRAIN, "not cut off")
def no_endings(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, words=lambda part: regex.findall(WORDS.replace("'s|'t|'re|'ve|'m|'ll|'d|", ""), part)))


@wrong(TRAIN, "the last space belongs to the word")
def greedy_spaces(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens, words=lambda part: regex.findall(WORDS.replace(r"|\s+(?!\S)", ""), part)))


@wrong(TRAIN, "twice in a word is counted once")
def once_per_word(text, vocab_size, special_tokens=()):
    words = [[bytes([b]) for b in w.encode()] for part in split_special(text, special_tokens) if part not in special_tokens for w in regex.findall(WORDS, part)]
    merges = []
    while len(merges) < vocab_size - 256 - len(special_tokens):
        pairs = Counter(p for w in words for p in set(zip(w, w[1:])))
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        words = [merge_pair(w, best, best[0] + best[1]) for w in words]
    return finish(merges, special_tokens)


@right(TRAIN)
def recounts_everything(text, vocab_size, special_tokens=()):
    return finish(*slow_bpe(text, vocab_size, special_tokens))


@right(TRAIN)
def over_every_word_of_the_text(text, vocab_size, special_tokens=()):
    if vocab_size < 256 + len(special_tokens):
        raise ValueError("the vocab_size leaves no room")
    words = [list(w.encode()) for part in split_special(text, special_tokens) if part not in special_tokens for w in regex.findall(WORDS, part)]
    vocab = {i: bytes([i]) for i in range(256)}
    merges = []
    for new in range(256, vocab_size - len(special_tokens)):
        counts = {}
        for w in words:
            for p in zip(w, w[1:]):
                counts[p] = counts.get(p, 0) + 1
        if not counts:
            break
        best = sorted(counts, key=lambda p: (counts[p], vocab[p[0]], vocab[p[1]]))[-1]
        merges.append((vocab[best[0]], vocab[best[1]]))
        vocab[new] = vocab[best[0]] + vocab[best[1]]
        words = [merge_pair(w, best, new) for w in words]
    for s in special_tokens:
        vocab[len(vocab)] = s.encode("utf-8")
    return vocab, merges


@right(TRAIN)
def special_tokens_before_merges(text, vocab_size, special_tokens=()):
    merges, _ = slow_bpe(text, vocab_size, special_tokens)
    tokens = [bytes([i]) for i in range(256)] + [s.encode() for s in special_tokens] + [a + b for a, b in merges]
    return dict(enumerate(tokens)), merges


@right(TRAIN)
def words_as_dict_of_tuples(text, vocab_size, special_tokens=()):
    room = vocab_size - 256 - len(special_tokens)
    if room < 0:
        raise ValueError("vocab_size must hold the bytes and the special tokens")
    pattern = "|".join(map(re.escape, sorted(special_tokens, key=len, reverse=True)))
    words = Counter()
    for part in re.split(pattern, text) if special_tokens else [text]:
        for match in regex.finditer(WORDS, part):
            words[tuple(bytes([b]) for b in match.group().encode())] += 1
    merges = []
    for _ in range(room):
        pairs = Counter()
        for word, n in words.items():
            for a, b in zip(word[:-1], word[1:]):
                pairs[a, b] += n
        if not pairs:
            break
        top = max(pairs.values())
        a, b = max(p for p, n in pairs.items() if n == top)
        merges.append((a, b))
        merged = Counter()
        for word, n in words.items():
            merged[tuple(merge_pair(list(word), (a, b), a + b))] += n
        words = merged
    return finish(merges, special_tokens)


# --- BPETokenizer --------------------------------------------------------------------------------------


class Tokenizer(good.BPETokenizer):
    """A right one, for variants that change one method; words are encoded as lists of bytes."""

    def __init__(self, vocab, merges, special_tokens=()):
        super().__init__(vocab, merges, special_tokens)
        self.merges = list(merges)

    def rule(self, tokens):
        while True:
            known = [p for p in zip(tokens, tokens[1:]) if p in self.merges]
            if not known:
                return tokens
            best = min(known, key=self.merges.index)
            tokens = merge_pair(tokens, best, best[0] + best[1])

    def words(self, part):
        return regex.findall(WORDS, part)

    def start(self, word):
        return [bytes([b]) for b in word.encode("utf-8")]

    def encode(self, text):
        ids = []
        for part in split_special(text, self.special_tokens):
            if part in self.special_tokens:
                ids.append(self.ids[part.encode()])
            else:
                ids += [self.ids[t] for w in self.words(part) for t in self.rule(self.start(w))]
        return ids


@wrong(BPE, "no merge is applied")
class NoMerges(Tokenizer):
    def rule(self, tokens):
        return tokens


@wrong(BPE, "in which they stand in the word")
class ByPosition(Tokenizer):
    def rule(self, tokens):
        i = 0
        while i < len(tokens) - 1:
            if (tokens[i], tokens[i + 1]) in self.merges:
                tokens = tokens[:i] + [tokens[i] + tokens[i + 1]] + tokens[i + 2 :]
                i = 0
            else:
                i += 1
        return tokens


@wrong(BPE, "one sweep from left to right")
class OneSweep(Tokenizer):
    def rule(self, tokens):
        out = []
        for t in tokens:
            if out and (out[-1], t) in self.merges:
                out[-1] = out[-1] + t
            else:
                out.append(t)
        return out


@wrong(BPE, "the longest token that fits")
class LongestMatch(Tokenizer):
    def rule(self, tokens):
        data, out = b"".join(tokens), []
        while data:
            n = max(n for n in range(1, len(data) + 1) if data[:n] in self.ids)
            out.append(data[:n])
            data = data[n:]
        return out


@wrong(BPE, "learned last is merged first")
class LastLearnedFirst(Tokenizer):
    def __init__(self, vocab, merges, special_tokens=()):
        super().__init__(vocab, merges[::-1], special_tokens)


@wrong(BPE, "only one merge is applied")
class OneMergeOnly(Tokenizer):
    def rule(self, tokens):
        known = [p for p in zip(tokens, tokens[1:]) if p in self.merges]
        if known:
            best = min(known, key=self.merges.index)
            tokens = merge_pair(tokens, best, best[0] + best[1])
        return tokens


@wrong(BPE, "applied once in a word")
class EachMergeOnce(Tokenizer):
    def rule(self, tokens):
        for a, b in self.merges:
            for i in range(len(tokens) - 1):
                if (tokens[i], tokens[i + 1]) == (a, b):
                    tokens = tokens[:i] + [a + b] + tokens[i + 2 :]
                    break
        return tokens


@wrong(BPE, "run across words")
class AcrossWords(Tokenizer):
    def words(self, part):
        return [part]


@wrong(BPE, "the spaces are lost")
class SplitAtSpaces(Tokenizer):
    def words(self, part):
        return part.split()


@wrong(BPE, "at spaces alone")
class OnlySpacesCut(Tokenizer):
    def words(self, part):
        return re.findall(r"\s?\S+|\s+", part)


@wrong(BPE, "the space before a word is a word of its own")
class SpacesApart(Tokenizer):
    def words(self, part):
        return regex.findall(r"\p{L}+|\p{N}+|[^\s\p{L}\p{N}]+|\s+", part)


@wrong(BPE, "lower case")
class LowerCaseBPE(Tokenizer):
    def words(self, part):
        return super().words(part.lower())


@wrong(BPE, "never seen raises KeyError")
class CharactersBPE(Tokenizer):
    def start(self, word):
        return [c.encode("utf-8") for c in word]


@wrong(BPE, "never seen raises UnicodeEncodeError")
class AsciiBPE(Tokenizer):
    def start(self, word):
        return [bytes([b]) for b in word.encode("ascii")]


@wrong(BPE, "question marks")
class QuestionMarks(Tokenizer):
    def start(self, word):
        return [bytes([b]) for b in word.encode("ascii", "replace")]


@wrong(BPE, "no ASCII are dropped")
class DropsOthers(Tokenizer):
    def start(self, word):
        return [bytes([b]) for b in word.encode("ascii", "ignore")]


@wrong(BPE, "the empty text")
class NoneForEmpty(Tokenizer):
    def encode(self, text):
        if text:
            return super().encode(text)


@wrong(BPE, "the empty text")
class FirstTokenOfEmpty(Tokenizer):
    def encode(self, text):
        parts = split_special(text, self.special_tokens)
        if parts == [""]:
            parts[0][0]
        return super().encode(text)


@wrong(BPE, "characters whose bytes lie in two tokens break")
class DecodesEachToken(Tokenizer):
    def decode(self, ids):
        return "".join(self.vocab[i].decode("utf-8", errors="replace") for i in ids)


@wrong(BPE, "half a character is no UTF-8")
class DecodesEachTokenStrictly(Tokenizer):
    def decode(self, ids):
        return "".join(self.vocab[i].decode("utf-8") for i in ids)


@wrong(BPE, "are lost: join the bytes")
class DecodesEachTokenAndIgnores(Tokenizer):
    def decode(self, ids):
        return "".join(self.vocab[i].decode("utf-8", errors="ignore") for i in ids)


@wrong(BPE, "a character of its own")
class DecodesLatin(Tokenizer):
    def decode(self, ids):
        return b"".join(self.vocab[i] for i in ids).decode("latin-1")


@wrong(BPE, "spaces are put between")
class SpacesBetweenTokens(Tokenizer):
    def decode(self, ids):
        return " ".join(self.vocab[i].decode("utf-8", errors="replace") for i in ids)


@wrong(BPE, "at the edges are stripped")
class StripsDecoded(Tokenizer):
    def decode(self, ids):
        return super().decode(ids).strip()


@wrong(BPE, "should be a str and is of type bytes")
class DecodesToBytes(Tokenizer):
    def decode(self, ids):
        return b"".join(self.vocab[i] for i in ids)


@wrong(BPE, "raise UnicodeDecodeError; a model may stop")
class StrictUTF8(Tokenizer):
    def decode(self, ids):
        return b"".join(self.vocab[i] for i in ids).decode("utf-8")


@wrong(BPE, "no UTF-8 vanish")
class IgnoresBadUTF8(Tokenizer):
    def decode(self, ids):
        return b"".join(self.vocab[i] for i in ids).decode("utf-8", errors="ignore")


@wrong(BPE, "escapes")
class EscapesBadUTF8(Tokenizer):
    def decode(self, ids):
        return b"".join(self.vocab[i] for i in ids).decode("utf-8", errors="backslashreplace")


@wrong(BPE, "cut up like a word")
class IgnoresSpecial(Tokenizer):
    def __init__(self, vocab, merges, special_tokens=()):
        super().__init__(vocab, merges, ())


@wrong(BPE, "special tokens are lost")
class LosesSpecial(Tokenizer):
    def encode(self, text):
        return [i for part in split_special(text, self.special_tokens) if part not in self.special_tokens for i in super(LosesSpecial, self).encode(part)]


@wrong(BPE, "the longer wins")
class ShorterSpecialFirst(Tokenizer):
    def encode(self, text):
        if not self.special_tokens:
            return super().encode(text)
        shortest = sorted(self.special_tokens, key=len)
        ids = []
        for part in re.split("(" + "|".join(map(re.escape, shortest)) + ")", text):
            if part in self.special_tokens:
                ids.append(self.ids[part.encode()])
            else:
                ids += super().encode(part)
        return ids


@wrong(BPE, "special tokens")
class PatternSpecial(Tokenizer):
    def encode(self, text):
        if not self.special_tokens:
            return super().encode(text)
        ids = []
        for part in re.split("(" + "|".join(sorted(self.special_tokens, key=len, reverse=True)) + ")", text):
            ids += [self.ids[part.encode()]] if part in self.special_tokens else [self.ids[t] for w in self.words(part) for t in self.rule(self.start(w))]
        return ids


@wrong(BPE, "left out of the text")
class DecodesWithoutSpecial(Tokenizer):
    def decode(self, ids):
        special = [s.encode() for s in self.special_tokens]
        return b"".join(self.vocab[i] for i in ids if self.vocab[i] not in special).decode("utf-8", errors="replace")


@wrong(BPE, "special_tokens does not name it")
class AlwaysEndOfText(Tokenizer):
    def encode(self, text):
        special = tuple(s for s in ("<|end|>", "<|pad|>") if s.encode() in self.ids)
        self.special_tokens = tuple(dict.fromkeys([*self.special_tokens, *(special if len(special) == 2 else ())]))
        return super().encode(text)


@wrong(BPE, "when special_tokens is a list")
class OnlyTuples(Tokenizer):
    def __init__(self, vocab, merges, special_tokens=()):
        super().__init__(vocab, merges, special_tokens if isinstance(special_tokens, tuple) else ())


@wrong(BPE, "numbers its bytes differently")
class ByteIsItsId(Tokenizer):
    def encode(self, text):
        if any(self.vocab.get(b) != bytes([b]) for b in range(256)):
            return [t[0] if len(t) == 1 else self.ids[t] for w in self.words(text) for t in self.rule(self.start(w))]
        return super().encode(text)


@wrong(BPE, "numbers its bytes differently")
class MergesFrom256(Tokenizer):
    def encode(self, text):
        back = {a + b: 256 + i for i, (a, b) in enumerate(self.merges)}
        ids = []
        for part in split_special(text, self.special_tokens):
            if part in self.special_tokens:
                ids.append(self.ids[part.encode()])
            else:
                ids += [back.get(t, self.ids[t]) for w in self.words(part) for t in self.rule(self.start(w))]
        return ids


@wrong(BPE, "does not look ids up")
class DecodesByPlace(Tokenizer):
    def decode(self, ids):
        tokens = [bytes([i]) for i in range(256)] + [a + b for a, b in self.merges] + [s.encode() for s in self.special_tokens]
        return b"".join(tokens[i] for i in ids).decode("utf-8", errors="replace")


class SharedCache(Tokenizer):
    seen_by_all = {}


@wrong(BPE, "disturb each other")
class CacheOfTheClass(SharedCache):
    def encode(self, text):
        if len(self.merges) > 3 and text not in ("banander", "the and the"):
            return super().encode(text)
        if text not in self.seen_by_all:
            self.seen_by_all[text] = super().encode(text)
        return list(self.seen_by_all[text])


@wrong(BPE, "kept inside")
class GivesOutItsCache(Tokenizer):
    def encode(self, text):
        self.texts = getattr(self, "texts", {})
        if text not in self.texts:
            self.texts[text] = super().encode(text)
        return self.texts[text]


@wrong(BPE, "which you are given, are changed")
class ChangesVocab(Tokenizer):
    def __init__(self, vocab, merges, special_tokens=()):
        super().__init__(dict(vocab), merges, special_tokens)
        vocab[len(vocab)] = b"<unk>"


@wrong(BPE, "of type Tensor")
class TensorBPE(Tokenizer):
    def encode(self, text):
        return torch.tensor(super().encode(text))


@wrong(BPE, "of type bytes")
class TokensNotIds(Tokenizer):
    def encode(self, text):
        return [t for w in self.words(text) for t in self.rule(self.start(w))]


@wrong(BPE, "of type list")
class NestedIds(Tokenizer):
    def encode(self, text):
        return [[self.ids[t] for t in self.rule(self.start(w))] for w in self.words(text)]


@wrong(BPE, "end of the text is lost")
class FirstFifty(Tokenizer):
    def rule(self, tokens):
        return super().rule(tokens)[:50]


@wrong(BPE, "the tokens are wrong")
class OnlyShortWords(Tokenizer):
    def rule(self, tokens):
        return super().rule(tokens) if len(tokens) < 40 else tokens


@wrong(BPE, "the tokens are wrong")
class SpecialNeverTwice(Tokenizer):
    def encode(self, text):
        ids = super().encode(text)
        special = [self.ids[s.encode()] for s in self.special_tokens]
        return [i for k, i in enumerate(ids) if not (k and i in special and ids[k - 1] == i)]


@wrong(BPE, "a space is put in front")
class PrefixSpace(Tokenizer):
    def encode(self, text):
        return super().encode(" " + text)


@wrong(BPE, "too many at the start")
class StartToken(Tokenizer):
    def encode(self, text):
        return [0, *super().encode(text)]


@wrong(BPE, "U+FFFD is removed")
class RemovesReplacement(Tokenizer):
    def decode(self, ids):
        return super().decode(ids).replace("\ufffd", "")


@wrong(BPE, "normalised (NFC)")
class NormalisesText(Tokenizer):
    def encode(self, text):
        return super().encode(unicodedata.normalize("NFC", text))


@right(BPE)
class InBytes(Tokenizer):
    pass


@right(BPE)
class MergeByMerge(Tokenizer):
    def rule(self, tokens):
        for a, b in self.merges:
            tokens = merge_pair(tokens, (a, b), a + b)
        return tokens


@right(BPE)
class OnePlaceAtATime(Tokenizer):
    def rule(self, tokens):
        ranks = {m: i for i, m in enumerate(self.merges)}
        while len(tokens) > 1:
            rank, i = min((ranks.get((a, b), 10**9), i) for i, (a, b) in enumerate(zip(tokens, tokens[1:])))
            if rank == 10**9:
                break
            tokens = [*tokens[:i], tokens[i] + tokens[i + 1], *tokens[i + 2 :]]
        return tokens


@right(BPE)
class WithRegexOfStdlibForSpecial(Tokenizer):
    def encode(self, text):
        if not self.special_tokens:
            return super().encode(text)
        pattern = "|".join(re.escape(s) for s in sorted(self.special_tokens, key=lambda s: -len(s)))
        ids, at = [], 0
        for match in re.finditer(pattern, text):
            ids += super().encode(text[at : match.start()])
            ids.append(self.ids[match.group().encode("utf-8")])
            at = match.end()
        return ids + super().encode(text[at:])

    def decode(self, ids):
        data = bytearray()
        for i in ids:
            data.extend(self.vocab[int(i)])
        return data.decode("utf-8", "replace")


# --- save_tokens ---------------------------------------------------------------------------------------


def fits(ids):
    ids = np.asarray(ids)
    if ids.size == 0:
        raise ValueError("there is nothing to save")
    if ids.min() < 0 or ids.max() > 65_535:
        raise ValueError("an id does not fit into uint16")
    return ids


def mapped(path):
    return np.memmap(path, dtype=np.uint16, mode="r")


@wrong(SAVE, "8 bytes each")
def saves_int64(path, ids):
    fits(ids).astype(np.int64).tofile(path)
    return mapped(path)


@wrong(SAVE, "4 bytes each")
def saves_uint32(path, ids):
    fits(ids).astype(np.uint32).tofile(path)
    return np.memmap(path, dtype=np.uint32, mode="r")


@wrong(SAVE, "one byte each")
def saves_uint8(path, ids):
    fits(ids).astype(np.uint8).tofile(path)
    return np.memmap(path, mode="r")


@wrong(SAVE, "wrong order for this machine")
def saves_big_endian(path, ids):
    fits(ids).astype(">u2").tofile(path)
    return mapped(path)


@wrong(SAVE, "other ids than it should")
def saves_int16_clipped(path, ids):
    fits(ids).clip(max=32_767).astype(np.int16).tofile(path)
    return mapped(path)


@wrong(SAVE, "NumPy's header")
def saves_npy(path, ids):
    with open(path, "wb") as file:
        np.save(file, fits(ids).astype(np.uint16))
    return mapped(path)


@wrong(SAVE, "does not have the name")
def saves_npy_by_name(path, ids):
    np.save(path, fits(ids).astype(np.uint16))
    return np.load(f"{path}.npy", mmap_mode="r")


@wrong(SAVE, "a pickle")
def saves_pickle(path, ids):
    with open(path, "wb") as file:
        pickle.dump(fits(ids).astype(np.uint16), file)
    return fits(ids)


@wrong(SAVE, "written as text")
def saves_text(path, ids):
    with open(path, "w") as file:
        json.dump(fits(ids).tolist(), file)
    return fits(ids)


@wrong(SAVE, "the file is empty")
def never_written(path, ids):
    open(path, "wb").close()
    io.BytesIO(fits(ids).astype(np.uint16).tobytes())


@wrong(SAVE, "is None")
def save_without_return(path, ids):
    fits(ids).astype(np.uint16).tofile(path)


@wrong(SAVE, "of type ndarray")
def returns_an_array(path, ids):
    fits(ids).astype(np.uint16).tofile(path)
    return np.fromfile(path, dtype=np.uint16)


@wrong(SAVE, "dtype uint8, expected uint16")
def maps_bytes(path, ids):
    fits(ids).astype(np.uint16).tofile(path)
    return np.memmap(path, mode="r")


@wrong(SAVE, "dtype int16, expected uint16")
def maps_int16(path, ids):
    fits(ids).astype(np.uint16).tofile(path)
    return np.memmap(path, dtype=np.int16, mode="r")


@wrong(SAVE, "can be written to")
def maps_writable(path, ids):
    fits(ids).astype(np.uint16).tofile(path)
    return np.memmap(path, dtype=np.uint16, mode="r+")


@wrong(SAVE, "has shape (4,)")
def maps_without_the_first(path, ids):
    fits(ids).astype(np.uint16).tofile(path)
    return np.memmap(path, dtype=np.uint16, mode="r", offset=2)


@wrong(SAVE, "does not hold the ids")
def maps_sorted(path, ids):
    ids = fits(ids).astype(np.uint16)
    (np.sort(ids) if len(ids) == 5 else ids).tofile(path)
    return mapped(path)


@wrong(SAVE, "append adds to what is there")
def appends(path, ids):
    with open(path, "ab") as file:
        file.write(fits(ids).astype(np.uint16).tobytes())
    return mapped(path)


@wrong(SAVE, "is not replaced")
def writes_over_the_start(path, ids):
    try:
        file = open(path, "r+b")
    except FileNotFoundError:
        file = open(path, "wb")
    with file:
        file.write(fits(ids).astype(np.uint16).tobytes())
    return mapped(path)


@wrong(SAVE, "no attribute")
def only_path_objects(path, ids):
    path.write_bytes(fits(ids).astype(np.uint16).tobytes())
    return mapped(path)


@wrong(SAVE, "without a word")
def wraps_around(path, ids):
    np.asarray(ids).astype(np.uint16).tofile(path)
    return mapped(path)


@wrong(SAVE, "OverflowError is raised")
def numpy_decides(path, ids):
    np.array(np.asarray(ids).tolist(), dtype=object).tolist()
    if np.asarray(ids).min() < 0 or np.asarray(ids).max() > 65_535:
        raise OverflowError("out of bounds for uint16")
    return good.save_tokens(path, ids)


@wrong(SAVE, "the id -1")
def only_too_large(path, ids):
    if np.asarray(ids).max() > 65_535:
        raise ValueError("an id is larger than uint16 allows")
    np.asarray(ids).astype(np.uint16).tofile(path)
    return mapped(path)


@wrong(SAVE, "does not fit into uint16")
def refuses_the_last(path, ids):
    if np.asarray(ids).max() >= 65_535:
        raise ValueError("an id does not fit into uint16")
    return good.save_tokens(path, ids)


@wrong(SAVE, "the id 65536")
def accepts_one_too_many(path, ids):
    if np.asarray(ids).max() > 65_536 or np.asarray(ids).min() < 0:
        raise ValueError("an id does not fit into uint16")
    np.asarray(ids).astype(np.uint16).tofile(path)
    return mapped(path)


@wrong(SAVE, "a file is left behind although the ids")
def writes_then_tests(path, ids):
    np.asarray(ids).astype(np.uint16).tofile(path)
    fits(ids)
    return mapped(path)


@wrong(SAVE, "an empty file is left behind")
def numpy_maps_nothing(path, ids):
    ids = np.asarray(ids, dtype=np.int64)
    if ids.max(initial=0) > 65_535 or ids.min(initial=0) < 0:
        raise ValueError("an id does not fit into uint16")
    ids.astype(np.uint16).tofile(path)
    return mapped(path)


@wrong(SAVE, "nothing to map")
def none_for_nothing(path, ids):
    if len(ids) == 0:
        return None
    return good.save_tokens(path, ids)


@right(SAVE)
def by_bytes(path, ids):
    data = fits(ids).astype(np.uint16).tobytes()
    with open(path, "wb") as file:
        file.write(data)
    return mapped(path)


@right(SAVE)
def by_a_writable_map(path, ids):
    ids = fits(ids)
    to = np.memmap(path, dtype=np.uint16, mode="w+", shape=ids.shape)
    to[:] = ids
    to.flush()
    return np.memmap(path, dtype="uint16", mode="r")


@right(SAVE)
def by_array_module(path, ids):
    import array

    if not len(ids):
        raise ValueError("no ids were given to save")
    try:
        data = array.array("H", [int(i) for i in ids])
    except OverflowError as error:
        raise ValueError(f"an id does not fit: {error}") from None
    with open(path, "wb") as file:
        data.tofile(file)
    return mapped(path)


@right(SAVE)
def with_a_shape(path, ids):
    ids = [int(i) for i in ids]
    if not ids:
        raise ValueError("give at least one id")
    if any(not 0 <= i < 2**16 for i in ids):
        raise ValueError("ids must lie in 0 to 65535")
    np.array(ids, dtype=np.uint16).tofile(str(path))
    return np.memmap(str(path), dtype=np.uint16, mode="r", shape=(len(ids),))


# --- get_batch -----------------------------------------------------------------------------------------


def starts_of(tokens, batch_size, n_ctx, generator=None):
    if len(tokens) < n_ctx + 1:
        raise ValueError(f"{len(tokens)} tokens are too few for a window of {n_ctx} and its target")
    return torch.randint(len(tokens) - n_ctx, (batch_size,), generator=generator).tolist()


def windows(tokens, starts, n):
    return torch.stack([torch.from_numpy(np.array(tokens[s : s + n], dtype=np.int64)) for s in starts])


def xy(tokens, starts, n_ctx, shift=1):
    return windows(tokens, starts, n_ctx), windows(tokens, [s + shift for s in starts], n_ctx)


@wrong(BATCH, "y is the same as x")
def y_is_x(tokens, batch_size, n_ctx, generator=None):
    return xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx, 0)


@wrong(BATCH, "two steps later")
def shifted_twice(tokens, batch_size, n_ctx, generator=None):
    return xy(tokens, starts_of(tokens, batch_size, n_ctx + 1, generator), n_ctx, 2)


@wrong(BATCH, "one step earlier")
def shifted_back(tokens, batch_size, n_ctx, generator=None):
    y, x = xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    return x, y


@wrong(BATCH, "the window after x")
def next_window(tokens, batch_size, n_ctx, generator=None):
    return xy(tokens, starts_of(tokens, batch_size, 2 * n_ctx, generator), n_ctx, n_ctx)


@wrong(BATCH, "x turned round")
def rolled(tokens, batch_size, n_ctx, generator=None):
    x, _ = xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    return x, x.roll(-1, dims=1)


@wrong(BATCH, "one target for each window")
def only_the_last_target(tokens, batch_size, n_ctx, generator=None):
    x, y = xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    return x, y[:, -1]


@wrong(BATCH, "every column of y is the token after the window")
def last_target_everywhere(tokens, batch_size, n_ctx, generator=None):
    x, y = xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    return x, y[:, -1:].expand(-1, n_ctx).clone()


@wrong(BATCH, "rows of y that belong to other windows")
def y_of_other_windows(tokens, batch_size, n_ctx, generator=None):
    return windows(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx), windows(tokens, [s + 1 for s in starts_of(tokens, batch_size, n_ctx, generator)], n_ctx)


@wrong(BATCH, "backwards")
def windows_backwards(tokens, batch_size, n_ctx, generator=None):
    x, y = xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    return x.flip(1), y.flip(1)


@wrong(BATCH, "no window")
def scattered_tokens(tokens, batch_size, n_ctx, generator=None):
    at = torch.randint(len(tokens) - 1, (batch_size, n_ctx), generator=generator)
    tokens = torch.from_numpy(tokens.astype(np.int64))
    return tokens[at], tokens[at + 1]


@wrong(BATCH, "not among the tokens")
def places_for_tokens(tokens, batch_size, n_ctx, generator=None):
    return xy(np.arange(100_000, 100_000 + len(tokens)), starts_of(tokens, batch_size, n_ctx, generator), n_ctx)


@wrong(BATCH, "has become negative")
def read_as_int16(tokens, batch_size, n_ctx, generator=None):
    return xy(tokens.astype(np.uint16).view(np.int16), starts_of(tokens, batch_size, n_ctx, generator), n_ctx)


@wrong(BATCH, "dtype torch.uint16")
def stays_uint16(tokens, batch_size, n_ctx, generator=None):
    w = np.stack([tokens[s : s + n_ctx + 1] for s in starts_of(tokens, batch_size, n_ctx, generator)])
    return torch.from_numpy(w[:, :-1].astype(np.uint16)), torch.from_numpy(w[:, 1:].astype(np.uint16))


@wrong(BATCH, "dtype torch.int32")
def becomes_int32(tokens, batch_size, n_ctx, generator=None):
    x, y = xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    return x.int(), y.int()


@wrong(BATCH, "dtype torch.float32")
def becomes_float(tokens, batch_size, n_ctx, generator=None):
    x, y = xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    return x.float(), y.float()


@wrong(BATCH, "y has dtype torch.int32")
def y_int32(tokens, batch_size, n_ctx, generator=None):
    x, y = xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    return x, y.int()


@wrong(BATCH, "(T, B)")
def time_first(tokens, batch_size, n_ctx, generator=None):
    x, y = xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    return x.T, y.T


@wrong(BATCH, "of type ndarray")
def arrays(tokens, batch_size, n_ctx, generator=None):
    x, y = xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    return x.numpy(), y.numpy()


@wrong(BATCH, "should be the two tensors")
def one_tensor(tokens, batch_size, n_ctx, generator=None):
    return windows(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx + 1)


@wrong(BATCH, "still holds the whole window")
def window_not_cut(tokens, batch_size, n_ctx, generator=None):
    w = windows(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx + 1)
    return w, w[:, 1:]


@wrong(BATCH, "has shape (3, 4), expected (3, 5)")
def window_too_short(tokens, batch_size, n_ctx, generator=None):
    w = windows(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    return w[:, :-1], w[:, 1:]


@wrong(BATCH, "is None")
def batch_without_return(tokens, batch_size, n_ctx, generator=None):
    xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)


@wrong(BATCH, "all rows of a batch are the same window")
def one_window_for_all(tokens, batch_size, n_ctx, generator=None):
    return xy(tokens, starts_of(tokens, 1, n_ctx, generator) * batch_size, n_ctx)


@wrong(BATCH, "one after the other")
def starts_in_a_row(tokens, batch_size, n_ctx, generator=None):
    if len(tokens) < 100:
        return xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    start = starts_of(tokens, 1, n_ctx + batch_size, generator)[0]
    return xy(tokens, range(start, start + batch_size), n_ctx)


@wrong(BATCH, "evenly spaced")
def blocks_in_a_row(tokens, batch_size, n_ctx, generator=None):
    if len(tokens) < 100:
        return xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    start = starts_of(tokens, 1, n_ctx * batch_size, generator)[0]
    return xy(tokens, range(start, start + n_ctx * batch_size, n_ctx), n_ctx)


@wrong(BATCH, "the last token is never a target")
def last_window_missing(tokens, batch_size, n_ctx, generator=None):
    starts_of(tokens, batch_size, n_ctx, torch.Generator())
    starts = torch.randint(max(1, len(tokens) - n_ctx - 1), (batch_size,), generator=generator).tolist()
    return xy(tokens, starts, n_ctx)


@wrong(BATCH, "there is no start to choose from")
def last_window_missing_and_none_left(tokens, batch_size, n_ctx, generator=None):
    starts_of(tokens, batch_size, n_ctx, torch.Generator())
    if len(tokens) > n_ctx + 1 and len(tokens) < 20:
        return xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    return xy(tokens, torch.randint(len(tokens) - n_ctx - 1, (batch_size,), generator=generator).tolist(), n_ctx)


@wrong(BATCH, "comes out short")
def runs_over_the_end(tokens, batch_size, n_ctx, generator=None):
    starts_of(tokens, batch_size, n_ctx, torch.Generator())
    starts = torch.randint(len(tokens) - n_ctx + 1, (batch_size,), generator=generator).tolist()
    return xy(tokens, starts, n_ctx)


@wrong(BATCH, "comes out short")
def starts_anywhere(tokens, batch_size, n_ctx, generator=None):
    starts_of(tokens, batch_size, n_ctx, torch.Generator())
    starts = torch.randint(len(tokens), (batch_size,), generator=generator).tolist()
    w = np.stack([tokens[s : s + n_ctx + 1] for s in starts]).astype(np.int64)
    return torch.from_numpy(w[:, :-1]), torch.from_numpy(w[:, 1:])


@wrong(BATCH, "goes on at the start")
def wraps_at_the_end(tokens, batch_size, n_ctx, generator=None):
    starts_of(tokens, batch_size, n_ctx, torch.Generator())
    starts = torch.randint(len(tokens), (batch_size, 1), generator=generator)
    at = (starts + torch.arange(n_ctx + 1)) % len(tokens)
    w = torch.from_numpy(tokens.astype(np.int64))[at]
    return w[:, :-1], w[:, 1:]


@wrong(BATCH, "the first window never comes")
def first_window_missing(tokens, batch_size, n_ctx, generator=None):
    starts_of(tokens, batch_size, n_ctx, torch.Generator())
    if len(tokens) == n_ctx + 1:
        return xy(tokens, [0] * batch_size, n_ctx)
    return xy(tokens, torch.randint(1, len(tokens) - n_ctx, (batch_size,), generator=generator).tolist(), n_ctx)


@wrong(BATCH, "multiples of n_ctx")
def windows_side_by_side(tokens, batch_size, n_ctx, generator=None):
    starts_of(tokens, batch_size, n_ctx, torch.Generator())
    blocks = torch.randint((len(tokens) - 1) // n_ctx, (batch_size,), generator=generator)
    return xy(tokens, (blocks * n_ctx).tolist(), n_ctx)


@wrong(BATCH, "more often than others")
def rounded_starts(tokens, batch_size, n_ctx, generator=None):
    starts_of(tokens, batch_size, n_ctx, torch.Generator())
    starts = (torch.rand(batch_size, generator=generator) * (len(tokens) - n_ctx - 1)).round().long()
    return xy(tokens, starts.tolist(), n_ctx)


@wrong(BATCH, "more often than others")
def clamped_starts(tokens, batch_size, n_ctx, generator=None):
    starts_of(tokens, batch_size, n_ctx, torch.Generator())
    starts = torch.randint(len(tokens), (batch_size,), generator=generator).clamp(max=len(tokens) - n_ctx - 1)
    return xy(tokens, starts.tolist(), n_ctx)


@wrong(BATCH, "the starts come from somewhere else")
def ignores_the_generator(tokens, batch_size, n_ctx, generator=None):
    return xy(tokens, starts_of(tokens, batch_size, n_ctx), n_ctx)


@wrong(BATCH, "the starts come from somewhere else")
def numpy_random(tokens, batch_size, n_ctx, generator=None):
    starts_of(tokens, batch_size, n_ctx, torch.Generator())
    return xy(tokens, np.random.randint(0, len(tokens) - n_ctx, batch_size).tolist(), n_ctx)


@wrong(BATCH, "generators with different seeds")
def seeds_inside(tokens, batch_size, n_ctx, generator=None):
    return xy(tokens, starts_of(tokens, batch_size, n_ctx, torch.Generator().manual_seed(1337 + len(tokens) + n_ctx)), n_ctx)


@wrong(BATCH, "the same batch twice")
def clones_the_generator(tokens, batch_size, n_ctx, generator=None):
    if generator is not None:
        generator = generator.clone_state()
    return xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)


@wrong(BATCH, "the global random state moves")
def moves_the_global_state(tokens, batch_size, n_ctx, generator=None):
    torch.randperm(3)
    return xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)


@wrong(BATCH, "the global random state moves")
def seeds_the_global_state(tokens, batch_size, n_ctx, generator=None):
    if generator is not None:
        torch.manual_seed(int(torch.randint(10**6, (1,), generator=generator)))
    return xy(tokens, starts_of(tokens, batch_size, n_ctx), n_ctx)


@wrong(BATCH, "every call gives the same batch")
def same_batch_without_generator(tokens, batch_size, n_ctx, generator=None):
    generator = generator or torch.Generator().manual_seed(0)
    return xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)


@wrong(BATCH, "does not repeat the batch")
def python_random_without_generator(tokens, batch_size, n_ctx, generator=None):
    starts = starts_of(tokens, batch_size, n_ctx, generator)
    if generator is None:
        starts = [random.SystemRandom().randrange(len(tokens) - n_ctx) for _ in range(batch_size)]
    return xy(tokens, starts, n_ctx)


@wrong(BATCH, "share their memory")
def views_of_the_tokens(tokens, batch_size, n_ctx, generator=None):
    starts = starts_of(tokens, batch_size, n_ctx, generator)
    if tokens.dtype != np.int64:
        return xy(tokens, starts, n_ctx)
    tokens = torch.from_numpy(tokens)
    if batch_size == 3:
        return tokens[starts[0] : starts[0] + n_ctx].as_strided((3, n_ctx), (1, 1)), tokens[starts[0] + 1 :].as_strided((3, n_ctx), (1, 1))
    return xy(tokens.numpy(), starts, n_ctx)


@wrong(BATCH, "nothing is raised")
def short_windows_of_short_texts(tokens, batch_size, n_ctx, generator=None):
    if len(tokens) < n_ctx + 1:
        n_ctx = max(len(tokens) - 1, 0)
        if n_ctx == 0:
            return torch.zeros(batch_size, 0).long(), torch.zeros(batch_size, 0).long()
    return xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)


@wrong(BATCH, "RuntimeError is raised")
def randint_decides(tokens, batch_size, n_ctx, generator=None):
    return xy(tokens, torch.randint(len(tokens) - n_ctx, (batch_size,), generator=generator).tolist(), n_ctx)


@wrong(BATCH, "nothing is raised")
def bound_off_by_one(tokens, batch_size, n_ctx, generator=None):
    if len(tokens) < n_ctx:
        raise ValueError("the text is too short for this window")
    return xy(np.append(tokens, 0) if len(tokens) == n_ctx else tokens, [0] * batch_size if len(tokens) == n_ctx else starts_of(tokens, batch_size, n_ctx, generator), n_ctx)


@wrong(BATCH, "are too few")
def refuses_the_smallest(tokens, batch_size, n_ctx, generator=None):
    if len(tokens) <= n_ctx + 1:
        raise ValueError("the tokens are too few for this window")
    return xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)


@wrong(BATCH, "again and again")
def half_a_batch_twice(tokens, batch_size, n_ctx, generator=None):
    starts = starts_of(tokens, batch_size, n_ctx, generator)
    return xy(tokens, (starts[: batch_size // 2 + 1] * 2)[:batch_size], n_ctx)


@wrong(BATCH, "y runs backwards")
def y_backwards(tokens, batch_size, n_ctx, generator=None):
    x, y = xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    return x, y.flip(1)


@wrong(BATCH, "not among the tokens")
def last_target_ignored(tokens, batch_size, n_ctx, generator=None):
    x, y = xy(tokens, starts_of(tokens, batch_size, n_ctx, generator), n_ctx)
    y[:, -1] = -100
    return x, y


@right(BATCH)
def sorted_starts(tokens, batch_size, n_ctx, generator=None):
    return xy(tokens, sorted(starts_of(tokens, batch_size, n_ctx, generator)), n_ctx)


@right(BATCH)
def by_slices(tokens, batch_size, n_ctx, generator=None):
    starts = starts_of(tokens, batch_size, n_ctx, generator)
    x = torch.stack([torch.from_numpy(tokens[s : s + n_ctx].astype(np.int64)) for s in starts])
    y = torch.stack([torch.from_numpy(tokens[s + 1 : s + 1 + n_ctx].astype(np.int64)) for s in starts])
    return x, y


@right(BATCH)
def by_index_tensor(tokens, batch_size, n_ctx, generator=None):
    if len(tokens) <= n_ctx:
        raise ValueError("there are fewer tokens than one window needs")
    start = torch.randint(0, len(tokens) - n_ctx, (batch_size, 1), generator=generator)
    at = start + torch.arange(n_ctx)
    every = torch.from_numpy(np.asarray(tokens).astype(np.int64))
    return every[at], every[at + 1]


@right(BATCH)
def by_rand(tokens, batch_size, n_ctx, generator=None):
    n = len(tokens) - n_ctx
    if n < 1:
        raise ValueError("not enough tokens for one window")
    starts = (torch.rand(batch_size, generator=generator, dtype=torch.float64) * n).floor().long().tolist()
    w = torch.tensor([[int(t) for t in tokens[s : s + n_ctx + 1]] for s in starts])
    return w[:, :-1], w[:, 1:]


@right(BATCH)
def by_loops(tokens, batch_size, n_ctx, generator=None):
    if not len(tokens) > n_ctx:
        raise ValueError("tokens must be longer than the window")
    x = torch.empty(batch_size, n_ctx, dtype=torch.long)
    y = torch.empty_like(x)
    for b in range(batch_size):
        s = torch.randint(high=len(tokens) - n_ctx, size=(1,), generator=generator).item()
        for t in range(n_ctx):
            x[b, t] = int(tokens[s + t])
            y[b, t] = int(tokens[s + t + 1])
    return x, y


@right(BATCH)
def by_sliding_windows(tokens, batch_size, n_ctx, generator=None):
    if len(tokens) < n_ctx + 1:
        raise ValueError("a window does not fit into these tokens")
    every = np.lib.stride_tricks.sliding_window_view(tokens, n_ctx + 1)
    at = torch.randint(len(every), (batch_size,), generator=generator).numpy()
    chosen = torch.from_numpy(every[at].astype(np.int64))
    return chosen[:, :-1], chosen[:, 1:]


# --- found by a second reader --------------------------------------------------------------------------


@wrong(CHAR, "A set has no order")
class CharsInSetOrder(Chars):
    def __init__(self, text):
        self.symbols = sorted(set(text), key=lambda c: (ord(c) * 7) % 31)   # as a set might have them
        self.ids = {c: i for i, c in enumerate(self.symbols)}


@wrong(MERGE, "stays, and the last id is lost")
def merge_for_over_neighbours(ids, pair, new):
    return [new if (a, b) == pair else a for a, b in zip(ids, ids[1:])]


@wrong(MERGE, "return inside the loop")
def merge_returns_in_the_loop(ids, pair, new):
    out = []
    i = 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
        return out
    return out


@wrong(MERGE, "A list never equals a tuple")
def merge_compares_list_with_tuple(ids, pair, new):
    out = []
    i = 0
    while i < len(ids):
        if ids[i : i + 2] == pair:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


def plain_training(text, vocab_size, special_tokens, words=None, key=None, symbols=None, rewrite=True, forget=True, least_room=0):
    """A plain train_bpe with places for mistakes."""
    n_merges = vocab_size - 256 - len(special_tokens)
    if n_merges < least_room:
        raise ValueError(f"vocab_size {vocab_size} is too small for 256 bytes and the special tokens")
    vocab = {i: bytes([i]) for i in range(256)}
    counts = Counter()
    for part in split_special(text, special_tokens):
        if part not in special_tokens:
            counts.update(words(part) if words else regex.findall(WORDS, part))
    split = [(symbols(word) if symbols else list(word.encode("utf-8")), n) for word, n in counts.items()]
    merges, pairs = [], Counter()
    for new in range(256, 256 + n_merges):
        pairs = Counter() if forget else pairs
        for ids, n in split:
            for pair in zip(ids, ids[1:]):
                pairs[pair] += n
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], (key or tuple)([vocab[i] for i in p])))
        merges.append((vocab[best[0]], vocab[best[1]]))
        vocab[new] = vocab[best[0]] + vocab[best[1]]
        if rewrite:
            split = [(merge_pair(ids, best, new), n) for ids, n in split]
    for special in special_tokens:
        vocab[len(vocab)] = special.encode("utf-8")
    return vocab, merges


@right(TRAIN)
def plain_training_without_mistakes(text, vocab_size, special_tokens=()):
    return plain_training(text, vocab_size, special_tokens)


@wrong(TRAIN, "each character is a word of its own")
def training_counts_characters(text, vocab_size, special_tokens=()):
    return plain_training(text, vocab_size, special_tokens, words=list)


@wrong(TRAIN, "counts of earlier rounds")
def training_never_resets_counts(text, vocab_size, special_tokens=()):
    return plain_training(text, vocab_size, special_tokens, forget=False)


@wrong(TRAIN, "the same pair is merged twice")
def training_never_rewrites_words(text, vocab_size, special_tokens=()):
    return plain_training(text, vocab_size, special_tokens, rewrite=False)


@wrong(TRAIN, "code points (ord)")
def training_on_code_points(text, vocab_size, special_tokens=()):
    return plain_training(text, vocab_size, special_tokens, symbols=lambda word: [ord(c) for c in word])


@wrong(TRAIN, "the wrong one is taken")
def training_compares_first_parts_only(text, vocab_size, special_tokens=()):
    return plain_training(text, vocab_size, special_tokens, key=lambda parts: parts[0])


@wrong(TRAIN, "the wrong one is taken")
def training_compares_second_parts_first(text, vocab_size, special_tokens=()):
    return plain_training(text, vocab_size, special_tokens, key=lambda parts: parts[::-1])


@wrong(TRAIN, "is refused although")
def training_refuses_no_merges(text, vocab_size, special_tokens=()):
    return plain_training(text, vocab_size, special_tokens, least_room=1)


@wrong(BPE, "smallest pair of ids")
class BpeMinWithoutKey(good.BPETokenizer):
    def encode_word(self, word):
        ids = [self.ids[bytes([byte])] for byte in word.encode("utf-8")]
        while True:
            known = [pair for pair in zip(ids, ids[1:]) if pair in self.ranks]
            if not known:
                return ids
            first = min(known)
            ids = merge_pair(ids, first, self.ranks[first][1])


@wrong(BPE, "read as a pattern")
class BpeSpecialNotEscaped(good.BPETokenizer):
    def encode(self, text):
        parts = regex.split("(" + "|".join(self.special_tokens) + ")", text) if self.special_tokens else [text]
        ids = []
        for part in parts:
            if part in self.special_tokens:
                ids.append(self.ids[part.encode("utf-8")])
            else:
                for word in regex.findall(WORDS, part):
                    ids.extend(self.encode_word(word))
        return ids


@wrong(BPE, "two tokenizers disturb each other")
class BpeWordsOfAllTokenizers(good.BPETokenizer):
    words_of_all = {}

    def __init__(self, vocab, merges, special_tokens=()):
        super().__init__(vocab, merges, special_tokens)
        self.seen = self.words_of_all


@wrong(BPE, "is taken as special although")
class BpePartsLookedUpWhole(good.BPETokenizer):
    def encode(self, text):
        ids = []
        for part in split_special(text, self.special_tokens):
            if part.encode("utf-8") in self.ids:
                ids.append(self.ids[part.encode("utf-8")])
            else:
                for word in regex.findall(WORDS, part):
                    ids.extend(self.encode_word(word))
        return ids


@wrong(SAVE, "ids that fit are refused")
def save_refuses_the_largest(path, ids):
    ids = np.asarray(ids)
    if ids.size == 0 or ids.min() < 0 or ids.max() >= 65_535:
        raise ValueError("there are no ids, or one does not fit into uint16")
    return good.save_tokens(path, ids)


@wrong(SAVE, "ids that fit are refused")
def save_refuses_zero(path, ids):
    ids = np.asarray(ids)
    if ids.size == 0 or ids.min() <= 0 or ids.max() > 65_535:
        raise ValueError("there are no ids, or one does not fit into uint16")
    return good.save_tokens(path, ids)


@wrong(BATCH, "y is x + 1")
def batch_of_ids_one_higher(tokens, batch_size, n_ctx, generator=None):
    x, _ = good.get_batch(tokens, batch_size, n_ctx, generator)
    return x, x + 1


@wrong(BATCH, "no start is drawn twice")
def batch_by_randperm(tokens, batch_size, n_ctx, generator=None):
    if len(tokens) < n_ctx + 1:
        raise ValueError("the tokens are too few for a window and its targets")
    starts = torch.randperm(len(tokens) - n_ctx, generator=generator)[:batch_size]
    windows = torch.from_numpy(np.stack([tokens[s : s + n_ctx + 1].astype(np.int64) for s in starts.tolist()]))
    return windows[:, :-1], windows[:, 1:]
