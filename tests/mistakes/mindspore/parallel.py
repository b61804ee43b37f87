import mindspore as ms
import numpy as np
from mindspore import ops
from mindspore.communication import comm_func, get_group_size

from tests.mistakes import right, wrong

AVERAGE = "mindspore.parallel.average_gradients"


def joined(grads):
    return ops.cat([g.reshape(-1) for g in grads])


def cut(flat, grads):
    pieces = ops.split(flat, [g.size for g in grads])
    return tuple([piece.reshape(g.shape) for piece, g in zip(pieces, grads)])


@wrong(AVERAGE, "all_reduce returns the sum, it changes nothing in place")
def as_in_pytorch(grads, all_reduce, world_size):
    flat = joined(grads)
    all_reduce(flat)
    return cut(flat / world_size, grads)


@wrong(AVERAGE, "summed and not divided")
def only_sums(grads, all_reduce, world_size):
    return cut(all_reduce(joined(grads)), grads)


@wrong(AVERAGE, "twice")
def divides_twice(grads, all_reduce, world_size):
    return cut(all_reduce(joined(grads) / world_size) / world_size, grads)


@wrong(AVERAGE, "number of gradients")
def divides_by_gradients(grads, all_reduce, world_size):
    return cut(all_reduce(joined(grads)) / len(grads), grads)


@wrong(AVERAGE, "a real all-reduce is called")
def calls_the_real_one(grads, all_reduce, world_size):
    return cut(ops.AllReduce()(joined(grads)) / world_size, grads)


@wrong(AVERAGE, "have to come back")
def returns_nothing(grads, all_reduce, world_size):
    cut(all_reduce(joined(grads)) / world_size, grads)


@wrong(AVERAGE, "one tensor of shape")
def returns_flat(grads, all_reduce, world_size):
    return all_reduce(joined(grads)) / world_size


@wrong(AVERAGE, "the start has to move on")
def same_start(grads, all_reduce, world_size):
    flat = all_reduce(joined(grads)) / world_size
    return tuple([flat[: g.size].reshape(g.shape) for g in grads])


@wrong(AVERAGE, "has shape")
def stays_flat(grads, all_reduce, world_size):
    return ops.split(all_reduce(joined(grads)) / world_size, [g.size for g in grads])


@wrong(AVERAGE, "A generator is used up")
def gives_a_generator(grads, all_reduce, world_size):
    flat = all_reduce(joined(grads)) / world_size
    return (piece.reshape(g.shape) for piece, g in zip(ops.split(flat, [g.size for g in grads]), grads))


@wrong(AVERAGE, "sums up one tensor")
def sends_a_tuple(grads, all_reduce, world_size):
    return tuple([g / world_size for g in all_reduce(grads)])


@wrong(AVERAGE, "changed in place")
def writes_into_grads(grads, all_reduce, world_size):
    mean = cut(all_reduce(joined(grads)) / world_size, grads)
    for g, m in zip(grads, mean):
        g[:] = m
    return grads


@wrong(AVERAGE, "not always two ranks")
def halves(grads, all_reduce, world_size):
    return cut(all_reduce(joined(grads)) / 2, grads)


@wrong(AVERAGE, "5 messages are sent")
def one_each(grads, all_reduce, world_size):
    return tuple([all_reduce(g) / world_size for g in grads])


@wrong(AVERAGE, "a tuple is meant, also for one")
def single_unpacked(grads, all_reduce, world_size):
    mean = cut(all_reduce(joined(grads)) / world_size, grads)
    return mean if len(mean) > 1 else mean[0]


@wrong(AVERAGE, "works eagerly and not in graph mode")
def through_numpy(grads, all_reduce, world_size):
    flat = all_reduce(ms.Tensor(np.concatenate([g.asnumpy().reshape(-1) for g in grads]))) / world_size
    return cut(flat, grads)


@wrong(AVERAGE, "all_reduce is never called")
def nothing_sent(grads, all_reduce, world_size):
    return tuple(g / world_size for g in grads)


@wrong(AVERAGE, "the argument world_size")
def asks_the_group(grads, all_reduce, world_size):
    return cut(all_reduce(joined(grads)) / get_group_size(), grads)


@wrong(AVERAGE, "a real all-reduce is called")
def calls_another_real_one(grads, all_reduce, world_size):
    return cut(comm_func.all_reduce(joined(grads))[0] / world_size, grads)


@wrong(AVERAGE, "g.size is a number")
def size_as_in_pytorch(grads, all_reduce, world_size):
    flat = all_reduce(joined(grads)) / world_size
    return tuple(piece.reshape(g.shape) for piece, g in zip(ops.split(flat, [g.size() for g in grads]), grads))


@wrong(AVERAGE, "takes a list of lengths")
def split_by_a_number(grads, all_reduce, world_size):
    flat = all_reduce(joined(grads)) / world_size
    return tuple(piece.reshape(g.shape) for piece, g in zip(ops.split(flat, len(grads)), grads))


@wrong(AVERAGE, "has to become a vector first")
def joins_matrices(grads, all_reduce, world_size):
    return cut(all_reduce(ops.cat(grads)) / world_size, grads)


@wrong(AVERAGE, "as in half precision")
def sends_float16(grads, all_reduce, world_size):
    return cut(all_reduce(joined(grads).astype(ms.float16)).astype(ms.float32) / world_size, grads)


@right(AVERAGE)
def by_slices(grads, all_reduce, world_size):
    flat = all_reduce(joined(grads)) / world_size
    found, start = [], 0
    for g in grads:
        found.append(flat[start : start + g.size].reshape(g.shape))
        start = start + g.size
    return tuple(found)


@right(AVERAGE)
def divided_before(grads, all_reduce, world_size):
    return cut(all_reduce(joined([g / world_size for g in grads])), grads)


@right(AVERAGE)
def as_a_list(grads, all_reduce, world_size):
    flat = all_reduce(joined(grads)) * (1 / world_size)
    pieces = ops.split(flat, [g.size for g in grads], 0)
    return [pieces[i].reshape(grads[i].shape) for i in range(len(grads))]


@right(AVERAGE)
def flattened_by_ravel(grads, all_reduce, world_size):
    flat = ops.concat(tuple([ops.reshape(g, (g.size,)) for g in grads]), axis=0)
    total = all_reduce(flat)
    return cut(ops.div(total, world_size), grads)


@right(AVERAGE)
def by_generators(grads, all_reduce, world_size):
    flat = all_reduce(joined(grads)) / world_size
    pieces = ops.split(flat, [g.size for g in grads])
    return tuple(piece.reshape(g.shape) for piece, g in zip(pieces, grads))
