"""What is marked in the curves, from `events.jsonl`: resumes, and alerts when they were raised or got graver."""

from pathlib import Path

from ..live.tail import Tail
from .said import title

_MOST = 1500


class Marks:
    """Takes the rows in the order written; what a resume took back is taken back here."""

    def __init__(self, file: Path):
        self._file = file
        self._begin()

    def _begin(self) -> None:
        self._tail = Tail(self._file)
        self._marks: list[dict] = []

    def update(self) -> bool:
        """Read what is new; True where something is to be marked."""
        changed = False
        for rows in self._tail.rows():
            for row in rows:
                changed = self._add(row) or changed
        if self._tail.replaced:
            self._begin()
            return True
        return changed

    def _add(self, row: dict) -> bool:
        kind, step = row.get("kind"), row.get("step")
        if step is None or kind not in ("alert", "resume", "crash", "oom"):
            return False
        life = row.get("alert")
        told = not isinstance(life, dict) or life.get("state") in ("raised", "escalated")
        level = row.get("level")
        if kind == "alert" and (level not in ("warn", "error") or not told):
            return False
        if kind == "resume":
            self._marks = [mark for mark in self._marks if mark["step"] <= step or mark["kind"] == "resume"]
        mark = {"step": step, "kind": "resume" if kind == "resume" else "alert", "level": level}
        self._marks.append(mark | {"title": title(str(row.get("title") if kind == "alert" else kind))})
        del self._marks[:-_MOST]
        return True

    def shown(self) -> list[dict]:
        """By step: `step`, `kind` (alert, resume), `level`, `title`."""
        return sorted(self._marks, key=lambda mark: mark["step"])
