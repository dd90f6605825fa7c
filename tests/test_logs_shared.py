"""The public logs: what is read against a parse that knows nothing of ours; every cut of a real file is survived."""

import ast
import csv
import json
import math
import re

import pytest
from conftest import SHARED

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.logs.read import read

LOGS = SHARED / "logs"
pytestmark = pytest.mark.shared


def labels():
    if not (LOGS / "LABELS.csv").is_file():
        return []
    with (LOGS / "LABELS.csv").open(encoding="utf-8", newline="") as table:
        return [(entry["file"], entry["verdict"]) for entry in csv.DictReader(table)]


def plain_rows(file):
    """Rows with a loss, as simply as can be."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".jsonl":
        rows = [json.loads(line) for line in text.splitlines()]
    elif file.suffix == ".json":
        rows = json.loads(text)["log_history"]
    else:
        rows = [ast.literal_eval(found) for found in re.findall(r"\{'loss'[^}]*\}", text)]
    return [row for row in rows if row.get("loss") is not None]


@pytest.mark.parametrize(("name", "verdict"), labels())
def test_a_public_log_is_read_whole_and_right(name, verdict):
    found, rows = read(LOGS / name), plain_rows(LOGS / name)
    assert (found.kind == "not_a_training_log") == (verdict == "not_a_training_log")
    assert (found.kind == "rl") == (verdict == "rl")
    if verdict == "not_a_training_log":
        assert not rows and not found.has("train/loss")
        return
    steps, losses = found.points("train/loss")
    assert len(losses) == len(rows) - len(found.overlaps)
    assert losses[-1] == rows[-1]["loss"]
    finite = [row["loss"] for row in rows if math.isfinite(row["loss"])]
    assert (min(losses), max(losses)) == (min(finite), max(finite))
    said = [row.get("step", row.get("current_steps")) for row in rows]
    if said[0] is not None and not found.breaks:
        assert steps == said
    for ours, theirs in (("train/grad_norm", ("grad_norm",)), ("train/lr", ("learning_rate", "lr"))):
        numbers = [row[key] for row in rows for key in theirs if row.get(key) is not None]
        if not found.overlaps:
            assert [str(value) for value in found.points(ours)[1]] == [str(float(value)) for value in numbers]
    assert all(len(column) == len(found) for column in found.columns.values())


def test_predict_runs_keep_their_rows():
    assert len(read(LOGS / "series" / "000.trainer_state.json")) == 102
    assert len(read(LOGS / "raw" / "001-trainer_log.jsonl")) == 50
    assert len(read(LOGS / "raw" / "002-running_log.txt")) == 0


def test_breaks_of_the_public_logs():
    """Five of the files have other starts in them; all others have none."""
    found = {name: read(LOGS / name) for name, _ in labels()}
    starts = {
        name[7:10] if name.startswith("series") else name[4:7]: [(log.steps[b.row], b.kind) for b in log.breaks]
        for name, log in found.items()
        if log.breaks
    }
    resumes = {name: [step for step, kind in places if kind == "resume"] for name, places in starts.items()}
    assert resumes == {"053": [201, 251, 276, 351, 376, 401], "073": [1251, 2001], "092": [65900], "096": []}
    assert {step for step, kind in starts["096"]} == {0}


def test_a_console_log_takes_its_steps_from_the_progress_bar():
    found = read(LOGS / "raw" / "110-ft_SQA3Devery24_traineval_native8gpu_evalsteps10-1542871.out")
    assert (list(found.steps), found.max_steps) == (list(range(10, 90, 10)), 233)
    assert found.points("eval/loss")[0] == list(range(10, 80, 10))
    assert found.points("time/elapsed_s")[1][:2] == [21 * 60 + 35, 3600 + 24 * 60 + 18]


@pytest.mark.parametrize(
    "name",
    ["raw/021-results__trainer_log.jsonl", "raw/022-results__trainer_state.json", "series/096.trainer_state.json"],
)
def test_a_real_file_that_is_cut_anywhere(tmp_path, name):
    content, whole = (LOGS / name).read_bytes(), read(LOGS / name)
    for at in range(0, len(content), 97):
        (tmp_path / "log").write_bytes(content[:at])
        try:
            found = read(tmp_path / "log")
        except ConfigError as error:
            assert "\n" not in str(error)
            continue
        if not whole.breaks:
            assert list(whole.steps)[: len(found)] == list(found.steps)
            assert whole.points("train/loss")[1][: len(found)] == found.points("train/loss")[1]
