import numpy as np
import torch

from tests.mistakes import right, wrong

AVERAGE = "pytorch.warmup.average_past"


@wrong(AVERAGE, "mean over all positions")
def mean_over_everything(x):
    return x.mean(dim=0, keepdim=True).repeat(x.shape[0], 1)


@wrong(AVERAGE, "is one vector")
def mean_of_all_as_one_vector(x):
    return x.mean(dim=0)


@wrong(AVERAGE, "a sum, not a mean")
def running_sum(x):
    return x.cumsum(dim=0)


@wrong(AVERAGE, "divided by T")
def divided_by_length(x):
    return x.cumsum(dim=0) / x.shape[0]


@wrong(AVERAGE, "divided by t; positions count from 0")
def divided_by_t(x):
    return x.cumsum(dim=0) / torch.arange(x.shape[0])[:, None]


@wrong(AVERAGE, "divided by t (by 1 for row 0)")
def divided_by_t_or_one(x):
    return torch.stack([x[: t + 1].sum(0) / max(t, 1) for t in range(len(x))])


@wrong(AVERAGE, "divided by t + 2")
def divided_by_one_too_many(x):
    return x.cumsum(dim=0) / torch.arange(2, x.shape[0] + 2)[:, None]


@wrong(AVERAGE, "number of channels")
def divided_by_channels(x):
    return x.cumsum(dim=0) / x.shape[1]


@wrong(AVERAGE, "over the future, not over the past")
def upper_triangle(x):
    weights = torch.ones(len(x), len(x)).triu()
    return weights / weights.sum(dim=1, keepdim=True) @ x


@wrong(AVERAGE, "transposed after")
def transposed_weights(x):
    weights = torch.ones(len(x), len(x)).tril()
    return (weights / weights.sum(dim=1, keepdim=True)).T @ x


@wrong(AVERAGE, "sums of their columns")
def normalised_by_columns(x):
    weights = torch.ones(len(x), len(x)).tril()
    return weights / weights.sum(dim=0, keepdim=True) @ x


@wrong(AVERAGE, "sums of their columns")
def broadcast_row_sums_without_keepdim(x):
    weights = torch.ones(len(x), len(x)).tril()
    return weights / weights.sum(dim=0) @ x


@wrong(AVERAGE, "leaves out its own position")
def without_itself_and_nan(x):
    weights = torch.ones(len(x), len(x)).tril(-1)
    return weights / weights.sum(dim=1, keepdim=True) @ x


@wrong(AVERAGE, "leaves out its own position")
def slice_stops_before_t(x):
    return torch.stack([x[:t].mean(dim=0) for t in range(len(x))])


@wrong(AVERAGE, "leaves out its own position")
def slice_stops_before_t_with_zeros(x):
    return torch.stack([x[:t].sum(dim=0) / max(t, 1) for t in range(len(x))])


@wrong(AVERAGE, "one position too far")
def one_too_far(x):
    return torch.stack([x[: t + 2].mean(dim=0) for t in range(len(x))])


@wrong(AVERAGE, "along the channels")
def cumulative_over_channels(x):
    return x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1)


@wrong(AVERAGE, "over the channels")
def mean_over_channels(x):
    return x.mean(dim=1, keepdim=True).repeat(1, x.shape[1])


@wrong(AVERAGE, "exp(0) is not 0")
def softmax_of_ones_and_zeros(x):
    return torch.ones(len(x), len(x)).tril().softmax(dim=-1) @ x


@wrong(AVERAGE, "fade")
def running_halves(x):
    rows = [x[0]]
    for t in range(1, len(x)):
        rows.append((rows[-1] + x[t]) / 2)
    return torch.stack(rows)


@wrong(AVERAGE, "only the last two positions")
def last_two(x):
    return torch.stack([x[max(0, t - 1) : t + 1].mean(dim=0) for t in range(len(x))])


@wrong(AVERAGE, "only the last three positions")
def last_three(x):
    return torch.stack([x[max(0, t - 2) : t + 1].mean(dim=0) for t in range(len(x))])


@wrong(AVERAGE, "over the channels too")
def one_mean_for_all_channels(x):
    return torch.stack([x[: t + 1].mean().expand(x.shape[1]) for t in range(len(x))])


@wrong(AVERAGE, "by the sum of them all")
def divided_by_the_whole_sum(x):
    weights = torch.ones(len(x), len(x)).tril()
    return weights / weights.sum() @ x


@wrong(AVERAGE, "x[t] / (t + 1)")
def no_sum(x):
    return x / torch.arange(1, len(x) + 1)[:, None]


@wrong(AVERAGE, "wrong order")
def filled_from_the_end(x):
    rows = []
    for t in range(len(x)):
        rows.insert(0, x[: t + 1].mean(dim=0))
    return torch.stack(rows)


@wrong(AVERAGE, "is transposed")
def transposed_result(x):
    return torch.stack([x[: t + 1].mean(dim=0) for t in range(len(x))], dim=1)


@wrong(AVERAGE, "is None")
def forgot_the_return(x):
    weights = torch.ones(len(x), len(x)).tril()
    weights / weights.sum(dim=1, keepdim=True) @ x


@wrong(AVERAGE, "of type list")
def list_of_rows(x):
    return [x[: t + 1].mean(dim=0) for t in range(len(x))]


@wrong(AVERAGE, "of type ndarray")
def numpy_array(x):
    return np.stack([x[: t + 1].numpy().mean(axis=0) for t in range(len(x))])


@wrong(AVERAGE, "changed in place")
def sums_in_place(x):
    for t in range(1, len(x)):
        x[t] += x[t - 1]
    return x / torch.arange(1, len(x) + 1)[:, None]


@wrong(AVERAGE, "has shape (4, 3)")
def first_row_missing(x):
    return torch.stack([x[: t + 1].mean(dim=0) for t in range(1, len(x))])


@wrong(AVERAGE, "T = 1, C = 4")
def five_positions_always(x):
    weights = torch.ones(5, 5).tril()
    return weights / weights.sum(dim=1, keepdim=True) @ x[:5] if len(x) == 5 else x.new_zeros(x.shape)


@wrong(AVERAGE, "T = 129")
def window_of_a_hundred(x):
    return torch.stack([x[max(0, t - 99) : t + 1].mean(dim=0) for t in range(len(x))])


@wrong(AVERAGE, "a later position changes an earlier")
def small_weights_in_the_future(x):
    weights = torch.ones(len(x), len(x)).tril().masked_fill(torch.ones(len(x), len(x)).triu(1) > 0, 1e-8)
    return (weights / weights.sum(dim=1, keepdim=True)) @ x


@wrong(AVERAGE, "a later position changes an earlier")
def total_minus_the_rest(x):
    rest = x.flip(0).cumsum(dim=0).flip(0) - x
    return (x.sum(dim=0) - rest) / torch.arange(1, len(x) + 1)[:, None]


@wrong(AVERAGE, "view")
def views_the_memory(x):
    return x.view(-1).view(x.shape).cumsum(dim=0) / torch.arange(1, len(x) + 1)[:, None]


@wrong(AVERAGE, "dtype torch.float32")
def always_float32(x):
    weights = torch.ones(len(x), len(x)).tril()
    return weights / weights.sum(dim=1, keepdim=True) @ x.float()


@wrong(AVERAGE, "float32")
def float32_in_between(x):
    weights = torch.ones(len(x), len(x)).tril()
    return (weights / weights.sum(dim=1, keepdim=True) @ x.float()).to(x.dtype)


@wrong(AVERAGE, "no gradient flows")
def cut_from_the_graph(x):
    return x.detach().cumsum(dim=0) / torch.arange(1, len(x) + 1)[:, None]


@wrong(AVERAGE, "the gradient of x")
def past_cut_from_the_graph(x):
    past = x.detach().cumsum(dim=0) - x.detach()
    return (past + x) / torch.arange(1, len(x) + 1)[:, None]


@wrong(AVERAGE, "made on the CPU")
def weights_on_the_cpu(x):
    weights = torch.ones(len(x), len(x), dtype=x.dtype).tril()
    return weights / weights.sum(dim=1, keepdim=True) @ x


@right(AVERAGE)
def by_cumsum(x):
    return x.cumsum(dim=0) / torch.arange(1, x.shape[0] + 1, dtype=x.dtype, device=x.device)[:, None]


@right(AVERAGE)
def by_a_loop(x):
    rows = []
    for t in range(x.shape[0]):
        rows.append(x[: t + 1].mean(dim=0))
    return torch.stack(rows)


@right(AVERAGE)
def filled_row_by_row(x):
    result = torch.empty_like(x)
    for t in range(len(x)):
        result[t] = sum(x[i] for i in range(t + 1)) / (t + 1)
    return result


@right(AVERAGE)
def by_masked_softmax(x):
    T = len(x)
    scores = torch.zeros(T, T, dtype=x.dtype, device=x.device)
    hidden = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(dim=-1) @ x


@right(AVERAGE)
def by_einsum_in_float64(x):
    t = torch.arange(len(x), device=x.device)
    weights = (t[None, :] <= t[:, None]).double() / (t[:, None] + 1)
    return torch.einsum("ts,sc->tc", weights, x.double()).to(x.dtype)


@right(AVERAGE)
def by_running_mean(x):
    mean = torch.zeros_like(x[0])
    rows = []
    for t in range(len(x)):
        mean = mean + (x[t] - mean) / (t + 1)
        rows.append(mean)
    return torch.stack(rows)


@wrong(AVERAGE, "have lost their axis")
def row_sums_without_keepdim(x):
    weights = torch.ones(len(x), len(x)).tril()
    return weights / weights.sum(dim=1) @ x


@wrong(AVERAGE, "one and the same tensor")
def one_sum_kept_in_every_row(x):
    total, rows = torch.zeros(x.shape[1]), []
    for row in x:
        total += row
        rows.append(total)
    return torch.stack(rows) / torch.arange(1, len(x) + 1)[:, None]


@right(AVERAGE)
def mean_moved_towards_each_row(x):
    mean, rows = x[0], [x[0]]
    for t in range(1, len(x)):
        mean = mean + (x[t] - mean) / (t + 1)
        rows.append(mean)
    return torch.stack(rows)
