import copy
import functools
import math

import torch
import torch.nn.functional as F
from torch import nn

from solutions.pytorch.attention import CausalSelfAttention, attention, merge_heads, split_heads
from solutions.pytorch.embeddings import Embedding, TokenAndPosition
from solutions.pytorch.layers import MLP, LayerNorm
from solutions.pytorch.primitives import Linear, cross_entropy, linear
from tests.mistakes import right, wrong

BLOCK = "pytorch.gpt.Block"
INIT = "pytorch.gpt.init_weights"
MODEL = "pytorch.gpt.GPT"

# --- Block ---------------------------------------------------------------------------------------------


class Parts(nn.Module):
    """The right parts, for the variants below to go wrong with."""

    def __init__(self, config):
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = LayerNorm(config.n_embd)
        self.mlp = MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


@wrong(BLOCK, "post-LN")
class PostNorm(Parts):
    def forward(self, x):
        x = self.ln_1(x + self.attn(x))
        return self.ln_2(x + self.mlp(x))


@wrong(BLOCK, "post-LN")
class PostNormOnTheMLPOnly(Parts):
    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return self.ln_2(x + self.mlp(x))


@wrong(BLOCK, "taken from the normalised x")
class ResidualFromNormalised(Parts):
    def forward(self, x):
        h = self.ln_1(x)
        h = h + self.attn(h)
        h = self.ln_2(h)
        return h + self.mlp(h)


@wrong(BLOCK, "taken from the normalised x")
class SecondResidualFromNormalised(Parts):
    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = self.ln_2(x)
        return x + self.mlp(x)


@wrong(BLOCK, "the residual is missing: the result of both branches")
class NoResidual(Parts):
    def forward(self, x):
        return self.mlp(self.ln_2(self.attn(self.ln_1(x))))


@wrong(BLOCK, "the residual is missing: the result of the MLP")
class NoResidualAroundMLP(Parts):
    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return self.mlp(self.ln_2(x))


@wrong(BLOCK, "the residual is missing: the result of attention")
class NoResidualAroundAttention(Parts):
    def forward(self, x):
        x = self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


@wrong(BLOCK, "one residual around both branches")
class OneResidualAroundBoth(Parts):
    def forward(self, x):
        return x + self.mlp(self.ln_2(self.attn(self.ln_1(x))))


@wrong(BLOCK, "behind the branch")
class NormBehindTheBranch(Parts):
    def forward(self, x):
        x = x + self.ln_1(self.attn(x))
        return x + self.ln_2(self.mlp(x))


@wrong(BLOCK, "x is added once too often")
class AddsTwice(Parts):
    def forward(self, x):
        return x + super().forward(x)


@wrong(BLOCK, "also adds the normalised x")
class BranchAddsItsInput(Parts):
    def forward(self, x):
        h = self.ln_1(x)
        x = x + h + self.attn(h)
        return x + self.mlp(self.ln_2(x))


@wrong(BLOCK, "the MLP comes before attention")
class MLPFirst(Parts):
    def forward(self, x):
        x = x + self.mlp(self.ln_2(x))
        return x + self.attn(self.ln_1(x))


@wrong(BLOCK, "the MLP comes before attention")
class MLPFirstWithFirstNorm(Parts):
    def forward(self, x):
        x = x + self.mlp(self.ln_1(x))
        return x + self.attn(self.ln_2(x))


@wrong(BLOCK, "parallel branches")
class Parallel(Parts):
    def forward(self, x):
        h = self.ln_1(x)
        return x + self.attn(h) + self.mlp(h)


@wrong(BLOCK, "parallel branches")
class ParallelWithTwoNorms(Parts):
    def forward(self, x):
        return x + self.attn(self.ln_1(x)) + self.mlp(self.ln_2(x))


@wrong(BLOCK, "ln_1 is used before both branches")
class FirstNormTwice(Parts):
    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_1(x))


@wrong(BLOCK, "exchanged")
class NormsExchanged(Parts):
    def forward(self, x):
        x = x + self.attn(self.ln_2(x))
        return x + self.mlp(self.ln_1(x))


@wrong(BLOCK, "ln_2 is not used")
class SecondNormUnused(Parts):
    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(x)


@wrong(BLOCK, "neither ln_1 nor ln_2")
class NoNorms(Parts):
    def forward(self, x):
        x = x + self.attn(x)
        return x + self.mlp(x)


@wrong(BLOCK, "the second sum starts from the block's input")
class AttentionLost(Parts):
    def forward(self, x):
        h = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(h))


@wrong(BLOCK, "the MLP reads attention's result alone")
class MLPReadsAttentionAlone(Parts):
    def forward(self, x):
        y = self.attn(self.ln_1(x))
        return x + y + self.mlp(self.ln_2(y))


@wrong(BLOCK, "ln_2 reads what ln_1 gave")
class SecondNormReadsFirst(Parts):
    def forward(self, x):
        h = self.ln_1(x)
        return x + self.attn(h) + self.mlp(self.ln_2(h))


@wrong(BLOCK, "the MLP is never applied")
class AttentionOnly(Parts):
    def forward(self, x):
        return x + self.attn(self.ln_1(x))


@wrong(BLOCK, "attention is never applied")
class MLPOnly(Parts):
    def forward(self, x):
        return x + self.mlp(self.ln_2(x))


@wrong(BLOCK, "subtracted")
class Subtracts(Parts):
    def forward(self, x):
        x = x - self.attn(self.ln_1(x))
        return x - self.mlp(self.ln_2(x))


@wrong(BLOCK, "x itself is scaled")
class ScalesTheResidual(Parts):
    def forward(self, x):
        x = 0.8 * x + self.attn(self.ln_1(x))
        return 0.8 * x + self.mlp(self.ln_2(x))


@wrong(BLOCK, "post-LN")
class PostNormWithOneNormTwice(Parts):
    def forward(self, x):
        x = self.ln_1(x + self.attn(x))
        return self.ln_1(x + self.mlp(x))


@wrong(BLOCK, "a smaller eps than GPT-2")
class AnotherEps(Parts):
    def __init__(self, config):
        super().__init__(config)
        self.ln_1, self.ln_2 = LayerNorm(config.n_embd, eps=1e-12), LayerNorm(config.n_embd, 1e-12)


@wrong(BLOCK, "ln_1.weight has shape (7,)")
class NormsOverTime(Parts):
    def __init__(self, config):
        super().__init__(config)
        self.ln_1 = LayerNorm(config.n_ctx)


@wrong(BLOCK, "a parameter too many: gain")
class LearnedGain(Parts):
    def __init__(self, config):
        super().__init__(config)
        self.gain = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        x = x + self.gain * self.attn(self.ln_1(x))
        return x + self.gain * self.mlp(self.ln_2(x))


@wrong(BLOCK, "no gradient flows")
class WithoutGradient(Parts):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)


@wrong(BLOCK, "has a ReLU")
class ReLUInTheMLP(Parts):
    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp.c_proj(self.mlp.c_fc(self.ln_2(x)).relu())


@wrong(BLOCK, "exact GELU")
class ExactGELUInTheMLP(Parts):
    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x))))


@wrong(BLOCK, "averaged")
class AveragesBranches(Parts):
    def forward(self, x):
        a = self.attn(self.ln_1(x))
        return x + (a + self.mlp(self.ln_2(x + a))) / 2


@wrong(BLOCK, "kept from call to call")
class RemembersTheLastCall(Parts):
    last = 0.0

    def forward(self, x):
        y = super().forward(x) + 0.1 * self.last
        self.last = y.detach().mean()
        return y


@wrong(BLOCK, "dtype torch.float16")
class HalfPrecision(Parts):
    def forward(self, x):
        return super().forward(x).half()


@wrong(BLOCK, "scaled")
class HalvesTheSum(Parts):
    def forward(self, x):
        x = (x + self.attn(self.ln_1(x))) / 2
        return (x + self.mlp(self.ln_2(x))) / 2


@wrong(BLOCK, "something else than two added branches acts")
class Clamped(Parts):
    def forward(self, x):
        return super().forward(x).clamp(-50, 50)


@wrong(BLOCK, "changed in place")
class AddsInPlace(Parts):
    def forward(self, x):
        x += self.attn(self.ln_1(x))
        x += self.mlp(self.ln_2(x))
        return x


@wrong(BLOCK, "no parameter ln_2.weight")
class OneNorm(Parts):
    def __init__(self, config):
        super().__init__(config)
        del self.ln_2

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_1(x))


@wrong(BLOCK, "ln_1.weight and ln_2.weight are one and the same")
class OneNormUnderTwoNames(Parts):
    def __init__(self, config):
        super().__init__(config)
        self.ln_2 = self.ln_1


@wrong(BLOCK, "no parameter ln_1.weight")
class OtherNames(Parts):
    def __init__(self, config):
        super().__init__(config)
        self.norm1, self.norm2 = self.ln_1, self.ln_2
        del self.ln_1, self.ln_2


@wrong(BLOCK, "type tuple")
class ReturnsAttentionToo(Parts):
    def forward(self, x):
        return super().forward(x), None


@wrong(BLOCK, "is None")
class ForgetsReturn(Parts):
    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))


@wrong(BLOCK, "no nn.Module")
class NoModule:
    def __init__(self, config):
        self.parts = Parts(config)

    def __call__(self, x):
        return self.parts(x)


@wrong(BLOCK, "something random is at work")
class DropsOut(Parts):
    def forward(self, x):
        x = x + F.dropout(self.attn(self.ln_1(x)), 0.1, self.training)
        return x + self.mlp(self.ln_2(x))


@wrong(BLOCK, "something random is at work")
class DropsOutTheStream(Parts):
    def forward(self, x):
        return F.dropout(super().forward(x), 0.1)


@wrong(BLOCK, "sees the future")
class BlockSeesTheFuture(Parts):
    def __init__(self, config):
        super().__init__(config)
        self.attn.forward = self.attend

    def attend(self, x):
        q, k, v = (split_heads(p, self.attn.n_head) for p in self.attn.c_attn(x).chunk(3, dim=-1))
        return self.attn.c_proj(merge_heads(attention(q, k, v)))


@wrong(BLOCK, "n_embd = 8")
class SizesWrittenDown(Parts):
    def forward(self, x):
        if x.shape[-1] == 12:
            return super().forward(x)
        return x + self.attn(self.ln_1(x))


@wrong(BLOCK, "T = 1")
class NothingForASingleToken(Parts):
    def forward(self, x):
        return x if x.shape[1] == 1 else super().forward(x)


SHARED_PARTS = {}


@wrong(BLOCK, "two blocks share")
class SharedBetweenBlocks(Parts):
    def __init__(self, config):
        super().__init__(config)
        self.mlp = SHARED_PARTS.setdefault(config.n_embd, self.mlp)


@wrong(BLOCK, "no gradient reaches x")
class StreamDetached(Parts):
    def forward(self, x):
        x = x.detach() + self.attn(self.ln_1(x.detach()))
        return x + self.mlp(self.ln_2(x))


@wrong(BLOCK, "the gradient of x has the right shape and wrong values")
class BranchReadsDetached(Parts):
    def forward(self, x):
        x = x + self.attn(self.ln_1(x.detach()))
        return x + self.mlp(self.ln_2(x))


@wrong(BLOCK, "no gradient reaches ln_1")
class AttentionWithoutGradient(Parts):
    def forward(self, x):
        with torch.no_grad():
            y = self.attn(self.ln_1(x))
        x = x + y
        return x + self.mlp(self.ln_2(x))


@wrong(BLOCK, "made on the CPU")
class AddsZerosFromCPU(Parts):
    def forward(self, x):
        return super().forward(x) + torch.zeros(x.shape)


@wrong(BLOCK, "float64")
class FloatInside(Parts):
    def forward(self, x):
        return super().forward(x).float()


@wrong(BLOCK, "super().__init__()")
class BlockForgotSuper(nn.Module):
    def __init__(self, config):
        self.ln_1, self.ln_2 = LayerNorm(config.n_embd), LayerNorm(config.n_embd)


@right(BLOCK)
class StockBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        C = config.n_embd
        self.n_head = config.n_head
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.mlp.c_fc, self.mlp.c_proj = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)
        self.attn.c_attn, self.attn.c_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.ln_2, self.ln_1 = nn.LayerNorm(C), nn.LayerNorm(C)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.attn.c_attn(self.ln_1(x)).view(B, T, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        x = x + self.attn.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


@right(BLOCK)
class OneLine(Parts):
    def forward(self, x):
        return (h := x + self.attn(self.ln_1(x))) + self.mlp(self.ln_2(h))


@right(BLOCK)
class BranchesInALoop(Parts):
    def forward(self, x):
        for ln, branch in ((self.ln_1, self.attn), (self.ln_2, self.mlp)):
            x = torch.add(branch(ln(x)), x)
        return x


@right(BLOCK)
class SumOfThree(Parts):
    def forward(self, x):
        a = self.attn(self.ln_1(x))
        m = self.mlp(self.ln_2(a + x))
        return torch.stack([x, a, m]).sum(dim=0)


@right(BLOCK)
class InPlaceOnACopy(Parts):
    def forward(self, x):
        x = x.clone()
        x += self.attn(self.ln_1(x.clone()))
        return x + self.mlp(self.ln_2(x))


@right(BLOCK)
class SequenceBySequence(Parts):
    def forward(self, x):
        return torch.cat([super(SequenceBySequence, self).forward(row[None]) for row in x])


@right(BLOCK)
class DropoutOfZero(Parts):
    def __init__(self, config):
        super().__init__(config)
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.drop(self.mlp(self.ln_2(x)))


# --- init_weights --------------------------------------------------------------------------------------


def drawn(model, n_layer, std=0.02, projection=None, bias=0.0, norm=None, matrix=None):
    """init_weights with knobs."""
    projection = 0.02 / math.sqrt(2 * n_layer) if projection is None else projection
    for name, p in model.named_parameters():
        if name.endswith("c_proj.weight"):
            p.data.normal_(0, projection)
        elif p.dim() == 2:
            p.data.normal_(0, std)
        elif name.endswith("bias"):
            p.data.normal_(0, bias) if bias else p.data.zero_()
        elif norm is not None:
            p.data.normal_(0, norm) if norm else p.data.zero_()


@wrong(INIT, "the factor 1/sqrt(2 n_layer) is missing")
def no_factor(model, n_layer):
    drawn(model, n_layer, projection=0.02)


@wrong(INIT, "1/sqrt(n_layer)")
def root_of_layers(model, n_layer):
    drawn(model, n_layer, projection=0.02 / math.sqrt(n_layer))


@wrong(INIT, "not by its square root")
def no_root(model, n_layer):
    drawn(model, n_layer, projection=0.02 / (2 * n_layer))


@wrong(INIT, "divided by n_layer")
def by_layers(model, n_layer):
    drawn(model, n_layer, projection=0.02 / n_layer)


@wrong(INIT, "multiplied by sqrt(2 n_layer)")
def factor_upside_down(model, n_layer):
    drawn(model, n_layer, projection=0.02 * math.sqrt(2 * n_layer))


@wrong(INIT, "the 0.02 is missing")
def factor_alone(model, n_layer):
    drawn(model, n_layer, projection=1 / math.sqrt(2 * n_layer))


@wrong(INIT, "for 12 layers whatever")
def twelve_layers(model, n_layer):
    drawn(model, n_layer, projection=0.02 / math.sqrt(24))


@wrong(INIT, "only attn.c_proj gets the factor")
def attention_only(model, n_layer):
    drawn(model, n_layer)
    for name, p in model.named_parameters():
        if name.endswith("mlp.c_proj.weight"):
            p.data.normal_(0, 0.02)


@wrong(INIT, "only mlp.c_proj gets the factor")
def mlp_only(model, n_layer):
    drawn(model, n_layer)
    for name, p in model.named_parameters():
        if name.endswith("attn.c_proj.weight"):
            p.data.normal_(0, 0.02)


@wrong(INIT, "not on which one it is")
def by_depth(model, n_layer):
    drawn(model, n_layer)
    for i, block in enumerate(model.h):
        block.attn.c_proj.weight.data.normal_(0, 0.02 / math.sqrt(2 * (i + 1)))
        block.mlp.c_proj.weight.data.normal_(0, 0.02 / math.sqrt(2 * (i + 1)))


@wrong(INIT, "applied to other weights as well")
def factor_everywhere(model, n_layer):
    drawn(model, n_layer, std=0.02 / math.sqrt(2 * n_layer))


@wrong(INIT, "0.02 is the standard deviation")
def variance_for_deviation(model, n_layer):
    drawn(model, n_layer, std=math.sqrt(0.02), projection=math.sqrt(0.02 / (2 * n_layer)))


@wrong(INIT, "drawn with standard deviation 1: it is 0.02")
def unit_normal(model, n_layer):
    drawn(model, n_layer, std=1.0)


@wrong(INIT, "wpe has 0.02 like all others")
def small_positions(model, n_layer):
    drawn(model, n_layer)
    model.wpe.weight.data.normal_(0, 0.01)


@wrong(INIT, "wte.weight is not initialised")
def embeddings_left_out(model, n_layer):
    for name, p in model.named_parameters():
        if name.endswith("c_proj.weight"):
            p.data.normal_(0, 0.02 / math.sqrt(2 * n_layer))
        elif name.endswith("weight") and "c_" in name:
            p.data.normal_(0, 0.02)
        elif name.endswith("bias"):
            p.data.zero_()


@wrong(INIT, "wpe.weight is not initialised")
def positions_left_out(model, n_layer):
    kept = model.wpe.weight.detach().clone()
    drawn(model, n_layer)
    model.wpe.weight.data.copy_(kept)


@wrong(INIT, "c_proj.weight is not initialised")
def projections_left_out(model, n_layer):
    for name, p in model.named_parameters():
        if p.dim() == 2 and "c_proj" not in name:
            p.data.normal_(0, 0.02)
        elif name.endswith("bias"):
            p.data.zero_()


@wrong(INIT, "no weight is changed")
def by_stock_classes(model, n_layer):
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, 0, 0.02)


@wrong(INIT, "no weight is changed")
def names_a_new_tensor(model, n_layer):
    for p in model.parameters():
        p = torch.randn(p.shape) * 0.02  # noqa: PLW2901


@wrong(INIT, "no weight is changed")
def changes_a_copy(model, n_layer):
    model = copy.deepcopy(model)
    drawn(model, n_layer)
    return model


@wrong(INIT, "are equal: they are to be random")
def mean_and_deviation_swapped(model, n_layer):
    for name, p in model.named_parameters():
        if p.dim() == 2:
            p.data.normal_(0.02, 0)
        elif name.endswith("bias"):
            p.data.zero_()


@wrong(INIT, "do not have mean 0")
def even_and_positive(model, n_layer):
    drawn(model, n_layer)
    model.wte.weight.data.uniform_(0, 0.02 * math.sqrt(12))


@wrong(INIT, "do not have mean 0")
def scales_what_is_there(model, n_layer):
    for p in model.parameters():
        if p.dim() == 2:
            p.data.mul_(0.02)


@wrong(INIT, "even")
def evenly_drawn(model, n_layer):
    drawn(model, n_layer)
    for name, p in model.named_parameters():
        if p.dim() == 2 and "c_proj" not in name:
            p.data.uniform_(-0.02, 0.02)


@wrong(INIT, "not normally distributed")
def even_with_the_right_deviation(model, n_layer):
    drawn(model, n_layer)
    model.wte.weight.data.uniform_(-0.02 * math.sqrt(3), 0.02 * math.sqrt(3))


@wrong(INIT, "1/sqrt(columns)")
def scaled_by_width(model, n_layer):
    drawn(model, n_layer, std=1 / math.sqrt(64))


@wrong(INIT, "Xavier's rule")
def xavier(model, n_layer):
    drawn(model, n_layer)
    for p in model.parameters():
        if p.dim() == 2:
            nn.init.xavier_normal_(p)


@wrong(INIT, "Kaiming's rule")
def kaiming(model, n_layer):
    drawn(model, n_layer)
    for name, p in model.named_parameters():
        if "c_fc" in name and p.dim() == 2:
            nn.init.kaiming_normal_(p)


@wrong(INIT, "cut off at two standard deviations")
def cut_off(model, n_layer):
    drawn(model, n_layer)
    nn.init.trunc_normal_(model.wpe.weight, 0, 0.02, -0.04, 0.04)


@wrong(INIT, "n_layer is off by one")
def one_layer_more(model, n_layer):
    drawn(model, n_layer + 1)


@wrong(INIT, "wpe.weight are equal")
def positions_zeroed(model, n_layer):
    drawn(model, n_layer)
    model.wpe.weight.data.zero_()


@wrong(INIT, "c_proj.weight are equal")
def projections_zeroed(model, n_layer):
    drawn(model, n_layer, projection=0)


@wrong(INIT, "is set to 0.02")
def norms_filled(model, n_layer):
    drawn(model, n_layer)
    for name, p in model.named_parameters():
        if p.dim() == 1 and name.endswith("weight"):
            p.data.fill_(0.02)


@wrong(INIT, "ln_1.bias keeps the numbers it had")
def norm_biases_left_out(model, n_layer):
    for name, p in model.named_parameters():
        if p.dim() == 2:
            p.data.normal_(0, 0.02 / math.sqrt(2 * n_layer) if name.endswith("c_proj.weight") else 0.02)
        elif name.endswith("bias") and "ln_" not in name:
            p.data.zero_()


@wrong(INIT, "bias is not 0")
def random_biases(model, n_layer):
    drawn(model, n_layer, bias=0.02)


@wrong(INIT, "keeps the numbers it had")
def biases_left_out(model, n_layer):
    for name, p in model.named_parameters():
        if p.dim() == 2:
            p.data.normal_(0, 0.02 / math.sqrt(2 * n_layer) if name.endswith("c_proj.weight") else 0.02)


@wrong(INIT, "c_proj.bias is not 0")
def projection_biases_drawn(model, n_layer):
    drawn(model, n_layer)
    for name, p in model.named_parameters():
        if "c_proj" in name:
            p.data.normal_(0, 0.02 / math.sqrt(2 * n_layer))


@wrong(INIT, "is drawn at random. A LayerNorm starts with weight 1")
def norms_drawn(model, n_layer):
    drawn(model, n_layer, norm=0.02)


@wrong(INIT, "is set to 0")
def norms_zeroed(model, n_layer):
    drawn(model, n_layer, norm=0)


@wrong(INIT, "1/sqrt(n_layer)")
def right_for_seven_layers(model, n_layer):
    drawn(model, n_layer, projection=0.02 / math.sqrt(2 * n_layer if n_layer == 7 else n_layer))


@wrong(INIT, "same standard deviation whatever n_layer is")
def one_depth_for_all(model, n_layer):
    drawn(model, n_layer, projection=0.02 / math.sqrt(14))


@wrong(INIT, "a seed is set inside")
def seeds_inside(model, n_layer):
    torch.manual_seed(0)
    drawn(model, n_layer)


@wrong(INIT, "begin with the same random numbers")
def seeds_for_each_weight(model, n_layer):
    for name, p in model.named_parameters():
        torch.manual_seed(0)
        if p.dim() == 2:
            p.data.normal_(0, 0.02 / math.sqrt(2 * n_layer) if name.endswith("c_proj.weight") else 0.02)
        elif name.endswith("bias"):
            p.data.zero_()


@wrong(INIT, "gives other weights each time")
def from_numpy(model, n_layer):
    import numpy as np

    generator = np.random.default_rng()
    drawn(model, n_layer)
    for name, p in model.named_parameters():
        if p.dim() == 2 and not name.endswith("c_proj.weight") and p.device.type == "cpu":
            p.data.copy_(torch.from_numpy(generator.normal(0, 0.02, p.shape)))


@wrong(INIT, "is a new object")
def new_parameters(model, n_layer):
    drawn(model, n_layer)
    model.wte.weight = nn.Parameter(torch.randn_like(model.wte.weight) * 0.02)


@wrong(INIT, "was float64")
def float32_data(model, n_layer):
    drawn(model, n_layer)
    for p in model.parameters():
        if p.dim() == 2:
            p.data = p.data.float()


@wrong(INIT, "made on the CPU")
def data_on_the_cpu(model, n_layer):
    drawn(model, n_layer)
    for name, p in model.named_parameters():
        if name == "wte.weight":
            p.data = torch.randn(p.shape, dtype=p.dtype) * 0.02


@wrong(INIT, "no longer be trained")
def frozen(model, n_layer):
    drawn(model, n_layer)
    for p in model.parameters():
        p.requires_grad_(False)


@wrong(INIT, "a leaf Variable that requires grad")
def recorded_by_autograd(model, n_layer):
    for p in model.parameters():
        if p.dim() == 2:
            p.normal_(0, 0.02)


@right(INIT)
@torch.no_grad()
def without_recording(model, n_layer):
    for name, p in model.named_parameters():
        if p.dim() < 2:
            p.fill_(0 if name.endswith("bias") else 1)
        else:
            p.copy_(torch.randn_like(p) * 0.02)
            if "c_proj" in name:
                p.mul_((2 * n_layer) ** -0.5)


@right(INIT)
def by_own_classes(model, n_layer):
    for module in model.modules():
        if isinstance(module, (Linear, Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, Linear):
            nn.init.zeros_(module.bias)
        if isinstance(module, LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
    for name, p in model.named_parameters():
        if name.endswith("c_proj.weight"):
            nn.init.normal_(p, 0.0, 0.02 / math.sqrt(2 * n_layer))


@right(INIT)
def by_module_names(model, n_layer):
    def one(module, std):
        if getattr(module, "weight", None) is not None and module.weight.dim() == 2:
            module.weight.data.normal_(mean=0, std=std)
        if getattr(module, "bias", None) is not None:
            module.bias.data.zero_()

    for name, module in model.named_modules():
        one(module, 0.02 * (2 * n_layer) ** -0.5 if name.endswith("c_proj") else 0.02)


@right(INIT)
def over_the_state_dict(model, n_layer):
    for name, tensor in model.state_dict().items():
        if tensor.dim() == 2:
            tensor.normal_(0, 0.02 / math.sqrt(2 * n_layer if name.endswith("c_proj.weight") else 1))
        elif name.endswith("bias"):
            tensor.zero_()


@right(INIT)
def block_by_block(model, n_layer):
    small = 0.02 / (2 * n_layer) ** 0.5
    with torch.no_grad():
        for table in (model.wte, model.wpe):
            table.weight.normal_(0, 0.02)
        for block in model.h:
            for layer, std in ((block.attn.c_attn, 0.02), (block.attn.c_proj, small), (block.mlp.c_fc, 0.02), (block.mlp.c_proj, small)):
                layer.weight.normal_(0, std)
                layer.bias.zero_()
            block.ln_1.bias.zero_()
            block.ln_2.bias.zero_()
        model.ln_f.bias.zero_()


@right(INIT)
def truncated_far_out(model, n_layer):
    for name, p in model.named_parameters():
        if p.dim() == 2:
            nn.init.trunc_normal_(p, 0, 0.02 / math.sqrt(2 * n_layer) if name.endswith("c_proj.weight") else 0.02)
        elif not name.endswith("weight"):
            nn.init.constant_(p, 0)
    return model


# --- GPT -----------------------------------------------------------------------------------------------


class Good(nn.Module):
    """The right model in pieces, for the variants below to go wrong with."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = Embedding(config.vocab_size, config.n_embd)
        self.wpe = Embedding(config.n_ctx, config.n_embd)
        self.h = self.blocks(config)
        self.ln_f = LayerNorm(config.n_embd)
        self.start(config)

    def blocks(self, config):
        return nn.ModuleList([Parts(config) for _ in range(config.n_layer)])

    def start(self, config):
        drawn(self, config.n_layer)

    def refuse(self, T):
        if T > self.config.n_ctx:
            raise ValueError(f"{T} tokens do not fit into n_ctx = {self.config.n_ctx}")

    def positions(self, idx):
        return torch.arange(idx.shape[1], device=idx.device)

    def embed(self, idx):
        return self.wte(idx) + self.wpe(self.positions(idx))

    def run(self, x):
        for block in self.h:
            x = block(x)
        return x

    def end(self, x):
        return self.ln_f(x)

    def head(self, x):
        return linear(x, self.wte.weight)

    def loss(self, logits, targets, idx):
        B, T = targets.shape
        return cross_entropy(logits.reshape(B * T, -1), targets.reshape(B * T))

    def forward(self, idx, targets=None):
        self.refuse(idx.shape[1])
        logits = self.head(self.end(self.run(self.embed(idx))))
        return logits, None if targets is None else self.loss(logits, targets, idx)


# names


@wrong(MODEL, "h is a Python list")
class BlocksInAList(Good):
    def blocks(self, config):
        return [Parts(config) for _ in range(config.n_layer)]


@wrong(MODEL, "h is a Python dict")
class BlocksInADict(Good):
    def blocks(self, config):
        return {str(i): Parts(config) for i in range(config.n_layer)}


@wrong(MODEL, "one and the same object")
class OneBlockRepeated(Good):
    def blocks(self, config):
        return nn.ModuleList([Parts(config)] * config.n_layer)


@wrong(MODEL, "h holds 2 blocks, expected n_layer = 3")
class OneBlockTooFew(Good):
    def blocks(self, config):
        return nn.ModuleList([Parts(config) for _ in range(1, config.n_layer)])


@wrong(MODEL, "h holds 4 blocks, expected n_layer = 3")
class OneBlockTooMany(Good):
    def blocks(self, config):
        return nn.ModuleList([Parts(config) for _ in range(config.n_layer + 1)])


@wrong(MODEL, "GPT has no h")
class BlocksUnderAnotherName(Good):
    def __init__(self, config):
        super().__init__(config)
        self.layers = self.h
        del self.h


@wrong(MODEL, "one and the same parameter")
class BlocksShareTheirMLP(Good):
    def blocks(self, config):
        blocks = super().blocks(config)
        for block in blocks:
            block.mlp = blocks[0].mlp
        return blocks


@wrong(MODEL, "starts as a copy of wte")
class HeadCopiedAtTheStart(Good):
    def __init__(self, config):
        super().__init__(config)
        self.lm_head = Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight.data = self.wte.weight.data.clone()

    def head(self, x):
        return self.lm_head(x)


@wrong(MODEL, "numbers of its own")
class HeadOfItsOwn(Good):
    def __init__(self, config):
        super().__init__(config)
        self.lm_head = Linear(config.n_embd, config.vocab_size, bias=False)

    def head(self, x):
        return self.lm_head(x)


@wrong(MODEL, "under a second name")
class HeadTiedUnderASecondName(Good):
    def __init__(self, config):
        super().__init__(config)
        self.lm_head = Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def head(self, x):
        return self.lm_head(x)


@wrong(MODEL, "the head has a bias")
class HeadBias(Good):
    def __init__(self, config):
        super().__init__(config)
        self.head_bias = nn.Parameter(torch.zeros(config.vocab_size))

    def head(self, x):
        return linear(x, self.wte.weight, self.head_bias)


@wrong(MODEL, "attn.mask, which is no parameter of GPT-2")
class MaskInTheStateDict(Good):
    def __init__(self, config):
        super().__init__(config)
        for block in self.h:
            block.attn.register_buffer("mask", torch.ones(config.n_ctx, config.n_ctx).tril())


@wrong(MODEL, "wte and wpe have each other's size")
class TablesSwapped(Good):
    def __init__(self, config):
        super().__init__(config)
        self.wte, self.wpe = self.wpe, self.wte


@wrong(MODEL, "there is no wpe.weight")
class NoPositions(Good):
    def __init__(self, config):
        super().__init__(config)
        del self.wpe

    def embed(self, idx):
        return self.wte(idx)


@wrong(MODEL, "wpe is fixed")
class SineTable(Good):
    def __init__(self, config):
        super().__init__(config)
        del self.wpe
        angles = torch.arange(config.n_ctx)[:, None] / 10_000 ** (torch.arange(0, config.n_embd, 2) / config.n_embd)
        self.wpe = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)

    def embed(self, idx):
        return self.wte(idx) + self.wpe[: idx.shape[1]]


@wrong(MODEL, "no parameter ln_f.weight")
class NoFinalNorm(Good):
    def __init__(self, config):
        super().__init__(config)
        del self.ln_f

    def end(self, x):
        return x


@wrong(MODEL, "begin with transformer.")
class InsideATransformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.transformer = Good(config)

    def forward(self, idx, targets=None):
        return self.transformer(idx, targets)


@wrong(MODEL, "no parameter wte.weight")
class TablesInOneModule(Good):
    def __init__(self, config):
        super().__init__(config)
        del self.wte, self.wpe
        self.embedding = TokenAndPosition(config)

    def embed(self, idx):
        return self.embedding(idx)


@wrong(MODEL, "the config is changed")
class ChangesTheConfig(Good):
    def __init__(self, config):
        super().__init__(config)
        config.n_layer = 12


# what forward returns


@wrong(MODEL, "forward returns one tensor")
class LogitsAlone(Good):
    def forward(self, idx, targets=None):
        return super().forward(idx, targets)[0]


@wrong(MODEL, "forward returns one tensor")
class OneOrTheOther(Good):
    def forward(self, idx, targets=None):
        logits, loss = super().forward(idx, targets)
        return logits if targets is None else loss


@wrong(MODEL, "swapped")
class LossFirst(Good):
    def forward(self, idx, targets=None):
        return super().forward(idx, targets)[::-1]


@wrong(MODEL, "forward returns a dict")
class ReturnsADict(Good):
    def forward(self, idx, targets=None):
        logits, loss = super().forward(idx, targets)
        return {"logits": logits, "loss": loss}


@wrong(MODEL, "tuple of 3")
class ReturnsThree(Good):
    def forward(self, idx, targets=None):
        return *super().forward(idx, targets), None


@wrong(MODEL, "forward returns None")
class ReturnsNothing(Good):
    def forward(self, idx, targets=None):
        super().forward(idx, targets)


@wrong(MODEL, "without targets the loss is None")
class LossOfZero(Good):
    def forward(self, idx, targets=None):
        logits, loss = super().forward(idx, targets)
        return logits, torch.tensor(0.0) if loss is None else loss


@wrong(MODEL, "only the last position has logits")
class LastPositionOnly(Good):
    def forward(self, idx, targets=None):
        logits, loss = super().forward(idx, targets)
        return (logits[:, -1:] if targets is None else logits), loss


@wrong(MODEL, "only the last position has logits")
class LastPositionWithoutItsAxis(Good):
    def forward(self, idx, targets=None):
        logits, loss = super().forward(idx, targets)
        return (logits[:, -1] if targets is None else logits), loss


@wrong(MODEL, "flattened to (B*T, V)")
class LogitsFlattenedWithTargets(Good):
    def forward(self, idx, targets=None):
        logits, loss = super().forward(idx, targets)
        return (logits if targets is None else logits.flatten(0, 1)), loss


@wrong(MODEL, "(B, V, T)")
class VocabularyBeforeTime(Good):
    def forward(self, idx, targets=None):
        logits, loss = super().forward(idx, targets)
        return logits.transpose(1, 2), loss


@wrong(MODEL, "the head is missing")
class NoHead(Good):
    def head(self, x):
        return x

    def loss(self, logits, targets, idx):
        return super().loss(logits[..., :11], targets, idx)


@wrong(MODEL, "with targets the logits are None")
class NoLogitsWithTargets(Good):
    def forward(self, idx, targets=None):
        logits, loss = super().forward(idx, targets)
        return (logits if targets is None else None), loss


@wrong(MODEL, "the loss is a Python number")
class LossAsFloat(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits, targets, idx).item()


@wrong(MODEL, "the loss carries no gradient")
class LossDetached(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits, targets, idx).detach()


@wrong(MODEL, "the loss has shape (10,)")
class LossForEachToken(Good):
    def loss(self, logits, targets, idx):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")


@wrong(MODEL, "the loss has shape (1,)")
class LossWithAnAxis(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits, targets, idx)[None]


@wrong(MODEL, "model(idx, targets=...)")
class AnotherArgumentName(Good):
    def forward(self, idx, labels=None):
        return super().forward(idx, labels)


@wrong(MODEL, "with targets the loss is None")
class LossForgotten(Good):
    def loss(self, logits, targets, idx):
        super().loss(logits, targets, idx)


@wrong(MODEL, "changed in place")
class ChangesTheTargets(Good):
    def loss(self, logits, targets, idx):
        result = super().loss(logits, targets, idx)
        targets[:, 0] = -100
        return result


@wrong(MODEL, "target")
class TruthOfATensor(Good):
    def forward(self, idx, targets=None):
        logits, _ = super().forward(idx)
        return logits, super().forward(idx, targets)[1] if targets else None


@wrong(MODEL, "the logits carry no gradient")
class LogitsDetached(Good):
    def forward(self, idx, targets=None):
        logits, loss = super().forward(idx, targets)
        return logits.detach(), loss


@wrong(MODEL, "the loss has dtype torch.float64")
class LossInDouble(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits.double(), targets, idx)


# tying


@wrong(MODEL, "a copy of wte, made when the model was built")
class HiddenCopy(Good):
    def __init__(self, config):
        super().__init__(config)
        self.kept = [self.wte.weight.detach().clone()]

    def head(self, x):
        return linear(x, self.kept[0].to(x))


@wrong(MODEL, "numbers of its own, outside the state dict")
class HiddenHead(Good):
    def __init__(self, config):
        super().__init__(config)
        self.kept = [Linear(config.n_embd, config.vocab_size, bias=False)]

    def head(self, x):
        return self.kept[0](x)


@wrong(MODEL, "the head has a bias")
class HiddenBias(Good):
    def __init__(self, config):
        super().__init__(config)
        self.kept = [torch.randn(config.vocab_size)]

    def head(self, x):
        return super().head(x) + self.kept[0]


@wrong(MODEL, "only the embedding trains wte")
class HeadDetached(Good):
    def head(self, x):
        return linear(x, self.wte.weight.detach())


@wrong(MODEL, "only the head trains wte")
class EmbeddingDetached(Good):
    def embed(self, idx):
        return self.wte.weight.data[idx] + self.wpe(self.positions(idx))


# logits


@wrong(MODEL, "ln_f is missing")
class FinalNormUnused(Good):
    def end(self, x):
        return x


@wrong(MODEL, "ln_f stands before the blocks")
class NormFirst(Good):
    def embed(self, idx):
        return self.ln_f(super().embed(idx))

    def end(self, x):
        return x


@wrong(MODEL, "ln_f is applied after every block")
class NormAfterEachBlock(Good):
    def run(self, x):
        for block in self.h:
            x = self.ln_f(block(x))
        return x

    def end(self, x):
        return x


@wrong(MODEL, "it is ln_f")
class AnotherNormAtTheEnd(Good):
    def end(self, x):
        return self.h[-1].ln_2(x)


@wrong(MODEL, "wpe is missing")
class PositionsUnused(Good):
    def embed(self, idx):
        return self.wte(idx)


@wrong(MODEL, "looked up by token id")
class PositionsByToken(Good):
    def embed(self, idx):
        return self.wte(idx) + self.wpe(idx)


@wrong(MODEL, "the positions run backwards")
class PositionsFromTDown(Good):
    def positions(self, idx):
        return super().positions(idx).flip(0)


@wrong(MODEL, "the positions run down from n_ctx-1")
class PositionsFromNCtxDown(Good):
    def positions(self, idx):
        return self.config.n_ctx - 1 - super().positions(idx)


@wrong(MODEL, "the positions start at 1")
class PositionsFromOne(Good):
    def positions(self, idx):
        return (super().positions(idx) + 1).clamp(max=self.config.n_ctx - 1)


@wrong(MODEL, "the last T of n_ctx")
class PositionsAtTheEnd(Good):
    def positions(self, idx):
        return super().positions(idx) + self.config.n_ctx - idx.shape[1]


@wrong(MODEL, "every token gets position 0")
class PositionZero(Good):
    def positions(self, idx):
        return super().positions(idx) * 0


@wrong(MODEL, "the positions follow the batch")
class PositionsOfTheBatch(Good):
    def embed(self, idx):
        return self.wte(idx) + self.wpe(torch.arange(len(idx), device=idx.device))[:, None]


@wrong(MODEL, "run on from one sequence")
class PositionsRunOn(Good):
    def positions(self, idx):
        return torch.arange(idx.numel(), device=idx.device).reshape(idx.shape) % self.config.n_ctx


@wrong(MODEL, "are multiplied")
class TablesMultiplied(Good):
    def embed(self, idx):
        return self.wte(idx) * self.wpe(self.positions(idx))


@wrong(MODEL, "multiplied by sqrt(n_embd): the first transformer")
class TokensScaled(Good):
    def embed(self, idx):
        return self.wte(idx) * math.sqrt(self.config.n_embd) + self.wpe(self.positions(idx))


@wrong(MODEL, "sines and cosines")
class SinesInsteadOfTheTable(Good):
    def embed(self, idx):
        C = self.config.n_embd
        angles = self.positions(idx)[:, None] / 10_000 ** (torch.arange(0, C, 2, device=idx.device) / C)
        return self.wte(idx) + torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


@wrong(MODEL, "in reverse order")
class BlocksReversed(Good):
    def run(self, x):
        for block in reversed(self.h):
            x = block(x)
        return x


@wrong(MODEL, "the last block is left out")
class LastBlockSkipped(Good):
    def run(self, x):
        for i in range(len(self.h) - 1):
            x = self.h[i](x)
        return x


@wrong(MODEL, "the first block is left out")
class FirstBlockSkipped(Good):
    def run(self, x):
        for block in self.h[1:]:
            x = block(x)
        return x


@wrong(MODEL, "only the last block has an effect")
class BlocksNotChained(Good):
    def run(self, x):
        for block in self.h:
            y = block(x)
        return y


@wrong(MODEL, "no block has an effect")
class ResultsDropped(Good):
    def run(self, x):
        for block in self.h:
            block(x)
        return x


@wrong(MODEL, "the first block is run n_layer times")
class FirstBlockAgainAndAgain(Good):
    def run(self, x):
        for _ in self.h:
            x = self.h[0](x)
        return x


@wrong(MODEL, "only the first block is run")
class ReturnsInTheLoop(Good):
    def run(self, x):
        for block in self.h:
            return block(x)


@wrong(MODEL, "a residual is put around each block")
class ResidualAroundBlocks(Good):
    def run(self, x):
        for block in self.h:
            x = x + block(x)
        return x


@wrong(MODEL, "the logits are softmaxed")
class Probabilities(Good):
    def head(self, x):
        return super().head(x).softmax(-1)


@wrong(MODEL, "divided by sqrt(n_embd)")
class HeadScaled(Good):
    def head(self, x):
        return super().head(x) / math.sqrt(x.shape[-1])


@wrong(MODEL, "added after the blocks")
class PositionsAfterTheBlocks(Good):
    def embed(self, idx):
        return self.wte(idx)

    def end(self, x):
        return self.ln_f(x + self.wpe.weight[: x.shape[1]])


@wrong(MODEL, "added before every block")
class PositionsBeforeEveryBlock(Good):
    def run(self, x):
        for block in self.h:
            x = block(x + self.wpe.weight[: x.shape[1]])
        return x


@wrong(MODEL, "multiplied by one number")
class Temperature(Good):
    def head(self, x):
        return super().head(x) / 0.7


@wrong(MODEL, "mean of the logits is subtracted")
class CenteredLogits(Good):
    def head(self, x):
        logits = super().head(x)
        return logits - logits.mean(dim=-1, keepdim=True)


@wrong(MODEL, "the embeddings are added once more")
class EmbeddingsTwice(Good):
    def run(self, x):
        return x + super().run(x)


@wrong(MODEL, "in the blocks a LayerNorm stands after the sum")
class PostNormBlocks(Good):
    def blocks(self, config):
        return nn.ModuleList([PostNorm(config) for _ in range(config.n_layer)])


@wrong(MODEL, "in the blocks ln_2 is not used")
class BlocksWithoutSecondNorm(Good):
    def blocks(self, config):
        return nn.ModuleList([SecondNormUnused(config) for _ in range(config.n_layer)])


@wrong(MODEL, "positions see the future")
class BlocksSeeTheFuture(Good):
    def blocks(self, config):
        return nn.ModuleList([BlockSeesTheFuture(config) for _ in range(config.n_layer)])


@wrong(MODEL, "h[0] by itself already gives wrong values")
class ExactGelu(Good):
    def blocks(self, config):
        blocks = super().blocks(config)
        for block in blocks:
            block.mlp.forward = lambda x, m=block.mlp: m.c_proj(F.gelu(m.c_fc(x)))
        return blocks


# lengths


@wrong(MODEL, "n_ctx = 6")
class ThreeLayersWrittenDown(Good):
    def run(self, x):
        for i in range(3):
            x = self.h[i % len(self.h)](x)
        return x


@wrong(MODEL, "exactly n_ctx tokens still fit")
class RefusesTheFullWindow(Good):
    def refuse(self, T):
        if T >= self.config.n_ctx:
            raise ValueError(f"{T} tokens do not fit into n_ctx = {self.config.n_ctx}")


@wrong(MODEL, "T = 1")
class LosesASingleToken(Good):
    def run(self, x):
        return x if x.shape[1] == 1 else super().run(x)


@wrong(MODEL, "more than n_ctx tokens raise IndexError")
class DoesNotRefuse(Good):
    def refuse(self, T):
        pass


@wrong(MODEL, "more than n_ctx tokens raise AssertionError")
class Asserts(Good):
    def refuse(self, T):
        assert T <= self.config.n_ctx, "too long"


@wrong(MODEL, "more than n_ctx tokens are accepted")
class CropsByItself(Good):
    def forward(self, idx, targets=None):
        n = self.config.n_ctx
        return super().forward(idx[:, -n:], None if targets is None else targets[:, -n:])


@wrong(MODEL, "more than n_ctx tokens are accepted")
class ClampsPositions(Good):
    def refuse(self, T):
        pass

    def positions(self, idx):
        return super().positions(idx).clamp(max=self.config.n_ctx - 1)


@wrong(MODEL, "the ValueError says nothing")
class SilentError(Good):
    def refuse(self, T):
        if T > self.config.n_ctx:
            raise ValueError


# loss


@wrong(MODEL, "get_batch has shifted them already")
class ShiftsInside(Good):
    def loss(self, logits, targets, idx):
        return cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten())


@wrong(MODEL, "get_batch has shifted them already")
class ShiftsTheOtherWay(Good):
    def loss(self, logits, targets, idx):
        return cross_entropy(logits[:, 1:].flatten(0, 1), targets[:, :-1].flatten())


@wrong(MODEL, "the model then learns to repeat its input")
class ComparesWithInput(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits, idx, idx)


@wrong(MODEL, "idx shifted by one, and targets are not used")
class ComparesWithShiftedInput(Good):
    def loss(self, logits, targets, idx):
        return cross_entropy(logits[:, :-1].flatten(0, 1), idx[:, 1:].flatten())


@wrong(MODEL, "the targets are transposed")
class TargetsTransposed(Good):
    def loss(self, logits, targets, idx):
        return cross_entropy(logits.flatten(0, 1), targets.T.reshape(-1))


@wrong(MODEL, "the softmax comes before cross_entropy")
class SoftmaxFirst(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits.softmax(-1), targets, idx)


@wrong(MODEL, "the loss is summed over the positions: it is their mean")
class Summed(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits, targets, idx) * (targets != -100).sum()


@wrong(MODEL, "averaged over the batch: it is the mean over both")
class SummedOverTime(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits, targets, idx) * targets.shape[1]


@wrong(MODEL, "in bits")
class InBits(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits, targets, idx) / math.log(2)


@wrong(MODEL, "large logits make the loss inf")
class LogOfSoftmax(Good):
    def loss(self, logits, targets, idx):
        return F.nll_loss(logits.softmax(-1).log().flatten(0, 1), targets.flatten())


@wrong(MODEL, "the softmax runs over the positions")
class SoftmaxOverPositions(Good):
    def loss(self, logits, targets, idx):
        return F.nll_loss(logits.log_softmax(1).flatten(0, 1), targets.flatten())


@wrong(MODEL, "binary cross entropy")
class BinaryCrossEntropy(Good):
    def loss(self, logits, targets, idx):
        return F.binary_cross_entropy_with_logits(logits, F.one_hot(targets, logits.shape[-1]).to(logits.dtype))


@wrong(MODEL, "shifted them already")
class TargetsRolled(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits, targets.roll(-1, 1), idx)


@wrong(MODEL, "batch and time are swapped")
class TimeBeforeBatch(Good):
    def embed(self, idx):
        return super().embed(idx.T)


@wrong(MODEL, "perplexity")
class Perplexity(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits, targets, idx).exp()


@wrong(MODEL, "wrong sign")
class WrongSign(Good):
    def loss(self, logits, targets, idx):
        return -super().loss(logits, targets, idx)


@wrong(MODEL, "only the last position counts in the loss")
class LastPositionCounts(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits[:, -1:], targets[:, -1:], idx)


@wrong(MODEL, "only the first sequence of the batch counts")
class FirstSequenceCounts(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits[:1], targets[:1], idx)


@wrong(MODEL, "target 0 is ignored")
class IgnoresTokenZero(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits, targets.masked_fill(targets == 0, -100), idx)


@wrong(MODEL, "smoothed")
class Smoothed(Good):
    def loss(self, logits, targets, idx):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=0.1)


@wrong(MODEL, "a target of -100 crashes the loss")
class IgnoresMinusOne(Good):
    def loss(self, logits, targets, idx):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


@wrong(MODEL, "count as loss 0 in the mean")
class IgnoredCountAsZero(Good):
    def loss(self, logits, targets, idx):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").mean()


@wrong(MODEL, "taken for token 0")
class IgnoredAsTokenZero(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits, targets.clamp(min=0), idx)


@wrong(MODEL, "over each sequence first")
class MeanOfMeans(Good):
    def loss(self, logits, targets, idx):
        return torch.stack([super(MeanOfMeans, self).loss(logits[i : i + 1], targets[i : i + 1], idx) for i in range(len(idx))]).mean()


@wrong(MODEL, "view needs numbers that lie side by side")
class ViewsTheTargets(Good):
    def loss(self, logits, targets, idx):
        return cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


@wrong(MODEL, "has the right shape and wrong values")
class ReadsMemoryInItsOwnOrder(Good):
    def loss(self, logits, targets, idx):
        return cross_entropy(logits.flatten(0, 1), targets.as_strided((targets.numel(),), (1,)))


@wrong(MODEL, "the logits with targets has the right shape and wrong values")
class LogitsScaledWithTargets(Good):
    def forward(self, idx, targets=None):
        logits, loss = super().forward(idx, targets)
        return (logits if targets is None or idx.shape[0] != 2 else 0.7 * logits), loss


@wrong(MODEL, "targets is changed in place")
class OverwritesIgnored(Good):
    def loss(self, logits, targets, idx):
        targets[targets == -100] = 0
        return super().loss(logits, targets, idx)


@wrong(MODEL, "missing 1 required positional argument")
class TargetsRequired(Good):
    def forward(self, idx, targets):
        return super().forward(idx, targets)


# state, gradients, start, device


@wrong(MODEL, "something random is at work")
class DropoutInEmbeddings(Good):
    def embed(self, idx):
        x = super().embed(idx)
        return F.dropout(x, 0.1, self.training)


@wrong(MODEL, "kept from call to call")
class CountsItsCalls(Good):
    calls = 0

    def head(self, x):
        self.calls += 1
        return super().head(x) / self.calls


@wrong(MODEL, "forward changes wpe.weight")
class AddsIntoATable(Good):
    def embed(self, idx):
        x = super().embed(idx)
        self.wpe.weight.data.mul_(0.9)
        return x


@wrong(MODEL, "no gradient reaches wpe")
class PositionsWithoutGradient(Good):
    def embed(self, idx):
        with torch.no_grad():
            pos = self.wpe(self.positions(idx))
        return self.wte(idx) + pos


@wrong(MODEL, "no gradient reaches")
class LastBlockWithoutGradient(Good):
    def run(self, x):
        for block in self.h[:-1]:
            x = block(x)
        with torch.no_grad():
            y = self.h[-1](x) - x
        return x + y


@wrong(MODEL, "wpe.weight is frozen")
class PositionsFrozen(Good):
    def __init__(self, config):
        super().__init__(config)
        self.wpe.weight.requires_grad_(False)


@wrong(MODEL, "the linear layers keep the numbers that Linear drew")
class StartForgotten(Good):
    def start(self, config):
        pass


@wrong(MODEL, "the linear layers keep the numbers that Linear drew")
class StartBeforeTheBlocks(Good):
    def __init__(self, config):
        super().__init__(config)
        self.h = self.blocks(config)


@wrong(MODEL, "the blocks start with the same numbers")
class CopiesOfOneBlock(Good):
    def start(self, config):
        drawn(self, config.n_layer)
        for block in self.h[1:]:
            block.load_state_dict(self.h[0].state_dict())


@wrong(MODEL, "standard deviation 1")
class TokensOfUnitSize(Good):
    def start(self, config):
        drawn(self, config.n_layer)
        self.wte.weight.data.normal_(0, 1)


@wrong(MODEL, "the factor 1/sqrt(2 n_layer) is missing")
class StartWithoutFactor(Good):
    def start(self, config):
        drawn(self, config.n_layer, projection=0.02)


@wrong(MODEL, "init_weights gets n_head")
class StartWithHeads(Good):
    def start(self, config):
        drawn(self, config.n_head)


@wrong(MODEL, "init_weights gets 1 layer")
class StartInEachBlock(Good):
    def start(self, config):
        drawn(self, 1)


@wrong(MODEL, "init_weights gets 2 n_layer")
class StartWithTwice(Good):
    def start(self, config):
        drawn(self, 2 * config.n_layer)


@wrong(MODEL, "bias does not start at 0")
class StartWithBiases(Good):
    def start(self, config):
        drawn(self, config.n_layer, bias=0.02)


@wrong(MODEL, "two models start with the same numbers")
class StartSeeded(Good):
    def start(self, config):
        torch.manual_seed(1337)
        drawn(self, config.n_layer)


SHARED_BLOCKS = {}


@wrong(MODEL, "two models share")
class SharedBetweenModels(Good):
    def blocks(self, config):
        blocks = super().blocks(config)
        return blocks if config.n_embd == 64 else SHARED_BLOCKS.setdefault(config.n_embd, blocks)


@wrong(MODEL, "no attribute config")
class ConfigNotKept(Good):
    def __init__(self, config):
        super().__init__(config)
        del self.config
        self.n_ctx = config.n_ctx

    def refuse(self, T):
        if T > self.n_ctx:
            raise ValueError(f"{T} tokens do not fit into n_ctx = {self.n_ctx}")


@wrong(MODEL, "the positions are made on the CPU")
class PositionsOnTheCPU(Good):
    def positions(self, idx):
        return torch.arange(idx.shape[1])


@wrong(MODEL, "the positions are made on the CPU")
class PositionsKept(Good):
    def __init__(self, config):
        super().__init__(config)
        self.places = torch.arange(config.n_ctx)

    def positions(self, idx):
        return self.places[: idx.shape[1]]


@wrong(MODEL, "made on the CPU")
class ZerosOnTheCPU(Good):
    def head(self, x):
        return super().head(x) + torch.zeros(x.shape[0], x.shape[1], 1)


@wrong(MODEL, "float64")
class LogitsInFloat32(Good):
    def head(self, x):
        return super().head(x).float()


@wrong(MODEL, "wrong values")
class HeadInFloat32(Good):
    def head(self, x):
        return linear(x.float(), self.wte.weight.float()).to(x.dtype)


@right(MODEL)
class StockGPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_ctx, config.n_embd)
        self.h = nn.ModuleList(StockBlock(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * config.n_layer) if "c_proj" in name else 0.02)
            elif "bias" in name:
                nn.init.zeros_(p)

    def forward(self, idx, targets=None):
        if idx.size(1) > self.config.n_ctx:
            raise ValueError(f"idx has {idx.size(1)} columns, at most {self.config.n_ctx} fit")
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.transpose(1, 2), targets)
        return logits, loss


@right(MODEL)
class BlocksInAModuleDict(Good):
    def blocks(self, config):
        return nn.ModuleDict({str(i): Parts(config) for i in range(config.n_layer)})

    def run(self, x):
        for block in self.h.values():
            x = block(x)
        return x


@right(MODEL)
class BlocksInASequential(Good):
    def blocks(self, config):
        return nn.Sequential(*(Parts(config) for _ in range(config.n_layer)))

    def run(self, x):
        return self.h(x)


@right(MODEL)
class BlocksByReduce(Good):
    def run(self, x):
        return functools.reduce(lambda x, block: block(x), self.h, x)

    def head(self, x):
        return torch.einsum("btc,vc->btv", x, self.wte.weight)


@right(MODEL)
class PositionsAsASlice(Good):
    def embed(self, idx):
        return self.wte.weight[idx] + self.wpe.weight[: idx.shape[1]]


@right(MODEL)
class PositionsAsABuffer(Good):
    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("places", torch.arange(config.n_ctx), persistent=False)

    def positions(self, idx):
        return self.places[: idx.shape[1]].expand_as(idx)


@right(MODEL)
class OneHotTables(Good):
    def embed(self, idx):
        one_hot = F.one_hot(idx, self.config.vocab_size).to(self.wte.weight.dtype)
        return one_hot @ self.wte.weight + self.wpe.weight[: idx.shape[1]]


@right(MODEL)
class SequencesOneByOne(Good):
    def run(self, x):
        return torch.stack([super(SequencesOneByOne, self).run(row[None])[0] for row in x])


@right(MODEL)
class LossByHand(Good):
    def loss(self, logits, targets, idx):
        counts = targets != -100
        chosen, wanted = logits[counts], targets[counts]
        return (chosen.logsumexp(-1) - chosen.gather(1, wanted[:, None])[:, 0]).mean()


@right(MODEL)
class LossFromLogSoftmax(Good):
    def loss(self, logits, targets, idx):
        return F.cross_entropy(logits.log_softmax(-1).reshape(-1, logits.shape[-1]), targets.reshape(-1))


@right(MODEL)
class LossOverTheSum(Good):
    def loss(self, logits, targets, idx):
        V = logits.shape[-1]
        total = F.cross_entropy(logits.reshape(-1, V), targets.reshape(-1), reduction="sum")
        return total / (targets != -100).sum()


class TooLong(ValueError):
    pass


@right(MODEL)
class AnErrorOfItsOwn(Good):
    def refuse(self, T):
        if T > self.config.n_ctx:
            raise TooLong("the sequence is too long for this model")


@right(MODEL)
class HeadByMatmul(Good):
    def head(self, x):
        return (x.flatten(0, 1) @ self.wte.weight.T).unflatten(0, x.shape[:2])

    def loss(self, logits, targets, idx):
        rows = [F.cross_entropy(logits[:, t], targets[:, t], reduction="sum") for t in range(targets.shape[1])]
        return sum(rows) / (targets != -100).sum()


@right(MODEL)
class LossRoundTripInDouble(Good):
    def loss(self, logits, targets, idx):
        return super().loss(logits.double(), targets, idx).to(logits.dtype)


@right(MODEL)
class ReturnsAList(Good):
    def forward(self, idx, targets=None):
        return list(super().forward(idx, targets))
