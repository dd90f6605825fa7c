"""What is shown of a comparison, in words and in order: the terminal and the page only lay it out."""

from dataclasses import dataclass

from ..charts.text import number
from .facts import FACTS, end_level, facts
from .model import Comparison, Difference, Pair, Run
from .words import (
    axis_title,
    axis_why,
    bits_line,
    coded,
    curve_line,
    evidence,
    fact,
    relation_line,
    shown_differences,
    spread_line,
    t,
    verdict_head,
)


@dataclass(frozen=True)
class ShownRun:
    """One run. facts: see `facts`; cells: the same in words; change: a name for what it changed, "" where nothing."""

    run: Run
    facts: dict[str, float | int | None]
    cells: dict[str, str]
    change: str


@dataclass(frozen=True)
class ShownPair:
    """One run against A.

    Attributes:
        title: which against which.
        judged: its own verdict, and what that rests on.
        relation: how the two are related, "" where the verdict says it.
        groups: group -> the rows that differ. others: packages that differ, whose rows are not shown.
        axis, axis_why: what the curves are drawn by.
        lines: (name, what it says) of the bits and of each curve.
        probes: how the two stand, "" without them.
        name: a name for the run, "" where nothing changed.
    """

    pair: Pair
    title: str
    judged: str
    relation: str
    reasons: list[str]
    caveats: list[str]
    groups: dict[str, list[Difference]]
    others: list[str]
    axis: str
    axis_why: str
    lines: list[tuple[str, str]]
    probes: str
    name: str


@dataclass(frozen=True)
class Shown:
    """All of it. why: what the verdict rests on; runs: by id; facts: those that any run has."""

    head: str
    why: list[str]
    runs: dict[str, ShownRun]
    facts: list[str]
    pairs: list[ShownPair]


def shown(comparison: Comparison) -> Shown:
    """In the language that is spoken now."""
    changes = {pair.b: pair.run_name for pair in comparison.pairs}
    runs = {run.id: _run(run, changes.get(run.id, "")) for run in comparison.runs}
    spread = spread_line(comparison)
    return Shown(
        head=verdict_head(comparison.verdict),
        why=[*evidence(comparison.verdict), *([spread] if spread else [])],
        runs=runs,
        facts=[name for name in FACTS if any(one.facts[name] is not None for one in runs.values())],
        pairs=[_pair(pair) for pair in comparison.pairs],
    )


def _run(run: Run, change: str) -> ShownRun:
    held = facts(run)
    return ShownRun(run, held, {name: _cell(name, run, value) for name, value in held.items()}, change)


def _cell(name: str, run: Run, held: float | int | None) -> str:
    said = fact(name, held, run.price.currency if run.price else "")
    if name == "train_loss" and held is not None and (error := end_level(run)[1]) is not None:
        return f"{said} ± {number(float(f'{error:.2g}'))}"
    if name == "eval_best" and run.summary.evaluations.best:
        return f"{said} @ {run.summary.evaluations.best[0]}"
    return said


def _pair(pair: Pair) -> ShownPair:
    groups, others = shown_differences(pair)
    lines = [(t("bits.label"), bits_line(pair)), *((one.column, curve_line(one)) for one in pair.curves)]
    return ShownPair(
        pair=pair,
        title=t("against", a=pair.a, b=pair.b),
        judged=t("joint").join([verdict_head(pair.verdict), *evidence(pair.verdict)]),
        relation=relation_line(pair),
        reasons=coded("reason", pair.reasons),
        caveats=coded("caveat", pair.caveats),
        groups=groups,
        others=others,
        axis=axis_title(pair),
        axis_why=axis_why(pair),
        lines=[(name, line) for name, line in lines if line],
        probes=_probes(pair),
        name=t("name_for", run=pair.b, name=pair.run_name) if pair.run_name else "",
    )


def _probes(pair: Pair) -> str:
    found = pair.probes
    if found is None:
        return ""
    at = {"a": pair.a, "b": pair.b, "a_at": found.a_at, "b_at": found.b_at}
    return t("probes_at", **at, fixed=found.fixed, broke=found.broke)
