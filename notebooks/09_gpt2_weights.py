# %% [markdown]
# # 09 GPT-2's weights
#
# Your GPT has the names, the order and the constants of GPT-2. Whether it *is* GPT-2 has so far been a claim. There is
# one test that leaves no room: load weights that somebody else trained, and compare the logits with those of somebody
# else's code, number by number. A model that passes has the same attention, the same GELU, the same LayerNorm.
#
# Loading weights is also a craft of its own. A checkpoint is a dictionary of tensors, and nothing in it says what the
# tensors mean. Some mistakes stop with an error. The others load, run, and are wrong. This lesson is about telling
# the two kinds apart, and the port to another framework in lesson 10 and after will need it again.
#
# In this lesson you write
#
# 1. `convert`: the checkpoint's names and orientation into yours,
# 2. `config_of`: the sizes of the model, read off the shapes,
# 3. `load_gpt2`: from a path to a model that computes what GPT-2 computes.
#
# Time: about 60 minutes. You need `linear` of lesson 02, `GPT` of lesson 06 and `sample` of lesson 08; where you have
# not passed them, the reference stands in.
#
# Everything runs offline, on a small checkpoint of GPT-2's form that the lesson makes. If you have the real GPT-2, the
# last section uses it.
#
# Letters for shapes, in all lessons: B sequences in a batch, T positions, C channels (`n_embd`), V tokens in the vocabulary.

# %%
import json
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

warnings.filterwarnings("ignore", message="IProgress")   # transformers looks for progress bars
import transformers
from huggingface_hub import try_to_load_from_cache
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

from course import check, exercise, piece, setup, show, timing

setup()
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
linear = piece("pytorch.primitives.linear")
GPT = piece("pytorch.gpt.GPT")
sample = piece("pytorch.sampling.sample")

# %% [markdown]
# The sizes of a model travel in a `GPTConfig`, as in lesson 06. Here they come from a file, and so it also refuses heads
# that do not divide the channels.

# %%
@dataclass
class GPTConfig:
    """Sizes of a model; the defaults are GPT-2 small's."""

    vocab_size: int = 50257
    n_ctx: int = 1024
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768

    def __post_init__(self):
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd = {self.n_embd} is no multiple of n_head = {self.n_head}")


# %% [markdown]
# ## 1. What a checkpoint is
#
# OpenAI published GPT-2 in 2019 as TensorFlow variables, with the code that reads them (openai/gpt-2, `src/model.py`).
# Hugging Face translated them for PyTorch, and `transformers` has written GPT-2 checkpoints in that form ever since: a
# folder with `config.json`, which describes the model, and `model.safetensors`, which holds the tensors.
#
# The next cell makes such a folder with `transformers` itself. The model is small: 3 layers, 4 heads, 48 channels. Its
# numbers are random, all of them: a fresh model has biases of 0 and LayerNorm weights of 1, and would hide every
# mistake that touches those.

# %%
def randomise(model):
    """Random numbers for every parameter; LayerNorm weights around 1, all others around 0."""
    generator = torch.Generator().manual_seed(2019)
    around_one = ("ln_1.weight", "ln_2.weight", "ln_f.weight")
    with torch.no_grad():
        for name, p in model.named_parameters():
            centre = 1.0 if name.endswith(around_one) else 0.0
            p.copy_(centre + 0.15 * torch.randn(p.shape, generator=generator))


small = GPT2Config(
    vocab_size=97, n_positions=32, n_layer=3, n_head=4, n_embd=48,
    bos_token_id=0, eos_token_id=96,
)
theirs = GPT2LMHeadModel(small).eval()
randomise(theirs)
place = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
folder = Path(place.name)
theirs.save_pretrained(folder)
print("files:", sorted(file.name for file in folder.iterdir()))

# %% [markdown]
# A `.safetensors` file is made so that it can be read without running anything from it (a pickle can execute code).
# First come 8 bytes, the length of the header; then the header, which is JSON; then the bare numbers of all tensors, one
# after the other. The format is simple enough to open by hand.

# %%
with open(folder / "model.safetensors", "rb") as file:
    length = int.from_bytes(file.read(8), "little")
    header = json.loads(file.read(length))
del header["__metadata__"]
print(len(header), "tensors. The first block, and what belongs to no block:")
rows = [
    (name, entry["dtype"], tuple(entry["shape"]))
    for name, entry in header.items()
    if ".h.0." in name or ".h." not in name
]
show.table(rows, ("name", "dtype", "shape"))

# %% [markdown]
# You know these names: they are GPT-2's, and you have used them since lesson 04. Three things stand between this
# dictionary and `load_state_dict`.
#
# ## 2. Names and orientation
#
# **The prefix.** `transformers` writes `transformer.wte.weight`, because its model sits inside a wrapper with the head.
# The file of GPT-2 on the Hub was saved from inside the wrapper, and has no prefix. Both forms are around.
#
# **What is no weight.** Older versions stored the causal mask with each block, as `h.0.attn.bias` of shape
# (1, 1, n_ctx, n_ctx), and the number that fills hidden scores as `h.0.attn.masked_bias`. Some files also hold
# `lm_head.weight`: the head is tied to the embedding, so this is `wte.weight` a second time. Your model has no place for
# any of them. Beware of the name: `h.0.attn.bias` is a mask, `h.0.attn.c_attn.bias` is a weight.
#
# **The orientation.** OpenAI's code calls its linear layer `conv1d` and stores its weight as (1, in, out), a convolution of
# width 1. Hugging Face dropped the 1, kept the order (in, out) and called its layer `Conv1D`:
#
# $$y = xW + b \quad\text{with } W \text{ of shape (in, out)}$$
#
# PyTorch's convention, and yours since lesson 02, is the other one:
#
# $$y = xW^\top + b \quad\text{with } W \text{ of shape (out, in)}$$
#
# The next cell shows that the two differ by a transpose and by nothing else.

# %%
torch.manual_seed(0)
conv = Conv1D(nf=6, nx=4)                                              # 4 channels in, 6 out
x = torch.randn(5, 4)                                                  # (T=5, C=4)
print("Conv1D stores", tuple(conv.weight.shape), "- yours would be", tuple(conv.weight.T.shape))
same = torch.allclose(conv(x), linear(x, conv.weight.T, conv.bias), atol=1e-6)
print("same result once it is transposed:", same)

# %% [markdown]
# Which tensors of a block came from a `Conv1D`? Four of them:
#
# | name | in the checkpoint | in your model | if you forget it |
# |---|---|---|---|
# | `attn.c_attn.weight` | (C, 3C) | (3C, C) | an error: the shapes differ |
# | `attn.c_proj.weight` | (C, C) | (C, C) | **nothing** |
# | `mlp.c_fc.weight` | (C, 4C) | (4C, C) | an error |
# | `mlp.c_proj.weight` | (4C, C) | (C, 4C) | an error |
#
# `attn.c_proj` is square. Untransposed it fits just as well, loads without a word, and every block of the model
# mixes its heads with the wrong matrix. Whoever adds transposes until the errors stop has three of the four. The
# embeddings `wte` and `wpe` are tables that are read by row, they have the same orientation everywhere.
#
# | | |
# |---|---|
# | tensors | {name: tensor}, with or without the prefix, the masks and the head |
# | result | {name: tensor} for `load_state_dict` of your GPT |
#
# What a checkpoint may hold beyond all this, you do not know. Pass such names on as they are: loading will
# then stop and say which tensor has no place. A tensor that you drop in silence is one that nobody will miss until the
# results are wrong.
#
# <details><summary>Hint 1</summary>
#
# Fill a new dictionary in one loop over `tensors.items()`. In the loop: first the name without its prefix, then the
# question whether to skip it, then the question whether to transpose.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `str.removeprefix` does nothing where there is no prefix. `str.endswith` takes a tuple of endings: one for what you
# skip, one for what you transpose. An ending that begins with a dot cannot match in the middle of a word.
#
# </details>

# %%
@exercise("pytorch.pretrained.convert")
def convert(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of a GPT-2 checkpoint under our names and in our orientation.

    Args:
        tensors: {name: tensor}, with or without "transformer." before each name. Unchanged.

    Returns:
        {name: tensor} for GPT.load_state_dict: without the prefix, without the masks (names
        that end in .attn.bias and .attn.masked_bias) and without lm_head.weight; the weights
        of the four Conv1D of a block as (out, in). All other names and tensors pass unchanged,
        also those that no GPT-2 has.

    Source: openai/gpt-2, src/model.py, function conv1d; transformers, pytorch_utils.Conv1D.
    """
    raise NotImplementedError


# %%
check(convert)

# %%
state = convert(load_file(folder / "model.safetensors"))
print(len(state), "tensors, for example")
for example in ("wte.weight", "h.0.attn.c_attn.weight", "h.0.mlp.c_proj.weight"):
    print(f"{example:24}", tuple(state[example].shape))

# %% [markdown]
# ## 3. The sizes
#
# Before anything can be loaded there must be a model of the right size. `config.json` gives the sizes, but a single
# `.safetensors` file may come without one, and there is little need for it: the shapes know almost everything.
#
# | size | where it shows |
# |---|---|
# | `vocab_size`, `n_embd` | `wte.weight` is (vocab_size, n_embd) |
# | `n_ctx` | `wpe.weight` is (n_ctx, n_embd) |
# | `n_layer` | the names: `h.0.…`, `h.1.…`, and so on |
# | `n_head` | **nowhere** |
#
# The heads are cut out of the C channels by a reshape, and leave no trace in any tensor. A model with 6 heads loads
# the weights of one with 4 and computes something else: a second mistake that nothing reports. So `n_head` comes
# from the settings (the content of `config.json` as a dictionary). If they do not say it, one rule helps: in every GPT-2 that
# OpenAI published, a head is 64 channels wide (768 / 12, 1024 / 16, 1280 / 20, 1600 / 25). If 64 does not divide
# `n_embd`, nobody knows, and a sentence is better than a guess.
#
# The settings can also ask for something that your GPT does not compute. These weights would load as well:
#
# | setting | your GPT | others |
# |---|---|---|
# | `activation_function` | `"gelu_new"`, the tanh form | `"gelu"`, `"relu"`, … |
# | `layer_norm_epsilon` | 1e-5 | 1e-6, 1e-12 |
# | `tie_word_embeddings` | true | false: a head of its own |
# | `scale_attn_weights` | true: scores divided by the root of the width | false |
# | `scale_attn_by_inverse_layer_idx` | false | true: divided by the layer number too |
#
# A setting that is missing means the value in the middle column. Any other value of these five needs a `ValueError`.
#
# <details><summary>Hint 1</summary>
#
# The number of layers: take the names that begin with `h.`, split each at the dots, and its second part is the layer. As text
# "9" comes after "12", as numbers it does not. And layers are counted from 0.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `settings.get(name, value)` gives `value` where the setting is missing. With the middle column of the table as a
# dictionary, one loop compares all five. For the heads: `"n_head" in settings` tells whether you have to guess.
#
# </details>

# %%
@exercise("pytorch.pretrained.config_of")
def config_of(state: dict[str, torch.Tensor], settings: dict) -> GPTConfig:
    """The sizes of a GPT-2, from its tensors.

    Args:
        state: what convert returns.
        settings: config.json as a dict; empty if there is none. Left unchanged.

    Returns:
        GPTConfig. n_head is settings["n_head"], or n_embd // 64 if settings do not have it; all
        else follows from the names and shapes.

    Raises:
        ValueError: n_head is not given and 64 does not divide n_embd; or settings ask for an
            activation_function, layer_norm_epsilon, tie_word_embeddings, scale_attn_weights or
            scale_attn_by_inverse_layer_idx that is not ours. The sentence names what is wrong:
            n_head, or the setting.

    Source: transformers, GPT2Config.
    """
    raise NotImplementedError


# %%
check(config_of)

# %% [markdown]
# First for the small checkpoint. Then for GPT-2 itself: `transformers` can make the model on the meta device, where
# tensors have shapes and no numbers, so this costs no memory and needs no weights. Your two functions need no more than
# names and shapes.

# %%
settings = json.loads((folder / "config.json").read_text())
print(config_of(state, settings))
with torch.device("meta"):
    skeleton = GPT2LMHeadModel(GPT2Config())
shapes = convert(skeleton.state_dict())
print(config_of(shapes, {}))
numbers = sum(tensor.numel() for tensor in shapes.values())
masks = 12 * 1024 * 1024
print(f"{numbers:,} parameters, {4 * numbers:,} bytes in float32")
print(f"{4 * (numbers + masks):,} bytes with the 12 masks")

# %% [markdown]
# 124,439,808 is the number you counted in lesson 06. The file on the Hub (openai-community/gpt2, `model.safetensors`) has
# 548,105,171 bytes. That is the last figure and 14,291 bytes more, which are the header: nearly a tenth of what
# everyone downloads is triangles of ones.
#
# ## 4. From a path to a model
#
# `load_gpt2` puts the pieces together. The path is a folder, in which the file is called `model.safetensors`, or it is a file
# of any name. A `config.json` in the same folder gives the settings.
#
# A loader shows its quality on bad input. Each of these must stop:
#
# | input | error |
# |---|---|
# | no such folder or file, no `model.safetensors` in it | `FileNotFoundError` |
# | a file of some other model, without `wte.weight` | `ValueError` that names `wte.weight` |
# | a tensor is missing, there is one too many, or it has another shape | an error that names the tensor |
#
# The last row costs you nothing: `load_state_dict` does all of it, unless somebody says `strict=False`. Then a
# missing tensor is passed over, and its layer keeps the random numbers it was made with. The model runs, and the
# text it writes is a little worse than it should be, or very much.
#
# <details><summary>Hint 1</summary>
#
# In order: the file (`Path(path)`, `is_dir`), does it exist, the settings (`json.loads` of the text, or an empty dictionary),
# the tensors (`load_file`), `convert`, is there a `wte.weight`, the config, the model, its weights. Return the model.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `file.parent` is the folder that a file lies in, in both cases. `load_state_dict` copies numbers into the parameters that
# the model has, which are float32: a float16 file needs nothing more. What it returns is not the model.
#
# </details>

# %%
@exercise("pytorch.pretrained.load_gpt2")
def load_gpt2(path: str | Path) -> GPT:
    """A GPT with the weights of a GPT-2 checkpoint.

    Args:
        path: a folder that holds model.safetensors, or a .safetensors file. A config.json
            beside the file gives the settings; without it they are empty.

    Returns:
        GPT with float32 parameters, whatever the file holds. Each call makes a new model.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file holds no wte.weight, or config_of raises it.
        RuntimeError: a tensor is missing, too many, or of another shape. load_state_dict
            raises it and names the tensor.

    Source: huggingface/safetensors, README, "Format".
    """
    raise NotImplementedError


# %%
check(load_gpt2)

# %% [markdown]
# Now the test that this lesson is for. The same tokens go through your model and through `transformers`.

# %%
model = load_gpt2(folder)
idx = torch.randint(97, (3, 32), generator=torch.Generator().manual_seed(1))     # (B=3, T=32)
with torch.no_grad():
    logits, _ = model(idx)                                             # (3, 32, 97)
    wanted = theirs(idx).logits
gap = (logits - wanted).abs().max().item()
print(f"logits between {wanted.min():.1f} and {wanted.max():.1f}")
print("largest difference below 1e-5:", gap < 1e-5)

# %% [markdown]
# Your model is GPT-2: 9,312 logits, and no two differ by more than the rounding of float32.
#
# The older form of the file, the one on the Hub, must give the same model. The next cell writes it: no
# prefix, the masks, the head.

# %%
old = dict(theirs.transformer.state_dict())                            # without the prefix
for layer in range(3):
    old[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 32, 32).tril()      # (1, 1, n_ctx, n_ctx)
old["lm_head.weight"] = old["wte.weight"].clone()
save_file(old, folder / "old_form.safetensors")                        # beside config.json
again, _ = load_gpt2(folder / "old_form.safetensors")(idx)
print(f"{len(old)} tensors in the file, the same logits:", torch.equal(again, logits))

# %% [markdown]
# ## 5. The mistakes that load
#
# Leave out one transpose at a time, and see who notices.

# %%
names = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
for ending in names:
    wrong = {name: t.T if name.endswith(ending) else t for name, t in state.items()}
    try:
        GPT(config_of(wrong, settings)).load_state_dict(wrong)
        print(f"{ending:20} loads")
    except RuntimeError:
        print(f"{ending:20} size mismatch")

# %% [markdown]
# How wrong is the one that loads? And how does it compare with other ways to be wrong? For the mistakes in the code of the
# model, `transformers` plays the culprit: it takes the same weights under other settings. Predict the order before
# you run: an epsilon of 1e-6 in LayerNorm, the exact GELU, 6 heads for 4, `attn.c_proj` untransposed in the first block,
# in the last, in all three.

# %%
def with_turned(ending):
    """Our model, with the weights whose names end like this transposed once too often."""
    wrong = {name: t.T if name.endswith(ending) else t for name, t in state.items()}
    broken = GPT(config_of(wrong, settings))
    broken.load_state_dict(wrong)
    return broken(idx)[0].detach()


def with_settings(**changes):
    """transformers, with the same weights and one setting changed."""
    other = GPT2LMHeadModel.from_pretrained(folder, **changes).eval()
    return other(idx).logits.detach()


candidates = {
    "nothing wrong": logits,
    "epsilon 1e-6": with_settings(layer_norm_epsilon=1e-6),
    "exact GELU": with_settings(activation_function="gelu"),
    "6 heads for 4": with_settings(n_head=6),
    "last c_proj as stored": with_turned("h.2.attn.c_proj.weight"),
    "first c_proj as stored": with_turned("h.0.attn.c_proj.weight"),
    "all c_proj as stored": with_turned("attn.c_proj.weight"),
}
gaps = {name: (got - wanted).abs().max().item() for name, got in candidates.items()}
rows = []
for name, got in candidates.items():
    agree = (got.argmax(dim=-1) == wanted.argmax(dim=-1)).sum().item()   # of B * T = 96
    size = "below 1e-5" if gaps[name] < 1e-5 else f"{gaps[name]:.1g}"
    rows.append((name, size, f"{agree} of 96"))
show.table(rows, ("", "largest difference", "same likeliest token"))

# %%
_, axes = show.figure(height=2.8)
axes.barh(list(gaps), list(gaps.values()), color=show.BLUE, height=0.6)
axes.invert_yaxis()
axes.set(xscale="log", xlabel="largest difference of a logit", title="What a mistake costs")
axes.axvline(1e-5, color=show.ORANGE)
print("mistakes right of the line at 1e-5:", sum(gap > 1e-5 for gap in gaps.values()), "of 6")
show.finish()

# %% [markdown]
# There are two kinds. A wrong matrix or a wrong cut into heads changes the likeliest token at about half of the positions or
# more, and anyone who reads the text that comes out will see it. In the first block it is worse than in the last, because
# all later blocks work on its result. The epsilon and the GELU move the logits by about a thousandth, the likeliest token
# stays the same at all 96 positions, and no reader will ever notice. Only the comparison does, and only with a tight bound: at a tolerance of 1e-2 both would
# pass. This is why the checks of this course compare values to 1e-5 or closer.
#
# ## 6. The same text
#
# Equal logits give equal text, as long as no chance is involved. Greedy decoding (temperature 0) takes the likeliest token
# each time. Where two models once choose differently, their continuations part, because each goes on from its own choice.

# %%
prompt = idx[:1, :8]                                                   # (1, 8)
mine = sample(model, prompt, 20, temperature=0)                        # (1, 28)
outside = theirs.generate(prompt, max_new_tokens=20, do_sample=False, pad_token_id=0)
print("your continuation:", mine[0, 8:].tolist())
print("equal to transformers:", torch.equal(mine, outside))

# %% [markdown]
# ## 7. Why the file has this form
#
# The header says where each tensor begins. So a reader can map the file into memory and hand out views: nothing is
# read before somebody touches the numbers, and one tensor can be had without the others. A pickle, the form of
# `torch.save`, is read from front to back into fresh memory.
#
# Predict before you run: 64 MiB in 16 tensors. How much faster than `torch.load` is `load_file`? And how much of that
# remains if all numbers are then used, here for a sum?

# %% tags=["nbval-ignore-output"]
tensors = {f"h.{i}.weight": torch.randn(1024, 1024) for i in range(16)}
save_file(tensors, folder / "big.safetensors")
torch.save(tensors, folder / "big.pt")


def one_tensor():
    with safe_open(folder / "big.safetensors", "pt") as file:
        return file.get_tensor("h.7.weight")


def total(tensors):
    return sum(tensor.sum().item() for tensor in tensors.values())


timings = timing.measure({
    "torch.load": lambda: torch.load(folder / "big.pt"),
    "torch.load and sum": lambda: total(torch.load(folder / "big.pt")),
    "load_file": lambda: load_file(folder / "big.safetensors"),
    "load_file and sum": lambda: total(load_file(folder / "big.safetensors")),
    "one tensor": one_tensor,
}, seconds=3)
print(timing.report(timings, base="load_file"))
faster = timings["load_file"].median < timings["torch.load"].median
print("load_file is faster than torch.load:", faster)
medians = {name: 1e3 * t.median for name, t in timings.items()}
show.bars(medians, "Reading 64 MiB that the system has in its cache", "ms, median")

# %% [markdown]
# `load_file` alone has read next to nothing; the sum shows what the numbers cost once they are used. Both files are still in
# the memory of the operating system here. From a cold disk the disk decides. What must hold on any machine: both
# give the same numbers.

# %%
pickled, mapped = torch.load(folder / "big.pt"), load_file(folder / "big.safetensors")
print("same tensors:", all(torch.equal(pickled[name], mapped[name]) for name in tensors))
print("one tensor alone:", torch.equal(one_tensor(), mapped["h.7.weight"]))

# %% [markdown]
# ## 8. The real GPT-2
#
# Everything is ready for the weights that OpenAI trained. If they are on this machine, in a folder `gpt2` beside this
# notebook or in Hugging Face's cache, the next cell loads them into your model, writes a greedy continuation and compares
# the logits with `transformers`. It downloads nothing. If they are not here, and you are online, this command in a
# terminal fetches them once:
#
# ```
# hf download openai-community/gpt2 config.json model.safetensors vocab.json merges.txt tokenizer.json
# ```

# %% tags=["nbval-ignore-output"]
def find_gpt2():
    """The folder with GPT-2's files, or None."""
    places = [Path("gpt2")]
    for repository in ("openai-community/gpt2", "gpt2"):
        cached = try_to_load_from_cache(repository, "model.safetensors")
        if isinstance(cached, str):
            places.append(Path(cached).parent)
    needed = ("config.json", "model.safetensors", "vocab.json", "merges.txt")
    return next((p for p in places if all((p / name).exists() for name in needed)), None)


gpt2, real_gap = find_gpt2(), None
if gpt2 is None:
    print("GPT-2's weights are not on this machine: the command above fetches them (548 MB).")
else:
    tokenizer = AutoTokenizer.from_pretrained(gpt2)
    words = tokenizer.encode("The port of a model to another framework is")
    words = torch.tensor([words])                                      # (1, T)
    real, outside = load_gpt2(gpt2), GPT2LMHeadModel.from_pretrained(gpt2).eval()
    with torch.no_grad():
        real_gap = (real(words)[0] - outside(words).logits).abs().max().item()
    print(tokenizer.decode(sample(real, words, 30, temperature=0)[0].tolist()))
    print(f"largest difference of a logit to transformers: {real_gap:.1e}")

# %% [markdown]
# Rounding grows with the depth of a model and the size of its logits, so the bound for the real one is wider than for the
# small one. It leaves no room for a wrong matrix. It may leave room for an epsilon or the other GELU: for those you have
# the small model and its bound of 1e-5.

# %%
print("no difference above 1e-2 was found:", real_gap is None or real_gap < 1e-2)
del pickled, mapped
place.cleanup()

# %% [markdown]
# ## What you built, what comes next
#
# You built a loader that takes GPT-2's files in both forms, reads the sizes off the shapes, and stops with a name when
# something does not fit. You saw that an error is the friendly case: a square matrix, the number of heads, an epsilon
# and the kind of GELU all load in silence, and only numbers beside other numbers give them away.
#
# With this lesson your GPT in PyTorch is complete, and proven against outside code. Lesson 10 begins the second half: the
# same model in MindSpore. The method stays the one of this lesson. Carry the weights over, compare number by number, and
# take a tolerance that a mistake cannot hide in.
