"""The memory that a checkpoint takes: the whole GPT against one stage of it, each in a process of its own."""
import json
import os
import subprocess
import sys

from course.exercise import piece


def peak(path, config, counts=None, stage=None):
    """Bytes that building and loading add to the peak of a fresh process.

    Args:
        path: a safetensors file with the GPT's own names.
        config: a dict of GPTConfig's settings.
        counts, stage: which stage to load; without them the whole GPT is.

    Raises:
        RuntimeError: the process fails; the message is its last line.
    """
    job = json.dumps({"path": str(path), "config": config, "counts": counts, "stage": stage})
    done = subprocess.run([sys.executable, "-m", "course.bench.slices", job], capture_output=True, text=True, env=os.environ)
    if done.returncode:
        raise RuntimeError(f"loading in a process of its own failed: {done.stderr.strip().splitlines()[-1]}")
    return int(done.stdout.splitlines()[-1])


def high_water():
    """The most memory that this process has held, in bytes."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    except OSError:                                           # no Linux: what the process inherited counts as well
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main():
    from types import SimpleNamespace

    from safetensors.torch import load_file

    job = json.loads(sys.argv[1])
    config = SimpleNamespace(**job["config"])
    GPT, LocalSliceGPT = piece("pytorch.gpt.GPT"), piece("pytorch.stages.LocalSliceGPT")
    GPT(SimpleNamespace(vocab_size=8, n_ctx=4, n_layer=1, n_head=1, n_embd=8))   # what PyTorch sets up once is not counted
    before = high_water()
    if job["counts"] is None:
        model = GPT(config)
        model.load_state_dict(load_file(job["path"]))
    else:
        model = LocalSliceGPT(config, job["counts"], job["stage"])
        model.load(job["path"])
    print(high_water() - before)


if __name__ == "__main__":
    main()
