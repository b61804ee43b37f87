"""Wrong answers that must be rejected by name, and right ones in another style that must pass."""
from dataclasses import dataclass
from typing import Callable

WRONG, RIGHT = [], []


@dataclass
class Variant:
    exercise_id: str
    name: str
    answer: Callable
    says: str = ""     # words that the diagnosis must hold


def wrong(exercise_id, says):
    """Decorator: a learner's mistake, and words that its diagnosis must hold."""

    def add(answer):
        WRONG.append(Variant(exercise_id, answer.__name__, answer, says))
        return answer

    return add


def right(exercise_id):
    """Decorator: a correct answer in another style."""

    def add(answer):
        RIGHT.append(Variant(exercise_id, answer.__name__, answer))
        return answer

    return add
