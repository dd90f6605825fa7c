"""Always on: does a training that was resumed go on where it was? Says it once, as an event of kind `continuity`."""

import math
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from ..checkpoint.part import Expected
from ..continuity.changed import changed_settings
from ..continuity.judge import judge
from ..continuity.lacking import by_checkpoint
from ..continuity.said import BROKEN, FEW, NOTHING, Continuity, Lack, Said
from ..continuity.samples import Samples, read_order
from ..continuity.words import in_words
from ..detect.numbers import as_number
from ..detect.resume_gap import LEAST, ROWS
from ..logs.names import EPOCH
from ..logs.resumed import AFTER, Resumed, plain_row
from ..record.reader import decode_run
from ..record.schema import RUN, Key
from .base import ObsCallback

#: a rate or an epoch that is another one is told after so many rows
_AT_ONCE = 3
_HARD = ("learning_rate", "epoch")
_TAIL_BYTES = 4 << 20


class ContinuityCheck(ObsCallback):
    """Compares the first rows after a resume with what was recorded before it; on the first rank, which alone writes.

    A rate or an epoch that does not go on is told after three rows, anything else that does not after `ROWS`, and that
    all goes on when the steps that were made twice (`AFTER` at most) are made again, or training ends.

    Attributes:
        lacks: what the checkpoint does not hold, or the Trainer did not restore; None where the checkpoint is not there
            to be looked at.
    """

    yaml_name: ClassVar[str] = "continuity"
    keys: ClassVar[tuple[Key, ...]] = ()

    def __init__(self):
        self.lacks: list[Lack] | None = None
        self._resumed: Resumed | None = None

    def begin(self) -> None:
        self.lacks, self._resumed = None, None
        trainer = self.run.trainer
        step = trainer.state.global_step
        if not step or not trainer.state.is_world_process_zero:
            return
        previous = self.run.previous
        before = [plain_row(row["step"], row) for row in previous.rows[-2 * ROWS :]]
        if len(before) < LEAST:
            before = _logged(trainer.state.log_history)
        self._resumed = Resumed(before, [], previous.replaced, self.run.journal.writer.segment)
        last = previous.replaced[-1]["step"] if previous.replaced else step
        self._enough = max(ROWS, min(last - step, AFTER))
        self._step = step
        folder = _checkpoint(trainer)
        if folder.is_dir():
            args = trainer.args
            self.lacks = by_checkpoint(folder, Expected(step, fp16=args.fp16, ranks=args.world_size))
            self.lacks += _not_restored(trainer, {one.part for one in self.lacks})

    def row(self, row) -> None:
        resumed = self._resumed
        if resumed is None or self.run.replaying or row.step <= self._step:
            return
        resumed.after.append(plain_row(row.step, row.values))
        rows = len(resumed.after)
        if rows == _AT_ONCE:
            said = self._judge(samples=False)
            if any(said.columns[name].told in said.reasons for name in _HARD):
                self._say(said)
        elif rows in (ROWS, self._enough):
            said = self._judge()
            if rows == self._enough or said.verdict == BROKEN:
                self._say(said)

    def end(self) -> None:
        if self._resumed is not None and self._resumed.after:
            self._say(self._judge())

    def off(self) -> None:
        self._resumed = None

    def _judge(self, samples: bool = True) -> Continuity:
        folder, resumed = self.run.journal.writer.folder, self._resumed
        changed = changed_settings(decode_run(folder / RUN), resumed.segment)
        order = self._samples(folder) if samples else None
        has_loss = self.context.stage != "ppo"
        return judge(resumed, self.lacks or (), order, changed, has_loss)

    def _samples(self, folder: Path) -> Samples | None:
        resumed = self._resumed
        epochs = {row["step"]: row[EPOCH] for row in (*resumed.before, *resumed.after) if EPOCH in row}
        steps = range(resumed.step, resumed.after[-1]["step"] + 1)
        return read_order(folder, resumed.segment, steps, epochs, tail_bytes=_TAIL_BYTES)

    def _say(self, said: Continuity) -> None:
        self._resumed = None
        is_broken = said.verdict == BROKEN
        args = self.run.trainer.args
        lost = {one.part for one in said.not_restored}
        self.run.event(
            "continuity",
            self.yaml_name,
            "verdict",
            in_words(said, args.output_dir, "en"),
            level="warn" if is_broken and not said.faded else "info",
            evidence=said.as_dict(),
            action="keep" if is_broken else "none",
            suggest={"save_only_model": False} if args.save_only_model and "optimizer" in lost else {},
            show=said.verdict not in (FEW, NOTHING),
            alias="resume_gap",
        )


def _checkpoint(trainer) -> Path:
    """The folder that was resumed from."""
    given = trainer.args.resume_from_checkpoint
    if isinstance(given, str) and Path(given).is_dir():
        return Path(given)
    return Path(trainer.args.output_dir) / f"checkpoint-{trainer.state.global_step}"


def _not_restored(trainer, known: set[str]) -> list[Lack]:
    """What the Trainer itself shows: an Adam without any state, an epoch that is begun anew."""
    found = []
    optimizer = trainer.optimizer
    hidden = getattr(trainer, "is_deepspeed_enabled", False) or optimizer is None
    groups = [] if hidden else optimizer.param_groups
    if "optimizer" not in known and any("betas" in group for group in groups) and not optimizer.state:
        found.append(Lack("optimizer", "trainer", Said("lacks.fresh")))
    epoch = as_number(trainer.state.epoch) or 0.0
    if trainer.args.ignore_data_skip and not math.isclose(epoch, round(epoch), abs_tol=1e-6):
        found.append(Lack("data_order", "trainer", Said("lacks.ignore_data_skip")))
    return found


def _logged(log_history: list[dict]) -> list[dict]:
    """The Trainer's own log, which its checkpoint holds: where nothing of ours was recorded.

    Its loss is that of a step only where each one was logged.
    """
    rows = [one for one in log_history if isinstance(one, dict) and "learning_rate" in one]
    rows = [one for one in rows if isinstance(one.get("step"), int)][-2 * ROWS :]
    each = all(later["step"] - one["step"] == 1 for one, later in pairwise(rows))
    names = {"train/lr": "learning_rate", "train/epoch": "epoch"}
    names |= {"train/loss": "loss", "train/grad_norm": "grad_norm"} if each and len(rows) > 1 else {}
    return [plain_row(one["step"], {ours: one.get(theirs) for ours, theirs in names.items()}) for one in rows]
