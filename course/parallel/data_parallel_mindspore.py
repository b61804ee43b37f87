"""The same training in MindSpore.

    msrun --worker_num 2 --local_worker_num 2 --join True course/parallel/data_parallel_mindspore.py --steps 5 --out run

Alone, python -m course.parallel.data_parallel_mindspore, it is the same run on one process.
"""
import os

os.environ.setdefault("GLOG_v", "4")                        # read at MindSpore's import

from course import device, piece  # noqa: E402
from course.exercise import given  # noqa: E402
from course.parallel import job, worker  # noqa: E402


def main():
    rank, world_size = worker.rank_and_size()
    options = job.read(__doc__.split("\n")[0], world_size)
    worker.run(lambda: work(options, rank, world_size))


def work(options, rank, world_size):
    import mindspore as ms
    from mindspore import communication, ops

    ms.set_device(device.mindspore_target())
    all_reduce, backend = identity, "none"
    if world_size > 1:
        communication.init()                                  # hccl on an Ascend, mccl on a CPU
        all_reduce, backend = ops.AllReduce(), communication.GlobalComm.BACKEND
    ms.runtime.launch_blocking()                              # an error of one rank comes up at its line, not some calls later
    report = {"rank": rank, "backend": backend}
    if options.compare:
        report |= compare(options, rank, world_size, all_reduce)
    return report | train(options, rank, world_size, all_reduce)


def identity(x):
    return x


def model_of(options):
    import mindspore as ms

    model = piece("mindspore.gpt.GPT")(job.config(options))
    start = job.weights({name: tuple(p.shape) for name, p in model.parameters_and_names()}, options.seed)
    for name, p in model.parameters_and_names():
        p.set_data(ms.Tensor(start[name]))
    return model


def rows(batch, rank, world_size, parts=1):
    """This rank's micro-batches, a list of (x, y). The rows are those of shard()."""
    import mindspore as ms
    import numpy as np

    size = len(batch[0]) // world_size
    x, y = (np.split(a[rank * size : (rank + 1) * size], parts) for a in batch)
    return [(ms.Tensor(a), ms.Tensor(b)) for a, b in zip(x, y)]


def gradient_function(model):
    import mindspore as ms

    def loss_of(x, y):
        return model(x, y)[1]

    return ms.value_and_grad(loss_of, None, model.trainable_params())


def train(options, rank, world_size, all_reduce):
    average_gradients, accumulate = piece("mindspore.parallel.average_gradients"), piece("mindspore.training.accumulate")
    clip_grad_norm = piece("mindspore.training.clip_grad_norm")
    model = model_of(options)
    optimizer = piece("mindspore.training.AdamW")(model.trainable_params(), lr=job.LR, betas=job.BETAS, eps=job.EPS, weight_decay=job.WEIGHT_DECAY)
    path, first = job.checkpoint(options, "safetensors"), 0
    if options.resume:
        first = job.resumed(given("mindspore.training.load_checkpoint"), path, model, optimizer)
    value_and_grad = gradient_function(model)
    batches, losses = job.Batches(options), []
    for it in range(first, options.steps):
        loss, grads = accumulate(value_and_grad, rows(batches(it), rank, world_size, options.micro_batches))
        job.die_if_told(options, rank, it)
        grads = average_gradients(grads, all_reduce, world_size)
        grads, _ = clip_grad_norm(grads, job.CLIP)
        optimizer.step(grads)
        losses.append(float(all_reduce(loss.reshape(1)).asnumpy()[0]) / world_size)
        if path and rank == 0 and ((it + 1) % options.every == 0 or it + 1 == options.steps):
            given("mindspore.training.save_checkpoint")(path, model, optimizer, it + 1)
    return {"first": first, "losses": losses}


def compare(options, rank, world_size, all_reduce):
    """The gradients of one batch, averaged over the ranks, against one process: eagerly, and with the average as a graph."""
    import mindspore as ms
    import numpy as np

    average_gradients = piece("mindspore.parallel.average_gradients")
    value_and_grad = gradient_function(model_of(options))
    batch = job.Batches(options)(0)
    _, want = value_and_grad(*rows(batch, 0, 1)[0])
    _, grads = value_and_grad(*rows(batch, rank, world_size)[0])

    def average(grads):
        return average_gradients(grads, all_reduce, world_size)

    found = {"largest": max(float(np.abs(w.asnumpy()).max()) for w in want)}
    for name, got in [("alone", grads), ("eager", average(grads)), ("graph", ms.jit(average)(grads))]:
        found[name] = max(float(np.abs(g.asnumpy() - w.asnumpy()).max()) for g, w in zip(got, want))
    return found


if __name__ == "__main__":
    main()
