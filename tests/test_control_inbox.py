"""The folder between verb and job, without a training: who is there, what is heard, what is refused. Needs no torch."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from commander import control

from llamafactory_obs import cli
from llamafactory_obs.control import inbox as inbox_module
from llamafactory_obs.control import presence
from llamafactory_obs.control.folder import ANSWERS, INBOX, JOB, control_folder
from llamafactory_obs.control.inbox import Inbox
from llamafactory_obs.control.order import Order, parse
from llamafactory_obs.errors import ConfigError

#: a job that answers commands, `mute` ones excepted, without training anything
JOB_PROCESS = """
import sys, time
from llamafactory_obs.control.folder import control_folder
from llamafactory_obs.control.inbox import Inbox
inbox = Inbox(control_folder(sys.argv[1]), {})
inbox.open(); inbox.start(); print("up", flush=True)
step = 0
while True:
    step += 1
    time.sleep(0.05)
    while inbox.waiting and sys.argv[2] != "mute":
        sent = inbox.waiting.popleft()
        if inbox.claim(sent):
            results = [{"what": name, "status": "done", "text": "so it is"} for name in sent.order.given()]
            inbox.answer(sent.id, {"state": "finished", "step": step, "results": results})
"""


@pytest.fixture
def job(tmp_path):
    """Starts such a job in `tmp_path` and kills it in the end."""
    started = []

    def start(kind="answers"):
        words = [sys.executable, "-c", JOB_PROCESS, str(tmp_path), kind]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "up\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def opened(tmp_path):
    """`opened()`: an open inbox with what waited for it; `drop(name, content)` puts a file into it."""
    made = []

    def open_inbox():
        made.append(Inbox(control_folder(tmp_path), {}))
        return made[-1], made[-1].open()

    yield open_inbox
    for inbox in made:
        inbox.close(7)


def drop(tmp_path, name, content, **more):
    folder = control_folder(tmp_path) / INBOX
    folder.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps({"order": content, **more})
    (folder / name).write_text(text, encoding="utf-8")
    time.sleep(0.02)  # more than a tick of the file system's clock


def wait_for(condition, seconds=40.0):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    assert condition()


def test_the_verb_knows_a_job_that_runs_from_one_that_was_killed(job, tmp_path):
    assert control(tmp_path, "--save")[1]["text"].endswith("(it needs an entry under `callbacks:`)")
    process = job()
    code, reply = control(tmp_path, "--save", "--lr-scale", "0.5")
    assert (code, reply["status"]) == (0, "done") and [r["what"] for r in reply["results"]] == ["lr_scale", "save"]
    assert reply["job"]["pid"] == process.pid and reply["file"] is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    code, reply = control(tmp_path, "--save")
    assert (code, reply["status"]) == (1, "no_job") and f"pid {process.pid}" in reply["text"]
    assert "was killed" in reply["text"] and not list((control_folder(tmp_path) / INBOX).iterdir())


def test_a_job_that_does_not_answer_and_one_that_dies_meanwhile(job, tmp_path):
    process = job("mute")
    start = time.monotonic()
    code, reply = control(tmp_path, "--eval", "--wait", "0.5")
    assert (code, reply["status"]) == (1, "no_answer") and time.monotonic() - start < 5
    assert "has not answered within 0.5 s" in reply["text"] and os.path.exists(reply["file"])
    code, reply = control(tmp_path, "--eval", "--wait", "0")
    assert (code, reply["status"]) == (0, "sent")
    words = [sys.executable, "-m", "llamafactory_obs.cli", "control", str(tmp_path), "--stop", "--json"]
    verb = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: len(list((control_folder(tmp_path) / INBOX).glob("[0-9]*.json"))) == 3, 20)
    process.kill()
    out, _ = verb.communicate(timeout=30)
    reply = json.loads(out)
    assert verb.returncode == 1 and reply["status"] == "gone" and "was killed" in reply["text"]
    assert len(list((control_folder(tmp_path) / INBOX).iterdir())) == 2, "its own command is taken back"


def test_a_forked_child_of_the_job_does_not_keep_it_alive(tmp_path):
    code = (
        "import os, sys, time; from llamafactory_obs.control.presence import Presence; from pathlib import Path\n"
        "Presence(Path(sys.argv[1]), {}).take()\n"
        "child = os.fork()\n"
        "if child == 0: os.close(1); time.sleep(60)\n"
        "print(child, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, check=False)
    child = int(done.stdout)
    try:
        os.kill(child, 0)
        assert presence.look(tmp_path).state == "killed"
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_job_on_another_machine_is_known_by_its_last_touch(tmp_path):
    content = {"pid": 1, "started": 0.0, "locked": True, "host": "elsewhere", "boot": "b"}
    (tmp_path / JOB).write_text(json.dumps(content))
    assert presence.look(tmp_path).state == "running"
    os.utime(tmp_path / JOB, (time.time() - 60, time.time() - 60))
    seen = presence.look(tmp_path)
    assert seen.state == "silent" and 59 < seen.age < 70
    (tmp_path / JOB).write_text(json.dumps(content | {"ended": 1.0, "step": 5}))
    assert presence.look(tmp_path).state == "ended"
    (tmp_path / JOB).write_text("")
    assert presence.look(tmp_path).state == "never"


def test_a_second_job_in_the_folder_is_not_reachable_and_says_so(job, opened, tmp_path):
    job()
    with pytest.raises(FileExistsError, match="another job"):
        opened()
    assert control(tmp_path, "--save")[1]["status"] == "done", "the first one still is"


def test_what_was_left_behind_is_answered_and_what_may_wait_waits(opened, tmp_path, monkeypatch):
    drop(tmp_path, "stop.json", {"stop": True})
    drop(tmp_path, "half.json", {"lr_scale": 0.5}, queue=True)
    drop(tmp_path, "no.json", {"save": True}, queue=True)
    inbox, queued = opened()
    assert [(sent.id, sent.order) for sent in queued] == [("half", Order(lr_scale=0.5))]
    assert "while no job was running" in inbox.problems[1] and "'no.json' (only lr_scale" in inbox.problems[0]
    answer = json.loads((control_folder(tmp_path) / ANSWERS / "stop.json").read_text())
    assert answer["state"] == "finished" and "while no job was running" in answer["refused"]
    assert [path.name for path in (control_folder(tmp_path) / INBOX).iterdir()] == ["no.json"]
    inbox.close(1)
    drop(tmp_path, "late.json", {"lr_scale": 0.5}, queue=True)
    monkeypatch.setattr(inbox_module, "QUEUE_AGE", 0.001)
    _, queued = opened()
    assert not queued and "waited longer than" in (control_folder(tmp_path) / ANSWERS / "late.json").read_text()


def test_a_queue_command_while_the_job_runs_waits_for_the_next_one(opened, tmp_path):
    inbox, _ = opened()
    inbox.start()
    drop(tmp_path, "next.json", {"lr_scale": 0.5}, queue=True)
    drop(tmp_path, "now.json", {"save": True})
    wait_for(lambda: inbox.waiting)
    time.sleep(0.3)
    assert [sent.id for sent in inbox.waiting] == ["now"]
    inbox.close(3)
    assert "ended after step 3" in (control_folder(tmp_path) / ANSWERS / "now.json").read_text()
    _, queued = opened()
    assert [sent.id for sent in queued] == ["next"]


def test_garbage_is_named_once_and_a_command_among_it_is_heard(opened, tmp_path, monkeypatch):
    inbox, _ = opened()
    folder = control_folder(tmp_path) / INBOX
    drop(tmp_path, "a.json", "[" * 100_000)
    drop(tmp_path, "b.json", "[" * 10_000)
    drop(tmp_path, "c.json", '{"order": {"lr_scale": NaN}}')
    drop(tmp_path, "d.json", '{"order": {"lr_scale": 1e999}}')
    drop(tmp_path, "e.json", '{"order": {"max_steps": ' + "9" * 5000 + "}}")
    drop(tmp_path, "f.json", {"rm": "-rf"})
    drop(tmp_path, "g.txt", "hello")
    (tmp_path / "elsewhere.json").write_text('{"order": {"stop": true}}')
    (folder / "h.json").symlink_to(tmp_path / "elsewhere.json")
    os.mkfifo(folder / "i.json")
    (folder / "j.json").mkdir()
    (folder / "k.json").write_bytes(b"\xff\xfe\x00")
    for name in os.listdir(folder):
        if not (folder / name).is_symlink():
            os.utime(folder / name, (0, 0))  # nobody is still writing it
    for number in range(4_000):
        (folder / f"z{number}.json").touch()
        os.utime(folder / f"z{number}.json", (0, 0))
    drop(tmp_path, "zz.json", {"save": True}, by={"pid": 5, "x": ["no"]})
    inbox.start()
    wait_for(lambda: inbox.waiting, 60)
    assert [(sent.id, sent.by) for sent in inbox.waiting] == [("zz", {"pid": 5})]
    said = " ".join(inbox.problems)
    for part in ("'a.json' (larger than 16 KiB)", "'b.json' (not JSON)", "'d.json' (--lr-scale must be", "(not JSON)"):
        assert part in said, said[:600]
    time.sleep(0.5)
    assert " ".join(inbox.problems) == said, "each is named once"
    assert (folder / "f.json").exists(), "nothing that is no command is deleted"
    read = []
    monkeypatch.setattr(inbox, "_read", read.append)
    inbox._look()
    assert not read, "4,000 files that are known are not read again"


def test_the_same_name_may_be_used_again_and_a_torn_file_is_given_time(opened, tmp_path):
    inbox, _ = opened()
    inbox.start()
    for _ in range(3):
        drop(tmp_path, "save.json", {"save": True})
        wait_for(lambda: inbox.waiting)
        assert inbox.claim(inbox.waiting.popleft())
    drop(tmp_path, "torn.json", '{"order": {"sa')
    time.sleep(0.5)
    drop(tmp_path, "torn.json", {"save": True})
    wait_for(lambda: inbox.waiting)
    assert not inbox.problems and inbox.claim(inbox.waiting[0]) and not inbox.claim(inbox.waiting.popleft())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_who_may_not_write_cannot_command(job, tmp_path):
    job()
    (control_folder(tmp_path) / INBOX).chmod(0o500)
    assert cli.main(["control", str(tmp_path), "--save"]) == 2


def test_an_unusable_folder_is_an_oserror(tmp_path):
    folder = control_folder(tmp_path)
    folder.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (folder / INBOX).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        Inbox(folder, {}).open()
    assert presence.look(folder).state == "never", "and nobody is there"


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({}, "nothing is asked for"),
        ({"save": False}, "nothing is asked for"),
        ([], "must be a mapping"),
        ({"sav": True}, "did you mean 'save'"),
        ({"lr_scale": 0}, "from 0.0001 to 100"),
        ({"lr_scale": True}, "from 0.0001 to 100"),
        ({"lr_scale": float("nan")}, "from 0.0001 to 100"),
        ({"lr_scale": 101}, "from 0.0001 to 100"),
        ({"logging_steps": 0}, "--logging-steps must be a whole number"),
        ({"logging_steps": 1.5}, "--logging-steps must be a whole number"),
        ({"stop": 1}, "--stop must be true or false"),
    ],
)
def test_a_bad_order(block, part):
    with pytest.raises(ConfigError, match=part):
        parse(block)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "nothing is asked for"),
        (["--lr-scale", "0"], "from 0.0001 to 100, such as 0.5, got 0.0"),
        (["--lr-scale", "x"], "invalid float value"),
        (["--save", "--queue"], "--queue is for what lasts"),
        (["--save", "--wait", "-1"], "--wait"),
    ],
)
def test_a_wrong_call(words, part, tmp_path, capsys):
    assert cli.main(["control", str(tmp_path), *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and part in err
    assert cli.main(["control", str(tmp_path / "no"), "--save"]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_queue_is_refused_while_a_job_runs(job, tmp_path, capsys):
    job()
    assert cli.main(["control", str(tmp_path), "--lr-scale", "0.5", "--queue"]) == 2
    assert "leave --queue out" in capsys.readouterr().err


def test_what_a_person_sees(job, tmp_path, capsys):
    job()
    assert cli.main(["control", str(tmp_path), "--lr-scale", "0.5", "--stop"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{tmp_path}: done at the end of step ")
    assert rest[:2] == ["  --lr-scale  so it is", "  --stop      so it is"] and "final model" in rest[2]
