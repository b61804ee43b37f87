import itertools
import math

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from solutions.pytorch import stages as reference
from solutions.pytorch.embeddings import Embedding
from solutions.pytorch.gpt import GPT, Block, init_weights
from solutions.pytorch.layers import LayerNorm
from solutions.pytorch.primitives import linear
from tests.mistakes import right, wrong

LAYERS = "pytorch.stages.partition_layers"
COST = "pytorch.stages.partition_by_cost"
SLICE = "pytorch.stages.LocalSliceGPT"

# --- partition_layers ----------------------------------------------------------------------------------


@wrong(LAYERS, "the result is None")
def prints_it(num_layers, stages, offset=None):
    reference.partition_layers(num_layers, stages, offset)


@wrong(LAYERS, "holds a value of type float")
def true_division(num_layers, stages, offset=None):
    return [num_layers / stages + extra for extra in offset or [0] * stages]


@wrong(LAYERS, "there is an entry for each layer")
def stage_of_each_layer(num_layers, stages, offset=None):
    counts = reference.partition_layers(num_layers, stages, offset)
    return [stage for stage, count in enumerate(counts) for _ in range(count)]


@wrong(LAYERS, "should be a list of ints")
def the_article_s_dict(num_layers, stages, offset=None):
    return {stage: count for stage, count in enumerate(reference.partition_layers(num_layers, stages, offset))}


@wrong(LAYERS, "holds a value of type range")
def ranges(num_layers, stages, offset=None):
    ends = [0, *itertools.accumulate(reference.partition_layers(num_layers, stages, offset))]
    return [range(a, b) for a, b in zip(ends, ends[1:])]


@wrong(LAYERS, "the last layer of each stage comes back")
def ends_of_stages(num_layers, stages, offset=None):
    return list(itertools.accumulate(reference.partition_layers(num_layers, stages, offset)))


@wrong(LAYERS, "the offset is not used")
def offset_ignored(num_layers, stages, offset=None):
    return [num_layers // stages] * stages


@wrong(LAYERS, "this is the article's rule")
def front_loaded(num_layers, stages, offset=None):
    base, left = divmod(num_layers, stages)
    return [base + (stage < left) for stage in range(stages)]


@wrong(LAYERS, "the offset is subtracted")
def offset_subtracted(num_layers, stages, offset=None):
    return [num_layers // stages - extra for extra in offset or [0] * stages]


@wrong(LAYERS, "rounded up before the offset")
def rounded_up(num_layers, stages, offset=None):
    return [math.ceil(num_layers / stages) + extra for extra in offset or [0] * stages]


@wrong(LAYERS, "besides the offset: the offset is the rest")
def rest_and_offset(num_layers, stages, offset=None):
    base, left = divmod(num_layers, stages)
    return [base + (stage < left) + extra for stage, extra in enumerate(offset or [0] * stages)]


@wrong(LAYERS, "an offset that fits is refused")
def sum_of_absolute_entries(num_layers, stages, offset=None):
    if offset is not None and sum(map(abs, offset)) != num_layers % stages:
        raise ValueError(f"the offset {offset} does not sum to {num_layers % stages}")
    return reference.partition_layers(num_layers, stages, offset)


@wrong(LAYERS, "the list offset is changed")
def offset_overwritten(num_layers, stages, offset=None):
    counts = reference.partition_layers(num_layers, stages, offset)
    if isinstance(offset, list):
        offset[:] = counts
    return counts


def loose(num_layers, stages, offset=None, rest=None):
    """The right answer, but for a remainder without an offset."""
    if offset is None and stages > 0 and num_layers % stages:
        return rest(num_layers, stages)
    return reference.partition_layers(num_layers, stages, offset)


@wrong(LAYERS, "The rest goes to the first stages: this is the article's rule")
def front_loaded_without_an_offset(num_layers, stages, offset=None):
    return loose(num_layers, stages, offset, front_loaded)


@wrong(LAYERS, "this is MindFormers' rule for inference")
def as_in_inference(num_layers, stages, offset=None):
    def rest(num_layers, stages):
        counts = [num_layers // stages] * stages
        for i in range(2, num_layers % stages + 2):
            counts[-i] += 1
        return counts

    return loose(num_layers, stages, offset, rest)


@wrong(LAYERS, "2 of the layers belong to nobody")
def rest_lost(num_layers, stages, offset=None):
    return loose(num_layers, stages, offset, lambda n, s: [n // s] * s)


@wrong(LAYERS, "The last stage takes the rest")
def rest_to_the_last(num_layers, stages, offset=None):
    return loose(num_layers, stages, offset, lambda n, s: [n // s] * (s - 1) + [n // s + n % s])


@wrong(LAYERS, "whose sum is not the remainder")
def sum_not_asked(num_layers, stages, offset=None):
    if offset is None or stages < 1:
        return reference.partition_layers(num_layers, stages, offset)
    return [num_layers // stages + extra for extra in offset]


@wrong(LAYERS, "too few or too many entries")
def length_not_asked(num_layers, stages, offset=None):
    if offset is not None and len(offset) != stages and sum(offset) == num_layers % stages:
        return [num_layers // stages + extra for extra in (*offset, *[0] * stages)][:stages]
    return reference.partition_layers(num_layers, stages, offset)


@wrong(LAYERS, "a stage in the middle without a layer")
def middle_not_asked(num_layers, stages, offset=None):
    try:
        return reference.partition_layers(num_layers, stages, offset)
    except ValueError as error:
        if "middle" not in str(error):
            raise
        return [num_layers // stages + extra for extra in offset]


@wrong(LAYERS, "fewer than 0 layers is accepted")
def ends_not_asked(num_layers, stages, offset=None):
    try:
        return reference.partition_layers(num_layers, stages, offset)
    except ValueError as error:
        if "fewer than 0" not in str(error):
            raise
        return [num_layers // stages + extra for extra in offset]


@wrong(LAYERS, "MindFormers allows it")
def one_layer_everywhere(num_layers, stages, offset=None):
    counts = reference.partition_layers(num_layers, stages, offset)
    if min(counts) < 1:
        raise ValueError(f"every stage needs at least one layer, and the counts are {counts}")
    return counts


@wrong(LAYERS, "A ValueError with a sentence is wanted, and AssertionError")
def asserts(num_layers, stages, offset=None):
    try:
        return reference.partition_layers(num_layers, stages, offset)
    except ValueError as error:
        raise AssertionError(str(error))


@wrong(LAYERS, "the ValueError says too little")
def short_words(num_layers, stages, offset=None):
    try:
        return reference.partition_layers(num_layers, stages, offset)
    except ValueError:
        raise ValueError("bad offset")


@wrong(LAYERS, "divided by stages = 0")
def divides_first(num_layers, stages, offset=None):
    base = num_layers // stages
    return reference.partition_layers(base * stages + num_layers % stages, stages, offset)


@wrong(LAYERS, "layers that divide evenly are refused")
def arguments_exchanged(num_layers, stages, offset=None):
    return reference.partition_layers(stages, num_layers, offset)


@right(LAYERS)
def with_numpy(num_layers, stages, offset=None):
    if stages <= 0:
        raise ValueError(f"there must be a stage at least, not {stages}")
    given = np.zeros(stages, int) if offset is None else np.array(offset, int)
    if given.shape != (stages,) or given.sum() != num_layers % stages:
        raise ValueError(f"the offset {given} does not fit {num_layers} layers and {stages} stages")
    counts = num_layers // stages + given
    if (counts[1:-1] < 1).any() or (counts < 0).any():
        raise ValueError(f"the stages would have {counts} layers each")
    return list(counts)


@right(LAYERS)
def in_a_loop(num_layers, stages, offset=None):
    if stages < 1:
        raise ValueError(f"{stages} stages cannot hold layers")
    if offset is None:
        offset = (0,) * stages
    if len(offset) != stages:
        raise ValueError("the offset must have an entry for every stage")
    counts = []
    for stage in range(stages):
        count = num_layers // stages + offset[stage]
        least = 0 if stage in (0, stages - 1) else 1
        if count < least:
            raise ValueError(f"stage {stage} would get {count} layers")
        counts.append(count)
    if sum(counts) != num_layers:
        raise ValueError(f"{sum(counts)} layers are given out and there are {num_layers}")
    return counts


@right(LAYERS)
def by_searching(num_layers, stages, offset=None):
    """As LayerSetting goes on: the stage of each layer, then counted."""
    counts = reference.partition_layers(num_layers, stages, offset)
    ends = np.cumsum(counts)
    of_layer = [int(np.searchsorted(ends, i + 1)) for i in range(num_layers)]
    return [of_layer.count(stage) for stage in range(stages)]


@right(LAYERS)
def rules_first(num_layers, stages, offset=None):
    problems = {
        "there must be at least one stage": stages < 1,
        "an entry of the offset for each stage, please": offset is not None and len(offset) != stages,
    }
    for words, wrong_here in problems.items():
        if wrong_here:
            raise ValueError(words)
    return reference.partition_layers(num_layers, stages, offset)


# --- partition_by_cost ---------------------------------------------------------------------------------


def cuts_of(costs, stages):
    """All partitions as lists of numbers of units."""
    n = len(costs)
    for cuts in itertools.combinations(range(1, n), stages - 1):
        yield [b - a for a, b in zip((0, *cuts), (*cuts, n))]


def stage_costs(costs, counts):
    ends = [0, *itertools.accumulate(counts)]
    return [sum(costs[a:b]) for a, b in zip(ends, ends[1:])]


def checked(costs, stages):
    if not 1 <= stages <= len(costs):
        raise ValueError(f"there are {len(costs)} units for {stages} stages, and each takes one")


@wrong(COST, "the result is None")
def cost_not_returned(costs, stages):
    reference.partition_by_cost(costs, stages)


@wrong(COST, "the units are counted, not their costs")
def even_units(costs, stages):
    checked(costs, stages)
    base, left = divmod(len(costs), stages)
    return [base + (stage < left) for stage in range(stages)]


@wrong(COST, "a stage is closed as soon as it has its share")
def greedy(costs, stages):
    from course.checks.pytorch.stages import filled

    checked(costs, stages)
    return filled(costs, stages)


@wrong(COST, "could be cheaper")
def smallest_spread(costs, stages):
    checked(costs, stages)
    return min(cuts_of(costs, stages), key=lambda counts: min(stage_costs(costs, counts)))


@wrong(COST, "the first cuts come out, whatever the costs are")
def least_sum_of_the_first(costs, stages):
    checked(costs, stages)
    return min(cuts_of(costs, stages), key=lambda counts: stage_costs(costs, counts)[0])


@wrong(COST, "could be cheaper")
def most_equal_ends(costs, stages):
    checked(costs, stages)
    return min(cuts_of(costs, stages), key=lambda counts: max(stage_costs(costs, counts)) - min(stage_costs(costs, counts)) + 3 * counts[0])


@wrong(COST, "in the order of the model")
def backwards(costs, stages):
    return reference.partition_by_cost(costs, stages)[::-1]


@wrong(COST, "embedding and head are units like the others")
def layers_only(costs, stages):
    counts = reference.partition_by_cost(costs, stages)
    if stages > 1:
        counts[0] -= 1
        counts[-1] -= 1
    return counts


@wrong(COST, "the end of each stage comes back")
def ends_of_units(costs, stages):
    return list(itertools.accumulate(reference.partition_by_cost(costs, stages)))


@wrong(COST, "the costs or the units of each stage come back")
def lists_of_costs(costs, stages):
    ends = [0, *itertools.accumulate(reference.partition_by_cost(costs, stages))]
    return [costs[a:b] for a, b in zip(ends, ends[1:])]


@wrong(COST, "could be cheaper")
def costs_rounded(costs, stages):
    return reference.partition_by_cost([int(cost) for cost in costs], stages)


@wrong(COST, "the list costs is changed")
def costs_sorted(costs, stages):
    costs.sort()
    return reference.partition_by_cost(costs, stages)


@wrong(COST, "a stage has no unit")
def empty_stages(costs, stages):
    checked(costs, stages)
    n = len(costs)
    options = itertools.combinations_with_replacement(range(n + 1), stages - 1)
    return min(([b - a for a, b in zip((0, *cuts), (*cuts, n))] for cuts in options), key=lambda counts: max(stage_costs(costs, counts)))


@wrong(COST, "a stage has no unit")
def fills_to_a_limit(costs, stages):
    """Right but for units that cost nothing, which all fit into the first stage."""
    checked(costs, stages)
    if any(costs):
        return reference.partition_by_cost(costs, stages)
    return [len(costs)] + [0] * (stages - 1)


@wrong(COST, "is wrong: tell in one sentence")
def min_of_nothing(costs, stages):
    return min(cuts_of(costs, stages), key=lambda counts: max(stage_costs(costs, counts)))


@wrong(COST, "are accepted: raise a ValueError")
def fewer_stages(costs, stages):
    return reference.partition_by_cost(costs, max(1, min(stages, len(costs)))) if costs else []


@wrong(COST, "could be cheaper")
def costs_squared(costs, stages):
    return reference.partition_by_cost([cost * cost for cost in costs], stages)


@wrong(COST, "could be cheaper")
def heads_cost_nothing(costs, stages):
    """Embedding and head are units without a cost."""
    if len(costs) < 12:
        return reference.partition_by_cost(costs, stages)
    return reference.partition_by_cost([0.0, *costs[1:-1], 0.0], stages)


def by_all_cuts(costs, stages, choose=min, key=lambda sums: max(sums)):
    if not 1 <= stages <= len(costs):
        raise ValueError(f"{len(costs)} units cannot fill {stages} stages")
    ends = [[0, *cuts, len(costs)] for cuts in itertools.combinations(range(1, len(costs)), stages - 1)]
    best = choose(ends, key=lambda e: key([sum(costs[a:b]) for a, b in zip(e, e[1:])]))
    return [b - a for a, b in zip(best, best[1:])]


@wrong(COST, "the worst cuts are taken")
def dearest_of_all(costs, stages):
    return by_all_cuts(costs, stages, choose=max)


@wrong(COST, "the cheapest stage is made as dear")
def dear_cheapest(costs, stages):
    return by_all_cuts(costs, stages, choose=max, key=lambda sums: min(sums))


@wrong(COST, "the costs are sorted first")
def sorted_first(costs, stages):
    return by_all_cuts(sorted(costs), stages)


@wrong(COST, "the cost of each stage comes back")
def costs_of_stages(costs, stages):
    ends = [0, *itertools.accumulate(by_all_cuts(costs, stages))]
    return [sum(costs[a:b]) for a, b in zip(ends, ends[1:])]


@wrong(COST, "the places of the cuts come back")
def places_of_cuts(costs, stages):
    return [*itertools.accumulate(by_all_cuts(costs, stages))][:-1]


@wrong(COST, "a row that can be cut is refused")
def as_many_stages_as_units(costs, stages):
    if not 1 <= stages < len(costs):
        raise ValueError(f"{len(costs)} units cannot fill {stages} stages")
    return by_all_cuts(costs, stages)


@right(COST)
def every_partition(costs, stages):
    checked(costs, stages)
    return min(cuts_of(costs, stages), key=lambda counts: max(stage_costs(costs, counts)))


@right(COST)
def by_recursion(costs, stages):
    checked(costs, stages)

    def best(end, left):
        if left == 1:
            return sum(costs[:end]), [end]
        found = []
        for cut in range(left - 1, end):
            dear, counts = best(cut, left - 1)
            found.append((max(dear, sum(costs[cut:end])), counts + [end - cut]))
        return min(found)

    return best(len(costs), stages)[1]


@right(COST)
def by_a_limit(costs, stages):
    """The lowest limit under which filling stage after stage needs no more than there are."""
    checked(costs, stages)
    n = len(costs)
    for limit in sorted({sum(costs[a:b]) for a in range(n) for b in range(a + 1, n + 1)}):
        counts, start = [], 0
        for end in range(1, n + 1):
            if end == n or sum(costs[start : end + 1]) > limit:
                counts.append(end - start)
                start = end
        if max(stage_costs(costs, counts)) <= limit and len(counts) <= stages:
            break
    while len(counts) < stages:                               # to cut a stage makes none dearer
        at = max(range(len(counts)), key=counts.__getitem__)
        counts[at : at + 1] = [counts[at] - 1, 1]
    return counts


@right(COST)
def ties_to_the_front(costs, stages):
    checked(costs, stages)
    return max((-max(stage_costs(costs, counts)), counts) for counts in cuts_of(costs, stages))[1]


# --- LocalSliceGPT -------------------------------------------------------------------------------------


class Right(reference.LocalSliceGPT):
    """For the variants below to go wrong with."""


@wrong(SLICE, "LocalSliceGPT is no nn.Module")
class NoModule:
    def __init__(self, config, counts, stage):
        self.wte = Embedding(config.vocab_size, config.n_embd)

    def forward(self, x):
        return x


@wrong(SLICE, "super().__init__()")
class SuperForgotten(nn.Module):
    def __init__(self, config, counts, stage):
        self.wte = Embedding(config.vocab_size, config.n_embd)

    def forward(self, x):
        return x


@wrong(SLICE, "the stage holds every layer of the model")
class Everything(GPT):
    def __init__(self, config, counts, stage):
        super().__init__(config)

    def forward(self, x):
        return super().forward(x)[0]


class Numbered(nn.Module):
    """A slice with the layers in a list that the subclass orders."""

    def __init__(self, config, counts, stage, layers=None):
        super().__init__()
        if sum(counts) != config.n_layer or not 0 <= stage < len(counts):
            raise ValueError("the counts or the stage do not fit the model")
        self.first, self.last = stage == 0, stage == len(counts) - 1
        start = sum(counts[:stage])
        if self.first or self.last:
            self.wte = Embedding(config.vocab_size, config.n_embd)
        if self.first:
            self.wpe = Embedding(config.n_ctx, config.n_embd)
        self.h = self.container([(str(i), Block(config)) for i in self.layers(start, counts, stage)])
        if self.last:
            self.ln_f = LayerNorm(config.n_embd)
        init_weights(self, config.n_layer)

    container = nn.ModuleDict

    def layers(self, start, counts, stage):
        return range(start, start + counts[stage])


@wrong(SLICE, "counted from 0")
class LocalNumbers(Numbered):
    def container(self, pairs):
        return nn.ModuleList([block for _, block in pairs])


@wrong(SLICE, "no layer has its number as its name")
class NamedWithLetters(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        self.h = nn.ModuleDict({f"layer_{name}": block for name, block in self.h.items()})


@wrong(SLICE, "one and the same parameter")
class OneBlock(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        block = Block(config)
        self.h = nn.ModuleDict({name: block for name in self.h})


@wrong(SLICE, "stages count from 0")
class StagesFromOne(Right):
    def __init__(self, config, counts, stage):
        if not 1 <= stage <= len(counts):
            raise ValueError(f"there is no stage {stage} of {len(counts)}")
        super().__init__(config, counts, stage - 1)


@wrong(SLICE, "the list counts is changed")
class CountsUsedUp(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        del counts[stage:]


@wrong(SLICE, "Python list or dict")
class PlainDict(Numbered):
    def container(self, pairs):
        return dict(pairs)


@wrong(SLICE, "the right number of layers and the wrong ones")
class AllStagesAlike(Numbered):
    def layers(self, start, counts, stage):
        return range(stage * counts[stage], (stage + 1) * counts[stage])


@wrong(SLICE, "the wrong number of layers")
class OneTooMany(Numbered):
    def layers(self, start, counts, stage):
        return range(start, min(start + counts[stage] + 1, sum(counts)))


@wrong(SLICE, "the last stage needs wte too")
class HeadForgotten(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        if self.last and not self.first:
            del self.wte


@wrong(SLICE, "It is under another name")
class HeadNamed(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        if self.last and not self.first:
            del self.wte
            self.lm_head = Embedding(config.vocab_size, config.n_embd)


@wrong(SLICE, "wte.weight belongs to the first and the last stage")
class TableEverywhere(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        self.wte = Embedding(config.vocab_size, config.n_embd)


@wrong(SLICE, "wpe.weight belongs to the first stage")
class PositionsOnTheLast(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        if self.last:
            self.wpe = Embedding(config.n_ctx, config.n_embd)


@wrong(SLICE, "ln_f.weight belongs to the last stage")
class NormEverywhere(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        self.ln_f = LayerNorm(config.n_embd)


@wrong(SLICE, "parameter too many: head.weight")
class SecondHead(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        if self.last:
            self.head = Embedding(config.vocab_size, config.n_embd)


@wrong(SLICE, "the positions are missing")
class NoPositions(Right):
    def forward(self, x):
        if not self.first:
            return super().forward(x)
        if x.shape[1] > self.config.n_ctx:
            raise ValueError("too many tokens for the positions")
        x = self.wte(x)
        for block in self.h.values():
            x = block(x)
        return linear(self.ln_f(x), self.wte.weight) if self.last else x


class Steps(Right):
    """forward in three steps, for a mistake in one of them."""

    def forward(self, x):
        if self.first:
            if x.shape[1] > self.config.n_ctx:
                raise ValueError("too many tokens for the positions")
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
        x = self.through(x)
        return self.end(x) if self.last else x

    def through(self, x):
        for block in self.h.values():
            x = block(x)
        return x

    def end(self, x):
        return linear(self.ln_f(x), self.wte.weight)


@wrong(SLICE, "the positions run backwards")
class PositionsBackwards(Steps):
    def forward(self, x):
        if not self.first or x.shape[1] > self.config.n_ctx:
            return super().forward(x)
        x = self.through(self.wte(x) + self.wpe(torch.arange(x.shape[1] - 1, -1, -1, device=x.device)))
        return self.end(x) if self.last else x


@wrong(SLICE, "a Block adds its own input already")
class ResidualTwice(Steps):
    def through(self, x):
        for block in self.h.values():
            x = x + block(x)
        return x


@wrong(SLICE, "stands at the beginning of the stage")
class NormAtTheBeginning(Steps):
    def through(self, x):
        return super().through(x if self.first else torch.nn.functional.layer_norm(x, x.shape[-1:]))


@wrong(SLICE, "from the last to the first")
class BackToFront(Steps):
    def through(self, x):
        for block in reversed(self.h.values()):
            x = block(x)
        return x


@wrong(SLICE, "the last layer of the stage is left out")
class OneLayerShort(Steps):
    def through(self, x):
        for block in list(self.h.values())[:-1]:
            x = block(x)
        return x


@wrong(SLICE, "the layers of the stage are not applied")
class LayersUnused(Steps):
    def through(self, x):
        return x


@wrong(SLICE, "ln_f is missing before the head")
class NoNorm(Steps):
    def end(self, x):
        return linear(x, self.wte.weight)


@wrong(SLICE, "the head is missing")
class NoHead(Steps):
    def end(self, x):
        return self.ln_f(x)


@wrong(SLICE, "it gives logits")
class Probabilities(Steps):
    def end(self, x):
        return super().end(x).softmax(-1)


@wrong(SLICE, "the result is a tuple")
class WithLoss(Steps):
    def forward(self, x):
        return super().forward(x), None


@wrong(SLICE, "LayerNorm stands at the end of the stage")
class NormBetweenStages(Steps):
    def forward(self, x):
        x = super().forward(x)
        return x if self.last else (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()


@wrong(SLICE, "B = 1, T = 1")
class FiveTokensOnly(Steps):
    def through(self, x):
        x = super().through(x)
        return x if x.shape[1] != 1 else x + 0.1 * torch.arange(x.shape[-1])


@wrong(SLICE, "no gradient comes out at the front")
class DetachedInput(Steps):
    def through(self, x):
        return super().through(x if self.first else x.detach())


@wrong(SLICE, "no gradient reaches wte.weight on stage 0")
class TableDetached(Steps):
    def forward(self, x):
        if not self.first:
            return super().forward(x)
        if x.shape[1] > self.config.n_ctx:
            raise ValueError("too many tokens for the positions")
        x = self.wte(x).detach() + self.wpe(torch.arange(x.shape[1], device=x.device))
        x = self.through(x)
        return self.end(x) if self.last else x


@wrong(SLICE, "the last stage")
class HeadDetached(Steps):
    def end(self, x):
        return linear(self.ln_f(x), self.wte.weight).detach()


def tensors_of(path):
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


@wrong(SLICE, "there is no method load")
class NoLoad(Right):
    load = None


@wrong(SLICE, "makes new parameters")
class NewParameters(Right):
    def load(self, path):
        tensors = tensors_of(path)
        self.load_state_dict({n: tensors[n].clone() for n in self.state_dict()}, assign=True)


@wrong(SLICE, "does not get the numbers of the file")
class NamesOnly(Right):
    def load(self, path):
        with safe_open(path, framework="pt") as file:
            for name, p in self.named_parameters():
                p = nn.Parameter(file.get_tensor(name))


@wrong(SLICE, "gets the numbers of another one")
class LocalNames(Right):
    def load(self, path):
        start = min((int(k) for k in self.h), default=0)
        with safe_open(path, framework="pt") as file, torch.no_grad():
            for name, p in self.named_parameters():
                parts = name.split(".")
                if parts[0] == "h":
                    parts[1] = str(int(parts[1]) - start)
                p.copy_(file.get_tensor(".".join(parts)))


@wrong(SLICE, "your code raises RuntimeError: a leaf Variable")
class GradOn(Right):
    def load(self, path):
        with safe_open(path, framework="pt") as file:
            for name, p in self.named_parameters():
                p.copy_(file.get_tensor(name))


@wrong(SLICE, "stay float32")
class HalfStays(Right):
    def load(self, path):
        tensors = tensors_of(path)
        for name, p in self.named_parameters():
            p.data = tensors[name].clone()


@wrong(SLICE, "a file that fits is refused")
class ListAgainstTuple(Right):
    def load(self, path):
        with safe_open(path, framework="pt") as file:
            for name, p in self.named_parameters():
                if file.get_slice(name).get_shape() != tuple(p.shape):
                    raise ValueError(f"{name} has another shape in the file")
        super().load(path)


@wrong(SLICE, "a weight is transposed")
class TransposedAsInGPT2(Right):
    def load(self, path):
        super().load(path)
        with torch.no_grad():
            for name, p in self.named_parameters():
                if name.endswith("attn.c_proj.weight"):
                    p.copy_(p.t().clone())


@wrong(SLICE, "is frozen after load")
class Frozen(Right):
    def load(self, path):
        super().load(path)
        self.requires_grad_(False)


@wrong(SLICE, "load asks for tensors that other stages own")
class WholeModelFirst(Right):
    def load(self, path):
        whole = GPT(self.config)
        whole.load_state_dict(load_file(path))
        self.load_state_dict({n: p for n, p in whole.state_dict().items() if n in self.state_dict()})


@wrong(SLICE, "load stops at a tensor that the stage does not own")
class Strict(Right):
    def load(self, path):
        super().load(path)
        with safe_open(path, framework="pt") as file:
            if "unknown" in file.keys():
                raise ValueError("the file has tensors that nobody asked for")


@wrong(SLICE, "fetches every tensor of the file")
class LoadsAndThrowsAway(Right):
    def load(self, path):
        tensors = load_file(path)
        state = {n: tensors[n] for n in self.state_dict() if n in tensors}
        try:
            self.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(str(error))


@wrong(SLICE, "is missing, and SafetensorError is raised")
class MissingNotAsked(Right):
    def load(self, path):
        with safe_open(path, framework="pt") as file, torch.no_grad():
            for name, p in self.named_parameters():
                p.copy_(file.get_tensor(name))


@wrong(SLICE, "load passes without a word")
class SkipsMissing(Right):
    def load(self, path):
        with safe_open(path, framework="pt") as file, torch.no_grad():
            for name, p in self.named_parameters():
                if name in file.keys():
                    p.copy_(file.get_tensor(name))


@wrong(SLICE, "would broadcast, and load passes without a word")
class Broadcasts(Right):
    def load(self, path):
        try:
            super().load(path)
        except ValueError as error:
            if "h.3.ln_2" not in str(error):
                raise
            with torch.no_grad():
                self.h["3"].ln_2.weight.fill_(1.0)


@wrong(SLICE, "changes parameters before it says so")
class HalfALoad(Right):
    def load(self, path):
        with safe_open(path, framework="pt") as file, torch.no_grad():
            for name, p in self.named_parameters():
                if name not in file.keys() or file.get_slice(name).get_shape() != list(p.shape):
                    raise ValueError(f"{name} is not in the file, or not in this shape")
                p.copy_(file.get_tensor(name))


@wrong(SLICE, "counts the layers of the stage")
class LocalDepth(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        init_weights(self, counts[stage] or 1)


@wrong(SLICE, "init_weights is not called")
class NotInitialised(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        for name, block in list(self.h.items()):
            self.h[name] = Block(config)


@wrong(SLICE, "counts that give fewer layers")
class CountsNotAsked(Right):
    def __init__(self, config, counts, stage):
        from dataclasses import replace

        super().__init__(replace(config, n_layer=sum(counts)), counts, stage)
        init_weights(self, config.n_layer)


@wrong(SLICE, "stage -1 is accepted")
class StageFromBehind(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage % len(counts) if stage < 0 else stage)


@wrong(SLICE, "more than n_ctx tokens raise IndexError")
class TooLongNotAsked(Steps):
    def forward(self, x):
        if self.first:
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
        x = self.through(x)
        return self.end(x) if self.last else x


@wrong(SLICE, "the positions are made on the CPU")
class PositionsOnCPU(Steps):
    def forward(self, x):
        if self.first:
            if x.shape[1] > self.config.n_ctx:
                raise ValueError("too many tokens for the positions")
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        x = self.through(x)
        return self.end(x) if self.last else x


@wrong(SLICE, "float64")
class SinglePrecision(Steps):
    def through(self, x):
        return super().through(x.to(next(self.parameters()).dtype)).float().to(x.dtype)


@right(SLICE)
class InSteps(Steps):
    pass


@right(SLICE)
class SubmodulesByHand(nn.Module):
    """Layers in a bare module, by add_module; load through load_state_dict."""

    def __init__(self, config, counts, stage):
        super().__init__()
        if sum(counts) != config.n_layer or stage not in range(len(counts)):
            raise ValueError(f"counts {counts} and stage {stage} do not fit {config.n_layer} layers")
        self.n_ctx, self.stage, self.stages = config.n_ctx, stage, len(counts)
        if stage in (0, len(counts) - 1):
            self.wte = Embedding(config.vocab_size, config.n_embd)
        if stage == 0:
            self.wpe = Embedding(config.n_ctx, config.n_embd)
        self.h = nn.Module()
        for i, owner in enumerate(s for s, n in enumerate(counts) for _ in range(n)):
            if owner == stage:
                self.h.add_module(str(i), Block(config))
        if stage == len(counts) - 1:
            self.ln_f = LayerNorm(config.n_embd)
        init_weights(self, config.n_layer)

    def forward(self, x):
        if self.stage == 0:
            if x.shape[1] > self.n_ctx:
                raise ValueError(f"at most {self.n_ctx} tokens fit in here")
            x = self.wte.weight[x] + self.wpe.weight[: x.shape[1]]
        for block in self.h.children():
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T if self.stage == self.stages - 1 else x

    def load(self, path):
        with safe_open(path, "pt") as file:
            missing = set(self.state_dict()) - set(file.keys())
            if missing:
                raise ValueError(f"these are not in the file: {sorted(missing)}")
            state = {name: file.get_tensor(name) for name in self.state_dict()}
        try:
            for name, p in self.named_parameters():
                if state[name].shape != p.shape:
                    raise ValueError(f"{name} has another shape in the file")
            self.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(str(error)) from error


@right(SLICE)
class CutFromTheWhole(nn.Module):
    """The parts of a whole GPT, the others thrown away."""

    def __init__(self, config, counts, stage):
        super().__init__()
        if sum(counts) != config.n_layer or not 0 <= stage < len(counts):
            raise ValueError(f"counts {counts} and stage {stage} do not fit {config.n_layer} layers")
        whole, ends = GPT(config), [0, *itertools.accumulate(counts)]
        self.last = stage + 1 == len(counts)
        if stage == 0:
            self.wte, self.wpe = whole.wte, whole.wpe
        self.h = nn.ModuleDict({str(i): whole.h[i] for i in range(ends[stage], ends[stage + 1])})
        if self.last:
            self.wte, self.ln_f = whole.wte, whole.ln_f

    def forward(self, x):
        if hasattr(self, "wpe"):
            n_ctx = self.wpe.weight.shape[0]
            if x.shape[1] > n_ctx:
                raise ValueError(f"the model has {n_ctx} positions and {x.shape[1]} tokens came")
            x = self.wte(x) + self.wpe.weight[: x.shape[1]]
        for name in self.h:
            x = self.h[name](x)
        if self.last:
            x = torch.matmul(self.ln_f(x), self.wte.weight.t())
        return x

    load = reference.LocalSliceGPT.load


@right(SLICE)
class DataCopied(Right):
    def load(self, path):
        with safe_open(path, framework="pt", device="cpu") as file:
            found = {n: file.get_slice(n).get_shape() if n in file.keys() else None for n, _ in self.named_parameters()}
            for name, p in self.named_parameters():
                if found[name] != list(p.shape):
                    raise ValueError(f"{name} should have shape {list(p.shape)} and has {found[name]}")
            for name, p in self.named_parameters():
                p.data[...] = file.get_tensor(name)
