"""The flight recorder, the pre-flight check and the test pilot for LlamaFactory fine-tuning runs.

This module is imported by every `import torch` in the environment (see `plugin/autoload.py`), so it imports nothing:
the public names below are loaded on first use.
"""

__version__ = "0.1.0"

_EXPORTS = {
    "GradNormSpike": "callbacks.grad_norm_spike",
    "LayerNorms": "callbacks.layer_norms",
    "OptimizerHealth": "callbacks.optimizer",
    "LabelMask": "callbacks.label_mask",
    "Vram": "callbacks.vram",
    "Throughput": "callbacks.throughput",
    "System": "callbacks.system",
    "RankWatch": "callbacks.ranks",
    "Samples": "callbacks.samples",
    "Probe": "callbacks.probe",
    "Quality": "callbacks.quality",
    "Diagnose": "callbacks.diagnose",
    "CheckpointGuard": "callbacks.checkpoint_guard",
    "ObsCallback": "callbacks.base",
    "load_record": "record.reader",
    "read_samples": "record.samples",
}

__all__ = [*_EXPORTS, "__version__"]


def __getattr__(name: str):
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
