"""The KV cache against the model itself, and sampling with it: equal at every step, and faster."""
import time

import pytest
import torch

from solutions.pytorch.gpt import GPT, GPTConfig
from solutions.pytorch.sampling import KVCache, keep_top_p, next_logits, sample

CONFIG = GPTConfig(vocab_size=53, n_ctx=48, n_layer=3, n_head=4, n_embd=64)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = GPT(CONFIG).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))                 # biases away from 0, LayerNorm away from 1
    return model


def ids(B, T, seed=0):
    return torch.randint(CONFIG.vocab_size, (B, T), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_equal_at_every_step_for_two_prompts_in_a_row_and_past_n_ctx(model):
    cache = KVCache(model)
    for B, T in ((1, 1), (3, 7)):
        idx = ids(B, T, seed=B)
        cache.reset()
        for _ in range(CONFIG.n_ctx + 12 - T):
            plain, cached = next_logits(model, idx), next_logits(model, idx, cache)
            torch.testing.assert_close(cached, plain, rtol=0, atol=1e-5)
            idx = torch.cat((idx, plain.argmax(-1, keepdim=True)), dim=1)


@torch.no_grad()
@pytest.mark.parametrize("sizes", [[48], [20, 28], [1, 46, 1], [7] * 6 + [6], [1] * 48])
def test_prefill_in_chunks_up_to_n_ctx(model, sizes):
    idx = ids(2, 48, seed=7)
    cache = KVCache(model)
    logits = torch.cat([cache.forward(chunk) for chunk in idx.split(sizes, dim=1)], dim=1)
    torch.testing.assert_close(logits, model(idx)[0], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="n_ctx"):
        cache.forward(idx[:, :1])
    assert cache.length == 48


@pytest.mark.parametrize("options", [{}, {"temperature": 0}, {"top_k": 5}, {"temperature": 1.5, "top_k": 20, "top_p": 0.8}])
def test_the_same_text_with_and_without(model, options):
    cache = KVCache(model)
    for B, T in ((2, 5), (1, 60), (4, 1)):                    # one cache for all, one prompt longer than n_ctx
        idx = ids(B, T, seed=T)
        texts = [sample(model, idx, 70, generator=torch.Generator().manual_seed(1), cache=c, **options) for c in (None, cache)]
        assert torch.equal(*texts)
        assert texts[0].shape == (B, T + 70)


def test_one_row_does_not_depend_on_the_others(model):
    idx = ids(3, 6, seed=5)
    together = KVCache(model).forward(idx)
    for b in range(3):
        torch.testing.assert_close(KVCache(model).forward(idx[b : b + 1])[0], together[b], rtol=0, atol=1e-5)


def test_modes_and_gradients_are_left_as_they_were(model):
    for training in (True, False):
        model.train(training)
        sample(model, ids(1, 3), 2, cache=KVCache(model))
        assert model.training == training
    model.eval()
    assert torch.is_grad_enabled()
    assert all(p.grad is None for p in model.parameters())


def test_p_of_one_keeps_tokens_that_rounding_would_lose():
    logits = torch.randn(2, 50_257, generator=torch.Generator().manual_seed(0)) * 5
    assert torch.equal(keep_top_p(logits, 1.0), logits)


@torch.no_grad()
def test_faster_with_a_cache():
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=81, n_ctx=192, n_layer=4, n_head=4, n_embd=256)).eval()
    cache, idx = KVCache(model), torch.zeros(1, 1, dtype=torch.int64)
    seconds = [0.0, 0.0]
    for _ in range(150):
        logits = []
        for i, kept in enumerate((None, cache)):
            start = time.perf_counter()
            logits.append(next_logits(model, idx, kept))
            seconds[i] += time.perf_counter() - start
        torch.testing.assert_close(*logits, rtol=0, atol=1e-5)
        idx = torch.cat((idx, logits[0].argmax(-1, keepdim=True)), dim=1)
    assert seconds[0] > 2 * seconds[1], f"{seconds[0]:.2f} s without, {seconds[1]:.2f} s with"
