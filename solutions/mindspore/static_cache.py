"""A cache whose shapes never change, so that one compiled graph serves every token."""
import mindspore as ms
from mindspore import ops

from .attention import attention, merge_heads, split_heads
from .primitives import linear


class StaticKVCache:
    """Keys and values in buffers of n_ctx positions, with one graph that takes one token.

    length: positions held. reset(): forget them. step(token (B, 1), position ()) -> logits (B, 1, V).
    forward(idx): (B, T) new tokens -> (B, T, V), as KVCache; ValueError if they do not fit into n_ctx.
    """

    def __init__(self, model, batch_size=1):
        config = model.config
        shape = (batch_size, config.n_head, config.n_ctx, config.n_embd // config.n_head)
        self.model = model
        self.keys = self.buffers("keys", shape)
        self.values = self.buffers("values", shape)
        self.compiled = ms.jit(self.step)
        self.reset()

    def buffers(self, name, shape):
        layers = range(self.model.config.n_layer)
        return ms.ParameterTuple([ms.Parameter(ops.zeros(shape, ms.float32), name=f"{name}.{i}", requires_grad=False) for i in layers])

    def reset(self):
        self.length = 0                                       # what lies behind it in the buffers is never looked at

    def step(self, token, position):
        model = self.model
        places = ops.arange(model.config.n_ctx)               # (n_ctx,)
        here = (places == position).reshape(-1, 1)            # (n_ctx, 1)
        x = model.wte(token) + model.wpe(position)            # (B, 1, C)
        for layer, block in enumerate(model.h):
            q, k, v = block.attn.c_attn(block.ln_1(x)).split(x.shape[-1], axis=-1)
            q = split_heads(q, block.attn.n_head)             # (B, n_head, 1, head_dim)
            k = split_heads(k, block.attn.n_head)
            v = split_heads(v, block.attn.n_head)
            k = ops.assign(self.keys[layer], ops.where(here, k, self.keys[layer]))   # (B, n_head, n_ctx, head_dim)
            v = ops.assign(self.values[layer], ops.where(here, v, self.values[layer]))
            y = attention(q, k, v, places <= position)
            x = x + block.attn.c_proj(merge_heads(y))
            x = x + block.mlp(block.ln_2(x))
        return linear(model.ln_f(x), model.wte.weight)        # (B, 1, V)

    def forward(self, idx):
        B, T = idx.shape
        n_ctx = self.model.config.n_ctx
        if self.length + T > n_ctx:
            raise ValueError(f"the cache holds {self.length} positions and n_ctx = {n_ctx}: {T} more do not fit, reset it")
        logits = []
        for t in range(T):
            logits.append(self.compiled(idx[:, t : t + 1], ms.Tensor(self.length, ms.int32)))
            self.length += 1
        return ops.cat(logits, axis=1)                        # (B, T, V)
