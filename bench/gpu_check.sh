#!/usr/bin/env bash
# Checks on a machine with a CUDA GPU what CI cannot: run it once after an install, about 5 minutes.
#   1. the test suite's training tests on the GPU device path (rows late by at most two steps, same numbers)
#   2. no synchronisation between logging steps: torch's sync debug mode raises inside our hooks
#   3. peaks, NVML and the out-of-memory event on a real card
#   4. the overhead table
set -euo pipefail
cd "$(dirname "$0")/.."
python - <<'PY'
import sys
import torch
if not torch.cuda.is_available():
    sys.exit("gpu_check: no CUDA device here; nothing was checked")
print("gpu_check:", torch.cuda.get_device_name(0), "torch", torch.__version__)
PY
python bench/gpu_check.py "$@"
python bench/overhead.py --tuning lora --tokens 2048 --rounds 20
python bench/overhead.py --tuning full --tokens 2048 --rounds 20
