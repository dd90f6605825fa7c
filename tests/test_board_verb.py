"""The verb: how it begins and ends, wrong words, ports, and its texts."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import interrupted
import pytest
from page_folder import full

from llamafactory_obs import cli
from llamafactory_obs.board.access import Access


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("board") / "run"
    full(folder)
    return folder


def start(*words, **environment):
    command = [sys.executable, "-m", "llamafactory_obs.cli", "board", *map(str, words)]
    return interrupted.start(command, stdout=subprocess.PIPE, env={**os.environ, **environment})


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_at_once(folder, how):
    process = start(folder, "--json", "--port", "0")
    text = ""
    while not text.endswith("\n}\n"):
        text += process.stdout.readline()
    facts = json.loads(text)
    assert facts["token"] is None and facts["url"] == f"http://127.0.0.1:{facts['port']}/"
    assert [run["name"] for run in facts["runs"]] == ["run"]
    visitor = http.client.HTTPConnection("127.0.0.1", facts["port"], timeout=10)
    visitor.request("GET", "/api/state")
    assert visitor.getresponse().read()  # and the connection stays open
    process.send_signal(how)
    begun = time.monotonic()
    out, err = process.communicate(timeout=50)
    assert (process.returncode, out, err) == (0, "", "")
    assert time.monotonic() - begun < 30, "it does not wait for the visitor, who may stay for a minute"


def test_a_port_that_is_taken(folder, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert cli.main(["board", str(folder), "--port", str(port)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and f"port {port} is taken" in err and "--port" in err


def test_the_next_free_port_is_taken_and_said(folder):
    from llamafactory_obs.board.address import FIRST_PORT, lines, listen

    one = listen("127.0.0.1", None, None)
    two = listen("127.0.0.1", None, type("Visits", (), {"access": Access()})())
    try:
        assert one.port < two.port < FIRST_PORT + 20
        assert str(FIRST_PORT) in lines(two, None, [])[1] and str(two.port) in lines(two, None, [])[1]
    finally:
        one.server_close()
        two.server_close()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["/no/such/folder"], "no such folder"),
        ([""], "DIR is empty"),
        ([__file__], "not a folder"),
        ([".", "--port", "70000"], "--port"),
        ([".", "--token", "short"], "12 to 200"),
        ([".", "--token", "with spaces and more"], "12 to 200"),
        ([".", "--price", "-1"], "--price"),
        ([".", "--price", "nan"], "--price"),
        ([".", "--host", "no.such.host.invalid"], "no such address"),
        ([".", "--host", "203.0.113.7"], "cannot listen on 203.0.113.7"),
    ],
)
def test_wrong_words_are_one_line(capsys, words, part):
    assert cli.main(["board", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and part in err and "Traceback" not in err


def test_off_this_machine_the_url_holds_the_token(folder):
    process = start(folder, "--host", "0.0.0.0", "--port", "0", LLAMAFACTORY_OBS_LANG="en")
    line = process.stdout.readline()
    found = re.search(r"http://\S+:(\d+)/\?token=(\S{32})$", line.strip())
    try:
        assert found, line
        visitor = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=10)
        visitor.request("GET", "/api/state")
        assert visitor.getresponse().status == 401
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.stdout.read(), process.stderr.read()
        process.wait(60)
    assert err == "" and "unencrypted" in out


def test_the_texts_are_the_same_in_both_languages_and_all_are_used():
    from importlib import resources

    from llamafactory_obs.texts import texts

    english, chinese = texts("board", "en"), texts("board", "zh")
    assert list(english) == list(chinese)
    for key, value in english.items():
        assert sorted(re.findall(r"\{\w+\}", value)) == sorted(re.findall(r"\{\w+\}", chinese[key])), key
    package = resources.files("llamafactory_obs.board")
    code = "".join(file.read_text("utf-8") for file in package.iterdir() if file.name.endswith((".js", ".html", ".py")))
    built = ("state_", "level_", "advice_", "action_", "verdict_", "mark_")
    for key in english:
        name = key.partition(".")[2]
        held = f'"{name}"' in code or f"{{{{{name}}}}}" in code or f'"board.{key}"' in code
        assert held or name.startswith(built), f"{key} is not used"
    for name in re.findall(r'(?:say|fact)\("(\w+)"', code):
        assert f"page.{name}" in english, f"{name} has no text"
