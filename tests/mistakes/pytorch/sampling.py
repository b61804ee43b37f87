import math

import torch
import torch.nn.functional as F

from solutions.pytorch import sampling as good
from solutions.pytorch.attention import attention, causal_mask, merge_heads, split_heads
from solutions.pytorch.sampling import keep_top_k, keep_top_p, next_logits
from tests.mistakes import right, wrong

TOP_K = "pytorch.sampling.keep_top_k"
TOP_P = "pytorch.sampling.keep_top_p"
SAMPLE = "pytorch.sampling.sample"
CACHE = "pytorch.sampling.KVCache"

INF = math.inf

# --- keep_top_k ----------------------------------------------------------------------------------------


def bar(logits, k):
    return logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., -1:]


@wrong(TOP_K, "k-th token is dropped")
def drops_the_kth(logits, k):
    return logits.masked_fill(logits <= bar(logits, k), -INF)


@wrong(TOP_K, "k-th token is dropped")
def one_too_few(logits, k):
    return logits.masked_fill(logits < bar(logits, max(k - 1, 1)), -INF)


@wrong(TOP_K, "one token too many")
def one_too_many(logits, k):
    return keep_top_k(logits, k + 1)


@wrong(TOP_K, "one token too many")
def index_k_of_the_sorted(logits, k):
    k = min(k, logits.shape[-1] - 1)
    return logits.masked_fill(logits < logits.sort(dim=-1, descending=True).values[..., k : k + 1], -INF)


@wrong(TOP_K, "k smallest")
def sorted_the_wrong_way(logits, k):
    k = min(k, logits.shape[-1])
    return logits.masked_fill(logits > logits.sort(dim=-1).values[..., k - 1 : k], -INF)


@wrong(TOP_K, "inverted")
def fills_those_that_stay(logits, k):
    return logits.masked_fill(logits >= bar(logits, k), -INF)


@wrong(TOP_K, "only the likeliest")
def bar_is_the_largest(logits, k):
    return logits.masked_fill(logits < logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., :1], -INF)


@wrong(TOP_K, "nothing is removed")
def forgets_to_assign(logits, k):
    logits.masked_fill(logits < bar(logits, k), -INF)
    return logits


@wrong(TOP_K, "set to 0")
def fills_with_zero(logits, k):
    return logits.masked_fill(logits < bar(logits, k), 0.0)


@wrong(TOP_K, "set to 0")
def multiplies_with_the_mask(logits, k):
    return logits * (logits >= bar(logits, k))


@wrong(TOP_K, "0 times -inf")
def mask_times_infinity(logits, k):
    return logits + (logits < bar(logits, k)) * -INF


@wrong(TOP_K, "over the batch")
def over_the_batch(logits, k):
    if logits.dim() == 1:
        return keep_top_k(logits, k)
    return logits.masked_fill(logits < logits.topk(min(k, len(logits)), dim=0).values[-1:], -INF)


@wrong(TOP_K, "whole batch")
def over_everything(logits, k):
    return logits.masked_fill(logits < logits.flatten().topk(min(k, logits.numel())).values[-1], -INF)


@wrong(TOP_K, "one bar serves all rows")
def lowest_bar_for_all(logits, k):
    bar = logits.topk(min(k, logits.shape[-1]), dim=-1).values.min()
    return logits.masked_fill(logits < bar, -INF)


@wrong(TOP_K, "the highest")
def highest_bar_for_all(logits, k):
    bar = logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., -1].max()
    return logits.masked_fill(logits < bar, -INF)


@wrong(TOP_K, "k-th smallest logit")
def bar_from_below(logits, k):
    bar = logits.kthvalue(min(k, logits.shape[-1]), dim=-1, keepdim=True).values
    return logits.masked_fill(logits < bar, -INF)


@wrong(TOP_K, "one bar serves all rows")
def bar_of_the_first_row(logits, k):
    return logits.masked_fill(logits < bar(logits, k).flatten()[0], -INF)


@wrong(TOP_K, "taken for ranks")
def order_for_ranks(logits, k):
    return logits.masked_fill(logits.argsort(dim=-1, descending=True) >= k, -INF)


@wrong(TOP_K, "not what they were")
def largest_made_zero(logits, k):
    return keep_top_k(logits, k) - logits.amax(-1, keepdim=True)


@wrong(TOP_K, "probabilities")
def returns_probabilities(logits, k):
    return keep_top_k(logits, k).softmax(-1)


@wrong(TOP_K, "log probabilities")
def returns_log_probabilities(logits, k):
    return keep_top_k(logits, k).log_softmax(-1)


@wrong(TOP_K, "only the k logits")
def returns_the_k_values(logits, k):
    return logits.topk(k, dim=-1).values


@wrong(TOP_K, "numbers of the k likeliest")
def returns_the_k_indices(logits, k):
    return logits.topk(k, dim=-1).indices


@wrong(TOP_K, "sorted")
def returns_sorted(logits, k):
    values = logits.sort(dim=-1, descending=True).values.clone()
    values[..., k:] = -INF
    return values


@wrong(TOP_K, "a mask comes back")
def returns_the_mask(logits, k):
    return logits < bar(logits, k)


@wrong(TOP_K, "type topk")
def returns_the_pair(logits, k):
    return logits.topk(k, dim=-1)


@wrong(TOP_K, "is None")
def returns_nothing(logits, k):
    logits.masked_fill(logits < bar(logits, k), -INF)


@wrong(TOP_K, "changed in place")
def fills_in_place(logits, k):
    return logits.masked_fill_(logits < bar(logits, k), -INF)


@wrong(TOP_K, "k = 1 of 7")
def ignores_small_k(logits, k):
    return keep_top_k(logits, max(k, 2))


@wrong(TOP_K, "k = 5 of 7")
def at_most_four(logits, k):
    return keep_top_k(logits, k if k >= logits.shape[-1] else min(k, 4))


@wrong(TOP_K, "all tokens stay")
def k_not_limited(logits, k):
    return logits.masked_fill(logits < logits.topk(k, dim=-1).values[..., -1:], -INF)


@wrong(TOP_K, "all tokens stay")
def k_not_limited_when_sorted(logits, k):
    return logits.masked_fill(logits < logits.sort(dim=-1, descending=True).values[..., k - 1].unsqueeze(-1), -INF)


@wrong(TOP_K, "k = 6 of 5")
def limited_to_one_less(logits, k):
    V = logits.shape[-1]
    return keep_top_k(logits, k if k <= V else V - 1)


@wrong(TOP_K, "IndexError")
def two_axes_only(logits, k):
    return logits.masked_fill(logits < bar(logits, k)[:, -1:], -INF)


@wrong(TOP_K, "shape (2, 3, 6)")
def by_row_of_two_axes(logits, k):
    k = min(k, logits.shape[-1])
    threshold = logits.reshape(-1, logits.shape[-1]).topk(k, dim=-1).values[:, -1]
    shape = logits.shape[:1] if logits.dim() == 3 else logits.shape[:-1]
    return logits.masked_fill(logits < threshold[: shape.numel()].reshape(*shape, *[1] * (logits.dim() - len(shape))), -INF)


@wrong(TOP_K, "not negative enough")
def fills_with_minus_ten_thousand(logits, k):
    out = logits.masked_fill(logits < bar(logits, k), -1e4)
    return out if logits.min() < -5e4 else out.masked_fill(out == -1e4, -INF)


@wrong(TOP_K, "are -100, expected -inf")
def fills_with_minus_a_hundred(logits, k):
    return logits.masked_fill(logits < bar(logits, k), -100.0)


@wrong(TOP_K, "gives NaN")
def adds_a_difference(logits, k):
    return torch.where((logits - bar(logits, k)).nan_to_num(nan=-1) >= 0, logits, -INF) + 0 * logits


@wrong(TOP_K, "equal logits")
def below_the_next_larger(logits, k):
    """Drops all tokens at a tie, so that too few stay."""
    out = keep_top_k(logits, k)
    ties = (logits[..., None, :] == logits[..., :, None]).sum(-1) > 1
    return out.masked_fill(ties & logits.isfinite(), -INF)


@wrong(TOP_K, "float64")
def made_float32(logits, k):
    return keep_top_k(logits.float(), k)


@wrong(TOP_K, "made on the CPU")
def filler_from_the_cpu(logits, k):
    return torch.where(logits < bar(logits, k), torch.full(logits.shape, -INF, dtype=logits.dtype), logits)


@right(TOP_K)
def exactly_k(logits, k):
    k = min(k, logits.shape[-1])
    values, places = logits.topk(k, dim=-1)
    return torch.full_like(logits, -INF).scatter(-1, places, values)


@right(TOP_K)
def by_sorting(logits, k):
    k = min(k, logits.shape[-1])
    threshold = torch.sort(logits, dim=-1).values[..., -k].unsqueeze(-1)
    return torch.where(logits < threshold, torch.full_like(logits, -INF), logits)


@right(TOP_K)
def by_rank(logits, k):
    rank = logits.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    return logits.masked_fill(rank >= k, -INF)


@right(TOP_K)
def by_row(logits, k):
    out = logits.clone().reshape(-1, logits.shape[-1])
    for row in out:
        best = set(sorted(range(len(row)), key=lambda i: -row[i].item())[:k])
        for i in range(len(row)):
            if i not in best:
                row[i] = float("-inf")
    return out.reshape(logits.shape)


@right(TOP_K)
def filled_with_the_smallest_number(logits, k):
    if k >= logits.shape[-1]:
        return logits
    filler = -INF if logits.dtype == torch.float16 else torch.finfo(logits.dtype).min
    return logits.masked_fill(logits < bar(logits, k), filler)


@right(TOP_K)
def by_kthvalue(logits, k):
    V = logits.shape[-1]
    if k >= V:
        return logits.clone()
    out = logits.clone()
    out[logits < logits.double().kthvalue(V - k + 1, dim=-1, keepdim=True).values] = -INF
    return out


# --- keep_top_p ----------------------------------------------------------------------------------------


def ordered_sums(logits, descending=True):
    ordered, order = logits.sort(dim=-1, descending=descending)
    probs = ordered.softmax(-1)
    return ordered, order, probs, probs.cumsum(-1)


def back(order, ordered):
    return torch.empty_like(ordered).scatter(-1, order, ordered)


@wrong(TOP_P, "carries the sum past p")
def not_shifted(logits, p):
    ordered, order, _, sums = ordered_sums(logits)
    return back(order, ordered.masked_fill(sums > p, -INF))


@wrong(TOP_P, "carries the sum past p")
def not_shifted_at_equality(logits, p):
    ordered, order, _, sums = ordered_sums(logits)
    return back(order, ordered.masked_fill(sums >= p, -INF))


@wrong(TOP_P, "every token is removed")
def not_shifted_for_one_row(logits, p):
    return not_shifted(logits, p) if len(logits) == 1 else keep_top_p(logits, p)


@wrong(TOP_P, "one token too many")
def shifted_twice(logits, p):
    ordered, order, probs, sums = ordered_sums(logits)
    before = F.pad(sums, (2, 0))[..., :-2]
    return back(order, ordered.masked_fill(before >= p, -INF))


@wrong(TOP_P, "order of the vocabulary")
def not_sorted(logits, p):
    probs = logits.softmax(-1)
    return logits.masked_fill(probs.cumsum(-1) - probs >= p, -INF)


@wrong(TOP_P, "order of the vocabulary, and not shifted")
def not_sorted_not_shifted(logits, p):
    return logits.masked_fill(logits.softmax(-1).cumsum(-1) > p, -INF)


@wrong(TOP_P, "in sorted order")
def not_brought_back(logits, p):
    ordered, _, probs, sums = ordered_sums(logits)
    return ordered.masked_fill(sums - probs >= p, -INF)


@wrong(TOP_P, "mask is in sorted order")
def mask_not_brought_back(logits, p):
    _, _, probs, sums = ordered_sums(logits)
    return logits.masked_fill(sums - probs >= p, -INF)


@wrong(TOP_P, "read from there")
def gathered_for_scattered(logits, p):
    ordered, order, probs, sums = ordered_sums(logits)
    return ordered.masked_fill(sums - probs >= p, -INF).gather(-1, order)


@wrong(TOP_P, "mask goes back to the wrong places")
def mask_gathered(logits, p):
    _, order, probs, sums = ordered_sums(logits)
    return logits.masked_fill((sums - probs >= p).gather(-1, order), -INF)


@wrong(TOP_P, "descending order")
def ascending(logits, p):
    ordered, order, probs, sums = ordered_sums(logits, descending=False)
    return back(order, ordered.masked_fill(sums - probs >= p, -INF))


@wrong(TOP_P, "descending order")
def ascending_not_shifted(logits, p):
    ordered, order, probs, sums = ordered_sums(logits, descending=False)
    return back(order, ordered.masked_fill(sums > p, -INF))


@wrong(TOP_P, "inverted")
def removes_the_likeliest(logits, p):
    ordered, order, probs, sums = ordered_sums(logits)
    return back(order, ordered.masked_fill(sums - probs < p, -INF))


@wrong(TOP_P, "compared with p by itself")
def threshold_on_probabilities(logits, p):
    return logits.masked_fill(logits.softmax(-1) < p, -INF)


@wrong(TOP_P, "compared with 1 - p")
def threshold_on_the_rest(logits, p):
    return logits.masked_fill(logits.softmax(-1) < 1 - p, -INF)


@wrong(TOP_P, "share of the largest")
def min_p(logits, p):
    probs = logits.softmax(-1)
    return logits.masked_fill(probs < p * probs.amax(-1, keepdim=True), -INF)


@wrong(TOP_P, "reach 1 - p")
def rest_for_p(logits, p):
    return keep_top_p(logits, 1 - p)


@wrong(TOP_P, "logits are summed")
def sums_logits(logits, p):
    ordered, order = logits.sort(dim=-1, descending=True)
    return back(order, ordered.masked_fill(ordered.cumsum(-1) - ordered >= p, -INF))


@wrong(TOP_P, "set to 0")
def top_p_fills_with_zero(logits, p):
    out = keep_top_p(logits, p)
    return out.masked_fill(out == -INF, 0.0)


@wrong(TOP_P, "0 times -inf")
def top_p_mask_times_infinity(logits, p):
    return logits + (keep_top_p(logits, p) == -INF) * -INF


@wrong(TOP_P, "sum to 1 again")
def top_p_renormalised(logits, p):
    return keep_top_p(logits, p).softmax(-1)


@wrong(TOP_P, "the softmax comes later")
def top_p_probabilities(logits, p):
    return logits.softmax(-1) * (keep_top_p(logits, p) > -INF)


@wrong(TOP_P, "log probabilities")
def top_p_log_probabilities(logits, p):
    return keep_top_p(logits.log_softmax(-1), p)


@wrong(TOP_P, "over the batch (dim 0); each row must sum to 1")
def softmax_over_the_batch(logits, p):
    ordered, order = logits.sort(dim=-1, descending=True)
    probs = ordered.softmax(0)
    return back(order, ordered.masked_fill(probs.cumsum(-1) - probs >= p, -INF))


@wrong(TOP_P, "taken and summed over the batch")
def all_over_the_batch(logits, p):
    return keep_top_p(logits.T, p).T


@wrong(TOP_P, "whole batch is treated as one")
def flat_batch(logits, p):
    return keep_top_p(logits.flatten(), p).reshape(logits.shape)


@wrong(TOP_P, "first row decides")
def first_row_for_all(logits, p):
    return logits.masked_fill(keep_top_p(logits[:1], p) == -INF, -INF)


@wrong(TOP_P, "row that needs most")
def one_number_for_all_rows(logits, p):
    return keep_top_k(logits, int((keep_top_p(logits, p) > -INF).sum(-1).max()))


@wrong(TOP_P, "carries the sum past p")
def first_kept_but_not_shifted(logits, p):
    ordered, order, _, sums = ordered_sums(logits)
    removed = sums > p
    removed[..., 0] = False
    return back(order, ordered.masked_fill(removed, -INF))


@wrong(TOP_P, "logits that stay are not what they were")
def base_two(logits, p):
    return keep_top_p(logits * math.log(2), p)


@wrong(TOP_P, "a mask comes back")
def top_p_mask(logits, p):
    return keep_top_p(logits, p) == -INF


@wrong(TOP_P, "is None")
def top_p_nothing(logits, p):
    keep_top_p(logits, p)


@wrong(TOP_P, "type tuple")
def top_p_tuple(logits, p):
    return keep_top_p(logits, p), p


@wrong(TOP_P, "changed in place")
def top_p_in_place(logits, p):
    return logits.masked_fill_(keep_top_p(logits, p) == -INF, -INF)


@wrong(TOP_P, "p = 0.000001")
def at_least_two(logits, p):
    return torch.maximum(keep_top_p(logits, p), keep_top_k(logits, 2)) if p < 0.01 else keep_top_p(logits, p)


@wrong(TOP_P, "with p = 1 a token is missing")
def last_always_goes(logits, p):
    out = keep_top_p(logits, p)
    return keep_top_k(logits, logits.shape[-1] - 1) if p == 1 else out


@wrong(TOP_P, "p = 0.05")
def p_in_percent_below_a_tenth(logits, p):
    return keep_top_p(logits, min(10 * p, 1.0)) if 0.01 < p < 0.1 else keep_top_p(logits, p)


@wrong(TOP_P, "p = 0.95")
def p_capped(logits, p):
    return keep_top_p(logits, min(p, 0.9) if p < 1 else p)


@wrong(TOP_P, "IndexError")
def top_p_two_axes_only(logits, p):
    ordered, order, probs, sums = ordered_sums(logits)
    removed = sums > p
    removed[:, 1:] = removed[:, :-1].clone()
    removed[:, 0] = False
    return logits.masked_fill(torch.zeros_like(removed).scatter(-1, order, removed), -INF) if p < 1 else logits


@wrong(TOP_P, "exp overflows")
def top_p_overflows(logits, p):
    if p >= 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True)
    probs = ordered.exp() / ordered.exp().sum(-1, keepdim=True)
    return back(order, ordered.masked_fill(probs.cumsum(-1) - probs >= p, -INF))


@wrong(TOP_P, "exp is summed without a division")
def exp_not_divided(logits, p):
    ordered, order = logits.sort(dim=-1, descending=True)
    e = ordered.exp()
    return back(order, ordered.masked_fill(e.cumsum(-1) - e >= p, -INF))


@wrong(TOP_P, "not negative enough")
def top_p_minus_ten_thousand(logits, p):
    out = keep_top_p(logits, p)
    return out.masked_fill(out == -INF, -1e4) if logits.min() < -5e4 else out


@wrong(TOP_P, "gives NaN")
def top_p_nan_after_top_k(logits, p):
    if p >= 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True)
    probs = (ordered - ordered.amax(-1, keepdim=True)).exp()
    probs = probs / probs.sum(-1, keepdim=True)
    keep = (probs.cumsum(-1) - probs < p).to(ordered.dtype)
    return back(order, ordered * keep + torch.where(keep == 0, -INF, 0.0))


@wrong(TOP_P, "dtype torch.float32")
def top_p_float32(logits, p):
    return keep_top_p(logits.float(), p)


@wrong(TOP_P, "made on the CPU")
def top_p_cpu(logits, p):
    ordered, order, probs, sums = ordered_sums(logits)
    removed = torch.cat((torch.zeros(*logits.shape[:-1], 1), sums[..., :-1]), dim=-1) >= p
    return back(order, ordered.masked_fill(removed & (p < 1), -INF))


@right(TOP_P)
def shifted_by_assignment(logits, p):
    ordered, order = torch.sort(logits, descending=True)
    removed = torch.cumsum(F.softmax(ordered, dim=-1), dim=-1) > p
    removed[..., 1:] = removed[..., :-1].clone()
    removed[..., 0] = False
    removed = removed.scatter(-1, order, removed) & (p < 1)
    return logits.masked_fill(removed, -INF)


@right(TOP_P)
def from_the_least_likely(logits, p):
    if p >= 1:
        return logits.clone()
    ordered, order = torch.sort(logits.double(), descending=False)
    removed = ordered.softmax(-1).cumsum(-1) <= 1 - p
    removed[..., -1] = False
    return logits.masked_fill(torch.zeros_like(removed).scatter(-1, order, removed), -INF)


@right(TOP_P)
def strictly_greater(logits, p):
    ordered, order, probs, sums = ordered_sums(logits)
    places = order.argsort(-1)
    return ordered.masked_fill((sums - probs > p) & (p < 1), -INF).gather(-1, places)


@right(TOP_P)
def row_by_row(logits, p):
    out = torch.full_like(logits, -INF)
    flat, result = logits.reshape(-1, logits.shape[-1]), out.view(-1, logits.shape[-1])
    for row, target in zip(flat, result):
        probs = row.softmax(-1)
        total = 0.0
        for i in probs.argsort(descending=True):
            target[i] = row[i]
            total += probs[i].item()
            if total >= p and p < 1:
                break
    return out


@right(TOP_P)
def by_threshold(logits, p):
    ordered, _, probs, sums = ordered_sums(logits)
    n = (sums - probs < p).sum(-1, keepdim=True)
    return logits.masked_fill((logits < ordered.gather(-1, n - 1)) & (p < 1), torch.finfo(logits.dtype).min)


@right(TOP_P)
def by_comparing_all_pairs(logits, p):
    probs = logits.double().softmax(-1)
    likelier = probs[..., None, :] > probs[..., :, None]
    before = (probs[..., None, :] * likelier).sum(-1)
    return torch.where(before < p, logits, torch.full_like(logits, -INF))


# --- sample --------------------------------------------------------------------------------------------


def choose(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    logits = logits / temperature
    if top_k is not None:
        logits = keep_top_k(logits, top_k)
    if top_p is not None:
        logits = keep_top_p(logits, top_p)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)


def loop(pick=choose, crop=None, last=None, after=None, modes=True, grad=False, extra=0, before=None, store=None):
    """A sample function, right but for the parts that are given."""

    def sample(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
        was, prompt = model.training, idx
        if before is not None:
            before(model, cache)
        elif cache is not None:
            cache.reset()
        if modes:
            model.eval()
        for step in range(max_new_tokens + extra):
            with torch.set_grad_enabled(grad):
                if last is not None and cache is None:
                    logits = last(model(idx[:, -model.config.n_ctx :])[0])
                elif crop is not None and cache is None:
                    logits = model(crop(idx, model.config.n_ctx, prompt))[0][:, -1]
                else:
                    logits = next_logits(model, idx, cache)
            new = pick(logits, temperature, top_k, top_p, generator)
            idx = torch.cat((idx, new), dim=1) if store is None else store(idx, new)
        if modes:
            model.train(was)
        return idx if after is None else after(idx, prompt, max_new_tokens, model.config.n_ctx)

    return sample


def variant(exercise, says, name, function):
    function.__name__ = name
    wrong(exercise, says)(function)


for name, says, options in [
    ("returns_only_new_tokens", "only the new tokens", {"after": lambda idx, prompt, n, c: idx[:, prompt.shape[1] :]}),
    ("returns_only_the_last_token", "only the last token", {"after": lambda idx, prompt, n, c: idx[:, -1:]}),
    ("one_token_too_few", "one token too few", {"extra": -1}),
    ("one_token_more", "one token too many", {"extra": 1}),
    ("max_is_the_length", "to be ADDED", {"after": lambda idx, prompt, n, c: idx[:, : max(n, prompt.shape[1])]}),
    ("prompt_at_the_end", "before the prompt", {"store": lambda idx, new: torch.cat((idx[:, -5:], new), 1) if idx.shape[1] == 5 else torch.cat((idx, new), 1), "after": lambda idx, prompt, n, c: idx.roll(n, 1)}),
    ("returns_the_prompt", "nothing is added", {"after": lambda idx, prompt, n, c: prompt}),
    ("first_position", "first position", {"last": lambda logits: logits[:, 0]}),
    ("position_before_the_last", "before the last", {"last": lambda logits: logits[:, -2:][:, 0]}),
    ("mean_over_positions", "averaged or summed", {"last": lambda logits: logits.mean(1)}),
    ("sum_over_positions", "summed over the positions", {"last": lambda logits: logits.sum(1)}),
    ("all_positions_at_once", "RuntimeError", {"last": lambda logits: logits}),
    ("last_token_alone", "sees the last token alone", {"crop": lambda idx, c, prompt: idx[:, -1:]}),
    ("prompt_again_and_again", "sees the prompt alone", {"crop": lambda idx, c, prompt: prompt[:, -c:]}),
    ("crops_to_one_less", "n_ctx - 1", {"crop": lambda idx, c, prompt: idx[:, -c + 1 :]}),
    ("crops_to_the_first", "FIRST n_ctx", {"crop": lambda idx, c, prompt: idx[:, :c]}),
    ("does_not_crop", "n_ctx is 6", {"crop": lambda idx, c, prompt: idx}),
    ("crops_the_text", "returned text is cropped", {"after": lambda idx, prompt, n, c: idx[:, -c:]}),
    ("stops_at_n_ctx", "result for n_ctx = 6", {"after": lambda idx, prompt, n, c: idx[:, : max(c, prompt.shape[1])]}),
    ("float_tokens", "expected torch.int64", {"after": lambda idx, prompt, n, c: idx.float()}),
    ("int32_tokens", "expected torch.int64", {"after": lambda idx, prompt, n, c: idx.int()}),
    ("returns_a_list", "type list", {"after": lambda idx, prompt, n, c: idx.tolist()}),
    ("returns_none", "is None", {"after": lambda idx, prompt, n, c: None}),
    ("returns_one_row", "shape (13,)", {"after": lambda idx, prompt, n, c: idx[0]}),
    ("rows_as_the_first", "as the first row", {"pick": lambda logits, *rest: choose(logits[:1], *rest).expand(len(logits), 1)}),
    ("rows_in_reverse", "another row", {"pick": lambda logits, *rest: choose(logits.flip(0), *rest), "crop": None, "store": None}),
    ("greedy_always", "always taken; draw one", {"pick": lambda logits, *rest: logits.argmax(-1, keepdim=True)}),
    ("least_likely", "least likely", {"pick": lambda logits, *rest: logits.argmin(-1, keepdim=True)}),
    ("no_branch_for_zero", "temperature 0 raises RuntimeError", {"pick": lambda logits, t, k, p, g: torch.multinomial((logits / t).softmax(-1), 1, generator=g)}),
    ("zero_means_small", "still leaves something to chance", {"pick": lambda logits, t, k, p, g: choose(logits, t or 0.1, k, p, g)}),
    ("zero_means_one", "still leaves something to chance", {"pick": lambda logits, t, k, p, g: choose(logits, t or 1.0, k, p, g)}),
    ("zero_takes_least", "least likely token, expected", {"pick": lambda logits, t, k, p, g: logits.argmin(-1, keepdim=True) if t == 0 else choose(logits, t, k, p, g)}),
    ("temperature_multiplied", "multiplied by the temperature", {"pick": lambda logits, t, k, p, g: choose(logits, 1 / t if t else 0, k, p, g)}),
    ("temperature_ignored", "temperature has no effect", {"pick": lambda logits, t, k, p, g: choose(logits, t and 1, k, p, g)}),
    ("temperature_on_probabilities", "Dividing probabilities has none", {"pick": lambda logits, t, k, p, g: torch.multinomial(logits.softmax(-1) / t, 1, generator=g) if t and k is None and p is None else choose(logits, t, k, p, g)}),
    ("softmax_of_divided_probabilities", "softmax is taken twice", {"pick": lambda logits, t, k, p, g: choose(logits.softmax(-1), t, k, p, g) if logits.max() < 50 and t != 0 else choose(logits, t, k, p, g)}),
    ("temperature_twice", "applied twice", {"pick": lambda logits, t, k, p, g: choose(logits, t * t, k, p, g)}),
    ("root_of_temperature", "square root", {"pick": lambda logits, t, k, p, g: choose(logits, t**0.5, k, p, g)}),
    ("temperature_below_one_ignored", "temperature 0.5", {"pick": lambda logits, t, k, p, g: choose(logits, max(t, 1.0) if t else 0, k, p, g)}),
    ("multinomial_on_logits", "Is the softmax missing", {"pick": lambda logits, t, k, p, g: torch.multinomial(logits / t, 1, generator=g) if t and logits.min() >= 0 else choose(logits, t, k, p, g)}),
    ("softmax_over_rows", "others are drawn", {"pick": lambda logits, t, k, p, g: torch.multinomial((logits / t).softmax(0), 1, generator=g) if t else choose(logits, 0)}),
    ("softmax_over_many_rows", "drawn evenly", {"pick": lambda logits, t, k, p, g: torch.multinomial((logits / t).softmax(0), 1, generator=g) if t and len(logits) > 99 else choose(logits, t, k, p, g)}),
    ("same_draw_for_every_row", "every row gets the same token", {"pick": lambda logits, t, k, p, g: choose(logits[:1], t, k, p, g).expand(len(logits), 1) if len(logits) > 3 else choose(logits, t, k, p, g)}),
    ("one_number_for_all_rows", "share random numbers", {"pick": lambda logits, t, k, p, g: pairs(logits, t, k, p, g)}),
    ("step_seeded", "every step draws the same", {"pick": lambda logits, t, k, p, g: choose(logits, t, k, p, torch.Generator().manual_seed(0))}),
    ("top_k_ignored", "top_k has no effect", {"pick": lambda logits, t, k, p, g: choose(logits, t, None, p, g)}),
    ("top_k_one_more", "one token too many", {"pick": lambda logits, t, k, p, g: choose(logits, t, k and k + 1, p, g)}),
    ("top_k_one_less", "drops the k-th token", {"pick": lambda logits, t, k, p, g: choose(logits, t, k and max(k - 1, 1), p, g)}),
    ("top_k_forgets_temperature", "temperature has no effect", {"pick": lambda logits, t, k, p, g: choose(logits, t if k is None or t == 0 else 1.0, k, p, g)}),
    ("top_k_limited_badly", "RuntimeError", {"pick": lambda logits, t, k, p, g: choose(logits.masked_fill(logits < logits.topk(k).values[..., -1:], -INF) if k else logits, t, None, p, g)}),
    ("top_p_ignored", "top_p has no effect", {"pick": lambda logits, t, k, p, g: choose(logits, t, k, None, g)}),
    ("top_p_before_temperature", "before the temperature is applied", {"pick": lambda logits, t, k, p, g: choose(logits if p is None else keep_top_p(logits, p), t, k, None, g)}),
    ("top_p_forgets_temperature", "temperature has no effect", {"pick": lambda logits, t, k, p, g: choose(logits, t if p is None or t == 0 else 1.0, k, p, g)}),
    ("temperature_last", "before the temperature is applied", {"pick": lambda logits, t, k, p, g: choose(keep_top_p(keep_top_k(logits, k), p), t, None, None, g) if k and p and t else choose(logits, t, k, p, g)}),
    ("top_p_turned_round", "reaches 1 - p", {"pick": lambda logits, t, k, p, g: choose(logits, t, k, p and 1 - p, g)}),
    ("second_of_two_draws", "others are drawn", {"pick": lambda logits, t, k, p, g: torch.multinomial((logits / t if t else logits * 1e9).softmax(-1) + 1e-9, 2, generator=g)[:, 1:]}),
    ("temperature_subtracted", "temperature has no effect", {"pick": lambda logits, t, k, p, g: choose(logits - t, 1.0 if t else 0, k, p, g)}),
    ("either_or", "only top_k is applied", {"pick": lambda logits, t, k, p, g: choose(logits, t, k, None if k else p, g)}),
    ("top_p_wins", "only top_p is applied", {"pick": lambda logits, t, k, p, g: choose(logits, t, None if p else k, p, g)}),
    ("top_p_first", "before top_k", {"pick": lambda logits, t, k, p, g: choose(keep_top_p(logits / t, p), 1.0, k, None, g) if p and t else choose(logits, t, k, p, g)}),
    ("both_cancel", "neither top_k nor top_p", {"pick": lambda logits, t, k, p, g: choose(logits, t, None, None, g) if k and p else choose(logits, t, k, p, g)}),
    ("zero_for_removed", "are 0 and not -inf", {"pick": lambda logits, t, k, p, g: choose(zeros_for_removed(keep_top_k(logits / t, k)), 1.0, None, p, g) if k and t else choose(logits, t, k, p, g)}),
    ("generator_ignored", "another text each time", {"pick": lambda logits, t, k, p, g: choose(logits, t, k, p, None)}),
    ("stays_in_training_mode", "runs in training mode", {"modes": False}),
    ("graph_kept", "autograd records", {"grad": True}),
    ("cache_not_reset", "still holds", {"before": lambda model, cache: None}),
]:
    variant(SAMPLE, says, name, loop(**options))


def zeros_for_removed(logits):
    return logits.masked_fill(logits == -INF, 0.0)


def pairs(logits, t, k, p, g):
    if t == 0 or len(logits) != 50:
        return choose(logits, t, k, p, g)
    half = choose(logits[:25], t, k, p, g)
    return half.repeat_interleave(2, 0)


@wrong(SAMPLE, "changed in place")
def overwrites_the_prompt(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    out = good.sample(model, idx, max_new_tokens, temperature, top_k, top_p, generator, cache)
    idx[:] = out[:, -idx.shape[1] :]
    return out


@wrong(SAMPLE, "the loop stops when token 0 comes")
def stops_at_token_zero(model, idx, max_new_tokens, *options, **more):
    out = good.sample(model, idx, max_new_tokens, *options, **more)
    for t in range(idx.shape[1], out.shape[1]):
        if (out[:, t] == 0).all():
            return out[:, : t + 1]
    return out


@wrong(SAMPLE, "one token too many")
def at_least_one(model, idx, max_new_tokens, *options, **more):
    return good.sample(model, idx, max(max_new_tokens, 1), *options, **more)


@wrong(SAMPLE, "seeded anew, or copied")
def copies_the_generator(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    if generator is not None:
        generator = torch.Generator().manual_seed(generator.initial_seed())
    return good.sample(model, idx, max_new_tokens, temperature, top_k, top_p, generator, cache)


@wrong(SAMPLE, "changes the global random state")
def seeds_globally(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    if generator is not None:
        torch.manual_seed(torch.randint(2**31, (1,), generator=generator).item())
    return good.sample(model, idx, max_new_tokens, temperature, top_k, top_p, None, cache)


@wrong(SAMPLE, "every call gives the same text")
def fixed_seed_by_default(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    generator = generator or torch.Generator().manual_seed(42)
    return good.sample(model, idx, max_new_tokens, temperature, top_k, top_p, generator, cache)


@wrong(SAMPLE, "torch.manual_seed before the call must")
def fresh_entropy(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    if generator is None:
        generator = torch.Generator()
        generator.seed()
    return good.sample(model, idx, max_new_tokens, temperature, top_k, top_p, generator, cache)


@wrong(SAMPLE, "another generator seed gives the same text")
def generator_replaced(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    if generator is not None:
        generator = torch.Generator().manual_seed(0)
    return good.sample(model, idx, max_new_tokens, temperature, top_k, top_p, generator, cache)


@wrong(SAMPLE, "comes back in eval mode")
def stays_in_eval(model, idx, max_new_tokens, *options, **more):
    model.eval()
    return good.sample(model, idx, max_new_tokens, *options, **more)


@wrong(SAMPLE, "comes back in training mode")
def always_back_to_training(model, idx, max_new_tokens, *options, **more):
    out = good.sample(model, idx, max_new_tokens, *options, **more)
    model.train()
    return out


@wrong(SAMPLE, "gradients stay switched off")
def switches_gradients_off(model, idx, max_new_tokens, *options, **more):
    torch.set_grad_enabled(False)
    return good.sample(model, idx, max_new_tokens, *options, **more)


@wrong(SAMPLE, "cache is never used")
def ignores_the_cache(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    return good.sample(model, idx, max_new_tokens, temperature, top_k, top_p, generator)


@wrong(SAMPLE, "the arguments stand in another order")
def top_p_before_top_k(model, idx, max_new_tokens, temperature=1.0, top_p=None, top_k=None, generator=None, cache=None):
    return good.sample(model, idx, max_new_tokens, temperature, top_k, top_p, generator, cache)


@wrong(SAMPLE, "top_k has the default 50")
def fifty_by_default(model, idx, max_new_tokens, temperature=1.0, top_k=50, top_p=None, generator=None, cache=None):
    return good.sample(model, idx, max_new_tokens, temperature, top_k, top_p, generator, cache)


@wrong(SAMPLE, "it is reset before the first step, not after the last")
def resets_at_the_end(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    got = loop(before=lambda model, cache: None)(model, idx, max_new_tokens, temperature, top_k, top_p, generator, cache)
    if cache is not None:
        cache.reset()
    return got


@wrong(SAMPLE, "the cache is given up on the way")
def cache_for_the_prompt_only(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    first = good.sample(model, idx, min(max_new_tokens, 1), temperature, top_k, top_p, generator, cache)
    return good.sample(model, first, max_new_tokens - 1, temperature, top_k, top_p, generator) if max_new_tokens else first


@wrong(SAMPLE, "the cache never sees the prompt")
def prompt_not_fed(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    if cache is None:
        return good.sample(model, idx, max_new_tokens, temperature, top_k, top_p, generator)
    cache.reset()
    for _ in range(max_new_tokens):
        logits = cache.forward(idx[:, -1:])[:, -1]
        idx = torch.cat((idx, choose(logits, temperature, top_k, top_p, generator)), dim=1)
    return idx


@wrong(SAMPLE, "fed tokens that it already holds")
def feeds_everything_each_step(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    if cache is None:
        return good.sample(model, idx, max_new_tokens, temperature, top_k, top_p, generator)
    for _ in range(max_new_tokens):
        cache.reset()
        logits = cache.forward(idx[:, -model.config.n_ctx :])[:, -1]
        idx = torch.cat((idx, choose(logits, temperature, top_k, top_p, generator)), dim=1)
    return idx


@wrong(SAMPLE, "result with a cache")
def feeds_twice(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    if cache is None:
        return good.sample(model, idx, max_new_tokens, temperature, top_k, top_p, generator)
    new = idx
    for _ in range(max_new_tokens):
        logits = cache.forward(new)[:, 0]
        new = choose(logits, temperature, top_k, top_p, generator)
        idx = torch.cat((idx, new), dim=1)
    return idx


@wrong(SAMPLE, "n_ctx is 6")
def cache_past_n_ctx(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    if cache is None:
        return good.sample(model, idx, max_new_tokens, temperature, top_k, top_p, generator)
    cache.reset()
    for _ in range(max_new_tokens):
        logits = cache.forward(idx[:, cache.length :])[:, -1]
        idx = torch.cat((idx, choose(logits, temperature, top_k, top_p, generator)), dim=1)
    return idx


@right(SAMPLE)
@torch.no_grad()
def decorated(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    if cache:
        cache.reset()
    training = model.training
    model.eval()
    try:
        for _ in range(max_new_tokens):
            logits = next_logits(model, idx, cache)
            idx = torch.hstack([idx, choose(logits, temperature, top_k, top_p, generator)])
        return idx
    finally:
        model.train(training)


@right(SAMPLE)
def by_inverse_distribution(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    """One uniform number a row, and the token whose share of [0, 1) it falls into."""
    training = model.training
    model.train(False)
    if cache is not None:
        cache.reset()
    B, T = idx.shape
    out = torch.empty(B, T + max_new_tokens, dtype=torch.int64)
    out[:, :T] = idx
    with torch.inference_mode():
        for t in range(T, T + max_new_tokens):
            logits = next_logits(model, out[:, :t], cache).double()
            if temperature == 0:
                out[:, t] = logits.max(-1).indices
                continue
            logits = keep_top_k(logits / temperature, top_k or logits.shape[-1])
            sums = keep_top_p(logits, top_p or 1.0).softmax(-1).cumsum(-1)
            u = torch.rand(B, 1, generator=generator, dtype=torch.float64) * sums[:, -1:]
            out[:, t] = (sums <= u).sum(-1)
    model.train(training)
    return out


@right(SAMPLE)
def with_gumbel_noise(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    if cache is not None:
        cache.reset()
    modes = {m: m.training for m in model.modules()}
    model.eval()
    for _ in range(max_new_tokens):
        with torch.no_grad():
            logits = next_logits(model, idx, cache)
        if temperature > 0:
            logits = logits.double() / temperature
            logits = logits if top_k is None else keep_top_k(logits, top_k)
            logits = logits if top_p is None else keep_top_p(logits, top_p)
            u = torch.rand(logits.shape, generator=generator, dtype=torch.float64)
            logits = logits - (-u.log()).log()
        idx = torch.cat([idx, logits.argmax(-1)[:, None]], -1)
    for m, training in modes.items():
        m.training = training
    return idx


@right(SAMPLE)
def weights_need_not_sum_to_one(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    if cache is not None:
        cache.reset()
    was = model.training
    model.eval()
    tokens = [idx]
    for _ in range(max_new_tokens):
        with torch.no_grad():
            logits = next_logits(model, torch.cat(tokens, 1), cache)
        if temperature == 0:
            tokens.append(logits.argmax(-1, keepdim=True))
            continue
        logits = logits / temperature
        if top_k is not None:
            logits = logits.masked_fill(logits < logits.topk(min(top_k, logits.shape[-1])).values[:, -1:], -INF)
        if top_p is not None:
            logits = keep_top_p(logits, top_p)
        weights = (logits - logits.amax(-1, keepdim=True)).exp()
        tokens.append(torch.multinomial(weights, 1, replacement=True, generator=generator))
    model.train(was)
    return torch.cat(tokens, 1)


@right(SAMPLE)
def row_after_row(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    """Draws for each row in a loop, and filters in NumPy's way."""
    if cache is not None:
        cache.reset()
    was = model.training
    model.eval()
    for _ in range(max_new_tokens):
        with torch.no_grad():
            logits = next_logits(model, idx, cache)
        new = torch.stack([choose(row, temperature, top_k, top_p, generator) for row in logits])
        idx = torch.cat((idx, new), dim=1)
    model.train(was)
    return idx


# --- KVCache -------------------------------------------------------------------------------------------


class Base:
    """A right cache in small parts, for the variants below to go wrong with."""

    def __init__(self, model):
        self.model = model
        self.reset()

    def reset(self):
        self.length = 0
        self.keys = [None] * len(self.model.h)
        self.values = [None] * len(self.model.h)

    def append(self, layer, k, v):
        if self.keys[layer] is not None:
            k = torch.cat((self.keys[layer], k), dim=2)
            v = torch.cat((self.values[layer], v), dim=2)
        self.keys[layer], self.values[layer] = k, v
        return k, v

    def positions(self, T):
        return torch.arange(self.length, self.length + T)

    def mask(self, n_query, n_key):
        return causal_mask(n_query, n_key)

    def qkv(self, block, x):
        q, k, v = block.attn.c_attn(block.ln_1(x)).chunk(3, dim=-1)
        return [split_heads(p, block.attn.n_head) for p in (q, k, v)]

    def attend(self, q, k, v):
        return attention(q, k, v, self.mask(q.shape[2], k.shape[2]).to(q.device))

    def embed(self, idx):
        return self.model.wte(idx) + self.model.wpe(self.positions(idx.shape[1]).to(idx.device))

    def block(self, layer, block, x):
        q, k, v = self.qkv(block, x)
        k, v = self.append(layer, k, v)
        x = x + block.attn.c_proj(merge_heads(self.attend(q, k, v)))
        return x + block.mlp(block.ln_2(x))

    def room(self, T):
        if self.length + T > self.model.config.n_ctx:
            raise ValueError(f"{self.length + T} positions do not fit into n_ctx = {self.model.config.n_ctx}")

    def head(self, x):
        return self.model.ln_f(x) @ self.model.wte.weight.T

    @torch.no_grad()
    def forward(self, idx):
        self.room(idx.shape[1])
        x = self.embed(idx)
        for layer, block in enumerate(self.model.h):
            x = self.block(layer, block, x)
        self.length += idx.shape[1]
        return self.head(x)


@wrong(CACHE, "start again at 0")
class PositionsRestart(Base):
    def positions(self, T):
        return torch.arange(T)


@wrong(CACHE, "one too low")
class PositionsEarly(Base):
    def positions(self, T):
        return torch.arange(T) + max(self.length - 1, 0)


@wrong(CACHE, "one too high")
class PositionsLate(Base):
    def positions(self, T):
        return (torch.arange(T) + self.length + (self.length > 0)).clamp(max=10)


@wrong(CACHE, "same position")
class OnePositionForAll(Base):
    def positions(self, T):
        return torch.full((T,), self.length + T - 1)


@wrong(CACHE, "counts calls")
class PositionsByCalls(Base):
    calls = 0

    def reset(self):
        super().reset()
        self.calls = 0

    def positions(self, T):
        self.calls += 1
        return torch.arange(T) + self.calls - 1


@wrong(CACHE, "wpe are left out")
class NoPositions(Base):
    def embed(self, idx):
        return self.model.wte(idx)


@wrong(CACHE, "aligned at the top left")
class MaskTopLeft(Base):
    def mask(self, n_query, n_key):
        return torch.ones(n_query, n_key, dtype=torch.bool).tril()


@wrong(CACHE, "aligned at the top left")
class StockIsCausal(Base):
    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@wrong(CACHE, "nothing hides the future")
class NoMask(Base):
    def attend(self, q, k, v):
        return attention(q, k, v)


@wrong(CACHE, "nothing hides the future")
class NoMaskOnAFilledCache(Base):
    def attend(self, q, k, v):
        return super().attend(q, k, v) if q.shape[2] == k.shape[2] else attention(q, k, v)


@wrong(CACHE, "raise RuntimeError")
class MaskOfTheNewOnly(Base):
    def attend(self, q, k, v):
        return attention(q, k, v, causal_mask(q.shape[2], q.shape[2]))


@wrong(CACHE, "a token sees the one behind it")
class MaskOneAhead(Base):
    def mask(self, n_query, n_key):
        return torch.ones(n_query, n_key, dtype=torch.bool).tril(n_key - n_query + 1)


@wrong(CACHE, "one cache serves all layers")
class SharedByLayers(Base):
    def append(self, layer, k, v):
        return super().append(0, k, v)


@wrong(CACHE, "past is forgotten")
class StoresNothing(Base):
    def append(self, layer, k, v):
        return k, v


@wrong(CACHE, "past is forgotten")
class Overwrites(Base):
    def append(self, layer, k, v):
        self.keys[layer], self.values[layer] = k, v
        return k, v


@wrong(CACHE, "only the last call's")
class KeepsTheLastCall(Base):
    def append(self, layer, k, v):
        new = k, v
        k, v = super().append(layer, k, v)
        self.keys[layer], self.values[layer] = new
        return k, v


@wrong(CACHE, "values are not")
class ZerosForValues(Base):
    def append(self, layer, k, v):
        T = v.shape[2]
        k, v = super().append(layer, k, v)
        v = v.clone()
        v[:, :, :-T] = 0
        return k, v


@wrong(CACHE, "RuntimeError")
class CachesKeysOnly(Base):
    def append(self, layer, k, v):
        return super().append(layer, k, v)[0], v


@wrong(CACHE, "values stand in the place of the old keys")
class ValuesForKeys(Base):
    def append(self, layer, k, v):
        self.keys[layer] = self.values[layer]
        return super().append(layer, k, v)


@wrong(CACHE, "keys stand in the place of the old values")
class KeysForValues(Base):
    def append(self, layer, k, v):
        self.values[layer] = self.keys[layer]
        return super().append(layer, k, v)


@wrong(CACHE, "before the old ones")
class NewFirst(Base):
    def append(self, layer, k, v):
        if self.keys[layer] is not None:
            k = torch.cat((k, self.keys[layer]), dim=2)
            v = torch.cat((v, self.values[layer]), dim=2)
        self.keys[layer], self.values[layer] = k, v
        return k, v


def joined_along(axis):
    class Joined(Base):
        def append(self, layer, k, v):
            if self.keys[layer] is not None:
                k = torch.cat((self.keys[layer], k), dim=axis)
                v = torch.cat((self.values[layer], v), dim=axis)
            self.keys[layer], self.values[layer] = k, v
            return k, v

    return Joined


variant(CACHE, "RuntimeError", "JoinedAlongHeads", joined_along(1))
variant(CACHE, "RuntimeError", "JoinedAlongBatch", joined_along(0))
variant(CACHE, "RuntimeError", "JoinedAlongWidth", joined_along(3))


@wrong(CACHE, "wrong values")
class OneBufferOverwritten(Base):
    """What it stores are views of one buffer, which the next call writes over."""

    def append(self, layer, k, v):
        if self.keys[layer] is None:
            self.buffer = torch.zeros(2, *k.shape[:2], 12, k.shape[3])
            self.keys[layer] = self.values[layer] = self.buffer
        T, end = k.shape[2], self.length + k.shape[2]
        self.buffer[0, :, :, self.length : end] = k
        self.buffer[1, :, :, self.length : end] = v
        return self.buffer[0, :, :, :end], self.buffer[1, :, :, :end]


@wrong(CACHE, "ln_1 is left out")
class NoLn1(Base):
    def qkv(self, block, x):
        return [split_heads(p, block.attn.n_head) for p in block.attn.c_attn(x).chunk(3, dim=-1)]


@wrong(CACHE, "ln_2 stands where ln_1")
class Ln2ForLn1(Base):
    def qkv(self, block, x):
        return [split_heads(p, block.attn.n_head) for p in block.attn.c_attn(block.ln_2(x)).chunk(3, dim=-1)]


@wrong(CACHE, "q and k are swapped")
class KeysBeforeQueries(Base):
    def qkv(self, block, x):
        k, q, v = super().qkv(block, x)
        return q, k, v


@wrong(CACHE, "ln_2 is left out")
class NoLn2(Base):
    def block(self, layer, block, x):
        q, k, v = self.qkv(block, x)
        x = x + block.attn.c_proj(merge_heads(self.attend(q, *self.append(layer, k, v))))
        return x + block.mlp(x)


@wrong(CACHE, "MLP of the blocks is left out")
class NoMLP(Base):
    def block(self, layer, block, x):
        q, k, v = self.qkv(block, x)
        return x + block.attn.c_proj(merge_heads(self.attend(q, *self.append(layer, k, v))))


@wrong(CACHE, "c_proj is left out")
class NoProjection(Base):
    def block(self, layer, block, x):
        q, k, v = self.qkv(block, x)
        x = x + merge_heads(self.attend(q, *self.append(layer, k, v)))
        return x + block.mlp(block.ln_2(x))


@wrong(CACHE, "residual x + ... around the attention is missing")
class NoResidual(Base):
    def block(self, layer, block, x):
        q, k, v = self.qkv(block, x)
        x = block.attn.c_proj(merge_heads(self.attend(q, *self.append(layer, k, v))))
        return x + block.mlp(block.ln_2(x))


@wrong(CACHE, "residual adds the output of ln_1")
class ResidualOfLn1(Base):
    def block(self, layer, block, x):
        q, k, v = self.qkv(block, x)
        x = block.ln_1(x) + block.attn.c_proj(merge_heads(self.attend(q, *self.append(layer, k, v))))
        return x + block.mlp(block.ln_2(x))


@wrong(CACHE, "around the MLP is missing")
class NoMLPResidual(Base):
    def block(self, layer, block, x):
        q, k, v = self.qkv(block, x)
        x = x + block.attn.c_proj(merge_heads(self.attend(q, *self.append(layer, k, v))))
        return block.mlp(block.ln_2(x))


@wrong(CACHE, "both start from the input of the block")
class ParallelBlock(Base):
    def block(self, layer, block, x):
        q, k, v = self.qkv(block, x)
        return x + block.attn.c_proj(merge_heads(self.attend(q, *self.append(layer, k, v)))) + block.mlp(block.ln_2(x))


@wrong(CACHE, "the heads mix positions")
class SplitByReshape(Base):
    def qkv(self, block, x):
        B, T, C = x.shape
        return [p.reshape(B, block.attn.n_head, T, C // block.attn.n_head) for p in block.attn.c_attn(block.ln_1(x)).chunk(3, dim=-1)]


@wrong(CACHE, "only the first layer looks at the past")
class FirstLayerOnly(Base):
    def append(self, layer, k, v):
        return super().append(layer, k, v) if layer == 0 else (k, v)


@wrong(CACHE, "wrong way round")
class MaskUpsideDown(Base):
    def mask(self, n_query, n_key):
        return torch.ones(n_query, n_key, dtype=torch.bool).triu(n_key - n_query)


@wrong(CACHE, "the cache is damaged")
class LooksAfterTheFirstLayer(Base):
    def room(self, T):
        pass

    def positions(self, T):
        return super().positions(T).clamp(max=10)

    def append(self, layer, k, v):
        k, v = super().append(layer, k, v)
        super().room(k.shape[2] - self.length)
        return k, v


@wrong(CACHE, "in training mode")
class SwitchesToTraining(Base):
    def forward(self, idx):
        self.model.train()
        return super().forward(idx)


@wrong(CACHE, "merged without swapping")
class MergedByReshape(Base):
    def block(self, layer, block, x):
        q, k, v = self.qkv(block, x)
        x = x + block.attn.c_proj(self.attend(q, *self.append(layer, k, v)).reshape(x.shape))
        return x + block.mlp(block.ln_2(x))


@wrong(CACHE, "not divided by sqrt(head_dim)")
class NoScale(Base):
    def attend(self, q, k, v):
        return super().attend(q * math.sqrt(q.shape[-1]), k, v)


@wrong(CACHE, "ln_f is left out")
class NoLnF(Base):
    def head(self, x):
        return x @ self.model.wte.weight.T


@wrong(CACHE, "head is missing")
class NoHead(Base):
    def head(self, x):
        return self.model.ln_f(x)


@wrong(CACHE, "logits of one position")
class LastPositionOnly(Base):
    def head(self, x):
        return super().head(x[:, -1])


@wrong(CACHE, "gives a tuple")
class LogitsAndLoss(Base):
    def head(self, x):
        return super().head(x), None


@wrong(CACHE, "is None")
class NoReturn(Base):
    def head(self, x):
        return None


@wrong(CACHE, "no attribute length")
class NoLength(Base):
    @property
    def length(self):
        raise AttributeError("length")

    @length.setter
    def length(self, value):
        pass


@wrong(CACHE, "once in each layer")
class AdvancedInEachLayer(Base):
    def append(self, layer, k, v):
        if layer:
            self.length += k.shape[2]
        return super().append(layer, k, v)

    def room(self, T):
        pass


@wrong(CACHE, "advanced by 1")
class AdvancedByOne(Base):
    def forward(self, idx):
        before = self.length
        out = super().forward(idx)
        self.length = before + 1
        return out


@wrong(CACHE, "counts the last call only")
class LengthOfTheLastCall(Base):
    def forward(self, idx):
        out = super().forward(idx)
        self.length = idx.shape[1]
        return out


@wrong(CACHE, "is not advanced")
class LengthStaysZero(Base):
    def forward(self, idx):
        out = super().forward(idx)
        self.length = 0
        return out


@wrong(CACHE, "rows of the batch")
class LengthCountsRows(Base):
    def forward(self, idx):
        before = self.length
        out = super().forward(idx)
        self.length = before + idx.numel()
        return out


@wrong(CACHE, "raise RuntimeError")
class OneTokenOnTop(Base):
    """Right for a first call and for single tokens."""

    def attend(self, q, k, v):
        mask = causal_mask(q.shape[2], q.shape[2]) if q.shape[2] > 1 else None
        return attention(q, k, v, mask)


@wrong(CACHE, "aligned at the top left")
class TopLeftInChunksOnly(Base):
    def mask(self, n_query, n_key):
        return torch.ones(n_query, n_key, dtype=torch.bool).tril(0 if n_query > 1 else n_key - 1)


@wrong(CACHE, "something of the old prompt")
class ResetsLengthOnly(Base):
    def __init__(self, model):
        super().__init__(model)
        super().reset()

    def reset(self):
        if hasattr(self, "keys"):
            self.length = 0
        else:
            super().reset()


@wrong(CACHE, "after reset the length is")
class ResetsTensorsOnly(Base):
    length = 0

    def reset(self):
        self.keys = [None] * len(self.model.h)
        self.values = [None] * len(self.model.h)


@wrong(CACHE, "something of the old prompt")
class ResetsKeysOnly(Base):
    def __init__(self, model):
        super().__init__(model)
        super().reset()

    def reset(self):
        self.length, self.keys = 0, [None] * len(self.model.h)
        if not hasattr(self, "values"):
            self.values = [None] * len(self.model.h)

    def append(self, layer, k, v):
        if self.keys[layer] is None and self.values[layer] is not None and self.values[layer].shape[0] == v.shape[0]:
            v = self.values[layer][:, :, : v.shape[2]]
            self.values[layer] = None
        return super().append(layer, k, v)


@wrong(CACHE, "two caches disturb each other")
class ListsOfTheClass(Base):
    keys, values = [None] * 3, [None] * 3

    def reset(self):
        self.length = 0
        self.keys[:] = [None] * len(self.model.h)
        self.values[:] = [None] * len(self.model.h)


SHARED = {}


@wrong(CACHE, "two caches disturb each other")
class GlobalStore(Base):
    def reset(self):
        self.length = 0
        self.keys = SHARED.setdefault("keys", [None] * 9)
        self.values = SHARED.setdefault("values", [None] * 9)
        for i in range(9):
            self.keys[i] = self.values[i] = None


@wrong(CACHE, "raises IndexError")
class NoRoomCheck(Base):
    def room(self, T):
        pass


@wrong(CACHE, "says nothing")
class BareValueError(Base):
    def room(self, T):
        if self.length + T > self.model.config.n_ctx:
            raise ValueError


@wrong(CACHE, "raises AssertionError")
class Asserts(Base):
    def room(self, T):
        assert self.length + T <= self.model.config.n_ctx, "the cache is full"


@wrong(CACHE, "without a word")
class SlidesSilently(Base):
    def positions(self, T):
        return super().positions(T).clamp(max=10)

    def room(self, T):
        pass


@wrong(CACHE, "without a word")
class ResetsItselfWhenFull(Base):
    def room(self, T):
        if self.length + T > self.model.config.n_ctx:
            self.reset()

    def positions(self, T):
        return super().positions(T).clamp(max=10)


@wrong(CACHE, "before the cache is full")
class FullOneTooEarly(Base):
    def room(self, T):
        if self.length + T >= self.model.config.n_ctx:
            raise ValueError("the cache is full: reset it")


@wrong(CACHE, "look before you advance")
class AdvancesBeforeItLooks(Base):
    def room(self, T):
        if self.length + T > self.model.config.n_ctx:
            self.length += T
            raise ValueError("the cache is full: reset it")


@wrong(CACHE, "without a word")
class LooksAtNewTokensOnly(Base):
    def room(self, T):
        if T > self.model.config.n_ctx:
            raise ValueError(f"{T} tokens do not fit into n_ctx")

    def positions(self, T):
        return super().positions(T).clamp(max=10)


@wrong(CACHE, "run through the model again")
class KeepsTheText(Base):
    @torch.no_grad()
    def forward(self, idx):
        self.room(idx.shape[1])
        self.text = idx if self.length == 0 else torch.cat((self.text, idx), dim=1)
        self.length = self.text.shape[1]
        return self.model(self.text)[0][:, -idx.shape[1] :]


@wrong(CACHE, "autograd records")
class KeepsTheGraph(Base):
    forward = Base.forward.__wrapped__


@wrong(CACHE, "autograd records")
class DetachesTheResultOnly(Base):
    def forward(self, idx):
        return Base.forward.__wrapped__(self, idx).detach()


@wrong(CACHE, "gradients stay switched off")
class SwitchesGradientsOff(Base):
    def forward(self, idx):
        torch.set_grad_enabled(False)
        return Base.forward.__wrapped__(self, idx)


@wrong(CACHE, "is changed by the cache")
class ChangesTheModel(Base):
    @torch.no_grad()
    def forward(self, idx):
        out = super().forward(idx)
        self.model.ln_f.bias += 1e-3 if idx.shape == (2, 3) and self.length == 8 else 0
        return out


@wrong(CACHE, "share memory with the cache")
class OneBufferForLogits(Base):
    def forward(self, idx):
        out = super().forward(idx)
        if getattr(self, "out", None) is None or self.out.shape[0] != out.shape[0]:
            self.out = torch.empty(out.shape[0], 12, out.shape[2])
        self.out[:, : out.shape[1]] = out
        return self.out[:, : out.shape[1]] if out.shape[1] in (4, 1) and self.length in (4, 5) else out


@wrong(CACHE, "changed in place")
class ChangesIdx(Base):
    def forward(self, idx):
        out = super().forward(idx)
        idx.zero_()
        return out


@wrong(CACHE, "the logits for")
class ThreeHeadsWrittenDown(Base):
    def qkv(self, block, x):
        n_head = 3 if x.shape[-1] == 12 else 2
        return [split_heads(p, n_head) for p in block.attn.c_attn(block.ln_1(x)).chunk(3, dim=-1)]


@wrong(CACHE, "float64")
class Float32Buffers(Base):
    def append(self, layer, k, v):
        k, v = super().append(layer, k.float(), v.float())
        return k.to(self.model.wte.weight.dtype), v.to(self.model.wte.weight.dtype)


@wrong(CACHE, "made on the CPU")
class PositionsOnCPU(Base):
    def attend(self, q, k, v):
        return attention(q, k, v, self.mask(q.shape[2], k.shape[2]))


right(CACHE)(Base)


@right(CACHE)
class PlainTuples:
    """A list of pairs, stock attention, the first call as prefill."""

    def __init__(self, model):
        self.model, self.past = model, None

    def reset(self):
        self.past = None

    @property
    def length(self):
        return 0 if self.past is None else self.past[0][0].shape[2]

    @torch.inference_mode()
    def forward(self, idx):
        m = self.model
        start, T = self.length, idx.shape[1]
        if start + T > m.config.n_ctx:
            raise ValueError(f"only {m.config.n_ctx - start} more positions fit")
        x = m.wte.weight[idx] + m.wpe.weight[start : start + T]
        present = []
        for i, block in enumerate(m.h):
            H = block.attn.n_head
            q, k, v = block.attn.c_attn(block.ln_1(x)).unflatten(-1, (3, H, -1)).permute(2, 0, 3, 1, 4)
            if self.past is not None:
                k = torch.cat([self.past[i][0], k], -2)
                v = torch.cat([self.past[i][1], v], -2)
            present.append((k, v))
            mask = torch.arange(start + T, device=idx.device) <= torch.arange(start, start + T, device=idx.device)[:, None]
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + block.attn.c_proj(y.transpose(1, 2).flatten(2))
            x = x + block.mlp(block.ln_2(x))
        self.past = present
        return F.linear(m.ln_f(x), m.wte.weight)


@right(CACHE)
class OneTokenAtATime(Base):
    """Chunks are fed token by token: no mask is needed."""

    @torch.no_grad()
    def forward(self, idx):
        self.room(idx.shape[1])
        return torch.cat([self.one(idx[:, t : t + 1]) for t in range(idx.shape[1])], dim=1)

    def one(self, idx):
        x = self.embed(idx)
        for layer, block in enumerate(self.model.h):
            x = self.block(layer, block, x)
        self.length += 1
        return self.head(x)

    def attend(self, q, k, v):
        return attention(q, k, v)


@right(CACHE)
class CachesBeforeTheHeads(Base):
    """Keeps k and v as (B, T, C) and cuts them into heads at each call."""

    def block(self, layer, block, x):
        q, k, v = block.attn.c_attn(block.ln_1(x)).split(x.shape[-1], dim=-1)
        if self.keys[layer] is not None:
            k, v = torch.cat((self.keys[layer], k), 1), torch.cat((self.values[layer], v), 1)
        self.keys[layer], self.values[layer] = k, v
        q, k, v = (split_heads(p, block.attn.n_head) for p in (q, k, v))
        x = x + block.attn.c_proj(merge_heads(self.attend(q, k, v)))
        return x + block.mlp(block.ln_2(x))


@wrong(CACHE, "the length has become a tensor")
class CountsInATensor(Base):
    def forward(self, idx):
        logits = super().forward(idx)
        self.length = torch.tensor(self.length)
        return logits


@right(CACHE)
class BuffersOfFullLength(Base):
    """Keys beyond what is held are hidden by the mask."""

    def append(self, layer, k, v):
        B, H, T, d = k.shape
        if self.keys[layer] is None:
            self.keys[layer] = torch.zeros(B, H, self.model.config.n_ctx, d, dtype=k.dtype, device=k.device)
            self.values[layer] = torch.zeros_like(self.keys[layer])
        self.keys[layer][:, :, self.length : self.length + T] = k
        self.values[layer][:, :, self.length : self.length + T] = v
        return self.keys[layer], self.values[layer]

    def mask(self, n_query, n_key):
        return torch.ones(n_query, n_key, dtype=torch.bool).tril(self.length)


@right(CACHE)
class InADictionary(Base):
    def reset(self):
        self.length = 0
        self.store = {}

    def append(self, layer, k, v):
        old = self.store.get(layer)
        self.store[layer] = (k, v) if old is None else tuple(torch.cat(pair, 2) for pair in zip(old, (k, v)))
        return self.store[layer]
