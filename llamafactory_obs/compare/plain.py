"""A comparison as plain JSON values; its sentences in English."""

import dataclasses

from ..output import plain
from ..texts import speaking
from .facts import end_level, facts
from .model import Comparison, CurveParting, Pair, Run
from .words import axis_why, bits_line, coded, curve_line, evidence, verdict_head, verdict_sentence


def as_dict(comparison: Comparison) -> dict:
    """All of it. A number that is not finite becomes its word ("nan"): strict JSON has none."""
    with speaking("en"):
        found = comparison.verdict
        return plain(
            {
                "reference": comparison.runs[0].id,
                "verdict": {
                    "state": found.state,
                    "better": found.better,
                    "text": verdict_sentence(comparison),
                    "evidence": _evidence(found),
                },
                "order": comparison.order,
                "spread": dataclasses.asdict(comparison.spread) if comparison.spread else None,
                "runs": [_run(run) for run in comparison.runs],
                "pairs": [_pair(pair) for pair in comparison.pairs],
            }
        )


def _run(run: Run) -> dict:
    held = facts(run)
    best = run.summary.evaluations.best
    return {
        "id": run.id,
        "name": run.name,
        "path": str(run.path),
        "source": run.curves.source,
        "kind": run.curves.kind,
        "facts": held,
        "train_loss_error": end_level(run)[1],
        "eval_best_step": best[0] if best else None,
        "currency": run.price.currency if run.price else None,
    }


def _pair(pair: Pair) -> dict:
    bits = None if pair.exact is None else dataclasses.asdict(pair.exact) | {"equal": pair.exact.equal}
    if bits is not None:
        bits["text"] = bits_line(pair)
    verdict = pair.verdict
    judged = {"state": verdict.state, "better": verdict.better, "text": verdict_head(verdict)}
    return {
        "a": pair.a,
        "b": pair.b,
        "relation": pair.relation,
        "verdict": judged | {"evidence": _evidence(verdict)},
        "differences": dataclasses.asdict(pair.differences),
        "axis": dataclasses.asdict(pair.axis) | {"text": axis_why(pair)},
        "exact": bits,
        "curves": [_curve(one) for one in pair.curves],
        "evaluation": dataclasses.asdict(pair.evaluation) if pair.evaluation else None,
        "layers": dataclasses.asdict(pair.layers) if pair.layers else None,
        "probes": dataclasses.asdict(pair.probes) if pair.probes else None,
        "reasons": _coded("reason", pair.reasons),
        "caveats": _coded("caveat", pair.caveats),
        "run_name": pair.run_name,
    }


def _curve(found: CurveParting) -> dict:
    parting = found.parting
    kept = ("kind", "level", "error", "last", "last_error", "noise", "rows")
    judged = {name: getattr(parting, name) for name in kept}
    steps = {"since": found.since, "seen": found.seen, "until": found.until}
    return {"column": found.column, **judged, **steps, "text": curve_line(found)}


def _evidence(found) -> list[dict]:
    return [
        {"code": code, "values": values, "text": said}
        for (code, values), said in zip(found.evidence, evidence(found), strict=True)
    ]


def _coded(kind: str, lines: list[tuple[str, dict]]) -> list[dict]:
    return [
        {"code": code, "values": values, "text": said}
        for (code, values), said in zip(lines, coded(kind, lines), strict=True)
    ]
