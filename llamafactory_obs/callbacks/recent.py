"""The newest rows of a training that goes on, as `Curves`: what a cause is looked for in."""

from collections import deque
from pathlib import Path

from ..logs.curves import Break, Column, Curves, Kind
from ..logs.record import settings_of
from ..record.reader import decode_run, read_rows
from ..record.schema import EVENTS, FOLDER, RUN

_TAIL_BYTES = 4 << 20


class Recent:
    """Keeps the last rows; making `Curves` of them is done only when something was found.

    Args:
        folder: the run's output folder.
        kind: of training.
        most: rows kept.
    """

    def __init__(self, folder: Path, kind: Kind, most: int):
        self.folder, self.kind = folder, kind
        self._rows: deque[tuple[int, dict]] = deque(maxlen=most)
        self._resumed: int | None = None

    def add(self, step: int, values: dict) -> None:
        """One finished row; it is kept as it is."""
        self._rows.append((step, values))

    def resume(self, step: int) -> None:
        """Training goes on from this step."""
        self._resumed = step

    def curves(self, max_steps: int | None) -> Curves:
        """The rows, with the record's events and identity where they can be read (on the first rank)."""
        steps = [step for step, _ in self._rows]
        curves = Curves(self.folder, "obs", self.kind, max_steps=max_steps)
        curves.steps.extend(steps)
        columns = curves.columns
        for row, (_, values) in enumerate(self._rows):
            for name, value in values.items():
                if isinstance(value, (int, float)):
                    if name not in columns:
                        columns[name] = Column(len(steps))
                    columns[name][row] = float(value)
        if self._resumed is not None and any(step > self._resumed for step in steps):
            row = next(row for row, step in enumerate(steps) if step > self._resumed)
            curves.breaks.append(Break(row, "resume", {"why": "training was resumed", "step": steps[row]}))
        obs = self.folder / FOLDER
        curves.events, curves.run = read_rows(obs / EVENTS, tail_bytes=_TAIL_BYTES)[0], decode_run(obs / RUN)
        curves.settings = settings_of(curves.run)
        found = [path for path in self.folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit()]
        curves.checkpoints = {int(path.name.rpartition("-")[2]): path for path in found}
        return curves
