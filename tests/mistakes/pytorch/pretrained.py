import functools
import json
import re
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load, load_file

from solutions.pytorch import pretrained as good
from solutions.pytorch.gpt import GPT, GPTConfig
from tests.mistakes import right, wrong

CONVERT = "pytorch.pretrained.convert"
CONFIG = "pytorch.pretrained.config_of"
LOAD = "pytorch.pretrained.load_gpt2"

FOUR = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
MASKS = (".attn.bias", ".attn.masked_bias")


# --- convert -------------------------------------------------------------------------------------------


def convert_with(rename=lambda n: n.removeprefix("transformer."), drop=lambda n: n.endswith(MASKS) or n == "lm_head.weight",
                 turn=lambda n, t: t.T if n.endswith(FOUR) else t):
    def convert(tensors):
        state = {}
        for name, tensor in tensors.items():
            name = rename(name)
            if not drop(name):
                state[name] = turn(name, tensor)
        return state

    return convert


def all_but(left_out):
    kept = tuple(n for n in FOUR if n != left_out)
    return convert_with(turn=lambda n, t: t.T if n.endswith(kept) else t)


@wrong(CONVERT, "attn.c_proj.weight is not transposed: it is square")
def leaves_c_proj_of_attention(tensors):
    return all_but("attn.c_proj.weight")(tensors)


@wrong(CONVERT, "attn.c_attn.weight is not transposed: it has shape (24, 72)")
def leaves_c_attn(tensors):
    return all_but("attn.c_attn.weight")(tensors)


@wrong(CONVERT, "mlp.c_fc.weight is not transposed")
def leaves_c_fc(tensors):
    return all_but("mlp.c_fc.weight")(tensors)


@wrong(CONVERT, "mlp.c_proj.weight is not transposed")
def leaves_c_proj_of_the_mlp(tensors):
    return all_but("mlp.c_proj.weight")(tensors)


@wrong(CONVERT, "not transposed")
def transposes_nothing(tensors):
    return convert_with(turn=lambda n, t: t)(tensors)


@wrong(CONVERT, "wte.weight is transposed, and it is no Conv1D")
def transposes_everything(tensors):
    return convert_with(turn=lambda n, t: t.T if t.dim() == 2 else t)(tensors)


@wrong(CONVERT, "wpe.weight is transposed, and it is no Conv1D")
def transposes_all_but_wte(tensors):
    return convert_with(turn=lambda n, t: t.T if t.dim() == 2 and "wte" not in n else t)(tensors)


@wrong(CONVERT, "it is square")
def transposes_by_shape(tensors):
    return convert_with(turn=lambda n, t: t.T if t.dim() == 2 and t.shape[0] != t.shape[1] and "w" not in n[:2] else t)(tensors)


@wrong(CONVERT, "Only its name says what a tensor is")
def transposes_what_has_a_conv_shape(tensors):
    C = next(t.shape[0] for n, t in tensors.items() if n.endswith("ln_f.weight"))
    shapes = {(C, 3 * C), (C, C), (C, 4 * C), (4 * C, C)}
    return convert_with(turn=lambda n, t: t.T if tuple(t.shape) in shapes else t)(tensors)


@wrong(CONVERT, "reshape")
def reshapes(tensors):
    return convert_with(turn=lambda n, t: t.reshape(t.shape[1], t.shape[0]) if n.endswith(FOUR) and t.shape[0] != t.shape[1] else t.T if n.endswith(FOUR) else t)(tensors)


@wrong(CONVERT, "wrong values")
def flips_rows(tensors):
    return convert_with(turn=lambda n, t: t.flip(0) if n.endswith("c_attn.bias") else t.T if n.endswith(FOUR) else t)(tensors)


@wrong(CONVERT, "dtype torch.float64")
def to_float64(tensors):
    return convert_with(turn=lambda n, t: (t.T if n.endswith(FOUR) else t).double())(tensors)


@wrong(CONVERT, "dtype torch.float16")
def to_float16(tensors):
    return convert_with(turn=lambda n, t: (t.T if n.endswith(FOUR) else t).half())(tensors)


@wrong(CONVERT, "the prefix is still there")
def keeps_the_prefix(tensors):
    return convert_with(rename=lambda n: n)(tensors)


@wrong(CONVERT, "too much is cut off")
def cuts_a_fixed_number(tensors):
    return convert_with(rename=lambda n: n[len("transformer."):])(tensors)


@wrong(CONVERT, "too much is cut off")
def cuts_the_first_part(tensors):
    return convert_with(rename=lambda n: n.split(".", 1)[1])(tensors)


@wrong(CONVERT, "too little is cut off")
def leaves_the_dot(tensors):
    return convert_with(rename=lambda n: n.removeprefix("transformer"))(tensors)


@wrong(CONVERT, "wherever it stands")
def replaces_everywhere(tensors):
    return convert_with(rename=lambda n: n.replace("transformer.", ""))(tensors)


@wrong(CONVERT, "wherever it stands")
def takes_what_follows_the_prefix(tensors):
    rename = lambda n: n.split("transformer.")[-1]
    return convert_with(rename=lambda n: n.replace("transformer.", "") if "draft" in n else rename(n))(tensors)


@wrong(CONVERT, "it is the causal mask")
def keeps_the_masks(tensors):
    return convert_with(drop=lambda n: n == "lm_head.weight")(tensors)


@wrong(CONVERT, "h.0.attn.masked_bias is kept")
def keeps_masked_bias(tensors):
    return convert_with(drop=lambda n: n.endswith(".attn.bias") or n == "lm_head.weight")(tensors)


@wrong(CONVERT, "look at: the dot")
def drops_bias_of_c_attn(tensors):
    return convert_with(drop=lambda n: n.endswith(("attn.bias", "attn.masked_bias")) or n == "lm_head.weight")(tensors)


@wrong(CONVERT, "look at: the dot")
def drops_all_biases_of_attention(tensors):
    return convert_with(drop=lambda n: re.search("attn.*bias", n) or n == "lm_head.weight")(tensors)


@wrong(CONVERT, "of all biases only")
def drops_all_biases(tensors):
    return convert_with(drop=lambda n: n.endswith("bias") or n == "lm_head.weight")(tensors)


@wrong(CONVERT, "lm_head.weight is kept")
def keeps_the_head(tensors):
    return convert_with(drop=lambda n: n.endswith(MASKS))(tensors)


@wrong(CONVERT, "wte must stay")
def drops_wte(tensors):
    return convert_with(drop=lambda n: n.endswith(MASKS) or n in ("lm_head.weight", "wte.weight"))(tensors)


@wrong(CONVERT, "h.0.ln_1.weight is missing")
def keeps_only_what_is_transposed(tensors):
    return convert_with(drop=lambda n: not n.endswith((*FOUR, "bias", "wte.weight", "wpe.weight")) or n.endswith(MASKS))(tensors)


@wrong(CONVERT, "two digits")
def one_digit_layers(tensors):
    return convert_with(turn=lambda n, t: t.T if n.endswith(FOUR) and re.match(r"h\.\d\.", n) else t)(tensors)


@wrong(CONVERT, "is dropped without a word")
def keeps_known_names_only(tensors):
    known = re.compile(r"(wte|wpe|ln_f|h\.\d+\.(ln_1|ln_2|attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj))\.(weight|bias)$")
    return convert_with(drop=lambda n: not known.match(n))(tensors)


@wrong(CONVERT, "is dropped without a word")
def drops_every_head(tensors):
    return convert_with(drop=lambda n: n.endswith(MASKS) or "lm_head" in n)(tensors)


@wrong(CONVERT, "characters are stripped")
def strips_characters(tensors):
    return convert_with(rename=lambda n: n.lstrip("transformer."))(tensors)


@wrong(CONVERT, "transformer.h.0.conv.weight is dropped")
def drops_by_number_of_axes(tensors):
    return {n: t for n, t in convert_with(drop=lambda n: n == "lm_head.weight" or n.endswith("masked_bias"))(tensors).items() if t.dim() < 3}


@wrong(CONVERT, "draft.lm_head.weight becomes draft.wte.weight")
def renames_the_head(tensors):
    return convert_with(rename=lambda n: n.removeprefix("transformer.").replace("lm_head", "wte"), drop=lambda n: n.endswith(MASKS))(tensors)


@wrong(CONVERT, "h.1.attn.bias is kept")
def drops_the_mask_of_the_first_block(tensors):
    return convert_with(drop=lambda n: n in ("h.0.attn.bias", "h.0.attn.masked_bias", "lm_head.weight"))(tensors)


@wrong(CONVERT, "h.0.attn.c_attn.weight has the right shape and wrong values")
def q_and_k_change_places(tensors):
    def turn(n, t):
        q, k, v = t.T.chunk(3) if n.endswith("c_attn.weight") else (None, None, None)
        return torch.cat([k, q, v]) if q is not None else t.T if n.endswith(FOUR) else t

    return convert_with(turn=turn)(tensors)


@wrong(CONVERT, "is not transposed")
def transposes_twice(tensors):
    return convert_with(turn=lambda n, t: t.T.T if n.endswith(FOUR) else t)(tensors)


@wrong(CONVERT, "is transposed: only the four")
def transposes_unknown_matrices(tensors):
    return convert_with(turn=lambda n, t: t.T if t.dim() == 2 and n not in ("wte.weight", "wpe.weight") else t)(tensors)


@wrong(CONVERT, "None")
def forgets_return(tensors):
    convert_with()(tensors)


@wrong(CONVERT, "type list")
def gives_pairs(tensors):
    return list(convert_with()(tensors).items())


@wrong(CONVERT, "type ndarray")
def gives_arrays(tensors):
    return {name: tensor.numpy() for name, tensor in convert_with()(tensors).items()}


@wrong(CONVERT, "the dict you are given is changed")
def renames_in_place(tensors):
    for name in list(tensors):
        tensor = tensors.pop(name)
        name = name.removeprefix("transformer.")
        if not (name.endswith(MASKS) or name == "lm_head.weight"):
            tensors[name] = tensor.T if name.endswith(FOUR) else tensor
    return tensors


@wrong(CONVERT, "the dict you are given is changed")
def removes_the_head_in_place(tensors):
    tensors.pop("lm_head.weight", None)
    return convert_with()(tensors)


@wrong(CONVERT, "is changed in place")
def turns_in_place(tensors):
    return convert_with(turn=lambda n, t: t.t_() if n.endswith(FOUR) else t)(tensors)


@right(CONVERT)
def contiguous_copies(tensors):
    return convert_with(turn=lambda n, t: t.transpose(0, 1).contiguous() if n.endswith(FOUR) else t.clone())(tensors)


@right(CONVERT)
def as_a_comprehension(tensors):
    short = {n[12:] if n.startswith("transformer.") else n: t for n, t in tensors.items()}
    return {n: t.T if n.endswith(FOUR) else t for n, t in short.items() if not n.endswith(MASKS) and n != "lm_head.weight"}


@right(CONVERT)
def by_parts_of_the_name(tensors):
    state = {}
    for name, tensor in tensors.items():
        parts = name.split(".")
        if parts[0] == "transformer":
            parts = parts[1:]
        if parts == ["lm_head", "weight"] or parts[-2:] in (["attn", "bias"], ["attn", "masked_bias"]):
            continue
        conv = len(parts) > 2 and parts[-2] in ("c_attn", "c_proj", "c_fc") and parts[-1] == "weight"
        state[".".join(parts)] = tensor.permute(1, 0) if conv else tensor
    return state


@right(CONVERT)
def transposes_vectors_too(tensors):
    """A vector's .T is the vector."""
    return convert_with(turn=lambda n, t: t.T if n.startswith("h.") and re.search("c_(attn|proj|fc)", n) else t)(tensors)


@right(CONVERT)
def as_parameters(tensors):
    return {n: torch.nn.Parameter(t) for n, t in convert_with()(tensors).items()}


@right(CONVERT)
def with_einsum(tensors):
    return convert_with(turn=lambda n, t: torch.einsum("io->oi", t) if n.endswith(FOUR) else t)(tensors)


@right(CONVERT)
def strips_with_a_pattern(tensors):
    return convert_with(rename=lambda n: re.sub(r"^transformer\.", "", n), drop=lambda n: bool(re.search(r"\.attn\.(masked_)?bias$", n)) or n == "lm_head.weight")(tensors)


# --- config_of -----------------------------------------------------------------------------------------


def counted(state):
    return 1 + max(int(n.split(".")[1]) for n in state if n.startswith("h."))


def config_with(state, settings, **changes):
    config = good.config_of(state, settings)
    for field, value in changes.items():
        setattr(config, field, value)
    return config


@wrong(CONFIG, "vocab_size is 50257, expected 29: that is GPT-2's own")
def default_vocabulary(state, settings):
    return config_with(state, settings, vocab_size=settings.get("vocab_size", 50257))


@wrong(CONFIG, "n_ctx is 1024, expected 11: that is GPT-2's own")
def default_context(state, settings):
    return config_with(state, settings, n_ctx=settings.get("n_ctx", 1024))


@wrong(CONFIG, "n_layer is 12, expected 3: that is GPT-2 small's")
def default_layers(state, settings):
    return config_with(state, settings, n_layer=settings.get("n_layer", 12))


@wrong(CONFIG, "n_head is 12, expected 4: that is GPT-2 small's")
def default_heads(state, settings):
    return config_with(state, settings, n_head=12)


@wrong(CONFIG, "n_head is 12, expected 2: that is GPT-2 small's, with 768")
def default_heads_without_settings(state, settings):
    return config_with(state, settings, n_head=settings.get("n_head", 12))


@wrong(CONFIG, "KeyError: 'n_head'")
def settings_always_there(state, settings):
    return config_with(state, {"n_head": 1, **settings}, n_head=settings["n_head"])


@wrong(CONFIG, "KeyError: 'n_positions'")
def context_from_settings(state, settings):
    return config_with(state, settings, n_ctx=settings["n_positions"])


@wrong(CONFIG, "n_embd is 768, expected 24")
def default_width(state, settings):
    return config_with(state, settings, n_embd=settings.get("n_embd", 768))


@wrong(CONFIG, "settings say how many")
def ignores_settings(state, settings):
    n_embd = state["wte.weight"].shape[1]
    return config_with(state, settings, n_head=max(1, n_embd // 64))


@wrong(CONFIG, "n_head is 2, expected 4: that is n_embd // 64, and settings")
def ignores_settings_where_64_divides(state, settings):
    n_embd = state["wte.weight"].shape[1]
    return config_with(state, settings, n_head=n_embd // 64 if n_embd % 64 == 0 else settings["n_head"])


@wrong(CONFIG, "layers count from 0")
def largest_layer_number(state, settings):
    return config_with(state, settings, n_layer=counted(state) - 1)


@wrong(CONFIG, "one too many")
def one_layer_too_many(state, settings):
    return config_with(state, settings, n_layer=counted(state) + 1)


@wrong(CONFIG, "number of tensors in the blocks")
def counts_tensors(state, settings):
    return config_with(state, settings, n_layer=sum(n.startswith("h.") for n in state))


@wrong(CONFIG, "number of all tensors")
def counts_everything(state, settings):
    return config_with(state, settings, n_layer=len(state))


@wrong(CONFIG, "compared as text")
def compares_numbers_as_text(state, settings):
    return config_with(state, settings, n_layer=1 + int(max(n.split(".")[1] for n in state if n.startswith("h."))))


@wrong(CONFIG, "n_layer is 10, expected 13")
def reads_one_digit(state, settings):
    return config_with(state, settings, n_layer=1 + max(int(n[2]) for n in state if n.startswith("h.")))


@wrong(CONFIG, "no tensor and no setting says so")
def takes_the_last_name(state, settings):
    return config_with(state, settings, n_layer=1 + int([n for n in state if n.startswith("h.")][-1].split(".")[1]))


@wrong(CONFIG, "wte.weight is (vocab_size, n_embd)")
def wte_the_other_way(state, settings):
    n_embd, vocab_size = state["wte.weight"].shape
    return config_with(state, settings, n_embd=n_embd, vocab_size=vocab_size)


@wrong(CONFIG, "wpe.weight is (n_ctx, n_embd)")
def context_from_the_width(state, settings):
    return config_with(state, settings, n_ctx=state["wpe.weight"].shape[1])


@wrong(CONFIG, "positions are rows of wpe")
def context_from_wte(state, settings):
    return config_with(state, settings, n_ctx=len(state["wte.weight"]))


@wrong(CONFIG, "that is n_layer")
def fields_in_another_order(state, settings):
    c = good.config_of(state, settings)
    return GPTConfig(c.vocab_size, c.n_layer, c.n_ctx, c.n_head, c.n_embd)


@wrong(CONFIG, "your code returns n_head = 1")
def rounds_down(state, settings):
    n_embd = state["wte.weight"].shape[1]
    return good.config_of(state, {"n_head": max(1, n_embd // 64), **settings})


@wrong(CONFIG, "n_head is 64, expected 2: 64 is the width of a head")
def sixty_four_heads(state, settings):
    n_embd = state["wte.weight"].shape[1]
    return good.config_of(state, {"n_head": 64 if n_embd % 64 == 0 else 1, **settings})


@wrong(CONFIG, "needs a ValueError, in one sentence. Your code raises AssertionError")
def asserts(state, settings):
    assert "n_head" in settings or state["wte.weight"].shape[1] % 64 == 0, "n_head"
    return good.config_of(state, settings)


@wrong(CONFIG, "The ValueError says nothing of n_head")
def says_nothing(state, settings):
    if "n_head" not in settings and state["wte.weight"].shape[1] % 64 != 0:
        raise ValueError("bad file")
    return good.config_of(state, settings)


@wrong(CONFIG, "activation_function = 'relu' are accepted")
def any_activation(state, settings):
    return good.config_of(state, {**settings, "activation_function": "gelu_new"})


@wrong(CONFIG, "activation_function = 'gelu' are accepted")
def any_kind_of_gelu(state, settings):
    exact = settings.get("activation_function") == "gelu"
    return good.config_of(state, {**settings, "activation_function": "gelu_new"} if exact else settings)


@wrong(CONFIG, "layer_norm_epsilon = 1e-06 are accepted")
def any_epsilon(state, settings):
    return good.config_of(state, {**settings, "layer_norm_epsilon": 1e-5})


@wrong(CONFIG, "tie_word_embeddings = False are accepted")
def any_head(state, settings):
    return good.config_of(state, {**settings, "tie_word_embeddings": True})


@wrong(CONFIG, "which names layer_norm_epsilon. The ValueError says nothing of layer_norm_epsilon")
def names_the_wrong_setting(state, settings):
    if settings.get("layer_norm_epsilon", 1e-5) != 1e-5:
        raise ValueError("our GPT has another activation_function")
    return good.config_of(state, settings)


@wrong(CONFIG, "your code raises ValueError")
def refuses_silence_and_null(state, settings):
    if any(settings.get(name) is None for name in ("activation_function", "layer_norm_epsilon")):
        raise ValueError("settings say nothing of activation_function")
    return good.config_of(state, settings)


@wrong(CONFIG, "your code returns None")
def prints_the_problem(state, settings):
    try:
        return good.config_of(state, settings)
    except ValueError:
        return None


@wrong(CONFIG, "scale_attn_weights = False are accepted")
def any_scale(state, settings):
    return good.config_of(state, {n: v for n, v in settings.items() if not n.startswith("scale")})


@wrong(CONFIG, "that is the width of a head")
def width_of_a_head(state, settings):
    config = good.config_of(state, settings)
    return config_with(state, settings, n_head=config.n_embd // config.n_head)


@wrong(CONFIG, "Your code raises KeyError instead")
def another_error_for_other_models(state, settings):
    try:
        return good.config_of(state, settings)
    except ValueError as error:
        raise KeyError(str(error)) from None


@wrong(CONFIG, "is of type dict")
def gives_a_dict(state, settings):
    return vars(good.config_of(state, settings))


@wrong(CONFIG, "is None")
def config_without_return(state, settings):
    good.config_of(state, settings)


@wrong(CONFIG, "vocab_size should be an int")
def gives_tensors(state, settings):
    return config_with(state, settings, vocab_size=torch.tensor(state["wte.weight"].shape[0]))


@wrong(CONFIG, "n_head should be an int and is 4.0")
def divides_to_float(state, settings):
    return config_with(state, settings, n_head=settings.get("n_head", 64) / 1)


@wrong(CONFIG, "settings you are given are changed")
def pops_n_head(state, settings):
    n_head = settings.pop("n_head", None)
    return good.config_of(state, settings if n_head is None else {**settings, "n_head": n_head})


@wrong(CONFIG, "state dict you are given is changed")
def pops_wte(state, settings):
    config = good.config_of(state, settings)
    state.pop("wte.weight")
    return config


@right(CONFIG)
def by_a_set_of_numbers(state, settings):
    good.config_of(state, settings)
    C = state["ln_f.bias"].numel()
    numbers = {n.split(".")[1] for n in state if n.startswith("h.")}
    return GPTConfig(
        n_embd=C, n_head=settings["n_head"] if "n_head" in settings else C // 64, n_layer=len(numbers),
        vocab_size=state["wte.weight"].size(0), n_ctx=state["wpe.weight"].size(0),
    )


@right(CONFIG)
def by_dividing_the_number_of_tensors(state, settings):
    return config_with(state, settings, n_layer=(len(state) - 4) // 12)


@right(CONFIG)
def by_counting_one_tensor(state, settings):
    return config_with(state, settings, n_layer=sum(n.endswith("attn.c_attn.weight") for n in state))


@right(CONFIG)
def by_asking_for_each_layer(state, settings):
    n_layer = 0
    while f"h.{n_layer}.ln_1.weight" in state:
        n_layer += 1
    return config_with(state, settings, n_layer=n_layer)


@right(CONFIG)
def prefers_settings_where_they_speak(state, settings):
    return config_with(
        state, settings, vocab_size=settings.get("vocab_size", len(state["wte.weight"])), n_layer=settings.get("n_layer", counted(state)),
        n_ctx=settings.get("n_positions") or settings.get("n_ctx") or len(state["wpe.weight"]),
    )


@right(CONFIG)
def one_if_for_each_setting(state, settings):
    if settings.get("activation_function", "gelu_new") not in ("gelu_new", "gelu_pytorch_tanh"):
        raise ValueError(f"activation_function {settings['activation_function']} is not ours")
    if abs(settings.get("layer_norm_epsilon", 1e-5) - 1e-5) > 1e-9:
        raise ValueError("layer_norm_epsilon must be 1e-5")
    return good.config_of(state, settings)


# --- load_gpt2 -----------------------------------------------------------------------------------------


def file_of(path):
    path = Path(path)
    return path / "model.safetensors" if path.is_dir() else path


def settings_of(path):
    config = file_of(path).parent / "config.json"
    return json.loads(config.read_text()) if config.exists() else {}


def load_with(path, convert=good.convert, config_of=good.config_of, fill=lambda model, state: model.load_state_dict(state), read=load_file, file_of=file_of):
    file = file_of(path)
    if not file.exists():
        raise FileNotFoundError(f"{file} does not exist")
    state = convert(read(file))
    if "wte.weight" not in state:
        raise ValueError("no wte.weight")
    model = GPT(config_of(state, settings_of(path)))
    fill(model, state)
    return model


@wrong(LOAD, "attn.c_proj is not transposed. It is square")
def loads_c_proj_as_stored(path):
    return load_with(path, convert=leaves_c_proj_of_attention)


@wrong(LOAD, "attn.c_proj is not transposed in the first block")
def loads_first_c_proj_as_stored(path):
    return load_with(path, convert=convert_with(turn=lambda n, t: t.T if n.endswith(FOUR) and n != "h.0.attn.c_proj.weight" else t))


@wrong(LOAD, "c_attn.weight has shape (24, 72) in the dict and (72, 24) in the model")
def loads_c_attn_as_stored(path):
    return load_with(path, convert=leaves_c_attn)


@wrong(LOAD, "wte.weight has shape")
def loads_everything_turned(path):
    def config_of(state, settings):
        return good.config_of({**state, "wte.weight": state["wte.weight"].T, "wpe.weight": state["wpe.weight"].T}, settings)

    return load_with(path, convert=transposes_everything, config_of=config_of)


@wrong(LOAD, "the path of a file given as str")
def takes_a_str_for_a_folder(path):
    return good.load_gpt2(path + "/model.safetensors" if isinstance(path, str) else path)


@wrong(LOAD, "no such place")
def loads_under_other_names(path):
    return load_with(path, convert=convert_with(rename=lambda n: n.removeprefix("transformer.").replace("ln_", "norm_")))


@wrong(LOAD, "two loads of one file give two different models")
def strict_is_false_and_names_are_wrong(path):
    return load_with(
        path, convert=convert_with(rename=lambda n: n.removeprefix("transformer.").replace("mlp.", "ffn."), turn=lambda n, t: t.T if n.endswith((*FOUR, "ffn.c_fc.weight", "ffn.c_proj.weight")) else t),
        fill=lambda model, state: model.load_state_dict(state, strict=False),
    )


@wrong(LOAD, "two loads of one file give two different models")
def never_loads(path):
    return load_with(path, fill=lambda model, state: None)


@wrong(LOAD, "two loads of one file give two different models")
def loads_into_a_copy(path):
    def fill(model, state):
        for name, p in model.state_dict().items():
            p = state[name]

    return load_with(path, fill=fill)


@wrong(LOAD, "n_head = 12, and the checkpoint has 4 heads")
def twelve_heads(path):
    return load_with(path, config_of=lambda state, settings: config_with(state, settings, n_head=12))


@wrong(LOAD, "n_head = 1, and the checkpoint has 4")
def one_head(path):
    return load_with(path, config_of=lambda state, settings: config_with(state, settings, n_head=1))


@wrong(LOAD, "n_head = 12, and the checkpoint has 3 heads")
def twelve_heads_without_config(path):
    return load_with(path, config_of=lambda state, settings: config_with(state, settings, n_head=settings.get("n_head", 12)))


@wrong(LOAD, "n_head = 3, and the checkpoint has 6 heads")
def config_in_folders_only(path):
    settings = settings_of(path) if Path(path).is_dir() or not (Path(path).parent / "config.json").exists() else {"n_head": 3}
    return load_with(path, config_of=lambda state, _: good.config_of(state, settings))


@wrong(LOAD, "without a config.json beside it stops with FileNotFoundError")
def config_always_read(path):
    json.loads((file_of(path).parent / "config.json").read_text())
    return load_with(path)


@wrong(LOAD, "weights.safetensors")
def any_file_of_the_folder(path):
    return load_with(path, file_of=lambda p: next(iter(sorted(file_of(p).parent.glob("*.safetensors"))), file_of(p)) if file_of(p).exists() else file_of(p))


@wrong(LOAD, "model.safetensors")
def folders_only(path):
    return load_with(path, file_of=lambda p: Path(p) / "model.safetensors" if Path(p).exists() else Path(p))


@wrong(LOAD, "finds no place for h.0.attn.bias")
def loads_masks(path):
    return load_with(path, convert=keeps_the_masks)


@wrong(LOAD, "finds no place for lm_head.weight")
def loads_the_head(path):
    return load_with(path, convert=keeps_the_head)


@wrong(LOAD, "a path given as str stops with AttributeError")
def paths_only(path):
    path.is_dir()
    return load_with(path)


@wrong(LOAD, "finds no place for h.10.")
def ten_layers_at_most(path):
    return load_with(path, config_of=lambda state, settings: config_with(state, settings, n_layer=min(10, counted(state))))


@wrong(LOAD, "dtype torch.float16")
def keeps_half(path):
    return load_with(path, fill=lambda model, state: model.load_state_dict(state, assign=True))


@wrong(LOAD, "dtype torch.float64")
def in_double(path):
    return load_with(path).double()


@wrong(LOAD, "dtype torch.float16")
def model_in_half_for_half_files(path):
    model = load_with(path)
    return model.half() if next(iter(load_file(file_of(path)).values())).dtype == torch.float16 else model


@wrong(LOAD, "does not require a gradient")
def frozen(path):
    return load_with(path).requires_grad_(False)


@wrong(LOAD, "is no parameter of the model any more")
def weights_as_plain_tensors(path):
    def fill(model, state):
        model.load_state_dict(state)
        weight = model.ln_f.weight
        del model.ln_f.weight
        model.ln_f.weight = weight.data

    return load_with(path, fill=fill)


KEPT = {}


@wrong(LOAD, "two loads share")
def remembers(path):
    if path not in KEPT:
        KEPT[path] = load_with(path)
    return KEPT[path]


@wrong(LOAD, "a folder that does not exist needs a FileNotFoundError")
def another_error_for_a_missing_path(path):
    if not file_of(path).exists():
        raise ValueError(f"{path} is not there")
    return load_with(path)


@wrong(LOAD, "and your code returns a model")
def small_model_for_a_missing_path(path):
    try:
        return load_with(path)
    except FileNotFoundError:
        return GPT(GPTConfig(5, 4, 1, 1, 4))


@wrong(LOAD, "Your code raises KeyError instead: 'wte.weight'")
def key_error_for_other_models(path):
    state = good.convert(load_file(file_of(path)))
    state["wte.weight"]
    return load_with(path)


@wrong(LOAD, "a file without wte.weight is no GPT-2, and your code returns a model")
def default_model_for_other_models(path):
    try:
        return load_with(path)
    except ValueError:
        return GPT(GPTConfig(5, 4, 1, 1, 4))


@wrong(LOAD, "h.1.mlp.c_fc.bias is missing in the file: a model comes back")
def not_strict(path):
    return load_with(path, fill=lambda model, state: model.load_state_dict(state, strict=False))


@wrong(LOAD, "h.1.mlp.c_fc.bias is missing in the file: a model comes back")
def loops_over_the_file(path):
    def fill(model, state):
        mine = dict(model.named_parameters())
        with torch.no_grad():
            for name, tensor in state.items():
                assert mine[name].shape == tensor.shape, name
                mine[name].copy_(tensor)

    return load_with(path, fill=fill)


@wrong(LOAD, "h.1.mlp.c_fc.bias is missing in the file: a model comes back")
def zeros_for_what_is_missing(path):
    def fill(model, state):
        zeros = {n: torch.zeros_like(p) for n, p in model.state_dict().items()}
        model.load_state_dict({**zeros, **state})

    return load_with(path, fill=fill)


@wrong(LOAD, "the error does not name it")
def hides_the_error(path):
    try:
        return load_with(path)
    except RuntimeError:
        raise ValueError("the file does not fit") from None


@wrong(LOAD, "the file holds h.0.attn.rotary.weight, and our GPT has no place for it: it is dropped")
def loops_over_the_model(path):
    def fill(model, state):
        model.load_state_dict({name: state[name] for name in model.state_dict()})

    return load_with(path, fill=fill)


@wrong(LOAD, "it is dropped without a word")
def only_missing_names_stop(path):
    def fill(model, state):
        missing, _ = model.load_state_dict(state, strict=False)
        if missing:
            raise ValueError(f"{missing} missing")

    return load_with(path, fill=fill)


@wrong(LOAD, "h.1.ln_1.bias has shape (1,)")
def copies_and_broadcasts(path):
    def fill(model, state):
        mine = dict(model.named_parameters())
        assert set(mine) == set(state), set(mine) ^ set(state)
        with torch.no_grad():
            for name, p in mine.items():
                p.copy_(state[name])

    return load_with(path, fill=fill)


@wrong(LOAD, "h.1.mlp.c_fc.weight has shape (96, 24)")
def turns_until_it_fits(path):
    def fill(model, state):
        for name, p in model.state_dict().items():
            if name in state and state[name].T.shape == p.shape and state[name].dim() == 2 and state[name].shape != p.shape:
                state[name] = state[name].T
        model.load_state_dict(state)

    return load_with(path, fill=fill)


@wrong(LOAD, "look at: h.0.ln_1.weight of the model")
def exchanges_the_norms(path):
    def fill(model, state):
        model.load_state_dict({n.replace("ln_1", "ln_9").replace("ln_2", "ln_1").replace("ln_9", "ln_2"): t for n, t in state.items()})

    return load_with(path, fill=fill)


@wrong(LOAD, "look at: h.0.attn.c_proj.bias of the model")
def leaves_biases_at_zero(path):
    model = load_with(path)
    for block in model.h:
        block.attn.c_proj.bias.data.zero_()
    return model


@wrong(LOAD, "look at: h.2.")
def blocks_in_the_order_of_text(path):
    model = load_with(path)
    model.h = torch.nn.ModuleList([model.h[i] for i in sorted(range(len(model.h)), key=str)])
    return model


@wrong(LOAD, "wte.weight of the model")
def through_half(path):
    return load_with(path).half().float()


@wrong(LOAD, "the model cannot be trained")
def in_inference_mode(path):
    with torch.inference_mode():
        return load_with(path)


@wrong(LOAD, "the model cannot be trained")
def switches_gradients_off(path):
    torch.set_grad_enabled(False)
    return load_with(path)


@wrong(LOAD, "is missing in the file: a model comes back")
def second_try_is_not_strict(path):
    def fill(model, state):
        try:
            model.load_state_dict(state)
        except RuntimeError:
            model.load_state_dict(state, strict=False)

    return load_with(path, fill=fill)


@wrong(LOAD, "a config.json with n_head must say")
def config_of_the_working_folder(path):
    return load_with(path, config_of=lambda state, _: good.config_of(state, json.loads(Path("config.json").read_text()) if Path("config.json").exists() else {}))


@wrong(LOAD, "a folder without model.safetensors needs a FileNotFoundError")
def any_file_if_there_is_no_other(path):
    return load_with(path, file_of=lambda p: next(iter(Path(p).glob("*.safetensors"))) if Path(p).is_dir() else Path(p))


@wrong(LOAD, "is of type tuple")
def gives_model_and_config(path):
    model = load_with(path)
    return model, model.config


@wrong(LOAD, "a dict of tensors")
def gives_the_state_dict(path):
    return load_with(path).state_dict()


@wrong(LOAD, "what load_state_dict returns")
def gives_what_load_state_dict_returns(path):
    return load_with(path).load_state_dict(good.convert(load_file(file_of(path))))


@wrong(LOAD, "is None")
def load_without_return(path):
    load_with(path)


@wrong(LOAD, "the class GPT")
def gives_the_class(path):
    load_with(path)
    return GPT


@wrong(LOAD, "of transformers")
def gives_the_model_of_transformers(path):
    from transformers import GPT2LMHeadModel

    return GPT2LMHeadModel.from_pretrained(path)


@right(LOAD)
def tensor_by_tensor(path):
    def read(file):
        with safe_open(str(file), framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}

    return load_with(path, read=read)


@right(LOAD)
def from_bytes(path):
    return load_with(path, read=lambda file: load(file.read_bytes()))


@right(LOAD)
def float32_first_then_assigned(path):
    def fill(model, state):
        model.load_state_dict({n: t.float() for n, t in state.items()}, assign=True)

    return load_with(path, fill=fill)


@right(LOAD)
def copied_by_hand(path):
    def fill(model, state):
        mine = dict(model.named_parameters())
        if set(mine) != set(state):
            raise KeyError(f"missing {sorted(set(mine) - set(state))}, too many {sorted(set(state) - set(mine))}")
        for name, p in mine.items():
            if p.shape != state[name].shape:
                raise ValueError(f"{name}: {tuple(state[name].shape)}")
            p.data.copy_(state[name])

    return load_with(path, fill=fill)


@right(LOAD)
def made_on_the_meta_device(path):
    """No random start at all: parameters without numbers, replaced by the file's."""
    state = good.convert(load_file(file_of(path))) if file_of(path).exists() else {}
    if not state or "wte.weight" not in state:
        return load_with(path)
    with torch.device("meta"):
        model = GPT(good.config_of(state, settings_of(path)))
    model.load_state_dict({n: t.float().contiguous() for n, t in state.items()}, assign=True)
    return model


@right(LOAD)
def from_numpy(path):
    from safetensors.numpy import load_file as load_arrays

    return load_with(path, read=lambda file: {n: torch.from_numpy(a) for n, a in load_arrays(file).items()})


@right(LOAD)
def without_gradients_while_loading(path):
    with torch.no_grad():
        return load_with(path)


@right(LOAD)
def checks_names_first(path):
    def fill(model, state):
        wrong = model.state_dict().keys() ^ state.keys()
        if wrong:
            raise KeyError(f"these names do not fit: {sorted(wrong)}")
        model.load_state_dict(state)

    return load_with(path, fill=fill)


@right(LOAD)
def in_eval_mode(path):
    return load_with(path).eval()


@right(LOAD)
@functools.wraps(good.load_gpt2)
def opened_by_the_library(path):
    """The missing file is reported by safetensors itself."""
    file = file_of(path)
    state = good.convert(load_file(file))
    if not state.keys() & {"wte.weight"}:
        raise ValueError("this file has no wte.weight")
    model = GPT(good.config_of(state, settings_of(path)))
    model.load_state_dict(state)
    return model
