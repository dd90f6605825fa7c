"""What would fail later, from the config alone: each fault with a healthy config beside it."""

import os

import pytest
from ahead_config import effective, named, statuses, write  # noqa: F401

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.ahead import ahead_checks
from llamafactory_obs.preflight.ahead.disk import Size, check_disk, judge_disk, save_size
from llamafactory_obs.preflight.ahead.evaluation import check_evaluation
from llamafactory_obs.preflight.ahead.log_interval import check_logging, dilution
from llamafactory_obs.preflight.ahead.saves import check_saves
from llamafactory_obs.preflight.ahead.watched import check_watched
from llamafactory_obs.preflight.ahead.workers import check_workers
from llamafactory_obs.preflight.run_config import read_run_config

torch = pytest.importorskip("torch")

LORA = {"finetuning_type": "lora", "lora_rank": 8}


@pytest.fixture
def live(monkeypatch):
    """The plug is live here, without a fresh process."""
    monkeypatch.setattr("llamafactory_obs.doctor.examine", lambda: {"live": True, "reasons": []})


def test_a_good_config_is_silent(live, llamafactory, model, data, tmp_path):
    path = write(tmp_path / "run.yaml", model, data, tmp_path / "out", **LORA)
    checks = ahead_checks(read_run_config(path))
    loud = [check for check in checks if check.status not in ("pass", "skipped")]
    assert loud == []
    assert {check.name for check in checks if check.status == "skipped"} == {"run_name", "saved_template"}
    assert all(check.detail for check in checks)
    assert not (tmp_path / "out").exists()


def test_nothing_is_trained_without_do_train(live, llamafactory, model, data, tmp_path):
    path = write(tmp_path / "run.yaml", model, data, tmp_path / "out", do_train=False)
    assert named(ahead_checks(read_run_config(path)), "do_train").status == "fail"


def test_a_refused_config_is_one_line(llamafactory, model, data, tmp_path):
    path = write(tmp_path / "run.yaml", model, data, tmp_path / "out", no_such_key=1)
    with pytest.raises(ConfigError, match="LlamaFactory refuses"):
        ahead_checks(read_run_config(path))


def test_one_check_that_cannot_be_made_hides_no_other(live, monkeypatch, llamafactory, model, data, tmp_path):
    def broken(run):
        raise RuntimeError("no such luck")

    monkeypatch.setattr("llamafactory_obs.preflight.ahead.checks.check_disk", broken)
    path = write(tmp_path / "run.yaml", model, data, tmp_path / "out")
    checks = ahead_checks(read_run_config(path))
    assert named(checks, "disk").status == "error" and "no such luck" in named(checks, "disk").detail
    assert named(checks, "workers").status == "pass"


# ---- saving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "rows", "status", "word"),
    [
        ({}, None, "pass", "7 in 700 steps"),
        ({"save_steps": None}, None, "warn", "up to 500 steps"),
        ({"save_steps": 200}, None, "warn", "up to 200 steps"),
        ({"save_steps": 1000}, None, "fail", "whole run"),
        ({"save_steps": 0.1}, None, "pass", "every 70 steps"),
        ({"save_steps": 0.5}, None, "warn", "every 350 steps"),
        ({"save_strategy": "no"}, None, "fail", "whole run"),
        ({"max_steps": 10, "save_steps": 10}, None, "pass", "1 in 10"),
        ({"max_steps": None}, None, "skipped", "not known"),
        ({"save_steps": 0}, None, "fail", "no checkpoint on the way"),
        ({"save_steps": -1}, None, "fail", "no checkpoint on the way"),
        ({"max_steps": None, "save_steps": 0.1}, None, "pass", "every 0.1 of the run, 10 in all"),
        ({"max_steps": None, "save_steps": 0.5}, None, "warn", "2 in all: an interruption loses up to 1/2 of it"),
        ({"save_strategy": "epoch"}, None, "skipped", "the rows are not counted"),
        ({"save_strategy": "epoch"}, 140, "pass", "10 in 700 steps"),
        ({"save_strategy": "epoch"}, 700, "warn", "2 in 700 steps: an interruption loses up to 350 steps"),
        ({"save_strategy": "epoch"}, 1400, "fail", "whole run"),
        (
            {"max_steps": None, "save_strategy": "epoch", "num_train_epochs": 1.0},
            None,
            "fail",
            "the first is at its end",
        ),
        ({"max_steps": None, "save_steps": None}, None, "warn", "not set"),
        ({"max_steps": None, "num_train_epochs": 3.0}, 1400, "pass", "21 in 2100 steps (1400 rows, 2 a step)"),
        ({"max_steps": None, "num_train_epochs": 1.0}, 400, "warn", "up to 100 steps"),
        ({"max_steps": None, "packing": True}, 1400, "pass", "at most 2100"),
        ({"max_steps": None, "save_strategy": "epoch"}, 1400, "warn", "up to 700 steps"),
        ({"max_steps": None, "save_strategy": "epoch", "num_train_epochs": 8.0}, None, "pass", "8 in all"),
    ],
)
def test_save_steps(effective, keys, rows, status, word):  # noqa: F811
    with effective(rows, **keys) as run:
        check = named(check_saves(run), "save_steps")
    assert check.status == status and word in check.detail
    assert bool(check.fix) == (status in ("warn", "fail")) and "None" not in check.detail


def test_steps_of_a_run_are_those_of_the_trainer(effective, train, tmp_path):  # noqa: F811
    """45 rows in batches of 2, 4 of them a step, 2 epochs: counted by a real run."""
    import json

    keys = {"max_steps": None, "num_train_epochs": 2.0, "gradient_accumulation_steps": 4, "max_samples": 45}
    out = train(**keys)
    wanted = json.loads((out / "trainer_state.json").read_text())["max_steps"]
    with effective(45, **keys) as run:
        assert run.total_steps == wanted == 12


@pytest.mark.parametrize("processes", [1, 2])
def test_processes_share_the_rows(effective, monkeypatch, processes):  # noqa: F811
    monkeypatch.setenv("FORCE_TORCHRUN", "1")
    monkeypatch.setenv("NPROC_PER_NODE", str(processes))
    with effective(400, max_steps=None, num_train_epochs=1.0) as run:
        assert run.total_steps == 200 // processes


def test_what_is_saved(effective):  # noqa: F811
    with effective(save_only_model=True, save_total_limit=1) as run:
        checks = check_saves(run)
    assert named(checks, "save_only_model").status == "fail" and "warm start" in named(checks, "save_only_model").detail
    assert named(checks, "save_total_limit").status == "warn" and "probe" in named(checks, "save_total_limit").detail
    with effective(save_total_limit=3) as run:
        assert set(statuses(check_saves(run)).values()) == {"pass"}


@pytest.mark.parametrize(
    ("keys", "status"),
    [({}, "pass"), ({"eval_steps": 70}, "fail"), ({"save_strategy": "epoch"}, "fail"), ({"stage": "rm"}, "fail")],
)
def test_the_best_model_at_the_end(effective, keys, status):  # noqa: F811
    keys = {"dataset": "pairs", **keys} if "stage" in keys else keys
    with effective(load_best_model_at_end=True, **keys) as run:
        assert named(check_saves(run), "load_best_model_at_end").status == status


# ---- looking at it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "status", "word"),
    [
        ({}, "pass", "every 100"),
        ({"val_size": None, "eval_strategy": None}, "warn", "no eval_dataset"),
        ({"eval_strategy": "no"}, "warn", "eval_strategy is no"),
        ({"eval_steps": 900}, "warn", "not one evaluation"),
        ({"eval_delay": 900}, "warn", "eval_delay 900"),
        ({"val_size": 10}, "pass", "val_size 10 is"),
        ({"max_steps": None, "eval_steps": 0.1}, "pass", "every 0.1 of the run"),
        ({"val_size": None, "eval_dataset": "rows"}, "pass", "rows is evaluated"),
        ({"val_size": None, "eval_strategy": None, "max_steps": 10}, "skipped", "too short"),
    ],
)
def test_eval_set(effective, keys, status, word):  # noqa: F811
    with effective(**keys) as run:
        (check,) = check_evaluation(run)
    assert check.status == status and word in check.detail


def test_dilution():
    assert dilution(10, 1) == 10 and dilution(10, 9) == 2 and dilution(10, 500) == pytest.approx(1.018)


@pytest.mark.parametrize(("steps", "status"), [(1, "pass"), (5, "pass"), (10, "warn"), (None, "warn"), (0.1, "warn")])
def test_a_spike_in_the_log(effective, steps, status):  # noqa: F811
    with effective(logging_steps=steps, callbacks=None) as run:
        checks = check_logging(run)
    assert checks[0].status == status
    assert [check.name for check in checks[1:]] == ([] if steps == 1 else ["logging_nan_inf_filter"])
    with effective(logging_steps=steps) as run:  # our record has every step
        assert [check.status for check in check_logging(run)] == ["pass"]


@pytest.mark.parametrize(
    ("keys", "name", "status"),
    [
        ({}, "workers", "pass"),
        ({"dataloader_num_workers": 2}, "workers", "pass"),
        ({"dataloader_num_workers": 3}, "workers", "warn"),
        ({"preprocessing_num_workers": 2}, "preprocessing_workers", "pass"),
        ({"preprocessing_num_workers": 9}, "preprocessing_workers", "warn"),
        ({"streaming": True, "val_size": None, "eval_strategy": None}, "stream_workers", "fail"),
        (
            {"streaming": True, "val_size": None, "eval_strategy": None, "dataloader_num_workers": 1},
            "stream_workers",
            "pass",
        ),
    ],
)
def test_workers(effective, monkeypatch, keys, name, status):  # noqa: F811
    hardware = {"cores_usable": 8, "cpu_limit": 2.5, "cores_logical": 8}  # the control group grants less than there is
    monkeypatch.setattr("llamafactory_obs.preflight.ahead.workers.hardware_identity", lambda unknown: hardware)
    with effective(**keys) as run:
        assert named(check_workers(run), name).status == status


def test_workers_of_all_processes(effective, monkeypatch):  # noqa: F811
    hardware = {"cores_usable": 8, "cpu_limit": None, "cores_logical": 8}
    monkeypatch.setattr("llamafactory_obs.preflight.ahead.workers.hardware_identity", lambda unknown: hardware)
    monkeypatch.setenv("FORCE_TORCHRUN", "1")
    monkeypatch.setenv("NPROC_PER_NODE", "4")
    with effective(dataloader_num_workers=4) as run:
        check = check_workers(run)[0]
    assert (check.status, check.value, check.want, check.fix) == ("warn", 16, 8, "dataloader_num_workers: 2")


# ---- is it watched at all -------------------------------------------------------------------------------------------


def test_nothing_will_be_recorded(effective, live):  # noqa: F811
    for keys in ({"callbacks": None}, {"callbacks": None, "obs": {"mask_range": [0.2, 0.4]}}, {"callbacks": []}):
        with effective(**keys) as run:
            checks = check_watched(run)
        assert statuses(checks) == {"obs_loaded": "warn", "callbacks": "skipped", "probe": "skipped"}
        assert "nothing will be recorded" in checks[0].detail
    with effective() as run:
        assert set(statuses(check_watched(run)).values()) == {"pass"}


@pytest.mark.parametrize("extra", ["0", "1"])
@pytest.mark.parametrize(
    "keys", [{}, {"callbacks": None, "obs": {"mask_range": [0.2, 0.4]}}, {"callbacks": None, "obs": {}}]
)
def test_observability_is_asked_for_and_not_loaded(effective, monkeypatch, keys, extra):  # noqa: F811
    """INJ-3: `obs:` alone is a foreign key as well."""
    monkeypatch.setenv("LLAMAFACTORY_OBS_AUTOLOAD", "0")
    monkeypatch.setenv("ALLOW_EXTRA_ARGS", extra)
    fresh = {"torch": "2.14.1", "error": None, "cuda": [], "live": False, "entry_point": True}
    monkeypatch.setattr("llamafactory_obs.doctor._fresh_import", lambda: fresh)
    with effective(**keys) as run:
        check = named(check_watched(run), "obs_loaded")
    assert check.status == "fail" and "LLAMAFACTORY_OBS_AUTOLOAD=0" in check.detail
    assert ("unwatched" if extra == "1" else "refuse") in check.detail


@pytest.mark.slow
def test_the_plug_is_live_here(effective):  # noqa: F811
    with effective() as run:
        assert named(check_watched(run), "obs_loaded").status == "pass"


@pytest.mark.parametrize(
    ("entries", "word"),
    [
        (["grad_norm_spik"], "did you mean"),
        ([{"vram": {"limit_gib": 0}}], "limit_gib"),
        (["no.such.Mine"], "no.such"),
        (["early_stopping"], "metric_for_best_model"),
        (["vram", "vram"], "already named"),
        ([{"probe": 5}], "options must be a mapping"),
        ([{"name": "probe", "args": "x"}], "options must be a mapping"),
    ],
)
def test_a_refused_entry(effective, live, entries, word):  # noqa: F811
    with effective(callbacks=entries) as run:
        check = named(check_watched(run), "callbacks")
    assert check.status == "fail" and word in check.detail


def test_early_stopping_with_a_best_model(effective, live):  # noqa: F811
    with effective(callbacks=["early_stopping"], load_best_model_at_end=True) as run:
        assert named(check_watched(run), "callbacks").status == "pass"


def test_keys_that_are_ignored(effective, live, monkeypatch):  # noqa: F811
    monkeypatch.setenv("ALLOW_EXTRA_ARGS", "1")
    with effective(wandb_project="mine", top_p=0.9) as run:
        check = named(check_watched(run), "extra_keys")
    assert (check.status, check.value) == ("warn", ["wandb_project"])
    with effective(top_p=0.9) as run:
        assert named(check_watched(run), "extra_keys").status == "pass"


def test_nobody_looks_at_the_answers(effective, live):  # noqa: F811
    with effective(callbacks=["vram"]) as run:
        assert named(check_watched(run), "probe").status == "warn"
    with effective(callbacks=["vram"], max_steps=10) as run:
        assert named(check_watched(run), "probe").status == "skipped"


# ---- the disk -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"finetuning_type": "lora", "lora_rank": 16},
        {"finetuning_type": "lora", "additional_target": "embed_tokens"},
        {"optim": "adafactor"},
        {"use_muon": True},
    ],
)
def test_the_size_of_a_checkpoint_is_that_of_a_real_one(effective, train, keys):  # noqa: F811
    keys = {"max_steps": 2, "save_steps": 2, **keys}
    folder = train(**keys) / "checkpoint-2"
    weights = [os.path.getsize(folder / name) for name in os.listdir(folder) if name.endswith(".safetensors")]
    kept = torch.load(folder / "optimizer.pt", weights_only=True)["state"].values()
    state = sum(value.nbytes for row in kept for value in row.values() if isinstance(value, torch.Tensor))
    with effective(**keys) as run:
        size = save_size(run.config)
        assert check_disk(run)[0].status == "pass"
    tokenizer = sum(os.path.getsize(folder / name) for name in ("tokenizer.json", "tokenizer_config.json"))
    assert size.weights - tokenizer == pytest.approx(sum(weights), rel=0.15)  # small files: headers count
    assert size.state == pytest.approx(state, rel=0.02)  # step counters


def test_the_disk_is_too_small(effective):  # noqa: F811
    size, gib = Size(weights=4 << 30, state=8 << 30), 1 << 30
    with effective() as run:  # 7 x 12 + 4
        found = [judge_disk(run, size, free * gib).status for free in (80, 89, 120)]
        assert found == ["fail", "warn", "pass"]
    with effective(save_total_limit=2) as run:  # the third is written before the first goes: 3 x 12 + 4
        assert [judge_disk(run, size, free * gib).status for free in (39, 50)] == ["fail", "pass"]
    with effective(save_only_model=True) as run:  # 7 x 4 + 4
        assert judge_disk(run, size, 36 * gib).status == "pass"
    with effective(max_steps=None) as run:  # how many is not known
        found = [judge_disk(run, size, free * gib) for free in (10, 40, 200)]
        assert [(check.status, check.value) for check in found] == [("fail", 0), ("warn", 3), ("pass", 16)]


def test_a_model_that_is_not_here(effective):  # noqa: F811
    with effective(model_name_or_path="nobody/nothing") as run:
        (check,) = check_disk(run)
    assert check.status == "skipped" and "not on this machine" in check.detail
