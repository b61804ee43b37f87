"""Training on several processes: which rows a rank gets, what it sends, and when it waits."""
import contextlib

import torch
import torch.distributed as dist


def shard(batch, rank, world_size):
    """The rows of a batch that belong to a rank: consecutive ones, equally many for each rank.

    batch: (B, ...) tensor or array. Returns (B / world_size, ...), rows rank * B / world_size and following.

    Raises:
        ValueError: B is no multiple of world_size; the mean of the ranks' means would not be the mean of the batch.
    """
    rows = len(batch) // world_size
    if rows * world_size != len(batch):
        raise ValueError(f"{len(batch)} rows cannot be dealt evenly to {world_size} ranks: take a multiple of {world_size} as batch size")
    return batch[rank * rows : (rank + 1) * rows]


def average_gradients(params):
    """Replace the gradient of each parameter by its mean over all ranks, in one message.

    params: iterable of parameters; one without a gradient takes part with zeros. Every rank calls it at the same point.
    """
    params = list(params)
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
    flat = torch.cat([g.reshape(-1) for g in grads])          # (numbers in all)
    dist.all_reduce(flat)                                     # the sum over all ranks, on every rank
    flat = flat / dist.get_world_size()
    pieces = flat.split([p.numel() for p in params])
    for p, piece in zip(params, pieces):
        p.grad = piece.reshape(p.shape)


def accumulate(model, batches):
    """Lesson 07's accumulate for a model in DistributedDataParallel: gradients are averaged once, in the last micro-batch.

    batches: list of equally large micro-batches (x, y) of this rank. Returns their mean loss, a float.
    """
    total = 0.0
    for i, (x, y) in enumerate(batches):
        last = i == len(batches) - 1
        with contextlib.nullcontext() if last else model.no_sync():
            _, loss = model(x, y)
            loss = loss / len(batches)                        # the mean over all of them
            loss.backward()
        total += loss.item()
    return total


def gpipe_schedule(stages, micro_batches):
    """What each stage of a pipeline does in each slot of time (GPipe, Huang et al. 2019, figure 2c).

    Returns a list for each stage, 2 * (stages + micro_batches - 1) entries long: ("F", i) for the forward pass of
    micro-batch i, ("B", i) for its backward pass, None where the stage waits. Forward passes run as early as they can;
    the backward half is the forward half played backwards.
    """
    slots = 2 * (stages + micro_batches - 1)
    table = [[None] * slots for _ in range(stages)]
    for stage in range(stages):
        for i in range(micro_batches):
            table[stage][stage + i] = ("F", i)
            table[stage][slots - 1 - stage - i] = ("B", i)
    return table
