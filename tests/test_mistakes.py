"""The checks against wrong answers that people really write, and right ones in another style."""
import importlib
from collections import Counter
from pathlib import Path

import pytest

from course import checks, registry
from course.check import run
from tests.mistakes import RIGHT, WRONG

HERE = Path(__file__).parent
for file in sorted((HERE / "mistakes").glob("*/[a-z]*.py")):
    importlib.import_module(f"tests.mistakes.{file.parent.name}.{file.stem}")

REJECTED_BY = {}   # (exercise id, wrong variant) -> name of the first check that rejects it; filled by the tests below


def label(variant):
    return f"{variant.exercise_id}-{variant.name}"


@pytest.mark.parametrize("variant", WRONG, ids=label)
def test_wrong_answer_is_named(variant):
    verdict = first_rejection(variant)
    assert not verdict.passed, "accepted"
    assert variant.says in verdict.message, verdict.message


def first_rejection(variant):
    verdict = run(variant.exercise_id, variant.answer, only_until_first_failure=True)
    failed = [r.name for r in verdict.results if not r.passed]
    REJECTED_BY[variant.exercise_id, variant.name] = failed[0] if failed else None
    return verdict


@pytest.mark.parametrize("variant", RIGHT, ids=label)
def test_right_answer_in_another_style_passes(variant):
    verdict = run(variant.exercise_id, variant.answer)
    assert verdict.passed, verdict.message


@pytest.mark.parametrize("exercise_id", registry.EXERCISES)
def test_enough_variants(exercise_id):
    assert Counter(v.exercise_id for v in WRONG)[exercise_id] >= 8
    assert Counter(v.exercise_id for v in RIGHT)[exercise_id] >= 4


@pytest.mark.parametrize("exercise_id", registry.EXERCISES)
def test_every_check_is_the_first_to_reject_something(exercise_id):
    importlib.import_module(f"course.checks.{registry.find(exercise_id).module}")
    for variant in WRONG:
        if variant.exercise_id == exercise_id and (exercise_id, variant.name) not in REJECTED_BY:
            first_rejection(variant)
    used = {name for (id, _), name in REJECTED_BY.items() if id == exercise_id}
    unused = [c.name for c in checks.CHECKS[exercise_id] if c.name not in used]
    assert not unused, f"no wrong variant meets these checks first: {unused}"
