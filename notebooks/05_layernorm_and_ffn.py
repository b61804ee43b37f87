# %% [markdown]
# # 05 LayerNorm and the feed-forward network
#
# Attention lets positions talk. Two things are still missing before there is a block of a GPT. Something has to work with
# what was heard, at each position by itself: a small network of two layers, the MLP, which holds two thirds of a block's
# parameters. And something has to keep the numbers in range: 12 blocks in a row multiply their scales, and what grows by a
# factor of two in each is 4096 times as large at the end.
#
# In this lesson you write
#
# 1. `LayerNorm`: each vector to mean 0 and variance 1,
# 2. `layer_norm_backward`: its gradient, by hand,
# 3. `gelu`: the bend between the two layers, in the form that GPT-2 was trained with,
# 4. `MLP`: the two layers around it.
#
# Time: about 75 minutes. You need `Linear` of lesson 02; if you have not passed it, the reference stands in.
#
# Letters for shapes, in all lessons: B sequences in a batch, T positions, C channels (`n_embd`), V tokens in the vocabulary.

# %%
import math
from functools import partial
from types import SimpleNamespace

import torch
from torch import nn

from course import check, exercise, piece, setup, show, timing

setup()
Linear = piece("pytorch.primitives.Linear")

# %% [markdown]
# ## 1. Keeping the scale
#
# First the trouble. Send vectors through 24 linear layers in a row, whose weights are a little too small, right, or a
# little too large, and print the standard deviation that comes out.

# %%
C, depth = 256, 24


def scales(gain, norm=None):
    """The standard deviation after each of 24 random layers that multiply it by gain."""
    torch.manual_seed(0)
    x = torch.randn(64, C)                                             # 64 vectors
    found = []
    for _ in range(depth):
        layer = Linear(C, C)
        layer.weight.data.normal_(0, gain / math.sqrt(C))
        layer.bias.data.zero_()
        x = layer(x if norm is None else norm(x)).detach()             # (64, C)
        found.append(x.std().item())
    return found


for gain in (0.7, 1.0, 1.4):
    print(f"gain {gain}: after {depth} layers the standard deviation is {scales(gain)[-1]:.2g}")

# %% [markdown]
# A factor of 0.7 or 1.4 is nothing for one layer. Over 24 of them the signal vanishes or explodes, and the gradients do the same on the
# way back. Training would have to hold every layer at exactly the right scale, all the time.
#
# LayerNorm (Ba et al. 2016) takes that burden away. It measures mean and variance of each vector and divides the scale out,
# whatever it was. Then a learned weight and bias give each channel the scale and the place that training wants:
#
# $$\mu = \frac{1}{C}\sum_i x_i \qquad \sigma^2 = \frac{1}{C}\sum_i (x_i - \mu)^2 \qquad
# \hat x_i = \frac{x_i - \mu}{\sqrt{\sigma^2 + \varepsilon}} \qquad y_i = w_i\,\hat x_i + b_i$$
#
# | name | shape | meaning |
# |---|---|---|
# | x | (..., C) | one vector for each position |
# | $\mu$, $\sigma^2$ | (..., 1) | one number for each vector |
# | weight, bias | (C,) | parameters, start at 1 and 0; shared by all positions |
# | result | (..., C) | |
#
# Three details decide whether the numbers agree with GPT-2's.
#
# - **Which axis.** The last, and only that. Each position is normalised by itself. With the time axis in it, a token would
#   learn about its future through the mean.
# - **Which variance.** The sum of squares is divided by C, not by C - 1. `x.var()` and `x.std()` of PyTorch divide by C - 1
#   unless told otherwise (Bessel's correction).
# - **Where $\varepsilon$ stands.** Under the root. It matters for vectors that are nearly constant: of `[3, 3, 3]` the variance
#   is 0, and without $\varepsilon$ the result is 0 / 0. GPT-2 has $\varepsilon = 10^{-5}$ (openai/gpt-2, src/model.py, function norm).
#
# There is also a wrong way to save a step. The variance equals mean(x²) - mean(x)², which needs only one pass over the
# numbers. In float32 it loses the digits that matter when the mean is large:

# %%
torch.manual_seed(0)
x = torch.randn(1000).double()
true = x.var(correction=0)                                            # the same for every shift
for shift in (0, 1000, 10_000):
    moved = (x + shift).float()
    one_pass = (moved * moved).mean() - moved.mean() ** 2
    two_pass = (moved - moved.mean()).square().mean()
    wrong = [abs(v - true).item() > 1e-3 for v in (one_pass, two_pass)]
    print(f"mean {shift:5}, off by more than 0.001: one pass {wrong[0]!s:5}, two {wrong[1]}")

# %% [markdown]
# Near 1000 a square is near 1,000,000, and float32 holds 7 digits of it. The variance you are looking for, about 1, sits in the last of
# them. So: subtract the mean first.
#
# <details><summary>Hint 1</summary>
#
# Two parameters and eps in `__init__`. In `forward` four steps, as in the formula, a line each. `dim=-1` is the last axis however many
# there are, and `keepdim=True` keeps it with length 1, so that (..., 1) broadcasts against (..., C).
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# After the mean is subtracted, the variance is simply the mean of the squares of what is left. Add eps to it, and only then take
# the root.
#
# </details>

# %%
@exercise("pytorch.layers.LayerNorm")
class LayerNorm(nn.Module):
    """Each vector to mean 0 and variance 1, then a learned scale and shift (Ba et al. 2016).

    Args:
        n_embd: length of each vector.
        eps: added to the variance, under the root.

    Parameters:
        weight: (n_embd,), starts at 1.
        bias: (n_embd,), starts at 0.

    forward(x): (..., n_embd) -> the same shape and dtype. The variance is the biased one, and
    x stays as it is.
    """

    def __init__(self, n_embd: int, eps: float = 1e-5):
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


# %%
check(LayerNorm)

# %% [markdown]
# The same 24 layers, with a LayerNorm before each:

# %%
curves = {}
for gain in (0.7, 1.4):
    curves[f"gain {gain}"] = scales(gain)
    curves[f"gain {gain} with LayerNorm"] = scales(gain, LayerNorm(C))
for name, curve in curves.items():
    print(f"{name:24} first layer {curve[0]:.1f}, last layer {curve[-1]:.2g}")
_, axes = show.figure()
for name, curve in curves.items():
    axes.semilogy(range(1, depth + 1), curve, label=name)
axes.set(title="Scale through depth", xlabel="layer", ylabel="standard deviation")
axes.legend()
show.finish()

# %% [markdown]
# With LayerNorm the scale no longer multiplies up: each layer starts from 1 again. What goes into a layer may be a hundred times as large
# or as small, the result is the same. Only around $\varepsilon$ that ends:

# %%
torch.manual_seed(1)
norm = LayerNorm(C)
x = torch.randn(4, C)                                                  # (4, C)
for factor in (100.0, 1.0, 0.01, 0.001):
    std = norm(factor * x).std().item()
    print(f"input scaled by {factor:5g}: standard deviation of the result {std:.2f}")

# %% [markdown]
# ## 2. The way back
#
# Autograd can do this for you, and later lessons let it. Once by hand shows what LayerNorm does to learning. Given is
# `grad`, the gradient of the loss with respect to the result y. Wanted are those for x, weight and bias.
#
# **Weight and bias.** $y_i = w_i \hat x_i + b_i$. If $b_i$ grows by 1, $y_i$ grows by 1; if $w_i$ grows by 1, $y_i$ grows by
# $\hat x_i$. One weight serves all vectors of the batch, so their contributions add up:
#
# $$\frac{\partial L}{\partial b_i} = \sum_{\text{vectors}} \text{grad}_i \qquad
# \frac{\partial L}{\partial w_i} = \sum_{\text{vectors}} \text{grad}_i\,\hat x_i$$
#
# What arrives at $\hat x_i$ has passed the weight: $g_i = \text{grad}_i\,w_i$.
#
# **x.** Now nudge one entry $x_j$ of one vector by a little $h$, and follow it. Write $s = \sqrt{\sigma^2 + \varepsilon}$. Three things happen.
#
# 1. $x_j$ itself grows by $h$, and so $\hat x_j$ by $h / s$.
# 2. The mean grows by $h / C$, and so **every** $\hat x_i$ falls by $h / (C s)$.
# 3. The standard deviation changes. $s^2$ is the mean of the squared distances plus $\varepsilon$, and only the distance of $x_j$ counts
#    (the mean's own move cancels, since the distances sum to 0): $2 s\,\Delta s = 2 (x_j - \mu)\,h / C$, so
#    $\Delta s = \hat x_j\,h / C$. Dividing by a larger $s$ makes **every** $\hat x_i$ smaller, by $\hat x_i\,\Delta s / s$.
#
# Together:
#
# $$\frac{\partial \hat x_i}{\partial x_j} = \frac{1}{s}\left(\delta_{ij} - \frac{1}{C} - \frac{\hat x_i\,\hat x_j}{C}\right)$$
#
# with $\delta_{ij}$ = 1 where i = j and 0 elsewhere. Multiply by $g_i$ and sum over i. The sums over C become means:
#
# $$\frac{\partial L}{\partial x_j} = \frac{1}{s}\Big(g_j - \text{mean}(g) - \hat x_j\,\text{mean}(g\,\hat x)\Big)$$
#
# | name | shape | meaning |
# |---|---|---|
# | grad | (..., C) | gradient with respect to the result |
# | x | (..., C) | the input of the forward pass |
# | weight | (C,) | |
# | grad_x | (..., C) | the last formula; the means run over the channels of each vector |
# | grad_weight, grad_bias | (C,) | sums over all axes but the last |
#
# <details><summary>Hint 1</summary>
#
# First compute again what the formula needs: s, of shape (..., 1), and the normalised x. They are the same lines as in the forward
# pass.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# For grad_weight and grad_bias, make all axes but the last into one, with `reshape(-1, C)`, and sum over it. That works for any number of
# axes, even for a single vector.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# grad_x: multiply grad by weight, take the two means with `keepdim=True`, put the three terms together, divide by s. The weight comes
# before the means, since they are means of g.
#
# </details>

# %%
@exercise("pytorch.layers.layer_norm_backward")
def layer_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of LayerNorm, without autograd.

    Args:
        grad: (..., C), gradient with respect to the result.
        x: (..., C), the input.
        weight: (C,).
        eps: as in the forward pass.

    Returns:
        grad_x (..., C), grad_weight (C,), grad_bias (C,), of the dtype and on the device of x.
        The arguments stay as they are.
    """
    raise NotImplementedError


# %%
check(layer_norm_backward)

# %% [markdown]
# Against autograd, and then two facts about the result. Each vector of grad_x sums to 0, and it is at right angles to $\hat x$.

# %%
torch.manual_seed(2)
norm = LayerNorm(C)
norm.weight.data.normal_(1, 0.5)
x, grad = torch.randn(2, 8, 16, C)                                     # both (B=8, T=16, C)
x.requires_grad_()
norm(x).backward(grad)                                                 # autograd
with torch.no_grad():
    grad_x, grad_weight, grad_bias = layer_norm_backward(grad, x, norm.weight)
    hat = (x - x.mean(dim=-1, keepdim=True)) / x.std(dim=-1, correction=0, keepdim=True)
gap = max(
    (grad_x - x.grad).abs().max(),
    (grad_weight - norm.weight.grad).abs().max() / 10,                 # sums of 128 terms
    (grad_bias - norm.bias.grad).abs().max() / 10,
)
print("equal to autograd within 1e-5:", bool(gap < 1e-5))
print(f"largest entry of grad_x {grad_x.abs().max().item():.1f}")
print("sums of its vectors within 1e-4 of 0:", bool(grad_x.sum(dim=-1).abs().max() < 1e-4))
products = (grad_x * hat).sum(dim=-1)                                  # (8, 16)
print("products with x-hat within 1e-2 of 0:", bool(products.abs().max() < 1e-2))

# %% [markdown]
# That is as it must be. Adding a constant to x changes nothing, so the gradient has nothing in that direction; stretching x changes
# nothing, so there is nothing along x either. LayerNorm lets training turn a vector, but not push its mean or its length. And since the result
# does not depend on the length, a vector that is ten times as long gets a gradient that is a tenth as large:

# %%
with torch.no_grad():
    long, _, _ = layer_norm_backward(grad, 10 * x, norm.weight)
ratio = grad_x.norm() / long.norm()
print(f"input 10 times as large: gradient {ratio.item():.1f} times smaller")

# %% [markdown]
# ## 3. GELU
#
# Two linear layers in a row are one linear layer. Something between them must bend. The simplest bend is ReLU, max(x, 0): it passes
# what is positive and stops what is negative. GELU (Hendrycks and Gimpel 2016) asks more softly. It lets x through to the share
# $\Phi(x)$, the probability that a standard normal number is below x: nearly all of 3, half of 0, nearly nothing of -3.
#
# $$\text{GELU}(x) = x\,\Phi(x) = \frac{x}{2}\left(1 + \text{erf}\frac{x}{\sqrt 2}\right)$$
#
# GPT-2 was trained with an approximation from the same paper (section 2; openai/gpt-2, src/model.py, function gelu):
#
# $$\text{gelu}(x) = \frac{x}{2}\,(1 + \tanh z) \qquad z = \sqrt{\frac{2}{\pi}}\,\left(x + 0.044715\,x^3\right)$$
#
# The two differ by less than 0.0005. That is small, and it shows all the same when a model is compared with the original number by number,
# as in lesson 09. GPT-2's weights have grown around this form, so this form it is, with all its digits.
#
# | name | shape | meaning |
# |---|---|---|
# | x | any | each number by itself |
# | result | that of x | about x for large x, about 0 for very negative x |
#
# For checking by hand: gelu(1) = 0.8412, gelu(-1) = -0.1588, gelu(0) = 0.
#
# <details><summary>Hint 1</summary>
#
# Two lines: z first, then the result. `math.sqrt(2 / math.pi)` is the constant; the root goes over the whole fraction, and the bracket over
# both terms.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Use `tanh` (or `sigmoid`) of PyTorch, not a fraction of exps: exp of more than 88 is inf in float32, and inf / inf is not a
# number. z passes 88 already at x = 13.
#
# </details>

# %%
@exercise("pytorch.layers.gelu")
def gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU in the tanh form (Hendrycks and Gimpel 2016), as GPT-2 uses it.

    Args:
        x: float tensor of any shape.

    Returns:
        0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), of the shape, dtype and device of x;
        finite also for large x. x stays as it is.
    """
    raise NotImplementedError


# %%
check(gelu)

# %%
x = torch.linspace(-5, 5, 1001)                                        # (1001,)
exact = 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
relu = x.clamp(min=0)
difference = gelu(x) - exact
print("gelu at -1, 0, 1:", [round(v, 4) for v in gelu(torch.tensor([-1.0, 0.0, 1.0])).tolist()])
print(f"lowest value {gelu(x).min().item():.3f}, at x = {x[gelu(x).argmin()].item():.2f}")
print(f"largest distance from ReLU {(gelu(x) - relu).abs().max().item():.3f}")
print(f"largest distance of tanh and erf form {difference.abs().max().item():.6f}")
_, (left, right) = show.figure(width=9, columns=2)
left.plot(x, relu, label="ReLU", color=show.GREY)
left.plot(x, gelu(x), label="gelu, tanh form", color=show.BLUE, linewidth=5, alpha=0.5)
left.plot(x, exact, label="GELU, erf form", color=show.ORANGE)
left.set(title="Three bends", xlabel="x", xlim=(-4, 2.5), ylim=(-0.4, 2.5))
left.legend()
right.plot(x, 1e4 * difference, color=show.BLUE)
right.set(title="tanh form minus erf form", xlabel="x", ylabel="in units of 0.0001")
show.finish()

# %% [markdown]
# Unlike ReLU, GELU has a slope for negative numbers, so a channel that is switched off can still learn its way back. And it
# goes down before it goes up: the curve is not monotone.
#
# **Two ways to write it.** The formula as it stands is 8 operations, and each of them reads and writes the whole tensor: cube, times, plus, times,
# tanh, plus, times, times. In a GPT this tensor is the largest of the block, (B, T, 4C). A little algebra saves some of that. From the definition of tanh
#
# $$\frac{1 + \tanh z}{2} = \frac{e^z}{e^z + e^{-z}} = \frac{1}{1 + e^{-2z}} = \text{sigmoid}(2z)$$
#
# so gelu(x) = x · sigmoid(2z): the half and the 1 are gone, and the factor 2 goes into the constants. The cube goes as well if x is taken out
# of the bracket, $2z = x\,(a + b\,x^2)$. It is the same function, not another approximation.
#
# Predict before you run: 8 operations against 6, forward and backward. Is the second writing a quarter faster, or more?

# %% tags=["nbval-ignore-output"]
def with_tanh(x):
    z = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(z))


def with_sigmoid(x):
    a = 2 * math.sqrt(2 / math.pi)
    return x * torch.sigmoid(x * (a + 0.044715 * a * (x * x)))


def step(function, x, grad):
    x.grad = None
    function(x).backward(grad)


torch.manual_seed(3)
x, grad = torch.randn(12, 64, 512).requires_grad_(), torch.randn(12, 64, 512)
writings = {"tanh writing": with_tanh, "sigmoid writing": with_sigmoid, "yours": gelu}
candidates = {name: partial(step, function, x, grad) for name, function in writings.items()}
timings = timing.measure(candidates, seconds=3)
print(timing.report(timings))
medians = {name: 1e3 * t.median for name, t in timings.items()}
show.bars(medians, "GELU of (12, 64, 512), forward and backward", "ms, median")

# %% [markdown]
# Where the figures above come from, the gain is larger than the count of operations says. They do not cost the same: `x**3` is a power, and its
# derivative needs another one. The next cell shows that nothing was lost.

# %%
same = (with_tanh(x) - with_sigmoid(x)).abs().max().item() < 2e-6
print("the two writings differ by less than 0.000002:", same)

# %% [markdown]
# If yours is the slow one, you may write it anew and check again. Nothing else changes.
#
# ## 4. The MLP
#
# Widen, bend, come back. `c_fc` makes 4C channels out of C, GELU bends each of them, `c_proj` mixes them down to C again. The names are GPT-2's, and so is the
# factor 4.
#
# | step | shape |
# |---|---|
# | x | (B, T, C) |
# | `c_fc(x)` | (B, T, 4C) |
# | gelu | (B, T, 4C) |
# | `c_proj` | (B, T, C) |
#
# $$\text{MLP}(x) = \text{gelu}(x W_1^\top + b_1)\,W_2^\top + b_2$$
#
# Both layers have a bias. Weights are stored (out, in), as in lesson 02: `c_fc.weight` is (4C, C). The residual and the LayerNorm around all this belong
# to the block, lesson 06.
#
# <details><summary>Hint 1</summary>
#
# Two `Linear` in `__init__`, with the widths of the table, which come from `config.n_embd`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `forward` is the table, a line for each row. GELU stands between the two layers and nowhere else.
#
# </details>

# %%
@exercise("pytorch.layers.MLP")
class MLP(nn.Module):
    """GPT-2's feed-forward network (openai/gpt-2, src/model.py, function mlp).

    Args:
        config: has n_embd.

    Parameters:
        c_fc: Linear(n_embd, 4 * n_embd).
        c_proj: Linear(4 * n_embd, n_embd).

    forward(x): (..., n_embd) -> (..., n_embd), each position by itself.
    """

    def __init__(self, config):
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


# %%
check(MLP)

# %% [markdown]
# What does the bend buy? Take the smallest MLP there is: one channel in, four in the middle, one out. Without GELU, whatever the weights, the
# result is a straight line. With it, four bends at four places add up to a curve.

# %%
torch.manual_seed(5)
mlp = MLP(SimpleNamespace(n_embd=1))
for p in mlp.parameters():
    p.data.normal_(0, 2)
x = torch.linspace(-3, 3, 301)[:, None]                                # (301, 1)
bent = mlp(x).detach()[:, 0]                                           # (301,)
straight = mlp.c_proj(mlp.c_fc(x)).detach()[:, 0]                      # (301,): no GELU
for name, y in [("with GELU", bent), ("without", straight)]:
    turns = (y[2:] - 2 * y[1:-1] + y[:-2]).abs().max().item()          # second difference
    print(f"{name:10} straight within 0.0001: {turns < 1e-4}")
curves = {"with GELU": bent, "without": straight}
show.lines(curves, "An MLP with four channels in the middle", "x", "MLP(x)", x=x[:, 0])

# %% [markdown]
# Now the size. A block of GPT-2 small has two parts, attention and MLP. Where do the parameters sit?

# %%
C = 768
mlp = MLP(SimpleNamespace(n_embd=C))
of_mlp = sum(p.numel() for p in mlp.parameters())
of_attention = 3 * C * C + 3 * C + C * C + C                    # c_attn and c_proj of lesson 04
print(f"MLP {of_mlp:,}, attention {of_attention:,} parameters")
print(f"the MLP's share: {100 * of_mlp / (of_mlp + of_attention):.0f} %")

# %% [markdown]
# And the cause and effect, as in lesson 04: change one token and see what moves.

# %%
torch.manual_seed(6)
mlp = MLP(SimpleNamespace(n_embd=8))
norm = LayerNorm(8)
x = torch.randn(6, 8)                                                  # (T=6, C=8)
before = mlp(norm(x))
x[3] = torch.randn(8)                                              # another token at position 3
moved = (mlp(norm(x)) - before).abs().amax(dim=-1) > 1e-6              # (6,)
print("positions that moved:", moved.nonzero().flatten().tolist())

# %% [markdown]
# Position 3 and no other. LayerNorm and MLP need no mask, since they never look sideways.
#
# ## What you built, what comes next
#
# You built the parts that work at each position by itself. LayerNorm takes scale and mean out of every vector, so that depth no longer multiplies
# them, and its gradient, which you derived, can turn a vector but not stretch it. GELU bends, in exactly the form GPT-2 grew up with, and
# the MLP widens to 4C, bends, and comes back.
#
# Lesson 06 puts all pieces together: embeddings, then blocks of LayerNorm, attention, LayerNorm, MLP, each added to the stream it reads
# from, and the token table once more at the output.
