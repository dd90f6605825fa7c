"""What was checked, down, at which checkpoints, across: passed or what is wrong; a click shows the raw text."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..texts import text as said
from .plot import identifier
from .text import cut, data_block, escape, visible

#: bytes (UTF-8) of texts in one matrix, and cells; what is beyond is cut or left out and says so
BUDGET = 350_000
MOST_CELLS = 8_000
_LONGEST = 6_000


@dataclass(frozen=True)
class Cell:
    """One check at one checkpoint.

    Attributes:
        passed: None where it was not checked.
        text: on the cell: the class of the error; "" where it passed.
        details: one sentence each.
        output: the raw text, as the model gave it.
        more: (heading, text) of what else a click shows, such as a tool's reply.
    """

    passed: bool | None
    text: str = ""
    details: Sequence[str] = ()
    output: str = ""
    more: Sequence[tuple[str, str]] = field(default_factory=tuple)


def check_matrix(
    name: str, title: str, rows: Sequence[tuple[str, str]], columns: Sequence[str], cells: Sequence[Sequence[Cell]]
) -> str:
    """The matrix as HTML.

    Args:
        rows: (name, what was asked) of each check.
        columns: names of the checkpoints, in order.
        cells: one list for each row, one cell for each column.
    """
    left = max(0, len(columns) - max(2, MOST_CELLS // max(1, len(rows))))
    columns, cells = columns[left:], [line[left:] for line in cells]
    limit = _limit([prompt for _, prompt in rows], cells)
    texts: dict[str, int] = {}
    heads = "".join(f'<th scope="col">{escape(column, 60)}</th>' for column in columns)
    body, data = [], []
    for (row, prompt), line in zip(rows, cells, strict=True):
        head = f'<th scope="row" title="{escape(prompt, 200)}">{escape(row, 120)}</th>'
        body.append(f"<tr>{head}{''.join(map(_cell, line))}</tr>")
        data.append([_place(prompt, limit, texts), [_data(cell, limit, texts) for cell in line]])
    passed = [f"{sum(1 for line in cells if line[i].passed)}/{_asked(cells, i)}" for i in range(len(columns))]
    foot = "".join(f"<td>{count}</td>" for count in passed)
    spec = {"rows": data, "texts": list(texts)}
    note = f'<p class="note">{said("charts.matrix.earlier", count=left)}</p>' if left else ""
    id_ = identifier(name)
    return (
        f'<section class="matrix" id="{id_}"><h3>{escape(title)}</h3>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}"><table><thead><tr>'
        f'<th scope="col">{said("charts.matrix.probe")}</th>{heads}</tr></thead><tbody>{"".join(body)}</tbody>'
        f'<tfoot><tr><th scope="row">{said("charts.matrix.passed")}</th>{foot}</tr></tfoot></table></div>{note}'
        f'<div class="detail" aria-live="polite" hidden></div>{data_block(spec)}</section>'
    )


def _asked(cells: Sequence[Sequence[Cell]], column: int) -> int:
    return sum(1 for line in cells if line[column].passed is not None)


def _cell(cell: Cell) -> str:
    if cell.passed is None:
        return "<td>–</td>"
    if cell.passed:
        return '<td class="p"><button type="button">✓</button></td>'
    return f'<td class="f"><button type="button">✗ {escape(cell.text, 60)}</button></td>'


def _limit(prompts: Sequence[str], cells: Sequence[Sequence[Cell]]) -> int:
    """Characters a text may have, so that all of them fit into the budget."""
    every = {*prompts, *(text for line in cells for cell in line for text in _texts(cell))}
    sizes = [(len(text), len(text.encode("utf-8", "replace"))) for text in every]
    limit = _LONGEST
    while limit > 80 and sum(size * min(1.0, limit / max(1, length)) for length, size in sizes) > BUDGET:
        limit = limit * 4 // 5
    return limit


def _texts(cell: Cell) -> list[str]:
    return [cell.output, *cell.details, *(text for _, text in cell.more)]


def _data(cell: Cell, limit: int, texts: dict[str, int]) -> list | int:
    """Positions of a cell's texts in the list of all; equal texts stand there once."""
    if cell.passed is None:
        return 0

    return [
        _place(cell.output, limit, texts),
        [_place(detail, limit, texts) for detail in cell.details],
        [[visible(heading), _place(text, limit, texts)] for heading, text in cell.more],
    ]


def _place(text: str, limit: int, texts: dict[str, int]) -> int:
    return texts.setdefault(visible(cut(text, limit)), len(texts))
