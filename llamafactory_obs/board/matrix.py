"""The probes of a run by checkpoint, from `probes.jsonl`. Raw outputs stay in the file until somebody asks for one."""

from pathlib import Path

from ..charts.text import cut, visible
from ..live.tail import Tail
from ..record.probes import is_whole, shown_suite
from ..record.schema import BASE

#: checkpoints and probes that are shown; suites that are kept; characters of one text
_MOST_COLUMNS, _MOST_PROBES, _MOST_SUITES, _LONGEST = 24, 1000, 8, 100_000


class Matrix:
    """Who passed what, by checkpoint; of the suite that was asked most often."""

    def __init__(self, file: Path):
        self._file = file
        self._begin()

    def _begin(self) -> None:
        self._tail = Tail(self._file)
        self._count = 0
        self._suites: dict[str, dict[tuple[int, str], dict[str, tuple]]] = {}
        self._names: dict[str, str] = {}

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
        suite = str(row.get("suite"))
        columns = self._suites[suite] = self._suites.pop(suite, {})  # the newest stands last
        self._names[suite] = visible(row.get("suite_name") or "")
        if len(self._suites) > _MOST_SUITES:
            least = min(list(self._suites)[:-1], key=lambda one: len(self._suites[one]))
            del self._suites[least], self._names[least]
        errors = row.get("errors")
        headline = str(errors[0]) if isinstance(errors, list) and errors else ""
        cell = (number, int(row["passed"]), visible(cut(headline, 60)))
        columns.setdefault((row["step"], row["checkpoint"]), {})[row["probe"]] = cell

    def shown(self) -> dict | None:
        """For the page; None where nothing was probed.

        Returns:
            `suite`, `columns`: (step, name) of each checkpoint, the untuned model first; `rows`: (probe, cells): a cell
            is 0 where it was not asked, else [number of its row, passed, class of the error]; `left_out`: checkpoints.
        """
        if not self._suites:
            return None
        suite = shown_suite(self._suites)
        columns = self._suites[suite]
        base = [key for key in columns if key[1] == BASE]
        rest = sorted(key for key in columns if key[1] != BASE)
        kept = base + rest[max(0, len(rest) - _MOST_COLUMNS + len(base)) :]
        probes = list(dict.fromkeys(probe for key in kept for probe in columns[key]))
        rows = [[visible(cut(probe, 120)), [columns[key].get(probe, 0) for key in kept]] for probe in probes]
        heads = [[step, visible(cut(name, 80))] for step, name in kept]
        passed = [[sum(cell[1] for cell in column.values()), len(column)] for column in map(columns.get, kept)]
        left = len(columns) - len(kept)
        return {
            "suite": self._names[suite],
            "columns": heads,
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
