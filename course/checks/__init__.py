"""What right means: one file of checks for each file of answers, and the few words they are written in."""
import inspect
from dataclasses import dataclass
from typing import Callable

CHECKS = {}   # exercise id -> its checks, in the order in which they run


class Mismatch(Exception):
    """A property that does not hold, told to the learner."""


@dataclass
class Check:
    name: str
    function: Callable
    seconds: int


def checks(exercise_id, name, seconds=10):
    """Decorator: a function that takes the learner's object and raises Mismatch if the property `name` fails.

    Checks of one exercise run in the order in which they stand: first what the learner should hear first.
    It is stopped after `seconds`.
    """

    def add(function):
        listed = CHECKS.setdefault(exercise_id, [])
        listed[:] = [c for c in listed if c.name != name] + [Check(name, function, seconds)]
        return function

    return add


def fail(mistake, example="", look=""):
    """Raise Mismatch: the likely mistake in words, the smallest counter-example, where to look."""
    lines = [mistake]
    if example:
        lines.append(f"for example: {example}")
    if look:
        lines.append(f"look at: {look}")
    raise Mismatch("\n".join(lines))


def argument_names(function, args):
    """A name for each of args: the function's own, and its number where there are more arguments than names."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        names = []
    return names[: len(args)] + [f"number {i + 1}" for i in range(len(names), len(args))]
