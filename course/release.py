"""A folder of lessons to hand out: notebooks, the course without its solutions, and what earlier lessons' pieces need."""
import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from course import pack, registry

MADE = ".gpt-twice-release"      # marks a folder as written here, so that it may be written again
PLAIN_FILES = ("course/__init__.py", "course/checks/__init__.py", "course/bench/__init__.py")
GRADING = registry.ROOT / "grading"


class ReleaseError(ValueError):
    """What cannot be released, in one sentence."""


def release(lessons, to, plain=False, pieces="reference", due=None):
    """Write the folder.

    Args:
        lessons: two-digit numbers, for example ["04", "05"].
        to: where; a new or empty folder, or one that was written here before.
        plain: a folder to hand out as it is, not a course folder of nbgrader.
        pieces: "reference" packs the compiled answers of the lessons in `due`; "own" packs none, and piece() takes
            the learner's own passed answers.
        due: lessons whose answers may be packed; by default all before the first of `lessons`.

    Returns:
        lines that say what was written.

    Raises:
        ReleaseError: an unknown lesson, a folder with other content, no solutions to pack.
    """
    lessons = sorted({known(lesson) for lesson in lessons})
    if not lessons:
        raise ReleaseError("No lesson is named: --lessons 04,05.")
    if pieces not in ("reference", "own"):
        raise ReleaseError(f"--pieces is {pieces!r} and must be reference or own.")
    due = sorted(known(lesson) for lesson in due) if due is not None else [n for n in registry.LESSONS if n < lessons[0]]
    shared = sorted(set(due) & set(lessons))
    if shared:
        raise ReleaseError(f"Lesson {shared[0]} is handed out now: its answers cannot be in the pack of lessons already due.")
    to = Path(to).resolve()
    prepare(to)
    answers = due if pieces == "reference" else []
    written = []
    if plain:
        write_course(to, lessons, answers)
        copy_notebooks(lessons, to / "notebooks")
        for name in ("tools/install.py", "tools/start.py", "requirements.txt", "pyproject.toml", "LICENSE", "LICENSE-TEXT.md"):
            copy(registry.ROOT / name, to / name)
        (to / "tools/__init__.py").touch()
        (to / "Makefile").write_text(MAKEFILE, encoding="utf-8")
        (to / "README.md").write_text(README.format(lessons=listed(lessons), pieces=PIECES[pieces]), encoding="utf-8")
        (to / ".gitignore").write_text(".venv/\nwork/\n__pycache__/\n", encoding="utf-8")
        written.append(f"{to}: lessons {', '.join(lessons)} to hand out; start with its README.md.")
    else:
        write_course(to / "student", lessons, answers)
        copy_notebooks(lessons, to / "student" / "notebooks")
        copy(registry.ROOT / "pyproject.toml", to / "student/pyproject.toml")
        copy(registry.ROOT / "requirements.txt", to / "student/requirements.txt")
        config = (GRADING / "nbgrader_config.py").read_text(encoding="utf-8")
        config = config.replace('PIECES = "reference"', f'PIECES = "{pieces}"')
        (to / "nbgrader_config.py").write_text(config, encoding="utf-8")
        for lesson in lessons:
            copy_notebooks([lesson], to / "source" / title(lesson))
        written += [f"{to}: source/ of {', '.join(map(title, lessons))} and nbgrader_config.py.",
                    f"{to / 'student'}: the course without solutions, for the environment of the learners."]
        written += generate(to, lessons)
    return written


def known(lesson):
    number = f"{lesson:0>2}"
    if number not in registry.LESSONS:
        raise ReleaseError(f"There is no lesson {lesson}: they run from {min(registry.LESSONS)} to {max(registry.LESSONS)}.")
    return number


def title(lesson):
    return f"{lesson}_{registry.LESSONS[lesson]}"


def listed(lessons):
    return ", ".join(f"`{title(lesson)}`" for lesson in lessons)


def prepare(to):
    """Make the folder, or clear what was released into it before; the submissions and marks of nbgrader stay."""
    if to == registry.ROOT or to in registry.ROOT.parents or registry.ROOT / "course" in [to, *to.parents]:
        raise ReleaseError(f"{to} holds the course itself: name another folder with --to.")
    if to.exists() and not to.is_dir():
        raise ReleaseError(f"{to} is a file: name another folder with --to.")
    if to.exists() and any(to.iterdir()) and not (to / MADE).exists():
        raise ReleaseError(f"{to} is not empty and was not written by release: name another folder with --to, or empty this one.")
    to.mkdir(parents=True, exist_ok=True)
    for old in ("course", "student", "notebooks"):
        if (to / old).is_dir():
            shutil.rmtree(to / old)
    (to / MADE).write_text("Written by python -m course release. A later release into this folder replaces course/, student/ and notebooks/.\n", encoding="utf-8")


def copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def copy_notebooks(lessons, to):
    """Notebooks without outputs: a stored verdict above an empty stub would mislead."""
    to.mkdir(parents=True, exist_ok=True)
    for lesson in lessons:
        source = registry.ROOT / "notebooks" / f"{title(lesson)}.ipynb"
        if not source.exists():
            raise ReleaseError(f"notebooks/{source.name} is not there: make notebooks writes it.")
        notebook = json.loads(source.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell["outputs"], cell["execution_count"] = [], None
        (to / source.name).write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_course(to, lessons, due):
    """The package course, the checks compiled, and the answers of the lessons in `due` compiled."""
    course = registry.ROOT / "course"
    target = to / "course" / "packed"
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(course.rglob("*")):
        name = path.relative_to(registry.ROOT).as_posix()
        if path.is_dir() or "__pycache__" in path.parts:
            continue
        compiled = path.suffix == ".py" and name.startswith(("course/checks/", "course/bench/")) and name not in PLAIN_FILES
        if path.parent == pack.FOLDER:
            if not path.name.startswith("reference."):
                copy(path, target / path.name)
        elif compiled:
            text = path.read_text(encoding="utf-8").replace("from solutions.", "from reference.")
            write_module(target, name, text, keep_text="mindspore" in text)
        else:
            copy(path, to / name)
    write_reference(target, due)


def write_reference(target, due):
    if pack.packed():                                         # this copy has no solutions: hand on what it has
        for path in pack.FOLDER.glob("reference*.bin"):
            copy(path, target / path.name)
        return
    by_module = {}
    for exercise in registry.EXERCISES.values():
        if exercise.lesson in due:
            by_module.setdefault(exercise.module, []).append(exercise.name)
    if not by_module:
        return
    undue = {e.id for e in registry.EXERCISES.values() if e.lesson not in due}
    names = {"": None, **dict.fromkeys(module.partition(".")[0] for module in by_module)}
    for package in names:
        write_module(target, "/".join(filter(None, ["reference", package, "__init__.py"])), "")
    open_modules = list(by_module)
    while open_modules:
        open_modules += add_imported(open_modules.pop(), by_module)
    for module, wanted in by_module.items():
        path = registry.ROOT / "solutions" / (module.replace(".", "/") + ".py")
        if not path.exists():
            raise ReleaseError(f"{path} is not there: release from a copy of the course that has its solutions, or use --pieces own.")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        given = [n for n in given_names(module) if not {f"{module}.{b}" for s in pack.needed(ast.parse(path.read_text(encoding="utf-8")), [n]) for b in pack.bound(s)} & undue]
        tree.body = pack.needed(tree, [*wanted, *given])
        text = ast.unparse(tree).replace("from solutions.", "from reference.") + "\n"
        write_module(target, f"reference/{module.replace('.', '/')}.py", text, keep_text=module.startswith("mindspore"))


def add_imported(module, by_module):
    """A due answer may use what another file defines, for example a dataclass: add it. Returns the modules that grew."""
    tree = ast.parse((registry.ROOT / "solutions" / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8"))
    framework = module.partition(".")[0]
    grown = []
    for statement in pack.needed(tree, by_module[module]):
        if isinstance(statement, ast.ImportFrom) and statement.level == 1:
            other = f"{framework}.{statement.module}"
            names = by_module.setdefault(other, [])
            new = [a.name for a in statement.names if a.name not in names]
            names += new
            grown += [other] if new else []
    return grown


def given_names(module):
    """Functions of the solutions that the course itself hands out: given("mindspore.training.save_checkpoint")."""
    found = set()
    for path in (registry.ROOT / "course").rglob("*.py"):
        found |= set(re.findall(r'given\("([\w.]+)"\)', path.read_text(encoding="utf-8")))
    return sorted(name.rpartition(".")[2] for name in found if name.rpartition(".")[0] == module)


def write_module(target, name, text, keep_text=False):
    package = name.endswith("/__init__.py")
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    (target / f"{module}.bin").write_bytes(pack.pack(text, name, package, keep_text))


def generate(to, lessons):
    """release/, by nbgrader, where it is installed."""
    try:
        import nbgrader  # noqa: F401
    except ImportError:
        return ["nbgrader is not installed here (pip install -r requirements-grading.txt): with it, nbgrader generate_assignment writes release/."]
    lines = []
    for lesson in lessons:
        done = subprocess.run([sys.executable, "-m", "nbgrader", "generate_assignment", title(lesson), "--force"], cwd=to, capture_output=True, text=True)
        if done.returncode:
            problem = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()[-1:]
            raise ReleaseError(f"nbgrader cannot generate {title(lesson)}: {' '.join(problem)[:400]}")
        lines.append(f"release/{title(lesson)}: ready for nbgrader release_assignment.")
    return lines


PIECES = {
    "reference": "What earlier lessons built is there in compiled form: your own passed answer is taken where you have one.",
    "own": "What earlier lessons built is your own passed answer in `work/my_gpt/`: pass a lesson before the next one, and keep that folder when you get a new release.",
}

README = """# GPT, twice: lessons to work on

Lessons: {lessons}.

You need Python 3.11 or 3.12, about 6 GB of disk and, for the first call, a connection.

```
make lab
```

makes the environment, copies the notebooks to `work/` and opens JupyterLab there. Without make: `python3.11 tools/install.py`,
then `.venv/bin/python tools/start.py` (on Windows `py -3.11 tools\\install.py` and `.venv\\Scripts\\python tools\\start.py`).
Work in `work/`; nothing there is ever overwritten.

In a notebook, replace `raise NotImplementedError` by your code, run the cell, then the check below it. `hint("...")` prints a
hint, `progress()` what is passed. {pieces}

Hand in the notebook from `work/`, saved. Leave the check cells as they are: marking puts the course's own in their place and runs
your functions in a fresh kernel, so that what you hand in has to work from top to bottom (Kernel > Restart Kernel and Run All Cells).
"""

MAKEFILE = """PYTHON ?= python3.11
VENV ?= .venv

lab:
\t@$(PYTHON) tools/install.py --venv $(VENV)
\t@$(VENV)/bin/python tools/start.py
"""
