"""What a training does at this moment, from its record and its lock."""

import time
from pathlib import Path

from ..control.folder import control_folder
from ..control.presence import Seen, look
from .happened import Happened, Session
from .pace import Pace
from .plan import Plan
from .snapshot import Ending, Status

#: seconds without a row: as long as any run may be quiet, in a step and in an evaluation or a save
_QUIET, _QUIET_ASIDE = 60.0, 600.0
#: ... or so many times the usual step and the longest one lately
_TIMES_USUAL, _TIMES_LONGEST = 20.0, 3.0
#: seconds without a row after which the lock is looked at, and between two looks
_FRESH, _LOOK_EVERY = 2.0, 1.0
#: the job takes its lock just after its `start` event; clocks of two machines differ
_SAME_START = 30.0


class Watchman:
    """Tells what the training does. Looks at the process's lock only where the record has been still for a moment.

    A process that ended without an `end` (SIGKILL, the machine gone) has let go of its lock, see `control.presence`.
    Where commands are switched off (`obs: {control: {listen: false}}`) there is no lock, and only silence can be told.
    """

    def __init__(self, output_dir: Path):
        self._control = control_folder(output_dir)
        self._looked, self._seen = 0.0, None
        self._gone: float | None = None  # it is known to be gone; the time of its last row

    def tell(
        self, happened: Happened, pace: Pace, plan: Plan, step: int, epoch: float | None
    ) -> tuple[Status, Ending | None, bool | None]:
        """Status, ending, and whether the process lives (None where that cannot be told)."""
        session = happened.newest
        if session is None:
            return "waiting", None, None
        if happened.ending is not None:
            return "ended", happened.ending, None
        now = time.time()
        still = now - session.heard
        alive = self._alive(session, now) if still > _FRESH else None
        if alive is False:
            return "ended", "killed", False
        doing = _doing(session, plan, step, epoch)
        usual = max(_TIMES_USUAL * (pace.step_seconds or 0.0), _TIMES_LONGEST * pace.longest)
        if still > max(_QUIET if doing == "training" else _QUIET_ASIDE, usual):
            return "quiet", None, alive
        return doing, None, alive

    def _alive(self, session: Session, now: float) -> bool | None:
        if session.heard == self._gone:
            return False
        if self._seen is None or now - self._looked >= _LOOK_EVERY:
            self._seen, self._looked = look(self._control, patience=0), now
        lives = _lives(self._seen, session)
        self._gone = session.heard if lives is False else None
        return lives


def _lives(seen: Seen, session: Session) -> bool | None:
    """Does the process of this start live? What the file says of an older one means nothing."""
    if seen.state == "never" or seen.state == "silent":
        return None
    if seen.state == "running":
        return True
    since = seen.job.get("ended") if seen.state == "ended" else seen.job.get("started")
    if not isinstance(since, (int, float)) or since < session.begun - _SAME_START:
        return None
    return False


def _doing(session: Session, plan: Plan, step: int, epoch: float | None) -> Status:
    """The Trainer evaluates, then saves, behind a step; what is due and has left no trace yet is under way."""
    if step <= session.from_step or session.saved >= step:
        return "training"
    if session.evaluated < step and plan.evaluates(step, epoch, session.max_steps):
        return "evaluating"
    return "saving" if plan.saves(step, epoch, session.max_steps) else "training"
