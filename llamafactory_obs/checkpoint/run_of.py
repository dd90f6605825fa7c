"""Which run saved a checkpoint: the one whose folder it lies in, an older one in the same folder, or one elsewhere?

The strongest witness is the log history in `trainer_state.json`: the losses of the first steps are those of one run and
of no other. It survives a copy, which times do not. Then the record's own list of saves, the times, the arguments.
"""

import contextlib
import math
from dataclasses import dataclass, field
from pathlib import Path

from ..detect.numbers import as_number
from ..record import schema
from ..record.reader import decode_run, read_rows
from ..texts import text
from .files import STATE, Incomplete
from .pickle_words import training_args
from .trainer_state import read_state

THIS, OLDER, UNKNOWN = "this", "older", "unknown"
#: LlamaFactory's own log: `current_steps`, `loss`, `lr`
_LOG = "trainer_log.jsonl"
#: a record writes its `checkpoint` event right after the save
_EVENT_S = 120.0
#: a copy keeps times to the second; FAT's clock is two seconds coarse
_CLOCK_S = 2.0
#: first common rows that are compared
_ROWS = 20
#: a record holds one step's loss as it was computed, the Trainer's log a mean in float32
_CLOSE = 1e-3
#: arguments that are one run's, also after a resume
_OWN = ("seed", "data_seed", "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate")


@dataclass
class Witness:
    """What one checkpoint says about its run.

    Attributes:
        name: of the folder. step: its number.
        saved_at: when its state was written, Unix seconds; 0 where there is none.
        rows: step -> (loss, learning rate, gradient norm) of the Trainer's log.
        state: the numbers of the Trainer's state that a run keeps.
        arguments: of `training_args.bin`.
    """

    name: str
    step: int | None
    saved_at: float = 0.0
    rows: dict[int, tuple] = field(default_factory=dict)
    state: dict = field(default_factory=dict)
    arguments: dict = field(default_factory=dict)


@dataclass
class Reference:
    """The run that the folder belongs to.

    Attributes:
        source: `the record`, `trainer_log.jsonl`, or the name of the newest checkpoint.
        rows: step -> (loss, learning rate) of any start of training.
        each_step: they are of single steps, not means over `logging_steps`.
        started: when its first start of training began; 0 where unknown.
        saves: step -> times of the record's `checkpoint` events.
        newest: the newest checkpoint, where there is no record.
    """

    source: str
    rows: dict[int, list[tuple]] = field(default_factory=dict)
    each_step: bool = False
    started: float = 0.0
    saves: dict[int, list[float]] = field(default_factory=dict)
    newest: Witness | None = None


def witness(folder: Path, step: int | None) -> Witness:
    """Read what a checkpoint says; what cannot be read is left empty."""
    found = Witness(folder.name, step)
    try:
        found.saved_at = (folder / STATE).stat().st_mtime
        state = read_state(folder)
        found.rows = {
            row["step"]: (row["loss"], *map(as_number, (row.get("learning_rate"), row.get("grad_norm"))))
            for row in state["log_history"]
            if type(row.get("step")) is int and isinstance(row.get("loss"), (int, float))
        }
        found.state = {key: state.get(key) for key in ("train_batch_size", "logging_steps")}
    except (Incomplete, OSError):
        pass
    with contextlib.suppress(Incomplete):
        found.arguments = training_args(folder / "training_args.bin")
    return found


def reference(output_dir: Path, witnesses: list[Witness]) -> Reference | None:
    """The run of a folder; None where nothing says anything about it."""
    folder = output_dir / schema.FOLDER
    run = decode_run(folder / schema.RUN)
    segments = run.get("segments")
    if isinstance(segments, list) and segments:
        begun = [one.get("started") for one in segments if isinstance(one, dict)]
        found = Reference(
            "the record", _rows_of(folder / schema.STEPS, "step", "train/loss", "train/lr"), each_step=True
        )
        found.started = min((one for one in begun if isinstance(one, (int, float))), default=0.0)
        for row in read_rows(folder / schema.EVENTS)[0]:
            if row.get("kind") == "checkpoint" and isinstance(row.get("time"), (int, float)):
                found.saves.setdefault(row.get("step"), []).append(row["time"])
        return found
    saved = [one for one in witnesses if one.saved_at]
    newest = max(saved, key=lambda one: (one.saved_at, one.step or 0), default=None)
    rows = _rows_of(output_dir / _LOG, "current_steps", "loss", "lr")
    if not rows and newest is None:
        return None
    return Reference(_LOG if rows else newest.name, rows, newest=newest)


def _rows_of(file: Path, step: str, loss: str, rate: str) -> dict[int, list[tuple]]:
    found: dict[int, list[tuple]] = {}
    for row in read_rows(file)[0]:
        if type(row.get(step)) is int and isinstance(row.get(loss), (int, float)):
            found.setdefault(row[step], []).append((row[loss], row.get(rate)))
    return found


def run_of(one: Witness, of: Reference | None) -> tuple[str, str]:
    """`(this | older | unknown, told by what)`."""
    if of is None:
        return UNKNOWN, text("checkpoint.run.unknown")
    shared = [step for step in sorted(one.rows) if step in of.rows and _told(one.rows[step], of.rows[step])][:_ROWS]
    if shared and (one.state.get("logging_steps") == 1 or not of.each_step):
        same = [step for step in shared if any(_same(one.rows[step], row) for row in of.rows[step])]
        if len(same) * 2 >= len(shared):
            return THIS, text("checkpoint.run.same_log", source=of.source, same=len(same), of=len(shared))
        return OLDER, text("checkpoint.run.other_log", source=of.source, same=len(same), of=len(shared))
    if of.newest is None:
        return _by_record(one, of)
    if one is of.newest:
        return THIS, text("checkpoint.run.newest")
    return _by_newest(one, of.newest)


def _by_record(one: Witness, of: Reference) -> tuple[str, str]:
    if one.saved_at and of.started and one.saved_at < of.started - _CLOCK_S:
        return OLDER, text("checkpoint.run.before", ago=_span(of.started - one.saved_at))
    if any(abs(one.saved_at - time) < _EVENT_S for time in of.saves.get(one.step, ())):
        return THIS, text("checkpoint.run.has_save")
    return UNKNOWN, text("checkpoint.run.says_nothing")


def _by_newest(one: Witness, newest: Witness) -> tuple[str, str]:
    shared = sorted(one.rows.keys() & newest.rows.keys())[:_ROWS]
    if shared:
        same = [step for step in shared if all(map(_equal, one.rows[step], newest.rows[step]))]
        if len(same) * 2 >= len(shared):
            return THIS, text("checkpoint.run.beginning", name=newest.name)
        return OLDER, text("checkpoint.run.another", name=newest.name, step=shared[0])
    differ = [key for key in _OWN if key in one.arguments and one.arguments[key] != newest.arguments.get(key)]
    differ += [key for key, value in one.state.items() if value != newest.state.get(key)]
    if newest.arguments and differ:
        old, new = (who.arguments.get(differ[0], who.state.get(differ[0])) for who in (one, newest))
        return OLDER, text("checkpoint.run.differs", key=differ[0], old=old, name=newest.name, new=new)
    return UNKNOWN, text("checkpoint.run.no_step", name=newest.name)


def _told(logged: tuple, rows: list[tuple]) -> bool:
    """Is it a loss? The Trainer writes 0.0, or a number of its own making, for one that was NaN or infinite."""
    return logged[0] != 0.0 and math.isfinite(logged[0]) and all(math.isfinite(row[0]) for row in rows)


def _same(logged: tuple, row: tuple) -> bool:
    """Loss and, where both have one, learning rate: at a small rate another run's first losses are nearly the same."""
    return _close(logged[0], row[0]) and (logged[1] is None or row[1] is None or _close(logged[1], row[1]))


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_CLOSE, abs_tol=1e-12) or (a != a and b != b)


def _equal(a: object, b: object) -> bool:
    return a == b or (a != a and b != b)


def _span(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= size:
            return text(f"checkpoint.span.{unit}", n=seconds / size)
    return text("checkpoint.span.seconds", n=seconds)
