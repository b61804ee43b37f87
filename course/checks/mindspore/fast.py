"""Checks of lesson 17: the fast layers, which must compute what the readable ones do, on a stream of (B * T, C). The oracles are those of lessons 12, 14 and 15."""
import math
from types import SimpleNamespace

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F

from course.checks import checks
from course.checks.mindspore import (
    arrays, call, close, difference, equal, fail, fill, gradients_close, gradients_of, in_plain_words, is_tensor, parameters_are, rand, same_in_graph_mode,
)
from course.checks.mindspore import attention as readable_attention
from course.checks.mindspore import gpt as readable_block
from course.checks.mindspore import layers as readable_layers
from course.checks.pytorch import attention as torch_attention
from course.checks.pytorch import gpt as torch_block

ms.runtime.launch_blocking()

NORM = "mindspore.fast.LayerNorm"
ATTENTION = "mindspore.fast.CausalSelfAttention"
BLOCK = "mindspore.fast.Block"

CONFIG = SimpleNamespace(vocab_size=11, n_ctx=7, n_layer=2, n_head=3, n_embd=12)
OTHER = SimpleNamespace(vocab_size=5, n_ctx=4, n_layer=1, n_head=4, n_embd=8)
VALUES = 5e-6
THREE_AXES = "the stream has two axes here, (B * T, n_embd): the result must come back in that shape."


FLOAT64 = [("with type Tensor[Float64]", "a float64 tensor meets one of float32 in a product: NumPy makes float64 where no dtype is given, and MindSpore keeps it.")]


def run_of(cell):
    """cell as a function of x, which the graph compiler can read."""

    def run(x):
        return cell(x)

    return run


def result(cell, x):
    with in_plain_words(FLOAT64):
        return call(run_of(cell), x)


def is_matrix(got, shape, B, T):
    """The result is (B * T, C); names a result that went back to three axes."""
    if isinstance(got, ms.Tensor) and tuple(got.shape) == (B, T, shape[-1]):
        fail(THREE_AXES, example=f"the result has shape {tuple(got.shape)}, expected {shape}", look="the last reshape, which can take x's own shape")
    is_tensor(got, shape, ms.float32)


def nearly(got, want, atol):
    """Fails if got is want but for the digits that a step in float16 loses."""
    if not equal(got, want, atol) and equal(got, want, 4e-3):
        fail(
            "the result is nearly right: a step on the way has fewer digits than float32.", example=difference(got, want, "the result"),
            look="casts to float16",
        )


def elsewhere(got, want, atol, at, look):
    """Fails if the values, right at the sizes of the check before, are wrong at others."""
    if isinstance(got, ms.Tensor) and tuple(got.shape) == want.shape and not equal(got, want, atol):
        fail(f"the values were right before, and are wrong for {at}.", example=difference(got, want, "the result"), look=look)


# --- LayerNorm -----------------------------------------------------------------------------------------


def compare_norm(module, x, eps=1e-5, atol=5e-6, **words):
    readable_layers.compare_norm(module, x, eps, atol, **words)


@checks(NORM, "parameters")
def norm_parameters(LayerNorm):
    readable_layers.norm_parameters(LayerNorm)
    readable_layers.norm_initial(LayerNorm)


@checks(NORM, "values")
def norm_values(LayerNorm):
    module = readable_layers.norm_for(LayerNorm, 6)
    p = arrays(module)
    x = 0.7 + rand(10, 6, seed=31, scale=4.0)
    want = readable_layers.expected_norm(x, p["weight"], p["bias"])
    got = result(module, x)
    if isinstance(got, ms.Tensor) and not equal(got, want, 1e-5):
        d, n = x - x.mean(1, keepdims=True), x.shape[1]
        for words, value in [
            ("the column holds ones and not 1 / n_embd: a product with it gives sums, not means.", lambda: (x - x.sum(1, keepdims=True)) / np.sqrt(np.square(x - x.sum(1, keepdims=True)).sum(1, keepdims=True) + 1e-5)),
            ("the variance is a sum and no mean: its product needs the column of 1 / n_embd too.", lambda: d / np.sqrt(np.square(d).sum(1, keepdims=True) + 1e-5)),
            ("the variance is taken of x and not of x less its mean.", lambda: d / np.sqrt(np.square(x).mean(1, keepdims=True) + 1e-5)),
            ("the means run over the rows: each position has a mean of its own, over its channels.", lambda: (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)),
            ("the column holds 1 / (number of rows): it is 1 / n_embd.", lambda: (x - x.sum(1, keepdims=True) / len(x)) / np.sqrt(np.square(x - x.sum(1, keepdims=True) / len(x)).sum(1, keepdims=True) / len(x) + 1e-5)),
            ("the means are 0 whatever x is: the column holds zeros, as 1 // n_embd does.", lambda: x / np.sqrt(1e-5)),
            ("the variance has n_embd - 1 below the fraction.", lambda: d / np.sqrt(np.square(d).sum(1, keepdims=True) / (n - 1) + 1e-5)),
        ]:
            if equal(got, p["weight"] * value() + p["bias"], 1e-4):
                fail(words, look="what x is multiplied with to get a mean")
    nearly(got, want, 1e-5)
    compare_norm(module, x, atol=1e-5)


@checks(NORM, "eps and other sizes")
def norm_eps(LayerNorm):
    for scale in (2e-3, 1e-4):
        compare_norm(readable_layers.norm_for(LayerNorm, 6), rand(10, 6, seed=33, scale=scale), name=f"the result for numbers of size {scale:g}", look="the default of eps, 1e-5, and its place under the root")
    for N, C, eps in [(1, 4, 0.5), (3, 8, 0.01), (9, 3, 1e-5)]:
        module = readable_layers.norm_for(LayerNorm, C, eps)
        x, p, look = rand(N, C, seed=32), arrays(module), "where eps is kept in __init__; the column is as long as n_embd"
        got, want = call(run_of(module), x), readable_layers.expected_norm(x, p["weight"], p["bias"], eps)
        if not any(equal(got, value, 1e-5) for _, value in readable_layers.norm_mistakes(x, p["weight"], p["bias"], eps)):
            elsewhere(got, want, 5e-6, f"x of shape ({N}, {C}) and eps = {eps}", look)
        compare_norm(module, x, eps, name=f"the result for x of shape ({N}, {C}) and eps = {eps}", look=look)


@checks(NORM, "a mean far from 0")
def norm_large_mean(LayerNorm):
    readable_layers.norm_large_mean(LayerNorm)


@checks(NORM, "gradients")
def norm_gradients(LayerNorm):
    module = readable_layers.norm_for(LayerNorm, 6)
    held = dict(module.parameters_and_names())
    x = 0.3 + rand(10, 6, seed=37, scale=1.5)
    inputs = [torch.tensor(a, requires_grad=True) for a in (x, held["weight"].asnumpy(), held["bias"].asnumpy())]
    out = F.layer_norm(inputs[0], (6,), inputs[1], inputs[2], 1e-5)
    wanted = [g.numpy() for g in torch.autograd.grad((out * torch.from_numpy(rand(10, 6, seed=99))).sum(), inputs)]
    mine = gradients_of(run_of(module), [x], [held["weight"], held["bias"]])
    for words, which in [("the means", (0, 1)), ("the mean that is subtracted", (0,)), ("the variance", (1,))]:
        if not equal(ms.Tensor(mine[0]), wanted[0], 1e-5) and equal(ms.Tensor(mine[0]), gradient_without(x, held["weight"].asnumpy(), which), 1e-4):
            fail(
                f"the gradient of x takes {words} for a constant: mean and variance depend on x, and gradients go through both.",
                example=difference(ms.Tensor(mine[0]), wanted[0], "the gradient of x"), look="ops.stop_gradient, .asnumpy() and ms.Tensor(...) cut the graph",
            )
    gradients_close(mine, wanted, ["x", "weight", "bias"])


def gradient_without(x, weight, cut):
    """The gradient to x where the mean (0) or the variance (1) is taken for a constant."""
    x = torch.tensor(x, requires_grad=True)
    mean = x.mean(1, keepdim=True)
    d = x - (mean.detach() if 0 in cut else mean)
    variance = (d * d).mean(1, keepdim=True)
    out = torch.from_numpy(weight) * d * ((variance.detach() if 1 in cut else variance) + 1e-5).rsqrt()
    return torch.autograd.grad((out * torch.from_numpy(rand(*x.shape, seed=99))).sum(), x)[0].numpy()


@checks(NORM, "the same in graph mode", seconds=20)
def norm_graph(LayerNorm):
    same_in_graph_mode(run_of(readable_layers.norm_for(LayerNorm, 6)), rand(10, 6, seed=40))


# --- CausalSelfAttention -------------------------------------------------------------------------------


def flat(x):
    return x.reshape(-1, x.shape[-1])


def expected_attention(module, x, n_head):
    """x (B, T, C) -> (B * T, C)."""
    return flat(readable_attention.expected_module(module, x, n_head=n_head))


def attention_mistakes(module, x):
    """(words, array): those of lesson 12, and those of adding a mask and of a stream without a batch axis."""
    shadow = readable_attention.shadow(module)
    B, T, C = x.shape
    t = torch.from_numpy(x)
    qkv = F.linear(t, shadow.c_attn.weight, shadow.c_attn.bias)
    q, k, v = (torch_attention.cut(part, 3) for part in qkv.chunk(3, -1))
    scores = q @ k.transpose(-2, -1) / math.sqrt(C // 3)
    future = torch.ones(T, T).triu(1)

    def by(weights, v=v):
        return F.linear(torch_attention.join(weights @ v), shadow.c_proj.weight, shadow.c_proj.bias)

    def of_reading(q, k, v):
        return by((q @ k.transpose(-2, -1) / math.sqrt(C // 3) - 1e9 * future).softmax(-1), v)

    right = (scores - 1e9 * future).softmax(-1)
    found = [
        ("q and k have changed places: in c_attn's thirds, which are q, k, v, or in the product of the scores.", of_reading(k, q, v)),
        ("the scores are multiplied by sqrt(head_dim): they are divided by it.", by((scores * (C // 3) - 1e9 * future).softmax(-1))),
        ("all keys that are seen get the same weight: the scores come to 0. Is the scale 0, as 1 // sqrt(head_dim) is?", by((0 * scores - 1e9 * future).softmax(-1))),
        ("the mask is added as True and False, which are 1 and 0: it lifts hidden scores by 1.", by((scores + future).softmax(-1))),
        ("the scale stands after the softmax: it belongs to the scores.", by((scores * math.sqrt(C // 3) - 1e9 * future).softmax(-1) / math.sqrt(C // 3))),
        ("the weights are multiplied with k: what is averaged is v.", by(right, k)),
        ("the softmax runs over the heads, axis 1: each row of weights, over the keys, must sum to 1.", by((scores - 1e9 * future).softmax(1))),
        ("the channels are cut into (head_dim, n_head): a head's channels lie side by side, (n_head, head_dim).", of_reading(*(p.reshape(B, T, C // 3, 3).permute(0, 3, 1, 2) for p in qkv.chunk(3, -1)))),
        ("q, k and v are cut channel by channel (q0 k0 v0 q1 ...): all of q comes first, then all of k, then all of v.", of_reading(*qkv.reshape(B, T, 3, C // 3, 3).permute(4, 0, 2, 1, 3))),
        ("the merge exchanges time and channel: time and heads change places, before the reshape.", F.linear((right @ v).transpose(2, 3).reshape(B, T, C), shadow.c_proj.weight, shadow.c_proj.bias)),
        ("all rows are taken for one sequence: row b * T + t belongs to sequence b, and sees no other.", in_one_sequence(qkv, shadow)),
        ("the mask is added with the wrong sign: it lifts the future by 1e9 and hides the past.", by((scores + 1e9 * future).softmax(-1))),
        ("the mask moves hidden scores by 1 only, and a softmax still gives them weight: what is added must be 0 where a key may be seen and far below every score where it is hidden.", by((scores - future).softmax(-1))),
        ("the mask hides each position from itself: the triangle starts above the diagonal.", by((scores - 1e9 * torch.ones(T, T).triu(0)).softmax(-1))),
        ("the scores are multiplied by the mask: a score of 0 still counts in a softmax.", by((scores * (1 - future)).softmax(-1))),
        ("the scores are divided by head_dim: 1 / sqrt(head_dim) belongs there once. Are both q and the scores scaled, or is the root missing?", by((scores / math.sqrt(C // 3) - 1e9 * future).softmax(-1))),
        ("the softmax runs over the queries, axis -2: each row of weights, over the keys, must sum to 1.", by((scores - 1e9 * future).softmax(-2))),
        ("the scores are products of q and v: k is not used.", by((torch.einsum("bhtd,bhsd->bhts", q, v) / math.sqrt(C // 3) - 1e9 * future).softmax(-1))),
        ("a position attends to itself alone.", F.linear(torch_attention.join(v), shadow.c_proj.weight, shadow.c_proj.bias)),
    ]
    turned = qkv.reshape(T, B, -1).transpose(0, 1)            # rows read as (T, B) in place of (B, T)
    q, k, v = (torch_attention.cut(part, 3) for part in turned.chunk(3, -1))
    y = torch_attention.join((q @ k.transpose(-2, -1) / math.sqrt(C // 3) - 1e9 * future).softmax(-1) @ v)
    found.append(("the rows are read as (T, B): row b * T + t belongs to sequence b.", F.linear(y.transpose(0, 1), shadow.c_proj.weight, shadow.c_proj.bias)))
    found = [(words, value.numpy()) for words, value in found] + readable_attention.module_mistakes(module, x)
    return [(words, flat(np.asarray(value))) for words, value in found]


def in_one_sequence(qkv, shadow):
    """(B, T, 3C) -> (B, T, C): the B * T rows attend as if they were one window."""
    q, k, v = (torch_attention.cut(part.reshape(1, -1, part.shape[-1]), 3) for part in qkv.chunk(3, -1))
    y = torch_attention.join(F.scaled_dot_product_attention(q, k, v, is_causal=True))
    return F.linear(y, shadow.c_proj.weight, shadow.c_proj.bias).reshape(*qkv.shape[:2], -1)


def compare_attention(module, x, n_head=3, at="", look=""):
    """Against the oracle; at says in words what differs from the check before, where the values were right."""
    B, T, C = x.shape
    got = result(module, flat(x))
    want = expected_attention(module, x, n_head)
    is_matrix(got, want.shape, B, T)
    if at:
        elsewhere(got, want, VALUES, at, look)
    if not np.isfinite(got.asnumpy()).all():
        fail("the result holds nan or inf: 0 times -inf is nan.", example=difference(got, want, "the result"), look="a mask of -inf is made by np.where; -1e9 times a matrix of 0 and 1 is finite")
    if np.abs(got.asnumpy()).max() > 1e5:
        fail("the result is in the billions: the mask is added after the softmax, and reaches v. It belongs to the scores.", example=difference(got, want, "the result"))
    nearly(got, want, VALUES)
    for words, value in [] if equal(got, want, VALUES) else attention_mistakes(module, x):
        if equal(got, value, 1e-5) and not np.allclose(value, want, rtol=1e-5, atol=1e-5):
            fail(words, example=difference(got, want, "the result"))
    close(got, want, VALUES, look=look)


@checks(ATTENTION, "parameters")
def attention_parameters(CausalSelfAttention):
    module = readable_attention.build(CausalSelfAttention)
    held = [name for name, p in module.parameters_and_names() if tuple(p.shape)[-2:] == (7, 7)]
    if held:
        fail(f"{held[0]} is a Parameter: an optimizer would train the mask, and a checkpoint would hold it.", look="ms.Tensor(...) in __init__ is a constant of the graph")
    readable_attention.module_parameters(CausalSelfAttention)


@checks(ATTENTION, "values")
def attention_values(CausalSelfAttention):
    compare_attention(fill(CausalSelfAttention(CONFIG)), rand(2, 7, 12, seed=12), look="the order of the axes at each reshape and swapaxes")


@checks(ATTENTION, "other sizes")
def attention_sizes(CausalSelfAttention):
    module = fill(CausalSelfAttention(CONFIG))
    for B in (1, 3):
        compare_attention(module, rand(B, 7, 12, seed=13), at=f"{B} {'sequence' if B == 1 else 'sequences'}", look="the number of sequences: it is N / n_ctx, and no number of your own")
    module = fill(CausalSelfAttention(OTHER))
    compare_attention(module, rand(2, 4, 8, seed=14), n_head=4, at="n_ctx = 4 and 4 heads of width 2", look="sizes that are written as numbers: take them from config")


@checks(ATTENTION, "very negative scores")
def attention_extremes(CausalSelfAttention):
    module = fill(CausalSelfAttention(CONFIG))
    x = rand(2, 7, 12, seed=21, scale=100.0)
    changed = x.copy()
    changed[:, 4:] = rand(2, 3, 12, seed=22, scale=100.0)
    before, after = (call(run_of(module), flat(a)) for a in (x, changed))
    is_matrix(before, (14, 12), 2, 7)
    moved = np.abs(after.asnumpy() - before.asnumpy()).reshape(2, 7, 12).max(axis=(0, 2))
    if moved[:4].max() > 1e-3:
        fail(
            "a hidden key wins over a visible one when the visible scores are very negative: what is added to hidden scores is not negative enough.",
            example=f"with scores of some ten thousand, new tokens at positions 4 to 6 move position {int(moved[:4].argmax())} by {moved[:4].max():.3g}, expected 0",
            look="the number in the mask: -1e9 is below every score, -1e4 is not",
        )
    if not np.isfinite(before.asnumpy()).all():
        fail("large scores give nan or inf.", look="exp of a large number: the softmax must subtract the largest first, as ops.Softmax does")


@checks(ATTENTION, "gradients")
def attention_gradients(CausalSelfAttention):
    module = fill(CausalSelfAttention(CONFIG))
    x = rand(2, 7, 12, seed=18)
    names, params = zip(*module.parameters_and_names())
    twin = readable_attention.shadow(module)

    def expected(x, *parameters):
        for name, value in zip(names, parameters):
            part, _, which = name.partition(".")
            setattr(getattr(twin, part), which, value)
        return torch_attention.expected_module(twin, x.reshape(2, 7, 12)).reshape(14, 12)

    wanted = readable_attention.torch_gradients(expected, [flat(x), *(arrays(module)[name] for name in names)])
    mine = gradients_of(run_of(module), [flat(x)], params)
    thirds = np.abs(mine[1 + names.index("c_attn.weight")]).reshape(3, -1).max(1)
    for name, size in zip("qkv", thirds):
        if size == 0 and thirds.max() > 0:
            fail(f"no gradient reaches {name}: its third of c_attn.weight gets 0.", look="ops.stop_gradient, .asnumpy() and ms.Tensor(...) cut the graph")
    gradients_close(mine, wanted, ("x", *names), VALUES)


@checks(ATTENTION, "the same in graph mode", seconds=20)
def attention_graph(CausalSelfAttention):
    same_in_graph_mode(run_of(fill(CausalSelfAttention(CONFIG))), flat(rand(2, 7, 12, seed=12)), atol=VALUES)


# --- Block ---------------------------------------------------------------------------------------------


def new_block(Block, config=CONFIG, seed=0):
    block = fill(readable_block.made(Block, config), seed)
    return block, readable_block.numbers(block)


def expected_block(p, x, n_head):
    return flat(torch_block.block_forward(p, "", torch.from_numpy(x), n_head).numpy())


@checks(BLOCK, "parameters")
def block_parameters(Block):
    readable_block.block_parameters(Block)
    readable_block.not_shared(Block(CONFIG), Block(CONFIG), "blocks")


@checks(BLOCK, "values", seconds=20)
def block_values(Block):
    block, p = new_block(Block)
    for scale in (1, 1e-2):
        x = rand(2, 7, 12, seed=31, scale=scale)
        got, want = call(run_of(block), flat(x)), expected_block(p, x, 3)
        is_matrix(got, want.shape, 2, 7)
        known = [] if equal(got, want, VALUES) else [(readable_block.said(words), flat(np.asarray(value))) for words, value in torch_block.block_known(p, torch.from_numpy(x), 3)]
        close(got, want, VALUES, known=known, look="which LayerNorm stands before which branch, and what each branch reads")
        if not np.array_equal(got.asnumpy(), block(ms.Tensor(flat(x))).asnumpy()):
            fail(torch_block.RANDOM, look=readable_block.RANDOM_LOOK)


@checks(BLOCK, "other sizes", seconds=20)
def block_sizes(Block):
    block, p = new_block(Block, OTHER)
    x = rand(3, 4, 8, seed=33)
    got, want, sizes = call(run_of(block), flat(x)), expected_block(p, x, 4), "n_embd = 8, n_ctx = 4, n_head = 4 and 3 sequences"
    elsewhere(got, want, VALUES, sizes, "sizes that are written as numbers: the parts take them from config")
    close(got, want, VALUES, name=f"the result for {sizes}")


@checks(BLOCK, "gradients", seconds=20)
def block_gradients(Block):
    block, p = new_block(Block)
    x, weighting = rand(2, 7, 12, seed=35), rand(14, 12, seed=99)
    leaves = {"x": torch.from_numpy(x).requires_grad_(), **{name: value.requires_grad_() for name, value in p.items()}}
    out = torch_block.block_forward(leaves, "", leaves["x"], 3)
    wanted = torch.autograd.grad((out.reshape(14, 12) * torch.from_numpy(weighting)).sum(), list(leaves.values()))
    wanted = [wanted[0].reshape(14, 12), *wanted[1:]]
    mine = gradients_of(run_of(block), [flat(x)], [readable_block.parameter(block, name) for name in p])
    readable_block.close_gradients(mine, wanted, leaves)


@checks(BLOCK, "the same in graph mode", seconds=20)
def block_graph(Block):
    block, _ = new_block(Block)
    same_in_graph_mode(run_of(block), flat(rand(2, 7, 12, seed=37)), atol=VALUES)
