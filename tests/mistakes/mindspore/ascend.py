"""Wrong and right answers to the Ascend exercises of lesson 21."""
import math

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from course.checks.mindspore.ascend import ARGUMENTS, FROM, PAD, TO
from solutions.mindspore import ascend
from solutions.mindspore.attention import causal_mask
from tests.mistakes import right, wrong

# --- to_layout -----------------------------------------------------------------------------------------


def with_branch(layout, branch):
    """to_layout, right but for one layout."""

    def to_layout(x, asked):
        return branch(x, *x.shape) if asked == layout else ascend.to_layout(x, asked)

    return to_layout


def variant(exercise, says, name, function):
    function.__name__ = name
    wrong(exercise, says)(function)


for name, says, layout, branch in [
    ("bsnd_by_reshape", "drawn anew by a reshape", "BSND", lambda x, B, N, T, D: x.reshape(B, T, N, D)),
    ("bsh_by_reshape", "drawn anew by a reshape", "BSH", lambda x, B, N, T, D: x.reshape(B, T, N * D)),
    ("sbh_by_reshape", "drawn anew by a reshape", "SBH", lambda x, B, N, T, D: x.reshape(T, B, N * D)),
    ("tnd_by_reshape", "drawn anew by a reshape", "TND", lambda x, B, N, T, D: x.reshape(B * T, N, D)),
    ("sbh_as_bsh", "what comes back is BSH", "SBH", lambda x, B, N, T, D: x.swapaxes(1, 2).reshape(B, T, N * D)),
    ("sbh_reshaped_from_bsh", "time and batch are mixed", "SBH", lambda x, B, N, T, D: x.swapaxes(1, 2).reshape(T, B, N * D)),
    ("tnd_interleaved", "end to end", "TND", lambda x, B, N, T, D: x.permute(2, 0, 1, 3).reshape(B * T, N, D)),
    ("bsh_channels_first", "heads and channels are mixed", "BSH", lambda x, B, N, T, D: x.permute(0, 2, 3, 1).reshape(B, T, N * D)),
    ("bsnd_untouched", "nothing was moved", "BSND", lambda x, B, N, T, D: x),
    ("tnd_with_batch", "what comes back is BSND", "TND", lambda x, B, N, T, D: x.swapaxes(1, 2)),
    ("tnd_none", "is None", "TND", lambda x, B, N, T, D: None),
    ("as_an_array", "numpy.ndarray", "BSH", lambda x, B, N, T, D: x.swapaxes(1, 2).reshape(B, T, N * D).asnumpy()),
    ("float32_on_the_way", "expected Float16", "BSH", lambda x, B, N, T, D: x.swapaxes(1, 2).reshape(B, T, N * D).astype(ms.float32)),
    ("gradient_is_cut", "no gradient reaches x", "SBH", lambda x, B, N, T, D: ops.stop_gradient(ascend.to_layout(x, "SBH"))),
    ("sizes_written_down", "sizes that are written as numbers", "BSH", lambda x, B, N, T, D: x.swapaxes(1, 2).reshape(B, T, 12) if N * D == 12 else x.swapaxes(1, 2).reshape(-1, 1, N * D)),
]:
    variant(TO, says, name, with_branch(layout, branch))


variant(TO, "no gradient reaches x", "through_numpy", with_branch("BSND", lambda x, B, N, T, D: ms.Tensor(x.asnumpy().transpose(0, 2, 1, 3))))


@wrong(TO, "goes through without a word")
def unknown_as_bnsd(x, layout):
    return ascend.to_layout(x, layout) if layout in ("BSND", "BSH", "SBH", "TND") else x


@wrong(TO, "says nothing")
def error_without_words(x, layout):
    if layout not in ("BNSD", "BSND", "BSH", "SBH", "TND"):
        raise ValueError
    return ascend.to_layout(x, layout)


@wrong(TO, "not in graph mode")
def transpose_of_two_axes(x, layout):
    B, N, T, D = x.shape
    if layout == "BSND":
        return x.transpose(1, 2)
    return ascend.to_layout(x, layout)


@right(TO)
def by_permute(x, layout):
    B, N, T, D = x.shape
    if layout == "BNSD":
        return x
    if layout == "SBH":
        return x.permute(2, 0, 1, 3).reshape(T, B, N * D)
    x = x.permute(0, 2, 1, 3)
    if layout == "BSND":
        return x
    if layout == "BSH":
        return x.reshape(B, T, N * D)
    if layout == "TND":
        return x.reshape(B * T, N, D)
    raise ValueError(f"no such layout: {layout}, choose one of five")


@right(TO)
def by_table(x, layout):
    B, N, T, D = x.shape
    shapes = {"BSND": (B, T, N, D), "BSH": (B, T, N * D), "TND": (B * T, N, D)}
    if layout == "BNSD":
        return x
    if layout == "SBH":
        return ops.permute(x, (2, 0, 1, 3)).reshape(T, B, N * D)
    if layout not in shapes:
        raise ValueError(f"the layout {layout} is not known here")
    return x.swapaxes(1, 2).reshape(shapes[layout])


@right(TO)
def by_joining(x, layout):
    if layout == "TND":
        return ops.cat([x[b].swapaxes(0, 1) for b in range(x.shape[0])], axis=0)
    return ascend.to_layout(x, layout)


@right(TO)
def heads_side_by_side(x, layout):
    if layout == "BSH":
        return ops.cat([x[:, n] for n in range(x.shape[1])], axis=-1)
    return ascend.to_layout(x, layout)


# --- from_layout ---------------------------------------------------------------------------------------


def back_with_branch(layout, branch):
    def from_layout(x, asked, shape):
        return branch(x, *shape) if asked == layout else ascend.from_layout(x, asked, shape)

    return from_layout


for name, says, layout, branch in [
    ("back_bsnd_by_reshape", "drawn anew by a reshape", "BSND", lambda x, B, N, T, D: x.reshape(B, N, T, D)),
    ("back_bsh_by_reshape", "drawn anew by a reshape", "BSH", lambda x, B, N, T, D: x.reshape(B, N, T, D)),
    ("back_tnd_by_reshape", "drawn anew by a reshape", "TND", lambda x, B, N, T, D: x.reshape(B, N, T, D)),
    ("back_sbh_as_bsh", "SBH is taken for BSH", "SBH", lambda x, B, N, T, D: x.reshape(B, T, N, D).swapaxes(1, 2)),
    ("back_tnd_interleaved", "as interleaved", "TND", lambda x, B, N, T, D: x.reshape(T, B, N, D).permute(1, 2, 0, 3)),
    ("back_bsh_no_swap", "heads and time have to change places", "BSH", lambda x, B, N, T, D: x.reshape(B, T, N, D)),
    ("back_channels_first", "heads and channels are mixed", "BSH", lambda x, B, N, T, D: x.reshape(B, T, D, N).permute(0, 3, 1, 2)),
    ("back_nothing_moved", "nothing was moved", "SBH", lambda x, B, N, T, D: x),
    ("back_none", "is None", "SBH", lambda x, B, N, T, D: None),
    ("back_float32", "expected Float16", "BSH", lambda x, B, N, T, D: ascend.from_layout(x, "BSH", (B, N, T, D)).astype(ms.float32)),
    ("back_gradient_is_cut", "no gradient reaches x", "TND", lambda x, B, N, T, D: ops.stop_gradient(ascend.from_layout(x, "TND", (B, N, T, D)))),
    ("back_two_axes", "not in graph mode", "BSND", lambda x, B, N, T, D: x.transpose(1, 2)),
    ("back_three_heads", "is invalid for input of size", "BSH", lambda x, B, N, T, D: x.reshape(B, T, 3, D).swapaxes(1, 2)),
]:
    variant(FROM, says, name, back_with_branch(layout, branch))
variant(FROM, "no gradient reaches x", "back_through_numpy", back_with_branch("BSND", lambda x, B, N, T, D: ms.Tensor(x.asnumpy().transpose(0, 2, 1, 3))))


@wrong(FROM, "goes through without a word")
def back_unknown(x, layout, shape):
    return ascend.from_layout(x, layout, shape) if layout in ("BSND", "BSH", "SBH", "TND") else x


@right(FROM)
def back_by_permute(x, layout, shape):
    B, N, T, D = shape
    if layout == "BNSD":
        return x
    if layout == "SBH":
        return x.reshape(T, B, N, D).permute(1, 2, 0, 3)
    if layout in ("BSND", "BSH", "TND"):
        return x.reshape(B, T, N, D).permute(0, 2, 1, 3)
    raise ValueError(f"no such layout: {layout}, choose one of five")


@right(FROM)
def back_without_sizes(x, layout, shape):
    B, N, T, D = shape
    if layout == "SBH":
        x, layout = x.swapaxes(0, 1), "BSH"
    if layout in ("BSH", "TND"):
        x, layout = x.reshape(B, -1, N, D), "BSND"
    if layout == "BSND":
        x, layout = x.swapaxes(1, 2), "BNSD"
    if layout != "BNSD":
        raise ValueError(f"the layout {layout} is not known here")
    return x


@right(FROM)
def back_by_stacking(x, layout, shape):
    if layout == "TND":
        T = shape[2]
        return ops.stack([x[b * T : (b + 1) * T].swapaxes(0, 1) for b in range(shape[0])], axis=0)
    return ascend.from_layout(x, layout, shape)


@right(FROM)
def back_by_splitting(x, layout, shape):
    if layout == "BSH":
        return ops.stack(ops.split(x, shape[3], axis=-1), axis=1)
    return ascend.from_layout(x, layout, shape)


# --- flash_attention_arguments -------------------------------------------------------------------------


def changed(**changes):
    """The right arguments, then changes: a value, or a function of (arguments, q, k, mask); None takes the name away."""

    def flash_attention_arguments(q, k, v, mask="causal", layout="BNSD", scale=None):
        arguments = ascend.flash_attention_arguments(q, k, v, mask, layout, scale)
        for name, change in changes.items():
            value = change(arguments, q, k, mask) if callable(change) else change
            if value is None:
                arguments.pop(name, None)
            elif value is not KEEP:
                arguments[name] = value
        return arguments

    return flash_attention_arguments


KEEP = object()

for name, says, changes in [
    ("scale_by_default", "scalar_value is 1.0 unless you give it", {"scalar_value": None}),
    ("scale_not_inverted", "multiplied by sqrt(head_dim)", {"scalar_value": lambda a, q, k, m: math.sqrt(q.shape[-1])}),
    ("scale_without_root", "divided by head_dim", {"scalar_value": lambda a, q, k, m: 1 / q.shape[-1]}),
    ("scale_of_all_channels", "n_head times head_dim", {"scalar_value": lambda a, q, k, m: 1 / math.sqrt(q.shape[1] * q.shape[-1])}),
    ("scale_of_the_length", "number of keys", {"scalar_value": lambda a, q, k, m: 1 / math.sqrt(k.shape[2])}),
    ("scale_as_a_tensor", "scalar_value is of type Tensor", {"scalar_value": lambda a, q, k, m: ms.Tensor(a["scalar_value"])}),
    ("compressed_mask_not_inverted", "the other way round", {"attn_mask": lambda a, q, k, m: causal_mask(2048, 2048) if m == "causal" else KEEP}),
    ("whole_mask_in_mode_three", "takes (2048, 2048) for every length", {"attn_mask": lambda a, q, k, m: ops.logical_not(causal_mask(q.shape[2], k.shape[2])) if m == "causal" else KEEP}),
    ("mode_three_without_mask", "all pairs count then", {"attn_mask": lambda a, q, k, m: None if isinstance(m, str) else KEEP}),
    ("compressed_mask_in_mode_one", "attn_mask has shape (2048, 2048)", {"sparse_mode": lambda a, q, k, m: 1 if isinstance(m, str) else KEEP}),
    ("no_mask_at_all", "the queries see the future", {"attn_mask": None, "sparse_mode": None}),
    ("left_up_causal", "starts the diagonal at the upper left", {"sparse_mode": lambda a, q, k, m: 2 if isinstance(m, str) else KEEP}),
    ("diagonal_hidden", "True (discard) above the diagonal", {"attn_mask": lambda a, q, k, m: ops.logical_not(ops.tril(ops.ones((2048, 2048), ms.int32), -1) > 0) if isinstance(m, str) else KEEP}),
    ("own_mask_not_inverted", "True means DISCARD", {"attn_mask": lambda a, q, k, m: m if isinstance(m, ms.Tensor) else KEEP}),
    ("own_mask_as_floats", "must be bool or uint8", {"attn_mask": lambda a, q, k, m: a["attn_mask"].astype(ms.float16) if isinstance(m, ms.Tensor) else KEEP}),
    ("own_mask_ignored", "", {"attn_mask": lambda a, q, k, m: ops.logical_not(causal_mask(2048, 2048)) if isinstance(m, ms.Tensor) else KEEP, "sparse_mode": lambda a, q, k, m: 3 if isinstance(m, ms.Tensor) else KEEP}),
    ("causal_where_none_was_asked", "a mask is at work", {"attn_mask": lambda a, q, k, m: ops.logical_not(causal_mask(2048, 2048)) if m is None else KEEP, "sparse_mode": lambda a, q, k, m: 3 if m is None else KEEP}),
    ("layout_by_default", "input_layout is missing", {"input_layout": None}),
    ("layout_always_bnsd", "'BSH' was asked for", {"input_layout": "BNSD"}),
    ("heads_of_another_axis", "head_num is 6", {"head_num": lambda a, q, k, m: q.shape[2]}),
    ("heads_missing", "head_num is missing", {"head_num": None}),
    ("name_of_the_scale", "it is called scalar_value", {"scalar_value": None, "scale": 0.25}),
    ("ends_are_lengths", "sums of the lengths", {"actual_seq_qlen": lambda a, q, k, m: [q.shape[2]] * q.shape[0] if "actual_seq_qlen" in a else KEEP}),
    ("ends_missing", "where each ends", {"actual_seq_kvlen": None}),
    ("next_tokens_missing", "next_tokens=0", {"next_tokens": None}),
    ("ends_begin_at_zero", "the last must be 8", {"actual_seq_qlen": lambda a, q, k, m: [0, *a["actual_seq_qlen"][:-1]] if "actual_seq_qlen" in a else KEEP}),
    ("own_mask_in_mode_three", "takes (2048, 2048) for every length", {"sparse_mode": lambda a, q, k, m: 3 if isinstance(m, ms.Tensor) else KEEP}),
    ("ends_everywhere", "belong to TND", {"actual_seq_qlen": lambda a, q, k, m: [q.shape[2] * (b + 1) for b in range(q.shape[0])]}),
    ("given_scale_ignored", "the scale that is given is not used", {"scalar_value": lambda a, q, k, m: 1 / math.sqrt(q.shape[-1])}),
    ("scale_zero_is_false", "the scale that is given is not used", {"scalar_value": lambda a, q, k, m: a["scalar_value"] or 1 / math.sqrt(q.shape[-1])}),
    ("always_float16", "dtype Float16, expected BFloat16", {name: lambda a, q, k, m, name=name: a[name].astype(ms.float16) for name in ("query", "key", "value")}),
    ("key_and_value_swapped", "key and value are swapped", {"key": lambda a, q, k, m: a.setdefault("value", 0), "value": None}),
]:
    if name == "key_and_value_swapped":

        def swapped(q, k, v, mask="causal", layout="BNSD", scale=None):
            return ascend.flash_attention_arguments(q, v, k, mask, layout, scale)

        variant(ARGUMENTS, says, name, swapped)
    else:
        variant(ARGUMENTS, says, name, changed(**changes))


for name, says, changes in [
    ("mask_of_numpy", "attn_mask is of type ndarray", {"attn_mask": lambda a, q, k, m: a["attn_mask"].asnumpy() if "attn_mask" in a else KEEP}),
    ("query_scaled_too", "query is scaled", {"query": lambda a, q, k, m: a["query"] * 0.25}),
    ("heads_after_the_layout", "head_num is 4 and q has 3 heads", {"head_num": lambda a, q, k, m: a["query"].shape[1]}),
    ("mask_of_the_first_sequence", "the first sequence serves all", {"attn_mask": lambda a, q, k, m: a["attn_mask"][0, 0] if isinstance(m, ms.Tensor) and m.ndim == 4 else KEEP}),
    ("one_end_for_all", "taken for one long one", {f"actual_seq_{x}len": lambda a, q, k, m, x=x: a[f"actual_seq_{x}len"][-1:] if f"actual_seq_{x}len" in a else KEEP for x in ("q", "kv")}),
]:
    variant(ARGUMENTS, says, name, changed(**changes))


@wrong(ARGUMENTS, "return the dict of its arguments")
def calls_the_operator(q, k, v, mask="causal", layout="BNSD", scale=None):
    return ops.flash_attention_score(**ascend.flash_attention_arguments(q, k, v, mask, layout, scale))


@wrong(ARGUMENTS, "q in int32 goes through")
def refuses_floats_only(q, k, v, mask="causal", layout="BNSD", scale=None):
    if q.dtype == ms.int32:
        q, k, v = (x.astype(ms.float16) for x in (q, k, v))
    return ascend.flash_attention_arguments(q, k, v, mask, layout, scale)


@wrong(ARGUMENTS, "mask='full' goes through")
def any_word_is_causal(q, k, v, mask="causal", layout="BNSD", scale=None):
    return ascend.flash_attention_arguments(q, k, v, "causal" if isinstance(mask, str) else mask, layout, scale)


@wrong(ARGUMENTS, "expected a dict")
def a_list_of_arguments(q, k, v, mask="causal", layout="BNSD", scale=None):
    return list(ascend.flash_attention_arguments(q, k, v, mask, layout, scale).values())


@wrong(ARGUMENTS, "float32 goes through")
def takes_float32(q, k, v, mask="causal", layout="BNSD", scale=None):
    dtype = ms.bfloat16 if q.dtype == ms.bfloat16 else ms.float16
    return ascend.flash_attention_arguments(q.astype(dtype), k.astype(dtype), v.astype(dtype), mask, layout, scale)


@wrong(ARGUMENTS, "not causal goes through")
def takes_any_mask_with_tnd(q, k, v, mask="causal", layout="BNSD", scale=None):
    return ascend.flash_attention_arguments(q, k, v, "causal" if layout == "TND" else mask, layout, scale)


@right(ARGUMENTS)
def mask_by_numpy(q, k, v, mask="causal", layout="BNSD", scale=None):
    arguments = ascend.flash_attention_arguments(q, k, v, None if mask == "causal" and layout != "TND" else mask, layout, scale)
    if isinstance(mask, str):
        arguments |= {"attn_mask": ms.Tensor(np.triu(np.ones((2048, 2048), bool), k=1)), "sparse_mode": 3}
    return arguments


@right(ARGUMENTS)
def mask_of_uint8(q, k, v, mask="causal", layout="BNSD", scale=None):
    arguments = ascend.flash_attention_arguments(q, k, v, mask, layout, scale)
    if mask is not None:
        arguments["attn_mask"] = arguments["attn_mask"].astype(ms.uint8)
    return arguments


@right(ARGUMENTS)
def whole_mask_where_it_may(q, k, v, mask="causal", layout="BNSD", scale=None):
    arguments = ascend.flash_attention_arguments(q, k, v, mask, layout, scale)
    if isinstance(mask, str) and layout != "TND":
        arguments["attn_mask"] = ops.logical_not(causal_mask(q.shape[2], k.shape[2]))
        arguments["sparse_mode"] = 1
    return arguments


@right(ARGUMENTS)
def own_mask_in_mode_zero(q, k, v, mask="causal", layout="BNSD", scale=None):
    arguments = ascend.flash_attention_arguments(q, k, v, mask, layout, scale)
    if isinstance(mask, ms.Tensor):
        arguments["sparse_mode"] = 0
    return arguments


@right(ARGUMENTS)
def says_everything(q, k, v, mask="causal", layout="BNSD", scale=None):
    arguments = ascend.flash_attention_arguments(q, k, v, mask, layout, scale)
    arguments["keep_prob"] = 1.0
    arguments["real_shift"] = None
    arguments["pre_tokens"] = 2147483647
    arguments["inner_precise"] = 0
    return arguments


# --- AutoPad -------------------------------------------------------------------------------------------


def zeros_behind(x, n, dtype=None):
    return ops.cat((x, ops.zeros((*x.shape[:-1], n), dtype or x.dtype)), axis=-1)


def pad_class(missing=lambda d, m: -d % m, scale=lambda d, p: 1 / math.sqrt(d), fill=zeros_behind, cut=lambda y, d: y[..., :d], mask=lambda m: m, only="qkv", multiple=16):
    """AutoPad, right but for the parts that are given."""
    default = multiple

    class AutoPad(nn.Cell):
        def __init__(self, attend, multiple=default):
            super().__init__()
            self.attend = attend
            self.multiple = multiple

        def construct(self, q, k, v, m=None):
            d = q.shape[-1]
            n = missing(d, self.multiple)
            if n > 0:
                q, k, v = (fill(x, n) if name in only else x for name, x in zip("qkv", (q, k, v)))
            return cut(self.attend(q, k, v, mask(m), scale(d, d + n)), d)

    return AutoPad


def pad_variant(says, name, **parts):
    made = pad_class(**parts)
    made.__name__ = name
    wrong(PAD, says)(made)


pad_variant("nothing is padded", "PadsNothing", missing=lambda d, m: 0)
pad_variant("next multiple of 16", "PadsToTheOneAfter", missing=lambda d, m: -d % m + m)
pad_variant("next multiple of 16", "AddsTheRemainder", missing=lambda d, m: d % m)
pad_variant("a multiple already is padded too", "PadsAlways", missing=lambda d, m: m - d % m)
pad_variant("next multiple of 16", "PadsToPowersOfTwo", missing=lambda d, m: max(m, 1 << (d - 1).bit_length()) - d if d % m else 0)
pad_variant("different widths", "LeavesValues", only="qk", missing=lambda d, m: -d % m)
pad_variant("of the padded head_dim", "ScaleOfThePadded", scale=lambda d, p: 1 / math.sqrt(p))
pad_variant("expected 1 over it", "ScaleNotInverted", scale=lambda d, p: math.sqrt(d))
pad_variant("the scale is 1,", "ScaleOne", scale=lambda d, p: 1.0)
pad_variant("expected a Python number", "ScaleTensor", scale=lambda d, p: ms.Tensor(1 / math.sqrt(d), ms.float32))
pad_variant("another axis than the last", "PadsTheTime", fill=lambda x, n: ops.cat((x, ops.zeros((*x.shape[:2], n, x.shape[3]), x.dtype)), axis=2))
pad_variant("not cut off again", "LeavesTheZeros", cut=lambda y, d: y)
pad_variant("at the wrong end", "CutsTheFront", cut=lambda y, d: y[..., -d:])
pad_variant("other numbers than zeros", "RepeatsTheChannels", fill=lambda x, n: ops.cat((x, *(x[..., :1] for _ in range(n))), axis=-1))
pad_variant("stand in front", "ZerosInFront", fill=lambda x, n: ops.cat((ops.zeros((*x.shape[:-1], n), x.dtype), x), axis=-1))
pad_variant("other numbers than zeros", "OnesBehind", fill=lambda x, n: ops.cat((x, ops.ones((*x.shape[:-1], n), x.dtype)), axis=-1))
pad_variant("[..., :-0] is empty", "CutsFromTheEnd", cut=lambda y, d: y[..., : -(y.shape[-1] - d)])
pad_variant("that of the multiple", "ScaleOfTheMultiple", scale=lambda d, p: 1 / math.sqrt(16))
pad_variant("mask does not reach", "DropsTheMask", mask=lambda m: None)
pad_variant("and 'causal' was given", "MaskByTensorOnly", mask=lambda m: None if isinstance(m, str) else m)
pad_variant("multiple that AutoPad is made with", "MultipleOf16", missing=lambda d, m: -d % 16)
pad_variant("no gradient reaches", "GradientIsCut", fill=lambda x, n: zeros_behind(ops.stop_gradient(x), n))


@wrong(PAD, "should be a mindspore.nn.Cell")
class PlainClass:
    def __init__(self, attend, multiple=16):
        self.attend = attend

    def __call__(self, q, k, v, mask=None):
        return self.attend(q, k, v, mask, 1 / math.sqrt(q.shape[-1]))


class PadsInFloat32(pad_class()):
    def construct(self, q, k, v, mask=None):
        y = super().construct(q.astype(ms.float32), k.astype(ms.float32), v.astype(ms.float32), mask)
        return y


wrong(PAD, "dtype Float32, expected Float16")(PadsInFloat32)


@wrong(PAD, "not in graph mode")
class PadsByNumpy(nn.Cell):
    def __init__(self, attend, multiple=16):
        super().__init__()
        self.attend = attend
        self.multiple = multiple

    def construct(self, q, k, v, mask=None):
        d = q.shape[-1]
        try:
            n = -d % self.multiple
        finally:
            pass
        return self.attend(zeros_behind(q, n) if n else q, zeros_behind(k, n) if n else k, zeros_behind(v, n) if n else v, mask, d**-0.5)[..., :d]


class Padding(nn.Cell):
    def __init__(self, attend, multiple=16):
        super().__init__()
        self.attend = attend
        self.multiple = multiple


@wrong(PAD, "super().__init__() is missing")
class WithoutSuper(nn.Cell):
    def __init__(self, attend, multiple=16):
        self.attend = attend
        self.multiple = multiple

    def construct(self, q, k, v, mask=None):
        return self.attend(q, k, v, mask, 1 / math.sqrt(q.shape[-1]))


@wrong(PAD, "mask and scale are swapped")
class ScaleBeforeMask(Padding):
    def construct(self, q, k, v, mask=None):
        d = q.shape[-1]
        n = -d % self.multiple
        return self.attend(zeros_behind(q, n), zeros_behind(k, n), zeros_behind(v, n), 1 / math.sqrt(d), mask)[..., :d]


@wrong(PAD, "not given its scale")
class ScaleForgotten(Padding):
    def construct(self, q, k, v, mask=None):
        d = q.shape[-1]
        n = -d % self.multiple
        return self.attend(zeros_behind(q, n), zeros_behind(k, n), zeros_behind(v, n), mask)[..., :d]


@wrong(PAD, "do not reach attend as they are")
class ScalesTheQuery(Padding):
    def construct(self, q, k, v, mask=None):
        d = q.shape[-1]
        n = -d % self.multiple
        return self.attend(zeros_behind(q / math.sqrt(d), n), zeros_behind(k, n), zeros_behind(v, n), mask, 1.0)[..., :d]


@wrong(PAD, "called again with another head_dim")
class RemembersTheFirst(Padding):
    def construct(self, q, k, v, mask=None):
        d = q.shape[-1]
        if not hasattr(self, "missing"):
            self.missing = -d % self.multiple
        n = self.missing
        if n:
            q, k, v = zeros_behind(q, n), zeros_behind(k, n), zeros_behind(v, n)
        return self.attend(q, k, v, mask, 1 / math.sqrt(d))[..., :d]


@wrong(PAD, "and none was given")
class CausalByItself(Padding):
    def construct(self, q, k, v, mask=None):
        d = q.shape[-1]
        n = -d % self.multiple
        return self.attend(zeros_behind(q, n), zeros_behind(k, n), zeros_behind(v, n), "causal" if mask is None else mask, 1 / math.sqrt(d))[..., :d]


@wrong(PAD, "attend is called 2 times")
class CallsTwice(nn.Cell):
    def __init__(self, attend, multiple=16):
        super().__init__()
        self.inner = ascend.AutoPad(attend, multiple)

    def construct(self, q, k, v, mask=None):
        self.inner(q, k, v, mask)
        return self.inner(q, k, v, mask)


@right(PAD)
class PadsByCat(nn.Cell):
    def __init__(self, attend, multiple=16):
        super().__init__()
        self.attend, self.multiple = attend, multiple

    def construct(self, q, k, v, mask=None):
        d = q.shape[-1]
        whole = (d + self.multiple - 1) // self.multiple * self.multiple
        if whole != d:
            q, k, v = zeros_behind(q, whole - d), zeros_behind(k, whole - d), zeros_behind(v, whole - d)
        return self.attend(q, k, v, mask, d**-0.5)[:, :, :, :d]


@right(PAD)
class PadsByOps(nn.Cell):
    def __init__(self, attend, multiple=16):
        super().__init__()
        self.attend, self.multiple = attend, multiple

    def construct(self, q, k, v, mask=None):
        d = q.shape[-1]
        n = (self.multiple - d % self.multiple) % self.multiple
        if n == 0:
            return self.attend(q, k, v, mask, 1 / math.sqrt(d))
        q, k, v = ops.pad(q, (0, n)), ops.pad(k, (0, n)), ops.pad(v, (0, n))
        return self.attend(q, k, v, mask, 1 / math.sqrt(d))[..., :d]


@right(PAD)
class PadsByProduct(nn.Cell):
    """Times a matrix of ones on the diagonal and zeros behind it."""

    def __init__(self, attend, multiple=16):
        super().__init__()
        self.attend, self.multiple = attend, multiple

    def construct(self, q, k, v, mask=None):
        d = q.shape[-1]
        wide = ops.eye(d, d + -d % self.multiple, q.dtype)
        y = self.attend(ops.matmul(q, wide), ops.matmul(k, wide), ops.matmul(v, wide), mask, 1 / math.sqrt(d))
        return y[..., :d]


@right(PAD)
class ArgumentsByName(Padding):
    def construct(self, q, k, v, mask=None):
        B, N, T, d = q.shape
        n = -(-d // self.multiple) * self.multiple - d
        y = self.attend(ops.pad(q, (0, n)), ops.pad(k, (0, n)), ops.pad(v, (0, n)), scale=d**-0.5, mask=mask)
        return ops.narrow(y, -1, 0, d)


@right(PAD)
class SplitsTheEnd(nn.Cell):
    def __init__(self, attend, multiple=16):
        super().__init__()
        self.attend, self.multiple = attend, multiple

    def construct(self, q, k, v, mask=None):
        d = q.shape[-1]
        missing = self.multiple * math.ceil(d / self.multiple) - d
        if missing:
            q, k, v = zeros_behind(q, missing), zeros_behind(k, missing), zeros_behind(v, missing)
        y = self.attend(q, k, v, mask, 1 / d**0.5)
        if missing:
            y = ops.split(y, [d, missing], axis=-1)[0]
        return y
