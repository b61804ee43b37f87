"""Drawing text from a GPT: temperature, top-k, top-p (Holtzman et al. 2020), and a cache for keys and values."""
import math

import torch

from .attention import attention, causal_mask, merge_heads, split_heads
from .primitives import linear, softmax


def keep_top_k(logits, k):
    """(..., V) -> (..., V): the k largest of each row as they are, -inf for the rest. k beyond V keeps all (Fan et al. 2018)."""
    k = min(k, logits.shape[-1])
    kth = logits.topk(k, dim=-1).values[..., -1:]             # (..., 1), the smallest that stays
    return logits.masked_fill(logits < kth, -math.inf)


def keep_top_p(logits, p):
    """(..., V) -> (..., V): the fewest likeliest tokens whose probabilities reach p, -inf for the rest; 0 < p <= 1.

    At least one token stays (Holtzman et al. 2020, section 3.1).
    """
    if p >= 1:
        return logits                                         # a sum rounded up to 1 must not cost the last tokens
    ordered, order = logits.sort(dim=-1, descending=True)     # (..., V)
    probs = softmax(ordered, dim=-1)
    before = probs.cumsum(dim=-1) - probs                     # probability of all likelier tokens
    ordered = ordered.masked_fill(before >= p, -math.inf)     # the likeliest has 0 before it: it stays
    return torch.empty_like(logits).scatter(-1, order, ordered)


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
        self.keys = [None] * len(self.model.h)                # one (B, n_head, n_ctx, head_dim) a layer
        self.values = [None] * len(self.model.h)

    def append(self, layer, k, v):
        B, n_head, T, head_dim = k.shape
        if self.keys[layer] is None:
            n_ctx = self.model.config.n_ctx
            self.keys[layer] = k.new_empty(B, n_head, n_ctx, head_dim)
            self.values[layer] = k.new_empty(B, n_head, n_ctx, head_dim)
        end = self.length + T
        self.keys[layer][:, :, self.length : end] = k
        self.values[layer][:, :, self.length : end] = v
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    @torch.no_grad()
    def forward(self, idx):
        model = self.model
        B, T = idx.shape
        end = self.length + T
        if end > model.config.n_ctx:
            raise ValueError(f"the cache holds {self.length} positions and n_ctx = {model.config.n_ctx}: {T} more do not fit, reset it")
        mask = causal_mask(T, end).to(idx.device)             # new queries see all that came before
        x = model.wte(idx) + model.wpe(torch.arange(self.length, end, device=idx.device))   # (B, T, C)
        for layer, block in enumerate(model.h):
            q, k, v = block.attn.c_attn(block.ln_1(x)).split(x.shape[-1], dim=-1)
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


def sample(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    """(B, T) int64 -> (B, T + max_new_tokens): idx, and behind it tokens drawn one by one.

    Temperature first, then top-k, then top-p; temperature 0 takes the likeliest. The model runs in eval mode and
    is handed back as it was. A KVCache makes it faster and changes nothing else.
    """
    if cache is not None:
        cache.reset()                                         # it may still hold another prompt
    was_training = model.training
    model.eval()
    for _ in range(max_new_tokens):
        with torch.no_grad():
            logits = next_logits(model, idx, cache)           # (B, V)
        if temperature == 0:
            new = logits.argmax(dim=-1, keepdim=True)         # (B, 1)
        else:
            logits = logits / temperature
            if top_k is not None:
                logits = keep_top_k(logits, top_k)
            if top_p is not None:
                logits = keep_top_p(logits, top_p)
            new = torch.multinomial(softmax(logits, dim=-1), num_samples=1, generator=generator)
        idx = torch.cat((idx, new), dim=1)
    model.train(was_training)
    return idx
