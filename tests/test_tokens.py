"""The reference tokenizer against the Hugging Face one, an independent BPE, nasty text and the clock."""
import random
import time
from collections import Counter

import pytest
import regex
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from course import corpus
from solutions.pytorch.tokens import BPETokenizer, CharTokenizer, get_batch, save_tokens, train_bpe

NASTY = [
    "", " ", "\n", "\r\n\r\n", "\t \t", "a", "\x00\x01\x7f", "naïve café", "e\u0301", "日本語のテキスト", "مرحبا بالعالم", "🙂", "👩‍🚀 and 👨‍👩‍👧‍👦",
    "🏳️‍🌈", "\ufeffBOM", "\u2028\u2029\u00a0", "ﬁ½²", "\U0010ffff", "don't we'll I'd it's 'tis", "a  b   c    ", "1234567890 12 3", "<|endoftext|>", "x" * 1000, "\ufffd",
]
SPECIAL = ("<|endoftext|>", "<|endoftext|><|endoftext|>", "<.*>")


@pytest.fixture(scope="module")
def text():
    return corpus.load("shakespeare")[:100_000]


@pytest.fixture(scope="module")
def trained(text):
    return train_bpe(text, 756)


def readable_bytes():
    """GPT-2's printable stand-ins for the 256 bytes, as Hugging Face stores them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def hugging_face(vocab, merges):
    stand_in = readable_bytes()

    def readable(token):
        return "".join(stand_in[b] for b in token)

    tokenizer = Tokenizer(models.BPE(vocab={readable(t): i for i, t in vocab.items()}, merges=[(readable(a), readable(b)) for a, b in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def test_same_ids_as_hugging_face(text, trained):
    ours, theirs = BPETokenizer(*trained), hugging_face(*trained)
    for sample in [text, *NASTY]:
        ids = ours.encode(sample)
        assert ids == theirs.encode(sample).ids
        assert ours.decode(ids) == theirs.decode(ids)


def counted_anew(text, n_merges):
    """BPE as its definition reads: count every pair of the whole text, merge the best, begin again."""
    words = [[bytes([b]) for b in word.encode()] for word in regex.findall(r"'(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", text)]
    merges = []
    for _ in range(n_merges):
        pairs = Counter(pair for word in words for pair in zip(word, word[1:]))
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        for word in words:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = [best[0] + best[1]]
                i += 1
    return merges


def test_same_merges_as_counting_anew(text):
    assert train_bpe(text[:20_000], 256 + 150)[1] == counted_anew(text[:20_000], 150)
    source = random.Random(0)
    for _ in range(30):
        sample = "".join(source.choice("aab bé\n1'🙂") for _ in range(source.randrange(80)))
        assert train_bpe(sample, 256 + 40)[1] == counted_anew(sample, 40)


@pytest.mark.parametrize("sample", NASTY, ids=ascii)
def test_round_trip(sample, trained):
    vocab, merges = trained
    with_special = {**vocab, **{len(vocab) + i: s.encode() for i, s in enumerate(SPECIAL)}}
    for tokenizer in (BPETokenizer(vocab, merges), BPETokenizer(with_special, merges, SPECIAL)):
        assert tokenizer.decode(tokenizer.encode(sample)) == sample
        assert tokenizer.decode(tokenizer.encode(sample + "<|endoftext|>" + sample)) == sample + "<|endoftext|>" + sample
    if sample:
        assert CharTokenizer(sample).decode(CharTokenizer(sample).encode(sample)) == sample


def test_round_trip_of_random_code_points(trained):
    tokenizer = BPETokenizer(*trained)
    source = random.Random(1)
    for _ in range(200):
        points = [source.choice((source.randrange(128), source.randrange(0xD800), source.randrange(0xE000, 0x110000))) for _ in range(20)]
        sample = "".join(map(chr, points))
        assert tokenizer.decode(tokenizer.encode(sample)) == sample


def test_special_tokens(text):
    vocab, merges = train_bpe(text[:5_000] + "<|endoftext|>" + text[:5_000], 300, SPECIAL)
    assert len(vocab) == 300 and len(merges) == 300 - 256 - 3
    assert not any(b"<|" in a + b for a, b in merges)
    ids = {token: i for i, token in vocab.items()}
    tokenizer = BPETokenizer(vocab, merges, SPECIAL)
    one, two, dots = (ids[s.encode()] for s in SPECIAL)
    assert tokenizer.encode("<|endoftext|>") == [one]
    assert tokenizer.encode("<|endoftext|>" * 3) == [two, one]
    assert tokenizer.encode("<.*>") == [dots]
    assert one not in BPETokenizer(vocab, merges).encode("<|endoftext|>")


def test_speed(text, trained):
    """The aims are 2 s for training and 200 kB/s for encoding; a busy machine gets four tries for the latter."""
    start = time.process_time()
    train_bpe(text, 756)
    assert time.process_time() - start < 2
    speeds = []
    for _ in range(4):
        tokenizer = BPETokenizer(*trained)                    # without the words it has seen
        start = time.process_time()
        tokenizer.encode(text)
        speeds.append(len(text.encode()) / (time.process_time() - start))
    assert max(speeds) > 200_000


def test_from_text_to_batches(text, trained, tmp_path):
    tokenizer = BPETokenizer(*trained)
    tokens = save_tokens(tmp_path / "tokens.bin", tokenizer.encode(text))
    x, y = get_batch(tokens, 4, 16)
    assert tokenizer.decode(x[0].tolist()) in text
    assert x[:, 1:].equal(y[:, :-1]) and x.is_contiguous() and y.is_contiguous()
