"""Wrong and right answers to the cache of fixed shapes of lesson 21."""
import mindspore as ms
import numpy as np
from mindspore import nn, ops

from course.checks.mindspore.static_cache import CACHE
from solutions.mindspore import static_cache
from solutions.mindspore.attention import attention, merge_heads, split_heads
from solutions.mindspore.primitives import linear
from tests.mistakes import right, wrong

Right = static_cache.StaticKVCache


def stepping(seen=lambda places, p: places <= p, here=lambda places, p: places == p, write="assign", where=lambda at, new, old: ops.where(at, new, old), place=lambda p: p, slot=lambda i: i, values=True, head=True, ln=True):
    """A class whose step is right but for the parts that are given."""

    class StaticKVCache(Right):
        def step(self, token, position):
            model = self.model
            places = ops.arange(model.config.n_ctx)
            at = here(places, position).reshape(-1, 1)
            x = model.wte(token) + model.wpe(place(position))
            for layer, block in enumerate(model.h):
                q, k, v = block.attn.c_attn(block.ln_1(x) if ln else x).split(x.shape[-1], axis=-1)
                q, k, v = (split_heads(t, block.attn.n_head) for t in (q, k, v))
                K, W = self.keys[slot(layer)], self.values[slot(layer)]
                k = where(at, k, K)
                v = where(at, v, W if values else ops.zeros_like(W))
                if write == "assign":
                    k, v = ops.assign(K, k), ops.assign(W, v)
                y = attention(q, k, v, seen(places, position))
                x = x + block.attn.c_proj(merge_heads(y))
                x = x + block.mlp(block.ln_2(x))
            return linear(model.ln_f(x), model.wte.weight) if head else x

    return StaticKVCache


for name, says, parts in [
    ("AllPlaces", "places behind the newest token are not hidden", {"seen": lambda places, p: places >= 0}),
    ("ItselfHidden", "it sees no place at all", {"seen": lambda places, p: places < p}),
    ("OneAhead", "empty place behind it", {"seen": lambda places, p: places <= p + 1}),
    ("MaskTurned", "the wrong way round", {"seen": lambda places, p: places >= p}),
    ("OnlyItself", "nothing but itself", {"seen": lambda places, p: places == p}),
    ("WritesLate", "one place too late", {"here": lambda places, p: places == p + 1}),
    ("WritesFirst", "of earlier tokens are gone", {"here": lambda places, p: places == 0}),
    ("WritesAll", "nothing but itself", {"here": lambda places, p: places >= 0}),
    ("ForgetsTheOld", "of earlier tokens are gone", {"where": lambda at, new, old: ops.where(at, new, ops.zeros_like(old))}),
    ("NeverWrites", "of earlier tokens are gone", {"write": "no"}),
    ("KeysOnly", "values are not", {"values": False}),
    ("OneBuffer", "one buffer serves all layers", {"slot": lambda i: 0}),
    ("PositionZero", "start again at 0", {"place": lambda p: p * 0}),
    ("NoHead", "the head is missing", {"head": False}),
    ("NoLn", "ln_1 is left out", {"ln": False}),
]:
    made = stepping(**parts)
    made.__name__ = name
    wrong(CACHE, says)(made)


@wrong(CACHE, "are None")
class StepReturnsNone(Right):
    def step(self, token, position):
        super().step(token, position)


@wrong(CACHE, "for a batch of 3")
class OneSequence(Right):
    """Two rows of each buffer whatever the batch is."""

    def step(self, token, position):
        got = super().step(token, position)
        return got if len(token) < 3 else ops.cat((got[:2], got[:1]), axis=0)


@wrong(CACHE, "each token compiles anew")
class CompiledInForward(Right):
    def forward(self, idx):
        if idx.shape[1] > 1:
            self.compiled = ms.jit(self.step)
        return super().forward(idx)


@wrong(CACHE, "as a Python number")
class PositionAsANumber(Right):
    def forward(self, idx):
        if self.length + idx.shape[1] > self.model.config.n_ctx:
            raise ValueError("the text does not fit into n_ctx: reset the cache")
        logits = []
        for t in range(idx.shape[1]):
            logits.append(self.compiled(idx[:, t : t + 1], self.length))
            self.length += 1
        return ops.cat(logits, axis=1)


class Eager(Right):
    """Compiles nothing; what is wrong besides is seen first."""

    def __init__(self, model, batch_size=1):
        super().__init__(model, batch_size)
        self.compiled = self.step


@wrong(CACHE, "nothing is compiled")
class NeverCompiled(Eager):
    pass


@wrong(CACHE, "the length is 0")
class LengthStands(Eager):
    def forward(self, idx):
        got = super().forward(idx)
        self.length -= idx.shape[1]
        return got


@wrong(CACHE, "the length is")
class LengthAsATensor(Eager):
    def forward(self, idx):
        got = super().forward(idx)
        self.length = ms.Tensor(self.length, ms.int32)
        return got


@wrong(CACHE, "start again at 0 with each call")
class CountsFromZero(Eager):
    def forward(self, idx):
        held, self.length = self.length, 0
        got = super().forward(idx)
        self.length += held
        if self.length > self.model.config.n_ctx:
            raise ValueError("the text does not fit into n_ctx: reset the cache")
        return got


@wrong(CACHE, "position that does not exist")
class EndsOneLate(Eager):
    def forward(self, idx):
        if self.length + idx.shape[1] > self.model.config.n_ctx + 1:
            raise ValueError("the text does not fit into n_ctx: reset the cache")
        logits = []
        for t in range(idx.shape[1]):
            logits.append(self.step(idx[:, t : t + 1], ms.Tensor(self.length, ms.int32)))
            self.length += 1
        return ops.cat(logits, axis=1)


@wrong(CACHE, "past n_ctx comes AssertionError")
class AssertsTheEnd(Eager):
    def forward(self, idx):
        assert self.length + idx.shape[1] <= self.model.config.n_ctx, "the text does not fit into n_ctx"
        return super().forward(idx)


@wrong(CACHE, "a tensor in a list is a constant")
class BuffersInAList(Right):
    def buffers(self, name, shape):
        return [ops.zeros(shape, ms.float32) for _ in range(self.model.config.n_layer)]


@wrong(CACHE, "two buffers have one name")
class NamesOfLayersOnly(Right):
    def buffers(self, name, shape):
        return super().buffers("layer", shape)


@wrong(CACHE, "only the logits of one token")
class LastLogitsOnly(Eager):
    def forward(self, idx):
        return super().forward(idx)[:, -1:]


@wrong(CACHE, "join the logits")
class ListOfLogits(Eager):
    def forward(self, idx):
        got = super().forward(idx)
        return [got[:, t : t + 1] for t in range(got.shape[1])]


@wrong(CACHE, "joined along the batch")
class JoinsTheBatch(Eager):
    def forward(self, idx):
        got = super().forward(idx)
        return ops.cat([got[:, t : t + 1] for t in range(got.shape[1])], axis=0)


@wrong(CACHE, "after reset the length")
class ResetForgetsLength(Right):
    def reset(self):
        if not hasattr(self, "length"):
            self.length = 0


@wrong(CACHE, "second prompt")
class SeesTheOldPrompt(Right):
    """What was ever written stays in sight."""

    def __init__(self, model, batch_size=1):
        self.longest = ms.Parameter(ms.Tensor(0, ms.int32), name="longest", requires_grad=False)
        super().__init__(model, batch_size)

    def step(self, token, position):
        model = self.model
        places = ops.arange(model.config.n_ctx)
        longest = ops.assign(self.longest, ops.maximum(self.longest, position))
        at = (places == position).reshape(-1, 1)
        x = model.wte(token) + model.wpe(position)
        for layer, block in enumerate(model.h):
            q, k, v = block.attn.c_attn(block.ln_1(x)).split(x.shape[-1], axis=-1)
            q, k, v = split_heads(q, block.attn.n_head), split_heads(k, block.attn.n_head), split_heads(v, block.attn.n_head)
            k = ops.assign(self.keys[layer], ops.where(at, k, self.keys[layer]))
            v = ops.assign(self.values[layer], ops.where(at, v, self.values[layer]))
            x = x + block.attn.c_proj(merge_heads(attention(q, k, v, places <= longest)))
            x = x + block.mlp(block.ln_2(x))
        return linear(model.ln_f(x), model.wte.weight)


@wrong(CACHE, "more than n_ctx positions without a word")
class NoEnd(Right):
    def forward(self, idx):
        B, T = idx.shape
        n_ctx = self.model.config.n_ctx
        if self.length + T > n_ctx:
            self.reset()
            idx = idx[:, -n_ctx:]
        return super().forward(idx)


@wrong(CACHE, "ValueError before the cache is full")
class EndsOneEarly(Right):
    def forward(self, idx):
        if self.length + idx.shape[1] >= self.model.config.n_ctx:
            raise ValueError("the cache is full: reset it first")
        return super().forward(idx)


@wrong(CACHE, "after the ValueError the length is")
class LooksTooLate(Right):
    def forward(self, idx):
        logits = []
        for t in range(idx.shape[1]):
            if self.length >= self.model.config.n_ctx:
                raise ValueError("the buffer is full: reset the cache")
            logits.append(super().forward(idx[:, t : t + 1]))
        return ops.cat(logits, axis=1)


shared = {}


@wrong(CACHE, "disturb each other")
class BuffersOfTheClass(Right):
    def buffers(self, name, shape):
        if (name, shape) not in shared:
            shared[name, shape] = super().buffers(name, shape)
        return shared[name, shape]


@right(CACHE)
class ByProducts(Right):
    """The old with its place emptied, plus the new at that place; reset empties the buffers."""

    def reset(self):
        self.length = 0
        for buffer in (*self.keys, *self.values):
            ops.assign(buffer, ops.zeros_like(buffer))

    def step(self, token, position):
        model = self.model
        places = ops.arange(model.config.n_ctx)
        at = (places == position).astype(ms.float32).reshape(-1, 1)
        x = model.wte(token) + model.wpe(position)
        for layer, block in enumerate(model.h):
            q, k, v = block.attn.c_attn(block.ln_1(x)).split(x.shape[-1], axis=-1)
            q, k, v = split_heads(q, block.attn.n_head), split_heads(k, block.attn.n_head), split_heads(v, block.attn.n_head)
            k = k * at + self.keys[layer] * (1 - at)
            v = v * at + self.values[layer] * (1 - at)
            ops.assign(self.keys[layer], k)
            ops.assign(self.values[layer], v)
            x = x + block.attn.c_proj(merge_heads(attention(q, k, v, ops.logical_not(places > position))))
            x = x + block.mlp(block.ln_2(x))
        return linear(model.ln_f(x), model.wte.weight)


@right(CACHE)
class OneParameterForAll(Right):
    """Keys and values of all layers in one list."""

    def __init__(self, model, batch_size=1):
        super().__init__(model, batch_size)
        self.compiled = ms.jit(self.step)

    def forward(self, idx):
        n_ctx = self.model.config.n_ctx
        if self.length + idx.shape[1] > n_ctx:
            raise ValueError(f"only {n_ctx - self.length} more positions fit into the cache")
        got = [self.compiled(token, ms.Tensor(np.array(self.length + t, np.int32))) for t, token in enumerate(ops.split(idx, 1, axis=1))]
        self.length += len(got)
        return got[0] if len(got) == 1 else ops.cat(got, axis=1)


@right(CACHE)
class KeysAndValuesAtOnce(Right):
    """Asks for the room first, and hands the position out as an array."""

    def forward(self, idx):
        logits = None
        if idx.shape[1] > self.model.config.n_ctx - self.length:
            raise ValueError("there is no room for so many positions, reset first")
        for t in range(idx.shape[1]):
            new = self.compiled(idx[:, t].reshape(-1, 1), ms.Tensor(np.int32(self.length)))
            logits = new if logits is None else ops.cat((logits, new), axis=1)
            self.length = self.length + 1
        return logits


class Cached(nn.Cell):
    prefix = False

    def __init__(self, model, batch_size=1):
        super().__init__(auto_prefix=self.prefix)
        config = model.config
        shape = (batch_size, config.n_head, config.n_ctx, config.n_embd // config.n_head)
        self.model = model
        self.keys = ms.ParameterTuple([ms.Parameter(ops.zeros(shape), name=f"k{i}") for i in range(config.n_layer)])
        self.values = ms.ParameterTuple([ms.Parameter(ops.zeros(shape), name=f"v{i}") for i in range(config.n_layer)])
        self.run = ms.jit(self.step)
        self.length = 0

    def reset(self):
        self.length = 0

    def step(self, token, position):
        return Right.step(self, token, position)

    def forward(self, idx):
        if self.length + idx.shape[1] > self.model.config.n_ctx:
            raise ValueError("the text does not fit into n_ctx: reset the cache")
        logits = []
        for t in range(idx.shape[1]):
            logits.append(self.run(idx[:, t : t + 1], ms.Tensor(self.length, ms.int32)))
            self.length += 1
        return ops.cat(logits, axis=1)


@right(CACHE)
class CellWithoutPrefix(Cached):
    pass


@wrong(CACHE, "have other names")
class CellThatRenames(Cached):
    prefix = True
