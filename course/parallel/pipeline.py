"""A GPT cut into stages, one process each: activations go forward, gradients come back, micro-batches keep the stages busy.

    torchrun --nproc-per-node 2 -m course.parallel.pipeline
"""
import os
import sys
import time

from course import piece
from course.parallel import job, worker
from course.parallel.data_parallel_pytorch import group, model_of, rows


def main():
    rank, world_size = worker.rank_and_size()
    options = job.read(__doc__.split("\n")[0], 1, job.PIPELINE)
    if options.n_layer % world_size:
        sys.exit(f"pipeline.py: error: --n-layer {options.n_layer} blocks cannot be dealt evenly to {world_size} stages.")
    worker.run(lambda: work(options, rank, world_size))


def work(options, rank, world_size):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    backend, device = worker.pytorch_backend()
    with group(backend, rank, world_size):
        batch = job.Batches(options)(0)
        whole = model_of(options, device)
        _, loss = whole(*rows(batch, 0, 1, device)[0])
        loss.backward()
        model = model_of(options, device)
        stage = Stage(model, rank, world_size)
        ends = dist.new_group(sorted({0, world_size - 1}))    # every rank makes it, also those outside
        report = {"rank": rank, "backend": backend, "runs": {}}
        for m in options.cuts:
            best = None
            for _ in range(options.repeats):
                model.zero_grad()
                got = one_pass(stage, rows(batch, 0, 1, device, m), rank, world_size, options, device)
                if rank in (0, world_size - 1) and world_size > 1:
                    dist.all_reduce(model.wte.weight.grad, group=ends)   # the tied table works in the first stage and in the last
                if best is None or got["seconds"] < best["seconds"]:
                    best = got
            wanted = dict(whole.named_parameters())
            best["gap"] = max((p.grad - wanted[name].grad).abs().max().item() for name, p in model.named_parameters() if p.grad is not None)
            best["loss gap"] = abs(best["loss"] - loss.item()) if rank == world_size - 1 else 0.0
            report["runs"][str(m)] = best
        report["largest"] = max(p.grad.abs().max().item() for p in whole.parameters())
        report["parameters"] = [name for name, p in model.named_parameters() if p.grad is not None]
        dist.barrier()
        return report


class Stage:
    """The part of a GPT that belongs to a rank: embeddings and the first blocks, blocks, or the last blocks, norm and head."""

    def __init__(self, model, rank, world_size):
        size = len(model.h) // world_size
        self.model = model
        self.blocks = list(model.h)[rank * size : (rank + 1) * size]
        self.first, self.last = rank == 0, rank == world_size - 1

    def __call__(self, x, targets=None):
        """ids (b, T) or activations (b, T, C) -> activations (b, T, C), or the mean loss in the last stage."""
        import torch

        if self.first:
            x = self.model.wte(x) + self.model.wpe(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        if not self.last:
            return x
        x = self.model.ln_f(x)
        logits = piece("pytorch.primitives.linear")(x, self.model.wte.weight)
        return piece("pytorch.primitives.cross_entropy")(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def one_pass(stage, micro_batches, rank, world_size, options, device):
    """Forward and backward of all micro-batches, in the order of gpipe_schedule; what it took, and when each piece ran."""
    import torch
    import torch.distributed as dist

    m = len(micro_batches)
    shape = (len(micro_batches[0][0]), options.n_ctx, options.n_embd)
    inputs, outputs, sent, events, total, messages = {}, {}, [], [], 0.0, 0

    def receive(source):
        x = torch.empty(shape, device=device)
        dist.recv(x, source)
        return x

    dist.barrier()
    started = time.perf_counter()
    for slot in piece("pytorch.parallel.gpipe_schedule")(world_size, m)[rank]:
        if slot is None:
            continue                                          # nothing to do: recv of the next piece does the waiting
        kind, i = slot
        ids, targets = micro_batches[i]
        if kind == "F":
            x = ids if stage.first else receive(rank - 1).requires_grad_()
            begin = time.perf_counter()
            out = stage(x, targets)
            if stage.last:
                out = out / m                                 # the mean over all of them
                total += out.item()
            inputs[i], outputs[i] = x, out
            end = time.perf_counter()
            if not stage.last:
                sent.append(dist.isend(out.detach(), rank + 1))
                messages += 1
        else:
            grad = None if stage.last else receive(rank + 1)
            begin = time.perf_counter()
            outputs.pop(i).backward(grad)
            end = time.perf_counter()
            if not stage.first:
                sent.append(dist.isend(inputs.pop(i).grad, rank - 1))
                messages += 1
        events.append([kind, i, begin, end])                  # one clock for all processes of a machine
    for one in sent:
        one.wait()
    seconds = torch.tensor(time.perf_counter() - started, device=device)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)            # of the slowest rank, so that all take the same pass for the fastest
    return {"seconds": seconds.item(), "loss": total, "events": events, "messages": messages}


if __name__ == "__main__":
    main()
