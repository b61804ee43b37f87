"""Passed answers, kept as the learner's own package work/my_gpt."""
import ast
import builtins
import importlib
import inspect
import json
import linecache
import os
import sys
import types
from pathlib import Path

from course import registry

PACKAGE = "my_gpt"


def folder():
    """Where the learner's files are: $GPT_TWICE_WORK, or work/ of the course."""
    return Path(os.environ.get("GPT_TWICE_WORK") or registry.ROOT / "work")


def record_path():
    return folder() / PACKAGE / "answers.json"


def read():
    """exercise id -> {"source", "imports", "helpers"} of every passed answer."""
    path = record_path()
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(f"{path} is damaged: delete it and run the checks again, they write it anew.") from None


def save(exercise_id, obj, references):
    """Keep the source of a passed answer and write its module of work/my_gpt anew.

    Args:
        obj: the learner's function or class.
        references: id(object) -> exercise id, for names that stand for other exercises.

    Returns:
        True if it was kept; False where Python has no source for it.
    """
    found = find_source(exercise_id, obj)
    if found is None:
        return False
    source, namespace = found
    imports, helpers = needs(source, namespace, references, known={obj.__name__})
    record = read()
    record[exercise_id] = {"source": source, "imports": imports, "helpers": helpers}
    path = record_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    write_package(record)
    return True


def write(path, text):
    unfinished = path.with_suffix(path.suffix + ".tmp")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)


def find_source(exercise_id, obj):
    """The text of an answer without its decorator, and the globals it sees."""
    function = obj
    if inspect.isclass(obj):
        methods = [m for m in vars(obj).values() if inspect.isfunction(m) and m.__qualname__.startswith(obj.__qualname__)]
        if not methods:
            return None
        function = methods[0]
    function = inspect.unwrap(function)
    text = "".join(linecache.getlines(function.__code__.co_filename))
    node = definition(text, obj.__name__)
    if node is None:
        return None
    node_text = "\n".join(text.split("\n")[node.lineno - 1 : node.end_lineno])
    others = [d for d in node.decorator_list if not names_exercise(d)]
    above = "".join(f"@{ast.unparse(d)}\n" for d in others)
    return above + node_text, function.__globals__


def names_exercise(decorator):
    return isinstance(decorator, ast.Call) and getattr(decorator.func, "id", getattr(decorator.func, "attr", "")) == "exercise"


def definition(text, name):
    """The last top-level def or class of this name; lines starting with % or ! are not Python."""
    lines = ["" if line.lstrip().startswith(("%", "!")) else line for line in text.split("\n")]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:
        return None
    found = [n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name == name]
    return found[-1] if found else None


def needs(source, namespace, references, known):
    """What the source takes from its globals: import lines, and the text of helpers defined beside it."""
    imports, helpers = [], []
    for name in sorted({n.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name)}):
        if name in known or name not in namespace or hasattr(builtins, name):
            continue
        value = namespace[name]
        exercise_id = getattr(value, "__exercise__", None) or references.get(id(value))
        if exercise_id:
            imports.append(f"piece {exercise_id} as {name}")
        elif isinstance(value, types.ModuleType):
            plain = f"import {value.__name__}"
            imports.append(plain if value.__name__ == name else f"{plain} as {name}")
        elif isinstance(value, (bool, int, float, str, bytes, tuple, type(None))):
            helpers.append(f"{name} = {value!r}")
        elif getattr(value, "__module__", "__main__") not in ("__main__", None) and hasattr(value, "__name__"):
            imports.append(f"from {value.__module__} import {value.__name__} as {name}")
        else:
            helper = find_source("", value) if inspect.isfunction(value) or inspect.isclass(value) else None
            if helper:
                more_imports, more_helpers = needs(helper[0], namespace, references, known | {name})
                imports += more_imports
                helpers += [*more_helpers, helper[0]]
    return list(dict.fromkeys(imports)), list(dict.fromkeys(helpers))


def write_package(record):
    root = folder() / PACKAGE
    modules = {}
    for exercise_id in registry.EXERCISES:
        if exercise_id in record:
            modules.setdefault(registry.find(exercise_id).module, []).append(exercise_id)
    write(root / "__init__.py", '"""A GPT, built by hand: written by the checks, one module a lesson."""\n')
    for module, ids in modules.items():
        path = root / (module.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        if not (path.parent / "__init__.py").exists():
            write(path.parent / "__init__.py", "")
        write(path, module_text(module, ids, record))
    for name in [m for m in sys.modules if m.split(".")[0] == PACKAGE]:
        del sys.modules[name]
    importlib.invalidate_caches()


def module_text(module, ids, record):
    imports, pieces, blocks = [], [], []
    for exercise_id in ids:
        answer = record[exercise_id]
        for line in answer["imports"]:
            if not line.startswith("piece "):
                imports.append(line)
                continue
            _, other, _, name = line.split(" ")
            where = registry.find(other)
            if other not in record:
                pieces.append(f'{name} = piece("{other}")')
            elif where.module != module:
                imports.append(f"from {PACKAGE}.{where.module} import {where.name} as {name}")
            elif name != where.name:
                blocks.append(f"{name} = {where.name}")
        blocks += [*answer["helpers"], answer["source"]]
    if pieces:
        imports.append("from course import piece")
    imports = sorted(dict.fromkeys(imports), key=lambda line: (line.startswith("from"), line))
    imports = [line.replace(f" as {line.split()[3]}", "") if line.startswith("from") and line.split()[3] == line.split()[-1] else line for line in imports]
    head = "\n".join([*imports, *dict.fromkeys(pieces)])
    return "\n\n\n".join([head, *dict.fromkeys(blocks)]).strip() + "\n"


def load(exercise_id):
    """The learner's passed answer, imported from work/my_gpt; None if there is none yet.

    Raises:
        ImportError: their file was edited by hand and does not import any more.
    """
    if exercise_id not in read():
        return None
    wanted = registry.find(exercise_id)
    if str(folder()) not in sys.path:
        sys.path.insert(0, str(folder()))
    try:
        module = importlib.import_module(f"{PACKAGE}.{wanted.module}")
        return getattr(module, wanted.name)
    except (ImportError, SyntaxError, NameError, AttributeError) as error:
        path = folder() / PACKAGE / (wanted.module.replace(".", "/") + ".py")
        raise ImportError(f"{path} does not import ({type(error).__name__}: {error}). Mend it, or delete it and run its checks again.") from error
