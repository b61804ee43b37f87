"""Checks of lesson 06: Block, init_weights, GPT. The oracle is GPT-2 as functions of its state dict, from torch.nn.functional."""
import inspect
import math
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

from course.checks import checks
from course.checks.pytorch import (
    OneDevice, call, close, difference, equal, fail, fill, is_tensor, keeps_device, number, parameters_are, rand,
    rand_ids, shape_of,
)

BLOCK = "pytorch.gpt.Block"
INIT = "pytorch.gpt.init_weights"
MODEL = "pytorch.gpt.GPT"

CONFIG = dict(vocab_size=11, n_ctx=7, n_layer=3, n_head=3, n_embd=12)
OTHER = dict(vocab_size=9, n_ctx=6, n_layer=2, n_head=2, n_embd=8)
MIDDLE = dict(vocab_size=199, n_ctx=70, n_layer=5, n_head=4, n_embd=64)   # large enough for a standard deviation


def config(sizes=CONFIG):
    return SimpleNamespace(**sizes)


# --- the oracle ----------------------------------------------------------------------------------------


def linear(p, name, x):
    return F.linear(x, p[name + ".weight"], p[name + ".bias"])


def norm(p, name, x):
    return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], 1e-5)


def attend(p, name, x, n_head, causal=True):
    q, k, v = (torch.stack(part.chunk(n_head, dim=-1), dim=1) for part in linear(p, name + ".c_attn", x).chunk(3, dim=-1))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return linear(p, name + ".c_proj", torch.cat(list(y.unbind(1)), dim=-1))


def think(p, name, x):
    return linear(p, name + ".c_proj", F.gelu(linear(p, name + ".c_fc", x), approximate="tanh"))


def block_forward(p, at, x, n_head, causal=True):
    """GPT-2's block with the parameters p whose names begin with `at`."""
    x = x + attend(p, at + "attn", norm(p, at + "ln_1", x), n_head, causal)
    return x + think(p, at + "mlp", norm(p, at + "ln_2", x))


def logits_of(p, idx, sizes, blocks=None, block=block_forward, embed=None, end=None, head=None):
    """GPT-2's logits; the options put a mistake in the place of a step."""
    if embed is None:
        x = F.embedding(idx, p["wte.weight"]) + p["wpe.weight"][: idx.shape[1]]
    else:
        x = embed(p, idx)
    for layer in range(sizes["n_layer"]) if blocks is None else blocks:
        x = block(p, f"h.{layer}.", x, sizes["n_head"])
    x = norm(p, "ln_f", x) if end is None else end(p, x)
    return F.linear(x, p["wte.weight"] if head is None else head)


# --- Block ---------------------------------------------------------------------------------------------

BLOCK_SHAPES = {
    "ln_1.weight": (12,), "ln_1.bias": (12,),
    "attn.c_attn.weight": (36, 12), "attn.c_attn.bias": (36,), "attn.c_proj.weight": (12, 12), "attn.c_proj.bias": (12,),
    "ln_2.weight": (12,), "ln_2.bias": (12,),
    "mlp.c_fc.weight": (48, 12), "mlp.c_fc.bias": (48,), "mlp.c_proj.weight": (12, 48), "mlp.c_proj.bias": (12,),
}


def parts_of(p, at, n_head):
    return SimpleNamespace(
        attn=lambda x: attend(p, at + "attn", x, n_head),
        mlp=lambda x: think(p, at + "mlp", x),
        ln_1=lambda x: norm(p, at + "ln_1", x),
        ln_2=lambda x: norm(p, at + "ln_2", x),
    )


def first(x, b):
    return x + b.attn(b.ln_1(x))


def second(x, b):
    return x + b.mlp(b.ln_2(x))


POST = "a LayerNorm stands after the sum (post-LN): here it stands before each branch, x + f(ln(x)), and the residual stream itself is never normalised."
NORMED = "the residual is taken from the normalised x: the branch is added to x itself, not to ln(x)."
MISSING = "the residual is missing: the result of {} replaces x; it is to be added to x."
SANDWICH = "a LayerNorm stands behind the branch, x + ln(f(x)); it stands before it, x + f(ln(x))."
PARALLEL = "attention and the MLP read the same x (parallel branches): the MLP reads the sum that attention has already changed."
ORDER = "the MLP comes before attention: attention is the first branch."
TWICE = "x is added once too often: a branch gives its own result only, and the block adds x once for each branch."
ALSO = "a branch also adds the normalised x that it reads: it gives its own result only."
SCALED = "the sum of x and a branch is scaled; it is a plain sum."

# (mistake in words, step, step, ...): the block with that mistake as steps from x to x, b holding its parts.
BLOCK_MISTAKES = [
    (POST, lambda x, b: b.ln_1(x + b.attn(x)), lambda x, b: b.ln_2(x + b.mlp(x))),
    (POST, lambda x, b: b.ln_1(x + b.attn(x)), second),
    (POST, first, lambda x, b: b.ln_2(x + b.mlp(x))),
    (POST, lambda x, b: b.ln_2(first(x, b)), lambda x, b: x + b.mlp(x)),
    (POST, lambda x, b: b.ln_1(first(x, b)), lambda x, b: b.ln_2(second(x, b))),
    (POST, first, lambda x, b: b.ln_2(second(x, b))),
    (NORMED, lambda x, b: b.ln_1(x) + b.attn(b.ln_1(x)), lambda x, b: b.ln_2(x) + b.mlp(b.ln_2(x))),
    (NORMED, lambda x, b: b.ln_1(x) + b.attn(b.ln_1(x)), second),
    (NORMED, first, lambda x, b: b.ln_2(x) + b.mlp(b.ln_2(x))),
    (MISSING.format("both branches"), lambda x, b: b.attn(b.ln_1(x)), lambda x, b: b.mlp(b.ln_2(x))),
    (MISSING.format("attention"), lambda x, b: b.attn(b.ln_1(x)), second),
    (MISSING.format("the MLP"), first, lambda x, b: b.mlp(b.ln_2(x))),
    (SANDWICH, lambda x, b: x + b.ln_1(b.attn(x)), lambda x, b: x + b.ln_2(b.mlp(x))),
    (SANDWICH, lambda x, b: x + b.ln_1(b.attn(x)), second),
    (SANDWICH, first, lambda x, b: x + b.ln_2(b.mlp(x))),
    (ORDER, second, first),
    (ORDER, lambda x, b: x + b.mlp(b.ln_1(x)), lambda x, b: x + b.attn(b.ln_2(x))),
    (PARALLEL, lambda x, b: x + b.attn(b.ln_1(x)) + b.mlp(b.ln_1(x))),
    (PARALLEL, lambda x, b: x + b.attn(b.ln_1(x)) + b.mlp(b.ln_2(x))),
    (PARALLEL, lambda x, b: x + b.attn(b.ln_2(x)) + b.mlp(b.ln_2(x))),
    (PARALLEL, lambda x, b: x + b.attn(x) + b.mlp(x)),
    ("ln_1 is used before both branches: ln_2 stands before the MLP.", first, lambda x, b: x + b.mlp(b.ln_1(x))),
    ("ln_2 is used before both branches: ln_1 stands before attention.", lambda x, b: x + b.attn(b.ln_2(x)), second),
    ("ln_1 and ln_2 are exchanged: ln_1 stands before attention, ln_2 before the MLP.", lambda x, b: x + b.attn(b.ln_2(x)), lambda x, b: x + b.mlp(b.ln_1(x))),
    ("ln_1 is not used: attention reads x as it is.", lambda x, b: x + b.attn(x), second),
    ("ln_2 is not used: the MLP reads x as it is.", first, lambda x, b: x + b.mlp(x)),
    ("neither ln_1 nor ln_2 is used: both branches read x as it is.", lambda x, b: x + b.attn(x), lambda x, b: x + b.mlp(x)),
    ("one branch reads both LayerNorms, one after the other: ln_1 belongs to attention alone, ln_2 to the MLP.", lambda x, b: x + b.attn(b.ln_2(b.ln_1(x))), lambda x, b: x + b.mlp(x)),
    ("ln_2 reads what ln_1 gave; it reads the sum x + attention.", lambda x, b: x + b.attn(b.ln_1(x)) + b.mlp(b.ln_2(b.ln_1(x)))),
    ("attention's result is lost: the second sum starts from the block's input, not from the first sum.", lambda x, b: x + b.mlp(b.ln_2(first(x, b)))),
    ("the MLP reads attention's result alone; it reads the sum x + attention.", lambda x, b: x + b.attn(b.ln_1(x)) + b.mlp(b.ln_2(b.attn(b.ln_1(x))))),
    ("there is one residual around both branches: each branch is added to the stream by itself.", lambda x, b: x + b.mlp(b.ln_2(b.attn(b.ln_1(x))))),
    ("there is one residual around both branches: each branch is added to the stream by itself.", lambda x, b: x + b.mlp(b.attn(b.ln_1(x)))),
    ("the MLP is never applied.", first),
    ("attention is never applied.", second),
    ("the MLP is applied twice.", first, second, second),
    ("attention is applied twice.", first, first, second),
    (TWICE, lambda x, b: x + first(x, b), second),
    (TWICE, first, lambda x, b: x + second(x, b)),
    (TWICE, lambda x, b: x + first(x, b), lambda x, b: x + second(x, b)),
    (TWICE, lambda x, b: x + second(first(x, b), b)),
    (ALSO, lambda x, b: b.ln_1(x) + first(x, b), second),
    (ALSO, first, lambda x, b: b.ln_2(x) + second(x, b)),
    (ALSO, lambda x, b: b.ln_1(x) + first(x, b), lambda x, b: b.ln_2(x) + second(x, b)),
    ("the branches are subtracted; they are added.", lambda x, b: x - b.attn(b.ln_1(x)), lambda x, b: x - b.mlp(b.ln_2(x))),
    ("attention's result is subtracted; it is added.", lambda x, b: x - b.attn(b.ln_1(x)), second),
    ("the MLP's result is subtracted; it is added.", first, lambda x, b: x - b.mlp(b.ln_2(x))),
    ("a branch multiplies x; it is added to x.", lambda x, b: x * b.attn(b.ln_1(x)), lambda x, b: x * b.mlp(b.ln_2(x))),
    (SCALED, lambda x, b: first(x, b) / 2, lambda x, b: second(x, b) / 2),
    (SCALED, lambda x, b: first(x, b) / math.sqrt(2), lambda x, b: second(x, b) / math.sqrt(2)),
    ("the branches are scaled before they are added; the sum is plain, and the small start is the business of init_weights.", lambda x, b: x + b.attn(b.ln_1(x)) / 2, lambda x, b: x + b.mlp(b.ln_2(x)) / 2),
]


def block_with(steps):
    """The block made of these steps, with the arguments of block_forward."""

    def run(p, at, x, n_head):
        b = parts_of(p, at, n_head)
        for step in steps:
            x = step(x, b)
        return x

    return run


def block_known(p, x, n_head):
    known = [(words, block_with(steps)(p, "", x, n_head)) for words, *steps in BLOCK_MISTAKES]
    return [*known, ("attention in the block sees the future: no causal mask.", block_forward(p, "", x, n_head, causal=False))]


def new_block(Block, sizes=CONFIG, seed=0):
    """A Block with random numbers everywhere, and its parameters by name."""
    block = fill(Block(config(sizes)), seed)
    return block, dict(block.named_parameters())


def silence(module):
    """Zero every c_proj: what a branch adds is then 0."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            if ".c_proj." in name:
                p.zero_()


def name_mistake(got, want, known):
    """Fails if got is one of the known mistakes."""
    for words, value in known:
        if equal(got, value, 1e-5) and not equal(value, want, 2e-5):
            fail(words, example=difference(got, want, "the result"))


def one_and_the_same(module):
    """Pairs of names that stand for one parameter."""
    seen = {}
    for name, p in module.named_parameters(remove_duplicate=False):
        if id(p) in seen:
            yield seen[id(p)], name
        seen.setdefault(id(p), name)


@checks(BLOCK, "parameters")
def block_parameters(Block):
    block = Block(config())
    if not isinstance(block, nn.Module):
        fail("Block is no nn.Module: without that nothing finds its parameters.", look="the line class Block(nn.Module)")
    for a, b in one_and_the_same(block):
        fail(f"{a} and {b} are one and the same parameter: each LayerNorm has numbers of its own.", look="__init__: create two")
    parameters_are(block, BLOCK_SHAPES, "Block")


@checks(BLOCK, "silent branches: the block is the identity")
def block_identity(Block):
    block, p = new_block(Block)
    x = rand(2, 5, 12, seed=30)
    loud = call(block, x)
    is_tensor(loud, x.shape, x.dtype)
    silence(block)
    for scale in (1, 1e4, 1e-4):
        got = block(scale * x)
        if equal(got, scale * x, 1e-6 * min(scale, 1)):
            continue
        block, p = new_block(Block)
        name_mistake(loud, block_forward(p, "", x, 3), block_known(p, x, 3))
        fail(
            "with both c_proj at 0 a block must hand on x unchanged, and it does not: something else than two added branches acts on the residual stream.",
            example=difference(got, scale * x, "the result"),
            look="what is added to x, and whether x itself goes through anything",
        )


@checks(BLOCK, "values")
def block_values(Block):
    block, p = new_block(Block)
    x = rand(2, 5, 12, seed=31)
    close(call(block, x), block_forward(p, "", x, 3), atol=1e-5, known=block_known(p, x, 3), look="which LayerNorm stands before which branch, and what each branch reads")


@checks(BLOCK, "other lengths and sizes")
def block_sizes(Block):
    block, p = new_block(Block)
    for B, T in [(1, 1), (3, 7), (1, 4)]:
        x = rand(B, T, 12, seed=32)
        close(call(block, x), block_forward(p, "", x, 3), atol=1e-5, name=f"the result for B = {B}, T = {T}")
    block, p = new_block(Block, OTHER)
    x = rand(2, 3, 8, seed=33)
    close(call(block, x), block_forward(p, "", x, 2), atol=1e-5, name="the result for n_embd = 8 and n_head = 2", look="sizes that are written as numbers: the parts take them from config")


@checks(BLOCK, "the same result twice")
def block_repeatable(Block):
    x = rand(2, 5, 12, seed=34)
    block, p = new_block(Block)
    before = {name: value.detach().clone() for name, value in p.items()}
    results = [block.train(mode)(x) for mode in (True, True, False)]
    if any(not equal(value, before[name], 0) for name, value in p.items()):
        fail("forward changes a parameter.", look="assignments and in-place operations on weights in forward")
    if not (equal(results[0], results[1], 0) and equal(results[1], results[2], 0)):
        fail("calls with the same input differ: something random is at work, or something is kept from call to call.", look="dropout, and what forward stores in self")


@checks(BLOCK, "blocks of their own")
def block_independent(Block):
    a, b = Block(config()), Block(config())
    shared = {id(p) for p in a.parameters()} & {id(p) for p in b.parameters()}
    if shared:
        name = next(n for n, p in a.named_parameters() if id(p) in shared)
        fail(f"two blocks share {name}: whoever trains one trains the other.", look="parts that are created outside __init__: in the class body, as a default argument, as a global")


@checks(BLOCK, "gradients")
def block_gradients(Block):
    block, p = new_block(Block)
    x, weighting = rand(2, 5, 12, seed=35, grad=True), rand(2, 5, 12, seed=36)
    same_gradients((block(x) * weighting).sum(), (block_forward(p, "", x, 3) * weighting).sum(), {"x": x, **p})


@checks(BLOCK, "device and dtype")
def block_device(Block):
    block, p = new_block(Block)
    x = rand(2, 5, 12, seed=37)
    keeps_device(lambda m, x: m(x), block, x)
    block.double()
    got = call(block, x.double())
    close(got, block_forward(dict(block.named_parameters()), "", x.double(), 3), 1e-12, name="the result in float64", look=".float(), and tensors that you create without dtype=x.dtype")


def same_gradients(mine, wanted, leaves, known=()):
    """The gradients of two scalars to the same named tensors are equal."""
    for name, leaf in leaves.items():
        if not leaf.requires_grad:
            fail(f"{name} is frozen: it asks for no gradient and is never trained.", look="requires_grad")
    if not mine.requires_grad:
        fail("no gradient flows through the result.", look=".detach(), .data, .item(), torch.no_grad() and torch.tensor(...) cut the graph")
    wanted = torch.autograd.grad(wanted, list(leaves.values()))
    got = torch.autograd.grad(mine, list(leaves.values()), allow_unused=True)
    for name, g, w in zip(leaves, got, wanted):
        if g is None:
            fail(f"no gradient reaches {name}.", look=".detach(), .data, torch.no_grad() and torch.tensor(...) cut the graph")
        close(g, w, 2e-5, name=f"the gradient of {name}", known=[(words, value) for at, words, value in known if at == name], look=".detach(), .data and torch.no_grad() on the way")
