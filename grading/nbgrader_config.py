"""nbgrader's configuration for a course folder that `python -m course release` wrote; it stands at the root of that folder.

nbgrader keeps the gradebook, the releases and the feedback. The marking itself is the course's: each submission runs in a
process of its own (course.marking), the check cells are not run but replaced by the course's checks, freshly imported, and
their verdicts become the outputs by which nbgrader gives the points.
"""
import atexit
import functools
import os
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
import nbgrader.api
from nbformat.v4 import new_code_cell, new_output
from nbgrader.converters.autograde import AssignLatePenalties, ClearMetadataPreprocessor, IgnorePattern, LimitOutput, SaveAutoGrades
from nbgrader.preprocessors import (
    CheckCellMetadata,
    ClearOutput,
    ComputeChecksums,
    IncludeHeaderFooter,
    LockCells,
    NbGraderPreprocessor,
    SaveCells,
)
from nbgrader.utils import is_grade

from course import answers, marking, registry

PIECES = "reference"      # "own": earlier answers come from my_gpt/ beside the submitted notebook
LIMITS = marking.Limits(
    cell=0,               # seconds a cell may take; 0: by lesson, 60 to 180 (marking.SLOW_CELLS)
    check=180,            # seconds for the checks of one exercise
    total=900,            # seconds for a submission
    memory=6 * 2**30,     # bytes
)

os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"   # nbgrader calls alembic by its bare name
nbgrader.api.get_alembic_version = functools.cache(nbgrader.api.get_alembic_version)   # else a process for each look into the gradebook

copies = {}               # lesson -> folder with the course as submissions import it


def course_for(lesson):
    if lesson not in copies:
        copies[lesson] = marking.course_copy(lesson, PIECES)
        atexit.register(shutil.rmtree, copies[lesson], ignore_errors=True)
    return copies[lesson]


class Mark(NbGraderPreprocessor):
    """In the place of nbgrader's Execute: run the submission fenced in, and put verdicts into the check cells."""

    def preprocess(self, notebook, resources):
        name, folder = resources["nbgrader"]["notebook"], Path(resources["metadata"]["path"])
        lesson = name[:2]
        own = folder / answers.PACKAGE if PIECES == "own" else None
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / f"{name}.ipynb"
            nbformat.write(notebook, path)
            report = marking.mark_in_process(path, course_for(lesson), LIMITS, f"{resources['nbgrader']['student']}, {name}", lesson, own)
        self.log.info("%s", report.text())
        for number, cell in enumerate(notebook.cells):
            if cell.cell_type == "code":
                cell.outputs = [output_of(o) for o in report.outputs.get(number, [])]
        put_back(notebook, lesson)
        verdicts = {f"check-{mark.id.replace('.', '-')}": mark for mark in report.marks}
        for cell in notebook.cells:
            if cell.cell_type == "code" and is_grade(cell):
                cell.outputs = [verdict(verdicts.get(cell.metadata.nbgrader["grade_id"]), report)]
        return notebook, resources


def output_of(output):
    kind = output["kind"]
    if kind == "stream":
        return new_output(kind, name=output["name"], text=output["text"])
    if kind == "error":
        return new_output(kind, ename=output["ename"], evalue=output["evalue"], traceback=output["traceback"])
    return new_output("display_data", data=output["data"], metadata=output.get("metadata", {}))


def put_back(notebook, lesson):
    """Check cells that the submission lacks, at its end: nbgrader gives points to cells only."""
    there = {cell.metadata.get("nbgrader", {}).get("grade_id") for cell in notebook.cells}
    for exercise in registry.EXERCISES.values():
        grade_id = f"check-{exercise.id.replace('.', '-')}"
        if exercise.lesson == lesson and grade_id not in there:
            cell = new_code_cell(f"check({exercise.name})")
            cell.metadata["nbgrader"] = {"grade": True, "grade_id": grade_id, "locked": True, "points": exercise.points, "schema_version": 3, "solution": False, "task": False}
            notebook.cells.append(cell)


def verdict(mark, report):
    """The output of a check cell: an error is no points for nbgrader, anything else is all of them."""
    message = mark.message if mark else "no exercise of this lesson."
    message = message or report.problem
    if mark and mark.points:
        return new_output("stream", name="stdout", text=f"✓ {mark.id}: {message}\n")
    text = f"✗ {mark.id if mark else ''}: {message}"
    return new_output("error", ename="Failed", evalue=message.split("\n")[0], traceback=[text])


c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "gpt-twice"
c.ClearSolutions.enforce_metadata = False
# The stubs are the learner's starting point: ClearSolutions, which would blank them, is left out.
c.GenerateAssignment.preprocessors = [IncludeHeaderFooter, LockCells, ClearOutput, CheckCellMetadata, ComputeChecksums, SaveCells, ComputeChecksums, CheckCellMetadata]
c.Autograde.autograde_preprocessors = [Mark, IgnorePattern, ClearMetadataPreprocessor, LimitOutput, SaveAutoGrades, AssignLatePenalties, CheckCellMetadata]
c.Validator.validate_all = False
c.Execute.timeout = max(marking.SLOW_CELLS.values())          # nbgrader validate, and the Validate button, run the whole notebook
