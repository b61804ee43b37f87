"""Hints, one at a time, and the solution, for the learner to call."""
import ast
import html
import json
import re
import textwrap

from course import registry

given = {}   # exercise id -> hints shown in this kernel


def hint(exercise_id, number=None):
    """Print the next hint of an exercise, or hint `number`.

    Raises:
        UnknownExercise: no such id.
        ValueError: no such hint.
    """
    hints = hints_of(exercise_id)
    if number is None:
        number = given.get(exercise_id, 0) + 1
        if number > len(hints):
            print(f'There are no more hints. solution("{exercise_id}") shows one way to write it, use_reference("{exercise_id}") lets you go on.')
            return
    elif not 1 <= number <= len(hints):
        raise ValueError(f"{exercise_id} has hints 1 to {len(hints)}.")
    given[exercise_id] = max(number, given.get(exercise_id, 0))
    print(reflowed(f"Hint {number} of {len(hints)}. {hints[number - 1]}"))


def reflowed(text, width=92):
    """Paragraphs broken at the width of a notebook; code and tables stay as they are."""
    if "```" in text or "|" in text:
        return text
    return "\n\n".join(textwrap.fill(" ".join(paragraph.split()), width) for paragraph in text.split("\n\n"))


def hints_of(exercise_id):
    """The <details> blocks of the text above the exercise in its notebook."""
    wanted = registry.find(exercise_id)
    path = registry.ROOT / "notebooks" / f"{wanted.lesson}_{registry.LESSONS[wanted.lesson]}.ipynb"
    if not path.exists():
        raise ImportError(f"Lesson {wanted.lesson} is not part of this copy of the course, and its hints are in its notebook.")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    above = ""
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            above = text
        elif f'@exercise("{exercise_id}")' in text:
            blocks = re.findall(r"<details>\s*<summary>Hint.*?</summary>(.*?)</details>", above, flags=re.DOTALL)
            return [block.strip() for block in blocks]
    return []


class Solution:
    """Shows itself folded in a notebook and as plain text elsewhere."""

    def __init__(self, exercise_id, source):
        self.exercise_id = exercise_id
        self.source = source

    def __repr__(self):
        return self.source

    def _repr_html_(self):
        return f"<details><summary>{self.exercise_id}</summary><pre>{html.escape(self.source)}</pre></details>"


def solution(exercise_id):
    """One way to write the exercise, folded; it shows itself as the result of a cell."""
    wanted = registry.find(exercise_id)
    path = registry.ROOT / "solutions" / (wanted.module.replace(".", "/") + ".py")
    if not path.exists():
        raise ImportError("The solutions are not part of this copy of the course.")
    text = path.read_text(encoding="utf-8")
    node = next(n for n in ast.parse(text).body if getattr(n, "name", "") == wanted.name)
    return Solution(exercise_id, ast.get_source_segment(text, node))
