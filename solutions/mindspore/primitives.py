"""Linear, softmax, log-softmax and cross entropy from arithmetic: the port of solutions/pytorch/primitives.py."""
import math

import mindspore as ms
import numpy as np
from mindspore import nn, ops


def linear(x, weight, bias=None):
    """y = x @ weight.T + bias.

    x: (..., d_in); weight: (d_out, d_in); bias: (d_out,) or None. Returns (..., d_out), of the dtype of x.
    Same numbers as torch.nn.functional.linear.
    """
    y = ops.matmul(x, weight.swapaxes(0, 1))                  # (..., d_out)
    if bias is not None:
        y = y + bias
    return y


def softmax(x, dim):
    """exp(x) divided by its sum along dim; of the shape and dtype of x. exp of a large x does not overflow.

    Same numbers as torch.softmax.
    """
    x = x - ops.stop_gradient(x.max(axis=dim, keepdims=True))  # the largest is 0: exp never overflows
    e = ops.exp(x)
    return e * (1 / e.sum(axis=dim, keepdims=True))           # one division a row, not one an entry


def log_softmax(x, dim):
    """log(softmax(x, dim)) in one step, finite where the softmax is rounded to 0; of the shape and dtype of x.

    Same numbers as torch.log_softmax.
    """
    x = x - ops.stop_gradient(x.max(axis=dim, keepdims=True))
    return x - ops.log(ops.exp(x).sum(axis=dim, keepdims=True))


def cross_entropy(logits, targets, ignore_index=-100):
    """Mean of -log softmax(logits)[target] over the targets that are not ignore_index; nan if all are.

    logits: (N, V); targets: (N,) int32 or int64, below V or equal to ignore_index. Returns (), of the dtype of logits.
    Same numbers as torch.nn.functional.cross_entropy.
    """
    log_p = log_softmax(logits, dim=-1)                       # (N, V)
    counts = targets != ignore_index                          # (N,) bool
    safe = targets.masked_fill(~counts, 0)                    # an ignored target must still be a valid index
    picked = ops.gather_elements(log_p, 1, safe.expand_dims(1)).squeeze(1)   # (N,)
    return -picked.masked_fill(~counts, 0).sum() / counts.sum()   # not times counts: 0 * inf is nan


class Linear(nn.Cell):
    """y = x @ weight.T + bias for x (..., d_in), as torch.nn.Linear.

    weight: (d_out, d_in); bias: (d_out,), or None with bias=False. Both start uniform within 1/sqrt(d_in).
    """

    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        bound = 1 / math.sqrt(d_in)
        self.weight = ms.Parameter(np.random.uniform(-bound, bound, (d_out, d_in)).astype(np.float32))
        self.bias = ms.Parameter(np.random.uniform(-bound, bound, d_out).astype(np.float32)) if bias else None

    def construct(self, x):
        return linear(x, self.weight, self.bias)
