"""Checks of lesson 19, second half: partition_layers, partition_by_cost, LocalSliceGPT. Oracles: MindFormers' formula, all partitions, functional GPT-2."""
import itertools
import math
import tempfile
from numbers import Integral
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from course.checks import checks
from course.checks.pytorch import call, close, equal, fail, is_tensor, keeps_device, parameters_are, rand, rand_ids, same
from course.checks.pytorch import gpt as oracle

LAYERS = "pytorch.stages.partition_layers"
COST = "pytorch.stages.partition_by_cost"
SLICE = "pytorch.stages.LocalSliceGPT"


# --- partition_layers ----------------------------------------------------------------------------------


def listed(got, stages, what):
    """got as a list of ints, one a stage."""
    if got is None:
        fail("the result is None. Is there a return at the end?")
    if not isinstance(got, list):
        fail(f"the result should be a list of ints, one for each stage, and is of type {type(got).__name__}.")
    for entry in got:
        if not isinstance(entry, Integral) or isinstance(entry, bool):
            fail(f"the list should hold ints and holds a value of type {type(entry).__name__}.", example=f"{what} is {got}", look="// instead of /, and numbers of layers instead of ranges")
    if len(got) != stages:
        fail(f"the list has {len(got)} entries for {stages} stages: one number of layers for each stage.", example=f"{what} is {got}")
    return [int(entry) for entry in got]


def asked(partition, num_layers, stages, offset=None):
    """partition(...) and how it is written, with the offset checked for changes."""
    words = f"partition_layers({num_layers}, {stages}{'' if offset is None else f', {offset}'})"
    given = None if offset is None else type(offset)(offset)
    got = partition(num_layers, stages) if offset is None else partition(num_layers, stages, given)
    if given != offset:
        fail("the list offset is changed: whoever called you still needs it.", example=f"{offset} became {given}", look="+= and assignments into offset; make a list of your own")
    return got, words


def article(num_layers, stages):
    """What is left over goes to the first stages."""
    base, left = divmod(num_layers, stages)
    return [base + (i < left) for i in range(stages)]


def inference(num_layers, stages):
    """MindFormers 2.1.0, get_num_layers_and_offset without an offset: to the stages before the last, from behind."""
    counts = [num_layers // stages] * stages
    for i in range(2, num_layers - sum(counts) + 2):
        counts[-i] += 1
    return counts


def known_counts(num_layers, stages, offset):
    """(mistake in words, counts)"""
    base, left = divmod(num_layers, stages)
    offset = list(offset or [0] * stages)
    right = [base + extra for extra in offset]
    ends = list(itertools.accumulate(right))
    return [
        ("the offset is not used.", [base] * stages),
        ("the offset is subtracted; it is added.", [base - extra for extra in offset]),
        ("the offset is read from the last stage to the first.", right[::-1]),
        ("the offset alone comes back; it is what is added to num_layers // stages.", offset),
        ("the last layer of each stage comes back; the number of its layers is wanted.", ends),
        ("the first layer of each stage comes back; the number of its layers is wanted.", [0, *ends[:-1]]),
        ("the number of layers is rounded up before the offset is added: num_layers // stages rounds down.", [-(-num_layers // stages) + extra for extra in offset]),
        ("the rest is given to the first stages besides the offset: the offset is the rest.", [a + extra for a, extra in zip(article(num_layers, stages), offset)]),
        ("the rest goes to the first stages, one each, and the offset is not used: this is the article's rule.", article(num_layers, stages)),
        ("the offset is added twice.", [base + 2 * extra for extra in offset]),
        ("the offset is added up from stage to stage; each entry is of its own stage.", [base + extra for extra in itertools.accumulate(offset)]),
        ("the offset of the next stage is used.", [base + extra for extra in offset[1:] + offset[:1]]),
    ]


def counts_are(got, want, words, known=()):
    if got == want:
        return
    for mistake, value in known:
        if got == value:
            fail(mistake, example=f"{words} is {got}, expected {want}")
    fail("the numbers of layers are wrong.", example=f"{words} is {got}, expected {want}", look="num_layers // stages, and the entry of the offset that belongs to the stage")


@checks(LAYERS, "equal shares")
def layers_even(partition_layers):
    for num_layers, stages in [(12, 4), (12, 12), (24, 3), (5, 1), (40, 8)]:
        try:
            got, words = asked(partition_layers, num_layers, stages)
        except ValueError as error:
            fail("layers that divide evenly are refused, without an offset.", example=f"partition_layers({num_layers}, {stages}): ValueError: {str(error)[:80]}", look="what is divided by what, and what stands for an offset of None")
        if isinstance(got, list) and len(got) == num_layers != stages:
            fail("there is an entry for each layer: the number of layers of each stage is wanted.", example=f"{words} is {got}, expected {[num_layers // stages] * stages}")
        counts_are(listed(got, stages, words), [num_layers // stages] * stages, words, known_counts(num_layers, stages, None))


@checks(LAYERS, "an offset for each stage")
def layers_offset(partition_layers):
    for num_layers, stages, offset in [
        (14, 4, [0, 1, 1, 0]), (20, 4, [-2, 1, 1, 0]), (5, 3, [1, 1, 0]), (5, 3, [0, 1, 1]), (13, 4, (0, 0, 2, -1)), (61, 8, [1, 0, 1, 2, 1, 0, 1, -1]), (12, 4, [1, 0, 0, -1]),
    ]:
        try:
            got, words = asked(partition_layers, num_layers, stages, offset)
        except ValueError as error:
            fail("an offset that fits is refused: its entries may be below 0, their sum is the remainder, and no stage is empty.", example=f"partition_layers({num_layers}, {stages}, {offset}): ValueError: {str(error)[:80]}")
        want = [num_layers // stages + extra for extra in offset]
        counts_are(listed(got, stages, words), want, words, known_counts(num_layers, stages, offset))


def refused(partition, rule, num_layers, stages, offset=None, known=()):
    """partition(...) must raise ValueError with a sentence."""
    try:
        got, words = asked(partition, num_layers, stages, offset)
    except ValueError as error:
        if len(str(error).split()) < 4:
            fail("the ValueError says too little: tell in one sentence what was given and what is needed.", example=f"ValueError: {error}")
        return
    except ZeroDivisionError:
        fail(f"a number is divided by stages = {stages} before anybody asks whether there are stages: raise a ValueError with a sentence.")
    except Exception as error:
        fail(f"{rule} A ValueError with a sentence is wanted, and {type(error).__name__} is raised.", example=f"{num_layers} layers, {stages} stages, offset {offset}: {type(error).__name__}: {str(error)[:60]}")
    for mistake, value in known:
        if got == value:
            fail(f"{mistake} {rule}", example=f"{words} is {got}, expected a ValueError")
    fail(rule, example=f"{words} is {got}, expected a ValueError")


@checks(LAYERS, "a remainder without an offset")
def layers_remainder(partition_layers):
    for num_layers, stages in [(14, 4), (5, 3), (13, 4), (3, 4)]:
        base, left = divmod(num_layers, stages)
        refused(partition_layers, f"{num_layers} layers do not divide among {stages} stages, and nobody said who takes the rest: MindFormers stops there in training.", num_layers, stages, known=[
            (f"{left} of the layers belong to nobody.", [base] * stages),
            ("The rest goes to the first stages: this is the article's rule.", article(num_layers, stages)),
            ("The rest goes to the stages before the last: this is MindFormers' rule for inference.", inference(num_layers, stages)),
            ("The last stage takes the rest.", [base] * (stages - 1) + [base + left]),
            ("The first stage takes the rest.", [base + left] + [base] * (stages - 1)),
        ])


@checks(LAYERS, "offsets that do not fit")
def layers_bad_offset(partition_layers):
    rest = "an offset whose sum is not the remainder num_layers % stages is accepted: layers would be lost or invented."
    for num_layers, stages, offset in [(14, 4, [0, 1, 0, 0]), (12, 4, [1, 0, 0, 0]), (14, 4, [1, 1, 1, 0]), (5, 3, [0, 0, 0]), (14, 4, [1, -1, 1, 0]), (12, 4, [1, 1, 1, 1])]:
        refused(partition_layers, rest, num_layers, stages, offset)
    length = "an offset with too few or too many entries is accepted: it needs one for each stage."
    for num_layers, stages, offset in [(14, 4, [1, 1]), (14, 4, [0, 1, 1, 0, 0]), (12, 4, []), (12, 4, [0, 0, 0]), (13, 3, [1])]:
        refused(partition_layers, length, num_layers, stages, offset)


@checks(LAYERS, "stages without layers")
def layers_empty(partition_layers):
    middle = "a stage in the middle without a layer is accepted: it would hold nothing at all."
    for offset in ([1, -2, 1, 0], [1, 1, -2, 0], [0, -3, 3, 0]):
        refused(partition_layers, middle, 8, 4, offset)
    ends = "a first or last stage with fewer than 0 layers is accepted."
    for offset in ([-3, 1, 1, 1], [1, 1, 1, -3]):
        refused(partition_layers, ends, 8, 4, offset)
    for num_layers, stages, offset in [(8, 4, [-2, 1, 1, 0]), (8, 4, [0, 1, 1, -2]), (4, 2, [2, -2]), (3, 4, [1, 1, 1, 0]), (8, 4, [-1, -1, 2, 0])]:
        words = f"partition_layers({num_layers}, {stages}, {offset})"
        want = [num_layers // stages + extra for extra in offset]
        try:
            got = partition_layers(num_layers, stages, list(offset))
        except ValueError as error:
            fail("a first or last stage without layers, or a stage with a single one, is refused: MindFormers allows it, since the ends still own the embedding and the head.", example=f"{words}: ValueError: {str(error)[:80]}; expected {want}")
        counts_are(listed(got, stages, words), want, words)


@checks(LAYERS, "how many stages")
def layers_stages(partition_layers):
    for stages in (0, -1):
        refused(partition_layers, "fewer than one stage is accepted.", 12, stages)


# --- partition_by_cost ---------------------------------------------------------------------------------


def dearest(costs, counts):
    ends = [0, *itertools.accumulate(counts)]
    return max(sum(costs[a:b]) for a, b in zip(ends, ends[1:]))


def cheapest(costs, stages):
    """All partitions, one by one: the lowest cost of the dearest stage."""
    n = len(costs)
    return min(dearest(costs, [b - a for a, b in zip((0, *cuts), (*cuts, n))]) for cuts in itertools.combinations(range(1, n), stages - 1))


def filled(costs, stages):
    """A stage is closed as soon as it holds its share of the sum, or as many units are left as stages."""
    share, counts = sum(costs) / stages, [0]
    held = 0.0
    for i, cost in enumerate(costs):
        if counts[-1] and len(counts) < stages and (held >= share or len(costs) - i <= stages - len(counts)):
            counts.append(0)
            held = 0.0
        counts[-1] += 1
        held += cost
    return counts


def all_cuts(costs, stages):
    n = len(costs)
    return [[b - a for a, b in zip((0, *cuts), (*cuts, n))] for cuts in itertools.combinations(range(1, n), stages - 1)]


def cheapest_stage(costs, counts):
    ends = [0, *itertools.accumulate(counts)]
    return min(sum(costs[a:b]) for a, b in zip(ends, ends[1:]))


LISTS = [
    ([1, 1, 1, 1, 4], 2), ([4, 1, 1, 1, 1], 2), ([1, 2, 3, 4, 5, 6], 3), ([6, 5, 4, 3, 2, 1], 3), ([2, 9, 1, 1, 8, 3, 1], 3), ([5, 1, 1, 1, 1, 1, 9], 4),
    ([3, 3, 3], 1), ([7, 1, 2], 3), ([0.5, 0.25, 4.0, 0.25, 0.5, 3.5], 3),
]


def divided(partition, costs, stages):
    given = list(costs)
    words = f"partition_by_cost({costs}, {stages})" if len(costs) < 9 else f"partition_by_cost of {len(costs)} units, {stages} stages,"
    try:
        got = partition(given, stages)
    except ValueError as error:
        fail("a row that can be cut is refused: one stage is enough, and as many stages as units are possible.", example=f"{words}: ValueError: {str(error)[:80]}")
    if given != costs:
        fail("the list costs is changed: whoever called you still needs it.", example=f"{costs} became {given}", look="sort, pop and assignments into costs")
    if isinstance(got, list) and len(got) == stages and all(isinstance(part, (list, tuple)) for part in got):
        fail("the costs or the units of each stage come back: the number of its units is wanted.", example=f"{words} is {got}")
    numbers = isinstance(got, list) and got and all(isinstance(part, (int, float)) for part in got)
    if numbers and any(isinstance(part, float) for part in got) and len(got) == stages and sum(got) != len(costs) and math.isclose(sum(got), sum(costs)):
        fail("the cost of each stage comes back: the number of its units is wanted.", example=f"{words} is {got}")
    if numbers and len(got) == stages - 1:
        fail("the places of the cuts come back, one fewer than stages: the number of units of each stage is wanted.", example=f"{words} is {got}")
    counts = listed(got, stages, words)
    ends = list(itertools.accumulate(counts))
    if sum(counts) != len(costs):
        if counts[-1] == len(costs) and counts == sorted(counts):
            fail("the end of each stage comes back; the number of its units is wanted.", example=f"{words} is {counts}")
        if stages > 1 and sum(counts) == len(costs) - 2:
            fail("two units are left out of the numbers: embedding and head are units like the others, and so is what costs nothing.", example=f"{words} is {counts}, {sum(counts)} units of {len(costs)}")
        fail("the stages do not hold all units, or hold some twice.", example=f"{words} is {counts}, {ends[-1]} units of {len(costs)}")
    if min(counts) < 1:
        fail("a stage has no unit: each takes at least one.", example=f"{words} is {counts}")
    return counts, words


@checks(COST, "all units, at least one a stage")
def cost_form(partition_by_cost):
    for costs, stages in [([1, 1, 1, 1], 2), ([1.0, 2.0, 3.0], 3), ([2, 5], 1), ([5, 1, 1, 1, 1, 1], 4), ([9, 1, 1], 3)]:
        divided(partition_by_cost, costs, stages)


def is_cheapest(partition, costs, stages, name="the dearest stage"):
    counts, words = divided(partition, costs, stages)
    want = cheapest(costs, stages)
    got = dearest(costs, counts)
    if got <= want * (1 + 1e-9):
        return
    example = f"{words} is {counts}: its dearest stage costs {got:.4g}, and {want:.4g} is possible"
    look = "whether every place of every cut is tried"
    fail(f"{name} could be cheaper.", example=example, look=look)


@checks(COST, "the dearest stage")
def cost_best(partition_by_cost):
    found = [divided(partition_by_cost, costs, stages)[0] for costs, stages in LISTS]
    forth, back = ([math.isclose(dearest(costs, counts), cheapest(costs, stages)) for counts, (costs, stages) in zip(results, LISTS)] for results in (found, [counts[::-1] for counts in found]))
    if all(back) and not all(forth):
        fail("the stages come from the last to the first: the result is in the order of the model.", example=f"partition_by_cost{LISTS[0]} is {found[0]}")
    for mistake, algorithm in [
        ("the units are counted, not their costs.", lambda costs, stages: article(len(costs), stages)),
        ("the units are counted, not their costs.", lambda costs, stages: inference(len(costs), stages)),
        ("a stage is closed as soon as it has its share of the sum: what is left for the last stages is not looked at.", filled),
        ("the costs are sorted first: the units stay in the order of the model.", lambda costs, stages: min(all_cuts(sorted(costs), stages), key=lambda c: dearest(sorted(costs), c))),
        ("the first cuts come out, whatever the costs are: what is compared says nothing about the dearest stage.", lambda costs, stages: all_cuts(costs, stages)[0]),
        ("the last cuts come out, whatever the costs are: what is compared says nothing about the dearest stage.", lambda costs, stages: all_cuts(costs, stages)[-1]),
        ("the worst cuts are taken: the dearest stage is to be as cheap as it can be.", lambda costs, stages: max(all_cuts(costs, stages), key=lambda c: dearest(costs, c))),
        ("the cheapest stage is made as dear as it can be; the dearest is to be made cheap.", lambda costs, stages: max(all_cuts(costs, stages), key=lambda c: cheapest_stage(costs, c))),
    ]:
        if not all(forth) and found == [algorithm(costs, stages) for costs, stages in LISTS]:
            at = forth.index(False)
            costs, stages = LISTS[at]
            fail(mistake, example=f"partition_by_cost({costs}, {stages}) is {found[at]}: its dearest stage costs {dearest(costs, found[at])}, and {cheapest(costs, stages)} is possible")
    for costs, stages in LISTS:
        is_cheapest(partition_by_cost, costs, stages)


@checks(COST, "an embedding, layers and a dear head")
def cost_gpt(partition_by_cost):
    for costs, stages in [([0.1, *[1.0] * 12, 5.4], 4), ([0.3, *[1.0] * 14, 2.5], 4), ([0.1, *[1.0] * 5, 3.0], 3), ([0, *[1] * 9, 0], 3), ([2.2, *[1.0] * 10, 2.2], 5)]:
        is_cheapest(partition_by_cost, costs, stages)
    for seed in range(12):
        costs = [round(float(x), 3) for x in rand(9, seed=seed).abs()]
        for stages in (2, 3, 5):
            is_cheapest(partition_by_cost, costs, stages)


@checks(COST, "units that cost nothing")
def cost_zeros(partition_by_cost):
    for costs, stages in [([0, 0, 0, 0], 3), ([0, 0, 5], 2), ([5, 0, 0], 3), ([0.0, 1.0, 0.0, 0.0], 4)]:
        is_cheapest(partition_by_cost, costs, stages)


@checks(COST, "numbers of stages that do not fit")
def cost_errors(partition_by_cost):
    for costs, stages in [([1, 2, 3], 4), ([1, 2, 3], 0), ([1, 2], -1), ([], 1), ([1] * 9, 10)]:
        words = f"{len(costs)} units and {stages} stages"
        try:
            got = partition_by_cost(list(costs), stages)
        except ValueError as error:
            if len(str(error).split()) < 4 or "empty" in str(error) or "unpack" in str(error):
                fail("the ValueError does not say what is wrong: tell in one sentence how many units and stages there are.", example=f"{words}: ValueError: {error}")
        except Exception as error:
            fail(f"{words} raise {type(error).__name__}; a ValueError with a sentence is wanted.", example=f"{type(error).__name__}: {str(error)[:60]}")
        else:
            fail("stages without a unit, or no stage at all, are accepted: raise a ValueError.", example=f"{words} give {got}")


# --- LocalSliceGPT -------------------------------------------------------------------------------------

CONFIG = dict(vocab_size=11, n_ctx=7, n_layer=5, n_head=3, n_embd=12)
COUNTS = [[2, 2, 1], [5], [1, 4], [0, 3, 2], [2, 3, 0]]


def shapes_of(sizes, counts, stage):
    """name -> shape of the parameters of a stage."""
    C, first, last = sizes["n_embd"], stage == 0, stage == len(counts) - 1
    start = sum(counts[:stage])
    shapes = {"wte.weight": (sizes["vocab_size"], C)} if first or last else {}
    if first:
        shapes["wpe.weight"] = (sizes["n_ctx"], C)
    for i in range(start, start + counts[stage]):
        shapes |= {
            f"h.{i}.ln_1.weight": (C,), f"h.{i}.ln_1.bias": (C,), f"h.{i}.ln_2.weight": (C,), f"h.{i}.ln_2.bias": (C,),
            f"h.{i}.attn.c_attn.weight": (3 * C, C), f"h.{i}.attn.c_attn.bias": (3 * C,), f"h.{i}.attn.c_proj.weight": (C, C), f"h.{i}.attn.c_proj.bias": (C,),
            f"h.{i}.mlp.c_fc.weight": (4 * C, C), f"h.{i}.mlp.c_fc.bias": (4 * C,), f"h.{i}.mlp.c_proj.weight": (C, 4 * C), f"h.{i}.mlp.c_proj.bias": (C,),
        }
    if last:
        shapes |= {"ln_f.weight": (C,), "ln_f.bias": (C,)}
    return shapes


def weights_of(sizes=CONFIG, scale=0.5):
    """name -> random tensor: the whole model."""
    shapes = shapes_of(sizes, [sizes["n_layer"]], 0)
    return {name: rand(*shape, seed=i, scale=scale) for i, (name, shape) in enumerate(shapes.items())}


def name_the_names(found, wanted, counts, stage):
    """Fails with the mistake that the names of a stage's parameters tell."""
    at = f"stage {stage} of {counts}"
    layers = sorted({int(n.split(".")[1]) for n in found if n.startswith("h.") and n.split(".")[1].isdigit()})
    right = sorted({int(n.split(".")[1]) for n in wanted if n.startswith("h.")})
    last, first = stage == len(counts) - 1, stage == 0
    if layers != right:
        example = f"{at} has the layers {layers}, expected {right}"
        if len(counts) > 1 and layers == list(range(sum(counts))):
            fail("the stage holds every layer of the model: it owns its own and no others.", example=example)
        if layers == list(range(len(right))) and len(right) == len(layers):
            fail("the layers of the stage are counted from 0: in the checkpoint, and on every other stage, they have their number in the whole model.", example=example, look="nn.ModuleDict (in MindSpore nn.CellDict) takes the number as a str for its key")
        if len(layers) == len(right):
            fail("the stage has the right number of layers and the wrong ones.", example=example, look="where its first layer comes: after all layers of the stages before it")
        if not layers and any(n.startswith("h.") for n in found):
            fail("no layer has its number as its name: h.<number> is what the checkpoint calls it.", example=f"{at} has {next(n for n in found if n.startswith('h.'))}, expected h.{right[0]}.…", look="the keys of the container")
        fail("the stage has the wrong number of layers.", example=example, look="counts[stage], and the end of the range")
    if "wte.weight" in wanted and "wte.weight" not in found:
        if last and not first:
            where = "under another name" if any(wanted["wte.weight"] == shape for shape in found.values()) else "not there"
            fail(f"the last stage needs wte too: the head multiplies with it. It is {where}.", example=f"{at} has no wte.weight; it has: {', '.join(n for n in found if not n.startswith('h.')) or 'layers only'}")
        fail("the first stage has no wte: it looks the tokens up.", example=f"{at} has no wte.weight")
    for name, owner in [("wte.weight", "the first and the last stage"), ("wpe.weight", "the first stage"), ("ln_f.weight", "the last stage"), ("ln_f.bias", "the last stage")]:
        if name in found and name not in wanted:
            fail(f"{name} belongs to {owner} alone: what a stage does not use costs memory and gets no gradient.", example=f"{at} has {name}")


def built(build, LocalSliceGPT, counts, stage):
    """A stage, by build(class of the sizes, sizes) of either framework; fails if it is refused or changes counts."""
    given = list(counts)
    try:
        made = build(lambda sizes: LocalSliceGPT(oracle.config(sizes), given, stage), CONFIG)
    except ValueError as error:
        fail("a stage that there is is refused: stages count from 0.", example=f"n_layer 5, counts {counts}, stage {stage}: ValueError: {str(error).strip()[:80]}", look="the questions at the start of __init__")
    if given != counts:
        fail("the list counts is changed: the other stages are made from it too.", example=f"{counts} became {given}", look="pop, sort and assignments into counts")
    return made


@checks(SLICE, "what each stage owns", seconds=20)
def slice_names(LocalSliceGPT):
    for counts in COUNTS:
        for stage in range(len(counts)):
            made = built(oracle.build, LocalSliceGPT, counts, stage)
            if not isinstance(made, nn.Module):
                fail("LocalSliceGPT is no nn.Module: without that nothing finds its parameters.", look="the line class LocalSliceGPT(nn.Module)")
            found, wanted = {n: tuple(p.shape) for n, p in made.named_parameters()}, shapes_of(CONFIG, counts, stage)
            if isinstance(getattr(made, "h", None), (list, dict)):
                fail("the layers are kept in a Python list or dict: nobody finds their parameters.", look="nn.ModuleList, nn.ModuleDict")
            for a, b in oracle.one_and_the_same(made):
                fail(f"{a} and {b} are one and the same parameter.", look="__init__: create each anew")
            name_the_names(found, wanted, counts, stage)
            parameters_are(made, wanted, f"stage {stage} of {counts}")
    if LocalSliceGPT(oracle.config(CONFIG), [2, 2, 1], 2).wte is LocalSliceGPT(oracle.config(CONFIG), [2, 2, 1], 0).wte:
        fail("two stages share their wte: they live in different processes, each has its own, and the gradients are summed.")


def stages_of(LocalSliceGPT, weights, sizes, counts):
    """The stages with these weights."""
    made = [LocalSliceGPT(oracle.config(sizes), list(counts), i) for i in range(len(counts))]
    for stage in made:
        with torch.no_grad():
            for name, p in stage.named_parameters():
                p.copy_(weights[name])
    return made


def hidden_of(p, idx, sizes, upto):
    """The stream behind the first `upto` layers."""
    x = F.embedding(idx, p["wte.weight"]) + p["wpe.weight"][: idx.shape[1]]
    for i in range(upto):
        x = oracle.block_forward(p, f"h.{i}.", x, sizes["n_head"])
    return x


def stage_known(p, x, sizes, counts, stage):
    """(mistake in words, what the stage gives with it)"""
    start, last = sum(counts[:stage]), stage == len(counts) - 1
    known = []
    y = x
    if stage == 0:
        tokens = F.embedding(x, p["wte.weight"])
        y = tokens + p["wpe.weight"][: x.shape[1]]

    def run(y, order):
        for i in order:
            y = oracle.block_forward(p, f"h.{i}.", y, sizes["n_head"])
        return y

    def twice(y, order):
        for i in order:
            y = y + oracle.block_forward(p, f"h.{i}.", y, sizes["n_head"])
        return y

    order = range(start, start + counts[stage])
    norm = lambda z: F.layer_norm(z, z.shape[-1:], p["ln_f.weight"], p["ln_f.bias"])   # noqa: E731
    end = (lambda z: F.linear(norm(z), p["wte.weight"])) if last else (lambda z: z)
    if stage == 0:
        known.append(("the positions are missing: the first stage adds wpe to the tokens.", end(run(tokens, order))))
        positions = p["wpe.weight"][: x.shape[1]]
        known.append(("the tokens are multiplied by their positions; the two are added.", end(run(tokens * positions, order))))
        known.append(("the positions run backwards.", end(run(tokens + positions.flip(0), order))))
        known.append(("the tokens are multiplied by the root of n_embd, as in other models; GPT-2 takes them as they are.", end(run(tokens * tokens.shape[-1] ** 0.5 + positions, order))))
    else:
        known.append(("a LayerNorm stands at the beginning of the stage: the stream goes into the layers as it came.", end(run(F.layer_norm(y, y.shape[-1:]), order))))
    known.append(("the layers of the stage run from the last to the first.", end(run(y, reversed(order)))))
    known.append(("the first layer of the stage is left out.", end(run(y, order[1:]))))
    known.append(("the last layer of the stage is left out.", end(run(y, order[:-1]))))
    known.append(("the layers of the stage are not applied.", end(y)))
    known.append(("x is added to what a layer gives: a Block adds its own input already.", end(twice(y, order))))
    if last:
        z = run(y, order)
        known += [
            ("ln_f is missing before the head.", F.linear(z, p["wte.weight"])),
            ("the head is missing: the last stage gives logits.", norm(z)),
            ("ln_f and the head are missing: the last stage gives logits.", z),
            ("the last stage gives probabilities; it gives logits.", end(z).softmax(-1)),
        ]
    else:
        z = run(y, order)
        known.append(("a LayerNorm stands at the end of the stage: only the last stage has ln_f.", F.layer_norm(z, z.shape[-1:])))
    return known


def out_of(stage, x, shape):
    """stage(x) as a tensor of this shape."""
    got = call(stage, x)
    if isinstance(got, tuple):
        fail("the result is a tuple: a stage gives one tensor, the stream or the logits. The loss is taken outside.")
    is_tensor(got, shape, torch.float32)
    return got


@checks(SLICE, "each stage by itself", seconds=20)
def slice_values(LocalSliceGPT):
    p = weights_of()
    idx = rand_ids(2, 5, n=11, seed=3)
    for counts in ([2, 2, 1], [0, 5, 0], [5]):
        made = stages_of(LocalSliceGPT, p, CONFIG, counts)
        for stage, module in enumerate(made):
            start, last = sum(counts[:stage]), stage == len(counts) - 1
            x = idx if stage == 0 else hidden_of(p, idx, CONFIG, start)
            want = oracle.logits_of(p, idx, CONFIG) if last else hidden_of(p, idx, CONFIG, start + counts[stage])
            got = call(module, x)
            for words, value in () if equal(got, want, 1e-5) else stage_known(p, x, CONFIG, counts, stage):
                if equal(got, value, 1e-5) and not equal(value, want, 2e-5):
                    fail(words, example=f"stage {stage} of {counts}")
            close(out_of(module, x, want.shape), want, 2e-5, name=f"the result of stage {stage} of {counts}", look="what the first, the middle and the last stage do")


@checks(SLICE, "the stages one after the other", seconds=20)
def slice_chain(LocalSliceGPT):
    for sizes, counts in [(CONFIG, [1, 1, 1, 1, 1]), (dict(CONFIG, n_layer=14), [3, 4, 4, 3]), (oracle.OTHER, [1, 1])]:
        p = weights_of(sizes, scale=0.3)
        made = stages_of(LocalSliceGPT, p, sizes, counts)
        for B, T in [(2, 5), (1, 1), (3, sizes["n_ctx"])]:
            x = idx = rand_ids(B, T, n=sizes["vocab_size"], seed=T)
            for stage in made:
                x = stage(x)
            close(x, oracle.logits_of(p, idx, sizes), 2e-5, name=f"the logits of the stages {counts}, B = {B}, T = {T}", look="sizes that are written as numbers")


@checks(SLICE, "gradients", seconds=20)
def slice_gradients(LocalSliceGPT):
    counts, p = [2, 2, 1], {n: w.requires_grad_() for n, w in weights_of(scale=0.3).items()}
    idx, targets = rand_ids(2, 5, n=11, seed=5), rand_ids(2, 5, n=11, seed=6)
    wanted = torch.autograd.grad(oracle.mean_loss(oracle.logits_of(p, idx, CONFIG), targets), list(p.values()))
    wanted = dict(zip(p, wanted))
    made = stages_of(LocalSliceGPT, p, CONFIG, counts)
    ends, x = [], idx
    for stage in made:
        x = x.detach().requires_grad_(x.is_floating_point())
        y = stage(x)
        ends.append((x, y))
        x = y
    if not x.requires_grad:
        fail("no gradient flows through the last stage.", look=".detach(), .data, torch.no_grad() and torch.tensor(...) cut the graph")
    oracle.mean_loss(x, targets).backward()
    for (_, y), (x_next, _) in zip(reversed(ends[:-1]), reversed(ends[1:])):
        if x_next.grad is None:
            fail("no gradient comes out at the front of a stage: the stage before it would learn nothing.", look=".detach(), .data, torch.no_grad() on the way")
        if not y.requires_grad:
            fail("no gradient flows through a stage.", look=".detach(), .data and torch.no_grad() on the way")
        y.backward(x_next.grad)
    found = {}
    for at, stage in enumerate(made):
        for name, q in stage.named_parameters():
            if q.grad is None:
                fail(f"no gradient reaches {name} on stage {at}.", look=".detach(), .data, requires_grad and torch.no_grad() on the way")
            found[name] = found.get(name, 0) + q.grad
    for name, want in wanted.items():
        close(found[name], want, 2e-5, name=f"the gradient of {name}, summed over the stages")


def saved(folder, tensors):
    path = Path(folder) / "model.safetensors"
    save_file({name: t.detach().contiguous() for name, t in tensors.items()}, path)
    return path


def load(stage, path):
    """stage.load(path), errors of a refused name or shape named."""
    if not callable(getattr(stage, "load", None)):
        fail("there is no method load.")
    stage.load(path)


def fitting(stage, path):
    """load() of a file that fits."""
    try:
        load(stage, path)
    except ValueError as error:
        fail("a file that fits is refused.", example=f"ValueError: {str(error)[:100]}", look="what is compared: get_shape() gives a list, and a list is never equal to a tuple")


@checks(SLICE, "load: the numbers of the file", seconds=20)
def slice_load(LocalSliceGPT):
    p = weights_of()
    with tempfile.TemporaryDirectory() as folder:
        path = saved(folder, p)
        for counts in ([2, 2, 1], [5]):
            for at in range(len(counts)):
                stage = LocalSliceGPT(oracle.config(CONFIG), list(counts), at)
                before = dict(stage.named_parameters())
                fitting(stage, str(path) if at else path)
                after = dict(stage.named_parameters())
                for name, q in after.items():
                    if name not in before or q is not before[name]:
                        fail("load makes new parameters: an optimizer that knows the old ones trains nothing. Write the numbers into those that are there.", example=name, look="copy_ in torch.no_grad(), or load_state_dict without assign=True")
                    if not q.requires_grad:
                        fail(f"{name} is frozen after load.", look="requires_grad")
                    if equal(q, p[name], 0):
                        continue
                    others = [n for n, w in p.items() if w.shape == q.shape and equal(q, w, 1e-6)]
                    example = f"{name} on stage {at} of {counts}"
                    if others:
                        fail("a parameter gets the numbers of another one: layers have their number in the whole model.", example=f"{example} holds {others[0]}")
                    if q.dim() == 2 and q.shape[0] == q.shape[1] and equal(q, p[name].t(), 0):
                        fail("a weight is transposed: this file has the model's own names and its own order of axes, not GPT-2's.", example=example)
                    fail("a parameter does not get the numbers of the file.", example=f"{example} is not {name} of the file", look="whether the copy reaches the parameter: p = ... only gives a name to something new")
        half = {name: w.half() for name, w in p.items()}
        path = saved(folder, half)
        stage = LocalSliceGPT(oracle.config(CONFIG), [2, 2, 1], 1)
        load(stage, path)
        for name, q in stage.named_parameters():
            if q.dtype != torch.float32 or not equal(q, half[name].float(), 0):
                fail("a file in float16 changes the dtype of the parameters, or is not read right: they stay float32.", example=f"{name} has dtype {q.dtype}")


class Fetched(TorchDispatchMode):
    """Sizes of the tensors that operations give."""

    def __init__(self):
        super().__init__()
        self.sizes = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        out = operation(*args, **(kwargs or {}))
        for t in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(t, torch.Tensor):
                self.sizes.add(tuple(t.shape))
        return out


@checks(SLICE, "load: its own tensors only", seconds=20)
def slice_load_own(LocalSliceGPT):
    p, counts = weights_of(), [2, 2, 1]
    with tempfile.TemporaryDirectory() as folder:
        for at in range(3):
            own = {n: p[n] for n in shapes_of(CONFIG, counts, at)}
            stage = LocalSliceGPT(oracle.config(CONFIG), counts, at)
            try:
                load(stage, saved(folder, own))
            except Exception as error:
                fail("load asks for tensors that other stages own.", example=f"a file with nothing but the tensors of stage {at} of {counts}: {type(error).__name__}: {str(error)[:80]}", look="which names the loop goes over: those of the stage")
            if not all(equal(q, p[n], 0) for n, q in stage.named_parameters()):
                fail("a file with nothing but the tensors of the stage is not read.", look="which names the loop goes over: those of the stage")
        stage = LocalSliceGPT(oracle.config(CONFIG), counts, 1)
        path = saved(folder, {**p, "h.4.mlp.c_fc.weight": rand(13, 17), "unknown": rand(19, 23)})
        with Fetched() as fetched:
            try:
                load(stage, path)
            except (ValueError, RuntimeError, KeyError) as error:
                fail("load stops at a tensor that the stage does not own: what others own is none of its business.", example=f"{type(error).__name__}: {str(error)[:80]}")
        if fetched.sizes & {(13, 17), (19, 23)}:
            fail("load fetches every tensor of the file and throws most of them away: the memory of one stage is what it is all about.", look="load_file gives all; safe_open and get_tensor(name) give one")


@checks(SLICE, "load: files that do not fit", seconds=20)
def slice_load_errors(LocalSliceGPT):
    p = weights_of()
    for what, change in [
        ("a tensor that the stage needs is missing", lambda t: t.pop("h.3.mlp.c_proj.bias")),
        ("a tensor has another shape", lambda t: t.update({"h.3.mlp.c_fc.weight": rand(12, 48)})),
        ("a tensor has a shape that would broadcast", lambda t: t.update({"h.3.ln_2.weight": rand(1)})),
    ]:
        with tempfile.TemporaryDirectory() as folder:
            tensors = dict(p)
            change(tensors)
            path = saved(folder, tensors)
            stage = LocalSliceGPT(oracle.config(CONFIG), [2, 2, 1], 1)
            before = {n: q.detach().clone() for n, q in stage.named_parameters()}
            try:
                load(stage, path)
            except ValueError as error:
                if "h.3." not in str(error):
                    fail(f"{what}, and the ValueError does not name it.", example=f"ValueError: {str(error)[:80]}")
            except Exception as error:
                fail(f"{what}, and {type(error).__name__} is raised; a ValueError that names the tensor is wanted.", example=f"{type(error).__name__}: {str(error)[:80]}", look="ask before you read: file.keys(), and file.get_slice(name).get_shape()")
            else:
                fail(f"{what}, and load passes without a word.", look="file.keys(), file.get_slice(name).get_shape(), copy_ (which broadcasts)")
            if not all(same(q, before[n]) for n, q in stage.named_parameters()):
                fail(f"{what}, and load changes parameters before it says so: half a load is worse than none.", look="two loops: first ask for everything, then copy")


MIDDLE = dict(oracle.MIDDLE, n_layer=6)


@checks(SLICE, "weights at the start", seconds=20)
def slice_start(LocalSliceGPT):
    made = LocalSliceGPT(oracle.config(MIDDLE), [2, 2, 2], 1)
    L = MIDDLE["n_layer"]
    for projections, std, known in [(False, 0.02, oracle.start_mistakes(L)), (True, 0.02 / math.sqrt(2 * L), [
        ("the factor of c_proj counts the layers of the stage; it counts those of the whole model.", 0.02 / math.sqrt(4)),
        ("the factor of c_proj counts the stages; it counts the layers of the whole model.", 0.02 / math.sqrt(6)),
        *oracle.projection_mistakes(L),
    ])]:
        for name, w in oracle.matrices(made, projections).items():
            oracle.check_drawn(name, w, std, known)
    a, b = (LocalSliceGPT(oracle.config(CONFIG), [2, 2, 1], 0) for _ in range(2))
    if {id(p) for p in a.parameters()} & {id(p) for p in b.parameters()} or equal(a.wte.weight, b.wte.weight, 0):
        fail("two slices start with the same numbers, or share them.", look="parts that are created outside __init__, and a seed that is set inside")


@checks(SLICE, "arguments that do not fit")
def slice_errors(LocalSliceGPT):
    for counts, stage, what in [
        ([2, 2], 0, "counts that give fewer layers than the model has"), ([2, 2, 2], 0, "counts that give more layers than the model has"),
        ([2, 2, 1], 3, "stage 3 of 3 stages, which count from 0,"), ([2, 2, 1], -1, "stage -1"),
    ]:
        try:
            LocalSliceGPT(oracle.config(CONFIG), counts, stage)
        except ValueError as error:
            if len(str(error).split()) < 4:
                fail(f"{what}: the ValueError says too little.", example=f"ValueError: {error}")
        except Exception as error:
            fail(f"{what} raises {type(error).__name__}; a ValueError with a sentence is wanted.", example=f"counts {counts}, stage {stage}: {type(error).__name__}: {str(error)[:60]}")
        else:
            fail(f"{what} is accepted: raise a ValueError.", example=f"n_layer 5, counts {counts}, stage {stage}")
    stage = LocalSliceGPT(oracle.config(CONFIG), [2, 2, 1], 0)
    try:
        stage(rand_ids(2, 8, n=11))
    except ValueError as error:
        if len(str(error).split()) < 3:
            fail("the ValueError says nothing: tell how many tokens came and how many fit.", example=f"ValueError: {error}")
    except Exception as error:
        fail(f"more than n_ctx tokens raise {type(error).__name__} on the first stage; a ValueError with a sentence is wanted, as in GPT.", example=f"T = 8, n_ctx = 7: {str(error)[:60]}")
    else:
        fail("more than n_ctx tokens are accepted on the first stage: there is no position for them.")


@checks(SLICE, "device and dtype")
def slice_device(LocalSliceGPT):
    first, middle, last = stages_of(LocalSliceGPT, weights_of(), CONFIG, [2, 2, 1])
    moved = LocalSliceGPT(oracle.config(CONFIG), [2, 2, 1], 0).to("meta")
    try:
        with oracle.PositionsToo():
            moved(rand_ids(2, 5, n=11).to("meta"))
    except oracle.PositionsOnCPU:
        fail("the positions are made on the CPU whatever device idx is on.", look="torch.arange: give it device=x.device")
    except Exception:
        pass
    keeps_device(lambda m, x: m(x), last, rand(2, 5, 12))
    x = rand(2, 5, 12, seed=8).double()
    want = oracle.block_forward({n: w.double() for n, w in middle.named_parameters()}, "h.2.", x, 3)
    want = oracle.block_forward({n: w.double() for n, w in middle.named_parameters()}, "h.3.", want, 3)
    close(middle.double()(x), want, 1e-11, name="the result in float64", look=".float(), and tensors that you create without dtype=x.dtype")
