"""On a Chinese machine the record and what is kept for programs stay English; what a person sees is Chinese."""

import contextlib
import io
import json
import re
import shutil
import threading

import pytest
import yaml
from tiny import tiny_config
from transformers import TrainerCallback

from llamafactory_obs import cli
from llamafactory_obs.callbacks.aside import Aside
from llamafactory_obs.drill import markdown
from llamafactory_obs.record.gates import gates_file
from llamafactory_obs.texts import language, remembering, speaking, text

CHINESE = re.compile("[\u3000-\u9fff\uff00-\uffef]|\\\\u[3-9f][0-9a-f]{3}")
LORA = {"finetuning_type": "lora", "lora_target": "all", "save_steps": 2}
CALLBACKS = ["checkpoint_guard", "diagnose", "grad_norm_spike", "label_mask", "layer_norms", "optimizer", "quality"]
CALLBACKS += ["samples", "throughput", "vram", "system", "ranks"]


@pytest.fixture(autouse=True)
def chinese(monkeypatch):
    monkeypatch.delenv("LLAMAFACTORY_OBS_LANG")
    for name, value in {"LC_ALL": "", "LC_MESSAGES": "", "LANG": "zh_CN.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    assert language() == "zh"


def written(folder) -> dict[str, str]:
    """Every text file in a folder but weights and what the tokenizer brings."""
    return {str(file.relative_to(folder)): file.read_text(encoding="utf-8") for file in folder.rglob("*.json*")}


class Breaks(TrainerCallback):
    """Damages checkpoint-4 after its save, and makes one step's learning rate absurd."""

    def on_save(self, args, state, control, **kwargs):
        if state.global_step == 4:
            for file in shutil.os.scandir(f"{args.output_dir}/checkpoint-4"):
                if file.name.endswith(".safetensors"):
                    with open(file.path, "r+b") as weights:
                        weights.truncate(100)


@pytest.fixture
def run(train, capsys):
    """A run with alerts, a damaged checkpoint, and a resume from one that lost its optimizer; what was printed."""
    out = train(callbacks=CALLBACKS, extra_callbacks=[Breaks()], max_steps=6, learning_rate=5e-1, **LORA)
    shutil.rmtree(out / "checkpoint-4", ignore_errors=True)
    (out / "checkpoint-6" / "optimizer.pt").unlink()
    again = {**LORA, "overwrite_output_dir": False, "resume_from_checkpoint": str(out / "checkpoint-6")}
    train(out, callbacks=CALLBACKS, max_steps=10, learning_rate=5e-1, **again)
    return out, capsys.readouterr().out


def test_nothing_in_the_record_is_chinese(run):
    out, _ = run
    files = written(out / "obs")
    assert {"run.json", "steps.jsonl", "events.jsonl", "checkpoints.jsonl"} <= files.keys()
    assert {name: found[0] for name, said in files.items() if (found := CHINESE.search(said))} == {}
    events = [json.loads(line) for line in files["events.jsonl"].splitlines()]
    kinds = {row["kind"] for row in events}
    assert {"start", "resume", "end", "alert", "diagnosis", "checkpoint"} <= kinds, kinds
    lost = next(row for row in events if row["kind"] == "resume")
    assert "not restored: optimizer (" in lost["text"] and lost["evidence"]["not_restored"]
    assert "checkpoint_broken" in {row["title"] for row in events}


def test_what_the_terminal_says_of_it_is_chinese(run):
    said = [line for line in run[1].splitlines() if "|obs]" in line]
    for words in (
        "训练开始：共 6 步",
        "从第 6 步恢复训练。没有恢复：优化器",
        "训练结束：走了 10 步",
        "checkpoint-4 损坏",
    ):
        assert any(words in line for line in said), (words, said)


def test_what_preflight_keeps_is_english(llamafactory, model, data, tmp_path):
    given = tiny_config(model, data, tmp_path / "out", save_strategy="no", logging_steps=100)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(given))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main(["preflight", str(tmp_path / "run.yaml"), "--all"]) == 1
    assert "还不能开始" in out.getvalue() and "词元" in out.getvalue()
    kept = gates_file(tmp_path / "out").read_text()
    assert not (found := CHINESE.search(kept)), kept[found.start() - 200 : found.start() + 200]
    ours = {gate["name"]: gate for gate in json.loads(kept)["gates"]}
    with contextlib.redirect_stdout(out := io.StringIO()):
        cli.main(["preflight", str(tmp_path / "run.yaml"), "--json"])
    assert not CHINESE.search(out.getvalue()) and not CHINESE.search(gates_file(tmp_path / "out").read_text())
    for gate in json.loads(out.getvalue())["gates"]:
        assert ours[gate["name"]]["fix"] == gate["fix"]
        assert [one["detail"] for one in ours[gate["name"]]["checks"]] == [one["detail"] for one in gate["checks"]]


def test_the_data_of_a_drill_is_english(tmp_path):
    from test_drill_incident_parts import outcome

    from llamafactory_obs.drill.incident import report
    from llamafactory_obs.drill.incident.incidents import INCIDENTS
    from llamafactory_obs.drill.incident.outcome import WRONG

    found = outcome(tmp_path, **dict.fromkeys(INCIDENTS, WRONG))
    found.notes = [("note.added", {"names": "vram"})]
    report.write(found)
    assert CHINESE.search((tmp_path / markdown.REPORT).read_text())
    assert not CHINESE.search((tmp_path / markdown.DATA).read_text())


# ---- what it stands on ---------------------------------------------------------------------------------------------


def test_english_is_made_of_what_was_said():
    with remembering() as english:
        inner = text("mask.gate.no_data_set")
        whole = text("mask.gate.not_judged", error=inner)
        said = f"{whole}; {text('preflight.comma').join([inner, 'a'])}"
    assert CHINESE.search(said) and not CHINESE.search(english(said))
    en = {key: text(f"mask.gate.{key}", "en", **about) for key, about in (("no_data_set", {}),)}
    judged = text("mask.gate.not_judged", "en", error=en["no_data_set"])
    assert english(said) == f"{judged}; {en['no_data_set']}{text('preflight.comma', 'en')}a"
    assert english("别的") == "别的" and english("plain") == "plain"


def test_work_beside_the_training_speaks_english_and_may_speak_to_people():
    aside, heard = Aside("test"), []
    try:
        aside.submit(lambda: heard.append(language()))
        assert aside.wait(60)
    finally:
        aside.close()
    with speaking("en"):
        with speaking(None):
            heard.append(language())
        heard.append(language())
    thread = threading.Thread(target=lambda: heard.append(language()))
    with speaking("en"):
        thread.start(), thread.join()
    assert heard == ["en", "zh", "en", "zh"], "a thread begins with the language of the process"
