"""What check() says of answers that are no answers, and that nothing a learner does reaches beyond its check."""
import ast
import functools
import importlib
import inspect
import os
import subprocess
import sys
import textwrap
import time

import pytest
import torch

import course
from course import check, exercise, piece, registry, use_reference
from course.check import Failed, run
from solutions.pytorch import attention as good
from solutions.pytorch import training

MASK = "pytorch.attention.causal_mask"
MODULE = "pytorch.attention.CausalSelfAttention"


def message(obj, exercise_id=MASK):
    verdict = run(exercise_id, obj)
    assert not verdict.passed
    return verdict.message


def test_right_answer():
    verdict = run(MASK, good.causal_mask)
    assert verdict.passed and verdict.message == f"✓ {MASK}: 5 of 5 checks"
    assert [r.passed for r in verdict.results] == [True] * 5


def test_unknown_exercise_names_the_nearest():
    with pytest.raises(KeyError, match="Did you mean pytorch.attention.causal_mask"):
        run("pytorch.attention.casual_mask", good.causal_mask)


def test_decorator_refuses_an_unknown_id():
    with pytest.raises(KeyError, match="Did you mean"):
        exercise("pytorch.attention.atention")


def test_decorator_refuses_an_object():
    with pytest.raises(TypeError, match="above a def or a class"):
        exercise(MASK)(3)


@pytest.mark.parametrize("obj, words", [
    (None, "a function is expected here, and this is None"),
    (good.CausalSelfAttention, "and this is a class"),
    (torch.ones(3), "an object of type Tensor"),
])
def test_no_function(obj, words):
    assert words in message(obj)


def test_no_class():
    assert "a class is expected here, and this is a function" in message(good.causal_mask, MODULE)
    assert "hand over the class" in message(object(), MODULE)


def test_stub_is_not_started():
    def causal_mask(n_query, n_key):
        """Docstring."""
        raise NotImplementedError

    assert message(causal_mask).startswith("○") and "not started" in message(causal_mask)


def test_half_a_class_is_not_started():
    class CausalSelfAttention(good.CausalSelfAttention):
        def forward(self, x):
            raise NotImplementedError

    assert "raise NotImplementedError in forward" in message(CausalSelfAttention, MODULE)


def test_a_class_in_part_is_not_started_where_a_check_reaches_the_stub():
    class AdamW(training.AdamW):
        def step(self):
            return super().step()

        @torch.no_grad()
        def zero_grad(self):
            raise NotImplementedError

        def state_dict(self):
            raise NotImplementedError("not yet")

    verdict = run("pytorch.training.AdamW", AdamW)
    assert verdict.message.startswith("○") and "in zero_grad, state_dict." in verdict.message
    assert verdict.results[0].passed and verdict.results[-1].message == "not run"

    class WithSpare(training.AdamW):
        def step(self):
            return super().step()

        def add_param_group(self, group):                     # of the learner's own, for later
            raise NotImplementedError

    assert run("pytorch.training.AdamW", WithSpare).passed


def stub_like(method):
    """A stub that takes the arguments of method."""
    arguments = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(method)))).body[0].args
    namespace = dict(method.__globals__)
    exec(f"def {method.__name__}({ast.unparse(arguments)}):\n    raise NotImplementedError", namespace)
    return namespace[method.__name__]


@pytest.mark.parametrize("exercise_id", [i for i in registry.EXERCISES if i.startswith("pytorch.") and i.split(".")[-1][0].isupper()])
def test_each_method_that_is_still_a_stub_is_named(exercise_id):
    wanted = registry.find(exercise_id)
    right = getattr(importlib.import_module(f"solutions.{wanted.module}"), wanted.name)
    for name, method in [(n, m) for n, m in vars(right).items() if inspect.isfunction(m)]:
        half = type(wanted.name, (right,), {name: stub_like(method), "spare": lambda self: None, "__module__": __name__})
        verdict = run(exercise_id, half)
        assert not verdict.passed and verdict.message == f"○ {exercise_id}: not started: put your code in the place of raise NotImplementedError in {name}."


def replaced(stub):
    @functools.wraps(stub)
    def answer(*args):
        return good.causal_mask(*args)

    return answer


@replaced
def by_a_decorator(n_query, n_key):
    raise NotImplementedError


def in_a_branch(n_query, n_key):
    if n_query > 10 * n_key:
        raise NotImplementedError("more queries than keys")
    return good.causal_mask(n_query, n_key)


def bare_in_a_branch(n_query, n_key):
    if n_query > 10 * n_key:
        raise NotImplementedError
    return good.causal_mask(n_query, n_key)


def inside_another(n_query, n_key):
    def later():
        raise NotImplementedError

    return good.causal_mask(n_query, n_key)


def by_name(n_query, n_key):
    error = NotImplementedError if n_query > 10 * n_key else None
    if error:
        raise error
    return good.causal_mask(n_query, n_key)


@pytest.mark.parametrize("written", [in_a_branch, bare_in_a_branch, inside_another, by_name, by_a_decorator])
def test_an_answer_that_names_not_implemented_is_no_stub(written):
    assert run(MASK, written).passed


def branch_is_open(n_query, n_key):
    if n_query != n_key:
        raise NotImplementedError
    return good.causal_mask(n_query, n_key)


def branch_has_words(n_query, n_key):
    if n_query != n_key:
        raise NotImplementedError("only squares")
    return good.causal_mask(n_query, n_key)


def raise_is_left_above(n_query, n_key):
    raise NotImplementedError
    mask = torch.ones(n_query, n_key)
    return mask.tril().bool()


def raise_is_left_below(n_query, n_key):
    mask = torch.ones(n_query, n_key)
    raise NotImplementedError


@pytest.mark.parametrize("written, words", [
    (branch_is_open, "in branch_is_open: raise NotImplementedError"),
    (branch_has_words, "your code raises NotImplementedError: only squares"),
    (raise_is_left_above, "what stands below that never runs"),
    (raise_is_left_below, "in raise_is_left_below: raise NotImplementedError"),
])
def test_more_than_the_stub_is_run(written, words):
    said = message(written)
    assert said.startswith("✗") and "○" not in said and words in said


def with_words(n_query, n_key):
    raise NotImplementedError("later")


@torch.no_grad()
def decorated(n_query, n_key):
    raise NotImplementedError


def called(*shape, device=None, **options):
    """Docstring."""
    raise NotImplementedError()


@pytest.mark.parametrize("stub", [with_words, called, decorated])
def test_a_raise_alone_is_not_started(stub):
    assert message(stub).startswith("○")


def test_catching_not_implemented_is_no_stub():
    def causal_mask(n_query, n_key):
        try:
            return good.causal_mask(n_query, n_key)
        except NotImplementedError:
            return None

    assert run(MASK, causal_mask).passed


def test_calling_a_stub_inside():
    def helper():
        raise NotImplementedError

    assert "still raises NotImplementedError" in message(lambda n_query, n_key: helper())


@pytest.mark.parametrize("limit", [0.3])
def test_endless_loops_are_stopped(limit, monkeypatch):
    from course import checks

    monkeypatch.setitem(checks.CHECKS, MASK, [checks.Check(c.name, c.function, limit) for c in checks.CHECKS[MASK]])

    def plain(n_query, n_key):
        while True:
            pass

    def swallows_everything(n_query, n_key):
        while True:
            try:
                n_query += 1
            except:  # noqa: E722
                pass

    def sleeps(n_query, n_key):
        time.sleep(60)

    for endless in (plain, swallows_everything, sleeps):
        started = time.perf_counter()
        assert "stopped after 0.3 seconds. Is there a loop that never ends?" in message(endless)
        assert time.perf_counter() - started < 5


def test_exit_recursion_memory_and_errors_get_sentences():
    def leaves(n_query, n_key):
        sys.exit(1)

    def recursive(n_query, n_key):
        return recursive(n_query, n_key)

    def greedy(n_query, n_key):
        raise MemoryError

    def breaks(n_query, n_key):
        return torch.ones(2, 3) @ torch.ones(2, 3)

    assert "calls exit()" in message(leaves)
    assert "calls itself without end" in message(recursive)
    assert "more memory than there is" in message(greedy)
    said = message(breaks)
    assert "your code raises RuntimeError" in said
    assert "in breaks: return torch.ones(2, 3) @ torch.ones(2, 3)" in said


def test_wrong_number_of_arguments():
    assert "your code raises TypeError" in message(lambda n: None)


def test_nothing_on_stderr(capfd):
    def noisy(n_query, n_key):
        print("python", file=sys.stderr)
        os.write(2, b"system")
        import warnings

        warnings.warn("warning")
        return good.causal_mask(n_query, n_key)

    noisy.__exercise__ = MASK
    assert run(MASK, noisy).passed
    assert capfd.readouterr().err == ""


def test_random_state_dtype_and_grad_mode_come_back():
    def careless(n_query, n_key):
        torch.manual_seed(5)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        return good.causal_mask(n_query, n_key)

    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert run(MASK, careless).passed
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()


def test_check_prints_and_returns_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("GPT_TWICE_WORK", str(tmp_path))

    @exercise(MASK)
    def causal_mask(n_query, n_key):
        return torch.ones(n_query, n_key)

    assert check(causal_mask) is None
    assert capsys.readouterr().out.startswith(f"✗ {MASK}")


def test_check_of_something_else(capsys):
    check(None)
    assert "check() got None" in capsys.readouterr().out
    check(message)
    assert "message, which has no @exercise above it" in capsys.readouterr().out


def test_the_reference_never_counts(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("GPT_TWICE_WORK", str(tmp_path))
    mask = use_reference(MASK)
    check(mask)
    assert "the reference" in capsys.readouterr().out
    assert not (tmp_path / "my_gpt").exists()
    assert piece(MASK) is mask


def test_marking_raises_a_short_assertion(monkeypatch):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")

    @exercise(MASK)
    def causal_mask(n_query, n_key):
        return torch.ones(n_query, n_key)

    with pytest.raises(Failed) as error:
        check(causal_mask)
    assert error.value._render_traceback_() == [str(error.value)]
    assert isinstance(error.value, AssertionError)


def test_the_learners_object_is_run_and_not_the_solution(monkeypatch):
    """A wrong answer under a right solution fails, and a right one under a broken solution passes."""

    def causal_mask(n_query, n_key):
        return torch.ones(n_query, n_key, dtype=torch.bool).triu()

    assert not run(MASK, causal_mask).passed
    right = good.causal_mask
    monkeypatch.setattr(good, "causal_mask", causal_mask)
    assert run(MASK, right).passed


def test_verdict_counts_what_passed():
    verdict = run(MASK, lambda n_query, n_key: torch.ones(n_query, n_key, dtype=torch.bool).tril())
    passed = sum(r.passed for r in verdict.results)
    assert verdict.message.startswith(f"✗ {MASK}: {passed} of 5 checks")


def test_run_is_found_by_every_way_of_importing():
    assert course.check.run is run
    program = "import course.check\nassert course.check.run and course.check.Verdict\nimport course.check as c\nassert c.run"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_long_messages_are_wrapped_between_words():
    text = check.__globals__["wrapped"]("✗ id: 1 of 5 checks\n  " + "word " * 40 + "\n  for example: x")
    assert max(map(len, text.split("\n"))) <= 92
    assert text.split("\n")[2].startswith("    word") and text.split("\n")[-1] == "  for example: x"
