"""One training step in both frameworks, and the way from the port as written to the fast one: a process for each candidate."""
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from course import device, registry
from course.bench.pytorch import BATCH, MID, SMALL, VOCAB_SIZE
from course.exercise import reference
from course.timing import Repeats

HALF = {**SMALL, "n_layer": 2}                               # what a lesson has time for
SIZES = {"small": SMALL, "mid": MID, "half": HALF}
BATCHES = {**BATCH, "half": 12}


@dataclass
class Candidate:
    """A way to write and run the same step."""

    name: str
    framework: str = "mindspore"
    graph: bool = True
    fusion: bool = True
    fast_model: bool = True
    fast_optimizer: bool = True
    quiet_wait: bool = True


CANDIDATES = [
    Candidate("PyTorch eager", framework="pytorch"),
    Candidate("MindSpore as ported, eager", graph=False, fusion=False, fast_model=False, fast_optimizer=False, quiet_wait=False),
    Candidate("+ graph mode", fusion=False, fast_model=False, fast_optimizer=False, quiet_wait=False),
    Candidate("+ kernel fusion", fast_model=False, fast_optimizer=False, quiet_wait=False),
    Candidate("+ layers written for fusion", fast_optimizer=False, quiet_wait=False),
    Candidate("+ fused Adam", quiet_wait=False),
    Candidate("+ waiting asleep"),
]


@dataclass
class Measured(Repeats):
    """Seconds of the steady steps, seconds of the first step, and the losses of the first ten steps."""

    name: str
    seconds: list
    first: float
    losses: list
    banner: str


def measure(size="small", steps=20, names=None):
    """Every candidate, or those named, one after the other: {name: Measured}.

    Args:
        size: "small" (4 layers, 128 wide, n_ctx 64, batch 12) or "mid" (6 layers, 384 wide, n_ctx 128, batch 8).
        steps: steady steps counted; 10 steps before them, and those of a search for the pause, are not.
    """
    found = {}
    for number, candidate in enumerate(CANDIDATES):
        if names is None or candidate.name in names:
            found[candidate.name] = in_own_process(number, size, steps)
    return found


def in_own_process(number, size, steps):
    environment = {**os.environ, "GLOG_v": "4", "PYTHONPATH": str(registry.ROOT)}
    environment["PATH"] = str(Path(sys.executable).parent) + os.pathsep + environment["PATH"]   # fusion starts a compiler from there
    if CANDIDATES[number].framework == "mindspore":
        environment["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:             # the compiler's trace files stay out of the course
        command = [sys.executable, "-m", "course.bench.training", str(number), size, str(steps)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    if done.returncode:
        raise RuntimeError(f"{CANDIDATES[number].name} failed: {done.stderr.strip().splitlines()[-1]}")
    return Measured(CANDIDATES[number].name, **json.loads(done.stdout.splitlines()[-1]))


def report(measured):
    """Lines of text: median and quartiles of each candidate, its ratio to the first, what its change alone gained."""
    base = next(iter(measured.values())).median
    width = max(map(len, measured))
    lines = [*dict.fromkeys(m.banner for m in measured.values())]
    lines.append(f"{'':{width}}  median ms      quartiles ms    ratio   first step s   loss of step 10")
    for name, m in measured.items():
        low, high = m.quartiles
        lines.append(f"{name:{width}}  {1e3 * m.median:9.1f}   {1e3 * low:6.1f} ... {1e3 * high:6.1f}   {m.median / base:6.2f}   {m.first:12.1f}   {m.losses[-1]:.5f}")
    return "\n".join(lines)


def batches(size):
    """Ten batches of token ids, again and again: the same for every candidate."""
    import numpy as np

    random = np.random.default_rng(0)
    tokens = random.integers(0, VOCAB_SIZE, (10, BATCHES[size], SIZES[size]["n_ctx"] + 1)).astype(np.int32)
    return [(t[:, :-1], t[:, 1:]) for t in tokens]


def weights(model_names_and_shapes):
    """The same start for both frameworks, by name."""
    import numpy as np

    random = np.random.default_rng(1)
    start = {}
    for name, shape in sorted(model_names_and_shapes.items()):
        drawn = (0.02 * random.standard_normal(shape)).astype(np.float32)
        start[name] = drawn if len(shape) > 1 else np.full(shape, float(".ln" in "." + name and name.endswith("weight")), np.float32)
    return start


def pytorch_step(size):
    import torch

    from solutions.pytorch.gpt import GPTConfig

    model = reference("pytorch.gpt.GPT")(GPTConfig(vocab_size=VOCAB_SIZE, **SIZES[size]))
    start = weights({name: tuple(p.shape) for name, p in model.named_parameters()})
    model.load_state_dict({name: torch.from_numpy(value) for name, value in start.items()})
    optimizer = reference("pytorch.training.AdamW")(model.parameters(), lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    data = [(torch.from_numpy(x).long(), torch.from_numpy(y).long()) for x, y in batches(size)]

    def step(i):
        _, loss = model(*data[i % 10])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, None


def mindspore_step(candidate, size):
    import mindspore as ms
    from mindspore import ops

    from course.waiting import Fetch
    from solutions.mindspore import fast, gpt, training

    ms.set_device(device.mindspore_target())
    if candidate.fusion:
        ms.set_context(enable_graph_kernel=True)
    model = (fast if candidate.fast_model else gpt).GPT(gpt.GPTConfig(vocab_size=VOCAB_SIZE, **SIZES[size]))
    for name, value in weights({p.name: tuple(p.shape) for p in model.trainable_params()}).items():
        dict(model.parameters_and_names())[name].set_data(ms.Tensor(value))
    optimizer = (fast if candidate.fast_optimizer else training).AdamW(model.trainable_params(), lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    data = [(ms.Tensor(x), ms.Tensor(y)) for x, y in batches(size)]

    def loss_of(x, y):
        return model(x, y)[1]

    value_and_grad = ms.value_and_grad(loss_of, None, model.trainable_params())

    def update(x, y):
        loss, grads = value_and_grad(x, y)
        return ops.depend(loss, optimizer.step(grads))        # the loss is ready when the update is

    if candidate.graph:
        update = ms.jit(update)
    fetch = Fetch() if candidate.quiet_wait else None

    def step(i):
        loss = update(*data[i % 10])
        return float(fetch(loss) if fetch else loss.asnumpy())

    return step, fetch


def main():
    candidate, size, steps = CANDIDATES[int(sys.argv[1])], sys.argv[2], int(sys.argv[3])
    step, fetch = pytorch_step(size) if candidate.framework == "pytorch" else mindspore_step(candidate, size)
    started = time.perf_counter()
    losses = [step(0)]
    first = time.perf_counter() - started
    losses += [step(i) for i in range(1, 10)]
    i = 10
    while fetch is not None and not fetch.settled:
        step(i)
        i += 1
    seconds = []
    for i in range(i, i + steps):
        started = time.perf_counter()
        step(i)
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"seconds": seconds, "first": first, "losses": losses, "banner": device.banner()}))


if __name__ == "__main__":
    main()
