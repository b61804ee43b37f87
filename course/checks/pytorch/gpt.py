"""Checks of lesson 06: Block, init_weights, GPT. The oracle is GPT-2 as functions of its state dict, from torch.nn.functional."""
import inspect
import math
from dataclasses import dataclass
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


@dataclass
class Config:
    vocab_size: int
    n_ctx: int
    n_layer: int
    n_head: int
    n_embd: int


def config(sizes=CONFIG):
    return Config(**sizes)


# --- the oracle ----------------------------------------------------------------------------------------


def linear(p, name, x):
    return F.linear(x, p[name + ".weight"], p[name + ".bias"])


def norm(p, name, x, eps=1e-5):
    return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], eps)


def attend(p, name, x, n_head, causal=True):
    q, k, v = (torch.stack(part.chunk(n_head, dim=-1), dim=1) for part in linear(p, name + ".c_attn", x).chunk(3, dim=-1))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return linear(p, name + ".c_proj", torch.cat(list(y.unbind(1)), dim=-1))


def gelu(x):
    return F.gelu(x, approximate="tanh")


def think(p, name, x, activation=gelu):
    return linear(p, name + ".c_proj", activation(linear(p, name + ".c_fc", x)))


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


def parts_of(p, at, n_head, eps=1e-5):
    return SimpleNamespace(
        attn=lambda x: attend(p, at + "attn", x, n_head),
        mlp=lambda x: think(p, at + "mlp", x),
        ln_1=lambda x: norm(p, at + "ln_1", x, eps),
        ln_2=lambda x: norm(p, at + "ln_2", x, eps),
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
    (POST, lambda x, b: b.ln_1(first(x, b)), lambda x, b: b.ln_2(second(x, b))),
    (POST, first, lambda x, b: b.ln_2(second(x, b))),
    (POST, lambda x, b: b.ln_1(x + b.attn(x)), lambda x, b: b.ln_1(x + b.mlp(x))),
    (POST, lambda x, b: b.ln_2(x + b.attn(x)), lambda x, b: b.ln_1(x + b.mlp(x))),
    (POST, lambda x, b: b.ln_1(first(x, b)), second),
    (NORMED, lambda x, b: b.ln_1(x) + b.attn(b.ln_1(x)), lambda x, b: b.ln_1(x) + b.mlp(b.ln_1(x))),
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
    ("the branches are averaged; they are added.", lambda x, b: x + (b.attn(b.ln_1(x)) + b.mlp(b.ln_2(first(x, b)))) / 2),
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


ACTIVATIONS = [
    ("the MLP has no GELU between its two layers.", lambda x: x),
    ("the MLP has a ReLU between its two layers; GPT-2's is GELU.", torch.relu),
    ("the MLP has the exact GELU (erf); GPT-2's is the tanh form of lesson 05.", F.gelu),
    ("the MLP has SiLU between its two layers; GPT-2's is GELU.", F.silu),
    ("the MLP has tanh between its two layers; GPT-2's is GELU.", torch.tanh),
]


def block_known(p, x, n_head):
    known = [(words, block_with(steps)(p, "", x, n_head)) for words, *steps in BLOCK_MISTAKES]
    for eps in (0, 1e-12, 1e-8, 1e-7, 1e-6, 1e-4, 1e-3):
        b = parts_of(p, "", n_head, eps)
        known.append((f"the LayerNorms have {'a smaller' if eps < 1e-5 else 'a larger'} eps than GPT-2: 1e-5 is the default of LayerNorm.", second(first(x, b), b)))
    for words, activation in ACTIVATIONS:
        y = first(x, parts_of(p, "", n_head))
        known.append((words, y + think(p, "mlp", norm(p, "ln_2", y), activation)))
    return [*known, ("attention in the block sees the future: no causal mask.", block_forward(p, "", x, n_head, causal=False))]


RANDOM = "calls with the same input differ: something random is at work, or something is kept from call to call."
RANDOM_LOOK = "dropout (this model has none), and what forward stores in self"


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


def build(kind, given):
    """kind(given); a forgotten super().__init__() is named."""
    try:
        return kind(given)
    except AttributeError as error:
        if "Module.__init__() call" not in str(error):
            raise
        fail("nn.Module is not set up yet when the first part is stored.", look="the first line of __init__: super().__init__()")


@checks(BLOCK, "parameters")
def block_parameters(Block):
    block = build(Block, config())
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
        if not equal(got, block(scale * x), 0):
            fail(RANDOM, look=RANDOM_LOOK)
        block, p = new_block(Block)
        name_mistake(loud, block_forward(p, "", x, 3), block_known(p, x, 3))
        factor = (got / (scale * x)).mean()
        if equal(got, factor * scale * x, 1e-5):
            fail("x itself is scaled on its way through the block: the residual stream is added to and nothing else.", example=f"with both c_proj at 0 the block returns {number(factor)} times x, expected x")
        fail(
            "with both c_proj at 0 a block must hand on x unchanged, and it does not: something else than two added branches acts on the residual stream.",
            example=difference(got, scale * x, "the result"),
            look="what is added to x, and whether x itself goes through anything",
        )


@checks(BLOCK, "the same result twice")
def block_repeatable(Block):
    x = rand(2, 5, 12, seed=34)
    block, p = new_block(Block)
    before = {name: value.detach().clone() for name, value in p.items()}
    results = [block.train(mode)(x) for mode in (True, True, False)]
    if any(not equal(value, before[name], 0) for name, value in p.items()):
        fail("forward changes a parameter.", look="assignments and in-place operations on weights in forward")
    if not (equal(results[0], results[1], 0) and equal(results[1], results[2], 0)):
        fail(RANDOM, look=RANDOM_LOOK)


@checks(BLOCK, "values")
def block_values(Block):
    block, p = new_block(Block)
    for scale in (1, 1e-2):                                   # LayerNorm's eps shows in a small stream only
        x = rand(2, 5, 12, seed=31, scale=scale)
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
    for name, g in zip(leaves, got):
        if g is None:
            fail(f"no gradient reaches {name}.", look=".detach(), .data, torch.no_grad() and torch.tensor(...) cut the graph")
    for name, g, w in zip(leaves, got, wanted):
        close(g, w, 2e-5, name=f"the gradient of {name}", known=[(words, value) for at, words, value in known if at == name], look=".detach(), .data and torch.no_grad() on the way")


# --- init_weights --------------------------------------------------------------------------------------


class Linear(nn.Module):
    """Nothing but parameters, as the three classes below it: init_weights goes by names."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.empty(d_out))


class Embedding(nn.Module):
    def __init__(self, n, n_embd):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, n_embd))


class LayerNorm(nn.Module):
    def __init__(self, n_embd):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_embd))
        self.bias = nn.Parameter(torch.empty(n_embd))


def untouched(init_weights, n_layer=7):
    """A model with GPT-2's names. Every number is between 1 and 2, LayerNorm weights are 1.

    It is made of the learner's own Linear, Embedding and LayerNorm where these are in reach, for those who go by class.
    """
    theirs = getattr(inspect.unwrap(init_weights), "__globals__", {})
    own = {"Linear": Linear, "Embedding": Embedding, "LayerNorm": LayerNorm}

    def part(kind, *sizes):
        plain = own[kind](*sizes)
        try:
            made = theirs[kind](*sizes)
            shapes = {n: p.shape for n, p in made.named_parameters()}
        except Exception:
            return plain
        stock = type(made).__module__.startswith("torch")
        return made if not stock and shapes == {n: p.shape for n, p in plain.named_parameters()} else plain

    C = 64
    model = nn.Module()
    model.wte, model.wpe = part("Embedding", 300, C), part("Embedding", 100, C)
    model.h = nn.ModuleList()
    for _ in range(n_layer):
        block = nn.Module()
        block.ln_1, block.attn, block.ln_2, block.mlp = part("LayerNorm", C), nn.Module(), part("LayerNorm", C), nn.Module()
        block.attn.c_attn, block.attn.c_proj = part("Linear", C, 3 * C), part("Linear", C, C)
        block.mlp.c_fc, block.mlp.c_proj = part("Linear", C, 4 * C), part("Linear", 4 * C, C)
        model.h.append(block)
    model.ln_f = part("LayerNorm", C)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.uniform_(1, 2)
            if is_norm_weight(name):
                p.fill_(1)
    return model


def is_norm_weight(name):
    return ".ln_" in "." + name and name.endswith("weight")


def initialised(init_weights, n_layer=7):
    model = untouched(init_weights, n_layer)
    init_weights(model, n_layer)
    return model


def matrices(model, projections):
    """The c_proj weights of a model, or all its other matrices."""
    return {n: p.detach().double() for n, p in model.named_parameters() if p.dim() == 2 and n.endswith("c_proj.weight") == projections}


def about(x, std):
    """x has this standard deviation, as near as its size lets one say."""
    return abs(x.std().item() / std - 1) < 5.5 / math.sqrt(2 * x.numel())


def check_drawn(name, w, std, known):
    """Fails unless the numbers of w have mean 0 and this standard deviation."""
    got = w.std().item()
    example = f"{name} has mean {w.mean().item():.2g} and standard deviation {got:.3g}, expected 0 and {std:.3g}"
    if not w.isfinite().all():
        fail(f"{name} holds nan or inf.")
    if w.min() >= 1 and w.max() <= 2:
        fail(
            f"{name} is not initialised: it keeps the numbers it had.",
            example=example,
            look="which names or classes you go by (nn.Linear and nn.Embedding do not fit: the layers are your own), and whether the change is made in place",
        )
    if got == 0:
        fail(f"all numbers of {name} are equal: they are to be random.", example=example, look="the order of mean and standard deviation")
    if about(w, std) and abs(w.mean().item()) < 6 * std / math.sqrt(w.numel()):
        return
    rows, columns = w.shape
    known = [
        *known,
        ("Xavier's rule is used: GPT-2 takes 0.02 whatever the shape.", math.sqrt(2 / (rows + columns))),
        ("Kaiming's rule is used: GPT-2 takes 0.02 whatever the shape.", math.sqrt(2 / columns)),
        ("a weight is scaled by its width, 1/sqrt(columns): GPT-2 takes 0.02 whatever the shape.", 1 / math.sqrt(columns)),
        ("a weight is drawn evenly between ±1/sqrt(columns), as Linear starts: GPT-2 takes normal numbers.", 1 / math.sqrt(3 * columns)),
        ("the normal distribution is cut off at two standard deviations: it is not.", 0.88 * std),
    ]
    near = [(abs(got / other - 1), words) for words, other in known if about(w, other) and abs(other / std - 1) > 0.03]
    if near:
        fail(min(near, key=lambda found: found[0])[1], example=example)
    if abs(w.mean().item()) > 6 * got / math.sqrt(w.numel()):
        fail(f"the numbers of {name} do not have mean 0.", example=example)
    fail(f"{name} has another standard deviation than {std:.3g}.", example=example)


def plain_mistakes(n_layer):
    scaled = 0.02 / math.sqrt(2 * n_layer)
    return [
        ("a weight is drawn with variance 0.02: 0.02 is the standard deviation.", math.sqrt(0.02)),
        ("a weight is drawn with standard deviation 0.02 squared.", 0.02**2),
        ("the factor for c_proj is applied to other weights as well: they keep 0.02.", scaled),
        ("a weight is drawn with standard deviation 1: it is 0.02.", 1.0),
        ("a weight is drawn with standard deviation 0.01: in this course wpe has 0.02 like all others.", 0.01),
        ("a weight is drawn evenly from -0.02 to 0.02: normal numbers with standard deviation 0.02 are wanted.", 0.02 / math.sqrt(3)),
    ]


def projection_mistakes(n_layer):
    L = n_layer
    return [
        ("c_proj is drawn like all other weights: the factor 1/sqrt(2 n_layer) is missing.", 0.02),
        ("c_proj gets 1/sqrt(n_layer); each block adds to the stream twice, so it is 1/sqrt(2 n_layer).", 0.02 / math.sqrt(L)),
        ("c_proj is divided by 2 n_layer, not by its square root.", 0.02 / (2 * L)),
        ("c_proj is divided by n_layer; it is 0.02 / sqrt(2 n_layer).", 0.02 / L),
        ("c_proj is multiplied by sqrt(2 n_layer), not divided: it is to become smaller.", 0.02 * math.sqrt(2 * L)),
        ("c_proj gets 1/sqrt(2) whatever n_layer is.", 0.02 / math.sqrt(2)),
        ("c_proj gets 1/sqrt(2 n_layer) and the 0.02 is missing.", 1 / math.sqrt(2 * L)),
        ("0.02 is inside the square root.", math.sqrt(0.02 / (2 * L))),
        ("c_proj is scaled for 12 layers whatever n_layer is.", 0.02 / math.sqrt(24)),
        ("the factor is applied twice: c_proj is 0.02 / sqrt(2 n_layer).", 0.02 / (2 * L)),
        ("c_proj gets sqrt(2 / n_layer); it is 1 / sqrt(2 n_layer).", 0.02 * math.sqrt(2 / L)),
        ("c_proj gets 1/sqrt(4 n_layer): a block adds to the stream twice, so it is 1/sqrt(2 n_layer).", 0.02 / math.sqrt(4 * L)),
        ("n_layer is off by one.", 0.02 / math.sqrt(2 * L + 2)),
        *([("n_layer is off by one.", 0.02 / math.sqrt(2 * L - 2))] if L > 1 else []),
        *plain_mistakes(L)[3:],
        *plain_mistakes(L)[:2],
    ]


@checks(INIT, "matrices and embeddings")
def init_matrices(init_weights):
    model = initialised(init_weights)
    weights = matrices(model, projections=False)
    changed = [n for n, w in {**weights, **matrices(model, True)}.items() if not (w.min() >= 1 and w.max() <= 2)]
    if not changed:
        fail(
            "no weight is changed.",
            look="which names or classes you go by (nn.Linear and nn.Embedding do not fit: the layers are your own), and whether the change is made in place: w = torch.randn(...) only gives a name to a new tensor",
        )
    for name, w in weights.items():
        check_drawn(name, w, 0.02, plain_mistakes(7))


@checks(INIT, "both c_proj of a block")
def init_projections(init_weights):
    weights = matrices(initialised(init_weights), projections=True)
    want, right, plain = 0.02 / math.sqrt(14), {}, {}
    for name, w in weights.items():
        right.setdefault(name.split(".")[2], []).append(about(w, want))
        plain.setdefault(name.split(".")[2], []).append(about(w, 0.02))
    for kind, other in [("attn", "mlp"), ("mlp", "attn")]:
        if all(right[kind]) and not any(right[other]):
            fail(
                f"only {kind}.c_proj gets the factor: {other}.c_proj writes into the residual stream as well.",
                example=f"h.0.{other}.c_proj.weight has standard deviation {weights[f'h.0.{other}.c_proj.weight'].std().item():.3g}, expected {want:.3g}",
            )
    stds = [weights[f"h.{i}.attn.c_proj.weight"].std().item() for i in range(7)]
    if max(stds) > 1.25 * min(stds):
        fail("c_proj differs from layer to layer: the factor depends on the number of layers, not on which one it is.", example=f"attn.c_proj of the 7 layers: {', '.join(f'{s:.4f}' for s in stds)}, expected {want:.4f} each")
    for name, w in weights.items():
        check_drawn(name, w, want, projection_mistakes(7))


@checks(INIT, "biases and LayerNorm")
def init_vectors(init_weights):
    model = initialised(init_weights)
    for name, p in model.named_parameters():
        if is_norm_weight(name) and not equal(p, torch.ones_like(p), 0):
            words = "is drawn at random" if p.max() > p.min() else f"is set to {number(p[0])}"
            words += ": then LayerNorm gives 0 for every input" if not p.any() else ""
            fail(f"{name} {words}. A LayerNorm starts with weight 1.", example=f"{name}[0] is {number(p[0])}, expected 1", look="what tells a matrix from a LayerNorm weight: its number of axes")
    for name, p in model.named_parameters():
        if name.endswith("bias") and p.any():
            words = "keeps the numbers it had" if p.min() >= 1 and p.max() <= 2 else "is not 0"
            fail(f"{name} {words}: every bias starts at 0.", example=f"{name}[0] is {number(p[0])}, expected 0")


@checks(INIT, "another number of layers")
def init_other_depth(init_weights):
    for n_layer in (3, 1):
        model = initialised(init_weights, n_layer)
        for name, w in matrices(model, projections=False).items():
            check_drawn(name, w, 0.02, plain_mistakes(n_layer))
        for name, w in matrices(model, projections=True).items():
            check_drawn(name, w, 0.02 / math.sqrt(2 * n_layer), [("c_proj has the same standard deviation whatever n_layer is.", 0.02 / math.sqrt(14)), *projection_mistakes(n_layer)])


@checks(INIT, "normal numbers, each weight its own")
def init_normal(init_weights):
    model = initialised(init_weights)
    weights = {**matrices(model, False), **matrices(model, True)}
    for name, w in weights.items():
        z = (w / w.std()).flatten()
        if abs(z.pow(4).mean().item() - 3) > 8 * math.sqrt(24 / len(z)):
            fail(f"the numbers of {name} are not normally distributed.", example=f"the largest is {z.abs().max().item():.1f} standard deviations from 0; among {len(z):,} normal numbers one of about 4 is to be expected", look="uniform_ and rand give even numbers, normal_ and randn normal ones")
    seen = {}
    for name, w in weights.items():
        key = tuple((w / w.std()).flatten()[:8].round(decimals=4).tolist())
        if key in seen:
            fail(f"{seen[key]} and {name} begin with the same random numbers.", look="a seed that is set, or a tensor that is drawn, once for several weights")
        seen[key] = name


@checks(INIT, "the caller's seed")
def init_seed(init_weights):
    torch.manual_seed(1)
    a = initialised(init_weights).wte.weight
    torch.manual_seed(1)
    b = initialised(init_weights).wte.weight
    torch.manual_seed(2)
    c = initialised(init_weights).wte.weight
    if equal(a, c, 0):
        fail("two seeds give the same weights: a seed is set inside.", look="torch.manual_seed and Generator belong to the caller")
    if not equal(a, b, 0):
        fail("the same torch.manual_seed gives other weights each time.", look="where the random numbers come from: torch's own generator follows the caller's seed, NumPy's and Python's do not")


@checks(INIT, "the same parameters, dtype and device")
def init_in_place(init_weights):
    model = untouched(init_weights).double()
    before = dict(model.named_parameters())
    init_weights(model, 7)
    after = dict(model.named_parameters())
    for name, p in before.items():
        if after.get(name) is not p:
            fail(f"{name} is a new object after init_weights: whoever holds the old one, an optimizer or a tied head, keeps the old numbers.", look="change the numbers of a parameter in place instead of putting a new one there")
        if p.dtype != torch.float64:
            fail(f"{name} was float64 and is {p.dtype} afterwards.", look="tensors that you create: in-place methods such as normal_ keep the dtype")
        if not p.requires_grad or p.grad_fn is not None:
            fail(f"{name} can no longer be trained: it must stay a leaf that asks for a gradient.", look="requires_grad, and in-place operations that autograd records")
    model = untouched(init_weights).to("meta")
    moved, look = "a weight is made on the CPU whatever device the model is on: on a GPU or an Ascend this stops.", "tensors that you create: in-place methods such as normal_ keep the device"
    try:
        init_weights(model, 7)
    except RuntimeError as error:
        if "set_data" in str(error):
            fail(moved, look=look)
        return                                                # meta tensors hold no numbers: other code may need some
    if any(p.device.type != "meta" for p in model.parameters()):
        fail(moved, look=look)


# --- GPT -----------------------------------------------------------------------------------------------


def gpt_shapes(sizes):
    C = sizes["n_embd"]
    shapes = {"wte.weight": (sizes["vocab_size"], C), "wpe.weight": (sizes["n_ctx"], C)}
    one = {
        "ln_1.weight": (C,), "ln_1.bias": (C,),
        "attn.c_attn.weight": (3 * C, C), "attn.c_attn.bias": (3 * C,), "attn.c_proj.weight": (C, C), "attn.c_proj.bias": (C,),
        "ln_2.weight": (C,), "ln_2.bias": (C,),
        "mlp.c_fc.weight": (4 * C, C), "mlp.c_fc.bias": (4 * C,), "mlp.c_proj.weight": (C, 4 * C), "mlp.c_proj.bias": (C,),
    }
    for layer in range(sizes["n_layer"]):
        shapes |= {f"h.{layer}.{name}": shape for name, shape in one.items()}
    return shapes | {"ln_f.weight": (C,), "ln_f.bias": (C,)}


def new_gpt(GPT, sizes=CONFIG, seed=0):
    """A GPT with random numbers everywhere, and its parameters by name."""
    model = GPT(config(sizes))
    names = sorted(n for n, _ in model.named_parameters())
    missing = [n for n in gpt_shapes(sizes) if n not in names]
    if missing:
        fail(f"GPT has no parameter {missing[0]}.")
    fill(model, seed)
    return model, dict(model.named_parameters())


def results(model, idx, targets=None):
    """(logits, loss) of forward, on copies; fails if it is no such pair."""
    got = call(lambda idx, targets: model(idx) if targets is None else model(idx, targets), idx, targets)
    if got is None:
        fail("forward returns None. Is there a return at the end of every branch?")
    if isinstance(got, torch.Tensor):
        fail("forward returns one tensor; it returns two things, logits and loss, and without targets the loss is None.", example=f"without targets: return logits, None (you return a tensor of shape {shape_of(got)})")
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        size = f" of {len(got)}" if isinstance(got, (tuple, list)) else ""
        fail(f"forward returns a {type(got).__name__}{size}; it returns the pair (logits, loss).")
    logits, loss = got
    swapped = isinstance(loss, torch.Tensor) and loss.dim() > 1 and (logits is None or isinstance(logits, torch.Tensor) and logits.dim() == 0)
    if swapped:
        fail("the two results are swapped: logits come first, the loss second.")
    return logits, loss


def check_logits_shape(logits, idx, sizes):
    B, T = idx.shape
    V, C = sizes["vocab_size"], sizes["n_embd"]
    shape = tuple(logits.shape) if isinstance(logits, torch.Tensor) else None
    said = {
        (B, V): "only the last position has logits: every position guesses its next token, and training needs all the guesses.",
        (B, 1, V): "only the last position has logits: every position guesses its next token, and training needs all the guesses.",
        (B, T - 1, V): "one position has no logits: all T positions have, whatever the loss then uses.",
        (B * T, V): "the logits are flattened to (B*T, V): give cross_entropy a flattened view, and return (B, T, V).",
        (B, V, T): "the logits are (B, V, T): tokens of the vocabulary are the last axis, (B, T, V).",
        (T, B, V): "batch and time are swapped: (B, T, V).",
        (B, T, C): "what comes out has n_embd channels: the head is missing, which compares each position with every row of wte.",
        (B, T): "what comes out is one number for each position: logits, not the likeliest token.",
        (B, T, sizes["n_ctx"]): "the head uses wpe: it compares each position with the rows of wte, one for each token.",
    }
    if shape in said and shape != (B, T, V):
        fail(said[shape], example=f"for idx of shape ({B}, {T}) the logits have shape {shape_of(logits)}, expected ({B}, {T}, {V})")
    is_tensor(logits, (B, T, V), name="logits")
    if not logits.requires_grad:
        fail("the logits carry no gradient: whoever computes a loss from them cannot train.", look=".detach(), .data and torch.no_grad() in forward")


@checks(MODEL, "GPT-2's names, and nothing else")
def gpt_names(GPT):
    for sizes in (CONFIG, OTHER):
        given = config(sizes)
        model = GPT(given)
        if {name: getattr(given, name, None) for name in sizes} != sizes:
            fail("the config is changed while the model is built: whoever builds a second model from it gets another one.")
        if not isinstance(model, nn.Module):
            fail("GPT is no nn.Module: without that nothing finds its parameters.", look="the line class GPT(nn.Module)")
        others = [n for n, _ in model.named_parameters() if n.startswith("transformer.")]
        if others:
            fail(f"the names begin with transformer., as {others[0]}: GPT-2's own names begin with wte, wpe, h and ln_f.")
        check_blocks(model, sizes)
        check_no_head(model, sizes)
        shared = list(one_and_the_same(model))
        if shared:
            fail(f"{shared[0][0]} and {shared[0][1]} are one and the same parameter: only wte is used twice, and it has one name.")
        parameters = dict(model.named_parameters())
        if "wpe.weight" not in parameters and not any(n.endswith("wpe.weight") for n in parameters):
            value = getattr(getattr(model, "wpe", None), "weight", getattr(model, "wpe", None))
            if not isinstance(value, torch.Tensor):
                fail("there is no wpe.weight: positions have a table of learned vectors, (n_ctx, n_embd). Without it a model cannot tell the order of the tokens before it.")
            if value.shape == (sizes["n_ctx"], sizes["n_embd"]):
                fail("the position table wpe is fixed: GPT-2 learns it, so it is a parameter wpe.weight.")
        if "wte.weight" in parameters and tuple(parameters["wte.weight"].shape) == (sizes["n_ctx"], sizes["n_embd"]):
            fail("wte and wpe have each other's size: wte has a row for each token of the vocabulary, wpe one for each of n_ctx positions.")
        parameters_are(model, gpt_shapes(sizes), "GPT")
        extra = [n for n in model.state_dict() if n not in parameters]
        if extra:
            fail(
                f"the state dict holds {extra[0]}, which is no parameter of GPT-2: a checkpoint with GPT-2's names would not load.",
                look="register_buffer: with persistent=False a buffer moves with the model and stays out of the state dict",
            )


def check_blocks(model, sizes):
    h, want = getattr(model, "h", None), sizes["n_layer"]
    if h is None:
        fail("GPT has no h: the blocks are held in self.h.", look="nn.ModuleList")
    if isinstance(h, (list, tuple, dict, set)):
        fail(f"h is a Python {type(h).__name__}: a module does not look into it, so the blocks have no parameters for an optimizer and none in the state dict.", look="nn.ModuleList holds a list of modules")
    try:
        count = len(h)
    except TypeError:
        fail("h has no length: it is a list of n_layer blocks.", look="nn.ModuleList")
    if want > 1 and len({id(b) for b in (h if not hasattr(h, "values") else h.values())}) == 1:
        fail(
            "all blocks of h are one and the same object: they share their weights, and the model has the parameters of one block.",
            example=f"h[0] is h[1]: {len(list(model.parameters()))} parameters, expected {len(gpt_shapes(sizes))}",
            look="[Block(config)] * n_layer repeats one block; build one for each layer",
        )
    if count != want:
        fail(f"h holds {count} blocks, expected n_layer = {want}.", look="the range that builds h")


def check_no_head(model, sizes):
    """Fails if the state dict holds a head beside wte."""
    shape = (sizes["vocab_size"], sizes["n_embd"])
    wte = getattr(getattr(model, "wte", None), "weight", None)
    if wte is None:
        return
    state = model.state_dict(keep_vars=True)
    heads = [n for n, p in state.items() if n.split(".")[0] not in ("wte", "wpe", "h", "ln_f", "transformer") and tuple(p.shape) in (shape, shape[::-1])]
    biases = [n for n, p in state.items() if n.split(".")[0] not in ("wte", "wpe", "h", "ln_f", "transformer") and tuple(p.shape) == shape[:1]]
    if heads and (state[heads[0]] is wte or state[heads[0]].data_ptr() == wte.data_ptr()):
        fail(
            f"{heads[0]} is wte.weight under a second name: the weight is tied as it should be, but a checkpoint then holds it twice and GPT-2's names do not fit.",
            look="use wte.weight in forward, without a layer for the head",
        )
    if heads:
        words = "It starts as a copy of wte, and a copy goes its own way from the first step." if equal(state[heads[0]], wte, 0) else "It has numbers of its own."
        fail(
            f"the head {heads[0]} is a weight beside wte, with V·C parameters more. {words} Tied means that the head is wte.weight itself.",
            example=f"{sum(p.numel() for p in model.parameters()):,} parameters, expected {sum(math.prod(s) for s in gpt_shapes(sizes).values()):,}",
            look="use wte.weight in forward, without a layer for the head",
        )
    if biases:
        fail(f"the head has a bias, {biases[0]}: GPT-2's has none.", look="logits = x @ wte.weight.T and nothing more")


@checks(MODEL, "what forward returns")
def gpt_returns(GPT):
    model, p = new_gpt(GPT)
    idx, targets = rand_ids(2, 5, n=7, seed=1), rand_ids(2, 5, n=11, seed=2)
    logits, loss = results(model, idx)
    check_logits_shape(logits, idx, CONFIG)
    if loss is not None:
        fail("without targets the loss is None: there is nothing to compare with.", example=f"model(idx)[1] is of type {type(loss).__name__}")
    logits, loss = results(model, idx, targets)
    if logits is None:
        fail("with targets the logits are None: both are returned, always.")
    check_logits_shape(logits, idx, CONFIG)
    check_loss_is_scalar(loss, idx)
    try:
        _, named = model(idx, targets=targets)
    except TypeError as error:
        fail(f"forward cannot be called as model(idx, targets=...): {error}", look="the names of the arguments: forward(self, idx, targets=None)")
    check_loss_is_scalar(named, idx)


def check_loss_is_scalar(loss, idx):
    B, T = idx.shape
    if loss is None:
        fail("with targets the loss is None.", look="the branch for targets, and its return")
    if isinstance(loss, (float, int)):
        fail("the loss is a Python number: backward() needs the tensor.", look=".item() and float() cut the graph; they are for printing")
    if isinstance(loss, torch.Tensor) and tuple(loss.shape) in [(B * T,), (B, T), (T,), (B,)]:
        fail(f"the loss has shape {shape_of(loss)}: it is one number, the mean over all positions of all sequences.")
    is_tensor(loss, (), name="the loss")
    if not loss.requires_grad:
        fail("the loss carries no gradient: nothing can be trained with it.", look=".detach(), .data, .item(), torch.no_grad() and torch.tensor(...) cut the graph")


@checks(MODEL, "the same result twice")
def gpt_repeatable(GPT):
    model, p = new_gpt(GPT)
    before = {name: value.detach().clone() for name, value in p.items()}
    idx, other = rand_ids(2, 5, n=7, seed=16), rand_ids(3, 3, n=7, seed=17)
    answers = []
    for mode in (True, True, False):
        model.train(mode)
        answers.append(model(idx)[0])
        model(other, other.clone())
    changed = [name for name, value in p.items() if not equal(value, before[name], 0)]
    if changed:
        fail(f"forward changes {changed[0]}.", look="in-place operations in forward: x += ... on something that was looked up is a parameter's own memory")
    if not (equal(answers[0], answers[1], 0) and equal(answers[1], answers[2], 0)):
        fail(RANDOM, look=RANDOM_LOOK)


@checks(MODEL, "the head is wte")
def gpt_tied(GPT):
    model = GPT(config())
    start = model.wte.weight.detach().clone()
    fill(model)
    p = dict(model.named_parameters())
    idx = rand_ids(2, 5, n=7, seed=3)
    logits, want = model(idx)[0].detach(), logits_of(p, idx, CONFIG).detach()
    name_mistake(logits, want, [
        ("the head is a copy of wte, made when the model was built: when wte changes, the head stays behind.", logits_of(p, idx, CONFIG, head=start).detach()),
        ("the logits are softmaxed: forward returns scores, and cross_entropy takes the softmax.", want.softmax(-1)),
        ("the logits are log-softmaxed: forward returns the plain scores.", want.log_softmax(-1)),
    ])
    with torch.no_grad():
        p["wte.weight"].zero_()
    got = model(idx)[0]
    if got.abs().max() > 0:
        rows = "the head has a bias." if equal(got, got[:1, :1].expand_as(got), 1e-6) else "the head has numbers of its own, outside the state dict."
        fail(f"the logits do not come from wte: {rows} Tied means that the head is wte.weight itself, without a bias.", example=f"with wte.weight at 0 every logit must be 0, and logits[0, 0, 0] is {number(got[0, 0, 0])}")
    model, p = new_gpt(GPT)
    logits, loss = model(idx, idx.clone())
    if not equal(logits, logits_of(p, idx, CONFIG), 2e-5):
        return                                                # the next check says what is wrong with them
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.5).step()
    close(model(idx)[0], logits_of(p, idx, CONFIG), 2e-5, name="logits after one step of an optimizer", known=[
        ("the head stays behind when an optimizer moves wte: something is kept from an earlier call.", logits_of(p, idx, CONFIG, head=p["wte.weight"] + 0.5 * p["wte.weight"].grad)),
    ], look="what the head is made from, and when")


def wte_gradients(p, idx, weighting, loss=None):
    """The gradient of wte: all of it, the head's share, the embedding's share."""
    embedding, head = p["wte.weight"].detach().clone().requires_grad_(), p["wte.weight"].detach().clone().requires_grad_()
    logits = logits_of({**p, "wte.weight": embedding}, idx, CONFIG, head=head)
    scalar = (logits * weighting).sum() if loss is None else loss(logits)
    of_embedding, of_head = torch.autograd.grad(scalar, [embedding, head])
    return of_embedding + of_head, of_head, of_embedding


def sinusoids(T, C):
    angles = torch.arange(T)[:, None] / 10_000 ** (torch.arange(0, C, 2) / C)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def logits_known(p, idx, sizes):
    T, L, C, n_ctx = idx.shape[1], sizes["n_layer"], sizes["n_embd"], sizes["n_ctx"]
    right = logits_of(p, idx, sizes).detach()
    tok = lambda p, idx: p["wte.weight"][idx]                 # noqa: E731
    pos = p["wpe.weight"]

    def embedded(words, f):
        return (words, lambda: logits_of(p, idx, sizes, embed=f))

    def blocks(words, order):
        return (words, lambda: logits_of(p, idx, sizes, blocks=order))

    def ended(words, f):
        return (words, lambda: logits_of(p, idx, sizes, end=f))

    wte = p["wte.weight"]
    known = [
        ended("ln_f is missing: one last LayerNorm stands between the blocks and the head.", lambda p, x: x),
        ended("ln_f is applied twice.", lambda p, x: norm(p, "ln_f", norm(p, "ln_f", x))),
        ended("ln_f's result is added to the stream: it replaces it, there is no residual around it.", lambda p, x: x + norm(p, "ln_f", x)),
        ended("after the blocks comes ln_1 of a block; it is ln_f.", lambda p, x: norm(p, "h.0.ln_1", x)),
        ended("after the blocks comes the LayerNorm of the last block; it is ln_f.", lambda p, x: norm(p, f"h.{L - 1}.ln_2", x)),
        ("ln_f stands before the blocks: it comes after the last one.", lambda: logits_of(p, idx, sizes, embed=lambda p, idx: norm(p, "ln_f", tok(p, idx) + pos[:T]), end=lambda p, x: x)),
        ("ln_f is used before the blocks too: it comes after the last one only.", lambda: logits_of(p, idx, sizes, embed=lambda p, idx: norm(p, "ln_f", tok(p, idx) + pos[:T]))),
        ("ln_f is applied after every block: it comes after the last one only.", lambda: logits_of(p, idx, sizes, block=lambda p, at, x, n: norm(p, "ln_f", block_forward(p, at, x, n)), end=lambda p, x: x)),
        embedded("wpe is missing: without positions the model cannot tell in which order the past tokens came.", lambda p, idx: tok(p, idx)),
        embedded("wte is missing: only positions go into the blocks.", lambda p, idx: pos[:T].expand(*idx.shape, C)),
        embedded("the positions are looked up by token id, wpe(idx): equal tokens then get equal positions. Positions are 0 to T-1.", lambda p, idx: tok(p, idx) + pos[idx % n_ctx]),
        embedded("the positions run backwards: the first token has position 0.", lambda p, idx: tok(p, idx) + pos[:T].flip(0)),
        embedded("the positions run down from n_ctx-1: the first token has position 0.", lambda p, idx: tok(p, idx) + pos.flip(0)[:T]),
        embedded("the positions start at 1: the first token has position 0.", lambda p, idx: tok(p, idx) + (pos[1 : T + 1] if T < n_ctx else pos[:T])),
        embedded("the positions count down from T: the first token has position 0.", lambda p, idx: tok(p, idx) + (pos[1 : T + 1].flip(0) if T < n_ctx else pos[:T])),
        embedded("the positions are the last T of n_ctx: the first token has position 0.", lambda p, idx: tok(p, idx) + pos[n_ctx - T :]),
        embedded("every token gets position 0: positions are 0 to T-1.", lambda p, idx: tok(p, idx) + pos[0]),
        embedded("every token gets the position of the last: positions are 0 to T-1.", lambda p, idx: tok(p, idx) + pos[T - 1]),
        embedded("the positions follow the batch: wpe is looked up by the row of the sequence, not by the place in it.", lambda p, idx: tok(p, idx) + pos[: len(idx), None] if len(idx) <= n_ctx else tok(p, idx)),
        embedded("the positions run on from one sequence of the batch to the next: each sequence starts at 0.", lambda p, idx: tok(p, idx) + pos[torch.arange(idx.numel()).reshape(idx.shape) % n_ctx]),
        embedded("token and position are multiplied: they are added.", lambda p, idx: tok(p, idx) * pos[:T]),
        embedded("the position is subtracted: it is added.", lambda p, idx: tok(p, idx) - pos[:T]),
        embedded("the position is added twice.", lambda p, idx: tok(p, idx) + 2 * pos[:T]),
        embedded("the token embedding is multiplied by sqrt(n_embd): the first transformer did that, GPT-2 does not.", lambda p, idx: tok(p, idx) * math.sqrt(C) + pos[:T]),
        embedded("the sum of token and position is multiplied by sqrt(n_embd): GPT-2 does not scale it.", lambda p, idx: (tok(p, idx) + pos[:T]) * math.sqrt(C)),
        embedded("token and position are averaged: they are added.", lambda p, idx: (tok(p, idx) + pos[:T]) / 2),
        embedded("the positions are sines and cosines: GPT-2 looks them up in wpe.", lambda p, idx: tok(p, idx) + sinusoids(T, C)),
        embedded("the positions are averaged over the sequence: each token gets its own.", lambda p, idx: tok(p, idx) + pos[:T].mean(0)),
        embedded("a mean over the tokens goes in: each position keeps its own.", lambda p, idx: tok(p, idx).mean(1, keepdim=True) + pos[:T]),
        blocks("the blocks are run in reverse order: h[0] comes first.", list(range(L))[::-1]),
        blocks("no block has an effect: what a block returns is the input of the next.", []),
        blocks("the last block is left out.", list(range(L - 1))),
        blocks("the first block is left out.", list(range(1, L))),
        blocks("only the first block is run.", [0]),
        blocks("only the last block has an effect: each block reads the embeddings, and must read what the block before returned.", [L - 1]),
        blocks("the first block is run n_layer times: each layer has a block of its own.", [0] * L),
        blocks("the last block is run n_layer times: each layer has a block of its own.", [L - 1] * L),
        blocks("the blocks are run twice.", list(range(L)) * 2),
        blocks("the last block is run once more.", [*range(L), L - 1]),
        blocks("the first block is run once more.", [0, *range(L)]),
        ("a residual is put around each block: a block adds to the stream by itself.", lambda: logits_of(p, idx, sizes, block=lambda p, at, x, n: x + block_forward(p, at, x, n))),
        ("every block reads the embeddings, and the results are added: each block reads what the one before returned.", lambda: F.linear(norm(p, "ln_f", parallel_blocks(p, idx, sizes)), wte)),
        ("the embeddings are added once more after the blocks.", lambda: F.linear(norm(p, "ln_f", before_end(p, idx, sizes) + tok(p, idx) + pos[:T]), wte)),
        ("the softmax runs over the positions, and there is none here: forward returns the plain scores.", right.softmax(1)),
        ("the logits are divided by sqrt(n_embd): the head is a plain product with wte.", right / math.sqrt(C)),
        ("the logits are multiplied by sqrt(n_embd): the head is a plain product with wte.", right * math.sqrt(C)),
        ("the logits have the wrong sign.", -right),
        ("the head normalises: it is a plain product with wte.", lambda: F.linear(F.normalize(norm(p, "ln_f", before_end(p, idx, sizes)), dim=-1), F.normalize(wte, dim=-1))),
        ("the first and the last position are exchanged: logits come in the order of the tokens.", right.flip(1)),
        ("the positions are added after the blocks: attention then never sees them. They belong to the embeddings.", lambda: logits_of(p, idx, sizes, embed=tok, end=lambda p, x: norm(p, "ln_f", x + pos[:T]))),
        ("the positions are added before every block: once, at the start, is enough for the stream to carry them.", lambda: logits_of(p, idx, sizes, embed=tok, block=lambda p, at, x, n: block_forward(p, at, x + pos[:T], n))),
        ("the positions are added before every block: once, at the start, is enough for the stream to carry them.", lambda: logits_of(p, idx, sizes, block=lambda p, at, x, n: block_forward(p, at, x + pos[:T], n))),
        ("the tokens are added before every block: once, at the start, is enough for the stream to carry them.", lambda: logits_of(p, idx, sizes, block=lambda p, at, x, n: block_forward(p, at, x + tok(p, idx), n))),
        ("the mean of the logits is subtracted: the head is a plain product with wte.", right - right.mean(-1, keepdim=True)),
        ("the largest logit is subtracted: that belongs into the softmax, the head is a plain product with wte.", right - right.amax(-1, keepdim=True)),
        ("the logits of the last position stand at all of them.", right[:, -1:].expand_as(right)),
        ("the logits are shifted by one position: logits[:, t] are the guesses after token t.", right.roll(1, 1)),
        ("the logits are shifted by one position: logits[:, t] are the guesses after token t.", right.roll(-1, 1)),
        ("positions see the future: a block's attention has no causal mask.", lambda: logits_of(p, idx, sizes, block=lambda *a: block_forward(*a, causal=False))),
    ]
    for words, *steps in BLOCK_MISTAKES:
        known.append((f"in the blocks {words}", lambda steps=steps: logits_of(p, idx, sizes, block=block_with(steps))))
    return known


def before_end(p, idx, sizes):
    return logits_of(p, idx, sizes, head=torch.eye(sizes["n_embd"], dtype=p["wte.weight"].dtype), end=lambda p, x: x)


def parallel_blocks(p, idx, sizes):
    x = F.embedding(idx, p["wte.weight"]) + p["wpe.weight"][: idx.shape[1]]
    return sum(block_forward(p, f"h.{layer}.", x, sizes["n_head"]) for layer in range(sizes["n_layer"]))


def where_to_look(model, p, sizes):
    """If a block by itself gives other values than GPT-2's, that is where the mistake is."""
    x = rand(2, 4, sizes["n_embd"], seed=5, dtype=p["wte.weight"].dtype)
    try:
        right = equal(model.h[0](x), block_forward(p, "h.0.", x, sizes["n_head"]), 1e-5)
    except Exception:
        right = False
    if not right:
        return "the block: h[0] by itself already gives wrong values"
    return "the blocks are right by themselves; what goes into the first, the order they run in, ln_f and the head"


@checks(MODEL, "logits")
def gpt_logits(GPT):
    model, p = new_gpt(GPT)
    for n in (7, 11):                                         # wpe has 7 rows: token ids beyond them crash wpe(idx)
        idx = rand_ids(2, 5, n=n, seed=6)
        logits, _ = results(model, idx)
        want = logits_of(p, idx, CONFIG)
        factor = ((logits * want).sum() / (want * want).sum()).detach()
        scaled = ("all logits are multiplied by one number (a temperature belongs to sampling): the head is a plain product with wte.", factor * want)
        close(logits, want, 2e-5, name="logits", known=[*logits_known(p, idx, CONFIG), scaled], look=where_to_look(model, p, CONFIG))


def mean_loss(logits, targets, **how):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), **how)


def loss_known(logits, idx, targets):
    """What common mistakes give; targets without ignored positions."""
    B, T, V = logits.shape
    right = mean_loss(logits, targets)
    per_token = mean_loss(logits, targets, reduction="none").reshape(B, T)
    shift = "forward shifts the targets, and get_batch has shifted them already: position t is compared with targets[:, t]."
    picked = logits.gather(-1, targets[..., None]).squeeze(-1)
    probs = logits.softmax(-1)
    return [
        (shift, mean_loss(logits[:, :-1], targets[:, 1:])),
        (shift, mean_loss(logits[:, 1:], targets[:, :-1])),
        (shift, mean_loss(logits, targets.roll(-1, 1))),
        (shift, mean_loss(logits, targets.roll(1, 1))),
        ("the loss compares the logits with idx, not with targets: the model then learns to repeat its input.", mean_loss(logits, idx)),
        ("the loss compares the logits with idx shifted by one, and targets are not used.", mean_loss(logits[:, :-1], idx[:, 1:])),
        ("the loss compares the logits with idx shifted by one, and targets are not used.", mean_loss(logits, idx.roll(-1, 1))),
        ("the loss compares the logits with the token before (idx shifted the wrong way), and targets are not used.", mean_loss(logits[:, 1:], idx[:, :-1])),
        ("the targets are transposed before they are flattened: logits and targets then belong to different positions.", mean_loss(logits, targets.T)),
        ("the logits are transposed before they are flattened: logits and targets then belong to different positions.", mean_loss(logits.transpose(0, 1), targets)),
        ("logits and targets are flattened in different orders.", mean_loss(logits.transpose(1, 2).reshape(B * T, V), targets)),
        ("the softmax comes before cross_entropy, which takes it itself: the loss can then never come near 0.", mean_loss(probs, targets)),
        ("the softmax runs over the positions, and cross_entropy takes its own over the vocabulary.", mean_loss(logits.softmax(1), targets)),
        ("the loss is summed over the positions: it is their mean.", per_token.sum()),
        ("the loss is summed over the positions of a sequence and averaged over the batch: it is the mean over both.", per_token.sum() / B),
        ("the loss is summed over the batch and averaged over the positions: it is the mean over both.", per_token.sum() / T),
        ("the loss is divided by the vocabulary size: it is the mean over the positions.", per_token.mean() / V),
        ("the loss is a mean over the positions, divided by their number once more.", per_token.mean() / T),
        ("the loss is a mean over the positions, divided by the batch once more.", per_token.mean() / B),
        ("only the last position counts in the loss: all do.", per_token[:, -1].mean()),
        ("only the first position counts in the loss: all do.", per_token[:, 0].mean()),
        ("the first position does not count in the loss: all do.", per_token[:, 1:].mean()),
        ("the last position does not count in the loss: all do.", per_token[:, :-1].mean()),
        ("only the first sequence of the batch counts in the loss.", per_token[0].mean()),
        ("only the last sequence of the batch counts in the loss.", per_token[-1].mean()),
        ("the loss is in bits (log2): GPT-2's is with the natural logarithm.", right / math.log(2)),
        ("the loss is log10 of the probability: it is the natural logarithm.", right / math.log(10)),
        ("the loss is the perplexity, exp(loss): return the loss itself.", right.exp()),
        ("the loss has the wrong sign.", -right),
        ("the loss is minus the mean logit of the targets: the softmax is missing.", -picked.mean()),
        ("the loss is minus the mean probability of the targets: the logarithm is missing.", -probs.gather(-1, targets[..., None]).mean()),
        ("the loss is 1 minus the mean probability of the targets; it is minus the mean logarithm.", 1 - probs.gather(-1, targets[..., None]).mean()),
        ("the loss is a squared error against one-hot targets; it is the cross entropy.", F.mse_loss(logits, F.one_hot(targets, V).to(logits.dtype))),
        ("the softmax runs over the positions; it runs over the vocabulary.", F.nll_loss(logits.log_softmax(1).flatten(0, 1), targets.flatten())),
        ("the softmax runs over the batch; it runs over the vocabulary.", F.nll_loss(logits.log_softmax(0).flatten(0, 1), targets.flatten())),
        ("the loss is a binary cross entropy, token by token; it is the cross entropy over the vocabulary.", F.binary_cross_entropy_with_logits(logits, F.one_hot(targets, V).to(logits.dtype))),
        ("the loss is a squared error of probabilities; it is the cross entropy.", F.mse_loss(probs, F.one_hot(targets, V).to(logits.dtype))),
        ("the loss is smoothed (label_smoothing): the target gets all the weight.", mean_loss(logits, targets, label_smoothing=0.1)),
        ("the logarithm is taken of the mean probability; it is the mean of the logarithms.", -probs.gather(-1, targets[..., None]).mean().log()),
        ("the loss is the median over the positions; it is the mean.", per_token.median()),
        ("the loss is the largest over the positions; it is the mean.", per_token.max()),
        ("target 0 is ignored as if it were padding: only -100 is.", mean_loss(logits, targets, ignore_index=0)),
    ]


@checks(MODEL, "loss")
def gpt_loss(GPT):
    model, p = new_gpt(GPT)
    idx, targets = rand_ids(2, 5, n=11, seed=44), rand_ids(2, 5, n=11, seed=144)
    targets[0, 1] = 0
    logits, loss = results(model, idx, targets)
    check_loss_is_scalar(loss, idx)
    want = logits_of(p, idx, CONFIG)
    close(loss, mean_loss(want, targets), 2e-5, name="the loss", known=loss_known(want, idx, targets), look="what is compared with what, and how both are flattened to (B*T, V) and (B*T,)")
    close(logits, want, 2e-5, name="the logits with targets", known=logits_known(p, idx, CONFIG), look="what targets change besides the loss: nothing")
    with torch.no_grad():
        p["ln_f.weight"].mul_(300)
    want = logits_of(p, idx, CONFIG)
    _, loss = results(model, idx, targets)
    if isinstance(loss, torch.Tensor) and not loss.isfinite():
        fail("large logits make the loss inf or nan: a probability becomes 0 in float32, and its logarithm is -inf.", example=f"with logits up to {want.max().item():.0f} the loss is {number(loss)}, expected {number(mean_loss(want, targets))}", look="log(softmax(x)) in two steps; cross_entropy of lesson 02 takes log_softmax in one")
    close(loss, mean_loss(want, targets), 1e-4, name="the loss for large logits")


@checks(MODEL, "positions marked -100")
def gpt_ignored(GPT):
    model, p = new_gpt(GPT)
    idx, targets = rand_ids(2, 5, n=11, seed=12), rand_ids(2, 5, n=11, seed=13)
    kept = targets.clone()
    targets[0, 1] = targets[1, 3] = targets[1, 4] = -100
    want = logits_of(p, idx, CONFIG).detach()
    per_token = mean_loss(want, targets, reduction="none")              # 0 where ignored
    try:
        _, loss = results(model, idx, targets)
    except (IndexError, RuntimeError) as error:
        fail("a target of -100 crashes the loss: -100 marks positions that do not count (ignore_index of lesson 02).", example=f"{type(error).__name__}: {str(error)[:80]}")
    as_token = mean_loss(want, targets.clamp(min=0))
    close(loss, mean_loss(want, targets), 2e-5, name="the loss", known=[
        ("positions marked -100 count as loss 0 in the mean: the sum is divided by the number of positions that count.", per_token.sum() / 10),
        ("positions marked -100 are taken for token 0: they do not count at all.", as_token),
        ("positions marked -100 are taken for another token: they do not count at all.", mean_loss(want, torch.where(targets < 0, (targets % 11), targets))),
        ("positions marked -100 are taken for the last token of the vocabulary: they do not count at all.", mean_loss(want, torch.where(targets < 0, 10, targets))),
        ("the loss is summed over the positions: it is their mean.", per_token.sum()),
        ("one position marked -100 makes the loss nan.", torch.tensor(math.nan)),
        ("the mean is taken over each sequence first, then over the batch: every position that counts has the same weight.", torch.stack([mean_loss(want[i], targets[i]) for i in range(2)]).mean()),
        ("a sequence with a position marked -100 is left out as a whole.", torch.tensor(0.0)),
        ("positions marked -100 are counted with other targets.", mean_loss(want, kept)),
    ], look="ignore_index, and by how many positions the sum is divided")


@checks(MODEL, "other lengths and sizes")
def gpt_lengths(GPT):
    for sizes, shapes in [(CONFIG, [(1, 1), (3, 7), (1, 4), (5, 2)]), (OTHER, [(2, 6), (3, 1)])]:
        model, p = new_gpt(GPT, sizes)
        for B, T in shapes:
            idx, targets = rand_ids(B, T, n=sizes["vocab_size"], seed=7), rand_ids(B, T, n=sizes["vocab_size"], seed=8)
            try:
                logits, loss = results(model, idx, targets)
            except ValueError as error:
                fail(f"T = {T} is refused and n_ctx is {sizes['n_ctx']}: exactly n_ctx tokens still fit.", example=f"ValueError: {error}")
            check_logits_shape(logits, idx, sizes)
            name = f"the logits for B = {B}, T = {T}, n_ctx = {sizes['n_ctx']}"
            close(logits, logits_of(p, idx, sizes), 2e-5, name=name, known=logits_known(p, idx, sizes) if T > 1 else (), look="sizes that are written as numbers: they come from config and from idx")
            close(loss, mean_loss(logits, targets), 2e-5, name=f"the loss for B = {B}, T = {T}")


@checks(MODEL, "more tokens than n_ctx")
def gpt_too_long(GPT):
    for sizes in (CONFIG, OTHER):
        model, _ = new_gpt(GPT, sizes)
        T = sizes["n_ctx"] + 1
        idx = rand_ids(2, T, n=sizes["vocab_size"], seed=9)
        for arguments in [(idx,), (idx, idx.clone())]:
            try:
                model(*arguments)
            except ValueError as error:
                if len(str(error).split()) < 3:
                    fail("the ValueError says nothing: tell in one sentence how many tokens came and how many fit.", example=f"ValueError: {error}")
                continue
            except Exception as error:
                kind = type(error).__name__
                fail(f"more than n_ctx tokens raise {kind}; a ValueError with a sentence is wanted, before anything is looked up.", example=f"T = {T}, n_ctx = {T - 1}: {kind}: {str(error)[:80]}")
            fail("more than n_ctx tokens are accepted: there is no position for them. Raise a ValueError; cropping is the caller's decision.", example=f"T = {T}, n_ctx = {T - 1}")


@checks(MODEL, "slices of a longer text")
def gpt_not_contiguous(GPT):
    model, p = new_gpt(GPT)
    text = rand_ids(2, 6, n=11, seed=14)
    idx, targets = text[:, :-1], text[:, 1:]
    turned = rand_ids(5, 2, n=11, seed=15).T
    for a, b in [(idx, targets), (idx, turned), (turned, targets)]:
        try:
            logits, loss = model(a, b)
        except RuntimeError as error:
            if "view" not in str(error):
                raise
            fail("idx or targets that are a slice of a longer tensor stop with an error: view needs numbers that lie side by side in memory.", example="idx, targets = text[:, :-1], text[:, 1:]", look="view; reshape copies where it must")
        want = logits_of(p, a, CONFIG)
        close(logits, want, 2e-5, name="logits")
        close(loss, mean_loss(want, b), 2e-5, name="the loss for idx = text[:, :-1], targets = text[:, 1:]", known=loss_known(want, a, b))


@checks(MODEL, "gradients of every parameter")
def gpt_gradients(GPT):
    model, p = new_gpt(GPT)
    idx, targets = rand_ids(2, 5, n=11, seed=18), rand_ids(2, 5, n=11, seed=19)
    targets[1, 2] = -100
    loss = model(idx, targets)[1]
    both, of_head, of_embedding = wte_gradients(p, idx, None, lambda logits: mean_loss(logits, targets))
    same_gradients(loss, mean_loss(logits_of(p, idx, CONFIG), targets), p, known=[
        ("wte.weight", "the embedding's share of wte's gradient is missing: only the head trains wte.", of_head),
        ("wte.weight", "the head's share of wte's gradient is missing: only the embedding trains wte.", of_embedding),
    ])


@checks(MODEL, "weights at the start")
def gpt_start(GPT):
    torch.manual_seed(3)
    model = GPT(config(MIDDLE))
    L = MIDDLE["n_layer"]
    for projections, std, known in [(False, 0.02, start_mistakes(L)), (True, 0.02 / math.sqrt(2 * L), [*projection_start_mistakes(), *projection_mistakes(L)])]:
        for name, w in matrices(model, projections).items():
            check_drawn(name, w, std, known)
    for name, p in model.named_parameters():
        want = 1 if is_norm_weight(name) else 0
        if p.dim() == 1 and not equal(p, torch.full_like(p, want), 0):
            fail(f"{name} does not start at {want}: init_weights has not been run over the whole model.", example=f"{name}[0] is {number(p[0])}", look="the call of init_weights: once, at the end of __init__, when all parts are there")
    p = dict(model.named_parameters())
    if equal(p["h.0.mlp.c_fc.weight"], p["h.1.mlp.c_fc.weight"], 0):
        fail("the blocks start with the same numbers: copies of one block learn alike. Draw each anew.", look="deepcopy, and what init_weights is run over")
    again = GPT(config(MIDDLE))
    if equal(model.wte.weight, again.wte.weight, 0):
        fail("two models start with the same numbers, or share them.", look="a seed that is set inside, and parts that are created outside __init__")
    idx = rand_ids(4, 60, n=199, seed=20)
    loss, want = model(idx, rand_ids(4, 60, n=199, seed=21))[1].item(), math.log(199)
    if not abs(loss - want) < 0.1:
        fail("a fresh model knows nothing and must give every token about the same probability, so the loss starts at ln V.", example=f"the loss is {loss:.3f}, ln 199 = {want:.3f}", look="the size of the weights at the start")


def start_mistakes(L):
    return [
        ("init_weights is not called, or before all parts are there: the linear layers keep the numbers that Linear drew.", 1 / math.sqrt(3 * 64)),
        ("init_weights is not called, or before all parts are there: the linear layers keep the numbers that Linear drew.", 1 / math.sqrt(3 * 256)),
        ("the token table keeps standard deviation 1: the loss then starts far above ln V. 0.02 it is.", 1.0),
        *plain_mistakes(L)[:5],
    ]


def projection_start_mistakes():
    return [
        ("init_weights gets 1 layer; it gets config.n_layer.", 0.02 / math.sqrt(2)),
        ("init_weights gets n_head; it gets config.n_layer.", 0.02 / math.sqrt(2 * MIDDLE["n_head"])),
        ("init_weights gets 12 layers whatever config says.", 0.02 / math.sqrt(24)),
        ("init_weights gets 2 n_layer; the 2 is inside it already.", 0.02 / math.sqrt(4 * MIDDLE["n_layer"])),
        ("init_weights gets n_embd; it gets config.n_layer.", 0.02 / math.sqrt(2 * MIDDLE["n_embd"])),
        ("init_weights gets n_ctx; it gets config.n_layer.", 0.02 / math.sqrt(2 * MIDDLE["n_ctx"])),
        ("init_weights gets n_layer + 1; it gets config.n_layer.", 0.02 / math.sqrt(2 * (MIDDLE["n_layer"] + 1))),
        ("init_weights gets n_layer - 1; it gets config.n_layer.", 0.02 / math.sqrt(2 * (MIDDLE["n_layer"] - 1))),
    ]


@checks(MODEL, "models of their own")
def gpt_independent(GPT):
    a, b = GPT(config()), GPT(config())
    shared = {id(p) for p in a.parameters()} & {id(p) for p in b.parameters()}
    if shared:
        name = next(n for n, p in a.named_parameters() if id(p) in shared)
        fail(f"two models share {name}: whoever trains one trains the other.", look="parts that are created outside __init__: in the class body, as a default argument, as a global")
    kept = getattr(a, "config", None)
    if getattr(kept, "n_ctx", None) != CONFIG["n_ctx"]:
        fail("the model has no attribute config: sampling reads model.config.n_ctx in lesson 08.", look="__init__: keep what you were given as self.config")


class PositionsToo(OneDevice):
    """Stops also where a table on one device is indexed with numbers from another."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if operation.overloadpacket in (torch.ops.aten.index, torch.ops.aten.embedding, torch.ops.aten.index_select):
            tensors = [a for a in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor) and a.dim() > 0]
            if len({a.device.type for a in tensors}) > 1:
                raise PositionsOnCPU
        return super().__torch_dispatch__(operation, types, args, kwargs)


class PositionsOnCPU(Exception):
    pass


@checks(MODEL, "device and dtype")
def gpt_device(GPT):
    model, p = new_gpt(GPT)
    idx, targets = rand_ids(2, 5, n=11, seed=22), rand_ids(2, 5, n=11, seed=23)
    moved = GPT(config()).to("meta")
    try:
        with PositionsToo():
            moved(idx.to("meta"))
    except PositionsOnCPU:
        fail("the positions are made on the CPU whatever device idx is on: on a GPU or an Ascend the lookup stops or waits for a copy at every step.", look="torch.arange: give it device=idx.device. A tensor kept in self moves with the model only as a buffer")
    except Exception:
        pass
    keeps_device(lambda m, idx: m(idx)[0], model, idx)
    keeps_device(lambda m, idx, targets: m(idx, targets)[1], model, idx, targets)
    model.double()
    logits, loss = model(idx, targets)
    want = logits_of(dict(model.named_parameters()), idx, CONFIG)
    look = ".float(), and tensors that you create without dtype="
    close(logits, want, 1e-11, name="the logits in float64", look=look)
    close(loss, mean_loss(want, targets), 1e-11, name="the loss in float64", look=look)
