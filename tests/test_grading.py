"""Release, marking with and without nbgrader, and what submissions may not do."""
import copy
import csv
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from course import marking, registry, release
from tests.notebook_rules import answer_lines
from tools.inject import inject, solution_source

ROOT = Path(__file__).resolve().parent.parent
LESSON = "03"
LIMITS = marking.Limits(cell=4, check=60, total=120, memory=3 * 2**30)
ONE_HOT, EMBEDDING, BACKWARD, BOTH = (e.id for e in registry.EXERCISES.values() if e.lesson == LESSON)


def notebook_of(lesson, right=True):
    """The lesson as a learner gets it, or with every exercise answered."""
    notebook = nbformat.read(ROOT / "notebooks" / f"{release.title(lesson)}.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            if right:
                cell.source = inject(cell.source)
    return notebook


def cell_of(notebook, exercise_id):
    return next(c for c in notebook.cells if c.cell_type == "code" and f'@exercise("{exercise_id}")' in c.source)


def check_of(notebook, exercise_id):
    return next(c for c in notebook.cells if c.source == f"check({exercise_id.rpartition('.')[2]})")


def mistaken(notebook, exercise_id, old, new):
    cell = cell_of(notebook, exercise_id)
    assert old in cell.source, cell.source
    cell.source = cell.source.replace(old, new)


def made_up():
    """name -> (notebook, points of each exercise)."""
    made = {}
    made["right"] = notebook_of(LESSON), (1, 1, 2, 2)
    made["nothing"] = notebook_of(LESSON, right=False), (0, 0, 0, 0)
    made["wrong"] = notebook_of(LESSON), (1, 1, 0, 2)
    cell_of(made["wrong"][0], BACKWARD).source += "\nright = embedding_backward\n\n\n" + (
        f'@exercise("{BACKWARD}")\ndef embedding_backward(*args):\n    return 2 * right(*args)\n'
    )
    made["syntax"] = notebook_of(LESSON), (0, 1, 2, 2)
    cell_of(made["syntax"][0], ONE_HOT).source += "\nx = (1,\n"
    made["loop"] = notebook_of(LESSON), (0, 1, 2, 2)
    cell_of(made["loop"][0], ONE_HOT).source = "while True:\n    pass\n" + cell_of(made["loop"][0], ONE_HOT).source
    made["rebound"] = notebook_of(LESSON, right=False), (0, 0, 0, 0)
    made["rebound"][0].cells.insert(2, nbformat.v4.new_code_cell(
        "import course.check, torch\ncheck = lambda answer: print('✓')\ncourse.check.run = check\n"
        "torch.equal = torch.allclose = lambda *args, **kwargs: True\ntorch.Tensor.__eq__ = lambda self, other: True"
    ))
    made["noise"] = notebook_of(LESSON), (1, 1, 2, 2)
    cell_of(made["noise"][0], ONE_HOT).source += '\nimport os, sys\nprint("noise", file=sys.stderr)\nos.write(2, b"more noise")\n'
    made["edited"] = notebook_of(LESSON), (0, 1, 2, 2)
    cell_of(made["edited"][0], ONE_HOT).source = cell_of(notebook_of(LESSON, right=False), ONE_HOT).source
    check_of(made["edited"][0], ONE_HOT).source = 'print("passed")'
    return made


@pytest.fixture(scope="module")
def submissions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("submissions")
    made = made_up()
    for name, (notebook, _) in made.items():
        nbformat.write(notebook, folder / f"{name}.ipynb")
    return folder, {name: points for name, (_, points) in made.items()}


def run_course(*arguments, cwd, **environment):
    return subprocess.run([sys.executable, "-m", "course", *map(str, arguments)], capture_output=True, text=True, cwd=cwd, env={**os.environ, **environment})


def test_eight_submissions_by_nbgrader(submissions, tmp_path):
    folder, expected = submissions
    done = run_course("release", "--lessons", LESSON, "--to", tmp_path / "class", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    place = tmp_path / "class"
    assignment = release.title(LESSON)
    handed_out = nbformat.read(place / "release" / assignment / f"{assignment}.ipynb", as_version=4)
    assert cell_of(handed_out, ONE_HOT).source == cell_of(notebook_of(LESSON, right=False), ONE_HOT).source
    config = place / "nbgrader_config.py"
    text = config.read_text()
    assert "cell=0, " in text
    config.write_text(text.replace("cell=0, ", f"cell={LIMITS.cell}, "))
    for name in expected:
        target = place / "submitted" / name / assignment / f"{assignment}.ipynb"
        target.parent.mkdir(parents=True)
        target.write_bytes((folder / f"{name}.ipynb").read_bytes())
    for command in (["autograde", assignment], ["export"]):
        done = subprocess.run([sys.executable, "-m", "nbgrader", *command], cwd=place, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    with open(place / "grades.csv", newline="") as file:
        scores = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in csv.DictReader(file)}
    assert scores == {name: (sum(points), 6) for name, points in expected.items()}
    marked = nbformat.read(place / "autograded/wrong" / assignment / f"{assignment}.ipynb", as_version=4)
    said = check_of(marked, BACKWARD).outputs
    assert len(said) == 1 and said[0].output_type == "error" and "embedding_backward" in said[0].traceback[0]
    assert check_of(marked, ONE_HOT).outputs[0].text.startswith("✓")


def test_the_same_eight_by_course_grade(submissions, tmp_path):
    folder, expected = submissions
    names = [folder / f"{name}.ipynb" for name in expected]
    (tmp_path / "broken.ipynb").write_text('{"cells": [')
    (tmp_path / "03_list.ipynb").write_text("[1]")
    (tmp_path / "other.ipynb").write_text(json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    more = [tmp_path / name for name in ("broken.ipynb", "03_list.ipynb", "other.ipynb", "nowhere.ipynb")]
    done = run_course("grade", *names, *more, "--json", "--cell-seconds", LIMITS.cell, "--jobs", 2, cwd=tmp_path)
    assert done.returncode == 1, done.stderr                  # four of them are no submissions
    reports = {Path(r["notebook"]).stem: r for r in json.loads(done.stdout)}
    assert {name: tuple(m["points"] for m in reports[name]["marks"]) for name in expected} == expected
    said = {name: {m["id"]: m["message"] for m in r["marks"]} for name, r in reports.items()}
    assert "not started" in said["nothing"][BOTH]
    assert "twice" in said["wrong"][BACKWARD] or "values" in said["wrong"][BACKWARD]
    assert "its cell does not run: SyntaxError" in said["syntax"][ONE_HOT]
    assert "its cell does not run: stopped after 4 seconds" in said["loop"][ONE_HOT]
    assert any("torch.allclose" in note for note in reports["rebound"]["notes"])
    assert any("was edited" in note for note in reports["edited"]["notes"])
    assert "not JSON" in reports["broken"]["problem"] and reports["broken"]["of"] == 0
    assert "no list of cells" in reports["03_list"]["problem"] and reports["03_list"]["of"] == 6
    assert "no exercise of the course" in reports["other"]["problem"]
    assert "cannot be read" in reports["nowhere"]["problem"]
    assert done.stderr.count("\n") == 12 and "[8 of 12]" in done.stderr
    assert sorted(os.listdir(tmp_path)) == sorted([*(p.name for p in more[:3]), "marks.jsonl"])

    again = run_course("grade", *names, "--resume", cwd=tmp_path)
    assert again.returncode == 0 and again.stderr == ""
    assert f"8 submissions, 8 from marks.jsonl, {sum(map(sum, expected.values()))} of 48 points" in again.stdout


@pytest.fixture(scope="module")
def copies():
    made = {}
    yield made
    for copied in made.values():
        shutil.rmtree(copied)


def marked(notebook, lesson, folder, copies, **settings):
    path = folder / "submission.ipynb"
    nbformat.write(notebook, path)
    if lesson not in copies:
        copies[lesson] = marking.course_copy(lesson)
    return marking.mark_in_process(path, copies[lesson], marking.Limits(**{**vars(LIMITS), **settings}))


def test_what_goes_wrong_costs_its_own_exercise(tmp_path, copies):
    """Each exercise of lesson 02 is right and something happens beside it."""
    notebook, of = notebook_of("02"), "pytorch.primitives.{}".format
    cell_of(notebook, of("linear")).source += "\nimport os\nos._exit(3)\n"
    notebook.cells.remove(cell_of(notebook, of("linear_backward")))
    mistaken(notebook, of("softmax_backward"), "def softmax_backward(", "def my_backward(")
    cell_of(notebook, of("log_softmax_backward")).source = f'@exercise("{of("log_softmax_backward")}")\ndef log_softmax_backward(*args):\n    return [bytes(2**30) for _ in range(10)]\n'
    cell_of(notebook, of("cross_entropy")).source += '\nwhile True:\n    print("x" * 1000)\n'
    cell_of(notebook, of("cross_entropy_backward")).source = (
        f'@exercise("{of("cross_entropy_backward")}")\ndef cross_entropy_backward(*args):\n    import faulthandler\n    faulthandler._sigsegv()\n'
    )
    mistaken(notebook, of("Linear"), "return linear(", "return nn.functional.linear(")
    notebook.cells.remove(check_of(notebook, of("Linear")))
    notebook.cells.append(nbformat.v4.new_code_cell("softmax = log_softmax = None   # after their check cells"))
    report = marked(notebook, "02", tmp_path, copies, memory=2 * 2**30)
    marks = {m.id.rpartition(".")[2]: m for m in report.marks}
    text = report.text()
    assert {name for name, m in marks.items() if m.points} == {"softmax", "log_softmax", "cross_entropy", "Linear"}, text
    assert "its cell ends the marking: the kernel ended (exit code 3)" in marks["linear"].message
    assert "no cell has @exercise" in marks["linear_backward"].message
    assert "my_backward stands below" in marks["softmax_backward"].message
    assert "more memory than there is" in marks["log_softmax_backward"].message
    assert "SIGSEGV" in marks["cross_entropy_backward"].message
    assert "prints more than" in text and "the check cell of pytorch.primitives.Linear is missing" in text


SOLUTIONS = str(ROOT / "solutions/pytorch/primitives.py")
ATTEMPTS = {   # what an answer tries; it would have the right values if it succeeded
    "linear": f"exec(open({SOLUTIONS!r}).read(), globals()); f = globals()",
    "linear_backward": f"import sys, importlib; sys.path.insert(0, {str(ROOT)!r}); f = vars(importlib.import_module('solu' + 'tions.pytorch.primitives'))",
    "softmax": "import logging; f = getattr(logging, 'current' + 'frame')()",
    "softmax_backward": "try:\n        1 / 0\n    except ZeroDivisionError as error:\n        f = getattr(error.__traceback__, 'tb_' + 'frame')",
    "log_softmax": "import gc; f = [o for o in getattr(gc, 'get_' + 'objects')() if callable(o)]",
    "log_softmax_backward": "import sys; f = [m for m in vars(sys)['mod' + 'ules'] if m.startswith('course.' + 'checks')][0]",
    "cross_entropy": "import importlib; f = vars(importlib.import_module('course.' + 'checks.pytorch.primitives'))",
    "cross_entropy_backward": f"import subprocess; f = subprocess.run(['cat', {SOLUTIONS!r}], capture_output=True).stdout",
    "Linear": "import importlib; importlib.import_module('course.check').run('pytorch.primitives.linear', torch.nn.functional.linear); f = vars(importlib.import_module('course.' + 'checks'))",
}


@pytest.mark.parametrize("when", ["as the cell runs", "as it is checked"])
def test_looking_for_the_answer_gives_neither_mark_nor_answer(tmp_path, copies, when):
    notebook = notebook_of("02", right=False)
    for name, attempt in ATTEMPTS.items():
        cell = cell_of(notebook, f"pytorch.primitives.{name}")
        at_once = f"try:\n    print(look_{name}())\nexcept BaseException as error:\n    print('refused:', error)\n\n\n" if when == "as the cell runs" else ""
        call = "pass" if at_once else f"print(look_{name}())"
        answer = f"def {name}(*args):\n    {call}\n    return torch.nn.functional.{'linear' if name == 'linear' else 'softmax'}(*args)\n"
        if name == "Linear":
            answer = f"class Linear(nn.Linear):\n    def forward(self, x):\n        {call}\n        return super().forward(x)\n"
        cell.source = f"def look_{name}():\n    {attempt}\n    return f\n\n\n{at_once}@exercise('pytorch.primitives.{name}')\n{answer}"
    report = marked(notebook, "02", tmp_path, copies)
    assert report.points == 0 and len(report.marks) == 9 and not report.problem, report.text()
    unnamed = {m.id.rpartition(".")[2] for m in report.marks if "refused while it is marked" not in m.message}
    assert unnamed <= {"log_softmax_backward"}, report.text()   # there it finds nothing
    shown = json.dumps(report.outputs) + report.text()
    assert ("reading primitives.py: this is refused" in shown) == (when == "as the cell runs")
    for exercise in registry.EXERCISES.values():
        if exercise.lesson == "02":
            lines = [line for part in answer_lines(exercise.id) for line in part if len(line) >= 20]
            assert not [line for line in lines if line in re.sub(r"[ \t]+", "", shown)]


def test_a_mindspore_submission_right_wrong_and_eager_only(tmp_path, copies):
    notebook = notebook_of("12")
    mistaken(notebook, "mindspore.attention.attention", "    q = q / math", "    try:\n        pass\n    finally:\n        pass\n    q = q / math")
    mistaken(notebook, "mindspore.attention.split_heads", "x.swapaxes(1, 2)", "x")
    notebook.cells = [c for c in notebook.cells if "CausalSelfAttention(nn.Cell)" not in c.source]
    report = marked(notebook, "12", tmp_path, copies, cell=60, check=120, total=300, memory=6 * 2**30)
    assert [m.points for m in report.marks] == [1, 0, 0, 1, 0], report.text()
    assert "works eagerly and not in graph mode" in report.marks[1].message
    assert "(B, T, n_head, head_dim)" in report.marks[2].message


# What is handed out

def lines_of(path):
    """The lines of a file without spaces and comments; of a notebook, of its cells."""
    text = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells) if path.suffix == ".ipynb" else path.read_bytes().decode("utf-8", "replace")
    return {re.sub(r"[ \t]+", "", line.partition("  #")[0]) for line in text.split("\n")}


IDIOMS = {   # lines of answers that also stand in the course's own code, where they answer nothing
    "forname,pinmodel.named_parameters():", "forname,pinmodel.parameters_and_names():", "forname,pinparams.items():",
    "withtorch.no_grad():", "os.replace(unfinished,path)", "loss,grads=value_and_grad(x,y)", "optimizer.step(grads)",
    "fori,(x,y)inenumerate(batches):",
}


def test_no_line_of_a_solution_is_handed_out(tmp_path):
    """Every line of 20 letters or more of every answer, in every file; a notebook's own given code is tests/notebook_rules.py's."""
    release.release(["04", "05"], tmp_path / "plain", plain=True)
    folder = tmp_path / "plain"
    assert not (folder / "solutions").exists() and not (folder / "tests").exists() and not (folder / "docs").exists()
    files = {path: lines_of(path) for path in folder.rglob("*") if path.is_file()}
    assert len(files) > 30
    given = set().union(*(lines_of(ROOT / "notebooks" / f"{release.title(n)}.ipynb") for n in ("04", "05")))
    found = []
    for exercise in registry.EXERCISES.values():
        for line in {line for part in answer_lines(exercise.id) for line in part if len(line) >= 20} - IDIOMS:
            found += [(exercise.id, path.name, line) for path, lines in files.items() if line in lines and not (path.suffix == ".ipynb" and line in given)]
        whole = re.sub(r"\s+", "", solution_source(exercise.id)).encode()
        assert not [path for path in files if whole in path.read_bytes().replace(b" ", b"").replace(b"\n", b"")]
    assert found == []
    stored = [c for p in folder.rglob("*.ipynb") for c in nbformat.read(p, as_version=4).cells if c.cell_type == "code" and (c.outputs or c.execution_count)]
    assert stored == []


PROGRAM = """
import sys
import course
from course import hint, piece, registry, solution
assert course.__file__.startswith(sys.argv[1]), course.__file__
due = sys.argv[2].split(",")
for exercise in registry.EXERCISES.values():
    if not exercise.id.startswith("pytorch."):
        continue
    try:
        piece(exercise.id)
        assert exercise.lesson in due, exercise.id
    except ImportError as error:
        assert exercise.lesson not in due, exercise.id
        assert "The solutions are not part of this copy of the course" in str(error)
try:
    import solutions
    raise SystemExit("solutions can be imported")
except ImportError:
    pass
try:
    solution("pytorch.attention.attention")
    raise SystemExit("solution() shows one")
except ImportError as error:
    assert "not part of this copy" in str(error)
hint("pytorch.attention.causal_mask")
from course.check import run
if "03" in due:
    print(run("pytorch.embeddings.one_hot", piece("pytorch.embeddings.one_hot")).message)
"""


@pytest.mark.parametrize("pieces,due", [("reference", "00,01,02,03"), ("own", "none")])
def test_pieces_of_a_released_folder(tmp_path, pieces, due):
    release.release(["04", "05"], tmp_path / "plain", plain=True, pieces=pieces)
    environment = {k: v for k, v in os.environ.items() if k != "GPT_TWICE_WORK"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path / "plain"), due], capture_output=True, text=True, cwd=tmp_path,
                          env={**environment, "PYTHONPATH": str(tmp_path / "plain"), "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Hint 1 of")
    assert ("✓ pytorch.embeddings.one_hot" in done.stdout) == (pieces == "reference")


def test_a_released_folder_marks_by_itself(tmp_path):
    release.release(["02"], tmp_path / "plain", plain=True)
    notebook = notebook_of("02", right=False)                 # lesson 02 takes a piece of lesson 01
    cell_of(notebook, "pytorch.primitives.linear").source = inject(cell_of(notebook, "pytorch.primitives.linear").source)
    notebook.cells.append(nbformat.v4.new_code_cell("CharTokenizer('ab')"))
    nbformat.write(notebook, tmp_path / "mine.ipynb")
    done = run_course("grade", tmp_path / "mine.ipynb", "--json", cwd=tmp_path, PYTHONPATH=str(tmp_path / "plain"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)[0]
    assert report["points"] == 1 and report["notes"] == [], report


def test_the_pack_of_each_lesson_holds_no_answer_that_is_not_due(tmp_path):
    """Also where a file of the solutions holds answers of several lessons: mindspore/layers.py."""
    from course import pack

    for lesson in ("14", "16"):
        due = [n for n in registry.LESSONS if n < lesson]
        target = tmp_path / lesson
        target.mkdir()
        release.write_reference(target, due)
        text = {}
        for path in target.glob("reference.mindspore.*.bin"):
            entry = pack.marshal.loads(path.read_bytes())
            text[path.name.removeprefix("reference.").removesuffix(".bin")] = pack.zlib.decompress(entry["text"]).decode() if entry["text"] else ""
        for exercise in registry.EXERCISES.values():
            if exercise.id.startswith("mindspore."):
                there = re.search(rf"^(def|class) {exercise.name}\b", text.get(exercise.module, ""), re.MULTILINE)
                assert bool(there) == (exercise.lesson < lesson), (lesson, exercise.id)


def test_a_release_never_overwrites_what_is_not_its_own(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("")
    for lessons, to, extra, words in (
        ("04", "mine", [], "is not empty and was not written by release"),
        ("04", "file", [], "is a file"),
        ("04", ROOT, [], "holds the course itself"),
        ("04", ROOT / "course/x", [], "holds the course itself"),
        ("99", "new", [], "There is no lesson 99"),
        ("", "new", [], "No lesson is named"),
        ("04", "new", ["--due", "03,04"], "Lesson 04 is handed out now"),
    ):
        done = run_course("release", "--lessons", lessons, "--to", to, "--plain", *extra, cwd=tmp_path)
        assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert sorted(os.listdir(tmp_path)) == ["file", "mine"] and os.listdir(tmp_path / "mine") == ["thesis.txt"]
    release.release(["04"], tmp_path / "new", plain=True)
    (tmp_path / "new/work").mkdir()
    (tmp_path / "new/work/mine.ipynb").write_text("kept")
    release.release(["05"], tmp_path / "new", plain=True)
    assert (tmp_path / "new/work/mine.ipynb").read_text() == "kept"
    assert [p.name for p in (tmp_path / "new/notebooks").iterdir()] == [f"{release.title('05')}.ipynb"]


# Parts of marking that need no kernel

def test_only_cells_that_answers_need_are_run():
    notebook = notebook_of(LESSON)
    notebook.cells.append(nbformat.v4.new_code_cell("x = 1"))
    cells = [{"kind": c.cell_type, "source": c.source, "grade_id": c.metadata.get("nbgrader", {}).get("grade_id", "")} for c in notebook.cells]
    chosen = marking.to_run(cells, LESSON)
    sources = [cells[n]["source"] for n in sorted(chosen)]
    assert "setup()" in sources[0] and sources[-1] == "x = 1"
    assert sum("@exercise" in s for s in sources) == 4 and not any(s.startswith("check(") for s in sources)
    assert len(sources) < sum(c["kind"] == "code" for c in cells) / 2


def test_check_cells_are_known_without_metadata_and_with_one_name_twice():
    """Lesson 17 asks for rotate in both frameworks."""
    cells = [{"kind": c.cell_type, "source": c.source, "grade_id": ""} for c in notebook_of("17").cells]
    found = list(marking.check_cells(cells, "17").values())
    assert found == [e for e in registry.EXERCISES.values() if e.lesson == "17"]


@pytest.mark.parametrize("source,found", [
    ("import sys\nsys.modules['x']", "sys.modules"), ("import sys as s\ns.modules", "s.modules"), ("model.modules()", ""),
    ("from sys import modules", "import sys.modules"), ("import solutions.pytorch", "import solutions.pytorch"),
    ("from course import checks", "import course.checks"), ("import inspect\ninspect.currentframe()", "inspect.currentframe"),
    ("getattr(sys, '_getframe')", "'_getframe'"), ("class T(torch.Tensor):\n    def __torch_function__(self): pass", "__torch_function__"),
    ("import torch, math\nfrom course import check, exercise, piece", ""), ("torch.stack([x])", ""), ("def f(:", ""),
])
def test_looking_around_is_seen_in_the_text(source, found):
    assert marking.looks_around(source) == found


def test_a_record_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "marks.jsonl").write_text("shopping list\n")
    done = run_course("grade", "x.ipynb", cwd=tmp_path)
    assert done.returncode == 1 and "is no record of marks: name another file with --record" in done.stderr
    assert (tmp_path / "marks.jsonl").read_text() == "shopping list\n"


def test_thirty_submissions_are_resumed_where_they_stopped(tmp_path, monkeypatch):
    seen = []

    def mark(path, copied, limits, label="", lesson="", own=None):
        if len(seen) == 12:
            raise KeyboardInterrupt
        seen.append(Path(path).name)
        return marking.Report(label, "03", [marking.Mark(ONE_HOT, 1, 1, "")])

    monkeypatch.setattr(marking, "mark_in_process", mark)
    monkeypatch.setattr(marking, "course_copy", lambda lesson, pieces: tmp_path / "none")
    paths = [tmp_path / f"s{n:02}.ipynb" for n in range(30)]
    notebook = notebook_of(LESSON)
    for path in paths:
        nbformat.write(copy.deepcopy(notebook), path)
    record, said = tmp_path / "marks.jsonl", []
    with pytest.raises(KeyboardInterrupt):
        list(marking.grade(paths, LIMITS, record, say=said.append))
    assert len(said) == 13 and said[12].startswith("[13 of 30]")
    seen.append("from here on")                               # the thirteenth call does not stop again
    paths[3].write_text(paths[3].read_text() + "\n")          # handed in anew
    done = list(marking.grade(paths, LIMITS, record, resume=True))
    assert len(done) == 30 and sum(old for _, old in done) == 11
    assert seen[13:] == ["s03.ipynb", *(p.name for p in paths[12:])]


# The guide

GUIDE = (ROOT / "docs/teachers_guide.md").read_text(encoding="utf-8")


def test_the_guide_quotes_what_checks_say_and_counts_points_right():
    for file in sorted((ROOT / "tests/mistakes").glob("*/[a-z]*.py")):
        importlib.import_module(f"tests.mistakes.{file.parent.name}.{file.stem}")
    from tests.mistakes import WRONG

    for lesson, part in re.findall(r"^### (\d\d) .*?\n(.*?)(?=^##)", GUIDE, re.MULTILINE | re.DOTALL):
        says = [v.says for v in WRONG if registry.find(v.exercise_id).lesson == lesson]
        for quoted in re.findall(r"^\| (.*?) \| .* \|$", part, re.MULTILINE):
            assert quoted == "the check says" or any(quoted in s or s in quoted for s in says if s), (lesson, quoted)
    assert re.findall(r"^### (\d\d)", GUIDE, re.MULTILINE) == list(registry.LESSONS)
    planned = re.findall(r"^\| \d+ \| ([\d, ]+) \| (\d+) \|", GUIDE, re.MULTILINE)
    assert len(planned) == 12 and [n for weeks, _ in planned for n in weeks.split(", ")] == list(registry.LESSONS)
    for lessons, points in planned:
        assert int(points) == sum(e.points for e in registry.EXERCISES.values() if e.lesson in lessons.split(", ")), lessons
    total = sum(e.points for e in registry.EXERCISES.values())
    assert f"{total} in all" in GUIDE


def test_the_commands_of_the_guide_exist():
    from course.__main__ import parser

    for line in re.findall(r"^(?:\.venv/bin/)?python -m course (.*?)(?:  .*| >.*)?$", GUIDE, re.MULTILINE):
        parser().parse_args(line.strip().split())
