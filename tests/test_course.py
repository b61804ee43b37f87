"""The library around the exercises."""
import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

import course
from course import corpus, device, hints, registry, timing

ROOT = Path(__file__).resolve().parent.parent
FORBIDDEN = {
    "torch.nn.functional", "torch.optim", "F", "nn.functional", "torch.nn.Linear", "nn.Linear", "nn.LayerNorm", "nn.Embedding", "nn.GELU",
    "nn.Softmax", "nn.LogSoftmax", "nn.CrossEntropyLoss", "nn.MultiheadAttention", "nn.Sequential", "nn.Dropout", "nn.utils", "nn.init",
    "torch.softmax", "torch.log_softmax", "torch.layer_norm", "torch.embedding", "torch.einsum",
}
CONTAINERS = {"nn.Module", "nn.Parameter", "nn.ModuleList", "nn.ModuleDict"}
FORBIDDEN_METHODS = {"softmax", "log_softmax", "logsumexp", "backward_hook"}


def dotted(node):
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def not_primitive(text):
    """What a solution uses beyond primitive operations and nn's containers."""
    found = []
    nodes = list(ast.walk(ast.parse(text)))
    called = {node.func for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Attribute):
            name = dotted(node)
            if name in FORBIDDEN or name.startswith("nn.") and name not in CONTAINERS:
                found.append(name)
            elif node.attr in FORBIDDEN_METHODS and node in called:   # policy.softmax is a dtype
                found.append(node.attr)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("torch.nn", "torch.optim")):
            found.append(node.module)
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.startswith(("torch.nn", "torch.optim"))]
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            found += [a.name for a in node.names if a.name != "nn"]
    return found


@pytest.mark.parametrize("path", sorted((ROOT / "solutions/pytorch").glob("*.py")), ids=lambda p: p.stem)
def test_solutions_use_primitive_operations(path):
    assert not_primitive(path.read_text()) == []


@pytest.mark.parametrize("text", [
    "import torch.nn.functional as F", "from torch.nn import functional", "y = nn.Linear(2, 3)", "y = x.softmax(-1)",
    "y = torch.softmax(x, -1)", "o = torch.optim.AdamW(p)", "from torch import optim", "nn.init.normal_(w)",
])
def test_the_search_for_other_operations_finds_them(text):
    assert not_primitive(text)


def test_import_is_light():
    program = "import sys, time; t = time.process_time(); import course; print(time.process_time() - t, 'torch' in sys.modules, 'mindspore' in sys.modules)"
    best = min((subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split() for _ in range(3)), key=lambda r: float(r[0]))
    assert best[1:] == ["False", "False"]
    assert float(best[0]) < 0.3


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)


def test_rooms_import_only_rooms_below():
    for path in (ROOT / "course").rglob("*.py"):
        names = list(imports(path))
        assert not any(n.split(".")[0] in ("tools", "tests") for n in names), path
        if "bench" not in path.parts:
            assert not any(n.split(".")[0] == "solutions" for n in names), path
        if path.name not in ("check.py",) and "checks" not in path.parts:
            assert not any(n.startswith("course.checks") for n in names), path


@pytest.mark.parametrize("exercise_id", registry.EXERCISES)
def test_hints_and_solution(exercise_id):
    assert len(hints.hints_of(exercise_id)) >= 2
    shown = hints.solution(exercise_id)
    assert registry.find(exercise_id).name in repr(shown)
    assert shown._repr_html_().startswith("<details>")


def test_hints_come_one_by_one(capsys):
    hints.given.clear()
    exercise_id = "pytorch.attention.causal_mask"
    for expected in ("Hint 1 of 2", "Hint 2 of 2", "There are no more hints"):
        course.hint(exercise_id)
        assert expected in capsys.readouterr().out
    course.hint(exercise_id, 1)
    assert "Hint 1 of 2" in capsys.readouterr().out
    with pytest.raises(ValueError, match="has hints 1 to 2"):
        course.hint(exercise_id, 3)
    with pytest.raises(KeyError, match="Did you mean"):
        course.hint("pytorch.attention.causal_maks")


def test_progress(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("GPT_TWICE_WORK", str(tmp_path))
    course.progress()
    assert f"0 of {sum(e.points for e in registry.EXERCISES.values())} points" in capsys.readouterr().out
    course.progress("4")
    assert "· pytorch.attention.causal_mask  (2 points)" in capsys.readouterr().out
    with pytest.raises(ValueError, match="no lesson 77"):
        course.progress("77")


def test_plays_are_the_same_for_everyone():
    text = corpus.load("shakespeare")
    assert len(text) == 4_957_411 and len(set(text)) == 81
    train, val = corpus.split(text)
    assert len(train) == 4_461_669 and train + val == text


@pytest.mark.parametrize("name, content, words", [
    ("missing.txt", None, "There is no file"),
    ("empty.txt", b"", "holds no text"),
    ("blank.txt", b" \n\t ", "holds no text"),
    ("latin.txt", "é".encode("latin-1") * 100, "is not UTF-8 text"),
    ("short.txt", b"ab", "2 characters and at least 65 are needed"),
])
def test_bad_texts_get_one_sentence(tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(corpus.CorpusError, match=words) as error:
        corpus.load(path, at_least=65)
    assert "\n" not in str(error.value)


def test_a_folder_is_no_text(tmp_path):
    with pytest.raises(corpus.CorpusError, match="is a folder"):
        corpus.load(tmp_path)


def test_own_text(tmp_path):
    (tmp_path / "own.txt").write_text("æ ø å", encoding="utf-8")
    assert corpus.load(tmp_path / "own.txt") == "æ ø å"


def test_download_without_connection(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(corpus, "TINYSHAKESPEARE", "http://127.0.0.1:9/input.txt")
    with pytest.raises(corpus.CorpusError, match="no connection"):
        corpus.load("tinyshakespeare")


def test_stopwatch():
    timings = timing.measure({"quick": lambda: time.sleep(0.001), "slow": lambda: time.sleep(0.01)}, seconds=0.1, least=4)
    assert timings["slow"].median > 2 * timings["quick"].median
    low, high = timings["slow"].quartiles
    assert low <= timings["slow"].median <= high and len(timings["slow"].seconds) >= 4
    import torch  # noqa: F401, the banner names the frameworks that are loaded

    text = timing.report(timings)
    assert "torch 2" in text and "ratio" in text and text.splitlines()[-1].startswith("slow")


def test_stopwatch_waits_for_the_device():
    waited = []
    timing.measure({"a": lambda: None}, seconds=0, least=4, warmup=1, wait=lambda: waited.append(1))
    assert len(waited) == 6


def test_keeping_memory_is_taken_on_linux():
    assert device.keep_freed_memory() in (True, False)
    assert device.torch_device() in ("cpu", "cuda")
