"""Which finding is the verdict, what to do, and in what order they are shown."""

from ..detect import Action, Finding

#: the verdict of a finding whose own name is none
_SPEAKS_FOR = {"inf": "nan", "stalled": "flat", "preference_flat": "flat"}

#: the gravest first; a name with "!" stands for its kill, one with "~" for what is over or came back
_ORDER = (
    "nan!",
    "zero_loss!",
    "diverged!",
    "spike!",
    "preference_reversed!",
    "flat!",
    "oom!",
    "resume_gap",
    "overfit",
    "nan",
    "overfit_suspect",
    "diverged",
    "zero_loss",
    "flat",
    "labels_moved",
    "vram_growth",
    "stairs",
    "lr_anomaly",
    "jitter",
    "spike",
    "throughput_drop",
    "low_gpu_use",
    "plateau",
)
_RANK = {name: rank for rank, name in enumerate(_ORDER)}
_NEVER = len(_ORDER)


def rank(finding: Finding, run: int = 0) -> int:
    """0 is the gravest; `len(_ORDER)` and more: says nothing about the verdict.

    A spike that came back counts from 1.5 times the level on, one of one or two rows from twice: less is an odd batch.
    Only what is seen in the newest run of a log counts. An info counts only where it is a spike or a resume gap that
    came back. A non-finite norm of single steps counts for nothing: fp16 skips such steps.
    """
    name = _SPEAKS_FOR.get(finding.name, finding.name)
    if finding.evidence.get("run", 0) != run:
        return _NEVER + 1
    if name == "spike" and finding.until is not None and is_passing(finding):
        return _NEVER
    if finding.action == "kill":
        return _RANK.get(f"{name}!", _RANK.get(name, _NEVER))
    if finding.level == "info" and name not in ("spike", "resume_gap"):
        return _NEVER + 1
    if name == "nan" and finding.evidence.get("where") != "evaluation" and finding.level != "error":
        return _NEVER
    return _RANK.get(name, _NEVER)


def is_passing(finding: Finding) -> bool:
    """A spike that was too small or too short to say something of the run."""
    return finding.evidence.get("ratio", 9) < (2 if finding.evidence.get("rows_up", 9) <= 2 else 1.5)


def order(findings: list[Finding], run: int = 0) -> list[Finding]:
    """The gravest first; among equals what goes on before what is over, and the earlier first."""
    return sorted(findings, key=lambda f: (rank(f, run), f.until is not None, f.evidence.get("since", f.step)))


def speaks(finding: Finding, run: int = 0) -> bool:
    """Whether the finding can be the verdict."""
    return rank(finding, run) < _NEVER


def verdict(findings: list[Finding], kind: str, run: int = 0) -> tuple[str, Action]:
    """The verdict and the action on findings in the order of `order`."""
    first = findings[0] if findings and speaks(findings[0], run) else None
    kill = any(f.action == "kill" and speaks(f, run) for f in findings)
    if kind == "rl":
        return "rl", "kill" if kill else "keep"
    if first is None:
        return "healthy", "keep"
    return _SPEAKS_FOR.get(first.name, first.name), "kill" if kill else "keep"
