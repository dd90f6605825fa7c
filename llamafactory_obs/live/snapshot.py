"""What is known of a run at one moment."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from ..charts.text import compact
from ..output import plain

Status = Literal["waiting", "training", "evaluating", "saving", "quiet", "ended"]
Ending = Literal["finished", "stopped", "notice", "crashed", "oom", "interrupted", "killed"]


@dataclass(frozen=True)
class Points:
    """A curve as it is drawn.

    Attributes:
        steps: ascending, int64.
        values: float64, of the same length; NaN and infinities are kept.
        means: the exponential moving average at these steps; None where there is none.
        count: points that there are, drawn or not.
    """

    steps: np.ndarray
    values: np.ndarray
    means: np.ndarray | None
    count: int

    @property
    def last(self) -> float | None:
        """The newest value."""
        return float(self.values[-1]) if len(self.values) else None

    def as_dict(self) -> dict:
        return {
            "steps": self.steps.tolist(),
            "values": [compact(value) for value in self.values.tolist()],
            "means": None if self.means is None else [compact(value) for value in self.means.tolist()],
            "count": self.count,
        }


@dataclass(frozen=True)
class Event:
    """One event of the record. `text` is cut at 500 characters; it may hold anything.

    Attributes:
        time: Unix seconds.
        evidence: as recorded, for `texts.findings.told`; not in `as_dict`.
        state: of an alert: raised, repeated, escalated, resolved.
    """

    step: int
    time: float
    kind: str
    level: str
    name: str
    title: str
    text: str
    action: str
    state: str | None = None
    evidence: dict = field(default_factory=dict, repr=False)

    def as_dict(self) -> dict:
        return {name: value for name, value in vars(self).items() if name != "evidence"}


@dataclass(frozen=True)
class Alert:
    """An alert that goes on: its newest event, and since which step and how often."""

    id: str
    level: str
    since: int
    count: int
    event: Event

    def as_dict(self) -> dict:
        return vars(self) | {"event": self.event.as_dict()}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was saved.

    Attributes:
        verdict: `resumes exactly`, `warm start only`, `serves`, `broken` (`checkpoint_guard`); None: not verified.
        save_s: seconds that saving took.
        size: bytes.
        deleted: by our retention, or no longer in the folder.
    """

    step: int
    time: float
    path: str
    verdict: str | None = None
    good: bool | None = None
    save_s: float | None = None
    size: int | None = None
    deleted: bool = False


@dataclass(frozen=True)
class Probe:
    """One probe's result on one checkpoint. `prompt` is cut at 500 characters, `output` at 2000; both hold anything.

    Attributes:
        change: against the checkpoint before: `broke`, `fixed`, `same`; None where there is none.
    """

    name: str
    passed: bool
    errors: tuple[str, ...]
    prompt: str
    output: str
    seconds: float | None
    change: str | None


@dataclass(frozen=True)
class ProbeRound:
    """All probes of the checkpoint that was probed last.

    Attributes:
        history: `(step, checkpoint, passed, of)` of each checkpoint that was probed, in the order of probing; the
            untuned base model is called `base` and stands at step 0.
    """

    step: int
    checkpoint: str
    time: float
    probes: tuple[Probe, ...]
    history: tuple[tuple[int, str, int, int], ...]

    @property
    def passed(self) -> int:
        return sum(probe.passed for probe in self.probes)


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment. Numbers of steps are those of the newest start of training.

    Attributes:
        dir: the output folder, as it was given.
        name: the run's name in its config, else the folder's.
        source: `record` (obs/), `trainer_log` (only where there is no record), None (nothing there yet).
        status: `waiting`: nothing of a training yet; `training`, `evaluating`, `saving`; `quiet`: no news for longer
            than this run's own pace explains; `ended`. Evaluating and saving are concluded from the settings: the step
            at which they are due is there, what they leave in the record is not.
        ending: how it ended, as in `summary.Session.ended`. `finished`: all steps; `stopped`: before, in order (early
            stopping, a command); `notice`: the machine is taken back; `crashed`: an exception; `oom`: out of memory;
            `interrupted`: Ctrl-C; `killed`: the process is gone and has said nothing.
        heard: when the training last wrote, Unix seconds; None before the first time.
        alive: does the process hold its lock (`control/job.json`)? None where that cannot be told.
        step, max_steps, epoch, epochs: where it is, where it goes (epochs: where they decide).
        segment: starts of training before this one.
        seconds: of all starts of training together, from the start of each process (where the record has it) to its
            last word, without the breaks between them: `wall_s` of `summary`'s sessions.
        seconds_to_go, step_seconds: at the recent pace, evaluations and saves in it; see `pace.py`.
        price: of one machine in an hour: as it was given, else `obs: {price: ...}` of the run. `cost` and `cost_to_go`
            are price times hours times `nodes`. currency: "" where it is not known.
        curves: column -> points. The names of `CURVES` are always there, maybe empty.
        latest: the newest value of every column, whichever row it was in.
        about: model, stage, finetuning_type, template, gpus, gpu_memory_gib (of the smallest card), world_size, engine;
            what is known of them.
        probes: None where nothing was probed.
        alerts: open ones, the gravest first.
        events: the newest ones worth a look, oldest first; at most 50.
        checkpoints: by step.
        verdict: what `diagnose` says at the end: `{"verdict", "action", "text"}`; None without it.
        torn: lines that were no JSON.
        version: another number whenever something else than the clock has changed.
        now: Unix seconds.
    """

    dir: str
    name: str
    now: float
    source: Literal["record", "trainer_log"] | None = None
    status: Status = "waiting"
    ending: Ending | None = None
    heard: float | None = None
    alive: bool | None = None
    step: int = 0
    max_steps: int | None = None
    epoch: float | None = None
    epochs: float | None = None
    segment: int = 0
    seconds: float | None = None
    seconds_to_go: float | None = None
    step_seconds: float | None = None
    price: float | None = None
    currency: str = ""
    nodes: int = 1
    curves: dict[str, Points] = field(default_factory=dict)
    latest: dict[str, float] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    probes: ProbeRound | None = None
    alerts: tuple[Alert, ...] = ()
    events: tuple[Event, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    verdict: dict | None = None
    torn: int = 0
    version: int = 0

    @property
    def cost(self) -> float | None:
        """What it has cost so far."""
        return self._priced(self.seconds)

    @property
    def cost_to_go(self) -> float | None:
        return self._priced(self.seconds_to_go)

    @property
    def machine(self) -> dict[str, float]:
        """Of the machine: the newest `system/` columns, by their name without the prefix."""
        return {name[7:]: value for name, value in self.latest.items() if name.startswith("system/")}

    @property
    def mask(self) -> dict[str, float]:
        """Of the data: `supervised_ratio`, `padding_ratio` ..., the newest `data/` columns."""
        return {name[5:]: value for name, value in self.latest.items() if name.startswith("data/")}

    def as_dict(self) -> dict:
        """Everything as plain values for strict JSON; a number that is not finite is the word (`"nan"`, `"inf"`)."""
        out = {name: value for name, value in vars(self).items() if name not in ("curves", "probes")}
        for name in ("alerts", "events"):
            out[name] = [one.as_dict() for one in out[name]]
        out["checkpoints"] = [asdict(one) for one in self.checkpoints]
        out["curves"] = {name: points.as_dict() for name, points in self.curves.items()}
        out["probes"] = None if self.probes is None else asdict(self.probes) | {"passed": self.probes.passed}
        out |= {"cost": self.cost, "cost_to_go": self.cost_to_go, "machine": self.machine, "mask": self.mask}
        return plain(out)

    def _priced(self, seconds: float | None) -> float | None:
        return None if self.price is None or seconds is None else self.price * self.nodes * seconds / 3600
