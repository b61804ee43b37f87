"""Mechanical mutants of the reference answers: the checks must reject each, but for a few that are the same program."""
import ast
import copy
import importlib
from pathlib import Path

import pytest

from course import checks, registry
from course.check import run

ROOT = Path(__file__).resolve().parent.parent

SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult}
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
NAMES = {"mean": "sum", "sum": "mean", "tril": "triu", "amax": "amin", "softmax": "log_softmax", "log_softmax": "softmax", "square": "abs", "sqrt": "abs", "rsqrt": "sqrt"}


def mutants(tree):
    """(description, changed tree): one small change each, wherever it applies."""
    for number, node in enumerate(ast.walk(tree)):
        for words, change in changes(node):
            mutant = copy.deepcopy(tree)
            target = next(n for i, n in enumerate(ast.walk(mutant)) if i == number)
            change(target)
            yield f"line {getattr(node, 'lineno', 0)}: {words}", ast.fix_missing_locations(mutant)


def changes(node):
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        new = SWAPS[type(node.op)]
        yield f"{type(node.op).__name__} to {new.__name__}", lambda n: setattr(n, "op", new())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        new = COMPARISONS[type(node.ops[0])]
        yield f"{type(node.ops[0]).__name__} to {new.__name__}", lambda n: setattr(n, "ops", [new()])
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        for step in (1, -1):
            yield f"{node.value} to {node.value + step}", lambda n, step=step: setattr(n, "value", n.value + step)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} to {not node.value}", lambda n: setattr(n, "value", not n.value)
    if isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield f".{node.attr} to .{NAMES[node.attr]}", lambda n: setattr(n, "attr", NAMES[n.attr])
    if isinstance(node, ast.Call):
        for i, keyword in enumerate(node.keywords):
            if keyword.arg not in ("device", "dtype", "generator", "encoding", "errors"):
                yield f"without {keyword.arg}=", lambda n, i=i: n.keywords.pop(i)
        swappable = len(node.args) == 2 and ast.dump(node.args[0]) != ast.dump(node.args[1])
        if swappable and getattr(node.func, "attr", "") != "transpose":   # transpose(1, 2) is transpose(2, 1)
            yield "arguments swapped", lambda n: n.args.reverse()
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Invert, ast.Not)):
        yield f"without {type(node.op).__name__}", lambda n: setattr(n, "op", ast.UAdd()) if not isinstance(n.op, ast.Not) else setattr(n, "operand", ast.UnaryOp(ast.Not(), n.operand))
    if hasattr(node, "body") and isinstance(node.body, list):
        for i, statement in enumerate(node.body):
            docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if isinstance(statement, (ast.Assign, ast.AugAssign, ast.Expr)) and not docstring:
                yield f"without line {statement.lineno}", lambda n, i=i: n.body.__setitem__(i, ast.Pass())


# (exercise id, description): why the mutant is no mistake.
EQUIVALENT = {}
for file in sorted((Path(__file__).parent / "equivalent").glob("[a-z]*.py")):
    EQUIVALENT |= importlib.import_module(f"tests.equivalent.{file.stem}").EQUIVALENT


def with_a_file(mutant, folder, number):
    """The mutant as code of a file of its own: MindSpore's graph compiler reads the file, not the code."""
    path = folder / f"mutant{number}.py"
    path.write_text(ast.unparse(mutant), encoding="utf-8")
    return compile(path.read_text(encoding="utf-8"), str(path), "exec")


def survivors(exercise_id, monkeypatch, tmp_path):
    wanted = registry.find(exercise_id)
    module = importlib.import_module(f"solutions.{wanted.module}")
    path = ROOT / "solutions" / (wanted.module.replace(".", "/") + ".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = next(n for n in tree.body if getattr(n, "name", "") == wanted.name)
    importlib.import_module(f"course.checks.{wanted.module}")
    for check in checks.CHECKS[exercise_id]:
        monkeypatch.setattr(check, "seconds", min(check.seconds, 2))   # some mutants never end
    found = []
    first_line = node.lineno - 1
    ast.increment_lineno(node, -first_line)                   # lines count from the def: other edits do not move them
    for number, (words, mutant) in enumerate(mutants(ast.Module([node], []))):
        namespace = dict(vars(module))
        try:
            exec(with_a_file(mutant, tmp_path, number), namespace)
            answer = namespace[wanted.name]
        except Exception:
            continue
        if run(exercise_id, answer, only_until_first_failure=True).passed:
            found.append(words)
    return found


@pytest.mark.parametrize("exercise_id", registry.EXERCISES)
def test_mutants_are_rejected(exercise_id, monkeypatch, tmp_path):
    unexplained = [words for words in survivors(exercise_id, monkeypatch, tmp_path) if (exercise_id, words) not in EQUIVALENT]
    assert not unexplained
