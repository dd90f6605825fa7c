"""`checkpoint_guard`: proves each save, saves once more when the machine is taken back, keeps the best checkpoints."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from ..detect import SavesDetector
from ..record.checkpoints import read_checkpoints
from ..record.schema import CHECKPOINTS, Key
from .aside import Aside
from .base import ObsCallback
from .disk_room import DiskRoom
from .journal import one_line
from .keep_best import KeepBest
from .last_save import KEY, LastSave
from .notice import parse_signals
from .retention import parse_top_k
from .verify_save import OTHER_RANKS_S, Saved, Wanted, check_full, check_quick, identity, wait_for_ranks

_GIB = 1 << 30
#: free disk is asked for at most once in so many seconds
_DISK_EVERY_S = 60.0
#: so long the end of training waits until the last checkpoint is read back
_END_S = 60.0
#: so long the last save waits for the files of other ranks
_LAST_S = 5.0


@dataclass(eq=False)
class CheckpointGuard(ObsCallback):
    """Verifies each save as it lands, saves and stops on SIGTERM, and keeps the best K checkpoints.

    What is cheap is looked at on the training thread; hashing, reading back and deleting is done in a thread beside it.
    """

    yaml_name: ClassVar[str] = "checkpoint_guard"
    keys: ClassVar[tuple[Key, ...]] = (
        Key(KEY, "0 or 1", "a signal said that the machine is taken back, on any rank", "max"),
    )

    read_back: bool = True
    """Read each checkpoint again after it was saved, in a thread: content hash, every tensor finite."""

    on_notice: Literal["save_and_stop", "save", "off"] = "save_and_stop"
    """What a notice (SIGTERM) does: save and stop at the end of the step, save only, or nothing."""

    signals: str | list = "SIGTERM"
    """Which signals are a notice: SIGTERM, SIGUSR1, SIGUSR2 ..."""

    grace_s: float | None = None
    """Seconds from the notice to the end of the machine; null: torchrun's, or 30."""

    top_k: dict | None = None
    """Keep the best k and the newest: {k: 3, metric: eval_loss, mode: min}; null deletes nothing."""

    disk_margin_gib: float = 1.0
    """Warn when less than this is free where output_dir is; where `system` runs, it says so."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._signals, self._top_k = parse_signals(self.signals), parse_top_k(self.top_k)
        for name in ("grace_s", "disk_margin_gib"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        self._last: LastSave | None = None
        self._soon: Aside | None = None
        self._aside: Aside | None = None
        self._keep: KeepBest | None = None

    # ---- training begins ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        trainer = self.run.trainer
        self._trainer, self._is_main = trainer, trainer.state.is_world_process_zero
        self._at, self._step_s, self._step_at, self._save_s = time.perf_counter(), 0.0, None, 0.0
        self._good: set[int] = set()
        self._latest: str | None = None
        self._last = LastSave(self, self.on_notice == "save_and_stop", self._signals, self.grace_s)
        said = self._last.begin() if self.on_notice != "off" else ""
        self._detector = SavesDetector(self._last.grace_s if said else None)
        if not self._is_main:
            return
        self._wanted = Wanted.of(trainer.args)
        self._disk, self._disk_at = None, 0.0
        if not any(one.yaml_name == "system" for one in self.run.callbacks):  # it says the same
            self._disk = DiskRoom(trainer, self.disk_margin_gib, bounded=self._top_k is not None)
        self._soon, self._aside = Aside("checkpoint_guard look", nice=0), Aside("checkpoint_guard")
        also = self._begin_retention() if self._top_k is not None else ""
        if said or also:
            self.told("note", "checkpoint guard", "; ".join(filter(None, (said, also))))
        self._judge_time(trainer.state.global_step, self._saving_before())

    def _begin_retention(self) -> str:
        args = self._trainer.args
        if str(getattr(args.eval_strategy, "value", args.eval_strategy)) == "no":
            return f"top_k: {self._top_k.metric} is never evaluated (eval_strategy: no), so nothing is deleted by it"
        self._keep = KeepBest(self, self._trainer, self._top_k, self._wanted, self._aside)
        return self._keep.begin()

    def _saving_before(self) -> float:
        """The longest that saving took before, in this folder; 0 where that is not known."""
        if self._trainer.state.global_step == 0:
            return 0.0
        rows = read_checkpoints(self._trainer.args.output_dir)
        return max((row["save_s"] for row in rows if isinstance(row.get("save_s"), float)), default=0.0)

    # ---- one step -------------------------------------------------------------------------------------------------

    def gradients(self, gradients) -> None:
        self._last.before_update()

    def step(self) -> None:
        now = time.perf_counter()
        if self._step_at is not None:
            self._step_s = now - self._step_at
        self._step_at = self._at = now
        self._last.step()
        if self._is_main:
            self._settle()
        if self._is_main and self.context.stage != "ppo":  # its loop saves by itself
            self._say(self._detector.step(self._trainer.state.global_step, self._due()))
            self._judge_disk()

    def row(self, row) -> None:
        self._last.row(row)

    def _due(self) -> bool:
        args, state = self._trainer.args, self._trainer.state
        strategy = getattr(args.save_strategy, "value", args.save_strategy)
        return strategy == "steps" and bool(state.save_steps) and state.global_step % int(state.save_steps) == 0

    def logged(self, logs: dict) -> None:
        self._at = time.perf_counter()

    # ---- evaluations and saves ------------------------------------------------------------------------------------

    def evaluated(self, metrics: dict) -> None:
        step = self._trainer.state.global_step
        if self._keep is not None:
            self._keep.evaluated(step, metrics)
        self._last.evaluated()
        self._at = self._step_at = time.perf_counter()

    def saved(self, folder: str, last: bool) -> None:
        took, self._step_at = time.perf_counter() - self._at, time.perf_counter()
        step = self._trainer.state.global_step
        self._last.saved()
        if not self._is_main:
            return
        path = Path(folder)
        self._latest, which = path.name, identity(path)
        self._say(self._detector.saved(step))
        self._judge_time(step, took)
        if self._disk is not None:
            self._disk.saved(folder, last)
            self._disk_at = 0.0
        notice = self._last.open is not None
        if notice or last:  # nothing is held up any more, and soon nobody will be there to hear of it
            self._looked_at(self._look(path, step, _LAST_S), took, notice)
        else:
            self._soon.submit(lambda: self._look_aside(path, step, took))
        if self._aside is not None and self.read_back:
            self._aside.submit(lambda: self._read_back(path, step))
        if self._keep is not None:
            self._keep.saved(which)
            self._keep.look()

    def _look(self, path: Path, step: int, wait_s: float) -> Saved:
        """The cheap look; other ranks' files may still be on their way."""
        found = check_quick(path, step, self._wanted)
        return wait_for_ranks(found, self._wanted, self._soon.stopped, wait_s) if self._wanted.ranks > 1 else found

    def _look_aside(self, path: Path, step: int, took: float):
        """In a thread of its own, so that it never waits behind reading back."""
        found = self._look(path, step, OTHER_RANKS_S)
        return lambda: self._looked_at(found, took)

    def _looked_at(self, found: Saved, took: float, notice: bool = False) -> None:
        self.wrote({**found.row(), "save_s": took, **({"notice": True} if notice else {})})
        if notice:
            self._last.landed(found)
        self._judged(found)

    def _read_back(self, path: Path, step: int):
        """In the thread. Where saves come faster than they are read, only the newest is."""
        if path.name != self._latest:
            return None
        found = check_full(path, step, self._aside.stopped, self._wanted)
        if self._keep is not None:
            self._keep.read(found)
        return lambda: self._was_read(found)

    def _was_read(self, found: Saved) -> None:
        if identity(found.path) != found.identity:
            return
        self.wrote(found.row())
        self._judged(found)
        text = f"checkpoint-{found.step} read back in {found.seconds:.1f} s: {found.flaw or found.verdict}"
        self.told("verified", "checkpoint verified", text, step=found.step, evidence=found.row(), show=False)

    def _judged(self, one: Saved) -> None:
        if identity(one.path) != one.identity or not one.path.is_dir():
            return  # rotated away while it was looked at, or saved anew
        if not one.flaw:
            self._good.add(one.step)
        else:
            self._good.discard(one.step)
        good = f"checkpoint-{max(self._good)}" if self._good else None
        self._say(self._detector.judged(one.step, one.flaw, good))

    def _judge_time(self, step: int, save_s: float) -> None:
        self._save_s = max(self._save_s, save_s)
        if self._save_s:
            self._say(self._detector.took(step, self._save_s, self._step_s))

    def _judge_disk(self) -> None:
        now = time.monotonic()
        if self._disk is None or (self._disk_at and now - self._disk_at < _DISK_EVERY_S):
            return
        self._disk_at = now
        free = shutil.disk_usage(self._trainer.args.output_dir).free / _GIB
        for finding in self._disk.judge(self._trainer.state.global_step, free):
            self._say(finding)

    # ---- the thread, and the end ----------------------------------------------------------------------------------

    def _settle(self, wait_s: float = 0.0) -> None:
        """Take what the threads have found. What fails there ends reading back and retention, and no more."""
        for aside in filter(None, (self._soon, self._aside)):
            try:
                if wait_s:
                    aside.wait(wait_s)
                else:
                    aside.take()
            except Exception as error:
                if self._aside is not None:
                    text = f"reading back and retention are off after {one_line(error, 300)}; saves are still looked at"
                    self.told("callback_off", "no more reading back", text, level="warn")
                self._close_aside()

    def _close_aside(self) -> None:
        if self._keep is not None:
            self._keep.off()
        if self._aside is not None:
            self._aside.close()
        self._keep = self._aside = None

    def end(self) -> None:
        if self._is_main:
            self._settle(0.0 if self._last.hurried else _END_S)
        self._last.end()

    def off(self) -> None:
        if self._last is not None:
            self._last.off()
        self._close_aside()
        if self._soon is not None:
            self._soon.close()
            self._soon = None

    # ---- into the record ------------------------------------------------------------------------------------------

    def told(self, kind: str, title: str, text: str, **more) -> None:
        """An event of this callback."""
        self.run.event(kind, self.yaml_name, title, text, **more)

    def wrote(self, row: dict) -> None:
        """A row of `checkpoints.jsonl`."""
        self.run.append(CHECKPOINTS, row)

    def _say(self, finding) -> None:
        if finding is not None:
            self.run.alert(self.yaml_name, finding)
