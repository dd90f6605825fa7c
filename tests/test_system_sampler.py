"""The thread of `system`: what a step gets of its samples, sources that fail, hang or are too old."""

import multiprocessing
import sys
import threading
import time

import pytest
from system_run import host

from llamafactory_obs.callbacks.sampler import Sampler

GIB, MIB = 1 << 30, 1 << 20
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")


# ---- the thread -----------------------------------------------------------------------------------------------------


class Counter:
    """A source whose readings are 1, 2, 3 ..."""

    def __init__(self):
        self.count, self.closed, self.raises = 0, False, None

    def read(self):
        if self.raises:
            raise self.raises
        self.count += 1
        return {name: float(self.count) for name in ("mean", "high", "low")}

    def close(self):
        self.closed = True


def sampler(source, interval=0.05):
    return Sampler([source], interval, {"high"}, {"low"})


def without_its_thread(source) -> Sampler:
    """After the first readings it makes only those that the test makes."""
    one = sampler(source, interval=60)
    one.start()
    one._over.set()
    one._thread.join()
    return one


def test_a_step_gets_what_its_samples_come_to_and_else_the_newest():
    one = without_its_thread(Counter())
    assert one.take() == {"mean": 1.5, "high": 2.0, "low": 1.0}, "numbers before the first interval is over"
    assert one.take() == one.take() == {"mean": 2.0, "high": 2.0, "low": 2.0}
    for _ in range(3):
        one._read()
    assert one.take() == {"mean": 4.0, "high": 5.0, "low": 3.0}
    one.close()


def test_the_thread_runs_at_its_interval_and_ends():
    source = Counter()
    one = sampler(source)
    one.start()
    assert any(thread.name == "llamafactory-obs-system" and thread.daemon for thread in threading.enumerate())
    begun = time.monotonic()
    while source.count < 8 and time.monotonic() - begun < 20:
        time.sleep(0.01)
    one.close()
    most = 3 + (time.monotonic() - begun) / 0.05
    assert 8 <= source.count <= most and source.closed and not one._thread.is_alive()
    count = source.count
    time.sleep(0.15)
    assert source.count == count and 0 <= one.cpu_s < 0.5


def test_what_a_source_raises_comes_out_at_the_next_step():
    source = Counter()
    one = sampler(source)
    one.start()
    source.raises = RuntimeError("broken")
    one._thread.join(30)
    with pytest.raises(RuntimeError, match="broken"):
        one.take()
    one.close()


def test_a_source_that_hangs_holds_up_nobody(monkeypatch):
    from llamafactory_obs.callbacks import sampler as module

    monkeypatch.setattr(module, "_JOIN_S", 0.1)
    source, release = Counter(), threading.Event()
    one = sampler(source)
    one.start()
    source.read = lambda: release.wait(20) and {}
    time.sleep(0.15)
    began = time.monotonic()
    assert one.take()["high"] >= 2
    one.close()
    assert time.monotonic() - began < 10 and not source.closed, "still in use"
    release.set()


def test_values_that_are_too_old_are_unknown(monkeypatch):
    from llamafactory_obs.callbacks import sampler as module

    one = without_its_thread(Counter())
    one.take()
    now = time.monotonic()
    monkeypatch.setattr(module.time, "monotonic", lambda: now + 299)
    assert "mean" in one.take()
    monkeypatch.setattr(module.time, "monotonic", lambda: now + 301)
    assert one.take() == {}
    one.close()


@linux
def test_forking_while_it_samples(tmp_path):
    """Data loader workers are forked while the thread reads: they must start, work and end."""
    one = Sampler([host(tmp_path)], 0.001, set(), set())
    one.start()
    context = multiprocessing.get_context("fork")
    for _ in range(8):
        with context.Pool(2) as pool:
            assert pool.map(_work, range(4)) == [0, 1, 4, 9]
    assert one.take()["cpu_percent"] >= 0
    one.close()


def _work(number: int) -> int:
    import logging

    logging.getLogger("worker").debug("%s threads", threading.active_count())
    return number * number
