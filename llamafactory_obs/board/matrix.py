"""The probes of a run by checkpoint, from `probes.jsonl`. Raw outputs stay in the file until somebody asks for one."""

from pathlib import Path

from ..charts.text import cut, visible
from ..live.tail import Tail
from ..record.probes import is_whole
from ..record.schema import BASE

#: checkpoints and probes that are shown; characters of one text
_MOST_COLUMNS, _MOST_PROBES, _LONGEST = 24, 1000, 100_000


class Matrix:
    """Who passed what, by checkpoint; of the newest suite."""

    def __init__(self, file: Path):
        self._file = file
        self._begin()

    def _begin(self) -> None:
        self._tail = Tail(self._file)
        self._count = 0
        self._suite: object = None
        self._name = ""
        self._columns: dict[tuple[int, str], dict[str, tuple]] = {}

    def update(self) -> bool:
        """Read what is new; True where something is."""
        before = self._count
        for rows in self._tail.rows():
            for row in rows:
                self._add(row, self._count)
                self._count += 1
        if self._tail.replaced:
            self._begin()
            return True
        return self._count != before

    def _add(self, row: dict, number: int) -> None:
        if not is_whole(row):
            return
        if row.get("suite") != self._suite:
            self._suite, self._columns = row.get("suite"), {}
        self._name = visible(row.get("suite_name") or "")
        errors = row.get("errors")
        headline = str(errors[0]) if isinstance(errors, list) and errors else ""
        cell = (number, int(row["passed"]), visible(cut(headline, 60)))
        self._columns.setdefault((row["step"], row["checkpoint"]), {})[row["probe"]] = cell

    def shown(self) -> dict | None:
        """For the page; None where nothing was probed.

        Returns:
            `suite`, `columns`: (step, name) of each checkpoint, the untuned model first; `rows`: (probe, cells): a cell
            is 0 where it was not asked, else [number of its row, passed, class of the error]; `left_out`: checkpoints.
        """
        if not self._columns:
            return None
        base = [key for key in self._columns if key[1] == BASE]
        rest = sorted(key for key in self._columns if key[1] != BASE)
        kept = base + rest[max(0, len(rest) - _MOST_COLUMNS + len(base)) :]
        probes = list(dict.fromkeys(probe for key in kept for probe in self._columns[key]))
        rows = [[visible(cut(probe, 120)), [self._columns[key].get(probe, 0) for key in kept]] for probe in probes]
        columns = [[step, visible(cut(name, 80))] for step, name in kept]
        passed = [[sum(cell[1] for cell in column.values()), len(column)] for column in map(self._columns.get, kept)]
        left = len(self._columns) - len(kept)
        return {
            "suite": self._name,
            "columns": columns,
            "rows": rows[:_MOST_PROBES],
            "passed": passed,
            "left_out": left,
        }

    def one(self, number: int) -> dict | None:
        """One row of the file with its texts, None where there is no such row."""
        place = 0
        for rows in Tail(self._file).rows():
            if number < place + len(rows):
                return _told(rows[number - place])
            place += len(rows)
        return None


def _told(row: dict) -> dict | None:
    """What is shown of a row: plain strings, whatever it holds."""
    if not is_whole(row):
        return None
    turns = []
    for turn in _list(row.get("turns")):
        if isinstance(turn, dict):
            replies = [reply.get("text", "") for reply in _list(turn.get("replies")) if isinstance(reply, dict)]
            turns.append({"raw": _text(turn.get("raw", "")), "replies": [_text(reply) for reply in replies]})
    return {
        "probe": _text(row["probe"]),
        "checkpoint": _text(row["checkpoint"]),
        "passed": row["passed"],
        "errors": [_text(error) for error in _list(row.get("errors"))],
        "details": [_text(detail) for detail in _list(row.get("details"))],
        "prompt": _text(row.get("prompt", "")),
        "turns": turns or [{"raw": _text(row.get("output", "")), "replies": []}],
    }


def _text(value: object) -> str:
    return visible(cut(str(value), _LONGEST))


def _list(value: object) -> list:
    return value[:200] if isinstance(value, list) else []
