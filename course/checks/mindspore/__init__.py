"""Checks of the MindSpore lessons, and how they call and compare. Oracles are PyTorch or NumPy; values pass through NumPy."""
import contextlib
import os
import re
import tempfile
from pathlib import Path

os.environ.setdefault("GLOG_v", "4")                        # read at the import

import mindspore as ms  # noqa: E402
import numpy as np
from mindspore import nn

from course.checks import Mismatch, argument_names, fail
from course.device import drain

with contextlib.suppress(RuntimeError):                       # it can be set once in a process
    ms.device_context.cpu.op_tuning.threads_num(1)            # by default 25 threads meet over tensors of a few numbers

FLOAT32 = 2e-6    # parity of values; gradients get 5e-6 of their largest value


@contextlib.contextmanager
def isolated():
    """A fixed seed inside; NumPy's random state and MindSpore's mode come back unchanged."""
    state, mode = np.random.get_state(), ms.get_context("mode")
    ms.set_seed(20241)
    np.random.seed(20241)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    try:
        yield
    finally:
        drain()
        np.random.set_state(state)
        ms.set_context(mode=mode)


def rand(*shape, seed=0, scale=1.0):
    """Normal float32 numbers as a NumPy array, from a generator of their own."""
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def rand_ids(*shape, n, seed=0):
    """int32 ids below n as a NumPy array."""
    return np.random.default_rng(seed).integers(0, n, shape).astype(np.int32)


def tensor(x):
    """A MindSpore tensor for an array; everything else as it is."""
    return ms.Tensor(x) if isinstance(x, np.ndarray) else x


def call(function, *args, **kwargs):
    """function(*args, **kwargs) with tensors for arrays; fails if one of them was changed in place."""
    given = [tensor(a) for a in args]
    named = {k: tensor(v) for k, v in kwargs.items()}
    with in_plain_words():
        got = function(*given, **named)
        wait(got)
    names = argument_names(function.construct if isinstance(function, nn.Cell) else function, args)
    for name, mine, theirs in [*zip(names, args, given), *((k, kwargs[k], named[k]) for k in kwargs)]:
        if isinstance(mine, np.ndarray) and not np.array_equal(mine, theirs.asnumpy(), equal_nan=mine.dtype.kind == "f"):
            fail(
                f"the argument {name} is changed in place: whoever called you still needs it.",
                look="assignments into slices; compute a new tensor instead",
            )
    return got


EAGER_RULES = [
    ("MatMul inputs should have the same dimension size and equal to 2", "ops.MatMul multiplies matrices of two axes only; ops.matmul and @ allow axes in front of them."),
    ("primitive[MaskedFill], the input argument[mask] must be", "masked_fill wants a mask of bools; numbers must be compared first, or turned into bools."),
    ("the type of 'x2' should be same as 'x1'", "two tensors of different dtypes meet in a product: one that is made on the way has another dtype than the input."),
    ("shape1[-1] must be equal to shape2[-2]", "the shapes do not fit in a product: the last axis on the left must be as long as the last but one on the right."),
    ("unregistered", "this operation has no kernel on this device."),
    ("Unsupported op", "this operation has no kernel on this device."),
    ("Kernel select failed", "this operation does not take arguments of this dtype, or not in this order."),
    ("should be in the range", "an index points outside the table that is read."),
    ("keepdim=bool", "with axis= the word is keepdims, with dim= it is keepdim."),
    ("mean(axis=int, keepdims=bool)", "the method mean spells it keep_dims, where sum, max and var spell it keepdims."),
    ("is invalid for input of size", "a reshape asks for more or fewer numbers than there are: sizes come from the shape of what came in, not from numbers written down."),
    ("'ScalarToTensor', the type of 'x'", "a NumPy number stands where a Python number is wanted; float(...) makes one of it."),
    ("need to broadcast", "the shapes do not fit in a sum or an elementwise product."),
    ("input=<class 'numpy.ndarray'>", "a NumPy number or array stands before a tensor and makes a NumPy array of it; math.sqrt gives a plain number."),
    ("_auto_prefix", "super().__init__() must come first in __init__."),
    ("please call Cell.__init__() firstly", "super().__init__() must come first in __init__."),
]


@contextlib.contextmanager
def in_plain_words(rules=()):
    """An error of MindSpore inside that one of the rules (part of its text, words) knows is raised with these words before its own."""
    try:
        yield
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        words = next((words for mark, words in [*rules, *EAGER_RULES] if mark in str(error)), None)
        if words is None or type(error) not in (AttributeError, RuntimeError, TypeError, ValueError):
            raise
        said = str(error).rpartition("MindSpore says: ")[2]       # where an inner one has been here, its words give way
        raise type(error)(f"{words} MindSpore says: {first_words(said)}").with_traceback(error.__traceback__) from None


def wait(got):
    """Errors of MindSpore come late: asking for the values brings them up here."""
    for value in got if isinstance(got, (tuple, list)) else [got]:
        if isinstance(value, ms.Tensor):
            value.asnumpy()


def is_tensor(got, shape, dtype=None, name="the result"):
    """Fails, in this order, if got is None, no MindSpore tensor, or of another shape or dtype."""
    if got is None:
        fail(f"{name} is None. Is there a return at the end of every branch?")
    if not isinstance(got, ms.Tensor):
        fail(f"{name} should be a mindspore.Tensor and is of type {type(got).__module__.split('.')[0]}.{type(got).__name__}.")
    if tuple(got.shape) != tuple(shape):
        fail(f"{name} has shape {tuple(got.shape)}, expected {tuple(shape)}.")
    if dtype is not None and got.dtype != dtype:
        fail(f"{name} has dtype {got.dtype}, expected {dtype}.")


def close(got, want, atol=FLOAT32, name="the result", known=(), look=""):
    """Fails unless got equals the array want: first as one of the known mistakes, then in general.

    Args:
        got: what the learner's code gave, a MindSpore tensor.
        want: NumPy array from an independent oracle; its dtype is expected of got.
        atol: largest difference allowed, relative for numbers above 1.
        known: pairs (mistake in words, the array that this mistake gives or a function that computes it).
        look: where to look if none of them fits.
    """
    want = np.asarray(want)
    dtype = ms.Tensor(want).dtype
    if equal(got, want, atol):
        is_tensor(got, want.shape, dtype, name)
        return
    if isinstance(got, ms.Tensor):
        for mistake, value in known:
            value = np.asarray(value() if callable(value) else value)
            if equal(got, value, max(atol, 1e-5)) and not (value.shape == want.shape and np.allclose(value, want, rtol=2 * atol, atol=2 * atol)):
                fail(mistake, example=difference(got, want, name), look=look)
    is_tensor(got, want.shape, dtype, name)
    fail(f"{name} has the right shape and wrong values.", example=difference(got, want, name), look=look)


def equal(got, want, atol):
    if not isinstance(got, ms.Tensor) or tuple(got.shape) != want.shape:
        return False
    return np.allclose(got.asnumpy().astype(np.float64), want.astype(np.float64), rtol=atol, atol=atol, equal_nan=True)


def difference(got, want, name):
    """One position at which got and want differ most, in words."""
    if not isinstance(got, ms.Tensor) or tuple(got.shape) != want.shape or want.size == 0:
        return ""
    mine, right = got.asnumpy().astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.nan_to_num(np.where(mine == right, 0.0, np.abs(mine - right)), nan=np.inf)
    at = np.unravel_index(gap.argmax(), want.shape)
    where = f"[{', '.join(str(int(i)) for i in at)}]" if want.ndim else ""
    return f"{name}{where} is {number(mine[at], want.dtype)}, expected {number(right[at], want.dtype)}"


def number(x, dtype):
    return str(bool(x)) if dtype == bool else str(int(x)) if np.issubdtype(dtype, np.integer) else f"{x:.6g}"


def gradients_of(function, inputs, params=()):
    """Gradients of a fixed random weighting of function(*inputs) to the float inputs and to params, as arrays."""
    given = [tensor(x) for x in inputs]
    positions = tuple(i for i, x in enumerate(inputs) if isinstance(x, np.ndarray) and x.dtype.kind == "f")
    shape = tuple(function(*given).shape)
    weighting = ms.Tensor(rand(*shape, seed=99))

    def weighted(*x):
        return (function(*x) * weighting).sum()

    if params:
        both = ms.grad(weighted, positions, weights=list(params))(*given) if positions else ((), ms.grad(weighted, None, weights=list(params))(*given))
        to_inputs, to_params = both
        to_inputs = to_inputs if isinstance(to_inputs, tuple) else (to_inputs,)
        return [g.asnumpy() for g in (*to_inputs, *to_params)]
    found = ms.grad(weighted, positions)(*given)
    return [g.asnumpy() for g in (found if isinstance(found, tuple) else (found,))]


def gradients_close(mine, wanted, names, atol=5e-6, known=()):
    """Arrays of gradients against those of the oracle, each within atol of its largest value."""
    for name, got, want in zip(names, mine, wanted, strict=True):
        if got.shape == want.shape and np.abs(want).max(initial=0) > 0 and not np.abs(got).max(initial=0) > 0:
            fail(f"no gradient reaches {name}.", look="ops.stop_gradient, .asnumpy() and ms.Tensor(...) cut the graph")
        close(ms.Tensor(got), want, atol * max(1.0, np.abs(want).max(initial=0)), name=f"the gradient of {name}", known=known)


GRAPH_RULES = [
    ("'asnumpy' is not supported", "asnumpy() leaves the graph: NumPy cannot run inside it."),
    ("the number of axes must be equal", "transpose wants all axes there, as in transpose(0, 2, 1, 3); swapaxes swaps two of them in both modes."),
    ("SplitTensor", "split with dim= has no kernel there; the same argument under the name axis= works in both modes."),
    ("Unsupported op", "this operation has no kernel on this device."),
    ("unexpected keyword argument", "it does not know an argument by this name there."),
    ("Unsupported statement 'Try'", "try does not exist in graph mode."),
    ("Unsupported statement", "this statement does not exist in graph mode."),
    ("Unsupported expression", "this expression does not exist in graph mode."),
    ("parameters number of the function", "the first argument of a method must be called self, or the number of arguments differs."),
    ("lambda", "a lambda inside ms.jit(...) cannot be read; give it a def."),
    ("does not support to get attribute", "a tensor has no such attribute or method in graph mode."),
    ("not support", "MindSpore does not have this operation in graph mode."),
    ("unregistered", "this operation has no kernel on this device."),
    ("is not defined", "a name is not known inside the graph."),
]


PLUS_EQUALS = "+=, -=, *= and /= on a tensor: in graph mode they write into it, y = y + ... makes a new one"


def same_in_graph_mode(function, *args, atol=FLOAT32):
    """Fails if ms.jit(function) does not compile, in plain words and with the learner's line, or gives other numbers."""
    given = [tensor(a) for a in args]
    eager = function(*given)
    wait(eager)

    def run(*x):
        return function(*x)

    try:
        with in_a_folder_of_its_own():
            graph = ms.jit(run)(*given)
            wait(graph)
    except Exception as error:
        text = str(error)
        rule = next((words for mark, words in GRAPH_RULES if mark in text), "the graph compiler does not accept it.")
        fail(f"it works eagerly and not in graph mode: {rule}", example=first_words(text), look=source_line(text))
    pairs = zip(eager, graph) if isinstance(eager, (tuple, list)) else [(eager, graph)]
    for a, b in pairs:
        if isinstance(a, ms.Tensor):
            close(b, a.asnumpy(), atol, name="the result in graph mode")
    for name, mine, theirs in zip(argument_names(function.construct if isinstance(function, nn.Cell) else function, args), args, given):
        if isinstance(mine, np.ndarray) and not np.array_equal(mine, theirs.asnumpy()):
            fail(f"in graph mode the argument {name} is changed in place: whoever called you still needs it.", look=PLUS_EQUALS)


def same_gradient_in_graph_mode(function, *args, params=(), atol=1e-5):
    """Fails if the compiled gradient of a fixed weighting of the result is another than the eager one: to the first argument and to params."""
    given = [tensor(a) for a in args]
    weighting = ms.Tensor(rand(*function(*given).shape, seed=99))

    def weighted(*x):
        return (function(*x) * weighting).sum()

    gradient = ms.grad(weighted, 0, weights=list(params)) if params else ms.grad(weighted)
    eager = gradient(*given)
    try:
        with in_a_folder_of_its_own():
            compiled = ms.jit(gradient)(*given)
            wait(flat(compiled))
    except Exception as error:
        fail("it works eagerly, and its gradient does not compile in graph mode.", example=first_words(str(error)), look=source_line(str(error)))
    for a, b in zip(flat(eager), flat(compiled)):
        if not equal(b, a.asnumpy(), atol * max(1.0, float(abs(a.asnumpy()).max()))):
            fail(
                "the gradient is right eagerly and wrong in graph mode: something is computed outside the graph, or written over.",
                example=difference(b, a.asnumpy(), "the gradient"),
                look=f".asnumpy() and ms.Tensor(...) of a value that depends on the input; values kept on self in construct; {PLUS_EQUALS}",
            )


def flat(tensors):
    """The tensors of nested tuples, in order."""
    return [t for part in tensors for t in flat(part)] if isinstance(tensors, (tuple, list)) else [tensors]


@contextlib.contextmanager
def in_a_folder_of_its_own():
    """What a failed compile writes (rank_0/) goes to a folder that is thrown away."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def through_float16(got):
    """Whether every number of a float32 tensor is one of float16: a step in between was."""
    if not isinstance(got, ms.Tensor) or got.dtype != ms.float32 or got.size < 20:
        return False
    values = got.asnumpy()
    with np.errstate(over="ignore"):
        return bool(np.array_equal(values.astype(np.float16).astype(np.float32), values))


def source_line(text):
    """The innermost line of the learner's code that MindSpore's message points at; the statement it names if there is none."""
    lines = text.split("\n")
    found = ""
    for line, following in zip(lines, lines[1:]):
        if "In file" in line and "site-packages" not in line and str(Path(__file__).parent) not in line:
            found = following.strip()
    named = re.search(r"Unsupported (statement|expression) '(\w+)'", text)
    return found or (f"the {named[2].lower()} in your code" if named else "")


def first_words(text):
    """The line of MindSpore's message that says something: some begin with a title between rules."""
    lines = [line.strip() for line in text.split("\n")]
    return next((line for line in lines if re.search("[a-z]", line) and not line.startswith("- ")), "")[:200]


def parameters_are(cell, shapes, name):
    """The cell has these parameters, as "name": shape, and no others, under these names also in a checkpoint."""
    if not isinstance(cell, nn.Cell):
        fail(f"{name} should be a mindspore.nn.Cell and is of type {type(cell).__name__}.")
    if callable(getattr(cell, "forward", None)) and type(cell).construct is nn.Cell.construct:
        fail("the method is called forward, as in PyTorch; a MindSpore cell runs construct.", look="the name of the method below __init__")
    got = {key: tuple(p.shape) for key, p in cell.parameters_and_names()}
    for missing in shapes:
        if missing not in got:
            value = cell
            for part in missing.split("."):
                value = getattr(value, part, None)
            if isinstance(value, ms.Tensor) and not isinstance(value, ms.Parameter):
                fail(f"{name}.{missing} is a plain tensor: an optimizer never sees it.", look="ms.Parameter(...) makes a tensor a parameter")
            fail(f"{name} has no parameter {missing}; it has: {', '.join(got) or 'none'}.")
        if got[missing] != shapes[missing]:
            fail(f"{name}.{missing} has shape {got[missing]}, expected {shapes[missing]}.")
    extra = [n for n in got if n not in shapes]
    if extra:
        fail(f"{name} has a parameter too many: {extra[0]}.", look="what __init__ creates")
    for key, p in cell.parameters_and_names():
        if not p.requires_grad:
            fail(f"{name}.{key} has requires_grad=False: training leaves it alone.")
        if p.name != key:
            fail(
                f"{name}.{key} calls itself {p.name}: a checkpoint and an optimizer know it by that name.",
                look="name= in ms.Parameter(...), and parameters that are put in place after __init__: set_data changes the numbers and keeps the name",
            )


def fill(cell, seed=0, scale=0.5):
    """Random numbers for every parameter: weights of 1 and biases of 0 would hide mistakes. Returns the cell."""
    for i, p in enumerate(cell.get_parameters()):
        p.set_data(ms.Tensor(rand(*p.shape, seed=seed + i, scale=scale)))
    return cell


def arrays(cell):
    """name -> array of every parameter."""
    return {name: p.asnumpy() for name, p in cell.parameters_and_names()}


__all__ = [
    "FLOAT32", "Mismatch", "arrays", "call", "close", "equal", "fail", "fill", "gradients_close", "gradients_of", "in_plain_words", "is_tensor", "isolated",
    "parameters_are", "rand", "rand_ids", "same_gradient_in_graph_mode", "same_in_graph_mode", "tensor",
]
