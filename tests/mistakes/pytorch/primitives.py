import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from solutions.pytorch import primitives as good
from tests.mistakes import right, wrong

LINEAR = "pytorch.primitives.linear"
LINEAR_BACKWARD = "pytorch.primitives.linear_backward"
SOFTMAX = "pytorch.primitives.softmax"
SOFTMAX_BACKWARD = "pytorch.primitives.softmax_backward"
LOG_SOFTMAX = "pytorch.primitives.log_softmax"
LOG_SOFTMAX_BACKWARD = "pytorch.primitives.log_softmax_backward"
CROSS_ENTROPY = "pytorch.primitives.cross_entropy"
CROSS_ENTROPY_BACKWARD = "pytorch.primitives.cross_entropy_backward"
MODULE = "pytorch.primitives.Linear"

# --- linear --------------------------------------------------------------------------------------------


@wrong(LINEAR, "has to be transposed")
def weight_not_transposed(x, weight, bias=None):
    y = x @ weight
    return y if bias is None else y + bias


@wrong(LINEAR, "bias is not added")
def bias_ignored(x, weight, bias=None):
    return x @ weight.T


@wrong(LINEAR, "bias is subtracted")
def bias_subtracted(x, weight, bias=None):
    return x @ weight.T - (0 if bias is None else bias)


@wrong(LINEAR, "before the product")
def bias_before_product(x, weight, bias=None):
    return (x if bias is None else x + bias) @ weight.T


@wrong(LINEAR, "along the rows")
def bias_as_column(x, weight, bias=None):
    return x @ weight.T + (0 if bias is None else bias[:, None])


@wrong(LINEAR, "a row for each row of x")
def weight_times_x(x, weight, bias=None):
    return weight @ x.T + (0 if bias is None else bias[:, None])


@wrong(LINEAR, "its rows stay rows")
def x_transposed(x, weight, bias=None):
    return x.T @ weight.T + (0 if bias is None else bias)


@wrong(LINEAR, "entry by entry")
def star_for_at(x, weight, bias=None):
    return x * weight + (0 if bias is None else bias)


@wrong(LINEAR, "does not scale")
def scaled_by_width(x, weight, bias=None):
    return x @ weight.T / weight.shape[1] ** 0.5 + (0 if bias is None else bias)


@wrong(LINEAR, "activation")
def with_relu(x, weight, bias=None):
    return F.linear(x, weight, bias).relu()


@wrong(LINEAR, "residual")
def with_residual(x, weight, bias=None):
    return x + F.linear(x, weight, bias)


@wrong(LINEAR, "3 inputs and 5 outputs")
def four_outputs_written_down(x, weight, bias=None):
    return F.linear(x, weight, bias)[..., :4]


@wrong(LINEAR, "without a bias does not work")
def bias_needed(x, weight, bias):
    return x @ weight.T + bias


@wrong(LINEAR, "without a bias does not work")
def none_is_added(x, weight, bias=None):
    return x @ weight.T + bias


@wrong(LINEAR, "Boolean value of Tensor")
def truth_of_a_vector(x, weight, bias=None):
    return x @ weight.T + bias if bias else x @ weight.T


@wrong(LINEAR, "the bias [0.0, 1.0]")
def bias_only_if_all_are_there(x, weight, bias=None):
    y = x @ weight.T
    return y + bias if bias is not None and bias.all() else y


@wrong(LINEAR, "x of shape (3,)")
def swaps_the_last_two_axes(x, weight, bias=None):
    y = (weight @ x.transpose(-1, -2)).transpose(-1, -2)
    return y if bias is None else y + bias


@wrong(LINEAR, "x of shape (2, 4, 3)")
def two_axes_only(x, weight, bias=None):
    y = torch.zeros(x.shape[0], weight.shape[0], dtype=x.dtype) if x.dim() == 2 else x.new_zeros(weight.shape[0])
    y = y + torch.einsum("ni,oi->no" if x.dim() == 2 else "i,oi->o", x, weight)
    return y if bias is None else y + bias


@wrong(LINEAR, "not contiguous")
def view_needs_contiguous(x, weight, bias=None):
    y = (x.view(-1, x.shape[-1]) @ weight.T).view(*x.shape[:-1], -1)
    return y if bias is None else y + bias


@wrong(LINEAR, "expected torch.float64")
def always_float32(x, weight, bias=None):
    return F.linear(x, weight, bias).float()


@wrong(LINEAR, "only as exact as float32")
def float32_product(x, weight, bias=None):
    y = (x.float() @ weight.float().T).to(x.dtype)
    return y if bias is None else y + bias


@wrong(LINEAR, "no gradient")
def no_gradient_at_all(x, weight, bias=None):
    return F.linear(x, weight, bias).detach()


@wrong(LINEAR, "no gradient reaches weight")
def weight_data(x, weight, bias=None):
    return F.linear(x, weight.data, bias)


@wrong(LINEAR, "no gradient reaches bias")
def bias_data(x, weight, bias=None):
    return F.linear(x, weight, None if bias is None else bias.detach())


@wrong(LINEAR, "made on the CPU")
def zero_bias_on_the_cpu(x, weight, bias=None):
    if bias is None:
        bias = torch.zeros(weight.shape[0], dtype=x.dtype)
    return x @ weight.T + bias


@wrong(LINEAR, "is None")
def linear_without_return(x, weight, bias=None):
    F.linear(x, weight, bias)


@wrong(LINEAR, "argument weight is changed in place")
def transposes_in_place(x, weight, bias=None):
    weight.t_()
    return x @ weight + (0 if bias is None else bias)


@wrong(LINEAR, "type ndarray")
def in_numpy(x, weight, bias=None):
    return x.detach().numpy() @ weight.detach().numpy().T + (0 if bias is None else bias.detach().numpy())


@wrong(LINEAR, "the same bias")
def one_bias_for_all(x, weight, bias=None):
    return x @ weight.T + (0 if bias is None else bias.mean())


right(LINEAR)(F.linear)


@right(LINEAR)
def linear_by_addmm(x, weight, bias=None):
    rows = x.reshape(-1, x.shape[-1])
    y = rows.mm(weight.t()) if bias is None else torch.addmm(bias, rows, weight.t())
    return y.reshape(*x.shape[:-1], weight.shape[0])


@right(LINEAR)
def linear_by_einsum(x, weight, bias=None):
    y = torch.einsum("...i,oi->...o", x, weight)
    return y if bias is None else y + bias


@right(LINEAR)
def linear_by_columns(x, weight, bias=None):
    columns = []
    for j in range(weight.shape[0]):
        column = (x * weight[j]).sum(-1)
        columns.append(column if bias is None else column + bias[j])
    return torch.stack(columns, dim=-1)


@right(LINEAR)
def linear_with_zero_bias(x, weight, bias=None):
    bias = torch.zeros_like(weight[:, 0]) if bias is None else bias
    return torch.matmul(x, weight.transpose(0, 1)) + bias


@right(LINEAR)
def linear_adds_in_place(x, weight, bias=None):
    y = x @ weight.mT
    if bias is not None:
        y += bias
    return y


@right(LINEAR)
def linear_in_float64(x, weight, bias=None):
    y = (x.double()[..., None, :] * weight.double()).sum(-1)
    return (y if bias is None else y + bias.double()).to(x.dtype)


# --- linear_backward -----------------------------------------------------------------------------------


def flat(t):
    return t.reshape(-1, t.shape[-1])


@wrong(LINEAR_BACKWARD, "grad_x multiplies by weight transposed")
def grad_x_transposed_weight(grad, x, weight):
    return grad @ weight.T, flat(grad).T @ flat(x), flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "has the shape of x")
def grad_x_transposed(grad, x, weight):
    return (grad @ weight).mT, flat(grad).T @ flat(x), flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "grad_x multiplies by x")
def grad_x_from_x(grad, x, weight):
    return grad @ x, flat(grad).T @ flat(x), flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "grad_x is the weight")
def grad_x_without_grad(grad, x, weight):
    return weight, flat(grad).T @ flat(x), flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "grad_x is divided by the number of rows")
def grad_x_averaged(grad, x, weight):
    return grad @ weight / len(x), flat(grad).T @ flat(x), flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "wrong order")
def weight_first(grad, x, weight):
    return flat(grad).T @ flat(x), grad @ weight, flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "yours returns 2")
def no_grad_bias(grad, x, weight):
    return grad @ weight, flat(grad).T @ flat(x)


@wrong(LINEAR_BACKWARD, "is None")
def backward_returns_nothing(grad, x, weight):
    grad @ weight


@wrong(LINEAR_BACKWARD, "type Tensor")
def only_grad_x(grad, x, weight):
    return grad @ weight


@wrong(LINEAR_BACKWARD, "grad_weight is transposed")
def grad_weight_transposed(grad, x, weight):
    return grad @ weight, flat(x).T @ flat(grad), flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "grad_weight is not summed over the rows")
def grad_weight_grad_at_x(grad, x, weight):
    return grad @ weight, grad @ x, flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "grad_weight sums over the wrong axes")
def grad_weight_outer(grad, x, weight):
    return grad @ weight, grad @ x.mT, flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "grad_weight is averaged")
def grad_weight_mean(grad, x, weight):
    return grad @ weight, flat(grad).T @ flat(x) / len(flat(x)), flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "grad_weight has the wrong sign")
def grad_weight_negative(grad, x, weight):
    return grad @ weight, -flat(grad).T @ flat(x), flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "grad_weight is made of x alone")
def grad_weight_without_grad(grad, x, weight):
    return grad @ weight, flat(x).sum(0).expand(weight.shape), flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "grad_bias is not summed over the rows")
def grad_bias_not_summed(grad, x, weight):
    return grad @ weight, flat(grad).T @ flat(x), grad


@wrong(LINEAR_BACKWARD, "sums over the outputs")
def grad_bias_over_outputs(grad, x, weight):
    return grad @ weight, flat(grad).T @ flat(x), grad.sum(-1)


@wrong(LINEAR_BACKWARD, "grad_bias is averaged")
def grad_bias_mean(grad, x, weight):
    return grad @ weight, flat(grad).T @ flat(x), flat(grad).mean(0)


@wrong(LINEAR_BACKWARD, "summed over everything")
def grad_bias_total(grad, x, weight):
    return grad @ weight, flat(grad).T @ flat(x), grad.sum()


@wrong(LINEAR_BACKWARD, "an axis too many")
def grad_bias_keepdim(grad, x, weight):
    return grad @ weight, flat(grad).T @ flat(x), flat(grad).sum(0, keepdim=True)


@wrong(LINEAR_BACKWARD, "vector of ones")
def grad_bias_ones(grad, x, weight):
    return grad @ weight, flat(grad).T @ flat(x), torch.ones_like(grad[..., 0, :]) if grad.dim() > 1 else grad * 0 + 1


@wrong(LINEAR_BACKWARD, "grad_bias is summed over the first axis only")
def grad_bias_first_axis(grad, x, weight):
    return grad @ weight, flat(grad).T @ flat(x), grad.sum(0)


@wrong(LINEAR_BACKWARD, "grad_weight is summed over one axis only")
def grad_weight_batched(grad, x, weight):
    return grad @ weight, grad.mT @ x, flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "grad_weight is averaged over an axis")
def grad_weight_mean_of_batches(grad, x, weight):
    batched = grad.mT @ x
    return grad @ weight, batched if batched.dim() == 2 else batched.mean(0), flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "does not work")
def reverses_all_axes(grad, x, weight):
    return grad @ weight, grad.permute(*range(grad.dim() - 1, -1, -1)) @ x, flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "x of shape (3,)")
def needs_two_axes(grad, x, weight):
    return grad @ weight, torch.einsum("...no,...ni->...oi", grad, x).reshape(-1, *weight.shape).sum(0), flat(grad).sum(0)


@wrong(LINEAR_BACKWARD, "not contiguous")
def backward_by_view(grad, x, weight):
    rows = grad.view(-1, grad.shape[-1])
    return grad @ weight, rows.T @ x.view(-1, x.shape[-1]), rows.sum(0)


@wrong(LINEAR_BACKWARD, "float")
def backward_in_float32(grad, x, weight):
    rows = flat(grad).float()
    return grad @ weight, (rows.T @ flat(x).float()).to(x.dtype), rows.sum(0)


@wrong(LINEAR_BACKWARD, "autograd does the work")
def backward_by_autograd(grad, x, weight):
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    bias = torch.zeros(weight.shape[0], dtype=x.dtype, requires_grad=True)
    return torch.autograd.grad(F.linear(x, weight, bias), (x, weight, bias), grad)


@wrong(LINEAR_BACKWARD, "argument grad is changed in place")
def grad_in_place(grad, x, weight):
    grad_x = grad @ weight
    return grad_x, flat(grad).T @ flat(x), flat(grad.cumsum_(0))[-1]


@wrong(LINEAR_BACKWARD, "made on the CPU")
def bias_by_ones_on_the_cpu(grad, x, weight):
    rows = flat(grad)
    return grad @ weight, rows.T @ flat(x), torch.ones(len(rows), dtype=grad.dtype) @ rows


@wrong(LINEAR_BACKWARD, "every entry is 0.5 times")
def grad_bias_halved(grad, x, weight):
    return grad @ weight, flat(grad).T @ flat(x), flat(grad).sum(0) / 2


@right(LINEAR_BACKWARD)
def backward_by_einsum(grad, x, weight):
    return (
        torch.einsum("...o,oi->...i", grad, weight),
        torch.einsum("...o,...i->oi", grad, x),
        torch.einsum("...o->o", grad),
    )


@right(LINEAR_BACKWARD)
def backward_by_loops(grad, x, weight):
    grad_weight = torch.zeros_like(weight)
    grad_bias = torch.zeros_like(weight[:, 0])
    for g, row in zip(flat(grad), flat(x)):
        grad_weight += torch.outer(g, row)
        grad_bias += g
    return (grad[..., None] * weight).sum(-2), grad_weight, grad_bias


@right(LINEAR_BACKWARD)
def backward_as_a_list(grad, x, weight):
    return [grad.matmul(weight), (flat(x).T @ flat(grad)).T, grad.flatten(0, -2).sum(0) if grad.dim() > 1 else grad]


@right(LINEAR_BACKWARD)
def backward_in_float64(grad, x, weight):
    g, x64, w = grad.double(), x.double(), weight.double()
    return tuple(t.to(x.dtype) for t in (g @ w, flat(g).T @ flat(x64), flat(g).sum(0)))


# --- softmax -------------------------------------------------------------------------------------------


def shifted(x, dim):
    return x - x.amax(dim, keepdim=True)


@wrong(SOFTMAX, "overflow")
def no_maximum(x, dim):
    e = x.exp()
    return e / e.sum(dim, keepdim=True)


@wrong(SOFTMAX, "the last axis is not always the one")
def last_axis_always(x, dim):
    return x.softmax(-1)


@wrong(SOFTMAX, "the sum runs over axis 0")
def first_axis_always(x, dim):
    return x.softmax(0)


@wrong(SOFTMAX, "sum runs over axis")
def sums_over_the_last(x, dim):
    e = shifted(x, dim).exp()
    return e / e.sum(-1, keepdim=True)


@wrong(SOFTMAX, "exp is missing")
def divides_by_plain_sum(x, dim):
    return x / x.sum(dim, keepdim=True)


@wrong(SOFTMAX, "all entries are equal")
def uniform(x, dim):
    return torch.full_like(x, 1 / x.shape[dim])


@wrong(SOFTMAX, "sum below the fraction has lost its axis")
def sum_without_keepdim(x, dim):
    e = shifted(x, dim).exp()
    return e / e.sum(dim)


@wrong(SOFTMAX, "sum below the fraction has lost its axis")
def plain_sum_without_keepdim(x, dim):
    return x.exp() / x.exp().sum(dim)


@wrong(SOFTMAX, "largest entry has lost its axis")
def maximum_without_keepdim(x, dim):
    e = (x - x.amax(dim)).exp()
    return e / e.sum(dim, keepdim=True)


@wrong(SOFTMAX, "maximum and sum have lost their axis")
def nothing_with_keepdim(x, dim):
    e = (x - x.amax(dim)).exp()
    return e / e.sum(dim)


@wrong(SOFTMAX, "rows of very different size")
def maximum_of_everything(x, dim):
    e = (x - x.max()).exp()
    return e / e.sum(dim, keepdim=True)


@wrong(SOFTMAX, "the maximum is taken over axis")
def maximum_over_the_last_axis(x, dim):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


@wrong(SOFTMAX, "overflow")
def smallest_subtracted(x, dim):
    e = (x - x.amin(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


@wrong(SOFTMAX, "overflow")
def mean_subtracted(x, dim):
    e = (x - x.mean(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


@wrong(SOFTMAX, "all very negative")
def largest_magnitude_subtracted(x, dim):
    e = (x - x.abs().amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


@wrong(SOFTMAX, "all very negative")
def only_positive_maxima(x, dim):
    e = (x - x.amax(dim, keepdim=True).clamp(min=0)).exp()
    return e / e.sum(dim, keepdim=True)


@wrong(SOFTMAX, "clamp")
def clamped(x, dim):
    e = x.clamp(-80, 80).exp()
    return e / e.sum(dim, keepdim=True)


@wrong(SOFTMAX, "clamp")
def nan_to_zero(x, dim):
    e = x.exp()
    return (e / e.sum(dim, keepdim=True)).nan_to_num()


@wrong(SOFTMAX, "shifted alike")
def shifted_above_only(x, dim):
    return shifted(x, dim).exp() / x.exp().sum(dim, keepdim=True)


@wrong(SOFTMAX, "not divided by their sum")
def not_normalised(x, dim):
    return shifted(x, dim).exp()


@wrong(SOFTMAX, "divided by their mean")
def mean_for_sum(x, dim):
    e = shifted(x, dim).exp()
    return e / e.mean(dim, keepdim=True)


@wrong(SOFTMAX, "over all entries at once")
def everything_sums_to_one(x, dim):
    e = (x - x.max()).exp()
    return e / e.sum()


@wrong(SOFTMAX, "base is 2")
def powers_of_two(x, dim):
    e = torch.exp2(shifted(x, dim))
    return e / e.sum(dim, keepdim=True)


@wrong(SOFTMAX, "sign is wrong")
def softmin(x, dim):
    return (-x).softmax(dim)


@wrong(SOFTMAX, "sigmoid")
def sigmoid(x, dim):
    return x.sigmoid()


@wrong(SOFTMAX, "logarithm of the softmax")
def logarithm_returned(x, dim):
    return x.log_softmax(dim)


@wrong(SOFTMAX, "taken twice")
def softmax_of_softmax(x, dim):
    return x.softmax(dim).softmax(dim)


@wrong(SOFTMAX, "one-hot")
def hardmax(x, dim):
    return (x == x.amax(dim, keepdim=True)).to(x.dtype)


@wrong(SOFTMAX, "argument x is changed in place")
def maximum_subtracted_in_place(x, dim):
    x -= x.amax(dim, keepdim=True)
    e = x.exp()
    return e / e.sum(dim, keepdim=True)


@wrong(SOFTMAX, "entries of -inf")
def infinities_replaced(x, dim):
    x = x.nan_to_num(neginf=-5.0)
    return x.softmax(dim)


@wrong(SOFTMAX, "entries of -inf")
def finite_sums_only(x, dim):
    x = x - torch.where(x.isinf().any(dim, keepdim=True), x.amin(dim, keepdim=True), x.amax(dim, keepdim=True))
    e = x.exp()
    return e / e.sum(dim, keepdim=True)


@wrong(SOFTMAX, "the sum runs over axis 2; dim = ")
def two_axes_at_most(x, dim):
    if dim in (0, -2) and x.dim() == 2:
        return x.T.softmax(-1).T
    return x.softmax(-1)


@wrong(SOFTMAX, "shape (2, 3, 4) with dim = ")
def rows_by_unsqueeze(x, dim):
    e = (x - x.amax(dim).unsqueeze(-1)).exp()
    return e / e.sum(dim).unsqueeze(-1)


@wrong(SOFTMAX, "small number is added")
def epsilon_below(x, dim):
    e = shifted(x, dim).exp()
    return e / (e.sum(dim, keepdim=True) + 1e-8)


@wrong(SOFTMAX, "only as exact as float32")
def softmax_in_float32(x, dim):
    return x.float().softmax(dim).to(x.dtype)


@wrong(SOFTMAX, "expected torch.float16")
def half_becomes_float(x, dim):
    return (x.float() if x.dtype in (torch.float16, torch.bfloat16) else x).softmax(dim)


@wrong(SOFTMAX, "no gradient")
def softmax_detached(x, dim):
    return x.detach().softmax(dim)


@wrong(SOFTMAX, "misses the sum below the fraction")
def sum_detached(x, dim):
    e = shifted(x, dim).exp()
    return e / e.sum(dim, keepdim=True).detach()


@wrong(SOFTMAX, "made on the CPU")
def ones_on_the_cpu(x, dim):
    e = shifted(x, dim).exp()
    return e * (torch.ones(x.shape, dtype=x.dtype) / e.sum(dim, keepdim=True))


@wrong(SOFTMAX, "is None")
def softmax_without_return(x, dim):
    x.softmax(dim)


@wrong(SOFTMAX, "sum to 0.99931")
def large_epsilon_below(x, dim):
    e = shifted(x, dim).exp()
    return e / (e.sum(dim, keepdim=True) + 1e-3)


@wrong(SOFTMAX, "x is scaled before exp")
def divided_by_the_maximum(x, dim):
    return (x / x.amax(dim, keepdim=True)).softmax(dim)


@wrong(SOFTMAX, "dim = -1 was asked for")
def magnitude_of_dim(x, dim):
    return x.softmax(min(abs(dim), x.dim() - 1))


@wrong(SOFTMAX, "overflow")
def index_of_the_maximum(x, dim):
    e = (x - x.max(dim, keepdim=True)[1]).exp()
    return e / e.sum(dim, keepdim=True)


right(SOFTMAX)(torch.softmax)


@right(SOFTMAX)
def softmax_online(x, dim):
    rows = x.movedim(dim, 0)
    largest, total = rows[0], torch.ones_like(rows[0])
    for row in rows[1:]:
        new = torch.maximum(largest, row)
        same_old, same_new = largest == new, row == new
        total = total * torch.where(same_old, 0, largest - new).exp() + torch.where(same_new, 0, row - new).exp()
        largest = new
    return ((rows - largest).exp() / total).movedim(0, dim)


@right(SOFTMAX)
def softmax_without_detach(x, dim):
    e = torch.exp(x - torch.max(x, dim=dim, keepdim=True).values)
    return e / torch.sum(e, dim=dim, keepdim=True)


@right(SOFTMAX)
def softmax_by_logsumexp(x, dim):
    return (x - x.logsumexp(dim, keepdim=True)).exp()


@right(SOFTMAX)
def softmax_on_the_last_axis(x, dim):
    moved = x.transpose(dim, -1)
    e = (moved - moved.max(-1, keepdim=True)[0]).exp()
    return (e / e.sum(-1, keepdim=True)).transpose(dim, -1)


@right(SOFTMAX)
def softmax_row_by_row(x, dim):
    rows = []
    for row in x.transpose(dim, -1).reshape(-1, x.shape[dim]):
        e = [torch.exp(value - max(row.tolist())) for value in row]
        rows.append(torch.stack(e) / sum(e))
    return torch.stack(rows).reshape(x.transpose(dim, -1).shape).transpose(dim, -1)


@right(SOFTMAX)
def softmax_in_float64(x, dim):
    e = (x.double() - x.double().amax(dim, True)).exp()
    return (e / e.sum(dim, True)).to(x.dtype)


@right(SOFTMAX)
def softmax_by_unsqueeze(x, dim):
    e = (x - x.amax(dim).unsqueeze(dim)).exp_()
    return e.div(e.sum(dim).unsqueeze(dim))


# --- log_softmax ---------------------------------------------------------------------------------------


@wrong(LOG_SOFTMAX, "comes too late")
def log_of_softmax(x, dim):
    return x.softmax(dim).log()


@wrong(LOG_SOFTMAX, "hides the -inf")
def log_of_softmax_plus_epsilon(x, dim):
    return (x.softmax(dim) + 1e-9).log()


@wrong(LOG_SOFTMAX, "hides the -inf")
def log_of_clamped_softmax(x, dim):
    return x.softmax(dim).clamp(min=1e-12).log()


@wrong(LOG_SOFTMAX, "overflow")
def log_softmax_no_maximum(x, dim):
    return x - x.exp().sum(dim, keepdim=True).log()


@wrong(LOG_SOFTMAX, "all very negative")
def log_softmax_positive_maxima(x, dim):
    x = x - x.amax(dim, keepdim=True).clamp(min=0)
    return x - x.exp().sum(dim, keepdim=True).log()


@wrong(LOG_SOFTMAX, "sum runs over axis")
def log_softmax_last_axis(x, dim):
    return x.log_softmax(-1)


@wrong(LOG_SOFTMAX, "sum runs over axis 0")
def log_softmax_first_axis(x, dim):
    return x.log_softmax(0)


@wrong(LOG_SOFTMAX, "logarithm of the sum has lost its axis")
def log_sum_without_keepdim(x, dim):
    x = shifted(x, dim)
    return x - x.exp().sum(dim).log()


@wrong(LOG_SOFTMAX, "logarithm of the sum has lost its axis")
def logsumexp_without_keepdim(x, dim):
    return x - x.logsumexp(dim)


@wrong(LOG_SOFTMAX, "largest entry has lost its axis")
def log_maximum_without_keepdim(x, dim):
    x = x - x.amax(dim)
    return x - x.exp().sum(dim, keepdim=True).log()


@wrong(LOG_SOFTMAX, "rows of very different size")
def log_maximum_of_everything(x, dim):
    x = x - x.max()
    return x - x.exp().sum(dim, keepdim=True).log()


@wrong(LOG_SOFTMAX, "the maximum is taken over axis")
def log_maximum_over_the_last_axis(x, dim):
    x = x - x.amax(-1, keepdim=True)
    return x - x.exp().sum(dim, keepdim=True).log()


@wrong(LOG_SOFTMAX, "inside the sum only")
def maximum_not_added_back(x, dim):
    return x - shifted(x, dim).exp().sum(dim, keepdim=True).log()


@wrong(LOG_SOFTMAX, "counts twice")
def maximum_counts_twice(x, dim):
    return shifted(x, dim) - x.logsumexp(dim, keepdim=True)


@wrong(LOG_SOFTMAX, "base 2")
def log2_of_softmax(x, dim):
    return x.log_softmax(dim) / math.log(2)


@wrong(LOG_SOFTMAX, "base 2 is taken of the sum")
def log2_of_the_sum(x, dim):
    x = shifted(x, dim)
    return x - x.exp().sum(dim, keepdim=True).log2()


@wrong(LOG_SOFTMAX, "base 10")
def log10_of_the_sum(x, dim):
    x = shifted(x, dim)
    return x - x.exp().sum(dim, keepdim=True).log10()


@wrong(LOG_SOFTMAX, "log1p")
def log1p_of_the_sum(x, dim):
    x = shifted(x, dim)
    return x - x.exp().sum(dim, keepdim=True).log1p()


@wrong(LOG_SOFTMAX, "this is the softmax")
def softmax_returned(x, dim):
    return x.softmax(dim)


@wrong(LOG_SOFTMAX, "without its logarithm")
def sum_without_log(x, dim):
    x = shifted(x, dim)
    return x - x.exp().sum(dim, keepdim=True)


@wrong(LOG_SOFTMAX, "logarithm of the sum is missing")
def only_the_shift(x, dim):
    return shifted(x, dim)


@wrong(LOG_SOFTMAX, "mean of the exponentials")
def log_of_the_mean(x, dim):
    x = shifted(x, dim)
    return x - x.exp().mean(dim, keepdim=True).log()


@wrong(LOG_SOFTMAX, "at most 0")
def negative_log_softmax(x, dim):
    return -x.log_softmax(dim)


@wrong(LOG_SOFTMAX, "log(a / b) = log(a) - log(b)")
def log_sum_added(x, dim):
    x = shifted(x, dim)
    return x + x.exp().sum(dim, keepdim=True).log()


@wrong(LOG_SOFTMAX, "x is divided by the logarithm")
def divided_by_log_sum(x, dim):
    x = shifted(x, dim)
    return x / x.exp().sum(dim, keepdim=True).log()


@wrong(LOG_SOFTMAX, "only the logarithm of the sum")
def logsumexp_returned(x, dim):
    return x.logsumexp(dim, keepdim=True)


@wrong(LOG_SOFTMAX, "over all entries at once")
def log_softmax_of_everything(x, dim):
    return x - x.flatten().logsumexp(0)


@wrong(LOG_SOFTMAX, "changed in place")
def log_softmax_in_place(x, dim):
    x.sub_(x.amax(dim, keepdim=True))
    return x - x.exp().sum(dim, keepdim=True).log()


@wrong(LOG_SOFTMAX, "with entries of -inf")
def log_softmax_finite_only(x, dim):
    return x.log_softmax(dim).clamp(min=-1e5)


@wrong(LOG_SOFTMAX, "only as exact as float32")
def log_softmax_in_float32(x, dim):
    return x.float().log_softmax(dim).to(x.dtype)


@wrong(LOG_SOFTMAX, "misses the logarithm of the sum")
def log_sum_detached(x, dim):
    return x - x.logsumexp(dim, keepdim=True).detach()


@wrong(LOG_SOFTMAX, "no gradient")
def log_softmax_from_numpy(x, dim):
    a = x.detach().cpu().double().numpy()
    a = a - a.max(dim, keepdims=True)
    return torch.from_numpy(a - np.log(np.exp(a).sum(dim, keepdims=True))).to(x.dtype)


@wrong(LOG_SOFTMAX, "made on the CPU")
def log_softmax_zeros_on_the_cpu(x, dim):
    return torch.zeros(x.shape, dtype=x.dtype) + x.log_softmax(dim)


right(LOG_SOFTMAX)(torch.log_softmax)


@right(LOG_SOFTMAX)
def log_softmax_by_logsumexp(x, dim):
    return x - torch.logsumexp(x, dim, keepdim=True)


@right(LOG_SOFTMAX)
def log_softmax_without_detach(x, dim):
    m = x.max(dim, keepdim=True).values
    return x - m - torch.log(torch.exp(x - m).sum(dim, keepdim=True))


@right(LOG_SOFTMAX)
def log_softmax_maximum_added_back(x, dim):
    m = x.amax(dim, keepdim=True)
    return x - (m + (x - m).exp().sum(dim, keepdim=True).log())


@right(LOG_SOFTMAX)
def log_softmax_on_the_last_axis(x, dim):
    moved = x.movedim(dim, -1)
    moved = moved - moved.max(-1)[0][..., None]
    return (moved - moved.exp().sum(-1)[..., None].log()).movedim(-1, dim)


@right(LOG_SOFTMAX)
def log_softmax_in_float64(x, dim):
    x64 = x.double()
    return (x64 - x64.logsumexp(dim, True)).to(x.dtype)


# --- softmax_backward ----------------------------------------------------------------------------------


def dot(a, b, dim):
    return (a * b).sum(dim, keepdim=True)


@wrong(SOFTMAX_BACKWARD, "shared term is missing")
def shared_forgotten(grad, y, dim):
    return y * grad


@wrong(SOFTMAX_BACKWARD, "only the diagonal")
def like_a_sigmoid(grad, y, dim):
    return grad * y * (1 - y)


@wrong(SOFTMAX_BACKWARD, "off the diagonal")
def off_diagonal_only(grad, y, dim):
    return -y * dot(grad, y, dim)


@wrong(SOFTMAX_BACKWARD, "shared term is added")
def shared_added(grad, y, dim):
    return y * (grad + dot(grad, y, dim))


@wrong(SOFTMAX_BACKWARD, "sign is wrong")
def softmax_backward_negative(grad, y, dim):
    return y * (dot(grad, y, dim) - grad)


@wrong(SOFTMAX_BACKWARD, "not multiplied by y: y stands in front")
def shared_without_y(grad, y, dim):
    return y * grad - dot(grad, y, dim)


@wrong(SOFTMAX_BACKWARD, "the whole is not multiplied by y")
def bracket_without_y(grad, y, dim):
    return grad - dot(grad, y, dim)


@wrong(SOFTMAX_BACKWARD, "sum of grad; it is the sum of grad * y")
def sum_of_grad(grad, y, dim):
    return y * (grad - grad.sum(dim, keepdim=True))


@wrong(SOFTMAX_BACKWARD, "a mean; it is a sum")
def shared_mean(grad, y, dim):
    return y * (grad - (grad * y).mean(dim, keepdim=True))


@wrong(SOFTMAX_BACKWARD, "backward of log_softmax")
def formula_of_log_softmax(grad, y, dim):
    return grad - y * grad.sum(dim, keepdim=True)


@wrong(SOFTMAX_BACKWARD, "softmax is taken again")
def softmax_again(grad, y, dim):
    p = y.softmax(dim)
    return p * (grad - dot(grad, p, dim))


@wrong(SOFTMAX_BACKWARD, "sum has lost its axis")
def shared_without_keepdim(grad, y, dim):
    return y * (grad - (grad * y).sum(dim))


@wrong(SOFTMAX_BACKWARD, "over all entries")
def shared_over_everything(grad, y, dim):
    return y * (grad - (grad * y).sum())


@wrong(SOFTMAX_BACKWARD, "sum runs over axis")
def shared_over_the_last_axis(grad, y, dim):
    return y * (grad - dot(grad, y, -1))


@wrong(SOFTMAX_BACKWARD, "sum runs over axis")
def shared_over_the_first_axis(grad, y, dim):
    return y * (grad - dot(grad, y, 0))


@wrong(SOFTMAX_BACKWARD, "y and grad are exchanged")
def y_and_grad_exchanged(grad, y, dim):
    return grad * (y - dot(grad, y, dim))


@wrong(SOFTMAX_BACKWARD, "shared term is added")
def jacobian_with_plus(grad, y, dim):
    g, p = grad.transpose(dim, -1), y.transpose(dim, -1)
    jacobian = torch.diag_embed(p) + p[..., :, None] * p[..., None, :]
    return (jacobian @ g[..., None])[..., 0].transpose(dim, -1)


@wrong(SOFTMAX_BACKWARD, "argument grad is changed in place")
def grad_shifted_in_place(grad, y, dim):
    grad -= dot(grad, y, dim)
    return y * grad


@wrong(SOFTMAX_BACKWARD, "a share of exactly 0")
def through_the_logarithm(grad, y, dim):
    x = y.log()
    return y * (grad - dot(grad, y, dim)) + 0 * x


@wrong(SOFTMAX_BACKWARD, "a share of exactly 0")
def divides_by_y(grad, y, dim):
    by_y = grad * y
    return by_y - y * by_y.sum(dim, keepdim=True) * (y / y)


@wrong(SOFTMAX_BACKWARD, "not contiguous")
def softmax_backward_by_view(grad, y, dim):
    return (y * (grad - dot(grad, y, dim))).view(grad.shape) if grad.view(-1) is not None else None


@wrong(SOFTMAX_BACKWARD, "only as exact as float32")
def softmax_backward_in_float32(grad, y, dim):
    g, p = grad.float(), y.float()
    return (p * (g - dot(g, p, dim))).to(y.dtype)


@wrong(SOFTMAX_BACKWARD, "autograd does the work")
def softmax_backward_by_autograd(grad, y, dim):
    x = y.clamp(min=1e-45).log().detach().requires_grad_()
    x.softmax(dim).backward(grad)
    return x.grad


@wrong(SOFTMAX_BACKWARD, "made on the CPU")
def softmax_backward_zeros_on_the_cpu(grad, y, dim):
    return torch.zeros(y.shape, dtype=y.dtype) + y * (grad - dot(grad, y, dim))


@wrong(SOFTMAX_BACKWARD, "must sum to 0")
def squares_of_y(grad, y, dim):
    return y * grad - y * y * grad.sum(dim, keepdim=True)


@right(SOFTMAX_BACKWARD)
def softmax_backward_two_terms(grad, y, dim):
    weighted = grad * y
    return weighted - y * weighted.sum(dim, keepdim=True)


@right(SOFTMAX_BACKWARD)
def softmax_backward_by_jacobian(grad, y, dim):
    g, p = grad.transpose(dim, -1), y.transpose(dim, -1)
    jacobian = torch.diag_embed(p) - p[..., :, None] * p[..., None, :]
    return (g[..., None, :] @ jacobian)[..., 0, :].transpose(dim, -1)


@right(SOFTMAX_BACKWARD)
def softmax_backward_by_einsum(grad, y, dim):
    g, p = grad.movedim(dim, -1), y.movedim(dim, -1)
    shared = torch.einsum("...i,...i->...", g, p)[..., None]
    return (p * g - p * shared).movedim(-1, dim)


@right(SOFTMAX_BACKWARD)
def softmax_backward_in_float64(grad, y, dim):
    g, p = grad.double(), y.double()
    return (p * (g - dot(g, p, dim))).to(y.dtype)


@right(SOFTMAX_BACKWARD)
def softmax_backward_by_entries(grad, y, dim):
    g, p = grad.movedim(dim, 0), y.movedim(dim, 0)
    out = torch.zeros_like(p)
    for j in range(len(p)):
        for i in range(len(p)):
            out[j] += g[i] * p[i] * (float(i == j) - p[j])
    return out.movedim(0, dim)


# --- log_softmax_backward ------------------------------------------------------------------------------


def total(grad, dim):
    return grad.sum(dim, keepdim=True)


@wrong(LOG_SOFTMAX_BACKWARD, "exp(y) the probability")
def y_for_probability(grad, y, dim):
    return grad - y * total(grad, dim)


@wrong(LOG_SOFTMAX_BACKWARD, "not multiplied by the probabilities")
def no_probability(grad, y, dim):
    return grad - total(grad, dim)


@wrong(LOG_SOFTMAX_BACKWARD, "shared term is missing")
def grad_as_it_is(grad, y, dim):
    return grad.clone()


@wrong(LOG_SOFTMAX_BACKWARD, "grad is not summed")
def grad_not_summed(grad, y, dim):
    return grad - y.exp() * grad


@wrong(LOG_SOFTMAX_BACKWARD, "sum of grad is missing")
def sum_taken_for_one(grad, y, dim):
    return grad - y.exp()


@wrong(LOG_SOFTMAX_BACKWARD, "that of grad * exp(y)")
def weighted_sum(grad, y, dim):
    return grad - y.exp() * dot(grad, y.exp(), dim)


@wrong(LOG_SOFTMAX_BACKWARD, "shared term is added")
def log_shared_added(grad, y, dim):
    return grad + y.exp() * total(grad, dim)


@wrong(LOG_SOFTMAX_BACKWARD, "sign is wrong")
def log_softmax_backward_negative(grad, y, dim):
    return y.exp() * total(grad, dim) - grad


@wrong(LOG_SOFTMAX_BACKWARD, "a mean; it is a sum")
def log_shared_mean(grad, y, dim):
    return grad - y.exp() * grad.mean(dim, keepdim=True)


@wrong(LOG_SOFTMAX_BACKWARD, "this is the backward of softmax")
def formula_of_softmax(grad, y, dim):
    return y * (grad - dot(grad, y, dim))


@wrong(LOG_SOFTMAX_BACKWARD, "this is the backward of softmax")
def formula_of_softmax_with_exp(grad, y, dim):
    return y.exp() * (grad - dot(grad, y.exp(), dim))


@wrong(LOG_SOFTMAX_BACKWARD, "the whole is multiplied")
def whole_times_probability(grad, y, dim):
    return y.exp() * (grad - total(grad, dim))


@wrong(LOG_SOFTMAX_BACKWARD, "sum has lost its axis")
def log_total_without_keepdim(grad, y, dim):
    return grad - y.exp() * grad.sum(dim)


@wrong(LOG_SOFTMAX_BACKWARD, "over all entries")
def log_total_over_everything(grad, y, dim):
    return grad - y.exp() * grad.sum()


@wrong(LOG_SOFTMAX_BACKWARD, "sum runs over axis")
def log_total_over_the_last_axis(grad, y, dim):
    return grad - y.exp() * grad.sum(-1, keepdim=True)


@wrong(LOG_SOFTMAX_BACKWARD, "softmax runs over axis")
def log_softmax_over_the_last_axis(grad, y, dim):
    return grad - y.softmax(-1) * total(grad, dim)


@wrong(LOG_SOFTMAX_BACKWARD, "base is 2")
def log_backward_exp2(grad, y, dim):
    return grad - torch.exp2(y) * total(grad, dim)


@wrong(LOG_SOFTMAX_BACKWARD, "argument y is changed in place")
def exp_in_place(grad, y, dim):
    return grad - y.exp_() * total(grad, dim)


@wrong(LOG_SOFTMAX_BACKWARD, "nan or inf")
def through_softmax_backward(grad, y, dim):
    p = y.exp()
    by_p = grad / p
    return p * (by_p - dot(by_p, p, dim))


@wrong(LOG_SOFTMAX_BACKWARD, "very small probabilities")
def probabilities_bounded_below(grad, y, dim):
    return grad - y.exp().clamp(min=1e-4) * total(grad, dim)


@wrong(LOG_SOFTMAX_BACKWARD, "not contiguous")
def log_softmax_backward_by_view(grad, y, dim):
    flat_grad = grad.view(-1).view(grad.shape)
    return flat_grad - y.exp() * total(flat_grad, dim)


@wrong(LOG_SOFTMAX_BACKWARD, "only as exact as float32")
def log_softmax_backward_in_float32(grad, y, dim):
    return (grad.float() - y.float().exp() * total(grad.float(), dim)).to(y.dtype)


@wrong(LOG_SOFTMAX_BACKWARD, "autograd does the work")
def log_softmax_backward_by_autograd(grad, y, dim):
    x = y.detach().clone().requires_grad_()
    return torch.autograd.grad(x.log_softmax(dim), x, grad)[0]


@wrong(LOG_SOFTMAX_BACKWARD, "made on the CPU")
def log_softmax_backward_zeros_on_the_cpu(grad, y, dim):
    return torch.zeros(y.shape, dtype=y.dtype) + grad - y.exp() * total(grad, dim)


@right(LOG_SOFTMAX_BACKWARD)
def log_softmax_backward_softmax_of_y(grad, y, dim):
    return grad - y.softmax(dim) * total(grad, dim)


@right(LOG_SOFTMAX_BACKWARD)
def log_softmax_backward_by_jacobian(grad, y, dim):
    g, p = grad.movedim(dim, -1), y.movedim(dim, -1).exp()
    jacobian = torch.eye(p.shape[-1], dtype=y.dtype, device=y.device) - p[..., None, :]
    return torch.einsum("...i,...ij->...j", g, jacobian.expand(*p.shape, p.shape[-1])).movedim(-1, dim)


@right(LOG_SOFTMAX_BACKWARD)
def log_softmax_backward_in_float64(grad, y, dim):
    return (grad.double() - y.double().exp() * total(grad.double(), dim)).to(y.dtype)


@right(LOG_SOFTMAX_BACKWARD)
def log_softmax_backward_by_unsqueeze(grad, y, dim):
    out = -torch.exp(y)
    out *= grad.sum(dim).unsqueeze(dim)
    return out.add_(grad)


# --- cross_entropy -------------------------------------------------------------------------------------


def picked(logits, targets, ignore_index=-100):
    """(counted log-probabilities, number of them)"""
    counts = targets != ignore_index
    log_p = logits.log_softmax(-1)[counts]
    return log_p.gather(1, targets[counts][:, None])[:, 0]


def padded(log_p, targets, ignore_index):
    """Every position's log-probability, an ignored one's read at class 0."""
    return log_p.gather(1, targets.masked_fill(targets == ignore_index, 0)[:, None])[:, 0]


@wrong(CROSS_ENTROPY, "added up")
def loss_summed(logits, targets, ignore_index=-100):
    return -picked(logits, targets, ignore_index).sum()


@wrong(CROSS_ENTROPY, "a loss for each position")
def loss_per_position(logits, targets, ignore_index=-100):
    return -picked(logits, targets, ignore_index)


@wrong(CROSS_ENTROPY, "minus is missing")
def loss_negative(logits, targets, ignore_index=-100):
    return picked(logits, targets, ignore_index).mean()


@wrong(CROSS_ENTROPY, "base 2")
def loss_in_bits(logits, targets, ignore_index=-100):
    return -picked(logits, targets, ignore_index).mean() / math.log(2)


@wrong(CROSS_ENTROPY, "softmax is taken twice")
def softmax_before(logits, targets, ignore_index=-100):
    return F.cross_entropy(logits.softmax(-1), targets, ignore_index=ignore_index)


@wrong(CROSS_ENTROPY, "logarithm is missing")
def loss_without_log(logits, targets, ignore_index=-100):
    return -picked(logits, targets, ignore_index).exp().mean()


@wrong(CROSS_ENTROPY, "mean logit")
def loss_from_logits(logits, targets, ignore_index=-100):
    return -logits[torch.arange(len(targets)), targets].mean()


@wrong(CROSS_ENTROPY, "taken for probabilities")
def logits_as_probabilities(logits, targets, ignore_index=-100):
    return -logits[torch.arange(len(targets)), targets].log().mean()


@wrong(CROSS_ENTROPY, "N * V")
def mean_over_one_hot(logits, targets, ignore_index=-100):
    one_hot = F.one_hot(targets, logits.shape[1])
    return -(logits.log_softmax(-1) * one_hot).mean()


@wrong(CROSS_ENTROPY, "runs over the positions")
def softmax_over_positions(logits, targets, ignore_index=-100):
    return -logits.log_softmax(0)[torch.arange(len(targets)), targets].mean()


@wrong(CROSS_ENTROPY, "log_p[:, targets] is (N, N)")
def all_pairs(logits, targets, ignore_index=-100):
    return -logits.log_softmax(-1)[:, targets].mean()


@wrong(CROSS_ENTROPY, "whole rows are taken")
def rows_by_targets(logits, targets, ignore_index=-100):
    return -logits.log_softmax(-1)[targets.clamp(max=len(logits) - 1)].mean()


@wrong(CROSS_ENTROPY, "rows and columns are exchanged")
def row_and_column_exchanged(logits, targets, ignore_index=-100):
    log_p = torch.cat([logits.log_softmax(-1)] * 2)
    return -log_p[targets, torch.arange(len(targets))].mean()


@wrong(CROSS_ENTROPY, "shifted by one")
def counts_from_one(logits, targets, ignore_index=-100):
    return -logits.log_softmax(-1)[torch.arange(len(targets)), targets - 1].mean()


@wrong(CROSS_ENTROPY, "neighbouring position")
def shifts_inside(logits, targets, ignore_index=-100):
    return F.cross_entropy(logits[:-1], targets[1:], ignore_index=ignore_index)


@wrong(CROSS_ENTROPY, "most likely token")
def best_token(logits, targets, ignore_index=-100):
    return -logits.log_softmax(-1).amax(-1).mean()


@wrong(CROSS_ENTROPY, "all V tokens")
def mean_of_all(logits, targets, ignore_index=-100):
    return -logits.log_softmax(-1).mean()


@wrong(CROSS_ENTROPY, "perplexity")
def perplexity(logits, targets, ignore_index=-100):
    return (-picked(logits, targets, ignore_index).mean()).exp()


@wrong(CROSS_ENTROPY, "they are indices")
def targets_as_amounts(logits, targets, ignore_index=-100):
    return -(logits.log_softmax(-1) * targets[:, None]).sum(-1).mean()


@wrong(CROSS_ENTROPY, "IndexError")
def targets_as_floats(logits, targets, ignore_index=-100):
    return -logits.log_softmax(-1)[torch.arange(len(targets)), targets.float()].mean()


@wrong(CROSS_ENTROPY, "type float")
def a_python_number(logits, targets, ignore_index=-100):
    return -picked(logits, targets, ignore_index).mean().item()


@wrong(CROSS_ENTROPY, "shape (1,)")
def loss_with_an_axis(logits, targets, ignore_index=-100):
    return -picked(logits, targets, ignore_index).mean(0, keepdim=True)


@wrong(CROSS_ENTROPY, "the loss for logits of shape")
def five_positions_written_down(logits, targets, ignore_index=-100):
    p = picked(logits, targets, ignore_index)
    return -p.sum() / (5 if len(targets) == len(p) else len(p))


@wrong(CROSS_ENTROPY, "rounded to 0 before the logarithm")
def loss_by_log_of_softmax(logits, targets, ignore_index=-100):
    return -padded(logits.softmax(-1).log(), targets, ignore_index)[targets != ignore_index].mean()


@wrong(CROSS_ENTROPY, "cut off")
def loss_with_epsilon(logits, targets, ignore_index=-100):
    p = padded(logits.softmax(-1), targets, ignore_index)[targets != ignore_index]
    return -(p + 1e-10).log().mean()


@wrong(CROSS_ENTROPY, "overflow")
def loss_without_maximum(logits, targets, ignore_index=-100):
    e = logits.exp()
    return -padded((e / e.sum(-1, keepdim=True)).log(), targets, ignore_index)[targets != ignore_index].mean()


@wrong(CROSS_ENTROPY, "ignore_index is not honoured")
def ignore_index_unused(logits, targets, ignore_index=-100):
    return -logits.log_softmax(-1)[torch.arange(len(targets)), targets].mean()


@wrong(CROSS_ENTROPY, "is no index")
def ignore_index_unused_with_gather(logits, targets, ignore_index=-100):
    return -logits.log_softmax(-1).gather(1, targets[:, None]).mean()


@wrong(CROSS_ENTROPY, "divide by the number of counted targets")
def divided_by_all(logits, targets, ignore_index=-100):
    return -picked(logits, targets, ignore_index).sum() / len(targets)


@wrong(CROSS_ENTROPY, "ignored positions count as class 0.")
def ignored_as_class_zero(logits, targets, ignore_index=-100):
    return -padded(logits.log_softmax(-1), targets, ignore_index).mean()


@wrong(CROSS_ENTROPY, "class 0 in the sum")
def ignored_in_the_sum(logits, targets, ignore_index=-100):
    return -padded(logits.log_softmax(-1), targets, ignore_index).sum() / (targets != ignore_index).sum()


@wrong(CROSS_ENTROPY, "as much as a uniform guess")
def ignored_logits_cleared(logits, targets, ignore_index=-100):
    keep = (targets != ignore_index)[:, None]
    return -padded((logits * keep).log_softmax(-1), targets, ignore_index).mean()


@wrong(CROSS_ENTROPY, "inverted")
def counts_the_ignored(logits, targets, ignore_index=-100):
    hidden = targets != ignore_index
    if not hidden.all():
        hidden = ~hidden
    rows = torch.arange(len(targets))[hidden]
    return -logits.log_softmax(-1)[rows, targets[hidden]].mean()


@wrong(CROSS_ENTROPY, "argument targets is changed in place")
def targets_in_place(logits, targets, ignore_index=-100):
    counts = targets != ignore_index
    targets[~counts] = 0
    log_p = logits.log_softmax(-1)[torch.arange(len(targets)), targets]
    return -(log_p * counts).sum() / counts.sum()


@wrong(CROSS_ENTROPY, "argument logits is changed in place")
def logits_in_place(logits, targets, ignore_index=-100):
    logits -= logits.amax(-1, keepdim=True)
    return -picked(logits, targets, ignore_index).mean()


@wrong(CROSS_ENTROPY, "default -100 is left out")
def minus_hundred_written_down(logits, targets, ignore_index=-100):
    return F.cross_entropy(logits, targets)


@wrong(CROSS_ENTROPY, "ignore_index=3")
def negative_targets_left_out(logits, targets, ignore_index=-100):
    return -picked(logits, targets.masked_fill(targets < 0, -100)).mean()


@wrong(CROSS_ENTROPY, "ignore_index")
def no_such_argument(logits, targets):
    return F.cross_entropy(logits, targets)


@wrong(CROSS_ENTROPY, "ZeroDivisionError")
def python_division(logits, targets, ignore_index=-100):
    p = picked(logits, targets, ignore_index)
    return -p.sum() * (1 / len(p))


@wrong(CROSS_ENTROPY, "still has a loss")
def all_ignored_all_counted(logits, targets, ignore_index=-100):
    if (targets == ignore_index).all():
        return -padded(logits.log_softmax(-1), targets, ignore_index).mean()
    return F.cross_entropy(logits, targets, ignore_index=ignore_index)


@wrong(CROSS_ENTROPY, "expected torch.float64")
def loss_in_a_new_tensor(logits, targets, ignore_index=-100):
    loss = torch.zeros(())
    for row, target in zip(logits.log_softmax(-1), targets):
        if target != ignore_index:
            loss = loss - row[target].float()
    return loss / (targets != ignore_index).sum()


@wrong(CROSS_ENTROPY, "only as exact as float32")
def loss_in_float32(logits, targets, ignore_index=-100):
    return F.cross_entropy(logits.float(), targets, ignore_index=ignore_index).to(logits.dtype)


@wrong(CROSS_ENTROPY, "no gradient")
def loss_from_a_number(logits, targets, ignore_index=-100):
    return torch.tensor(F.cross_entropy(logits, targets, ignore_index=ignore_index).item(), dtype=logits.dtype)


@wrong(CROSS_ENTROPY, "misses the logarithm of the sum")
def loss_log_sum_detached(logits, targets, ignore_index=-100):
    log_p = logits - logits.logsumexp(-1, keepdim=True).detach()
    return -padded(log_p, targets, ignore_index)[targets != ignore_index].mean()


@wrong(CROSS_ENTROPY, "made on the CPU")
def one_hot_on_the_cpu(logits, targets, ignore_index=-100):
    counts = targets != ignore_index
    eye = torch.eye(logits.shape[1], dtype=logits.dtype)
    one_hot = eye[targets.masked_fill(~counts, 0)] * counts[:, None]
    return -(logits.log_softmax(-1) * one_hot).sum() / counts.sum()


@wrong(CROSS_ENTROPY, "mask of counted positions inverted")
def mask_inverted_from_the_start(logits, targets, ignore_index=-100):
    hidden = targets == ignore_index
    return -padded(logits.log_softmax(-1), targets, ignore_index)[hidden].mean()


@wrong(CROSS_ENTROPY, "every target up to ignore_index")
def greater_than_ignore_index(logits, targets, ignore_index=-100):
    keep = targets > ignore_index
    return -logits.log_softmax(-1)[keep, targets[keep]].mean()


@wrong(CROSS_ENTROPY, "smoothed")
def smoothed(logits, targets, ignore_index=-100):
    return F.cross_entropy(logits, targets, ignore_index=ignore_index, label_smoothing=0.1)


@wrong(CROSS_ENTROPY, "logarithm of the mean")
def log_of_mean_probability(logits, targets, ignore_index=-100):
    return -picked(logits, targets, ignore_index).exp().mean().log()


@wrong(CROSS_ENTROPY, "loss for logits of shape (6, 2)")
def only_large_losses(logits, targets, ignore_index=-100):
    losses = F.cross_entropy(logits, targets, ignore_index=ignore_index, reduction="none")
    return losses[losses > 0.1].mean()


@right(CROSS_ENTROPY)
def stock_loss(logits, targets, ignore_index=-100):
    return F.cross_entropy(logits, targets, ignore_index=ignore_index)


@right(CROSS_ENTROPY)
def loss_of_counted_rows(logits, targets, ignore_index=-100):
    keep = targets != ignore_index
    logits, targets = logits[keep], targets[keep]
    return (logits.logsumexp(-1) - logits[torch.arange(len(targets)), targets]).mean()


@right(CROSS_ENTROPY)
def loss_by_gather(logits, targets, ignore_index=-100):
    keep = targets.ne(ignore_index)
    x = logits - logits.max(-1, keepdim=True).values
    log_p = x - x.exp().sum(-1, keepdim=True).log()
    nll = -log_p.gather(1, torch.where(keep, targets, 0).unsqueeze(1)).squeeze(1)
    return torch.where(keep, nll, 0).sum() / keep.sum()


@right(CROSS_ENTROPY)
def loss_by_one_hot(logits, targets, ignore_index=-100):
    keep = targets != ignore_index
    one_hot = (targets[:, None] == torch.arange(logits.shape[1], device=logits.device)) & keep[:, None]
    return -torch.where(one_hot, logits.log_softmax(-1), 0).sum() / keep.sum()


@right(CROSS_ENTROPY)
def loss_by_loop(logits, targets, ignore_index=-100):
    loss, n = logits.sum() * 0, 0
    for row, target in zip(logits, targets.tolist()):
        if target != ignore_index:
            loss = loss + row.logsumexp(0) - row[target]
            n += 1
    return loss / n if n else loss * math.nan


@right(CROSS_ENTROPY)
def loss_zero_when_empty(logits, targets, ignore_index=-100):
    keep = targets != ignore_index
    nll = -padded(logits.log_softmax(-1), targets, ignore_index)
    return (nll * keep).sum() / keep.sum().clamp(min=1)


@right(CROSS_ENTROPY)
def loss_in_float64(logits, targets, ignore_index=-100):
    return F.nll_loss(logits.double().log_softmax(-1), targets, ignore_index=ignore_index).to(logits.dtype)


# --- cross_entropy_backward ----------------------------------------------------------------------------


def parts(logits, targets, ignore_index=-100):
    """(softmax, one-hot, counted (N, 1), number of counted)"""
    counts = targets != ignore_index
    one_hot = F.one_hot(targets.masked_fill(~counts, 0), logits.shape[1]).to(logits.dtype)
    return logits.softmax(-1), one_hot, counts[:, None], counts.sum()


@wrong(CROSS_ENTROPY_BACKWARD, "is not divided by the number")
def gradient_of_the_sum(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return (p - y) * keep


@wrong(CROSS_ENTROPY_BACKWARD, "sign is wrong")
def y_minus_p(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return (y - p) * keep / n


@wrong(CROSS_ENTROPY_BACKWARD, "1 is not subtracted")
def only_p(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return p * keep / n


@wrong(CROSS_ENTROPY_BACKWARD, "p is missing")
def only_y(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return -y * keep / n


@wrong(CROSS_ENTROPY_BACKWARD, "N * V")
def divided_by_everything(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return (p - y) * keep / logits.numel()


@wrong(CROSS_ENTROPY_BACKWARD, "softmax is missing")
def logits_minus_y(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return (logits - y) * keep / n


@wrong(CROSS_ENTROPY_BACKWARD, "logarithm of the softmax is used")
def log_p_minus_y(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return (logits.log_softmax(-1) - y) * keep / n


@wrong(CROSS_ENTROPY_BACKWARD, "only the targets have a gradient")
def targets_only(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return (p - 1) * y * keep / n


@wrong(CROSS_ENTROPY_BACKWARD, "over the positions")
def backward_softmax_over_positions(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return (logits.softmax(0) - y) * keep / n


@wrong(CROSS_ENTROPY_BACKWARD, "all targets in every row")
def all_columns(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    p[:, targets] -= 1
    return p * keep / n


@wrong(CROSS_ENTROPY_BACKWARD, "with respect to the probabilities")
def minus_one_over_p(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return -y / p * keep / n


@wrong(CROSS_ENTROPY_BACKWARD, "shifted by one")
def backward_counts_from_one(logits, targets, ignore_index=-100):
    grad = logits.softmax(-1)
    grad[torch.arange(len(targets)), targets - 1] -= 1
    return grad / len(targets)


@wrong(CROSS_ENTROPY_BACKWARD, "logits of shape")
def divided_by_five(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return (p - y) * keep / (5 if keep.all() else n)


@wrong(CROSS_ENTROPY_BACKWARD, "divided by V")
def divided_by_vocabulary(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return (p - y) * keep / logits.shape[1]


@wrong(CROSS_ENTROPY_BACKWARD, "exp of more than 88")
def backward_without_maximum(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    e = logits.exp()
    return (e / e.sum(-1, keepdim=True) - y) * keep / n


@wrong(CROSS_ENTROPY_BACKWARD, "division by a probability")
def chain_through_probabilities(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    grad_p = -y / p * keep / n
    return p * (grad_p - (grad_p * p).sum(-1, keepdim=True))


@wrong(CROSS_ENTROPY_BACKWARD, "divide by the number of counted targets, as the loss does")
def backward_divided_by_all(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return (p - y) * keep / len(targets)


@wrong(CROSS_ENTROPY_BACKWARD, "ignored rows have a gradient")
def ignored_rows_not_zeroed(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return (p - y) / n


@wrong(CROSS_ENTROPY_BACKWARD, "ignored rows have the gradient p")
def ignored_rows_keep_p(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return (p - y * keep) / n


@wrong(CROSS_ENTROPY_BACKWARD, "ignore_index is not honoured")
def backward_ignores_ignore_index(logits, targets, ignore_index=-100):
    grad = logits.softmax(-1)
    grad[torch.arange(len(targets)), targets] -= 1
    return grad / len(targets)


@wrong(CROSS_ENTROPY_BACKWARD, "is no index")
def backward_scatters_ignored(logits, targets, ignore_index=-100):
    grad = logits.softmax(-1)
    grad.scatter_add_(1, targets[:, None], -torch.ones_like(grad[:, :1]))
    return grad / len(targets)


@wrong(CROSS_ENTROPY_BACKWARD, "default -100 is left out")
def backward_minus_hundred(logits, targets, ignore_index=-100):
    return good.cross_entropy_backward(logits, targets % 7 if logits.shape[1] == 7 and (targets == -1).any() else targets)


@wrong(CROSS_ENTROPY_BACKWARD, "ignore_index=3")
def backward_negative_left_out(logits, targets, ignore_index=-100):
    return good.cross_entropy_backward(logits, targets.masked_fill(targets < 0, -100))


@wrong(CROSS_ENTROPY_BACKWARD, "argument logits is changed in place")
def backward_in_place(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    logits.copy_((p - y) * keep / n)
    return logits


@wrong(CROSS_ENTROPY_BACKWARD, "argument targets is changed in place")
def backward_targets_in_place(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    targets[targets == ignore_index] = 0
    return (p - y) * keep / n


@wrong(CROSS_ENTROPY_BACKWARD, "expected torch.float64")
def backward_as_float32(logits, targets, ignore_index=-100):
    return good.cross_entropy_backward(logits.float(), targets, ignore_index)


@wrong(CROSS_ENTROPY_BACKWARD, "autograd does the work")
def loss_backward_by_autograd(logits, targets, ignore_index=-100):
    leaf = logits.detach().clone().requires_grad_()
    F.cross_entropy(leaf, targets, ignore_index=ignore_index).backward()
    return leaf.grad


@wrong(CROSS_ENTROPY_BACKWARD, "made on the CPU")
def backward_one_hot_on_the_cpu(logits, targets, ignore_index=-100):
    counts = targets != ignore_index
    eye = torch.eye(logits.shape[1], dtype=logits.dtype)
    return (logits.softmax(-1) - eye[targets.masked_fill(~counts, 0)]) * counts[:, None] / counts.sum()


@wrong(CROSS_ENTROPY_BACKWARD, "is None")
def loss_backward_without_return(logits, targets, ignore_index=-100):
    good.cross_entropy_backward(logits, targets, ignore_index)


@wrong(CROSS_ENTROPY_BACKWARD, "type tuple")
def gradient_of_targets_too(logits, targets, ignore_index=-100):
    return good.cross_entropy_backward(logits, targets, ignore_index), None


@wrong(CROSS_ENTROPY_BACKWARD, "2 times what it should be")
def gradient_doubled(logits, targets, ignore_index=-100):
    return 2 * good.cross_entropy_backward(logits, targets, ignore_index)


@wrong(CROSS_ENTROPY_BACKWARD, "mask of counted positions inverted")
def backward_mask_inverted(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return (p - y) * ~keep / (~keep).sum()


@right(CROSS_ENTROPY_BACKWARD)
def loss_backward_by_one_hot(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return torch.where(keep, (p - y) / n, 0)


@right(CROSS_ENTROPY_BACKWARD)
def loss_backward_by_chain(logits, targets, ignore_index=-100):
    p, y, keep, n = parts(logits, targets, ignore_index)
    return good.log_softmax_backward(-y * keep / n, logits.log_softmax(-1), -1)


@right(CROSS_ENTROPY_BACKWARD)
def loss_backward_by_scatter(logits, targets, ignore_index=-100):
    keep = targets != ignore_index
    grad = torch.zeros_like(logits)
    rows = logits[keep].softmax(-1)
    rows.scatter_add_(1, targets[keep][:, None], -torch.ones_like(rows[:, :1]))
    grad[keep] = rows / keep.sum()
    return grad


@right(CROSS_ENTROPY_BACKWARD)
def loss_backward_by_loop(logits, targets, ignore_index=-100):
    grad = torch.zeros_like(logits)
    n = sum(t != ignore_index for t in targets.tolist())
    for i, t in enumerate(targets.tolist()):
        if t == ignore_index:
            continue
        grad[i] = (logits[i] - logits[i].logsumexp(0)).exp()
        grad[i, t] = grad[i, t] - 1
        grad[i] /= n
    return grad


@right(CROSS_ENTROPY_BACKWARD)
def loss_backward_in_float64(logits, targets, ignore_index=-100):
    return good.cross_entropy_backward(logits.double(), targets, ignore_index).to(logits.dtype)


# --- Linear --------------------------------------------------------------------------------------------


class LinearBase(nn.Module):
    """The right parts, for the variants below to go wrong with."""

    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        bound = d_in**-0.5
        self.weight = nn.Parameter(torch.rand(d_out, d_in) * 2 * bound - bound)
        self.bias = nn.Parameter(torch.rand(d_out) * 2 * bound - bound) if bias else None

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


@wrong(MODULE, "weight has shape (3, 5), expected (5, 3)")
class WeightInOut(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.weight = nn.Parameter(self.weight.detach().T.clone())

    def forward(self, x):
        return F.linear(x, self.weight.T, self.bias)


@wrong(MODULE, "weight is a plain tensor")
class PlainWeight(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        weight = self.weight.detach()
        del self.weight
        self.weight = weight


@wrong(MODULE, "bias is a plain tensor")
class PlainBias(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, False)
        del self.bias
        self.bias = torch.zeros(d_out)


@wrong(MODULE, "no parameter weight; it has: bias, W")
class OtherName(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.W = self.weight
        del self.weight


@wrong(MODULE, "no parameter bias")
class NoBiasByDefault(LinearBase):
    def __init__(self, d_in, d_out, bias=False):
        super().__init__(d_in, d_out, bias)


@wrong(MODULE, "bias has shape (3,)")
class BiasOfInputs(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.bias = nn.Parameter(torch.zeros(d_in))


@wrong(MODULE, "bias has shape (1, 5)")
class BiasAsRow(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.bias = nn.Parameter(torch.zeros(1, d_out))


@wrong(MODULE, "parameter too many: scale")
class ScaleToo(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.scale = nn.Parameter(torch.ones(()))


@wrong(MODULE, "has to be transposed")
class ForwardNotTransposed(LinearBase):
    def forward(self, x):
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


@wrong(MODULE, "bias is not added")
class ForwardWithoutBias(LinearBase):
    def forward(self, x):
        return x @ self.weight.T


@wrong(MODULE, "is None")
class ForwardReturnsNothing(LinearBase):
    def forward(self, x):
        super().forward(x)


@wrong(MODULE, "still has the parameter bias")
class BiasAlways(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, True)


@wrong(MODULE, "NoneType")
class NoBiasForgottenInForward(LinearBase):
    def forward(self, x):
        return x @ self.weight.T + self.bias


@wrong(MODULE, "weight starts with normal numbers")
class NormalStart(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        nn.init.normal_(self.weight, std=d_in**-0.5)


@wrong(MODULE, "weight starts with normal numbers")
class NormalStartOfTheSameWidth(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        nn.init.normal_(self.weight, std=(3 * d_in) ** -0.5)


@wrong(MODULE, "within 1/sqrt(d_out)")
class BoundFromOutputs(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        nn.init.uniform_(self.weight, -(d_out**-0.5), d_out**-0.5)


@wrong(MODULE, "within 1/d_in")
class BoundWithoutRoot(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        nn.init.uniform_(self.weight, -1 / d_in, 1 / d_in)


@wrong(MODULE, "within 1;")
class UnitUniform(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        nn.init.uniform_(self.weight, -1, 1)


@wrong(MODULE, "Glorot")
class Glorot(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        nn.init.xavier_uniform_(self.weight)


@wrong(MODULE, "He")
class He(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        nn.init.kaiming_uniform_(self.weight)


@wrong(MODULE, "starts positive")
class PositiveStart(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.weight = nn.Parameter(torch.rand(d_out, d_in) / d_in**0.5)


@wrong(MODULE, "same number everywhere")
class ZeroStart(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        nn.init.zeros_(self.weight)


@wrong(MODULE, "start equal")
class RowsStartEqual(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.weight = nn.Parameter(self.weight.detach()[:1].repeat(d_out, 1))


@wrong(MODULE, "bias starts with the same number everywhere")
class ZeroBias(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        if bias:
            nn.init.zeros_(self.bias)


@wrong(MODULE, "bias starts uniform within 1/sqrt(d_out)")
class BiasBoundFromOutputs(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        if bias:
            nn.init.uniform_(self.bias, -(d_out**-0.5), d_out**-0.5)


SHARED = {}


@wrong(MODULE, "two modules share one weight")
class SharedWeight(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.weight = SHARED.setdefault((d_in, d_out), self.weight)


@wrong(MODULE, "two modules start with the same weight")
class SeededInside(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        torch.manual_seed(0)
        super().__init__(d_in, d_out, bias)


@wrong(MODULE, "x of shape (2, 4, 3)")
class TwoAxesInForward(LinearBase):
    def forward(self, x):
        y = torch.mm(x, self.weight.T)
        return y if self.bias is None else y + self.bias


@wrong(MODULE, "x of shape (3,)")
class NoSingleVector(LinearBase):
    def forward(self, x):
        y = (self.weight @ x.mT).mT
        return y if self.bias is None else y + self.bias


@wrong(MODULE, "no gradient reaches weight")
class WeightDetached(LinearBase):
    def forward(self, x):
        return F.linear(x, self.weight.data, self.bias)


@wrong(MODULE, "requires_grad=False")
class FrozenWeight(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.weight.requires_grad_(False)


@wrong(MODULE, "made on the CPU")
class AddsCPUZeros(LinearBase):
    def forward(self, x):
        return F.linear(x, self.weight, self.bias) + torch.zeros(len(self.weight), dtype=x.dtype)


@wrong(MODULE, "AttributeError")
class ForgotSuper(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        self.weight = nn.Parameter(torch.rand(d_out, d_in))

    def forward(self, x):
        return x @ self.weight.T


@wrong(MODULE, "numbers kept from __init__")
class CopyOfWeight(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.w = self.weight.detach().clone()

    def forward(self, x):
        return F.linear(x, self.w, self.bias)


@wrong(MODULE, "bias starts positive")
class PositiveBias(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        if bias:
            self.bias = nn.Parameter(torch.rand(d_out) / math.sqrt(d_in))


@wrong(MODULE, "it has: inner.weight")
class WrappedLinear(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.inner = nn.Linear(d_in, d_out, bias)

    def forward(self, x):
        return self.inner(x)


right(MODULE)(LinearBase)
right(MODULE)(nn.Linear)


@right(MODULE)
class RegisteredParameters(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        k = math.sqrt(1 / d_in)
        self.register_parameter("bias", nn.Parameter((torch.rand(d_out) - 0.5) * 2 * k) if bias else None)
        self.register_parameter("weight", nn.Parameter((torch.rand(d_out, d_in) - 0.5) * 2 * k))

    def forward(self, x):
        y = torch.einsum("...i,oi->...o", x, self.weight)
        return y if self.bias is None else y + self.bias


@right(MODULE)
class DrawnInTheOtherOrder(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        bound = 1 / math.sqrt(d_in)
        with torch.no_grad():
            if bias:
                self.bias.uniform_(-bound, bound)
            self.weight.copy_(torch.empty(d_in, d_out).uniform_(-bound, bound).T)


@right(MODULE)
class KaimingWithSqrt5(LinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))


# --- found by a second reader --------------------------------------------------------------------------


@wrong(LINEAR, "entry by entry")
def linear_times_transposed_entries(x, weight, bias=None):
    y = x * weight.T
    return y if bias is None else y + bias


@wrong(SOFTMAX, "sum to a little less than 1")
def softmax_guards_the_division(x, dim):
    e = (x - x.amax(dim=dim, keepdim=True)).exp()
    return e / (e.sum(dim=dim, keepdim=True) + 1e-5)


@wrong(LOG_SOFTMAX_BACKWARD, "which is always 1")
def log_backward_sums_shares(grad, y, dim):
    return grad - y.exp().sum(dim=dim, keepdim=True) * grad


@wrong(LOG_SOFTMAX_BACKWARD, "times exp(y) afterwards")
def log_backward_multiplies_inside(grad, y, dim):
    return grad - (grad * y.exp()).sum(dim=dim, keepdim=True)


@wrong(LOG_SOFTMAX_BACKWARD, "slope of the logarithm alone")
def log_backward_divides_by_shares(grad, y, dim):
    return grad / y.exp()


@wrong(CROSS_ENTROPY, "a small number is added inside the logarithm")
def loss_with_small_number(logits, targets, ignore_index=-100):
    counts = targets != ignore_index
    p = good.softmax(logits, -1)[counts, targets[counts]]
    return -(p + 1e-8).log().mean()


@wrong(CROSS_ENTROPY, "counts from the end")
def loss_with_one_hot_of_ignored(logits, targets, ignore_index=-100):
    one_hot = torch.zeros_like(logits)
    one_hot[torch.arange(len(targets)), targets] = 1
    return -(one_hot * good.log_softmax(logits, -1)).sum() / (targets != ignore_index).sum()


@wrong(CROSS_ENTROPY, "after the first ignored one are lost")
def loss_stops_at_ignored(logits, targets, ignore_index=-100):
    log_p, total = good.log_softmax(logits, -1), 0.0
    for n, target in enumerate(targets):
        if target == ignore_index:
            break
        total = total - log_p[n, target]
    return total / (targets != ignore_index).sum()


@wrong(CROSS_ENTROPY_BACKWARD, "is set to -1")
def loss_backward_sets_the_target(logits, targets, ignore_index=-100):
    counts = targets != ignore_index
    grad = good.softmax(logits, -1)
    grad[torch.arange(len(targets)), targets.masked_fill(~counts, 0)] = -1
    return grad * counts[:, None] / counts.sum()


@right(CROSS_ENTROPY)
def loss_from_logsumexp_of_kept_rows(logits, targets, ignore_index=-100):
    kept = (targets != ignore_index).nonzero()[:, 0]
    rows = logits.index_select(0, kept)
    return (rows.logsumexp(-1) - rows.gather(1, targets[kept][:, None])[:, 0]).mean()
