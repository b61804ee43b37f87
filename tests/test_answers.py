"""Passed answers become the learner's own package."""
import ast
import gc
import linecache
import os
import re
import subprocess
import sys
import weakref
from pathlib import Path

import nbformat
import pytest

from course import answers, exercise, piece, progress, registry
from course.verify import verify
from tools.inject import inject

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.setenv("GPT_TWICE_WORK", str(tmp_path))
    yield tmp_path
    for name in [m for m in sys.modules if m.split(".")[0] == answers.PACKAGE]:
        del sys.modules[name]
    if str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


def run_cell(text, path, namespace):
    """Run text as a kernel runs a cell: its source is found through a file named by ipykernel."""
    path = path.parent / "ipykernel_1" / path.name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    linecache.getlines(str(path))
    exec(compile(text, str(path), "exec"), namespace)


HEAD = "import torch\nfrom course import exercise, piece\n"


def test_a_passed_answer_is_kept_with_what_it_needs(work):
    namespace = {"__name__": "__main__"}
    run_cell(HEAD + "import math as m\nfrom torch import nn\nSCALE = 2\n", work / "cell1.py", namespace)
    run_cell("def helper(x):\n    return m.sqrt(x) * SCALE\n", work / "cell2.py", namespace)
    run_cell(
        '@exercise("pytorch.attention.causal_mask")\ndef causal_mask(n_query, n_key):\n    assert helper(4) == 4\n'
        "    return torch.ones(n_query, n_key, dtype=torch.bool).tril(n_key - n_query)\n",
        work / "cell3.py", namespace,
    )
    assert answers.save("pytorch.attention.causal_mask", namespace["causal_mask"], {})
    text = (work / "my_gpt/pytorch/attention.py").read_text()
    assert "import math as m" in text and "SCALE = 2" in text and "def helper" in text and "exercise" not in text
    own = piece("pytorch.attention.causal_mask")
    assert own.__module__ == "my_gpt.pytorch.attention"
    assert own(2, 3).tolist() == [[True, True, False], [True, True, True]]


def test_names_made_in_c_are_imported_from_where_they_stand(work):
    namespace = {"__name__": "__main__"}
    lines = ["from math import sqrt", "from numpy import exp", "from safetensors import safe_open", "from torch import tril", "from types import FunctionType"]
    run_cell(HEAD + "\n".join(lines) + "\n", work / "cell1.py", namespace)
    run_cell(
        '@exercise("pytorch.attention.causal_mask")\ndef causal_mask(n_query, n_key):\n    assert callable(safe_open) and exp(0) == sqrt(1) and FunctionType\n'
        "    return tril(torch.ones(n_query, n_key, dtype=torch.bool), n_key - n_query)\n",
        work / "cell2.py", namespace,
    )
    assert answers.save("pytorch.attention.causal_mask", namespace["causal_mask"], {})
    text = (work / "my_gpt/pytorch/attention.py").read_text()
    assert all(line in text for line in lines), text
    assert piece("pytorch.attention.causal_mask")(2, 3).tolist() == [[True, True, False], [True, True, True]]


def test_local_names_are_not_taken_from_the_notebook(work):
    namespace = {"__name__": "__main__"}
    run_cell(HEAD + "weights = 3\nn_query = 4\n", work / "cell1.py", namespace)
    run_cell(
        '@exercise("pytorch.attention.causal_mask")\ndef causal_mask(n_query, n_key):\n    weights = torch.ones(n_query, n_key)\n    return weights\n',
        work / "cell2.py", namespace,
    )
    answers.save("pytorch.attention.causal_mask", namespace["causal_mask"], {})
    text = (work / "my_gpt/pytorch/attention.py").read_text()
    assert "weights = 3" not in text and "n_query = 4" not in text


def test_a_dataclass_beside_the_answer_is_kept(work):
    """It has no method of its own, so its text is looked for in the cells."""
    local = {"__name__": "__main__"}
    run_cell("from dataclasses import dataclass\n@dataclass\nclass Sizes:\n    n: int = 3\n", work / "cell1.py", local)
    run_cell(HEAD + '@exercise("pytorch.pretrained.config_of")\ndef config_of(state, settings):\n    return Sizes()\n', work / "cell2.py", local)
    answers.save("pytorch.pretrained.config_of", local["config_of"], {})
    text = (work / "my_gpt/pytorch/pretrained.py").read_text()
    assert "@dataclass\nclass Sizes:" in text and "from dataclasses import dataclass" in text
    assert piece("pytorch.pretrained.config_of")(None, None).n == 3


def test_values_made_by_a_call_are_kept_as_written(work):
    namespace = {"__name__": "__main__"}
    run_cell(HEAD + 'import re\nLETTERS = "a-z"\nWORDS = re.compile(f"[{LETTERS}]+")\nTABLE = {"a": [1]}\n', work / "cell1.py", namespace)
    run_cell('@exercise("pytorch.tokens.merge_pair")\ndef merge_pair(ids, pair, new):\n    return WORDS.findall("a b"), TABLE\n', work / "cell2.py", namespace)
    answers.save("pytorch.tokens.merge_pair", namespace["merge_pair"], {})
    assert piece("pytorch.tokens.merge_pair")(1, 2, 3) == (["a", "b"], {"a": [1]})


def test_pieces_become_imports_once_they_are_passed(work):
    namespace = {"__name__": "__main__"}
    references = exercise.__globals__["references"]
    run_cell(HEAD + 'from torch import nn\nsoftmax = piece("pytorch.primitives.softmax")\n', work / "cell1.py", namespace)
    run_cell('@exercise("pytorch.attention.attention")\ndef attention(q, k, v, mask=None):\n    return softmax(q @ k.T, -1) @ v\n', work / "cell2.py", namespace)
    answers.save("pytorch.attention.attention", namespace["attention"], references)
    text = (work / "my_gpt/pytorch/attention.py").read_text()
    assert 'softmax = piece("pytorch.primitives.softmax")' in text
    run_cell('@exercise("pytorch.primitives.softmax")\ndef softmax(x, dim):\n    return x.softmax(dim)\n', work / "cell3.py", namespace)
    answers.save("pytorch.primitives.softmax", namespace["softmax"], references)
    text = (work / "my_gpt/pytorch/attention.py").read_text()
    assert "from my_gpt.pytorch.primitives import softmax" in text and "piece" not in text


def test_a_piece_that_was_handed_out_stays_alive(work):
    """Pieces are known by their addresses: once one is gone, any new object could be taken for it."""
    namespace = {"__name__": "__main__"}
    run_cell(HEAD + '@exercise("pytorch.primitives.softmax")\ndef softmax(x, dim):\n    return x.softmax(dim)\n', work / "cell.py", namespace)
    assert answers.save("pytorch.primitives.softmax", namespace["softmax"], {})
    handed = weakref.ref(piece("pytorch.primitives.softmax"))
    for name in [m for m in sys.modules if m.split(".")[0] == answers.PACKAGE]:
        del sys.modules[name]                                 # as when a new answer is saved
    gc.collect()
    assert handed() is not None


def test_a_class_without_source_is_not_kept(work):
    namespace = {"__name__": "__main__"}
    exec(compile("class Linear:\n    def f(self):\n        pass\n", "<nowhere>", "exec"), namespace)
    assert not answers.save("pytorch.primitives.Linear", namespace["Linear"], {})


def test_an_edited_file_that_breaks_says_so(work):
    namespace = {"__name__": "__main__"}
    run_cell(HEAD + '@exercise("pytorch.primitives.softmax")\ndef softmax(x, dim):\n    return x.softmax(dim)\n', work / "cell.py", namespace)
    answers.save("pytorch.primitives.softmax", namespace["softmax"], {})
    (work / "my_gpt/pytorch/primitives.py").write_text("def softmax(x, dim:\n")
    with pytest.raises(ImportError, match="does not import .*Mend it, or delete it"):
        piece("pytorch.primitives.softmax")


def test_a_damaged_record_says_so(work):
    (work / "my_gpt").mkdir()
    (work / "my_gpt/answers.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged: delete it"):
        answers.read()


def definitions(cell):
    """The statements of a cell that only define or import; None for one that prints, plots or checks."""
    try:
        body = ast.parse(cell.source).body
    except SyntaxError:
        return False
    harmless = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)

    def is_harmless(statement):
        if isinstance(statement, ast.FunctionDef) and any(isinstance(d, ast.Call) for d in statement.args.defaults):
            return False                                      # the default is computed here, from what other cells have measured
        if isinstance(statement, harmless):
            return True
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], (ast.Name, ast.Tuple)):
            return False
        made = ast.unparse(statement.value)
        if isinstance(statement.targets[0], ast.Tuple):
            return bool(re.fullmatch(r"\((piece\([^()]+\)(, )?)+\)", made))
        if re.fullmatch(r"ops\.[A-Z]\w+\([^()]*\)", made):
            return True
        return isinstance(statement.value, ast.Constant) or bool(re.fullmatch(r"piece\([^()]+\)", made)) or made.startswith("regex.compile(")

    return [s for s in body if is_harmless(s)]


def test_the_whole_course_ends_as_a_package_that_passes_every_check(work, capsys):
    """Each lesson's answers, saved one by one as check() saves them, make one package without the course's solutions."""
    references = exercise.__globals__["references"]
    for lesson, title in registry.LESSONS.items():
        namespace = {"__name__": "__main__"}
        notebook = nbformat.read(ROOT / "notebooks" / f"{lesson}_{title}.ipynb", as_version=4)
        for number, cell in enumerate(c for c in notebook.cells if c.cell_type == "code"):
            kept = definitions(cell)
            if not kept:
                continue
            source = inject(cell.source)
            tree = ast.parse(source)
            names = {ast.unparse(s)[:60] for s in kept}
            if "@exercise" not in source:
                tree.body = [s for s in tree.body if ast.unparse(s)[:60] in names]
                source = ast.unparse(tree)
            run_cell(source, work / f"lesson{lesson}_{number}.py", namespace)
            for obj in list(namespace.values()):
                exercise_id = getattr(obj, "__exercise__", None)
                if exercise_id and exercise_id not in answers.read() and registry.find(exercise_id).lesson == lesson:
                    assert answers.save(exercise_id, obj, references), exercise_id
    assert sorted(answers.read()) == sorted(registry.EXERCISES)
    text = "\n".join(path.read_text() for path in (work / "my_gpt").rglob("*.py"))
    assert "solutions" not in text and "piece(" not in text
    environment = {**os.environ, "GPT_TWICE_WORK": str(work)}
    done = subprocess.run([sys.executable, "-m", "course", "verify", str(work / "my_gpt")], capture_output=True, text=True, env=environment, cwd=work)
    assert done.returncode == 0, done.stdout + done.stderr
    count = len(registry.EXERCISES)
    assert done.stdout.splitlines()[-1] == f"{count} of {count} exercises pass." and done.stdout.count("✓") == count
    shell = subprocess.run([sys.executable, "-m", "course", "progress"], capture_output=True, text=True, env=environment, cwd=work)
    progress()
    assert shell.stdout == capsys.readouterr().out            # the notebook's progress() says the same
    assert "(" not in shell.stdout and all(f"{n} of {n} exercises" in shell.stdout for n in [1, 9])


def test_verify_says_what_is_open_and_what_fails(work, capsys):
    namespace = {"__name__": "__main__"}
    run_cell(HEAD + '@exercise("pytorch.embeddings.one_hot")\ndef one_hot(idx, n):\n    return torch.nn.functional.one_hot(idx, n).float()\n', work / "cell1.py", namespace)
    run_cell('@exercise("pytorch.warmup.average_past")\ndef average_past(x):\n    return x\n', work / "cell2.py", namespace)
    for name in ("one_hot", "average_past"):
        answers.save(namespace[name].__exercise__, namespace[name], {})
    said = []
    assert not verify(work / "my_gpt", ["00", "03"], said.append)
    text = "\n".join(said)
    assert "✗ pytorch.warmup.average_past" in text and "· pytorch.embeddings.Embedding: not passed yet" in text
    assert said[-1] == "1 of 5 exercises pass, 1 fail, 3 are open."
    with pytest.raises(ValueError, match="is no package of passed answers"):
        verify(work / "other")
    with pytest.raises(ValueError, match="There is no lesson 77"):
        verify(work / "my_gpt", ["77"])
