"""Linear, softmax, log-softmax and cross entropy from arithmetic, each with its backward by hand."""
import math

import torch
from torch import nn


def linear(x, weight, bias=None):
    """y = x @ weight.T + bias.

    x: (..., d_in); weight: (d_out, d_in); bias: (d_out,) or None. Returns (..., d_out), of the dtype of x.
    Same numbers as torch.nn.functional.linear.
    """
    y = x @ weight.T                                          # (..., d_out)
    if bias is not None:
        y = y + bias
    return y


def linear_backward(grad, x, weight):
    """The three gradients of a loss through y = linear(x, weight, bias).

    grad: (..., d_out), the gradient of y; x: (..., d_in); weight: (d_out, d_in).
    Returns grad_x (..., d_in), grad_weight (d_out, d_in), grad_bias (d_out,): summed over all leading axes.
    """
    grad_x = grad @ weight                                    # (..., d_in)
    rows = grad.reshape(-1, grad.shape[-1])                   # (N, d_out)
    grad_weight = rows.T @ x.reshape(-1, x.shape[-1])         # (d_out, d_in)
    grad_bias = rows.sum(dim=0)                               # (d_out,)
    return grad_x, grad_weight, grad_bias


def softmax(x, dim):
    """exp(x) divided by its sum along dim; of the shape and dtype of x. exp of a large x does not overflow.

    Same numbers as torch.softmax.
    """
    x = x - x.amax(dim=dim, keepdim=True).detach()            # the largest is 0: exp never overflows
    e = x.exp()
    return e * (1 / e.sum(dim=dim, keepdim=True))             # one division a row, not one an entry


def softmax_backward(grad, y, dim):
    """The gradient of x through y = softmax(x, dim). grad, y and the result have one shape."""
    shared = (grad * y).sum(dim=dim, keepdim=True)            # what every entry of a row loses
    return y * (grad - shared)


def log_softmax(x, dim):
    """log(softmax(x, dim)) in one step, finite where the softmax is rounded to 0; of the shape and dtype of x.

    Same numbers as torch.log_softmax.
    """
    x = x - x.amax(dim=dim, keepdim=True).detach()
    return x - x.exp().sum(dim=dim, keepdim=True).log()


def log_softmax_backward(grad, y, dim):
    """The gradient of x through y = log_softmax(x, dim). grad, y and the result have one shape."""
    return grad - y.exp() * grad.sum(dim=dim, keepdim=True)


def cross_entropy(logits, targets, ignore_index=-100):
    """Mean of -log softmax(logits)[target] over the targets that are not ignore_index; nan if all are.

    logits: (N, V); targets: (N,) int64, below V or equal to ignore_index. Returns (), of the dtype of logits.
    Same numbers as torch.nn.functional.cross_entropy.
    """
    log_p = log_softmax(logits, dim=-1)                       # (N, V)
    counts = targets != ignore_index                          # (N,) bool
    safe = targets.masked_fill(~counts, 0)                    # an ignored target must still be a valid index
    picked = log_p[torch.arange(len(safe)), safe]             # (N,)
    return -picked.masked_fill(~counts, 0).sum() / counts.sum()   # not times counts: 0 * inf is nan


def cross_entropy_backward(logits, targets, ignore_index=-100):
    """The gradient of logits through cross_entropy(logits, targets, ignore_index): (N, V), 0 in ignored rows."""
    counts = targets != ignore_index                          # (N,) bool
    safe = targets.masked_fill(~counts, 0)
    grad = softmax(logits, dim=-1)                            # (N, V)
    grad[torch.arange(len(safe)), safe] -= 1                  # p - y
    return grad * counts[:, None] / counts.sum()


class Linear(nn.Module):
    """y = x @ weight.T + bias for x (..., d_in), as torch.nn.Linear.

    weight: (d_out, d_in); bias: (d_out,), or None with bias=False. Both start uniform within 1/sqrt(d_in).
    """

    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        bound = 1 / math.sqrt(d_in)
        self.weight = nn.Parameter(torch.empty(d_out, d_in).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(d_out).uniform_(-bound, bound)) if bias else None

    def forward(self, x):
        return linear(x, self.weight, self.bias)
