"""GPT-2 weights from a Hugging Face folder or a .safetensors file."""
import json
from pathlib import Path

from safetensors.torch import load_file

from .gpt import GPT, GPTConfig

TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
BUFFERS = (".attn.bias", ".attn.masked_bias")                 # the causal mask, not weights
TIED = "lm_head.weight"                                       # wte a second time


def convert(tensors):
    """Tensors of a GPT-2 checkpoint under our names and in our orientation."""
    state = {}
    for name, tensor in tensors.items():
        name = name.removeprefix("transformer.")
        if name.endswith(BUFFERS) or name == TIED:
            continue
        if name.endswith(TRANSPOSED):
            tensor = tensor.T                                 # Conv1D stores (in, out)
        state[name] = tensor
    return state


def config_of(state, settings):
    """Sizes from the tensors; only n_head leaves no trace in them (GPT-2's heads are all 64 wide)."""
    vocab_size, n_embd = state["wte.weight"].shape
    n_ctx = state["wpe.weight"].shape[0]
    n_layer = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("h."))
    n_head = settings.get("n_head", n_embd // 64)
    return GPTConfig(vocab_size, n_ctx, n_layer, n_head, n_embd)


def load_gpt2(path):
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
