"""Train a character GPT from the shell: progress, checkpoints, resume, and text sampled from the result."""
import contextlib
import hashlib
import json
import math
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

from course import answers, corpus, device, parity
from course.exercise import given, piece


class TrainError(ValueError):
    """Something the reader can mend; the message is one sentence."""


@dataclass
class Settings:
    """What a run depends on; kept beside its checkpoint, and equal when it is resumed."""

    data: str = "shakespeare"
    steps: int = 2000
    batch_size: int = 12
    n_ctx: int = 64
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128
    lr: float = 1e-3
    min_lr: float = 1e-4
    warmup: int = 100
    weight_decay: float = 0.1
    clip: float = 1.0
    seed: int = 1337


def check_settings(settings):
    for name in ("steps", "batch_size", "n_ctx", "n_layer", "n_head", "n_embd"):
        if getattr(settings, name) < 1:
            raise TrainError(f"--{name.replace('_', '-')} is {getattr(settings, name)} and must be at least 1.")
    if settings.n_embd % settings.n_head:
        raise TrainError(f"--n-embd {settings.n_embd} cannot be cut into --n-head {settings.n_head} heads of one width: take a multiple.")
    if not 0 < settings.lr < 1:
        raise TrainError(f"--lr is {settings.lr}; it must lie between 0 and 1, for example 1e-3.")
    if not 0 <= settings.min_lr <= settings.lr:
        raise TrainError(f"--min-lr is {settings.min_lr}; it must lie between 0 and --lr {settings.lr}.")
    if settings.warmup < 0:
        raise TrainError(f"--warmup is {settings.warmup} and cannot be negative.")
    if not 0 <= settings.weight_decay * settings.lr < 1:
        raise TrainError(f"--weight-decay is {settings.weight_decay}; it must be at least 0, and below 1 when multiplied by --lr {settings.lr}.")
    if not settings.clip > 0:
        raise TrainError(f"--clip is {settings.clip} and must be above 0; inf does not clip.")
    check_seed(settings.seed)


def check_seed(seed):
    if not 0 <= seed < 2**63:
        raise TrainError(f"--seed is {seed} and must lie between 0 and 2**63 - 1.")


class Run:
    """A PyTorch model in training, with its data, its optimizer and its folder."""

    framework = "pytorch"
    checkpoint = "checkpoint.pt"

    def __init__(self, settings, folder):
        import numpy as np
        import torch

        check_settings(settings)
        text = corpus.load(settings.data, at_least=2)
        train_text, val_text = corpus.split(text)
        if len(val_text) < settings.n_ctx + 1:
            raise TrainError(
                f"{settings.data} has {len(text):,} characters; a tenth of it is kept to validate on and must hold one window of "
                f"{settings.n_ctx + 1}: take a text of at least {10 * (settings.n_ctx + 1):,} characters or a smaller --n-ctx."
            )
        self.settings, self.folder = settings, Path(folder)
        self.tokenizer = piece("pytorch.tokens.CharTokenizer")(text)
        self.train = np.array(self.tokenizer.encode(train_text), dtype=np.uint16)
        self.val = np.array(self.tokenizer.encode(val_text), dtype=np.uint16)
        self.vocab_size = len(set(text))
        self.text_sha256 = hashlib.sha256(text.encode()).hexdigest()
        torch.manual_seed(settings.seed)
        self.model = piece("pytorch.gpt.GPT")(self.config())
        self.optimizer = piece("pytorch.training.AdamW")(
            self.model.parameters(), lr=settings.lr, betas=(0.9, 0.99), eps=1e-8, weight_decay=settings.weight_decay
        )
        self.it = 0
        self.get_batch = piece("pytorch.tokens.get_batch")
        self.cosine_lr = piece("pytorch.training.cosine_lr")
        self.clip_grad_norm = piece("pytorch.training.clip_grad_norm")

    def config(self):
        s = self.settings
        return SimpleNamespace(vocab_size=self.vocab_size, n_ctx=s.n_ctx, n_layer=s.n_layer, n_head=s.n_head, n_embd=s.n_embd)

    def params(self):
        return list(self.model.parameters())

    def step(self):
        """One update; returns the loss of its batch."""
        s = self.settings
        for group in self.optimizer.param_groups:
            group["lr"] = self.cosine_lr(self.it, s.lr, s.min_lr, s.warmup, s.steps)
        x, y = self.get_batch(self.train, s.batch_size, s.n_ctx)
        _, loss = self.model(x, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.clip_grad_norm(self.params(), s.clip)
        self.optimizer.step()
        self.it += 1
        return loss.item()

    def validate(self, batches=20):
        """Mean loss over the same windows of the validation text each time."""
        import torch

        generator = torch.Generator().manual_seed(7)
        total = 0.0
        with torch.no_grad():
            for _ in range(batches):
                x, y = self.get_batch(self.val, self.settings.batch_size, self.settings.n_ctx, generator)
                total += self.model(x, y)[1].item()
        return total / batches

    def save(self):
        """Checkpoint and settings; a file that cannot be written leaves the old one as it was."""
        make_folder(self.folder)
        kept = {**asdict(self.settings), "data": place(self.settings.data)}
        described = {"framework": self.framework, "settings": kept, "vocab_size": self.vocab_size, "text_sha256": self.text_sha256}
        try:
            self.write(self.folder / self.checkpoint)
            answers.write(self.folder / "settings.json", json.dumps(described, indent=1) + "\n")
        except Exception as error:                            # a full disk is another error in torch, in safetensors and in Python
            for unfinished in self.folder.glob("*.tmp"):
                unfinished.unlink(missing_ok=True)
            whole = "the last checkpoint there is whole" if (self.folder / self.checkpoint).exists() else "there is no checkpoint yet"
            free = f"{shutil.disk_usage(self.folder).free / 1e6:,.1f} MB are free there"
            raise TrainError(f"Step {self.it} cannot be saved in {self.folder} ({first_line(error)}; {free}): {whole}.") from None

    def write(self, path):
        piece("pytorch.training.save_checkpoint")(path, self.model, self.optimizer, self.it)

    def read(self, path):
        self.it = piece("pytorch.training.load_checkpoint")(path, self.model, self.optimizer)

    def load(self):
        """Weights, optimizer and random state of the folder's checkpoint."""
        path = self.folder / self.checkpoint
        if not path.exists():
            raise TrainError(f"There is no checkpoint in {self.folder} yet: start the run with python -m course train --out {self.folder}, without --resume.")
        try:
            self.read(path)
        except Exception as error:
            raise TrainError(f"{path} is not a checkpoint of this model ({type(error).__name__}: {first_line(error)}).") from None

    def resume(self):
        kept = read_settings(self.folder)
        if kept["framework"] != self.framework:
            raise TrainError(f"The run in {self.folder} is one of {kept['framework']}: resume it with --framework {kept['framework']}, or start another with --out.")
        here = {**asdict(self.settings), "data": place(self.settings.data)}
        changed = [name for name in here if here[name] != kept["settings"][name]]
        if changed:
            name = changed[0]
            raise TrainError(
                f"The run in {self.folder} was started with --{name.replace('_', '-')} {kept['settings'][name]}, not {here[name]}: "
                "resume it with the same settings, or start another with --out."
            )
        self.same_text(kept)
        self.load()

    def same_text(self, kept):
        if kept["vocab_size"] != self.vocab_size:
            raise TrainError(f"The text has {self.vocab_size} symbols and the run in {self.folder} was started with {kept['vocab_size']}: it is not the same text.")
        if kept.get("text_sha256", self.text_sha256) != self.text_sha256:
            raise TrainError(f"{self.settings.data} has been changed since the run in {self.folder} was started: it is not the same text.")

    def sample(self, prompt=None, tokens=300, temperature=0.8, top_k=40, seed=0):
        """Text that goes on from the prompt; without one, from a line break or the text's first symbol."""
        import torch

        if prompt is None:
            prompt = self.tokenizer.decode([0])               # symbols are sorted, and a line break comes first

        idx = torch.tensor([self.tokenizer.encode(prompt)])
        cache = piece("pytorch.sampling.KVCache")(self.model)
        generator = torch.Generator().manual_seed(seed)
        idx = piece("pytorch.sampling.sample")(self.model, idx, tokens, temperature=temperature, top_k=top_k, generator=generator, cache=cache)
        return self.tokenizer.decode(idx[0].tolist())


def place(data):
    """The data as another folder's shell would name it."""
    return data if data in ("shakespeare", "tinyshakespeare") else str(Path(data).resolve())


def first_line(error):
    """The first line of an error's text, or the cause where the system gives one."""
    return getattr(error, "strerror", None) or next(iter(str(error).strip().splitlines()), type(error).__name__)


def make_folder(folder):
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        words = "it is a file" if Path(folder).is_file() else first_line(error)
        raise TrainError(f"{folder} cannot hold a run ({words}): choose a folder with --out.") from None
    if not os.access(folder, os.W_OK):
        raise TrainError(f"{folder} cannot hold a run (it is not writable): choose a folder with --out.")


def read_settings(folder):
    """What save() wrote: framework, settings, vocab_size and, since runs note it, text_sha256."""
    path = Path(folder) / "settings.json"
    if not path.exists():
        raise TrainError(f"There is no run in {folder}: start one with python -m course train --out {folder}.")
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        whole = kept["framework"] in RUNS and kept["vocab_size"] > 0
        kept["settings"] = {**kept["settings"], "data": place(kept["settings"]["data"])}
        check_settings(Settings(**kept["settings"]))
        whole = whole and kept["settings"].keys() == asdict(Settings()).keys()
    except (ValueError, TypeError, KeyError):
        whole = False
    if not whole:
        raise TrainError(f"{path} is damaged: start a new run with another --out.")
    return kept


class MindSporeRun(Run):
    """The same run in MindSpore: the same start, the same batches, the step compiled as one graph."""

    framework = "mindspore"
    checkpoint = "checkpoint.safetensors"

    def __init__(self, settings, folder):
        problem = device.mindspore_problem()
        if problem:
            raise TrainError(problem)
        super().__init__(settings, folder)
        import mindspore as ms
        from mindspore import ops

        with contextlib.suppress(RuntimeError):               # once MindSpore has computed, its device is chosen
            ms.set_device(device.mindspore_target())
        started = self.model
        self.model = piece("mindspore.gpt.GPT")(self.config())
        parity.carry(started, self.model)
        params = self.model.trainable_params()
        self.optimizer = piece("mindspore.training.AdamW")(
            params, lr=settings.lr, betas=(0.9, 0.99), eps=1e-8, weight_decay=settings.weight_decay
        )
        clip = piece("mindspore.training.clip_grad_norm")
        model, optimizer = self.model, self.optimizer

        def loss_of(x, y):
            return model(x, y)[1]

        value_and_grad = ms.value_and_grad(loss_of, None, params)

        def update(x, y):
            loss, grads = value_and_grad(x, y)
            grads, _ = clip(grads, settings.clip)
            return ops.depend(loss, optimizer.step(grads))    # the loss is ready when the update is

        self.update, self.loss_of = ms.jit(update), ms.jit(loss_of)

    def params(self):
        return self.model.trainable_params()

    def batch(self, tokens, generator=None):
        """x, y as int32 tensors of MindSpore."""
        import mindspore as ms

        x, y = self.get_batch(tokens, self.settings.batch_size, self.settings.n_ctx, generator)
        return ms.Tensor(x.numpy(), ms.int32), ms.Tensor(y.numpy(), ms.int32)

    def step(self):
        s = self.settings
        self.optimizer.set_lr(self.cosine_lr(self.it, s.lr, s.min_lr, s.warmup, s.steps))
        loss = self.update(*self.batch(self.train))
        self.it += 1
        return float(loss.asnumpy())

    def validate(self, batches=20):
        import torch

        generator = torch.Generator().manual_seed(7)
        return sum(float(self.loss_of(*self.batch(self.val, generator)).asnumpy()) for _ in range(batches)) / batches

    def write(self, path):
        given("mindspore.training.save_checkpoint")(path, self.model, self.optimizer, self.it)

    def read(self, path):
        self.it = given("mindspore.training.load_checkpoint")(path, self.model, self.optimizer)
        for _ in range(self.it):                              # the batches that the run has seen already
            self.get_batch(self.train, self.settings.batch_size, self.settings.n_ctx)

    def sample(self, prompt=None, tokens=300, temperature=0.8, top_k=40, seed=0):
        import mindspore as ms
        import numpy as np

        if prompt is None:
            prompt = self.tokenizer.decode([0])
        idx = ms.Tensor([self.tokenizer.encode(prompt)])
        cache = piece("mindspore.sampling.KVCache")(self.model)
        generator = np.random.default_rng(seed)
        idx = piece("mindspore.sampling.sample")(self.model, idx, tokens, temperature=temperature, top_k=top_k, generator=generator, cache=cache)
        return self.tokenizer.decode(idx[0].asnumpy().tolist())


RUNS = {"pytorch": Run, "mindspore": MindSporeRun}


def open_run(folder):
    """The finished or interrupted run of a folder, its weights loaded."""
    kept = read_settings(folder)
    try:
        run = RUNS[kept["framework"]](Settings(**kept["settings"]), folder)
    except corpus.CorpusError as error:
        raise TrainError(f"The run in {folder} needs the text that it was trained on. {error}") from None
    run.same_text(kept)
    run.load()
    return run


def whose(framework):
    """Which GPT is trained: the learner's own or the reference."""
    return "your own GPT" if f"{framework}.gpt.GPT" in answers.read() else "the reference GPT (no passed one of yours yet)"


@contextlib.contextmanager
def noted_interrupts():
    """Ctrl-C fills the list that is given and lets the step go on to its end; a second one interrupts at once.

    So does SIGTERM, by which a batch system ends a job: MindSpore's own answer to Ctrl-C is to send it to the process.
    """
    asked = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def note(number, frame):
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def train(settings, folder, resume=False, every=100, out=sys.stdout, framework="pytorch"):
    """Train to settings.steps, with a progress line; Ctrl-C or SIGTERM ends the step, saves and stops.

    Returns:
        the Run, or None if it was interrupted.
    """
    device.keep_freed_memory()
    folder = Path(folder)
    held = (folder / "settings.json").exists() and any((folder / kind.checkpoint).exists() for kind in RUNS.values())
    if held and not resume:
        raise TrainError(f"{folder} holds a run already: continue it with --resume, or choose another folder with --out.")
    if resume:
        read_settings(folder)                                 # what is wrong with it is said before the text is read
    run = RUNS[framework](settings, folder)
    make_folder(folder)                                       # and a bad --out before the first step
    if resume:
        run.resume()
    n = sum(math.prod(p.shape) for p in run.params())
    print(f"Training {whose(framework)}: {n:,} parameters on {len(run.train):,} characters, {run.vocab_size} symbols.", file=out)
    print(device.banner(), file=out)
    if run.it:
        print(f"Going on from step {run.it}.", file=out)
    live = out.isatty()                                       # a terminal: one line that is written over
    start = "\r" if live else ""
    per_step = settings.batch_size * settings.n_ctx
    started, first = time.perf_counter(), run.it
    try:
        with noted_interrupts() as asked:
            while run.it < settings.steps and not asked:
                loss = run.step()
                if loss != loss:
                    raise TrainError(f"The loss is NaN at step {run.it}: lower --lr (it is {settings.lr}). Nothing of this step is saved.")
                speed = (run.it - first) * per_step / (time.perf_counter() - started)
                left = (settings.steps - run.it) * per_step / speed
                line = f"step {run.it:>{len(str(settings.steps))}}/{settings.steps}  loss {loss:.3f}  {speed:,.0f} tokens/s  {left // 60:.0f} min {left % 60:02.0f} s left"
                if run.it % every == 0 or run.it == settings.steps:
                    run.save()
                    print(f"{start}{line}  val {run.validate():.3f}", file=out, flush=True)
                elif live:
                    print(f"{start}{line}   ", end="", file=out, flush=True)
            if asked and run.it < settings.steps:
                run.save()
                print(f"\nInterrupted after step {run.it}; nothing is lost: the same command with --resume goes on.", file=out)
                return None
    except KeyboardInterrupt:                                 # a second one, in the middle of a step
        kept = "--resume goes on from the last checkpoint" if (folder / run.checkpoint).exists() else "there is no checkpoint yet"
        print(f"\nStopped at once: {kept}.", file=out)
        return None
    print(f"Done: validation loss {run.validate():.3f}, checkpoint in {folder}.", file=out)
    return run
