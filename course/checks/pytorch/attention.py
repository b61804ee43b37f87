"""Checks of lesson 04: causal attention. The oracle is torch.nn.functional, in float64 where values are compared."""
import itertools
import math
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from course.checks import checks
from course.checks.pytorch import (
    call, close, equal, fail, fill, gradients_close, is_tensor, keeps_device, parameters_are, rand,
)

MASK = "pytorch.attention.causal_mask"
ATTENTION = "pytorch.attention.attention"
SPLIT = "pytorch.attention.split_heads"
MERGE = "pytorch.attention.merge_heads"
MODULE = "pytorch.attention.CausalSelfAttention"


# --- causal_mask ---------------------------------------------------------------------------------------


def expected_mask(n_query, n_key):
    query = np.arange(n_query)[:, None] + n_key - n_query
    return torch.from_numpy(np.arange(n_key)[None, :] <= query)


def mask_mistakes(n_query, n_key):
    right = expected_mask(n_query, n_key)
    ones = torch.ones(n_query, n_key, dtype=torch.bool)
    shift = n_key - n_query
    return [
        ("every query attends to every key: nothing hides the future.", ones),
        ("no query attends to anything.", ~ones),
        ("the mask is inverted: it is True where a query may NOT attend.", ~right),
        ("the diagonal is shifted by one: a query does not see its own position.", ones.tril(shift - 1)),
        ("the diagonal is shifted by one: query 0 attends to the key after its own.", ones.tril(shift + 1)),
        ("the triangle is the wrong way round: queries see the future and not the past.", ones.triu(shift)),
        ("the triangle is the wrong way round and the diagonal is off.", ones.triu(shift + 1)),
        (
            "the mask is aligned at the top left: with more keys than queries, the last query must see every key.",
            ones.tril(),
        ),
        ("the diagonal is moved the wrong way: by n_query - n_key.", ones.tril(-shift)),
        ("each query attends to its own position alone; it may also look at everything before it.", ones.tril(shift) & ones.triu(shift)),
        ("the rows come in the wrong order: row 0 belongs to the first query, which sees least.", right.flip(0)),
    ]


@checks(MASK, "a square mask")
def square_mask(causal_mask):
    got = call(causal_mask, 4, 4)
    if isinstance(got, torch.Tensor) and got.dtype != torch.bool and got.shape == (4, 4):
        fail(
            f"the mask has dtype {got.dtype}, expected torch.bool: True where the query may attend.",
            look="what you return: -inf or 0 and 1 as numbers are made from the mask later",
        )
    close(got, expected_mask(4, 4), atol=0, name="the mask", known=mask_mistakes(4, 4))


@checks(MASK, "more keys than queries")
def rectangular_mask(causal_mask):
    got = call(causal_mask, 3, 5)
    close(got, expected_mask(3, 5), atol=0, name="the mask", known=mask_mistakes(3, 5), look="the argument diagonal of tril")


@checks(MASK, "a single query")
def single_query(causal_mask):
    close(call(causal_mask, 1, 6), expected_mask(1, 6), atol=0, name="the mask", known=mask_mistakes(1, 6))


@checks(MASK, "every size up to 7")
def all_sizes(causal_mask):
    for n_key in range(1, 8):
        for n_query in range(1, n_key + 1):
            got = call(causal_mask, n_query, n_key)
            close(got, expected_mask(n_query, n_key), atol=0, name=f"causal_mask({n_query}, {n_key})", known=mask_mistakes(n_query, n_key))


@checks(MASK, "a new mask at each call")
def fresh_mask(causal_mask):
    first = causal_mask(3, 3)
    first.fill_(False)
    if not equal(causal_mask(3, 3), expected_mask(3, 3), 0):
        fail("two calls share one tensor: whoever changes one mask changes the next.", look="a tensor that is made outside the function, or kept from call to call")


# --- attention -----------------------------------------------------------------------------------------


def sdpa(q, k, v, mask=None, scale=None):
    return F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=mask, scale=scale).to(v.dtype)


def attention_mistakes(q, k, v, mask=None):
    """What common mistakes give on these inputs."""
    d = q.shape[-1]
    q, k, v = q.double(), k.double(), v.double()
    T_q, T_k = q.shape[-2], k.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(d)
    hidden = scores if mask is None else scores.masked_fill(~mask, -math.inf)
    weights = hidden.softmax(-1)

    def by(weights):
        return (weights @ v).float()

    def scaled(factor):
        return by((hidden * factor).softmax(-1))

    found = [
        ("the scores are not divided by sqrt(head_dim).", scaled(math.sqrt(d))),
        ("the scores are multiplied by sqrt(head_dim), not divided.", scaled(d)),
        ("the scores are divided by head_dim, not by its square root.", scaled(1 / math.sqrt(d))),
        ("the scores are divided by the square root of the number of keys, not of head_dim.", scaled(math.sqrt(d / T_k))),
        ("the scores are divided by the square root of v's width; q and k's width counts.", scaled(math.sqrt(d / v.shape[-1]))),
        ("the softmax runs over the queries (dim=-2): each row of weights, over the keys, must sum to 1.", by(hidden.softmax(-2))),
        ("the weights are not normalised: each row must sum to 1.", by((hidden - hidden.amax(-1, keepdim=True)).exp())),
        ("the scale comes after the softmax; it belongs before it.", by((hidden * math.sqrt(d)).softmax(-1) / math.sqrt(d))),
        ("the scores are used as weights without a softmax.", by(scores)),
        ("the softmax runs over all scores of a pair of q and k at once; each row must sum to 1 by itself.", by(hidden.flatten(-2).softmax(-1).view_as(hidden))),
        ("the sum below the fraction runs over all scores; each row must sum to 1 by itself.", by((hidden - hidden.amax(-1, keepdim=True)).exp() / (hidden - hidden.amax(-1, keepdim=True)).exp().sum())),
        ("the softmax runs over all scores at once, those of other sequences too; each row must sum to 1 by itself.", by(hidden.flatten().softmax(-1).view_as(hidden))),
        ("the scores are divided by a number that is written down, 8 = sqrt(64): the width comes from the shape of q.", scaled(math.sqrt(d) / 8)),
    ]
    for axis in range(q.dim() - 2):
        found += [
            (f"the softmax runs over axis {axis}: over the keys, the last axis, each row of weights must sum to 1.", by(hidden.softmax(axis))),
            (f"the scores are divided by the square root of q.shape[{axis}]; the width of q, its last axis, counts.", scaled(math.sqrt(d / q.shape[axis]))),
        ]
    if T_q == T_k:
        found.append(("the weights are transposed before they meet v: row i of the weights belongs to query i.", by(weights.transpose(-2, -1))))
        if mask is None:
            causal = scores.masked_fill(~expected_mask(T_q, T_k), -math.inf)
            found.append(("a causal mask is applied although none is given: mask=None means that all may attend.", by(causal.softmax(-1))))
        swapped = scores.transpose(-2, -1)
        swapped = swapped if mask is None else swapped.masked_fill(~mask, -math.inf)
        found.append(("q and k are swapped: scores[i, j] must be query i with key j.", by(swapped.softmax(-1))))
    if k.shape == v.shape:
        found.append(("the weights multiply k; they must mix the values v.", (weights @ k).float()))
        found.append(("the weights multiply q; they must mix the values v.", (weights @ q).float() if T_q == T_k else None))
    if mask is not None:
        plain = scores.softmax(-1)
        found += [
            ("the mask is ignored: every query attends to every key.", by(plain)),
            ("the mask is inverted: True means may attend.", by(scores.masked_fill(mask.expand_as(scores), -math.inf).softmax(-1))),
            (
                "the mask comes after the softmax and the rows no longer sum to 1: hidden keys still count in the sum below the fraction.",
                by(plain * mask),
            ),
            ("hidden scores are set to 0, or to next to nothing as -1e-9 is, and exp(0) is not 0: the hidden keys still get weight.", by(scores.masked_fill(~mask, 0).softmax(-1))),
            ("hidden scores are multiplied by the mask, and exp(0) is not 0.", by((scores * mask).softmax(-1))),
            ("a bool mask times -inf gives 0 * -inf, which is NaN.", torch.full_like(v[..., :1, :], math.nan).expand(*scores.shape[:-1], v.shape[-1]).float()),
            ("the mask is inverted: what you hide is what may be seen.", by(scores.masked_fill(mask, -1e9).softmax(-1))),
            ("the mask is inverted: what you hide is what may be seen.", by(scores.masked_fill(mask, -math.inf).softmax(-1).nan_to_num())),
            ("hidden scores are filled with +inf, which makes NaN: below every score is -inf.", by(scores.masked_fill(~mask, math.inf).softmax(-1))),
            ("the weights are filled with -inf after the softmax: the mask belongs to the scores, before it.", by(plain.masked_fill(~mask, -math.inf))),
            ("True is added to the scores as 1: the mask hides nothing.", by((scores + mask).softmax(-1))),
            (
                "hidden scores are filled with -10, which still leaves weight on hidden keys: fill with -inf.",
                by(scores.masked_fill(~mask, -10).softmax(-1)),
            ),
            ("the mask is applied with a causal one of your own on top of it.", by(hidden.masked_fill(~expected_mask(T_q, T_k), -math.inf).softmax(-1))),
            ("the mask you are given is replaced by a causal one.", by(scores.masked_fill(~expected_mask(T_q, T_k), -math.inf).softmax(-1))),
        ]
    return [(words, value) for words, value in found if value is not None]


def qkv(*lead, T_q, T_k, d, d_v, scale=1.0, dtype=torch.float32):
    q = rand(*lead, T_q, d, seed=1, scale=scale, dtype=dtype)
    k = rand(*lead, T_k, d, seed=2, scale=scale, dtype=dtype)
    v = rand(*lead, T_k, d_v, seed=3, dtype=dtype)
    return q, k, v


def differ(a, b):
    """Two results of the same call that should be equal; anything that is no tensor is for others to name."""
    return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and not equal(a, b, 0)


@checks(ATTENTION, "values without a mask")
def values_without_mask(attention):
    q, k, v = qkv(2, 3, T_q=5, T_k=5, d=4, d_v=4)
    got, again = call(attention, q, k, v), attention(q, k, v)
    if differ(got, again):
        fail("two calls with the same input differ: something random is at work.", look="dropout, and memory that is never written, as torch.empty gives")
    close(got, sdpa(q, k, v), atol=2e-6, known=attention_mistakes(q, k, v))


@checks(ATTENTION, "values with a causal mask")
def values_with_causal_mask(attention):
    q, k, v = qkv(2, 3, T_q=5, T_k=5, d=4, d_v=4)
    mask = expected_mask(5, 5)
    got = call(attention, q, k, v, mask)
    close(got, sdpa(q, k, v, mask), atol=2e-6, known=attention_mistakes(q, k, v, mask), look="the line that applies the mask")


@checks(ATTENTION, "the future has no influence")
def future_has_no_influence(attention):
    q, k, v = qkv(T_q=6, T_k=6, d=4, d_v=4)
    mask = expected_mask(6, 6)
    before = attention(q, k, v, mask)
    is_tensor(before, (6, 4), name="the result for q of shape (6, 4) and a mask of shape (6, 6)")
    k, v = k.clone(), v.clone()
    k[4], v[4] = 50.0, -1e4
    moved = (attention(q, k, v, mask) - before)[:4].abs().max().item()
    if not moved == 0:
        fail(
            "a key that the mask hides still changes the result.",
            example=f"changing key and value 4 moves queries 0 to 3 by up to {moved:.2g}, expected 0",
            look="the number that fills hidden scores, whether the mask comes before the softmax, and what is subtracted before exp",
        )


@checks(ATTENTION, "any mask you are given")
def any_mask(attention):
    q, k, v = qkv(2, 3, T_q=4, T_k=6, d=5, d_v=7)
    mask = rand(2, 1, 4, 6, seed=4) > 0
    mask[..., 0] = True
    close(call(attention, q, k, v, mask), sdpa(q, k, v, mask), atol=2e-6, known=attention_mistakes(q, k, v, mask))


@checks(ATTENTION, "large scores")
def large_scores(attention):
    q, k, v = qkv(2, T_q=3, T_k=4, d=4, d_v=5, scale=30.0)
    got = call(attention, q, k, v)
    if isinstance(got, torch.Tensor) and not got.isfinite().all():
        fail(
            "large scores overflow: exp of more than 88 is inf in float32.",
            example=f"with scores up to {(q @ k.transpose(-2, -1)).max().item() / 2:.0f} the result holds nan or inf",
            look="subtract the largest score of each row before exp; the weights stay the same",
        )
    close(got, sdpa(q, k, v), atol=1e-4)


@checks(ATTENTION, "very negative scores beside a mask")
def very_negative_scores(attention):
    q = torch.full((2, 2), -1e3)
    k = torch.full((2, 2), 1e2)
    v = rand(2, 3, seed=3)
    mask = expected_mask(2, 2)
    got = call(attention, q, k, v, mask)
    if not equal(got, sdpa(q, k, v, mask), 1e-5):
        fail(
            "a hidden key wins over a visible one when the visible scores are very negative: the filler is not negative enough.",
            example="visible scores of -141,000: query 0 must attend to key 0 alone",
            look="the number that fills hidden scores: -inf is below every score",
        )


@checks(ATTENTION, "other shapes")
def other_shapes(attention):
    for lead in [(), (2,), (2, 3, 2)]:
        q, k, v = qkv(*lead, T_q=3, T_k=5, d=6, d_v=7)
        mask = expected_mask(3, 5)
        for m in (None, mask):
            close(call(attention, q, k, v, m), sdpa(q, k, v, m), atol=2e-6, name=f"the result for q of shape {tuple(q.shape)}", known=attention_mistakes(q, k, v, m))


@checks(ATTENTION, "float64 stays float64")
def float64(attention):
    q, k, v = qkv(2, T_q=3, T_k=4, d=5, d_v=6, dtype=torch.float64)
    got = call(attention, q, k, v)
    is_tensor(got, (2, 3, 6), torch.float64)
    if not equal(got, sdpa(q, k, v), 1e-12):
        fail("the result is float64 and only as exact as float32: a step in between is float32.", look=".float(), and tensors that you create without dtype=q.dtype")


@checks(ATTENTION, "gradients")
def attention_gradients(attention):
    q, k, v = qkv(2, 3, T_q=4, T_k=4, d=5, d_v=6)
    mask = expected_mask(4, 4)
    gradients_close(lambda *x: attention(*x, mask), lambda *x: F.scaled_dot_product_attention(*x, attn_mask=mask), (q, k, v), 1e-5, "qkv")


@checks(ATTENTION, "the device of the input")
def attention_device(attention):
    keeps_device(attention, *qkv(2, T_q=3, T_k=3, d=4, d_v=4), expected_mask(3, 3))
    keeps_device(attention, *qkv(2, T_q=3, T_k=3, d=4, d_v=4))


# --- split_heads, merge_heads --------------------------------------------------------------------------


def other_orders(want, names):
    """The right numbers with their axes in another order."""
    right = ", ".join(names)
    return [
        (f"the axes come in the order ({', '.join(names[a] for a in order)}); it is ({right}).", want.permute(order))
        for order in itertools.permutations(range(want.dim())) if list(order) != sorted(order)
    ]


@checks(SPLIT, "values")
def split_values(split_heads):
    x = rand(2, 5, 12, seed=5)
    want = torch.stack(x.chunk(3, dim=-1), dim=1)                       # (2, 3, 5, 4)
    close(call(split_heads, x, 3), want, atol=0, known=[
        (
            "the heads mix positions: view straight to (B, n_head, T, head_dim) cuts the memory in the wrong places. Split the channels first, then swap the axes.",
            x.reshape(2, 3, 5, 4),
        ),
        ("time and heads are still in the order (B, T, n_head, head_dim).", x.reshape(2, 5, 3, 4)),
        ("channels are dealt out to the heads in turn; head 0 takes the first head_dim channels, head 1 the next.", x.reshape(2, 5, 4, 3).permute(0, 3, 1, 2)),
        ("the last axes are swapped: (B, n_head, head_dim, T).", want.transpose(2, 3)),
        ("heads and head_dim are exchanged: n_head is the number of heads, not their width.", torch.stack(x.chunk(4, dim=-1), dim=1)),
        ("the heads come in the wrong order.", want.flip(1)),
        ("the heads come before the batch.", want.transpose(0, 1)),
        ("batch and heads are one axis: there are four axes, (B, n_head, T, head_dim).", want.flatten(0, 1)),
        ("batch and heads are one axis: there are four axes, (B, n_head, T, head_dim).", x.reshape(6, 5, 4)),
        *other_orders(want, ("B", "n_head", "T", "head_dim")),
    ])


@checks(SPLIT, "another number of heads")
def split_other(split_heads):
    for B, T, C, n_head in [(1, 4, 6, 1), (3, 1, 8, 4), (2, 7, 6, 6)]:
        x = rand(B, T, C, seed=6)
        close(call(split_heads, x, n_head), torch.stack(x.chunk(n_head, dim=-1), dim=1), atol=0, name=f"the result for {n_head} heads")


@checks(SPLIT, "gradients and dtype")
def split_gradients(split_heads):
    x = rand(2, 3, 4, seed=7, dtype=torch.float64)
    is_tensor(call(split_heads, x, 2), (2, 2, 3, 2), torch.float64)
    gradients_close(lambda x: split_heads(x, 2), lambda x: torch.stack(x.chunk(2, dim=-1), dim=1), [x], 1e-12, "x")


@checks(MERGE, "values")
def merge_values(merge_heads):
    x = rand(2, 3, 5, 4, seed=8)
    want = torch.cat(list(x.unbind(1)), dim=-1)                         # (2, 5, 12)
    close(call(merge_heads, x), want, atol=0, known=[
        (
            "positions are mixed: reshape straight to (B, T, C) reads the memory in the order of the heads. Swap heads and time back first.",
            x.reshape(2, 5, 12),
        ),
        ("the channels of the heads are interleaved; each head keeps its head_dim channels together.", x.permute(0, 2, 3, 1).reshape(2, 5, 12)),
        ("time and head_dim are swapped before the merge.", x.transpose(2, 3).reshape(2, 4, 15)),
        ("the result still has four axes: put the heads side by side along the channels.", x.transpose(1, 2)),
        ("the heads are added up; they stand side by side.", x.sum(1)),
        ("the heads are averaged; they stand side by side.", x.mean(1)),
        ("the heads come in the wrong order.", torch.cat(list(x.flip(1).unbind(1)), dim=-1)),
        ("the result is (B, C, T): swap the last two axes.", want.transpose(1, 2)),
        ("heads and time are swapped rightly, and then the shape is (B, n_head, ...): in x the positions are axis 2.", x.transpose(1, 2).reshape(2, 3, 20)),
        ("the heads stand one behind the other along time; they stand side by side along the channels.", torch.cat(list(x.unbind(1)), dim=1)),
        ("the last two axes are swapped before the merge; heads and time change places.", x.transpose(2, 3).reshape(2, 5, 12)),
        ("batch and time are swapped before the merge; heads and time change places.", x.transpose(0, 2).reshape(2, 5, 12)),
        ("only the first head is left.", x[:, 0]),
        ("only the last head is left.", x[:, -1]),
        ("time and channels are one axis: the result is (B, T, n_head * head_dim).", want.flatten(1)),
        ("everything is one axis: the result is (B, T, n_head * head_dim).", want.flatten()),
        *other_orders(want, ("B", "T", "C")),
    ])


@checks(MERGE, "another number of heads")
def merge_other(merge_heads):
    for shape in [(1, 1, 4, 6), (3, 4, 1, 2), (2, 6, 7, 1)]:
        x = rand(*shape, seed=9)
        close(call(merge_heads, x), torch.cat(list(x.unbind(1)), dim=-1), atol=0, name=f"the result for shape {shape}")


@checks(MERGE, "an input that is not contiguous")
def merge_not_contiguous(merge_heads):
    x = rand(2, 5, 3, 4, seed=10).transpose(1, 2)
    close(call(merge_heads, x), torch.cat(list(x.unbind(1)), dim=-1), atol=0)
    x = rand(4, 5, 3, 2, seed=10).permute(3, 2, 1, 0)
    close(call(merge_heads, x), torch.cat(list(x.unbind(1)), dim=-1), atol=0, look="view needs contiguous memory, reshape copies where it must")


@checks(MERGE, "gradients and dtype")
def merge_gradients(merge_heads):
    x = rand(2, 3, 4, 2, seed=11, dtype=torch.float64)
    is_tensor(call(merge_heads, x), (2, 4, 6), torch.float64)
    gradients_close(merge_heads, lambda x: torch.cat(list(x.unbind(1)), dim=-1), [x], 1e-12, "x")


# --- CausalSelfAttention -------------------------------------------------------------------------------


CONFIG = SimpleNamespace(vocab_size=11, n_ctx=7, n_layer=2, n_head=3, n_embd=12)


def cut(x, n_head):
    return torch.stack(x.chunk(n_head, dim=-1), dim=1)


def join(x):
    return torch.cat(list(x.unbind(1)), dim=-1)


def expected_module(module, x, n_head=3, order="qkv", mask=True, project=True, scale=None, cut=cut, join=join):
    """GPT-2's attention from stock functions, with the weights of module; the options are mistakes.

    mask: True for a causal one, False for none, or a (T, T) bool tensor.
    """
    given, mask = (None, mask) if isinstance(mask, bool) else (mask, False)
    parts = dict(zip(order, F.linear(x, module.c_attn.weight, module.c_attn.bias).chunk(3, dim=-1)))
    q, k, v = (cut(parts[name], n_head) for name in "qkv")
    y = join(F.scaled_dot_product_attention(q, k, v, attn_mask=given, is_causal=mask, scale=scale))
    return F.linear(y, module.c_proj.weight, module.c_proj.bias) if project else y


def module_mistakes(module, x):
    B, T, C = x.shape
    interleaved = F.linear(x, module.c_attn.weight, module.c_attn.bias).reshape(B, T, 3, 3, C // 3)
    q, k, v = interleaved.permute(3, 0, 2, 1, 4)
    per_head = join(F.scaled_dot_product_attention(q, k, v, is_causal=True))
    no_bias = F.linear(join(F.scaled_dot_product_attention(*(cut(p, 3) for p in F.linear(x, module.c_attn.weight).chunk(3, -1)), is_causal=True)), module.c_proj.weight)
    ones = torch.ones(T, T, dtype=torch.bool)
    merged = expected_module(module, x, project=False)
    weight, bias = module.c_proj.weight, module.c_proj.bias
    qkv = [cut(p, 3) for p in F.linear(x, module.c_attn.weight, module.c_attn.bias).chunk(3, -1)]
    late = (qkv[0] @ qkv[1].transpose(-2, -1) / math.sqrt(C // 3)).softmax(-1)

    def hides(hidden):
        scores = qkv[0] @ qkv[1].transpose(-2, -1) / math.sqrt(C // 3)
        return F.linear(join(scores.masked_fill(hidden, -math.inf).softmax(-1) @ qkv[2]), weight, bias)

    return [
        ("the mask is inverted or the wrong way round: a position sees its future and not its past.", hides(ones.tril())),
        ("the mask is the wrong way round: a position sees its future and not its past.", hides(ones.tril(-1))),
        ("the mask hides each position from itself.", hides(ones.triu())),
        ("the mask is off by one: each position sees the one after it.", hides(ones.triu(2))),
        ("the mask comes after the softmax: hidden keys still count in the sum below the fraction.", F.linear(join(late * ones.tril() @ qkv[2]), weight, bias)),
        ("n_head and head_dim are exchanged: n_head is the number of heads, not their width.", expected_module(module, x, n_head=C // 3)),
        ("there is a head for each channel: n_head is not used.", expected_module(module, x, n_head=C)),
        ("batch and time are swapped: sequences attend to each other, not positions.", expected_module(module, x.transpose(0, 1)).transpose(0, 1)),
        ("c_proj is applied with its weight not transposed: Linear's weight is (out, in).", merged @ weight + bias),
        ("c_proj is applied twice.", F.linear(F.linear(merged, weight, bias), weight, bias)),
        ("the bias of c_proj is not used.", F.linear(merged, weight)),
        ("there is no causal mask: positions see their future.", expected_module(module, x, mask=False)),
        ("c_proj is not applied to the merged heads.", expected_module(module, x, project=False)),
        ("q, k and v are cut out of c_attn head by head (q0 k0 v0 q1 k1 v1 ...); GPT-2 stores all of q, then all of k, then all of v.", F.linear(per_head, module.c_proj.weight, module.c_proj.bias)),
        ("c_attn's thirds are taken in the wrong order: q, k, v it is.", expected_module(module, x, order="kqv")),
        ("c_attn's thirds are taken in the wrong order: q, k, v it is.", expected_module(module, x, order="vkq")),
        ("c_attn's thirds are taken in the wrong order: q, k, v it is.", expected_module(module, x, order="qvk")),
        ("c_attn's thirds are taken in the wrong order: q, k, v it is.", expected_module(module, x, order="kvq")),
        ("c_attn's thirds are taken in the wrong order: q, k, v it is.", expected_module(module, x, order="vqk")),
        ("there is only one head: n_head is not used.", expected_module(module, x, n_head=1)),
        ("the scores are divided by sqrt(n_embd); the width of one head counts.", expected_module(module, x, scale=C**-0.5)),
        ("the scores are not divided by sqrt(head_dim).", expected_module(module, x, scale=1.0)),
        ("the heads mix positions when they are split.", expected_module(module, x, cut=lambda p, h: p.reshape(B, h, T, C // h))),
        ("the heads are merged without swapping time and heads back.", expected_module(module, x, join=lambda y: y.reshape(B, T, C))),
        ("the biases of c_attn and c_proj are not used.", no_bias),
        ("the input is added to the result; the residual belongs to the block.", expected_module(module, x) + x),
    ]


def build(CausalSelfAttention):
    """A module; what nn.Module itself needs is named."""
    try:
        module = CausalSelfAttention(CONFIG)
    except AttributeError as error:
        if "Module.__init__() call" not in str(error):
            raise
        fail("nn.Module is not set up yet when the first part is stored.", look="the first line of __init__: super().__init__()")
    if not isinstance(module, nn.Module):
        fail("CausalSelfAttention is no nn.Module: without that nothing finds its parameters.", look="the line class CausalSelfAttention(nn.Module)")
    return module


@checks(MODULE, "parameters")
def module_parameters(CausalSelfAttention):
    parameters_are(build(CausalSelfAttention), {
        "c_attn.weight": (36, 12), "c_attn.bias": (36,), "c_proj.weight": (12, 12), "c_proj.bias": (12,),
    }, "CausalSelfAttention")


@checks(MODULE, "the state dict")
def module_state_dict(CausalSelfAttention):
    module = CausalSelfAttention(CONFIG)
    extra = [name for name in module.state_dict() if name not in dict(module.named_parameters())]
    if extra:
        fail(
            f"the state dict holds {extra[0]}, which is no weight: GPT-2's checkpoint has nothing for it.",
            look="register_buffer(..., persistent=False), or make the mask in forward",
        )


@checks(MODULE, "two modules")
def two_modules(CausalSelfAttention):
    a, b = CausalSelfAttention(CONFIG), CausalSelfAttention(CONFIG)
    memory = {p.data_ptr() for p in b.parameters()}
    shared = [name for name, p in a.named_parameters() if p.data_ptr() in memory]
    if shared:
        fail(f"two modules share {shared[0]}: whoever trains one trains the other.", look="parts that are created outside __init__: in the class body, as a default argument, as a global")


@checks(MODULE, "values")
def module_values(CausalSelfAttention):
    module = fill(CausalSelfAttention(CONFIG))
    x = rand(2, 5, 12, seed=12)
    for mode, name in [(True, "the result"), (False, "the result in eval mode")]:
        module.train(mode)
        got = call(module, x)
        if differ(got, module(x)):
            fail("two calls with the same input differ: something random is at work.", look="dropout, or parameters that are created in forward")
        close(got, expected_module(module, x), atol=2e-6, name=name, known=module_mistakes(module, x))


@checks(MODULE, "other lengths and sizes")
def module_lengths(CausalSelfAttention):
    module = fill(CausalSelfAttention(CONFIG))
    for B, T in [(1, 1), (3, 7), (2, 4)]:
        x = rand(B, T, 12, seed=13)
        close(call(module, x), expected_module(module, x), atol=2e-6, name=f"the result for T = {T} (n_ctx = 7)", look="the size of the mask: T by T, whatever n_ctx is")
    other = SimpleNamespace(vocab_size=5, n_ctx=4, n_layer=1, n_head=4, n_embd=8)
    module = fill(CausalSelfAttention(other))
    x = rand(2, 3, 8, seed=14)
    close(call(module, x), expected_module(module, x, n_head=4), atol=2e-6, name="the result for 4 heads of width 2", look="sizes that are written as numbers: take them from config")


@checks(MODULE, "causality, by changing the future")
def module_causality(CausalSelfAttention):
    module = fill(CausalSelfAttention(CONFIG))
    x = rand(1, 6, 12, seed=15)
    before = module(x)
    changed = x.clone()
    changed[:, 3] = rand(12, seed=16)
    moved = (module(changed) - before).abs().amax(dim=(0, 2)) > 0
    if moved[:3].any():
        fail("a later token changes an earlier result.", example=f"a new token at position 3 moves positions {moved.nonzero().flatten().tolist()}, expected [3, 4, 5]")
    if not moved[3:].all():
        fail("a token does not reach all later positions.", example=f"a new token at position 3 moves positions {moved.nonzero().flatten().tolist()}, expected [3, 4, 5]")


@checks(MODULE, "gradients of every parameter")
def module_gradients(CausalSelfAttention):
    module = fill(CausalSelfAttention(CONFIG))
    x, weighting = rand(2, 5, 12, seed=18), rand(2, 5, 12, seed=19)
    names, params = zip(*module.named_parameters(), ("x", x.requires_grad_()))
    wanted = torch.autograd.grad((expected_module(module, x) * weighting).sum(), params)
    mine = torch.autograd.grad((module(x) * weighting).sum(), params, allow_unused=True)
    for name, got, want in zip(names, mine, wanted):
        if got is None:
            fail(f"no gradient reaches {name}.", look=".data, .detach() and torch.tensor(...) cut the graph")
        close(got, want, 1e-5, name=f"the gradient of {name}", look=".data, .detach() and torch.no_grad() in a part of the way")


@checks(MODULE, "device and dtype")
def module_device(CausalSelfAttention):
    module = fill(CausalSelfAttention(CONFIG))
    x = rand(2, 5, 12, seed=20)
    keeps_device(lambda m, x: m(x), module, x)
    close(call(module.double(), x.double()), expected_module(module, x.double()), 1e-12, name="the result in float64", look="float32 tensors made on the way")


@checks(MODULE, "n_head is kept")
def module_n_head(CausalSelfAttention):
    got = getattr(CausalSelfAttention(CONFIG), "n_head", None)
    if got != 3:
        fail(f"the module's n_head is {got}, expected 3, as in config: the cache of lesson 08 reads it.", look="self.n_head in __init__")
