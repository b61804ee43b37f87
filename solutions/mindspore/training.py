"""AdamW, gradient clipping, the learning-rate schedule and checkpoints."""
import math
import os
from pathlib import Path

import mindspore as ms
from mindspore import nn, ops
from safetensors import safe_open
from safetensors.numpy import save_file


class AdamW(nn.Cell):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2).

    params: parameters, of which those with 2 or more dimensions decay. step(grads) takes gradients in their order.
    It is a Cell, because a compiled step can change nothing but Parameters: lr, t, m and v are such.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__()
        self.params = ms.ParameterTuple(params)
        self.lr = ms.Parameter(ms.Tensor(lr, ms.float32), name="lr", requires_grad=False)
        self.t = ms.Parameter(ms.Tensor(0.0, ms.float32), name="t", requires_grad=False)
        self.m = self.params.clone("m", init="zeros")         # named m.wte.weight, ...
        self.v = self.params.clone("v", init="zeros")
        self.betas = betas
        self.eps = eps
        self.decay = [weight_decay if p.ndim >= 2 else 0.0 for p in self.params]

    def step(self, grads):
        beta1, beta2 = self.betas
        t = ops.assign(self.t, self.t + 1)
        for i in range(len(self.params)):
            p, m, v = self.params[i], self.m[i], self.v[i]
            decayed = p * (1 - self.lr * self.decay[i])                            # decay, apart from the gradient
            m = ops.assign(m, beta1 * m + (1 - beta1) * grads[i])                  # mean of the gradients
            v = ops.assign(v, beta2 * v + (1 - beta2) * grads[i] * grads[i])       # mean of their squares
            root = ops.sqrt(v / (1 - beta2**t)) + self.eps
            ops.assign(p, decayed - self.lr / (1 - beta1**t) * m / root)
        return t

    def set_lr(self, lr):
        """A number written into the Parameter: a compiled step reads it, and is not compiled again."""
        ops.assign(self.lr, ms.Tensor(lr, ms.float32))        # set_data would give it new memory


def clip_grad_norm(grads, max_norm):
    """(grads scaled so that their norm, as one vector, is at most max_norm; the norm before), both new (Pascanu et al. 2013)."""
    squares = [(g * g).sum() for g in grads]
    norm = ops.sqrt(ops.stack(squares).sum())                 # of all gradients as one vector
    scale = ops.minimum(max_norm / (norm + 1e-6), 1.0)
    return tuple([g * scale for g in grads]), norm


def accumulate(value_and_grad, batches):
    """(mean loss, gradients) over micro-batches of one size, equal to those of the batch that they make up.

    value_and_grad(x, y) -> (loss, grads), as ms.value_and_grad gives it. There is no .grad to add to: the sum is yours.
    """
    total, sums = 0.0, None
    for x, y in batches:
        loss, grads = value_and_grad(x, y)
        total = total + loss / len(batches)                   # the mean over all of them
        grads = [g / len(batches) for g in grads]
        sums = grads if sums is None else [s + g for s, g in zip(sums, grads)]
    return total, tuple(sums)


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
    """Write weights, m, v, t and it to a safetensors file, which course.exchange reads into PyTorch as well.

    path: str or Path. A save that is interrupted leaves the file that was there before as it was.
    """
    tensors = {f"model.{p.name}": p.asnumpy() for p in model.trainable_params()}
    tensors |= {p.name: p.asnumpy() for p in (*optimizer.m, *optimizer.v)}
    unfinished = Path(f"{path}.tmp")
    save_file(tensors, unfinished, metadata={"it": str(it), "t": str(int(optimizer.t.asnumpy()))})
    os.replace(unfinished, path)                              # an interrupted save leaves the old file whole


def load_checkpoint(path, model, optimizer):
    """Put what save_checkpoint wrote back into model and optimizer; returns it.

    Raises:
        ValueError: a tensor is missing, one is too many, or a shape differs. Nothing is changed then.
    """
    targets = {f"model.{p.name}": p for p in model.trainable_params()}
    targets |= {p.name: p for p in (*optimizer.m, *optimizer.v)}
    with safe_open(path, framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        kept = file.metadata()
    for name in targets.keys() ^ tensors.keys():
        raise ValueError(f"{name} is {'missing in the checkpoint' if name in targets else 'not part of this model'}")
    for name, p in targets.items():
        if tensors[name].shape != p.shape:                    # set_data would take any shape
            raise ValueError(f"{name} has shape {tensors[name].shape} in the checkpoint and {p.shape} here")
    for name, p in targets.items():
        ops.assign(p, ms.Tensor(tensors[name]))               # set_data would give p new memory: a compiled step keeps the old
    ops.assign(optimizer.t, ms.Tensor(float(kept["t"]), ms.float32))
    return int(kept["it"])
