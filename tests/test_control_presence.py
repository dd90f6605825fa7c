"""Looking for a job writes nothing, and a clock that differs from that of the files does not make it wrong."""

import json
import os
import threading
import time

import pytest

from llamafactory_obs.control import presence
from llamafactory_obs.control.folder import JOB

ELSEWHERE = {"pid": 1, "started": 0.0, "locked": True, "host": "elsewhere", "boot": "b"}


def job(folder, age: float, **more) -> None:
    """A job of another machine; its last touch is so old by our clock."""
    (folder / JOB).write_text(json.dumps(ELSEWHERE | more))
    os.utime(folder / JOB, (time.time() - age, time.time() - age))


@pytest.fixture
def beating(tmp_path):
    """`beating(age)`: a job whose touches come, always so old by our clock."""
    over, threads = threading.Event(), []

    def begin(age: float) -> None:
        job(tmp_path, age)

        def beat() -> None:
            while not over.wait(0.2):
                os.utime(tmp_path / JOB, (time.time() - age, time.time() - age))

        threads.append(threading.Thread(target=beat))
        threads[0].start()

    yield begin
    over.set()
    for thread in threads:
        thread.join()


def unchanged(folder) -> tuple:
    return folder.stat().st_mtime_ns, sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir())


@pytest.mark.parametrize("content", [None, "", "rubbish", {}, {"ended": 1.0, "step": 5}, {"locked": False}, "here"])
@pytest.mark.parametrize("age", [1.0, 7200.0, -7200.0])
def test_looking_writes_nothing(tmp_path, content, age):
    if content == "here":
        job(tmp_path, age, **presence.machine(), pid=2**22 + 1)
    elif isinstance(content, dict):
        job(tmp_path, age, **content)
    elif content is not None:
        (tmp_path / JOB).write_text(content)
    before = unchanged(tmp_path)
    presence.look(tmp_path)
    assert unchanged(tmp_path) == before


@pytest.mark.parametrize("age", [90.0, -90.0, 1800.0])
def test_touches_that_come_count_more_than_the_clock(tmp_path, beating, age):
    beating(age)
    seen = presence.look(tmp_path, patience=30.0)
    assert seen.state == "running" and seen.age < 30.0, "the age of the touch that was seen to come, not the clock's"


@pytest.mark.parametrize("age", [90.0, -90.0])
def test_without_touches_it_is_silent(tmp_path, age):
    job(tmp_path, age)
    begun = time.monotonic()
    assert presence.look(tmp_path, patience=0.5).state == "silent" and time.monotonic() - begun > 0.4
    begun = time.monotonic()
    job(tmp_path, 7200.0)
    assert presence.look(tmp_path, patience=30.0).state == "silent"
    assert time.monotonic() - begun < 20, "clocks are not so far apart: it did not wait"


def test_who_looks_again_and_again_does_not_wait(tmp_path, beating):
    beating(90.0)
    until, states = time.monotonic() + 20, []
    while "running" not in states and time.monotonic() < until:
        states.append(presence.look(tmp_path, patience=0).state)
    assert states[0] == "silent" and states[-1] == "running", "the first did not wait; a later one saw a touch"


def test_touches_that_no_longer_come(tmp_path, monkeypatch):
    monkeypatch.setattr(presence, "SILENT", 1.0)
    job(tmp_path, 90.0)
    assert presence.look(tmp_path, patience=0).state == "silent"
    os.utime(tmp_path / JOB, (time.time() - 90, time.time() - 90))
    assert presence.look(tmp_path, patience=0).state == "running"
    time.sleep(1.1)
    seen = presence.look(tmp_path, patience=0)
    assert seen.state == "silent" and seen.age > 90
    os.utime(tmp_path / JOB, (time.time() - 90, time.time() - 90))
    time.sleep(1.1)
    os.utime(tmp_path / JOB, (time.time() - 90, time.time() - 90))
    presence._watched[tmp_path / JOB] = presence._watched[tmp_path / JOB]._replace(looked=time.monotonic() - 5)
    assert presence.look(tmp_path, patience=0).state == "silent", "nobody looked: when the touch came is not known"


def test_a_job_that_ends_while_somebody_waits(tmp_path):
    job(tmp_path, 90.0)
    timer = threading.Timer(0.3, lambda: job(tmp_path, 0.0, ended=1.0, step=5))
    timer.start()
    begun = time.monotonic()
    assert presence.look(tmp_path, patience=60.0).state == "ended" and time.monotonic() - begun < 30
    timer.join()
