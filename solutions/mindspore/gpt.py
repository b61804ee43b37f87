"""GPT-2 (Radford et al. 2019): pre-LayerNorm blocks over tied embeddings."""
import math
from dataclasses import dataclass

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from .attention import CausalSelfAttention
from .embeddings import Embedding
from .layers import MLP, LayerNorm
from .primitives import cross_entropy, linear


@dataclass
class GPTConfig:
    """Sizes of a model; the defaults are GPT-2 small's (Radford et al. 2019)."""

    vocab_size: int = 50257
    n_ctx: int = 1024
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768


class Block(nn.Cell):
    """One pre-LayerNorm block: (B, T, n_embd) -> the same shape (openai/gpt-2, src/model.py, function block).

    config has n_embd and n_head.
    """

    def __init__(self, config):
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = LayerNorm(config.n_embd)
        self.mlp = MLP(config)

    def construct(self, x):
        x = x + self.attn(self.ln_1(x))                       # (B, T, C)
        x = x + self.mlp(self.ln_2(x))
        return x


def init_weights(model, n_layer):
    """Draw the weights anew by the names of the parameters (Radford et al. 2019, section 2.3).

    Matrices normal with std 0.02, both c_proj of a block 0.02 / sqrt(2 n_layer), biases 0; LayerNorm weights stay.
    """
    for name, p in model.parameters_and_names():
        if name.endswith("c_proj.weight"):
            p.set_data(normal(p.shape, 0.02 / math.sqrt(2 * n_layer)))
        elif p.ndim >= 2:
            p.set_data(normal(p.shape, 0.02))
        elif name.endswith("bias"):
            p.set_data(ops.zeros(p.shape, p.dtype))


def normal(shape, std):
    """(shape) float32 normal numbers with mean 0, from NumPy's generator, which ms.set_seed seeds."""
    return ms.Tensor(std * np.random.randn(*shape).astype(np.float32))


class GPT(nn.Cell):
    """GPT-2 with its names; the head is wte.weight itself.

    construct(idx, targets=None): (B, T) int32 or int64 -> (logits (B, T, V), mean loss or None). Targets of -100 do not count.

    Raises:
        ValueError: idx has more than n_ctx columns.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = Embedding(config.vocab_size, config.n_embd)
        self.wpe = Embedding(config.n_ctx, config.n_embd)
        self.h = nn.CellList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = LayerNorm(config.n_embd)
        init_weights(self, config.n_layer)

    def construct(self, idx, targets=None):
        B, T = idx.shape
        if T > self.config.n_ctx:
            raise ValueError(f"{T} tokens do not fit into n_ctx = {self.config.n_ctx}: crop idx to its last n_ctx columns")
        x = self.wte(idx) + self.wpe(ops.arange(T))           # (B, T, C)
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        logits = linear(x, self.wte.weight)                   # (B, T, V): the head is wte itself
        if targets is None:
            return logits, None
        loss = cross_entropy(logits.reshape(B * T, -1), targets.reshape(B * T))
        return logits, loss
