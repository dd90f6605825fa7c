"""Calls our callbacks: each call is guarded and timed, and a callback that failed is called no more."""

import contextlib
import time
from collections.abc import Callable

from .base import ObsCallback


class Guarded:
    """The callbacks of one training.

    Args:
        callbacks: all of them, in the order in which they are called.
        say_off: `say_off(yaml_name, error)`, called once for one that failed.

    Attributes:
        live: those that have not failed.
        costs: seconds spent in each callback, by its YAML name.
        current: the one that is being called.
    """

    def __init__(self, callbacks: list[ObsCallback], say_off: Callable[[str, BaseException], None]):
        self.live = list(callbacks)
        self.costs = {callback.yaml_name: 0.0 for callback in self.live}
        self.current: ObsCallback | None = None
        self._say_off = say_off

    def each(self, hook: str, *args) -> None:
        """Call a hook of every live callback that has it."""
        nothing = getattr(ObsCallback, hook)
        for callback in list(self.live):
            if getattr(type(callback), hook) is not nothing:
                self.call(callback, getattr(callback, hook), *args)

    def call(self, callback: ObsCallback, function: Callable, *args):
        """Call one of a callback's functions."""
        start, outer, self.current = time.perf_counter(), self.current, callback
        try:
            return function(*args)
        except Exception as error:
            if any(c is callback for c in self.live):
                self.live = [c for c in self.live if c is not callback]
                self._say_off(callback.yaml_name, error)
                with contextlib.suppress(Exception):
                    callback.off()
        finally:
            self.current = outer
            self.costs[callback.yaml_name] += time.perf_counter() - start
