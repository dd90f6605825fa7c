"""The record sheet: every line has a number or says why not; terminal, Markdown, page, both languages."""

import json
import re
import string
import subprocess
import sys
from pathlib import Path

import pytest
from summary_record import Record, whole

from llamafactory_obs import cli
from llamafactory_obs.diagnosis.judge import judge
from llamafactory_obs.report.sheet import sheet
from llamafactory_obs.summary import load, summarize
from llamafactory_obs.texts import speaking, texts
from llamafactory_obs.texts.wrap import cells

FORBIDDEN = re.compile(r"<script src|<link|@import|url\(|https://")


def call(capsys, *words) -> tuple[int, str, str]:
    code = cli.main(["report", *map(str, words)])
    return code, *capsys.readouterr()


def lines_of(text: str) -> dict[str, str]:
    """Label -> value of a Markdown sheet."""
    return dict(re.findall(r"^- \*\*(.+?)\*\*: (.+)$", text, re.MULTILINE))


def test_the_sheet_of_a_run_has_its_numbers(capsys, tmp_path):
    folder = whole(tmp_path / "run")
    code, out, _ = call(capsys, folder, "--lang", "en", "--markdown", "-", "--price", "36", "--currency", "CNY")
    found = lines_of(out)
    assert code == 0
    assert found["batch"] == "4 per device x 3 accumulated x 2 processes = 24 rows per step"
    assert found["cutoff_len"] == "128 tokens, longest row seen 110"
    assert found["VRAM peak"].startswith("15.5 GiB reserved of 22 GiB (70%)")
    assert found["time"] == "1 min 38 s in all: 48 s of training, 50 s of loading"
    assert found["starts"] == "2: 1 killed without a word, 1 finished"
    assert found["start 0"] == "steps 1 to 12, 24 s: killed without a word; next start 1 min 20 s later"
    assert found["steps made again"] == "4 of all steps that were made (16.7%)"
    assert found["cost"] == "0.98 CNY (36.00 CNY per hour, from --price)"
    assert found["num_train_epochs next"].startswith("1: ")
    assert found["mask ratio"] == "30.0% of the real tokens have a label; inside the wanted 20% to 40%"
    assert found["GPU"] == "1 x NVIDIA L4, 22 GiB"


def test_no_line_is_left_to_fill_in(tmp_path):
    record = Record(tmp_path)
    record.start()
    record.steps(1, 5)
    summary = summarize(record.write())
    for lang in ("en", "zh"):
        with speaking(lang):
            groups = sheet(summary, judge(load(tmp_path).curves))
        lines = {line.key: line for group in groups for line in group.lines}
        wanted = {"vram", "gpu_util", "tokens_per_s", "mask_ratio", "cost", "probes", "gates", "next_epochs"}
        assert wanted <= set(lines)
        for line in lines.values():
            assert bool(line.value) != bool(line.why), line
    assert "callbacks" in lines["vram"].why and lines["padding"].why == texts("report", "zh")["likewise"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_terminal_keeps_to_80_columns_and_shows_both_languages(capsys, tmp_path, lang):
    code, out, _ = call(capsys, whole(tmp_path / "run"), "--lang", lang)
    assert code == 0 and "\x1b" not in out
    assert max(cells(line) for line in out.splitlines()) <= 80
    assert ("显存峰值" in out) == (lang == "zh") and ("VRAM peak" in out) == (lang == "en")
    assert "KeyError" not in out and "{" not in out.replace("{price: {per_hour", "")


def test_json_is_one_object_in_english_whatever_is_spoken(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMAFACTORY_OBS_LANG", "zh")
    folder = whole(tmp_path / "run")
    code, out, _ = call(capsys, folder, "--json", "--html", tmp_path / "a.html", "--lang", "zh")
    found = json.loads(out)
    assert code == 0 and found["summary"]["machine_hours"] == pytest.approx(98 / 3600)
    assert found["summary"]["missing"]["cost"]["why"] == "no price is known" and found["html"].endswith("a.html")
    assert found["diagnosis"]["steps"] == 20
    assert '<html lang="zh">' in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_the_page_is_self_contained_and_hostile_words_do_nothing(capsys, tmp_path):
    record = Record(tmp_path / "run")
    record.run["config"]["resolved"]["training_args"]["run_name"] = "<img src=x onerror=alert(1)>"
    record.start()
    record.steps(1, 30, **{"train/grad_norm": 1.0})
    record.event(30, "crash", text="</script><script>alert(1)</script> | `x`\n# head")
    folder = record.write()
    call(capsys, folder, "--html", tmp_path / "a.html", "--markdown", tmp_path / "a.md")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<img" not in page and "<script>alert" not in page and not FORBIDDEN.search(page)
    sheet_ = (tmp_path / "a.md").read_text(encoding="utf-8")
    assert "<img" not in sheet_ and "<script" not in sheet_ and "\n# head" not in sheet_


def test_a_run_that_goes_on_and_a_plain_log_say_so(capsys, tmp_path, monkeypatch):
    record = Record(tmp_path / "run")
    record.start()
    record.steps(1, 5)
    folder = record.write()
    monkeypatch.setattr("time.time", lambda: 1.79e9 + 30)
    assert "so far" in call(capsys, folder, "--lang", "en")[1]
    rows = [{"current_steps": step, "total_steps": 30, "loss": 2.0, "lr": 1e-4} for step in range(1, 31)]
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "trainer_log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, _ = call(capsys, plain, "--lang", "en")
    assert code == 0 and "plain log without a record" in out and "next time: train with" in out


def test_nothing_of_somebody_else_is_overwritten(capsys, tmp_path):
    folder = whole(tmp_path / "run")
    for option, name in (("--html", "a.html"), ("--markdown", "a.md"), ("--bundle", "a.zip")):
        file = tmp_path / name
        file.write_text("mine")
        code, out, err = call(capsys, folder, option, file)
        assert (code, out, file.read_text()) == (2, "", "mine") and err.count("\n") == 1
        file.unlink()
        assert call(capsys, folder, option, file)[0] == call(capsys, folder, option, file)[0] == 0, "ours is replaced"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nowhere"],
        [""],
        ["x" * 5000],
        ["RUN", "--html", ""],
        ["RUN", "--bundle", ""],
        ["RUN", "--markdown", ""],
        ["RUN", "--html", "x" * 300],
        ["RUN", "--markdown", "x" * 300],
        ["RUN", "--price", "1e308"],
        ["RUN", "--price", "1", "--currency", "\x1b[31m"],
        ["RUN", "--price", "-1"],
        ["RUN", "--price", "nan"],
        ["RUN", "--currency", "CNY"],
        ["RUN", "--bundle", "a.rar"],
        ["RUN", "--json", "--markdown", "-"],
        ["RUN", "--verify", "a.zip", "--note", "x"],
        ["RUN", "--note", "  "],
        ["RUN", "--lang", "fr"],
        ["--verify", "nowhere.zip"],
    ],
)
def test_a_wrong_call_is_one_line(capsys, tmp_path, words):
    folder = whole(tmp_path / "run")
    code, out, err = call(capsys, *[folder if word == "RUN" else word for word in words])
    assert (code, out) == (2, "") and err.startswith("llamafactory-obs: ") and err.count("\n") == 1


def test_a_note_is_added_while_the_training_writes(capsys, tmp_path):
    folder = whole(tmp_path / "run")
    obs = folder / "obs"
    (obs / "notes.jsonl").write_text('{"step": 1, "time": 1, "text": "torn')
    before = {file.name: file.read_bytes() for file in obs.iterdir() if file.name != "notes.jsonl"}
    code, out, err = call(capsys, folder, "--note", "换了电源 hf_abcdefghijklmnopqrstuvwx", "--lang", "en")
    assert code == 0 and "换了电源 ***" in out and "note 1 added" in err
    assert before == {file.name: file.read_bytes() for file in obs.iterdir() if file.name != "notes.jsonl"}
    (note,) = summarize(folder).notes
    assert (note.step, note.text) == (20, "换了电源 ***")
    assert "换了电源" in call(capsys, folder, "--markdown", "-")[1]


def test_notes_of_many_people_at_once_are_all_there(tmp_path):
    folder = whole(tmp_path / "run")
    code = (
        "import sys; from llamafactory_obs.report.notes import add_note;"
        f"[add_note({str(folder)!r}, sys.argv[1] + ' ' + str(i) + 'x' * 3000, 1) for i in range(30)]"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(number)]) for number in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    found = {note.text.rstrip("x") for note in summarize(folder).notes}
    assert found == {f"{number} {i}" for number in range(4) for i in range(30)}


def test_both_languages_have_the_same_texts_with_the_same_values():
    for feature in ("report", "summary"):
        english, chinese = texts(feature, "en"), texts(feature, "zh")
        assert english.keys() == chinese.keys()
        for key in english:
            if "price: {" in english[key]:
                continue
            assert _names(english[key]) == _names(chinese[key]), key
    source = "".join(file.read_text() for file in (Path(cli.__file__).parent / "report").rglob("*.py"))
    used = set(re.findall(r"\bt\(\s*\"([a-z_.]+)\"", source)) | set(re.findall(r"\"(value\.[a-z_]+)\"", source))
    assert len(used) > 60 and used <= set(texts("report", "en"))


def _names(entry: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(entry) if name}


def test_chinese_has_full_width_marks_between_chinese_words():
    wrong = re.compile(r"[\u4e00-\u9fff][,:;?!]|[,:;?!][\u4e00-\u9fff]|[\u4e00-\u9fff]\(|\)[\u4e00-\u9fff]")
    for feature in ("report", "summary", "compare", "watch"):
        for key, words in texts(feature, "zh").items():
            assert not wrong.search(re.sub(r"`[^`]*`|\{[^}]*\}", "", words)), (feature, key, words)


def test_a_line_of_chinese_does_not_begin_with_a_closing_mark():
    from llamafactory_obs.texts.wrap import wrapped

    words = "\u8bad\u7ec3\uff08\u4e00\u4e8c\u4e09\uff09\uff0c\u635f\u5931\u3002" * 6
    for width in range(20, 60):
        lines = wrapped(words, width)
        assert "".join(lines) == words
        assert not any(line[0] in "\uff09\uff0c\u3002" or line[-1] == "\uff08" for line in lines), lines


def test_alerts_levels_and_verdicts_are_told_in_the_language_of_the_sheet(capsys, tmp_path):
    record = Record(tmp_path / "run")
    record.run["unknown"] = [{"what": "code.sha", "why": "GitError: the working directory is not in a git repository"}]
    record.run["code"] = {}
    record.start()
    record.steps(1, 5)
    evidence = {"norm": 9.0, "baseline": 2.0, "ratio": 4.5}
    record.event(
        4, "alert", "grad_norm_spike", "Gradient norm 9", name="grad_norm_spike", level="warn", evidence=evidence
    )
    record.more["checkpoints"] = [{"step": 5, "save_s": 1.0, "verdict": "warm start only"}, {"verdict": "no step"}]
    folder = record.write()
    english, chinese = (call(capsys, folder, "--markdown", "-", "--lang", lang)[1] for lang in ("en", "zh"))
    assert "| warn | 4 |" in english and "Gradient norm 9 |" in english and "checkpoint-5, warm start only" in english
    assert lines_of(english)["code"].startswith("none: the working folder was no git repository")
    assert "Gradient norm" not in chinese and "warm start" not in chinese and "GitError" not in chinese
    row = next(line for line in chinese.splitlines() if "| 4 |" in line)
    assert not re.search(r"[a-z]{3,} [a-z]{3,}", row)


def test_a_wide_probe_matrix_keeps_to_80_columns(capsys, tmp_path):
    record = Record(tmp_path / "run")
    record.start()
    record.steps(1, 5)
    record.more["probes"] = [
        {
            "step": step,
            "time": 1.79e9,
            "checkpoint": f"checkpoint-{step}",
            "probe": f"{number} {'long ' * 9}",
            "suite": "s",
        }
        | {"passed": number % 3 > 0}
        for step in range(10_000, 22_000, 1000)
        for number in range(120)
    ]
    for lang in ("en", "zh"):
        out = call(capsys, record.write(), "--lang", lang)[1]
        assert max(cells(line) for line in out.splitlines()) <= 80
        assert "21000" in out and "80/120" in out and "0 long" in out
