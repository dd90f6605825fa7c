"""What `diagnose` says of one log."""

from dataclasses import dataclass, field

from ..continuity.said import Continuity
from ..detect import Action, Finding

#: the names of a verdict and of findings; which finding is the gravest is said in `verdict`
VERDICTS = (
    "not_a_training_log",
    "rl",
    "nan",
    "zero_loss",
    "diverged",
    "preference_reversed",
    "resume_gap",
    "flat",
    "oom",
    "labels_moved",
    "spike",
    "overfit",
    "overfit_suspect",
    "vram_growth",
    "throughput_drop",
    "low_gpu_use",
    "lr_anomaly",
    "stairs",
    "jitter",
    "plateau",
    "healthy",
)


@dataclass(frozen=True)
class Cause:
    """A candidate for what made a spike.

    name      "lr_change", "accumulation_boundary", "special_batch", "overflow", "optimizer_state_lost", "ranks" ...
    score     0 to 1; the candidates of one finding are ordered by it
    supports  sentences with numbers that speak for it
    against   sentences with numbers that speak against it
    missing   what was not logged and would decide ("log `samples` next time")
    next      the one command or change that would settle it
    """

    name: str
    score: float
    supports: list[str] = field(default_factory=list)
    against: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    next: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """The verdict on one log.

    Attributes:
        path, source, kind, steps: what was read; `steps` is the last step that the log knows.
        verdict: one of `VERDICTS`.
        action: "kill" (going on gives no usable checkpoint), "keep", "none" (nothing to say).
        headline: one sentence: what it is and the one thing to do.
        findings: the gravest first.
        causes: index in `findings` -> candidates, the likeliest first.
        unseen: what the log does not hold, and what therefore could not be judged; one line each.
        notes: oddities of the file.
        resumes: does each resume of it go on where the training was interrupted?
    """

    path: str
    source: str
    kind: str
    steps: int
    verdict: str
    action: Action
    headline: str
    findings: list[Finding] = field(default_factory=list)
    causes: dict[int, list[Cause]] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    resumes: list[Continuity] = field(default_factory=list)
