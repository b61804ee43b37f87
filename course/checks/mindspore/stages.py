"""Checks of lesson 19, the port: LocalSliceGPT. The oracle is lesson 06's: GPT-2 as functions of its state dict, from torch.nn.functional."""
import math
import tempfile
import tracemalloc
from pathlib import Path

import mindspore as ms
import numpy as np
import torch
from mindspore import nn
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file

from course.checks import checks
from course.checks.mindspore import call, close, equal, fail, is_tensor, parameters_are, rand, rand_ids, same_in_graph_mode
from course.checks.mindspore import gpt as gpt_checks
from course.checks.pytorch import gpt as oracle
from course.checks.pytorch.stages import CONFIG, built, hidden_of, name_the_names, shapes_of, stage_known, weights_of

ms.runtime.launch_blocking()    # few numbers and many operations: to wait for each is many times faster than to hand it over

SLICE = "mindspore.stages.LocalSliceGPT"
COUNTS = [[2, 2, 1], [5], [0, 5]]


def arrays_of(weights):
    return {name: np.array(w.detach()) for name, w in weights.items()}


@checks(SLICE, "what each stage owns")
def slice_names(LocalSliceGPT):
    for counts in COUNTS:
        for stage in range(len(counts)):
            made = built(gpt_checks.made, LocalSliceGPT, counts, stage)
            if not isinstance(made, nn.Cell):
                fail(f"LocalSliceGPT should be a mindspore.nn.Cell and is of type {type(made).__name__}.", look="the line class LocalSliceGPT(nn.Cell)")
            if isinstance(getattr(made, "h", None), (list, dict)):
                fail("the layers are kept in a Python list or dict: nobody finds their parameters.", look="nn.CellList, nn.CellDict")
            found, wanted = {n: tuple(p.shape) for n, p in made.parameters_and_names()}, shapes_of(CONFIG, counts, stage)
            blocks = [id(block) for block in made.h.values()] if isinstance(getattr(made, "h", None), nn.CellDict) else []
            if len(set(blocks)) < len(blocks):
                fail("one and the same Block stands under several numbers: create each anew.", example=f"stage {stage} of {counts}", look="where Block(config) is called")
            name_the_names(found, wanted, counts, stage)
            parameters_are(made, wanted, f"stage {stage} of {counts}")
            gpt_checks.names_agree(made, f"stage {stage} of {counts}")


def stages_of(LocalSliceGPT, weights, sizes, counts):
    """The stages with these weights, tensors of the oracle."""
    made = [LocalSliceGPT(oracle.config(sizes), list(counts), i) for i in range(len(counts))]
    for stage in made:
        for name, p in stage.parameters_and_names():
            p.set_data(ms.Tensor(np.array(weights[name].detach())))
    return made


@checks(SLICE, "each stage by itself", seconds=20)
def slice_values(LocalSliceGPT):
    p = weights_of()
    idx = rand_ids(2, 5, n=11, seed=3)
    ids = torch.from_numpy(idx.astype(np.int64))
    for counts in ([2, 2, 1], [0, 5]):
        for stage, cell in enumerate(stages_of(LocalSliceGPT, p, CONFIG, counts)):
            start, last = sum(counts[:stage]), stage == len(counts) - 1
            stream = hidden_of(p, ids, CONFIG, start)
            want = np.array(oracle.logits_of(p, ids, CONFIG) if last else hidden_of(p, ids, CONFIG, start + counts[stage]))
            got = call(cell, np.array(stream) if stage else idx)
            if isinstance(got, tuple):
                fail("the result is a tuple: a stage gives one tensor, the stream or the logits. The loss is taken outside.")
            if not equal(got, want, 1e-5):
                for words, value in stage_known(p, stream if stage else ids, CONFIG, counts, stage):
                    value = np.array(value)
                    if equal(got, value, 1e-5) and not (value.shape == want.shape and np.allclose(value, want, rtol=2e-5, atol=2e-5)):
                        fail(words, example=f"stage {stage} of {counts}")
            is_tensor(got, want.shape, ms.float32)
            close(got, want, 1e-5, name=f"the result of stage {stage} of {counts}", look="what the first, the middle and the last stage do")


@checks(SLICE, "the stages one after the other", seconds=20)
def slice_chain(LocalSliceGPT):
    for sizes, counts in [(CONFIG, [1, 4]), (oracle.OTHER, [1, 1])]:
        p = weights_of(sizes, scale=0.3)
        made = stages_of(LocalSliceGPT, p, sizes, counts)
        for T in (1, sizes["n_ctx"]):
            idx = rand_ids(2, T, n=sizes["vocab_size"], seed=T)
            x = ms.Tensor(idx)
            for stage in made:
                x = stage(x)
            want = oracle.logits_of(p, torch.from_numpy(idx.astype(np.int64)), sizes)
            close(x, np.array(want), 1e-5, name=f"the logits of the stages {counts}, T = {T}", look="sizes that are written as numbers")


@checks(SLICE, "gradients", seconds=20)
def slice_gradients(LocalSliceGPT):
    sizes, counts = dict(CONFIG, n_layer=3), [1, 1, 1]   # a stage of each kind
    p = {n: w.requires_grad_() for n, w in weights_of(sizes, scale=0.3).items()}
    idx = rand_ids(2, 5, n=11, seed=5)
    logits = oracle.logits_of(p, torch.from_numpy(idx.astype(np.int64)), sizes)
    weighting = rand(*logits.shape, seed=7)
    wanted = dict(zip(p, torch.autograd.grad((logits * torch.from_numpy(weighting)).sum(), list(p.values()))))
    made = stages_of(LocalSliceGPT, p, sizes, counts)
    inputs = [ms.Tensor(idx)]
    for stage in made[:-1]:
        inputs.append(stage(inputs[-1]))
    back, found = ms.Tensor(weighting), {}
    for at in reversed(range(3)):
        stage = made[at]

        def weighted(x, back):
            return (stage(x) * back).sum()

        weights = list(stage.trainable_params())
        if at:
            to_x, to_weights = ms.grad(weighted, 0, weights=weights)(inputs[at], back)
        else:
            to_x, to_weights = None, ms.grad(weighted, None, weights=weights)(inputs[at], back)
        for q, grad in zip(weights, to_weights):
            grad = grad.asnumpy()
            if not np.abs(grad).max() > 0 and np.abs(np.array(wanted[q.name])).max() > 0:
                fail(f"no gradient reaches {q.name} on stage {at}.", look=gpt_checks.CUT)
            found[q.name] = found.get(q.name, 0) + grad
        back = to_x
        if at and not np.abs(back.asnumpy()).max() > 0:
            fail("no gradient comes out at the front of a stage: the stage before it would learn nothing.", look=gpt_checks.CUT)
    for name, want in wanted.items():
        want = np.array(want)
        close(ms.Tensor(found[name]), want, 1e-5 * max(1.0, float(np.abs(want).max())), name=f"the gradient of {name}, summed over the stages")


def saved(folder, tensors):
    path = Path(folder) / "model.safetensors"
    save_file({name: np.ascontiguousarray(t) for name, t in tensors.items()}, path)
    return path


def holds(stage, tensors, name):
    return np.array_equal(dict(stage.parameters_and_names())[name].asnumpy(), tensors[name])


@checks(SLICE, "load: the numbers of the file", seconds=20)
def slice_load(LocalSliceGPT):
    p = arrays_of(weights_of())
    with tempfile.TemporaryDirectory() as folder:
        path = saved(folder, p)
        for counts in ([2, 2, 1], [5]):
            for at in range(len(counts)):
                stage = LocalSliceGPT(oracle.config(CONFIG), list(counts), at)
                before = dict(stage.parameters_and_names())
                if not callable(getattr(stage, "load", None)):
                    fail("there is no method load.")
                try:
                    stage.load(str(path) if at else path)
                except ValueError as error:
                    fail("a file that fits is refused.", example=f"ValueError: {str(error).strip()[:100]}", look="what is compared: get_shape() gives a list, and a list is never equal to a tuple")
                for name, q in stage.parameters_and_names():
                    if q is not before[name]:
                        fail("load makes new parameters: an optimizer that knows the old ones trains nothing. Write the numbers into those that are there.", example=name, look="set_data")
                    if holds(stage, p, name):
                        continue
                    others = [n for n, w in p.items() if w.shape == tuple(q.shape) and np.array_equal(q.asnumpy(), w)]
                    example = f"{name} on stage {at} of {counts}"
                    if others:
                        fail("a parameter gets the numbers of another one: layers have their number in the whole model.", example=f"{example} holds {others[0]}")
                    if q.ndim == 2 and q.shape[0] == q.shape[1] and np.array_equal(q.asnumpy(), p[name].T):
                        fail("a weight is transposed: this file has the model's own names and its own order of axes, not GPT-2's.", example=example)
                    fail("a parameter does not get the numbers of the file.", example=f"{example} is not {name} of the file", look="whether anything reaches the parameter: p = ... only gives a name to something new, in-place methods that end in _ do nothing on a CPU; set_data works")
        half = {name: w.astype(np.float16) for name, w in p.items()}
        stage = LocalSliceGPT(oracle.config(CONFIG), [2, 2, 1], 1)
        stage.load(saved(folder, half))
        for name, q in stage.parameters_and_names():
            if q.dtype != ms.float32 or not np.array_equal(q.asnumpy(), half[name].astype(np.float32)):
                fail("a file in float16 changes the dtype of the parameters, or is not read right: they stay float32.", example=f"{name} has dtype {q.dtype}", look="p.set_data(tensor) keeps the dtype of p; a new ms.Parameter has that of the file")


@checks(SLICE, "load: its own tensors only", seconds=20)
def slice_load_own(LocalSliceGPT):
    p, counts = arrays_of(weights_of()), [2, 2, 1]
    with tempfile.TemporaryDirectory() as folder:
        for at in range(3):
            own = {n: p[n] for n in shapes_of(CONFIG, counts, at)}
            stage = LocalSliceGPT(oracle.config(CONFIG), counts, at)
            try:
                stage.load(saved(folder, own))
            except Exception as error:
                fail("load asks for tensors that other stages own.", example=f"a file with nothing but the tensors of stage {at} of {counts}: {type(error).__name__}: {str(error).strip()[:80]}", look="which names the loop goes over: those of the stage")
            if not all(holds(stage, p, name) for name in own):
                fail("a file with nothing but the tensors of the stage is not read.", look="which names the loop goes over: those of the stage")
        stage = LocalSliceGPT(oracle.config(CONFIG), counts, 1)
        path = saved(folder, {**p, "h.4.mlp.c_fc.weight": rand(13, 17), "unknown": np.zeros(2_000_000, np.float32)})
        tracing = tracemalloc.is_tracing()
        tracemalloc.start()
        try:
            held = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            stage.load(path)
            peak = tracemalloc.get_traced_memory()[1] - held
        except (ValueError, RuntimeError, KeyError) as error:
            fail("load stops at a tensor that the stage does not own: what others own is none of its business.", example=f"{type(error).__name__}: {str(error).strip()[:80]}")
        finally:
            if not tracing:
                tracemalloc.stop()
        if peak > 6_000_000:
            fail("load reads tensors that the stage does not own: the memory of one stage is what it is all about.", example=f"a tensor of another stage has 8 MB, and load takes {peak / 1e6:.0f} MB", look="load_file and ms.load_checkpoint read all; safe_open and get_tensor(name) read one")
        others = {name: torch.from_numpy(w) for name, w in p.items()} | {"unknown": torch.ones(5).to(torch.float8_e5m2)}   # which NumPy does not know
        save_torch_file(others, path)
        try:
            stage.load(path)
        except Exception as error:
            fail("load reads tensors that the stage does not own: the memory of one stage is what it is all about.", example=f"a tensor of another stage has a dtype that cannot be read: {type(error).__name__}: {str(error).strip()[:80]}", look="load_file and ms.load_checkpoint read all; safe_open and get_tensor(name) read one")


@checks(SLICE, "load: files that do not fit", seconds=20)
def slice_load_errors(LocalSliceGPT):
    p = arrays_of(weights_of())
    for what, change in [
        ("a tensor that the stage needs is missing", lambda t: t.pop("h.3.mlp.c_proj.bias")),
        ("a tensor has another shape", lambda t: t.update({"h.3.mlp.c_fc.weight": rand(12, 48)})),
    ]:
        with tempfile.TemporaryDirectory() as folder:
            tensors = dict(p)
            change(tensors)
            path = saved(folder, tensors)
            stage = LocalSliceGPT(oracle.config(CONFIG), [2, 2, 1], 1)
            before = {n: q.asnumpy().copy() for n, q in stage.parameters_and_names()}
            try:
                stage.load(path)
            except ValueError as error:
                if "h.3." not in str(error):
                    fail(f"{what}, and the ValueError does not name it.", example=f"ValueError: {str(error).strip()[:80]}")
            except Exception as error:
                fail(f"{what}, and {type(error).__name__} is raised; a ValueError that names the tensor is wanted.", example=f"{type(error).__name__}: {str(error).strip()[:80]}", look="ask before you read: file.keys(), and file.get_slice(name).get_shape()")
            else:
                fail(f"{what}, and load passes without a word.", look="file.keys(), file.get_slice(name).get_shape(); set_data takes any shape")
            if not all(np.array_equal(q.asnumpy(), before[n]) for n, q in stage.parameters_and_names()):
                fail(f"{what}, and load changes parameters before it says so: half a load is worse than none.", look="two loops: first ask for everything, then copy")


MIDDLE = dict(oracle.MIDDLE, n_layer=6)


@checks(SLICE, "weights at the start", seconds=20)
def slice_start(LocalSliceGPT):
    made = LocalSliceGPT(oracle.config(MIDDLE), [2, 2, 2], 1)
    L = MIDDLE["n_layer"]
    for projections, std, known in [(False, 0.02, oracle.start_mistakes(L)), (True, 0.02 / math.sqrt(2 * L), [
        ("the factor of c_proj counts the layers of the stage; it counts those of the whole model.", 0.02 / math.sqrt(4)),
        ("the factor of c_proj counts the stages; it counts the layers of the whole model.", 0.02 / math.sqrt(6)),
        *oracle.projection_mistakes(L),
    ])]:
        for name, w in gpt_checks.matrices(made, projections).items():
            gpt_checks.check_drawn(name, w, std, known)


@checks(SLICE, "arguments that do not fit")
def slice_errors(LocalSliceGPT):
    for counts, stage, what in [([2, 2], 0, "counts that give fewer layers than the model has"), ([2, 2, 2], 0, "counts that give more layers than the model has"), ([2, 2, 1], 3, "stage 3 of 3 stages, which count from 0,"), ([2, 2, 1], -1, "stage -1")]:
        try:
            LocalSliceGPT(oracle.config(CONFIG), counts, stage)
        except ValueError as error:
            if len(str(error).split()) < 4:
                fail(f"{what}: the ValueError says too little.", example=f"ValueError: {error}")
        except Exception as error:
            fail(f"{what} raises {type(error).__name__}; a ValueError with a sentence is wanted.", example=f"counts {counts}, stage {stage}: {type(error).__name__}: {str(error)[:60]}")
        else:
            fail(f"{what} is accepted: raise a ValueError.", example=f"n_layer 5, counts {counts}, stage {stage}")
    stage = LocalSliceGPT(oracle.config(CONFIG), [2, 2, 1], 0)
    try:
        stage(ms.Tensor(rand_ids(2, 8, n=11))).asnumpy()
    except ValueError as error:
        if "n_ctx" not in str(error) and len(str(error).split()) < 3:
            fail("the ValueError says nothing: tell how many tokens came and how many fit.", example=f"ValueError: {error}")
    except Exception as error:
        fail(f"more than n_ctx tokens raise {type(error).__name__} on the first stage; a ValueError with a sentence is wanted, as in GPT.", example=f"T = 8, n_ctx = 7: {str(error).strip()[:60]}")
    else:
        fail("more than n_ctx tokens are accepted on the first stage: there is no position for them.")


@checks(SLICE, "the same in graph mode", seconds=30)
def slice_graph(LocalSliceGPT):
    sizes = dict(CONFIG, n_layer=2)
    first, last = stages_of(LocalSliceGPT, weights_of(sizes, scale=0.3), sizes, [1, 1])
    same_in_graph_mode(gpt_checks.alone(first), rand_ids(2, 5, n=11, seed=9), atol=1e-5)
    same_in_graph_mode(gpt_checks.alone(last), rand(2, 5, 12, seed=10), atol=1e-5)
