"""Put the reference answers in the place of the stubs of a notebook cell."""
import ast
import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def exercise_nodes(source):
    """(exercise id, def or class node) of every exercise in a cell."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []                                             # a cell with magics holds no exercise
    return [
        (decorator.args[0].value, node)
        for node in tree.body
        for decorator in getattr(node, "decorator_list", [])
        if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "exercise"
    ]


@functools.cache
def solution_module(module):
    return (ROOT / "solutions" / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8")


def solution_source(exercise_id):
    """The text of the def or class that answers an exercise."""
    module, _, name = exercise_id.rpartition(".")
    text = solution_module(module)
    for node in ast.parse(text).body:
        if getattr(node, "name", None) == name:
            return ast.get_source_segment(text, node)
    raise LookupError(f"solutions/{module.replace('.', '/')}.py has no {name}")


def inject(source):
    """The cell with answers for stubs; decorators and all other lines stay."""
    lines = source.split("\n")
    for exercise_id, node in reversed(exercise_nodes(source)):
        lines[node.lineno - 1 : node.end_lineno] = solution_source(exercise_id).split("\n")
    return "\n".join(lines)
