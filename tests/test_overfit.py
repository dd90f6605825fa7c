"""The single-batch test with the real LlamaFactory."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import interrupted
import psutil
import pytest
from mask_config import CHAT
from rehearsal_config import config  # noqa: F401

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.overfit.single_batch import single_batch

pytestmark = pytest.mark.usefixtures("llamafactory")


@pytest.fixture
def overfit(config):  # noqa: F811
    def run(steps=60, wanted=(), rate=None, take_longest=False, **overrides):
        return single_batch(
            config(**overrides), steps=steps, wanted=wanted, rate=rate, take_longest=take_longest, say=lambda line: None
        )

    return run


def files(*folders: Path) -> set[str]:
    return {str(path) for folder in folders for path in folder.rglob("*")}


@pytest.mark.slow
def test_a_sound_run_learns_and_leaves_nothing(config, tmp_path, monkeypatch):  # noqa: F811
    scratch, cwd, home = (tmp_path / name for name in ("scratch", "cwd", "home"))
    for folder in (scratch, cwd, home):
        folder.mkdir()
    config(learning_rate=1e-2, weight_decay=0.1, gradient_accumulation_steps=4, lr_scheduler_type="cosine")
    before = files(tmp_path)
    env = {**os.environ, "TMPDIR": str(scratch), "HF_HOME": str(home), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "llamafactory_obs.cli", "overfit", str(tmp_path / "run.yaml"), "--json"]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["learned"] is True and found["last_loss"] < found["first_loss"] / 10
    assert found["losses"][-2] >= found["target"], "it stops as soon as it is there"
    assert len(found["batch"]) == 2 and found["learning_rate"] == 1e-2 and found["causes"] == []
    assert "step 1/500  loss" in done.stderr
    assert files(tmp_path) == before


def test_no_label_anywhere_needs_no_training(write_masked):
    outcome = single_batch(write_masked, steps=5, say=lambda line: None)
    assert (outcome.exit_code, outcome.causes[0].name, outcome.losses) == (1, "labels_masked", [])


@pytest.fixture
def write_masked(config, tmp_path):  # noqa: F811
    """The prompt takes the whole room, so that no answer keeps a token."""
    folder = tmp_path / "masked"
    folder.mkdir()
    turns = [{"from": "human", "value": "alpha " * 2000}, {"from": "gpt", "value": "alpha " * 15}]
    (folder / "talks.json").write_text(json.dumps([{"conversations": turns}] * 4))
    entry = {"file_name": "talks.json", "formatting": CHAT["formatting"], "columns": {"messages": "conversations"}}
    (folder / "dataset_info.json").write_text(json.dumps({"talks": entry}))
    return config(data=folder, dataset="talks", cutoff_len=20)


def test_rows_are_named_or_refused(overfit):
    for wanted, word in ((("99",), "no such row"), (("x",), "row number"), (("1", "2", "3"), "holds 2")):
        with pytest.raises(ConfigError, match=word):
            overfit(wanted=wanted)
    with pytest.raises(ConfigError, match="no data set 'other'"):
        overfit(wanted=("other:1",))


@pytest.fixture
def loud_model(model, tmp_path):
    """The random model's frozen output layer (std 0.02) can hardly say anything; with LoRA only this one can learn."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loud = AutoModelForCausalLM.from_pretrained(model)
    loud.model.embed_tokens.weight.data.mul_(25)
    for part in (loud, AutoTokenizer.from_pretrained(model)):
        part.save_pretrained(tmp_path / "loud")
    return str(tmp_path / "loud")


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        {"stage": "pt", "dataset": "text"},
        {"stage": "dpo", "dataset": "pairs", "finetuning_type": "lora"},
        {
            "finetuning_type": "lora",
            "lora_rank": 8,
            "lora_target": "all",
            "lora_dropout": 0.5,
            "packing": True,
            "neat_packing": True,
            "dataloader_num_workers": 2,
            "wanted": ("7",),
        },
    ],
    ids=["pt", "dpo", "lora, dropout, packing, workers, a named row"],
)
def test_every_way_of_training_learns(overfit, loud_model, overrides):
    if overrides.get("finetuning_type") == "lora":
        overrides = {**overrides, "model_name_or_path": loud_model}
    outcome = overfit(steps=300, rate=1e-2, **overrides)
    assert outcome.status == "learned", (outcome.losses[::20], outcome.last_words)
    if "wanted" in overrides:
        assert [row["row"] for row in outcome.batch] == [7, 7]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "causes"),
    [
        ({"finetuning_type": "lora", "rate": 1e-12}, ["learning_rate"]),
        (
            {
                "finetuning_type": "freeze",
                "freeze_trainable_layers": 1,
                "freeze_trainable_modules": "input_layernorm",
                "rate": 1e-4,
                "steps": 20,
            },
            ["frozen"],
        ),
    ],
    ids=["rate", "frozen"],
)
def test_what_cannot_learn_says_why(overfit, overrides, causes):
    outcome = overfit(**{"steps": 40, **overrides})
    assert outcome.exit_code == 1
    found = [cause.name for cause in outcome.causes]
    assert found == causes, (outcome.causes, outcome.losses[::10], outcome.last_words)


@pytest.mark.slow
def test_ctrl_c_ends_the_training_and_leaves_nothing(config, tmp_path):  # noqa: F811
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    config(learning_rate=1e-9)
    before = files(tmp_path)
    command = [sys.executable, "-m", "llamafactory_obs.cli", "overfit", str(tmp_path / "run.yaml"), "--steps", "100000"]
    env = {**os.environ, "TMPDIR": str(scratch), "HF_HOME": str(scratch), "OMP_NUM_THREADS": "1"}
    running = interrupted.start(command, env=env, cwd=tmp_path)
    try:
        for line in running.stderr:
            if line.startswith("step "):
                break
        family = psutil.Process(running.pid).children(recursive=True)
        assert family
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 130
    finally:
        running.terminate()
    until = time.monotonic() + 20
    while any(map(interrupted.lives, family)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not list(filter(interrupted.lives, family))
    assert files(tmp_path) == before
