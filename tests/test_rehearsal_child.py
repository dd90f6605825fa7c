"""What is read from a training in another process: its log's last words, its record, and what ends with it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from llamafactory_obs.preflight.rehearsal import child
from llamafactory_obs.preflight.signals import signals_raise
from llamafactory_obs.record.schema import encode

LOG = """\
[INFO|2026-01-01 00:00:00] llamafactory.data.loader:143 >> Loading dataset rows.json...
100%|####| 10/10 [00:01<00:00,  9.1it/s]
Traceback (most recent call last):
  File "/x/trainer.py", line 1, in step
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
[rank1]: ValueError: and the other rank
llamafactory-obs: torchrun ended with exit code 1; its workers say why above
W0101 00:00:00.000000 1 torch/distributed/elastic.py:1] noise
"""


def test_last_words_are_the_errors(tmp_path):
    (tmp_path / "log").write_text(LOG)
    words = child.last_words(tmp_path / "log")
    assert words[0].startswith("torch.OutOfMemoryError: CUDA out of memory")
    assert len(words) == 3
    (tmp_path / "log").write_text("loading\n[INFO|x] noise\n\nKilled\n")
    assert child.last_words(tmp_path / "log") == ["loading", "Killed"], "no error: the end of it"


def test_a_row_whose_end_is_not_there_yet_waits(tmp_path):
    rows, path = [], tmp_path / "steps.jsonl"
    follow = child._Follower(path, rows.append)
    follow.read()
    whole = encode({"step": 1}) + encode({"step": 2})
    path.write_bytes(whole[:-4])
    follow.read()
    assert [row["step"] for row in rows] == [1]
    path.write_bytes(whole)
    follow.read()
    follow.read()
    assert [row["step"] for row in rows] == [1, 2]


@pytest.mark.parametrize("again", [False, True], ids=["one Ctrl-C", "another one while it ends"])
def test_ending_reaches_what_the_training_started_in_sessions_of_its_own(monkeypatch, again):
    """As torchrun starts its workers; these here do not even listen to SIGTERM."""
    worker = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {worker!r}], start_new_session=True)"
    started = subprocess.Popen([sys.executable, "-c", f"{code}; time.sleep(60)"], start_new_session=True)
    deadline = time.monotonic() + 60
    while not (workers := psutil.Process(started.pid).children()) and time.monotonic() < deadline:
        time.sleep(0.05)
    wait, waits = psutil.wait_procs, []

    def interrupted(processes, timeout):
        waits.append(timeout)
        if len(waits) == 1:
            raise KeyboardInterrupt
        return wait(processes, timeout=timeout)

    monkeypatch.setattr(child, "_GRACE_S", 1.0)
    monkeypatch.setattr(psutil, "wait_procs", interrupted if again else wait)
    with pytest.raises(KeyboardInterrupt) if again else contextlib.nullcontext():
        child._end(started)
    assert started.returncode is not None and len(workers) == 1
    assert not workers[0].is_running() or workers[0].status() == psutil.STATUS_ZOMBIE


def test_sigterm_ends_us_through_finally_and_an_ignored_sighup_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(SystemExit) as end, signals_raise():
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        assert end.value.code == 143
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("llamafactory")
@pytest.mark.parametrize(
    ("env", "count"),
    [({}, 1), ({"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": "4"}, 4), ({"NPROC_PER_NODE": "4"}, 1), ({"USE_RAY": "1"}, 1)],
)
def test_processes_as_the_launcher_counts_them(monkeypatch, env, count):
    for name in ("FORCE_TORCHRUN", "NPROC_PER_NODE", "USE_RAY", "NNODES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("llamafactory.extras.misc.get_device_count", lambda: 0)
    assert child.processes()[0] == count


def test_the_child_is_one_machine_and_caches_nothing_of_ours(monkeypatch, tmp_path):
    monkeypatch.setenv("NNODES", "2")
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    env = child.environment(tmp_path, {"cache_dir": "/models"}, {})
    assert env["NNODES"] == "1" and "MASTER_ADDR" not in env
    assert env["TMPDIR"] == str(tmp_path)
    assert env["HF_DATASETS_CACHE"].startswith(str(tmp_path)) and env["HF_HUB_CACHE"] == "/models"
    assert env.get("HF_HOME") == os.environ.get("HF_HOME")


@pytest.mark.parametrize(
    ("place", "scratch", "moved"),
    [("plain", "scratch", False), ("with a blank", "scratch", True), ("with a blank", "scratch too", False)],
)
def test_a_config_whose_path_holds_a_blank_is_trained_from_where_none_is(monkeypatch, tmp_path, place, scratch, moved):
    folder, scratch = tmp_path / place, tmp_path / scratch
    folder.mkdir(), scratch.mkdir()
    (folder / "run.yaml").write_text("stage: sft\n")
    real, commands = subprocess.Popen, []

    def popen(command, **more):
        commands.append(command)
        return real([sys.executable, "-c", "pass"], **more)

    monkeypatch.setattr(subprocess, "Popen", popen)
    env = {**os.environ, "TMPDIR": str(scratch)}
    ended = child.train(folder / "run.yaml", folder / "out", folder / "log", env, lambda row: None)
    assert ended.exit_code == 0
    trained = Path(commands[0][-1])
    assert trained == (scratch if moved else folder) / "run.yaml" and trained.read_text() == "stage: sft\n"
