"""Does a checkpoint load and compute? Tried in a process of its own: a crash, a leak or a full memory stays there."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..probe.backends.device import pick_device, weights_bytes
from .base_model import Base

_GIB = 1 << 30
#: seconds for the imports and the forward pass, and for each GiB of weights from a slow disk (50 MiB/s)
_START_S, _PER_GIB_S = 120, 20
#: memory wanted on the CPU as a multiple of the weights: they are mapped and then copied once
_ROOM = 1.2


@dataclass(frozen=True)
class Loaded:
    """What came of it.

    Attributes:
        loaded: it loaded and the forward pass ended.
        stage: where it did not: "base" (the base model: nothing is said of the checkpoint), "checkpoint", "forward",
            or "process" (not enough memory, out of time, killed).
        why: the reason in one line.
        missing, unexpected: names of weights that it lacks, or has and the model does not; the first ones.
        missing_count, unexpected_count: how many.
        nonfinite, logits: logits that are not finite, of how many.
        spread: the highest logit less the lowest; 0 where the model says nothing any more.
        device: cpu | cuda ...
        seconds: of the whole.
        notes: what was not as in training.
    """

    loaded: bool
    stage: str = ""
    why: str = ""
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    missing_count: int = 0
    unexpected_count: int = 0
    nonfinite: int = 0
    logits: int = 0
    spread: float | None = None
    shape: list[int] = field(default_factory=list)
    device: str = ""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)


def try_to_load(folder: Path, kind: str, base: Base, device: str = "auto", limit_s: float | None = None) -> Loaded:
    """Load a checkpoint as it would be used, and make one forward pass of a few tokens.

    Args:
        folder: `checkpoint-N`, proven complete.
        kind: "adapter" or "full".
        base: the base model; for a whole model only its `trust_remote_code` counts.
        device: "auto" takes the GPU only where there is room beside what runs on it.
        limit_s: seconds; None: two minutes, and 20 s for each GiB.

    Raises:
        ConfigError: `device` is none that torch has.
    """
    weighed = base.name if kind == "adapter" else str(folder)
    place, _ = pick_device(device, weighed)
    size = weights_bytes(weighed)
    lacking = _lacking_memory(size, place)
    if lacking:
        return Loaded(False, "process", lacking)
    limit_s = limit_s or _START_S + _PER_GIB_S * (size or 0) / _GIB
    request = {"folder": str(folder), "kind": kind, "base": asdict(base), "device": place}
    command = [sys.executable, "-m", f"{__package__}.load_worker", json.dumps(request)]
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "LLAMAFACTORY_OBS_AUTOLOAD": "0"}
    if place == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""  # a context of its own would take some of the card
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=environment)
    except subprocess.TimeoutExpired:
        return Loaded(False, "process", f"not loaded within {limit_s:.0f} s")
    except OSError as error:
        return Loaded(False, "process", f"no process could be started: {error.strerror}")
    if done.returncode < 0:
        return Loaded(False, "process", f"the process was killed by signal {-done.returncode} (9: out of memory)")
    try:
        return Loaded(**json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, IndexError, TypeError):
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        return Loaded(False, "process", f"the process ended with {done.returncode}: {last[:200]}")


def _lacking_memory(size: int | None, place: str) -> str:
    """Why there is too little memory on the CPU for weights of `size` bytes; empty where there is enough."""
    if size is None or place != "cpu":
        return ""
    import psutil

    free = psutil.virtual_memory().available
    if free >= size * _ROOM:
        return ""
    return f"{size * _ROOM / _GIB:.1f} GiB of memory are needed to load it, {free / _GIB:.1f} are free"
