# %% [markdown]
# # 20 Many processes
#
# One device is not enough for long. The two oldest ways out are to give each device a part of the batch, and to give each device a
# part of the model. Both need no new mathematics: the result is the gradient that one device would have computed. What is
# new is that there are several programs, each of which sees only its own memory, and that they wait for each other. A program
# that waits for a message which never comes gives no error. It hangs.
#
# In this lesson you write
#
# 1. `shard`: which rows of the batch a process gets,
# 2. `average_gradients`: one message that makes all processes agree,
# 3. `accumulate` for DistributedDataParallel, with `no_sync` in the right place,
# 4. `average_gradients` in MindSpore,
# 5. `gpipe_schedule`: who works when in a pipeline, and who waits.
#
# They then run in real processes on this machine: two and four of them, started by torchrun and msrun as on a cluster. One of
# them is killed in the middle, and the run is taken up again.
#
# Time: about 80 minutes. You need `GPT`, `AdamW`, `accumulate`, `clip_grad_norm` and the checkpoints of lessons 06, 07, 15 and 16; where
# you have not passed them, the references stand in.
#
# Letters for shapes: B sequences in a batch, T positions, C channels; p stages, m micro-batches.

# %%
import contextlib
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist

from course import check, device, exercise, setup, show
from course.parallel import launch

setup()
import mindspore as ms
from mindspore import ops

# %% [markdown]
# ## 1. Ranks
#
# A launcher starts the same program several times. The copies differ in two numbers that they find in their environment: their
# `rank`, from 0 on, and `world_size`, how many there are. All that a rank does differently follows from its rank.
#
# **Data parallel** training: every rank holds the whole model, and gets its rows of the batch. Since the loss is a mean over rows, the
# gradient is one too, and the mean of the ranks' means is the mean of the batch:
#
# $$\frac1B\sum_{b=1}^{B} g_b = \frac1n\sum_{r=0}^{n-1}\Big(\frac{n}{B}\sum_{b \in \text{rows of } r} g_b\Big)$$
#
# This holds only if all ranks have equally many rows. Seven rows for two ranks cannot be dealt fairly: the three rows of one would
# count as much as the four rows of the other.
#
# | name | shape | meaning |
# |---|---|---|
# | batch | (B, ...), a tensor or a NumPy array | the whole batch, the same on every rank |
# | rank, world_size | int | who asks, and how many there are |
# | result | (B / world_size, ...) | rows rank · B / world_size and following |
#
# <details><summary>Hint 1</summary>
#
# `len(batch)` and a slice work on tensors and on arrays alike. How many rows does a part have, and where does the part of rank 2 begin?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Test before you cut: integer division forgets a remainder without a word. The error should name both numbers.
#
# </details>

# %%
@exercise("pytorch.parallel.shard")
def shard(batch, rank: int, world_size: int):
    """The rows of a batch that belong to a rank: consecutive ones, equally many for each rank.

    Args:
        batch: (B, ...) tensor or NumPy array.
        rank: from 0 to world_size - 1.
        world_size: number of ranks.

    Returns:
        (B / world_size, ...), rows rank * B / world_size and following.

    Raises:
        ValueError: B is no multiple of world_size.
    """
    raise NotImplementedError


# %%
check(shard)

# %%
batch = torch.arange(8)
parts = [shard(batch, rank, 4) for rank in range(4)]
print([part.tolist() for part in parts])
print("together the whole batch:", torch.equal(torch.cat(parts), batch))

# %% [markdown]
# Every rank draws the same batch, from the same seed, and takes its part. That the batch of update 17 depends on nothing but the
# seed and the number 17 will pay off in section 4, when a run is taken up again.
#
# ## 2. One message
#
# After `backward` each rank has the gradient of its own rows. An *all-reduce* adds up a tensor over all ranks and gives each of them
# the sum. `dist.all_reduce(x)` does it in place: x is overwritten. It returns when the others have called it too, and that is the
# danger. A rank that calls it once more than the others waits forever, and a rank that calls them in another order adds up what does
# not belong together.
#
# How long a message takes is about
#
# $$t = \alpha + \beta \cdot \text{bytes}$$
#
# and $\alpha$ is paid for each one. GPT-2 small has 148 parameters, most of them short vectors such as biases. So all gradients are laid into one
# flat vector, the vector is sent, and then cut up again.
#
# A parameter that was not used in this step has `p.grad = None`, and it may be used on another rank, by another batch. To stay in step, it takes
# part with zeros.
#
# <details><summary>Hint 1</summary>
#
# `model.parameters()` is a generator: after one loop nothing is left of it. Make a list first. Then: flat vector, all-reduce, divide,
# cut, put back.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.cat` joins vectors, `reshape(-1)` makes a vector of any gradient. `flat.split(sizes)` cuts at given lengths; how many numbers a
# parameter has says `p.numel()`. `dist.get_world_size()` is the number to divide by.
#
# </details>

# %%
@exercise("pytorch.parallel.average_gradients")
def average_gradients(params) -> None:
    """Replace the gradient of each parameter by its mean over all ranks, in one message.

    Args:
        params: iterable of parameters, also a generator; the same ones on every rank. One whose
            gradient is None takes part with zeros.

    Every rank calls it at the same point. Afterwards p.grad has the shape and dtype of p.
    """
    raise NotImplementedError


# %%
check(average_gradients)

# %% [markdown]
# The check let its ranks run one after the other in this process. A group of one rank can be opened here as well; an all-reduce over
# one rank changes nothing.

# %%
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
(w * w).sum().backward()
average_gradients([w])
print("gradient over one rank:", w.grad.tolist())
dist.destroy_process_group()

# %% [markdown]
# ## 3. Accumulation, and no_sync
#
# PyTorch has all this as `DistributedDataParallel`, in short DDP. It wraps the model, and sends *during* backward: gradients are
# gathered into buckets of 25 MB, and as soon as a bucket is full its all-reduce begins, while backward goes on to compute
# earlier layers. (So it is not true that DDP sends everything at the end, and everyone waits.)
#
# With accumulation (lesson 07) this is too much of a good thing: m micro-batches, m rounds of messages, where one round at the end would do. The
# wrapper has a context for that, `model.no_sync()`: gradients of passes inside stay on their rank and add up. The
# last micro-batch runs outside, and sends the sum.
#
# | micro-batch | forward | backward | sends |
# |---|---|---|---|
# | 0 … m − 2 | inside | inside | nothing |
# | m − 1 | outside | outside | the mean over the ranks of all that `.grad` holds |
#
# The forward pass belongs inside. It is there that DDP decides what the next backward pass will do.
#
# <details><summary>Hint 1</summary>
#
# Start from your `accumulate` of lesson 07. The model, the division and the backward pass move into a `with` block; what it opens depends
# on whether this is the last micro-batch.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A `with` needs something to open for the last one too: `contextlib.nullcontext()` does nothing. Or take the last micro-batch out of the
# loop. Think of a list with a single micro-batch.
#
# </details>

# %%
@exercise("pytorch.parallel.accumulate")
def accumulate(model, batches) -> float:
    """Add the gradient of the mean loss over micro-batches to .grad, averaged over the ranks once.

    Args:
        model: in DistributedDataParallel; model(x, y) gives (logits, loss), and model.no_sync()
            the context.
        batches: list of equally large micro-batches (x, y) of this rank, at least one.

    Returns:
        The mean loss over the micro-batches of this rank, a float.

    Forward and backward of all but the last micro-batch run inside no_sync, the last outside.
    """
    raise NotImplementedError


# %%
check(accumulate)

# %% [markdown]
# ### In real processes
#
# `course/parallel/data_parallel_pytorch.py` is the program. It takes your pieces where you have passed them. On a shell it is started by
#
# ```
# torchrun --nproc-per-node 4 -m course.parallel.data_parallel_pytorch --compare --steps 16
# ```
#
# and `launch.run` below does the same: it chooses a free port, sends all messages over the loopback address, gives each rank one thread,
# waits no longer than it is told, and leaves no process behind. Which library carries the messages depends on the device: `gloo` on a CPU,
# `nccl` on a GPU, `hccl` on an Ascend. Only `gloo` was run here.
#
# First the gradients of one batch of 16 windows, on four ranks with four windows each, against the same batch in one process. Every rank reports the
# largest difference. (Then it trains for 16 updates, which section 4 looks at.)

# %%
four = launch.run("data_parallel_pytorch", "--compare", "--steps", 16, processes=4, seconds=110)
for report in four:
    print(
        f"rank {report['rank']} over {report['backend']}: before the message more than 1e-3 off:",
        report["alone"] > 1e-3,
    )
    print("   average_gradients within 1e-6:", report["own"] < 1e-6, end=", ")
    print("DistributedDataParallel within 1e-6:", report["ddp"] < 1e-6)

# %% [markdown]
# Now the four micro-batches of each rank, and five ways to write the loop. One of them circulates in an article: after the backward pass it
# says `with model.no_sync(): pass`. Predict for each how many of the four backward passes send, and whether the gradient is right in
# the end.
#
# | | the loop |
# |---|---|
# | no no_sync | forward, backward |
# | pass, after backward | forward, backward, `with model.no_sync(): pass` |
# | around backward only | forward; backward inside `no_sync` for all but the last |
# | around all | everything inside, the last one too |
# | your accumulate | |

# %%
rows = []
for name, use in four[0]["uses"].items():
    right = all(report["uses"][name]["gap"] < 1e-6 for report in four)
    rows.append((name, use["all-reduces"], "yes" if right else "no"))
show.table(rows, header=("no_sync", "backward passes that send", "gradient right on all ranks"))

# %%
names = ["none", "pass, after", "backward only", "around all", "yours"]
sends = [use["all-reduces"] for use in four[0]["uses"].values()]
show.bars(dict(zip(names, sends)), "Four micro-batches", "backward passes that send")

# %% [markdown]
# Three of the five give the right gradient with four times the traffic. Nobody notices, except the clock. The fourth sends nothing: each rank
# trains a model of its own from here on, and the loss of every one of them falls. This too goes unnoticed for long.
#
# ## 4. A run that is killed
#
# The four ranks went on with sixteen updates, each with your `average_gradients`. They started from the same weights and added the same mean at each update, so they
# must end with the same weights.

# %%
for report in four:
    first, last = report["losses"][0], report["losses"][-1]
    print(f"rank {report['rank']}: loss {first:.2f} at the start, {last:.2f} at the end")
weights = {report["sum of weights"] for report in four}
print("different sums of all weights:", len(weights))

# %% [markdown]
# On a cluster machines fail. Now two ranks do the same training, and rank 0 writes a checkpoint every five updates. In the middle of update 12, after
# backward and before the message, rank 1 kills itself with SIGKILL. Rank 0 is then waiting for a message that cannot come. What should happen? Not a hang: the launcher notices that a rank is gone, ends the others, and says who it was.

# %%
folder = tempfile.TemporaryDirectory()
run = os.path.join(folder.name, "run")
try:
    launch.run("data_parallel_pytorch", "--steps", 16, "--out", run, "--kill", "1@12", seconds=110)
except launch.RunFailed as failed:
    print(failed)
print("left in the folder:", sorted(os.listdir(run)))

# %% [markdown]
# The checkpoint is whole, because lesson 07 writes to another name first and renames it when it is complete. All ranks load it and go on from there. Since
# the batch of an update depends only on the seed and its number, nothing is skipped and nothing is seen twice. The losses must go on as those of the four ranks, which were not
# interrupted: how many ranks share a batch changes nothing but the rounding. Gradients are compared once more, now on two ranks.

# %%
resumed = launch.run(
    "data_parallel_pytorch", "--steps", 16, "--out", run, "--resume", "--compare", seconds=110
)
begin = resumed[0]["first"]
print("resumed at update", begin)
for report in resumed:
    near = max(report["own"], report["ddp"]) < 1e-6
    gap = np.abs(np.array(report["losses"]) - four[0]["losses"][begin:]).max()
    print(f"rank {report['rank']}: gradients within 1e-6: {near}", end=", ")
    print("losses as if nothing had happened, within 1e-5:", gap < 1e-5)
folder.cleanup()

# %%
curves = {
    "four ranks, not interrupted": (range(16), four[0]["losses"]),
    "two ranks, resumed": (range(begin, 16), resumed[0]["losses"]),
}
show.lines(curves, "Killed in update 12, resumed from the checkpoint", "update", "loss")

# %% [markdown]
# ## 5. The same in MindSpore
#
# `msrun` starts the ranks, `mindspore.communication.init()` joins them, and `ops.AllReduce()` is the message. On a CPU the library below is called `mccl`, on
# an Ascend `hccl`; `init()` chooses. The port is not a rename, for the reason of lesson 16:
#
# | PyTorch | MindSpore |
# |---|---|
# | gradients hang on the parameters | gradients are a tuple, a result |
# | `dist.all_reduce(flat)` overwrites flat | `flat = all_reduce(flat)` returns the sum, flat stays |
# | a parameter may have no gradient | every weight asked for has one, zeros where it was not used |
# | the sizes are read from `p.numel()` | `g.size`, a number and not a method |
# | buckets are filled during backward | a graph is known beforehand: the compiler decides what is sent together |
#
# `all_reduce` is an argument. In a run it is `ops.AllReduce()`; in the check something stands in that adds up what the ranks give it. (Do not try
# `ops.AllReduce()` in a notebook: MindSpore 2.10 on a CPU has no sentence for a process that never called `init()`. It ends with a segmentation fault, and takes
# the kernel along.)
#
# <details><summary>Hint 1</summary>
#
# The same five steps as in section 2, and each one makes something new. What the last one makes is returned.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `ops.cat` joins a list of vectors. `ops.split(flat, sizes)` takes a list of lengths; a single number there would be the length of every piece.
#
# </details>

# %%
@exercise("mindspore.parallel.average_gradients")
def average_gradients(grads, all_reduce, world_size: int) -> tuple:
    """The mean over all ranks of each gradient, in one message.

    Args:
        grads: tuple of tensors, the same shapes on every rank. Not changed.
        all_reduce: all_reduce(x) returns the sum of x over all ranks, as ops.AllReduce() does.
        world_size: number of ranks.

    Returns:
        A tuple of new tensors of the same shapes. The same eagerly and in graph mode.
    """
    raise NotImplementedError


# %%
check(average_gradients)

# %%
grads = (ms.Tensor([[1.0, 2.0]]), ms.Tensor([3.0]))
mean = average_gradients(grads, lambda x: x + 3 * x, 2)   # the other rank has three times as much
print([g.asnumpy().tolist() for g in mean])

# %% [markdown]
# Two ranks under msrun, three updates: the gradients of the first batch against one process, with the average run eagerly and as a
# graph; then the losses against those of the four ranks, which PyTorch computed from the same weights and batches.

# %%
ported = launch.run("data_parallel_mindspore", "--compare", "--steps", 3, seconds=110)
for report in ported:
    print(f"rank {report['rank']} over {report['backend']}:", end=" ")
    print("before the message more than 1e-3 off:", report["alone"] > 1e-3)
    print("   eager within 1e-6:", report["eager"] < 1e-6, end=", ")
    print("graph within 1e-6:", report["graph"] < 1e-6)
gap = np.abs(np.array(ported[0]["losses"]) - four[0]["losses"][:3]).max()
print("losses within 1e-5 of PyTorch's:", gap < 1e-5)

# %% [markdown]
# The same file starts on an Ascend: `device.mindspore_target()` finds the device and `init()` takes `hccl`. That is what its documentation says;
# it was not run there.
#
# A warning for your own programs. MindSpore's operations are asynchronous (lesson 10), so an operation that fails on one rank is told at some later call. Until
# then that rank has sent too little, and the ranks are out of step. `ms.runtime.launch_blocking()` brings the error to its line; the program above begins with
# it.
#
# ## 6. A pipeline
#
# The second way out cuts the model. Stage 0 holds the embeddings and the first blocks, the last stage the last blocks, the norm and the
# head. Activations of shape (B, T, C) go forward from stage to stage, their gradients come back. With one batch at a time this helps nobody: while one
# stage works, all others wait.
#
# GPipe (Huang et al. 2019) cuts the batch into m micro-batches. As soon as stage 0 has sent the first, it begins with the second. Count time in slots, one for each
# forward or backward pass of a micro-batch. For p = 3 and m = 4, with `--` for waiting:
#
# ```
# stage 0   F0 F1 F2 F3 -- -- -- -- B3 B2 B1 B0
# stage 1   -- F0 F1 F2 F3 -- -- B3 B2 B1 B0 --
# stage 2   -- -- F0 F1 F2 F3 B3 B2 B1 B0 -- --
# ```
#
# The right half is the left half played backwards. Each half is $p + m - 1$ slots long, and a stage works in $m$ of them. The share that it waits is the *bubble*:
#
# $$\text{bubble} = \frac{p-1}{m+p-1}$$
#
# More micro-batches make it smaller, and every stage must keep the activations of all m until their backward pass comes.
#
# | name | form | meaning |
# |---|---|---|
# | stages, micro_batches | int, at least 1 | p and m |
# | result | p lists of 2 · (p + m − 1) entries | `("F", i)`, `("B", i)`, or None |
#
# <details><summary>Hint 1</summary>
#
# In which slot does stage s run the forward pass of micro-batch i? Read it off the table: one line further down is one slot later, and so is one micro-batch
# more.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Played backwards: what stands in slot k forward has its counterpart k slots before the end, which Python writes with a negative index. Make the empty lines one by
# one: `[line] * 3` is one list under three names.
#
# </details>

# %%
@exercise("pytorch.parallel.gpipe_schedule")
def gpipe_schedule(stages: int, micro_batches: int) -> list:
    """What each stage of a pipeline does in each slot (GPipe, Huang et al. 2019, figure 2c).

    Args:
        stages: at least 1.
        micro_batches: at least 1.

    Returns:
        A new list for each stage, 2 * (stages + micro_batches - 1) entries long: ("F", i) for the
        forward pass of micro-batch i, ("B", i) for its backward pass, None where the stage waits.
        Forward passes in the order 0, 1, ... and as early as they can; the backward half is the
        forward half played backwards.
    """
    raise NotImplementedError


# %%
check(gpipe_schedule)

# %%
def bubble(stages, micro_batches):
    """The share of slots in which a stage waits, counted."""
    table = gpipe_schedule(stages, micro_batches)
    slots = [entry for line in table for entry in line]
    return slots.count(None) / len(slots)


for line in gpipe_schedule(2, 4):
    print(" ".join("--" if entry is None else f"{entry[0]}{entry[1]}" for entry in line))
for m in (1, 2, 4, 8):
    print(f"2 stages, {m} micro-batches: bubble {bubble(2, m):.3f}, formula {1 / (m + 1):.3f}")

# %% [markdown]
# Now in two processes: a GPT of 4 blocks, 128 wide, a batch of 16 windows of 64. Each rank goes through its line of your schedule. Before a forward pass it
# receives the activations, after it it sends its own; backward it is the other way round. `dist.recv` waits, and that is all the synchronisation there
# is. Sending does not wait (`dist.isend`).
#
# One thing is easy to forget. The head is the table `wte` itself, and now the table lives in two processes, with a part of its gradient in each: from the embedding in the first stage,
# from the head in the last. The two parts are added up by an all-reduce over these two ranks. Without it the copies would drift apart.
#
# MindSpore 2.10 has Send and Receive for the Ascend, and no kernel of them for the CPU. So the pipeline runs in PyTorch only.

# %%
stages = launch.run("pipeline", seconds=110)
for report in stages:
    kept = report["parameters"]
    print(f"stage {report['rank']} has {len(kept)} parameters: {kept[0]} ... {kept[-1]}")
    for m, run in report["runs"].items():
        near = run["gap"] < 1e-6
        print(f"   {m} micro-batches: sent {run['messages']}, gradients within 1e-6: {near}")

# %% [markdown]
# Each rank noted when it worked. On one machine all processes read the same clock, so the notes can be laid side by side. Predict: does the measured waiting follow
# the formula? Where should it lie above it?

# %% tags=["nbval-ignore-output"]
def spans(m):
    """Per stage the notes (kind, i, begin, end) in milliseconds from the first begin."""
    notes = [report["runs"][str(m)]["events"] for report in stages]
    start = min(begin for line in notes for _, _, begin, _ in line)
    return [[(k, i, 1e3 * (b - start), 1e3 * (e - start)) for k, i, b, e in line] for line in notes]


print(device.banner())                                    # the notes are time.perf_counter()
for m in (1, 2, 4, 8):
    lines = spans(m)
    total = max(end for line in lines for *_, end in line)
    busy = sum(end - begin for line in lines for *_, begin, end in line)
    measured = 1 - busy / (2 * total)
    print(f"{m} micro-batches: {total:6.1f} ms, waiting {measured:.2f}, formula {1 / (m + 1):.2f}")

_, axes = show.figure(height=2.4)
for stage, line in enumerate(spans(4)):
    for kind, i, begin, end in line:
        color = show.BLUE if kind == "F" else show.ORANGE
        axes.barh(stage, end - begin, left=begin, color=color, edgecolor="white")
        axes.text((begin + end) / 2, stage, f"{kind}{i}", ha="center", va="center", fontsize=8)
axes.set(title="One run with 4 micro-batches", xlabel="ms", yticks=[0, 1])
axes.set_yticklabels(["stage 0", "stage 1"])
axes.invert_yaxis()
axes.grid(axis="y", visible=False)
show.finish()

# %%
orders = [[[kind, i] for kind, i, *_ in line["runs"]["4"]["events"]] for line in stages]
plan = [[list(entry) for entry in line if entry] for line in gpipe_schedule(2, 4)]
print("each stage worked in the order of its plan:", orders == plan)

# %% [markdown]
# The formula takes all slots for equally long and messages for free. Neither is so: a backward pass takes longer than a forward pass, the last stage has the
# head to compute as well, small micro-batches use the cores worse, and a message takes its time. The last two grow with m while the bubble shrinks, so beyond some m a run
# gets longer again. And where a machine does other work besides, a stage waits for a core too.

# %% [markdown]
# ## What you built, what comes next
#
# You trained one model in several processes and got the numbers of one process: gradients within 1e-6 on two and on four ranks in PyTorch and on two in MindSpore, and a resumed run that
# continues to the same losses. You counted messages, found that the `no_sync` of an article does nothing, and saw that the use that sends nothing at all
# raises no error. You planned a pipeline and watched it run.
#
# `python -m course parallel` starts the same programs from the shell, with more ranks or larger models; `--help` lists its options. Lesson 21 goes to the Ascend: what its attention
# kernel expects, and what has to be checked before a run there.
