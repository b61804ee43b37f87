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
