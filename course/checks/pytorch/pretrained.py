"""Checks of lesson 09: GPT-2 weights. The oracle is GPT-2 written out on the checkpoint's own tensors, in float64.

tests/test_pretrained.py holds that oracle against `transformers`.
"""
import contextlib
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from course.checks import Mismatch, checks
from course.checks.pytorch import close, equal, fail, rand, rand_ids, same, shape_of

CONVERT = "pytorch.pretrained.convert"
CONFIG = "pytorch.pretrained.config_of"
LOAD = "pytorch.pretrained.load_gpt2"

CONV1D = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


# --- checkpoints, and what they compute ----------------------------------------------------------------


def checkpoint(V=29, n_ctx=11, n_layer=2, C=24, seed=0):
    """{name: tensor} of a GPT-2 with random weights, as (in, out), without prefix, masks and head."""
    shapes = {"wte.weight": (V, C), "wpe.weight": (n_ctx, C)}
    for i in range(n_layer):
        shapes |= {
            f"h.{i}.ln_1.weight": (C,), f"h.{i}.ln_1.bias": (C,),
            f"h.{i}.attn.c_attn.weight": (C, 3 * C), f"h.{i}.attn.c_attn.bias": (3 * C,),
            f"h.{i}.attn.c_proj.weight": (C, C), f"h.{i}.attn.c_proj.bias": (C,),
            f"h.{i}.ln_2.weight": (C,), f"h.{i}.ln_2.bias": (C,),
            f"h.{i}.mlp.c_fc.weight": (C, 4 * C), f"h.{i}.mlp.c_fc.bias": (4 * C,),
            f"h.{i}.mlp.c_proj.weight": (4 * C, C), f"h.{i}.mlp.c_proj.bias": (C,),
        }
    shapes |= {"ln_f.weight": (C,), "ln_f.bias": (C,)}
    return {name: rand(*shape, seed=100 * seed + i, scale=0.4) for i, (name, shape) in enumerate(shapes.items())}


def as_new(tensors):
    """The form that transformers writes: every name behind "transformer."."""
    return {f"transformer.{name}": tensor for name, tensor in tensors.items()}


def as_old(tensors, prefix=""):
    """The form of older files: the causal masks among the weights, and the head as a copy of wte."""
    n_ctx = len(tensors["wpe.weight"])
    old = {}
    for name, tensor in tensors.items():
        old[prefix + name] = tensor
        if name.endswith("ln_1.bias"):
            layer = prefix + name.removesuffix("ln_1.bias")
            old[f"{layer}attn.bias"] = torch.ones(n_ctx, n_ctx).tril()[None, None]
            old[f"{layer}attn.masked_bias"] = torch.tensor(-1e4)
    old["lm_head.weight"] = tensors["wte.weight"].clone()
    return old


def ours(tensors):
    """The same weights under our names: Conv1D turned round."""
    return {name: tensor.T if name.endswith(CONV1D) else tensor for name, tensor in tensors.items()}


def gpt2(tensors, idx, n_head):
    """(B, T, V) logits of GPT-2 on the checkpoint's own tensors (openai/gpt-2, src/model.py)."""
    w = {name: tensor.double() for name, tensor in tensors.items()}
    C = w["wte.weight"].shape[1]

    def norm(x, name):
        return F.layer_norm(x, (C,), w[f"{name}.weight"], w[f"{name}.bias"])

    def conv1d(x, name):
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["wte.weight"][idx] + w["wpe.weight"][: idx.shape[1]]
    for i in range(sum(name.endswith("ln_1.weight") for name in w)):
        q, k, v = conv1d(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").split(C, dim=-1)
        q, k, v = (t.unflatten(-1, (n_head, -1)).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + conv1d(y, f"h.{i}.attn.c_proj")
        y = F.gelu(conv1d(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate="tanh")
        x = x + conv1d(y, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


# --- convert -------------------------------------------------------------------------------------------


def converted(convert, tensors):
    """convert(tensors) as a dict; fails if it is none, or if the checkpoint was changed."""
    given = {name: tensor.clone() for name, tensor in tensors.items()}
    got = convert(given)
    if got is None:
        fail("the result is None. Is there a return at the end, after the loop?")
    if not isinstance(got, Mapping):
        fail(f"the result should be a dict of tensors and is of type {type(got).__name__}.")
    if list(given) != list(tensors):
        name = next(iter(set(given) ^ set(tensors)), "the order")
        fail(
            "the dict you are given is changed: whoever called you still needs it.",
            example=f"{name}: {'still there before, gone now' if name in tensors else 'new'}",
            look="pop, del and assignments into tensors; fill a dict of your own",
        )
    for name, tensor in given.items():
        if not same(tensor, tensors[name]):
            fail(f"the checkpoint's tensor {name} is changed in place.", look="t_(), copy_() and .data: .T and .transpose() leave the tensor as it is")
    for name, tensor in got.items():
        if not isinstance(tensor, torch.Tensor):
            fail(f"the result should hold tensors, and {name} is of type {type(tensor).__name__}.")
    return got


def names_are(got, wanted):
    """The names of got are those of wanted; says what went wrong with the first that is not."""
    for name in got:
        if name in wanted:
            continue
        if "attn.bias" in name and "c_attn" not in name or "masked_bias" in name:
            fail(
                f"{name} is kept: it is the causal mask, no weight. Our model builds its mask anew and has no place for it.",
                look="names that end in .attn.bias and .attn.masked_bias",
            )
        if "lm_head" in name:
            fail(f"{name} is kept: the head is tied to wte, which is in the dict already.", look="the name lm_head.weight")
        if name.startswith("transformer."):
            fail(f'the prefix is still there: {name}. Our names begin behind "transformer.".', look="str.removeprefix")
        whole = next((w for w in sorted(wanted, key=len, reverse=True) if w.endswith(name) or name.endswith(w)), None)
        if whole and len(name) < len(whole):
            fail(f"the name {name!r} comes back, expected {whole!r}: too much is cut off.", look="remove the prefix only where it stands: some files have none")
        if whole:
            fail(f"{name} should be {whole}: too little is cut off, or something is added.")
        fail(f"there is a name that the checkpoint does not have: {name}.", look="how you make the new name")
    for name in wanted:
        if name in got:
            continue
        if name.endswith("attn.c_attn.bias"):
            fail(
                f"{name} is missing: it ends in attn.bias like the mask h.0.attn.bias, and it is a weight.",
                look="the dot: .attn.bias is the mask, .c_attn.bias is not",
            )
        if name.endswith(".bias"):
            fail(f"{name} is missing: of all biases only .attn.bias and .attn.masked_bias are masks.")
        if name == "wte.weight":
            fail("wte.weight is missing: the head is dropped because it is a copy of wte, and wte must stay.")
        fail(f"{name} is missing: every weight of the checkpoint must be in the result.")


@checks(CONVERT, "names behind the prefix")
def convert_prefix(convert):
    tensors = checkpoint()
    names_are(converted(convert, as_new(tensors)), tensors)


@checks(CONVERT, "names without a prefix")
def convert_no_prefix(convert):
    tensors = checkpoint()
    names_are(converted(convert, tensors), tensors)


@checks(CONVERT, "masks and the head stay out")
def convert_buffers(convert):
    tensors = checkpoint(n_layer=1)
    names_are(converted(convert, as_old(tensors)), tensors)
    names_are(converted(convert, as_old(tensors, prefix="transformer.")), tensors)


def orientation_is(got, tensors):
    """Each tensor of got is the one of the checkpoint, turned round where it belongs to a Conv1D."""
    wanted = ours(tensors)
    square = "it is square, so loading cannot notice: every block then mixes its heads with a wrong matrix."
    for name in wanted:
        stored, right, value = tensors[name], wanted[name], got[name]
        known = []
        if name.endswith(CONV1D):
            why = square if stored.shape[0] == stored.shape[1] else f"it has shape {shape_of(stored)}, our Linear needs {shape_of(right)}."
            known = [
                (f"{name} is not transposed: {why}", stored),
                (
                    f"{name} gets its shape by a reshape, which keeps the numbers in their old order. A transpose moves them: row i becomes column i.",
                    stored.reshape(right.shape),
                ),
            ]
        elif stored.dim() == 2:
            kind = "rows are looked up by token or position, as in our Embedding"
            known = [(f"{name} is transposed, and it is no Conv1D: its {kind}.", stored.T)]
        if known and isinstance(value, torch.Tensor) and value.shape != right.shape and value.shape == known[0][1].shape:
            fail(known[0][0])                                 # wrong shape, or it would be compared below
        close(value, right, atol=0, name=name, known=[(words, other) for words, other in known if other.shape == right.shape])


@checks(CONVERT, "what is transposed and what is not")
def convert_orientation(convert):
    tensors = checkpoint(n_layer=2)
    got = converted(convert, as_new(tensors))
    names_are(got, tensors)
    orientation_is(got, tensors)


@checks(CONVERT, "shapes that mislead")
def convert_misleading(convert):
    for V, n_ctx, C in [(12, 12, 12), (36, 48, 12), (48, 36, 12)]:
        tensors = checkpoint(V=V, n_ctx=n_ctx, n_layer=1, C=C, seed=1)
        try:
            orientation_is(converted(convert, tensors), tensors)
        except Mismatch as mismatch:
            fail(f"{mismatch}", look=f"the test for shapes: here wte is ({V}, {C}) and wpe ({n_ctx}, {C}). Only its name says what a tensor is")


@checks(CONVERT, "more than ten layers")
def convert_layers(convert):
    tensors = checkpoint(n_layer=12, C=4, V=7, n_ctx=5, seed=2)
    got = converted(convert, as_old(tensors))
    names_are(got, tensors)
    try:
        orientation_is(got, tensors)
    except Mismatch as mismatch:
        fail(f"{mismatch}", look="layer numbers with two digits, and lists of names that stop at some layer")


@checks(CONVERT, "names it does not know")
def convert_unknown(convert):
    tensors = checkpoint(n_layer=1)
    for name, wanted, shape in [
        ("transformer.h.0.attn.rotary.weight", "h.0.attn.rotary.weight", (3, 2)),
        ("classifier.weight", "classifier.weight", (3, 2)),
        ("transformer.score.weight", "score.weight", (3, 2)),
        ("draft.transformer.wte.weight", "draft.transformer.wte.weight", (3, 2)),
        ("draft.lm_head.weight", "draft.lm_head.weight", (3, 2)),
        ("transformer.h.0.conv.weight", "h.0.conv.weight", (4, 1, 3, 2)),
        ("transformer.temperature", "temperature", ()),
    ]:
        got = converted(convert, {**as_new(tensors), name: torch.ones(shape)})
        if wanted in got:
            if got[wanted].shape != shape:
                fail(f"{wanted} is transposed: only the four Conv1D of a block are stored the other way round.")
            continue
        if wanted == "score.weight" and "core.weight" in got:
            fail(
                'characters are stripped, not the prefix: lstrip("transformer.") removes every leading letter of that set.',
                example=f"{name} becomes core.weight, expected {wanted}",
                look="removeprefix() removes the text as a whole",
            )
        if "transformer" in wanted and wanted.replace("transformer.", "") in got:
            fail(
                '"transformer." is removed wherever it stands; only at the beginning of a name is it the prefix.',
                example=f"{name} becomes {wanted.replace('transformer.', '')}, expected {wanted}",
                look="replace() acts everywhere; removeprefix() at the beginning only",
            )
        new = sorted(set(got) - set(tensors))
        if new:
            fail(f"the unknown name {name} becomes {new[0]}, expected {wanted}.", look="how you make the new name")
        fail(
            f"the unknown name {name} is dropped without a word. If it passes, load_state_dict stops and names it.",
            look="what you leave out: only the causal masks and lm_head.weight",
        )


# --- config_of -----------------------------------------------------------------------------------------


FIELDS = ("vocab_size", "n_ctx", "n_layer", "n_head", "n_embd")

HF = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_inner": None, "reorder_and_upcast_attn": False,
    "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True, "tie_word_embeddings": True,
}


def settings_for(tensors, n_head, n_layer):
    """A config.json of transformers, as a dict. It says n_positions for n_ctx."""
    V, C = tensors["wte.weight"].shape
    return {**HF, "n_embd": C, "n_head": n_head, "n_layer": n_layer, "n_positions": len(tensors["wpe.weight"]), "vocab_size": V}


def sizes(config_of, tensors, settings):
    """config_of's answer as {field: int}; fails if it is no config, or if the arguments were changed."""
    state, given = ours(tensors), dict(settings)
    before = dict(state)
    got = config_of(state, given)
    if got is None:
        fail("the result is None. Is there a return at the end?")
    if isinstance(got, (Mapping, tuple, list, type)):
        fail(f"the result should be a GPTConfig and is {'the class itself' if isinstance(got, type) else 'of type ' + type(got).__name__}.", look="GPTConfig(vocab_size, n_ctx, n_layer, n_head, n_embd)")
    for field in FIELDS:
        if not hasattr(got, field):
            fail(f"the result should be a GPTConfig and has no {field}; it is of type {type(got).__name__}.")
        value = getattr(got, field)
        if isinstance(value, bool) or not isinstance(value, int):
            fail(f"{field} should be an int and is {value!r}, of type {type(value).__name__}.")
    if given != settings:
        fail("the settings you are given are changed: whoever called you still needs them.", look="pop and del; settings.get reads without removing")
    if list(state) != list(before) or any(state[name] is not before[name] for name in state):
        fail("the state dict you are given is changed: it is loaded after this.", look="pop, del and assignments into state")
    return {field: getattr(got, field) for field in FIELDS}


def sizes_are(got, wanted, known):
    """Compare field by field. known: {field: {value: what it means}}."""
    for field in FIELDS:
        if got[field] == wanted[field]:
            continue
        words = known.get(field, {}).get(got[field])
        if words is None:
            other = next((f for f in FIELDS if wanted[f] == got[field]), None)
            words = f"that is {other}" if other else "no tensor and no setting says so"
        fail(f"{field} is {got[field]}, expected {wanted[field]}: {words}.", look=f"the line that makes {field}")


def size_mistakes(V, n_ctx, n_layer, n_head, C):
    names = len(checkpoint(V, n_ctx, n_layer, C))
    return {
        "vocab_size": {50257: "that is GPT-2's own; take it from wte.weight", C: "that is n_embd: wte.weight is (vocab_size, n_embd), and nothing is transposed there"},
        "n_ctx": {1024: "that is GPT-2's own; take it from wpe.weight", C: "that is n_embd: wpe.weight is (n_ctx, n_embd)", V: "that is the length of wte; positions are rows of wpe"},
        "n_layer": {
            12: "that is GPT-2 small's; count the blocks in the names",
            n_layer - 1: "that is the largest layer number, and layers count from 0",
            n_layer + 1: "that is one too many: ln_f, wte and wpe are no layers",
            12 * n_layer: "that is the number of tensors in the blocks; each block has 12",
            names: "that is the number of all tensors",
        },
        "n_head": {
            C // n_head: "that is the width of a head, n_embd // n_head",
            12: "that is GPT-2 small's; settings say how many there are",
            1: "a head is left out of account: settings say how many there are",
            C // 64: "that is n_embd // 64, and settings say something else",
        },
        "n_embd": {768: "that is GPT-2 small's; take it from wte.weight", V: "that is vocab_size: wte.weight is (vocab_size, n_embd)"},
    }


@checks(CONFIG, "sizes from the tensors")
def config_sizes(config_of):
    V, n_ctx, n_layer, n_head, C = 29, 11, 3, 4, 24
    got = sizes(config_of, checkpoint(V, n_ctx, n_layer, C), {"n_head": n_head})
    sizes_are(got, dict(zip(FIELDS, (V, n_ctx, n_layer, n_head, C))), size_mistakes(V, n_ctx, n_layer, n_head, C))


@checks(CONFIG, "one layer, and more than ten")
def config_layers(config_of):
    for n_layer in (1, 10, 13):
        tensors = checkpoint(7, 5, n_layer, 4)
        tensors = dict(sorted(tensors.items(), key=lambda item: hash_of(item[0])))      # files keep no order
        got = sizes(config_of, tensors, {"n_head": 2})
        known = size_mistakes(7, 5, n_layer, 2, 4)
        if n_layer == 13:
            known["n_layer"][10] = "numbers in names were compared as text, where 'h.9' comes after 'h.12'"
        sizes_are(got, dict(zip(FIELDS, (7, 5, n_layer, 2, 4))), known)


def hash_of(name):
    return sum((i + 3) * ord(c) * 7919 for i, c in enumerate(name)) % 1009


@checks(CONFIG, "n_head from the settings of transformers")
def config_n_head(config_of):
    tensors = checkpoint(10, 9, 1, 128)
    for n_head in (4, 8, 16):
        got = sizes(config_of, tensors, settings_for(tensors, n_head, 1))
        sizes_are(got, dict(zip(FIELDS, (10, 9, 1, n_head, 128))), size_mistakes(10, 9, 1, n_head, 128))


@checks(CONFIG, "heads 64 wide where settings are empty")
def config_no_settings(config_of):
    small = checkpoint(10, 9, 1, 64)
    for C in (128, 192, 4096):
        wide = {n: t.flatten()[:1].expand([size if size % 64 else size // 64 * C for size in t.shape]) for n, t in small.items()}
        got = sizes(config_of, wide, {})
        sizes_are(got, dict(zip(FIELDS, (10, 9, 1, C // 64, C))), {
            "n_head": {12: "that is GPT-2 small's, with 768 channels. In every GPT-2 a head is 64 wide", 64: "64 is the width of a head, not their number", 1: "in every GPT-2 a head is 64 wide"},
        })


REFUSED = object()


def refuses(function, kind, words, missing, example):
    """REFUSED if function() raises `kind` with one of `words` in its message; what it returns if it raises nothing."""
    names = " or ".join(words)
    try:
        got = function()
    except kind as error:
        text = str(error)
        if not any(word in text for word in words):
            fail(f"{missing} The {kind.__name__} says nothing of {names}.", example=f"{example}: the message is {text[:120]!r}")
        return REFUSED
    except Exception as error:
        fail(f"{missing} Your code raises {type(error).__name__} instead: {str(error)[:120]}", example=f"{example}: a {kind.__name__} that names {names}")
    return got


@checks(CONFIG, "a width that says nothing")
def config_unknown_heads(config_of):
    tensors = checkpoint(10, 9, 1, 96)
    got = refuses(lambda: config_of(ours(tensors), {}), ValueError, ["n_head", "head", "64"],
                  "With empty settings and an n_embd that 64 does not divide, nobody knows n_head: that needs a ValueError, in one sentence.", "n_embd = 96, settings = {}")
    if got is not REFUSED:
        returned = f"n_head = {got.n_head}" if hasattr(got, "n_head") else repr(got)[:60]
        fail(
            f"n_embd = 96 is no multiple of 64 and settings are empty: there must be a ValueError, in one sentence, and your code returns {returned}. A wrong guess loads without an error.",
            look="what n_embd // 64 throws away",
        )


@checks(CONFIG, "settings of another model")
def config_other_model(config_of):
    tensors = checkpoint(10, 9, 1, 24)
    base = settings_for(tensors, 4, 1)
    for name, value in [
        ("activation_function", "relu"), ("activation_function", "gelu"), ("layer_norm_epsilon", 1e-6), ("layer_norm_epsilon", 1e-12),
        ("tie_word_embeddings", False), ("scale_attn_weights", False), ("scale_attn_by_inverse_layer_idx", True),
    ]:
        got = refuses(lambda: config_of(ours(tensors), {**base, name: value}), ValueError, [name],
                      f"Settings with {name} = {value!r} ask for what our GPT does not compute: that needs a ValueError which names {name}.", f"{name} = {value!r}")
        if got is not REFUSED:
            fail(
                f"settings with {name} = {value!r} are accepted, and our GPT does not compute that: the weights would load and the logits be wrong. Raise a ValueError that names {name}.",
                look="the table of settings above the exercise",
            )


# --- load_gpt2 -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def folder(tensors, settings=None, name="model.safetensors"):
    """A temporary folder with the tensors in a file, and config.json if there are settings."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        place = Path(place) / "checkpoint"
        place.mkdir()
        save_file({n: t.contiguous() for n, t in tensors.items()}, place / name, metadata={"format": "pt"})
        if settings is not None:
            (place / "config.json").write_text(json.dumps(settings))
        yield place


def loaded(load_gpt2, path):
    """The learner's model of a path; fails in words if loading stops or gives no model."""
    try:
        model = load_gpt2(path)
    except RuntimeError as error:
        if "loading state_dict" not in str(error):
            raise
        fail(why_not(str(error)), look="convert of this lesson, and the sizes that GPT is made with")
    if model is None:
        fail("the result is None. Is there a return at the end?")
    if isinstance(model, type):
        fail("the result is the class GPT, not a model: make one with GPT(config).")
    if isinstance(model, tuple) and hasattr(model, "missing_keys"):
        fail("the result is what load_state_dict returns, its list of names. Load first, then return the model.")
    if isinstance(model, Mapping):
        fail("the result is a dict of tensors. Make a GPT, load the dict into it with load_state_dict, and return the model.")
    if not isinstance(model, nn.Module):
        fail(f"the result should be a GPT and is of type {type(model).__name__}.")
    if type(model).__module__.startswith("transformers"):
        fail(f"the result is {type(model).__name__} of transformers. The weights belong into your own GPT.")
    return model


def why_not(text):
    """load_state_dict's complaint in one sentence."""
    wrong = re.search(r"size mismatch for (\S+): copying a param with shape torch.Size\((.*?)\).*current model is torch.Size\((.*?)\)", text)
    extra = re.search(r'Unexpected key\(s\) in state_dict: "(.*?)"', text)
    missing = re.search(r'Missing key\(s\) in state_dict: "(.*?)"', text)
    if extra and missing:
        return f"the names do not fit: the dict holds {extra[1]} and the model has no such place, while its {missing[1]} gets nothing."
    if extra:
        return f"load_state_dict finds no place for {extra[1]}."
    if missing:
        return f"load_state_dict finds nothing for {missing[1]} of the model."
    if wrong:
        return f"{wrong[1]} has shape {wrong[2].replace('[', '(').replace(']', ')')} in the dict and {wrong[3].replace('[', '(').replace(']', ')')} in the model."
    return text.split("\n")[0]


def logits_of(model, idx):
    with torch.no_grad():
        got = model(idx)
    if not isinstance(got, tuple) or len(got) != 2:
        fail(f"the model gives {type(got).__name__}; GPT of lesson 06 gives (logits, None).")
    return got[0]


def untransposed(tensors, only=("",)):
    """The weights as they act if attn.c_proj is loaded as it is stored."""
    return {n: t.T if n.endswith("attn.c_proj.weight") and n.startswith(only) else t for n, t in tensors.items()}


def model_is(load_gpt2, path, tensors, n_head, name):
    """The model of this path computes what GPT-2 computes on these tensors; returns it."""
    V, C = tensors["wte.weight"].shape
    model = loaded(load_gpt2, path)
    idx = rand_ids(2, len(tensors["wpe.weight"]), n=V, seed=3)
    got = logits_of(model, idx)
    if not equal(got, logits_of(loaded(load_gpt2, path), idx), 1e-6):
        fail(
            "two loads of one file give two different models: some parameters were never loaded and keep their random start.",
            look="strict=False, names that fit nothing, and a model that is returned before load_state_dict",
        )
    want = gpt2(tensors, idx, n_head).float()
    known = [
        ("attn.c_proj is not transposed. It is square, so it loads without an error and every block is wrong.", lambda: gpt2(untransposed(tensors), idx, n_head).float()),
        ("attn.c_proj is not transposed in the first block.", lambda: gpt2(untransposed(tensors, ("h.0.",)), idx, n_head).float()),
        ("attn.c_proj is transposed in the first block only.", lambda: gpt2(untransposed(tensors, tuple(f"h.{i}." for i in range(1, 99))), idx, n_head).float()),
    ]
    for other in (12, C // 64, 1, *range(2, C + 1)):
        if other and other != n_head and C % other == 0:
            known.append((f"the model was made with n_head = {other}, and the checkpoint has {n_head} heads.", lambda other=other: gpt2(tensors, idx, other).float()))
    stored, look = ours(tensors), "config_of, convert, and which file was read"
    for parameter, p in model.named_parameters():
        if parameter in stored and not equal(p, stored[parameter].float(), 1e-6):
            look = f"{parameter} of the model: it is not what the file holds"
            break
    close(got, want, atol=5e-5, name=name, known=known, look=look)
    return model


@checks(LOAD, "a folder of transformers")
def load_folder(load_gpt2):
    tensors = checkpoint()
    with folder(as_new(tensors), settings_for(tensors, 4, 2)) as place:
        model_is(load_gpt2, place, tensors, 4, "the output")


@checks(LOAD, "a path given as text")
def load_text(load_gpt2):
    tensors = checkpoint(seed=4)
    with folder(as_new(tensors), settings_for(tensors, 3, 2)) as place:
        try:
            loaded(load_gpt2, str(place))
        except (AttributeError, TypeError) as error:
            fail(f"a path given as str stops with {type(error).__name__}: {error}.", look="Path(path) takes a str as well as a Path")


@checks(LOAD, "a single file of the old form, with a config beside it")
def load_file_with_config(load_gpt2):
    tensors = checkpoint(V=19, n_ctx=7, n_layer=3, seed=5)
    with folder(as_old(tensors), settings_for(tensors, 6, 3), name="weights.safetensors") as place:
        decoy = checkpoint(V=19, n_ctx=7, n_layer=3, seed=6)
        save_file(as_new(decoy), place / "other.safetensors")
        model_is(load_gpt2, place / "weights.safetensors", tensors, 6, "the output for weights.safetensors")
        try:
            load_gpt2(str(place / "weights.safetensors"))
        except Exception as error:
            fail(f"the path of a file given as str stops with {type(error).__name__}: {error}.", look="Path(path) takes a str as well as a Path")


@checks(LOAD, "a single file without a config")
def load_file_alone(load_gpt2):
    tensors = checkpoint(V=13, n_ctx=5, n_layer=1, C=192, seed=7)
    with folder(tensors, name="gpt2.safetensors") as place:
        try:
            model_is(load_gpt2, place / "gpt2.safetensors", tensors, 3, "the output for a file without config.json")
        except FileNotFoundError as error:
            fail(f"a .safetensors file without a config.json beside it stops with FileNotFoundError: {error}.", look="config.json may be missing: then settings are empty")


@checks(LOAD, "more than ten layers")
def load_layers(load_gpt2):
    tensors = checkpoint(V=17, n_ctx=6, n_layer=12, C=8, seed=8)
    with folder(as_new(tensors), settings_for(tensors, 2, 12)) as place:
        model_is(load_gpt2, place, tensors, 2, "the output with 12 layers")


@checks(LOAD, "a float16 file")
def load_half(load_gpt2):
    tensors = {n: t.half() for n, t in checkpoint(seed=9).items()}
    with folder(as_new(tensors), settings_for(tensors, 4, 2)) as place:
        model = loaded(load_gpt2, place)
        for name, p in model.named_parameters():
            if p.dtype != torch.float32:
                fail(f"{name} has dtype {p.dtype} because the file has; our GPT computes in float32.", look="assign=True and .half(): load_state_dict copies into the float32 parameters by itself")
        model_is(load_gpt2, place, tensors, 4, "the output for a float16 file")


@checks(LOAD, "a model that can be trained")
def load_trainable(load_gpt2):
    tensors = checkpoint(seed=10)
    with folder(as_new(tensors), settings_for(tensors, 4, 2)) as place:
        model, other = loaded(load_gpt2, place), loaded(load_gpt2, place)
    got = {n: tuple(p.shape) for n, p in model.named_parameters()}
    wanted = {n: tuple(t.shape) for n, t in ours(tensors).items()}
    for name in wanted:
        if name not in got:
            fail(f"{name} is no parameter of the model any more: an optimizer never sees it.", look="how the weights get into the model: load_state_dict copies them into the parameters")
    for name, p in model.named_parameters():
        if not p.requires_grad:
            fail(f"{name} does not require a gradient: the model cannot be trained further.", look="requires_grad_(False), and parameters made anew")
    mine, theirs = dict(model.named_parameters()), dict(other.named_parameters())
    shared = next((n for n in mine if mine[n] is theirs[n] or mine[n].data_ptr() == theirs[n].data_ptr()), None)
    if shared:
        fail(f"two loads share {shared}: training one model changes the other.", look="a cache, or a model made outside the function")
    idx = rand_ids(2, 9, n=29, seed=11)
    try:
        model(idx, idx)[1].backward()
    except RuntimeError as error:
        fail(f"the model cannot be trained: {str(error)[:100]}", look="inference_mode, and set_grad_enabled(False), which stays in force after your function")
    for name, p in model.named_parameters():
        if p.grad is None or not p.grad.abs().sum() > 0:
            fail(f"no gradient reaches {name}.", look="no_grad and detach around the model")


@checks(LOAD, "a path that does not exist")
def load_nothing(load_gpt2):
    tensors = checkpoint()
    with folder(tensors, settings_for(tensors, 4, 2), name="weights.safetensors") as place:
        for path, what in [
            (place.parent / "nowhere", "a folder that does not exist"),
            (place / "nothing.safetensors", "a file that does not exist"),
            (place, "a folder without model.safetensors"),
        ]:
            try:
                load_gpt2(path)
            except FileNotFoundError:
                continue
            except Exception as error:
                fail(f"{what} needs a FileNotFoundError, in one sentence; your code raises {type(error).__name__}: {str(error)[:120]}", look="file.exists(), before the file is opened")
            fail(f"{what} needs a FileNotFoundError, and your code returns a model.", look="except clauses that hide the error")


@checks(LOAD, "a file that is no GPT-2")
def load_other_model(load_gpt2):
    tensors = {"bert.embeddings.word_embeddings.weight": rand(9, 4), "bert.pooler.weight": rand(4, 4)}
    with folder(tensors, {"model_type": "bert"}) as place:
        got = refuses(lambda: load_gpt2(place), ValueError, ["wte"], "A file without wte.weight is no GPT-2: that needs a ValueError which names wte.weight, in one sentence.", "a file of BERT")
        if got is not REFUSED:
            fail("a file without wte.weight is no GPT-2, and your code returns a model for it: nothing in it was loaded. Raise a ValueError that names wte.weight.")


def refused(load_gpt2, tensors, settings, name, problem, mistake, look):
    """Loading must stop with an error that names the tensor."""
    with folder(as_new(tensors), settings) as place:
        try:
            load_gpt2(place)
        except Exception as error:
            if name not in str(error):
                fail(f"{problem}: the error does not name it.", example=f"{type(error).__name__}: {str(error)[:150]}", look="load_state_dict names it if you let its error through")
            return
    fail(f"{problem}: {mistake}", look=look)


@checks(LOAD, "a missing tensor")
def load_missing(load_gpt2):
    for name in ("h.1.mlp.c_fc.bias", "h.0.attn.c_proj.weight", "ln_f.weight", "h.1.ln_2.weight"):
        tensors = checkpoint()
        settings = settings_for(tensors, 4, 2)
        del tensors[name]
        refused(
            load_gpt2, tensors, settings, name, f"{name} is missing in the file",
            "a model comes back all the same, and that layer keeps its random start. It must be an error that names the tensor.",
            "strict=False, and loops over the file's names only",
        )


@checks(LOAD, "a tensor too many")
def load_extra(load_gpt2):
    for name in ("h.0.attn.rotary.weight", "score.weight"):
        tensors = checkpoint()
        refused(
            load_gpt2, {**tensors, name: rand(3, 3)}, settings_for(tensors, 4, 2), name, f"the file holds {name}, and our GPT has no place for it",
            "it is dropped without a word. It must be an error that names the tensor: a model with more parts computes something else.",
            "strict=False, and loops over the model's names only",
        )


@checks(LOAD, "a tensor of another shape")
def load_misshapen(load_gpt2):
    for name, shape in [("h.1.ln_1.bias", (1,)), ("h.0.mlp.c_proj.bias", (25,)), ("h.0.attn.c_attn.weight", (24, 24)), ("h.1.mlp.c_fc.weight", (96, 24))]:
        tensors = {**checkpoint(), name: rand(*shape)}
        refused(
            load_gpt2, tensors, settings_for(tensors, 4, 2), name, f"{name} has shape {shape} in the file, which does not fit",
            "a model comes back all the same. It must be an error that names the tensor.",
            "copy_() broadcasts, .data = takes any shape, and try/except hides errors: load_state_dict compares shapes",
        )
