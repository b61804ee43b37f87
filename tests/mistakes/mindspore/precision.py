"""Wrong and right variants of lesson 18 in MindSpore."""
import math

import mindspore as ms
import torch
from mindspore import nn, ops

from course.precision import LayerPrecision
from solutions.mindspore import precision as good
from solutions.mindspore.attention import attention, causal_mask, merge_heads, split_heads
from solutions.mindspore.layers import gelu
from solutions.mindspore.primitives import cross_entropy, linear, softmax
from solutions.mindspore.training import clip_grad_norm
from tests.mistakes import right, wrong

ATTENTION = "mindspore.precision.attention_in"
MODEL = "mindspore.precision.PrecisionGPT"
SCALER = "mindspore.precision.LossScaler"

# --- attention_in --------------------------------------------------------------------------------------


def weights_of(scores, mask, value=-math.inf):
    if mask is not None:
        scores = scores.masked_fill(ops.logical_not(mask), value)
    return softmax(scores, dim=-1)


def scores_of(q, k):
    return ops.matmul(q / math.sqrt(q.shape[-1]), k.swapaxes(-2, -1))


@wrong(ATTENTION, "only the softmax runs in another dtype")
def attention_all_in_dtype(q, k, v, mask, dtype):
    return attention(q.astype(dtype), k.astype(dtype), v.astype(dtype), mask)


@wrong(ATTENTION, "is None")
def attention_without_return(q, k, v, mask, dtype):
    ops.matmul(weights_of(scores_of(q, k).astype(dtype), mask).astype(v.dtype), v)


@wrong(ATTENTION, "two dtypes meet in a product")
def attention_without_the_second_cast(q, k, v, mask, dtype):
    return ops.matmul(weights_of(scores_of(q, k).astype(dtype), mask), v)


@wrong(ATTENTION, "astype wants a dtype of MindSpore")
def attention_with_a_dtype_of_pytorch(q, k, v, mask, dtype):
    return ops.matmul(weights_of(scores_of(q, k).astype(torch.float32), mask).astype(v.dtype), v)


@wrong(ATTENTION, "a softmax of large scores gives nan")
def attention_without_the_maximum(q, k, v, mask, dtype):
    scores = scores_of(q, k).astype(dtype)
    e = ops.exp(scores if mask is None else scores.masked_fill(ops.logical_not(mask), -math.inf))
    return ops.matmul((e / e.sum(axis=-1, keepdims=True)).astype(v.dtype), v)


@wrong(ATTENTION, "not divided by sqrt(head_dim)")
def attention_without_scale(q, k, v, mask, dtype):
    return ops.matmul(weights_of(ops.matmul(q, k.swapaxes(-2, -1)).astype(dtype), mask).astype(v.dtype), v)


@wrong(ATTENTION, "the mask is inverted")
def attention_mask_inverted(q, k, v, mask, dtype):
    return ops.matmul(weights_of(scores_of(q, k).astype(dtype), None if mask is None else ops.logical_not(mask)).astype(v.dtype), v)


@wrong(ATTENTION, "more digits than float16 holds")
def attention_dtype_ignored(q, k, v, mask, dtype):
    return attention(q, k, v, mask)


@wrong(ATTENTION, "and only the weights are")
def attention_cast_after_the_softmax(q, k, v, mask, dtype):
    return ops.matmul(weights_of(scores_of(q, k), mask).astype(dtype).astype(v.dtype), v)


@wrong(ATTENTION, "did not run in float32")
def attention_narrowest_wins(q, k, v, mask, dtype):
    return ops.matmul(weights_of(scores_of(q, k).astype(ms.float16 if q.dtype == ms.float16 else dtype), mask).astype(v.dtype), v)


@wrong(ATTENTION, "it ran in a wider dtype")
def attention_product_in_float32(q, k, v, mask, dtype):
    return ops.matmul(weights_of(scores_of(q.astype(ms.float32), k.astype(ms.float32)).astype(dtype), mask).astype(v.dtype), v)


@wrong(ATTENTION, "the product with it ran in a wider dtype")
def attention_second_product_in_float32(q, k, v, mask, dtype):
    weights = weights_of(scores_of(q, k).astype(dtype), mask).astype(ms.float32)
    return ops.matmul(weights, v.astype(ms.float32)).astype(v.dtype)


@wrong(ATTENTION, "divided by sqrt(d) too late")
def attention_divided_late(q, k, v, mask, dtype):
    scores = ops.matmul(q, k.swapaxes(-2, -1)) / math.sqrt(q.shape[-1])
    return ops.matmul(weights_of(scores.astype(dtype), mask).astype(v.dtype), v)


@wrong(ATTENTION, "a large negative number and not -inf")
def attention_masked_with_ten_thousand(q, k, v, mask, dtype):
    return ops.matmul(weights_of(scores_of(q, k).astype(dtype), mask, -1e4).astype(v.dtype), v)


@wrong(ATTENTION, "no gradient reaches")
def attention_cut(q, k, v, mask, dtype):
    return ops.matmul(ops.stop_gradient(weights_of(scores_of(q, k).astype(dtype), mask)).astype(v.dtype), v)


@wrong(ATTENTION, "try does not exist in graph mode")
def attention_with_try(q, k, v, mask, dtype):
    try:
        hidden = ops.logical_not(mask)
    except TypeError:
        hidden = None
    return good.attention_in(q, k, v, None if hidden is None else ops.logical_not(hidden), dtype)


@right(ATTENTION)
def attention_by_ops(q, k, v, mask, dtype):
    scores = ops.cast(ops.matmul(q * (q.shape[-1] ** -0.5), k.swapaxes(-1, -2)), dtype)
    if mask is not None:
        scores = scores.masked_fill(mask == False, -math.inf)  # noqa: E712
    return ops.matmul(ops.cast(ops.softmax(scores, axis=-1), v.dtype), v)


@right(ATTENTION)
def attention_by_operators(q, k, v, mask, dtype):
    q = q / math.sqrt(q.shape[-1])
    scores = (q @ k.swapaxes(-2, -1)).to(dtype)
    return weights_of(scores, mask).to(v.dtype) @ v


@right(ATTENTION)
def attention_divided_twice(q, k, v, mask, dtype):
    root = q.shape[-1] ** 0.25
    scores = ops.matmul(q / root, (k / root).swapaxes(-2, -1)).astype(dtype)
    return ops.matmul(weights_of(scores, mask).astype(v.dtype), v)


@right(ATTENTION)
def attention_with_a_large_number_of_its_dtype(q, k, v, mask, dtype):
    weights = weights_of(scores_of(q, k).astype(dtype), mask, float("-inf"))
    return ops.BatchMatMul()(weights.astype(v.dtype), v) if v.ndim > 2 else ops.matmul(weights.astype(v.dtype), v)


# --- PrecisionGPT --------------------------------------------------------------------------------------


class Parts(nn.Cell):
    """The answer in pieces, each of which a variant may replace."""

    def __init__(self, model, policy):
        super().__init__()
        self.config, self.dtypes = model.config, policy.dtypes(ms)
        self.wte, self.wpe, self.h, self.ln_f = model.wte, model.wpe, model.h, model.ln_f

    def by(self, layer, x, dtype):
        return linear(x.astype(dtype), layer.weight.astype(dtype), layer.bias.astype(dtype))

    def rows(self, idx):
        return self.wte(idx).astype(self.dtypes.embedding) + self.wpe(ops.arange(idx.shape[1])).astype(self.dtypes.embedding)

    def norm(self, layer, x):
        return layer(x.astype(self.dtypes.norm))

    def c_attn(self, layer, y):
        return self.by(layer, y, self.dtypes.qkv)

    def attend_to(self, q, k, v):
        return good.attention_in(q, k, v, causal_mask(q.shape[-2], q.shape[-2]), self.dtypes.softmax)

    def attend(self, attn, y):
        q, k, v = self.c_attn(attn.c_attn, y).split(self.config.n_embd, axis=-1)
        y = self.attend_to(split_heads(q, attn.n_head), split_heads(k, attn.n_head), split_heads(v, attn.n_head))
        return self.by(attn.c_proj, merge_heads(y), self.dtypes.qkv)

    def feed(self, mlp, y):
        return self.by(mlp.c_proj, gelu(self.by(mlp.c_fc, y, self.dtypes.mlp)), self.dtypes.mlp)

    def add(self, x, y):
        return x + y.astype(self.dtypes.embedding)

    def logits(self, x):
        return linear(x.astype(self.dtypes.head), self.wte.weight.astype(self.dtypes.head)).astype(ms.float32)

    def loss_of(self, logits, targets):
        return cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))

    def construct(self, idx, targets=None):
        x = self.rows(idx)
        for block in self.h:
            x = self.add(x, self.attend(block.attn, self.norm(block.ln_1, x)))
            x = self.add(x, self.feed(block.mlp, self.norm(block.ln_2, x)))
        logits = self.logits(self.norm(self.ln_f, x))
        if targets is None:
            return logits, None
        return logits, self.loss_of(logits, targets)


@right(MODEL)
class CastOfASum(Parts):
    def rows(self, idx):
        return (self.wte(idx) + self.wpe.weight[: idx.shape[1]]).astype(self.dtypes.embedding)


@right(MODEL)
class LossOfMindSpore(Parts):
    def loss_of(self, logits, targets):
        return ops.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


@right(MODEL)
class CastsByOps(Parts):
    def by(self, layer, x, dtype):
        return ops.matmul(ops.cast(x, dtype), ops.cast(layer.weight, dtype).swapaxes(0, 1)) + ops.cast(layer.bias, dtype)


@right(MODEL)
class HeadByOperator(Parts):
    def logits(self, x):
        return (x.to(self.dtypes.head) @ self.wte.weight.to(self.dtypes.head).swapaxes(0, 1)).to(ms.float32)


@wrong(MODEL, "the method is called forward")
class NamedForward(nn.Cell):
    def __init__(self, model, policy):
        super().__init__()
        self.wte = model.wte

    def forward(self, idx, targets=None):
        return self.wte(idx), None


@wrong(MODEL, "expected the pair")
class OnlyLogits(Parts):
    def construct(self, idx, targets=None):
        return self.logits(self.norm(self.ln_f, self.rows(idx)))


@wrong(MODEL, "super().__init__() must come first")
class NoSuper(Parts):
    def __init__(self, model, policy):
        self.wte, self.wpe, self.h, self.ln_f = model.wte, model.wpe, model.h, model.ln_f


@wrong(MODEL, "the biases of the linear layers are missing")
class NoBiases(Parts):
    def by(self, layer, x, dtype):
        return linear(x.astype(dtype), layer.weight.astype(dtype))


@wrong(MODEL, "a wider dtype is used at: the bias of c_proj")
class BiasesFloat32(Parts):
    def by(self, layer, x, dtype):
        return linear(x.astype(dtype), layer.weight.astype(dtype)) + layer.bias


@wrong(MODEL, "bfloat16 is taken without a word")
class NamesForDtypes(Parts):
    def __init__(self, model, policy):
        super().__init__(model, LayerPrecision())
        self.dtypes = policy


@wrong(MODEL, "is taken for token 0")
class CountsIgnored(Parts):
    def loss_of(self, logits, targets):
        return super().loss_of(logits, ops.maximum(targets, ms.Tensor(0, ms.int32)))


@wrong(MODEL, "a residual is missing")
class NoResidual(Parts):
    def add(self, x, y):
        return y.astype(self.dtypes.embedding)


@wrong(MODEL, "causal mask is missing")
class NoMask(Parts):
    def attend_to(self, q, k, v):
        return good.attention_in(q, k, v, None, self.dtypes.softmax)


@wrong(MODEL, "the sum over the targets")
class SummedLoss(Parts):
    def loss_of(self, logits, targets):
        return ops.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), reduction="sum")


@wrong(MODEL, "the loss has dtype Float16")
class LossInHalf(Parts):
    def loss_of(self, logits, targets):
        return super().loss_of(logits.astype(self.dtypes.head), targets)


@wrong(MODEL, "named model.")
class ModelInside(Parts):
    def __init__(self, model, policy):
        super().__init__(model, policy)
        self.model = model


@wrong(MODEL, "the weights stay float32")
class ModelCast(Parts):
    def __init__(self, model, policy):
        super().__init__(model, policy)
        for p in self.ln_f.get_parameters():
            p.set_dtype(self.dtypes.head)


@wrong(MODEL, "used at: what attention adds to x")
class StreamNotCast(Parts):
    def add(self, x, y):
        return x + y


@wrong(MODEL, "a wider dtype is used at: c_attn")
class QkvFloat32(Parts):
    def c_attn(self, layer, y):
        return self.by(layer, y, ms.float32).astype(self.dtypes.qkv)


@wrong(MODEL, "a wider dtype is used at: the scores")
class SoftmaxFloat32(Parts):
    def attend_to(self, q, k, v):
        return good.attention_in(q, k, v, causal_mask(q.shape[-2], q.shape[-2]), ms.float32)


@wrong(MODEL, "norm is float16 in the policy")
class NormFloat32(Parts):
    def norm(self, layer, x):
        return layer(x.astype(ms.float32))


@wrong(MODEL, "mlp is float16 in the policy")
class MlpAsQkv(Parts):
    def feed(self, mlp, y):
        return self.by(mlp.c_proj, gelu(self.by(mlp.c_fc, y, self.dtypes.qkv)), self.dtypes.qkv)


@wrong(MODEL, "no gradient reaches")
class WeightsCut(Parts):
    def by(self, layer, x, dtype):
        return linear(x.astype(dtype), ops.stop_gradient(layer.weight).astype(dtype), layer.bias.astype(dtype))


@wrong(MODEL, "call no method linear")
class MethodLinear(nn.Cell):
    def __init__(self, model, policy):
        super().__init__()
        self.config, self.dtypes = model.config, policy.dtypes(ms)
        self.wte, self.wpe, self.h, self.ln_f = model.wte, model.wpe, model.h, model.ln_f

    def linear(self, layer, x, dtype):
        return linear(x.astype(dtype), layer.weight.astype(dtype), layer.bias.astype(dtype))

    def construct(self, idx, targets=None):
        use = self.dtypes
        x = self.wte(idx).astype(use.embedding) + self.wpe(ops.arange(idx.shape[1])).astype(use.embedding)
        for block in self.h:
            attn = block.attn
            q, k, v = self.linear(attn.c_attn, block.ln_1(x.astype(use.norm)), use.qkv).split(self.config.n_embd, axis=-1)
            mask = causal_mask(idx.shape[1], idx.shape[1])
            y = good.attention_in(split_heads(q, attn.n_head), split_heads(k, attn.n_head), split_heads(v, attn.n_head), mask, use.softmax)
            x = x + self.linear(attn.c_proj, merge_heads(y), use.qkv).astype(use.embedding)
            y = gelu(self.linear(block.mlp.c_fc, block.ln_2(x.astype(use.norm)), use.mlp))
            x = x + self.linear(block.mlp.c_proj, y, use.mlp).astype(use.embedding)
        x = self.ln_f(x.astype(use.norm))
        logits = ops.matmul(x.astype(use.head), self.wte.weight.astype(use.head).swapaxes(0, 1)).astype(ms.float32)
        if targets is None:
            return logits, None
        return logits, cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


# --- LossScaler ----------------------------------------------------------------------------------------


class Scaler(nn.Cell):
    """The answer in pieces."""

    def __init__(self, scale=2.0**16, growth=2.0, backoff=0.5, interval=2000):
        super().__init__()
        self.scale = ms.Parameter(ms.Tensor(scale, ms.float32), name="scale", requires_grad=False)
        self.good_steps = ms.Parameter(ms.Tensor(0, ms.int32), name="good_steps", requires_grad=False)
        self.growth, self.backoff, self.interval = growth, backoff, interval

    def scaled(self, loss):
        return loss * self.scale

    def unscale(self, grads):
        return tuple([g / self.scale for g in grads])

    def finite(self, grads):
        return ops.stack([ops.isfinite(g).all() for g in grads]).all()

    def clip(self, grads, max_norm):
        if max_norm is not None:
            grads = clip_grad_norm(grads, max_norm)[0]
        return grads

    def skip(self, optimizer, grads):
        ops.assign(self.good_steps, ms.Tensor(0, ms.int32))
        return ops.assign(self.scale, self.scale * self.backoff)

    def count(self):
        steps = ops.assign(self.good_steps, self.good_steps + 1)
        if steps == self.interval:
            ops.assign(self.scale, self.scale * self.growth)
            ops.assign(self.good_steps, ms.Tensor(0, ms.int32))

    def step(self, optimizer, grads, max_norm=None):
        grads = self.unscale(grads)
        finite = self.finite(grads)
        if finite:
            optimizer.step(self.clip(grads, max_norm))
            self.count()
        else:
            self.skip(optimizer, grads)
        return finite


@right(SCALER)
class ScalerByNorm(Scaler):
    def finite(self, grads):
        total = grads[0].abs().sum()
        for g in grads[1:]:
            total = total + g.abs().sum()
        return ops.isfinite(total)


@right(SCALER)
class ScalerByMindSpore(Scaler):
    def clip(self, grads, max_norm):
        if max_norm is not None:
            grads = ops.clip_by_global_norm(grads, max_norm)
        return grads


@right(SCALER)
class ScalerByRemainder(Scaler):
    def count(self):
        steps = ops.assign(self.good_steps, (self.good_steps + 1) % self.interval)
        if steps == 0:
            ops.assign(self.scale, self.growth * self.scale)


@right(SCALER)
class WritesByName(Scaler):
    def skip(self, optimizer, grads):
        self.good_steps = ms.Tensor(0, ms.int32)
        self.scale = self.scale * self.backoff


@wrong(SCALER, "should be a mindspore.nn.Cell")
class NoCell:
    def __init__(self, scale=2.0**16, growth=2.0, backoff=0.5, interval=2000):
        self.scale = scale


@wrong(SCALER, "nothing but Parameters")
class ScaleAsNumber(Scaler):
    def __init__(self, scale=2.0**16, growth=2.0, backoff=0.5, interval=2000):
        super().__init__(scale, growth, backoff, interval)
        del self.scale
        self.scale = scale


@wrong(SCALER, "requires_grad=True")
class TrainedScale(Scaler):
    def __init__(self, scale=2.0**16, growth=2.0, backoff=0.5, interval=2000):
        super().__init__(scale, growth, backoff, interval)
        self.scale.requires_grad = True


@wrong(SCALER, "the loss is divided by the scale")
class DividesTheLoss(Scaler):
    def scaled(self, loss):
        return loss / self.scale


@wrong(SCALER, "starts with the scale 1, expected 65536")
class StartsAtOne(Scaler):
    def __init__(self, scale=1.0, growth=2.0, backoff=0.5, interval=2000):
        super().__init__(scale, growth, backoff, interval)


@wrong(SCALER, "divide each gradient by the scale")
class NeverUnscales(Scaler):
    def unscale(self, grads):
        return grads


@wrong(SCALER, "step returns None")
class ReturnsNothing(Scaler):
    def step(self, optimizer, grads, max_norm=None):
        super().step(optimizer, grads, max_norm)


@wrong(SCALER, "must be skipped as a whole")
class NeverSkips(Scaler):
    def finite(self, grads):
        return ms.Tensor(True)


@wrong(SCALER, "must be skipped as a whole")
class LooksForNanOnly(Scaler):
    def finite(self, grads):
        return ops.logical_not(ops.stack([ops.isnan(g).any() for g in grads]).any())


@wrong(SCALER, "must be skipped as a whole")
class LooksAtTheFirst(Scaler):
    def finite(self, grads):
        return ops.isfinite(grads[0]).all()


@wrong(SCALER, "must be skipped as a whole")
class StepsWithZeros(Scaler):
    def skip(self, optimizer, grads):
        optimizer.step(tuple([ops.zeros_like(g) for g in grads]))
        return super().skip(optimizer, grads)


@wrong(SCALER, "the scale stays as it was")
class NeverBacksOff(Scaler):
    def skip(self, optimizer, grads):
        return ops.assign(self.good_steps, ms.Tensor(0, ms.int32))


@wrong(SCALER, "it may fall below 1")
class SmallestScaleOne(Scaler):
    def skip(self, optimizer, grads):
        super().skip(optimizer, grads)
        return ops.assign(self.scale, ops.maximum(self.scale, ms.Tensor(1.0)))


@wrong(SCALER, "one step late")
class GrowsLate(Scaler):
    def count(self):
        steps = ops.assign(self.good_steps, self.good_steps + 1)
        if steps > self.interval:
            ops.assign(self.scale, self.scale * self.growth)
            ops.assign(self.good_steps, ms.Tensor(0, ms.int32))


@wrong(SCALER, "clip_grad_norm gives a pair")
class StepsWithThePair(Scaler):
    def clip(self, grads, max_norm):
        return grads if max_norm is None else clip_grad_norm(grads, max_norm)


@wrong(SCALER, "clipped too little")
class ClipsEachTensor(Scaler):
    def clip(self, grads, max_norm):
        return grads if max_norm is None else tuple([clip_grad_norm((g,), max_norm)[0][0] for g in grads])


@wrong(SCALER, "make a list, and one tensor of it")
class AllInPython(Scaler):
    def finite(self, grads):
        return bool(all(ops.isfinite(g).all() for g in grads))


@wrong(SCALER, "never grows")
class NeverGrows(Scaler):
    def count(self):
        ops.assign(self.good_steps, self.good_steps + 1)


@wrong(SCALER, "must be in a row")
class CountOutlivesOverflow(Scaler):
    def skip(self, optimizer, grads):
        return ops.assign(self.scale, self.scale * self.backoff)


@wrong(SCALER, "by default")
class GrowsByThree(Scaler):
    def __init__(self, scale=2.0**16, growth=3.0, backoff=0.5, interval=2000):
        super().__init__(scale, growth, backoff, interval)


@wrong(SCALER, "nothing is clipped")
class NeverClips(Scaler):
    def clip(self, grads, max_norm):
        return grads


@wrong(SCALER, "the norm that counts is the one without the scale")
class ClipsBeforeUnscaling(Scaler):
    def unscale(self, grads):
        return grads

    def clip(self, grads, max_norm):
        return super().unscale(super().clip(grads, max_norm))

    def __init__(self, scale=2.0**16, growth=2.0, backoff=0.5, interval=2000):
        super().__init__(scale, growth, backoff, interval)


@wrong(SCALER, "in graph mode")
class WritesBySetData(Scaler):
    def skip(self, optimizer, grads):
        self.good_steps.set_data(ms.Tensor(0, ms.int32))
        self.scale.set_data(self.scale * self.backoff)


@wrong(SCALER, "try does not exist in graph mode")
class ScalerWithTry(Scaler):
    def clip(self, grads, max_norm):
        try:
            return clip_grad_norm(grads, max_norm)[0]
        except TypeError:
            return grads
