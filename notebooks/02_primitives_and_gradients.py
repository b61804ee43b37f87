# %% [markdown]
# # 02 Primitives and gradients
#
# A GPT is trained by one question, asked of each of its parameters: if this number grows a little, does the loss grow
# or shrink, and how fast? The answers are the gradient. PyTorch computes it for you, and that is a reason to compute
# it once without PyTorch. Some models train, but badly, because a gradient is wrong somewhere. If you have never seen
# a backward pass from the inside, you do not know where to look.
#
# Three operations carry most of the work of a GPT: the linear layer, the softmax and the cross entropy. In this
# lesson you write
#
# 1. `linear` and `linear_backward`: a matrix product, and the two products that lead back,
# 2. `softmax` and `softmax_backward`: scores become shares,
# 3. `log_softmax` and `log_softmax_backward`: the logarithm of a share, where the share itself is rounded to 0,
# 4. `cross_entropy` and `cross_entropy_backward`: the loss of a language model, and its very short gradient,
# 5. `Linear`: the module that the rest of the course is built from.
#
# At the end they train a small language model, and autograd is not called once.
#
# Time: about 90 minutes. You need `CharTokenizer` of lesson 01 for the last section; if you have not passed it, the
# reference stands in.
#
# Letters for shapes: B sequences in a batch, T positions, V tokens in the vocabulary, N rows, whatever they are.

# %%
import math
from functools import partial

import torch
from torch import nn

from course import check, corpus, exercise, piece, setup, show, timing

setup()
CharTokenizer = piece("pytorch.tokens.CharTokenizer")

# %% [markdown]
# ## 1. A slope to compare with
#
# You are about to derive formulas by hand, and hands make mistakes. So first comes a way to measure a slope that
# knows no formula. Move $x$ a little to the right and a little to the left, and see how much $f$ changes:
#
# $$f'(x) \approx \frac{f(x + h) - f(x - h)}{2h}$$
#
# This is the central difference. Why both sides? By Taylor's series
#
# $$f(x \pm h) = f(x) \pm h f'(x) + \frac{h^2}{2} f''(x) \pm \frac{h^3}{6} f'''(x) + \dots$$
#
# In the difference of the two the terms with an even power of $h$ cancel. What remains, after the division by $2h$,
# is $f'(x)$ and an error of $\frac{h^2}{6} f'''(x)$. With one side only, $(f(x + h) - f(x)) / h$, the error is
# $\frac{h}{2} f''(x)$: a tenth of $h$ then wins one digit, not two.
#
# So take $h$ as small as possible? No. $f(x + h)$ and $f(x - h)$ are rounded, and when they are nearly equal, their
# difference consists of little but rounding. That error grows as $1/h$. Before you run the next cell, predict
# which $h$ is best for $f(x) = x^3$, and what happens in float32.

# %%
def cube(x):
    return x * x * x                       # slope 3 x², third derivative 6


def errors(dtype, sides):
    """How far the measured slope of x³ at 1.7 is from 3 x², for h = 0.1, 0.01, ..., 1e-10."""
    x, found = torch.tensor(1.7, dtype=dtype), []
    for k in range(1, 11):
        h = torch.tensor(10.0**-k, dtype=dtype)
        if sides == 2:
            slope = (cube(x + h) - cube(x - h)) / (2 * h)
        else:
            slope = (cube(x + h) - cube(x)) / h
        found.append(abs(slope.item() - 3 * 1.7**2))
    return found


curves = {
    "one side, float64": errors(torch.float64, 1),
    "central, float64": errors(torch.float64, 2),
    "central, float32": errors(torch.float32, 2),
}
steps = [10.0**-k for k in range(1, 11)]
for name, found in curves.items():
    best = min(range(10), key=lambda k: found[k])
    print(f"{name:17}  best h {steps[best]:.0e}, error there {found[best]:.0e}")
_, axes = show.figure()
for name, found in curves.items():
    axes.loglog(steps, found, marker="o", label=name)
axes.set(title="Error of the measured slope of x³", xlabel="h", ylabel="error")
axes.legend()
show.finish()

# %% [markdown]
# Read the curves from right to left. At first the error falls: by two decades for each decade of $h$ with two sides,
# by one with one side. Then rounding takes over and it rises again. (At the left end of the float32 curve it is flat: $h$ is
# too small to change $x$ at all, the measured slope is 0, and the error is the slope itself, 8.67.) In float64 the valley of
# the central difference
# lies near $10^{-5}$ and ten digits deep. In float32 it ends at four digits, too few to tell a small mistake from
# rounding. This is why gradients are checked in float64.
#
# Here is the measurement for any function of a tensor, one entry at a time. It is slow, two calls for each
# entry, and so it is for small tensors and for checking only. `compare` puts three answers side by side: yours,
# autograd's, and the measured one.

# %%
def central_differences(f, x, h=1e-5):
    """The slope of the number f(x) along every entry of x (float64); of the shape of x."""
    slopes = torch.zeros_like(x)
    for i in range(x.numel()):
        step = torch.zeros_like(x)
        step.view(-1)[i] = h
        slopes.view(-1)[i] = (f(x + step) - f(x - step)) / (2 * h)
    return slopes


def compare(f, inputs, by_hand):
    """Print whether gradients by hand equal those of autograd and the measured ones.

    f(**inputs) is a number, inputs holds float64 tensors by name, by_hand a gradient for each.
    """
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    autograd = torch.autograd.grad(f(**leaves), list(leaves.values()))
    for (name, x), hand, auto in zip(inputs.items(), by_hand, autograd):
        measured = central_differences(lambda moved: f(**{**inputs, name: moved}), x)
        same = torch.allclose(hand, auto, rtol=0, atol=1e-12)
        near = torch.allclose(hand, measured, rtol=0, atol=1e-8)
        print(f"{name:7} equals autograd to 1e-12: {same}, central differences to 1e-8: {near}")


x = torch.tensor([1.7, -0.4], dtype=torch.float64)
compare(lambda x: cube(x).sum(), {"x": x}, [3 * x * x])
compare(lambda x: cube(x).sum(), {"x": x}, [2 * x * x])      # a mistake, to see that it is found

# %% [markdown]
# ## 2. Linear
#
# A linear layer looks at a vector of width $d_{in}$ from $d_{out}$ directions. Each output is one dot product with
# one row of the weight, plus a number of its own, the bias:
#
# $$y_j = \sum_k x_k\, W_{jk} + b_j \qquad\text{or, for all rows of } x \text{ at once,}\qquad y = x\,W^\top + b$$
#
# | name | shape | meaning |
# |---|---|---|
# | x | (..., d_in) | any number of leading axes: (N, d_in), (B, T, d_in), or a single vector |
# | weight | (d_out, d_in) | row j makes output j |
# | bias | (d_out,) or None | one number for each output; None for no bias |
# | result | (..., d_out) | y |
#
# The weight is stored (d_out, d_in), as in `nn.Linear`, and so it is transposed in the product. A square weight
# hides a forgotten transpose: the shapes fit and the numbers are wrong. Test with d_in ≠ d_out.
#
# <details><summary>Hint 1</summary>
#
# `@` takes the last axis of x and the first axis of what follows, and sums over them. Which axis of weight has length
# d_in?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A bias of shape (d_out,) is broadcast over all leading axes by itself. It may also be None: ask with `is not None`,
# since the truth of a whole tensor is not defined.
#
# </details>

# %%
@exercise("pytorch.primitives.linear")
def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """A linear layer: x times weight transposed, plus bias.

    Args:
        x: (..., d_in), any number of leading axes, also none.
        weight: (d_out, d_in).
        bias: (d_out,), or None for no bias.

    Returns:
        (..., d_out), of the dtype and on the device of x. x itself stays as it is.
    """
    raise NotImplementedError


# %%
check(linear)

# %%
x = torch.tensor([[1.0, 2.0, 3.0]])                                    # (N=1, d_in=3)
weight = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])              # (d_out=2, d_in=3)
print(linear(x, weight, torch.tensor([0.5, 0.0])))                     # (1, 2)

# %% [markdown]
# One row of weight picks the first entry, the other adds all three: 1 + 0.5 and 6.
#
# **What `@` saves.** The formula above is two loops around a sum. Written like that in Python it is right, and every
# step through the interpreter costs more than the arithmetic in it. Here 32 rows of width 64 meet 48 outputs. Predict
# the ratio before you run it: 10, 100, 1000?

# %% tags=["nbval-ignore-output"]
def with_loops(x, weight, bias):
    y = torch.empty(len(x), len(weight))
    for n in range(len(x)):
        for j in range(len(weight)):
            y[n, j] = (x[n] * weight[j]).sum() + bias[j]
    return y


torch.manual_seed(0)
x, weight, bias = torch.randn(32, 64), torch.randn(48, 64), torch.randn(48)
timings = timing.measure({
    "two loops": partial(with_loops, x, weight, bias),
    "one product": partial(linear, x, weight, bias),
}, seconds=2)
print(timing.report(timings))

# %%
same = torch.allclose(with_loops(x, weight, bias), linear(x, weight, bias), atol=1e-4)
print("same result within 1e-4:", same)
print("steps through the interpreter:", len(x) * len(weight), "and 1")

# %% [markdown]
# ## 3. The way back through linear
#
# Training has a loss $L$ at the end, one number. A backward function is handed $g = \partial L / \partial y$, how
# much the loss changes with each output, and returns how much it changes with each input. It never needs to know what
# $L$ is. This is the chain rule, cut into pieces that fit together: what one piece returns is what the piece before
# it is handed.
#
# Take one row, $y_j = \sum_k x_k W_{jk} + b_j$, and ask each input which outputs it touches.
#
# **x.** $x_k$ goes into every output $j$, with slope $W_{jk}$. Add up over the outputs:
#
# $$\frac{\partial L}{\partial x_k} = \sum_j g_j\, W_{jk} \qquad\Rightarrow\qquad \text{grad}_x = g\,W$$
#
# The forward transposed $W$, the way back does not.
#
# **weight.** $W_{jk}$ goes into output $j$ alone, with slope $x_k$, but it does so in every row $n$. Add up over the
# rows:
#
# $$\frac{\partial L}{\partial W_{jk}} = \sum_n g_{nj}\, x_{nk} \qquad\Rightarrow\qquad \text{grad}_W = g^\top x$$
#
# **bias.** $b_j$ goes into output $j$ of every row, with slope 1:
#
# $$\frac{\partial L}{\partial b_j} = \sum_n g_{nj}$$
#
# | name | shape | meaning |
# |---|---|---|
# | grad | (..., d_out) | $g$, the gradient of the loss with respect to y |
# | x | (..., d_in) | what the forward was given |
# | weight | (d_out, d_in) | what the forward was given |
# | result | (..., d_in), (d_out, d_in), (d_out,) | gradients of x, weight and bias: each has the shape of what it belongs to |
#
# A row is any combination of leading axes. For x of shape (B, T, d_in) there are B·T rows, all served by the same
# weight, and so the sums run over both axes. A gradient that still has an axis B is a sum that was forgotten.
#
# <details><summary>Hint 1</summary>
#
# grad_x is one product and needs no care with leading axes. For the other two, bring grad and x to two axes, (rows,
# d_out) and (rows, d_in), before anything else.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `t.reshape(-1, t.shape[-1])` makes all leading axes into one. Then look at the shapes: of a (rows, d_out) and a
# (rows, d_in) matrix, which product is (d_out, d_in), and does it sum over the rows?
#
# </details>

# %%
@exercise("pytorch.primitives.linear_backward")
def linear_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of a loss through y = linear(x, weight, bias), without autograd.

    Args:
        grad: (..., d_out), gradient of the loss with respect to y.
        x: (..., d_in), with the leading axes of grad; there may be none.
        weight: (d_out, d_in).

    Returns:
        grad_x (..., d_in), grad_weight (d_out, d_in), grad_bias (d_out,), of the dtype of grad.
    """
    raise NotImplementedError


# %%
check(linear_backward)

# %% [markdown]
# To compare, a loss is needed. Any number will do: weigh the outputs with fixed random numbers $g$ and add them up,
# $L = \sum g \cdot y$. Its gradient with respect to y is $g$.

# %%
torch.manual_seed(0)
x = torch.randn(2, 3, 4, dtype=torch.float64)                          # (B=2, T=3, d_in=4)
weight = torch.randn(5, 4, dtype=torch.float64)                        # (d_out=5, d_in=4)
bias = torch.randn(5, dtype=torch.float64)                             # (d_out=5,)
g = torch.randn(2, 3, 5, dtype=torch.float64)                          # (B=2, T=3, d_out=5)


def loss(x, weight, bias):
    return (g * linear(x, weight, bias)).sum()


compare(loss, {"x": x, "weight": weight, "bias": bias}, linear_backward(g, x, weight))

# %% [markdown]
# The forward is one matrix product, the way back is two of the same size. This is where a rule of thumb comes from: a
# training step costs about three times a forward pass.
#
# ## 4. Softmax
#
# A model gives scores, any real numbers. Attention and prediction need shares: positive, and 1 in total. The softmax
# takes the exponential, which makes every score positive, and divides by the sum:
#
# $$y_i = \frac{e^{x_i}}{\sum_k e^{x_k}}$$
#
# Differences between scores become ratios between shares: one more point of score is $e \approx 2.7$ times the share.
# So the scale of the scores decides how sharp the shares are. The next cell multiplies the same four scores by three
# factors.

# %%
scores = torch.tensor([2.0, 1.0, 0.0, -1.0])
_, axes = show.figure(width=8, columns=3)
for axis, factor in zip(axes, (0.2, 1.0, 5.0)):
    e = (factor * scores).exp()
    shares = e / e.sum()
    print(f"scores times {factor}: largest share {shares.max():.2f}")
    axis.bar(["2", "1", "0", "-1"], shares, color=show.BLUE)
    axis.set(title=f"scores times {factor}", ylim=(0, 1), xlabel="score")
show.finish()

# %% [markdown]
# **Overflow.** That was the formula as it stands, and for large scores it fails. The largest float32 is $3.4 \cdot
# 10^{38}$, and $e^{89}$ is more:

# %%
x = torch.tensor([88.0, 89.0])
print("exp:       ", [f"{n:.1e}" for n in x.exp().tolist()])
print("as it is:  ", (x.exp() / x.exp().sum()).tolist())
print("shifted:   ", [round(n, 4) for n in ((x - 89).exp() / (x - 89).exp().sum()).tolist()])

# %% [markdown]
# `inf / inf` is nan. The cure costs nothing: a constant $c$ subtracted from all scores of a row cancels,
#
# $$\frac{e^{x_i - c}}{\sum_k e^{x_k - c}} = \frac{e^{-c}\, e^{x_i}}{e^{-c} \sum_k e^{x_k}} = y_i$$
#
# so choose $c$ as the largest score of the row. Then the largest exponent is 0, no exponential is above 1, and the
# sum is at least 1, so nothing overflows and nothing is divided by 0. It has to be the maximum of each row by itself.
# With one maximum for all rows, a row that lies 200 below the largest has only exponentials of 0, and 0 / 0 is nan
# again.
#
# | name | shape | meaning |
# |---|---|---|
# | x | any | scores |
# | dim | int | the axis along which shares sum to 1; may be negative |
# | result | shape of x | shares |
#
# <details><summary>Hint 1</summary>
#
# Three steps: subtract the maximum along dim, take exp, divide by the sum along dim.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A maximum along dim loses that axis. Without `keepdim=True` it is then lined up with the wrong axis of x: an error
# for most shapes, and wrong numbers without an error where the axes happen to be equal.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `x.amax(dim=dim, keepdim=True)` is the maximum. Since the shift cancels in the result, it cancels in the gradient:
# autograd through the maximum only adds zeros. You may cut it with `.detach()` to save that work, or leave it.
#
# </details>

# %%
@exercise("pytorch.primitives.softmax")
def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """exp(x) divided by its sum along dim, without overflow for large x.

    Args:
        x: any shape; entries may be large, and -inf where the share has to be 0.
        dim: axis along which the shares sum to 1, from -x.dim() to x.dim() - 1.

    Returns:
        A new tensor of the shape, dtype and device of x. x itself stays as it is.
    """
    raise NotImplementedError


# %%
check(softmax)

# %%
x = torch.tensor([[1000.0, 999.0], [-1000.0, -1001.0]])                # (2, 2), rows far apart
print("rows:   ", [[round(n, 3) for n in row] for row in softmax(x, dim=-1).tolist()])
print("columns:", [[round(n, 3) for n in row] for row in softmax(x, dim=0).tolist()])

# %% [markdown]
# Only differences within a row count: 1000 and 999 share like -1000 and -1001. Along the columns the difference is
# 2000, and all goes to the first row.
#
# ## 5. The way back through softmax
#
# Every score touches every share of its row: when one grows, the sum below the fraction grows, and all others shrink.
# The slope of share $i$ in score $j$, by the rule for a fraction:
#
# $$\frac{\partial y_i}{\partial x_j} = y_i\,(\delta_{ij} - y_j), \qquad \delta_{ij} = 1 \text{ if } i = j, \text{ else } 0$$
#
# (For $i = j$ the top grows too, which is the $\delta$.) By the chain rule, add up over all shares:
#
# $$\frac{\partial L}{\partial x_j} = \sum_i g_i\, y_i\,(\delta_{ij} - y_j) = g_j\, y_j - y_j \sum_i g_i\, y_i
# = y_j \Big( g_j - \sum_i g_i\, y_i \Big)$$
#
# The sum is the same for all entries of a row. It is the average of $g$ under the shares $y$, and what counts is how
# far an entry's $g$ lies above it. If all $g$ are equal the gradient is 0: shares sum to 1, and no score can move all
# of them up.
#
# The slopes of a row make a V by V matrix, and it is never built. For the vocabulary of GPT-2 it would be this large:

# %%
V = 50257
print(f"{V}² slopes in float32: {4 * V**2 / 1e9:.1f} GB for each position")

# %% [markdown]
# The formula above needs the row and one sum.
#
# | name | shape | meaning |
# |---|---|---|
# | grad | any | gradient of the loss with respect to y |
# | y | shape of grad | softmax(x, dim), the result of the forward: x itself is not needed |
# | dim | int | the axis of the forward |
# | result | shape of grad | gradient with respect to x |
#
# <details><summary>Hint 1</summary>
#
# First the shared sum: multiply grad and y entry by entry, and add up along dim, keeping the axis.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Then the last form of the formula, entry by entry. The shared sum is broadcast over the row.
#
# </details>

# %%
@exercise("pytorch.primitives.softmax_backward")
def softmax_backward(grad: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    """The gradient of a loss through y = softmax(x, dim), without autograd.

    Args:
        grad: gradient of the loss with respect to y.
        y: softmax(x, dim), of the shape of grad. Shares may be exactly 0 or 1.
        dim: the axis along which y sums to 1.

    Returns:
        The gradient with respect to x, of the shape and dtype of y.
    """
    raise NotImplementedError


# %%
check(softmax_backward)

# %%
torch.manual_seed(0)
x = torch.randn(3, 4, dtype=torch.float64)                             # (3, 4)
g = torch.randn(3, 4, dtype=torch.float64)                             # (3, 4)
for dim in (0, 1):
    by_hand = softmax_backward(g, softmax(x, dim), dim)
    compare(lambda x: (g * softmax(x, dim)).sum(), {"x": x}, [by_hand])
    rest = by_hand.sum(dim).abs().max()
    print(f"dim = {dim}: the gradient sums to 0 along it: {rest < 1e-12}")

# %% [markdown]
# The second line of each is worth remembering. A shift of all scores changes nothing, so the gradient has no part in
# that direction: it always sums to 0.
#
# ## 6. Log-softmax
#
# The loss will need the logarithm of a share. A share can be very small, and here floats betray the obvious code.
# $e^{-104}$ is below the smallest float32, so it is rounded to 0, and the logarithm of 0 is $-\infty$. The
# logarithm itself was a harmless -104:

# %%
for gap in (80.0, 87.0, 104.0, 1000.0):
    x = torch.tensor([gap, 0.0])
    print(f"gap {gap:6}: log(softmax) = {softmax(x, dim=0).log()[1].item():.2f}")

# %% [markdown]
# A wrong token with a gap of 104 costs an infinite loss, and one step later all weights are nan. Adding a small
# number inside the logarithm hides the infinity and cuts the loss off instead. Neither is needed, if logarithm and
# fraction are taken together:
#
# $$\log y_i = \log \frac{e^{x_i}}{\sum_k e^{x_k}} = x_i - \log \sum_k e^{x_k}$$
#
# The exponential of $x_i$ is gone, and with it the rounding to 0. The sum is made safe as before, by subtracting the
# maximum of the row from $x$ first, in both places.
#
# | name | shape | meaning |
# |---|---|---|
# | x | any | scores |
# | dim | int | the axis of the shares |
# | result | shape of x | logarithms of the shares, at most 0 |
#
# <details><summary>Hint 1</summary>
#
# Begin as in softmax: subtract the maximum along dim. Call the result x from here on, and use it both in front and in
# the sum.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Then exp, the sum along dim with its axis kept, log, and one subtraction. There is no division and no softmax.
#
# </details>

# %%
@exercise("pytorch.primitives.log_softmax")
def log_softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """The logarithm of softmax(x, dim) in one step: finite wherever x is.

    Args:
        x: any shape; entries may be large.
        dim: axis along which the shares sum to 1, from -x.dim() to x.dim() - 1.

    Returns:
        A new tensor of the shape, dtype and device of x. x itself stays as it is.
    """
    raise NotImplementedError


# %%
check(log_softmax)

# %%
for gap in (80.0, 87.0, 104.0, 1000.0):
    x = torch.tensor([gap, 0.0])
    print(f"gap {gap:6}: log_softmax = {log_softmax(x, dim=0)[1].item():.2f}")

# %% [markdown]
# It is also the cheaper way. `log(softmax(x))` takes a logarithm of every entry, `log_softmax` one for each row. How
# much do you expect that to matter, beside the exponentials that both need? The scores here are 1024 rows for 1000
# tokens.

# %% tags=["nbval-ignore-output"]
def two_steps(x):
    return softmax(x, dim=-1).log()


def one_step(x):
    return log_softmax(x, dim=-1)


torch.manual_seed(0)
x = 5 * torch.randn(1024, 1000)                                        # (N, V)
timings = timing.measure({
    "log of softmax": partial(two_steps, x),
    "log_softmax": partial(one_step, x),
}, seconds=3)
print(timing.report(timings))

# %%
print("same result within 1e-4:", torch.allclose(two_steps(x), one_step(x), atol=1e-4))
print(f"logarithms: {x.numel():,} and {len(x):,}")

# %% [markdown]
# ## 7. The way back through log-softmax
#
# Write $p = e^y$ for the shares; `y` now is their logarithm. The derivation is shorter than that of the softmax.
# $y_i = x_i - \log \sum_k e^{x_k}$, and the slope of the last term in $x_j$ is $e^{x_j} / \sum_k e^{x_k} = p_j$. So
#
# $$\frac{\partial y_i}{\partial x_j} = \delta_{ij} - p_j \qquad\Rightarrow\qquad
# \frac{\partial L}{\partial x_j} = \sum_i g_i\,(\delta_{ij} - p_j) = g_j - p_j \sum_i g_i$$
#
# Each entry keeps its own $g$ and pays its share of the total.
#
# | name | shape | meaning |
# |---|---|---|
# | grad | any | gradient of the loss with respect to y |
# | y | shape of grad | log_softmax(x, dim), the result of the forward |
# | dim | int | the axis of the forward |
# | result | shape of grad | gradient with respect to x |
#
# <details><summary>Hint 1</summary>
#
# y is a logarithm. Which operation turns it back into the shares p of the formula?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The sum is that of grad alone, along dim, with its axis kept. In the backward of the softmax y stood inside the sum;
# here it does not.
#
# </details>

# %%
@exercise("pytorch.primitives.log_softmax_backward")
def log_softmax_backward(grad: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    """The gradient of a loss through y = log_softmax(x, dim), without autograd.

    Args:
        grad: gradient of the loss with respect to y.
        y: log_softmax(x, dim), of the shape of grad.
        dim: the axis of the shares.

    Returns:
        The gradient with respect to x, of the shape and dtype of y.
    """
    raise NotImplementedError


# %%
check(log_softmax_backward)

# %%
torch.manual_seed(0)
x = torch.randn(3, 4, dtype=torch.float64)                             # (3, 4)
g = torch.randn(3, 4, dtype=torch.float64)                             # (3, 4)
for dim in (0, 1):
    by_hand = log_softmax_backward(g, log_softmax(x, dim), dim)
    compare(lambda x: (g * log_softmax(x, dim)).sum(), {"x": x}, [by_hand])

# %% [markdown]
# ## 8. Cross entropy
#
# A language model gives a score, a logit, to each of the V tokens. The text says which token came. The loss of that
# position is the surprise: minus the logarithm of the share that the model gave to the token that came. The loss of a
# batch is the mean:
#
# $$L = -\frac{1}{n} \sum_{\text{counted } i} \log p_i[t_i], \qquad p_i = \text{softmax}(\text{logits}_i)$$
#
# A share of 1 costs 0. A share of 1/2 costs $\ln 2 = 0.69$, and every halving costs 0.69 more. Nothing but the
# target's share is looked at; the others take part through the sum below the fraction.
#
# **What to expect of a model that knows nothing.** It gives every token the share 1/V, and its loss is $\ln V$,
# whatever the text. This is the first number to look at when a training starts. Far above it, the initial weights are
# too large. Far below it in the first step, the answer leaks into the input.

# %%
for name, V in [("bytes", 256), ("the symbols of Shakespeare's plays", 81), ("GPT-2", 50257)]:
    print(f"V = {V:6,}  ln V = {math.log(V):6.3f}  ({name})")

# %% [markdown]
# | name | shape | dtype | meaning |
# |---|---|---|---|
# | logits | (N, V) | float | scores, not shares: the softmax belongs to the loss |
# | targets | (N,) | int64 | the token that came, 0 to V - 1, or ignore_index |
# | ignore_index | | int | a target that does not count: padding, or a prompt that should not be learned. -100, as in PyTorch |
# | result | () | dtype of logits | the mean over the counted positions |
#
# Positions that do not count are left out on both sides: they add nothing to the sum, and they are not in $n$. Divide
# by all N and the loss looks better the more padding there is.
#
# <details><summary>Hint 1</summary>
#
# `log_softmax` over the last axis gives all logarithms, (N, V). You need one of each row: row n at column targets[n].
# Indexing with two tensors of the same length, one of rows and one of columns, picks one entry for each pair.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# -100 is no column. Make a mask of the positions that count first, by comparing targets with ignore_index, and put
# any valid column in place of the others. `masked_fill` returns a new tensor, so the caller's targets stay as they
# are.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Set the picked entries that do not count to 0, add up, and divide by how many positions count, `mask.sum()`. The
# minus makes a loss of it.
#
# </details>

# %%
@exercise("pytorch.primitives.cross_entropy")
def cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, ignore_index: int = -100
) -> torch.Tensor:
    """Mean of -log softmax(logits)[target] over the positions whose target is not ignore_index.

    Args:
        logits: (N, V).
        targets: (N,) int64, each from 0 to V - 1 or equal to ignore_index.
        ignore_index: the target of positions that do not count; any int, also a valid token.

    Returns:
        (), of the dtype of logits. If no position counts: nan, as in PyTorch, or 0.
    """
    raise NotImplementedError


# %%
check(cross_entropy)

# %%
targets = torch.tensor([2, 0, 4, -100])                                # (N=4,), 3 count
uniform = torch.zeros(4, 50257)                                        # (N, V)
print(f"uniform guess:      {cross_entropy(uniform, targets):.3f}")
sure = uniform.clone()
sure[torch.arange(3), targets[:3]] = 20.0
print(f"sure and right:     {cross_entropy(sure, targets):.3f}")
others = torch.tensor([3, 1, 5, -100])                                 # (N=4,), tokens it ruled out
print(f"sure and wrong:     {cross_entropy(sure, others):.3f}")

# %% [markdown]
# Knowing nothing costs $\ln V$. Being sure of the wrong token costs as much as its logit lies below the largest, here 20:
# a loss above $\ln V$ is worse than no model at all.
#
# Two mistakes with this function make no noise. The first: shares instead of logits. The softmax is then taken twice,
# and since shares lie between 0 and 1, the second one cannot get sharp. Even a model that is always right and sure
# keeps a loss of about $\ln V - 1$:

# %%
for V in (81, 50257):
    logits = torch.zeros(1, V)
    logits[0, 3] = 20.0                                                # sure of token 3
    target = torch.tensor([3])
    right, twice = cross_entropy(logits, target), cross_entropy(softmax(logits, -1), target)
    print(f"V = {V:5}: logits {right:.2f}, shares {twice:.2f}, ln V - 1 = {math.log(V) - 1:.2f}")

# %% [markdown]
# The second: a model's logits have the shape (B, T, V) and its targets (B, T). Both are made flat, to (N, V) and (N,)
# with N = B·T, and both must be made flat in the same order. The shapes fit in either case:

# %%
torch.manual_seed(0)
targets = torch.randint(9, (4, 6))                                     # (B=4, T=6)
logits = 8.0 * nn.functional.one_hot(targets, 9)                       # (B=4, T=6, V=9): all right
flat = logits.reshape(-1, 9)                                           # (N=24, V=9)
print(f"same order:          {cross_entropy(flat, targets.reshape(-1)):.2f}")
print(f"targets transposed:  {cross_entropy(flat, targets.T.reshape(-1)):.2f}")

# %% [markdown]
# ## 9. The way back through cross entropy
#
# Nothing new is needed. The loss picks entries of `log_softmax`, so the gradient handed to it is $-1/n$ at the target
# and 0 elsewhere. Its sum along the row is $-1/n$. Put both into the formula of section 7, with $Y$ for one-hot at
# the target:
#
# $$\frac{\partial L}{\partial \text{logits}} = -\frac{1}{n} Y - p \cdot \Big(-\frac{1}{n}\Big) = \frac{p - Y}{n}$$
#
# Shares minus truth. The target's logit is pulled up by what it lacks to 1, every other is pushed down by the share
# it has. When the model is right and sure, both are 0 and learning stops by itself. Rows that do not count have
# gradient 0.
#
# | name | shape | meaning |
# |---|---|---|
# | logits, targets, ignore_index | as in `cross_entropy` | |
# | result | (N, V) | gradient with respect to logits; there is no `grad` to be handed, since the loss is the end |
#
# <details><summary>Hint 1</summary>
#
# Start from softmax of the logits and subtract 1 at [n, targets[n]] for every row. Ignored targets need a valid
# column here too.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Then set the rows that do not count to 0: a mask of shape (N,) needs another axis to line up with rows,
# `mask[:, None]`. Divide by the number of counted positions, not by N.
#
# </details>

# %%
@exercise("pytorch.primitives.cross_entropy_backward")
def cross_entropy_backward(
    logits: torch.Tensor, targets: torch.Tensor, ignore_index: int = -100
) -> torch.Tensor:
    """The gradient of cross_entropy(logits, targets, ignore_index), without autograd.

    Args:
        logits: (N, V).
        targets: (N,) int64, each from 0 to V - 1 or equal to ignore_index.
        ignore_index: the target of positions that do not count.

    Returns:
        The gradient with respect to logits, (N, V), of their dtype; 0 in rows that do not count.
    """
    raise NotImplementedError


# %%
check(cross_entropy_backward)

# %%
torch.manual_seed(0)
logits = torch.randn(4, 6, dtype=torch.float64)                        # (N=4, V=6)
targets = torch.tensor([2, 0, -100, 5])                                # (N=4,)
by_hand = cross_entropy_backward(logits, targets)
compare(lambda logits: cross_entropy(logits, targets), {"logits": logits}, [by_hand])

# %% [markdown]
# Here is one position with its forces. The model gives token 1 the largest share, and token 3 came.

# %%
logits = torch.tensor([[0.5, 2.0, -1.0, 1.0, 0.0]])                    # (N=1, V=5)
target = torch.tensor([3])
shares = softmax(logits, dim=-1)[0]
gradient = cross_entropy_backward(logits, target)[0]                   # (V=5,)
print("shares:  ", [round(n, 2) for n in shares.tolist()])
print("gradient:", [round(n, 2) for n in gradient.tolist()])
_, axes = show.figure(width=8, columns=2)
tokens = ["0", "1", "2", "3 (came)", "4"]
axes[0].bar(tokens, shares, color=show.BLUE)
axes[0].set(title="shares p", xlabel="token", ylim=(-0.9, 0.9))
axes[1].bar(tokens, gradient, color=[show.ORANGE if n < 0 else show.BLUE for n in gradient])
axes[1].set(title="gradient p - Y", xlabel="token", ylim=(-0.9, 0.9))
show.finish()

# %% [markdown]
# A step of training goes against the gradient, so the negative bar is pulled up. The four positive ones, together as
# long as the negative one, are pushed down.
#
# ## 10. The module
#
# A layer must remember its weight, hand it to the optimizer and save it. `nn.Module` does the keeping and
# `nn.Parameter` marks what is to be trained. The arithmetic stays yours.
#
# **The start.** All zeros will not do for a layer between others: all outputs would be equal, get equal gradients and
# stay equal. Random numbers must have the right size. An output is a sum of $d_{in}$ products, and the variance of a
# sum of independent terms is the sum of their variances. For inputs of variance 1 the output has variance
# $d_{in} \cdot \text{Var}(W)$. With weights uniform between $-1/\sqrt{d_{in}}$ and $1/\sqrt{d_{in}}$, the variance of
# each is $\frac{1}{3 d_{in}}$, and that of the output $\frac13$, whatever the width. `nn.Linear` starts like this,
# weight and bias. (GPT-2 starts its layers in another way: lesson 06.)
#
# | parameter | shape | start |
# |---|---|---|
# | weight | (d_out, d_in) | uniform within ±1/√d_in |
# | bias | (d_out,), none with bias=False | uniform within ±1/√d_in, with d_in as for the weight |
#
# <details><summary>Hint 1</summary>
#
# In `__init__`: first `super().__init__()`, then a tensor of the right shape with random numbers, and
# `nn.Parameter(...)` around it. A plain tensor would not be found by the optimizer.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.empty(rows, columns).uniform_(low, high)` draws what you need. Without a bias, set `self.bias = None`; then
# `forward` is a call of `linear` in either case.
#
# </details>

# %%
@exercise("pytorch.primitives.Linear")
class Linear(nn.Module):
    """A linear layer with the parameters and the start of torch.nn.Linear.

    Args:
        d_in: width of the input.
        d_out: width of the output.
        bias: whether there is a bias.

    Parameters:
        weight: (d_out, d_in), uniform within 1/sqrt(d_in).
        bias: (d_out,), uniform within 1/sqrt(d_in); absent with bias=False.

    forward(x): (..., d_in) -> (..., d_out).
    """

    def __init__(self, d_in: int, d_out: int, bias: bool = True):
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


# %%
check(Linear)

# %%
torch.manual_seed(0)
for d_in in (16, 256, 4096):
    y = Linear(d_in, 500)(torch.randn(200, d_in))                      # (200, 500)
    print(f"d_in = {d_in:4}: variance of the output {y.var():.2f}")

# %% [markdown]
# One third at every width, and slightly more where $d_{in}$ is small, since the bias adds $\frac{1}{3 d_{in}}$.
#
# ## 11. All together: a language model without autograd
#
# The smallest language model looks at one character and guesses the next. One-hot vectors go in, a linear layer makes
# logits, and row $j$ of the weight holds what speaks for character $j$. Lesson 01 made text into ids, and everything
# else you have just written. The weights start at 0, which is fine for a single layer: the targets differ, so the
# outputs do not stay equal.
#
# Which loss do you expect at step 0? And what is the best that any model of pairs can reach? The second can be
# counted: give each next character its true frequency after the one before. That floor is computed below as well.
#
# A step subtracts 10 times the gradient. The factor is large because the gradient is a mean over 20,000 positions, of which
# each row of the table sees only its own.

# %%
text = corpus.load("shakespeare")[:20_001]
tokenizer = CharTokenizer(corpus.load("shakespeare"))
ids = torch.tensor(tokenizer.encode(text))                             # (20001,)
V = 81
now, following = ids[:-1], ids[1:]                                     # (N=20000,) each
x = torch.eye(V)[now]                                                  # (N, V), one-hot

counts = torch.zeros(V, V).index_put_((now, following), torch.ones(len(now)), accumulate=True)
frequency = counts / counts.sum(dim=1, keepdim=True).clamp(min=1)      # (V, V), rows sum to 1
floor = -frequency[now, following].log().mean().item()
print(f"uniform guess {math.log(V):.2f}, true frequencies {floor:.2f}")

# %%
weight, bias = torch.zeros(V, V), torch.zeros(V)
losses = []
for step in range(201):
    logits = linear(x, weight, bias)                                   # (N, V)
    losses.append(cross_entropy(logits, following).item())
    grad = cross_entropy_backward(logits, following)                   # (N, V)
    _, grad_weight, grad_bias = linear_backward(grad, x, weight)       # (V, V), (V,)
    weight = weight - 10 * grad_weight
    bias = bias - 10 * grad_bias

for step in (0, 10, 50, 200):
    print(f"step {step:3}: loss {losses[step]:.2f}")
show.lines(
    {
        "loss": losses,
        "ln V, a uniform guess": [math.log(V)] * len(losses),
        "floor, the true frequencies": [floor] * len(losses),
    },
    "A model of pairs, trained by hand", "step", "loss",
)

# %% [markdown]
# The loss starts at $\ln V$, to the digit, and falls towards the floor. No call of `backward()` was made. What it
# learned can be read off the weight: column $i$ plus the bias are the logits after character $i$.

# %%
for character in "qt,":
    i = tokenizer.encode(character)[0]
    shares = softmax(weight[:, i] + bias, dim=0)                       # (V,)
    best = int(shares.argmax())
    print(f"{character!r} is followed by {tokenizer.decode([best])!r}:", end=" ")
    print(f"share {shares[best]:.2f}, true frequency {frequency[i, best]:.2f}")

# %% [markdown]
# The model found the right character each time, and is not sure enough yet. It is furthest behind where the first
# character is rare, as "q" is: the gradient is a mean over all positions, so what happens seldom pulls
# weakly. AdamW in lesson 07 is an answer to that.

# %% [markdown]
# ## What you built, what comes next
#
# You built the operations that the rest of the course stands on, each with its way back, and checked every gradient
# against two others: autograd, and a measurement that knows no formula. You saw where floats overflow and where they
# are rounded to 0, what a model that knows nothing costs, and that the gradient of the loss is shares minus truth.
#
# From here on autograd does the way back, with two exceptions: the embedding in lesson 03 and LayerNorm in lesson 05.
# When a loss looks wrong, you know what it should be at the start, and how to measure a slope.
#
# A one-hot vector times a matrix, as in the last section, picks a column and multiplies by 0 everywhere else. Lesson
# 03 does it by indexing and calls it an embedding.
