# make demo   set up, then compile a CNN and a transformer, for inference and training, and print a table
# make test   set up, then lint the layering and run the tests
# make bench  set up, then time eager, minipt2 and torch.compile side by side (minutes)
# make site   set up, then build the course's site into build/site; make serve shows it on a port of this machine
# make site-check   the built site in a real browser (needs Chromium; AXE=axe.min.js of the npm package axe-core adds accessibility rules)
# make course-proof  set up, then prove every exercise of the course: stub, reference and mutants (minutes)
#
# Variables: PYTHON (interpreter for the environment), VENV (where it goes), TORCH (the torch requirement).

PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test bench site site-check serve course-proof setup clean

setup: $(STAMP)

# torch first and pinned: an unpinned torch would bring a CUDA build of several gigabytes.
$(STAMP): pyproject.toml
	@echo "Making $(VENV) and installing torch and the rest: a few minutes, most of it the download of torch."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)" numpy
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test,models]"
	touch $(STAMP)

demo: setup
	$(BIN)/python -m minipt2.bench --demo

test: setup
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -m "not speed" tests

bench: setup
	$(BIN)/python -m minipt2.bench --peer torch.compile

course-proof: setup
	$(BIN)/python -m minipt2.course.proof

$(VENV)/.site: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[site]"
	touch $@

site: $(VENV)/.site
	NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 $(BIN)/python -m mkdocs build --strict

site-check: site
	$(BIN)/python -m pip install --quiet --disable-pip-version-check playwright
	$(BIN)/python -m chapters.check_site $(if $(AXE),--axe $(AXE))

serve: $(VENV)/.site
	NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 $(BIN)/python -m mkdocs serve

clean:
	rm -rf $(VENV) build *.egg-info
