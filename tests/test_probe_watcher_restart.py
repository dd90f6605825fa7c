"""The watcher: killed, damaged, started again."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
from probe_folder import SUITE, probes, record, run, said, save, states, watcher  # noqa: F401
from test_probe_complete import safetensors

from llamafactory_obs.probe.ledger import Key, Ledger

KILLED = """
import os, signal, sys
from pathlib import Path
from llamafactory_obs.probe import attempt, collect, copies, watcher
from llamafactory_obs.probe.ledger import Ledger
run, window = Path(sys.argv[1]), sys.argv[2]
def die(*args, **more): os.kill(os.getpid(), signal.SIGKILL)
def probe(taken):
    if window == "probing": die()
    with open(run.parent / "results", "a") as file: file.write(taken.content + "\\n")
    if window == "recorded": die()
if window == "copying": copies.content_of = die
if window == "taken": attempt.Attempts.make = die
if window == "done": attempt.discard = die
if window == "unwritten": collect.Ledger.put = Ledger.put = die
watcher.Watcher(run, "5" * 64, probe, say=print).once()
"""


@pytest.mark.parametrize("window", ["copying", "unwritten", "taken", "probing", "recorded", "done"])
@pytest.mark.parametrize("rotated", [False, True])
def test_kill_9_in_each_window(run, watcher, probes, window, rotated):
    folder, results = save(run, 20), run.parent / "results"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(run), window], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if rotated:
        shutil.rmtree(folder)
        record(run, "start", "checkpoint-20")
    recorded = results.read_text().split() if results.exists() else []
    assert watcher(recorded=lambda taken: taken.content in recorded).once()
    nothing_taken = window in ("copying", "unwritten")
    times = len(recorded) + len(probes.names)
    assert times == (0 if rotated and nothing_taken else 1)
    assert states(run)[-1] == ("checkpoint-20", "missed" if rotated and nothing_taken else "done")
    left = run / "obs" / "probe" / "copies" / SUITE[:8]
    assert not left.exists() or not any(left.iterdir())


def test_a_damaged_copy_is_taken_again_or_missed(run, watcher, probes):
    folder = save(run, 20)
    probes.raises = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        watcher().once()
    [copy] = (run / "obs" / "probe" / "copies" / SUITE[:8]).iterdir()
    (copy / "adapter_model.safetensors").write_bytes(safetensors(4, b"\x11"))
    assert watcher().once() and probes.weights == [(folder / "adapter_model.safetensors").read_bytes()]
    assert ("checkpoint-20", "missed") in states(run) and states(run)[-1] == ("checkpoint-20", "done")


def test_a_torn_ledger_is_cut_and_goes_on(run, watcher, probes):
    save(run, 20)
    watcher().once()
    with open(run / "obs" / "probe" / "ledger.jsonl", "ab") as file:
        file.write(b'{"time": 1, "state": "ta')
    save(run, 40)
    assert watcher().once() and probes.names == ["checkpoint-20", "checkpoint-40"]
    assert len(states(run)) == 4


def test_a_full_disk_does_not_forget_what_is_done(run, tmp_path, monkeypatch, said):
    ledger = Ledger(tmp_path, SUITE, said.append)
    real = os.write
    monkeypatch.setattr(os, "write", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    ledger.put("missed", "checkpoint-20", 20, "x")
    ledger.put("missed", "checkpoint-40", 40, "x")
    assert len(said) == 1 and "No space left" in said[0]
    monkeypatch.setattr(os, "write", real)
    ledger.put("missed", "checkpoint-60", 60, "x")
    ledger.close()
    assert {entry.key for entry in Ledger(tmp_path, SUITE, said.append).all()} == {
        Key(step, f"checkpoint-{step}", "", SUITE) for step in (20, 40, 60)
    }
