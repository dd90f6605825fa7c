"""The plan for programs: `--json`, in English whatever the language of the screen."""

from .plan import Plan
from .point import GRAVE


def as_dict(plan: Plan) -> dict:
    """One JSON-able object."""
    best = plan.best
    return {
        "config": str(plan.config.path),
        "output_dir": str(plan.output),
        "verdict": plan.verdict,
        "exact": plan.exit_code == 0,
        "may_start": plan.may_start,
        "as_it_stands": {
            "does": plan.start.kind,
            "reason": plan.start.reason,
            "checkpoint": str(plan.start.checkpoint) if plan.start.checkpoint is not None else None,
            "fine": all(point.level != GRAVE for point in plan.stands),
            "points": [point.as_dict() for point in plan.stands],
        },
        "checkpoint": None
        if best is None
        else {
            "path": str(best.path),
            "name": best.name,
            "step": best.step,
            "verdict": best.verdict.verdict,
            "good": plan.choice.good,
            "restored": plan.fate.restored,
            "lost": list(dict.fromkeys(part.name for part in plan.fate.lost)),
        },
        "passed_over": [
            {"name": one.name, "verdict": one.verdict.verdict, "run": one.run, "reasons": one.verdict.reasons}
            for one in plan.choice.passed
        ],
        "points": [point.as_dict() for point in plan.points],
        "agrees": plan.agreement.same,
        "left": plan.left.as_dict() if plan.left is not None else None,
        "command": plan.launch.as_dict() if plan.launch is not None else None,
    }
