"""`throughput`: where each step's time goes, and how many tokens a second come out of it."""

import gc
import time
from dataclasses import dataclass
from typing import ClassVar

import torch

from ..record.schema import Key
from .base import ObsCallback
from .batch_shape import segments_for
from .label_mask import IGNORE
from .phases import OTHER, Phases, Spans, marks_of

#: part of `Phases` -> what it is
PARTS = {
    "data_wait": "waiting for the data loader (on a GPU: while the device had nothing to do)",
    "h2d": "moving the batch to the device",
    "forward": "forward pass and loss",
    "backward": "backward pass, with the communication that hides behind it",
    "optimizer": "clipping and update",
    "communication": "waiting for other ranks: after the backward pass, and where the Trainer gathers numbers",
    "checkpoint": "saving a checkpoint",
    "eval": "evaluation",
    OTHER: "the named remainder: the Trainer itself, logging, trackers, other people's callbacks, zero_grad",
}
#: a garbage collection of this share of a step makes it unusual
_GC_SHARE = 0.01


@dataclass(eq=False)
class Throughput(ObsCallback):
    """Splits each step's wall time into parts that add up to it, and gives tokens a second of this session alone.

    A step's window goes from the end of the step before it to its own end. What the Trainer does in between (logging,
    evaluation, saving) therefore counts into the step after it.
    """

    yaml_name: ClassVar[str] = "throughput"
    keys: ClassVar[tuple[Key, ...]] = (
        Key("time/step_s", "s", "from the end of the step before to the end of this one", "mean"),
        *(Key(f"time/{part}_s", "s", doc, "mean") for part, doc in PARTS.items()),
        Key("time/gc_s", "s", "of this, Python's garbage collection, wherever it fell; no part of the sum", "mean"),
        Key(
            "time/unusual",
            "0 or 1",
            "an evaluation, a checkpoint, the start or a garbage collection (above 1 %) fell into this step: leave it"
            " out of a baseline",
            "max",
        ),
        Key("system/tokens_per_sec", "tokens/s", "real tokens of this step, all devices together", "sum"),
        Key("system/tokens_per_sec_per_device", "tokens/s", "the same, of one device", "mean"),
        Key("system/supervised_tokens_per_sec", "tokens/s", "tokens with a label, all devices together", "sum"),
        Key(
            "system/session_tokens_per_sec",
            "tokens/s",
            "real tokens since this start of training over its wall time: right after a resume too",
            "sum",
        ),
    )

    def begin(self) -> None:
        self.run.phases = Phases(marks_of(self.run.trainer.args.device))
        self._pad_id = getattr(getattr(self.run.trainer, "processing_class", None), "pad_token_id", None)
        self._began, self._tokens, self._first = time.perf_counter(), 0, True
        self._gc_s, self._gc_began = 0.0, 0.0
        gc.callbacks.append(self._collecting)

    def _collecting(self, phase: str, info: dict) -> None:
        if phase == "start":
            self._gc_began = time.perf_counter()
        else:
            self._gc_s += time.perf_counter() - self._gc_began

    def batch(self, inputs) -> None:
        if not hasattr(inputs, "get") or not isinstance(inputs.get("input_ids"), torch.Tensor):
            return
        labels = inputs.get("labels")
        with torch.no_grad():
            real = segments_for(self.run, inputs, self._pad_id).real.sum()
            labelled = (labels != IGNORE).sum() if isinstance(labels, torch.Tensor) else torch.zeros_like(real)
            counts = torch.stack([real, labelled])
        self.run.defer([counts], _add_tokens)

    def step(self) -> None:
        elapsed, gc_s = time.perf_counter() - self._began, self._gc_s
        self._gc_s = 0.0
        first, self._first = self._first, False

        def finish(row, seconds: dict[str, float]) -> None:
            whole = sum(seconds.values())
            values = {f"time/{part}_s": seconds.get(part, 0.0) for part in (*PARTS, "callbacks")}
            values |= {"time/step_s": whole, "time/gc_s": gc_s}
            unusual = first or seconds.get("eval") or seconds.get("checkpoint") or gc_s > _GC_SHARE * whole
            values["time/unusual"] = float(bool(unusual))
            self._add_rates(row, values, whole, elapsed)
            row.values.update(values)

        self.run.defer(self.run.phases.take(), finish, Spans)

    def _add_rates(self, row, values: dict[str, float], seconds: float, elapsed: float) -> None:
        tokens, labelled = row.facts.get("tokens", (0, 0))
        self._tokens += tokens
        if seconds > 0:
            values["system/tokens_per_sec"] = values["system/tokens_per_sec_per_device"] = tokens / seconds
            values["system/supervised_tokens_per_sec"] = labelled / seconds
        values["system/session_tokens_per_sec"] = self._tokens / elapsed

    def summary(self) -> dict:
        values = self.run.last.values
        if not values.get("time/step_s"):
            return {}
        found = {"tokens_per_sec": values["system/tokens_per_sec"]} if "system/tokens_per_sec" in values else {}
        return found | {"data_wait": values["time/data_wait_s"] / values["time/step_s"]}

    def off(self) -> None:
        self.run.phases = None
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)


def _add_tokens(row, counts: list[int]) -> None:
    tokens, labelled = row.facts.get("tokens", (0, 0))
    row.facts["tokens"] = (tokens + counts[0], labelled + counts[1])
