import math

import mindspore as ms
import numpy as np
import torch
from mindspore import mint, nn, ops
from mindspore.common.initializer import HeUniform, Normal, Uniform, initializer

from solutions.mindspore import primitives as good
from tests.mistakes import right, wrong

LINEAR = "mindspore.primitives.linear"
SOFTMAX = "mindspore.primitives.softmax"
LOG_SOFTMAX = "mindspore.primitives.log_softmax"
CROSS_ENTROPY = "mindspore.primitives.cross_entropy"
MODULE = "mindspore.primitives.Linear"

# --- linear --------------------------------------------------------------------------------------------


@wrong(LINEAR, "has to be transposed")
def ms_weight_not_transposed(x, weight, bias=None):
    y = ops.matmul(x, weight)
    return y if bias is None else y + bias


@wrong(LINEAR, "y.add_(bias)")
def ms_bias_added_in_place(x, weight, bias=None):
    y = ops.matmul(x, weight.T)
    if bias is not None:
        y.add_(bias)
    return y


@wrong(LINEAR, "bias is subtracted")
def ms_bias_subtracted(x, weight, bias=None):
    return x @ weight.T - (0 if bias is None else bias)


@wrong(LINEAR, "before the product")
def ms_bias_before_product(x, weight, bias=None):
    return (x if bias is None else x + bias) @ weight.T


@wrong(LINEAR, "along the rows")
def ms_bias_as_column(x, weight, bias=None):
    return x @ weight.T + (0 if bias is None else bias.expand_dims(1))


@wrong(LINEAR, "a row for each row of x")
def ms_weight_times_x(x, weight, bias=None):
    return weight @ x.T + (0 if bias is None else bias[:, None])


@wrong(LINEAR, "entry by entry")
def ms_star_for_at(x, weight, bias=None):
    return x * weight + (0 if bias is None else bias)


@wrong(LINEAR, "does not scale")
def ms_scaled_by_width(x, weight, bias=None):
    return x @ weight.T / weight.shape[1] ** 0.5 + (0 if bias is None else bias)


@wrong(LINEAR, "AttributeError")
def ms_size_as_in_torch(x, weight, bias=None):
    rows = x.reshape(-1, x.stride().shape)
    return rows @ weight.T + bias


@wrong(LINEAR, "not callable")
def ms_size_called(x, weight, bias=None):
    y = x.reshape(-1, x.size(-1)) @ weight.T
    return y if bias is None else y + bias


@wrong(LINEAR, "3 inputs and 5 outputs")
def ms_four_outputs_written_down(x, weight, bias=None):
    return good.linear(x, weight, bias)[..., :4]


@wrong(LINEAR, "without a bias does not work")
def ms_bias_needed(x, weight, bias):
    return x @ weight.T + bias


@wrong(LINEAR, "without a bias does not work")
def ms_none_is_added(x, weight, bias=None):
    return ops.add(x @ weight.T, bias)


@wrong(LINEAR, "ambiguous")
def ms_truth_of_a_vector(x, weight, bias=None):
    return x @ weight.T + bias if bias else x @ weight.T


@wrong(LINEAR, "the bias [0.0, 1.0]")
def ms_bias_only_if_all_are_there(x, weight, bias=None):
    y = x @ weight.T
    return y + bias if bias is not None and bias.all() else y


@wrong(LINEAR, "the primitive ops.MatMul takes two axes")
def ms_primitive_matmul(x, weight, bias=None):
    y = ops.MatMul(transpose_b=True)(x, weight)
    return y if bias is None else y + bias


@wrong(LINEAR, "expected Float64")
def ms_always_float32(x, weight, bias=None):
    return good.linear(x, weight, bias).astype(ms.float32)


@wrong(LINEAR, "only as exact as float32")
def ms_float32_product(x, weight, bias=None):
    y = (x.astype(ms.float32) @ weight.astype(ms.float32).T).astype(x.dtype)
    return y if bias is None else y + bias


@wrong(LINEAR, "only as exact as float16")
def ms_half_product(x, weight, bias=None):
    y = (x.astype(ms.float16) @ weight.astype(ms.float16).T).astype(x.dtype)
    return y if bias is None else y + bias


@wrong(LINEAR, "no gradient reaches weight")
def ms_transposed_by_numpy(x, weight, bias=None):
    y = ops.matmul(x, ms.Tensor(weight.asnumpy().T))
    return y if bias is None else y + bias


@wrong(LINEAR, "no gradient reaches x")
def ms_through_numpy(x, weight, bias=None):
    y = ms.Tensor(x.asnumpy() @ weight.asnumpy().T)
    return y if bias is None else y + bias


@wrong(LINEAR, "no gradient reaches weight")
def ms_weight_stopped(x, weight, bias=None):
    return good.linear(x, ops.stop_gradient(weight), bias)


@wrong(LINEAR, "in graph mode the weight is not transposed")
def ms_transpose_as_in_torch(x, weight, bias=None):
    y = x @ weight.transpose(0, 1)
    return y if bias is None else y + bias


@wrong(LINEAR, "try does not exist in graph mode")
def ms_tries(x, weight, bias=None):
    y = x @ weight.T
    try:
        return y + bias
    except TypeError:
        return y


@wrong(LINEAR, "graph mode")
def ms_walrus(x, weight, bias=None):
    return (y := x @ weight.T) if bias is None else y + bias if (y := x @ weight.T) is not None else y


@wrong(LINEAR, "is None")
def ms_linear_without_return(x, weight, bias=None):
    good.linear(x, weight, bias)


@wrong(LINEAR, "argument weight is changed in place")
def ms_weight_overwritten(x, weight, bias=None):
    y = good.linear(x, weight, bias)
    weight[:] = 0
    return y


@wrong(LINEAR, "of type numpy.ndarray")
def ms_in_numpy(x, weight, bias=None):
    return x.asnumpy() @ weight.asnumpy().T + (0 if bias is None else bias.asnumpy())


@wrong(LINEAR, "of type torch.Tensor")
def ms_in_torch(x, weight, bias=None):
    return torch.nn.functional.linear(*(torch.from_numpy(a.asnumpy()) for a in (x, weight, bias)))


@wrong(LINEAR, "in float16 without a bias has dtype Float32")
def ms_zeros_for_no_bias(x, weight, bias=None):
    if bias is None:
        bias = ops.zeros(weight.shape[0], ms.float32)
    return x @ weight.T + bias


@right(LINEAR)
def ms_dense(x, weight, bias=None):
    return ops.dense(x, weight) if bias is None else ops.dense(x, weight, bias)


@right(LINEAR)
def ms_mint_linear(x, weight, bias=None):
    return mint.nn.functional.linear(x, weight, bias)


@right(LINEAR)
def ms_linear_by_rows(x, weight, bias=None):
    rows = x.reshape(-1, x.shape[-1])
    y = ops.MatMul(transpose_b=True)(rows, weight)
    y = y if bias is None else ops.bias_add(y, bias) if y.dtype != ms.float64 else y + bias
    return y.reshape(x.shape[:-1] + (weight.shape[0],))


@right(LINEAR)
def ms_linear_by_columns(x, weight, bias=None):
    columns = []
    for j in range(weight.shape[0]):
        column = (x * weight[j]).sum(-1)
        columns.append(column if bias is None else column + bias[j])
    return ops.stack(columns, axis=-1)


@right(LINEAR)
def ms_linear_by_a_sum(x, weight, bias=None):
    y = (x.expand_dims(-2) * weight).sum(axis=-1)
    if bias is not None:
        y += bias
    return y


# --- softmax -------------------------------------------------------------------------------------------


def shifted(x, dim):
    return x - x.max(axis=dim, keepdims=True)


def total(e, dim):
    return e.sum(axis=dim, keepdims=True)


@wrong(SOFTMAX, "overflow")
def ms_no_maximum(x, dim):
    e = ops.exp(x)
    return e / total(e, dim)


@wrong(SOFTMAX, "x.sub_(largest)")
def ms_maximum_subtracted_in_place(x, dim):
    x = x * 1
    x.sub_(x.max(axis=dim, keepdims=True))
    e = ops.exp(x)
    return e / total(e, dim)


@wrong(SOFTMAX, "the last axis is not always the one")
def ms_last_axis_always(x, dim):
    return ops.softmax(x)


@wrong(SOFTMAX, "sum runs over axis")
def ms_sums_over_the_last(x, dim):
    e = ops.exp(shifted(x, dim))
    return e / total(e, -1)


@wrong(SOFTMAX, "exp is missing")
def ms_divides_by_plain_sum(x, dim):
    return x / total(x, dim)


@wrong(SOFTMAX, "sum below the fraction has lost its axis: without keepdims=True")
def ms_sum_without_keepdims(x, dim):
    e = ops.exp(shifted(x, dim))
    return e / e.sum(axis=dim)


@wrong(SOFTMAX, "largest entry has lost its axis")
def ms_maximum_without_keepdims(x, dim):
    e = ops.exp(x - x.max(axis=dim))
    return e / total(e, dim)


@wrong(SOFTMAX, "give two things, the largest entries and where they are")
def ms_maximum_with_positions(x, dim):
    e = ops.exp(x - x.max(dim=dim, keepdim=True))
    return e / total(e, dim)


@wrong(SOFTMAX, "give two things, the largest entries and where they are")
def ms_maximum_by_position(x, dim):
    e = ops.exp(x - x.max(dim).expand_dims(dim))
    return e / total(e, dim)


@wrong(SOFTMAX, "unexpected keyword argument 'dim'")
def ms_softmax_with_dim(x, dim):
    return ops.softmax(x, dim=dim)


@wrong(SOFTMAX, "rows of very different size")
def ms_maximum_of_everything(x, dim):
    e = ops.exp(x - x.max())
    return e / total(e, dim)


@wrong(SOFTMAX, "all very negative")
def ms_only_positive_maxima(x, dim):
    e = ops.exp(x - ops.relu(x.max(axis=dim, keepdims=True)))
    return e / total(e, dim)


@wrong(SOFTMAX, "clamp")
def ms_clamped(x, dim):
    e = ops.exp(ops.clamp(x, -80.0, 80.0))
    return e / total(e, dim)


@wrong(SOFTMAX, "not divided by their sum")
def ms_divided_in_place(x, dim):
    e = ops.exp(shifted(x, dim))
    e.div_(total(e, dim))
    return e


@wrong(SOFTMAX, "divided by their mean")
def ms_mean_for_sum(x, dim):
    e = ops.exp(shifted(x, dim))
    return e / e.mean(axis=dim, keep_dims=True)


@wrong(SOFTMAX, "logarithm of the softmax")
def ms_logarithm_returned(x, dim):
    return ops.log_softmax(x, dim)


@wrong(SOFTMAX, "shape (2, 3, 4) with dim = ")
def ms_two_axes_at_most(x, dim):
    if dim in (0, -2) and x.ndim == 2:
        return ops.softmax(x.T, -1).T
    return ops.softmax(x, -1) if x.ndim < 3 else x.swapaxes(0, 3)


@wrong(SOFTMAX, "with dim = 0 does not work")
def ms_sum_gets_the_last_axis(x, dim):
    e = ops.exp(shifted(x, dim))
    return e / e.sum(axis=dim).expand_dims(-1)


@wrong(SOFTMAX, "and must sum to 1")
def ms_sum_of_everything(x, dim):
    e = ops.exp(shifted(x, dim))
    return e / e.sum()


@wrong(SOFTMAX, "argument x is changed in place")
def ms_slices_assigned(x, dim):
    x[:] = shifted(x, dim)
    e = ops.exp(x)
    return e / total(e, dim)


@wrong(SOFTMAX, "entries of -inf")
def ms_infinities_replaced(x, dim):
    return ops.softmax(ops.nan_to_num(x, neginf=-5.0) if x.dtype == ms.float32 else x, dim)


@wrong(SOFTMAX, "only as exact as float32")
def ms_softmax_in_float32(x, dim):
    return ops.softmax(x.astype(ms.float32), dim).astype(x.dtype)


@wrong(SOFTMAX, "has dtype Float32, expected Float64")
def ms_softmax_always_float32(x, dim):
    return ops.softmax(x.astype(ms.float32), dim)


@wrong(SOFTMAX, "misses the sum below the fraction")
def ms_sum_stopped(x, dim):
    e = ops.exp(shifted(x, dim))
    return e / ops.stop_gradient(total(e, dim))


@wrong(SOFTMAX, "no gradient reaches x")
def ms_softmax_by_numpy(x, dim):
    a = x.asnumpy().astype(np.float64)
    e = np.exp(a - a.max(axis=dim, keepdims=True))
    return ms.Tensor((e / e.sum(axis=dim, keepdims=True)).astype(x.asnumpy().dtype))


@wrong(SOFTMAX, "in graph mode")
def ms_softmax_with_del(x, dim):
    e = ops.exp(shifted(x, dim))
    s = total(e, dim)
    y = e / s
    del e
    return y


@wrong(SOFTMAX, "is None")
def ms_softmax_without_return(x, dim):
    ops.softmax(x, dim)


@wrong(SOFTMAX, "the gradient is right eagerly and wrong in graph mode")
def ms_maximum_by_numpy(x, dim):
    e = ops.exp(x - ms.Tensor(x.asnumpy().max(axis=dim, keepdims=True)))
    return e / total(e, dim)


@wrong(SOFTMAX, "wrong in graph mode")
def ms_divided_with_slash_equals(x, dim):
    e = ops.exp(shifted(x, dim))
    e /= total(e, dim)
    return e


@wrong(SOFTMAX, "with axis= the word is keepdims")
def ms_sum_with_keepdim(x, dim):
    e = ops.exp(shifted(x, dim))
    return e / e.sum(axis=dim, keepdim=True)


@wrong(SOFTMAX, "in the line that begins with def")
def ms_argument_called_axis(x, axis):
    return ops.softmax(x, axis)


@wrong(SOFTMAX, "[0] of them is the first row")
def ms_maximum_of_the_first_row(x, dim):
    e = ops.exp(x - x.max(axis=dim, keepdims=True)[0])
    return e / total(e, dim)


@right(SOFTMAX)
def ms_stock_softmax(x, dim):
    return ops.softmax(x, axis=dim)


@right(SOFTMAX)
def ms_mint_softmax(x, dim):
    return mint.softmax(x, dim)


@wrong(SOFTMAX, "in graph mode the argument x is changed in place")
def ms_softmax_with_minus_equals(x, dim):
    x -= ops.amax(x, dim, keepdims=True)
    e = x.exp()
    e /= e.sum(dim, keepdims=True)
    return e


@right(SOFTMAX)
def ms_softmax_by_max_with_positions(x, dim):
    e = ops.exp(x - ops.max(x, dim, keepdims=True)[0])
    return e / ops.sum(e, dim, keepdim=True)


@right(SOFTMAX)
def ms_softmax_by_expand_dims(x, dim):
    e = ops.exp(x - x.max(axis=dim).expand_dims(dim))
    return ops.div(e, e.sum(dim).expand_dims(dim))


# --- log_softmax ---------------------------------------------------------------------------------------


@wrong(LOG_SOFTMAX, "comes too late")
def ms_log_of_softmax(x, dim):
    return ops.log(ops.softmax(x, dim))


@wrong(LOG_SOFTMAX, "hides the -inf")
def ms_log_of_softmax_plus_epsilon(x, dim):
    return ops.log(ops.softmax(x, dim) + 1e-9)


@wrong(LOG_SOFTMAX, "overflow")
def ms_log_softmax_no_maximum(x, dim):
    return x - ops.log(total(ops.exp(x), dim))


@wrong(LOG_SOFTMAX, "all very negative")
def ms_log_softmax_positive_maxima(x, dim):
    x = x - ops.relu(x.max(axis=dim, keepdims=True))
    return x - ops.log(total(ops.exp(x), dim))


@wrong(LOG_SOFTMAX, "sum runs over axis")
def ms_log_softmax_last_axis(x, dim):
    return ops.log_softmax(x)


@wrong(LOG_SOFTMAX, "logarithm of the sum has lost its axis")
def ms_log_sum_without_keepdims(x, dim):
    x = shifted(x, dim)
    return x - ops.log(ops.exp(x).sum(axis=dim))


@wrong(LOG_SOFTMAX, "rows of very different size")
def ms_log_maximum_of_everything(x, dim):
    x = x - x.max()
    return x - ops.log(total(ops.exp(x), dim))


@wrong(LOG_SOFTMAX, "inside the sum only")
def ms_maximum_not_added_back(x, dim):
    return x - ops.log(total(ops.exp(shifted(x, dim)), dim))


@wrong(LOG_SOFTMAX, "base 2")
def ms_log2_of_the_sum(x, dim):
    x = shifted(x, dim)
    return x - ops.log(total(ops.exp(x), dim)) / math.log(2)


@wrong(LOG_SOFTMAX, "log1p")
def ms_log1p_of_the_sum(x, dim):
    x = shifted(x, dim)
    return x - ops.log(1 + total(ops.exp(x), dim))


@wrong(LOG_SOFTMAX, "this is the softmax")
def ms_softmax_returned(x, dim):
    return ops.softmax(x, dim)


@wrong(LOG_SOFTMAX, "without its logarithm")
def ms_sum_without_log(x, dim):
    x = shifted(x, dim)
    return x - total(ops.exp(x), dim)


@wrong(LOG_SOFTMAX, "mean of the exponentials")
def ms_log_of_the_mean(x, dim):
    x = shifted(x, dim)
    return x - ops.log(ops.exp(x).mean(axis=dim, keep_dims=True))


@wrong(LOG_SOFTMAX, "logarithm of the sum is missing")
def ms_log_sum_subtracted_in_place(x, dim):
    x = shifted(x, dim)
    x.sub_(ops.log(total(ops.exp(x), dim)))
    return x


@wrong(LOG_SOFTMAX, "changed in place")
def ms_log_softmax_slices_assigned(x, dim):
    x[:] = shifted(x, dim)
    return x - ops.log(total(ops.exp(x), dim))


@wrong(LOG_SOFTMAX, "with entries of -inf")
def ms_log_softmax_finite_only(x, dim):
    return ops.maximum(ops.log_softmax(x, dim), ms.Tensor(-1e5, ms.float32)) if x.dtype == ms.float32 else ops.log_softmax(x, dim)


@wrong(LOG_SOFTMAX, "only as exact as float32")
def ms_log_softmax_in_float32(x, dim):
    return good.log_softmax(x.astype(ms.float32), dim).astype(x.dtype)


@wrong(LOG_SOFTMAX, "misses the logarithm of the sum")
def ms_log_sum_stopped(x, dim):
    x = shifted(x, dim)
    return x - ops.stop_gradient(ops.log(total(ops.exp(x), dim)))


@wrong(LOG_SOFTMAX, "no kernel on this device")
def ms_log_softmax_of_mint(x, dim):
    return mint.nn.functional.log_softmax(x, dim)


@wrong(LOG_SOFTMAX, "in graph mode")
def ms_log_softmax_with_match(x, dim):
    match dim:
        case int():
            x = shifted(x, dim)
    return x - ops.log(total(ops.exp(x), dim))


@wrong(LOG_SOFTMAX, "they take one number")
def ms_log_by_math(x, dim):
    x = shifted(x, dim)
    return x - math.log(total(ops.exp(x), dim))


@wrong(LOG_SOFTMAX, "a small number is added on the way")
def ms_small_number_beside_the_sum(x, dim):
    x = shifted(x, dim)
    return x - ops.log(total(ops.exp(x), dim) + 1e-6)


@right(LOG_SOFTMAX)
def ms_stock_log_softmax(x, dim):
    return ops.log_softmax(x, axis=dim)


@right(LOG_SOFTMAX)
def ms_log_softmax_maximum_added_back(x, dim):
    m = x.max(axis=dim, keepdims=True)
    return x - (m + ops.log(total(ops.exp(x - m), dim)))


@right(LOG_SOFTMAX)
def ms_log_softmax_on_the_last_axis(x, dim):
    moved = x.swapaxes(dim, -1)
    moved = moved - moved.max(-1, keepdims=True)
    return (moved - ops.log(moved.exp().sum(-1, keepdims=True))).swapaxes(dim, -1)


@right(LOG_SOFTMAX)
def ms_log_softmax_by_two_stages(x, dim):
    largest = ops.stop_gradient(ops.amax(x, dim, True))
    return x - largest - ops.log(ops.sum(ops.exp(x - largest), dim, True))


# --- cross_entropy -------------------------------------------------------------------------------------


def picked(logits, targets, ignore_index=-100):
    """(every position's log-probability, an ignored one's read at class 0; which positions count)"""
    return padded(ops.log_softmax(logits, -1), targets, ignore_index), targets != ignore_index


def padded(log_p, targets, ignore_index):
    safe = targets.masked_fill(targets == ignore_index, 0)
    return ops.gather_elements(log_p, 1, safe.expand_dims(1)).squeeze(1)


def mean(values, counts):
    return values.masked_fill(~counts, 0).sum() / counts.sum()


@wrong(CROSS_ENTROPY, "added up")
def ms_loss_summed(logits, targets, ignore_index=-100):
    log_p, counts = picked(logits, targets, ignore_index)
    return -log_p.masked_fill(~counts, 0).sum()


@wrong(CROSS_ENTROPY, "a loss for each position")
def ms_sparse_softmax_loss(logits, targets, ignore_index=-100):
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True)(logits, targets)


@wrong(CROSS_ENTROPY, "minus is missing")
def ms_loss_negative(logits, targets, ignore_index=-100):
    return mean(*picked(logits, targets, ignore_index))


@wrong(CROSS_ENTROPY, "softmax is taken twice")
def ms_softmax_before(logits, targets, ignore_index=-100):
    return ops.cross_entropy(ops.softmax(logits, -1), targets, ignore_index=ignore_index)


@wrong(CROSS_ENTROPY, "mean logit")
def ms_loss_from_logits(logits, targets, ignore_index=-100):
    return -mean(padded(logits, targets, ignore_index), targets != ignore_index)


@wrong(CROSS_ENTROPY, "runs over the positions")
def ms_softmax_over_positions(logits, targets, ignore_index=-100):
    return -mean(padded(ops.log_softmax(logits, 0), targets, ignore_index), targets != ignore_index)


@wrong(CROSS_ENTROPY, "log_p[:, targets] is (N, N)")
def ms_all_pairs(logits, targets, ignore_index=-100):
    return -ops.log_softmax(logits, -1)[:, targets].mean()


@wrong(CROSS_ENTROPY, "whole rows are taken")
def ms_rows_by_targets(logits, targets, ignore_index=-100):
    return -ops.gather(ops.log_softmax(logits, -1), ops.minimum(targets, len(logits) - 1), 0).mean()


@wrong(CROSS_ENTROPY, "shifted by one")
def ms_counts_from_one(logits, targets, ignore_index=-100):
    return -padded(ops.log_softmax(logits, -1), (targets - 1) % logits.shape[1], ignore_index).mean()


@wrong(CROSS_ENTROPY, "N * V")
def ms_mean_over_one_hot(logits, targets, ignore_index=-100):
    one_hot = ops.one_hot(targets, logits.shape[1], ms.Tensor(1.0, ms.float32), ms.Tensor(0.0, ms.float32))
    return -(ops.log_softmax(logits, -1) * one_hot).mean()


@wrong(CROSS_ENTROPY, "empty input")
def ms_counted_rows_only(logits, targets, ignore_index=-100):
    keep = targets != ignore_index
    logits, targets = logits[keep], targets[keep]
    return -good.log_softmax(logits, -1)[ops.arange(targets.shape[0]), targets].mean()


@wrong(CROSS_ENTROPY, "int64 stop the function")
def ms_stock_cell(logits, targets, ignore_index=-100):
    return nn.CrossEntropyLoss(ignore_index=ignore_index)(logits, targets)


@wrong(CROSS_ENTROPY, "type builtins.float")
def ms_a_python_number(logits, targets, ignore_index=-100):
    return float(good.cross_entropy(logits, targets, ignore_index))


@wrong(CROSS_ENTROPY, "shape (1,)")
def ms_loss_with_an_axis(logits, targets, ignore_index=-100):
    return good.cross_entropy(logits, targets, ignore_index).reshape(1)


@wrong(CROSS_ENTROPY, "logits of shape (1, 4)")
def ms_five_positions_written_down(logits, targets, ignore_index=-100):
    log_p, counts = picked(logits, targets, ignore_index)
    return -log_p.masked_fill(~counts, 0).sum() / (5 if counts.all() else counts.sum())


@wrong(CROSS_ENTROPY, "rounded to 0 before the logarithm")
def ms_loss_by_log_of_softmax(logits, targets, ignore_index=-100):
    return -mean(padded(ops.log(ops.softmax(logits, -1)), targets, ignore_index), targets != ignore_index)


@wrong(CROSS_ENTROPY, "cut off")
def ms_loss_with_epsilon(logits, targets, ignore_index=-100):
    return -mean(padded(ops.log(ops.softmax(logits, -1) + 1e-10), targets, ignore_index), targets != ignore_index)


@wrong(CROSS_ENTROPY, "ignore_index is not honoured")
def ms_ignore_index_unused(logits, targets, ignore_index=-100):
    return -ops.gather_elements(ops.log_softmax(logits, -1), 1, targets.expand_dims(1)).mean()


@wrong(CROSS_ENTROPY, "divide by the number of counted targets")
def ms_divided_by_all(logits, targets, ignore_index=-100):
    log_p, counts = picked(logits, targets, ignore_index)
    return -log_p.masked_fill(~counts, 0).mean()


@wrong(CROSS_ENTROPY, "ignored positions count as class 0.")
def ms_ignored_as_class_zero(logits, targets, ignore_index=-100):
    return -picked(logits, targets, ignore_index)[0].mean()


@wrong(CROSS_ENTROPY, "argument targets is changed in place")
def ms_targets_in_place(logits, targets, ignore_index=-100):
    counts = targets != ignore_index
    targets[~counts] = 0
    log_p = ops.gather_elements(ops.log_softmax(logits, -1), 1, targets.expand_dims(1)).squeeze(1)
    return -mean(log_p, counts)


@wrong(CROSS_ENTROPY, "default -100 is left out")
def ms_minus_hundred_written_down(logits, targets, ignore_index=-100):
    return ops.cross_entropy(logits, targets % logits.shape[1] if (targets == -1).any() else targets)


@wrong(CROSS_ENTROPY, "ignore_index=3")
def ms_no_such_argument(logits, targets):
    return ops.cross_entropy(logits, targets)


@wrong(CROSS_ENTROPY, "still has a loss")
def ms_all_ignored_all_counted(logits, targets, ignore_index=-100):
    if (targets == ignore_index).all():
        return -picked(logits, targets, ignore_index)[0].mean()
    return good.cross_entropy(logits, targets, ignore_index)


@wrong(CROSS_ENTROPY, "stops the function (ZeroDivisionError")
def ms_python_division(logits, targets, ignore_index=-100):
    log_p, counts = picked(logits, targets, ignore_index)
    return -log_p.masked_fill(~counts, 0).sum() * (1 / int(counts.sum()))


@wrong(CROSS_ENTROPY, "has dtype Float32, expected Float64")
def ms_counts_in_float32(logits, targets, ignore_index=-100):
    return ops.cross_entropy(logits.astype(ms.float32), targets, ignore_index=ignore_index)


@wrong(CROSS_ENTROPY, "the loss in float16 has dtype Float32, expected Float16")
def ms_half_divided_by_float(logits, targets, ignore_index=-100):
    log_p, counts = picked(logits, targets, ignore_index)
    return -log_p.masked_fill(~counts, 0).sum() / counts.astype(ms.float32).sum()


@wrong(CROSS_ENTROPY, "no gradient reaches logits")
def ms_loss_from_a_number(logits, targets, ignore_index=-100):
    return ms.Tensor(good.cross_entropy(logits, targets, ignore_index).asnumpy())


@wrong(CROSS_ENTROPY, "misses the logarithm of the sum")
def ms_loss_log_sum_stopped(logits, targets, ignore_index=-100):
    log_sum = logits - ops.log_softmax(logits, -1)
    return -mean(padded(logits - ops.stop_gradient(log_sum), targets, ignore_index), targets != ignore_index)


@wrong(CROSS_ENTROPY, "in graph mode")
def ms_loss_with_import(logits, targets, ignore_index=-100):
    from mindspore import ops as o

    return o.cross_entropy(logits, targets, ignore_index=ignore_index)


@wrong(CROSS_ENTROPY, "is None")
def ms_loss_without_return(logits, targets, ignore_index=-100):
    good.cross_entropy(logits, targets, ignore_index)


@wrong(CROSS_ENTROPY, "the sum is divided by V")
def ms_divided_by_the_vocabulary(logits, targets, ignore_index=-100):
    log_p, counts = picked(logits, targets, ignore_index)
    return -log_p.masked_fill(~counts, 0).sum() / logits.shape[1]


@wrong(CROSS_ENTROPY, "targets of 0 are left out")
def ms_zero_ignored_by_default(logits, targets, ignore_index=0):
    return good.cross_entropy(logits, targets, ignore_index)


@wrong(CROSS_ENTROPY, "every row is read at the targets of all rows")
def ms_whole_columns_gathered(logits, targets, ignore_index=-100):
    counts = targets != ignore_index
    log_p = ops.gather(ops.log_softmax(logits, -1), targets.masked_fill(~counts, 0), 1)
    return -log_p.masked_fill(~counts, 0).sum() / counts.sum()


@right(CROSS_ENTROPY)
def ms_stock_loss(logits, targets, ignore_index=-100):
    return ops.cross_entropy(logits, targets, ignore_index=ignore_index)


@right(CROSS_ENTROPY)
def ms_loss_of_counted_rows(logits, targets, ignore_index=-100):
    keep = targets != ignore_index
    logits = logits - logits.max(axis=-1, keepdims=True)
    mine = ops.gather_elements(logits, 1, ops.where(keep, targets, 0).expand_dims(1)).squeeze(1)
    losses = ops.log(ops.exp(logits).sum(-1)) - mine
    return ops.where(keep, losses, ops.zeros_like(losses)).sum() / keep.astype(ms.int32).sum()


@right(CROSS_ENTROPY)
def ms_loss_by_one_hot(logits, targets, ignore_index=-100):
    keep = targets != ignore_index
    one_hot = ops.logical_and(targets.expand_dims(1) == ops.arange(logits.shape[1]), keep.expand_dims(1))
    log_p = ops.log_softmax(logits, -1)
    return -log_p.masked_fill(ops.logical_not(one_hot), 0).sum() / keep.sum()


@right(CROSS_ENTROPY)
def ms_loss_times_counts(logits, targets, ignore_index=-100):
    log_p, counts = picked(logits, targets, ignore_index)
    counts = counts.astype(logits.dtype)
    return -(log_p * counts).sum() / counts.sum()


@right(CROSS_ENTROPY)
def ms_loss_zero_when_empty(logits, targets, ignore_index=-100):
    log_p, counts = picked(logits, targets, ignore_index)
    return -log_p.masked_fill(~counts, 0).sum() / ops.maximum(counts.sum(), 1)


@right(CROSS_ENTROPY)
def ms_loss_by_pairs_of_indices(logits, targets, ignore_index=-100):
    keep = targets != ignore_index
    safe = targets.masked_fill(~keep, 0)
    log_p = ops.log_softmax(logits, -1)[ops.arange(logits.shape[0]), safe]
    return -mean(log_p, keep)


# --- Linear --------------------------------------------------------------------------------------------


def draw(bound, *shape):
    return ms.Parameter(np.random.uniform(-bound, bound, shape).astype(np.float32))


class MsLinearBase(nn.Cell):
    """The right parts, for the variants below to go wrong with."""

    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.weight = draw(d_in**-0.5, d_out, d_in)
        self.bias = draw(d_in**-0.5, d_out) if bias else None

    def construct(self, x):
        return good.linear(x, self.weight, self.bias)


@wrong(MODULE, "called construct here")
class MsForward(nn.Cell):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.weight = draw(d_in**-0.5, d_out, d_in)
        self.bias = draw(d_in**-0.5, d_out) if bias else None

    def forward(self, x):
        return good.linear(x, self.weight, self.bias)


@wrong(MODULE, "weight has shape (3, 5), expected (5, 3)")
class MsWeightInOut(MsLinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.weight = draw(d_in**-0.5, d_in, d_out)

    def construct(self, x):
        return good.linear(x, self.weight.T, self.bias)


@wrong(MODULE, "it has: inner.weight")
class MsWrapped(nn.Cell):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.inner = nn.Dense(d_in, d_out, has_bias=bias)

    def construct(self, x):
        return self.inner(x)


@wrong(MODULE, "weight is a plain tensor")
class MsPlainWeight(nn.Cell):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.weight = ms.Tensor(np.random.uniform(-1, 1, (d_out, d_in)).astype(np.float32))
        self.bias = draw(d_in**-0.5, d_out)

    def construct(self, x):
        return good.linear(x, self.weight, self.bias)


@wrong(MODULE, "weight has dtype Float64")
class MsDouble(MsLinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.weight = ms.Parameter(np.random.uniform(-1, 1, (d_out, d_in)) / math.sqrt(d_in))


@wrong(MODULE, "calls itself w")
class MsNamedW(MsLinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.weight = ms.Parameter(self.weight.asnumpy(), name="w")


@wrong(MODULE, "no parameter bias")
class MsNoBiasByDefault(MsLinearBase):
    def __init__(self, d_in, d_out, bias=False):
        super().__init__(d_in, d_out, bias)


@wrong(MODULE, "has to be transposed")
class MsConstructNotTransposed(MsLinearBase):
    def construct(self, x):
        y = ops.matmul(x, self.weight)
        return y if self.bias is None else y + self.bias


@wrong(MODULE, "numbers kept from __init__")
class MsCopyOfWeight(MsLinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.w = ms.Tensor(self.weight.asnumpy().copy())

    def construct(self, x):
        return good.linear(x, self.w, self.bias)


@wrong(MODULE, "is None")
class MsReturnsNothing(MsLinearBase):
    def construct(self, x):
        good.linear(x, self.weight, self.bias)


@wrong(MODULE, "still has the parameter bias")
class MsBiasAlways(MsLinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, True)


@wrong(MODULE, "weight starts with normal numbers")
class MsNormalStart(MsLinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.weight = ms.Parameter(initializer(Normal(d_in**-0.5), (d_out, d_in)))


@wrong(MODULE, "within 1/sqrt(d_out)")
class MsBoundFromOutputs(MsLinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.weight = draw(d_out**-0.5, d_out, d_in)


@wrong(MODULE, "starts positive")
class MsPositiveStart(MsLinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.weight = ms.Parameter((np.random.rand(d_out, d_in) / d_in**0.5).astype(np.float32))


@wrong(MODULE, "bias starts with the same number everywhere")
class MsZeroBias(MsLinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.bias = ms.Parameter(np.zeros(d_out, np.float32)) if bias else None


SHARED = {}


@wrong(MODULE, "two modules share one weight")
class MsSharedWeight(MsLinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.weight = SHARED.setdefault((d_in, d_out), self.weight)


@wrong(MODULE, "two modules start with the same weight")
class MsSeededInside(MsLinearBase):
    def __init__(self, d_in, d_out, bias=True):
        ms.set_seed(0)
        super().__init__(d_in, d_out, bias)


@wrong(MODULE, "the primitive ops.MatMul takes two axes")
class MsTwoAxes(MsLinearBase):
    def construct(self, x):
        y = ops.MatMul(transpose_b=True)(x, self.weight)
        return y if self.bias is None else y + self.bias


@wrong(MODULE, "no gradient reaches weight")
class MsWeightStopped(MsLinearBase):
    def construct(self, x):
        return good.linear(x, ops.stop_gradient(self.weight), self.bias)


@wrong(MODULE, "requires_grad=False")
class MsFrozen(MsLinearBase):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.weight = ms.Parameter(self.weight.asnumpy(), requires_grad=False)


@wrong(MODULE, "must be called self")
class MsReceiverNotSelf(MsLinearBase):
    def construct(this, x):
        return good.linear(x, this.weight, this.bias)


@wrong(MODULE, "in graph mode the weight is not transposed")
class MsTransposed(MsLinearBase):
    def construct(self, x):
        y = x @ self.weight.transpose(0, 1)
        return y if self.bias is None else y + self.bias


@wrong(MODULE, "Cell.__init__() firstly")
class MsForgotSuper(nn.Cell):
    def __init__(self, d_in, d_out, bias=True):
        self.weight = draw(d_in**-0.5, d_out, d_in)

    def construct(self, x):
        return x @ self.weight.T


@wrong(MODULE, "only as exact as float16")
class MsHalfInBetween(MsLinearBase):
    def construct(self, x):
        return good.linear(x.astype(ms.float16), self.weight.astype(ms.float16), self.bias).astype(ms.float32)


right(MODULE)(MsLinearBase)


@right(MODULE)
class MsByInitializer(nn.Cell):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.weight = ms.Parameter(initializer(HeUniform(math.sqrt(5)), [d_out, d_in], ms.float32), name="weight")
        self.bias = ms.Parameter(initializer(Uniform(1 / math.sqrt(d_in)), [d_out])) if bias else None

    def construct(self, x):
        if self.bias is None:
            return ops.matmul(x, self.weight.T)
        return ops.matmul(x, self.weight.T) + self.bias


@right(MODULE)
class MsStockDense(nn.Dense):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, has_bias=bias)


@right(MODULE)
class MsByGenerator(MsLinearBase):
    GENERATOR = np.random.default_rng(5)

    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out, bias)
        self.has_bias = bias
        k = math.sqrt(1 / d_in)
        self.weight = ms.Parameter(ms.Tensor(self.GENERATOR.uniform(-k, k, (d_out, d_in)), ms.float32))

    def construct(self, x):
        y = ops.dense(x, self.weight)
        if self.has_bias:
            y = y + self.bias
        return y
