import copy
import math

import mindspore as ms
import numpy as np
import torch
from mindspore import nn, ops
from mindspore.common.initializer import Normal, initializer

from solutions.mindspore.attention import CausalSelfAttention
from solutions.mindspore.embeddings import Embedding
from solutions.mindspore.layers import MLP, LayerNorm
from solutions.mindspore.primitives import Linear, cross_entropy, linear
from tests.mistakes import right, wrong

BLOCK = "mindspore.gpt.Block"
INIT = "mindspore.gpt.init_weights"
MODEL = "mindspore.gpt.GPT"

# --- Block ---------------------------------------------------------------------------------------------


class Parts(nn.Cell):
    """The right parts, for the variants below to go wrong with."""

    def __init__(self, config):
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = LayerNorm(config.n_embd)
        self.mlp = MLP(config)

    def construct(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


@wrong(BLOCK, "Block is a torch.nn.Module")
class TorchBlock(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = torch.nn.LayerNorm(config.n_embd)


@wrong(BLOCK, "Block is no nn.Cell")
class PlainClass:
    def __init__(self, config):
        self.ln_1 = LayerNorm(config.n_embd)


@wrong(BLOCK, "super().__init__() is missing")
class SuperForgotten(nn.Cell):
    def __init__(self, config):
        self.ln_1 = LayerNorm(config.n_embd)


@wrong(BLOCK, "one and the same parameter")
class OneNormTwice(Parts):
    def __init__(self, config):
        super().__init__(config)
        self.ln_2 = self.ln_1


@wrong(BLOCK, "no parameter ln_1.weight; it has: ln_1.gamma")
class FrameworkNorms(Parts):
    def __init__(self, config):
        super().__init__(config)
        self.ln_1, self.ln_2 = (nn.LayerNorm((config.n_embd,), epsilon=1e-5) for _ in range(2))


@wrong(BLOCK, "post-LN")
class PostNorm(Parts):
    def construct(self, x):
        x = self.ln_1(x + self.attn(x))
        return self.ln_2(x + self.mlp(x))


@wrong(BLOCK, "taken from the normalised x")
class ResidualFromNormalised(Parts):
    def construct(self, x):
        x = self.ln_1(x)
        x = x + self.attn(x)
        x = self.ln_2(x)
        return x + self.mlp(x)


@wrong(BLOCK, "the residual is missing: the result of both branches")
class NoResidual(Parts):
    def construct(self, x):
        return self.mlp(self.ln_2(self.attn(self.ln_1(x))))


@wrong(BLOCK, "parallel branches")
class Parallel(Parts):
    def construct(self, x):
        h = self.ln_1(x)
        return x + self.attn(h) + self.mlp(h)


@wrong(BLOCK, "the MLP comes before attention")
class MLPFirst(Parts):
    def construct(self, x):
        x = x + self.mlp(self.ln_2(x))
        return x + self.attn(self.ln_1(x))


@wrong(BLOCK, "exchanged")
class NormsExchanged(Parts):
    def construct(self, x):
        x = x + self.attn(self.ln_2(x))
        return x + self.mlp(self.ln_1(x))


@wrong(BLOCK, "the second sum starts from the block's input")
class AttentionLost(Parts):
    def construct(self, x):
        h = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(h))


@wrong(BLOCK, "add_ gives the right value and leaves x as it was")
class AddsInPlace(Parts):
    def construct(self, x):
        x.add_(self.attn(self.ln_1(x)))
        x.add_(self.mlp(self.ln_2(x)))
        return x


@wrong(BLOCK, "ln_2 has a larger eps than GPT-2")
class OneEps(Parts):
    def __init__(self, config):
        super().__init__(config)
        self.ln_2 = LayerNorm(config.n_embd, 1e-3)


@wrong(BLOCK, "a smaller eps than GPT-2")
class FrameworkEps(Parts):
    def __init__(self, config):
        super().__init__(config)
        self.ln_1, self.ln_2 = LayerNorm(config.n_embd, 1e-7), LayerNorm(config.n_embd, 1e-7)


@wrong(BLOCK, "something random is at work")
class KeepProbability(Parts):
    def __init__(self, config):
        super().__init__(config)
        self.drop = nn.Dropout(p=0.1)

    def construct(self, x):
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.drop(self.mlp(self.ln_2(x)))


@wrong(BLOCK, "the result for n_embd = 8 and n_head = 2")
class TwelveWide(Parts):
    def construct(self, x):
        y = super().construct(x)
        return y if x.shape[-1] == 12 else y + 1e-3


SHARED = {}


@wrong(BLOCK, "two blocks share mlp")
class SharedMLP(Parts):
    def __init__(self, config):
        super().__init__(config)
        self.mlp = SHARED.setdefault(config.n_embd, self.mlp)


@wrong(BLOCK, "no gradient reaches")
class BranchCut(Parts):
    def construct(self, x):
        x = x + ops.stop_gradient(self.attn(self.ln_1(x)))
        return x + self.mlp(self.ln_2(x))


@wrong(BLOCK, "construct changes a parameter")
class WritesWeights(Parts):
    def construct(self, x):
        y = super().construct(x)
        self.ln_1.weight.set_data(self.ln_1.weight * 0.9)
        return y


@wrong(BLOCK, "it works eagerly and not in graph mode: try does not exist in graph mode.")
class TriesInConstruct(Parts):
    def construct(self, x):
        try:
            x = x + self.attn(self.ln_1(x))
        except ValueError:
            pass
        return x + self.mlp(self.ln_2(x))


@right(BLOCK)
class OneLine(Parts):
    def construct(self, x):
        return (x + self.attn(self.ln_1(x))) + self.mlp(self.ln_2(x + self.attn(self.ln_1(x))))


@right(BLOCK)
class BranchesAsMethods(Parts):
    def first(self, x):
        return ops.add(x, self.attn(self.ln_1(x)))

    def construct(self, x):
        y = self.first(x)
        return ops.add(y, self.mlp(self.ln_2(y)))


@right(BLOCK)
class StockParts(nn.Cell):
    """MindSpore's own operations behind GPT-2's names."""

    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = Affine(config.n_embd), Affine(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.mlp = DenseMLP(config)

    def construct(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Affine(nn.Cell):
    def __init__(self, n_embd):
        super().__init__()
        self.weight = ms.Parameter(np.ones(n_embd, np.float32))
        self.bias = ms.Parameter(np.zeros(n_embd, np.float32))
        self.norm = ops.LayerNorm(-1, -1, 1e-5)

    def construct(self, x):
        return self.norm(x, self.weight, self.bias)[0]


class DenseMLP(nn.Cell):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Dense(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Dense(4 * config.n_embd, config.n_embd)

    def construct(self, x):
        return self.c_proj(ops.gelu(self.c_fc(x), approximate="tanh"))


@right(BLOCK)
class ZerosAdded(Parts):
    def construct(self, x):
        out = x
        for norm, branch in ((self.ln_1, self.attn), (self.ln_2, self.mlp)):
            out = out + branch(norm(out))
        return out


# --- init_weights --------------------------------------------------------------------------------------


def drawn(model, n_layer, std=0.02, projection=None, bias=0.0, norm=1.0, draw=np.random.randn):
    """Right by default; the options put a mistake in the place of a number."""
    projection = 0.02 / math.sqrt(2 * n_layer) if projection is None else projection
    for name, p in model.parameters_and_names():
        if name.endswith("c_proj.weight"):
            p.set_data(ms.Tensor((projection * draw(*p.shape)).astype(np.float32)))
        elif p.ndim == 2:
            p.set_data(ms.Tensor((std * draw(*p.shape)).astype(np.float32)))
        elif name.endswith("bias"):
            p.set_data(ms.Tensor(np.full(p.shape, bias, np.float32)))
        else:
            p.set_data(ms.Tensor(np.full(p.shape, norm, np.float32)))


@wrong(INIT, "no weight is changed")
def names_only(model, n_layer):
    for name, p in model.parameters_and_names():
        if p.ndim == 2:
            p = ms.Tensor(0.02 * np.random.randn(*p.shape).astype(np.float32))


@wrong(INIT, "methods that end in _ do nothing on a CPU")
def multiplied_in_place(model, n_layer):
    for name, p in model.parameters_and_names():
        if p.ndim == 2:
            p.mul_(0.0)
            p.add_(ms.Tensor(0.02 * np.random.randn(*p.shape).astype(np.float32)))


@wrong(INIT, "that is PyTorch's way to write into a parameter")
def as_in_pytorch(model, n_layer):
    for name, p in model.parameters_and_names():
        if p.ndim == 2:
            p.normal_(0, 0.02)


@wrong(INIT, "has shape () afterwards")
def biases_as_one_number(model, n_layer):
    drawn(model, n_layer)
    for name, p in model.parameters_and_names():
        if name.endswith("bias"):
            p.set_data(ms.Tensor(0.0))


@wrong(INIT, "set_data puts in whatever it gets")
def turned_over(model, n_layer):
    drawn(model, n_layer)
    for name, p in model.parameters_and_names():
        if name.endswith("c_fc.weight"):
            p.set_data(p.swapaxes(0, 1))


@wrong(INIT, "is not initialised: it keeps the numbers it had")
def blocks_only(model, n_layer):
    kept = {name: p.asnumpy().copy() for name, p in model.parameters_and_names()}
    drawn(model, n_layer)
    for name, p in model.parameters_and_names():
        if not name.startswith("h."):
            p.set_data(ms.Tensor(kept[name]))


@wrong(INIT, "variance 0.02")
def variance(model, n_layer):
    drawn(model, n_layer, std=math.sqrt(0.02))


@wrong(INIT, "standard deviation 0.01")
def default_of_normal(model, n_layer):
    for name, p in model.parameters_and_names():
        if p.ndim == 2:
            p.set_data(initializer("normal", p.shape, p.dtype))


@wrong(INIT, "the factor 1/sqrt(2 n_layer) is missing")
def without_factor(model, n_layer):
    drawn(model, n_layer, projection=0.02)


@wrong(INIT, "each block adds to the stream twice")
def one_branch(model, n_layer):
    drawn(model, n_layer, projection=0.02 / math.sqrt(n_layer))


@wrong(INIT, "only attn.c_proj gets the factor")
def attention_only(model, n_layer):
    drawn(model, n_layer)
    for name, p in model.parameters_and_names():
        if name.endswith("mlp.c_proj.weight"):
            p.set_data(p * math.sqrt(2 * n_layer))


@wrong(INIT, "whatever n_layer is")
def seven_layers(model, n_layer):
    drawn(model, 7)


@wrong(INIT, "every bias starts at 0")
def biases_kept(model, n_layer):
    kept = {name: p.asnumpy().copy() for name, p in model.parameters_and_names() if name.endswith("bias")}
    drawn(model, n_layer)
    for name, p in model.parameters_and_names():
        if name in kept:
            p.set_data(ms.Tensor(kept[name]))


@wrong(INIT, "A LayerNorm starts with weight 1")
def all_drawn(model, n_layer):
    drawn(model, n_layer)
    for name, p in model.parameters_and_names():
        if "ln_" in name and name.endswith("weight"):
            p.set_data(ms.Tensor(0.02 * np.random.randn(*p.shape).astype(np.float32)))


@wrong(INIT, "not normally distributed")
def even(model, n_layer):
    drawn(model, n_layer, draw=lambda *shape: np.random.uniform(-math.sqrt(3), math.sqrt(3), shape))


@wrong(INIT, "begin with the same random numbers")
def seeded_for_each(model, n_layer):
    drawn(model, n_layer, draw=lambda *shape: np.random.default_rng(0).standard_normal(shape))


@wrong(INIT, "a seed is set inside")
def seeded(model, n_layer):
    ms.set_seed(1337)
    drawn(model, n_layer)


@wrong(INIT, "the same ms.set_seed gives other weights each time")
def own_generator(model, n_layer):
    random = np.random.default_rng()
    drawn(model, n_layer, draw=lambda *shape: random.standard_normal(shape))


@wrong(INIT, "is a new object after init_weights")
def new_parameters(model, n_layer):
    drawn(model, n_layer)
    model.wte.weight = ms.Parameter(model.wte.weight.asnumpy(), name="wte.weight")


@wrong(INIT, "requires_grad False")
def frozen(model, n_layer):
    drawn(model, n_layer)
    model.wpe.weight.requires_grad = False


@right(INIT)
def by_initializers(model, n_layer):
    for name, p in model.parameters_and_names():
        std = 0.02 / math.sqrt(2 * n_layer) if name.endswith("c_proj.weight") else 0.02
        if p.ndim > 1:
            p.set_data(initializer(Normal(std), p.shape, p.dtype))
        elif "bias" in name:
            p.set_data(initializer("zeros", p.shape, p.dtype))


@right(INIT)
def by_assign(model, n_layer):
    for p in model.get_parameters():
        if p.name.endswith("bias"):
            ops.assign(p, ops.zeros_like(p))
        elif p.ndim == 2:
            std = 0.02 * (2 * n_layer) ** -0.5 if "c_proj" in p.name else 0.02
            ops.assign(p, std * ops.standard_normal(p.shape))


@right(INIT)
def by_numpy_in_double(model, n_layer):
    for name, p in model.parameters_dict().items():
        if p.ndim == 2:
            p.set_data(ms.Tensor(np.random.normal(0, 0.02, p.shape) / (math.sqrt(2 * n_layer) if "c_proj" in name else 1)))
        elif name.endswith("bias"):
            p.set_data(ms.Tensor(np.zeros(p.shape)))


@right(INIT)
def in_two_passes(model, n_layer):
    drawn(model, n_layer, projection=0.02)
    for name, p in model.parameters_and_names():
        if name.endswith("c_proj.weight"):
            p.set_data(p / math.sqrt(2 * n_layer))


# --- GPT -----------------------------------------------------------------------------------------------


class Good(nn.Cell):
    """A right GPT in parts, for the variants below to go wrong with one of them."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = Embedding(config.vocab_size, config.n_embd)
        self.wpe = Embedding(config.n_ctx, config.n_embd)
        self.h = self.blocks(config)
        self.ln_f = LayerNorm(config.n_embd)
        self.start(config)

    def blocks(self, config):
        return nn.CellList([Parts(config) for _ in range(config.n_layer)])

    def start(self, config):
        drawn(self, config.n_layer)

    def refuse(self, T):
        if T > self.config.n_ctx:
            raise ValueError(f"{T} tokens do not fit into n_ctx = {self.config.n_ctx}")

    def embed(self, idx):
        return self.wte(idx) + self.wpe(ops.arange(idx.shape[1]))

    def run(self, x):
        for block in self.h:
            x = block(x)
        return x

    def head(self, x):
        return linear(x, self.wte.weight)

    def loss(self, logits, targets, idx):
        return cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))

    def construct(self, idx, targets=None):
        self.refuse(idx.shape[1])
        logits = self.head(self.ln_f(self.run(self.embed(idx))))
        if targets is None:
            return logits, None
        return logits, self.loss(logits, targets, idx)


# names


@wrong(MODEL, "h is a Python list: a Cell does not look into it")
class BlocksInAList(Good):
    def blocks(self, config):
        return [Parts(config) for _ in range(config.n_layer)]


@wrong(MODEL, "all blocks of h are one and the same object")
class OneBlockRepeated(Good):
    def blocks(self, config):
        return nn.CellList([Parts(config)] * config.n_layer)


@wrong(MODEL, "h holds 1 blocks, expected n_layer = 2")
class OneBlockTooFew(Good):
    def blocks(self, config):
        return nn.CellList([Parts(config) for _ in range(config.n_layer - 1)])


class WithHead(Good):
    def __init__(self, config):
        super().__init__(config)
        self.lm_head = Linear(config.n_embd, config.vocab_size, bias=False)
        self.tie()

    def tie(self):
        pass

    def head(self, x):
        return self.lm_head(x)


@wrong(MODEL, "It has numbers of its own")
class Untied(WithHead):
    pass


@wrong(MODEL, "It starts as a copy of wte")
class TiedBySetData(WithHead):
    def tie(self):
        self.lm_head.weight.set_data(self.wte.weight)


@wrong(MODEL, "the name that wte has already")
class TiedByClone(WithHead):
    def tie(self):
        self.lm_head.weight = self.wte.weight.clone()


@wrong(MODEL, "the head is a copy of wte, made when the model was built")
class HeadAsTensor(Good):
    def __init__(self, config):
        super().__init__(config)
        self.kept = ms.Tensor(self.wte.weight.asnumpy().copy())

    def head(self, x):
        return linear(x, self.kept)


@wrong(MODEL, "the head has a bias, b")
class HeadWithBias(Good):
    def __init__(self, config):
        super().__init__(config)
        self.b = ms.Parameter(np.zeros(config.vocab_size, np.float32))

    def head(self, x):
        return linear(x, self.wte.weight, self.b)


@wrong(MODEL, "wte.embedding_table has the name of MindSpore's own cell")
class FrameworkTables(Good):
    def __init__(self, config):
        super().__init__(config)
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)

    def head(self, x):
        return linear(x, self.wte.embedding_table)


@wrong(MODEL, "wte and wpe have each other's size")
class TablesExchanged(Good):
    def __init__(self, config):
        super().__init__(config)
        self.wte, self.wpe = self.wpe, self.wte


@wrong(MODEL, "calls itself")
class ReplacedAfterwards(Good):
    def start(self, config):
        for name, p in self.parameters_and_names():
            if name == "h.0.mlp.c_fc.weight":
                cell = self.h[0].mlp.c_fc
                cell.weight = ms.Parameter(0.02 * np.random.randn(*p.shape).astype(np.float32))


# returns


@wrong(MODEL, "construct returns one tensor")
class LogitsAlone(Good):
    def construct(self, idx, targets=None):
        logits, loss = super().construct(idx, targets)
        return logits if targets is None else (logits, loss)


@wrong(MODEL, "the two results are swapped")
class Swapped(Good):
    def construct(self, idx, targets=None):
        return super().construct(idx, targets)[::-1]


@wrong(MODEL, "only the last position has logits")
class LastPosition(Good):
    def head(self, x):
        return super().head(x[:, -1])

    def loss(self, logits, targets, idx):
        return cross_entropy(logits, targets[:, -1])


@wrong(MODEL, "the loss is a Python number")
class LossAsNumber(Good):
    def loss(self, logits, targets, idx):
        return float(super().loss(logits, targets, idx).asnumpy())


# values


@wrong(MODEL, "something random is at work")
class Drops(Good):
    def __init__(self, config):
        super().__init__(config)
        self.drop = nn.Dropout(p=0.1)

    def embed(self, idx):
        return self.drop(super().embed(idx))


@wrong(MODEL, "ln_f is missing")
class NoLastNorm(Good):
    def construct(self, idx, targets=None):
        self.refuse(idx.shape[1])
        logits = self.head(self.run(self.embed(idx)))
        return logits, None if targets is None else self.loss(logits, targets, idx)


@wrong(MODEL, "ln_f stands behind every block, and once more at the end")
class NormBehindEveryBlock(Good):
    def run(self, x):
        for block in self.h:
            x = self.ln_f(block(x))
        return x


@wrong(MODEL, "ask whether the targets are there")
class AsksTheTensor(Good):
    def construct(self, idx, targets=None):
        logits, _ = super().construct(idx)
        if targets:
            return logits, self.loss(logits, targets, idx)
        return logits, None


@wrong(MODEL, "the positions are looked up by token id")
class PositionsByToken(Good):
    def embed(self, idx):
        return self.wte(idx) + self.wpe(idx % self.config.n_ctx)


@wrong(MODEL, "wpe is missing")
class NoPositions(Good):
    def embed(self, idx):
        return self.wte(idx) + 0 * self.wpe(ops.arange(idx.shape[1]))


@wrong(MODEL, "multiplied by sqrt(n_embd)")
class ScaledTokens(Good):
    def embed(self, idx):
        return self.wte(idx) * math.sqrt(self.config.n_embd) + self.wpe(ops.arange(idx.shape[1]))


@wrong(MODEL, "the blocks are run in reverse order")
class Reversed(Good):
    def run(self, x):
        for block in list(self.h)[::-1]:
            x = block(x)
        return x


# loss


@wrong(MODEL, "get_batch has shifted them already")
class ShiftsInside(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits[:, :-1], targets[:, 1:], idx)


@wrong(MODEL, "the model then learns to repeat its input")
class ComparesWithInput(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits, idx, idx)


@wrong(MODEL, "the targets are transposed")
class TargetsTransposed(Good):
    def loss(self, logits, targets, idx):
        return cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.T.reshape(-1))


@wrong(MODEL, "the softmax comes before cross_entropy")
class SoftmaxFirst(Good):
    def loss(self, logits, targets, idx):
        return super().loss(ops.softmax(logits, -1), targets, idx)


@wrong(MODEL, "large logits make the loss inf")
class LogOfSoftmax(Good):
    def loss(self, logits, targets, idx):
        p = ops.softmax(logits.reshape(-1, logits.shape[-1]), -1)
        keep = (targets.reshape(-1) != -100).astype(p.dtype)
        picked = ops.gather_elements(ops.log(p), 1, targets.reshape(-1, 1).clip(0, None)).squeeze(1)
        return -(picked * keep).sum() / keep.sum()


@wrong(MODEL, "count as loss 0 in the mean")
class IgnoredCountAsZero(Good):
    def loss(self, logits, targets, idx):
        flat = ops.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), reduction="none")
        return flat.mean()


@wrong(MODEL, "targets of int64 are refused")
class StockCriterion(Good):
    def __init__(self, config):
        super().__init__(config)
        self.criterion = nn.CrossEntropyLoss()

    def loss(self, logits, targets, idx):
        return self.criterion(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


# lengths


@wrong(MODEL, "for B = 1, T = 1")
class PositionsOfFive(Good):
    def embed(self, idx):
        x = super().embed(idx)
        return x if idx.shape[1] > 1 else x + self.wpe.weight[1]


@wrong(MODEL, "more than n_ctx tokens are accepted")
class CropsByItself(Good):
    def construct(self, idx, targets=None):
        n = self.config.n_ctx
        return super().construct(idx[:, -n:], None if targets is None else targets[:, -n:])


@wrong(MODEL, "before anything is looked up")
class RefusesNothing(Good):
    def refuse(self, T):
        pass


# gradients, start, graph


@wrong(MODEL, "the embedding's share of wte's gradient is missing")
class EmbeddingCut(Good):
    def embed(self, idx):
        return ops.stop_gradient(self.wte(idx)) + self.wpe(ops.arange(idx.shape[1]))


@wrong(MODEL, "the head's share of wte's gradient is missing")
class HeadCut(Good):
    def head(self, x):
        return linear(x, ops.stop_gradient(self.wte.weight))


@wrong(MODEL, "the linear layers keep the numbers that Linear drew")
class StartForgotten(Good):
    def start(self, config):
        pass


@wrong(MODEL, "standard deviation 0.01: GPT-2's have 0.02")
class TablesOfTheFramework(Good):
    def start(self, config):
        drawn(self, config.n_layer)
        for table in (self.wte, self.wpe):
            table.weight.set_data(initializer("normal", table.weight.shape, ms.float32))


@wrong(MODEL, "no attribute config")
class ConfigNotKept(Good):
    def __init__(self, config):
        super().__init__(config)
        self.limit = copy.copy(config)
        self.config = None

    def refuse(self, T):
        if T > self.limit.n_ctx:
            raise ValueError(f"{T} tokens do not fit into n_ctx = {self.limit.n_ctx}")


@wrong(MODEL, "it works eagerly and not in graph mode")
class LossOnlyEagerly(Good):
    def loss(self, logits, targets, idx):
        try:
            return super().loss(logits, targets, idx)
        except TypeError:
            return None


@right(MODEL)
class StockLoss(Good):
    def loss(self, logits, targets, idx):
        return ops.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1).astype(ms.int32))


@right(MODEL)
class PositionsAsSlice(Good):
    def embed(self, idx):
        return self.wte.weight[idx] + self.wpe.weight[: idx.shape[1]]

    def head(self, x):
        return ops.matmul(x, self.wte.weight.T)


@right(MODEL)
class BlocksInASequential(Good):
    def blocks(self, config):
        return nn.SequentialCell([Parts(config) for _ in range(config.n_layer)])

    def run(self, x):
        return self.h(x)


@right(MODEL)
class OneHotTables(Good):
    def embed(self, idx):
        one_hot = ops.one_hot(idx, self.config.vocab_size, ms.Tensor(1.0, ms.float32), ms.Tensor(0.0, ms.float32))
        positions = ms.Tensor(np.arange(idx.shape[1]), ms.int32)
        return ops.matmul(one_hot, self.wte.weight) + self.wpe(positions)
