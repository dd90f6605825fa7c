"""What all visitors read from: each run is followed once, however many look at it, and only while somebody looks."""

import threading
import time
import uuid
from pathlib import Path

import orjson

from ..charts.text import visible
from .examiner import Examiner
from .one_run import OneRun
from .places import Place, find

#: seconds between two looks at the runs, between two looks for new runs, without a visitor until nobody looks
_LOOK, _SEARCH, _ALONE = 1.5, 5.0, 30.0
#: seconds that a visitor waits for the first reading; the page gives up after 20
_PATIENCE = 10.0
#: of one processor core at most this share is spent on reading
_SHARE = 0.1
#: answers that are kept until something changes, and their bytes
_ANSWERS, _BYTES = 64, 32 << 20
#: runs that are shown unless the visitor chooses others, and that can be chosen
PROPOSED, MOST = 4, 8


class Feed:
    """Thread-safe. One thread reads, all others answer from what it has read.

    Args:
        folders: output folders, or folders that hold several.
        price: of the machine in an hour.
    """

    def __init__(self, folders: tuple[Path, ...], price: float | None = None):
        self._folders, self._price = folders, price
        self._id = uuid.uuid4().hex  # of this start of the board: what a page knows of another one counts no longer
        self._lock = threading.Condition()
        self._places: dict[str, Place] = {}
        self._proposed: list[str] = []
        self._heard: dict[str, float] = {}
        self._runs: dict[str, OneRun] = {}
        self._wanted: dict[str, float] = {}  # run -> when somebody looked at it last
        self._tick = 1
        self._listing = (1, b"[]")
        self._answers: dict[tuple, bytes] = {}
        self._found: dict[Path, dict] = {}  # what `diagnose` says, not shown yet
        self._visited = self._searched = self._passed = -1e9
        self._pause = _LOOK
        self._closed = False
        self._examiner = Examiner(self._examined)
        self._thread = threading.Thread(target=self._work, name="board", daemon=True)

    def look_for_runs(self) -> list[dict]:
        """Look for runs, begin to read the ones that will be shown first, and return all: `id`, `name`, `path`."""
        self._search()
        with self._lock:
            self._visit(self._proposed)
            self._thread.start()
            return [{"id": one.id, "name": one.name, "path": str(one.folder)} for one in self._places.values()]

    def state(
        self, chosen: tuple[str, ...] | None, since: int = 0, board: str = "", have: frozenset = frozenset()
    ) -> bytes:
        """What has changed, as JSON; see store.js for what the page makes of it.

        Args:
            chosen: ids of the runs to show, unknown ones are left out; None: those that the board proposes.
            since: the tick that the visitor has seen; 0: nothing.
            board: the id of the board that counted it.
            have: ids of the runs that the visitor has; of others it gets everything.
        """
        with self._lock:
            names = self._proposed if chosen is None else [one for one in chosen if one in self._places][:MOST]
            self._visit(names)
            until = time.monotonic() + _PATIENCE
            while not (self._is_fresh(names) or self._closed) and time.monotonic() < until:
                self._lock.notify_all()
                self._lock.wait(0.5)
            if board != self._id or since > self._tick:
                since = 0
            key = (tuple(names), since, have & frozenset(names))
            if len(self._answers) > _ANSWERS or sum(map(len, self._answers.values())) > _BYTES:
                self._answers = {}
            if key not in self._answers:
                self._answers[key] = self._answer(*key)
            return b'{"now":%.3f,' % time.time() + self._answers[key]

    def probe(self, run: str, number: int) -> bytes | None:
        """One raw answer of a model as JSON, None where there is no such run or row."""
        with self._lock:
            one = self._runs.get(run)
        found = one.probe(number) if one is not None else None
        return None if found is None else orjson.dumps(found)

    def close(self) -> None:
        """Stop reading."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._examiner.close()

    # ---- for visitors; the lock is held ------------------------------------------------------------------------------

    def _visit(self, names: list[str]) -> None:
        self._visited = time.monotonic()
        self._wanted |= dict.fromkeys(names, self._visited)

    def _is_fresh(self, names: list[str]) -> bool:
        """Have all of these been read, and not too long ago?"""
        late = time.monotonic() - self._passed > 3 * _LOOK + self._pause
        return not late and all(name in self._runs or name not in self._places for name in names)

    def _answer(self, names: tuple[str, ...], since: int, have: frozenset) -> bytes:
        parts = [b'"board":"%s","tick":%d' % (self._id.encode(), self._tick)]
        if since == 0:
            parts.append(b'"reset":true')
        if self._listing[0] > since:
            parts.append(b'"listing":' + self._listing[1])
        parts.append(b'"chosen":' + orjson.dumps(names))
        known = [(name, since if name in have else 0) for name in names if name in self._runs]
        news = [(name, self._runs[name].since(tick)) for name, tick in known]
        parts.append(b'"runs":{' + b",".join(b'"%s":%s' % (n.encode(), new) for n, new in news if new) + b"}}")
        return b",".join(parts)

    # ---- the reading thread ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._closed and time.monotonic() - self._visited > _ALONE:
                    self._lock.wait()
                if self._closed:
                    return
            begun = time.thread_time()
            self._look()
            with self._lock:
                self._passed = time.monotonic()
                self._pause = max(_LOOK, (time.thread_time() - begun) / _SHARE)
                self._lock.notify_all()
                until = self._passed + self._pause
                while not self._closed and time.monotonic() < until and self._is_fresh(self._looked_at()):
                    self._lock.wait(until - time.monotonic())

    def _looked_at(self) -> list[str]:
        now = time.monotonic()
        return [name for name, seen in self._wanted.items() if now - seen < _ALONE and name in self._places]

    def _look(self) -> None:
        """One pass: what is new of each run that somebody looks at. The reading is done without the lock."""
        changed = self._search() if time.monotonic() - self._searched > _SEARCH else False
        with self._lock:
            tick = self._tick + 1
            runs = {
                name: self._runs.get(name) or OneRun(self._places[name].folder, self._price)
                for name in self._looked_at()
            }
            found, self._found = self._found, {}
        for run in runs.values():
            try:
                changed = run.update(tick) or changed
            except Exception as error:  # one run that cannot be read must not end the others
                changed = run.failed(error, tick) or changed
            if run.folder in found:
                changed = run.findings(found[run.folder], tick) or changed
            self._examiner.offer(run.folder, run.snapshot)
        with self._lock:
            self._runs |= {name: run for name, run in runs.items() if name in self._places}
            if self._list(tick) or changed:
                self._tick = tick
                self._answers = {}

    def _search(self) -> bool:
        """Look for runs; True where there are others than before."""
        places = {one.id: one for one in find(self._folders)}
        heard = {name: one.heard() for name, one in places.items()}
        with self._lock:
            self._searched = time.monotonic()
            before = list(self._places)
            # known ones keep their place, and so their colour
            self._places = {name: places[name] for name in before if name in places} | places
            self._runs = {name: run for name, run in self._runs.items() if name in places}
            self._heard = heard
            named = [one.id for one in self._places.values() if one.named][:MOST]
            others = sorted((one.id for one in self._places.values() if not one.named), key=lambda one: -heard[one])
            self._proposed = named + others[: max(0, PROPOSED - len(named))]
            return before != list(self._places)

    def _list(self, tick: int) -> bool:
        rows = []
        for place in self._places.values():
            run = self._runs.get(place.id)
            row = {"id": place.id, "name": visible(place.name), "heard": int(self._heard.get(place.id, 0) // 60 * 60)}
            if run is not None and run.snapshot is not None:
                row |= {"status": run.snapshot.status, "ending": run.snapshot.ending}
            rows.append(row)
        listing = orjson.dumps(rows)
        if listing == self._listing[1]:
            return False
        self._listing = (tick, listing)
        return True

    def _examined(self, folder: Path, found: dict) -> None:
        with self._lock:
            self._found[folder] = found
