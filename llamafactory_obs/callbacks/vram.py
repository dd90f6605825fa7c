"""`vram`: memory of every step, which batch made each peak, growth, and what to do when it runs out."""

import math
import os
from dataclasses import dataclass
from typing import ClassVar

import torch

from ..detect import GrowthDetector
from ..record.schema import Key
from ..settings import LIMIT_GIB, MARGIN_GIB, first_given
from .base import ObsCallback
from .failures import is_out_of_memory, will_retry
from .journal import one_line
from .memory_source import CudaMemory, HostMemory

#: a peak counts as new when it is higher by this share: single kilobytes are no news
_NEW_PEAK = 1.01


@dataclass(eq=False)
class Vram(ObsCallback):
    """Records memory in GiB and keeps the batch that made each new peak: the smoke run's peak is not the real run's."""

    yaml_name: ClassVar[str] = "vram"
    keys: ClassVar[tuple[Key, ...]] = (
        Key("system/allocated_gib", "GiB", "held by tensors at the end of the step", "max"),
        Key("system/reserved_gib", "GiB", "held by torch's caching allocator at the end of the step", "max"),
        Key(
            "system/peak_allocated_gib",
            "GiB",
            "highest allocated since training began (of this step: per_step_peak)",
            "max",
        ),
        Key(
            "system/peak_reserved_gib",
            "GiB",
            "highest reserved since training began (of this step: per_step_peak)",
            "max",
        ),
        Key("system/fragmentation", "0..1", "reserved memory that is free but split too small / reserved", "max"),
        Key(
            "system/device_used_gib",
            "GiB",
            "used on the whole card by all processes (NVML, sampled once a second)",
            "max",
        ),
        Key("system/margin_gib", "GiB", "limit_gib - peak reserved - all else on the card", "min"),
        Key("system/rss_gib", "GiB", "without a GPU: resident memory of the process", "max"),
    )

    limit_gib: float | None = None
    """The card's size, or what this run may use of it; null takes `obs: {limit_gib: ...}`, or 24."""

    margin_gib: float | None = None
    """Warn when less than this is left; null takes `obs: {margin_gib: ...}`, or 1."""

    per_step_peak: bool = False
    """Reset torch's peak counters every step, so that peaks are per step. Disturbs others who read them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit_gib is not None and self.limit_gib <= 0:
            raise ValueError(f"limit_gib must be above 0, got {self.limit_gib}")
        if self.margin_gib is not None and not 0 <= self.margin_gib < (self.limit_gib or math.inf):
            raise ValueError(f"margin_gib must be from 0 to limit_gib, got {self.margin_gib}")

    def begin(self) -> None:
        trainer = self.run.trainer
        settings = self.context.settings
        self._limit_gib = first_given(self.limit_gib, settings.limit_gib, LIMIT_GIB)
        self._margin_gib = first_given(self.margin_gib, settings.margin_gib, MARGIN_GIB)
        self._source = self._open_source(trainer)
        self._on_gpu = not isinstance(self._source, HostMemory)
        total = trainer.state.max_steps
        limit = self._limit_gib if self._on_gpu else None
        self._growth = GrowthDetector(
            limit, total_steps=total, label="GPU memory" if self._on_gpu else "process memory"
        )
        self._peak, self._low_margin = 0.0, False
        self._shapes: list[list[int]] = []
        self._shapes_of = 0
        if self._source.note:
            self.run.event("note", self.yaml_name, "memory source", self._source.note)

    def _open_source(self, trainer):
        if trainer.args.device.type != "cuda":
            return HostMemory()
        reset = self.per_step_peak
        read_elsewhere = (
            os.environ.get("RECORD_VRAM", "").lower() in ("1", "true", "y") or not trainer.args.skip_memory_metrics
        )
        if reset and read_elsewhere:
            reset = False
            text = "per_step_peak is off: RECORD_VRAM or the Trainer's memory metrics read the same counters"
            self.run.event("note", self.yaml_name, "per_step_peak off", text, level="warn")
        return CudaMemory(trainer.args.device, reset)

    def batch(self, inputs) -> None:
        ids = inputs.get("input_ids") if hasattr(inputs, "get") else None
        if isinstance(ids, torch.Tensor):
            if self.run.step != self._shapes_of:
                self._shapes_of, self._shapes = self.run.step, []
            self._shapes.append(list(ids.shape))

    def step(self) -> None:
        figures = self._source.read()
        if self._on_gpu:
            reserved = figures["system/reserved_gib"]
            others = max(0.0, figures.get("system/device_used_gib", reserved) - reserved)
            figures["system/margin_gib"] = self._limit_gib - figures["system/peak_reserved_gib"] - others
        for key, value in figures.items():
            self.run.put(key, value)
        self.run.open_row.facts["shapes"] = self._shapes

    def row(self, row) -> None:
        values = row.values
        peak = values.get("system/peak_reserved_gib", values.get("system/rss_gib"))
        if peak is None or self.run.replaying:  # another process' memory
            return
        shapes = row.facts.get("shapes") or []
        longest = max((shape[-1] for shape in shapes), default=None)
        if peak > self._peak * _NEW_PEAK:
            self._peak = peak
            evidence = {"peak_gib": peak, "micro_batches": shapes, "longest_sequence": longest}
            evidence |= {k: values[k] for k in ("data/max_length", "data/samples", "data/tokens") if k in values}
            ranks = self.run.trainer.args.world_size
            evidence |= {"ranks": ranks}
            text = f"{peak:.2f} GiB at a batch of {_describe(shapes)}"
            text += f" (highest of {ranks} ranks; the batch is that of rank 0)" if ranks > 1 else ""
            self.run.event(
                "memory_peak", self.yaml_name, "new peak", text, step=row.step, evidence=evidence, show=False
            )
        held = values.get("system/allocated_gib", values.get("system/rss_gib"))
        finding = self._growth.update(row.step, held, longest)
        if finding is not None:
            self.run.alert(self.yaml_name, finding)
        self._judge_margin(row)

    def _judge_margin(self, row) -> None:
        margin = row.values.get("system/margin_gib")
        if margin is None:
            return
        if margin < self._margin_gib and not self._low_margin:
            text = (
                f"only {margin:.2f} GiB left of {self._limit_gib:g}: the next longer batch may run out. Save now, and"
                " lower per_device_train_batch_size (with gradient_accumulation_steps raised) in the next run"
            )
            evidence = {key: value for key, value in row.values.items() if key.startswith("system/")}
            suggest = self._smaller_batch()
            self.run.event(
                "alert",
                self.yaml_name,
                "little memory left",
                text,
                level="warn",
                step=row.step,
                evidence=evidence,
                suggest=suggest,
            )
        self._low_margin = margin < self._margin_gib

    def failed(self, error: BaseException) -> None:
        if not is_out_of_memory(error):
            return
        figures = self._source.read()
        evidence = {"micro_batches": self._shapes, "longest_sequence": max((s[-1] for s in self._shapes), default=None)}
        evidence |= figures | self._source.report() | {"error": one_line(error, 1000), "remedies": list(_REMEDIES)}
        allocated = figures.get("system/allocated_gib")
        held = (
            f"{allocated:.2f} GiB allocated, {figures['system/reserved_gib']:.2f} reserved"
            if allocated is not None
            else f"{figures['system/rss_gib']:.2f} GiB resident"
        )
        text = f"out of memory in step {self.run.step} at a batch of {_describe(self._shapes)}; {held}. In this order: "
        text += "; ".join(f"{i}. {remedy}" for i, remedy in enumerate(_REMEDIES, 1))
        self.run.event(
            "oom",
            self.yaml_name,
            "out of memory",
            text,
            level="error",
            step=self.run.step,
            evidence=evidence,
            action="keep" if will_retry(self.run.trainer.args, error) else "kill",
            suggest=self._smaller_batch(),
        )

    def _smaller_batch(self) -> dict:
        """The same total batch in smaller pieces; nothing where the micro-batch is 1 already."""
        args = self.run.trainer.args
        batch, accumulation = args.per_device_train_batch_size, args.gradient_accumulation_steps
        if batch > 1:
            factor = next(n for n in range(2, batch + 1) if batch % n == 0)
            return {
                "per_device_train_batch_size": batch // factor,
                "gradient_accumulation_steps": accumulation * factor,
            }
        model_args = self.context.arguments.get("model_args")
        return (
            {"disable_gradient_checkpointing": False}
            if getattr(model_args, "disable_gradient_checkpointing", 0)
            else {}
        )

    def summary(self) -> dict:
        values = self.run.last.values
        names = ("peak_reserved_gib", "margin_gib", "rss_gib")
        return {name: values[f"system/{name}"] for name in names if f"system/{name}" in values}

    def end(self) -> None:
        self._source.close()


_REMEDIES = (
    "halve per_device_train_batch_size and double gradient_accumulation_steps (same total batch)",
    "gradient checkpointing (disable_gradient_checkpointing: false): no stored activations, about a third more compute",
    "evaluation under inference mode with per_device_eval_batch_size: 1, if it was an evaluation that ran out",
    "a smaller cutoff_len, if the longest rows are not needed; calling empty_cache is no cure",
)


def _describe(shapes: list[list[int]]) -> str:
    return " + ".join(" x ".join(map(str, shape)) for shape in shapes[:8]) or "unknown shape"
