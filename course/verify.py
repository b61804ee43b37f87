"""Whether a package of passed answers, work/my_gpt, holds: every check of the course on what stands in its files."""
import os
import sys
from pathlib import Path

from course import answers, exercise, registry
from course.check import Verdict, run, wrapped


class VerifyError(ValueError):
    """Why a package cannot be verified, in one sentence."""


def verify(package, lessons=None, say=print):
    """Run the checks of every exercise on the package and say the verdicts, one exercise a line.

    Args:
        package: the folder my_gpt.
        lessons: two-digit numbers; None means all.
        say: called with each line.

    Returns:
        True if every exercise (of these lessons) is there and passes.

    Raises:
        VerifyError: no such folder, no such lesson, or a file of it that does not import.
    """
    package = Path(package).resolve()
    if package.name != answers.PACKAGE or not (package / "answers.json").exists():
        raise VerifyError(f"{package} is no package of passed answers: the checks write it as {answers.PACKAGE}/ in your work folder.")
    unknown = sorted(set(lessons or []) - set(registry.LESSONS))
    if unknown:
        raise VerifyError(f"There is no lesson {unknown[0]}: they run from {min(registry.LESSONS)} to {max(registry.LESSONS)}.")
    os.environ["GPT_TWICE_WORK"] = str(package.parent)
    kept = answers.read()
    wanted = [e for e in registry.EXERCISES.values() if lessons is None or e.lesson in lessons]
    passed = missing = 0
    for one in wanted:
        if one.id not in kept:
            say(f"· {one.id}: not passed yet")
            missing += 1
            continue
        try:
            verdict = run(one.id, answers.load(one.id))
        except ImportError as error:
            verdict = Verdict(one.id, False, f"✗ {one.id}: {error}")
        say(wrapped(verdict.message))
        passed += verdict.passed
    borrowed = sorted(set(exercise.__globals__["references"].values()) - set(kept))
    if borrowed:
        say(f"It is not on its own yet, it takes {', '.join(borrowed)} from the course.")
    failed = len(wanted) - passed - missing
    say(f"{passed} of {len(wanted)} exercises pass" + (f", {failed} fail" if failed else "") + (f", {missing} are open" if missing else "") + ".")
    return passed == len(wanted) and not borrowed and "solutions" not in sys.modules
