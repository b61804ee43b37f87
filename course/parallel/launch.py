"""Start a program on several processes of this machine, wait for it, and say in a sentence how it went.

The processes are started by torchrun or msrun, as on a cluster. What is added here: a free port for each run, messages on the loopback
address, a limit on the time, and that no process is left over, whatever happens. (The meeting point of torchrun itself listens on all
addresses of the machine while the run lasts: it has no option for that.)
"""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from course import registry
from course.parallel import job, worker

PROGRAMS = {
    "data_parallel_pytorch": "torchrun",
    "data_parallel_mindspore": "msrun",
    "pipeline": "torchrun",
}
DIED = [
    re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+)"),            # torchrun
    re.compile(r"Worker process (?P<pid>\d+) exit with exception\. Error code: (?P<code>-?\d+)"),   # msrun
]


class RunFailed(RuntimeError):
    """A run that did not end well. rank: the one that ended it, None if unknown; log: what the processes wrote on stderr."""

    def __init__(self, sentence, rank=None, log=""):
        super().__init__(sentence)
        self.rank = rank
        self.log = log


def run(program, *arguments, processes=2, seconds=60):
    """Run course.parallel.<program> on several processes.

    Args:
        program: a name of PROGRAMS.
        arguments: of the program, as on the command line.
        processes: how many ranks.
        seconds: after this time the run is ended.

    Returns:
        The ranks' reports, a list of dicts in the order of the ranks.

    Raises:
        RunFailed: a rank died, stopped with an error, or the time was up. No process of the run is left then either.
    """
    if program not in PROGRAMS:
        raise ValueError(f"There is no program {program!r}: {', '.join(PROGRAMS)}.")
    if processes < 1:
        raise ValueError(f"{processes} processes cannot run: at least 1 is needed.")
    if not seconds > 0:
        raise ValueError(f"The limit is {seconds} seconds and should be above 0; most runs take 5 to 60.")
    name = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folder = Path(folder)
        with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
            started = subprocess.Popen(
                command(program, arguments, processes, folder, seconds), cwd=folder, env=environment(folder, name, seconds),
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            )
            try:
                ended = wait(started, folder, time.monotonic() + seconds)
            finally:
                end(started, name)
        log = (folder / "err").read_text(errors="replace") + "".join(p.read_text(errors="replace") for p in sorted(folder.glob("log/worker_*.log")))
        reports = [folder / f"rank{rank}.json" for rank in range(processes)]
        if ended and all(path.exists() for path in reports):
            return [json.loads(path.read_text()) for path in reports]
        raise failure(folder, processes, ended, seconds, log)


def add_options(command):
    """The options of python -m course parallel."""
    command.description = (
        "Start a program of lesson 20 on several processes: torchrun or msrun, a free port, the loopback address, a limit on the time.\n"
        "For example: python -m course parallel data --processes 2 --steps 20 --out run"
    )
    command.add_argument("what", choices=["data", "pipeline"], help="data: each process its rows of the batch; pipeline: each its blocks of the model")
    command.add_argument("--framework", choices=["pytorch", "mindspore"], default="pytorch", help="the pipeline runs in PyTorch only (default pytorch)")
    command.add_argument("--processes", type=int, default=2, help="how many (default 2)")
    command.add_argument("--seconds", type=float, default=600, help="after this time the run is ended (default 600)")
    job.add_options(command)


def shell(options):
    """python -m course parallel: the ranks' reports as lines; the exit code."""
    if options.what == "pipeline" and options.framework == "mindspore":
        raise ValueError("MindSpore has no Send and Receive for a CPU: the pipeline runs with --framework pytorch.")
    useless = list(job.NOT_THE_PIPELINE if options.what == "pipeline" else job.ONLY_THE_PIPELINE)
    if options.framework == "mindspore":
        useless.append("ddp")
    for name in useless:
        if getattr(options, name) not in (None, False):
            raise ValueError(f"--{name.replace('_', '-')} has no effect on {options.what} with --framework {options.framework}: leave it out.")
    out = options.out
    before = checkpoints(out)
    if out is not None:
        options.out = str(Path(out).resolve())                # the program runs in a folder that is thrown away
    program = "pipeline" if options.what == "pipeline" else f"data_parallel_{options.framework}"
    try:
        reports = run(program, *job.given_options(options), processes=options.processes, seconds=options.seconds)
    except RunFailed as failed:
        kept = checkpoints(out) != before                     # by this run
        without = " and without --kill" if options.kill else ""
        print(failed, *[f"The last checkpoint is whole, the same command with --resume{without} goes on from {out}."] * kept, file=sys.stderr)
        return 1
    for report in reports:
        print(f"rank {report['rank']} over {report['backend']}: {said(report)}")
    return 0


def checkpoints(folder):
    """path -> time of its last change."""
    return {path: path.stat().st_mtime_ns for path in Path(folder).glob("checkpoint.*")} if folder else {}


def said(report):
    if "runs" in report:
        return ", ".join(f"{m} micro-batches {1e3 * one['seconds']:.0f} ms" for m, one in report["runs"].items())
    if not report["losses"]:
        return "no update"
    return f"updates {report['first']} to {report['first'] + len(report['losses'])}, loss {report['losses'][0]:.3f} to {report['losses'][-1]:.3f}"


def command(program, arguments, processes, folder, seconds):
    arguments = [str(a) for a in arguments]
    if PROGRAMS[program] == "torchrun":
        return [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--max-restarts", "0",
            "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", "run", "--local-addr", "127.0.0.1",   # port 0: a free one
            "-m", f"course.parallel.{program}", *arguments,
        ]
    msrun = shutil.which("msrun", path=str(Path(sys.executable).parent)) or "msrun"
    return [
        msrun, "--worker_num", str(processes), "--local_worker_num", str(processes), "--master_addr", "127.0.0.1", "--master_port", str(free_port()),
        "--join", "True", "--log_dir", str(folder / "log"), "--cluster_time_out", str(int(min(seconds, 86_400)) + 60), str(Path(__file__).with_name(f"{program}.py")), *arguments,
    ]


def environment(folder, name, seconds):
    kept = {**os.environ, "OMP_NUM_THREADS": "1", "GLOG_v": "3", "PYTHONUNBUFFERED": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    kept["PYTHONPATH"] = os.pathsep.join([str(registry.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ.get("PATH", "")   # msrun starts "python"
    kept |= {worker.REPORTS: str(folder), worker.PARENT: str(os.getpid()), worker.SECONDS: str(seconds + 5), worker.RUN: name}
    if sys.platform == "linux":
        kept["GLOO_SOCKET_IFNAME"] = "lo"
    for other in ("RANK", "RANK_ID", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "MS_ROLE", "MS_WORKER_NUM", "RANK_TABLE_FILE"):
        kept.pop(other, None)
    return kept


def free_port():
    """A port below those that a system gives to outgoing connections: none of these takes it until msrun listens, some seconds later."""
    for port in random.Random().sample(range(20_000, 32_000), 100):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("No free port was found between 20000 and 32000.")


def wait(started, folder, deadline):
    """True if the launcher ended by itself before the deadline. A death that it has told is enough: msrun would wait on for half a minute."""
    while time.monotonic() < deadline:
        if started.poll() is not None:
            return True
        if DIED[1].search((folder / "err").read_text(errors="replace")):
            return True
        time.sleep(0.1)
    return False


def end(started, name):
    """End the launcher and everything that it started; torchrun and msrun give each rank a session of its own."""
    if started.poll() is None:
        started.terminate()                                   # torchrun then ends its ranks itself
        try:
            started.wait(3)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(started.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    patience = time.monotonic() + 20                          # a process that is killed may take a moment to be gone
    while (pids := left_over(name)) and time.monotonic() < patience:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    started.wait()


def left_over(name):
    """Processes that inherited the name of the run. Empty where there is no /proc: each rank then ends itself (worker.watch)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{worker.RUN}={name}".encode() in path.read_bytes().split(b"\0") and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def failure(folder, processes, ended, seconds, log):
    """RunFailed with the likeliest cause: a rank that was killed, else one that stopped with an error of its own, else the time."""
    pids = {int(path.read_text()): int(path.stem[4:]) for path in folder.glob("rank*.pid")}
    errors = {int(path.stem[4:]): path.read_text() for path in sorted(folder.glob("rank*.error"), key=lambda p: p.stat().st_mtime)}
    told = [(int(m["rank"]) if "rank" in m.groupdict() else pids.get(int(m["pid"])), int(m["code"])) for pattern in DIED for m in pattern.finditer(log)]

    def who(rank):
        return f"Rank {rank} of {processes}" if rank is not None else f"One of {processes} ranks"

    for rank, code in told:
        if code < 0 and rank not in errors and code != -signal.SIGTERM:
            return RunFailed(f"{who(rank)} died ({signal.Signals(-code).name}); the other ranks were ended.", rank, log)
    own = {rank: text for rank, text in errors.items() if not any(words in text for words in worker.LOST)} or errors
    for rank, text in own.items():
        return RunFailed(f"{who(rank)} stopped: {text}", rank, log)
    if not ended:
        return RunFailed(f"The run was not over after {seconds} seconds and was ended.", None, log)
    for rank, code in told:
        refused = re.search(r"\.py: error: (.*)", log)         # what argparse says
        return RunFailed(refused[1] if refused else f"{who(rank)} ended with exit code {code}.", rank, log)
    last = [line for line in log.splitlines() if line.strip()]
    return RunFailed(f"The run did not start: {last[-1] if last else 'nothing was said'}", None, log)
