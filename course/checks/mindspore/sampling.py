"""Checks of lesson 16: the port of sampling. Oracles: a loop in PyTorch, the formulas of the draws, a stock PyTorch GPT.

sample and KVCache of MindSpore are put into the clothes of PyTorch ones, so that the checks of lesson 08 run on them.
"""
import functools
import math

import mindspore as ms
import numpy as np
import torch
from mindspore import nn, ops

from course.checks import Mismatch, checks
from course.checks.mindspore import fail, is_tensor, rand, rand_ids
from course.checks.mindspore.training import in_words_of_mindspore
from course.checks.pytorch import sampling as in_pytorch

SAMPLE = "mindspore.sampling.sample"
CACHE = "mindspore.sampling.KVCache"

WORDS = {
    "torch.multinomial draws for each row of a (B, V) tensor": "draw takes (B, V) probabilities and draws for each row",
    "what torch.multinomial gets: probabilities": "what draw gets: probabilities",
    "(torch.multinomial)": "(draw)",
    "the index of the largest logit": "the index of the largest logit, ops.argmax",
    "torch.float32": "Float32", "torch.int64": "Int64", "torch.int32": "Int32",
    "operations that end in _": "slices that are assigned",
    "model.eval() before the first call": "model.set_train(False) before the first call",
    "keep model.training before eval(), and hand it to model.train(...) at the end": "keep model.training at the start, and hand it to model.set_train(...) at the end",
    "calls of train() and eval()": "calls of set_train",
    "manual_seed or a new generator inside the loop": "a new generator inside the loop",
    "operations in place on what wte, wpe or a layer gives you": "slices that are assigned, and set_data",
}


def to_torch(x):
    """A torch tensor of a MindSpore one."""
    return torch.from_numpy(np.array(x.asnumpy()))


def to_mindspore(x):
    return ms.Tensor(np.ascontiguousarray(x.numpy()))


# --- sample --------------------------------------------------------------------------------------------


class Known(nn.Cell):
    """A model with a rule for its logits in the place of weights: the face of lesson 08's Known."""

    def __init__(self, theirs):
        super().__init__()
        self.theirs = theirs
        self.config = theirs.config
        super().set_train(theirs.training)

    def set_train(self, mode=True):
        self.theirs.train(mode)
        return super().set_train(mode)

    def construct(self, idx, targets=None):
        if not isinstance(idx, ms.Tensor):
            fail(f"the model is called with a {type(idx).__name__}, expected a tensor of token ids.")
        if idx.dtype not in (ms.int32, ms.int64):
            fail(f"the model is called with ids of dtype {idx.dtype}, expected Int64.", look="what is joined to idx")
        return to_mindspore(self.theirs(to_torch(idx).long())[0].detach().float()), None


class KnownCache:
    """A cache that hands what it is fed to lesson 08's KnownCache."""

    def __init__(self, model, theirs):
        self.model, self.theirs = model, theirs

    @property
    def length(self):
        return self.theirs.length

    def reset(self):
        self.theirs.reset()

    def forward(self, idx):
        return to_mindspore(self.theirs.forward(to_torch(idx).long()).detach().float())


def in_pytorch_clothes(sample):
    """A function with the face of lesson 08's sample around the learner's."""

    @functools.wraps(sample)
    def run(model, idx, max_new_tokens, *args, generator=None, cache=None, **options):
        mine = Known(model)
        given = to_mindspore(idx)
        before = given.asnumpy().copy()
        if isinstance(generator, torch.Generator):
            generator = np.random.default_rng(5000 + generator.initial_seed())
        held = None if cache is None else KnownCache(mine, cache)
        got = sample(mine, given, max_new_tokens, *args, generator=generator, cache=held, **options)
        if not np.array_equal(given.asnumpy(), before):
            fail("the prompt you are given is changed in place: whoever called you still needs it.", look="assignments into idx")
        if got is None:
            fail("the result is None. Is there a return at the end?")
        if not isinstance(got, ms.Tensor):
            fail(f"the result should be a mindspore.Tensor and is of type {type(got).__module__.split('.')[0]}.{type(got).__name__}.")
        return to_torch(got)

    return run


def as_lesson_08(check):
    """A check of lesson 08 on the learner's sample."""

    def run(sample):
        with in_words_of_mindspore(WORDS):
            check(in_pytorch_clothes(sample))

    return run


checks(SAMPLE, "order and defaults of the arguments")(in_pytorch.sample_arguments)


for name, check in [
    ("the prompt, and tokens behind it", in_pytorch.sample_text),
    ("no token, one token", in_pytorch.sample_counts),
    ("temperature 0 takes the likeliest", in_pytorch.sample_greedy),
    ("probabilities", in_pytorch.sample_probabilities),
    ("temperature", in_pytorch.sample_temperature),
    ("top_k", in_pytorch.sample_top_k),
    ("top_p, after the temperature", in_pytorch.sample_top_p),
    ("top_k, then top_p", in_pytorch.sample_top_k_then_top_p),
    ("rows and steps draw for themselves", in_pytorch.sample_independent),
]:
    checks(SAMPLE, name)(as_lesson_08(check))


@checks(SAMPLE, "the generator")
def sample_generator(sample):
    model = Known(in_pytorch.Known(in_pytorch.always(in_pytorch.POSITIVE)))
    idx = ms.Tensor(np.zeros((2, 3), np.int64))

    def run(generator, seed):
        np.random.seed(seed)
        ms.set_seed(seed)
        return sample(model, idx, 30, generator=generator).asnumpy()

    if not np.array_equal(run(np.random.default_rng(5), 1), run(np.random.default_rng(5), 2)):
        fail("the same generator seed gives another text each time: the generator you are given is not used.", look="the second argument of draw; ops.multinomial and np.random draw from elsewhere")
    if np.array_equal(run(np.random.default_rng(5), 1), run(np.random.default_rng(6), 1)):
        fail("another generator seed gives the same text: the generator you are given is not used, or seeded anew.")
    one = np.random.default_rng(5)
    if np.array_equal(run(one, 1), run(one, 1)):
        fail("a generator that is used on gives the same text again: it is seeded anew, or copied. It must go on where it stands.")
    np.random.seed(4)
    state = np.random.get_state()[1].copy()
    sample(model, idx, 5, generator=np.random.default_rng(5))
    if not np.array_equal(np.random.get_state()[1], state):
        fail("with a generator of its own, sample still changes NumPy's global random state: whoever relies on it gets other numbers.", look="ms.set_seed, which seeds NumPy too, and np.random")
    if np.array_equal(sample(model, idx, 30).asnumpy(), sample(model, idx, 30).asnumpy()):
        fail("without a generator every call gives the same text: a fixed seed is at work.", look="the seed given to np.random.default_rng")


for name, check in [("the last n_ctx tokens", in_pytorch.sample_crop), ("eval mode inside, the old mode after", in_pytorch.sample_modes), ("with a cache", in_pytorch.sample_cache)]:
    checks(SAMPLE, name)(as_lesson_08(check))


@checks(SAMPLE, "ids in int32")
def sample_int32(sample):
    got = sample(Known(in_pytorch.Known(in_pytorch.follows)), ms.Tensor(in_pytorch.PROMPT.numpy().astype(np.int32)), 4)
    is_tensor(got, (3, 9), ms.int64)
    if not np.array_equal(got.asnumpy(), in_pytorch.text(in_pytorch.PROMPT, 4).numpy()):
        fail("a prompt in int32 continues in another way than one in int64.")


# --- KVCache -------------------------------------------------------------------------------------------


class Layer(nn.Cell):
    """y = x W^T + b of a torch layer's numbers, or a row of its table for each id."""

    def __init__(self, theirs):
        super().__init__()
        self.weight = ms.Parameter(to_mindspore(theirs.weight.detach()), name="weight")
        self.bias = ms.Parameter(to_mindspore(theirs.bias.detach()), name="bias") if getattr(theirs, "bias", None) is not None else None

    def construct(self, x):
        return ops.matmul(x, self.weight.swapaxes(0, 1)) + self.bias


class Table(Layer):
    def construct(self, idx):
        return ops.gather(self.weight, idx, 0)


class Norm(Layer):
    def construct(self, x):
        x = x - x.mean(axis=-1, keep_dims=True)
        return self.weight * x * ops.rsqrt((x * x).mean(axis=-1, keep_dims=True) + 1e-5) + self.bias


class Attention(nn.Cell):
    def __init__(self, theirs):
        super().__init__()
        self.n_head = theirs.n_head
        self.c_attn, self.c_proj = Layer(theirs.c_attn), Layer(theirs.c_proj)


class MLP(nn.Cell):
    def __init__(self, theirs):
        super().__init__()
        self.c_fc, self.c_proj = Layer(theirs.c_fc), Layer(theirs.c_proj)

    def construct(self, x):
        x = self.c_fc(x)
        return self.c_proj(x * ops.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


class Block(nn.Cell):
    def __init__(self, theirs):
        super().__init__()
        self.ln_1, self.ln_2 = Norm(theirs.ln_1), Norm(theirs.ln_2)
        self.attn, self.mlp = Attention(theirs.attn), MLP(theirs.mlp)


class Twin(nn.Cell):
    """The parts of lesson 08's stock GPT in MindSpore; whole, it runs the PyTorch one."""

    def __init__(self, theirs):
        super().__init__()
        self.theirs = theirs
        self.config = theirs.config
        self.wte, self.wpe = Table(theirs.wte), Table(theirs.wpe)
        self.h = nn.CellList([Block(b) for b in theirs.h])
        self.ln_f = Norm(theirs.ln_f)
        self.set_train(theirs.training)

    def construct(self, idx, targets=None):
        return to_mindspore(in_pytorch.whole(self.theirs, to_torch(idx).long())), None


def twin(theirs):
    """The one Twin of a torch model."""
    if not hasattr(theirs, "twin"):
        object.__setattr__(theirs, "twin", Twin(theirs))
    return theirs.twin


def cache_in_pytorch_clothes(KVCache):
    """A class with the face of lesson 08's KVCache around the learner's."""

    class Clothed:
        def __init__(self, model):
            self.mine = KVCache(twin(model))

        def __getattr__(self, name):
            if name == "length":
                value = self.mine.length
                if isinstance(value, ms.Tensor):
                    fail("the length is a tensor; it is an int, a number of positions.", look="reset: length = 0, and forward adds the T of idx.shape")
                return value
            raise AttributeError(name)

        def reset(self):
            self.mine.reset()

        def forward(self, idx):
            given = to_mindspore(idx)
            got = self.mine.forward(given)
            if not np.array_equal(given.asnumpy(), idx.numpy()):
                fail("the argument idx is changed in place: whoever called you still needs it.")
            if isinstance(got, tuple):
                fail("forward gives a tuple: return the logits alone, (B, T, V).")
            if got is None:
                fail("forward gives None. Is there a return at the end?")
            if not isinstance(got, ms.Tensor):
                fail(f"the logits should be a mindspore.Tensor and are of type {type(got).__module__.split('.')[0]}.{type(got).__name__}.")
            return to_torch(got)

    return Clothed


def cache_prompt(KVCache):
    """Lesson 08's check, and a few mistakes more where it finds no name."""
    try:
        in_pytorch.cache_prompt(KVCache)
    except Mismatch as found:
        if "wrong values" not in str(found):
            raise
        model, idx = in_pytorch.gpt(), torch.from_numpy(rand_ids(2, 7, n=17, seed=1)).long()
        got, want = KVCache(model).forward(idx), in_pytorch.whole(model, idx)
        example = str(found).partition("for example: ")[2].partition("\n")[0]
        for words, value in prompt_mistakes(model, idx, want):
            if got.shape == value.shape and torch.allclose(got, value, rtol=1e-4, atol=1e-4):
                fail(words, example=example)
        if torch.isnan(got).any():
            fail("logits are nan: a query that sees no key at all gives 0 / 0. The mask is True where a query may look.", example=example, look="whether the mask is turned round")
        moved = changed_by_the_last(KVCache, idx)
        if moved:
            fail("a token changes what stands before it: the mask lets queries look ahead.", example=f"another last token moves the logits at position {moved - 1}")
        raise


@torch.no_grad()
def prompt_mistakes(model, idx, want):
    yield "the logits are softmaxed: forward returns scores, as the model does.", want.softmax(-1)
    yield "the logits are log-softmaxed: forward returns plain scores, as the model does.", want.log_softmax(-1)
    x = model.wte(idx) + model.wpe(torch.arange(idx.shape[1]))
    last = len(model.h) - 1
    for words, order in [
        ("the first block is run in the place of every block.", [0] * (last + 1)), ("the last block is run in the place of every block.", [last] * (last + 1)),
        ("the blocks are run in reverse order.", range(last, -1, -1)), ("the last block is left out.", range(last)), ("the first block is left out.", range(1, last + 1)),
    ]:
        stream = x
        for layer in order:
            stream = model.h[layer](stream)
        yield words, model.ln_f(stream) @ model.wte.weight.T


def changed_by_the_last(KVCache, idx):
    """How many positions before the last move when the last token is another one."""
    other = idx.clone()
    other[:, -1] = (other[:, -1] + 1) % 17
    a, b = (KVCache(in_pytorch.gpt()).forward(i)[:, :-1] for i in (idx, other))
    return int((a != b).any(-1).any(0).sum()) and int((a != b).any(-1).any(0).nonzero().max()) + 1


def cache_as_lesson_08(check):
    def run(KVCache):
        with in_words_of_mindspore(WORDS):
            check(cache_in_pytorch_clothes(KVCache))

    return run


for name, check in [
    ("the length that it holds", in_pytorch.cache_length),
    ("a prompt at once", cache_prompt),
    ("token by token", in_pytorch.cache_tokens),
    ("a prompt, then token by token", in_pytorch.cache_prompt_then_tokens),
    ("a prompt in chunks", in_pytorch.cache_chunks),
    ("the second prompt after reset", in_pytorch.cache_reset),
    ("two caches side by side", in_pytorch.cache_instances),
    ("up to n_ctx, and not past it", in_pytorch.cache_end),
]:
    checks(CACHE, name, seconds=20)(cache_as_lesson_08(check))


@checks(CACHE, "the past is not computed again")
def cache_saves_work(KVCache):
    theirs = in_pytorch.gpt()
    model = twin(theirs)
    idx = torch.tensor([[3, 5, 3, 7, 5], [5, 7, 3, 3, 7]])
    cache = KVCache(model)
    cache.forward(to_mindspore(idx))
    new = torch.tensor([[1], [2]])
    want = in_pytorch.whole(theirs, torch.cat((idx, new), dim=1))[:, -1:].numpy()
    table = model.wte.weight.asnumpy().copy()
    table[[3, 5, 7]] = rand(3, 12, seed=19)
    ops.assign(model.wte.weight, ms.Tensor(table))
    got = cache.forward(to_mindspore(new))
    others = [token for token in range(17) if token not in (3, 5, 7)]
    if not np.allclose(got.asnumpy()[..., others], want[..., others], rtol=1e-5, atol=1e-5):
        fail(
            "the old tokens are run through the model again: the result is right and nothing is saved.",
            example="after the prompt, its tokens' embeddings are changed, and the next logits move",
            look="what the cache keeps: keys and values of each layer, not token ids or embeddings",
        )


@checks(CACHE, "the model and earlier results stay as they are", seconds=20)
def cache_leaves_alone(KVCache):
    theirs = in_pytorch.gpt()
    model = twin(theirs)
    before = {name: p.asnumpy().copy() for name, p in model.parameters_and_names()}
    idx = rand_ids(2, 8, n=17, seed=15)
    cache = KVCache(model)
    first = cache.forward(ms.Tensor(idx[:, :4]))
    copy = first.asnumpy().copy()
    for t in range(4, 7):
        cache.forward(ms.Tensor(idx[:, t : t + 1]))
    if not np.array_equal(first.asnumpy(), copy):
        fail("logits that were handed out earlier change with later calls: they share memory with the cache.")
    if model.training or any(cell.training for cell in model.cells()):
        fail("the model comes back in training mode, and it was in eval mode.", look="calls of set_train: the cache needs none")
    for name, p in model.parameters_and_names():
        if name not in before:
            fail(f"the model has a parameter more than before: {name}.", look="keys and values that are kept on the model")
        if not np.array_equal(p.asnumpy(), before[name]):
            fail(f"the model's {name} is changed by the cache.", look="slices that are assigned, and set_data")


@checks(CACHE, "other sizes", seconds=20)
def cache_sizes(KVCache):
    clothed = cache_in_pytorch_clothes(KVCache)
    for sizes in ({"n_layer": 1, "n_head": 4, "n_embd": 8, "n_ctx": 6}, {"n_layer": 2, "n_head": 1, "n_embd": 10, "vocab_size": 23}):
        model = in_pytorch.gpt(**sizes)
        chunks = in_pytorch.cut(torch.from_numpy(rand_ids(1, 6, n=model.config.vocab_size, seed=16)).long(), [3, 2, 1])
        in_pytorch.check_chunks(
            in_pytorch.fed(clothed(model), chunks), model, chunks, [*in_pytorch.POSITIONS, *in_pytorch.MASKS, *in_pytorch.STORES, *in_pytorch.PARTS],
            f"the logits for {sizes}", look="sizes that are written as numbers: take them from the model",
        )
