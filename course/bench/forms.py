"""A block of the GPT in MindSpore with every way of writing that the benchmark of the layer compares, each a word of a Form.

The readable block is lesson 15's, the fast one solutions/mindspore/fast.py; this one can stand at any point between the two.
Parameters have the names of both, so that all start from the same weights (c_attn is cut in three where a form has three).
"""
import math
from dataclasses import dataclass

import mindspore as ms
import numpy as np
from mindspore import nn, ops

matmul = ops.MatMul()
matmul_t = ops.MatMul(transpose_b=True)
batch_matmul = ops.BatchMatMul()
batch_matmul_t = ops.BatchMatMul(transpose_b=True)
row_softmax = ops.Softmax(axis=-1)
fused_gelu = ops.GeLU()


@dataclass(frozen=True)
class Form:
    """One way of writing; the defaults are those of the readable block. ValueError for a word that is none of WORDS."""

    operands: str = "swapped"      # or "transposed": products that read an operand transposed, and a stream of two axes
    mask: str = "boolean"          # or "additive"
    softmax: str = "by hand"       # or "one operation"
    norm: str = "means"            # or "products" with a column of 1/C, or "one operation" (ops.LayerNorm)
    gelu: str = "sigmoid"          # or "tanh", or "one operation" (ops.GeLU)
    qkv: str = "one"               # or "three" projections
    cells: str = "many"            # or "one"
    positions: str = "learned"     # which are no part of a block; or "table", "computed": RoPE on q and k
    buffers: str = "none"          # or "reused": scores and the wide layer of the MLP written into Parameters

    def __post_init__(self):
        for part, words in WORDS.items():
            if getattr(self, part) not in words:
                raise ValueError(f"{part} is {getattr(self, part)!r} and must be one of {', '.join(words)}.")
        if self.cells == "one" and (self.qkv, self.buffers) != ("one", "none"):
            raise ValueError("the block as one Cell has one projection for q, k and v, and no buffers.")


WORDS = {
    "operands": ("swapped", "transposed"), "mask": ("boolean", "additive"), "softmax": ("by hand", "one operation"),
    "norm": ("means", "products", "one operation"), "gelu": ("sigmoid", "tanh", "one operation"), "qkv": ("one", "three"),
    "cells": ("many", "one"), "positions": ("learned", "table", "computed"), "buffers": ("none", "reused"),
}


def linear(x, weight, bias, operands):
    if operands == "transposed":
        return matmul_t(x, weight) + bias
    return ops.matmul(x, weight.swapaxes(0, 1)) + bias


def layer_norm(x, weight, bias, column, form, primitive):
    if form.norm == "one operation":
        return primitive(x, weight, bias)[0]
    if form.norm == "products":
        flat = x.reshape(-1, x.shape[-1])
        flat = flat - matmul(flat, column)
        variance = matmul(flat * flat, column)
        return (weight * (flat * ops.rsqrt(variance + 1e-5)) + bias).reshape(x.shape)
    x = x - x.mean(axis=-1, keep_dims=True)
    variance = (x * x).mean(axis=-1, keep_dims=True)
    return weight * (x * ops.rsqrt(variance + 1e-5)) + bias


def gelu(x, form):
    if form.gelu == "one operation":
        return fused_gelu(x)
    a = math.sqrt(2 / math.pi)
    if form.gelu == "tanh":
        return 0.5 * x * (1 + ops.tanh(a * (x + 0.044715 * x * x * x)))
    return x * ops.sigmoid(x * (2 * a + 2 * a * 0.044715 * ops.square(x)))


def softmax(x, form):
    if form.softmax == "one operation":
        return row_softmax(x)
    x = x - ops.stop_gradient(x.max(axis=-1, keepdims=True))
    e = ops.exp(x)
    return e * (1 / e.sum(axis=-1, keepdims=True))


def angles(n_ctx, head_dim):
    """(n_ctx, head_dim / 2) float32: the angle of each position and pair, computed inside the graph."""
    steps = ops.arange(0, head_dim, 2).astype(ms.float32)
    rates = ops.exp(steps * (-math.log(10000.0) / head_dim))
    return ops.arange(n_ctx).astype(ms.float32).expand_dims(1) * rates


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return ops.concat((first * cos - second * sin, first * sin + second * cos), -1)


class Linear(nn.Cell):
    def __init__(self, d_in, d_out, form):
        super().__init__()
        self.operands = form.operands
        self.weight = ms.Parameter(np.zeros((d_out, d_in), np.float32))
        self.bias = ms.Parameter(np.zeros(d_out, np.float32))

    def construct(self, x):
        return linear(x, self.weight, self.bias, self.operands)


class LayerNorm(nn.Cell):
    def __init__(self, n_embd, form):
        super().__init__()
        self.form = form
        self.weight = ms.Parameter(np.ones(n_embd, np.float32))
        self.bias = ms.Parameter(np.zeros(n_embd, np.float32))
        self.column = ms.Tensor(np.full((n_embd, 1), 1 / n_embd, np.float32))
        self.primitive = ops.LayerNorm(-1, -1, 1e-5)

    def construct(self, x):
        return layer_norm(x, self.weight, self.bias, self.column, self.form, self.primitive)


class Core(nn.Cell):
    """q, k, v of the stream's shape -> the heads' results, merged."""

    def __init__(self, config, form):
        super().__init__()
        self.form, self.n_ctx, self.n_head = form, config.n_ctx, config.n_head
        self.head_dim = config.n_embd // config.n_head
        future = np.triu(np.ones((config.n_ctx, config.n_ctx), np.float32), k=1)
        self.added = ms.Tensor(-1e9 * future)
        self.hidden = ms.Tensor(future > 0)
        turns = np.arange(config.n_ctx)[:, None] * 10000.0 ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        self.cos, self.sin = ms.Tensor(np.cos(turns).astype(np.float32)), ms.Tensor(np.sin(turns).astype(np.float32))
        self.scores = None
        if form.buffers == "reused":
            shape = (config.batch, config.n_head, config.n_ctx, config.n_ctx)
            self.scores = ms.Parameter(np.zeros(shape, np.float32), requires_grad=False)

    def construct(self, q, k, v):
        shape = q.shape
        q, k, v = self.heads(q / math.sqrt(self.head_dim)), self.heads(k), self.heads(v)
        if self.form.positions == "table":
            q, k = rotate(q, self.cos, self.sin), rotate(k, self.cos, self.sin)
        elif self.form.positions == "computed":
            a = angles(self.n_ctx, self.head_dim)
            q, k = rotate(q, ops.cos(a), ops.sin(a)), rotate(k, ops.cos(a), ops.sin(a))
        if self.form.operands == "transposed":
            scores = batch_matmul_t(q, k)
        else:
            scores = ops.matmul(q, k.swapaxes(-2, -1))
        if self.form.mask == "additive":
            scores = scores + self.added
        else:
            scores = scores.masked_fill(self.hidden, -math.inf)
        if self.scores is not None:
            scores = ops.depend(scores, ops.assign(self.scores, ops.stop_gradient(scores)))
        y = batch_matmul(softmax(scores, self.form), v).swapaxes(1, 2)
        return y.reshape(shape)

    def heads(self, x):
        return x.reshape(-1, self.n_ctx, self.n_head, self.head_dim).swapaxes(1, 2)


class Attention(nn.Cell):
    def __init__(self, config, form):
        super().__init__()
        C = config.n_embd
        self.three = form.qkv == "three"
        if self.three:
            self.c_attn = nn.CellList([Linear(C, C, form) for _ in range(3)])
        else:
            self.c_attn = Linear(C, 3 * C, form)
        self.core = Core(config, form)
        self.c_proj = Linear(C, C, form)

    def construct(self, x):
        if self.three:
            q, k, v = self.c_attn[0](x), self.c_attn[1](x), self.c_attn[2](x)
        else:
            q, k, v = self.c_attn(x).split(x.shape[-1], axis=-1)
        return self.c_proj(self.core(q, k, v))


class MLP(nn.Cell):
    def __init__(self, config, form):
        super().__init__()
        self.form = form
        self.c_fc = Linear(config.n_embd, 4 * config.n_embd, form)
        self.c_proj = Linear(4 * config.n_embd, config.n_embd, form)
        self.wide = None
        if form.buffers == "reused":
            self.wide = ms.Parameter(np.zeros((config.batch * config.n_ctx, 4 * config.n_embd), np.float32), requires_grad=False)

    def construct(self, x):
        x = gelu(self.c_fc(x), self.form)
        if self.wide is not None:
            x = ops.depend(x, ops.assign(self.wide, ops.stop_gradient(x).reshape(self.wide.shape)))
        return self.c_proj(x)


class Block(nn.Cell):
    """(B, T, C) -> (B, T, C)."""

    def __init__(self, config, form):
        super().__init__()
        self.form = form
        self.ln_1, self.attn = LayerNorm(config.n_embd, form), Attention(config, form)
        self.ln_2, self.mlp = LayerNorm(config.n_embd, form), MLP(config, form)

    def construct(self, x):
        shape = x.shape
        if self.form.operands == "transposed":
            x = x.reshape(-1, shape[-1])
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x.reshape(shape)


class OneCell(nn.Cell):
    """The same block without Cells inside it: all parameters are its own, and construct is one text."""

    def __init__(self, config, form):
        super().__init__()
        C = config.n_embd
        self.form, self.core = form, Core(config, form)
        self.column = ms.Tensor(np.full((C, 1), 1 / C, np.float32))
        self.primitive = ops.LayerNorm(-1, -1, 1e-5)
        shapes = {
            "ln_1_weight": (C,), "ln_1_bias": (C,), "attn_c_attn_weight": (3 * C, C), "attn_c_attn_bias": (3 * C,),
            "attn_c_proj_weight": (C, C), "attn_c_proj_bias": (C,), "ln_2_weight": (C,), "ln_2_bias": (C,),
            "mlp_c_fc_weight": (4 * C, C), "mlp_c_fc_bias": (4 * C,), "mlp_c_proj_weight": (C, 4 * C), "mlp_c_proj_bias": (C,),
        }
        for name, shape in shapes.items():
            setattr(self, name, ms.Parameter(np.zeros(shape, np.float32)))

    def construct(self, x):
        form, operands, shape = self.form, self.form.operands, x.shape
        if operands == "transposed":
            x = x.reshape(-1, shape[-1])
        y = layer_norm(x, self.ln_1_weight, self.ln_1_bias, self.column, form, self.primitive)
        q, k, v = linear(y, self.attn_c_attn_weight, self.attn_c_attn_bias, operands).split(shape[-1], axis=-1)
        x = x + linear(self.core(q, k, v), self.attn_c_proj_weight, self.attn_c_proj_bias, operands)
        y = layer_norm(x, self.ln_2_weight, self.ln_2_bias, self.column, form, self.primitive)
        y = gelu(linear(y, self.mlp_c_fc_weight, self.mlp_c_fc_bias, operands), form)
        return (x + linear(y, self.mlp_c_proj_weight, self.mlp_c_proj_bias, operands)).reshape(shape)


def block(config, form):
    return (OneCell if form.cells == "one" else Block)(config, form)
