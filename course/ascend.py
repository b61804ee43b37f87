"""The course on an Ascend: one command that tries everything there and writes a report; and what a machine without one can tell.

Nothing in this file was run on an Ascend. What needs one is marked so in the report of a machine that has none.
"""
import contextlib
import csv
import io
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from course import answers, device, registry, show
from course.timing import Operator

# What belongs together. Sources: METADATA of the MindFormers wheels and MindSpore's run_check/_check_version.py.
PAIRS = [
    ("2.1.0", "2.11.0", "9.2.0", "26.2.RC1"),
    ("2.0.0", "2.10.0", "9.1.0", "26.1.0"),
    ("1.9.0", "2.9.0", "9.0.0", "26.0.0"),
    ("1.8.0", "2.7.2", "8.5.0", "25.5.0"),
    ("1.7.0", "2.7.1", "8.3.RC1", "25.3.RC1"),
    ("1.6.0", "2.7.0", "8.2.RC1", "25.2.0"),
    ("1.5.0", "2.6.0-rc1", "8.1.RC1", "25.0.RC1"),
    ("1.3.0", "2.4.0", "8.0.RC3", "24.1.RC3"),
    ("1.2.0", "2.3.0", "8.0.RC2", "24.1.RC2"),
]
PAIRS_HEADER = ("MindFormers", "MindSpore", "CANN", "driver and firmware")
NOT_RUN = "no Ascend here: not run"


def accepted_cann():
    """The CANN versions that the installed MindSpore accepts, as its own start-up check lists them."""
    from mindspore.run_check import _check_version

    return list(_check_version.AscendEnvChecker(None).version)


# --- the profiler --------------------------------------------------------------------------------------


def profile_table(function, steps=5):
    """Where the time of function() goes, by kind of operation.

    Returns:
        [timing.Operator] of one step, the longest first. On a CPU from the profiler's
        cpu_op_type_info_0.csv; on an Ascend from its op_statistic.csv, as documented (that branch was not run).
    """
    from mindspore.profiler import ProfilerActivity, profile, tensorboard_trace_handler

    on_ascend = device.mindspore_target() == "Ascend"
    activities = [ProfilerActivity.CPU, ProfilerActivity.NPU] if on_ascend else [ProfilerActivity.CPU]
    function()                                                # compiled before the profiler looks
    here = os.getcwd()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chdir(folder)
        try:
            with no_output(), profile(activities=activities, on_trace_ready=tensorboard_trace_handler(folder)) as profiler:
                for _ in range(steps):
                    function()
                    profiler.step()
            name = "op_statistic.csv" if on_ascend else "cpu_op_type_info_0.csv"
            found = sorted(Path(folder).rglob(name))
            if not found:
                raise RuntimeError(f"the profiler wrote no {name}.")
            rows = list(csv.DictReader(io.StringIO(found[0].read_text(encoding="utf-8"))))
        finally:
            os.chdir(here)
    if on_ascend:
        table = [Operator(r["OP Type"], float(r["Count"]) / steps, float(r["Total Time(us)"]) / 1e3 / steps) for r in rows]
    else:
        table = [Operator(r["op_type"], float(r["type_occurrences"]) / steps, float(r["total_compute_time"]) / steps) for r in rows]
    return sorted(table, key=lambda operator: -operator.milliseconds)


@contextlib.contextmanager
def no_output():
    """The profiler writes its progress, with paths, to the file descriptor and from a process of its own."""
    kept = [os.dup(1), os.dup(2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    sys.stdout.flush()
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for fd in (*kept, nowhere):
            os.close(fd)


# --- the checklist -------------------------------------------------------------------------------------
# Each part returns (ok, lines). A part that needs an Ascend returns (None, [NOT_RUN]) where there is none.


def versions():
    lines = [f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"]
    for name in ("mindspore", "mindformers", "numpy", "torch"):
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name}: not installed")
    problem = device.mindspore_problem()
    return not problem, lines + ([problem] if problem else [])


def probe():
    if device.mindspore_target() != "Ascend":
        return None, ["MindSpore finds no Ascend: the parts below run on the CPU", NOT_RUN]
    return job("probe")


def cann_version():
    """The version of CANN here, or None. Read where MindSpore reads it: compiler/version.info below $ASCEND_HOME_PATH."""
    home = os.environ.get("ASCEND_HOME_PATH")
    path = Path(home or "") / "compiler" / "version.info"
    if not home or not path.is_file():
        return None
    found = re.search(r"[Vv]ersion=\[?([\w.]+)", path.read_text(encoding="utf-8", errors="replace"))
    return found[1] if found else None


def pairing():
    installed = metadata.version("mindspore")
    row = next((r for r in PAIRS if r[1] == installed), None)
    lines = [f"MindSpore {installed} belongs with CANN {row[2]}, driver {row[3]}, MindFormers {row[0]}" if row else f"MindSpore {installed} is in no row of the table of pairs"]
    lines.append(f"CANN versions that this MindSpore accepts: {', '.join(accepted_cann())}")
    cann = cann_version()
    if cann is None:
        return None, [*lines, f"CANN: no version.info below ASCEND_HOME_PATH; {NOT_RUN}"]
    fits = ".".join(cann.split(".")[:2]) in accepted_cann()
    return fits, [*lines, f"CANN here: {cann}, {'accepted' if fits else 'NOT accepted: install one of those above'}"]


def flash_call():
    if device.mindspore_target() != "Ascend":
        return None, [f"ops.flash_attention_score: {NOT_RUN}", *job("flash_model")[1]]
    return job("flash_call")


def parity():
    return job("parity")


def profiler():
    return job("profiler")


def timings():
    from course import timing
    from course.bench import port

    found = port.compare("gpt.GPT", [{"ids": (4, 64), "below": 81}], {"vocab_size": 81, "n_ctx": 64, "n_layer": 2, "n_head": 4, "n_embd": 128}, seconds=2.0)
    lines = timing.report(found).splitlines()
    lines.append(f"first call in graph mode, with compiling: {found['MindSpore graph'].first:.2f} s")
    if device.mindspore_target() != "Ascend":
        lines.append(f"these are figures of a CPU; on an Ascend: {NOT_RUN}")
    return True, lines


def lesson(number):
    """nbval on the notebook of a lesson: every cell is run and compared with the stored outputs."""
    path = registry.ROOT / "notebooks" / f"{number}_{registry.LESSONS[number]}.ipynb"
    if not path.exists():
        return None, [f"{path.name} is not here: not run"]
    try:
        metadata.version("nbval")
    except metadata.PackageNotFoundError:
        return None, ["pytest and nbval are not installed: not run (pip install -r requirements-test.txt)"]
    with tempfile.TemporaryDirectory() as work:
        environment = {**os.environ, "GPT_TWICE_WORK": work, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        done = subprocess.run([sys.executable, "-m", "pytest", str(path), "--tb=short"], capture_output=True, text=True, cwd=registry.ROOT, env=environment)
    last = [line for line in done.stdout.splitlines() if re.search(r"passed|failed|error", line)][-1:] or ["pytest said nothing"]
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    return done.returncode == 0, [last[0].strip("= "), *failed[:10]]


PARTS = {
    "versions": (versions, "what is installed"),
    "device": (probe, "an Ascend, its name and one product on it"),
    "pairing": (pairing, "MindSpore, CANN and driver against the table"),
    "flash attention": (flash_call, "the operator itself against its documented semantics"),
    "parity": (parity, "logits, loss and gradients of the GPT against PyTorch, eager and graph"),
    "profiler": (profiler, "operations of a forward pass"),
    "timings": (timings, "forward and backward: PyTorch, eager, graph"),
}


def run(out, lessons=None, parts=None, fresh=False, say=print):
    """Work through the checklist, keep what is done in out/state.json, write out/report.md after each part.

    Args:
        out: folder of state and report.
        lessons: numbers of lessons, for example ["04", "12"]; None for all, [] for none.
        parts: names of the parts before the lessons; None for all, [] for none.
        fresh: forget what an earlier run did; otherwise parts that went well are not run again.

    Returns:
        True if no part failed. Parts that need an Ascend and found none do not count as failed.

    Raises:
        ValueError: no such lesson or part.
    """
    os.environ.setdefault("GLOG_v", "4")                      # or MindSpore says at each probe that there is no Ascend
    wanted = list(registry.LESSONS) if lessons is None else [f"{number.strip():0>2}" for number in lessons]
    parts = None if parts is None else [name.strip() for name in parts]
    for number in wanted:
        if number not in registry.LESSONS:
            raise ValueError(f"There is no lesson {number!r}; the lessons are {', '.join(registry.LESSONS)}.")
    for name in parts or []:
        if name not in PARTS:
            raise ValueError(f"There is no part {name!r}; the parts are {', '.join(PARTS)}.")
    parts = {name: function for name, (function, _) in PARTS.items() if parts is None or name in parts}
    parts |= {f"lesson {number}": lambda number=number: lesson(number) for number in wanted}
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    state = {} if fresh else read_state(out / "state.json")
    key = f"{metadata.version('mindspore')} on {device.mindspore_target()}"
    if state.get("machine") != key or "done" not in state:
        state = {"machine": key, "done": {}}
    for at, (name, function) in enumerate(parts.items(), 1):
        if state["done"].get(name, {}).get("ok"):
            say(f"[{at}/{len(parts)}] {name}: done before, {words(True)}")
            continue
        say(f"[{at}/{len(parts)}] {name} ...")
        begin = time.perf_counter()
        try:
            ok, lines = function()
        except Exception as error:
            ok, lines = False, [f"{type(error).__name__}: {first_line(error)}"]
        seconds = time.perf_counter() - begin
        state["done"][name] = {"ok": ok, "lines": lines, "seconds": round(seconds, 1)}
        answers.write(out / "state.json", json.dumps(state, indent=1))
        answers.write(out / "report.md", report(state, parts))
        say(f"    {words(ok)} in {seconds:.0f} s" + (f": {lines[0]}" if ok is False and lines else ""))
    answers.write(out / "report.md", report(state, parts))
    ends = [state["done"][name]["ok"] for name in parts]
    say(f"{len(parts)} parts: {ends.count(True)} ok, {ends.count(None)} not run or in part, {ends.count(False)} failed. The report is {out / 'report.md'}")
    return False not in ends


def words(ok):
    return {True: "ok", False: "FAILED", None: "not run, or in part"}[ok]


def first_line(error):
    return next((line.strip() for line in str(error).splitlines() if re.search("[a-z]", line)), "no message")[:300]


def read_state(path):
    if not path.exists():
        return {}
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(part, dict) for part in (state, state.get("done", {}), *state.get("done", {}).values())):
            raise ValueError
    except (AttributeError, ValueError):
        raise ValueError(f"{path} is damaged: delete it, or start anew with --fresh.") from None
    return state


def report(state, parts):
    lines = ["# The course on this machine", "", f"MindSpore {state['machine']}.", ""]
    for name in parts:
        done = state["done"].get(name)
        if done is None:
            lines += [f"## {name}: not run yet", ""]
            continue
        about = f" ({PARTS[name][1]})" if name in PARTS else ""
        lines += [f"## {name}: {words(done['ok'])}", "", f"{done['seconds']} s{about}", "", "```", *done["lines"], "```", ""]
    return "\n".join(lines)


# --- jobs in a process of their own: a device is chosen once in a process ------------------------------


def job(name):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        done = subprocess.run([sys.executable, "-m", "course.ascend", name], capture_output=True, text=True, cwd=folder, env={**os.environ, "GLOG_v": "4"})
    answer = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not answer:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:] or ["no message"]
        return False, [f"{name} ended with exit code {done.returncode}: {last[0][:300]}"]
    found = json.loads(answer[-1])
    return found["ok"], found["lines"]


def start():
    import mindspore as ms

    ms.set_device(device.mindspore_target())
    return ms


def run_probe():
    import numpy as np

    ms = start()
    name = ms.hal.get_device_name(0, "Ascend")
    a = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    off = np.abs(ms.ops.matmul(ms.Tensor(a), ms.Tensor(a)).asnumpy() - a @ a).max() / np.abs(a @ a).max()
    return bool(off < 1e-2), [f"device 0 is {name}, {ms.device_context.ascend.device_count()} in all", f"a product of 256 by 256 in float32 is off by {off:.1e} of its largest value"]


def flash_cases():
    """(words, arguments, shape, layout, what causal attention gives in float64) over layouts and lengths."""
    import numpy as np

    from course.exercise import piece

    ms = start()
    build, mask_of = piece("mindspore.ascend.flash_attention_arguments"), piece("mindspore.attention.causal_mask")
    random = np.random.default_rng(0)
    for T_q, T_k, n_head, D in [(64, 64, 4, 64), (17, 40, 2, 32), (1, 33, 12, 64), (128, 128, 1, 128)]:
        arrays = [random.standard_normal((2, n_head, T, D)).astype(np.float16) for T in (T_q, T_k, T_k)]
        q, k, v = (x.astype(np.float64) for x in arrays)
        scores = np.where(mask_of(T_q, T_k).asnumpy(), q @ k.swapaxes(-2, -1) / D**0.5, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        want = weights / weights.sum(axis=-1, keepdims=True) @ v
        for layout in ("BNSD", "BSND", "BSH", "SBH", "TND"):
            yield f"{layout} {T_q} queries {T_k} keys {n_head} heads of {D}", build(*map(ms.Tensor, arrays), layout=layout), want.shape, layout, want


def run_flash(call):
    import numpy as np

    from course import flash
    from course.exercise import piece

    back = piece("mindspore.ascend.from_layout")
    lines, ok = [], True
    for words_, arguments, shape, layout, want in flash_cases():
        off = np.abs(flash.numbers(back(call(**arguments), layout, shape)) - want).max()
        ok = ok and off < 4e-3
        lines.append(f"{words_}: largest difference from attention in float64 {off:.1e}")
    return bool(ok), lines


def run_flash_model():
    from course import flash

    ok, lines = run_flash(flash.flash_attention_score)
    return ok, [f"the model of its documentation, {len(lines)} calls:", *lines]


def run_flash_call():
    from mindspore import ops

    return run_flash(ops.flash_attention_score)


def run_parity():
    from types import SimpleNamespace

    import numpy as np
    import torch

    from course import parity as compare
    from course.exercise import piece

    ms = start()
    config = SimpleNamespace(vocab_size=81, n_ctx=32, n_layer=2, n_head=4, n_embd=64)
    torch.manual_seed(0)
    theirs, mine = piece("pytorch.gpt.GPT")(config), piece("mindspore.gpt.GPT")(config)
    compare.carry(theirs, mine)
    x, y = np.random.default_rng(0).integers(0, 81, (2, 4, 32))
    logits, loss = theirs(torch.from_numpy(x), torch.from_numpy(y))
    loss.backward()
    wanted = dict((name, p.grad) for name, p in theirs.named_parameters())
    ids, targets = ms.Tensor(x, ms.int32), ms.Tensor(y, ms.int32)
    weights = mine.trainable_params()

    def loss_of(ids, targets):
        logits, loss = mine(ids, targets)
        return loss, logits

    both = ms.value_and_grad(loss_of, None, weights, has_aux=True)
    lines, ok = [], True
    for mode, function in (("eager", both), ("graph", ms.jit(both))):
        (my_loss, my_logits), grads = function(ids, targets)
        off = compare.largest_difference(my_logits, logits), compare.largest_difference(my_loss, loss)
        worst = max(compare.relative_difference(g, wanted[p.name]) for p, g in zip(weights, grads))
        ok = ok and off[0] < 1e-4 and off[1] < 1e-4 and worst < 1e-3
        lines.append(f"{mode}: logits off by {off[0]:.1e}, loss by {off[1]:.1e}, gradients by {worst:.1e} of their largest")
    if device.mindspore_target() != "Ascend":
        lines.append(f"on the CPU; on an Ascend: {NOT_RUN}")
    return bool(ok), lines


def run_profiler():
    from types import SimpleNamespace

    import numpy as np

    from course.exercise import piece

    ms = start()
    model = piece("mindspore.gpt.GPT")(SimpleNamespace(vocab_size=81, n_ctx=64, n_layer=2, n_head=4, n_embd=128))
    ids = ms.Tensor(np.zeros((4, 64), np.int32))

    def forward(ids):
        return model(ids)[0]

    forward = ms.jit(forward)
    rows = profile_table(lambda: forward(ids).asnumpy())
    total = sum(o.milliseconds for o in rows)
    lines = [
        f"{o.name:24} {o.calls:6.1f} calls a step  {o.milliseconds:8.3f} ms a step  {o.milliseconds / total:6.1%}" for o in rows[:12]
    ]
    if device.mindspore_target() != "Ascend":
        lines.append(f"operations on the CPU; on an Ascend: {NOT_RUN}")
    return True, lines


JOBS = {"probe": run_probe, "flash_model": run_flash_model, "flash_call": run_flash_call, "parity": run_parity, "profiler": run_profiler}


def print_pairs():
    """The table of what belongs together."""
    show.table(PAIRS, PAIRS_HEADER)


if __name__ == "__main__":
    ok, lines = JOBS[sys.argv[1]]()
    print(json.dumps({"ok": ok, "lines": lines}))
