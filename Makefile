# What a person types. Needs make, a C++ compiler and a Python; everything else goes into .venv.
#   make setup PYTHON=/path/to/python     another Python than the one that set-up would choose
#   make setup INSTALLER=pip              pip instead of uv

PYTHON ?=
INSTALLER ?= auto
VENV := .venv/bin
# By file, so that what a file's tests share is made once.
PARALLEL ?= -n 2 --dist loadfile

# Set-up itself runs on any Python from 3.8. pyenv's shims exist on the path and fail when run, so each is tried.
SETUP_PYTHONS := $(PYTHON) python3 python3.13 python3.12 python3.11 python3.10 python /usr/bin/python3 \
  $(wildcard $(HOME)/.pyenv/versions/3.*/bin/python3)

.PHONY: help setup demo test test-fast lint check bench bench-ingest bench-beam bench-train lock docs golden verify-kfp test-flink wheel image clean

help:  ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

setup:  ## make the environment in .venv (cheap to repeat)
	@for python in $(SETUP_PYTHONS); do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1; then \
	    exec "$$python" requirements/install.py --installer $(INSTALLER) $(if $(PYTHON),--python "$(PYTHON)"); \
	  fi; \
	done; \
	echo "Set-up: no Python 3.8 or newer runs here. Install Python 3.10, or 3.11 to 3.13 with glibc 2.39." >&2; exit 2

demo: setup  ## run the taxi pipeline, from a CSV to a pushed model
	@$(VENV)/lockstep run taxi

test: setup  ## run all tests
	@$(VENV)/python -m pytest $(PARALLEL)

test-fast: setup  ## run the tests that take seconds
	@$(VENV)/python -m pytest $(PARALLEL) -m "not slow"

lint: setup  ## check format, lint, types and layers
	$(VENV)/ruff format --check .
	$(VENV)/ruff check .
	$(VENV)/mypy
	$(VENV)/mypy -p benchmarks
	$(VENV)/mypy requirements/install.py requirements/lock.py setup.py
	$(VENV)/lint-imports

check: lint  ## lint, then run all tests
	@$(VENV)/python -m pytest $(PARALLEL)

bench: setup  ## run the stock TFX taxi pipeline and ours side by side (ROWS="15000 1500000" REPEAT=3 WORKERS=1)
	@$(VENV)/python -m benchmarks $(if $(ROWS),--rows $(ROWS)) $(if $(REPEAT),--repeat $(REPEAT)) \
	  $(if $(WORKERS),--workers $(WORKERS))

bench-ingest: setup  ## measure ExampleGen beside the stock one and a bare loop (ROWS=1500000 STOCK_ROWS=150000 IMAGES=100000 REPEAT=3)
	@$(VENV)/python -m benchmarks.ingest $(if $(ROWS),--rows $(ROWS)) $(if $(STOCK_ROWS),--stock-rows $(STOCK_ROWS)) \
	  $(if $(IMAGES),--images $(IMAGES)) \
	  $(if $(REPEAT),--repeat $(REPEAT))

bench-beam: setup  ## measure Transform and StatisticsGen beside the stock ones (ROWS="150000 1500000" REPEAT=3)
	@$(VENV)/python -m benchmarks.beam_steps $(if $(ROWS),--rows $(ROWS)) $(if $(REPEAT),--repeat $(REPEAT))

bench-train: setup  ## measure the trainer beside what it is compared with: input, steps, workers, faults (REPEAT=2)
	@TF_CPP_MIN_LOG_LEVEL=3 $(VENV)/python -W ignore::FutureWarning -m benchmarks.training \
	  $(if $(ROWS),--rows $(ROWS)) $(if $(REPEAT),--repeat $(REPEAT))

lock: setup  ## resolve requirements/*.in into the locks (UPGRADE=1: to the newest versions)
	@$(VENV)/python requirements/lock.py $(if $(UPGRADE),--upgrade)

docs: setup  ## write the reference of the configuration from the code
	@$(VENV)/python -m lockstep.pipelines.reference > docs/configuration.md

golden: setup  ## write the golden packages of the tests anew
	@$(VENV)/python -m tests.pipelines.kubeflow.golden

verify-kfp: setup  ## ask two kfp releases, and Kubeflow's server and Argo in Go, whether they take the golden packages (PACKAGES="a.yaml b.yaml": others)
	@PYTHONPATH=requirements $(VENV)/python -m tests.kfp_releases.verify $(PACKAGES)
	@PYTHONPATH=requirements $(VENV)/python -m tests.kfp_go.verify $(PACKAGES)
	@$(VENV)/python -m pytest -q tests/kfp_releases tests/kfp_go

test-flink: setup  ## run the taxi pipeline on Flink beside the direct runner (needs Java and Maven)
	@PYTHONPATH=requirements $(VENV)/python -m tests.flink.job_server
	@$(VENV)/python -m pytest -q tests/flink

wheel: setup  ## build the wheel into dist/
	@rm -rf build/lib build/bdist.*
	@$(VENV)/python -m build --wheel --no-isolation --outdir dist . >.cache/wheel.log 2>&1 || { cat .cache/wheel.log >&2; exit 1; }
	@ls dist/*.whl

IMAGE ?= lockstep
BASE_IMAGE ?= debian:trixie-slim

image: wheel  ## build the container image of line B (BASE_IMAGE=NAME: on another base)
	docker build --network host --build-arg BASE_IMAGE=$(BASE_IMAGE) --tag $(IMAGE) .

clean:  ## remove the environment and everything built
	@rm -rf .venv .cache build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
