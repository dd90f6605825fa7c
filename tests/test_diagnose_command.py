"""The verb `diagnose`: what it prints for people and programs, exit codes, pages, the next config."""

import json
import subprocess
import sys

import pytest
import yaml
from diagnose_curves import curves, falling

from llamafactory_obs.cli import main
from llamafactory_obs.diagnosis.judge import judge
from llamafactory_obs.diagnosis.write_config import next_config, run_name
from llamafactory_obs.errors import ConfigError

DIVERGED = falling(120) + [4.0] * 40
FINDING = {"name", "step", "until", "confidence", "evidence", "limits", "suggest", "action", "text", "level", "causes"}


def log(folder, losses, name="trainer_log.jsonl"):
    folder.mkdir(exist_ok=True)
    total = len(losses)
    rows = [
        {"current_steps": i, "total_steps": total, "loss": round(v, 4), "lr": 1e-4, "epoch": i / total}
        for i, v in enumerate(losses, 1)
    ]
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_json_is_one_object_with_the_contract_s_keys(tmp_path, capsys):
    assert main(["diagnose", "--json", str(log(tmp_path / "bad", DIVERGED))]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["source"], said["kind"], said["steps"]) == ("trainer_log", "sft", 160)
    assert said["verdict"] in ("spike", "diverged") and said["action"] == "kill"
    assert said.keys() >= {"path", "headline", "unseen", "notes", "findings"}
    assert said["findings"][0].keys() == FINDING
    json.dumps(said, allow_nan=False)


def test_a_healthy_run_is_0_and_several_paths_are_runs(tmp_path, capsys):
    good, bad = log(tmp_path / "good", falling(120)), log(tmp_path / "bad", DIVERGED)
    assert main(["diagnose", str(good)]) == 0
    assert capsys.readouterr().out.startswith("KEEP  healthy")
    assert main(["diagnose", "--json", str(good), str(bad)]) == 1
    assert [run["action"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["keep", "kill"]


def test_bad_input_is_2_and_one_line_also_beside_a_good_run(tmp_path, capsys):
    assert main(["diagnose", str(tmp_path / "nothing")]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and len(shown.err.strip().splitlines()) == 1 and "nothing" in shown.err
    assert main(["diagnose", "--json", str(tmp_path / "nothing"), str(log(tmp_path / "good", falling(60)))]) == 2
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert "error" in runs[0] and runs[1]["verdict"] == "healthy"


def test_a_predict_log_is_2_with_its_json(tmp_path, capsys):
    rows = [
        {"current_steps": i, "total_steps": 50, "percentage": 2.0 * i, "elapsed_time": "0:00:01"} for i in range(1, 51)
    ]
    (tmp_path / "trainer_log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["diagnose", "--json", str(tmp_path)]) == 2
    assert json.loads(capsys.readouterr().out)["verdict"] == "not_a_training_log"


def test_the_terminal_says_verdict_evidence_remedy_and_what_is_not_seen_in_80_columns(tmp_path, capsys):
    main(["diagnose", str(log(tmp_path / "bad", DIVERGED))])
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0].startswith("KILL") and max(map(len, lines)) <= 80
    for part in ("evidence:", "learning_rate:", "Not in this log:", "no evaluation", "^"):
        assert part in shown


def test_the_page_is_written(tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["diagnose", str(log(tmp_path / "bad", DIVERGED)), "--html", str(page)]) == 1
    assert "<html" in page.read_text(encoding="utf-8") and str(page) in capsys.readouterr().err


def test_words_that_do_not_go_together(tmp_path, capsys):
    for words in (["a", "b", "--html", "x"], ["a", "--from", "run.yaml"]):
        assert main(["diagnose", *words]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


CONFIG = """\
# my run
model_name_or_path: Qwen/Qwen3-4B
finetuning_type: lora
stage: sft
learning_rate: 1.0e-4  # as always
output_dir: saves/old
callbacks:
  - vram
  - layer_norms: {every: 10}
"""


def test_the_next_config_keeps_the_file_and_says_why(tmp_path, capsys):
    run, next_config = tmp_path / "run.yaml", tmp_path / "next.yaml"
    run.write_text(CONFIG)
    words = ["diagnose", str(log(tmp_path / "bad", DIVERGED)), "--write-config", str(next_config), "--from", str(run)]
    assert main(words) == 1
    text = next_config.read_text()
    made = yaml.safe_load(text)
    assert made["learning_rate"] == 5e-5 and isinstance(made["learning_rate"], float)
    assert made["run_name"] == "qwen3-4b-lora-lr5e-5" and made["output_dir"] == "saves/qwen3-4b-lora-lr5e-5"
    assert made["callbacks"] == ["vram", {"layer_norms": {"every": 10}}] and "# my run" in text
    line = next(line for line in text.splitlines() if line.startswith("learning_rate"))
    assert "was 0.0001" in line and "at step 121" in line
    assert main(words) == 2 and next_config.read_text() == text
    assert "not overwritten" in capsys.readouterr().err


def test_the_record_s_own_config_is_used_without_its_secrets():
    bad = curves(DIVERGED, lr=[1e-4] * 160, settings={"learning_rate": 1e-4})
    given = yaml.safe_load(CONFIG) | {"hf_hub_token": "***", "resume_from_checkpoint": "saves/old/checkpoint-100"}
    bad.run = {"config": {"given": given}}
    made = yaml.safe_load(next_config(bad, judge(bad)))
    assert made["learning_rate"] == 5e-5 and "hf_hub_token" not in made and made["resume_from_checkpoint"] is None


def test_nothing_to_change_is_said():
    with pytest.raises(ConfigError, match="suggests no key"):
        good = curves(falling(100))
        good.run = {"config": {"given": {"learning_rate": 1e-4}}}
        next_config(good, judge(good))


def test_the_name_holds_the_changed_values_once():
    given = {"run_name": "a-lora-lr1e-4", "model_name_or_path": "x"}
    assert run_name(given, {"learning_rate": 5e-5}) == "a-lora-lr5e-5"
    assert run_name({"model_name_or_path": "org/M"}, {"gradient_accumulation_steps": 16, "bf16": True}) == "m-ga16-bf16"


def test_it_starts_without_heavy_imports():
    code = (
        "import sys; from llamafactory_obs.cli import main; main(['diagnose', '--help']);"
        "sys.exit(bool({'torch', 'numpy', 'yaml', 'rich'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
