import contextlib
import os

import numpy as np
import torch
import torch.distributed as dist

from solutions.pytorch import parallel as good
from tests.mistakes import right, wrong

SHARD = "pytorch.parallel.shard"
AVERAGE = "pytorch.parallel.average_gradients"
ACCUMULATE = "pytorch.parallel.accumulate"
GPIPE = "pytorch.parallel.gpipe_schedule"

# --- shard ---------------------------------------------------------------------------------------------


def even(batch, world_size):
    if len(batch) % world_size:
        raise ValueError(f"{len(batch)} rows for {world_size} ranks")
    return len(batch) // world_size


@wrong(SHARD, "dealt like cards")
def strided(batch, rank, world_size):
    even(batch, world_size)
    return batch[rank::world_size]


@wrong(SHARD, "gets the whole batch")
def whole_batch(batch, rank, world_size):
    even(batch, world_size)
    return batch


@wrong(SHARD, "starts at row rank")
def starts_at_rank(batch, rank, world_size):
    size = even(batch, world_size)
    return batch[rank : rank + size]


@wrong(SHARD, "gets the first rows")
def first_rows(batch, rank, world_size):
    return batch[: even(batch, world_size)]


@wrong(SHARD, "has world_size rows")
def world_size_rows(batch, rank, world_size):
    even(batch, world_size)
    return batch[rank * world_size : (rank + 1) * world_size]


@wrong(SHARD, "count backwards")
def backwards(batch, rank, world_size):
    return good.shard(batch, world_size - 1 - rank, world_size)


@wrong(SHARD, "count from 1")
def from_one(batch, rank, world_size):
    size = even(batch, world_size)
    return batch[(rank - 1) * size : rank * size]


@wrong(SHARD, "the end of the slice is missing")
def no_end(batch, rank, world_size):
    return batch[rank * even(batch, world_size) :]


@wrong(SHARD, "a row too few")
def row_short(batch, rank, world_size):
    size = even(batch, world_size)
    return batch[rank * size : (rank + 1) * size - 1]


@wrong(SHARD, "cut along the second axis")
def by_columns(batch, rank, world_size):
    even(batch, world_size)
    return batch.tensor_split(world_size, dim=1)[rank]


@wrong(SHARD, "parts of all ranks")
def all_parts(batch, rank, world_size):
    even(batch, world_size)
    return batch.chunk(world_size)


@wrong(SHARD, "numbers of the rows")
def row_numbers(batch, rank, world_size):
    size = even(batch, world_size)
    return list(range(rank * size, (rank + 1) * size))


@wrong(SHARD, "drawn or shuffled")
def shuffled(batch, rank, world_size):
    size = even(batch, world_size)
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(1))
    return batch[order[rank * size : (rank + 1) * size]]


@wrong(SHARD, "a NumPy array is refused")
def needs_chunk(batch, rank, world_size):
    even(batch, world_size)
    return batch.chunk(world_size)[rank]


@wrong(SHARD, "an array becomes a tensor")
def to_tensor(batch, rank, world_size):
    return torch.as_tensor(good.shard(batch, rank, world_size))


@wrong(SHARD, "cannot be dealt evenly is dealt all the same")
def drops_rest(batch, rank, world_size):
    size = len(batch) // world_size
    return batch[rank * size : (rank + 1) * size]


@wrong(SHARD, "cannot be dealt evenly is dealt all the same")
def last_gets_rest(batch, rank, world_size):
    size = len(batch) // world_size
    return batch[rank * size : (rank + 1) * size if rank < world_size - 1 else None]


@wrong(SHARD, "an assert stops it")
def asserts(batch, rank, world_size):
    assert len(batch) % world_size == 0
    return good.shard(batch, rank, world_size)


@wrong(SHARD, "gets no rows")
def arguments_exchanged(batch, rank, world_size):
    return good.shard(batch, world_size, rank)


@wrong(SHARD, "gets no rows")
def counts_numbers(batch, rank, world_size):
    size = (batch.numel() if isinstance(batch, torch.Tensor) else batch.size) // world_size
    return batch[rank * size : (rank + 1) * size]


@wrong(SHARD, "rows of a part is a float")
def true_division(batch, rank, world_size):
    size = len(batch) / world_size
    return batch[rank * size : (rank + 1) * size]


@wrong(SHARD, "the process group is asked")
def asks_the_group(batch, rank, world_size):
    return good.shard(batch, dist.get_rank(), dist.get_world_size())


@wrong(SHARD, "can be dealt evenly is refused")
def remainder_turned_round(batch, rank, world_size):
    if world_size % len(batch):
        raise ValueError(f"{len(batch)} rows for {world_size} ranks")
    return good.shard(batch, rank, world_size)


@wrong(SHARD, "raises TypeError; a ValueError")
def another_error(batch, rank, world_size):
    if len(batch) % world_size:
        raise TypeError(f"{len(batch)} rows for {world_size} ranks")
    return good.shard(batch, rank, world_size)


@right(SHARD)
def with_helper(batch, rank, world_size):
    size = even(batch, world_size)
    return batch[rank * size :][:size]


@right(SHARD)
def by_divmod(batch, rank, world_size):
    size, rest = divmod(len(batch), world_size)
    if rest:
        raise ValueError(f"{rest} rows of {len(batch)} would be left over for {world_size} ranks")
    begin = size * rank
    return batch[begin : begin + size]


@right(SHARD)
def by_shape(batch, rank, world_size):
    rows = batch.shape[0]
    if rows % world_size != 0:
        raise ValueError("batch size must be a multiple of the number of ranks")
    return batch[rows * rank // world_size : rows * (rank + 1) // world_size]


@right(SHARD)
def by_reshape(batch, rank, world_size):
    size = even(batch, world_size)
    return batch.reshape(world_size, size, *batch.shape[1:])[rank]


@right(SHARD)
def by_index(batch, rank, world_size):
    size = even(batch, world_size)
    return batch[np.arange(size) + rank * size] if isinstance(batch, np.ndarray) else batch[torch.arange(size) + rank * size]


# --- average_gradients ---------------------------------------------------------------------------------


def flat_of(params):
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in params])


def put_back(params, flat):
    start = 0
    for p in params:
        p.grad = flat[start : start + p.numel()].reshape(p.shape)
        start += p.numel()


@wrong(AVERAGE, "summed and not divided")
def only_sums(params):
    params = list(params)
    flat = flat_of(params)
    dist.all_reduce(flat)
    put_back(params, flat)


@wrong(AVERAGE, "twice")
def divides_twice(params):
    params = list(params)
    flat = flat_of(params) / dist.get_world_size()
    dist.all_reduce(flat)
    put_back(params, flat / dist.get_world_size())


@wrong(AVERAGE, "keeps its own gradient: what was averaged is not put back")
def not_put_back(params):
    params = list(params)
    flat = flat_of(params)
    dist.all_reduce(flat)
    flat /= dist.get_world_size()


@wrong(AVERAGE, "nothing was added up")
def only_divides(params):
    for p in params:
        p.grad /= dist.get_world_size()


@wrong(AVERAGE, "that is a broadcast")
def broadcasts(params):
    params = list(params)
    flat = flat_of(params)
    dist.broadcast(flat, 0)
    put_back(params, flat)


@wrong(AVERAGE, "largest of the ranks")
def takes_largest(params):
    params = list(params)
    flat = flat_of(params)
    dist.all_reduce(flat, op=dist.ReduceOp.MAX)
    put_back(params, flat)


@wrong(AVERAGE, "the start has to move on")
def same_start(params):
    params = list(params)
    flat = flat_of(params)
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p in params:
        p.grad = flat[: p.numel()].reshape(p.shape)


@wrong(AVERAGE, "number of parameters")
def divides_by_parameters(params):
    params = list(params)
    flat = flat_of(params)
    dist.all_reduce(flat)
    put_back(params, flat / len(params))


@wrong(AVERAGE, "the parameters themselves are changed")
def averages_weights(params):
    for p in params:
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size() + 1


@wrong(AVERAGE, "is called and not waited for")
def never_waits(params):
    params = list(params)
    flat = flat_of(params)
    dist.all_reduce(flat, async_op=True)
    put_back(params, flat / dist.get_world_size())


@wrong(AVERAGE, "gives the sum to one rank")
def to_rank_zero(params):
    params = list(params)
    flat = flat_of(params)
    dist.reduce(flat, 0)
    put_back(params, flat / dist.get_world_size())


@wrong(AVERAGE, "own gradient is left out")
def of_the_others(params):
    params = list(params)
    own = flat_of(params)
    flat = own.clone()
    dist.all_reduce(flat)
    put_back(params, (flat - own) / (dist.get_world_size() - 1))


@wrong(AVERAGE, "in another order")
def put_back_reversed(params):
    params = list(params)
    flat = flat_of(params)
    dist.all_reduce(flat)
    put_back(params[::-1], flat / dist.get_world_size())


@wrong(AVERAGE, "the process group is closed")
def closes_the_group(params):
    good.average_gradients(params)
    dist.destroy_process_group()


@wrong(AVERAGE, "not always two ranks")
def halves(params):
    params = list(params)
    flat = flat_of(params)
    dist.all_reduce(flat)
    put_back(params, flat / 2)


@wrong(AVERAGE, "out of step")
def stops_at_none(params):
    params = list(params)
    flat = torch.cat([p.grad.reshape(-1) for p in params])
    dist.all_reduce(flat)
    put_back(params, flat / dist.get_world_size())


@wrong(AVERAGE, "messages of different sizes")
def skips_none(params):
    params = [p for p in params if p.grad is not None]
    flat = flat_of(params)
    dist.all_reduce(flat)
    put_back(params, flat / dist.get_world_size())


@wrong(AVERAGE, "the run hangs here")
def only_rank_zero(params):
    if dist.get_rank() == 0:
        good.average_gradients(params)


@wrong(AVERAGE, "5 messages are sent")
def one_each(params):
    for p in params:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


@wrong(AVERAGE, "as many times the data")
def gathers(params):
    params = list(params)
    flat = flat_of(params)
    everyone = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, flat)
    put_back(params, torch.stack(everyone).mean(dim=0))


@wrong(AVERAGE, "nothing is left after the first loop")
def uses_generator_twice(params):
    flat = flat_of(params)
    dist.all_reduce(flat)
    put_back(params, flat / dist.get_world_size())


@wrong(AVERAGE, "in float64")
def in_float32(params):
    params = list(params)
    flat = flat_of(params).float()
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    start = 0
    for p in params:
        p.grad = None
        p.grad_dtype = None
        p.grad = flat[start : start + p.numel()].reshape(p.shape)
        start += p.numel()


@wrong(AVERAGE, "view refuses")
def by_view(params):
    params = list(params)
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).view(-1) for p in params])
    dist.all_reduce(flat)
    put_back(params, flat / dist.get_world_size())


@wrong(AVERAGE, "overwrites its argument and returns None")
def takes_what_comes_back(params):
    params = list(params)
    flat = dist.all_reduce(flat_of(params))
    put_back(params, flat / dist.get_world_size())


@wrong(AVERAGE, "divided by rank + 1")
def divides_by_rank(params):
    params = list(params)
    flat = flat_of(params)
    dist.all_reduce(flat)
    put_back(params, flat / (dist.get_rank() + 1))


@wrong(AVERAGE, "needs a gradient itself")
def zeros_from_the_parameter(params):
    params = list(params)
    flat = torch.cat([(0 * p if p.grad is None else p.grad).reshape(-1) for p in params])
    dist.all_reduce(flat)
    put_back(params, flat / dist.get_world_size())


@wrong(AVERAGE, "needs a gradient itself")
def gradient_as_parameter(params):
    params = list(params)
    good.average_gradients(params)
    for p in params:
        p.grad = torch.nn.Parameter(p.grad)


@wrong(AVERAGE, "opened here")
def opens_a_group(params):
    dist.init_process_group("gloo")
    good.average_gradients(params)


@wrong(AVERAGE, "under a launcher only")
def asks_the_environment(params):
    params = list(params)
    flat = flat_of(params)
    dist.all_reduce(flat)
    put_back(params, flat / int(os.environ["WORLD_SIZE"]))


@wrong(AVERAGE, "has to become a vector first")
def joins_matrices(params):
    params = list(params)
    flat = torch.cat([p.grad for p in params])
    dist.all_reduce(flat)
    put_back(params, flat / dist.get_world_size())


@wrong(AVERAGE, "2 messages are sent")
def reduce_and_broadcast(params):
    params = list(params)
    flat = flat_of(params)
    dist.reduce(flat, 0)
    flat /= dist.get_world_size()
    dist.broadcast(flat, 0)
    put_back(params, flat)


@wrong(AVERAGE, "parameters are averaged, not their gradients")
def gradients_of_weights(params):
    params = list(params)
    flat = torch.cat([p.detach().reshape(-1) for p in params])
    dist.all_reduce(flat)
    put_back(params, flat / dist.get_world_size())


@wrong(AVERAGE, "as in half precision")
def sends_bfloat16(params):
    params = list(params)
    flat = flat_of(params).bfloat16()
    dist.all_reduce(flat)
    put_back(params, flat.float() / dist.get_world_size())


@wrong(AVERAGE, "another dtype than its parameter")
def buffer_of_float32(params):
    params = list(params)
    flat = torch.zeros(sum(p.numel() for p in params))
    for piece, p in zip(flat.split([p.numel() for p in params]), params):
        if p.grad is not None:
            piece.copy_(p.grad.reshape(-1))
    dist.all_reduce(flat)
    put_back(params, flat / dist.get_world_size())


@right(AVERAGE)
def in_place(params):
    params = list(params)
    for p in params:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    flat = torch.cat([p.grad.flatten() for p in params])
    flat.div_(dist.get_world_size())                          # before the sum: the same
    dist.all_reduce(flat)
    start = 0
    for p in params:
        p.grad.copy_(flat[start : start + p.numel()].view_as(p))
        start += p.numel()


@right(AVERAGE)
def with_average(params):
    params = list(params)
    flat = flat_of(params)
    dist.all_reduce(flat, op=dist.ReduceOp.AVG)
    put_back(params, flat)


@right(AVERAGE)
def asynchronous(params):
    params = list(params)
    flat = flat_of(params)
    work = dist.all_reduce(flat, async_op=True)
    work.wait()
    put_back(params, flat / dist.get_world_size())


@right(AVERAGE)
def into_a_buffer(params):
    params = [*params]
    sizes = [p.numel() for p in params]
    buffer = torch.zeros(sum(sizes), dtype=params[0].dtype)
    for piece, p in zip(buffer.split(sizes), params):
        if p.grad is not None:
            piece.copy_(p.grad.reshape(-1))
    dist.barrier()
    dist.all_reduce(buffer)
    buffer *= 1 / dist.get_world_size()
    for piece, p in zip(buffer.split(sizes), params):
        p.grad = piece.clone().view(p.shape)


# --- accumulate ----------------------------------------------------------------------------------------


def one(model, pair, batches):
    loss = model(*pair)[1] / len(batches)
    loss.backward()
    return loss.item()


@wrong(ACCUMULATE, "no_sync is not used")
def no_no_sync(model, batches):
    return sum(one(model, pair, batches) for pair in batches)


@wrong(ACCUMULATE, "it has no effect")
def pass_after_backward(model, batches):
    total = 0.0
    for pair in batches:
        total += one(model, pair, batches)
        with model.no_sync():
            pass
    return total


@wrong(ACCUMULATE, "the forward pass stands outside")
def around_backward(model, batches):
    total = 0.0
    for i, (x, y) in enumerate(batches):
        loss = model(x, y)[1] / len(batches)
        with contextlib.nullcontext() if i == len(batches) - 1 else model.no_sync():
            loss.backward()
        total += loss.item()
    return total


@wrong(ACCUMULATE, "the backward pass stands outside")
def around_forward(model, batches):
    total = 0.0
    for i, (x, y) in enumerate(batches):
        with contextlib.nullcontext() if i == len(batches) - 1 else model.no_sync():
            loss = model(x, y)[1] / len(batches)
        loss.backward()
        total += loss.item()
    return total


@wrong(ACCUMULATE, "nothing is ever averaged")
def around_all(model, batches):
    with model.no_sync():
        return sum(one(model, pair, batches) for pair in batches)


@wrong(ACCUMULATE, "the wrong way round")
def turned_round(model, batches):
    total = 0.0
    for i, pair in enumerate(batches):
        with model.no_sync() if i == len(batches) - 1 else contextlib.nullcontext():
            total += one(model, pair, batches)
    return total


@wrong(ACCUMULATE, "the first micro-batch sends")
def first_sends(model, batches):
    total = 0.0
    for i, pair in enumerate(batches):
        with contextlib.nullcontext() if i == 0 else model.no_sync():
            total += one(model, pair, batches)
    return total


@wrong(ACCUMULATE, "2 micro-batches send")
def off_by_one(model, batches):
    total = 0.0
    for i, pair in enumerate(batches):
        with model.no_sync() if i < len(batches) - 2 else contextlib.nullcontext():
            total += one(model, pair, batches)
    return total


@wrong(ACCUMULATE, "the model inside the wrapper is called")
def inner_model(model, batches):
    return sum(one(model.module, pair, batches) for pair in batches)


LEFT_OPEN = []


@wrong(ACCUMULATE, "entered and never left")
def never_left(model, batches):
    total = 0.0
    for i, pair in enumerate(batches):
        if i == 0:
            LEFT_OPEN.append(model.no_sync())
            LEFT_OPEN[-1].__enter__()
        total += one(model, pair, batches)
    return total


@wrong(ACCUMULATE, "a single micro-batch is the last one as well")
def single_inside(model, batches):
    total = 0.0
    with model.no_sync():
        for pair in batches[:-1] or batches:
            total += one(model, pair, batches)
    for pair in batches[-1:] if len(batches) > 1 else []:
        total += one(model, pair, batches)
    return total


@wrong(ACCUMULATE, "wrong ones stand inside")
def three_written_down(model, batches):
    total = 0.0
    for i, pair in enumerate(batches):
        with model.no_sync() if i < 3 and len(batches) > 1 else contextlib.nullcontext():
            total += one(model, pair, batches)
    return total


@wrong(ACCUMULATE, "summed, not averaged")
def not_divided(model, batches):
    total = 0.0
    for i, (x, y) in enumerate(batches):
        with model.no_sync() if i < len(batches) - 1 else contextlib.nullcontext():
            loss = model(x, y)[1]
            loss.backward()
        total += loss.item() / len(batches)
    return total


@wrong(ACCUMULATE, "last micro-batch is dropped")
def drops_last(model, batches):
    total = 0.0
    for pair in batches[:-1]:
        with model.no_sync():
            total += one(model, pair, batches)
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    return total


@wrong(ACCUMULATE, "loss of the last micro-batch is returned")
def last_loss(model, batches):
    good.accumulate(model, batches[:-1] + batches[-1:])
    with torch.no_grad():
        return model.module(*batches[-1])[1].item()


@wrong(ACCUMULATE, "only after all forward passes")
def backward_at_the_end(model, batches):
    losses = []
    for i, (x, y) in enumerate(batches):
        with model.no_sync() if i < len(batches) - 1 else contextlib.nullcontext():
            losses.append(model(x, y)[1] / len(batches))
    for i, loss in enumerate(losses):
        with model.no_sync() if i < len(batches) - 1 else contextlib.nullcontext():
            loss.backward()
    return sum(loss.item() for loss in losses)


@wrong(ACCUMULATE, "zero_grad is the caller's")
def clears_first(model, batches):
    model.zero_grad()
    return good.accumulate(model, batches)


@wrong(ACCUMULATE, "where model.no_sync() is meant")
def no_grad_for_no_sync(model, batches):
    total = 0.0
    for i, pair in enumerate(batches):
        with torch.no_grad() if i < len(batches) - 1 else contextlib.nullcontext():
            total += one(model, pair, batches)
    return total


@wrong(ACCUMULATE, "where model.no_sync() is meant")
def backward_of_the_last_only(model, batches):
    total = 0.0
    for x, y in batches[:-1]:
        with torch.no_grad():
            total += model(x, y)[1].item() / len(batches)
    return total + one(model, batches[-1], batches)


@wrong(ACCUMULATE, "torch.no_grad() is something else")
def no_grad_around_backward(model, batches):
    total = 0.0
    for i, (x, y) in enumerate(batches):
        loss = model(x, y)[1] / len(batches)
        with torch.no_grad() if i < len(batches) - 1 else contextlib.nullcontext():
            loss.backward()
        total += loss.item()
    return total


@wrong(ACCUMULATE, "called and never entered")
def not_entered(model, batches):
    total = 0.0
    for i, pair in enumerate(batches):
        if i < len(batches) - 1:
            model.no_sync()
        total += one(model, pair, batches)
    return total


@wrong(ACCUMULATE, "nothing that can be entered")
def without_brackets(model, batches):
    total = 0.0
    for i, pair in enumerate(batches):
        with model.no_sync if i < len(batches) - 1 else contextlib.nullcontext():
            total += one(model, pair, batches)
    return total


@wrong(ACCUMULATE, "nothing that can be entered")
def with_none(model, batches):
    total = 0.0
    for i, pair in enumerate(batches):
        with model.no_sync() if i < len(batches) - 1 else None:
            total += one(model, pair, batches)
    return total


@wrong(ACCUMULATE, "one context is entered twice")
def context_kept(model, batches):
    total, context = 0.0, model.no_sync()
    for i, pair in enumerate(batches):
        with context if i < len(batches) - 1 else contextlib.nullcontext():
            total += one(model, pair, batches)
    return total


@wrong(ACCUMULATE, "a method of the wrapper")
def no_sync_of_the_module(model, batches):
    with model.module.no_sync():
        return sum(one(model, pair, batches) for pair in batches)


@wrong(ACCUMULATE, "sends by itself")
def averages_by_hand(model, batches):
    with model.no_sync():
        total = sum(one(model, pair, batches) for pair in batches)
    good.average_gradients(model.parameters())
    return total


@wrong(ACCUMULATE, "the model runs 4 times for 3 micro-batches")
def last_twice(model, batches):
    with model.no_sync():
        total = sum(one(model, pair, batches) for pair in batches)
    return total + one(model, batches[-1], batches)


@right(ACCUMULATE)
def by_the_flag(model, batches):
    """nanoGPT's way: the flag that no_sync turns off and on."""
    total = 0.0
    for i, pair in enumerate(batches):
        model.require_backward_grad_sync = i == len(batches) - 1
        total += one(model, pair, batches)
    return total


@right(ACCUMULATE)
def two_branches(model, batches):
    total = 0.0
    *others, (x_last, y_last) = batches
    for x, y in others:
        with model.no_sync():
            loss = model(x, y)[1] / len(batches)
            loss.backward()
        total += loss.item()
    loss = model(x_last, y_last)[1] / len(batches)
    loss.backward()
    return total + loss.item()


@right(ACCUMULATE)
def one_block_for_all_but_last(model, batches):
    total = 0.0
    with model.no_sync():
        for pair in batches[:-1]:
            total += one(model, pair, batches)
    return total + one(model, batches[-1], batches)


@right(ACCUMULATE)
def by_exit_stack(model, batches):
    total = 0.0
    for i, pair in enumerate(batches, start=1):
        with contextlib.ExitStack() as stack:
            if i < len(batches):
                stack.enter_context(model.no_sync())
            total += one(model, pair, batches)
    return total


@right(ACCUMULATE)
def by_gradient_argument(model, batches):
    total, n = torch.zeros(()), len(batches)
    for i in range(n):
        with [model.no_sync, contextlib.nullcontext][i + 1 == n]():
            _, loss = model(*batches[i])
            loss.backward(torch.tensor(1 / n))
        total += loss.detach() / n
    return total.item()


# --- gpipe_schedule ------------------------------------------------------------------------------------


def empty(stages, micro_batches):
    return [[None] * (2 * (stages + micro_batches - 1)) for _ in range(stages)]


@wrong(GPIPE, "all stages do the same at the same time")
def one_list_many_times(stages, micro_batches):
    slots = 2 * (stages + micro_batches - 1)
    table = [[None] * slots] * stages
    for stage in range(stages):
        for i in range(micro_batches):
            table[stage][stage + i] = ("F", i)
            table[stage][slots - 1 - stage - i] = ("B", i)
    return table


@wrong(GPIPE, "all stages do the same at the same time")
def no_stage_in_the_slot(stages, micro_batches):
    table = empty(stages, micro_batches)
    for line in table:
        for i in range(micro_batches):
            line[i], line[-1 - i] = ("F", i), ("B", i)
    return table


@wrong(GPIPE, "the table is turned")
def turned(stages, micro_batches):
    return [list(column) for column in zip(*good.gpipe_schedule(stages, micro_batches))]


@wrong(GPIPE, "no backward pass is planned")
def forward_only(stages, micro_batches):
    return [[e if e and e[0] == "F" else None for e in line] for line in good.gpipe_schedule(stages, micro_batches)]


@wrong(GPIPE, "take micro-batch 0 first")
def backward_in_order(stages, micro_batches):
    table = empty(stages, micro_batches)
    half = stages + micro_batches - 1
    for stage in range(stages):
        for i in range(micro_batches):
            table[stage][stage + i] = ("F", i)
            table[stage][half + stages - 1 - stage + i] = ("B", i)
    return table


@wrong(GPIPE, "the gradient comes from behind")
def backward_from_the_front(stages, micro_batches):
    table = empty(stages, micro_batches)
    half = stages + micro_batches - 1
    for stage in range(stages):
        for i in range(micro_batches):
            table[stage][stage + i] = ("F", i)
            table[stage][half + stage + i] = ("B", i)
    return table


@wrong(GPIPE, "its input is not there yet")
def last_stage_first(stages, micro_batches):
    return good.gpipe_schedule(stages, micro_batches)[::-1]


@wrong(GPIPE, "another schedule (1F1B)")
def one_forward_one_backward(stages, micro_batches):
    table = []
    when = {}
    plans = []
    for stage in range(stages):
        ahead = min(stages - stage, micro_batches)
        plan = [("F", i) for i in range(ahead)]
        for i in range(micro_batches):
            plan.append(("B", i))
            if ahead + i < micro_batches:
                plan.append(("F", ahead + i))
        plans.append(plan)
    table, slot = [[] for _ in range(stages)], 0
    while any(plans):
        done = []
        for stage, plan in enumerate(plans):
            ready = bool(plan)
            if ready:
                kind, i = plan[0]
                before = (stage - 1, "F", i) if kind == "F" else (stage + 1, "B", i)
                ready = not 0 <= before[0] < stages or before in when
            table[stage].append(plan[0] if ready else None)
            if ready:
                done.append((stage, *plan.pop(0)))
        for key in done:
            when[key] = slot
        slot += 1
    return table


@wrong(GPIPE, "slots in which a stage waits for nothing")
def one_after_the_other(stages, micro_batches):
    table = [[] for _ in range(stages)]
    for i in range(micro_batches):
        for busy in range(stages):
            for stage in range(stages):
                table[stage].append(("F", i) if stage == busy else None)
    for i in reversed(range(micro_batches)):
        for busy in reversed(range(stages)):
            for stage in range(stages):
                table[stage].append(("B", i) if stage == busy else None)
    return table


@wrong(GPIPE, "another order than 0, 1, 2")
def forward_reversed(stages, micro_batches):
    return [[e and (e[0], micro_batches - 1 - e[1]) for e in line] for line in good.gpipe_schedule(stages, micro_batches)]


@wrong(GPIPE, "entries")
def without_the_end(stages, micro_batches):
    table = good.gpipe_schedule(stages, micro_batches)
    return [line[: max(i for i, e in enumerate(line) if e) + 1] for line in table]


@wrong(GPIPE, '("F", i), ("B", i) or None is meant')
def as_text(stages, micro_batches):
    return [[e and f"{e[0]}{e[1]}" for e in line] for line in good.gpipe_schedule(stages, micro_batches)]


@wrong(GPIPE, "the letter comes first")
def number_first(stages, micro_batches):
    return [[e and (e[1], e[0]) for e in line] for line in good.gpipe_schedule(stages, micro_batches)]


@wrong(GPIPE, "they run from 0 to")
def counts_from_one(stages, micro_batches):
    return [[e and (e[0], e[1] + 1) for e in line] for line in good.gpipe_schedule(stages, micro_batches)]


@wrong(GPIPE, "stage 0 never does")
def slots_of_micro_batches(stages, micro_batches):
    table = empty(stages, micro_batches)
    slots = len(table[0])
    for stage in range(stages):
        for i in range(min(micro_batches, 4)):
            table[stage][stage + i] = ("F", i)
            table[stage][slots - 1 - stage - i] = ("B", i)
    return table


@wrong(GPIPE, "one stage")
def two_stages_at_least(stages, micro_batches):
    table = good.gpipe_schedule(stages, micro_batches)
    return [[None] + line[:-1] for line in table] if stages == 1 else table


KEPT = {}


@wrong(GPIPE, "outlives the call")
def cached(stages, micro_batches):
    return KEPT.setdefault((stages, micro_batches), good.gpipe_schedule(stages, micro_batches))


@wrong(GPIPE, "no stage ever waits")
def waiting_left_out(stages, micro_batches):
    return [[e for e in line if e] for line in good.gpipe_schedule(stages, micro_batches)]


@wrong(GPIPE, "a list for each micro-batch")
def arguments_turned(stages, micro_batches):
    return good.gpipe_schedule(micro_batches, stages)


@wrong(GPIPE, "whose number is of type int64")
def numbers_of_numpy(stages, micro_batches):
    return [[e and (e[0], np.int64(e[1])) for e in line] for line in good.gpipe_schedule(stages, micro_batches)]


@right(GPIPE)
def by_formula(stages, micro_batches):
    half = stages + micro_batches - 1

    def entry(stage, slot):
        kind, i = ("F", slot - stage) if slot < half else ("B", 2 * half - 1 - slot - stage)
        return (kind, i) if 0 <= i < micro_batches else None

    return [[entry(stage, slot) for slot in range(2 * half)] for stage in range(stages)]


@right(GPIPE)
def played_backwards(stages, micro_batches):
    table = []
    for stage in range(stages):
        forward = [None] * stage + [("F", i) for i in range(micro_batches)] + [None] * (stages - 1 - stage)
        table.append(forward + [e and ("B", e[1]) for e in reversed(forward)])
    return table


@right(GPIPE)
def with_lists_for_pairs(stages, micro_batches):
    return [[e and [*e] for e in line] for line in good.gpipe_schedule(stages, micro_batches)]


@right(GPIPE)
def simulated(stages, micro_batches):
    table, sent = [[] for _ in range(stages)], [micro_batches] + [0] * stages
    done = [0] * stages
    while done[-1] < micro_batches:
        ready = [done[s] < sent[s] for s in range(stages)]
        for s in range(stages):
            table[s].append(("F", done[s]) if ready[s] else None)
            if ready[s]:
                done[s] += 1
                sent[s + 1] += 1
    return tuple(tuple(line + [e and ("B", e[1]) for e in line[::-1]]) for line in table)
