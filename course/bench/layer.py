"""One layer of the GPT under the stopwatch: how it is run, how it is written, a process for each candidate.

    python -m course bench layer --size gpt2 --modes waterfall
"""
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

from course import device, registry
from course.exercise import piece
from course.timing import Operator, Repeats

SIZES = {
    "tiny": {"n_embd": 32, "n_head": 4, "n_ctx": 16, "batch": 2, "vocab_size": 81},       # for tests: nothing but overhead
    "small": {"n_embd": 128, "n_head": 4, "n_ctx": 64, "batch": 12, "vocab_size": 81},
    "mid": {"n_embd": 384, "n_head": 6, "n_ctx": 128, "batch": 8, "vocab_size": 81},
    "gpt2": {"n_embd": 768, "n_head": 12, "n_ctx": 256, "batch": 2, "vocab_size": 50257},
}
PIECES = ("layer", "attention", "mlp", "layernorm", "embedding")
PASSES = ("both", "forward")
RUNS = ("fusion", "graph", "graph-o1", "eager")
CLASSES = {"layer": "gpt.Block", "attention": "attention.CausalSelfAttention", "mlp": "layers.MLP", "layernorm": "layers.LayerNorm", "embedding": "embeddings.TokenAndPosition"}
FAST = {"layer": "fast.Block", "attention": "fast.CausalSelfAttention", "layernorm": "fast.LayerNorm"}


@dataclass(frozen=True)
class Mode:
    """A candidate: how a piece is run and how it is written."""

    words: str
    run: str                       # "pytorch", or one of RUNS
    code: str = "lesson"           # "lesson": the port as it stands; "fast": fast.py; "stock": PyTorch's own; "form": forms.py with `form`
    form: dict = field(default_factory=dict)
    blocking: bool = False
    asleep: bool = False


STEPS = [                                                     # of the waterfall after fusion: what is written in another way
    ("transposed", "transposed operands, a stream of two axes", {"operands": "transposed"}),
    ("additive", "additive mask", {"mask": "additive"}),
    ("softmax", "softmax as one operation", {"softmax": "one operation"}),
    ("norm", "LayerNorm with its means as products", {"norm": "products"}),
]
OTHERS = [                                                    # what the fast form is compared with, one thing changed
    ("form-qkv-three", "three projections in place of one", {"qkv": "three"}),
    ("form-mask-boolean", "boolean mask in place of an additive one", {"mask": "boolean"}),
    ("form-operands-swapped", "operands transposed by an operation of their own", {"operands": "swapped"}),
    ("form-softmax-by-hand", "softmax from exp and sums", {"softmax": "by hand"}),
    ("form-norm-means", "LayerNorm from means", {"norm": "means"}),
    ("form-norm-one", "LayerNorm as ops.LayerNorm", {"norm": "one operation"}),
    ("form-gelu-tanh", "GELU with tanh", {"gelu": "tanh"}),
    ("form-gelu-one", "GELU as ops.GeLU", {"gelu": "one operation"}),
    ("form-one-cell", "the block as one Cell", {"cells": "one"}),
    ("form-buffers", "scores and the wide layer also written into Parameters that are there already", {"buffers": "reused"}),
]


def modes():
    """Every candidate by name."""
    found = {
        "pytorch": Mode("PyTorch, the course's layer", "pytorch"),
        "pytorch-stock": Mode("PyTorch, from its own parts", "pytorch", "stock"),
        "eager": Mode("MindSpore as ported, eager", "eager"),
        "eager-blocking": Mode("the same with launch_blocking", "eager", blocking=True),
        "graph": Mode("graph mode (jit_level O0)", "graph"),
        "graph-o1": Mode("graph mode, jit_level O1", "graph-o1"),
        "fusion": Mode("graph mode with kernel fusion", "fusion"),
    }
    form = {}
    for name, words, change in STEPS:
        form = {**form, **change}
        found[f"+{name}"] = Mode(words, "fusion", "form", form)
    found["+asleep"] = Mode("waiting asleep", "fusion", "form", form, asleep=True)
    found["fast"] = Mode("the fast layer of lesson 17", "fusion", "fast", asleep=True)
    found["form-fast"] = Mode("the fast form", "fusion", "form", form)
    for name, words, change in OTHERS:
        found[name] = Mode(words, "fusion", "form", {**form, **change})
    found["pytorch-rope-table"] = Mode("PyTorch, RoPE from a table", "pytorch", "form", {"positions": "table"})
    found["pytorch-rope-computed"] = Mode("PyTorch, RoPE computed at each call", "pytorch", "form", {"positions": "computed"})
    found["rope-table"] = Mode("the fast form, RoPE from a table", "fusion", "form", {**form, "positions": "table"})
    found["rope-computed"] = Mode("the fast form, RoPE computed at each call", "fusion", "form", {**form, "positions": "computed"})
    return found


MODES = modes()
GROUPS = {
    "run": ["pytorch", "pytorch-stock", "eager", "eager-blocking", "graph", "graph-o1", "fusion", "fast"],
    "waterfall": ["pytorch", "eager", "graph", "fusion", *(f"+{name}" for name, _, _ in STEPS), "+asleep"],
    "forms": ["form-fast", *(name for name, _, _ in OTHERS)],
    "rope": ["pytorch", "pytorch-rope-table", "pytorch-rope-computed", "form-fast", "rope-table", "rope-computed"],
}
GROUPS["all"] = list(dict.fromkeys(name for group in GROUPS.values() for name in group))


WRONG = 1e-3    # difference from PyTorch's, relative to the largest number; what is right stays below 1e-4


@dataclass
class Measured(Repeats):
    """What one candidate gave. Where it failed, `error` says why in a line and the rest is empty."""

    mode: str
    piece: str
    passes: str
    seconds: list = field(default_factory=list)
    first: float = 0.0                                        # seconds of the first call; it compiles
    memory: float = 0.0                                       # MB of the process at its peak, above what it had before the piece was built
    peak: float = 0.0                                         # floating point operations a second of one large product in the same process
    output_gap: float = math.nan                              # largest difference from PyTorch's values, relative to the largest
    gradient_gap: float = math.nan
    operators: list = field(default_factory=list)             # with profile=True: timing.Operator of ten calls
    banner: str = ""
    error: str = ""

    @property
    def wrong(self):
        """Whether it computes something else: no order of additions moves a number by a thousandth of the largest."""
        return self.output_gap > WRONG or self.gradient_gap > WRONG


# --- what is asked for ---------------------------------------------------------------------------------


def chosen(names):
    """The candidates that a list of names and groups means, each once.

    Raises:
        ValueError: a name is neither; the message names the nearest.
    """
    import difflib

    found = []
    for name in names:
        if name not in MODES and name not in GROUPS:
            near = difflib.get_close_matches(name, [*MODES, *GROUPS], n=1)
            advice = f"Did you mean {near[0]}?" if near else f"Groups are {', '.join(GROUPS)}; --help lists every mode."
            raise ValueError(f"There is no mode {name!r}. {advice}")
        found += GROUPS.get(name, [name])
    return list(dict.fromkeys(found))


def one_of(what, value, known):
    if value not in known:
        raise ValueError(f"{what} is {value!r} and must be one of {', '.join(known)}.")


def can_measure(name, which):
    """Whether a mode exists for a piece: forms belong to the whole layer."""
    mode = MODES[name]
    if mode.code == "fast":
        return which in FAST
    return which == "layer" if mode.code in ("form", "stock") else True


def flops(which, passes, size):
    """Floating point operations of the matrix products of a piece; a backward pass counts twice the forward. 0 where there are none."""
    s = SIZES[size]
    N, C, T = s["batch"] * s["n_ctx"], s["n_embd"], s["n_ctx"]
    attention, mlp = 8 * N * C * C + 4 * N * T * C, 16 * N * C * C
    forward = {"layer": attention + mlp, "attention": attention, "mlp": mlp}.get(which, 0)
    return forward * (3 if passes == "both" else 1)


def tokens(size):
    return SIZES[size]["batch"] * SIZES[size]["n_ctx"]


# --- the parent: a process for each candidate ----------------------------------------------------------


def measure(size="small", names=("run",), pieces=("layer",), passes=("both",), seconds=4.0, run=None, profile=False, progress=None, limit=600, found=None):
    """Measure candidates one after the other, each in a process of its own.

    Args:
        size: one of SIZES.
        names: modes and groups of modes; pieces and passes: which of PIECES and PASSES.
        seconds: how long each is repeated.
        run: how forms and the fast layer are run: "fusion" (default), "graph", "graph-o1" or "eager".
        profile: also count ten calls by operator.
        progress: called with a line before and after each candidate.
        limit: seconds after which a candidate is given up.
        found: a list to append to; what is in it stays there if the measuring is interrupted.

    Returns:
        list of Measured. A candidate that fails has its `error` set, and the others go on.

    Raises:
        ValueError: an argument is none of those it can be.
    """
    one_of("size", size, SIZES)
    for which in pieces:
        one_of("piece", which, PIECES)
    for which in passes:
        one_of("pass", which, PASSES)
    if run is not None:
        one_of("run", run, RUNS)
    if not seconds > 0:
        raise ValueError(f"seconds is {seconds} and must be above 0.")
    for what, given in (("modes", names), ("pieces", pieces), ("passes", passes)):
        if not given:
            raise ValueError(f"None of the {what} is given: name at least one.")
    names = chosen(names)
    found = [] if found is None else found
    say = progress or (lambda line: None)
    jobs = [(w, p, name) for w in pieces for p in passes for name in names if can_measure(name, w)]
    if not jobs:
        raise ValueError(f"None of the modes {', '.join(names)} exists for {', '.join(pieces)}: forms, rope and stock are whole layers.")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for number, (which, p, name) in enumerate(jobs, 1):
            say(f"[{number}/{len(jobs)}] {which}, {p}: {name} ({MODES[name].words}) ...")
            job = {"mode": name, "size": size, "piece": which, "passes": p, "seconds": seconds, "run": run, "profile": profile}
            measured = in_own_process(job, folder, limit)
            if not measured.error:
                compare(measured, job, folder, limit)
            found.append(measured)
            say(f"    {outcome(measured)}")
    return found


def outcome(m):
    if m.error:
        return f"failed: {m.error}"
    return f"{1e3 * m.median:.1f} ms, first call {m.first:.1f} s{', and WRONG values or gradients' if m.wrong else ''}"


def in_own_process(job, folder, limit):
    """The Measured of a job, whatever happens to its process."""
    environment = {**os.environ, "GLOG_v": "4", "PYTHONPATH": str(registry.ROOT)}
    environment["PATH"] = str(Path(sys.executable).parent) + os.pathsep + environment.get("PATH", "")    # fusion starts a compiler from there
    if MODES[job["mode"]].run != "pytorch":
        environment["OMP_NUM_THREADS"] = "1"
    scratch = tempfile.mkdtemp(dir=folder)                    # the compiler's trace files stay out of the course
    process = subprocess.Popen(
        [sys.executable, "-m", "course.bench.layer", json.dumps({**job, "values": values_file(job, folder)})],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=scratch, env=environment, start_new_session=os.name == "posix",
    )
    empty = Measured(job["mode"], job["piece"], job["passes"])
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        stop(process)
        return replace(empty, error=f"not done after {limit} s")
    except BaseException:
        stop(process)
        raise
    if process.returncode:
        said = [line.strip() for line in err.splitlines() if line.strip() and set(line.strip()) != {"-"}]
        return replace(empty, error=(said[-1][:160] if said else f"the process ended with code {process.returncode}"))
    line = next((line for line in reversed(out.splitlines()) if line.startswith("{")), None)
    if line is None:
        return replace(empty, error="the process ended without figures")
    found = json.loads(line)
    return replace(empty, **{**found, "operators": [Operator(*row) for row in found.get("operators", [])]})


def stop(process):
    """End a candidate and the compilers that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()
    except ProcessLookupError:
        pass
    process.wait()


def values_file(job, folder):
    mode = job["mode"].replace("+", "plus-")
    return str(Path(folder) / f"{mode}-{job['piece']}-{job['passes']}.npz")


def compare(measured, job, folder, limit):
    """Fill in how far the values and gradients are from those of the course's own layer in PyTorch."""
    import numpy as np

    turned = MODES[job["mode"]].form.get("positions", "learned") != "learned"
    base = {**job, "mode": "pytorch-rope-table" if turned else "pytorch", "seconds": 0, "profile": False}
    if not Path(values_file(base, folder)).exists():
        failed = in_own_process(base, folder, limit).error
        if failed:
            return
    mine, right = np.load(values_file(job, folder)), np.load(values_file(base, folder))
    gaps = {name: float(np.abs(mine[name] - right[name]).max() / max(np.abs(right[name]).max(), 1e-30)) for name in right.files}
    measured.output_gap = gaps.pop("output")
    measured.gradient_gap = max(gaps.values(), default=math.nan)


# --- what is shown -------------------------------------------------------------------------------------


def report(found, size):
    """Lines of text for a list of Measured: a table for each piece and pass, a waterfall where its modes are there, operators."""
    lines = [*dict.fromkeys(m.banner for m in found if m.banner)]
    for which, p in dict.fromkeys((m.piece, m.passes) for m in found):
        rows = [m for m in found if (m.piece, m.passes) == (which, p)]
        s = SIZES[size]
        words = "forward and backward" if p == "both" else "forward"
        lines += ["", f"{which}, {words}, {size}: {s['n_embd']} wide, {s['n_head']} heads, T {s['n_ctx']}, batch {s['batch']}", *table(rows, size)]
        lines += waterfall_lines(rows)
        for m in rows:
            lines += operator_lines(m)
    return "\n".join(lines)


def table(rows, size):
    good = [m for m in rows if not m.error]
    width = max(len(m.mode) for m in rows)
    base = next((m.median for m in good if m.mode == "pytorch"), good[0].median if good else 1.0)
    lines = [f"{'mode':{width}}  median ms      quartiles ms   ratio  tokens/s  of peak  first s  memory MB  values, gradients off by"]
    for m in rows:
        if m.error:
            lines.append(f"{m.mode:{width}}  failed: {m.error}")
            continue
        low, high = m.quartiles
        work = flops(m.piece, m.passes, size)
        share = f"{100 * work / m.median / m.peak:6.0f}%" if work and m.peak else f"{'-':>7}"
        off = ", ".join("-" if math.isnan(gap) else f"{gap:.0e}" for gap in (m.output_gap, m.gradient_gap))
        lines.append(
            f"{m.mode:{width}}  {1e3 * m.median:9.2f}  {1e3 * low:7.2f} ... {1e3 * high:7.2f}  {m.median / base:6.2f}  {tokens(size) / m.median:8,.0f}  {share}"
            f"  {m.first:7.1f}  {m.memory:9.0f}  {off}{'  WRONG' if m.wrong else ''}"
        )
    return lines


def waterfall(rows):
    """[(words, mode, seconds before, seconds after)] of the changes from the naive port on; [] if fewer than two of its modes are there.

    Where a mode was not measured, failed or is wrong, its change is part of the next. Each starts where the one before ended, so that the differences add up to the whole, and the ratios multiply to it.
    """
    by_mode = {m.mode: m for m in rows if not m.error and not m.wrong}
    way = [name for name in GROUPS["waterfall"] if name != "pytorch"]
    if "fast" in by_mode and way[-1] not in by_mode:
        way[-1] = "fast"                                      # the same changes, in the layers of lesson 17
    changes, before, skipped = [], None, []
    for name in way:
        words = MODES["+asleep" if name == "fast" else name].words
        if name not in by_mode:
            skipped += [words] if before else []
            continue
        if before:
            several = f"{name}: {len(skipped) + 1} changes, to {words}"
            changes.append((several if skipped else words, name, by_mode[before].median, by_mode[name].median))
        before, skipped = name, []
    return changes


def waterfall_lines(rows):
    changes = waterfall(rows)
    if not changes:
        return []
    width = max(len("each change on top of those above"), *(len(words) for words, *_ in changes))
    whole = changes[0][2]
    lines = ["", f"{'each change on top of those above':{width}}      ms     gain ms   times faster   in all"]
    for words, _, before, after in changes:
        lines.append(f"{words:{width}}  {1e3 * after:8.2f}  {1e3 * (before - after):8.2f}   {before / after:12.2f}  {whole / after:7.2f}")
    gain, product = sum(b - a for *_, b, a in changes), math.prod(b / a for *_, b, a in changes)
    lines.append(f"{'the whole':{width}}  {1e3 * changes[-1][3]:8.2f}  {1e3 * gain:8.2f}   {product:12.2f}  {whole / changes[-1][3]:7.2f}")
    return lines


def operator_lines(m, most=12):
    if not m.operators:
        return []
    total = sum(o.milliseconds for o in m.operators)
    rows = sorted(m.operators, key=lambda o: -o.milliseconds)[:most]
    lines = ["", f"{m.mode}: operators of ten calls, by time", f"{'operator':40} calls        ms  share"]
    return lines + [f"{o.name[:40]:40} {o.calls:5}  {o.milliseconds:8.2f}  {o.milliseconds / total:5.0%}" for o in rows]


def draw(found, size):
    """A figure of the first piece that was measured: medians as bars (the waterfall falling where its modes are there), and the roofline's one point for each candidate."""
    from course import show

    first = next((m for m in found if not m.error), found[0])
    which, p = first.piece, first.passes
    rows = [m for m in found if not m.error and (m.piece, m.passes) == (which, p)]
    if not rows:
        raise ValueError("There is nothing to draw: every candidate failed.")
    fig, (left, right) = show.figure(width=11, height=1.6 + 0.3 * len(rows), columns=2)
    draw_medians(left, rows)
    draw_shares(right, rows, size)
    left.set_title(f"{which}, {'forward and backward' if p == 'both' else 'forward'}, {size}")
    return fig


def draw_medians(axes, rows):
    from course import show

    before = {name: 1e3 * seconds for _, name, seconds, _ in waterfall(rows)}
    names, ends = [m.mode for m in rows][::-1], [1e3 * m.median for m in rows][::-1]
    begins = [before.get(name, 0.0) for name in names]
    axes.barh(names, ends, color=[show.ORANGE if name.startswith("pytorch") else show.BLUE for name in names])
    for name, begin, end in zip(names, begins, ends):
        if begin > end:
            axes.barh(name, begin - end, left=end, color=show.GREY, alpha=0.35)                  # what this change has taken away
        axes.annotate(f" {end:,.0f}" if end >= 100 else f" {end:.3g}", (max(begin, end), name), va="center", fontsize=8)
    base = next((1e3 * m.median for m in rows if m.mode == "pytorch"), None)
    if base:
        axes.axvline(base, color=show.ORANGE, linewidth=1)
    axes.set(xlabel="ms, median (grey: what the change took away)")
    axes.margins(x=0.12)
    if max(ends) > 8 * min(ends):                             # on a log scale a bar has no natural foot: a little below the shortest
        axes.set(xscale="log", xlim=(min(ends) / 2.5, 2.2 * max(ends)))
    axes.grid(axis="y", visible=False)


def draw_shares(axes, rows, size):
    """Speed of each candidate under the roof that its own process measured with one large product."""
    from course import show

    names = [m.mode for m in rows][::-1]
    peaks = [m.peak / 1e9 for m in rows][::-1]
    speeds = [flops(m.piece, m.passes, size) / m.median / 1e9 for m in rows][::-1]
    axes.barh(names, peaks, color=show.GREY, alpha=0.35, label="one large product")
    axes.barh(names, speeds, color=show.BLUE, height=0.5, label="the products of the layer")
    for name, speed, peak in zip(names, speeds, peaks):
        axes.annotate(f" {speed / peak:.0%}" if peak else "", (peak, name), va="center", fontsize=8)
    axes.set(xlabel="10⁹ floating point operations a second", title="Share of the matmul peak")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.7 / (0.3 * len(rows) + 0.6)), ncols=2, frameon=False, fontsize=8)
    axes.margins(x=0.12)
    axes.grid(axis="y", visible=False)


# --- the shell -----------------------------------------------------------------------------------------


def help_text():
    """The modes and groups, for --help."""
    width = max(map(len, MODES))
    lines = [f"  {name:{width}}  {mode.words}" for name, mode in MODES.items()]
    groups = [f"  {name:{width}}  {' '.join(members) if name != 'all' else 'all of them'}" for name, members in GROUPS.items()]
    return "modes of bench layer:\n" + "\n".join(lines) + "\ngroups of modes:\n" + "\n".join(groups)


def add_options(command):
    """The options of `python -m course bench layer`, on the parser of bench."""
    import argparse

    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = help_text()
    group = command.add_argument_group("bench layer", "one layer, a process for each candidate")
    group.add_argument("--size", choices=SIZES, default="small", help="of the layer (default small; gpt2 is 768 wide, 12 heads, T 256, batch 2)")
    group.add_argument("--modes", default="run", metavar="A,B", help="modes and groups of modes, listed below (default run)")
    group.add_argument("--pieces", default="layer", metavar="A,B", help=f"of {', '.join(PIECES)}, or all (default layer)")
    group.add_argument("--passes", default="both", metavar="A,B", help="forward, or both for forward and backward (default both)")
    group.add_argument("--seconds", type=float, default=10.0, help="repeats of each candidate (default 10)")
    group.add_argument("--forms-run", choices=RUNS, default=None, help="how fast, form-..., rope-... and +... are run (default fusion)")
    group.add_argument("--profile", action="store_true", help="also a table of operators for each candidate")
    group.add_argument("--plot", metavar="FILE", help="draw the first piece: medians, and the share of the matmul peak")


def shell(options):
    """`python -m course bench layer`: the exit code. What was measured before Ctrl-C is shown and written all the same."""
    pieces = list(PIECES) if options.pieces == "all" else words_of(options.pieces)
    for path in filter(None, (options.json, options.plot)):
        if not Path(path).resolve().parent.is_dir():
            raise ValueError(f"{path} cannot be written: there is no folder {Path(path).resolve().parent}.")
        if Path(path).is_dir():
            raise ValueError(f"{path} cannot be written: it is a folder.")
    if options.plot and Path(options.plot).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--plot {options.plot}: the name must end in .png, .svg or .pdf.")
    found, code = [], 0
    try:
        measure(
            options.size, words_of(options.modes), pieces, words_of(options.passes), options.seconds, options.forms_run, options.profile,
            progress=lambda line: print(line, file=sys.stderr, flush=True), found=found,
        )
    except KeyboardInterrupt:
        print(f"interrupted: {'what follows was measured before' if found else 'nothing was measured before'}", file=sys.stderr)
        code = 130
    if found:
        print(report(found, options.size))
    if options.json and found:                                # an interrupt before the first candidate leaves an older file alone
        Path(options.json).write_text(json.dumps({"size": options.size, "measured": [written(m, options.size) for m in found]}, indent=1), encoding="utf-8")
    if options.plot and any(not m.error for m in found):
        import matplotlib

        matplotlib.use("Agg")
        draw(found, options.size).savefig(options.plot)
    if not code and all(m.error for m in found):
        code = 1
    return code


def written(m, size):
    """A Measured for a JSON file, which knows no nan."""
    return {**{k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(m).items()}, "flops": flops(m.piece, m.passes, size)}


def words_of(text):
    return [word for word in text.replace(",", " ").split()]


# --- the child: one candidate --------------------------------------------------------------------------


def arrays(size, which):
    """(input, weighting of the output): the same for every candidate."""
    import numpy as np

    s, random = SIZES[size], np.random.default_rng(0)
    shape = (s["batch"], s["n_ctx"])
    given = random.integers(0, s["vocab_size"], shape).astype(np.int32) if which == "embedding" else random.standard_normal((*shape, s["n_embd"])).astype(np.float32)
    return given, random.standard_normal((*shape, s["n_embd"])).astype(np.float32)


def weights(shapes):
    """name -> float32 array for name -> shape: matrices of 0.05, biases of 0.1, LayerNorm weights about 1."""
    import numpy as np

    random, found = np.random.default_rng(1), {}
    for name in sorted(shapes):
        drawn = random.standard_normal(shapes[name]).astype(np.float32)
        found[name] = 0.05 * drawn if drawn.ndim > 1 else 0.1 * drawn + float("ln_" in name and name.endswith("weight") or name == "weight")
    return found


def config_of(size):
    return SimpleNamespace(**SIZES[size])


def constructed(framework, which, size):
    """A piece as the lessons have it, the learner's own where there is one."""
    made = piece(f"{framework}.{CLASSES[which]}")
    return made(SIZES[size]["n_embd"]) if which == "layernorm" else made(config_of(size))


class PyTorch:
    """One candidate in PyTorch: call() runs it, values() gives output and gradients by name."""

    def __init__(self, job):
        import torch

        mode, which, size = MODES[job["mode"]], job["piece"], job["size"]
        self.both = job["passes"] == "both"
        if mode.code == "stock":
            from course.bench.stock import StockBlock

            self.module = StockBlock(config_of(size))
        else:
            self.module = constructed("pytorch", which, size)
        if mode.code == "form":
            turn(self.module.attn, mode.form["positions"], size)
        start = weights({name: tuple(p.shape) for name, p in self.module.named_parameters()})
        self.module.load_state_dict({name: torch.from_numpy(value) for name, value in start.items()}, strict=False)
        given, weighting = arrays(size, which)
        self.given, self.weighting = torch.from_numpy(given), torch.from_numpy(weighting)
        if which == "embedding":
            self.given = self.given.long()
        else:
            self.given.requires_grad_(self.both)

    def call(self):
        import torch

        if not self.both:
            with torch.no_grad():
                return self.module(self.given)
        self.given.grad = None
        for p in self.module.parameters():
            p.grad = None
        out = self.module(self.given)
        (out * self.weighting).sum().backward()
        return out

    def values(self):
        out = {"output": self.call().detach().numpy()}
        if self.both:
            grads = {"x": self.given, **dict(self.module.named_parameters())}
            out |= {name: p.grad.numpy() for name, p in grads.items() if p.grad is not None}
        return out

    def peak(self):
        import torch

        x = torch.full((PRODUCT, PRODUCT), 1 / PRODUCT)

        def chain():
            y = x
            for _ in range(PRODUCTS):
                y = x @ y
            return y

        return chain

    def operators(self):
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU]) as found:
            for _ in range(10):
                self.call()
        return [[e.key, e.count, e.self_cpu_time_total / 1e3] for e in found.key_averages()]


def turn(attention, positions, size):
    """Give the attention of a PyTorch block rotary positions: q and k are turned between the split into heads and the scores."""
    import types

    import torch

    rope_table, rotate = piece("pytorch.rope.rope_table"), piece("pytorch.rope.rotate")
    split_heads, merge_heads, scaled = (piece(f"pytorch.attention.{name}") for name in ("split_heads", "merge_heads", "attention"))
    s = SIZES[size]
    table = rope_table(s["n_ctx"], s["n_embd"] // s["n_head"])

    def forward(self, x):
        B, T, C = x.shape
        cos, sin = table if positions == "table" else rope_table(T, C // self.n_head)
        q, k, v = (split_heads(y, self.n_head) for y in self.c_attn(x).split(C, dim=-1))
        mask = torch.ones(T, T, dtype=torch.bool).tril()
        return self.c_proj(merge_heads(scaled(rotate(q, cos, sin), rotate(k, cos, sin), v, mask)))

    attention.forward = types.MethodType(forward, attention)


class MindSpore:
    """One candidate in MindSpore; the same methods."""

    def __init__(self, job):
        import mindspore as ms

        mode, which, size = MODES[job["mode"]], job["piece"], job["size"]
        run = how(job)
        self.both = job["passes"] == "both"
        self.graph = run != "eager"
        self.level = "O1" if run == "graph-o1" else "O0"
        self.fetch = None
        if mode.asleep and self.graph:
            from course.waiting import Fetch

            self.fetch = Fetch()
        self.cell = self.built(mode, which, size)
        self.names = [(p, readable(name)) for name, p in self.cell.parameters_and_names() if p.requires_grad]
        set_weights(self.names, SIZES[size]["n_embd"])
        given, weighting = arrays(size, which)
        flat = mode.code == "fast"                            # the fast layers work on (B * T, C)
        self.shape = weighting.shape
        self.given = ms.Tensor(given.reshape(-1, given.shape[-1]) if flat else given)
        self.weighting = ms.Tensor(weighting.reshape(-1, weighting.shape[-1]) if flat else weighting)
        self.run = self.compiled(which == "embedding")

    def built(self, mode, which, size):
        if mode.code == "form":
            from course.bench import forms

            return forms.block(config_of(size), forms.Form(**mode.form))
        if mode.code == "fast":
            made = piece(f"mindspore.{FAST[which]}")
            return made(SIZES[size]["n_embd"]) if which == "layernorm" else made(config_of(size))
        return constructed("mindspore", which, size)

    def compiled(self, ids):
        import mindspore as ms

        cell, weighting = self.cell, self.weighting

        def forward(x):
            return cell(x)

        def total(x):
            out = cell(x)
            return (out * weighting).sum(), out

        function = forward
        if self.both:
            function = ms.value_and_grad(total, None if ids else 0, weights=[p for p, _ in self.names], has_aux=True)
        return ms.jit(function, jit_level=self.level) if self.graph else function

    def call(self):
        """Run once, and wait until the output and the last gradient are there."""
        found = self.run(self.given)
        last = found
        while isinstance(last, tuple):                        # the gradient of x, of the first parameter where there is none
            last = last[-1][0] if isinstance(last[-1], tuple) else last[0]
        self.fetch(last) if self.fetch else last.asnumpy()
        return found

    def values(self):
        found = self.call()
        if not self.both:
            return {"output": found.asnumpy().reshape(self.shape)}
        (_, out), grads = found
        to_x, to_weights = grads if self.given.dtype.is_floating_point else (None, grads)
        named = {"output": out.asnumpy().reshape(self.shape)}
        if to_x is not None:
            named["x"] = to_x.asnumpy().reshape(self.shape)
        return named | joined({name: g.asnumpy() for (_, name), g in zip(self.names, to_weights)})

    def peak(self):
        import mindspore as ms
        import numpy as np

        x = ms.Tensor(np.full((PRODUCT, PRODUCT), 1 / PRODUCT, np.float32))

        def chain(x):
            y = x
            for _ in range(PRODUCTS):
                y = x @ y
            return y

        function = ms.jit(chain)
        return lambda: function(x).asnumpy()

    def operators(self):
        """Ten calls through MindSpore's profiler: its table of operators on the CPU."""
        import csv

        from mindspore import profiler

        with tempfile.TemporaryDirectory() as folder:
            with profiler.profile(
                activities=[profiler.ProfilerActivity.CPU], on_trace_ready=profiler.tensorboard_trace_handler(folder),
            ) as running:
                for _ in range(10):
                    self.call()
                running.step()
            tables = sorted(Path(folder).rglob("cpu_op_type_info_*.csv"))
            rows = list(csv.reader(tables[0].open()))[1:] if tables else []
        return [[row[0], int(row[1]), float(row[3])] for row in rows]   # type, calls, ms of all calls


def how(job):
    """One of RUNS."""
    mode = MODES[job["mode"]]
    return job["run"] if job["run"] and mode.code in ("form", "fast") else mode.run


def start_mindspore(job):
    """All settings of the process, and one operation: threads and pools of the runtime are then there already."""
    import mindspore as ms
    import numpy as np

    ms.set_device(device.mindspore_target())
    if how(job) == "fusion":
        ms.set_context(enable_graph_kernel=True)
    if MODES[job["mode"]].blocking:
        ms.runtime.launch_blocking()
    (ms.Tensor(np.ones(1, np.float32)) + 1).asnumpy()


def readable(name):
    """The readable block's name of a parameter: one Cell has underscores for dots, three projections have numbers."""
    for part in ("ln_1", "ln_2", "attn_c_attn", "attn_c_proj", "mlp_c_fc", "mlp_c_proj"):
        if name.startswith(part + "_"):
            return f"{part.replace('attn_', 'attn.').replace('mlp_', 'mlp.')}.{name[len(part) + 1:]}"
    return name


def set_weights(names, n_embd):
    """The same start as PyTorch's; c_attn.0 to c_attn.2 are the thirds of c_attn."""
    import mindspore as ms

    shapes = {}
    for p, name in names:
        whole, third = third_of(name)
        shapes[whole] = (3 * n_embd, *p.shape[1:]) if third is not None else tuple(p.shape)
    start = weights(shapes)
    for p, name in names:
        whole, third = third_of(name)
        p.set_data(ms.Tensor(start[whole] if third is None else start[whole][third * n_embd : (third + 1) * n_embd]))


def in_this_process(size, change):
    """A form of the block in graph mode, without fusion, in this process: (its output, a function without arguments that runs both passes).

    Args:
        size: one of SIZES.
        change: what differs from the fast form, for example {"qkv": "three"}.

    Raises:
        ValueError: a size that is none of SIZES, a part or a word that Form does not know.
    """
    one_of("size", size, SIZES)
    import mindspore as ms

    from course.bench import forms

    for part in change:
        one_of("the part to change", part, forms.WORDS)
    cell = forms.block(config_of(size), forms.Form(**{**MODES["form-fast"].form, **change}))
    parameters = [(p, readable(name)) for name, p in cell.parameters_and_names() if p.requires_grad]
    set_weights(parameters, SIZES[size]["n_embd"])
    given, weighting = (ms.Tensor(a) for a in arrays(size, "layer"))

    def total(x):
        out = cell(x)
        return (out * weighting).sum(), out

    both = ms.jit(ms.value_and_grad(total, 0, weights=[p for p, _ in parameters], has_aux=True))

    def run():
        (_, out), (to_x, _) = both(given)
        to_x.asnumpy()
        return out.asnumpy()

    return run(), run


def third_of(name):
    before, mark, after = name.partition("c_attn.")
    return (f"{before}{mark}{after[2:]}", int(after[0])) if mark and after[:1].isdigit() else (name, None)


def joined(gradients):
    """The gradients by the readable block's names, those of three projections one below the other."""
    import numpy as np

    found = {}
    for name, g in gradients.items():
        found.setdefault(third_of(name)[0], []).append(g)
    return {name: np.concatenate(parts) for name, parts in found.items()}


PRODUCT, PRODUCTS = 1024, 6    # side of the square matrices, products in a chain


def peak_of(candidate):
    """Floating point operations a second of large products, the fastest of ten chains."""
    chain = candidate.peak()
    times = []
    for _ in range(11):
        started = time.perf_counter()
        chain()
        times.append(time.perf_counter() - started)
    return PRODUCTS * 2 * PRODUCT**3 / min(times)


def peak_memory():
    """MB that this process had at most. The counter of resource.getrusage would inherit the parent's."""
    try:
        text = Path("/proc/self/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0]) / 1024
    except (OSError, ValueError, IndexError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)


def main():
    import numpy as np

    job = json.loads(sys.argv[1])
    framework = PyTorch if MODES[job["mode"]].run == "pytorch" else MindSpore
    if framework is PyTorch:
        import torch  # noqa: F401
    else:
        start_mindspore(job)
    before = peak_memory()
    candidate = framework(job)
    started = time.perf_counter()
    candidate.call()
    first = time.perf_counter() - started
    np.savez(job["values"], **candidate.values())
    seconds, found = [], {}
    if job["seconds"]:
        fetch = getattr(candidate, "fetch", None)
        while fetch is not None and not fetch.settled:
            candidate.call()
        for _ in range(3):
            candidate.call()
        end = time.perf_counter() + job["seconds"]
        while len(seconds) < 5 or (time.perf_counter() < end and len(seconds) < 2000):
            started = time.perf_counter()
            candidate.call()
            seconds.append(time.perf_counter() - started)
        found = {"memory": peak_memory() - before, "operators": candidate.operators() if job["profile"] else []}
        found["peak"] = peak_of(candidate) if flops(job["piece"], job["passes"], job["size"]) else 0.0
    print(json.dumps({"seconds": seconds, "first": first, "banner": device.banner(), **found}))


if __name__ == "__main__":
    main()
