"""What a step's time went into: every moment belongs to exactly one part, so the parts add up to the whole.

Parts nest: while an inner one runs the outer one stands still. Each change of part is a mark. On a CPU a mark is a
reading of the clock. On CUDA it is an event on the training's stream, read a step later: nobody waits for it, and what
it measures is the device's time, so data that was fetched while the device still computed costs nothing.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

#: what no other part explains
OTHER = "other"
#: within these all but our own callbacks counts as theirs: an evaluation's forward passes are evaluation
_WHOLE = ("eval", "checkpoint")
_OURS = "callbacks"


class Phases:
    """The marks of one training.

    Args:
        mark: makes a mark; a number of seconds, or an object with `query`, `synchronize` and `elapsed_time`.

    Attributes:
        broken: what the first failing mark raised; from then on nothing is measured.
    """

    def __init__(self, mark: Callable[[], object] = time.perf_counter):
        self.broken: Exception | None = None
        self._mark = mark
        self._parts = [OTHER]
        self._marks: list[tuple[str, object]] = []
        self._switch()

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Within the block time goes to `name`."""
        depth = len(self._parts)
        self.enter(name)
        try:
            yield
        finally:
            if len(self._parts) > depth:
                del self._parts[depth:]
                self._switch()

    def enter(self, name: str) -> None:
        """From here on time goes to `name`, until the block around it ends."""
        outer = next((part for part in self._parts if part in _WHOLE), None)
        self._parts.append(name if outer is None or name == _OURS else outer)
        self._switch()

    def take(self) -> list[tuple[str, object]]:
        """The marks since the last call, each with the part that began there; the last one ends the window.

        Raises:
            Exception: what a mark raised.
        """
        if self.broken is not None:
            raise self.broken
        now = self._mark()
        marks, self._marks = [*self._marks, ("", now)], [(self._parts[-1], now)]
        return marks

    def _switch(self) -> None:
        if self.broken is None and (not self._marks or self._marks[-1][0] != self._parts[-1]):
            try:
                self._marks.append((self._parts[-1], self._mark()))
            except Exception as error:
                self.broken = error


class Spans:
    """Marks on their way to seconds; the interface of `arrivals.HostCopy`.

    Args:
        marks: of `Phases.take`.
    """

    def __init__(self, marks: list[tuple[str, object]]):
        self._marks = marks
        self._on_host = isinstance(marks[-1][1], float)

    def ready(self) -> bool:
        """Has the last mark been reached?"""
        return self._on_host or self._marks[-1][1].query()

    def wait(self) -> None:
        """Block until it has."""
        if not self._on_host:
            self._marks[-1][1].synchronize()

    def values(self) -> list[dict[str, float]]:
        """One mapping: part -> seconds."""
        seconds: dict[str, float] = defaultdict(float)
        for (part, start), (_, end) in zip(self._marks, self._marks[1:], strict=False):
            seconds[part] += end - start if self._on_host else start.elapsed_time(end) / 1000
        return [dict(seconds)]


def marks_of(device) -> Callable[[], object]:
    """How a mark is made on a torch device: a CUDA event, else the clock."""
    if device.type != "cuda":
        return time.perf_counter
    import torch

    def record() -> object:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    return record
