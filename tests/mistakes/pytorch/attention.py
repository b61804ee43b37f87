import math

import torch
import torch.nn.functional as F
from torch import nn

from solutions.pytorch import attention as good
from solutions.pytorch.primitives import Linear
from tests.mistakes import right, wrong

MASK = "pytorch.attention.causal_mask"
ATTENTION = "pytorch.attention.attention"
SPLIT = "pytorch.attention.split_heads"
MERGE = "pytorch.attention.merge_heads"
MODULE = "pytorch.attention.CausalSelfAttention"

# --- causal_mask ---------------------------------------------------------------------------------------


@wrong(MASK, "shifted by one: a query does not see its own")
def strictly_below(n_query, n_key):
    return torch.ones(n_query, n_key, dtype=torch.bool).tril(n_key - n_query - 1)


@wrong(MASK, "shifted by one: query 0 attends to the key after")
def one_too_many(n_query, n_key):
    return torch.ones(n_query, n_key, dtype=torch.bool).tril(n_key - n_query + 1)


@wrong(MASK, "inverted")
def inverted(n_query, n_key):
    return torch.ones(n_query, n_key, dtype=torch.bool).triu(n_key - n_query + 1)


@wrong(MASK, "wrong way round")
def upper_with_diagonal(n_query, n_key):
    return torch.ones(n_query, n_key, dtype=torch.bool).triu(n_key - n_query)


@wrong(MASK, "aligned at the top left")
def top_left(n_query, n_key):
    return torch.ones(n_query, n_key, dtype=torch.bool).tril()


@wrong(MASK, "moved the wrong way")
def diagonal_moved_back(n_query, n_key):
    return torch.ones(n_query, n_key, dtype=torch.bool).tril(n_query - n_key)


@wrong(MASK, "nothing hides the future")
def all_true(n_query, n_key):
    return torch.ones(n_query, n_key, dtype=torch.bool)


@wrong(MASK, "expected torch.bool")
def numbers(n_query, n_key):
    return torch.ones(n_query, n_key).tril(n_key - n_query)


@wrong(MASK, "expected torch.bool")
def additive(n_query, n_key):
    return torch.full((n_query, n_key), -math.inf).triu(n_key - n_query + 1)


@wrong(MASK, "dtype torch.uint8")
def bytes_for_bools(n_query, n_key):
    return torch.ones(n_query, n_key, dtype=torch.uint8).tril(n_key - n_query)


@wrong(MASK, "has shape (5, 3)")
def transposed_shape(n_query, n_key):
    return torch.ones(n_key, n_query, dtype=torch.bool).tril()


@wrong(MASK, "is None")
def forgot_return(n_query, n_key):
    torch.ones(n_query, n_key, dtype=torch.bool).tril(n_key - n_query)


@wrong(MASK, "type list")
def nested_lists(n_query, n_key):
    return [[j <= i + n_key - n_query for j in range(n_key)] for i in range(n_query)]


@wrong(MASK, "aligned at the top left")
def single_query_sees_itself_only(n_query, n_key):
    if n_query == 1:
        return torch.arange(n_key)[None] == 0
    return torch.ones(n_query, n_key, dtype=torch.bool).tril(n_key - n_query)


@wrong(MASK, "does not see its own")
def aligned_for_even_shifts_only(n_query, n_key):
    shift = n_key - n_query
    return torch.ones(n_query, n_key, dtype=torch.bool).tril(shift // 2 * 2 if n_query > 1 else shift)


@wrong(MASK, "its own position alone")
def only_the_diagonal(n_query, n_key):
    return torch.arange(n_key)[None] == torch.arange(n_query)[:, None] + n_key - n_query


@wrong(MASK, "rows come in the wrong order")
def rows_reversed(n_query, n_key):
    return torch.ones(n_query, n_key, dtype=torch.bool).tril(n_key - n_query).flip(0)


@wrong(MASK, "(5, 5), expected (3, 5)")
def square_of_keys(n_query, n_key):
    return torch.ones(n_key, n_key, dtype=torch.bool).tril()


@wrong(MASK, "(1, 1, 4, 4), expected (4, 4)")
def axes_for_batch_and_heads(n_query, n_key):
    return torch.ones(1, 1, n_query, n_key, dtype=torch.bool).tril(n_key - n_query)


@wrong(MASK, "aligned at the top left")
def first_rows_of_a_square(n_query, n_key):
    return torch.ones(n_key, n_key, dtype=torch.bool).tril()[:n_query]


TABLE = torch.ones(8, 8, dtype=torch.bool).tril()


@wrong(MASK, "two calls share one tensor")
def view_of_a_table(n_query, n_key):
    return TABLE[n_key - n_query : n_key, :n_key]


CACHE = {}


@wrong(MASK, "two calls share one tensor")
def kept_from_call_to_call(n_query, n_key):
    if (n_query, n_key) not in CACHE or CACHE[n_query, n_key].sum() == 0 and n_query != 3:
        CACHE[n_query, n_key] = torch.ones(n_query, n_key, dtype=torch.bool).tril(n_key - n_query)
    return CACHE[n_query, n_key]


@right(MASK)
def by_comparison(n_query, n_key):
    return torch.arange(n_key)[None, :] <= torch.arange(n_query)[:, None] + (n_key - n_query)


@right(MASK)
def by_loops(n_query, n_key):
    mask = torch.zeros(n_query, n_key, dtype=torch.bool)
    for i in range(n_query):
        for j in range(n_key):
            mask[i, j] = j <= i + n_key - n_query
    return mask


@right(MASK)
def last_rows_of_a_square(n_query, n_key):
    return torch.tril(torch.ones(n_key, n_key)).bool()[n_key - n_query :]


@right(MASK)
def not_upper(n_query, n_key):
    return ~torch.triu(torch.ones(n_query, n_key, dtype=torch.bool), diagonal=n_key - n_query + 1)


@right(MASK)
def row_by_row(n_query, n_key):
    seen = range(n_key - n_query + 1, n_key + 1)
    return torch.stack([torch.cat([torch.ones(n), torch.zeros(n_key - n)]) for n in seen]).to(torch.bool)


@right(MASK)
def from_a_list(n_query, n_key):
    return torch.tensor([[j - i <= n_key - n_query for j in range(n_key)] for i in range(n_query)])


# --- attention -----------------------------------------------------------------------------------------


def scores_of(q, k, mask=None, fill=-math.inf, scale=None):
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return scores if mask is None else scores.masked_fill(~mask, fill)


@wrong(ATTENTION, "not divided by sqrt(head_dim)")
def no_scale(q, k, v, mask=None):
    return scores_of(q, k, mask, scale=1).softmax(-1) @ v


@wrong(ATTENTION, "multiplied by sqrt(head_dim)")
def multiplied(q, k, v, mask=None):
    return scores_of(q, k, mask, scale=q.shape[-1] ** 0.5).softmax(-1) @ v


@wrong(ATTENTION, "divided by head_dim, not by its square root")
def divided_by_width(q, k, v, mask=None):
    return scores_of(q, k, mask, scale=1 / q.shape[-1]).softmax(-1) @ v


@wrong(ATTENTION, "square root of the number of keys")
def divided_by_root_of_length(q, k, v, mask=None):
    return scores_of(q, k, mask, scale=k.shape[-2] ** -0.5).softmax(-1) @ v


@wrong(ATTENTION, "square root of v's width")
def divided_by_root_of_value_width(q, k, v, mask=None):
    return scores_of(q, k, mask, scale=v.shape[-1] ** -0.5).softmax(-1) @ v


@wrong(ATTENTION, "inverted")
def mask_inverted(q, k, v, mask=None):
    return scores_of(q, k, None if mask is None else ~mask).softmax(-1) @ v


@wrong(ATTENTION, "mask is ignored")
def mask_ignored(q, k, v, mask=None):
    return scores_of(q, k).softmax(-1) @ v


@wrong(ATTENTION, "after the softmax")
def mask_after_softmax(q, k, v, mask=None):
    weights = scores_of(q, k).softmax(-1)
    return (weights if mask is None else weights * mask) @ v


@wrong(ATTENTION, "0 * -inf")
def bool_times_infinity(q, k, v, mask=None):
    scores = scores_of(q, k)
    if mask is not None:
        scores = scores + ~mask * -math.inf
    return scores.softmax(-1) @ v


@wrong(ATTENTION, "filled with -10")
def filled_with_minus_ten(q, k, v, mask=None):
    return scores_of(q, k, mask, fill=-10.0).softmax(-1) @ v


@wrong(ATTENTION, "not negative enough")
def filled_with_minus_ten_thousand(q, k, v, mask=None):
    return scores_of(q, k, mask, fill=-1e4).softmax(-1) @ v


@wrong(ATTENTION, "a key that the mask hides still changes")
def filled_with_minus_twenty(q, k, v, mask=None):
    return scores_of(q, k, mask, fill=-20.0).softmax(-1) @ v


@wrong(ATTENTION, "exp(0) is not 0")
def filled_with_zero(q, k, v, mask=None):
    return scores_of(q, k, mask, fill=0.0).softmax(-1) @ v


@wrong(ATTENTION, "q and k are swapped")
def swapped(q, k, v, mask=None):
    return scores_of(k, q, mask).softmax(-1) @ v


@wrong(ATTENTION, "multiply k")
def mixes_keys(q, k, v, mask=None):
    return scores_of(q, k, mask).softmax(-1) @ k


@wrong(ATTENTION, "over the queries")
def softmax_over_queries(q, k, v, mask=None):
    return scores_of(q, k, mask).softmax(-2) @ v


@wrong(ATTENTION, "overflow")
def no_maximum_subtracted(q, k, v, mask=None):
    e = scores_of(q, k, mask).exp()
    return e / e.sum(-1, keepdim=True) @ v


@wrong(ATTENTION, "RuntimeError")
def transposes_everything(q, k, v, mask=None):
    return (q @ k.T / math.sqrt(q.shape[-1])).softmax(-1) @ v


@wrong(ATTENTION, "replaced by a causal one")
def always_causal(q, k, v, mask=None):
    if mask is None:
        return scores_of(q, k).softmax(-1) @ v
    return scores_of(q, k, good.causal_mask(q.shape[-2], k.shape[-2])).softmax(-1) @ v


@wrong(ATTENTION, "argument q is changed in place")
def scales_in_place(q, k, v, mask=None):
    q /= math.sqrt(q.shape[-1])
    return scores_of(q, k, mask, scale=1).softmax(-1) @ v


@wrong(ATTENTION, "float32")
def float32_inside(q, k, v, mask=None):
    return (scores_of(q.float(), k.float(), mask).softmax(-1) @ v.float()).to(q.dtype)


@wrong(ATTENTION, "expected torch.float64")
def float32_result(q, k, v, mask=None):
    return (scores_of(q, k, mask).softmax(-1) @ v).float()


@wrong(ATTENTION, "no gradient")
def gradient_cut(q, k, v, mask=None):
    return scores_of(q.detach(), k, mask).softmax(-1).detach() @ v.detach()


@wrong(ATTENTION, "no gradient reaches")
def weights_detached(q, k, v, mask=None):
    return scores_of(q, k, mask).softmax(-1).detach() @ v


@wrong(ATTENTION, "made on the CPU")
def adds_a_cpu_tensor(q, k, v, mask=None):
    if mask is not None:
        hidden = torch.zeros(mask.shape, dtype=q.dtype)
        return (scores_of(q, k, mask) + hidden).softmax(-1) @ v
    return scores_of(q, k).softmax(-1) @ v


@wrong(ATTENTION, "expected (2, 3, 2, 3, 7)")
def only_up_to_four_axes(q, k, v, mask=None):
    out = scores_of(q, k, mask).softmax(-1) @ v
    return out.unsqueeze(-3) if q.dim() == 5 else out


def softmax_by(weigh):
    """Attention with weigh(scores) in place of the softmax."""
    def variant(q, k, v, mask=None):
        return weigh(scores_of(q, k, mask)) @ v

    return variant


@wrong(ATTENTION, "runs over axis 0")
def softmax_over_batch(q, k, v, mask=None):
    return softmax_by(lambda s: s.softmax(0))(q, k, v, mask)


@wrong(ATTENTION, "runs over axis 1")
def softmax_over_heads(q, k, v, mask=None):
    return softmax_by(lambda s: s.softmax(1))(q, k, v, mask)


@wrong(ATTENTION, "sum below the fraction runs over all scores")
def one_sum_for_all_rows(q, k, v, mask=None):
    def weigh(scores):
        e = (scores - scores.amax(-1, keepdim=True)).exp()
        return e / e.sum()

    return softmax_by(weigh)(q, k, v, mask)


@wrong(ATTENTION, "all scores at once")
def softmax_over_everything(q, k, v, mask=None):
    return softmax_by(lambda s: s.flatten().softmax(0).view_as(s))(q, k, v, mask)


@wrong(ATTENTION, "a pair of q and k at once")
def softmax_over_the_matrix(q, k, v, mask=None):
    return softmax_by(lambda s: s.flatten(-2).softmax(-1).view_as(s))(q, k, v, mask)


@wrong(ATTENTION, "weights are transposed")
def weights_turned(q, k, v, mask=None):
    return softmax_by(lambda s: s.softmax(-1).transpose(-2, -1))(q, k, v, mask)


@wrong(ATTENTION, "something random")
def drops_weights(q, k, v, mask=None):
    return softmax_by(lambda s: F.dropout(s.softmax(-1), 0.1))(q, k, v, mask)


@wrong(ATTENTION, "8 = sqrt(64)")
def divides_by_eight(q, k, v, mask=None):
    return scores_of(q, k, mask, scale=1 / 8).softmax(-1) @ v


@wrong(ATTENTION, "square root of q.shape[1]")
def divides_by_axis_one(q, k, v, mask=None):
    return scores_of(q, k, mask, scale=q.shape[1] ** -0.5).softmax(-1) @ v


@wrong(ATTENTION, "filled with -inf after the softmax")
def fills_the_weights(q, k, v, mask=None):
    weights = scores_of(q, k).softmax(-1)
    return (weights if mask is None else weights.masked_fill(~mask, -math.inf)) @ v


@wrong(ATTENTION, "inverted")
def adds_to_what_may_be_seen(q, k, v, mask=None):
    scores = scores_of(q, k)
    return (scores if mask is None else scores + mask.float() * -1e9).softmax(-1) @ v


@wrong(ATTENTION, "inverted")
def inverted_and_nan_swept_away(q, k, v, mask=None):
    scores = scores_of(q, k)
    scores = scores if mask is None else torch.where(mask, -math.inf, scores)
    return torch.nan_to_num(scores.softmax(-1)) @ v


@wrong(ATTENTION, "filled with +inf")
def filled_with_plus_infinity(q, k, v, mask=None):
    return scores_of(q, k, mask, fill=math.inf).softmax(-1) @ v


@wrong(ATTENTION, "or to next to nothing as -1e-9 is")
def filled_with_a_slipped_exponent(q, k, v, mask=None):
    return scores_of(q, k, mask, fill=-1e-9).softmax(-1) @ v


@wrong(ATTENTION, "mask is ignored")
def masked_fill_thrown_away(q, k, v, mask=None):
    scores = scores_of(q, k)
    if mask is not None:
        scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1) @ v


@wrong(ATTENTION, "although none is given")
def causal_by_default(q, k, v, mask=None):
    if mask is None:
        mask = good.causal_mask(q.shape[-2], k.shape[-2])
    return scores_of(q, k, mask).softmax(-1) @ v


@wrong(ATTENTION, "expected (6, 4)")
def mask_for_four_axes(q, k, v, mask=None):
    return scores_of(q, k, None if mask is None else mask[None, None]).softmax(-1) @ v


@wrong(ATTENTION, "a key that the mask hides still changes")
def renormalised_after_softmax(q, k, v, mask=None):
    weights = scores_of(q, k).softmax(-1)
    if mask is not None:
        weights = weights * mask
        weights = weights / weights.sum(-1, keepdim=True)
    return weights @ v


@wrong(ATTENTION, "the argument mask is changed in place")
def turns_the_mask_in_place(q, k, v, mask=None):
    scores = scores_of(q, k)
    return (scores if mask is None else scores.masked_fill(mask.logical_not_(), -math.inf)).softmax(-1) @ v


@wrong(ATTENTION, "bad operand type for unary ~: 'NoneType'")
def always_masks(q, k, v, mask=None):
    return scores_of(q, k).masked_fill(~mask, -math.inf).softmax(-1) @ v


@wrong(ATTENTION, "ambiguous")
def asks_a_tensor_for_truth(q, k, v, mask=None):
    return scores_of(q, k, mask if mask else None).softmax(-1) @ v


@wrong(ATTENTION, "type tuple")
def weights_as_well(q, k, v, mask=None):
    weights = scores_of(q, k, mask).softmax(-1)
    return weights @ v, weights


@wrong(ATTENTION, "made on the CPU")
def full_mask_on_the_cpu(q, k, v, mask=None):
    if mask is None:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
    return scores_of(q, k, mask).softmax(-1) @ v


@right(ATTENTION)
def batches_made_flat(q, k, v, mask=None):
    lead, T_q, T_k = q.shape[:-2], q.shape[-2], k.shape[-2]
    flat = [x.reshape(-1, *x.shape[-2:]) for x in (q, k, v)]
    scores = torch.bmm(flat[0], flat[1].transpose(1, 2)).reshape(*lead, T_q, T_k) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -torch.inf)
    weights = scores.softmax(-1).reshape(-1, T_q, T_k)
    return torch.bmm(weights, flat[2]).reshape(*lead, T_q, v.shape[-1])


@right(ATTENTION)
def mask_made_additive(q, k, v, mask=None):
    scores = scores_of(q, k)
    if mask is not None:
        scores = scores + torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill(~mask, -math.inf)
    return scores.log_softmax(-1).exp() @ v


@right(ATTENTION)
def stock(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@right(ATTENTION)
def with_einsum(q, k, v, mask=None):
    scores = torch.einsum("...qd,...kd->...qk", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
    return torch.einsum("...qk,...kd->...qd", torch.softmax(scores, -1), v)


@right(ATTENTION)
def filled_with_minus_a_billion(q, k, v, mask=None):
    return scores_of(q, k, mask, fill=-1e9).softmax(-1) @ v


@right(ATTENTION)
def mask_after_softmax_then_normalised(q, k, v, mask=None):
    scores = scores_of(q, k)
    if mask is not None:
        scores = scores - scores.masked_fill(~mask, -math.inf).amax(-1, keepdim=True)
        e = torch.where(mask, scores, 0).exp() * mask
    else:
        e = (scores - scores.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True) @ v


@right(ATTENTION)
def in_float64(q, k, v, mask=None):
    return (scores_of(q.double(), k.double(), mask).softmax(-1) @ v.double()).to(q.dtype)


@right(ATTENTION)
def query_by_query(q, k, v, mask=None):
    rows = []
    for i in range(q.shape[-2]):
        scores = (q[..., i : i + 1, :] * k).sum(-1) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[..., i, :], -math.inf)
        rows.append((scores.softmax(-1)[..., None] * v).sum(-2))
    return torch.stack(rows, dim=-2)


@right(ATTENTION)
def normalised_last(q, k, v, mask=None):
    scores = scores_of(q, k, mask)
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return (e @ v) / e.sum(-1, keepdim=True)


# --- split_heads, merge_heads --------------------------------------------------------------------------


@wrong(SPLIT, "mix positions")
def view_without_transpose(x, n_head):
    B, T, C = x.shape
    return x.reshape(B, n_head, T, C // n_head)


@wrong(SPLIT, "(B, T, n_head, head_dim)")
def transpose_forgotten(x, n_head):
    B, T, C = x.shape
    return x.reshape(B, T, n_head, C // n_head)


@wrong(SPLIT, "dealt out to the heads in turn")
def interleaved_channels(x, n_head):
    B, T, C = x.shape
    return x.reshape(B, T, C // n_head, n_head).permute(0, 3, 1, 2)


@wrong(SPLIT, "last axes are swapped")
def head_dim_before_time(x, n_head):
    return good.split_heads(x, n_head).transpose(2, 3)


@wrong(SPLIT, "heads and head_dim are exchanged")
def number_for_width(x, n_head):
    return good.split_heads(x, x.shape[-1] // n_head)


@wrong(SPLIT, "before the batch")
def heads_first(x, n_head):
    return good.split_heads(x, n_head).transpose(0, 1)


@wrong(SPLIT, "wrong order")
def heads_reversed(x, n_head):
    return good.split_heads(x, n_head).flip(1)


@wrong(SPLIT, "type tuple")
def tuple_of_heads(x, n_head):
    return x.chunk(n_head, dim=-1)


@wrong(SPLIT, "heads")
def three_heads_only(x, n_head):
    B, T, C = x.shape
    return x.reshape(B, T, 3, C // 3).transpose(1, 2)


@wrong(SPLIT, "no gradient")
def split_cuts_gradient(x, n_head):
    return good.split_heads(x, n_head).detach()


@wrong(SPLIT, "order (n_head, T, B, head_dim)")
def split_swaps_batch(x, n_head):
    return x.reshape(*x.shape[:2], n_head, -1).transpose(0, 2)


@wrong(SPLIT, "order (B, T, head_dim, n_head)")
def split_stacks_behind(x, n_head):
    return torch.stack(x.chunk(n_head, dim=-1), dim=-1)


@wrong(SPLIT, "batch and heads are one axis")
def split_without_batch(x, n_head):
    return good.split_heads(x, n_head).flatten(0, 1)


@wrong(SPLIT, "batch and heads are one axis")
def split_straight_into_batch(x, n_head):
    B, T, C = x.shape
    return x.reshape(B * n_head, T, C // n_head)


@wrong(SPLIT, "heads and head_dim are exchanged")
def split_in_pieces_of_n_head(x, n_head):
    return torch.stack(x.split(n_head, dim=-1), dim=1)


@wrong(SPLIT, "dtype torch.float32, expected torch.float64")
def split_to_float32(x, n_head):
    return good.split_heads(x, n_head).float()


@wrong(SPLIT, "TypeError")
def split_divides_to_a_float(x, n_head):
    B, T, C = x.shape
    return x.view(B, T, n_head, C / n_head).transpose(1, 2)


@right(SPLIT)
def split_channel_by_channel(x, n_head):
    B, T, C = x.shape
    d = C // n_head
    out = x.new_empty(B, n_head, T, d)
    for c in range(C):
        out[:, c // d, :, c % d] = x[..., c]
    return out


@right(SPLIT)
def split_by_permute(x, n_head):
    B, T, C = x.shape
    return x.reshape(B, T, n_head, -1).permute(0, 2, 1, 3)


@right(SPLIT)
def split_by_stack(x, n_head):
    return torch.stack(torch.chunk(x, n_head, dim=-1), dim=1)


@right(SPLIT)
def split_by_unflatten(x, n_head):
    return x.unflatten(-1, (n_head, -1)).swapaxes(1, 2)


@right(SPLIT)
def split_by_slices(x, n_head):
    d = x.shape[-1] // n_head
    return torch.stack([x[:, :, h * d : (h + 1) * d] for h in range(n_head)], dim=1).contiguous()


@wrong(MERGE, "positions are mixed")
def merge_without_transpose(x):
    B, H, T, d = x.shape
    return x.reshape(B, T, H * d)


@wrong(MERGE, "interleaved")
def merge_interleaved(x):
    B, H, T, d = x.shape
    return x.permute(0, 2, 3, 1).reshape(B, T, H * d)


@wrong(MERGE, "time and head_dim are swapped")
def merge_wrong_axes(x):
    B, H, T, d = x.shape
    return x.transpose(2, 3).reshape(B, d, H * T)


@wrong(MERGE, "in x the positions are axis 2")
def merge_takes_heads_for_time(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1)


@wrong(MERGE, "along time")
def merge_along_time(x):
    return torch.cat(list(x.unbind(1)), dim=1)


@wrong(MERGE, "last two axes are swapped before")
def merge_swaps_the_last(x):
    return x.transpose(2, 3).reshape(x.shape[0], x.shape[2], -1)


@wrong(MERGE, "batch and time are swapped before")
def merge_swaps_batch_and_time(x):
    return x.transpose(0, 2).reshape(x.shape[0], x.shape[2], -1)


@wrong(MERGE, "only the first head")
def merge_keeps_the_first(x):
    return x[:, 0]


@wrong(MERGE, "time and channels are one axis")
def merge_flattens_too_much(x):
    return x.transpose(1, 2).flatten(1)


@wrong(MERGE, "everything is one axis")
def merge_flattens_all(x):
    return x.transpose(1, 2).flatten()


@wrong(MERGE, "order (T, B, C)")
def merge_time_first(x):
    return x.permute(2, 0, 1, 3).flatten(2)


@wrong(MERGE, "dtype torch.float32, expected torch.float64")
def merge_to_float32(x):
    return good.merge_heads(x).float()


@wrong(MERGE, "still has four axes")
def merge_only_transposes(x):
    return x.transpose(1, 2)


@wrong(MERGE, "added up")
def merge_by_sum(x):
    return x.sum(1)


@wrong(MERGE, "averaged")
def merge_by_mean(x):
    return x.mean(1)


@wrong(MERGE, "wrong order")
def merge_reversed(x):
    return good.merge_heads(x.flip(1))


@wrong(MERGE, "(B, C, T)")
def merge_channels_first(x):
    return good.merge_heads(x).transpose(1, 2)


@wrong(MERGE, "shape")
def merge_three_heads(x):
    return torch.cat([x[:, 0], x[:, min(1, x.shape[1] - 1)], x[:, min(2, x.shape[1] - 1)]], dim=-1)


@wrong(MERGE, "RuntimeError")
def merge_by_view(x):
    B, H, T, d = x.shape
    if x.is_contiguous():
        return good.merge_heads(x)
    return x.view(B, T, H * d)


@wrong(MERGE, "no gradient")
def merge_cuts_gradient(x):
    return good.merge_heads(x).detach()


@right(MERGE)
def merge_by_cat(x):
    return torch.cat([x[:, h] for h in range(x.shape[1])], dim=-1)


@right(MERGE)
def merge_by_permute(x):
    return x.permute(0, 2, 1, 3).contiguous().view(x.shape[0], x.shape[2], -1)


@right(MERGE)
def merge_by_flatten(x):
    return x.swapaxes(1, 2).flatten(2)


@right(MERGE)
def merge_by_einsum(x):
    return torch.einsum("bhtd->bthd", x).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


# --- CausalSelfAttention -------------------------------------------------------------------------------


class Base(nn.Module):
    """The right parts, for the variants below to go wrong with."""

    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = Linear(config.n_embd, config.n_embd)

    def heads(self, x):
        return [good.split_heads(p, self.n_head) for p in self.c_attn(x).chunk(3, dim=-1)]

    def attend(self, q, k, v):
        return good.attention(q, k, v, good.causal_mask(q.shape[-2], k.shape[-2]).to(q.device))

    def forward(self, x):
        return self.c_proj(good.merge_heads(self.attend(*self.heads(x))))


@wrong(MODULE, "no causal mask")
class SeesTheFuture(Base):
    def attend(self, q, k, v):
        return good.attention(q, k, v)


@wrong(MODULE, "c_proj is not applied")
class NoProjection(Base):
    def forward(self, x):
        return good.merge_heads(self.attend(*self.heads(x)))


@wrong(MODULE, "head by head")
class InterleavedQKV(Base):
    def heads(self, x):
        B, T, C = x.shape
        return self.c_attn(x).reshape(B, T, self.n_head, 3 * C // self.n_head).transpose(1, 2).chunk(3, dim=-1)


@wrong(MODULE, "wrong order")
class KeysFirst(Base):
    def heads(self, x):
        k, q, v = super().heads(x)
        return q, k, v


@wrong(MODULE, "wrong order")
class ValuesFirst(Base):
    def heads(self, x):
        v, q, k = super().heads(x)
        return q, k, v


@wrong(MODULE, "only one head")
class OneHead(Base):
    def __init__(self, config):
        super().__init__(config)
        self.n_head = 1


@wrong(MODULE, "sqrt(n_embd)")
class ScaledByWidth(Base):
    def attend(self, q, k, v):
        return super().attend(q / math.sqrt(self.n_head), k, v)


@wrong(MODULE, "mix positions")
class SplitByView(Base):
    def heads(self, x):
        B, T, C = x.shape
        return [p.reshape(B, self.n_head, T, C // self.n_head) for p in self.c_attn(x).chunk(3, dim=-1)]


@wrong(MODULE, "merged without swapping")
class MergedByView(Base):
    def forward(self, x):
        return self.c_proj(self.attend(*self.heads(x)).reshape(x.shape))


@wrong(MODULE, "differ")
class DropsAlways(Base):
    def forward(self, x):
        return F.dropout(super().forward(x), 0.0 if x.shape[1] in (1, 4, 7) or x.shape[0] == 1 else 1e-9) + 1e-9 * torch.randn_like(x)


@wrong(MODULE, "c_attn.weight has shape (12, 36)")
class WeightsTransposed(Base):
    def __init__(self, config):
        super().__init__(config)
        self.c_attn.weight = nn.Parameter(torch.randn(config.n_embd, 3 * config.n_embd))


@wrong(MODULE, "has no parameter c_attn.weight")
class ThreeProjections(Base):
    def __init__(self, config):
        super().__init__(config)
        del self.c_attn
        self.q, self.k, self.v = (Linear(config.n_embd, config.n_embd) for _ in range(3))


@wrong(MODULE, "has no parameter c_attn.bias")
class NoBias(Base):
    def __init__(self, config):
        super().__init__(config)
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd, bias=False)


@wrong(MODULE, "T = 1")
class FullSizeMask(Base):
    def attend(self, q, k, v):
        T = q.shape[-2]
        return good.attention(q, k, v, good.causal_mask(7, 7)[7 - T :, 7 - T :] if T == 5 else good.causal_mask(T, T) & (T != 1))


@wrong(MODULE, "4 heads of width 2")
class ThreeHeadsWrittenDown(Base):
    def heads(self, x):
        n_head = 3 if x.shape[-1] == 12 else 2
        return [good.split_heads(p, n_head) for p in self.c_attn(x).chunk(3, dim=-1)]


@wrong(MODULE, "a later token changes an earlier result")
class SeesTheFutureWhenAlone(Base):
    def attend(self, q, k, v):
        return good.attention(q, k, v) if q.shape[0] == 1 else super().attend(q, k, v)


@wrong(MODULE, "residual belongs to the block")
class AddsItsInput(Base):
    def forward(self, x):
        return x + super().forward(x)


@wrong(MODULE, "made on the CPU")
class MaskStaysOnCPU(Base):
    def attend(self, q, k, v):
        return good.attention(q, k, v, good.causal_mask(q.shape[-2], k.shape[-2]))


@wrong(MODULE, "the state dict holds mask")
class MaskInTheStateDict(Base):
    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("mask", torch.ones(config.n_ctx, config.n_ctx, dtype=torch.bool).tril())


@wrong(MODULE, "no gradient reaches c_attn")
class WeightsOutOfReach(Base):
    def heads(self, x):
        return [good.split_heads(p, self.n_head) for p in F.linear(x, self.c_attn.weight.data, self.c_attn.bias.data).chunk(3, dim=-1)]


def masked_by(mask):
    """Base with mask(T) in place of the causal one."""
    class Variant(Base):
        def attend(self, q, k, v):
            return good.attention(q, k, v, mask(q.shape[-2]).to(q.device))

    return Variant


def square(T):
    return torch.ones(T, T, dtype=torch.bool)


@wrong(MODULE, "future and not its past")
class MaskInverted(masked_by(lambda T: square(T).triu(1))):
    pass


@wrong(MODULE, "future and not its past")
class MaskUpper(masked_by(lambda T: square(T).triu())):
    pass


@wrong(MODULE, "hides each position from itself")
class MaskWithoutItself(masked_by(lambda T: square(T).tril(-1))):
    pass


@wrong(MODULE, "sees the one after it")
class MaskOneTooMany(masked_by(lambda T: square(T).tril(1))):
    pass


@wrong(MODULE, "after the softmax")
class MaskTooLate(Base):
    def attend(self, q, k, v):
        weights = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1)
        return weights * square(q.shape[-2]).tril() @ v


@wrong(MODULE, "n_head and head_dim are exchanged")
class WidthForNumber(Base):
    def heads(self, x):
        return [good.split_heads(p, x.shape[-1] // self.n_head) for p in self.c_attn(x).chunk(3, dim=-1)]


@wrong(MODULE, "a head for each channel")
class HeadPerChannel(Base):
    def heads(self, x):
        return [good.split_heads(p, x.shape[-1]) for p in self.c_attn(x).chunk(3, dim=-1)]


@wrong(MODULE, "batch and time are swapped")
class TimeFirst(Base):
    def forward(self, x):
        return super().forward(x.transpose(0, 1)).transpose(0, 1)


@wrong(MODULE, "not transposed")
class ProjectionNotTransposed(Base):
    def forward(self, x):
        return good.merge_heads(self.attend(*self.heads(x))) @ self.c_proj.weight + self.c_proj.bias


@wrong(MODULE, "applied twice")
class ProjectedTwice(Base):
    def forward(self, x):
        return self.c_proj(super().forward(x))


@wrong(MODULE, "bias of c_proj")
class ProjectionWithoutBias(Base):
    def forward(self, x):
        return super().forward(x) - self.c_proj.bias


@wrong(MODULE, "positions see their future")
class SeesTheFutureInEval(Base):
    def attend(self, q, k, v):
        return super().attend(q, k, v) if self.training else good.attention(q, k, v)


@wrong(MODULE, "something random")
class NewProjectionInForward(Base):
    def forward(self, x):
        self.c_proj = Linear(x.shape[-1], x.shape[-1])
        return super().forward(x)


@wrong(MODULE, "something random")
class DropsInTraining(Base):
    def __init__(self, config):
        super().__init__(config)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return self.dropout(super().forward(x))


@wrong(MODULE, "argument x is changed in place")
class ChangesItsInput(Base):
    def forward(self, x):
        x += 1
        return super().forward(x)


SHARED = Linear(12, 36)


@wrong(MODULE, "two modules share c_attn.weight")
class SharedByAll(Base):
    def __init__(self, config):
        super().__init__(config)
        if config.n_embd == 12:
            self.c_attn = SHARED


@wrong(MODULE, "super().__init__()")
class ForgotSuper(nn.Module):
    def __init__(self, config):
        self.n_head = config.n_head
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = Linear(config.n_embd, config.n_embd)

    forward = Base.forward


@wrong(MODULE, "is no nn.Module")
class NoModule:
    def __init__(self, config):
        self.n_head = config.n_head
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = Linear(config.n_embd, config.n_embd)

    heads, attend, forward = Base.heads, Base.attend, Base.forward


@wrong(MODULE, "has no parameter c_attn.weight")
class LayersInAList(Base):
    def __init__(self, config):
        super().__init__(config)
        self.layers = [self.c_attn, self.c_proj]
        del self.c_attn, self.c_proj


@wrong(MODULE, "no gradient reaches x")
class InputDetached(Base):
    def forward(self, x):
        return super().forward(x.detach())


@wrong(MODULE, "the gradient of c_attn.weight")
class KeysDetached(Base):
    def attend(self, q, k, v):
        return super().attend(q, k.detach(), v)


@wrong(MODULE, "the module's n_head is None")
class HeadsUnderAnotherName(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.n_head
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = Linear(config.n_embd, config.n_embd)

    def forward(self, x):
        q, k, v = (good.split_heads(p, self.heads) for p in self.c_attn(x).chunk(3, dim=-1))
        mask = good.causal_mask(x.shape[1], x.shape[1]).to(x.device)
        return self.c_proj(good.merge_heads(good.attention(q, k, v, mask)))


@wrong(MODULE, "size of tensor a (7)")
class MaskOfContextSize(Base):
    def __init__(self, config):
        super().__init__(config)
        self.mask = good.causal_mask(config.n_ctx, config.n_ctx)

    def attend(self, q, k, v):
        return good.attention(q, k, v, self.mask)


@right(MODULE)
class PositionByPosition(Base):
    def forward(self, x):
        T, d = x.shape[1], x.shape[2] // self.n_head
        q, k, v = (p.unflatten(-1, (self.n_head, d)) for p in self.c_attn(x).tensor_split(3, -1))   # (B, T, n_head, d)
        out = []
        for t in range(T):
            weights = ((q[:, t : t + 1] * k[:, : t + 1]).sum(-1) / math.sqrt(d)).softmax(1)         # (B, t + 1, n_head)
            out.append((weights[..., None] * v[:, : t + 1]).sum(1).flatten(1))
        return self.c_proj(torch.stack(out, 1))


class Stock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).view(B, T, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


right(MODULE)(Stock)


@right(MODULE)
class HeadByHead(Base):
    def forward(self, x):
        B, T, C = x.shape
        d = C // self.n_head
        q, k, v = self.c_attn(x).split(C, dim=-1)
        mask = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        out = []
        for h in range(self.n_head):
            part = slice(h * d, (h + 1) * d)
            scores = (q[..., part] @ k[..., part].transpose(-2, -1)) / d**0.5
            out.append(scores.masked_fill(~mask, -math.inf).softmax(-1) @ v[..., part])
        return self.c_proj(torch.cat(out, dim=-1))


@right(MODULE)
class MaskAsBuffer(Base):
    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("mask", torch.ones(config.n_ctx, config.n_ctx, dtype=torch.bool).tril(), persistent=False)

    def attend(self, q, k, v):
        T = q.shape[-2]
        return good.attention(q, k, v, self.mask[:T, :T])


@right(MODULE)
class DropoutOfNothing(Base):
    def __init__(self, config):
        super().__init__(config)
        self.dropout = nn.Dropout(0.0)

    def forward(self, x):
        return self.dropout(super().forward(x))
