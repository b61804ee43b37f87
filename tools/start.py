"""Copy the lessons to work/ for a learner: outputs cleared, nothing of theirs overwritten.

    python tools/start.py             copy what is new and open JupyterLab on lesson 00
    python tools/start.py --no-lab    copy only
"""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def copy_lessons(source, target):
    """Copy each notebook that target does not have yet, without outputs.

    Returns:
        the names of the new ones.
    """
    target.mkdir(parents=True, exist_ok=True)
    new = []
    for path in sorted(source.glob("[0-9][0-9]_*.ipynb")):
        copy = target / path.name
        if copy.exists():
            continue
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell["outputs"], cell["execution_count"] = [], None
        copy.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        new.append(path.name)
    return new


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-lab", action="store_true", help="copy only")
    parser.add_argument("--work", type=Path, default=ROOT / "work", help="where to copy to")
    options = parser.parse_args()
    try:
        new = copy_lessons(ROOT / "notebooks", options.work)
    except OSError as error:
        sys.exit(f"The lessons cannot be copied to {options.work}: {error.strerror}.")
    print(f"{options.work.name}/: {len(new)} new lessons, your own files untouched.")
    if options.no_lab:
        return
    first = options.work / "00_start_here.ipynb"
    command = [sys.executable, "-m", "jupyter", "lab", str(first)]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    environment = {**os.environ, "GPT_TWICE_WORK": str(options.work.resolve())}
    print("Opening JupyterLab; stop it with Ctrl-C twice.")
    try:
        sys.exit(subprocess.call(command, env=environment))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
