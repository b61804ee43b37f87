"""Write notebooks/NN_name.ipynb from notebooks/NN_name.py: convert, add marking metadata, run, store the outputs.

    python tools/execute.py                     every lesson whose source or answers changed
    python tools/execute.py 04 05               these lessons
    python tools/execute.py --all               every lesson
"""
import argparse
import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from course import registry  # noqa: E402
from tools.inject import exercise_nodes, inject  # noqa: E402


def convert(source_path):
    """The notebook of a source, without outputs, with cell ids that stay the same from run to run."""
    notebook = jupytext.read(source_path)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:03}"
        cell.metadata = {key: value for key, value in cell.metadata.items() if key == "tags"}
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    add_marking(notebook)
    return notebook


def add_marking(notebook):
    """nbgrader's metadata: the exercise cell is the learner's, the check cell after it carries the points."""
    waiting = {}
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        for exercise_id, node in exercise_nodes(cell.source):
            waiting[f"check({node.name})"] = exercise_id
            cell.metadata["nbgrader"] = marking(exercise_id, "", solution=True, locked=False)
        exercise_id = waiting.pop(cell.source.strip(), None)
        if exercise_id:
            cell.metadata["nbgrader"] = marking(exercise_id, "check-", solution=False, locked=True)
            cell.metadata["nbgrader"]["points"] = registry.find(exercise_id).points


def marking(exercise_id, prefix, solution, locked):
    return {
        "grade": not solution,
        "grade_id": prefix + exercise_id.replace(".", "-"),       # nbgrader allows no dots here
        "locked": locked,
        "schema_version": 3,
        "solution": solution,
        "task": False,
    }


def execute(notebook, name):
    """Run every cell in order, answers in the place of stubs; the stubs come back afterwards."""
    stubs = [cell.source for cell in notebook.cells]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = inject(cell.source)
    with tempfile.TemporaryDirectory() as work:
        os.environ["GPT_TWICE_WORK"] = work
        os.environ["PYTEST_CURRENT_TEST"] = "1"                   # ipykernel then stores no C-level text, as under nbval
        os.environ["OMP_NUM_THREADS"] = "1"
        client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(ROOT / "notebooks")}})
        try:
            client.execute()
        except CellExecutionError as error:
            sys.exit(f"{name}: a cell fails\n{error}")
    for cell, source in zip(notebook.cells, stubs):
        cell.source = source
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
        cell.metadata.pop("execution", None)
    notebook.metadata["language_info"] = {"name": "python"}


def joined(outputs):
    """Text that arrived in several pieces as one: how it was cut depends on the clock."""
    whole = []
    for output in outputs:
        if whole and output.output_type == whole[-1].output_type == "stream" and output.name == whole[-1].name:
            whole[-1].text += output.text
        else:
            whole.append(output)
    return whole


def keep_ignored_outputs(notebook, path):
    """An output that is not compared changes with every run; the stored one stays while its cell does."""
    if not path.exists():
        return
    stored = nbformat.read(path, as_version=4).cells
    if [c.source for c in stored] != [c.source for c in notebook.cells]:
        return
    for cell, before in zip(notebook.cells, stored):
        if cell.cell_type == "code" and "nbval-ignore-output" in cell.metadata.get("tags", []):
            cell.outputs = before.outputs


def fingerprint(source_path):
    """Changes whenever the lesson's text or any answer it may run changes."""
    texts = [source_path, *sorted((ROOT / "solutions").rglob("*.py")), *sorted((ROOT / "course").rglob("*.py"))]
    return hashlib.sha256(b"".join(p.read_bytes() for p in texts)).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lessons", nargs="*", help="two-digit numbers; none means those that changed")
    parser.add_argument("--all", action="store_true", help="every lesson")
    options = parser.parse_args()
    stamps = ROOT / ".notebooks"
    stamps.mkdir(exist_ok=True)
    for source_path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.py")):
        number, stamp = source_path.name[:2], stamps / source_path.stem
        if options.lessons and number not in options.lessons:
            continue
        mark = fingerprint(source_path)
        if not options.lessons and not options.all and stamp.exists() and stamp.read_text() == mark:
            continue
        started = time.perf_counter()
        print(f"{source_path.stem} ...", end=" ", flush=True)
        notebook = convert(source_path)
        execute(notebook, source_path.stem)
        path = source_path.with_suffix(".ipynb")
        keep_ignored_outputs(notebook, path)
        nbformat.write(notebook, path)
        stamp.write_text(mark)
        print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
