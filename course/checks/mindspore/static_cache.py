"""Checks of lesson 21: a cache of fixed shapes. The oracle is lesson 08's stock GPT in PyTorch, uncached."""
import contextlib
import functools

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore.graph import api

from course.checks import checks
from course.checks.mindspore import GRAPH_RULES, close, fail, first_words, in_a_folder_of_its_own, source_line
from course.checks.mindspore.sampling import to_mindspore, to_torch, twin
from course.checks.pytorch import sampling as in_pytorch
from course.checks.pytorch import rand_ids

CACHE = "mindspore.static_cache.StaticKVCache"

BUFFERS = [
    ("places behind the newest token are not hidden: the buffer holds zeros there, or an old prompt, and they take their share of the softmax.", "all places"),
    ("the mask is the wrong way round: it shows the places behind the newest token and hides those before it.", "inverted"),
    ("the mask is shifted by one: the newest token sees the empty place behind it.", "one ahead"),
    ("keys and values are written one place too late, or the buffers are read before the new token is in them: it does not see itself.", "writes late"),
    ("keys and values are written one place too early, over those of the token before.", "writes early"),
    ("each token sees nothing but itself: the mask shows its own place alone, or every place gets the newest key and value.", "writes all"),
    ("the keys and values of earlier tokens are gone: each belongs into the place of its position, the old ones stay everywhere else, and ops.assign writes the result back.", "forgets"),
    ("new keys are added to what the places hold.", "adds"),
    ("keys are kept and values are not.", "keys only"),
    ("one buffer serves all layers: each needs its own.", "shared"),
]


@torch.no_grad()
def static_walk(model, tokens, mistake=""):
    """The logits of (B, T) tokens, one by one over buffers of zeros, with one mistake."""
    B, T = tokens.shape
    n_ctx, n_head = model.config.n_ctx, model.config.n_head
    shape = (len(model.h), 2, B, n_head, n_ctx, model.config.n_embd // n_head)
    held, out = torch.zeros(shape), []
    for p in range(T):
        place = {"writes late": p + 1, "writes early": max(p - 1, 0)}.get(mistake, p)
        x = model.wte(tokens[:, p : p + 1]) + model.wpe(torch.tensor([p]))
        for layer, block in enumerate(model.h):
            q, *new = (t.unflatten(-1, (n_head, -1)).transpose(1, 2) for t in block.attn.c_attn(block.ln_1(x)).chunk(3, dim=-1))
            slot = 0 if mistake == "shared" else layer
            both = held[slot].clone() if mistake != "forgets" else torch.zeros(shape[1:])
            for i in range(1 if mistake == "keys only" else 2):
                if mistake == "writes all":
                    both[i] = new[i]
                elif mistake == "adds":
                    both[i] = both[i] + new[i] * (torch.arange(n_ctx) <= p)[:, None]
                elif place < n_ctx:
                    both[i][:, :, place] = new[i][:, :, 0]
            held[slot] = both
            last = {"all places": n_ctx, "one ahead": p + 1}.get(mistake, p)
            places = torch.arange(n_ctx)
            mask = (places >= p if mistake == "inverted" else places <= last)[None, :]
            y = F.scaled_dot_product_attention(q, both[0], both[1], attn_mask=mask)
            x = x + block.attn.c_proj(y.transpose(1, 2).flatten(2))
            x = x + block.mlp(block.ln_2(x))
        out.append(F.linear(model.ln_f(x), model.wte.weight))
    return torch.cat(out, dim=1)


@functools.lru_cache(maxsize=4)
def mistaken(sizes, idx):
    """[(words, logits (B, T, V))] of the mistakes of this lesson and of lesson 08; sizes and idx as tuples."""
    model, idx = in_pytorch.gpt(**dict(sizes)), torch.tensor(idx)
    tokens = in_pytorch.cut(idx, [1] * idx.shape[1])
    found = [(words, static_walk(model, idx, kind)) for words, kind in BUFFERS]
    return found + [(words, torch.cat(in_pytorch.walk(model, tokens, kind), dim=1)) for words, kind in [*in_pytorch.POSITIONS, *in_pytorch.PARTS, *in_pytorch.STORES]]


def compare(got, model, idx, name, sizes, look=""):
    """Logits of each token in turn against those of the whole model, which has these sizes."""
    want = in_pytorch.whole(model, idx).numpy()
    for t, mine in enumerate(got):
        if mine is None:
            fail("the logits are None. Is there a return at the end?")
        if isinstance(mine, tuple):
            fail("a tuple comes back: return the logits alone, (B, 1, V).")
    mine = [to_torch(g) if isinstance(g, ms.Tensor) else g for g in got]
    if any(isinstance(g, torch.Tensor) and g.shape == (len(idx), 1, model.config.n_embd) for g in mine) and model.config.n_embd != want.shape[-1]:
        fail("the head is missing: what comes back are C channels, and logits are their products with wte.weight.")
    if isinstance(mine[0], torch.Tensor) and mine[0].isnan().all():
        fail("the logits of the first token are NaN: it sees no place at all.", example="at position 0 the mask must show place 0", look="step: the mask over n_ctx places, which shows the token itself")
    fits = all(isinstance(g, torch.Tensor) and g.shape == (len(idx), 1, want.shape[-1]) for g in mine)
    known = []
    if fits and not np.allclose(torch.cat(mine, dim=1).numpy(), want, rtol=1e-5, atol=1e-5):
        joined = torch.cat(mine, dim=1)
        wrong = mistaken(tuple(sizes.items()), tuple(map(tuple, idx.tolist())))
        known = [words for words, logits in wrong if logits.shape == joined.shape and torch.allclose(joined, logits, rtol=1e-5, atol=1e-5)]
    for t, one in enumerate(got):
        close(one, want[:, t : t + 1], 1e-5, name=f"{name} at token {t}", known=[(words, one.asnumpy()) for words in known], look=look)


def ids(model, B, T, seed):
    return rand_ids(B, T, n=model.config.vocab_size, seed=seed)


@checks(CACHE, "one step after the other, eagerly", seconds=20)
def steps(StaticKVCache):
    two_layers = {"n_layer": 2, "n_ctx": 4}
    model = in_pytorch.gpt(**two_layers)
    idx = ids(model, 2, 4, seed=1)
    cache = StaticKVCache(twin(model), 2)
    got = []
    for t in range(4):
        got.append(cache.step(to_mindspore(idx[:, t : t + 1]), ms.Tensor(t, ms.int32)))
    compare(got, model, idx, "the logits of step", two_layers, look="step: the mask over n_ctx places, and what is written where")


@checks(CACHE, "other sizes", seconds=20)
def sizes(StaticKVCache):
    more = {"n_layer": 1, "n_head": 4, "n_embd": 8, "vocab_size": 23, "n_ctx": 3}
    model = in_pytorch.gpt(**more)
    idx = ids(model, 3, 3, seed=2)
    cache = StaticKVCache(twin(model), 3)
    got = [cache.step(to_mindspore(idx[:, t : t + 1]), ms.Tensor(t, ms.int32)) for t in range(3)]
    compare(got, model, idx, f"the logits of step for a batch of 3 and {more}", more, look="sizes that are written as numbers: take them from model.config and batch_size")
    one = StaticKVCache(twin(model))
    compare([one.step(to_mindspore(idx[:1, :1]), ms.Tensor(0, ms.int32))], model, idx[:1, :1], "the logits of step for one sequence, without a batch_size", more, look="the default of batch_size is 1")



RULES = [
    ("should be in the range", "a token is given a position that does not exist: it must be below n_ctx."),
    ("already exists", "two buffers have one name: the keys and the values of each layer need names of their own."),
    ("input_indices=int", "the position reaches step as a Python number: make a tensor of it, ms.Tensor(self.length, ms.int32)."),
    ("input_indices=Int64", "the position reaches the graph as a Python number: make a tensor of it, ms.Tensor(self.length, ms.int32)."),
    *GRAPH_RULES,
]
SMALL = {"n_layer": 1, "n_head": 3, "n_embd": 12, "n_ctx": 5}


@contextlib.contextmanager
def without_compiling():
    """ms.jit gives its function back: compiling takes a second, and what forward does with the results shows without it."""
    real = ms.jit
    ms.jit = lambda function=None, **options: (lambda f: f) if function is None else function
    try:
        yield
    finally:
        ms.jit = real


def made(StaticKVCache):
    """A small PyTorch model, and a cache around its twin."""
    model = in_pytorch.gpt(**SMALL)
    return model, StaticKVCache(twin(model), 2)


def start_again(cache):
    cache.reset()
    if cache.length != 0:
        fail(f"after reset the length is {cache.length!r}, expected 0.")


def forward(cache, idx):
    """(B, T) -> (B, T, V) logits; errors of the graph compiler become sentences."""
    given = to_mindspore(idx)
    try:
        with in_a_folder_of_its_own():
            got = cache.forward(given)
            if isinstance(got, ms.Tensor):
                got.asnumpy()
    except ValueError:
        raise
    except (RuntimeError, TypeError, AttributeError, NameError) as error:
        text = str(error)
        rule = next((words for mark, words in RULES if mark in text), "the graph compiler does not accept it.")
        fail(f"forward fails where step works: {rule}", example=first_words(text), look=source_line(text))
    if not np.array_equal(given.asnumpy(), idx.numpy()):
        fail("the argument idx is changed in place: whoever called you still needs it.")
    if got is None:
        fail("forward gives None. Is there a return at the end?")
    if isinstance(got, (tuple, list)):
        fail(f"forward gives a {type(got).__name__}: join the logits of the tokens along the time axis, (B, T, V).", look="ops.cat")
    return got


def close_logits(got, want, name, look="", known=()):
    if isinstance(got, ms.Tensor) and got.shape == (len(want), 1, want.shape[-1]) and want.shape[1] > 1:
        fail("only the logits of one token come back: forward gives (B, T, V), logits for each token of the call.", look="the list of logits, joined along the time axis")
    if isinstance(got, ms.Tensor) and want.shape[1] > 1 and got.shape == (want.shape[1] * len(want), 1, want.shape[-1]):
        fail("the logits of the tokens are joined along the batch: join them along the time axis, 1.")
    close(got, want, 1e-5, name=name, known=known, look=look)


@checks(CACHE, "forward: token by token, and several at once", seconds=20)
@without_compiling()
def whole_text(StaticKVCache):
    model, cache = made(StaticKVCache)
    if cache.length != 0:
        fail(f"a new cache has length {cache.length!r}, expected 0.")
    idx = ids(model, 2, 4, seed=3)
    want = in_pytorch.whole(model, idx).numpy()
    at = 0
    for T in (2, 1, 1):
        got = forward(cache, idx[:, at : at + T])
        again = ("the positions start again at 0 with each call: what was fed since the last reset counts too.", lambda at=at, T=T: in_pytorch.whole(model, idx[:, at : at + T]).numpy())
        close_logits(got, want[:, at : at + T], f"the logits of forward for {T} token{'s' * (T > 1)} after {at}", known=[again], look="forward: the position of each token is length, and length grows by 1 with each")
        at += T
        if not isinstance(cache.length, int) or cache.length != at:
            fail(f"after {at} tokens the length is {cache.length!r}, expected the int {at}.", look="where length is advanced")


@checks(CACHE, "the second prompt after reset", seconds=20)
@without_compiling()
def second_prompt(StaticKVCache):
    model, cache = made(StaticKVCache)
    start_again(cache)
    forward(cache, ids(model, 2, 4, seed=6))
    start_again(cache)
    idx = ids(model, 2, 3, seed=7)
    close_logits(forward(cache, idx), in_pytorch.whole(model, idx).numpy(), "the logits of a second prompt", look="what the buffers still hold from the first prompt must be hidden by the mask, or written over")


@checks(CACHE, "up to n_ctx, and not past it", seconds=20)
@without_compiling()
def the_end(StaticKVCache):
    model, cache = made(StaticKVCache)
    idx = ids(model, 2, 5, seed=8)
    for first, more in ((5, 1), (3, 3), (0, 6)):
        start_again(cache)
        try:
            if first:
                forward(cache, idx[:, :first])
        except ValueError as error:
            fail(f"ValueError before the cache is full: n_ctx = 5 positions must fit: {error}", example=f"{first} tokens")
        example = f"n_ctx = 5, {first} positions held, {more} more"
        try:
            forward(cache, ids(model, 2, more, seed=9))
        except ValueError as error:
            if len(str(error).split()) < 3:
                fail("the ValueError past n_ctx says nothing: write a sentence that tells how many positions fit.", example=example)
        except (AssertionError, IndexError, NotImplementedError) as error:
            fail(f"past n_ctx comes {type(error).__name__}, expected a ValueError with a sentence.", example=example, look="the first lines of forward")
        else:
            fail("the cache takes more than n_ctx positions without a word: there is no place for them. Raise ValueError.", example=example)
        if cache.length != first:
            fail(f"after the ValueError the length is {cache.length}, expected {first}: look before you write.", example=example)


@checks(CACHE, "two caches, and the model stays as it is", seconds=20)
@without_compiling()
def stays(StaticKVCache):
    model, cache = made(StaticKVCache)
    other_model = in_pytorch.gpt(seed=100, **SMALL)
    inside = twin(other_model)
    names = [name for name, _ in inside.parameters_and_names()]
    own = [p.name for p in inside.trainable_params()]
    before = {name: p.asnumpy().copy() for name, p in inside.parameters_and_names()}
    other = StaticKVCache(inside, 2)
    start_again(cache)
    idx, theirs = ids(model, 2, 2, seed=10), ids(model, 2, 2, seed=11)
    got = []
    for t in range(2):
        got.append(forward(cache, idx[:, t : t + 1]))
        other.step(to_mindspore(theirs[:, t : t + 1]), ms.Tensor(t, ms.int32))
    want = in_pytorch.whole(model, idx).numpy()
    if not np.allclose(np.concatenate([g.asnumpy() for g in got], axis=1), want, rtol=1e-5, atol=1e-5):
        fail("two caches disturb each other: what one is fed appears in the other.", look="buffers that belong to the class: make them in __init__ with self.")
    if [name for name, _ in inside.parameters_and_names()] != names or [p.name for p in inside.trainable_params()] != own:
        fail(
            "the model's parameters have other names, or more of them, than before: a checkpoint of it would not load any more.",
            example=f"{own[0]} is now {inside.trainable_params()[0].name}",
            look="a model that becomes an attribute of an nn.Cell is renamed: a plain class does not do that, nor super().__init__(auto_prefix=False)",
        )
    for name, p in inside.parameters_and_names():
        if not np.array_equal(p.asnumpy(), before[name]):
            fail(f"the model's {name} is changed by the cache.", look="ops.assign: only the buffers are written")


@checks(CACHE, "compiled, and only once", seconds=20)
def compiled_once(StaticKVCache):
    model = in_pytorch.gpt(**SMALL)
    before = set(api.ms_compile_cache)
    cache = StaticKVCache(twin(model), 2)
    idx = ids(model, 2, 5, seed=4)
    got = [forward(cache, idx[:, :1])]
    first = set(api.ms_compile_cache)
    got.append(forward(cache, idx[:, 1:]))
    more = set(api.ms_compile_cache) - first
    want = in_pytorch.whole(model, idx).numpy()
    close_logits(got[0], want[:, :1], "the logits of the compiled step at token 0")
    gone = ("what a step has written is gone at the next one: a tensor in a list is a constant to the graph, and a Parameter is kept.", lambda: static_walk(model, idx, "forgets")[:, 1:].numpy())
    close_logits(got[1], want[:, 1:], "the logits of the compiled step at tokens 1 to 4", known=[gone], look="what the graph takes for a constant: only Parameters and arguments are read anew at each call")
    if more:
        fail(
            "each token compiles anew: nothing that grows or changes may be a Python number or a shape inside the graph.",
            example=f"4 tokens after the first were compiled {len(more)} times",
            look="the position must reach the graph as a tensor, ms.Tensor(self.length, ms.int32), and ms.jit(self.step) must be made once, in __init__",
        )
    if not first - before:
        fail("nothing is compiled: forward runs step eagerly.", look="ms.jit(self.step), made once in __init__ and called in forward")
