"""Every labelled public log: the verdict of `diagnose`, and that nothing is read as something it is not."""

import csv

import pytest
from conftest import SHARED

from llamafactory_obs.diagnosis.judge import judge
from llamafactory_obs.logs.read import read

LOGS = SHARED / "logs"


def labels() -> list[dict]:
    table = LOGS / "LABELS.csv"
    if not table.is_file():
        return []
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.shared
@pytest.mark.parametrize("entry", labels() or [None], ids=lambda e: e["file"].split("/")[-1][:20] if e else "none")
def test_the_verdict_is_the_label(entry):
    said = judge(read(LOGS / entry["file"]))
    assert said.verdict == entry["verdict"], [(f.name, f.evidence.get("since"), f.text) for f in said.findings]
    dying = {"nan", "zero_loss", "diverged", "flat"} if "eval_loss only" not in entry["label"] else set()
    assert said.action == {"not_a_training_log": "none"}.get(said.verdict, "kill" if said.verdict in dying else "keep")


@pytest.mark.shared
def test_where_it_happens():
    """The step of the label, for those whose step is one."""
    wanted = {
        "series/075.trainer_state.json": ("diverged", 420, 10),
        "series/062.trainer_state.json": ("overfit", 1000, 0),
        "series/045.trainer_state.json": ("overfit", 200, 0),
        "raw/064-trainer_state.json": ("overfit", 1000, 0),
        "raw/011-trainer_log.jsonl": ("overfit", 4500, 0),
        "series/059.trainer_state.json": ("nan", 5475, 0),
        "series/047.trainer_state.json": ("zero_loss", 20, 0),
        "series/073.trainer_state.json": ("resume_gap", 2001, 0),
        "series/053.trainer_state.json": ("resume_gap", 201, 0),
        "raw/012-eckpoint_CCKS_ChatGLMv2_lora_epoch50_1e-4__trainer_log.jsonl": ("throughput_drop", 23070, 30),
    }
    for file, (name, step, slack) in wanted.items():
        said = judge(read(LOGS / file))
        places = [f.evidence["since"] for f in said.findings if f.name == name]
        assert any(abs(place - step) <= slack for place in places), (file, places)
