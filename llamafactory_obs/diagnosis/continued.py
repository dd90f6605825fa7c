"""The verdicts on a log's resumes, and the findings that they are: one truth for both."""

import math
from collections.abc import Sequence

from ..continuity.said import BROKEN, DIFFERS, EXACT, NOISE, Continuity
from ..detect import Finding
from ..detect.resume_gap import finding as gap_finding
from ..logs.curves import Curves


def with_continuity(findings: Sequence[Finding], resumes: Sequence[Continuity], curves: Curves) -> list[Finding]:
    """The findings, where `resume_gap` is what the verdicts say.

    The detector has seen the rows around a resume. The verdict has also seen the steps that were made twice, the
    samples and what was not restored: it takes the place of the detector's finding, drops it, or adds one.
    """
    kept = list(findings)
    for said in resumes:
        mine = [one for one in kept if _is_about(one, said, max(1, curves.logging_steps))]
        if said.verdict in (BROKEN, EXACT, NOISE):
            kept = [one for one in kept if one not in mine]
        if said.verdict == BROKEN:
            kept.append(_as_finding(said, mine[0] if mine else None, curves))
    return kept


def _is_about(finding: Finding, said: Continuity, near: int) -> bool:
    since, run = finding.evidence.get("since", finding.step), finding.evidence.get("run", 0)
    return finding.name == "resume_gap" and abs(since - said.step) <= near and run == said.run


def _as_finding(said: Continuity, seen: Finding | None, curves: Curves) -> Finding:
    evidence: dict = {"since": said.step}
    for name in ("loss", "learning_rate", "gradient_norm", "epoch"):
        if said.columns[name].status == DIFFERS:
            evidence |= said.columns[name].numbers
    evidence["not_restored"] = [one.part for one in said.not_restored]
    if said.made_twice:
        evidence["steps_made_twice"] = said.made_twice
        first = min((one.first for one in said.columns.values() if one.first is not None), default=None)
        evidence |= {"parts_at": first} if first is not None else {}
    if said.columns["learning_rate"].status == DIFFERS:
        evidence["lr_restarted"] = True
    if said.run:
        evidence["run"] = said.run
    last = seen.step if seen is not None else min(said.step + said.rows, curves.steps[-1])
    reasons = [one.words("en") for one in said.reasons]
    return gap_finding(last, reasons, _plain(evidence), until=last if said.faded else None)


def _plain(evidence: dict) -> dict:
    """Strict JSON: a number that is not finite is its name."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in evidence.items()
    }
