"""The run's numbers, alerts and identity in the tracker that the run reports to; from the first rank, once each."""

import contextlib
from collections.abc import Callable

from .tracker_sinks import SINKS

#: what the Trainer writes under the same name, but per log window: ours are per step and get a prefix
_TRAINER_S = {"train/loss", "train/grad_norm", "train/epoch"}
PREFIX = "obs/"


def tracker_name(key: str) -> str | None:
    """The tracker's name for a column of `steps.jsonl`; None for what the Trainer itself writes there (`eval/*`)."""
    if key.startswith("eval/"):
        return None
    return PREFIX + key if key in _TRAINER_S else key


class Trackers:
    """The trackers of one Trainer, as transformers connected them. Opens no run of its own.

    Args:
        callbacks: the Trainer's list of callbacks.
        on_error: told the tracker's class and the exception when one fails; it is left out from then on.
    """

    def __init__(self, callbacks: list, on_error: Callable[[str, BaseException], None]):
        self._on_error = on_error
        self._sinks = []
        for callback in callbacks:
            sink = next((SINKS[cls.__name__] for cls in type(callback).__mro__ if cls.__name__ in SINKS), None)
            if sink is not None:
                with contextlib.suppress(Exception):  # a tracker that is not there has said so itself
                    self._sinks.append((type(callback).__name__, sink(callback)))

    @property
    def names(self) -> list[str]:
        """The classes of the trackers that are written to."""
        return [name for name, _ in self._sinks]

    @property
    def runs(self) -> dict[str, dict]:
        """The run of each tracker, as `resume` needs it to go on there: `wandb` -> its id, project ..."""
        found = {}
        for _, sink in self._sinks:
            with contextlib.suppress(Exception):  # one that does not say it cannot be continued: `resume` names it
                found[type(sink).__name__.lower()] = sink.run
        return found

    def row(self, values: dict[str, float], step: int) -> None:
        """A finished row of `steps.jsonl`, under the names of `tracker_name`."""
        named = {tracker_name(key): value for key, value in values.items()}
        named.pop(None, None)
        self.log(named, step)

    def log(self, values: dict[str, float], step: int) -> None:
        """Write values at a step, which may lie behind the current one."""
        if values:
            self._each("log", values, step)

    def alert(self, title: str, text: str, level: str, step: int) -> None:
        """An alert, in the tracker's own way where it has one.

        Args:
            level: warn | error.
        """
        self._each("alert", title, text, level, step)

    def identify(self, identity: dict) -> None:
        """What the run is (`identity.brief`), into the tracker's config; a later call adds what was not known yet."""
        self._each("identify", identity)

    def _each(self, method: str, *args) -> None:
        for name, sink in list(self._sinks):
            try:
                getattr(sink, method)(*args)
            except Exception as error:
                self._sinks = [(other, one) for other, one in self._sinks if one is not sink]
                self._on_error(name, error)
