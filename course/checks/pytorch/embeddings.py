"""Checks of lesson 03: embeddings. The oracles are torch.nn.functional, autograd and a loop written here."""
import math
from types import SimpleNamespace

import torch
import torch.nn.functional as F

from course.checks import checks
from course.checks.pytorch import (
    call, close, equal, fail, fill, is_tensor, keeps_device, parameters_are, rand, rand_ids, shape_of,
)

ONE_HOT = "pytorch.embeddings.one_hot"
EMBEDDING = "pytorch.embeddings.Embedding"
BACKWARD = "pytorch.embeddings.embedding_backward"
BOTH = "pytorch.embeddings.TokenAndPosition"

CUT = ".data, .detach(), .item(), torch.no_grad() and torch.tensor(...) cut the graph"


def safely(value):
    """What a mistake gives, or a tensor that fits nothing where the mistake would crash."""

    def compute():
        try:
            return value() if callable(value) else value
        except (IndexError, RuntimeError):
            return torch.zeros(0)

    return compute


# --- one_hot -------------------------------------------------------------------------------------------


def expected_one_hot(idx, n):
    return F.one_hot(idx.long(), n).float()


def one_hot_mistakes(idx, n):
    right = expected_one_hot(idx, n)
    place = torch.arange(n)
    found = [
        ("the result is inverted: it is 0 at the token and 1 everywhere else.", 1 - right),
        ("ids are counted from 1: id 0 must put its 1 into column 0.", right.roll(-1, -1) * (idx > 0)[..., None]),
        ("the 1 stands one column too far to the right: id 0 belongs to column 0.", right.roll(1, -1) * (idx < n - 1)[..., None]),
        ("the columns are counted from the end: id 0 belongs to the first one.", right.flip(-1)),
        ("there is a 1 in every column up to the id; only the id's own column gets one.", (place <= idx[..., None]).float()),
        ("there is a 1 in every column below the id; only the id's own column gets one.", (place < idx[..., None]).float()),
        ("there is a 1 in every column from the id on; only the id's own column gets one.", (place >= idx[..., None]).float()),
        ("there is a 1 in every column above the id; only the id's own column gets one.", (place > idx[..., None]).float()),
        ("the id itself stands in the row; one_hot writes a 1.", right * idx[..., None]),
        ("the row is divided by n; it holds a single 1.", right / n),
        ("everything is 0: no column is set.", torch.zeros_like(right)),
        ("everything is 1: the id is not used.", torch.ones_like(right)),
    ]
    if idx.dim() > 0:
        found += [
            ("the n columns come first; they must be the last axis, so that the result can be multiplied with a table of n rows.", right.movedim(-1, 0)),
            ("the last two axes are swapped: the n columns must be the last axis.", right.transpose(-1, -2)),
            ("all ids of a row share one result: each id gets a row of its own.", right.amax(-2)),
            ("every row has a 1 for every id of the batch: each id gets a row of its own. out[..., idx] = 1 writes all of them everywhere.", right.reshape(-1, n).amax(0).expand_as(right)),
            ("the rows of one sequence are added up: each id gets a row of its own.", right.sum(-2)),
        ]
    if idx.dim() > 1:
        found.append(("the axes of idx are flattened; the result is (..., n), with the axes of idx in front.", right.reshape(-1, n)))
    return found


def is_float(got, name="the result"):
    if isinstance(got, torch.Tensor) and got.dtype != torch.float32:
        fail(
            f"{name} has dtype {got.dtype}, expected torch.float32: it will be multiplied with a table of floats, and @ refuses to mix.",
            look="a comparison gives bool; turn it into a float at the end",
        )


@checks(ONE_HOT, "values")
def one_hot_values(one_hot):
    idx = torch.tensor([[3, 0, 6, 3, 1], [2, 5, 5, 3, 0]])        # no 4
    try:
        got = call(one_hot, idx, 7)
    except (RuntimeError, IndexError) as error:
        fail(
            "ids and column numbers do not line up: every id of idx, whatever its shape, meets all n columns.",
            example=f"idx of shape (2, 5), n = 7: {str(error).splitlines()[0]}",
            look="one more axis at the end of idx, for the columns",
        )
    if isinstance(got, torch.Tensor) and got.dtype != torch.float32 and got.shape == (2, 5, 7):
        is_float(got)
    if isinstance(got, torch.Tensor):
        for mistake, value in one_hot_mistakes(idx, 7):           # an int result of the wrong shape is a shape first
            if equal(got, value, 0) and not equal(value, expected_one_hot(idx, 7), 0):
                fail(mistake)
    close(got, expected_one_hot(idx, 7), atol=0)


@checks(ONE_HOT, "n columns, whatever ids occur")
def one_hot_width(one_hot):
    for n in (4, 9):
        idx = torch.tensor([1, 0, 2])
        got = call(one_hot, idx, n)
        if isinstance(got, torch.Tensor) and got.dim() == 2 and got.shape[-1] != n:
            fail(
                f"the result has {got.shape[-1]} columns for n = {n}: the ids that happen to occur do not say how large the vocabulary is.",
                example=f"one_hot([1, 0, 2], {n}) has shape {shape_of(got)}, expected (3, {n})",
                look="where the number of columns comes from",
            )
        close(got, expected_one_hot(idx, n), atol=0, known=one_hot_mistakes(idx, n))


@checks(ONE_HOT, "ids of any shape")
def one_hot_shapes(one_hot):
    for shape in [(), (1,), (6,), (3, 1), (2, 3, 4)]:
        idx = rand_ids(*shape, n=5, seed=3)
        got = call(one_hot, idx, 5)
        close(
            got, expected_one_hot(idx, 5), atol=0, name=f"the result for idx of shape {tuple(shape)}", known=one_hot_mistakes(idx, 5),
            look="how the new axis is made: idx[..., None] puts it last for any number of axes",
        )


@checks(ONE_HOT, "a new result at each call")
def one_hot_fresh(one_hot):
    idx = torch.tensor([1, 2])
    first = one_hot(idx, 4)
    first.fill_(7)
    if not equal(one_hot(idx, 4), expected_one_hot(idx, 4), 0):
        fail("two calls share one tensor: whoever changes one result changes the next.", look="a tensor that is made outside the function, or kept from call to call")


@checks(ONE_HOT, "the device of the ids")
def one_hot_device(one_hot):
    keeps_device(lambda idx: one_hot(idx, 5), rand_ids(2, 3, n=5))


# --- Embedding -----------------------------------------------------------------------------------------


def embedding_mistakes(weight, idx):
    n, C = weight.shape
    right = F.embedding(idx, weight)
    found = [
        ("columns of the table are read, not rows: weight[:, idx] picks channels. Row idx belongs to token idx.", lambda: weight[:, idx]),
        ("rows are read one too early: id 0 belongs to row 0.", weight[(idx - 1) % n]),
        ("rows are read one too late: id 0 belongs to row 0.", weight[(idx + 1) % n]),
        ("rows are counted from the end: id 0 belongs to row 0.", weight.flip(0)[idx]),
        ("the rows are multiplied by sqrt(n_embd), as in Vaswani et al.; GPT-2 takes them as they are.", right * math.sqrt(C)),
        ("the rows are divided by sqrt(n_embd); GPT-2 takes them as they are.", right / math.sqrt(C)),
        ("the rows are normalised to length 1; GPT-2 takes them as they are.", right / right.norm(dim=-1, keepdim=True)),
        ("the rows are multiplied by the id; the id only says which row to take.", right * idx[..., None]),
        ("token 0 gets a vector of zeros, as for padding: GPT-2 has no padding token, row 0 is a row like any other.", right * (idx != 0)[..., None]),
        ("the rows are multiplied by 0.02 again; that factor belongs to the initial numbers.", 0.02 * right),
    ]
    if idx.dim() > 0:
        T = idx.shape[-1]
        found += [
            ("the rows are taken in the order of the positions; the ids are not used.", lambda: weight[:T].expand(*idx.shape, C)),
            ("the vectors of a sequence are averaged: each id gets a vector of its own.", right.mean(-2)),
            ("the vectors of a sequence are added up: each id gets a vector of its own.", right.sum(-2)),
            ("the last two axes of the result are swapped: the channels come last.", right.transpose(-1, -2)),
            ("the channels come first; they must be the last axis.", right.movedim(-1, 0)),
        ]
    if idx.dim() > 1:
        found.append(("the axes of idx are flattened: the result is (..., n_embd), with the axes of idx in front.", right.reshape(-1, C)))
    return [(words, safely(value)) for words, value in found]


@checks(EMBEDDING, "parameters")
def embedding_parameters(Embedding):
    module = Embedding(7, 3)
    weight = getattr(module, "weight", None)
    if isinstance(weight, torch.Tensor) and tuple(weight.shape) == (3, 7):
        fail(
            "weight is (n_embd, n): one column a token. Store one row a token, (n, n_embd), as GPT-2's checkpoint does.",
            example="Embedding(7, 3).weight has shape (3, 7), expected (7, 3)",
        )
    parameters_are(module, {"weight": (7, 3)}, "Embedding")
    if not module.weight.requires_grad:
        fail("weight does not ask for a gradient: the table would never be trained.", look="requires_grad=False")


@checks(EMBEDDING, "the same result twice")
def embedding_repeatable(Embedding):
    idx = rand_ids(2, 5, n=7, seed=1)
    repeatable(fill(Embedding(7, 9)), idx, idx.flip(1), DROPOUT)


DROPOUT = "dropout, which belongs to other places, and parameters that are created in forward"


def repeatable(module, idx, between, look):
    for mode in (True, False):
        module.train(mode)
        first = call(module, idx)
        call(module, between)
        again = call(module, idx)
        if isinstance(first, torch.Tensor) and not equal(first, again, 0):
            fail("two calls with the same ids differ: something random is at work, or something is left from the call between them.", look=look)


@checks(EMBEDDING, "values")
def embedding_values(Embedding):
    module = fill(Embedding(7, 9))                                # more columns than rows: weight[:, idx] would run
    idx = torch.tensor([[3, 0, 6, 3, 1], [2, 5, 5, 4, 0]])
    weight = module.weight.detach()
    close(call(module, idx), F.embedding(idx, weight), atol=2e-6, known=embedding_mistakes(weight, idx))


@checks(EMBEDDING, "ids of any shape")
def embedding_shapes(Embedding):
    for n, C in [(5, 6), (6, 2), (4, 4)]:
        module = fill(Embedding(n, C))
        weight = module.weight.detach()
        for shape in [(), (1,), (6,), (3, 1), (2, 3, 4)]:
            idx = rand_ids(*shape, n=n, seed=4)
            close(
                call(module, idx), F.embedding(idx, weight), atol=2e-6, name=f"the result for idx of shape {tuple(shape)} and Embedding({n}, {C})",
                known=embedding_mistakes(weight, idx), look="reshape and fixed numbers of axes: the result has the shape of idx with n_embd behind it",
            )


@checks(EMBEDDING, "a large vocabulary")
def embedding_large(Embedding):
    n = 70_000
    module = Embedding(n, 2)
    with torch.no_grad():
        module.weight.copy_(torch.stack([torch.arange(n) % 1000, torch.arange(n) // 1000], dim=1))
    idx = torch.tensor([200, 40_001, 65_537, n - 1])
    want = torch.tensor([[200.0, 0], [1, 40], [537, 65], [999, 69]])
    look = "the dtype of the ids: int8, int16 and float16 cannot count to 70,000"
    if not equal(module(idx), want, 1e-6):
        close(call(module, idx), want, atol=1e-6, name="the result for ids [200, 40001, 65537, 69999] of 70,000", look=look)
    try:
        narrow = module(idx.int())
    except Exception:
        return                                                    # int64 is what is promised
    close(narrow, want, atol=1e-6, name="the result for int32 ids", look=look)


@checks(EMBEDDING, "the gradient of the table")
def embedding_gradient(Embedding):
    module = fill(Embedding(6, 3))
    idx = torch.tensor([[1, 4, 1, 0], [1, 2, 4, 1]])
    out = module(idx)
    if not out.requires_grad:
        fail("no gradient reaches weight: the table would never be trained.", look=CUT)
    grad = rand(*out.shape, seed=5)
    got, = torch.autograd.grad((out * grad).sum(), [module.weight], allow_unused=True)
    if got is None:
        fail("no gradient reaches weight: the result is made from a copy of the table.", look=CUT)
    close(got, added_up(grad, idx, 6), atol=1e-5, name="the gradient of weight", known=backward_mistakes(grad, idx, 6))


@checks(EMBEDDING, "the initial numbers")
def embedding_initial(Embedding):
    weight = Embedding(500, 400).weight.detach().double()
    initial_numbers(weight, "weight")


def initial_numbers(weight, name):
    mean, std = weight.mean().item(), weight.std().item()
    if not math.isfinite(std):
        fail(f"{name} holds nan or inf at the start.", look="torch.empty gives whatever the memory holds")
    if weight.abs().max() == 0:
        fail(f"{name} starts at 0: all rows are equal, and nothing tells one token from another.")
    wanted = f"{name} starts with mean {mean:.4f} and standard deviation {std:.4f}, expected 0 and 0.02"
    if abs(mean) > 0.05 * std:
        fail(f"the initial numbers of {name} are not centred at 0: GPT-2 draws them from a normal distribution with mean 0.", example=wanted, look="torch.rand gives numbers from 0 to 1; torch.randn is the normal distribution")
    for factor, mistake in [
        (1.0, "are N(0, 1), PyTorch's default for embeddings; GPT-2 starts with a standard deviation of 0.02"),
        (math.sqrt(0.02), "have a variance of 0.02; GPT-2 starts with a standard deviation of 0.02"),
        (0.0004, "have a standard deviation of 0.02 squared; GPT-2 starts with 0.02"),
        (0.02 / math.sqrt(3), "are uniform between -0.02 and 0.02; GPT-2 draws them from a normal distribution with that standard deviation"),
        (0.01, "have a standard deviation of 0.01; both tables start with 0.02 here"),
    ]:
        if abs(std / factor - 1) < 0.02:
            fail(f"the initial numbers of {name} {mistake}.", example=wanted)
    if abs(std / 0.02 - 1) > 0.03:
        fail(f"the initial numbers of {name} have the wrong scale.", example=wanted)
    if weight.std(dim=0).min() < 0.001 or weight.std(dim=1).min() < 0.001:
        fail(f"the rows or the columns of {name} all start equal: each entry needs a random number of its own.", look="expand, repeat and broadcasting of one random row")
    beyond = (weight.abs() > 0.04).double().mean().item()         # 4.6 % of a normal distribution
    if not 0.04 < beyond < 0.051:
        fail(
            f"the initial numbers of {name} have the right scale and are not from a normal distribution.",
            example=f"{100 * beyond:.1f} % lie beyond two standard deviations, expected 4.6 %",
        )
    if weight.std(dim=0).min() < 0.01 or weight.std(dim=1).min() < 0.01:
        fail(f"the rows or the columns of {name} all start equal: each entry needs a random number of its own.", look="expand and broadcasting of one random row")


@checks(EMBEDDING, "each table for itself")
def embedding_apart(Embedding):
    a, b = Embedding(5, 4), Embedding(5, 4)
    if equal(a.weight, b.weight, 0):
        fail("two tables start with the same numbers.", look="torch.manual_seed inside the class, and a table that is made outside __init__")
    kept = a.weight.detach().clone()
    with torch.no_grad():
        b.weight.add_(1)
    idx = torch.arange(5)
    if not equal(a.weight, kept, 0) or not equal(a(idx), kept, 1e-6):
        fail("two tables share their numbers: changing one changes the other.", look="a table that is made outside __init__, or kept on the class")


@checks(EMBEDDING, "dtype and device of the table")
def embedding_dtype(Embedding):
    module = fill(Embedding(6, 3)).double()
    idx = rand_ids(2, 4, n=6, seed=6)
    weight = module.weight.detach() + rand(6, 3, seed=7, dtype=torch.float64, scale=1e-9)
    with torch.no_grad():
        module.weight.copy_(weight)
    got = call(module, idx)
    is_tensor(got, (2, 4, 3), torch.float64)
    if not equal(got, F.embedding(idx, weight), 1e-12):
        fail("the table is float64 and the result only as exact as float32: a step in between is float32.", look=".float(), and tensors that you create without dtype=self.weight.dtype")
    keeps_device(lambda m, idx: m(idx), module, idx)


# --- embedding_backward --------------------------------------------------------------------------------


def added_up(grad, idx, n):
    """The gradient of the table, position by position."""
    total = torch.zeros(n, grad.shape[-1], dtype=torch.float64)
    for row, token in zip(grad.double().reshape(-1, grad.shape[-1]), idx.flatten().tolist()):
        total[token] += row
    return total.to(grad.dtype)


def backward_mistakes(grad, idx, n):
    C = grad.shape[-1]
    rows, ids = grad.reshape(-1, C), idx.flatten().tolist()
    right = added_up(grad, idx, n)
    last, first, largest = torch.zeros(n, C), torch.zeros(n, C), torch.full((n, C), -math.inf)
    for row, token in zip(rows, ids):
        last[token] = row
    for row, token in reversed(list(zip(rows, ids))):
        first[token] = row
    for row, token in zip(rows, ids):
        largest[token] = torch.maximum(largest[token], row)
    counts = torch.bincount(idx.flatten(), minlength=n)[:, None]
    dense = torch.zeros(n, C)
    dense[: len(rows)] = rows[:n]
    each = torch.zeros(n, C)                                     # += inside a sequence keeps the last, sequences add up
    for g, i in zip(grad, idx) if idx.dim() > 1 else ():
        each[i] += g
    overwritten = "a token that occurs twice keeps only {} of its rows: each place where it stood has a say, so its rows add up. Neither grad_weight[idx] = ... nor grad_weight[idx] += ... does that."
    return [
        (overwritten.format("the last"), last),
        (overwritten.format("the first"), first),
        ("a token that occurs twice in a sequence keeps only the last of its rows: grad_weight[idx[b]] += ... counts no place twice. Only the sequences add up.", each if idx.dim() > 1 else torch.zeros(0)),
        ("the rows of equal tokens are averaged; the gradient is their sum.", right / counts.clamp(min=1)),
        ("channels and positions are mixed up: reshape keeps the order of the numbers, so n_embd must stay the last axis.", safely(lambda: added_up(grad.reshape(C, -1).T, idx.flatten(), n))),
        ("only the first channel is added up: scatter_add takes as many numbers as its index has, so the index must be (N, n_embd).", torch.cat([right[:, :1], torch.zeros(n, C - 1)], dim=1)),
        ("of the rows of equal tokens the largest is taken; the gradient is their sum.", torch.where(largest.isinf(), 0.0, largest)),
        ("each row is multiplied by how often its token occurs; adding up counts it already.", right * counts),
        ("the gradient is averaged over the positions; the gradient of the table is a sum, and the loss has averaged already.", right / len(ids)),
        ("the result is transposed: row v belongs to token v.", right.T),
        ("the gradient has the wrong sign: a gradient is handed on as it is, the optimizer takes the minus.", -right),
        ("rows go one token too far: token 0 is row 0.", right.roll(1, 0)),
        ("rows go one token too early: token 0 is row 0.", right.roll(-1, 0)),
        ("grad comes back as it is; its rows belong to positions, and the result's rows to tokens.", grad),
        ("grad comes back with its leading axes flattened; its rows belong to positions, and the result's rows to tokens.", rows),
        ("the rows stand in the order of the positions; row v belongs to token v.", dense),
        (
            "there are only as many rows as the largest id asks for: n is the size of the vocabulary, and tokens that do not occur have a row too, of zeros.",
            right[: max(ids) + 1] if max(ids) + 1 < n else torch.zeros(0),
        ),
        ("rows are read where they should be written: grad[idx] gathers, the gradient scatters.", safely(lambda: rows[idx])),
        ("rows are read where they should be written: grad[idx] gathers, the gradient scatters.", safely(lambda: rows[idx.flatten()])),
        ("every token gets the same sum; a row belongs to its own token only.", rows.sum(0).expand(n, C)),
        ("the counts of the tokens come back; their rows of grad must be added up.", counts.expand(n, C).to(grad.dtype)),
        ("only the first sequence of the batch counts.", added_up(grad[:1], idx[:1], n) if idx.dim() > 1 else torch.zeros(0)),
        ("only the last sequence of the batch counts.", added_up(grad[-1:], idx[-1:], n) if idx.dim() > 1 else torch.zeros(0)),
        ("everything is 0: no row is added.", torch.zeros(n, C)),
        ("the table starts from ones; adding starts from zeros.", right + 1),
        ("token 0 gets no gradient, as for padding: GPT-2 has no padding token, row 0 is a row like any other.", right * (torch.arange(n) != 0)[:, None]),
        ("the gradient is divided by the size of the batch; the gradient of the table is a sum, and the loss has averaged already.", right / idx.shape[0] if idx.dim() > 0 else torch.zeros(0)),
        ("the channels are added up: each row keeps its n_embd numbers.", right.sum(-1)),
        ("there is a table for each sequence: one table serves the whole batch, so its gradients add up.", torch.stack([added_up(g, i, n) for g, i in zip(grad, idx)]) if idx.dim() > 1 else torch.zeros(0)),
    ]


@checks(BACKWARD, "each token once")
def backward_distinct(embedding_backward):
    idx = torch.tensor([[3, 0, 5], [4, 1, 2]])
    grad = rand(2, 3, 4, seed=8)
    got = call(embedding_backward, grad, idx, 10)
    known = backward_mistakes(grad, idx, 10)
    if isinstance(got, torch.Tensor) and got.shape == (10, 4) and not equal(got[6:], torch.zeros(4, 4), 0):
        known.append(("the rows of tokens that do not occur are not 0, and no gradient reaches them: does the table start as torch.empty, or is a mean of no rows taken, which is nan?", got))
    close(got, added_up(grad, idx, 10), atol=2e-6, known=known)


@checks(BACKWARD, "equal tokens add up")
def backward_repeated(embedding_backward):
    idx = torch.tensor([[1, 4, 1, 0, 1], [1, 2, 4, 1, 2]])
    grad = rand(2, 5, 3, seed=9)
    close(call(embedding_backward, grad, idx, 6), added_up(grad, idx, 6), atol=2e-6, known=backward_mistakes(grad, idx, 6))
    idx = torch.zeros(4, 50, dtype=torch.int64)
    grad = rand(4, 50, 3, seed=10)
    close(call(embedding_backward, grad, idx, 2), added_up(grad, idx, 2), atol=1e-5, name="the result for one token 200 times", known=backward_mistakes(grad, idx, 2))


@checks(BACKWARD, "n rows, whatever ids occur")
def backward_rows(embedding_backward):
    idx = torch.tensor([[2, 0], [1, 2]])
    grad = rand(2, 2, 3, seed=11)
    for n in (3, 4, 12):
        got = call(embedding_backward, grad, idx, n)
        if isinstance(got, torch.Tensor) and got.dim() == 2 and got.shape[0] != n:
            fail(
                f"the result has {got.shape[0]} rows for n = {n}: tokens that do not occur have a row too, of zeros.",
                look="where the number of rows comes from",
            )
        close(got, added_up(grad, idx, n), atol=2e-6, name=f"the result for n = {n}", known=backward_mistakes(grad, idx, n))


@checks(BACKWARD, "ids of any shape")
def backward_shapes(embedding_backward):
    for shape in [(), (1,), (7,), (3, 1), (1, 4), (2, 3, 4)]:
        idx = rand_ids(*shape, n=4, seed=12)
        grad = rand(*shape, 5, seed=13)
        try:
            got = call(embedding_backward, grad, idx, 4)
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            fail(
                f"idx of shape {tuple(shape)} does not work: idx may have any number of axes, also none.",
                example=f"{type(error).__name__}: {str(error).splitlines()[0]}",
                look="whether all axes but the last of grad are flattened, whatever their number",
            )
        close(
            got, added_up(grad, idx, 4), atol=4e-6, name=f"the result for idx of shape {tuple(shape)}",
            look="whether all axes but the last of grad are flattened, whatever their number",
        )


@checks(BACKWARD, "a gradient that is not contiguous")
def backward_not_contiguous(embedding_backward):
    idx = rand_ids(3, 4, n=5, seed=14).T
    for grad in (rand(3, 4, 2, seed=15).transpose(0, 1), rand(2, 3, 4, seed=15).permute(2, 1, 0), rand(4, 1, 2, seed=15).expand(4, 3, 2)):
        close(call(embedding_backward, grad, idx, 5), added_up(grad, idx, 5), atol=4e-6, name="the result for a grad whose axes were swapped before", look="view needs contiguous memory, reshape copies where it must")


@checks(BACKWARD, "nothing is left from the call before")
def backward_fresh(embedding_backward):
    idx, grad = torch.tensor([1, 2, 1]), rand(3, 2, seed=16)
    want = added_up(grad, idx, 4)
    first = embedding_backward(grad, idx, 4)
    if not equal(embedding_backward(grad, idx, 4), want, 2e-6):
        fail("a second call with the same arguments gives something else: the first one is still in it.", look="a tensor that is made outside the function, torch.empty instead of torch.zeros")
    first.fill_(7)
    if not equal(embedding_backward(grad, idx, 4), want, 2e-6):
        fail("two calls share one tensor: whoever changes one result changes the next.", look="a tensor that is made outside the function, or kept from call to call")


@checks(BACKWARD, "dtype and device of the gradient")
def backward_dtype(embedding_backward):
    idx, grad = rand_ids(2, 5, n=4, seed=17), rand(2, 5, 3, seed=18, dtype=torch.float64)
    got = call(embedding_backward, grad, idx, 4)
    is_tensor(got, (4, 3), torch.float64)
    if not equal(got, added_up(grad, idx, 4), 1e-12):
        fail("the result is float64 and only as exact as float32: a step in between is float32.", look=".float(), one_hot, and tensors that you create without dtype=grad.dtype")
    keeps_device(lambda grad, idx: embedding_backward(grad, idx, 4), grad, idx)


# --- TokenAndPosition ----------------------------------------------------------------------------------

CONFIG = SimpleNamespace(vocab_size=11, n_ctx=7, n_layer=2, n_head=2, n_embd=6)


def sum_of_both(module, idx):
    return F.embedding(idx, module.wte.weight) + module.wpe.weight[: idx.shape[1]]


def both_mistakes(module, idx):
    B, T = idx.shape
    wte, wpe = module.wte.weight.detach(), module.wpe.weight.detach()
    n_ctx, C = wpe.shape
    tok, pos = F.embedding(idx, wte), wpe[:T]
    right = tok + pos
    t = torch.arange(T)
    angle = t[:, None] / 10_000 ** (torch.arange(0, C, 2) / C)
    waves = torch.stack([angle.sin(), angle.cos()], dim=-1).reshape(T, -1)[:, :C]
    halves = torch.cat([angle.sin(), angle.cos()], dim=-1)[:, :C]
    sinusoids = "the positions are sines and cosines, as in Vaswani et al.; GPT-2 learns them: they are the rows of wpe."
    from_end = "positions are counted from the end: the first token stands at position 0."
    found = [
        ("the position is missing: equal tokens get equal vectors wherever they stand.", tok),
        ("the token is missing: only the positions are there.", pos.expand(B, T, C)),
        ("the position table is read with the token ids; its index is the place, 0 to T-1: equal tokens get equal positions here.", lambda: tok + wpe[idx]),
        ("token and position are multiplied; GPT-2 adds them.", tok * pos),
        ("the position is subtracted; GPT-2 adds it.", tok - pos),
        ("token and position are averaged; GPT-2 takes the sum.", right / 2),
        ("the tokens are multiplied by sqrt(n_embd), as in Vaswani et al.; GPT-2 does not.", tok * math.sqrt(C) + pos),
        ("the sum is multiplied by sqrt(n_embd); GPT-2 does not.", right * math.sqrt(C)),
        ("the sum is divided by sqrt(n_embd); GPT-2 does not.", right / math.sqrt(C)),
        ("the sum is divided by sqrt(2); GPT-2 does not.", right / math.sqrt(2)),
        ("token and position stand side by side; GPT-2 adds them, so that n_embd channels hold both.", torch.cat([tok, pos.expand(B, T, C)], dim=-1)),
        (sinusoids, tok + waves),
        (sinusoids, tok + halves),
        (sinusoids, tok * math.sqrt(C) + waves),
        (from_end, tok + wpe[:T].flip(0)),
        (from_end, tok + wpe.flip(0)[:T]),
        ("the last T rows of wpe are used; T tokens stand at the positions 0 to T-1.", tok + wpe[n_ctx - T :]),
        ("positions are counted from 1; the first token stands at position 0.", tok + wpe[(t + 1) % n_ctx]),
        ("positions are counted from 1; the first token stands at position 0.", tok + wpe[(t + 1).clamp(max=n_ctx - 1)]),
        ("positions are shifted by one: position t stands at row t, and here it gets row t - 1.", tok + wpe[(t - 1) % T]),
        ("positions are multiplied by 0.02; that factor belongs to the initial numbers.", tok + 0.02 * pos),
        ("only the first sequence of the batch gets positions.", torch.cat([right[:1], tok[1:]])),
        ("only the first token gets a position.", torch.cat([right[:, :1], tok[:, 1:]], dim=1)),
        ("the tokens are read from back to front.", tok.flip(1) + pos),
        ("every token gets position 0.", tok + wpe[0]),
        ("every token gets the last position.", tok + wpe[T - 1]),
        ("every token gets the number of tokens, T, for its position.", lambda: tok + wpe[T]),
        ("all positions are added to every token.", tok + pos.sum(0)),
        ("the average of all positions is added to every token.", tok + pos.mean(0)),
        ("the number of the position is added; its row of wpe belongs there.", tok + t[:, None]),
        ("the two rows are normalised before they are added; GPT-2 takes them as they are.", F.layer_norm(tok, (C,)) + F.layer_norm(pos, (C,))),
        ("the sum is normalised; in GPT-2 that is the job of the blocks.", F.layer_norm(right, (C,))),
        ("positions run on from one sequence to the next; each sequence starts at 0.", tok + wpe[(torch.arange(B * T) % n_ctx).reshape(B, T)]),
        ("the position is added twice.", right + pos),
        ("the token is added twice.", right + tok),
        ("the last two axes of the result are swapped: the channels come last.", right.transpose(1, 2)),
        ("the vectors of a sequence are added up: each position keeps a vector of its own.", right.sum(1)),
        ("wte is read with the positions and wpe with the tokens.", lambda: wte[t] + wpe[idx]),
        ("both vectors come from wte; the positions have a table of their own, wpe.", lambda: tok + wte[t]),
        ("both vectors come from wpe; the tokens have a table of their own, wte.", lambda: wpe[idx] + pos),
    ]
    if B <= n_ctx:
        found += [
            ("the positions run over the batch, not over the sequence: every token of a sequence gets the same.", tok + wpe[:B, None]),
            ("the positions run over the batch, not over the sequence.", lambda: tok + wpe[torch.arange(idx.shape[0]), None]),
        ]
    return [(words, safely(value)) for words, value in found]


@checks(BOTH, "parameters")
def both_parameters(TokenAndPosition):
    module = TokenAndPosition(CONFIG)
    wanted = {"wte.weight": (11, 6), "wpe.weight": (7, 6)}
    got = {name: tuple(p.shape) for name, p in module.named_parameters()}
    if got == {"wte.weight": (7, 6), "wpe.weight": (11, 6)}:
        fail(
            "the two tables are swapped: wte has a row for each token of the vocabulary, wpe one for each position of n_ctx.",
            example="for vocab_size = 11 and n_ctx = 7, wte.weight has shape (7, 6), expected (11, 6)",
        )
    if "wte.weight" in got and not any(name.startswith("wpe") for name in got) and not isinstance(getattr(getattr(module, "wpe", None), "weight", None), torch.Tensor):
        fail(
            "there is no learned table of positions, wpe.weight: GPT-2 learns its positions, a row of wpe for each of the n_ctx places.",
            look="positions that are left out, fixed sines and cosines, and a table kept in a list or a plain tensor",
        )
    if got.get("wpe.weight") == (11, 6):
        fail("wpe has a row for each token; it needs one for each position: n_ctx rows.", example="for vocab_size = 11 and n_ctx = 7, wpe.weight has shape (11, 6), expected (7, 6)")
    if got.get("wte.weight") == (7, 6):
        fail("wte has a row for each position; it needs one for each token: vocab_size rows.", example="for vocab_size = 11 and n_ctx = 7, wte.weight has shape (7, 6), expected (11, 6)")
    if getattr(module, "wte", None) is not None and (module.wte is getattr(module, "wpe", None) or getattr(module.wte, "weight", 0) is getattr(getattr(module, "wpe", None), "weight", 1)):
        fail(
            "wte and wpe are one table: token 3 and position 3 would be the same vector, and be trained as one.",
            look="whether __init__ makes two Embeddings",
        )
    parameters_are(module, wanted, "TokenAndPosition")
    for name, p in module.named_parameters():
        if not p.requires_grad:
            fail(f"{name} does not ask for a gradient: the table would never be trained.", look="requires_grad=False, requires_grad_(False)")


@checks(BOTH, "the same result twice")
def both_repeatable(TokenAndPosition):
    module = fill(TokenAndPosition(CONFIG))
    look = "which axis of idx is the sequence (the second), and where the positions start and end"
    try:
        call(module, rand_ids(3, 7, n=7, seed=28))
    except (RuntimeError, IndexError) as error:
        said = f"idx of shape (3, 7), n_ctx = 7: {type(error).__name__}: {str(error).splitlines()[0]}"
        if "out of bounds" in str(error) or "out of range" in str(error):
            fail("a row is asked for that is not in the table. T tokens stand at the positions 0 to T - 1, in each sequence.", example=said, look=look)
        if "must match the size" in str(error):
            fail("the rows of wpe do not line up with the tokens: wpe gives (T, C), one row for each of the T positions, and is added to (B, T, C).", example=said, look=look)
        raise
    repeatable(module, rand_ids(2, 7, n=7, seed=24), rand_ids(4, 7, n=7, seed=25), "dropout, positions that run on from call to call, and tensors kept on self in forward")


@checks(BOTH, "values at T = n_ctx")
def both_values(TokenAndPosition):
    module = fill(TokenAndPosition(CONFIG))
    idx = rand_ids(3, 7, n=7, seed=20)                            # below n_ctx: a wrong index into wpe still runs
    close(call(module, idx), sum_of_both(module, idx).detach(), atol=2e-6, known=both_mistakes(module, idx))


@checks(BOTH, "fewer tokens than n_ctx")
def both_shorter(TokenAndPosition):
    module = fill(TokenAndPosition(CONFIG))
    for B, T in [(3, 5), (2, 4), (4, 1)]:
        idx = rand_ids(B, T, n=7, seed=21)
        try:
            got = call(module, idx)
        except RuntimeError as error:
            if "7" in str(error):
                fail(
                    "all n_ctx rows of wpe are added, however many tokens came in: T tokens get the first T rows.",
                    example=f"for T = {T} and n_ctx = 7: {str(error).splitlines()[0]}",
                )
            raise
        close(got, sum_of_both(module, idx).detach(), atol=2e-6, name=f"the result for T = {T} (n_ctx = 7)", known=both_mistakes(module, idx))


@checks(BOTH, "ids larger than n_ctx")
def both_large_ids(TokenAndPosition):
    module = fill(TokenAndPosition(CONFIG))
    idx = torch.tensor([[10, 7, 0, 9], [8, 8, 10, 3]])
    try:
        got = call(module, idx)
    except IndexError:
        fail(
            "a token id is used as an index into the positions: ids go up to vocab_size - 1 and positions only to n_ctx - 1.",
            example="ids [10, 7, 0, 9] with vocab_size = 11 and n_ctx = 7 raise IndexError",
        )
    close(got, sum_of_both(module, idx).detach(), atol=2e-6, name="the result for ids up to 10", known=both_mistakes(module, idx))


@checks(BOTH, "other sizes")
def both_sizes(TokenAndPosition):
    for sizes in [dict(vocab_size=5, n_ctx=9, n_embd=4), dict(vocab_size=300, n_ctx=3, n_embd=10)]:
        config = SimpleNamespace(n_layer=1, n_head=2, **sizes)
        module = TokenAndPosition(config)
        shapes = {"wte.weight": (config.vocab_size, config.n_embd), "wpe.weight": (config.n_ctx, config.n_embd)}
        parameters_are(module, shapes, f"TokenAndPosition for {sizes}: ")
        fill(module)
        idx = rand_ids(2, 3, n=config.vocab_size, seed=22)
        close(call(module, idx), sum_of_both(module, idx).detach(), atol=2e-6, name=f"the result for {sizes}", known=both_mistakes(module, idx), look="sizes that are written as numbers: take them from config")


@checks(BOTH, "two tables, also where they have the same size")
def both_apart(TokenAndPosition):
    config = SimpleNamespace(vocab_size=6, n_ctx=6, n_layer=1, n_head=2, n_embd=4)
    module = TokenAndPosition(config)
    if module.wte.weight is module.wpe.weight or equal(module.wte.weight, module.wpe.weight, 0):
        fail(
            "wte and wpe are one table, or start with the same numbers: token 3 and position 3 would then be the same vector.",
            look="whether __init__ makes two Embeddings",
        )
    other = TokenAndPosition(config)
    kept = module.wpe.weight.detach().clone(), module.wte.weight.detach().clone()
    fill(other)
    if not (equal(module.wpe.weight, kept[0], 0) and equal(module.wte.weight, kept[1], 0)):
        fail("two modules share a table: changing one changes the other.", look="a table that is made outside __init__, or kept on the class")


@checks(BOTH, "the gradients of both tables")
def both_gradients(TokenAndPosition):
    module = fill(TokenAndPosition(CONFIG))
    idx = torch.tensor([[1, 4, 1, 0], [1, 10, 4, 1], [9, 9, 9, 9]])
    out = module(idx)
    if not out.requires_grad:
        fail("no gradient flows through the result.", look=CUT)
    grad = rand(*out.shape, seed=23)
    got = torch.autograd.grad((out * grad).sum(), [module.wte.weight, module.wpe.weight], allow_unused=True)
    places = torch.arange(4).expand(3, 4)
    for name, mine, want in zip(["wte.weight", "wpe.weight"], got, [added_up(grad, idx, 11), added_up(grad, places, 7)]):
        if mine is None:
            fail(f"no gradient reaches {name}: that table would never be trained.", look=CUT)
        close(mine, want, atol=1e-5, name=f"the gradient of {name}")


@checks(BOTH, "the initial numbers")
def both_initial(TokenAndPosition):
    module = TokenAndPosition(SimpleNamespace(vocab_size=400, n_ctx=300, n_layer=1, n_head=2, n_embd=320))
    initial_numbers(module.wte.weight.detach().double(), "wte.weight")
    initial_numbers(module.wpe.weight.detach().double(), "wpe.weight")


@checks(BOTH, "dtype and device of the tables")
def both_dtype(TokenAndPosition):
    module = fill(TokenAndPosition(CONFIG)).double()
    with torch.no_grad():
        for p in module.parameters():
            p.add_(rand(*p.shape, seed=26, dtype=torch.float64, scale=1e-9))
    idx = rand_ids(2, 5, n=11, seed=27)
    got = call(module, idx)
    is_tensor(got, (2, 5, 6), torch.float64)
    if not equal(got, sum_of_both(module, idx), 1e-12):
        fail("the tables are float64 and the result only as exact as float32: a step in between is float32.", look=".float(), and tensors that you create without a dtype")
    keeps_device(lambda m, idx: m(idx), module, idx)
