"""Findings in Chinese, from the name and the evidence that the record holds; JSON and the record stay English."""

import ast
import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import llamafactory_obs
from llamafactory_obs.cli import main
from llamafactory_obs.detect import (
    BandDetector,
    ClipRateDetector,
    DesyncDetector,
    EvalTurnDetector,
    Finding,
    GrowthDetector,
    LossSpikeDetector,
    LrScheduleDetector,
    MomentsDetector,
    MovedLabelsDetector,
    NonFiniteDetector,
    NormaliserDetector,
    OverfittingDetector,
    SpikeDetector,
    StalledDetector,
    ThrottledDetector,
    ThroughputDropDetector,
    ZeroLossDetector,
)
from llamafactory_obs.detect.endings import ENDINGS, LASTING, MOMENTS
from llamafactory_obs.diagnosis.result import VERDICTS
from llamafactory_obs.texts import texts
from llamafactory_obs.texts.findings import names, title, told
from llamafactory_obs.texts.wrap import cells

HERE = Path(llamafactory_obs.__file__).parent
SHARED = Path(__file__).parent.parent.parent / "shared" / "logs"
CHINESE = re.compile("[\u3400-\u9fff]")
#: verdicts that are no finding
NO_FINDING = {"healthy", "rl", "not_a_training_log"}


def in_chinese(finding: Finding) -> str:
    return told(finding.name, finding.step, finding.text, finding.evidence, finding.until, "zh")


def test_every_finding_has_a_name_in_chinese():
    known = {*LASTING, *MOMENTS, *ENDINGS, *VERDICTS} - NO_FINDING
    assert [name for name in sorted(known) if not re.search("[\u3400-\u9fff]|NaN", title(name, "zh"))] == []
    assert title("grad_norm_spike", "en") == "grad norm spike"
    assert title("my own finding", "zh") == "my own finding"


def test_every_cause_has_a_name_in_both_languages():
    named = set()
    for file in (HERE / "diagnosis" / "causes").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Case":
                named |= {arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)}
    assert len(named) > 20
    for lang in ("en", "zh"):
        assert {f"title.{name}" for name in named} <= texts("causes", lang).keys()


def synthetic() -> list[Finding]:
    """Findings of detectors that no log of the labelled set sets off."""
    found: list = []
    band, moved, desync = BandDetector(), MovedLabelsDetector(), DesyncDetector()
    throttled, slow, stalled = ThrottledDetector(), ThroughputDropDetector(), StalledDetector()
    spike, nonfinite, zero, loss = SpikeDetector(), NonFiniteDetector(), ZeroLossDetector(), LossSpikeDetector()
    over, turn, clip = OverfittingDetector(), EvalTurnDetector(), ClipRateDetector()
    rate = LrScheduleDetector()
    for step in range(1, 400):
        bad = 150 <= step < 250
        found += [band.update(step, 90 if bad else 30, 100), moved.update(step, 5.0 if bad else 0.0)]
        found += desync.update(step, {"train/lr": [1e-4, 2e-4 if bad else 1e-4]})
        found += [throttled.update(step, 2.0, 0.9 if bad else 0.0, 88.0), slow.update(step, 4.0 if bad else 1.0)]
        found += [stalled.update(step, 0.0 if bad else 1.0), zero.update(step, 0.0 if bad else 2.0, 0.0)]
        found += [spike.update(step, 60.0 if bad else 1.0 + 0.01 * (step % 7), 2.0)]
        found += [loss.update(step, 9.0 if bad else 2.0 + 0.01 * (step % 5)), clip.update(step, 0.5, 1.0)]
        found += [nonfinite.update(step, float("nan") if bad else 1.0, 2.0, False, None)]
        found += [rate.update(step, 1e-4 if step < 200 else 5e-5)]
        if step % 20 == 0:
            evaluation = 2.0 + abs(step - 100) / 100
            found += [over.update(step, evaluation, 2.0 - step / 400), turn.update(step, evaluation, 2.0 - step / 400)]
    found += MomentsDetector().update(7, 3.0, 0.0)
    found += [NormaliserDetector(version="5.6.0").update(3, [7.0, 9.0])]
    growth = GrowthDetector(20.0)
    found += [growth.update(step, 1.0 + step * 0.01) for step in range(3000)]
    return [finding for finding in found if finding is not None]


def test_findings_of_detectors_read_in_chinese():
    found = synthetic()
    kinds = {finding.name for finding in found}
    assert {"supervised_ratio_high", "supervised_ratio_back", "labels_moved", "desync", "desync_over"} <= kinds
    assert {"gpu_throttled", "throughput_drop", "stalled", "zero_loss", "spike", "nan", "finite_again"} <= kinds
    for finding in found:
        said = in_chinese(finding)
        assert said != finding.text and CHINESE.search(said), finding
        assert "{" not in said and "None" not in said, said
        assert told(finding.name, finding.step, finding.text, finding.evidence, finding.until, "en") == finding.text


def test_what_has_no_words_or_no_evidence_is_said_in_english():
    assert told("my finding", 3, "As it is.", {}, lang="zh") == "As it is."
    assert told("labels_moved", 3, "As it is.", {}, lang="zh") == "As it is.", "the number is missing"
    assert "nan" in told("stalled", 3, "", {"since": 2, "norm": "nan", "steps_in_a_row": 5}, lang="zh")
    assert names("{a:.3g} of {b[0]} {c.d!r}") == {"a", "b", "c"}


def test_the_checkpoint_and_the_cause_are_told_too():
    evidence = {"since": 9, "peak": 8.0, "usual": 2.0, "ratio": 4.0, "checkpoint": "checkpoint-8"}
    evidence |= {"causes": [{"name": "lr_too_high", "score": 0.7}]}
    said = told("spike", 12, "The loss is up.", evidence, lang="zh")
    assert "checkpoint-8" in said and "学习率过高" in said
    assert "第 9 步" in said and "4 倍" in said


def test_what_the_live_diagnosis_says():
    found = {"name": "stalled", "step": 9, "text": "Learning stands still.", "until": None}
    found |= {"evidence": {"since": 5, "norm": 0.0, "steps_in_a_row": 5}, "causes": [{"name": "labels"}]}
    said = told("verdict", 9, "stalled: ...", {"verdict": "stalled", "findings": [found]}, lang="zh")
    assert said.startswith("学习停滞：从第 5 步起") and "标签有误" in said
    assert told("verdict", 9, "healthy: ...", {"verdict": "healthy", "findings": []}, lang="zh") == "健康。"
    assert told("verdict", 9, "3 of 3 right", {"passed": {}}, lang="zh") == "3 of 3 right", "a probe's verdict"
    assert told("causes", 9, "", {"finding": "spike", "causes": [{"name": "special_batch"}]}, lang="zh") == (
        "尖峰：可能原因：特殊的批。"
    )


@pytest.mark.shared
def test_every_finding_in_the_labelled_logs_reads_in_chinese():
    from llamafactory_obs.diagnosis.judge import judge
    from llamafactory_obs.logs.read import read

    seen: dict[str, int] = {}
    for file in sorted((SHARED / "series").iterdir())[::3] + sorted((SHARED / "raw").iterdir())[::6]:
        diagnosis = judge(read(file))
        for finding in diagnosis.findings:
            seen[finding.name] = seen.get(finding.name, 0) + 1
            said = in_chinese(finding)
            assert CHINESE.search(said) and "{" not in said, (file.name, finding.name, finding.evidence)
    assert len(seen) >= 8, seen


# ---- the verb ------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path) -> Path:
    """A loss that rises and does not come back."""
    rows = [
        {"step": n, "loss": 2.0 + 0.01 * (n % 7) if n < 60 else 9.0, "grad_norm": 1.0, "learning_rate": 1e-4}
        for n in range(1, 121)
    ]
    file = tmp_path / "trainer_state.json"
    file.write_text(json.dumps({"log_history": rows, "global_step": 120, "max_steps": 200}))
    return file


def run(monkeypatch, *words: str, lang: str = "zh") -> tuple[int, str]:
    monkeypatch.setenv("LLAMAFACTORY_OBS_LANG", lang)
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(list(words))
    return code, out.getvalue()


def test_diagnose_in_chinese_fits_the_terminal(monkeypatch, log):
    code, shown = run(monkeypatch, "diagnose", str(log))
    assert code == 1 and shown.startswith("停止")
    assert "学习率减半" in shown and "日志里没有的" in shown
    for line in shown.splitlines():
        assert cells(line) <= 80 or str(log) in line, line
        assert not re.search(r"[a-z]{3,} [a-z]{3,} [a-z]{3,}", line) or "依据" in line, line


def test_json_is_the_same_in_any_language(monkeypatch, log):
    chinese, english = (
        run(monkeypatch, "diagnose", str(log), "--json"),
        run(monkeypatch, "diagnose", str(log), "--json", lang="en"),
    )
    assert chinese == english and not CHINESE.search(chinese[1])
    assert json.loads(chinese[1])["findings"][0]["causes"]


def test_a_terminal_without_chinese_characters_gets_english(log):
    environment = os.environ | {"LLAMAFACTORY_OBS_LANG": "zh", "PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    command = [sys.executable, "-m", "llamafactory_obs.cli", "diagnose", str(log)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.startswith("KILL"), done.stderr
    done = subprocess.run(command, env=environment | {"PYTHONIOENCODING": "gbk"}, capture_output=True)
    assert done.stdout.decode("gbk").startswith("停止")
