"""Run the checks of one exercise and say the verdict."""
import contextlib
import importlib
import inspect
import io
import linecache
import os
import sys
import textwrap
import traceback
import warnings
from dataclasses import dataclass, field

from course import answers, checks, exercise, registry
from course.deadline import TooLong, deadline


@dataclass
class Result:
    """One check: the property it looks at, and what is wrong with it (empty if passed)."""

    name: str
    passed: bool
    message: str = ""


@dataclass
class Verdict:
    """passed, the text for the learner, and one Result per check in order."""

    exercise_id: str
    passed: bool
    message: str
    results: list = field(default_factory=list)


class Failed(AssertionError):
    """A failed check while a lab is marked; shows its message, not a traceback."""

    def _render_traceback_(self):
        return [str(self)]


def check(obj):
    """Check an answer, print the verdict, and keep the answer in work/my_gpt if it passes.

    Args:
        obj: a function or class below @exercise(id).
    """
    exercise_id = getattr(obj, "__exercise__", None)
    if exercise_id is None:
        exercise_id = exercise.references.get(id(obj))
        if exercise_id:
            verdict = Verdict(exercise_id, False, f"○ {exercise_id}: this is the reference or an earlier answer, not a new one of yours.")
        else:
            verdict = Verdict("", False, f"✗ check() got {describe(obj)}: give it the function or class that stands below @exercise(...).")
    else:
        verdict = run(exercise_id, obj)
    if verdict.passed:
        answers.save(exercise_id, obj, exercise.references)
    if os.environ.get("NBGRADER_EXECUTION") and not verdict.passed:
        raise Failed(verdict.message)
    print(wrapped(verdict.message))


def wrapped(message, width=92):
    """Lines that fit a notebook; JupyterLab breaks longer ones inside words."""
    lines = []
    for line in message.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        lines += textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, drop_whitespace=True) or [""]
    return "\n".join(lines)


def describe(obj):
    if obj is None:
        return "None"
    if inspect.isfunction(obj) or inspect.isclass(obj):
        return f"{obj.__name__}, which has no @exercise above it"
    return f"a value of type {type(obj).__name__}"


def run(exercise_id, obj, only_until_first_failure=False):
    """The verdict on an answer.

    Args:
        exercise_id: for example "pytorch.attention.causal_mask".
        obj: the function or class to check.
        only_until_first_failure: leave the checks after it as "not run".

    Returns:
        Verdict.

    Raises:
        UnknownExercise: no such id.
    """
    wanted = registry.find(exercise_id)
    importlib.import_module(f"course.checks.{wanted.module}")
    listed = checks.CHECKS[exercise_id]
    problem = not_an_answer(wanted, obj)
    if problem:
        results = [Result(c.name, False, "not run") for c in listed]
        return Verdict(exercise_id, False, f"{problem[0]} {exercise_id}: {problem[1]}", results)
    isolated = importlib.import_module(f"course.checks.{exercise_id.partition('.')[0]}").isolated
    results = []
    stopped = False
    for one in listed:
        if stopped:
            results.append(Result(one.name, False, "not run"))
            continue
        with quiet(), isolated():
            message = run_one(one, obj)
        results.append(Result(one.name, not message, message))
        stopped = message.startswith((TOO_LONG, NOT_STARTED)) or (message and only_until_first_failure)
    passed = sum(r.passed for r in results)
    if passed == len(results):
        return Verdict(exercise_id, True, f"✓ {exercise_id}: {passed} of {len(results)} checks", results)
    first = next(r for r in results if not r.passed)
    if first.message.startswith(NOT_STARTED):
        return Verdict(exercise_id, False, f"○ {exercise_id}: {first.message}", results)
    lines = [
        f"✗ {exercise_id}: {passed} of {len(results)} checks",
        *("  " + line for line in f"{first.name}: {first.message}".split("\n")),
        f'  stuck? hint("{exercise_id}")',
    ]
    return Verdict(exercise_id, False, "\n".join(lines), results)


def not_an_answer(wanted, obj):
    kind = "class" if wanted.name[0].isupper() else "function"
    if kind == "class" and not inspect.isclass(obj):
        return "✗", f"a class is expected here, and this is {describe_kind(obj)}."
    if kind == "function" and (inspect.isclass(obj) or not callable(obj)):
        return "✗", f"a function is expected here, and this is {describe_kind(obj)}."
    if untouched(obj):
        return "○", f"{NOT_STARTED}{where(obj)}."
    return None


def untouched(obj):
    """Whether no function of an answer is more than a stub; a class with some of its methods written is run."""
    if not (inspect.isfunction(obj) or inspect.isclass(obj)):
        return False
    functions = [obj] if inspect.isfunction(obj) else [m for m in vars(obj).values() if inspect.isfunction(m)]
    return bool(functions) and all(exercise.is_stub(f.__code__) for f in functions)


def where(obj):
    return f" in {', '.join(exercise.stubs(obj))}" if inspect.isclass(obj) else ""


def describe_kind(obj):
    if obj is None:
        return "None"
    if inspect.isclass(obj):
        return f"a class ({obj.__name__})"
    if inspect.isfunction(obj):
        return f"a function ({obj.__name__})"
    return f"an object of type {type(obj).__name__}: do not create it, hand over the class or function itself"


TOO_LONG = "stopped after"
NOT_STARTED = "not started: put your code in the place of raise NotImplementedError"


def run_one(one, obj):
    """What is wrong, in words; empty if the check passes."""
    try:
        with deadline(one.seconds):
            one.function(obj)
        return ""
    except checks.Mismatch as mismatch:
        return not_started(mismatch, obj) or str(mismatch)
    except TooLong as late:
        return f"{TOO_LONG} {one.seconds} seconds. Is there a loop that never ends?{learner_line(late, obj)}"
    except NotImplementedError as error:
        left = f"a part is not started: it still raises NotImplementedError, and what stands below that never runs.{learner_line(error, obj)}"
        return not_started(error, obj) or (crashed(error, obj) if str(error) else left)
    except SystemExit as error:
        return f"your code calls exit() or sys.exit(); an answer returns its result instead.{learner_line(error, obj)}"
    except RecursionError as error:
        return f"your code calls itself without end (RecursionError).{learner_line(error, obj)}"
    except MemoryError as error:
        return f"your code asks for more memory than there is.{learner_line(error, obj)}"
    except Exception as error:
        return not_started(error, obj) or crashed(error, obj)


def not_started(error, obj):
    """What to say if the error, or the one it followed, comes from an untouched function of the answer; else empty."""
    open_parts = exercise.stubs(obj) if inspect.isclass(obj) or inspect.isfunction(obj) else {}
    while error is not None and open_parts:
        if isinstance(error, NotImplementedError):
            last = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)][-1:]
            if any(last == [code] for code in open_parts.values()):
                return f"{NOT_STARTED}{where(obj)}."
        error = error.__cause__ or error.__context__
    return ""


def crashed(error, obj):
    lines = [line.strip() for line in str(error).split("\n")]
    text = next((line for line in lines if any(c.isalnum() for c in line)), "no message")   # MindSpore begins with a rule
    return f"your code raises {type(error).__name__}: {text[:300]}{learner_line(error, obj)}"


def learner_line(error, obj):
    """The deepest line of the learner's own code that the error passed through."""
    here = os.path.dirname(os.path.abspath(__file__))
    file = code_file(obj)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        inside = frame.filename == file if file else not frame.filename.startswith((here, sys.prefix))
        if inside:
            line = linecache.getline(frame.filename, frame.lineno).strip()
            return f"\nlook at line {frame.lineno} of the cell, in {frame.name}: {line}" if line else ""
    return ""


def code_file(obj):
    functions = [obj] if inspect.isfunction(obj) else [m for m in vars(obj).values() if inspect.isfunction(m)] if inspect.isclass(obj) else []
    return functions[0].__code__.co_filename if functions else None


@contextlib.contextmanager
def quiet():
    """No warnings and nothing on stderr, from Python or from C: in a marked lab any of it costs the points."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(nowhere)


# `course.check` names the function as well as this module, whichever is imported last: both hold run.
check.run, check.Verdict = run, Verdict
