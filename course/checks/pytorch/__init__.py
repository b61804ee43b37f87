"""Checks of the PyTorch lessons, and how they call and compare."""
import contextlib
import copy

import torch
import torch.utils._pytree
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from course.checks import Mismatch, argument_names, fail


@contextlib.contextmanager
def isolated():
    """A fixed seed inside; the learner's random state, default dtype and grad mode come back unchanged."""
    state, dtype, grad = torch.get_rng_state(), torch.get_default_dtype(), torch.is_grad_enabled()
    torch.manual_seed(20241)
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    try:
        yield
    finally:
        torch.set_rng_state(state)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)


def rand(*shape, seed=0, dtype=torch.float32, scale=1.0, grad=False):
    """Normal numbers from a generator of their own."""
    x = scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x.to(dtype).requires_grad_(grad)


def rand_ids(*shape, n, seed=0):
    """(…) int64 token ids below n."""
    return torch.randint(n, shape, generator=torch.Generator().manual_seed(seed))


def call(function, *args, **kwargs):
    """function(*args, **kwargs) on copies; fails if a tensor among them was changed in place."""
    given_args, given_kwargs = copy.deepcopy((args, kwargs))
    got = function(*given_args, **given_kwargs)
    names = argument_names(function.forward if isinstance(function, nn.Module) else function, args)
    for name, mine, theirs in [
        *zip(names, args, given_args),
        *((k, kwargs[k], given_kwargs[k]) for k in kwargs),
    ]:
        if isinstance(mine, torch.Tensor) and not same(mine, theirs):
            fail(
                f"the argument {name} is changed in place: whoever called you still needs it.",
                look="operations that end in _ and assignments into slices; compute a new tensor instead",
            )
    return got


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(torch.nan_to_num(a.detach()), torch.nan_to_num(b.detach()))


def shape_of(x):
    return "(" + ", ".join(str(n) for n in x.shape) + ("," if x.dim() == 1 else "") + ")"


def is_tensor(got, shape, dtype=None, device=None, name="the result"):
    """Fails, in this order, if got is None, no tensor, or of another shape, dtype or device."""
    if got is None:
        fail(f"{name} is None. Is there a return at the end of every branch?")
    if not isinstance(got, torch.Tensor):
        fail(f"{name} should be a torch.Tensor and is of type {type(got).__name__}.")
    if tuple(got.shape) != tuple(shape):
        fail(f"{name} has shape {shape_of(got)}, expected {shape_of(torch.empty(shape, device='meta'))}.")
    if dtype is not None and got.dtype != dtype:
        fail(f"{name} has dtype {got.dtype}, expected {dtype}.")
    if device is not None and got.device.type != torch.device(device).type:
        fail(
            f"{name} is on {got.device.type} while the input is on {torch.device(device).type}.",
            look="tensors that you create yourself: give them device=x.device",
        )


def close(got, want, atol, name="the result", known=(), look=""):
    """Fails unless got equals want: first as one of the known mistakes, then in general.

    Args:
        got: what the learner's code gave.
        want: tensor from an independent oracle.
        atol: largest absolute difference allowed, for numbers of size 1; larger ones get it times their size.
        known: pairs (mistake in words, the tensor that this mistake gives or a function that computes it).
        look: where to look if none of them fits.
    """
    if equal(got, want, atol):
        is_tensor(got, want.shape, want.dtype, want.device, name)
        return
    if isinstance(got, torch.Tensor):
        for mistake, value in known:
            value = value() if callable(value) else value
            if equal(got, value, max(atol, 1e-5)) and not equal(value, want, 2 * atol):
                fail(mistake, example=difference(got, want, name), look=look)
    is_tensor(got, want.shape, want.dtype, want.device, name)
    fail(f"{name} has the right shape and wrong values.", example=difference(got, want, name), look=look)


def equal(got, want, atol):
    if not isinstance(got, torch.Tensor) or got.shape != want.shape or got.dtype.is_complex:
        return False
    if got.device.type == "meta" or want.device.type == "meta":
        return got.device == want.device
    got, want = got.detach().cpu().to(torch.float64), want.detach().cpu().to(torch.float64)
    return torch.allclose(got, want, rtol=atol, atol=atol, equal_nan=True)


def difference(got, want, name):
    """One position at which got and want differ most, in words."""
    if not isinstance(got, torch.Tensor) or got.shape != want.shape:
        return ""
    if want.numel() == 0:
        return ""
    if want.dim() == 0:
        return f"{name} is {number(got)}, expected {number(want)}"
    mine, right = got.detach().to(torch.float64), want.detach().to(torch.float64)
    gap = torch.where(mine == right, 0.0, (mine - right).abs()).nan_to_num(nan=float("inf"))   # -inf equals -inf
    at = [int(i) for i in torch.unravel_index(gap.argmax(), want.shape)]
    return f"{name}[{', '.join(map(str, at))}] is {number(got[tuple(at)])}, expected {number(want[tuple(at)])}"


def number(x):
    x = x.detach().item()
    return str(x) if isinstance(x, (bool, int)) else f"{x:.6g}"


def gradients_close(function, reference, inputs, atol, names, known=()):
    """The gradient of a random weighting of function(*inputs) to every input equals that of reference."""
    wanted = gradients(reference, inputs)
    mine = gradients(function, inputs)
    if mine is None:
        fail(
            "no gradient flows through the result.",
            look=".detach(), .data, .item(), torch.no_grad(), torch.tensor(...) and NumPy cut the graph",
        )
    for name, got, want in zip(names, mine, wanted):
        if got is None:
            fail(f"no gradient reaches {name}.", look=".detach(), .data, .item(), torch.tensor(...) and NumPy cut the graph")
        close(got, want, atol, name=f"the gradient of {name}", known=known)


def gradients(function, inputs):
    leaves = [x.detach().clone().requires_grad_(True) if x.is_floating_point() else x for x in inputs]
    out = function(*leaves)
    if not isinstance(out, torch.Tensor) or not out.requires_grad:
        return None
    out.backward(rand(*out.shape, seed=99, dtype=out.dtype))
    return [x.grad for x in leaves if x.is_floating_point()]


aten = torch.ops.aten
READS_ACROSS_DEVICES = (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten.copy_, aten._to_copy)


class OneDevice(TorchDispatchMode):
    """Stops an operation that mixes a meta tensor with one on the CPU; numbers and indices may be anywhere."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        tensors = [a for a in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor) and a.dim() > 0]
        indexing = operation.overloadpacket in READS_ACROSS_DEVICES
        if not indexing and len({a.device.type for a in tensors}) > 1:
            raise MixedDevices
        return operation(*args, **(kwargs or {}))


class MixedDevices(Exception):
    pass


def keeps_device(function, *args):
    """Fails if the code makes tensors on the CPU for an input that is elsewhere.

    The meta device stands in for a GPU or an NPU. Code that needs values (loops with .item()) cannot run
    there and is left alone.
    """
    moved = [a.to("meta") if isinstance(a, (torch.Tensor, nn.Module)) else a for a in copy.deepcopy(args)]
    look = "tensors that you create yourself (torch.arange, ones, zeros, tril): give them device=x.device"
    try:
        with OneDevice():
            got = function(*moved)
    except MixedDevices:
        fail("a tensor is made on the CPU whatever device the input is on: on a GPU or an Ascend this stops.", look=look)
    except Exception:
        return
    if isinstance(got, torch.Tensor) and got.device.type != "meta":
        fail(f"the result is on {got.device.type} whatever device the input is on.", look=look)


def parameters_are(module, shapes, name):
    """The module has these parameters, as "name": shape, and no others."""
    got = {n: tuple(p.shape) for n, p in module.named_parameters()}
    for missing in shapes:
        if missing not in got:
            value = module
            for part in missing.split("."):
                value = getattr(value, part, None)
            if isinstance(value, torch.Tensor):
                fail(f"{name}.{missing} is a plain tensor: an optimizer never sees it.", look="nn.Parameter(...) makes a tensor a parameter")
            near = ", ".join(got) or "none"
            fail(f"{name} has no parameter {missing}; it has: {near}.")
        if got[missing] != shapes[missing]:
            fail(f"{name}.{missing} has shape {got[missing]}, expected {shapes[missing]}.")
    extra = [n for n in got if n not in shapes]
    if extra:
        fail(f"{name} has a parameter too many: {extra[0]}.", look="what __init__ creates")


def fill(module, seed=0, scale=0.5):
    """Random numbers for every parameter: weights of 1 and biases of 0 would hide mistakes."""
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(rand(*p.shape, seed=seed + i, scale=scale))
    return module


__all__ = [
    "Mismatch", "call", "close", "equal", "fail", "fill", "gradients", "gradients_close", "is_tensor", "isolated",
    "keeps_device", "parameters_are", "rand", "rand_ids", "shape_of",
]
