"""The fast layers against the readable ones, the wait that sleeps, and what is said when MindSpore cannot be used."""
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from course import device, registry, train, waiting
from course.waiting import Fetch

CONFIG = SimpleNamespace(vocab_size=23, n_ctx=16, n_layer=2, n_head=4, n_embd=32)


def test_fast_gpt_and_adamw_equal_the_readable_ones():
    import mindspore as ms

    from solutions.mindspore import fast, gpt, training

    ms.runtime.launch_blocking()
    np.random.seed(0)
    models = [gpt.GPT(CONFIG), fast.GPT(CONFIG)]
    start = {p.name: np.random.randn(*p.shape).astype(np.float32) * 0.1 for p in models[0].trainable_params()}
    assert [p.name for p in models[0].trainable_params()] == [p.name for p in models[1].trainable_params()]
    losses = []
    for model, AdamW in zip(models, (training.AdamW, fast.AdamW)):
        for p in model.trainable_params():
            p.set_data(ms.Tensor(start[p.name]))
        optimizer = AdamW(model.trainable_params(), lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
        value_and_grad = ms.value_and_grad(lambda x, y, model=model: model(x, y)[1], None, model.trainable_params())
        random = np.random.default_rng(1)
        found = []
        for _ in range(5):
            x, y = (ms.Tensor(random.integers(0, 23, (3, 16)).astype(np.int32)) for _ in range(2))
            loss, grads = value_and_grad(x, y)
            optimizer.step(grads)
            found.append(float(loss.asnumpy()))
        losses.append(found)
    assert np.abs(np.array(losses[0]) - np.array(losses[1])).max() < 1e-5
    for p, q in zip(models[0].trainable_params(), models[1].trainable_params()):
        assert np.abs(p.asnumpy() - q.asnumpy()).max() < 1e-4, p.name


FUSED = """
import sys
from types import SimpleNamespace

import mindspore as ms
import numpy as np

sys.path.insert(0, sys.argv[1])
from solutions.mindspore import fast

ms.set_context(enable_graph_kernel=True)
given = dict(np.load("start.npz"))
idx, targets = ms.Tensor(given.pop("idx")), ms.Tensor(given.pop("targets"))
model = fast.GPT(SimpleNamespace(vocab_size=23, n_ctx=16, n_layer=2, n_head=4, n_embd=32))
for p in model.trainable_params():
    p.set_data(ms.Tensor(given[p.name]))


def loss_of(idx, targets):
    return model(idx, targets)[1]


loss, grads = ms.jit(ms.value_and_grad(loss_of, None, model.trainable_params()))(idx, targets)
np.savez("found.npz", loss=loss.asnumpy(), **{p.name: g.asnumpy() for p, g in zip(model.trainable_params(), grads)})
"""


def test_every_gradient_is_right_under_fusion(tmp_path):
    """Losses would not tell: fusion can spoil the gradient of one parameter without a word (lesson 17)."""
    import torch

    from solutions.pytorch.gpt import GPT

    torch.manual_seed(0)
    model = GPT(CONFIG)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.1)
    idx, targets = torch.randint(23, (2, 3, 16))
    model(idx, targets)[1].backward()
    start = {name: p.detach().numpy() for name, p in model.named_parameters()}
    np.savez(tmp_path / "start.npz", idx=idx.int().numpy(), targets=targets.int().numpy(), **start)
    (tmp_path / "fused.py").write_text(FUSED)
    environment = {**os.environ, "GLOG_v": "4", "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "fused.py", str(registry.ROOT)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "found.npz")
    for name, p in model.named_parameters():
        off = np.abs(found[name] - p.grad.numpy()).max() / p.grad.abs().max().item()
        assert off < 1e-4, name


class Clock:
    """A time that goes on only while somebody sleeps: the same on every machine."""

    now = 0.0

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Late:
    """A result that is there after a while, and costs more the longer somebody spins for it."""

    def __init__(self, clock, seconds):
        self.clock, self.ready = clock, clock.now + seconds

    def asnumpy(self):
        spun = max(0.0, self.ready - self.clock.now)
        self.clock.sleep(2 * spun)
        return 7


def test_fetch_finds_a_pause_and_returns_the_value(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    fetch = Fetch(trials=2)
    for _ in range(100):
        assert fetch(Late(clock, 0.01)) == 7
        if fetch.settled:
            break
    assert fetch.settled and 0.008 < fetch.pause < 0.012


@pytest.mark.parametrize("version, words", [((3, 8, 1), "runs on Python 3.9 to 3.12"), ((3, 13, 0), "runs on Python 3.9 to 3.12")])
def test_a_python_that_mindspore_does_not_know(monkeypatch, version, words):
    monkeypatch.setattr(sys, "version_info", version)
    assert words in device.mindspore_problem()


def test_no_mindspore(monkeypatch):
    right = metadata.version

    def version(name):
        if name == "mindspore":
            raise metadata.PackageNotFoundError(name)
        return right(name)

    monkeypatch.setattr(metadata, "version", version)
    assert "MindSpore is not installed here" in device.mindspore_problem()


def test_numpy_2(monkeypatch):
    right = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "2.2.6" if name == "numpy" else right(name))
    problem = device.mindspore_problem()
    assert "NumPy 2.2.6 is installed" in problem and "pip install 'numpy<2'" in problem and "\n" not in problem
    with pytest.raises(train.TrainError, match="NumPy 2.2.6"):
        train.RUNS["mindspore"](train.Settings(), "nowhere")


def test_a_mindspore_that_does_not_import(monkeypatch):
    monkeypatch.setitem(sys.modules, "mindspore", None)
    assert "does not import" in device.mindspore_problem()
    assert device.mindspore_target() == "CPU"


def test_mindspore_trains_as_pytorch_does_and_resumes(tmp_path, monkeypatch):
    import mindspore as ms

    ms.runtime.launch_blocking()
    monkeypatch.setenv("GPT_TWICE_WORK", str(tmp_path))
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 60)
    settings = train.Settings(data=str(tmp_path / "text.txt"), steps=6, batch_size=4, n_ctx=8, n_layer=1, n_head=2, n_embd=8, warmup=2)
    theirs = train.train(settings, tmp_path / "torch", every=3)
    mine = train.train(settings, tmp_path / "mindspore", every=3, framework="mindspore")
    assert abs(theirs.validate() - mine.validate()) < 1e-5
    broken = train.MindSporeRun(settings, tmp_path / "broken")
    for _ in range(4):
        broken.step()
    broken.save()
    resumed = train.train(settings, tmp_path / "broken", resume=True, every=3, framework="mindspore")
    assert abs(resumed.validate() - mine.validate()) < 1e-6
    with pytest.raises(train.TrainError, match="is one of mindspore"):
        train.train(settings, tmp_path / "broken", resume=True)
    assert len(resumed.sample(tokens=5)) == 6
