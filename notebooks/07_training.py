# %% [markdown]
# # 07 Training
#
# A fresh GPT knows nothing: it gives every symbol about the same chance. Training is a loop of five lines, and
# each line hides something that can go wrong without a word. A learning rate that is right for step 1000 breaks
# step 1. A bias that decays drifts to 0 for no reason. A run that is interrupted and resumed without its optimizer
# makes a jump that nobody can explain a week later.
#
# In this lesson you write
#
# 1. `cosine_lr`: how large the steps are, from the first to the last,
# 2. `AdamW`: which way they go,
# 3. `clip_grad_norm`: what holds back a gradient that explodes,
# 4. `accumulate`: a big batch in the memory of a small one,
# 5. `save_checkpoint` and `load_checkpoint`: stop, and go on bit for bit.
#
# Then you train your GPT on the 38 plays of Shakespeare, see where the time goes, and break the training in nine
# ways to know each failure by its look.
#
# Time: about 90 minutes. You need `CharTokenizer`, `save_tokens` and `get_batch` of lesson 01, `softmax` of lesson
# 02, `attention` of lesson 04, `LayerNorm` and `gelu` of lesson 05, and `GPT` of lesson 06; for what you have not
# passed, the reference stands in.
#
# Letters for shapes: B sequences in a batch, T positions, C channels (`n_embd`), V tokens in the vocabulary.

# %%
import copy
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from course import check, corpus, exercise, piece, setup, show, timing
from course.bench.stock import StockGPT, stock_optimizer

setup()
CharTokenizer = piece("pytorch.tokens.CharTokenizer")
save_tokens = piece("pytorch.tokens.save_tokens")
get_batch = piece("pytorch.tokens.get_batch")
softmax = piece("pytorch.primitives.softmax")
causal_mask = piece("pytorch.attention.causal_mask")
attention = piece("pytorch.attention.attention")
split_heads = piece("pytorch.attention.split_heads")
LayerNorm = piece("pytorch.layers.LayerNorm")
gelu = piece("pytorch.layers.gelu")
GPT = piece("pytorch.gpt.GPT")

# %% [markdown]
# The settings of lesson 06, and a model that is small enough for experiments of a second.

# %%
@dataclass
class GPTConfig:
    vocab_size: int = 50257
    n_ctx: int = 1024
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768


tiny = GPTConfig(vocab_size=81, n_ctx=32, n_layer=2, n_head=2, n_embd=32)
torch.manual_seed(0)
print("parameters:", sum(p.numel() for p in GPT(tiny).parameters()))

# %% [markdown]
# ## 1. How large the steps are
#
# At the first step the optimizer has seen one gradient and knows nothing about its noise. So the learning rate starts
# near 0 and grows: the warmup. In the middle of the run large steps are good, they cover ground. At the end they only
# jump about around a minimum, so the rate falls along half a cosine (Loshchilov and Hutter 2017) to a small value and
# stays there.
#
# With `it` = 0, 1, 2, … the number of the iteration, W = `warmup` and N = `total`:
#
# | iterations | learning rate |
# |---|---|
# | it < W | $lr_{max} \cdot (it + 1) / (W + 1)$, a straight line |
# | W ≤ it < N | $lr_{min} + \frac12\,(1 + \cos \pi s)\,(lr_{max} - lr_{min})$ with $s = (it - W) / (N - W)$ |
# | it ≥ N | $lr_{min}$ |
#
# The + 1 in the warmup keeps the first step from being 0, which would be a step for nothing. At `it` = W the line has
# reached $lr_{max}$, and there the cosine begins.
#
# For $lr_{max}$ = 0.6, W = 2 and N = 6 the rates begin 0.2, 0.4, 0.6.
#
# <details><summary>Hint 1</summary>
#
# Three branches, a line each, in the order of the table. Each ends with a return.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# s is the share of the way from the end of the warmup to the end of the run. Put s = 0 and s = 1 into the formula by
# hand: the first must give the largest rate, the second the smallest. `math.cos` and `math.pi` are all it takes.
#
# </details>

# %%
@exercise("pytorch.training.cosine_lr")
def cosine_lr(it: int, max_lr: float, min_lr: float, warmup: int, total: int) -> float:
    """Learning rate of one iteration: linear warmup, half a cosine, then min_lr.

    Args:
        it: number of the iteration, 0 for the first.
        max_lr: rate at the end of the warmup.
        min_lr: rate from iteration total on.
        warmup: iterations of warmup, 0 for none.
        total: iteration at which min_lr is reached, more than warmup.

    Returns:
        float. The same for the same arguments, whatever was called before.

    Source: the cosine of Loshchilov and Hutter 2017, "SGDR", without restarts.
    """
    raise NotImplementedError


# %%
check(cosine_lr)

# %%
rates = [cosine_lr(it, 1e-3, 1e-4, 100, 2000) for it in range(2200)]
top = rates.index(max(rates))
print(f"first {rates[0]:.2e}, largest {rates[top]:.2e} at {top}, last {rates[-1]:.2e}")
show.lines({"rate": rates}, "The rate in a run of 2,000 steps", "iteration", "learning rate")

# %% [markdown]
# ## 2. Which way they go: AdamW
#
# Plain gradient descent takes one step size for all parameters. But the gradient of the embedding of a rare symbol is
# far smaller than that of a bias that every position uses. Adam (Kingma and Ba 2015) divides each entry
# by its own typical size. It keeps two running means for each parameter: m of the gradients g, v of their squares.
# At step t = 1, 2, …:
#
# $$m \leftarrow \beta_1 m + (1 - \beta_1)\,g \qquad v \leftarrow \beta_2 v + (1 - \beta_2)\,g^2$$
#
# Both start at 0 and are too small at first: after one step m is $(1 - \beta_1)\,g$. Division by $1 - \beta^t$
# mends that exactly:
#
# $$\hat m = \frac{m}{1 - \beta_1^t} \qquad \hat v = \frac{v}{1 - \beta_2^t} \qquad
# p \leftarrow p - lr \cdot \frac{\hat m}{\sqrt{\hat v} + \epsilon}$$
#
# How much does the correction matter? Let the gradient be 1 at every step. The step should be lr, always.

# %%
beta1, beta2 = 0.9, 0.999
plain = [(1 - beta1**t) / math.sqrt(1 - beta2**t) for t in range(1, 101)]      # m and v as they are
print(f"without the correction: step 1 is {plain[0]:.2f} lr, step 10 is {plain[9]:.2f} lr")
show.lines(
    {"without the correction": plain, "with it": [1.0] * 100},
    "Step size for a constant gradient",
    "step",
    "in units of lr",
    x=range(1, 101),
)

# %% [markdown]
# v is the slower one, so it lags behind more, and the first steps come out several times too large. This is just
# where the model can bear it least.
#
# **Decay.** A weight that is not needed should fade. One way is to add $\lambda p$ to the gradient (L2). Adam then
# divides it by $\sqrt{\hat v}$ like everything else: weights with large gradients fade least, without any reason.
# AdamW (Loshchilov and Hutter 2019) takes the decay off the parameter itself, apart from the gradient:
#
# $$p \leftarrow p - lr \cdot \lambda \cdot p$$
#
# Only matrices decay (2 or more dimensions). A bias or a LayerNorm gain is not large because it overfits, and a gain
# that is pulled to 0 switches its channel off.
#
# | attribute or method | what it is |
# |---|---|
# | `param_groups` | list of dicts `{"params": [...], "lr", "betas", "eps", "weight_decay"}` |
# | `step()` | one update in place of every parameter that has a gradient |
# | `zero_grad()` | clears the gradients of all parameters |
# | `state_dict()` | m, v and t of each parameter and the settings of the groups, as dicts, lists, numbers, tensors |
# | `load_state_dict(saved)` | takes them over; ValueError if groups or parameters do not match in number |
#
# The settings stand in the groups, and `step` reads them there each time. So a schedule only has to write
# `group["lr"]`.
#
# <details><summary>Hint 1</summary>
#
# Begin with `__init__`. Make a list of `params` first, since `model.parameters()` can be gone through only once. If
# its first entry is a dict, the groups are given. If not, make two groups by `p.dim()`, the second with a decay of 0.
# Then fill in what a group does not say: `{**defaults, **group}` prefers the group.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Keep the state in a dict from parameter to `{"step", "m", "v"}`, made at the parameter's first gradient. A key that
# is the parameter itself cannot be mixed up. Each parameter counts its own steps: one whose gradient begins later
# needs its own correction.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `step` runs under `@torch.no_grad()`: the update is no part of a graph. Work in place (`mul_`, `add_`), or the model
# keeps the old tensors. Order: skip if the gradient is None, count, decay, m, v, update.
#
# </details>
#
# <details><summary>Hint 4</summary>
#
# A parameter is no good as a key in a file. In `state_dict` write the states as a list in the order of the groups;
# `load_state_dict` goes through the same order, with `zip(..., strict=True)`, and starts from an empty state.
#
# </details>

# %%
@exercise("pytorch.training.AdamW")
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2).

    Args:
        params: an iterable of parameters: those with 2 or more dimensions decay, the others
            do not. Or a list of dicts {"params": iterable, and any of "lr", "betas", "eps",
            "weight_decay"}, taken as given.
        lr, betas, eps, weight_decay: for groups that do not say otherwise.

    param_groups is a list of dicts with all five keys; step reads the settings there.
    A parameter whose gradient is None is left alone: no decay, no count.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        raise NotImplementedError

    def step(self) -> None:
        raise NotImplementedError

    def zero_grad(self) -> None:
        raise NotImplementedError

    def state_dict(self) -> dict:
        raise NotImplementedError

    def load_state_dict(self, saved: dict) -> None:
        raise NotImplementedError


# %%
check(AdamW)

# %% [markdown]
# A hundred steps of a small GPT beside `torch.optim.AdamW`, from the same weights, on the same batches, with
# two groups each.

# %%
torch.manual_seed(0)
mine = GPT(tiny)
theirs = copy.deepcopy(mine)
settings = {"lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.1}
optimizers = [AdamW(mine.parameters(), **settings), stock_optimizer(theirs, **settings)]
for it in range(100):
    x = torch.randint(81, (4, 16))                                     # (B, T)
    for model, optimizer in zip([mine, theirs], optimizers):
        optimizer.zero_grad()
        model(x, x)[1].backward()
        optimizer.step()
gap = max((p - q).abs().max().item() for p, q in zip(mine.parameters(), theirs.parameters()))
sizes = [len(group["params"]) for group in optimizers[0].param_groups]
print("parameters that decay and that do not:", sizes)
print("furthest apart after 100 steps, within 1e-4:", gap < 1e-4)

# %% [markdown]
# ## 3. A gradient that explodes
#
# Now and then a batch gives a gradient that is ten times as long as usual. One such step can undo a hundred good
# ones. Clipping looks at all gradients as one long vector and shortens it if it is longer than allowed
# (Pascanu et al. 2013):
#
# $$n = \sqrt{\textstyle\sum_p \sum g_p^2} \qquad g_p \leftarrow g_p \cdot \min\left(1, \frac{c}{n + 10^{-6}}\right)$$
#
# All gradients get the same factor, so the direction stays. To clip each tensor or each entry for itself
# would turn the vector. The function returns n, the norm before. It is the best single number to watch: it rises
# before the loss does.
#
# | name | shape | meaning |
# |---|---|---|
# | params | iterable of parameters | some may have no gradient (None) |
# | max_norm | number | c |
# | result | () | n, the norm before clipping |
#
# For gradients `[3.]` and `[[4.]]` and c = 1 the norm is 5, and afterwards they are about `[0.6]` and `[[0.8]]`.
#
# <details><summary>Hint 1</summary>
#
# Collect the gradients that are not None in a list, which you need twice. The sum of squares of each is one number;
# `torch.stack` puts them side by side, so that they can be summed.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Multiply in place (`mul_`), and only if the factor is below 1. A gradient that is short enough is not made longer.
#
# </details>

# %%
@exercise("pytorch.training.clip_grad_norm")
def clip_grad_norm(params, max_norm: float) -> torch.Tensor:
    """Shorten all gradients in place so that their norm, as one vector, is at most max_norm.

    Args:
        params: iterable of parameters, at least one of them with a gradient; those without are
            passed over.
        max_norm: largest norm allowed; with math.inf the norm is only measured.

    Returns:
        () tensor, the norm before clipping, of the gradients' dtype.

    Source: Pascanu et al. 2013; torch.nn.utils.clip_grad_norm_ does the same.
    """
    raise NotImplementedError


# %%
check(clip_grad_norm)

# %%
torch.manual_seed(1)
model = GPT(tiny)
(100 * model(x, x)[1]).backward()                            # a gradient 100 times too long
before = torch.cat([p.grad.flatten() for p in model.parameters()])
norm = clip_grad_norm(model.parameters(), 1.0)
after = torch.cat([p.grad.flatten() for p in model.parameters()])
cosine = (before @ after) / (before.norm() * after.norm())
print(f"norm before above 100: {norm.item() > 100}, after {after.norm():.3f}, cosine {cosine:.3f}")

# %% [markdown]
# ## 4. A big batch in little memory
#
# A big batch has a gradient with less noise. But the forward pass keeps its activations for the backward pass, and
# these grow with the batch. Accumulation uses that `backward` adds to `.grad` and does not replace it: run several
# micro-batches one after the other, and step once.
#
# The loss is a mean over the batch. The mean over everything is the mean of the micro-batches' means if they
# are of one size, so each loss is divided by the number n of micro-batches before its `backward`:
#
# $$\nabla L = \sum_{i=1}^{n} \nabla \frac{L_i}{n}$$
#
# Without the division the gradient is n times too long. AdamW hides this, since it divides by the gradient's size;
# then clipping cuts where it should not, and nobody sees why.
#
# | name | meaning |
# |---|---|
# | model | `model(x, y)` gives `(logits, loss)` |
# | batches | list of n pairs (x, y), each (B, T), all of one size |
# | result | the mean loss over all, a float |
#
# <details><summary>Hint 1</summary>
#
# Three things for each micro-batch: forward, division, backward. After its backward the graph of a micro-batch is
# free, and so is its memory. That is why backward stands inside the loop.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# For the result add up numbers, not tensors: `.item()`. A sum of losses that still hang on their graphs would keep
# them all. Leave `zero_grad` and `step` to the caller.
#
# </details>

# %%
@exercise("pytorch.training.accumulate")
def accumulate(model: nn.Module, batches: list) -> float:
    """Add the gradient of the mean loss over all micro-batches to .grad, one micro-batch at a time.

    Args:
        model: model(x, y) -> (logits, loss), loss the mean over the micro-batch.
        batches: list of pairs (x, y) of equal size.

    Returns:
        float, the mean loss over all micro-batches.

    Adds to gradients that are there; clears nothing, steps nothing, leaves the model's mode alone.
    """
    raise NotImplementedError


# %%
check(accumulate)

# %% [markdown]
# Twelve windows at once, and the same twelve as three times four. The gradient must be the same. The next cell also
# counts what the graph of a loss keeps: PyTorch calls a hook for each tensor that it saves for the backward pass.

# %%
def kept_megabytes(model, x, y):
    """What one forward pass keeps for its backward pass, parameters not counted."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = model(x, y)[1]              # alive until here, so that no address comes twice
    return sum(kept.values()) / 1e6


torch.manual_seed(2)
small = GPTConfig(vocab_size=81, n_ctx=64, n_layer=4, n_head=4, n_embd=128)
model = GPT(small)
x, y = torch.randint(81, (2, 12, 64))                                  # each (B=12, T=64)
loss = model(x, y)[1]
loss.backward()
whole = [p.grad.clone() for p in model.parameters()]
model.zero_grad()
mean_loss = accumulate(model, list(zip(x.split(4), y.split(4))))       # three times (4, 64)
gap = max((p.grad - g).abs().max().item() for p, g in zip(model.parameters(), whole))
print("same loss within 1e-5:", abs(mean_loss - loss.item()) < 1e-5)
print("same gradient within 1e-6:", gap < 1e-6)
share = kept_megabytes(model, x[:4], y[:4]) / kept_megabytes(model, x, y)
print(f"4 windows keep {share:.2f} of what 12 keep")

# %% [markdown]
# A third of the windows keep a third of the memory, and the gradient is the same.
#
# Two things go by the step and not by the micro-batch: the number `it` that the schedule gets, or else the run is
# over n times too early, and the clipping, which has to see the whole gradient.
#
# ## 5. Stop and go on
#
# A run of days is interrupted sooner or later. To go on as if nothing had happened, four things must come back:
#
# | key | what | without it |
# |---|---|---|
# | `"model"` | `model.state_dict()` | all is lost |
# | `"optimizer"` | `optimizer.state_dict()` | m, v and t start at 0: the loss makes a bump |
# | `"it"` | the iteration | the schedule starts again with the warmup |
# | `"rng"` | `torch.get_rng_state()` | other batches come, some windows twice and some never |
#
# The number `it` is stored as it is given. In this lesson it is the number of steps done, so that it is also the
# number of the next one.
#
# **The save itself can be interrupted**, by a full disk or by the end of the job's time. Who writes straight to the
# old file has then neither the old nor the new one. So write to another name in the same folder first. `os.replace`
# then moves the finished file onto the old one, in one step that happens or does not.
#
# <details><summary>Hint 1</summary>
#
# Put the four things into one dict and give it to `torch.save(dict, where)`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `path` may be a str or a Path. An f-string takes both: `f"{path}.tmp"`. After `torch.save` has returned, the file is
# whole.
#
# </details>

# %%
@exercise("pytorch.training.save_checkpoint")
def save_checkpoint(path: str | Path, model: nn.Module, optimizer, it: int) -> None:
    """Write all that a run needs to go on.

    Args:
        path: str or Path. A file that is there already is replaced, at once and only when the new
            one is whole.
        model, optimizer: have state_dict(). They stay as they are.
        it: iteration, kept as given.

    The file is torch.save's, of a dict with "model", "optimizer", "it" and "rng"
    (torch.get_rng_state()), and torch.load(path, weights_only=True) reads it.
    If it cannot be written, the file that was there stays and the error goes on to the caller.
    """
    raise NotImplementedError


# %%
check(save_checkpoint)

# %% [markdown]
# The way back. A file can come from somebody else, and Python's pickle format can hold code that runs when it is
# read. `weights_only=True` lets tensors, numbers and containers through and nothing else. `map_location="cpu"` opens
# a file from a machine with a GPU anywhere; `load_state_dict` copies the numbers to where the model is.
#
# | name | meaning |
# |---|---|
# | path | str or Path of a file that `save_checkpoint` wrote |
# | model, optimizer | already made, of the same sizes; their contents are replaced |
# | result | the iteration that was stored |
#
# <details><summary>Hint 1</summary>
#
# One `torch.load`, then one line for each of the four keys.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `load_state_dict` of model and optimizer fill the tensors that are there, so the optimizer still holds the model's
# own parameters. The random numbers go back with `torch.set_rng_state`; nothing may draw after it.
#
# </details>

# %%
@exercise("pytorch.training.load_checkpoint")
def load_checkpoint(path: str | Path, model: nn.Module, optimizer) -> int:
    """Put a checkpoint back into model, optimizer and PyTorch's random numbers.

    Args:
        path: str or Path of a file that save_checkpoint wrote.
        model, optimizer: have load_state_dict(); the model's mode (train or eval) stays as it is.

    Returns:
        int, the iteration that was stored.

    Raises:
        RuntimeError: the file holds other parameters than the model.
        pickle.UnpicklingError: the file holds more than data.
    """
    raise NotImplementedError


# %%
check(load_checkpoint)

# %% [markdown]
# Ten steps in one go; then five, a save, new objects, a load, and five more. The batches come from PyTorch's random
# numbers, so they count too. To compare, the same with one of the four things left out.

# %%
def ten_steps(interrupted=False, leave_out=None):
    """The model after ten steps on random windows, as one vector."""
    torch.manual_seed(3)
    model = GPT(tiny)
    optimizer = AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    it = 0
    while it < 10:
        if it == 5 and interrupted:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "run.pt"
                save_checkpoint(path, model, optimizer, it)
                torch.manual_seed(99)                        # another day, another process
                model = GPT(tiny)
                optimizer = AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
                fresh, rng = copy.deepcopy(optimizer.state_dict()), torch.get_rng_state()
                it = load_checkpoint(path, model, optimizer)
            if leave_out == "optimizer":
                optimizer.load_state_dict(fresh)
            if leave_out == "rng":
                torch.set_rng_state(rng)
            interrupted = False
        for group in optimizer.param_groups:
            group["lr"] = cosine_lr(0 if leave_out == "it" and it == 5 else it, 1e-2, 1e-3, 3, 10)
        x = torch.randint(81, (4, 16))                                 # (B, T)
        optimizer.zero_grad()
        model(x, x)[1].backward()
        clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()
        it += 1
    return torch.cat([p.detach().flatten() for p in model.parameters()])


straight = ten_steps()
print("resumed, bit for bit the same:", torch.equal(ten_steps(interrupted=True), straight))
for name in ("optimizer", "it", "rng"):
    gap = (ten_steps(interrupted=True, leave_out=name) - straight).abs().max().item()
    print(f"without {name:9} the same: {gap == 0}, further apart than 1e-4: {gap > 1e-4}")

# %% [markdown]
# ## 6. Where batches come from
#
# The plays are encoded once and written to a file, two bytes a token. The file is opened as a memory map, as in
# lesson 01: the operating system reads the pages that are touched and no others. `get_batch` cuts random windows out
# of it.

# %%
folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
text = corpus.load("shakespeare", at_least=65)
tokenizer = CharTokenizer(text)
tokens = save_tokens(Path(folder.name) / "plays.bin", tokenizer.encode(text))   # memory map, uint16
train_tokens, val_tokens = corpus.split(tokens)
print(f"{len(set(text))} symbols in the plays")
print(f"{len(train_tokens):,} tokens to train on, {len(val_tokens):,} to validate")

# %% [markdown]
# PyTorch's own way is a `Dataset`, which knows its length and gives one window for each index, and a `DataLoader`,
# which picks indices, puts windows together to a batch, and can do so in other processes (`num_workers`), so that
# the next batch is ready when the model is. `pin_memory` puts batches into memory that a GPU can fetch by
# itself; without a GPU it does nothing, so it is only asked for where there is one.
#
# Workers get a class that is defined in a notebook only where processes begin as a copy of this one (`fork`, Linux).
# For macOS and Windows put the class into a file. The next cell leaves workers out there.
#
# Predict: which is faster here, and by how much?

# %% tags=["nbval-ignore-output"]
class Windows(torch.utils.data.Dataset):
    """Every window of n_ctx tokens and its targets."""

    def __init__(self, tokens, n_ctx):
        self.tokens, self.n_ctx = tokens, n_ctx

    def __len__(self):
        return len(self.tokens) - self.n_ctx

    def __getitem__(self, start):
        window = self.tokens[start : start + self.n_ctx + 1].astype("int64")
        window = torch.from_numpy(window)                              # (T + 1,)
        return window[:-1], window[1:]


def loader(starts, workers):
    return torch.utils.data.DataLoader(
        Windows(train_tokens, 64),
        batch_size=12,
        sampler=starts,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        multiprocessing_context="fork" if workers else None,
    )


workers = [0, 2] if sys.platform == "linux" else [0]
generator = torch.Generator().manual_seed(4)
starts = torch.randint(len(train_tokens) - 64, (12 * 300,), generator=generator).tolist()
seconds = {}
start = time.perf_counter()
for _ in range(300):
    get_batch(train_tokens, 12, 64)
seconds["get_batch"] = time.perf_counter() - start
batches = {}
for n in workers:
    start = time.perf_counter()
    batches[n] = list(loader(starts, n))
    seconds[f"DataLoader, {n} workers"] = time.perf_counter() - start
for name, value in seconds.items():
    print(f"{name:22} {1e3 * value / 300:6.3f} ms a batch")
milliseconds = {name: 1e3 * value / 300 for name, value in seconds.items()}
show.bars(milliseconds, "A batch of 12 windows of 64", "ms")

# %%
x, y = get_batch(train_tokens, 12, 64, torch.Generator().manual_seed(5))
first_x, first_y = batches[0][0]
print("shapes and dtypes:", x.shape == first_x.shape, x.dtype == first_x.dtype)
for a, b in [(x, y), (first_x, first_y)]:
    print("y is x one step later:", torch.equal(a[:, 1:], b[:, :-1]))
same = all(torch.equal(a[0], b[0]) for n in workers for a, b in zip(batches[0], batches[n]))
print("workers change the process, not the batches:", same)

# %% [markdown]
# A window of characters is two slices and a copy. Packing it up for another process costs more than making it, and
# even without workers the loader's bookkeeping is the larger part. A training step of the model
# below takes far longer than either, so nothing is gained by workers here. They pay where an item is expensive:
# decoding pictures, tokenizing text on the fly. Measure before you add processes.
#
# ## 7. Train
#
# The model has 4 layers of 4 heads, is 128 wide and sees 64 characters. Here is the whole loop. The validation loss
# is taken over 20 batches that are the same every time (their own generator, seed 7), or else its changes would be
# noise of the choice. Under `torch.no_grad` no graph is kept, and `eval` and `train` switch dropout, of which this model has
# none.

# %%
@torch.no_grad()
def validate(model):
    model.eval()
    generator = torch.Generator().manual_seed(7)
    losses = [model(*get_batch(val_tokens, 12, 64, generator))[1].item() for _ in range(20)]
    model.train()
    return sum(losses) / len(losses)


def train(model, optimizer, total, warmup, max_lr=1e-3, min_lr=1e-4, every=50):
    """Train for total steps; gives [(it, loss)] of training and of validation."""
    train_losses, val_losses = [], []
    start = time.perf_counter()
    for it in range(total + 1):
        if it % every == 0:
            val_losses.append((it, validate(model)))
            spent = time.perf_counter() - start
            print(f"step {it:4}  validation loss {val_losses[-1][1]:.3f}  {spent:5.1f} s")
        if it == total:
            return train_losses, val_losses
        for group in optimizer.param_groups:
            group["lr"] = cosine_lr(it, max_lr, min_lr, warmup, total)
        x, y = get_batch(train_tokens, 12, 64)                         # each (B=12, T=64)
        optimizer.zero_grad()
        train_losses.append((it, accumulate(model, [(x, y)])))
        clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()


torch.manual_seed(1337)
config = GPTConfig(vocab_size=len(set(text)), n_ctx=64, n_layer=4, n_head=4, n_embd=128)
model = GPT(config)
untrained = copy.deepcopy(model)
optimizer = AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
first_loss = validate(model)
print(f"parameters {sum(p.numel() for p in model.parameters()):,}")
print(f"ln V = {math.log(config.vocab_size):.2f}, loss before training {first_loss:.2f}")

# %% [markdown]
# The loss before training is close to ln V, as in lesson 06: the model gives every symbol the same chance. If it is
# not, stop here.
#
# To see what the model has learned, a few lines sample from it: take the last position's probabilities, draw a
# symbol, append it. Lesson 08 does this properly.

# %%
@torch.no_grad()
def babble(model, n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.tensor([tokenizer.encode("\n")])                       # (1, 1)
    for _ in range(n):
        logits, _ = model(ids[:, -64:])                                # (1, T, V)
        p = softmax(logits[:, -1], dim=-1)                             # (1, V)
        ids = torch.cat([ids, torch.multinomial(p, 1, generator=generator)], dim=1)
    return tokenizer.decode(ids[0].tolist())


# %% [markdown]
# Now 300 steps, which take well under a minute: a sample before, the training, a sample after, the curve.

# %% tags=["nbval-ignore-output"]
before = babble(untrained, 200)
print(f"before:{before}\n" + "-" * 60)
torch.manual_seed(1)
train_losses, val_losses = train(model, optimizer, total=300, warmup=30)
after = babble(model, 400)
print("-" * 60 + f"\nafter:{after}")
show.lines(
    {
        "training, each step": tuple(zip(*train_losses)),
        "validation": tuple(zip(*val_losses)),
        "ln V": ((0, 300), (math.log(config.vocab_size),) * 2),
    },
    "300 steps on the plays",
    "step",
    "loss (nats per character)",
)

# %%
first, early, final = (val_losses[i][1] for i in (0, 1, -1))
recent = sum(loss for _, loss in train_losses[-20:]) / 20
print("validation loss below 2.8:", final < 2.8)
print("the first 50 steps bring more than half of it:", first - early > (first - final) / 2)
print("training and validation within 0.25:", abs(recent - final) < 0.25)
spaces = [sample.count(" ") / len(sample) for sample in (before, after)]
print("one symbol in 81 is a space before training:", spaces[0] < 0.05)
print("about one in six after it:", 0.08 < spaces[1] < 0.3)

# %% [markdown]
# The loss falls fast while the model learns which symbols are frequent, then slowly while it learns which follow
# which. The training curve is noisy since each point is another batch; the validation curve is not, since its batches
# are always the same. The two run together: 300 steps see 230,000 characters of 4.5 million, so there is nothing to
# learn by heart yet.
#
# Words have lengths, lines have ends, names stand where names stand. Few words exist. That comes with more steps:
# 2,000 of them reach a validation loss of 1.91 in about two minutes on two cores. A notebook is the wrong place for
# long runs. They have a command, which saves checkpoints with your functions and resumes from them:
#
#     python -m course train --help
#
# ### What the heads look at
#
# Lesson 04 looked at the heads of a fresh module and found even rows. Here is the same trick, unit vectors as values,
# on the trained model. For each layer the input of its attention is needed, so the next cell walks through the blocks.
# Then it asks of each of the 16 heads: how much of its weight falls on vowels?

# %%
@torch.no_grad()
def attention_maps(model, line):
    """(n_layer, n_head, T, T) weights of every head for a line of text."""
    ids = torch.tensor([tokenizer.encode(line)])                       # (1, T)
    T = ids.shape[1]
    x = model.wte(ids) + model.wpe(torch.arange(T))                    # (1, T, C)
    maps = []
    for block in model.h:
        q, k, v = block.attn.c_attn(block.ln_1(x)).split(128, dim=-1)
        q, k = split_heads(q, 4), split_heads(k, 4)                    # (1, n_head, T, 32)
        maps.append(attention(q, k, torch.eye(T), causal_mask(T, T))[0])   # (n_head, T, T)
        x = block(x)
    return torch.stack(maps)


line = "the king shall come"
maps = {"fresh": attention_maps(untrained, line), "trained": attention_maps(model, line)}
vowels = [i for i, symbol in enumerate(line) if symbol in "aeiou"]
on_vowels = {name: m[..., vowels].sum(dim=-1).mean(dim=-1) for name, m in maps.items()}
layer, head = divmod(on_vowels["trained"].argmax().item(), 4)         # of (n_layer, n_head)
rows = all(torch.allclose(m.sum(dim=-1), torch.ones(1), atol=1e-5) for m in maps.values())
gain = on_vowels["trained"][layer, head] / on_vowels["fresh"][layer, head]
print("each row sums to 1:", rows)
print("weight on vowels, above 1.5 times the fresh model's:", gain.item() > 1.5)
pictures = {}
for name, m in maps.items():
    share = on_vowels[name][layer, head]
    pictures[f"{name}: {share:.2f} on vowels"] = m[layer, head]        # (T, T)
show.heatmaps(pictures, labels=[c.replace(" ", "_") for c in line])

# %% [markdown]
# The fresh head averages over its past, and vowels get their share of it. The trained one looks mostly for the
# last vowel.
# Nobody told the model that there are vowels. But where the last one stood helps to guess the next letter, and 300
# steps are enough to find that out.
#
# ## 8. Where the time goes
#
# Your GPT is written from primitive operations. `StockGPT` is the same model from PyTorch's own parts: `nn.Linear`,
# `nn.LayerNorm`, a fused attention, a fused gelu, `torch.optim.AdamW`. Both do the same arithmetic, so the
# difference is what your way of writing costs. Predict the ratio.

# %% tags=["nbval-ignore-output"]
torch.manual_seed(6)
own, stock = GPT(config), StockGPT(config)
stock.load_state_dict(own.state_dict())
own_adamw, stock_adamw = AdamW(own.parameters(), lr=1e-3), stock_optimizer(stock)
x, y = get_batch(train_tokens, 12, 64)


def own_step():
    own_adamw.zero_grad()
    own(x, y)[1].backward()
    clip_grad_norm(own.parameters(), 1.0)
    own_adamw.step()


def stock_step():
    stock_adamw.zero_grad()
    stock(x, y)[1].backward()
    torch.nn.utils.clip_grad_norm_(stock.parameters(), 1.0)
    stock_adamw.step()


gap = abs(own(x, y)[1].item() - stock(x, y)[1].item())
timings = timing.measure({"stock parts": stock_step, "yours": own_step}, seconds=4)
print(timing.report(timings))

# %%
print("same loss within 1e-4:", gap < 1e-4)

# %% [markdown]
# The two are not far apart. The profiler says why, operator by operator: it notes each call below Python and
# the time spent in it.

# %% tags=["nbval-ignore-output"]
def operators(step, n=5):
    """{operator: timing.Operator of a step}, the time of inner operators not counted."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(n):
            step()
    found = {}
    for event in profile.key_averages():
        name = event.key.removeprefix("aten::")[:34]
        found[name] = timing.Operator(name, event.count / n, event.self_cpu_time_total / 1e3 / n)
    return found


profiles = {"yours": operators(own_step), "stock": operators(stock_step)}
rows = []
for name in profiles["yours"] | profiles["stock"]:
    a, b = (profiles[p].get(name, timing.Operator(name, 0, 0.0)) for p in ("yours", "stock"))
    times = (round(a.milliseconds, 2), round(b.milliseconds, 2))
    rows.append((name, *times, f"{a.calls:.0f}", f"{b.calls:.0f}"))
rows.sort(key=lambda row: -max(row[1], row[2]))
show.table(rows[:14], ["operator", "yours ms", "stock ms", "yours calls", "stock calls"])
for name, found in profiles.items():
    total = sum(operator.milliseconds for operator in found.values())
    products = sum(found[op].milliseconds for op in ("mm", "addmm", "bmm") if op in found)
    print(f"{name}: {total:.1f} ms a step, {products / total:.0%} of it in matrix products")

# %%
for name, found in profiles.items():
    products = sum(found[op].calls for op in ("mm", "addmm", "bmm") if op in found)
    print(f"{name}: {products:.0f} matrix products a step")
calls = {name: sum(operator.calls for operator in p.values()) for name, p in profiles.items()}
print("yours makes more calls than stock parts:", calls["yours"] > calls["stock"])

# %% [markdown]
# The largest line is the same on both sides: `mm`, the matrix products, which both hand to the same library (in
# `nn.Linear` some of them are called `addmm`, product and bias in one, and those of the attention, your `bmm`, are
# inside its fused operator). The second is yours alone: `mul`, from gelu,
# LayerNorm, softmax and their backward. `mul`, `add`, `exp`, `pow` each read a tensor from memory and write one,
# where a fused kernel such as `gelu` goes through it once. The wider the model, the more the products weigh and the
# less the rest: at 128 channels you pay most for it.
#
# ### Memory that is given back
#
# One part is not arithmetic at all. A step frees its activations at its end. The C library may return that memory to
# the operating system, and the next step asks for it again. Each page of 4 kB then has to be handed out anew when it
# is first touched: a page fault. The course has a switch that asks the C library to keep it, `keep_freed_memory()`.
# It cannot be undone in a process, so the next cell starts two.

# %% tags=["nbval-ignore-output"]
PROGRAM = """
import json, resource, sys, time
from types import SimpleNamespace
import torch
from course import piece
from course.device import keep_freed_memory

kept = sys.argv[1] == "keep" and keep_freed_memory()
GPT, AdamW = piece("pytorch.gpt.GPT"), piece("pytorch.training.AdamW")
torch.manual_seed(0)
model = GPT(SimpleNamespace(vocab_size=81, n_ctx=64, n_layer=4, n_head=4, n_embd=128))
optimizer = AdamW(model.parameters())
x = torch.randint(81, (12, 64))
times, faults = [], []
for _ in range(25):
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    optimizer.zero_grad()
    loss = model(x, x)[1]
    loss.backward()
    optimizer.step()
    times.append(time.perf_counter() - start)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
milliseconds, faults = 1e3 * sorted(times[5:])[10], sum(faults[5:]) / 20
print(json.dumps({"milliseconds": milliseconds, "faults": faults, "loss": loss.item()}))
"""
found = {}
if sys.platform != "win32":                                  # Windows has no module resource
    for setting in ("as it is", "keep"):
        command = [sys.executable, "-c", PROGRAM, setting]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        found[setting] = json.loads(run.stdout)
        ms, faults = found[setting]["milliseconds"], found[setting]["faults"]
        print(f"{setting:9} {ms:6.1f} ms a step, {faults:8.0f} page faults a step")
else:
    print("Page faults are not counted on Windows.")

# %%
losses = [run["loss"] for run in found.values()] or [0.0]
print("same loss after 25 steps, within 1e-4:", max(losses) - min(losses) < 1e-4)

# %% [markdown]
# No number changes. Whether the time does depends on what the process did before: a notebook that once held large
# arrays may keep memory by itself. So measure in a fresh process, as here, and not only in the notebook.
#
# ### torch.compile, piece by piece
#
# `torch.compile` reads a function's operations and writes fused code for them, in C++ on a CPU. That answers the many
# small operators. Its price is the first call, which compiles. For a whole GPT with its backward pass that is tens of
# seconds; the next cell takes three pieces, forward only. The first of them also pays for starting the compiler.

# %% tags=["nbval-ignore-output"]
pieces, compiled_gap = {}, {}
if any(shutil.which(name) for name in ("c++", "g++", "clang++", "cl")):
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder.name      # nothing left over from other days
    x = torch.randn(12, 64, 128)                                       # (B, T, C)
    q = torch.randn(12, 4, 64, 32)                                     # (B, n_head, T, head_dim)
    pieces = {
        "gelu": (gelu, (torch.randn(12, 64, 512),)),
        "LayerNorm": (LayerNorm(128), (x,)),
        "attention": (attention, (q, q, q, causal_mask(64, 64))),
    }
    rows = []
    with torch.no_grad():
        for name, (function, arguments) in pieces.items():
            fast = torch.compile(function)
            versions = {"eager": function, "compiled": fast}
            candidates = {n: partial(version, *arguments) for n, version in versions.items()}
            both = timing.measure(candidates, seconds=0.4)
            ms = [f"{1e3 * both[n].median:.3f}" for n in versions]
            rows.append((name, f"{both['compiled'].first:.1f}", *ms))
            compiled_gap[name] = (fast(*arguments) - function(*arguments)).abs().max().item()
    show.table(rows, ["piece", "first call s", "eager ms", "compiled ms"])
else:
    print("There is no C++ compiler here, so torch.compile has nothing to compile with.")

# %%
print("compiled and eager agree within 1e-5:", all(gap < 1e-5 for gap in compiled_gap.values()))

# %% [markdown]
# Divide the first call by what one call saves, and you know after how many calls it pays. For a long run it does, for
# an experiment of a minute it does not.
#
# ## 9. Nine ways to break it
#
# Each of the following cells produces one failure on purpose and shows what to look at. The model is tiny and each
# run takes a second.

# %%
def train_tiny(lr=1e-2, steps=40, change=None, shift=True, clip=1.0, trained=None, seed=8):
    """Losses of a short run of the tiny model on the plays, with a fault built in."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = GPT(tiny)
    if change:
        change(model)
    params = list(model.parameters()) if trained is None else trained(model)
    optimizer = AdamW(params, lr=lr)
    losses, norms, moved = [], [], []
    for _ in range(steps):
        x, y = get_batch(train_tokens, 8, 32, generator)
        loss = model(x, y if shift else x)[1]
        optimizer.zero_grad()
        loss.backward()
        norms.append(clip_grad_norm(model.parameters(), clip or math.inf).item())
        before = params[0].detach().clone()
        optimizer.step()
        losses.append(loss.item())
        moved.append(((params[0] - before).norm() / before.norm()).item())
    return {"losses": losses, "norms": norms, "moved": moved, "model": model}


good = train_tiny()
print("a good run starts near ln V:", abs(good["losses"][0] - math.log(81)) < 0.3)
print("and falls below 3.6:", good["losses"][-1] < 3.6)

# %% [markdown]
# **The first loss is far from ln V.** The logits are too large: the weights were drawn too wide, or one layer is
# scaled wrongly. Here all weights are 50 times too large, a standard deviation of 1 as PyTorch's own `nn.Embedding`
# has it.

# %%
def too_wide(model):
    for p in model.parameters():
        if p.dim() >= 2:
            p.data.mul_(50)


wide = train_tiny(change=too_wide, steps=1)
print("first loss more than twice ln V:", wide["losses"][0] > 2 * math.log(81))

# %% [markdown]
# **NaN in the first step.** A NaN spreads to everything after it, so the loss says nothing about its origin. Ask
# every module in turn: the first whose result is not finite is where to look. Here one weight is infinite, as after a
# broken load or an overflow in fp16.

# %%
def first_not_finite(model, x):
    """Name of the first module, in the order of their work, whose result is not finite."""
    found = []

    def look(name):
        def hook(module, inputs, result):
            result = result[0] if isinstance(result, tuple) else result
            if not result.isfinite().all():
                found.append(name)

        return hook

    hooks = [module.register_forward_hook(look(name)) for name, module in model.named_modules()]
    model(x)
    for hook in hooks:
        hook.remove()
    return found[0] if found else None


torch.manual_seed(9)
broken = GPT(tiny)
broken.h[1].mlp.c_fc.weight.data[3, 5] = math.inf
x, y = get_batch(train_tokens, 8, 32, torch.Generator().manual_seed(9))
print("loss is nan:", broken(x, y)[1].isnan().item())
print("broken model, first in:", first_not_finite(broken, x))
print("sound model, first in:", first_not_finite(good["model"], x))

# %% [markdown]
# **The loss does not fall.** Look at how far a step moves a weight, as a share of its length. In the good run that is
# more than 1 in 1,000 at every step. Far below, the rate is too small. Exactly 0 for some parameters: the optimizer
# does not have them. Here the rate is 1e-6, and then the optimizer holds only one bias.

# %%
slow = train_tiny(lr=1e-6)
alone = train_tiny(trained=lambda model: [model.ln_f.bias])
for name, run in [("good", good), ("rate 1e-6", slow), ("one bias only", alone)]:
    fell = run["losses"][0] - run["losses"][-1]
    print(f"{name:14} fell by more than 0.5: {fell > 0.5}")
print("a weight moves by more than 1 in 1,000 a step in the good run:", min(good["moved"]) > 1e-3)
print("and by less than 1 in 10,000 at 1e-6:", max(slow["moved"]) < 1e-4)
fresh = train_tiny(steps=1, lr=0.0)["model"]
stuck = sum(torch.equal(p, q) for p, q in zip(alone["model"].parameters(), fresh.parameters()))
print("parameters that never moved in the last run:", stuck, "of", len(list(fresh.parameters())))

# %% [markdown]
# **The loss falls too well.** A loss near 0 on text is no success. The targets are the input itself, the shift is
# missing, and the model learns to copy. Look at a batch: decode x and y and lay them side by side.

# %%
copies = train_tiny(shift=False, steps=80)
print("below 1 nat after 80 steps:", copies["losses"][-1] < 1.0)
x, y = get_batch(train_tokens, 1, 12, torch.Generator().manual_seed(10))
print("x", repr(tokenizer.decode(x[0].tolist())))
print("y", repr(tokenizer.decode(y[0].tolist())))

# %% [markdown]
# **The loss jumps or climbs.** The rate is too large. The norm that `clip_grad_norm` returns shows it. Clipping alone
# does not help: Adam divides by the gradient's size, so the length of its step is lr whatever the gradient is.

# %% tags=["nbval-ignore-output"]
wild = train_tiny(lr=1.0)
print(f"last loss {wild['losses'][-1]:.1f} at lr 1, {good['losses'][-1]:.1f} at lr 0.01")
print(f"largest norm {max(wild['norms']):.0f} at lr 1, {max(good['norms']):.1f} at lr 0.01")
both = {"lr = 0.01": good["losses"], "lr = 1": wild["losses"]}
show.lines(both, "A rate that is too large", "step", "loss")

# %%
print("at lr 1 the loss climbs above ln V:", max(wild["losses"]) > math.log(81) + 1)
print("and gradients are larger:", max(wild["norms"]) > max(good["norms"]))

# %% [markdown]
# **Steps are slow, or their times jump.** Put a clock around each phase. The first step is always slower. After it
# the backward pass takes about twice the forward pass, and data, clipping and the optimizer are small. A phase that
# is out of line is where to look: validation inside the loop, a loader that waits, page faults.

# %% tags=["nbval-ignore-output"]
def phases(n=15):
    """Seconds of each phase of each step."""
    spent = []
    for _ in range(n):
        marks = [time.perf_counter()]
        x, y = get_batch(train_tokens, 12, 64)
        marks.append(time.perf_counter())
        loss = own(x, y)[1]
        marks.append(time.perf_counter())
        own_adamw.zero_grad()
        loss.backward()
        marks.append(time.perf_counter())
        clip_grad_norm(own.parameters(), 1.0)
        marks.append(time.perf_counter())
        own_adamw.step()
        marks.append(time.perf_counter())
        spent.append([b - a for a, b in zip(marks, marks[1:])])
    return torch.tensor(spent)                                         # (n, 5)


spent = phases()
names = ["batch", "forward", "backward", "clip", "step"]
for name, median in zip(names, spent.median(dim=0).values.tolist()):
    print(f"{name:9}{1e3 * median:7.2f} ms")
whole = 1e3 * spent.sum(dim=1)                                         # (n,)
print(f"whole steps: median {whole.median():.1f} ms, slowest {whole.max():.1f} ms")

# %%
x, y = get_batch(train_tokens, 12, 64)                                 # each (B=12, T=64)
print("tokens in each of these steps:", x.numel())

# %% [markdown]
# **Memory grows step by step.** Somebody keeps losses with their graphs, for a plot perhaps. A loss is one number,
# but through its graph it holds every activation of its step. `.item()` lets go. In validation the same is done by
# `torch.no_grad`.

# %%
loss = own(*get_batch(train_tokens, 12, 64))[1]
held = kept_megabytes(own, *get_batch(train_tokens, 12, 64))
with torch.no_grad():
    nothing = kept_megabytes(own, *get_batch(train_tokens, 12, 64))
print("a kept loss still has its graph:", loss.grad_fn is not None)
print(f"one kept loss holds about {held:.0f} MB, under no_grad {nothing:.0f} MB")

# %% [markdown]
# **Runs differ.** With the same seed two runs on one machine are equal bit for bit. If yours are not, something draws
# random numbers that you did not seed: initial weights, batches, dropout. Across machines, or with
# another number of threads, sums are taken in another order, and the last digits differ by right.

# %%
print("same seed, same losses:", train_tiny()["losses"] == good["losses"])
print("another seed, other losses:", train_tiny(seed=11)["losses"] != good["losses"])

# %% [markdown]
# **A bump after a resume.** The optimizer did not come back. Its t starts at 1, and a first step of Adam moves every
# entry by the whole rate, whichever way its one noisy gradient points. Section 5 showed that the run differs; here
# is its loss on one fixed batch, after each step from the resume on.

# %%
def after_resume(with_optimizer, lr=2e-2):
    """Losses on a fixed batch: at the resume after 100 steps, and after each of 12 more."""
    model = copy.deepcopy(good["model"])
    optimizer = AdamW(model.parameters(), lr=lr, betas=(0.9, 0.99))
    generator = torch.Generator().manual_seed(17)
    x_fixed, y_fixed = get_batch(train_tokens, 128, 32, torch.Generator().manual_seed(5))
    losses = []
    for it in range(113):
        if it >= 100:
            with torch.no_grad():
                losses.append(model(x_fixed, y_fixed)[1].item())
        if it == 100 and not with_optimizer:
            optimizer = AdamW(model.parameters(), lr=lr, betas=(0.9, 0.99))
        optimizer.zero_grad()
        accumulate(model, [get_batch(train_tokens, 8, 32, generator)])
        optimizer.step()
    return losses


kept, lost = after_resume(True), after_resume(False)
print("equal at the resume:", kept[0] == lost[0])
print("then higher without the optimizer:", max(lost[1:6]) > max(kept[1:6]))
curves = {"with its optimizer": kept, "without": lost}
show.lines(curves, "A resumed run", "steps after the resume", "loss on a fixed batch")

# %% [markdown]
# The same as a table, to come back to.
#
# | symptom | cause | how to see it | mend |
# |---|---|---|---|
# | first loss far from ln V | weights too wide, a layer scaled wrongly | first loss against ln V | initial standard deviation 0.02, both `c_proj` smaller |
# | NaN in the first step | an infinite weight, a row that is all masked, t = 0 in AdamW | the first module whose result is not finite | that module; subtract the maximum before exp |
# | loss does not fall | rate too small, parameters not in the optimizer, `zero_grad` after `backward` | share by which a step moves a weight; parameters that never move | rate, `model.parameters()`, order of the lines |
# | loss falls near 0 | targets are the inputs | decode x and y side by side | y one step later, the causal mask |
# | loss jumps or climbs | rate too large, no warmup | the norm before clipping | smaller rate, warmup, then clipping |
# | steps slow or jumping | loader, validation or page faults | a clock around each phase, the profiler | the phase that is out of line |
# | memory grows | losses kept with their graphs | what one graph holds | `.item()`, `torch.no_grad` |
# | runs differ | random numbers without a seed, threads | two runs with one seed | seed weights and batches; compare on one machine |
# | bump after a resume | optimizer, iteration or random numbers not restored | five steps, resume, five steps against ten | all four in the checkpoint |

# %%
folder.cleanup()

# %% [markdown]
# ## What you built, what comes next
#
# You built all that stands around a model while it learns: a schedule, AdamW equal to PyTorch's, clipping,
# accumulation with the gradient of the big batch, checkpoints that continue bit for bit and survive an interrupted
# save. You trained your GPT from ln V to something that writes lines with words in them, found that matrix products
# are the largest part of the time, and know nine failures by their look.
#
# The samples came from a loop that computes all positions again for each new character, and drew from all 81
# symbols, the absurd ones too. Lesson 08 does both better: it cuts off what is improbable, and keeps the
# keys and values of the past in a cache.
