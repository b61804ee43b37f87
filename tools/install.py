"""Make the course's environment: a virtual environment with the pinned packages and the course itself.

    python tools/install.py            for learners
    python tools/install.py --test     with what the tests need
    python tools/install.py --grading  with nbgrader, for teachers (--test has it too)

Needs Python 3.11 or 3.12 and nothing else. A second call does nothing if the pins have not changed.
"""
import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CPU_TORCH = "https://download.pytorch.org/whl/cpu"
NEEDED_GB = 6


def refuse(sentence):
    sys.exit(f"Cannot install: {sentence}")


def check_machine(venv):
    version = "{}.{}".format(*sys.version_info)
    if not (3, 11) <= sys.version_info[:2] <= (3, 12):
        refuse(f"this is Python {version}, and MindSpore 2.10 with this course's pins runs on 3.11 and 3.12. Install one of them, then: make PYTHON=python3.12 lab (without make: python3.12 tools/install.py)")
    if sys.maxsize < 2**32:
        refuse("this is a 32-bit Python, and neither framework has a wheel for it. Install a 64-bit one.")
    try:
        import ensurepip  # noqa: F401
        import venv as _  # noqa: F401
    except ImportError:
        refuse(f"this Python has no venv module. On Debian and Ubuntu: apt install python{version}-venv")
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < NEEDED_GB and not (venv / ".ready").exists():
        refuse(f"{free:.1f} GB are free on this disk and about {NEEDED_GB} GB are needed. Make room and run it again.")


def fingerprint(files):
    return hashlib.sha256(b"".join((ROOT / f).read_bytes() for f in files)).hexdigest()


def torch_pin():
    return next(line for line in (ROOT / "requirements.txt").read_text().splitlines() if line.startswith("torch=="))


def run(command):
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        text = done.stderr.strip()
        if "No space left" in text:
            refuse("the disk is full. Make room and run it again, it goes on from there.")
        if "No matching distribution" in text:
            refuse(f"a package has no file for this Python and machine:\n{text.splitlines()[-1]}")
        if "Connection" in text or "resolution" in text:
            refuse(f"the package index cannot be reached:\n{text.splitlines()[-1]}")
        refuse(f"this step failed: {' '.join(map(str, command))}\n{text[-2000:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", action="store_true", help="also what the tests need")
    parser.add_argument("--grading", action="store_true", help="also nbgrader")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="where (default .venv)")
    options = parser.parse_args()
    venv = options.venv.absolute()
    check_machine(venv)
    kind = "test" if options.test else "grading" if options.grading else ""
    more = {"": [], "grading": ["requirements-grading.txt"], "test": ["requirements-grading.txt", "requirements-test.txt"]}[kind]
    files = ["requirements.txt", "pyproject.toml", *more]
    stamp = venv / (f".ready-{kind}" if kind else ".ready")
    if stamp.exists() and stamp.read_text() == fingerprint(files):
        return
    python = venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not python.exists():
        print(f"Making the environment in {options.venv} ...", flush=True)
        run([sys.executable, "-m", "venv", str(venv)])
    index = os.environ.get("TORCH_INDEX", CPU_TORCH if sys.platform == "linux" and "CI" not in os.environ else "")
    if index:
        print("Installing PyTorch for the CPU ...", flush=True)
        run([*pip, "--no-deps", "--extra-index-url", index, torch_pin()])   # by itself: the other packages do not ask this index
    pins = f"requirements-{kind}.txt" if kind else "requirements.txt"
    print(f"Installing the packages of {pins}: about 4 GB on disk, some minutes the first time ...", flush=True)
    run([*pip, "-r", str(ROOT / pins)])
    run([*pip, "--no-deps", "-e", str(ROOT)])
    stamp.write_text(fingerprint(files))
    if kind:
        (venv / ".ready").write_text(fingerprint(files[:2]))
    print("The environment is ready.", flush=True)


if __name__ == "__main__":
    main()
