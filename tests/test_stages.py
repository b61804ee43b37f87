"""Layer specs and stages beside what they stand for: the Block, the whole GPT, and MindFormers' formula."""
import math
import sys
from dataclasses import fields, is_dataclass

import mindspore as ms
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from course import parity
from course.bench import slices
from course.checks.mindspore import stages as checks_of_stages   # one thread for small tensors, and no queue of operations
from solutions.mindspore import gpt as ms_gpt
from solutions.mindspore import layer_spec as ms_spec
from solutions.mindspore import stages as ms_stages
from solutions.pytorch import gpt, layer_spec, stages
from solutions.pytorch.attention import attention, causal_mask

assert checks_of_stages
CONFIG = gpt.GPTConfig(vocab_size=61, n_ctx=16, n_layer=12, n_head=4, n_embd=32)
SWITCHES = [{}, {"qk_layernorm": True}, {"normalization": "RMSNorm"}, {"gelu_form": "exact"}, {"use_flash_attention": True}]
DIVIDED = [[3, 3, 3, 3], [3, 4, 4, 3], [2, 2, 1], [1, 2, 2], [12], [0, 5, 0]]


def config(n_layer):
    return gpt.GPTConfig(**{**vars(CONFIG), "n_layer": n_layer})


def shaken(model, seed=0, size=0.05):
    """Random numbers on top of a fresh start: biases of 0 and weights of 1 would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p += size * torch.randn(p.shape, generator=generator)
    return model


# --- specs ---------------------------------------------------------------------------------------------


def leaves(value):
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from leaves(getattr(value, field.name))
    else:
        yield value


@pytest.mark.parametrize("module", [layer_spec, ms_spec], ids=["pytorch", "mindspore"])
@pytest.mark.parametrize("settings", SWITCHES, ids=str)
def test_a_spec_is_pure_data(module, settings):
    spec = module.get_gpt_layer_local_spec(**settings)
    assert all(isinstance(leaf, type) or callable(leaf) and not hasattr(leaf, "parameters_and_names") and not hasattr(leaf, "parameters") or leaf in ({}, None) for leaf in leaves(spec))
    assert spec == module.get_gpt_layer_local_spec(**settings) and spec is not module.get_gpt_layer_local_spec(**settings)


def test_the_default_is_the_block():
    torch.manual_seed(0)
    layer = layer_spec.build_module(layer_spec.get_gpt_layer_local_spec(), CONFIG)
    torch.manual_seed(0)
    block = gpt.Block(CONFIG)
    assert list(layer.state_dict()) == list(block.state_dict())
    x = torch.randn(2, 9, 32)
    assert torch.equal(layer(x), block(x))


def test_the_default_is_the_block_in_mindspore():
    layer = ms_spec.build_module(ms_spec.get_gpt_layer_local_spec(), CONFIG)
    block = ms_gpt.Block(CONFIG)
    mine, theirs = dict(layer.parameters_and_names()), dict(block.parameters_and_names())
    assert sorted(mine) == sorted(theirs)
    for name, p in mine.items():
        p.set_data(theirs[name])
    x = ms.Tensor(np.random.default_rng(0).standard_normal((2, 9, 32)).astype(np.float32))
    assert np.array_equal(layer(x).asnumpy(), block(x).asnumpy())


@pytest.mark.parametrize("module", [layer_spec, ms_spec], ids=["pytorch", "mindspore"])
def test_two_builds_share_no_parameters(module):
    spec = module.get_gpt_layer_local_spec(qk_layernorm=True)
    a, b = (module.build_module(spec, CONFIG) for _ in range(2))
    lists = [list(m.parameters() if module is layer_spec else m.get_parameters()) for m in (a, b)]
    assert len({id(p) for ps in lists for p in ps}) == 2 * len(lists[0]) == 32


@pytest.mark.parametrize("settings", SWITCHES, ids=str)
def test_both_frameworks_build_the_same_layer(settings):
    layer = shaken(layer_spec.build_module(layer_spec.get_gpt_layer_local_spec(**settings), CONFIG), size=0.1)
    cell = ms_spec.build_module(ms_spec.get_gpt_layer_local_spec(**settings), CONFIG)
    parity.carry(layer, cell)
    x = torch.randn(2, 70, 32, requires_grad=True)            # longer than two tiles of flash attention
    wanted = layer(x)
    wanted.square().sum().backward()
    given = ms.Tensor(x.detach().numpy())
    weights = list(cell.trainable_params())

    def loss(x):
        return cell(x).square().sum()

    to_x, to_weights = ms.grad(loss, 0, weights=weights)(given)
    assert parity.relative_difference(cell(given), wanted) < 2e-6
    assert parity.relative_difference(to_x, x.grad) < 1e-5
    params = dict(layer.named_parameters())
    for p, grad in zip(weights, to_weights):
        if p.name != "attn.k_layernorm.bias":                 # the softmax does not see it: its gradient is rounding alone
            assert parity.relative_difference(grad, params[p.name].grad) < 1e-5, p.name


def test_a_spec_builds_in_graph_mode():
    cell = ms_spec.build_module(ms_spec.get_gpt_layer_local_spec(qk_layernorm=True, use_flash_attention=True), CONFIG)
    x = ms.Tensor(np.random.default_rng(0).standard_normal((2, 40, 32)).astype(np.float32))

    def run(x):
        return cell(x)

    assert parity.largest_difference(ms.jit(run)(x), cell(x)) < 2e-6


@pytest.mark.parametrize("tile", [1, 7, 32, 100])
def test_flash_attention_in_tiles_of_any_size(tile):
    q, k, v = torch.randn(3, 2, 4, 50, 8, dtype=torch.float64)
    mask = causal_mask(50, 50)
    assert torch.allclose(layer_spec.flash_attention(q, k, v, mask, tile), attention(q, k, v, mask), atol=1e-12)
    assert torch.allclose(attention(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, is_causal=True), atol=1e-12)


# --- who owns what -------------------------------------------------------------------------------------


def layer_setting(num_layers, pp, offset):
    """The stage of each layer by the lines of MindFormers 2.1.0, LayerSetting.__init__ and _check_inputs, without interleaving."""
    offset = np.array(offset, np.int32)
    if pp <= 1:
        offset = np.zeros((1, 1), np.int32)
    else:
        if offset.ndim >= 1 and offset.shape[-1] != pp or offset.sum() != num_layers % pp:
            raise ValueError
        offset = np.broadcast_to(offset, (1, pp))
        actual = offset.flatten() + num_layers // pp
        if actual[0] < 0 or actual[-1] < 0 or pp > 2 and np.any(actual[1:-1] < 1):
            raise ValueError
    layer_list = np.ones((1, pp), np.int32) * (num_layers // pp) + offset
    ends = np.cumsum(layer_list, axis=1).reshape(-1)
    return [int(np.searchsorted(ends, i + 1) % pp) for i in range(num_layers)]


def test_partition_layers_agrees_with_mindformers_formula():
    random = np.random.default_rng(0)
    accepted = 0
    for _ in range(3000):
        pp, num_layers = int(random.integers(2, 6)), int(random.integers(1, 25))
        offset = random.integers(-2, 3, pp).tolist()
        if random.random() < 0.7:
            offset[int(random.integers(pp))] += num_layers % pp - sum(offset)
        try:
            wanted = layer_setting(num_layers, pp, offset)
        except ValueError:
            with pytest.raises(ValueError):
                stages.partition_layers(num_layers, pp, offset)
            continue
        accepted += 1
        counts = stages.partition_layers(num_layers, pp, offset)
        assert [stage for stage, count in enumerate(counts) for _ in range(count)] == wanted
    assert accepted > 500


def test_the_examples_of_the_documentation():
    assert stages.partition_layers(12, 4) == [3, 3, 3, 3]
    assert stages.partition_layers(14, 4, [0, 1, 1, 0]) == [3, 4, 4, 3]
    assert stages.partition_layers(20, 4, [-2, 1, 1, 0]) == [3, 6, 6, 5]
    assert stages.partition_layers(5, 3, [1, 1, 0]) == [2, 2, 1]
    with pytest.raises(ValueError, match="must sum to 5 % 3 = 2"):
        stages.partition_layers(5, 3)
    with pytest.raises(TypeError, match="an entry for each stage"):
        stages.partition_layers(13, 4, 1)


def test_a_single_number_as_offset_loses_layers_in_mindformers():
    assert layer_setting(5, 4, 1) == [0, 0, 1, 1, 2]          # said in the lesson: it passes the test and is added to every stage


def test_the_dearest_stage_of_gpt2():
    costs = [0.0, *[8.7] * 12, 38.6]
    assert stages.partition_by_cost(costs, 4) == [5, 4, 4, 1]


def test_stage_of_rank():
    assert [stages.stage_of_rank(rank, 16, 4) for rank in range(16)] == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert [stages.stage_of_rank(rank, 6, 3) for rank in range(6)] == [0, 0, 1, 1, 2, 2]
    for bad in [(0, 6, 4), (6, 6, 3), (-1, 6, 3), (0, 6, 0)]:
        with pytest.raises(ValueError, match="ranks"):
            stages.stage_of_rank(*bad)


# --- slices --------------------------------------------------------------------------------------------


def batch():
    random = np.random.default_rng(1)
    return (torch.from_numpy(random.integers(0, 61, (2, 16))) for _ in range(2))


def loss_of(logits, targets):
    return gpt.cross_entropy(logits.flatten(0, 1), targets.flatten())


@pytest.mark.parametrize("counts", DIVIDED, ids=str)
def test_stages_chained_equal_the_whole(counts, tmp_path):
    model = shaken(gpt.GPT(config(sum(counts))))
    save_file(model.state_dict(), tmp_path / "gpt.safetensors")
    parts = [stages.LocalSliceGPT(model.config, counts, i) for i in range(len(counts))]
    idx, targets = batch()
    taken, given, x = [], [], idx
    for part in parts:
        part.load(tmp_path / "gpt.safetensors")
        taken.append(x.detach().requires_grad_(x.is_floating_point()))
        x = part(taken[-1])
        given.append(x)
    loss_of(x, targets).backward()
    for i in reversed(range(len(parts) - 1)):
        given[i].backward(taken[i + 1].grad)
    logits, loss = model(idx, targets)
    loss.backward()
    assert torch.equal(x, logits)
    found = {}
    for part in parts:
        for name, p in part.named_parameters():
            found[name] = found.get(name, 0) + p.grad
    assert sorted(found) == sorted(dict(model.named_parameters()))
    for name, p in model.named_parameters():
        assert torch.equal(found[name], p.grad), name


@pytest.mark.parametrize("counts", DIVIDED[:3] + DIVIDED[4:5], ids=str)
def test_stages_chained_equal_the_whole_in_mindspore(counts, tmp_path):
    model = shaken(gpt.GPT(config(sum(counts))))
    save_file(model.state_dict(), tmp_path / "gpt.safetensors")
    parts = [ms_stages.LocalSliceGPT(model.config, counts, i) for i in range(len(counts))]
    idx, targets = batch()
    ids, wanted = (ms.Tensor(x.numpy().astype(np.int32)) for x in (idx, targets))
    taken = [ids]
    for part in parts:
        part.load(tmp_path / "gpt.safetensors")
        taken.append(part(taken[-1]))
    found, back = {}, None
    for i in reversed(range(len(parts))):
        part, weights = parts[i], list(parts[i].trainable_params())

        def result(x, back):
            y = part(x)
            return ms_gpt.cross_entropy(y.reshape(-1, 61), wanted.reshape(-1)) if back is None else (y * back).sum()

        if i:
            back, grads = ms.grad(result, 0, weights=weights)(taken[i], back)
        else:
            grads = ms.grad(result, None, weights=weights)(taken[i], back)
        for p, grad in zip(weights, grads):
            found[p.name] = found.get(p.name, 0) + grad
    whole = ms_gpt.GPT(model.config)
    parity.carry(model, whole)

    def loss(idx):
        return whole(idx, wanted)[1]

    weights = list(whole.trainable_params())
    for p, grad in zip(weights, ms.grad(loss, None, weights=weights)(ids)):
        assert parity.largest_difference(found[p.name], grad) < 1e-6, p.name
    assert np.array_equal(taken[-1].asnumpy(), whole(ids)[0].asnumpy())
    logits, loss = model(idx, targets)
    loss.backward()
    assert parity.relative_difference(taken[-1], logits) < 2e-6
    for name, p in model.named_parameters():
        assert parity.relative_difference(found[name], p.grad) < 1e-5, name


def test_bytes_add_up_to_the_whole_and_a_second_table():
    counts = [4, 4, 4, 0]
    parts = [stages.LocalSliceGPT(CONFIG, counts, i) for i in range(4)]
    numbers = [sum(p.numel() for p in part.parameters()) for part in parts]
    whole = sum(p.numel() for p in gpt.GPT(CONFIG).parameters())
    assert sum(numbers) == whole + CONFIG.vocab_size * CONFIG.n_embd


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_stage_needs_less_memory_than_the_whole(tmp_path):
    sizes = dict(vocab_size=20000, n_ctx=64, n_layer=6, n_head=4, n_embd=256)
    model = gpt.GPT(gpt.GPTConfig(**sizes))
    save_file(model.state_dict(), tmp_path / "gpt.safetensors")
    whole = slices.peak(tmp_path / "gpt.safetensors", sizes)
    middle = slices.peak(tmp_path / "gpt.safetensors", sizes, [2, 2, 2], 1)
    held = sum(4 * p.numel() for p in model.parameters())
    assert whole > 0.9 * held and middle < 0.4 * whole


def test_a_failed_process_says_why(tmp_path):
    with pytest.raises(RuntimeError, match="in a process of its own failed"):
        slices.peak(tmp_path / "nothing.safetensors", vars(CONFIG), [3, 3, 3, 3], 1)


def test_the_start_is_that_of_the_whole_model():
    torch.manual_seed(0)
    part = stages.LocalSliceGPT(gpt.GPTConfig(vocab_size=64, n_ctx=16, n_layer=8, n_head=4, n_embd=128), [2, 2, 2, 2], 1)
    assert part.h["2"].mlp.c_proj.weight.std().item() == pytest.approx(0.02 / math.sqrt(16), rel=0.03)
