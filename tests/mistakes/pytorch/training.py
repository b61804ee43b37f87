import collections
import io
import math
import os
import random
import shutil
import tempfile
from pathlib import Path

import torch
from torch import nn

from solutions.pytorch import training as good
from tests.mistakes import right, wrong

SCHEDULE = "pytorch.training.cosine_lr"
ADAMW = "pytorch.training.AdamW"
CLIP = "pytorch.training.clip_grad_norm"
ACCUMULATE = "pytorch.training.accumulate"
SAVE = "pytorch.training.save_checkpoint"
LOAD = "pytorch.training.load_checkpoint"

# --- cosine_lr -----------------------------------------------------------------------------------------


def after_warmup(it, max_lr, min_lr, warmup, total):
    return good.cosine_lr(it, max_lr, min_lr, warmup, total)


@wrong(SCHEDULE, "the warmup starts at 0")
def warmup_from_zero(it, max_lr, min_lr, warmup, total):
    return max_lr * it / warmup if it < warmup else after_warmup(it, max_lr, min_lr, warmup, total)


@wrong(SCHEDULE, "it + 1 is meant")
def warmup_without_one(it, max_lr, min_lr, warmup, total):
    return max_lr * it / (warmup + 1) if it < warmup else after_warmup(it, max_lr, min_lr, warmup, total)


@wrong(SCHEDULE, "reaches max_lr one iteration early")
def warmup_by_warmup(it, max_lr, min_lr, warmup, total):
    return max_lr * (it + 1) / warmup if it < warmup else after_warmup(it, max_lr, min_lr, warmup, total)


@wrong(SCHEDULE, "there is no warmup")
def warmup_missing(it, max_lr, min_lr, warmup, total):
    return max_lr if it < warmup else after_warmup(it, max_lr, min_lr, warmup, total)


@wrong(SCHEDULE, "climbs from min_lr")
def warmup_from_min(it, max_lr, min_lr, warmup, total):
    if it < warmup:
        return min_lr + (max_lr - min_lr) * (it + 1) / (warmup + 1)
    return after_warmup(it, max_lr, min_lr, warmup, total)


@wrong(SCHEDULE, "is None at it = 4")
def schedule_forgot_a_branch(it, max_lr, min_lr, warmup, total):
    if it < warmup:
        return max_lr * (it + 1) / (warmup + 1)
    if it >= total:
        return min_lr


@wrong(SCHEDULE, "gives a list")
def whole_schedule(it, max_lr, min_lr, warmup, total):
    return [good.cosine_lr(i, max_lr, min_lr, warmup, total) for i in range(total)]


@wrong(SCHEDULE, "falls to 0 and not to min_lr")
def ends_at_zero(it, max_lr, min_lr, warmup, total):
    if it < warmup:
        return max_lr * (it + 1) / (warmup + 1)
    if it >= total:
        return min_lr
    return max_lr * (1 + math.cos(math.pi * (it - warmup) / (total - warmup))) / 2


@wrong(SCHEDULE, "cut off at min_lr")
def cut_off_at_min(it, max_lr, min_lr, warmup, total):
    if it < warmup:
        return max_lr * (it + 1) / (warmup + 1)
    return max(min_lr, max_lr * (1 + math.cos(math.pi * min(1, (it - warmup) / (total - warmup)))) / 2)


def with_share(it, max_lr, min_lr, warmup, total, curve, first=None, length=None):
    if it < warmup:
        return max_lr * (it + 1) / (warmup + 1)
    if it >= total:
        return min_lr
    first = warmup if first is None else first
    length = total - warmup if length is None else length
    return min_lr + (max_lr - min_lr) * curve((it - first) / length)


def half_cosine(s):
    return 0.5 * (1 + math.cos(math.pi * s))


@wrong(SCHEDULE, "not halved")
def cosine_without_half(it, max_lr, min_lr, warmup, total):
    return with_share(it, max_lr, min_lr, warmup, total, lambda s: 1 + math.cos(math.pi * s))


@wrong(SCHEDULE, "1 + before cos is missing")
def cosine_without_one(it, max_lr, min_lr, warmup, total):
    return with_share(it, max_lr, min_lr, warmup, total, lambda s: math.cos(math.pi * s))


@wrong(SCHEDULE, "straight line")
def linear_decay(it, max_lr, min_lr, warmup, total):
    return with_share(it, max_lr, min_lr, warmup, total, lambda s: 1 - s)


@wrong(SCHEDULE, "goes up")
def sine_of_the_wrong_sign(it, max_lr, min_lr, warmup, total):
    return with_share(it, max_lr, min_lr, warmup, total, lambda s: 0.5 * (1 - math.cos(math.pi * s)))


@wrong(SCHEDULE, "quarter wave")
def quarter_of_a_wave(it, max_lr, min_lr, warmup, total):
    return with_share(it, max_lr, min_lr, warmup, total, lambda s: math.cos(math.pi / 2 * s))


@wrong(SCHEDULE, "whole wave")
def whole_wave(it, max_lr, min_lr, warmup, total):
    return with_share(it, max_lr, min_lr, warmup, total, lambda s: 0.5 * (1 + math.cos(2 * math.pi * s)))


@wrong(SCHEDULE, "pi is missing")
def pi_missing(it, max_lr, min_lr, warmup, total):
    return with_share(it, max_lr, min_lr, warmup, total, lambda s: 0.5 * (1 + math.cos(s)))


@wrong(SCHEDULE, "counts from iteration 0")
def cosine_from_zero(it, max_lr, min_lr, warmup, total):
    return with_share(it, max_lr, min_lr, warmup, total, half_cosine, first=0, length=total)


@wrong(SCHEDULE, "stretched over total")
def cosine_over_total(it, max_lr, min_lr, warmup, total):
    return with_share(it, max_lr, min_lr, warmup, total, half_cosine, length=total)


@wrong(SCHEDULE, "ends one iteration early")
def cosine_one_short(it, max_lr, min_lr, warmup, total):
    return with_share(it, max_lr, min_lr, warmup, total, half_cosine, length=total - warmup - 1)


@wrong(SCHEDULE, "shifted by one iteration")
def cosine_one_ahead(it, max_lr, min_lr, warmup, total):
    return with_share(it, max_lr, min_lr, warmup, total, half_cosine, first=warmup - 1)


@wrong(SCHEDULE, "the two rates are exchanged")
def exchanged_rates(it, max_lr, min_lr, warmup, total):
    return good.cosine_lr(it, max_lr, min_lr, warmup, total) if it < warmup else good.cosine_lr(it, min_lr, max_lr, warmup, total)


@wrong(SCHEDULE, "added to the whole curve")
def min_on_top(it, max_lr, min_lr, warmup, total):
    if it < warmup or it >= total:
        return good.cosine_lr(it, max_lr, min_lr, warmup, total)
    return min_lr + max_lr * half_cosine((it - warmup) / (total - warmup))


@wrong(SCHEDULE, "climbs again")
def comes_back(it, max_lr, min_lr, warmup, total):
    if it < warmup:
        return max_lr * (it + 1) / (warmup + 1)
    return min_lr + (max_lr - min_lr) * half_cosine((it - warmup) / (total - warmup))


@wrong(SCHEDULE, "in degrees")
def cosine_of_degrees(it, max_lr, min_lr, warmup, total):
    return with_share(it, max_lr, min_lr, warmup, total, lambda s: 0.5 * (1 + math.cos(180 * s)))


@wrong(SCHEDULE, "the warmup is cut off at min_lr")
def never_below_min(it, max_lr, min_lr, warmup, total):
    return max(min_lr, good.cosine_lr(it, max_lr, min_lr, warmup, total))


@wrong(SCHEDULE, "starts over")
def starts_over(it, max_lr, min_lr, warmup, total):
    return good.cosine_lr(it % total, max_lr, min_lr, warmup, total)


@wrong(SCHEDULE, "after the end the rate is 0")
def nothing_after_the_end(it, max_lr, min_lr, warmup, total):
    return 0.0 if it >= total else good.cosine_lr(it, max_lr, min_lr, warmup, total)


@wrong(SCHEDULE, "written down")
def numbers_written_down(it, max_lr, min_lr, warmup, total):
    return good.cosine_lr(it, max_lr, min_lr, 4, 20)


@wrong(SCHEDULE, "divides by zero")
def warmup_divides(it, max_lr, min_lr, warmup, total):
    lr = max_lr * (it + 1) / (warmup + 1) * (warmup / warmup)
    return lr if it < warmup else good.cosine_lr(it, max_lr, min_lr, warmup, total)


CALLS = collections.Counter()


@wrong(SCHEDULE, "depends on earlier calls")
def remembers(it, max_lr, min_lr, warmup, total):
    CALLS["last"] = 0 if it == 0 else max(it, CALLS["last"] if it < CALLS["last"] - 3 else it)
    return good.cosine_lr(CALLS["last"], max_lr, min_lr, warmup, total)


@wrong(SCHEDULE, "each sum in its own")
def warmup_without_parentheses(it, max_lr, min_lr, warmup, total):
    return max_lr * it + 1 / (warmup + 1) if it < warmup else after_warmup(it, max_lr, min_lr, warmup, total)


@wrong(SCHEDULE, "a share of total")
def warmup_by_total(it, max_lr, min_lr, warmup, total):
    return max_lr * (it + 1) / total if it < warmup else after_warmup(it, max_lr, min_lr, warmup, total)


@wrong(SCHEDULE, "warmup and total are exchanged")
def exchanged_lengths(it, max_lr, min_lr, total, warmup):
    return good.cosine_lr(it, max_lr, min_lr, warmup, total)


@wrong(SCHEDULE, "taken in another order")
def lengths_first(it, warmup, total, max_lr, min_lr):
    return good.cosine_lr(it, max_lr, min_lr, warmup, total)


@wrong(SCHEDULE, "each difference in its own")
def share_without_parentheses(it, max_lr, min_lr, warmup, total):
    if not warmup <= it < total:
        return good.cosine_lr(it, max_lr, min_lr, warmup, total)
    return min_lr + 0.5 * (1 + math.cos(math.pi * (it - warmup / (total - warmup)))) * (max_lr - min_lr)


@wrong(SCHEDULE, "around 1 + cos")
def sum_without_parentheses(it, max_lr, min_lr, warmup, total):
    return with_share(it, max_lr, min_lr, warmup, total, lambda s: 0.5 * 1 + math.cos(math.pi * s))


@wrong(SCHEDULE, "max_lr + min_lr; the way is")
def range_of_the_wrong_sign(it, max_lr, min_lr, warmup, total):
    if not warmup <= it < total:
        return good.cosine_lr(it, max_lr, min_lr, warmup, total)
    return min_lr + half_cosine((it - warmup) / (total - warmup)) * (max_lr + min_lr)


@wrong(SCHEDULE, "min_lr is missing before the curve")
def min_left_out(it, max_lr, min_lr, warmup, total):
    if not warmup <= it < total:
        return good.cosine_lr(it, max_lr, min_lr, warmup, total)
    return half_cosine((it - warmup) / (total - warmup)) * (max_lr - min_lr)


@wrong(SCHEDULE, "counts from iteration 0")
def share_of_the_rest(it, max_lr, min_lr, warmup, total):
    if not warmup <= it < total:
        return good.cosine_lr(it, max_lr, min_lr, warmup, total)
    return min_lr + half_cosine(it / (total - warmup)) * (max_lr - min_lr)


@wrong(SCHEDULE, "pi is rounded")
def pi_of_two_digits(it, max_lr, min_lr, warmup, total):
    return with_share(it, max_lr, min_lr, warmup, total, lambda s: 0.5 * (1 + math.cos(3.14 * s)))


@wrong(SCHEDULE, "the rate is rounded")
def rounds(it, max_lr, min_lr, warmup, total):
    return round(good.cosine_lr(it, max_lr, min_lr, warmup, total), 4)


@right(SCHEDULE)
def schedule_by_clamp(it, max_lr, min_lr, warmup, total):
    if warmup and it < warmup:
        return (it + 1) / (warmup + 1) * max_lr
    share = min(max((it - warmup) / max(total - warmup, 1), 0.0), 1.0)
    return min_lr * (1 - half_cosine(share)) + max_lr * half_cosine(share)


@right(SCHEDULE)
def schedule_by_sine(it, max_lr, min_lr, warmup, total):
    if it >= total:
        return min_lr
    if it < warmup:
        return max_lr - max_lr * (warmup - it) / (warmup + 1)
    return max_lr - (max_lr - min_lr) * math.sin(math.pi / 2 * (it - warmup) / (total - warmup)) ** 2


@right(SCHEDULE)
def schedule_by_torch(it, max_lr, min_lr, warmup, total):
    if it < warmup:
        return max_lr * torch.tensor((it + 1) / (warmup + 1)).item()
    share = torch.tensor(min((it - warmup) / (total - warmup), 1.0), dtype=torch.float64)
    return (min_lr + 0.5 * (max_lr - min_lr) * (1 + torch.cos(math.pi * share))).item()


@right(SCHEDULE)
def schedule_in_one_expression(it, max_lr, min_lr, warmup, total):
    return max_lr * (it + 1) / (warmup + 1) if it < warmup else min_lr if it >= total else (max_lr + min_lr) / 2 + (max_lr - min_lr) / 2 * math.cos(math.pi * (it - warmup) / (total - warmup))


# --- AdamW ---------------------------------------------------------------------------------------------


class Parts(good.AdamW):
    """AdamW in parts that a mistake can replace one at a time."""

    def settings(self, group):
        return group["lr"], group["betas"], group["eps"], group["weight_decay"]

    def skip(self, p):
        return p.grad is None

    def count(self, state):
        state["step"] += 1
        return state["step"]

    def decay(self, p, lr, weight_decay):
        p.mul_(1 - lr * weight_decay)

    def gradient(self, p, weight_decay):
        return p.grad

    def moments(self, m, v, g, beta1, beta2):
        m.mul_(beta1).add_(g * (1 - beta1))
        v.mul_(beta2).add_(g * g * (1 - beta2))

    def corrected(self, m, v, beta1, beta2, t):
        return m / (1 - beta1**t), v / (1 - beta2**t)

    def direction(self, m, v, g, eps):
        return m / (v.sqrt() + eps)

    def change(self, p, lr, u):
        p.sub_(lr * u)

    def state_of(self, p):
        return self.state.setdefault(p, {"step": 0, "m": torch.zeros_like(p), "v": torch.zeros_like(p)})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, (beta1, beta2), eps, weight_decay = self.settings(group)
            for p in group["params"]:
                if self.skip(p):
                    continue
                state = self.state_of(p)
                t = self.count(state)
                self.decay(p, lr, weight_decay)
                g = self.gradient(p, weight_decay)
                self.moments(state["m"], state["v"], g, beta1, beta2)
                m, v = self.corrected(state["m"], state["v"], beta1, beta2, t)
                self.change(p, lr, self.direction(m, v, g, eps))


right(ADAMW)(Parts)


@wrong(ADAMW, "moves up the gradient")
class Uphill(Parts):
    def change(self, p, lr, u):
        p.add_(lr * u)


@wrong(ADAMW, "learning rate is not used")
class NoRate(Parts):
    def change(self, p, lr, u):
        p.sub_(u)


@wrong(ADAMW, "leaves the parameter as it was")
class ChangesACopy(Parts):
    def change(self, p, lr, u):
        p = p - lr * u


@wrong(ADAMW, "autograd watches")
class NoNoGrad(Parts):
    def step(self):
        with torch.enable_grad():
            Parts.step.__wrapped__(self)


@wrong(ADAMW, "t = 0 at the first step")
class CountsAfterwards(Parts):
    def count(self, state):
        state["step"] += 1
        return state["step"] - 1


@wrong(ADAMW, "divides by zero")
class CountsAfterwardsAsNumbers(CountsAfterwards):
    def corrected(self, m, v, beta1, beta2, t):
        return m * (1 / (1 - beta1**t)), v * (1 / (1 - beta2**t))


@wrong(ADAMW, "off by one: the first step has t = 1")
class CountsOneAhead(Parts):
    def count(self, state):
        return super().count(state) + 1


@wrong(ADAMW, "never grows")
class NeverCounts(Parts):
    def count(self, state):
        return 1


@wrong(ADAMW, "more than one a step")
class CountsTwice(Parts):
    def count(self, state):
        return super().count(state) * 2


@wrong(ADAMW, "used as they are")
class NoCorrection(Parts):
    def corrected(self, m, v, beta1, beta2, t):
        return m, v


@wrong(ADAMW, "v is not divided")
class OnlyMCorrected(Parts):
    def corrected(self, m, v, beta1, beta2, t):
        return m / (1 - beta1**t), v


@wrong(ADAMW, "m is not divided")
class OnlyVCorrected(Parts):
    def corrected(self, m, v, beta1, beta2, t):
        return m, v / (1 - beta2**t)


@wrong(ADAMW, "corrections are exchanged")
class CorrectionsExchanged(Parts):
    def corrected(self, m, v, beta1, beta2, t):
        return m / (1 - beta2**t), v / (1 - beta1**t)


@wrong(ADAMW, "root of a negative number")
class BetaTimesT(Parts):
    def corrected(self, m, v, beta1, beta2, t):
        return m / (1 - beta1 * t), v / (1 - beta2 * t)


@wrong(ADAMW, "multiplied where it should be divided")
class CorrectionMultiplied(Parts):
    def corrected(self, m, v, beta1, beta2, t):
        return m * (1 - beta1**t), v * (1 - beta2**t)


@wrong(ADAMW, "kept for the next step")
class CorrectionKept(Parts):
    def corrected(self, m, v, beta1, beta2, t):
        return m.div_(1 - beta1**t), v.div_(1 - beta2**t)


@wrong(ADAMW, "beta1 and beta2 are exchanged")
class BetasExchanged(Parts):
    def settings(self, group):
        lr, (beta1, beta2), eps, weight_decay = super().settings(group)
        return lr, (beta2, beta1), eps, weight_decay


@wrong(ADAMW, "m is not carried")
class MForgotten(Parts):
    def moments(self, m, v, g, beta1, beta2):
        m.zero_()
        super().moments(m, v, g, beta1, beta2)


@wrong(ADAMW, "v is not carried")
class VForgotten(Parts):
    def moments(self, m, v, g, beta1, beta2):
        v.zero_()
        super().moments(m, v, g, beta1, beta2)


@wrong(ADAMW, "enters m with weight 1")
class MIsASum(Parts):
    def moments(self, m, v, g, beta1, beta2):
        m.mul_(beta1).add_(g)
        v.mul_(beta2).add_(g * g * (1 - beta2))


@wrong(ADAMW, "enters v with weight 1")
class VIsASum(Parts):
    def moments(self, m, v, g, beta1, beta2):
        m.mul_(beta1).add_(g * (1 - beta1))
        v.mul_(beta2).add_(g * g)


@wrong(ADAMW, "weights in m are exchanged")
class WeightsOfMExchanged(Parts):
    def moments(self, m, v, g, beta1, beta2):
        m.mul_(1 - beta1).add_(g * beta1)
        v.mul_(beta2).add_(g * g * (1 - beta2))


@wrong(ADAMW, "v is made of m")
class SquareOfM(Parts):
    def moments(self, m, v, g, beta1, beta2):
        m.mul_(beta1).add_(g * (1 - beta1))
        v.mul_(beta2).add_(m * m * (1 - beta2))


@wrong(ADAMW, "absolute values")
class AbsoluteValues(Parts):
    def moments(self, m, v, g, beta1, beta2):
        m.mul_(beta1).add_(g * (1 - beta1))
        v.mul_(beta2).add_(g.abs() * (1 - beta2))


@wrong(ADAMW, "is nan or inf")
class SquareMissing(Parts):
    def moments(self, m, v, g, beta1, beta2):
        m.mul_(beta1).add_(g * (1 - beta1))
        v.mul_(beta2).add_(g * (1 - beta2))


@wrong(ADAMW, "one number for the whole tensor")
class OneNumberForV(Parts):
    def moments(self, m, v, g, beta1, beta2):
        m.mul_(beta1).add_(g * (1 - beta1))
        v.mul_(beta2).add_((g * g).mean() * (1 - beta2))


@wrong(ADAMW, "largest square")
class LargestSquare(Parts):
    def moments(self, m, v, g, beta1, beta2):
        m.mul_(beta1).add_(g * (1 - beta1))
        v.copy_(torch.maximum(beta2 * v + (1 - beta2) * g * g, g * g))


@wrong(ADAMW, "square root of v is missing")
class RootMissing(Parts):
    def direction(self, m, v, g, eps):
        return m / (v + eps)


@wrong(ADAMW, "outside the square root")
class CorrectionOutside(Parts):
    def corrected(self, m, v, beta1, beta2, t):
        return m / (1 - beta1**t), v / (1 - beta2**t) ** 2


@wrong(ADAMW, "plain gradient descent")
class PlainDescent(Parts):
    def direction(self, m, v, g, eps):
        return g


@wrong(ADAMW, "v is not used")
class MomentumOnly(Parts):
    def direction(self, m, v, g, eps):
        return m


@wrong(ADAMW, "m is not used")
class NewestGradient(Parts):
    def direction(self, m, v, g, eps):
        return g / (v.sqrt() + eps)


@wrong(ADAMW, "there is no weight decay")
class NoDecay(Parts):
    def decay(self, p, lr, weight_decay):
        pass


@wrong(ADAMW, "added to the gradient (L2)")
class DecayInGradient(Parts):
    def decay(self, p, lr, weight_decay):
        pass

    def gradient(self, p, weight_decay):
        return p.grad + weight_decay * p


@wrong(ADAMW, "lacks the factor lr")
class DecayWithoutRate(Parts):
    def decay(self, p, lr, weight_decay):
        p.mul_(1 - weight_decay)


@wrong(ADAMW, "parameters grow")
class DecayGrows(Parts):
    def decay(self, p, lr, weight_decay):
        p.mul_(1 + lr * weight_decay)


@wrong(ADAMW, "decay is done twice")
class DecayTwice(Parts):
    def decay(self, p, lr, weight_decay):
        p.mul_((1 - lr * weight_decay) ** 2)


@wrong(ADAMW, "fixed amount (L1)")
class DecayBySign(Parts):
    def decay(self, p, lr, weight_decay):
        p.sub_(lr * weight_decay * p.sign())


@wrong(ADAMW, "lr and not lr * weight_decay")
class DecayByRate(Parts):
    def decay(self, p, lr, weight_decay):
        if weight_decay:
            p.mul_(1 - lr)


@wrong(ADAMW, "whose gradient is 0 is passed over")
class SkipsZeroGradients(Parts):
    def skip(self, p):
        return p.grad is None or not p.grad.any()


@wrong(ADAMW, "eps stands inside")
class EpsInside(Parts):
    def direction(self, m, v, g, eps):
        return m / (v + eps).sqrt()


@wrong(ADAMW, "before the bias correction")
class EpsBeforeCorrection(Parts):
    def corrected(self, m, v, beta1, beta2, t):
        self.two = 1 - beta2**t
        return m / (1 - beta1**t), v

    def direction(self, m, v, g, eps):
        return m * math.sqrt(self.two) / (v.sqrt() + eps)


@wrong(ADAMW, "eps is 1e-6")
class EpsOfAnother(Parts):
    def direction(self, m, v, g, eps):
        return m / (v.sqrt() + 1e-6)


@wrong(ADAMW, "eps is 1e-8")
class EpsWrittenDown(Parts):
    def direction(self, m, v, g, eps):
        return m / (v.sqrt() + 1e-8)


@wrong(ADAMW, "eps is not used")
class EpsForgotten(Parts):
    def direction(self, m, v, g, eps):
        return m / v.sqrt().clamp(min=1e-30)


@wrong(ADAMW, "lower bound")
class EpsAsFloor(Parts):
    def direction(self, m, v, g, eps):
        return m / v.sqrt().clamp(min=eps)


class OwnGroups(Parts):
    """How the list of parameters is cut into groups, to be replaced."""

    def decays(self, p):
        return p.dim() >= 2

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        params = list(params)
        if not isinstance(params[0], dict):
            params = [
                {"params": [p for p in params if self.decays(p)]},
                {"params": [p for p in params if not self.decays(p)], "weight_decay": 0.0},
            ]
        super().__init__(params, lr, betas, eps, weight_decay)


@wrong(ADAMW, "biases decay too")
class AllDecay(OwnGroups):
    def decays(self, p):
        return True


@wrong(ADAMW, "not exactly 2")
class OnlyMatricesDecay(OwnGroups):
    def decays(self, p):
        return p.dim() == 2


@wrong(ADAMW, "biases decay too")
class SplitsByName(OwnGroups):
    def decays(self, p):
        return p.dim() >= 2 or p.numel() < 6


@wrong(ADAMW, "gone through once")
class IteratorTwice(Parts):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        if isinstance(params, list):
            return super().__init__(params, lr, betas, eps, weight_decay)
        matrices = [p for p in params if p.dim() >= 2]
        others = [p for p in params if p.dim() < 2]
        super().__init__([{"params": matrices}, {"params": others, "weight_decay": 0.0}], lr, betas, eps, weight_decay)


@wrong(ADAMW, "is taken as it is")
class GroupsCutAnew(OwnGroups):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        params = list(params)
        if isinstance(params[0], dict):
            params = [p for group in params for p in group["params"]]
        super().__init__(params, lr, betas, eps, weight_decay)


@wrong(ADAMW, "own settings are not used")
class ArgumentsOnly(Parts):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)
        for group in self.param_groups:
            if group["weight_decay"] != 0.0:
                group.update(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


@wrong(ADAMW, "own settings are not used")
class VectorsNeverDecay(Parts):
    def decay(self, p, lr, weight_decay):
        if p.dim() >= 2:
            super().decay(p, lr, weight_decay)


@wrong(ADAMW, "disturb each other")
class StateByShape(Parts):
    def state_of(self, p):
        return self.state.setdefault(tuple(p.shape), {"step": 0, "m": torch.zeros_like(p), "v": torch.zeros_like(p)})


@wrong(ADAMW, "disturb each other")
class StateByIndexInGroup(Parts):
    def state_of(self, p):
        index = next(i for group in self.param_groups for i, q in enumerate(group["params"]) if q is p)
        return self.state.setdefault((index, tuple(p.shape)), {"step": 0, "m": torch.zeros_like(p), "v": torch.zeros_like(p)})


@wrong(ADAMW, "has no param_groups")
class PlainList(Parts):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        self.params = list(params)
        self.lr = lr


@wrong(ADAMW, 'has no "lr"')
class GroupsWithoutRate(Parts):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)
        self.lr = lr
        for group in self.param_groups:
            del group["lr"]


@wrong(ADAMW, "without the argument betas")
class OtherDefaults(Parts):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)


@wrong(ADAMW, "without the argument weight_decay")
class NoDecayByDefault(Parts):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        super().__init__(params, lr, betas, eps, weight_decay)


@wrong(ADAMW, "has no effect")
class RateCopied(Parts):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay)
        self.kept = [(g["lr"], g["betas"], g["eps"], g["weight_decay"]) for g in self.param_groups]

    def settings(self, group):
        return self.kept[next(i for i, g in enumerate(self.param_groups) if g is group)]


@wrong(ADAMW, "stops the step")
class NeedsGradients(Parts):
    def skip(self, p):
        return False

    def decay(self, p, lr, weight_decay):
        p.grad + 0
        super().decay(p, lr, weight_decay)


@wrong(ADAMW, "without decay too")
class DecaysWithoutGradient(Parts):
    def step(self):
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        p.mul_(1 - group["lr"] * group["weight_decay"])
        super().step()


@wrong(ADAMW, "one step counter serves all")
class OneCounter(Parts):
    t = 0

    def step(self):
        self.t += 1
        super().step()

    def count(self, state):
        state["step"] = self.t
        return self.t

    def load_state_dict(self, saved):
        super().load_state_dict(saved)
        self.t = max(s["step"] for s in self.state.values())


@wrong(ADAMW, "although it has no gradient now")
class KeepsRolling(Parts):
    def skip(self, p):
        if p.grad is None and p in self.state:
            p.grad = torch.zeros_like(p)
        return p.grad is None


@wrong(ADAMW, "a gradient is still there")
class ClearsNothing(Parts):
    def zero_grad(self):
        for group in self.param_groups:
            for p in group["params"]:
                grad = p.grad
                grad = None


@wrong(ADAMW, "a gradient is still there")
class ClearsFirstGroup(Parts):
    def zero_grad(self):
        for p in self.param_groups[0]["params"]:
            p.grad = None


@wrong(ADAMW, "changes the parameters; it clears")
class ClearsParameters(Parts):
    def zero_grad(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.zero_()
                p.grad = None


@wrong(ADAMW, "changes p.grad")
class SpoilsGradient(Parts):
    def gradient(self, p, weight_decay):
        return p.grad.mul_(1 + 1e-7).add_(1e-9)


@wrong(ADAMW, "changes p.grad")
class ClearsInStep(Parts):
    def gradient(self, p, weight_decay):
        g = p.grad.clone()
        p.grad.zero_()
        return g


@wrong(ADAMW, "drift away")
class CorrectionForTenSteps(Parts):
    def corrected(self, m, v, beta1, beta2, t):
        return super().corrected(m, v, beta1, beta2, t) if t <= 10 else (m, v)


class SharedState(Parts):
    slots = {}

    def state_of(self, p):
        index = next(i for i, q in enumerate(q for group in self.param_groups for q in group["params"]) if q is p)
        return self.slots.setdefault(index, {"step": 0, "m": torch.zeros_like(p), "v": torch.zeros_like(p)})


wrong(ADAMW, "share their state")(SharedState)


@wrong(ADAMW, "gives None")
class StateNotReturned(Parts):
    def state_dict(self):
        super().state_dict()


@wrong(ADAMW, "cannot be read back")
class StateAsObject(Parts):
    def state_dict(self):
        return collections.UserDict(super().state_dict())


@wrong(ADAMW, "m and v are one tensor")
class OneTensorForBoth(Parts):
    def state_of(self, p):
        both = torch.zeros_like(p)
        return self.state.setdefault(p, {"step": 0, "m": both, "v": both})


@wrong(ADAMW, "used before the gradient has entered them")
class UsesOldMoments(Parts):
    def moments(self, m, v, g, beta1, beta2):
        self.old = m.clone(), v.clone()
        super().moments(m, v, g, beta1, beta2)

    def corrected(self, m, v, beta1, beta2, t):
        return super().corrected(*self.old, beta1, beta2, t)


@wrong(ADAMW, "what is kept between steps")
class ClearsItsState(Parts):
    def zero_grad(self):
        super().zero_grad()
        self.state = {}


@wrong(ADAMW, "the parameter after eight steps")
class ClipsItsGradient(Parts):
    def gradient(self, p, weight_decay):
        return p.grad.clamp(-1, 1)


@wrong(ADAMW, "the learning rate is lost")
class SavesNoSettings(Parts):
    def state_dict(self):
        return {**super().state_dict(), "groups": [{} for _ in self.param_groups]}


class LosesState(Parts):
    lost = ()

    def load_state_dict(self, saved):
        super().load_state_dict(saved)
        for state in self.state.values():
            for name in self.lost:
                state[name] = 0 if name == "step" else torch.zeros_like(state[name])


@wrong(ADAMW, "the step count is lost")
class LosesCount(LosesState):
    lost = ("step",)


@wrong(ADAMW, "m is lost")
class LosesM(LosesState):
    lost = ("m",)


@wrong(ADAMW, "v is lost")
class LosesV(LosesState):
    lost = ("v",)


@wrong(ADAMW, "m, v and the step count are lost")
class LosesAll(Parts):
    def load_state_dict(self, saved):
        for group, settings in zip(self.param_groups, saved["groups"], strict=True):
            group.update(settings)
        self.state = {}


@wrong(ADAMW, "the learning rate is lost")
class LosesRate(Parts):
    def load_state_dict(self, saved):
        rates = [group["lr"] for group in self.param_groups]
        super().load_state_dict(saved)
        for group, lr in zip(self.param_groups, rates):
            group["lr"] = lr


@wrong(ADAMW, "(betas, weight_decay) are lost")
class LosesSettings(Parts):
    def load_state_dict(self, saved):
        kept = [dict(group) for group in self.param_groups]
        super().load_state_dict(saved)
        for group, old in zip(self.param_groups, kept):
            group["betas"] = old["betas"]


@wrong(ADAMW, "goes another way")
class StatesMixedUp(Parts):
    def load_state_dict(self, saved):
        super().load_state_dict(saved)
        same = [p for p in self.state if p.shape == (3, 4)]
        if len(same) == 2:
            self.state[same[0]], self.state[same[1]] = self.state[same[1]], self.state[same[0]]


@wrong(ADAMW, "does not replace the state that is there")
class OldStateStays(Parts):
    def load_state_dict(self, saved):
        before = dict(self.state)
        super().load_state_dict(saved)
        self.state = {**before, **self.state}


class Lenient(Parts):
    def load_state_dict(self, saved):
        params = [p for group in self.param_groups for p in group["params"]]
        for group, settings in zip(self.param_groups, saved["groups"]):
            group.update(settings)
        self.state = {p: dict(state) for p, state in zip(params, saved["state"]) if state is not None}


wrong(ADAMW, "without a word")(Lenient)


@wrong(ADAMW, "no leaf")
class NewGraph(Parts):
    @torch.no_grad()
    def change(self, p, lr, u):
        p.sub_(lr * u)
        if p.dtype == torch.float64:
            p.requires_grad_(False)


@wrong(ADAMW, "only as exact as float32")
class SinglePrecisionState(Parts):
    def state_of(self, p):
        return self.state.setdefault(p, {"step": 0, "m": torch.zeros(p.shape), "v": torch.zeros(p.shape)})


@wrong(ADAMW, "made on the CPU")
class StateOnCPU(Parts):
    def state_of(self, p):
        return self.state.setdefault(p, {"step": 0, "m": torch.zeros(p.shape, dtype=p.dtype), "v": torch.zeros(p.shape, dtype=p.dtype)})


@wrong(ADAMW, "left as they were: only that one")
class EndsAtNone(Parts):
    def step(self):
        kept = self.param_groups
        self.param_groups = []
        for group in kept:
            none = [p.grad is None for p in group["params"]]
            self.param_groups.append({**group, "params": group["params"][: none.index(True)] if any(none) else group["params"]})
        super().step()
        self.param_groups = kept


@wrong(ADAMW, "a step moves 1 of 4")
class FirstParameterOnly(Parts):
    def skip(self, p):
        return p.grad is None or p is not self.param_groups[0]["params"][0]


@wrong(ADAMW, "a step moves 2 of 4")
class FirstGroupOnly(Parts):
    def skip(self, p):
        return p.grad is None or all(p is not q for q in self.param_groups[0]["params"])


@wrong(ADAMW, "it clears it")
class ClearsAfterStep(Parts):
    def step(self):
        super().step()
        self.zero_grad()


@wrong(ADAMW, "changes the settings of a group")
class HasItsOwnSchedule(Parts):
    def step(self):
        super().step()
        for group in self.param_groups:
            group["lr"] *= 0.999


@wrong(ADAMW, "start with the first gradient")
class StartsWithGradient(Parts):
    def state_of(self, p):
        return self.state.setdefault(p, {"step": 0, "m": p.grad.clone(), "v": p.grad.square()})


@wrong(ADAMW, "whatever betas says")
class BetasWrittenDown(Parts):
    def settings(self, group):
        return group["lr"], (0.9, 0.999), group["eps"], group["weight_decay"]


@wrong(ADAMW, "times the parameter is meant")
class DecayWithoutParameter(Parts):
    def decay(self, p, lr, weight_decay):
        p.sub_(lr * weight_decay)


@wrong(ADAMW, "it is added")
class EpsSubtracted(Parts):
    def direction(self, m, v, g, eps):
        return m / (v.sqrt() - eps)


@wrong(ADAMW, "taken for a list of groups")
class ListsAreGroups(Parts):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        groups = [{**group} for group in params] if isinstance(params, list) else params
        super().__init__(groups, lr, betas, eps, weight_decay)


@wrong(ADAMW, "not taken as groups")
class KnowsNoGroups(Parts):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        params = list(params)
        matrices, others = [p for p in params if p.dim() >= 2], [p for p in params if p.dim() < 2]
        super().__init__([{"params": matrices}, {"params": others, "weight_decay": 0.0}], lr, betas, eps, weight_decay)


class KeyedState(Parts):
    def key(self, p):
        return id(p)

    def state_dict(self):
        return {**super().state_dict(), "state": {self.key(p): state for p, state in self.state.items()}}

    def load_state_dict(self, saved):
        params = [p for group in self.param_groups for p in group["params"]]
        super().load_state_dict({**saved, "state": [saved["state"][self.key(p)] for p in params]})


wrong(ADAMW, "looks for the key")(KeyedState)


class LeavesGapsOut(Parts):
    def state_dict(self):
        state = super().state_dict()
        return {**state, "state": [s for s in state["state"] if s is not None]}


wrong(ADAMW, "must not be left out")(LeavesGapsOut)


@wrong(ADAMW, "come back to a parameter of another shape")
class LeavesGapsOutSilently(LeavesGapsOut):
    load_state_dict = Lenient.load_state_dict


@wrong(ADAMW, "holds other parameters than before")
class SavesParameters(Parts):
    def state_dict(self):
        return {**super().state_dict(), "groups": self.param_groups}

    def load_state_dict(self, saved):
        super().load_state_dict(saved)
        self.param_groups = saved["groups"]


@wrong(ADAMW, "do not get their own settings back")
class RateOfFirstGroup(Parts):
    def load_state_dict(self, saved):
        super().load_state_dict(saved)
        for group in self.param_groups:
            group["lr"] = saved["groups"][0]["lr"]


@right(ADAMW)
class DecayAfterwards(Parts):
    def decay(self, p, lr, weight_decay):
        self.left = 1 - lr * weight_decay

    def change(self, p, lr, u):
        p.sub_(lr * u).mul_(self.left)


@right(ADAMW)
class NewTensorsByData(Parts):
    def moments(self, m, v, g, beta1, beta2):
        m.copy_(torch.lerp(g, m, beta1))
        v.copy_(torch.lerp(g.square(), v, beta2))

    def change(self, p, lr, u):
        p.data = p.data - lr * u

    def zero_grad(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad = torch.zeros_like(p)


@right(ADAMW)
class ByTorch(torch.optim.AdamW):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        params = list(params)
        if not isinstance(params[0], dict):
            params = [{"params": [p for p in params if p.dim() >= 2]}, {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]
            params = [group for group in params if group["params"]]
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


@right(ADAMW)
class ListsBesideEachOther:
    """No dict of states: lists in the order of the parameters, and a group for each parameter."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        self.param_groups = []
        settings = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        for entry in params:
            if isinstance(entry, dict):
                self.param_groups.append(settings | entry | {"params": list(entry["params"])})
            else:
                own = {} if entry.dim() > 1 else {"weight_decay": 0}
                self.param_groups.append(settings | own | {"params": [entry]})
        self.n = sum(len(g["params"]) for g in self.param_groups)
        self.m, self.v, self.t = [None] * self.n, [None] * self.n, [0] * self.n

    def step(self):
        i = -1
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                i += 1
                if p.grad is not None:
                    with torch.no_grad():
                        g = p.grad.detach()
                        self.t[i] += 1
                        self.m[i] = (1 - b1) * g + (b1 * self.m[i] if self.m[i] is not None else 0)
                        self.v[i] = (1 - b2) * g**2 + (b2 * self.v[i] if self.v[i] is not None else 0)
                        m_hat, v_hat = self.m[i] / (1 - b1 ** self.t[i]), self.v[i] / (1 - b2 ** self.t[i])
                        p -= group["lr"] * (m_hat / (torch.sqrt(v_hat) + group["eps"]) + group["weight_decay"] * p)

    def zero_grad(self):
        for p in sum((g["params"] for g in self.param_groups), []):
            if p.grad is not None:
                p.grad.zero_()

    def state_dict(self):
        return {"m": list(self.m), "v": list(self.v), "t": list(self.t), "sizes": [len(g["params"]) for g in self.param_groups], "groups": [{k: g[k] for k in ("lr", "betas", "eps", "weight_decay")} for g in self.param_groups]}

    def load_state_dict(self, saved):
        if saved["sizes"] != [len(g["params"]) for g in self.param_groups]:
            raise ValueError("another number of parameters")
        self.m, self.v, self.t = list(saved["m"]), list(saved["v"]), list(saved["t"])
        for group, settings in zip(self.param_groups, saved["groups"]):
            group |= settings


@right(ADAMW)
class StateOnTheParameter(Parts):
    def state_of(self, p):
        if id(p) not in self.__dict__.setdefault("slots", {}):
            self.slots[id(p)] = {"step": 0, "m": p.detach() * 0, "v": p.detach() * 0}
        return self.slots[id(p)]

    def state_dict(self):
        return {"settings": [(g["lr"], g["betas"], g["eps"], g["weight_decay"]) for g in self.param_groups], "states": [[self.__dict__.get("slots", {}).get(id(p)) for p in g["params"]] for g in self.param_groups]}

    def load_state_dict(self, saved):
        self.slots = {}
        for group, settings, states in zip(self.param_groups, saved["settings"], saved["states"], strict=True):
            group.update(zip(("lr", "betas", "eps", "weight_decay"), settings))
            for p, state in zip(group["params"], states, strict=True):
                if state:
                    self.slots[id(p)] = state


@right(ADAMW)
class ManyAtOnce(Parts):
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            states, grads = [self.state_of(p) for p in params], [p.grad for p in params]
            m, v = [s["m"] for s in states], [s["v"] for s in states]
            torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_lerp_(m, grads, 1 - beta1)
            torch._foreach_mul_(v, beta2)
            torch._foreach_addcmul_(v, grads, grads, 1 - beta2)
            for p, state in zip(params, states):
                t = self.count(state)
                p.addcdiv_(state["m"], state["v"].sqrt() / math.sqrt(1 - beta2**t) + group["eps"], value=-group["lr"] / (1 - beta1**t))


@right(ADAMW)
class CountsInTensors(Parts):
    def state_of(self, p):
        return self.state.setdefault(p, {"step": torch.tensor(0.0), "m": torch.zeros_like(p), "v": torch.zeros_like(p)})

    def corrected(self, m, v, beta1, beta2, t):
        return super().corrected(m, v, beta1, beta2, float(t))


# --- clip_grad_norm ------------------------------------------------------------------------------------


def grads_of(params):
    return [p.grad for p in params if p.grad is not None]


def scaled_by(params, norm, max_norm):
    params = list(params)
    for g in grads_of(params):
        g.mul_(min(1.0, max_norm / (float(norm) + 1e-6)))


def true_norm(params):
    return torch.cat([g.flatten() for g in grads_of(params)]).norm()


@wrong(CLIP, "by its own norm")
def clip_each_tensor(params, max_norm):
    params = list(params)
    norm = true_norm(params)
    for g in grads_of(params):
        g.mul_(min(1.0, max_norm / g.norm().item()))
    return norm


@wrong(CLIP, "entries are cut")
def clip_by_value(params, max_norm):
    params = list(params)
    norm = true_norm(params)
    for g in grads_of(params):
        g.clamp_(-max_norm, max_norm)
    return norm


@wrong(CLIP, "sum of absolute values")
def clip_by_l1(params, max_norm):
    params = list(params)
    norm = sum(g.abs().sum() for g in grads_of(params))
    scaled_by(params, norm, max_norm)
    return norm


@wrong(CLIP, "the largest entry")
def clip_by_max(params, max_norm):
    params = list(params)
    norm = torch.stack([g.abs().max() for g in grads_of(params)]).max()
    scaled_by(params, norm, max_norm)
    return norm


@wrong(CLIP, "square root is missing")
def clip_without_root(params, max_norm):
    params = list(params)
    norm = sum((g * g).sum() for g in grads_of(params))
    scaled_by(params, norm, max_norm)
    return norm


@wrong(CLIP, "norms of the tensors are added")
def clip_by_sum_of_norms(params, max_norm):
    params = list(params)
    norm = sum(g.norm() for g in grads_of(params))
    scaled_by(params, norm, max_norm)
    return norm


@wrong(CLIP, "squares are averaged")
def clip_by_root_mean_square(params, max_norm):
    params = list(params)
    norm = torch.cat([g.flatten() for g in grads_of(params)]).square().mean().sqrt()
    scaled_by(params, norm, max_norm)
    return norm


@wrong(CLIP, "that of the parameters")
def clip_by_weights(params, max_norm):
    params = list(params)
    norm = torch.cat([p.detach().flatten() for p in params]).norm()
    scaled_by(params, norm, max_norm)
    return norm


@wrong(CLIP, "parameters are changed")
def clips_weights(params, max_norm):
    params = list(params)
    norm = true_norm(params)
    for p in params:
        p.data.mul_(min(1.0, max_norm / norm.item()))
    return norm


@wrong(CLIP, "gradients are not changed")
def clips_copies(params, max_norm):
    params = list(params)
    norm = true_norm(params)
    for g in grads_of(params):
        g = g * min(1.0, max_norm / norm.item())
    return norm


@wrong(CLIP, "upside down")
def scale_upside_down(params, max_norm):
    params = list(params)
    norm = true_norm(params)
    if norm > max_norm:
        for g in grads_of(params):
            g.mul_(norm / max_norm)
    return norm


@wrong(CLIP, "scaled up")
def clip_always(params, max_norm):
    params = list(params)
    norm = true_norm(params)
    for g in grads_of(params):
        g.mul_(max_norm / (norm + 1e-6))
    return norm


@wrong(CLIP, "when it clips")
def clips_a_bit_late(params, max_norm):
    params = list(params)
    norm = true_norm(params)
    if norm > 1.2 * max_norm:
        scaled_by(params, norm, max_norm)
    return norm


@wrong(CLIP, "set to zero")
def drops_large_gradients(params, max_norm):
    params = list(params)
    norm = true_norm(params)
    if norm > max_norm:
        for g in grads_of(params):
            g.zero_()
    return norm


@wrong(CLIP, "norm 1 whatever max_norm")
def norm_of_one(params, max_norm):
    params = list(params)
    norm = true_norm(params)
    if norm > max_norm:
        scaled_by(params, norm, 1.0)
    return norm


@wrong(CLIP, "norm after clipping is returned")
def norm_afterwards(params, max_norm):
    params = list(params)
    scaled_by(params, true_norm(params), max_norm)
    return true_norm(params)


@wrong(CLIP, "the scale is returned")
def returns_scale(params, max_norm):
    params = list(params)
    norm = true_norm(params)
    scaled_by(params, norm, max_norm)
    return max_norm / (norm + 1e-6)


@wrong(CLIP, "is a float")
def returns_number(params, max_norm):
    return good.clip_grad_norm(list(params), max_norm).item()


@wrong(CLIP, "is None")
def clip_returns_nothing(params, max_norm):
    good.clip_grad_norm(list(params), max_norm)


@wrong(CLIP, "p.grad is None")
def clip_needs_gradients(params, max_norm):
    params = list(params)
    norm = torch.stack([p.grad.norm() for p in params]).norm()
    scaled_by(params, norm, max_norm)
    return norm


@wrong(CLIP, "None stays None")
def clip_fills_none(params, max_norm):
    params = list(params)
    for p in params:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    return good.clip_grad_norm(params, max_norm)


@wrong(CLIP, "gone through once")
def clip_two_loops(params, max_norm):
    norm = torch.stack([p.grad.norm() for p in params if p.grad is not None]).norm()
    scale = max_norm / (norm + 1e-6)
    for p in params:
        if p.grad is not None and scale < 1:
            p.grad *= scale
    return norm


@wrong(CLIP, "become nan")
def clip_nan_at_zero(params, max_norm):
    params = list(params)
    norm = true_norm(params)
    scale = max_norm / norm
    for g in grads_of(params):
        g.mul_(scale if scale < 1 or norm == 0 else 1.0)
    return norm


@wrong(CLIP, "divide by zero")
def clip_divides_at_zero(params, max_norm):
    params = list(params)
    norm = true_norm(params)
    scale = max_norm / norm.item()
    for g in grads_of(params):
        g.mul_(min(1.0, scale))
    return norm


@wrong(CLIP, "dtype torch.float32")
def clip_in_float32(params, max_norm):
    params = list(params)
    norm = torch.tensor(0.0)
    for g in grads_of(params):
        norm += (g * g).sum()
    norm = norm.sqrt()
    scaled_by(params, norm, max_norm)
    return norm


@wrong(CLIP, "from above")
def clip_from_above(params, max_norm):
    params = list(params)
    norm = true_norm(params)
    for g in grads_of(params):
        g.clamp_(max=max_norm)
    return norm


@wrong(CLIP, "biases are left out")
def clips_matrices_only(params, max_norm):
    return good.clip_grad_norm([p for p in params if p.dim() >= 2], max_norm)


@wrong(CLIP, "come after a parameter without one are left out")
def clip_ends_at_none(params, max_norm):
    met = []
    for p in params:
        if p.grad is None:
            break
        met.append(p)
    return good.clip_grad_norm(met, max_norm) if met else torch.zeros(())


@wrong(CLIP, "the norm up to it")
def clip_in_one_loop(params, max_norm):
    total = 0.0
    for g in grads_of(params):
        total = total + (g * g).sum()
        norm = total.sqrt()
        g.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
    return norm


@wrong(CLIP, "every row")
def clip_each_row(params, max_norm):
    params = list(params)
    norm = true_norm(params)
    for g in grads_of(params):
        g.mul_((max_norm / (g.norm(dim=-1, keepdim=True) + 1e-6)).clamp(max=1))
    return norm


@wrong(CLIP, "with their signs")
def clip_by_signed_sum(params, max_norm):
    params = list(params)
    norm = sum(g.sum() for g in grads_of(params)).abs()
    scaled_by(params, norm, max_norm)
    return norm


@wrong(CLIP, "inside the root")
def clip_epsilon_in_the_root(params, max_norm):
    params = list(params)
    norm = (sum((g * g).sum() for g in grads_of(params)) + 1e-6).sqrt()
    if norm > max_norm:
        scaled_by(params, norm, max_norm)
    return norm


@wrong(CLIP, "added to the norm that is returned")
def clip_epsilon_returned(params, max_norm):
    params = list(params)
    norm = true_norm(params) + 1e-6
    if norm > max_norm:
        scaled_by(params, norm, max_norm)
    return norm


@wrong(CLIP, "inf / inf")
def clip_by_the_larger(params, max_norm):
    params = list(params)
    norm = true_norm(params)
    for g in grads_of(params):
        g.mul_(max_norm / max(norm.item(), max_norm))
    return norm


@right(CLIP)
def clip_by_linalg(params, max_norm):
    params = [p for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(p.grad) for p in params]))
    scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for p in params:
        p.grad.mul_(scale)
    return norm


@right(CLIP)
def clip_without_epsilon(params, max_norm):
    params = [p for p in params if p.grad is not None]
    norm = sum(p.grad.square().sum() for p in params) ** 0.5
    if norm > max_norm:
        for p in params:
            p.grad = p.grad * (max_norm / norm)
    return norm


@right(CLIP)
def clip_by_stock(params, max_norm):
    return torch.nn.utils.clip_grad_norm_(params, max_norm)


@right(CLIP)
def clip_one_vector(params, max_norm):
    params = [p for p in params if p.grad is not None]
    vector = torch.cat([p.grad.reshape(-1) for p in params])
    norm = (vector @ vector).sqrt()
    if norm <= max_norm:
        return norm
    for p in params:
        p.grad.copy_(p.grad / norm * max_norm)
    return norm


# --- accumulate ----------------------------------------------------------------------------------------


@wrong(ACCUMULATE, "summed, not averaged")
def sums_gradients(model, batches):
    total = 0.0
    for x, y in batches:
        _, loss = model(x, y)
        loss.backward()
        total += loss.item()
    return total / len(batches)


@wrong(ACCUMULATE, "zero_grad stands inside")
def clears_inside(model, batches):
    total = 0.0
    for x, y in batches:
        model.zero_grad()
        loss = model(x, y)[1] / len(batches)
        loss.backward()
        total += loss.item()
    return total


@wrong(ACCUMULATE, "only the first micro-batch")
def returns_inside(model, batches):
    total = 0.0
    for x, y in batches:
        loss = model(x, y)[1] / len(batches)
        loss.backward()
        total += loss.item()
        return total


@wrong(ACCUMULATE, "last micro-batch is dropped")
def drops_last(model, batches):
    total = 0.0
    for x, y in batches[:-1]:
        loss = model(x, y)[1] / len(batches)
        loss.backward()
        total += loss.item()
    return total


@wrong(ACCUMULATE, "divided twice")
def divides_twice(model, batches):
    total = good.accumulate(model, batches)
    for p in model.parameters():
        p.grad /= len(batches)
    return total


@wrong(ACCUMULATE, "divided again at each micro-batch")
def divides_gradients_inside(model, batches):
    total = 0.0
    for x, y in batches:
        loss = model(x, y)[1]
        loss.backward()
        for p in model.parameters():
            p.grad /= len(batches)
        total += loss.item() / len(batches)
    return total


@wrong(ACCUMULATE, "size of a micro-batch")
def divides_by_size(model, batches):
    total = 0.0
    for x, y in batches:
        loss = model(x, y)[1]
        (loss / len(x)).backward()
        total += loss.item() / len(batches)
    return total


@wrong(ACCUMULATE, "has no gradient afterwards")
def no_backward(model, batches):
    return sum(model(x, y)[1].item() for x, y in batches) / len(batches)


@wrong(ACCUMULATE, "has no gradient afterwards")
def clears_at_the_end(model, batches):
    total = good.accumulate(model, batches)
    model.zero_grad()
    return total


@wrong(ACCUMULATE, "parameters are changed")
def steps_inside(model, batches):
    total = 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        loss = model(x, y)[1] / len(batches)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


@wrong(ACCUMULATE, "loss of the last micro-batch is returned; the mean")
def last_loss(model, batches):
    good.accumulate(model, batches)
    with torch.no_grad():
        return model(*batches[-1])[1].item()


@wrong(ACCUMULATE, "divided by their number; the mean")
def last_loss_divided(model, batches):
    for x, y in batches:
        loss = model(x, y)[1] / len(batches)
        loss.backward()
    return loss.item()


@wrong(ACCUMULATE, "sum of the losses")
def sum_of_losses(model, batches):
    total = 0.0
    for x, y in batches:
        loss = model(x, y)[1]
        (loss / len(batches)).backward()
        total += loss.item()
    return total


@wrong(ACCUMULATE, "hangs on its graph")
def keeps_the_graph(model, batches):
    total = 0.0
    for x, y in batches:
        loss = model(x, y)[1] / len(batches)
        loss.backward()
        total = total + loss
    return total


@wrong(ACCUMULATE, "gives None")
def accumulate_returns_nothing(model, batches):
    good.accumulate(model, batches)


@wrong(ACCUMULATE, "gives a list")
def list_of_losses(model, batches):
    losses = []
    for x, y in batches:
        loss = model(x, y)[1] / len(batches)
        loss.backward()
        losses.append(loss.item())
    return losses


@wrong(ACCUMULATE, "windows at once")
def joins_batches(model, batches):
    x, y = (torch.cat(parts) for parts in zip(*batches))
    loss = model(x, y)[1]
    loss.backward()
    return loss.item()


@wrong(ACCUMULATE, "times for 4 micro-batches")
def runs_twice(model, batches):
    total = sum(model(x, y)[1].item() for x, y in batches) / len(batches)
    good.accumulate(model, batches)
    return total


@wrong(ACCUMULATE, "backward comes only after")
def one_backward(model, batches):
    loss = sum(model(x, y)[1] for x, y in batches) / len(batches)
    loss.backward()
    return loss.item()


@wrong(ACCUMULATE, "zero_grad is the caller's")
def clears_first(model, batches):
    model.zero_grad()
    return good.accumulate(model, batches)


@wrong(ACCUMULATE, "mode (train or eval)")
def forces_train(model, batches):
    model.train()
    return good.accumulate(model, batches)


@wrong(ACCUMULATE, "its own place in the list")
def divides_by_place(model, batches):
    total = 0.0
    for i, (x, y) in enumerate(batches, start=1):
        loss = model(x, y)[1] / i
        loss.backward()
        total += loss.item()
    return total


@wrong(ACCUMULATE, "clipping comes after it")
def clips_inside(model, batches):
    total = 0.0
    for x, y in batches:
        loss = model(x, y)[1] / len(batches)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        total += loss.item()
    return total


@wrong(ACCUMULATE, "wrong order or shape")
def exchanges_x_and_y(model, batches):
    return good.accumulate(model, [(y, x) for x, y in batches])


@wrong(ACCUMULATE, "computed anew from the logits")
def own_loss(model, batches):
    total = 0.0
    for x, y in batches:
        logits, _ = model(x, y)
        loss = nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten()) / len(batches)
        loss.backward()
        total += loss.item()
    return total


@wrong(ACCUMULATE, "or backward after it")
def backward_after_the_loop(model, batches):
    total = 0.0
    for x, y in batches:
        loss = model(x, y)[1] / len(batches)
        total += loss.item()
    loss.backward()
    return total


@wrong(ACCUMULATE, "divided by 4, however many")
def divides_by_four(model, batches):
    total = 0.0
    for x, y in batches:
        loss = model(x, y)[1] / 4
        loss.backward()
        total += loss.item()
    return total


@wrong(ACCUMULATE, "list of batches is changed")
def empties_the_list(model, batches):
    n, total = len(batches), 0.0
    while batches:
        loss = model(*batches.pop())[1] / n
        loss.backward()
        total += loss.item()
    return total


@wrong(ACCUMULATE, "a seed is set")
def seeds_first(model, batches):
    torch.manual_seed(0)
    return good.accumulate(model, batches)


@wrong(ACCUMULATE, "divided with the new ones")
def divides_gradients_afterwards(model, batches):
    total = 0.0
    for x, y in batches:
        loss = model(x, y)[1]
        loss.backward()
        total += loss.item() / len(batches)
    for p in model.parameters():
        p.grad /= len(batches)
    return total


@right(ACCUMULATE)
def divides_in_backward(model, batches):
    losses = []
    for x, y in batches:
        loss = model(x, y)[1]
        loss.backward(torch.full_like(loss, 1 / len(batches)))
        losses.append(float(loss))
    return sum(losses) / len(losses)


@right(ACCUMULATE)
def accumulates_by_hand(model, batches):
    n, total = len(batches), 0.0
    params = [p for p in model.parameters()]
    for x, y in batches:
        loss = model(x, y)[-1]
        for p, g in zip(params, torch.autograd.grad(loss, params)):
            p.grad = g / n if p.grad is None else p.grad + g / n
        total += loss.detach() / n
    return total.item()


@right(ACCUMULATE)
def detached_tensor(model, batches):
    batches = list(batches)
    total = torch.zeros(())
    for x, y in batches:
        _, loss = model(x, y)
        (loss / len(batches)).backward()
        total += loss.detach()
    return total / len(batches)


@right(ACCUMULATE)
def index_loop(model, batches):
    mean = 0
    for i in range(len(batches)):
        loss = model(*batches[i])[1]
        (loss * (1 / len(batches))).backward()
        mean += (loss.item() - mean) / (i + 1)
    return mean


# --- save_checkpoint -----------------------------------------------------------------------------------


def contents(model, optimizer, it, **other):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "it": it, "rng": torch.get_rng_state(), **other}


def write_safely(state, path):
    torch.save(state, f"{path}.new")
    os.replace(f"{path}.new", path)


@wrong(SAVE, 'has no "optimizer"')
def saves_no_optimizer(path, model, optimizer, it):
    write_safely({"model": model.state_dict(), "it": it, "rng": torch.get_rng_state()}, path)


@wrong(SAVE, 'has no "rng"')
def saves_no_rng(path, model, optimizer, it):
    write_safely({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "it": it}, path)


@wrong(SAVE, 'has no "it"')
def saves_no_iteration(path, model, optimizer, it):
    write_safely({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}, path)


@wrong(SAVE, 'has no "model"')
def saves_weights_only(path, model, optimizer, it):
    write_safely(dict(model.state_dict()), path)


@wrong(SAVE, "holds whole objects")
def saves_objects(path, model, optimizer, it):
    write_safely({"model": model, "optimizer": optimizer, "it": it, "rng": torch.get_rng_state()}, path)


@wrong(SAVE, "is 8, expected 7. The number that is given")
def saves_next_iteration(path, model, optimizer, it):
    write_safely(contents(model, optimizer, it + 1), path)


@wrong(SAVE, '"it" is a Tensor')
def saves_tensor(path, model, optimizer, it):
    write_safely({**contents(model, optimizer, it), "it": torch.tensor(it)}, path)


@wrong(SAVE, "no buffers")
def saves_parameters(path, model, optimizer, it):
    write_safely({**contents(model, optimizer, it), "model": {n: p.data for n, p in model.named_parameters()}}, path)


@wrong(SAVE, '"optimizer" should hold')
def saves_groups_only(path, model, optimizer, it):
    write_safely({**contents(model, optimizer, it), "optimizer": optimizer.state_dict().get("param_groups")}, path)


@wrong(SAVE, "a number, a seed")
def saves_seed(path, model, optimizer, it):
    write_safely({**contents(model, optimizer, it), "rng": torch.initial_seed()}, path)


@wrong(SAVE, "as it was when save_checkpoint was called")
def saves_rng_late(path, model, optimizer, it):
    torch.rand(1)
    write_safely(contents(model, optimizer, it), path)


@wrong(SAVE, "no file at path")
def leaves_it_unfinished(path, model, optimizer, it):
    torch.save(contents(model, optimizer, it), f"{path}.new")


@wrong(SAVE, "holds a list")
def saves_a_list(path, model, optimizer, it):
    write_safely(list(contents(model, optimizer, it).values()), path)


@wrong(SAVE, "draws random numbers or sets a seed")
def seeds_after_saving(path, model, optimizer, it):
    write_safely(contents(model, optimizer, it), path)
    torch.manual_seed(it)


@wrong(SAVE, "mode (train or eval)")
def saves_in_eval(path, model, optimizer, it):
    model.eval()
    write_safely(contents(model, optimizer, it), path)


@wrong(SAVE, "clears the gradients")
def clears_before_saving(path, model, optimizer, it):
    model.zero_grad()
    write_safely(contents(model, optimizer, it), path)


@wrong(SAVE, "changes the model or the optimizer")
def halves_before_saving(path, model, optimizer, it):
    write_safely(contents(model, optimizer, it), path)
    model.half()


@wrong(SAVE, "destroys the file that was there")
def saves_in_place(path, model, optimizer, it):
    torch.save(contents(model, optimizer, it), path)


@wrong(SAVE, "leaves no file")
def removes_first(path, model, optimizer, it):
    Path(path).unlink(missing_ok=True)
    write_safely(contents(model, optimizer, it), path)


@wrong(SAVE, "leaves no file")
def moves_old_away(path, model, optimizer, it):
    if os.path.exists(path):
        os.replace(path, f"{path}.bak")
    torch.save(contents(model, optimizer, it), f"{path}.new")
    os.replace(f"{path}.new", path)


@wrong(SAVE, "one by one")
def copies_over(path, model, optimizer, it):
    torch.save(contents(model, optimizer, it), f"{path}.new")
    shutil.copy(f"{path}.new", path)


@wrong(SAVE, "one by one")
def buffer_in_place(path, model, optimizer, it):
    buffer = io.BytesIO()
    torch.save(contents(model, optimizer, it), buffer)
    Path(path).write_bytes(buffer.getvalue())


@wrong(SAVE, "does not replace the first")
def never_overwrites(path, model, optimizer, it):
    if not os.path.exists(path):
        write_safely(contents(model, optimizer, it), path)


@wrong(SAVE, "path of type Path")
def adds_a_suffix(path, model, optimizer, it):
    torch.save(contents(model, optimizer, it), path + ".new")
    os.replace(path + ".new", path)


@wrong(SAVE, "path of type str")
def wants_a_path(path, model, optimizer, it):
    if isinstance(path, str) and path.endswith(".pt") and it:
        path = Path(path)
    torch.save(contents(model, optimizer, it), path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


@wrong(SAVE, "0 counts as false")
def zero_is_false(path, model, optimizer, it):
    write_safely(contents(model, optimizer, it or 1), path)


@wrong(SAVE, "unfinished file is in another folder")
def writes_elsewhere(path, model, optimizer, it):
    with tempfile.TemporaryDirectory() as folder:
        torch.save(contents(model, optimizer, it), os.path.join(folder, "run.pt"))
        os.replace(os.path.join(folder, "run.pt"), path)


@wrong(SAVE, "unfinished file is in another folder")
def moves_from_elsewhere(path, model, optimizer, it):
    with tempfile.TemporaryDirectory() as folder:
        torch.save(contents(model, optimizer, it), os.path.join(folder, "run.pt"))
        shutil.move(os.path.join(folder, "run.pt"), path)


@wrong(SAVE, "removed or moved away")
def removes_between(path, model, optimizer, it):
    torch.save(contents(model, optimizer, it), f"{path}.new")
    Path(path).unlink(missing_ok=True)
    os.rename(f"{path}.new", path)


@wrong(SAVE, "removed or moved away")
def backs_up_between(path, model, optimizer, it):
    torch.save(contents(model, optimizer, it), f"{path}.new")
    if os.path.exists(path):
        os.rename(path, f"{path}.bak")
    os.rename(f"{path}.new", path)


@wrong(SAVE, "ends without an error")
def swallows_errors(path, model, optimizer, it):
    try:
        write_safely(contents(model, optimizer, it), path)
    except Exception as error:
        print("not saved:", error)


@wrong(SAVE, '"model" should hold')
def saves_in_double(path, model, optimizer, it):
    state = contents(model, optimizer, it)
    write_safely({**state, "model": {name: value.double() for name, value in state["model"].items()}}, path)


@right(SAVE)
def saves_in_a_folder_beside(path, model, optimizer, it):
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        unfinished = os.path.join(folder, "run.pt")
        torch.save(contents(model, optimizer, it), unfinished)
        shutil.move(unfinished, path)


@right(SAVE)
def saves_with_a_copy_of_the_old(path, model, optimizer, it):
    if os.path.exists(path):
        shutil.copy(path, f"{path}.bak")
    write_safely(contents(model, optimizer, it), path)


@right(SAVE)
def saves_more(path, model, optimizer, it):
    write_safely(contents(model, optimizer, it, version=1, note="a longer run", python=list(random.getstate()[1])), path)


@right(SAVE)
def saves_by_pathlib(path, model, optimizer, it):
    path = Path(path)
    unfinished = path.with_name(path.name + "~")
    with open(unfinished, "wb") as file:
        torch.save(contents(model, optimizer, it), file)
    unfinished.replace(path)


@right(SAVE)
def saves_by_buffer(path, model, optimizer, it):
    buffer = io.BytesIO()
    torch.save(contents(model, optimizer, it), buffer)
    with tempfile.NamedTemporaryFile(dir=Path(path).parent, delete=False) as file:
        file.write(buffer.getvalue())
    os.rename(file.name, path)


@right(SAVE)
def saves_and_cleans_up(path, model, optimizer, it):
    unfinished = os.fspath(path) + ".part"
    try:
        torch.save(contents(model, optimizer, it), unfinished)
        os.replace(unfinished, path)
    except BaseException:
        if os.path.exists(unfinished):
            os.remove(unfinished)
        raise


# --- load_checkpoint -----------------------------------------------------------------------------------


@wrong(LOAD, "weights of the model are not")
def loads_no_model(path, model, optimizer):
    state = torch.load(path)
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    return state["it"]


@wrong(LOAD, "optimizer is as new")
def loads_no_optimizer(path, model, optimizer):
    state = torch.load(path)
    model.load_state_dict(state["model"])
    torch.set_rng_state(state["rng"])
    return state["it"]


@wrong(LOAD, "as if nothing had been loaded")
def loads_no_rng(path, model, optimizer):
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["it"]


@wrong(LOAD, "gives None")
def loads_without_return(path, model, optimizer):
    good.load_checkpoint(path, model, optimizer)


@wrong(LOAD, "gives 8, expected 7")
def loads_next_iteration(path, model, optimizer):
    return good.load_checkpoint(path, model, optimizer) + 1


@wrong(LOAD, "gives a dict")
def loads_everything(path, model, optimizer):
    good.load_checkpoint(path, model, optimizer)
    return torch.load(path)


@wrong(LOAD, "state of the random numbers is not that")
def seeds_after_loading(path, model, optimizer):
    it = good.load_checkpoint(path, model, optimizer)
    torch.manual_seed(it)
    return it


@wrong(LOAD, "state of the random numbers is not that")
def draws_after_loading(path, model, optimizer):
    it = good.load_checkpoint(path, model, optimizer)
    torch.rand(1)
    return it


@wrong(LOAD, "new parameters")
def replaces_parameters(path, model, optimizer):
    it = good.load_checkpoint(path, model, optimizer)
    for module in (model.a, model.b):
        module.weight = nn.Parameter(module.weight.detach().clone())
    return it


@wrong(LOAD, "state of the optimizer is not that")
def loads_moments_only(path, model, optimizer):
    rates = [group["lr"] for group in optimizer.param_groups]
    it = good.load_checkpoint(path, model, optimizer)
    for group, lr in zip(optimizer.param_groups, rates):
        group["lr"] = lr
    return it


@wrong(LOAD, "optimizer is as new")
def loads_into_its_own(path, model, optimizer):
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    return state["it"]


@wrong(LOAD, "without a word")
def hides_errors(path, model, optimizer):
    try:
        return good.load_checkpoint(path, model, optimizer)
    except RuntimeError:
        return 0


@wrong(LOAD, "raises KeyError")
def other_keys(path, model, optimizer):
    state = torch.load(path)
    model.load_state_dict(state["model_state_dict"])
    return state["iteration"]


@wrong(LOAD, "0 counts as false")
def zero_counts_as_missing(path, model, optimizer):
    return good.load_checkpoint(path, model, optimizer) or 1


@wrong(LOAD, "does not go on as the run")
def keeps_a_young_optimizer(path, model, optimizer):
    busy = bool(optimizer.state)
    before = optimizer.state_dict()
    it = good.load_checkpoint(path, model, optimizer)
    if busy:
        optimizer.load_state_dict(before)
    return it


@wrong(LOAD, "mode (train or eval)")
def loads_into_eval(path, model, optimizer):
    model.eval()
    return good.load_checkpoint(path, model, optimizer)


@wrong(LOAD, "changes or removes the file")
def removes_the_file(path, model, optimizer):
    it = good.load_checkpoint(path, model, optimizer)
    os.remove(path)
    return it


@wrong(LOAD, "without a word")
def not_strict(path, model, optimizer):
    state = torch.load(path)
    model.load_state_dict(state["model"], strict=False)
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    return state["it"]


@wrong(LOAD, "code of its own")
def trusts_the_file(path, model, optimizer):
    state = torch.load(path, weights_only=False)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    return state["it"]


@wrong(LOAD, "its buffers do not")
def loads_parameters(path, model, optimizer):
    state = torch.load(path)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(state["model"][name])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    return state["it"]


@wrong(LOAD, "changes the dtype")
def loads_in_double(path, model, optimizer):
    it = good.load_checkpoint(path, model, optimizer)
    model.double()
    return it


@wrong(LOAD, "path of type")
def wants_a_str(path, model, optimizer):
    return good.load_checkpoint(path + "", model, optimizer)


@wrong(LOAD, "as if nothing had been loaded")
def restores_random_numbers(path, model, optimizer):
    with torch.random.fork_rng():
        return good.load_checkpoint(path, model, optimizer)


@wrong(LOAD, "code of its own")
def trusts_at_second_try(path, model, optimizer):
    try:
        state = torch.load(path, weights_only=True)
    except Exception:
        state = torch.load(path, weights_only=False)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    return state["it"]


@right(LOAD)
def loads_by_default(path, model, optimizer):
    state = torch.load(path)
    torch.random.set_rng_state(state["rng"])
    optimizer.load_state_dict(state["optimizer"])
    model.load_state_dict(state["model"])
    return state["it"]


@right(LOAD)
def loads_from_open_file(path, model, optimizer):
    with open(path, "rb") as file:
        state = torch.load(file, map_location="cpu", weights_only=True)
    model.load_state_dict(state.pop("model"))
    optimizer.load_state_dict(state.pop("optimizer"))
    torch.default_generator.set_state(state.pop("rng"))
    return int(state["it"])


@right(LOAD)
def loads_by_copy(path, model, optimizer):
    state = torch.load(Path(path), weights_only=True)
    with torch.no_grad():
        mine = model.state_dict()
        for name in mine:
            mine[name].copy_(state["model"][name])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    return state["it"]


@right(LOAD)
def loads_by_mapping(path, model, optimizer):
    state = torch.load(str(path), mmap=True)
    it = state["it"]
    for part, value in (("model", model), ("optimizer", optimizer)):
        value.load_state_dict(state[part])
    torch.set_rng_state(state["rng"].clone())
    return it
