"""In the kernel of a submission that is marked: what it may not do, and the checks on what it defined.

start() runs before the first cell. From then on an audit hook, which Python cannot remove, refuses what no lesson needs:
reading the solutions or the checks, other notebooks, looking into the stack or at all objects, starting programs, the network,
and writing outside the folder of the submission. After the cells, the checks come in a fresh import, with the functions of
PyTorch, NumPy and MindSpore that a cell rebound put back.

It is a fence, not a prison: see "what marking protects against" in docs/teachers_guide.md.
"""
import contextlib
import importlib
import importlib.abc
import importlib.util
import io
import json
import os
import sys
import sysconfig
import threading
from pathlib import Path

PROCESSES = {"os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn", "os.kill", "os.killpg"}
WRITES = {"os.remove", "os.rename", "os.rmdir", "os.chmod", "os.truncate", "os.link", "os.symlink", "shutil.rmtree", "shutil.move", "shutil.copyfile"}
READS = {"open", "os.listdir", "os.scandir", "shutil.copyfile", "shutil.copytree"} | WRITES
LOOKS = {"sys._getframe", "sys._current_frames", "sys._current_exceptions", "gc.get_objects", "gc.get_referrers", "gc.get_referents",
         "sys.settrace", "sys.setprofile", "sys.addaudithook", "resource.setrlimit"}
OWN_USE = tuple(os.path.join(*name.split("/")) for name in ("collections/__init__.py", "typing.py", "enum.py", "dataclasses.py"))
LOOKED_UP = {"tb_frame", "gi_frame", "cr_frame", "ag_frame"}
RESTORED = [
    "builtins", "copy", "math", "inspect", "importlib", "json", "linecache", "signal", "time", "traceback", "warnings",
    "numpy", "numpy.testing", "torch", "torch:Tensor", "torch:Generator", "torch.nn", "torch.nn:Module", "torch.nn:Parameter",
    "torch.nn.functional", "torch.autograd", "torch.optim", "torch.linalg", "torch.testing", "torch.utils._pytree",
    "mindspore", "mindspore:Tensor", "mindspore:Parameter", "mindspore.nn", "mindspore.nn:Cell", "mindspore.ops", "mindspore.ops.functional",
]


class Refused(PermissionError):
    """What a submission may not do while it is marked."""

    def __init__(self, what):
        super().__init__(f"{what}: this is refused while a submission is marked.")


def start(settings):
    """Fence the kernel in and answer the requests of course.marking from now on.

    Args:
        settings: "sandbox" (the submission's folder), "control" (where requests and results lie), "course" (the copy of the
            course that is imported here), "closed" (folders that may not be read), "allowed" (exceptions inside them),
            "frameworks", "memory" (bytes).
    """
    from IPython import get_ipython

    shell = get_ipython()
    limit(settings["memory"])
    for name in settings["frameworks"]:
        importlib.import_module(name)
    kept = Kept()
    fence = Fence(settings)
    control = Path(settings["control"])
    captured = {}
    trusted = {}

    import course

    course.check = sys.modules["course.check"].check = quiet_check   # a cell that calls it learns nothing; marks come at the end

    def answer(info):
        """Before each cell: is there a request?"""
        request = control / "request.json"
        if not request.exists():
            return
        asked = json.loads(request.read_text(encoding="utf-8"))
        request.unlink()
        fence.where = asked.get("where", fence.where)
        if "where" in asked:
            return
        if "capture" in asked:
            captured[asked["capture"]] = dict(shell.user_ns)   # later cells may give its names other values
            return
        rebound = kept.restore()
        with fence.open_to_the_grader():
            if not trusted:
                trusted.update(fresh_checks(settings["course"]))
            shell.user_ns.update(captured.get(asked["mark"], {}))
            obj = captured.get(asked["mark"], shell.user_ns).get(asked["name"], captured)
            result = mark(asked["mark"], asked["name"], obj, captured, trusted, fence, shell.user_ns)
        result["rebound"] = rebound
        unfinished = control / "result.tmp"
        unfinished.write_text(json.dumps(result), encoding="utf-8")
        unfinished.rename(control / "result.json")

    shell.events.register("pre_run_cell", answer)
    del sys.modules["course.guard"]
    (control / "ready").touch()
    sys.addaudithook(fence.hook)


def quiet_check(obj):
    """Stands for check() while a submission is marked."""


def limit(memory):
    try:
        import resource
    except ImportError:                                       # Windows: course.marking watches the memory
        return
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, 2**30))


class Kept:
    """The public functions and classes that checks use, as they were before the first cell."""

    def __init__(self):
        self.names = []
        for where in RESTORED:
            module, _, attribute = where.partition(":")
            if module in sys.modules:
                owner = getattr(sys.modules[module], attribute) if attribute else sys.modules[module]
                self.names.append((where.replace(":", "."), owner, {k: v for k, v in vars(owner).items() if self.counts(owner, k, v)}))
        self.path, self.finders = list(sys.path), list(sys.meta_path)

    @staticmethod
    def counts(owner, name, value):
        if not callable(value) and not isinstance(value, (property, staticmethod, classmethod)):
            return False                                      # a counter, say
        if name in ("get_ipython", "input", "display", "exit", "quit"):   # the kernel's own, anew for each cell
            return False
        return not name.startswith("_") or isinstance(owner, type) or name == "__import__"

    def restore(self):
        """Put back what was rebound; returns the names."""
        rebound = []
        for where, owner, names in self.names:
            now = dict(vars(owner))
            for name, value in names.items():
                if now.get(name) is not value:
                    with contextlib.suppress(AttributeError, TypeError):
                        setattr(owner, name, value)
                        mine = now.get(name)
                        if getattr(mine, "__module__", "__main__") == "__main__" or getattr(mine, "__name__", name) != name:
                            rebound.append(f"{where}.{name}")   # else a library replaced a function of its own
            if isinstance(owner, type):
                for name in set(now) - set(names):
                    if getattr(now[name], "__module__", "") == "__main__":
                        delattr(owner, name)
                        rebound.append(f"{where}.{name}")
        sys.path[:], sys.meta_path[:] = self.path, self.finders
        return [name for name in rebound if not name.endswith(("__doc__", "__abstractmethods__"))]


class Fence:
    """The audit hook, and what was refused, by cell or exercise."""

    def __init__(self, settings):
        self.where = "start"
        self.refused = []
        self.here = threading.local()
        self.grader = False                                   # while checks run: they may read what a cell may not
        self.closed = [os.path.realpath(p) for p in settings["closed"]]
        self.sandbox = os.path.realpath(settings["sandbox"])
        self.open_inside = [self.sandbox, *(os.path.realpath(p) for p in settings["allowed"])]
        self.written = [self.sandbox, "/dev", os.path.expanduser("~/.cache"), os.path.expanduser("~/.config/matplotlib")]
        self.packed = os.path.join(os.path.realpath(settings["course"]), "course", "packed", "course.checks.")
        self.library = os.path.realpath(sysconfig.get_path("stdlib")), sysconfig.get_path("stdlib")

    @contextlib.contextmanager
    def open_to_the_grader(self):
        self.grader = True
        try:
            yield
        finally:
            self.grader = False

    def hook(self, event, args):
        if event not in LOOKS and event not in READS and event not in PROCESSES and event not in ("import", "object.__getattr__") and not event.startswith(("ctypes.", "socket.")):
            return
        if getattr(self.here, "inside", False):
            return
        self.here.inside = True
        try:
            what = self.objection(event, args)
            if what:
                self.refuse(what)
        finally:
            self.here.inside = False

    def refuse(self, what):
        self.refused.append((self.where, what))
        raise Refused(what)

    def objection(self, event, args):
        """Why this is refused; None if it may pass."""
        if event == "import":
            name = str(args[0])
            if name.partition(".")[0] == "solutions":
                return f"import {name}"
            if name.startswith(("course.checks", "course.guard", "course.marking")) and (not self.grader or self.inside_submission()):
                return f"import {name}"
        elif event in READS:
            paths = [os.path.realpath(os.fsdecode(a)) for a in args[:2] if isinstance(a, (str, bytes)) and (event != "open" or a is args[0])]
            for path in paths:
                if self.inside(path, self.closed) and not self.inside(path, self.open_inside):
                    return f"reading {os.path.basename(path)}"
                if path.endswith((".ipynb", "marks.jsonl", "gradebook.db")) and not self.inside(path, [self.sandbox]):
                    return f"reading {os.path.basename(path)}"
                if path.startswith(self.packed) and (not self.grader or self.inside_submission()):
                    return "reading the checks"
            writes = event in WRITES or event == "open" and opens_to_write(*args[1:3])
            if writes and paths and not all(self.inside(p, self.written) for p in paths) and self.inside_submission():
                return f"writing to {paths[0]}"
        elif event in LOOKS:
            if self.asked_by_submission(looking=True):
                return event
        elif event == "object.__getattr__":
            if args[1] in LOOKED_UP and self.asked_by_submission(looking="tb_frame" not in args[1]):
                return str(args[1])
        elif event in PROCESSES:
            if self.asked_by_submission():
                return event
        elif event.startswith("ctypes.") or event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"):
            if self.asked_by_submission():
                return event
        return None

    @staticmethod
    def inside(path, folders):
        return any(path == f or path.startswith(f + os.sep) for f in folders)

    def asked_by_submission(self, looking=False):
        """Whether the nearest frame that is no go-between is a submission's: the standard library and IPython are, and
        with `looking` only those of their functions that hand a frame on.
        """
        frame = sys._getframe(3)
        while frame is not None:
            if self.is_submission(frame):
                return True
            file = frame.f_code.co_filename
            if not self.between(file) or looking and (file.endswith(OWN_USE) or frame.f_code.co_name == "findCaller"):
                return False
            frame = frame.f_back
        return False

    def inside_submission(self, depth=3):
        """Whether any of the calls that led here is a submission's."""
        frame = sys._getframe(depth)
        while frame is not None and not self.is_submission(frame):
            frame = frame.f_back
        return frame is not None

    @staticmethod
    def is_submission(frame):
        file = frame.f_code.co_filename
        return "ipykernel_" in os.path.dirname(file) or (file.startswith("<") and frame.f_globals.get("__name__") == "__main__")

    def between(self, file):
        if file.startswith("<"):
            return True
        if "site-packages" in file:
            return any(f"site-packages{os.sep}{name}" in file for name in ("IPython", "pexpect", "ptyprocess"))
        return file.startswith(self.library)


def opens_to_write(mode, flags=0):
    """Whether the arguments of the audit event "open" ask to write: a mode like "w" or, where it is None, flags of os.open."""
    if isinstance(mode, str):
        return bool(set(mode) & set("wax+"))
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def fresh_checks(course):
    """course.check imported anew from the copy, and what it imports; "before" are the modules that cells have imported."""
    before = {m: sys.modules.pop(m) for m in list(sys.modules) if m.partition(".")[0] == "course"}
    sys.path.insert(0, course)
    importlib.invalidate_caches()
    return {"check": importlib.import_module("course.check"), "registry": importlib.import_module("course.registry"), "before": before}


class PutAway(importlib.abc.MetaPathFinder):
    """The checks' modules while an answer runs: sys.modules does not name them, an import by the checks finds them.

    An import by the submission finds what its cells had imported, and of the checks nothing.
    """

    def __init__(self, fence, before):
        self.fence, self.before, self.kept = fence, before, {}

    def take(self):
        self.kept |= {m: sys.modules.pop(m) for m in list(sys.modules) if m.partition(".")[0] == "course"}

    def import_module(self, name):
        """For course.check, in the place of importlib's."""
        return self.kept[name] if name in self.kept else importlib.import_module(name)

    def find_spec(self, name, path=None, target=None):
        if name not in self.kept:
            return None
        if self.fence.inside_submission(1):
            if name not in self.before:
                self.fence.refuse(f"import {name}")
            return importlib.util.spec_from_loader(name, Given(self.before[name]))
        return importlib.util.spec_from_loader(name, Given(self.kept[name]))


class Given(importlib.abc.Loader):
    """A loader for a module that is there already."""

    def __init__(self, module):
        self.module = module

    def create_module(self, spec):
        return self.module

    def exec_module(self, module):
        pass


class Nowhere(io.TextIOBase):
    def write(self, text):
        return len(text)


def mark(exercise_id, name, obj, missing, trusted, fence, namespace):
    """The verdict on one answer, as a dict for course.marking."""
    check, wanted = trusted["check"], trusted["registry"].find(exercise_id)
    if obj is missing:
        other = [k for k, v in namespace.items() if not k.startswith("_") and getattr(v, "__exercise__", None) == exercise_id]
        message = f"{other[0]} stands below @exercise(\"{exercise_id}\"), and the name {name} is expected: give it its name back." if other else ""
        return {"passed": False, "state": "missing", "message": message}
    try:
        has = getattr(obj, "__exercise__", None)
    except Exception:
        has = None
    if has != exercise_id:
        kind = f"that is the answer to {has}" if has else f"it has no @exercise(\"{exercise_id}\") above it"
        return {"passed": False, "state": "other", "message": f"{name} is no answer to {exercise_id}: {kind}."}
    for module in (f"course.checks.{wanted.module}", f"course.checks.{exercise_id.partition('.')[0]}"):
        importlib.import_module(module)
    put_away = PutAway(fence, trusted["before"])
    if exercise_id.startswith("pytorch."):                    # MindSpore's compiler looks modules up by name
        put_away.take()
        sys.meta_path.insert(0, put_away)
    check.importlib = put_away
    fence.where = exercise_id
    before = len(fence.refused)
    try:
        with silence():
            verdict = check.run(exercise_id, obj)
    finally:
        sys.modules.update(put_away.kept)
        if put_away in sys.meta_path:
            sys.meta_path.remove(put_away)
    result = {"passed": verdict.passed, "state": "checked", "message": verdict.message}
    tried = [what for where, what in fence.refused[before:]] + [what for where, what in fence.refused[:before] if where == exercise_id]
    if tried:
        result = {"passed": False, "state": "refused", "message": f"the answer tries what is refused while it is marked ({tried[0]}): no points."}
    result["refused"] = [list(pair) for pair in fence.refused]
    return result


@contextlib.contextmanager
def silence():
    """What an answer prints while it is marked goes nowhere."""
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        with contextlib.redirect_stdout(Nowhere()):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
