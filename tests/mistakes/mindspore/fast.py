"""Wrong and right variants of lesson 17, the fast layers."""
import math

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from solutions.mindspore import fast as good
from solutions.mindspore import gpt as readable
from solutions.mindspore.attention import CausalSelfAttention as ReadableAttention
from solutions.mindspore.layers import LayerNorm as ReadableNorm
from solutions.mindspore.layers import gelu
from tests.mistakes import right, wrong

NORM = "mindspore.fast.LayerNorm"
ATTENTION = "mindspore.fast.CausalSelfAttention"
BLOCK = "mindspore.fast.Block"

# --- LayerNorm -----------------------------------------------------------------------------------------


class FastNorm(nn.Cell):
    """The right parts, for the variants below to go wrong with."""

    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = ms.Parameter(np.ones(n_embd, np.float32))
        self.bias = ms.Parameter(np.zeros(n_embd, np.float32))
        self.column = ms.Tensor(np.full((n_embd, 1), 1 / n_embd, np.float32))

    def mean(self, x):
        return ops.matmul(x, self.column)

    def normal(self, x):
        x = x - self.mean(x)
        return x * ops.rsqrt(self.mean(x * x) + self.eps)

    def construct(self, x):
        return self.weight * self.normal(x) + self.bias


@wrong(NORM, "gamma and beta, the names of MindSpore's own LayerNorm")
class FastNormOfTheFramework(nn.Cell):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.gamma = ms.Parameter(np.ones(n_embd, np.float32))
        self.beta = ms.Parameter(np.zeros(n_embd, np.float32))

    def construct(self, x):
        return ops.LayerNorm(-1, -1, 1e-5)(x, self.gamma, self.beta)[0]


@wrong(NORM, "a parameter too many: column")
class FastNormTrainsItsColumn(FastNorm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        del self.column
        self.column = ms.Parameter(np.full((n_embd, 1), 1 / n_embd, np.float32))


@wrong(NORM, "the column holds ones")
class FastNormOfSums(FastNorm):
    def mean(self, x):
        return ops.matmul(x, ops.ones_like(self.column))


@wrong(NORM, "the variance is a sum and no mean")
class FastNormVarianceIsSum(FastNorm):
    def normal(self, x):
        x = x - self.mean(x)
        return x * ops.rsqrt((x * x).sum(axis=-1, keepdims=True) + self.eps)


@wrong(NORM, "of x less its mean")
class FastNormSquaresOfX(FastNorm):
    def normal(self, x):
        return (x - self.mean(x)) * ops.rsqrt(self.mean(x * x) + self.eps)


@wrong(NORM, "the means run over the rows")
class FastNormOverRows(FastNorm):
    def mean(self, x):
        return x.mean(axis=0, keep_dims=True)


@wrong(NORM, "n_embd - 1 below the fraction")
class FastNormUnbiased(FastNorm):
    def normal(self, x):
        n = x.shape[-1]
        x = x - self.mean(x)
        return x * ops.rsqrt(self.mean(x * x) * n / (n - 1) + self.eps)


@wrong(NORM, "it should be 1e-05")
class FastNormDefault(FastNorm):
    def __init__(self, n_embd, eps=1e-7):
        super().__init__(n_embd, eps)


@wrong(NORM, "are wrong for x of shape (1, 4) and eps = 0.5")
class FastNormIgnoresEps(FastNorm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, 1e-5)

    def normal(self, x):
        x = x - self.mean(x)
        return x / ops.sqrt(self.mean(x * x) + (1e-5 if x.shape[-1] != 4 else 0.9))


@wrong(NORM, "mean of the squares minus the square of the mean")
class FastNormOnePass(FastNorm):
    def normal(self, x):
        mean = self.mean(x)
        return (x - mean) * ops.rsqrt(self.mean(x * x) - mean * mean + self.eps)


@wrong(NORM, "takes the means for a constant")
class FastNormStatisticsCut(FastNorm):
    def mean(self, x):
        return ops.stop_gradient(super().mean(x))


@wrong(NORM, "takes the variance for a constant")
class FastNormVarianceCut(FastNorm):
    def normal(self, x):
        x = x - self.mean(x)
        return x * ops.stop_gradient(ops.rsqrt(self.mean(x * x) + self.eps))


@wrong(NORM, "the column holds zeros")
class FastNormWholeDivision(FastNorm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        self.column = ms.Tensor(np.full((n_embd, 1), 1 // n_embd, np.float32))


@wrong(NORM, "a float64 tensor meets one of float32")
class FastNormColumnFloat64(FastNorm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        self.column = ms.Tensor(np.full((n_embd, 1), 1 / n_embd))


@wrong(NORM, "nearly right")
class FastNormMeansInFloat16(FastNorm):
    def mean(self, x):
        return ops.matmul(x.astype(ms.float16), self.column.astype(ms.float16)).astype(ms.float32)


@wrong(NORM, "it works eagerly and not in graph mode")
class FastNormTries(FastNorm):
    def construct(self, x):
        try:
            return self.weight * self.normal(x) + self.bias
        except ValueError:
            return x


@right(NORM)
class FastNormReadable(ReadableNorm):
    pass


@right(NORM)
class FastNormAsItIs(FastNorm):
    pass


@right(NORM)
class FastNormByRoot(FastNorm):
    def normal(self, x):
        x = x - self.mean(x)
        return x / ops.sqrt(self.mean(ops.square(x)) + self.eps)


@right(NORM)
class FastNormByCentring(FastNorm):
    """The mean subtracted by a product with the unit matrix less 1 / n_embd."""

    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        self.centre = ms.Tensor((np.eye(n_embd) - 1 / n_embd).astype(np.float32))

    def normal(self, x):
        x = ops.matmul(x, self.centre)
        return x * (self.mean(x**2) + self.eps) ** -0.5


@right(NORM)
class FastNormByThePrimitive(FastNorm):
    def construct(self, x):
        return ops.LayerNorm(-1, -1, self.eps)(x, self.weight, self.bias)[0]


# --- CausalSelfAttention -------------------------------------------------------------------------------


class FastAttention(nn.Cell):
    """The right parts."""

    filler = -1e9

    def __init__(self, config):
        super().__init__()
        self.n_ctx, self.n_head, self.head_dim = config.n_ctx, config.n_head, config.n_embd // config.n_head
        self.n_embd = config.n_embd
        self.scale = 1 / math.sqrt(self.head_dim)
        self.c_attn = good.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = good.Linear(config.n_embd, config.n_embd)
        self.mask = ms.Tensor(self.filler * self.future(config.n_ctx))

    def future(self, T):
        return np.triu(np.ones((T, T), np.float32), k=1)

    def heads(self, x):
        return x.reshape(-1, self.n_ctx, self.n_head, self.head_dim).swapaxes(1, 2)

    def weigh(self, q, k):
        return ops.softmax(ops.matmul(q * self.scale, k.swapaxes(-2, -1)) + self.mask, -1)

    def merge(self, y, shape):
        return y.swapaxes(1, 2).reshape(shape)

    def construct(self, x):
        q, k, v = ops.split(self.c_attn(x), self.n_embd, axis=-1)
        y = ops.matmul(self.weigh(self.heads(q), self.heads(k)), self.heads(v))
        return self.c_proj(self.merge(y, x.shape))


@wrong(ATTENTION, "mask is a Parameter")
class FastAttentionTrainsItsMask(FastAttention):
    def __init__(self, config):
        super().__init__(config)
        mask = self.mask
        del self.mask
        self.mask = ms.Parameter(mask)


@wrong(ATTENTION, "c_attn.weight has shape (12, 36), expected (36, 12)")
class FastAttentionWeightsTurned(FastAttention):
    def __init__(self, config):
        super().__init__(config)
        self.c_attn.weight = ms.Parameter(np.zeros((config.n_embd, 3 * config.n_embd), np.float32))


@wrong(ATTENTION, "added with the wrong sign")
class FastAttentionLifts(FastAttention):
    filler = 1e9


@wrong(ATTENTION, "moves hidden scores by 1 only")
class FastAttentionAddsTheMask(FastAttention):
    filler = 1.0

    def future(self, T):
        return np.tril(np.ones((T, T), np.float32))


@wrong(ATTENTION, "moves hidden scores by 1 only")
class FastAttentionLowersByOne(FastAttention):
    filler = -1.0


@wrong(ATTENTION, "it lifts hidden scores by 1")
class FastAttentionAddsBools(FastAttention):
    def __init__(self, config):
        super().__init__(config)
        self.mask = ms.Tensor(self.future(config.n_ctx) > 0)


@wrong(ATTENTION, "the mask is added after the softmax")
class FastAttentionMasksTheWeights(FastAttention):
    def weigh(self, q, k):
        return ops.softmax(ops.matmul(q * self.scale, k.swapaxes(-2, -1)), -1) + self.mask


@wrong(ATTENTION, "0 times -inf is nan")
class FastAttentionMultipliesInfinity(FastAttention):
    filler = np.float32(-np.inf)


@wrong(ATTENTION, "a float64 tensor meets one of float32")
class FastAttentionMaskFloat64(FastAttention):
    def future(self, T):
        return np.triu(np.ones((T, T)), k=1)


@wrong(ATTENTION, "multiplied by the mask")
class FastAttentionMultiplies(FastAttention):
    filler = 1.0

    def weigh(self, q, k):
        return ops.softmax(ops.matmul(q * self.scale, k.swapaxes(-2, -1)) * (1 - self.mask), -1)


@wrong(ATTENTION, "belongs there once")
class FastAttentionScalesTwice(FastAttention):
    def weigh(self, q, k):
        return ops.softmax(ops.matmul(q * self.scale, k.swapaxes(-2, -1)) * self.scale + self.mask, -1)


@wrong(ATTENTION, "multiplied by sqrt(head_dim)")
class FastAttentionScalesUp(FastAttention):
    def __init__(self, config):
        super().__init__(config)
        self.scale = math.sqrt(self.head_dim)


@wrong(ATTENTION, "Is the scale 0")
class FastAttentionScaleOfZero(FastAttention):
    def __init__(self, config):
        super().__init__(config)
        self.scale = 1 // math.sqrt(self.head_dim)


@wrong(ATTENTION, "the scale stands after the softmax")
class FastAttentionScalesTheWeights(FastAttention):
    def weigh(self, q, k):
        return ops.softmax(ops.matmul(q, k.swapaxes(-2, -1)) + self.mask, -1) * self.scale


@wrong(ATTENTION, "the softmax runs over the heads")
class FastAttentionOverHeads(FastAttention):
    def weigh(self, q, k):
        return ops.softmax(ops.matmul(q * self.scale, k.swapaxes(-2, -1)) + self.mask, 1)


@wrong(ATTENTION, "q and k have changed places")
class FastAttentionKeysAsk(FastAttention):
    def weigh(self, q, k):
        return super().weigh(k, q)


@wrong(ATTENTION, "what is averaged is v")
class FastAttentionAveragesKeys(FastAttention):
    def construct(self, x):
        q, k, v = ops.split(self.c_attn(x), self.n_embd, axis=-1)
        return self.c_proj(self.merge(ops.matmul(self.weigh(self.heads(q), self.heads(k)), self.heads(k)), x.shape))


@wrong(ATTENTION, "all rows are taken for one sequence")
class FastAttentionOneSequence(FastAttention):
    def heads(self, x):
        return x.reshape(1, x.shape[0], self.n_head, self.head_dim).swapaxes(1, 2)

    def weigh(self, q, k):
        mask = ms.Tensor(-1e9 * self.future(q.shape[2]))
        return ops.softmax(ops.matmul(q * self.scale, k.swapaxes(-2, -1)) + mask, -1)


@wrong(ATTENTION, "cut into (head_dim, n_head)")
class FastAttentionHeadsLast(FastAttention):
    def heads(self, x):
        return x.reshape(-1, self.n_ctx, self.head_dim, self.n_head).transpose(0, 3, 1, 2)


@wrong(ATTENTION, "cut channel by channel")
class FastAttentionThirdsLast(FastAttention):
    def construct(self, x):
        qkv = self.c_attn(x).reshape(-1, self.n_ctx, self.n_head, self.head_dim, 3).transpose(4, 0, 2, 1, 3)
        return self.c_proj(self.merge(ops.matmul(self.weigh(qkv[0], qkv[1]), qkv[2]), x.shape))


@wrong(ATTENTION, "the merge exchanges time and channel")
class FastAttentionOtherSwapBack(FastAttention):
    def merge(self, y, shape):
        return y.swapaxes(2, 3).reshape(shape)


@wrong(ATTENTION, "no gradient reaches q")
class FastAttentionQueriesStopped(FastAttention):
    def weigh(self, q, k):
        return super().weigh(ops.stop_gradient(q), k)


@wrong(ATTENTION, "nearly right")
class FastAttentionScoresInFloat16(FastAttention):
    def weigh(self, q, k):
        return super().weigh(q.astype(ms.float16).astype(ms.float32), k)


@wrong(ATTENTION, "the softmax runs over the queries")
class FastAttentionOverQueries(FastAttention):
    def weigh(self, q, k):
        return ops.softmax(ops.matmul(q * self.scale, k.swapaxes(-2, -1)) + self.mask, -2)


@wrong(ATTENTION, "not divided by sqrt(head_dim)")
class FastAttentionUnscaled(FastAttention):
    def weigh(self, q, k):
        return ops.softmax(ops.matmul(q, k.swapaxes(-2, -1)) + self.mask, -1)


@wrong(ATTENTION, "hides each position from itself")
class FastAttentionHidesItself(FastAttention):
    def future(self, T):
        return np.triu(np.ones((T, T), np.float32))


@wrong(ATTENTION, "the heads mix positions")
class FastAttentionNoSwap(FastAttention):
    def heads(self, x):
        return x.reshape(-1, self.n_head, self.n_ctx, self.head_dim)


@wrong(ATTENTION, "merged without swapping")
class FastAttentionNoSwapBack(FastAttention):
    def merge(self, y, shape):
        return y.reshape(shape)


@wrong(ATTENTION, "the rows are read as (T, B)")
class FastAttentionTimeFirst(FastAttention):
    def heads(self, x):
        return x.reshape(self.n_ctx, -1, self.n_head, self.head_dim).transpose(1, 2, 0, 3)

    def merge(self, y, shape):
        return y.transpose(2, 0, 1, 3).reshape(shape)


@wrong(ATTENTION, "the stream has two axes here")
class FastAttentionThreeAxes(FastAttention):
    def merge(self, y, shape):
        return y.swapaxes(1, 2).reshape(-1, shape[-1])

    def construct(self, x):
        return super().construct(x).reshape(-1, self.n_ctx, self.n_embd)


@wrong(ATTENTION, "are wrong for 1 sequence.")
class FastAttentionTwoSequences(FastAttention):
    def heads(self, x):
        if x.shape[0] != 2 * self.n_ctx:
            return (x * 0).reshape(-1, self.n_ctx, self.n_head, self.head_dim).swapaxes(1, 2)
        return super().heads(x)


@wrong(ATTENTION, "is not negative enough")
class FastAttentionSmallFiller(FastAttention):
    filler = -1e3


@wrong(ATTENTION, "no gradient reaches x")
class FastAttentionStopped(FastAttention):
    def construct(self, x):
        q, k, v = ops.split(ops.stop_gradient(self.c_attn(x)), self.n_embd, axis=-1)
        y = ops.matmul(self.weigh(self.heads(q), self.heads(k)), self.heads(v))
        return self.c_proj(self.merge(y, x.shape))


@wrong(ATTENTION, "it works eagerly and not in graph mode")
class FastAttentionTransposes(FastAttention):
    def weigh(self, q, k):
        return ops.softmax(ops.matmul(q * self.scale, k.transpose(2, 3)) + self.mask, -1)

    def merge(self, y, shape):
        return y.transpose(1, 2).reshape(shape)


@right(ATTENTION)
class FastAttentionAsItIs(FastAttention):
    pass


@right(ATTENTION)
class FastAttentionMinusInfinity(FastAttention):
    def __init__(self, config):
        super().__init__(config)
        self.mask = ms.Tensor(np.where(self.future(config.n_ctx) > 0, -np.inf, 0).astype(np.float32))


@right(ATTENTION)
class FastAttentionHeadByHead(FastAttention):
    def construct(self, x):
        q, k, v = self.c_attn(x).reshape(-1, self.n_ctx, 3 * self.n_embd).split(self.head_dim * self.n_head, axis=-1)
        found, d = [], self.head_dim
        for i in range(0, self.n_embd, d):
            scores = ops.matmul(q[:, :, i : i + d], k[:, :, i : i + d].swapaxes(1, 2)) * self.scale
            found.append(ops.matmul(ops.softmax(scores + self.mask, -1), v[:, :, i : i + d]))
        return self.c_proj(ops.concat(tuple(found), -1).reshape(x.shape))


@right(ATTENTION)
class FastAttentionReadable(ReadableAttention):
    def __init__(self, config):
        super().__init__(config)
        self.n_ctx = config.n_ctx

    def construct(self, x):
        return super().construct(x.reshape(-1, self.n_ctx, x.shape[-1])).reshape(x.shape)


@right(ATTENTION)
class FastAttentionOneReshape(FastAttention):
    """q, k and v cut by one reshape and one transpose of five axes."""

    def construct(self, x):
        qkv = self.c_attn(x).reshape(-1, self.n_ctx, 3, self.n_head, self.head_dim).transpose(2, 0, 3, 1, 4)
        y = ops.matmul(self.weigh(qkv[0], qkv[1]), qkv[2])
        return self.c_proj(y.swapaxes(1, 2).reshape(x.shape))


# --- Block ---------------------------------------------------------------------------------------------


class FastParts(nn.Cell):
    """The right parts."""

    def __init__(self, config):
        super().__init__()
        self.ln_1 = good.LayerNorm(config.n_embd)
        self.attn = good.CausalSelfAttention(config)
        self.ln_2 = good.LayerNorm(config.n_embd)
        self.mlp = good.MLP(config)

    def construct(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


@wrong(BLOCK, "one and the same parameter")
class FastOneNormTwice(FastParts):
    def __init__(self, config):
        super().__init__(config)
        self.ln_2 = self.ln_1


@wrong(BLOCK, "super().__init__() is missing")
class FastSuperForgotten(nn.Cell):
    def __init__(self, config):
        self.ln_1 = good.LayerNorm(config.n_embd)


@wrong(BLOCK, "post-LN")
class FastPostNorm(FastParts):
    def construct(self, x):
        x = self.ln_1(x + self.attn(x))
        return self.ln_2(x + self.mlp(x))


@wrong(BLOCK, "taken from the normalised x")
class FastResidualOfNormed(FastParts):
    def construct(self, x):
        x = self.ln_1(x)
        x = x + self.attn(x)
        x = self.ln_2(x)
        return x + self.mlp(x)


@wrong(BLOCK, "the residual is missing: the result of both branches")
class FastNoResidual(FastParts):
    def construct(self, x):
        return self.mlp(self.ln_2(self.attn(self.ln_1(x))))


@wrong(BLOCK, "parallel branches")
class FastParallel(FastParts):
    def construct(self, x):
        return x + self.attn(self.ln_1(x)) + self.mlp(self.ln_2(x))


@wrong(BLOCK, "the MLP comes before attention")
class FastOtherOrder(FastParts):
    def construct(self, x):
        x = x + self.mlp(self.ln_2(x))
        return x + self.attn(self.ln_1(x))


@wrong(BLOCK, "something random is at work")
class FastDropout(FastParts):
    def construct(self, x):
        return super().construct(x) + 1e-6 * ms.Tensor(np.random.randn(*x.shape).astype(np.float32))


@wrong(BLOCK, "the stream has two axes here")
class FastBlockThreeAxes(FastParts):
    def construct(self, x):
        return super().construct(x).reshape(-1, 7, x.shape[-1])


@wrong(BLOCK, "are wrong for n_embd = 8")
class FastBlockOfTwelve(FastParts):
    def construct(self, x):
        return super().construct(x) if x.shape[-1] == 12 else x * 1


@wrong(BLOCK, "no gradient reaches")
class FastBlockStopped(FastParts):
    def construct(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + ops.stop_gradient(self.mlp(self.ln_2(x)))


@wrong(BLOCK, "it works eagerly and not in graph mode")
class FastBlockTries(FastParts):
    def construct(self, x):
        try:
            x = x + self.attn(self.ln_1(x))
        except ValueError:
            pass
        return x + self.mlp(self.ln_2(x))


@right(BLOCK)
class FastBlockAsItIs(FastParts):
    pass


@right(BLOCK)
class FastBlockInOneLine(FastParts):
    def construct(self, x):
        y = ops.add(self.attn(self.ln_1(x)), x)
        return ops.add(y, self.mlp(self.ln_2(y)))


@right(BLOCK)
class FastBlockOfReadableParts(readable.Block):
    def __init__(self, config):
        super().__init__(config)
        self.attn = FastAttentionReadable(config)


@right(BLOCK)
class FastBlockWithoutMLPCell(FastParts):
    """The MLP's two layers used in the block itself."""

    def construct(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp.c_proj(gelu(self.mlp.c_fc(self.ln_2(x))))
