"""Smoke runs with the real LlamaFactory, judged by their own record."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
import yaml
from rehearsal_config import config, lengths_by_hand, two_sets  # noqa: F401

from llamafactory_obs import load_record
from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.overfit.causes import causes_of_log
from llamafactory_obs.preflight.rehearsal.folder import read_marker
from llamafactory_obs.preflight.rehearsal.smoke import run_smoke

pytestmark = pytest.mark.usefixtures("llamafactory")


@pytest.fixture
def smoke(config, tmp_path):  # noqa: F811
    def run(steps=10, **overrides):
        lines = []
        return run_smoke(config(**overrides), tmp_path / "smoke", steps=steps, say=lines.append), lines

    return run


def test_the_longest_rows_fill_one_micro_batch_after_step_1(smoke, model, tmp_path, config):  # noqa: F811
    data = two_sets(tmp_path / "two")
    result, lines = smoke(
        data=data,
        dataset="rows,talks",
        per_device_train_batch_size=3,
        lr_scheduler_type="cosine",
        warmup_ratio=0.5,
        eval_dataset="rows",
        eval_strategy="steps",
        callbacks=["vram", {"name": "not.there.Callback"}],
    )
    assert result.exit_code == 0, result.last_words
    steps, longest = load_record(result.folder).steps, sorted(lengths_by_hand(model, data), reverse=True)
    assert steps["step"] == list(range(1, 11))
    assert steps["data/samples"] == [3] * 10, "one micro-batch is a step here"
    for number in (2, 10):
        assert steps["data/max_length"][number - 1] == longest[0]
        assert steps["data/tokens"][number - 1] == sum(longest[:3])
    assert steps["data/tokens"][0] < sum(longest[:3])
    assert set(steps["train/lr"]) == {1e-3}, "no warm-up"
    for event in load_record(result.folder).events:
        if event["kind"] == "memory_peak" and event["step"] in (2, 10):
            ((rows, width),) = event["evidence"]["micro_batches"]
            assert rows == 3 and width >= longest[0]
    for name in ("trainer_state.json", "optimizer.pt", "model.safetensors"):
        assert (result.folder / "checkpoint-10" / name).is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.yaml", "smoke", "two"], (
        "the real output is not made"
    )
    marker = read_marker(result.folder)
    assert marker == result.marker and marker["exit_code"] == 0
    assert marker["longest"]["length"] == longest[0] and marker["longest"]["steps"] == [2, 10]
    assert marker["callbacks_left_out"] == ["not.there.Callback"]
    assert sum(len(rows) for rows in marker["rows"].values()) == 30
    assert any("not.there.Callback" in line for line in lines) and any("evaluation" in line for line in lines)
    assert len([line for line in lines if line.startswith("step ")]) == 10
    derived = yaml.safe_load((result.folder / "smoke.yaml").read_text())
    assert derived["learning_rate"] == 1e-3 and "eval_dataset" not in derived


def test_a_foreign_folder_is_not_touched(smoke, tmp_path):
    (tmp_path / "smoke").mkdir()
    (tmp_path / "smoke" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="another folder"):
        smoke()
    assert [path.name for path in (tmp_path / "smoke").iterdir()] == ["thesis.txt"]


@pytest.mark.slow
def test_it_can_be_run_again_by_hand_and_a_failed_one_leaves_nothing_of_it(smoke, tmp_path):
    (tmp_path / "smoke").mkdir()
    result, _ = smoke(steps=3)
    assert (result.folder / "checkpoint-3").is_dir()
    again = [sys.executable, "-m", "llamafactory_obs.cli", "train", str(result.folder / "smoke.yaml")]
    done = subprocess.run([*again, f"output_dir={tmp_path / 'again'}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    one, two = load_record(result.folder), load_record(tmp_path / "again")
    assert one.steps["train/loss"] == two.steps["train/loss"]

    failed, _ = smoke(steps=3, finetuning_type="lora", lora_target="no_such_module")
    assert failed.exit_code == 1, "an answer, no exception"
    assert "no_such_module" in " ".join(failed.last_words)
    assert [cause.name for cause in causes_of_log(failed.last_words, {})] == ["lora_on_nothing"], "as `overfit` says"
    marker = read_marker(failed.folder)
    assert (marker["exit_code"], marker["last_words"]) == (1, failed.last_words)
    assert not list(failed.folder.glob("checkpoint-*")) and not (failed.folder / "model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "longest"),
    [
        ({"packing": True, "neat_packing": True}, 128),
        ({"stage": "dpo", "dataset": "pairs", "save_only_model": True, "gradient_accumulation_steps": 3}, None),
        ({"stage": "kto", "dataset": "votes", "streaming": True, "buffer_size": 8}, None),
    ],
    ids=["packing", "dpo, accumulation, save_only_model", "kto, streaming"],
)
def test_stages_and_packing(smoke, overrides, longest):
    method = "full" if longest else "lora"
    result, _ = smoke(finetuning_type=method, **overrides)
    assert result.exit_code == 0, result.last_words
    record = load_record(result.folder)
    assert record.steps["step"] == list(range(1, 11)) and (result.folder / "checkpoint-10").is_dir()
    if longest:
        assert result.marker["block"] == longest
        shapes = [e["evidence"]["micro_batches"] for e in record.events if e["kind"] == "memory_peak"]
        assert shapes and all(shape[-1] - longest in range(8) for batches in shapes for shape in batches)
    has_optimizer = (result.folder / "checkpoint-10" / "optimizer.pt").is_file()
    assert has_optimizer is not overrides.get("save_only_model", False)


@pytest.mark.slow
def test_sigterm_ends_the_training_and_leaves_no_scratch(config, tmp_path):  # noqa: F811
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    for folder in (scratch, out):
        folder.mkdir()
    (out / "adapter.bin").write_text("of the real run")
    config(per_device_train_batch_size=8, gradient_accumulation_steps=60)  # about two seconds a step
    words = ["preflight", str(tmp_path / "run.yaml"), "--gate", "smoke", "--run-smoke"]
    env = {**os.environ, "TMPDIR": str(scratch), "HF_HOME": str(scratch), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "llamafactory_obs.cli", *words]
    running = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        for line in running.stderr:
            if line.startswith("step 1/10"):
                break
        family = psutil.Process(running.pid).children(recursive=True)
        assert family and running.poll() is None
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=60) == 143
    finally:
        running.kill()
    assert not [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    marker = read_marker(tmp_path / "out-smoke")
    assert marker["interrupted"] is True and marker["exit_code"] is None
    assert not list(scratch.iterdir())
    assert [path.name for path in out.rglob("*")] == ["adapter.bin"]


@pytest.mark.slow
def test_two_processes_each_get_the_longest(smoke, monkeypatch, model, tmp_path):
    monkeypatch.setenv("FORCE_TORCHRUN", "1")
    monkeypatch.setenv("NPROC_PER_NODE", "2")
    data = two_sets(tmp_path / "two")
    result, _ = smoke(data=data, dataset="rows,talks", per_device_train_batch_size=2)
    assert result.exit_code == 0, result.last_words
    steps, longest = load_record(result.folder).steps, sorted(lengths_by_hand(model, data), reverse=True)
    assert result.marker["batch"]["processes"] == 2
    assert steps["data/samples"] == [4] * 10
    assert steps["data/tokens"][1] == steps["data/tokens"][9] == sum(longest[:4])
