import mindspore as ms
import numpy as np
from mindspore import nn, ops

from tests.mistakes import right, wrong

NORM = "mindspore.layers.LayerNorm"


class Norm(nn.Cell):
    """The right parts, for the variants below to go wrong with."""

    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = ms.Parameter(np.ones(n_embd, np.float32))
        self.bias = ms.Parameter(np.zeros(n_embd, np.float32))

    def mean(self, x):
        return x.mean(axis=-1, keep_dims=True)

    def var(self, x):
        return x.var(axis=-1, keepdims=True)

    def normal(self, x):
        return (x - self.mean(x)) / ops.sqrt(self.var(x) + self.eps)

    def construct(self, x):
        return self.weight * self.normal(x) + self.bias


# parameters


@wrong(NORM, "gamma and beta, the names of MindSpore's own LayerNorm")
class FrameworkNames(nn.Cell):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.gamma = ms.Parameter(np.ones(n_embd, np.float32))
        self.beta = ms.Parameter(np.zeros(n_embd, np.float32))
        self.norm = ops.LayerNorm(-1, -1, eps)

    def construct(self, x):
        return self.norm(x, self.gamma, self.beta)[0]


@wrong(NORM, "norm.gamma and norm.beta, the names of MindSpore's own LayerNorm")
class FrameworkCell(nn.Cell):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.norm = nn.LayerNorm((n_embd,), epsilon=eps)

    def construct(self, x):
        return self.norm(x)


@wrong(NORM, "LayerNorm.weight calls itself gamma")
class NamedGamma(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        self.weight = ms.Parameter(np.ones(n_embd, np.float32), name="gamma")


@wrong(NORM, "'normalized_shape' must be tuple[int]")
class ShapeAsNumber(nn.Cell):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.norm = nn.LayerNorm(n_embd, epsilon=eps)

    def construct(self, x):
        return self.norm(x)


@wrong(NORM, "LayerNorm.weight is a plain tensor")
class PlainTensors(Norm):
    def __init__(self, n_embd, eps=1e-5):
        nn.Cell.__init__(self)
        self.eps = eps
        self.weight, self.bias = ms.Tensor(np.ones(n_embd, np.float32)), ms.Tensor(np.zeros(n_embd, np.float32))


@wrong(NORM, "no parameter weight; it has: none")
class WithoutAffine(Norm):
    def __init__(self, n_embd, eps=1e-5):
        nn.Cell.__init__(self)
        self.eps = eps

    def construct(self, x):
        return self.normal(x)


@wrong(NORM, "np.ones and np.zeros give float64")
class DoubleParameters(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        self.weight, self.bias = ms.Parameter(np.ones(n_embd)), ms.Parameter(np.zeros(n_embd))


@wrong(NORM, "requires_grad=False")
class Frozen(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        self.bias.requires_grad = False


@wrong(NORM, "the other way round")
class InitialSwapped(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        self.weight.set_data(ops.zeros((n_embd,), ms.float32))
        self.bias.set_data(ops.ones((n_embd,), ms.float32))


@wrong(NORM, "weight does not start at 1")
class WeightRandom(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        self.weight.set_data(ms.Tensor(0.02 * np.random.randn(n_embd).astype(np.float32)))


# values


@wrong(NORM, "Bessel")
class BesselAsInPyTorch(Norm):
    def var(self, x):
        return x.var(axis=-1, ddof=1, keepdims=True)


@wrong(NORM, "Bessel")
class BesselStd(Norm):
    def normal(self, x):
        return (x - self.mean(x)) / (x.std(axis=-1, ddof=1, keepdims=True) + self.eps)


@wrong(NORM, "RMSNorm")
class RMS(Norm):
    def normal(self, x):
        return x * ops.rsqrt((x * x).mean(axis=-1, keep_dims=True) + self.eps)


@wrong(NORM, "nothing is divided")
class OnlyCentred(Norm):
    def normal(self, x):
        return x - self.mean(x)


@wrong(NORM, "not by its square root")
class ByVariance(Norm):
    def normal(self, x):
        return (x - self.mean(x)) / (self.var(x) + self.eps)


@wrong(NORM, "multiplied by the standard deviation")
class SqrtForRsqrt(Norm):
    def normal(self, x):
        return (x - self.mean(x)) * ops.sqrt(self.var(x) + self.eps)


@wrong(NORM, "added up and not averaged")
class SumForMean(Norm):
    def var(self, x):
        return ops.square(x - self.mean(x)).sum(axis=-1, keepdims=True)


@wrong(NORM, "over the positions (axis=-2)")
class OverTime(Norm):
    def mean(self, x):
        return x.mean(axis=-2, keep_dims=True)

    def var(self, x):
        return x.var(axis=-2, keepdims=True)


@wrong(NORM, "over positions and channels together")
class DefaultAxesOfThePrimitive(nn.Cell):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = ms.Parameter(np.ones(n_embd, np.float32))
        self.bias = ms.Parameter(np.zeros(n_embd, np.float32))
        self.norm = ops.LayerNorm(epsilon=eps)                # begin_norm_axis is 1: over (T, C)

    def construct(self, x):
        if x.ndim < 3:
            return ops.LayerNorm(-1, -1, self.eps)(x, self.weight, self.bias)[0]
        ones, zeros = ops.ones(x.shape[1:], x.dtype), ops.zeros(x.shape[1:], x.dtype)
        return self.weight * self.norm(x, ones, zeros)[0] + self.bias


@wrong(NORM, "over everything")
class OverAll(Norm):
    def normal(self, x):
        return (x - x.mean()) / ops.sqrt(x.var() + self.eps)


@wrong(NORM, "weight and bias are not used")
class AffineForgotten(Norm):
    def construct(self, x):
        return self.normal(x)


@wrong(NORM, "have changed places")
class AffineSwapped(Norm):
    def construct(self, x):
        return self.bias * self.normal(x) + self.weight


@wrong(NORM, "should be a mindspore.Tensor and is of type builtins.tuple")
class ThreeResultsOfThePrimitive(Norm):
    def construct(self, x):
        return ops.LayerNorm(-1, -1, self.eps)(x, self.weight, self.bias)


@wrong(NORM, "is None")
class ForgotReturn(Norm):
    def construct(self, x):
        self.weight * self.normal(x) + self.bias


@wrong(NORM, "the argument x is changed in place")
class InPlace(Norm):
    def construct(self, x):
        x[...] = x - self.mean(x)
        return self.weight * x * ops.rsqrt((x * x).mean(axis=-1, keep_dims=True) + self.eps) + self.bias


# eps


@wrong(NORM, "eps is missing or far too small: it should be 0.5")
class EpsOfTheFramework(Norm):
    def construct(self, x):
        return ops.LayerNorm(-1, -1)(x, self.weight, self.bias)[0]


@wrong(NORM, "eps stands outside")
class EpsOutside(Norm):
    def normal(self, x):
        return (x - self.mean(x)) / (ops.sqrt(self.var(x)) + self.eps)


@wrong(NORM, "have 1e-7 where nothing is given")
class DefaultOfTheFramework(Norm):
    def __init__(self, n_embd, eps=1e-7):
        super().__init__(n_embd, eps)


@wrong(NORM, "it should be 1e-05")
class DefaultOfBERT(Norm):
    def __init__(self, n_embd, eps=1e-12):
        super().__init__(n_embd, eps)


# shapes, numerics, state


@wrong(NORM, "x of shape (4,)")
class AxisTwo(Norm):
    def normal(self, x):
        return super().normal(x) if x.ndim == 3 else x - self.mean(x)


@wrong(NORM, "not enough values to unpack")
class ThreeAxesOnly(Norm):
    def construct(self, x):
        B, T, C = x.shape
        return super().construct(x.reshape(B * T, C)).reshape(B, T, C)


@wrong(NORM, "0 is divided by 0")
class EpsOnlyWhereNeeded(Norm):
    def normal(self, x):
        v = self.var(x)
        return (x - self.mean(x)) / ops.where(v > 0, ops.sqrt(v + self.eps), ops.zeros_like(v))


@wrong(NORM, "square root of 0 has no slope")
class RootOfVarianceSquared(Norm):
    def normal(self, x):
        std = ops.sqrt(ops.square(x - self.mean(x)).mean(axis=-1, keep_dims=True))
        return (x - self.mean(x)) / ops.sqrt(std * std + self.eps)


@wrong(NORM, "mean of the squares minus the square of the mean")
class OnePass(Norm):
    def var(self, x):
        return (x * x).mean(axis=-1, keep_dims=True) - ops.square(self.mean(x))


@wrong(NORM, "the mean and the variance is treated as a constant")
class StatisticsCut(Norm):
    def normal(self, x):
        mean, variance = ops.stop_gradient(self.mean(x)), ops.stop_gradient(self.var(x))
        return (x - mean) * ops.rsqrt(variance + self.eps)


@wrong(NORM, "no gradient reaches x")
class ThroughNumPy(Norm):
    def construct(self, x):
        a = x.asnumpy()
        a = (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + self.eps)
        return self.weight * ms.Tensor(a) + self.bias


@wrong(NORM, "depends on set_train")
class RunningMean(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        self.kept = 0.0

    def normal(self, x):
        if not self.training:
            return super().normal(x)
        self.kept = 0.9 * self.kept + 0.1 * self.mean(x).mean()
        return super().normal(x) - 0 * self.kept if self.kept is None else super().normal(x) + self.kept


@wrong(NORM, "construct changes weight")
class WritesItsWeight(Norm):
    def construct(self, x):
        y = super().construct(x)
        self.weight.set_data(self.weight * 0.5)
        return y


@wrong(NORM, "it works eagerly and not in graph mode: try does not exist in graph mode.")
class Tries(Norm):
    def construct(self, x):
        try:
            return self.weight * self.normal(x) + self.bias
        except ValueError:
            return x


@wrong(NORM, "it works eagerly and not in graph mode")
class AxesByTranspose(Norm):
    def construct(self, x):
        if x.ndim < 3:
            return self.weight * self.normal(x) + self.bias
        y = x.transpose(1, 2)
        y = (y - y.mean(axis=1, keep_dims=True)) / ops.sqrt(y.var(axis=1, keepdims=True) + self.eps) if y.ndim == 3 else self.normal(x).swapaxes(1, 2)
        return self.weight * y.transpose(1, 2) + self.bias if x.ndim == 3 else self.weight * y.swapaxes(1, 2) + self.bias


# right


@wrong(NORM, "the gradient is right eagerly and wrong in graph mode")
class KeepsTheMean(Norm):
    def construct(self, x):
        self.mean = x.mean(axis=-1, keep_dims=True)
        x = x - self.mean
        return x * ops.rsqrt(ops.square(x).mean(axis=-1, keep_dims=True) + self.eps) * self.weight + self.bias


@wrong(NORM, "the method mean spells it keep_dims")
class KeepdimsForMean(Norm):
    def construct(self, x):
        x = x - x.mean(axis=-1, keepdims=True)
        return x * ops.rsqrt(ops.square(x).mean(axis=-1, keep_dims=True) + self.eps) * self.weight + self.bias


@right(NORM)
class ByThePrimitive(nn.Cell):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.weight = ms.Parameter(np.ones(n_embd, np.float32))
        self.bias = ms.Parameter(np.zeros(n_embd, np.float32))
        self.norm = ops.LayerNorm(begin_norm_axis=-1, begin_params_axis=-1, epsilon=eps)

    def construct(self, x):
        return self.norm(x, self.weight, self.bias)[0]


@right(NORM)
class ByVar(Norm):
    pass


@right(NORM)
class NamedParameters(Norm):
    def __init__(self, n_embd, eps=1e-5):
        nn.Cell.__init__(self)
        self.eps = ms.Tensor(eps, ms.float32)
        self.weight = ms.Parameter(ms.Tensor(np.ones(n_embd), ms.float32), name="weight")
        self.bias = ms.Parameter(ops.zeros((n_embd,), ms.float32), name="bias")

    def normal(self, x):
        x = x - ops.mean(x, -1, True)
        return x / ops.sqrt(ops.mean(ops.square(x), -1, True) + self.eps)


@right(NORM)
class ByMatmul(Norm):
    """Means as a product with a column of 1/C: the fast way of lesson 16."""

    def construct(self, x):
        C = x.shape[-1]
        u = ops.ones((C, 1), x.dtype) / C
        d = x.reshape(-1, C)
        d = d - ops.matmul(d, u)
        y = d * ops.rsqrt(ops.matmul(d * d, u) + self.eps)
        return (self.weight * y + self.bias).reshape(x.shape)


@right(NORM)
class SumsOverC(Norm):
    def normal(self, x):
        C = x.shape[-1]
        d = x - x.sum(axis=-1, keepdims=True) / C
        return d * (d.pow(2).sum(axis=-1, keepdims=True) / C + self.eps) ** -0.5


@right(NORM)
class OverTheFrameworkCell(nn.Cell):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        cell = nn.LayerNorm((n_embd,), epsilon=eps)
        self.weight = ms.Parameter(cell.gamma.asnumpy())
        self.bias = ms.Parameter(cell.beta.asnumpy())
        self.norm = cell.layer_norm

    def construct(self, x):
        return self.norm(x, self.weight, self.bias)[0]
