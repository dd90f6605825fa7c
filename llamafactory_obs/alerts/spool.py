"""The messages that are not sent yet, in a file: written before they are sent, so that a killed process loses none."""

import contextlib
import json
import os
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..record.schema import UNSENT


@dataclass(frozen=True)
class Letter:
    """One event for one address.

    id     of its own, so that a receiver can tell a message that came twice
    to     `Webhook.key`
    run    what the run is called
    event  the row of `events.jsonl`
    """

    id: str
    to: str
    run: str
    event: dict


class Spool:
    """`webhook-unsent.jsonl` in the record's folder: a line for each letter, one more when it is done with.

    The file is there only while something is unsent. What cannot be written (a full disk) is kept in memory alone.

    Args:
        folder: the record's.
        on_error: told, once, why the file cannot be written.
        suffix: for a second writer beside the first rank's.
    """

    def __init__(self, folder: Path, on_error: Callable[[str], None], suffix: str = ""):
        name = Path(UNSENT)
        self._file = folder / f"{name.stem}{suffix}{name.suffix}"
        self._on_error = on_error
        self._lock = threading.Lock()
        self._unsent: dict[str, Letter] = {}
        self._said = False

    @property
    def unsent(self) -> int:
        """How many are not done with."""
        with self._lock:
            return len(self._unsent)

    def load(self) -> list[Letter]:
        """What earlier processes of this run have left, the oldest first. The files of other ranks are taken over."""
        letters: dict[str, Letter] = {}
        others = []
        name = Path(UNSENT)
        for file in sorted(self._file.parent.glob(f"{name.stem}*{name.suffix}")):
            letters |= _read(file)
            others += [file] if file != self._file else []
        with self._lock:
            self._unsent = dict(sorted(letters.items(), key=lambda item: item[1].event.get("time", 0.0)))
            if self._rewrite():
                for file in others:
                    with contextlib.suppress(OSError):
                        file.unlink()
            return list(self._unsent.values())

    def add(self, to: str, run: str, event: dict) -> Letter:
        """Write one down."""
        letter = Letter(uuid.uuid4().hex[:16], to, run, event)
        with self._lock:
            self._unsent[letter.id] = letter
            self._append({"id": letter.id, "to": to, "run": run, "event": event})
        return letter

    def done(self, letters: list[Letter]) -> None:
        """These are sent, or will never be."""
        with self._lock:
            for letter in letters:
                self._unsent.pop(letter.id, None)
            if self._unsent:
                self._append({"done": [letter.id for letter in letters]})
            else:
                with contextlib.suppress(OSError):
                    self._file.unlink()

    def _append(self, row: dict) -> None:
        line = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n").encode("utf-8", "replace")
        try:
            handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(handle, line)
            finally:
                os.close(handle)
        except OSError as error:
            self._failed(error)

    def _rewrite(self) -> bool:
        """The file with what is unsent and nothing else."""
        try:
            if not self._unsent:
                self._file.unlink(missing_ok=True)
                return True
            rows = [{"id": one.id, "to": one.to, "run": one.run, "event": one.event} for one in self._unsent.values()]
            text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
            temporary = self._file.with_name(f".{self._file.name}.{os.getpid()}")
            temporary.write_text(text, encoding="utf-8", errors="replace")
            temporary.chmod(0o600)
            os.replace(temporary, self._file)
            return True
        except OSError as error:
            self._failed(error)
            return False

    def _failed(self, error: OSError) -> None:
        if not self._said:
            self._said = True
            self._on_error(
                f"{self._file.name} cannot be written ({error.strerror or error}): a kill loses what is unsent"
            )


def _read(file: Path) -> dict[str, Letter]:
    """The unsent letters of one file; torn and foreign lines are skipped."""
    letters: dict[str, Letter] = {}
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError:
        return {}
    for line in lines:
        try:
            row = json.loads(line)
            if "done" in row:
                for letter_id in row["done"]:
                    letters.pop(letter_id, None)
            else:
                event = row["event"]
                float(event["time"]), str(event["text"]), int(event["step"]), event["level"], event["title"]
                letters[row["id"]] = Letter(row["id"], row["to"], row["run"], event)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return letters
