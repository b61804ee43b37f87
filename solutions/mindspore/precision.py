"""A dtype for each part of the GPT over float32 weights, and loss scaling (Micikevicius et al. 2018)."""
import math

import mindspore as ms
from mindspore import nn, ops

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
    scores = ops.matmul(q, k.swapaxes(-2, -1))                # (..., T_q, T_k), in the dtype of q
    scores = scores.astype(dtype)
    if mask is not None:
        scores = scores.masked_fill(ops.logical_not(mask), -math.inf)
    weights = softmax(scores, dim=-1).astype(v.dtype)
    return ops.matmul(weights, v)                             # (..., T_q, d_v)


class PrecisionGPT(nn.Cell):
    """A GPT that computes as a policy says, on the float32 parameters of the model it is made from (shared, not copied).

    policy: a LayerPrecision. construct(idx, targets=None): (B, T) ids -> (logits (B, T, V), mean loss or None), float32.
    Weights are cast where they are used, so that their gradients and updates are float32.
    """

    def __init__(self, model, policy):
        super().__init__()
        self.config, self.dtypes = model.config, policy.dtypes(ms)
        self.wte, self.wpe, self.h, self.ln_f = model.wte, model.wpe, model.h, model.ln_f

    def linear_in(self, dtype, layer, x):
        return linear(x.astype(dtype), layer.weight.astype(dtype), layer.bias.astype(dtype))

    def construct(self, idx, targets=None):
        B, T = idx.shape
        use, C = self.dtypes, self.config.n_embd
        stream = use.embedding                                # of all that is added to x
        mask = causal_mask(T, T)
        x = self.wte(idx).astype(stream) + self.wpe(ops.arange(T)).astype(stream)   # (B, T, C)
        for block in self.h:
            attn, mlp = block.attn, block.mlp
            y = block.ln_1(x.astype(use.norm))                # statistics in the dtype of its input
            y = self.linear_in(use.qkv, attn.c_attn, y)       # (B, T, 3C)
            q, k, v = [split_heads(part, attn.n_head) for part in y.split(C, axis=-1)]
            y = merge_heads(attention_in(q, k, v, mask, use.softmax))   # (B, T, C)
            y = self.linear_in(use.qkv, attn.c_proj, y)
            x = x + y.astype(stream)
            y = block.ln_2(x.astype(use.norm))
            y = gelu(self.linear_in(use.mlp, mlp.c_fc, y))    # (B, T, 4C)
            y = self.linear_in(use.mlp, mlp.c_proj, y)        # (B, T, C)
            x = x + y.astype(stream)
        x = self.ln_f(x.astype(use.norm))
        logits = linear(x.astype(use.head), self.wte.weight.astype(use.head))
        logits = logits.astype(ms.float32)                    # (B, T, V): the loss is computed in float32
        if targets is None:
            return logits, None
        return logits, cross_entropy(logits.reshape(B * T, -1), targets.reshape(B * T))


class LossScaler(nn.Cell):
    """Dynamic loss scaling (Micikevicius et al. 2018, section 3.2): gradients in the range of float16, updates in float32.

    scaled(loss): loss times scale, to be differentiated.
    step(optimizer, grads, max_norm=None): divides the gradients by scale; where one is inf or nan it changes nothing else, multiplies
    scale by backoff and returns False. Else it clips, steps and returns True, and after interval such steps in a row scale grows.
    It is a Cell, because a compiled step can change nothing but Parameters: scale and good_steps are such.
    """

    def __init__(self, scale=2.0**16, growth=2.0, backoff=0.5, interval=2000):
        super().__init__()
        self.scale = ms.Parameter(ms.Tensor(scale, ms.float32), name="scale", requires_grad=False)
        self.growth, self.backoff, self.interval = growth, backoff, interval
        self.good_steps = ms.Parameter(ms.Tensor(0, ms.int32), name="good_steps", requires_grad=False)   # since the scale changed

    def scaled(self, loss):
        return loss * self.scale

    def step(self, optimizer, grads, max_norm=None):
        grads = tuple([g / self.scale for g in grads])
        finite = ops.stack([ops.isfinite(g).all() for g in grads]).all()
        if finite:                                            # a branch of the graph: decided at each call
            if max_norm is not None:
                grads = clip_grad_norm(grads, max_norm)[0]    # the true norm: the scale is gone
            optimizer.step(grads)
            good_steps = ops.assign(self.good_steps, self.good_steps + 1)
            if good_steps == self.interval:
                ops.assign(self.scale, self.scale * self.growth)
                ops.assign(self.good_steps, ms.Tensor(0, ms.int32))
        else:
            ops.assign(self.scale, self.scale * self.backoff)
            ops.assign(self.good_steps, ms.Tensor(0, ms.int32))
        return finite
