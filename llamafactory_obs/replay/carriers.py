"""Which samples of a batch carry what is out of the ordinary: each left out in turn, then all of them together."""

from dataclasses import dataclass, field

from .ordinary import Judged, judge
from .passes import Passed, Passes
from .rebuilt import Batch, Sample

#: samples whose part of the gradient is looked at singly: two passes of one sample each
_MOST = 32


@dataclass(frozen=True)
class Inside:
    """One conversation of a packed sample: its source, the mean loss of its labels, and that beside all others'."""

    source: tuple[str, int]
    loss: float
    judged: Judged | None


@dataclass
class Part:
    """What one sample has to do with it.

    Attributes:
        loss: mean of its label tokens; None where it has none, or did not run.
        loss_rank: 1 for the highest loss among all samples of all batches of this replay.
        judged: its loss beside those of all ordinary samples.
        loss_without, grad_norm_without: of the batch without it; None where not looked at.
        carries: it is one of those that carry it.
        inside: the conversations of a packed sample that have a label.
    """

    sample: Sample
    loss: float | None = None
    loss_rank: int | None = None
    judged: Judged | None = None
    loss_without: float | None = None
    grad_norm_without: float | None = None
    carries: bool = False
    inside: list[Inside] = field(default_factory=list)

    @property
    def sources(self) -> list[tuple[str, int]]:
        """Where it comes from; of a packed sample those conversations that stand out, where any does."""
        out = [one.source for one in self.inside if one.judged is not None and one.judged.out]
        return out or list(self.sample.sources)


@dataclass
class Carriers:
    """The samples that carry it, and the batch without all of them.

    Attributes:
        parts: of all samples, in the order of the batch.
        loss, grad_norm: without the carriers; None where nothing is left, or there are none.
        ordinary_without: the batch is ordinary without them; None where that cannot be told.
    """

    parts: list[Part]
    loss: float | None = None
    grad_norm: float | None = None
    ordinary_without: bool | None = None
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)

    @property
    def found(self) -> list[Part]:
        """Those that carry it."""
        return [part for part in self.parts if part.carries]


def parts_of(batch: Batch, passed: Passed, ordinary: list[tuple[Batch, Passed]]) -> Carriers:
    """The samples of a batch that ran, each beside all samples of the ordinary ones."""
    others = [mean for one, its in ordinary for mean in map(its.mean, one.samples) if mean is not None]
    means = {id(sample): passed.mean(sample) for sample in batch.samples if sample.runs}
    packed = [total / count for _, its in ordinary for one in its.inside.values() for total, count in one if count]
    parts = []
    for sample in batch.samples:
        loss = means.get(id(sample))
        part = Part(sample, loss)
        if loss is not None:
            mine = [one for one in means.values() if one is not None]
            part.loss_rank = 1 + sum(one > loss for one in [*others, *mine])
            part.judged = judge("loss", loss, others)
        conversations = zip(sample.sources, passed.inside.get(id(sample), ()), strict=False)
        means_inside = [(source, total / count) for source, (total, count) in conversations if count]
        part.inside = [Inside(source, mean, judge("loss", mean, packed)) for source, mean in means_inside]
        parts.append(part)
    return Carriers(parts, losses=[its.loss for _, its in ordinary], norms=[its.grad_norm for _, its in ordinary])


def leave_out(carriers: Carriers, passed: Passed, passes: Passes, altered_out: bool) -> None:
    """Fill in what the batch is without each sample, and which ones carry it. `passes` has just run the batch.

    Args:
        altered_out: the share of labels that are not their token is out of the ordinary.
    """
    running = [part for part in carriers.parts if part.sample.runs]
    for part in running:
        judged = [part.judged, *(one.judged for one in part.inside)]
        stands_out = any(one is not None and one.out for one in judged)
        part.carries = stands_out or (altered_out and part.sample.altered > 0)
    worth = sorted(running, key=lambda part: (not part.carries, -(part.loss or 0.0)))
    for part in running:
        part.loss_without = passed.loss_without([part.sample])
    for part in worth[:_MOST]:
        part.grad_norm_without = passes.grad_norm_without(part.sample, passed)
        passes.put_back(part.sample)
    if carriers.found:
        _without(carriers, carriers.found, passed, passes)
    else:
        _one_after_another(carriers, worth[:_MOST], passed, passes)


def _without(carriers: Carriers, gone: list[Part], passed: Passed, passes: Passes) -> None:
    for part in gone:
        carriers.grad_norm = passes.grad_norm_without(part.sample, passed)
    _judge_rest(carriers, gone, passed)


def _one_after_another(carriers: Carriers, candidates: list[Part], passed: Passed, passes: Passes) -> None:
    """No sample stands out by its loss: take away those whose absence helps most, up to half of the batch."""
    known = [part for part in candidates if part.grad_norm_without is not None]
    gone: list[Part] = []
    for part in sorted(known, key=lambda part: part.grad_norm_without)[: len(carriers.parts) // 2]:
        gone.append(part)
        carriers.grad_norm = passes.grad_norm_without(part.sample, passed)
        _judge_rest(carriers, gone, passed)
        if carriers.ordinary_without:
            for one in gone:
                one.carries = True
            return
    carriers.loss = carriers.grad_norm = carriers.ordinary_without = None


def _judge_rest(carriers: Carriers, gone: list[Part], passed: Passed) -> None:
    carriers.loss = passed.loss_without([part.sample for part in gone])
    judged = [judge("loss", carriers.loss, carriers.losses), judge("grad_norm", carriers.grad_norm, carriers.norms)]
    known = [one for one in judged if one is not None]
    carriers.ordinary_without = not any(one.out for one in known) if len(known) == len(judged) else None
