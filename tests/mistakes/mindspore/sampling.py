"""Wrong and right answers to the sampling part of lesson 16."""
import math

import mindspore as ms
import numpy as np
from mindspore import ops

from course.checks.mindspore.sampling import CACHE, SAMPLE
from solutions.mindspore.attention import attention, causal_mask, merge_heads, split_heads
from solutions.mindspore.primitives import softmax
from solutions.mindspore.sampling import draw, keep_top_k, keep_top_p, next_logits
from tests.mistakes import right, wrong

# --- sample --------------------------------------------------------------------------------------------


def choose(logits, temperature, top_k=None, top_p=None, generator=None):
    """(B, V) -> (B, 1): the right way."""
    if temperature == 0:
        return ops.argmax(logits, -1, True).astype(ms.int64)
    logits = logits / temperature
    if top_k is not None:
        logits = keep_top_k(logits, top_k)
    if top_p is not None:
        logits = keep_top_p(logits, top_p)
    return draw(softmax(logits, dim=-1), generator)


def loop(pick=choose, crop=None, last=None, after=None, modes=True, extra=0, before=None):
    """A sample function, right but for the parts that are given."""

    def sample(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
        was, prompt = model.training, idx
        if before is not None:
            before(model, cache)
        elif cache is not None:
            cache.reset()
        if generator is None:
            generator = np.random.default_rng()
        if modes:
            model.set_train(False)
        idx = idx.astype(ms.int64)
        for _ in range(max_new_tokens + extra):
            if last is not None and cache is None:
                logits = last(model(idx[:, -model.config.n_ctx :])[0])
            elif crop is not None and cache is None:
                logits = model(crop(idx, model.config.n_ctx, prompt.astype(ms.int64)))[0][:, -1]
            else:
                logits = next_logits(model, idx, cache)
            idx = ops.cat((idx, pick(logits, temperature, top_k, top_p, generator)), axis=1)
        if modes:
            model.set_train(was)
        return idx if after is None else after(idx, prompt, max_new_tokens, model.config.n_ctx)

    return sample


def variant(exercise, says, name, function):
    function.__name__ = name
    wrong(exercise, says)(function)


def from_torch_generator(logits, t, k, p, g):
    return choose(logits, t, k, p, np.random.default_rng(int(np.random.randint(2**31))))


for name, says, options in [
    ("returns_only_new_tokens", "only the new tokens", {"after": lambda idx, prompt, n, c: idx[:, prompt.shape[1] :]}),
    ("one_token_more", "one token too many", {"extra": 1}),
    ("returns_the_prompt", "nothing is added", {"after": lambda idx, prompt, n, c: prompt}),
    ("first_position", "first position", {"last": lambda logits: logits[:, 0]}),
    ("mean_over_positions", "averaged or summed", {"last": lambda logits: logits.mean(1)}),
    ("last_token_alone", "sees the last token alone", {"crop": lambda idx, c, prompt: idx[:, -1:]}),
    ("crops_to_the_first", "FIRST n_ctx", {"crop": lambda idx, c, prompt: idx[:, :c]}),
    ("does_not_crop", "n_ctx is 6", {"crop": lambda idx, c, prompt: idx}),
    ("float_tokens", "expected Int64", {"after": lambda idx, prompt, n, c: idx.astype(ms.float32)}),
    ("int32_tokens", "expected Int64", {"after": lambda idx, prompt, n, c: idx.astype(ms.int32)}),
    ("returns_an_array", "numpy.ndarray", {"after": lambda idx, prompt, n, c: idx.asnumpy()}),
    ("returns_none", "is None", {"after": lambda idx, prompt, n, c: None}),
    ("greedy_always", "always taken; draw one", {"pick": lambda logits, *rest: ops.argmax(logits, -1, True).astype(ms.int64)}),
    ("no_branch_for_zero", "temperature 0", {"pick": lambda logits, t, k, p, g: draw(softmax(logits / (t or 1.0), -1), g) if k is None and p is None else choose(logits, t, k, p, g)}),
    ("temperature_multiplied", "multiplied by the temperature", {"pick": lambda logits, t, k, p, g: choose(logits, 1 / t if t else 0, k, p, g)}),
    ("temperature_ignored", "temperature has no effect", {"pick": lambda logits, t, k, p, g: choose(logits, t and 1, k, p, g)}),
    ("softmax_over_rows", "over the V tokens", {"pick": lambda logits, t, k, p, g: draw(softmax(logits / t, 0), g) if t else choose(logits, 0)}),
    ("draws_from_logits", "Is the softmax missing", {"pick": lambda logits, t, k, p, g: draw(logits / t, g) if t and logits.asnumpy().min() >= 0 else choose(logits, t, k, p, g)}),
    ("top_k_ignored", "top_k has no effect", {"pick": lambda logits, t, k, p, g: choose(logits, t, None, p, g)}),
    ("top_k_one_less", "drops the k-th token", {"pick": lambda logits, t, k, p, g: choose(logits, t, k and max(k - 1, 1), p, g)}),
    ("top_p_ignored", "top_p has no effect", {"pick": lambda logits, t, k, p, g: choose(logits, t, k, None, g)}),
    ("top_p_before_temperature", "before the temperature is applied", {"pick": lambda logits, t, k, p, g: choose(logits if p is None else keep_top_p(logits, p), t, k, None, g)}),
    ("top_p_first", "before top_k", {"pick": lambda logits, t, k, p, g: choose(keep_top_p(logits / t, p), 1.0, k, None, g) if p and t else choose(logits, t, k, p, g)}),
    ("either_or", "only top_k is applied", {"pick": lambda logits, t, k, p, g: choose(logits, t, k, None if k else p, g)}),
    ("step_seeded", "every step draws the same", {"pick": lambda logits, t, k, p, g: choose(logits, t, k, p, np.random.default_rng(0))}),
    ("same_draw_for_every_row", "every row gets the same token", {"pick": lambda logits, t, k, p, g: ops.tile(choose(logits[:1], t, k, p, g), (len(logits), 1)) if len(logits) > 99 else choose(logits, t, k, p, g)}),
    ("global_random_state", "another text each time", {"pick": from_torch_generator}),
    ("stays_in_training_mode", "runs in training mode", {"modes": False}),
    ("cache_not_reset", "still holds", {"before": lambda model, cache: None}),
]:
    variant(SAMPLE, says, name, loop(**options))


@wrong(SAMPLE, "comes back in eval mode")
def stays_in_eval(model, idx, max_new_tokens, *options, **more):
    idx = loop(modes=False)(model.set_train(False), idx, max_new_tokens, *options, **more)
    return idx


@wrong(SAMPLE, "cache is never used")
def ignores_the_cache(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    return loop()(model, idx, max_new_tokens, temperature, top_k, top_p, generator)


@wrong(SAMPLE, "TypeError")
def asks_for_no_grad(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    model.set_train(False)
    raise TypeError("there is no ms.no_grad")


@wrong(SAMPLE, "changed in place")
def writes_into_the_prompt(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    got = loop()(model, idx, max_new_tokens, temperature, top_k, top_p, generator, cache)
    if max_new_tokens:
        idx[:, 0] = got[:, -1]
    return got


@wrong(SAMPLE, "ids in int32")
def joins_without_cast(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    got = loop()(model, idx, max_new_tokens, temperature, top_k, top_p, generator, cache)
    return got.astype(idx.dtype)


@wrong(SAMPLE, "stops when token")
def stops_at_token_three(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    was = model.training
    if idx.shape == (1, 1) and max_new_tokens == 3 and model(idx)[0][0, -1].argmax().asnumpy() == 3:
        max_new_tokens = 1
    got = loop()(model, idx, max_new_tokens, temperature, top_k, top_p, generator, cache)
    model.set_train(was)
    return got


@wrong(SAMPLE, "the arguments stand in another order")
def top_p_before_top_k(model, idx, max_new_tokens, temperature=1.0, top_p=None, top_k=None, generator=None, cache=None):
    return loop()(model, idx, max_new_tokens, temperature, top_k, top_p, generator, cache)


@wrong(SAMPLE, "top_k has the default 50")
def fifty_by_default(model, idx, max_new_tokens, temperature=1.0, top_k=50, top_p=None, generator=None, cache=None):
    return loop()(model, idx, max_new_tokens, temperature, top_k, top_p, generator, cache)


@wrong(SAMPLE, "it is reset before the first step, not after the last")
def resets_at_the_end(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    got = loop(before=lambda model, cache: None)(model, idx, max_new_tokens, temperature, top_k, top_p, generator, cache)
    if cache is not None:
        cache.reset()
    return got


def given_up(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    first = loop()(model, idx, min(max_new_tokens, 1), temperature, top_k, top_p, generator, cache)
    return loop()(model, first, max_new_tokens - 1, temperature, top_k, top_p, generator) if max_new_tokens else first


variant(SAMPLE, "the cache is given up on the way", "cache_for_the_prompt_only", given_up)


@wrong(SAMPLE, "runs in training mode")
def sets_the_attribute(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    """model.training = False reaches one Cell; set_train reaches all below it."""
    was, model.training = model.training, False
    got = loop(modes=False)(model, idx, max_new_tokens, temperature, top_k, top_p, generator, cache)
    model.training = was
    return got


right(SAMPLE)(loop())


@right(SAMPLE)
def with_gumbel_noise(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    """The largest of logits and Gumbel noise is a draw."""
    generator = generator or np.random.default_rng()
    was = model.training
    model.set_train(False)
    if cache is not None:
        cache.reset()
    out = idx.asnumpy().astype(np.int64)
    for _ in range(max_new_tokens):
        logits = next_logits(model, ms.Tensor(out), cache)
        if temperature:
            logits = logits / temperature
            logits = logits if top_k is None else keep_top_k(logits, top_k)
            logits = logits if top_p is None else keep_top_p(logits, top_p)
            scores = logits.asnumpy() + generator.gumbel(size=logits.shape)
        else:
            scores = logits.asnumpy()
        out = np.concatenate([out, scores.argmax(-1)[:, None]], axis=1)
    model.set_train(was)
    return ms.Tensor(out)


@right(SAMPLE)
def row_after_row(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    """generator.choice for each row, tokens in a list."""
    generator = generator or np.random.default_rng()
    was = model.training
    if cache is not None:
        cache.reset()
    model.set_train(False)
    rows = idx.asnumpy().astype(np.int64)
    for _ in range(max_new_tokens):
        logits = next_logits(model, ms.Tensor(rows), cache)
        if temperature == 0:
            new = logits.asnumpy().argmax(-1)
        else:
            logits = logits / temperature
            logits = keep_top_k(logits, top_k) if top_k is not None else logits
            logits = keep_top_p(logits, top_p) if top_p is not None else logits
            probs = softmax(logits, -1).asnumpy().astype(np.float64)
            new = np.array([generator.choice(len(p), p=p / p.sum()) for p in probs])
        rows = np.concatenate((rows, new[:, None]), axis=1)
    model.set_train(was)
    return ms.Tensor(rows.astype(np.int64))


@right(SAMPLE)
def collected_in_a_list(model, idx, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, cache=None):
    """New columns are collected and joined at the end."""
    rng = np.random.default_rng() if generator is None else generator
    mode = model.training
    model.set_train(mode=False)
    if cache is not None:
        cache.reset()
    columns = [idx.astype(ms.int64)]
    for _ in range(max_new_tokens):
        seen = ops.concat(columns, 1) if len(columns) > 1 else columns[0]
        columns.append(choose(next_logits(model, seen, cache), temperature, top_k, top_p, rng))
    model.set_train(mode=mode)
    return ops.concat(columns, 1) if len(columns) > 1 else columns[0]


# --- KVCache -------------------------------------------------------------------------------------------


class Base:
    """A right cache in small parts, for the variants below to go wrong with."""

    def __init__(self, model):
        self.model = model
        self.reset()

    def reset(self):
        self.length = 0
        self.keys = [None] * len(self.model.h)
        self.values = [None] * len(self.model.h)

    def append(self, layer, k, v):
        if self.keys[layer] is not None:
            k = ops.cat((self.keys[layer], k), axis=2)
            v = ops.cat((self.values[layer], v), axis=2)
        self.keys[layer], self.values[layer] = k, v
        return k, v

    def positions(self, T):
        return ops.arange(self.length, self.length + T)

    def mask(self, n_query, n_key):
        return causal_mask(n_query, n_key)

    def qkv(self, block, x):
        q, k, v = ops.chunk(block.attn.c_attn(block.ln_1(x)), 3, axis=-1)
        return [split_heads(p, block.attn.n_head) for p in (q, k, v)]

    def attend(self, q, k, v):
        return attention(q, k, v, self.mask(q.shape[2], k.shape[2]))

    def embed(self, idx):
        return self.model.wte(idx) + self.model.wpe(self.positions(idx.shape[1]))

    def block(self, layer, block, x):
        q, k, v = self.qkv(block, x)
        k, v = self.append(layer, k, v)
        x = x + block.attn.c_proj(merge_heads(self.attend(q, k, v)))
        return x + block.mlp(block.ln_2(x))

    def room(self, T):
        if self.length + T > self.model.config.n_ctx:
            raise ValueError(f"{self.length + T} positions do not fit into n_ctx = {self.model.config.n_ctx}")

    def head(self, x):
        return ops.matmul(self.model.ln_f(x), self.model.wte.weight.swapaxes(0, 1))

    def forward(self, idx):
        self.room(idx.shape[1])
        x = self.embed(idx)
        for layer, block in enumerate(self.model.h):
            x = self.block(layer, block, x)
        self.length += idx.shape[1]
        return self.head(x)


@wrong(CACHE, "start again at 0")
class PositionsRestart(Base):
    def positions(self, T):
        return ops.arange(0, T)


@wrong(CACHE, "one too low")
class PositionsEarly(Base):
    def positions(self, T):
        return ops.arange(0, T) + max(self.length - 1, 0)


@wrong(CACHE, "same position")
class OnePositionForAll(Base):
    def positions(self, T):
        return ops.arange(0, T) * 0 + (self.length + T - 1)


@wrong(CACHE, "counts calls, not tokens")
class PositionsByCalls(Base):
    def reset(self):
        super().reset()
        self.calls = 0

    def positions(self, T):
        return ops.arange(self.calls, self.calls + T)

    def forward(self, idx):
        out = super().forward(idx)
        self.calls += 1
        return out


@wrong(CACHE, "wpe are left out")
class NoPositions(Base):
    def embed(self, idx):
        return self.model.wte(idx)


@wrong(CACHE, "aligned at the top left")
class MaskTopLeft(Base):
    def mask(self, n_query, n_key):
        return ops.tril(ops.ones((n_query, n_key), ms.int32)) > 0


@wrong(CACHE, "nothing hides the future")
class NoMask(Base):
    def mask(self, n_query, n_key):
        return None


@wrong(CACHE, "aligned at the top left: several new queries")
class TopLeftInChunksOnly(Base):
    def mask(self, n_query, n_key):
        return ops.tril(ops.ones((n_query, n_key), ms.int32)) > 0 if n_query > 1 else None


@wrong(CACHE, "the past is forgotten")
class StoresNothing(Base):
    def append(self, layer, k, v):
        return k, v


@wrong(CACHE, "only the last call's keys")
class KeepsTheLastCall(Base):
    def append(self, layer, k, v):
        old_k, old_v = self.keys[layer], self.values[layer]
        self.keys[layer], self.values[layer] = k, v
        if old_k is None:
            return k, v
        return ops.cat((old_k, k), axis=2), ops.cat((old_v, v), axis=2)


@wrong(CACHE, "keys stand in the place of the old values")
class KeysForValues(Base):
    def append(self, layer, k, v):
        old = self.keys[layer]
        K, W = super().append(layer, k, v)
        return K, W if old is None else ops.cat((old, v), axis=2)


@wrong(CACHE, "new keys are put before the old")
class NewFirst(Base):
    def append(self, layer, k, v):
        if self.keys[layer] is not None:
            k = ops.cat((k, self.keys[layer]), axis=2)
            v = ops.cat((v, self.values[layer]), axis=2)
        self.keys[layer], self.values[layer] = k, v
        return k, v


@wrong(CACHE, "q and k are swapped")
class KeysBeforeQueries(Base):
    def qkv(self, block, x):
        q, k, v = super().qkv(block, x)
        return k, q, v


@wrong(CACHE, "ln_1 is left out")
class NoLn1(Base):
    def qkv(self, block, x):
        return [split_heads(p, block.attn.n_head) for p in ops.chunk(block.attn.c_attn(x), 3, axis=-1)]


@wrong(CACHE, "c_proj is left out")
class NoProjection(Base):
    def block(self, layer, block, x):
        q, k, v = self.qkv(block, x)
        x = x + merge_heads(self.attend(q, *self.append(layer, k, v)))
        return x + block.mlp(block.ln_2(x))


@wrong(CACHE, "both start from the input of the block")
class ParallelBlock(Base):
    def block(self, layer, block, x):
        q, k, v = self.qkv(block, x)
        y = block.attn.c_proj(merge_heads(self.attend(q, *self.append(layer, k, v))))
        return x + y + block.mlp(block.ln_2(x))


@wrong(CACHE, "heads are merged without swapping")
class MergedByReshape(Base):
    def block(self, layer, block, x):
        q, k, v = self.qkv(block, x)
        x = x + block.attn.c_proj(self.attend(q, *self.append(layer, k, v)).reshape(x.shape))
        return x + block.mlp(block.ln_2(x))


@wrong(CACHE, "ln_f is left out")
class NoLnF(Base):
    def head(self, x):
        return ops.matmul(x, self.model.wte.weight.swapaxes(0, 1))


@wrong(CACHE, "the logits are softmaxed")
class Softmaxed(Base):
    def head(self, x):
        return ops.softmax(super().head(x), -1)


@wrong(CACHE, "the first block is run in the place of every block")
class OneBlockForAll(Base):
    def forward(self, idx):
        self.room(idx.shape[1])
        x = self.embed(idx)
        for layer in range(len(self.model.h)):
            x = self.block(layer, self.model.h[0], x)
        self.length += idx.shape[1]
        return self.head(x)


@wrong(CACHE, "whether the mask is turned round")
class MaskTurnedRound(Base):
    def mask(self, n_query, n_key):
        mask = super().mask(n_query, n_key)
        return ops.logical_not(mask) if n_query > 1 else mask


@wrong(CACHE, "the mask lets queries look ahead")
class WholeBuffer(Base):
    """A buffer of n_ctx positions, handed on with its empty end, which the mask does not know of."""

    def append(self, layer, k, v):
        B, H, T, D = k.shape
        if self.keys[layer] is None:
            self.keys[layer], self.values[layer] = (np.zeros((B, H, self.model.config.n_ctx, D), np.float32) for _ in "kv")
        self.keys[layer][:, :, self.length : self.length + T] = k.asnumpy()
        self.values[layer][:, :, self.length : self.length + T] = v.asnumpy()
        return ms.Tensor(self.keys[layer]), ms.Tensor(self.values[layer])


@wrong(CACHE, "the head is missing")
class NoHead(Base):
    def head(self, x):
        return self.model.ln_f(x)


@wrong(CACHE, "gives a tuple")
class LogitsAndLoss(Base):
    def forward(self, idx):
        return super().forward(idx), None


@wrong(CACHE, "only the logits of one position")
class LastPositionOnly(Base):
    def forward(self, idx):
        return super().forward(idx)[:, -1:]


@wrong(CACHE, "advanced once in each layer")
class AdvancedInEachLayer(Base):
    def forward(self, idx):
        self.room(idx.shape[1])
        x = self.embed(idx)
        for layer, block in enumerate(self.model.h):
            x = self.block(layer, block, x)
            self.length += idx.shape[1]
        return self.head(x)


@wrong(CACHE, "the length is a tensor")
class CountsInATensor(Base):
    def reset(self):
        super().reset()
        self.length = ms.Tensor(0)


@wrong(CACHE, "after reset")
class ResetsLengthOnly(Base):
    def __init__(self, model):
        super().__init__(model)

    def reset(self):
        if hasattr(self, "length"):
            self.length = 0
        else:
            super().reset()


KEYS, VALUES = {}, {}


@wrong(CACHE, "two caches disturb each other")
class ListsOfTheClass(Base):
    def reset(self):
        self.length = 0
        self.keys, self.values = KEYS, VALUES
        KEYS.clear()
        VALUES.clear()
        KEYS.update({layer: None for layer in range(len(self.model.h))})
        VALUES.update(KEYS)


@wrong(CACHE, "without a word")
class NoRoomCheck(Base):
    def room(self, T):
        pass

    def positions(self, T):
        return ops.clamp(ops.arange(self.length, self.length + T), max=self.model.config.n_ctx - 1)


@wrong(CACHE, "from somewhere inside")
class Asserts(Base):
    def room(self, T):
        assert self.length + T <= self.model.config.n_ctx


@wrong(CACHE, "before the cache is full")
class FullOneTooEarly(Base):
    def room(self, T):
        if self.length + T >= self.model.config.n_ctx:
            raise ValueError(f"{self.length + T} positions do not fit into n_ctx = {self.model.config.n_ctx}")


@wrong(CACHE, "run through the model again")
class KeepsTheText(Base):
    def reset(self):
        super().reset()
        self.text = None

    def forward(self, idx):
        self.room(idx.shape[1])
        T = idx.shape[1]
        self.text = idx if self.text is None else ops.cat((self.text, idx), axis=1)
        fresh = Base(self.model)
        out = fresh.forward(self.text)
        self.length = fresh.length
        return out[:, -T:]


@wrong(CACHE, "training mode")
class SwitchesToTraining(Base):
    def forward(self, idx):
        self.model.set_train(True)
        return super().forward(idx)


@wrong(CACHE, "is changed by the cache")
class ChangesTheModel(Base):
    def forward(self, idx):
        out = super().forward(idx)
        ops.assign(self.model.wpe.weight, self.model.wpe.weight * 1.0000001 + 1e-7)
        return out


@wrong(CACHE, "n_head")
class ThreeHeadsWrittenDown(Base):
    def qkv(self, block, x):
        q, k, v = ops.chunk(block.attn.c_attn(block.ln_1(x)), 3, axis=-1)
        return [split_heads(p, 3 if x.shape[-1] % 3 == 0 else 2) for p in (q, k, v)]


right(CACHE)(Base)


@right(CACHE)
class PlainTuples:
    """A list of pairs, NumPy's mask, the embeddings by indexing."""

    def __init__(self, model):
        self.model, self.past = model, None

    def reset(self):
        self.past = None

    @property
    def length(self):
        return 0 if self.past is None else self.past[0][0].shape[2]

    def forward(self, idx):
        m = self.model
        B, T = idx.shape
        start = self.length
        if start + T > m.config.n_ctx:
            raise ValueError(f"only {m.config.n_ctx - start} more positions fit")
        x = m.wte.weight[idx] + m.wpe.weight[start : start + T]
        present = []
        hidden = ms.Tensor(np.triu(np.ones((T, start + T), bool), start + 1))
        for i, block in enumerate(m.h):
            H, C = block.attn.n_head, x.shape[-1]
            q, k, v = block.attn.c_attn(block.ln_1(x)).reshape(B, T, 3, H, C // H).transpose(2, 0, 3, 1, 4)
            if self.past is not None:
                k = ops.concat([self.past[i][0], k], -2)
                v = ops.concat([self.past[i][1], v], -2)
            present.append((k, v))
            scores = ops.matmul(q, k.swapaxes(2, 3)) * (1 / math.sqrt(C // H))
            y = ops.matmul(ops.softmax(ops.masked_fill(scores, hidden, -1e9), axis=-1), v)
            x = x + block.attn.c_proj(y.transpose(0, 2, 1, 3).reshape(B, T, C))
            x = x + block.mlp(block.ln_2(x))
        self.past = present
        return ops.matmul(m.ln_f(x), m.wte.weight.T)


@right(CACHE)
class OneTokenAtATime(Base):
    """Chunks are fed token by token: no mask is needed."""

    def forward(self, idx):
        self.room(idx.shape[1])
        return ops.cat([self.one(idx[:, t : t + 1]) for t in range(idx.shape[1])], axis=1)

    def one(self, idx):
        x = self.embed(idx)
        for layer, block in enumerate(self.model.h):
            x = self.block(layer, block, x)
        self.length += 1
        return self.head(x)

    def attend(self, q, k, v):
        return attention(q, k, v)


@right(CACHE)
class InNumPy(Base):
    """Keys and values kept as arrays in buffers of n_ctx positions."""

    def append(self, layer, k, v):
        B, H, T, D = k.shape
        if self.keys[layer] is None:
            self.keys[layer] = np.zeros((B, H, self.model.config.n_ctx, D), np.float32)
            self.values[layer] = np.zeros((B, H, self.model.config.n_ctx, D), np.float32)
        end = self.length + T
        self.keys[layer][:, :, self.length : end] = k.asnumpy()
        self.values[layer][:, :, self.length : end] = v.asnumpy()
        return ms.Tensor(self.keys[layer][:, :, :end]), ms.Tensor(self.values[layer][:, :, :end])


@right(CACHE)
class InADictionary(Base):
    """Keys and values in one dictionary, split by [...]."""

    def reset(self):
        self.length, self.held = 0, {}

    def append(self, layer, k, v):
        if layer in self.held:
            old_k, old_v = self.held[layer]
            k, v = ops.cat((old_k, k), 2), ops.cat((old_v, v), 2)
        self.held[layer] = k, v
        return self.held[layer]
