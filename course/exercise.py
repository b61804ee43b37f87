"""Register what a learner writes, tell a stub from an answer, and fetch the pieces of earlier lessons."""
import dis
import importlib
import inspect
import sys

from course import answers, pack, registry

references = {}   # id(object) -> exercise id, for every object handed out by piece() or use_reference()
handed_out = {}   # id(object) -> object: while it is held here, no other object gets its id


def exercise(exercise_id):
    """Decorator: marks a function or class as the answer to an exercise and returns the same object.

    Raises:
        UnknownExercise: no such id; the message names the nearest one.
        TypeError: applied to something that is neither a function nor a class.
    """
    registry.find(exercise_id)

    def mark(obj):
        if not (inspect.isfunction(obj) or inspect.isclass(obj)):
            raise TypeError(f"@exercise({exercise_id!r}) goes above a def or a class, not above {type(obj).__name__}.")
        obj.__exercise__ = exercise_id
        return obj

    return mark


def stubs(obj):
    """Functions of obj that are untouched stubs, as {name: code}: obj itself, or methods of a class."""
    functions = {obj.__name__: obj} if inspect.isfunction(obj) else {name: m for name, m in vars(obj).items() if inspect.isfunction(m)}
    codes = {name: getattr(getattr(f, "__wrapped__", f), "__code__", f.__code__) for name, f in functions.items()}   # below torch.no_grad()
    return {name: code for name, code in codes.items() if is_stub(code)}


STUB = {"RESUME", "NOP", "CACHE", "LOAD_GLOBAL", "RAISE_VARARGS"}
CALLED = {"PUSH_NULL", "LOAD_CONST", "PRECALL", "CALL", "CALL_FUNCTION"}   # NotImplementedError("...")


def is_stub(code):
    """Whether a function holds nothing but raise NotImplementedError; found in the byte code, since a class of a notebook has no source."""
    arguments = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    alone = code.co_names == ("NotImplementedError",) and len(code.co_varnames) == arguments   # code below the raise has left its names
    used = {instruction.opname for instruction in dis.get_instructions(code)}
    return alone and "RAISE_VARARGS" in used and used <= STUB | CALLED


def given(name):
    """A function of the solutions that no exercise asks for, by module and name: "mindspore.training.save_checkpoint".

    Raises:
        ImportError: the solutions are not installed here (a released lab folder has none).
    """
    module, _, attribute = name.rpartition(".")
    package = "reference" if pack.packed() else "solutions"   # a released folder holds the answers of lessons already due
    if str(registry.ROOT) not in sys.path:
        sys.path.append(str(registry.ROOT))
    missing = ImportError(f"The solutions are not part of this copy of the course, and {name} has no passed answer of yours.")
    try:
        found = importlib.import_module(f"{package}.{module}")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith(package):
            raise missing from None
        raise
    if package == "reference" and not hasattr(found, attribute):
        raise missing
    return getattr(found, attribute)


def reference(exercise_id):
    """The course's own answer. UnknownExercise and ImportError as in find() and given()."""
    registry.find(exercise_id)
    return hand_out(given(exercise_id), exercise_id)


def piece(exercise_id):
    """What an earlier lesson built: the learner's own passed answer, or the reference where there is none."""
    registry.find(exercise_id)
    own = answers.load(exercise_id)
    return reference(exercise_id) if own is None else hand_out(own, exercise_id)


def hand_out(obj, exercise_id):
    references[id(obj)], handed_out[id(obj)] = exercise_id, obj
    return obj


def use_reference(exercise_id):
    """The course's answer, to go on without one's own. It never counts as passed."""
    print(f"{exercise_id}: this is the reference, it does not count as passed.")
    return reference(exercise_id)
