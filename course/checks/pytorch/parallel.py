"""Checks of lesson 20: several processes. No process is started: ranks run one after the other, and what they send is exchanged between them.

Oracles: slices, the mean of the ranks' gradients in float64, autograd on the big batch, a simulation of the pipeline slot by slot.
"""
import contextlib
import copy

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from course.checks import checks
from course.checks.pytorch import close, equal, fail, is_tensor, rand
from course.checks.pytorch import training as lesson07

SHARD = "pytorch.parallel.shard"
AVERAGE = "pytorch.parallel.average_gradients"
ACCUMULATE = "pytorch.parallel.accumulate"
GPIPE = "pytorch.parallel.gpipe_schedule"


# --- shard ---------------------------------------------------------------------------------------------


def sharded(shard, batch, rank, world_size):
    given = copy.deepcopy(batch)
    try:
        got = shard(given, rank, world_size)
    except ValueError as error:
        if "process group" in str(error):
            fail("the process group is asked who it is: shard gets rank and world_size as arguments, and no group is open here.", look="dist.get_rank(), dist.get_world_size()")
        fail("a batch that can be dealt evenly is refused.", example=f"{len(batch)} rows for {world_size} ranks: ValueError: {str(error)[:80]}", look="what is divided by what in the test")
    except TypeError as error:
        if "slice indices" not in str(error) and "integer" not in str(error):
            raise
        fail("the number of rows of a part is a float: / gives one, even where nothing is left over.", example=f"{len(batch)} / {world_size} is {len(batch) / world_size}", look="the division")
    if not equal(torch.as_tensor(given), torch.as_tensor(batch), 0):
        fail("the batch is changed in place: whoever called you still needs it.")
    return got


def rows_of(batch, rank, world_size):
    size = len(batch) // world_size
    return batch[rank * size : (rank + 1) * size]


@checks(SHARD, "the rows of a rank")
def shard_rows(shard):
    batch = torch.arange(120).reshape(30, 4)
    for world_size, ranks in ((5, (3, 1, 0, 4)), (3, (1, 0, 2)), (2, (1, 0))):
        for rank in ranks:
            size = 30 // world_size
            got = sharded(shard, batch, rank, world_size)
            if isinstance(got, (tuple, list)) and len(got) == world_size:
                fail("the parts of all ranks are returned; a rank gets its own part only.", look="an index [rank]")
            if isinstance(got, (range, slice)) or (isinstance(got, (list, tuple)) and got and isinstance(got[0], int)):
                fail("the numbers of the rows are returned; the rows themselves are meant.", look="batch[...]")
            flat = batch.reshape(-1)
            if isinstance(got, torch.Tensor) and got.dim() and len(got) == 0:
                fail(
                    f"rank {rank} of {world_size} gets no rows: the slice ends before it begins, or begins behind the last row.",
                    example=f"a batch of shape (30, 4), rank {rank} of {world_size}: shape {tuple(got.shape)}, expected {(size, 4)}",
                    look="both ends of the slice, whether rows are counted or numbers, and which argument is rank",
                )
            close(got, rows_of(batch, rank, world_size), 0, name=f"the part of rank {rank} of {world_size}", known=[
                ("the rows are dealt like cards, every world_size-th one: a valid way, but consecutive rows are asked for here.", batch[rank::world_size]),
                ("every rank gets the whole batch: each would compute the same gradient.", batch),
                ("every rank gets the first rows: the part has to move with rank.", batch[:size]),
                ("every rank gets the last rows: the part has to move with rank.", batch[-size:]),
                ("the part starts at row rank; it starts at row rank times the number of rows of a part.", batch[rank : rank + size]),
                ("a part has world_size rows; it has B / world_size of them.", batch[rank * world_size : (rank + 1) * world_size]),
                ("the ranks count backwards: rank 0 gets the first rows.", rows_of(batch, world_size - 1 - rank, world_size)),
                ("the ranks count from 1: rank 0 gets the first rows.", batch[(rank - 1) * size : rank * size]),
                ("the ranks count from 1: rank 0 gets the first rows.", batch[(rank + 1) * size : (rank + 2) * size]),
                ("the end of the slice is missing: the rank gets all the rows behind its first one.", batch[rank * size :]),
                ("the part has a row too few: the end of a slice does not belong to it.", batch[rank * size : (rank + 1) * size - 1]),
                ("the part has a row too many: the end of a slice does not belong to it.", batch[rank * size : (rank + 1) * size + 1]),
                ("the part is cut along the second axis; a batch is dealt by its rows, axis 0.", lambda: batch.tensor_split(world_size, dim=1)[rank]),
                ("the part is flat: rows are cut from the numbers, and not from axis 0.", flat[rank * 4 * size : (rank + 1) * 4 * size][:size]),
                ("the rows are drawn or shuffled; consecutive rows are asked for, so that every rank can rely on the others.", lambda: got if is_shuffled(got, batch, size) else batch),
            ], look="the first row of the part, and its last")


def is_shuffled(got, batch, size):
    """Whole rows of the batch, as many as a part has, but not consecutive ones."""
    if not isinstance(got, torch.Tensor) or got.shape != (size, batch.shape[1]):
        return False
    numbers = [i for row in got for i, other in enumerate(batch) if torch.equal(row, other)]
    return len(numbers) == size and any(b - a != 1 for a, b in zip(numbers, numbers[1:]))


@checks(SHARD, "arrays, more axes, one rank")
def shard_arrays(shard):
    for batch in (rand(6, 2, 3), rand(6)):
        close(sharded(shard, batch, 1, 2), batch[3:], 0, name=f"the part of rank 1 of 2 of a batch with {batch.dim()} axes", look="everything that is taken for granted about the other axes")
        close(sharded(shard, batch, 0, 1), batch, 0, name="the part of the only rank")
    array = np.arange(24, dtype=np.int32).reshape(8, 3)
    try:
        got = sharded(shard, array, 2, 4)
    except (AttributeError, TypeError):
        fail("a NumPy array is refused, and the batches of MindSpore come as such.", look="methods that only a tensor has, as .chunk and .size(0); slices work on both")
    if isinstance(got, torch.Tensor):
        fail("an array becomes a tensor; a part is of the same type as the batch.")
    if not isinstance(got, np.ndarray) or got.dtype != array.dtype or not np.array_equal(got, array[4:6]):
        fail("the part of a NumPy array is not its rows.", example=f"rank 2 of 4, 8 rows: got {np.asarray(got).tolist()}, expected {array[4:6].tolist()}")


@checks(SHARD, "a batch that cannot be dealt evenly")
def shard_uneven(shard):
    for rows, world_size in ((7, 2), (3, 4), (11, 3)):
        for rank in (0, world_size - 1):
            try:
                got = shard(torch.arange(rows), rank, world_size)
            except ValueError as error:
                if len(str(error)) < 10:
                    fail("the ValueError says nothing: name both numbers, so that the reader can mend one of them.")
                continue
            except AssertionError:
                fail("an assert stops it: Python -O takes asserts away, and a caller cannot tell it from a bug.", look="raise ValueError(...)")
            except Exception as error:
                fail(f"a batch that cannot be dealt evenly raises {type(error).__name__}; a ValueError that names both numbers is wanted.", example=f"{rows} rows for {world_size} ranks: {type(error).__name__}: {str(error)[:80]}")
            fail(
                "a batch that cannot be dealt evenly is dealt all the same: the rank with fewer rows would count as much as the others, or rows are lost.",
                example=f"{rows} rows for {world_size} ranks: rank {rank} gets {len(got) if hasattr(got, '__len__') else got}, and a ValueError is expected",
            )


# --- ranks without processes ---------------------------------------------------------------------------


class Stopped(BaseException):
    """A rank has come to a message that the others have not sent yet."""


class Exchange:
    """All messages of a run, in order: what each rank gave, and what came of it."""

    def __init__(self, size):
        self.size = size
        self.done = []       # (kind, result)
        self.given = {}      # rank -> (kind, operation, tensor) of the message after those that are done

    def message(self, rank, number, kind, operation, tensor):
        if number < len(self.done):
            return self.done[number][1]
        self.given[rank] = (kind, operation, tensor.detach().clone())
        raise Stopped

    def settle(self):
        """Every rank has given its part of the next message: compute its result."""
        kinds = {(kind, operation) for kind, operation, _ in self.given.values()}
        sizes = {tuple(t.shape) for _, _, t in self.given.values()}
        if len(kinds) > 1:
            fail("the ranks call different operations at the same point: on real processes each would wait for the other.")
        if len(sizes) > 1:
            fail(
                f"the ranks send messages of different sizes: {' and '.join(str(s[0]) if len(s) == 1 else str(s) for s in sorted(sizes))} numbers. "
                "On real processes that is an error, a hang, or a sum of things that do not belong together.",
                look="a parameter that has no gradient on one rank and has one on another: it takes part with zeros",
            )
        kind, operation, _ = self.given[0]
        parts = [self.given[rank][2] for rank in range(self.size)]
        self.done.append((kind, combined(kind, operation, parts)))
        self.given = {}


def combined(kind, operation, parts):
    if kind == "gather":
        return torch.stack(parts)
    if kind == "broadcast":
        return parts[operation]
    together = torch.stack(parts)
    if operation in COMBINE:
        return COMBINE[operation](together)
    fail("the all-reduce combines in a way that is not known here; a sum is what a mean needs.", look="op=")


COMBINE = {
    "SUM": lambda x: x.sum(dim=0), "AVG": lambda x: x.sum(dim=0) / len(x), "MAX": lambda x: x.amax(dim=0),
    "MIN": lambda x: x.amin(dim=0), "PRODUCT": lambda x: x.prod(dim=0),
}


def name_of(options):
    """SUM, AVG, ...: two ReduceOp of one kind are equal, and their texts are not."""
    return "SUM" if options is None else next((name for name in COMBINE if options.reduceOp == getattr(dist.ReduceOp, name)), "another")


class OneRank(dist.ProcessGroup):
    """A process group whose other ranks are runs of the same function, before and after this one."""

    def __init__(self, rank, exchange):
        super().__init__(rank, exchange.size)
        self.rank_, self.exchange, self.number = rank, exchange, 0

    def getBackendName(self):
        return "course"

    def exchange_one(self, kind, operation, tensor):
        result = self.exchange.message(self.rank_, self.number, kind, operation, tensor)
        self.number += 1
        return result

    def allreduce(self, tensors, options=None):
        results = [self.exchange_one("all-reduce", name_of(options), tensor) for tensor in tensors]
        return Pending(tensors, results)

    def allreduce_coalesced(self, tensors, options=None):
        flat = torch.cat([t.reshape(-1) for t in tensors])
        result = self.exchange_one("all-reduce", name_of(options), flat)
        for tensor, piece in zip(tensors, result.split([t.numel() for t in tensors])):
            tensor.copy_(piece.reshape(tensor.shape))
        return over(tensors)

    def allgather(self, outputs, inputs, options=None):
        result = self.exchange_one("gather", None, inputs[0])
        for place, value in zip(outputs[0], result):
            place.copy_(value)
        return over(outputs[0])

    def _allgather_base(self, output, tensor, options=None):
        output.copy_(self.exchange_one("gather", None, tensor).reshape(output.shape))
        return over([output])

    def broadcast(self, tensors, options):
        tensors[0].copy_(self.exchange_one("broadcast", options.rootRank, tensors[0]))
        return over(tensors)

    def reduce(self, tensors, options):
        result = self.exchange_one("reduce", name_of(options), tensors[0])
        if self.rank_ == options.rootRank:
            tensors[0].copy_(result)
        return over(tensors)

    def barrier(self, opts=None):
        self.exchange_one("barrier", "SUM", torch.zeros(1))
        return over([torch.zeros(1)])


class Pending(dist.Work):
    """An all-reduce whose sum is there when somebody has waited for it, as on real processes."""

    def __init__(self, tensors, results):
        super().__init__()
        self.tensors, self.results = tensors, results

    def wait(self, timeout=None):
        for tensor, result in zip(self.tensors, self.results):
            tensor.copy_(result)
        self.results = []
        return True

    def is_completed(self):
        return self.wait()

    def get_future(self):
        self.wait()
        return over(self.tensors).get_future()


def over(tensors):
    future = torch.futures.Future()
    future.set_result(list(tensors))
    return torch._C._distributed_c10d._create_work_from_future(future)


@contextlib.contextmanager
def group_of(rank, exchange):
    """torch.distributed as rank `rank` sees it; nothing is left open afterwards."""
    if dist.is_initialized():
        fail("a process group is open in this notebook, and the checks need one of their own: dist.destroy_process_group() closes it.")
    GROUP["make"] = lambda: OneRank(rank, exchange)
    if not hasattr(dist.Backend, "COURSE_CHECKS"):
        dist.Backend.register_backend("course_checks", lambda *_: GROUP["make"](), devices=["cpu"])
    dist.init_process_group("course_checks", store=dist.HashStore(), rank=rank, world_size=exchange.size)
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


GROUP = {}


def on_ranks(size, work):
    """[work(rank) for each rank], as if they ran at once; and the kinds of the messages that they exchanged.

    A rank runs until a message that is not complete and is run again, from the start, when it is.
    """
    exchange = Exchange(size)
    while True:
        results = {}
        for rank in range(size):
            with group_of(rank, exchange):
                with contextlib.suppress(Stopped):
                    results[rank] = work(rank)
        if len(results) == size:
            return [results[rank] for rank in range(size)], [kind for kind, _ in exchange.done]
        if results:
            fail(
                f"rank {min(results)} is through while rank {min(set(range(size)) - set(results))} waits for a message of its own: on real processes the run hangs here.",
                look="conditions on the rank, or on what a rank happens to have; every rank has to send as often as the others",
            )
        exchange.settle()
        if len(exchange.done) > 200:
            fail("the ranks exchange more than 200 messages.", look="a loop over single numbers")


# --- average_gradients ---------------------------------------------------------------------------------

SHAPES = [(3, 4), (5,), (2, 3, 2), (4, 3), (1,)]


def parameters(rank, dtype=torch.float32, without=(), shapes=SHAPES):
    """Parameters that are equal on all ranks, with gradients that are not."""
    params = [nn.Parameter(rand(*shape, seed=i, dtype=dtype)) for i, shape in enumerate(shapes)]
    for i, p in enumerate(params):
        if (rank, i) not in without:
            p.grad = rand(*p.shape, seed=100 * (rank + 1) + i, dtype=dtype)
    return params


AVERAGE_RULES = [   # what an error says, what it means, where to look
    ("process group twice", "a process group is opened here; the program has done so once, for all its messages.", "dist.init_process_group"),
    ("has no attribute 'parameters'", "params is taken for the model: it is what model.parameters() gives, the parameters themselves.", "params.parameters()"),
    ("same number of dimensions", "gradients of different shapes are joined: each has to become a vector first.", "torch.cat"),
    ("Sizes of tensors must match", "gradients of different shapes are joined: each has to become a vector first.", "torch.cat, torch.stack"),
    ("stack expects each tensor", "gradients of different shapes are stacked: each has to become a vector first, and vectors are joined, not stacked.", "torch.stack"),
    ("a gradient with dtype", "the averaged gradient has another dtype than its parameter: what is made on the way is float32, whatever comes in.", "torch.zeros(...) without dtype, .float()"),
]
ACCUMULATE_RULES = [
    ("context manager protocol", "what stands behind with is nothing that can be entered.", "brackets behind no_sync and nullcontext; and None, False or True where a context is meant"),
    ("__enter__", "what stands behind with is nothing that can be entered.", "brackets behind no_sync and nullcontext; and None, False or True where a context is meant"),
    ("has no attribute 'args'", "one context is entered twice: what no_sync() gives is used up by its first with.", "no_sync(), to be called in each round"),
    ("didn't yield", "one context is entered twice: what no_sync() gives is used up by its first with.", "no_sync(), to be called in each round"),
    ("has no attribute 'no_sync'", "no_sync is a method of the wrapper, DistributedDataParallel: of model itself, neither of the module inside nor of torch.", "what stands before .no_sync"),
    ("process group has not been", "torch.distributed is called here: DistributedDataParallel sends by itself, in the backward pass that stands outside no_sync.", "dist., and average_gradients"),
    ("for /: 'tuple'", "model(x, y) gives two things, (logits, loss), and they are taken for one.", "model(x, y)[1], or two names"),
    ("'tuple' object has no attribute", "model(x, y) gives two things, (logits, loss), and they are taken for one.", "model(x, y)[1], or two names"),
]


@contextlib.contextmanager
def in_plain_words(rules):
    """Errors that say little by themselves fail with the words of the first rule whose mark they hold."""
    try:
        yield
    except (AttributeError, TypeError, RuntimeError, ValueError) as error:
        for mark, words, look in rules:
            if mark in str(error):
                fail(words, example=f"{type(error).__name__}: {str(error)[:100]}", look=look)
        raise


@contextlib.contextmanager
def average_in_plain_words():
    """in_plain_words, and a word about the environment."""
    try:
        with in_plain_words(AVERAGE_RULES):
            yield
    except KeyError as error:
        if "WORLD_SIZE" not in str(error) and "RANK" not in str(error):
            raise
        fail(f"the environment has no {error}: it is there under a launcher only.", look="dist.get_world_size() knows wherever a group is open")


def names_in(function):
    """Names that the code of a function asks for."""
    code = getattr(function, "__code__", None)
    return set(code.co_names) if code else set()


def averaged(average_gradients, size, as_given=list, **settings):
    """Per rank the gradients after average_gradients, and the kinds of messages."""

    def work(rank):
        params = parameters(rank, **settings)
        before = [p.detach().clone() for p in params]
        with average_in_plain_words():
            average_gradients(as_given(params))
        if not dist.is_initialized():
            fail("the process group is closed afterwards: the next update has nobody to talk to.", look="dist.destroy_process_group(), which belongs to the end of the program")
        for i, (p, old) in enumerate(zip(params, before)):
            if not torch.equal(p.detach(), old):
                fail("the parameters themselves are changed: only their gradients are averaged, the optimizer's step comes later.", example=f"parameter {i} of shape {tuple(p.shape)}", look="p where p.grad is meant")
            if p.grad is not None and p.grad.requires_grad:
                fail("a gradient afterwards needs a gradient itself: clipping it in place is an error, or the graph is kept alive.", example=f"parameter {i}", look="nn.Parameter(...), and p in the sum where p.grad or torch.zeros_like(p) is meant")
        return [p.grad for p in params]

    return on_ranks(size, work)


def wanted(size, **settings):
    """Per parameter the mean over the ranks, and the gradients of each rank."""
    each = [[torch.zeros_like(p) if p.grad is None else p.grad for p in parameters(rank, **settings)] for rank in range(size)]
    return [sum(g.double() for g in grads).div(size).to(grads[0].dtype) for grads in zip(*each)], each


def mean_is_right(average_gradients, size, **settings):
    got, kinds = averaged(average_gradients, size, **settings)
    if "reduce" in kinds and "broadcast" not in kinds:
        fail("dist.reduce gives the sum to one rank, and the others keep what they had; dist.all_reduce gives it to all.")
    want, each = wanted(size, **settings)
    dtype = want[0].dtype
    joined = torch.cat([w.reshape(-1) for w in want])
    for first in (0, 1):
        if size > 2 and all(equal(got[rank][1], want[1] * size / (rank + first), 1e-5) for rank in range(1 - first, size)):
            fail(f"the sum is divided by {'rank + 1' if first else 'the rank'}, another number on every rank; by the number of ranks is meant.", look="dist.get_rank(), where dist.get_world_size() is meant")
    for i in [*range(1, len(want)), 0]:
        for rank in reversed(range(size)):
            if got[rank][i] is None:
                fail(f"parameter {i} has no gradient afterwards on rank {rank}.", look="what is assigned to p.grad, and for which parameters")
            own, w, largest = each[rank][i], want[i], torch.stack([g[i] for g in each])
            start, after = sum(v.numel() for v in want[:i]), sum(v.numel() for v in want[i + 1 :])
            close(got[rank][i], w, 2e-6 if dtype == torch.float32 else 1e-12, name=f"the gradient of parameter {i} on rank {rank} of {size}", known=[
                ("the gradients are summed and not divided by the number of ranks.", w * size),
                ("the sum is divided by the number of ranks twice.", w / size),
                ("the sum is divided by 2, and there are not always two ranks.", w * size / 2),
                ("the sum is multiplied by the number of ranks.", w * size * size),
                ("the mean of the others is taken: a rank's own gradient is left out.", (w * size - own) / (size - 1)),
                ("the sum is divided by the number of parameters; by the number of ranks is meant.", w * size / len(want)),
                ("each rank keeps its own gradient: what was averaged is not put back.", own),
                ("each rank keeps its own gradient, divided by the number of ranks: nothing was added up, or the all-reduce is called and not waited for.", own / size),
                ("every rank gets the gradient of rank 0: that is a broadcast.", each[0][i]),
                ("the largest of the ranks' gradients is taken; the mean is meant.", largest.amax(dim=0)),
                ("the smallest of the ranks' gradients is taken; the mean is meant.", largest.amin(dim=0)),
                ("the product of the ranks' gradients is taken; the mean is meant.", largest.prod(dim=0)),
                ("the gradients are cleared.", torch.zeros_like(w)),
                ("all parameters get the first numbers of the flat vector: the start has to move on.", joined[: w.numel()].reshape(w.shape) if i else w * float("nan")),
                ("the pieces are taken from the flat vector in another order than they were put in.", lambda: joined.flip(0)[start : start + w.numel()].reshape(w.shape)),
                ("the pieces are taken from the flat vector in another order than they were put in.", joined[after : after + w.numel()].reshape(w.shape)),
                ("the sign is wrong.", -w),
                ("the sum is divided by // and so rounded down to whole numbers.", w.floor()),
                ("the parameters are averaged, not their gradients.", parameters(rank, **settings)[i].detach()),
                ("the numbers are rounded on the way, as in half precision.", lambda: got[rank][i] if equal(got[rank][i], w, 2e-2) else w * float("nan")),
            ], look="the numbers before the all-reduce, after it, and how they come back to p.grad")
    return kinds


@checks(AVERAGE, "the mean over three ranks, and over two")
def average_ranks(average_gradients):
    try:
        mean_is_right(average_gradients, 3)
    except (TypeError, AttributeError) as error:
        if "NoneType" not in str(error) or not hasattr(average_gradients, "__code__") or "all_reduce" not in names_in(average_gradients):
            raise
        fail("None is computed with, and every gradient was there: dist.all_reduce overwrites its argument and returns None.", example=f"{type(error).__name__}: {str(error)[:80]}", look="flat = dist.all_reduce(flat)")
    mean_is_right(average_gradients, 2)


@checks(AVERAGE, "a parameter without a gradient")
def average_missing(average_gradients):
    try:
        mean_is_right(average_gradients, 2, without={(1, 2), (0, 4), (1, 4)})
    except (TypeError, AttributeError) as error:
        if "NoneType" not in str(error) and "found None" not in str(error):
            raise
        fail("a parameter whose .grad is None stops it: a part of the model that was not used has none.", look="zeros in its place; leaving it out would put the ranks out of step")


@checks(AVERAGE, "one message")
def average_messages(average_gradients):
    kinds = mean_is_right(average_gradients, 2)
    count = len([kind for kind in kinds if kind != "barrier"])
    if count == 0:
        fail("no message is sent at all.", look="dist.all_reduce")
    if count > 1:
        fail(
            f"{count} messages are sent for {len(SHAPES)} parameters: each costs the same start, however few numbers are in it.",
            look="torch.cat of the flat gradients before the all-reduce, split after it",
        )
    if kinds[0] == "gather":
        fail("every rank gets the gradients of all others and adds them up by itself: that is as many times the data as there are ranks. dist.all_reduce sends sums.")


@checks(AVERAGE, "what model.parameters() gives")
def average_generator(average_gradients):
    got, _ = averaged(average_gradients, 2, as_given=iter)
    want, each = wanted(2)
    for i, w in enumerate(want):
        if got[0][i] is None or equal(got[0][i], each[0][i], 1e-6):
            fail("of a generator, as model.parameters() is one, nothing is left after the first loop over it.", look="list(params) at the start")
        close(got[0][i], w, 2e-6, name=f"the gradient of parameter {i}, with a generator")


@checks(AVERAGE, "dtype, and gradients that are not contiguous")
def average_dtype(average_gradients):
    for rank_grads in averaged(average_gradients, 2, dtype=torch.float64)[0]:
        for i, g in enumerate(rank_grads):
            is_tensor(g, SHAPES[i], torch.float64, name=f"the gradient of parameter {i}, in float64")
    mean_is_right(average_gradients, 2, dtype=torch.float64)

    def work(rank):
        p = nn.Parameter(rand(4, 3, seed=1))
        p.grad = rand(3, 4, seed=10 + rank).t()
        try:
            average_gradients([p])
        except RuntimeError as error:
            if "view" in str(error):
                fail("view refuses a gradient whose numbers do not lie in the order of its axes.", look="reshape copies where it must")
            raise
        return p.grad

    got, _ = on_ranks(2, work)
    close(got[1], (rand(3, 4, seed=10) + rand(3, 4, seed=11)).t() / 2, 2e-6, name="the gradient of a parameter whose gradient is not contiguous")


# --- accumulate ----------------------------------------------------------------------------------------


class Watched(nn.Module):
    """Stands in for DistributedDataParallel: no_sync, and a note for each pass whether it ran inside."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.require_backward_grad_sync = True                # DDP's own flag: all that its no_sync does is to turn it off and on
        self.called, self.entered, self.forwards, self.backwards = 0, 0, [], []

    @property
    def inside(self):
        return not self.require_backward_grad_sync

    def no_sync(self):
        self.called += 1
        return self.block()

    @contextlib.contextmanager
    def block(self):
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        self.entered += 1
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def forward(self, *inputs):
        if not torch.is_grad_enabled():
            fail(
                "the model runs where gradients are off: then nothing is there for backward. With no_sync every gradient is computed, and only not sent.",
                look="torch.no_grad() or torch.inference_mode(), where model.no_sync() is meant",
            )
        number = len(self.forwards)
        self.forwards.append(self.inside)
        self.backwards.append(None)
        logits, loss = self.module(*inputs)

        def note(gradient):
            self.backwards[number] = self.inside

        if loss.requires_grad:
            loss.register_hook(note)
        return logits, loss


def in_clothes(accumulate):
    """accumulate as lesson 07's checks call it, on a model that is watched."""

    def run(model, batches):
        with in_plain_words(ACCUMULATE_RULES):
            return accumulate(Watched(model), batches)

    return run


@checks(ACCUMULATE, "the gradient of the big batch")
def accumulate_gradient(accumulate):
    runs_of(accumulate, 3, at_most=True)
    lesson07.accumulate_gradient(in_clothes(accumulate))


def runs_of(accumulate, n, at_most=False):
    """The watched model after n micro-batches, each of which has run once."""
    model = Watched(lesson07.Tiny())
    with in_plain_words(ACCUMULATE_RULES):
        accumulate(model, lesson07.micro_batches(n, 3, seed=7))
    if len(model.forwards) > n or len(model.forwards) != n and not at_most:
        if len(model.module.sizes) > len(model.forwards):
            fail("the model inside the wrapper is called: DistributedDataParallel then sees no forward pass, and averages nothing.", look="model.module(...), where model(...) is meant")
        fail(f"the model runs {len(model.forwards)} times for {n} micro-batches.")
    return model


def passes(accumulate, n):
    """Per micro-batch whether its forward and its backward pass ran inside no_sync; the watched model."""
    model = runs_of(accumulate, n)
    if None in model.backwards:
        fail(f"backward never reaches the loss of micro-batch {model.backwards.index(None)}.", look=".detach() and .item() before backward")
    if model.inside:
        fail("no_sync is entered and never left: from now on nothing is averaged any more.", look="with, which leaves it by itself")
    return model.forwards, model.backwards, model


def row(flags):
    return " ".join("inside" if f else "outside" for f in flags)


@checks(ACCUMULATE, "which passes stand inside no_sync")
def accumulate_no_sync(accumulate):
    n = 4
    forwards, backwards, model = passes(accumulate, n)
    right = [True] * (n - 1) + [False]
    if forwards == right and backwards == right:
        return
    example = f"forward passes: {row(forwards)}; backward passes: {row(backwards)}"
    look = "the with line: what stands in its block, and for which micro-batches it is no_sync"
    if not any(forwards) and not any(backwards):
        if model.entered:
            fail(f"no_sync is entered {model.entered} times, and neither a forward nor a backward pass is in it: it has no effect, and all {n} micro-batches are averaged over the ranks.", example, look)
        if model.called:
            fail(f"no_sync() is called and never entered: it only makes a context, and all {n} micro-batches are averaged over the ranks.", example, look="with, in front of model.no_sync()")
        other = next((f"torch.{name}() is something else: it turns gradients off, and sends or keeps nothing. " for name in ("no_grad", "inference_mode") if name in names_in(accumulate)), "")
        fail(f"no_sync is not used: each of the {n} micro-batches is averaged over the ranks, and one average at the end would do. {other}".rstrip(), example, look)
    if not any(forwards):
        fail(f"the forward pass stands outside no_sync. It is there that DistributedDataParallel decides whether the next backward pass sends: all {n} micro-batches are averaged.", example, look)
    if forwards == right and not any(backwards):
        fail("the backward pass stands outside no_sync: its documentation wants both passes inside.", example, look)
    if all(forwards) or forwards == right and all(backwards):
        fail("the last micro-batch is inside too: nothing is ever averaged, and each rank goes its own way from here.", example, look)
    if forwards == [not f for f in right]:
        fail("it is the wrong way round: all but the last send, and the last one does not.", example, look)
    if forwards == [False] + [True] * (n - 1):
        fail("the first micro-batch sends; it is the last one that has to, when all gradients are there.", example, look)
    if forwards[-1]:
        fail("the last micro-batch does not send: what came after the last average stays on its rank.", example, look)
    if forwards != right:
        fail(f"{forwards.count(False)} micro-batches send, and one is enough, the last.", example, look)
    fail("forward and backward pass of a micro-batch belong into the same block.", example, look)


@checks(ACCUMULATE, "a single micro-batch, and other numbers of them")
def accumulate_single(accumulate):
    for n in (1, 2, 7):
        forwards, backwards, _ = passes(accumulate, n)
        if n == 1 and (forwards[0] or backwards[0]):
            fail("a single micro-batch is the last one as well, and does not send.", look="the condition for the last micro-batch")
        right = [True] * (n - 1) + [False]
        if forwards != right or backwards != right:
            fail(f"with {n} micro-batches the wrong ones stand inside no_sync.", example=f"forward passes: {row(forwards)}", look="a number that is written down: take the length of batches")
    lesson07.accumulate_single(in_clothes(accumulate))


@checks(ACCUMULATE, "the loss that is returned")
def accumulate_loss(accumulate):
    lesson07.accumulate_loss(in_clothes(accumulate))


@checks(ACCUMULATE, "one micro-batch at a time")
def accumulate_memory(accumulate):
    lesson07.accumulate_memory(in_clothes(accumulate))


@checks(ACCUMULATE, "gradients that are there already")
def accumulate_adds(accumulate):
    lesson07.accumulate_adds(in_clothes(accumulate))


# --- gpipe_schedule ------------------------------------------------------------------------------------


def table_of(gpipe_schedule, stages, micro_batches):
    """The schedule, its form checked: per stage a list of None, ("F", i) or ("B", i)."""
    got = gpipe_schedule(stages, micro_batches)
    if got is None:
        fail("the schedule is None. Is there a return at the end?")
    if not isinstance(got, (list, tuple)) or not all(isinstance(line, (list, tuple)) for line in got):
        fail(f"the schedule should be a list with a list for each stage, and is a {type(got).__name__}{'' if not isinstance(got, (list, tuple)) else ' of other things'}.")
    slots = 2 * (stages + micro_batches - 1)
    if len(got) == micro_batches != stages:
        fail(f"the schedule has a list for each micro-batch, {micro_batches}; one for each stage is meant, {stages}.", look="which argument is which")
    if len(got) != stages:
        turned = len(got) in (slots, slots // 2) and got and len(got[0]) == stages
        fail(
            "the table is turned: a list for each slot comes, and one for each stage is meant." if turned
            else f"the schedule has {len(got)} lists for {stages} stages and {micro_batches} micro-batches; a list for each stage is meant."
        )
    for stage, line in enumerate(got):
        for slot, entry in enumerate(line):
            if entry is None:
                continue
            form = isinstance(entry, (list, tuple)) and len(entry) == 2
            if form and isinstance(entry[0], int) and isinstance(entry[1], str):
                fail(f'stage {stage} has {entry!r} in slot {slot}: the letter comes first, then the micro-batch.')
            if form and entry[0] in (0, 1, "forward", "backward", "f", "b"):
                fail(f'stage {stage} has {entry!r} in slot {slot}: the letters "F" and "B" are meant.')
            if form and entry[0] in ("F", "B") and not isinstance(entry[1], int):
                fail(f"stage {stage} has a {entry[0]} in slot {slot} whose number is of type {type(entry[1]).__name__}; an int is meant.")
            if not form or entry[0] not in ("F", "B"):
                fail(f'stage {stage} has {entry!r} in slot {slot}; ("F", i), ("B", i) or None is meant.')
            if not 0 <= entry[1] < micro_batches:
                fail(f"stage {stage} works on micro-batch {entry[1]}, and they run from 0 to {micro_batches - 1}.", example=f"{stages} stages, {micro_batches} micro-batches, slot {slot}")
    return [[None if e is None else (e[0], e[1]) for e in line] for line in got]


def drawn(table, limit=12):
    return " | ".join(" ".join("--" if e is None else f"{e[0]}{e[1]}" for e in line[:limit]) + (" ..." if len(line) > limit else "") for line in table)


def follows_gpipe(gpipe_schedule, stages, micro_batches):
    table = table_of(gpipe_schedule, stages, micro_batches)
    example = f"{stages} stages, {micro_batches} micro-batches, a line for each stage: {drawn(table)}"
    half = stages + micro_batches - 1
    if stages > 1 and all(len(line) == 2 * micro_batches and None not in line for line in table):
        fail("no stage ever waits: where there is nothing to do in a slot, None keeps its place, so that entries of one slot stand below each other.", example)
    if stages > 1 and all(line == table[0] for line in table):
        fail("all stages do the same at the same time: a stage cannot begin before the one in front of it has sent something.", example, look="[[None] * slots] * stages is one list, named several times; or an index without the stage")
    when = {}
    for stage, line in enumerate(table):
        for slot, entry in enumerate(line):
            if entry is not None:
                if (stage, entry) in when:
                    fail(f"stage {stage} does {entry[0]}{entry[1]} twice.", example)
                when[stage, entry] = slot
    for stage in range(stages):
        for i in range(micro_batches):
            for kind in "FB":
                if (stage, (kind, i)) not in when:
                    words = "no backward pass is planned" if kind == "B" and not any(k[1][0] == "B" for k in when) else f"stage {stage} never does {kind}{i}"
                    fail(f"{words}: every stage runs every micro-batch forward and backward.", example, look="the number of slots, and entries that overwrite each other; the last slot is -1, and -0 is the first")
    for (stage, (kind, i)), slot in sorted(when.items(), key=lambda item: item[1]):
        if kind == "F" and stage > 0 and when[stage - 1, ("F", i)] >= slot:
            fail(f"stage {stage} runs F{i} in slot {slot}, and stage {stage - 1} in slot {when[stage - 1, ('F', i)]}: its input is not there yet.", example, look="who comes before whom on the way forward")
        if kind == "B" and when[stage, ("F", i)] >= slot:
            fail(f"stage {stage} runs B{i} in slot {slot}, before its F{i}.", example)
        if kind == "B" and stage < stages - 1 and when[stage + 1, ("B", i)] >= slot:
            fail(f"stage {stage} runs B{i} in slot {slot}, and stage {stage + 1} in slot {when[stage + 1, ('B', i)]}: the gradient comes from behind.", example, look="who comes before whom on the way back")
    for stage in range(stages):
        last_f, first_b = max(when[stage, ("F", i)] for i in range(micro_batches)), min(when[stage, ("B", i)] for i in range(micro_batches))
        if first_b < last_f:
            fail(f"stage {stage} runs a backward pass before its last forward pass: that is another schedule (1F1B), which needs less memory. GPipe runs all forward passes first.", example)
    lengths = {len(line) for line in table}
    for stage in range(stages):
        for i in range(micro_batches):
            if when[stage, ("F", i)] != stage + i:
                early = [when[stage, ("F", j)] for j in range(micro_batches)]
                if early != sorted(early):
                    fail("the forward passes take the micro-batches in another order than 0, 1, 2, ...", example)
                fail(f"stage {stage} runs F{i} in slot {when[stage, ('F', i)]}; its input is there in slot {stage + i}.", example, look="slots in which a stage waits for nothing")
    for stage in range(stages):
        for i in range(micro_batches):
            right = 2 * half - 1 - stage - i
            if when[stage, ("B", i)] != right:
                if when[stage, ("B", i)] == half + (stages - 1 - stage) + i:
                    fail("the backward passes take micro-batch 0 first; in GPipe the last one comes first, the backward half is the forward half played backwards.", example)
                fail(f"stage {stage} runs B{i} in slot {when[stage, ('B', i)]}, and slot {right} is meant: the backward half is the forward half played backwards.", example)
    if lengths != {2 * half}:
        fail(f"the lines have {' and '.join(map(str, sorted(lengths)))} entries; {2 * half} are meant, 2 · ({stages} + {micro_batches} − 1), with None where a stage waits.", example)


@checks(GPIPE, "three stages, four micro-batches")
def gpipe_example(gpipe_schedule):
    follows_gpipe(gpipe_schedule, 3, 4)


@checks(GPIPE, "other sizes")
def gpipe_sizes(gpipe_schedule):
    for stages, micro_batches in ((2, 5), (4, 2), (5, 5)):
        follows_gpipe(gpipe_schedule, stages, micro_batches)


@checks(GPIPE, "one stage, one micro-batch")
def gpipe_edges(gpipe_schedule):
    for stages, micro_batches in ((1, 3), (4, 1), (1, 1)):
        follows_gpipe(gpipe_schedule, stages, micro_batches)


@checks(GPIPE, "a new table at each call")
def gpipe_fresh(gpipe_schedule):
    table = gpipe_schedule(2, 2)
    before = [list(line) for line in table]
    if isinstance(table, list) and isinstance(table[0], list):
        table[0][0] = "used"
    again = [list(line) for line in gpipe_schedule(2, 2)]
    if again != before:
        fail("the second call gives what the caller of the first one made of its table: a list outlives the call.", look="a default argument, a global, a cache")
