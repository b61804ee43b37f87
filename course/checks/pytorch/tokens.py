"""Checks of lesson 01: from text to batches. The oracles are str.replace, a plain BPE that recounts all pairs after
every merge, and OpenAI's rule for encoding (merge the pair that was learned first), on bytes and not on ids."""
import copy
import itertools
import numbers
import random
import tempfile
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import regex
import torch

from course.checks import checks, fail
from course.checks.pytorch import equal, is_tensor

CHAR = "pytorch.tokens.CharTokenizer"
MERGE = "pytorch.tokens.merge_pair"
TRAIN = "pytorch.tokens.train_bpe"
BPE = "pytorch.tokens.BPETokenizer"
SAVE = "pytorch.tokens.save_tokens"
BATCH = "pytorch.tokens.get_batch"

WORDS = regex.compile(r"'(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


# --- lists, strings and errors -------------------------------------------------------------------------


def short(x, most=70):
    text = repr(x)
    return text if len(text) <= most else text[: most - 4] + " ..."


def is_id_list(got, name):
    if got is None:
        fail(f"{name} is None. Is there a return at the end of every branch?")
    if not isinstance(got, list):
        fail(f"{name} should be a list of int and is of type {type(got).__name__}.")
    for item in got:
        if isinstance(item, bool) or not isinstance(item, numbers.Integral):
            fail(f"{name} should be a list of int; it holds {short(item, 40)}, of type {type(item).__name__}.")


def same_ids(got, want, name, known=(), look=""):
    """Fails unless the list got equals want: first as one of the known mistakes, then in general."""
    is_id_list(got, name)
    if got == want:
        return
    example = f"{name} is {short(got)}, expected {short(want)}"
    for mistake, value in known:
        value = value() if callable(value) else value
        if got == value and value != want:
            fail(mistake, example=example, look=look)
    fail(f"{name} is wrong.", example=example, look=look)


def same_text(got, want, name, known=(), look=""):
    if got is None:
        fail(f"{name} is None. Is there a return at the end of every branch?")
    if not isinstance(got, str):
        fail(f"{name} should be a str and is of type {type(got).__name__}.")
    if got == want:
        return
    example = f"{name} is {short(got)}, expected {short(want)}"
    for mistake, value in known:
        if got == value and value != want:
            fail(mistake, example=example, look=look)
    fail(f"{name} is wrong.", example=example, look=look)


def value_error(function, what, must_name=(), instead=""):
    """Fails unless function() raises ValueError with a sentence that holds one of the words must_name."""
    try:
        got = function()
    except ValueError as error:
        text = str(error)
        if len(text.split()) < 3:
            fail(f"{what}: the ValueError has no message, or hardly one; say in a sentence what is wrong.", example=f"the message is {text!r}")
        if must_name and not any(word in text for word in must_name):
            fail(f"{what}: the message of the ValueError does not say which it was.", example=f"the message is {short(text)}; it should hold {must_name[0]}")
        return
    except NotImplementedError:
        raise
    except Exception as error:
        fail(f"{what}: {type(error).__name__} is raised, expected ValueError with a sentence that says what is wrong.", look="test for it first, then: raise ValueError(...)")
    fail(f"{what}: nothing is raised, expected ValueError. {instead}".strip(), example=f"the call returned {short(got, 60)}", look="test for it first, then: raise ValueError(...)")


# --- CharTokenizer -------------------------------------------------------------------------------------

SENTENCE = "To be, or not to be:\nthat is the question.\tÉté ☃ 🙂 the end\r\n"


def char_mistakes(text, sentence):
    first_seen = list(dict.fromkeys(text))
    frequent = [c for c, _ in Counter(text).most_common()]
    right = sorted(set(text))
    small = sorted(set(text.lower()))

    def by(symbols, sentence=sentence, start=0):
        return [symbols.index(c) + start for c in sentence if c in symbols]

    return [
        ("ids are given in the order in which symbols first appear; they go by the sorted order of the symbols.", by(first_seen)),
        ("ids are given by frequency; they go by the sorted order of the symbols.", by(frequent)),
        ("ids start at 1, or something that is no symbol of the text has id 0; the first symbol has id 0, so that the ids are 0 to V - 1.", by(right, start=1)),
        ("the ids are code points (ord), which go far beyond the size of the vocabulary; they run from 0 to V - 1.", [ord(c) for c in sentence]),
        ("the ids are bytes of UTF-8; each symbol of the text has one id, from 0 to V - 1.", list(sentence.encode("utf-8"))),
        ("the text is made lower case, and capitals are lost.", by(small, sentence.lower())),
        ("the symbols are sorted in reverse.", by(right[::-1])),
        ("each symbol comes once: encode must give an id for every character of the text, in its order.", by(right, "".join(dict.fromkeys(sentence)))),
        ("spaces and line ends are dropped; they are symbols too.", by(right, "".join(sentence.split()))),
        ("spaces and line ends are dropped; they are symbols too.", by(sorted(set(text) - set(" \n\t\r")), "".join(sentence.split()))),
        ("spaces or line ends at the edges are stripped; they are symbols too.", by(right, sentence.strip())),
        ("the ids come in reverse order.", by(right)[::-1]),
        ("ids are places in the text; they are places among the sorted symbols.", [text.index(c) for c in sentence]),
    ]


@checks(CHAR, "ids in sorted order")
def char_ids(CharTokenizer):
    tokenizer = CharTokenizer("banana bread")
    try:
        tokenizer.encode("brand")
    except (KeyError, ValueError) as error:
        fail("a symbol of the text has no id: are the entries of the vocabulary words, and not characters?", example=f'after the text "banana bread", encode("brand") raises {type(error).__name__}: {error}')
    got, each = tokenizer.encode("brand"), tokenizer.encode(" abdenr")
    mixed = isinstance(each, list) and set(each) == set(range(7)) and each != list(range(7))
    unordered = "the ids are 0 to V - 1 and do not follow the sorted order of the symbols. A set has no order of its own: it can be another one at the next start of Python."
    same_ids(got, [2, 6, 1, 5, 3], 'the ids of "brand", after the text "banana bread",', known=char_mistakes("banana bread", "brand") + [(unordered, got if mixed else None)], look="the symbols are ' ', a, b, d, e, n, r, with ids 0 to 6")
    tokenizer = CharTokenizer(SENTENCE)
    right = sorted(set(SENTENCE))
    same_ids(tokenizer.encode(SENTENCE), [right.index(c) for c in SENTENCE], "encode of the text itself", known=char_mistakes(SENTENCE, SENTENCE))


@checks(CHAR, "decode")
def char_decode(CharTokenizer):
    tokenizer = CharTokenizer("banana bread")
    want = "bread and"
    same_text(tokenizer.decode([2, 6, 4, 1, 3, 0, 1, 5, 3]), want, "decode of the ids of 'bread and'", known=[
        ("the symbols are joined with a space between them; nothing belongs between.", " ".join(want)),
        ("each id is taken as a code point (chr); it is a place among the sorted symbols.", "".join(map(chr, [2, 6, 4, 1, 3, 0, 1, 5, 3]))),
        ("the text comes out in reverse.", want[::-1]),
        ("spaces are lost on the way back.", want.replace(" ", "")),
        ("spaces at the edges or double symbols are lost on the way back.", "".join(dict.fromkeys(want))),
        ("each id is one too high or too low on the way back.", "".join(" abdenr"[(i + 1) % 7] for i in [2, 6, 4, 1, 3, 0, 1, 5, 3])),
        ("each id is one too high or too low on the way back.", "".join(" abdenr"[i - 1] for i in [2, 6, 4, 1, 3, 0, 1, 5, 3])),
    ])


@checks(CHAR, "there and back")
def char_round_trip(CharTokenizer):
    for text in (SENTENCE, "x", "  two  spaces \n\n", "e\u0301 and é are different", "日本語と絵文字👩‍🚀"):
        tokenizer = CharTokenizer(text)
        try:
            ids = tokenizer.encode(text)
        except (KeyError, ValueError) as error:
            fail(
                "a symbol of the text itself has no id: the text is changed before its symbols are collected.",
                example=f"the text is {short(text, 40)}; encode of it raises {type(error).__name__}: {error}",
                look="strip, lower, normalize",
            )
        same_text(tokenizer.decode(ids), text, f"decode(encode({short(text, 40)}))", known=[
            ("spaces or line ends at the edges are stripped; they are symbols too.", text.strip()),
            ("line ends are changed; they are symbols too.", text.replace("\r\n", "\n")),
            ("capitals are lost.", text.lower()),
            ("runs of white space become one space.", " ".join(text.split())),
            ("symbols that are no ASCII are dropped.", text.encode("ascii", "ignore").decode()),
        ], look="changes of the text before the symbols are collected: strip, lower, normalize")


@checks(CHAR, "the empty text")
def char_empty(CharTokenizer):
    tokenizer = CharTokenizer("abc")
    same_ids(tokenizer.encode(""), [], 'encode("")')
    same_text(tokenizer.decode([]), "", "decode([])")


@checks(CHAR, "an unknown symbol")
def char_unknown(CharTokenizer):
    tokenizer = CharTokenizer("hello world")
    value_error(
        lambda: tokenizer.encode("hexagon"), "a symbol that the vocabulary does not have", must_name=("x", "a", "g", "n"),
        instead="Skipping it, or giving it the id of another symbol, changes the text without a word.",
    )
    value_error(
        lambda: tokenizer.encode("low☃"), "a symbol that the vocabulary does not have", must_name=("☃", r"\u2603"),
        instead="Skipping it, or giving it the id of another symbol, changes the text without a word.",
    )


@checks(CHAR, "two tokenizers side by side")
def char_two(CharTokenizer):
    first = CharTokenizer("abc")
    second = CharTokenizer("cxyz")
    first_ids, second_ids = attempt(lambda: first.encode("cab")), attempt(lambda: second.encode("zyxc"))
    if first_ids != [2, 0, 1] or second_ids != [3, 2, 1, 0]:
        fail(
            "two tokenizers disturb each other: what one learns from its text, the other sees.",
            example=f'after CharTokenizer("abc") and CharTokenizer("cxyz"), the first encodes "cab" as {short(first_ids)}, expected [2, 0, 1]; the second "zyxc" as {short(second_ids)}, expected [3, 2, 1, 0]',
            look="names set in the class body, or global ones: keep them on self",
        )


def attempt(function):
    try:
        return function()
    except (KeyError, ValueError, IndexError) as error:
        return error


# --- merge_pair ----------------------------------------------------------------------------------------


def expected_merge(ids, pair, new):
    """By str.replace, which works from left to right and without overlaps too."""
    text = "".join(map(chr, ids)).replace(chr(pair[0]) + chr(pair[1]), chr(new))
    return [ord(c) for c in text]


def merge_mistakes(ids, pair, new):
    found = [i for i in range(len(ids) - 1) if tuple(ids[i : i + 2]) == tuple(pair)]
    apart = []                                                # places without overlaps, from the left
    for i in found:
        if not apart or i >= apart[-1] + 2:
            apart.append(i)
    from_right = expected_merge(ids[::-1], pair[::-1], new)[::-1]
    kept_second = [x for i, a in enumerate(ids) for x in ([new, a] if i in apart else [a])]
    overlapped = []
    for i, a in enumerate(ids):
        if i in found:
            overlapped.append(new)
        elif i - 1 not in found:
            overlapped.append(a)
    either = []
    i = 0
    while i < len(ids):
        if i + 1 < len(ids) and {ids[i], ids[i + 1]} == set(pair):
            either.append(new)
            i += 2
        else:
            either.append(ids[i])
            i += 1
    no_jump = [new if i in found else a for i, a in enumerate(ids)]   # the second half stays
    return [
        ("pairs that overlap are both merged: of three equal ids in a row, the first two become new and the third stays.", overlapped),
        ("the merge goes from right to left: of three equal ids in a row, the first two are merged.", from_right),
        ("nothing is merged: does the comparison ever hold? A list never equals a tuple.", list(ids)),
        ("only the first place is merged; every place counts.", ids[: found[0]] + [new] + ids[found[0] + 2 :] if found else ids),
        ("only the last place is merged; every place counts.", ids[: found[-1]] + [new] + ids[found[-1] + 2 :] if found else ids),
        ("the second half of a merged pair stays: after a merge go on two places further, not one.", no_jump),
        ("the second half of a merged pair stays, and the last id is lost: after a merge go on two places further, not one, and end with the last id.", no_jump[:-1]),
        ("only the first place of the list comes back: is the return inside the loop?", expected_merge(ids[:2], pair, new)[:1]),
        ("the first half of a merged pair stays in the list.", [x for i, a in enumerate(ids) for x in ([a, new] if i in apart else [] if i - 1 in apart else [a])]),
        ("new is put in front of the pair, and the pair stays.", kept_second),
        ("the last id is lost when it belongs to no pair.", expected_merge(ids[:-1], pair, new)),
        ("a pair at the very end is not merged: where does the loop stop?", expected_merge(ids[:-1], pair, new) + ids[-1:]),
        ("a pair at the very end is not merged, and its last id is lost: where does the loop stop?", expected_merge(ids[:-1], pair, new)),
        ("a pair at the very start is not merged: where does the loop begin?", ids[:1] + expected_merge(ids[1:], pair, new)),
        ("the pair is merged the other way round too: (b, a) is not the pair (a, b).", either),
        ("the pair is taken the wrong way round: (b, a) is not the pair (a, b).", expected_merge(ids, pair[::-1], new)),
        ("only the first half of the pair is compared; both ids must fit.", first_only(ids, pair, new, 0)),
        ("only the second half of the pair is compared; both ids must fit.", first_only(ids, pair, new, 1)),
        ("every id of the pair is replaced, alone or not: the two must stand side by side.", [new if a in pair else a for a in ids]),
        ("the pair is removed and new is not put in its place.", [a for i, a in enumerate(ids) if i not in apart and i - 1 not in apart]),
        ("the merged pairs are collected, and the other ids are lost.", [new] * len(apart)),
        ("the first id of the pair is put in its place, not new.", expected_merge(ids, pair, pair[0])),
        ("the second id of the pair is put in its place, not new.", expected_merge(ids, pair, pair[1])),
        ("the last id is put at the end of the list even where it has been merged.", expected_merge(ids, pair, new) + ids[-1:]),
        ("ids are compared as text, digit by digit: 21, 2 is not the pair (1, 2).", [int(word) for word in " ".join(map(str, ids)).replace(f"{pair[0]} {pair[1]}", str(new)).split()]),
        ("the new token is put at the end; it belongs where the pair stood.", [a for i, a in enumerate(ids) if i not in apart and i - 1 not in apart] + [new] * len(apart)),
    ]


def first_only(ids, pair, new, half):
    out = []
    i = 0
    while i < len(ids):
        if i + 1 < len(ids) and ids[i + half] == pair[half]:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


def check_merge(merge_pair, ids, pair, new):
    given = list(ids)
    got = merge_pair(given, pair, new)
    if given != ids:
        fail(
            "the list you are given is changed; whoever called you still needs it.",
            example=f"after merge_pair(ids, {pair}, {new}) the list ids = {short(ids)} is {short(given)}",
            look="assignments into ids, del, pop and insert: build a new list instead",
        )
    same_ids(got, expected_merge(ids, pair, new), f"merge_pair({short(ids, 50)}, {pair}, {new})", known=merge_mistakes(ids, pair, new))


@checks(MERGE, "a pair in the middle")
def merge_middle(merge_pair):
    check_merge(merge_pair, [5, 1, 2, 3, 1, 2, 7, 2, 1, 4, 1, 5, 2, 6], (1, 2), 9)


@checks(MERGE, "a pair at the edges")
def merge_edges(merge_pair):
    for ids in ([3, 8, 3, 1, 3, 8, 5, 3, 8], [3, 8], [8, 3, 8], [3, 8, 8, 3]):
        check_merge(merge_pair, ids, (3, 8), 256)


@checks(MERGE, "equal ids in a row")
def merge_overlaps(merge_pair):
    for length in (3, 2, 4, 5):
        check_merge(merge_pair, [7] + [4] * length + [6], (4, 4), 300)
    check_merge(merge_pair, [4, 4, 4], (4, 4), 300)


@checks(MERGE, "nothing to merge")
def merge_nothing(merge_pair):
    for ids in ([], [1], [2, 1, 3, 2], [1, 1, 1]):
        check_merge(merge_pair, ids, (1, 2), 256)
    given = [5, 6, 7]
    got = merge_pair(given, (1, 2), 256)
    if got is given:
        fail("where there is nothing to merge, the very list you are given comes back: whoever changes the result changes the input.", look="return a new list in every case")


@checks(MERGE, "one pass")
def merge_one_pass(merge_pair):
    got = merge_pair([1, 2, 2, 2], (1, 2), 1)
    same_ids(got, [1, 2, 2], "merge_pair([1, 2, 2, 2], (1, 2), 1)", known=[
        ("a token that has just been made is merged again: one pass over the list, and what is new is not looked at again.", [1]),
    ])


@checks(MERGE, "random lists with large ids")
def merge_random(merge_pair):
    check_merge(merge_pair, [21, 2, 1, 23, 1, 2, 11, 2], (1, 2), 256)
    source = random.Random(3)
    for _ in range(200):
        base = source.choice([0, 250, 40_000])
        ids = [base + source.randrange(3) for _ in range(source.randrange(12))]
        pair = (base + source.randrange(3), base + source.randrange(3))
        check_merge(merge_pair, ids, pair, 60_000)


# --- train_bpe -----------------------------------------------------------------------------------------


def cut_special(text, special_tokens):
    """[(part, is it special)], the longest special token first."""
    parts, rest, ordered = [], "", sorted(special_tokens, key=len, reverse=True)
    i = 0
    while i < len(text):
        hit = next((s for s in ordered if text.startswith(s, i)), None)
        if hit is None:
            rest += text[i]
            i += 1
            continue
        parts += [(rest, False), (hit, True)]
        rest = ""
        i += len(hit)
    return [(part, special) for part, special in [*parts, (rest, False)] if part]


def plain_bpe(
    text, n_merges, special_tokens=(), words=WORDS.findall, weighted=True, pick=max, tie="bytes", symbols="bytes",
    whole=False, least=1, apart=False, once=False, per_word=False, keep_counts=False,
):
    """The merges, found by counting everything again for each; the options are mistakes."""
    counts = Counter()
    for part, special in ([(text, False)] if whole else cut_special(text, special_tokens)):
        if not special:
            counts.update(words(part))
    split = []
    for word, n in counts.items():
        tokens = [bytes([b]) for b in word.encode("utf-8")] if symbols == "bytes" else [c.encode("utf-8") for c in word]
        if symbols == "code points":
            tokens = [bytes([ord(c)]) if ord(c) < 256 else c.encode("utf-8") for c in word]
        split.append((tokens, n if weighted else 1))
    merges, made = [], {}                                     # made: token -> when
    pairs = Counter()
    for _ in range(n_merges):
        pairs = pairs if keep_counts else Counter()
        for tokens, n in split:
            i = 0
            seen = set()
            while i < len(tokens) - 1:
                pair = tokens[i], tokens[i + 1]
                pairs[pair] += 0 if per_word and pair in seen else n
                seen.add(pair)
                i += 2 if apart and pair[0] == pair[1] and tokens[i + 1 : i + 3] == [pair[1]] * 2 else 1
        if not pairs or max(pairs.values()) < least:
            break
        if tie == "bytes":
            best = pick(pairs, key=lambda p: (pairs[p], p))
        elif tie == "smaller":
            most = pick(pairs.values())
            best = min(p for p in pairs if pairs[p] == most)
        elif tie == "joined":
            best = pick(pairs, key=lambda p: (pairs[p], p[0] + p[1]))
        elif tie == "ids":
            best = pick(pairs, key=lambda p: (pairs[p], [made.get(t, -1) if t in made else -999 + t[0] for t in p]))
        elif tie == "smaller ids":
            best = pick(pairs, key=lambda p: (pairs[p], [-(made.get(t, -1) if t in made else -999 + t[0]) for t in p]))
        elif tie == "last":
            best = list(pairs)[::-1][[pairs[p] for p in list(pairs)[::-1]].index(pick(pairs.values()))]
        else:
            best = pick(pairs, key=pairs.get)
        made.setdefault(best[0] + best[1], len(merges))
        merges.append(best)
        split = [(replace(tokens, best, once), n) for tokens, n in split]
    return merges


def replace(tokens, pair, once=False):
    out = []
    i = 0
    done = False
    while i < len(tokens):
        if tuple(tokens[i : i + 2]) == pair and not (once and done):
            out.append(pair[0] + pair[1])
            done = True
            i += 2
        else:
            out.append(tokens[i])
            i += 1
    return out


def keep_spaces(text):
    return regex.findall(r"\s?\S+|\s+", text)


def spaces_apart(text):
    return regex.findall(r"\p{L}+|\p{N}+|[^\s\p{L}\p{N}]+|\s+", text)


no_endings = regex.compile(WORDS.pattern.replace(r"'(?:[stmd]|re|ve|ll)|", "")).findall
no_last_space = regex.compile(WORDS.pattern.replace(r"|\s+(?!\S)", "")).findall
only_ascii = regex.compile(r"'(?:[stmd]|re|ve|ll)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+").findall
CUTS = [
    ("pairs run across words: the text is not cut into words first.", lambda part: [part]),
    ("words are cut at spaces, and the spaces are lost: a word keeps the space before it.", str.split),
    ("the text is cut at spaces alone; punctuation, digits and endings like 's are words of their own.", keep_spaces),
    ("the space before a word is a word of its own; it belongs to the word after it.", spaces_apart),
    ("endings like 's and 'll are not cut off; they are words of their own.", no_endings),
    ("a run of spaces before a word keeps all of them; the last space belongs to the word.", no_last_space),
    ("only a to z count as letters; é and 日 are letters too.", only_ascii),
    ("each character is a word of its own, and inside it there is no pair to merge: cut the text into words.", list),
]


def bpe_mistakes(text, n, special_tokens=()):
    def by(**options):
        return lambda: plain_bpe(text, n, special_tokens, **options)

    found = [
        ("of pairs that are equally frequent, the one met first is taken; the greater pair of bytes wins.", by(tie="first")),
        ("of pairs that are equally frequent, the smaller pair of bytes is taken; the greater one wins.", by(tie="smaller")),
        ("of pairs that are equally frequent, the one met last is taken; the greater pair of bytes wins.", by(tie="last")),
        ("of pairs that are equally frequent, the one with the greater ids is taken; compare the bytes of the two tokens, not their ids.", by(tie="ids")),
        ("of pairs that are equally frequent, the one with the smaller ids is taken; the greater pair of bytes wins.", by(tie="smaller ids")),
        ("of pairs that are equally frequent, the one whose joined bytes are greater is taken; compare the two tokens as a pair: first with first, then second with second.", by(tie="joined")),
        ("each distinct word counts once; a word that stands ten times in the text counts ten times.", by(weighted=False)),
        ("the rarest pair is merged; the most frequent one it is.", by(pick=min)),
        *((words, by(words=cut)) for words, cut in CUTS),
        ("the text is made lower case.", lambda: plain_bpe(text.lower(), n, special_tokens)),
        ("spaces or line ends at the edges of the text are stripped.", lambda: plain_bpe(text.strip(), n, special_tokens)),
        ("line ends become spaces.", lambda: plain_bpe(text.replace("\n", " "), n, special_tokens)),
        *((f"the text is normalised ({form}): different texts become one.", lambda form=form: plain_bpe(unicodedata.normalize(form, text), n, special_tokens)) for form in ("NFC", "NFKC", "NFD", "NFKD")),
        ("characters are merged, not bytes: é is two bytes, and they are a pair like any other.", by(symbols="characters")),
        ("characters are taken by their code points (ord); a word is the bytes of its UTF-8.", by(symbols="code points")),
        ("the counts of earlier rounds are still in: count all pairs anew after each merge, or take away those that are gone.", by(keep_counts=True)),
        ("training stops when the most frequent pair is found only once; it goes on until vocab_size is reached or no pair is left.", by(least=2)),
        ("of three equal tokens in a row only one pair is counted; every two neighbours count.", by(apart=True)),
        ("a pair that is found twice in a word is counted once; every place counts.", by(per_word=True)),
        ("a pair is merged only once in each word; every place counts.", by(once=True)),
        ("each merge is the wrong way round: (second, first).", lambda: [(b, a) for a, b in plain_bpe(text, n, special_tokens)]),
        ("the merges stand in reverse order; the first that was learned comes first.", lambda: plain_bpe(text, n, special_tokens)[::-1]),
        ("there is one merge too few.", lambda: plain_bpe(text, n - 1, special_tokens)),
        ("there is one merge too many.", lambda: plain_bpe(text, n + 1, special_tokens)),
    ]
    if special_tokens:
        found[:0] = [
            ("special tokens are cut up and merged like words; the text must be split at them first.", by(whole=True)),
            ("special tokens have no room: they count among the vocab_size tokens, so there are fewer merges.", lambda: plain_bpe(text, n + len(special_tokens), special_tokens)),
            ("special tokens are removed and the text on both sides is joined: pairs must not run across them.", lambda: plain_bpe("".join(part for part, special in cut_special(text, special_tokens) if not special), n)),
            ("special tokens are replaced by a space: that space is counted.", lambda: plain_bpe("".join(" " if special else part for part, special in cut_special(text, special_tokens)), n)),
            (
                "of two special tokens that fit at one place, the shorter is taken, and the rest of the longer is trained on.",
                lambda: plain_bpe(text, n, sorted(special_tokens, key=len)[:1]),
            ),
            ("special tokens are read as a pattern: | and . have a meaning in regular expressions. Escape them.", lambda: unescaped(text, n, special_tokens)),
        ]
    return found


def unescaped(text, n, special_tokens):
    parts = regex.split("|".join(special_tokens), text)
    return plain_bpe("", n) if not parts else plain_bpe_of_parts(parts, n)


def plain_bpe_of_parts(parts, n):
    """Train on parts that are kept apart by a token that occurs nowhere."""
    fence = "\ue000\ue001"
    return plain_bpe(fence.join(p for p in parts if p), n, (fence,))


def is_pair_of_results(got):
    if got is None:
        fail("the result is None. Is there a return at the end of every branch?")
    if not isinstance(got, tuple) or len(got) != 2:
        fail(f"the result should be the two things (vocab, merges) and is of type {type(got).__name__}.")
    vocab, merges = got
    if isinstance(vocab, list) and isinstance(merges, dict):
        fail("the result is (merges, vocab), expected (vocab, merges).")
    if not isinstance(vocab, dict):
        fail(f"vocab should be a dict, id -> bytes, and is of type {type(vocab).__name__}.")
    if not isinstance(merges, list):
        fail(f"merges should be a list of pairs of bytes, in the order of learning, and is of type {type(merges).__name__}.")
    for key, value in vocab.items():
        if isinstance(key, bytes) and isinstance(value, int):
            fail("vocab is the wrong way round: bytes -> id, expected id -> bytes.")
        if isinstance(key, bool) or not isinstance(key, numbers.Integral):
            fail(f"the keys of vocab are ids, that is int; one is {short(key, 40)}, of type {type(key).__name__}.")
        if not isinstance(value, bytes):
            fail(f"vocab maps ids to bytes; vocab[{key}] is {short(value, 40)}, of type {type(value).__name__}.", look="special tokens, and bytes([i]) against chr(i) and str")
    for number, merge in enumerate(merges):
        if isinstance(merge, bytes):
            fail(f"a merge is a pair of bytes; merges[{number}] is {merge!r}, already joined.")
        if isinstance(merge, tuple) and len(merge) == 2 and all(isinstance(part, numbers.Integral) for part in merge):
            fail(f"a merge is a pair of bytes; merges[{number}] is {merge}, a pair of ids: look both up in vocab.")
        if not (isinstance(merge, tuple) and len(merge) == 2 and all(isinstance(part, bytes) for part in merge)):
            fail(f"a merge is a tuple of two bytes; merges[{number}] is {short(merge, 40)}, of type {type(merge).__name__}.")
    return vocab, merges


def same_training(train_bpe, cases, known=True, note=""):
    """Fails unless train_bpe finds what plain_bpe finds, in all cases: (text, vocab_size, special_tokens).

    A mistake is named only if it explains the results of all cases, or of all but one.
    """
    wrong, all_merges = [], []
    for text, vocab_size, special_tokens in cases:
        n = vocab_size - 256 - len(special_tokens)
        want = plain_bpe(text, n, special_tokens)
        try:
            vocab, merges = is_pair_of_results(train_bpe(text, vocab_size, copy.copy(special_tokens)))
        except Exception:
            if wrong:
                break
            raise
        all_merges.append((merges, text, n, special_tokens))
        if merges != want:
            wrong.append((merges, want, text, n, special_tokens))
        elif not wrong:
            same_vocab(vocab, want, special_tokens)
    if not wrong:
        return
    merges, want, text, n, special_tokens = wrong[0]
    at = next((i for i, (a, b) in enumerate(zip(merges, want)) if a != b), min(len(merges), len(want)))
    if at == len(merges):
        example = f"there are {len(merges)} merges, expected {len(want)}"
    elif at == len(want):
        example = f"there are {len(merges)} merges, expected {len(want)}: merges[{at}] = {merges[at]} is too many"
    else:
        example = f"merges[{at}] is {merges[at]}, expected {want[at]}"
    example += f", for the text {short(text)}" + (f" with special_tokens {special_tokens}" if special_tokens else "") + note
    if known:
        almost = None
        for words in dict.fromkeys(words for _, t, k, special in all_merges for words, _ in bpe_mistakes(t, k, special)):
            missed = list(itertools.islice((case[1] for case in all_merges if not explains(words, *case)), 2))
            if not missed:
                fail(words, example=example)
            if len(missed) == 1 and text not in missed and any(w[2] not in missed for w in wrong[1:]):
                almost = almost or words
        if almost:
            fail(almost, example=example)
    if len(merges) != len(want):
        fail(f"there are {len(merges)} merges, expected {len(want)}: vocab_size less 256 bytes and the special tokens.", example=example)
    if merges[at] in merges[:at]:
        fail("the same pair is merged twice: after a merge every word must be rewritten with the new token, before pairs are counted again.", example=example)
    if equally_frequent(merges[at], want, at, text, special_tokens):
        fail("several pairs are equally frequent, and the wrong one is taken: the greater pair of bytes wins. Compare the first parts, and where they are equal the second parts.", example=example)
    look = "the counts after a merge: the pairs inside the changed words go away, new ones come" if at > 0 else "how pairs are counted, and how the most frequent is chosen"
    fail("a merge is not the most frequent pair at that moment.", example=example, look=look)


def equally_frequent(pair, want, at, text, special_tokens):
    """Is pair found as often as want[at], after the merges before it?"""
    pairs = Counter()
    for part, special in cut_special(text, special_tokens):
        for word in () if special else WORDS.findall(part):
            tokens = [bytes([b]) for b in word.encode("utf-8")]
            for merge in want[:at]:
                tokens = replace(tokens, merge)
            pairs.update(zip(tokens, tokens[1:]))
    return pairs[pair] == pairs[want[at]]


def explains(words, merges, text, n, special_tokens):
    """Does the mistake give these merges?"""
    values = [value for w, value in bpe_mistakes(text, n, special_tokens) if w == words]
    return any(value() == merges for value in values) if values else plain_bpe(text, n, special_tokens) == merges


def same_vocab(vocab, merges, special_tokens):
    size = 256 + len(merges) + len(special_tokens)
    specials = [s.encode("utf-8") for s in special_tokens]
    for special in specials:
        if special not in vocab.values():
            fail(f"the special token {special.decode()!r} is not in vocab; it has an id like any other token.")
    if len(vocab) != size or sorted(vocab) != list(range(size)):
        gap = next((i for i in range(max(vocab, default=0) + 2) if i not in vocab), None)
        fail(
            f"vocab has {len(vocab)} tokens, with ids up to {max(vocab, default=-1)}; expected {size}, with the ids 0 to {size - 1}.",
            example=f"id {gap} is not used" if gap is not None else "",
            look="256 single bytes, one token for each merge, and the special tokens",
        )
    learned = [vocab[i] for i in range(size) if vocab[i] not in specials]
    if learned[:256] != [bytes([i]) for i in range(256)]:
        fail("the first 256 tokens are the single bytes 0 to 255, in this order, whether they occur in the text or not.")
    want = [a + b for a, b in merges]
    for i, (a, b) in enumerate(itertools.zip_longest(learned[256:], want)):
        if a != b:
            fail("after the 256 bytes, vocab holds the merged tokens in the order of learning.", example=f"token {256 + i} is {a!r}, expected {b!r}, the bytes of merges[{i}] joined")


LOW = "ab\n" * 9 + "cb\n" * 7 + "ad\n" * 5 + "abe\n" * 3 + "abf\n" * 2   # no two pairs are equally frequent


def many_words(count=260, seed=1):
    """Made-up prose: words of different frequency, capitals, digits, endings, line ends, accents and an emoji."""
    source = random.Random(seed)
    syllables = ["ba", "na", "the", "ing", "er", "sto", "é", "aaa", "li", "oo", "qu", "ss", "an", "ana", "日本", "re"]
    words = ["".join(source.choice(syllables) for _ in range(source.randrange(1, 4))) for _ in range(60)]
    marks = [" ", " ", " ", " ", ", ", ". ", "\n", "  ", "'s ", "'re ", " 12 ", "-", " 2024! ", "\n\n   ", " 🙂 "]
    text = ""
    for _ in range(count):
        word = words[int(60 * source.random() ** 2)]
        text += (word.capitalize() if source.random() < 0.2 else word) + source.choice(marks)
    return text


@checks(TRAIN, "what comes back")
def train_returns(train_bpe):
    vocab, merges = is_pair_of_results(train_bpe("hello hello hell", 258))
    if len(merges) > 2:
        fail(f"there are {len(merges)} merges for vocab_size 258, expected 2: vocab_size counts the 256 single bytes too.")
    missing = [i for i in range(256) if bytes([i]) not in vocab.values()]
    if missing:
        fail("every one of the 256 bytes is in vocab, whether it occurs in the text or not: else a new text cannot be encoded.", example=f"the byte {missing[0]} is missing")


@checks(TRAIN, "the most frequent pair, again and again")
def train_low(train_bpe):
    same_training(train_bpe, [(LOW, 256 + 4, ())])


@checks(TRAIN, "equally frequent pairs")
def train_ties(train_bpe):
    texts = ["zebra apple mango", "xab xac yab ybc", "abcabd xbcd babc", "abab cdcd xyxy", "ab abc bcd cde"]
    same_training(train_bpe, [(text.replace(" ", "\n"), 256 + 4, ()) for text in texts])


@checks(TRAIN, "equal letters in a row")
def train_overlaps(train_bpe):
    same_training(train_bpe, [("aaa\naaa\naaa\nab\nab\nab\nab\nxab", 256 + 4, ()), ("aaaaa\naaaaaaa\nbaaab", 256 + 4, ()), ("aaaa", 258, ())])


@checks(TRAIN, "words")
def train_words(train_bpe):
    texts = [
        "a b a b a b cc cc", "it's it's it's x's", "a1 a1 a1 b22 b22 a11", "end. end. end. of, of, of,", "x  yz  x  yz  xyz\n\n\n\n", "tom\ntom\nto\nbed\nbe",
        "we'll we'll they'll I'll", "ab ab ab bb bb cc cc cc cc", "The the THE The Then then",
    ]
    same_training(train_bpe, [(text, 256 + 3, ()) for text in texts])


@checks(TRAIN, "bytes, not characters")
def train_bytes(train_bpe):
    same_training(train_bpe, [(text, 256 + 5, ()) for text in ("née née née née déjà", "日本 日本語 日本", "🙂🙂 🙃🙃 🙂", "cafe\u0301 cafe\u0301 ﬁﬁ ½½½")])


@checks(TRAIN, "a longer text", seconds=20)
def train_longer(train_bpe):
    same_training(train_bpe, [(many_words(seed=seed), 256 + 60, ()) for seed in (1, 2)])


@checks(TRAIN, "special tokens")
def train_special(train_bpe):
    same_training(train_bpe, [
        (text, 256 + 3 + len(special_tokens), special_tokens)
        for text, special_tokens in (
            ("abab<|end|>abab<|end|>cd cd<|end|>", ("<|end|>",)),
            ("one<|end|>two two<|end|>|end| <<||>>", ("<|end|>",)),
            ("ab<s>ab<s>ab xaba<s>", ("<s>",)),
            ("xyx<e>xy<e>xyab<e>xyab<e>xyab<e>xy ab<e> cab", ("<e>", "<e>xy")),
            ("xa.by xaxby a.b axb axb", ("a.b", "<|pad|>")),
            (many_words(60, seed=5).replace("\n", "<|end|>"), ["<|end|>", "<|pad|>"]),
        )
    ])


@checks(TRAIN, "the end of the pairs")
def train_end(train_bpe):
    for text, special_tokens in (("", ()), ("a", ()), ("ab ab abc", ()), ("x", ("<s>",)), ("<s><s>", ("<s>",))):
        try:
            train_bpe(text, 400, special_tokens)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            fail(
                f"{type(error).__name__} is raised when no pair is left; training then ends early, with fewer tokens than vocab_size.",
                example=f"train_bpe({text!r}, 400) stops with: {error}",
            )
        same_training(train_bpe, [(text, 400, special_tokens)])
    for size, special_tokens in ((256, ()), (257, ("<s>",))):
        try:
            train_bpe("abc abc", size, special_tokens)
        except ValueError as error:
            fail(
                f"vocab_size {size} is refused although it holds the 256 bytes{' and the special token' if special_tokens else ''}: there is room, for no merge at all.",
                example=f"train_bpe('abc abc', {size}" + (f", {special_tokens})" if special_tokens else ")") + f" stops with: {error}",
            )
        same_training(train_bpe, [("abc abc", size, special_tokens)])


@checks(TRAIN, "a vocab_size that is too small")
def train_too_small(train_bpe):
    for size, special_tokens in ((255, ()), (0, ()), (257, ("<a>", "<b>"))):
        what = f"train_bpe(text, {size}" + (f", {special_tokens})" if special_tokens else ")")
        value_error(lambda: train_bpe("abc abc", size, special_tokens), f"{what}, which has no room for 256 bytes{' and the special tokens' if special_tokens else ''}")


@checks(TRAIN, "the same result twice")
def train_twice(train_bpe):
    for text in (LOW, "other words, other pairs", LOW):
        same_training(train_bpe, [(text, 259, ("<s>",))], known=False, note=", when train_bpe is called several times in a row")
    given = ["<s>"]
    train_bpe(LOW, 259, given)
    if given != ["<s>"]:
        fail("the list special_tokens that you are given is changed.", example=f"['<s>'] has become {given}")
    if is_pair_of_results(train_bpe("a a", 258))[0] is is_pair_of_results(train_bpe("a a", 258))[0]:
        fail("two calls return one and the same vocab.", look="names outside the function")


# --- BPETokenizer --------------------------------------------------------------------------------------


def vocab_of(merges, special_tokens=(), order=None):
    tokens = [bytes([i]) for i in range(256)]
    if order is not None:
        tokens = [tokens[i] for i in order]
    tokens += [a + b for a, b in merges] + [s.encode("utf-8") for s in special_tokens]
    return dict(enumerate(tokens))


def first_learned(tokens, merges):
    """OpenAI's rule: of all neighbours that are a merge, take the one learned first, merge it everywhere, repeat."""
    tokens = list(tokens)
    while True:
        known = [p for p in zip(tokens, tokens[1:]) if p in merges]
        if not known:
            return tokens
        tokens = replace(tokens, min(known, key=merges.index))


def last_learned(tokens, merges):
    return first_learned(tokens, merges[::-1])


def smallest_ids(tokens, merges):
    """Of all neighbours that are a merge, the pair of the smallest ids; bytes are 0 to 255, merged tokens come after."""
    tokens, made = list(tokens), {a + b: 256 + i for i, (a, b) in enumerate(merges)}
    while True:
        known = [p for p in zip(tokens, tokens[1:]) if p in merges]
        if not known:
            return tokens
        tokens = replace(tokens, min(known, key=lambda p: [t[0] if len(t) == 1 else made[t] for t in p]))


def smallest_bytes(tokens, merges):
    return first_learned(tokens, sorted(merges))


def by_position(tokens, merges):
    tokens = list(tokens)
    while True:
        at = next((i for i in range(len(tokens) - 1) if (tokens[i], tokens[i + 1]) in merges), None)
        if at is None:
            return tokens
        tokens[at : at + 2] = [tokens[at] + tokens[at + 1]]


def longest_first(tokens, merges):
    data, known, out = b"".join(tokens), {a + b for a, b in merges}, []
    while data:
        n = next((n for n in range(len(data), 1, -1) if data[:n] in known), 1)
        out.append(data[:n])
        data = data[n:]
    return out


def one_merge(tokens, merges):
    known = [p for p in zip(tokens, tokens[1:]) if p in merges]
    return replace(tokens, min(known, key=merges.index)) if known else list(tokens)


def one_place_each(tokens, merges):
    for merge in merges:
        tokens = replace(tokens, merge, once=True)
    return list(tokens)


def one_sweep(tokens, merges):
    """From left to right, once: merge a token with the one before it if they are a pair."""
    out = []
    for token in tokens:
        if out and (out[-1], token) in merges:
            out[-1] += token
        else:
            out.append(token)
    return out


def no_merges(tokens, merges):
    return list(tokens)


def encoded(text, vocab, merges, special_tokens=(), rule=first_learned, words=WORDS.findall, whole=False):
    ids = {}
    for i, token in vocab.items():
        ids[token] = i
    out = []
    for part, special in ([(text, False)] if whole else cut_special(text, special_tokens)):
        if special:
            out.append(ids[part.encode("utf-8")])
            continue
        for word in words(part):
            out += [ids[token] for token in rule([bytes([b]) for b in word.encode("utf-8")], merges)]
    return out


def encode_mistakes(vocab, merges, special_tokens=()):
    """Pairs (mistake in words, function of the text that gives its ids)."""

    def by(change=lambda text: text, **options):
        return lambda text: encoded(change(text), vocab, merges, special_tokens, **options)

    return [
        ("no merge is applied: the ids are those of single bytes.", by(rule=no_merges)),
        ("pairs are merged in the order in which they stand in the word; they must be merged in the order in which they were learned.", by(rule=by_position)),
        ("pairs are merged in one sweep from left to right; they must be merged in the order in which they were learned.", by(rule=one_sweep)),
        ("the longest token that fits is taken; BPE merges pairs in the order in which they were learned.", by(rule=longest_first)),
        ("of the pairs in a word, the one learned last is merged first; it is the other way round.", by(rule=last_learned)),
        ("of the pairs in a word, the smallest pair of ids is merged first; the place in merges decides, so min needs a key.", by(rule=smallest_ids)),
        ("of the pairs in a word, the smallest pair of bytes is merged first; the place in merges decides, so min needs a key.", by(rule=smallest_bytes)),
        ("only one merge is applied to each word; go on until no neighbours are a merge.", by(rule=one_merge)),
        ("each merge is applied once in a word; it must be applied at every place.", by(rule=one_place_each)),
        *((words[:-1] + ", as in training.", by(words=cut)) for words, cut in CUTS),
        ("the text is made lower case.", by(str.lower)),
        ("the ids are bytes, whatever vocab says: the id of a byte is where vocab has it.", lambda text: list(text.encode("utf-8"))),
        ("spaces or line ends at the edges are stripped.", by(str.strip)),
        ("line ends are changed.", by(lambda text: text.replace("\r\n", "\n"))),
        ("a space is put in front of the text.", by(lambda text: " " + text)),
        ("bytes that are no ASCII are dropped.", by(lambda text: text.encode("ascii", "ignore").decode())),
        ("characters that are no ASCII become question marks.", by(lambda text: text.encode("ascii", "replace").decode())),
        *((f"the text is normalised ({form}): different texts become one.", by(lambda text, form=form: unicodedata.normalize(form, text))) for form in ("NFC", "NFKC", "NFD", "NFKD")),
    ]


def same_encoding(tokenizer, texts, vocab, merges, special_tokens=(), known=(), note=""):
    """Fails unless every text gets the right ids; a mistake is named as in same_training.

    known: pairs (mistake in words, function of the text that gives the ids of this mistake).
    """
    wrong, results = [], []
    for text in texts:
        name = f"encode({short(text, 50)}){note}"
        try:
            got = tokenizer.encode(text)
            is_id_list(got, name)
        except Exception:
            if wrong:
                break
            raise
        want = encoded(text, vocab, merges, special_tokens)
        results.append((got, text))
        if got != want:
            wrong.append((got, text, want, name))
    if not wrong:
        return
    got, text, want, name = wrong[0]
    tokens = [vocab.get(int(i), "no token") for i in got]
    example = f"{name} gives the tokens {short(tokens)}, expected {short([vocab[i] for i in want])}"
    for mistake, rule in [*known, *encode_mistakes(vocab, merges, special_tokens)]:
        if all(rule(t) == ids for ids, t in results):
            fail(mistake, example=example)
    if want and got[1:] == want:
        fail("there is a token too many at the start.", example=example)
    if want and got[:-1] == want:
        fail("there is a token too many at the end.", example=example)
    if 10 < len(got) < len(want) and got == want[: len(got)]:
        fail("the end of the text is lost.", example=example)
    fail("the tokens are wrong.", example=example)


# What a real training run could have learned; every word of it is built from merges before it.
LEARNED = [
    (b"h", b"e"), (b"t", b"he"), (b"i", b"n"), (b"e", b"r"), (b"in", b"g"), (b" ", b"the"), (b"a", b"n"), (b"n", b"a"), (b"n", b"d"), (b" ", b" "),
    (b"s", b"t"), (b"a", b"b"), (b"b", b"c"), (b"an", b"d"), (b" ", b"and"), (b"s", b"a"), (b"1", b"2"), (b"\xc3", b"\xa9"), (b" ", b"1"),
    (b"st", b"er"), (b"l", b"l"), (b"'", b"ll"), (b"\xf0", b"\x9f"), (b"\xf0\x9f", b"\x99"), (b"e", b"d"), (b"c", b"d"), (b"bc", b"d"), (b".", b"."), (b"s", b"and"),
]

NASTY = [
    "\n", "  ", " a ", "\r\n\t", "\x00\x01\x7f", "🙂", "👩‍🚀👨‍👩‍👧", "日本語", "naïve café", "e\u0301", "ﬁ½²", "مرحبا", "🙂 the end", "a" * 30, "abcab" * 40, "\u2028\u00a0x\ufeff", "<|end|>", "\U0010ffff", "\ufffd?",
]


@checks(BPE, "words it has learned")
def bpe_known_words(BPETokenizer):
    vocab = vocab_of(LEARNED)
    tokenizer = BPETokenizer(dict(vocab), list(LEARNED))
    same_encoding(tokenizer, ["the", "in", "ing", " the", "and", "er"], vocab, LEARNED)


@checks(BPE, "merges in the order of learning")
def bpe_order(BPETokenizer):
    vocab = vocab_of(LEARNED)
    tokenizer = BPETokenizer(dict(vocab), list(LEARNED))
    texts = ["ana", "banander", "abcd", "stand", "hersted", "aning", "abcdstaning", "nanana", "saster", "sand"]
    same_encoding(tokenizer, texts, vocab, LEARNED)


@checks(BPE, "words apart")
def bpe_words(BPETokenizer):
    vocab = vocab_of(LEARNED)
    tokenizer = BPETokenizer(dict(vocab), list(LEARNED))
    texts = ["a  the", "'sat", "the  and\n the", "x12 12 2012", "we'll 'll", "the...and.", "The AND Sand", "  the  ", "a12b"]
    same_encoding(tokenizer, texts, vocab, LEARNED)


@checks(BPE, "the empty text")
def bpe_empty(BPETokenizer):
    for special_tokens in ((), ("<|end|>",)):
        tokenizer = BPETokenizer(vocab_of(LEARNED, special_tokens), list(LEARNED), special_tokens)
        same_ids(tokenizer.encode(""), [], 'encode("")')
        same_text(tokenizer.decode([]), "", "decode([])")


@checks(BPE, "any text at all")
def bpe_any_text(BPETokenizer):
    vocab = vocab_of(LEARNED)
    tokenizer = BPETokenizer(dict(vocab), list(LEARNED))
    for text in NASTY:
        try:
            ids = tokenizer.encode(text)
        except (KeyError, ValueError, IndexError) as error:
            fail(
                f"a text with symbols it has never seen raises {type(error).__name__}; every text is bytes, and every byte has an id.",
                example=f"encode({short(text, 40)}) stops with: {short(str(error), 60)}",
                look="start from word.encode('utf-8'), not from characters",
            )
        is_id_list(ids, f"encode({short(text, 40)})")
    same_encoding(tokenizer, NASTY, vocab, LEARNED)


@checks(BPE, "there and back")
def bpe_round_trip(BPETokenizer):
    tokenizer = BPETokenizer(vocab_of(LEARNED), list(LEARNED))
    for text in ("and the stand", *NASTY, many_words(40, seed=9)):
        ids = encoded(text, vocab_of(LEARNED), LEARNED)
        try:
            got = tokenizer.decode(ids)
        except UnicodeDecodeError:
            fail(
                "each token is decoded by itself, and half a character is no UTF-8.",
                example=f"decode of the ids of {short(text, 40)} raises UnicodeDecodeError",
                look="join the bytes of all tokens first, then decode once",
            )
        per_token = "".join(vocab_of(LEARNED)[i].decode("utf-8", errors="replace") for i in ids)
        dropped = "".join(vocab_of(LEARNED)[i].decode("utf-8", errors="ignore") for i in ids)
        latin = b"".join(vocab_of(LEARNED)[i] for i in ids).decode("latin-1")
        same_text(got, text, f"decode of the ids of {short(text, 40)}", known=[
            ("the character U+FFFD is removed, also where the text holds it.", text.replace("\ufffd", "")),
            ("each token is decoded by itself, and characters whose bytes lie in two tokens break: join the bytes of all tokens first, then decode once.", per_token),
            ("each token is decoded by itself, and characters whose bytes lie in two tokens are lost: join the bytes of all tokens first, then decode once.", dropped),
            ("each byte becomes a character of its own; the bytes together are UTF-8.", latin),
            ("spaces or line ends at the edges are stripped.", text.strip()),
            ("spaces are put between the tokens.", " ".join(vocab_of(LEARNED)[i].decode("utf-8", errors="replace") for i in ids)),
            ("the tokens come out in reverse.", b"".join(vocab_of(LEARNED)[i] for i in ids[::-1]).decode("utf-8", errors="replace")),
            ("bytes that are no ASCII are dropped.", text.encode("ascii", "ignore").decode()),
            ("bytes that are no ASCII become U+FFFD.", text.encode("utf-8").decode("ascii", errors="replace")),
            ("the text is normalised: é of one code point and e with an accent of its own are different texts.", unicodedata.normalize("NFC", text)),
        ])


@checks(BPE, "half a character")
def bpe_half_character(BPETokenizer):
    tokenizer = BPETokenizer(vocab_of(LEARNED), list(LEARNED))
    for data in (b"ab\xf0\x9f\x99", b"\x99x", b"a\xffb"):
        try:
            got = tokenizer.decode(list(data))
        except UnicodeDecodeError:
            fail(
                "bytes that are no UTF-8 raise UnicodeDecodeError; a model may stop in the middle of a character, and the text so far must still come out.",
                example=f"decode of the bytes {data!r}",
                look="the argument errors of bytes.decode",
            )
        same_text(got, data.decode("utf-8", errors="replace"), f"decode of the bytes {data!r}", known=[
            ("bytes that are no UTF-8 vanish; show each such place as U+FFFD, the replacement character.", data.decode("utf-8", errors="ignore")),
            ("bytes that are no UTF-8 come out as escapes; show each such place as U+FFFD, the replacement character.", data.decode("utf-8", errors="backslashreplace")),
            ("bytes that are no UTF-8 come out as lone surrogates; show each such place as U+FFFD, the replacement character.", data.decode("utf-8", errors="surrogateescape")),
        ], look="the argument errors of bytes.decode")


@checks(BPE, "special tokens")
def bpe_special(BPETokenizer):
    special_tokens = ("<|end|>", "<|end|><|end|>", "a.b", "<|pad|>")
    vocab = vocab_of(LEARNED, special_tokens)
    tokenizer = BPETokenizer(dict(vocab), list(LEARNED), special_tokens)
    texts = ["the<|end|>and", "<|end|>", " <|end|> the", "x<|pad|><|end|><|pad|>", "<|end|><|end|>the", "the <|end|><|end|><|end|>", "<|pad|><|pad|>", "a.b axb and", "|end| <|end"]

    def shorter_first(text):
        out = []
        while text:
            hit = next((s for s in sorted(special_tokens, key=len) if text.startswith(s)), None)
            n = len(hit) if hit else min([text.find(s) for s in special_tokens if s in text] or [len(text)])
            out += [where[hit.encode()]] if hit else encoded(text[:n], vocab, LEARNED)
            text = text[n:]
        return out

    def as_pattern(text, order):
        parts = regex.split("(" + "|".join(order) + ")", text)
        return [i for part in parts for i in ([where[part.encode()]] if part in order else encoded(part, vocab, LEARNED))]

    pattern = "special tokens are read as a pattern: | and . have a meaning in regular expressions. Escape them, or use split_special."
    where = {token: i for i, token in vocab.items()}
    same_encoding(tokenizer, texts, vocab, LEARNED, special_tokens, known=[
        ("a special token is cut up like a word; it is one id.", lambda text: encoded(text, vocab, LEARNED, whole=True)),
        ("special tokens are lost; each is one id.", lambda text: [i for part, special in cut_special(text, special_tokens) if not special for i in encoded(part, vocab, LEARNED)]),
        ("of two special tokens that fit at one place, the longer wins.", shorter_first),
        (pattern, lambda text: as_pattern(text, special_tokens)),
        (pattern, lambda text: as_pattern(text, sorted(special_tokens, key=len, reverse=True))),
    ], note=f" with special_tokens {special_tokens}")
    for text in texts:
        same_text(tokenizer.decode(encoded(text, vocab, LEARNED, special_tokens)), text, f"decode of the ids of {text!r}", known=[
            ("special tokens are left out of the text; decode gives back what was encoded.", "".join(part for part, special in cut_special(text, special_tokens) if not special)),
        ])


@checks(BPE, "special tokens that are not declared")
def bpe_no_special(BPETokenizer):
    vocab = vocab_of(LEARNED, ("<|end|>", "<|pad|>"))
    texts = ["the <|end|> and<|pad|>", "<|end|>"]
    end = next(i for i, token in vocab.items() if token == b"<|end|>")
    undeclared = "<|end|> is taken as special although special_tokens does not name it; it is plain text then."
    for special_tokens in ((), ["<|pad|>"]):
        same_encoding(BPETokenizer(dict(vocab), list(LEARNED), special_tokens) if special_tokens else BPETokenizer(dict(vocab), list(LEARNED)), texts, vocab, LEARNED, special_tokens, known=[
            (undeclared, lambda text: encoded(text, vocab, LEARNED, ("<|end|>", "<|pad|>"))),
            (undeclared, lambda text: encoded(text, vocab, LEARNED, ("<|end|>",))),
            (undeclared, lambda text: [end] if text == "<|end|>" else encoded(text, vocab, LEARNED, special_tokens)),
            *([("special tokens are cut up when special_tokens is a list.", lambda text: encoded(text, vocab, LEARNED))] if special_tokens else []),
        ], note=f" with special_tokens {special_tokens}" if special_tokens else " without special_tokens")


@checks(BPE, "tokenizers side by side, and the same result twice")
def bpe_repeat(BPETokenizer):
    vocab, few = vocab_of(LEARNED), LEARNED[:3]
    given_vocab, given_merges = dict(vocab), list(LEARNED)
    first = BPETokenizer(given_vocab, given_merges)
    second = BPETokenizer(vocab_of(few), list(few))
    for tokenizer, its_vocab, its_merges in ((first, vocab, LEARNED), (second, vocab_of(few), few), (first, vocab, LEARNED)):
        for text in ("banander", "the and the"):
            want = encoded(text, its_vocab, its_merges)
            got = attempt(lambda: tokenizer.encode(text))
            if got != want:
                fail(
                    "two tokenizers disturb each other, or a second call gives another result.",
                    example=f"with {len(its_merges)} merges encode({text!r}) is {short(got)}, expected {want}",
                    look="names set in the class body, global ones, or functools.cache over all tokenizers: keep them on self",
                )
            got.append(-1)
            again = tokenizer.encode(text)
            if again != want:
                fail("the list that encode returns is kept inside: whoever changes it changes what the next call returns.", example=f"after append(-1) to the result, encode({text!r}) is {short(again)}", look="a cache of words: give out a copy")
    if given_vocab != vocab or given_merges != LEARNED:
        fail("vocab or merges, which you are given, are changed; whoever called you still needs them.", look="pop, update, and assignments into vocab")


@checks(BPE, "ids as vocab has them")
def bpe_other_ids(BPETokenizer):
    order = list(range(256))
    random.Random(4).shuffle(order)
    vocab = vocab_of(LEARNED, ("<|end|>",), order)
    vocab = {id: token for id, (_, token) in zip(random.Random(5).sample(range(1000), len(vocab)), vocab.items())}
    tokenizer = BPETokenizer(dict(vocab), list(LEARNED), ("<|end|>",))
    text = "and the café<|end|>12 stand 🙂"
    try:
        got = tokenizer.encode(text)
    except (KeyError, IndexError) as error:
        got = error
    want = encoded(text, vocab, LEARNED, ("<|end|>",))
    if got != want:
        fail(
            "the ids are not those of vocab. A byte need not have its own value as id, and the first merge need not be 256: GPT-2 numbers its bytes differently.",
            example=f"the first ids of {text!r} are {short(got[:4] if isinstance(got, list) else got)}, expected {want[:4]}, for a vocab in another order",
            look="look every token up by its bytes, in a dict made from vocab",
        )
    try:
        back = tokenizer.decode(want)
    except (KeyError, IndexError) as error:
        back = error
    if back != text:
        fail("decode does not look ids up in vocab.", example=f"decode(encode({text!r})) is {short(back)}, for a vocab in another order")


# --- save_tokens ---------------------------------------------------------------------------------------


@checks(SAVE, "the file")
def save_file(save_tokens):
    ids = [0, 1, 255, 256, 40_000, 65_535, 7]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        try:
            save_tokens(path, list(ids))
        except ValueError as error:
            if 65_535 in ids and not path.exists():
                fail("ids that fit are refused: uint16 holds 0 to 65,535, both ends included.", example=f"for the ids {ids} ValueError says: {short(str(error), 60)}", look="< against <=, and > against >=")
            raise
        files = sorted(p.name for p in Path(folder).iterdir())
        if files != ["tokens.bin"]:
            fail("the file does not have the name that was given.", example=f"for tokens.bin the folder holds {files}", look="np.save adds .npy; tofile does not")
        data = path.read_bytes()
        if data.startswith(b"\x93NUMPY"):
            fail("the file starts with NumPy's header; it should hold the ids and nothing else.", look="np.save writes a header; tofile does not")
        if data.startswith(b"\x80"):
            fail("the file is a pickle; it should hold the ids and nothing else, two bytes each.")
        want = np.array(ids, dtype=np.uint16).tobytes()
        if data == want:
            return
        for width in (8, 4):
            if len(data) == width * len(ids):
                fail(f"the ids are stored with {width} bytes each; uint16 takes two.", example=f"{len(ids)} ids make a file of {len(data)} bytes, expected {len(want)}")
        if len(data) == len(ids):
            fail("the ids are stored in one byte each, and everything above 255 wraps around; uint16 takes two.", example=f"{len(ids)} ids make a file of {len(data)} bytes, expected {len(want)}")
        if data == np.array(ids, dtype=np.uint16).byteswap().tobytes():
            fail("the two bytes of each id are in the wrong order for this machine.")
        if len(data) == 0:
            fail("the file is empty.", look="closing or flushing what was opened for writing")
        try:
            data.decode("ascii")
            text = True
        except UnicodeDecodeError:
            text = False
        if text:
            fail("the ids are written as text; they are two bytes each.", example=f"the file begins with {data[:20]!r}")
        if len(data) == len(want):
            got = np.frombuffer(data, dtype=np.uint16).tolist()
            fail("the file holds other ids than it should.", example=f"{ids} is stored as {got}")
        fail("the file does not hold two bytes for each id.", example=f"{len(ids)} ids make a file of {len(data)} bytes, expected {len(want)}")


@checks(SAVE, "what comes back")
def save_returns(save_tokens):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        ids = np.array([5, 65_535, 0, 32_768, 12], dtype=np.int64)
        got = save_tokens(path, ids)
        if got is None:
            fail("the result is None, expected the memory map of the file. Is there a return?")
        if not isinstance(got, np.memmap):
            fail(f"the result should be a np.memmap and is of type {type(got).__name__}: a map reads from the file only what is asked for, and takes no memory for the rest.")
        if got.dtype != np.uint16:
            fail(f"the memory map has dtype {got.dtype}, expected uint16.", look="np.memmap takes uint8 unless it is told")
        if got.shape != (5,):
            fail(f"the memory map has shape {got.shape}, expected (5,).")
        if got.tolist() != ids.tolist():
            fail("the memory map does not hold the ids.", example=f"{ids.tolist()} comes back as {got.tolist()}")
        if got.flags.writeable:
            fail("the memory map can be written to: an assignment by mistake would change the file, or seem to.", look="the argument mode of np.memmap")
        if ids.tolist() != [5, 65_535, 0, 32_768, 12] or ids.dtype != np.int64:
            fail("the array ids that you are given is changed.")


@checks(SAVE, "writing twice, and paths as text")
def save_twice(save_tokens):
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "tokens.bin")
        save_tokens(path, list(range(100)))
        got = save_tokens(path, [3, 2, 1])
        if got.tolist() != [3, 2, 1]:
            fail("a file of that name is not replaced.", example=f"after 100 ids and then [3, 2, 1] the map has {len(got)} ids", look="the mode in which the file is opened: append adds to what is there")
        got = save_tokens(path, [9])
        if got.tolist() != [9]:
            fail("a single id is not saved.", example=f"[9] comes back as {got.tolist()}")
        got = save_tokens(path, tuple(range(300)))
        if got.tolist() != list(range(300)):
            fail("a file of that name is not replaced.", example=f"after 1 id and then 300 the map has {len(got)} ids")


@checks(SAVE, "ids that do not fit")
def save_too_large(save_tokens):
    with tempfile.TemporaryDirectory() as folder:
        for number, ids in enumerate(([0, 65_536], [1, 2, 70_000, 3], [3, -1, 2])):
            path = Path(folder) / f"{number}.bin"
            bad = next(i for i in ids if not 0 <= i <= 65_535)
            value_error(lambda: save_tokens(path, ids), f"the id {bad}, which uint16 does not hold", instead=f"uint16 makes {bad % 65_536} of it without a word.")
            value_error(lambda: save_tokens(path, np.array(ids)), f"the id {bad} in an array, which uint16 does not hold", instead=f"uint16 makes {bad % 65_536} of it without a word.")
            if path.exists():
                fail("a file is left behind although the ids do not fit: test first, then write.", example=f"{ids} raises ValueError and leaves {path.stat().st_size} bytes")


@checks(SAVE, "no ids")
def save_nothing(save_tokens):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "none.bin"
        value_error(lambda: save_tokens(path, []), "save_tokens(path, [])", instead="There is nothing to map.")
        if path.exists():
            fail("an empty file is left behind although there is nothing to save: test first, then write.")


# --- get_batch -----------------------------------------------------------------------------------------


def is_batch(got, batch_size, n_ctx):
    if got is None:
        fail("the result is None. Is there a return at the end of every branch?")
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        fail(f"the result should be the two tensors (x, y) and is of type {type(got).__name__}.")
    x, y = got
    for name, t in (("x", x), ("y", y)):
        if isinstance(t, torch.Tensor) and batch_size != n_ctx and t.shape == (n_ctx, batch_size):
            fail(f"{name} has shape ({n_ctx}, {batch_size}), that is (T, B), expected (B, T): a row for each window.")
        if isinstance(t, torch.Tensor) and t.shape == (batch_size, n_ctx + 1):
            fail(f"{name} has shape ({batch_size}, {n_ctx + 1}): it still holds the whole window of n_ctx + 1 tokens.")
        if name == "y" and n_ctx > 1 and isinstance(t, torch.Tensor) and t.shape in ((batch_size,), (batch_size, 1)):
            fail("y has one target for each window; every position has a target, so its shape is that of x.")
        is_tensor(t, (batch_size, n_ctx), name=name)
        if t.dtype != torch.int64:
            fail(f"{name} has dtype {t.dtype}, expected torch.int64: an embedding is indexed with int64, and uint16 stops there.", look="astype(np.int64), or .long()")
    return x, y


def places(tokens):
    """token -> its place; tokens are all different."""
    return {int(t): i for i, t in enumerate(tokens)}


def sample_tokens(n, seed=0, dtype=np.uint16):
    """n different ids in random order, so that each window says where it is from; some above 32,767."""
    return np.random.default_rng(seed).permutation(65_000)[:n].astype(dtype)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def batch(get_batch, tokens, batch_size, n_ctx, seed=0):
    """A batch of checked shapes; a window that does not fit is said in words."""
    try:
        got = get_batch(tokens, batch_size, n_ctx, generator=generator(seed))
    except (ValueError, IndexError, RuntimeError) as error:
        words = str(error)
        if isinstance(error, RuntimeError) and ("stack" in words or "size" in words) or "same shape" in words or "inhomogeneous" in words:
            fail("a window runs past the end of the tokens and comes out short: the last start is N - n_ctx - 1.", example=f"{len(tokens)} tokens, n_ctx = {n_ctx}: {short(words, 80)}")
        if "random_ expects" in words or "from >= to" in words or ("low" in words and "high" in words) or "empty range" in words:
            fail("there is no start to choose from although one window fits: with N tokens the starts are 0 to N - n_ctx - 1.", example=f"{len(tokens)} tokens, n_ctx = {n_ctx}: {short(words, 80)}")
        raise
    return is_batch(got, batch_size, n_ctx)


def check_windows(x, y, tokens, n_ctx):
    """x must be windows and y the same, one step later."""
    where = places(tokens)
    if torch.equal(y, x + 1) and set(x.flatten().tolist()) <= set(where):
        fail("y is x + 1, ids that are one higher: the targets are the tokens that follow in the text.", example=f"x[0] is {short(x[0].tolist())}, y[0] is {short(y[0].tolist())}")
    for name, rows in (("x", x), ("y", y)):
        for token in rows.flatten().tolist():
            if token not in where:
                if token + 65_536 in where:
                    fail(f"an id above 32,767 has become negative in {name}: uint16 was read as int16.", example=f"the id {token + 65_536} has become {token}")
                fail(f"{name} holds {token}, which is not among the tokens.", look="places that are returned instead of the tokens there, or padding")
    at_x = torch.tensor([[where[t] for t in row] for row in x.tolist()])
    at_y = torch.tensor([[where[t] for t in row] for row in y.tolist()])
    if n_ctx > 1 and not (at_x.diff(dim=1) == 1).all():
        steps = at_x.diff(dim=1)
        if (steps == -1).all():
            fail("x runs backwards through the tokens.")
        if ((steps == 1) | (steps == 1 - len(tokens))).all():
            fail("a window runs over the end and goes on at the start of the tokens; every window lies inside.")
        fail("a row of x is no window: its tokens do not follow one another in the text.", example=f"the first row of x stands at the places {at_x[0].tolist()} of the tokens")
    shift = at_y - at_x
    if (shift == 1).all():
        return at_x[:, 0]
    example = f"x[0] stands at the places {short(at_x[0].tolist())}, y[0] at {short(at_y[0].tolist())}, expected one step later"
    if (shift == 0).all():
        fail("y is the same as x: the model would learn to copy its input.", example=example)
    if (shift == -1).all():
        fail("y is one step earlier than x: the model would learn the token before, which it sees.", example=example)
    if (shift == 2).all():
        fail("y is two steps later than x: the shift is made twice.", example=example)
    if (shift == n_ctx).all():
        fail("y is the window after x; y[t] is the one token after x[t].", example=example)
    if (shift == shift[0, 0]).all():
        fail(f"y is {shift[0, 0]} steps later than x, expected 1.", example=example)
    if (shift[:, :-1] == 1).all() and torch.equal(at_y[:, -1], at_x[:, 0]):
        fail("y is x turned round: its last token is the first of the window, expected the token after the window.", example=example)
    if (shift[:, :-1] == 1).all():
        fail("the last column of y is not the token after the window: it needs the token at start + n_ctx.", example=example)
    if torch.equal(at_y, (at_x[:, :1] + n_ctx).expand_as(at_y)):
        fail("every column of y is the token after the window; y[t] is the one token after x[t].", example=example)
    if torch.equal(at_y.flip(1), at_x + 1):
        fail("y runs backwards.", example=example)
    fail("y is not x one step later.", example=example, look="rows of y that belong to other windows than those of x")


@checks(BATCH, "shape and dtype")
def batch_shape(get_batch):
    batch(get_batch, sample_tokens(40), 3, 5)
    batch(get_batch, sample_tokens(40), 6, 4, seed=1)


@checks(BATCH, "y is x one step later")
def batch_shift(get_batch):
    for n, B, T, dtype in ((40, 3, 5, np.uint16), (50, 7, 8, np.int64), (1500, 4, 1, np.uint16), (30, 5, 6, np.int32)):
        tokens = sample_tokens(n, dtype=dtype)
        x, y = batch(get_batch, tokens, B, T)
        check_windows(x, y, tokens, T)


@checks(BATCH, "a window of its own for each row")
def batch_rows(get_batch):
    tokens = sample_tokens(900)
    sequential = blocks = twice = 0
    for seed in range(10):
        x, y = batch(get_batch, tokens, 6, 4, seed=seed)
        starts = check_windows(x, y, tokens, 4)
        if (starts == starts[0]).all():
            fail("all rows of a batch are the same window; each row needs a start of its own.", example=f"six rows start at {starts.tolist()}")
        twice += int(len(starts.unique()) < len(starts))
        sequential += int((starts.diff() == 1).all())
        blocks += int((starts.diff() == starts[1] - starts[0]).all())
    if twice > 5:
        fail("some rows of a batch are the same window again and again; each row needs a random start of its own.", example=f"900 tokens, six rows: in {twice} of 10 batches a window came twice")
    if sequential > 2:
        fail("the rows of a batch start one after the other; each row needs a random start of its own.", example=f"six rows start at {starts.tolist()}")
    if blocks > 2:
        fail("the starts of a batch are evenly spaced; each row needs a random start of its own.", example=f"six rows start at {starts.tolist()}")


@checks(BATCH, "every window, also the last")
def batch_every_window(get_batch):
    for n, T in ((9, 4), (13, 3), (6, 5), (2, 1), (8, 1)):
        tokens = sample_tokens(n, seed=n)
        try:
            got = get_batch(tokens, 3000, T, generator=generator(0))
        except (ValueError, IndexError, RuntimeError):
            got = None                                        # batch() says it in words
        if isinstance(got, (tuple, list)) and got and isinstance(got[0], torch.Tensor) and got[0].shape == (n - T, T):
            fail("no start is drawn twice, and so a batch cannot have more rows than there are starts: each row draws from all of them.", example=f"{n} tokens, n_ctx = {T}, batch_size = 3000: x has {n - T} rows", look="randperm; randint draws each number by itself")
        x, y = batch(get_batch, tokens, 3000, T)
        starts = check_windows(x, y, tokens, T)
        count = torch.bincount(starts, minlength=n - T)
        never = (count == 0).nonzero().flatten().tolist()
        example = f"{n} tokens, n_ctx = {T}: of the starts 0 to {n - T - 1}, {short(never)} came 0 times in 3000"
        if never:
            if all(s % T == 0 for s in range(n - T) if s not in never) and T > 1:
                fail("windows start only at multiples of n_ctx; every start is possible.", example=example)
            if never == [n - T - 1]:
                fail("the last window never comes, so the last token is never a target: with N tokens the starts are 0 to N - n_ctx - 1.", example=example, look="the upper end of randint is not among its results")
            if never == [0]:
                fail("the first window never comes: starts begin at 0.", example=example)
            if never == list(range(1, n - T)):
                fail("every window starts at 0.", example=example)
            fail("some windows never come.", example=example, look="the bounds of the random starts")
        share = count / 3000 * (n - T)
        if share.min() < 0.7 or share.max() > 1.3:
            worst = int((share - 1).abs().argmax())
            fail("some windows come more often than others; all are equally likely.", example=f"{n} tokens, n_ctx = {T}: start {worst} came {int(count[worst])} times in 3000, expected about {3000 // (n - T)}", look="rounding or clamping of the starts")


@checks(BATCH, "the generator you are given")
def batch_generator(get_batch):
    kept = np.random.get_state(), random.getstate()
    try:
        obeys_generator(get_batch)
    finally:
        np.random.set_state(kept[0])
        random.setstate(kept[1])


def obeys_generator(get_batch):
    tokens = sample_tokens(1000)
    first = is_batch(get_batch(tokens, 4, 6, generator(7)), 4, 6)[0]
    torch.rand(3), np.random.rand(3), random.random()
    if not equal(is_batch(get_batch(tokens, 4, 6, generator(7)), 4, 6)[0], first, 0):
        fail("generators with the same seed give different batches: the starts come from somewhere else.", look="the argument generator of torch.randint")
    if equal(is_batch(get_batch(tokens, 4, 6, generator(8)), 4, 6)[0], first, 0):
        fail("generators with different seeds give the same batch: the starts do not come from the generator.", look="a fixed seed inside the function, or a new generator")
    one = generator(7)
    get_batch(tokens, 4, 6, one)
    if equal(is_batch(get_batch(tokens, 4, 6, one), 4, 6)[0], first, 0):
        fail("two calls with one generator give the same batch twice: the generator must move on.", look="a copy of the generator, or its seed set anew")
    before, before_numpy, before_python = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    get_batch(tokens, 4, 6, generator(7))
    if not torch.equal(before, torch.get_rng_state()) or (before_numpy != np.random.get_state()[1]).any() or before_python != random.getstate():
        fail("the global random state moves although a generator is given: other random numbers of the program change with it.", look="manual_seed, and random calls without generator=")


@checks(BATCH, "without a generator")
def batch_global(get_batch):
    tokens = sample_tokens(1000)
    torch.manual_seed(1)
    first = is_batch(get_batch(tokens, 4, 6), 4, 6)[0]
    if equal(is_batch(get_batch(tokens, 4, 6), 4, 6)[0], first, 0):
        fail("without a generator every call gives the same batch.", look="a seed that is set inside the function")
    torch.manual_seed(1)
    if not equal(is_batch(get_batch(tokens, 4, 6), 4, 6)[0], first, 0):
        fail("without a generator the starts do not come from PyTorch's global one: torch.manual_seed(1) does not repeat the batch.", look="np.random and random; torch.randint takes generator=None")


@checks(BATCH, "a memory map")
def batch_memmap(get_batch):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        tokens = sample_tokens(30)
        tokens.tofile(path)
        mapped = np.memmap(path, dtype=np.uint16, mode="r")
        x, y = batch(get_batch, mapped, 3, 4)
        check_windows(x, y, tokens, 4)
        mapped = np.memmap(path, dtype=np.uint16, mode="r+")
        for own in (mapped, tokens.astype(np.int64)):
            before = own.tolist()
            for t in batch(get_batch, own, 3, 4):
                t.fill_(1)
            if own.tolist() != before:
                fail("x or y share their memory with the tokens: whoever changes a batch changes the text.", look="from_numpy and torch.as_tensor share memory; a copy, stack or astype does not")


@checks(BATCH, "too few tokens")
def batch_too_few(get_batch):
    for n, T in ((5, 5), (3, 8), (0, 4)):
        value_error(lambda: get_batch(sample_tokens(n), 2, T, generator(0)), f"{n} tokens for n_ctx = {T}, where {T + 1} are needed")
    x, y = batch(get_batch, sample_tokens(6), 2, 5)
    check_windows(x, y, sample_tokens(6), 5)
