"""The verb: its words, its exit codes, its terminal, its JSON, its page; and logs that are torn, empty or strange."""

import json
import re
import sys
import time
from pathlib import Path

import pytest
from compare_runs import identity, layer_rows, losses, rows, run
from page_folder import Strict, chart, data, probe, record
from rich.cells import cell_len

from llamafactory_obs.cli import main
from llamafactory_obs.identity.run_name import LONGEST, changed_name
from llamafactory_obs.texts import texts

N = 120
EVALS = {40: 1.8, 80: 1.4, 120: 1.2}


@pytest.fixture
def two(tmp_path):
    probes = [probe(120, "call", False, "</script><img src=x onerror=alert(1)>"), probe(120, "talk", True, "hello")]
    a = run(tmp_path / "a", losses(N, seed=1), evaluations=EVALS, layers=layer_rows(N), probes=probes)
    better = {step: loss * 0.8 for step, loss in EVALS.items()}
    fixed = [{**row, "passed": True, "errors": []} for row in probes]
    settings = {"learning_rate": 3e-4, "output_dir": "/x"}
    curve = [x * 0.8 for x in losses(N, seed=2)]
    return [
        str(a),
        str(run(tmp_path / "b", curve, settings, better, layers=layer_rows(N, {"layers.2": 3}), probes=fixed)),
    ]


def test_the_terminal(two, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["compare", *two]) == 0
    out = capsys.readouterr().out
    assert out.startswith("B is better\n") and "20% lower" in out
    for part in ("learning_rate", "0.0001 → 0.0003", "output_dir", "layers.2 x", "1 fixed, 0 broke", "lr3e-4"):
        assert part in out, part
    assert max(map(cell_len, out.splitlines())) <= 80


@pytest.mark.parametrize("count", [2, 3, 10])
def test_chinese_and_many_runs(two, capsys, monkeypatch, count):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LLAMAFACTORY_OBS_LANG", "zh")
    assert main(["compare", *(two * 5)[:count], "--by", "eval_best"]) == 0
    out = capsys.readouterr().out
    assert "更好" in out and "eval loss" in out and "is better" not in out
    wide = [line for line in out.splitlines() if cell_len(line) > 80]
    assert not wide, wide


def test_json_is_one_object_in_english(two, capsys, monkeypatch):
    monkeypatch.setenv("LLAMAFACTORY_OBS_LANG", "zh")
    assert main(["compare", *two, "--json", "--price", "2.5", "--currency", "CNY"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["verdict"]["better"] == "B" and found["verdict"]["text"].startswith("B is better: best eval loss")
    one = found["pairs"][0]
    assert one["differences"]["rows"] == [{"group": "config", "key": "learning_rate", "a": 1e-4, "b": 3e-4, "note": ""}]
    assert one["curves"][0]["column"] == "train/loss" and one["run_name"] == "lr3e-4"
    assert one["exact"]["first"][0]["step"] == 1 and one["probes"]["fixed"] == 1
    assert found["runs"][0]["facts"]["cost"] == pytest.approx(found["runs"][0]["facts"]["hours"] * 2.5)


@pytest.mark.parametrize(("what", "code"), [("any", 1), ("eval", 1), ("train", 1), ("probes", 0)])
def test_fail_if_worse(two, capsys, what, code):
    assert main(["compare", two[1], two[0], "--fail-if-worse", what]) == code
    assert main(["compare", *two, "--fail-if-worse", what]) == 0


def test_wrong_calls(two, tmp_path, capsys):
    (tmp_path / "x.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    predict = tmp_path / "predict.jsonl"
    predict.write_text('{"predict_bleu-4": 1.0, "predict_runtime": 3.0}\n')
    for words, part in (
        ([two[0]], "needs two runs"),
        ([two[0], str(tmp_path / "none")], "no such file"),
        ([two[0], str(tmp_path / "empty")], "no log here"),
        ([two[0], str(tmp_path / "x.txt")], "x.txt"),
        ([two[0], str(predict)], "predict.jsonl"),
        ([*two * 14], "at most 26"),
        ([*two, "--price", "-1"], "--price"),
        ([*two, "--price", "1e308"], "--price"),
        ([*two, "--price", "1", "--currency", "\x1b[31m"], "--currency"),
        ([*two, "--currency", "CNY"], "--price"),
        ([*two, "--html", ""], "--html"),
        ([*two, "--html", "x" * 300], "x"),
        ([two[0], ""], "no name"),
        ([two[0], "x" * 5000], "x"),
        ([*two, "--html", str(tmp_path / "no" / "x.html")], "make it first"),
        ([*two, "--html", str(tmp_path / "x.txt")], "not overwritten"),
    ):
        assert main(["compare", *words]) == 2, words
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and part in err, err
    assert (tmp_path / "x.txt").read_text() == "hello"


def test_torn_records_and_no_overlap(two, tmp_path, capsys):
    torn = record(tmp_path / "torn", steps=rows(losses(N, seed=1)), run=identity(), layers=layer_rows(N))
    for name in ("steps", "layers"):
        file = torn / "obs" / f"{name}.jsonl"
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2 - 7])
    assert main(["compare", two[0], str(torn)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Identical\n") and "torn" in out and "no counterpart" in out
    late = rows(losses(N, seed=1))
    for row in late:
        row["step"] += 1000
    assert main(["compare", two[0], str(record(tmp_path / "late", steps=late, run=identity()))]) == 0
    assert "no steps in common (A 1–120, B 1001–1120)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "broken",
    [
        {"run": {"config": 3, "world": [], "data": "x", "model": None, "seeds": 1, "packages": {"list": 5}}},
        {"run": {"data": {"datasets": [1, {"name": []}], "rows": 7, "files": None}, "unknown": "x", "segments": 4}},
        {"layers": [{"step": 1, "segment": 0, "names": []}, {"step": 1, "segment": 0, "grad_norm": "x"}]},
        {
            "layers": [
                {"step": 1, "time": 0, "segment": 0, "names": ["a"]},
                {"step": 2, "segment": 0, "grad_norm": [None]},
            ]
        },
        {"probes": [{"probe": 3}, {"step": 1, "checkpoint": "x", "probe": "p", "passed": True}]},
        {"events": [{"kind": "resume", "evidence": 4, "step": 7, "segment": 0}]},
        {"steps": [{"step": 1, "segment": 0, "train/loss": 0.0}, {"step": 2, "segment": 0, "train/loss": -3.0}]},
        {"steps": [{"step": i, "segment": 0, "train/loss": None, "nonfinite": {"train/loss": "nan"}} for i in (1, 2)]},
    ],
)
def test_strange_records(two, tmp_path, capsys, broken):
    folder = record(tmp_path / "s", **({"steps": rows(losses(N)), "run": identity()} | broken))
    for words in ([two[0], str(folder)], [str(folder), two[0]], [str(folder)] * 2):
        assert main(["compare", *words]) == 0
        assert main(["compare", *words, "--json", "--html", str(tmp_path / "p.html")]) == 0
        json.loads(capsys.readouterr().out.rpartition("\n{")[2].join(["{", ""]), parse_constant=pytest.fail)


def test_the_page(two, tmp_path, capsys):
    page = tmp_path / "c.html"
    assert main(["compare", *two, two[0], "--html", str(page), "--lang", "zh"]) == 0
    html = page.read_text(encoding="utf-8")
    seen = Strict(html)
    assert '<html lang="zh">' in html and "default-src 'none'" in html and "<img" not in html
    assert not re.search(r"(?:src|href)=\"(?!#)", html) and len(seen.ids()) == len(set(seen.ids()))
    assert [one["n"] for one in data(chart(html, "eval-loss"))["series"]] == ["A", "B", "C"]
    assert "learning_rate" in html and "更好" in html


def test_a_long_comparison_takes_no_time_to_speak_of(tmp_path):
    """Two runs of 20,000 steps with 40 layers; the processor's time of this process, whatever else the machine does."""
    from llamafactory_obs.compare.compare import compare
    from llamafactory_obs.compare.runs import read_runs

    names = [f"layers.{i}" for i in range(40)]
    line = '{"step":%d,"time":1.0,"segment":0,"grad_norm":[' + ",".join(["0.0123456789"] * 40) + "]}"
    head = json.dumps({"step": 1, "time": 1.0, "segment": 0, "names": names, "modules": []}, separators=(",", ":"))
    folders = []
    for name, seed in (("a", 1), ("b", 2)):
        folder = record(tmp_path / name, steps=rows(losses(20_000, seed=seed)), run=identity())
        (folder / "obs" / "layers.jsonl").write_text("\n".join([head, *(line % i for i in range(1, 20_001)), ""]))
        folders.append(folder)
    begin = time.process_time()
    found = compare(read_runs(folders))
    assert time.process_time() - begin < 8.0  # 1 s on an idle core; reading it row by row again takes minutes
    assert found.pairs[0].curves[0].parting.rows == 20_000 and found.pairs[0].layers.rows > 50


def test_both_languages_have_the_same_texts():
    english, chinese = texts("compare", "en"), texts("compare", "zh")
    assert english.keys() == chinese.keys()
    for key, said in english.items():
        fields = [set(re.findall(r"\{(\w+)", text)) for text in (said, chinese[key])]
        assert fields[0] == fields[1], key


def test_every_text_is_used():
    """A key stands in the code whole, or its last part does where the code puts it together."""
    package = Path(sys.modules["llamafactory_obs"].__file__).parent
    source = "".join(file.read_text() for file in [*package.glob("compare/*.py"), package / "detect/parting.py"])
    built = {"verdict", "relation", "evidence", "curve", "axis", "group", "fact", "short", "word", "reason", "caveat"}
    for key in texts("compare", "en"):
        group, _, last = key.rpartition(".")
        if group in built:
            whole = (f'"{last}"', f'"{last.removeprefix("train_")}"', f'"{key}"', f'"{group}.{last}')
            assert any(one in source for one in whole), key
        else:
            assert f'"{key}"' in source, key


def test_names_are_safe_and_the_same_each_time():
    assert changed_name({"learning_rate": 2e-5, "lora_rank": 32}) == "lr2e-5_r32"
    assert changed_name({}) == ""
    hashes = {"rows": "29902594", "weights": "12345e67"}  # all of its digits are decimal: a text all the same
    assert changed_name(hashes) == "data-29902594_weights-12345e67"
    odd = {f"key_{i}": "../../etc/$(x) \n" * 9 for i in range(20)} | {"dataset": ["a b", "Ä/ö"]}
    name = changed_name(odd)
    assert name == changed_name(odd) and len(name) <= LONGEST and re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name)
    assert ".." not in name and re.search(r"_and-\d+$", name)
