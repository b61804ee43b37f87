import math

import torch
import torch.nn.functional as F
from torch import nn

from solutions.pytorch import layers as good
from solutions.pytorch.primitives import Linear
from tests.mistakes import right, wrong

NORM = "pytorch.layers.LayerNorm"
BACKWARD = "pytorch.layers.layer_norm_backward"
GELU = "pytorch.layers.gelu"
MLP = "pytorch.layers.MLP"

# --- LayerNorm -----------------------------------------------------------------------------------------


class Norm(nn.Module):
    """The right parts, for the variants below to go wrong with."""

    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(n_embd))
        self.bias = nn.Parameter(torch.zeros(n_embd))

    def mean(self, x):
        return x.mean(-1, keepdim=True)

    def var(self, x):
        return x.var(-1, unbiased=False, keepdim=True)

    def normal(self, x):
        return (x - self.mean(x)) / (self.var(x) + self.eps).sqrt()

    def forward(self, x):
        return self.weight * self.normal(x) + self.bias


@wrong(NORM, "LayerNorm.weight is a plain tensor")
class NormPlain(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        del self.weight, self.bias
        self.weight, self.bias = torch.ones(n_embd), torch.zeros(n_embd)


@wrong(NORM, "LayerNorm.bias is a plain tensor")
class NormPlainBias(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        del self.bias
        self.register_buffer("bias", torch.zeros(n_embd))


@wrong(NORM, "no parameter weight; it has: gamma, beta")
class NormGreek(nn.Module):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(n_embd)), nn.Parameter(torch.zeros(n_embd))

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.gamma, self.beta)


@wrong(NORM, "no parameter weight; it has: none")
class NormWithoutAffine(nn.Module):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], eps=self.eps)


@wrong(NORM, "no parameter bias")
class NormWithoutBias(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        self.bias = None


@wrong(NORM, "LayerNorm.weight has shape (1,)")
class NormOfOneWeight(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(1, eps)


@wrong(NORM, "a parameter too many: eps")
class NormLearnsEps(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        self.eps = nn.Parameter(torch.tensor(eps))


@wrong(NORM, "does not ask for a gradient")
class NormFrozen(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        self.weight.requires_grad_(False)


@wrong(NORM, "weight does not start at 1")
class NormWeightZero(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        nn.init.zeros_(self.weight)


@wrong(NORM, "weight does not start at 1")
class NormWeightRandom(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        nn.init.normal_(self.weight, std=0.02)


@wrong(NORM, "bias does not start at 0")
class NormBiasOne(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        nn.init.ones_(self.bias)


@wrong(NORM, "the other way round")
class NormInitialSwapped(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        nn.init.zeros_(self.weight)
        nn.init.ones_(self.bias)


@wrong(NORM, "Bessel")
class NormBessel(Norm):
    def var(self, x):
        return x.var(-1, keepdim=True)


@wrong(NORM, "Bessel")
class NormBesselStd(Norm):
    def normal(self, x):
        return (x - self.mean(x)) / (x.std(-1, keepdim=True) + self.eps)


@wrong(NORM, "RMSNorm")
class NormRMS(Norm):
    def normal(self, x):
        return x / ((x * x).mean(-1, keepdim=True) + self.eps).sqrt()


@wrong(NORM, "the mean is not subtracted from x")
class NormNotCentred(Norm):
    def normal(self, x):
        return x / (self.var(x) + self.eps).sqrt()


@wrong(NORM, "variance is taken around 0")
class NormRawVariance(Norm):
    def var(self, x):
        return (x * x).mean(-1, keepdim=True)


@wrong(NORM, "nothing is divided")
class NormOnlyCentred(Norm):
    def normal(self, x):
        return x - self.mean(x)


@wrong(NORM, "not by its square root")
class NormByVariance(Norm):
    def normal(self, x):
        return (x - self.mean(x)) / (self.var(x) + self.eps)


@wrong(NORM, "multiplied by the standard deviation")
class NormMultiplies(Norm):
    def normal(self, x):
        return (x - self.mean(x)) * (self.var(x) + self.eps).sqrt()


@wrong(NORM, "added up and not averaged")
class NormToLengthOne(Norm):
    def var(self, x):
        return ((x - self.mean(x)) ** 2).sum(-1, keepdim=True)


@wrong(NORM, "over positions and channels together")
class NormOverTimeAndChannels(Norm):
    def forward(self, x):
        dims = (-2, -1) if x.dim() > 1 else (-1,)
        m, v = x.mean(dims, keepdim=True), x.var(dims, unbiased=False, keepdim=True)
        return self.weight * (x - m) / (v + self.eps).sqrt() + self.bias


@wrong(NORM, "over the batch")
class NormOverBatch(Norm):
    def mean(self, x):
        return x.mean(0, keepdim=True)

    def var(self, x):
        return x.var(0, unbiased=False, keepdim=True)


@wrong(NORM, "over the positions")
class NormOverTime(Norm):
    def mean(self, x):
        return x.mean(1, keepdim=True)

    def var(self, x):
        return x.var(1, unbiased=False, keepdim=True)


@wrong(NORM, "as in BatchNorm")
class NormOverBatchAndTime(Norm):
    def mean(self, x):
        return x.mean((0, 1), keepdim=True)

    def var(self, x):
        return x.var((0, 1), unbiased=False, keepdim=True)


@wrong(NORM, "over everything")
class NormOverAll(Norm):
    def normal(self, x):
        return (x - x.mean()) / (x.var(unbiased=False) + self.eps).sqrt()


@wrong(NORM, "weight and bias are not used")
class NormAffineForgotten(Norm):
    def forward(self, x):
        return self.normal(x)


@wrong(NORM, "bias is not used")
class NormBiasForgotten(Norm):
    def forward(self, x):
        return self.weight * self.normal(x)


@wrong(NORM, "weight is not used")
class NormWeightForgotten(Norm):
    def forward(self, x):
        return self.normal(x) + self.bias


@wrong(NORM, "weight first, then bias")
class NormBiasFirst(Norm):
    def forward(self, x):
        return self.weight * (self.normal(x) + self.bias)


@wrong(NORM, "have changed places")
class NormAffineSwapped(Norm):
    def forward(self, x):
        return self.bias * self.normal(x) + self.weight


@wrong(NORM, "RuntimeError")
class NormKeepdimForgotten(Norm):
    def mean(self, x):
        return x.mean(-1)


@wrong(NORM, "argument x is changed in place")
class NormInPlace(Norm):
    def forward(self, x):
        x -= x.mean(-1, keepdim=True)
        return self.weight * x / (self.var(x) + self.eps).sqrt() + self.bias


@wrong(NORM, "is None")
class NormForgotReturn(Norm):
    def forward(self, x):
        self.weight * self.normal(x) + self.bias


@wrong(NORM, "eps stands outside")
class NormEpsOutside(Norm):
    def normal(self, x):
        return (x - self.mean(x)) / (self.var(x).sqrt() + self.eps)


@wrong(NORM, "eps is missing or far too small: it should be 0.5")
class NormEpsIgnored(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd)


@wrong(NORM, "eps is missing or far too small: it should be 0.5")
class NormEpsWrittenDown(Norm):
    def normal(self, x):
        return (x - self.mean(x)) / (self.var(x) + 1e-6).sqrt()


@wrong(NORM, "eps is missing or far too small")
class NormEpsMissing(Norm):
    def normal(self, x):
        return (x - self.mean(x)) / self.var(x).sqrt()


@wrong(NORM, "eps is subtracted")
class NormEpsSubtracted(Norm):
    def normal(self, x):
        return (x - self.mean(x)) / (self.var(x) - self.eps).abs().sqrt()


@wrong(NORM, "eps is squared")
class NormEpsSquared(Norm):
    def normal(self, x):
        return (x - self.mean(x)) / (self.var(x) + self.eps**2).sqrt()


@wrong(NORM, "bounded by eps from below")
class NormEpsAsBound(Norm):
    def normal(self, x):
        return (x - self.mean(x)) / self.var(x).clamp(min=self.eps).sqrt()


@wrong(NORM, "it should be 1e-05")
class NormDefaultOfBERT(Norm):
    def __init__(self, n_embd, eps=1e-12):
        super().__init__(n_embd, eps)


@wrong(NORM, "it should be 1e-05")
class NormDefaultOfMindSpore(Norm):
    def __init__(self, n_embd, eps=1e-7):
        super().__init__(n_embd, eps)


@wrong(NORM, "it should be 1e-05")
class NormDefaultTooLarge(Norm):
    def __init__(self, n_embd, eps=1e-3):
        super().__init__(n_embd, eps)


@wrong(NORM, "eps stands outside")
class NormEpsOutsideWhenSmall(Norm):
    def normal(self, x):
        if self.eps > 1e-3:
            return super().normal(x)
        return (x - self.mean(x)) / (self.var(x).sqrt() + self.eps)


@wrong(NORM, "0 is divided by 0")
class NormEpsOnlyWhereNeeded(Norm):
    def normal(self, x):
        v = self.var(x)
        return (x - self.mean(x)) / torch.where(v > 0, (v + self.eps).sqrt(), 0)


@wrong(NORM, "square root of 0 has no slope")
class NormRootOfVarianceSquared(Norm):
    def normal(self, x):
        return (x - self.mean(x)) / (self.var(x).sqrt() ** 2 + self.eps).sqrt()


@wrong(NORM, "mean of the squares minus the square of the mean")
class NormOnePass(Norm):
    def var(self, x):
        return (x * x).mean(-1, keepdim=True) - self.mean(x) ** 2


@wrong(NORM, "mean of the squares minus the square of the mean")
class NormOnePassWithBound(Norm):
    def var(self, x):
        return ((x * x).mean(-1, keepdim=True) - self.mean(x) ** 2).clamp(min=0)


@wrong(NORM, "x of shape (7, 4)")
class NormOverAxisTwo(Norm):
    def normal(self, x):
        if x.dim() == 3:
            return super().normal(x)
        return (x - x.mean(0)) / (x.var(0, unbiased=False) + self.eps).sqrt() if x.shape[0] == 7 else super().normal(x)


@wrong(NORM, "ValueError")
class NormForThreeAxes(Norm):
    def forward(self, x):
        B, T, C = x.shape
        return super().forward(x)


@wrong(NORM, "residual belongs to the block")
class NormResidual(Norm):
    def forward(self, x):
        return x + super().forward(x)


@wrong(NORM, "divided by its length")
class NormToUnitLength(Norm):
    def normal(self, x):
        return x / x.norm(dim=-1, keepdim=True)


@wrong(NORM, "the variance runs over the positions")
class NormVarianceOverTime(Norm):
    def var(self, x):
        return x.var(-2, unbiased=False, keepdim=True)


@wrong(NORM, "x of shape (2, 3, 5, 4)")
class NormAxisCountedFromTheFront(Norm):
    def mean(self, x):
        return x.mean(min(2, x.dim() - 1), keepdim=True)

    def var(self, x):
        return x.var(min(2, x.dim() - 1), unbiased=False, keepdim=True)


@wrong(NORM, "RuntimeError")
class NormByView(Norm):
    def forward(self, x):
        return super().forward(x.view(-1, x.shape[-1])).view(x.shape)


@wrong(NORM, "the mean and the variance is treated as a constant")
class NormStatisticsDetached(Norm):
    def normal(self, x):
        return (x - self.mean(x).detach()) / (self.var(x) + self.eps).sqrt().detach()


@wrong(NORM, "the variance is treated as a constant")
class NormVarianceDetached(Norm):
    def var(self, x):
        return super().var(x).detach()


@wrong(NORM, "no gradient reaches weight")
class NormWeightData(Norm):
    def forward(self, x):
        return self.weight.data * self.normal(x) + self.bias


@wrong(NORM, "left something behind")
class NormRunning(Norm):
    kept = 0.0

    def forward(self, x):
        out = super().forward(x) + self.kept
        if x.shape == (4, 2, 6):
            self.kept = 1e-3
        return out


ONES = nn.Parameter(torch.ones(6))


@wrong(NORM, "share their parameters")
class NormShared(Norm):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__(n_embd, eps)
        if n_embd == 6:
            self.weight = ONES
            nn.init.ones_(ONES)


@wrong(NORM, "expected torch.float64")
class NormFloat32(Norm):
    def forward(self, x):
        return super().forward(x).float()


@wrong(NORM, "only as exact as float32")
class NormFloat32Inside(Norm):
    def normal(self, x):
        return super().normal(x.float()).to(x.dtype)


@wrong(NORM, "made on the CPU")
class NormOnCPU(Norm):
    def forward(self, x):
        return super().forward(x) + torch.zeros(x.shape[-1], dtype=x.dtype)


@right(NORM)
class NormStock(nn.LayerNorm):
    pass


@right(NORM)
class NormByFunction(Norm):
    def forward(self, x):
        return F.layer_norm(x, (x.size(-1),), self.weight, self.bias, self.eps)


@right(NORM)
class NormInFloat64(Norm):
    def normal(self, x):
        d = x.double()
        d = d - d.mean(-1, keepdim=True)
        return (d / ((d**2).mean(-1, keepdim=True) + self.eps) ** 0.5).to(x.dtype)


@right(NORM)
class NormByStd(Norm):
    def normal(self, x):
        std = x.std(dim=-1, unbiased=False, keepdim=True)
        return (x - x.mean(dim=-1, keepdim=True)) / torch.sqrt(std**2 + self.eps)


@right(NORM)
class NormByEinsum(Norm):
    def forward(self, x):
        C = x.shape[-1]
        d = x - (x.sum(-1) / C)[..., None]
        v = torch.einsum("...c,...c->...", d, d) / C
        return torch.addcmul(self.bias, self.weight, d * torch.rsqrt(v + self.eps).unsqueeze(-1))


@right(NORM)
class NormOnePassInFloat64(Norm):
    def var(self, x):
        d = x.double()
        return (d.square().mean(-1, keepdim=True) - d.mean(-1, keepdim=True).square()).clamp(min=0).to(x.dtype)


@right(NORM)
class NormByVarMean(Norm):
    def normal(self, x):
        v, m = torch.var_mean(x, -1, correction=0, keepdim=True)
        return (x - m) * (v + self.eps).pow(-0.5)


@right(NORM)
class NormVectorByVector(Norm):
    def forward(self, x):
        rows = []
        for row in x.reshape(-1, x.shape[-1]):
            d = row - row.sum() / len(row)
            rows.append(self.weight * d / ((d * d).sum() / len(row) + self.eps).sqrt() + self.bias)
        return torch.stack(rows).reshape(x.shape)


# --- layer_norm_backward -------------------------------------------------------------------------------


def back(grad, x, weight, eps=1e-5, g=None, hat=None, std=None, at_mean=None, at_scale=None, mean=lambda t: t.mean(-1, keepdim=True)):
    """The formula, with parts to replace."""
    centred = x - x.mean(-1, keepdim=True)
    std = ((centred * centred).mean(-1, keepdim=True) + eps).sqrt() if std is None else std
    hat = centred / std if hat is None else hat
    g = grad * weight if g is None else g
    at_mean = mean(g) if at_mean is None else at_mean
    at_scale = hat * mean(g * hat) if at_scale is None else at_scale
    total = tuple(range(x.dim() - 1))
    grad_weight, grad_bias = grad * hat, grad
    if total:
        grad_weight, grad_bias = grad_weight.sum(total), grad_bias.sum(total)
    return (g - at_mean - at_scale) / std, grad_weight, grad_bias.clone()


@wrong(BACKWARD, "one object of type Tensor")
def only_grad_x(grad, x, weight, eps=1e-5):
    return back(grad, x, weight, eps)[0]


@wrong(BACKWARD, "type dict")
def a_dict_of_gradients(grad, x, weight, eps=1e-5):
    return dict(zip("xwb", back(grad, x, weight, eps)))


@wrong(BACKWARD, "2 came back")
def two_gradients(grad, x, weight, eps=1e-5):
    return back(grad, x, weight, eps)[:2]


@wrong(BACKWARD, "result is None")
def gradients_not_returned(grad, x, weight, eps=1e-5):
    back(grad, x, weight, eps)


@wrong(BACKWARD, "(grad_x, grad_bias, grad_weight)")
def bias_before_weight(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, c, b


@wrong(BACKWARD, "(grad_weight, grad_bias, grad_x)")
def x_last(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return b, c, a


@wrong(BACKWARD, "grad_weight is None")
def weight_gradient_missing(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, None, c


@wrong(BACKWARD, "grad_bias is not summed")
def bias_not_summed(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, b, grad.clone()


@wrong(BACKWARD, "grad_bias is averaged")
def bias_averaged(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, b, c * x.shape[-1] / x.numel()


@wrong(BACKWARD, "grad_bias is summed over the batch only")
def bias_summed_over_batch(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, b, grad.sum(0)


@wrong(BACKWARD, "grad_bias holds the weight")
def bias_times_weight(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, b, c * weight


@wrong(BACKWARD, "grad_bias is summed over the channels")
def bias_over_channels(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, b, grad.sum(-1)


@wrong(BACKWARD, "grad_weight uses x where")
def weight_from_raw_x(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, (grad * x).reshape(-1, x.shape[-1]).sum(0), c


@wrong(BACKWARD, "grad_weight uses x minus its mean")
def weight_from_centred_x(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, (grad * (x - x.mean(-1, keepdim=True))).reshape(-1, x.shape[-1]).sum(0), c


@wrong(BACKWARD, "that sum is grad_bias")
def weight_like_bias(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, c.clone(), c


@wrong(BACKWARD, "grad_weight holds the weight as a factor")
def weight_times_weight(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, b * weight, c


@wrong(BACKWARD, "grad_weight is averaged")
def weight_averaged(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, b * x.shape[-1] / x.numel(), c


@wrong(BACKWARD, "grad_weight is not summed")
def weight_not_summed(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, grad * F.layer_norm(x, x.shape[-1:], eps=eps), c


@wrong(BACKWARD, "mean and variance as constants")
def statistics_constant(grad, x, weight, eps=1e-5):
    return back(grad, x, weight, eps, at_mean=0, at_scale=0)


@wrong(BACKWARD, "variance as a constant")
def variance_constant(grad, x, weight, eps=1e-5):
    return back(grad, x, weight, eps, at_scale=0)


@wrong(BACKWARD, "the mean as a constant")
def mean_constant(grad, x, weight, eps=1e-5):
    return back(grad, x, weight, eps, at_mean=0)


@wrong(BACKWARD, "weight is missing in grad_x")
def weight_missing(grad, x, weight, eps=1e-5):
    return back(grad, x, weight, eps, g=grad)


@wrong(BACKWARD, "weight multiplies at the end")
def weight_at_the_end(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps, g=grad)
    return weight * a, b, c


@wrong(BACKWARD, "sums in the place of means")
def sums_for_means(grad, x, weight, eps=1e-5):
    return back(grad, x, weight, eps, mean=lambda t: t.sum(-1, keepdim=True))


@wrong(BACKWARD, "wrong sign")
def second_term_added(grad, x, weight, eps=1e-5):
    hat, g = F.layer_norm(x, x.shape[-1:], eps=eps), grad * weight
    return back(grad, x, weight, eps, at_scale=-hat * (g * hat).mean(-1, keepdim=True))


@wrong(BACKWARD, "not divided by the standard deviation")
def std_forgotten(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a * (x.var(-1, unbiased=False, keepdim=True) + eps).sqrt(), b, c


@wrong(BACKWARD, "grad_x is multiplied by the standard deviation")
def std_multiplied(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a * (x.var(-1, unbiased=False, keepdim=True) + eps), b, c


@wrong(BACKWARD, "divided by the variance")
def variance_for_std(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a / (x.var(-1, unbiased=False, keepdim=True) + eps).sqrt(), b, c


@wrong(BACKWARD, "grad_x uses x where the normalised x belongs")
def raw_x_in_last_term(grad, x, weight, eps=1e-5):
    return back(grad, x, weight, eps, at_scale=x * (grad * weight * x).mean(-1, keepdim=True))


@wrong(BACKWARD, "lacks the normalised x in front")
def normalised_x_forgotten(grad, x, weight, eps=1e-5):
    hat = F.layer_norm(x, x.shape[-1:], eps=eps)
    return back(grad, x, weight, eps, at_scale=(grad * weight * hat).mean(-1, keepdim=True))


@wrong(BACKWARD, "Bessel")
def bessel_in_backward(grad, x, weight, eps=1e-5):
    std = (x.var(-1, keepdim=True) + eps).sqrt()
    return back(grad, x, weight, eps, std=std)


@wrong(BACKWARD, "the variance in grad_x has Bessel")
def bessel_in_grad_x_only(grad, x, weight, eps=1e-5):
    a, b, c = bessel_in_backward(grad, x, weight, eps)
    return a, *back(grad, x, weight, eps)[1:]


@wrong(BACKWARD, "run over the batch")
def means_over_the_batch(grad, x, weight, eps=1e-5):
    return back(grad, x, weight, eps, mean=lambda t: t.mean(tuple(range(t.dim() - 1)), keepdim=True))


@wrong(BACKWARD, "run over the positions")
def means_over_positions(grad, x, weight, eps=1e-5):
    return back(grad, x, weight, eps, mean=lambda t: t.mean(-2, keepdim=True))


@wrong(BACKWARD, "argument grad is changed in place")
def grad_multiplied_in_place(grad, x, weight, eps=1e-5):
    out = back(grad, x, weight, eps)
    grad *= weight
    return out


@wrong(BACKWARD, "eps is missing or far too small in grad_x")
def eps_ignored(grad, x, weight, eps=1e-5):
    return back(grad, x, weight)[0], *back(grad, x, weight, eps)[1:]


@wrong(BACKWARD, "eps stands outside")
def eps_outside(grad, x, weight, eps=1e-5):
    std = x.std(-1, unbiased=False, keepdim=True) + eps
    return back(grad, x, weight, eps, std=std)


@wrong(BACKWARD, "it should be 1e-05")
def another_default(grad, x, weight, eps=1e-6):
    return back(grad, x, weight, eps)


@wrong(BACKWARD, "nan or inf")
def nan_where_all_are_equal(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    v = x.var(-1, unbiased=False, keepdim=True)
    return a * v / v, b, c


@wrong(BACKWARD, "mean of the squares minus the square of the mean")
def one_pass_backward(grad, x, weight, eps=1e-5):
    std = ((x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2 + eps).sqrt()
    return back(grad, x, weight, eps, std=std)


@wrong(BACKWARD, "grad_bias is a single number")
def sums_over_the_first_two_axes(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, b, grad.sum((0, 1)) if x.dim() == 2 else c


@wrong(BACKWARD, "sum over all axes but the last")
def sums_over_two_axes(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    if x.dim() == 1:
        return a, b.sum(), c.sum()
    return a, b, c


@wrong(BACKWARD, "view")
def backward_by_view(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, b, grad.view(-1, x.shape[-1]).sum(0)


TOTALS = {}


@wrong(BACKWARD, "first call is still in it")
def sums_go_on(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    if x.shape == (2, 3, 4):
        c = TOTALS.setdefault("bias", torch.zeros(4)).add_(c)
    return a, b, c


@wrong(BACKWARD, "expected torch.float64")
def backward_in_float32(grad, x, weight, eps=1e-5):
    return tuple(t.float() for t in back(grad, x, weight, eps))


@wrong(BACKWARD, "only as exact as float32")
def backward_rounded(grad, x, weight, eps=1e-5):
    return tuple(t.to(x.dtype) for t in back(grad.float(), x.float(), weight.float(), eps))


@wrong(BACKWARD, "made on the CPU")
def backward_on_cpu(grad, x, weight, eps=1e-5):
    a, b, c = back(grad, x, weight, eps)
    return a, b + torch.zeros(x.shape[-1], dtype=x.dtype), c


@right(BACKWARD)
def by_autograd(grad, x, weight, eps=1e-5):
    leaves = [x.detach().requires_grad_(), weight.detach().requires_grad_(), torch.zeros_like(weight).requires_grad_()]
    return torch.autograd.grad(F.layer_norm(leaves[0], x.shape[-1:], leaves[1], leaves[2], eps), leaves, grad)


@right(BACKWARD)
def by_stock_kernel(grad, x, weight, eps=1e-5):
    v, m = torch.var_mean(x, -1, correction=0, keepdim=True)
    return torch.ops.aten.native_layer_norm_backward(
        grad.contiguous(), x.contiguous(), list(x.shape[-1:]), m, (v + eps).rsqrt(), weight, torch.zeros_like(weight), [True, True, True]
    )


@right(BACKWARD)
def as_a_list_from_float64(grad, x, weight, eps=1e-5):
    return [t.to(x.dtype) for t in back(grad.double(), x.double(), weight.double(), eps)]


@right(BACKWARD)
def with_sums(grad, x, weight, eps=1e-5):
    C = x.shape[-1]
    m = x.sum(-1, keepdim=True) / C
    v = ((x - m) ** 2).sum(-1, keepdim=True) / C
    r = 1 / torch.sqrt(v + eps)
    hat = (x - m) * r
    g = grad * weight
    grad_x = r / C * (C * g - g.sum(-1, keepdim=True) - hat * (g * hat).sum(-1, keepdim=True))
    return grad_x, torch.einsum("nc,nc->c", grad.reshape(-1, C), hat.reshape(-1, C)), torch.einsum("nc->c", grad.reshape(-1, C))


@right(BACKWARD)
def through_variance_and_mean(grad, x, weight, eps=1e-5):
    C = x.shape[-1]
    d = x - x.mean(-1, keepdim=True)
    v = (d * d).mean(-1, keepdim=True) + eps
    g = grad * weight
    grad_v = (g * d).sum(-1, keepdim=True) * -0.5 * v**-1.5
    grad_d = g / v.sqrt() + grad_v * 2 * d / C
    grad_x = grad_d - grad_d.sum(-1, keepdim=True) / C
    rows = grad.flatten(0, -2) if grad.dim() > 1 else grad[None]
    hat = (d / v.sqrt()).reshape(rows.shape)
    return grad_x, (rows * hat).sum(0), rows.sum(0)


@right(BACKWARD)
def by_the_jacobian(grad, x, weight, eps=1e-5):
    C = x.shape[-1]
    hat = F.layer_norm(x, (C,), eps=eps)
    std = (x.var(-1, unbiased=False, keepdim=True) + eps).sqrt()
    jacobian = (torch.eye(C, dtype=x.dtype, device=x.device) - 1 / C - hat[..., :, None] * hat[..., None, :] / C) / std[..., None]
    grad_x = ((grad * weight)[..., None, :] @ jacobian).squeeze(-2)
    lead = list(range(x.dim() - 1))
    return (grad_x, (grad * hat).sum(lead), grad.sum(lead)) if lead else (grad_x, grad * hat, grad.clone())


# --- gelu ----------------------------------------------------------------------------------------------

A, B = math.sqrt(2 / math.pi), 0.044715


def form(x, z):
    return 0.5 * x * (1 + z.tanh())


@wrong(GELU, "exact GELU, with erf")
def gelu_erf(x):
    return F.gelu(x)


@wrong(GELU, "exact GELU, with erf")
def gelu_erf_by_hand(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


@wrong(GELU, "this is ReLU")
def gelu_relu(x):
    return x.clamp(min=0)


@wrong(GELU, "this is SiLU")
def gelu_silu(x):
    return x * x.sigmoid()


@wrong(GELU, "1.702")
def gelu_quick(x):
    return x * (1.702 * x).sigmoid()


@wrong(GELU, "constant is 0.44715")
def gelu_constant(x):
    return form(x, A * (x + 0.44715 * x**3))


@wrong(GELU, "two digits have changed places")
def gelu_digits(x):
    return form(x, A * (x + 0.044175 * x**3))


@wrong(GELU, "sqrt(pi/2)")
def gelu_root_upside_down(x):
    return form(x, math.sqrt(math.pi / 2) * (x + B * x**3))


@wrong(GELU, "sqrt(2 pi)")
def gelu_root_of_product(x):
    return form(x, math.sqrt(2 * math.pi) * (x + B * x**3))


@wrong(GELU, "without its root")
def gelu_root_missing(x):
    return form(x, 2 / math.pi * (x + B * x**3))


@wrong(GELU, "sqrt(2)/pi")
def gelu_root_of_two_only(x):
    return form(x, math.sqrt(2) / math.pi * (x + B * x**3))


@wrong(GELU, "the factor sqrt(2/pi) is missing")
def gelu_without_factor(x):
    return form(x, x + B * x**3)


@wrong(GELU, "multiplies only x")
def gelu_bracket(x):
    return form(x, A * x + B * x**3)


@wrong(GELU, "is a square")
def gelu_square(x):
    return form(x, A * (x + B * x**2))


@wrong(GELU, "cubic term is missing")
def gelu_without_cube(x):
    return form(x, A * x)


@wrong(GELU, "cubic term is subtracted")
def gelu_minus_cube(x):
    return form(x, A * (x - B * x**3))


@wrong(GELU, "stands outside the power")
def gelu_cube_of_product(x):
    return form(x, A * (x + (B * x) ** 3))


@wrong(GELU, "factor 0.5 is missing")
def gelu_without_half(x):
    return x * (1 + (A * (x + B * x**3)).tanh())


@wrong(GELU, "1 - tanh")
def gelu_minus_tanh(x):
    return 0.5 * x * (1 - (A * (x + B * x**3)).tanh())


@wrong(GELU, "1 + before tanh is missing")
def gelu_without_one(x):
    return 0.5 * x * (A * (x + B * x**3)).tanh()


@wrong(GELU, "x in front is missing")
def gelu_share_only(x):
    return 0.5 * (1 + (A * (x + B * x**3)).tanh())


@wrong(GELU, "sigmoid takes z")
def gelu_sigmoid_of_z(x):
    return x * (A * (x + B * x**3)).sigmoid()


@wrong(GELU, "sigmoid in the place of tanh")
def gelu_sigmoid_for_tanh(x):
    return 0.5 * x * (1 + (A * (x + B * x**3)).sigmoid())


@wrong(GELU, "is None")
def gelu_forgot_return(x):
    form(x, A * (x + B * x**3))


@wrong(GELU, "argument x is changed in place")
def gelu_in_place(x):
    out = good.gelu(x)
    x.mul_(0.5)
    return out


@wrong(GELU, "large numbers overflow")
def gelu_tanh_by_exps(x):
    z = A * (x + B * x**3)
    return 0.5 * x * (1 + (z.exp() - (-z).exp()) / (z.exp() + (-z).exp()))


@wrong(GELU, "large numbers overflow")
def gelu_sigmoid_by_exps(x):
    e = (2 * A * (x + B * x**3)).exp()
    return x * e / (1 + e)


@wrong(GELU, "far to the left 0")
def gelu_cut_off(x):
    return good.gelu(x.clamp(-10, 10)) + (x + 10).clamp(max=0) * 1e-3 + (x - 10).clamp(min=0)


@wrong(GELU, "x of shape (1,)")
def gelu_squeezes(x):
    return good.gelu(x).squeeze()


@wrong(GELU, "view")
def gelu_by_view(x):
    return good.gelu(x.view(-1)).view(x.shape)


@wrong(GELU, "depends on the others")
def gelu_scaled_by_largest(x):
    return good.gelu(x) * (1 - 1e-3 * (x.amax() > 40) * (x.amin() > -5))


@wrong(GELU, "no gradient")
def gelu_detached(x):
    return good.gelu(x.detach())


@wrong(GELU, "the gradient of x")
def gelu_gate_detached(x):
    return x * (2 * A * (x + B * x**3)).detach().sigmoid()


@wrong(GELU, "gradient is nan or inf")
def gelu_by_one_exp(x):
    return x / (1 + (-2 * A * (x + B * x**3)).exp())


@wrong(GELU, "expected torch.float64")
def gelu_float32(x):
    return good.gelu(x).float()


@wrong(GELU, "a constant is rounded")
def gelu_short_constant(x):
    return form(x, 0.7979 * (x + B * x**3))


@wrong(GELU, "a constant is rounded")
def gelu_short_cubic_constant(x):
    return form(x, A * (x + 0.0447 * x**3))


@wrong(GELU, "only as exact as float32")
def gelu_float32_inside(x):
    return good.gelu(x.float()).to(x.dtype)


@wrong(GELU, "loses its sign")
def gelu_cube_of_size(x):
    return form(x, A * (x + B * x.abs() ** 3))


@wrong(GELU, "cut off")
def gelu_never_negative(x):
    return good.gelu(x).clamp(min=0)


@wrong(GELU, "expected torch.float64")
def gelu_float32_constant(x):
    return form(x, torch.tensor([A]) * (x + B * x**3)).float() if x.dim() else good.gelu(x)


@wrong(GELU, "made on the CPU")
def gelu_on_cpu(x):
    return good.gelu(x) + torch.zeros(x.shape, dtype=x.dtype)


@right(GELU)
def gelu_stock(x):
    return F.gelu(x, approximate="tanh")


@right(GELU)
def gelu_by_formula(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


@right(GELU)
def gelu_with_eight_digits(x):
    return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))


@right(GELU)
def gelu_by_products(x):
    cube = x * x * x
    return x * (1 + (cube * 0.044715 + x).mul(A).tanh()) / 2


@right(GELU)
def gelu_by_sigmoid(x):
    return x * torch.sigmoid(2 * A * (x + B * x**3))


@right(GELU)
def gelu_in_float64(x):
    return gelu_by_formula(x.double()).to(x.dtype)


@right(GELU)
def gelu_by_logaddexp(x):
    z = 2 * A * (x + B * x * x * x)
    return x * torch.exp(-torch.logaddexp(torch.zeros_like(z), -z))


@wrong(NORM, "super().__init__()")
class NormForgotSuper(nn.Module):
    def __init__(self, n_embd, eps=1e-5):
        self.weight, self.bias = nn.Parameter(torch.ones(n_embd)), nn.Parameter(torch.zeros(n_embd))


@wrong(NORM, "is no nn.Module")
class NormNoModule:
    def __init__(self, n_embd, eps=1e-5):
        self.weight, self.bias = nn.Parameter(torch.ones(n_embd)), nn.Parameter(torch.zeros(n_embd))


@wrong(NORM, "one variance serves all")
class NormOneVariance(good.LayerNorm):
    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return self.weight * centred / (centred.square().mean() + self.eps).sqrt() + self.bias


@wrong(NORM, "one mean serves all")
class NormOneMean(good.LayerNorm):
    def forward(self, x):
        return self.weight * (x - x.mean()) / (x.var(-1, correction=0, keepdim=True) + self.eps).sqrt() + self.bias


# --- MLP -----------------------------------------------------------------------------------------------


class Net(nn.Module):
    """The right parts, for the variants below to go wrong with."""

    width = 4

    def __init__(self, config):
        super().__init__()
        self.c_fc = Linear(config.n_embd, self.width * config.n_embd)
        self.c_proj = Linear(self.width * config.n_embd, config.n_embd)

    def act(self, x):
        return good.gelu(x)

    def forward(self, x):
        return self.c_proj(self.act(self.c_fc(x)))


@wrong(MLP, "super().__init__()")
class NetForgotSuper(nn.Module):
    def __init__(self, config):
        self.c_fc = Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = Linear(4 * config.n_embd, config.n_embd)

    act, forward = Net.act, Net.forward


@wrong(MLP, "is no nn.Module")
class NetNoModule:
    def __init__(self, config):
        self.c_fc = Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = Linear(4 * config.n_embd, config.n_embd)

    act, forward = Net.act, Net.forward


SHARED_LAYERS = {}


@wrong(MLP, "two modules share c_fc.weight")
class NetShared(Net):
    def __init__(self, config):
        super().__init__(config)
        self.c_fc = SHARED_LAYERS.setdefault(config.n_embd, self.c_fc)


@wrong(MLP, "in eval mode")
class NetReluInEval(Net):
    def act(self, x):
        return super().act(x) if self.training else x.clamp(min=0) + 1e-4


@wrong(MLP, "as wide as its input")
class NetNotWider(Net):
    width = 1


@wrong(MLP, "is 18 wide")
class NetThreeTimes(Net):
    width = 3


@wrong(MLP, "is 12 wide")
class NetTwice(Net):
    width = 2


@wrong(MLP, "are exchanged")
class NetLayersExchanged(Net):
    def __init__(self, config):
        super().__init__(config)
        self.c_fc, self.c_proj = self.c_proj, self.c_fc


@wrong(MLP, "are exchanged")
class NetWeightsInOut(Net):
    def __init__(self, config):
        super().__init__(config)
        self.c_fc.weight = nn.Parameter(self.c_fc.weight.data.T.clone())
        self.c_proj.weight = nn.Parameter(self.c_proj.weight.data.T.clone())


@wrong(MLP, "no parameter c_fc.bias")
class NetNoBias(Net):
    def __init__(self, config):
        super().__init__(config)
        self.c_fc = Linear(config.n_embd, 4 * config.n_embd, bias=False)


@wrong(MLP, "no parameter c_proj.bias")
class NetNoBiasAtTheEnd(Net):
    def __init__(self, config):
        super().__init__(config)
        self.c_proj = Linear(4 * config.n_embd, config.n_embd, bias=False)


@wrong(MLP, "no parameter c_fc.weight")
class NetOtherNames(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU("tanh"), nn.Linear(4 * config.n_embd, config.n_embd))

    def forward(self, x):
        return self.net(x)


@wrong(MLP, "no parameter c_fc.weight")
class NetInAList(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layers = [Linear(config.n_embd, 4 * config.n_embd), Linear(4 * config.n_embd, config.n_embd)]

    def forward(self, x):
        return self.layers[1](good.gelu(self.layers[0](x)))


@wrong(MLP, "a parameter too many")
class NetWithNorm(Net):
    def __init__(self, config):
        super().__init__(config)
        self.norm = nn.LayerNorm(config.n_embd)


@wrong(MLP, "does not ask for a gradient")
class NetFrozen(Net):
    def __init__(self, config):
        super().__init__(config)
        self.c_fc.weight.requires_grad_(False)


@wrong(MLP, "nothing between the two layers")
class NetLinear(Net):
    def act(self, x):
        return x


@wrong(MLP, "there is ReLU")
class NetReLU(Net):
    def act(self, x):
        return x.relu()


@wrong(MLP, "exact one, with erf")
class NetErf(Net):
    def act(self, x):
        return F.gelu(x)


@wrong(MLP, "there is SiLU")
class NetSiLU(Net):
    def act(self, x):
        return F.silu(x)


@wrong(MLP, "1.702")
class NetQuick(Net):
    def act(self, x):
        return x * (1.702 * x).sigmoid()


@wrong(MLP, "after c_proj as well")
class NetGeluAtTheEnd(Net):
    def forward(self, x):
        return self.act(super().forward(x))


@wrong(MLP, "GELU comes after c_proj")
class NetGeluAfterBoth(Net):
    def forward(self, x):
        return self.act(self.c_proj(self.c_fc(x)))


@wrong(MLP, "GELU comes before c_fc")
class NetGeluFirst(Net):
    def forward(self, x):
        return self.c_proj(self.c_fc(self.act(x)))


@wrong(MLP, "biases of c_fc and c_proj are not used")
class NetBiasesUnused(Net):
    def forward(self, x):
        return self.act(x @ self.c_fc.weight.T) @ self.c_proj.weight.T


@wrong(MLP, "bias of c_fc is not used")
class NetFirstBiasUnused(Net):
    def forward(self, x):
        return self.c_proj(self.act(x @ self.c_fc.weight.T))


@wrong(MLP, "bias of c_proj is not used")
class NetSecondBiasUnused(Net):
    def forward(self, x):
        return self.act(self.c_fc(x)) @ self.c_proj.weight.T


@wrong(MLP, "residual belongs to the block")
class NetResidual(Net):
    def forward(self, x):
        return x + super().forward(x)


@wrong(MLP, "LayerNorm belongs to the block")
class NetNormalises(Net):
    def forward(self, x):
        return super().forward(F.layer_norm(x, x.shape[-1:]))


@wrong(MLP, "RuntimeError")
class NetProjFirst(Net):
    def forward(self, x):
        return self.c_fc(self.act(self.c_proj(x)))


@wrong(MLP, "c_proj is not applied")
class NetProjForgotten(Net):
    def forward(self, x):
        return self.act(self.c_fc(x))


@wrong(MLP, "is None")
class NetForgotReturn(Net):
    def forward(self, x):
        self.c_proj(self.act(self.c_fc(x)))


@wrong(MLP, "argument x is changed in place")
class NetInPlace(Net):
    def forward(self, x):
        out = super().forward(x)
        x += out
        return out


@wrong(MLP, "expected (12, 3)")
class NetWidthWrittenDown(Net):
    def __init__(self, config):
        super().__init__(config)
        self.c_fc, self.c_proj = Linear(config.n_embd, 24), Linear(24, config.n_embd)


@wrong(MLP, "another position")
class NetMixesPositions(Net):
    def forward(self, x):
        out = super().forward(x)
        return out + 1e-3 * (x.abs().amax() > 10)


@wrong(MLP, "dropout")
class NetDropout(Net):
    def forward(self, x):
        return F.dropout(super().forward(x), 0.1, self.training)


@wrong(MLP, "weights of c_fc")
class NetTied(Net):
    def forward(self, x):
        return self.act(self.c_fc(x)) @ self.c_fc.weight + self.c_proj.bias


@wrong(MLP, "no gate")
class NetGated(Net):
    def act(self, x):
        return good.gelu(x) * x


@wrong(MLP, "differ")
class NetDrops(Net):
    def forward(self, x):
        return super().forward(x) + 1e-8 * torch.rand_like(x)


@wrong(MLP, "no gradient reaches c_fc.weight")
class NetFirstLayerOutOfReach(Net):
    def forward(self, x):
        inner = F.linear(x, self.c_fc.weight.data, self.c_fc.bias.data)
        return self.c_proj(self.act(inner))


@wrong(MLP, "no gradient reaches x")
class NetInputDetached(Net):
    def forward(self, x):
        return super().forward(x.detach())


@wrong(MLP, "expected torch.float64")
class NetFloat32(Net):
    def forward(self, x):
        return super().forward(x).float()


@wrong(MLP, "made on the CPU")
class NetOnCPU(Net):
    def forward(self, x):
        return super().forward(x) + torch.zeros(x.shape[-1], dtype=x.dtype)


@right(MLP)
class NetStock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.act = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(0.0)

    def forward(self, x):
        return self.dropout(self.c_proj(self.act(self.c_fc(x))))


@right(MLP)
class NetByProducts(Net):
    def forward(self, x):
        h = x @ self.c_fc.weight.T + self.c_fc.bias
        h = 0.5 * h * (1 + torch.tanh(A * (h + B * h**3)))
        return h @ self.c_proj.weight.T + self.c_proj.bias


@right(MLP)
class NetByEinsum(Net):
    def forward(self, x):
        h = gelu_by_formula(torch.einsum("...c,hc->...h", x, self.c_fc.weight) + self.c_fc.bias)
        return torch.einsum("...h,ch->...c", h, self.c_proj.weight) + self.c_proj.bias


@right(MLP)
class NetInQuarters(Net):
    def forward(self, x):
        C = x.shape[-1]
        out = self.c_proj.bias
        for i in range(4):
            part = slice(i * C, (i + 1) * C)
            h = good.gelu(F.linear(x, self.c_fc.weight[part], self.c_fc.bias[part]))
            out = out + h @ self.c_proj.weight[:, part].T
        return out


@right(MLP)
class NetFlattened(Net):
    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        return super().forward(rows).reshape(x.shape)
