"""The sheet of a real SmolLM2 run against measurements by other means: the process as the system saw it, the Trainer's
own summary, the tracker's file."""

import os
import subprocess
import sys
import time
from statistics import fmean

import pytest
import yaml
from conftest import ROOT

from llamafactory_obs import load_record
from llamafactory_obs.summary import summarize

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def measured(smollm2, tmp_path_factory):
    """Output folder, wall seconds and peak memory (GiB) of the process, as `/usr/bin/time -v` has them."""
    folder = tmp_path_factory.mktemp("real")
    config = {
        "model_name_or_path": str(smollm2),
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "lora",
        "lora_rank": 8,
        "lora_target": "q_proj,v_proj",
        "dataset": "orders",
        "eval_dataset": "orders_heldout",
        "dataset_dir": str(ROOT / "demo" / "data"),
        "max_samples": 6,
        "template": "smollm2",
        "cutoff_len": 96,
        "output_dir": str(folder / "run"),
        "logging_steps": 1,
        "save_steps": 6,
        "max_steps": 12,
        "eval_strategy": "steps",
        "eval_steps": 6,
        "per_device_train_batch_size": 1,
        "per_device_eval_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-3,
        "report_to": "tensorboard",
        "logging_dir": str(folder / "tensorboard"),
        "include_num_input_tokens_seen": "non_padding",
        "disable_tqdm": True,
        "seed": 42,
        "callbacks": ["label_mask", "throughput", "vram", "checkpoint_guard", "quality"],
        "obs": {"price": {"per_hour": 3600, "currency": "CNY"}},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "llamafactory_obs.cli", "train", str(folder / "run.yaml")]
    env = os.environ | {"LLAMAFACTORY_VERBOSITY": "ERROR"}
    began = time.monotonic()
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=env)
        _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (folder / "log").read_text()[-2000:]
    return folder / "run", wall, usage.ru_maxrss / 2**20


def tensorboard(folder) -> dict[str, list[tuple[int, float]]]:
    """Every scalar of the tracker's own files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict = {}
    for place in {file.parent for file in folder.rglob("events.out.tfevents.*")}:
        events = EventAccumulator(str(place), size_guidance={"scalars": 0}).Reload()
        for tag in events.Tags()["scalars"]:
            found.setdefault(tag, []).extend((one.step, one.value) for one in events.Scalars(tag))
    return found


def test_the_sheet_agrees_with_what_others_measured(measured):
    folder, wall, peak = measured
    found = summarize(folder)
    (session,) = found.sessions
    assert (found.steps, found.planned_steps, session.ended) == (12, 12, "finished")
    # the process, as the system saw it: only saving the last weights and ending stand outside
    assert 0.8 * wall - 15 < found.wall_s < wall
    assert session.after_s > 0, "LlamaFactory evaluates once more after training"
    assert found.cost == pytest.approx(found.wall_s), "3600 an hour is 1 a second"
    assert 0.3 * peak < found.memory.rss_gib <= peak * 1.001
    # the Trainer's own summary
    said = found.results
    assert found.train_s == pytest.approx(said["train_runtime"], rel=0.1, abs=2)
    losses = load_record(folder).steps["train/loss"]
    assert fmean(losses) == pytest.approx(said["train_loss"], rel=1e-3)
    assert said["train_steps_per_second"] == pytest.approx(12 / found.train_s, rel=0.1, abs=2e-3)
    assert found.data.tokens == said["num_input_tokens_seen"]
    assert found.epoch == pytest.approx(said["epoch"], rel=1e-6)
    # the tracker's files
    scalars = tensorboard(folder.parent)
    evaluations = dict(scalars["eval/loss"])
    assert sorted(evaluations) == [6, 12] and found.evaluations.count == 2
    assert found.evaluations.best[2] == pytest.approx(min(evaluations.values()), rel=1e-5)
    last = scalars["train/train_runtime"][-1][1]
    assert last == pytest.approx(said["train_runtime"], rel=1e-4)
    # the disk
    on_disk = {one.step: one.bytes for one in found.checkpoints if one.on_disk}
    assert on_disk == {
        step: sum(file.stat().st_size for file in (folder / f"checkpoint-{step}").rglob("*") if file.is_file())
        for step in (6, 12)
    }
    assert all(one.verdict == "resumes exactly" for one in found.checkpoints)


def test_its_time_is_the_processes_and_not_only_the_trainings(measured):
    folder, wall, _ = measured
    (session,) = summarize(folder).sessions
    assert session.load_s > 1, "LlamaFactory and the model were loaded before the first step"
    assert session.load_s + session.train_s + session.after_s <= wall
