"""Setting up, copying the lessons, and running answers in the place of stubs."""
import json
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from tools import install, start
from tools.execute import convert
from tools.inject import exercise_nodes, inject, solution_source

ROOT = Path(__file__).resolve().parent.parent


def test_copies_have_no_outputs_and_nothing_is_overwritten(tmp_path):
    work = tmp_path / "work"
    new = start.copy_lessons(ROOT / "notebooks", work)
    assert "00_start_here.ipynb" in new and len(new) == len(list((ROOT / "notebooks").glob("*.ipynb")))
    for path in work.glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        assert all(not c["outputs"] and c["execution_count"] is None for c in cells if c["cell_type"] == "code")
    (work / "04_causal_attention.ipynb").write_text("mine")
    (work / "05_layernorm_and_ffn.ipynb").unlink()
    assert start.copy_lessons(ROOT / "notebooks", work) == ["05_layernorm_and_ffn.ipynb"]
    assert (work / "04_causal_attention.ipynb").read_text() == "mine"


def refusal(monkeypatch, tmp_path):
    with pytest.raises(SystemExit) as stop:
        install.check_machine(tmp_path / "venv")
    assert str(stop.value).startswith("Cannot install: ") and "\n" not in str(stop.value)
    return str(stop.value)


@pytest.mark.parametrize("version", [(3, 9, 0), (3, 10, 4), (3, 13, 1), (3, 14, 0)])
def test_a_python_without_wheels(monkeypatch, tmp_path, version):
    monkeypatch.setattr(sys, "version_info", version)
    said = refusal(monkeypatch, tmp_path)
    assert f"this is Python {version[0]}.{version[1]}" in said and "3.11 and 3.12" in said


def test_no_venv_module(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    assert "has no venv module" in refusal(monkeypatch, tmp_path)


def test_a_full_disk(monkeypatch, tmp_path):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 10**9))
    assert "1.0 GB are free" in refusal(monkeypatch, tmp_path)


@pytest.mark.parametrize("text, words", [
    ("OSError: [Errno 28] No space left on device", "the disk is full"),
    ("ERROR: No matching distribution found for mindspore==2.10.0", "no file for this Python and machine"),
    ("Connection to index failed", "cannot be reached"),
    ("something else", "this step failed"),
])
def test_a_failing_step_gets_a_sentence(text, words):
    with pytest.raises(SystemExit) as stop:
        install.run([sys.executable, "-c", f"import sys; sys.exit({text!r})"])
    assert words in str(stop.value)


def test_versions_are_pinned_in_one_place():
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all("==" in line for line in lines)
    assert {"torch==2.13.0", "mindspore==2.10.0", "numpy==1.26.4"} <= set(lines)
    others = (ROOT / "environment.yml").read_text() + (ROOT / "pyproject.toml").read_text()
    assert not any(line.split("==")[1] in others for line in lines)
    assert (ROOT / "requirements-test.txt").read_text().startswith("-r requirements-grading.txt")
    assert (ROOT / "requirements-grading.txt").read_text().startswith("-r requirements.txt")


STUB = '''x = 1
@exercise("pytorch.attention.causal_mask")
@other
def causal_mask(n_query, n_key):
    raise NotImplementedError
y = 2'''


def test_injection_puts_the_answer_below_its_decorators():
    text = inject(STUB)
    assert text.startswith('x = 1\n@exercise("pytorch.attention.causal_mask")\n@other\ndef causal_mask') and text.endswith("\ny = 2")
    assert solution_source("pytorch.attention.causal_mask") in text and "NotImplementedError" not in text


def test_cells_with_magics_and_unknown_answers():
    assert inject("%%bash\nls") == "%%bash\nls"
    assert exercise_nodes("x = (") == []
    with pytest.raises(LookupError, match="has no nothing"):
        solution_source("pytorch.attention.nothing")


def test_conversion_is_the_same_each_time():
    path = ROOT / "notebooks/04_causal_attention.py"
    assert convert(path) == convert(path)
