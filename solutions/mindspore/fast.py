"""The GPT of gpt.py for graph mode with kernel fusion: the same parameters and names, the same numbers, fewer and larger kernels.

What differs from gpt.py, measured together in lesson 16 and one by one in lesson 17:
the stream is a matrix (B * T, C); products take transposed operands instead of transposing; LayerNorm takes its means by
a product with a column of 1/C, which fusion handles better than a reduction; the mask is added; AdamW is the fused ops.Adam.
"""
import math

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from .embeddings import Embedding
from .gpt import init_weights
from .layers import gelu
from .primitives import cross_entropy

matmul = ops.MatMul()
matmul_t = ops.MatMul(transpose_b=True)                       # (N, d_in), (d_out, d_in) -> (N, d_out)
batch_matmul = ops.BatchMatMul()
batch_matmul_t = ops.BatchMatMul(transpose_b=True)            # (..., T, d), (..., T, d) -> (..., T, T)
softmax = ops.Softmax(axis=-1)


class Linear(nn.Cell):
    """(N, d_in) -> (N, d_out)."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = ms.Parameter(np.zeros((d_out, d_in), np.float32))
        self.bias = ms.Parameter(np.zeros(d_out, np.float32))

    def construct(self, x):
        return matmul_t(x, self.weight) + self.bias


class LayerNorm(nn.Cell):
    """LayerNorm of layers.py with its means as products (Ba et al. 2016): (N, n_embd) -> the same shape, float32."""

    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = ms.Parameter(np.ones(n_embd, np.float32))
        self.bias = ms.Parameter(np.zeros(n_embd, np.float32))
        self.mean = ms.Tensor(np.full((n_embd, 1), 1 / n_embd, np.float32))   # x @ mean is the mean of each row

    def construct(self, x):
        x = x - matmul(x, self.mean)                          # (N, n_embd)
        variance = matmul(x * x, self.mean)                   # (N, 1)
        return self.weight * (x * ops.rsqrt(variance + self.eps)) + self.bias


class CausalSelfAttention(nn.Cell):
    """(B * T, n_embd) -> the same shape, for T = n_ctx: row b * T + t is position t of sequence b. config: has n_ctx, n_embd and n_head."""

    def __init__(self, config):
        super().__init__()
        self.n_ctx, self.n_head, self.head_dim = config.n_ctx, config.n_head, config.n_embd // config.n_head
        self.scale = 1 / math.sqrt(self.head_dim)
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = Linear(config.n_embd, config.n_embd)
        future = np.triu(np.ones((config.n_ctx, config.n_ctx), np.float32), k=1)
        self.mask = ms.Tensor(-1e9 * future)                  # added to the scores: 0 where a query may attend

    def construct(self, x):
        q, k, v = self.c_attn(x).split(self.n_head * self.head_dim, axis=1)
        q, k, v = self.heads(q * self.scale), self.heads(k), self.heads(v)   # (B, n_head, T, head_dim)
        weights = softmax(batch_matmul_t(q, k) + self.mask)   # (B, n_head, T, T)
        y = batch_matmul(weights, v).swapaxes(1, 2)           # (B, T, n_head, head_dim)
        return self.c_proj(y.reshape(x.shape))

    def heads(self, x):
        return x.reshape(-1, self.n_ctx, self.n_head, self.head_dim).swapaxes(1, 2)


class MLP(nn.Cell):
    """(N, n_embd) -> the same shape. config: has n_embd."""

    def __init__(self, config):
        super().__init__()
        self.c_fc = Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = Linear(4 * config.n_embd, config.n_embd)

    def construct(self, x):
        return self.c_proj(gelu(self.c_fc(x)))


class Block(nn.Cell):
    """(B * n_ctx, n_embd) -> the same shape, with the parameters of gpt.Block. config: has n_ctx, n_embd and n_head."""

    def __init__(self, config):
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = LayerNorm(config.n_embd)
        self.mlp = MLP(config)

    def construct(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Cell):
    """forward(idx, targets): both (B, n_ctx) int32 -> (logits (B * n_ctx, V), loss)."""

    def __init__(self, config):
        super().__init__()
        self.n_embd = config.n_embd
        self.wte = Embedding(config.vocab_size, config.n_embd)
        self.wpe = Embedding(config.n_ctx, config.n_embd)
        self.h = nn.CellList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = LayerNorm(config.n_embd)
        init_weights(self, config.n_layer)

    def construct(self, idx, targets):
        x = self.wte(idx) + self.wpe.weight                   # (B, T, C)
        x = x.reshape(-1, self.n_embd)                        # (B * T, C) from here on
        for block in self.h:
            x = block(x)
        logits = matmul_t(self.ln_f(x), self.wte.weight)      # (B * T, V)
        return logits, cross_entropy(logits, targets.reshape(-1))


class AdamW(nn.Cell):
    """AdamW of training.py by the fused ops.Adam, which divides by sqrt(v) + eps before it corrects v: eps is scaled to make up."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__()
        self.params = ms.ParameterTuple(params)
        self.lr = ms.Parameter(ms.Tensor(lr, ms.float32), name="lr", requires_grad=False)
        self.powers = ms.ParameterTuple([
            ms.Parameter(ms.Tensor(1.0, ms.float32), name=name, requires_grad=False) for name in ("beta1_power", "beta2_power")
        ])
        self.m = self.params.clone("m", init="zeros")
        self.v = self.params.clone("v", init="zeros")
        self.betas, self.eps = betas, eps
        self.decay = [weight_decay if p.ndim >= 2 else 0.0 for p in self.params]
        self.adam = ops.Adam()

    def step(self, grads):
        beta1, beta2 = self.betas
        power1 = ops.assign(self.powers[0], self.powers[0] * beta1)
        power2 = ops.assign(self.powers[1], self.powers[1] * beta2)
        eps = self.eps * ops.sqrt(1 - power2)
        for i in range(len(self.params)):
            p = self.params[i]
            if self.decay[i] > 0:
                ops.assign(p, p * (1 - self.lr * self.decay[i]))
            self.adam(p, self.m[i], self.v[i], power1, power2, self.lr, beta1, beta2, eps, grads[i])
        return power1

    def set_lr(self, lr):
        self.lr.set_data(ms.Tensor(lr, ms.float32))
