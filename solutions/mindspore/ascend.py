"""Calling the fused attention of an Ascend as it is documented: layouts, arguments, and a head_dim that does not fit."""
import math

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from .attention import merge_heads, split_heads


def to_layout(x, layout):
    """(B, n_head, T, head_dim) -> BNSD as it is, BSND, BSH, SBH, or TND with the sequences end to end.

    ValueError for another layout. Source: mindspore.ops.flash_attention_score.
    """
    B, n_head, T, head_dim = x.shape
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return x.swapaxes(1, 2)
    if layout == "BSH":
        return merge_heads(x)
    if layout == "SBH":
        return merge_heads(x).swapaxes(0, 1)
    if layout == "TND":
        return x.swapaxes(1, 2).reshape(B * T, n_head, head_dim)
    raise ValueError(f"the layout is {layout!r} and must be BNSD, BSND, BSH, SBH or TND")


def from_layout(x, layout, shape):
    """Undo to_layout: shape is (B, n_head, T, head_dim), what comes back. ValueError for another layout."""
    B, n_head, T, head_dim = shape
    if layout == "BNSD":
        return x
    if layout == "SBH":
        return split_heads(x.swapaxes(0, 1), n_head)
    if layout in ("BSND", "BSH", "TND"):
        return x.reshape(B, T, n_head, head_dim).swapaxes(1, 2)
    raise ValueError(f"the layout is {layout!r} and must be BNSD, BSND, BSH, SBH or TND")


def flash_attention_arguments(q, k, v, mask="causal", layout="BNSD", scale=None):
    """The arguments of ops.flash_attention_score as a dict; q, k, v (B, n_head, T, head_dim) in float16 or bfloat16.

    mask: "causal", a bool tensor of T_q by T_k that is True where a query may attend, or None. TypeError for
    another dtype, ValueError for another word and for TND with a mask that is not "causal".
    """
    if q.dtype not in (ms.float16, ms.bfloat16):
        raise TypeError(f"q is {q.dtype}: the operator takes float16 and bfloat16, cast q, k and v first")
    if isinstance(mask, str) and mask != "causal":
        raise ValueError(f"mask is {mask!r} and must be 'causal', a bool tensor or None")
    if layout == "TND" and not isinstance(mask, str):
        raise ValueError("TND knows the causal mask only: choose another layout, or mask='causal'")
    B, n_head, T_q, head_dim = q.shape
    T_k = k.shape[2]
    arguments = {
        "query": to_layout(q, layout), "key": to_layout(k, layout), "value": to_layout(v, layout),
        "head_num": n_head, "input_layout": layout,
        "scalar_value": 1 / math.sqrt(head_dim) if scale is None else scale,
    }
    if isinstance(mask, str):
        arguments["attn_mask"] = ms.Tensor(np.triu(np.ones((2048, 2048), bool), k=1))   # True above the diagonal: discard
        arguments["sparse_mode"] = 3                          # its last query stands at the last key
    elif mask is not None:
        arguments["attn_mask"] = ops.logical_not(mask)
        arguments["sparse_mode"] = 1
    if layout == "TND":
        arguments["actual_seq_qlen"] = [T_q * (b + 1) for b in range(B)]      # where each sequence ends
        arguments["actual_seq_kvlen"] = [T_k * (b + 1) for b in range(B)]
        arguments["next_tokens"] = 0
    return arguments


class AutoPad(nn.Cell):
    """attend(q, k, v, mask, scale) for any head_dim: zeros up to the next multiple, and cut off again.

    construct(q, k, v, mask=None): (B, n_head, T, head_dim) -> the same shape as q. The scale is that of the true head_dim.
    """

    def __init__(self, attend, multiple=16):
        super().__init__()
        self.attend = attend
        self.multiple = multiple

    def pad(self, x, missing):
        zeros = ops.zeros((*x.shape[:-1], missing), x.dtype)
        return ops.cat((x, zeros), axis=-1)                   # (B, n_head, T, head_dim + missing)

    def construct(self, q, k, v, mask=None):
        head_dim = q.shape[-1]
        missing = -head_dim % self.multiple
        if missing > 0:
            q, k, v = self.pad(q, missing), self.pad(k, missing), self.pad(v, missing)
        y = self.attend(q, k, v, mask, 1 / math.sqrt(head_dim))
        return y[..., :head_dim]
