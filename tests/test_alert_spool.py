"""Nothing is lost: what is not sent when a process ends, however it ends, is sent by the next start of the same run."""

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from webhook_server import Service

from llamafactory_obs.alerts.options import AlertOptions, Webhook
from llamafactory_obs.alerts.post import Post
from llamafactory_obs.alerts.spool import Spool
from llamafactory_obs.record.schema import UNSENT
from llamafactory_obs.record.writer import RecordWriter

PROCESS = """
import os, sys, time
from pathlib import Path
from llamafactory_obs.alerts.options import AlertOptions, Webhook
from llamafactory_obs.alerts.post import Post

post = Post(Path(sys.argv[1]), AlertOptions(webhooks=(Webhook(sys.argv[2], "slack"),)), "night run")
for step in range(3):
    post.send({"step": step, "time": time.time() - 7200, "kind": "alert", "level": "error", "name": "n", "title": "t",
               "text": f"what happened at {step}", "evidence": {}})
print("posted", flush=True)
how = sys.argv[3]
if how == "exit":
    os._exit(1)
if how == "exception":
    raise RuntimeError("planted")
if how == "end":
    sys.exit(0)
time.sleep(60)
"""


@pytest.fixture
def service():
    made = Service("slack")
    yield made
    made.close()


@pytest.fixture
def start(tmp_path):
    """`start(service)`: the next start of the run."""
    made = []

    def make(url, kind="slack", **options):
        made.append(Post(tmp_path, AlertOptions(webhooks=(Webhook(url, kind, **options),)), "next start"))
        return made[-1]

    yield make
    for post in made:
        atexit.unregister(post._at_exit)


@pytest.mark.parametrize("how", ["exit", "exception", "end", signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_ends_with_a_hanging_server(service, start, tmp_path, how):
    service.script.extend(["hang"] * 3)
    command = [sys.executable, "-c", PROCESS, str(tmp_path), service.url, str(how)]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "posted\n"
        if isinstance(how, signal.Signals):
            os.kill(process.pid, how)
        error = process.communicate(timeout=60)[1]
        assert ("planted" in error) == (how == "exception"), error
    assert time.monotonic() - began < 30, "the end of a process waits a little, not long"
    assert len((tmp_path / UNSENT).read_text(encoding="utf-8").splitlines()) == 3
    assert service.url not in (tmp_path / UNSENT).read_text(encoding="utf-8")
    assert service.taken == []
    service.script.clear()
    start(service.url).flush(30)
    text = "\n".join(service.texts())
    assert [text.count(f"what happened at {step}") for step in range(3)] == [1, 1, 1]
    assert "night run" in text and "sent 2.0 h late" in text, "the run that it is about, and that it comes late"
    assert not (tmp_path / UNSENT).exists()
    start(service.url).flush(1)
    assert len(service.taken) == 1, "once"


def test_nobody_listens(start, tmp_path):
    closed = Service("json")
    closed.close()
    post = start(closed.url, "json")
    row = {"step": 1, "time": time.time(), "kind": "alert", "level": "error", "name": "n", "title": "t", "text": "x"}
    post.send(row)
    began = time.monotonic()
    post.flush(0.5)
    assert time.monotonic() - began < 10 and (tmp_path / UNSENT).exists()
    again = Service("json", port=closed.port)
    post.flush(30)
    assert again.texts() == ["x"] and not (tmp_path / UNSENT).exists()
    again.close()


def test_a_new_address_of_the_same_kind_gets_what_the_old_one_did_not(service, start, tmp_path):
    spool = Spool(tmp_path, print)
    row = {"step": 1, "time": 1.0, "kind": "alert", "level": "error", "name": "n", "title": "t"}
    spool.add("slack:0000000000", "old", row | {"text": "for slack"})
    spool.add("feishu:0000000000", "old", row | {"text": "for feishu"})
    start(service.url).flush(30)
    assert ["for slack" in text for text in service.texts()] == [True]
    left = (tmp_path / UNSENT).read_text(encoding="utf-8")
    assert "for feishu" in left, "who is not configured any more: it stays"


def test_torn_and_foreign_lines_and_files_of_other_ranks(service, start, tmp_path):
    row = {"step": 1, "time": 1.0, "kind": "crash", "level": "error", "name": "n", "title": "t"}
    Spool(tmp_path, print, ".rank-3").add("slack:0000000000", "run", row | {"text": "rank 3 crashed"})
    spool = Spool(tmp_path, print)
    letters = [spool.add("slack:0000000000", "run", row | {"text": f"message {i}"}) for i in range(3)]
    spool.done(letters[:1])
    with open(tmp_path / UNSENT, "ab") as file:
        file.write(
            b'{"id": 7}\n[1]\nnull\n\xff\xfe\n{"id":"x","to":"slack:0","run":"r","event":{"time":"soon"}}\n{"id":"torn'
        )
    start(service.url).flush(30)
    text = "\n".join(service.texts())
    assert [text.count(word) for word in ("message 0", "message 1", "message 2", "rank 3 crashed")] == [0, 1, 1, 1]
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_once_and_the_message_still_goes(service, start, tmp_path):
    post = start(service.url)
    row = {
        "step": 1,
        "time": time.time(),
        "kind": "alert",
        "level": "error",
        "name": "n",
        "title": "t",
        "text": "still sent",
    }
    (tmp_path / UNSENT).mkdir()  # cannot be opened for writing
    for _ in range(3):
        post.send(row)
    post.flush(30)
    assert sum(text.count("still sent") for text in service.texts()) == 3
    assert ["cannot be written" in text for text in post.news()] == [True]


def test_a_new_run_in_the_folder_leaves_them_there(tmp_path):
    first = RecordWriter(tmp_path, resumed=False, on_error=print)
    first.append("steps.jsonl", {"step": 1})
    Spool(first.folder, print).add("slack:0", "run", {"step": 1, "time": 1.0})
    first.close()
    second = RecordWriter(tmp_path, resumed=False, on_error=print)
    assert (second.folder / UNSENT).exists() and not (second.folder / "steps.jsonl").exists()


def test_the_file_is_strict_json_for_its_owner_only(tmp_path):
    spool = Spool(tmp_path, print)
    spool.add("slack:0", "run", {"step": 1, "text": "训练\ud800发散", "time": 1.0})
    [line] = (tmp_path / UNSENT).read_bytes().splitlines()
    assert json.loads(line)["event"]["step"] == 1 and "训练" in line.decode()
    assert Path(tmp_path / UNSENT).stat().st_mode & 0o077 == 0
