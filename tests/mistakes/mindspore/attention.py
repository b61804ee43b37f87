import math

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from solutions.mindspore import attention as good
from solutions.mindspore.primitives import Linear
from tests.mistakes import right, wrong

MASK = "mindspore.attention.causal_mask"
ATTENTION = "mindspore.attention.attention"
SPLIT = "mindspore.attention.split_heads"
MERGE = "mindspore.attention.merge_heads"
MODULE = "mindspore.attention.CausalSelfAttention"

# --- causal_mask ---------------------------------------------------------------------------------------


def ones(n_query, n_key):
    return ops.ones((n_query, n_key), ms.bool_)


@wrong(MASK, "shifted by one: a query does not see its own")
def strictly_below(n_query, n_key):
    return ops.tril(ones(n_query, n_key), n_key - n_query - 1)


@wrong(MASK, "shifted by one: query 0 attends to the key after")
def one_too_many(n_query, n_key):
    return ops.tril(ones(n_query, n_key), n_key - n_query + 1)


@wrong(MASK, "inverted")
def true_is_discard(n_query, n_key):
    return ops.triu(ones(n_query, n_key), n_key - n_query + 1)


@wrong(MASK, "wrong way round")
def upper_with_diagonal(n_query, n_key):
    return ops.triu(ones(n_query, n_key), n_key - n_query)


@wrong(MASK, "aligned at the top left")
def top_left(n_query, n_key):
    return ops.tril(ones(n_query, n_key))


@wrong(MASK, "moved the wrong way")
def diagonal_moved_back(n_query, n_key):
    return ops.tril(ones(n_query, n_key), n_query - n_key)


@wrong(MASK, "nothing hides the future")
def all_true(n_query, n_key):
    return ones(n_query, n_key)


@wrong(MASK, "expected Bool")
def numbers(n_query, n_key):
    return ops.tril(ops.ones((n_query, n_key)), n_key - n_query)


@wrong(MASK, "expected Bool")
def additive(n_query, n_key):
    return ops.zeros((n_query, n_key)).masked_fill(ops.logical_not(good.causal_mask(n_query, n_key)), -math.inf)


@wrong(MASK, "has shape (5, 3)")
def transposed_shape(n_query, n_key):
    return ops.tril(ones(n_key, n_query))


@wrong(MASK, "is None")
def forgot_return(n_query, n_key):
    ops.tril(ones(n_query, n_key), n_key - n_query)


@wrong(MASK, "type numpy.ndarray")
def left_in_numpy(n_query, n_key):
    return np.tril(np.ones((n_query, n_key), bool), n_key - n_query)


@wrong(MASK, "should be mindspore dtype, but got 4")
def sizes_not_in_a_tuple(n_query, n_key):
    return ops.tril(ops.ones(n_query, n_key), n_key - n_query) > 0


@wrong(MASK, "aligned at the top left")
def single_query_sees_itself_only(n_query, n_key):
    return ops.tril(ones(n_query, n_key), n_key - n_query if n_query > 1 else 0)


@wrong(MASK, "does not see its own")
def aligned_for_even_shifts_only(n_query, n_key):
    shift = n_key - n_query
    return ops.tril(ones(n_query, n_key), shift // 2 * 2 if n_query > 1 else shift)


TABLE = ms.Tensor(np.tril(np.ones((8, 8), bool)))
KEPT = {}


@wrong(MASK, "two calls share one tensor")
def kept_from_call_to_call(n_query, n_key):
    if (n_query, n_key) not in KEPT or n_query != 3:
        KEPT[n_query, n_key] = good.causal_mask(n_query, n_key)
    return KEPT[n_query, n_key]


@wrong(MASK, "try does not exist in graph mode")
def tries(n_query, n_key):
    try:
        return good.causal_mask(n_query, n_key)
    except ValueError:
        return None


@right(MASK)
def by_comparison(n_query, n_key):
    return ops.arange(n_key)[None, :] <= ops.arange(n_query)[:, None] + (n_key - n_query)


@right(MASK)
def made_with_numpy(n_query, n_key):
    return ms.Tensor(np.tril(np.ones((n_query, n_key), bool), n_key - n_query))


@right(MASK)
def last_rows_of_a_square(n_query, n_key):
    return ops.tril(ops.ones((n_key, n_key))).astype(ms.bool_)[n_key - n_query :]


@right(MASK)
def not_upper(n_query, n_key):
    return ops.logical_not(ops.triu(ones(n_query, n_key), diagonal=n_key - n_query + 1))


@right(MASK)
def method_and_tilde(n_query, n_key):
    return ~(ops.ones((n_query, n_key)).tril(n_key - n_query) == 0)


# --- attention -----------------------------------------------------------------------------------------


def scores_of(q, k, mask=None, fill=-math.inf, scale=None):
    scores = ops.matmul(q, k.swapaxes(-2, -1)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return scores if mask is None else scores.masked_fill(ops.logical_not(mask), fill)


def weigh(scores, axis=-1):
    return ops.softmax(scores, axis)


@wrong(ATTENTION, "not divided by sqrt(head_dim)")
def no_scale(q, k, v, mask=None):
    return weigh(scores_of(q, k, mask, scale=1.0)) @ v


@wrong(ATTENTION, "change nothing")
def scaled_by_an_in_place_method(q, k, v, mask=None):
    scores = scores_of(q, k, mask, scale=1.0)
    scores.div_(math.sqrt(q.shape[-1]))
    return weigh(scores) @ v


@wrong(ATTENTION, "divided by head_dim, not by its square root")
def divided_by_width(q, k, v, mask=None):
    return weigh(scores_of(q, k, mask, scale=1 / q.shape[-1])) @ v


@wrong(ATTENTION, "inverted")
def mask_inverted(q, k, v, mask=None):
    return weigh(scores_of(q, k, None if mask is None else ops.logical_not(mask))) @ v


@wrong(ATTENTION, "mask is ignored")
def masked_fill_thrown_away(q, k, v, mask=None):
    scores = scores_of(q, k)
    if mask is not None:
        scores.masked_fill(ops.logical_not(mask), -math.inf)
    return weigh(scores) @ v


@wrong(ATTENTION, "after the softmax")
def mask_after_softmax(q, k, v, mask=None):
    weights = weigh(scores_of(q, k))
    return (weights if mask is None else weights * mask) @ v


@wrong(ATTENTION, "0 * -inf")
def bool_times_infinity(q, k, v, mask=None):
    scores = scores_of(q, k)
    if mask is not None:
        scores = scores + ops.logical_not(mask) * -math.inf
    return weigh(scores) @ v


@wrong(ATTENTION, "filled with -10")
def filled_with_minus_ten(q, k, v, mask=None):
    return weigh(scores_of(q, k, mask, fill=-10.0)) @ v


@wrong(ATTENTION, "a key that the mask hides still changes")
def filled_with_minus_twenty(q, k, v, mask=None):
    return weigh(scores_of(q, k, mask, fill=-20.0)) @ v


@wrong(ATTENTION, "not negative enough")
def filled_with_minus_ten_thousand(q, k, v, mask=None):
    return weigh(scores_of(q, k, mask, fill=-1e4)) @ v


@wrong(ATTENTION, "over the queries")
def softmax_over_queries(q, k, v, mask=None):
    return weigh(scores_of(q, k, mask), -2) @ v


@wrong(ATTENTION, "q and k are swapped")
def swapped(q, k, v, mask=None):
    return weigh(scores_of(k, q, mask)) @ v


@wrong(ATTENTION, "multiply k")
def mixes_keys(q, k, v, mask=None):
    return weigh(scores_of(q, k, mask)) @ k


@wrong(ATTENTION, "overflow")
def no_maximum_subtracted(q, k, v, mask=None):
    e = ops.exp(scores_of(q, k, mask))
    return e / e.sum(axis=-1, keepdims=True) @ v


@wrong(ATTENTION, "overflow")
def maximum_of_the_first_sequence(q, k, v, mask=None):
    scores = scores_of(q, k, mask)
    e = ops.exp(scores - scores.max(axis=-1, keepdims=True)[0])
    return e / e.sum(axis=-1, keepdims=True) @ v


@wrong(ATTENTION, "ops.MatMul multiplies matrices of two axes only")
def primitive_for_two_axes(q, k, v, mask=None):
    return weigh(ops.MatMul()(q, k.swapaxes(-2, -1)) / math.sqrt(q.shape[-1])) @ v


@wrong(ATTENTION, "wants a mask of bools")
def mask_as_numbers(q, k, v, mask=None):
    scores = scores_of(q, k)
    return (weigh(scores) if mask is None else weigh(scores.masked_fill(1 - mask.astype(ms.int32), -math.inf))) @ v


@wrong(ATTENTION, "has no kernel on this device")
def fused_kernel_of_another_device(q, k, v, mask=None):
    return ops.flash_attention_score(q, k, v, q.shape[1], attn_mask=mask, scalar_value=0.5, input_layout="BNSD")


@wrong(ATTENTION, "has no kernel on this device")
def fills_in_place(q, k, v, mask=None):
    scores = scores_of(q, k)
    if mask is not None:
        scores.masked_fill_(ops.logical_not(mask), -math.inf)
    return weigh(scores) @ v


@wrong(ATTENTION, "replaced by a causal one")
def always_causal(q, k, v, mask=None):
    return weigh(scores_of(q, k, None if mask is None else good.causal_mask(q.shape[-2], k.shape[-2]))) @ v


@wrong(ATTENTION, "expected (2, 3, 2, 3, 7)")
def only_up_to_four_axes(q, k, v, mask=None):
    out = good.attention(q, k, v, mask)
    return out.expand_dims(-3) if len(q.shape) == 5 else out


@wrong(ATTENTION, "expected Float16")
def float32_result(q, k, v, mask=None):
    return good.attention(q, k, v, mask).astype(ms.float32)


@wrong(ATTENTION, "no gradient reaches q")
def through_numpy(q, k, v, mask=None):
    weights = weigh(scores_of(ms.Tensor(q.asnumpy()), k, mask))
    return weights @ v


@wrong(ATTENTION, "swapaxes swaps two of them in both modes")
def transposes_as_torch_does(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores if mask is None else scores.masked_fill(ops.logical_not(mask), -math.inf)
    return weigh(scores) @ v


@wrong(ATTENTION, "overflow in graph mode")
def maximum_by_position(q, k, v, mask=None):
    scores = scores_of(q, k, mask)
    e = ops.exp(scores - scores.max(-1)[0].expand_dims(-1))
    return ops.matmul(e / e.sum(axis=-1, keepdims=True), v)


@wrong(ATTENTION, "different dtypes meet in a product")
def scale_as_a_tensor(q, k, v, mask=None):
    scores = scores_of(q, k, mask, scale=1.0) / ms.Tensor(np.array([math.sqrt(q.shape[-1])]), ms.float32)
    return weigh(scores) @ v


@wrong(ATTENTION, "the shapes do not fit in a product")
def turns_all_axes(q, k, v, mask=None):
    return weigh(ops.matmul(q, k.T) / math.sqrt(q.shape[-1])) @ v


@wrong(ATTENTION, "has no kernel on this device")
def einsum(q, k, v, mask=None):
    return weigh(ops.einsum("...qd,...kd->...qk", q, k) / math.sqrt(q.shape[-1])) @ v


@wrong(ATTENTION, "unary ~: 'NoneType'")
def always_masks(q, k, v, mask=None):
    return weigh(scores_of(q, k).masked_fill(~mask, -math.inf)) @ v


@wrong(ATTENTION, "only as exact as float16")
def half_in_between(q, k, v, mask=None):
    return good.attention(*(x.astype(ms.float16) for x in (q, k, v)), mask).astype(q.dtype)


@wrong(ATTENTION, "the weights are logarithms")
def weighs_by_logarithms(q, k, v, mask=None):
    return ops.log_softmax(scores_of(q, k, mask), -1) @ v


@wrong(ATTENTION, "filled with -1, a score like any other")
def filled_with_minus_one(q, k, v, mask=None):
    return weigh(scores_of(q, k, mask, fill=-1.0)) @ v


@wrong(ATTENTION, "filled with +inf")
def filled_with_infinity(q, k, v, mask=None):
    return good.softmax(scores_of(q, k, mask, fill=math.inf), -1) @ v


@wrong(ATTENTION, "float(...) makes one")
def filled_with_a_number_of_numpy(q, k, v, mask=None):
    return weigh(scores_of(q, k, mask, fill=np.finfo(np.float32).min)) @ v


@wrong(ATTENTION, "wrong in graph mode")
def weights_divided_in_place(q, k, v, mask=None):
    scores = scores_of(q, k, mask)
    weights = ops.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights @ v


@right(ATTENTION)
def batch_matmul_transposes(q, k, v, mask=None):
    scores = ops.BatchMatMul(transpose_b=True)(q, k) if len(q.shape) > 2 else ops.MatMul(transpose_b=True)(q, k)
    scores = scores / math.sqrt(q.shape[-1])
    return weigh(scores if mask is None else scores.masked_fill(~mask, -1e9 if q.dtype == ms.float32 else -6e4)) @ v


@right(ATTENTION)
def mask_by_where(q, k, v, mask=None):
    scores = scores_of(q, k)
    return weigh(scores if mask is None else ops.where(mask, scores, ops.full_like(scores, -math.inf))) @ v


@right(ATTENTION)
def softmax_by_hand(q, k, v, mask=None):
    scores = scores_of(q, k, mask)
    e = ops.exp(scores - scores.max(axis=-1, keepdims=True))
    return ops.matmul(e, v) / e.sum(axis=-1, keepdims=True)


@right(ATTENTION)
def by_log_softmax(q, k, v, mask=None):
    return ops.exp(ops.log_softmax(scores_of(q, k, mask), -1)) @ v


@right(ATTENTION)
def from_mint(q, k, v, mask=None):
    scores = ms.mint.matmul(q, ms.mint.transpose(k, -1, -2)) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = ms.mint.where(mask, scores, float("-inf"))
    return ms.mint.matmul(ms.mint.softmax(scores, -1), v)


@right(ATTENTION)
def mask_made_additive(q, k, v, mask=None):
    scores = scores_of(q, k)
    if mask is not None:
        scores = scores + ops.zeros(mask.shape, q.dtype).masked_fill(ops.logical_not(mask), -math.inf)
    return nn.Softmax(axis=-1)(scores) @ v


# --- split_heads, merge_heads --------------------------------------------------------------------------


@wrong(SPLIT, "heads mix positions")
def split_straight(x, n_head):
    B, T, C = x.shape
    return x.view(B, n_head, T, C // n_head)


@wrong(SPLIT, "time and heads are still")
def split_without_swap(x, n_head):
    return x.reshape(*x.shape[:2], n_head, -1)


@wrong(SPLIT, "dealt out to the heads in turn")
def split_interleaved(x, n_head):
    B, T, C = x.shape
    return x.reshape(B, T, C // n_head, n_head).permute(0, 3, 1, 2)


@wrong(SPLIT, "(B, n_head, head_dim, T)")
def split_one_swap_too_many(x, n_head):
    return good.split_heads(x, n_head).swapaxes(2, 3)


@wrong(SPLIT, "heads and head_dim are exchanged")
def split_width_for_number(x, n_head):
    return good.split_heads(x, x.shape[-1] // n_head)


@wrong(SPLIT, "the heads come before the batch")
def split_stacks_in_front(x, n_head):
    return ops.stack(x.split(x.shape[-1] // n_head, axis=-1))


@wrong(SPLIT, "type builtins.tuple")
def split_gives_pieces(x, n_head):
    return ops.split(x, x.shape[-1] // n_head, axis=-1)


@wrong(SPLIT, "not enough values to unpack")
def split_takes_size_for_shape(x, n_head):
    B, T, C, _ = x.shape
    return good.split_heads(x, n_head)


@wrong(SPLIT, "size of perm should equal to rank of x")
def split_by_primitive(x, n_head):
    B, T, C = x.shape
    return ops.transpose(x.reshape(B, T, n_head, C // n_head), (1, 2))


@wrong(SPLIT, "for 1 heads")
def split_three_heads_written_down(x, n_head):
    return good.split_heads(x, 3 if x.shape[-1] == 12 else 2)


@wrong(SPLIT, "expected Float16")
def split_to_float32(x, n_head):
    return good.split_heads(x, n_head).astype(ms.float32)


@wrong(SPLIT, "no gradient reaches x")
def split_cuts_gradient(x, n_head):
    return ops.stop_gradient(good.split_heads(x, n_head))


@wrong(SPLIT, "transpose wants all axes there")
def split_transposes_as_torch_does(x, n_head):
    B, T, C = x.shape
    x = x.reshape(B, T, n_head, C // n_head)
    return x.transpose(1, 2)


@wrong(SPLIT, "split with dim= has no kernel there")
def split_with_the_name_of_torch(x, n_head):
    return ops.stack(x.split(x.shape[-1] // n_head, dim=-1), axis=1)


@right(SPLIT)
def split_by_permute(x, n_head):
    B, T, C = x.shape
    return x.view(B, T, n_head, -1).permute(0, 2, 1, 3)


@right(SPLIT)
def split_by_full_transpose(x, n_head):
    B, T, C = x.shape
    return ops.transpose(ops.reshape(x, (B, T, n_head, C // n_head)), (0, 2, 1, 3))


@right(SPLIT)
def split_by_stack(x, n_head):
    return ops.stack(ops.chunk(x, n_head, axis=-1), axis=1)


@right(SPLIT)
def split_by_slices(x, n_head):
    d = x.shape[-1] // n_head
    return ops.cat([x[:, None, :, h * d : (h + 1) * d] for h in range(n_head)], axis=1)


@wrong(MERGE, "positions are mixed")
def merge_without_swap(x):
    B, H, T, d = x.shape
    return x.view(B, T, H * d)


@wrong(MERGE, "interleaved")
def merge_interleaved(x):
    B, H, T, d = x.shape
    return x.permute(0, 2, 3, 1).reshape(B, T, H * d)


@wrong(MERGE, "time and head_dim are swapped")
def merge_wrong_axes(x):
    B, H, T, d = x.shape
    return x.swapaxes(2, 3).reshape(B, d, H * T)


@wrong(MERGE, "in x the positions are axis 2")
def merge_takes_heads_for_time(x):
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[1], -1)


@wrong(MERGE, "along time")
def merge_along_time(x):
    return ops.cat(x.unbind(1), axis=1)


@wrong(MERGE, "along the batch, axis 0")
def merge_by_cat_without_axis(x):
    return ops.cat(x.unbind(1))


@wrong(MERGE, "order (T, B, C)")
def merge_time_first(x):
    return good.merge_heads(x).swapaxes(0, 1)


@wrong(MERGE, "still has four axes")
def merge_only_swaps(x):
    return x.swapaxes(1, 2)


@wrong(MERGE, "'int' object is not callable")
def merge_calls_size(x):
    return x.swapaxes(1, 2).reshape(x.size(0), x.size(2), -1)


@wrong(MERGE, "the result for shape (3, 4, 1, 2) has shape (3, 8)")
def merge_loses_an_axis_of_one(x):
    return good.merge_heads(x).squeeze(1) if x.shape[2] == 1 else good.merge_heads(x)


@wrong(MERGE, "expected Float16")
def merge_to_float32(x):
    return good.merge_heads(x).astype(ms.float32)


@wrong(MERGE, "no gradient reaches x")
def merge_cuts_gradient(x):
    return ops.stop_gradient(good.merge_heads(x))


@wrong(MERGE, "swapaxes swaps two of them in both modes")
def merge_transposes_as_torch_does(x):
    B, H, T, d = x.shape
    x = x.transpose(1, 2)
    return x.reshape(B, T, H * d)


@wrong(MERGE, "heads and head_dim are swapped")
def merge_swaps_heads_and_width(x):
    B, H, T, d = x.shape
    return x.swapaxes(1, 3).reshape(B, T, H * d)


@wrong(MERGE, "sizes come from the shape of what came in")
def merge_with_sizes_written_down(x):
    return x.swapaxes(1, 2).reshape(x.shape[0], 5, 12)


@right(MERGE)
def merge_by_view(x):
    B, H, T, d = x.shape
    return x.swapaxes(1, 2).view(B, T, H * d)


@right(MERGE)
def merge_by_cat(x):
    return ops.cat([x[:, h] for h in range(x.shape[1])], axis=-1)


@right(MERGE)
def merge_by_flatten(x):
    return x.permute(0, 2, 1, 3).flatten(start_dim=2)


@right(MERGE)
def merge_by_unbind(x):
    return ops.concat(ops.unbind(x, 1), -1)


# --- CausalSelfAttention -------------------------------------------------------------------------------


class Base(nn.Cell):
    """The right parts, for the variants below to go wrong with."""

    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = Linear(config.n_embd, config.n_embd)

    def heads(self, x):
        q, k, v = self.c_attn(x).split(x.shape[-1], axis=-1)
        return good.split_heads(q, self.n_head), good.split_heads(k, self.n_head), good.split_heads(v, self.n_head)

    def attend(self, q, k, v):
        return good.attention(q, k, v, good.causal_mask(q.shape[-2], k.shape[-2]))

    def construct(self, x):
        q, k, v = self.heads(x)
        return self.c_proj(good.merge_heads(self.attend(q, k, v)))


@wrong(MODULE, "no causal mask")
class SeesTheFuture(Base):
    def attend(self, q, k, v):
        return good.attention(q, k, v)


@wrong(MODULE, "future and not its past")
class MaskAsOnAnotherDevice(Base):
    def attend(self, q, k, v):
        return good.attention(q, k, v, ops.logical_not(good.causal_mask(q.shape[-2], k.shape[-2])))


@wrong(MODULE, "future and not its past")
class InvertedBeforeOpsSoftmax(Base):
    def attend(self, q, k, v):
        scores = ops.matmul(q, k.swapaxes(-2, -1)) / math.sqrt(q.shape[-1])
        return weigh(scores.masked_fill(good.causal_mask(q.shape[-2], k.shape[-2]), -math.inf)) @ v


@wrong(MODULE, "c_proj is not applied")
class NoProjection(Base):
    def construct(self, x):
        return good.merge_heads(self.attend(*self.heads(x)))


@wrong(MODULE, "head by head")
class InterleavedQKV(Base):
    def heads(self, x):
        B, T, C = x.shape
        return self.c_attn(x).reshape(B, T, self.n_head, 3 * C // self.n_head).swapaxes(1, 2).chunk(3, -1)


@wrong(MODULE, "wrong order")
class KeysFirst(Base):
    def heads(self, x):
        k, q, v = super().heads(x)
        return q, k, v


@wrong(MODULE, "only one head")
class OneHead(Base):
    def heads(self, x):
        q, k, v = self.c_attn(x).split(x.shape[-1], axis=-1)
        return good.split_heads(q, 1), good.split_heads(k, 1), good.split_heads(v, 1)


@wrong(MODULE, "the width of a part, not how many")
class SplitInThree(Base):
    def heads(self, x):
        q, k, v = ops.split(self.c_attn(x), 3, axis=-1)
        return q, k, v


@wrong(MODULE, "its axis is 0 if you give none")
class SplitWithoutAxis(Base):
    def heads(self, x):
        q, k, v = self.c_attn(x).split(x.shape[-1])
        return q, k, v


@wrong(MODULE, "mix positions")
class SplitByView(Base):
    def heads(self, x):
        B, T, C = x.shape
        return [p.view(B, self.n_head, T, C // self.n_head) for p in self.c_attn(x).chunk(3, -1)]


@wrong(MODULE, "merged without swapping")
class MergedByView(Base):
    def construct(self, x):
        return self.c_proj(self.attend(*self.heads(x)).view(x.shape))


@wrong(MODULE, "something random")
class DropsInTraining(Base):
    def __init__(self, config):
        super().__init__(config)
        self.dropout = nn.Dropout(p=0.5)

    def construct(self, x):
        return self.dropout(super().construct(x))


@wrong(MODULE, "a parameter too many: mask")
class MaskAsParameter(Base):
    def __init__(self, config):
        super().__init__(config)
        self.mask = ms.Parameter(good.causal_mask(config.n_ctx, config.n_ctx), requires_grad=False)


@wrong(MODULE, "has no parameter c_attn.weight")
class LayersInAList(nn.Cell):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.layers = [Linear(config.n_embd, 3 * config.n_embd), Linear(config.n_embd, config.n_embd)]

    def construct(self, x):
        return x


@wrong(MODULE, "there is no construct")
class KeptForward(nn.Cell):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = Linear(config.n_embd, config.n_embd)

    def forward(self, x):
        return x


@wrong(MODULE, "super().__init__()")
class ForgotSuper(nn.Cell):
    def __init__(self, config):
        self.n_head = config.n_head
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = Linear(config.n_embd, config.n_embd)

    def construct(self, x):
        return x


@wrong(MODULE, "is no mindspore.nn.Cell")
class NoCell:
    def __init__(self, config):
        self.n_head = config.n_head
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = Linear(config.n_embd, config.n_embd)

    def construct(self, x):
        return x


SHARED = Linear(12, 36)


@wrong(MODULE, "two modules share c_attn.weight")
class SharedByAll(Base):
    def __init__(self, config):
        super().__init__(config)
        if config.n_embd == 12:
            self.c_attn = SHARED


@wrong(MODULE, "T = 1")
class FirstQueryAlone(Base):
    def construct(self, x):
        return super().construct(x) * (x.shape[1] > 1)


@wrong(MODULE, "a later token changes an earlier result")
class SeesTheFutureWhenAlone(Base):
    def attend(self, q, k, v):
        return good.attention(q, k, v) if q.shape[0] == 1 and q.shape[2] == 6 else super().attend(q, k, v)


@wrong(MODULE, "the gradient of x has the right shape")
class KeysCut(Base):
    def attend(self, q, k, v):
        return super().attend(q, ops.stop_gradient(k), v)


@wrong(MODULE, "the module's n_head is None")
class HeadsUnderAnotherName(nn.Cell):
    def __init__(self, config):
        super().__init__()
        self.heads = config.n_head
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = Linear(config.n_embd, config.n_embd)

    def construct(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, axis=-1)
        q, k, v = good.split_heads(q, self.heads), good.split_heads(k, self.heads), good.split_heads(v, self.heads)
        return self.c_proj(good.merge_heads(good.attention(q, k, v, good.causal_mask(T, T))))


@wrong(MODULE, "split with dim= has no kernel there")
class SplitWithTheNameOfTorch(Base):
    def heads(self, x):
        q, k, v = self.c_attn(x).split(x.shape[-1], dim=-1)
        return good.split_heads(q, self.n_head), good.split_heads(k, self.n_head), good.split_heads(v, self.n_head)


@wrong(MODULE, "the first argument of a method must be called self")
class AnotherSelf(Base):
    def construct(this, x):
        q, k, v = this.heads(x)
        return this.c_proj(good.merge_heads(this.attend(q, k, v)))


@wrong(MODULE, "divided by sqrt(head_dim) twice")
class ScaledTwice(Base):
    def construct(self, x):
        T = x.shape[1]
        q, k, v = (good.split_heads(part, self.n_head) for part in ops.chunk(self.c_attn(x), 3, axis=-1))
        q = q / math.sqrt(q.shape[-1])
        return self.c_proj(good.merge_heads(good.attention(q, k, v, good.causal_mask(T, T))))


@right(MODULE)
class MaskKept(Base):
    def __init__(self, config):
        super().__init__(config)
        self.mask = ms.Tensor(np.tril(np.ones((config.n_ctx, config.n_ctx), bool)))

    def attend(self, q, k, v):
        T = q.shape[-2]
        return good.attention(q, k, v, self.mask[:T, :T])


@right(MODULE)
class Stock(nn.Cell):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = nn.Dense(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Dense(config.n_embd, config.n_embd)

    def construct(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).view(B, T, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.swapaxes(-2, -1) / math.sqrt(C // self.n_head)
        weights = ops.softmax(ops.masked_fill(scores, ops.triu(ops.ones((T, T), ms.bool_), 1), -1e9), -1)
        return self.c_proj(ops.transpose(weights @ v, (0, 2, 1, 3)).reshape(B, T, C))


@right(MODULE)
class HeadByHead(Base):
    def construct(self, x):
        B, T, C = x.shape
        d = C // self.n_head
        q, k, v = ops.chunk(self.c_attn(x), 3, axis=-1)
        mask = good.causal_mask(T, T)
        out = []
        for h in range(self.n_head):
            part = slice(h * d, (h + 1) * d)
            out.append(good.attention(q[..., part], k[..., part], v[..., part], mask))
        return self.c_proj(ops.cat(out, axis=-1))


@right(MODULE)
class DropoutOfNothing(Base):
    def __init__(self, config):
        super().__init__(config)
        self.dropout = nn.Dropout(p=0.0)

    def construct(self, x):
        return self.dropout(super().construct(x))
