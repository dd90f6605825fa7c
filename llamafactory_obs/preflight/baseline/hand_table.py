"""A table of four scores that somebody has filled in by hand. What is not clear is said, never guessed."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from ...probe.judge import LAYERS
from .table_rows import Row, read_text, table_rows
from .table_values import NotClear, looks_like_value, value_of

#: how a layer may be called, without blanks, `_` and `-`, in lower case
_NAMES = {
    "format": ("format", "formats", "formatting", "格式"),
    "tool_choice": ("toolchoice", "toolselection", "tool", "工具选择", "选择工具", "选工具", "选对工具", "工具"),
    "arguments": ("arguments", "argument", "args", "parameters", "parameter", "params", "参数"),
    "task": ("task", "tasks", "taskcompletion", "tasksuccess", "任务", "任务完成", "完成任务"),
}
_LAYER = {name: layer for layer, names in _NAMES.items() for name in names}
#: words beside a name that say nothing about which layer it is
_BESIDE = re.compile(
    r"(scores?|rate|accuracy|acc|correctness|correct|layer|正确率|准确率|成功率|通过率|得分|分数|正确|准确|率|分|层)$"
)
_NUMBERING = re.compile(r"^(l?\d+[.):、]|[(]\d+[)])\s*", re.IGNORECASE)
#: of several rows or columns, the one of the untuned model; else, of several columns, the one of the score
_BASE = ("baseline", "base", "basemodel", "untuned", "基线", "基座", "基座模型", "基础模型", "底座", "未微调", "微调前")
_SCORE = (
    "score",
    "scores",
    "value",
    "rate",
    "accuracy",
    "result",
    "share",
    "得分",
    "分数",
    "正确率",
    "准确率",
    "结果",
    "值",
)


@dataclass
class HandTable:
    """What such a table says.

    Attributes:
        scores: layer -> `{"share": 0..1, "text": as written, "line"}`.
        problems: what is wrong with a layer or that it is missing, with its line in the file.
    """

    scores: dict[str, dict] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_table(path: Path) -> HandTable:
    """Four numbers from a CSV or a Markdown table; the layers are a header row or the first column, in any order.

    Raises:
        ValueError: it is no text, there is no such table in it, or it is not clear which numbers are meant.
        OSError: it cannot be read.
    """
    rows = table_rows(read_text(path))
    if not rows:
        raise ValueError("there is no table in it")
    heads = [row for row in rows if len(set(_layers(row).values())) >= 2]
    table = HandTable()
    if heads:
        _by_header(rows, heads, table)
    else:
        _by_first_column(rows, table)
    return table


def _by_header(rows: list[Row], heads: list[Row], table: HandTable) -> None:
    if len(heads) > 1:
        lines = " and ".join(str(row.line) for row in heads)
        raise ValueError(f"there are several tables (headers in lines {lines}): leave one in the file")
    (head,) = heads
    columns = _layers(head)
    below = [row for row in rows[rows.index(head) + 1 :] if any(_cell(row, at) for at in columns)]
    if len(below) > 1:
        named = [row for row in below if any(_plain(cell) in _BASE for cell in row.cells)]
        if len(named) != 1:
            lines = ", ".join(str(row.line) for row in below)
            raise ValueError(f"lines {lines}: which is the untuned model's? call one of them `baseline`")
        below = named
    if not below:
        raise ValueError(f"line {head.line}: there are no numbers below these names")
    (row,) = below
    cells = defaultdict(list)
    for at, layer in columns.items():
        cells[layer].append((row.line, _cell(row, at), "%" in head.cells[at]))
    _take(cells, table, f"the names stand in line {head.line}")


def _by_first_column(rows: list[Row], table: HandTable) -> None:
    named = []
    for row in rows:
        at = next((at for at, cell in enumerate(row.cells[:2]) if _layer(cell)), None)  # an index may stand before
        if at is not None:
            named.append((row, at, _layer(row.cells[at])))
    if not named:
        raise ValueError(f"no row or column is called {', '.join(LAYERS)} or 格式, 工具选择, 参数, 任务")
    first = rows.index(named[0][0])
    head = rows[first - 1] if first else Row(0, ())
    after = {row.line: at + 1 for row, at, _ in named}
    columns = sorted(
        {at for row, *_ in named for at in range(after[row.line], len(row.cells)) if looks_like_value(row.cells[at])}
    )
    for words in (_BASE, _SCORE):
        chosen = [at for at in columns if _plain(_cell(head, at)) in words]
        if len(columns) > 1 and len(chosen) == 1:
            columns = chosen
    if len(columns) > 1:
        lines = f"{named[0][0].line}-{named[-1][0].line}"
        raise ValueError(f"lines {lines}: several columns of numbers; call the untuned model's `baseline`")
    cells = defaultdict(list)
    for row, at, layer in named:
        column = columns[0] if columns else after[row.line]
        percent = "%" in row.cells[at] or "%" in _cell(head, column)
        cells[layer].append((row.line, _cell(row, column), percent))
    _take(cells, table, f"the others stand in lines {named[0][0].line}-{named[-1][0].line}")


def _take(cells: dict[str, list], table: HandTable, where: str) -> None:
    """The value of each layer, or what is wrong with it."""
    table.problems += [f"{layer}: missing ({where})" for layer in LAYERS if layer not in cells]
    for layer, found in cells.items():
        line, text, percent = found[0]
        if len(found) > 1:
            lines = ", ".join(dict.fromkeys(str(one[0]) for one in found))
            table.problems.append(f"{layer}: named {len(found)} times (line {lines})")
            continue
        try:
            table.scores[layer] = {"share": value_of(text, percent), "text": text, "line": line}
        except NotClear as error:
            table.problems.append(f"{layer}: line {line}: {error}")


def _layers(row: Row) -> dict[int, str]:
    """Column -> the layer that it is called by."""
    return {at: layer for at, cell in enumerate(row.cells) if (layer := _layer(cell))}


def _layer(cell: str) -> str | None:
    """The layer that a cell names: `格式 (format)`, `2. Tool choice score`, `arguments %`."""
    cell = _NUMBERING.sub("", cell.strip())
    found = set()
    for part in (cell, *re.split(r"[()/%\[\]]", cell)):
        name = _plain(part)
        found.add(_LAYER.get(name) or _LAYER.get(_BESIDE.sub("", name)))
    found.discard(None)
    return found.pop() if len(found) == 1 else None


def _plain(text: str) -> str:
    return re.sub(r"[\s_\-:*`]", "", text).lower()


def _cell(row: Row, at: int) -> str:
    return row.cells[at] if at < len(row.cells) else ""
