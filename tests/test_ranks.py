"""Two processes as one run (INJ-4, LOG-6, GRAD-12), and sharded parameters (FSDP2)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import tiny_config

from llamafactory_obs import load_record
from llamafactory_obs.plugin.registry import OWN

pytestmark = pytest.mark.slow
#: the probe's companion has tests of its own
OPTIONS = {
    "layer_norms": {"weights_every": 2},
    "optimizer": {"every": 2},
    "ranks": {"weights_every": 2},
    "probe": {"companion": False},
}
ALL = [{name: OPTIONS[name]} if name in OPTIONS else name for name in OWN]


def torchrun(case: str, arguments: dict) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command += [str(Path(__file__).parent / "ranks_worker.py"), case, json.dumps(arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DISABLE_VERSION_CHECK": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture
def two(model, data, tmp_path):
    def run(extra=None, **overrides):
        done = torchrun("train", {**tiny_config(model, data, tmp_path / "two", **overrides), **(extra or {})})
        assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-3000:]
        return load_record(tmp_path / "two"), done

    return run


@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_two_ranks_are_one_run(two, train, tuning):
    both, done = two(callbacks=ALL, max_steps=4, finetuning_type=tuning, gradient_accumulation_steps=2)
    one = load_record(
        train(
            callbacks=ALL,
            max_steps=4,
            finetuning_type=tuning,
            gradient_accumulation_steps=2,
            per_device_train_batch_size=4,
        )
    )
    assert both.steps["step"] == one.steps["step"] == [1, 2, 3, 4]
    for key in ("tokens", "supervised_tokens", "samples", "max_length", "min_supervised_ratio", "fully_masked"):
        assert both.steps[f"data/{key}"] == one.steps[f"data/{key}"], key
    for key in ("train/loss", "train/grad_norm"):
        assert both.steps[key] == pytest.approx(one.steps[key], rel=1e-3), key
    for name in one.layers.names:
        mine, theirs = (list(r.layers.column("grad_norm", name).values()) for r in (both, one))
        assert mine == pytest.approx(theirs, rel=2e-2, abs=1e-6)
    assert both.run["world"]["world_size"] == 2
    assert [e["kind"] for e in both.events].count("start") == 1, "one writer"
    assert done.stdout.count("llamafactory-obs") + done.stdout.count("recorder:") == 2, "one rank speaks"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_failing_callback_on_one_rank_hangs_nobody(two, rank):
    record, _ = two(callbacks=ALL, max_steps=5, extra={"break_rank": rank})
    assert record.steps["step"] == [1, 2, 3, 4, 5]
    assert None not in record.steps["train/grad_norm"]


def test_a_stop_is_taken_by_all_ranks_at_the_same_step(two):
    record, _ = two(
        callbacks=[{"grad_norm_spike": {"action": "stop"}}], max_steps=40, logging_steps=100, extra={"poison_step": 16}
    )
    alarms = [e["step"] for e in record.events if e["title"] == "spike"]
    assert alarms == [16] and record.steps["step"][-1] == 18, "two steps late, on both"
    assert (record.folder.parent / "checkpoint-18").is_dir()


def test_fsdp2_under_the_trainer_gives_the_numbers_of_ddp(two):
    """The real Trainer with FSDP2: one record, the same norms as with whole weights."""
    sharded, _ = two(callbacks=ALL, max_steps=4, extra={"fsdp2": True})
    whole, _ = two(callbacks=ALL, max_steps=4)
    assert sharded.run["world"]["engine"] == "fsdp"
    assert "callback_off" not in [event["kind"] for event in sharded.events]
    for key in ("data/tokens", "data/supervised_tokens", "train/lr"):
        assert sharded.steps[key] == whole.steps[key], key
    for key in ("train/loss", "train/grad_norm"):
        assert sharded.steps[key] == pytest.approx(whole.steps[key], rel=1e-3), key
    for column in ("grad_norm", "weight_norm", "update_ratio"):
        for name in whole.layers.names:
            mine, theirs = (r.layers.column(column, name) for r in (sharded, whole))
            assert mine.keys() == theirs.keys()
            wanted = [value for value in theirs.values() if value is not None]
            assert [v for v in mine.values() if v is not None] == pytest.approx(wanted, rel=2e-2, abs=1e-6), (
                name,
                column,
            )


def test_fsdp2_norms_are_those_of_whole_parameters(model):
    done = torchrun("fsdp2", {"model": str(model)})
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))[7:])
    assert result["found"] == pytest.approx(result["wanted"], rel=1e-4)
    assert result["total"] == pytest.approx(result["stock_total"], rel=1e-6)
    assert result["full_total"] == result["stock_total"] and result["same_clipping"]
    assert result["row"]["weights"] == pytest.approx(result["weights"], rel=1e-5)
    assert result["row"]["updates"] == pytest.approx(result["updates"], rel=1e-3)
