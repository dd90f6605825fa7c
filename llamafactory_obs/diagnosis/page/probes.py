"""The probe matrix from the rows of `probes.jsonl`."""

from ...charts import Cell, check_matrix
from ...logs.curves import Curves
from ...probe.results import BASE


def probe_section(curves: Curves) -> str:
    """The matrix as HTML, of the newest suite; "" where there is no result."""
    rows = [row for row in curves.probes if _whole(row)]
    if not rows:
        return ""
    suite = rows[-1].get("suite")
    mine = [row for row in rows if row.get("suite") == suite]
    columns: dict[tuple[int, str], dict[str, dict]] = {}
    prompts: dict[str, str] = {}
    for row in mine:
        columns.setdefault((row["step"], row["checkpoint"]), {})[row["probe"]] = row
        prompts[row["probe"]] = str(row.get("prompt", ""))
    ordered = sorted(columns, key=lambda key: (key[1] != BASE, key))
    cells = [[_cell(columns[key].get(probe)) for key in ordered] for probe in prompts]
    heads = [name if name == BASE else name.removeprefix("checkpoint-") for _, name in ordered]
    others = len(rows) - len(mine)
    note = f'<p class="absent">Results of another suite are left out: {others}.</p>' if others else ""
    title = f"Suite {mine[-1].get('suite_name') or ''}: press a cell for the raw output".replace("  ", " ")
    return check_matrix("probe-matrix", title, list(prompts.items()), heads, cells) + note


def _whole(row: dict) -> bool:
    return (
        type(row.get("step")) is int
        and isinstance(row.get("checkpoint"), str)
        and isinstance(row.get("probe"), str)
        and isinstance(row.get("passed"), bool)
    )


def _cell(row: dict | None) -> Cell:
    if row is None:
        return Cell(None)
    errors = _texts(row.get("errors"))
    turns = [turn for turn in _list(row.get("turns")) if isinstance(turn, dict)]
    more: list[tuple[str, str]] = []
    for number, turn in enumerate(turns, 1):
        if number > 1:
            more.append((f"answer {number}", str(turn.get("raw", ""))))
        replies = [reply for reply in _list(turn.get("replies")) if isinstance(reply, dict)]
        more += [("the tool's reply", str(reply.get("text", ""))) for reply in replies]
    output = str(turns[0].get("raw", "")) if turns else str(row.get("output", ""))
    return Cell(row["passed"], _headline(errors), _texts(row.get("details")), output, more)


def _headline(errors: list[str]) -> str:
    from ...probe.judge import headline  # brings the judge and jsonschema

    return headline(errors)


def _list(value: object) -> list:
    return value if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [str(item) for item in _list(value)]
