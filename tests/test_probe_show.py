"""What a person sees: widths, control characters, diffs, the matrix."""

import io
import re

from rich.cells import cell_len

from llamafactory_obs.probe.judge import headline
from llamafactory_obs.probe.show import View, visible
from llamafactory_obs.probe.words import diff, likeness, shorten


def row(name="call", passed=True, raw="你好<|im_end|>", **more):
    turn = {"raw": raw, "replies": [], "other_parsers": []}
    errors = [] if passed else ["wrong_arguments"]
    base = {"probe": name, "prompt": "查一下华东区 8 月的订单", "passed": passed, "errors": errors, "output": raw}
    return {**base, "turns": [turn], "details": [f"{error}: why" for error in errors], **more}


def shown(draw, columns=None, monkeypatch=None) -> str:
    out = io.StringIO()
    if columns:
        monkeypatch.setenv("COLUMNS", str(columns))
    draw(View(out))
    return out.getvalue()


def test_chinese_is_wrapped_by_its_width(monkeypatch):
    raw = "订单" * 100 + "\n{}<|im_end|>"
    text = shown(lambda view: view.block("checkpoint-4", [row(raw=raw)], {}, []), 80, monkeypatch)
    lines = text.splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert "".join(re.findall(r"│ (.*)", text)).replace("\n", "") == raw.replace("\n", "")
    assert any(cell_len(line) >= 78 and "订" in line for line in lines), "a Chinese line is filled"


def test_a_models_output_cannot_steer_the_terminal():
    raw = "a\x1b[2Jb\r\x07\u202ec\td\x00\x9b31m"
    text = shown(lambda view: view.block("c", [row(raw=raw)], {}, []))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "a\\x1b[2Jb\\x0d\\x07\\x202ec" in text
    assert visible("a\nb") == "a\\nb" and visible("a\nb", newlines=True) == "a\nb"


def test_long_answers_are_cut_and_where_the_rest_is_said():
    text = shown(lambda view: view.block("c", [row(raw="\n".join(map(str, range(100))))], {}, []))
    assert "│ 39" in text and "│ 40" not in text and "60 more lines in obs/probes.jsonl" in text


def test_changes_and_the_diff():
    old = row(raw='{"region": "西南区", "month": 8}<|im_end|>', passed=False)
    change = {"checkpoint": "checkpoint-2", "change": "fixed", "same_text": False}
    new = row(raw='{"region": "华东区", "month": 8}<|im_end|>', vs_previous=change, vs_base=None)
    text = shown(lambda view: view.block("checkpoint-4", [new], {"call": old}, ["a note"]))
    assert "fixed against checkpoint-2" in text and "[-西南-]{+华东+}区" in text and "! a note" in text
    against = {"checkpoint": "base", "change": "broke", "same_text": True}
    text = shown(lambda view: view.block("c", [row(vs_previous=change, vs_base=against)], {}, []))
    assert "broke against the base model, same text" in text and "fixed against checkpoint-2" in text
    other = row(raw="完全不同的一句话", vs_previous=change)
    assert "another text altogether" in shown(lambda view: view.block("c", [other], {"call": old}, []))


def test_words():
    assert diff("month 8", "month 12") == [(" ", "month "), ("-", "8"), ("+", "12")]
    assert diff("", "") == [] and diff("a", "a") == [(" ", "a")]
    assert diff("<tool_call>x", "<tool_call>y") == [(" ", "<tool_call>"), ("-", "x"), ("+", "y")]
    pieces = diff("start " + "x " * 100 + "old", "start " + "x " * 100 + "new")
    assert shorten(pieces)[0][1].startswith(" ... ") and len(shorten(pieces)[0][1]) < 40
    assert likeness([]) == 1 and likeness(diff("abc", "xyz")) == 0 and likeness(diff("a b", "a c")) > 0.5


def test_the_matrix_breaks_where_the_terminal_ends(monkeypatch):
    columns = {(0, "base"): {"call": row(passed=False)}}
    columns |= {(step, f"checkpoint-{step}"): {"call": row(passed=step > 50)} for step in range(10, 101, 10)}
    columns |= {(100, "final"): {}}
    text = shown(lambda view: view.matrix(columns, ["call", "没有调用"]), 60, monkeypatch)
    lines = [line for line in text.splitlines() if line]
    assert max(map(cell_len, lines)) <= 60
    heads = [word for line in lines if line.startswith("probe") for word in line.split()[1:]]
    assert heads == ["base", *map(str, range(10, 101, 10)), "final"]
    cells = [word for line in lines if line.startswith("call") for word in line.split()[1:]]
    assert cells == ["wrong_arguments"] * 6 + ["ok"] * 5 + ["-"]
    assert shown(lambda view: view.matrix({}, ["call"])) == ""


def test_the_headline_is_what_says_most():
    assert headline(["no_end_token", "repetition", "unclosed", "unexpected_call"]) == "unexpected_call"
    assert headline(["no_end_token", "repetition", "unclosed", "extra_call"]) == "unclosed"
    assert headline(["no_end_token", "repetition"]) == "no_end_token" and headline([]) == "wrong"
