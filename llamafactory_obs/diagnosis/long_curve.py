"""The rate, the step times, the borders of epochs and the blocks of the loss on very many rows, see `long`."""

import numpy as np

from ..detect import Finding
from ..detect.loss_blocks import Block, LossBlocks
from .shapes import waited

Found = list[tuple[int, Finding | None]]  # row, what was found there


def rates(shapes, table) -> Found:
    """The learning rate."""
    values, there = table.column("train/lr")
    rows = np.flatnonzero(there & np.isfinite(values) & (values >= 0))
    if not len(rows):
        return []
    rate, detector = values[rows], shapes.rate
    change = np.diff(rate, prepend=rate[0])
    peak = np.maximum.accumulate(rate)
    ends = np.flatnonzero((change < 0) | ((change == 0) & (rate >= peak) & (np.cumsum(change > 0) > 0)))
    warm = int(ends[0]) + 1 if len(ends) else 0
    found = [(int(rows[i]), detector.update(int(table.steps[rows[i]]), float(rate[i]))) for i in range(warm)]
    last = np.concatenate([[0.0], change[:-1]])
    larger = np.maximum(rate, rate - change)
    moved = np.abs(change)
    zero = rate == 0.0
    zeros = np.arange(1, len(rate) + 1) - np.maximum.accumulate(np.where(zero, 0, np.arange(1, len(rate) + 1)))
    seen = np.concatenate([[0.0], peak[:-1]])
    jumps = (moved > 0.5 * larger) & (moved > 8 * np.abs(last)) & (moved > 0.05 * peak)
    ended = (zeros == detector.dead_rows) & (seen > 0)
    for i in np.flatnonzero(jumps | ended).tolist():
        if i >= max(warm, 1):
            detector.skip_to(float(rate[i - 1]), float(last[i]), float(seen[i]), i, int(zeros[i - 1]))
            found.append((int(rows[i]), detector.update(int(table.steps[rows[i]]), float(rate[i]))))
    return found


def times(shapes, table) -> Found:
    """Seconds per step."""
    step_s, there = table.column("time/step_s")
    per_step, other = table.column("time/per_step_s")
    values = np.where(there, step_s, per_step)
    good = (there | other) & np.isfinite(values) & (values >= 0)
    for name in ("time/unusual", "time/eval_s", "time/checkpoint_s"):
        flag, flagged = table.column(name)
        good &= ~(flagged & (flag != 0))
    rows, detector, size = np.flatnonzero(good), shapes.speed, shapes.speed.BLOCK
    found, at = [], 0
    whole = len(rows) // size
    medians = np.median(values[rows[: whole * size]].reshape(whole, size), axis=1) if whole else np.zeros(0)
    while at < whole:  # blocks
        if detector.since is None and len(detector.usual) == detector.BLOCKS and whole - at > detector.BLOCKS:
            ahead = medians[at : at + 4096]
            past = np.concatenate([np.array(detector.usual), ahead])
            usual = np.median(np.lib.stride_tricks.sliding_window_view(past, detector.BLOCKS)[: len(ahead)], axis=1)
            slow = np.flatnonzero(ahead >= np.maximum(detector.ratio * usual, usual + detector.blur))
            quiet = int(slow[0]) if len(slow) else len(ahead)
            detector.usual.extend(ahead[max(0, quiet - detector.BLOCKS) : quiet].tolist())
            at += quiet
        if at < whole:
            for row in rows[at * size : (at + 1) * size].tolist():
                found.append((row, _timed(detector, table, row, values)))
            at += 1
    for row in rows[whole * size :].tolist():
        found.append((row, _timed(detector, table, row, values)))
    return found


def _timed(detector, table, row: int, values) -> Finding | None:
    return detector.update(int(table.steps[row]), float(values[row]), False, waited(lambda name: table.at(name, row)))


def borders(shapes, table) -> Found:
    """The rows around the borders of epochs."""
    loss, has_loss = table.column("train/loss")
    epoch, has_epoch = table.column("train/epoch")
    with np.errstate(invalid="ignore"):
        rows = np.flatnonzero(has_loss & has_epoch & np.isfinite(loss) & np.isfinite(epoch) & (loss > 0))
    if not len(rows):
        return []
    detector = shapes.epochs
    numbers = np.where(epoch[rows] > 0, np.ceil(epoch[rows] - 1e-6) - 1, 0)
    borders = (np.flatnonzero(np.diff(np.maximum.accumulate(numbers)) > 0) + 1).tolist()
    wanted: list[tuple[int, int]] = [(0, 80), (len(rows) - 80, len(rows))]
    wanted += [(border - 80, border + detector.rows + 1) for border in borders]
    found, done = [], 0
    for start, stop in sorted(wanted):
        for i in range(max(done, start, 0), min(stop, len(rows))):
            row = int(rows[i])
            found.append((row, detector.update(int(table.steps[row]), float(loss[row]), float(epoch[row]))))
        done = max(done, min(stop, len(rows)))
    return found


def fill(store: LossBlocks, table) -> None:
    """The blocks of a whole run at once."""
    loss, there = table.column("train/loss")
    with np.errstate(invalid="ignore"):
        rows = np.flatnonzero(there & np.isfinite(loss) & (loss > 0))
    if not len(rows):
        return
    loss = loss[rows]
    given = (table.column("train/epoch"), table.column("train/lr"))
    epoch, rate = (np.where(has, values, np.nan)[rows] for values, has in given)
    y = np.log(loss)
    moves, swings = np.abs(np.diff(y, prepend=y[0])), np.abs(np.diff(loss, prepend=loss[0]))
    size = 1
    while len(loss) // size >= store.MOST:
        size *= 2
    starts = np.arange(0, len(loss), size)
    sums = [np.add.reduceat(values, starts) for values in (y, moves, swings)]
    rates = np.fmax.reduceat(rate, starts)
    ends = np.append(starts[1:], len(loss)) - 1
    steps = table.steps[rows]
    blocks = []
    for i, (a, b) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        parts = (float(s[i]) for s in sums)
        blocks.append(Block(int(steps[a]), int(steps[b]), float(epoch[a]), b - a + 1, *parts, float(rates[i])))
    whole = [block for block in blocks if block.rows == size]
    store.take(size, whole, blocks[-1] if blocks[-1].rows < size else None, loss)
