"""A log of very many rows: the same findings as `judge.feed`, with most rows taken in bulk.

Every detector has a memory of some hundred rows at most, apart from sums. So numpy proves for stretches of rows that
the detector cannot fire there (by the detector's own rule, evaluated for all rows at once under the assumption that
none fires: up to the first row where that fails the assumption holds), the detector takes them in bulk, and only the
rows that are left are fed to it one by one. tests/test_diagnose_long.py compares both ways.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import numpy as np

from ..detect import Finding
from ..logs.curves import Curves
from .long_curve import borders, fill, rates, times
from .long_loss import loss_spikes
from .long_norm import norm_spikes
from .shapes import Shapes, as_norm

Found = list[tuple[int, Finding | None]]  # row, what was found there


class Table:
    """The columns of some rows as arrays; a missing number is NaN with `there` false."""

    def __init__(self, curves: Curves, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.steps = np.frombuffer(curves.steps, dtype=np.int64)[start:stop]
        self._curves = curves

    def __contains__(self, name: str) -> bool:
        return name in self._curves.columns

    def column(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Values, and where there are any."""
        column = self._curves.columns.get(name)
        if column is None:
            return np.full(self.stop - self.start, np.nan), np.zeros(self.stop - self.start, dtype=bool)
        there = np.frombuffer(column.present, dtype=np.uint8)[self.start : self.stop].astype(bool)
        return np.frombuffer(column.values, dtype=np.float64)[self.start : self.stop], there

    def at(self, name: str, row: int) -> float | None:
        """One number; None where it is missing."""
        column = self._curves.columns.get(name)
        return None if column is None else column[self.start + row]

    def row(self, row: int, names: Iterable[str]) -> dict[str, float]:
        """The numbers of one row that are there."""
        return {name: value for name in names if (value := self.at(name, row)) is not None}

    def rows(self, names: list[str]) -> Iterator[dict[str, float]]:
        """The numbers of each row that are there, one row after the other."""
        columns = []
        for name in names:
            values, there = self.column(name)
            columns.append(values.tolist())
            for row in np.flatnonzero(~there).tolist():
                columns[-1][row] = None
        for row in zip(*columns, strict=True):
            yield {name: value for name, value in zip(names, row, strict=True) if value is not None}


def feed_long(shapes: Shapes, curves: Curves) -> None:
    """Every row, in the order of training; the state is then that after `judge.feed`."""
    starts = {place.row: place for place in curves.breaks}
    edges = sorted({0, len(curves), *starts})
    run_start = 0
    for start, stop in pairwise(edges):
        if start in starts:
            if starts[start].kind == "restart":
                fill(shapes.shape.store, Table(curves, run_start, start))
                run_start = start
            shapes.begin(starts[start].kind, starts[start].evidence)
        _stretch(shapes, Table(curves, start, stop), stop in starts)
    fill(shapes.shape.store, Table(curves, run_start, len(curves)))


def _stretch(shapes: Shapes, table: Table, breaks_after: bool) -> None:
    """The rows between two starts of training."""
    shapes.arrive(int(table.steps[0]))
    parts = [rates(shapes, table), times(shapes, table), _evaluations(shapes, table), _row_by_row(shapes, table)]
    if shapes.facts.kind != "rl":
        parts += [_not_finite(shapes, table), _zeros(shapes, table), _resume(shapes, table, breaks_after)]
        parts += [loss_spikes(shapes.loss_spike, table), borders(shapes, table)]
        if "grad_norm" not in shapes.facts.leave_out and "train/grad_norm" in table:
            spikes = norm_spikes(shapes.norm_spike, table)
            parts += [[(row, as_norm(finding)) for row, finding in spikes], _stalled(shapes, table)]
    shapes.arrive(int(table.steps[-1]))
    found = [item for part in parts for item in part if item[1] is not None]
    for _, finding in sorted(found, key=lambda item: item[0]):
        shapes.note([finding])


def _where_open(rows: np.ndarray, last: int, feed: Callable, is_open: Callable[[], bool], before: int = 0) -> Found:
    """Feeds the given rows, `before` rows ahead of each, and the rows after it while the detector is open."""
    found, row = [], 0
    for candidate in rows.tolist():
        if candidate < row:
            continue
        row = max(row, candidate - before)
        while row < last and (row <= candidate or is_open()):
            found.append((row, feed(row)))
            row += 1
    return found


def _evaluations(shapes: Shapes, table: Table) -> Found:
    names = [name for name in table._curves.columns if name.startswith("eval/")]
    if not names or shapes.facts.kind == "rl":
        return []
    losses, there = table.column("train/loss")
    good = there & np.isfinite(losses)
    sums, counts = np.cumsum(np.where(good, losses, 0.0)), np.cumsum(good)
    rows = np.flatnonzero(np.logical_or.reduce([table.column(name)[1] for name in names]))
    found, at = [], -1
    for row in rows.tolist():
        before, last = (sums[at], counts[at]) if at >= 0 else (0.0, 0)
        # the row's own loss comes after its evaluation, as in `Shapes.update`
        upto, number = (sums[row - 1], counts[row - 1]) if row else (0.0, 0)
        carried = (shapes.loss_sum, shapes.loss_count) if at < 0 else (0.0, 0)
        shapes.loss_sum, shapes.loss_count = carried[0] + float(upto - before), carried[1] + int(number - last)
        values = table.row(row, ["train/loss", *names])
        held = (shapes.loss_sum, shapes.loss_count)
        for name in names:
            if name in values:
                found.append((row, shapes.evaluation(int(table.steps[row]), name, values)))
        if (shapes.loss_sum, shapes.loss_count) != held or held == (0.0, 0):
            at = row - 1
    before, last = (sums[at], counts[at]) if at >= 0 else (0.0, 0)
    shapes.loss_sum += float(sums[-1] - before)
    shapes.loss_count += int(counts[-1] - last)
    return found


def _row_by_row(shapes: Shapes, table: Table) -> Found:
    """What few logs hold: memory, utilisation, rewards."""
    kind, found = shapes.facts.kind, []
    columns = table._curves.columns
    ours = [n for n in columns if n.startswith(("system/", "time/")) or n == "data/max_length"]
    if kind != "rl" and any(n in ("system/gpu_util", *Shapes.MEMORY) for n in ours):
        for row, (step, values) in enumerate(zip(table.steps.tolist(), table.rows(ours), strict=True)):
            found += [(row, finding) for finding in shapes.machine(step, values)]
    if kind == "preference":
        names = [n for n in columns if n.startswith("rewards/") or n == "accuracy"]
        for row, step in enumerate(table.steps.tolist() if names else []):
            shapes.pairs(step, table.row(row, names))
    if kind == "rl":
        names = [n for n in columns if n not in ("train/lr", "train/loss")]
        for row, step in enumerate(table.steps.tolist()):
            found += [(row, finding) for finding in shapes.rewards(step, table.row(row, names))]
    return found


def _not_finite(shapes: Shapes, table: Table) -> Found:
    loss, has_loss = table.column("train/loss")
    norm, has_norm = table.column("train/grad_norm")
    rows = np.flatnonzero((has_loss & ~np.isfinite(loss)) | (has_norm & ~np.isfinite(norm)))
    names = ("train/loss", "train/grad_norm", "train/step_skipped")

    def feed(row: int) -> Finding | None:
        return shapes.finite(int(table.steps[row]), table.row(row, names))

    detector = shapes.nonfinite
    first = np.array([0]) if detector.is_open else np.zeros(0, dtype=int)
    return _where_open(np.concatenate([first, rows]).astype(int), len(loss), feed, lambda: detector.is_open)


def _zeros(shapes: Shapes, table: Table) -> Found:
    loss, there = table.column("train/loss")
    rows = np.flatnonzero(there & (loss == 0.0))
    detector = shapes.zero_loss

    def feed(row: int) -> Finding | None:
        return detector.update(int(table.steps[row]), table.at("train/loss", row), table.at("train/grad_norm", row))

    first = np.array([0]) if detector.is_open else np.zeros(0, dtype=int)
    rows = np.concatenate([first, rows]).astype(int)
    found = _where_open(rows, len(loss), feed, lambda: detector.is_open, before=40)
    known = np.flatnonzero(there & np.isfinite(loss))[-5:]
    if not detector.is_open and (not found or found[-1][0] < len(loss) - 1):
        for row in known.tolist():  # what a zero in the next stretch is compared with
            feed(row)
    return found


def _stalled(shapes: Shapes, table: Table) -> Found:
    norm, there = table.column("train/grad_norm")
    detector = shapes.stalled
    small = np.flatnonzero(there & (norm >= 0) & (norm < detector.threshold))
    first = np.array([0]) if detector.is_open else np.zeros(0, dtype=int)
    rows = np.concatenate([first, small]).astype(int)

    def feed(row: int) -> Finding | None:
        return detector.update(int(table.steps[row]), table.at("train/grad_norm", row))

    return _where_open(rows, len(norm), feed, lambda: detector.is_open)


def _resume(shapes: Shapes, table: Table, breaks_after: bool) -> Found:
    """The rows after a resume until it is judged, and the last ones before the next start."""
    detector, last = shapes.resume, len(table.steps)
    _, has_loss = table.column("train/loss")
    _, has_norm = table.column("train/grad_norm")
    given = has_loss | has_norm
    names = ("train/loss", "train/lr", "train/grad_norm", "train/epoch")

    def feed(row: int) -> Finding | None:
        values = table.row(row, names)
        if not detector.is_open and "train/loss" not in values:
            return None
        return detector.update(int(table.steps[row]), *(values.get(name) for name in names))

    found, row = [], 0
    while row < last and detector.is_open:
        if given[row]:
            found.append((row, feed(row)))
        row += 1
    tail = np.flatnonzero(has_loss)[-detector.ROWS :] if breaks_after else []
    for row_again in [r for r in tail if r >= row]:
        found.append((int(row_again), feed(int(row_again))))
    return found
