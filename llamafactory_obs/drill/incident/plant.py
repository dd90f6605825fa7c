"""The one callback that all trainings of a drill have, the healthy twin too: what it does stands in the environment.

So neither the config nor the record of a training says whether something is planted in it, or what.
"""

import importlib
import json
import os

from transformers import TrainerCallback

from .planted import VARIABLE

#: incident -> module and class of the fault
FAULTS = {
    "oom": ("batches", "OverLongSample"),
    "spike": ("rate", "RaiseRate"),
    "labels": ("batches", "ShiftLabels"),
    "throughput": ("storage", "WriteEveryStep"),
    "nan": ("gradients", "InfiniteGradient"),
    "lora_off": ("gradients", "AdapterOff"),
}


class Plant(TrainerCallback):
    """Becomes the fault that the environment names; without one it does nothing at all."""

    def __new__(cls):
        words = json.loads(os.environ.get(VARIABLE) or "{}")
        if not words:
            return super().__new__(cls)
        module, name = FAULTS[words["fault"]]
        fault = getattr(importlib.import_module(f".faults.{module}", __package__), name)
        return fault(at=words["at"], told=words["told"])
