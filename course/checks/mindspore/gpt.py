"""Checks of lesson 15: Block, init_weights, GPT. The oracle is lesson 06's: GPT-2 as functions of its state dict, from torch.nn.functional."""
import math

import mindspore as ms
import numpy as np
import torch
from mindspore import nn, ops

from course.checks import checks
from course.checks.mindspore import (
    arrays, call, close, equal, fail, fill, is_tensor, parameters_are, rand, rand_ids, same_in_graph_mode, tensor, wait,
)
from course.checks.pytorch import gpt as oracle
from course.checks.pytorch.gpt import MIDDLE, OTHER, RANDOM, gpt_shapes, is_norm_weight

ms.runtime.launch_blocking()    # few numbers and many operations: to wait for each is many times faster than to hand it over

BLOCK = "mindspore.gpt.Block"
INIT = "mindspore.gpt.init_weights"
MODEL = "mindspore.gpt.GPT"

CONFIG = dict(oracle.CONFIG, n_layer=2)
VALUES = 5e-6      # a block of random weights: its numbers are near 10, and PyTorch's own two ways differ by 2e-6
RANDOM_LOOK = "dropout (this model has none), and what construct stores in self"
CUT = "ops.stop_gradient, .asnumpy() and ms.Tensor(...) cut the graph"


def config(sizes=CONFIG):
    return oracle.config(sizes)


def numbers(cell):
    """name -> torch tensor of every parameter, a copy: the oracle's state dict."""
    return {name: torch.from_numpy(p.copy()) for name, p in arrays(cell).items()}


def torched(x):
    return torch.from_numpy(x.astype(np.int64) if x.dtype.kind in "iu" else x)


def array(x):
    return np.array(x.detach())


def compare(got, want, atol, known=None, **words):
    """close(), with the known mistakes computed only when they are needed; known() gives pairs with torch tensors."""
    want = array(want)
    pairs = [] if known is None or equal(got, want, atol) else [(said(mistake), value_of(value)) for mistake, value in known()]
    close(got, want, atol, known=pairs, **words)


def value_of(value):
    return lambda: array(value() if callable(value) else value)


def said(words):
    for theirs, ours in {"forward ": "construct ", "state dict": "checkpoint", "torch.manual_seed": "ms.set_seed"}.items():
        words = words.replace(theirs, ours)
    return words


def close_gradients(mine, wanted, leaves, known=()):
    """Each gradient within 1e-5 of its largest value; mine are arrays, wanted torch tensors."""
    for name, got, want in zip(leaves, mine, wanted, strict=True):
        want = array(want)
        if np.abs(want).max() > 0 and not np.abs(got).max() > 0:
            fail(f"no gradient reaches {name}.", look=CUT)
    for name, got, want in zip(leaves, mine, wanted, strict=True):
        want = array(want)
        pairs = [(said(words), array(value)) for words, at, value in known if at == name]
        close(ms.Tensor(got), want, 1e-5 * max(1.0, float(np.abs(want).max())), name=f"the gradient of {name}", known=pairs, look="ops.stop_gradient, .asnumpy() and ms.Tensor(...) on the way")


def one_and_the_same(cell, names):
    """The first pair of expected names that reach one Parameter object; None if each has its own."""
    seen = {}
    for name in names:
        value = cell
        for part in name.split("."):
            value = value[int(part)] if part.isdigit() and isinstance(value, (nn.CellList, nn.SequentialCell)) else getattr(value, part, None)
        if not isinstance(value, ms.Parameter):
            continue
        if id(value) in seen:
            return seen[id(value)], name
        seen[id(value)] = name


def names_agree(cell, name):
    """What a parameter calls itself is the name it has in a checkpoint and in an optimizer."""
    for key, p in cell.parameters_and_names():
        if p.name != key:
            fail(
                f"{name}.{key} calls itself {p.name}: a checkpoint and an optimizer know it by that name.",
                look="name= in ms.Parameter(...), and parameters that are put in place after __init__: set_data changes the numbers and keeps the name",
            )
        if p.dtype != ms.float32:
            fail(f"{name}.{key} has dtype {p.dtype}, expected Float32.", look="NumPy gives float64 where no dtype is given, and MindSpore keeps it")


# --- Block ---------------------------------------------------------------------------------------------


def new_block(Block, sizes=CONFIG, seed=0):
    """A Block with random numbers everywhere, and the same numbers for the oracle."""
    block = fill(Block(config(sizes)), seed)
    return block, numbers(block)


def alone(cell):
    def run(x):
        return cell(x)

    return run


def made(kind, given):
    try:
        return kind(given)
    except AttributeError as error:
        if "_auto_prefix" in str(error):
            fail("super().__init__() is missing: a Cell needs it before the first part is put in.", look="the first line of __init__")
        raise


def silence(cell):
    """Zero every c_proj: what a branch adds is then 0."""
    for name, p in cell.parameters_and_names():
        if "c_proj." in name:
            p.set_data(ops.zeros(p.shape, p.dtype))


@checks(BLOCK, "parameters")
def block_parameters(Block):
    block = made(Block, config())
    if isinstance(block, torch.nn.Module):
        fail("Block is a torch.nn.Module: here it is a mindspore.nn.Cell.", look="the line class Block(nn.Cell), and which nn is imported")
    if not isinstance(block, nn.Cell):
        fail("Block is no nn.Cell: without that nothing finds its parameters.", look="the line class Block(nn.Cell)")
    shared = one_and_the_same(block, oracle.BLOCK_SHAPES)
    if shared:
        fail(f"{shared[0]} and {shared[1]} are one and the same parameter: each LayerNorm has numbers of its own.", look="__init__: create two")
    parameters_are(block, oracle.BLOCK_SHAPES, "Block")
    names_agree(block, "Block")


@checks(BLOCK, "silent branches: the block is the identity", seconds=20)
def block_identity(Block):
    block, p = new_block(Block)
    x = rand(2, 5, 12, seed=30)
    loud = call(alone(block), x)
    is_tensor(loud, x.shape, ms.float32)
    silence(block)
    for scale in (1, 1e4, 1e-4):
        scaled = np.float32(scale) * x
        got = block(tensor(scaled))
        if equal(got, scaled, 1e-6 * min(scale, 1)):
            continue
        if not equal(got, block(tensor(scaled)).asnumpy(), 0):
            fail(RANDOM, look=RANDOM_LOOK)
        want = oracle.block_forward(p, "", torched(x), 3)
        if not equal(loud, array(want), 1e-4):
            for words, value in oracle.block_known(p, torched(x), 3):
                if equal(loud, array(value), 1e-5):
                    fail(said(words), look="what is added to x")
        factor = float((got.asnumpy() / scaled).mean())
        if equal(got, factor * scaled, 1e-5):
            fail("x itself is scaled on its way through the block: the residual stream is added to and nothing else.", example=f"with both c_proj at 0 the block returns {factor:.4g} times x, expected x")
        fail(
            "with both c_proj at 0 a block must hand on x unchanged, and it does not: something else than two added branches acts on the residual stream.",
            look="what is added to x, and whether x itself goes through anything",
        )


@checks(BLOCK, "the same result twice", seconds=20)
def block_repeatable(Block):
    block, p = new_block(Block)
    x = rand(2, 5, 12, seed=34)
    results = []
    for training in (True, True, False):
        block.set_train(training)
        results.append(block(tensor(x)).asnumpy())
    for name, value in arrays(block).items():
        if not np.array_equal(value, p[name].numpy()):
            fail("construct changes a parameter.", example=name, look="assignments and set_data on weights in construct")
    if not all(np.array_equal(results[0], r) for r in results[1:]):
        fail(RANDOM, look=RANDOM_LOOK)


def one_eps(p, x):
    """Blocks in which one of the two LayerNorms has another eps."""
    for eps in (0, 1e-12, 1e-8, 1e-7, 1e-6, 1e-4, 1e-3):
        words = f"eps than GPT-2: 1e-5 is the default of LayerNorm, {eps:g} stands here."
        kind = "a smaller" if eps < 1e-5 else "a larger"
        odd, even = oracle.parts_of(p, "", 3, eps), oracle.parts_of(p, "", 3)
        yield f"ln_1 has {kind} {words}", oracle.second(oracle.first(x, odd), even)
        yield f"ln_2 has {kind} {words}", oracle.second(oracle.first(x, even), odd)


@checks(BLOCK, "values", seconds=20)
def block_values(Block):
    block, p = new_block(Block)
    for scale in (1, 1e-2):                                   # LayerNorm's eps shows in a small stream only
        x = rand(2, 5, 12, seed=31, scale=scale)
        nothing = "nothing is added to x. add_ gives the right value and leaves x as it was, on a CPU: the sum needs a name, x = x + ..."
        compare(
            call(alone(block), x), oracle.block_forward(p, "", torched(x), 3), VALUES, lambda: [(nothing, torched(x)), *oracle.block_known(p, torched(x), 3), *one_eps(p, torched(x))],
            look="which LayerNorm stands before which branch, and what each branch reads",
        )


@checks(BLOCK, "other lengths and sizes", seconds=20)
def block_sizes(Block):
    block, p = new_block(Block)
    for B, T in [(1, 1), (3, 7)]:
        x = rand(B, T, 12, seed=32)
        compare(call(alone(block), x), oracle.block_forward(p, "", torched(x), 3), VALUES, name=f"the result for B = {B}, T = {T}")
    block, p = new_block(Block, OTHER)
    x = rand(2, 3, 8, seed=33)
    compare(call(alone(block), x), oracle.block_forward(p, "", torched(x), 2), VALUES, name="the result for n_embd = 8 and n_head = 2", look="sizes that are written as numbers: the parts take them from config")


@checks(BLOCK, "blocks of their own")
def block_independent(Block):
    not_shared(Block(config()), Block(config()), "blocks")


def not_shared(a, b, what):
    others = {id(p) for p in b.get_parameters()}
    for name, p in a.parameters_and_names():
        if id(p) in others:
            fail(f"two {what} share {name}: whoever trains one trains the other.", look="parts that are created outside __init__: in the class body, as a default argument, as a global")


@checks(BLOCK, "gradients", seconds=20)
def block_gradients(Block):
    block, p = new_block(Block)
    x, weighting = rand(2, 5, 12, seed=35), rand(2, 5, 12, seed=36)
    leaves = {"x": torched(x).requires_grad_(), **{name: value.requires_grad_() for name, value in p.items()}}
    wanted = torch.autograd.grad((oracle.block_forward(leaves, "", leaves["x"], 3) * torched(weighting)).sum(), list(leaves.values()))
    held = tensor(weighting)

    def scalar(x):
        return (block(x) * held).sum()

    to_x, to_weights = ms.grad(scalar, 0, weights=[parameter(block, name) for name in p])(tensor(x))
    close_gradients([g.asnumpy() for g in (to_x, *to_weights)], wanted, leaves)


def parameter(cell, name):
    return dict(cell.parameters_and_names())[name]


@checks(BLOCK, "the same in graph mode", seconds=20)
def block_graph(Block):
    block, _ = new_block(Block)
    same_in_graph_mode(alone(block), rand(2, 5, 12, seed=37), atol=VALUES)


# --- init_weights --------------------------------------------------------------------------------------


class Part(nn.Cell):
    """Nothing but parameters: init_weights goes by names."""

    def __init__(self, weight, bias=None):
        super().__init__()
        self.weight = ms.Parameter(np.zeros(weight, np.float32))
        if bias is not None:
            self.bias = ms.Parameter(np.zeros(bias, np.float32))


class Parts(nn.Cell):
    """Cells under names of their own."""

    def __init__(self, **cells):
        super().__init__()
        for name, cell in cells.items():
            setattr(self, name, cell)


def untouched(n_layer=7, C=64):
    """A model with GPT-2's names. Every number is between 1 and 2, LayerNorm weights are 1."""

    def norm():
        return Part(C, C)

    def block():
        return Parts(
            ln_1=norm(), attn=Parts(c_attn=Part((3 * C, C), 3 * C), c_proj=Part((C, C), C)),
            ln_2=norm(), mlp=Parts(c_fc=Part((4 * C, C), 4 * C), c_proj=Part((C, 4 * C), C)),
        )

    model = Parts(wte=Part((300, C)), wpe=Part((100, C)), h=nn.CellList([block() for _ in range(n_layer)]), ln_f=norm())
    random = np.random.default_rng(5)
    for name, p in model.parameters_and_names():
        p.set_data(ms.Tensor(np.ones(p.shape, np.float32) if is_norm_weight(name) else random.uniform(1, 2, p.shape).astype(np.float32)))
    return model


def initialised(init_weights, n_layer=7):
    model = untouched(n_layer)
    try:
        init_weights(model, n_layer)
        wait(list(model.get_parameters()))
    except RuntimeError as error:
        if "Inplace" in str(error):
            fail(
                "a method that ends in _, such as normal_ or zero_, has no kernel on this device: that is PyTorch's way to write into a parameter.",
                example=str(error).strip().split("\n")[0][:100],
                look="set_data: it takes a tensor of new numbers",
            )
        raise
    same_shapes(model, untouched(1), n_layer)
    return model


def same_shapes(model, one, n_layer):
    """set_data takes any shape: fails if a parameter has another one than before."""
    wanted = {name: p.shape for name, p in one.parameters_and_names()}
    for name, p in model.parameters_and_names():
        first = ".".join("0" if part.isdigit() else part for part in name.split("."))
        if p.shape != wanted.get(first, p.shape):
            fail(
                f"{name} has shape {tuple(p.shape)} afterwards and had {tuple(wanted[first])}: set_data puts in whatever it gets, without looking at the shape.",
                look="the shape of the numbers you draw: p.shape",
            )


def matrices(model, projections):
    """The c_proj weights of a model, or all its other matrices, in float64."""
    return {n: p.double() for n, p in numbers(model).items() if p.dim() == 2 and n.endswith("c_proj.weight") == projections}


def check_drawn(name, w, std, known):
    """Lesson 06's check of one weight, in MindSpore's words."""
    if w.min() >= 1 and w.max() <= 2:
        fail(
            f"{name} is not initialised: it keeps the numbers it had.",
            example=f"{name} has mean {w.mean().item():.2g} and standard deviation {w.std().item():.3g}, expected 0 and {std:.3g}",
            look="which names you go by, and whether the parameter itself changes: p = ... only gives its name away, and most of MindSpore's methods that end in _ do nothing on a CPU. set_data and ops.assign do",
        )
    oracle.check_drawn(name, w, std, known)


@checks(INIT, "matrices and embeddings")
def init_matrices(init_weights):
    model = initialised(init_weights)
    drawn = {**matrices(model, False), **matrices(model, True)}
    if all(w.min() >= 1 and w.max() <= 2 for w in drawn.values()):
        fail(
            "no weight is changed.",
            look="whether the parameters themselves change: p = ... only gives the name p to something new, and most of MindSpore's methods that end in _ do nothing on a CPU. set_data and ops.assign do",
        )
    for name, w in matrices(model, projections=False).items():
        check_drawn(name, w, 0.02, oracle.plain_mistakes(7))


@checks(INIT, "both c_proj of a block")
def init_projections(init_weights):
    weights = matrices(initialised(init_weights), projections=True)
    want = 0.02 / math.sqrt(14)
    for kind, other in [("attn", "mlp"), ("mlp", "attn")]:
        right = {k: [oracle.about(w, want) for name, w in weights.items() if f".{k}." in name] for k in (kind, other)}
        if all(right[kind]) and not any(right[other]):
            fail(
                f"only {kind}.c_proj gets the factor: {other}.c_proj writes into the residual stream as well.",
                example=f"h.0.{other}.c_proj.weight has standard deviation {weights[f'h.0.{other}.c_proj.weight'].std().item():.3g}, expected {want:.3g}",
            )
    stds = [weights[f"h.{i}.attn.c_proj.weight"].std().item() for i in range(7)]
    if max(stds) > 1.25 * min(stds):
        fail("c_proj differs from layer to layer: the factor depends on the number of layers, not on which one it is.", example=f"attn.c_proj of the 7 layers: {', '.join(f'{s:.4f}' for s in stds)}, expected {want:.4f} each")
    for name, w in weights.items():
        check_drawn(name, w, want, oracle.projection_mistakes(7))


@checks(INIT, "biases and LayerNorm")
def init_vectors(init_weights):
    check_vectors(numbers(initialised(init_weights)), "what tells a matrix from a LayerNorm weight: its number of axes")


def check_vectors(p, look):
    for name, value in p.items():
        if is_norm_weight(name) and not (value == 1).all():
            words = "is drawn at random" if value.max() > value.min() else f"is set to {value[0].item():g}"
            words += ": then LayerNorm gives 0 for every input" if not value.any() else ""
            fail(f"{name} {words}. A LayerNorm starts with weight 1.", example=f"{name}[0] is {value[0].item():.4g}, expected 1", look=look)
    for name, value in p.items():
        if name.endswith("bias") and value.any():
            words = "keeps the numbers it had" if value.min() >= 1 and value.max() <= 2 else "is not 0"
            fail(f"{name} {words}: every bias starts at 0.", example=f"{name}[0] is {value[0].item():.4g}, expected 0", look="ops.zeros, put in with set_data")


@checks(INIT, "another number of layers")
def init_other_depth(init_weights):
    for n_layer in (3, 1):
        model = initialised(init_weights, n_layer)
        for name, w in matrices(model, projections=False).items():
            check_drawn(name, w, 0.02, oracle.plain_mistakes(n_layer))
        for name, w in matrices(model, projections=True).items():
            check_drawn(name, w, 0.02 / math.sqrt(2 * n_layer), [("c_proj has the same standard deviation whatever n_layer is.", 0.02 / math.sqrt(14)), *oracle.projection_mistakes(n_layer)])


@checks(INIT, "normal numbers, each weight its own")
def init_normal(init_weights):
    model = initialised(init_weights)
    seen = {}
    for name, w in {**matrices(model, False), **matrices(model, True)}.items():
        z = (w / w.std()).flatten()
        if abs(z.pow(4).mean().item() - 3) > 8 * math.sqrt(24 / len(z)):
            fail(
                f"the numbers of {name} are not normally distributed.",
                example=f"the largest is {z.abs().max().item():.1f} standard deviations from 0; among {len(z):,} normal numbers one of about 4 is to be expected",
                look="np.random.rand, uniform and Uniform give even numbers, randn, normal and Normal normal ones",
            )
        key = tuple(z[:8].round(decimals=4).tolist())
        if key in seen:
            fail(f"{seen[key]} and {name} begin with the same random numbers.", look="a seed that is set, or numbers that are drawn, once for several weights")
        seen[key] = name


@checks(INIT, "the caller's seed")
def init_seed(init_weights):
    drawn = []
    for seed in (1, 1, 2):
        ms.set_seed(seed)
        drawn.append(numbers(initialised(init_weights))["wte.weight"])
    if torch.equal(drawn[0], drawn[2]):
        fail("two seeds give the same weights: a seed is set inside.", look="ms.set_seed, np.random.seed and default_rng(number) belong to the caller")
    if not torch.equal(drawn[0], drawn[1]):
        fail(
            "the same ms.set_seed gives other weights each time.",
            look="where the random numbers come from: ms.set_seed seeds np.random and MindSpore's own initializers; a generator of default_rng() follows neither",
        )


@checks(INIT, "the same parameters")
def init_in_place(init_weights):
    model = untouched()
    before = dict(model.parameters_and_names())
    init_weights(model, 7)
    after = dict(model.parameters_and_names())
    for name, p in before.items():
        if after.get(name) is not p:
            fail(f"{name} is a new object after init_weights: whoever holds the old one, an optimizer or a tied head, keeps the old numbers.", look="set_data changes the numbers of a parameter; ms.Parameter(...) makes another one")
        if p.dtype != ms.float32 or not p.requires_grad:
            fail(f"{name} can no longer be trained as it was: its dtype is {p.dtype} and requires_grad {p.requires_grad}.", look="what is set besides the numbers")
    names_agree(model, "the model")


# --- GPT -----------------------------------------------------------------------------------------------


def new_gpt(GPT, sizes=CONFIG, seed=0):
    """A GPT with random numbers everywhere, and the same numbers for the oracle."""
    model = GPT(config(sizes))
    names = [name for name, _ in model.parameters_and_names()]
    missing = [name for name in gpt_shapes(sizes) if name not in names]
    if missing:
        fail(f"GPT has no parameter {missing[0]}.")
    fill(model, seed)
    return model, numbers(model)


def results(model, idx, targets=None):
    """(logits, loss) of construct; fails if it is no such pair, or if an argument was changed."""

    def without(idx):
        return model(idx)

    def with_targets(idx, targets):
        return model(idx, targets)

    try:
        got = call(without, idx) if targets is None else call(with_targets, idx, targets)
    except ValueError as error:
        if "ambiguous" not in str(error) and "only one element" not in str(error):
            raise
        fail("an if asks a whole tensor whether it is true, and it has many elements: ask whether the targets are there, targets is None.", example=str(error).strip().split("\n")[0][:120], look="if targets")
    if got is None:
        fail("construct returns None. Is there a return at the end of every branch?")
    if isinstance(got, ms.Tensor):
        fail("construct returns one tensor; it returns two things, logits and loss, and without targets the loss is None.", example=f"without targets: return logits, None (you return a tensor of shape {tuple(got.shape)})")
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        size = f" of {len(got)}" if isinstance(got, (tuple, list)) else ""
        fail(f"construct returns a {type(got).__name__}{size}; it returns the pair (logits, loss).")
    logits, loss = got
    if isinstance(loss, ms.Tensor) and loss.ndim > 1 and (logits is None or isinstance(logits, ms.Tensor) and logits.ndim == 0):
        fail("the two results are swapped: logits come first, the loss second.")
    return logits, loss


def check_logits_shape(logits, idx, sizes=CONFIG):
    B, T = idx.shape
    V, C = sizes["vocab_size"], sizes["n_embd"]
    words = {
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
    shape = tuple(logits.shape) if isinstance(logits, ms.Tensor) else None
    if shape in words and shape != (B, T, V):
        fail(words[shape], example=f"for idx of shape ({B}, {T}) the logits have shape {shape}, expected ({B}, {T}, {V})")
    is_tensor(logits, (B, T, V), ms.float32, name="logits")


def check_loss_is_scalar(loss, idx):
    B, T = idx.shape
    if loss is None:
        fail("with targets the loss is None.", look="the branch for targets, and its return")
    if isinstance(loss, (float, int)):
        fail("the loss is a Python number: value_and_grad needs the tensor.", look=".item(), .asnumpy() and float() cut the graph; they are for printing")
    if isinstance(loss, ms.Tensor) and tuple(loss.shape) in [(B * T,), (B, T), (T,), (B,)]:
        fail(f"the loss has shape {tuple(loss.shape)}: it is one number, the mean over all positions of all sequences.")
    is_tensor(loss, (), ms.float32, name="the loss")


@checks(MODEL, "GPT-2's names, and nothing else")
def gpt_names(GPT):
    for sizes in (CONFIG, OTHER):
        given = config(sizes)
        model = made(GPT, given)
        if {name: getattr(given, name, None) for name in sizes} != sizes:
            fail("the config is changed while the model is built: whoever builds a second model from it gets another one.")
        if isinstance(model, torch.nn.Module):
            fail("GPT is a torch.nn.Module: here it is a mindspore.nn.Cell.", look="the line class GPT(nn.Cell), and which nn is imported")
        if not isinstance(model, nn.Cell):
            fail("GPT is no nn.Cell: without that nothing finds its parameters.", look="the line class GPT(nn.Cell)")
        check_blocks(model, sizes)
        found = {name: p for name, p in model.parameters_and_names()}
        foreign = [n for n in found if n.endswith(("embedding_table", "gamma", "beta"))]
        if foreign:
            fail(f"the parameter {foreign[0]} has the name of MindSpore's own cell: GPT-2's names end in weight and bias.", look="Embedding and LayerNorm of lessons 11 and 14")
        check_no_head(model, found, sizes)
        shared = one_and_the_same(model, gpt_shapes(sizes))
        if shared:
            fail(f"{shared[0]} and {shared[1]} are one and the same parameter: only wte is used twice, and it has one name.")
        wte = found.get("wte.weight")
        if wte is not None and tuple(wte.shape) == (sizes["n_ctx"], sizes["n_embd"]):
            fail("wte and wpe have each other's size: wte has a row for each token of the vocabulary, wpe one for each of n_ctx positions.")
        if not any(n.startswith("wpe") for n in found):
            value = getattr(getattr(model, "wpe", None), "weight", getattr(model, "wpe", None))
            if not isinstance(value, ms.Tensor):
                fail("there is no wpe.weight: positions have a table of learned vectors, (n_ctx, n_embd). Without it a model cannot tell the order of the tokens before it.")
        parameters_are(model, gpt_shapes(sizes), "GPT")
        names_agree(model, "GPT")


def check_blocks(model, sizes):
    h, want = getattr(model, "h", None), sizes["n_layer"]
    if h is None:
        fail("GPT has no h: the blocks are held in self.h.", look="nn.CellList")
    if isinstance(h, (list, tuple, dict, set)):
        inside = len([n for n, _ in model.parameters_and_names() if n.startswith("h.")])
        fail(
            f"h is a Python {type(h).__name__}: a Cell does not look into it, so an optimizer and a checkpoint know {inside} parameters of the blocks.",
            look="nn.CellList holds a list of cells",
        )
    if not isinstance(h, nn.Cell):
        fail(f"h is of type {type(h).__name__}: it is an nn.CellList of n_layer blocks.", look="nn.CellList")
    blocks = list(h.cells())
    count = len(h) if hasattr(h, "__len__") else len(blocks)
    if want > 1 and count == want and len({id(b) for b in blocks}) == 1:
        fail(
            "all blocks of h are one and the same object: they share their weights, and the model has the parameters of one block.",
            example=f"h[0] is h[1]: {len(list(model.get_parameters()))} parameters, expected {len(gpt_shapes(sizes))}",
            look="[Block(config)] * n_layer repeats one block; build one for each layer",
        )
    if count != want:
        fail(f"h holds {count} blocks, expected n_layer = {want}.", look="the range that builds h")


def check_no_head(model, found, sizes):
    """Fails if there is a head beside wte."""
    shape = (sizes["vocab_size"], sizes["n_embd"])
    wte = found.get("wte.weight")
    parts = ("wte", "wpe", "h", "ln_f")
    heads = [n for n, p in found.items() if n.split(".")[0] not in parts and tuple(p.shape) in (shape, shape[::-1])]
    biases = [n for n, p in found.items() if n.split(".")[0] not in parts and tuple(p.shape) == shape[:1]]
    if heads and wte is not None:
        copied = tuple(wte.shape) == tuple(found[heads[0]].shape) and np.array_equal(found[heads[0]].asnumpy(), wte.asnumpy())
        words = "It starts as a copy of wte, and a copy goes its own way from the first step." if copied else "It has numbers of its own."
        named = f" It calls itself {found[heads[0]].name}, the name that wte has already." if found[heads[0]].name == wte.name else ""
        fail(
            f"the head {heads[0]} is a parameter beside wte, with V·C numbers more. {words}{named} Tied means that the head is wte.weight itself.",
            example=f"{sum(p.size for p in found.values()):,} parameters, expected {sum(math.prod(s) for s in gpt_shapes(sizes).values()):,}",
            look="use wte.weight in construct, without a layer for the head; set_data and clone copy numbers, they do not tie",
        )
    if biases:
        fail(f"the head has a bias, {biases[0]}: GPT-2's has none.", look="logits = x times wte.weight turned over, and nothing more")


@checks(MODEL, "what construct returns", seconds=20)
def gpt_returns(GPT):
    model, _ = new_gpt(GPT)
    idx, targets = rand_ids(2, 5, n=7, seed=1), rand_ids(2, 5, n=11, seed=2)
    logits, loss = results(model, idx)
    check_logits_shape(logits, idx)
    if loss is not None:
        fail("without targets the loss is None: there is nothing to compare with.", example=f"model(idx)[1] is of type {type(loss).__name__}")
    logits, loss = results(model, idx, targets)
    if logits is None:
        fail("with targets the logits are None: both are returned, always.")
    check_logits_shape(logits, idx)
    check_loss_is_scalar(loss, idx)


@checks(MODEL, "the same result twice", seconds=20)
def gpt_repeatable(GPT):
    model, p = new_gpt(GPT)
    idx, other = tensor(rand_ids(2, 5, n=7, seed=16)), tensor(rand_ids(2, 5, n=7, seed=17))
    answers = []
    for training in (True, False):
        model.set_train(training)
        answers.append(model(idx)[0].asnumpy())
        wait(model(other))
    answers.append(model(idx)[0].asnumpy())
    for name, value in arrays(model).items():
        if not np.array_equal(value, p[name].numpy()):
            fail(f"construct changes {name}.", look="assignments and set_data on weights in construct")
    if not all(np.array_equal(answers[0], a) for a in answers[1:]):
        fail(RANDOM, look=RANDOM_LOOK)


@checks(MODEL, "the head is wte", seconds=20)
def gpt_tied(GPT):
    model = GPT(config())
    start = numbers(model)["wte.weight"]
    fill(model)
    p, ids = numbers(model), rand_ids(2, 5, n=7, seed=3)
    idx = torched(ids)
    logits, want = results(model, ids)[0], oracle.logits_of(p, idx, CONFIG)
    if not equal(logits, array(want), 2e-5):
        for words, value in [
            ("the head is a copy of wte, made when the model was built: when wte changes, the head stays behind.", oracle.logits_of(p, idx, CONFIG, head=start)),
            ("the logits are softmaxed: construct returns scores, and cross_entropy takes the softmax.", want.softmax(-1)),
            ("the logits are log-softmaxed: construct returns the plain scores.", want.log_softmax(-1)),
        ]:
            if equal(logits, array(value), 2e-5):
                fail(words, look="what the head is made from, and when: wte.weight is to be read in construct, at every call")
    model.wte.weight.set_data(ops.zeros(model.wte.weight.shape, ms.float32))
    got = results(model, ids)[0].asnumpy()
    if np.abs(got).max() > 0:
        rows = "the head has a bias." if np.allclose(got, got[:1, :1], atol=1e-6) else "the head has numbers of its own, outside the parameters."
        fail(f"the logits do not come from wte: {rows} Tied means that the head is wte.weight itself, without a bias.", example=f"with wte.weight at 0 every logit must be 0, and logits[0, 0, 0] is {got[0, 0, 0]:.4g}")


def where_to_look(model, p, sizes):
    """If a block by itself gives other values than GPT-2's, that is where the mistake is."""
    x = rand(2, 4, sizes["n_embd"], seed=5)
    try:
        right = equal(list(model.h.cells())[0](tensor(x)), array(oracle.block_forward(p, "h.0.", torched(x), sizes["n_head"])), 1e-5)
    except Exception:
        right = False
    if not right:
        return "the block: h[0] by itself already gives wrong values"
    return "the blocks are right by themselves; what goes into the first, the order they run in, ln_f and the head"


def norm_in_the_loop(p, idx):
    def block(p, at, x, n_head):
        return oracle.norm(p, "ln_f", oracle.block_forward(p, at, x, n_head))

    return "ln_f stands behind every block, and once more at the end: it comes once, after the last block.", oracle.logits_of(p, idx, CONFIG, block=block)


@checks(MODEL, "logits", seconds=20)
def gpt_logits(GPT):
    model, p = new_gpt(GPT)
    for n in (7, 11):                                         # wpe has 7 rows: token ids beyond them crash wpe(idx)
        ids = rand_ids(2, 5, n=n, seed=6)
        logits, _ = results(model, ids)
        want = oracle.logits_of(p, torched(ids), CONFIG)
        look = "" if equal(logits, array(want), 2e-5) else where_to_look(model, p, CONFIG)
        compare(logits, want, 2e-5, lambda: [*oracle.logits_known(p, torched(ids), CONFIG), norm_in_the_loop(p, torched(ids))], name="logits", look=look)


@checks(MODEL, "loss", seconds=20)
def gpt_loss(GPT):
    model, p = new_gpt(GPT)
    ids, aims = rand_ids(2, 5, n=11, seed=44), rand_ids(2, 5, n=11, seed=144)
    aims[0, 1] = 0
    idx, targets = torched(ids), torched(aims)
    logits, loss = results(model, ids, aims)
    check_loss_is_scalar(loss, ids)
    want = oracle.logits_of(p, idx, CONFIG)
    compare(
        loss, oracle.mean_loss(want, targets), 5e-6, lambda: oracle.loss_known(want, idx, targets), name="the loss",
        look="what is compared with what, and how both are flattened to (B*T, V) and (B*T,)",
    )
    compare(logits, want, 2e-5, lambda: oracle.logits_known(p, idx, CONFIG), name="the logits with targets", look="what targets change besides the loss: nothing")
    louder = model.ln_f.weight
    louder.set_data(louder * 300)
    p["ln_f.weight"] = p["ln_f.weight"] * 300
    want = oracle.logits_of(p, idx, CONFIG)
    _, loss = results(model, ids, aims)
    if isinstance(loss, ms.Tensor) and not np.isfinite(loss.asnumpy()).all():
        fail(
            "large logits make the loss inf or nan: a probability becomes 0 in float32, and its logarithm is -inf.",
            example=f"with logits up to {want.max().item():.0f} the loss is {float(loss.asnumpy()):g}, expected {oracle.mean_loss(want, targets).item():.6g}",
            look="log(softmax(x)) in two steps; cross_entropy of lesson 10 takes log_softmax in one",
        )
    compare(loss, oracle.mean_loss(want, targets), 1e-4, name="the loss for large logits")


@checks(MODEL, "positions marked -100", seconds=20)
def gpt_ignored(GPT):
    model, p = new_gpt(GPT)
    ids, aims = rand_ids(2, 5, n=11, seed=12), rand_ids(2, 5, n=11, seed=13)
    aims[0, 1] = aims[1, 3] = aims[1, 4] = -100
    targets = torched(aims)
    want = oracle.logits_of(p, torched(ids), CONFIG)
    per_token = oracle.mean_loss(want, targets, reduction="none")       # 0 where ignored
    try:
        _, loss = results(model, ids, aims)
    except (RuntimeError, ValueError, IndexError) as error:
        fail("a target of -100 crashes the loss: -100 marks positions that do not count (ignore_index of lesson 10).", example=f"{type(error).__name__}: {str(error).strip()[:80]}")
    compare(loss, oracle.mean_loss(want, targets), 5e-6, lambda: [
        ("positions marked -100 count as loss 0 in the mean: the sum is divided by the number of positions that count.", per_token.sum() / 10),
        ("positions marked -100 are taken for token 0: they do not count at all.", oracle.mean_loss(want, targets.clamp(min=0))),
        ("positions marked -100 are taken for another token: they do not count at all.", oracle.mean_loss(want, torch.where(targets < 0, targets % 11, targets))),
        ("positions marked -100 are taken for the last token of the vocabulary: they do not count at all.", oracle.mean_loss(want, torch.where(targets < 0, 10, targets))),
        ("the loss is summed over the positions: it is their mean.", per_token.sum()),
        ("one position marked -100 makes the loss nan.", torch.tensor(math.nan)),
        ("the mean is taken over each sequence first, then over the batch: every position that counts has the same weight.", torch.stack([oracle.mean_loss(want[i], targets[i]) for i in range(2)]).mean()),
    ], name="the loss", look="ignore_index, and by how many positions the sum is divided")


@checks(MODEL, "ids of int32 and int64", seconds=20)
def gpt_id_types(GPT):
    model, p = new_gpt(GPT)
    ids, aims = rand_ids(2, 5, n=11, seed=26), rand_ids(2, 5, n=11, seed=27)
    want = oracle.logits_of(p, torched(ids), CONFIG)
    for kind in (np.int32, np.int64):
        try:
            logits, loss = results(model, ids.astype(kind), aims.astype(kind))
        except (TypeError, RuntimeError) as error:
            fail(
                f"ids and targets of {np.dtype(kind).name} are refused: both int32 and int64 come, from MindSpore's own data and from PyTorch's.",
                example=f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120] if str(error).strip() else ''}",
                look="nn.CrossEntropyLoss takes int32 labels only; cross_entropy of lesson 10 takes both",
            )
        compare(logits, want, 2e-5, name=f"logits for ids of {np.dtype(kind).name}")
        compare(loss, oracle.mean_loss(want, torched(aims)), 5e-6, name=f"the loss for targets of {np.dtype(kind).name}")


@checks(MODEL, "other lengths and sizes", seconds=20)
def gpt_lengths(GPT):
    for sizes, shapes in [(CONFIG, [(1, 1), (3, 7)]), (OTHER, [(2, 6)])]:
        model, p = new_gpt(GPT, sizes)
        for B, T in shapes:
            ids, aims = rand_ids(B, T, n=sizes["vocab_size"], seed=7), rand_ids(B, T, n=sizes["vocab_size"], seed=8)
            try:
                logits, loss = results(model, ids, aims)
            except ValueError as error:
                fail(f"T = {T} is refused and n_ctx is {sizes['n_ctx']}: exactly n_ctx tokens still fit.", example=f"ValueError: {error}")
            check_logits_shape(logits, ids, sizes)
            want = oracle.logits_of(p, torched(ids), sizes)
            name = f"the logits for B = {B}, T = {T}, n_ctx = {sizes['n_ctx']}"
            compare(logits, want, 2e-5, (lambda: oracle.logits_known(p, torched(ids), sizes)) if T > 1 else None, name=name, look="sizes that are written as numbers: they come from config and from idx")
            compare(loss, oracle.mean_loss(want, torched(aims)), 5e-6, name=f"the loss for B = {B}, T = {T}")


@checks(MODEL, "more tokens than n_ctx", seconds=20)
def gpt_too_long(GPT):
    for sizes in (CONFIG, OTHER):
        model, _ = new_gpt(GPT, sizes)
        T = sizes["n_ctx"] + 1
        idx = tensor(rand_ids(2, T, n=sizes["vocab_size"], seed=9))
        for arguments in [(idx,), (idx, idx)]:
            try:
                wait(model(*arguments))
            except ValueError as error:
                text = str(error).strip().split("\n")[0]
                if len(text.split()) < 3 or "C++" in str(error):
                    fail(
                        "the ValueError does not say what is wrong: tell in one sentence how many tokens came and how many fit, before anything is looked up.",
                        example=f"T = {T}, n_ctx = {T - 1}: ValueError: {text[:100]}",
                    )
                continue
            except Exception as error:
                kind = type(error).__name__
                fail(f"more than n_ctx tokens raise {kind}; a ValueError with a sentence is wanted, before anything is looked up.", example=f"T = {T}, n_ctx = {T - 1}: {kind}: {str(error).strip()[:80]}")
            fail("more than n_ctx tokens are accepted: there is no position for them. Raise a ValueError; cropping is the caller's decision.", example=f"T = {T}, n_ctx = {T - 1}")


@checks(MODEL, "gradients of every parameter", seconds=20)
def gpt_gradients(GPT):
    model, p = new_gpt(GPT)
    ids, aims = rand_ids(2, 5, n=11, seed=18), rand_ids(2, 5, n=11, seed=19)
    aims[1, 2] = -100
    idx, targets = torched(ids), torched(aims)
    p = {name: value.requires_grad_() for name, value in p.items()}

    head = p["wte.weight"].detach().clone().requires_grad_()
    wanted = torch.autograd.grad(oracle.mean_loss(oracle.logits_of(p, idx, CONFIG), targets), list(p.values()))
    apart = oracle.mean_loss(oracle.logits_of(p, idx, CONFIG, head=head), targets)
    of_head, of_embedding = torch.autograd.grad(apart, [head, p["wte.weight"]])

    def loss_of(idx, targets):
        return model(idx, targets)[1]

    mine = ms.grad(loss_of, None, weights=[parameter(model, name) for name in p])(tensor(ids), tensor(aims))
    close_gradients([g.asnumpy() for g in mine], wanted, p, known=[
        ("the embedding's share of wte's gradient is missing: only the head trains wte.", "wte.weight", of_head),
        ("the head's share of wte's gradient is missing: only the embedding trains wte.", "wte.weight", of_embedding),
    ])


@checks(MODEL, "weights at the start", seconds=20)
def gpt_start(GPT):
    ms.set_seed(3)
    model = GPT(config(MIDDLE))
    L = MIDDLE["n_layer"]
    for projections, std, known in [
        (False, 0.02, [("the tables keep the numbers of nn.Embedding, standard deviation 0.01: GPT-2's have 0.02.", 0.01), *oracle.start_mistakes(L)]),
        (True, 0.02 / math.sqrt(2 * L), [*oracle.projection_start_mistakes(), *oracle.projection_mistakes(L)]),
    ]:
        for name, w in matrices(model, projections).items():
            oracle.check_drawn(name, w, std, known)
    check_vectors(numbers(model), "the call of init_weights: once, at the end of __init__, when all parts are there")
    p = numbers(model)
    if torch.equal(p["h.0.mlp.c_fc.weight"], p["h.1.mlp.c_fc.weight"]):
        fail("the blocks start with the same numbers: copies of one block learn alike. Draw each anew.", look="deepcopy, and what init_weights is run over")
    if torch.equal(p["wte.weight"], numbers(GPT(config(MIDDLE)))["wte.weight"]):
        fail("two models start with the same numbers, or share them.", look="a seed that is set inside, and parts that are created outside __init__")
    loss = float(model(tensor(rand_ids(4, 60, n=199, seed=20)), tensor(rand_ids(4, 60, n=199, seed=21)))[1].asnumpy())
    if not abs(loss - math.log(199)) < 0.1:
        fail("a fresh model knows nothing and must give every token about the same probability, so the loss starts at ln V.", example=f"the loss is {loss:.3f}, ln 199 = {math.log(199):.3f}", look="the size of the weights at the start")


@checks(MODEL, "models of their own")
def gpt_independent(GPT):
    a, b = GPT(config()), GPT(config())
    not_shared(a, b, "models")
    if getattr(getattr(a, "config", None), "n_ctx", None) != CONFIG["n_ctx"]:
        fail("the model has no attribute config: sampling reads model.config.n_ctx.", look="__init__: keep what you were given as self.config")


@checks(MODEL, "the same in graph mode", seconds=30)
def gpt_graph(GPT):
    ids, aims = rand_ids(2, 4, n=9, seed=28), rand_ids(2, 4, n=9, seed=29)
    model, _ = new_gpt(GPT, OTHER)

    def both(idx, targets):
        return model(idx, targets)

    same_in_graph_mode(both, ids, aims, atol=2e-5)
    shallow, _ = new_gpt(GPT, dict(OTHER, n_layer=1))

    def without_targets(idx):
        return shallow(idx)                                   # None for a loss goes through the compiler too

    same_in_graph_mode(without_targets, ids, atol=2e-5)
