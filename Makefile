PYTHON ?= $(shell for p in python3.11 python3.12 python3 python; do $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && echo $$p && exit; done; echo python3)
VENV ?= .venv
JOBS ?= 2

.PHONY: help lab test notebooks bench

help:
	@echo "make lab        make the environment, copy the lessons to work/, open JupyterLab"
	@echo "make test       make the environment, run every check and every notebook"
	@echo "make notebooks  write notebooks/*.ipynb from notebooks/*.py (for authors)"
	@echo "make bench      the course's GPT beside one from stock parts, and its port beside it"
	@echo "Settings: PYTHON=python3.12  VENV=.venv  JOBS=0 (test processes, 0: one)  TORCH_INDEX=address of PyTorch's wheels"

lab:
	@$(PYTHON) tools/install.py --venv $(VENV)
	@$(VENV)/bin/python tools/start.py

test:
	@$(PYTHON) tools/install.py --test --venv $(VENV)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n $(JOBS)

notebooks:
	@$(PYTHON) tools/install.py --test --venv $(VENV)
	@$(VENV)/bin/python tools/execute.py $(LESSONS)

bench:
	@$(PYTHON) tools/install.py --venv $(VENV)
	@$(VENV)/bin/python -m course bench
