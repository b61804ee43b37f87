"""Which device each framework gets, and the line that says so beside every timing."""
import ctypes
import os
import platform
import sys
from importlib import metadata


def torch_device():
    """"cuda" where PyTorch sees one, else "cpu"."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def mindspore_target():
    """"Ascend" where MindSpore finds one, else "CPU". Never raises, and selects nothing.

    Where MindSpore cannot be imported it says "CPU" too; the import itself then tells the reason.
    """
    try:
        import mindspore as ms

        return "Ascend" if ms.device_context.ascend.is_available() else "CPU"
    except Exception:
        return "CPU"


def mindspore_problem():
    """Why MindSpore cannot be used here, in one sentence; empty if it can."""
    if not (3, 9) <= sys.version_info[:2] <= (3, 12):
        return f"MindSpore 2.10 runs on Python 3.9 to 3.12 and this is {platform.python_version()}: make the environment with Python 3.11 or 3.12."
    try:
        metadata.version("mindspore")
    except metadata.PackageNotFoundError:
        return "MindSpore is not installed here: pip install mindspore==2.10.0."
    if int(metadata.version("numpy").split(".")[0]) >= 2:
        return f"NumPy {metadata.version('numpy')} is installed and MindSpore 2.10 is built for NumPy 1, its first transpose would fail: pip install 'numpy<2'."
    os.environ.setdefault("GLOG_v", "4")
    try:
        import mindspore  # noqa: F401
    except Exception as error:
        return f"MindSpore is installed and does not import ({type(error).__name__}: {str(error).strip().splitlines()[0]})."
    return ""


def banner():
    """One line: the machine, threads and versions that the figures beside it come from.

    Only frameworks that are imported already are named.
    """
    words = [f"{os.cpu_count()} cores {platform.machine()}", f"Python {platform.python_version()}"]
    if "torch" in sys.modules:
        import torch

        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        words.append(f"torch {metadata.version('torch')} on {device} with {torch.get_num_threads()} threads")
    if "mindspore" in sys.modules:
        words.append(f"mindspore {metadata.version('mindspore')} on {mindspore_target()}")
    return ", ".join(words)


def keep_freed_memory():
    """Ask glibc's malloc to keep what is freed instead of returning it to the system.

    A training step frees its activations, and the next step asks for the same amount again. Where malloc has
    given the memory back, each page costs a fault when it is touched anew. Does nothing where there is no glibc.

    Returns:
        True if the setting was taken.
    """
    if sys.platform != "linux":
        return False
    trim_threshold, mmap_threshold, keep = -1, -3, 1 << 30    # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(trim_threshold, keep) and mallopt(mmap_threshold, keep))


def drain():
    """Let errors come up that MindSpore still holds back: a failed operation can be told again at the next one, which is right.

    One quiet operation is not enough (the error is told up to four times), three in a row are; launch_blocking does not help.
    """
    import mindspore as ms
    import numpy as np

    quiet = 0
    for _ in range(50):
        try:
            (ms.Tensor(np.ones(1, np.float32)) + 1).asnumpy()
            quiet += 1
        except Exception:
            quiet = 0
        if quiet == 3:
            return
