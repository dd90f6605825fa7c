"""A table becomes Curves: steps for every row, the order of training, the kind of run, speed."""

from array import array
from collections.abc import Sequence
from itertools import compress, islice
from pathlib import Path

from .clock import add_speed, continue_elapsed
from .curves import Break, Column, Curves
from .kinds import kind_of
from .names import EVAL, LOSS, LR, NORM, PLACE, STAMP, STEP, SUMMARY, TOTAL
from .order import SEGMENT, Order, put_in_order
from .raw import Raw
from .scan import any_present, stride
from .steps import give_steps
from .table import Table

_ENOUGH = 100_000  # rows that tell how often the run logs
_AT_THE_END = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_tokens_per_second")


def assemble(path: Path, raw: Raw, settings: dict) -> Curves:
    """Curves of one log."""
    table, notes = raw.table, list(raw.notes)
    if table.texts:
        notes.append(f"{table.texts} numbers were written as text")
    table.clean((*PLACE, SEGMENT))
    rows = _rows(table, notes)
    kind = kind_of(table, settings, raw.work)
    if kind != "not_a_training_log":
        table.keep(rows)
    curves = Curves(path, raw.source, kind, settings=settings, notes=notes, max_steps=_max_steps(raw, table))
    if not table.rows:
        return curves
    notes += give_steps(table, raw.facts)
    order = put_in_order(table)
    notes += order.notes
    clock_error = continue_elapsed(table, order)
    curves.breaks, curves.overlaps, curves.resumes = _renumbered(order), order.overlaps, order.resumes
    table.keep(order.rows)
    curves.steps = array("q", map(int, table.take(STEP).values))
    curves.columns = {name: column for name, column in table.columns.items() if 1 in column.present}
    curves.logging_steps = _logging_steps(curves, raw.facts)
    _mean_of_evaluations(curves)
    add_speed(curves, clock_error)
    for name in (TOTAL, STAMP, SEGMENT):
        curves.columns.pop(name, None)
    return curves


def _rows(table: Table, notes: list[str]) -> Sequence[int]:
    """The rows with something measured. The Trainer's summary at the end is no step."""
    if LOSS not in table.columns and SUMMARY in table.columns and table.columns[SUMMARY].present.count(1) > 1:
        table.columns[LOSS] = table.take(SUMMARY)
        notes.append("train_loss is taken for the loss of the steps")
    ends = [column for name in _AT_THE_END if (column := table.take(name)) is not None]
    table.take(SUMMARY)
    table.take("total_flos")
    mask = any_present([column for name, column in table.columns.items() if name not in PLACE], table.rows)
    for row in compress(range(table.rows), any_present(ends, table.rows)):
        mask[row] = 0
    return range(table.rows) if 0 not in mask else array("q", compress(range(table.rows), mask))


def _max_steps(raw: Raw, table: Table) -> int | None:
    totals = table.columns.get(TOTAL)
    said = raw.facts.get("max_steps")
    if totals is not None and (last := totals.present.rfind(1)) >= 0:
        said = totals.values[last]
    return int(said) if said and 0 < said < 2**53 else None


def _renumbered(order: Order) -> list[Break]:
    """Breaks whose rows are those of the result; one whose first row a later start has replaced is gone."""
    where = {row: at for at, row in enumerate(order.rows)} if order.breaks else {}
    return [Break(where[found.row], found.kind, found.evidence) for found in order.breaks if found.row in where]


def _logging_steps(curves: Curves, facts: dict) -> int:
    """Steps from one training row to the next: what most rows say, else what the state says."""
    column = next((curves.columns[name] for name in (LOSS, LR, NORM) if name in curves.columns), None)
    if column is not None:
        steps = list(compress(islice(curves.steps, _ENOUGH), column.present))
        if (usual := stride(steps)) > 0:
            return usual
    said = facts.get("logging_steps") or curves.settings.get("logging_steps")
    return int(said) if isinstance(said, (int, float)) and 1 <= said < 2**53 else 1


def _mean_of_evaluations(curves: Curves) -> None:
    """Several evaluation sets: `eval/<name>_loss` each, and their mean as `eval/loss` where all of them are."""
    if EVAL in curves.columns:
        return
    parts = [name for name in curves.columns if name.startswith("eval/") and name.endswith("_loss")]
    if not parts:
        return
    mean = Column(len(curves))
    for row, values in enumerate(zip(*(curves.columns[name] for name in parts), strict=True)):
        if None not in values:
            mean[row] = sum(values) / len(values)
    curves.columns[EVAL] = mean
    if len(parts) > 1:
        curves.notes.append(f"eval/loss is the mean of {', '.join(parts)}")
