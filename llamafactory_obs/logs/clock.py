"""Speed out of elapsed time, without making numbers out of a clock of whole seconds.

LlamaFactory's `elapsed_time` is cut to whole seconds, and its `throughput` is all tokens (also those before a resume)
over the seconds since this start: true only until the first resume. Total tokens over throughput is the elapsed time
of this start in all cases, and much finer.
"""

from array import array
from itertools import compress, pairwise

from .curves import Column, Curves
from .names import ELAPSED, STAMP, THROUGHPUT, TOKENS
from .order import Order
from .scan import both
from .table import Table

ERROR = 0.05
"""Rows are taken together until the speed is known to this share."""
STEP_TIME, PER_STEP = "time/step_s", "time/per_step_s"
TOKENS_PER_SEC, SESSION = "system/tokens_per_sec", "system/session_tokens_per_sec"
FINE = 0.5
"""Seconds; a clock with a smaller error is taken instead of the whole seconds."""
_UNIX = 1e8  # seconds; a smaller stamp is no time of day


def continue_elapsed(table: Table, order: Order) -> float:
    """Make `time/elapsed_s` go on over the starts (each counts from 0), before rows are left out.

    Returns:
        By how many seconds the difference of two of its values may be wrong.
    """
    elapsed, error = _elapsed(table)
    if elapsed is None:
        return 0.0
    table.columns[ELAPSED] = elapsed
    shift = 0.0
    for first, end in pairwise([*(found.row for found in order.breaks), table.rows]):
        before, begins = elapsed.present.rfind(1, 0, first), elapsed.present.find(1, first)
        if before < 0 or begins < 0:
            continue
        if elapsed.values[begins] + shift < elapsed.values[before]:
            shift = elapsed.values[before]
        for row in range(first, end):
            elapsed.values[row] += shift
    return error


def _elapsed(table: Table) -> tuple[Column | None, float]:
    """The best clock in the log, and the error of a difference."""
    said, stamps = table.columns.get(ELAPSED), table.columns.get(STAMP)
    fine, error = _from_throughput(table)
    if fine is not None and (said is None or error < FINE):
        return fine, error
    if said is not None:
        return said, float(all(map(float.is_integer, compress(said.values, said.present))))
    if stamps is None or (first := stamps.values[stamps.present.find(1)]) < _UNIX:
        return None, 0.0
    column = Column()
    column.values, column.present = array("d", [value - first for value in stamps.values]), stamps.present
    return column, float(all(map(float.is_integer, compress(stamps.values, stamps.present))))


def _from_throughput(table: Table) -> tuple[Column | None, float]:
    """Tokens over throughput, which is rounded to two digits."""
    tokens, rate = table.columns.get(TOKENS), table.columns.get(THROUGHPUT)
    if tokens is None or rate is None:
        return None, 0.0
    column, error = Column(table.rows), 0.0
    for row in compress(range(table.rows), both(tokens.present, rate.present)):
        if rate.values[row] > 0:
            column[row] = tokens.values[row] / rate.values[row]
            error = max(error, 0.01 * column.values[row] / rate.values[row])
    return column, error


def add_speed(curves: Curves, error: float) -> None:
    """Add the wall time per step and the tokens per second; take away what is no rate of a row.

    Args:
        error: of a difference of two elapsed times, in seconds.
    """
    columns = curves.columns
    if (rate := columns.pop(THROUGHPUT, None)) is not None:
        if curves.breaks:
            end = curves.breaks[0].row
            rate.present[end:] = bytes(len(rate) - end)
            curves.notes.append("LlamaFactory's throughput after a resume counts the tokens before it, too: not used")
        columns[SESSION] = rate
    if ELAPSED in columns and STEP_TIME not in columns:
        for name, column in zip((PER_STEP, TOKENS_PER_SEC), _rates(curves, error / ERROR), strict=True):
            if 1 in column.present:
                columns[name] = column


def _rates(curves: Curves, least: float) -> tuple[Column, Column]:
    """Seconds per step and tokens per second within one start, over at least so many seconds."""
    elapsed, tokens, steps = curves.columns[ELAPSED], curves.columns.get(TOKENS), curves.steps
    per_step, per_second = Column(len(curves)), Column(len(curves))
    values = elapsed.values
    for first, end in pairwise([0, *(found.row for found in curves.breaks), len(curves)]):
        rows = compress(range(first, end), elapsed.present[first:end])
        anchor = next(rows, 0)
        enough = values[anchor] + least
        for row in rows:
            if values[row] < enough:
                continue
            passed, done = values[row] - values[anchor], steps[row] - steps[anchor]
            if done <= 0 or passed <= 0:
                continue
            per_step.values[row], per_step.present[row] = passed / done, 1
            if tokens is not None and tokens.present[row] and tokens.present[anchor]:
                more = tokens.values[row] - tokens.values[anchor]
                per_second[row] = more / passed if more >= 0 else None
            anchor, enough = row, values[row] + least
    return per_step, per_second
