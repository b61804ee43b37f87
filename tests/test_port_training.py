"""Lesson 16 beside PyTorch: the same losses at every step, checkpoints in both directions, the same text."""
from types import SimpleNamespace

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import ops

from course import exchange
from course.parity import ParityError, carry, largest_difference
from solutions.mindspore import sampling, training
from solutions.mindspore.gpt import GPT
from solutions.pytorch import sampling as torch_sampling
from solutions.pytorch import training as torch_training
from solutions.pytorch.gpt import GPT as TorchGPT

ms.runtime.launch_blocking()                              # small tensors: waiting for each operation is many times faster
CONFIG = SimpleNamespace(vocab_size=61, n_ctx=16, n_layer=2, n_head=4, n_embd=32)
SETTINGS = {"lr": 3e-3, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}


def rate(it):
    return torch_training.cosine_lr(it, 3e-3, 3e-4, 10, 50)


def batch(it, B=6):
    windows = np.random.default_rng(it).integers(0, 61, (B, 17))
    return windows[:, :-1], windows[:, 1:]


class Torch:
    """PyTorch's run, a step at a time."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = TorchGPT(CONFIG)
        self.optimizer = torch_training.AdamW(self.model.parameters(), **SETTINGS)

    def step(self, it):
        x, y = batch(it)
        for group in self.optimizer.param_groups:
            group["lr"] = rate(it)
        loss = self.model(torch.from_numpy(x), torch.from_numpy(y))[1]
        self.optimizer.zero_grad()
        loss.backward()
        torch_training.clip_grad_norm(list(self.model.parameters()), 1.0)
        self.optimizer.step()
        return loss.item()


class MindSpore:
    """The port's, eager or compiled, from the same weights."""

    def __init__(self, jit):
        self.model = GPT(CONFIG)
        carry(Torch().model, self.model)
        self.optimizer = training.AdamW(self.model.trainable_params(), **SETTINGS)
        self.value_and_grad = ms.value_and_grad(self.loss_of, None, self.model.trainable_params())
        self.run = self.compiled() if jit else self.update

    def loss_of(self, x, y):
        return self.model(x, y)[1]

    def update(self, x, y):
        loss, grads = self.value_and_grad(x, y)
        grads, _ = training.clip_grad_norm(grads, 1.0)
        return ops.depend(loss, self.optimizer.step(grads))

    def compiled(self):
        model, optimizer = self.model, self.optimizer

        def loss_of(x, y):
            return model(x, y)[1]

        value_and_grad = ms.value_and_grad(loss_of, None, model.trainable_params())

        def update(x, y):
            loss, grads = value_and_grad(x, y)
            grads, norm = training.clip_grad_norm(grads, 1.0)
            return ops.depend(loss, optimizer.step(grads))

        return ms.jit(update)

    def restart(self):
        """As it was when it was made, for the same compiled step: assigned, since set_data would give new memory."""
        start = Torch().model.state_dict()
        for p in self.model.trainable_params():
            ops.assign(p, ms.Tensor(start[p.name].numpy()))
        for p in (*self.optimizer.m, *self.optimizer.v, self.optimizer.t):
            ops.assign(p, ops.zeros_like(p))
        return self

    def step(self, it):
        self.optimizer.set_lr(rate(it))
        x, y = (ms.Tensor(a, ms.int32) for a in batch(it))
        return float(self.run(x, y).asnumpy())


@pytest.fixture(scope="module")
def losses():
    run = Torch()
    return [run.step(it) for it in range(50)]


@pytest.fixture(scope="module")
def compiled():
    return MindSpore(True)                                    # once: compiling takes longer than all its steps


@pytest.mark.parametrize("jit", [True, False], ids=["graph", "eager"])
def test_fifty_losses_are_pytorchs(losses, compiled, jit):
    run = compiled.restart() if jit else MindSpore(False)
    gaps = [abs(run.step(it) - want) for it, want in enumerate(losses)]
    assert max(gaps) < 1e-5, f"step {int(np.argmax(gaps))}: {max(gaps):.2g}"
    assert float(run.optimizer.t.asnumpy()) == 50


def test_a_checkpoint_of_mindspore_goes_on_in_pytorch(compiled, tmp_path):
    mine, theirs = compiled.restart(), Torch()
    for it in range(8):
        mine.step(it)
    training.save_checkpoint(tmp_path / "run.safetensors", mine.model, mine.optimizer, 8)
    for it in range(2):                                       # a state of its own, which the file must replace
        theirs.step(it)
    start = exchange.load_pytorch(tmp_path / "run.safetensors", theirs.model, theirs.optimizer)
    assert start == 8
    assert max(abs(mine.step(it) - theirs.step(it)) for it in range(8, 16)) < 1e-5


def test_a_checkpoint_of_pytorch_goes_on_in_a_compiled_step(compiled, tmp_path):
    """The step was compiled before the file was loaded: set_data would leave it with the old weights."""
    mine, theirs = compiled.restart(), Torch()
    for it in range(8):
        theirs.step(it)
    exchange.save_pytorch(tmp_path / "run.safetensors", theirs.model, theirs.optimizer, 8)
    for it in range(3):
        mine.step(it)
    assert training.load_checkpoint(tmp_path / "run.safetensors", mine.model, mine.optimizer) == 8
    assert float(mine.optimizer.t.asnumpy()) == 8
    assert max(abs(mine.step(it) - theirs.step(it)) for it in range(8, 16)) < 1e-5


def test_a_checkpoint_of_another_config_is_refused_and_changes_nothing(tmp_path):
    mine, theirs = MindSpore(False), Torch()
    theirs.step(0)
    exchange.save_pytorch(tmp_path / "run.safetensors", theirs.model, theirs.optimizer, 1)
    for change, words in [({"n_embd": 16}, "has shape"), ({"n_layer": 3}, "is missing in the checkpoint"), ({"n_layer": 1}, "not part of this model")]:
        config = SimpleNamespace(**{**vars(CONFIG), **change})
        model = GPT(config)
        before = {p.name: p.asnumpy().copy() for p in model.get_parameters()}
        with pytest.raises(ValueError, match=words):
            training.load_checkpoint(tmp_path / "run.safetensors", model, training.AdamW(model.trainable_params()))
        assert all(np.array_equal(p.asnumpy(), before[p.name]) for p in model.get_parameters())
        other = TorchGPT(config)
        with pytest.raises(ParityError, match=words):
            exchange.load_pytorch(tmp_path / "run.safetensors", other, torch_training.AdamW(other.parameters()))


def test_accumulated_gradients_are_those_of_the_big_batch():
    run = MindSpore(False)
    x, y = (ms.Tensor(a, ms.int32) for a in batch(3))
    want_loss, want = run.value_and_grad(x, y)
    loss, grads = training.accumulate(run.value_and_grad, [(x[i : i + 2], y[i : i + 2]) for i in (0, 2, 4)])
    assert largest_difference(loss, want_loss) < 1e-6
    assert max(largest_difference(a, b) for a, b in zip(grads, want)) < 1e-6


def test_text_is_equal_cached_uncached_and_in_pytorch():
    mine, theirs = MindSpore(False), Torch()
    for p in theirs.model.parameters():                       # larger weights, so that no two logits are near each other
        p.data.mul_(4.0)
    carry(theirs.model, mine.model)
    prompt = np.random.default_rng(2).integers(0, 61, (3, 5))
    plain = sampling.sample(mine.model, ms.Tensor(prompt), 24, temperature=0).asnumpy()      # past n_ctx = 16
    cached = sampling.sample(mine.model, ms.Tensor(prompt), 24, temperature=0, cache=sampling.KVCache(mine.model)).asnumpy()
    assert np.array_equal(plain, cached)
    assert np.array_equal(plain, torch_sampling.sample(theirs.model, torch.from_numpy(prompt), 24, temperature=0).numpy())
    options = {"temperature": 0.9, "top_k": 20, "top_p": 0.8}
    plain, cached = (
        sampling.sample(mine.model, ms.Tensor(prompt), 12, **options, generator=np.random.default_rng(4), cache=cache).asnumpy()
        for cache in (None, sampling.KVCache(mine.model))
    )
    assert np.array_equal(plain, cached)


@pytest.mark.parametrize("k", [1, 4, 100])
def test_top_k_is_lesson_08s(k):
    logits = np.random.default_rng(5).standard_normal((3, 11)).astype(np.float32)
    assert np.array_equal(sampling.keep_top_k(ms.Tensor(logits), k).asnumpy(), torch_sampling.keep_top_k(torch.from_numpy(logits), k).numpy())


@pytest.mark.parametrize("p", [0.05, 0.7, 1.0])
def test_top_p_is_lesson_08s(p):
    logits = np.random.default_rng(6).standard_normal((3, 11)).astype(np.float32)
    assert np.array_equal(sampling.keep_top_p(ms.Tensor(logits), p).asnumpy(), torch_sampling.keep_top_p(torch.from_numpy(logits), p).numpy())
