import mindspore as ms
import numpy as np
import torch
from mindspore import nn, ops
from safetensors import safe_open
from safetensors.numpy import load_file

from solutions.mindspore import stages as reference
from solutions.mindspore.embeddings import Embedding
from solutions.mindspore.gpt import GPT, Block, init_weights
from solutions.mindspore.layers import LayerNorm
from solutions.mindspore.primitives import linear
from tests.mistakes import right, wrong

SLICE = "mindspore.stages.LocalSliceGPT"


class Right(reference.LocalSliceGPT):
    """For the variants below to go wrong with."""


class Steps(Right):
    """construct in three steps, for a mistake in one of them."""

    def construct(self, x):
        if self.first:
            x = self.begin(x)
        x = self.through(x)
        return self.end(x) if self.last else x

    def begin(self, x):
        B, T = x.shape
        if T > self.config.n_ctx:
            raise ValueError("too many tokens for n_ctx positions")
        return self.wte(x) + self.wpe(ops.arange(T))

    def through(self, x):
        for block in self.h.values():
            x = block(x)
        return x

    def end(self, x):
        return linear(self.ln_f(x), self.wte.weight)


@wrong(SLICE, "should be a mindspore.nn.Cell")
class TorchModule(torch.nn.Module):
    def __init__(self, config, counts, stage):
        super().__init__()


@wrong(SLICE, "the stage holds every layer of the model")
class Everything(GPT):
    def __init__(self, config, counts, stage):
        super().__init__(config)


class Numbered(nn.Cell):
    """A slice with the layers in a container that the subclass names."""

    def __init__(self, config, counts, stage):
        super().__init__()
        self.first, self.last = stage == 0, stage == len(counts) - 1
        start = sum(counts[:stage])
        if self.first or self.last:
            self.wte = Embedding(config.vocab_size, config.n_embd)
        if self.first:
            self.wpe = Embedding(config.n_ctx, config.n_embd)
        self.h = self.container({str(i): Block(config) for i in range(start, start + counts[stage])})
        if self.last:
            self.ln_f = LayerNorm(config.n_embd)
        init_weights(self, config.n_layer)


@wrong(SLICE, "counted from 0")
class LocalNumbers(Numbered):
    def container(self, blocks):
        return nn.CellList(list(blocks.values()))


@wrong(SLICE, "Python list or dict")
class PlainDict(Numbered):
    def container(self, blocks):
        return blocks


@wrong(SLICE, "the last stage needs wte too")
class HeadForgotten(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        if self.last and not self.first:
            del self.wte


@wrong(SLICE, "ln_f.weight belongs to the last stage")
class NormEverywhere(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        self.ln_f = LayerNorm(config.n_embd)


@wrong(SLICE, "calls itself")
class OtherNames(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        if self.last:
            self.ln_f.weight.name = "final.weight"


@wrong(SLICE, "the positions are missing")
class NoPositions(Steps):
    def begin(self, x):
        if x.shape[1] > self.config.n_ctx:
            raise ValueError("too many tokens for n_ctx positions")
        return self.wte(x)


@wrong(SLICE, "from the last to the first")
class BackToFront(Steps):
    def through(self, x):
        for block in list(self.h.values())[::-1]:
            x = block(x)
        return x


@wrong(SLICE, "the head is missing")
class NoHead(Steps):
    def end(self, x):
        return self.ln_f(x)


@wrong(SLICE, "the result is a tuple")
class WithLoss(Steps):
    def construct(self, x):
        if self.first:
            x = self.begin(x)
        x = self.through(x)
        return (self.end(x), None) if self.last else x


@wrong(SLICE, "T = 1")
class MoreThanOneToken(Steps):
    def through(self, x):
        for block in self.h.values():
            x = block(x)
        return x if x.shape[1] > 1 else x + 0.1 * ops.arange(x.shape[2])


@wrong(SLICE, "no gradient comes out at the front")
class InputCut(Steps):
    def through(self, x):
        if not self.first:
            x = ops.stop_gradient(x)
        for block in self.h.values():
            x = block(x)
        return x


@wrong(SLICE, "no gradient reaches wte.weight on stage 2")
class HeadCut(Steps):
    def end(self, x):
        return linear(self.ln_f(x), ops.stop_gradient(self.wte.weight))


@wrong(SLICE, "it works eagerly and not in graph mode")
class TriesInConstruct(Steps):
    def through(self, x):
        try:
            for block in self.h.values():
                x = block(x)
        except ValueError:
            pass
        return x


@wrong(SLICE, "does not get the numbers of the file")
class InPlace(Right):
    def load(self, path):
        with safe_open(path, framework="np") as file:
            for name, p in self.parameters_and_names():
                p.copy_ if False else p.mul_(0).add_(ms.Tensor(file.get_tensor(name)))


@wrong(SLICE, "gets the numbers of another one")
class LocalNames(Right):
    def load(self, path):
        start = min((int(k) for k in self.h.keys()), default=0)
        with safe_open(path, framework="np") as file:
            for name, p in self.parameters_and_names():
                parts = name.split(".")
                if parts[0] == "h":
                    parts[1] = str(int(parts[1]) - start)
                p.set_data(ms.Tensor(file.get_tensor(".".join(parts))))


@wrong(SLICE, "a file that fits is refused")
class ListAgainstTuple(Right):
    def load(self, path):
        with safe_open(path, framework="np") as file:
            for name, p in self.parameters_and_names():
                if file.get_slice(name).get_shape() != p.shape:
                    raise ValueError(f"{name} has another shape in the file")
        super().load(path)


@wrong(SLICE, "load asks for tensors that other stages own")
class WholeModelFirst(Right):
    def load(self, path):
        whole = GPT(self.config)
        tensors = load_file(path)
        for name, p in whole.parameters_and_names():
            p.set_data(ms.Tensor(tensors[name].astype(np.float32)))
        for name, p in self.parameters_and_names():
            p.set_data(dict(whole.parameters_and_names())[name])


@wrong(SLICE, "load reads tensors that the stage does not own")
class ReadsAll(Right):
    def load(self, path):
        tensors = load_file(path)
        for name, p in self.parameters_and_names():
            if name not in tensors or tensors[name].shape != p.shape:
                raise ValueError(f"{name} is not in the file, or in another shape")
        for name, p in self.parameters_and_names():
            p.set_data(ms.Tensor(tensors[name].astype(np.float32)))


@wrong(SLICE, "load reads tensors that the stage does not own")
class ReadsAllByTheFramework(Right):
    def load(self, path):
        tensors = ms.load_checkpoint(str(path), format="safetensors")
        for name, p in self.parameters_and_names():
            if name not in tensors or tensors[name].shape != p.shape:
                raise ValueError(f"{name} is not in the file, or in another shape")
        for name, p in self.parameters_and_names():
            p.set_data(tensors[name].astype(ms.float32))


@wrong(SLICE, "a weight is transposed")
class TransposedAsInGPT2(Right):
    def load(self, path):
        super().load(path)
        for name, p in self.parameters_and_names():
            if name.endswith("attn.c_proj.weight"):
                p.set_data(ms.Tensor(p.asnumpy().T.copy()))


@wrong(SLICE, "under several numbers")
class OneBlock(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        block = Block(config)
        self.h = nn.CellDict({name: block for name in self.h.keys()})


@wrong(SLICE, "stages count from 0")
class StagesFromOne(Right):
    def __init__(self, config, counts, stage):
        if not 1 <= stage <= len(counts):
            raise ValueError(f"there is no stage {stage} of {len(counts)}")
        super().__init__(config, counts, stage - 1)


@wrong(SLICE, "another shape, and load passes without a word")
class ShapeNotAsked(Right):
    def load(self, path):
        with safe_open(path, framework="np") as file:
            for name, p in self.parameters_and_names():
                if name not in file.keys():
                    raise ValueError(f"{name} is not in the file, and this stage needs it")
            for name, p in self.parameters_and_names():
                p.set_data(ms.Tensor(file.get_tensor(name).astype(np.float32)))


@wrong(SLICE, "is missing, and load passes without a word")
class FrameworkLoad(Right):
    """load_param_into_net says nothing of what is missing: it returns it."""

    def load(self, path):
        with safe_open(path, framework="np") as file:
            own = {n: ms.Parameter(file.get_tensor(n).astype(np.float32), name=n) for n, _ in self.parameters_and_names() if n in file.keys()}
        ms.load_param_into_net(self, own)


@wrong(SLICE, "counts the layers of the stage")
class LocalDepth(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage)
        init_weights(self, counts[stage] or 1)


@wrong(SLICE, "stage -1 is accepted")
class StageFromBehind(Right):
    def __init__(self, config, counts, stage):
        super().__init__(config, counts, stage % len(counts) if stage < 0 else stage)


@right(SLICE)
class InSteps(Steps):
    pass


@right(SLICE)
class NamedByHand(nn.Cell):
    """Layers put into the dict one by one, and run by their names."""

    def __init__(self, config, counts, stage):
        super().__init__()
        if sum(counts) != config.n_layer or stage not in range(len(counts)):
            raise ValueError(f"counts {counts} and stage {stage} do not fit {config.n_layer} layers")
        self.n_ctx, self.is_first, self.is_last = config.n_ctx, stage == 0, stage == len(counts) - 1
        if self.is_first or self.is_last:
            self.wte = Embedding(config.vocab_size, config.n_embd)
        if self.is_first:
            self.wpe = Embedding(config.n_ctx, config.n_embd)
        blocks = {}
        for i in range(sum(counts[:stage]), sum(counts[: stage + 1])):
            blocks[str(i)] = Block(config)
        self.h = nn.CellDict(blocks)
        if self.is_last:
            self.ln_f = LayerNorm(config.n_embd)
        init_weights(self, config.n_layer)

    def construct(self, x):
        if self.is_first:
            if x.shape[1] > self.n_ctx:
                raise ValueError("more tokens than n_ctx")
            x = self.wte(x) + self.wpe.weight[: x.shape[1]]
        for _, block in self.h.items():
            x = block(x)
        if self.is_last:
            x = ops.matmul(self.ln_f(x), self.wte.weight.swapaxes(0, 1))
        return x

    load = reference.LocalSliceGPT.load


@right(SLICE)
class Assigned(Right):
    def load(self, path):
        own = dict(self.parameters_and_names())
        with safe_open(str(path), framework="numpy") as file:
            for name, p in own.items():
                if name not in file.keys() or tuple(file.get_slice(name).get_shape()) != p.shape:
                    raise ValueError(f"{name} should have shape {p.shape} in the file")
            for name, p in own.items():
                ops.assign(p, ms.Tensor(np.array(file.get_tensor(name), np.float32)))


@right(SLICE)
class ThroughTheFramework(Right):
    def load(self, path):
        with safe_open(str(path), framework="np") as file:
            names = [name for name, _ in self.parameters_and_names()]
            missing = sorted(set(names) - set(file.keys()))
            if missing:
                raise ValueError(f"the file lacks {missing}")
            own = {name: ms.Parameter(file.get_tensor(name).astype(np.float32), name=name) for name in names}
        for name, p in self.parameters_and_names():
            if own[name].shape != p.shape:
                raise ValueError(f"{name} has another shape in the file")
        lost, _ = ms.load_param_into_net(self, own)
        assert not lost
