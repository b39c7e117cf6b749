# Agent Lab. `make help` lists what there is; each goal sets up .venv first, if need be.
# On Windows use WSL, or call the Python steps by hand: python tools/setup_env.py, then .venv\Scripts\python tools\lab.py

# The first Python that fits; PYTHON=/path/to/python overrides.
FITS   := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))
PYTHON ?= $(shell for p in python3 python3.13 python3.14 python3.12 python3.11 python; do \
             if $$p -c '$(FITS)' >/dev/null 2>&1; then echo $$p; exit; fi; done; echo python3)
BIN    := .venv/bin
READY  := .venv/agent-lab.stamp

.DEFAULT_GOAL := help
.PHONY: help setup lab test lint unit lessons-test notebooks notebooks-check rhythm bench site site-test site-test-all hub-test requirements clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

$(READY): requirements.txt pyproject.toml tools/setup_env.py
	@command -v $(PYTHON) >/dev/null || { echo "No Python found. Agent Lab needs Python 3.11 to 3.14. 未找到 Python 3.11–3.14。"; exit 1; }
	@$(PYTHON) tools/setup_env.py

setup: $(READY)  ## the virtual environment only

lab: $(READY)  ## the lessons in JupyterLab; AGENTLIB_LANG=zh for Chinese, LAB_ARGS=--no-browser for a server
	@$(BIN)/python tools/lab.py $(LAB_ARGS)

test: lint unit lessons-test  ## everything that is checked: style, types, tests, every lesson's outputs

lint: $(READY)  ## style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

unit: $(READY)  ## the tests
	$(BIN)/python -m pytest -q $(TEST_ARGS)

lessons-test: $(READY)  ## run all lessons and compare their outputs
	$(BIN)/python -m pytest -q --nbval -n 2 --dist loadfile notebooks

notebooks: $(READY)  ## build the lessons whose source changed
	$(BIN)/python tools/build_notebooks.py

notebooks-check: $(READY)  ## build all lessons anew and compare each byte
	$(BIN)/python tools/build_notebooks.py --check

rhythm: $(READY)  ## measure the lessons: cells, lines, words
	$(BIN)/python tools/rhythm.py

bench: $(READY)  ## speed, as ratios within one run
	@for script in bench/bench_*.py; do echo "$$script"; $(BIN)/python "$$script" || exit 1; done

site: $(READY)  ## the lessons as a static site that runs in the browser, in _site; needs npm
	$(BIN)/python tools/build_site.py

site-test: $(READY)  ## build the site, run lessons 03 to 06 of it in Chromium: three minutes
	$(BIN)/python -m pytest -q -m "site and not full" $(TEST_ARGS)

site-test-all: $(READY)  ## the same with every lesson, an older browser, other hosts: ten minutes
	$(BIN)/python -m pytest -q -m site $(TEST_ARGS)

hub-test: $(READY)  ## ten simulated students on the sample JupyterHub: some minutes
	$(BIN)/python -m pytest -q -m hub $(TEST_ARGS)

requirements: $(READY)  ## pin anew what pyproject.toml allows
	$(BIN)/python -m uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --upgrade -q \
	  --extra lab --extra test --constraints tools/constraints.txt --custom-compile-command "make requirements" pyproject.toml -o requirements.txt

clean:  ## remove .venv and all caches
	rm -rf .venv build dist _site .site-cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
