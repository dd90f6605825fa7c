"""Does a checkpoint load and compute? Tried in a process of its own: a crash, a leak or a full memory stays there."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..probe.backends.device import pick_device, weights_bytes
from ..texts import text
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
    """Load one checkpoint, see `Loader.load`."""
    with Loader(device) as loader:
        return loader.load(folder, kind, base, limit_s)


class Loader:
    """A process that loads one checkpoint after the other. It is started by the first one and ended by `close`."""

    def __init__(self, device: str = "auto"):
        """`device`: "auto" takes the GPU only where there is room beside what runs on it."""
        self.device = device
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def load(self, folder: Path, kind: str, base: Base, limit_s: float | None = None) -> Loaded:
        """Load a checkpoint as it would be used, and make one forward pass of a few tokens.

        Args:
            folder: `checkpoint-N`, proven complete.
            kind: "adapter" or "full".
            base: the base model; for a whole model only its `trust_remote_code` counts.
            limit_s: seconds; None: two minutes, and 20 s for each GiB.

        Raises:
            ConfigError: the device is none that torch has.
        """
        weighed = base.name if kind == "adapter" else str(folder)
        place, _ = pick_device(self.device, weighed)
        size = weights_bytes(weighed)
        lacking = _lacking_memory(size, place)
        if lacking:
            return Loaded(False, "process", lacking)
        limit_s = limit_s or _START_S + _PER_GIB_S * (size or 0) / _GIB
        request = {"folder": str(folder), "kind": kind, "base": asdict(base), "device": place, "limit_s": limit_s}
        try:
            return self._ask(request, limit_s)
        except OSError as error:
            self.close()
            return Loaded(False, "process", text("checkpoint.loading.no_process", error=error.strerror))

    def close(self) -> None:
        """End the process and what it has started."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # a session of its own: nobody else is in it
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._said.close()
        self._process = None

    def _ask(self, request: dict, limit_s: float) -> Loaded:
        place = request["device"]
        if self._process is not None and place != self._place and "cpu" in (place, self._place):
            self.close()  # it was told to see no GPU, or holds one
        if self._process is None:
            self._start(place)
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        line = self._line(time.monotonic() + limit_s)
        if line is None:
            self.close()
            return Loaded(False, "process", text("checkpoint.loading.timeout", seconds=limit_s))
        if not line.endswith(b"\n"):
            code = self._process.wait()
            self._said.seek(0)
            last = (self._said.read().decode(errors="replace").strip().splitlines() or ["no word"])[-1]
            self.close()
            return Loaded(False, "process", f"the process ended with {code}: {last[:200]}")
        return Loaded(**json.loads(line))

    def _start(self, place: str) -> None:
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "LLAMAFACTORY_OBS_AUTOLOAD": "0"}
        if place == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ""  # a context of its own would take some of the card
        self._place = place
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.load_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=environment,
            bufsize=0,
            start_new_session=True,
        )

    def _line(self, until: float) -> bytes | None:
        """One answer; without a newline at its end where the process has ended; None where it did not come in time."""
        raw, pipe = b"", self._process.stdout
        while not raw.endswith(b"\n"):
            if not select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            more = pipe.read(1 << 16)
            if not more:
                break
            raw += more
        return raw


def _lacking_memory(size: int | None, place: str) -> str:
    """Why there is too little memory on the CPU for weights of `size` bytes; empty where there is enough."""
    if size is None or place != "cpu":
        return ""
    import psutil

    free = psutil.virtual_memory().available
    if free >= size * _ROOM:
        return ""
    return text("checkpoint.loading.memory", needed=size * _ROOM / _GIB, free=free / _GIB)
