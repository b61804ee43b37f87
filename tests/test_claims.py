"""Lesson 22: verdicts follow from what cells found, every claim is settled, and what is not settled is named."""
import ast
import functools
import re
from pathlib import Path

import nbformat
import pytest

from course import __main__ as shell
from course import claims, device, timing
from course.claims import Ledger, near

ROOT = Path(__file__).resolve().parent.parent
SETTLING = ("settle", "clock", "on_ascend", "no_method")


@pytest.fixture
def ledger():
    made = Ledger({"A": 3})
    for number in (1, 2, 3):
        made.claim(f"A{number}", f"claim {number}")
    return made


def test_verdicts_follow_from_what_was_found(ledger):
    ledger.settle("A1", True, "a number")
    ledger.settle("A2", False, "another")
    ledger.settle("A3", {"small": True, "large": False}, "both sizes")
    assert [c.verdict for c in ledger.settled().values()] == ["true", "false", "depends: true for small; false for large"]
    assert ledger.tally() == {"true": 1, "false": 1, "depends": 1, "needs an Ascend": 0, "cannot be checked": 0}


def test_conditions_that_agree_do_not_depend(ledger):
    ledger.settle("A1", {"small": False, "large": False}, "both sizes")
    assert ledger.settled()["A1"].verdict == "false"


@pytest.mark.parametrize("typed", ["false", "", None, 0, 1, 0.5, {}, {"small": "yes"}, []])
def test_a_verdict_in_words_is_refused(ledger, typed):
    with pytest.raises(TypeError, match="by what a cell found"):
        ledger.settle("A1", typed, "evidence")


def test_what_is_not_settled_is_missing_and_named(ledger):
    ledger.settle("A1", True, "a number")
    ledger.no_method("A3", "no device named")
    assert ledger.missing() == ["A2"]
    assert "claim 2" not in ledger.table() and "Not settled: A2." in ledger.table()


def test_settling_again_replaces(ledger):
    ledger.settle("A1", True, "once")
    ledger.settle("A1", False, "twice")
    assert ledger.settled()["A1"].verdict == "false" and ledger.tally()["true"] == 0


def test_bad_ids_and_evidence_get_a_sentence(ledger):
    with pytest.raises(ValueError, match="no claim 'A4'.*A1 to A3"):
        ledger.claim("A4", "words")
    with pytest.raises(ValueError, match="never claimed"):
        Ledger({"A": 1}).settle("A1", True, "evidence")
    for evidence in ("", "word " * 13, None):
        with pytest.raises(ValueError, match="words and needs 1 to 12"):
            ledger.settle("A1", True, evidence)


def test_a_claim_about_ascend_waits_and_is_settled_there(ledger, monkeypatch):
    def cell():
        return False

    monkeypatch.setattr(device, "mindspore_target", lambda: "CPU")
    ledger.on_ascend("A1", cell, "no source says so")
    assert ledger.settled()["A1"].verdict == "needs an Ascend: cell"
    monkeypatch.setattr(device, "mindspore_target", lambda: "Ascend")
    ledger.on_ascend("A1", cell, "no source says so")
    assert ledger.settled()["A1"].verdict == "false"


def test_markdown(ledger):
    ledger.settle("A1", True, "a | b")
    ledger.clock("A2", "the device", "2 operators for 1")
    lines = ledger.table(markdown=True).split("\n")
    assert lines[:2] == ["| id | claim | verdict | evidence |", "| --- | --- | --- | --- |"]
    assert lines[2:4] == ["| A1 | claim 1 | true | a \\| b |", "| A2 | claim 2 | depends: on the device | 2 operators for 1 |"]


def test_near():
    assert near(2.18, 2.1) and near(-9.8, -10) and not near(52513, 87) and not near(1.1, 1.52)


def test_operators_of_a_graph():
    import mindspore as ms
    import numpy as np

    def function(x):
        return (x + 1) * 2

    assert claims.graph_operators(function, ms.Tensor(np.ones((2, 3), np.float32))) == ["Add", "Muls"]


def test_refuses_leaves_no_error_behind():
    import mindspore as ms
    import numpy as np
    from mindspore import ops

    x = ms.Tensor(np.ones((1, 2, 3, 4), np.float32))
    for _ in range(3):
        assert claims.refuses(ops.MatMul(transpose_b=True), x, x) == "ValueError"
        assert claims.refuses(ops.BatchMatMul(transpose_b=True), x, x) == ""


# The notebook


@functools.cache
def notebook():
    return nbformat.read(ROOT / "notebooks" / "22_claims.ipynb", as_version=4)


@functools.cache
def calls():
    """(name of the function, call) of every claim and every settling, in the order of the notebook."""
    found = []
    for cell in notebook().cells:
        if cell.cell_type == "code":
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("claim", *SETTLING):
                    found.append((node.func.id, node))
    return found


def ids(*functions):
    return [node.args[0].value for name, node in calls() if name in functions]


def test_every_claim_is_made_once_and_settled_once():
    wanted = Ledger().ids()
    assert sorted(ids("claim"), key=wanted.index) == wanted
    refused = ids(*SETTLING).count("A1") - 1                  # the cell that shows what settle refuses
    assert refused == 1
    assert sorted(set(ids(*SETTLING)), key=wanted.index) == wanted and len(ids(*SETTLING)) == len(wanted) + refused


def test_no_verdict_is_typed():
    """What settle is given was computed: it reads a name or calls a function."""
    typed = []
    for name, node in calls():
        if name == "settle" and not any(isinstance(part, ast.Name) for part in ast.walk(node.args[1])):
            typed.append((node.args[0].value, ast.unparse(node.args[1])))
    arithmetic = {"A17", "A19"}                               # 777 % 12 and 2816 % 128
    assert [t for t in typed if t[0] not in arithmetic and t != ("A1", "'false'")] == []


def stored_table():
    return next(o.text for c in notebook().cells if c.cell_type == "code" and c.source == "print(claims.table())" for o in c.outputs)


def test_the_stored_table_holds_every_claim():
    text = stored_table()
    assert "Not settled" not in text and f"{len(Ledger().ids())} claims: " in text
    assert re.findall(r"^([A-DX]\d+) ", text, re.MULTILINE) == Ledger().ids()
    printed = {}
    for cell in notebook().cells:
        for output in cell.get("outputs", []):
            printed.update(re.findall(r"^([A-DX]\d+) +((?:true|false|depends|needs an Ascend|cannot be checked)\b.*?)(?:  \(|$)", output.get("text", ""), re.MULTILINE))
    rows = re.findall(r"^([A-DX]\d+) .*\n    (.*)\n", text, re.MULTILINE)
    assert printed == dict(rows)


def rows_of(name):
    """The rows of a Markdown table as text, {id: row}."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^\| ([A-DX]\d+) (\|.*)$", text, re.MULTILINE))


def test_the_tables_in_the_docs_are_those_of_the_lesson():
    stored = re.findall(r"^([A-DX]\d+) +(.*)\n    (.*)\n    (.*)$", stored_table(), re.MULTILINE)
    lesson = {id: f"| {words} | {verdict} | {evidence} |" for id, words, verdict, evidence in stored}
    assert rows_of("docs/claims.md") == lesson
    assert set(rows_of("README.md").items()) < set(lesson.items())
    counted = stored_table().strip().splitlines()[-1]
    assert counted in (ROOT / "docs/claims.md").read_text() and counted.replace(" claims:", ":").rstrip(".") in (ROOT / "README.md").read_text()


def small_notebook(tmp_path, *sources):
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    path = tmp_path / "small.ipynb"
    nbformat.write(made, path)
    return path


def test_a_cell_left_out_is_noticed(tmp_path):
    path = small_notebook(tmp_path, "from course.claims import *\nclaim('A1', 'one')\nsettle('A1', 1 + 1 == 3, 'it is 2')")
    text = claims.run(markdown=True, path=path)
    assert "| A1 | one | false | it is 2 |" in text and "Not settled: A2, A3" in text


def test_a_cell_that_fails_gets_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="A cell of lesson 22 fails: ZeroDivisionError"):
        claims.run(path=small_notebook(tmp_path, "1 / 0"))


def test_the_shell_prints_the_table(monkeypatch, capsys):
    monkeypatch.setattr(claims, "run", lambda markdown=False: f"markdown: {markdown}")
    for words, wanted in [(["claims"], "markdown: False\n"), (["claims", "--markdown"], "markdown: True\n")]:
        assert shell.run(shell.parser().parse_args(words)) == 0
        assert capsys.readouterr().out == wanted


def test_cells_that_wait_for_an_ascend_run(monkeypatch):
    """On a CPU they prove nothing, but they must not fail on the day there is an Ascend."""
    import mindspore as ms
    import numpy as np
    from mindspore import nn, ops

    source = next(c.source for c in notebook().cells if c.cell_type == "code" and "def ratio_of" in c.source)
    names = {"ms": ms, "np": np, "nn": nn, "ops": ops, "timing": timing}
    made = Ledger()
    names |= {"claim": made.claim, "on_ascend": made.on_ascend}
    measured = timing.measure
    monkeypatch.setattr(timing, "measure", lambda candidates, seconds: measured(candidates, seconds=0, warmup=0, least=1))
    monkeypatch.setattr(device, "mindspore_target", lambda: "Ascend")
    exec(source, names)
    assert len(made.settled()) == 5 and {c.verdict for c in made.settled().values()} <= {"true", "false"}
