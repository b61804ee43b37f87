"""Carry weights from a PyTorch module to its MindSpore port, and compare the two."""
import numpy as np


class ParityError(ValueError):
    """Two models that cannot be made equal; the message names the tensor."""


def carry(torch_model, mindspore_model, rename=None):
    """Copy every parameter of a PyTorch module into the MindSpore cell of the same names and shapes.

    Nothing is copied unless all of them fit.

    Args:
        rename: gives for a PyTorch name the name in the MindSpore model, where they differ; framework_name for
            a model of MindSpore's own cells.

    Raises:
        ParityError: a tensor is missing, one is too many, or a shape differs; the message names it. Or the arguments
            are not a PyTorch module and a MindSpore cell, in this order.
    """
    import mindspore as ms

    if not hasattr(torch_model, "named_parameters") or not hasattr(mindspore_model, "parameters_and_names"):
        raise ParityError("carry takes the PyTorch module first and the MindSpore cell second.")
    named = {name: p.detach().cpu().numpy() for name, p in torch_model.named_parameters()}
    source = {name if rename is None else rename(name): p for name, p in named.items()}
    target = dict(mindspore_model.parameters_and_names())
    if len(source) < len(named):
        raise ParityError("two PyTorch parameters get one name in the MindSpore model: one would overwrite the other.")
    for name in source:
        if name not in target:
            raise ParityError(f"{name} has no place in the MindSpore model: its nearest names are {nearest(name, target)}.")
    for name, p in target.items():
        if name not in source:
            raise ParityError(f"the MindSpore model's {name} is not in the PyTorch model: it would keep its random start.")
        if tuple(p.shape) != source[name].shape:
            raise ParityError(f"{name} has shape {source[name].shape} in PyTorch and {tuple(p.shape)} in MindSpore: set_data would change it silently.")
    for name, p in target.items():
        p.set_data(ms.Tensor(source[name].astype(np.float32)))


def framework_name(name):
    """GPT-2's name of a parameter as a model of nn.Embedding, nn.LayerNorm and nn.Dense has it: wte.embedding_table, ln_f.gamma."""
    owner, _, last = name.rpartition(".")
    if owner in ("wte", "wpe"):
        return f"{owner}.embedding_table" if last == "weight" else name
    if owner.rpartition(".")[2] in ("ln_1", "ln_2", "ln_f"):
        return f"{owner}.{dict(weight='gamma', bias='beta').get(last, last)}"
    return name


def gpt2_name(name):
    """The way back: GPT-2's name for a name that framework_name gives."""
    owner, _, last = name.rpartition(".")
    plain = {"embedding_table": "weight", "gamma": "weight", "beta": "bias"}
    return f"{owner}.{plain.get(last, last)}"


def check_ids(idx, vocab_size):
    """Raise for a token id that no row of the table belongs to.

    MindSpore on a CPU takes the last row for -1, without a word. Call it where ids come from outside: it reads
    the values, which graph mode cannot.

    Raises:
        ValueError: an id is below 0 or not below vocab_size; the message names it and its place.
    """
    ids = np.asarray(idx.asnumpy() if hasattr(idx, "asnumpy") else idx)
    wrong = np.argwhere((ids < 0) | (ids >= vocab_size))
    if len(wrong):
        at = tuple(int(i) for i in wrong[0])
        raise ValueError(f"token id {ids[at]} at {list(at)} has no row: ids run from 0 to {vocab_size - 1}.")


def nearest(name, names):
    import difflib

    return ", ".join(difflib.get_close_matches(name, names, n=2) or list(names)[:2]) or "none"


def largest_difference(a, b):
    """The largest absolute difference of two tensors or arrays of one shape, whichever framework they come from.

    Raises:
        ParityError: the shapes differ, nothing is broadcast; or one of the two is None.
    """
    a, b = array(a), array(b)
    if a.shape != b.shape:
        raise ParityError(f"the shapes {a.shape} and {b.shape} differ.")
    return float(np.abs(a - b).max(initial=0))


def relative_difference(a, b):
    """largest_difference(a, b) over the largest value of b: how gradients are compared."""
    return largest_difference(a, b) / max(float(np.abs(array(b)).max(initial=0)), 1e-30)


def array(x):
    """A float64 NumPy array of a tensor of either framework. ParityError for None: NumPy would make a nan of it."""
    if x is None:
        raise ParityError("there is nothing to compare: one of the two is None. Is there a return at the end?")
    if hasattr(x, "detach"):
        x = x.detach().cpu()
    if hasattr(x, "asnumpy"):
        x = x.asnumpy()
    return np.asarray(x, dtype=np.float64)
