"""Wrong and right variants of lesson 18 in PyTorch."""
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from solutions.pytorch import precision as good
from solutions.pytorch.attention import attention, causal_mask, merge_heads, split_heads
from solutions.pytorch.layers import gelu
from solutions.pytorch.primitives import cross_entropy, linear, softmax
from solutions.pytorch.training import clip_grad_norm
from tests.mistakes import right, wrong

ATTENTION = "pytorch.precision.attention_in"
MODEL = "pytorch.precision.PrecisionGPT"
SCALER = "pytorch.precision.LossScaler"

# --- attention_in --------------------------------------------------------------------------------------


def weights_of(scores, mask, value=-math.inf):
    return softmax(scores if mask is None else scores.masked_fill(~mask, value), dim=-1)


def scores_of(q, k):
    return (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)


@wrong(ATTENTION, "only the softmax runs in another dtype")
def all_in_dtype(q, k, v, mask, dtype):
    return attention(q.to(dtype), k.to(dtype), v.to(dtype), mask)


@wrong(ATTENTION, "only the softmax runs in another dtype")
def v_widened(q, k, v, mask, dtype):
    return weights_of(scores_of(q, k).to(dtype), mask).to(dtype) @ v.to(dtype)


@wrong(ATTENTION, "is None")
def attention_without_return(q, k, v, mask, dtype):
    weights_of(scores_of(q, k).to(dtype), mask).to(v.dtype) @ v


@wrong(ATTENTION, "a cast is missing at one of the two")
def attention_without_the_second_cast(q, k, v, mask, dtype):
    return weights_of(scores_of(q, k).to(dtype), mask) @ v


@wrong(ATTENTION, "has the digits of 16 bits")
def attention_always_half(q, k, v, mask, dtype):
    return weights_of(scores_of(q, k).half(), mask).to(v.dtype) @ v


@wrong(ATTENTION, "a softmax of large scores gives nan")
def attention_without_the_maximum(q, k, v, mask, dtype):
    scores = scores_of(q, k).to(dtype)
    e = (scores if mask is None else scores.masked_fill(~mask, -math.inf)).exp()
    return (e / e.sum(-1, keepdim=True)).to(v.dtype) @ v


@wrong(ATTENTION, "not divided by sqrt(head_dim)")
def attention_without_scale(q, k, v, mask, dtype):
    return weights_of((q @ k.transpose(-2, -1)).to(dtype), mask).to(v.dtype) @ v


@wrong(ATTENTION, "the mask is inverted")
def attention_mask_inverted(q, k, v, mask, dtype):
    return weights_of(scores_of(q, k).to(dtype), None if mask is None else ~mask).to(v.dtype) @ v


@wrong(ATTENTION, "the mask is ignored")
def attention_mask_forgotten(q, k, v, mask, dtype):
    return weights_of(scores_of(q, k).to(dtype), None).to(v.dtype) @ v


@wrong(ATTENTION, "more digits than float16 holds")
def dtype_ignored(q, k, v, mask, dtype):
    return attention(q, k, v, mask)


@wrong(ATTENTION, "and only the weights are")
def cast_after_the_softmax(q, k, v, mask, dtype):
    return weights_of(scores_of(q, k), mask).to(dtype).to(v.dtype) @ v


@wrong(ATTENTION, "more digits than float16 holds")
def softmax_always_float32(q, k, v, mask, dtype):
    return weights_of(scores_of(q, k).float(), mask).to(v.dtype) @ v


@wrong(ATTENTION, "did not run in float32")
def narrowest_wins(q, k, v, mask, dtype):
    dtype = torch.float16 if torch.float16 in (dtype, q.dtype) else dtype
    return weights_of(scores_of(q, k).to(dtype), mask).to(v.dtype) @ v


@wrong(ATTENTION, "it ran in a wider dtype")
def product_in_dtype(q, k, v, mask, dtype):
    wide = torch.promote_types(q.dtype, dtype)
    return weights_of(scores_of(q.to(wide), k.to(wide)).to(dtype), mask).to(v.dtype) @ v


@wrong(ATTENTION, "the product with it ran in a wider dtype")
def second_product_in_dtype(q, k, v, mask, dtype):
    wide = torch.promote_types(v.dtype, dtype)
    weights = weights_of(scores_of(q, k).to(dtype), mask)
    return (weights.to(wide) @ v.to(wide)).to(v.dtype)


@wrong(ATTENTION, "divided by sqrt(d) too late")
def divided_after_the_product(q, k, v, mask, dtype):
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
    return weights_of(scores.to(dtype), mask).to(v.dtype) @ v


@wrong(ATTENTION, "divided by sqrt(d) too late")
def divided_after_the_cast(q, k, v, mask, dtype):
    scores = (q @ k.transpose(-2, -1)).to(dtype) / math.sqrt(q.shape[-1])
    return weights_of(scores, mask).to(v.dtype) @ v


@wrong(ATTENTION, "a large negative number and not -inf")
def masked_with_ten_thousand(q, k, v, mask, dtype):
    return weights_of(scores_of(q, k).to(dtype), mask, -1e4).to(v.dtype) @ v


@wrong(ATTENTION, "a large negative number and not -inf")
def masked_with_the_last_of_float16(q, k, v, mask, dtype):
    return weights_of(scores_of(q, k).to(dtype), mask, torch.finfo(torch.float16).min).to(v.dtype) @ v


@wrong(ATTENTION, "without overflow")
def masked_with_a_billion(q, k, v, mask, dtype):
    return weights_of(scores_of(q, k).to(dtype), mask, -1e9).to(v.dtype) @ v


@wrong(ATTENTION, "a large negative number and not -inf")
def mask_added(q, k, v, mask, dtype):
    scores = scores_of(q, k).to(dtype)
    if mask is not None:
        scores = scores + torch.where(mask, 0.0, -30000.0).to(dtype)
    return softmax(scores, dim=-1).to(v.dtype) @ v


@wrong(ATTENTION, "no gradient")
def attention_through_new_tensors(q, k, v, mask, dtype):
    scores = torch.tensor(scores_of(q, k).tolist(), dtype=q.dtype, device=q.device).to(dtype)
    return (weights_of(scores, mask).to(v.dtype) @ v).detach()


@wrong(ATTENTION, "whatever device")
def attention_made_on_the_cpu(q, k, v, mask, dtype):
    if mask is None:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
    added = torch.zeros(mask.shape).masked_fill(~mask.cpu() if mask.device.type == "cpu" else torch.zeros(mask.shape, dtype=torch.bool), -math.inf)
    return softmax(scores_of(q, k).to(dtype) + added.to(dtype), dim=-1).to(v.dtype) @ v


@right(ATTENTION)
def attention_by_torch(q, k, v, mask, dtype):
    scores = torch.matmul(q * q.shape[-1] ** -0.5, k.mT).to(dtype)
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    return torch.matmul(F.softmax(scores, dim=-1).to(v.dtype), v)


@right(ATTENTION)
def attention_of_divided_keys(q, k, v, mask, dtype):
    return weights_of((q @ (k / math.sqrt(k.shape[-1])).mT).to(dtype), mask).to(v.dtype) @ v


@right(ATTENTION)
def attention_by_einsum(q, k, v, mask, dtype):
    scores = torch.einsum("...id,...jd->...ij", q / math.sqrt(q.shape[-1]), k).to(dtype)
    weights = weights_of(scores, mask)
    return torch.einsum("...ij,...jd->...id", weights.type_as(v), v)


@right(ATTENTION)
def attention_divided_twice(q, k, v, mask, dtype):
    root = q.shape[-1] ** 0.25
    return weights_of(((q / root) @ (k / root).transpose(-2, -1)).to(dtype), mask).to(v.dtype) @ v


@right(ATTENTION)
def attention_with_an_added_mask(q, k, v, mask, dtype):
    scores = scores_of(q, k).to(dtype)
    if mask is not None:
        scores = scores + torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -math.inf)
    return softmax(scores, dim=-1).to(v.dtype).matmul(v)


# --- PrecisionGPT --------------------------------------------------------------------------------------


class Parts(nn.Module):
    """The answer in pieces, each of which a variant may replace."""

    def __init__(self, model, policy):
        super().__init__()
        self.config, self.dtypes = model.config, policy.dtypes(torch)
        self.wte, self.wpe, self.h, self.ln_f = model.wte, model.wpe, model.h, model.ln_f

    def by(self, layer, x, dtype):
        return F.linear(x.to(dtype), layer.weight.to(dtype), layer.bias.to(dtype))

    def rows(self, idx):
        T = idx.shape[1]
        return self.wte(idx).to(self.dtypes.embedding) + self.wpe(torch.arange(T, device=idx.device)).to(self.dtypes.embedding)

    def norm(self, layer, x):
        return layer(x.to(self.dtypes.norm))

    def c_attn(self, layer, y):
        return self.by(layer, y, self.dtypes.qkv)

    def c_proj(self, layer, y):
        return self.by(layer, y, self.dtypes.qkv)

    def attention(self, q, k, v):
        T = q.shape[-2]
        return good.attention_in(q, k, v, causal_mask(T, T).to(q.device), self.dtypes.softmax)

    def attend(self, attn, y):
        q, k, v = (split_heads(p, attn.n_head) for p in self.c_attn(attn.c_attn, y).chunk(3, dim=-1))
        return self.c_proj(attn.c_proj, merge_heads(self.attention(q, k, v)))

    def feed(self, mlp, y):
        return self.by(mlp.c_proj, gelu(self.by(mlp.c_fc, y, self.dtypes.mlp)), self.dtypes.mlp)

    def add(self, x, y):
        return x + y.to(self.dtypes.embedding)

    def block(self, block, x):
        x = self.add(x, self.attend(block.attn, self.norm(block.ln_1, x)))
        return self.add(x, self.feed(block.mlp, self.norm(block.ln_2, x)))

    def logits(self, x):
        return linear(x.to(self.dtypes.head), self.wte.weight.to(self.dtypes.head)).float()

    def loss(self, logits, targets):
        return cross_entropy(logits.flatten(0, 1), targets.flatten())

    def forward(self, idx, targets=None):
        x = self.rows(idx)
        for block in self.h:
            x = self.block(block, x)
        logits = self.logits(self.norm(self.ln_f, x))
        return logits, None if targets is None else self.loss(logits, targets)


right(MODEL)(type("PartsThemselves", (Parts,), {}))


@right(MODEL)
class CastsOfASum(Parts):
    def rows(self, idx):
        return (self.wte(idx) + self.wpe.weight[: idx.shape[1]]).to(self.dtypes.embedding)


@right(MODEL)
class LossOfTorch(Parts):
    def loss(self, logits, targets):
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-100)


@right(MODEL)
class HeadsByOneReshape(Parts):
    def attend(self, attn, y):
        B, T, C = y.shape
        q, k, v = self.c_attn(attn.c_attn, y).view(B, T, 3, attn.n_head, C // attn.n_head).permute(2, 0, 3, 1, 4)
        return self.c_proj(attn.c_proj, self.attention(q, k, v).transpose(1, 2).reshape(B, T, C))


@right(MODEL)
class NormByHand(Parts):
    def norm(self, layer, x):
        x = x.to(self.dtypes.norm)
        d = x - x.mean(-1, keepdim=True)
        return d / (d.square().mean(-1, keepdim=True) + layer.eps).sqrt() * layer.weight + layer.bias


@wrong(MODEL, "expected the pair")
class OnlyLogits(Parts):
    def forward(self, idx, targets=None):
        return super().forward(idx, targets)[0]


@wrong(MODEL, "should be a torch.nn.Module")
class NoModule:
    def __init__(self, model, policy):
        self.model, self.policy = model, policy

    def __call__(self, idx, targets=None):
        return self.model(idx, targets)


@wrong(MODEL, "wpe is not added")
class NoPositions(Parts):
    def rows(self, idx):
        return self.wte(idx).to(self.dtypes.embedding)


@wrong(MODEL, "has the digits of 16 bits")
class Autocast(Parts):
    def forward(self, idx, targets=None):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(idx, targets)


@wrong(MODEL, "the heads are not split")
class OneHead(Parts):
    def attend(self, attn, y):
        return self.c_proj(attn.c_proj, self.attention(*self.c_attn(attn.c_attn, y).chunk(3, dim=-1)))


@wrong(MODEL, "only the first block is run")
class FirstBlock(Parts):
    def __init__(self, model, policy):
        super().__init__(model, policy)
        self.parts = [self.h[0]]

    def block(self, block, x):
        return super().block(block, x) if block is self.parts[0] else x


@wrong(MODEL, "the biases of the linear layers are missing")
class NoBiases(Parts):
    def by(self, layer, x, dtype):
        return x.to(dtype) @ layer.weight.to(dtype).T


@wrong(MODEL, "a wider dtype is used at: the bias of c_proj")
class BiasesFloat32(Parts):
    def by(self, layer, x, dtype):
        return x.to(dtype) @ layer.weight.to(dtype).T + layer.bias


@wrong(MODEL, "are shifted against each other")
class ShiftsTargets(Parts):
    def loss(self, logits, targets):
        return super().loss(logits[:, :-1], targets[:, 1:])


@wrong(MODEL, "a mean of the means")
class MeanOfMeans(Parts):
    def loss(self, logits, targets):
        return torch.stack([F.cross_entropy(x, y) for x, y in zip(logits, targets)]).mean()


@wrong(MODEL, "requires_grad=False now")
class Freezes(Parts):
    def __init__(self, model, policy):
        super().__init__(model, policy)
        model.requires_grad_(False)


@wrong(MODEL, "a residual is missing")
class NoResidual(Parts):
    def add(self, x, y):
        return y.to(self.dtypes.embedding)


@wrong(MODEL, "causal mask is missing")
class NoMask(Parts):
    def attention(self, q, k, v):
        return good.attention_in(q, k, v, None, self.dtypes.softmax)


@wrong(MODEL, "ln_f is missing")
class NoLastNorm(Parts):
    def norm(self, layer, x):
        return x if layer is self.ln_f else super().norm(layer, x)


@wrong(MODEL, "the exact GELU")
class ExactGelu(Parts):
    def feed(self, mlp, y):
        return self.by(mlp.c_proj, F.gelu(self.by(mlp.c_fc, y, self.dtypes.mlp)), self.dtypes.mlp)


@wrong(MODEL, "must read x after the attention was added")
class Parallel(Parts):
    def block(self, block, x):
        return self.add(self.add(x, self.attend(block.attn, self.norm(block.ln_1, x))), self.feed(block.mlp, self.norm(block.ln_2, x)))


@wrong(MODEL, "the MLP comes before the attention")
class MlpFirst(Parts):
    def block(self, block, x):
        x = self.add(x, self.feed(block.mlp, self.norm(block.ln_2, x)))
        return self.add(x, self.attend(block.attn, self.norm(block.ln_1, x)))


@wrong(MODEL, "ln_2 belongs there")
class OneNorm(Parts):
    def block(self, block, x):
        x = self.add(x, self.attend(block.attn, self.norm(block.ln_1, x)))
        return self.add(x, self.feed(block.mlp, self.norm(block.ln_1, x)))


@wrong(MODEL, "no gradient flows through the loss")
class WithoutGradients(Parts):
    def forward(self, idx, targets=None):
        with torch.no_grad():
            return super().forward(idx, targets)


@wrong(MODEL, "a target of -100 counts")
class CountsIgnored(Parts):
    def loss(self, logits, targets):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / targets.numel()


@wrong(MODEL, "the sum over the targets")
class SummedLoss(Parts):
    def loss(self, logits, targets):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


@wrong(MODEL, "the weights stay float32")
class ModelCast(Parts):
    def __init__(self, model, policy):
        super().__init__(model, policy)
        self.h.to(self.dtypes.qkv)


@wrong(MODEL, "an optimizer of either would train another tensor")
class ModelCopied(Parts):
    def __init__(self, model, policy):
        super().__init__(copy.deepcopy(model), policy)


@wrong(MODEL, "the names in the state dict differ")
class ModelInside(Parts):
    def __init__(self, model, policy):
        super().__init__(model, policy)
        self.model = model


@wrong(MODEL, "do not follow an update of the weights")
class CastsOnce(Parts):
    def __init__(self, model, policy):
        super().__init__(model, policy)
        self.kept = (model.ln_f.weight.detach().clone(), model.ln_f.bias.detach().clone())

    def norm(self, layer, x):
        y = super().norm(layer, x)
        if layer is self.ln_f:
            y = (y - layer.bias) / layer.weight * self.kept[0] + self.kept[1]
        return y


@wrong(MODEL, "a wider dtype is used at: the positions")
class StreamFloat32(Parts):
    def rows(self, idx):
        return self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))

    def add(self, x, y):
        return x + y


@wrong(MODEL, "qkv is float16 in the policy, and a wider dtype is used at: c_attn")
class QkvFloat32(Parts):
    def c_attn(self, layer, y):
        return self.by(layer, y, torch.float32)


@wrong(MODEL, "qkv is float16 in the policy, and a wider dtype is used at: c_proj of the attention")
class ProjectionFloat32(Parts):
    def c_proj(self, layer, y):
        return self.by(layer, y, torch.float32)


@wrong(MODEL, "a wider dtype is used at: the scores")
class SoftmaxAsQkv(Parts):
    def attention(self, q, k, v):
        T = q.shape[-2]
        return good.attention_in(q, k, v, causal_mask(T, T), self.dtypes.mlp)


@wrong(MODEL, "softmax is float16 in the policy, and a wider dtype is used at: the scores")
class SoftmaxFloat32(Parts):
    def attention(self, q, k, v):
        return attention(q, k, v, causal_mask(q.shape[-2], q.shape[-2]))


@wrong(MODEL, "norm is float16 in the policy, and a wider dtype is used at: ln_f")
class NormFloat32(Parts):
    def norm(self, layer, x):
        return layer(x.float())


@wrong(MODEL, "norm is float16 in the policy, and a wider dtype is used at: ln_f")
class LastNormFloat32(Parts):
    def norm(self, layer, x):
        return layer(x.float()) if layer is self.ln_f else super().norm(layer, x)


@wrong(MODEL, "norm is float16 in the policy, and a wider dtype is used at: ln_f")
class NormInItsInput(Parts):
    def norm(self, layer, x):
        return layer(x.to(self.dtypes.qkv))


@wrong(MODEL, "mlp is float16 in the policy, and a wider dtype is used at: c_fc")
class MlpAsQkv(Parts):
    def feed(self, mlp, y):
        return self.by(mlp.c_proj, gelu(self.by(mlp.c_fc, y, self.dtypes.qkv)), self.dtypes.qkv)


@wrong(MODEL, "mlp is float16 in the policy, and a wider dtype is used at: c_proj of the MLP")
class SecondMlpFloat32(Parts):
    def feed(self, mlp, y):
        return self.by(mlp.c_proj, gelu(self.by(mlp.c_fc, y, self.dtypes.mlp)), torch.float32)


@wrong(MODEL, "head is float16 in the policy")
class HeadFloat32(Parts):
    def logits(self, x):
        return linear(x.float(), self.wte.weight)


@wrong(MODEL, "float16 is used at: the table of the head")
class HeadOfTwoMasters(Parts):
    def logits(self, x):
        dtype = torch.float16 if torch.float16 in (self.dtypes.head, self.dtypes.mlp) else torch.float32
        return linear(x.to(dtype), self.wte.weight.to(dtype)).float()


@wrong(MODEL, "dtype torch.float16, expected torch.float32")
class LogitsInHalf(Parts):
    def logits(self, x):
        return linear(x.to(self.dtypes.head), self.wte.weight.to(self.dtypes.head))


@wrong(MODEL, "it was computed in fewer digits")
class LossInHalf(Parts):
    def loss(self, logits, targets):
        return super().loss(logits.to(self.dtypes.head), targets).float()


@wrong(MODEL, "no gradient reaches")
class WeightsDetached(Parts):
    def by(self, layer, x, dtype):
        return F.linear(x.to(dtype), layer.weight.data.to(dtype), layer.bias.to(dtype))


@wrong(MODEL, "whatever device")
class PositionsOnTheCpu(Parts):
    def rows(self, idx):
        steps = torch.arange(idx.shape[1]).float().to(self.dtypes.embedding)
        return super().rows(idx) + 0 * steps[:, None]


# --- LossScaler ----------------------------------------------------------------------------------------


class Scaler:
    """The answer in pieces."""

    def __init__(self, scale=2.0**16, growth=2.0, backoff=0.5, interval=2000):
        self.scale, self.growth, self.backoff, self.interval = scale, growth, backoff, interval
        self.good_steps = 0

    def scaled(self, loss):
        return loss * self.scale

    def params(self, optimizer):
        return [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]

    def unscale(self, params):
        for p in params:
            p.grad = p.grad / self.scale

    def finite(self, params):
        return all(torch.isfinite(p.grad).all() for p in params)

    def clip(self, params, max_norm):
        if max_norm is not None:
            clip_grad_norm(params, max_norm)

    def skip(self, optimizer):
        self.scale *= self.backoff
        self.good_steps = 0
        return False

    def count(self):
        self.good_steps += 1
        if self.good_steps == self.interval:
            self.scale, self.good_steps = self.scale * self.growth, 0

    def step(self, optimizer, max_norm=None):
        params = self.params(optimizer)
        self.unscale(params)
        if not self.finite(params):
            return self.skip(optimizer)
        self.clip(params, max_norm)
        optimizer.step()
        self.count()
        return True


right(SCALER)(type("ScalerInPieces", (Scaler,), {}))


@right(SCALER)
class ScalerByNorm(Scaler):
    def finite(self, params):
        return bool(torch.stack([p.grad.abs().sum() for p in params]).sum().isfinite())


@right(SCALER)
class ScalerThatLooksFirst(Scaler):
    """Tested before the division, and gradients thrown away after a skipped step."""

    def step(self, optimizer, max_norm=None):
        params = self.params(optimizer)
        if not self.finite(params):
            optimizer.zero_grad()
            return self.skip(optimizer)
        self.unscale(params)
        self.clip(params, max_norm)
        optimizer.step()
        self.count()
        return True


@right(SCALER)
class ScalerOfATensor(Scaler):
    def __init__(self, scale=2.0**16, growth=2.0, backoff=0.5, interval=2000):
        super().__init__(torch.tensor(scale), growth, backoff, interval)


@right(SCALER)
class ScalerInPlace(Scaler):
    def unscale(self, params):
        for p in params:
            p.grad.mul_(1 / self.scale)

    def clip(self, params, max_norm):
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(params, max_norm)


@right(SCALER)
class ScalerThatCountsAlong(Scaler):
    def count(self):
        self.good_steps = (self.good_steps + 1) % self.interval
        if not self.good_steps:
            self.scale = self.growth * self.scale


@wrong(SCALER, "the loss is divided by the scale")
class DividesTheLoss(Scaler):
    def scaled(self, loss):
        return loss / self.scale


@wrong(SCALER, "changes the loss itself")
class ScalesInPlace(Scaler):
    def scaled(self, loss):
        loss.data.mul_(self.scale)
        return loss * 1


@wrong(SCALER, "no gradient flows")
class ScalesANumber(Scaler):
    def scaled(self, loss):
        return torch.tensor(loss.item() * self.scale)


@wrong(SCALER, "scaled calls backward itself")
class CallsBackward(Scaler):
    def scaled(self, loss):
        (loss * self.scale).backward(retain_graph=True)
        return loss * self.scale


@wrong(SCALER, "after 1 good steps")
class GrowsAtEachStep(Scaler):
    def count(self):
        self.scale *= self.growth


@wrong(SCALER, "a clipping that nobody asked for")
class ClipsUnasked(Scaler):
    def clip(self, params, max_norm):
        clip_grad_norm(params, max_norm or 1.0)


@wrong(SCALER, "the loss comes back as it was")
class ForgetsToScale(Scaler):
    def scaled(self, loss):
        return loss


@wrong(SCALER, "starts with the scale 1, expected 65536")
class StartsAtOne(Scaler):
    def __init__(self, scale=1.0, growth=2.0, backoff=0.5, interval=2000):
        super().__init__(scale, growth, backoff, interval)


@wrong(SCALER, "divide each gradient by the scale")
class NeverUnscales(Scaler):
    def unscale(self, params):
        pass


@wrong(SCALER, "divide each gradient by the scale")
class UnscalesTwice(Scaler):
    def unscale(self, params):
        super().unscale(params)
        super().unscale(params)


@wrong(SCALER, "of the second group, makes another step")
class FirstGroupOnly(Scaler):
    def params(self, optimizer):
        return [p for p in optimizer.param_groups[0]["params"] if p.grad is not None]


@wrong(SCALER, "no step is made")
class SkipsAlways(Scaler):
    def finite(self, params):
        return not super().finite(params)


@wrong(SCALER, "step returns None")
class ReturnsNothing(Scaler):
    def step(self, optimizer, max_norm=None):
        super().step(optimizer, max_norm)


@wrong(SCALER, "has None for a gradient")
class ForgetsMissingGradients(Scaler):
    def params(self, optimizer):
        return [p for group in optimizer.param_groups for p in group["params"]]


@wrong(SCALER, "must be skipped as a whole")
class NeverSkips(Scaler):
    def finite(self, params):
        return True


@wrong(SCALER, "must be skipped as a whole")
class LooksForNanOnly(Scaler):
    def finite(self, params):
        return not any(p.grad.isnan().any() for p in params)


@wrong(SCALER, "must be skipped as a whole")
class LooksForInfOnly(Scaler):
    def finite(self, params):
        return not any(p.grad.isinf().any() for p in params)


@wrong(SCALER, "must be skipped as a whole")
class LooksAtTheFirst(Scaler):
    def finite(self, params):
        return bool(params[0].grad.isfinite().all())


@wrong(SCALER, "must be skipped as a whole")
class StepsWithZeros(Scaler):
    def skip(self, optimizer):
        for p in self.params(optimizer):
            p.grad = torch.zeros_like(p.grad)
        optimizer.step()
        return super().skip(optimizer)


@wrong(SCALER, "leaves its memory alone")
class RestoresTheWeights(Scaler):
    def skip(self, optimizer):
        params = self.params(optimizer)
        kept = [p.detach().clone() for p in params]
        for p in params:
            p.grad = torch.zeros_like(p.grad)
        optimizer.step()
        for p, before in zip(params, kept):
            p.data.copy_(before)
        return super().skip(optimizer)


@wrong(SCALER, "returns True")
class SkipsAndSaysTrue(Scaler):
    def skip(self, optimizer):
        super().skip(optimizer)
        return True


@wrong(SCALER, "the scale stays as it was")
class NeverBacksOff(Scaler):
    def skip(self, optimizer):
        self.good_steps = 0
        return False


@wrong(SCALER, "the scale grows: after an overflow")
class GrowsOnOverflow(Scaler):
    def skip(self, optimizer):
        self.scale *= self.growth
        return False


@wrong(SCALER, "no max_norm is given, and the parameters change")
class TestsWhenItClips(Scaler):
    def finite(self, params):
        return not self.clips or super().finite(params)

    def step(self, optimizer, max_norm=None):
        self.clips = max_norm is not None
        return super().step(optimizer, max_norm)


@wrong(SCALER, "it may fall below 1")
class SmallestScaleOne(Scaler):
    def skip(self, optimizer):
        super().skip(optimizer)
        self.scale = max(self.scale, 1.0)
        return False


@wrong(SCALER, "step returns 1024")
class ReturnsTheScale(Scaler):
    def step(self, optimizer, max_norm=None):
        super().step(optimizer, max_norm)
        return self.scale


@wrong(SCALER, "the count of good steps is not 0")
class CountsOverflows(Scaler):
    def skip(self, optimizer):
        self.scale *= self.backoff
        self.good_steps = min(self.good_steps, 1) + 3
        return False


@wrong(SCALER, "divided by the new scale")
class GrowsBeforeItDivides(Scaler):
    def unscale(self, params):
        if self.finite(params):
            self.counted()
        super().unscale(params)

    def counted(self):
        super().count()

    def count(self):
        pass


@wrong(SCALER, "never grows")
class NeverGrows(Scaler):
    def count(self):
        self.good_steps += 1


@wrong(SCALER, "one step late")
class GrowsLate(Scaler):
    def count(self):
        self.good_steps += 1
        if self.good_steps > self.interval:
            self.scale, self.good_steps = self.scale * self.growth, 0


@wrong(SCALER, "does not start again after the scale has grown")
class CountGoesOn(Scaler):
    def count(self):
        self.good_steps += 1
        if self.good_steps >= self.interval:
            self.scale *= self.growth


@wrong(SCALER, "must be in a row")
class CountOutlivesOverflow(Scaler):
    def skip(self, optimizer):
        self.scale *= self.backoff
        return False


@wrong(SCALER, "not the ones given")
class GrowsByTwo(Scaler):
    def count(self):
        self.good_steps += 1
        if self.good_steps == self.interval:
            self.scale, self.good_steps = self.scale * 2, 0


@wrong(SCALER, "not the ones given")
class HalvesAlways(Scaler):
    def skip(self, optimizer):
        self.scale, self.good_steps = self.scale / 2, 0
        return False


@wrong(SCALER, "after 2000 good steps")
class GrowsAfterAThousand(Scaler):
    def __init__(self, scale=2.0**16, growth=2.0, backoff=0.5, interval=1000):
        super().__init__(scale, growth, backoff, interval)


@wrong(SCALER, "nothing is clipped")
class NeverClips(Scaler):
    def clip(self, params, max_norm):
        pass


@wrong(SCALER, "the norm that counts is the one without the scale")
class ClipsBeforeUnscaling(Scaler):
    def unscale(self, params):
        pass

    def clip(self, params, max_norm):
        super().clip(params, max_norm)
        super().unscale(params)


@wrong(SCALER, "clipped too little")
class ClipsEachTensor(Scaler):
    def clip(self, params, max_norm):
        for p in params if max_norm is not None else []:
            clip_grad_norm([p], max_norm)


@wrong(SCALER, "are made longer")
class ClipsAlways(Scaler):
    def clip(self, params, max_norm):
        norm = torch.stack([p.grad.square().sum() for p in params]).sum().sqrt()
        for p in params if max_norm is not None else []:
            p.grad = p.grad * max_norm / norm


@wrong(SCALER, "clipped too much")
class ClipsEachByItself(Scaler):
    def clip(self, params, max_norm):
        if max_norm is not None:
            for p in params:
                p.grad = p.grad * min(1.0, 0.5 * max_norm / float(p.grad.norm()))


@wrong(SCALER, "share their scale")
class SharedScale(Scaler):
    kept = {}

    @property
    def scale(self):
        return self.kept["scale"]

    @scale.setter
    def scale(self, value):
        self.kept["scale"] = value
