"""Checks of lesson 11: the port of the embeddings. The oracles are PyTorch, NumPy and a loop written in lesson 03's checks."""
import math
from types import SimpleNamespace

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F

from course.checks import checks
from course.checks.mindspore import (
    arrays, call, close, fail, fill, gradients_close, gradients_of, in_plain_words, is_tensor, parameters_are, rand, rand_ids, same_in_graph_mode,
)
from course.checks.pytorch import embeddings as in_pytorch

EMBEDDING = "mindspore.embeddings.Embedding"
BOTH = "mindspore.embeddings.TokenAndPosition"

CUT = ".asnumpy(), ms.Tensor(...), ops.stop_gradient and .value() cut the graph"
RANDOM = "dropout, which belongs to other places, and parameters that are created in construct"


def torch_ids(idx):
    return torch.from_numpy(np.asarray(idx)).long()


def rows(weight, idx):
    """The rows of a table, by PyTorch."""
    return F.embedding(torch_ids(idx), torch.from_numpy(weight)).numpy()


def in_words_of_mindspore(found):
    """The mistakes of lesson 03, without the line that names its operation."""
    return [(words.replace("weight[:, idx] picks channels", "axis 1 of ops.gather picks channels"), value) for words, value in found]


def table_mistakes(weight, idx):
    return in_words_of_mindspore(in_pytorch.embedding_mistakes(torch.from_numpy(weight), torch_ids(idx)))


def repeatable(cell, idx, between, look):
    for mode in (True, False):
        cell.set_train(mode)
        first = call(cell, idx)
        call(cell, between)
        again = call(cell, idx)
        if isinstance(first, ms.Tensor) and isinstance(again, ms.Tensor) and not np.array_equal(first.asnumpy(), again.asnumpy()):
            fail("two calls with the same ids differ: something random is at work, or something is left from the call between them.", look=look)


def float32(cell, name):
    for key, p in cell.parameters_and_names():
        if p.dtype == ms.float64:
            fail(
                f"{name}{key} is float64: NumPy's random numbers are, and ms.Parameter keeps that. PyTorch's table is float32.",
                example=f"{name}{key} has dtype Float64, expected Float32",
                look=".astype(np.float32) on the way into the parameter",
            )
        if p.dtype != ms.float32:
            fail(f"{name}{key} has dtype {p.dtype}, expected Float32.")


def initial_numbers(weight, name):
    """Normal, mean 0, standard deviation 0.02; weight is a large array."""
    weight = weight.astype(np.float64)
    mean, std = weight.mean(), weight.std()
    if not math.isfinite(std):
        fail(f"{name} holds nan or inf at the start.", look="np.empty gives whatever the memory holds")
    if np.abs(weight).max() == 0:
        fail(f"{name} starts at 0: all rows are equal, and nothing tells one token from another.")
    wanted = f"{name} starts with mean {mean:.4f} and standard deviation {std:.4f}, expected 0 and 0.02"
    if abs(mean - 0.02) < 0.007 and abs(std - 1) < 0.05:
        fail("the arguments of the normal distribution are swapped: the mean comes first, then the standard deviation.", example=wanted, look="np.random.normal(loc, scale, size)")
    if abs(mean) > 0.05 * std:
        fail(
            f"the initial numbers of {name} are not centred at 0: GPT-2 draws them from a normal distribution with mean 0.", example=wanted,
            look="np.random.rand gives numbers from 0 to 1; np.random.randn is the normal distribution",
        )
    for factor, mistake in [
        (0.01, "are N(0, 0.01), the default of MindSpore's nn.Embedding and of its initializer 'normal'; GPT-2 starts with 0.02"),
        (1.0, "are N(0, 1), PyTorch's default for embeddings; GPT-2 starts with a standard deviation of 0.02"),
        (math.sqrt(0.02), "have a variance of 0.02; GPT-2 starts with a standard deviation of 0.02"),
        (0.0004, "have a standard deviation of 0.02 squared; GPT-2 starts with 0.02"),
        (1 / math.sqrt(weight.shape[1]), "have a standard deviation of 1/sqrt(n_embd); GPT-2 starts with 0.02 whatever the width"),
        (0.02 / math.sqrt(3), "are uniform between -0.02 and 0.02; GPT-2 draws them from a normal distribution with that standard deviation"),
    ]:
        if abs(std / factor - 1) < 0.02:
            fail(f"the initial numbers of {name} {mistake}.", example=wanted)
    if abs(std / 0.02 - 1) > 0.03:
        fail(f"the initial numbers of {name} have the wrong scale.", example=wanted)
    beyond = (np.abs(weight) > 0.04).mean()                       # 4.6 % of a normal distribution
    if not 0.04 < beyond < 0.051:
        fail(
            f"the initial numbers of {name} have the right scale and are not from a normal distribution.",
            example=f"{100 * beyond:.1f} % lie beyond two standard deviations, expected 4.6 %",
        )
    if weight.std(axis=0).min() < 0.01 or weight.std(axis=1).min() < 0.01:
        fail(f"the rows or the columns of {name} all start equal: each entry needs a random number of its own.", look="broadcasting of one random row")


# --- Embedding -----------------------------------------------------------------------------------------


@checks(EMBEDDING, "parameters")
def embedding_parameters(Embedding):
    with in_plain_words():
        cell = Embedding(7, 3)
    weight = getattr(cell, "weight", None)
    if isinstance(weight, ms.Tensor) and tuple(weight.shape) == (3, 7):
        fail(
            "weight is (n_embd, n): one column a token. Store one row a token, (n, n_embd), as the PyTorch piece does.",
            example="Embedding(7, 3).weight has shape (3, 7), expected (7, 3)",
        )
    if isinstance(getattr(cell, "embedding_table", None), ms.Tensor) and not isinstance(weight, ms.Tensor):
        fail(
            "the table is called embedding_table, the name in MindSpore's nn.Embedding; here it is weight, as in PyTorch: the same names let weights be carried over.",
            example="Embedding(7, 3) has no parameter weight",
        )
    parameters_are(cell, {"weight": (7, 3)}, "Embedding")
    float32(cell, "Embedding.")


@checks(EMBEDDING, "the same result twice")
def embedding_repeatable(Embedding):
    idx = rand_ids(2, 5, n=7, seed=1)
    repeatable(fill(Embedding(7, 9)), idx, np.ascontiguousarray(idx[:, ::-1]), RANDOM)


@checks(EMBEDDING, "values")
def embedding_values(Embedding):
    cell = Embedding(7, 9)                                        # more columns than rows: reading columns would run
    idx = np.array([[3, 0, 6, 3, 1], [2, 5, 5, 4, 0]], np.int32)
    for seed in (0, 50):                                          # the second time the table has changed, as after a step
        before = cell.weight.asnumpy().copy()
        weight = fill(cell, seed=seed).weight.asnumpy()
        old = ("the old rows come back after the table was changed, as a training step does: construct reads a copy.", rows(before, idx))
        close(call(cell, idx), rows(weight, idx), known=[old, *table_mistakes(weight, idx)], look="the axis of ops.gather: rows are axis 0")


@checks(EMBEDDING, "ids of any shape")
def embedding_shapes(Embedding):
    for n, C in [(5, 6), (6, 2), (4, 4)]:
        cell = fill(Embedding(n, C))
        weight = cell.weight.asnumpy()
        for shape in [(), (1,), (6,), (3, 1), (2, 3, 4)]:
            idx = rand_ids(*shape, n=n, seed=4)
            idx = np.asarray(idx, np.int32)
            try:
                got = call(cell, idx)
            except (IndexError, RuntimeError, ValueError, TypeError) as error:
                fail(
                    f"ids of shape {shape} stop the cell: ids may have any number of axes, also none.", example=f"{type(error).__name__}: {str(error).splitlines()[0][:200]}",
                    look="the line that takes the shape of idx apart, and loops over idx",
                )
            lost = ("an axis of length 1 is lost: the result has every axis of idx, with n_embd behind them.", rows(weight, idx).squeeze())
            close(
                got, rows(weight, idx), name=f"the result for idx of shape {shape} and Embedding({n}, {C})",
                known=[lost, *table_mistakes(weight, idx)], look="reshape and fixed numbers of axes: the result has the shape of idx with n_embd behind it",
            )


@checks(EMBEDDING, "int32 and int64 ids, and a large vocabulary")
def embedding_large(Embedding):
    n = 70_000
    cell = Embedding(n, 2)
    cell.weight.set_data(ms.Tensor(np.stack([np.arange(n) % 1000, np.arange(n) // 1000], axis=1).astype(np.float32)))
    idx = np.array([200, 40_001, 65_537, n - 1])
    want = np.array([[200.0, 0], [1, 40], [537, 65], [999, 69]], np.float32)
    for dtype in (np.int32, np.int64):
        close(
            call(cell, idx.astype(dtype)), want, name=f"the result for {np.dtype(dtype).name} ids [200, 40001, 65537, 69999] of 70,000",
            look="the dtype of the ids: int16 and float16 cannot count to 70,000; int32 and int64 both can",
        )


@checks(EMBEDDING, "the gradient of the table")
def embedding_gradient(Embedding):
    cell = fill(Embedding(6, 3))
    idx = np.array([[1, 4, 1, 0], [1, 2, 4, 1]], np.int32)
    grad = torch.from_numpy(rand(2, 4, 3, seed=99))               # the weighting of gradients_of
    want = in_pytorch.added_up(grad, torch_ids(idx), 6).numpy()
    known = in_pytorch.backward_mistakes(grad, torch_ids(idx), 6)
    got = gradients_of(cell, [idx], [cell.weight])
    if not np.abs(got[0]).max() > 0:
        fail("no gradient reaches weight: the table would never be trained.", look=CUT)
    gradients_close(got, [want], ["weight"], known=known)


@checks(EMBEDDING, "the initial numbers")
def embedding_initial(Embedding):
    initial_numbers(Embedding(500, 400).weight.asnumpy(), "weight")


@checks(EMBEDDING, "each table for itself")
def embedding_apart(Embedding):
    a, b = Embedding(5, 4), Embedding(5, 4)
    if np.array_equal(a.weight.asnumpy(), b.weight.asnumpy()):
        fail("two tables start with the same numbers.", look="np.random.seed or ms.set_seed inside the class, and a table that is made outside __init__")
    kept = a.weight.asnumpy().copy()
    fill(b)
    idx = np.arange(5).astype(np.int32)
    if not np.array_equal(a.weight.asnumpy(), kept) or not np.allclose(call(a, idx).asnumpy(), kept, atol=1e-6):
        fail("two tables share their numbers: changing one changes the other.", look="a table that is made outside __init__, or kept on the class")


@checks(EMBEDDING, "a table in float16")
def embedding_dtype(Embedding):
    cell = Embedding(6, 3)
    half = rand(6, 3, seed=7).astype(np.float16)
    cell.weight = ms.Parameter(half)
    idx = rand_ids(2, 4, n=6, seed=6)
    got = call(cell, idx)
    is_tensor(got, (2, 4, 3), ms.float16)
    close(got, half[idx])


@checks(EMBEDDING, "the same in graph mode", seconds=20)
def embedding_graph(Embedding):
    cell = fill(Embedding(6, 3))
    for shape in [(2, 4), (3,)]:
        same_in_graph_mode(cell, rand_ids(*shape, n=6, seed=8))


# --- TokenAndPosition ----------------------------------------------------------------------------------

CONFIG = SimpleNamespace(vocab_size=11, n_ctx=7, n_layer=2, n_head=2, n_embd=6)


def as_torch(cell):
    """The two tables as the PyTorch checks know them."""
    held = arrays(cell)
    tables = {name: SimpleNamespace(weight=torch.from_numpy(held[f"{name}.weight"])) for name in ("wte", "wpe")}
    return SimpleNamespace(**tables)


def expected_sum(cell, idx):
    return in_pytorch.sum_of_both(as_torch(cell), torch_ids(idx)).numpy()


def both_mistakes(cell, idx):
    return in_pytorch.both_mistakes(as_torch(cell), torch_ids(idx))


@checks(BOTH, "parameters")
def both_parameters(TokenAndPosition):
    with in_plain_words():
        cell = TokenAndPosition(CONFIG)
    got = {name: tuple(p.shape) for name, p in cell.parameters_and_names()} if isinstance(cell, ms.nn.Cell) else {}
    if got == {"wte.weight": (7, 6), "wpe.weight": (11, 6)}:
        fail(
            "the two tables are swapped: wte has a row for each token of the vocabulary, wpe one for each position of n_ctx.",
            example="for vocab_size = 11 and n_ctx = 7, wte.weight has shape (7, 6), expected (11, 6)",
        )
    if any("embedding_table" in name for name in got):
        fail(
            "the tables are MindSpore's nn.Embedding, whose parameter is called embedding_table; use the Embedding of this lesson: its weight has the name and the start of GPT-2's.",
            example=f"there is a parameter {next(n for n in got if 'embedding_table' in n)}, expected wte.weight and wpe.weight",
        )
    if "wte.weight" in got and not any(name.startswith("wpe") for name in got) and not isinstance(getattr(getattr(cell, "wpe", None), "weight", None), ms.Tensor):
        fail(
            "there is no learned table of positions, wpe.weight: GPT-2 learns its positions, a row of wpe for each of the n_ctx places.",
            look="positions that are left out, fixed sines and cosines, and a table kept in a list or a plain tensor",
        )
    if got.get("wpe.weight") == (11, 6):
        fail("wpe has a row for each token; it needs one for each position: n_ctx rows.", example="for vocab_size = 11 and n_ctx = 7, wpe.weight has shape (11, 6), expected (7, 6)")
    if got.get("wte.weight") == (7, 6):
        fail("wte has a row for each position; it needs one for each token: vocab_size rows.", example="for vocab_size = 11 and n_ctx = 7, wte.weight has shape (7, 6), expected (11, 6)")
    parameters_are(cell, {"wte.weight": (11, 6), "wpe.weight": (7, 6)}, "TokenAndPosition")
    float32(cell, "")


PLACES = [
    ("need to broadcast", "tokens and positions do not fit into one sum: (B, T, n_embd) needs T rows of positions, (T, n_embd), and T is idx.shape[1]."),
    ("should be in the range", "an index points outside its table: T tokens stand at the positions 0 to T - 1, and T is idx.shape[1]."),
]


@checks(BOTH, "the same result twice")
def both_repeatable(TokenAndPosition):
    look = "dropout, positions that run on from call to call, and tensors kept on self in construct"
    cell = fill(TokenAndPosition(CONFIG))
    with in_plain_words(PLACES):
        repeatable(cell, rand_ids(2, 7, n=7, seed=24), rand_ids(4, 7, n=7, seed=25), look)


@checks(BOTH, "values at T = n_ctx")
def both_values(TokenAndPosition):
    cell = fill(TokenAndPosition(CONFIG))
    idx = rand_ids(3, 7, n=7, seed=20)                            # below n_ctx: a wrong index into wpe still runs
    close(call(cell, idx), expected_sum(cell, idx), known=both_mistakes(cell, idx))


@checks(BOTH, "fewer tokens than n_ctx")
def both_shorter(TokenAndPosition):
    cell = fill(TokenAndPosition(CONFIG))
    for B, T in [(3, 5), (2, 4), (4, 1)]:
        idx = rand_ids(B, T, n=7, seed=21)
        try:
            got = call(cell, idx)
        except (RuntimeError, ValueError) as error:
            if "broadcast" in str(error) or "shape" in str(error):
                fail(
                    "all n_ctx rows of wpe are added, however many tokens came in: T tokens get the first T rows.",
                    example=f"for T = {T} and n_ctx = 7: {str(error).splitlines()[0][:200]}",
                )
            raise
        close(got, expected_sum(cell, idx), name=f"the result for T = {T} (n_ctx = 7)", known=both_mistakes(cell, idx))


@checks(BOTH, "ids larger than n_ctx")
def both_large_ids(TokenAndPosition):
    cell = fill(TokenAndPosition(CONFIG))
    idx = np.array([[10, 7, 0, 9], [8, 8, 10, 3]], np.int32)
    try:
        got = call(cell, idx)
    except RuntimeError as error:
        if "in the range" not in str(error):
            raise
        fail(
            "a token id is used as an index into the positions: ids go up to vocab_size - 1 and positions only to n_ctx - 1.",
            example="ids [10, 7, 0, 9] with vocab_size = 11 and n_ctx = 7 are out of range",
        )
    close(got, expected_sum(cell, idx), name="the result for ids up to 10", known=both_mistakes(cell, idx))


@checks(BOTH, "other sizes, and int64 ids")
def both_sizes(TokenAndPosition):
    for sizes in [dict(vocab_size=5, n_ctx=9, n_embd=4), dict(vocab_size=300, n_ctx=3, n_embd=10)]:
        config = SimpleNamespace(n_layer=1, n_head=2, **sizes)
        cell = TokenAndPosition(config)
        shapes = {"wte.weight": (config.vocab_size, config.n_embd), "wpe.weight": (config.n_ctx, config.n_embd)}
        parameters_are(cell, shapes, f"TokenAndPosition for {sizes}: ")
        fill(cell)
        idx = rand_ids(2, 3, n=config.vocab_size, seed=22).astype(np.int64)
        close(
            call(cell, idx), expected_sum(cell, idx), name=f"the result for {sizes} and int64 ids", known=both_mistakes(cell, idx),
            look="sizes that are written as numbers: take them from config; ids that are converted",
        )


@checks(BOTH, "two tables, also where they have the same size")
def both_apart(TokenAndPosition):
    config = SimpleNamespace(vocab_size=6, n_ctx=6, n_layer=1, n_head=2, n_embd=4)
    cell = TokenAndPosition(config)
    start = arrays(cell)
    if set(start) != {"wte.weight", "wpe.weight"} or np.array_equal(start["wte.weight"], start["wpe.weight"]):
        fail(
            "wte and wpe are one table, or start with the same numbers: token 3 and position 3 would then be the same vector.",
            look="whether __init__ makes two Embeddings",
        )
    kept = {name: value.copy() for name, value in start.items()}
    fill(TokenAndPosition(config))
    if not all(np.array_equal(kept[name], value) for name, value in arrays(cell).items()):
        fail("two modules share a table: changing one changes the other.", look="a table that is made outside __init__, or kept on the class")


@checks(BOTH, "the gradients of both tables")
def both_gradients(TokenAndPosition):
    cell = fill(TokenAndPosition(CONFIG))
    idx = np.array([[1, 4, 1, 0], [1, 10, 4, 1], [9, 9, 9, 9]], np.int32)
    grad = torch.from_numpy(rand(3, 4, 6, seed=99))
    places = torch.arange(4).expand(3, 4)
    wanted = [in_pytorch.added_up(grad, torch_ids(idx), 11).numpy(), in_pytorch.added_up(grad, places, 7).numpy()]
    got = gradients_of(cell, [idx], [cell.wte.weight, cell.wpe.weight])
    for name, mine in zip(["wte.weight", "wpe.weight"], got):
        if not np.abs(mine).max() > 0:
            fail(f"no gradient reaches {name}: that table would never be trained.", look=CUT)
    gradients_close(got, wanted, ["wte.weight", "wpe.weight"])


@checks(BOTH, "the initial numbers")
def both_initial(TokenAndPosition):
    cell = TokenAndPosition(SimpleNamespace(vocab_size=400, n_ctx=300, n_layer=1, n_head=2, n_embd=320))
    initial_numbers(cell.wte.weight.asnumpy(), "wte.weight")
    initial_numbers(cell.wpe.weight.asnumpy(), "wpe.weight")


@checks(BOTH, "the same in graph mode", seconds=20)
def both_graph(TokenAndPosition):
    cell = fill(TokenAndPosition(CONFIG))
    for B, T in [(2, 7), (3, 4)]:
        same_in_graph_mode(cell, rand_ids(B, T, n=11, seed=28))
