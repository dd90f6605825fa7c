"""The measuring run's steps with their recorded times, by block."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timed:
    """One measured step, in seconds; the parts are those of the callback `throughput`.

    Attributes:
        index: which of its block's batches.
        cells, tokens: places for tokens, and those that hold one.
        whole: the step, without our own callbacks.
        wait: for the data and its way to the device.
        other: the Trainer itself.
        callbacks: our callbacks, those that measure included.
        began: a pass over the data began in it: its wait holds the start of the loader.
        unusual: that, or a garbage collection fell into it.
    """

    index: int
    cells: int
    tokens: float
    whole: float
    wait: float
    other: float
    callbacks: float
    began: bool
    unusual: bool

    @property
    def compute(self) -> float:
        """Without the wait for data."""
        return self.whole - self.wait


class Joined:
    """What `speed.json` and `steps.jsonl` say together.

    Args:
        steps: of `speed.json`: `{"step", "block", "index", "began", "cells", "then"}`.
        rows: step -> its row of the record.
    """

    def __init__(self, steps: list[dict], rows: dict[int, dict]):
        self._steps, self._rows = steps, rows

    def block(self, name: str) -> list[Timed]:
        """Its measured steps; unusual ones only where there are no others."""
        found = [_timed(one, self._rows[one["step"]]) for one in self._steps if self._counts(one, name)]
        return [one for one in found if not one.unusual] or found

    def after(self, what: str) -> list[dict]:
        """The rows of the steps that hold the time of what the Trainer did before them: log | evaluate | save."""
        steps = [one["step"] + 1 for one in self._steps if one["then"] == what and one["index"] is not None]
        return [self._rows[step] for step in steps if step in self._rows]

    def _counts(self, one: dict, name: str) -> bool:
        row = self._rows.get(one["step"])
        return one["block"] == name and one["index"] is not None and row is not None and "time/step_s" in row


def _timed(one: dict, row: dict) -> Timed:
    whole, callbacks = row["time/step_s"], row["time/callbacks_s"]
    return Timed(
        index=one["index"],
        cells=one["cells"],
        tokens=(row.get("system/tokens_per_sec") or 0.0) * whole,
        whole=whole - callbacks,
        wait=row["time/data_wait_s"] + row["time/h2d_s"],
        other=row["time/other_s"],
        callbacks=callbacks,
        began=one["began"],
        unusual=one["began"] or bool(row["time/unusual"]),
    )
