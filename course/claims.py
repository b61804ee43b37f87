"""Claims and what became of them: cells hand in what they found, and the verdicts and the table of lesson 22 follow from that."""
import re
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from course import device, registry
from course.device import drain

COUNTS = {"A": 45, "B": 44, "C": 26, "D": 27, "X": 8}   # claims of each article, and of the articles against each other
VERDICTS = ["true", "false", "depends", "needs an Ascend", "cannot be checked"]
LONGEST_EVIDENCE = 12                                     # words, so that a row of the table can be read


@dataclass
class Claim:
    words: str
    verdict: str = ""
    evidence: str = ""


class Ledger:
    """What is claimed, and what the cells that ran have found.

    claim(id, words) comes first. One of the four methods after it settles the claim: settle, clock, on_ascend, no_method.
    Each prints its row. To settle again, as a cell that runs twice does, replaces what stood there.
    """

    def __init__(self, counts=None):
        self.counts = COUNTS if counts is None else counts
        self.claims = {}

    def claim(self, id, words):
        """Write down a claim, in words of one's own. id: letter of the article and number, "A7"."""
        if id not in self.ids():
            raise ValueError(f"There is no claim {id!r}: the ids are {', '.join(f'{a}1 to {a}{n}' for a, n in self.counts.items())}.")
        self.claims[id] = Claim(words)

    def settle(self, id, holds, evidence):
        """The verdict of what a cell found.

        holds: a bool, or {condition: bool} where the claim was tried under several; where they differ, it depends.
        evidence: the number or the absence that shows it, at most 12 words.

        Raises:
            TypeError: holds is a verdict in words, a number, None: the cell must find out, not say.
            ValueError: no such claim was made, or the evidence is empty or too long.
        """
        found = holds if isinstance(holds, dict) else {"": holds}
        if not found or any(type(value).__name__ not in ("bool", "bool_") for value in found.values()):
            raise TypeError(f"{id} is settled by what a cell found: True, False, or {{condition: True or False}}, not by {holds!r}.")
        yes, no = ([condition for condition, value in found.items() if bool(value) is wanted] for wanted in (True, False))
        if yes and no:
            self.write(id, f"depends: true for {', '.join(yes)}; false for {', '.join(no)}", evidence)
        else:
            self.write(id, "true" if yes else "false", evidence)

    def clock(self, id, condition, evidence):
        """A claim of speed: a cell has measured it here, and another machine may answer otherwise. condition: on what it depends."""
        self.write(id, f"depends: on {condition}", evidence)

    def on_ascend(self, id, cell, evidence):
        """A claim about Ascend: cell() -> bool settles it where there is one, and waits where there is none."""
        if device.mindspore_target() == "Ascend":
            self.settle(id, cell(), f"measured on an Ascend by {cell.__name__}")
        else:
            self.write(id, f"needs an Ascend: {cell.__name__}", evidence)

    def no_method(self, id, evidence):
        """A figure without what one needs to measure it again. evidence: what is missing, or what can be said all the same."""
        self.write(id, "cannot be checked", evidence)

    def write(self, id, verdict, evidence):
        if id not in self.claims:
            raise ValueError(f"{id} is settled and was never claimed: claim({id!r}, words) comes first.")
        words = len(evidence.split()) if isinstance(evidence, str) else 0
        if not 0 < words <= LONGEST_EVIDENCE:
            raise ValueError(f"the evidence of {id} has {words} words and needs 1 to {LONGEST_EVIDENCE}: {evidence!r}.")
        self.claims[id].verdict, self.claims[id].evidence = verdict, evidence
        apart = "  " if len(verdict) + len(evidence) < 88 else "\n    "             # a line that a notebook does not break
        print(f"{id:4}{verdict}{apart}({evidence})")

    def ids(self):
        return [f"{article}{number}" for article, count in self.counts.items() for number in range(1, count + 1)]

    def settled(self):
        """{id: Claim} in the order of the articles."""
        return {id: self.claims[id] for id in self.ids() if id in self.claims and self.claims[id].verdict}

    def missing(self):
        """Claims that no cell has settled yet."""
        settled = self.settled()
        return [id for id in self.ids() if id not in settled]

    def tally(self, article=""):
        """{verdict: how many}, of one article or of all."""
        heads = Counter(kind(c.verdict) for id, c in self.settled().items() if id.startswith(article))
        return {verdict: heads[verdict] for verdict in VERDICTS}

    def table(self, markdown=False):
        """All that is settled, a row each; what is not is named below."""
        rows = [(id, c.words, c.verdict, c.evidence) for id, c in self.settled().items()]
        if markdown:
            cells = [("id", "claim", "verdict", "evidence"), ("---",) * 4, *rows]
            lines = ["| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in cells]
        else:
            lines = [f"{id:4}{words}\n    {verdict}\n    {evidence}" for id, words, verdict, evidence in rows]
        counted = ", ".join(f"{n} {verdict}" for verdict, n in self.tally().items())
        missing = f"\nNot settled: {', '.join(self.missing())}." if self.missing() else ""
        return "\n".join([*lines, "", f"{len(rows)} claims: {counted}.{missing}"])


def kind(verdict):
    """The verdict without its condition."""
    return verdict.partition(":")[0]


ledger = Ledger()
claim, settle, clock, on_ascend, no_method = ledger.claim, ledger.settle, ledger.clock, ledger.on_ascend, ledger.no_method
table, missing, tally = ledger.table, ledger.missing, ledger.tally


def near(measured, claimed, within=0.05):
    """Is a figure the claimed one, within 5 percent?"""
    return abs(measured - claimed) <= within * abs(claimed)


def refuses(function, *args):
    """Name of the error that function(*args) ends in, empty if it works. Asks for the values, since MindSpore's errors come late."""
    try:
        result = function(*args)
        if hasattr(result, "asnumpy"):
            result.asnumpy()
    except Exception as error:
        return type(error).__name__
    finally:
        drain()
    return ""


def graph_operators(function, *args):
    """Names of the operators in the graph that MindSpore compiles of function(*args), in order."""
    import mindspore as ms

    with tempfile.TemporaryDirectory() as folder:
        ms.set_context(save_graphs=1, save_graphs_path=folder)
        try:
            ms.jit(function)(*args)
        finally:
            ms.set_context(save_graphs=0)
        text = max(Path(folder).rglob("*_validate_*.ir")).read_text(encoding="utf-8")
    return re.findall(r"^ *%\d+\([^)]*\) = Prim(?:Func)?_?(\w+)\(", text, re.MULTILINE)


def run(markdown=False, path=None):
    """Run lesson 22 in a kernel of its own; what its table says, as text or as Markdown.

    Raises:
        ValueError: a cell of the notebook fails; the message is its error.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = nbformat.read(path or registry.ROOT / "notebooks" / f"22_{registry.LESSONS['22']}.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(f"from course import claims\nprint(claims.table(markdown={markdown}))"))
    resources = {"metadata": {"path": str(registry.ROOT / "notebooks")}}
    try:
        NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources, extra_arguments=["--log-level=ERROR"]).execute()
    except CellExecutionError as error:
        raise ValueError(f"A cell of lesson 22 fails: {error.ename}: {error.evalue}") from None
    return "".join(output.text for output in notebook.cells[-1].outputs if output.output_type == "stream").strip()
