"""Every exercise against answers that give the wrong kind of thing: a sentence each, and never an error of the checks."""
import importlib
import inspect

import pytest
import torch

from course import registry
from course.check import run


def to_none(result):
    return None


def to_text(result):
    return "text"


def to_number(result):
    return 7


def to_nothing(result):
    return []


def is_tensor(result):
    return type(result).__module__.split(".")[0] in ("torch", "mindspore") and hasattr(result, "reshape")


def to_numpy(result):
    if not is_tensor(result):
        return object()
    return result.detach().numpy() if isinstance(result, torch.Tensor) else result.asnumpy()


def to_half(result):
    return half(result) if is_tensor(result) else "half"


def half(result):
    if isinstance(result, torch.Tensor):
        return result.half()
    import mindspore as ms

    return result.astype(ms.float16)


def to_meta(result):
    return result.to("meta") if isinstance(result, torch.Tensor) else "meta"


def to_flat(result):
    return result.reshape(-1)[:1] if is_tensor(result) else (result,)


def to_complex(result):
    return result + 0j if isinstance(result, torch.Tensor) and result.dtype != torch.bool else (result, result)


def to_nan(result):
    return result * float("nan") if is_tensor(result) else float("nan")


def to_class(result):
    return dict


CHANGES = [to_none, to_text, to_number, to_nothing, to_numpy, to_half, to_meta, to_flat, to_complex, to_nan, to_class]
MISLEADING = ["'NoneType'", "'str' object", "'int' object", "'list' object", "object is not", "'dict'", "MixedDevices"]


def spoiled(exercise_id, change):
    """The right answer with every result changed."""
    wanted = registry.find(exercise_id)
    right = getattr(importlib.import_module(f"solutions.{wanted.module}"), wanted.name)
    if inspect.isfunction(right):
        def answer(*args, **kwargs):
            return change(right(*args, **kwargs))

        return answer
    methods = {"forward": "forward", "AdamW": "step", "CharTokenizer": "encode", "BPETokenizer": "encode", "LossScaler": "scaled"}
    name = methods.get(wanted.name, "construct" if wanted.module.startswith("mindspore") and not wanted.name.endswith("KVCache") else "forward")
    method = getattr(right, name)
    return type(wanted.name, (right,), {name: lambda self, *args, **kwargs: change(method(self, *args, **kwargs))})


@pytest.mark.parametrize("exercise_id", registry.EXERCISES)
def test_wrong_kinds_of_results_get_a_sentence(exercise_id):
    for change in CHANGES:
        answer = spoiled(exercise_id, change)
        verdict = run(exercise_id, answer, only_until_first_failure=True)
        if verdict.passed:
            unchanged = exercise_id in RETURN_NOTHING or (exercise_id, change.__name__) in SAME_AFTER_ALL
            assert unchanged, f"{change.__name__} is accepted"
            continue
        first = verdict.message.split("\n")[1]
        assert len(first) > 20, verdict.message
        assert not any(words in verdict.message for words in MISLEADING), f"{change.__name__}: {verdict.message}"


# What these return is nobody's business: they work by what they change.
RETURN_NOTHING = {
    "pytorch.gpt.init_weights", "pytorch.training.AdamW", "pytorch.training.save_checkpoint", "mindspore.gpt.init_weights", "mindspore.training.AdamW",
    "pytorch.parallel.average_gradients",
}
# (exercise id, change): the change leaves an answer that is right, with the reason beside it.
SAME_AFTER_ALL = {}


