"""Checks of lesson 05: LayerNorm, GELU and the MLP. The oracles are torch.nn.functional and autograd, in float64."""
import math
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

from course.checks import checks
from course.checks.pytorch import (
    call, close, equal, fail, fill, gradients_close, is_tensor, keeps_device, parameters_are, rand,
)

NORM = "pytorch.layers.LayerNorm"
BACKWARD = "pytorch.layers.layer_norm_backward"
GELU = "pytorch.layers.gelu"
MLP = "pytorch.layers.MLP"

CUT = ".data, .detach(), .item(), torch.no_grad() and torch.tensor(...) cut the graph"


def build(kind, name, *args):
    """kind(*args); what nn.Module itself needs is named."""
    try:
        module = kind(*args)
    except AttributeError as error:
        if "Module.__init__() call" not in str(error):
            raise
        fail("nn.Module is not set up yet when the first part is stored.", look="the first line of __init__: super().__init__()")
    if not isinstance(module, nn.Module):
        fail(f"{name} is no nn.Module: without that nothing finds its parameters.", look=f"the line class {name}(nn.Module)")
    return module


# --- LayerNorm -----------------------------------------------------------------------------------------


def expected_norm(x, weight, bias, eps=1e-5):
    return F.layer_norm(x.double(), x.shape[-1:], weight.double(), bias.double(), eps).to(x.dtype)


def norm_mistakes(x, weight, bias, eps=1e-5):
    """What common mistakes give on these inputs."""
    dtype = x.dtype
    x, weight, bias = x.double(), weight.detach().double(), bias.detach().double()
    C = x.shape[-1]
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    centred, bessel = x - mean, variance * C / max(C - 1, 1)
    right = centred / (variance + eps).sqrt()
    square = (x * x).mean(-1, keepdim=True)

    def affine(y):
        return (weight * y + bias).to(dtype)

    def over(*dims):
        m, v = x.mean(dims, keepdim=True), x.var(dims, correction=0, keepdim=True)
        return affine((x - m) / (v + eps).sqrt())

    outside = "eps stands outside the square root: it is added to the variance, sqrt(variance + eps)."
    found = [
        ("the mean is not subtracted, in the variance or above it: that is RMSNorm. LayerNorm centres first.", affine(x / (square + eps).sqrt())),
        ("the mean is not subtracted from x; only the variance uses it.", affine(x / (variance + eps).sqrt())),
        ("the variance is taken around 0: subtract the mean before squaring.", affine(centred / (square + eps).sqrt())),
        ("the mean is subtracted and nothing is divided: the variance is not made 1.", affine(centred)),
        ("x is not normalised: only weight and bias are applied.", affine(x)),
        ("weight and bias are not used.", right.to(dtype)),
        ("weight is not used.", (right + bias).to(dtype)),
        ("bias is not used.", (weight * right).to(dtype)),
        ("the bias is subtracted; it is added.", (weight * right - bias).to(dtype)),
        ("the bias is added before the weight multiplies: weight first, then bias.", (weight * (right + bias)).to(dtype)),
        ("weight and bias have changed places: weight multiplies, bias is added.", (bias * right + weight).to(dtype)),
        ("the scale is 1 + weight; the weight itself multiplies, it starts at 1.", ((1 + weight) * right + bias).to(dtype)),
        ("weight and bias are applied before x is normalised; they belong after it.", F.layer_norm(weight * x + bias, (C,), eps=eps).to(dtype)),
        ("x is divided by the variance, not by its square root.", affine(centred / (variance + eps))),
        ("x is multiplied by the standard deviation; divide by it.", affine(centred * (variance + eps).sqrt())),
        ("the squares are added up and not averaged: the variance is their mean.", affine(centred / ((centred**2).sum(-1, keepdim=True) + eps).sqrt())),
        ("x is divided by the mean distance from the mean; the variance is the mean of the squares.", affine(centred / (centred.abs().mean(-1, keepdim=True) + eps))),
        (
            "the variance is divided by n_embd - 1 (Bessel's correction, PyTorch's default in var and std); LayerNorm divides by n_embd.",
            affine(centred / (bessel + eps).sqrt()),
        ),
        (
            "the standard deviation is Bessel's, with n_embd - 1, and eps stands outside the root: LayerNorm divides by sqrt(variance + eps), with n_embd.",
            affine(centred / (bessel.sqrt() + eps)),
        ),
        (outside, affine(centred / (variance.sqrt() + eps))),
        ("eps is subtracted; it is added.", affine(centred / (variance - eps).abs().sqrt())),
        ("eps is squared inside the root: sqrt(variance + eps), with eps as it is.", affine(centred / (variance + eps**2).sqrt())),
        ("eps is added twice.", affine(centred / (variance + 2 * eps).sqrt())),
        ("eps is added to the result of the division; it belongs to the variance.", affine(centred / variance.sqrt() + eps)),
        ("x is divided by its length: that makes the sum of the squares 1, not the variance.", affine(F.normalize(x, dim=-1))),
        ("x is stretched to the range from 0 to 1; LayerNorm makes the mean 0 and the variance 1.", affine((x - x.amin(-1, keepdim=True)) / (x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True) + eps))),
        ("the median is subtracted; LayerNorm subtracts the mean.", affine((x - x.median(-1, keepdim=True).values) / (variance + eps).sqrt())),
        ("the input is added to the result; the residual belongs to the block.", (x + weight * right + bias).to(dtype)),
        ("weight divides; it multiplies.", (right / weight + bias).to(dtype)),
    ]
    for other in (1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-12, 0.0):
        if other != eps:
            small = "missing or far too small" if other < 1e-6 or eps > 1e-2 else f"{other:g}"
            found.append((f"eps is {small}: it should be {eps:g} here, the number LayerNorm was given or its default.", affine(centred / (variance + other).sqrt())))
            found.append((f"eps is {small} and stands outside the square root: it should be {eps:g}, added to the variance.", affine(centred / (variance.sqrt() + other))))
    found += [
        ("the variance is bounded by eps from below; eps is added to it.", affine(centred / variance.clamp(min=eps).sqrt())),
        ("the standard deviation is bounded by eps from below; eps is added to the variance.", affine(centred / variance.sqrt().clamp(min=eps))),
    ]
    if x.dim() > 1:
        found += [
            ("the variance runs over the positions (dim=-2), and the mean over the channels: both run over the channels.", affine(centred / (x.var(-2, correction=0, keepdim=True) + eps).sqrt())),
            ("mean and variance run over the positions (dim=-2): each vector is normalised by itself, over its channels.", over(-2)),
            ("mean and variance run over positions and channels together: what one token becomes depends on the others. Only the last axis counts.", over(-2, -1)),
            ("each vector has its own mean, and one variance serves all: each vector has a variance of its own too.", affine(centred / ((centred**2).mean() + eps).sqrt())),
            ("each vector has its own variance, and one mean serves all: each vector has a mean of its own too.", affine((x - x.mean()) / (variance + eps).sqrt())),
            ("mean and variance run over everything: what one token becomes depends on all others. Only the last axis counts.", over(*range(x.dim()))),
        ]
    if x.dim() > 2:
        found += [
            ("mean and variance run over the batch (dim=0): each vector is normalised by itself, over its channels.", over(0)),
            ("mean and variance run over batch and positions, as in BatchNorm: each vector is normalised by itself, over its channels.", over(0, 1)),
            ("mean and variance run over batch and channels: what one sequence becomes depends on the others.", over(0, 2)),
        ]
    return found


@checks(NORM, "parameters")
def norm_parameters(LayerNorm):
    module = build(LayerNorm, "LayerNorm", 6)
    parameters_are(module, {"weight": (6,), "bias": (6,)}, "LayerNorm")
    for name, p in module.named_parameters():
        if not p.requires_grad:
            fail(f"{name} does not ask for a gradient: it would never be trained.", look="requires_grad=False")


@checks(NORM, "weight starts at 1 and bias at 0")
def norm_initial(LayerNorm):
    module = LayerNorm(6)
    weight, bias = module.weight.detach(), module.bias.detach()
    if equal(weight, torch.zeros(6), 0) and equal(bias, torch.ones(6), 0):
        fail("weight starts at 0 and bias at 1: it should be the other way round.", example="a fresh module would answer 1 to every input")
    for name, got, want, why in [
        ("weight", weight, 1.0, "with 0 the module would answer 0 to every input, with random numbers it would start as some other layer"),
        ("bias", bias, 0.0, "a fresh LayerNorm only normalises"),
    ]:
        if not equal(got, torch.full((6,), want), 0):
            fail(f"{name} does not start at {want:g} everywhere: {why}.", example=f"{name}[0] is {got[0].item():.4g}, expected {want:g}")


def norm_for(LayerNorm, C, *args, **kwargs):
    return fill(LayerNorm(C, *args, **kwargs), seed=30)


def compare_norm(module, x, eps=1e-5, atol=4e-6, **words):
    want = expected_norm(x, module.weight, module.bias, eps).detach()
    close(call(module, x), want, atol=atol, known=norm_mistakes(x, module.weight, module.bias, eps), **words)


@checks(NORM, "values")
def norm_values(LayerNorm):
    compare_norm(norm_for(LayerNorm, 6), 0.7 + rand(2, 5, 6, seed=31, scale=4.0), look="the axis of the mean, what is subtracted, what divides")


@checks(NORM, "eps that is given")
def norm_eps(LayerNorm):
    x = rand(2, 5, 6, seed=32)
    for eps in (0.5, 0.01):
        module = norm_for(LayerNorm, 6, eps=eps)
        compare_norm(module, x, eps, name=f"the result for eps = {eps}", look="where eps is kept in __init__ and used in forward")
    module = norm_for(LayerNorm, 6, 0.5)
    compare_norm(module, x, 0.5, name="the result for LayerNorm(6, 0.5)")


@checks(NORM, "numbers of small variance")
def norm_small_variance(LayerNorm):
    module = norm_for(LayerNorm, 6)
    x = rand(2, 5, 6, seed=33, scale=2e-3)
    compare_norm(module, x, atol=1e-5, name="the result for numbers of size 0.002", look="the default of eps, 1e-5, and its place under the root")


@checks(NORM, "inputs of any shape")
def norm_shapes(LayerNorm):
    for shape in [(4,), (1, 4), (7, 4), (1, 1, 4), (1, 3, 4), (5, 1, 4), (2, 3, 5, 4), (3, 3, 3)]:
        module = norm_for(LayerNorm, shape[-1])
        x = 0.5 + rand(*shape, seed=35, scale=4.0)
        compare_norm(module, x, name=f"the result for x of shape {shape}", look="dim=-1 is the last axis however many there are; keepdim=True lets it broadcast")
    module = norm_for(LayerNorm, 5)
    compare_norm(module, rand(5, 3, 2, seed=36).transpose(0, 2), name="the result for an x whose axes were swapped before", look="view needs contiguous memory")


@checks(NORM, "a vector of equal numbers")
def norm_constant(LayerNorm):
    module = norm_for(LayerNorm, 8)
    x = torch.stack([torch.full((8,), 3.0), torch.zeros(8)]).requires_grad_()
    got = module(x)
    is_tensor(got, (2, 8), name="the result")
    if not got.isfinite().all():
        fail("a vector of equal numbers has variance 0, and the result is nan or inf: 0 is divided by 0.", example="LayerNorm of [3, 3, 3, 3, ...]", look="eps keeps the number below the fraction above 0")
    close(got, module.bias.detach().expand(2, 8), 1e-5, name="the result for equal numbers, which is the bias,")
    slope, = torch.autograd.grad(got.sum(), [x], allow_unused=True)
    if slope is not None and not slope.isfinite().all():
        fail("the gradient for a vector of equal numbers is nan or inf: the square root of 0 has no slope.", look="eps must be under the square root, added before the root is taken")


@checks(NORM, "a mean far from 0")
def norm_large_mean(LayerNorm):
    module = norm_for(LayerNorm, 32)
    x = 1000 + rand(16, 32, seed=34)
    got = call(module, x)
    is_tensor(got, (16, 32), torch.float32)
    want = expected_norm(x, module.weight, module.bias).detach()
    if not equal(got, want, 1e-3):
        gap = (got - want).abs().max().item()
        how = f"off by up to {gap:.2g}" if math.isfinite(gap) else "nan or inf"
        fail(
            "digits are lost when the mean is large: the mean of the squares minus the square of the mean takes the difference of two numbers near 1,000,000 to find a 1.",
            example=f"for numbers of mean 1000 and standard deviation 1 the result is {how}",
            look="subtract the mean first, then average the squares of what is left",
        )


@checks(NORM, "gradients")
def norm_gradients(LayerNorm):
    module = norm_for(LayerNorm, 6)
    x = 0.3 + rand(2, 5, 6, seed=37, scale=1.5)
    weight, bias = module.weight.detach(), module.bias.detach()
    variance = x.var(-1, correction=0, keepdim=True)
    grad = rand(2, 5, 6, seed=99)
    g, std = grad * weight, (variance + 1e-5).sqrt()
    hat = (x - x.mean(-1, keepdim=True)) / std
    frozen = "the {} is treated as a constant in the backward pass: it depends on x and must pass its gradient on."
    gradients_close(module, lambda x: F.layer_norm(x, (6,), weight, bias), [x], 1e-5, "x", known=[
        (frozen.format("mean and the variance"), g / std),
        (frozen.format("variance"), (g - g.mean(-1, keepdim=True)) / std),
        (frozen.format("mean"), (g - hat * (g * hat).mean(-1, keepdim=True)) / std),
    ])
    out = module(x)
    wanted = {"weight": (grad * hat).sum((0, 1)), "bias": grad.sum((0, 1))}
    got = torch.autograd.grad((out * grad).sum(), [module.weight, module.bias], allow_unused=True) if out.requires_grad else (None, None)
    for (name, want), mine in zip(wanted.items(), got):
        if mine is None:
            fail(f"no gradient reaches {name}.", look=CUT)
        close(mine, want, 1e-5, name=f"the gradient of {name}")


@checks(NORM, "nothing is kept from call to call")
def norm_repeatable(LayerNorm):
    for mode in (True, False):
        module = norm_for(LayerNorm, 6).train(mode)
        x = rand(2, 5, 6, seed=38)
        first = module(x)
        module(3 + rand(4, 2, 6, seed=39, scale=5.0))
        if not equal(first, module(x), 0):
            fail("two calls with the same input differ: the call between them left something behind.", look="running averages as in BatchNorm: LayerNorm has none, in training and in evaluation alike")
    a, b = LayerNorm(6), LayerNorm(6)
    with torch.no_grad():
        a.weight.add_(1)
        a.bias.add_(1)
    if not equal(b.weight, torch.ones(6), 0) or not equal(b.bias, torch.zeros(6), 0):
        fail("two modules share their parameters: changing one changes the other.", look="tensors that are made outside __init__, or kept on the class")


@checks(NORM, "dtype and device")
def norm_dtype(LayerNorm):
    module = norm_for(LayerNorm, 6).double()
    x = rand(2, 5, 6, seed=40, dtype=torch.float64)
    got = call(module, x)
    is_tensor(got, (2, 5, 6), torch.float64)
    if not equal(got, expected_norm(x, module.weight, module.bias), 1e-12):
        fail("the result is float64 and only as exact as float32: a step in between is float32.", look=".float(), and tensors that you create without dtype=x.dtype")
    keeps_device(lambda m, x: m(x), module, x)


# --- layer_norm_backward -------------------------------------------------------------------------------


def expected_backward(grad, x, weight, eps=1e-5):
    dtype = x.dtype
    leaves = [t.detach().double().requires_grad_() for t in (x, weight, torch.zeros_like(weight))]
    out = F.layer_norm(leaves[0], x.shape[-1:], leaves[1], leaves[2], eps)
    return [g.to(dtype) for g in torch.autograd.grad(out, leaves, grad.double())]


NAMES = ("grad_x", "grad_weight", "grad_bias")


def three(got):
    """The three gradients, or a sentence about what came instead."""
    if got is None:
        fail("the result is None. Is there a return at the end?")
    if not isinstance(got, (tuple, list)):
        fail(f"three gradients are expected, (grad_x, grad_weight, grad_bias), and one object of type {type(got).__name__} came back.")
    if len(got) != 3:
        fail(f"three gradients are expected, (grad_x, grad_weight, grad_bias), and {len(got)} came back.")
    return got


def backward_mistakes(grad, x, weight, eps=1e-5):
    """What common mistakes give on these inputs: a list for each of the three gradients."""
    dtype = x.dtype
    grad, x, weight = grad.double(), x.double(), weight.double()
    C, rows = x.shape[-1], x.numel() // x.shape[-1]
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    std = (variance + eps).sqrt()
    hat, centred = (x - mean) / std, x - mean
    g = grad * weight
    lead = tuple(range(x.dim() - 1))

    def m(t):
        return t.mean(-1, keepdim=True)

    def s(t):
        return t.sum(-1, keepdim=True)

    def total(t):
        return t.reshape(-1, C).sum(0)

    right = (g - m(g) - hat * m(g * hat)) / std
    bessel = (variance * C / max(C - 1, 1) + eps).sqrt()
    hat_b = centred / bessel
    outside = variance.sqrt() + eps
    hat_o = centred / outside
    signs = "a term of grad_x has the wrong sign: what goes through the mean and through the variance is subtracted."
    grad_x = [
        ("grad_x treats mean and variance as constants: they depend on x too, and each brings a term of its own.", g / std),
        ("grad_x treats the variance as a constant: the term with the normalised x is missing.", (g - m(g)) / std),
        ("grad_x treats the mean as a constant: the mean of the gradient is not subtracted.", (g - hat * m(g * hat)) / std),
        ("weight is missing in grad_x: the gradient passes the weight first, on its way back.", (grad - m(grad) - hat * m(grad * hat)) / std),
        ("weight multiplies at the end of grad_x; it belongs to the gradient before the means are taken.", weight * (grad - m(grad) - hat * m(grad * hat)) / std),
        ("weight is applied twice in grad_x.", weight * right),
        ("grad_x is not divided by the standard deviation.", right * std),
        ("grad_x is divided by n_embd once too often: the means have divided already.", right / C),
        ("the result of the forward pass comes back as grad_x.", weight * hat),
        ("grad_x is multiplied by the standard deviation; divide by it.", right * std * std),
        ("grad_x is divided by the variance; the standard deviation it is.", right / std),
        ("grad_x has sums in the place of means.", (g - s(g) - hat * s(g * hat)) / std),
        ("grad_x has a sum in the place of a mean, in the first term.", (g - s(g) - hat * m(g * hat)) / std),
        ("grad_x has a sum in the place of a mean, in the second term.", (g - m(g) - hat * s(g * hat)) / std),
        (signs, (g + m(g) + hat * m(g * hat)) / std),
        (signs, (g - m(g) + hat * m(g * hat)) / std),
        (signs, (g + m(g) - hat * m(g * hat)) / std),
        (signs, -right),
        ("grad_x uses x where the normalised x belongs.", (g - m(g) - x * m(g * x)) / std),
        ("grad_x uses x where the normalised x belongs.", (g - m(g) - hat * m(g * x)) / std),
        ("grad_x uses x where the normalised x belongs.", (g - m(g) - x * m(g * hat)) / std),
        ("grad_x uses x minus its mean where the normalised x belongs: it is not divided by the standard deviation.", (g - m(g) - centred * m(g * centred)) / std),
        ("grad_x uses x minus its mean where the normalised x belongs, in one place.", (g - m(g) - centred * m(g * hat)) / std),
        ("grad_x uses x minus its mean where the normalised x belongs, in one place.", (g - m(g) - hat * m(g * centred)) / std),
        ("the last term of grad_x lacks the normalised x in front of the mean.", (g - m(g) - m(g * hat)) / std),
        ("the variance in grad_x has Bessel's correction, n_embd - 1; LayerNorm divides by n_embd.", (g - m(g) - hat_b * m(g * hat_b)) / bessel),
        ("the variance in grad_x has Bessel's correction, n_embd - 1; LayerNorm divides by n_embd.", (g - m(g) - hat_b * s(g * hat_b) / max(C - 1, 1)) / bessel),
        ("the variance in grad_x has Bessel's correction, n_embd - 1; LayerNorm divides by n_embd.", (g - m(g) - hat * s(g * hat) / max(C - 1, 1)) / std),
        ("eps stands outside the square root in grad_x: the standard deviation is sqrt(variance + eps).", (g - m(g) - hat_o * m(g * hat_o)) / outside),
        ("the means in grad_x run over the batch; each vector has means of its own, over its channels.", (g - g.mean(lead, keepdim=True) - hat * (g * hat).mean(lead, keepdim=True)) / std),
        ("the means in grad_x run over everything; each vector has means of its own, over its channels.", (g - g.mean() - hat * (g * hat).mean()) / std),
        ("grad comes back as grad_x: nothing is done to it.", grad),
        ("grad_x is only grad times weight.", g),
    ]
    if x.dim() > 1:
        grad_x.append(("the means in grad_x run over the positions; each vector has means of its own, over its channels.", (g - g.mean(-2, keepdim=True) - hat * (g * hat).mean(-2, keepdim=True)) / std))
    eps_words = []
    for other in (1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-12, 0.0):
        if other != eps:
            d = (variance + other).sqrt()
            h = centred / d
            small = "missing or far too small" if other < 1e-6 or eps > 1e-2 else f"{other:g}"
            eps_words.append((f"eps is {small}" + " in {}: " + f"it should be {eps:g} here, the number that was given or the default.", d, h))
    grad_x += [(words.format("grad_x"), (g - m(g) - h * m(g * h)) / d) for words, d, h in eps_words]
    summed = "{} is not summed over the vectors: one weight serves them all, so their contributions add up."
    grad_weight = [
        ("grad_weight uses x where the normalised x belongs.", total(grad * x)),
        ("grad_weight uses x minus its mean: it is not divided by the standard deviation.", total(grad * centred)),
        ("grad_weight lacks the normalised x: that sum is grad_bias.", total(grad)),
        ("grad_weight holds the weight as a factor: the derivative of w * x by w is x.", total(g * hat)),
        ("grad_weight is averaged over the vectors; it is a sum.", total(grad * hat) / rows),
        ("grad_weight has the wrong sign.", -total(grad * hat)),
        ("grad_weight lacks grad: that is the sum of the normalised x.", total(hat)),
        ("the variance in grad_weight has Bessel's correction, n_embd - 1; LayerNorm divides by n_embd.", total(grad * hat_b)),
        ("eps stands outside the square root in grad_weight: the standard deviation is sqrt(variance + eps).", total(grad * hat_o)),
        (summed.format("grad_weight"), grad * hat),
        ("grad_weight is summed over the channels; sum over all axes but the last.", (grad * hat).sum(-1)),
        *((words.format("grad_weight"), total(grad * h)) for words, d, h in eps_words),
        ("grad_weight is a single number; sum over all axes but the last.", (grad * hat).sum()),
    ]
    grad_bias = [
        ("grad_bias holds the weight as a factor: the bias is added after the weight.", total(g)),
        ("grad_bias is averaged over the vectors; it is a sum.", total(grad) / rows),
        ("grad_bias has the wrong sign.", -total(grad)),
        ("grad_bias holds the normalised x: that sum is grad_weight.", total(grad * hat)),
        (summed.format("grad_bias"), grad),
        ("grad_bias is summed over the channels; sum over all axes but the last.", grad.sum(-1)),
        ("grad_bias is a single number; sum over all axes but the last.", grad.sum()),
    ]
    if x.dim() > 2:
        grad_weight.append(("grad_weight is summed over the batch only; sum over the positions as well.", (grad * hat).sum(0)))
        grad_weight.append(("grad_weight is summed over the positions only; sum over the batch as well.", (grad * hat).sum(1)))
        grad_bias.append(("grad_bias is summed over the batch only; sum over the positions as well.", grad.sum(0)))
        grad_bias.append(("grad_bias is summed over the positions only; sum over the batch as well.", grad.sum(1)))
    return [[(words, value.to(dtype)) for words, value in found] for found in (grad_x, grad_weight, grad_bias)]


def grads(*lead, C, seed, scale=4.0, mean=0.4, dtype=torch.float32):
    grad, x = rand(*lead, C, seed=seed, dtype=dtype), mean + rand(*lead, C, seed=seed + 1, scale=scale, dtype=dtype)
    return grad, x, rand(C, seed=seed + 2, dtype=dtype)


def compare_backward(function, grad, x, weight, *eps, which=(0, 1, 2), atol=1e-5, name="{}", look="", **keyword):
    given = (eps or tuple(keyword.values()) or (1e-5,))[0]
    got = three(call(function, grad, x, weight, *eps, **keyword))
    want = expected_backward(grad, x, weight, given)
    known = backward_mistakes(grad, x, weight, given)
    for i in which:
        close(got[i], want[i], atol, name=name.format(NAMES[i]), known=known[i], look=look)


@checks(BACKWARD, "three gradients, in order")
def backward_order(layer_norm_backward):
    grad, x, weight = grads(2, 5, C=6, seed=50)
    got = three(call(layer_norm_backward, grad, x, weight))
    want = expected_backward(grad, x, weight)
    for order in [(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]:
        if all(equal(got[i], want[j], 1e-5) for i, j in enumerate(order)):
            given = ", ".join(NAMES[j] for j in order)
            fail(f"the three gradients come back in the wrong order: ({given}), expected (grad_x, grad_weight, grad_bias).")
    for name, mine in zip(NAMES, got):
        if not isinstance(mine, torch.Tensor):
            is_tensor(mine, (), name=name)


@checks(BACKWARD, "grad_bias")
def backward_bias(layer_norm_backward):
    compare_backward(layer_norm_backward, *grads(2, 5, C=6, seed=50), which=[2], look="y = weight * normalised x + bias: by which factor does the bias enter")


@checks(BACKWARD, "grad_weight")
def backward_weight(layer_norm_backward):
    compare_backward(layer_norm_backward, *grads(2, 5, C=6, seed=50), which=[1], look="y = weight * normalised x + bias: by which factor does the weight enter")


@checks(BACKWARD, "grad_x")
def backward_x(layer_norm_backward):
    compare_backward(layer_norm_backward, *grads(2, 5, C=6, seed=50), which=[0], look="the three terms of the formula, one by one")


@checks(BACKWARD, "inputs of any shape")
def backward_shapes(layer_norm_backward):
    for lead in [(), (1,), (7,), (1, 3), (3, 1), (2, 3, 2)]:
        compare_backward(
            layer_norm_backward, *grads(*lead, C=5, seed=63), name="{}" + f" for x of shape {(*lead, 5)}",
            look="grad_weight and grad_bias are sums over all axes but the last, however many there are",
        )
    grad, x, weight = grads(5, 3, C=5, seed=66)
    compare_backward(layer_norm_backward, grad.transpose(0, 2), x.transpose(0, 2), weight, name="{} for inputs whose axes were swapped before", look="view needs contiguous memory, reshape copies where it must")


@checks(BACKWARD, "eps that is given")
def backward_eps(layer_norm_backward):
    grad, x, weight = grads(2, 5, C=6, seed=53, scale=1.0)
    compare_backward(layer_norm_backward, grad, x, weight, 0.5, name="{} for eps = 0.5", look="the standard deviation is sqrt(variance + eps) wherever it occurs")
    compare_backward(layer_norm_backward, grad, x, weight, eps=0.1, name="{} for eps = 0.1", look="the standard deviation is sqrt(variance + eps) wherever it occurs")


@checks(BACKWARD, "numbers of small variance")
def backward_small(layer_norm_backward):
    grad, x, weight = grads(2, 5, C=6, seed=56, scale=2e-3, mean=0.0)
    compare_backward(layer_norm_backward, 1e-3 * grad, x, weight, name="{} for numbers of size 0.002", look="the default of eps, 1e-5, and its place under the root")
    grad, x, weight = grads(3, C=4, seed=59)
    for name, got in zip(NAMES, three(call(layer_norm_backward, grad, torch.full_like(x, 3.0), weight))):
        if not got.isfinite().all():
            fail(f"{name} of a vector of equal numbers is nan or inf: 0 is divided by 0.", look="eps keeps the number below the fraction above 0")


@checks(BACKWARD, "a mean far from 0")
def backward_large_mean(layer_norm_backward):
    grad, x, weight = grads(16, C=32, seed=60, scale=1.0, mean=1000.0)
    got, want = three(call(layer_norm_backward, grad, x, weight)), expected_backward(grad, x, weight)
    for name, mine, right in zip(NAMES, got, want):
        if not equal(mine, right, 2e-3):
            fail(
                "digits are lost when the mean is large: the mean of the squares minus the square of the mean takes the difference of two numbers near 1,000,000 to find a 1.",
                example=f"{name} for numbers of mean 1000 and standard deviation 1",
                look="subtract the mean first, then average the squares of what is left",
            )


@checks(BACKWARD, "nothing is kept from call to call")
def backward_fresh(layer_norm_backward):
    grad, x, weight = grads(2, 3, C=4, seed=69)
    want = expected_backward(grad, x, weight)
    first = three(layer_norm_backward(grad, x, weight))
    for t in first:
        t.fill_(7)
    again = three(layer_norm_backward(grad, x, weight))
    for name, mine, right in zip(NAMES, again, want):
        if not equal(mine, right, 1e-5):
            fail(f"{name} of a second call differs: something of the first call is still in it, or the result shares memory with an argument.", look="tensors that are made outside the function, and results that are views of grad")


@checks(BACKWARD, "dtype and device")
def backward_dtype(layer_norm_backward):
    grad, x, weight = grads(2, 5, C=6, seed=72, dtype=torch.float64)
    got = three(call(layer_norm_backward, grad, x, weight))
    for name, mine, right in zip(NAMES, got, expected_backward(grad, x, weight)):
        is_tensor(mine, right.shape, torch.float64, name=name)
        if not equal(mine, right, 1e-12):
            fail(f"{name} is float64 and only as exact as float32: a step in between is float32.", look=".float(), and tensors that you create without dtype=x.dtype")
    for i in range(3):
        keeps_device(lambda *args, i=i: layer_norm_backward(*args)[i], grad, x, weight)


# --- gelu ----------------------------------------------------------------------------------------------


def expected_gelu(x):
    return F.gelu(x.double(), approximate="tanh").to(x.dtype)


def gelu_mistakes(x):
    """What common mistakes give on these inputs."""
    dtype, x = x.dtype, x.double()
    a, b = math.sqrt(2 / math.pi), 0.044715

    def form(z):
        return 0.5 * x * (1 + z.tanh())

    z = a * (x + b * x**3)
    found = [
        ("this is the exact GELU, with erf; GPT-2 uses the tanh form. They differ by up to 0.00047.", F.gelu(x)),
        ("this is ReLU: GELU is smooth and not 0 for negative x.", x.relu()),
        ("this is SiLU, x * sigmoid(x).", F.silu(x)),
        ("this is x * sigmoid(1.702 x), another approximation; GPT-2 uses the tanh form.", x * (1.702 * x).sigmoid()),
        ("this is softplus.", F.softplus(x)),
        ("this is ELU.", F.elu(x)),
        ("this is leaky ReLU.", F.leaky_relu(x)),
        ("this is tanh(x).", x.tanh()),
        ("this is the square of ReLU.", x.relu() ** 2),
        ("this is Mish.", F.mish(x)),
        ("x comes back as it is.", x),
        ("the constant is 0.44715; it is 0.044715.", form(a * (x + 0.44715 * x**3))),
        ("the constant is 0.0044715; it is 0.044715.", form(a * (x + 0.0044715 * x**3))),
        ("the constant is 0.44175 or 0.044175; it is 0.044715: two digits have changed places.", form(a * (x + 0.044175 * x**3))),
        ("the cubic term is missing: z has x + 0.044715 x³.", form(a * x)),
        ("the cubic term is a square: x³ it is, which keeps the sign.", form(a * (x + b * x**2))),
        ("the cubic term is x⁴; it is x³.", form(a * (x + b * x**4))),
        ("the cubic term lacks its power: x³ it is.", form(a * (x + b * x))),
        ("the cubic term is subtracted; it is added.", form(a * (x - b * x**3))),
        ("the constant multiplies x as well: z has x + 0.044715 x³.", form(a * b * (x + x**3))),
        ("the cubic term is (0.044715 x)³; the constant stands outside the power.", form(a * (x + (b * x) ** 3))),
        ("sqrt(2/pi) multiplies only x: it stands before the bracket, for both terms.", form(a * x + b * x**3)),
        ("sqrt(2/pi) multiplies only the cubic term: it stands before the bracket, for both terms.", form(x + a * b * x**3)),
        ("the factor is sqrt(pi/2); it is sqrt(2/pi).", form(z / a * math.sqrt(math.pi / 2))),
        ("the factor is sqrt(2 pi); it is sqrt(2/pi).", form(z / a * math.sqrt(2 * math.pi))),
        ("the factor is 2/pi without its root; it is sqrt(2/pi).", form(z / a * 2 / math.pi)),
        ("the factor is sqrt(2)/pi; the root goes over the whole fraction, sqrt(2/pi).", form(z / a * math.sqrt(2) / math.pi)),
        ("the factor is 2/sqrt(pi); the root goes over the whole fraction, sqrt(2/pi).", form(z / a * 2 / math.sqrt(math.pi))),
        ("the factor is sqrt(1/pi); it is sqrt(2/pi).", form(z / a * math.sqrt(1 / math.pi))),
        ("the factor sqrt(2/pi) is missing.", form(z / a)),
        ("the factor is 1/sqrt(2), which belongs to the form with erf; here it is sqrt(2/pi).", form(z / a / math.sqrt(2))),
        ("the factor 0.5 is missing: the result is twice as large.", 2 * form(z)),
        ("the factor is 0.25; it is 0.5.", form(z) / 2),
        ("it is 1 - tanh(z), with a minus: that is near 0 for large x.", 0.5 * x * (1 - z.tanh())),
        ("the 1 + before tanh is missing.", 0.5 * x * z.tanh()),
        ("the tanh is missing.", 0.5 * x * (1 + z)),
        ("the x in front is missing: this is the share of x that gets through, not x times it.", 0.5 * (1 + z.tanh())),
        ("0.5 multiplies only the 1: it stands before the bracket.", x * (0.5 + z.tanh())),
        ("0.5 multiplies only the 1: it stands before the bracket.", 0.5 * x * 1 + z.tanh()),
        ("the 1 is added after x has multiplied: x * (1 + tanh z), with brackets.", 0.5 * (x * z.tanh() + 1)),
        ("there is a sigmoid in the place of tanh.", 0.5 * x * (1 + z.sigmoid())),
        ("there is an erf in the place of tanh.", 0.5 * x * (1 + torch.erf(z))),
        ("the sigmoid takes z; (1 + tanh z) / 2 is sigmoid(2 z).", x * z.sigmoid()),
        ("the sigmoid takes 2 z and 0.5 still stands before it; (1 + tanh z) / 2 is sigmoid(2 z).", 0.5 * x * (2 * z).sigmoid()),
        *(("a constant is rounded: keep all digits of sqrt(2/pi) and of 0.044715.", form(c * (x + d * x**3))) for c in (a, 0.8, 0.798, 0.7979, 0.79788) for d in (b, 0.04, 0.045, 0.0447, 0.04472) if (c, d) != (a, b)),
        ("the cubic term loses its sign: x³ is negative for negative x.", form(a * (x + b * x.abs() ** 3))),
        ("negative results are cut off: GELU goes down to -0.17.", form(z).clamp(min=0)),
        ("the sign of x is changed: gelu(3) is near 3, gelu(-3) near 0.", form(z) - x),
        ("the result has the wrong sign.", -form(z)),
        ("it is the derivative of GELU, not GELU.", derivative(x)),
        ("x is cut off: for large x the result is x itself.", form(z).clamp(max=1)),
    ]
    return [(words, value.to(dtype)) for words, value in found]


def derivative(x):
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(F.gelu(x, approximate="tanh").sum(), x)[0]


@checks(GELU, "values")
def gelu_values(gelu):
    x = torch.linspace(-6, 6, 121).reshape(11, 11)
    close(call(gelu, x), expected_gelu(x), atol=2e-6, known=gelu_mistakes(x), look="the formula, factor by factor")


@checks(GELU, "large numbers")
def gelu_large(gelu):
    x = torch.tensor([-1e3, -100.0, -30.0, -12.0, 12.0, 30.0, 100.0, 1e3])
    got = call(gelu, x)
    if isinstance(got, torch.Tensor) and got.shape == x.shape and not got.isfinite().all():
        bad = x[~got.isfinite()][0].item()
        fail(
            "large numbers overflow: exp of more than 88 is inf in float32, and inf / inf is nan.",
            example=f"gelu({bad:g}) is {got[~got.isfinite()][0].item()}, expected {max(bad, 0.0):g}",
            look="tanh and sigmoid of PyTorch are safe for any number; a fraction of exps is not",
        )
    close(got, x.clamp(min=0), atol=1e-5, known=gelu_mistakes(x), look="far to the right gelu(x) is x, far to the left 0")


@checks(GELU, "inputs of any shape")
def gelu_shapes(gelu):
    for shape in [(), (1,), (7,), (2, 3, 5), (2, 1, 3, 2)]:
        x = rand(math.prod(shape), seed=80, scale=2.0).reshape(shape)
        close(call(gelu, x), expected_gelu(x), atol=2e-6, name=f"the result for x of shape {shape}", known=gelu_mistakes(x))
    x = rand(4, 3, 2, seed=81).transpose(0, 2)
    close(call(gelu, x), expected_gelu(x), atol=2e-6, name="the result for an x whose axes were swapped before", look="view needs contiguous memory")


@checks(GELU, "each number by itself")
def gelu_elementwise(gelu):
    x = rand(4, 6, seed=82)
    alone = torch.stack([gelu(v) for v in x.flatten()]).reshape(4, 6)
    x_with_large = torch.cat([x, torch.full((1, 6), 50.0)])
    for together in (gelu(x), gelu(x_with_large)[:4]):
        if not equal(together, alone, 1e-6):
            fail("what one number becomes depends on the others: GELU works on each number by itself.", look="max, mean and softmax over the tensor")


@checks(GELU, "gradients")
def gelu_gradients(gelu):
    x = torch.linspace(-5, 5, 60)
    gradients_close(gelu, lambda x: F.gelu(x, approximate="tanh"), [x], 1e-5, "x")
    far = torch.tensor([-1e3, -30.0, -15.0, 15.0, 30.0, 1e3], requires_grad=True)
    slope, = torch.autograd.grad(gelu(far).sum(), far)
    if not slope.isfinite().all():
        bad = far[~slope.isfinite()][0].item()
        fail("the gradient is nan or inf for large numbers although the values are right: exp overflows on the way.", example=f"at x = {bad:g}", look="tanh and sigmoid of PyTorch have safe gradients; a fraction of exps has not")
    close(slope, (far > 0).float().detach(), 1e-4, name="the slope far from 0")


@checks(GELU, "dtype and device")
def gelu_dtype(gelu):
    x = torch.linspace(-6, 6, 121, dtype=torch.float64)
    got = call(gelu, x)
    is_tensor(got, (121,), torch.float64)
    if not equal(got, expected_gelu(x), 1.5e-8):                  # a constant of 8 digits will do
        fail("the result is float64 and only as exact as float32: a step in between is float32, or a constant is rounded.", look=".float(), torch.tensor(...) without dtype, and constants typed by hand: math.sqrt(2 / math.pi) has all digits")
    keeps_device(gelu, x)


# --- MLP -----------------------------------------------------------------------------------------------

CONFIG = SimpleNamespace(vocab_size=11, n_ctx=7, n_layer=2, n_head=3, n_embd=6)


def tanh_gelu(x):
    return F.gelu(x, approximate="tanh")


def expected_mlp(module, x, activation=tanh_gelu):
    x = activation(F.linear(x, module.c_fc.weight, module.c_fc.bias))
    return F.linear(x, module.c_proj.weight, module.c_proj.bias)


def mlp_mistakes(module, x):
    W, b, P, p = (t.detach() for t in (module.c_fc.weight, module.c_fc.bias, module.c_proj.weight, module.c_proj.bias))
    right = expected_mlp(module, x).detach()
    inner = F.linear(x, W, b)
    C = x.shape[-1]
    return [
        ("there is nothing between the two layers: two linear maps in a row are one linear map. GELU belongs between them.", F.linear(inner, P, p)),
        ("there is ReLU between the layers; GPT-2 has GELU.", F.linear(inner.relu(), P, p)),
        ("the GELU between the layers is the exact one, with erf; GPT-2 uses the tanh form.", F.linear(F.gelu(inner), P, p)),
        ("there is SiLU between the layers; GPT-2 has GELU.", F.linear(F.silu(inner), P, p)),
        ("there is x * sigmoid(1.702 x) between the layers; GPT-2 has GELU in the tanh form.", F.linear(inner * (1.702 * inner).sigmoid(), P, p)),
        ("there is tanh between the layers; GPT-2 has GELU.", F.linear(inner.tanh(), P, p)),
        ("there is a sigmoid between the layers; GPT-2 has GELU.", F.linear(inner.sigmoid(), P, p)),
        ("there is a softmax between the layers; GPT-2 has GELU.", F.linear(inner.softmax(-1), P, p)),
        ("GELU is applied after c_proj as well; it stands between the layers only.", tanh_gelu(right)),
        ("GELU comes after c_proj; it belongs between the layers.", tanh_gelu(F.linear(inner, P, p))),
        ("GELU comes before c_fc; it belongs between the layers.", F.linear(F.linear(tanh_gelu(x), W, b), P, p)),
        ("GELU is applied before c_fc as well; it stands between the layers only.", F.linear(tanh_gelu(F.linear(tanh_gelu(x), W, b)), P, p)),
        ("GELU is applied twice.", F.linear(tanh_gelu(tanh_gelu(inner)), P, p)),
        ("the biases of c_fc and c_proj are not used.", F.linear(tanh_gelu(F.linear(x, W)), P)),
        ("the bias of c_fc is not used.", F.linear(tanh_gelu(F.linear(x, W)), P, p)),
        ("the bias of c_proj is not used.", F.linear(tanh_gelu(inner), P)),
        ("the bias of c_fc is added after GELU; it belongs to c_fc.", F.linear(tanh_gelu(F.linear(x, W)) + b, P, p)),
        ("the input is added to the result; the residual belongs to the block.", right + x),
        ("x is normalised first; LayerNorm belongs to the block.", expected_mlp(module, F.layer_norm(x, (C,))).detach()),
        ("the result is normalised; LayerNorm belongs to the block.", F.layer_norm(right, (C,))),
        ("there is leaky ReLU between the layers; GPT-2 has GELU.", F.linear(F.leaky_relu(inner), P, p)),
        ("there is ELU between the layers; GPT-2 has GELU.", F.linear(F.elu(inner), P, p)),
        ("GELU's result is multiplied with its input once more, as in a gated MLP; GPT-2 has no gate.", F.linear(tanh_gelu(inner) * inner, P, p)),
        ("the bias of c_proj is added twice.", right + p),
        ("the bias of c_fc is added twice.", F.linear(tanh_gelu(inner + b), P, p)),
        ("c_proj uses the weights of c_fc; it has its own.", F.linear(tanh_gelu(inner), W.T, p)),
        ("c_proj is not applied: the result has 4 * n_embd channels.", tanh_gelu(inner)),
        ("c_proj and GELU are not applied: the result has 4 * n_embd channels.", inner),
        ("x comes back as it is.", x),
        ("everything is 0.", torch.zeros_like(x)),
    ]


@checks(MLP, "parameters")
def mlp_parameters(MLP):
    module = build(MLP, "MLP", CONFIG)
    got = {name: tuple(p.shape) for name, p in module.named_parameters()}
    width = {"c_fc.weight": 0, "c_proj.weight": 1}
    for name, axis in width.items():
        shape = got.get(name, ())
        if len(shape) == 2 and shape[1 - axis] == 6 and shape[axis] not in (6, 24):
            fail(f"the layer in the middle is {shape[axis]} wide for n_embd = 6; GPT-2 makes it 4 * n_embd, 24.", example=f"{name} has shape {shape}, expected {(24, 6) if axis == 0 else (6, 24)}")
    if got.get("c_fc.weight") == (6, 6):
        fail("the layer in the middle is as wide as its input; GPT-2 makes it 4 * n_embd, 24 for n_embd = 6.", example="c_fc.weight has shape (6, 6), expected (24, 6)")
    if got.get("c_fc.weight") == (6, 24) and got.get("c_proj.weight") == (24, 6):
        fail("the shapes of c_fc and c_proj are exchanged: c_fc goes from n_embd to 4 * n_embd, c_proj back, and weights are stored (out, in).", example="c_fc.weight has shape (6, 24), expected (24, 6)")
    parameters_are(module, {"c_fc.weight": (24, 6), "c_fc.bias": (24,), "c_proj.weight": (6, 24), "c_proj.bias": (6,)}, "MLP")
    for name, p in module.named_parameters():
        if not p.requires_grad:
            fail(f"{name} does not ask for a gradient: it would never be trained.", look="requires_grad=False")


@checks(MLP, "the same result twice")
def mlp_repeatable(MLP):
    for mode in (True, False):
        module = fill(MLP(CONFIG), seed=97).train(mode)
        x = rand(2, 5, 6, seed=98)
        first, again = call(module, x), call(module, x)
        if isinstance(first, torch.Tensor) and not equal(first, again, 0):
            fail("two calls with the same input differ: something random is at work.", look="dropout, or parameters that are created in forward")


@checks(MLP, "two modules")
def two_mlps(MLP):
    a, b = MLP(CONFIG), MLP(CONFIG)
    memory = {p.data_ptr() for p in b.parameters()}
    shared = [name for name, p in a.named_parameters() if p.data_ptr() in memory]
    if shared:
        fail(f"two modules share {shared[0]}: whoever trains one trains the other.", look="parts that are created outside __init__: in the class body, as a default argument, as a global")


@checks(MLP, "values")
def mlp_values(MLP):
    module = fill(MLP(CONFIG), seed=90)
    x = rand(2, 5, 6, seed=91)
    for mode, name in [(True, "the result"), (False, "the result in eval mode")]:
        module.train(mode)
        close(call(module, x), expected_mlp(module, x).detach(), atol=5e-6, name=name, known=mlp_mistakes(module, x))


@checks(MLP, "other sizes")
def mlp_sizes(MLP):
    for n_embd in (3, 8):
        config = SimpleNamespace(vocab_size=5, n_ctx=4, n_layer=1, n_head=1, n_embd=n_embd)
        module = MLP(config)
        C = n_embd
        parameters_are(module, {"c_fc.weight": (4 * C, C), "c_fc.bias": (4 * C,), "c_proj.weight": (C, 4 * C), "c_proj.bias": (C,)}, f"for n_embd = {C}, MLP")
        fill(module, seed=92)
        for shape in [(1, 1), (3, 4), (2, 9)]:
            x = rand(*shape, C, seed=93)
            close(call(module, x), expected_mlp(module, x).detach(), atol=5e-6, name=f"the result for n_embd = {C} and x of shape {(*shape, C)}", known=mlp_mistakes(module, x), look="sizes that are written as numbers: take them from config")


@checks(MLP, "each position by itself")
def mlp_positions(MLP):
    module = fill(MLP(CONFIG), seed=94)
    x = rand(3, 6, 6, seed=95)
    before = module(x)
    changed = x.clone()
    changed[1, 2] = 20 * rand(6, seed=96)
    moved = (module(changed) - before).abs().amax(dim=-1) > 1e-6
    moved[1, 2] = False
    if moved.any():
        at = moved.nonzero()[0].tolist()
        fail("a token changes the result at another position: the MLP works on each position by itself.", example=f"a new token at sequence 1, position 2 moves sequence {at[0]}, position {at[1]}")


@checks(MLP, "gradients")
def mlp_gradients(MLP):
    module = fill(MLP(CONFIG), seed=100)
    x, weighting = rand(2, 5, 6, seed=101), rand(2, 5, 6, seed=102)
    gradients_close(module, lambda x: expected_mlp(module, x), [x], 1e-5, "x")
    names, params = zip(*module.named_parameters())
    wanted = torch.autograd.grad((expected_mlp(module, x) * weighting).sum(), params)
    out = module(x)
    mine = torch.autograd.grad((out * weighting).sum(), params, allow_unused=True) if out.requires_grad else [None] * len(params)
    for name, got, want in zip(names, mine, wanted):
        if got is None:
            fail(f"no gradient reaches {name}.", look=CUT)
        close(got, want, 1e-5, name=f"the gradient of {name}")


@checks(MLP, "dtype and device")
def mlp_dtype(MLP):
    module = fill(MLP(CONFIG), seed=103).double()
    x = rand(2, 5, 6, seed=104, dtype=torch.float64)
    got = call(module, x)
    is_tensor(got, (2, 5, 6), torch.float64)
    if not equal(got, expected_mlp(module, x), 1e-7):             # gelu's constant may have 8 digits
        fail("the result is float64 and only as exact as float32: a step in between is float32.", look=".float(), and tensors that you create without dtype=x.dtype")
    keeps_device(lambda m, x: m(x), module, x)
