"""Where the curves land and under which name; and `obs: {tracker: {project: NAME}}` in a real tracker."""

import importlib.util
import json
import os
import sys
import types

import pytest
from ahead_config import effective, named  # noqa: F401

from llamafactory_obs.plugin import tracker_project
from llamafactory_obs.preflight.ahead.run_name import last_run, suggested_run_name
from llamafactory_obs.preflight.ahead.tracker import check_tracker
from llamafactory_obs.preflight.run_config import RunConfig
from llamafactory_obs.settings import Settings

PROJECT = {"tracker": {"project": "agents"}}
BASE = {"model_name_or_path": "Qwen/Qwen3-4B-Instruct-2507", "finetuning_type": "lora", "lora_rank": 16}
BASE |= {"learning_rate": 1e-4, "output_dir": "saves/full", "dataset": "orders"}


@pytest.fixture(autouse=True)
def no_project(monkeypatch):
    for variable in tracker_project.VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)


# ---- the check ------------------------------------------------------------------------------------------------------


def test_no_tracker(effective):  # noqa: F811
    for value in ("none", None):
        with effective(report_to=value) as run:
            assert named(check_tracker(run), "tracker").status == "pass"  # there is the record
        with effective(report_to=value, callbacks=None) as run:
            assert named(check_tracker(run), "tracker").status == "warn"


def test_wandb_without_a_project(effective, monkeypatch):  # noqa: F811
    pytest.importorskip("wandb")
    with effective(report_to="wandb", run_name="mine") as run:
        check = named(check_tracker(run), "tracker")
        assert check.status == "warn" and "'llamafactory'" in check.detail and "obs: {tracker:" in check.fix
    with effective(report_to=["wandb"], obs=PROJECT) as run:
        assert named(check_tracker(run), "tracker").value == "agents"
    monkeypatch.setenv("WANDB_PROJECT", "theirs")
    with effective(report_to="wandb", obs=PROJECT) as run:
        check = named(check_tracker(run), "tracker")
        assert (check.status, check.value) == ("pass", "theirs") and "gives way" in check.detail


def test_a_tracker_that_is_not_installed(effective, monkeypatch):  # noqa: F811
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "mlflow" else real(name, *a))
    with effective(report_to="mlflow") as run:
        assert named(check_tracker(run), "tracker").status == "fail"


@pytest.mark.parametrize(
    "value", ["wandb,tensorboard", "WandB", "nonsense", ["tensorboard", "none"], ["all", "tensorboard"], [True]]
)
def test_a_name_that_transformers_does_not_know(effective, value):  # noqa: F811
    """transformers takes `none` and `all` alone only; and so says its own function."""
    from transformers.integrations import get_reporting_integration_callbacks

    with effective(report_to=value) as run:
        checks = [check for check in check_tracker(run) if check.name == "tracker"]
    assert [check.status for check in checks].count("fail") == 1
    with pytest.raises(ValueError, match="is not supported"):
        get_reporting_integration_callbacks(value if isinstance(value, list) else [value])


def test_report_to_left_empty(effective):  # noqa: F811
    with effective(report_to="none") as run:
        run.config.given["report_to"] = None
        assert named(check_tracker(run), "tracker").status == "fail"


def test_tensorboard_and_all(effective, monkeypatch):  # noqa: F811
    monkeypatch.setattr("transformers.integrations.is_tensorboard_available", lambda: True)
    with effective(report_to="tensorboard") as run:  # it reads no run_name
        assert [(c.name, c.status) for c in check_tracker(run)] == [("tracker", "pass"), ("run_name", "skipped")]
    monkeypatch.setattr("transformers.integrations.get_available_reporting_integrations", lambda: ["tensorboard"])
    for value in ("all", ["all"]):
        with effective(report_to=value) as run:
            assert named(check_tracker(run), "tracker").value == "tensorboard"
    monkeypatch.setattr("transformers.integrations.is_tensorboard_available", lambda: False)
    with effective(report_to=["tensorboard"]) as run:
        check = named(check_tracker(run), "tracker")
    assert check.status == "fail" and "not installed" in check.detail


def test_ppo_takes_few_trackers(effective):  # noqa: F811
    ppo = {"stage": "ppo", "reward_model": "x", "finetuning_type": "lora"}
    with effective(report_to="mlflow", **ppo) as run:
        check = named(check_tracker(run), "tracker")
    assert check.status == "fail" and "stage: ppo" in check.detail


def stub(monkeypatch, get_run):
    module = types.ModuleType("swanlab")
    module.get_run = get_run
    monkeypatch.setitem(sys.modules, "swanlab", module)


def test_swanlab_through_report_to(effective, monkeypatch):  # noqa: F811
    def raises():
        raise RuntimeError("no active run")

    stub(monkeypatch, raises)
    with effective(report_to="swanlab") as run:
        check = named(check_tracker(run), "tracker")
    assert check.status == "fail" and "use_swanlab: true" in check.fix and "no active run" in check.detail
    stub(monkeypatch, lambda: None)
    with effective(report_to="swanlab", obs=PROJECT) as run:
        assert named(check_tracker(run), "tracker").status == "pass"


def test_llamafactorys_own_swanlab(effective):  # noqa: F811
    with effective(use_swanlab=True) as run:
        checks = check_tracker(run)
        assert named(checks, "tracker").status == "warn" and "'llamafactory'" in named(checks, "tracker").detail
        assert "swanlab_run_name" in named(checks, "run_name").fix
    with effective(use_swanlab=True, swanlab_project="mine", swanlab_run_name="one") as run:
        assert {check.status for check in check_tracker(run)} == {"pass"}


def test_run_name(effective, tmp_path):  # noqa: F811
    pytest.importorskip("wandb")
    with effective(report_to="wandb", finetuning_type="lora", lora_rank=32, learning_rate=2e-4) as run:
        check = named(check_tracker(run), "run_name")
        assert check.status == "warn" and check.fix == "run_name: model0-lora-r32-lr2e-4"
    with effective(report_to="wandb", run_name=str(tmp_path / "out")) as run:
        check = named(check_tracker(run), "run_name")
        assert check.status == "warn" and "equals output_dir" in check.detail
    with effective(report_to="wandb", run_name="r32") as run:
        assert named(check_tracker(run), "run_name").status == "pass"


# ---- the name -------------------------------------------------------------------------------------------------------


def config(tmp_path, **given):
    return RunConfig(tmp_path / "run.yaml", {**BASE, **given}, Settings())


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({}, "qwen3-4b-lora-again"),
        ({"lora_rank": 32, "learning_rate": 2e-4}, "qwen3-4b-lora-r32-lr2e-4"),
        ({"learning_rate": "2.0e-4", "seed": 7}, "qwen3-4b-lora-lr2e-4-seed7"),
        ({"dataset": "orders,Ärger/neu"}, "qwen3-4b-lora-orders-rger-neu"),
        ({"weight_decay": 0.1}, "qwen3-4b-lora-wd0.1"),
        ({"packing": True}, "qwen3-4b-lora-packing"),
        ({"lora_rank": None}, "qwen3-4b-lora-no-r"),
        ({"learning_rate": 1.5e-5}, "qwen3-4b-lora-lr1.5e-5"),
        ({"model_name_or_path": "meta-llama/Meta-Llama-3.1-8B"}, "meta-llama-3.1-8b-lora-again"),
        ({"model_name_or_path": "a/b/SmolLM2-135M-Instruct/"}, "smollm2-135m-lora-again"),
        (
            {"save_steps": 7, "report_to": "wandb", "swanlab_api_key": "secret", "hf_hub_token": "x"},
            "qwen3-4b-lora-again",
        ),
    ],
)
def test_a_name_says_what_changed(tmp_path, changed, name):
    assert suggested_run_name(config(tmp_path, **changed), {"given": BASE}) == name


def test_a_name_without_a_last_run(tmp_path):
    assert suggested_run_name(config(tmp_path), None) == "qwen3-4b-lora-r16-lr1e-4"


def test_a_name_is_safe(tmp_path):
    odd = {f"key_{i}": "../../etc/$(x) \n" * 9 for i in range(20)} | {"model_name_or_path": "/"}
    name = suggested_run_name(config(tmp_path, **odd), {"given": BASE})
    assert len(name) <= 64 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-") and ".." not in name
    assert name == suggested_run_name(config(tmp_path, **dict(reversed(odd.items()))), {"given": BASE})


def test_the_last_run(tmp_path):
    def record(folder, rank, started):
        (folder / "obs").mkdir(parents=True)
        row = {"config": {"given": {"lora_rank": rank}}, "segments": [{"started": started}]}
        (folder / "obs" / "run.json").write_text(json.dumps(row))

    one = config(tmp_path, output_dir=str(tmp_path / "saves" / "new"))
    assert last_run(one) is None
    record(tmp_path / "saves" / "a", 8, 100.0)
    record(tmp_path / "saves" / "b", 32, 300.0)
    record(tmp_path / "saves" / "c", 64, 200.0)
    assert last_run(one) == {"name": "b", "given": {"lora_rank": 32}, "started": 300.0}
    (tmp_path / "saves" / "b" / "obs" / "run.json").write_text("{torn")
    assert last_run(one)["name"] == "c"
    archive = tmp_path / "saves" / "a" / "obs" / "archive" / "20260101-000000"
    archive.mkdir(parents=True)
    (archive / "run.json").write_text('{"config": {"given": {"lora_rank": 1}}, "segments": [{"started": 900.0}]}')
    assert (last_run(one)["name"], last_run(one)["given"]) == ("a", {"lora_rank": 1})


# ---- the key, in real trackers --------------------------------------------------------------------------------------


def test_the_project_reaches_wandb(train, monkeypatch, tmp_path):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    train(report_to="wandb", obs=PROJECT, max_steps=1)
    project = wandb.run.project
    wandb.finish()
    assert project == "agents"


@pytest.fixture
def arguments(tmp_path, model, data, llamafactory):
    """`arguments(**overrides)` parses a config as a torchrun worker does: (training, finetuning) arguments."""
    from llamafactory.hparams.parser import get_train_args
    from tiny import tiny_config

    def parse(**overrides):
        _, _, training, finetuning, _ = get_train_args(tiny_config(model, data, tmp_path / "out", **overrides))
        return training, finetuning

    yield parse
    parse()  # takes back what was set


def test_trackers_that_read_an_argument(arguments):
    training, finetuning = arguments(obs=PROJECT)
    assert (training.project, finetuning.swanlab_project) == ("agents", "agents")
    training, finetuning = arguments(obs=PROJECT, project="p", swanlab_project="s")
    assert (training.project, finetuning.swanlab_project) == ("p", "s")
    training, finetuning = arguments()
    assert (training.project, finetuning.swanlab_project) == ("huggingface", "llamafactory")


def test_only_the_named_tracker_is_told(arguments):
    arguments(obs=PROJECT, report_to=["wandb", "mlflow"])
    now = {variable: os.environ.get(variable) for variable in tracker_project.VARIABLES.values()}
    assert {variable for variable, value in now.items() if value == "agents"} == {
        "WANDB_PROJECT",
        "MLFLOW_EXPERIMENT_NAME",
    }


def test_what_the_user_says_stays(arguments, monkeypatch):
    arguments(obs=PROJECT, report_to="wandb")
    arguments(report_to="wandb")  # the next run in this process asks for nothing
    assert "WANDB_PROJECT" not in os.environ
    monkeypatch.setenv("WANDB_PROJECT", "llamafactory")  # what LlamaFactory leaves there after a run
    arguments(obs=PROJECT, report_to="wandb")
    assert os.environ["WANDB_PROJECT"] == "agents"
    monkeypatch.setenv("WANDB_PROJECT", "theirs")
    arguments(obs=PROJECT, report_to="wandb")
    arguments(report_to="wandb")
    assert os.environ["WANDB_PROJECT"] == "theirs"


@pytest.mark.slow
def test_a_worker_of_torchrun_is_told_too(tmp_path, model, data):
    """The argument parser of a fresh process that got the config on its command line, as a torchrun worker does."""
    import subprocess

    from ahead_config import write

    path = write(tmp_path / "run.yaml", model, data, tmp_path / "out", report_to="wandb", obs=PROJECT)
    code = "import os; from llamafactory.hparams.parser import get_train_args; get_train_args(); "
    code += "print('project', os.environ['WANDB_PROJECT'])"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=300)
    assert "project agents" in done.stdout, done.stderr[-2000:]
