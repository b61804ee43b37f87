"""What a dtype costs on this machine: one linear layer, forward and backward, each framework in a process of its own."""
import json
import os
import subprocess
import sys
import tempfile

from course import device, registry, timing

DTYPES = {"pytorch": ("float32", "float16", "bfloat16"), "mindspore": ("float32", "float16")}   # no bfloat16 matmul on MindSpore's CPU
LABELS = {"pytorch": "PyTorch", "mindspore": "MindSpore"}


def compare(rows=128, d_in=384, d_out=1536, seconds=1.0, frameworks=("pytorch", "mindspore")):
    """Time y = x @ W.T and its two gradients in each dtype that a framework has on this device.

    Returns:
        {"PyTorch float32": Timing, ...}; MindSpore's run as a compiled graph, .first holds the compile time.

    Raises:
        ValueError: a framework that is none of the two, sizes below 1, no seconds.
        RuntimeError: a framework's process failed; the message has its last words.
    """
    for framework in frameworks:
        if framework not in DTYPES:
            raise ValueError(f"there is no framework {framework!r}: frameworks are {' and '.join(DTYPES)}.")
    if not min(rows, d_in, d_out) >= 1 or not seconds > 0:
        raise ValueError(f"rows, d_in and d_out must be at least 1 and seconds above 0; they are {rows}, {d_in}, {d_out} and {seconds}.")
    timings = {}
    for framework in frameworks:
        job = {"framework": framework, "rows": rows, "d_in": d_in, "d_out": d_out, "seconds": seconds}
        with tempfile.TemporaryDirectory() as folder:         # the compiler's trace files stay out of the course
            done = subprocess.run(
                [sys.executable, "-m", "course.bench.precision", json.dumps(job)], capture_output=True, text=True, cwd=folder,
                env={**os.environ, "GLOG_v": "4", "PYTHONPATH": str(registry.ROOT)},
            )
        if done.returncode:
            said = done.stderr.strip() or f"its process ended with code {done.returncode}"
            raise RuntimeError(f"timing {framework} failed: {said.splitlines()[-1]}")
        for dtype, found in json.loads(done.stdout.splitlines()[-1]).items():
            name = f"{LABELS[framework]} {dtype}"
            timings[name] = timing.Timing(name, found["first"], found["seconds"], found["banner"])
    return timings


def arrays(job):
    import numpy as np

    random = np.random.default_rng(0)
    return random.standard_normal((job["rows"], job["d_in"])), random.standard_normal((job["d_out"], job["d_in"]))


def pytorch_call(job, dtype):
    import torch

    x, weight = (torch.from_numpy(a).to(getattr(torch, dtype)).requires_grad_() for a in arrays(job))
    ones = torch.ones(job["rows"], job["d_out"], dtype=x.dtype)

    def run():
        (x @ weight.T).backward(ones)

    return run


def mindspore_call(job, dtype):
    import mindspore as ms
    from mindspore import ops

    x, weight = (ms.Tensor(a.astype("float32")).astype(getattr(ms, dtype)) for a in arrays(job))

    def total(x, weight):
        return ops.matmul(x, weight.swapaxes(0, 1)).sum()

    both = ms.jit(ms.grad(total, (0, 1)))

    def run():
        both(x, weight)[1].asnumpy()                          # results are asynchronous until somebody reads them

    return run


def main():
    job = json.loads(sys.argv[1])
    if job["framework"] == "mindspore":
        import mindspore as ms

        ms.set_device(device.mindspore_target())
    call = pytorch_call if job["framework"] == "pytorch" else mindspore_call
    found = timing.measure({dtype: call(job, dtype) for dtype in DTYPES[job["framework"]]}, seconds=job["seconds"])
    print(json.dumps({name: {"first": t.first, "seconds": t.seconds, "banner": device.banner()} for name, t in found.items()}))


if __name__ == "__main__":
    main()
