# %% [markdown]
# # 21 On Ascend
#
# The port is made for an Ascend, and this course was written on machines that have none. So be clear about what can be
# known here. Numbers, shapes, errors, files: all of that was run. Speed on an Ascend, and whether a fused operator does
# what its documentation says: not run here, in any lesson. This lesson gets as close as one can without the
# hardware, and hands you one command that does the rest once you have it.
#
# The core is one operator. Attention in pieces, as you wrote it, stores T by T scores for each head. An Ascend has a fused
# one, `ops.flash_attention_score`, which does not. It takes 18 arguments, several defaults are not what a GPT needs, and some
# wrong calls raise nothing. You build the call in one function and test its arguments against a model of the documentation.
#
# You write
#
# 1. `to_layout` and `from_layout`: five orders of the same axes,
# 2. `flash_attention_arguments`: the call, as documented,
# 3. `AutoPad`: a head_dim that the operator does not take,
# 4. `StaticKVCache`: a cache whose shapes never change, so that graph mode can sample.
#
# Time: about 90 minutes. You need the attention of lesson 12 and the cache of lesson 16; for what you have not passed, the
# reference stands in.
#
# Letters for shapes: B sequences, T positions, C channels; in the operator's documentation N heads, S positions, D channels
# of a head (`head_dim`), and H = N·D.

# %%
import inspect
import math
import os
import subprocess
import sys
import tempfile
from functools import partial
from types import SimpleNamespace

import numpy as np

from course import ascend, check, device, exercise, flash, parity, piece, setup, show, timing

setup()

import mindspore as ms
from mindspore import nn, ops

ms.set_device(device.mindspore_target())                  # Ascend if there is one, else CPU
ms.runtime.launch_blocking()                              # lesson 10: errors come at their line
causal_mask = piece("mindspore.attention.causal_mask")
attention = piece("mindspore.attention.attention")
split_heads = piece("mindspore.attention.split_heads")
merge_heads = piece("mindspore.attention.merge_heads")
CausalSelfAttention = piece("mindspore.attention.CausalSelfAttention")
linear = piece("mindspore.primitives.linear")
GPT = piece("mindspore.gpt.GPT")
KVCache = piece("mindspore.sampling.KVCache")
sample = piece("mindspore.sampling.sample")

# %% [markdown]
# ## 1. What belongs together
#
# Four things must fit: MindSpore, CANN (the toolkit with the operators and the compiler), the driver with its firmware, and, if
# you use it, MindFormers. Most reports of "does not start" are a pair that does not fit. The rows come from the metadata
# of the MindFormers wheels; the last line is read from the MindSpore that is installed here.

# %%
ascend.print_pairs()
print()
print("CANN that this MindSpore accepts:", ", ".join(ascend.accepted_cann()))

# %% [markdown]
# An article names MindSpore 2.3.0 with CANN 6.3.RC2 as the best pair. By the table 2.3.0 belongs with 8.0.RC2.
#
# **Installation**, from MindSpore's own instructions (docs, `mindspore_ascend_install_pip_en.md`). None of these steps was run
# here:
#
# 1. Install driver and firmware, then restart. `npu-smi info` lists the devices.
# 2. Install the CANN toolkit and the package of its kernels, in a version that the line above accepts.
# 3. `source /usr/local/Ascend/ascend-toolkit/set_env.sh` (or where you have put it), in every shell that uses it.
# 4. `pip install sympy`, and the two wheels `te-*.whl` and `hccl-*.whl` from the toolkit's `lib64`.
# 5. `pip install mindspore==2.10.0 "numpy<2"`. It is the wheel that you have: one wheel serves CPU and Ascend.
# 6. `python -c "import mindspore; mindspore.set_device('Ascend'); mindspore.run_check()"`.
#
# Then `python -m course ascend` (section 8). To ask for a device that is not there raises an error, so ask first.
# `device.mindspore_target()` does that in this course.
#
# ## 2. Five orders of the same axes
#
# The operator wants to know in which order the axes come, and calls that `input_layout`. Yours is BNSD: heads before
# positions. The default is another one, BSH.
#
# | layout | shape | read as |
# |---|---|---|
# | BNSD | (B, n_head, T, head_dim) | what `split_heads` gives |
# | BSND | (B, T, n_head, head_dim) | before the heads change places with time |
# | BSH | (B, T, C) | before the heads are cut at all |
# | SBH | (T, B, C) | the same with time first |
# | TND | (B·T, n_head, head_dim) | all sequences end to end, no padding between them |
#
# BSH is what `c_attn` gives. An operator that takes it saves the model both `split_heads` and `merge_heads`, which copy.
#
# <details><summary>Hint 1</summary>
#
# All layouts but BNSD hold time before heads. So the first step is the same in most branches: heads and time change
# places. `merge_heads` of lesson 12 does that and one thing more.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# After the swap only borders are drawn anew, which is a reshape. SBH needs one more swap. What if none of the five names
# fits? Say so in a sentence.
#
# </details>

# %%
@exercise("mindspore.ascend.to_layout")
def to_layout(x: ms.Tensor, layout: str) -> ms.Tensor:
    """Bring the axes into the order that a layout names.

    Args:
        x: (B, n_head, T, head_dim), of any dtype.
        layout: "BNSD", "BSND", "BSH", "SBH" or "TND". TND puts sequence 0 first, then all of 1.

    Returns:
        The same numbers in the shape of the table, of the same dtype. Works in graph mode too.

    Raises:
        ValueError: another layout.

    Source: mindspore.ops.flash_attention_score.
    """
    raise NotImplementedError


# %%
check(to_layout)

# %% [markdown]
# What comes out of the operator is in the layout of the query, and has to go back. A layout like BSH has forgotten how many
# heads there were, so the shape you want comes along.
#
# <details><summary>Hint 1</summary>
#
# `split_heads` undoes `merge_heads`: BSH is one call, and SBH one swap before it.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# BSND, BSH and TND hold the same numbers in the same order in memory; only their borders differ. One reshape to
# (B, T, n_head, head_dim) serves all three.
#
# </details>

# %%
@exercise("mindspore.ascend.from_layout")
def from_layout(x: ms.Tensor, layout: str, shape: tuple) -> ms.Tensor:
    """Undo to_layout.

    Args:
        x: a tensor in the layout.
        layout: "BNSD", "BSND", "BSH", "SBH" or "TND".
        shape: (B, n_head, T, head_dim), the shape that comes back.

    Returns:
        (B, n_head, T, head_dim), so that from_layout(to_layout(x, layout), layout, x.shape) is x.
        Works in graph mode too.

    Raises:
        ValueError: another layout.
    """
    raise NotImplementedError


# %%
check(from_layout)

# %%
x = ms.Tensor(np.arange(2 * 12 * 5 * 64, dtype=np.float32).reshape(2, 12, 5, 64))
for layout in flash.LAYOUTS:
    there = to_layout(x, layout)
    same = parity.largest_difference(from_layout(there, layout, x.shape), x) == 0
    print(f"{layout:5} {str(there.shape):16} and back, the same: {same}")

# %% [markdown]
# ## 3. What the operator says of itself
#
# Its signature, from the package that is installed. Predict which three of the defaults a GPT cannot live with.

# %%
signature = inspect.signature(ops.flash_attention_score).parameters
print(len(signature), "arguments; some of their defaults:")
for name in ("input_layout", "scalar_value", "attn_mask", "sparse_mode", "keep_prob", "pre_tokens"):
    print(f"  {name:13} {signature[name].default!r}")

# %% [markdown]
# From its documentation (the docstring of `mindspore.ops.flash_attention_score` in 2.10):
#
# - `scalar_value` multiplies the scores. Its default is 1.0, so the square root of lesson 04 is missing unless you give it.
# - `attn_mask` is bool or uint8, and **True means discard**. Your masks are True where a query *may* attend.
# - `sparse_mode` says what kind of mask that is. 0 and 1 take a whole one. 2 and 3 are causal and take a *compressed* one: always
#   2048 by 2048, True above the diagonal, whatever the lengths are. The operator cuts out what it needs.
# - `pre_tokens` and `next_tokens` bound a band around the diagonal in mode 0, and have no effect in modes 1, 2 and 3.
# - q, k and v are float16 or bfloat16, and head_dim is a multiple of 16, at most 512.
# - The result has the shape and the dtype of the query. Only an Ascend has the operator.
#
# So the three are `scalar_value`, `attn_mask` (None is not causal) and `input_layout`, if q comes out of `split_heads`.
#
# `course/flash.py` writes this down in NumPy: it computes what is documented, and refuses what is documented as not
# supported, in a sentence. It is a model of a text. It was not compared with an Ascend. `python -m course ascend` does that there.
#
# What the modes discard, for 4 queries and 6 keys:

# %%
window = ~causal_mask(4, 6).asnumpy()                     # True: discard, as the operator wants it
modes = {
    "0: mask, pre_tokens=0": flash.discarded(4, 6, window, 0, pre_tokens=0, next_tokens=2),
    "1: your whole mask": flash.discarded(4, 6, window, 1),
    "2: left-up causal": flash.discarded(4, 6, flash.compressed(), 2),
    "3: right-down causal": flash.discarded(4, 6, flash.compressed(), 3),
}
for name, hidden in modes.items():
    same = np.array_equal(hidden, window)
    print(f"{name:22} discards {hidden.sum():2} of 24 pairs; your causal_mask: {same}")
show.heatmaps({name: hidden.astype(int) for name, hidden in modes.items()})

# %% [markdown]
# Blue is discarded. Mode 0 adds its band to your mask: with `pre_tokens=0` nothing to the left of the diagonal that starts
# in the upper left corner is seen either. Modes 2 and 3 draw the same triangle for as many queries as keys. With more keys than queries, as in
# sampling with a cache, they differ: mode 2 lets the *first* query stand at the first key, mode 3 lets the *last* query stand at the
# last key. Your `causal_mask` is bottom-right aligned (lesson 04), and so is mode 3. With mode 2 a cached token would see
# only the beginning of the text.
#
# Two more facts, from CANN's page on the operator below this one (aclnnFlashAttentionScore, in `ops-transformer`): if `attn_mask` is
# None, `sparse_mode` has no effect and **all pairs count**. Mode 3 without its mask is not causal, and nothing says so. And mode 3
# with more queries than keys leaves rows without any key; the model refuses that.
#
# ### The call
#
# Now the function. It returns a dict, so that its arguments can be looked at, and sent to the model or to the operator:
# `ops.flash_attention_score(**arguments)`.
#
# $$\text{result} = \text{softmax}\left(\text{scalar\_value} \cdot q\,k^\top \text{ without the discarded pairs}\right) v$$
#
# | argument | what it must hold |
# |---|---|
# | `query`, `key`, `value` | q, k, v in the layout |
# | `head_num` | n_head, a Python int |
# | `input_layout` | the layout |
# | `scalar_value` | scale if one is given, else $1/\sqrt{\text{head\_dim}}$; a Python float |
# | `attn_mask`, `sparse_mode` | for "causal" the compressed mask and 3; for a mask of yours its opposite and 1; for None neither |
# | `actual_seq_qlen`, `actual_seq_kvlen` | only for TND: where each sequence ends, as sums. Three sequences of 4: `[4, 8, 12]` |
# | `next_tokens` | only for TND: 0 |
#
# <details><summary>Hint 1</summary>
#
# Begin with what is always there: a dict of query, key, value, head_num, input_layout, scalar_value. Then two ifs add to
# it: one for the mask, one for TND. In a comparison with None, `scale or ...` would throw away a scale of 0.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The compressed mask depends on nothing: NumPy can make it once, and `triu` is the other half of `tril`. A mask is a tensor or the word
# "causal": ask with `isinstance(mask, str)` first, since comparing a tensor with a word has no use.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# The ends of B sequences of T tokens are T, 2T, ..., B·T. And three things are refused before anything else: a q that is neither
# float16 nor bfloat16 (TypeError), a word that is not "causal", and TND with any other mask (ValueError both).
#
# </details>

# %%
@exercise("mindspore.ascend.flash_attention_arguments")
def flash_attention_arguments(
    q: ms.Tensor, k: ms.Tensor, v: ms.Tensor, mask="causal", layout="BNSD", scale=None
) -> dict:
    """What to call ops.flash_attention_score with.

    Args:
        q: (B, n_head, T_q, head_dim), float16 or bfloat16.
        k, v: (B, n_head, T_k, head_dim), of the same dtype.
        mask: "causal": the last query stands at the last key; or a bool tensor of shape (T_q, T_k),
            (B, 1, T_q, T_k) or (B, n_head, T_q, T_k), True where a query MAY attend; or None.
        layout: one of the five of to_layout.
        scale: a float; None for 1 / sqrt(head_dim).

    Returns:
        dict: names of the operator's arguments and their values; the others keep their defaults.

    Raises:
        TypeError: q is not float16 or bfloat16.
        ValueError: mask is another word, or layout is "TND" and mask is not "causal".

    Source: mindspore.ops.flash_attention_score, MindSpore 2.10.
    """
    raise NotImplementedError


# %%
check(flash_attention_arguments)

# %% [markdown]
# The check compared each call with PyTorch's attention. Now compare with *your* attention, over lengths, head counts and all
# layouts. `flash.run` calls the operator where there is an Ascend and the model elsewhere. The result is rounded to float16,
# which near 1 has steps of 0.001.

# %%
def flash_attention(q, k, v, mask="causal", scale=None, layout="BNSD"):
    """(B, n_head, T_q, head_dim), by way of a layout."""
    arguments = flash_attention_arguments(q, k, v, mask, layout, scale)
    return from_layout(flash.run(**arguments), layout, q.shape)


def half(*shape, seed=0):
    numbers = np.random.default_rng(seed).standard_normal(shape)
    return ms.Tensor(numbers.astype(np.float16))


def in_float32(q, k, v, mask):
    return attention(q.astype(ms.float32), k.astype(ms.float32), v.astype(ms.float32), mask)


for T_q, T_k, n_head in ((6, 6, 1), (3, 7, 4), (1, 9, 12)):
    q, k = half(2, n_head, T_q, 32), half(2, n_head, T_k, 32, seed=1)
    v = half(2, n_head, T_k, 32, seed=2)
    want = in_float32(q, k, v, causal_mask(T_q, T_k))
    off = [
        parity.largest_difference(flash_attention(q, k, v, layout=layout), want)
        for layout in flash.LAYOUTS
    ]
    print(f"{T_q} queries, {T_k} keys, {n_head:2} heads, {len(off)} layouts: ", end="")
    print(f"within 2e-3 of your attention: {max(off) < 2e-3}")

# %% [markdown]
# ### Which mistakes speak, and which do not
#
# Each row is your right call with one thing changed, and what the model of the documentation makes of it. Predict
# for each one: an error, or silence?

# %%
q, k, v = half(2, 4, 3, 32), half(2, 4, 7, 32, seed=1), half(2, 4, 7, 32, seed=2)
want = in_float32(q, k, v, causal_mask(3, 7))
own = ms.Tensor(np.arange(7) < np.array([[1], [3], [6]]))              # (T_q=3, T_k=7) bool
changes = {
    "nothing": {},
    "scalar_value forgotten": {"scalar_value": 1.0},
    "sparse_mode 2 for 3": {"sparse_mode": 2},
    "mask forgotten, mode 0": {"attn_mask": None, "sparse_mode": 0},
    "mask forgotten, mode 3": {"attn_mask": None},
    "compressed mask not inverted": {"attn_mask": causal_mask(2048, 2048)},
    "whole mask in mode 3": {"attn_mask": ops.logical_not(causal_mask(3, 7))},
    "layout forgotten": {"input_layout": "BSH"},
    "BSND said, BNSD given": {"input_layout": "BSND"},
    "k in float32": {"key": k.astype(ms.float32)},
}
for name, change in changes.items():
    arguments = flash_attention_arguments(q, k, v) | change
    try:
        found = flash.flash_attention_score(**arguments)
        off = parity.largest_difference(found, want)
        print(f"{name:29} {'right' if off < 2e-3 else f'no error, off by {off:.1f}'}")
    except (ValueError, TypeError) as error:
        print(f"{name:29} refused: {str(error)[:45]}...")
turned = flash_attention_arguments(q, k, v, mask=own) | {"attn_mask": own}
off = parity.largest_difference(
    flash.flash_attention_score(**turned), in_float32(q, k, v, own)
)
print(f"{'a mask of yours not inverted':29} no error, off by {off:.1f}")

# %% [markdown]
# Four rows give numbers of the right shape without an error, and each would train a worse model. The model refuses more than the
# operator may: CANN documents mode 3 without a mask as a call that computes all pairs, in silence. That is the use of such a model, on any
# machine: it is stricter than the hardware.
#
# ## 4. A head_dim that does not fit
#
# Rules about alignment circulate, and they do not agree. Take each for what its source says:
#
# | rule | where it stands | verdict |
# |---|---|---|
# | head_dim is a multiple of 16, at most 512 | docstring of `ops.flash_attention_score`, 2.10 | documented: keep to it in this call |
# | head_dim from 1 to 768, no multiple named | CANN, aclnnFlashAttentionScore | documented, for the operator below; the two do not agree, so MindSpore's is the safe one |
# | every MatMul needs multiples of 16, or it falls back | an article | not a rule: nothing documents a fallback. That 16 suits the matrix unit is plausible; needs an Ascend |
# | softmax falls back to the CPU above 2048 positions | an article | no source found; needs an Ascend |
# | the width of the MLP must be a multiple of 128, so pad 2816 to 2944 | an article | false: see below |
# | 777 channels in 12 heads make 64.75, so pad | an article | false: see below |

# %%
print("2816 / 128 =", 2816 / 128)
print("the first multiple of 128 that is not below 2816:", -(-2816 // 128) * 128)
try:
    split_heads(ms.Tensor(np.zeros((1, 2, 777), np.float32)), 12).asnumpy()
except (ValueError, RuntimeError) as error:
    print(f"777 channels in 12 heads: {type(error).__name__}")
print("head_dim of GPT-2, small to XL:", [C // n for C, n in ((768, 12), (1024, 16), (1600, 25))])

# %% [markdown]
# 2816 is 22 times 128 already. And 777 channels do not cut into 12 heads at all: no padding of a head makes that a model. GPT-2 has
# head_dim 64 in every size, and needs none of this. But a small model of 60 channels and 3 heads has 20, and the
# operator wants 32.
#
# **Zeros change nothing.** A dot product with zeros at the end is the same dot product. Zeros at the end of the values
# give zeros at the end of the result, which are cut off. Only one thing does change if you are not careful: the scale. It is
# $1/\sqrt{20}$ before and after, for the scores are those of 20 channels.
#
# | | shape |
# |---|---|
# | q, k, v | (B, n_head, T, head_dim) |
# | padded | (B, n_head, T, D), D the next multiple |
# | `attend(q, k, v, mask, scale)` | (B, n_head, T, D) |
# | result | (B, n_head, T, head_dim) |
#
# <details><summary>Hint 1</summary>
#
# How many zeros are missing is a remainder: for 20 and 16 it is 12, for 32 it must be 0. In Python `-20 % 16` is a number
# worth looking at.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `ops.zeros(shape, dtype)` makes the zeros, in the dtype of what they go with, and `ops.cat((a, b), axis=-1)` joins along the channels. Take head_dim from q
# before you pad it: scale and cut need the true one.
#
# </details>

# %%
@exercise("mindspore.ascend.AutoPad")
class AutoPad(nn.Cell):
    """Any head_dim through an attention that takes multiples only: zeros behind, and cut off again.

    Args:
        attend: called as attend(q, k, v, mask, scale), once; gives (B, n_head, T, D).
        multiple: of what D must be a multiple.

    construct(q, k, v, mask=None): (B, n_head, T, head_dim) each -> the shape of q. mask is
        handed on as it is; scale is 1 / sqrt(head_dim) as a Python float, of the head_dim that
        came in. A head_dim that fits is not padded. The same in graph mode, if attend works there.
    """

    def __init__(self, attend, multiple=16):
        raise NotImplementedError

    def construct(self, q, k, v, mask=None):
        raise NotImplementedError


# %%
check(AutoPad)

# %% [markdown]
# Now head_dim 20 goes through the operator. Below it: the same with the scale of the padded width, the mistake that
# gives the right shape.

# %%
q, k, v = half(2, 3, 6, 20), half(2, 3, 6, 20, seed=1), half(2, 3, 6, 20, seed=2)
want = in_float32(q, k, v, causal_mask(6, 6))
padded = AutoPad(flash_attention)
off = parity.largest_difference(padded(q, k, v, "causal"), want)
print("within 2e-3 of your attention:", off < 2e-3)


def wrong_scale(q, k, v, mask, scale):
    return flash_attention(q, k, v, mask, 1 / math.sqrt(q.shape[-1]))


off = parity.largest_difference(AutoPad(wrong_scale)(q, k, v, "causal"), want)
print(f"with the scale of head_dim 32: off by {off:.2f}")
print(f"products with zeros: {32 / 20 - 1:.0%} more work than for head_dim 20")
seen = {}


def look(q, k, v, mask, scale):
    seen["q, padded to 32"] = np.abs(q.asnumpy()[0, 0])
    seen["k, padded to 32"] = np.abs(k.asnumpy()[0, 0])
    return v


AutoPad(look)(q, k, v)
show.heatmaps(seen, x_label="channel", y_label="position")

# %% [markdown]
# The white columns are the price: 12 of 32 channels are computed for nothing. A head_dim that fits from the start is better
# than any padding.
#
# Put together: a module of lesson 12, with its attention replaced. Only the attention is in float16; the linear layers stay in
# float32. How to decide such things for each layer is lesson 18.

# %%
np.random.seed(0)
module = CausalSelfAttention(SimpleNamespace(n_embd=60, n_head=3))     # head_dim 20
core = AutoPad(partial(flash_attention, layout="BSH"))


def with_flash(x):
    """module(x), with the fused attention in the place of its own."""
    parts = module.c_attn(x).split(60, axis=-1)           # three times (B, T, C)
    q, k, v = (split_heads(part.astype(ms.float16), 3) for part in parts)
    y = core(q, k, v, "causal")                           # (B, n_head, T, 20), float16
    return module.c_proj(merge_heads(y.astype(ms.float32)))


x = ms.Tensor(np.random.default_rng(3).standard_normal((2, 8, 60)).astype(np.float32))
off = parity.relative_difference(with_flash(x), module(x))
print(f"the module with a fused attention, within 2e-3 of its largest value: {off < 2e-3}")

# %% [markdown]
# ## 5. Where the time goes: the profiler
#
# Before you make anything faster, look where its time goes. `mindspore.profiler.profile` writes that down. Its documentation
# names Ascend and GPU, and with `activities=[ProfilerActivity.CPU]` it works on a CPU too:
#
# ```python
# handler = tensorboard_trace_handler(folder)
# with profile(activities=[ProfilerActivity.CPU], on_trace_ready=handler) as p:
#     for _ in range(5):
#         forward(ids).asnumpy()
#         p.step()
# ```
#
# It writes `FRAMEWORK/cpu_op_type_info_0.csv`, a table by kind of operation, and `ASCEND_PROFILER_OUTPUT/trace_view.json`, a time line.
# `ascend.profile_table` does this in a folder that is thrown away, and reads the table. Predict: which operation takes the largest
# share of the forward pass of a GPT of 2 layers?

# %% tags=["nbval-ignore-output"]
np.random.seed(0)
config = SimpleNamespace(vocab_size=81, n_ctx=64, n_layer=2, n_head=4, n_embd=128)
model = GPT(config)
ids = ms.Tensor(np.random.default_rng(1).integers(0, 81, (4, 64)), ms.int32)      # (B=4, T=64)


def forward(ids):
    return model(ids)[0]


forward = ms.jit(forward)
rows = ascend.profile_table(lambda: forward(ids).asnumpy())
total = sum(o.milliseconds for o in rows)
shares = {o.name: o.milliseconds / total for o in rows}
print(device.banner())
show.table(
    [(o.name, o.calls, round(o.milliseconds, 3), f"{shares[o.name]:.0%}") for o in rows[:8]],
    ("operation", "calls a pass", "ms a pass", "share"),
)
largest = {o.name: 100 * shares[o.name] for o in rows[:6]}
show.bars(largest, "A forward pass, by operation", "% of the time")

# %%
products = sum(o.calls for o in rows if "matmul" in o.name.lower())
print("products in a pass:", round(products), "- expected, 6 a layer and the head:", 6 * 2 + 1)

# %% [markdown]
# At this size the products need not come first: a small operation costs mostly its call. How to read the table? First the column of calls: it must fit what you wrote, 4 linear layers and 2 products of attention in each
# layer. What you did not write is overhead: transposes and copies. Then the shares. An
# operation with many calls and a small time each is a candidate for fusion; one with few calls and a large share is work.
#
# On an Ascend the same call takes `activities=[ProfilerActivity.CPU, ProfilerActivity.NPU]` and writes, as documented, into
# `ASCEND_PROFILER_OUTPUT`: `op_statistic.csv` (this table), `kernel_details.csv` (each kernel with its times),
# `step_trace_time.csv` (computing, communication and idle time of each step) and the time line, which MindStudio Insight shows. That was
# not run here. CANN's `msprof` collects below Python: `msprof --output=DIR python train.py`. Nsight, which an article
# uses for this, is a tool for NVIDIA's hardware.
#
# ## 6. Out of Python: MINDIR
#
# A model that is to serve needs neither your classes nor Python's time. `ms.export` writes the graph with its weights to a file, and
# `nn.GraphCell` runs it. The shape is fixed at the export. `GPT` gives a pair, logits and None, so a small cell around it picks the
# logits. Without `auto_prefix=False` it would rename the parameters of the model inside it.

# %%
class Logits(nn.Cell):
    """(B, T) ids -> (B, T, V)."""

    def __init__(self, model):
        super().__init__(auto_prefix=False)
        self.model = model

    def construct(self, idx):
        return self.model(idx)[0]


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "gpt")
    ms.export(Logits(model), ids, file_name=path, file_format="MINDIR")
    print("written:", os.listdir(folder))
    graph = nn.GraphCell(ms.load(path + ".mindir"))

found, want = graph(ids), model(ids)[0]                   # (B, T, V) each
off = parity.largest_difference(found, want)
print("logits of the file within 1e-5 of the model's:", off < 1e-5)
print("the parameters kept their names:", model.trainable_params()[0].name)
try:
    graph(ids[:, :10]).asnumpy()
except RuntimeError:
    print("10 positions in the place of 64: RuntimeError")

# %% [markdown]
# The file is gone and the graph still runs: it holds its weights. Two formats are named beside MINDIR: ONNX, for other engines; and AIR, for
# Ascend only and on its way out. `ms.load`, which an article uses for AIR, reads MINDIR alone.
#
# ## 7. Sampling in graph mode
#
# The cache of lesson 16 grows by one with every token. For graph mode that is a new shape each time, and a new shape is a new compile. The
# way out: let nothing grow. Buffers of n_ctx places are there from the start, a token is written at its place, and a mask hides the
# places that are still empty.
#
# | name | shape | meaning |
# |---|---|---|
# | `keys[layer]`, `values[layer]` | (B, n_head, n_ctx, head_dim) | Parameters, zeros at the start |
# | token | (B, 1) int | one new token for each sequence |
# | position | () int32 tensor | where it stands |
# | result of `step` | (B, 1, V) | logits |
#
# The buffers are *Parameters*, a `ParameterTuple` of them for the keys and one for the values: a graph keeps nothing else from call
# to call, and a tensor that it finds in `self` is a constant to it. The position is a *tensor*, handed in. A Python number would be
# a constant too, and every new one would compile anew.
#
# Each step now computes n_ctx scores, however few places are filled. That is the price, and it is small: one query.
#
# <details><summary>Hint 1</summary>
#
# Take the `forward` of your KVCache for T = 1 and change three things: the position embedding is that of `position`; the new keys and
# values go into the buffers; the mask runs over n_ctx places.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `places = ops.arange(n_ctx)`. Where `places == position` a buffer takes the new key, elsewhere it keeps the old: that is
# `ops.where`, with the condition as a column of shape (n_ctx, 1). `ops.assign(buffer, value)` writes it and gives it back.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `ms.jit(self.step)` once, in `__init__`. `forward` goes through the columns of idx, calls it with
# `ms.Tensor(self.length, ms.int32)`, counts, and joins the logits along the time axis. `reset` need not empty the buffers: what
# lies behind `length` is hidden, and then written over.
#
# </details>

# %%
@exercise("mindspore.static_cache.StaticKVCache")
class StaticKVCache:
    """A cache for keys and values whose shapes never change: one compiled graph serves every token.

    Args:
        model: a GPT with GPT-2's names; its parameters keep their values and names.
        batch_size: rows of the buffers.

    Attributes:
        model; length: int, how many positions are held.

    reset(): forget everything.
    buffers(name, shape): a ParameterTuple of zeros in float32, one of this shape for each layer.
    step(token, position): (B, 1) ids and a () int32 tensor -> (B, 1, V) logits; writes the keys
        and values of the token at position. Works eagerly and inside ms.jit.
    forward(idx): (B, T) new tokens -> (B, T, V), equal to the model's logits for everything fed
        since the last reset. Calls the compiled step for each token and advances length.
        ValueError if length + T exceeds n_ctx, and nothing is changed then.
    """

    def __init__(self, model, batch_size=1):
        raise NotImplementedError

    def buffers(self, name, shape):
        raise NotImplementedError

    def reset(self):
        raise NotImplementedError

    def step(self, token, position):
        raise NotImplementedError

    def forward(self, idx):
        raise NotImplementedError


# %%
check(StaticKVCache)

# %% [markdown]
# It has the face of a KVCache: `length`, `reset`, `forward`. So `sample` of lesson 16 takes it. The likeliest token each time, three
# ways, also past n_ctx, where the window slides:

# %%
np.random.seed(1)
small = GPT(SimpleNamespace(vocab_size=81, n_ctx=24, n_layer=2, n_head=4, n_embd=64))
prompt = ms.Tensor(np.random.default_rng(2).integers(0, 81, (2, 8)), ms.int32)
grown, fixed = KVCache(small), StaticKVCache(small, batch_size=2)
texts = {
    "without a cache": sample(small, prompt, 18, temperature=0),
    "KVCache, eager": sample(small, prompt, 18, temperature=0, cache=grown),
    "StaticKVCache, graph": sample(small, prompt, 18, temperature=0, cache=fixed),
}
for name, text in texts.items():
    same = np.array_equal(text.asnumpy(), texts["without a cache"].asnumpy())
    print(f"{name:21} {text.shape[1]} tokens, the same as without a cache: {same}")

# %% [markdown]
# Now the time. 16 tokens, one at a time, both caches. Predict the ratio. What is different: not the
# products, which are the same but for the empty places, but who sends off the operations.

# %% tags=["nbval-ignore-output"]
tokens = [ms.Tensor(np.full((2, 1), t), ms.int32) for t in range(16)]


def feed(cache):
    cache.reset()
    for token in tokens:
        logits = cache.forward(token)
    return logits.asnumpy()


candidates = {"KVCache, eager": partial(feed, grown), "StaticKVCache, graph": partial(feed, fixed)}
timings = timing.measure(candidates, seconds=2, warmup=1, least=3)
print(timing.report(timings))
show.bars(
    {name: 1e3 * t.median / 16 for name, t in timings.items()},
    "A token of two sequences, 2 layers of 64",
    "ms, median",
)

# %%
gap = np.abs(feed(grown) - feed(fixed)).max()
print("logits of the last token within 1e-5:", gap < 1e-5)

# %% [markdown]
# Eagerly, each of some hundred small operations is sent off from Python; the graph is sent off once. A prompt is another matter: the
# eager cache takes it at once, the fixed one token by token. These are figures of a CPU. On an Ascend, where sending off costs too
# and the computing takes less, the ratio will be another: not run here. For long prompts one would compile a second graph that
# takes a whole window, and fill the buffers with it.
#
# ## 8. The whole course on an Ascend
#
# One command does there what could not be done here:
#
# ```
# python -m course ascend                    # everything; stopped, it goes on
# python -m course ascend --lessons 04,12    # only these notebooks
# python -m course ascend --lessons none --out report
# ```
#
# It writes `report.md`: versions, the devices, the pair with CANN, the real `ops.flash_attention_score` in all layouts against
# float64, parity of the GPT, a table of the profiler, timings, and every notebook by nbval. On a machine without an Ascend it runs what can be run, and says
# for the rest, line by line: "no Ascend here: not run". The next cell calls three of its parts.

# %% tags=["nbval-ignore-output"]
with tempfile.TemporaryDirectory() as folder:
    options = ["--parts", "versions,device,pairing", "--lessons", "none", "--out", "report"]
    done = subprocess.run(
        [sys.executable, "-m", "course", "ascend", *options],
        capture_output=True, text=True, cwd=folder,
    )
    with open(os.path.join(folder, "report", "report.md"), encoding="utf-8") as file:
        report = file.read()
print("\n".join(line for line in report.splitlines() if line and not line.startswith("```")))

# %%
titles = [line.split(":")[0][3:] for line in report.splitlines() if line.startswith("## ")]
print("parts:", ", ".join(titles))
print("ended without a failure:", done.returncode == 0)
print("says what was not run:", device.mindspore_target() == "Ascend" or ascend.NOT_RUN in report)

# %% [markdown]
# ## What you built, what comes next
#
# You have the call of the fused attention in one function, with arguments that were checked against its documentation in five
# layouts and three shapes, and a padding that changes nothing but the width. You know which mistakes that operator does not
# report: a forgotten scale, a mask the wrong way round, the wrong corner of the triangle. Your GPT runs from a file without your
# code, and samples as one compiled graph with a cache that never grows.
#
# What an Ascend makes of it was not run here. The report of `python -m course ascend` will tell you, on yours. Lesson 22 takes the advice that circulates about
# all this, claim by claim, and settles what can be settled.
