"""Checkpoints that either framework continues: one safetensors file with weights, AdamW's m, v and t, and the iteration.

The MindSpore half writes and reads this format itself (solutions/mindspore/training.py, save_checkpoint); here is PyTorch's side.
"""
import os
from pathlib import Path

from course.parity import ParityError


def save_pytorch(path, model, optimizer, it):
    """Write a PyTorch model and the course's AdamW.

    Args:
        path: str or Path of the file.
        optimizer: AdamW of lesson 07, after at least one step.
        it: int, updates done.
    """
    from safetensors.torch import save_file

    tensors, steps = {}, set()
    for name, p in model.named_parameters():
        state = optimizer.state[p]
        tensors |= {f"model.{name}": p.detach().contiguous(), f"m.{name}": state["m"], f"v.{name}": state["v"]}
        steps.add(state["step"])
    unfinished = Path(f"{path}.tmp")
    save_file(tensors, unfinished, metadata={"it": str(it), "t": str(max(steps))})
    os.replace(unfinished, path)


def load_pytorch(path, model, optimizer):
    """Read a checkpoint of either framework into a PyTorch model and the course's AdamW; returns it.

    Raises:
        ParityError: a tensor is missing, one is too many, or a shape differs. Nothing is changed then.
    """
    import torch
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        kept = file.metadata()
    params = dict(model.named_parameters())
    wanted = {f"{kind}.{name}": p for name, p in params.items() for kind in ("model", "m", "v")}
    for name in sorted(wanted.keys() ^ tensors.keys()):
        raise ParityError(f"{name} is {'missing in the checkpoint' if name in wanted else 'not part of this model'}.")
    for name, p in wanted.items():
        if tensors[name].shape != p.shape:
            raise ParityError(f"{name} has shape {tuple(tensors[name].shape)} in the checkpoint and {tuple(p.shape)} here.")
    with torch.no_grad():
        for name, p in params.items():
            p.copy_(tensors[f"model.{name}"])
            optimizer.state[p] = {"step": int(kept["t"]), "m": tensors[f"m.{name}"].clone(), "v": tensors[f"v.{name}"].clone()}
    return int(kept["it"])
