"""The training that lesson 20 runs on several processes: its options, its batches, its start, equal in both frameworks."""
import argparse
import os
import signal
from pathlib import Path
from types import SimpleNamespace

LR, BETAS, EPS, WEIGHT_DECAY, CLIP = 1e-3, (0.9, 0.99), 1e-8, 0.1, 1.0
VOCAB_SIZE = 81
CHARACTERS = 200_000   # of the text that the windows are cut from

OPTIONS = {
    "steps": (20, "updates in all"),
    "batch_size": (16, "windows in a batch, all ranks together"),
    "micro_batches": (1, "pieces into which each rank cuts its rows"),
    "n_ctx": (32, "positions in a window"),
    "n_layer": (2, "blocks"),
    "n_head": (2, "heads in a block"),
    "n_embd": (32, "channels"),
    "seed": (1337, "of weights and batches"),
    "every": (5, "updates between checkpoints"),
}
NOT_THE_PIPELINE = ("steps", "micro_batches", "every", "out", "resume", "compare", "ddp", "kill")
ONLY_THE_PIPELINE = ("cuts", "repeats")
PIPELINE = {"n_layer": 4, "n_head": 4, "n_embd": 128, "n_ctx": 64}   # a stage should have something to do


def add_options(made, defaults=None):
    """The options of the training; without defaults each is None unless it is given."""
    for name, (value, words) in OPTIONS.items():
        shown = "" if defaults is not None else f" (default {value}{f', pipeline {PIPELINE[name]}' if name in PIPELINE else ''})"
        made.add_argument(f"--{name.replace('_', '-')}", type=int, default=None if defaults is None else defaults.get(name, value), help=words + shown)
    made.add_argument("--out", default=None, help="folder of the checkpoint; none is written without it")
    made.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    made.add_argument("--compare", action="store_true", help="first compare the gradients of one batch with those of one process")
    made.add_argument("--ddp", action="store_true", help="PyTorch: average with DistributedDataParallel instead of average_gradients")
    made.add_argument("--kill", default=None, metavar="RANK@STEP", help="let a rank kill itself in the middle of a step, to see what happens")
    made.add_argument("--cuts", type=int, nargs="+", default=None if defaults is None else [1, 2, 4, 8], help="pipeline: numbers of micro-batches to try, one after the other" + ("" if defaults is not None else " (default 1 2 4 8)"))
    made.add_argument("--repeats", type=int, default=None if defaults is None else 3, help="pipeline: passes of each; the fastest is reported" + ("" if defaults is not None else " (default 3)"))


def given_options(options):
    """The options that were given, as a command line again."""
    arguments = []
    for name in (*OPTIONS, "out", "kill", "cuts", "repeats"):
        value = getattr(options, name)
        if value is not None:
            arguments += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    return arguments + [f"--{name}" for name in ("resume", "compare", "ddp") if getattr(options, name)]


def read(description, world_size, defaults=()):
    """The options of a program; SystemExit with a sentence for what cannot run."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add_options(made, dict(defaults))
    options = made.parse_args()
    for name in ("batch_size", "micro_batches", "n_ctx", "n_layer", "n_head", "n_embd", "every", "repeats"):
        if getattr(options, name) < 1:
            made.error(f"--{name.replace('_', '-')} is {getattr(options, name)} and must be at least 1.")
    for name in ("steps", "seed"):
        if getattr(options, name) < 0:
            made.error(f"--{name} is {getattr(options, name)} and cannot be below 0.")
    if options.n_ctx >= CHARACTERS:
        made.error(f"--n-ctx {options.n_ctx} is more than the text has: {CHARACTERS:,} characters.")
    if options.n_embd % options.n_head:
        made.error(f"--n-embd {options.n_embd} cannot be cut into --n-head {options.n_head} heads of one width: take a multiple.")
    parts = world_size * options.micro_batches
    if options.batch_size % parts:
        made.error(f"--batch-size {options.batch_size} cannot be cut into {parts} equal parts ({world_size} ranks, {options.micro_batches} micro-batches each): take a multiple.")
    if options.resume and options.out is None:
        made.error("--resume needs the folder of the run: --out FOLDER.")
    if options.kill is not None:
        rank, at, step = options.kill.partition("@")
        if not (at and rank.isdigit() and step.isdigit()) or int(rank) >= world_size:
            made.error(f"--kill {options.kill} should be RANK@STEP with a rank below {world_size}, for example 1@7.")
        if int(step) >= options.steps:
            made.error(f"--kill {options.kill} never happens: the {options.steps} updates are counted from 0.")
        options.kill = int(rank), int(step)
    for m in options.cuts if defaults else ():                # the pipeline has defaults of its own
        if m < 1 or options.batch_size % m:
            made.error(f"--cuts {m}: a batch of {options.batch_size} cannot be cut into {m} equal micro-batches.")
    return options


def config(options):
    return SimpleNamespace(vocab_size=VOCAB_SIZE, n_ctx=options.n_ctx, n_layer=options.n_layer, n_head=options.n_head, n_embd=options.n_embd)


class Batches:
    """batches(it) -> x, y (B, n_ctx) int32: the batch of update `it`, the same on every rank, before and after a resume."""

    def __init__(self, options):
        import numpy as np

        from course import corpus

        text = np.array(list(corpus.load("shakespeare")[:CHARACTERS]))
        _, self.tokens = np.unique(text, return_inverse=True)  # symbols numbered in sorted order, as in lesson 01
        self.options = options

    def __call__(self, it):
        import numpy as np

        o = self.options
        starts = np.random.default_rng((o.seed, it)).integers(0, len(self.tokens) - o.n_ctx, o.batch_size)
        windows = self.tokens[starts[:, None] + np.arange(o.n_ctx + 1)].astype(np.int32)   # (B, n_ctx + 1)
        return windows[:, :-1], windows[:, 1:]


def weights(shapes, seed):
    """name -> array: the same start on every rank and in both frameworks, drawn in the order of the names."""
    import numpy as np

    random, start = np.random.default_rng(seed), {}
    for name, shape in sorted(shapes.items()):
        drawn = (0.02 * random.standard_normal(shape)).astype(np.float32)
        is_scale = name.endswith("weight") and len(shape) == 1
        start[name] = drawn if len(shape) > 1 else np.full(shape, float(is_scale), np.float32)
    return start


def checkpoint(options, suffix):
    """The path of the checkpoint, its folder made; None without --out."""
    if options.out is None:
        return None
    path = Path(options.out) / f"checkpoint.{suffix}"
    if options.resume and not path.exists():
        raise FileNotFoundError(f"There is no {path.name} in {options.out} yet: start the run without --resume.")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def resumed(load, path, model, optimizer):
    """The update to go on with; ValueError in a sentence for a file that is no checkpoint of this run."""
    try:
        return load(path, model, optimizer)
    except Exception as error:
        words = next((line.strip() for line in str(error).splitlines() if line.strip() and not line.endswith(":")), type(error).__name__)
        raise ValueError(f"{path} cannot be resumed with these sizes, or is damaged: {words}") from error


def die_if_told(options, rank, it):
    if options.kill == (rank, it):
        os.kill(os.getpid(), signal.SIGKILL)
