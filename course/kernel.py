"""What a notebook's kernel needs before the first import of a framework."""
import linecache
import os
from pathlib import Path

from course.exercise import use_reference
from course.hints import hint, solution
from course.progress import progress


def setup():
    """Call it first in a notebook.

    Makes hint, solution, use_reference and progress known in the notebook, for the learner to call. Quiets MindSpore's log, which repeats every exception in C++ (it must be set before its import), and lets
    MindSpore's compiler read the source of cells: ipykernel names a file for each cell and never writes it.
    """
    os.environ.setdefault("GLOG_v", "4")
    try:
        from IPython import get_ipython
    except ImportError:
        return
    shell = get_ipython()
    if shell is None:
        return
    for word in (hint, solution, use_reference, progress):
        shell.user_ns.setdefault(word.__name__, word)

    def write_cell(info):
        path = Path(shell.compile.get_code_name(info.raw_cell, info.raw_cell, 0))
        if path.parent.name.startswith("ipykernel_"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(shell.transform_cell(info.raw_cell), encoding="utf-8")

    for path, (_, _, lines, _) in [(p, entry) for p, entry in linecache.cache.items() if len(entry) == 4]:
        if Path(path).parent.name.startswith("ipykernel_"):      # this very cell, and those before it; no file of the package ipykernel
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text("".join(lines), encoding="utf-8")
    if not getattr(shell, "writes_cells", False):
        shell.events.register("pre_run_cell", write_cell)
        shell.writes_cells = True
