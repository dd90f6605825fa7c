"""Which run is better, on what evidence. Evaluation and probes decide; the training loss alone says who fits better."""

import math

from ..logs.names import LOSS
from .facts import end_level
from .model import CurveParting, EvalPair, Exact, Pair, Probes, Relation, Run, Verdict

_P = 0.05


def verdict(
    a: Run,
    b: Run,
    relation: Relation,
    bits: Exact | None,
    curves: list[CurveParting],
    evaluation: EvalPair | None,
    probes: Probes | None,
    comparable: bool,
) -> Verdict:
    """Judge B against A.

    Args:
        comparable: the losses are the same quantity.
    """
    if relation in ("identical", "repeat"):
        return Verdict("identical", None, [(relation, {"steps": bits.steps if bits else 0})])
    if relation == "seeds":
        return Verdict("no_difference", None, _between_seeds(curves, evaluation))
    evidence: list[tuple[str, dict]] = []
    signs: list[int] = []  # of what decides: -1 B is worse, 1 better, 0 neither
    broken = [run for run in (a, b) if (level := end_level(run)[0]) is not None and math.isnan(level)]
    if len(broken) == 1:
        signs.append(1 if broken[0] is a else -1)
        evidence.append(("broken", {"run": broken[0].id}))
    if evaluation is not None and comparable:
        values = {"a": evaluation.a, "b": evaluation.b, "difference": evaluation.difference, "band": evaluation.band}
        values["run"] = b.id
        if evaluation.same_set is False:
            evidence.append(("other_eval_set", values))
        else:
            sign = 0 if abs(evaluation.difference) <= evaluation.band else -int(math.copysign(1, evaluation.difference))
            signs.append(sign)
            evidence.append(("eval" if sign else "eval_equal", values))
    if probes is not None and probes.rows:
        sign = 0 if probes.sign_p >= _P else (1 if probes.fixed > probes.broke else -1)
        signs.append(sign)
        values = {"fixed": probes.fixed, "broke": probes.broke, "p": probes.sign_p}
        evidence.append(("probes" if sign else "probes_equal", values))
    train, told = _train(b, curves, comparable)
    evidence += told
    ids = {1: b.id, -1: a.id}
    if 1 in signs and -1 in signs:
        return Verdict("mixed", None, evidence)
    decided = next((sign for sign in signs if sign), 0)
    if decided:
        return Verdict("better", ids[decided], evidence)
    if train:
        return Verdict("fits_better", ids[train], evidence)
    judged = signs or any(one.parting.kind in ("together", "level", "apart_for_a_while") for one in curves)
    if judged and comparable:
        return Verdict("no_difference", None, evidence)
    return Verdict("undecided" if comparable else "not_comparable", None, evidence)


def _between_seeds(curves: list[CurveParting], evaluation: EvalPair | None) -> list[tuple[str, dict]]:
    """Whatever lies between runs of one config is the noise that others are judged by."""
    found: list[tuple[str, dict]] = [
        ("seeds_train", {"level": one.parting.last, "error": one.parting.last_error})
        for one in curves
        if one.column == LOSS
    ]
    if evaluation is not None:
        found.append(("seeds_eval", {"level": evaluation.difference, "error": None}))
    return found


def _train(b: Run, curves: list[CurveParting], comparable: bool) -> tuple[int, list[tuple[str, dict]]]:
    found = next((one for one in curves if one.column == LOSS), None)
    if found is None or not comparable or found.parting.kind == "too_short":
        return 0, []
    parting = found.parting
    values = {"since": found.since, "until": found.until, "level": parting.level, "error": parting.error}
    values |= {"run": b.id, "last": parting.last, "last_error": parting.last_error}
    sign = 0 if parting.kind != "parted" else -int(math.copysign(1, parting.last))
    return sign, [(f"train_{parting.kind}", values)]


def overall(runs: list[Run], pairs: list[Pair]) -> Verdict:
    """The one verdict over all runs: that of the pair for two, else the best of those that beat A."""
    if len(pairs) == 1:
        return pairs[0].verdict
    states = {pair.verdict.state for pair in pairs}
    if states == {"identical"}:
        return Verdict("identical", None, [])
    for state in ("better", "fits_better"):
        winners = [pair for pair in pairs if pair.verdict.state == state and pair.verdict.better == pair.b]
        if winners:
            best = min(winners, key=lambda pair: _key(runs, pair, state))
            close = [pair.b for pair in winners if pair is not best and _close(best, pair, state)]
            evidence = [*best.verdict.evidence, *([("close", {"runs": ", ".join(close)})] if close else [])]
            return Verdict(state, best.b, evidence)
        if state in states and all(pair.verdict.better == pair.a for pair in pairs if pair.verdict.state == state):
            others = ", ".join(pair.b for pair in pairs if pair.verdict.state == state)
            return Verdict(state, runs[0].id, [("beats", {"runs": others})])
    if states <= {"no_difference", "identical"}:
        return Verdict("no_difference", None, [])
    return Verdict("not_comparable" if states == {"not_comparable"} else "undecided", None, [])


def _key(runs: list[Run], pair: Pair, state: str) -> float:
    if state == "better" and pair.evaluation is not None:
        return pair.evaluation.b
    level = end_level(next(run for run in runs if run.id == pair.b))[0]
    return math.inf if level is None or math.isnan(level) else level


def _close(best: Pair, other: Pair, state: str) -> bool:
    if state == "better" and best.evaluation and other.evaluation:
        return abs(math.log(other.evaluation.b / best.evaluation.b)) <= max(best.evaluation.band, other.evaluation.band)
    return False
