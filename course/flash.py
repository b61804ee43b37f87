"""ops.flash_attention_score of MindSpore in NumPy: what its documentation says it computes, and what it says it refuses.

The operator runs on an Ascend only. Where there is none, the arguments of a call can still be checked against this
model. Nothing of it was compared with a real Ascend.

Sources: the docstring of mindspore.ops.flash_attention_score in MindSpore 2.10.0, and for the sparse modes CANN's
ops-transformer, docs/en/context/sparse_mode_introduction.md.
"""
from functools import lru_cache

import numpy as np

LAYOUTS = ("BSH", "BNSD", "SBH", "BSND", "TND")
COMPRESSED = 2048             # side of the mask that sparse_mode 2 and 3 take, whatever the lengths are
ALL = 2147483647


class Refused(ValueError):
    """What the operator documents as unsupported, in one sentence."""


class RefusedType(TypeError):
    """The same for a wrong dtype or type."""


@lru_cache(maxsize=1)
def on_ascend():
    """Whether MindSpore finds an Ascend; it is asked once."""
    from course import device

    return device.mindspore_target() == "Ascend"


def run(**arguments):
    """The operator itself where there is an Ascend, this model of it elsewhere. Returns a MindSpore tensor."""
    if on_ascend():
        from mindspore import ops

        return ops.flash_attention_score(**arguments)
    return flash_attention_score(**arguments)


def flash_attention_score(
    query, key, value, head_num, real_shift=None, drop_mask=None, padding_mask=None, attn_mask=None, prefix=None,
    actual_seq_qlen=None, actual_seq_kvlen=None, keep_prob=1.0, scalar_value=1.0, pre_tokens=ALL, next_tokens=ALL,
    inner_precise=0, input_layout="BSH", sparse_mode=0,
):
    """What the operator of the same name documents, with its arguments, names and defaults.

    Args:
        query, key, value: MindSpore tensors of float16 or bfloat16, or NumPy arrays of float16, in the order of axes that
            input_layout names.
        attn_mask: bool or uint8; True or 1 is a pair to DISCARD.
        the others: as in the operator. Not modelled, and refused: real_shift, drop_mask, padding_mask, prefix,
            keep_prob below 1, and sparse modes above 3.

    Returns:
        A tensor (or array) of the shape and dtype of query. Computed in float64 and rounded once.

    Raises:
        Refused, a ValueError; RefusedType, a TypeError: one sentence on what is not supported.
    """
    for name, given in [("real_shift", real_shift), ("drop_mask", drop_mask), ("padding_mask", padding_mask), ("prefix", prefix)]:
        if given is not None:
            raise Refused(f"{name} is given: this model covers attention without it, leave it out.")
    if keep_prob != 1.0:
        raise Refused(f"keep_prob is {keep_prob}: this model covers 1.0, no dropout; the operator takes what is above 0 and at most 1.")
    if input_layout not in LAYOUTS:
        raise Refused(f"input_layout is {input_layout!r} and must be one of {', '.join(LAYOUTS)}.")
    check_types(query, key, value, attn_mask, scalar_value, head_num, sparse_mode)
    q, k, v = (numbers(x) for x in (query, key, value))
    check_shapes(q, k, v, head_num, input_layout)
    lengths = sequence_lengths(q, k, input_layout, actual_seq_qlen, actual_seq_kvlen)
    mask = None if attn_mask is None else numbers(attn_mask) != 0
    check_mask(mask, lengths, head_num, input_layout, sparse_mode, pre_tokens, next_tokens)
    n_kv = kv_heads(q, k, head_num, input_layout)
    q_list = sequences(q, input_layout, head_num, [a for a, _ in lengths])
    k_list, v_list = (sequences(x, input_layout, n_kv, [b for _, b in lengths]) for x in (k, v))
    results = []
    for b, (one_q, one_k, one_v) in enumerate(zip(q_list, k_list, v_list)):                # (N, S, D) each
        part = mask if mask is None or mask.ndim == 2 else mask[b]
        hidden = discarded(one_q.shape[1], one_k.shape[1], part, sparse_mode, pre_tokens, next_tokens)
        results.append(attend(one_q, one_k, one_v, hidden, scalar_value))
    return like(joined(results, input_layout), query)


def attend(q, k, v, hidden, scale):
    """softmax(scale q kᵀ, without the hidden pairs) v: q (N1, S1, D), k and v (N2, S2, D), hidden (..., S1, S2) -> (N1, S1, D)."""
    k, v = (np.repeat(x, len(q) // len(x), axis=0) for x in (k, v))        # a key head serves N1 / N2 query heads
    scores = scale * (q @ k.swapaxes(1, 2))                               # (N1, S1, S2)
    scores = np.where(hidden, -np.inf, scores)
    empty = np.argwhere(np.isneginf(scores).all(axis=-1))
    if len(empty):
        raise Refused(f"query {empty[0][1]} may attend to no key: the documentation does not say what comes out then.")
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def discarded(n_query, n_key, attn_mask=None, sparse_mode=0, pre_tokens=ALL, next_tokens=ALL):
    """(..., n_query, n_key) bool: the pairs that a sparse mode discards.

    Args:
        attn_mask: bool array, True is discarded: whole for modes 0 and 1, the compressed one for 2 and 3.
    """
    i, j = np.arange(n_query)[:, None], np.arange(n_key)[None, :]
    if attn_mask is None:
        return np.zeros((n_query, n_key), bool)                           # also pre_tokens and next_tokens are ignored then
    if sparse_mode == 0:
        return attn_mask | (j < i - pre_tokens) | (j > i + next_tokens)
    if sparse_mode == 1:
        return attn_mask
    if sparse_mode == 2:
        return j > i                                                      # the diagonal starts in the upper left corner
    return j > i + n_key - n_query                                        # it ends in the lower right corner


@lru_cache(maxsize=1)
def compressed():
    """(2048, 2048) bool, True above the diagonal: the mask that sparse_mode 2 and 3 take."""
    return np.triu(np.ones((COMPRESSED, COMPRESSED), bool), 1)


# --- what is refused -----------------------------------------------------------------------------------


def dtype_name(x):
    return str(x.dtype).lower()


def check_types(query, key, value, attn_mask, scalar_value, head_num, sparse_mode):
    for name, x in [("query", query), ("key", key), ("value", value)]:
        if not hasattr(x, "dtype"):
            raise RefusedType(f"{name} is of type {type(x).__name__} and must be a tensor.")
        if dtype_name(x) not in ("float16", "bfloat16"):
            raise RefusedType(f"{name} is {dtype_name(x)}: the operator takes float16 and bfloat16, cast it with .astype(ms.float16).")
        if dtype_name(x) != dtype_name(query):
            raise RefusedType(f"query is {dtype_name(query)} and {name} is {dtype_name(x)}: all three must have one dtype.")
    if attn_mask is not None:
        if not hasattr(attn_mask, "dtype"):
            raise RefusedType(f"attn_mask is of type {type(attn_mask).__name__} and must be a tensor.")
        if dtype_name(attn_mask) not in ("bool", "bool_", "uint8"):
            raise RefusedType(f"attn_mask is {dtype_name(attn_mask)} and must be bool or uint8.")
    for name, number, kind in [("scalar_value", scalar_value, float), ("head_num", head_num, int), ("sparse_mode", sparse_mode, int)]:
        if not isinstance(number, kind) or isinstance(number, bool):
            raise RefusedType(f"{name} is of type {type(number).__name__} and must be a Python {kind.__name__}.")


def check_shapes(q, k, v, head_num, layout):
    axes = {"BSH": 3, "SBH": 3, "TND": 3}.get(layout, 4)
    for name, x in [("query", q), ("key", k), ("value", v)]:
        if x.ndim != axes:
            raise Refused(f"{name} has {x.ndim} axes and {layout} has {axes}.")
    if head_num < 1:
        raise Refused(f"head_num is {head_num} and must be the number of query heads, 1 to 256.")
    if k.shape != v.shape:
        raise Refused(f"key has shape {k.shape} and value {v.shape}: they must be equal.")
    at = layout.index("B") if "B" in layout else None
    if at is not None and q.shape[at] != k.shape[at]:
        raise Refused(f"query holds {q.shape[at]} sequences and key {k.shape[at]}.")
    if "N" in layout and q.shape[layout.index("N")] != head_num:
        raise Refused(f"head_num is {head_num} and query has {q.shape[layout.index('N')]} heads.")
    if "H" in layout and q.shape[2] % head_num:
        raise Refused(f"query is {q.shape[2]} wide, which does not divide into {head_num} heads.")
    D = q.shape[-1] // (head_num if "H" in layout else 1)
    if D % 16 or D > 512:
        raise Refused(f"head_dim is {D} and must be a multiple of 16, at most 512.")
    if "H" not in layout and k.shape[-1] != D:
        raise Refused(f"query has head_dim {D} and key {k.shape[-1]}.")
    if "H" in layout and k.shape[-1] % D:
        raise Refused(f"key is {k.shape[-1]} wide, no multiple of head_dim {D}.")
    n_kv = kv_heads(q, k, head_num, layout)
    if head_num % n_kv or head_num > 256:
        raise Refused(f"query has {head_num} heads and key {n_kv}: those of key must divide those of query, at most 256.")


def kv_heads(q, k, head_num, layout):
    return k.shape[-1] // (q.shape[-1] // head_num) if "H" in layout else k.shape[layout.index("N")]


def sequence_lengths(q, k, layout, ends_q, ends_k):
    """[(S1, S2)] of each sequence."""
    if layout != "TND":
        if ends_q is not None or ends_k is not None:
            raise Refused(f"actual_seq_qlen and actual_seq_kvlen belong to TND and must be None for {layout}.")
        at = layout.index("S")
        return [(q.shape[at], k.shape[at])] * q.shape[layout.index("B")]
    if ends_q is None or ends_k is None:
        raise Refused("TND lays sequences end to end: actual_seq_qlen and actual_seq_kvlen must say where each ends.")
    both = []
    for name, ends, total in [("actual_seq_qlen", ends_q, len(q)), ("actual_seq_kvlen", ends_k, len(k))]:
        if not isinstance(ends, (list, tuple)) and not hasattr(ends, "dtype"):
            raise RefusedType(f"{name} is of type {type(ends).__name__} and must be a list, a tuple or a tensor.")
        ends = [int(e) for e in (numbers(ends) if hasattr(ends, "dtype") else ends)]
        if not ends or ends[-1] != total:
            raise Refused(f"{name} is {ends}: it holds the sums of the lengths so far, and the last must be {total}.")
        steps = [b - a for a, b in zip([0, *ends], ends)]
        if min(steps) < 0:
            raise Refused(f"{name} is {ends} and must not fall: it holds the sums of the lengths so far, not the lengths.")
        both.append(steps)
    if len(both[0]) != len(both[1]) or not 1 <= len(both[0]) <= 1024:
        raise Refused(f"query holds {len(both[0])} sequences and key {len(both[1])}; both must be equal, at most 1024.")
    if 0 in both[1]:
        raise Refused(f"sequence {both[1].index(0)} has no keys: 0 may not stand among the lengths of key.")
    return list(zip(*both))


def check_mask(mask, lengths, head_num, layout, sparse_mode, pre_tokens, next_tokens):
    if sparse_mode not in range(4):
        known = "not implemented in the operator" if sparse_mode in (6, 7, 8) else "not in this model" if sparse_mode in (4, 5) else "no mode"
        raise Refused(f"sparse_mode {sparse_mode} is {known}: 0 and 1 take a whole mask, 2 and 3 are causal.")
    if layout == "TND":
        if sparse_mode not in (2, 3):
            raise Refused(f"TND takes sparse_mode 2 or 3 with the compressed mask, and sparse_mode is {sparse_mode}.")
        if next_tokens != 0 or pre_tokens < max(a for a, _ in lengths):
            raise Refused("TND wants next_tokens=0, and pre_tokens not below the longest query.")
        short = [(a, b) for a, b in lengths if sparse_mode == 3 and a > b]
        if short:
            raise Refused(f"a sequence has {short[0][0]} queries and {short[0][1]} keys: TND with sparse_mode 3 wants at least as many keys.")
    if sparse_mode == 1 and mask is None:
        raise Refused("sparse_mode 1 takes the whole mask, and attn_mask is None.")
    if sparse_mode in (2, 3):
        if mask is None:
            raise Refused(f"sparse_mode {sparse_mode} needs the compressed attn_mask (2048, 2048), and attn_mask is None: CANN documents that all pairs count then, the future too.")
        if mask.shape != (COMPRESSED, COMPRESSED):
            raise Refused(f"attn_mask has shape {mask.shape}, and sparse_mode {sparse_mode} takes (2048, 2048) for every length.")
        if not np.array_equal(mask, compressed()):
            how = "it is the other way round, True where a query may attend" if np.array_equal(~mask, compressed()) else "it is another one"
            raise Refused(f"the compressed attn_mask must be True (discard) above the diagonal and False elsewhere: {how}.")
        return
    if mask is None:
        return
    B, (S1, S2) = len(lengths), lengths[0]
    if mask.shape not in [(B, head_num, S1, S2), (B, 1, S1, S2), (S1, S2)]:
        raise Refused(f"attn_mask has shape {mask.shape}, and sparse_mode {sparse_mode} takes (B, N1, S1, S2), (B, 1, S1, S2) or (S1, S2), here {(S1, S2)}.")
    if sparse_mode == 1:
        return
    if pre_tokens < 0 and (next_tokens < abs(pre_tokens) or abs(pre_tokens) >= S2):
        raise Refused(f"pre_tokens {pre_tokens} and next_tokens {next_tokens} leave an empty band.")
    if next_tokens < 0 and (abs(next_tokens) > pre_tokens or abs(next_tokens) >= S1):
        raise Refused(f"pre_tokens {pre_tokens} and next_tokens {next_tokens} leave an empty band.")


# --- tensors and layouts -------------------------------------------------------------------------------


def numbers(x):
    """A float64 array of floats (bfloat16 too, which NumPy does not know); other dtypes as they are."""
    if hasattr(x, "asnumpy"):
        if dtype_name(x) == "bfloat16":
            import mindspore as ms

            x = x.astype(ms.float32)
        x = x.asnumpy()
    x = np.asarray(x)
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def like(x, query):
    """x in the dtype of query, a tensor if that is one."""
    if not hasattr(query, "asnumpy"):
        return x.astype(query.dtype)
    import mindspore as ms

    return ms.Tensor(x.astype(np.float32)).astype(query.dtype)


def sequences(x, layout, n_head, lengths):
    """A list of (N, S, D), one for each sequence."""
    if layout == "TND":
        parts = np.split(x, np.cumsum(lengths)[:-1])                      # (S, N, D) each
        return [part.swapaxes(0, 1) for part in parts]
    if layout == "SBH":
        x = x.swapaxes(0, 1)                                              # (B, S, H)
    if layout in ("SBH", "BSH"):
        x = x.reshape(*x.shape[:2], n_head, -1)                           # (B, S, N, D)
    return list(x if layout == "BNSD" else x.swapaxes(1, 2))


def joined(results, layout):
    """The inverse of sequences."""
    if layout == "TND":
        return np.concatenate([r.swapaxes(0, 1) for r in results])
    x = np.stack(results)                                                 # (B, N, S, D)
    if layout == "BNSD":
        return x
    x = x.swapaxes(1, 2)                                                  # (B, S, N, D)
    if layout == "BSND":
        return x
    x = x.reshape(*x.shape[:2], -1)                                       # (B, S, H)
    return x.swapaxes(0, 1) if layout == "SBH" else x
