"""The screen: every size, every text, both languages, and what is sent when it changes."""

import argparse
import json
import random
import re
import string

import numpy as np
import pytest
from live_record import LiveRecord
from rich.cells import cell_len
from small_terminal import SmallTerminal

from llamafactory_obs import cli
from llamafactory_obs.errors import ConfigError
from llamafactory_obs.live import Follower, Points
from llamafactory_obs.texts import LANGUAGES, speaking, texts
from llamafactory_obs.watch import command
from llamafactory_obs.watch.canvas import Canvas
from llamafactory_obs.watch.layout import draw, span_of
from llamafactory_obs.watch.plot import axis_of, plot
from llamafactory_obs.watch.writing import Writing

SIZES = [(80, 24), (80, 40), (120, 40), (200, 24), (250, 70), (60, 20), (40, 12), (30, 8), (20, 5), (7, 3), (1, 1)]
HOSTILE = "\x1b[2J\x1b]0;title\x07\r\n\tleft\u202eright\u200b e\u0301 👩‍👩‍👧 \ud800 中文" + "长" * 300


@pytest.fixture
def full(tmp_path):
    """A run with everything on it, none of it kind."""
    record = LiveRecord(
        tmp_path, max_steps=4000, settings={"run_name": HOSTILE, "eval_strategy": "steps", "eval_steps": 100}
    )
    for i in range(10):
        record.steps(100)
        record.evaluate(2 - i / 10)
    record.save(verdict="resumes exactly")
    record.steps(1, **{"train/loss": float("nan"), "train/grad_norm": float("inf")})
    for name, passed in ((HOSTILE, False), ("call", True), ("chat", False)):
        record.probe(name, passed, HOSTILE * 3, errors=(HOSTILE,))
    for i in range(6):
        record.alert("grad_norm_spike", f"spike{i}", f"The norm is up. {HOSTILE}", action="kill", level="error")
    return tmp_path


def screen_of(canvas) -> SmallTerminal:
    terminal = SmallTerminal(canvas.width, canvas.height)
    terminal.feed(canvas.changes(None).encode())
    return terminal


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("size", SIZES)
def test_any_size_holds_and_nothing_untrusted_acts(full, size, lang):
    snapshot = Follower(full, price=2.5).update()
    for unicode in (True, False):
        with speaking(lang):
            canvas = draw(snapshot, *size, Writing(unicode=unicode, language=lang))
        terminal = screen_of(canvas)
        assert terminal.strange == [] and terminal.text() == canvas.text()
        assert all(cell_len(line) <= size[0] for line in canvas.text().splitlines())


def test_what_stands_on_80_columns(full):
    with speaking("en"):
        text = draw(Follower(full, price=2.5).update(), 80, 24, Writing()).text()
    lines = text.splitlines()
    assert len(lines) == 24
    for part in (
        "train loss NaN", "eval loss 1.1", "lowest 1.1 at 1000", "grad norm inf", "tokens/s",
        "step 1001/4000 25%", "to go 49m",
        "VRAM 60.0 GiB", "GPU 93%", "25.0% of the tokens in the loss", "checkpoint 1000 (resumes exactly)",
        "1 of 3 right", "Advice: end the run.", "ERROR open since step 1001", "q leaves",
    ):  # fmt: skip
        assert part in text, part
    assert any("⠁" <= char <= "⣿" for char in text)


def test_chinese_where_it_can_be_written_and_english_where_not(full, monkeypatch):
    monkeypatch.setenv("LLAMAFACTORY_OBS_LANG", "zh")

    class Stream:
        encoding = "utf-8"
        isatty = staticmethod(lambda: True)

    monkeypatch.setenv("TERM", "xterm")
    writing = Writing.of(Stream)
    assert (writing.language, writing.unicode) == ("zh", True)
    with speaking("zh"):
        text = draw(Follower(full).update(), 80, 24, writing).text()
    for part in ("训练损失", "梯度范数", "显存 60.0 GiB", "检查点 1000 (可完整续训)", "建议终止训练。"):
        assert part in text, part
    Stream.encoding = "ascii"
    writing = Writing.of(Stream)
    assert (writing.language, writing.unicode) == ("en", False)
    with speaking(writing.language):
        canvas = draw(Follower(full).update(), 80, 24, writing)
    canvas.text().encode("ascii")
    monkeypatch.setenv("TERM", "linux")  # UTF-8, but its font has neither braille nor Chinese
    Stream.encoding = "utf-8"
    assert (Writing.of(Stream).language, Writing.of(Stream).unicode) == ("en", False)


def test_a_log_without_a_record_says_what_it_lacks(tmp_path):
    row = {"current_steps": 3, "total_steps": 10, "loss": 2.5, "elapsed_time": "0:00:09"}
    (tmp_path / "trainer_log.jsonl").write_text(json.dumps(row) + "\n")
    with speaking("en"):
        text = draw(Follower(tmp_path).update(), 80, 24, Writing()).text()
    assert "step 3/10 30%" in text and "train loss 2.5" in text and "no record (obs/)" in text


def test_no_colour_where_none_is_wanted(full, monkeypatch):
    canvas = draw(Follower(full).update(), 80, 24, Writing(colour=False))
    assert not re.search(r"\x1b\[[\d;]*3\dm", canvas.changes(None))
    assert re.search(r"\x1b\[0;3\dm", draw(Follower(full).update(), 80, 24, Writing()).changes(None))


def test_changes_make_the_same_screen_as_a_whole_one():
    rng = random.Random(1)
    writing, before = Writing(), None
    terminal = SmallTerminal(40, 6)
    for _ in range(300):
        canvas = Canvas(40, 6, writing)
        for row in range(6):
            for _ in range(rng.randrange(4)):
                text = "".join(rng.choice("ab 中文長⣿.") for _ in range(rng.randrange(25)))
                canvas.put(row, rng.randrange(40), text, rng.choice(["", "bold red", "dim", "green"]))
        terminal.feed(canvas.changes(before).encode())
        assert terminal.strange == []
        assert terminal.rows == screen_of(canvas).rows
        assert _styles(terminal) == _styles(screen_of(canvas))
        before = canvas
    assert before.changes(before) == ""


def _styles(terminal):
    rows = zip(terminal.rows, terminal.styles, strict=True)
    return [style for row, styles in rows for char, style in zip(row, styles, strict=True) if char.strip()]


def test_a_refresh_sends_little(tmp_path):
    record, follower = LiveRecord(tmp_path, max_steps=20000), Follower(tmp_path)
    record.steps(3000)
    before = draw(follower.update(), 80, 24, Writing())
    sizes = []
    for _ in range(40):
        record.steps(2)
        canvas = draw(follower.update(), 80, 24, Writing())
        sizes.append(len(canvas.changes(before).encode()))
        before = canvas
    whole = len(before.changes(None).encode())
    assert whole < 5000 and sum(sizes) / len(sizes) < 500 and sorted(sizes)[20] < 350, (whole, sizes)


def test_the_picture_moves_seldom_and_ends_at_the_planned_end(tmp_path):
    record, follower, ends = LiveRecord(tmp_path, max_steps=300), Follower(tmp_path), []
    for _ in range(300):
        record.steps(1)
        ends.append(span_of(follower.update())[1])
    steps = range(1, 301)
    assert all(step <= end <= max(1.2 * step, step + 2) for step, end in zip(steps, ends, strict=True))
    assert len(set(ends[50:])) < 20 and ends[-1] == 300


@pytest.mark.parametrize("unicode", [True, False])
def test_a_curve_stands_where_its_values_are(unicode):
    steps = np.arange(1, 101)
    points = Points(steps, steps.astype(float), None, 100)
    rows = plot(points, axis_of(points), (1, 100), 20, 5, unicode, "green")
    height = {row: {column for column, (char, _) in enumerate(cells) if char != " "} for row, cells in enumerate(rows)}
    assert 0 in height[4] and 19 in height[0]
    centres = [np.mean(list(height[row])) for row in range(5)]
    assert centres == sorted(centres, reverse=True)
    assert {column for columns in height.values() for column in columns} == set(range(20))  # no gap


def test_a_value_that_is_not_finite_is_marked_and_the_mean_stands_in_front():
    steps = np.arange(1, 61)
    values = np.where(steps % 2, 1.0, 3.0)
    values[29] = np.nan
    points = Points(steps, values, np.full(60, 2.0), 60)
    rows = plot(points, axis_of(points), (1, 60), 30, 5, True, "green")
    assert rows[4][14] == ("x", "red")
    assert {style for _, style in rows[2]} == {"green"} and {style for _, style in rows[0]} <= {"dim", ""}


def test_both_languages_have_the_same_texts():
    english, chinese = (texts("watch", lang) for lang in LANGUAGES)
    assert english.keys() == chinese.keys()
    for name, text in english.items():
        assert _names(text) == _names(chinese[name]), name


def _names(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_a_pipe_gets_one_line_for_each_look_with_news(tmp_path, capsys, monkeypatch):
    record = LiveRecord(tmp_path, max_steps=30)
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        record.steps(10) if len(looks) in (1, 3, 5) else None
        if len(looks) == 5:
            record.end()

    monkeypatch.setattr("llamafactory_obs.watch.plain.time.sleep", sleep)
    monkeypatch.setattr("llamafactory_obs.watch.plain._LINGER", 0.0)
    assert cli.main(["watch", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert [re.search(r"step (\d+)/30", line)[1] for line in out.splitlines()] == ["0", "10", "20", "30"]
    assert "finished" in out.splitlines()[-1] and len(looks) == 5


def test_once_and_json(full, capsys):
    assert cli.main(["watch", str(full), "--once", "--json", "--price", "3"]) == 1  # an alert says: end it
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    seen = json.loads(out)
    assert (seen["step"], seen["status"], seen["price"], seen["version"] > 0) == (1001, "training", 3.0, True)
    assert cli.main(["watch", str(full), "--once"]) == 1
    line = capsys.readouterr().out
    assert line.count("\n") == 1 and "loss NaN" in line and "alerts: spike0, spike1" in line


@pytest.mark.parametrize(
    ("kinds", "code"),
    [(["end"], 0), (["crash"], 1), (["notice", "end"], 0), (["interrupted"], 1), (["oom", "crash"], 1), ([], 0)],
)
def test_the_exit_code_says_how_it_ended(tmp_path, capsys, kinds, code):
    record = LiveRecord(tmp_path, max_steps=10)
    record.steps(10)
    for kind in kinds:
        record.event(kind, "recorder", kind, "")
    assert cli.main(["watch", str(tmp_path), "--once"]) == code


def test_the_verdict_of_diagnose_counts_once_the_run_has_ended(tmp_path, capsys):
    record = LiveRecord(tmp_path, max_steps=10)
    record.steps(10)
    record.alert("diagnose", "diverged", "up", action="kill", level="error")
    assert cli.main(["watch", str(tmp_path), "--once"]) == 1
    record.event("diagnosis", "diagnose", "verdict", "fine", evidence={"verdict": "healthy"}, action="keep")
    record.end()
    assert cli.main(["watch", str(tmp_path), "--once"]) == 0


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--interval", "0"], "--interval"),
        (["--interval", "nan"], "--interval"),
        (["--price", "-1"], "--price"),
        (["--once"], "no such folder"),
    ],
)
def test_a_wrong_call(tmp_path, capsys, words, part):
    assert cli.main(["watch", str(tmp_path / "none"), *words]) == 2
    assert part in capsys.readouterr().err


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "log").write_text("")
    args = argparse.Namespace(path=str(tmp_path / "log"), interval=2.0, once=False, price=None, json=False)
    with pytest.raises(ConfigError, match="no folder"):
        command.request(args)


@pytest.mark.parametrize(("lang", "words"), [("en", "not restored: the optimizer"), ("zh", "未恢复：优化器状态")])
def test_a_resume_says_what_did_not_come_back(tmp_path, lang, words):
    record = LiveRecord(tmp_path, max_steps=40)
    lacks = {"not_restored": [{"part": "optimizer", "why": "optimizer.pt is missing"}, {"part": 7}, {}, 7, None]}
    record.event("resume", "recorder", "training resumes", "", level="warn", evidence=lacks)
    with speaking(lang):
        canvas = draw(Follower(tmp_path).update(), 100, 40, Writing(unicode=True, language=lang))
    assert words in screen_of(canvas).text()
