"""One piece of the GPT in PyTorch, in MindSpore eager and in MindSpore graph mode: each timed in a process of its own.

The thread pools of the two frameworks fight over the cores of one process, so no two candidates share one.
"""
import json
import os
import subprocess
import sys
import tempfile
from types import SimpleNamespace

from course import device, timing
from course.exercise import piece

MODES = ("pytorch", "eager", "graph")


def compare(name, inputs, config=None, backward=True, seconds=2.0, modes=MODES):
    """Time a piece, the learner's own where there is one.

    Args:
        name: module and name of the piece without its framework, for example "attention.attention".
        inputs: a list of shapes (float inputs), or {"ids": shape, "below": n} for token ids.
        config: a dict of settings or a list of arguments for a class; None for a function.
        backward: also the gradients of all float inputs and parameters.

    Returns:
        {mode: Timing}; .first holds the compile time of graph mode.
    """
    timings = {}
    for mode in modes:
        job = {"name": name, "inputs": inputs, "config": config, "backward": backward, "seconds": seconds, "mode": mode}
        with tempfile.TemporaryDirectory() as folder:         # the compiler's trace files stay out of the course
            done = subprocess.run(
                [sys.executable, "-m", "course.bench.port", json.dumps(job)], capture_output=True, text=True, cwd=folder,
                env={**os.environ, "GLOG_v": "4"},
            )
        if done.returncode:
            raise RuntimeError(f"timing {name} in {mode} failed: {done.stderr.strip().splitlines()[-1]}")
        found = json.loads(done.stdout.splitlines()[-1])
        label = {"pytorch": "PyTorch", "eager": "MindSpore eager", "graph": "MindSpore graph"}[mode]
        timings[label] = timing.Timing(label, found["first"], found["seconds"], found["banner"])
    return timings


def build(framework, name, config):
    made = piece(f"{framework}.{name}")
    if config is None:
        return made
    return made(SimpleNamespace(**config)) if isinstance(config, dict) else made(*config)


def arrays(inputs):
    import numpy as np

    random = np.random.default_rng(0)
    for wanted in inputs:
        if isinstance(wanted, dict):
            yield random.integers(0, wanted["below"], wanted["ids"])
        else:
            yield random.standard_normal(wanted).astype(np.float32)


def pytorch_call(job):
    import torch

    function = build("pytorch", job["name"], job["config"])
    given = [torch.from_numpy(x).requires_grad_(x.dtype.kind == "f") for x in arrays(job["inputs"])]

    def run():
        out = function(*given)
        if job["backward"]:
            out = out[0] if isinstance(out, tuple) else out   # a model returns (logits, loss)
            out.sum().backward()

    return run


def mindspore_call(job):
    import mindspore as ms

    ms.set_device(device.mindspore_target())
    function = build("mindspore", job["name"], job["config"])
    given = [ms.Tensor(x if x.dtype.kind == "f" else x.astype("int32")) for x in arrays(job["inputs"])]
    if job["backward"]:
        weights = list(function.trainable_params()) if hasattr(function, "trainable_params") else None
        positions = tuple(i for i, x in enumerate(given) if x.dtype == ms.float32) or None

        def total(*x):
            out = function(*x)
            if isinstance(out, tuple):
                out = out[0]
            return out.sum()

        timed = ms.value_and_grad(total, positions, weights=weights)
    else:

        def timed(*x):
            return function(*x)

    if job["mode"] == "graph":
        timed = ms.jit(timed)

    def run():
        out = timed(*given)
        while isinstance(out, tuple):
            out = out[-1]
        out.asnumpy()                                         # results are asynchronous until somebody reads them

    return run


def main():
    job = json.loads(sys.argv[1])
    run = pytorch_call(job) if job["mode"] == "pytorch" else mindspore_call(job)
    found = timing.measure({"it": run}, seconds=job["seconds"])["it"]
    print(json.dumps({"first": found.first, "seconds": found.seconds, "banner": device.banner()}))


if __name__ == "__main__":
    main()
