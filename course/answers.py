"""Passed answers, kept as the learner's own package work/my_gpt."""
import ast
import builtins
import importlib
import inspect
import json
import linecache
import os
import symtable
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
    found = find_source(obj)
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
    """Whole or not at all: whoever stops it in between finds the file of before."""
    unfinished = path.with_suffix(path.suffix + ".tmp")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)


def find_source(obj, namespace=None):
    """The text of a function or class without its @exercise, and the globals it sees; None if there is no text."""
    functions = [obj] if inspect.isfunction(obj) else [m for m in vars(obj).values() if inspect.isfunction(m)]
    written = [f for f in map(inspect.unwrap, functions) if f.__globals__.get("__name__") == obj.__module__ and f.__code__.co_filename != "<string>"]
    if written:
        files = [written[0].__code__.co_filename]
        namespace = written[0].__globals__
    else:
        files = cells()                                       # a class without methods: look in the cells
    for file in files:
        text = "".join(linecache.getlines(file))
        node = definition(text, obj.__name__)
        if node is not None:
            body = "\n".join(text.split("\n")[node.lineno - 1 : node.end_lineno])
            above = "".join(f"@{ast.unparse(d)}\n" for d in node.decorator_list if not names_exercise(d))
            return above + body, namespace or {}
    return None


def cells():
    """The files under whose names ipykernel keeps the text of cells, the newest first."""
    return [name for name in reversed(linecache.cache) if "ipykernel" in name]


def find_assignment(name):
    """The text of the newest top-level `name = ...` of the notebook; None if there is none."""
    for file in cells():
        text = "".join(linecache.getlines(file))
        node = top_level(text, lambda n: isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == name)
        if node is not None:
            return ast.get_source_segment(text, node)
    return None


def names_exercise(decorator):
    return isinstance(decorator, ast.Call) and getattr(decorator.func, "id", getattr(decorator.func, "attr", "")) == "exercise"


def definition(text, name):
    """The last top-level def or class of this name."""
    return top_level(text, lambda n: isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name == name)


def top_level(text, wanted):
    """The last top-level statement that is wanted; lines starting with % or ! are not Python."""
    lines = ["" if line.lstrip().startswith(("%", "!")) else line for line in text.split("\n")]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:
        return None
    found = [n for n in tree.body if wanted(n)]
    return found[-1] if found else None


def needs(source, namespace, references, known):
    """What the source takes from its globals: import lines, and the text of helpers defined beside it."""
    imports, helpers = [], []
    for name in sorted(global_names(symtable.symtable(source, "answer", "exec"))):
        if name in known or name not in namespace or hasattr(builtins, name):
            continue
        value = namespace[name]
        exercise_id = getattr(value, "__exercise__", None) or references.get(id(value))
        if exercise_id:
            imports.append(f"piece {exercise_id} as {name}")
        elif isinstance(value, types.ModuleType):
            plain = f"import {value.__name__}"
            imports.append(plain if value.__name__ == name else f"{plain} as {name}")
        elif is_literal(value):
            helpers.append(f"{name} = {value!r}")
        elif home_of(value, name):
            imports.append("from {} import {} as {}".format(*home_of(value, name), name))
        else:
            written = inspect.isfunction(value) or inspect.isclass(value)
            found = find_source(value, namespace) if written else (find_assignment(name), namespace)
            if found and found[0]:
                more_imports, more_helpers = needs(found[0], namespace, references, known | {name})
                imports += more_imports
                helpers += [*more_helpers, found[0]]
    return list(dict.fromkeys(imports)), list(dict.fromkeys(helpers))


def home_of(value, alias):
    """(module, name) that an object can be imported by; None for what was made in the notebook.

    What is made in C may claim a module that has no such name (safe_open says builtins, FunctionType is called function), or
    none (torch.tril). Then the nearest loaded module is taken that has it.
    """
    own, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if name is None or own == "__main__":
        return None
    if getattr(sys.modules.get(own), name, None) is value:
        return own, name
    modules = [(key, vars(module)) for key, module in list(sys.modules.items()) if key != "__main__"]
    found = [(key, n) for key, members in modules for n in (name, alias) if members.get(n) is value]
    return min(found, key=lambda pair: (pair[0].count("."), len(pair[0])), default=None)


def is_literal(value):
    try:
        return ast.literal_eval(repr(value)) == value
    except (ValueError, SyntaxError, TypeError):
        return False


def global_names(table):
    """Names that the code takes from its module, local variables and arguments left out."""
    top = table.get_type() == "module"
    names = {s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())}
    for child in table.get_children():
        names |= global_names(child)
    return names


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
