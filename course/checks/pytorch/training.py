"""Checks of lesson 07: training. Oracles: torch.optim, torch.nn.utils, autograd on the full batch, the formulas in float64."""
import contextlib
import copy
import io
import math
import os
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from course.checks import checks
from course.checks.pytorch import close, equal, fail, fill, is_tensor, keeps_device, number, rand

SCHEDULE = "pytorch.training.cosine_lr"
ADAMW = "pytorch.training.AdamW"
CLIP = "pytorch.training.clip_grad_norm"
ACCUMULATE = "pytorch.training.accumulate"
SAVE = "pytorch.training.save_checkpoint"
LOAD = "pytorch.training.load_checkpoint"


# --- cosine_lr -----------------------------------------------------------------------------------------


def schedule(it, max_lr, min_lr, warmup, total):
    if it < warmup:
        return max_lr * (it + 1) / (warmup + 1)
    share = min((it - warmup) / (total - warmup), 1.0) if total > warmup else 1.0
    return min_lr + (max_lr - min_lr) * (1 + math.cos(math.pi * share)) / 2


def fall(curve, start=None, stop=None, floor=None):
    """A schedule with another curve after warmup: curve(share of the way), from 1 to 0."""

    def lr(it, max_lr, min_lr, warmup, total):
        if it < warmup:
            return schedule(it, max_lr, min_lr, warmup, total)
        first = warmup if start is None else start
        last = total if stop is None else stop(warmup, total)
        low = min_lr if floor is None else floor
        return low + (max_lr - low) * curve((it - first) / max(last - first, 1))

    return lr


def cosine(share):
    return (1 + math.cos(math.pi * min(share, 1))) / 2


def rise(formula):
    """A schedule with another warmup: formula(it, warmup) is its share of max_lr."""

    def lr(it, max_lr, min_lr, warmup, total):
        return max_lr * formula(it, warmup) if it < warmup else schedule(it, max_lr, min_lr, warmup, total)

    return lr


WARMUP_MISTAKES = [
    ("the warmup starts at 0: its first step would change nothing. The share is (it + 1) / (warmup + 1), not it / warmup.", rise(lambda it, w: it / w)),
    ("the warmup starts at 0: its first step would change nothing. It counts it, and it + 1 is meant.", rise(lambda it, w: it / (w + 1))),
    ("the warmup reaches max_lr one iteration early: divide by warmup + 1.", rise(lambda it, w: (it + 1) / w)),
    ("there is no warmup: the first steps get the full max_lr.", rise(lambda it, w: 1.0)),
    ("the warmup is a cosine; a straight line is meant.", rise(lambda it, w: 1 - cosine((it + 1) / (w + 1)))),
    ("the warmup is a quadratic curve; a straight line is meant.", rise(lambda it, w: ((it + 1) / (w + 1)) ** 2)),
    ("the warmup runs down and not up.", rise(lambda it, w: 1 - it / (w + 1))),
    ("the warmup climbs from min_lr; it starts near 0.", lambda it, a, b, w, n: b + (a - b) * (it + 1) / (w + 1) if it < w else schedule(it, a, b, w, n)),
    ("the warmup climbs to min_lr; it climbs to max_lr.", lambda it, a, b, w, n: b * (it + 1) / (w + 1) if it < w else schedule(it, a, b, w, n)),
    ("the warmup is cut off at min_lr; it starts near 0.", lambda it, a, b, w, n: max(b, schedule(it, a, b, w, n))),
    ("during warmup the rate is 0.", rise(lambda it, w: 0.0)),
    ("parentheses are missing in the warmup: (it + 1) / (warmup + 1), each sum in its own.", lambda it, a, b, w, n: a * it + 1 / (w + 1) if it < w else schedule(it, a, b, w, n)),
    ("parentheses are missing in the warmup: (it + 1) / (warmup + 1), each sum in its own.", lambda it, a, b, w, n: a * (it + 1) / w + 1 if it < w else schedule(it, a, b, w, n)),
    ("the warmup is a share of total; it takes warmup iterations.", lambda it, a, b, w, n: a * (it + 1) / n if it < w else schedule(it, a, b, w, n)),
    ("the warmup is one iteration too long: divide by warmup + 1.", rise(lambda it, w: (it + 1) / (w + 2))),
    ("warmup and total are exchanged: the arguments come as it, max_lr, min_lr, warmup, total.", lambda it, a, b, w, n: schedule(it, a, b, n, w)),
    ("the arguments are taken in another order: they come as it, max_lr, min_lr, warmup, total.", lambda it, a, b, w, n: schedule(it, w, n, a, b)),
    ("the number of warmup steps is counted off by one: at it = warmup - 1 the cosine is already at work.", lambda it, a, b, w, n: schedule(it, a, b, w, n) if it < w - 1 else fall(cosine)(max(it, w), a, b, w, n)),
]

COSINE_MISTAKES = [
    ("the schedule falls to 0 and not to min_lr.", fall(cosine, floor=0.0)),
    ("the cosine falls to 0 and is cut off at min_lr; it should arrive there at the end, in one smooth curve.", lambda it, a, b, w, n: max(b, fall(cosine, floor=0.0)(it, a, b, w, n)) if it >= w else schedule(it, a, b, w, n)),
    ("the cosine is not halved: 1 + cos runs from 2 to 0, so the rate starts at twice the way.", fall(lambda s: 2 * cosine(s))),
    ("the 1 + before cos is missing: cos alone runs from 1 to -1.", fall(lambda s: math.cos(math.pi * min(s, 1)))),
    ("the 1 + before cos is missing: cos alone runs from 1 to -1.", fall(lambda s: math.cos(math.pi * min(s, 1)) / 2)),
    ("the decay is a straight line; half a cosine is meant.", fall(lambda s: 1 - min(s, 1))),
    ("the decay is an exponential; half a cosine is meant.", lambda it, a, b, w, n: schedule(it, a, b, w, n) if it < w else a * (b / a) ** min((it - w) / (n - w), 1)),
    ("the curve goes up, from min_lr to max_lr: the sign before cos is wrong, or the two rates are exchanged.", fall(lambda s: 1 - cosine(s))),
    ("the cosine covers only a quarter wave: at the end of the way its angle must be pi.", fall(lambda s: (1 + math.cos(math.pi / 2 * min(s, 1))) / 2)),
    ("the cosine covers only a quarter wave: at the end of the way its angle must be pi, with 1 + cos halved.", fall(lambda s: math.cos(math.pi / 2 * min(s, 1)))),
    ("the cosine covers a whole wave: at the end of the way its angle must be pi.", fall(lambda s: (1 + math.cos(2 * math.pi * min(s, 1))) / 2)),
    ("pi is missing in the cosine: at the end of the way its angle is 1.", fall(lambda s: (1 + math.cos(min(s, 1))) / 2)),
    ("the angle of the cosine is in degrees; math.cos wants radians: pi times the share.", fall(lambda s: (1 + math.cos(180 * min(s, 1))) / 2)),
    ("the cosine counts from iteration 0; it starts when the warmup is over: (it - warmup).", fall(cosine, start=0)),
    ("the cosine is stretched over total steps; warmup has used some of them: total - warmup.", fall(cosine, stop=lambda w, n: w + n)),
    ("the cosine ends one iteration early: the way is total - warmup long.", fall(cosine, stop=lambda w, n: n - 1)),
    ("the cosine ends one iteration late: the way is total - warmup long.", fall(cosine, stop=lambda w, n: n + 1)),
    ("the cosine is shifted by one iteration: at it = warmup the rate is max_lr.", lambda it, a, b, w, n: fall(cosine)(it + 1, a, b, w, n) if it >= w else schedule(it, a, b, w, n)),
    ("the cosine is shifted by one iteration: at it = warmup the rate is max_lr.", lambda it, a, b, w, n: fall(cosine, start=w - 1)(it, a, b, w, n) if it >= w else schedule(it, a, b, w, n)),
    ("the cosine counts from iteration 0; it starts when the warmup is over: (it - warmup).", lambda it, a, b, w, n: b + (a - b) * (1 + math.cos(math.pi * it / (n - w))) / 2),
    ("parentheses are missing in the share of the way: (it - warmup) / (total - warmup), each difference in its own.", lambda it, a, b, w, n: b + (a - b) * (1 + math.cos(math.pi * (it - w / (n - w)))) / 2),
    ("parentheses are missing around 1 + cos: its half is taken of the whole sum.", fall(lambda s: 0.5 + math.cos(math.pi * s))),
    ("parentheses are missing around 1 + cos: half of the whole sum is multiplied by max_lr - min_lr.", lambda it, a, b, w, n: b + 0.5 + 0.5 * math.cos(math.pi * (it - w) / (n - w)) * (a - b)),
    ("the cosine is multiplied by max_lr + min_lr; the way is max_lr - min_lr.", lambda it, a, b, w, n: b + (a + b) * cosine((it - w) / (n - w))),
    ("min_lr is missing before the curve, which ends at 0.", lambda it, a, b, w, n: (a - b) * cosine((it - w) / (n - w))),
    ("the share of the way stands outside the cosine; math.cos(math.pi * share) is meant.", fall(lambda s: (1 - s) / 2)),
    ("the cosine is halved twice.", fall(lambda s: cosine(s) / 2)),
    ("the half cosine is squared.", fall(lambda s: cosine(s) ** 2)),
    ("a sine stands in the place of the cosine.", fall(lambda s: (1 + math.sin(math.pi * s)) / 2)),
    ("pi is rounded: math.pi has all its digits.", fall(lambda s: (1 + math.cos(3.14 * s)) / 2)),
    ("pi is rounded: math.pi has all its digits.", fall(lambda s: (1 + math.cos(3.1416 * s)) / 2)),
    *(("the rate is rounded.", lambda it, a, b, w, n, digits=digits: round(schedule(it, a, b, w, n), digits)) for digits in (3, 4, 5)),
    ("after warmup the rate stays at max_lr.", fall(lambda s: 1.0)),
    ("after warmup the rate is min_lr at once.", fall(lambda s: 0.0)),
    ("min_lr is added to the whole curve, which then starts at max_lr + min_lr.", lambda it, a, b, w, n: b + fall(cosine, floor=0.0)(it, a, b, w, n) if it >= w else schedule(it, a, b, w, n)),
]

AFTER_MISTAKES = [
    ("the cosine goes on after the end and climbs again: from total on the rate is min_lr.", lambda it, a, b, w, n: b + (a - b) * (1 + math.cos(math.pi * (it - w) / (n - w))) / 2 if it >= w else schedule(it, a, b, w, n)),
    ("the schedule starts over after the end: from total on the rate is min_lr.", lambda it, a, b, w, n: schedule(it % n, a, b, w, n)),
    ("after the end the rate is 0; it stays at min_lr.", lambda it, a, b, w, n: 0.0 if it >= n else schedule(it, a, b, w, n)),
    ("after the end the rate jumps back to max_lr; it stays at min_lr.", lambda it, a, b, w, n: a if it >= n else schedule(it, a, b, w, n)),
    ("only after total does min_lr hold: at it = total another value comes.", lambda it, a, b, w, n: a if it == n else schedule(it, a, b, w, n)),
]


def schedule_is(cosine_lr, iterations, settings, known, look=""):
    """Every value of the schedule over these iterations, diagnosed as a whole."""
    got = []
    for it in iterations:
        value = cosine_lr(it, *settings)
        if value is None:
            fail(f"cosine_lr is None at it = {it}. Is there a return at the end of every branch?")
        if isinstance(value, (str, list, tuple, bool)) or not hasattr(value, "__float__"):
            fail(f"cosine_lr should give a float and gives a {type(value).__name__}.")
        value = complex(value)
        got.append(value.real if value.imag == 0 else math.nan)
    want = [schedule(it, *settings) for it in iterations]
    if same_curve(got, want):
        return
    worst = max(range(len(want)), key=lambda i: abs(got[i] - want[i]) if math.isfinite(got[i]) else math.inf)
    max_lr, min_lr, warmup, total = settings
    example = (
        f"max_lr {max_lr:g}, min_lr {min_lr:g}, warmup {warmup}, total {total}: "
        f"at it = {iterations[worst]} the rate is {got[worst]:.6g}, expected {want[worst]:.6g}"
    )
    for words, mistake in known:
        try:
            values = [mistake(it, *settings) for it in iterations]
        except (ArithmeticError, ValueError):
            continue
        if same_curve(got, values):
            fail(words, example, look)
    fail("the rate is not that of the formula.", example, look)


def same_curve(a, b):
    return all(math.isclose(x, y, rel_tol=1e-5, abs_tol=1e-9) for x, y in zip(a, b))


@checks(SCHEDULE, "the warmup")
def warmup_values(cosine_lr):
    schedule_is(cosine_lr, range(4), (0.6, 0.1, 4, 20), [*WARMUP_MISTAKES, *COSINE_MISTAKES], look="the branch for it < warmup")


@checks(SCHEDULE, "from warmup to total")
def cosine_values(cosine_lr):
    schedule_is(cosine_lr, range(4, 20), (0.6, 0.1, 4, 20), [*COSINE_MISTAKES, *AFTER_MISTAKES], look="the share of the way, from 0 at it = warmup to 1 at it = total")


@checks(SCHEDULE, "from total on")
def after_total(cosine_lr):
    schedule_is(cosine_lr, range(20, 47), (0.6, 0.1, 4, 20), [*AFTER_MISTAKES, *COSINE_MISTAKES], look="what happens when it reaches total")


@checks(SCHEDULE, "other settings")
def other_schedules(cosine_lr):
    for settings in [(1e-3, 1e-4, 10, 35), (3.0, 0.0, 1, 6), (2.0, 0.5, 7, 9), (0.6, 0.6, 2, 5)]:
        known = [*WARMUP_MISTAKES, *COSINE_MISTAKES, *AFTER_MISTAKES]
        schedule_is(cosine_lr, range(settings[3] + 3), settings, known, look="numbers that are written down: take them from the arguments")


@checks(SCHEDULE, "no warmup")
def no_warmup(cosine_lr):
    try:
        schedule_is(cosine_lr, range(8), (0.6, 0.1, 0, 6), [*COSINE_MISTAKES, *AFTER_MISTAKES])
    except ZeroDivisionError:
        fail("a warmup of 0 iterations divides by zero.", look="what is divided by warmup")


@checks(SCHEDULE, "the same call twice")
def schedule_keeps_nothing(cosine_lr):
    settings = (0.6, 0.1, 4, 20)
    for it in (12, 2, 30, 12, 0):                             # back and forth, as after a resume
        value = float(cosine_lr(it, *settings))
        if not math.isclose(value, schedule(it, *settings), rel_tol=1e-5):
            fail(
                "the rate depends on earlier calls: a run that resumes at iteration 12 would get another one.",
                example=f"it = {it} after other iterations gives {value:.6g}, expected {schedule(it, *settings):.6g}",
            )


# --- AdamW ---------------------------------------------------------------------------------------------


def adamw(p, grads, lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0, twist=""):
    """The parameter after these gradients, in float64; twist names a mistake to make on the way."""
    p = p.detach().double().clone()
    beta1, beta2 = betas
    if twist == "swapped":
        beta1, beta2 = beta2, beta1
    m, v = torch.zeros_like(p), torch.zeros_like(p)
    if twist == "starts at g":
        m, v = grads[0].double(), grads[0].double() ** 2
    if twist == "default betas":
        beta1, beta2 = 0.9, 0.999
    for t, g in enumerate(grads, start=1):
        g = g.double()
        t = {"t stays 1": 1, "t from 2": t + 1, "t doubled": 2 * t}.get(twist, t)
        if twist == "L2":
            g = g + weight_decay * p
        if twist == "L1 decay":
            p = p - lr * weight_decay * p.sign()
        elif twist == "decay without lr":
            p = p * (1 - weight_decay)
        elif twist == "decay by lr only":
            p = p * (1 - lr)
        elif twist == "decay by lr squared":
            p = p * (1 - lr * lr * weight_decay)
        elif twist == "growth":
            p = p * (1 + lr * weight_decay)
        elif twist == "decay of 1":
            p = p - lr * weight_decay
        elif twist == "decay of g":
            p = p - lr * weight_decay * g
        elif twist == "decay twice":
            p = p * (1 - lr * weight_decay) ** 2
        elif twist not in ("L2", "no decay"):
            p = p * (1 - lr * weight_decay)
        m = (m if twist == "m without beta" else beta1 * m) + (g if twist == "m is a sum" else (1 - beta1) * g)
        if twist == "m not kept":
            m = (1 - beta1) * g
        square = {"v of m": m * m, "v of g": g, "v of abs": g.abs(), "one number for v": (g * g).mean().expand_as(g)}.get(twist, g * g)
        v = (v if twist == "v without beta" else beta2 * v) + (square if twist == "v is a sum" else (1 - beta2) * square)
        if twist == "v not kept":
            v = (1 - beta2) * square
        if twist == "v is the largest":
            v = torch.maximum(v, square)
        if twist == "m weights exchanged":
            m = (m - (1 - beta1) * g) / beta1 * (1 - beta1) + beta1 * g
        if twist == "v weights exchanged":
            v = (v - (1 - beta2) * square) / beta2 * (1 - beta2) + beta2 * square
        one, two = 1 - beta1**t, 1 - beta2**t
        if twist in ("no correction", "m not corrected", "no correction of m"):
            one = 1.0
        if twist in ("no correction", "v not corrected"):
            two = 1.0
        if twist == "corrections exchanged":
            one, two = two, one
        if twist == "t times beta":
            one, two = 1 - beta1 * t, 1 - beta2 * t
        if twist == "multiplied corrections":
            one, two = 1 / one, 1 / two
        m_hat, v_hat = m / one, v / two
        if twist == "compounded":
            m, v = m_hat, v_hat
        if twist == "eps inside":
            root = (v_hat + eps).sqrt()
        elif twist == "eps before correction":
            root = (v.sqrt() + eps) / two**0.5
        elif twist == "no eps":
            root = v_hat.sqrt()
        elif twist == "eps 1e-6":
            root = v_hat.sqrt() + 1e-6
        elif twist == "eps 1e-8":
            root = v_hat.sqrt() + 1e-8
        elif twist == "eps as a floor":
            root = v_hat.sqrt().clamp(min=eps)
        elif twist == "eps subtracted":
            root = v_hat.sqrt() - eps
        elif twist == "eps by lr":
            root = v_hat.sqrt() + eps * lr
        elif twist == "no root":
            root = v_hat + eps
        elif twist == "correction outside the root":
            root = v.sqrt() / two + eps
        else:
            root = v_hat.sqrt() + eps
        u = m_hat / root
        u = {"sgd": g, "momentum": m_hat, "rmsprop": g / root, "sign of m": m.sign(), "nesterov": (beta1 * m_hat + (1 - beta1) * g / one) / root,
             "raw m": m / root}.get(twist, u)
        p = p + lr * u if twist == "uphill" else p - (u if twist == "no lr" else lr * u)
    return p


STEP_MISTAKES = [
    ("the parameter moves up the gradient: the update is subtracted.", "uphill"),
    ("the learning rate is not used.", "no lr"),
    ("m and v are used as they are: both start at 0 and must be divided by 1 - beta**t.", "no correction"),
    ("m is not divided by 1 - beta1**t: it starts at 0, and early steps are too small.", "m not corrected"),
    ("v is not divided by 1 - beta2**t: it starts at 0, and early steps are too large.", "v not corrected"),
    ("the step counter is off by one: the first step has t = 1.", "t from 2"),
    ("the step counter never grows: 1 - beta**t must go to 1.", "t stays 1"),
    ("the step counter grows by more than one a step.", "t doubled"),
    ("beta1 and beta2 are exchanged: beta1 belongs to m, the mean of the gradients.", "swapped"),
    ("the corrections are exchanged: m goes with 1 - beta1**t, v with 1 - beta2**t.", "corrections exchanged"),
    ("the correction is multiplied where it should be divided: m / (1 - beta1**t).", "multiplied corrections"),
    ("beta is multiplied by t in the correction; it is raised to the power t.", "t times beta"),
    ("the corrected m and v are kept for the next step; only the uncorrected ones are.", "compounded"),
    ("m is not carried from step to step.", "m not kept"),
    ("v is not carried from step to step.", "v not kept"),
    ("the new gradient enters m with weight 1 and not 1 - beta1.", "m is a sum"),
    ("the new square enters v with weight 1 and not 1 - beta2.", "v is a sum"),
    ("the old m is not multiplied by beta1.", "m without beta"),
    ("the old v is not multiplied by beta2.", "v without beta"),
    ("the weights in m are exchanged: beta1 times the old m, 1 - beta1 times the gradient.", "m weights exchanged"),
    ("the weights in v are exchanged: beta2 times the old v, 1 - beta2 times the square.", "v weights exchanged"),
    ("v is made of m; it is the mean of the squared gradients.", "v of m"),
    ("v is made of the gradients; it is the mean of their squares.", "v of g"),
    ("v is made of absolute values; it is the mean of squares.", "v of abs"),
    ("v is one number for the whole tensor; every entry has its own.", "one number for v"),
    ("v keeps the largest square (AMSGrad's or Adamax's idea); it is a moving mean.", "v is the largest"),
    ("the square root of v is missing.", "no root"),
    ("the correction of v stands outside the square root: sqrt(v / (1 - beta2**t)).", "correction outside the root"),
    ("this is plain gradient descent: neither m nor v are used.", "sgd"),
    ("v is not used: the step is lr * m.", "momentum"),
    ("m and v start with the first gradient; they start at 0, and the correction counts on that.", "starts at g"),
    ("beta1 and beta2 are 0.9 and 0.999, whatever betas says.", "default betas"),
    ("m is not used: the step is made of the newest gradient.", "rmsprop"),
    ("only the sign of m is used.", "sign of m"),
    ("this is Nesterov's variant (NAdam); the step is made of m.", "nesterov"),
]

DECAY_MISTAKES = [
    ("there is no weight decay.", "no decay"),
    ("the decay is added to the gradient (L2) and then divided by sqrt(v) like it; AdamW takes it off the parameter directly.", "L2"),
    ("the decay lacks the factor lr: the parameter loses lr * weight_decay of itself at a step.", "decay without lr"),
    ("the decay is lr and not lr * weight_decay.", "decay by lr only"),
    ("the decay is multiplied by lr twice.", "decay by lr squared"),
    ("the decay has the wrong sign: parameters grow.", "growth"),
    ("the decay is done twice.", "decay twice"),
    ("the decay takes off lr * weight_decay itself; times the parameter is meant.", "decay of 1"),
    ("the decay takes off a share of the gradient; a share of the parameter is meant.", "decay of g"),
    ("the decay takes off a fixed amount (L1); it takes off a share of the parameter.", "L1 decay"),
]

EPS_MISTAKES = [
    ("eps stands inside the square root: sqrt(v) + eps is meant.", "eps inside"),
    ("eps is added before the bias correction of v (the paper's short form); here it is sqrt(v / (1 - beta2**t)) + eps.", "eps before correction"),
    ("eps is 1e-8, whatever the argument says.", "eps 1e-8"),
    ("eps is not used.", "no eps"),
    ("eps is 1e-6, whatever the argument says.", "eps 1e-6"),
    ("eps is a lower bound for the root; it is added to it.", "eps as a floor"),
    ("eps is multiplied by lr.", "eps by lr"),
    ("eps is subtracted from the root; it is added.", "eps subtracted"),
]


def parameter(*shape, seed=0, dtype=torch.float32):
    return nn.Parameter(rand(*shape or (1,), seed=seed, dtype=dtype).reshape(shape))


def makes(AdamW, params):
    try:
        AdamW(params)
    except Exception:
        return False
    return True


def optimizer_of(AdamW, *args, **kwargs):
    try:
        optimizer = AdamW(*args, **kwargs)
    except (TypeError, AttributeError, IndexError, KeyError) as error:
        words = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        if isinstance(args[0], list) and isinstance(args[0][0], nn.Parameter) and makes(AdamW, iter(args[0])):
            fail(f"a list of parameters is taken for a list of groups ({words}).", look="how __init__ tells the two: groups are given if the first entry is a dict")
        if isinstance(args[0], list) and isinstance(args[0][0], dict) and makes(AdamW, [parameter(2, 3)]):
            fail(f"a list of dicts is not taken as groups ({words}).", look="how __init__ tells the two: groups are given if the first entry is a dict")
        raise
    if not isinstance(getattr(optimizer, "param_groups", None), (list, tuple)) or not all(isinstance(g, dict) and "params" in g for g in optimizer.param_groups):
        fail(
            "the optimizer has no param_groups, a list of dicts with \"params\": a schedule sets the learning rate there.",
            look="the end of __init__",
        )
    for group in optimizer.param_groups:
        for name in ("lr", "betas", "eps", "weight_decay"):
            if name not in group:
                fail(f'a group of param_groups has no "{name}": each group carries all four settings.', look="how the defaults are merged into the groups")
    return optimizer


def take(optimizer, gradients):
    """One step with these gradients, {parameter: gradient or None}; the gradients must come out unchanged."""
    for p, g in gradients.items():
        p.grad = None if g is None else g.to(p.dtype).clone()
    settings = [[group[name] for name in ("lr", "betas", "eps", "weight_decay")] for group in optimizer.param_groups]
    try:
        optimizer.step()
    except RuntimeError as error:
        if "leaf Variable" in str(error) or "leaf variable" in str(error):
            fail("autograd watches the update and refuses a change of a parameter in place.", look="torch.no_grad() around the whole step")
        raise
    except ZeroDivisionError:
        fail("the first step divides by zero: with t = 0 the corrections 1 - beta**0 are 0.", look="t is 1 at the first step: count before you use it")
    if settings != [[group[name] for name in ("lr", "betas", "eps", "weight_decay")] for group in optimizer.param_groups]:
        fail("step changes the settings of a group: that is the schedule's, between the steps.", look='what is assigned to group["lr"]')
    for p, g in gradients.items():
        if g is not None and p.grad is None:
            fail("step changes p.grad: it clears it, and others still want to read it. zero_grad is the caller's.", look="zero_grad inside step")
        if g is not None and not equal(p.grad, g.to(p.dtype), 0):
            fail("step changes p.grad: others still want to read it, and a second step would start from another gradient.", look="operations that end in _, and +=, on p.grad")


def steps(n, *shape, seed=10, scale=1.0):
    return [rand(*shape, seed=seed + i, scale=scale, dtype=torch.float64) for i in range(n)]


def known_steps(p, gradients, mistakes, **settings):
    return [(words, adamw(p, gradients, twist=twist, **settings).float()) for words, twist in mistakes]


def after_steps(AdamW, start, gradients, **settings):
    p = nn.Parameter(start.detach().clone())
    optimizer = optimizer_of(AdamW, [p], **settings)
    for g in gradients:
        take(optimizer, {p: g})
    return p.detach()


def trajectory_is(AdamW, gradients, mistakes, atol=3e-6, name="the parameter", start=None, look="", more=(), **settings):
    """A matrix after these gradients, compared with the formula in float64, diagnosed as one of the mistakes.

    Many mistakes look alike after one step: with `more` gradients a wrong one goes on, and is diagnosed then.
    """
    start = parameter(*gradients[0].shape) if start is None else start
    p = after_steps(AdamW, start, gradients, **settings)
    want = adamw(start, gradients, **settings).float()
    if equal(p, start, 0) and not equal(want, start, atol):
        fail("step leaves the parameter as it was.", look="an update that makes a new tensor (p = p - ...) and never reaches p, or m and v that are used before the gradient has entered them")
    if not p.isfinite().all():
        fail("the parameter is nan or inf after a step.", look="t = 0 at the first step makes 1 - beta**t zero; and the root of a negative number, as when m and v are one tensor")
    if more and not equal(p, want, atol):
        longer = [*gradients, *more]
        later = after_steps(AdamW, start, longer, **settings)
        for words, value in known_steps(start, longer, mistakes, **settings):
            if equal(later, value, 1e-5):
                close(p, want, atol, name=name, known=[(words, p)], look=look)
        close(p, want, atol, name=name, look=look)            # what looks like a known one after one step is another
    close(p, want, atol, name=name, known=known_steps(start, gradients, mistakes, **settings), look=look)


@checks(ADAMW, "two optimizers beside each other")
def two_optimizers(AdamW):
    start, gradients = parameter(3, 4), steps(2, 3, 4)
    first, second = (after_steps(AdamW, start, gradients) for _ in range(2))
    if not equal(first, second, 0):
        fail("two optimizers share their state: the steps of one change those of the next.", look="dicts and lists that are made in the class or as a default argument, outside __init__")


@checks(ADAMW, "the first step")
def first_step(AdamW):
    trajectory_is(AdamW, steps(1, 3, 4), STEP_MISTAKES, name="the parameter after one step", more=steps(7, 3, 4, seed=11), lr=0.1, betas=(0.8, 0.97), eps=1e-8, weight_decay=0.0)


@checks(ADAMW, "eight steps")
def eight_steps(AdamW):
    trajectory_is(AdamW, steps(8, 3, 4), STEP_MISTAKES, name="the parameter after eight steps", lr=0.1, betas=(0.8, 0.97), eps=1e-8, weight_decay=0.0)


    params = [parameter(3, 4), parameter(4, seed=1), parameter(2, 3, seed=2), parameter(5, seed=3)]
    starts = [p.detach().clone() for p in params]
    take(optimizer_of(AdamW, params, lr=0.1), {p: torch.ones_like(p) for p in params})
    moved = sum(not equal(p, start, 0) for p, start in zip(params, starts))
    if moved < 4:
        fail(f"a step moves {moved} of 4 parameters that have a gradient: it goes through every parameter of every group.", look="loops that end too early: a return, a break, or lines that stand too far to the left")


@checks(ADAMW, "weight decay")
def decay(AdamW):
    trajectory_is(
        AdamW, steps(6, 3, 4), [*DECAY_MISTAKES, *STEP_MISTAKES], atol=1e-4, name="the parameter after six steps with weight decay",
        lr=0.01, betas=(0.8, 0.97), eps=1e-8, weight_decay=0.4,
    )
    p = parameter(3, 4)
    start = p.detach().clone()
    optimizer = optimizer_of(AdamW, [p], lr=0.1, weight_decay=0.5)
    take(optimizer, {p: torch.zeros(3, 4)})
    close(p.detach(), start * 0.95, 1e-6, name="the parameter after a step with gradient 0", known=[
        ("a parameter whose gradient is 0 is passed over; only one without a gradient is.", start),
    ], look="the decay does not depend on the gradient")


@checks(ADAMW, "small gradients")
def small_gradients(AdamW):
    start = torch.zeros(3, 4)
    for scale, eps in [(1e-8, 1e-8), (1e-6, 1e-8), (3e-4, 1e-8), (1.0, 0.5)]:
        gradients = steps(3, 3, 4, scale=scale)
        trajectory_is(
            AdamW, gradients, [*EPS_MISTAKES, *STEP_MISTAKES], atol=1e-4 if scale == 1e-8 else 1e-5, start=start,
            name=f"the parameter after three steps with gradients of {scale:g} and eps {eps:g}",
            lr=0.1, betas=(0.8, 0.97), eps=eps, weight_decay=0.0, look="the denominator: sqrt(v / (1 - beta2**t)) + eps",
        )


@checks(ADAMW, "which parameters decay")
def which_decay(AdamW):
    shapes = {"a matrix": (3, 4), "a bias": (4,), "a number": (), "a 3-D weight": (2, 3, 2)}
    params = {name: parameter(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    before = {name: p.detach().clone() for name, p in params.items()}
    optimizer = optimizer_of(AdamW, (p for p in params.values()), lr=0.1, weight_decay=0.5)
    listed = [p for group in optimizer.param_groups for p in group["params"]]
    if sorted(map(id, listed)) != sorted(map(id, params.values())):
        fail(
            f"param_groups hold {len(listed)} parameters and {len(params)} were given.",
            look="an iterator such as model.parameters() can be gone through once: make it a list first",
        )
    take(optimizer, {p: torch.zeros_like(p) for p in params.values()})
    ratio = {name: (params[name].detach() / before[name]).mean().item() for name in params}
    decayed = [name for name in params if not math.isclose(ratio[name], 1, abs_tol=1e-4)]
    want = ["a matrix", "a 3-D weight"]
    if decayed == want and all(math.isclose(ratio[name], 0.95, abs_tol=1e-4) for name in want):
        return
    example = f"with gradients of 0, lr 0.1 and weight_decay 0.5 a step multiplies {', '.join(f'{n} by {ratio[n]:.3f}' for n in params)}; expected 0.95 for a matrix and a 3-D weight, 1 for the others"
    words = "the wrong parameters decay: from a flat list those with 2 or more dimensions do, the others do not."
    if len(decayed) == 4:
        words = "biases decay too: a parameter of fewer than 2 dimensions is pulled to 0 for nothing."
    elif not decayed:
        words = "no parameter of a flat list decays: those with 2 or more dimensions should."
    elif decayed == ["a bias", "a number"] or decayed == ["a bias"]:
        words = "the groups are exchanged: biases decay and matrices do not."
    elif "a 3-D weight" not in decayed and decayed == ["a matrix"]:
        words = "a weight of 3 dimensions does not decay: 2 or more is meant, not exactly 2."
    fail(words, example, look="how __init__ splits a flat list, p.dim()")


@checks(ADAMW, "groups as given")
def groups_as_given(AdamW):
    shapes = [(3, 4), (4,), (3, 4), (4,), (2, 3)]
    settings = [
        {"lr": 0.005, "weight_decay": 0.5},
        {"betas": (0.5, 0.8), "eps": 0.1},
    ]
    params = [parameter(*shape, seed=20 + i) for i, shape in enumerate(shapes)]
    theirs = [nn.Parameter(p.detach().clone().double()) for p in params]
    defaults = {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-3, "weight_decay": 0.2}
    groups = [{"params": params[:2], **settings[0]}, {"params": (p for p in params[2:4]), **settings[1]}, {"params": params[4:]}]
    optimizer = optimizer_of(AdamW, groups, **defaults)
    if [len(list(g["params"])) for g in optimizer.param_groups] != [2, 2, 1]:
        fail(
            f"three groups of 2, 2 and 1 parameters became {[len(list(g['params'])) for g in optimizer.param_groups]}: a list of dicts is taken as it is.",
            look="how __init__ tells dicts from parameters, and generators, which can be gone through once",
        )
    oracle = torch.optim.AdamW([{"params": theirs[:2], **settings[0]}, {"params": theirs[2:4], **settings[1]}, {"params": theirs[4:]}], **defaults)
    for i in range(6):
        gradients = [rand(*shape, seed=50 + 10 * i + j, dtype=torch.float64) for j, shape in enumerate(shapes)]
        take(optimizer, dict(zip(params, gradients)))
        for p, g in zip(theirs, gradients):
            p.grad = g.clone()
        oracle.step()
        for j, (p, want) in enumerate(zip(params, theirs)):
            if equal(p, want, 2e-4):
                continue
            group = 0 if j < 2 else 1 if j < 4 else 2
            example = f"parameter {j} in group {group} is wrong after step {i + 1}: {number(p.detach().flatten()[0])}, expected {number(want.detach().flatten()[0])}"
            alone = [nn.Parameter(x.detach().clone()) for x in params[j : j + 1]]
            with torch.no_grad():
                alone[0].copy_(rand(*shapes[j], seed=20 + j))
            only = optimizer_of(AdamW, [{"params": alone, **(settings[group] if group < 2 else {})}], **defaults)
            for k in range(i + 1):
                take(only, {alone[0]: rand(*shapes[j], seed=50 + 10 * k + j, dtype=torch.float64)})
            if equal(alone[0], want, 2e-4):
                fail(
                    "parameters disturb each other: m, v and the step count belong to one parameter.",
                    example,
                    look="the key under which m and v are kept: shapes, and numbers that start anew in each group, are no good",
                )
            fail("a group's own settings are not used: lr, betas, eps and weight_decay come from the group, else from the arguments.", example, look="inside step, names that should be group[...]; a 1-D parameter in a group decays as the group says")


@checks(ADAMW, "the defaults")
def the_defaults(AdamW):
    optimizer = optimizer_of(AdamW, [parameter(2, 3), parameter(3)])
    want = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
    for name, value in want.items():
        got = [g[name] for g in optimizer.param_groups if any(p.dim() >= 2 for p in g["params"])][0]
        if (tuple(got) if name == "betas" else got) != value:
            fail(f"without the argument {name} it is {got}, expected {value}.", look="the signature of __init__")


@checks(ADAMW, "the learning rate is read at each step")
def rate_is_read(AdamW):
    p, other = parameter(3, 4), parameter(4, seed=1)
    theirs = [nn.Parameter(x.detach().double()) for x in (p, other)]
    optimizer = optimizer_of(AdamW, [p, other], lr=0.5, betas=(0.8, 0.9), weight_decay=0.1)
    oracle = torch.optim.AdamW([{"params": theirs[:1]}, {"params": theirs[1:], "weight_decay": 0.0}], lr=0.5, betas=(0.8, 0.9), weight_decay=0.1)
    for i, lr in enumerate([0.003, 0.01, 0.0]):
        for group in [*optimizer.param_groups, *oracle.param_groups]:
            group["lr"] = lr
            group["betas"] = (0.8 - 0.1 * i, 0.9)
        gradients = [rand(*x.shape, seed=30 + i) for x in (p, other)]
        before = p.detach().clone()
        take(optimizer, {p: gradients[0], other: gradients[1]})
        for x, g in zip(theirs, gradients):
            x.grad = g.double()
        oracle.step()
        if not equal(p, theirs[0], 1e-4) or not equal(other, theirs[1], 1e-4):
            fail(
                'a change of group["lr"] has no effect, or a setting is copied when the optimizer is made: a schedule sets it before each step.',
                example=f'with group["lr"] = {lr} the parameter moves by up to {(p - before).abs().max().item():.3g}, expected {(theirs[0] - before).abs().max().item():.3g}',
                look='every use of lr and betas inside step: group["lr"], group["betas"]',
            )


@checks(ADAMW, "a parameter without a gradient")
def without_gradient(AdamW):
    p, late, after = parameter(3, 4), parameter(2, 3, seed=1), parameter(3, 2, seed=2)
    start, other_start = late.detach().clone(), after.detach().clone()
    theirs = nn.Parameter(start.double())
    optimizer = optimizer_of(AdamW, [p, late, after], lr=0.01, weight_decay=0.1)
    oracle = torch.optim.AdamW([theirs], lr=0.01, weight_decay=0.1)
    try:
        for i in range(2):
            take(optimizer, {p: rand(3, 4, seed=40 + i), late: None, after: torch.ones(3, 2)})
    except (TypeError, AttributeError) as error:
        if "NoneType" in str(error):
            fail("a parameter without a gradient (p.grad is None) stops the step; it should be passed over.")
        raise
    if not equal(late, start, 0):
        fail("a parameter without a gradient (p.grad is None) is changed: it is left alone, without decay too.", look="what stands before the test for None")
    if equal(after, other_start, 0):
        fail("the parameters that come after one without a gradient are left as they were: only that one is passed over.", look="a break or return in the place of continue")
    for i in range(2):
        g = rand(2, 3, seed=50 + i)
        take(optimizer, {p: rand(3, 4, seed=42 + i), late: g, after: None})
        theirs.grad = g.double()
        oracle.step()
    close(late.detach(), theirs.detach().float(), 1e-4, name="a parameter whose gradients begin at the third step", known=[
        ("one step counter serves all parameters, or counts where there is no gradient: one whose gradient comes later gets too weak a correction. Each counts its own steps.", late.detach()),
    ], look="where the step count is kept")
    before = late.detach().clone()
    take(optimizer, {p: rand(3, 4, seed=60), late: None})
    if not equal(late, before, 0):
        fail("a parameter that has m and v from before moves although it has no gradient now.", look="the test for p.grad is None")


@checks(ADAMW, "zero_grad")
def zero_grads(AdamW):
    params = [parameter(3, 4), parameter(4, seed=1)]
    before = [p.detach().clone() for p in params]
    optimizer = optimizer_of(AdamW, [*params, parameter(2, 2, seed=2)])
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.zero_grad()
    for p, start in zip(params, before):
        if p.grad is not None and p.grad.abs().sum() != 0:
            fail("after zero_grad a gradient is still there: the next backward adds to it.", look="every parameter of every group")
        if not equal(p, start, 0):
            fail("zero_grad changes the parameters; it clears their gradients.")


@checks(ADAMW, "a hundred steps beside torch.optim")
def hundred_steps(AdamW):
    torch.manual_seed(3)
    mine = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    theirs = copy.deepcopy(mine)
    optimizer = optimizer_of(AdamW, mine.parameters(), lr=3e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    groups = [{"params": [p for p in theirs.parameters() if p.dim() >= 2]}, {"params": [p for p in theirs.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    oracle = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    for i in range(100):
        x, y = rand(6, 5, seed=i), rand(6, 3, seed=1000 + i)
        for model, opt in [(mine, optimizer), (theirs, oracle)]:
            opt.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            opt.step()
        for (name, p), q in zip(mine.named_parameters(), theirs.parameters()):
            if not equal(p, q, 1e-4):
                fail(
                    "the parameters drift away from torch.optim.AdamW.",
                    example=f"{name} differs by {(p - q).abs().max().item():.2g} after {i + 1} steps",
                    look="what changes with the number of steps: t, and what is kept between steps",
                )


@checks(ADAMW, "state_dict and load_state_dict")
def resume_exactly(AdamW):
    def fresh(like, **settings):
        copies = [nn.Parameter(p.detach().clone()) for p in like]
        return copies, optimizer_of(AdamW, copies, **settings)

    def go(params, optimizer, first, last):
        for i in range(first, last):
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * 0.9
            take(optimizer, {p: None if j == 2 and i < 7 else rand(*p.shape, seed=70 + 10 * i + j) for j, p in enumerate(params)})

    start = [parameter(3, 4), parameter(4, seed=1), parameter(2, 3, seed=2), parameter(3, 4, seed=3)]
    settings = {"lr": 0.1, "betas": (0.8, 0.95), "weight_decay": 0.2}
    straight, optimizer = fresh(start, **settings)
    go(straight, optimizer, 0, 6)
    half = [p.detach().clone() for p in straight]
    state = optimizer.state_dict()
    if state is None:
        fail("state_dict gives None. Is there a return?")
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    try:
        state = torch.load(buffer, weights_only=True)
    except Exception:
        fail("what state_dict gives cannot be read back by torch.load with weights_only=True: use dicts, lists, numbers and tensors only.", look="what the state holds: no objects of your own")
    go(straight, optimizer, 6, 9)
    for words, other in [("an optimizer that has made no step", 0), ("an optimizer that has made steps of its own", 4)]:
        resumed, second = fresh(half, **{**settings, "lr": 0.7, "betas": (0.5, 0.6), "weight_decay": 0.0})
        go(resumed, second, 20, 20 + other)
        with torch.no_grad():
            for p, value in zip(resumed, half):
                p.copy_(value)
        try:
            second.load_state_dict(copy.deepcopy(state))
        except KeyError as error:
            fail(
                f"load_state_dict looks for the key {str(error)[:60]}, which the saved state does not have.",
                look="what stands for a parameter in the file: id(p) and p itself are others in the next process; its place in the order of the groups is the same",
            )
        except (ValueError, RuntimeError) as error:
            if isinstance(error, NotImplementedError):
                raise
            fail(
                f"load_state_dict refuses the state of equal parameters ({type(error).__name__}: {str(error).splitlines()[0][:100]}).",
                look="a parameter that has had no gradient so far: its place in the saved list must not be left out",
            )
        held = [p for group in second.param_groups for p in group.get("params", ())]
        if sorted(map(id, held)) != sorted(map(id, resumed)):
            fail("after load_state_dict the optimizer holds other parameters than before: the model is not trained any more.", look="the settings of the groups come from the file, their params stay")
        rates = [(g["lr"], tuple(g["betas"]), g["weight_decay"]) for g in second.param_groups]
        try:
            go(resumed, second, 6, 9)
        except RuntimeError as error:
            if "shape" in str(error) or "size" in str(error):
                fail("m and v come back to a parameter of another shape.", look="a parameter that has had no gradient so far: its place in the saved list must not be left out")
            raise
        if all(torch.equal(a, b) for a, b in zip(straight, resumed)):
            continue
        gap = max((a - b).abs().max().item() for a, b in zip(straight, resumed))
        example = f"9 steps in one go and 6 + 3 steps, loaded into {words}, differ by {gap:.2g}"
        want = 0.1 * 0.9**6
        if any(not math.isclose(r[0], want) for r in rates):
            fail(f"the learning rate is lost: after load_state_dict it is {rates[0][0]:.4g}, when saved it was {want:.4g}.", example, look="the settings of the groups: they belong to the state")
        if any(r[1] != (0.8, 0.95) for r in rates) or sorted(r[2] for r in rates) != [0.0, 0.2]:
            fail("the settings of the groups (betas, weight_decay) are lost between state_dict and load_state_dict.", example)
        for lost, change in [("m", {"m": 0}), ("v", {"v": 0}), ("the step count", {"t": 0}), ("m, v and the step count", {"m": 0, "v": 0, "t": 0}), ("m and v", {"m": 0, "v": 0})]:
            if all(equal(a, resumed_without(change, a, h, j), 1e-5) for j, (a, h) in enumerate(zip(resumed, half)) if j != 2):
                fail(f"{lost} is lost between state_dict and load_state_dict." if "and" not in lost else f"{lost} are lost between state_dict and load_state_dict.", example, look="what state_dict puts in and load_state_dict takes out")
        if other:
            fail("load_state_dict does not replace the state that is there.", example, look="entries of self.state that the saved state does not have: a parameter without m and v starts anew")
        fail("a run that resumes from the saved state goes another way.", example, look="m, v and the step count must come back to the parameter that they belong to, in the order of the groups")


    rates = [0.1, 0.2]
    saving, loading = (optimizer_of(AdamW, [{"params": [parameter(3, 4)]}, {"params": [parameter(4)]}]) for _ in range(2))
    for group, lr in zip(saving.param_groups, rates):
        group["lr"] = lr
    loading.load_state_dict(copy.deepcopy(saving.state_dict()))
    got = [group["lr"] for group in loading.param_groups]
    if got != rates:
        fail("the groups do not get their own settings back.", example=f"saved with learning rates {rates}, loaded with {got}", look="one dict of settings for each group, in their order")


def resumed_without(change, got, half, j):
    """Where a matrix or bias of resume_exactly ends if part of its state is lost at the sixth step."""
    beta1, beta2 = 0.8, 0.95
    m = v = 0.0
    p = half.double()
    for i in range(9):
        g = rand(*half.shape, seed=70 + 10 * i + j).double()
        if i == 6:
            m, v = m * change.get("m", 1), v * change.get("v", 1)
        t = i + 1 - (6 if i >= 6 and "t" in change else 0)
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        if i >= 6:
            lr = 0.1 * 0.9 ** (i + 1)
            p = p * (1 - lr * (0.2 if half.dim() >= 2 else 0))
            p = p - lr * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + 1e-8)
    return p.float()


@checks(ADAMW, "a state of other parameters")
def state_of_others(AdamW):
    one = optimizer_of(AdamW, [{"params": [parameter(3, 4), parameter(4)]}])
    take(one, {p: torch.ones_like(p) for p in one.param_groups[0]["params"]})
    state = one.state_dict()
    for words, groups in [
        ("a group more", [{"params": [parameter(3, 4), parameter(4)]}, {"params": []}]),
        ("a parameter more", [{"params": [parameter(3, 4), parameter(4), parameter(2)]}]),
        ("a parameter less", [{"params": [parameter(3, 4)]}]),
    ]:
        try:
            optimizer_of(AdamW, groups).load_state_dict(copy.deepcopy(state))
        except Exception:
            continue
        fail(
            f"an optimizer with {words} takes the state without a word: part of it would go on with wrong moments.",
            look="zip stops at the shorter list; with strict=True it raises ValueError",
        )


@checks(ADAMW, "the result of a step")
def after_a_step(AdamW):
    p = parameter(3, 4, dtype=torch.float64)
    start = p.detach().clone()
    optimizer = optimizer_of(AdamW, [p], lr=0.1, betas=(0.8, 0.95), weight_decay=0.0)
    gradients = steps(3, 3, 4)
    for g in gradients:
        take(optimizer, {p: g})
    if p.dtype != torch.float64:
        fail(f"a float64 parameter becomes {p.dtype} in a step.")
    if not (p.is_leaf and p.requires_grad):
        fail("after a step the parameter is no leaf that requires a gradient any more.", look="torch.no_grad() around the step, and operations in place")
    want = adamw(start, gradients, lr=0.1, betas=(0.8, 0.95))
    if not equal(p, want, 1e-10):
        fail("the parameter is float64 and only as exact as float32: m or v are float32.", look="torch.zeros without a dtype: torch.zeros_like(p) takes p's")

    def step_on(p):
        p = nn.Parameter(p.detach())
        p.grad = torch.ones_like(p)
        AdamW([p]).step()
        return p.detach()

    keeps_device(step_on, rand(3, 4))


# --- clip_grad_norm ------------------------------------------------------------------------------------


def with_gradients(gradients):
    params = []
    for i, g in enumerate(gradients):
        p = nn.Parameter(rand(*(g.shape if g is not None else (2,)), seed=80 + i))
        p.grad = None if g is None else g.clone()
        params.append(p)
    return params


def flat(tensors):
    return torch.cat([t.detach().flatten() for t in tensors])


GRADIENTS = [rand(3, 4, seed=90), rand(5, seed=91, scale=3.0), None, rand(2, 1, 3, seed=92, scale=0.1)]


def clip_mistakes(gradients, max_norm):
    """(words, what the mistake makes of the gradients, as one vector)."""
    gradients = [g for g in gradients if g is not None]
    g = flat(gradients)
    norm = g.norm()
    matrices = [g for g in gradients if g.dim() >= 2]
    return [
        ("the gradients are not changed: they must be scaled in place.", g),
        ("every tensor is clipped by its own norm: the direction changes. One norm of all of them, one scale for all.", flat([x * min(1, max_norm / x.norm().item()) for x in gradients])),
        ("entries are cut to [-max_norm, max_norm]; the whole vector is scaled.", g.clamp(-max_norm, max_norm)),
        ("the norm is the sum of absolute values; it is the root of the sum of squares.", g * min(1, max_norm / g.abs().sum().item())),
        ("the norm is the largest entry; it is the root of the sum of squares.", g * min(1, max_norm / g.abs().max().item())),
        ("the square root is missing: the norm is the root of the sum of squares.", g * min(1, max_norm / norm.item() ** 2)),
        ("the norms of the tensors are added up; their squares are, and then comes the root.", g * min(1, max_norm / sum(x.norm().item() for x in gradients))),
        ("the squares are averaged; they are summed.", g * min(1, max_norm / g.square().mean().sqrt().item())),
        ("the norm is an average of the tensors' norms; take one norm of all gradients.", g * min(1, max_norm / (sum(x.norm().item() for x in gradients) / len(gradients)))),
        ("the norm is that of the largest tensor; take one norm of all gradients.", g * min(1, max_norm / max(x.norm().item() for x in gradients))),
        ("the norm of the last tensor alone decides; take one norm of all gradients.", g * min(1, max_norm / gradients[-1].norm().item())),
        ("the norm of the first tensor alone decides; take one norm of all gradients.", g * min(1, max_norm / gradients[0].norm().item())),
        ("the scale is upside down: max_norm / norm is meant.", g * (norm.item() / max_norm)),
        ("the gradients get norm 1 whatever max_norm is.", g / norm),
        ("the gradients are divided by max_norm.", g / max_norm),
        ("the gradients are multiplied by max_norm.", g * max_norm),
        ("the scale is applied twice.", g * (max_norm / norm.item()) ** 2),
        ("gradients above the bound are set to zero; they are scaled.", g * 0),
        ("only the first tensor is scaled.", flat([gradients[0] * (max_norm / norm.item()), *gradients[1:]])),
        ("only the last tensor is scaled.", flat([*gradients[:-1], gradients[-1] * (max_norm / norm.item())])),
        ("small gradients are scaled up to max_norm; they stay as they are.", g * (max_norm / norm.item())),
        ("entries are cut from above; the whole vector is scaled, and negative entries with it.", g.clamp(max=max_norm)),
        ("each tensor is scaled by the norm up to it: first the norm of all, then the scale.", rolling(gradients, max_norm)),
        ("every row is clipped by its own norm: the direction changes. One norm of all of them, one scale for all.", flat([x * (max_norm / x.norm(dim=-1, keepdim=True)).clamp(max=1) for x in gradients])),
        ("the entries are summed with their signs; their squares are summed.", g * min(1, max_norm / abs(g.sum().item()))),
        ("the scale is the root of max_norm / norm.", g * min(1, (max_norm / norm.item()) ** 0.5)),
        ("something is subtracted from every entry; all are multiplied by one scale.", g - (norm - max_norm)),
        ("biases are left out: all gradients count and all are scaled.", flat([x * min(1, max_norm / flat(matrices).norm().item()) if x.dim() >= 2 else x for x in gradients])),
    ]


def rolling(gradients, max_norm):
    """The gradients as one vector, each tensor scaled by the norm of all that the loop has met so far."""
    total, scaled = 0.0, []
    for g in gradients:
        total = (total**2 + g.norm().item() ** 2) ** 0.5
        scaled.append(g * min(1, max_norm / total))
    return flat(scaled)


def clip_is(clip_grad_norm, gradients, max_norm, look="", given=list):
    mine, theirs = with_gradients(gradients), with_gradients(gradients)
    before = flat(theirs)
    want_norm = torch.nn.utils.clip_grad_norm_(theirs, max_norm)
    try:
        norm = clip_grad_norm(given(mine), max_norm)
    except (TypeError, AttributeError) as error:
        if "NoneType" in str(error):
            fail("a parameter without a gradient (p.grad is None) stops the function; it should be passed over.")
        raise
    if not equal(flat(mine), before, 0):
        fail("the parameters are changed: only their gradients are clipped.")
    for p, q in zip(mine, theirs):
        if (p.grad is None) != (q.grad is None):
            fail("a gradient appears or disappears: None stays None.", look="what you assign to p.grad")
    got, want = flat([p.grad for p in mine if p.grad is not None]), flat([p.grad for p in theirs if p.grad is not None])
    total = flat([g for g in gradients if g is not None]).norm().item()
    known = clip_mistakes(gradients, max_norm)
    weights = flat([p for p in theirs if p.grad is not None]).norm().item()
    known.append(("the norm is that of the parameters; it is that of their gradients.", flat([g for g in gradients if g is not None]) * min(1, max_norm / weights)))
    close(got, want, 1e-5, name=f"the gradients, as one vector of norm {total:.4g}, with max_norm {max_norm:g}", known=known, look=look)
    if isinstance(norm, (float, int)):
        fail(f"the result is a {type(norm).__name__}; a tensor of shape () is meant.", look=".item() in what you return")
    everything = flat([g for g in gradients if g is not None])
    parts = [g.norm() for g in gradients if g is not None]
    close(norm, want_norm, 1e-5, name="the norm that is returned", known=[
        ("the norm after clipping is returned; the norm before tells more: how large the gradients were.", want.norm()),
        ("the norm is the sum of absolute values; it is the root of the sum of squares.", everything.abs().sum()),
        ("the norm is the largest entry; it is the root of the sum of squares.", everything.abs().max()),
        ("the square root is missing: the norm is the root of the sum of squares.", everything.square().sum()),
        ("the norms of the tensors are added up; their squares are, and then comes the root.", sum(parts)),
        ("the scale is returned; the norm before clipping is meant.", torch.tensor(max_norm / total)),
        ("the scale is returned; the norm before clipping is meant.", torch.tensor(min(1.0, max_norm / total))),
        ("max_norm is returned; the norm before clipping is meant.", torch.tensor(float(max_norm))),
        ("the norm of the last tensor is returned; one norm of all gradients is meant.", parts[-1]),
        ("the small number stands inside the root; it is added to the norm, below the fraction.", (want_norm**2 + 1e-6).sqrt()),
        ("the small number stands inside the root; it is added to the norm, below the fraction.", (want_norm**2 + 1e-8).sqrt()),
    ])


@checks(CLIP, "gradients that are too large")
def too_large(clip_grad_norm):
    clip_is(clip_grad_norm, [g for g in GRADIENTS if g is not None], 0.5)


@checks(CLIP, "gradients that are small enough")
def small_enough(clip_grad_norm):
    clip_is(clip_grad_norm, [g for g in GRADIENTS if g is not None], 50.0, look="the scale is at most 1")
    params = with_gradients([rand(2, 3, seed=94)])
    clip_grad_norm(params, math.inf)
    if not equal(params[0].grad, rand(2, 3, seed=94), 0):
        fail("with max_norm inf, which only measures, the gradients are changed.", example=f"an entry becomes {number(params[0].grad[0, 0])}", look="inf / inf is nan")
    clip_is(clip_grad_norm, [rand(2, 3, seed=94, scale=1e-7)], 1.0, look="what is added to the norm below the fraction, and its sign")


@checks(CLIP, "a bound close to the norm")
def near_the_bound(clip_grad_norm):
    gradients = [g for g in GRADIENTS if g is not None]
    norm = flat(gradients).norm().item()
    for factor in (0.9, 1.1):
        clip_is(clip_grad_norm, gradients, factor * norm, look="when it clips: norm > max_norm")


@checks(CLIP, "parameters without a gradient")
def clip_none(clip_grad_norm):
    gradients = [rand(3, 4, seed=95), None, rand(5, seed=96)]
    params = with_gradients(gradients)
    norm = None
    with contextlib.suppress(TypeError, AttributeError):      # clip_is names them
        norm = clip_grad_norm(params, 0.5)
    if isinstance(norm, torch.Tensor) and equal(norm, gradients[0].norm(), 1e-5):
        fail("the gradients that come after a parameter without one are left out: only that one is passed over.", look="a break or return in the place of continue")
    clip_is(clip_grad_norm, GRADIENTS, 0.5)
    clip_is(clip_grad_norm, [None, rand(4, 4, seed=93)], 2.0)


@checks(CLIP, "an iterator of parameters")
def clip_iterator(clip_grad_norm):
    try:
        clip_is(clip_grad_norm, GRADIENTS, 0.5, given=iter)
    except Exception:                                         # a list has passed: it can only be the iterator
        fail("an iterator of parameters gives another result: model.parameters() can be gone through once.", look="two loops over params: make a list first")


@checks(CLIP, "gradients that are all zero")
def clip_zero(clip_grad_norm):
    params = with_gradients([torch.zeros(3), torch.zeros(2, 2)])
    try:
        norm = clip_grad_norm(params, 1.0)
    except ZeroDivisionError:
        fail("gradients that are all zero divide by zero.", look="a small number below the fraction, such as 1e-6")
    if not flat([p.grad for p in params]).eq(0).all():
        fail("gradients that are all zero become nan: max_norm / 0 is inf, and inf * 0 is nan.", look="the scale, which is at most 1")
    is_tensor(norm, ())


@checks(CLIP, "dtype and device")
def clip_dtype(clip_grad_norm):
    params = [nn.Parameter(rand(3, 4, seed=i, dtype=torch.float64)) for i in range(2)]
    for i, p in enumerate(params):
        p.grad = rand(3, 4, seed=10 + i, dtype=torch.float64)
    want = flat([p.grad for p in params]).norm()
    norm = clip_grad_norm(params, 0.5)
    is_tensor(norm, (), torch.float64, name="the norm")
    if equal(norm, want + 1e-6, 1e-9):
        fail("the small number is added to the norm that is returned; it belongs below the fraction only.")
    if not equal(norm, want, 1e-12):
        fail("float64 gradients, and a norm only as exact as float32.", look="torch.tensor(0.0) and .float() on the way")
    if norm.requires_grad:
        fail("the norm is part of a graph.", look="parameters in the place of gradients")

    def on_device(g):
        p = nn.Parameter(g.detach())
        p.grad = g.detach().clone()
        return clip_grad_norm([p], 0.5)

    keeps_device(on_device, rand(3, 4))


# --- accumulate ----------------------------------------------------------------------------------------


class Tiny(nn.Module):
    """A model as small as can be, model(x, y) -> (logits, loss), that notes how it is called; with own_loss the loss is not the plain one."""

    def __init__(self, own_loss=False):
        super().__init__()
        self.own_loss = own_loss
        self.table, self.out = nn.Linear(4, 5), nn.Linear(5, 3)
        fill(self)
        self.sizes, self.empty, self.modes = [], [], []

    def forward(self, x, y):
        if x.shape[-1] != 4 or y.is_floating_point():
            fail("x and y come in the wrong order or shape: the model is called as model(x, y) for each pair of batches.")
        self.sizes.append(len(x))
        self.empty.append(self.out.weight.grad is None or bool((self.out.weight.grad == 0).all()))
        self.modes.append((self.training, torch.is_grad_enabled()))
        logits = self.out(torch.tanh(self.table(x)))
        loss = F.cross_entropy(logits, y)
        return logits, loss + 0.1 * logits.square().mean() if self.own_loss else loss


def micro_batches(n, size, seed=0):
    x, y = rand(n * size, 4, seed=seed, scale=2.0), torch.randint(3, (n * size,), generator=torch.Generator().manual_seed(seed))
    return [(x[i * size : (i + 1) * size], y[i * size : (i + 1) * size]) for i in range(n)]


def gradients_of(batches, weight=1.0):
    """The gradient of the loss over all windows at once, as one vector, and that loss."""
    model = Tiny()
    x, y = (torch.cat(parts) for parts in zip(*batches))
    loss = model(x, y)[1]
    (weight * loss).backward()
    return flat([p.grad for p in model.parameters()]), loss.item()


def accumulated(accumulate, batches, model=None):
    """The gradients after accumulate as one vector, its result and the model."""
    model = model or Tiny()
    before = flat(model.parameters())
    given, random = [(x.clone(), y.clone()) for x, y in batches], torch.get_rng_state()
    listed = list(given)
    result = accumulate(model, given)
    if len(given) != len(listed) or any(a is not b for a, b in zip(given, listed)):
        fail("the list of batches is changed: the caller still needs it.", look="pop, and shuffling or assigning into batches")
    if any(not torch.equal(a, b) for mine, theirs in zip(batches, given) for a, b in zip(mine, theirs)):
        fail("the windows of a batch are changed in place: the caller still needs them.")
    if not torch.equal(torch.get_rng_state(), random):
        fail("random numbers are drawn or a seed is set: each step would get the same batches, or others than it should.", look="torch.manual_seed")
    if not equal(flat(model.parameters()), before, 0):
        fail("the parameters are changed: accumulate only adds up gradients, the optimizer's step comes after it.")
    if any(p.grad is None for p in model.parameters()):
        fail("a parameter has no gradient afterwards.", look="loss.backward(), for every micro-batch; and zero_grad, which belongs to the caller")
    return flat([p.grad for p in model.parameters()]), result, model


@checks(ACCUMULATE, "the gradient of the big batch")
def accumulate_gradient(accumulate):
    for n, size in [(3, 5), (5, 2)]:
        batches = micro_batches(n, size)
        got, _, _ = accumulated(accumulate, batches)
        want, _ = gradients_of(batches)
        last, _ = gradients_of(batches[-1:])
        first, _ = gradients_of(batches[:1])
        tail = gradients_of(batches[1:])[0] * (n - 1)
        head = gradients_of(batches[:-1])[0] * (n - 1)
        halving = torch.zeros_like(want)
        for pair in batches:
            halving = halving + gradients_of([pair])[0]
            halving = halving / n
        close(got, want, 1e-5, name=f"the gradient over {n} micro-batches of {size}", known=[
            (f"the gradients are summed, not averaged: {n} times too large. Each loss is divided by the number of micro-batches.", want * n),
            (f"the loss is divided twice: {n} times too small.", want / n),
            ("the loss is divided by the size of a micro-batch; by their number is meant.", want * n / size),
            ("the loss is divided by the number of windows in all; the mean over a micro-batch is already taken.", want / size),
            ("only the last micro-batch counts: zero_grad stands inside the loop, or backward after it.", last),
            ("only the last micro-batch counts: zero_grad stands inside the loop, or backward after it.", last / n),
            ("only the first micro-batch counts.", first),
            ("only the first micro-batch counts.", first / n),
            ("the first micro-batch does not count.", tail / n),
            ("the last micro-batch is dropped.", head / n),
            ("the first micro-batch does not count.", tail / (n - 1)),
            ("the last micro-batch is dropped.", head / (n - 1)),
            ("the gradient so far is divided again at each micro-batch: divide the loss, not .grad.", halving),
            ("the sign is wrong.", -want),
            ("backward runs twice on each micro-batch.", want * 2),
            *((f"the loss is divided by {k}, however many micro-batches there are.", want * n / k) for k in (4, 8, 12, 16, 32)),
            ("each loss is divided by its own place in the list; by the number of all is meant.", sum(gradients_of([pair])[0] / (i + 1) for i, pair in enumerate(batches))),
        ], look="what else changes .grad in the loop: clipping comes after it, when the gradient is whole")


    batches = micro_batches(3, 5)
    model = Tiny(own_loss=True)
    x, y = (torch.cat(parts) for parts in zip(*batches))
    model(x, y)[1].backward()
    want = flat([p.grad for p in model.parameters()])
    got, _, _ = accumulated(accumulate, batches, Tiny(own_loss=True))
    close(got, want, 1e-5, name="the gradient of a model with a loss of its own", known=[
        ("the loss is computed anew from the logits; the one that the model gives, its second result, is meant.", gradients_of(batches)[0]),
    ])


@checks(ACCUMULATE, "the loss that is returned")
def accumulate_loss(accumulate):
    n, size = 3, 4
    batches = micro_batches(n, size, seed=1)
    _, result, _ = accumulated(accumulate, batches)
    _, want = gradients_of(batches)
    if isinstance(result, torch.Tensor) and result.requires_grad:
        fail("the loss that is returned still hangs on its graph, and so keeps all activations alive.", look=".item() makes a number of it")
    if isinstance(result, torch.Tensor) and result.numel() == 1:
        result = result.item()
    if result is None:
        fail("accumulate gives None. Is there a return at the end?")
    if isinstance(result, bool) or not isinstance(result, (int, float)):
        fail(f"accumulate should give the mean loss as a float and gives a {type(result).__name__}.")
    each = [gradients_of([pair])[1] for pair in batches]
    close(torch.tensor(float(result)), torch.tensor(want), 1e-5, name="the loss", known=[
        ("the loss of the last micro-batch is returned; the mean over all is meant.", torch.tensor(each[-1])),
        ("the loss of the last micro-batch is returned, divided by their number; the mean over all is meant.", torch.tensor(each[-1] / n)),
        ("the loss of the first micro-batch is returned; the mean over all is meant.", torch.tensor(each[0])),
        ("the sum of the losses is returned; their mean is meant.", torch.tensor(sum(each))),
        ("the loss that is returned is divided twice.", torch.tensor(want / n)),
        ("the smallest loss is returned; the mean is meant.", torch.tensor(min(each))),
        ("the largest loss is returned; the mean is meant.", torch.tensor(max(each))),
    ])


@checks(ACCUMULATE, "one micro-batch at a time")
def accumulate_memory(accumulate):
    _, _, model = accumulated(accumulate, micro_batches(4, 3, seed=2))
    if max(model.sizes) > 3:
        fail(f"the model gets {max(model.sizes)} windows at once, and the micro-batches have 3: that needs the memory which accumulation saves.", look="torch.cat of the batches")
    if len(model.sizes) != 4:
        fail(f"the model runs {len(model.sizes)} times for 4 micro-batches.", look="calls of model(...) in the loop, one is enough")
    if model.empty[1]:
        fail(
            "backward comes only after all forward passes: until then the activations of every micro-batch are kept, as with the big batch.",
            look="loss.backward() inside the loop: it adds to .grad and frees the graph",
        )


@checks(ACCUMULATE, "gradients that are there already")
def accumulate_adds(accumulate):
    one, two = micro_batches(2, 3, seed=3), micro_batches(2, 3, seed=4)
    _, _, model = accumulated(accumulate, one)
    got, _, _ = accumulated(accumulate, two, model)
    first, second = gradients_of(one)[0], gradients_of(two)[0]
    close(got, first + second, 1e-5, name="the gradient after two calls", known=[
        ("the gradients from before are cleared: zero_grad is the caller's, who decides when a step is over.", second),
        ("the gradients from before are divided with the new ones: divide each loss, not .grad.", first / 2 + second),
    ])


@checks(ACCUMULATE, "a single micro-batch, and the mode of the model")
def accumulate_single(accumulate):
    for training in (True, False):
        model = Tiny().train(training)
        batches = micro_batches(1, 5, seed=5)
        got, result, _ = accumulated(accumulate, batches, model)
        close(got, gradients_of(batches)[0], 1e-5, name="the gradient over one micro-batch")
        if model.training != training or model.modes[0][0] != training:
            fail("the model's mode (train or eval) is changed: that is the caller's.")


# --- checkpoints ---------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
        self.register_buffer("scale", torch.tensor(0.5 + seed))
        fill(self, seed=seed)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x))) * self.scale


def net_and_optimizer(seed=0, lr=0.05):
    model = Net(seed)
    return model, torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.8, 0.9), weight_decay=0.1)


def train(model, optimizer, steps):
    """Steps whose data and noise come from the global random numbers."""
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randn(6, 3)
        (model(x + 0.1 * torch.rand(6, 3)) - x[:, :2]).square().mean().backward()
        optimizer.step()


def tree_equal(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(tree_equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(tree_equal, a, b))
    return type(a) is type(b) and a == b


def saved(save_checkpoint, folder, it=7, name="run.pt", as_path=str, seed=0, steps=3):
    """(what the file holds; the states of model, optimizer and random numbers when it was saved)."""
    model, optimizer = net_and_optimizer(seed)
    train(model, optimizer, steps)
    path = Path(folder) / name
    random = torch.get_rng_state()
    before = copy.deepcopy((dict(model.state_dict()), optimizer.state_dict()))
    save_checkpoint(as_path(path), model, optimizer, it)
    if not path.exists():
        near = ", ".join(os.listdir(folder)) or "nothing"
        fail(f"there is no file at path afterwards; the folder holds {near}.", look="the name that is written to, and os.replace(unfinished, path)")
    try:
        state = torch.load(path, weights_only=True)
    except Exception:
        fail(
            "the file cannot be read by torch.load with weights_only=True: it holds whole objects, or is none of torch.save's.",
            look="save model.state_dict() and optimizer.state_dict(), not the objects, which break when their code changes",
        )
    return state, *before, random


@checks(SAVE, "what the file holds")
def file_holds(save_checkpoint):
    with tempfile.TemporaryDirectory() as folder:
        state, model, optimizer, random = saved(save_checkpoint, folder)
    if not isinstance(state, dict):
        fail(f"the file holds a {type(state).__name__}; a dict with model, optimizer, it and rng is meant.")
    for key in ("model", "optimizer", "it", "rng"):
        if key not in state:
            lost = {
                "model": "the weights", "optimizer": "AdamW's m, v and step count, so that it starts as if new",
                "it": "how far the run was, so that the schedule starts anew", "rng": "the state of the random numbers, so that other batches come",
            }[key]
            fail(f'the file has no "{key}": a run that resumes loses {lost}.', example=f"it holds {', '.join(map(str, state)) or 'nothing'}")
    if not tree_equal(state["model"], model):
        what = "only its parameters, and no buffers" if isinstance(state["model"], dict) and state["model"].keys() < model.keys() else "something else"
        fail(f'"model" should hold model.state_dict() and holds {what}.')
    if not tree_equal(state["optimizer"], optimizer):
        fail('"optimizer" should hold optimizer.state_dict() and holds something else.', look="all of it: moments, step counts and settings")
    if not isinstance(state["it"], int) or isinstance(state["it"], bool):
        fail(f'"it" is a {type(state["it"]).__name__}; the int that is given is meant.')
    if state["it"] != 7:
        near = " The number that is given is kept as it is." if state["it"] in (6, 8) else ""
        fail(f'"it" is {state["it"]}, expected 7.{near}')
    if not tree_equal(state["rng"], random):
        if isinstance(state["rng"], int):
            fail('"rng" holds a number, a seed: it would start the random numbers anew. torch.get_rng_state() is where they are now.')
        fail('"rng" should hold torch.get_rng_state() as it was when save_checkpoint was called.', look="whether random numbers are drawn, or a seed is set, before it")


@checks(SAVE, "model, optimizer and random numbers stay as they are")
def save_changes_nothing(save_checkpoint):
    model, optimizer = net_and_optimizer()
    train(model, optimizer, 2)
    for training in (True, False):
        model.train(training)
        before = copy.deepcopy((dict(model.state_dict()), optimizer.state_dict()))
        gradients = flat([p.grad for p in model.parameters()])
        random = torch.get_rng_state()
        with tempfile.TemporaryDirectory() as folder:
            save_checkpoint(os.path.join(folder, "run.pt"), model, optimizer, 3)
        if not torch.equal(torch.get_rng_state(), random):
            fail("saving draws random numbers or sets a seed: the run goes another way with a checkpoint than without.")
        if model.training != training:
            fail("saving changes the model's mode (train or eval).", look="model.eval() and model.train()")
        if not tree_equal((dict(model.state_dict()), optimizer.state_dict()), before):
            fail("saving changes the model or the optimizer.")
        if any(p.grad is None for p in model.parameters()) or not equal(flat([p.grad for p in model.parameters()]), gradients, 0):
            fail("saving clears the gradients.")


class Interrupted(Exception):
    pass


class Bomb:
    """A value that ends torch.save in the middle of its file, as a full disk or a lost process does."""

    def __reduce__(self):
        raise Interrupted


class BombedOptimizer:
    def state_dict(self):
        return {"state": {}, "bomb": Bomb()}


@checks(SAVE, "an interrupted save leaves the old file")
def save_interrupted(save_checkpoint):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.pt"
        saved(save_checkpoint, folder, it=7)
        before = path.read_bytes()
        try:
            save_checkpoint(str(path), Net(5), BombedOptimizer(), 8)
        except BaseException as error:
            if error.__class__.__module__ == "course.deadline":
                raise
        left = path.read_bytes() if path.exists() else None
        if left is None:
            fail("a save that is interrupted leaves no file: the old one is removed before the new one is whole.", look="write to another name first, then os.replace")
        if left != before:
            fail(
                "a save that is interrupted destroys the file that was there: it is written in place.",
                example="a run is stopped while it saves iteration 8; iteration 7 cannot be read any more",
                look="write to another name in the same folder, then os.replace(unfinished, path), which happens at once or not at all",
            )


        try:
            save_checkpoint(os.path.join(folder, "first.pt"), Net(5), BombedOptimizer(), 8)
        except BaseException as error:
            if error.__class__.__module__ == "course.deadline":
                raise
        else:
            fail("a save that fails ends without an error: the run goes on and believes that it has its checkpoint.", look="an except that keeps the error to itself; raise hands it on")


@contextlib.contextmanager
def files_moved():
    """Notes what is removed and renamed in the block: lists of one or two real paths, in order."""
    names, heard = ("remove", "unlink", "rename", "replace"), []

    def noted(original):
        def call(*paths, **options):
            heard.append([os.path.realpath(os.fspath(p)) for p in [*paths, *options.values()] if isinstance(p, (str, os.PathLike))])
            return original(*paths, **options)

        return call

    kept = {name: getattr(os, name) for name in names}
    for name in names:
        setattr(os, name, noted(kept[name]))
    try:
        yield heard
    finally:
        for name in names:
            setattr(os, name, kept[name])


@checks(SAVE, "the finished file takes the place of the old one at once")
def save_replaces(save_checkpoint):
    with tempfile.TemporaryDirectory() as folder:
        path, old = Path(folder) / "run.pt", Path(folder) / "old.pt"
        saved(save_checkpoint, folder, it=7)
        before = path.read_bytes()
        try:
            os.link(path, old)                                # a second name of the old file: it must keep its bytes
        except OSError:
            return
        with files_moved() as heard:
            state, model, _, _ = saved(save_checkpoint, folder, it=8, seed=3)
        if old.read_bytes() != before:
            fail(
                "the bytes go into the old file one by one: who is interrupted there has neither the old nor the new one.",
                look="copying, or opening path for writing: os.replace(unfinished, path) moves a finished file",
            )
        real = os.path.realpath(path)
        for paths in heard:
            if paths[:1] == [real]:
                fail(
                    "the old file is removed or moved away before the new one has its name: who is interrupted between the two has no file at path.",
                    look="os.remove, unlink, or a rename of the old file; os.replace(unfinished, path) needs none of them",
                )
            if paths[1:] == [real] and not paths[0].startswith(os.path.dirname(real) + os.sep):
                fail(
                    "the unfinished file is in another folder: that may be another disk, from which os.replace cannot move it at once, or not at all.",
                    look="its name: path and something after it, so that it stands beside path",
                )
        if state["it"] != 8 or not tree_equal(state["model"], model):
            fail("a second save to the same path does not replace the first.", look="a test whether the file exists")


@checks(SAVE, "paths")
def save_paths(save_checkpoint):
    for as_path in (str, Path):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("run.pt", "run", "last.best.pt"):
                try:
                    state, *_ = saved(save_checkpoint, folder, it=0, name=name, as_path=as_path, steps=1)
                except (TypeError, AttributeError) as error:
                    fail(f"a path of type {as_path.__name__} stops it ({type(error).__name__}: {error}).", look="str and Path both come: Path(path) and f\"{path}\" take either")
                if state["it"] != 0:
                    fail(f'"it" is {state["it"]} for iteration 0.', look="`it or ...`: 0 counts as false")
    with tempfile.TemporaryDirectory() as folder:
        kept = os.getcwd()
        os.chdir(folder)
        try:
            saved(save_checkpoint, ".", name="run.pt", steps=1)
        finally:
            os.chdir(kept)


def checkpoint_file(folder, name="run.pt", it=7, steps=5):
    """A file as save_checkpoint writes it, and the run that it comes from."""
    model, optimizer = net_and_optimizer()
    torch.manual_seed(5)
    train(model, optimizer, steps)
    path = Path(folder) / name
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "it": it, "rng": torch.get_rng_state()}, path)
    return path, model, optimizer


def load_it(load_checkpoint, path, model, optimizer):
    try:
        return load_checkpoint(path, model, optimizer)
    except (KeyError, TypeError, AttributeError) as error:
        if "Path'" in str(error) or "'str'" in str(error) and "path" in str(error):
            fail(f"a path of type {type(path).__name__} stops it ({type(error).__name__}: {error}).", look="str and Path both come: torch.load takes either")
        fail(
            f"your code raises {type(error).__name__}: {error}. The file holds a dict with model, optimizer, it and rng, as save_checkpoint writes it.",
            look="the keys",
        )


@checks(LOAD, "model, optimizer, random numbers and iteration come back")
def load_restores(load_checkpoint):
    with tempfile.TemporaryDirectory() as folder:
        path, model, optimizer = checkpoint_file(folder)
        random = torch.get_rng_state()
        mine, my_optimizer = net_and_optimizer(seed=40, lr=0.9)
        params = list(mine.parameters())
        torch.manual_seed(1234)
        elsewhere = torch.get_rng_state()
        it = load_it(load_checkpoint, str(path), mine, my_optimizer)
    if not tree_equal(dict(mine.state_dict()), dict(model.state_dict())):
        if all(tree_equal(p.detach(), q.detach()) for p, q in zip(mine.parameters(), model.parameters())):
            fail("the parameters of the model come back, and its buffers do not.", look="model.load_state_dict, which takes both")
        if any(p.dtype != q.dtype for p, q in zip(mine.parameters(), model.parameters())):
            fail("loading changes the dtype of the model.")
        fail("the weights of the model are not those of the file.", look="model.load_state_dict")
    if any(a is not b for a, b in zip(params, mine.parameters())):
        fail("the model has new parameters, and the optimizer still holds the old ones.", look="model.load_state_dict fills the parameters that are there")
    got, want = my_optimizer.state_dict(), optimizer.state_dict()
    if not got["state"]:
        fail("the optimizer is as new: m, v and the step count are not loaded.", look="optimizer.load_state_dict")
    if not tree_equal(got, want):
        fail("the state of the optimizer is not that of the file.", look="optimizer.load_state_dict, which brings back the settings as well")
    if it is None:
        fail("load_checkpoint gives None. Is there a return at the end? The caller wants to know where to go on.")
    if not isinstance(it, int) or isinstance(it, bool):
        fail(f"load_checkpoint should give the iteration, an int, and gives a {type(it).__name__}.")
    if it != 7:
        near = " The number that was saved is given back as it is." if it in (6, 8) else ""
        fail(f"load_checkpoint gives {it}, expected 7.{near}")
    if not torch.equal(torch.get_rng_state(), random):
        if torch.equal(torch.get_rng_state(), elsewhere):
            fail("the random numbers go on as if nothing had been loaded: the batches after a resume are others.", look="torch.set_rng_state")
        fail("the state of the random numbers is not that of the file.", look="what draws random numbers, or sets a seed, after torch.set_rng_state")


@checks(LOAD, "a resumed run goes on bit for bit")
def load_continues(load_checkpoint):
    for steps in (5, 1):
        with tempfile.TemporaryDirectory() as folder:
            path, model, optimizer = checkpoint_file(folder, steps=steps, it=0)
            train(model, optimizer, 5)
            mine, my_optimizer = net_and_optimizer(seed=40)
            train(mine, my_optimizer, 2)                      # an old state that must go
            it = load_it(load_checkpoint, path, mine, my_optimizer)
            train(mine, my_optimizer, 5)
        if it != 0:
            fail(f"load_checkpoint gives {it} for a file of iteration 0.", look="`it or ...`: 0 counts as false")
        if not tree_equal(dict(mine.state_dict()), dict(model.state_dict())):
            gap = max((a - b).abs().max().item() for a, b in zip(mine.parameters(), model.parameters()))
            fail("a resumed run does not go on as the run would have gone.", example=f"{steps} + 5 steps differ from {steps + 5} in one go by {gap:.2g}")


@checks(LOAD, "the mode of the model, and the file")
def load_leaves(load_checkpoint):
    with tempfile.TemporaryDirectory() as folder:
        path, _, _ = checkpoint_file(folder)
        before = path.read_bytes()
        for training in (True, False):
            model, optimizer = net_and_optimizer(seed=3)
            model.train(training)
            load_it(load_checkpoint, str(path), model, optimizer)
            if not path.exists() or path.read_bytes() != before:
                fail("loading changes or removes the file.")
            if model.training != training:
                fail("loading changes the model's mode (train or eval): a run would go on without dropout.", look="model.eval() and model.train()")


@checks(LOAD, "a file of another model")
def load_other_model(load_checkpoint):
    with tempfile.TemporaryDirectory() as folder:
        path, _, _ = checkpoint_file(folder)
        state = torch.load(path, weights_only=True)
        del state["model"]["a.bias"]
        torch.save(state, path)
        model, optimizer = net_and_optimizer(seed=3)
        try:
            load_checkpoint(str(path), model, optimizer)
        except Exception:
            return
        fail("a file in which a.bias is missing is loaded without a word: that layer keeps its random numbers.", look="strict=False, or a loop over the keys that are there")


RAN = []


def note_that_it_ran():
    RAN.append(True)


class Code:
    def __reduce__(self):
        return (note_that_it_ran, ())


@checks(LOAD, "a file that holds code")
def load_code(load_checkpoint):
    with tempfile.TemporaryDirectory() as folder:
        path, _, _ = checkpoint_file(folder)
        state = torch.load(path, weights_only=True)
        torch.save({**state, "extra": Code()}, path)
        RAN.clear()
        model, optimizer = net_and_optimizer(seed=3)
        try:
            load_checkpoint(str(path), model, optimizer)
        except Exception:
            pass
        if RAN:
            fail("a file from elsewhere can run code of its own when it is loaded.", look="weights_only: with True torch.load takes tensors, numbers and containers, and nothing else")
