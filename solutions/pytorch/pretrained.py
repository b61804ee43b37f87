"""GPT-2 weights from a Hugging Face folder or a .safetensors file."""
import json
from pathlib import Path

from safetensors.torch import load_file

from .gpt import GPT, GPTConfig


def convert(tensors):
    """Tensors of a GPT-2 checkpoint under our names and in our orientation.

    tensors: {name: tensor}, with or without "transformer." before each name; left unchanged.
    Returns {name: tensor} for GPT.load_state_dict: the weights of the four Conv1D of a block as (out, in), no
    causal masks, no second copy of wte. Names it does not know pass, so that loading can complain about them.
    """
    transposed = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
    buffers = (".attn.bias", ".attn.masked_bias")             # the causal mask, not weights
    state = {}
    for name, tensor in tensors.items():
        name = name.removeprefix("transformer.")
        if name.endswith(buffers) or name == "lm_head.weight":   # lm_head is wte a second time
            continue
        if name.endswith(transposed):
            tensor = tensor.T                                 # Conv1D stores (in, out)
        state[name] = tensor
    return state


def config_of(state, settings):
    """GPTConfig of a converted state dict: all sizes from the shapes, n_head from settings (config.json as a dict).

    Without n_head in settings the heads are 64 wide, as in every GPT-2.
    ValueError if 64 does not divide n_embd then, or if settings ask for something that our GPT does not compute.
    """
    vocab_size, n_embd = state["wte.weight"].shape
    n_ctx = state["wpe.weight"].shape[0]
    n_layer = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("h."))
    ours = {
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
        "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
    }
    for name, value in ours.items():
        if settings.get(name, value) != value:
            raise ValueError(f"the checkpoint asks for {name} = {settings[name]}: our GPT has {value}")
    if "n_head" not in settings and n_embd % 64 != 0:
        raise ValueError(f"n_embd = {n_embd} is no multiple of 64: a config.json with n_head must say how many heads there are")
    n_head = settings.get("n_head", n_embd // 64)
    return GPTConfig(vocab_size, n_ctx, n_layer, n_head, n_embd)


def load_gpt2(path):
    """A GPT with the weights of a folder that holds model.safetensors, or of a .safetensors file.

    A config.json beside the file gives n_head. The parameters are float32 whatever the file holds.
    FileNotFoundError if there is no such file, ValueError if it holds no wte.weight, and an error that names the
    tensor if one is missing, too many, or of another shape.
    """
    path = Path(path)
    file = path / "model.safetensors" if path.is_dir() else path
    if not file.exists():
        raise FileNotFoundError(f"{file} does not exist: load_gpt2 needs a folder with model.safetensors, or such a file")
    described = file.parent / "config.json"
    settings = json.loads(described.read_text()) if described.exists() else {}
    state = convert(load_file(file))
    if "wte.weight" not in state:
        raise ValueError(f"{file} is no GPT-2 checkpoint: it holds no wte.weight")
    model = GPT(config_of(state, settings))
    model.load_state_dict(state)                              # strict: a missing or extra name is an error
    return model
