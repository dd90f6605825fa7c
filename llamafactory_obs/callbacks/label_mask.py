"""`label_mask`: how much of each batch is in the loss."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import transformers

from ..detect import BandDetector, NormaliserDetector
from ..record.schema import Key
from ..settings import parse_range
from .base import ObsCallback
from .batch_shape import Segments, segments_for

#: labels that cross entropy leaves out (LlamaFactory's IGNORE_INDEX)
IGNORE = -100


@dataclass(eq=False)
class LabelMask(ObsCallback):
    """Counts tokens of every micro-batch on the device; the shares are over real tokens, never over padding.

    Three meanings of "tokens" are kept apart: `data/cells` all positions of the padded batch, `data/tokens` those of
    real text, `data/supervised_tokens` those with a label. A sample is one conversation, also inside a packed sequence.
    """

    yaml_name: ClassVar[str] = "label_mask"
    keys: ClassVar[tuple[Key, ...]] = (
        Key("data/cells", "tokens", "positions of the batch, padding included", "sum"),
        Key(
            "data/tokens",
            "tokens",
            "real tokens: attention mask, or position ids where packing hides the padding",
            "sum",
        ),
        Key("data/supervised_tokens", "tokens", "positions with a label: what the loss is taken over", "sum"),
        Key("data/supervised_padding", "tokens", "of these, positions that are padding; 0 in a healthy run", "sum"),
        Key("data/samples", "samples", "conversations in the batch, packed ones counted singly", "sum"),
        Key("data/fully_masked", "samples", "conversations without any label: nothing to learn from", "sum"),
        Key(
            "data/truncated",
            "samples",
            "conversations as long as cutoff_len: their end may be cut (not for `pt`)",
            "sum",
        ),
        Key("data/max_length", "tokens", "longest conversation", "max"),
        Key("data/min_supervised_ratio", "0..1", "smallest share of labels within one conversation", "min"),
        Key("data/supervised_ratio", "0..1", "real tokens with a label / data/tokens", "same"),
        Key("data/padding_ratio", "0..1", "1 - data/tokens / data/cells", "same"),
        Key("data/truncated_ratio", "0..1", "data/truncated / data/samples", "same"),
    )

    range: list | tuple | None = None
    """Wanted moving share, two fractions. Default: `obs: mask_range`, else 0.2-0.4; for `pt` 0.99-1, for preference
    stages not judged."""

    window: int = 50
    """Steps over which the moving share is taken."""

    min_steps: int = 5
    """Steps before the moving share is judged."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.range = parse_range("range", self.range)
        if not 1 <= self.min_steps <= self.window:
            raise ValueError(f"min_steps must be from 1 to window ({self.window}), got {self.min_steps}")

    def begin(self) -> None:
        stage = self.context.stage
        usual = self.context.settings.mask_range or (0.2, 0.4)  # for conversations; others have their own truth
        limits = self.range or {"pt": (0.99, 1.0), "rm": None, "dpo": None, "kto": None}.get(stage, usual)
        self._band = None
        if limits is not None:
            self._band = BandDetector(*limits, window=self.window, min_steps=min(self.min_steps, self.window))
        # with `pt` cutoff_len is the length of a block, not a limit that cuts conversations
        self._cutoff = None if stage == "pt" else self.context.data("cutoff_len")
        tokenizer = getattr(self.run.trainer, "processing_class", None)
        self._pad_id = getattr(tokenizer, "pad_token_id", None)
        self._normaliser = NormaliserDetector(version=transformers.__version__)
        self._said: set[str] = set()
        self._masked_total = 0

    def batch(self, inputs) -> None:
        labels = inputs.get("labels") if hasattr(inputs, "get") else None
        if not isinstance(labels, torch.Tensor) or labels.dim() != 2:
            stage = f"the stage {self.context.stage!r}" if self.context.stage else "this trainer"
            self._say_once("unavailable", "no labels", f"{stage} gives batches without labels: nothing to count")
            return
        self._keep_normaliser(self.run.of_batch["normaliser"])
        with torch.no_grad():
            segments = segments_for(self.run, inputs, self._pad_id)
            if segments.note:
                self._say_once("note", "padding", segments.note)
            counts = self._count(labels, segments)
        self.run.defer([counts], _add_counts if self._cutoff else _add_counts_without_cutoff)

    def _keep_normaliser(self, number) -> None:
        """What this micro-batch's loss will be divided by, to be judged with the row."""
        if isinstance(number, torch.Tensor):
            self.run.defer([number.detach().reshape(-1).sum()], _add_normaliser)  # one number for each replica
        else:
            _add_normaliser(self.run.open_row, number)

    def _count(self, labels: torch.Tensor, segments: Segments) -> torch.Tensor:
        """The nine figures of one micro-batch as one float64 tensor on the batch's device; no host sync."""
        supervised = labels != IGNORE
        lengths, labelled = segments.per_sample(segments.real), segments.per_sample(supervised & segments.real)
        exists = lengths > 0
        share = torch.where(exists, labelled.double() / lengths.clamp(min=1), 1.0)
        cut = lengths >= self._cutoff if self._cutoff else torch.zeros_like(exists)
        figures = [
            torch.full((), labels.numel(), device=labels.device),  # a fill, no copy from the host
            lengths.sum(),
            supervised.sum(),
            (supervised & ~segments.real).sum(),
            exists.sum(),
            (exists & (labelled == 0)).sum(),
            cut.sum(),
            lengths.max(),
            share.min(),
        ]
        return torch.stack([figure.to(torch.float64) for figure in figures])

    def derive(self, values: dict) -> None:
        tokens, cells, samples = (values.get(f"data/{name}") for name in ("tokens", "cells", "samples"))
        if not tokens:
            return
        values["data/supervised_ratio"] = _supervised(values) / tokens
        values["data/padding_ratio"] = 1 - tokens / cells
        if "data/truncated" in values:
            values["data/truncated_ratio"] = values["data/truncated"] / samples

    def row(self, row) -> None:
        values = row.values
        finding = self._normaliser.update(row.step, row.facts.get("normalisers", []))
        if finding is not None:
            self.run.alert(self.yaml_name, finding)
        if not values.get("data/tokens"):
            return
        if self._band is not None:
            finding = self._band.update(row.step, _supervised(values), values["data/tokens"])
            if finding is not None:
                self.run.alert(self.yaml_name, finding)
        if values["data/supervised_padding"]:
            text = (
                f"{int(values['data/supervised_padding'])} padded positions of step {row.step} have a label: the"
                " model is taught to write padding (ignore_pad_token_for_loss: false, or labels made elsewhere)"
            )
            self._say_once("alert", "padding in the loss", text, step=row.step)
        masked = int(values.get("data/fully_masked", 0))
        if masked:
            self._masked_total += masked
            text = (
                f"{masked} of {int(values['data/samples'])} samples of step {row.step} have no label at all: nothing to"
                " learn from them. Usual causes: an answer cut off by cutoff_len, a wrong template, wrong role tags."
                " Later ones are counted in data/fully_masked"
            )
            evidence = {"fully_masked": masked, "samples": int(values["data/samples"])}
            self._say_once("alert", "fully masked samples", text, evidence=evidence, step=row.step)

    def end(self) -> None:
        if self._masked_total:
            text = f"{self._masked_total} samples without any label were trained on"
            self._say_once("summary", "fully masked samples", text, evidence={"fully_masked": self._masked_total})

    def summary(self) -> dict:
        values = self.run.last.values
        names = ("supervised_ratio", "padding_ratio", "max_length")
        return {name: values[f"data/{name}"] for name in names if f"data/{name}" in values}

    def _say_once(self, kind: str, title: str, text: str, **more) -> None:
        if title + kind not in self._said:
            self._said.add(title + kind)
            self.run.event(kind, self.yaml_name, title, text, level="info" if kind == "note" else "warn", **more)


_SUMS = tuple(
    f"data/{name}"
    for name in ("cells", "tokens", "supervised_tokens", "supervised_padding", "samples", "fully_masked", "truncated")
)


def _supervised(values: dict) -> float:
    """Real tokens with a label."""
    return values["data/supervised_tokens"] - values["data/supervised_padding"]


def _add_counts(row, counts: list[float]) -> None:
    """Add one micro-batch to the step's row."""
    *sums, longest, share = counts
    for name, number in zip(_SUMS, sums, strict=True):
        row.values[name] = row.values.get(name, 0.0) + number
    row.values["data/max_length"] = max(row.values.get("data/max_length", 0.0), longest)
    row.values["data/min_supervised_ratio"] = min(row.values.get("data/min_supervised_ratio", 1.0), share)


def _add_counts_without_cutoff(row, counts: list[float]) -> None:
    _add_counts(row, counts)
    row.values.pop("data/truncated", None)


def _add_normaliser(row, number: float | None) -> None:
    row.facts.setdefault("normalisers", []).append(number)
