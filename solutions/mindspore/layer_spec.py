"""A layer as a recipe: what MindFormers and Megatron-Core call a spec (mindformers/parallel_core/utils/spec_utils.py, 2.1.0)."""
import math
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from .attention import attention, causal_mask, merge_heads, split_heads
from .layers import LayerNorm, gelu
from .primitives import Linear


@dataclass
class ModuleSpec:
    """A recipe of a module: its class (or a function), arguments for it, and the recipes of its parts."""

    module: type | FunctionType
    params: dict = field(default_factory=dict)
    submodules: Any = None


def build_module(spec_or_class, *args, **kwargs):
    """A new module from a ModuleSpec or a class; a function comes back as it is, since it holds no weights.

    args and kwargs go to the class, after the params of the spec; its submodules, if any, as the argument submodules.
    TypeError for anything else. A TypeError or ValueError of the class is raised again with the name of the class.
    """
    if isinstance(spec_or_class, (type, FunctionType)):
        spec_or_class = ModuleSpec(spec_or_class)
    made = getattr(spec_or_class, "module", None)
    if isinstance(made, FunctionType):
        return made
    if not isinstance(made, type):
        raise TypeError(f"build_module needs a ModuleSpec, a class or a function and got {type(spec_or_class).__name__}: hand over the recipe, not what it builds")
    if spec_or_class.submodules is not None:
        kwargs["submodules"] = spec_or_class.submodules
    try:
        return made(*args, **spec_or_class.params, **kwargs)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error} when instantiating {made.__name__}") from error


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


class Identity(nn.Cell):
    """Hands on its input, whatever it is built with: the part that is not there."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def construct(self, x):
        return x


class RMSNorm(nn.Cell):
    """Each vector of the last axis to mean square 1, then a learned scale (Zhang and Sennrich 2019); keeps shape and dtype."""

    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = ms.Parameter(np.ones(n_embd, np.float32))

    def construct(self, x):
        mean_square = (x * x).mean(axis=-1, keep_dims=True)    # (..., 1)
        return self.weight * (x * ops.rsqrt(mean_square + self.eps))


def exact_gelu(x):
    """x times the normal distribution function of x (Hendrycks and Gimpel 2016); any shape, same dtype."""
    return 0.5 * x * (1 + ops.erf(x / math.sqrt(2)))


def flash_attention(q, k, v, mask, tile=32):
    """attention() of lesson 04 over tiles of keys: no (T_q, T_k) matrix is ever stored (Dao et al. 2022, algorithm 1).

    The same arguments and result; each query must see a key of the first tile, as with a causal mask.
    """
    q = q / math.sqrt(q.shape[-1])
    top, total, y = ops.full_like(q[..., :1], -math.inf), 0.0, 0.0   # of each row so far: largest score, sum of exp, weighted values
    for start in range(0, k.shape[-2], tile):
        k_tile, v_tile = k[..., start : start + tile, :], v[..., start : start + tile, :]
        scores = ops.matmul(q, k_tile.swapaxes(-2, -1))       # (..., T_q, tile)
        scores = scores.masked_fill(ops.logical_not(mask[..., start : start + tile]), -math.inf)
        new_top = ops.maximum(top, ops.stop_gradient(scores.max(axis=-1, keepdims=True)))
        e = ops.exp(scores - new_top)                         # (..., T_q, tile)
        shrink = ops.exp(top - new_top)                       # what was summed so far stood under the old top
        total = total * shrink + e.sum(axis=-1, keepdims=True)
        y = y * shrink + ops.matmul(e, v_tile)                # (..., T_q, head_dim)
        top = new_top
    return y / total


class SelfAttention(nn.Cell):
    """CausalSelfAttention of lesson 04 with parts that are given: (B, T, n_embd) -> the same shape."""

    def __init__(self, config, submodules):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = build_module(submodules.c_attn, config.n_embd, 3 * config.n_embd)
        self.c_proj = build_module(submodules.c_proj, config.n_embd, config.n_embd)
        self.q_layernorm = build_module(submodules.q_layernorm, config.n_embd // config.n_head)
        self.k_layernorm = build_module(submodules.k_layernorm, config.n_embd // config.n_head)
        self.core_attention = build_module(submodules.core_attention)

    def construct(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, axis=-1)            # three times (B, T, C)
        q = self.q_layernorm(split_heads(q, self.n_head))     # (B, n_head, T, head_dim)
        k = self.k_layernorm(split_heads(k, self.n_head))
        v = split_heads(v, self.n_head)
        y = self.core_attention(q, k, v, causal_mask(T, T))
        return self.c_proj(merge_heads(y))                    # (B, T, C)


class FeedForward(nn.Cell):
    """MLP of lesson 05 with parts that are given: (..., n_embd) -> the same shape."""

    def __init__(self, config, submodules):
        super().__init__()
        self.c_fc = build_module(submodules.c_fc, config.n_embd, 4 * config.n_embd)
        self.c_proj = build_module(submodules.c_proj, 4 * config.n_embd, config.n_embd)
        self.activation = build_module(submodules.activation)

    def construct(self, x):
        x = self.activation(self.c_fc(x))                     # (..., 4 n_embd)
        return self.c_proj(x)


class Layer(nn.Cell):
    """Block of lesson 06 with parts that are given: (B, T, n_embd) -> the same shape."""

    def __init__(self, config, submodules):
        super().__init__()
        self.ln_1 = build_module(submodules.ln_1, config.n_embd)
        self.attn = build_module(submodules.attn, config)
        self.ln_2 = build_module(submodules.ln_2, config.n_embd)
        self.mlp = build_module(submodules.mlp, config)

    def construct(self, x):
        x = x + self.attn(self.ln_1(x))                       # (B, T, C)
        x = x + self.mlp(self.ln_2(x))
        return x


def get_gpt_layer_local_spec(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    """The recipe of one GPT layer: a ModuleSpec of Layer, without weights, sizes or ranks. The default builds lesson 06's Block.

    The meaning is that of MindFormers 2.1.0 and Megatron-Core. normalization: "LayerNorm" or "RMSNorm"; gelu_form: "tanh" or "exact".
    ValueError for any other word.
    """
    norms = {"LayerNorm": LayerNorm, "RMSNorm": RMSNorm}
    forms = {"tanh": gelu, "exact": exact_gelu}
    if normalization not in norms:
        raise ValueError(f"normalization is {normalization!r} and must be one of {', '.join(norms)}")
    if gelu_form not in forms:
        raise ValueError(f"gelu_form is {gelu_form!r} and must be one of {', '.join(forms)}")
    norm = norms[normalization]
    attn = ModuleSpec(SelfAttention, submodules=AttentionSubmodules(
        c_attn=Linear,
        core_attention=flash_attention if use_flash_attention else attention,
        c_proj=Linear,
        q_layernorm=norm if qk_layernorm else Identity,
        k_layernorm=norm if qk_layernorm else Identity,
    ))
    mlp = ModuleSpec(FeedForward, submodules=MLPSubmodules(c_fc=Linear, activation=forms[gelu_form], c_proj=Linear))
    return ModuleSpec(Layer, submodules=LayerSubmodules(ln_1=norm, attn=attn, ln_2=norm, mlp=mlp))
