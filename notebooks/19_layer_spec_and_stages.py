# %% [markdown]
# # 19 Layer spec and stages
#
# A function called `get_gpt_layer_local_spec` goes round in two readings. In Megatron-Core, where it comes from, and in MindFormers, which ports it, it returns the recipe of a layer: which norm, which
# attention, which MLP. In an article it returns the numbers of the layers that a rank owns. The two have nothing in common but the name. Both are worth having, and here you write both: the recipe
# under its name, and the division of the layers under another. At the end your GPT is cut into pieces that could live on four machines, each with only its own weights in memory, and the pieces together
# give the logits and the gradients of the whole, to the last bit.
#
# In this lesson you write
#
# 1. `build_module`: a module from a recipe,
# 2. `get_gpt_layer_local_spec`: the recipe of a GPT layer,
# 3. `partition_layers`: how many layers each stage owns, by MindFormers' rules,
# 4. `partition_by_cost`: the same by what the layers cost,
# 5. `LocalSliceGPT`: the part of a GPT that one stage holds, in PyTorch,
# 6. `LocalSliceGPT` once more, in MindSpore.
#
# Time: about 90 minutes. You need the GPT of lesson 06 and its port of lesson 15; the reference stands in for what you have not passed.
#
# Letters for shapes: B sequences in a batch, T positions, C channels (`n_embd`), V tokens in the vocabulary.

# %%
import itertools
import math
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import safetensors
import torch
from safetensors.torch import save_file
from torch import nn

from course import check, device, exercise, parity, piece, setup, show, timing
from course.bench import slices

setup()

import mindspore as ms
from mindspore import ops

ms.set_device(device.mindspore_target())
ms.runtime.launch_blocking()                   # lesson 10: errors come where they are made
Linear, linear = piece("pytorch.primitives.Linear"), piece("pytorch.primitives.linear")
cross_entropy = piece("pytorch.primitives.cross_entropy")
Embedding = piece("pytorch.embeddings.Embedding")
attention = piece("pytorch.attention.attention")
causal_mask = piece("pytorch.attention.causal_mask")
split_heads = piece("pytorch.attention.split_heads")
merge_heads = piece("pytorch.attention.merge_heads")
LayerNorm, gelu = piece("pytorch.layers.LayerNorm"), piece("pytorch.layers.gelu")
Block, GPT = piece("pytorch.gpt.Block"), piece("pytorch.gpt.GPT")
init_weights = piece("pytorch.gpt.init_weights")


@dataclass
class GPTConfig:
    """Sizes of a model; the defaults are GPT-2 small's (Radford et al. 2019)."""

    vocab_size: int = 50257
    n_ctx: int = 1024
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768


small = GPTConfig(vocab_size=61, n_ctx=16, n_layer=12, n_head=4, n_embd=32)

# %% [markdown]
# ## 1. A module as a recipe
#
# Your `Block` names its parts in its own code. To try RMSNorm in the place of LayerNorm you write a second Block, to try another attention a third, and for both together a fourth. Large code bases know dozens of such
# choices. They keep the frame once and hand the parts in from outside. What is handed in must not be a built part, or all layers of a model would share its weights. It is a description that is built anew for each layer.
#
# In Megatron-Core and in MindFormers 2.1.0 (`mindformers/parallel_core/utils/spec_utils.py`) this description is a `ModuleSpec`, a record with three fields:
#
# | field | holds | example |
# |---|---|---|
# | module | a class, or a function | `LayerNorm` |
# | params | arguments by name, for the class | `{"eps": 1e-6}` |
# | submodules | the recipes of its parts, or None | see below |
#
# The class is given. Note `field(default_factory=dict)`: each recipe gets a dict of its own. A plain `= {}` would be one dict for all of them, and Python refuses it in a dataclass.

# %%
@dataclass
class ModuleSpec:
    """A recipe of a module: its class or a function, arguments for it, recipes of its parts."""

    module: type | FunctionType
    params: dict = field(default_factory=dict)
    submodules: Any = None


print(ModuleSpec(LayerNorm, {"eps": 1e-6}).params, ModuleSpec(LayerNorm).params)

# %% [markdown]
# ### Building it
#
# `build_module(spec_or_class, *args, **kwargs)` makes a module from a recipe. The recipe holds what is decided once. What depends on the place, such as a width, comes as an argument when the layer is built.
#
# | given | result |
# |---|---|
# | a class | `class(*args, **kwargs)` |
# | a ModuleSpec with a class | the same, and its params go along as arguments by name |
# | a ModuleSpec with submodules | they go along too, as the argument `submodules`, as they are |
# | a function, or a ModuleSpec with one | the function itself: it holds no weights, so there is nothing to build |
# | anything else | `TypeError` with a sentence |
#
# A class without parts knows no argument `submodules`, so it must not get one. And the recipe must stay as it is: the next layer is built from it.
#
# When a class refuses its arguments, the error should say which class it was. In a recipe of a dozen parts "must be even" alone helps nobody. Both libraries add " when instantiating" and the name to the words of the error, and raise the same type again.
#
# <details><summary>Hint 1</summary>
#
# Ask what you were given, in this order: is it a function (`types.FunctionType`)? A class (`isinstance(x, type)`)? Has it a field `module`, and which of the two is that? It shortens the code to turn a bare class into a ModuleSpec
# first: then there is one case left.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `kwargs` is a dict of your own, made for this call, so you may put `submodules` into it. `spec.params` is not yours: hand it over with `**` and leave it alone. For the error: `except (TypeError, ValueError) as error`, then raise
# `type(error)` with a new sentence that begins with the old one; a class has its name in `__name__`.
#
# </details>

# %%
@exercise("pytorch.layer_spec.build_module")
def build_module(spec_or_class: Any, *args: Any, **kwargs: Any) -> Any:
    """A new module from a recipe (MindFormers 2.1.0, parallel_core/utils/spec_utils.py).

    Args:
        spec_or_class: a ModuleSpec, a class or a function. It is not changed.
        args, kwargs: go to the class, besides the params of the spec. Its submodules, if it
            has any, go along as the argument submodules.

    Returns:
        A new object of the class at each call; a function comes back as it is.

    Raises:
        TypeError: none of these was given.
        TypeError, ValueError: that of the class, its words followed by the name of the class.
    """
    raise NotImplementedError


# %%
check(build_module)

# %%
norm = ModuleSpec(LayerNorm, {"eps": 1e-6})
a, b = build_module(norm, 32), build_module(norm, 32)
print("eps from the recipe:", a.eps, "- width from the call:", a.weight.shape[0])
print("two builds share their weight:", a.weight is b.weight)
print("a function stays a function:", build_module(gelu) is gelu)
try:
    build_module(ModuleSpec(LayerNorm, {"epsilon": 1e-6}), 32)
except TypeError as error:
    print("TypeError:", error)

# %% [markdown]
# `build_module` never touches a tensor, so it does not care which framework the class comes from. Your MindSpore Block of lesson 15 is built by the same function:

# %%
cell = build_module(ModuleSpec(piece("mindspore.gpt.Block")), small)
print(type(cell).__name__, "of MindSpore with", len(cell.trainable_params()), "parameters")

# %% [markdown]
# ## 2. The recipe of a GPT layer
#
# First the parts to choose from. They are given; read them as you would read a list of ingredients. `RMSNorm` leaves out the mean and the bias (Zhang and Sennrich 2019). `exact_gelu` uses the error function where GPT-2 uses tanh.
# `flash_attention` walks over the keys in tiles and keeps three running numbers for each row, so that the T by T scores never stand in memory: the algorithm of FlashAttention (Dao et al. 2022) in plain operations. It shows the idea, not the speed, which
# comes from a kernel. `Identity` is the part that is not there.

# %%
class Identity(nn.Module):
    """Hands on its input, whatever it is built with: the part that is not there."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, x):
        return x


class RMSNorm(nn.Module):
    """Each vector of the last axis to mean square 1, then a learned scale; keeps the shape.

    Zhang and Sennrich 2019.
    """

    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(n_embd))

    def forward(self, x):
        mean_square = (x * x).mean(dim=-1, keepdim=True)      # (..., 1)
        return self.weight * (x * (mean_square + self.eps).rsqrt())


def exact_gelu(x):
    """x times the normal distribution function of x; any shape, same dtype."""
    return 0.5 * x * (1 + (x / math.sqrt(2)).erf())


def flash_attention(q, k, v, mask, tile=32):
    """attention() of lesson 04 over tiles of keys: the (T_q, T_k) scores are never stored.

    Dao et al. 2022, algorithm 1. Each query must see a key of the first tile, as with a
    causal mask.
    """
    q = q / math.sqrt(q.shape[-1])
    top = torch.full_like(q[..., :1], -math.inf)              # largest score of each row so far
    total, y = 0.0, 0.0                                       # sums of exp, of weighted values
    for start in range(0, k.shape[-2], tile):
        k_tile, v_tile = k[..., start : start + tile, :], v[..., start : start + tile, :]
        scores = q @ k_tile.transpose(-2, -1)                 # (..., T_q, tile)
        visible = mask[..., start : start + tile]
        scores = scores.masked_fill(~visible, -math.inf)
        new_top = torch.maximum(top, scores.amax(dim=-1, keepdim=True).detach())
        e = (scores - new_top).exp()                          # (..., T_q, tile)
        shrink = (top - new_top).exp()                        # the sums stood under the old top
        total = total * shrink + e.sum(dim=-1, keepdim=True)
        y = y * shrink + e @ v_tile                           # (..., T_q, head_dim)
        top = new_top
    return y / total


torch.manual_seed(0)
q, k, v = torch.randn(3, 2, 4, 100, 8)                 # three times (B=2, n_head=4, T=100, 8)
mask = causal_mask(100, 100)
gap = (flash_attention(q, k, v, mask) - attention(q, k, v, mask)).abs().max().item()
print(f"in tiles and in one piece within 1e-5: {gap < 1e-5}")

# %% [markdown]
# Then the frame. Each class takes a record with the recipes of its parts and builds them. Compare `Layer` with your `Block`: it is the same module, but what stands in it is decided elsewhere.

# %%
@dataclass
class AttentionSubmodules:
    """The parts of SelfAttention, each a recipe, a class or a function."""

    c_attn: Any
    core_attention: Any
    c_proj: Any
    q_layernorm: Any
    k_layernorm: Any


@dataclass
class MLPSubmodules:
    """The parts of FeedForward."""

    c_fc: Any
    activation: Any
    c_proj: Any


@dataclass
class LayerSubmodules:
    """The parts of Layer."""

    ln_1: Any
    attn: Any
    ln_2: Any
    mlp: Any


class SelfAttention(nn.Module):
    """CausalSelfAttention of lesson 04 with given parts: (B, T, n_embd) -> the same shape."""

    def __init__(self, config, submodules):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = build_module(submodules.c_attn, config.n_embd, 3 * config.n_embd)
        self.c_proj = build_module(submodules.c_proj, config.n_embd, config.n_embd)
        head_dim = config.n_embd // config.n_head
        self.q_layernorm = build_module(submodules.q_layernorm, head_dim)
        self.k_layernorm = build_module(submodules.k_layernorm, head_dim)
        self.core_attention = build_module(submodules.core_attention)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, dim=-1)             # three times (B, T, C)
        q = self.q_layernorm(split_heads(q, self.n_head))     # (B, n_head, T, head_dim)
        k = self.k_layernorm(split_heads(k, self.n_head))
        v = split_heads(v, self.n_head)
        y = self.core_attention(q, k, v, causal_mask(T, T).to(x.device))
        return self.c_proj(merge_heads(y))                    # (B, T, C)


class FeedForward(nn.Module):
    """MLP of lesson 05 with parts that are given: (..., n_embd) -> the same shape."""

    def __init__(self, config, submodules):
        super().__init__()
        self.c_fc = build_module(submodules.c_fc, config.n_embd, 4 * config.n_embd)
        self.c_proj = build_module(submodules.c_proj, 4 * config.n_embd, config.n_embd)
        self.activation = build_module(submodules.activation)

    def forward(self, x):
        x = self.activation(self.c_fc(x))                     # (..., 4 n_embd)
        return self.c_proj(x)


class Layer(nn.Module):
    """Block of lesson 06 with parts that are given: (B, T, n_embd) -> the same shape."""

    def __init__(self, config, submodules):
        super().__init__()
        self.ln_1 = build_module(submodules.ln_1, config.n_embd)
        self.attn = build_module(submodules.attn, config)
        self.ln_2 = build_module(submodules.ln_2, config.n_embd)
        self.mlp = build_module(submodules.mlp, config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))                       # (B, T, C)
        x = x + self.mlp(self.ln_2(x))
        return x


# %% [markdown]
# ### The recipe
#
# Now the function with the long name. In MindFormers 2.1.0 there are three of it, for training in a static graph, for training in PyNative mode, and for inference. They differ in arguments and have this in common: they return one `ModuleSpec`, know no
# sizes, no weights, no layer numbers and no ranks. "Local" says that the layer is built from the framework's own modules and not from those of Transformer Engine, an NVIDIA library. The sentence in the docstring is Megatron's, word for word: "Use this spec
# for an implementation using only modules in Megatron-Core".
#
# | here | in MindFormers (`parallel_core/training_graph/base_models/gpt/gpt_layer_specs.py`) |
# |---|---|
# | `Layer`, `LayerSubmodules` | `TransformerLayer`, `TransformerLayerSubmodules` |
# | ln_1, ln_2 | input_layernorm, pre_mlp_layernorm: `Norm` or `FusedNorm` |
# | attn: c_attn, core_attention, c_proj, q_layernorm, k_layernorm | self_attention: linear_qkv, core_attention, linear_proj, q_layernorm, k_layernorm |
# | mlp: c_fc, activation, c_proj | mlp: linear_fc1, linear_fc2 (the activation comes from the config) |
# | `qk_layernorm` | `qk_layernorm` |
# | `normalization` | `normalization` (PyNative and inference only) |
# | `use_flash_attention` | `use_flash_attention` (inference only) |
#
# Yours has four switches:
#
# | argument | default | otherwise |
# |---|---|---|
# | qk_layernorm | False: q_layernorm and k_layernorm are `Identity` | True: they are the norm of the layer |
# | normalization | "LayerNorm" | "RMSNorm"; any other word is a `ValueError` |
# | gelu_form | "tanh": `gelu` of lesson 05 | "exact": `exact_gelu`; any other word is a `ValueError` |
# | use_flash_attention | False: `attention` of lesson 04 | True: `flash_attention` |
#
# With the defaults the recipe builds your Block: the same parameters under the same names.
#
# <details><summary>Hint 1</summary>
#
# Name classes and functions, call none of them: `ln_1=LayerNorm`, not `LayerNorm(...)`. Begin from outside: a ModuleSpec of `Layer`, whose submodules are a `LayerSubmodules`, in which `attn` and `mlp` are ModuleSpecs again.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Two small dicts, from word to class and from word to function, give both the choice and the question whether a word is known. The norm is needed in up to four places; give it to a name first. Build everything inside the function, so that each call gives a recipe of its own.
#
# </details>

# %%
@exercise("pytorch.layer_spec.get_gpt_layer_local_spec")
def get_gpt_layer_local_spec(
    qk_layernorm: bool = False,
    normalization: str = "LayerNorm",
    gelu_form: str = "tanh",
    use_flash_attention: bool = False,
) -> ModuleSpec:
    """The recipe of one GPT layer, with the meaning of Megatron-Core and MindFormers 2.1.0.

    Args:
        qk_layernorm: whether queries and keys are normalised, head by head.
        normalization: "LayerNorm" or "RMSNorm", for every norm of the layer.
        gelu_form: "tanh" or "exact".
        use_flash_attention: whether the attention core works in tiles.

    Returns:
        A new ModuleSpec of Layer. Classes and functions only: no weights, sizes or ranks.
        build_module(spec, config) builds the layer.

    Raises:
        ValueError: a word it does not know; the message says what there is.
    """
    raise NotImplementedError


# %%
check(get_gpt_layer_local_spec)

# %% [markdown]
# Is the default really the Block? From the same seed both must draw the same weights, and give the same result to the last bit.

# %%
torch.manual_seed(0)
layer = build_module(get_gpt_layer_local_spec(), small)
torch.manual_seed(0)
block = Block(small)
x = torch.randn(2, 16, 32)                                    # (B=2, T=16, C=32)
print("the same parameter names:", list(layer.state_dict()) == list(block.state_dict()))
print("the same result:", torch.equal(layer(x), block(x)))

# %% [markdown]
# Now each switch. The weights are those of the block wherever the names agree, so that what moves is due to the part alone. Predict: which switch changes the numbers most, which not at all?

# %%
def with_weights_of(block, spec):
    """A layer from the recipe, with the block's weights where it has these names."""
    layer = build_module(spec, small)
    layer.load_state_dict(block.state_dict(), strict=False)
    return layer


switches = {
    "default": {},
    "exact GELU": {"gelu_form": "exact"},
    "flash attention": {"use_flash_attention": True},
    "RMSNorm": {"normalization": "RMSNorm"},
    "norm of q and k": {"qk_layernorm": True},
}
rows, moved = [], {}
for name, settings in switches.items():
    layer = with_weights_of(block, get_gpt_layer_local_spec(**settings))
    moved[name] = (layer(x) - block(x)).abs().max().item()
    rows.append((name, sum(p.numel() for p in layer.parameters()), f"{moved[name]:.0e}"))
show.table([row[:2] for row in rows], ["switch", "parameters"])
print("flash attention within 1e-5:", moved["flash attention"] < 1e-5)
print("exact GELU moves between 1e-5 and 1e-3:", 1e-5 < moved["exact GELU"] < 1e-3)
norms_move = min(moved["RMSNorm"], moved["norm of q and k"]) > 1e-2
print("RMSNorm and the norm of q and k move by more than 1e-2:", norms_move)
show.bars({k: max(v, 1e-9) for k, v in moved.items() if k != "default"},
          "How far a switch moves the layer's result", "largest difference")

# %% [markdown]
# A recipe is data, and data can be changed without asking the function. Here is a core that nobody foresaw: PyTorch's own fused attention, put into a copy of the recipe. Only that part differs.

# %%
def torch_attention(q, k, v, mask):
    return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


spec = get_gpt_layer_local_spec()
core = replace(spec.submodules.attn.submodules, core_attention=torch_attention)
attn = replace(spec.submodules.attn, submodules=core)
fused = replace(spec, submodules=replace(spec.submodules, attn=attn))
gap = (with_weights_of(block, fused)(x) - block(x)).abs().max().item()
print("the fused core gives the block's result within 1e-5:", gap < 1e-5)
print("the recipe it came from is as it was:", spec == get_gpt_layer_local_spec())
same = [name for name in ("ln_1", "attn", "ln_2", "mlp")
        if getattr(spec.submodules, name) == getattr(fused.submodules, name)]
print("parts that are equal in both recipes:", same)

# %% [markdown]
# A whole model is a list of such layers, one build for each. That is what MindFormers' `TransformerBlock` does with the spec, for every layer number from 0 to `num_layers - 1`, on every rank. Nothing is divided here.
#
# ## 3. What the name does not mean
#
# The article calls `get_gpt_layer_local_spec` a core interface for distributed training, with the arguments `num_layers`, `rank_id` and `world_size`, and the range of layers of this rank as its result. No MindSpore or MindFormers has such a function. The article defines it itself, a few
# lines further on. This is its arithmetic, under an honest name:

# %%
def article_range(num_layers, rank_id, world_size):
    """(first, one past the last) layer of a rank, by the article's rule."""
    base, left = divmod(num_layers, world_size)
    start = rank_id * base + min(rank_id, left)
    return start, start + base + (rank_id < left)


print("14 layers, 4 ranks:", [article_range(14, rank, 4) for rank in range(4)])

# %% [markdown]
# The idea is sound: a pipeline cuts the layers into stages, and each stage owns some. Four things are missing or differ from what a framework does.
#
# - **Who takes the rest.** 14 layers do not divide by 4. The article gives the two that are left over to the first stages. The first stage also holds the embedding, so it gets more of everything.
# - **A rank is no stage.** With data and tensor parallelism several ranks share a stage.
# - **Embedding and head** belong to somebody.
# - **Somebody must send.** A rank that owns layers 4 to 7 needs the stream that layer 3 made, and must send its gradient back. Without that each rank trains a shallow model of its own.
#
# You take them in turn.
#
# ## 4. How MindFormers divides the layers
#
# For training in a static graph the class is `LayerSetting` (`parallel_core/training_graph/transformer/utils.py`, 2.1.0; read there, and its formula run here). Each stage gets
#
# $$\text{layers}_s = \lfloor \text{num\_layers} / \text{stages} \rfloor + \text{offset}_s$$
#
# and the user says the offset. Its rules, each a `ValueError`:
#
# | rule | whose |
# |---|---|
# | offset has one entry for each stage | MindFormers |
# | the entries sum to num_layers % stages | MindFormers |
# | a stage in the middle has at least 1 layer | MindFormers |
# | the first and the last stage have at least 0: they still own the embedding and the head | MindFormers |
# | there is at least one stage | ours: a division by 0 says nothing |
#
# Without an offset all entries are 0. So 12 layers on 4 stages need none, and 14 on 4 without one are an error: the sum 0 is not the remainder 2. The same holds for 5 on 3. Nobody guesses for you who takes the rest.
#
# Two finer points, in case you read the source. MindFormers also takes a single number for the offset, tests it against the remainder as it is, and then adds it to every stage: give a list. And with one stage it does not look at the offset at all.
#
# | name | type | meaning |
# |---|---|---|
# | num_layers | int | layers of the model |
# | stages | int, at least 1 | |
# | offset | list of int or None | one entry for each stage; None for zeros |
# | result | list of int | layers of each stage, in order; they sum to num_layers |
#
# <details><summary>Hint 1</summary>
#
# `divmod(num_layers, stages)` gives the equal share and the remainder. Ask about `stages` before you divide.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Three questions before the result, one for each way in which an offset can be wrong: its length, its sum, and the numbers of layers that come out. For the last look at `counts[1:-1]` and at the two ends separately. `offset` belongs to the caller; make a list of your own.
#
# </details>

# %%
@exercise("pytorch.stages.partition_layers")
def partition_layers(
    num_layers: int, stages: int, offset: list[int] | None = None
) -> list[int]:
    """Layers of each stage, as MindFormers 2.1.0 divides them (LayerSetting).

    Args:
        num_layers: layers of the model.
        stages: number of stages, at least 1.
        offset: added to num_layers // stages, one entry for each stage; None for zeros. It
            is not changed.

    Returns:
        list of ints, one for each stage; they sum to num_layers.

    Raises:
        ValueError: offset has another length than stages or another sum than the remainder;
            a stage in the middle would have no layer; the first or the last fewer than 0;
            stages is below 1.
    """
    raise NotImplementedError


# %%
check(partition_layers)

# %% [markdown]
# The article's rule beside it, and a third one: for inference MindFormers does fill in the rest by itself (`inference/utils.py`, `get_num_layers_and_offset`), on the stages before the last, from behind. Predict the row of 5 layers on 3 stages.

# %%
def inference_counts(num_layers, stages):
    """MindFormers 2.1.0, inference, without an offset."""
    counts = [num_layers // stages] * stages
    for i in range(2, num_layers % stages + 2):
        counts[-i] += 1
    return counts


def training_counts(num_layers, stages, offset=None):
    try:
        return partition_layers(num_layers, stages, offset)
    except ValueError:
        return "ValueError"


rows = []
for n, p, offset in [
    (12, 4, None), (14, 4, None), (14, 4, [0, 1, 1, 0]), (20, 4, [-2, 1, 1, 0]),
    (5, 3, None), (5, 3, [1, 1, 0]), (5, 3, [0, 1, 1]),
]:
    ends = [article_range(n, rank, p) for rank in range(p)]
    article = [b - a for a, b in ends] if offset is None else ""
    inference = inference_counts(n, p) if offset is None else ""
    training = training_counts(n, p, offset)
    rows.append((f"{n}/{p}", offset or "none", training, inference, article))
show.table(rows, ["layers", "offset", "training", "inference", "article"])

# %% [markdown]
# On 12/4 all agree, and so the difference stays hidden. On 14/4 the article gives the rest to the front, `[4, 4, 3, 3]`, so also to the stage with the embedding. MindFormers for inference spares both ends, `[3, 4, 4, 3]`, and for training wants to be told. On 5/3 the article and inference happen to agree; training stops. The row 20/4 takes two layers from the
# first stage and gives them to the middle: the example of MindSpore's performance guide.
#
# ## 5. A rank is no stage
#
# 16 ranks and 4 stages: each stage is run by 4 ranks, which share its batch (data parallelism) or its matrices (tensor parallelism). MindFormers computes the stage as `rank_id // (device_num // pipeline_stages)` (`models/utils.py`, `get_current_rank_stage`). The function is short enough to be given, with a
# question about its arguments in front.

# %%
def stage_of_rank(rank, world_size, stages):
    """The stage of a rank where each stage has world_size // stages ranks, in order.

    Raises:
        ValueError: stages does not divide world_size, or there is no such rank.
    """
    if stages < 1 or world_size % stages != 0:
        raise ValueError(f"{world_size} ranks cannot be divided among {stages} stages")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank is {rank} and ranks run from 0 to {world_size - 1}")
    return rank // (world_size // stages)


print("stage of each of 16 ranks:", [stage_of_rank(rank, 16, 4) for rank in range(16)])
counts = partition_layers(12, 4)
first = [sum(counts[:stage]) for stage in range(4)]
rows = []
for rank in (0, 3, 5, 11, 15):
    stage = stage_of_rank(rank, 16, 4)
    own = list(range(first[stage], first[stage] + counts[stage]))
    rows.append((rank, stage, own, list(range(*article_range(12, rank, 16)))))
show.table(rows, ["rank", "stage", "its layers", "by the article"])
nobody = [rank for rank in range(16) if len(range(*article_range(12, rank, 16))) == 0]
print("ranks without a layer by the article:", nobody)

# %% [markdown]
# The article takes every rank for a stage. With 16 ranks and 12 layers four ranks get nothing, and the others one layer each, whatever the number of stages is.
#
# ## 6. Equal numbers are not equal work
#
# A pipeline moves at the pace of its slowest stage. Layers are alike, but the last stage also has the head, which multiplies with the whole vocabulary. Count the multiplications for one token of GPT-2 small: a layer has $12 C^2$ in its four matrices and $2TC$ in attention, the head $VC$, the embedding none, it is a lookup.

# %%
gpt2 = GPTConfig()
C, T, V = gpt2.n_embd, gpt2.n_ctx, gpt2.vocab_size
layer_cost, head_cost = (12 * C * C + 2 * T * C) / 1e6, V * C / 1e6
print(f"a layer {layer_cost:.1f} million, the head {head_cost:.1f} million", end=": ")
print(f"{head_cost / layer_cost:.1f} layers")
even = [3 * layer_cost, 3 * layer_cost, 3 * layer_cost, 3 * layer_cost + head_cost]
print("stages of 3 layers each:", ", ".join(f"{cost:.1f}" for cost in even))

# %% [markdown]
# The head alone weighs more than four layers. With 3 layers on each stage the last one works two and a half times as long as the others, and three machines wait for it. The offset is there to mend that, and it should not be guessed.
#
# `partition_by_cost(costs, stages)` takes the cost of each unit, in the order of the model: embedding, the layers, head. It cuts this row into stages. The order stays, since the stream passes through the units one after the other; each stage gets at least one unit; and the dearest stage shall be as cheap as it can be:
#
# $$\min_{\text{cuts}}\ \max_s \sum_{i \in \text{stage } s} \text{cost}_i$$
#
# | name | type | meaning |
# |---|---|---|
# | costs | list of numbers, none below 0 | of each unit, in order |
# | stages | int | from 1 to the number of units |
# | result | list of int | units of each stage, each at least 1; they sum to len(costs) |
#
# For costs 1, 1, 1, 1, 4 and 2 stages the answer is `[4, 1]`: both stages cost 4. It does not do to close a stage as soon as it holds its share of the sum. What is left then may be worse for the stages that follow.
#
# <details><summary>Hint 1</summary>
#
# The simple way: `itertools.combinations(range(1, n), stages - 1)` gives every choice of places to cut. For 14 units and 4 stages these are 286. Compute the dearest stage of each, take the best.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The way for long rows: let `best(end, s)` be the cheapest dearest stage for the first `end` units in `s` stages. Its last stage begins at some cut, and what stands before the cut is `best(cut, s - 1)`. Try every cut, keep the counts beside the number. `min` of pairs compares the first entry first.
#
# </details>

# %%
@exercise("pytorch.stages.partition_by_cost")
def partition_by_cost(costs: list[float], stages: int) -> list[int]:
    """Cut a row of units into stages so that the dearest stage is as cheap as it can be.

    Args:
        costs: of each unit in the order of the model: embedding, layers, head. None is
            below 0. The list is not changed.
        stages: number of stages.

    Returns:
        list of ints: how many units each stage takes, in order, at least 1 each. If several
        answers are best, any of them.

    Raises:
        ValueError: stages is below 1, or there are fewer units than stages.
    """
    raise NotImplementedError


# %%
check(partition_by_cost)

# %% [markdown]
# The units include embedding and head. Without these two they are the layers of each stage, and their difference to the equal share is the offset for MindFormers.

# %%
def layers_of(units):
    """Layers of each stage: the first has the embedding among its units, the last the head."""
    counts = list(units)
    counts[0] -= 1
    counts[-1] -= 1
    return counts


def stage_costs(costs, units):
    """Sum of the costs of each stage."""
    ends = [0, *itertools.accumulate(units)]
    return [sum(costs[a:b]) for a, b in zip(ends, ends[1:])]


def draw(costs, divisions, y_label):
    """The stages as bars, one colour a division, and their share if all were equal."""
    _, axes = show.figure()
    for i, (name, units) in enumerate(divisions.items()):
        places = [stage - 0.2 + 0.4 * i for stage in range(len(units))]
        label = f"{name}, layers {layers_of(units)}"
        axes.bar(places, stage_costs(costs, units), width=0.38, label=label)
    ideal = sum(costs) / len(units)
    axes.axhline(ideal, color=show.GREY, linestyle="--", label="sum / stages")
    axes.set(title="What each stage has to do", xlabel="stage", ylabel=y_label)
    axes.set_xticks(range(len(units)))
    axes.grid(axis="x", visible=False)
    axes.legend(fontsize=9)
    show.finish()


costs = [0.0, *[layer_cost] * 12, head_cost]
divisions = {"even": [4, 3, 3, 4], "by cost": partition_by_cost(costs, 4)}
ideal = sum(costs) / 4
for name, units in divisions.items():
    dear = max(stage_costs(costs, units))
    print(f"{name:8}layers {layers_of(units)}, dearest {dear:.1f}, ", end="")
    print(f"ideal {ideal:.1f}: {dear / ideal:.2f}")
counts = layers_of(divisions["by cost"])
offset = [count - 12 // 4 for count in counts]
accepted = partition_layers(12, 4, offset) == counts
print("offset for MindFormers:", offset, "- accepted:", accepted)
draw(costs, divisions, "million multiplications a token")

# %% [markdown]
# The best division gives the last stage no layer at all: it has the head, and that is enough. Now the rule that the ends may have 0 layers makes sense. The dearest stage falls from 1.81 times the ideal to 1.08 times. It cannot reach 1, since the head cannot be cut here.
#
# With m small batches in flight a pipeline of p stages takes $(m + p - 1)$ steps of the slowest stage: $p - 1$ of them are the bubble, when stages wait for the first batch to arrive or the last to leave. Without a bubble and with perfect stages it would take $m$ times the ideal. Lesson 20 measures bubbles on processes.

# %%
m, p = 8, 4
for name, units in divisions.items():
    slowest = max(stage_costs(costs, units))
    factor = (m + p - 1) * slowest / (m * ideal)
    print(f"{name:8}takes {factor:.2f} times the bubble-free ideal, {m} batches in flight")
print(f"perfect stages would still take {(m + p - 1) / m:.2f} times: the bubble")

# %% [markdown]
# ## 7. The slice that a stage holds
#
# Now the stage itself. `LocalSliceGPT(config, counts, stage)` is the part of the GPT that stage number `stage` owns, `counts` being the layers of all stages:
#
# | stage | parameters | takes | gives |
# |---|---|---|---|
# | the first | wte, wpe, its layers | ids (B, T) | (B, T, C) |
# | one in the middle | its layers | (B, T, C) | (B, T, C) |
# | the last | its layers, ln_f, wte | (B, T, C) | logits (B, T, V) |
# | the only one | all | ids (B, T) | logits (B, T, V) |
#
# **Names.** A layer keeps the number it has in the whole model: `h.4.ln_1.weight` is called so on whichever stage. Then a checkpoint needs no translation, and two stages never use one name for two things. An `nn.ModuleList` counts from 0 on each stage; an `nn.ModuleDict` takes `"4"` as a key.
#
# **The tied head.** GPT-2's head is wte. The first stage looks tokens up in it, and the last multiplies with it, and they are two machines. So the last stage has a wte of its own. What that means for training comes after the exercise.
#
# **Loading.** `load(path)` reads a safetensors file of the whole GPT. Such a file begins with a table of names, shapes and places, so that a single tensor can be read without the others:
#
# | call | gives |
# |---|---|
# | `with safetensors.safe_open(path, framework="pt") as file:` | the open file; nothing is read but the table |
# | `file.keys()` | the names in it |
# | `file.get_slice(name).get_shape()` | the shape as a list, without reading the numbers |
# | `file.get_tensor(name)` | the tensor |
#
# A missing name or another shape is a `ValueError` that names the tensor, before anything is changed. Careful: `copy_` broadcasts, so a tensor of one number would fit anywhere.
#
# <details><summary>Hint 1</summary>
#
# In `__init__`: two questions to the arguments; two flags, first and last; the number of the first own layer is the sum of the counts before. Create only what the table lists. `init_weights` comes last, with the number of layers of the whole model.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `forward` is the one of GPT in three parts: what only the first stage does (with the question about n_ctx), the own blocks (`self.h.values()`), what only the last does. `load` goes over `self.named_parameters()`, twice: once to ask, once to copy inside `torch.no_grad()`.
#
# </details>

# %%
@exercise("pytorch.stages.LocalSliceGPT")
class LocalSliceGPT(nn.Module):
    """The part of a GPT that one pipeline stage owns, under the names of the whole model.

    Args:
        config: as for GPT.
        counts: layers of each stage; they sum to config.n_layer.
        stage: from 0 to len(counts) - 1.

    Parameters:
        wte: Embedding, on the first and on the last stage. wpe: on the first.
        h: the own layers, each a Block, as h.<number in the whole model>.
        ln_f: LayerNorm, on the last stage.
        They start as in GPT: init_weights with config.n_layer.

    forward(x): (B, T) int64 on the first stage, (B, T, n_embd) on the others ->
        (B, T, n_embd), or logits (B, T, vocab_size) on the last stage.

    load(path): reads the own parameters, and no others, from a safetensors file of the whole
        GPT; they stay the same objects, and float32.

    Raises:
        ValueError: counts do not sum to n_layer; there is no such stage; more than n_ctx
            tokens; in load, a tensor is missing or of another shape: nothing is changed then.
    """

    def __init__(self, config, counts, stage):
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def load(self, path) -> None:
        raise NotImplementedError


# %%
check(LocalSliceGPT)

# %% [markdown]
# ### The stages one after the other
#
# Here is what a pipeline does, without the wires. Each stage runs by itself on what arrived; `detach` cuts the graph at the border, as a network would. Backward, each stage gets the gradient of what it gave, and hands on the gradient of what it took.

# %%
def run_stages(stages, idx, targets):
    """(logits, loss); every stage then holds the gradients of its own parameters."""
    taken, given = [], []
    x = idx
    for stage in stages:
        arrived = x.detach()                                  # what the stage before has sent
        if arrived.is_floating_point():
            arrived.requires_grad_(True)
        x = stage(arrived)
        taken.append(arrived)
        given.append(x)
    loss = cross_entropy(x.flatten(0, 1), targets.flatten())
    loss.backward()
    for stage in reversed(range(len(stages) - 1)):
        given[stage].backward(taken[stage + 1].grad)          # what the stage behind sends back
    return x.detach(), loss.detach()


def gradients(stages):
    """name -> gradient; those of one name on several stages are summed."""
    found = {}
    for stage in stages:
        for name, p in stage.named_parameters():
            found[name] = found.get(name, 0) + p.grad
    return found


def whole_and_slices(config, counts, seed=0):
    """A GPT, and its stages loaded from its checkpoint."""
    torch.manual_seed(seed)
    model = GPT(config)
    stages = [LocalSliceGPT(config, counts, stage) for stage in range(len(counts))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpt.safetensors"
        save_file(model.state_dict(), path)
        for stage in stages:
            stage.load(path)
    return model, stages


divided = [
    ("12/4", partition_layers(12, 4)),
    ("14/4", partition_layers(14, 4, [0, 1, 1, 0])),
    ("5/3", partition_layers(5, 3, [1, 1, 0])),
    ("5/3", layers_of(partition_by_cost([1.5, 1, 1, 1, 1, 1, 0.2], 3))),
    ("12/1", partition_layers(12, 1)),
    ("12/4", [4, 4, 4, 0]),
]
idx = torch.randint(61, (2, 8), generator=torch.Generator().manual_seed(1))       # (B=2, T=8)
targets = torch.randint(61, (2, 8), generator=torch.Generator().manual_seed(2))
rows = []
for name, counts in divided:
    model, stages = whole_and_slices(replace(small, n_layer=sum(counts)), counts)
    logits, loss = run_stages(stages, idx, targets)
    whole_logits, whole_loss = model(idx, targets)
    whole_loss.backward()
    found = gradients(stages)
    equal = [torch.equal(found[name], p.grad) for name, p in model.named_parameters()]
    same_logits = torch.equal(logits, whole_logits)
    rows.append((name, counts, same_logits, f"{sum(equal)} of {len(equal)}"))
show.table(rows, ["layers", "on the stages", "logits equal", "gradients equal"])

# %% [markdown]
# Equal, not close: the same operations in the same order, with a cut that changes no number.
#
# ### One table on two stages
#
# In that sum hides a trap. `gradients` adds the two gradients of wte. Leave that out, and see what each end would train with:

# %%
counts = partition_layers(12, 4)
model, stages = whole_and_slices(small, counts)
run_stages(stages, idx, targets)
model(idx, targets)[1].backward()
whole = model.wte.weight.grad                                 # (V=61, C=32)
lookup, head = stages[0].wte.weight.grad, stages[-1].wte.weight.grad
for name, grad in [("first stage", lookup), ("last stage", head), ("sum", lookup + head)]:
    rows_with_gradient = int((grad.abs().amax(dim=-1) > 0).sum())
    print(f"{name:12}{rows_with_gradient:3} of 61 rows have a gradient, ", end="")
    print("equal to the whole model's:", torch.equal(grad, whole))

# %% [markdown]
# The first stage sees only the tokens of the batch, the last one all 61, and neither alone is the gradient of the table. Let each end take its own step, and the two tables drift apart. Nothing crashes; the model is just no longer tied. With the sum on both ends they stay one:

# %%
def steps(stages, add_up, lr=0.1, count=5):
    """The largest difference of the two tables behind some steps of gradient descent."""
    ends = stages[0].wte.weight, stages[-1].wte.weight
    for _ in range(count):
        for stage in stages:
            stage.zero_grad()
        run_stages(stages, idx, targets)
        if add_up:                                            # an AllReduce between the two
            total = ends[0].grad + ends[1].grad
            ends[0].grad, ends[1].grad = total, total.clone()
        with torch.no_grad():
            for stage in stages:
                for p in stage.parameters():
                    p -= lr * p.grad
    return (ends[0] - ends[1]).abs().max().item()


for add_up in (False, True):
    _, stages = whole_and_slices(small, counts)
    gap = steps(stages, add_up)
    print(f"gradients summed: {add_up}, tables equal after 5 steps: {gap == 0}")

# %% [markdown]
# The same holds for the start. Two stages that draw their own random numbers begin with two tables. So the start comes from one checkpoint, as here, or is sent from one end to the other.
#
# ### What it saves
#
# The point of a slice is what it does not hold. First by counting: the bytes of the parameters of each stage, for a GPT of 40 million parameters whose vocabulary is GPT-2's.

# %%
medium = GPTConfig(vocab_size=50257, n_ctx=256, n_layer=12, n_head=6, n_embd=384)
counts = [4, 4, 4, 0]
made = [LocalSliceGPT(medium, counts, stage) for stage in range(4)]
model = GPT(medium)
size = {}
for name, module in [*((f"stage {i}", s) for i, s in enumerate(made)), ("whole", model)]:
    size[name] = sum(4 * p.numel() for p in module.parameters()) / 1e6
for name, megabytes in size.items():
    print(f"{name:8}{megabytes:6.1f} MB")
twice = 4 * medium.vocab_size * medium.n_embd / 1e6
together = sum(v for name, v in size.items() if name != "whole")
print(f"all stages {together:.1f} MB: the whole and a second wte of {twice:.1f} MB")

# %% [markdown]
# Then by looking. Each row of the next cell is a process of its own that builds its part and loads the checkpoint; the number is what this adds to the most memory that the process ever held. Predict: the file is mapped into memory and copied from there into the parameters, so how many times its parameters does a process need?

# %% tags=["nbval-ignore-output"]
settings = vars(medium)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "gpt.safetensors"
    save_file(model.state_dict(), path)
    peaks = {"whole": slices.peak(path, settings) / 1e6}      # a subprocess for each
    for stage in range(4):
        peaks[f"stage {stage}"] = slices.peak(path, settings, counts, stage) / 1e6
for name, megabytes in peaks.items():
    print(f"{name:8}{megabytes:7.1f} MB, {megabytes / size[name]:.2f} times its parameters")
show.bars(peaks, "Memory to build and load, each in a process of its own", "MB at the peak")

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "gpt.safetensors"
    save_file(model.state_dict(), path)
    with safetensors.safe_open(path, framework="pt") as file:
        names = [name for name, _ in made[1].named_parameters()]
        asked = sum(math.prod(file.get_slice(name).get_shape()) for name in names)
    made[1].load(path)
share = 4 * asked / 1e6 / size["whole"]
print(f"stage 1 asks for {4 * asked / 1e6:.1f} MB of {path.name}, {share:.0%} of it")
state = model.state_dict()
equal = all(torch.equal(p, state[name]) for name, p in made[1].named_parameters())
print("its parameters are those of the file:", equal)

# %% [markdown]
# ### What it costs in time
#
# The peak is about twice the parameters, for the whole and for each stage: once in the file that is mapped into memory, once in the model. What a stage does not own is in neither place.
#
# So far costs were counted. Multiplications are not seconds: the embedding has none and still takes time, above all backward, and the softmax over the vocabulary is not in the count. So measure, forward and backward: a stage with 0 layers at the front is the embedding alone, one at the end the head alone.
# Predict: will the head come out dearer or cheaper against a layer than its count says?

# %% tags=["nbval-ignore-output"]
timed = GPTConfig(vocab_size=12000, n_ctx=128, n_layer=12, n_head=4, n_embd=256)
ids = torch.randint(12000, (2, 128))                          # (B=2, T=128)
stream = torch.randn(2, 128, 256)                             # (B, T, C)
front, back = LocalSliceGPT(timed, [0, 12], 0), LocalSliceGPT(timed, [12, 0], 1)
block = Block(timed)


def embedding_unit():
    front(ids).sum().backward()


def layer_unit():
    block(stream.clone().requires_grad_(True)).sum().backward()


def head_unit():
    logits = back(stream.clone().requires_grad_(True))        # (B, T, V)
    cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()


units = {"embedding": embedding_unit, "layer": layer_unit, "head": head_unit}
timings = timing.measure(units, seconds=3)
print(timing.report(timings, base="layer"))
counted = timed.vocab_size * 256 / (12 * 256 * 256 + 2 * 128 * 256)
print(f"counted, the head is {counted:.1f} layers")
seconds = {name: 1e3 * t.median for name, t in timings.items()}
measured = [seconds["embedding"], *[seconds["layer"]] * 12, seconds["head"]]
by_time = {"even": [4, 3, 3, 4], "by cost": partition_by_cost(measured, 4)}
for name, parts in by_time.items():
    slow, best = max(stage_costs(measured, parts)), sum(measured) / 4
    print(f"{name:8}layers {layers_of(parts)}: slowest {slow:.0f} ms, ", end="")
    print(f"ideal {best:.0f} ms; ", end="")
    print(f"8 batches {(8 + 4 - 1) * slow:.0f} ms, bubble-free {8 * best:.0f} ms")
draw(measured, by_time, "ms forward and backward")

# %% [markdown]
# What holds on any machine is what the function promises: for whatever costs it is given, its dearest stage is never dearer than that of the even division, nor than that of any other. Here on a thousand rows of random costs:

# %%
generator = np.random.default_rng(0)
better = worse = 0
for _ in range(1000):
    row = [float(generator.random()), *[1.0] * 12, float(6 * generator.random())]
    mine = max(stage_costs(row, partition_by_cost(row, 4)))
    equal_shares = max(stage_costs(row, [4, 3, 3, 4]))
    better += mine < equal_shares - 1e-9
    worse += mine > equal_shares + 1e-9
print(f"of 1000 rows of costs: by cost is better than even on {better}, worse on {worse}")

# %% [markdown]
# ## 8. The slice in MindSpore
#
# In MindSpore's static graph a model is cut in another way: every rank builds all layers, each cell is told its number (`cell.pipeline_stage = k`, which MindFormers' `LayerSetting` sets), and the graph compiler cuts the graph and adds the sending. For inference, and in PyNative mode, MindFormers does what you did: a rank builds
# its own layers only. That slice is ported here. Nothing of it was run on an Ascend; the cells ran on a CPU.
#
# Before the names of the parts change their meaning to MindSpore's, the PyTorch stages run once more, and what they gave is kept: the checkpoint, the logits, the gradients.

# %%
kept = []
for name, counts in [divided[i] for i in (0, 1, 2, 4)]:
    model, stages = whole_and_slices(replace(small, n_layer=sum(counts)), counts)
    logits, _ = run_stages(stages, idx, targets)
    kept.append((name, counts, model, logits, gradients(stages)))
print(len(kept), "divisions kept")

# %%
from mindspore import nn                       # from here on these names are MindSpore's

linear = piece("mindspore.primitives.linear")
Embedding = piece("mindspore.embeddings.Embedding")
LayerNorm = piece("mindspore.layers.LayerNorm")
Block, init_weights = piece("mindspore.gpt.Block"), piece("mindspore.gpt.init_weights")
print(nn.CellDict.__name__, Block.__base__.__name__)

# %% [markdown]
# ### The port
#
# Three things to watch, all from earlier lessons. `nn.CellDict` is the container that takes names. `set_data` takes any shape without a word (lesson 15), so ask for the shape first; the dtype of the parameter stays. And `ms.load_checkpoint` reads the whole file: with `safe_open(path, framework="np")` you get single tensors as NumPy arrays, and
# they are really read one by one.
#
# | | PyTorch | MindSpore |
# |---|---|---|
# | own parameters | `named_parameters()` | `parameters_and_names()` |
# | container | `nn.ModuleDict` | `nn.CellDict` |
# | one tensor of the file | `framework="pt"` | `framework="np"`, then an `ms.Tensor` |
# | into the parameter | `copy_` in `no_grad` | `set_data` |
#
# Shapes and rules are those of section 7. The result must be the same in graph mode.
#
# <details><summary>Hint 1</summary>
#
# Lay your PyTorch class beside the table above and go through it line by line. The positions are `ops.arange(T)`, as in lesson 15. `construct` must compile in graph mode: plain flags and a loop over `self.h.values()` do.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The questions in `load` stay as they are; `p.shape` is a tuple and `get_shape()` a list, so make both a tuple. Then `ms.Tensor(array)`, and set it.
#
# </details>

# %%
@exercise("mindspore.stages.LocalSliceGPT")
class LocalSliceGPT(nn.Cell):
    """The part of a GPT that one pipeline stage owns, under the names of the whole model.

    Args:
        config: as for GPT.
        counts: layers of each stage; they sum to config.n_layer.
        stage: from 0 to len(counts) - 1.

    Parameters: as in PyTorch: wte on the first and the last stage, wpe on the first, h.<number
        in the whole model>, ln_f on the last. They start as in GPT.

    construct(x): (B, T) ids on the first stage, (B, T, n_embd) on the others ->
        (B, T, n_embd), or logits (B, T, vocab_size) on the last stage. The same in graph mode.

    load(path): reads the own parameters, and no others, from a safetensors file of the whole
        GPT; they stay the same objects, and float32.

    Raises:
        ValueError: counts do not sum to n_layer; there is no such stage; more than n_ctx
            tokens; in load, a tensor is missing or of another shape: nothing is changed then.
    """

    def __init__(self, config, counts, stage):
        raise NotImplementedError

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        raise NotImplementedError

    def load(self, path) -> None:
        raise NotImplementedError


# %%
check(LocalSliceGPT)

# %% [markdown]
# One checkpoint, written by PyTorch, feeds the stages of both frameworks. The chain in MindSpore needs no `detach`: each stage is differentiated by itself, with the gradient that comes from behind as a weighting of its result.

# %%
mindspore_cross_entropy = piece("mindspore.primitives.cross_entropy")
MindSporeGPT = piece("mindspore.gpt.GPT")


def stage_gradients(function, x, weights, *more):
    """(gradient of x or None for ids, gradients of the weights)."""
    if x.dtype == ms.int32:
        return None, ms.grad(function, None, weights=weights)(x, *more)
    return ms.grad(function, 0, weights=weights)(x, *more)


def run_mindspore_stages(stages, idx, targets):
    """(logits, {name: gradient}), gradients of one name summed over the stages."""
    taken = [idx]
    for stage in stages[:-1]:
        taken.append(stage(taken[-1]))
    last = stages[-1]

    def loss(x):
        logits = last(x)                                      # (B, T, V)
        flat = logits.reshape(-1, logits.shape[-1])           # (B * T, V)
        return mindspore_cross_entropy(flat, targets.reshape(-1))

    found, back = {}, None
    for at in reversed(range(len(stages))):
        stage, weights = stages[at], list(stages[at].trainable_params())

        def weighted(x, back):
            return (stage(x) * back).sum()

        if stage is last:
            back, grads = stage_gradients(loss, taken[at], weights)
        else:
            back, grads = stage_gradients(weighted, taken[at], weights, back)
        for p, grad in zip(weights, grads):
            found[p.name] = found.get(p.name, 0) + grad
    return last(taken[-1]), found


def mindspore_whole(model, idx, targets):
    """(logits, {name: gradient}) of a MindSpore GPT."""
    weights = list(model.trainable_params())

    def loss(idx):
        return model(idx, targets)[1]

    grads = ms.grad(loss, None, weights=weights)(idx)
    return model(idx)[0], {p.name: grad for p, grad in zip(weights, grads)}


def against(counts, model, torch_logits, torch_found):
    """Largest differences of the chained stages: to the whole in MindSpore, to PyTorch's."""
    config = replace(small, n_layer=sum(counts))
    stages = [LocalSliceGPT(config, counts, stage) for stage in range(len(counts))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpt.safetensors"
        save_file(model.state_dict(), path)
        for stage in stages:
            stage.load(path)
    ported = MindSporeGPT(config)
    parity.carry(model, ported)
    ids, wanted = (ms.Tensor(x.numpy().astype(np.int32)) for x in (idx, targets))
    logits, found = run_mindspore_stages(stages, ids, wanted)
    whole_logits, whole = mindspore_whole(ported, ids, wanted)
    pairs = [(found[n], whole[n]) for n in whole], [(found[n], torch_found[n]) for n in whole]
    inside, across = (max(parity.largest_difference(*pair) for pair in p) for p in pairs)
    return (
        parity.largest_difference(logits, whole_logits), inside,
        parity.largest_difference(logits, torch_logits), across,
    )


rows = []
for name, counts, *torch_side in kept:
    found = against(counts, *torch_side)
    rows.append((name, counts, *(gap < 1e-6 for gap in found)))
show.table(rows, ["layers", "stages", "logits", "gradients", "logits/torch", "gradients/torch"])
print("each column: the largest difference is below 1e-6")

# %% [markdown]
# The third and the fourth column compare the chained stages with the whole model in MindSpore, the last two with the chained stages in PyTorch. The start is that of a fresh GPT, so logits and gradients are small numbers; in lesson 15 you compared them with large ones.
#
# ## 9. What the article's function leaves over
#
# Back to the dict of layer ranges. How much of GPT-2 small would nobody own, if each rank built the layers it is given and nothing else?

# %%
C, V, T = gpt2.n_embd, gpt2.vocab_size, gpt2.n_ctx
in_layers = 12 * (12 * C * C + 13 * C)                        # matrices, biases, LayerNorms
ends = V * C + T * C + 2 * C                                  # wte, wpe, ln_f
print(f"layers {in_layers:,}, embedding and ln_f {ends:,}: sum {in_layers + ends:,}")
print(f"owned by nobody: {ends / (in_layers + ends):.1%}")

# %% [markdown]
# ## What you built, what comes next
#
# A recipe of a layer that is data and nothing else, and the function that builds it: with them you read Megatron's and MindFormers' model files. A division of the layers by the library's rules, and one by cost that shows why these rules let the ends go empty. A slice of the GPT that holds and loads only what it owns, in both frameworks, and a chain of
# such slices that equals the whole to the last bit, as long as the two gradients of the shared table are added.
#
# In lesson 20 the stages become processes: what crossed a border here by a variable is then sent, and the bubble is measured.
