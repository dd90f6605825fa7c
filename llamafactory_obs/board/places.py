"""Which runs there are in the folders that were named, and whether all that would be read of one lies inside it."""

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from ..record.reader import has_record
from ..record.schema import FOLDER, RUN, STEPS

#: LlamaFactory's own tree is saves/<model>/<method>/<run>
_DEPTH = 4
_MOST_FOLDERS, _MOST_RUNS = 3000, 200
_LOG = "trainer_log.jsonl"
#: nothing of a run lies in these
_NEVER = re.compile(r"\.|checkpoint-\d+$|global_step\d+$|archive$|obs$|runs$|wandb$|swanlog$|__pycache__$")
#: what is read of an output folder, by us or by `diagnose`: logs, settings, states of checkpoints (`logs/folder.py`)
_READ = re.compile(r"\.(json|jsonl|log|out|err|txt|ya?ml)$|^checkpoint-\d+$")
_ANY = re.compile("")
_CHECKPOINT = re.compile(r"checkpoint-\d+$")


@dataclass(frozen=True)
class Place:
    """One run's folder.

    Attributes:
        id: 12 hexadecimal digits; the only thing by which a visitor can name it.
        name: its path below the folder that was named, or that folder's own name.
        folder: output folder, without links in its path.
        named: it was named itself, not found in a folder that was.
    """

    id: str
    name: str
    folder: Path
    named: bool

    def heard(self) -> float:
        """When its log was last written, Unix seconds; 0 where there is none."""
        for file in (self.folder / FOLDER / STEPS, self.folder / _LOG, self.folder / FOLDER / RUN):
            try:
                return os.stat(file).st_mtime
            except OSError:
                continue
        return 0.0


def find(folders: tuple[Path, ...]) -> list[Place]:
    """All runs in these folders, in the order named, then by name. A folder may not be there any more."""
    found: dict[str, Place] = {}
    room = _MOST_FOLDERS
    for named in folders:
        root = Path(os.path.realpath(named))
        root = root.parent if root.name == FOLDER and has_record(root) else root
        places, room = _below(root, root, 0, room)
        for folder in places:
            inner = str(folder.relative_to(root))
            name = root.name or str(root) if inner == "." else inner
            place = Place(hashlib.blake2b(os.fsencode(folder), digest_size=6).hexdigest(), name, folder, inner == ".")
            found.setdefault(place.id, place)
    return _told_apart(list(found.values())[:_MOST_RUNS])


def _below(folder: Path, root: Path, depth: int, room: int) -> tuple[list[Path], int]:
    """The runs in a folder, and how many folders may still be looked at. A run holds no other one."""
    if is_run(folder):
        return [folder], room - 1
    room -= 1
    if depth >= _DEPTH or room <= 0:
        return [], room
    try:
        with os.scandir(folder) as entries:
            inside = sorted(entry.name for entry in entries if entry.is_dir() and not _NEVER.match(entry.name))
    except OSError:
        return [], room
    out: list[Path] = []
    for name in inside:
        path = folder / name
        if path.is_symlink():  # inside the named folder it is found by its own name; outside it is not ours to show
            continue
        places, room = _below(path, root, depth + 1, room)
        out += places
    return out, room


def is_run(folder: Path) -> bool:
    """Is there a record, or LlamaFactory's own log?"""
    return has_record(folder / FOLDER) or (folder / _LOG).is_file()


def outside(folder: Path) -> str:
    """The first thing in a run's folder that would be read and is not a plain file inside it; "" where all is well.

    A link that leads out of the folder would show the visitor a file that nobody meant to show; a pipe would be waited
    for. Links within the folder are fine.
    """
    inside = os.path.realpath(folder) + os.sep
    record = folder / FOLDER
    for part in (record, record / "control"):
        if part.is_symlink() and not _within(part, inside):
            return str(part.relative_to(folder))
    for part, is_read in ((folder, _READ), (record, _ANY), (record / "control", _ANY)):
        try:
            with os.scandir(part) as entries:
                for entry in entries:
                    if is_read.search(entry.name) and not _is_plain(entry, inside):
                        return os.path.relpath(entry.path, folder)
        except OSError:
            continue
    return ""


def _is_plain(entry: os.DirEntry, inside: str) -> bool:
    if entry.is_symlink() and not _within(Path(entry.path), inside):
        return False
    if _CHECKPOINT.match(entry.name) and not _within(Path(entry.path, "trainer_state.json"), inside):
        return False
    try:
        mode = entry.stat().st_mode
    except OSError:
        return True  # it has just gone
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _within(path: Path, inside: str) -> bool:
    return os.path.realpath(path).startswith(inside)


def _told_apart(places: list[Place]) -> list[Place]:
    """Where two runs of different folders have one name, the folder above tells which is which."""
    names = [place.name for place in places]
    return [
        place
        if names.count(place.name) == 1
        else Place(place.id, f"{place.folder.parent.name}/{place.name}", place.folder, place.named)
        for place in places
    ]
