"""Train a small GPT on several processes, each on its rows of the batch.

    torchrun --nproc-per-node 2 -m course.parallel.data_parallel_pytorch --steps 20 --out run

Alone, python -m course.parallel.data_parallel_pytorch, it is the same run on one process.
"""
import contextlib
import os
from datetime import timedelta

from course import piece
from course.parallel import job, worker


def main():
    rank, world_size = worker.rank_and_size()
    options = job.read(__doc__.split("\n")[0], world_size)
    worker.run(lambda: work(options, rank, world_size))


def work(options, rank, world_size):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    backend, device = worker.pytorch_backend()
    with group(backend, rank, world_size):
        report = {"rank": rank, "backend": backend}
        if options.compare:
            report |= compare(options, rank, world_size, device)
        report |= train(options, rank, world_size, device)
        dist.barrier()                                        # nobody leaves while another one still sends
        return report


@contextlib.contextmanager
def group(backend, rank, world_size):
    """The process group inside, and none afterwards. A peer that does not answer for a minute is an error."""
    import torch.distributed as dist

    alone = {} if "MASTER_ADDR" in os.environ else {"store": dist.HashStore(), "rank": rank, "world_size": world_size}
    dist.init_process_group(backend, timeout=timedelta(seconds=60), **alone)
    try:
        yield
    finally:
        dist.destroy_process_group()


def model_of(options, device):
    import torch

    model = piece("pytorch.gpt.GPT")(job.config(options)).to(device)
    start = job.weights({name: tuple(p.shape) for name, p in model.named_parameters()}, options.seed)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in start.items()})
    return model


def in_ddp(model):
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model)


def rows(batch, rank, world_size, device, parts=1):
    """This rank's micro-batches, a list of (x, y)."""
    import torch

    shard = piece("pytorch.parallel.shard")
    x, y = (torch.from_numpy(shard(a, rank, world_size)).long().to(device) for a in batch)
    return list(zip(x.chunk(parts), y.chunk(parts)))


def train(options, rank, world_size, device):
    import torch
    import torch.distributed as dist

    average_gradients, clip_grad_norm = piece("pytorch.parallel.average_gradients"), piece("pytorch.training.clip_grad_norm")
    model = model_of(options, device)
    optimizer = piece("pytorch.training.AdamW")(model.parameters(), lr=job.LR, betas=job.BETAS, eps=job.EPS, weight_decay=job.WEIGHT_DECAY)
    path, first = job.checkpoint(options, "pt"), 0
    if options.resume:
        first = job.resumed(piece("pytorch.training.load_checkpoint"), path, model, optimizer)
    wrapped = in_ddp(model) if options.ddp else model
    accumulate = piece("pytorch.parallel.accumulate" if options.ddp else "pytorch.training.accumulate")
    batches, losses = job.Batches(options), []
    for it in range(first, options.steps):
        micro_batches = rows(batches(it), rank, world_size, device, options.micro_batches)
        optimizer.zero_grad()
        loss = accumulate(wrapped, micro_batches)
        job.die_if_told(options, rank, it)
        if not options.ddp:
            average_gradients(model.parameters())
        clip_grad_norm(list(model.parameters()), job.CLIP)
        optimizer.step()
        mean = torch.tensor(loss, device=device)
        dist.all_reduce(mean)                                 # the loss of the whole batch, for the report only
        losses.append(mean.item() / world_size)
        if path and rank == 0 and ((it + 1) % options.every == 0 or it + 1 == options.steps):
            piece("pytorch.training.save_checkpoint")(path, model, optimizer, it + 1)
    return {"first": first, "losses": losses, "sum of weights": sum(p.double().sum().item() for p in model.parameters())}


# --- what --compare does -------------------------------------------------------------------------------


def compare(options, rank, world_size, device):
    """The gradients of one batch: own averaging and DDP against one process; messages and error of several uses of no_sync."""
    batch = job.Batches(options)(0)
    one = model_of(options, device)
    piece("pytorch.training.accumulate")(one, rows(batch, 0, 1, device))
    want = vector(one)

    own = model_of(options, device)
    piece("pytorch.training.accumulate")(own, rows(batch, rank, world_size, device))
    alone = gap(own, want)                                    # before anything was sent
    piece("pytorch.parallel.average_gradients")(own.parameters())

    ddp = model_of(options, device)
    wrapped = in_ddp(ddp)                                     # must live until after backward: its hooks go with it
    wrapped(*rows(batch, rank, world_size, device)[0])[1].backward()
    found = {"alone": alone, "own": gap(own, want), "ddp": gap(ddp, want), "largest": want.abs().max().item(), "uses": {}}
    for name, use in {**USES, "your accumulate": piece("pytorch.parallel.accumulate")}.items():
        model = model_of(options, device)
        wrapped, messages = counted(model)
        use(wrapped, rows(batch, rank, world_size, device, 4))
        found["uses"][name] = {"all-reduces": len(messages), "gap": gap(model, want)}
    return found


def vector(model):
    import torch

    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


def gap(model, want):
    return (vector(model) - want).abs().max().item()


def counted(model):
    """The model in DDP, and a list that grows with each round of all-reduces."""
    import torch.distributed as dist

    wrapped, messages = in_ddp(model), []

    def hook(state, bucket):
        if bucket.is_last():
            messages.append(1)
        mean = bucket.buffer() / dist.get_world_size()
        return dist.all_reduce(mean, async_op=True).get_future().then(lambda f: f.value()[0])

    wrapped.register_comm_hook(None, hook)
    return wrapped, messages


def without(model, batches):
    """No no_sync at all."""
    for x, y in batches:
        (model(x, y)[1] / len(batches)).backward()


def after_backward(model, batches):
    """The use that circulates: a block with nothing in it, behind the backward pass."""
    for x, y in batches:
        (model(x, y)[1] / len(batches)).backward()
        with model.no_sync():
            pass


def backward_only(model, batches):
    """The forward pass stands outside."""
    for i, (x, y) in enumerate(batches):
        loss = model(x, y)[1] / len(batches)
        with model.no_sync() if i < len(batches) - 1 else contextlib.nullcontext():
            loss.backward()


def around_all(model, batches):
    """The last micro-batch is inside too."""
    with model.no_sync():
        without(model, batches)


USES = {"no no_sync": without, "no_sync: pass, after backward": after_backward, "around backward only": backward_only, "around all micro-batches": around_all}


if __name__ == "__main__":
    main()
