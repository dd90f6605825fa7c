"""What fails in the recorder itself is said once and switches it off; the training goes on."""

import functools
import time

from ..texts import speaking


def survives(method):
    """Guard and time one entry point of the recorder. What is made there goes into the record, in English."""

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        if not self.active:
            return
        start = time.perf_counter()
        try:
            with self.timing("callbacks"), speaking("en"):
                method(self, *args, **kwargs)
        except Exception as error:
            self._switch_off(error)
        finally:
            self._cost += time.perf_counter() - start

    return call
