import math

import mindspore as ms
import numpy as np
from mindspore import mint, nn, ops

from solutions.mindspore import embeddings as good
from tests.mistakes import right, wrong

EMBEDDING = "mindspore.embeddings.Embedding"
BOTH = "mindspore.embeddings.TokenAndPosition"


def normal(*shape, std=0.02):
    return ms.Parameter((std * np.random.randn(*shape)).astype(np.float32))


# --- Embedding -----------------------------------------------------------------------------------------


class Table(nn.Cell):
    """The right parts, for the variants below to go wrong with."""

    def __init__(self, n, n_embd):
        super().__init__()
        self.weight = normal(n, n_embd)

    def construct(self, idx):
        return ops.gather(self.weight, idx, 0)


@wrong(EMBEDDING, "one column a token")
class TableTransposed(nn.Cell):
    def __init__(self, n, n_embd):
        super().__init__()
        self.weight = normal(n_embd, n)

    def construct(self, idx):
        return ops.gather(self.weight.swapaxes(0, 1), idx, 0)


@wrong(EMBEDDING, "plain tensor")
class TablePlain(nn.Cell):
    def __init__(self, n, n_embd):
        super().__init__()
        self.weight = ms.Tensor((0.02 * np.random.randn(n, n_embd)).astype(np.float32))

    def construct(self, idx):
        return ops.gather(self.weight, idx, 0)


@wrong(EMBEDDING, "called embedding_table")
class TableOfMindSpore(nn.Embedding):
    pass


@wrong(EMBEDDING, "no parameter weight; it has: inner.embedding_table")
class TableInside(nn.Cell):
    def __init__(self, n, n_embd):
        super().__init__()
        self.inner = nn.Embedding(n, n_embd)

    def construct(self, idx):
        return self.inner(idx)


@wrong(EMBEDDING, "is float64")
class TableInFloat64(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight = ms.Parameter(0.02 * np.random.randn(n, n_embd))


@wrong(EMBEDDING, "a MindSpore cell runs construct")
class TableForward(nn.Cell):
    def __init__(self, n, n_embd):
        super().__init__()
        self.weight = normal(n, n_embd)

    def forward(self, idx):
        return ops.gather(self.weight, idx, 0)


@wrong(EMBEDDING, "super().__init__() must come first")
class TableWithoutSuper(nn.Cell):
    def __init__(self, n, n_embd):
        self.weight = normal(n, n_embd)

    def construct(self, idx):
        return ops.gather(self.weight, idx, 0)


@wrong(EMBEDDING, "a parameter too many: bias")
class TableWithBias(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.bias = ms.Parameter(np.zeros(n_embd, np.float32))


@wrong(EMBEDDING, "requires_grad=False")
class TableFrozen(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight.requires_grad = False


@wrong(EMBEDDING, "columns of the table are read")
class TableColumns(Table):
    def construct(self, idx):
        return ops.gather(self.weight, idx, 1)


@wrong(EMBEDDING, "one too early")
class TableFromOne(Table):
    def construct(self, idx):
        return ops.gather(self.weight, idx - 1, 0)


@wrong(EMBEDDING, "multiplied by sqrt(n_embd)")
class TableScaled(Table):
    def construct(self, idx):
        return ops.gather(self.weight, idx, 0) * math.sqrt(self.weight.shape[1])


@wrong(EMBEDDING, "not in this order")
class TableAndIdsSwapped(Table):
    def construct(self, idx):
        return ops.gather(idx, self.weight, 0)


@wrong(EMBEDDING, "no kernel on this device")
class TableByMint(Table):
    def construct(self, idx):
        return mint.nn.functional.embedding(idx, self.weight)


@wrong(EMBEDDING, "0.02 again")
class TableScaledTwice(Table):
    def construct(self, idx):
        return 0.02 * ops.gather(self.weight, idx, 0)


@wrong(EMBEDDING, "token 0 gets a vector of zeros")
class TableWithPadding(Table):
    def construct(self, idx):
        return ops.gather(self.weight, idx, 0) * (idx != 0).expand_dims(-1).astype(self.weight.dtype)


@wrong(EMBEDDING, "type numpy.ndarray")
class TableInNumPy(Table):
    def construct(self, idx):
        return self.weight.asnumpy()[idx.asnumpy()]


@wrong(EMBEDDING, "is None")
class TableForgotReturn(Table):
    def construct(self, idx):
        ops.gather(self.weight, idx, 0)


@wrong(EMBEDDING, "something random is at work")
class TableWithDropout(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.dropout = nn.Dropout(p=0.1)

    def construct(self, idx):
        return self.dropout(ops.gather(self.weight, idx, 0))


@wrong(EMBEDDING, "an axis of length 1 is lost")
class TableSqueezes(Table):
    def construct(self, idx):
        rows = ops.gather(self.weight, idx, 0)
        return rows.squeeze(0) if idx.shape == (1,) else rows


@wrong(EMBEDDING, "int16 and float16 cannot count")
class TableOfShortIds(Table):
    def construct(self, idx):
        return ops.gather(self.weight, idx.astype(ms.int16), 0)


@wrong(EMBEDDING, "no gradient reaches weight")
class TableStopped(Table):
    def construct(self, idx):
        return ops.gather(ops.stop_gradient(self.weight), idx, 0)


@wrong(EMBEDDING, "no gradient reaches weight")
class TableCopied(Table):
    def construct(self, idx):
        return ms.Tensor(self.weight.asnumpy()[idx.asnumpy()])


@wrong(EMBEDDING, "the gradient of weight")
class TableHalfStopped(Table):
    def construct(self, idx):
        rows = ops.gather(self.weight, idx, 0)
        return 0.5 * rows + 0.5 * ops.stop_gradient(rows)


@wrong(EMBEDDING, "default of MindSpore's nn.Embedding")
class TableMindSporesStart(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight = ms.Parameter(ms.common.initializer.initializer("normal", (n, n_embd), ms.float32))


@wrong(EMBEDDING, "PyTorch's default")
class TableStandardNormal(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight = normal(n, n_embd, std=1.0)


@wrong(EMBEDDING, "not centred")
class TablePositive(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight = ms.Parameter((0.02 * np.random.rand(n, n_embd)).astype(np.float32))


@wrong(EMBEDDING, "start with the same numbers")
class TableSeeded(Table):
    def __init__(self, n, n_embd):
        np.random.seed(0)
        super().__init__(n, n_embd)


@wrong(EMBEDDING, "old rows come back")
class TableKeepsACopy(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.table = ms.Tensor(self.weight.asnumpy().copy())

    def construct(self, idx):
        return ops.gather(self.table, idx, 0)


@wrong(EMBEDDING, "old rows come back")
class TableKeepsTheFirstCall(Table):
    kept = None

    def construct(self, idx):
        if self.kept is None:
            self.kept = self.weight.asnumpy().copy()
        return ops.gather(ms.Tensor(self.kept), idx, 0)


@wrong(EMBEDDING, "expected Float16")
class TableAlwaysFloat32(Table):
    def construct(self, idx):
        return ops.gather(self.weight, idx, 0).astype(ms.float32)


@wrong(EMBEDDING, "works eagerly and not in graph mode: try does not exist")
class TableTries(Table):
    def construct(self, idx):
        try:
            return ops.gather(self.weight, idx, 0)
        except RuntimeError:
            return ops.gather(self.weight, idx * 0, 0)


@wrong(EMBEDDING, "asnumpy() leaves the graph")
class TableLooksAtIds(Table):
    def construct(self, idx):
        if idx.max() >= len(self.weight.asnumpy()):
            raise IndexError("a token id that has no row")
        return ops.gather(self.weight, idx, 0)


@wrong(EMBEDDING, "must be called self")
class TableOfThis(Table):
    def construct(this, idx):
        return ops.gather(this.weight, idx, 0)


@wrong(EMBEDDING, "calls itself table")
class TableNamed(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight = ms.Parameter(self.weight.asnumpy(), name="table")


@wrong(EMBEDDING, "ids may have any number of axes")
class TableForTwoAxes(Table):
    def construct(self, idx):
        B, T = idx.shape
        return ops.gather(self.weight, idx.reshape(B * T), 0).reshape(B, T, self.weight.shape[1])


@wrong(EMBEDDING, "the mean comes first")
class TableOfSwappedArguments(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight = ms.Parameter(np.random.normal(0.02, 1.0, (n, n_embd)).astype(np.float32))


@wrong(EMBEDDING, "1/sqrt(n_embd)")
class TableScaledByWidth(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight = normal(n, n_embd, std=n_embd**-0.5)


@right(EMBEDDING)
class TableByIndex(Table):
    def construct(self, idx):
        return self.weight[idx]


@right(EMBEDDING)
class TableByOneHot(Table):
    def construct(self, idx):
        hot = idx.expand_dims(-1) == ops.arange(self.weight.shape[0])
        return ops.matmul(hot.astype(self.weight.dtype), self.weight)


@right(EMBEDDING)
class TableByIndexSelect(Table):
    def construct(self, idx):
        return ops.index_select(self.weight, 0, idx.reshape(-1)).reshape(idx.shape + (-1,))


@right(EMBEDDING)
class TableByPrimitive(nn.Cell):
    def __init__(self, n, n_embd):
        super().__init__()
        start = ms.common.initializer.initializer(ms.common.initializer.Normal(0.02), (n, n_embd), ms.float32)
        self.weight = ms.Parameter(start, name="weight")
        self.gather = ops.Gather()

    def construct(self, idx):
        return self.gather(self.weight, idx, 0)


@right(EMBEDDING)
class TableOfMindSporeRenamed(nn.Cell):
    def __init__(self, n, n_embd):
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(np.random.normal(0, 0.02, (n, n_embd)), ms.float32))

    def construct(self, idx):
        flat = ops.gather(self.weight, idx.view(-1), 0)
        return flat.view(*idx.shape, -1)


# --- TokenAndPosition ----------------------------------------------------------------------------------


class Sum(nn.Cell):
    """The right parts, for the variants below to go wrong with."""

    def __init__(self, config):
        super().__init__()
        self.wte = good.Embedding(config.vocab_size, config.n_embd)
        self.wpe = good.Embedding(config.n_ctx, config.n_embd)

    def place(self, idx):
        return ops.arange(idx.shape[1])

    def construct(self, idx):
        return self.wte(idx) + self.wpe(self.place(idx))


@wrong(BOTH, "the two tables are swapped")
class TablesSwapped(Sum):
    def __init__(self, config):
        nn.Cell.__init__(self)
        self.wte = good.Embedding(config.n_ctx, config.n_embd)
        self.wpe = good.Embedding(config.vocab_size, config.n_embd)


@wrong(BOTH, "wpe has a row for each token")
class PositionsForEachToken(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.wpe = good.Embedding(config.vocab_size, config.n_embd)


@wrong(BOTH, "whose parameter is called embedding_table")
class TablesOfMindSpore(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_ctx, config.n_embd)


@wrong(BOTH, "no learned table of positions")
class PositionsInAList(Sum):
    def __init__(self, config):
        super().__init__(config)
        del self.wpe
        self.tables = [good.Embedding(config.n_ctx, config.n_embd)]

    def construct(self, idx):
        return self.wte(idx) + self.tables[0](self.place(idx))


def waves(T, C):
    angle = np.arange(T)[:, None] / 10_000 ** (np.arange(0, C, 2) / C)
    return ms.Tensor(np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(T, C).astype(np.float32))


@wrong(BOTH, "sines and cosines")
class Sinusoidal(Sum):
    def construct(self, idx):
        return self.wte(idx) + waves(idx.shape[1], self.wpe.weight.shape[1])


@wrong(BOTH, "the position is missing")
class PositionForgotten(Sum):
    def construct(self, idx):
        return self.wte(idx)


@wrong(BOTH, "read with the token ids")
class PositionsFromIds(Sum):
    def place(self, idx):
        return idx


@wrong(BOTH, "used as an index into the positions")
class PositionsFromLargeIds(Sum):
    def construct(self, idx):
        pos = self.wpe(self.place(idx))
        return self.wte(idx) + pos + (0 * self.wpe(idx) if idx.shape[0] == 2 and idx.shape[1] == 4 and idx.asnumpy()[0, 0] == 10 else 0)


@wrong(BOTH, "are multiplied")
class Product(Sum):
    def construct(self, idx):
        return self.wte(idx) * self.wpe(self.place(idx))


@wrong(BOTH, "sqrt(n_embd), as in Vaswani")
class ScaledTokens(Sum):
    def construct(self, idx):
        return self.wte(idx) * math.sqrt(self.wte.weight.shape[1]) + self.wpe(self.place(idx))


@wrong(BOTH, "T is idx.shape[1]")
class AsManyPositionsAsIds(Sum):
    def place(self, idx):
        return ops.arange(idx.size)


@wrong(BOTH, "T is idx.shape[1]")
class PositionsOfTheBatchWithoutAxis(Sum):
    def place(self, idx):
        return ops.arange(idx.shape[0])


@wrong(BOTH, "does not take arguments of this dtype")
class PositionsAsFloats(Sum):
    def place(self, idx):
        return ops.arange(idx.shape[1], dtype=ms.float32)


@wrong(BOTH, "positions are counted from 1")
class PositionsFromOne(Sum):
    def place(self, idx):
        return (ops.arange(idx.shape[1]) + 1) % self.wpe.weight.shape[0]


@wrong(BOTH, "counted from the end")
class PositionsFromTheEnd(Sum):
    def place(self, idx):
        return idx.shape[1] - 1 - ops.arange(idx.shape[1])


@wrong(BOTH, "all n_ctx rows of wpe are added")
class AllPositions(Sum):
    def construct(self, idx):
        return self.wte(idx) + self.wpe.weight


@wrong(BOTH, "run over the batch")
class PositionsOfTheBatch(Sum):
    def construct(self, idx):
        return self.wte(idx) + self.wpe(ops.arange(idx.shape[0])).expand_dims(1)


@wrong(BOTH, "is None")
class SumForgotReturn(Sum):
    def construct(self, idx):
        self.wte(idx) + self.wpe(self.place(idx))


@wrong(BOTH, "something is left from the call between")
class PositionsGoOn(Sum):
    def place(self, idx):
        start = getattr(self, "seen", 0)
        self.seen = start + idx.shape[0] % 2 + (idx.shape[0] == 4)
        return (ops.arange(idx.shape[1]) + start) % self.wpe.weight.shape[0]


@wrong(BOTH, "expected (5, 4)")
class VocabularyWrittenDown(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.wte = good.Embedding(11, config.n_embd)


@wrong(BOTH, "one table")
class OneTableWhereTheyFit(Sum):
    def __init__(self, config):
        super().__init__(config)
        if config.vocab_size == config.n_ctx:
            self.wpe = self.wte


@wrong(BOTH, "no gradient reaches wpe.weight")
class PositionsOutOfReach(Sum):
    def construct(self, idx):
        return self.wte(idx) + ops.stop_gradient(self.wpe(self.place(idx)))


@wrong(BOTH, "wpe.weight starts at 0")
class ZeroPositions(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.wpe.weight.set_data(ms.Tensor(np.zeros((config.n_ctx, config.n_embd), np.float32)))


@wrong(BOTH, "wte.weight are N(0, 0.01), the default of MindSpore's")
class TokensStartAsMindSpores(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.wte.weight.set_data(normal(config.vocab_size, config.n_embd, std=0.01))


@wrong(BOTH, "calls itself weight: a checkpoint and an optimizer know it")
class TokensPutInAnew(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.wte.weight = normal(config.vocab_size, config.n_embd)


@wrong(BOTH, "works eagerly and not in graph mode")
class PositionsTried(Sum):
    def construct(self, idx):
        try:
            pos = self.wpe(self.place(idx))
        except RuntimeError:
            pos = 0
        return self.wte(idx) + pos


@right(BOTH)
class SliceOfTable(Sum):
    def construct(self, idx):
        return self.wte(idx) + self.wpe.weight[: idx.shape[1]]


@right(BOTH)
class PlacesInInit(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.places = ms.Tensor(np.arange(config.n_ctx, dtype=np.int32))

    def place(self, idx):
        return self.places[: idx.shape[1]]


@right(BOTH)
class PositionsForEachSequence(Sum):
    def place(self, idx):
        return ops.broadcast_to(ops.arange(idx.shape[1]).expand_dims(0), idx.shape)


@right(BOTH)
class PositionsFirst(Sum):
    def construct(self, idx):
        B, T = idx.shape
        pos = self.wpe(ops.arange(0, T, dtype=ms.int32)).reshape(1, T, -1)
        return ops.add(pos, self.wte(idx))


@right(BOTH)
class PositionsBySum(Sum):
    def place(self, idx):
        return ops.cumsum(ops.ones_like(idx), 1) - 1


@right(BOTH)
class TablesOfTheirOwn(nn.Cell):
    def __init__(self, config):
        super().__init__()
        self.wte, self.wpe = Table(config.vocab_size, config.n_embd), Table(config.n_ctx, config.n_embd)

    def construct(self, idx):
        tok = self.wte(idx)
        return tok + self.wpe(ops.arange(tok.shape[1]))
