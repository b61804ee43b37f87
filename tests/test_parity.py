"""The two reference GPTs beside each other, and what carries numbers from one to the other."""
import math
import re
import subprocess
import sys

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn

from course import parity
from solutions.mindspore.gpt import GPT, Block, GPTConfig
from solutions.mindspore.layers import LayerNorm
from solutions.pytorch.gpt import GPT as TorchGPT
from solutions.pytorch.layers import LayerNorm as TorchLayerNorm

CONFIG = GPTConfig(vocab_size=65, n_ctx=24, n_layer=2, n_head=4, n_embd=48)


@pytest.fixture(autouse=True)
def wait_for_each_operation():
    """Small models: to wait is many times faster than to hand over."""
    ms.runtime.launch_blocking()


def sized(**changes):
    return GPTConfig(**{**vars(CONFIG), **changes})


def torch_gpt(config, seed=0):
    """A PyTorch GPT with random numbers everywhere, biases and LayerNorms too."""
    torch.manual_seed(seed)
    model = TorchGPT(config)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model


def batch(config, B=6, seed=0):
    random = np.random.default_rng(seed)
    idx, targets = random.integers(0, config.vocab_size, (2, B, config.n_ctx)).astype(np.int32)
    targets[0, :5] = -100
    return idx, targets


@pytest.fixture(scope="module", params=[2, 4])
def pair(request):
    """(config, PyTorch model, its port with the same numbers, idx, targets)."""
    config = sized(n_layer=request.param)
    theirs, mine = torch_gpt(config), GPT(config)
    parity.carry(theirs, mine)
    return config, theirs, mine, *batch(config)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_logits_loss_and_every_gradient(pair, mode):
    config, theirs, mine, idx, targets = pair
    theirs.zero_grad()
    logits, loss = theirs(torch.from_numpy(idx).long(), torch.from_numpy(targets).long())
    loss.backward()
    parameters = dict(mine.parameters_and_names())
    names = [name for name, _ in theirs.named_parameters()]

    def forward(idx, targets):
        logits, loss = mine(idx, targets)
        return loss, logits

    step = ms.value_and_grad(forward, None, weights=[parameters[name] for name in names], has_aux=True)
    if mode == "graph":
        step = ms.jit(step)
    (my_loss, my_logits), grads = step(ms.Tensor(idx), ms.Tensor(targets))
    assert loss.item() > 1 and logits.std() > 0.5             # else nothing is compared
    assert parity.largest_difference(my_logits, logits) <= 1e-5
    assert parity.largest_difference(my_loss, loss) <= 2e-6
    for name, grad, p in zip(names, grads, theirs.parameters(), strict=True):
        assert p.grad.abs().max() > 1e-5, name
        assert parity.relative_difference(grad, p.grad) <= 1e-5, name


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_layer_norm_with_a_row_of_tiny_variance(mode, eps):
    torch.manual_seed(0)
    theirs, mine = TorchLayerNorm(40, eps), LayerNorm(40, eps)
    with torch.no_grad():
        theirs.weight.normal_()
        theirs.bias.normal_()
    parity.carry(theirs, mine)
    x = torch.randn(3, 5, 40)
    x[1, 2] *= 1e-3
    x.requires_grad_()
    weighting = torch.randn(3, 5, 40)
    out = theirs(x)
    (out * weighting).sum().backward()
    factors = ms.Tensor(weighting.numpy())

    def forward(x):
        y = mine(x)
        return (y * factors).sum(), y

    step = ms.value_and_grad(forward, 0, weights=[mine.weight, mine.bias], has_aux=True)
    if mode == "graph":
        step = ms.jit(step)
    (_, y), (to_x, to_weights) = step(ms.Tensor(x.detach().numpy()))
    assert parity.largest_difference(y, out) <= 2e-6
    for got, want in zip((to_x, *to_weights), (x.grad, theirs.weight.grad, theirs.bias.grad), strict=True):
        assert parity.relative_difference(got, want) <= 5e-6


def test_the_default_eps_of_the_framework_is_seen():
    theirs = TorchLayerNorm(32)
    x = 1e-3 * np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)
    for given, same in [({}, False), ({"epsilon": 1e-5}, True)]:
        gap = parity.largest_difference(nn.LayerNorm((32,), **given)(ms.Tensor(x)), theirs(torch.from_numpy(x)))
        assert gap < 2e-6 if same else gap > 1


def test_the_head_stays_tied_when_an_optimizer_moves_the_table():
    model = GPT(CONFIG)
    assert sum(p.size for p in model.trainable_params()) == sum(p.numel() for p in TorchGPT(CONFIG).parameters())
    idx = ms.Tensor(batch(CONFIG)[0])
    model.wte.weight.set_data(ms.Tensor(np.zeros(model.wte.weight.shape, np.float32)))
    assert not model(idx)[0].asnumpy().any()


def test_gpt2_small_has_124_million_parameters():
    C, V, L, n_ctx = 768, 50257, 12, 1024
    block = sum(p.size for p in Block(GPTConfig()).get_parameters())
    assert L * block + V * C + n_ctx * C + 2 * C == 124_439_808


def test_loss_at_the_start_is_ln_V():
    ms.set_seed(0)
    idx, targets = batch(CONFIG, B=16)
    assert abs(GPT(CONFIG)(ms.Tensor(idx), ms.Tensor(targets))[1].item() - math.log(65)) < 0.1


# carry


def numbers(model):
    return {name: p.asnumpy().copy() for name, p in model.parameters_and_names()}


@pytest.mark.parametrize(("changes", "says"), [
    ({"n_layer": 3}, "h.2.ln_1.weight is not in the PyTorch model"),
    ({"n_layer": 1}, "h.1.ln_1.weight has no place in the MindSpore model"),
    ({"vocab_size": 66}, "wte.weight has shape (65, 48) in PyTorch and (66, 48) in MindSpore"),
    ({"n_ctx": 25}, "wpe.weight has shape (24, 48) in PyTorch and (25, 48) in MindSpore"),
])
def test_carry_refuses_by_name_and_copies_nothing(changes, says):
    mine = GPT(sized(**changes))
    before = numbers(mine)
    with pytest.raises(parity.ParityError, match=re.escape(says)):
        parity.carry(torch_gpt(CONFIG), mine)
    assert all(np.array_equal(value, before[name]) for name, value in numbers(mine).items())


def test_carry_makes_every_parameter_equal_and_keeps_the_objects():
    theirs, mine = torch_gpt(CONFIG), GPT(CONFIG)
    before = dict(mine.parameters_and_names())
    parity.carry(theirs, mine)
    for name, p in theirs.named_parameters():
        assert np.array_equal(before[name].asnumpy(), p.detach().numpy())
    assert all(p is before[name] for name, p in mine.parameters_and_names())


class Framework(nn.Cell):
    """Nothing but MindSpore's own cells under GPT-2's names."""

    def __init__(self, config):
        super().__init__()
        V, C = config.vocab_size, config.n_embd
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(config.n_ctx, C)
        self.h = nn.CellList([FrameworkBlock(C) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm((C,))


class FrameworkBlock(nn.Cell):
    def __init__(self, C):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm((C,)), nn.LayerNorm((C,))
        self.attn, self.mlp = nn.Cell(), nn.Cell()
        self.attn.c_attn, self.attn.c_proj = nn.Dense(C, 3 * C), nn.Dense(C, C)
        self.mlp.c_fc, self.mlp.c_proj = nn.Dense(C, 4 * C), nn.Dense(4 * C, C)


def test_names_go_both_ways():
    theirs, mine = torch_gpt(CONFIG), Framework(CONFIG)
    names = [name for name, _ in theirs.named_parameters()]
    assert sorted(map(parity.framework_name, names)) == sorted(name for name, _ in mine.parameters_and_names())
    assert [parity.gpt2_name(parity.framework_name(name)) for name in names] == names
    with pytest.raises(parity.ParityError, match="wte.weight has no place in the MindSpore model: its nearest names are wte.embedding_table"):
        parity.carry(theirs, mine)
    parity.carry(theirs, mine, rename=parity.framework_name)
    assert np.array_equal(mine.h[1].ln_2.gamma.asnumpy(), theirs.h[1].ln_2.weight.detach().numpy())


def test_two_names_for_one():
    with pytest.raises(parity.ParityError, match="two PyTorch parameters get one name"):
        parity.carry(TorchLayerNorm(4), LayerNorm(4), rename=lambda name: "weight")


# what compares


def test_differences_do_not_broadcast():
    assert parity.largest_difference(torch.ones(2, 3), ms.Tensor(np.full((2, 3), 3.0))) == 2
    assert parity.relative_difference(np.ones(3), 4 * np.ones(3)) == 0.75
    with pytest.raises(parity.ParityError, match=r"\(2, 3\) and \(3,\)"):
        parity.largest_difference(np.ones((2, 3)), np.ones(3))


def test_a_nan_is_a_difference():
    assert not parity.largest_difference(np.array([1.0, np.nan]), np.ones(2)) < 1e9


def test_none_is_no_number():
    with pytest.raises(parity.ParityError, match="None"):
        parity.largest_difference(None, np.ones(()))


def test_carry_wants_its_arguments_in_order():
    for given in [(LayerNorm(3), TorchLayerNorm(3)), (TorchLayerNorm(3), None)]:
        with pytest.raises(parity.ParityError, match="PyTorch module first"):
            parity.carry(*given)


# ids


@pytest.mark.parametrize(("ids", "says"), [
    ([[0, -1]], r"token id -1 at \[0, 1\] has no row: ids run from 0 to 64"),
    ([[3, 4], [65, 0]], r"token id 65 at \[1, 0\] has no row"),
])
def test_ids_out_of_range(ids, says):
    for make in (np.array, torch.tensor, lambda x: ms.Tensor(x, ms.int32)):
        with pytest.raises(ValueError, match=says):
            parity.check_ids(make(ids), 65)
    parity.check_ids(np.array([[0, 64]]), 65)


def test_minus_one_wraps_silently_on_a_cpu_and_too_long_is_refused():
    model = GPT(CONFIG)
    got, last = (model(ms.Tensor([[5, i]], ms.int32))[0].asnumpy() for i in (-1, 64))
    assert np.array_equal(got, last)
    with pytest.raises(ValueError, match="25 tokens do not fit into n_ctx = 24"):
        model(ms.Tensor(np.zeros((1, 25), np.int32)))


def test_course_parity_does_not_import_the_frameworks():
    code = "import sys, course.parity; print([m for m in ('torch', 'mindspore') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
