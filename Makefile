# Two targets do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

CONSTRAINTS := tests/constraints.txt

.PHONY: demo test suite test-ray check constraints portability clean

$(VENV)/demo.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -e .
	touch $@

$(VENV)/test.stamp: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e '.[test]'
	touch $@ $(VENV)/demo.stamp

demo: $(VENV)/demo.stamp
	$(BIN)/python examples/super_resolution/upscale.py

check: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

suite: $(VENV)/test.stamp
	$(BIN)/python -m pytest -n auto --dist worksteal

# Side by side: mypy keeps one core busy.
test: $(VENV)/test.stamp
	$(MAKE) -j 2 check suite

# Ray takes half a minute and 750 MB to install, and its tests a minute: never part of `make test`.
$(VENV)-ray/test.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)-ray
	$(VENV)-ray/bin/pip install -q --disable-pip-version-check -e '.[test-ray]'
	touch $@

test-ray: $(VENV)-ray/test.stamp
	$(VENV)-ray/bin/python -m pytest tests/device/ray tests/null/ray

# The newest versions of what the tests install, written down in the file that `make test` takes them from.
constraints:
	$(PYTHON) -m venv --clear $(VENV)-newest
	$(VENV)-newest/bin/pip install -q --disable-pip-version-check -e '.[test]'
	grep '^#' $(CONSTRAINTS) > $(VENV)-newest/constraints.txt
	$(VENV)-newest/bin/pip freeze --exclude-editable >> $(VENV)-newest/constraints.txt
	mv $(VENV)-newest/constraints.txt $(CONSTRAINTS)
	rm -rf $(VENV)-newest

# Hours, and hundreds of megabytes to fetch: never part of `make test`. It goes on where an earlier run stopped.
portability: $(VENV)/test.stamp
	$(BIN)/python -m tests.portability

clean:
	rm -rf $(VENV) $(VENV)-newest build dist .pytest_cache .mypy_cache .ruff_cache
