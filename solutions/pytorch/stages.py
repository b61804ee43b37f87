"""Which layers a pipeline stage owns, and the part of the GPT that it holds."""
import safetensors
import torch
from torch import nn

from .embeddings import Embedding
from .gpt import Block, init_weights
from .layers import LayerNorm
from .primitives import linear


def partition_layers(num_layers, stages, offset=None):
    """Layers of each stage, a list of ints: num_layers // stages + offset, as MindFormers divides them (2.1.0, LayerSetting).

    offset: one int a stage, which together give the remainder num_layers % stages; None for zeros.

    ValueError, by MindFormers' rules: offset of another length or sum; a stage in the middle without a layer; the first
    or the last stage with fewer than 0 (they still own the embedding and the head). And by our own: stages below 1.
    """
    if stages < 1:
        raise ValueError(f"stages is {stages} and must be at least 1")
    if isinstance(offset, int):
        raise TypeError(f"offset is the number {offset} and must be a list with an entry for each stage")
    offset = [0] * stages if offset is None else list(offset)
    base, remainder = divmod(num_layers, stages)
    if len(offset) != stages:
        raise ValueError(f"offset has {len(offset)} entries for {stages} stages: give one for each stage")
    if sum(offset) != remainder:
        raise ValueError(f"offset sums to {sum(offset)} and must sum to {num_layers} % {stages} = {remainder}: say which stages take the layers that are left over")
    counts = [base + extra for extra in offset]
    if min(counts[0], counts[-1]) < 0:
        raise ValueError(f"the layers of the stages would be {counts}: the first and the last stage cannot have fewer than 0")
    if any(count < 1 for count in counts[1:-1]):
        raise ValueError(f"the layers of the stages would be {counts}: a stage in the middle needs at least 1")
    return counts


def partition_by_cost(costs, stages):
    """Units of each stage, a list of ints of at least 1, in order, so that the dearest stage is as cheap as it can be.

    costs: a number for each unit, in the order of the model: embedding, layers, head. If several answers are best, any.
    ValueError if stages is below 1 or there are fewer units than stages.
    """
    if not 1 <= stages <= len(costs):
        raise ValueError(f"{len(costs)} units cannot fill {stages} stages: each stage takes at least one")
    n = len(costs)
    best = {end: (sum(costs[:end]), [end]) for end in range(1, n + 1)}   # for the first `end` units: (dearest stage, counts)
    for stage in range(2, stages + 1):
        best = {
            end: min((max(best[cut][0], sum(costs[cut:end])), [*best[cut][1], end - cut]) for cut in range(stage - 1, end))
            for end in range(stage, n + 1)
        }
    return best[n][1]


def stage_of_rank(rank, world_size, stages):
    """The stage of a rank where each stage has world_size // stages ranks, one after the other (MindFormers 2.1.0, get_current_rank_stage).

    ValueError if stages does not divide world_size, or there is no such rank.
    """
    if stages < 1 or world_size % stages != 0:
        raise ValueError(f"{world_size} ranks cannot be divided among {stages} stages: every stage needs the same number")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank is {rank} and ranks run from 0 to {world_size - 1}")
    return rank // (world_size // stages)


class LocalSliceGPT(nn.Module):
    """The part of a GPT that one stage owns, under the names it has in the whole model: h.4 is h.4 on whichever stage.

    The first stage has wte and wpe, each its layers, the last ln_f and a wte of its own, for the head.
    counts: layers of each stage. forward(x): ids (B, T) on the first stage, else (B, T, n_embd); gives (B, T, n_embd),
    the last stage logits (B, T, V). ValueError if counts do not give n_layer, there is no such stage, or T > n_ctx.
    """

    def __init__(self, config, counts, stage):
        super().__init__()
        if sum(counts) != config.n_layer:
            raise ValueError(f"the stages have {sum(counts)} layers in all and the model has {config.n_layer}")
        if not 0 <= stage < len(counts):
            raise ValueError(f"there is no stage {stage}: there are {len(counts)}, counted from 0")
        self.config = config
        self.first, self.last = stage == 0, stage == len(counts) - 1
        start = sum(counts[:stage])
        if self.first or self.last:
            self.wte = Embedding(config.vocab_size, config.n_embd)
        if self.first:
            self.wpe = Embedding(config.n_ctx, config.n_embd)
        self.h = nn.ModuleDict({str(i): Block(config) for i in range(start, start + counts[stage])})
        if self.last:
            self.ln_f = LayerNorm(config.n_embd)
        init_weights(self, config.n_layer)

    def forward(self, x):
        if self.first:
            B, T = x.shape
            if T > self.config.n_ctx:
                raise ValueError(f"{T} tokens do not fit into n_ctx = {self.config.n_ctx}: crop idx to its last n_ctx columns")
            x = self.wte(x) + self.wpe(torch.arange(T, device=x.device))   # (B, T, C)
        for block in self.h.values():
            x = block(x)
        if self.last:
            x = linear(self.ln_f(x), self.wte.weight)         # (B, T, V)
        return x

    def load(self, path):
        """Read the parameters of this stage, and no others, from a safetensors file of the whole GPT.

        ValueError if one is missing there or has another shape; nothing is changed then.
        """
        params = dict(self.named_parameters())
        with safetensors.safe_open(path, framework="pt") as file:
            names = set(file.keys())
            for name, p in params.items():
                if name not in names:
                    raise ValueError(f"{path} has no {name}, which this stage needs")
                shape = tuple(file.get_slice(name).get_shape())
                if shape != tuple(p.shape):
                    raise ValueError(f"{name} has shape {shape} in {path} and {tuple(p.shape)} here")
            with torch.no_grad():
                for name, p in params.items():
                    p.copy_(file.get_tensor(name))
