"""Wrong and right answers to the training part of lesson 16."""
import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.experimental import optim

from course.checks.mindspore.training import ACCUMULATE, ADAMW, CLIP
from tests.mistakes import right, wrong

# --- AdamW ---------------------------------------------------------------------------------------------


class Base(nn.Cell):
    """A right AdamW in small parts, for the variants below to go wrong with."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__()
        self.params = ms.ParameterTuple(params)
        self.lr = ms.Parameter(ms.Tensor(lr, ms.float32), name="lr", requires_grad=False)
        self.t = ms.Parameter(ms.Tensor(0.0, ms.float32), name="t", requires_grad=False)
        self.m = self.params.clone("m", init="zeros")
        self.v = self.params.clone("v", init="zeros")
        self.beta1, self.beta2 = betas
        self.eps = eps
        self.weight_decay = weight_decay
        self.decay = [self.share(p) for p in self.params]

    def share(self, p):
        return self.weight_decay if p.ndim >= 2 else 0.0

    def count(self):
        return ops.assign(self.t, self.t + 1)

    def gradient(self, i, g):
        return g

    def decayed(self, i, p):
        return p * (1 - self.lr * self.decay[i])

    def mean(self, i, g):
        return ops.assign(self.m[i], self.beta1 * self.m[i] + (1 - self.beta1) * g)

    def square(self, i, g):
        return ops.assign(self.v[i], self.beta2 * self.v[i] + (1 - self.beta2) * g * g)

    def change(self, m, v, t):
        return m / (1 - self.beta1**t) / (ops.sqrt(v / (1 - self.beta2**t)) + self.eps)

    def write(self, i, value):
        ops.assign(self.params[i], value)

    def step(self, grads):
        t = self.count()
        for i in range(len(self.params)):
            p = self.params[i]
            g = self.gradient(i, grads[i])
            kept = self.decayed(i, p)
            m = self.mean(i, g)
            v = self.square(i, g)
            self.write(i, kept - self.lr * self.change(m, v, t))
        return t

    def set_lr(self, lr):
        ops.assign(self.lr, ms.Tensor(lr, ms.float32))


@wrong(ADAMW, "divided by sqrt(v) like it")
class L2InTheGradient(Base):
    def gradient(self, i, g):
        return g + self.decay[i] * self.params[i]

    def decayed(self, i, p):
        return p * 1


@wrong(ADAMW, "there is no weight decay")
class NoDecay(Base):
    def decayed(self, i, p):
        return p * 1


@wrong(ADAMW, "lacks the factor lr")
class DecayWithoutRate(Base):
    def decayed(self, i, p):
        return p * (1 - self.decay[i])


@wrong(ADAMW, "biases decay too")
class BiasesDecay(Base):
    def share(self, p):
        return self.weight_decay


@wrong(ADAMW, "2 or more is meant, not exactly 2")
class OnlyTwoDimensionsDecay(Base):
    def share(self, p):
        return self.weight_decay if p.ndim == 2 else 0.0


@wrong(ADAMW, "biases decay too")
class DecayByName(Base):
    """As nn.AdamWeightDecay does it: names with beta or gamma are left out, and nothing else."""

    def share(self, p):
        return 0.0 if "beta" in p.name or "gamma" in p.name else self.weight_decay


@wrong(ADAMW, "both start at 0 and must be divided")
class AsAdamWeightDecay(Base):
    def change(self, m, v, t):
        return m / (ops.sqrt(v) + self.eps)


@wrong(ADAMW, "v is not divided by 1 - beta2**t")
class HalfCorrected(Base):
    def change(self, m, v, t):
        return m / (1 - self.beta1**t) / (ops.sqrt(v) + self.eps)


@wrong(ADAMW, "nan or inf")
class CountsAfterwards(Base):
    def step(self, grads):
        t = self.t * 1
        for i in range(len(self.params)):
            m, v = self.mean(i, grads[i]), self.square(i, grads[i])
            self.write(i, self.decayed(i, self.params[i]) - self.lr * self.change(m, v, t))
        return self.count()


@wrong(ADAMW, "inside the square root")
class EpsInside(Base):
    def change(self, m, v, t):
        return m / (1 - self.beta1**t) / ops.sqrt(v / (1 - self.beta2**t) + self.eps)


@wrong(ADAMW, "the argument eps has no effect")
class EpsOfMindSpore(Base):
    def change(self, m, v, t):
        return m / (1 - self.beta1**t) / (ops.sqrt(v / (1 - self.beta2**t)) + 1e-6)


@wrong(ADAMW, "before the bias correction of v")
class EpsBeforeCorrection(Base):
    def change(self, m, v, t):
        return m / (1 - self.beta1**t) / ((ops.sqrt(v) + self.eps) / ops.sqrt(1 - self.beta2**t))


@wrong(ADAMW, "moves up the gradient")
class Uphill(Base):
    def change(self, m, v, t):
        return -m / (1 - self.beta1**t) / (ops.sqrt(v / (1 - self.beta2**t)) + self.eps)


@wrong(ADAMW, "exchanged: beta1 belongs to m")
class BetasSwapped(Base):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, (betas[1], betas[0]), eps, weight_decay)


@wrong(ADAMW, "after a step m is still 0")
class MeanNotWritten(Base):
    def mean(self, i, g):
        return self.beta1 * self.m[i] + (1 - self.beta1) * g


@wrong(ADAMW, "without the argument eps it is 1e-06")
class OtherDefaultEps(Base):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)


@wrong(ADAMW, "without the argument weight_decay it is 0.0")
class OtherDefaultDecay(Base):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        super().__init__(params, lr, betas, eps, weight_decay)


@wrong(ADAMW, "says nothing")
class InPlaceThatDoesNothing(Base):
    def write(self, i, value):
        self.params[i].copy_(self.params[i]).add_(value - self.params[i])


@wrong(ADAMW, "p = p - ... makes a new tensor")
class NewTensor(Base):
    def write(self, i, value):
        p = self.params[i]
        p = value


@wrong(ADAMW, "+=: on a CPU they give the right value in eager mode and change nothing")
class MinusEquals(Base):
    def write(self, i, value):
        p = self.params[i]
        p -= p - value


@wrong(ADAMW, "t is a Python int")
class PythonCounter(Base):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)
        del self.t
        object.__setattr__(self, "t", 0)

    def step(self, grads):
        self.t += 1
        for i in range(len(self.params)):
            self.write(i, self.decayed(i, self.params[i]) - self.lr * self.change(self.mean(i, grads[i]), self.square(i, grads[i]), self.t))


@wrong(ADAMW, "lr is a Python float")
class PythonRate(Base):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)
        del self.lr
        object.__setattr__(self, "lr", lr)


@wrong(ADAMW, "nan or inf in graph mode")
class CounterBesideT(Base):
    """Counts in the Parameter t, and computes with a Python number."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)
        self.counted = [0]

    def change(self, m, v, t):
        return m / (1 - self.beta1 ** self.counted[0]) / (ops.sqrt(v / (1 - self.beta2 ** self.counted[0])) + self.eps)

    def step(self, grads):
        self.counted[0] = self.counted[0] + 1
        return super().step(grads)


@wrong(ADAMW, "an entry of m is a Tensor")
class PlainListOfTensors(Base):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)
        del self.m
        self.m = [ops.zeros(p.shape, ms.float32) for p in self.params]

    def mean(self, i, g):
        self.m[i] = self.beta1 * self.m[i] + (1 - self.beta1) * g
        return self.m[i]


@wrong(ADAMW, "missing")
class StateElsewhere(nn.Cell):
    """MindSpore's own, in a Cell: right numbers, and nothing that a checkpoint could read."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__()
        groups = [{"params": [p for p in params if p.ndim >= 2]}, {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0}]
        self.inner = optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.lr = ms.Parameter(ms.Tensor(lr, ms.float32), name="lr")

    def step(self, grads):
        return self.inner(grads)

    def set_lr(self, lr):
        ops.assign(self.lr, ms.Tensor(lr, ms.float32))


@wrong(ADAMW, "should be a mindspore.nn.Cell")
class NoCell:
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        self.params = ms.ParameterTuple(params)


@wrong(ADAMW, "expected m.wte.weight")
class StateWithoutNames(Base):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)
        self.m = ms.ParameterTuple([ms.Parameter(ops.zeros(p.shape, ms.float32), name=f"moment1.{p.name}") for p in self.params])


@wrong(ADAMW, "set_data gave the Parameter new memory")
class RateBySetData(Base):
    def set_lr(self, lr):
        self.lr.set_data(ms.Tensor(lr, ms.float32))


@wrong(ADAMW, "set_lr has no effect on a compiled step")
class RateBySlice(Base):
    def set_lr(self, lr):
        self.lr[...] = lr


@wrong(ADAMW, "puts a new object in the place of lr")
class RateReplaced(Base):
    def set_lr(self, lr):
        self.lr = ms.Parameter(ms.Tensor(lr, ms.float32), name="lr", requires_grad=False)


@wrong(ADAMW, "the rate of the start goes on")
class RateKept(Base):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)
        self.start = lr

    def step(self, grads):
        t = self.count()
        for i in range(len(self.params)):
            m, v = self.mean(i, grads[i]), self.square(i, grads[i])
            self.write(i, self.params[i] * (1 - self.start * self.decay[i]) - self.start * self.change(m, v, t))
        return t


@wrong(ADAMW, "set_data is a Python call that a graph cannot hold")
class SetDataInTheGraph(Base):
    def write(self, i, value):
        self.params[i].set_data(value)


@wrong(ADAMW, "disturb each other")
class StateByShape(Base):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)
        shapes = [tuple(p.shape) for p in self.params]
        self.slot = [len(shapes) - 1 - shapes[::-1].index(s) for s in shapes]

    def mean(self, i, g):
        i = self.slot[i]
        return ops.assign(self.m[i], self.beta1 * self.m[i] + (1 - self.beta1) * g)

    def square(self, i, g):
        i = self.slot[i]
        return ops.assign(self.v[i], self.beta2 * self.v[i] + (1 - self.beta2) * g * g)


@wrong(ADAMW, "try does not exist in graph mode")
class TryInStep(Base):
    def step(self, grads):
        try:
            return super().step(grads)
        except TypeError:
            return self.t


SHARED = {}


@wrong(ADAMW, "two optimizers share their state")
class SharedState(Base):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)
        key = tuple((p.name, tuple(p.shape)) for p in self.params)
        self.m, self.v, self.t = SHARED.setdefault(key, (self.m, self.v, self.t))


@wrong(ADAMW, "besides the Parameters lr, t, m and v")
class PowersBesideT(Base):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)
        self.power1 = ms.Parameter(ms.Tensor(1.0, ms.float32), name="power1", requires_grad=False)
        self.power2 = ms.Parameter(ms.Tensor(1.0, ms.float32), name="power2", requires_grad=False)

    def count(self):
        ops.assign(self.power1, self.power1 * self.beta1)
        ops.assign(self.power2, self.power2 * self.beta2)
        return ops.assign(self.t, self.t + 1)

    def change(self, m, v, t):
        return m / (1 - self.power1) / (ops.sqrt(v / (1 - self.power2)) + self.eps)


@wrong(ADAMW, "changes the gradients")
class ScalesTheGradients(Base):
    def gradient(self, i, g):
        g[:] = g * 1.5
        return g


@wrong(ADAMW, "dtype Int32; a Parameter of shape () and float32 is meant")
class CountsInInt32(Base):
    """load_checkpoint assigns a float32, and ops.assign converts nothing."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)
        self.t = ms.Parameter(ms.Tensor(0, ms.int32), name="t", requires_grad=False)

    def change(self, m, v, t):
        return super().change(m, v, t.astype(ms.float32))


@wrong(ADAMW, "step returns nothing")
class ReturnForgotten(Base):
    def step(self, grads):
        super().step(grads)


@wrong(ADAMW, "has no .grad to read them from")
class ReadsDotGrad(Base):
    def step(self):
        return super().step([p.grad for p in self.params])


@wrong(ADAMW, "gradients come in the order of the parameters")
class GradientsBackwards(Base):
    def step(self, grads):
        return super().step(grads[::-1])


@wrong(ADAMW, "the arguments stand in another order")
class EpsBeforeBetas(Base):
    def __init__(self, params, lr=1e-3, eps=1e-8, betas=(0.9, 0.999), weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)


@wrong(ADAMW, "the argument betas has no effect")
class BetasWrittenDown(Base):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, (0.9, 0.999), eps, weight_decay)


@wrong(ADAMW, "that is AMSGrad")
class NeverForgets(Base):
    def square(self, i, g):
        return ops.assign(self.v[i], ops.maximum(self.v[i], self.beta2 * self.v[i] + (1 - self.beta2) * g * g))


@wrong(ADAMW, "m holds the sum without the factor 1 - beta1")
class FactorLater(Base):
    """The step is right, and a checkpoint would not be."""

    def mean(self, i, g):
        return ops.assign(self.m[i], self.beta1 * self.m[i] + g) * (1 - self.beta1)


@wrong(ADAMW, "the decay goes on with the rate of the start")
class DecayComputedOnce(Base):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)
        self.keep = [1 - lr * share for share in self.decay]

    def decayed(self, i, p):
        return p * self.keep[i]


@wrong(ADAMW, "set_lr gives the name lr to a Python number")
class RateGivenTheName(Base):
    def set_lr(self, lr):
        self.lr = lr


@wrong(ADAMW, "hands numbers to Python")
class ThroughNumPy(Base):
    def write(self, i, value):
        ops.assign(self.params[i], ms.Tensor(value.asnumpy()))


right(ADAMW)(Base)


@right(ADAMW)
class DecayAfterwards(Base):
    """The decay last: it differs by lr squared times weight_decay, less than rounding here."""

    def step(self, grads):
        t = self.t + 1
        ops.assign(self.t, t)
        for p, m, v, g, decay in zip(self.params, self.m, self.v, grads, self.decay):
            ops.assign(m, m + (1 - self.beta1) * (g - m))
            ops.assign(v, v + (1 - self.beta2) * (g * g - v))
            old = p * 1.0
            new = old - self.lr * (m / (1 - ops.pow(self.beta1, t))) / (ops.sqrt(v / (1 - ops.pow(self.beta2, t))) + self.eps)
            ops.assign(p, new - self.lr * decay * old)
        return True


@right(ADAMW)
class ByAssignSub(Base):
    def write(self, i, value):
        ops.assign_sub(self.params[i], self.params[i] - value)


@right(ADAMW)
class StateOneByOne(Base):
    """Names by hand, lists of Parameters made a ParameterTuple, lr and t from Python numbers."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        params = list(params)
        super().__init__(params, lr, betas, eps, weight_decay)
        self.m = ms.ParameterTuple([ms.Parameter(np.zeros(p.shape, np.float32), name=f"m.{p.name}") for p in params])
        self.lr = ms.Parameter(lr, name="lr", requires_grad=False)
        self.t = ms.Parameter(0.0, name="t", requires_grad=False)

    def set_lr(self, lr):
        ops.assign(self.lr, lr)


@right(ADAMW)
class CountsBySetattr(Base):
    """self.t = ... on a Cell writes into the Parameter t, in both modes."""

    def count(self):
        self.t = self.t + 1
        return self.t


@right(ADAMW)
class ConstructCalled(Base):
    """The work in construct, as a Cell likes it; step calls the Cell."""

    def construct(self, grads):
        t = self.count()
        for i, g in enumerate(grads):
            kept = self.params[i] - self.lr * self.decay[i] * self.params[i]
            m, v = self.mean(i, g), self.square(i, g)
            rate = self.lr * ops.sqrt(1 - self.beta2**t) / (1 - self.beta1**t)
            ops.assign(self.params[i], kept - rate * m / (ops.sqrt(v) + self.eps * ops.sqrt(1 - self.beta2**t)))
        return t

    def step(self, grads):
        return self.construct(grads)


# --- clip_grad_norm ------------------------------------------------------------------------------------


def norm_of(grads):
    return ops.sqrt(ops.stack([(g * g).sum() for g in grads]).sum())


def scaled(grads, scale):
    return tuple([g * scale for g in grads])


@wrong(CLIP, "every tensor is clipped by its own norm")
def clip_per_tensor(grads, max_norm):
    return tuple([g * ops.minimum(max_norm / (ops.sqrt((g * g).sum()) + 1e-6), 1.0) for g in grads]), norm_of(grads)


@wrong(CLIP, "entries are cut")
def clip_by_value(grads, max_norm):
    return tuple([ops.clamp(g, -max_norm, max_norm) for g in grads]), norm_of(grads)


@wrong(CLIP, "small gradients are scaled up")
def clip_without_bound(grads, max_norm):
    norm = norm_of(grads)
    return scaled(grads, max_norm / (norm + 1e-6)), norm


@wrong(CLIP, "the square root is missing")
def clip_by_the_square(grads, max_norm):
    norm = norm_of(grads)
    return scaled(grads, ops.minimum(max_norm / (norm * norm + 1e-6), 1.0)), norm


@wrong(CLIP, "norms of the tensors are added up")
def clip_by_sum_of_norms(grads, max_norm):
    total = ops.stack([ops.sqrt((g * g).sum()) for g in grads]).sum()
    return scaled(grads, ops.minimum(max_norm / (total + 1e-6), 1.0)), norm_of(grads)


@wrong(CLIP, "the gradients are not changed: scaled ones must come back")
def clip_in_place_that_does_nothing(grads, max_norm):
    norm = norm_of(grads)
    for g in grads:
        g.mul_(ops.minimum(max_norm / (norm + 1e-6), 1.0))
    return grads, norm


@wrong(CLIP, "a tensor comes back alone")
def clip_returns_norm(grads, max_norm):
    return norm_of(grads)


@wrong(CLIP, "wrong way round")
def clip_pair_turned(grads, max_norm):
    norm = norm_of(grads)
    return norm, scaled(grads, ops.minimum(max_norm / (norm + 1e-6), 1.0))


@wrong(CLIP, "a pair is meant")
def clip_returns_gradients(grads, max_norm):
    return ops.clip_by_global_norm(grads, max_norm)


@wrong(CLIP, "the norm after clipping is returned")
def clip_norm_after(grads, max_norm):
    new = scaled(grads, ops.minimum(max_norm / (norm_of(grads) + 1e-6), 1.0))
    return new, norm_of(new)


@wrong(CLIP, "the norm is a Python float")
def clip_with_python(grads, max_norm):
    norm = float(norm_of(grads).asnumpy())
    return scaled(grads, min(max_norm / (norm + 1e-6), 1.0)), norm


@wrong(CLIP, "nan")
def clip_by_zero(grads, max_norm):
    norm = norm_of(grads)
    return scaled(grads, 1 / (ops.maximum(norm, ops.minimum(norm * 1e30, max_norm)) / max_norm) if True else 1), norm


@wrong(CLIP, "try does not exist in graph mode")
def clip_that_tries(grads, max_norm):
    try:
        norm = norm_of(grads)
    except ValueError:
        norm = ms.Tensor(0.0)
    return scaled(grads, ops.minimum(max_norm / (norm + 1e-6), 1.0)), norm


@wrong(CLIP, "take one norm of all gradients")
def clip_by_the_last(grads, max_norm):
    for g in grads:
        norm = ops.sqrt((g * g).sum())
    return scaled(grads, ops.minimum(max_norm / (norm + 1e-6), 1.0)), norm


@wrong(CLIP, "right shape and wrong values")
def clip_too_early(grads, max_norm):
    """Clips as soon as the norm exceeds half the bound."""
    norm = norm_of(grads)
    scale = ops.minimum(max_norm / (norm + 1e-6), 1.0)
    return scaled(grads, ops.where(norm > 0.8 * max_norm, ops.minimum(0.8 * scale, 1.0), scale) if max_norm > 3 and max_norm < 40 else scale), norm


@wrong(CLIP, "changed in place")
def clip_into_the_given(grads, max_norm):
    norm = norm_of(grads)
    for g in grads:
        g[:] = g * ops.minimum(max_norm / (norm + 1e-6), 1.0)
    return grads, norm


@wrong(CLIP, "1e-6 is added to the fraction")
def clip_without_brackets(grads, max_norm):
    norm = norm_of(grads)
    return scaled(grads, ops.minimum(max_norm / norm + 1e-6, 1.0)), norm


@wrong(CLIP, "averaged, not summed")
def clip_by_means(grads, max_norm):
    norm = ops.sqrt(ops.stack([(g * g).mean() for g in grads]).sum())
    return scaled(grads, ops.minimum(max_norm / (norm + 1e-6), 1.0)), norm


@wrong(CLIP, "a small number stands below the root")
def clip_with_eps_in_the_root(grads, max_norm):
    norm = ops.sqrt(ops.stack([(g * g).sum() for g in grads]).sum() + 1e-6)
    return scaled(grads, ops.minimum(max_norm / (norm + 1e-6), 1.0)), norm


@wrong(CLIP, "the arguments are the wrong way round")
def clip_arguments_turned(max_norm, grads):
    return grads, norm_of(grads)


@wrong(CLIP, "asnumpy()")
def clip_decides_in_python(grads, max_norm):
    norm = norm_of(grads)
    scale = max_norm / float(norm.asnumpy()) if float(norm.asnumpy()) > max_norm else 1.0
    return scaled(grads, scale), norm


@right(CLIP)
def clip_by_the_framework(grads, max_norm):
    return ops.clip_by_global_norm(grads, max_norm), norm_of(grads)


@right(CLIP)
def clip_by_a_vector(grads, max_norm):
    norm = ops.norm(ops.cat([g.reshape(-1) for g in grads]))
    return [g * (max_norm / ops.maximum(norm, max_norm)) for g in grads], norm


@right(CLIP)
def clip_by_if(grads, max_norm):
    norm = norm_of(grads)
    if norm > max_norm:
        grads = tuple([g * (max_norm / norm) for g in grads])
    return grads, norm


@right(CLIP)
def clip_by_loop(grads, max_norm):
    total = 0.0
    for g in grads:
        total = total + ops.square(g).sum()
    norm = total**0.5
    scale = ops.clamp(max_norm / (norm + 1e-6), max=1.0)
    out = ()
    for g in grads:
        out = out + (scale * g,)
    return out, norm


# --- accumulate ----------------------------------------------------------------------------------------


def summed(value_and_grad, batches, divide=True):
    total, sums = 0.0, None
    n = len(batches) if divide else 1
    for x, y in batches:
        loss, grads = value_and_grad(x, y)
        total = total + loss / len(batches)
        grads = [g / n for g in grads]
        sums = grads if sums is None else [s + g for s, g in zip(sums, grads)]
    return total, sums


@wrong(ACCUMULATE, "summed, not averaged")
def accumulates_sums(value_and_grad, batches):
    return summed(value_and_grad, batches, divide=False)


@wrong(ACCUMULATE, "divided twice")
def divides_twice(value_and_grad, batches):
    loss, grads = summed(value_and_grad, batches)
    return loss, [g / len(batches) for g in grads]


@wrong(ACCUMULATE, "by the size of a micro-batch")
def divides_by_the_size(value_and_grad, batches):
    loss, grads = summed(value_and_grad, batches, divide=False)
    return loss, [g / batches[0][0].shape[0] for g in grads]


@wrong(ACCUMULATE, "only the last micro-batch counts")
def waits_for_dot_grad(value_and_grad, batches):
    total = 0.0
    for x, y in batches:
        loss, grads = value_and_grad(x, y)
        total = total + loss / len(batches)
    return total, grads


@wrong(ACCUMULATE, "only the last micro-batch counts")
def averages_the_last(value_and_grad, batches):
    total = 0.0
    for x, y in batches:
        loss, grads = value_and_grad(x, y)
        total = total + loss / len(batches)
    return total, [g / len(batches) for g in grads]


@wrong(ACCUMULATE, "the first micro-batch does not count")
def forgets_the_first(value_and_grad, batches):
    total, sums = 0.0, None
    for x, y in batches:
        loss, grads = value_and_grad(x, y)
        total = total + loss / len(batches)
        sums = [g * 0 for g in grads] if sums is None else [s + g / len(batches) for s, g in zip(sums, grads)]
    return total, sums


@wrong(ACCUMULATE, "the last micro-batch is dropped")
def drops_the_tail(value_and_grad, batches):
    _, grads = summed(value_and_grad, batches[:-1])
    loss, _ = value_and_grad(*batches[-1])
    return loss, grads


@wrong(ACCUMULATE, "divided again at each micro-batch")
def divides_the_sum(value_and_grad, batches):
    total, sums = 0.0, None
    for x, y in batches:
        loss, grads = value_and_grad(x, y)
        total = total + loss / len(batches)
        sums = [g / len(batches) for g in grads] if sums is None else [(s + g) / len(batches) for s, g in zip(sums, grads)]
    return total, sums


@wrong(ACCUMULATE, "the first micro-batch counts twice")
def counts_the_first_twice(value_and_grad, batches):
    loss, sums = value_and_grad(*batches[0])
    total, rest = summed(value_and_grad, batches)
    return total, [s / len(batches) + r for s, r in zip(sums, rest)]


@wrong(ACCUMULATE, "loss of the last micro-batch is returned")
def last_loss(value_and_grad, batches):
    _, grads = summed(value_and_grad, batches)
    return value_and_grad(*batches[-1])[0], grads


@wrong(ACCUMULATE, "the sum of the losses is returned")
def sum_of_losses(value_and_grad, batches):
    loss, grads = summed(value_and_grad, batches)
    return loss * len(batches), grads


@wrong(ACCUMULATE, "the loss is a Python number")
def python_loss(value_and_grad, batches):
    loss, grads = summed(value_and_grad, batches)
    return float(loss.asnumpy()), grads


@wrong(ACCUMULATE, "windows at once")
def one_big_batch(value_and_grad, batches):
    x = ops.cat([x for x, _ in batches])
    y = ops.cat([y for _, y in batches])
    return value_and_grad(x, y)


@wrong(ACCUMULATE, "runs 8 times")
def runs_twice(value_and_grad, batches):
    summed(value_and_grad, batches)
    return summed(value_and_grad, batches)


@wrong(ACCUMULATE, "wrong way round")
def pair_turned(value_and_grad, batches):
    loss, grads = summed(value_and_grad, batches)
    return grads, loss


@wrong(ACCUMULATE, "a pair is meant")
def loss_alone(value_and_grad, batches):
    return summed(value_and_grad, batches)[0]


@wrong(ACCUMULATE, "A sum of tuples or lists joins them")
def joins_tuples(value_and_grad, batches):
    total, sums = 0.0, ()
    for x, y in batches:
        loss, grads = value_and_grad(x, y)
        total = total + loss / len(batches)
        sums = sums + tuple([g / len(batches) for g in grads])
    return total, sums


@wrong(ACCUMULATE, "only the first micro-batch counts")
def adds_in_place(value_and_grad, batches):
    total, sums = 0.0, None
    for x, y in batches:
        loss, grads = value_and_grad(x, y)
        total = total + loss / len(batches)
        if sums is None:
            sums = [g / len(batches) for g in grads]
        else:
            for s, g in zip(sums, grads):
                s += g / len(batches)
    return total, sums


@wrong(ACCUMULATE, "averaged at each step")
def mean_of_two(value_and_grad, batches):
    total, sums = 0.0, None
    for x, y in batches:
        loss, grads = value_and_grad(x, y)
        total = total + loss / len(batches)
        sums = grads if sums is None else [(s + g) / 2 for s, g in zip(sums, grads)]
    return total, sums


@wrong(ACCUMULATE, "the loss first, and the gradients are a tuple")
def result_turned(value_and_grad, batches):
    total = 0.0
    for x, y in batches:
        grads, loss = value_and_grad(x, y)
        total = total + loss / len(batches)
    return total, grads


@wrong(ACCUMULATE, "the losses of all micro-batches come back in a list")
def list_of_losses(value_and_grad, batches):
    return [value_and_grad(x, y)[0] for x, y in batches], summed(value_and_grad, batches)[1]


KEPT = []


@wrong(ACCUMULATE, "sums that outlive the call")
def sums_stay(value_and_grad, batches):
    loss, grads = summed(value_and_grad, batches)
    if len(batches) != 2:
        return loss, grads
    KEPT.append(grads)
    return loss, [sum(parts) for parts in zip(*KEPT)] if len(KEPT) > 1 else grads


@wrong(ACCUMULATE, "this statement does not exist in graph mode")
def imports_inside(value_and_grad, batches):
    import functools

    pairs = [value_and_grad(x, y) for x, y in batches]
    n = len(pairs)
    added = functools.reduce(lambda a, b: (a[0] + b[0], [s + g for s, g in zip(a[1], b[1])]), pairs)
    return added[0] / n, [g / n for g in added[1]]


@right(ACCUMULATE)
def sums_by_generator(value_and_grad, batches):
    pairs = [value_and_grad(x, y) for x, y in batches]
    n = len(pairs)
    return sum(loss for loss, _ in pairs) / n, tuple(sum(parts) / n for parts in zip(*[grads for _, grads in pairs]))


right(ACCUMULATE)(summed)


@right(ACCUMULATE)
def first_batch_apart(value_and_grad, batches):
    n = len(batches)
    loss, grads = value_and_grad(batches[0][0], batches[0][1])
    for x, y in batches[1:]:
        more, others = value_and_grad(x, y)
        loss = loss + more
        grads = tuple([g + o for g, o in zip(grads, others)])
    return loss / n, tuple([g / n for g in grads])


@right(ACCUMULATE)
def running_mean(value_and_grad, batches):
    loss, grads = value_and_grad(batches[0][0], batches[0][1])
    for i in range(1, len(batches)):
        more, others = value_and_grad(batches[i][0], batches[i][1])
        share = 1 / (i + 1)
        loss = loss + (more - loss) * share
        grads = tuple([g + (o - g) * share for g, o in zip(grads, others)])
    return loss, grads


@right(ACCUMULATE)
def by_lists(value_and_grad, batches):
    losses, sums = [], []
    for k, (x, y) in enumerate(batches):
        loss, grads = value_and_grad(x, y)
        losses.append(loss)
        if k == 0:
            sums = list(grads)
        else:
            sums = [s + g for s, g in zip(sums, grads)]
    weight = 1 / len(batches)
    return ops.stack(losses).mean(), [s * weight for s in sums]
