"""What a replay found, for people and for programs."""

import math
from collections import Counter
from dataclasses import asdict, dataclass, field

from .carriers import Carriers
from .ordinary import Judged
from .rebuilt import Batch
from .weights import Weights

DATA, NOT_DATA, UNCLEAR = "data", "not_data", "unclear"


@dataclass(frozen=True)
class Figures:
    """The numbers of one batch.

    Attributes:
        loss, grad_norm: on the weights of this replay; None where it was not run.
        tokens: real ones. longest: of a sample.
        supervised_ratio: label tokens of them. altered_ratio: of these, labels that are not the token at their place.
        recorded_loss, recorded_grad_norm: of the training's own step, by `steps.jsonl`.
    """

    step: int
    loss: float | None
    grad_norm: float | None
    tokens: int
    supervised_ratio: float
    longest: int
    altered_ratio: float
    recorded_loss: float | None
    recorded_grad_norm: float | None


@dataclass
class Report:
    """One replay.

    Attributes:
        step, stage: what was replayed.
        batch: as rebuilt.
        figures, ordinary: of the batch, and of those beside it.
        compared: column of `Figures` -> the batch beside the others; of the recorded ones under their names.
        weights: they were run on; None where nothing was run.
        setting: in words: device, precision, trainable parameters.
        carriers: its samples; the sums are there only where it ran.
        verdict: data | not_data | unclear.
        title: the verdict in one sentence.
        for_data, against_data: evidence.
        limits: what it may not be taken to mean.
        advice: the one thing to do.
        rebuilt_loss: whether the training's own loss comes out again; "" where the weights are others.
        changes: why rows are not those that were trained on.
        texts: sample -> its text in pieces, for those that are shown (`show.Shown`).
        compared_samples: samples whose losses were ranked.
    """

    step: int
    stage: str
    batch: Batch
    figures: Figures
    ordinary: list[Figures] = field(default_factory=list)
    compared: dict[str, Judged] = field(default_factory=dict)
    weights: Weights | None = None
    setting: str = ""
    carriers: Carriers | None = None
    verdict: str = UNCLEAR
    title: str = ""
    for_data: list[str] = field(default_factory=list)
    against_data: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    advice: str = ""
    rebuilt_loss: str = ""
    changes: list[str] = field(default_factory=list)
    texts: list = field(default_factory=list)
    compared_samples: int = 0

    @property
    def statuses(self) -> dict[str, int]:
        """Status of a sample -> how many have it."""
        return dict(Counter(sample.status for sample in self.batch.samples))

    @property
    def exit_code(self) -> int:
        """0 where the batch is ordinary, else 1; also where it cannot be told: nothing was shown."""
        return int(self.verdict != NOT_DATA)

    def as_dict(self) -> dict:
        """For `--json`; a number that is not finite is its name as text."""
        weights = None
        if self.weights is not None:
            weights = {
                "name": self.weights.name,
                "step": self.weights.step,
                "kind": self.weights.kind or "start",
                "distance": self.weights.distance(self.step),
                "passed_over": list(self.weights.passed_over),
                "setting": self.setting,
            }
        carriers = self.carriers
        rest = None
        if carriers is not None and carriers.found:
            rest = {name: getattr(carriers, name) for name in ("loss", "grad_norm", "ordinary_without")}
        return _plain(
            {
                "step": self.step,
                "stage": self.stage,
                "verdict": self.verdict,
                "title": self.title,
                "rebuilt": self.statuses,
                "rebuilt_loss": self.rebuilt_loss,
                "changes": self.changes,
                "weights": weights,
                "batch": asdict(self.figures),
                "ordinary": [asdict(one) for one in self.ordinary],
                "compared": {name: asdict(one) for name, one in self.compared.items()},
                "samples": [self._sample(number) for number in range(len(self.batch.samples))],
                "carriers": [list(one) for part in carriers.found for one in part.sources] if carriers else [],
                "without_carriers": rest,
                "for_data": self.for_data,
                "against_data": self.against_data,
                "limits": self.limits,
                "advice": self.advice,
            }
        )

    def _sample(self, number: int) -> dict:
        sample = self.batch.samples[number]
        logged = sample.logged
        found = {
            "rank": sample.rank,
            "micro_batch": sample.micro_batch,
            "place": sample.place,
            "row": logged.row,
            "found_at": sample.position,
            "sources": None if logged.sources is None else [list(one) for one in logged.sources],
            "status": sample.status,
            "tokens": logged.tokens,
            "supervised": logged.supervised,
            "altered": sample.altered,
            "same": logged.same,
        }
        if self.carriers is None:
            return found
        part = self.carriers.parts[number]
        names = ("loss", "loss_rank", "loss_without", "grad_norm_without", "carries")
        judged = None if part.judged is None else part.judged.z
        inside = [
            {"source": list(one.source), "loss": one.loss, "loss_z": one.judged.z if one.judged else None}
            for one in part.inside
        ]
        found |= {name: getattr(part, name) for name in names}
        return found | {"loss_z": judged, "of": self.compared_samples, "conversations": inside}


def _plain(value):
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value
