"""AdamW, gradient clipping, the learning-rate schedule and checkpoints."""
import math
import os
from pathlib import Path

import torch


class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2).

    params: an iterable of parameters, of which those with 2 or more dimensions decay, or a list of dicts
    {"params": ..., and any of "lr", "betas", "eps", "weight_decay"}, taken as given.
    Settings are read from param_groups at every step. Parameters without a gradient are left alone.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        params = list(params)
        if isinstance(params[0], dict):
            groups = params
        else:
            groups = [
                {"params": [p for p in params if p.dim() >= 2]},
                {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
            ]
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        self.param_groups = [{**defaults, **group, "params": list(group["params"])} for group in groups]
        self.state = {}                                       # parameter -> step, m, v

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p not in self.state:
                    self.state[p] = {"step": 0, "m": torch.zeros_like(p), "v": torch.zeros_like(p)}
                state = self.state[p]
                state["step"] += 1
                m, v, t = state["m"], state["v"], state["step"]
                p.mul_(1 - group["lr"] * group["weight_decay"])            # decay, apart from the gradient
                m.mul_(beta1).add_(p.grad, alpha=1 - beta1)                # mean of the gradients
                v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)    # mean of their squares
                root = (v / (1 - beta2**t)).sqrt_().add_(group["eps"])
                p.addcdiv_(m, root, value=-group["lr"] / (1 - beta1**t))

    def zero_grad(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def state_dict(self):
        params = [p for group in self.param_groups for p in group["params"]]
        settings = [{k: v for k, v in group.items() if k != "params"} for group in self.param_groups]
        return {"groups": settings, "state": [self.state.get(p) for p in params]}

    def load_state_dict(self, saved):
        params = [p for group in self.param_groups for p in group["params"]]
        for group, settings in zip(self.param_groups, saved["groups"], strict=True):
            group.update(settings)
        self.state = {}
        for p, state in zip(params, saved["state"], strict=True):
            if state is not None:
                m, v = (torch.zeros_like(p).copy_(state[name]) for name in "mv")   # on the device of p
                self.state[p] = {"step": state["step"], "m": m, "v": v}


def clip_grad_norm(params, max_norm):
    """Scale all gradients in place so that their norm, as one vector, is at most max_norm (Pascanu et al. 2013).

    Returns the norm before, a tensor of shape (). At least one of params must have a gradient.
    """
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.stack([(g * g).sum() for g in grads]).sum().sqrt()   # of all gradients as one vector
    scale = max_norm / (norm + 1e-6)
    if scale < 1:
        for g in grads:
            g.mul_(scale)
    return norm


def accumulate(model, batches):
    """Add the gradient of the mean loss over a list of equally large micro-batches (x, y) to .grad.

    model(x, y) gives (logits, loss). Returns the mean loss, a float. Needs the memory of one micro-batch.
    """
    total = 0.0
    for x, y in batches:                                      # micro-batches of one size
        _, loss = model(x, y)
        loss = loss / len(batches)                            # the mean over all of them
        loss.backward()                                       # adds to what .grad holds
        total += loss.item()
    return total


def cosine_lr(it, max_lr, min_lr, warmup, total):
    """Learning rate of iteration it = 0, 1, ... (warmup; cosine of Loshchilov and Hutter 2017).

    it < warmup: max_lr (it + 1) / (warmup + 1); from warmup to total: down from max_lr to min_lr; then min_lr.
    """
    if it < warmup:
        return max_lr * (it + 1) / (warmup + 1)
    if it >= total:
        return min_lr
    progress = (it - warmup) / (total - warmup)               # 0 ... 1
    return min_lr + 0.5 * (1 + math.cos(math.pi * progress)) * (max_lr - min_lr)


def save_checkpoint(path, model, optimizer, it):
    """Write all that a run needs to go on: a dict with "model", "optimizer", "it" and "rng" (torch.get_rng_state()).

    path: str or Path. A save that is interrupted or fails leaves the file that was there before as it was, and raises.
    """
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "it": it,
        "rng": torch.get_rng_state(),
    }
    unfinished = Path(f"{path}.tmp")
    torch.save(state, unfinished)
    os.replace(unfinished, path)                              # an interrupted save leaves the old file whole


def load_checkpoint(path, model, optimizer):
    """Put what save_checkpoint wrote back into model, optimizer and PyTorch's random numbers; returns it."""
    state = torch.load(path, map_location="cpu", weights_only=True)   # data only, no code
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    return state["it"]
