"""The probe matrix of the suite that was asked most often, and what the newest checkpoint says to the others."""

from ..logs.curves import Curves
from ..record.probes import Column, by_suite, shown_suite
from ..record.schema import BASE
from .model import OtherSuite, ProbeMatrix
from .parts import Why


def probes_of(curves: Curves) -> tuple[ProbeMatrix | None, dict[str, Why]]:
    """Each probe at each checkpoint; the newest row of a cell counts."""
    suites = by_suite(curves.probes)
    if not suites:
        return None, {"probes": Why("no_probes")}
    shown = shown_suite(suites)
    others = [_newest(suite, columns) for suite, columns in suites.items() if suite != shown]
    return _matrix(shown, suites[shown], others), {}


def _matrix(suite: str, cells: dict[Column, dict[str, dict]], others: list[OtherSuite]) -> ProbeMatrix:
    keys = sorted(cells, key=_place)
    columns = [column for _, column in keys]
    probes = list(dict.fromkeys(probe for column in cells.values() for probe in column))
    passed = {probe: [_passed(cells[key].get(probe)) for key in keys] for probe in probes}
    errors = {probe: [_errors(cells[key].get(probe)) for key in keys] for probe in probes}
    totals = [_total(cells[key]) for key in keys]
    best = None
    for (count, asked), column in zip(totals, columns, strict=True):
        if column != BASE and (best is None or count / asked >= best[0]):
            best = (count / asked, column)
    return ProbeMatrix(
        _name(cells), suite, columns, probes, passed, errors, totals, None if best is None else best[1], others
    )


def _newest(suite: str, cells: dict[Column, dict[str, dict]]) -> OtherSuite:
    column = max(cells, key=_place)
    return OtherSuite(_name(cells) or suite[:8], column[1], *_total(cells[column]))


def _name(cells: dict[Column, dict[str, dict]]) -> str:
    """Of the suite, as its newest checkpoint's rows say it."""
    rows = cells[max(cells, key=_place)].values()
    return next((str(row["suite_name"]) for row in rows if row.get("suite_name")), "")


def _place(column: Column) -> tuple[bool, Column]:
    """The base model first, then by step."""
    return column[1] != BASE, column


def _total(column: dict[str, dict]) -> tuple[int, int]:
    return sum(row["passed"] for row in column.values()), len(column)


def _passed(row: dict | None) -> bool | None:
    return None if row is None else row["passed"]


def _errors(row: dict | None) -> list[str]:
    errors = (row or {}).get("errors")
    return [str(error) for error in errors] if isinstance(errors, list) else []
