"""Is a checkpoint that was just saved whole? The cheap part at once, its content in a thread beside the training.

Both stand on what `llamafactory-obs checkpoint` finds: this module only asks it less, or all.
"""

import contextlib
import os
import stat
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from ..checkpoint.context import Context, read_context
from ..checkpoint.examine import Depth, examine
from ..checkpoint.files import STATE
from ..checkpoint.part import Expected
from ..checkpoint.resume_state import resume_parts
from ..checkpoint.run_of import THIS, witness
from ..checkpoint.tokenizer import check_tokenizer
from ..checkpoint.verdict import DAMAGED, Verdict, judge
from ..checkpoint.weights import check_weights
from ..texts import speaking

#: Other ranks write their files without waiting for each other: so long they are waited for.
OTHER_RANKS_S = 60.0
_AGAIN_S = 0.2


@dataclass(frozen=True)
class Wanted:
    """What this run's saves must hold.

    Attributes:
        ranks: processes whose RNG state and shards lie in one folder.
        fp16: a loss scaler is in use.
        resumable: they are to be resumed from; not with `save_only_model`.
    """

    ranks: int = 1
    fp16: bool = False
    resumable: bool = True

    @classmethod
    def of(cls, args) -> "Wanted":
        """By the Trainer's arguments."""
        ranks = args.world_size if not args.save_on_each_node else int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
        return cls(ranks, bool(args.fp16), not args.save_only_model)


@dataclass
class Saved:
    """One checkpoint as it was found.

    Attributes:
        path: its folder. step: its number.
        verdict: as `llamafactory-obs checkpoint` words it; see `checkpoint.verdict`.
        flaw: why it is not good for what it is for; "" where it is.
        resumes: training goes on from it without a loss that changes its course.
        lost: parts that a resume begins anew.
        bytes, files: of all files in it.
        check: quick | full.
        sha256: of all its files, once they are read.
        identity: which save it is, see `identity`.
        seconds: that looking took.
    """

    path: Path
    step: int
    verdict: str
    flaw: str = ""
    resumes: bool = False
    lost: list[str] = field(default_factory=list)
    bytes: int = 0
    files: int = 0
    check: str = "quick"
    sha256: str | None = None
    identity: tuple | None = None
    seconds: float = 0.0

    def row(self) -> dict:
        """For `checkpoints.jsonl`."""
        row = {"step": self.step, "path": str(self.path), "verdict": self.verdict, "good": not self.flaw}
        row |= {"flaw": self.flaw, "resumes": self.resumes, "lost": self.lost, "bytes": self.bytes, "files": self.files}
        row |= {"check": self.check, "check_s": round(self.seconds, 6), "saved_at": saved_at(self.identity)}
        return row | ({"sha256": self.sha256} if self.sha256 else {})


@speaking("en")  # it goes into the record
def check_quick(folder: Path, step: int, wanted: Wanted) -> Saved:
    """Headers, sizes and JSON: a few KB of each weight file, no tensor. Nothing is raised for what lies in it."""
    start = time.perf_counter()
    expected = Expected(step, fp16=wanted.fp16, ranks=wanted.ranks)
    try:
        weights = check_weights(folder, Context(folder.parent), None, expected, quick=True)
        parts = [weights.part, check_tokenizer(folder, weights.rows, quick=True)]
        verdict = judge(weights, [*parts, *resume_parts(folder, expected, quick=True)], None)
        count, size = _content(folder)
    except OSError as error:
        why = f"{folder.name} cannot be read: {error.strerror or error}"
        verdict, count, size = Verdict(DAMAGED, False, False, reasons=[why]), 0, 0
    saved = Saved(folder, step, verdict.verdict, bytes=size, files=count, identity=identity(folder))
    _judge(saved, verdict, wanted)
    saved.seconds = time.perf_counter() - start
    return saved


def wait_for_ranks(saved: Saved, wanted: Wanted, stop: threading.Event, wait_s: float = OTHER_RANKS_S) -> Saved:
    """Look again until the files of all ranks are there.

    Args:
        stop: when it is set, nobody waits any longer.
    """
    deadline = time.monotonic() + wait_s
    while (saved.flaw or saved.lost) and time.monotonic() < deadline and not stop.wait(_AGAIN_S):
        saved = check_quick(saved.path, saved.step, wanted)
    return saved


@speaking("en")
def check_full(folder: Path, step: int, stop: threading.Event, wanted: Wanted) -> Saved:
    """Bring all files to the disk and read them back: hash, every tensor finite, the optimizer's state in step.

    Args:
        stop: when it is set, files of other ranks are waited for no longer.
    """
    start = time.perf_counter()
    if wanted.ranks > 1:
        wait_for_ranks(check_quick(folder, step, wanted), wanted, stop)
    before = identity(folder)
    _to_disk(folder)
    context = read_context(folder.parent, None)
    context.ended = True  # it was saved before we were called: nothing in it is under way
    found = examine(witness(folder, step), folder, context, (THIS, "it was just saved"), Depth(hashed=True), None)
    _, size = _content(folder)
    saved = Saved(folder, step, found.verdict.verdict, bytes=size, check="full", identity=before)
    if found.files is not None:
        saved.files, saved.sha256 = len(found.files["files"]), found.files["sha256"]
    _judge(saved, found.verdict, wanted)
    saved.seconds = time.perf_counter() - start
    return saved


def identity(folder: Path) -> tuple | None:
    """Which save of which folder: device and inode of both the folder and its state, and when that was written."""
    try:
        place = os.lstat(folder)
        if not stat.S_ISDIR(place.st_mode):
            return None
        state = os.stat(folder / STATE)
    except OSError:
        return None
    return place.st_dev, place.st_ino, state.st_ino, state.st_mtime_ns


def saved_at(which: tuple | None) -> float | None:
    """When the state of a save was written, Unix seconds, by its `identity`."""
    return None if which is None else which[3] / 1e9


def _judge(saved: Saved, verdict: Verdict, wanted: Wanted) -> None:
    """Without an RNG state a resume is only not bit-exact: that is no flaw, it is in `lost`."""
    saved.lost = list(verdict.lost)
    saved.resumes = verdict.resumes and not verdict.grave and verdict.verdict != DAMAGED
    if verdict.verdict == DAMAGED or (wanted.resumable and not saved.resumes):
        saved.flaw = verdict.reasons[0] if verdict.reasons else verdict.verdict


def _content(folder: Path) -> tuple[int, int]:
    """Files and bytes, links not followed."""
    count = size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(place, name)).st_size
                count += 1
    return count, size


def _to_disk(folder: Path) -> None:
    """A machine that is taken back loses what is still in the page cache."""
    for place, _, names in os.walk(folder):
        for name in (*names, ""):
            with contextlib.suppress(OSError):
                handle = os.open(os.path.join(place, name), os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
