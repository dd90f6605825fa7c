"""Does somebody read a checkpoint, or is about to? The probe says what it has taken; open files say the rest."""

import contextlib
import os
import re
from collections.abc import Collection
from pathlib import Path

from ..probe.ledger import LEDGER
from ..probe.scan import lives, process
from ..record.reader import read_rows
from ..record.schema import FOLDER, PROBE

#: the ledger's clock and that of the file system may be two
_CLOCKS_S = 5.0
_PARTIAL = re.compile(r"\.partial-(checkpoint-\d+)-[0-9a-f]+")


def wanted_by_probe(output_dir: Path, saved_at: dict[str, float], expected: bool) -> set[str]:
    """Names of the checkpoints that a living probe has not taken yet, or is copying just now.

    Args:
        saved_at: name -> when it was saved.
        expected: a probe is about to start.
    """
    folder = output_dir / FOLDER / PROBE
    if not expected and not _probe_lives(folder):
        return set()
    copying = {match[1] for one in folder.glob("copies/*/.partial-*") if (match := _PARTIAL.fullmatch(one.name))}
    settled = set()
    for row in read_rows(folder / LEDGER)[0]:
        name, when = row.get("name"), row.get("time")
        waits = row.get("state") == "retry" and not row.get("content")  # it could not be taken so far
        if name in saved_at and isinstance(when, (int, float)) and when >= saved_at[name] - _CLOCKS_S:
            settled.discard(name) if waits else settled.add(name)
    return (set(saved_at) - settled) | copying


def _probe_lives(folder: Path) -> bool:
    try:
        return lives(process(int((folder / "pid").read_text())))
    except (OSError, ValueError):
        return False


def opened(folders: Collection[Path]) -> set[str]:
    """Names of the folders in which a process of this machine has a file open or mapped; as far as we may see them."""
    real = {os.path.realpath(folder): folder.name for folder in folders}
    found: set[str] = set()
    if not real:
        return found
    for pid in filter(str.isdigit, _listed("/proc")):
        paths = [_link(f"/proc/{pid}/fd/{number}") for number in _listed(f"/proc/{pid}/fd")]
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
            paths += [line.split(maxsplit=5)[-1].strip() for line in maps if "/" in line]
        for path in paths:
            found |= {name for place, name in real.items() if path == place or path.startswith(f"{place}/")}
    return found


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
