"""Drawing text from a GPT: temperature, top-k, top-p (Holtzman et al. 2020), and a cache for keys and values."""
import math

import mindspore as ms
import numpy as np
from mindspore import ops

from .attention import attention, causal_mask, merge_heads, split_heads
from .primitives import linear, softmax


def keep_top_k(logits, k):
    """(..., V) -> (..., V): the k largest of each row as they are, -inf for the rest. k beyond V keeps all (Fan et al. 2018)."""
    k = min(k, logits.shape[-1])
    kth = ops.topk(logits, k)[0][..., -1:]                    # (..., 1), the smallest that stays
    return logits.masked_fill(logits < kth, -math.inf)


def keep_top_p(logits, p):
    """(..., V) -> (..., V): the fewest likeliest tokens whose probabilities reach p, -inf for the rest; 0 < p <= 1.

    At least one token stays (Holtzman et al. 2020, section 3.1).
    """
    if p >= 1:
        return logits                                         # a sum rounded up to 1 must not cost the last tokens
    ordered, order = ops.sort(logits, axis=-1, descending=True)   # (..., V)
    probs = softmax(ordered, dim=-1)
    before = ops.cumsum(probs, axis=-1) - probs               # probability of all likelier tokens
    ordered = ordered.masked_fill(before >= p, -math.inf)     # the likeliest has 0 before it: it stays
    return ops.scatter(ops.zeros_like(logits), -1, order, ordered)


class KVCache:
    """Keys and values of the positions that a GPT has seen, so that a new token costs one position.

    length: positions held. reset(): forget them. forward(idx): (B, T) new tokens -> (B, T, V) logits, equal to
    those of the model on everything fed since the last reset; ValueError if this would exceed n_ctx.
    """

    def __init__(self, model):
        self.model = model
        self.reset()

    def reset(self):
        self.length = 0                                       # positions held
        self.keys = [None] * len(self.model.h)                # one (B, n_head, length, head_dim) a layer
        self.values = [None] * len(self.model.h)

    def append(self, layer, k, v):
        if self.keys[layer] is not None:
            k = ops.cat((self.keys[layer], k), axis=2)        # (B, n_head, end, head_dim)
            v = ops.cat((self.values[layer], v), axis=2)
        self.keys[layer] = k
        self.values[layer] = v
        return k, v

    def forward(self, idx):
        model = self.model
        B, T = idx.shape
        end = self.length + T
        if end > model.config.n_ctx:
            raise ValueError(f"the cache holds {self.length} positions and n_ctx = {model.config.n_ctx}: {T} more do not fit, reset it")
        mask = causal_mask(T, end)                            # new queries see all that came before
        x = model.wte(idx) + model.wpe(ops.arange(self.length, end))   # (B, T, C)
        for layer, block in enumerate(model.h):
            q, k, v = block.attn.c_attn(block.ln_1(x)).split(x.shape[-1], axis=-1)
            q = split_heads(q, block.attn.n_head)             # (B, n_head, T, head_dim)
            k = split_heads(k, block.attn.n_head)
            v = split_heads(v, block.attn.n_head)
            k, v = self.append(layer, k, v)                   # (B, n_head, end, head_dim)
            y = attention(q, k, v, mask)
            x = x + block.attn.c_proj(merge_heads(y))
            x = x + block.mlp(block.ln_2(x))
        self.length = end
        return linear(model.ln_f(x), model.wte.weight)        # (B, T, V)


def next_logits(model, idx, cache=None):
    """(B, V): what the model expects after idx. With a cache, only the columns it has not seen are computed."""
    n_ctx = model.config.n_ctx
    if cache is None:
        return model(idx[:, -n_ctx:])[0][:, -1]
    if idx.shape[1] > n_ctx:                                  # the window slides, every position changes
        cache.reset()
        idx = idx[:, -n_ctx:]
    return cache.forward(idx[:, cache.length :])[:, -1]


def draw(probs, generator):
    """(B, V) -> (B, 1) int64: one token a row, where a uniform number falls among the summed probabilities."""
    probs = probs.asnumpy().astype(np.float64)
    edges = probs.cumsum(axis=-1)                             # (B, V)
    u = generator.random((len(probs), 1)) * edges[:, -1:]
    return ms.Tensor((edges <= u).sum(axis=-1, keepdims=True))


def sample(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    """(B, T) int -> (B, T + max_new_tokens) int64: idx, and behind it tokens drawn one by one.

    Temperature first, then top-k, then top-p; temperature 0 takes the likeliest. generator: numpy.random.Generator.
    The model runs in eval mode and is handed back as it was. A KVCache makes it faster and changes nothing else.
    """
    if cache is not None:
        cache.reset()                                         # it may still hold another prompt
    if generator is None:
        generator = np.random.default_rng()
    was_training = model.training
    model.set_train(False)
    idx = idx.astype(ms.int64)
    for _ in range(max_new_tokens):
        logits = next_logits(model, idx, cache)               # (B, V)
        if temperature == 0:
            new = ops.argmax(logits, -1, True).astype(ms.int64)   # (B, 1)
        else:
            logits = logits / temperature
            if top_k is not None:
                logits = keep_top_k(logits, top_k)
            if top_p is not None:
                logits = keep_top_p(logits, top_p)
            new = draw(softmax(logits, dim=-1), generator)
        idx = ops.cat((idx, new), axis=1)
    model.set_train(was_training)
    return idx
