# %% [markdown]
# # 00 Start here
#
# In this course you write a GPT out of tensor operations, piece by piece. Each piece is an exercise, and every exercise
# works in the same way. This lesson goes through one of them slowly, so that later lessons need not explain themselves.
#
# In this lesson you
#
# 1. read three verdicts of the checks, on answers that are not yours,
# 2. write `average_past`: the mean of everything up to now, at every position at once,
# 3. look at its weights, which are half of the attention of lesson 04,
# 4. put a loop and a matrix product under the stopwatch.
#
# Time: about 30 minutes. Five for the verdicts, fifteen for the exercise, ten for the rest. You need Python and the
# idea of a matrix product. No earlier piece is needed.
#
# Run a cell with Shift+Enter and go from top to bottom. Each cell builds on those above it.

# %%
from functools import partial

import torch

from course import check, exercise, piece, setup, show, timing
from course.check import run

setup()
x = torch.tensor([[2.0, 0.0], [4.0, 6.0], [0.0, 3.0]])                 # (T=3, C=2)
print("average of all positions:", x.mean(dim=0).tolist())

# %% [markdown]
# ## 1. What the checks say
#
# An exercise asks for one function or one class. You find it as a stub: the name, the arguments and a docstring that
# says what must come out, over a body that only raises `NotImplementedError`. The cell below it calls `check`, which
# runs your code on small inputs and compares the results with an independent computation.
#
# The exercise of this lesson is `average_past(x)`. Row t of its result is the mean of rows 0 to t of x. For the x above,
# row 0 is `[2, 0]` itself, row 1 is the mean of two rows, `[3, 3]`, and row 2 that of three, `[2, 3]`.
#
# Before you write it, see what the checks say to others. `run` is what `check` calls inside: it takes the name of an
# exercise and any function. First someone who has not started.

# %%
def untouched(x):
    raise NotImplementedError


print(run("pytorch.warmup.average_past", untouched).message)

# %% [markdown]
# A circle means not started. It is no error, and nothing is counted against you. Next, someone who took the mean over
# all positions. The shape is right, and the numbers are not.

# %%
def mean_over_everything(x):
    average = x.mean(dim=0, keepdim=True)            # (1, C)
    return average.repeat(x.shape[0], 1)             # (T, C)


print(run("pytorch.warmup.average_past", mean_over_everything).message)

# %% [markdown]
# Read such a verdict in four parts:
#
# - the first line says how many of the checks pass,
# - the next names the first property that fails, and the likely mistake,
# - `for example` gives one number that is wrong, beside the one expected,
# - `look at` says where to look. It does not say what to write.
#
# The numbers in the example come from an x that the check makes, not from the x above. Checks run in the order in which a
# teacher would speak. Mend the first thing, run both cells again, and listen to the next. Last, someone whose code stops
# with an error. The verdict points at the line in that person's cell.

# %%
def with_a_typo(x):
    total = x.cumsum(dim=0)
    return total / torch.arrange(1, len(x) + 1)


print(run("pytorch.warmup.average_past", with_a_typo).message)

# %% [markdown]
# One check of seven passes for code that never runs to its end: it asks for nothing but that no tensor is made on the wrong
# device. Only the first failure is shown, so look there and not at the count.
#
# ## 2. Your turn: averages over the past
#
# Think of x as a sentence: T positions, a vector of C numbers for each. A language model reads from left to right, so
# what it knows at position t may come from positions 0 to t and from nowhere else. The plainest summary of that past is
# its mean:
#
# $$y_t = \frac{1}{t+1} \sum_{s=0}^{t} x_s$$
#
# | name | shape | meaning |
# |---|---|---|
# | x | (T, C) | a vector for each position |
# | result | (T, C) | row t is the mean of x[0] to x[t] |
#
# Every row of the result is a weighted sum of rows of x, and a weighted sum of rows is a matrix product: $y = W x$ with
# $W$ of shape (T, T). Row t of $W$ holds $1/(t+1)$ for the positions 0 to t and 0 for those after t. For T = 3:
#
# $$W = \begin{pmatrix} 1 & 0 & 0 \\ 1/2 & 1/2 & 0 \\ 1/3 & 1/3 & 1/3 \end{pmatrix}$$
#
# A loop passes the checks as well. Write what you find clear, and come back for the matrix afterwards.
#
# Stuck? Hints wait under this text, folded. `hint("pytorch.warmup.average_past")`, typed into a cell of your own, prints
# the same hints one by one. `solution("pytorch.warmup.average_past")` shows one way to write it. Both have to be
# imported first: `from course import hint, solution`.
#
# <details><summary>Hint 1</summary>
#
# Start from the pattern of W and forget the fractions: ones on and below the diagonal, zeros above. `torch.ones` and the
# method `tril` (lower triangle) make it.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Row t of that pattern sums to t + 1, and that is what it must be divided by. `sum(dim=1, keepdim=True)` gives a
# column of shape (T, 1), and a division by a column divides each row by its own number.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `@` is the matrix product. If the last checks speak of float64 or of a device: a tensor that you create takes both
# from x with `dtype=x.dtype, device=x.device`.
#
# </details>

# %%
@exercise("pytorch.warmup.average_past")
def average_past(x: torch.Tensor) -> torch.Tensor:
    """The mean of everything up to now, at each position.

    Args:
        x: (T, C), floating point, T at least 1. It is not changed.

    Returns:
        (T, C), of the dtype and on the device of x: row t is the mean of x[0] to x[t].
    """
    raise NotImplementedError


# %%
check(average_past)

# %% [markdown]
# On the three rows from the start:

# %%
print(average_past(x))

# %% [markdown]
# ## 3. What happens to your answers
#
# When all checks pass, your function is written to a file, `work/my_gpt/pytorch/warmup.py`. Lesson by lesson
# `my_gpt` grows into a Python package that holds a whole GPT, all of it your own. Later lessons fetch their pieces from
# there with `piece`. Where you have not passed an exercise, `piece` hands out the course's reference, so that one open
# exercise never blocks the next lesson.

# %%
kept = piece("pytorch.warmup.average_past")
print("piece gives the same result:", torch.allclose(kept(x), average_past(x)))

# %% [markdown]
# Three more calls are for you to type when you want them, each after `from course import …`:
#
# - `progress()` lists all lessons with what you have passed, `progress("00")` the exercises of this one,
# - `use_reference("pytorch.warmup.average_past")` returns the course's answer, to go on in a lesson whose later cells
#   need it: `average_past = use_reference("…")`. It never counts as passed,
# - `hint` and `solution`, which you know by now.
#
# Where things are:
#
# - `make lab` copied the lessons to the folder `work/` and opened them there. That folder is yours. Running
#   `make lab` again adds new lessons and never overwrites a file. To begin a lesson anew, rename your copy and run
#   `make lab`.
# - Everything runs without a network connection and without a GPU. The text to train on came with the installation. The
#   few offers that need a connection say so where they stand.
#
# When something behaves oddly, restart. In the menu Kernel choose "Restart Kernel and Run Up to Selected Cell…". A
# kernel remembers everything it has ever run, also cells you have deleted since, and a restart shows whether your
# notebook still works from the top. Passed answers are in files and survive it.
#
# ## 4. The weights
#
# The unit matrix has a useful property: $W I = W$. So a function that multiplies by a hidden matrix gives the matrix away
# when you feed it `torch.eye(T)`. This works for your function even if you wrote a loop.

# %%
T = 8
weights = average_past(torch.eye(T))                                   # (T, T)
print("row 0:", weights[0].tolist())
print("row 3:", weights[3].tolist())
print("every row sums to 1:", torch.allclose(weights.sum(dim=1), torch.ones(T)))
show.heatmaps({"weights of average_past": weights}, x_label="position s", y_label="row t")

# %% [markdown]
# Nothing stands above the diagonal: no row uses its future. Within a row all weights are equal, since a mean treats the word
# before and the first word of the text alike. Attention keeps the triangle and lets the words themselves choose
# the weights. That is lesson 04.
#
# ## 5. Under the stopwatch
#
# The sum can be written as a loop over the positions, and the loop says the same in words closer to the formula. Why
# bother with a matrix? Because a tensor operation has a price to be called, a few microseconds in Python, however small
# the tensors are. A loop pays it at every position. The matrix product does more arithmetic, since it also
# multiplies by all the zeros, and pays once.
#
# Predict before you run: T = 256 positions, C = 64 numbers each. Which one is faster, and by what factor?

# %%
def average_past_loop(x):
    rows = []
    for t in range(x.shape[0]):
        rows.append(x[: t + 1].mean(dim=0))          # (C,)
    return torch.stack(rows)                         # (T, C)


torch.manual_seed(0)
long = torch.randn(256, 64)                          # (T=256, C=64)
agree = torch.allclose(average_past_loop(long), average_past(long), atol=1e-6)
print("loop and yours agree within 1e-6:", agree)

# %% tags=["nbval-ignore-output"]
timings = timing.measure({
    "loop": partial(average_past_loop, long),
    "yours": partial(average_past, long),
}, seconds=1)
print(timing.report(timings))
medians = {name: 1e3 * t.median for name, t in timings.items()}
show.bars(medians, "Averages over the past", "ms, median")
print("yours is faster than the loop:", timings["yours"].median < timings["loop"].median)

# %% [markdown]
# The figures belong to the machine that is named above them. This is how every timing in the course is shown: the median
# of many runs, the range of the middle half, and ratios of things that ran in turn. If you wrote a loop yourself, the last
# line may say False, and hint 1 has an offer for you. A clock says something else in each run, so nothing in this course
# rests on one. What must hold in every run stands in a cell of its own: here the number of sums that each of the two needs.

# %%
rows = torch.arange(1, 257)                          # (T,), rows in each average
print("rows that the loop adds up for T = 256:", rows.sum().item())
print("rows that one running sum would add:", len(rows))

# %% [markdown]
# ## What you built, what comes next
#
# You know what an exercise looks like, what its verdicts mean, where your answers go, and how to read a timing. You also
# hold a first piece: a lower triangle of weights whose rows sum to 1, times x.
#
# A model computes with numbers, and a text is made of characters. Lesson 01 turns one into the other: Shakespeare's plays
# become a file of token ids, and the file becomes batches to train on.
