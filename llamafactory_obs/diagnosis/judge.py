"""`judge`: the shape of a log, what to do about it, and what it could not show."""

import math
from collections import Counter
from dataclasses import replace

from .. import texts
from ..continuity.offline import continuity
from ..detect import Finding
from ..logs.curves import Column, Curves
from .continued import with_continuity
from .from_record import from_record, of_the_machine
from .headline import headline
from .planned import planned_curves
from .remedies import Known, with_remedies
from .result import Cause, Diagnosis
from .run_facts import RunFacts
from .shapes import Shapes
from .unseen import unseen
from .verdict import order, speaks, verdict

#: from so many rows on they are taken in bulk (which takes numpy)
LEAST_ROWS = 20_000
#: causes are looked for this many rows around a finding, for this many findings; more than `MOST_ALIKE` say no more
NEAR_ROWS, MOST_CAUSES, MOST_ALIKE = 5_000, 5, 20


def judge(curves: Curves) -> Diagnosis:
    """Runs all detectors over a log and looks for the causes of what they find."""
    last = max(curves.steps) if len(curves.steps) else 0
    notes, path = list(curves.notes), str(curves.path)
    if curves.kind == "not_a_training_log":
        said = texts.text("diagnose.no_log")
        return Diagnosis(path, curves.source, curves.kind, last, curves.kind, "none", said, notes=notes)
    shapes = Shapes(facts_of(curves))
    planned = planned_curves(curves)
    if len(curves) < LEAST_ROWS:
        feed(shapes, planned)
    else:
        from .long import feed_long

        feed_long(shapes, planned)
    shapes.finish()
    known = Known.of(curves)
    resumes = continuity(curves)
    seen = with_continuity(shapes.findings(), resumes, curves)
    found = [with_remedies(_untrusted(of_the_machine(one, _near(curves, one)), curves), known) for one in seen]
    found += from_record(curves, found)
    found, left_out = _most(order([_at_its_beginning(finding) for finding in found], shapes.run))
    notes += left_out
    name, action = verdict(found, curves.kind, shapes.run)
    if curves.kind == "rl":
        first = next((finding for finding in found if finding.level != "info"), None)
    else:
        first = found[0] if found and speaks(found[0], shapes.run) else None
    return Diagnosis(
        path=path,
        source=curves.source,
        kind=curves.kind,
        steps=last,
        verdict=name,
        action=action,
        headline=headline(action, first, curves),
        findings=found,
        causes=_causes(curves, found, shapes.run),
        unseen=unseen(curves),
        notes=notes,
        resumes=resumes,
    )


def facts_of(curves: Curves) -> RunFacts:
    """What is known of the run beside its rows."""
    return RunFacts(
        kind=curves.kind,
        logging_steps=max(1, curves.logging_steps),
        max_steps=curves.max_steps,
        settings=curves.settings,
        clock_s=_clock(curves),
        limit_gib=_limit(curves),
    )


def feed(shapes: Shapes, curves: Curves) -> None:
    """Every row, in the order of training."""
    starts = {place.row: place for place in curves.breaks}
    columns = [(name, column.values, column.present) for name, column in curves.columns.items()]
    for row, step in enumerate(curves.steps):
        if row in starts:
            shapes.begin(starts[row].kind, starts[row].evidence)
        shapes.update(step, {name: values[row] for name, values, present in columns if present[row]})


def _causes(curves: Curves, found: list[Finding], run: int) -> dict[int, list[Cause]]:
    from .causes import causes

    made = {i: causes(_near(curves, f), f) for i, f in enumerate(found[:MOST_CAUSES]) if speaks(f, run)}
    return {i: candidates for i, candidates in made.items() if candidates}


def _near(curves: Curves, finding: Finding) -> Curves:
    """The part of a very long log in which the causes of a finding lie."""
    if len(curves) < LEAST_ROWS:
        return curves
    since = finding.evidence.get("since", finding.step)
    at = next((row for row, step in enumerate(curves.steps) if step >= since), len(curves) - 1)
    start, stop = max(0, at - NEAR_ROWS), min(len(curves), at + NEAR_ROWS)
    columns = {}
    for name, column in curves.columns.items():
        columns[name] = part = Column()
        part.values, part.present = column.values[start:stop], column.present[start:stop]
    breaks = [replace(place, row=place.row - start) for place in curves.breaks if start < place.row < stop]
    return replace(curves, steps=curves.steps[start:stop], columns=columns, breaks=breaks)


def _at_its_beginning(finding: Finding) -> Finding:
    """Afterwards `step` is where it began; live it is where it was seen, which the evidence keeps."""
    since = finding.evidence.get("since")
    if not isinstance(since, int) or since >= finding.step:
        return finding
    return replace(finding, step=since, evidence={**finding.evidence, "seen_at": finding.step})


def _most(found: list[Finding]) -> tuple[list[Finding], list[str]]:
    """At most `MOST_ALIKE` findings of a name, the gravest; of spikes the highest. And what is left out, in words."""
    kept, names = [], Counter(f.name for f in found)
    many = {name for name, count in names.items() if count > MOST_ALIKE}
    for name in many:
        alike = sorted((f for f in found if f.name == name), key=lambda f: (f.action != "kill", -_height(f)))
        kept += alike[:MOST_ALIKE]
    notes = [texts.text("diagnose.left_out", count=names[name] - MOST_ALIKE, name=name) for name in sorted(many)]
    return [f for f in found if f.name not in many or f in kept], notes


def _height(finding: Finding) -> float:
    height = finding.evidence.get("ratio")
    return height if isinstance(height, int | float) else 0.0


def _untrusted(finding: Finding, curves: Curves) -> Finding:
    """Names the loss that the Trainer made up where NaN came in (logging_nan_inf_filter)."""
    if finding.name not in ("nan", "inf") or finding.action != "kill" or "train/loss" not in curves.columns:
        return finding
    losses, since = curves.columns["train/loss"], finding.evidence["since"]
    for row, step in enumerate(curves.steps):
        loss = losses[row]
        if step == since and loss is not None and math.isfinite(loss) and loss != 0.0 and curves.logging_steps > 1:
            text = f" The logged loss of step {since} ({loss:.4g}) is not trustworthy: it is a mean with NaN replaced."
            evidence = {**finding.evidence, "untrusted_loss": [since, loss]}
            return replace(finding, text=finding.text + text, evidence=evidence)
    return finding


def _clock(curves: Curves) -> float:
    """Resolution of the log's clock in seconds: LlamaFactory writes whole ones."""
    column = curves.columns.get("time/elapsed_s")
    if column is None:
        return 0.0
    there = [value for value, present in zip(column.values[:1000], column.present, strict=False) if present]
    return 1.0 if all(math.isfinite(value) and value == int(value) for value in there) else 0.0


def _limit(curves: Curves) -> float | None:
    """The memory of the smallest card of the run, GiB."""
    cards = (curves.run.get("hardware") or {}).get("gpus") or []
    sizes = [card.get("memory_gib") for card in cards if isinstance(card, dict)]
    return min((size for size in sizes if isinstance(size, int | float) and size > 0), default=None)
