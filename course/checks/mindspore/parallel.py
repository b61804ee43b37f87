"""Checks of lesson 20's port. No process is started: ranks run one after the other, and what they send is exchanged between them.

Oracle: the mean of the ranks' gradients in NumPy.
"""
import contextlib

import mindspore as ms
import numpy as np
from mindspore import ops
from mindspore.communication import comm_func
from mindspore.mint import distributed

from course.checks import checks
from course.checks.mindspore import close, equal, fail, in_plain_words, is_tensor, rand, same_in_graph_mode

ms.runtime.launch_blocking()

AVERAGE = "mindspore.parallel.average_gradients"
SHAPES = [(3, 4), (5,), (2, 3, 2), (4, 3), (1,)]


class Stopped(BaseException):
    """A rank has come to a message that the others have not sent yet."""


@contextlib.contextmanager
def no_real_messages():
    """A real AllReduce without init() ends the process with a segmentation fault, the notebook's kernel with it."""

    def refuse(*args, **kwargs):
        fail("a real all-reduce is called, and there is one process here: MindSpore would take the whole notebook down with it.", look="the argument all_reduce, which is to be called instead")

    kept, function, older = ops.AllReduce.__call__, distributed.all_reduce, comm_func.all_reduce
    ops.AllReduce.__call__ = distributed.all_reduce = comm_func.all_reduce = refuse
    try:
        yield
    finally:
        distributed.all_reduce, comm_func.all_reduce = function, older
        if "__call__" in vars(ops.AllReduce):
            ops.AllReduce.__call__ = kept


ERRORS = [
    ("'int' object is not callable", "g.size is a number in MindSpore, and no method."),
    ("required positional argument: 'x'", "all_reduce is the operation itself: it is called once, with the tensor."),
    ("proposed_shape", "the pieces of the flat vector are not as long as the gradients: ops.split takes a list of lengths, and a single number is the length of every piece."),
    ("element rank must be same", "gradients of different shapes are joined: each has to become a vector first."),
    ("shape size must be the same", "gradients of different shapes are stacked: each has to become a vector first, and vectors are joined."),
]


def gradients(rank, shapes=SHAPES):
    return [rand(*shape, seed=100 * (rank + 1) + i) for i, shape in enumerate(shapes)]


def on_ranks(average_gradients, size, grads_of=gradients):
    """Per rank what average_gradients returns, and the number of messages. A rank runs again when a message is complete."""
    done = []
    while True:
        results, given = {}, {}
        for rank in range(size):
            number = [0]

            def all_reduce(x):
                if not isinstance(x, ms.Tensor):
                    fail(f"all_reduce gets a {type(x).__name__}; it sums up one tensor.", look="ops.cat makes one tensor of many")
                number[0] += 1
                if number[0] <= len(done):
                    return ms.Tensor(done[number[0] - 1])
                given[rank] = x.asnumpy().copy()
                raise Stopped

            arrays = grads_of(rank)
            tensors = tuple(ms.Tensor(a) for a in arrays)
            with no_real_messages(), contextlib.suppress(Stopped), in_plain_words(ERRORS):
                results[rank] = average_gradients(tensors, all_reduce, size)
            for i, (t, a) in enumerate(zip(tensors, arrays)):
                if not np.array_equal(t.asnumpy(), a):
                    fail("the gradients that are given are changed in place: compute new ones.", example=f"gradient {i}", look="assignments into slices, and ops.assign")
        if len(results) == size:
            return [results[rank] for rank in range(size)], len(done)
        if results:
            fail(f"rank {min(results)} is through while another one waits for a message: on real processes the run hangs here.")
        if len({g.shape for g in given.values()}) > 1:
            fail("the ranks send messages of different sizes.")
        done.append(sum(g.astype(np.float64) for g in given.values()).astype(given[0].dtype))
        if len(done) > 100:
            fail("the ranks exchange more than 100 messages.", look="a loop over single numbers")


def mean_is_right(average_gradients, size):
    results, messages = on_ranks(average_gradients, size)
    if not messages:
        fail("all_reduce is never called: no rank knows anything of the others.", look="the argument all_reduce")
    each = [gradients(rank) for rank in range(size)]
    want = [sum(g.astype(np.float64) for g in grads).astype(np.float32) / np.float32(size) for grads in zip(*each)]
    joined = np.concatenate([w.reshape(-1) for w in want])
    for rank, got in enumerate(results):
        if got is None:
            fail("the result is None: nothing is kept in .grad here, the averaged gradients have to come back.", look="return")
        if isinstance(got, ms.Tensor) and len(SHAPES) != 1:
            fail(f"one tensor of shape {tuple(got.shape)} comes back; a tuple with a tensor for each gradient is meant.", look="ops.split, and the shapes of grads")
        if not isinstance(got, (tuple, list)):
            fail(f"a tuple with a tensor for each gradient is meant, and a {type(got).__name__} comes back." + (" A generator is used up by its first loop." if hasattr(got, "__next__") else ""))
        if len(got) != len(SHAPES):
            fail(f"{len(got)} tensors come back for {len(SHAPES)} gradients.", look="the sizes given to ops.split; a number there is a size, not a count")
        start = 0
        for i, (g, w) in enumerate(zip(got, want)):
            own = each[rank][i]
            close(g, w, 2e-6, name=f"the gradient {i} on rank {rank} of {size}", known=[
                ("the gradients are summed and not divided by the number of ranks, the argument world_size.", w * size),
                ("the sum is divided by the number of ranks twice.", w / size),
                ("the sum is divided by 2, and there are not always two ranks.", w * size / 2),
                ("the sum is divided by the number of gradients; by the number of ranks is meant.", w * size / len(want)),
                ("each rank gets its own gradient back: all_reduce returns the sum, it changes nothing in place.", own),
                ("each rank gets its own gradient back, divided by the number of ranks: all_reduce returns the sum, it changes nothing in place.", own / size),
                ("the result is rank 0's gradient on every rank.", each[0][i]),
                ("all gradients get the first numbers of the flat vector: the start has to move on.", joined[: w.size].reshape(w.shape) if i else w * np.nan),
                ("the pieces are taken from the flat vector in another order than they were put in.", joined[::-1][start : start + w.size].reshape(w.shape)),
                ("the sign is wrong.", -w),
                ("the sum is multiplied by the number of ranks.", w * size * size),
                ("the sum is divided by // and so rounded down to whole numbers.", np.floor(w)),
                ("the numbers are rounded on the way, as in half precision.", lambda: g.asnumpy() if equal(g, w, 2e-2) else w * np.nan),
            ], look="the numbers before all_reduce, after it, and how they are cut up again")
            start += w.size
    return messages


@checks(AVERAGE, "the mean over three ranks, and over two")
def average_ranks(average_gradients):
    mean_is_right(average_gradients, 3)
    mean_is_right(average_gradients, 2)


@checks(AVERAGE, "one message")
def average_messages(average_gradients):
    messages = mean_is_right(average_gradients, 2)
    if messages != 1:
        fail(
            f"{messages} messages are sent for {len(SHAPES)} gradients: each costs the same start, however few numbers are in it.",
            look="ops.cat of the flat gradients before all_reduce, ops.split after it",
        )


@checks(AVERAGE, "a single gradient, and one without axes")
def average_few(average_gradients):
    for shapes in ([(2, 3)], [(4,), ()]):

        def few(rank):
            return [np.asarray(rand(*shape, seed=7 * (rank + 1) + i), np.float32) for i, shape in enumerate(shapes)]

        results, _ = on_ranks(average_gradients, 2, few)
        got = results[1]
        if not isinstance(got, (tuple, list)) or len(got) != len(shapes):
            fail(f"of {len(shapes)} gradients {'one tensor' if isinstance(got, ms.Tensor) else type(got).__name__ if not hasattr(got, '__len__') else len(got)} comes back; a tuple is meant, also for one.")
        for i, (g, a, b) in enumerate(zip(got, few(0), few(1))):
            is_tensor(g, a.shape, ms.float32, name=f"the gradient {i}")
            close(g, ((a + b) / 2).astype(np.float32), 2e-6, name=f"the gradient {i}")


@checks(AVERAGE, "the same in graph mode", seconds=20)
def average_in_graph(average_gradients):
    def double(x):                                            # as if another rank had the same gradients
        return x + x

    def run(a, b, c):
        return average_gradients((a, b, c), double, 2)

    with no_real_messages():
        same_in_graph_mode(run, *gradients(0)[:3])
