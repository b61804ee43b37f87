"""Checks of lesson 21: the call of an Ascend's fused attention. Oracles: NumPy for the layouts, torch.nn.functional in float64 for
the values, and course.flash, the model of what the operator documents.

No check needs an Ascend. Where there is one, the arguments also go to the operator itself; that branch was not run.
"""
import math

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import nn, ops

from course import flash
from course.checks import checks
from course.checks.mindspore import (
    call, close, fail, gradients_close, gradients_of, in_plain_words, is_tensor, rand, same_in_graph_mode,
)

ms.runtime.launch_blocking()    # as in the checks of training: waiting for each small operation is faster than handing it over

TO = "mindspore.ascend.to_layout"
FROM = "mindspore.ascend.from_layout"
ARGUMENTS = "mindspore.ascend.flash_attention_arguments"
PAD = "mindspore.ascend.AutoPad"

SHAPE = (2, 3, 5, 4)          # (B, n_head, T, head_dim)
HALF = 2e-3                   # numbers near 1 in float16 are 5e-4 from their nearest neighbour, sums of them a little more

# --- layouts -------------------------------------------------------------------------------------------


def laid(x, layout):
    """x (B, N, S, D) in a layout, by NumPy."""
    B, N, S, D = x.shape
    return {
        "BNSD": lambda: x,
        "BSND": lambda: x.transpose(0, 2, 1, 3),
        "BSH": lambda: x.transpose(0, 2, 1, 3).reshape(B, S, N * D),
        "SBH": lambda: x.transpose(2, 0, 1, 3).reshape(S, B, N * D),
        "TND": lambda: x.transpose(0, 2, 1, 3).reshape(B * S, N, D),
    }[layout]()


def layout_mistakes(x, layout):
    B, N, S, D = x.shape
    target = laid(x, layout).shape
    time_first = x.transpose(2, 0, 1, 3)                                  # (S, B, N, D)
    found = [
        ("the axes are only drawn anew by a reshape, and numbers of different heads and positions are mixed: the axes must change places first.", x.reshape(target)),
        ("heads and channels are mixed: one head's channels stand side by side, the first head first.", x.transpose(0, 2, 3, 1).reshape(target)),
        ("the result is still (B, n_head, T, head_dim): nothing was moved.", x),
    ]
    for other in flash.LAYOUTS:
        if other != layout:
            found.append((f"what comes back is {other}, and {layout} was asked for.", laid(x, other)))
    if layout == "TND":
        found.append(("the sequences are interleaved, position by position: in TND they stand end to end, all of the first, then all of the second.", time_first.reshape(target)))
    if layout == "SBH":
        found.append(("time and batch are mixed: in SBH the time axis comes first, and it must change places with the batch.", laid(x, "BSH").reshape(target)))
    return found


@checks(TO, "every layout")
def to_every_layout(to_layout):
    x = rand(*SHAPE)
    for layout in ("BNSD", "BSND", "BSH", "SBH", "TND"):
        close(call(to_layout, x, layout), laid(x, layout), atol=0, name=f"the result for {layout}", known=layout_mistakes(x, layout), look=f"the branch of {layout}")


@checks(TO, "other sizes")
def to_other_sizes(to_layout):
    for shape in ((1, 1, 7, 2), (3, 2, 1, 5), (4, 6, 2, 1)):
        x = rand(*shape, seed=1)
        for layout in flash.LAYOUTS:
            close(call(to_layout, x, layout), laid(x, layout), atol=0, name=f"the result for {layout} and a shape of {shape}", known=layout_mistakes(x, layout), look="sizes that are written as numbers: take them from x.shape")


@checks(TO, "float16 stays float16")
def to_float16(to_layout):
    x = rand(*SHAPE, seed=2).astype(np.float16)
    for layout in flash.LAYOUTS:
        close(call(to_layout, x, layout), laid(x, layout), atol=0, name=f"the result for {layout} in float16")


def refuses(function, *args, error=ValueError, what, look=""):
    try:
        function(*args)
    except error as found:
        if len(str(found).split()) < 3:
            fail(f"{what} raises {error.__name__} and says nothing: write a sentence that tells what is wrong and what is expected.", look=look)
        return
    except Exception as found:
        fail(f"{what} raises {type(found).__name__}, expected {error.__name__} with a sentence.", look=look)
    fail(f"{what} goes through without a word, expected {error.__name__} with a sentence.", look=look)


@checks(TO, "an unknown layout")
def to_unknown_layout(to_layout):
    for layout in ("BHSD", "bsh", ""):
        refuses(to_layout, ms.Tensor(rand(*SHAPE)), layout, what=f"the layout {layout!r}", look="the last line: what happens if no branch fits")


@checks(TO, "gradients")
def to_gradients(to_layout):
    x = rand(*SHAPE, seed=3)
    for layout in flash.LAYOUTS:

        def run(x, layout=layout):
            return to_layout(x, layout)

        weighting = rand(*laid(x, layout).shape, seed=99)
        gradients_close(gradients_of(run, [x]), [undone(weighting, layout, SHAPE)], ["x"])


@checks(TO, "the same in graph mode", seconds=20)
def to_in_graph_mode(to_layout):
    def run(x):
        return to_layout(x, "BSND"), to_layout(x, "BSH"), to_layout(x, "SBH"), to_layout(x, "TND")

    same_in_graph_mode(run, rand(*SHAPE), atol=0)


def undone(x, layout, shape):
    """The inverse of laid."""
    places = laid(np.arange(math.prod(shape)).reshape(shape), layout)
    back = np.empty(math.prod(shape), x.dtype)
    back[places.ravel()] = x.ravel()
    return back.reshape(shape)


def back_mistakes(x, layout, shape):
    B, N, S, D = shape
    y = laid(x, layout)
    found = [
        ("the axes are only drawn anew by a reshape: after it heads and time must change places.", y.reshape(shape)),
        ("the result is (B, T, n_head, head_dim): heads and time have to change places.", x.transpose(0, 2, 1, 3)),
        ("what comes back is still in the layout: nothing was moved.", y),
        ("heads and channels are mixed: a row holds all channels of the first head, then all of the second.", y.reshape(B, S, D, N).transpose(0, 3, 1, 2)),
    ]
    if layout == "SBH":
        found.append(("SBH is taken for BSH: its first axis is time, and it must change places with the batch.", y.reshape(B, S, N, D).transpose(0, 2, 1, 3)))
    if layout == "TND":
        found.append(("the sequences are taken as interleaved: in TND they stand end to end.", y.reshape(S, B, N, D).transpose(1, 2, 0, 3)))
    return found


@checks(FROM, "back from every layout")
def from_every_layout(from_layout):
    x = rand(*SHAPE, seed=4)
    for layout in ("BNSD", "BSND", "BSH", "SBH", "TND"):
        close(call(from_layout, laid(x, layout).copy(), layout, SHAPE), x, atol=0, name=f"the result for {layout}", known=back_mistakes(x, layout, SHAPE), look=f"the branch of {layout}")


@checks(FROM, "other sizes")
def from_other_sizes(from_layout):
    for shape in ((1, 1, 7, 2), (3, 2, 1, 5), (4, 6, 2, 1)):
        x = rand(*shape, seed=5)
        for layout in flash.LAYOUTS:
            close(call(from_layout, laid(x, layout).copy(), layout, shape), x, atol=0, name=f"the result for {layout} and a shape of {shape}", known=back_mistakes(x, layout, shape), look="sizes that are written as numbers: take them from shape")


@checks(FROM, "float16 stays float16")
def from_float16(from_layout):
    x = rand(*SHAPE, seed=6).astype(np.float16)
    for layout in flash.LAYOUTS:
        close(call(from_layout, laid(x, layout).copy(), layout, SHAPE), x, atol=0, name=f"the result for {layout} in float16")


@checks(FROM, "an unknown layout")
def from_unknown_layout(from_layout):
    for layout in ("BHSD", "bsh", ""):
        refuses(from_layout, ms.Tensor(rand(*SHAPE)), layout, SHAPE, what=f"the layout {layout!r}", look="the last line: what happens if no branch fits")


@checks(FROM, "gradients")
def from_gradients(from_layout):
    for layout in flash.LAYOUTS:
        y = laid(rand(*SHAPE, seed=7), layout).copy()

        def run(y, layout=layout):
            return from_layout(y, layout, SHAPE)

        gradients_close(gradients_of(run, [y]), [laid(rand(*SHAPE, seed=99), layout)], ["x"])


@checks(FROM, "the same in graph mode", seconds=20)
def from_in_graph_mode(from_layout):
    def run(bsnd, bsh, sbh, tnd):
        return from_layout(bsnd, "BSND", SHAPE), from_layout(bsh, "BSH", SHAPE), from_layout(sbh, "SBH", SHAPE), from_layout(tnd, "TND", SHAPE)

    x = rand(*SHAPE, seed=8)
    same_in_graph_mode(run, *(laid(x, layout).copy() for layout in ("BSND", "BSH", "SBH", "TND")), atol=0)


# --- flash_attention_arguments -------------------------------------------------------------------------

NAMES = (
    "query key value head_num real_shift drop_mask padding_mask attn_mask prefix actual_seq_qlen actual_seq_kvlen "
    "keep_prob scalar_value pre_tokens next_tokens inner_precise input_layout sparse_mode"
).split()


def seen_by(n_query, n_key, shift=None):
    """(n_query, n_key) bool, True where a query may attend; the last query stands at the last key."""
    return np.arange(n_key)[None, :] <= np.arange(n_query)[:, None] + (n_key - n_query if shift is None else shift)


def expected(q, k, v, mask=None, scale=None):
    """float64, by PyTorch."""
    q, k, v = (torch.from_numpy(x.astype(np.float64)) for x in (q, k, v))
    mask = None if mask is None else torch.from_numpy(np.array(mask))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale).numpy()


def qkv(B, N, T_q, T_k, D, seed=0):
    return [rand(B, N, T, D, seed=seed + i).astype(np.float16) for i, T in enumerate((T_q, T_k, T_k))]


def arguments_of(function, q, k, v, *args, **options):
    """The dict, looked at for what no call could bear."""
    rule = ("FlashAttentionScore", "the operator itself is called: return the dict of its arguments, and call nothing.")
    with in_plain_words([rule]):
        got = call(function, q, k, v, *args, **options)
    if got is None:
        fail("the result is None. Is there a return at the end?")
    if not isinstance(got, dict):
        fail(f"the result is of type {type(got).__name__}, expected a dict: the names of the operator's arguments and their values.")
    for name in got:
        if name not in NAMES:
            near = {"q": "query", "k": "key", "v": "value", "scale": "scalar_value", "scale_value": "scalar_value", "layout": "input_layout", "mask": "attn_mask", "n_head": "head_num", "atten_mask": "attn_mask"}.get(name)
            fail(f"the operator has no argument {name!r}{f': it is called {near}' if near else ''}.", look="the names in the table")
    for name in ("query", "key", "value", "head_num"):
        if name not in got:
            fail(f"{name} is missing: the operator has no default for it.")
    for name in ("query", "key", "value", "attn_mask"):
        if got.get(name) is not None and not isinstance(got[name], ms.Tensor):
            fail(f"{name} is of type {type(got[name]).__name__}: the operator takes a mindspore.Tensor there.", look=f"the line that makes {name}")
    sorted_ = [np.sort(flash.numbers(x), axis=None) for x in (q, k, v)]
    for name, wanted in zip(("query", "key", "value"), sorted_):
        mine = np.sort(flash.numbers(got[name]), axis=None)
        if mine.size == wanted.size and not any(np.array_equal(mine, other) for other in sorted_):      # swapped ones are told by the result
            few = "is scaled: the operator scales the scores itself, by scalar_value" if np.corrcoef(mine, wanted)[0, 1] > 0.999 else "holds other numbers than it was given"
            fail(f"{name} {few}.", example=f"its largest number is {mine[-1]:.4g}, that of the tensor you were given {wanted[-1]:.4g}", look=f"the line that makes {name}: to_layout moves numbers and changes none")
    return got


def result_of(arguments, layout, shape, where):
    """What the operator documents for these arguments, as (B, n_head, T, head_dim) float64.

    On an Ascend the operator itself is called as well, and must give the same; that was not run.
    """
    try:
        got = flash.flash_attention_score(**arguments)
    except (flash.Refused, flash.RefusedType) as refused:
        fail(f"the operator documents that it does not take this call ({where}): {refused}", look=refused_look(str(refused)))
    if flash.on_ascend():
        real = ops.flash_attention_score(**arguments)
        if not np.allclose(flash.numbers(real), flash.numbers(got), rtol=4 * HALF, atol=4 * HALF):
            fail(f"the operator itself gives other numbers than its documentation ({where}).", look="the versions of CANN and MindSpore: python -m course ascend prints them")
    return undone(flash.numbers(got), layout, shape)


def refused_look(text):
    for mark, look in [
        ("attn_mask", "the line that makes attn_mask, and sparse_mode beside it"),
        ("scalar_value", "math.sqrt gives a Python number, ops.sqrt a tensor"),
        ("actual_seq", "where each sequence ends, as sums: for two sequences of 5 tokens [5, 10]"),
        ("next_tokens", "the lines for TND: its documentation also asks for next_tokens=0"),
        ("head_num", "head_num: the heads of q, its axis 1"),
        ("heads", "head_num, and the layout of q, k and v"),
        ("head_dim", "input_layout, and whether q, k and v are in that layout"),
        ("axes", "input_layout, and whether q, k and v are in that layout"),
    ]:
        if mark in text:
            return look
    return ""


def call_mistakes(q, k, v, mask):
    """What a call gives that makes one mistake; mask True: may attend."""
    T_q, T_k = q.shape[2], k.shape[2]
    d = q.shape[-1]
    shown = np.ones((T_q, T_k), bool) if mask is None else mask
    found = [
        ("the scores are not divided by sqrt(head_dim): scalar_value is 1.0 unless you give it.", lambda: expected(q, k, v, mask, 1.0)),
        ("the scores are multiplied by sqrt(head_dim), expected 1 over it.", lambda: expected(q, k, v, mask, math.sqrt(d))),
        ("the scores are divided by head_dim, expected its square root.", lambda: expected(q, k, v, mask, 1 / d)),
        ("the scale is that of all channels, n_head times head_dim: each head has head_dim of them.", lambda: expected(q, k, v, mask, 1 / math.sqrt(d * q.shape[1]))),
        ("the scale is that of the number of keys, expected that of head_dim.", lambda: expected(q, k, v, mask, 1 / math.sqrt(T_k))),
        ("there is no mask at work: the queries see the future." if mask is not None else "a mask is at work, and none was asked for.", lambda: expected(q, k, v, None if mask is not None else seen_by(T_q, T_k))),
        ("sparse_mode 2 starts the diagonal at the upper left: the FIRST query stands at the first key. In your causal_mask the LAST query stands at the last key.", lambda: expected(q, k, v, seen_by(T_q, T_k, 0))),
        ("the mask you were given is not used: the causal one is at work.", lambda: expected(q, k, v, seen_by(T_q, T_k))),
        ("key and value are swapped.", lambda: expected(q, v, k, mask)),
    ]
    if mask is not None and not (~shown).all(axis=-1).any():
        found.insert(0, ("the mask is the wrong way round: for this operator True means DISCARD, and yours is True where a query may attend.", lambda: expected(q, k, v, ~shown)))
    if q.shape == k.shape:
        found.append(("query and key are swapped.", lambda: expected(k, q, v, mask)))
    return found


def compare(function, q, k, v, shown, where, known=(), look="", **options):
    """The attention that the arguments stand for, against PyTorch's; shown is True where a query may attend."""
    layout, scale = options.get("layout", "BNSD"), options.get("scale")
    arguments = arguments_of(function, q, k, v, **options)
    given = arguments.get("input_layout")
    if given != layout:
        fail("input_layout is missing, and the operator then takes it for BSH." if given is None else f"input_layout is {given!r} and {layout!r} was asked for.", look="the line of input_layout")
    heads = arguments["head_num"]
    if isinstance(heads, int) and heads != q.shape[1]:
        fail(f"head_num is {heads} and q has {q.shape[1]} heads.", look="head_num: axis 1 of q, as it is before to_layout")
    got = result_of(arguments, layout, q.shape, where)
    known = [(words, lambda f=f: f().astype(np.float32)) for words, f in [*known, *call_mistakes(q, k, v, shown)]]
    close(ms.Tensor(got.astype(np.float32)), expected(q, k, v, shown, scale).astype(np.float32), HALF, name=f"the attention of this call ({where})", known=known, look=look)


@checks(ARGUMENTS, "the causal mask, square")
def arguments_causal(function):
    compare(function, *qkv(2, 3, 6, 6, 16), seen_by(6, 6), "6 queries, 6 keys, the rest by default")


@checks(ARGUMENTS, "more keys than queries")
def arguments_rectangular(function):
    compare(function, *qkv(2, 3, 3, 7, 16, seed=3), seen_by(3, 7), "3 queries, 7 keys")


@checks(ARGUMENTS, "a mask of your own")
def arguments_mask(function):
    q, k, v = qkv(2, 3, 4, 6, 32, seed=6)
    mask = rand(2, 1, 4, 6, seed=4) > 0
    mask[..., 0], mask[..., 1] = True, False                  # no empty row, inverted or not
    for given in (mask[0, 0], mask, np.broadcast_to(mask, (2, 3, 4, 6)).copy()):
        known = [("the mask of the first sequence serves all: hand on the mask you were given, whole.", lambda: expected(q, k, v, mask[:1]))]
        compare(function, q, k, v, given, f"a mask of shape {given.shape}", mask=given, known=known)


@checks(ARGUMENTS, "no mask")
def arguments_no_mask(function):
    compare(function, *qkv(2, 3, 4, 6, 16, seed=9), None, "mask=None", mask=None)


@checks(ARGUMENTS, "every layout")
def arguments_layouts(function):
    look = "to_layout for query, key and value; sizes are those of q and k before it"
    for layout in flash.LAYOUTS:
        T = 1 if layout == "BSND" else 4
        q, k, v = qkv(2, 3, T, 5, 16, seed=12)

        def end_to_end():
            one = [x.swapaxes(0, 1).reshape(1, 3, -1, 16) for x in (q, k, v)]
            return expected(*one, seen_by(2 * T, 10)).reshape(3, 2, T, 16).swapaxes(0, 1)

        known = [("the sequences are taken for one long one, and the second sees the first: each needs an end of its own.", end_to_end)] if layout == "TND" else []
        compare(function, q, k, v, seen_by(T, 5), layout, look=look, layout=layout, known=known)


@checks(ARGUMENTS, "a scale that is given")
def arguments_scale(function):
    q, k, v = qkv(2, 3, 4, 4, 16, seed=15)
    for scale in (0.5, 0.0):
        known = [("the scale that is given is not used.", lambda: expected(q, k, v))]
        compare(function, q, k, v, None, f"scale={scale}", mask=None, scale=scale, known=known, look="the line of scalar_value: only None means that no scale is given")


@checks(ARGUMENTS, "bfloat16 stays bfloat16")
def arguments_bfloat16(function):
    q, k, v = (ms.Tensor(x).astype(ms.bfloat16) for x in qkv(1, 2, 3, 3, 16, seed=18))
    got = arguments_of(function, q, k, v, mask=None)
    for name in ("query", "key", "value"):
        is_tensor(got[name], (1, 2, 3, 16), ms.bfloat16, name)


@checks(ARGUMENTS, "what does not fit is refused")
def arguments_refused(function):
    q, k, v = (ms.Tensor(x.astype(np.float32)) for x in qkv(1, 2, 3, 3, 16))
    for dtype in (ms.float32, ms.float64, ms.int32):
        look = "the first lines: compare q.dtype with ms.float16 and ms.bfloat16"
        refuses(function, *(x.astype(dtype) for x in (q, k, v)), error=TypeError, what=f"q in {str(dtype).lower()}", look=look)
    half = [x.astype(ms.float16) for x in (q, k, v)]
    refuses(lambda *x: function(*x, mask="full"), *half, what="mask='full'", look="the branch of masks in words: 'causal' is the only word")
    for mask in (ms.Tensor(seen_by(3, 3)), None):
        refuses(lambda *x: function(*x, mask=mask, layout="TND"), *half, what=f"TND with {'mask=None' if mask is None else 'a mask that is not causal'}", look="the first lines: TND is for the causal mask")


# --- AutoPad -------------------------------------------------------------------------------------------


def scores_and_average(q, k, v, mask, scale):
    """Attention with a scale of its own, in operations of both modes."""
    scores = ops.matmul(q * scale, k.swapaxes(-2, -1))                    # (B, n_head, T_q, T_k)
    if mask is not None:
        scores = scores.masked_fill(ops.logical_not(mask), -1e4)
    return ops.matmul(ops.softmax(scores, -1), v)


MISSING = object()


class Core:
    """An attend that remembers what it was given."""

    def __init__(self):
        self.given, self.tensors = [], []

    def __call__(self, q, k, v, mask=MISSING, scale=MISSING):
        look = "the arguments of attend: q, k, v, mask, scale"
        if mask is MISSING or scale is MISSING:
            fail("attend is not given its mask and its scale." if mask is MISSING else "attend is not given its scale.", look=look)
        if scale is None or isinstance(scale, str) or isinstance(mask, (int, float)):
            fail("mask and scale are swapped, or one of them is lost.", example=f"attend gets mask = {mask!r} and scale = {scale!r}", look=look)
        if isinstance(mask, str):
            fail(f"attend gets the mask {mask!r}, and none was given: hand it on as it is.", look=look)
        self.tensors = [q, k, v]
        for name, x in [("q", q), ("k", k), ("v", v)]:
            if not isinstance(x, ms.Tensor):
                fail(f"attend gets a {type(x).__name__} for {name}, expected a tensor.")
        self.given.append(([tuple(x.shape) for x in (q, k, v)], mask, scale))
        if q.shape[-1] != k.shape[-1] or isinstance(scale, ms.Tensor):
            return ops.zeros((*q.shape[:-1], v.shape[-1]), v.dtype)       # told below, from what was given
        return scores_and_average(q, k, v, mask, scale)


def padded(AutoPad, d, *options):
    """What attend was given for q, k, v of head_dim d."""
    core = Core()
    given = [rand(2, 3, 4, d, seed=d), rand(2, 3, 5, d, seed=1), rand(2, 3, 5, d, seed=2)]
    call(AutoPad(core, *options), *given)
    if len(core.given) != 1:
        fail(f"attend is called {len(core.given)} times, expected once.")
    for name, mine, x in zip("qkv", core.tensors, given):
        filled = mine.asnumpy()
        if filled.shape[:-1] != x.shape[:-1] or filled.shape[-1] <= d:
            continue                                                      # told by the widths
        front, behind = filled[..., :d], filled[..., d:]
        if np.array_equal(front, x) and not behind.any():
            continue
        if np.array_equal(filled[..., -d:], x):
            fail(f"the zeros stand in front of the channels of {name}: they belong behind them.", example=f"head_dim {d}: the last {d} of {filled.shape[-1]} channels are those of {name}", look="the order of the two in ops.cat")
        if np.array_equal(front, x):
            fail(f"{name} is filled up with other numbers than zeros: the products with them would be part of the scores.", example=f"head_dim {d}: channel {d} holds {behind[0, 0, 0, 0]:.4g}", look="ops.zeros")
        fail(f"the channels of {name} do not reach attend as they are.", example=f"head_dim {d}: channel 0 was {x[0, 0, 0, 0]:.4g} and is {front[0, 0, 0, 0]:.4g}", look="what is done to q, k and v besides the zeros")
    return core.given[0]


@checks(PAD, "what attend is given")
def pad_widths(AutoPad):
    cell = AutoPad(scores_and_average)
    if isinstance(cell, nn.Cell) and not hasattr(cell, "_params"):
        fail("super().__init__() is missing: it must come first in __init__.", look="the first line of __init__")
    if not isinstance(cell, nn.Cell):
        fail(f"AutoPad should be a mindspore.nn.Cell and is a {type(cell).__name__}.", look="class AutoPad(nn.Cell)")
    if cell.trainable_params():
        fail("AutoPad has parameters: there is nothing to learn in zeros.")
    for d, want in ((20, 32), (1, 16), (17, 32), (31, 32), (40, 48)):
        shapes, _, scale = padded(AutoPad, d)
        widths = [s[-1] for s in shapes]
        if any(s[:3] != (2, 3, t) for s, t in zip(shapes, (4, 5, 5))):
            fail("another axis than the last is padded.", example=f"q (2, 3, 4, {d}) reaches attend as {shapes[0]}", look="the axis along which the zeros are joined")
        if widths[0] == d:
            fail("nothing is padded.", example=f"head_dim {d}: attend gets q of head_dim {widths[0]}, expected {want}", look="the zeros that are joined to q, k and v along the last axis")
        if any(w != want for w in widths):
            few = "q, k and v are padded to different widths." if len(set(widths)) > 1 else "head_dim is rounded down." if widths[0] < d else "the head_dim that attend gets is not the next multiple of 16."
            fail(few, example=f"head_dim {d}: attend gets widths {widths}, expected {want} three times", look="how many zeros are missing: between 0 and 15")
        if not isinstance(scale, (int, float)):
            fail(f"the scale is of type {type(scale).__name__}, expected a Python number: the operator takes no tensor there.", look="math.sqrt")
        if abs(scale - 1 / math.sqrt(d)) > 1e-9:
            words = {
                1 / math.sqrt(16): "the scale is that of the multiple, expected that of head_dim.",
                1 / math.sqrt(want): "the scale is that of the padded head_dim: zeros add nothing to a dot product, so the scale must stay that of the true head_dim.",
                math.sqrt(d): "the scale is sqrt(head_dim), expected 1 over it.", 1 / d: "the scale is 1 / head_dim, expected 1 / sqrt(head_dim).", 1.0: "the scale is 1, expected 1 / sqrt(head_dim).",
            }
            said = next((w for value, w in words.items() if abs(scale - value) < 1e-9), "the scale is wrong.")
            fail(said, example=f"head_dim {d}, padded to {want}: scale {scale:.4f}, expected {1 / math.sqrt(d):.4f}", look="the scale that is handed to attend")


def plain(q, k, v, mask=None):
    return expected(q, k, v, mask).astype(np.float32)


@checks(PAD, "the same result as without padding")
def pad_values(AutoPad):
    for d in (20, 1, 33):
        q, k, v = rand(2, 3, 4, d, seed=1), rand(2, 3, 5, d, seed=2), rand(2, 3, 5, d, seed=3)
        got = call(AutoPad(scores_and_average), q, k, v)
        if isinstance(got, ms.Tensor) and got.shape[-1] > d and got.shape[:-1] == q.shape[:-1]:
            fail("the zeros are not cut off again.", example=f"q has head_dim {d} and the result {got.shape[-1]}", look="what comes back from attend")
        known = [("the zeros are cut off at the wrong end: the first head_dim channels are the true ones.", lambda q=q, k=k, v=v, d=d: np.concatenate([plain(q, k, v), np.zeros((2, 3, 4, -d % 16), np.float32)], axis=-1)[..., -d:])]
        close(got, plain(q, k, v), 1e-5, name=f"the result for head_dim {d}", known=known, look="what q, k and v are filled up with, and on which side")


@checks(PAD, "a head_dim that fits is left alone")
def pad_nothing(AutoPad):
    for d in (16, 32, 64):
        shapes, _, scale = padded(AutoPad, d)
        if any(s[-1] != d for s in shapes):
            fail("a head_dim that is a multiple already is padded too.", example=f"head_dim {d}: attend gets {[s[-1] for s in shapes]}", look="how many zeros are missing when the remainder is 0")
        if abs(scale - 1 / math.sqrt(d)) > 1e-9:
            fail("the scale is wrong where nothing is padded.", example=f"head_dim {d}: {scale:.4f}, expected {1 / math.sqrt(d):.4f}")
        q, k, v = rand(2, 3, 4, d, seed=1), rand(2, 3, 5, d, seed=2), rand(2, 3, 5, d, seed=3)
        got = call(AutoPad(scores_and_average), q, k, v)
        if isinstance(got, ms.Tensor) and got.shape[-1] == 0:
            fail("nothing is left where nothing is padded: [..., :-0] is empty.", example=f"head_dim {d}: the result has shape {tuple(got.shape)}", look="the slice that cuts the zeros off: count from the front")
        close(got, plain(q, k, v), 1e-5, name=f"the result for head_dim {d}")
    core = Core()
    cell = AutoPad(core)
    for d, want in ((32, 32), (20, 32), (48, 48)):
        x = rand(2, 3, 4, d, seed=1)
        got = call(cell, x, x, x)
        widths, _, scale = core.given[-1]
        if widths[0][-1] != want or abs(scale - 1 / math.sqrt(d)) > 1e-9 or np.shape(got) != x.shape:
            fail("one AutoPad, called again with another head_dim, goes wrong.", example=f"head_dim 32 first, then {d}: attend gets {widths[0][-1]}, expected {want}", look="what is kept in self: head_dim is known when construct is called, not before")


@checks(PAD, "another multiple")
def pad_multiple(AutoPad):
    for d, multiple, want in ((20, 8, 24), (20, 128, 128), (16, 32, 32), (3, 1, 3)):
        widths = [s[-1] for s in padded(AutoPad, d, multiple)[0]]
        if widths != [want] * 3:
            fail("the multiple that AutoPad is made with is not used.", example=f"head_dim {d}, multiple {multiple}: attend gets {widths}, expected {want}", look="numbers 16 in construct")


@checks(PAD, "the mask is handed on")
def pad_mask(AutoPad):
    d = 20
    q, k, v = rand(2, 3, 4, d, seed=1), rand(2, 3, 5, d, seed=2), rand(2, 3, 5, d, seed=3)
    mask = seen_by(4, 5)
    got = call(AutoPad(scores_and_average), q, k, v, mask)
    known = [("the mask does not reach attend.", lambda: plain(q, k, v)), ("the mask is turned round: attend takes yours as it is.", lambda: plain(q, k, v, ~mask | np.eye(4, 5, 1).astype(bool)))]
    close(got, plain(q, k, v, mask), 1e-5, known=known, look="the arguments of attend: q, k, v, mask, scale")
    seen = []

    def attend(q, k, v, mask, scale):
        seen.append(mask)
        return v[:, :, :4]

    AutoPad(attend)(ms.Tensor(q), ms.Tensor(k), ms.Tensor(v), "causal")
    if seen[0] != "causal":
        fail(f"attend gets the mask {seen[0]!r}, and 'causal' was given: hand it on as it is.", look="the arguments of attend")


@checks(PAD, "float16 stays float16")
def pad_float16(AutoPad):
    q, k, v = qkv(2, 3, 4, 5, 20, seed=3)
    core = Core()
    close(call(AutoPad(core), q, k, v), expected(q, k, v).astype(np.float16), 1e-2, name="the result for float16", look="the dtype of the zeros: that of what they are joined to")


@checks(PAD, "gradients")
def pad_gradients(AutoPad):
    q, k, v = rand(2, 3, 4, 20, seed=1), rand(2, 3, 5, 20, seed=2), rand(2, 3, 5, 20, seed=3)
    given = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    out = F.scaled_dot_product_attention(*given)
    grads = torch.autograd.grad((out * torch.from_numpy(rand(*out.shape, seed=99))).sum(), given)
    cell = AutoPad(scores_and_average)

    def run(q, k, v):
        return cell(q, k, v)

    gradients_close(gradients_of(run, (q, k, v)), [g.numpy() for g in grads], ["q", "k", "v"], atol=1e-5)


@checks(PAD, "the same in graph mode", seconds=20)
def pad_in_graph_mode(AutoPad):
    cell = AutoPad(scores_and_average)
    mask = ms.Tensor(seen_by(4, 5))

    def run(q, k, v):
        return cell(q, k, v, mask)

    same_in_graph_mode(run, rand(2, 3, 4, 20, seed=1), rand(2, 3, 5, 20, seed=2), rand(2, 3, 5, 20, seed=3), atol=1e-5)
