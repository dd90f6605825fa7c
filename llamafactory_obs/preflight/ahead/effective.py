"""Every argument of a run as LlamaFactory will have it: as given, else its own default, on any machine."""

import math
import os
from dataclasses import MISSING, fields
from pathlib import Path

from ... import texts
from ..run_config import MACHINE, Arguments, RunConfig

#: what `run_config.parsed` sets itself; what the config gives counts instead
_REPLACED = MACHINE | {"output_dir", "overwrite_output_dir", "report_to", "use_cpu"}
#: the output_dir of a config that names none (transformers 5.6.0, `TrainingArguments.__post_init__`)
UNNAMED = "trainer_output"
#: optimizer steps up to which a run is a trial: nothing is lost when it has to start again
SHORT_RUN = 100


class Effective:
    """The arguments of a run config.

    Args:
        config: see `run_config.read_run_config`.
        arguments: LlamaFactory's objects for it, see `run_config.parsed`.
        train_rows: rows of the training split after LlamaFactory's preprocessing; None where nobody counted them.
    """

    def __init__(self, config: RunConfig, arguments: Arguments, train_rows: int | None = None):
        self.config, self.train_rows = config, train_rows
        self._objects = (arguments.training, arguments.model, arguments.data, arguments.finetuning)

    def get(self, name: str):
        """The value of a LlamaFactory key; KeyError where it has none of that name."""
        for one in self._objects:
            field = next((field for field in fields(one) if field.name == name), None)
            if field is None:
                continue
            if name not in _REPLACED:
                return getattr(one, name)
            if name in self.config.given:
                return self.config.given[name]
            return field.default_factory() if field.default is MISSING else field.default
        raise KeyError(name)

    def knows(self, name: str) -> bool:
        """Is it a key of LlamaFactory's model, data, training or finetuning arguments?"""
        return any(field.name == name for one in self._objects for field in fields(one))

    def given(self, name: str) -> bool:
        """Does the config itself say it?"""
        return self.config.given.get(name) is not None

    def word(self, name: str) -> str:
        """An enumeration's value as text, e.g. `save_strategy`: "steps"."""
        value = self.get(name)
        return str(getattr(value, "value", value)).lower()

    @property
    def output_dir(self) -> Path:
        """Where the run is saved."""
        return Path(str(self.config.given.get("output_dir") or UNNAMED))

    @property
    def processes(self) -> int:
        """Training processes of all nodes, by the rules of LlamaFactory's launcher."""
        if os.environ.get("WORLD_SIZE", "").isdigit():
            return int(os.environ["WORLD_SIZE"])
        return self.local_processes * (_number("NNODES") if self._by_torchrun else 1)

    @property
    def local_processes(self) -> int:
        """Training processes on this machine."""
        if not self._by_torchrun:
            return 1
        return _number("NPROC_PER_NODE", _cards())

    @property
    def _by_torchrun(self) -> bool:
        on = {name: os.environ.get(name, "").lower() in ("true", "y", "1") for name in ("FORCE_TORCHRUN", "USE_RAY")}
        return on["FORCE_TORCHRUN"] or (_cards() > 1 and not on["USE_RAY"])

    @property
    def batch(self) -> int:
        """Sequences of one optimizer step, over all processes."""
        return self.get("per_device_train_batch_size") * self.get("gradient_accumulation_steps") * self.processes

    @property
    def total_steps(self) -> int | None:
        """Optimizer steps of the whole run; None where the rows are not known. transformers' own arithmetic
        (`Trainer.set_initial_training_values`); packing joins rows, then it is an upper bound."""
        if self.get("max_steps") > 0:
            return self.get("max_steps")
        per_epoch = self.steps_per_epoch
        return None if per_epoch is None else math.ceil(self.get("num_train_epochs") * per_epoch)

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps of one pass over the rows; None where the rows are not known."""
        if self.train_rows is None:
            return None
        batches = math.ceil(self.train_rows / (self.get("per_device_train_batch_size") * self.processes))
        return max(math.ceil(batches / self.get("gradient_accumulation_steps")), 1)

    @property
    def packs(self) -> bool:
        """Are rows joined, so that there are fewer sequences than rows?"""
        return bool(self.get("packing") or self.get("neat_packing"))

    @property
    def steps_text(self) -> str:
        """`total_steps` for people, with what it rests on."""
        total = self.total_steps
        if total is None or self.get("max_steps") > 0:
            return texts.text("ahead.run.steps", total=total)
        packed = texts.text("ahead.run.at_most") if self.packs else ""
        return texts.text("ahead.run.with_rows", packed=packed, total=total, rows=self.train_rows, batch=self.batch)

    @property
    def is_short(self) -> bool:
        """A trial run, `SHORT_RUN` steps at most."""
        return self.total_steps is not None and self.total_steps <= SHORT_RUN

    def interval(self, name: str) -> int | None:
        """`save_steps`, `eval_steps` or `logging_steps` in steps; a value below 1 is a share of the run, None where
        its length is not known."""
        value = self.get(name)
        if value is None:
            return None
        if value >= 1:
            return int(value)
        return None if self.total_steps is None else max(math.ceil(self.total_steps * value), 1)

    def probes_through_vllm(self, endpoint: str | None) -> bool:
        """Is it sure that checkpoints are asked through vLLM?"""
        probe = self.config.options_of("probe") or {}
        return bool(endpoint or probe.get("endpoint") or probe.get("backend") == "vllm")


def _number(variable: str, default: int = 1) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() and int(text) > 0 else default


def _cards() -> int:
    import torch

    return max(torch.cuda.device_count(), 1)
