"""What each step of the measuring run is for. Each loader begins with the same row, so that blocks can be compared."""

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from ...callbacks.cgroup import ControlGroup, usable_cpus
from . import workers
from .loader import Loader, Ready, seconds_to_load

#: steps before anything is measured: allocators, kernels and caches settle
WARM = 3
#: seconds that a block should take, and the bounds on its steps
_BLOCK_S, _FEWEST, _MOST = 20.0, 4, 24
#: passes over the ready batches: their difference is the noise
_PASSES = 2
#: of the batches kept ready on the device
_READY_BYTES = 256 << 20
_LOGS = 6
#: seconds that the evaluation and the loading alone may take
_EVALUATION_S, _LOADING_S = 20.0, 10.0


@dataclass(eq=False)
class Planned:
    """One step.

    Attributes:
        block: loader:N (N workers) | ready | log | evaluate | save | rest.
        source: where its batches come from.
        index: which of the block's measured batches; None where the step is not measured.
        then: what the Trainer does after it: log | evaluate | save | None. Its time falls into the step after it.
        loaded: the batches, once a loader gave them.
    """

    block: str
    source: Loader | Ready
    index: int | None = None
    then: str | None = None
    loaded: Ready | None = None


class Plan:
    """The steps of one measuring run, decided while it runs.

    Args:
        trainer: it has begun to train.
        costs: seconds spent in each callback so far, by its name.
        steps: measured steps of a block, None to choose.
        log, evaluate, save: what is measured besides.

    Attributes:
        found: what was measured outside of steps, for the parent: `workers`, `evaluation`, `save`, `starts`, ...
    """

    def __init__(
        self, trainer, costs: Callable[[], dict[str, float]], steps: int | None, log: bool, evaluate: bool, save: bool
    ):
        args = trainer.args
        self._costs, self._step_s = costs, 0.0
        self._trainer, self._wanted, self._device = trainer, steps, args.device
        self._log, self._evaluate, self._save = log, evaluate and trainer.eval_dataset is not None, save
        self._accumulation, self._current = args.gradient_accumulation_steps, args.dataloader_num_workers
        self._ready: list[Ready] = []
        self.found: dict = {"current_workers": self._current, "starts": {}, "device": str(args.device.type)}
        if args.device.type == "cuda":
            self.found["device"] = torch.cuda.get_device_name(args.device)

    def steps(self) -> Iterator[Planned]:
        """One after the other.

        What stands between two `yield`s runs before the former step's row is closed and counts into it, so a step that
        is measured is never followed by work: a "rest" comes first.
        """
        warm = Loader(self._trainer, self._current)
        durations = []
        for _ in range(WARM):
            began = time.perf_counter()
            yield Planned("warm", warm)
            durations.append(time.perf_counter() - began)
        warm.close()
        count = self._wanted or max(_FEWEST, min(_MOST, round(_BLOCK_S / max(min(durations), 1e-3))))
        yield from self._loaded(self._current, count, keep=True)
        yield from self._model()
        if self._log:
            yield from self._logging()
        yield from self._workers(count)
        if self._evaluate:
            yield from self._evaluation()
        if self._save:
            yield from self._saving()

    # ---- the model and the loader

    def _loaded(self, number: int, count: int, keep: bool = False) -> Iterator[Planned]:
        """A block with a loader of so many workers.

        What was loaded ahead while the workers had the machine for themselves is used up first, unmeasured.
        """
        loader, block = Loader(self._trainer, number), f"loader:{number}"
        ahead = number * (self._trainer.args.dataloader_prefetch_factor or 2)
        settle = 1 + -(-ahead // self._accumulation)
        room = _READY_BYTES
        for index in range(-settle, count):
            planned = Planned(block, loader, index if index >= 0 else None)
            yield planned
            if keep and index >= 0 and room > 0:
                self._ready.append(planned.loaded)
                room -= planned.loaded.nbytes
        yield Planned("rest", self._ready[0])
        self.found["starts"][str(number)] = loader.starts
        loader.close()

    def _model(self) -> Iterator[Planned]:
        """The same batches again, ready on the device."""
        yield Planned("rest", self._ready[0])
        before, durations = self._costs(), []
        for _ in range(_PASSES):
            for index, ready in enumerate(self._ready):
                began = time.perf_counter()
                yield Planned("ready", ready, index)
                durations.append(time.perf_counter() - began)
        self._step_s = statistics.fmean(durations)
        self.found["callbacks_s"] = {name: total - before.get(name, 0.0) for name, total in self._costs().items()}

    def _logging(self) -> Iterator[Planned]:
        for number in range(_LOGS + 1):  # the first opens files
            yield Planned("log", self._ready[number % len(self._ready)], number - 1 if number else None, "log")
        for _ in range(2):  # the first holds the time of the last log
            yield Planned("rest", self._ready[0])

    # ---- workers

    def _workers(self, count: int) -> Iterator[Planned]:
        """Work out how many could pay, then measure with them."""
        threads = 1 if self._device.type != "cpu" else torch.get_num_threads()
        usable = usable_cpus(ControlGroup())
        cores = max(usable - threads, 1.0)
        alone = seconds_to_load(self._trainer, max(8, 2 * self._accumulation), _LOADING_S)
        advice = {"load": alone, "model_s": self._step_s, "usable_cpus": usable, "cores_left": cores, "tried": []}
        self.found["workers"] = advice
        if alone is None:
            return
        advice["needed"] = workers.needed(alone["wall_s"] * self._accumulation, self._step_s)
        most = workers.room(cores, alone["cpu_s"] / max(alone["wall_s"], 1e-9))
        shards = getattr(self._trainer.train_dataset, "num_shards", None)
        if shards is not None and not hasattr(self._trainer.train_dataset, "__len__"):
            most = min(most, shards)  # of a stream: a worker without a part of it has nothing to do
        advice["most"] = most
        for number in workers.candidates(self._current, advice["needed"], most):
            yield from self._loaded(number, count)
            advice["tried"].append(number)

    # ---- evaluation and saving

    def _evaluation(self) -> Iterator[Planned]:
        """A short one that does not count, then as many rows as fit into `_EVALUATION_S`."""
        trainer, whole = self._trainer, self._trainer.eval_dataset
        first, began = 2 * trainer.args.eval_batch_size, time.perf_counter()
        trainer.eval_dataset, rows = part_of(whole, first)
        yield Planned("evaluate", self._ready[0], None, "evaluate")
        yield Planned("rest", self._ready[0])
        each = max(time.perf_counter() - began - 2 * self._step_s, 1e-4) / max(rows, 1)
        vars(trainer).pop("_eval_dataloaders", None)  # with persistent workers they are kept, whatever the rows
        trainer.eval_dataset, rows = part_of(whole, max(first, int(_EVALUATION_S / each)))
        yield Planned("evaluate", self._ready[0], 0, "evaluate")
        yield Planned("rest", self._ready[0])
        trainer.eval_dataset = whole
        self.found["evaluation"] = {"rows": rows, "of": length_of(whole)}

    def _saving(self) -> Iterator[Planned]:
        args = self._trainer.args
        wanted, free = self._bytes_to_save(), shutil.disk_usage(args.output_dir).free
        self.found["save"] = {"estimated_bytes": wanted, "free_bytes": free, "bytes": None}
        if wanted * 1.2 > free:
            return
        planned = Planned("save", self._ready[0], 0, "save")
        yield planned
        step = self._trainer.state.global_step
        yield Planned("rest", self._ready[0])
        folder = Path(args.output_dir) / f"checkpoint-{step}"
        self.found["save"]["bytes"] = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        shutil.rmtree(folder, ignore_errors=True)

    def _bytes_to_save(self) -> int:
        """Weights that a checkpoint holds and, unless `save_only_model`, the optimizer's state."""
        trainer = self._trainer
        adapter = hasattr(trainer.model, "peft_config")
        weights = [p for p in trainer.model.parameters() if p.requires_grad or not adapter]
        state = getattr(trainer.optimizer, "state", {}) if not trainer.args.save_only_model else {}
        tensors = [value for one in state.values() for value in one.values() if isinstance(value, torch.Tensor)]
        return sum(tensor.numel() * tensor.element_size() for tensor in (*weights, *tensors))


def length_of(dataset) -> int | None:
    """Rows of an evaluation set, or of all together; None for a stream."""
    parts = list(dataset.values()) if isinstance(dataset, dict) else [dataset]
    lengths = [len(part) if hasattr(part, "__len__") else None for part in parts]
    return None if None in lengths else sum(lengths)


def part_of(dataset, rows: int):
    """At most so many rows of an evaluation set, evenly spread, and how many they are.

    Of several sets each gives its part. A stream gives its first rows.
    """
    if isinstance(dataset, dict):
        share = max(1, rows // max(len(dataset), 1))
        parts = {name: part_of(part, share) for name, part in dataset.items()}
        return {name: part for name, (part, _) in parts.items()}, sum(count for _, count in parts.values())
    if not hasattr(dataset, "__len__"):
        return dataset.take(rows), rows
    whole = len(dataset)
    if rows >= whole:
        return dataset, whole
    return dataset.select([i * whole // rows for i in range(rows)]), rows
