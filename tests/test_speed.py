"""`baseline-speed` on real LlamaFactory runs: planted costs are seen in their layer, and a clean run has none."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from rehearsal_config import config  # noqa: F401
from tiny import tiny_data
from transformers import TrainerCallback

from llamafactory_obs.callbacks.base import find_trainer
from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.ahead.effective import Effective
from llamafactory_obs.preflight.rehearsal import child
from llamafactory_obs.preflight.run_config import parsed
from llamafactory_obs.preflight.speed import measure
from llamafactory_obs.preflight.speed.counts import counts_of
from llamafactory_obs.preflight.speed.loader import Loader, Ready
from llamafactory_obs.preflight.speed.measure import Wish, measure_speed

pytestmark = pytest.mark.usefixtures("llamafactory")

SLOW = str(Path(__file__).parent / "slow_parts.py") + ":SlowParts"
EVALUATION = {"val_size": 8, "eval_strategy": "steps", "eval_steps": 10, "per_device_eval_batch_size": 2}


@pytest.fixture
def speed(config, monkeypatch):  # noqa: F811
    """`speed(wish, **overrides)` measures within this process: the importing alone takes longer than all of it."""
    from llamafactory.data import loader
    from llamafactory.train.tuner import run_exp

    for name in ("_get_merged_dataset", "_get_preprocessed_dataset"):
        monkeypatch.setattr(loader, name, getattr(loader, name))

    def train(path, output_dir, log, env, on_step):
        log.write_text("")
        try:
            run_exp(yaml.safe_load(path.read_text()))
        except Exception as error:
            return child.Ended(1, 0.0, [repr(error)])
        return child.Ended(0, 0.0, [])

    monkeypatch.setattr(child, "train", train)

    def run(wish=None, **overrides):
        return measure_speed(config(**overrides), wish or Wish(steps=6), say=lambda line: None)

    return run


def layer(report, name: str):
    return next((one for one in report.layers if one.name == name), None)


def test_each_planted_cost_is_seen_in_its_layer(speed, tmp_path):
    planted = {"row": 0.05, "log": 0.03, "eval_batch": 0.05, "save": 0.4}
    report = speed(
        Wish(steps=6, callbacks=True, price=2.0),
        callbacks=[{"name": SLOW, "args": planted}],
        max_steps=40,
        save_steps=20,
        logging_steps=3,
        **EVALUATION,
    )
    # 2 rows a step; 4 batches an evaluation; 4 on the way and LlamaFactory's own at the end; 2 saves in 40 steps
    assert 0.1 <= layer(report, "loader").seconds_per_step < 0.1 * 1.3
    assert 0.03 / 3 * 0.8 < layer(report, "logging").seconds_per_step < 0.03 / 3 * 2
    evaluation = 5 * (4 * (0.05 + 2 * 0.05)) / 40
    assert evaluation <= layer(report, "evaluation").seconds_per_step < evaluation * 2.5  # a busy machine
    assert 2 * 0.4 / 40 <= layer(report, "saving").seconds_per_step < 2 * 0.6 / 40
    assert report.exit_code == 1 and {"loader", "evaluation"} >= {one.name for one in report.dear} != set()
    # the advice is the pipeline's arithmetic, and it was measured to pay
    advice, model = report.advice, layer(report, "model").seconds_per_step
    assert advice.load_s == pytest.approx(0.1, rel=0.1) and advice.load_cpu_s < 0.03
    assert advice.needed == pytest.approx(math.ceil(advice.load_s / model), rel=0.3, abs=1)
    assert advice.yaml == f"dataloader_num_workers: {advice.recommended}" and advice.recommended >= 1
    tried = {one.workers: one for one in advice.tried}
    assert tried[advice.recommended].seconds_per_step < 0.8 * tried[0].seconds_per_step
    assert tried[advice.recommended].layer.seconds_per_step < 0.5 * 0.1
    # the parts add up
    assert sum(map(report.share, report.layers)) == pytest.approx(1)
    assert report.check["measured_step"] == pytest.approx(report.check["model_and_loader"], rel=0.25)
    whole = report.whole_run
    assert (whole["steps"], whole["evaluations"], whole["saves"]) == (40, 5, 2)
    assert whole["price"] == pytest.approx(2.0 * whole["hours"])
    parts = sum(whole["hours_by_layer"].values()) + whole["hours_before_step_1"]
    assert parts <= whole["hours"] < parts + 2 / 3600, "besides, only the start of each pass over the data"
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"], "nothing is left"


def test_a_clean_run_goes_into_the_model(speed, monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "_ROWS", 20)
    monkeypatch.setattr(measure, "_STEPS", 1)
    tokens = tmp_path / "tokens"
    report = speed(
        Wish(steps=5),
        callbacks=["label_mask", "my.own.Callback"],
        max_steps=None,
        num_train_epochs=3.0,
        per_device_train_batch_size=4,
        save_strategy="no",
        logging_steps=10,
        tokenized_path=str(tokens),
        report_to="wandb",
    )
    assert report.share(layer(report, "model")) > 0.8 and report.exit_code == 0
    assert [one.name for one in report.layers] == ["model", "loader", "callbacks", "logging"]
    assert 0 < layer(report, "callbacks").seconds_per_step < 0.1 * layer(report, "model").seconds_per_step
    assert report.advice.recommended == 0 and report.advice.yaml is None
    assert report.whole_run["steps"] == 36, "20 of 48 rows were tokenised: 12 steps of 4 rows in each of 3 epochs"
    assert 0 < report.padding < 0.5 and report.noise > 0
    for word in ("wandb", "my.own.Callback", "20 of 48 rows"):
        assert any(word in limit for limit in report.limits), word
    assert not tokens.exists() and not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        {"packing": True, "neat_packing": True, "finetuning_type": "lora", "gradient_accumulation_steps": 2},
        {"stage": "dpo", "dataset": "pairs", "finetuning_type": "lora", "dataloader_num_workers": 2},
        {"stage": "pt", "dataset": "text", "dataloader_num_workers": 1, "dataloader_persistent_workers": True},
        {"stage": "kto", "dataset": "votes", "finetuning_type": "lora", "eval_dataset": "votes"},
        {"streaming": True, "dataloader_num_workers": 1, **EVALUATION},
        {"gradient_accumulation_steps": 64, "eval_dataset": "rows,rows", "eval_on_each_dataset": True, **EVALUATION}
        | {"val_size": None},
    ],
    ids=["packing", "dpo", "pt", "kto", "streaming", "fewer batches than accumulation"],
)
def test_every_kind_of_config_is_measured(speed, overrides):
    if overrides.get("eval_dataset") == "votes":
        overrides = {**overrides, "eval_strategy": "epoch"}
    report = speed(Wish(steps=3), **overrides)
    assert not report.failed, report.failed
    assert report.tokens_per_step > 0 and layer(report, "saving").seconds_per_step > 0
    assert (layer(report, "evaluation") is not None) == bool(report.whole_run["evaluations"])
    assert report.advice.tried and all(one.seconds_per_step > 0 for one in report.advice.tried)


def test_a_run_that_breaks_off_says_why(speed):
    report = speed(dataset="no_such_set")
    assert report.exit_code == 1 and "no_such_set" in " ".join(report.failed)
    assert report.as_dict()["status"] == "failed"


def test_wrong_options_of_a_callback_are_refused_and_no_verdict(config):  # noqa: F811
    with pytest.raises(ConfigError, match="every"):
        measure_speed(config(callbacks=[{"optimizer": {"every": -1}}]), Wish(), say=print)


def test_what_is_refused(config):  # noqa: F811
    with pytest.raises(ConfigError, match="ppo"):
        measure_speed(config(stage="ppo"), Wish(), say=print)
    with pytest.raises(ConfigError, match="num_train_epochs"):
        measure_speed(config(max_steps=None, num_train_epochs=0.0), Wish(), say=print)
    with pytest.raises(ConfigError, match="do_train"):
        measure_speed(config(do_train=False), Wish(), say=print)
    with pytest.raises(ConfigError, match=r"unknown callback 'vrm'.*vram"):
        measure_speed(config(callbacks=["vrm"]), Wish(), say=print)
    from llamafactory_obs.cli import main

    for words in (["--steps", "1"], ["--price-per-hour", "-1"], ["--price-per-hour", "nan"]):
        assert main(["baseline-speed", "run.yaml", *words]) == 2


class Compare(TrainerCallback):
    """Loads the first batches with and without workers, and from a second pass."""

    def on_train_begin(self, args, state, control, **kwargs):
        trainer, self.seen = find_trainer(self), {}
        for workers in (0, 2):
            loader = Loader(trainer, workers)
            self.seen[workers] = [next(loader)["input_ids"] for _ in range(30)]
            self.seen[f"starts {workers}"] = len(loader.starts)
            loader.close()
        batch = {"input_ids": self.seen[0][0], "labels": self.seen[0][0]}
        ready = Ready([batch], 7)
        first, _ = ready.hand_out()
        first[0].pop("labels")
        self.again, self.normaliser = ready.hand_out()


def test_every_loader_gives_the_same_rows_and_ready_ones_stay_whole(train):
    compare = Compare()
    train(extra_callbacks=[compare], max_steps=1)
    seen = compare.seen
    assert all(one.equal(two) for one, two in zip(seen[0], seen[2], strict=True))
    assert seen["starts 0"] == seen["starts 2"] == 2, "48 rows are 24 batches"
    assert not all(one.equal(two) for one, two in zip(seen[0][:6], seen[0][24:], strict=True)), "a pass is shuffled"
    assert set(compare.again[0]) == {"input_ids", "labels"} and compare.normaliser == 7


class Count(TrainerCallback):
    """How often the real Trainer evaluates, saves and logs."""

    def __init__(self):
        self.evaluations, self.saves, self.logs, self.passes = 0, 0, 0, 0

    def on_evaluate(self, *words, **named):
        self.evaluations += 1

    def on_save(self, *words, **named):
        self.saves += 1

    def on_log(self, args, state, control, logs=None, **named):
        self.logs += "loss" in logs

    def on_epoch_begin(self, *words, **named):
        self.passes += 1


@pytest.mark.parametrize(
    "overrides",
    [
        {**EVALUATION, "eval_steps": 3, "eval_delay": 4, "max_steps": 10, "save_steps": 4, "logging_steps": 2},
        {**EVALUATION, "eval_strategy": "epoch", "save_strategy": "epoch", "logging_strategy": "epoch"}
        | {"max_steps": None, "num_train_epochs": 2.0, "eval_steps": None},
    ],
    ids=["steps", "epochs"],
)
def test_the_counts_are_those_of_a_real_run(config, train, overrides):  # noqa: F811
    count = Count()
    train(extra_callbacks=[count], per_device_train_batch_size=8, **overrides)
    with parsed(config(per_device_train_batch_size=8, **overrides)) as arguments:
        counts = counts_of(Effective(config(per_device_train_batch_size=8, **overrides), arguments, 40))
    assert (counts.evaluations, counts.saves, counts.passes) == (count.evaluations, count.saves, count.passes)
    assert counts.steps // counts.log_every == count.logs


@pytest.mark.slow
def test_the_command_in_a_process_of_its_own(config, model, tmp_path):  # noqa: F811
    data = tiny_data(tmp_path / "data", 96)
    config(data=data, callbacks=[{"name": SLOW, "args": {"row": 0.03}}])
    before = {str(path) for path in tmp_path.rglob("*")}
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [str(tmp_path / "run.yaml"), "--callbacks", "--steps", "4", "--json", "per_device_train_batch_size=3"]
    command = [sys.executable, "-m", "llamafactory_obs.cli", "baseline-speed", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 1, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert "loader" in found["too_dear"], found
    assert "worker" in found["first"], "more of them, or on a busy machine that none helps"
    assert 0.06 < found["layers"][1]["seconds_per_step"] < 0.9, "three rows, each of which sleeps"
    assert {str(path) for path in tmp_path.rglob("*")} == before
