# %% [markdown]
# # 16 Port training
#
# The model is ported, and equal. Now it has to learn the same thing. A run of training is a hard test of a port:
# each step starts from what the step before has left, so a small error does not stay small. And here the two
# frameworks think differently. In PyTorch a parameter carries its gradient with it, and an optimizer changes both in
# place. In MindSpore gradients are results of a function, and a compiled step can change nothing but Parameters.
#
# In this lesson you write
#
# 1. `AdamW`: with all that it remembers in Parameters,
# 2. `clip_grad_norm`: which returns gradients and changes none,
# 3. `accumulate`: a sum that nobody keeps for you,
# 4. `sample` and `KVCache`: the same text from the same weights.
#
# Then 50 steps on the same batches give the same loss in both frameworks at every step, a checkpoint of either one goes on
# in the other, and a small model learns to spell.
#
# Time: about 75 minutes. You need the ports of lessons 10 to 15, and `AdamW`, `clip_grad_norm`, `cosine_lr`, `sample` and
# `KVCache` of lessons 07 and 08; for what you have not passed, the reference stands in.
#
# Letters for shapes: B sequences in a batch, T positions, C channels (`n_embd`), V tokens in the vocabulary.

# %%
import math
import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

from course import check, corpus, device, exchange, exercise, parity, piece, setup, show

setup()
import mindspore as ms
from mindspore import mint, nn, ops
from mindspore.experimental import optim

ms.set_device(device.mindspore_target())
ms.runtime.launch_blocking()                              # lesson 10: errors come at their line
linear = piece("mindspore.primitives.linear")
softmax = piece("mindspore.primitives.softmax")
attention = piece("mindspore.attention.attention")
causal_mask = piece("mindspore.attention.causal_mask")
split_heads = piece("mindspore.attention.split_heads")
merge_heads = piece("mindspore.attention.merge_heads")
GPT = piece("mindspore.gpt.GPT")
TorchGPT = piece("pytorch.gpt.GPT")
TorchAdamW = piece("pytorch.training.AdamW")
torch_clip_grad_norm = piece("pytorch.training.clip_grad_norm")
cosine_lr = piece("pytorch.training.cosine_lr")
torch_sample = piece("pytorch.sampling.sample")
CharTokenizer = piece("pytorch.tokens.CharTokenizer")
get_batch = piece("pytorch.tokens.get_batch")

# %% [markdown]
# `mindspore_target()` gives "Ascend" where there is one, and the cells below then run on it. Nothing in this lesson was run on
# an Ascend; all numbers that you see come from a CPU.
#
# ## 1. AdamW
#
# MindSpore has several optimizers whose names promise AdamW. Let each take one step, from the same parameter 1.0, with the
# same gradient 1.0 and a learning rate of 0.1. AdamW's first step is the rate itself: m and v, the means of the gradients
# and of their squares (lesson 07), are corrected for their start at 0, and after one gradient g they are g and $g^2$, so that
# $g/\sqrt{g^2}$ is 1.
# Predict before you run: who takes a step of 0.1?

# %%
def parameter(value, name="layer.weight"):
    return ms.Parameter(ms.Tensor([[value]], ms.float32), name=name)   # (1, 1), a matrix


def moved(optimizer_of, gradient, start=1.0):
    """How far the first step goes: the parameter before it minus the parameter after it."""
    p = parameter(start)
    optimizer_of([p])((ms.Tensor([[gradient]], ms.float32),))
    return start - float(p.asnumpy()[0, 0])


print(f"nn.AdamWeightDecay         {moved(lambda p: nn.AdamWeightDecay(p, 0.1), 1.0):.3f}")
print(f"mint.optim.Adam            {moved(lambda p: mint.optim.Adam(p, 0.1), 1.0):.3f}")
adamw_of = lambda p: optim.AdamW(p, 0.1, weight_decay=0.0)
print(f"experimental.optim.AdamW   {moved(adamw_of, 1.0):.3f}")

# %% [markdown]
# - `nn.AdamWeightDecay` does not divide m and v by $1-\beta^t$. Its first step is $0.1/\sqrt{0.001}$ times the rate, more than
#   three times too large. Its eps is 1e-6, and its weight decay goes by names: those with "beta" or "gamma" in them are spared, a
#   bias is not.
# - `mint.optim.Adam` moves nothing on a CPU, and says nothing. It writes with operations such as `add_`, which in eager mode on
#   a CPU give the right value and leave the tensor as it was (lesson 10).
# - `mindspore.experimental.optim.AdamW` is AdamW.
#
# And `nn.Adam(weight_decay=...)`? A gradient of 0 tells: AdamW takes lr · weight_decay = 1 % off the parameter.

# %%
l2 = moved(lambda p: nn.Adam(p, 0.1, weight_decay=0.1), 0.0)
decoupled = moved(lambda p: optim.AdamW(p, 0.1, weight_decay=0.1), 0.0)
print(f"nn.Adam(weight_decay=0.1)  {l2:.3f}")
print(f"AdamW(weight_decay=0.1)    {decoupled:.3f}")

# %% [markdown]
# Ten times as much: the decay is added to the gradient (L2), then divided by $\sqrt v$, and so becomes a full step,
# however small it was.
#
# Yours is written by the formulas of lesson 07, with g the gradient, $\eta$ the learning rate, $\lambda$ the weight decay,
# $\beta_1$, $\beta_2$ and $\epsilon$ the settings `betas` and `eps`, and t the number of the step, from 1:
#
# $$m \leftarrow \beta_1 m + (1-\beta_1)\,g \qquad v \leftarrow \beta_2 v + (1-\beta_2)\,g^2$$
#
# $$p \leftarrow p\,(1 - \eta\lambda) - \eta\,\frac{m/(1-\beta_1^t)}{\sqrt{v/(1-\beta_2^t)} + \epsilon}$$
#
# | PyTorch, lesson 07 | here |
# |---|---|
# | `optimizer.step()` reads `p.grad` | `optimizer.step(grads)`: gradients in the order of the parameters |
# | `param_groups` hold lr | `optimizer.lr`, a Parameter; `set_lr(lr)` writes it |
# | `state[p]` holds step, m, v | `optimizer.t`, `optimizer.m`, `optimizer.v`, Parameters |
# | `p.mul_(...)`, `p.addcdiv_(...)` | compute the new value, then `ops.assign(p, value)` |
# | groups with and without decay | a list of decays: `weight_decay` for 2 or more dimensions, 0 for the others |
#
# **Why Parameters.** `ms.jit` reads your step once and builds a graph. A Python number on `self`, such as a counter t, is
# written into that graph as the constant that it was at that time. A tensor on `self` likewise. Only Parameters are memory that
# the graph reads anew, and writes to, at each call. A counter in a Python number works in eager mode. In graph mode it is an
# error at best, and a bias correction that stands still at worst.
#
# **Why assign.** There are three ways to put a number into a Parameter, and they are not the same. `p = value` names
# another tensor. `p.set_data(value)` gives the Parameter *new memory*: eager code sees it, a graph that is compiled
# already goes on with the old. `ops.assign(p, value)` writes into the memory that is there, in both modes.
#
# <details><summary>Hint 1</summary>
#
# `ms.ParameterTuple(params)` holds all parameters, and its method `clone(prefix, init="zeros")` makes as many new ones of the
# same shapes. With the prefix "m" the clone of `wte.weight` is named `m.wte.weight`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `ops.assign` returns the new value. So a line may both write m and give you the m to go on with. Count t first, and use what
# that assignment returned.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# A loop over `range(len(self.params))` is unrolled when the graph is built, and costs nothing later. The lists that hold Python
# numbers, such as the decays, may be plain lists: they never change.
#
# </details>

# %%
@exercise("mindspore.training.AdamW")
class AdamW(nn.Cell):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2).

    Args:
        params: list of Parameters; those with 2 or more dimensions decay, the others do not.
        lr, betas, eps, weight_decay: as in PyTorch.

    Attributes, all of them Parameters or tuples of Parameters:
        lr, t: one float32 number each, of shape (), t the steps done.
        m, v: one for each parameter, named "m." or "v." and its name; they start at 0.

    step(grads): one update with gradients in the order of params, which are not changed.
        Works in eager mode and inside ms.jit, with no .asnumpy() on the way. Returns t.
    set_lr(lr): a new learning rate, also for a step that is compiled already.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        raise NotImplementedError

    def step(self, grads):
        raise NotImplementedError

    def set_lr(self, lr):
        raise NotImplementedError


# %%
check(AdamW)

# %% [markdown]
# Yours, `experimental.optim.AdamW` and `nn.AdamWeightDecay` for 20 steps beside `torch.optim.AdamW`:

# %%
rng = np.random.default_rng(0)
start = rng.standard_normal((5, 3)).astype(np.float32)
gradients = rng.standard_normal((20, 5, 3)).astype(np.float32)
settings = {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}


def twenty_steps(optimizer_of):
    p = ms.Parameter(ms.Tensor(start), name="layer.weight")
    step = optimizer_of([p])
    for g in gradients:
        step((ms.Tensor(g),))
    return p


theirs = torch.nn.Parameter(torch.from_numpy(start.copy()))
torch_optimizer = torch.optim.AdamW([theirs], **settings)
for g in gradients:
    theirs.grad = torch.from_numpy(g)
    torch_optimizer.step()
yours = twenty_steps(lambda p: AdamW(p, **settings).step)
builtin = twenty_steps(lambda p: optim.AdamW(p, **settings))
old = twenty_steps(lambda p: nn.AdamWeightDecay(p, 1e-2, 0.9, 0.99, 1e-8, 0.1))
print("yours within 1e-6:", parity.largest_difference(yours, theirs) < 1e-6)
same = parity.largest_difference(builtin, theirs) < 1e-6
print("experimental.optim.AdamW within 1e-6:", same)
off = parity.largest_difference(old, theirs)
print(f"nn.AdamWeightDecay with the same settings is off by {off:.2f}")

# %% [markdown]
# ## 2. A gradient that explodes
#
# In PyTorch clipping changed `.grad` in place. Gradients are values here: the scaled ones come back, beside the norm.
#
# | name | shape | meaning |
# |---|---|---|
# | grads | tuple of tensors | as `value_and_grad` gives them |
# | max_norm | number | the bound |
# | result | (tuple of tensors, tensor of shape ()) | scaled gradients, and the norm **before** |
#
# $$\text{norm} = \sqrt{\textstyle\sum_i \sum g_i^2} \qquad g_i \leftarrow g_i \cdot \min\left(1, \frac{\text{max\_norm}}{\text{norm} + 10^{-6}}\right)$$
#
# A norm that is read with `.asnumpy()` makes the host wait in the middle of a step, and a Python number that comes from it is
# not part of the graph. Stay with tensors: `ops.minimum` decides inside the graph.
#
# <details><summary>Hint 1</summary>
#
# A list of the sums of squares, one tensor of shape () for each gradient. `ops.stack` makes one tensor of them, which can
# be summed.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The scale is one tensor for all gradients. The result is a new tuple.
#
# </details>

# %%
@exercise("mindspore.training.clip_grad_norm")
def clip_grad_norm(grads, max_norm: float):
    """Scale gradients so that their norm, as one vector, is at most max_norm.

    Source: Pascanu et al. 2013.

    Args:
        grads: tuple of tensors of any shapes. Not changed.
        max_norm: the bound, a number.

    Returns:
        (tuple of new tensors, norm before as a tensor of shape ()); works inside ms.jit,
        with no .asnumpy() on the way.
    """
    raise NotImplementedError


# %%
check(clip_grad_norm)

# %% [markdown]
# MindSpore's own is `ops.clip_by_global_norm`. It gives the gradients and keeps the norm to itself, which is what you want to
# see in a log.

# %%
grads = tuple(ms.Tensor(3 * rng.standard_normal(s).astype(np.float32)) for s in [(3, 4), (5,)])
scaled, norm = clip_grad_norm(grads, 1.0)
theirs = ops.clip_by_global_norm(grads, 1.0)
same = [parity.largest_difference(a, b) < 1e-6 for a, b in zip(scaled, theirs)]
print(f"norm before {float(norm.asnumpy()):.2f}, same as ops.clip_by_global_norm:", all(same))

# %% [markdown]
# ### The step
#
# Forward, backward, clip and update in one function, and that function under `ms.jit`:
#
# - `ms.value_and_grad(loss_of, None, params)` differentiates to the parameters, and gives gradients in their order.
# - `ops.depend(loss, done)` gives the loss, and ties it to the update: whoever has read the loss knows that the step is over. In a
#   graph, order in the text is no order in time. Without it an operation that nobody needs may be dropped. (Assignments to
#   Parameters are kept in this version, as a cell below shows; do not build on it.)
#
# The setting is that of lesson 07: two groups, clipping at 1, warmup and cosine. `cosine_lr` has no framework in it, so the one
# of lesson 07 serves both. The models are two layers of 64 channels with equal weights.

# %%
config = SimpleNamespace(vocab_size=81, n_ctx=32, n_layer=2, n_head=4, n_embd=64)
settings = {"lr": 1e-3, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}


def twins():
    """A PyTorch GPT and its port with the same weights, and an optimizer for each."""
    torch.manual_seed(0)
    theirs, mine = TorchGPT(config), GPT(config)
    parity.carry(theirs, mine)
    torch_optimizer = TorchAdamW(theirs.parameters(), **settings)
    return theirs, torch_optimizer, mine, AdamW(mine.trainable_params(), **settings)


def torch_step(model, optimizer, x, y, lr):
    for group in optimizer.param_groups:
        group["lr"] = lr
    _, loss = model(torch.from_numpy(x), torch.from_numpy(y))
    optimizer.zero_grad()
    loss.backward()
    torch_clip_grad_norm(list(model.parameters()), 1.0)
    optimizer.step()
    return loss.item()


def gradients_for(model):
    """(x, y) -> (loss, gradients in the order of trainable_params)."""

    def loss_of(x, y):
        return model(x, y)[1]

    return ms.value_and_grad(loss_of, None, model.trainable_params())


def step_for(model, optimizer, jit=True):
    value_and_grad = gradients_for(model)

    def step(x, y):
        loss, grads = value_and_grad(x, y)
        grads, norm = clip_grad_norm(grads, 1.0)
        return ops.depend(loss, optimizer.step(grads))

    return ms.jit(step) if jit else step


def run(step, optimizer, x, y, lr):
    """One step; ids in int32, and the loss as a float."""
    optimizer.set_lr(lr)
    return float(step(ms.Tensor(x, ms.int32), ms.Tensor(y, ms.int32)).asnumpy())


# %% [markdown]
# 50 steps on the same batches of Shakespeare: PyTorch, and MindSpore under `ms.jit`; the first 10 in eager mode too. Predict
# before you run: after 50 steps, will the two losses agree in three digits, in five, or in all?

# %%
text = corpus.load("shakespeare")
tokenizer = CharTokenizer(text)
tokens = np.array(tokenizer.encode(corpus.split(text)[0]), dtype=np.uint16)
generator = torch.Generator().manual_seed(1)
batches = [get_batch(tokens, 24, config.n_ctx, generator=generator) for _ in range(50)]
batches = [(x.numpy(), y.numpy()) for x, y in batches]          # each (B=24, T=32) int64
rates = [cosine_lr(it, max_lr=1e-3, min_lr=1e-4, warmup=10, total=50) for it in range(50)]

theirs, torch_optimizer, mine, optimizer = twins()
step = step_for(mine, optimizer)
curves = {"PyTorch": [], "MindSpore, graph": []}
for (x, y), lr in zip(batches, rates):
    curves["PyTorch"].append(torch_step(theirs, torch_optimizer, x, y, lr))
    curves["MindSpore, graph"].append(run(step, optimizer, x, y, lr))

_, _, model, eager_optimizer = twins()
eager_step = step_for(model, eager_optimizer, jit=False)
pairs = zip(batches[:10], rates)
eager = [run(eager_step, eager_optimizer, x, y, lr) for (x, y), lr in pairs]

# %%
gap = np.abs(np.subtract(*curves.values()))
print("loss of the first and the last step:", *(f"{curves['PyTorch'][i]:.3f}" for i in (0, -1)))
print("graph: all 50 losses within 1e-5 of PyTorch's:", gap.max() < 1e-5)
eager_gap = np.abs(np.subtract(eager, curves["PyTorch"][:10]))
print("eager: the first 10 within 1e-5:", eager_gap.max() < 1e-5)
print("t after 50 steps:", int(optimizer.t.asnumpy()))
show.lines(curves, "Two frameworks, one curve", "step", "loss")

# %% [markdown]
# One curve hides the other. The difference itself is a curve too. Rounding in another order leaves a few units in the last place
# of a float32 near 4, which are 4.8e-7 each. With these rates it stays small. It need not: every step starts from what the
# step before has left.

# %%
print("largest difference below 1e-5:", gap.max() < 1e-5)
show.lines({"difference": gap}, "What rounding leaves", "step", "difference of the losses")

# %% [markdown]
# The learning rate was another one in each step, and nothing was compiled again: the number lives in a Parameter. Here is what
# happens to the one who writes it with `set_data`. Both set the rate to 0, so that a compiled step should move nothing. One
# parameter is enough to see it.

# %%
def compiled_step(tie=True):
    """A compiled step for one parameter of 1.0, the parameter, and its optimizer."""
    p = parameter(1.0)
    optimizer = AdamW([p], lr=0.1)

    def step(x):
        loss, grads = ms.value_and_grad(lambda x: (p * x).sum(), None, [p])(x)
        if tie:
            return ops.depend(loss, optimizer.step(grads))
        optimizer.step(grads)
        return loss

    return ms.jit(step), p, optimizer


x = ms.Tensor([[2.0]])
for name, write in [("set_data", lambda p, new: p.set_data(new)), ("ops.assign", ops.assign)]:
    step_of_one, p, small_optimizer = compiled_step()
    step_of_one(x).asnumpy()                                  # compiled here
    write(small_optimizer.lr, ms.Tensor(0.0, ms.float32))
    before = p.asnumpy()[0, 0]
    step_of_one(x).asnumpy()
    change = p.asnumpy()[0, 0] - before
    lr = float(small_optimizer.lr.asnumpy())
    print(f"{name}: lr reads {lr}, p moves by {abs(change):.2f}")

# %% [markdown]
# After `set_data` the Parameter shows 0.0, and the compiled step goes on with the rate it had. The same holds for weights: whoever
# loads a checkpoint with `set_data` while a compiled step is in use trains the old weights, and looks at the new. Compile
# anew, or assign.
#
# Now leave `ops.depend` out, and see whether the update is dropped:

# %%
step_of_one, p, small_optimizer = compiled_step(tie=False)
step_of_one(x).asnumpy()
print("steps that were done:", int(small_optimizer.t.asnumpy()))

# %% [markdown]
# ## 3. A big batch in little memory
#
# In PyTorch `backward` adds to `.grad`, and accumulation was a matter of not clearing it. Here each call of `value_and_grad` gives
# gradients of its own. The sum is yours to keep.
#
# | name | shape | meaning |
# |---|---|---|
# | value_and_grad | (x, y) -> (loss, grads) | as `ms.value_and_grad` makes it |
# | batches | list of pairs (x, y) | micro-batches of one size |
# | result | (loss, grads) | the mean loss, and the gradients of the batch that they make up |
#
# The mean over all windows is the mean of the micro-batches' means, so both loss and gradients are divided by the number of
# micro-batches, once.
#
# <details><summary>Hint 1</summary>
#
# Before the first micro-batch there is no sum, and you do not know the shapes. Let the sums be None, and begin with the first
# gradients.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Two tuples are added entry by entry, with `zip`. A new list each time: in `for s, g in zip(sums, grads): s += g` the name s
# gets the sum, and the list keeps what it had. And `sums + grads` makes one long tuple of two.
#
# </details>

# %%
@exercise("mindspore.training.accumulate")
def accumulate(value_and_grad, batches):
    """Loss and gradients of a big batch, from micro-batches one at a time.

    Args:
        value_and_grad: (x, y) -> (loss of shape (), tuple of gradients).
        batches: list of (x, y), micro-batches of one size, at least one.

    Returns:
        (mean loss as a tensor of shape (), tuple of gradients); works inside ms.jit,
        with no .asnumpy() on the way.
    """
    raise NotImplementedError


# %%
check(accumulate)

# %% [markdown]
# 24 windows at once, and as three times eight:

# %%
value_and_grad = gradients_for(mine)
x, y = (ms.Tensor(a, ms.int32) for a in batches[0])
micro_batches = [(x[i : i + 8], y[i : i + 8]) for i in (0, 8, 16)]
loss, grads = accumulate(value_and_grad, micro_batches)
want_loss, want = value_and_grad(x, y)
print("loss within 1e-5:", parity.largest_difference(loss, want_loss) < 1e-5)
worst = max(parity.relative_difference(a, b) for a, b in zip(grads, want))
print("every gradient within 1e-5 of its largest value:", worst < 1e-5)

# %% [markdown]
# ## 4. A checkpoint for both
#
# A checkpoint is weights, m, v, the step count and the iteration. None of these is a matter of framework. safetensors is a file of
# named arrays with a small header, and both sides read it. Names and shapes are equal, since the port has GPT-2's names
# and stores linear weights (out, in) as PyTorch does. So one format serves both:
#
# | in the file | |
# |---|---|
# | `model.wte.weight`, ... | the weights; the tied head is no tensor of its own |
# | `m.wte.weight`, `v.wte.weight`, ... | AdamW's moments |
# | header: `it`, `t` | iteration, steps done |
#
# This is the MindSpore side. `ms.load_param_into_net` does not raise when a name is missing, and `set_data` takes any shape:
# both are tested here before anything is changed. The PyTorch side is `course.exchange`.

# %%
def save_checkpoint(path, model, optimizer, it):
    """Write weights, m, v, t and it; an interrupted save leaves the old file whole."""
    tensors = {f"model.{p.name}": p.asnumpy() for p in model.trainable_params()}
    tensors |= {p.name: p.asnumpy() for p in (*optimizer.m, *optimizer.v)}
    unfinished = Path(f"{path}.tmp")
    header = {"it": str(it), "t": str(int(optimizer.t.asnumpy()))}
    save_file(tensors, unfinished, metadata=header)
    os.replace(unfinished, path)


def load_checkpoint(path, model, optimizer):
    """Put what save_checkpoint wrote into model and optimizer; returns it."""
    targets = {f"model.{p.name}": p for p in model.trainable_params()}
    targets |= {p.name: p for p in (*optimizer.m, *optimizer.v)}
    with safe_open(path, framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        header = file.metadata()
    if targets.keys() != tensors.keys():
        names = sorted(targets.keys() ^ tensors.keys())
        raise ValueError(f"these names do not fit: {names[:3]}")
    for name, p in targets.items():
        if tensors[name].shape != p.shape:
            raise ValueError(f"{name} is {tensors[name].shape} in the file and {p.shape} here")
    for name, p in targets.items():
        ops.assign(p, ms.Tensor(tensors[name]))               # a compiled step sees it too
    ops.assign(optimizer.t, ms.Tensor(float(header["t"]), ms.float32))
    return int(header["it"])


# %% [markdown]
# The run of 50 steps goes on. MindSpore saves, PyTorch loads into a fresh model, and both take ten more steps. m, v and t go along, so
# the losses must stay together: without them AdamW would start anew, and the first steps would show it. Then the other way: PyTorch
# saves, and MindSpore loads, into the step that is compiled already and that has meanwhile gone astray.

# %%
def go_on(theirs, torch_optimizer, first):
    """Largest difference of the losses of both frameworks in ten steps."""
    gaps = []
    for (x, y), lr in zip(batches[first : first + 10], rates[first:]):
        a = torch_step(theirs, torch_optimizer, x, y, lr)
        gaps.append(abs(a - run(step, optimizer, x, y, lr)))
    return max(gaps)


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "run.safetensors")

    save_checkpoint(path, mine, optimizer, 50)
    torch.manual_seed(5)
    theirs = TorchGPT(config)
    torch_optimizer = TorchAdamW(theirs.parameters(), **settings)
    it = exchange.load_pytorch(path, theirs, torch_optimizer)
    worst = go_on(theirs, torch_optimizer, 10)
    print(f"MindSpore to PyTorch, from it = {it}: losses within 1e-5:", worst < 1e-5)

    exchange.save_pytorch(path, theirs, torch_optimizer, 60)
    for x, y in batches[:3]:
        run(step, optimizer, x, y, 3e-2)                      # astray
    it = load_checkpoint(path, mine, optimizer)
    worst = go_on(theirs, torch_optimizer, 20)
    print(f"PyTorch to MindSpore, from it = {it}: losses within 1e-5:", worst < 1e-5)

    model = GPT(SimpleNamespace(**{**vars(config), "n_embd": 32}))
    try:
        load_checkpoint(path, model, AdamW(model.trainable_params()))
    except ValueError as error:
        print("another config:", error)

# %% [markdown]
# ## 5. Sampling
#
# `sample` of lesson 08 is Python around one call of the model, and needs little porting. What differs:
#
# | PyTorch, lesson 08 | here |
# |---|---|
# | `torch.Generator` | `numpy.random.Generator`, in `draw` |
# | `torch.no_grad()` | nothing: gradients are computed only where `value_and_grad` asks |
# | `model.eval()`, `model.train(mode)` | `model.set_train(False)`, `model.set_train(mode)` |
# | ids int64 | `ops.argmax` and `draw` must agree with `idx` in dtype: int64 |
# | `logits.topk`, `.sort`, `.scatter`, `torch.cat(dim=)` | `ops.topk`, `ops.sort`, `ops.scatter`, `ops.cat(axis=)` |
#
# A draw by the global state of one framework cannot be repeated in another. NumPy's generator can: `draw` lays the probabilities
# of a row end to end and looks where a uniform number falls.
#
# Your filters of lesson 08, ported. Compare them line by line with yours.

# %%
def keep_top_k(logits, k):
    """(..., V) -> (..., V): the k largest of each row, -inf for the rest."""
    k = min(k, logits.shape[-1])                              # ops.topk refuses k > V
    kth = ops.topk(logits, k)[0][..., -1:]                    # (..., 1)
    return logits.masked_fill(logits < kth, -math.inf)


def keep_top_p(logits, p):
    """(..., V) -> (..., V): the fewest likeliest tokens that reach p, -inf for the rest."""
    if p >= 1:
        return logits
    ordered, order = ops.sort(logits, axis=-1, descending=True)   # (..., V) each
    probs = softmax(ordered, dim=-1)
    before = ops.cumsum(probs, axis=-1) - probs
    ordered = ordered.masked_fill(before >= p, -math.inf)
    return ops.scatter(ops.zeros_like(logits), -1, order, ordered)


def next_logits(model, idx, cache=None):
    """(B, V): what the model expects after idx; with a cache, only new columns are computed."""
    n_ctx = model.config.n_ctx
    if cache is None:
        return model(idx[:, -n_ctx:])[0][:, -1]
    if idx.shape[1] > n_ctx:                                  # the window slides
        cache.reset()
        idx = idx[:, -n_ctx:]
    return cache.forward(idx[:, cache.length :])[:, -1]


def draw(probs, generator):
    """(B, V) -> (B, 1) int64: a token for each row, by numpy.random.Generator."""
    probs = probs.asnumpy().astype(np.float64)
    edges = probs.cumsum(axis=-1)                             # (B, V)
    u = generator.random((len(probs), 1)) * edges[:, -1:]
    return ms.Tensor((edges <= u).sum(axis=-1, keepdims=True))


row = ms.Tensor([[2.0, 0.5, 1.0, 3.0]])
print("top-k 2:  ", keep_top_k(row, 2).asnumpy()[0])
print("top-p 0.8:", keep_top_p(row, 0.8).asnumpy()[0])

# %% [markdown]
# Now the loop.
#
# <details><summary>Hint 1</summary>
#
# Reset the cache if there is one, make a generator with `np.random.default_rng()` if there is none, keep `model.training`, and
# switch it off. At the end, hand it back.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Inside the loop: logits of the last position; for temperature 0 the index of the largest, with the axis kept and in int64; else
# divide by the temperature, filter by k, filter by p, softmax, draw. Then put the new column behind idx along axis 1.
#
# </details>

# %%
@exercise("mindspore.sampling.sample")
def sample(
    model, idx, max_new_tokens: int, temperature: float = 1.0, top_k: int | None = None,
    top_p: float | None = None, generator=None, cache=None,
):
    """Continue a text, one drawn token at a time.

    Args:
        model: gives (logits (B, T, V), loss); has config.n_ctx, training and set_train(mode).
        idx: (B, T) int32 or int64, T at least 1, may be longer than n_ctx. Not changed.
        max_new_tokens: how many tokens are added, 0 or more.
        temperature: the logits are divided by it, before the filters; 0 takes the likeliest.
        top_k, top_p: given to keep_top_k, then keep_top_p; None leaves a filter out.
        generator: numpy.random.Generator for draw; None makes a new one, unseeded.
        cache: None, or a KVCache of this model; the text is the same. It is reset first.

    Returns:
        (B, T + max_new_tokens) int64: idx, and the new tokens behind it.
    """
    raise NotImplementedError


# %%
check(sample)

# %% [markdown]
# ### The cache
#
# The cache of lesson 08 wrote new keys into a buffer, in place. Here they are joined: `ops.cat` along the time axis makes a new tensor
# at each step. (A slice that is assigned works too, and costs a copy of its own.) All else is as it was: positions from `length`
# on, a mask of T queries by `length + T` keys, `length` advanced once, after the last layer.
#
# Graph mode does not help a cache like this: its shapes grow with each token, and every new shape is compiled anew. Lesson 21
# writes one whose shapes stay.
#
# <details><summary>Hint 1</summary>
#
# Take your `forward` of lesson 08 and change words: `split(..., axis=-1)`, `ops.arange(start, end)`, `ops.cat((old, new), axis=2)`.
# There is no device to move a mask to.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `linear(x, model.wte.weight)` is the head: the tied table.
#
# </details>

# %%
@exercise("mindspore.sampling.KVCache")
class KVCache:
    """Keys and values of the positions that a GPT has seen.

    Args:
        model: a GPT with GPT-2's names; it is not changed.

    Attributes:
        length: int, how many positions are held.

    reset(): forget everything; the next prompt may have another batch size.
    append(layer, k, v): keep the new keys and values (B, n_head, T, head_dim) of a layer, and
        return all that it holds, each (B, n_head, length + T, head_dim).
    forward(idx): (B, T) new tokens -> (B, T, V), the logits that the model gives at these
        positions for everything fed since the last reset. Several tokens may come at any time.
        ValueError if length + T exceeds n_ctx, and nothing is changed then.
    """

    def __init__(self, model):
        raise NotImplementedError

    def reset(self):
        raise NotImplementedError

    def append(self, layer: int, k, v):
        raise NotImplementedError

    def forward(self, idx):
        raise NotImplementedError


# %%
check(KVCache)

# %% [markdown]
# ### Train, and write
#
# The same compiled step goes on where the checkpoints have left it: 400 steps more, with a larger rate. The text will be
# poor. Lesson 07 trained a larger model, and longer.

# %% tags=["nbval-ignore-output"]
generator = torch.Generator().manual_seed(0)
losses = []
begin = time.perf_counter()
for it in range(400):
    lr = cosine_lr(it, max_lr=1e-2, min_lr=1e-3, warmup=20, total=400)
    x, y = get_batch(tokens, 24, config.n_ctx, generator=generator)   # (B=24, T=32) each
    losses.append(run(step, optimizer, x.numpy(), y.numpy(), lr))
seconds = time.perf_counter() - begin
print(device.banner())
print(f"{1e3 * seconds / 400:.0f} ms a step, loss {np.mean(losses[-50:]):.2f}")
prompt = ms.Tensor([tokenizer.encode("\nKING")])
written = sample(mine, prompt, 200, temperature=0.7, generator=np.random.default_rng(0))
print(tokenizer.decode(written.asnumpy()[0].tolist()))
curve = curves["MindSpore, graph"] + losses
show.lines({"MindSpore, graph": curve}, "A small GPT on Shakespeare", "step", "loss")

# %%
print("mean loss of the last 50 steps below 2.5:", np.mean(losses[-50:]) < 2.5)

# %% [markdown]
# The weights go to PyTorch through a checkpoint, and both write. At temperature 0 there is no chance in it: the texts must be
# equal, cached and not, in both frameworks, also past n_ctx = 32.

# %%
cache = KVCache(mine)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "run.safetensors")
    save_checkpoint(path, mine, optimizer, 470)
    exchange.load_pytorch(path, theirs, torch_optimizer)

plain = sample(mine, prompt, 60, temperature=0).asnumpy()
cached = sample(mine, prompt, 60, temperature=0, cache=cache).asnumpy()
in_torch = torch_sample(theirs, torch.from_numpy(prompt.asnumpy()), 60, temperature=0).numpy()
print("cached text equals uncached text:", np.array_equal(plain, cached))
print("and PyTorch's:", np.array_equal(plain, in_torch))
idx, gap = prompt, 0.0
cache.reset()
for _ in range(config.n_ctx + 8):
    a, b = next_logits(mine, idx), next_logits(mine, idx, cache)     # (1, V) each
    gap = max(gap, parity.largest_difference(a, b))
    idx = ops.cat((idx, ops.argmax(a, -1, True)), axis=1)
print(f"logits at each of {config.n_ctx + 8} steps within 1e-4:", gap < 1e-4)

# %% [markdown]
# And what does it win? A larger model with a prompt of 200 tokens, untrained, 10 tokens each way. Predict before you run:
# a forward pass computes 200 positions without the cache and one with it. Is it 200 times faster?

# %% tags=["nbval-ignore-output"]
large = GPT(SimpleNamespace(vocab_size=81, n_ctx=256, n_layer=6, n_head=6, n_embd=384))
cache = KVCache(large)
idx = ms.Tensor(rng.integers(0, 81, (1, 200)))
next_logits(large, idx, cache).asnumpy()                      # the prompt goes in at once
taken = {"without": [], "with the cache": []}
gap = 0.0
for _ in range(10):
    got = []
    idx = ops.cat((idx, ms.Tensor([[7]])), axis=1)
    for name, kept in (("without", None), ("with the cache", cache)):
        begin = time.perf_counter()
        got.append(next_logits(large, idx, kept).asnumpy())
        taken[name].append(time.perf_counter() - begin)
    gap = max(gap, np.abs(got[0] - got[1]).max())
medians = {name: 1e3 * np.median(seconds) for name, seconds in taken.items()}
ratio = medians["without"] / medians["with the cache"]
print(device.banner())
print(f"ratio {ratio:.1f}")
show.bars(medians, "One token after 200, eager, 6 layers of 384 channels", "ms, median")

# %%
print("logits equal within 1e-5:", gap < 1e-5)

# %% [markdown]
# Far from 200 times, and for the reason of lesson 08: with one row the time goes into starting operations and reading weights,
# and eager MindSpore needs more time to start one than PyTorch does.

# %% [markdown]
# ## 6. The way to speed
#
# The port is equal, and on a CPU it is slow: run as written, a step takes many times as long as PyTorch's, as the first
# measurement below shows. The model computes the same products in both. What differs is everything around them, and each part
# has a remedy of its own. Lesson 17 measures single changes at one layer.
#
# | change | why it helps |
# |---|---|
# | graph mode | Eagerly, each of some hundred operations is looked up, checked and sent off from Python. A graph is sent as a whole. |
# | kernel fusion | Between the products stand long chains of small operations, and each reads its input from memory and writes its result back. Fusion makes one kernel of a chain. |
# | layers written for fusion | Some operations break a chain. A transpose copies: products take transposed operands instead. A mean over a row does not fuse well: a product with a column of 1/C does. `masked_fill` becomes a sum with -1e9. |
# | fused Adam | `ops.Adam` updates a parameter in one kernel. It is not AdamW: the decay stands before it, and its eps must be scaled by √(1 − β₂ᵗ), since it corrects v after the root. |
# | waiting asleep | While the graph computes, Python's thread asks again and again whether it is done. On two cores it takes one from the threads that compute. A thread that sleeps takes none. |
#
# The layers are in `solutions/mindspore/fast.py`: the same parameters, names and numbers as your GPT, in another arrangement.
# The wait is `course.waiting.Fetch`: it tries pauses during the first steps and keeps the best.
#
# The next two cells time a step of a model of 2 layers, 128 wide, n_ctx 64, batch 12, each candidate in a process of its
# own. First PyTorch, the port as written, and the port as a graph. Predict the three before you run it.

# %% tags=["nbval-ignore-output"]
from course.bench import training as bench

names = [candidate.name for candidate in bench.CANDIDATES]
measured = bench.measure("half", steps=6, names=names[:3])
print(bench.report(measured))

# %%
def gap(name):
    """The largest difference of the first ten losses from PyTorch's."""
    return np.abs(np.array(measured[name].losses) - measured["PyTorch eager"].losses).max()


print("ten losses as ported, within 1e-5 of PyTorch's:", max(gap(n) for n in names[1:3]) < 1e-5)

# %% [markdown]
# Graph mode is the first large gain. Now all five changes together. Fusion compiles kernels at the first step: that is
# what the column "first step" shows. Its compiler needs the packages `decorator` and `attrs`, and leaves files in the
# folder it runs in, so each process here runs in one that is thrown away.

# %% tags=["nbval-ignore-output"]
measured |= bench.measure("half", steps=15, names=names[-1:])
print(bench.report(measured))
base = measured["PyTorch eager"].median
ratios = {name.replace("MindSpore ", ""): m.median / base for name, m in measured.items()}
_, axes = show.figure(height=3.6)
axes.barh(list(ratios)[::-1], list(ratios.values())[::-1], color=show.BLUE)
axes.axvline(1, color=show.ORANGE)
axes.set(title="A training step, PyTorch = 1", xlabel="times PyTorch's step", xscale="log")
axes.grid(axis="y", visible=False)
show.finish()
slowest, fastest = measured[names[1]].median, measured[names[-1]].median
print(f"as written, a step takes {slowest / fastest:.0f} times as long as the fast one")

# %% [markdown]
# None of this may change what is computed. All candidates start from the same weights and see the same batches, so their
# losses can be compared step by step. Fusion adds in another order, and its losses agree to fewer digits.

# %%
print("ten losses of the fast one, within 1e-3:", gap(names[-1]) < 1e-3)

# %% [markdown]
# What each change gains by itself is a longer run: `python -m course bench port` takes them one on top of the other, for
# the models of 4 layers of 128 and 6 layers of 384. The README holds the figures of one such run on two cores. With more
# cores the spinning thread has one to itself, and sleeping should gain less: that was not measured. Nor was any of this
# run on an Ascend, where a step is not computed by these cores, and other changes matter (lesson 21).

# %% [markdown]
# ## What you built, what comes next
#
# You ported the training: AdamW whose memory is in Parameters, so that a compiled step can change it; clipping and accumulation as
# functions that return what they made. Fifty losses in a row agree with PyTorch's within 1e-5 as one graph, and the first ten
# in eager mode. A checkpoint goes on in the other framework with all of AdamW's state. And both write the same text.
#
# Three things would have gone wrong without a word: an optimizer whose name promises AdamW, an in-place operation that changes
# nothing, and `set_data` on a Parameter that a compiled step holds. Each was found by comparing numbers, and by nothing else.
