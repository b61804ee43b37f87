"""The reference GPT against transformers' GPT2LMHeadModel: same random weights, same numbers."""
import math

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from solutions.pytorch.gpt import GPT, GPTConfig

CONFIG = GPTConfig(vocab_size=97, n_ctx=16, n_layer=3, n_head=4, n_embd=32)
CONV1D = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")   # stored (in, out)


def random_weights(model):
    """Numbers of a size that leaves no part silent: biases and LayerNorms too."""
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for name, p in model.named_parameters():
            center = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
            scale = 1 / math.sqrt(p.shape[-1]) if p.dim() == 2 else 0.3
            p.copy_(center + scale * torch.randn(p.shape, generator=generator))


def outside_name(name):
    return f"transformer.{name}"


def outside_layout(name, tensor):
    return tensor.T if name.endswith(CONV1D) else tensor


@pytest.fixture(scope="module")
def models():
    """Ours, and transformers' with the same numbers, neither with dropout."""
    mine = GPT(CONFIG)
    random_weights(mine)
    outside = GPT2LMHeadModel(GPT2Config(
        vocab_size=97, n_positions=16, n_layer=3, n_head=4, n_embd=32,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager", bos_token_id=0, eos_token_id=0,
    )).eval()
    theirs = dict(outside.named_parameters())
    assert set(theirs) == {outside_name(name) for name, _ in mine.named_parameters()}
    with torch.no_grad():
        for name, p in mine.named_parameters():
            theirs[outside_name(name)].copy_(outside_layout(name, p))
    assert outside.lm_head.weight is outside.transformer.wte.weight
    return mine, outside


def ids(B, T, seed=0):
    return torch.randint(97, (B, T), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("B", "T"), [(1, 1), (3, 9), (2, 16)])
def test_logits(models, B, T):
    mine, outside = models
    idx = ids(B, T)
    with torch.no_grad():
        got, want = mine(idx)[0], outside(idx).logits
    assert want.std() > 0.5                                   # else nothing is compared
    assert torch.allclose(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("B", "T"), [(3, 9), (2, 16)])
def test_loss_and_every_gradient(models, B, T):
    mine, outside = models
    idx, targets = ids(B, T), ids(B, T, seed=1)
    targets[0, 2] = -100
    mine.zero_grad()
    outside.zero_grad()
    _, loss = mine(idx, targets)
    loss.backward()
    logits = outside(idx).logits                              # its own labels= would shift a second time
    theirs = torch.nn.functional.cross_entropy(logits.reshape(B * T, -1), targets.reshape(B * T))
    theirs.backward()
    assert abs(loss.item() - theirs.item()) < 1e-5
    wanted = dict(outside.named_parameters())
    for name, p in mine.named_parameters():
        want = outside_layout(name, wanted[outside_name(name)].grad)
        assert want.abs().max() > 1e-4, name
        assert torch.allclose(p.grad, want, rtol=0, atol=1e-5), name


def test_twenty_greedy_tokens(models):
    mine, outside = models

    def continued(logits):
        idx = ids(2, 5, seed=2)
        for _ in range(20):                                   # the window slides from the 12th on
            nxt = logits(idx[:, -CONFIG.n_ctx :])[:, -1].argmax(dim=-1, keepdim=True)   # (2, 1)
            idx = torch.cat([idx, nxt], dim=1)
        return idx[:, 5:]

    with torch.no_grad():
        got = continued(lambda idx: mine(idx)[0])
        want = continued(lambda idx: outside(idx).logits)
    assert torch.equal(got, want)
    assert len(got.unique()) > 3                              # no loop on one token


def test_gpt2_small_has_124_million_parameters():
    with torch.device("meta"):
        model = GPT(GPTConfig())
    assert sum(p.numel() for p in model.parameters()) == 124_439_808


def test_loss_at_the_start_is_ln_V():
    torch.manual_seed(0)
    _, loss = GPT(CONFIG)(ids(8, 16), ids(8, 16, seed=1))
    assert abs(loss.item() - math.log(97)) < 0.1
