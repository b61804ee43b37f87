"""What the checks of lesson 18 do not cover: equality to the last bit, the policy's errors, the bench."""
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from course import parity
from course.bench import precision as bench
from course.precision import LayerPrecision
from solutions.pytorch.gpt import GPT
from solutions.pytorch.precision import LossScaler, PrecisionGPT

CONFIG = SimpleNamespace(vocab_size=31, n_ctx=9, n_layer=2, n_head=2, n_embd=8)


def batch():
    return torch.randint(31, (2, 3, 9), generator=torch.Generator().manual_seed(0)).unbind(0)


def test_float32_is_the_model_to_the_last_bit():
    model, (idx, targets) = GPT(CONFIG), batch()
    logits, loss = model(idx, targets)
    loss.backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    same_logits, same_loss = PrecisionGPT(model, LayerPrecision())(idx, targets)
    same_loss.backward()
    assert torch.equal(logits, same_logits) and torch.equal(loss, same_loss)
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), grads))


def test_float32_is_the_model_to_the_last_bit_in_mindspore():
    ms = pytest.importorskip("mindspore")
    from solutions.mindspore.gpt import GPT as MindSporeGPT
    from solutions.mindspore.precision import PrecisionGPT as MindSporePrecisionGPT

    model, (idx, _) = MindSporeGPT(CONFIG), batch()
    parity.carry(GPT(CONFIG), model)
    ids = ms.Tensor(idx.numpy(), ms.int32)
    same = MindSporePrecisionGPT(model, LayerPrecision())(ids)[0]
    assert np.array_equal(model(ids)[0].asnumpy(), same.asnumpy())


@pytest.mark.parametrize(("wrong", "words"), [
    ({"mlp": "half"}, "mlp is 'half' and must be the name of a dtype"),
    ({"head": torch.float16}, "head is torch.float16 and must be the name"),
    ({"qkv": "float16", "norm": "bfloat16"}, "qkv is float16 and norm is bfloat16"),
])
def test_a_wrong_policy_gets_a_sentence(wrong, words):
    with pytest.raises(ValueError) as error:
        LayerPrecision(**wrong)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("framework", [np, "torch", None])
def test_dtypes_of_something_else_get_a_sentence(framework):
    with pytest.raises(TypeError, match="dtypes takes the module torch or mindspore"):
        LayerPrecision().dtypes(framework)


@pytest.mark.parametrize(("arguments", "words"), [({"frameworks": ("jax",)}, "no framework 'jax'"), ({"rows": 0}, "at least 1"), ({"seconds": 0}, "seconds above 0")])
def test_bench_refuses(arguments, words):
    with pytest.raises(ValueError, match=words):
        bench.compare(**arguments)


def test_bfloat16_is_refused_for_mindspore_on_a_cpu_before_anything_is_built():
    ms = pytest.importorskip("mindspore")
    if ms.get_context("device_target") != "CPU":
        pytest.skip("on an Ascend the policy lets it through")
    with pytest.raises(ValueError, match="no bfloat16 matmul"):
        LayerPrecision(softmax="bfloat16").dtypes(ms)
    assert LayerPrecision(qkv="float16").dtypes(ms).qkv == ms.float16
    with pytest.raises((TypeError, RuntimeError)):                # the reason: if this starts to work, the refusal can go
        x = ms.Tensor(np.ones((2, 2), np.float32)).astype(ms.bfloat16)
        ms.ops.matmul(x, x).astype(ms.float32).asnumpy()


def test_statistics_in_float16_have_no_gradient_at_the_start_of_training():
    """The policy that fails in the lesson fails for the reason given there."""
    torch.manual_seed(0)
    config = SimpleNamespace(vocab_size=81, n_ctx=32, n_layer=2, n_head=2, n_embd=32)
    model, idx = GPT(config), torch.randint(81, (16, 32))
    for part, finite in (("norm", False), ("softmax", True)):
        model.zero_grad()
        PrecisionGPT(model, LayerPrecision(**{part: "float16"}))(idx, idx)[1].backward()
        assert all(p.grad.isfinite().all() for p in model.parameters()) == finite


def test_scaler_finds_its_scale_and_leaves_the_optimizer_alone():
    w = torch.nn.Parameter(torch.ones(3))
    optimizer, scaler = torch.optim.AdamW([w], lr=0.1), LossScaler(scale=2.0**40)
    for _ in range(60):
        w.grad = None
        scaler.scaled((w.half().float() * 1e-3).sum()).backward()
        w.grad = w.grad.half().float()                            # as if it had come through float16
        if scaler.step(optimizer):
            break
        assert torch.equal(w, torch.ones(3)) and not optimizer.state
    assert 2.0**20 < scaler.scale < 2.0**27 and not torch.equal(w, torch.ones(3))


def test_bench_times_each_dtype_that_there_is():
    timings = bench.compare(rows=4, d_in=8, d_out=8, seconds=0.01, frameworks=("pytorch",))
    assert list(timings) == ["PyTorch float32", "PyTorch float16", "PyTorch bfloat16"]
    assert all(t.median > 0 and "torch" in t.banner for t in timings.values())
