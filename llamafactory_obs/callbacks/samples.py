"""`samples`: which rows of which data set were in each batch, as a local audit log."""

import contextlib
import copy
import time
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from ..detect import MovedLabelsDetector
from ..record.schema import Key
from ..samples.content import IGNORE, shift_of
from ..samples.index import RowIndex
from ..samples.log import SampleLog, Step
from ..samples.micro_batch import MicroBatch
from ..samples.provenance import following
from ..samples.segment import rank_writer, tell_segment, told_segment
from .arrivals import HostCopy
from .base import ObsCallback
from .batch_shape import segments_for, segments_of
from .label_rule import convention_is_known, why_not_comparable
from .replay import continues_here

_MOVED = "data/labels_moved"
#: characters of a sample's text
_HEAD = 120


class _Arrays(HostCopy):
    """Brings tensors to the host as numpy arrays of their own."""

    def values(self) -> list[np.ndarray]:
        return [tensor.cpu().numpy().copy() if self._on_host else tensor.cpu().numpy() for tensor in self._host]


@dataclass(eq=False)
class Samples(ObsCallback):
    """Writes `samples.jsonl`: for each step and rank the samples of its batch, with their rows in the training set and
    in the data they come from. A sample is known by its content: what the model was really given.
    """

    yaml_name: ClassVar[str] = "samples"
    keys: ClassVar[tuple[Key, ...]] = (
        Key(
            _MOVED,
            "tokens",
            "labels that are not the token at their own position; 0 in a healthy run of a causal language model",
            "sum",
        ),
    )

    every: int = 1
    """Steps between two logged ones. A step with moved labels is logged in any case."""

    text: bool = False
    """Log the beginning of each sample's text too (120 characters)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1:
            raise ValueError(f"every must be 1 or more, got {self.every}")
        self._sources = self._index = self._log = None
        self._began = False

    @contextlib.contextmanager
    def workflow(self, arguments: dict):
        if not arguments["training_args"].do_train:
            yield
            return
        with following(arguments["data_args"]) as self._sources:
            yield

    def begin(self) -> None:
        trainer = self.run.trainer
        dataset = getattr(trainer, "train_dataset", None)
        self._rank = trainer.args.process_index
        self._continues = continues_here(trainer) or self._began
        self._began = True
        self._pad_id = getattr(getattr(trainer, "processing_class", None), "pad_token_id", None)
        columns = getattr(dataset, "column_names", None) or ()
        self._pairs = "chosen_input_ids" in columns or self.context.stage in ("dpo", "rm")
        self._detector = MovedLabelsDetector()
        self._comparable: bool | None = None
        self._said: set[str] = set()
        self._problem: str | None = None
        self._log = None
        if self._rank == 0:
            tell_segment(self.run.journal.writer.segment)
        if self._index is None or self._index.dataset is not dataset:
            self._index = RowIndex(dataset)

    def _open_log(self) -> SampleLog:
        """When the first step ends: by then rank 0 has set an older record aside and told its segment."""
        trainer, rank, continues = self.run.trainer, self._rank, self._continues
        segment = told_segment() if rank else self.run.journal.writer.segment

        def open_writer(on_error):
            return rank_writer(trainer.args.output_dir, rank, segment, continues, on_error)

        return SampleLog(open_writer, rank, self._index, self._sources, self._head())

    def _head(self):
        """What gives a sample's text; by its own tokenizer: a fast one must not be asked from two threads at once."""
        tokenizer = copy.deepcopy(getattr(self.run.trainer, "processing_class", None)) if self.text else None
        if not hasattr(tokenizer, "decode"):
            return None

        def head(ids: np.ndarray) -> str:
            return tokenizer.decode(ids[:_HEAD].tolist())[:_HEAD]

        return head

    # ---- the hot path -------------------------------------------------------------------------------------------

    def batch(self, inputs) -> None:
        ids = inputs.get("input_ids") if hasattr(inputs, "get") else None
        if not isinstance(ids, torch.Tensor) or ids.dim() != 2:
            self._say("unavailable", "no input ids", "this trainer's batches have no input_ids: nothing to log")
            return
        if self._comparable is None:
            self._decide(inputs)
        with torch.no_grad():
            segments = segments_for(self.run, inputs, self._pad_id)
            if segments.note:
                self._say("note", "padding", segments.note)
            tensors = [_stacked(ids, inputs.get("labels"), segments.real)]
            kl = inputs.get("kl_input_ids")
            if isinstance(kl, torch.Tensor):
                part = {"input_ids": kl, "attention_mask": inputs.get("kl_attention_mask")}
                tensors.append(_stacked(kl, inputs.get("kl_labels"), segments_of(part, self._pad_id).real))
        self.run.defer(tensors, self._arrived, _Arrays)

    def _decide(self, inputs) -> None:
        why = why_not_comparable(self.run.trainer, inputs)
        self._comparable = not why
        if why:
            self._say("unavailable", "labels not compared", f"{_MOVED} is not known: {why}")

    def _arrived(self, row, *arrays: np.ndarray) -> None:
        main, *kl = [_micro_batch(array, self._pairs) for array in arrays]
        batch = replace(main, kl=replace(kl[0], pairs=False) if kl else None)
        row.facts.setdefault("samples", []).append(batch)
        if not self._comparable:
            return
        moved = 0
        if batch.labels is not None:
            moved = int(((batch.labels != IGNORE) & (batch.labels != batch.ids) & batch.real).sum())
        if moved and self._moved_by_trainer(batch):
            return
        row.values[_MOVED] = row.values.get(_MOVED, 0) + moved

    def _moved_by_trainer(self, batch: MicroBatch) -> bool:
        """Are they, in a trainer that we do not know, all of them the next token? Its loss may want them so."""
        if convention_is_known(self.run.trainer):
            return False
        if any(shift_of(one.ids, one.labels) != 1 for one in batch.sequences() if one.moved):
            return False
        self._comparable = False
        kind = type(self.run.trainer).__name__
        text = f"{_MOVED} is not known: labels are the next tokens, and {kind}'s own loss may want them so"
        self._say("unavailable", "labels not compared", text)
        return True

    def step(self) -> None:
        if self._log is not None and self._log.error is not None:
            raise self._log.error
        if self._log is None:
            self._log = self._open_log()
            self._say_what_is_missing()
        self.run.defer([], self._finisher(self.run.trainer.state.global_step, time.time()), _Arrays)
        if self._log.problem != self._problem:
            self._problem = self._log.problem
            text = f"{self._problem}; training goes on"
            self.run.event("record_gap", self.yaml_name, "rows lost", text, level="warn")

    def _finisher(self, step: int, now: float):
        def finish(row) -> None:
            batches = row.facts.get("samples", [])
            if step % self.every == 0 or row.values.get(_MOVED):
                self._log.add(Step(step, now, batches))
            if not row.values.get(_MOVED):
                row.facts.pop("samples", None)

        return finish

    # ---- what it finds ------------------------------------------------------------------------------------------

    def row(self, row) -> None:
        finding = self._detector.update(row.step, row.values.get(_MOVED))
        batches = row.facts.pop("samples", [])
        if finding is None:
            return
        if finding.name == "labels_moved":
            finding = self._explained(finding, row, batches)
        self.run.alert(self.yaml_name, finding)

    def _explained(self, finding, row, batches: list[MicroBatch]):
        """Where it is: the samples of this rank, else the ranks that have it."""
        damaged, shifts = [], set()
        for batch in batches:
            for sample, key, sequences in batch.samples():
                if any(one.moved for one in sequences):
                    damaged.append(self._log.place(key, sample))
                    shifts |= {shift_of(one.ids, one.labels) for one in sequences if one.moved}
        counts = row.per_rank.get(_MOVED) or []
        ranks = [rank for rank, count in enumerate(counts) if count]
        evidence: dict = {"samples": [{"row": one["row"], "sources": one["sources"]} for one in damaged[:8]]}
        text = finding.text
        if len(shifts) == 1 and None not in shifts:
            evidence["shift"] = shift = shifts.pop()
            text += f"; they are shifted by {shift:+d}: the label at i is the token at i{shift:+d}"
        if damaged:
            text += f". In {len(damaged)} samples: {'; '.join(map(_named, damaged[:4]))}"
            text += " ..." if len(damaged) > 4 else ""
        if len(counts) > 1:
            evidence["ranks"] = ranks
            text += f". On rank {', '.join(map(str, ranks))} of {len(counts)}"
        text += f". Look at them: llamafactory-obs replay {self.run.trainer.args.output_dir} --step {row.step}"
        return replace(finding, text=text, evidence=finding.evidence | evidence)

    def _say_what_is_missing(self) -> None:
        """Once, what the log will not have."""
        if self._index.ready and self._index.why:
            self._say("note", "rows not known", f"samples are logged by their content alone: {self._index.why}")
        sources = self._sources
        if sources is not None and sources.why:
            text = f"samples are logged without their source: {sources.why}"
            self._say("note", "sources not known", text, warn=sources.failed)

    def _say(self, kind: str, title: str, text: str, warn: bool = False) -> None:
        if title not in self._said:
            self._said.add(title)
            level = "warn" if warn or kind == "unavailable" else "info"
            self.run.event(kind, self.yaml_name, title, text, level=level)

    # ---- the end ------------------------------------------------------------------------------------------------

    def end(self) -> None:
        if self._log is None:
            return
        self._log.close()
        self._say_what_is_missing()
        log = self._log
        if log.dropped:
            text = (
                f"{log.dropped} steps are not in the log of rank {self._rank}: they came faster than they were written"
            )
            self._say("record_gap", "steps lost", text, warn=True)
        if log.unplaced and not self._index.why:
            text = (
                f"{log.unplaced} of {log.unplaced + log.placed} logged samples of rank {self._rank} are not rows of the"
                " training set: something changes their tokens after it (a collator, a transform)"
                if self._index.ready
                else f"{log.unplaced} samples are logged by their content alone: the training set was not read in time"
            )
            self._say("note", "samples not found", text, warn=True)
        if self._detector.steps > 1:
            text = (
                f"{self._detector.steps} steps had labels that are not their tokens; the last was {self._detector.last}"
            )
            self._say("summary", "moved labels", text, warn=True)

    def failed(self, error: BaseException) -> None:
        """The batch in which training broke off is on record as far as it got."""
        row = self.run.open_row
        with contextlib.suppress(Exception):
            row.harvest(force=False)  # a device that is broken answers nothing
        batches = row.facts.get("samples")
        if batches:
            self._log = self._log or self._open_log()
            self._log.add(Step(self.run.step, time.time(), batches, incomplete=True))

    def off(self) -> None:
        if self._log is not None:
            self._log.close()
        elif self._index is not None:
            self._index.stop()


def _stacked(ids: torch.Tensor, labels, real: torch.Tensor) -> torch.Tensor:
    """Ids, real and, where they are labels of tokens, the labels as one int32 tensor; shape [2 or 3, B, L]."""
    parts = [ids, real]
    if isinstance(labels, torch.Tensor) and labels.shape == ids.shape and not labels.is_floating_point():
        parts.append(labels)
    return torch.stack([part.to(torch.int32) for part in parts])


def _micro_batch(array: np.ndarray, pairs: bool) -> MicroBatch:
    ids, real = array[0], array[1] != 0
    return MicroBatch(ids, real, array[2] if len(array) > 2 else None, pairs and len(ids) % 2 == 0)


def _named(sample: dict) -> str:
    """`row 7 (orders row 3)`."""
    row = "not in the training set" if sample["row"] is None else f"row {sample['row']}"
    sources = ", ".join(f"{name} row {number}" for name, number in (sample["sources"] or [])[:4])
    return f"{row} ({sources})" if sources else row
