"""Train a character GPT from the shell: progress, checkpoints, resume, and text sampled from the result."""
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

from course import answers, corpus, device
from course.exercise import piece


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


class Run:
    """A model in training, with its data, its optimizer and its folder."""

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

    def step(self):
        """One update; returns the loss of its batch."""
        s = self.settings
        for group in self.optimizer.param_groups:
            group["lr"] = self.cosine_lr(self.it, s.lr, s.min_lr, s.warmup, s.steps)
        x, y = self.get_batch(self.train, s.batch_size, s.n_ctx)
        _, loss = self.model(x, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.clip_grad_norm(list(self.model.parameters()), s.clip)
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
        self.folder.mkdir(parents=True, exist_ok=True)
        described = {"settings": asdict(self.settings), "vocab_size": self.vocab_size}
        (self.folder / "settings.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
        piece("pytorch.training.save_checkpoint")(self.folder / "checkpoint.pt", self.model, self.optimizer, self.it)

    def resume(self):
        kept = read_settings(self.folder)
        here = asdict(self.settings)
        changed = [name for name in here if here[name] != kept["settings"][name]]
        if changed:
            name = changed[0]
            raise TrainError(
                f"The run in {self.folder} was started with --{name.replace('_', '-')} {kept['settings'][name]}, not {here[name]}: "
                "resume it with the same settings, or start another with --out."
            )
        if kept["vocab_size"] != self.vocab_size:
            raise TrainError(f"The text has {self.vocab_size} symbols and the run in {self.folder} was started with {kept['vocab_size']}: it is not the same text.")
        self.it = load(self.folder, self.model, self.optimizer)

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


def read_settings(folder):
    path = Path(folder) / "settings.json"
    if not path.exists():
        raise TrainError(f"There is no run in {folder}: start one with python -m course train --out {folder}.")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise TrainError(f"{path} is damaged: start a new run with another --out.") from None


def load(folder, model, optimizer):
    path = Path(folder) / "checkpoint.pt"
    if not path.exists():
        raise TrainError(f"There is no checkpoint in {folder} yet: start the run without --resume.")
    try:
        return piece("pytorch.training.load_checkpoint")(path, model, optimizer)
    except Exception as error:
        raise TrainError(f"{path} is not a checkpoint of this model ({type(error).__name__}: {str(error).strip().splitlines()[0]}).") from None


def open_run(folder):
    """The finished or interrupted run of a folder, its weights loaded."""
    kept = read_settings(folder)
    run = Run(Settings(**kept["settings"]), folder)
    run.it = load(folder, run.model, run.optimizer)
    return run


def whose():
    """Which GPT is trained: the learner's own or the reference."""
    return "your own GPT" if "pytorch.gpt.GPT" in answers.read() else "the reference GPT (no passed one of yours yet)"


def train(settings, folder, resume=False, every=100, out=sys.stdout):
    """Train to settings.steps, with a progress line; Ctrl-C saves and stops.

    Returns:
        the Run, or None if it was interrupted.
    """
    device.keep_freed_memory()
    folder = Path(folder)
    if not resume and (folder / "checkpoint.pt").exists():
        raise TrainError(f"{folder} holds a run already: continue it with --resume, or choose another folder with --out.")
    run = Run(settings, folder)
    if resume:
        run.resume()
    n = sum(p.numel() for p in run.model.parameters())
    print(f"Training {whose()}: {n:,} parameters on {len(run.train):,} characters, {run.vocab_size} symbols.", file=out)
    print(device.banner(), file=out)
    if run.it:
        print(f"Going on from step {run.it}.", file=out)
    live = out.isatty()                                       # a terminal: one line that is written over
    start = "\r" if live else ""
    per_step = settings.batch_size * settings.n_ctx
    started, first = time.perf_counter(), run.it
    try:
        while run.it < settings.steps:
            loss = run.step()
            if loss != loss:
                raise TrainError(f"The loss is NaN at step {run.it}: lower --lr (it is {settings.lr}); the last checkpoint stays as it is.")
            speed = (run.it - first) * per_step / (time.perf_counter() - started)
            left = (settings.steps - run.it) * per_step / speed
            line = f"step {run.it:>{len(str(settings.steps))}}/{settings.steps}  loss {loss:.3f}  {speed:,.0f} tokens/s  {left // 60:.0f} min {left % 60:02.0f} s left"
            if run.it % every == 0 or run.it == settings.steps:
                run.save()
                print(f"{start}{line}  val {run.validate():.3f}", file=out, flush=True)
            elif live:
                print(f"{start}{line}   ", end="", file=out, flush=True)
    except KeyboardInterrupt:
        run.save()
        print(f"\nInterrupted after step {run.it}; nothing is lost: the same command with --resume goes on.", file=out)
        return None
    print(f"Done: validation loss {run.validate():.3f}, checkpoint in {folder}.", file=out)
    return run
