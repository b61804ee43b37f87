"""The reference answers against torch.nn, within 1e-6 in float32: values and gradients."""
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from solutions.pytorch import attention, embeddings, layers, primitives

CONFIG = SimpleNamespace(vocab_size=29, n_ctx=11, n_layer=2, n_head=3, n_embd=24)


def compare(mine, stock, *inputs, atol=1e-6):
    """Values of mine and stock, and the gradients of every input and of parameters in the same order."""
    results = []
    for function in (mine, stock):
        leaves = [x.detach().clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
        out = function(*leaves)
        torch.manual_seed(1)
        (out * torch.randn_like(out)).sum().backward()
        grads = [x.grad for x in leaves if x.is_floating_point()]
        if isinstance(function, nn.Module):
            grads += [p.grad for p in function.parameters()]
        results.append([out.detach(), *grads])
    for a, b in zip(*results, strict=True):
        assert a.shape == b.shape
        assert (a - b).abs().max() <= atol * max(1, b.abs().max()), (a - b).abs().max()


def copied(mine, stock):
    with torch.no_grad():
        for p, q in zip(mine.parameters(), stock.parameters(), strict=True):
            assert p.shape == q.shape
            p.copy_(torch.randn_like(p) * 0.3)
            q.copy_(p)
    return mine, stock


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def test_linear():
    compare(*copied(primitives.Linear(7, 5), nn.Linear(7, 5)), torch.randn(3, 4, 7))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dim):
    x = 5 * torch.randn(4, 6, 7)
    compare(lambda x: primitives.softmax(x, dim), lambda x: F.softmax(x, dim), x)
    compare(lambda x: primitives.log_softmax(x, dim), lambda x: F.log_softmax(x, dim), x, atol=2e-6)


def test_cross_entropy():
    targets = torch.randint(9, (12,))
    targets[3] = -100
    compare(lambda x: primitives.cross_entropy(x, targets), lambda x: F.cross_entropy(x, targets), torch.randn(12, 9))


def test_embedding():
    compare(*copied(embeddings.Embedding(9, 5), nn.Embedding(9, 5)), torch.randint(9, (3, 4)))


def test_layer_norm():
    x = torch.randn(3, 4, 24)
    x[0, 0] *= 1e-3
    compare(*copied(layers.LayerNorm(24), nn.LayerNorm(24)), x[1:])
    compare(*copied(layers.LayerNorm(24, eps=0.1), nn.LayerNorm(24, eps=0.1)), x)


def test_gelu():
    compare(layers.gelu, lambda x: F.gelu(x, approximate="tanh"), 3 * torch.randn(100))


def test_attention():
    q, k, v = torch.randn(3, 2, 3, 7, 8)
    mask = attention.causal_mask(7, 7)
    compare(lambda *x: attention.attention(*x, mask), lambda *x: F.scaled_dot_product_attention(*x, is_causal=True), q, k, v)


def test_causal_self_attention_against_multihead_attention():
    mine = attention.CausalSelfAttention(CONFIG)
    stock = nn.MultiheadAttention(CONFIG.n_embd, CONFIG.n_head, batch_first=True)
    copied(mine, stock)
    mask = ~attention.causal_mask(9, 9)                       # here True means hidden
    x = torch.randn(2, 9, CONFIG.n_embd)
    assert (mine(x) - stock(x, x, x, attn_mask=mask, need_weights=False)[0]).abs().max() <= 1e-6
