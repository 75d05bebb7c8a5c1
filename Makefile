# The tasks of the project, from a fresh clone, with Python 3.11 or later and make.
# Each target creates the environment that it needs.

PYTHON ?= python3
VENV ?= .venv
# Passed to pytest: make test ARGS="-k stack"
ARGS ?=

ifneq ($(words $(VENV)),1)
$(error VENV="$(VENV)" contains a space: choose another folder for the environment)
endif

export MPLBACKEND := Agg
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Only the environment determines what is imported.
unexport PYTHONPATH PYTHONHOME

run := "$(VENV)/bin/python"
# Matrices of a few hundred rows gain little from a second BLAS thread, and threads that wait for each
# other are slow on a busy machine; two pytest workers on two cores need one thread each anyway.
one_thread := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help demo test bench docs lint check wheel-check clean FORCE
# All targets share one environment, in which pip must not run twice at the same time (make -j).
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:  ## list the targets (the default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'PYTHON=$(PYTHON) creates the environment VENV=$(VENV). Both can be set: make test PYTHON=python3.13'

demo: $(VENV)/.demo  ## complete the bundled digits kernels: print a table, write figures to demo-output/
	$(one_thread) $(run) examples/complete_digits.py --output demo-output

test: $(VENV)/.test  ## run the test suite, including the examples in the docstrings and the documentation
	$(one_thread) $(run) -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal tests $(ARGS)

bench: $(VENV)/.test  ## run the benchmarks and write docs/benchmarks.md (hours; one part: ARGS="-k per_step")
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(run) -m pytest --benchmark-enable \
		--benchmark-quiet tests/benchmarks $(ARGS)

docs: $(VENV)/.docs  ## build the documentation in docs/_build/html; warnings are errors (minutes)
	$(one_thread) $(run) -m sphinx --quiet --fail-on-warning --keep-going --builder html \
		--doctree-dir docs/_build/doctrees docs docs/_build/html $(ARGS)
	@echo "Open docs/_build/html/index.html"

lint: $(VENV)/.lint  ## check style, formatting and types
	$(run) -m ruff check
	$(run) -m ruff format --check
	$(run) -m mypy

check: lint test  ## run lint and test

wheel-check: $(VENV)/pyvenv.cfg  ## build a wheel and use it in a clean environment
	@there=$$(mktemp -d) && trap 'rm -rf "$$there"' EXIT && set -e; \
	echo "Building and installing the wheel (a minute or two)"; \
	$(run) -m pip wheel --quiet --no-deps --wheel-dir "$$there" .; \
	$(run) -m venv "$$there/venv"; \
	"$$there/venv/bin/python" -m pip install --quiet "$$there"/*.whl; \
	cp .ci/wheel_check.py "$$there"; \
	cd "$$there" && venv/bin/python -I wheel_check.py

clean:  ## remove the environments and everything else that the targets created
	rm -rf .venv .venv-* demo-output build dist
	rm -rf docs/_build docs/gallery docs/reference/generated docs/reference/backreferences
	rm -f docs/sg_execution_times.rst
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find mkmc_prob tests examples docs -name __pycache__ -prune -exec rm -rf {} +
	@if [ -f "$(VENV)/pyvenv.cfg" ]; then rm -rf "$(VENV)"; fi

# Stamps: pip runs again only if pyproject.toml has changed. The package itself is used in place.
$(VENV)/.test: extras := [test]
$(VENV)/.lint: extras := [lint]
$(VENV)/.docs: extras := [docs]
$(VENV)/.demo $(VENV)/.test $(VENV)/.lint $(VENV)/.docs: $(VENV)/pyvenv.cfg pyproject.toml
	@echo "Installing mkmc_prob$(extras) in $(VENV) (once; a minute or two)"
	@$(run) -m pip install --quiet --editable ".$(extras)"
	@touch $@

# The environment is created if there is none that runs, or if PYTHON was given and has another version.
# This is checked every time, but the file is touched only when the environment is created.
version_of = -c 'import sys; print("%d.%d" % sys.version_info[:2])'
say_and_stop = { echo "$(strip $(1))" >&2; exit 1; }

$(VENV)/pyvenv.cfg: FORCE
	@have=; if [ -f $@ ]; then have=$$($(run) $(version_of) 2>/dev/null); fi; \
	if [ -n "$$have" ] && [ "$(origin PYTHON)" = file ]; then exit 0; fi; \
	want=$$("$(PYTHON)" $(version_of)) || $(call say_and_stop,\
		PYTHON=$(PYTHON) does not run. Choose another one: make ... PYTHON=/path/to/python3.11); \
	if [ "$$have" = "$$want" ]; then exit 0; fi; \
	case "$$want" in 2.*|3.?|3.10) $(call say_and_stop,\
		PYTHON=$(PYTHON) is Python $$want; mkmc_prob needs 3.11 or later: make ... PYTHON=python3.11);; esac; \
	"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || $(call say_and_stop,\
		PYTHON=$(PYTHON) cannot create environments. On Debian and Ubuntu: apt install python$$want-venv); \
	if [ -f $@ ]; then clear=--clear; else clear=; fi; \
	echo "Creating the environment $(VENV) with Python $$want"; \
	"$(PYTHON)" -m venv $$clear "$(VENV)"
