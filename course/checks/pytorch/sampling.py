"""Checks of lesson 08: sampling and the KV cache.

The filters are compared with their definition in NumPy float64; sample runs on a tiny model whose logits are known;
the cache runs on a GPT made of stock torch.nn parts.
"""
import inspect
import math
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from course.checks import checks
from course.checks.pytorch import call, close, equal, fail, fill, is_tensor, keeps_device, rand, rand_ids

TOP_K = "pytorch.sampling.keep_top_k"
TOP_P = "pytorch.sampling.keep_top_p"
SAMPLE = "pytorch.sampling.sample"
CACHE = "pytorch.sampling.KVCache"

INF = math.inf


def as_removed(got):
    """Fillers like -1e9 or the smallest float remove a token as -inf does."""
    if isinstance(got, torch.Tensor) and got.is_floating_point():
        return got.masked_fill(got <= -1e9, -INF)
    return got


def kept_only(logits, keep):
    return logits.masked_fill(~keep, -INF)


def row_of(logits):
    return "[" + ", ".join(f"{x:.3g}" for x in logits.tolist()) + "]"


def filter_close(got, logits, keep, name, known=(), look=""):
    """Fails unless got holds the logits where keep is True and -inf elsewhere; as one of the known mistakes if it is one."""
    got = as_removed(got)
    want = kept_only(logits, keep)
    if equal(got, want, 0):
        is_tensor(got, want.shape, want.dtype, want.device, name)
        return
    example = ""
    if isinstance(got, torch.Tensor) and got.shape == want.shape:
        V = want.shape[-1]
        rows = [x.reshape(-1, V) for x in (logits, got, want)]
        at = next((i for i, (mine, right) in enumerate(zip(*rows[1:])) if not torch.equal(mine.double(), right.double())), 0)
        given, mine, right = (row_of(x[at]) for x in rows)
        example = f"of the logits {given} {name} is {mine}, expected {right}"
        if got.is_floating_point() and got.isnan().any():
            if logits.isfinite().all():
                fail("the result holds NaN: 0 times -inf is NaN, so that a mask of 0 and 1 cannot be multiplied with -inf.", example=example, look="masked_fill or torch.where in the place of a product")
            fail("a logit of -inf, a token that was removed before, gives NaN.", example=example, look="products like 0 * -inf and differences like -inf - -inf")
    if isinstance(got, torch.Tensor):
        for mistake, value in known:
            if equal(got, value, 1e-5) and not equal(value, want, 1e-5):
                fail(mistake, example=example, look=look)
    is_tensor(got, want.shape, want.dtype, want.device, name)
    if torch.equal(got > -INF, keep):
        fail("the right tokens stay, and their logits are not what they were.", example=example)
    filler = got[~keep].unique() if not keep.all() else got[:0]
    if len(filler) == 1 and filler.isfinite() and torch.equal(got[keep], logits[keep]):
        fail(f"removed logits are {filler.item():g}, expected -inf: they keep a share, and a large one where the others are smaller still.", example=example)
    if got.is_floating_point() and not torch.isin(got[got > -INF], logits[logits > -INF]).all():
        fail("the logits that stay are not what they were: fill those that go, and leave the others alone.", example=example)
    fail("the wrong tokens stay.", example=example, look=look)


# --- keep_top_k ----------------------------------------------------------------------------------------


def top_k_keeps(logits, k):
    """The definition: a token stays if fewer than k are larger."""
    larger = (logits[..., None, :] > logits[..., :, None]).sum(-1)      # (..., V): how many beat each token
    return larger < k


def top_k_mistakes(logits, k):
    V = logits.shape[-1]
    right = top_k_keeps(logits, k)
    values, places = logits.sort(dim=-1, descending=True)
    found = [
        ("the k-th token is dropped as well: only tokens below the k-th largest logit go, it stays itself.", kept_only(logits, top_k_keeps(logits, k - 1))),
        ("one token too many stays.", kept_only(logits, top_k_keeps(logits, k + 1))),
        ("nothing is removed.", logits),
        ("the k smallest logits stay; the k largest should.", kept_only(logits, top_k_keeps(-logits, k))),
        ("the bar is the k-th smallest logit; it is the k-th largest.", kept_only(logits, logits >= values[..., V - min(k, V), None])),
        ("the filter is inverted: the k likeliest are removed and the others stay.", kept_only(logits, ~right)),
        ("everything is removed.", torch.full_like(logits, -INF)),
        ("only the likeliest token stays, whatever k is.", kept_only(logits, top_k_keeps(logits, 1))),
        (
            "removed logits are set to 0, and exp(0) is 1: they keep a share, often a large one. -inf gives 0.",
            logits.masked_fill(~right, 0.0),
        ),
        ("removed logits are multiplied by 0, and exp(0) is 1: they keep a share. -inf gives 0.", logits * right),
        ("True and False are added to the logits as 1 and 0: nothing is removed.", logits + right),
        ("the result holds probabilities. Return logits; the softmax comes later, in sample.", kept_only(logits, right).softmax(-1)),
        ("the result holds log probabilities: the logits that stay are to stay as they are.", kept_only(logits, right).log_softmax(-1)),
        ("the result is sorted: each logit must stay in the place of its token.", values.masked_fill(torch.arange(V) >= k, -INF)),
        ("only the k logits come back: the result has a place for each of the V tokens.", values[..., :k]),
        ("the numbers of the k likeliest tokens come back, not the logits of all.", places[..., :k]),
        ("the order of a sort is taken for ranks: order[i] is the token at place i, not the place of token i.", kept_only(logits, places < k)),
        ("a mask comes back, not logits: fill the logits with -inf where a token goes.", right),
        ("a mask comes back, not logits: fill the logits with -inf where a token goes.", ~right),
    ]
    if logits.dim() >= 2:
        across = top_k_keeps(logits.transpose(0, -1), k).transpose(0, -1)
        flat = top_k_keeps(logits.reshape(-1), k).reshape(logits.shape)
        first = logits.reshape(-1, V)[0].topk(min(k, V)).values[-1]
        found += [
            ("the k largest are taken over the batch (dim 0); each row chooses among its own V tokens (dim -1).", kept_only(logits, across)),
            ("the k largest of the whole batch stay; each row keeps k of its own.", kept_only(logits, flat)),
            ("one bar serves all rows, the first row's or the lowest; each row has its own k-th largest.", kept_only(logits, logits >= first)),
            ("one bar serves all rows, the lowest; each row has its own k-th largest.", kept_only(logits, logits >= values[..., : min(k, V)].min())),
            ("one bar serves all rows, the highest; each row has its own k-th largest.", kept_only(logits, logits >= values[..., min(k, V) - 1].max())),
        ]
    return found


def check_top_k(keep_top_k, logits, k, name="the result"):
    filter_close(call(keep_top_k, logits, k), logits, top_k_keeps(logits, k), name, known=top_k_mistakes(logits, k))


@checks(TOP_K, "the k largest of each row")
def top_k_values(keep_top_k):
    check_top_k(keep_top_k, rand(4, 7, seed=1, scale=2.0), 3)


@checks(TOP_K, "every k")
def top_k_every(keep_top_k):
    for k in range(1, 8):
        check_top_k(keep_top_k, rand(3, 7, seed=2, scale=2.0), k, name=f"the result for k = {k} of 7")


@checks(TOP_K, "k beyond the vocabulary")
def top_k_beyond(keep_top_k):
    logits = rand(2, 5, seed=3)
    for k in (6, 50):
        try:
            got = call(keep_top_k, logits, k)
        except (RuntimeError, IndexError) as error:
            fail(
                f"with more places than tokens your code raises {type(error).__name__}: k beyond V means that all tokens stay.",
                example=f"k = {k} with 5 tokens",
                look="topk and indices: k can be at most V",
            )
        filter_close(got, logits, torch.ones(2, 5, dtype=torch.bool), f"the result for k = {k} of 5")


@checks(TOP_K, "any leading axes")
def top_k_axes(keep_top_k):
    for shape in [(6,), (1, 6), (2, 3, 6)]:
        check_top_k(keep_top_k, rand(*shape, seed=4), 2, name=f"the result for logits of shape {shape}")


@checks(TOP_K, "very negative logits")
def top_k_negative(keep_top_k):
    logits = rand(2, 6, seed=5, scale=100.0) - 1e5
    got = as_removed(call(keep_top_k, logits, 2))
    if isinstance(got, torch.Tensor) and got.shape == logits.shape and (got.argmax(-1) != logits.argmax(-1)).any():
        fail(
            "a removed token beats one that stays when the logits are very negative: the filler is not negative enough.",
            example=f"the logits are near -100,000 and removed tokens get {got.max().item():g}",
            look="the number that you fill in: -inf is below every logit",
        )
    filter_close(got, logits, top_k_keeps(logits, 2), "the result")


@checks(TOP_K, "ties, and tokens removed before")
def top_k_ties(keep_top_k):
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0, 0.5, 2.0], [-INF, 1.0, -INF, 0.0, -INF, -INF]])
    got = as_removed(call(keep_top_k, logits, 3))
    is_tensor(got, (2, 6), torch.float32)
    if got.isnan().any():
        fail("a logit of -inf, a token that was removed before, gives NaN.", look="differences and products of infinite numbers")
    stays = got[0] > -INF
    if not stays[1] or stays[[0, 4]].any() or stays.sum() < 3 or (got[0][stays] != logits[0][stays]).any():
        fail(
            "equal logits at the k-th place are not handled: k tokens stay, or all that equal the k-th; never fewer, never a smaller one.",
            example=f"of {row_of(logits[0])} with k = 3 this stays: {row_of(got[0])}",
        )
    filter_close(got[1], logits[1], torch.ones(6, dtype=torch.bool), "the result for k = 3")


@checks(TOP_K, "dtype and device")
def top_k_dtype(keep_top_k):
    for dtype in (torch.float64, torch.float16):
        logits = rand(2, 5, seed=6, dtype=dtype)
        filter_close(call(keep_top_k, logits, 2), logits, top_k_keeps(logits, 2), f"the result for {dtype}")
    keeps_device(lambda x: keep_top_k(x, 2), rand(2, 5, seed=6))


# --- keep_top_p ----------------------------------------------------------------------------------------


def top_p_keeps(logits, p):
    """The definition, row by row in NumPy: take the likeliest until their probabilities reach p."""
    rows = logits.double().reshape(-1, logits.shape[-1]).numpy()
    keep = np.zeros(rows.shape, dtype=bool)
    for row, stays in zip(rows, keep):
        probs = np.exp(row - row.max())
        probs /= probs.sum()
        total = 0.0
        for token in np.argsort(-row, kind="stable"):
            stays[token] = True
            total += probs[token]
            if total >= p:
                break
    return torch.from_numpy(keep).reshape(logits.shape)


def place_back(order, ordered):
    return torch.empty_like(ordered).scatter(-1, order, ordered)


def top_p_mistakes(logits, p):
    right = top_p_keeps(logits, p)
    probs = logits.softmax(-1)
    ordered, order = logits.sort(-1, descending=True)
    sums = ordered.softmax(-1).cumsum(-1)
    rising, rising_order = logits.sort(-1)
    rising_sums = rising.softmax(-1).cumsum(-1)
    kept = kept_only(logits, right)
    not_shifted = ordered.masked_fill(sums > p, -INF)
    one_more = ordered.masked_fill(torch.cat([torch.zeros_like(sums[..., :2]), sums[..., :-2]], -1) >= p, -INF)
    in_order = ordered.masked_fill(sums - ordered.softmax(-1) >= p, -INF)
    found = [
        (
            "the token that carries the sum past p is removed too: a token goes only if the likelier ones before it already reach p. Shift the sums by one place.",
            place_back(order, not_shifted),
        ),
        ("one token too many stays: the set ends with the token that reaches p.", place_back(order, one_more)),
        (
            "the probabilities are summed in the order of the vocabulary: sort them first, likeliest first.",
            kept_only(logits, probs.cumsum(-1) - probs < p),
        ),
        (
            "the probabilities are summed in the order of the vocabulary, and not shifted: sort them first, likeliest first.",
            kept_only(logits, probs.cumsum(-1) <= p),
        ),
        ("the result is in sorted order: each logit must go back to the place of its token.", in_order),
        (
            "the logits go back to the wrong places: order[i] is where the i-th sorted logit came from, so it has to be written to order[i] (scatter), not read from there.",
            in_order.gather(-1, order),
        ),
        ("the mask is in sorted order and the logits are not: bring the mask back to the places of the tokens first.", kept_only(logits, in_order > -INF)),
        (
            "the mask goes back to the wrong places: the i-th sorted entry belongs to token order[i] (scatter, not gather).",
            kept_only(logits, (in_order > -INF).gather(-1, order)),
        ),
        ("the sums start with the least likely token: sort in descending order.", place_back(rising_order, rising.masked_fill(rising_sums - rising.softmax(-1) >= p, -INF))),
        ("the sums start with the least likely token: sort in descending order.", place_back(rising_order, rising.masked_fill(rising_sums > p, -INF))),
        ("the filter is inverted: the likeliest tokens are removed and the tail stays.", kept_only(logits, ~right)),
        ("each probability is compared with p by itself; compare the sum of all likelier ones.", kept_only(logits, probs >= p)),
        ("each probability is compared with 1 - p by itself; compare the sum of all likelier ones with p.", kept_only(logits, probs >= 1 - p)),
        ("each probability is compared with a share of the largest one; compare the sum of all likelier ones with p.", kept_only(logits, probs >= p * probs.amax(-1, keepdim=True))),
        ("the tokens that stay reach 1 - p, not p.", kept_only(logits, top_p_keeps(logits, 1 - p) if 0 < p < 1 else right)),
        ("only the likeliest token stays, whatever p is.", kept_only(logits, top_k_keeps(logits, 1))),
        ("logits are summed, not probabilities: take the softmax first.", place_back(order, ordered.masked_fill(ordered.cumsum(-1) - ordered >= p, -INF))),
        ("logits are summed, not probabilities: take the softmax first.", place_back(order, ordered.masked_fill(ordered.cumsum(-1) > p, -INF))),
        ("exp is summed without a division: the sum of all probabilities must be 1.", place_back(order, ordered.masked_fill(ordered.exp().cumsum(-1) - ordered.exp() >= p, -INF))),
        ("nothing is removed.", logits),
        ("everything is removed.", torch.full_like(logits, -INF)),
        ("removed logits are set to 0, and exp(0) is 1: they keep a share, often a large one. -inf gives 0.", logits.masked_fill(~right, 0.0)),
        ("removed logits are multiplied by 0, and exp(0) is 1: they keep a share. -inf gives 0.", logits * right),
        ("the result holds probabilities, made to sum to 1 again. Return logits; the softmax comes later, in sample.", kept.softmax(-1)),
        ("the result holds probabilities. Return logits; the softmax comes later, in sample.", probs * right),
        ("the result holds probabilities. Return logits; the softmax comes later, in sample.", kept_only(probs, right)),
        ("the result holds log probabilities: the logits that stay are to stay as they are.", kept.log_softmax(-1)),
        ("the result holds log probabilities: the logits that stay are to stay as they are.", kept_only(logits.log_softmax(-1), right)),
        ("a mask comes back, not logits: fill the logits with -inf where a token goes.", right),
        ("a mask comes back, not logits: fill the logits with -inf where a token goes.", ~right),
    ]
    if logits.dim() >= 2:
        across = top_p_keeps(logits.transpose(0, -1).contiguous(), p).transpose(0, -1)
        flat = top_p_keeps(logits.reshape(-1), p).reshape(logits.shape)
        normalised = ordered.softmax(0)
        found += [
            ("probabilities are taken and summed over the batch (dim 0); each row sums over its own V tokens (dim -1).", kept_only(logits, across)),
            ("the whole batch is treated as one distribution; each row sums to 1 by itself.", kept_only(logits, flat)),
            ("the softmax runs over the batch (dim 0); each row must sum to 1 over its V tokens (dim -1).", place_back(order, ordered.masked_fill(normalised.cumsum(-1) - normalised >= p, -INF))),
            ("all rows keep as many tokens as the row that needs most; each row has its own number.", kept_only(logits, top_k_keeps(logits, int(right.sum(-1).max())))),
            ("all rows keep as many tokens as the row that needs fewest; each row has its own number.", kept_only(logits, top_k_keeps(logits, int(right.sum(-1).min())))),
            ("all rows keep as many tokens as the first row; each row has its own number.", kept_only(logits, top_k_keeps(logits, int(right.reshape(-1, right.shape[-1])[0].sum())))),
            ("the first row decides for all rows; each row has its own set.", kept_only(logits, right.reshape(-1, right.shape[-1])[0].expand_as(right))),
        ]
    return found


def check_top_p(keep_top_p, logits, p, name="the result"):
    filter_close(call(keep_top_p, logits, p), logits, top_p_keeps(logits, p), name, known=top_p_mistakes(logits, p))


@checks(TOP_P, "the likeliest that reach p")
def top_p_values(keep_top_p):
    check_top_p(keep_top_p, rand(4, 7, seed=31, scale=1.5) - 2.0, 0.7)   # numbers on which the known mistakes all differ


@checks(TOP_P, "a single token that exceeds p")
def top_p_single(keep_top_p):
    logits = torch.tensor([[0.0, 1.0, 5.0, -1.0, 0.5]])
    got = as_removed(call(keep_top_p, logits, 0.9))
    if isinstance(got, torch.Tensor) and got.shape == logits.shape and not (got > -INF).any():
        fail(
            "every token is removed, and the softmax of nothing is NaN: the likeliest token must stay.",
            example=f"the likeliest has a probability of {logits.softmax(-1).max():.3f}, and p = 0.9",
            look="the sums: a token goes if those BEFORE it reach p, and before the first there is nothing",
        )
    check_top_p(keep_top_p, logits, 0.9)
    check_top_p(keep_top_p, logits, 1e-6, name="the result for p = 0.000001")


@checks(TOP_P, "p = 1")
def top_p_one(keep_top_p):
    logits = rand(3, 6, seed=12)
    got = as_removed(call(keep_top_p, logits, 1.0))
    missing = isinstance(got, torch.Tensor) and got.shape == logits.shape and (got == -INF).any()
    filter_close(got, logits, torch.ones(3, 6, dtype=torch.bool), "the result for p = 1", known=[
        ("with p = 1 a token is missing: all probabilities are needed to reach 1, so that all stay.", got),
    ] if missing else top_p_mistakes(logits, 1.0))


@checks(TOP_P, "every p")
def top_p_every(keep_top_p):
    for p in (0.05, 0.25, 0.5, 0.6, 0.8, 0.95, 0.99):
        check_top_p(keep_top_p, rand(5, 9, seed=13, scale=1.5), p, name=f"the result for p = {p}")


@checks(TOP_P, "any leading axes")
def top_p_axes(keep_top_p):
    for shape in [(6,), (1, 6), (2, 3, 6)]:
        check_top_p(keep_top_p, rand(*shape, seed=14), 0.6, name=f"the result for logits of shape {shape}")


@checks(TOP_P, "large logits")
def top_p_large(keep_top_p):
    for shift in (1e3, -1e3, -1e5):
        logits = rand(2, 6, seed=15, scale=2.0).double().mul(64).round().div(64).float() + shift
        got = as_removed(call(keep_top_p, logits, 0.8))
        want = kept_only(logits, top_p_keeps(logits, 0.8))
        if isinstance(got, torch.Tensor) and got.shape == want.shape and not equal(got, want, 0):
            if shift < -1e4 and (got.argmax(-1) != logits.argmax(-1)).any():
                fail(
                    "a removed token beats one that stays when the logits are very negative: the filler is not negative enough.",
                    example=f"the logits are near {shift:,.0f} and removed tokens get {got.max().item():g}",
                    look="the number that you fill in: -inf is below every logit",
                )
            fail(
                "adding the same number to all logits changes the set: exp overflows above 88 and is 0 below -104 in float32.",
                example=f"with logits near {shift:,.0f} the result is {row_of(got[0])}, expected {row_of(want[0])}",
                look="the softmax: subtract the largest logit of each row before exp",
            )
        filter_close(got, logits, want > -INF, "the result")


@checks(TOP_P, "tokens removed before")
def top_p_after_top_k(keep_top_p):
    logits = torch.tensor([[-INF, 1.0, -INF, 2.0, 0.0, -INF], [0.0, -INF, -INF, -INF, -INF, 1.0]])
    for p in (0.5, 0.8, 0.95):
        check_top_p(keep_top_p, logits, p, name=f"the result for p = {p}")


@checks(TOP_P, "dtype and device")
def top_p_dtype(keep_top_p):
    logits = rand(2, 5, seed=16, dtype=torch.float64)
    filter_close(call(keep_top_p, logits, 0.7), logits, top_p_keeps(logits, 0.7), "the result for float64", look="float32 tensors made on the way")
    keeps_device(lambda x: keep_top_p(x, 0.7), rand(2, 5, seed=16))


# --- sample --------------------------------------------------------------------------------------------


class Known(nn.Module):
    """A model with a rule for its logits in the place of weights.

    rule: (B, T) ids -> (B, T, V) logits, those at t from the ids up to t.
    """

    def __init__(self, rule, n_ctx=64):
        super().__init__()
        self.config = SimpleNamespace(n_ctx=n_ctx, vocab_size=7)
        self.unused = nn.Parameter(torch.zeros(1))
        self.rule = rule
        self.modes, self.grads = [], []

    def forward(self, idx, targets=None):
        T = idx.shape[1]
        if T > self.config.n_ctx:
            fail(f"the model is given {T} tokens, and n_ctx is {self.config.n_ctx}.", look="crop what the model sees to its last n_ctx columns")
        self.modes.append(self.training)
        self.grads.append(torch.is_grad_enabled())
        return self.rule(idx) + 0 * self.unused, None


class KnownCache:
    """A cache for Known that counts what it is given."""

    def __init__(self, model):
        self.model = model
        self.fed, self.first = 0, None
        self.reset()

    def reset(self):
        self.length = 0
        self.seen = None

    def forward(self, idx):
        if idx.shape[1] == 0:
            fail("the cache is given no token at all: it still holds those of an earlier prompt.", look="the first lines of sample: an old cache has to be reset")
        self.seen = idx if self.seen is None else torch.cat((self.seen, idx), dim=1)
        self.length += idx.shape[1]
        self.fed += idx.shape[1]
        self.first = idx.shape[1] if self.first is None else self.first
        if self.length > self.model.config.n_ctx:
            fail(f"the cache is fed {self.length} tokens, and n_ctx is {self.model.config.n_ctx}: it still holds an earlier prompt, or gets tokens twice.")
        return self.model(self.seen)[0][:, -idx.shape[1] :]


V = 7


UNEVEN = 1.5e4 * torch.rand(V, V, generator=torch.Generator().manual_seed(3))


def follows(idx):
    """After token a, with f the first token that the model sees: token a + 2f + 1, for certain. All logits are positive."""
    nexts = (idx + 2 * idx[:, :1] + 1) % V                              # (B, T)
    return 3e4 * F.one_hot(nexts, V) + UNEVEN[idx]


def always(logits):
    """The same logits at every last position; other positions hold other logits."""
    logits = torch.tensor(logits)

    def rule(idx):
        B, T = idx.shape
        return logits.expand(B, T, -1).clone()

    return rule


def text(idx, n, rule=follows, pick=None, n_ctx=64, crop=None):
    """What a simple loop gives with the likeliest token: idx and n tokens more."""
    pick = pick or (lambda logits: logits[:, -1])
    crop = crop or (lambda idx: idx[:, -n_ctx:])
    for _ in range(n):
        idx = torch.cat((idx, pick(rule(crop(idx))).argmax(-1, keepdim=True)), dim=1)
    return idx


def seeded(seed):
    return torch.Generator().manual_seed(seed)


PROMPT = torch.tensor([[3, 1, 4, 1, 5], [2, 6, 0, 3, 5], [1, 0, 2, 6, 4]])


def text_mistakes(idx, n, n_ctx=64):
    right = text(idx, n, n_ctx=n_ctx)
    T = idx.shape[1]
    return [
        ("only the new tokens come back: the prompt belongs in front of them.", right[:, T:]),
        ("the new tokens stand before the prompt.", torch.cat((right[:, T:], idx), dim=1)),
        ("one token too few is drawn.", right[:, :-1]),
        ("one token too many is drawn.", text(idx, n + 1, n_ctx=n_ctx)),
        ("nothing is added to the prompt.", idx),
        ("only the last token comes back.", right[:, -1:]),
        ("only one token is drawn, whatever max_new_tokens is.", right[:, : T + 1]),
        ("the length comes out as max_new_tokens, prompt included: that many tokens are to be ADDED.", right[:, : max(n, T)]),
        ("the logits of the first position are used: what follows the whole text stands at the last one, logits[:, -1].", text(idx, n, pick=lambda logits: logits[:, 0])),
        ("the logits of the position before the last are used.", text(idx, n, pick=lambda logits: logits[:, -2:][:, 0])),
        ("the logits are averaged or summed over the positions: only the last one knows what follows.", text(idx, n, pick=lambda logits: logits.mean(1))),
        ("the largest logit over all positions wins: only the last one knows what follows.", text(idx, n, pick=lambda logits: logits.amax(1))),
        ("the least likely token is taken.", text(idx, n, pick=lambda logits: -logits[:, -1])),
        ("the model sees the last token alone: it needs all that came before, up to n_ctx.", text(idx, n, crop=lambda idx: idx[:, -1:])),
        ("the model always sees the prompt alone: what was drawn has to be fed back.", text(idx, n, crop=lambda idx: idx[:, :T])),
        ("the model sees n_ctx - 1 tokens: n_ctx fit.", text(idx, n, crop=lambda idx: idx[:, -n_ctx + 1 :])),
        ("the model sees the FIRST n_ctx tokens; what follows depends on the last.", text(idx, n, crop=lambda idx: idx[:, :n_ctx])),
        ("the returned text is cropped to n_ctx: crop what the model sees, keep the text.", right[:, -n_ctx:]),
        ("the returned text is cropped to n_ctx: crop what the model sees, keep the text.", right[:, -n_ctx - 1 :]),
        ("every row continues as the first row does: each row has its own logits.", torch.cat((idx, right[:1, T:].expand(len(idx), -1)), dim=1)),
        ("each row continues with the tokens of another row.", text(idx, n, pick=lambda logits: logits[:, -1].flip(0))),
        ("the new tokens come back in reverse order.", torch.cat((idx, right[:, T:].flip(1)), dim=1)),
    ]


def check_text(got, idx, n, n_ctx=64, name="the result"):
    if isinstance(got, torch.Tensor) and got.is_floating_point() and got.shape == (idx.shape[0], idx.shape[1] + n):
        fail(f"the result has dtype {got.dtype}, expected torch.int64: token ids.")
    if isinstance(got, torch.Tensor) and got.shape == (idx.shape[0], n, V):
        fail("logits come back, expected token ids.")
    close(got, text(idx, n, n_ctx=n_ctx), atol=0, name=name, known=text_mistakes(idx, n, n_ctx))


OPTIONS = {"temperature": 1.0, "top_k": None, "top_p": None, "generator": None, "cache": None}


@checks(SAMPLE, "order and defaults of the arguments")
def sample_arguments(sample):
    """Signature and places of sample: names in their order, and the defaults."""
    found = inspect.signature(sample).parameters.values()
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found):
        return
    names = [p.name for p in found]
    if names[3:] != list(OPTIONS) and sorted(names[3:]) == sorted(OPTIONS):
        fail(f"the arguments stand in another order: {', '.join(OPTIONS)} is meant, and yours are {', '.join(names[3:])}.", look="the signature")
    for p in found:
        if p.name in OPTIONS and (p.default is p.empty or p.default != OPTIONS[p.name]):
            fail(
                f"{p.name} has {'no default' if p.default is p.empty else f'the default {p.default!r}'}, expected {OPTIONS[p.name]!r}: without options every token keeps the probability that the model gives it.",
                look="the signature",
            )


@checks(SAMPLE, "the prompt, and tokens behind it")
def sample_text(sample):
    idx = PROMPT.clone()
    got = sample(Known(follows), idx, 8, generator=seeded(1))
    if not torch.equal(idx, PROMPT):
        fail("the prompt you are given is changed in place: whoever called you still needs it.", look="assignments into idx and operations that end in _")
    named = isinstance(got, torch.Tensor) and any(equal(got, value, 0) for _, value in text_mistakes(PROMPT, 8))
    if not named and isinstance(got, torch.Tensor) and got.shape == (3, 13) and got.dtype == torch.int64 and torch.equal(got[:, :5], PROMPT):
        likeliest = torch.stack([follows(got[:, :t])[:, -1].argmax(-1) for t in range(5, 13)], dim=1)
        share = (got[:, 5:] == likeliest).double().mean().item()
        if share < 0.9:
            fail(
                "one token has all the probability, and others are drawn. Is the softmax missing, or over another axis?",
                example=f"{share:.0%} of the new tokens are the one that is certain, expected all",
                look="what torch.multinomial gets: probabilities, so that the softmax comes first, over the V tokens (dim -1); and which logits: those of the last position",
            )
    check_text(got, PROMPT, 8)


@checks(SAMPLE, "no token, one token")
def sample_counts(sample):
    for n in (0, 1):
        check_text(sample(Known(follows), PROMPT.clone(), n), PROMPT, n, name=f"the result for max_new_tokens = {n}")
    one = torch.tensor([[4]])
    check_text(sample(Known(follows), one.clone(), 3), one, 3, name="the result for a prompt of one token")
    for token in range(V):
        got = sample(Known(always([1e4 * (i == token) for i in range(V)])), one.clone(), 3)
        if isinstance(got, torch.Tensor) and got.dim() == 2 and got.shape[1] < 4:
            fail(f"the loop stops when token {token} comes: max_new_tokens are drawn whatever they are.", look="break and return inside the loop")


@checks(SAMPLE, "temperature 0 takes the likeliest")
def sample_greedy(sample):
    logits = [0.1, 0.3, 0.9, 0.8, 0.2, 0.85, 0.0]
    try:
        got = sample(Known(always(logits)), torch.zeros(40, 1, dtype=torch.int64), 2, temperature=0)
    except (ZeroDivisionError, RuntimeError) as error:
        fail(
            f"temperature 0 raises {type(error).__name__}: the logits cannot be divided by 0. It means no chance at all: take the likeliest token.",
            look="a branch of its own for temperature 0",
        )
    is_tensor(got, (40, 3), torch.int64)
    new = got[:, 1:]
    if (new == new[0, 0]).all() and new[0, 0] == min(range(V), key=logits.__getitem__):
        fail("temperature 0 takes the least likely token, expected the likeliest.")
    if not (new == 2).all():
        fail(
            "temperature 0 still leaves something to chance.",
            example=f"the logits {logits} give tokens {sorted(set(new.flatten().tolist()))}, expected token 2 always",
            look="the branch for temperature 0: no draw, the index of the largest logit",
        )


ROWS = 6000


def draw(sample, logits, **options):
    """(ROWS,) int64: one token a row after the same prompt."""
    got = sample(Known(always(logits)), torch.zeros(ROWS, 2, dtype=torch.int64), 1, generator=seeded(7), **options)
    is_tensor(got, (ROWS, 3), torch.int64)
    return got[:, -1]


def check_draws(sample, cases, logits=None):
    """The frequencies of 6000 draws a case lie within 5 standard deviations of what they should be.

    cases: (temperature, top_k, top_p). If one fails, the mistake named is one that fits the draws of every case.
    """
    logits = POSITIVE if logits is None else logits
    z = torch.tensor(logits).double()
    seen = []
    for T, k, p in cases:
        options = {name: value for name, value in (("temperature", T), ("top_k", k), ("top_p", p)) if value is not None}
        counts = torch.bincount(draw(sample, logits, **options), minlength=V).double() / ROWS
        seen.append((options, counts, right_draw(z, T, k, p), dict(draw_mistakes(z, T, k, p))))
    wrong = [(options, counts, want) for options, counts, want, _ in seen if not fits(counts, want)]
    if not wrong:
        return
    options, counts, want = wrong[0]
    given = " and ".join(f"{name} {value}" for name, value in options.items()) or "no options"
    example = f"logits {row_of(z)}, {given}: the tokens come with shares {shares(counts)}, expected {shares(want)}"
    for words in seen[0][3]:
        if all(fits(counts, mistakes[words]) for _, counts, _, mistakes in seen):
            fail(words, example=example)
    impossible = (counts > 0) & (want == 0)
    if impossible.any():
        fail(f"token {impossible.nonzero()[0].item()} is drawn, which should have been removed.", example=example, look="the order: divide the logits by the temperature, filter, softmax, draw")
    fail("the tokens are not drawn with the right probabilities.", example=example, look="the order: divide the logits by the temperature, filter, softmax, draw")


def fits(counts, probs):
    gap = 5 * (probs * (1 - probs) / ROWS).clamp(min=0).sqrt() + 1e-9
    return bool(((counts - probs).abs() <= gap).all())


def kept(z, k=None, p=None):
    """What top-k and then top-p leave of the logits."""
    z = z if k is None else kept_only(z, top_k_keeps(z, k))
    return z if p is None else kept_only(z, top_p_keeps(z, p))


def right_draw(z, T, k, p):
    return kept(z / (T or 1), k, p).softmax(-1)


def draw_mistakes(z, T, k, p):
    """(mistake, the probabilities it gives), the same mistakes for every case."""
    T = T or 1.0
    plain, hot = z, z / T

    def one_hot(token):
        return F.one_hot(token, V).double()

    removed = kept(hot, k, p) == -INF
    k_of_hot = kept(hot, k)
    return [
        ("the likeliest token is always taken; draw one with its probability (torch.multinomial).", one_hot(z.argmax())),
        ("the least likely token is always taken.", one_hot(z.argmin())),
        ("the logits are used as probabilities: the softmax is missing.", (hot.masked_fill(removed, 0) / hot.masked_fill(removed, 0).sum()) if (z >= 0).all() else one_hot(z.argmax())),
        ("the tokens are drawn evenly, whatever the logits say. Does the softmax run over the V tokens (dim -1)?", torch.full((V,), 1 / V).double()),
        ("the softmax is taken twice.", kept(hot, k, p).softmax(-1).softmax(-1)),
        ("the temperature is applied to probabilities, after a softmax, and then the softmax is taken again: divide the logits.", kept(plain.softmax(-1) / T, k, p).softmax(-1)),
        ("the logits are multiplied by the temperature; divide, so that a low one sharpens.", kept(z * T, k, p).softmax(-1)),
        (
            "the temperature has no effect. Dividing probabilities has none either, since they are made to sum to 1 again: divide the logits, before the softmax.",
            kept(plain, k, p).softmax(-1),
        ),
        ("the temperature is applied twice.", kept(z / T**2, k, p).softmax(-1)),
        ("the square root of the temperature is used.", kept(z / T**0.5, k, p).softmax(-1)),
        ("neither top_k nor top_p has an effect.", hot.softmax(-1)) if k and p else ("top_k has no effect." if k else "top_p has no effect.", hot.softmax(-1)),
        ("given both, only top_k is applied: top_p has no effect.", kept(hot, k).softmax(-1)),
        ("given both, only top_p is applied: top_k has no effect.", kept(hot, None, p).softmax(-1)),
        (
            "top_p is applied before top_k, or does not see what top_k has removed: after top-k the remaining probabilities are larger, so that fewer tokens reach p.",
            kept(kept(hot, None, p), k).softmax(-1),
        ),
        (
            "the filters choose before the temperature is applied: the temperature comes first, since it changes how many tokens reach p.",
            kept_only(hot, kept(plain, k, p) > -INF).softmax(-1),
        ),
        ("the filters see the temperature, and the draw forgets it.", kept_only(plain, ~removed).softmax(-1)),
        ("the logits of removed tokens are 0 and not -inf: they keep a share.", hot.masked_fill(removed, 0).softmax(-1)),
        ("top_k keeps one token too many.", kept(hot, k and k + 1, p).softmax(-1)),
        ("top_k drops the k-th token.", kept(hot, k and max(k - 1, 1), p).softmax(-1)),
        ("top_p is turned round: what stays reaches 1 - p.", kept(hot, k, p and 1 - p).softmax(-1)),
        ("top_k and top_p choose among the least likely tokens.", kept_only(hot, kept(-hot, k, p) > -INF).softmax(-1)),
        ("top_p removes the token that carries the sum past p.", kept_only(k_of_hot, one_less(k_of_hot, p)).softmax(-1)),
    ]


def one_less(z, p):
    """What top-p keeps, without the last of them; at least one stays."""
    if p is None:
        return z > -INF
    return top_k_keeps(z, max(int(top_p_keeps(z, p).sum()) - 1, 1))


def shares(probs):
    return "[" + ", ".join(f"{p:.2f}" for p in probs.tolist()) + "]"


POSITIVE = [2.0, 0.5, 1.0, 3.0, 0.1, 1.5, 2.5]


@checks(SAMPLE, "probabilities")
def sample_probabilities(sample):
    new = draw(sample, POSITIVE)
    if (new == new[0]).all() and new[0] not in (POSITIVE.index(max(POSITIVE)), POSITIVE.index(min(POSITIVE))):
        fail("every row gets the same token: each row draws for itself.", example=f"{ROWS} rows with equal logits all get token {new[0].item()}", look="torch.multinomial draws for each row of a (B, V) tensor")
    check_draws(sample, [(None, None, None)])
    check_draws(sample, [(None, None, None)], logits=[x - 2.0 for x in POSITIVE])


@checks(SAMPLE, "temperature")
def sample_temperature(sample):
    check_draws(sample, [(0.5, None, None), (3.0, None, None)])


@checks(SAMPLE, "top_k")
def sample_top_k(sample):
    check_draws(sample, [(1.0, 3, None), (2.0, 1, None), (2.0, 4, None), (0.7, 50, None)])


@checks(SAMPLE, "top_p, after the temperature")
def sample_top_p(sample):
    check_draws(sample, [(1.0, None, 0.6), (3.0, None, 0.6), (0.4, None, 0.8), (0.4, None, 0.05)])


@checks(SAMPLE, "top_k, then top_p")
def sample_top_k_then_top_p(sample):
    check_draws(sample, [(2.0, 3, 0.7), (2.0, 5, 0.5), (2.0, 2, 0.9), (3.0, 5, 0.7), (0.5, 4, 0.8)])


@checks(SAMPLE, "rows and steps draw for themselves")
def sample_independent(sample):
    model = Known(always([0.0] * V))
    got = sample(model, torch.zeros(50, 2, dtype=torch.int64), 40, generator=seeded(3))
    is_tensor(got, (50, 42), torch.int64)
    new = got[:, 2:]
    if (new == new[:1]).all():
        fail("every row gets the same tokens: each row draws for itself.", example="50 rows with equal logits all get the same 40 tokens", look="torch.multinomial draws for each row of a (B, V) tensor")
    if (new == new[:, :1]).all():
        fail("every step draws the same token again: the random numbers start anew at each step.", look="manual_seed or a new generator inside the loop")
    by_row = [sum(a == b for a, b in zip(row[1:], row)) / 39 for row in new.tolist()]
    between = (new[1:] == new[:-1]).double().mean().item()
    if sum(by_row) / 50 > 0.25 or between > 0.25:
        fail("neighbouring rows or steps agree far more often than one time in seven: they share random numbers.")


@checks(SAMPLE, "the generator")
def sample_generator(sample):
    model, idx = Known(always(POSITIVE)), torch.zeros(2, 3, dtype=torch.int64)

    def run(generator, seed):
        torch.manual_seed(seed)
        return sample(model, idx.clone(), 30, generator=generator)

    same = torch.equal(run(seeded(5), 1), run(seeded(5), 2))
    if not same:
        fail(
            "the same generator seed gives another text each time: the generator you are given is not used.",
            look="the argument generator of torch.multinomial",
        )
    if torch.equal(run(seeded(5), 1), run(seeded(6), 1)):
        fail("another generator seed gives the same text: the generator you are given is not used, or seeded anew.")
    one = seeded(5)
    if torch.equal(run(one, 1), run(one, 1)):
        fail("a generator that is used on gives the same text again: it is seeded anew, or copied. It must go on where it stands.")
    torch.manual_seed(4)
    state = torch.get_rng_state()
    sample(model, idx.clone(), 5, generator=seeded(5))
    if not torch.equal(torch.get_rng_state(), state):
        fail(
            "with a generator of its own, sample still changes the global random state: whoever relies on torch.manual_seed gets other numbers.",
            look="torch.manual_seed, torch.rand and multinomial without generator=",
        )
    if not torch.equal(run(None, 1), run(None, 1)):
        fail("without a generator, torch.manual_seed before the call must make the text repeatable.")
    torch.manual_seed(1)
    if torch.equal(sample(model, idx.clone(), 30), sample(model, idx.clone(), 30)):
        fail("without a generator every call gives the same text: a fixed seed is at work.", look="manual_seed inside sample, or a generator made there")


@checks(SAMPLE, "the last n_ctx tokens")
def sample_crop(sample):
    for T, n in ((3, 9), (9, 4), (6, 2)):
        idx = rand_ids(2, T, n=V, seed=T)
        got = sample(Known(follows, n_ctx=6), idx.clone(), n)
        check_text(got, idx, n, n_ctx=6, name=f"the result for n_ctx = 6, a prompt of {T} and {n} new tokens")


@checks(SAMPLE, "eval mode inside, the old mode after")
def sample_modes(sample):
    for training in (True, False):
        model = Known(follows).train(training)
        sample(model, PROMPT.clone(), 2)
        if any(model.modes):
            fail("the model runs in training mode while it samples: dropout would be at work.", look="model.eval() before the first call of the model")
        if model.training != training:
            now, before = ("training", "eval") if model.training else ("eval", "training")
            fail(
                f"the model comes back in {now} mode, and it was in {before} mode: training would go on wrongly.",
                look="keep model.training before eval(), and hand it to model.train(...) at the end",
            )


@checks(SAMPLE, "no gradients")
def sample_no_grad(sample):
    model = Known(follows)
    sample(model, PROMPT.clone(), 2)
    if any(model.grads):
        fail("autograd records every step: memory and time for gradients that nobody asks for.", look="torch.no_grad() around the call of the model")
    if not torch.is_grad_enabled():
        fail("gradients stay switched off after sample: the next training step would fail.", look="torch.set_grad_enabled(False): use `with torch.no_grad():`, which ends by itself")


@checks(SAMPLE, "with a cache")
def sample_cache(sample):
    model = Known(follows)
    cache = KnownCache(model)
    got = sample(model, PROMPT.clone(), 6, cache=cache)
    if cache.fed == 0:
        fail("the cache is never used.", look="what you hand to next_logits: it takes the cache as its last argument")
    T = PROMPT.shape[1]
    if cache.first < T:
        fail("the cache never sees the prompt: at the first step it holds nothing, and all columns are new to it.", example=f"a prompt of {T} tokens, and the first call feeds {cache.first}", look="feed the columns from cache.length on, idx[:, cache.length:]")
    if cache.fed < T + 5:
        fail("the cache is given up on the way: the later tokens are computed without it.", example=f"{T} + 6 tokens, and it was given {cache.fed}", look="what you hand to next_logits in the loop")
    check_text(got, PROMPT, 6, name="the result with a cache")
    if cache.fed > 5 + 6:
        fail("the cache is fed tokens that it already holds.", example=f"5 + 6 tokens, and it was given {cache.fed}", look="feed only the columns from cache.length on")
    other = rand_ids(2, 4, n=V, seed=31)
    check_text(sample(model, other.clone(), 5, cache=cache), other, 5, name="the second prompt with the same cache")
    longer = rand_ids(2, 15, n=V, seed=32)
    close(
        sample(model, longer.clone(), 5, cache=cache), text(longer, 5), atol=0, name="a longer prompt with the same cache",
        look="the first lines of sample: a cache that holds an earlier prompt has to be reset",
    )
    model = Known(follows, n_ctx=6)
    got = sample(model, other.clone(), 7, cache=KnownCache(model))
    check_text(got, other, 7, n_ctx=6, name="the result with a cache, past n_ctx = 6")
    filled = KnownCache(Known(follows))
    filled.forward(torch.tensor([[1, 2, 3]] * len(PROMPT)))                # somebody else's text
    if not torch.equal(sample(filled.model, PROMPT.clone(), 6, cache=filled), text(PROMPT, 6)):
        fail("a cache that comes with another text in it spoils the result: it is reset before the first step, not after the last.", look="the first lines of sample")


# --- KVCache -------------------------------------------------------------------------------------------


class StockAttention(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        q, k, v = (p.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for p in self.c_attn(x).chunk(3, dim=-1))
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class StockMLP(nn.Module):
    def __init__(self, n_embd):
        super().__init__()
        self.c_fc = nn.Linear(n_embd, 4 * n_embd)
        self.c_proj = nn.Linear(4 * n_embd, n_embd)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class StockBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn = StockAttention(config.n_embd, config.n_head)
        self.mlp = StockMLP(config.n_embd)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class StockGPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_ctx, config.n_embd)
        self.h = nn.ModuleList(StockBlock(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight), None


CONFIG = SimpleNamespace(vocab_size=17, n_ctx=11, n_layer=3, n_head=3, n_embd=12)


def gpt(seed=0, **sizes):
    return fill(StockGPT(SimpleNamespace(**{**vars(CONFIG), **sizes})), seed=seed, scale=0.4).eval()


@torch.no_grad()
def whole(model, idx):
    """(B, T, V): the logits without a cache, from the model itself."""
    return model(idx)[0]


@torch.no_grad()
def walk(model, chunks, mistake=""):
    """The logits of each chunk in turn with a cache that makes one mistake. Without one: those of the model."""
    n_layer, n_ctx = len(model.h), model.config.n_ctx
    past = [None] * n_layer
    held, out = 0, []
    for chunk in chunks:
        B, T = chunk.shape
        start = {"position 0": 0, "position early": max(held - 1, 0), "position late": held + 1 if held else 0, "position last": held + T - 1}.get(mistake, held)
        positions = torch.arange(start, start + T).clamp(max=n_ctx - 1)
        if mistake == "position last":
            positions = torch.full((T,), start)
        if mistake == "position by calls":
            positions = torch.arange(len(out), len(out) + T)
        x = model.wte(chunk) + (0 if mistake == "no position" else model.wpe(positions))
        for layer, block in enumerate(model.h):
            a = x if mistake == "no ln_1" else block.ln_2(x) if mistake == "ln_2 for ln_1" else block.ln_1(x)
            q, k, v = (p.unflatten(-1, (block.attn.n_head, -1)).transpose(1, 2) for p in block.attn.c_attn(a).chunk(3, dim=-1))
            if mistake == "order kqv":
                q, k = k, q
            if mistake == "order qvk":
                k, v = v, k
            if mistake == "split by reshape":
                q, k, v = (p.transpose(1, 2).reshape(p.shape) for p in (q, k, v))
            slot = 0 if mistake == "shared" else layer
            K, W = k, v
            if past[slot] is not None and mistake != "forgets" and not (mistake == "first layer only" and layer):
                old_k, old_v = past[slot]
                K = torch.cat((k, old_k) if mistake == "new first" else (old_k, k), dim=2)
                W = torch.cat((v, old_v) if mistake == "new first" else (old_v, v), dim=2)
                if mistake == "values forgotten":
                    W = torch.cat((torch.zeros_like(old_v), v), dim=2)
                if mistake == "values for keys":
                    K = torch.cat((old_v, k), dim=2)
                if mistake == "keys for values":
                    W = torch.cat((old_k, v), dim=2)
            past[slot] = (k, v) if mistake == "previous only" else (K, W)
            n = K.shape[2]
            shift = {"top left": 0, "no mask": n, "no mask on top": n - T if held == 0 else n, "top left in chunks": 0 if T > 1 else n - T, "itself hidden": n - T - 1, "one ahead": n - T + 1}.get(mistake, n - T)
            mask = torch.ones(T, n, dtype=torch.bool).tril(shift)
            if mistake == "wrong way round":
                mask = torch.ones(T, n, dtype=torch.bool).triu(n - T)
            if mistake == "own position only":
                mask = torch.eye(n, dtype=torch.bool)[-T:]
            q = q * (math.sqrt(q.shape[-1]) if mistake == "no scale" else 1)
            y = F.scaled_dot_product_attention(q, K, W, attn_mask=mask).nan_to_num(0)
            into = x
            y = y.reshape(B, T, -1) if mistake == "merged by reshape" else y.transpose(1, 2).flatten(2)
            y = y if mistake == "no c_proj" else block.attn.c_proj(y)
            x = y if mistake == "no residual" else a + y if mistake == "residual of ln_1" else x + y
            if mistake != "no mlp":
                source = into if mistake == "parallel" else x
                m = block.mlp(source if mistake == "no ln_2" else block.ln_1(source) if mistake == "ln_1 for ln_2" else block.ln_2(source))
                x = m if mistake == "no mlp residual" else block.ln_2(x) + m if mistake == "residual of ln_2" else x + m
        held += T
        x = x if mistake == "no ln_f" else model.ln_f(x)
        out.append(x if mistake == "no head" else F.linear(x, model.wte.weight))
    return out


POSITIONS = [
    ("the positions start again at 0 with each call: new tokens stand behind those that the cache holds.", "position 0"),
    ("the positions of new tokens are one too low: the first new token stands at position length.", "position early"),
    ("the positions of new tokens are one too high: the first new token stands at position length.", "position late"),
    ("all tokens of a call get the same position.", "position last"),
    ("the position counts calls, not tokens.", "position by calls"),
    ("the position embeddings wpe are left out.", "no position"),
]
MASKS = [
    ("nothing hides the future: tokens that are fed together see those behind them.", "no mask"),
    ("on top of a filled cache nothing hides the future: tokens that are fed together see those behind them.", "no mask on top"),
    ("the mask is aligned at the top left: the new queries are the LAST positions, and see all that the cache holds.", "top left"),
    ("the mask is aligned at the top left: several new queries are the LAST positions, and see all that the cache holds.", "top left in chunks"),
    ("the mask is shifted by one: a token does not see itself.", "itself hidden"),
    ("the mask is shifted by one: a token sees the one behind it.", "one ahead"),
    ("the mask is the wrong way round: tokens see the future and not the past.", "wrong way round"),
]
PARTS = [
    ("ln_1 is left out before the attention.", "no ln_1"),
    ("ln_2 stands where ln_1 belongs, before the attention.", "ln_2 for ln_1"),
    ("ln_2 is left out before the MLP.", "no ln_2"),
    ("ln_f is left out before the logits.", "no ln_f"),
    ("the head is missing: what comes back are C channels, and logits are their products with wte.weight.", "no head"),
    ("the MLP of the blocks is left out.", "no mlp"),
    ("attn.c_proj is left out after the heads are merged.", "no c_proj"),
    ("the residual x + ... around the attention is missing.", "no residual"),
    ("the residual x + ... around the MLP is missing.", "no mlp residual"),
    ("the residual adds the output of ln_1, not its input.", "residual of ln_1"),
    ("the residual adds the output of ln_2, not its input.", "residual of ln_2"),
    ("ln_1 stands where ln_2 belongs, before the MLP.", "ln_1 for ln_2"),
    ("attention and MLP both start from the input of the block: the MLP works on what the attention has added to.", "parallel"),
    ("the heads mix positions when they are split.", "split by reshape"),
    ("c_attn gives q, k and v in this order; k and v are swapped.", "order qvk"),
    ("c_attn gives q, k and v in this order; q and k are swapped.", "order kqv"),
    ("the scores are not divided by sqrt(head_dim).", "no scale"),
    ("the heads are merged without swapping time and heads back.", "merged by reshape"),
    ("one cache serves all layers: each layer needs keys and values of its own.", "shared"),
]
STORES = [
    ("the past is forgotten: the new tokens attend only to the tokens of the same call.", "forgets"),
    ("only the last call's keys and values are kept, those before are lost: what you store must hold the old and the new.", "previous only"),
    ("the keys are kept and the values are not: the old positions give zeros.", "values forgotten"),
    ("values stand in the place of the old keys.", "values for keys"),
    ("keys stand in the place of the old values.", "keys for values"),
    ("only the first layer looks at the past: each layer keeps keys and values of its own.", "first layer only"),
    ("new keys are put before the old ones: the mask then takes the old for the new.", "new first"),
    ("each token attends to itself alone.", "own position only"),
]


def cut(idx, sizes):
    return list(idx.split(sizes, dim=1))


def fed(cache, chunks):
    """The logits of each chunk, fed in turn."""
    return [feed(cache, chunk) for chunk in chunks]


def feed(cache, chunk):
    given = chunk.clone()
    got = cache.forward(given)
    if not torch.equal(given, chunk):
        fail("the argument idx is changed in place: whoever called you still needs it.")
    return got.clone() if isinstance(got, torch.Tensor) else got      # what a later call writes over is looked at elsewhere


def fitting(got, model, chunks, kinds):
    """The words of the mistakes that explain the logits of every chunk."""
    for words, kind in kinds:
        if all(equal(mine, theirs, 1e-5) for mine, theirs in zip(got, walk(model, chunks, kind))):
            yield words


def check_chunks(got, model, chunks, kinds, name, want=None, look=""):
    """Every chunk's logits equal those of the model on all of the text."""
    idx = torch.cat(chunks, dim=1)
    want = whole(model, idx) if want is None else want
    at = 0
    for i, (mine, chunk) in enumerate(zip(got, chunks)):
        B, T = chunk.shape
        target = want[:, at : at + T]
        if isinstance(mine, tuple):
            fail("forward gives a tuple: return the logits alone, (B, T, V).")
        if isinstance(mine, torch.Tensor) and mine.shape in ((B, 1, want.shape[-1]), (B, want.shape[-1])) and mine.shape != target.shape:
            fail("only the logits of one position come back: forward gives logits for each of the T new tokens, next_logits takes the last.")
        if isinstance(mine, torch.Tensor) and mine.dim() == 3 and mine.shape[1] == at + T and at > 0:
            fail("logits for all positions come back, expected logits for the new tokens only.", example=f"{T} new tokens after {at}: shape {tuple(mine.shape)}, expected {tuple(target.shape)}")
        where = f"{name} at tokens {at} to {at + T - 1}" if T > 1 else f"{name} at token {at}"
        close(mine, target, atol=1e-5, name=where, known=[(words, mine) for words in fitting(got, model, chunks, kinds)] if not equal(mine, target, 1e-5) else (), look=look)
        at += T


@checks(CACHE, "the length that it holds")
def cache_length(KVCache):
    cache = KVCache(gpt())
    if not hasattr(cache, "length"):
        fail("the cache has no attribute length: next_logits asks it how many positions it holds.", look="__init__ and reset")
    if cache.length != 0:
        fail(f"a new cache has length {cache.length!r}, expected 0.")
    if isinstance(cache.length, torch.Tensor):
        fail("the length is a tensor; it is an int, a number of positions.", look="reset: length = 0, and forward adds the T of idx.shape")
    held = 0
    for T in (4, 1, 1):
        cache.forward(rand_ids(2, T, n=17, seed=T))
        held += T
        if isinstance(cache.length, torch.Tensor):
            fail("the length has become a tensor; it is an int, a number of positions.", look="what forward adds: the T of idx.shape is a number")
        if cache.length != held:
            words = {
                T: "the length counts the last call only; it counts all positions held.",
                3 * held: "the length is advanced once in each layer: all layers hold the same positions, advance it once a call.",
                0: "the length is not advanced.",
                2 * held: "the length counts the rows of the batch too: it counts positions.",
                held - T + 1: "the length is advanced by 1, whatever number of tokens came.",
            }.get(cache.length, "the length is wrong.")
            fail(words, example=f"after {held} tokens (3 layers, batch of 2) it is {cache.length!r}, expected {held}", look="where length is advanced: by the T of idx, after the last layer")


@checks(CACHE, "a prompt at once")
def cache_prompt(KVCache):
    model = gpt()
    idx = rand_ids(2, 7, n=17, seed=1)
    check_chunks(fed(KVCache(model), [idx]), model, [idx], [*PARTS, *MASKS[:1], *POSITIONS[3:], *MASKS[1:], *STORES[-1:]], "the logits")


@checks(CACHE, "token by token")
def cache_tokens(KVCache):
    model = gpt()
    chunks = cut(rand_ids(2, 8, n=17, seed=2), [1] * 8)
    check_chunks(fed(KVCache(model), chunks), model, chunks, [*POSITIONS, *STORES, *MASKS, *PARTS], "the logits")


@checks(CACHE, "a prompt, then token by token")
def cache_prompt_then_tokens(KVCache):
    model = gpt(seed=50)
    chunks = cut(rand_ids(2, 9, n=17, seed=3), [4, 1, 1, 1, 1, 1])
    check_chunks(fed(KVCache(model), chunks), model, chunks, [*POSITIONS, *STORES, *MASKS, *PARTS], "the logits")


@checks(CACHE, "a prompt in chunks")
def cache_chunks(KVCache):
    model = gpt()
    for sizes in ([3, 4, 1, 2], [2, 2, 5], [1, 6]):
        chunks = cut(rand_ids(2, sum(sizes), n=17, seed=4), sizes)
        try:
            got = fed(KVCache(model), chunks)
        except RuntimeError as error:
            fail(
                f"several tokens on top of a filled cache raise RuntimeError: {str(error).splitlines()[0][:200]}",
                example=f"chunks of {sizes} tokens",
                look="the mask: T new queries by length + T keys; and where the new keys are put",
            )
        check_chunks(got, model, chunks, [*POSITIONS, *MASKS, *STORES, *PARTS], f"the logits of chunks of {sizes}")


@checks(CACHE, "the second prompt after reset")
def cache_reset(KVCache):
    model = gpt()
    cache = KVCache(model)
    fed(cache, cut(rand_ids(2, 8, n=17, seed=5), [5, 1, 1, 1]))
    cache.reset()
    if cache.length != 0:
        fail(f"after reset the length is {cache.length!r}, expected 0.")
    for B in (2, 3, 1):
        chunks = cut(rand_ids(B, 6, n=17, seed=6 + B), [3, 1, 2])
        try:
            got = fed(cache, chunks)
        except RuntimeError as error:
            fail(
                f"after reset, a prompt raises RuntimeError: {str(error).splitlines()[0][:200]}",
                example=f"a batch of {B} after one of another size",
                look="reset: keys and values of the old prompt are still there",
            )
        text = torch.cat(chunks, dim=1)
        if all(isinstance(mine, torch.Tensor) for mine in got) and not equal(torch.cat(got, dim=1), whole(model, text), 1e-5):
            fail(
                "after reset, a prompt gets other logits than in a new cache: something of the old prompt is still there.",
                example=f"a prompt of 8 tokens, reset, then another of 6 in a batch of {B}",
                look="reset: keys, values and length must all be as in a new cache",
            )
        check_chunks(got, model, chunks, [], "the logits of the prompt after reset")
        cache.reset()


@checks(CACHE, "two caches side by side")
def cache_instances(KVCache):
    models = gpt(), gpt(seed=100)
    caches = [KVCache(model) for model in models]
    chunks = [cut(rand_ids(2, 6, n=17, seed=10 + i), [2, 1, 3]) for i in range(2)]
    got = [[], []]
    try:
        for step in range(3):
            for i in range(2):
                got[i].append(feed(caches[i], chunks[i][step]))
    except RuntimeError:
        got = None
    for i in range(2):
        want = whole(models[i], torch.cat(chunks[i], dim=1)).split([2, 1, 3], dim=1)
        if got is None or not all(isinstance(g, torch.Tensor) and equal(g, w, 1e-5) for g, w in zip(got[i], want)):
            fail(
                "two caches disturb each other: what one is fed appears in the other.",
                example="two models with a cache each, fed in turn",
                look="lists that belong to the class, or to a default argument: make them in __init__ with self.",
            )


@checks(CACHE, "up to n_ctx, and not past it")
def cache_end(KVCache):
    model = gpt()
    idx = rand_ids(2, 11, n=17, seed=12)
    for sizes in ([11], [6, 5], [1] * 11):
        chunks = cut(idx, sizes)
        try:
            got = fed(KVCache(model), chunks)
        except (ValueError, IndexError, RuntimeError) as error:
            fail(
                f"{type(error).__name__} before the cache is full: n_ctx = 11 positions must fit.",
                example=f"chunks of {sizes} tokens: {str(error).splitlines()[0][:200] if str(error) else 'no message'}",
            )
        check_chunks(got, model, chunks, [], f"the logits of chunks of {sizes} with n_ctx = 11")
    for first, more in ((11, 1), (9, 3), (0, 12)):
        cache = KVCache(model)
        if first:
            cache.forward(idx[:, :first])
        example = f"n_ctx = 11, {first} positions held, {more} more"
        try:
            cache.forward(rand_ids(2, more, n=17, seed=13))
        except ValueError as error:
            if len(str(error).split()) < 3:
                fail("the ValueError past n_ctx says nothing: write a sentence that tells how many positions fit.", example=example)
        except Exception as error:
            fail(
                f"past n_ctx your code raises {type(error).__name__} from somewhere inside; it should raise ValueError with a sentence, before it starts.",
                example=example,
                look="the first lines of forward: compare length + T with model.config.n_ctx",
            )
        else:
            fail("the cache takes more than n_ctx positions without a word: there is no position embedding for them. Raise ValueError.", example=example)
        if cache.length != first:
            fail(f"after the ValueError the length is {cache.length}, expected {first}: look before you advance it.", example=example)
        if first == 9:
            try:
                rest = cache.forward(idx[:, 9:])
            except (ValueError, RuntimeError):
                rest = None
            if not isinstance(rest, torch.Tensor) or not equal(rest, whole(model, idx)[:, 9:], 1e-5):
                fail(
                    "after the ValueError the cache is damaged: two tokens that do fit get wrong logits.",
                    example=example,
                    look="where ValueError is raised: before any layer has stored its keys",
                )


@checks(CACHE, "the past is not computed again")
def cache_saves_work(KVCache):
    model = gpt()
    idx = torch.tensor([[3, 5, 3, 7, 5], [5, 7, 3, 3, 7]])
    cache = KVCache(model)
    cache.forward(idx)
    new = torch.tensor([[1], [2]])
    want = whole(model, torch.cat((idx, new), dim=1))[:, -1:]
    with torch.no_grad():
        model.wte.weight[[3, 5, 7]] = rand(3, 12, seed=19)
    got = cache.forward(new)
    others = [token for token in range(17) if token not in (3, 5, 7)]
    if not equal(got[..., others], want[..., others], 1e-5):
        fail(
            "the old tokens are run through the model again: the result is right and nothing is saved.",
            example="after the prompt, its tokens' embeddings are changed, and the next logits move",
            look="what the cache keeps: keys and values of each layer, not token ids or embeddings",
        )


@checks(CACHE, "no gradient graph")
def cache_no_grad(KVCache):
    model = gpt()
    cache = KVCache(model)
    got = cache.forward(rand_ids(2, 3, n=17, seed=14))
    kept = [x for value in vars(cache).values() if value is not model for x in tensors(value)]
    if got.requires_grad or any(x.requires_grad for x in kept):
        fail(
            "autograd records what the cache computes: each stored key then holds its whole past in memory.",
            look="torch.no_grad() around the work of forward",
        )
    if not torch.is_grad_enabled():
        fail("gradients stay switched off after forward.", look="torch.set_grad_enabled(False): use torch.no_grad(), which ends by itself")


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, (dict, list, tuple)) or type(value).__name__ == "dict_values":
        return [x for v in value for x in tensors(v)]
    return []


@checks(CACHE, "the model and earlier results stay as they are")
def cache_leaves_alone(KVCache):
    model = gpt()
    before = {name: p.clone() for name, p in model.state_dict().items()}
    idx = rand_ids(2, 8, n=17, seed=15)
    want = whole(model, idx)
    cache = KVCache(model)
    first = cache.forward(idx[:, :4])
    copy = first.clone()
    fed(cache, cut(idx[:, 4:], [1, 3]))
    if not torch.equal(first, copy):
        fail("logits that were handed out earlier change with later calls: they share memory with the cache.")
    if model.training or any(m.training for m in model.modules()):
        fail("the model comes back in training mode, and it was in eval mode.", look="calls of train() and eval(): the cache needs neither")
    for name, p in model.state_dict().items():
        if name not in before or not torch.equal(p, before[name]):
            fail(f"the model's {name} is changed by the cache.", look="operations in place on what wte, wpe or a layer gives you")
    if not equal(whole(model, idx), want, 1e-6):
        fail("the model itself gives other logits once a cache was made for it: it must stay as it is.", look="assignments to model or to its blocks")


@checks(CACHE, "other sizes, dtype and device")
def cache_sizes(KVCache):
    for sizes in ({"n_layer": 1, "n_head": 4, "n_embd": 8, "n_ctx": 6}, {"n_layer": 2, "n_head": 1, "n_embd": 10, "vocab_size": 23}):
        model = gpt(**sizes)
        chunks = cut(rand_ids(1, 6, n=model.config.vocab_size, seed=16), [3, 2, 1])
        check_chunks(fed(KVCache(model), chunks), model, chunks, [*POSITIONS, *MASKS, *STORES, *PARTS], f"the logits for {sizes}", look="sizes that are written as numbers: take them from the model")
    model = gpt().double()
    chunks = cut(rand_ids(2, 6, n=17, seed=17), [3, 2, 1])
    want = whole(model, torch.cat(chunks, dim=1)).split([3, 2, 1], dim=1)
    for mine, target in zip(fed(KVCache(model), chunks), want):
        is_tensor(mine, target.shape, torch.float64, name="the result of a float64 model")
        if not equal(mine, target, 1e-11):
            fail("the model is float64 and the result only as exact as float32.", look="the tensors that hold keys and values: give them the dtype of k")
    keeps_device(lambda model, idx: KVCache(model).forward(idx), gpt(), rand_ids(2, 3, n=17, seed=18))
