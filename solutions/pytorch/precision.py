"""A dtype for each part of the GPT over float32 weights, and loss scaling (Micikevicius et al. 2018)."""
import math

import torch
from torch import nn

from .attention import causal_mask, merge_heads, split_heads
from .layers import gelu
from .primitives import cross_entropy, linear, softmax
from .training import clip_grad_norm


def attention_in(q, k, v, mask, dtype):
    """attention(q, k, v, mask) with its two products in the dtype of q, k and v and its softmax in dtype.

    q (..., T_q, d), k (..., T_k, d), v (..., T_k, d_v), of one dtype; bool mask, True: may attend, or None.
    Returns (..., T_q, d_v) of the dtype of v.
    """
    q = q / math.sqrt(q.shape[-1])                            # before the product: it overflows sqrt(d) times later
    scores = q @ k.transpose(-2, -1)                          # (..., T_q, T_k), in the dtype of q
    scores = scores.to(dtype)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = softmax(scores, dim=-1).to(v.dtype)
    return weights @ v                                        # (..., T_q, d_v)


class PrecisionGPT(nn.Module):
    """A GPT that computes as a policy says, on the float32 parameters of the model it is made from (shared, not copied).

    policy: a LayerPrecision. forward(idx, targets=None): (B, T) int64 -> (logits (B, T, V), mean loss or None), float32.
    Weights are cast where they are used, so that their gradients and updates are float32.
    """

    def __init__(self, model, policy):
        super().__init__()
        self.config, self.dtypes = model.config, policy.dtypes(torch)
        self.wte, self.wpe, self.h, self.ln_f = model.wte, model.wpe, model.h, model.ln_f

    def linear_in(self, dtype, layer, x):
        return linear(x.to(dtype), layer.weight.to(dtype), layer.bias.to(dtype))

    def forward(self, idx, targets=None):
        B, T = idx.shape
        use, C = self.dtypes, self.config.n_embd
        stream = use.embedding                                # of all that is added to x
        mask = causal_mask(T, T).to(idx.device)
        x = self.wte(idx).to(stream) + self.wpe(torch.arange(T, device=idx.device)).to(stream)   # (B, T, C)
        for block in self.h:
            attn, mlp = block.attn, block.mlp
            y = block.ln_1(x.to(use.norm))                    # statistics in the dtype of its input
            y = self.linear_in(use.qkv, attn.c_attn, y)       # (B, T, 3C)
            q, k, v = [split_heads(part, attn.n_head) for part in y.split(C, dim=-1)]
            y = merge_heads(attention_in(q, k, v, mask, use.softmax))   # (B, T, C)
            y = self.linear_in(use.qkv, attn.c_proj, y)
            x = x + y.to(stream)
            y = block.ln_2(x.to(use.norm))
            y = gelu(self.linear_in(use.mlp, mlp.c_fc, y))    # (B, T, 4C)
            y = self.linear_in(use.mlp, mlp.c_proj, y)        # (B, T, C)
            x = x + y.to(stream)
        x = self.ln_f(x.to(use.norm))
        logits = linear(x.to(use.head), self.wte.weight.to(use.head))
        logits = logits.float()                               # (B, T, V): the loss is computed in float32
        if targets is None:
            return logits, None
        return logits, cross_entropy(logits.reshape(B * T, -1), targets.reshape(B * T))


class LossScaler:
    """Dynamic loss scaling (Micikevicius et al. 2018, section 3.2): gradients in the range of float16, updates in float32.

    scaled(loss): loss times scale, for backward.
    step(optimizer, max_norm=None): divides the gradients by scale; where one is inf or nan it changes nothing else, multiplies
    scale by backoff and returns False. Else it clips, steps and returns True, and after interval such steps in a row scale grows.
    """

    def __init__(self, scale=2.0**16, growth=2.0, backoff=0.5, interval=2000):
        self.scale = scale
        self.growth, self.backoff, self.interval = growth, backoff, interval
        self.good_steps = 0                                   # since the scale changed

    def scaled(self, loss):
        return loss * self.scale

    def step(self, optimizer, max_norm=None):
        params = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        for p in params:
            p.grad = p.grad / self.scale
        if not all(p.grad.isfinite().all() for p in params):
            self.scale *= self.backoff
            self.good_steps = 0
            return False
        if max_norm is not None:
            clip_grad_norm(params, max_norm)                  # the true norm: the scale is gone
        optimizer.step()
        self.good_steps += 1
        if self.good_steps == self.interval:
            self.scale *= self.growth
            self.good_steps = 0
        return True
