"""Findings that are one thing seen from several sides become one."""

from dataclasses import replace
from itertools import pairwise

from ..detect import Finding

#: so many rows apart two findings can be the same event
_NEAR_ROWS = 4
#: so many single spikes at even distances are a habit
_PERIODIC = 3


def settle(findings: list[Finding], row_steps: int = 1) -> list[Finding]:
    """Drops and merges what another finding explains; a row of the log is `row_steps` steps.

    - NaN explains everything of the loss that begins at it or later.
    - A gap at a resume explains the spike that begins with it.
    - A divergence seen in the whole curve and one seen at its step are one.
    - Stairs explain the spikes at their steps.
    - In a run that jitters the spikes that come back are part of the jitter.
    - Three or more single-row spikes at even distances are a habit of the log (first row of an epoch), not spikes.
    """
    findings = _after_nan(findings)
    findings = _glued(findings, _NEAR_ROWS * row_steps)
    findings = _one_divergence(findings)
    findings = _stairs(findings)
    if any(f.name == "jitter" for f in findings):
        findings = [f for f in findings if f.name != "spike" or f.action == "kill"]
    return _periodic(findings)


def _since(finding: Finding) -> int:
    return finding.evidence.get("since", finding.step)


def _is_dead(finding: Finding) -> bool:
    return finding.name in ("nan", "inf") and finding.action == "kill" and finding.until is None


def _after_nan(findings: list[Finding]) -> list[Finding]:
    dead = min((_since(f) for f in findings if _is_dead(f)), default=None)
    if dead is None:
        return findings
    hidden = {"spike", "diverged", "flat", "zero_loss", "jitter", "plateau", "stairs", "overfit_suspect", "stalled"}
    return [f for f in findings if _is_dead(f) or f.name not in hidden or (_since(f) < dead - 1 and f.name == "spike")]


def _glued(findings: list[Finding], near: int) -> list[Finding]:
    """A loss that jumps where training was resumed belongs to the resume."""
    gaps = [f for f in findings if f.name == "resume_gap"]
    if not gaps:
        return findings
    kept = [
        f
        for f in findings
        if f.name not in ("spike", "diverged") or all(abs(_since(gap) - _since(f)) > near for gap in gaps)
    ]
    if any(gap.until is None for gap in gaps):
        kept = [f for f in kept if f.name != "overfit_suspect"]  # the rise is that of the other start
    return kept


def _one_divergence(findings: list[Finding]) -> list[Finding]:
    whole = next((f for f in findings if f.name == "diverged" and f.evidence.get("view") == "whole curve"), None)
    lasting = [f for f in findings if f.name in ("spike", "diverged") and f.action == "kill" and f is not whole]
    if whole is None or not lasting:
        return findings
    return [f for f in findings if f is not whole]


def _stairs(findings: list[Finding]) -> list[Finding]:
    steps = next((f for f in findings if f.name == "stairs"), None)
    if steps is None:
        return findings
    if any(f.name in ("resume_gap", "lr_anomaly") for f in findings):
        return [f for f in findings if f is not steps]
    return [f for f in findings if f.name not in ("spike", "diverged", "flat", "plateau")]


def _periodic(findings: list[Finding]) -> list[Finding]:
    single = [f for f in findings if f.name == "spike" and f.until is not None and f.evidence.get("rows_up", 9) <= 2]
    if len(single) < _PERIODIC:
        return findings
    steps = sorted(_since(f) for f in single)
    gaps = [b - a for a, b in pairwise(steps)]
    middle = sorted(gaps)[len(gaps) // 2]
    if middle <= 0 or any(abs(gap - round(gap / middle) * middle) > 0.1 * middle for gap in gaps):
        return findings
    text = (
        f"The loss jumps for single rows about every {middle} steps, first at step {steps[0]}, and is back at once: a "
        "habit of the run (the first row of an epoch, a regular batch), no instability."
    )
    habit = replace(single[0], name="periodic", level="info", text=text, until=steps[-1], action="keep")
    habit.evidence.update({"since": steps[0], "every": middle, "times": len(steps)})
    return [f for f in findings if f not in single] + [habit]
