"""Checks of lesson 16: the port of training. Oracles: torch.optim, autograd on the full batch, lesson 07's formulas in float64.

An optimizer of MindSpore is put into the clothes of a PyTorch one, so that the checks of lesson 07 run on it.
"""
import contextlib
import inspect
import math

import mindspore as ms
import numpy as np
import torch
from mindspore import nn

from course.checks import Mismatch, checks
from course.checks.mindspore import GRAPH_RULES, close, equal, fail, first_words, in_a_folder_of_its_own, is_tensor, rand, source_line, wait
from course.checks.pytorch import training as in_pytorch

ms.runtime.launch_blocking()    # the checks run thousands of operations on a few numbers: waiting for each is many times faster than handing over

ADAMW = "mindspore.training.AdamW"
CLIP = "mindspore.training.clip_grad_norm"
ACCUMULATE = "mindspore.training.accumulate"


@contextlib.contextmanager
def in_words_of_mindspore(words):
    """A Mismatch of the PyTorch checks, with what MindSpore calls it."""
    try:
        yield
    except Mismatch as found:
        text = str(found)
        for theirs, ours in words.items():
            text = text.replace(theirs, ours)
        raise Mismatch(text) from None


def in_graph(function, answer):
    """ms.jit(function), whose errors become sentences; fails if a compiled call hands numbers to Python on the way."""
    compiled, calls = ms.jit(function), []

    def run(*args):
        try:
            with in_a_folder_of_its_own(), counted_reads() as reads:
                got = compiled(*args)
            wait(got)
        except Exception as error:
            text = str(error)
            rule = rule_of(text)
            if rule == UNKNOWN_RULE and reads_numbers(answer):
                rule = "asnumpy() and item() leave the graph: stay with tensors, and let operations such as ops.minimum decide."
            fail(f"it works eagerly and not in graph mode: {rule}", example=first_words(text), look=source_line(text))
        calls.append(len(reads))
        if len(calls) > 1 and calls[-1] and reads_numbers(answer):
            fail(
                "the compiled step stops on the way and hands numbers to Python: asnumpy() leaves the graph, and the device waits.",
                example=f"asnumpy() runs {calls[-1]} time{'s' if calls[-1] > 1 else ''} in one call that is compiled already",
                look=".asnumpy() in your code: stay with tensors",
            )
        return got

    return run


@contextlib.contextmanager
def counted_reads():
    """A list that grows by one whenever a tensor's asnumpy is called."""
    reads, theirs = [], ms.Tensor.asnumpy

    def asnumpy(tensor, *args, **kwargs):
        reads.append(tensor)
        return theirs(tensor, *args, **kwargs)

    ms.Tensor.asnumpy = asnumpy
    try:
        yield reads
    finally:
        ms.Tensor.asnumpy = theirs


def reads_numbers(answer):
    """Whether asnumpy or item stands in the learner's source."""
    try:
        text = inspect.getsource(answer)
    except (OSError, TypeError):
        return False
    return ".asnumpy(" in text or ".item(" in text


RULES = [
    ("set_data", "set_data is a Python call that a graph cannot hold: ops.assign writes into a Parameter in both modes."),
    ("Data type conversion is not supported for a 'Parameter'", "a Python number that changes, or a float64, is part of the computation: keep it as a float32 Parameter."),
    ("append", "a Python list cannot grow inside a graph."),
    *GRAPH_RULES,
]


UNKNOWN_RULE = "the graph compiler does not accept it."


def rule_of(text):
    return next((words for mark, words in RULES if mark in text), UNKNOWN_RULE)


# --- AdamW ---------------------------------------------------------------------------------------------


def parameters(values, names=None):
    names = names or [f"layer.{i}" for i in range(len(values))]
    return [ms.Parameter(ms.Tensor(np.asarray(v, np.float32)), name=n) for n, v in zip(names, values)]


def made(AdamW, params, **settings):
    """The learner's optimizer; sentences for what a step needs and it lacks."""
    optimizer = AdamW(params, **settings)
    if not isinstance(optimizer, nn.Cell):
        fail(
            f"the optimizer should be a mindspore.nn.Cell and is of type {type(optimizer).__mro__[-2].__name__ if len(type(optimizer).__mro__) > 1 else 'object'}: "
            "the compiler finds Parameters through the Cell that owns them.",
            look="the line with class",
        )
    return optimizer


def step_with(optimizer, params, arrays):
    """One step; fails if the gradients are changed, or the step speaks of a kernel that is not there."""
    grads = tuple(ms.Tensor(np.asarray(g, np.float32)) for g in arrays)
    try:
        returned = optimizer.step(grads)
        for p in params:
            p.asnumpy()
    except TypeError as error:
        if "positional argument" in str(error) and "step()" in str(error):
            fail("step takes the gradients as its argument, step(grads): a Parameter of MindSpore has no .grad to read them from.", example=str(error))
        raise
    except (RuntimeError, ValueError) as error:
        if "'Assign'" in str(error) and params_in_another_order(optimizer, params, grads):
            fail(
                "a parameter gets the gradient of another: gradients come in the order of the parameters.",
                example=f"shapes of the parameters: {', '.join(str(tuple(p.shape)) for p in params)}, with gradients of the same shapes: {first_words(str(error))}",
                look="the order in which step goes through grads",
            )
        if "unregistered" in str(error) or "Unsupported op" in str(error):
            fail("an operation of the step has no kernel on this device.", example=first_words(str(error)), look="mint.* and the optimizers of mint: lesson 10's list")
        raise
    for mine, given in zip(grads, arrays):
        if not np.array_equal(mine.asnumpy(), np.asarray(given, np.float32)):
            fail("step changes the gradients that it is given.", look="ops.assign(grads[i], ...) and slices that are assigned")
    return returned


def params_in_another_order(optimizer, params, grads):
    """Whether the step runs with the gradients the other way round."""
    try:
        optimizer.step(grads[::-1])
        for p in params:
            p.asnumpy()
    except Exception:
        return False
    return True


def in_pytorch_clothes(AdamW):
    """A class with the face of lesson 07's AdamW around the learner's: reads p.grad, writes p."""

    class Clothed:
        def __init__(self, params, **settings):
            self.theirs = list(params)
            self.params = parameters([p.detach().numpy() for p in self.theirs])
            self.optimizer = made(AdamW, self.params, **settings)
            defaults = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
            self.param_groups = [{"params": self.theirs, **defaults, **settings}]

        @torch.no_grad()
        def step(self):
            step_with(self.optimizer, self.params, [p.grad.numpy() for p in self.theirs])
            for p, mine in zip(self.theirs, self.params):
                if tuple(mine.shape) != tuple(p.shape) or mine.dtype != ms.float32:
                    fail(f"a parameter of shape {tuple(p.shape)} and dtype Float32 becomes {tuple(mine.shape)}, {mine.dtype} in a step: set_data takes any shape.", look="what is assigned to p")
                p.copy_(torch.from_numpy(mine.asnumpy().copy()).reshape(p.shape))

    return Clothed


WORDS = {
    "step leaves the parameter as it was.": "step leaves the parameter as it was, and says nothing.",
    "an update that makes a new tensor (p = p - ...) and never reaches p, or m and v that are used before the gradient has entered them":
        "add_, mul_, -= and +=: on a CPU they give the right value in eager mode and change nothing; p = p - ... makes a new tensor; ops.assign(p, ...) writes",
    "dicts and lists that are made in the class or as a default argument, outside __init__": "Parameters and lists that are made in the class or as a default argument, outside __init__",
    "p.dim()": "p.ndim",
}


@checks(ADAMW, "what a checkpoint reads: lr, t, m, v")
def state_is_there(AdamW):
    names = ["wte.weight", "ln_f.bias"]
    params = parameters([rand(5, 3, seed=1), rand(3, seed=2)], names)
    optimizer = made(AdamW, params, lr=0.25)
    for name in ("lr", "t"):
        value = getattr(optimizer, name, None)
        if isinstance(value, ms.Tensor) and not isinstance(value, ms.Parameter):
            fail(f"{name} is a plain tensor: a compiled step can change nothing but Parameters, and reads others only once.", look="ms.Parameter(...) in __init__")
        if not isinstance(value, ms.Parameter):
            fail(
                f"{name} is {'missing' if value is None else f'a Python {type(value).__name__}'}: the compiler takes it for a constant, so a compiled step would never see it change.",
                example=f"optimizer.{name} should be a mindspore.Parameter", look="ms.Parameter(ms.Tensor(...), name=...) in __init__",
            )
        if tuple(value.shape) != () or value.dtype != ms.float32:
            fail(
                f"{name} has shape {tuple(value.shape)} and dtype {value.dtype}; a Parameter of shape () and float32 is meant: load_checkpoint and set_lr assign such a number, and ops.assign converts nothing.",
                look=f"the Parameter {name} in __init__: ms.Tensor(number, ms.float32)",
            )
    if float(optimizer.t.asnumpy()) != 0:
        fail(f"a new optimizer has t = {float(optimizer.t.asnumpy()):g}, expected 0: it counts the steps that were done.")
    if abs(float(optimizer.lr.asnumpy()) - 0.25) > 1e-6:
        fail(f"lr is {float(optimizer.lr.asnumpy()):g}, expected the 0.25 that was given.")
    for kind in "mv":
        held = getattr(optimizer, kind, None)
        if not isinstance(held, (tuple, list)) or len(held) != 2:
            fail(f"{kind} should hold a Parameter for each parameter, in their order, and is {'missing' if held is None else f'a {type(held).__name__}'}.", look="ParameterTuple.clone")
        for p, state in zip(params, held):
            if not isinstance(state, ms.Parameter):
                fail(f"an entry of {kind} is a {type(state).__name__}: a compiled step can change nothing but Parameters.", look="ParameterTuple.clone in __init__")
            if tuple(state.shape) != tuple(p.shape):
                fail(f"the {kind} of a parameter of shape {tuple(p.shape)} has shape {tuple(state.shape)}: every entry has its own.")
            if np.abs(state.asnumpy()).max() > 0:
                fail(f"{kind} does not start at 0.", look='init="zeros"')
            if state.name != f"{kind}.{p.name}":
                fail(f"the {kind} of {p.name} is named {state.name}, expected {kind}.{p.name}: a checkpoint finds it by that name.", look="the prefix given to ParameterTuple.clone")
    returned = step_with(optimizer, params, [rand(5, 3, seed=3), rand(3, seed=4)])
    if returned is None:
        fail("step returns nothing: it returns t, so that ops.depend(loss, optimizer.step(grads)) has something to tie the loss to.", look="return at the end of step")
    if abs(float(optimizer.t.asnumpy()) - 1) > 1e-6:
        fail(f"after one step t is {float(optimizer.t.asnumpy()):g}, expected 1: a run that resumes would correct m and v wrongly.")
    for kind in "mv":
        if any(np.abs(s.asnumpy()).max() == 0 for s in getattr(optimizer, kind)):
            fail(f"after a step {kind} is still 0: the optimizer keeps its state elsewhere, and a checkpoint would lose it.", look=f"what self.{kind} is, and what step writes")


@checks(ADAMW, "two optimizers beside each other")
def two_optimizers(AdamW):
    with in_words_of_mindspore(WORDS):
        in_pytorch.two_optimizers(in_pytorch_clothes(AdamW))
    mine, other = parameters([rand(3, 4, seed=5)]), parameters([rand(3, 4, seed=6)])
    first, _ = made(AdamW, mine, lr=0.1), made(AdamW, other, lr=0.1)
    step_with(first, mine, [rand(3, 4, seed=7)])
    if not np.array_equal(other[0].asnumpy(), rand(3, 4, seed=6)):
        fail("the step of one optimizer changes the parameters of another.", look="what belongs to the class and not to self")


@checks(ADAMW, "the first step")
def first_step(AdamW):
    with in_words_of_mindspore(WORDS):
        in_pytorch.first_step(in_pytorch_clothes(AdamW))


ARGUMENTS = {"lr": 0.02, "betas": (0.8, 0.95), "eps": 0.3, "weight_decay": 0.4}
DEFAULTS = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}


@checks(ADAMW, "the arguments by their place, each with an effect")
def the_arguments(AdamW):
    def after(make):
        params = parameters([rand(3, 4, seed=14), rand(4, seed=15)])
        optimizer = make(params)
        for i in range(2):
            step_with(optimizer, params, [rand(3, 4, seed=16 + i), rand(4, seed=18 + i)])
        return flat([p.asnumpy() for p in params])

    def theirs(**settings):
        params = torch_copies(parameters([rand(3, 4, seed=14), rand(4, seed=15)]))
        oracle = torch_adamw(params, **settings)
        for i in range(2):
            torch_step(oracle, params, [rand(3, 4, seed=16 + i), rand(4, seed=18 + i)])
        return flat([p.detach().numpy() for p in params])

    def same(a, b):
        return np.allclose(a, b, rtol=0, atol=1e-6)

    got = after(lambda params: made(AdamW, params, **ARGUMENTS))
    for name in ARGUMENTS:
        if same(got, theirs(**{**ARGUMENTS, name: DEFAULTS[name]})):
            fail(f"the argument {name} has no effect: another value is used whatever is given.", example=f"{name} = {ARGUMENTS[name]} gives what {name} = {DEFAULTS[name]} gives", look=f"where {name} goes in __init__")
    order = "the arguments stand in another order than params, lr, betas, eps, weight_decay, as in PyTorch."
    try:
        placed = after(lambda params: AdamW(params, *ARGUMENTS.values()))
    except Exception as error:
        fail(order, example=f"AdamW(params, 0.02, (0.8, 0.95), 0.3, 0.4) raises {type(error).__name__}: {first_words(str(error))}", look="the signature of __init__")
    if not same(placed, got):
        fail(order, example="AdamW(params, 0.02, (0.8, 0.95), 0.3, 0.4) does not do what the same values do by name", look="the signature of __init__")


@checks(ADAMW, "eight steps")
def eight_steps(AdamW):
    try:
        with in_words_of_mindspore(WORDS):
            in_pytorch.eight_steps(in_pytorch_clothes(AdamW))
    except Mismatch as found:
        if "wrong values" in str(found):
            moments(AdamW)                                    # it may have a name for it
        raise


@checks(ADAMW, "what m and v hold")
def moments(AdamW):
    beta1, beta2 = 0.8, 0.95
    params = parameters([rand(3, 4, seed=22)])
    optimizer = made(AdamW, params, lr=0.01, betas=(beta1, beta2), weight_decay=0.0)
    g, h = rand(3, 4, seed=23, scale=3.0), rand(3, 4, seed=24, scale=0.1)
    step_with(optimizer, params, [g])
    step_with(optimizer, params, [h])
    g, h = g.astype(np.float64), h.astype(np.float64)
    look = "what is written into m and v: a checkpoint carries them to the other framework, so they hold what PyTorch's hold"
    m, v = (1 - beta1) * (beta1 * g + h), (1 - beta2) * (beta2 * g * g + h * h)
    close(optimizer.m[0], m.astype(np.float32), 1e-5, name="m after two steps", look=look, known=[
        ("m holds the value that is already divided by 1 - beta1**t: the correction is for the step only, m keeps the plain mean.", m / (1 - beta1**2)),
        ("m holds the sum without the factor 1 - beta1: a checkpoint of the other framework would not fit.", m / (1 - beta1)),
        ("m holds the last gradient's share only.", (1 - beta1) * h),
    ])
    close(optimizer.v[0], v.astype(np.float32), 1e-5, name="v after two steps", look=look, known=[
        ("v never becomes smaller: that is AMSGrad. Here old gradients are forgotten.", np.maximum((1 - beta2) * g * g, v)),
        ("v holds the value that is already divided by 1 - beta2**t: the correction is for the step only, v keeps the plain mean.", v / (1 - beta2**2)),
        ("v holds the sum without the factor 1 - beta2: a checkpoint of the other framework would not fit.", v / (1 - beta2)),
        ("v holds its square root.", np.sqrt(v)),
        ("v holds the last gradient's share only.", (1 - beta2) * h * h),
    ])


@checks(ADAMW, "weight decay")
def decay(AdamW):
    with in_words_of_mindspore(WORDS):
        in_pytorch.decay(in_pytorch_clothes(AdamW))


@checks(ADAMW, "small gradients")
def small_gradients(AdamW):
    with in_words_of_mindspore(WORDS):
        in_pytorch.small_gradients(in_pytorch_clothes(AdamW))


@checks(ADAMW, "which parameters decay")
def which_decay(AdamW):
    with in_words_of_mindspore(WORDS):
        in_pytorch.which_decay(in_pytorch_clothes(AdamW))


@checks(ADAMW, "the defaults")
def the_defaults(AdamW):
    def run(stepper):
        params = parameters([rand(3, 4, seed=8), rand(4, seed=9), rand(2, 3, seed=10)])
        after = stepper(params)
        for i in range(3):
            after([rand(3, 4, seed=20 + i), rand(4, seed=30 + i), rand(2, 3, seed=40 + i, scale=3e-8)])
        return params

    def theirs(**settings):
        def stepper(params):
            copies = torch_copies(params)
            oracle = torch_adamw(copies, **settings)

            def after(grads):
                torch_step(oracle, copies, grads)
                for p, q in zip(params, copies):
                    p.set_data(ms.Tensor(q.detach().numpy().copy()))

            return after

        return [p.asnumpy() for p in run(stepper)]

    def mine(params):
        optimizer = made(AdamW, params)
        return lambda grads: step_with(optimizer, params, grads)

    got, want = run(mine), theirs()
    if all(equal(p, q, 1e-6) for p, q in zip(got, want)):
        return
    look = "the signature of __init__: lr 1e-3, betas (0.9, 0.999), eps 1e-8, weight_decay 0.01"
    for name, settings in [
        ("lr", {"lr": 1e-2}), ("lr", {"lr": 1e-4}), ("lr", {"lr": 3e-4}), ("weight_decay", {"weight_decay": 0.0}), ("weight_decay", {"weight_decay": 0.1}),
        ("betas", {"betas": (0.9, 0.99)}), ("betas", {"betas": (0.9, 0.95)}), ("eps", {"eps": 1e-6}), ("eps", {"eps": 1e-7}), ("eps", {"eps": 1e-5}),
    ]:
        if all(equal(p, q, 1e-6) for p, q in zip(got, theirs(**settings))):
            fail(f"without the argument {name} it is {settings[name]}, and PyTorch's default is meant.", look=look)
    for p, q in zip(got, want):
        close(p, q, 1e-6, name="a parameter after three steps with the default settings", look=look)


def torch_copies(params):
    return [torch.nn.Parameter(torch.from_numpy(p.asnumpy().copy())) for p in params]


def torch_adamw(params, weight_decay=0.01, **settings):
    """torch.optim.AdamW with two groups, decay only on matrices."""
    return torch.optim.AdamW(
        [{"params": [p for p in params if p.ndim >= 2]}, {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0}],
        **{"lr": 1e-3, "weight_decay": weight_decay, **settings},
    )


def torch_step(oracle, params, grads, lr=None):
    for group in oracle.param_groups:
        group["lr"] = group["lr"] if lr is None else lr
    for p, g in zip(params, grads):
        p.grad = torch.from_numpy(np.asarray(g, np.float32).copy())
    oracle.step()


SHAPES = [(3, 4), (4,), (3, 4), (2, 3, 2)]
STEPS = 24
SETTINGS = {"betas": (0.8, 0.95), "eps": 1e-5, "weight_decay": 0.3}


def rates(i):
    return 0.002 + 0.001 * (i % 5)


def gradient(i):
    return [rand(*shape, seed=100 + 10 * i + j, scale=0.1 if j == 2 else 1.0) for j, shape in enumerate(SHAPES)]


def beside_torch(AdamW, step_of, changes, steps=STEPS, scheduled=True, mode=""):
    """Parameters beside torch.optim.AdamW over some steps, the learning rate changed by set_lr before each where scheduled.

    step_of(optimizer) -> a function of the gradients; changes: pairs (words, twist), twists as replay() knows them.
    """
    params = parameters([rand(*shape, seed=40 + j) for j, shape in enumerate(SHAPES)])
    theirs = torch_copies(params)
    optimizer, oracle = made(AdamW, params, lr=0.002, **SETTINGS), torch_adamw(theirs, lr=0.002, **SETTINGS)
    step = step_of(optimizer)
    for i in range(steps):
        if scheduled:
            optimizer.set_lr(rates(i))
        step(*[ms.Tensor(g) for g in gradient(i)])
        torch_step(oracle, theirs, gradient(i), lr=rates(i) if scheduled else None)
        for j, (p, want) in enumerate(zip(params, theirs)):
            want = want.detach().numpy()
            if equal(p, want, 1e-6):
                continue
            if i < 3 and not np.allclose(p.asnumpy(), rand(*SHAPES[j], seed=40 + j), atol=1e-7):
                continue                                      # another few steps tell one mistake from another
            example = f"parameter {j} of shape {SHAPES[j]} differs by {np.abs(p.asnumpy() - want).max():.2g} after {i + 1} steps{mode}"
            if np.allclose(p.asnumpy(), rand(*SHAPES[j], seed=40 + j), atol=1e-7):
                fail(f"step changes nothing{mode}.", example, look="what step writes to, and how: ops.assign(p, ...) on the Parameter that was given")
            for words, twist in changes:
                if np.allclose(p.asnumpy(), replay(j, i + 1, twist, scheduled), atol=2e-6):
                    fail(words, example)
            if not np.isfinite(p.asnumpy()).all():
                fail(f"a parameter is nan or inf{mode}." + (f" Does t stand at 0? {FROZEN[0].upper()}{FROZEN[1:]}" if mode else ""), example)
            fail(f"the parameters drift away from torch.optim.AdamW{mode}.", example, look="what changes from step to step: t, lr, and what m and v hold")
    return optimizer


def replay(j, n, twist, scheduled):
    """Parameter j after n steps of beside_torch with one mistake on the way, in float64."""
    beta1, beta2 = SETTINGS["betas"]
    p, m, v = rand(*SHAPES[j], seed=40 + j).astype(np.float64), 0.0, 0.0
    for i in range(n):
        lr = rates(i) if scheduled else 0.002
        if twist == "lr of the start":
            lr = 0.002
        if twist == "lr of the first step":
            lr = rates(0)
        decay_lr, lr = (0.002, lr) if twist == "decay at the lr of the start" else (lr, 0.002) if twist == "step at the lr of the start" else (lr, lr)
        t = 1 if twist == "t frozen" else i + 1
        g = gradient(i)[{"reversed": len(SHAPES) - 1 - j, "of parameter 2": 2, "of parameter 0": 0}.get(twist, j)].astype(np.float64)
        if g.shape != p.shape:
            return np.full(p.shape, np.inf)
        old_m, old_v = (0.0, 0.0) if twist == "m and v frozen" else (0.0, v) if twist == "m frozen" else (m, 0.0) if twist == "v frozen" else (m, v)
        if twist == "by shape" and j == 2:                    # parameter 0 has the same shape and came before
            other = gradient(i)[0].astype(np.float64)
            old_m, old_v = beta1 * m + (1 - beta1) * other, beta2 * v + (1 - beta2) * other * other
        m, v = beta1 * old_m + (1 - beta1) * g, beta2 * old_v + (1 - beta2) * g * g
        moments = m, v
        if twist == "by shape" and j == 0:
            other = gradient(i)[2].astype(np.float64)
            moments = beta1 * m + (1 - beta1) * other, beta2 * v + (1 - beta2) * other * other
        if twist == "all frozen":
            m, v, t = (1 - beta1) * g, (1 - beta2) * g * g, 1
        p = p * (1 - decay_lr * (SETTINGS["weight_decay"] if p.ndim >= 2 else 0))
        p = p - lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + SETTINGS["eps"])
        m, v = moments
    return p


FROZEN = "only Parameters change inside a graph; a Python number or a tensor on self is compiled in as it was."
RATE = "set_lr has no effect on a compiled step. Either lr is compiled in as a constant, or set_data gave the Parameter new memory, and the step reads the old: ops.assign writes into the memory there is."
CHANGES = [
    ("set_lr has no effect: the rate of the start goes on.", "lr of the start"),
    ("the decay goes on with the rate of the start: it is lr * weight_decay, with the lr that set_lr wrote last.", "decay at the lr of the start"),
    ("the step goes on with the rate of the start, and only the decay follows set_lr.", "step at the lr of the start"),
    ("parameters of one shape disturb each other: each has an m and a v of its own.", "by shape"),
    ("a parameter gets the gradient of another: gradients come in the order of the parameters.", "of parameter 2"),
    ("a parameter gets the gradient of another: gradients come in the order of the parameters.", "of parameter 0"),
    ("a parameter gets the gradient of another: gradients come in the order of the parameters.", "reversed"),
]
GRAPH_CHANGES = [
    (f"t stands still in graph mode: {FROZEN}", "t frozen"),
    (f"m and v are not carried from step to step in graph mode: {FROZEN}", "m and v frozen"),
    (f"m is not carried from step to step in graph mode: {FROZEN}", "m frozen"),
    (f"v is not carried from step to step in graph mode: {FROZEN}", "v frozen"),
    (f"t, m and v stand still in graph mode: {FROZEN}", "all frozen"),
    (RATE, "lr of the first step"),
    (RATE, "lr of the start"),
]


@checks(ADAMW, "set_lr before each step")
def rate_is_set(AdamW):
    optimizer = made(AdamW, parameters([rand(3, 4)]), lr=0.5)
    if not callable(getattr(optimizer, "set_lr", None)):
        fail("the optimizer has no set_lr: a schedule calls it before each step.")
    parameter = optimizer.lr
    try:
        optimizer.set_lr(0.125)
    except TypeError as error:
        if "can not assign" not in str(error):
            raise
        fail("set_lr gives the name lr to a Python number; lr is a Parameter, and the number has to be written into it.", example=first_words(str(error)), look="ops.assign, on the Parameter lr")
    if optimizer.lr is not parameter:
        fail("set_lr puts a new object in the place of lr; a compiled step goes on reading the old one. Write the number into the Parameter.", look="ops.assign, on the Parameter lr")
    if abs(float(optimizer.lr.asnumpy()) - 0.125) > 1e-6 or optimizer.lr.dtype != ms.float32:
        fail(f"after set_lr(0.125) lr is {float(optimizer.lr.asnumpy()):g} of dtype {optimizer.lr.dtype}, expected 0.125, float32.")

    def eager(optimizer):
        return lambda *grads: optimizer.step(grads)

    beside_torch(AdamW, eager, CHANGES, steps=7)


@checks(ADAMW, "the same in graph mode", seconds=20)
def in_graph_mode(AdamW):
    def compiled(optimizer):
        def step(*grads):
            return optimizer.step(grads)

        return in_graph(step, AdamW)

    optimizer = beside_torch(AdamW, compiled, GRAPH_CHANGES, mode=" in graph mode")
    if abs(float(optimizer.t.asnumpy()) - STEPS) > 1e-6:
        fail(f"t is {float(optimizer.t.asnumpy()):g} after {STEPS} compiled steps.", look=FROZEN)


@checks(ADAMW, "a state that was loaded")
def resumed(AdamW):
    values = [rand(3, 4, seed=70), rand(4, seed=71)]
    params = parameters(values)
    theirs = torch_copies(params)
    optimizer, oracle = made(AdamW, params, lr=0.01, **SETTINGS), torch_adamw(theirs, lr=0.01, **SETTINGS)
    for i in range(6):
        grads = [rand(3, 4, seed=80 + i), rand(4, seed=90 + i)]
        if i == 3:                                            # as load_checkpoint does it
            kept = [[s.asnumpy().copy() for s in held] for held in (params, optimizer.m, optimizer.v)]
            t = optimizer.t.asnumpy().copy()
            params = parameters(values)
            optimizer = made(AdamW, params, lr=0.01, **SETTINGS)
            step_with(optimizer, params, grads)               # a step of its own, which the checkpoint must undo
            for held, saved in zip((params, optimizer.m, optimizer.v), kept):
                for s, value in zip(held, saved):
                    ms.ops.assign(s, ms.Tensor(value))
            ms.ops.assign(optimizer.t, ms.Tensor(t))
        step_with(optimizer, params, grads)
        torch_step(oracle, theirs, grads)
    for p, want in zip(params, theirs):
        if not equal(p, want.detach().numpy(), 1e-6):
            fail(
                "after a checkpoint is loaded the run goes another way: step uses something besides the Parameters lr, t, m and v.",
                example=f"3 steps, state loaded into a new optimizer, 3 steps: off by {np.abs(p.asnumpy() - want.detach().numpy()).max():.2g}",
                look="counters and powers of beta that are kept beside t",
            )


# --- clip_grad_norm ------------------------------------------------------------------------------------

GRADIENTS = [rand(3, 4, seed=90), rand(2, 1, 3, seed=92, scale=0.1), rand(5, seed=91, scale=3.0)]


def flat(arrays):
    return np.concatenate([np.asarray(a).ravel() for a in arrays])


def clipped(clip_grad_norm, gradients, max_norm):
    """(gradients as one vector, norm) that the learner's function gives, as tensors, after tests of their kinds."""
    given = tuple(ms.Tensor(g) for g in gradients)
    try:
        got = clip_grad_norm(given, max_norm)
    except TypeError as error:
        if "not iterable" in str(error) and next(iter(inspect.signature(clip_grad_norm).parameters), "").startswith("max"):
            fail("the arguments are the wrong way round: clip_grad_norm(grads, max_norm).", example=str(error), look="the signature")
        raise
    for g, before in zip(given, gradients):
        if not np.array_equal(g.asnumpy(), before):
            fail("the gradients that are given are changed in place: new ones come back.", look="ops.assign and slices that are assigned")
    if got is None:
        fail("clip_grad_norm gives None. Is there a return at the end?")
    if isinstance(got, ms.Tensor):
        fail("a tensor comes back alone: a pair is meant, (scaled gradients, norm before). Nothing is scaled in place here, as it was in PyTorch.")
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        fail(f"a pair is meant, (scaled gradients, norm before), and a {type(got).__name__}{f' of {len(got)}' if hasattr(got, '__len__') else ''} comes back.")
    grads, norm = got
    if isinstance(grads, ms.Tensor) and isinstance(norm, (tuple, list)):
        fail("the pair is the wrong way round: the gradients first, then the norm.")
    if not isinstance(grads, (tuple, list)) or len(grads) != len(gradients):
        fail(f"the gradients should come back as a tuple of {len(gradients)} tensors and are a {type(grads).__name__}.")
    for i, (mine, g) in enumerate(zip(grads, gradients)):
        is_tensor(mine, g.shape, ms.float32, name=f"gradient {i}")
    if isinstance(norm, (int, float)):
        fail(f"the norm is a Python {type(norm).__name__}; a tensor of shape () is meant, which stays in the graph.", look="float(...), .item() and .asnumpy()")
    return ms.Tensor(flat([g.asnumpy() for g in grads])), norm


def clip_is(clip_grad_norm, gradients, max_norm, look=""):
    theirs = in_pytorch.with_gradients([torch.from_numpy(g) for g in gradients])
    before = torch.nn.utils.clip_grad_norm_(theirs, max_norm)
    want = flat([p.grad.numpy() for p in theirs])
    got, norm = clipped(clip_grad_norm, gradients, max_norm)
    vectors = [torch.from_numpy(g) for g in gradients]
    known = [(words.replace("they must be scaled in place", "scaled ones must come back"), value.numpy()) for words, value in in_pytorch.clip_mistakes(vectors, max_norm)]
    total = float(before)
    everything, parts = flat(gradients), [np.linalg.norm(g.ravel()) for g in gradients]
    for words, other in [
        ("the squares of an entire tensor are averaged, not summed: the norm is the root of the sum of squares.", np.sqrt(sum((g**2).mean() for g in gradients))),
        ("the sums of squares are averaged over the tensors; they are summed.", total / math.sqrt(len(gradients))),
        ("the squares are averaged, not summed: the norm is the root of the sum of squares.", np.sqrt((everything**2).mean())),
        ("what is added to the norm below the fraction is large: 1e-6 keeps zero away and shows nowhere else.", total + 1e-2),
        ("what is added to the norm below the fraction is large: 1e-6 keeps zero away and shows nowhere else.", total + 1e-3),
    ]:
        known.append((words, everything * min(1.0, max_norm / other)))
    known.append(("1e-6 is added to the fraction; it belongs to the norm, below the line.", everything * min(1.0, max_norm / total + 1e-6)))
    close(got, want, 1e-5, name=f"the gradients, as one vector of norm {total:.4g}, with max_norm {max_norm:g}", known=known, look=look)
    close(norm, np.float32(total), 1e-5, name="the norm that is returned", known=[
        ("the norm after clipping is returned; the norm before tells more: how large the gradients were.", np.linalg.norm(want)),
        ("the norm is the sum of absolute values; it is the root of the sum of squares.", np.abs(everything).sum()),
        ("the norm is the largest entry; it is the root of the sum of squares.", np.abs(everything).max()),
        ("the square root is missing: the norm is the root of the sum of squares.", (everything**2).sum()),
        ("a small number stands below the root, and shows when the gradients are small; it belongs to the norm where the fraction is made.", math.sqrt(total**2 + 1e-6)),
        ("the squares are averaged, not summed: the norm is the root of the sum of squares.", np.sqrt((everything**2).mean())),
        ("the norms of the tensors are added up; their squares are, and then comes the root.", sum(parts)),
        ("the scale is returned; the norm before clipping is meant.", max_norm / total),
        ("the scale is returned; the norm before clipping is meant.", min(1.0, max_norm / total)),
        ("max_norm is returned; the norm before clipping is meant.", float(max_norm)),
        ("the norm of the last tensor is returned; one norm of all gradients is meant.", parts[-1]),
    ])


@checks(CLIP, "gradients that are too large")
def too_large(clip_grad_norm):
    look = "the scale: the smaller of 1 and max_norm / (norm + 1e-6)"
    clip_is(clip_grad_norm, GRADIENTS, 0.5, look=look)
    clip_is(clip_grad_norm, [1e5 * g for g in GRADIENTS], 50.0, look=look)       # a scale of 8e-5


@checks(CLIP, "gradients that are small enough")
def small_enough(clip_grad_norm):
    clip_is(clip_grad_norm, GRADIENTS, 50.0, look="the scale is at most 1")
    clip_is(clip_grad_norm, [rand(2, 3, seed=94, scale=1e-7)], 1.0, look="what is added to the norm below the fraction, and its sign")


@checks(CLIP, "a bound close to the norm")
def near_the_bound(clip_grad_norm):
    norm = np.linalg.norm(flat(GRADIENTS))
    for factor in (0.9, 1.1):
        clip_is(clip_grad_norm, GRADIENTS, float(factor * norm), look="when it clips: norm > max_norm")


@checks(CLIP, "gradients that are all zero")
def clip_zero(clip_grad_norm):
    got, norm = clipped(clip_grad_norm, [np.zeros(3, np.float32), np.zeros((2, 2), np.float32)], 1.0)
    if np.abs(got.asnumpy()).max() != 0:
        fail("gradients that are all zero become nan: max_norm / 0 is inf, and inf * 0 is nan.", look="the scale, which is at most 1; a small number below the fraction, such as 1e-6")
    is_tensor(norm, (), name="the norm")


@checks(CLIP, "the same in graph mode", seconds=20)
def clip_in_graph(clip_grad_norm):
    def run(a, b, c):
        grads, norm = clip_grad_norm((a, b, c), 0.5)
        return grads[0], grads[1], grads[2], norm

    compiled = in_graph(run, clip_grad_norm)
    for scale in (1.0, 0.01, 3.0):                            # clipped, not clipped, clipped: one compiled function
        gradients = [scale * g for g in GRADIENTS]
        theirs = in_pytorch.with_gradients([torch.from_numpy(g) for g in gradients])
        norm = torch.nn.utils.clip_grad_norm_(theirs, 0.5)
        got = compiled(*[ms.Tensor(g) for g in gradients])
        for i, (mine, p) in enumerate(zip(got, theirs)):
            close(mine, p.grad.numpy(), 1e-5, name=f"gradient {i} in graph mode", look="decisions that were taken when the function was compiled: a Python if on a number")
        close(got[3], norm.numpy(), 1e-5, name="the norm in graph mode")


# --- accumulate ----------------------------------------------------------------------------------------


class Counted:
    """value_and_grad(x, y) -> (loss, grads) as ms.value_and_grad gives it, computed by PyTorch; notes how it is called."""

    def __init__(self):
        self.model = in_pytorch.Tiny()
        self.sizes = []
        self.given = []

    def __call__(self, x, y=None):
        if not isinstance(x, ms.Tensor) or not isinstance(y, ms.Tensor) or x.ndim != 2 or y.ndim != 1:
            fail("value_and_grad is called as value_and_grad(x, y), with the two tensors of a micro-batch.")
        self.sizes.append(x.shape[0])
        for p in self.model.parameters():
            p.grad = None
        loss = self.model(torch.from_numpy(x.asnumpy()), torch.from_numpy(y.asnumpy()).long())[1]
        loss.backward()
        grads = tuple(ms.Tensor(p.grad.numpy().copy()) for p in self.model.parameters())
        self.given.append((grads, [g.asnumpy().copy() for g in grads]))
        return ms.Tensor(loss.item(), ms.float32), grads


def accumulated(accumulate, batches):
    """(gradients as one vector, loss, the Counted function)."""
    counted = Counted()
    pairs = [(ms.Tensor(x.numpy()), ms.Tensor(y.numpy().astype(np.int32))) for x, y in batches]
    try:
        got = accumulate(counted, pairs)
    except TypeError as error:
        if "'tuple' and" in str(error):
            fail("a tuple is divided or added as if it were a tensor: value_and_grad gives (loss, gradients), the loss first, and the gradients are a tuple of tensors.", example=str(error), look="what you call loss and what you call grads")
        raise
    for grads, before in counted.given:
        if not all(np.array_equal(g.asnumpy(), b) for g, b in zip(grads, before)):
            fail("the gradients of a micro-batch are changed in place: add them up in new tensors.", look="assignments into slices, and ops.assign")
    if got is None:
        fail("accumulate gives None. Is there a return at the end?")
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        fail("a pair is meant, (mean loss, gradients), as value_and_grad gives it." + (" Nothing is kept in .grad here: the sums have to come back." if isinstance(got, (ms.Tensor, float)) else ""))
    loss, grads = got
    if isinstance(loss, (tuple, list)) and len(loss) == len(pairs) and all(isinstance(one, ms.Tensor) and one.size == 1 for one in loss):
        fail("the losses of all micro-batches come back in a list; their mean is meant, one tensor of shape ().")
    if isinstance(loss, (tuple, list)):
        fail("the pair is the wrong way round: the loss first, then the gradients, as value_and_grad gives them.")
    if not isinstance(grads, (tuple, list)) or len(grads) != 4:
        size = f" of {len(grads)}" if isinstance(grads, (tuple, list)) else ""
        joined = " A sum of tuples or lists joins them: add entry by entry." if size and len(grads) == 4 * len(pairs) else ""
        fail(f"the gradients should be a tuple with one tensor for each parameter, 4 here, and are {'None' if grads is None else f'a {type(grads).__name__}{size}'}.{joined}")
    want = [tuple(p.shape) for p in counted.model.parameters()]
    if all(isinstance(g, ms.Tensor) for g in grads) and [tuple(g.shape) for g in grads] == want[::-1] != want:
        fail("the gradients come back in reverse order; their order is that of the parameters.")
    for i, (g, shape) in enumerate(zip(grads, want)):
        is_tensor(g, shape, ms.float32, name=f"the gradient {i}")
    return ms.Tensor(flat([g.asnumpy() for g in grads])), loss, counted


def gradient_of(batches):
    vector, loss = in_pytorch.gradients_of(batches)
    return vector.numpy(), loss


def pairwise(each):
    mean = each[0]
    for g in each[1:]:
        mean = (mean + g) / 2
    return mean


@checks(ACCUMULATE, "the gradient of the big batch")
def accumulate_gradient(accumulate):
    for n, size in [(3, 4), (5, 2)]:
        batches = in_pytorch.micro_batches(n, size)
        got, _, _ = accumulated(accumulate, batches)
        want = gradient_of(batches)[0]
        each = [gradient_of([pair])[0] for pair in batches]
        halving = np.zeros_like(want)
        for g in each:
            halving = (halving + g) / n
        close(got, want, 1e-5, name=f"the gradient over {n} micro-batches of {size}", known=[
            (f"the gradients are summed, not averaged: {n} times too large. Each is divided by the number of micro-batches.", want * n),
            (f"the gradients are divided twice: {n} times too small.", want / n),
            ("the gradients are divided by the size of a micro-batch; by their number is meant.", want * n / size),
            ("the gradients are divided by the number of windows in all; the mean over a micro-batch is already taken.", want / size),
            ("only the last micro-batch counts: there is no .grad that adds up by itself, the sum is yours.", each[-1]),
            ("only the last micro-batch counts: there is no .grad that adds up by itself, the sum is yours.", each[-1] / n),
            ("only the first micro-batch counts.", each[0]),
            ("only the first micro-batch counts.", each[0] / n),
            ("the first micro-batch does not count.", sum(each[1:]) / n),
            ("the first micro-batch does not count.", sum(each[1:]) / (n - 1)),
            ("the first micro-batch counts twice.", want + each[0] / n),
            ("the first micro-batch counts twice.", (want * n + each[0]) / n),
            ("the last micro-batch is dropped.", sum(each[:-1]) / n),
            ("the last micro-batch is dropped.", sum(each[:-1]) / (n - 1)),
            ("the sum so far is divided again at each micro-batch.", halving),
            ("the sign is wrong.", -want),
            ("the gradients are divided by 2 whatever the number of micro-batches is.", want * n / 2),
            ("sum and new gradient are averaged at each step: late micro-batches then count more than early ones.", pairwise(each)),
            ("the largest of each entry is taken; the mean is meant.", np.max(each, axis=0)),
            ("the first micro-batch is not divided, and the others are.", want + each[0] * (1 - 1 / n)),
            ("each is divided by its own place in the list; by the number of all is meant.", sum(g / (i + 1) for i, g in enumerate(each))),
        ], look="what else changes the sums in the loop: clipping comes after it, when the gradient is whole")


@checks(ACCUMULATE, "the loss that is returned")
def accumulate_loss(accumulate):
    n = 3
    batches = in_pytorch.micro_batches(n, 4, seed=1)
    _, loss, _ = accumulated(accumulate, batches)
    if isinstance(loss, bool) or not isinstance(loss, (int, float, ms.Tensor, np.floating)):
        fail(f"the loss should be a tensor of shape () and is a {type(loss).__name__}.")
    if not isinstance(loss, ms.Tensor):
        fail("the loss is a Python number; keep it a tensor: a number waits for the device, and cannot be made inside a graph.", look=".asnumpy(), float(...) and .item()")
    if loss.shape not in ((), (1,)):
        fail(f"the loss has shape {tuple(loss.shape)}, expected (): the mean over the micro-batches.")
    want, each = gradient_of(batches)[1], [gradient_of([pair])[1] for pair in batches]
    close(loss.reshape(()), np.float32(want), 1e-5, name="the loss", known=[
        ("the loss of the last micro-batch is returned; the mean over all is meant.", each[-1]),
        ("the loss of the last micro-batch is returned, divided by their number; the mean over all is meant.", each[-1] / n),
        ("the loss of the first micro-batch is returned; the mean over all is meant.", each[0]),
        ("the sum of the losses is returned; their mean is meant.", sum(each)),
        ("the loss that is returned is divided twice.", want / n),
        ("the last micro-batch's loss is left out.", sum(each[:-1]) / n),
        ("the first micro-batch's loss is left out.", sum(each[1:]) / n),
        ("the smallest loss is returned; the mean is meant.", min(each)),
        ("the largest loss is returned; the mean is meant.", max(each)),
    ])


@checks(ACCUMULATE, "one micro-batch at a time")
def accumulate_memory(accumulate):
    _, _, counted = accumulated(accumulate, in_pytorch.micro_batches(4, 3, seed=2))
    if max(counted.sizes) > 3:
        fail(f"the model gets {max(counted.sizes)} windows at once, and the micro-batches have 3: that needs the memory which accumulation saves.", look="ops.cat of the batches")
    if len(counted.sizes) != 4:
        fail(f"value_and_grad runs {len(counted.sizes)} times for 4 micro-batches.", look="calls in the loop, one is enough")


@checks(ACCUMULATE, "two calls, and a single micro-batch")
def accumulate_again(accumulate):
    for n, seed in ((2, 3), (2, 4), (1, 5)):
        batches = in_pytorch.micro_batches(n, 3, seed=seed)
        got, loss, _ = accumulated(accumulate, batches)
        close(got, gradient_of(batches)[0], 1e-5, name=f"the gradient of a later call, over {n} micro-batch{'es' if n > 1 else ''}", look="sums that outlive the call: a default argument, a global, an attribute; nothing clears them")
        close(loss.reshape(()), np.float32(gradient_of(batches)[1]), 1e-5, name="the loss of a later call")


class Line(nn.Cell):
    """y = tanh(x W) as small as can be."""

    def __init__(self):
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(rand(4, 3, seed=60)), name="weight")

    def construct(self, x, y):
        return ((ms.ops.matmul(x, self.weight) - y) ** 2).mean()


@checks(ACCUMULATE, "the same in graph mode", seconds=20)
def accumulate_in_graph(accumulate):
    cell = Line()
    value_and_grad = ms.value_and_grad(cell, None, weights=[cell.weight])

    def run(a, b, c, d):
        loss, grads = accumulate(value_and_grad, [(a, b), (c, d)])
        return loss, grads[0]

    arrays = [rand(5, 4, seed=61), rand(5, 3, seed=62), rand(5, 4, seed=63), rand(5, 3, seed=64)]
    compiled = in_graph(run, accumulate)
    compiled(*[ms.Tensor(a) for a in arrays])
    loss, grad = compiled(*[ms.Tensor(a) for a in arrays])
    weight = torch.from_numpy(rand(4, 3, seed=60)).requires_grad_()
    x, y = (torch.from_numpy(np.concatenate(parts)) for parts in (arrays[::2], arrays[1::2]))
    want = ((x @ weight - y) ** 2).mean()
    want.backward()
    close(grad, weight.grad.numpy(), 1e-5, name="the gradient in graph mode")
    close(loss.reshape(()), want.detach().numpy(), 1e-5, name="the loss in graph mode")
