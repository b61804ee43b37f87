"""The part of the GPT that a pipeline stage holds. Which layers that are needs no tensors: partition_layers in solutions/pytorch/stages.py."""
import mindspore as ms
import safetensors
from mindspore import nn, ops

from .embeddings import Embedding
from .gpt import Block, init_weights
from .layers import LayerNorm
from .primitives import linear


class LocalSliceGPT(nn.Cell):
    """The part of a GPT that one stage owns, under the names it has in the whole model: h.4 is h.4 on whichever stage.

    The first stage has wte and wpe, each its layers, the last ln_f and a wte of its own, for the head.
    counts: layers of each stage. construct(x): ids (B, T) on the first stage, else (B, T, n_embd); gives (B, T, n_embd),
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
        self.h = nn.CellDict({str(i): Block(config) for i in range(start, start + counts[stage])})
        if self.last:
            self.ln_f = LayerNorm(config.n_embd)
        init_weights(self, config.n_layer)

    def construct(self, x):
        if self.first:
            B, T = x.shape
            if T > self.config.n_ctx:
                raise ValueError(f"{T} tokens do not fit into n_ctx = {self.config.n_ctx}: crop idx to its last n_ctx columns")
            x = self.wte(x) + self.wpe(ops.arange(T))           # (B, T, C)
        for block in self.h.values():
            x = block(x)
        if self.last:
            x = linear(self.ln_f(x), self.wte.weight)         # (B, T, V)
        return x

    def load(self, path):
        """Read the parameters of this stage, and no others, from a safetensors file of the whole GPT.

        ValueError if one is missing there or has another shape; nothing is changed then.
        """
        params = dict(self.parameters_and_names())
        with safetensors.safe_open(path, framework="np") as file:
            names = set(file.keys())
            for name, p in params.items():
                if name not in names:
                    raise ValueError(f"{path} has no {name}, which this stage needs")
                shape = tuple(file.get_slice(name).get_shape())
                if shape != tuple(p.shape):
                    raise ValueError(f"{name} has shape {shape} in {path} and {tuple(p.shape)} here")
            for name, p in params.items():
                p.set_data(ms.Tensor(file.get_tensor(name)))   # keeps the dtype of p
