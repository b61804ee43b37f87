"""Mark submissions: each in a kernel of its own, in a process of its own, with limits of time and memory.

The cells of a submission run, its check cells do not: the checks of the course run afterwards on what the cells defined
(course.guard). A cell that kills or blocks the kernel is left out of a second try, so that it costs its own exercise only.
"""
import ast
import hashlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import symtable
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from course import answers, pack, registry, release

MB = 2**20
SLOW_CELLS = {"07": 180, "08": 120, "16": 180, "17": 180, "20": 180, "21": 120, "22": 180}   # seconds a cell may take; others 60


@dataclass
class Limits:
    """Seconds a cell may take (0: what the lesson needs), seconds for the checks of one exercise and for a whole submission, memory."""

    cell: float = 0
    check: float = 180
    total: float = 900
    memory: int = 6 * 1024 * MB
    output: int = 200_000                                     # characters that one cell may print
    kernels: int = 4                                          # tries, where cells kill the kernel


@dataclass
class Mark:
    """What one exercise of a submission is worth, and why."""

    id: str
    points: int
    of: int
    message: str


@dataclass
class Report:
    """The marks of one submission. problem: why there are none at all. notes: what the teacher should know."""

    notebook: str
    lesson: str = ""
    marks: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    problem: str = ""
    seconds: float = 0
    outputs: dict = field(default_factory=dict)               # cell number -> its outputs, for nbgrader's feedback

    @property
    def points(self):
        return sum(m.points for m in self.marks)

    @property
    def of(self):
        return sum(m.of for m in self.marks)

    def text(self):
        """The report for a reader."""
        head = f"{self.notebook}: " + (f"lesson {self.lesson}, " if self.lesson else "") + f"{self.points} of {self.of} points"
        lines = [head]
        lines += [f"  {self.problem}"] if self.problem else []
        for mark in self.marks:
            sign = "✓" if mark.points else "✗"
            lines.append(f"  {sign} {mark.points} of {mark.of}  {mark.id}" + (f": {mark.message}" if mark.message and not mark.points else ""))
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


class MarkingError(ValueError):
    """Why nothing can be marked, in one sentence."""


# The submission as it was handed in

def read(path):
    """The cells of a notebook as [{"kind", "source", "grade_id"}]; MarkingError in one sentence."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise MarkingError(f"it cannot be read: {error.strerror}.") from None
    try:
        notebook = json.loads(raw.decode("utf-8"))
        cells = []
        for cell in notebook["cells"]:
            source = cell.get("source", "")
            source = "".join(source) if isinstance(source, list) else str(source)
            about = cell.get("metadata", {}).get("nbgrader", {})
            cells.append({"kind": str(cell.get("cell_type")), "source": source, "grade_id": str(about.get("grade_id", ""))})
        return cells
    except (ValueError, RecursionError) as error:
        raise MarkingError(f"this is no notebook, its text is not JSON ({str(error)[:80]}).") from None
    except (KeyError, TypeError, AttributeError):
        raise MarkingError("this is no notebook of Jupyter's format 4: it has no list of cells.") from None


def exercise_names(source):
    """exercise id -> name of the def or class below @exercise("id") in a cell."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {e.id: e.name for e in registry.EXERCISES.values() if f'@exercise("{e.id}")' in source or f"@exercise('{e.id}')" in source}
    found = {}
    for node in tree.body:
        for decorator in getattr(node, "decorator_list", []):
            if answers.names_exercise(decorator) and decorator.args and isinstance(decorator.args[0], ast.Constant):
                found[decorator.args[0].value] = node.name
    return found


def lesson_of(cells, path):
    """The lesson that most exercises of a submission belong to, or that its file name begins with."""
    ids = [i for cell in cells for i in exercise_names(cell["source"])]
    ids += [e.id for cell in cells for e in registry.EXERCISES.values() if cell["grade_id"].removeprefix("check-") == e.id.replace(".", "-")]
    lessons = [registry.find(i).lesson for i in ids if i in registry.EXERCISES]
    if lessons:
        return max(sorted(set(lessons)), key=lessons.count)
    return Path(path).name[:2] if Path(path).name[:2] in registry.LESSONS else ""


def check_cells(cells, lesson):
    """cell number -> the exercise whose check cell this is: by nbgrader's id, or by its text and the exercise above it."""
    by_grade_id = {"check-" + e.id.replace(".", "-"): e for e in registry.EXERCISES.values() if e.lesson == lesson}
    latest = {f"check({e.name})": e for e in by_grade_id.values()}
    found = {}
    for number, cell in enumerate(cells):
        if cell["kind"] != "code":
            continue
        for exercise_id, name in exercise_names(cell["source"]).items():
            if exercise_id in registry.EXERCISES and registry.find(exercise_id).lesson == lesson:
                latest[f"check({name})"] = registry.find(exercise_id)
        exercise = by_grade_id.get(cell["grade_id"]) or latest.get(cell["source"].strip())
        if exercise:
            found[number] = exercise
    return found


def given_cells(lesson):
    """The code cells of the course's own notebook that are no exercise, by their text."""
    path = registry.ROOT / "notebooks" / f"{release.title(lesson)}.ipynb"
    if not path.exists():
        return set()
    return {c["source"].strip() for c in read(path) if c["kind"] == "code" and not exercise_names(c["source"]) and not c["source"].startswith("check(")}


def to_run(cells, lesson):
    """Numbers of the code cells that marking runs: the learner's, and of the given ones those that an answer takes a name from."""
    given, checks = given_cells(lesson), check_cells(cells, lesson)
    chosen, wanted = set(), set()
    for number in reversed(range(len(cells))):
        cell = cells[number]
        if cell["kind"] != "code" or number in checks or not cell["source"].strip():
            continue
        try:
            reads = answers.global_names(symtable.symtable(cell["source"], "cell", "exec"))
            binds = {name for statement in ast.parse(cell["source"]).body for name in pack.bound(statement)}
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            chosen.add(number)
            continue
        if cell["source"].strip() not in given or binds & wanted or "setup()" in cell["source"]:
            chosen.add(number)
            wanted |= reads
    return chosen


LOOKING = {
    "_getframe", "_current_frames", "currentframe", "getouterframes", "getinnerframes", "f_back", "f_locals", "f_globals", "tb_frame",
    "gi_frame", "cr_frame", "get_objects", "get_referrers", "get_referents", "addaudithook", "settrace", "setprofile", "__subclasses__",
    "__torch_function__", "__torch_dispatch__", "TorchFunctionMode", "TorchDispatchMode", "__array_function__", "__array_ufunc__",
}
CLOSED_MODULES = ("solutions", "course.checks", "course.guard", "course.marking", "ctypes")


def looks_around(source):
    """What a cell names that no answer needs: the stack, all objects, the checks; empty if nothing."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    systems = {"sys"} | {a.asname for n in nodes if isinstance(n, ast.Import) for a in n.names if a.name == "sys" and a.asname}
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            start = getattr(node, "module", None)
            names = [f"{start}.{a.name}" if start else a.name for a in node.names]
            for name in names:
                if name == "sys.modules" or any(name == m or name.startswith(m + ".") for m in CLOSED_MODULES) or name.rpartition(".")[2] in LOOKING:
                    return f"import {name}"
        elif isinstance(node, ast.Attribute):
            if node.attr in LOOKING or (node.attr == "modules" and isinstance(node.value, ast.Name) and node.value.id in systems):
                return ast.unparse(node)[-60:]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value in LOOKING or node.value in CLOSED_MODULES or node.value.startswith(("course.checks", "solutions.", "solutions/")):
                return repr(node.value[:60])
        elif isinstance(node, ast.Name) and node.id in LOOKING:
            return node.id
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in LOOKING:
            return node.name
    return ""


# A kernel

class Died(Exception):
    """The kernel ended, or was ended because nothing else stopped it."""


class Kernel:
    """A kernel of Jupyter inside course.guard's fence."""

    def __init__(self, folder, copy, lesson, limits, closed):
        from jupyter_client.manager import KernelManager

        self.limits = limits
        self.sandbox, self.control = folder / "submission", folder / "control"
        for made in (self.sandbox, self.sandbox / "work", self.sandbox / "tmp", self.control):
            made.mkdir(parents=True, exist_ok=True)
        for old in self.control.iterdir():
            old.unlink()
        environment = {k: v for k, v in os.environ.items() if k not in ("NBGRADER_EXECUTION", "PYTEST_CURRENT_TEST", "PYTHONSTARTUP")}
        environment |= {
            "PYTHONPATH": str(copy), "GPT_TWICE_WORK": str(self.sandbox / "work"), "TMPDIR": str(self.sandbox / "tmp"),
            "IPYTHONDIR": str(self.sandbox / "tmp" / "ipython"), "OMP_NUM_THREADS": environment.get("OMP_NUM_THREADS", "1"),
            "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(self.sandbox), env=environment, extra_arguments=["--HistoryManager.enabled=False"])
        (folder / "kernel.pid").write_text(str(self.manager.provisioner.pid))
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        settings = {
            "sandbox": str(self.sandbox), "control": str(self.control), "course": str(copy), "closed": [str(p) for p in closed],
            "allowed": [str(copy), sys.prefix, str(registry.ROOT / ".venv")],
            "frameworks": ["numpy", "torch"] + (["mindspore"] if any(e.id.startswith("mindspore.") and e.lesson == lesson for e in registry.EXERCISES.values()) else []),
            "memory": limits.memory,
        }
        self.run(f"import os; os.environ.setdefault('GLOG_v', '4'); import json, course.guard; course.guard.start(json.loads({json.dumps(settings)!r})); del os, json, course", 120)
        if not (self.control / "ready").exists():
            raise MarkingError("the kernel for the submission does not start: is the course's environment complete?")

    def run(self, code, seconds, request=None):
        """Run code; returns {"outputs", "error"}. Raises Died."""
        if request is not None:
            unfinished = self.control / "request.tmp"
            unfinished.write_text(json.dumps(request), encoding="utf-8")
            os.replace(unfinished, self.control / "request.json")
        sent = self.client.execute(code, store_history=True, allow_stdin=False, stop_on_error=False)
        outputs, size, error, stopped = [], 0, "", ""
        end = time.monotonic() + seconds
        while True:
            if time.monotonic() > end:
                if stopped:
                    raise Died(f"{stopped} and does not stop when it is interrupted")
                stopped, end = f"stopped after {seconds:.0f} seconds", time.monotonic() + 10
                self.manager.interrupt_kernel()
            try:
                message = self.client.get_iopub_msg(timeout=0.2)
            except queue.Empty:
                if not self.manager.is_alive():
                    raise Died(self.cause()) from None
                continue
            if message["parent_header"].get("msg_id") != sent:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind == "error":
                error = f"{content['ename']}: {content['evalue']}"
            if kind in ("stream", "error", "display_data", "execute_result"):
                size += len(json.dumps(content.get("text") or content.get("data") or content.get("evalue") or ""))
                if size <= self.limits.output:
                    outputs.append({"kind": kind, **content})
                elif not stopped:
                    stopped, end = f"stopped because it prints more than {self.limits.output:,} characters", time.monotonic() + 10
                    self.manager.interrupt_kernel()
        try:
            while self.client.get_shell_msg(timeout=5)["parent_header"].get("msg_id") != sent:
                pass
        except queue.Empty:
            if not self.manager.is_alive():
                raise Died(self.cause()) from None
        return {"outputs": outputs, "error": f"{stopped}: {error}" if stopped and error else stopped or error}

    def cause(self):
        try:
            code = self.manager.provisioner.process.poll()
        except AttributeError:
            code = None
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return f"the kernel died ({name}{', perhaps for want of memory' if name in ('SIGKILL', 'SIGABRT') else ', a crash outside Python' if name == 'SIGSEGV' else ''})"
        return f"the kernel ended (exit code {code})" if code is not None else "the kernel ended"

    def result(self):
        path = self.control / "result.json"
        if not path.exists():
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
        return found

    def close(self):
        try:
            self.client.stop_channels()
        finally:
            if self.manager.has_kernel:
                self.manager.shutdown_kernel(now=True)


# One submission

def mark_notebook(path, copy, limits, label="", lesson="", own=None):
    """The Report on one submission, in this process (its cells run in kernels).

    Args:
        path: the .ipynb.
        copy: folder with a released course for this lesson (course_copy).
        limits: Limits.
        label: what the report calls it.
        lesson: its number, if it is not to be found out.
        own: a my_gpt/ folder that piece() takes earlier answers from.
    """
    started = time.monotonic()
    report = Report(label or str(path))
    try:
        cells = read(path)
    except MarkingError as error:
        report.problem = str(error)
        cells = []
    report.lesson = lesson or lesson_of(cells, path)
    wanted = [e for e in registry.EXERCISES.values() if e.lesson == report.lesson]
    if not wanted and not report.problem:
        report.problem = "no exercise of the course is in it: is it another notebook?"
    if report.problem:
        report.marks = [Mark(e.id, 0, e.points, "") for e in wanted]
        report.seconds = time.monotonic() - started
        return report
    seconds = limits.cell or SLOW_CELLS.get(report.lesson, 60)
    state = State(cells, wanted, report)
    closed = [registry.ROOT] if not registry.ROOT.samefile(copy) else []
    folder = Path(tempfile.mkdtemp(prefix="gpt-twice-mark-"))
    try:
        if own and own.is_dir():
            shutil.copytree(own, folder / "submission" / "work" / "my_gpt", symlinks=True)
        for _ in range(limits.kernels):
            kernel = Kernel(folder, copy, report.lesson, limits, closed)
            try:
                if attempt(kernel, state, limits, seconds):
                    break
            finally:
                kernel.close()
        state.conclude()
    except MarkingError as error:
        report.problem = str(error)
        report.marks = [Mark(e.id, 0, e.points, "") for e in wanted]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.seconds = round(time.monotonic() - started, 1)
    return report


class State:
    """What is known of a submission while it is marked, over several kernels."""

    def __init__(self, cells, wanted, report):
        self.cells, self.wanted, self.report = cells, wanted, report
        self.chosen = to_run(cells, report.lesson)
        self.checks = {}                                      # cell number -> exercise, each exercise once
        for number, exercise in check_cells(cells, report.lesson).items():
            if exercise not in self.checks.values():
                self.checks[number] = exercise
        self.cell_of = {e.id: number for number in sorted(self.chosen) for e in wanted if e.id in exercise_names(cells[number]["source"])}
        self.errors = {}                                      # cell number -> its error in words
        self.deadly = {}                                      # cell number -> how it ended the kernel
        self.results = {}                                     # exercise id -> what course.guard said
        self.around = {number: what for number in sorted(self.chosen) if (what := looks_around(cells[number]["source"]))}
        self.rebound, self.refused = set(), set()

    def conclude(self):
        """The marks and notes of the report."""
        for exercise in self.wanted:
            passed, message = self.verdict(exercise)
            self.report.marks.append(Mark(exercise.id, exercise.points if passed else 0, exercise.points, message))
        notes = self.report.notes
        for number, exercise in self.checks.items():
            if self.cells[number]["source"].strip() != f"check({exercise.name})":
                notes.append(f"the check cell of {exercise.id} was edited; the course's own was run.")
        for exercise in self.wanted:
            if exercise not in self.checks.values():
                notes.append(f"the check cell of {exercise.id} is missing; the course's own was run.")
        if self.rebound:
            notes.append(f"it rebinds {', '.join(sorted(self.rebound)[:5])}; put back before the checks.")
        for where, what in sorted(self.refused, key=str):
            notes.append(f"{'cell ' + str(where + 1) if isinstance(where, int) else where} tries what is refused: {what}.")
        for number, what in self.around.items():
            notes.append(f"cell {number + 1} looks around: {what}.")
        for number, error in sorted(self.errors.items()):
            if error.startswith("stopped"):
                notes.append(f"cell {number + 1} was {error.partition(': ')[0]}.")
            elif number not in self.cell_of.values():
                notes.append(f"cell {number + 1} does not run: {error[:150]}.")
        for number, cause in self.deadly.items():
            notes.append(f"cell {number + 1} was left out: {cause}.")

    def verdict(self, exercise):
        number = self.cell_of.get(exercise.id)
        result = self.results.get(exercise.id)
        tried = [what for where, what in self.refused if where == number or where == exercise.id]
        if number is not None and number in self.around:
            return False, f"its cell looks into the marking ({self.around[number]}): no points."
        if tried:
            return False, f"its cell tries what is refused while it is marked ({tried[0]}): no points."
        if number is not None and number in self.deadly:
            return False, f"its cell ends the marking: {self.deadly[number]}."
        if result is None:
            return False, "it was not reached: other cells of this notebook end the kernel again and again."
        if result["state"] == "missing" and not result["message"]:
            if number is None:
                return False, f"no cell has @exercise(\"{exercise.id}\"): it is missing, or its name was changed."
            if number in self.errors:
                return False, f"its cell does not run: {self.errors[number]}."
            return False, f"its cell runs and leaves no {exercise.name} behind."
        if not result["passed"] and number in self.errors and result["state"] != "checked":
            return False, f"its cell does not run: {self.errors[number]}."
        return result["passed"], short(result["message"], exercise.id)


def short(message, exercise_id):
    """The verdict's own words without the sign and the id that the report has already, and without the offer of a hint."""
    lines = [line.strip() for line in message.split("\n") if not line.strip().startswith("stuck? hint(")]
    lines[0] = lines[0].lstrip("✓✗○ ").removeprefix(f"{exercise_id}: ")
    return "\n      ".join(lines) if len(lines) > 1 else lines[0]


def attempt(kernel, state, limits, seconds):
    """Run the cells, then the checks; True if all is known. A deadly cell is left out of the next attempt."""
    end = time.monotonic() + limits.total
    for number, cell in enumerate(state.cells):
        if number in state.checks:
            exercise = state.checks[number]
            kernel.run("None", 30, {"capture": exercise.id, "name": exercise.name})
        elif number in state.chosen and number not in state.deadly:
            try:
                done = kernel.run(cell["source"], min(seconds, max(1, end - time.monotonic())), {"where": number})
            except Died as cause:
                state.deadly[number] = str(cause)
                return False
            state.report.outputs[number] = done["outputs"]
            state.errors.pop(number, None)
            if done["error"]:
                state.errors[number] = re.sub(r"\(\d+\.py, line", "(line", done["error"])[:300]
    for exercise in state.wanted:
        if exercise.id in state.results:
            continue
        try:
            done = kernel.run("None", min(limits.check, max(1, end - time.monotonic())), {"mark": exercise.id, "name": exercise.name})
            result = kernel.result()
        except Died as cause:
            state.results[exercise.id] = {"passed": False, "state": "died", "message": f"while it is checked, {cause}."}
            return False
        if result is None:
            why = done["error"] or "the checks gave no verdict"
            result = {"passed": False, "state": "died", "message": f"{why}. Is there a loop that never ends?" if why.startswith("stopped after") else f"{why}."}
        state.results[exercise.id] = result
        state.rebound |= set(result.pop("rebound", []))
        state.refused |= {tuple(pair) for pair in result.pop("refused", [])}
    return True


# Many submissions

def course_copy(lesson, pieces="reference"):
    """A folder with the released course for marking this lesson; the caller removes it."""
    folder = Path(tempfile.mkdtemp(prefix="gpt-twice-course-"))
    due = [n for n in registry.LESSONS if n < lesson] if pieces == "reference" else []
    release.write_course(folder, [lesson], due)
    if (registry.ROOT / "notebooks").is_dir():
        release.copy_notebooks([lesson], folder / "notebooks")
    return folder


def mark_in_process(path, copy, limits, label="", lesson="", own=None):
    """mark_notebook in a process that may die, with a limit on its time."""
    with tempfile.TemporaryDirectory(prefix="gpt-twice-") as folder:
        asked = Path(folder) / "asked.json"
        said = Path(folder) / "said.json"
        asked.write_text(json.dumps({
            "path": str(Path(path).absolute()), "copy": str(copy), "limits": asdict(limits), "label": label or str(path),
            "lesson": lesson, "own": str(own) if own else "", "said": str(said),
        }), encoding="utf-8")
        environment = {**os.environ, "TMPDIR": folder}
        process = subprocess.Popen([sys.executable, "-m", "course.marking", str(asked)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   env=environment, cwd=registry.ROOT, start_new_session=True)
        problem = "the process that marks it died."
        try:
            _, text = process.communicate(timeout=2 * limits.total + 120)
            if text and not said.exists():
                problem = f"the process that marks it stopped: {text.decode(errors='replace').strip().splitlines()[-1][:200]}"
        except subprocess.TimeoutExpired:
            problem = "it was stopped: its cells and checks take longer than a submission may."
        finally:
            stop(process, Path(folder))
        if said.exists():
            found = json.loads(said.read_text(encoding="utf-8"))
            found["marks"] = [Mark(**m) for m in found["marks"]]
            found["outputs"] = {int(number): outputs for number, outputs in found["outputs"].items()}
            return Report(**found)
        lesson = lesson or lesson_at(path)
        return Report(label or str(path), lesson, [Mark(e.id, 0, e.points, "") for e in registry.EXERCISES.values() if e.lesson == lesson], problem=problem)


def stop(process, folder):
    """End a marking process and the kernels it started."""
    if process.poll() is None:
        process.kill()
        process.wait()
    for written in folder.rglob("kernel.pid"):
        pid = int(written.read_text())
        try:
            if hasattr(os, "killpg"):
                os.killpg(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGTERM)
        except (OSError, ValueError):
            pass


def grade(paths, limits, record, resume=False, lesson="", pieces="reference", jobs=1, say=lambda text: None):
    """Reports on many submissions, in order; each is added to the file `record` as soon as it is known.

    Args:
        record: a file of JSON lines. With resume, a notebook that stands there unchanged is not marked again.
        jobs: how many are marked at a time.
        say: called with a line of progress.

    Yields:
        (Report, whether it was taken from the record).
    """
    known = recorded(record)
    lessons = [lesson or lesson_at(path) for path in paths]
    marks = [fingerprint(path, of) for path, of in zip(paths, lessons)]
    old = [resume and mark and known.get(str(path), {}).get("fingerprint") == mark for path, mark in zip(paths, marks)]
    copies = {of: course_copy(of, pieces) for of in sorted({of for of, taken in zip(lessons, old) if of and not taken})}

    def one(number, path, of):
        say(f"[{number} of {len(paths)}] {path} ...")
        if not of:
            return mark_notebook(path, registry.ROOT, limits, str(path))
        return mark_in_process(path, copies[of], limits, str(path), lesson, Path(path).parent / answers.PACKAGE if pieces == "own" else None)

    workers = ThreadPoolExecutor(jobs) if jobs > 1 else None
    try:
        listed = list(enumerate(zip(paths, lessons, old), 1))
        waiting = {n: workers.submit(one, n, path, of) for n, (path, of, taken) in listed if workers and not taken}
        for number, (path, of, taken) in listed:
            if taken:
                found = {k: v for k, v in known[str(path)].items() if k != "fingerprint"}
                yield Report(**{**found, "marks": [Mark(**m) for m in found["marks"]]}), True
                continue
            report = waiting[number].result() if workers else one(number, path, of)
            known[str(path)] = {**asdict(report), "fingerprint": marks[number - 1]}
            known[str(path)].pop("outputs")
            write_record(record, known)
            yield report, False
    finally:
        if workers:
            workers.shutdown(cancel_futures=True)
        for copy in copies.values():
            shutil.rmtree(copy, ignore_errors=True)


def lesson_at(path):
    """lesson_of for a file, also one that is no notebook."""
    try:
        return lesson_of(read(path), path)
    except MarkingError:
        return Path(path).name[:2] if Path(path).name[:2] in registry.LESSONS else ""


def fingerprint(path, lesson):
    """Of a submission and of the checks of its lesson: a changed check marks anew. Empty for a file that cannot be read."""
    try:
        texts = [Path(path).read_bytes()]
    except OSError:
        return ""
    course = registry.ROOT / "course"
    modules = sorted({e.module for e in registry.EXERCISES.values() if e.lesson == lesson})
    checks = [course / "checks" / (module.replace(".", "/") + ".py") for module in modules]
    checks += [course / "packed" / f"course.checks.{module}.bin" for module in modules]
    texts += [p.read_bytes() for p in [course / "check.py", course / "guard.py", course / "marking.py", *checks] if p.exists()]
    return hashlib.sha256(b"".join(texts)).hexdigest()


def recorded(record):
    try:
        lines = record.read_text(encoding="utf-8").splitlines()
        return {found["notebook"]: found for found in map(json.loads, lines)}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError):
        raise MarkingError(f"{record} is no record of marks: name another file with --record.") from None


def write_record(record, known):
    answers.write(record, "".join(json.dumps(found, ensure_ascii=False) + "\n" for found in known.values()))


def worker():
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    own = Path(asked["own"]) if asked["own"] else None
    report = mark_notebook(Path(asked["path"]), Path(asked["copy"]), Limits(**asked["limits"]), asked["label"], asked["lesson"], own)
    answers.write(Path(asked["said"]), json.dumps(asdict(report)))


if __name__ == "__main__":
    worker()
