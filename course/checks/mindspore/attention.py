"""Checks of lesson 12: causal attention in MindSpore. The oracle is torch.nn.functional, in float64 where values are compared.

What a mistake gives is computed by the functions of lesson 04's checks: the mistakes are the same, in another framework.
"""
from types import SimpleNamespace

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import nn

from course.checks import checks
from course.checks.mindspore import (
    Mismatch, arrays, call, close, equal, fail, fill, gradients_close, gradients_of, in_plain_words, is_tensor, parameters_are, rand,
    same_gradient_in_graph_mode, same_in_graph_mode,
)
from course.checks.mindspore.primitives import only_half
from course.checks.pytorch import attention as in_torch

MASK = "mindspore.attention.causal_mask"
ATTENTION = "mindspore.attention.attention"
SPLIT = "mindspore.attention.split_heads"
MERGE = "mindspore.attention.merge_heads"
MODULE = "mindspore.attention.CausalSelfAttention"

VALUES = 1e-5      # ops.exp on a CPU is exact to 6e-6: a right answer that ends in exp is that far off

IN_PLACE = "methods that end in _ (div_, masked_fill_) return the right number eagerly on a CPU, and most of them change nothing"


def torch_of(*given):
    return [torch.from_numpy(np.array(x)) if isinstance(x, np.ndarray) else x for x in given]


def known_of(mistakes):
    """Pairs (words, torch tensor) as pairs (words, array)."""
    return [(words, value.detach().numpy()) for words, value in mistakes]


def torch_gradients(function, inputs):
    """Gradients of the weighting that gradients_of uses, by PyTorch."""
    given = [torch.tensor(x, requires_grad=True) for x in inputs]
    out = function(*given)
    grads = torch.autograd.grad((out * torch.from_numpy(rand(*out.shape, seed=99))).sum(), given)
    return [g.numpy() for g in grads]


def differ(a, b):
    """Two results of the same call that should be equal; anything that is no tensor is for others to name."""
    return isinstance(a, ms.Tensor) and isinstance(b, ms.Tensor) and not equal(a, b.asnumpy(), 0)


# --- causal_mask ---------------------------------------------------------------------------------------


def expected_mask(n_query, n_key):
    return np.arange(n_key)[None, :] <= np.arange(n_query)[:, None] + n_key - n_query


def mask_mistakes(n_query, n_key):
    return known_of(in_torch.mask_mistakes(n_query, n_key))


@checks(MASK, "a square mask")
def square_mask(causal_mask):
    got = call(causal_mask, 4, 4)
    if isinstance(got, ms.Tensor) and got.dtype != ms.bool_ and got.shape == (4, 4):
        fail(
            f"the mask has dtype {got.dtype}, expected Bool: True where the query may attend.",
            look="what you return: a comparison gives bools, and so does .astype(ms.bool_)",
        )
    close(got, expected_mask(4, 4), atol=0, name="the mask", known=mask_mistakes(4, 4))


@checks(MASK, "more keys than queries")
def rectangular_mask(causal_mask):
    got = call(causal_mask, 3, 5)
    close(got, expected_mask(3, 5), atol=0, name="the mask", known=mask_mistakes(3, 5), look="the second argument of tril")


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
    first[...] = False
    if not equal(causal_mask(3, 3), expected_mask(3, 3), 0):
        fail("two calls share one tensor: whoever changes one mask changes the next.", look="a tensor that is made outside the function, or kept from call to call")


@checks(MASK, "the same in graph mode", seconds=20)
def mask_in_graph_mode(causal_mask):
    same_in_graph_mode(causal_mask, 3, 5, atol=0)


# --- attention -----------------------------------------------------------------------------------------


def sdpa(q, k, v, mask=None):
    return in_torch.sdpa(*torch_of(q, k, v, mask)).numpy()


def attention_mistakes(q, k, v, mask=None):
    found = known_of(in_torch.attention_mistakes(*torch_of(q, k, v, mask)))
    scores = torch.from_numpy(q @ k.swapaxes(-2, -1)).double() / q.shape[-1] ** 0.5
    hidden = scores if mask is None else scores.masked_fill(~torch.from_numpy(mask), -np.inf)
    found.append(("the weights are logarithms: the softmax itself is needed, not log_softmax.", (hidden.log_softmax(-1) @ torch.from_numpy(v).double()).numpy()))
    if mask is not None:
        shown = scores.masked_fill(~torch.from_numpy(mask), -1.0).softmax(-1)
        found.append(("hidden scores are filled with -1, a score like any other: below every score is -inf.", (shown @ torch.from_numpy(v).double()).numpy()))
    return [(f"{words} Or: {IN_PLACE}." if "not divided by sqrt" in words else words, value) for words, value in found]


def qkv(*lead, T_q, T_k, d, d_v, scale=1.0):
    return rand(*lead, T_q, d, seed=1, scale=scale), rand(*lead, T_k, d, seed=2, scale=scale), rand(*lead, T_k, d_v, seed=3)


@checks(ATTENTION, "values without a mask")
def values_without_mask(attention):
    q, k, v = qkv(2, 3, T_q=5, T_k=5, d=4, d_v=4)
    got, again = call(attention, q, k, v), call(attention, q, k, v)
    if differ(got, again):
        fail("two calls with the same input differ: something random is at work.", look="dropout")
    only_half(got, sdpa(q, k, v), 5e-5, look="ms.float16 written down, and .astype")
    close(got, sdpa(q, k, v), VALUES, known=attention_mistakes(q, k, v))


@checks(ATTENTION, "values with a causal mask")
def values_with_causal_mask(attention):
    q, k, v = qkv(2, 3, T_q=5, T_k=5, d=4, d_v=4)
    mask = expected_mask(5, 5)
    got, want = call(attention, q, k, v, mask), sdpa(q, k, v, mask)
    if isinstance(got, ms.Tensor) and got.shape == want.shape and not equal(got, want, VALUES) and not np.isnan(got.asnumpy()).all():
        # An inverted causal mask leaves a row empty, for which ops.softmax gives chance numbers on a CPU: a mask without empty rows names it.
        q_6, k_6, v_6 = qkv(2, 3, T_q=5, T_k=6, d=4, d_v=4)
        other = np.concatenate([mask, np.arange(5)[:, None] == 0], axis=1)
        told = call(attention, q_6, k_6, v_6, other)
        if not np.isnan(told.asnumpy()).all():                # as +inf makes of every row that hides something: of many mistakes
            close(told, sdpa(q_6, k_6, v_6, other), VALUES, known=attention_mistakes(q_6, k_6, v_6, other), look="the line that applies the mask")
    close(got, want, VALUES, known=attention_mistakes(q, k, v, mask), look="the line that applies the mask")


@checks(ATTENTION, "the future has no influence")
def future_has_no_influence(attention):
    q, k, v = qkv(T_q=6, T_k=6, d=4, d_v=4)
    mask = expected_mask(6, 6)
    before = call(attention, q, k, v, mask)
    is_tensor(before, (6, 4), name="the result for q of shape (6, 4) and a mask of shape (6, 6)")
    k, v = k.copy(), v.copy()
    k[4], v[4] = 50.0, -1e4
    after = call(attention, q, k, v, mask)
    is_tensor(after, (6, 4))
    moved = np.abs(after.asnumpy() - before.asnumpy())[:4].max()
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
    close(call(attention, q, k, v, mask), sdpa(q, k, v, mask), VALUES, known=attention_mistakes(q, k, v, mask))


@checks(ATTENTION, "large scores")
def large_scores(attention):
    q, k, v = qkv(2, T_q=3, T_k=4, d=4, d_v=5, scale=30.0)
    got = call(attention, q, k, v)
    if isinstance(got, ms.Tensor) and not np.isfinite(got.asnumpy()).all():
        fail(
            "large scores overflow: exp of more than 88 is inf in float32.",
            example=f"with scores up to {(q @ k.swapaxes(-2, -1)).max() / 2:.0f} the result holds nan or inf",
            look="subtract the largest score of each row before exp. With axis= MindSpore's max returns the values alone, and [0] of them is the first sequence",
        )
    close(got, sdpa(q, k, v), atol=1e-4)


@checks(ATTENTION, "very negative scores beside a mask")
def very_negative_scores(attention):
    q, k, v = np.full((2, 2), -1e3, np.float32), np.full((2, 2), 1e2, np.float32), rand(2, 3, seed=3)
    mask = expected_mask(2, 2)
    if not equal(call(attention, q, k, v, mask), sdpa(q, k, v, mask), 1e-5):
        fail(
            "a hidden key wins over a visible one when the visible scores are very negative: the filler is not negative enough.",
            example="visible scores of -141,000: query 0 must attend to key 0 alone",
            look="the number that fills hidden scores: -inf is below every score",
        )


@checks(ATTENTION, "other shapes")
def other_shapes(attention):
    for lead in [(), (2,), (2, 3, 2)]:
        q, k, v = qkv(*lead, T_q=3, T_k=5, d=6, d_v=7)
        for mask in (None, expected_mask(3, 5)):
            close(call(attention, q, k, v, mask), sdpa(q, k, v, mask), VALUES, name=f"the result for q of shape {q.shape}", known=attention_mistakes(q, k, v, mask))


@checks(ATTENTION, "float16 stays float16")
def float16(attention):
    q, k, v = qkv(2, T_q=3, T_k=3, d=5, d_v=6)
    for mask in (None, expected_mask(3, 3)):
        half = [x.astype(np.float16) for x in (q, k, v)]
        close(call(attention, *half, mask), sdpa(q, k, v, mask).astype(np.float16), atol=1e-2, name="the result for float16", look="tensors that you create without dtype=q.dtype")


@checks(ATTENTION, "gradients")
def attention_gradients(attention):
    q, k, v = qkv(2, 3, T_q=4, T_k=4, d=5, d_v=6)
    mask = expected_mask(4, 4)
    hidden, seen = ms.Tensor(mask), torch.from_numpy(mask)

    def masked(q, k, v):
        return attention(q, k, v, hidden)

    wanted = torch_gradients(lambda *x: F.scaled_dot_product_attention(*x, attn_mask=seen), (q, k, v))
    gradients_close(gradients_of(masked, (q, k, v)), wanted, "qkv", VALUES)


@checks(ATTENTION, "the same in graph mode", seconds=20)
def attention_in_graph_mode(attention):
    q, k, v = qkv(2, 3, T_q=4, T_k=5, d=6, d_v=7)
    same_in_graph_mode(attention, q, k, v, expected_mask(4, 5), atol=VALUES)
    same_in_graph_mode(attention, q, k, v, atol=VALUES)
    same_gradient_in_graph_mode(attention, q, k, v)
    q, k, v = qkv(2, 3, T_q=4, T_k=5, d=6, d_v=7, scale=30.0)
    try:
        same_in_graph_mode(attention, q, k, v, atol=1e-4)
    except Mismatch as mismatch:
        fail(
            "large scores are fine eagerly and overflow in graph mode: x.max(-1) is a pair of values and indices in one mode and the values alone in the other.",
            example=str(mismatch).split("for example: ")[-1],
            look="[0] after max: with axis= there are only values, in both modes",
        )


# --- split_heads, merge_heads --------------------------------------------------------------------------


def split_by_numpy(x, n_head):
    return np.stack(np.split(x, n_head, axis=-1), axis=1)


def merge_by_numpy(x):
    return np.concatenate([x[:, h] for h in range(x.shape[1])], axis=-1)


def other_orders(want, names):
    return known_of(in_torch.other_orders(torch.from_numpy(want), names))


@checks(SPLIT, "values")
def split_values(split_heads):
    x = rand(2, 5, 12, seed=5)
    want = split_by_numpy(x, 3)                                          # (2, 3, 5, 4)
    close(call(split_heads, x, 3), want, atol=0, known=[
        (
            "the heads mix positions: view or reshape straight to (B, n_head, T, head_dim) cuts the memory in the wrong places. Split the channels first, then swap the axes.",
            x.reshape(2, 3, 5, 4),
        ),
        ("time and heads are still in the order (B, T, n_head, head_dim).", x.reshape(2, 5, 3, 4)),
        ("channels are dealt out to the heads in turn; head 0 takes the first head_dim channels, head 1 the next.", x.reshape(2, 5, 4, 3).transpose(0, 3, 1, 2)),
        ("the last axes are swapped: (B, n_head, head_dim, T).", want.swapaxes(2, 3)),
        ("heads and head_dim are exchanged: n_head is the number of heads, not their width.", split_by_numpy(x, 4)),
        ("the heads come in the wrong order.", want[:, ::-1]),
        ("the heads come before the batch.", want.swapaxes(0, 1)),
        ("batch and heads are one axis: there are four axes, (B, n_head, T, head_dim).", want.reshape(6, 5, 4)),
        ("batch and heads are one axis: there are four axes, (B, n_head, T, head_dim).", x.reshape(6, 5, 4)),
        *other_orders(want, ("B", "n_head", "T", "head_dim")),
    ])


@checks(SPLIT, "another number of heads")
def split_other(split_heads):
    for B, T, C, n_head in [(1, 4, 6, 1), (3, 1, 8, 4), (2, 7, 6, 6)]:
        x = rand(B, T, C, seed=6)
        close(call(split_heads, x, n_head), split_by_numpy(x, n_head), atol=0, name=f"the result for {n_head} heads")


@checks(SPLIT, "gradients and dtype")
def split_gradients(split_heads):
    x = rand(2, 3, 4, seed=7)
    is_tensor(call(split_heads, x.astype(np.float16), 2), (2, 2, 3, 2), ms.float16, name="the result for float16")

    def two_heads(x):
        return split_heads(x, 2)

    wanted = torch_gradients(lambda x: torch.stack(x.chunk(2, dim=-1), dim=1), [x])
    gradients_close(gradients_of(two_heads, [x]), wanted, "x")


@checks(SPLIT, "the same in graph mode", seconds=20)
def split_in_graph_mode(split_heads):
    same_in_graph_mode(split_heads, rand(2, 5, 12, seed=5), 3, atol=0)


@checks(MERGE, "values")
def merge_values(merge_heads):
    x = rand(2, 3, 5, 4, seed=8)
    want = merge_by_numpy(x)                                             # (2, 5, 12)
    close(call(merge_heads, x), want, atol=0, known=[
        (
            "positions are mixed: view or reshape straight to (B, T, C) reads the memory in the order of the heads. Swap heads and time back first.",
            x.reshape(2, 5, 12),
        ),
        ("the channels of the heads are interleaved; each head keeps its head_dim channels together.", x.transpose(0, 2, 3, 1).reshape(2, 5, 12)),
        ("time and head_dim are swapped before the merge.", x.swapaxes(2, 3).reshape(2, 4, 15)),
        ("the result still has four axes: put the heads side by side along the channels.", x.swapaxes(1, 2)),
        ("the heads are added up; they stand side by side.", x.sum(1)),
        ("the heads are averaged; they stand side by side.", x.mean(1)),
        ("the heads come in the wrong order.", merge_by_numpy(x[:, ::-1])),
        ("the result is (B, C, T): swap the last two axes.", want.swapaxes(1, 2)),
        ("heads and time are swapped rightly, and then the shape is (B, n_head, ...): in x the positions are axis 2.", x.swapaxes(1, 2).reshape(2, 3, 20)),
        ("the heads stand one behind the other along the batch, axis 0; they stand side by side along the channels.", np.concatenate([x[:, h] for h in range(3)], axis=0)),
        ("the heads stand one behind the other along time; they stand side by side along the channels.", np.concatenate([x[:, h] for h in range(3)], axis=1)),
        ("the last two axes are swapped before the merge; heads and time change places.", x.swapaxes(2, 3).reshape(2, 5, 12)),
        ("batch and time are swapped before the merge; heads and time change places.", x.swapaxes(0, 2).reshape(2, 5, 12)),
        ("heads and head_dim are swapped before the merge; heads and time change places.", x.swapaxes(1, 3).reshape(2, 5, 12)),
        ("the heads stand on an axis of their own, the last one; they stand side by side along the channels.", x.transpose(0, 2, 3, 1)),
        ("batch and time are one axis: the result is (B, T, n_head * head_dim).", want.reshape(10, 12)),
        ("only the first head is left.", x[:, 0]),
        ("only the last head is left.", x[:, -1]),
        ("time and channels are one axis: the result is (B, T, n_head * head_dim).", want.reshape(2, 60)),
        ("everything is one axis: the result is (B, T, n_head * head_dim).", want.reshape(120)),
        *other_orders(want, ("B", "T", "C")),
    ])


@checks(MERGE, "another number of heads")
def merge_other(merge_heads):
    for shape in [(1, 1, 4, 6), (3, 4, 1, 2), (2, 6, 7, 1)]:
        x = rand(*shape, seed=9)
        close(call(merge_heads, x), merge_by_numpy(x), atol=0, name=f"the result for shape {shape}")


@checks(MERGE, "gradients and dtype")
def merge_gradients(merge_heads):
    x = rand(2, 3, 4, 2, seed=11)
    is_tensor(call(merge_heads, x.astype(np.float16)), (2, 4, 6), ms.float16, name="the result for float16")
    wanted = torch_gradients(lambda x: torch.cat(list(x.unbind(1)), dim=-1), [x])
    gradients_close(gradients_of(merge_heads, [x]), wanted, "x")


@checks(MERGE, "the same in graph mode", seconds=20)
def merge_in_graph_mode(merge_heads):
    same_in_graph_mode(merge_heads, rand(2, 3, 5, 4, seed=8), atol=0)


# --- CausalSelfAttention -------------------------------------------------------------------------------

CONFIG = SimpleNamespace(vocab_size=11, n_ctx=7, n_layer=2, n_head=3, n_embd=12)

SPLIT_RULES = [
    ("values to unpack", "split does not give three parts: its number is the width of a part, not how many there are, and its axis is 0 if you give none."),
]


def shadow(module):
    """The parameters of a Cell as torch tensors, under the same names."""
    found = arrays(module)
    parts = {
        part: SimpleNamespace(weight=torch.from_numpy(found[f"{part}.weight"].copy()), bias=torch.from_numpy(found[f"{part}.bias"].copy()))
        for part in ("c_attn", "c_proj")
    }
    return SimpleNamespace(**parts)


def expected_module(module, x, **options):
    return in_torch.expected_module(shadow(module), torch.from_numpy(x), **options).numpy()


def module_mistakes(module, x):
    twice = expected_module(module, x, scale=CONFIG.n_head / CONFIG.n_embd)
    return known_of(in_torch.module_mistakes(shadow(module), torch.from_numpy(x))) + [
        ("the scores are divided by sqrt(head_dim) twice: attention divides them already.", twice),
    ]


def result(module, x):
    with in_plain_words(SPLIT_RULES):
        return call(module, x)


def build(CausalSelfAttention):
    """A Cell; what nn.Cell itself needs is named."""
    try:
        module = CausalSelfAttention(CONFIG)
    except (AttributeError, TypeError) as error:
        if "super().__init__" not in str(error) and "Cell.__init__" not in str(error) and "_auto_prefix" not in str(error):
            raise
        fail("nn.Cell is not set up yet when the first part is stored.", look="the first line of __init__: super().__init__()")
    if not isinstance(module, nn.Cell):
        fail(
            f"CausalSelfAttention is no mindspore.nn.Cell, it is a {type(module).__mro__[1].__module__}.{type(module).__mro__[1].__name__}: without that nothing finds its parameters.",
            look="the line class CausalSelfAttention(nn.Cell), and which nn is imported",
        )
    if type(module).construct is nn.Cell.construct:
        fail("there is no construct: a Cell runs the method construct where a PyTorch module runs forward.", look="the name of the second method")
    return module


@checks(MODULE, "parameters")
def module_parameters(CausalSelfAttention):
    parameters_are(build(CausalSelfAttention), {
        "c_attn.weight": (36, 12), "c_attn.bias": (36,), "c_proj.weight": (12, 12), "c_proj.bias": (12,),
    }, "CausalSelfAttention")


@checks(MODULE, "two modules")
def two_modules(CausalSelfAttention):
    a, b = CausalSelfAttention(CONFIG), CausalSelfAttention(CONFIG)
    others = {id(p) for p in b.get_parameters()}
    shared = [name for name, p in a.parameters_and_names() if id(p) in others]
    if shared:
        fail(f"two modules share {shared[0]}: whoever trains one trains the other.", look="parts that are created outside __init__: in the class body, as a default argument, as a global")


def sees_its_future_alone(CausalSelfAttention):
    """Whether the mask is inverted. The last row is then empty, and where ops.softmax gives chance numbers for it, those before it tell."""
    module = fill(CausalSelfAttention(SimpleNamespace(**{**vars(CONFIG), "n_head": 1})))
    x = rand(1, 5, 12, seed=12)
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    return equal(result(module, x)[:, :4], expected_module(module, x, n_head=1, mask=future)[:, :4], VALUES)


@checks(MODULE, "values")
def module_values(CausalSelfAttention):
    module = fill(CausalSelfAttention(CONFIG))
    x = rand(2, 5, 12, seed=12)
    for mode, name in [(True, "the result in training mode"), (False, "the result")]:
        module.set_train(mode)
        got, again = result(module, x), result(module, x)
        want = expected_module(module, x)
        if isinstance(got, ms.Tensor) and not equal(got, want, VALUES) and sees_its_future_alone(CausalSelfAttention):
            fail("the mask is inverted: a position sees its future and not its past.", look="what is True in the mask, and what is filled")
        if differ(got, again):
            fail("two calls with the same input differ: something random is at work.", look="dropout, or parameters that are created in construct")
        close(got, want, VALUES, name=name, known=module_mistakes(module, x))


@checks(MODULE, "other lengths and sizes")
def module_lengths(CausalSelfAttention):
    module = fill(CausalSelfAttention(CONFIG))
    for B, T in [(1, 1), (3, 7), (2, 4)]:
        x = rand(B, T, 12, seed=13)
        close(result(module, x), expected_module(module, x), VALUES, name=f"the result for T = {T} (n_ctx = 7)", look="the size of the mask: T by T, whatever n_ctx is")
    other = SimpleNamespace(vocab_size=5, n_ctx=4, n_layer=1, n_head=4, n_embd=8)
    module = fill(CausalSelfAttention(other))
    x = rand(2, 3, 8, seed=14)
    close(result(module, x), expected_module(module, x, n_head=4), VALUES, name="the result for 4 heads of width 2", look="sizes that are written as numbers: take them from config")


@checks(MODULE, "causality, by changing the future")
def module_causality(CausalSelfAttention):
    module = fill(CausalSelfAttention(CONFIG))
    x = rand(1, 6, 12, seed=15)
    changed = x.copy()
    changed[:, 3] = rand(12, seed=16)
    before, after = result(module, x), result(module, changed)
    moved = np.abs(after.asnumpy() - before.asnumpy()).max(axis=(0, 2)) > 0
    if moved[:3].any():
        fail("a later token changes an earlier result.", example=f"a new token at position 3 moves positions {moved.nonzero()[0].tolist()}, expected [3, 4, 5]")
    if not moved[3:].all():
        fail("a token does not reach all later positions.", example=f"a new token at position 3 moves positions {moved.nonzero()[0].tolist()}, expected [3, 4, 5]")


@checks(MODULE, "gradients of every parameter")
def module_gradients(CausalSelfAttention):
    module = fill(CausalSelfAttention(CONFIG))
    x = rand(2, 5, 12, seed=18)
    names, params = zip(*module.parameters_and_names())
    twin = shadow(module)

    def expected(x, *parameters):
        for name, value in zip(names, parameters):
            part, _, which = name.partition(".")
            setattr(getattr(twin, part), which, value)
        return in_torch.expected_module(twin, x)

    wanted = torch_gradients(expected, [x, *(arrays(module)[name] for name in names)])
    gradients_close(gradients_of(module, [x], params), wanted, ("x", *names), VALUES)


@checks(MODULE, "n_head is kept")
def module_n_head(CausalSelfAttention):
    got = getattr(CausalSelfAttention(CONFIG), "n_head", None)
    if got != 3:
        fail(f"the module's n_head is {got}, expected 3, as in config: the cache of lesson 16 reads it.", look="self.n_head in __init__")


@checks(MODULE, "the same in graph mode", seconds=20)
def module_in_graph_mode(CausalSelfAttention):
    module = fill(CausalSelfAttention(CONFIG))
    same_in_graph_mode(module, rand(2, 5, 12, seed=12), atol=VALUES)
