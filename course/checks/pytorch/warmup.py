"""Checks of lesson 00: averages over the past. The oracle is NumPy's cumsum in float64."""
import numpy as np
import torch

from course.checks import checks
from course.checks.pytorch import call, close, equal, fail, gradients_close, is_tensor, keeps_device, rand

AVERAGE = "pytorch.warmup.average_past"


def expected(x):
    sums = np.cumsum(x.double().numpy(), axis=0)
    return torch.from_numpy(sums / np.arange(1, len(x) + 1)[:, None]).to(x.dtype)


def weighted(weights, x):
    return (weights.double() @ x.double()).to(x.dtype)


def mistakes(x):
    """What common mistakes give for x."""
    T, C = x.shape
    past = torch.ones(T, T).tril()
    steps = torch.arange(1, T + 1)[:, None]
    own = past / steps
    strict = torch.ones(T, T).tril(-1)
    before = strict / strict.sum(dim=1, keepdim=True)
    one_more = torch.ones(T, T).tril(1)
    halved = torch.zeros_like(x)
    for t in range(T):
        halved[t] = x[t] if t == 0 else (halved[t - 1] + x[t]) / 2
    pair = torch.cat([x[:1], (x[1:] + x[:-1]) / 2])
    shifted = torch.cat([torch.zeros_like(x[:1]), expected(x)[:-1]])
    return [
        ("every row is the mean over all positions: the result at t must not use anything after t.", x.mean(dim=0).expand(T, C)),
        ("each row is a sum, not a mean: row t adds up t + 1 vectors and must be divided by their number.", weighted(past, x)),
        ("each row is divided by T; row t holds t + 1 vectors.", weighted(past / T, x)),
        ("each row is divided by t; positions count from 0, so row t holds t + 1 vectors.", weighted(past, x) / (steps - 1)),
        ("each row is divided by t + 2; row t holds t + 1 vectors.", weighted(past, x) / (steps + 1)),
        ("each row is divided by the number of channels; row t holds t + 1 vectors.", weighted(past / C, x)),
        ("each row is divided by t (by 1 for row 0); row t holds t + 1 vectors.", weighted(past, x) / (steps - 1).clamp(min=1)),
        ("the averages run over the future, not over the past: the triangle is the wrong way round.", weighted(past.T / past.T.sum(dim=1, keepdim=True), x)),
        ("the averages run over the future: the weights are transposed after they were made.", weighted(own.T, x)),
        ("the weights are divided by the sums of their columns; each row must sum to 1.", weighted(past / past.sum(dim=0, keepdim=True), x)),
        ("the sums of the rows have lost their axis: without keepdim=True the sum of row i divides column i.", weighted(past / past.sum(dim=1), x)),
        ("every row holds the sum over all positions: += changes a tensor in place, and all the rows you kept are one and the same tensor.", x.sum(dim=0) / steps),
        ("every row holds the sum over all positions: += changes a tensor in place, and all the rows you kept are one and the same tensor.", x.sum(dim=0).expand(T, C)),
        ("row t leaves out its own position: the mean runs from 0 to t, and t belongs to it.", weighted(before, x)),
        ("row t leaves out its own position: the mean runs from 0 to t, and t belongs to it.", weighted(before.nan_to_num(0), x)),
        ("row t leaves out its own position: the mean runs from 0 to t, and t belongs to it.", shifted),
        ("row t leaves out its own position: the mean runs from 0 to t, and t belongs to it.", torch.cat([x[:1], expected(x)[:-1]])),
        ("row t leaves out its own position: the sum stops before t and is divided by t + 1.", weighted(strict / steps, x)),
        ("row t looks one position too far: it uses x[t + 1].", weighted(one_more / one_more.sum(dim=1, keepdim=True), x)),
        ("the mean runs along the channels; it must run along time, the first axis.", torch.cumsum(x, 1) / torch.arange(1, C + 1)),
        ("the mean runs over the channels; it must run along time, the first axis.", x.mean(dim=1, keepdim=True).expand(T, C)),
        ("hidden weights are 0 before a softmax, and exp(0) is not 0: the future still gets weight.", weighted(past.softmax(dim=-1), x)),
        ("old positions fade: each row is the mean of the row before and x[t], and all positions must count the same.", halved),
        ("only the last two positions count; the mean runs over all from 0 to t.", pair),
        ("only the last three positions count; the mean runs over all from 0 to t.", torch.stack([x[max(0, t - 2) : t + 1].mean(dim=0) for t in range(T)])),
        ("the mean runs over the channels too: each channel keeps a mean of its own.", torch.stack([x[: t + 1].mean() for t in range(T)])[:, None].expand(T, C)),
        ("the weights are divided by the sum of them all; each row is divided by its own sum.", weighted(past / past.sum(), x)),
        ("the result is x itself.", x),
        ("the averages stand in the wrong order: the first row of the result belongs to position 0.", expected(x).flip(0)),
        ("only position 0 enters: every row is a multiple of x[0].", x[:1] / steps),
        ("only position 0 enters: every row is x[0].", x[:1].expand(T, C)),
        ("each row holds x[t] / (t + 1): the earlier positions are missing from the sum.", x / steps),
        ("row t is a median or a middle position, not a mean.", torch.stack([x[: t + 1].median(dim=0).values for t in range(T)])),
        ("row t is the largest value so far, not the mean.", torch.cummax(x, 0).values),
    ]


@checks(AVERAGE, "values")
def values(average_past):
    x = rand(5, 3, seed=1)
    got = call(average_past, x)
    want = expected(x)
    if isinstance(got, torch.Tensor) and got.shape == (3, 5) and equal(got, want.T, 1e-5):
        fail("the result is transposed: (C, T), expected (T, C).")
    if isinstance(got, torch.Tensor) and got.shape == (3,):
        fail("the result is one vector; every position t needs its own average.", example="x of shape (5, 3) gives a result of shape (5, 3)")
    close(got, want, 2e-6, known=mistakes(x), look="row 0, which must equal x[0], and row 1, the mean of x[0] and x[1]")


@checks(AVERAGE, "other shapes")
def other_shapes(average_past):
    for T, C in [(1, 4), (3, 7), (6, 6), (40, 1), (129, 2)]:
        x = rand(T, C, seed=T)
        close(call(average_past, x), expected(x), 5e-6, name=f"the result for T = {T}, C = {C}", known=mistakes(x) if T < 7 else (), look="sizes that are written as numbers: take them from x.shape")


@checks(AVERAGE, "the future has no influence")
def future_has_no_influence(average_past):
    x = rand(6, 3, seed=2)
    changed = x.clone()
    changed[4:] = 1e7
    moved = (average_past(changed) - average_past(x))[:4].abs().max().item()
    if not moved == 0:
        fail(
            "a later position changes an earlier result.",
            example=f"setting x[4] and x[5] to 10,000,000 moves rows 0 to 3 by up to {moved:.2g}, expected 0",
            look="weights above the diagonal: they must be exactly 0",
        )


@checks(AVERAGE, "an input that is not contiguous")
def not_contiguous(average_past):
    x = rand(3, 5, seed=3).T
    close(call(average_past, x), expected(x), 2e-6, look="view needs contiguous memory, reshape copies where it must")


@checks(AVERAGE, "float64 stays float64")
def float64(average_past):
    x = rand(7, 3, seed=4, dtype=torch.float64)
    got = call(average_past, x)
    is_tensor(got, (7, 3), torch.float64)
    if not equal(got, expected(x), 1e-13):
        fail("the result is float64 and only as exact as float32: a step in between is float32.", look=".float(), and tensors that you create without dtype=x.dtype")


@checks(AVERAGE, "gradients")
def gradients(average_past):
    def reference(x):
        return torch.stack([x[: t + 1].mean(dim=0) for t in range(len(x))])

    gradients_close(average_past, reference, [rand(5, 3, seed=5)], 1e-5, "x")


@checks(AVERAGE, "the device of the input")
def device(average_past):
    keeps_device(average_past, rand(5, 3, seed=6))
