"""What `summarize` says of a run. Whatever is not known is None, and `RunSummary.missing` says why."""

from dataclasses import dataclass, field

from .parts import Brief, Data, Machine, Memory, Session, Spread, Used, Why


@dataclass(frozen=True)
class Evaluations:
    """The evaluations, `eval/loss`.

    Attributes:
        count: with a loss. first, last, best: (step, epoch or None, loss); best is the lowest finite one.
        next_epochs: `num_train_epochs` for the next run: the epoch of the best, to two digits; None with a reason.
        next_sure: the later evaluations are above the best by more than their noise.
    """

    count: int
    first: tuple[int, float | None, float] | None
    last: tuple[int, float | None, float] | None
    best: tuple[int, float | None, float] | None
    next_epochs: float | None
    next_sure: bool


@dataclass(frozen=True)
class SavedCheckpoint:
    """One checkpoint, from `checkpoints.jsonl` (callback `checkpoint_guard`), the save events and the disk.

    Attributes:
        step, name, on_disk. bytes: of its files now, else as recorded. save_s: seconds on the training thread.
        verdict: "resumes exactly", "warm start only", "serves", "broken"; None where nobody looked.
        check: "quick", "full" or None. flaw, deleted: why; "" where not. notice: saved because of one.
        sha256: of all its files, of a full check. eval_loss: at that step.
    """

    step: int
    name: str
    on_disk: bool
    bytes: int | None
    save_s: float | None
    verdict: str | None
    check: str | None
    flaw: str
    deleted: str
    notice: bool
    sha256: str | None
    eval_loss: float | None


@dataclass(frozen=True)
class Gate:
    """One gate of `preflight`, as it was judged before the run.

    Attributes:
        status: pass, fail, error, skipped. failed: names of the checks that did not pass. fix: what it advised.
        time: of the judgement, Unix seconds. changed: keys of the config that are others in the run than then.
    """

    name: str
    status: str
    failed: list[str]
    fix: str
    time: float | None = None
    changed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class OtherSuite:
    """What another suite says at its newest checkpoint: names, and how many probes passed of how many."""

    suite: str
    checkpoint: str
    passed: int
    asked: int


@dataclass(frozen=True)
class ProbeMatrix:
    """The probes by checkpoint, of the suite that was asked at most of them (the newest of equals).

    Attributes:
        suite: its name; digest: its hash. columns: "base" first, then the checkpoints by step. probes: names.
        passed: probe -> one value for each column: True, False, None (not asked).
        errors: probe -> one list of error classes for each column.
        totals: for each column (passed, asked). best: name of the column with the most passes, the latest of equals.
        others: the suites that were asked as well.
    """

    suite: str
    digest: str
    columns: list[str]
    probes: list[str]
    passed: dict[str, list[bool | None]]
    errors: dict[str, list[list[str]]]
    totals: list[tuple[int, int]]
    best: str | None
    others: list[OtherSuite]


@dataclass(frozen=True)
class RaisedAlert:
    """One alert. `id` as in docs/alerts.md; level: the gravest; open: goes on (None: an older record).

    `text` and `evidence` are those of the last time that it was raised, at step `last`.
    """

    id: str
    name: str
    title: str
    level: str
    since: int
    last: int
    count: int
    open: bool | None
    text: str
    evidence: dict


@dataclass(frozen=True)
class Price:
    """What the machine costs: `per_hour` of the whole machine in `currency`; `source`: where that was said."""

    per_hour: float
    currency: str
    source: str


@dataclass(frozen=True)
class Note:
    """Words that a person added (`report --note`): Unix seconds, the step by then, the words."""

    time: float
    step: int
    text: str


@dataclass(frozen=True)
class RunSummary:
    """The facts of a run. Times are Unix seconds, durations seconds, memory GiB, shares 0 to 1.

    Attributes:
        path: the folder or file that was named. output_dir: of the run.
        source: "obs" for a record, else the kind of log (`logs.curves.Source`).
        going: training goes on now: all numbers are "so far".
        brief, machine, used: identity, machine, settings.
        sessions: the starts in order; [] for a plain log.
        steps: last step that stands. planned_steps: the Trainer's plan. epoch: position in the data at that step.
        repeated_steps: made twice because of resumes.
        started, ended: of the first and the last sign of life.
        train_s, wall_s: sums over the sessions, pauses left out. machine_hours: wall_s / 3600 * nodes.
        step_s: wall seconds of an optimizer step (`time/step_s`; else from the log's clock).
        tokens_per_s: of a step, real tokens, all devices together.
        mean_tokens_per_s: all tokens / all seconds of the steps, evaluations and saves included.
        memory, gpu_util (0..1, weighted by the steps' seconds), gpu_util_low (5th percentile), data.
        train_loss: (first, last) mean of up to 20 steps at each end. grad_norm: Spread.
        results: the numbers of `all_results.json` (`train_runtime`, `train_loss`, `eval_*`, `predict_*` ...).
        evaluations, checkpoints, gates, probes, alerts, notes, price.
        earlier_runs: records in `obs/archive/`.
        missing: dotted field -> Why, for each field that is None or empty and should not be.
        remarks: oddities of the record, for people (English).
    """

    path: str
    output_dir: str
    source: str
    going: bool
    brief: Brief
    machine: Machine
    used: Used
    sessions: list[Session]
    steps: int
    planned_steps: int | None
    epoch: float | None
    repeated_steps: int
    started: float | None
    ended: float | None
    train_s: float | None
    wall_s: float | None
    machine_hours: float | None
    step_s: Spread | None
    tokens_per_s: Spread | None
    mean_tokens_per_s: float | None
    memory: Memory
    gpu_util: float | None
    gpu_util_low: float | None
    data: Data
    train_loss: tuple[float, float] | None
    grad_norm: Spread | None
    results: dict[str, float]
    evaluations: Evaluations
    checkpoints: list[SavedCheckpoint]
    gates: list[Gate]
    probes: ProbeMatrix | None
    alerts: list[RaisedAlert]
    notes: list[Note]
    price: Price | None
    earlier_runs: int
    missing: dict[str, Why]
    remarks: list[str]

    @property
    def cost(self) -> float | None:
        """Machine hours * price, in `price.currency`."""
        return None if self.price is None or self.machine_hours is None else self.machine_hours * self.price.per_hour

    @property
    def open_alerts(self) -> list[RaisedAlert]:
        """Those that go on, without what is only told (info)."""
        return [alert for alert in self.alerts if alert.open and alert.level != "info"]
