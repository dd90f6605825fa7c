"""The probe matrix from the rows of `probes.jsonl`."""

from ...charts import Cell, check_matrix
from ...logs.curves import Curves
from ...record.probes import by_suite, shown_suite
from ...record.schema import BASE
from ...texts import language, text


def probe_section(curves: Curves) -> str:
    """The matrix as HTML, of the suite that was asked most often; "" where there is no result."""
    suites = by_suite(curves.probes)
    if not suites:
        return ""
    suite = shown_suite(suites)
    columns = suites.pop(suite)
    newest = [row for column in columns.values() for row in column.values()]
    prompts = {row["probe"]: str(row.get("prompt", "")) for row in newest}
    ordered = sorted(columns, key=lambda key: (key[1] != BASE, key))
    cells = [[_cell(columns[key].get(probe)) for key in ordered] for probe in prompts]
    heads = [name if name == BASE else name.removeprefix("checkpoint-") for _, name in ordered]
    others = len(suites)
    note = f'<p class="absent">{text("page.suites_left_out", others=others)}</p>' if others else ""
    name = newest[-1].get("suite_name")
    title = text("page.suite", name=name) if name else text("page.suite_unnamed")
    return check_matrix("probe-matrix", title, list(prompts.items()), heads, cells) + note


def _cell(row: dict | None) -> Cell:
    if row is None:
        return Cell(None)
    errors = _texts(row.get("errors"))
    turns = [turn for turn in _list(row.get("turns")) if isinstance(turn, dict)]
    more: list[tuple[str, str]] = []
    for number, turn in enumerate(turns, 1):
        if number > 1:
            more.append((text("page.answer", number=number), str(turn.get("raw", ""))))
        replies = [reply for reply in _list(turn.get("replies")) if isinstance(reply, dict)]
        more += [(text("page.reply"), str(reply.get("text", ""))) for reply in replies]
    output = str(turns[0].get("raw", "")) if turns else str(row.get("output", ""))
    headline, details = _in_words(errors, _texts(row.get("details")))
    return Cell(row["passed"], headline, details, output, more)


def _in_words(errors: list[str], details: list[str]) -> tuple[str, list[str]]:
    """The class of the error for the cell, and what is wrong."""
    from ...probe.in_words import detail_in_words, error_in_words  # brings the judge and jsonschema
    from ...probe.judge import headline

    error = headline(errors)
    return error if language() == "en" else error_in_words(error), list(map(detail_in_words, details))


def _list(value: object) -> list:
    return value if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [str(item) for item in _list(value)]
