"""How people really call `llamafactory-obs control`: another folder, twice, broken off. Needs no torch."""

import os
import signal
import subprocess
import sys
import time

import interrupted
import pytest
from commander import CONTROL, control

from llamafactory_obs import cli
from llamafactory_obs.control.folder import INBOX, control_folder
from llamafactory_obs.control.inbox import Inbox

#: a job that is there; it takes a command (`taken`) or leaves it where it is, and never answers
SILENT_JOB = """
import sys, time
from llamafactory_obs.control.folder import control_folder
from llamafactory_obs.control.inbox import Inbox
inbox = Inbox(control_folder(sys.argv[1]), {})
inbox.open(); inbox.start(); print("up", flush=True)
while True:
    time.sleep(0.02)
    while sys.argv[2] == "taken" and inbox.waiting:
        inbox.claim(inbox.waiting.popleft())
"""


def _inbox(output_dir) -> list[str]:
    return os.listdir(control_folder(output_dir) / INBOX)


@pytest.mark.parametrize("place", ["checkpoint-20", "obs"])
def test_a_folder_inside_of_the_run_means_the_run(place, tmp_path):
    (tmp_path / place).mkdir()
    code, reply = control(tmp_path / place, "--lr-scale", "0.5", "--queue")
    assert code == 0 and reply["dir"] == str(tmp_path)
    assert len(_inbox(tmp_path)) == 1
    assert place == "obs" or os.listdir(tmp_path / place) == []


def test_a_run_that_is_itself_called_checkpoint_n_stays_one(tmp_path):
    run = tmp_path / "checkpoint-20"
    (run / "obs").mkdir(parents=True)
    assert control(run, "--lr-scale", "0.5", "--queue")[1]["dir"] == str(run)


def test_a_name_relative_to_a_checkpoint(tmp_path, monkeypatch, capsys):
    (tmp_path / "checkpoint-20").mkdir()
    monkeypatch.chdir(tmp_path / "checkpoint-20")
    assert cli.main(["control", ".", "--lr-scale", "0.5", "--queue"]) == 0
    assert str(tmp_path) in capsys.readouterr().out and len(_inbox(tmp_path)) == 1


def test_an_empty_name_is_not_the_current_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["control", "", "--lr-scale", "0.5", "--queue"]) == 2
    assert "DIR is empty" in capsys.readouterr().err and os.listdir(tmp_path) == []


def test_a_number_that_is_too_large_is_told_the_limit(tmp_path, capsys):
    assert cli.main(["control", str(tmp_path), "--max-steps", "10000000000"]) == 2
    assert "from 1 to 1000000000, got 10000000000" in capsys.readouterr().err


def test_a_second_command_in_the_queue_names_the_first(tmp_path):
    assert "already" not in control(tmp_path, "--lr-scale", "0.5", "--queue")[1]["text"]
    (control_folder(tmp_path) / INBOX / "junk.json").write_text("no command")
    text = control(tmp_path, "--lr-scale", "0.25", "--queue")[1]["text"]
    assert "after what waits there already: --lr-scale 0.5; to take it back" in text
    inbox = Inbox(control_folder(tmp_path), {})
    assert [sent.order.lr_scale for sent in inbox.open()] == [0.5, 0.25]
    inbox.close(0)


@pytest.mark.parametrize(("kind", "said"), [("left", "is taken back"), ("taken", "taken the command already")])
def test_ctrl_c_while_it_waits(kind, said, tmp_path):
    job = subprocess.Popen([sys.executable, "-c", SILENT_JOB, str(tmp_path), kind], stdout=subprocess.PIPE, text=True)
    try:
        assert job.stdout.readline() == "up\n"
        call = interrupted.start([*CONTROL, str(tmp_path), "--eval"])
        assert "waiting for the end of the step" in call.stderr.readline()
        time.sleep(0.3)
        call.send_signal(signal.SIGINT)
        assert said in call.communicate(timeout=60)[1] and call.returncode == 130
        assert _inbox(tmp_path) == []
    finally:
        job.kill()
        job.wait()
