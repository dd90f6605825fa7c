"""How many steps, epochs and seconds are left, by the checkpoint and the speed of the run so far."""

from dataclasses import dataclass
from pathlib import Path

from ..record.reader import read_rows
from ..record.schema import FOLDER, STEPS
from .point import GRAVE, INFO, WARN, Point

_LOG = "trainer_log.jsonl"
#: steps over which the speed is taken, saves and evaluations in it
_ROWS = 200


@dataclass(frozen=True)
class Left:
    """What is left to train.

    Attributes:
        step: at which it resumes. total: steps of the whole run; None where not known.
        epochs: left; None where not known.
        seconds_per_step: of the run so far; None where not known.
        again: steps that were made after this checkpoint and are made once more.
    """

    step: int
    total: int | None
    epochs: float | None = None
    seconds_per_step: float | None = None
    again: int = 0

    @property
    def steps(self) -> int | None:
        """Steps left."""
        return None if self.total is None else max(self.total - self.step, 0)

    @property
    def seconds(self) -> float | None:
        """Seconds left."""
        return None if None in (self.steps, self.seconds_per_step) else self.steps * self.seconds_per_step

    def points(self) -> list[Point]:
        """What is to be said about it."""
        values = {"step": self.step, "total": self.total, "steps": self.steps}
        if self.total is None:
            return [Point("left.unknown", WARN, values)]
        if not self.steps:
            return [Point("left.nothing", GRAVE, values, "longer")]
        points = []
        if self.again > 0:
            values |= {"again": self.again, "first": self.step + 1, "last": self.step + self.again}
            points.append(Point("left.again" if self.again > 1 else "left.again_one", INFO, values))
        return points

    def as_dict(self) -> dict:
        """For `--json`."""
        return {
            "from_step": self.step,
            "total_steps": self.total,
            "steps": self.steps,
            "epochs": self.epochs,
            "seconds": self.seconds,
            "seconds_per_step": self.seconds_per_step,
            "steps_made_again": self.again,
        }


def left_of(folder: Path, state: dict, total: int | None, batch: tuple[int, int] = (1, 1)) -> Left:
    """What is left.

    Args:
        folder: the run's output folder.
        state: of `read_state`.
        total: steps that the resumed run will have in all.
        batch: sequences of a step before and now: epochs are passes over the rows.
    """
    step, epoch = state["global_step"], state.get("epoch")
    steps = max(total - step, 0) if total is not None else None
    epochs = steps * epoch / step * batch[1] / batch[0] if steps is not None and epoch and step else None
    last, seconds = _made(folder)
    return Left(step, total, epochs, seconds, max(last - step, 0))


def _made(folder: Path) -> tuple[int, float | None]:
    """The last step that the run made, and seconds a step in the last start of training."""
    rows = [row for row in read_rows(folder / FOLDER / STEPS)[0] if "step" in row and "time" in row]
    if rows:
        newest = max(row.get("segment", 0) for row in rows)
        times = {row["step"]: row["time"] for row in rows if row.get("segment", 0) == newest}
        return max(times), _speed(sorted(times.items()))
    logged = read_rows(folder / _LOG)[0]
    times, before = [], -1.0
    for row in logged:
        step, elapsed = row.get("current_steps"), _seconds(row.get("elapsed_time"))
        if not isinstance(step, int) or elapsed is None:
            continue
        if elapsed < before:  # another start of training: its clock begins at 0
            times = []
        times.append((step, elapsed))
        before = elapsed
    return (times[-1][0] if times else 0), _speed(times)


def _speed(times: list[tuple[int, float]]) -> float | None:
    """Seconds a step between the first and the last of the newest rows; a log's clock counts whole seconds."""
    times = times[-_ROWS:]
    if len(times) < 2 or times[-1][0] <= times[0][0]:
        return None
    seconds = (times[-1][1] - times[0][1]) / (times[-1][0] - times[0][0])
    return seconds if seconds > 0 else None


def _seconds(text: object) -> float | None:
    """`1 day, 2:03:04` or `2:03:04`."""
    if not isinstance(text, str):
        return None
    days, _, clock = text.rpartition(", ")
    try:
        hours, minutes, seconds = (int(part) for part in clock.split(":"))
        return (int(days.split()[0]) if days else 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    except (ValueError, IndexError):
        return None
