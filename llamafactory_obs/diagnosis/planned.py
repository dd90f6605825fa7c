"""A log with the learning rates that the schedule alone would have made: what `control` did is no anomaly."""

from dataclasses import replace

from ..logs.curves import Column, Curves
from ..logs.names import LR
from ..logs.resumed import SCALE, planned_rate


def planned_row(values: dict) -> dict:
    """One row of our record."""
    return values | {LR: planned_rate(values[LR], values[SCALE])} if LR in values and SCALE in values else values


def planned_curves(curves: Curves) -> Curves:
    """A whole log."""
    rates, scales = curves.columns.get(LR), curves.columns.get(SCALE)
    if rates is None or scales is None:
        return curves
    planned = Column(len(curves))
    for row, (rate, scale) in enumerate(zip(rates, scales, strict=True)):
        planned[row] = None if rate is None else planned_rate(rate, scale)
    return replace(curves, columns=curves.columns | {LR: planned})
