"""The watcher: when it begins, waits and ends, and what wakes it."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from probe_folder import Watching, eventually, probes, record, run, said, save, states, watcher  # noqa: F401

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.probe import copies
from llamafactory_obs.probe.complete import prove
from llamafactory_obs.probe.wakeups import Wakeups
from llamafactory_obs.probe.watcher import Watcher


def test_the_second_watcher_says_so_and_leaves(run, watcher, probes):
    save(run, 20)
    refused = []

    def second(taken):
        with pytest.raises(ConfigError, match=rf"another probe watches .*run \(pid {os.getpid()}\)"):
            watcher().once()
        refused.append(taken.name)

    probes.meanwhile = second
    assert watcher().once() and refused == ["checkpoint-20"]
    probes.meanwhile = lambda taken: None
    assert watcher().once()


# ---- the watch --------------------------------------------------------------------------------------------------


def test_it_starts_before_the_folder_exists_and_ends_by_the_record(run, watcher, probes):
    run.rmdir()
    watch = Watching(watcher())
    eventually(lambda: (run / "obs" / "probe" / "lock").exists())
    record(run, "start")
    save(run, 20)
    eventually(lambda: probes.names == ["checkpoint-20"])
    record(run, "oom", "retry")  # the Trainer goes on with a smaller batch
    time.sleep(0.1)
    assert watch.goes_on
    save(run, 40)
    for file in (run / "checkpoint-40").iterdir():
        if file.name != "trainer_state.json":
            shutil.copy(file, run / file.name)
    record(run, "checkpoint-40", "end")
    eventually(lambda: len(probes.names) == 2)
    time.sleep(0.1)
    assert watch.goes_on  # the state of the final model is not there yet
    shutil.copy(run / "checkpoint-40" / "trainer_state.json", run / "trainer_state.json")
    watch.join()
    assert probes.names == ["checkpoint-20", "checkpoint-40"] and ("final", "done") in states(run)


def test_older_segments_do_not_end_it(run, watcher, probes):
    record(run, "start", "checkpoint-20", "end")
    watch = Watching(watcher(since_segment=1))
    save(run, 40, state=json.dumps({"global_step": 40, "save_steps": 20, "max_steps": 100}).encode())
    eventually(lambda: probes.names == ["checkpoint-40"])
    assert watch.goes_on
    record(run, "resume", "interrupted", segment=1)
    watch.join()
    assert not any(state == "missed" for _, state in states(run))


def test_it_ends_when_the_training_process_is_gone(run, watcher, probes):
    training = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    watch = Watching(watcher(parent=training.pid))
    save(run, 20)
    eventually(lambda: probes.names == ["checkpoint-20"])
    assert watch.goes_on
    save(run, 40, state=b"")
    training.kill()  # not waited for: a zombie is gone as well
    watch.join()
    training.wait()
    assert states(run)[-1] == ("checkpoint-40", "abandoned")


def test_it_does_not_end_before_the_last_save_is_accounted_for(run, watcher, probes):
    record(run, "start", "crash")
    save(run, 20, state=b"")  # just now: it may still be written
    deleted = save(run, 40)
    (deleted / "adapter_model.safetensors").unlink()  # and this one is being deleted
    one = watcher()
    watch = Watching(one)
    eventually(lambda: len(one.incomplete) == 2)
    shutil.rmtree(deleted)
    watch.join()
    assert sorted(states(run)) == [("checkpoint-20", "abandoned"), ("checkpoint-40", "missed")]


def test_a_folder_that_is_being_removed_is_left_alone(run, watcher):
    watch = Watching(watcher())
    save(run, 20)
    eventually(lambda: ("checkpoint-20", "done") in states(run))
    time.sleep(0.1)
    shutil.rmtree(run / "obs")
    time.sleep(0.3)
    assert sorted(path.name for path in run.iterdir()) == ["checkpoint-20"]
    eventually(lambda: (run / "obs" / "probe" / "ledger.jsonl").exists())
    record(run, "start", "crash")
    watch.join()
    assert ("checkpoint-20", "done") in states(run)  # known, though the file was removed: not probed again


def test_removed_and_made_again(run, watcher, probes, said):
    watch = Watching(watcher())
    save(run, 20)
    eventually(lambda: probes.names == ["checkpoint-20"])
    while run.exists():
        shutil.rmtree(run, ignore_errors=True)
    time.sleep(0.1)
    assert watch.goes_on
    save(run, 20, b"\x33")
    eventually(lambda: len(probes.names) == 2)
    with pytest.raises(ConfigError):
        watcher().once()  # the new folder's lock is held
    record(run, "start", "crash")
    watch.join()
    assert any("removed and made again" in line for line in said)


def test_ctrl_c_ends_it_cleanly_and_loses_nothing(run, watcher, probes):
    save(run, 20)
    probes.raises = [KeyboardInterrupt()]
    watcher().watch()
    assert states(run) == [("checkpoint-20", "taken")]
    assert watcher().once() and probes.names == ["checkpoint-20"]


@pytest.mark.parametrize("broken", ["silent", "limit", "absent"])
def test_without_events_it_polls(run, watcher, probes, said, monkeypatch, broken):
    def start(self):
        if broken == "limit":
            raise OSError(28, "inotify watch limit reached")
        if broken == "absent":
            raise ImportError("watchdog")

        class Silent:
            is_alive = staticmethod(lambda: True)
            stop = staticmethod(lambda: None)
            join = staticmethod(lambda timeout: None)

        return Silent()

    monkeypatch.setattr(Wakeups, "_start", start)
    watch = Watching(watcher())
    save(run, 20)
    eventually(lambda: probes.names == ["checkpoint-20"])
    record(run, "start", "crash")
    watch.join()
    assert len([line for line in said if "looking every few seconds" in line]) == (broken != "silent")


def test_events_wake_it_and_name_what_came_and_went(run, watcher, probes):
    pytest.importorskip("watchdog")
    one = watcher(poll_s=30.0)
    watch = Watching(one)
    eventually(lambda: (run / "obs" / "probe" / "ledger.jsonl").exists())
    time.sleep(0.3)
    save(run, 20)
    eventually(lambda: probes.names == ["checkpoint-20"], timeout=20.0)
    (run / "checkpoint-40").mkdir()
    (run / "checkpoint-40").rmdir()
    eventually(lambda: ("checkpoint-40", "missed") in states(run), timeout=20.0)
    record(run, "start", "crash")
    one._wake.set()  # the record is only polled
    watch.join(20.0)


def test_an_error_in_the_collecting_thread_is_not_swallowed(run, watcher, monkeypatch):
    monkeypatch.setattr(Watcher, "_look", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        watcher().watch()


def test_a_proof_made_before_a_change_is_not_trusted(run, tmp_path):
    folder = save(run, 20)
    proof = prove(folder, 20)
    (folder / "tokenizer.json").write_text("{ }")
    with pytest.raises(copies.Lost):
        copies.take(folder, proof, tmp_path / "copies", hard_links=False)
    assert not any((tmp_path / "copies").iterdir())
