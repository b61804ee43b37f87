"""Modules without their text, as a released folder of the course carries them.

course/packed/ of a released folder holds the checks (course.checks.pytorch.attention.bin) and, as package `reference`, the
answers of lessons already due (reference.pytorch.attention.bin). What MindSpore compiles in graph mode needs its text:
there it is packed too, compressed, and inspect.getsource shows it. Nothing here is a secret kept from a determined reader;
it keeps answers from being read by opening a file.
"""
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import marshal
import sys
import types
import zlib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "packed"


def packed():
    """Whether this copy of the course is a released one."""
    return FOLDER.exists()


def pack(text, path, package=False, keep_text=False):
    """The bytes of a module.

    Args:
        text: its source.
        path: what tracebacks name, relative to the course's folder: "course/checks/pytorch/attention.py".
        package: whether it is an __init__.py.
        keep_text: pack the source too, compressed.
    """
    tree = ast.parse(text)
    if not keep_text:
        without_docstrings(tree)
    code = compile(tree, path, "exec", dont_inherit=True)
    entry = {
        "python": importlib.util.MAGIC_NUMBER,
        "version": "{}.{}".format(*sys.version_info),
        "path": path,
        "package": package,
        "code": zlib.compress(marshal.dumps(code), 9),
        "text": zlib.compress(text.encode(), 9) if keep_text else b"",
    }
    return marshal.dumps(entry)


def without_docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.copy_location(ast.Pass(), node.body[0])]


class Unpacker(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads the modules of FOLDER."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ("course", "reference") or not self.file(name).exists():
            return None
        return importlib.util.spec_from_loader(name, self, is_package=self.is_package(name))

    @staticmethod
    def file(name):
        return FOLDER / f"{name}.bin"

    def entry(self, name):
        return marshal.loads(self.file(name).read_bytes())

    def is_package(self, name):
        return self.entry(name)["package"]

    def get_source(self, name):
        text = self.entry(name)["text"]
        return zlib.decompress(text).decode() if text else None

    def get_code(self, name):
        entry = self.entry(name)
        path = str(FOLDER.parent.parent / entry["path"])
        if entry["python"] == importlib.util.MAGIC_NUMBER:
            return moved(marshal.loads(zlib.decompress(entry["code"])), path)
        if entry["text"]:
            return compile(zlib.decompress(entry["text"]), path, "exec", dont_inherit=True)
        raise ImportError(f"This copy of the course was released for Python {entry['version']}, and this is Python {'{}.{}'.format(*sys.version_info)}: use Python {entry['version']}.")

    def exec_module(self, module):
        code = self.get_code(module.__name__)
        text = self.get_source(module.__name__)
        if text:                                              # inspect, and so MindSpore's parser, finds it here
            linecache.cache[code.co_filename] = (len(text), None, text.splitlines(keepends=True), code.co_filename)
            module.__file__ = code.co_filename                # by which inspect finds a class
        exec(code, module.__dict__)


def moved(code, path):
    """The code object with another file name, in all functions of it."""
    inner = tuple(moved(c, path) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=path, co_consts=inner)


def needed(tree, names):
    """The top-level statements of a module that define these names, and what those use, in order.

    Imports shrink to the names that are used.
    """
    defined = {}
    for statement in tree.body:
        for name in bound(statement):
            defined.setdefault(name, []).append(statement)
    wanted, open_names = set(), list(names)
    while open_names:
        name = open_names.pop()
        if name in wanted or name not in defined:
            continue
        wanted.add(name)
        for statement in defined[name]:
            if not isinstance(statement, (ast.Import, ast.ImportFrom)):
                open_names += [n.id for n in ast.walk(statement) if isinstance(n, ast.Name)]
    kept = []
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            statement.names = [a for a in statement.names if (a.asname or a.name.partition(".")[0]) in wanted]
            if statement.names:
                kept.append(statement)
        elif set(bound(statement)) & wanted:
            kept.append(statement)
    return kept


def bound(statement):
    """The names that a top-level statement gives a value."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [a.asname or a.name.partition(".")[0] for a in statement.names]
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [statement.name]
    return [n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


if packed():                                                  # exercise.py imports this file: all that is packed is found from then on
    sys.meta_path.append(Unpacker())
