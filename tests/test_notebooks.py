"""The stored notebooks keep the rules that nbval cannot see, and a notebook that breaks one fails."""
import copy
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from course import registry
from tests.notebook_rules import code_cells, problems
from tools.execute import convert
from tools.inject import inject

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
PATHS = [NOTEBOOKS / f"{lesson}_{title}.ipynb" for lesson, title in registry.LESSONS.items()]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_rules(path):
    assert problems(nbformat.read(path, as_version=4), path.name[:2]) == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_source_and_notebook_hold_the_same_cells(path):
    def view(notebook):
        return [(c.cell_type, c.source.strip(), c.metadata.get("tags"), c.metadata.get("nbgrader")) for c in notebook.cells]

    assert view(convert(path.with_suffix(".py"))) == view(nbformat.read(path, as_version=4))


def test_no_other_notebooks():
    assert sorted(NOTEBOOKS.glob("*.ipynb")) == PATHS


@pytest.fixture
def attention():
    return nbformat.read(NOTEBOOKS / "04_causal_attention.ipynb", as_version=4)


def first(notebook, words):
    return next(cell for cell in code_cells(notebook) if words in cell.source)


def clear_outputs(notebook):
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None


def write_an_answer(notebook):
    cell = first(notebook, "@exercise")
    cell.source = inject(cell.source)


def tag_a_cell(notebook):
    first(notebook, "positions that moved").metadata["tags"] = ["nbval-ignore-output"]


def tag_with_skip(notebook):
    first(notebook, "positions that moved").metadata["tags"] = ["nbval-skip"]


def print_an_answer(notebook):
    notebook.cells[1].source += "\n\n" + inject(first(notebook, "def split_heads").source)


def show_an_answer_as_text(notebook):
    notebook.cells[0].source += "\n\n" + "\n".join("    " + line for line in inject(first(notebook, "def attention").source).split("\n"))


def store_stderr(notebook):
    code_cells(notebook)[3].outputs.append(nbformat.v4.new_output("stream", name="stderr", text="a warning"))


def store_a_path(notebook):
    code_cells(notebook)[3].outputs.append(nbformat.v4.new_output("stream", name="stdout", text="/tmp/x.py"))


def end_in_semicolon(notebook):
    code_cells(notebook)[3].source += ";"


def call_the_solution(notebook):
    code_cells(notebook)[3].source += '\nsolution("pytorch.attention.attention")'


def drop_a_check(notebook):
    notebook.cells.remove(first(notebook, "check(attention)"))


def rename_an_argument(notebook):
    cell = first(notebook, "def split_heads")
    cell.source = cell.source.replace("n_head: int)", "heads: int)")


def store_a_failed_check(notebook):
    first(notebook, "check(attention)").outputs[0]["text"] = "✗ pytorch.attention.attention: 1 of 10 checks"


def compare_a_timing(notebook):
    first(notebook, "same result within 1e-5").source += '\nratio = timings["yours, T = 512"].median / timings["yours, T = 128"].median\nprint(ratio > 4)'


def compare_a_profile(notebook):
    first(notebook, "same result within 1e-5").source += (
        "\nwith torch.profiler.profile() as profile:\n    yours(*arguments)"
        "\nfound = {e.key: e.self_cpu_time_total for e in profile.key_averages()}\nprint(max(found.values()) > 1)"
    )


def compare_an_operator(notebook):
    first(notebook, "same result within 1e-5").source += "\nprint(ascend.profile_table(lambda: yours(*arguments))[0].milliseconds > 1)"


def compare_page_faults(notebook):
    first(notebook, "same result within 1e-5").source += '\nfaults = json.loads(run.stdout)["faults"]\nprint(faults < 100)'


DEFECTS = {
    compare_a_timing: "depends on a clock",
    compare_a_profile: "depends on a clock",
    compare_an_operator: "depends on a clock",
    compare_page_faults: "depends on a clock",
    clear_outputs: "execution counts",
    write_an_answer: "is no stub",
    tag_a_cell: "could be compared",
    tag_with_skip: "unknown tags",
    print_an_answer: "lines of the answer",
    show_an_answer_as_text: "lines of the answer",
    store_stderr: "on stderr",
    store_a_path: "a path of this machine",
    end_in_semicolon: "ends in ;",
    call_the_solution: "calls solution()",
    drop_a_check: "no check(attention)",
    rename_an_argument: "the arguments of split_heads",
    store_a_failed_check: "did not pass",
}


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda d: d.__name__)
def test_a_defect_is_found(attention, defect):
    assert problems(attention, "04") == []
    defect(attention)
    assert any(DEFECTS[defect] in problem for problem in problems(attention, "04"))


def test_the_check_looks_at_the_cell_and_not_at_the_solution(attention, tmp_path, monkeypatch):
    """A wrong answer typed into the notebook fails its check although solutions/ holds the right one."""
    monkeypatch.setenv("GPT_TWICE_WORK", str(tmp_path))
    notebook = copy.deepcopy(attention)
    notebook.cells = notebook.cells[: notebook.cells.index(first(notebook, "check(causal_mask)")) + 1]
    cell = first(notebook, "@exercise")
    cell.source = inject(cell.source).replace(".tril(", ".triu(")
    NotebookClient(notebook, kernel_name="python3", timeout=60).execute()
    assert notebook.cells[-1].outputs[0]["text"].startswith("✗ pytorch.attention.causal_mask")
    assert not (tmp_path / "my_gpt").exists()
