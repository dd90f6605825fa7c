"""`... | head`: when nobody reads on, each verb ends quietly with 141; another broken pipe is an error."""

import io
import os
import subprocess
import sys

import pytest
from mask_config import write as write
from probe_folder import probes, run, said, save, states, watcher  # noqa: F401
from rich.console import Console
from summary_record import whole

from llamafactory_obs import cli


@pytest.fixture
def unread(monkeypatch):
    """`unread(words, name)`: a call without a reader of stdout (or stderr): exit code, the other stream."""

    def call(words, name="stdout"):
        read, end = os.pipe()
        os.close(read)
        other = io.StringIO()
        monkeypatch.setattr(sys, "stderr" if name == "stdout" else "stdout", other)
        with open(end, "w", encoding="utf-8") as stream:  # closing flushes, as the interpreter does: must not fail
            monkeypatch.setattr(sys, name, stream)
            code = cli.main([str(word) for word in words])
        return code, other.getvalue()

    return call


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An output folder with a record and a checkpoint."""
    folder = whole(tmp_path_factory.mktemp("made") / "run")
    save(folder, 20)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "report RUN",
        "report RUN --json",
        "report RUN --markdown -",
        "compare RUN RUN",
        "compare RUN RUN --json",
        "diagnose RUN",
        "diagnose RUN --json",
        "timeline RUN",
        "timeline RUN --json",
        "checkpoint RUN --quick",
        "checkpoint RUN --quick --json",
        "watch RUN --once",
        "watch RUN --once --json",
        "control RUN --save",
        "control RUN --save --json",
        "board RUN",
        "board RUN --json",
        "callbacks",
        "callbacks --json",
        "--version",
    ],
)
def test_a_reader_that_stops(unread, made, words):
    assert unread([made if word == "RUN" else word for word in words.split()]) == (141, "")


@pytest.mark.parametrize("verb", ["mask", "memory", "resume", "preflight --gate mask"])
@pytest.mark.parametrize("json", ["", "--json"])
def test_of_a_verb_over_a_config(llamafactory, unread, write, verb, json):
    verb, *more = verb.split()
    assert unread([verb, write(), *more, *json.split()])[0] == 141


@pytest.mark.parametrize("show", [print, lambda text: Console(file=sys.stdout).print(text)], ids=["print", "rich"])
@pytest.mark.parametrize("lines", [1, 200])
def test_of_any_other_verb(unread, monkeypatch, show, lines):
    monkeypatch.setattr(cli, "_doctor", lambda args: show(f"{'x' * 70}\n" * lines) or 0)
    assert unread(["doctor"]) == (141, "")


def test_a_reader_of_stderr_that_stops(unread):
    assert unread(["report", "nowhere"], "stderr") == (141, "")
    assert unread(["diagnose", "nowhere"], "stderr") == (141, "")


def test_the_process_is_quiet_to_its_end(made):
    """Both streams in one pipe, as in `2>&1 | head`; the interpreter flushes them once more at its end."""
    for words in (["report", made], ["report", "nowhere"]):
        read, end = os.pipe()
        os.close(read)
        done = subprocess.run([sys.executable, "-m", "llamafactory_obs.cli", *words], stdout=end, stderr=end)
        os.close(end)
        assert done.returncode == 141


def test_another_broken_pipe_is_an_error(monkeypatch):
    def fails(args):
        raise BrokenPipeError("a worker of the training is gone")

    monkeypatch.setattr(cli, "_doctor", fails)
    with pytest.raises(BrokenPipeError):
        cli.main(["doctor"])


def test_a_probe_that_nobody_reads_is_no_failure_of_its_checkpoint(run, watcher, probes, monkeypatch):  # noqa: F811
    save(run, 20)
    probes.raises = [BrokenPipeError("a connection")]
    assert not watcher().once() and states(run)[-1] == ("checkpoint-20", "retry")
    read, end = os.pipe()
    os.close(read)
    with open(end, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        probes.raises = [BrokenPipeError()]
        with pytest.raises(BrokenPipeError):
            watcher().once()
    monkeypatch.undo()
    assert states(run)[-1] == ("checkpoint-20", "retry") and len(states(run)) == 2, "not told a second time"
    assert watcher().once() and states(run)[-1] == ("checkpoint-20", "done")
