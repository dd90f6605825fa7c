"""How long a start of training has gone on, although its machine's clock may be set in the meantime."""

from ..record.clock import is_wrong


class Clock:
    """Adds up the time between rows as `summary.sessions` does for a whole record.

    A clock that is set back takes nothing away. Where (nearly) every step says how long it took (`time/step_s`) and the
    clock's sum disagrees, the steps are right: the clock was set forward.
    """

    def __init__(self):
        self._sum = self._measured = 0.0
        self._rows = 0
        self._first_step: int | None = None
        self._last_step = 0
        self._last_time: float | None = None

    def add(self, begun: float, step: int, time: float, step_s: object) -> None:
        """A row of this start.

        Args:
            begun: when the start was, Unix seconds.
            step_s: what the run measured for the step; anything but a number: nothing.
        """
        since = begun if self._last_time is None else self._last_time
        self._sum += max(0.0, time - since)
        self._last_time = time
        self._first_step = step if self._first_step is None else self._first_step
        self._last_step = max(step, self._last_step)
        if isinstance(step_s, (int, float)):
            self._measured += step_s
            self._rows += 1

    def seconds(self, begun: float, heard: float) -> float:
        """Seconds until the last sign of life."""
        tail = max(0.0, heard - (begun if self._last_time is None else self._last_time))
        complete = self._first_step is not None and self._rows >= 0.9 * (self._last_step - self._first_step + 1)
        if complete and is_wrong(self._sum, self._measured):
            return self._measured + tail
        return self._sum + tail
