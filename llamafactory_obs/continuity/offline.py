"""Every resume of a log, judged: of our record with all that it holds, of another log by its rows."""

from pathlib import Path

from ..checkpoint.part import Expected
from ..logs.curves import Break, Curves
from ..logs.names import EPOCH
from ..logs.resumed import AFTER, BEFORE, COLUMNS, SCALE, Resumed, plain_row
from ..record.reader import has_record
from ..record.schema import FOLDER
from .changed import changed_settings
from .judge import judge
from .lacking import by_checkpoint
from .said import Continuity, Lack, Said
from .samples import Samples, read_order

#: of a log that begins again and again only the newest resumes are judged
MOST = 50
_SAMPLES_BYTES = 64 << 20


def continuity(curves: Curves) -> list[Continuity]:
    """One verdict for each resume of a log, in the order of the log; the newest `MOST`."""
    if curves.kind == "not_a_training_log":
        return []
    folder = _record(curves)
    return [_judge(curves, resumed, folder) for resumed in curves.resumes[-MOST:]]


def verdict_at(curves: Curves, broken: Break) -> Continuity | None:
    """The verdict on the resume at one break; None where no row with a number follows it.

    Curves that were not read from a log (live: the newest rows) know nothing of steps that were made twice.
    """
    step, near = curves.steps[broken.row], max(1, curves.logging_steps)
    known = [one for one in curves.resumes if 0 <= one.step - step <= near]
    resumed = known[-1] if known else _around(curves, broken)
    return _judge(curves, resumed, _record(curves)) if resumed.after else None


def _around(curves: Curves, broken: Break) -> Resumed:
    rows = range(max(broken.row - BEFORE, 0), min(broken.row + AFTER, len(curves)))
    names = [name for name in (*COLUMNS, SCALE) if name in curves.columns]
    plain = [plain_row(curves.steps[row], {name: curves.columns[name][row] for name in names}) for row in rows]
    plain = [row if len(row) > 1 else None for row in plain]
    cut = broken.row - rows.start
    step = curves.steps[broken.row]
    starts = [one for one in curves.events if one.get("kind") == "resume" and abs(one.get("step", 0) - step) <= 1]
    segment = starts[-1].get("segment") if starts else None
    return Resumed([*filter(None, plain[:cut])], [*filter(None, plain[cut:])], segment=segment)


def _judge(curves: Curves, resumed: Resumed, folder: Path | None) -> Continuity:
    changed = [] if resumed.segment is None else changed_settings(curves.run, resumed.segment)
    return judge(
        resumed,
        lacks=_lacks(curves, resumed),
        samples=_samples(resumed, folder),
        changed=changed,
        has_loss=curves.kind != "rl",
    )


def _lacks(curves: Curves, resumed: Resumed) -> list[Lack]:
    """What the record says of that start; else what the checkpoint, where it lies there, does not hold now."""
    mine = [one for one in curves.events if resumed.segment is not None and one.get("segment") == resumed.segment]
    begun = [one for one in mine if one.get("kind") == "resume" and "not_restored" in (one.get("evidence") or {})]
    found = []
    for event in begun[:1]:
        said = event["evidence"]["not_restored"]
        for one in said if isinstance(said, list) else ():
            if isinstance(one, dict) and {"part", "by", "why"} <= one.keys():
                found.append(Lack(*(str(one[name]) for name in ("part", "by", "why"))))
    fresh = [one for one in mine if one.get("title") == "optimizer state fresh"]
    if fresh and "optimizer" not in {one.part for one in found}:
        found.append(Lack("optimizer", "trainer", Said("lacks.fresh")))
    steps = range(resumed.step - resumed.row_steps, resumed.step)  # in which the resume lies
    there = [step for step in steps if step in curves.checkpoints]
    if begun or len(there) != 1:
        return found
    return found + by_checkpoint(curves.checkpoints[there[0]], Expected(there[0], ranks=_ranks(curves)), by="folder")


def _ranks(curves: Curves) -> int:
    ranks = (curves.run.get("world") or {}).get("world_size")
    return int(ranks) if isinstance(ranks, (int, float)) and ranks >= 1 else 1


def _samples(resumed: Resumed, folder: Path | None) -> Samples | None:
    if folder is None or resumed.segment is None:
        return None
    rows = (*resumed.before, *resumed.after)
    epochs = {row["step"]: row[EPOCH] for row in rows if EPOCH in row}
    steps = range(resumed.step, resumed.after[-1]["step"] + 1)
    return read_order(folder, resumed.segment, steps, epochs, tail_bytes=_SAMPLES_BYTES)


def _record(curves: Curves) -> Path | None:
    """The folder of our record, None where the log is another one."""
    if curves.source != "obs":
        return None
    path = curves.path
    return next((folder for folder in (path / FOLDER, path, path.parent) if has_record(folder)), None)
