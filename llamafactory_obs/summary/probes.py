"""The probe matrix of the newest suite."""

from ..logs.curves import Curves
from ..record.probes import is_whole
from ..record.schema import BASE
from .model import ProbeMatrix
from .parts import Why


def probes_of(curves: Curves) -> tuple[ProbeMatrix | None, dict[str, Why]]:
    """Each probe at each checkpoint; the newest row of a cell counts."""
    rows = [row for row in curves.probes if is_whole(row)]
    if not rows:
        return None, {"probes": Why("no_probes")}
    suite = rows[-1].get("suite")
    cells: dict[tuple[int, str], dict[str, dict]] = {}
    names: dict[str, None] = {}
    for row in rows:
        if row.get("suite") == suite:
            cells.setdefault((row["step"], row["checkpoint"]), {})[row["probe"]] = row
            names[row["probe"]] = None
    keys = sorted(cells, key=lambda key: (key[1] != BASE, key))
    columns = [name for _, name in keys]
    passed = {probe: [_passed(cells[key].get(probe)) for key in keys] for probe in names}
    errors = {probe: [_errors(cells[key].get(probe)) for key in keys] for probe in names}
    totals = [(sum(one["passed"] for one in cells[key].values()), len(cells[key])) for key in keys]
    tuned = [(total, column) for total, column in zip(totals, columns, strict=True) if column != BASE]
    best = None
    for (count, asked), column in tuned:
        share = count / asked
        if best is None or share >= best[0]:
            best = (share, column)
    name = next((str(row.get("suite_name")) for row in reversed(rows) if row.get("suite_name")), "")
    return ProbeMatrix(name, columns, list(names), passed, errors, totals, best[1] if best else None), {}


def _passed(row: dict | None) -> bool | None:
    return None if row is None else row["passed"]


def _errors(row: dict | None) -> list[str]:
    errors = (row or {}).get("errors")
    return [str(error) for error in errors] if isinstance(errors, list) else []
