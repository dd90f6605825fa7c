"""The whole command in a process of its own: two training processes, Ctrl-C, a real model."""

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
import yaml
from conftest import ROOT
from tiny import tiny_config

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("llamafactory")]


def command(tmp_path: Path, given: dict, *words: str) -> list[str]:
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(given))
    return [sys.executable, "-m", "llamafactory_obs.cli", "drill", "resume", str(tmp_path / "run.yaml"), *words]


def environment(tmp_path: Path, **more) -> dict:
    (tmp_path / "scratch").mkdir(exist_ok=True)
    return {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path / "scratch"), **more}


def test_two_processes_are_killed_and_their_resume_is_judged(model, data, tmp_path):
    """Between CPU processes the device is `cpu:0`; transformers 5.6.0 gives that to `torch.load`, which does not know
    it (torch 2.14): no such run can be resumed there, and the drill says so. With a card `cuda:0` is known.
    """
    given = tiny_config(
        model, data, tmp_path / "out", finetuning_type="lora", lora_rank=4, lora_target="all", lora_dropout=0.2,
        lr_scheduler_type="cosine",
    )  # fmt: skip
    words = command(tmp_path, given, "--steps", "3", "--extra", "2", "--json")
    env = environment(tmp_path, FORCE_TORCHRUN="1", NPROC_PER_NODE="2")
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=1500, check=False)
    found = json.loads(done.stdout)
    assert found["ranks"] == 2 and "killed with SIGKILL after step 4; checkpoint-3 is whole" in done.stderr
    assert done.returncode == 1 and found["verdict"] == "does not continue" and found["failed"] == "resumed"
    assert any("data location" in line and "cpu:0" in line for line in found["last_words"]), found["last_words"]
    left = {one.name for one in Path(found["folder"]).iterdir()}
    names = ("unbroken", "broken", "resumed")
    assert left == {"report.md", "report.json", *(f"{n}.yaml" for n in names), *(f"{n}.log" for n in names)}
    assert not (tmp_path / "out").exists() and not list((tmp_path / "scratch").iterdir())


def test_ctrl_c_leaves_no_process_and_no_folder(model, data, tmp_path):
    words = command(tmp_path, tiny_config(model, data, tmp_path / "out"), "--steps", "50000", "--extra", "9")
    env = environment(tmp_path)
    running = interrupted.start(words, env=env, cwd=tmp_path)
    try:
        for line in running.stderr:
            if line.startswith("unbroken: step"):
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
    assert {one.name for one in tmp_path.iterdir()} == {"run.yaml", "scratch"}
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize(("part", "lost"), [(None, set()), ("optimizer", {"optimizer", "scheduler"})])
def test_smollm2_with_lora(smollm2, tmp_path, part, lost):
    given = {
        "model_name_or_path": str(smollm2), "stage": "sft", "do_train": True, "finetuning_type": "lora", "lora_rank": 8,
        "lora_target": "all", "lora_dropout": 0.1, "dataset": "orders", "dataset_dir": str(ROOT / "demo" / "data"),
        "max_samples": 24, "template": "smollm2", "cutoff_len": 128, "output_dir": str(tmp_path / "out"),
        "num_train_epochs": 3, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 1,
        "learning_rate": 1e-3, "lr_scheduler_type": "cosine", "warmup_ratio": 0.1, "report_to": "none", "seed": 42,
    }  # fmt: skip
    words = command(tmp_path, given, "--steps", "3", "--extra", "2", "--json", *(["--take-away", part] if part else []))
    done = subprocess.run(words, env=environment(tmp_path), capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == (1 if part else 0), done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert {one["part"] for one in found["lost"] if one["before"] and one["after"]} == lost
    assert found["verdict"] == ("does not continue" if part else "continues exactly")
