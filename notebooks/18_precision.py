# %% [markdown]
# # 18 Precision
#
# Half the bits are half the memory and, on the hardware that is made for them, a multiple of the speed. So people train with
# 16 bits, and then argue about where not to. One article says that the softmax must run in float32. Another says that float16 in
# the softmax is its breakthrough. A third fears that a mask of -10000 overflows. Most of this can be settled without an
# accelerator: rounding is the same everywhere, and a number settles it.
#
# In this lesson you write, in both frameworks,
#
# 1. `attention_in`: attention whose softmax has a dtype of its own,
# 2. `PrecisionGPT`: the GPT with a dtype for each of its parts, over float32 weights,
# 3. `LossScaler`: gradients kept in the range of float16, and a step that overflows skipped.
#
# On the way each claim is measured against float64. Then a small model is trained in 16 bits beside float32, and one policy fails
# from its first step on.
#
# Time: about 90 minutes. You need pieces of lessons 02 to 07 and their ports; where you have not passed one, the reference
# stands in.
#
# Letters for shapes: B sequences in a batch, T positions, C channels (`n_embd`), V tokens in the vocabulary.

# %%
import math
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from course import check, corpus, device, exercise, parity, piece, setup, show, timing
from course.bench import precision as bench
from course.precision import LayerPrecision

setup()
import mindspore as ms
from mindspore import ops

ms.set_device(device.mindspore_target())
ms.runtime.launch_blocking()                              # lesson 10: errors come at their line
linear = piece("pytorch.primitives.linear")
softmax = piece("pytorch.primitives.softmax")
cross_entropy = piece("pytorch.primitives.cross_entropy")
causal_mask = piece("pytorch.attention.causal_mask")
split_heads = piece("pytorch.attention.split_heads")
merge_heads = piece("pytorch.attention.merge_heads")
gelu = piece("pytorch.layers.gelu")
GPT = piece("pytorch.gpt.GPT")
AdamW = piece("pytorch.training.AdamW")
clip_grad_norm = piece("pytorch.training.clip_grad_norm")
cosine_lr = piece("pytorch.training.cosine_lr")
get_batch = piece("pytorch.tokens.get_batch")
CharTokenizer = piece("pytorch.tokens.CharTokenizer")

# %% [markdown]
# `mindspore_target()` gives "Ascend" where there is one. Nothing in this lesson was run on an Ascend. What rounding does can be
# shown on a CPU; what 16 bits save on an Ascend cannot.
#
# ## 1. Three formats
#
# A float is a sign, an exponent and digits. float16 gives 5 bits to the exponent and 10 to the digits. bfloat16 is the upper half
# of a float32: 8 and 7. One has digits, the other has range.

# %%
rows = []
for name in ("float32", "float16", "bfloat16"):
    info = torch.finfo(getattr(torch, name))
    lowest = info.smallest_normal * info.eps              # in between digits get lost
    rows.append((name, f"{info.max:.3g}", f"{info.smallest_normal:.1e}", f"{lowest:.1e}", info.eps))
show.table(rows, ["", "largest", "smallest with all digits", "smallest", "step above 1"])

# %% [markdown]
# float16 ends at 65504, and its step above 1 is a thousandth. bfloat16 reaches as far as float32, and its step is eight times as wide.
# Keep the two numbers 65504 and 6e-8 in mind: nearly everything below is one of them.
#
# ## 2. Where the articles disagree
#
# ### Softmax: float16 or float32?
#
# A row of n scores, normal or all equal, in float16. The softmax is taken in float16, and in float32 with the result rounded to
# float16. The error is the sum of all |p - p in float64| of a row, so 1 would be a lost row. Predict before you run: does float16
# get worse with the length, and at which length does it break?

# %%
torch.manual_seed(0)
LENGTHS = [16, 64, 256, 1024, 4096, 16384, 60000, 70000]


def row_error(scores, dtype):
    """Mean over the rows of the summed error of a softmax that runs in dtype; scores in float16."""
    got = softmax(scores.to(dtype), dim=-1).half()          # (rows, n), kept as float16
    return (got.double() - scores.double().softmax(dim=-1)).abs().sum(dim=-1).mean().item()


curves = {}
for kind, scores_of in (("normal", torch.randn), ("equal", torch.zeros)):
    for dtype in (torch.float16, torch.float32):
        errors = [row_error(scores_of(8, n).half(), dtype) for n in LENGTHS]
        curves[f"{kind} scores, {str(dtype)[6:]}"] = errors
half, single, half_equal, single_equal = curves.values()
print("up to 16384 normal scores, float16: error below 0.003:", max(half[:6]) < 0.003)
print("which is less than 10 times float32's:", max(a / b for a, b in zip(half[:6], single)) < 10)
print("60000 equal scores, float16: error below 0.01:", half_equal[6] < 0.01)
print(f"70000 equal scores, float16: error {half_equal[7]:.1f}")
print("70000 equal scores, float32: error below 0.01:", single_equal[7] < 0.01)
_, axes = show.figure()
for name, errors in curves.items():
    axes.loglog(LENGTHS, errors, label=name)
axes.set(title="Softmax of a row of float16 scores", xlabel="keys", ylabel="summed error")
axes.legend()
show.finish()

# %% [markdown]
# Both articles are wrong in their extremes. Up to ten thousand keys the softmax in float16 costs two to three times the
# rounding of its result, which is paid anyway, and beyond that the two curves meet. Past 65504 equal scores the sum below the fraction overflows: all weights are 0, and the
# error is 1. The long rows of normal scores show the other end, where the weights themselves sink below the smallest normal number
# of float16; float32 does not help there as long as the result is rounded.
#
# What decides is not the softmax but what comes before it. Two ways to break it in float16 on any length:

# %%
scores = torch.tensor([[12.0, 11.0]]).half()
without_maximum = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
print("exp of 12 in float16, no maximum subtracted:", without_maximum.tolist()[0])
q, k = torch.full((1, 64), 40.0).half(), torch.full((2, 64), 40.0).half()
print("q·k in float16, then divided by 8:", ((q @ k.T) / 8).tolist()[0])
print("q divided by 8, then q·k:         ", ((q / 8) @ k.T).tolist()[0])

# %% [markdown]
# `exp` leaves float16 at 11.09, so a softmax without its maximum dies on ordinary scores. And a product of width 64 passes
# 65504 before the division by 8 brings it back. Divide q first.
#
# ### The variance at 768 wide
#
# LayerNorm squares its input and takes a mean over 768 channels. Three ways in float16: the differences from the mean squared
# (as in lesson 05), the same added one after the other in float16 (as hardware with a float16 accumulator would), and
# $E[x^2] - \mu^2$, on inputs that stand around 4 deviations from 0. Each against float64.

# %%
SCALES = [0.001, 0.003, 0.01, 0.1, 1, 10, 30, 60, 100, 300]


def variance_errors(scale):
    torch.manual_seed(0)
    x = (scale * (torch.randn(64, 768) + 4)).half()           # (64, 768)
    right = x.double().var(dim=-1, unbiased=False)
    mean = x.mean(dim=-1, keepdim=True)
    d = x - mean
    squares = d * d
    total = torch.zeros(64).half()
    for channel in range(768):
        total = total + squares[:, channel]
    found = {
        "two passes": squares.mean(dim=-1),
        "two passes, float16 sum": total / 768,
        "E[x²] - µ²": (x * x).mean(dim=-1) - mean[:, 0] ** 2,
    }
    return {name: ((v.double() - right) / right).abs().max().item() for name, v in found.items()}


def grade(error):
    if not math.isfinite(error):
        return "inf or nan"
    return "within 0.2 %" if error < 2e-3 else "off by more"


errors = {scale: variance_errors(scale) for scale in SCALES}
names = list(errors[1])
rows = [(f"{s:g}", *(grade(errors[s][n]) for n in names)) for s in (0.001, 1, 10, 300)]
show.table(rows, ["deviation of x", *names])
_, axes = show.figure()
for name in names:
    axes.loglog(SCALES, [min(errors[s][name], 30) for s in SCALES], label=name)
axes.axhline(30, color=show.GREY, linestyle=":")
axes.text(0.03, 45, "infinite")
axes.set_ylim(1e-4, 200)
axes.set(title="Variance of 768 float16 numbers", xlabel="deviation of x")
axes.set_ylabel("relative error")
axes.legend(loc="center left", bbox_to_anchor=(0, 0.62))
show.finish()

# %% [markdown]
# In the middle two passes are as good as the format. At the left the squares sink out of float16. At the right a single square
# passes 65504, which takes |x - mean| > 256, and the variance is infinite: 1/σ is 0, and the layer gives its bias and
# nothing else, without an error. With a sum kept in float16 that happens earlier. Trained models have a few channels in
# the hundreds and thousands (Sun et al. 2024, "Massive Activations in Large Language Models"), so this end is a real one.
#
# The gradient has its own limit, and it comes much earlier. The derivative of 1/σ holds 1/σ³. Here is the stream of a
# fresh GPT, the sum of two rows of deviation 0.02, in two widths: that of the model below, and that of GPT-2.

# %%
for C in (32, 768):
    torch.manual_seed(0)
    x = 0.02 * torch.randn(1000, C) + 0.02 * torch.randn(1000, C)   # (1000, C)
    cubes = (x.var(dim=-1, unbiased=False) + 1e-5) ** -1.5
    beyond = (cubes > 65504).float().mean().item()
    largest = cubes.max().item()
    print(f"C = {C:3}: largest 1/σ³ {largest:.1e}, beyond float16 {beyond:.0%} of the rows")

# %% [markdown]
# In the narrow model one row in five cannot be differentiated in float16. At 768 wide the rows are more alike and stay below the
# edge, with nothing to spare: the gradient that comes in multiplies it. Section 6 will meet this again.
#
# ### eps
#
# One article says that 1e-5 "overflows in float16" and takes 1e-6, a second says that it must be 1e-5, MindSpore's default is 1e-7,
# and 1e-12 is BERT's. What is left of them in 16 bits, and what does a row of equal numbers (variance 0) become?

# %%
rows = []
for eps in (1e-5, 1e-6, 1e-7, 1e-8, 1e-12):
    half, brain = torch.tensor(eps).half().item(), torch.tensor(eps).bfloat16().item()
    row = torch.zeros(1).half() * (torch.zeros(1).half() + eps).rsqrt()
    rows.append((f"{eps:g}", f"{half:.3g}", f"{brain:.3g}", f"{row.item():g}"))
show.table(rows, ["eps", "in float16", "in bfloat16", "row of equal numbers"])

# %% [markdown]
# 1e-5 does not overflow anything. The smaller ones are worse, not better: from 1e-8 on eps is 0, and 0 times 1/0 is nan. In
# MindSpore it is the same; you may try. With statistics in float32 the question does not arise.
#
# ### Masks
#
# Hidden scores get a large negative number. The next cell tries four of them in float16: what the number becomes, what a row with one
# hidden key gives, what it gives when two masks are added (padding and causal), and a row in which everything is hidden.

# %%
def outcome(function):
    """The numbers, or the first words of the error."""
    try:
        return str([round(float(w), 2) for w in function()])
    except RuntimeError as error:
        return str(error).split(" to type")[0]


HIDDEN = torch.tensor([False, True])
scores = torch.tensor([-40.0, 3.0]).half()
rows = []
for value in (-1e4, -65504.0, -1e9, -math.inf):
    added = torch.where(HIDDEN, torch.tensor(value).half(), 0)
    rows.append((
        f"{value:g}",
        torch.tensor(value).half().item(),
        outcome(lambda: softmax(scores.masked_fill(HIDDEN, value), dim=-1)),
        outcome(lambda: softmax(scores + added + added, dim=-1)),
        outcome(lambda: softmax(torch.tensor([-40.0, 3.0]).half() + added[1], dim=-1)),
    ))
show.table(rows, ["mask", "in float16", "masked_fill", "added twice", "all hidden, added"])
filled = ms.Tensor(np.array([-40.0, 3.0], np.float16)).masked_fill(ms.Tensor([False, True]), -1e9)
print("MindSpore, masked_fill with -1e9 in float16:", filled.asnumpy().tolist())

# %% [markdown]
# -10000 is far inside float16 and hides a key completely, so no article needs to fear it. -65504 is the last number, and twice that
# is -inf. -1e9 does not exist in float16: PyTorch's
# `masked_fill` refuses it, MindSpore writes -inf without a word. A row with nothing to see is the only difference that is left: nan
# with -inf, some average of hidden values with -10000. (Lesson 12 has what MindSpore's own softmax makes of such a row.)
#
# ### tanh or erf
#
# The two GELUs differ by less than 0.0005. Is that more or less than what float16 does to either of them?

# %%
x = torch.linspace(-4, 4, 4001, dtype=torch.float64)
exact = nn.functional.gelu(x)
form = (nn.functional.gelu(x, approximate="tanh") - exact).abs()
forms = {"tanh in place of erf, in float64": form}
for dtype in (torch.float16, torch.bfloat16):
    rounded = x.to(dtype)
    theirs = nn.functional.gelu(rounded.double(), approximate="tanh")
    forms[f"tanh form in {str(dtype)[6:]}"] = (gelu(rounded).double() - theirs).abs()
form, half, brain = (error.max().item() for error in forms.values())
print(f"tanh in place of erf, in float64: largest error {form:.0e}")
print("tanh form in float16: largest error twice as large or more:", half > 2 * form)
print("in bfloat16: twice as large again or more:", brain > 2 * half)
smooth = {n: e.reshape(-1)[:4000].reshape(100, 40).amax(dim=-1) for n, e in forms.items()}
_, axes = show.figure()
for name, error in smooth.items():
    axes.semilogy(torch.linspace(-4, 4, 100), error.clamp_min(1e-7), label=name)
axes.set(title="Two forms of GELU, and what 16 bits do to one", xlabel="x", ylabel="error")
axes.legend()
show.finish()

# %% [markdown]
# What float16 rounds off at the right, where the results are large, is more than the two forms ever differ, and in bfloat16 more
# again. At the left, where the results are small, the form still shows. It matters for equality in float32 (lesson 13). Training
# in 16 bits will not notice.
#
# ### The norm of the gradient
#
# Clipping adds squares. 300 squared is beyond float16, and 0.0001 squared is below it:

# %%
for size in (300.0, 1e-4):
    g = torch.full((768,), size)
    half = (g.half() * g.half()).sum().sqrt().item()
    print(f"768 gradients of {size:g}: norm {g.norm():.4g}, in float16 {half:g}")

# %% [markdown]
# So the answer is neither "float16" nor "float32". It is a policy for each part: products may be 16 bits wide, statistics and
# sums of squares may not, and the softmax is in between.
#
# ## 3. Attention with a softmax of its own
#
# | name | shape | dtype | meaning |
# |---|---|---|---|
# | q, k, v | (..., T, d) | one dtype, the policy's `qkv` | both products run in it |
# | mask | broadcasts to (..., T_q, T_k) | bool or None | True: may attend |
# | dtype | | the policy's `softmax` | from the scores to the weights |
# | result | (..., T_q, d_v) | dtype of v | |
#
# Each step stands in one dtype, and a cast stands at each border:
#
# $$\text{scores} = \underbrace{\tfrac{q}{\sqrt d}\,k^\top}_{\text{dtype of q}} \qquad
#   w = \underbrace{\text{softmax}(\text{scores})}_{\text{dtype}} \qquad \text{result} = \underbrace{w\,v}_{\text{dtype of v}}$$
#
# <details><summary>Hint 1</summary>
#
# It is `attention` of lesson 04 with two casts. The first stands between the product and the mask, the second between the
# softmax and the second product.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `x.to(dtype)` gives x in another dtype, and x itself if it has it already. Gradients go back through it. The second cast
# does not go to a fixed dtype, but to the one of the tensor that the weights meet.
#
# </details>

# %%
@exercise("pytorch.precision.attention_in")
def attention_in(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """attention(q, k, v, mask) with a softmax in dtype and products in the dtype of q, k and v.

    Args:
        q: (..., T_q, d). k: (..., T_k, d). v: (..., T_k, d_v). All of one dtype.
        mask: bool, broadcasts to (..., T_q, T_k), True where the query may attend; None for none.
        dtype: of the scores and weights, for example torch.float32.

    Returns:
        (..., T_q, d_v), of the dtype of v. The product of q and k overflows no earlier than the
        scores do.
    """
    raise NotImplementedError


# %%
check(attention_in)

# %%
torch.manual_seed(0)
rounded = torch.randn(3, 4, 256, 64).half().unbind(0)     # three times (n_head=4, T=256, d=64)
right = nn.functional.scaled_dot_product_attention(*(x.double() for x in rounded))
for dtype in (torch.float32, torch.float16):
    error = (attention_in(*rounded, None, dtype).double() - right).abs().max().item()
    print(f"softmax in {str(dtype)[6:]}: largest error below 0.005: {error < 5e-3}")

# %% [markdown]
# ## 4. A policy for each part
#
# `LayerPrecision` names a dtype for each part. It is the same for both frameworks, and it refuses what makes no sense:

# %%
policy = LayerPrecision(qkv="float16", mlp="float16", head="float16")
print(policy)
for wrong in ({"mlp": "half"}, {"qkv": "float16", "mlp": "bfloat16"}):
    try:
        LayerPrecision(**wrong)
    except ValueError as error:
        print("ValueError:", error)

# %% [markdown]
# | field | what runs in it |
# |---|---|
# | embedding | the rows as they are read, and the residual stream x that they begin |
# | qkv | `c_attn`, both products of the attention, `c_proj` |
# | softmax | scores to weights |
# | norm | the statistics of `ln_1`, `ln_2`, `ln_f`: the dtype of their *input* |
# | mlp | `c_fc`, the GELU, `c_proj` |
# | head | the product with `wte.weight`; logits and loss are float32 always |
#
# **Master weights.** The weights stay float32 and are cast where they are used. Two reasons. An update is small beside its
# weight: next to 1 the step of float16 is 0.001, so a learning rate of 1e-4 changes nothing there. And the cast is part of
# the graph, so the gradient comes back through it as float32:

# %%
weight = torch.ones(1)
print("1 - 0.0001 in float16:", (weight.half() - 1e-4).item())
print("1 - 0.001 in bfloat16:", (weight.bfloat16() - 1e-3).item())
master = torch.ones(1, requires_grad=True)
(3 * master.half()).sum().backward()
print("the gradient of a float32 weight that was used as float16:", master.grad.dtype)

# %% [markdown]
# `PrecisionGPT(model, policy)` takes a model and computes as the policy says, with the parameters *of that model*: it holds its modules
# under the same names, so that a checkpoint of one loads into the other and an optimizer of one trains both.
#
# | step | dtype |
# |---|---|
# | rows of `wte` and `wpe`, their sum x | embedding |
# | `ln_1` of x | its input is cast to norm |
# | `c_attn`, `attention_in`, `c_proj` | qkv, and softmax inside |
# | x plus that | embedding |
# | `ln_2`, `c_fc`, GELU, `c_proj` | norm, then mlp |
# | x plus that | embedding |
# | `ln_f`, logits | norm, then head, then float32 |
#
# Two dtypes that meet in a product are an error. In a sum or a product number by number they are not: the wider one
# wins, silently, and a part of your float16 model is float32 from there on. So cast at each border, always.
#
# <details><summary>Hint 1</summary>
#
# In `__init__`: the config, `policy.dtypes(torch)` (it holds `torch.float16` where the policy says "float16"), and the
# four modules of the model, `wte`, `wpe`, `h`, `ln_f`, as attributes of the same names.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A method of your own saves writing: one that takes a dtype, a layer with weight and bias, and x, casts all three tensors and calls
# `linear`. Do not call it `linear`: in MindSpore's graph mode a method hides the function of the same name.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `block.ln_1(...)` takes its statistics in the dtype it is given, so the cast stands inside the parentheses. Its weights are
# float32, so what comes out may be float32; the next line casts again. `cross_entropy` wants (B·T, V) and (B·T,).
#
# </details>

# %%
@exercise("pytorch.precision.PrecisionGPT")
class PrecisionGPT(nn.Module):
    """A GPT that computes as a policy says, on the parameters of the model it is made from.

    Args:
        model: a GPT of lesson 06, float32. Shared, not copied, not changed.
        policy: a LayerPrecision.

    Attributes: wte, wpe, h, ln_f of the model, and nothing else with parameters.

    forward(idx, targets=None): (B, T) int64 -> (logits (B, T, V), mean loss or None), both
        float32. Targets of -100 do not count. With a policy of float32 the logits are the model's.

    Source: Micikevicius et al. 2018, sections 3.1 and 3.3.
    """

    def __init__(self, model, policy):
        raise NotImplementedError

    def forward(self, idx, targets=None):
        raise NotImplementedError


# %%
check(PrecisionGPT)

# %% [markdown]
# A policy of float32 must change nothing, to the last bit. (If it differs by 1e-7 for you, your attention of lesson 04 divides
# or adds in another order than `attention_in`.) Then one part after the other in float16, alone: how far do the logits move, and
# do all gradients stay finite?

# %%
config = SimpleNamespace(vocab_size=81, n_ctx=32, n_layer=2, n_head=2, n_embd=32)
torch.manual_seed(0)
model = GPT(config)
idx, targets = torch.randint(81, (2, 16, 32)).unbind(0)   # (B=16, T=32) each
logits, loss = model(idx, targets)
same, _ = PrecisionGPT(model, LayerPrecision())(idx, targets)
print("float32 everywhere, bit for bit:", torch.equal(same, logits))

PARTS = ["embedding", "qkv", "softmax", "norm", "mlp", "head"]
moved = {}
for part in PARTS:
    model.zero_grad()
    logits_in, loss_in = PrecisionGPT(model, LayerPrecision(**{part: "float16"}))(idx, targets)
    loss_in.backward()
    finite = all(p.grad.isfinite().all().item() for p in model.parameters())
    moved[part] = (logits_in - logits).abs().max().item() / logits.abs().max().item()
    small = moved[part] < 3e-3
    print(f"{part:10} in float16: logits within 0.3 % {small}, gradients finite {finite}")
show.bars(moved, "One part in float16", "largest change of the logits, relative")

# %% [markdown]
# Every part in float16 gives good logits. And still one of them cannot be trained: with the statistics in float16 the
# backward pass of `ln_1` meets 1/σ³ of section 2. The forward says nothing of it.
#
# ## 5. Loss scaling
#
# Gradients are small. The loss is a mean over B·T tokens, so the gradient of each logit is a probability divided by B·T. What is
# below 6e-8 is 0 in float16. The remedy is one line: multiply the loss by a large number before the backward pass, and divide
# the gradients by it after (Micikevicius et al. 2018, section 3.2). The next cell counts, for scales from 2⁻¹² to 2²⁴, the
# gradient entries that are 0 although float32 has them, and those that are inf or nan. Scales below 1 stand for larger batches: at
# 2⁻¹² this batch of 512 tokens has the gradients of one of two million.

# %%
halves = LayerPrecision(
    embedding="float16", qkv="float16", softmax="float16", mlp="float16", head="float16"
)


def gradient_of(net, scale):
    """All gradients of the scaled loss, as one vector."""
    model.zero_grad()
    (net(idx, targets)[1] * scale).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


there = gradient_of(model, 1.0) != 0                      # rows of absent tokens have none
POWERS = list(range(-12, 25, 4))
lost, broken = [], []
net = PrecisionGPT(model, halves)
for power in POWERS:
    g = gradient_of(net, 2.0**power)[there]
    lost.append((g == 0).float().mean().item())
    broken.append((~g.isfinite()).float().mean().item())
at_one = POWERS.index(0)
print("lost at scale 2^-12: more than 30 %:", lost[0] > 0.3)
print("lost at scale 1: more than at 2^12:", lost[at_one] > lost[POWERS.index(12)])
print("broken at 2^12:", broken[POWERS.index(12)], "- at 2^24: more than half:", broken[-1] > 0.5)
show.lines(
    {"lost: 0 in float16": lost, "broken: inf or nan": broken},
    "Gradient entries of a small GPT", "scale of the loss, power of 2", "share", x=POWERS,
)

# %% [markdown]
# There is a window, and nobody knows beforehand where it stands; it moves during training. So the scale is searched for: start high;
# where a gradient is inf or nan, skip the step and halve the scale, below 1 if it must be; after many good steps in a row,
# double it.
#
# | attribute | meaning |
# |---|---|
# | `scale` | the factor, a number |
# | `good_steps` | steps made since the scale last changed |
# | `growth`, `backoff`, `interval` | factor up, factor down, good steps before it grows |
#
# The order inside `step` matters. Divide first: the norm that clipping looks at must be the true one. Test before anything is
# changed: AdamW's m and v with an inf in them never recover, and a step with zeros is no skipped step, since m and v decay and the
# count goes on.
#
# <details><summary>Hint 1</summary>
#
# All parameters are in `optimizer.param_groups`, a list of dicts with "params". Those whose `.grad` is None have nothing to divide.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `g.isfinite().all()` is False for inf, -inf and nan alike. If it fails for one gradient: change the scale, set the count to 0,
# return False. The rest of the method is the good case.
#
# </details>

# %%
@exercise("pytorch.precision.LossScaler")
class LossScaler:
    """Dynamic loss scaling (Micikevicius et al. 2018, section 3.2).

    Args:
        scale: the factor to start with.
        growth, backoff: what the scale is multiplied by, after `interval` good steps in a row and
            after an overflow.

    scaled(loss): the loss times scale, a new tensor, to call backward on.
    step(optimizer, max_norm=None): divides every gradient by the scale. If one entry is inf or
        nan, parameters and the state of the optimizer stay as they are, the scale backs off, and
        it returns False. Else it clips to max_norm (if given), steps, and returns True.
    """

    def __init__(self, scale=2.0**16, growth=2.0, backoff=0.5, interval=2000):
        raise NotImplementedError

    def scaled(self, loss):
        raise NotImplementedError

    def step(self, optimizer, max_norm=None):
        raise NotImplementedError


# %%
check(LossScaler)

# %% [markdown]
# Start far too high and watch it find its place. PyTorch's own, `torch.amp.GradScaler`, goes the same way.

# %%
scaler = LossScaler(scale=2.0**30)
optimizer = AdamW(model.parameters(), lr=1e-3)
before = model.wte.weight.detach().clone()
skipped = 0
while True:
    model.zero_grad()
    scaler.scaled(net(idx, targets)[1]).backward()
    if scaler.step(optimizer, max_norm=1.0):
        break
    skipped += 1
    assert torch.equal(model.wte.weight, before) and not optimizer.state
print(f"skipped {skipped > 5 and 'more than 5'} steps, weights and optimizer untouched")
print("the scale came down to below 2^24:", scaler.scale < 2.0**24)

# %% [markdown]
# ## 6. Training
#
# A small GPT on the plays, 100 steps, from one start and on the same batches: float32, then policies. Predict before you
# run: which of them end within 0.05 of float32?

# %% tags=["nbval-ignore-output"]
text = corpus.load("shakespeare")
tokenizer = CharTokenizer(text)
tokens = np.array(tokenizer.encode(text[:300_000]), dtype=np.uint16)
generator = torch.Generator().manual_seed(1)
batches = [get_batch(tokens, 16, 32, generator=generator) for _ in range(100)]
rates = [cosine_lr(it, max_lr=3e-3, min_lr=3e-4, warmup=10, total=100) for it in range(100)]


def train(policy=None, scaler=None, weights=torch.float32, steps=100):
    """The losses of a run; weights other than float32 have no master copy."""
    torch.manual_seed(0)
    model = GPT(config).to(weights)
    net = PrecisionGPT(model, policy) if policy else model
    optimizer = AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.1)
    losses = []
    for (x, y), lr in zip(batches[:steps], rates):
        for group in optimizer.param_groups:
            group["lr"] = lr
        _, loss = net(x, y)
        optimizer.zero_grad()
        if scaler:
            scaler.scaled(loss).backward()
            scaler.step(optimizer, max_norm=1.0)
        else:
            loss.backward()
            clip_grad_norm(list(model.parameters()), 1.0)
            optimizer.step()
        losses.append(loss.item())
    return losses


failing = LossScaler()
runs = {
    "float32": train(),
    "float16 but norm": train(halves, LossScaler()),
    "bfloat16": train(LayerPrecision.everywhere("bfloat16")),
    "float16 norm": train(LayerPrecision(norm="float16"), failing, steps=40),
    "bfloat16 weights": train(weights=torch.bfloat16),
    "float16 weights": train(weights=torch.float16, steps=5),
}
ends = {name: float(np.mean(losses[-10:])) for name, losses in runs.items()}
for name, end in ends.items():
    print(f"{name:17} {end:.4f} after {len(runs[name])} steps")
drawn = ("float32", "float16 but norm", "float16 norm", "bfloat16 weights")
show.lines({name: runs[name] for name in drawn}, "100 steps on the plays", "step", "loss")

# %%
for name in ("float16 but norm", "bfloat16"):
    print(f"{name}: within 0.05 of float32: {abs(ends[name] - ends['float32']) < 0.05}")
gap = ends["bfloat16 weights"] - ends["float32"]
print("bfloat16 weights without a master copy end higher than both:", gap > 0.005)
print("float16 weights with AdamW: nan:", math.isnan(ends["float16 weights"]))
stuck = runs["float16 norm"]
print(f"statistics in float16: no step was made, the scale is 2^{math.log2(failing.scale):.0f}")
print("its loss after 40 steps is still above 4:", stuck[-1] > 4)

# %% [markdown]
# Why each of them fails:
#
# - **float16 norm.** Only the statistics are float16, all else is float32. 1/σ³ overflows in the backward pass, so every step is
#   skipped and the scale is halved, for nothing: it is not the loss that is too large. A wider model would start, and have no room
#   for a scale. This is why a policy goes by parts, and why the usual one keeps the statistics in float32.
# - **float16 weights.** The state of AdamW is float16 then, too. v holds squares of gradients, which are 0 in float16, eps = 1e-8
#   is 0 as well, and m / 0 is not a number.
# - **bfloat16 weights.** Range is no problem, digits are. Where a weight's step is wider than twice the update, the update is
#   rounded away. It trains, worse than with a master copy, and the gap opens when the learning rate goes down.
#
# That float16 without a scaler would train here, too, is no secret: the model is small and its gradients are not. The window of
# section 5 says for which batches it would not.
#
# ## 7. The same in MindSpore
#
# What PyTorch gives is kept for comparison: the names of its pieces go to their ports below.

# %%
rng = np.random.default_rng(0)
arrays = [rng.standard_normal((4, 64, 16)).astype(np.float16) for _ in range(3)]   # q, k, v
torch_attended = attention_in(*map(torch.from_numpy, arrays), None, torch.float32)
torch.manual_seed(0)
torch_model = GPT(config)
products = LayerPrecision(qkv="float16", mlp="float16", head="float16")
torch_logits = [PrecisionGPT(torch_model, policy)(idx)[0] for policy in (products, halves)]
print("kept:", tuple(torch_attended.shape), [tuple(logits.shape) for logits in torch_logits])

# %% [markdown]
# First what there is. Which of the operations of a GPT does MindSpore have in 16 bits on this device?

# %%
from mindspore import nn                                  # MindSpore's from here on

linear = piece("mindspore.primitives.linear")
softmax = piece("mindspore.primitives.softmax")
cross_entropy = piece("mindspore.primitives.cross_entropy")
causal_mask = piece("mindspore.attention.causal_mask")
split_heads = piece("mindspore.attention.split_heads")
merge_heads = piece("mindspore.attention.merge_heads")
gelu = piece("mindspore.layers.gelu")
clip_grad_norm = piece("mindspore.training.clip_grad_norm")


def works(function):
    try:
        function().astype(ms.float32).asnumpy()
        return "yes"
    except (RuntimeError, TypeError):
        return "no"


x = ms.Tensor(np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32))
rows = []
for name, operation in {
    "x + x": lambda x: x + x,
    "matmul": lambda x: ops.matmul(x, x),
    "mean": lambda x: x.mean(axis=-1),
    "exp": ops.exp,
    "softmax": lambda x: ops.softmax(x, axis=-1),
    "sigmoid": ops.sigmoid,
}.items():
    rows.append((name, *(works(lambda: operation(x.astype(d))) for d in (ms.float16, ms.bfloat16))))
show.table(rows, ["", "float16", "bfloat16"])

# %%
try:
    LayerPrecision.everywhere("bfloat16").dtypes(ms)
except ValueError as error:
    print("ValueError:", error)

# %% [markdown]
# bfloat16 exists on MindSpore's CPU as a format to add, cut and cast in, and not to compute a layer in. So this half uses float16.
# On an Ascend the policy lets bfloat16 through; that was not run.
#
# ### Attention
#
# The port is nearly a rename: `astype` for `to`, `ops.matmul` for `@`. What is not: MindSpore's `masked_fill` takes any number for
# float16 without a word, so -1e9 is -inf and -70000 too. Write -inf and mean it.
#
# <details><summary>Hint 1</summary>
#
# Put your PyTorch answer and your `attention` of lesson 12 side by side: each line is in one of them.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `x.astype(ms.float16)` casts, in both modes, and carries gradients. `v.dtype` is a dtype that `astype` takes.
#
# </details>

# %%
@exercise("mindspore.precision.attention_in")
def attention_in(q, k, v, mask, dtype):
    """attention(q, k, v, mask) with a softmax in dtype and products in the dtype of q, k and v.

    Args:
        q: (..., T_q, d). k: (..., T_k, d). v: (..., T_k, d_v). All of one dtype.
        mask: bool, broadcasts to (..., T_q, T_k), True where the query may attend; None for none.
        dtype: of the scores and weights, for example ms.float32.

    Returns:
        (..., T_q, d_v), of the dtype of v; works in eager mode and inside ms.jit.
    """
    raise NotImplementedError


# %%
check(attention_in)

# %%
ours = attention_in(*map(ms.Tensor, arrays), None, ms.float32)
gap = parity.largest_difference(ours, torch_attended)
print("the two frameworks within 2e-3:", gap < 2e-3)

# %% [markdown]
# In float32 the two frameworks agreed within 1e-6. Here they agree within a few steps of float16, and no port can do better: the
# order of a sum shows in the last digit, and the last digit is a thousandth.
#
# ### The model
#
# `policy.dtypes(ms)` gives MindSpore's dtypes. Three things to mind:
#
# - A float16 tensor plus a float32 one is float32, silently. In a product it is a TypeError.
# - The four modules become attributes under their old names, so that the parameters keep theirs.
# - In a graph the name of a method hides a function of the same name, as said above.
#
# <details><summary>Hint 1</summary>
#
# Line by line as your PyTorch class: `construct` for `forward`, `astype` for `to`, `split(C, axis=-1)`, `ops.arange`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A layer, which is a Cell, may be an argument of a method of yours, in graph mode too.
#
# </details>

# %%
@exercise("mindspore.precision.PrecisionGPT")
class PrecisionGPT(nn.Cell):
    """A GPT that computes as a policy says, on the parameters of the model it is made from.

    Args:
        model: a GPT of lesson 15, float32. Shared, not copied, not changed.
        policy: a LayerPrecision.

    Attributes: wte, wpe, h, ln_f of the model, and nothing else with parameters.

    construct(idx, targets=None): (B, T) ids -> (logits (B, T, V), mean loss or None), both
        float32. Works in eager mode and inside ms.jit.

    Raises:
        ValueError: bfloat16 on a CPU, from policy.dtypes(ms).
    """

    def __init__(self, model, policy):
        raise NotImplementedError

    def construct(self, idx, targets=None):
        raise NotImplementedError


# %%
check(PrecisionGPT)

# %%
ported = piece("mindspore.gpt.GPT")(config)
parity.carry(torch_model, ported)
ids = ms.Tensor(idx.numpy(), ms.int32)
plain = PrecisionGPT(ported, LayerPrecision())(ids)[0].asnumpy()
same = np.array_equal(plain, ported(ids)[0].asnumpy())
print("float32 everywhere, bit for bit:", same)
for policy, theirs in zip((products, halves), torch_logits):
    gap = parity.relative_difference(PrecisionGPT(ported, policy)(ids)[0], theirs)
    print("float16, the two frameworks within 1 %:", gap < 0.01)

# %% [markdown]
# ### The scaler
#
# In PyTorch the decision was a Python `if` on a Python bool. In a graph there is none: what depends on a gradient is a tensor until
# the graph runs, and reading it with `.asnumpy()` makes the step stop in its middle and wait for Python. But an `if` on a
# *tensor* becomes a branch of the graph, decided at each call, and both branches may assign to Parameters.
#
# | PyTorch | here |
# |---|---|
# | `scale`, `good_steps`: numbers | Parameters, with `requires_grad=False` |
# | `step(optimizer, max_norm)` reads `.grad` | `step(optimizer, grads, max_norm)` |
# | `self.scale *= self.backoff` | `ops.assign(self.scale, ...)` |
# | returns True or False | returns the tensor that decided |
#
# <details><summary>Hint 1</summary>
#
# `ops.isfinite(g).all()` is a tensor of shape () for each gradient; `ops.stack` and one more `.all()` make one of all. Use it
# as the condition, without turning it into anything.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `ops.assign` returns the new value. Compare that with the interval: the Parameter itself may be read before it is written.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `clip_grad_norm(grads, max_norm)` gives two things. `max_norm` is a Python value, None or a number, and an `if` on it is
# decided when the graph is built, which is what you want here.
#
# </details>

# %%
@exercise("mindspore.precision.LossScaler")
class LossScaler(nn.Cell):
    """Dynamic loss scaling (Micikevicius et al. 2018, section 3.2).

    Args:
        scale: the factor to start with.
        growth, backoff: what the scale is multiplied by, after `interval` good steps in a row and
            after an overflow.

    Attributes: scale (float32) and good_steps (int32), Parameters without a gradient.

    scaled(loss): the loss times scale.
    step(optimizer, grads, max_norm=None): divides the gradients by the scale. If one entry is inf
        or nan, nothing changes but the scale and the count. Else it clips to max_norm (if given)
        and calls optimizer.step(grads). Returns a bool tensor: was a step made? Works in ms.jit.
    """

    def __init__(self, scale=2.0**16, growth=2.0, backoff=0.5, interval=2000):
        raise NotImplementedError

    def scaled(self, loss):
        raise NotImplementedError

    def step(self, optimizer, grads, max_norm=None):
        raise NotImplementedError


# %%
check(LossScaler)

# %% [markdown]
# The whole step as one graph: forward and backward in float16, scaled, tested, clipped, updated. From the same start and on the same
# batches as PyTorch's float32 run of section 6.

# %% tags=["nbval-ignore-output"]
net = PrecisionGPT(ported, halves)
scaler = LossScaler()
make = piece("mindspore.training.AdamW")
optimizer = make(ported.trainable_params(), betas=(0.9, 0.99), weight_decay=0.1)


def scaled_loss(x, y):
    return scaler.scaled(net(x, y)[1])


value_and_grad = ms.value_and_grad(scaled_loss, None, ported.trainable_params())


def train_step(x, y):
    scale = scaler.scale + 0                               # the one this loss gets
    loss, grads = value_and_grad(x, y)
    done = scaler.step(optimizer, grads, 1.0)
    return loss / scale, done


compiled = ms.jit(train_step)
losses, made = [], 0
for (x, y), lr in zip(batches, rates):
    optimizer.set_lr(lr)
    loss, done = compiled(ms.Tensor(x.numpy(), ms.int32), ms.Tensor(y.numpy(), ms.int32))
    losses.append(float(loss.asnumpy()))
    made += bool(done.asnumpy())
print(f"MindSpore, float16 but norm: {np.mean(losses[-10:]):.4f}")
print(f"PyTorch, float32:            {ends['float32']:.4f}")
both = {"PyTorch, float32": runs["float32"], "MindSpore, float16 but norm": losses}
show.lines(both, "100 steps on the plays", "step", "loss")

# %%
print("within 0.05 of PyTorch's float32:", abs(np.mean(losses[-10:]) - ends["float32"]) < 0.05)
print("steps made, at least 95 of 100:", made >= 95)

# %% [markdown]
# ### What the frameworks bring
#
# PyTorch has `torch.autocast`, which picks a dtype for each operation by a list, and MindSpore has `ms.amp.auto_mixed_precision`, which
# goes by levels and by the type of the Cell. Neither knows your parts. Look at what they decide:

# %%
with torch.autocast("cpu", dtype=torch.bfloat16):
    x = torch.randn(2, 4)
    y = x @ torch.randn(4, 4)
    found = {
        "matmul": y,
        "softmax": y.softmax(dim=-1),
        "layer_norm": torch.nn.functional.layer_norm(y, (4,)),
        "gelu": torch.nn.functional.gelu(y),
        "cross_entropy": torch.nn.functional.cross_entropy(y, torch.tensor([0, 1])),
    }
for name, result in found.items():
    print(f"autocast on a CPU, {name}: {str(result.dtype)[6:]}")

# %%
class Two(nn.Cell):
    """A layer of MindSpore's own, and the Linear of lesson 10."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(64, 8)
        self.own = piece("mindspore.primitives.Linear")(64, 8)

    def construct(self, x):
        return self.dense(x), self.own(x)


x = ms.Tensor(rng.standard_normal((16, 64)).astype(np.float32))
for level in ("O0", "O2", "O3"):
    two = Two()
    before = [y.asnumpy() for y in two(x)]
    after = [y.asnumpy() for y in ms.amp.auto_mixed_precision(two, level, dtype=ms.float16)(x)]
    changed = [not np.array_equal(a, b) for a, b in zip(before, after)]
    print(f"{level}: nn.Dense rounded {changed[0]}, your Linear rounded {changed[1]}")

# %% [markdown]
# On a CPU autocast leaves the softmax and the LayerNorm in bfloat16; its list for CUDA is another one. In MindSpore the results
# are float32 at every level, since each Cell casts back what it gives. Only their digits tell that O2 and O3 computed in 16 bits.
# (O1 and "auto" rewrite the source of the network, and of a class in a notebook cell they find none.) A policy that is written
# down is easier to trust.
#
# ## 8. What it costs
#
# One linear layer, 128 rows, 384 in and 1536 out, forward and backward, in each dtype that the framework has on this device.
# Each framework runs in a process of its own. Predict before you run: 16 bits move half the bytes, so how much faster is float16 on a
# CPU?

# %% tags=["nbval-ignore-output"]
timings = bench.compare(seconds=0.6)
print(timing.report(timings))
medians = {name.replace(" ", "\n"): 1e3 * t.median for name, t in timings.items()}
show.bars(medians, "A linear layer, forward and backward", "ms, median")

# %% [markdown]
# It depends on what the CPU has instructions for, and hardly on the bytes. Where there is none for float16, each number is widened,
# multiplied and rounded, and float16 costs a multiple of float32. bfloat16 is fast where the CPU multiplies it directly
# (`avx512_bf16`, `amx_bf16`). An Ascend has units for 16-bit products, which is why all this is done; it was not measured
# here, and no figure above stands for it. What holds everywhere: half the memory, and results as near as the format allows.

# %%
torch.manual_seed(0)
x, w = torch.randn(128, 384, dtype=torch.float64), torch.randn(96, 384, dtype=torch.float64)
right = x @ w.T
for dtype, bound in ((torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
    small, weight = x.to(dtype), w.to(dtype)
    error = ((small @ weight.T).double() - right).abs().max().item() / right.abs().max().item()
    size = small.element_size()
    print(f"{str(dtype)[6:]}: {size} bytes a number, product within {bound}: {error < bound}")
small, weight = (ms.Tensor(a.numpy().astype(np.float16)) for a in (x, w))
error = parity.relative_difference(ops.matmul(small, weight.swapaxes(0, 1)), right)
print("MindSpore float16: product within 0.002:", error < 2e-3)

# %% [markdown]
# ## What you built, what comes next
#
# You built a GPT whose parts compute in dtypes of their own over float32 weights, and a scaler that keeps its gradients in range, in
# both frameworks. You measured what the articles argue about. Softmax in float16 is fine up to tens of thousands of keys, and a
# product that is divided too late is not. -10000 is a good mask. A smaller eps is no safer. The two GELUs differ by less than the largest
# rounding of float16. And the part that must be float32 is the one that squares: the statistics of LayerNorm, whose forward gives no sign.
#
# Lesson 19 describes a layer as a recipe, so that such choices are data, and cuts the model into stages.
