"""What each of several processes does beside its work: say who it is, hand in a report, and end when it should."""
import json
import os
import sys
import threading
import time
from importlib import util
from pathlib import Path

REPORTS = "GPT_TWICE_REPORTS"     # folder for pids, reports and errors; set by course.parallel.launch
PARENT = "GPT_TWICE_PARENT"       # process that waits for this run
SECONDS = "GPT_TWICE_SECONDS"     # how long the run may take
RUN = "GPT_TWICE_RUN"             # a name of the run, which every process of it inherits
LOST = ("Connection reset", "Connection closed", "Connection refused", "Broken pipe", "Timed out", "timed out", "timeout", "Timeout", "failed to recv")   # how gloo tells that a peer is gone


def rank_and_size():
    """(rank, number of ranks) as torchrun or msrun tells them; (0, 1) for a process that was started by itself."""
    if "MS_WORKER_NUM" in os.environ:
        return int(os.environ.get("RANK_ID", 0)), int(os.environ["MS_WORKER_NUM"])
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def pytorch_backend():
    """(backend of torch.distributed, device of this rank): hccl on an Ascend, nccl on a GPU, gloo on a CPU.

    Only gloo was run; the others are what their documentation names.
    """
    from course import device

    local = int(os.environ.get("LOCAL_RANK", 0))
    if util.find_spec("torch_npu"):
        import torch
        import torch_npu  # noqa: F401

        if torch.npu.is_available():
            torch.npu.set_device(local)
            return "hccl", f"npu:{local}"
    if device.torch_device() == "cuda":
        import torch

        torch.cuda.set_device(local)
        return "nccl", f"cuda:{local}"
    return "gloo", "cpu"


def watch():
    """A thread that ends this process when nobody waits for it any more, or when the time is up."""
    parent, began, end = int(os.environ.get(PARENT, 0)), os.getppid(), time.monotonic() + float(os.environ.get(SECONDS, "inf"))

    def look():
        while True:
            time.sleep(0.5)
            if os.getppid() != began or (parent and not alive(parent)) or time.monotonic() > end:
                os._exit(4)

    threading.Thread(target=look, daemon=True).start()


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def run(work):
    """Call work() and hand in its report, a dict: to the launcher's folder, or as a line of JSON where there is none.

    An error is handed in as one sentence. A rank that has lost another one waits for the launcher to end it, which first sees who died
    first; on a busy machine this takes a while.
    """
    watch()
    rank, _ = rank_and_size()
    folder = os.environ.get(REPORTS)
    worker = os.environ.get("MS_ROLE") != "MS_SCHED"          # msrun starts the program once more, as its scheduler
    if folder and worker:
        write(Path(folder) / f"rank{rank}.pid", str(os.getpid()))
    try:
        report = work()
    except Exception as error:
        sentence = f"{type(error).__name__}: {next((line for line in str(error).split(chr(10)) if line.strip()), 'no message')}"
        if folder and worker:
            write(Path(folder) / f"rank{rank}.error", sentence)
        if any(words in str(error) for words in LOST):
            time.sleep(20)
        sys.exit(f"rank {rank}: {sentence}")
    if folder:
        write(Path(folder) / f"rank{rank}.json", json.dumps(report))
    else:
        print(json.dumps({"rank": rank, **report}), flush=True)


def write(path, text):
    unfinished = path.with_suffix(path.suffix + ".tmp")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)
