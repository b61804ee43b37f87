"""Lesson 09 against `transformers`: the oracle of its checks, and load_gpt2 on files that transformers writes."""
import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from course.checks.pytorch import pretrained as oracle
from course.checks.pytorch import rand, rand_ids
from solutions.pytorch.pretrained import config_of, convert, load_gpt2
from solutions.pytorch.sampling import sample

SIZES = [
    {"vocab_size": 97, "n_positions": 32, "n_embd": 48, "n_layer": 3, "n_head": 4},
    {"vocab_size": 31, "n_positions": 9, "n_embd": 24, "n_layer": 1, "n_head": 8},
    {"vocab_size": 53, "n_positions": 17, "n_embd": 128, "n_layer": 11, "n_head": 2},
]


@pytest.fixture(autouse=True)
def quiet_transformers():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def theirs(**sizes):
    """A GPT-2 of transformers with random numbers in every parameter."""
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(rand(*p.shape, seed=i, scale=0.15))
    return model


def logits(model, idx):
    with torch.no_grad():
        got = model(idx)
    return got[0] if isinstance(got, tuple) else got.logits


@pytest.mark.parametrize("sizes", SIZES)
def test_the_oracle_computes_what_transformers_computes(sizes):
    model = theirs(**sizes).double()
    idx = rand_ids(2, sizes["n_positions"], n=sizes["vocab_size"])
    tensors = model.transformer.state_dict()
    assert torch.allclose(oracle.gpt2(tensors, idx, sizes["n_head"]), logits(model, idx), rtol=0, atol=1e-10)


@pytest.mark.parametrize("sizes", SIZES)
def test_the_checks_use_the_names_and_shapes_of_transformers(sizes):
    V, n_ctx, C, n_layer, _ = sizes.values()
    mine = oracle.checkpoint(V, n_ctx, n_layer, C)
    stored = theirs(**sizes).transformer.state_dict()
    assert {n: t.shape for n, t in mine.items()} == {n: t.shape for n, t in stored.items()}


@pytest.mark.parametrize("sizes", SIZES)
def test_logits_equal_transformers(sizes, tmp_path):
    model = theirs(**sizes)
    model.save_pretrained(tmp_path)
    idx = rand_ids(3, sizes["n_positions"], n=sizes["vocab_size"])
    assert torch.allclose(logits(load_gpt2(tmp_path), idx), logits(model, idx), rtol=0, atol=2e-5)


def test_the_form_of_the_hub(tmp_path):
    model = theirs(**SIZES[0])
    tensors = oracle.as_old(dict(model.transformer.state_dict()))
    save_file({n: t.contiguous() for n, t in tensors.items()}, tmp_path / "model.safetensors")
    hub = {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 32, "n_embd": 48, "n_head": 4, "n_layer": 3, "n_positions": 32, "vocab_size": 97}
    (tmp_path / "config.json").write_text(json.dumps(hub))
    idx = rand_ids(3, 32, n=97)
    assert torch.allclose(logits(load_gpt2(tmp_path), idx), logits(model, idx), rtol=0, atol=2e-5)


def test_greedy_text_equals_transformers(tmp_path):
    model = theirs(**SIZES[0])
    model.save_pretrained(tmp_path)
    prompt = rand_ids(1, 8, n=97)
    want = model.generate(prompt, max_new_tokens=20, min_new_tokens=20, do_sample=False, pad_token_id=0, eos_token_id=-1)
    assert torch.equal(sample(load_gpt2(tmp_path), prompt, 20, temperature=0), want)


def test_a_float16_folder_of_transformers(tmp_path):
    model = theirs(**SIZES[0]).half()
    model.save_pretrained(tmp_path)
    mine = load_gpt2(tmp_path)
    idx = rand_ids(2, 32, n=97)
    assert {p.dtype for p in mine.parameters()} == {torch.float32}
    assert torch.allclose(logits(mine, idx), logits(model.float(), idx), rtol=0, atol=2e-5)


def test_the_published_sizes_follow_from_shapes():
    """GPT-2 small to XL on the meta device: no numbers, and n_head from the rule of 64 channels a head."""
    for n_layer, n_head, n_embd, parameters in [(12, 12, 768, 124_439_808), (24, 16, 1024, 354_823_168), (36, 20, 1280, 774_030_080), (48, 25, 1600, 1_557_611_200)]:
        with torch.device("meta"):
            state = convert(GPT2LMHeadModel(GPT2Config(n_layer=n_layer, n_head=n_head, n_embd=n_embd)).state_dict())
        got = config_of(state, {})
        assert (got.vocab_size, got.n_ctx, got.n_layer, got.n_head, got.n_embd) == (50257, 1024, n_layer, n_head, n_embd)
        assert sum(t.numel() for t in state.values()) == parameters


@pytest.mark.parametrize("change", [{"activation_function": "relu"}, {"layer_norm_epsilon": 1e-6}, {"tie_word_embeddings": False}])
def test_a_folder_of_another_model_is_refused(change, tmp_path):
    model = GPT2LMHeadModel(GPT2Config(**SIZES[1], **change, bos_token_id=0, eos_token_id=0))
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=next(iter(change))):
        load_gpt2(tmp_path)


def test_a_loaded_model_does_not_write_into_its_file(tmp_path):
    theirs(**SIZES[1]).save_pretrained(tmp_path)
    before = load_file(tmp_path / "model.safetensors")
    model = load_gpt2(tmp_path)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    after = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)
