"""Probes every checkpoint of a run exactly once, while it trains or afterwards.

One thread collects: it looks at the folder every `poll_s` seconds, sooner when a checkpoint comes, and takes private
copies (`Collector`). The calling thread probes what was taken, oldest first. So rotation cannot delete what waits for a
slow probe. Between them stands the ledger. A checkpoint's way through it:

    (complete) -> taken -> done
                    |  ^-> retry -> ... -> failed        the probe raised; `Later` is no failure and does not count
                    +----> skipped                       --latest-only, and a newer one came
                    +----> missed                        its copy was damaged or removed
    (gone before it was taken) -> missed
    (never gets complete) -> abandoned

After kill -9 the ledger and the copies are all that is needed to go on.
"""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..errors import ConfigError
from ..record.schema import FOLDER, PROBE
from .attempt import Attempts, give_up
from .collect import Collector
from .copies import Taken, copies_folder, discard, intact
from .ledger import Entry, Ledger, Lock, identity
from .scan import Record, Run, lives, process, step_of
from .wakeups import Wakeups

#: How long a server may be away once the training is over, before the watch ends; a restart of vLLM takes minutes.
AWAY_S = 900.0
#: LlamaFactory saves the final model after the record has said "end". Longer is only waited while `parent` lives.
FINAL_GRACE_S = 60.0
#: Between two looks while a checkpoint is being saved: rotation may follow soon.
SAVING_POLL_S = 0.25
#: How long a removed folder is left alone.
REMOVAL_S = 2.0
#: How long the collecting thread may take to finish its copy when the watch is ended.
JOIN_S = 10.0


class Watcher:
    """Watches one output folder.

    Args:
        output_dir: the run's output folder; need not exist yet.
        suite_sha256: what is asked; with another suite every checkpoint is probed anew.
        probe: probes one private copy; returns when its results are recorded. Raises `Later` when it cannot work now;
            any other exception counts as a failure of this checkpoint.
        say: takes one line for people.
        poll_s: seconds between two looks at the folder.
        latest_only: of several that wait, probe only the newest.
        since_segment: segments of the run's record before this one do not count.
        parent: pid of the training; once it is gone, a last look is taken and the watch ends.
        copies: where private copies go; `<output_dir>/obs/probe/copies` by default.
        hard_links: link large weight files instead of copying them, see `copies.take`.
        recorded: are the results of this content already wholly recorded? Then it is only marked as done: the probe
            may have been killed between its last result and its return.
        retry_limit: so many failures, and it has failed for good.
        stale_s: an incomplete checkpoint in which nothing has changed for so long is abandoned.
        again: probe also what was probed before.
        known: are there results of this content? Without them "done" does not count (their record was archived).
        only: the name of the one checkpoint that counts, e.g. "checkpoint-20".
    """

    def __init__(
        self,
        output_dir: Path,
        suite_sha256: str,
        probe: Callable[[Taken], None],
        *,
        say: Callable[[str], None],
        poll_s: float = 2.0,
        latest_only: bool = False,
        since_segment: int = 0,
        parent: int | None = None,
        copies: Path | None = None,
        hard_links: bool = False,
        recorded: Callable[[Taken], bool] = lambda taken: False,
        retry_limit: int = 3,
        stale_s: float = 600.0,
        again: bool = False,
        only: str | None = None,
        known: Callable[[str], bool] = lambda content: True,
    ):
        self._output_dir, self._suite, self._say = Path(output_dir), suite_sha256, say
        self._poll_s, self._latest_only, self._again, self._only = poll_s, latest_only, again, only
        self._known = known
        self._attempts = Attempts(probe, recorded, say, poll_s, retry_limit, again)
        self._folder = self._output_dir / FOLDER / PROBE
        self._copies = copies_folder(copies, self._folder, self._output_dir) / suite_sha256[:8]
        self._lock = Lock(self._folder)
        self._record = Record(self._output_dir, since_segment)
        self._parent = process(parent)
        self._has_parent = parent is not None
        self._ledger: Ledger | None = None
        self._collector = Collector(
            self._output_dir,
            self._copies,
            say,
            latest_only=latest_only,
            hard_links=hard_links,
            stale_s=stale_s,
            retry_limit=retry_limit,
            only=only,
        )
        self._wake, self._work, self._stop = threading.Event(), threading.Event(), threading.Event()
        self._wakeups = Wakeups(self._output_dir, self._wake, say)
        self._finished = False  # nothing more will come
        self._home: tuple | None = None  # the output folder, by device and inode
        self._homeless_at: float | None = None  # since when the folder with our lock is gone
        self._error: BaseException | None = None

    @property
    def incomplete(self) -> dict[str, str]:
        """What was there at the last look and not complete: name -> why."""
        return dict(self._collector.incomplete)

    @property
    def unprobed(self) -> dict[str, str]:
        """What is complete and has no results: it failed, waits for another try or could not be taken. Name -> why."""
        if self._ledger is None:
            return {}
        last = {entry.key.name: entry for entry in sorted(self._ledger.all(), key=lambda entry: entry.time)}
        unprobed = {e.key.name: e.why or "not yet" for e in self._waiting()}
        unprobed |= {name: e.why for name, e in last.items() if e.state == "failed" and self._only in (None, name)}
        return unprobed | {name: why for name, (_, _, why) in self._collector.blocked.items()}

    @property
    def broken(self) -> dict[str, int]:
        """What is there and not complete, or never got complete: name -> step."""
        found = {name: step_of(name) for name in self.incomplete if step_of(name) is not None}
        if self._ledger is not None:
            last = {entry.key.name: entry for entry in sorted(self._ledger.all(), key=lambda entry: entry.time)}
            found |= {name: entry.key.step for name, entry in last.items() if entry.state == "abandoned"}
        return found

    @property
    def waits(self) -> bool:
        """Is there a private copy for which another try may help?"""
        return self._ledger is not None and bool(self._waiting())

    def once(self) -> bool:
        """Take and probe what is there now, each once, and return.

        Returns:
            True where nothing is left to do; False where something waits for another try or is not complete.

        Raises:
            ConfigError: another process probes this folder.
        """
        with self._working():
            run = self._record.read()
            self._collector.look(self._ledger, run, {}, over=bool(run.ended), live=False)
            self._skip_older()
            self._attempts.quiet_until = 0.0
            for entry in self._waiting():
                self._attempts.make(self._ledger, entry)
                if time.time() < self._attempts.quiet_until:  # the server is down: so it is for the others
                    break
            return not self._waiting() and not self._collector.blocked and not self.incomplete

    def watch(self) -> None:
        """Probe what is there and what comes, until the training has ended and all is probed, or until Ctrl-C.

        The end is what the run's record says, or that `parent` is gone. Without either it watches for ever.

        Raises:
            ConfigError: another process probes this folder.
        """
        with contextlib.suppress(KeyboardInterrupt), self._working():
            collecting = threading.Thread(target=self._collect, name="obs-probe-collect", daemon=True)
            collecting.start()
            try:
                self._probe_all()
            finally:
                self._stop.set()
                self._wake.set()
                collecting.join(JOIN_S)

    @contextlib.contextmanager
    def _working(self):
        self._lock.acquire()
        try:
            first = self._ledger is None  # what was probed by an earlier call of ours is not probed again
            try:
                outdated = self._outdated if first else lambda entry: False
                self._ledger = Ledger(self._folder, self._suite, self._say, outdated)
            except OSError as error:
                raise ConfigError(f"{self._folder} cannot be used: {error.strerror or error}") from None
            self._home = identity(self._output_dir)
            self._reconcile(thorough=first)
            yield
        finally:
            self._wakeups.stop()
            if self._ledger is not None:
                self._ledger.close()
            self._lock.release()

    def _outdated(self, entry: Entry) -> bool:
        """A new call tries again what failed before (its options may be other ones) and what was skipped."""
        if entry.state == "done":
            return self._again or not self._known(entry.key.content)
        return entry.state == "failed" or not self._latest_only

    def _reconcile(self, thorough: bool) -> None:
        """Bring copies and ledger together again, after whatever ended the last watcher."""
        for entry in self._ledger.waiting():
            flaw = intact(entry.taken, thorough)
            if flaw:
                give_up(self._ledger, self._say, entry.taken, flaw)
        in_use = {entry.taken.path.name for entry in self._ledger.waiting()}
        with contextlib.suppress(FileNotFoundError):
            for leftover in os.scandir(self._copies):
                if leftover.name not in in_use:
                    shutil.rmtree(leftover.path, ignore_errors=True)

    # ---- the collecting thread ----------------------------------------------------------------------------------

    def _collect(self) -> None:
        try:
            while not self._stop.is_set():
                self._wake.clear()
                self._look()
                self._work.set()
                self._wake.wait(min(self._poll_s, SAVING_POLL_S) if self._collector.saving else self._poll_s)
        except BaseException as error:  # raised again in the calling thread
            self._error = error
            self._work.set()

    def _look(self) -> None:
        # In this order: what the parent, the record and the hints tell of was there before the folder is listed.
        parent_gone = self._has_parent and not lives(self._parent)
        if not self._lock.held() and not self._move_in():
            self._finished = parent_gone and not self._output_dir.is_dir()
            return
        self._wakeups.tend()
        run = self._record.read()
        over = parent_gone or bool(run.ended)
        self._collector.look(self._ledger, run, self._wakeups.hints(), over, live=True)
        settled = not self._collector.blocked and not self._collector.unsettled
        self._finished = over and settled and (parent_gone or not self._final_may_come(run))

    def _move_in(self) -> bool:
        """The folder with our lock was removed. Once there is a new one, lock it and go on with what we know.

        Not at once: `rm -r` may still be at work, and fails where somebody makes new files under its hands.
        """
        if self._homeless_at is None:
            self._homeless_at = time.monotonic()
        if time.monotonic() - self._homeless_at < REMOVAL_S or not self._output_dir.is_dir():
            return False
        self._lock.release()
        self._lock.acquire()
        try:
            self._ledger.reopen()
        except OSError:  # removed again
            self._lock.release()
            return False
        self._say(f"{self._output_dir} was removed and made again: watching the new one")
        self._homeless_at = None
        self._reconcile(thorough=True)
        if identity(self._output_dir) != self._home:
            self._home = identity(self._output_dir)
            self._collector.begin_anew()
        return True

    def _final_may_come(self, run: Run) -> bool:
        """The final model is saved after the record's "end", and is not there yet."""
        if run.ended != "end" or self._collector.final_settled:
            return False
        return time.time() < max(run.ended_at, self._collector.final_changed_at) + FINAL_GRACE_S

    # ---- the calling thread: probing ----------------------------------------------------------------------------

    def _probe_all(self) -> None:
        while self._error is None:
            self._skip_older()
            finished = self._finished  # before the question what waits: a look sets it last
            waiting = self._ledger.waiting()
            ready = [entry for entry in waiting if max(entry.not_before, self._attempts.quiet_until) <= time.time()]
            if ready:
                self._attempts.make(self._ledger, ready[0])
            elif finished and not waiting:
                return
            elif finished and self._attempts.away_since and time.time() - self._attempts.away_since > AWAY_S:
                why = self._attempts.away_why
                self._say(f"{len(waiting)} checkpoints still wait: {why}; start the probe again when it is back")
                return
            else:
                self._work.wait(self._poll_s)
                self._work.clear()
        raise self._error

    def _waiting(self) -> list[Entry]:
        return [entry for entry in self._ledger.waiting() if self._only in (None, entry.key.name)]

    def _skip_older(self) -> None:
        waiting = self._ledger.waiting()
        for entry in waiting if self._latest_only else []:
            newest = waiting[-1].taken
            if entry.key.step < newest.step:
                self._ledger.put("skipped", entry.key.name, entry.key.step, _newer(newest), entry.taken)
                discard(entry.taken)
                self._say(f"{entry.key.name} skipped: {_newer(newest)}")


def _newer(newest: Taken) -> str:
    return f"--latest-only: {newest.name} is newer"
