"""`resume` with wrong words, a torn or strange record, and folders whose names a shell would take apart."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from resume_folder import folder, killed, names, point  # noqa: F401

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.ahead.start import checkpoints_in
from llamafactory_obs.preflight.run_config import read_run_config
from llamafactory_obs.resume.plan import make_plan
from llamafactory_obs.resume.report import as_dict
from llamafactory_obs.resume.show import show

pytest.importorskip("torch")

_WORLD = {"world_size": "a", "local_world_size": [], "launcher": "torchrun", "nodes": "x"}
_STRANGE = [
    {"config": {"resolved": {"a": 5}}, "world": 7, "segments": 5, "data": 3, "model": [1]},
    {"config": {"resolved": 3}, "data": {"datasets": "x", "files": [], "settings": None, "rows": [1]}},
    {"config": {"resolved": {"all": {"per_device_train_batch_size": None, "learning_rate": "x"}}}, "world": _WORLD},
    {"segments": [{"trackers": [1]}, {"trackers": {"wandb": 3}}, 5], "model": {"weights": {"files": [1, {}]}}},
    {},
]


@pytest.mark.parametrize("record", _STRANGE)
def test_a_record_of_other_kinds_is_as_good_as_none(folder, record, tmp_path):  # noqa: F811
    (folder.out / "obs" / "run.json").write_text(json.dumps(record))
    plan = folder.plan(report_to=["wandb"])
    assert plan.best.name == "checkpoint-8" and plan.exit_code == 1
    assert json.dumps(as_dict(plan))
    with open(tmp_path / "screen", "w") as out:
        show(plan, out)


@pytest.mark.parametrize("change", [{"epoch": "x"}, {"max_steps": "x"}, {"save_steps": "x"}, {"log_history": 5}])
def test_a_state_of_other_kinds(folder, change):  # noqa: F811
    file = folder.newest / "trainer_state.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    plan = folder.plan()
    assert plan.changes == [] and json.dumps(as_dict(plan))


@pytest.mark.parametrize("word", ["", ".", "..", "nothing", "7"])
def test_from_names_no_checkpoint(folder, word, monkeypatch):  # noqa: F811
    monkeypatch.chdir(folder.out)
    with pytest.raises(ConfigError, match="no such checkpoint; there are checkpoint-4, checkpoint-8"):
        folder.plan(word)


def test_from_the_checkpoint_one_stands_in(folder, monkeypatch):  # noqa: F811
    monkeypatch.chdir(folder.newest)
    assert folder.plan(".").best.name == "checkpoint-8"


def test_the_output_folder_is_named_in_place_of_a_checkpoint(folder):  # noqa: F811
    plan = folder.plan(resume_from_checkpoint=str(folder.out))
    assert names(plan.stands) == ["stands.asked", "stands.ends"]
    assert plan.best.name == "checkpoint-8" and plan.exit_code == 0


def test_what_to_do_can_be_pasted_whatever_the_folder_is_called(folder, tmp_path):  # noqa: F811
    """The line on the screen, as it stands there, in a shell."""
    out = tmp_path / 'it\'s a "run" $HOME 训练 (1) with a name that is much longer than one line of a screen #x'
    shutil.copytree(folder.out, out)
    (out / "checkpoint-8" / "trainer_state.json").unlink()
    plan = folder.plan(output_dir=str(out))
    with open(tmp_path / "screen", "w") as screen:
        show(plan, screen)
    lines = (tmp_path / "screen").read_text().splitlines()
    (move,) = [line for line in lines if "set_aside" in line]
    subprocess.run(["sh", "-c", move.partition("do: ")[2]], check=True)
    assert (out / "set_aside" / "checkpoint-8").is_dir() and not (out / "checkpoint-8").exists()
    words = shlex.split(plan.launch.text)
    assert words[-1].endswith("checkpoint-4'") and names(folder.plan(output_dir=str(out)).state) == []


@pytest.mark.parametrize(
    ("given", "does"),
    [("", "no_such_folder"), (0, "no_such_folder"), ("false", "no_such_folder"), (False, "off"), (None, "unasked")],
)
def test_words_for_resume_that_are_no_path(folder, given, does):  # noqa: F811
    """The Trainer takes all but null, true and false for a path, also an empty text."""
    file = folder.config()
    keys = yaml.safe_load(file.read_text()) | {"resume_from_checkpoint": given}
    file.write_text(yaml.safe_dump(keys))
    plan = make_plan(read_run_config(file))
    assert plan.stands[0].name == f"stands.{does}" and plan.best.name == "checkpoint-8"


def test_a_checkpoint_that_is_a_link_to_another_disk_lies_inside(folder, tmp_path):  # noqa: F811
    folder.newest.rename(tmp_path / "disk")
    folder.newest.symlink_to(tmp_path / "disk")
    plan = folder.plan()
    assert plan.verdict == "continues exactly" and names(plan.stands) == ["stands.unasked"]
    outside = folder.plan(asked=str(tmp_path / "disk"))
    assert "state.outside" in names(outside.state)


@pytest.mark.parametrize("reverse", [False, True])
def test_two_checkpoints_of_one_number(folder, reverse, monkeypatch):  # noqa: F811
    """transformers takes the one that the folder lists first."""
    from transformers.trainer_utils import get_last_checkpoint

    shutil.copytree(folder.newest, folder.out / "checkpoint-0008")
    listed = sorted(os.listdir(folder.out), reverse=reverse)
    monkeypatch.setattr("os.listdir", lambda place: listed)
    monkeypatch.setattr(type(folder.out), "iterdir", lambda self: (self / name for name in listed))
    assert checkpoints_in(folder.out)[-1] == Path(get_last_checkpoint(folder.out)).name


def test_a_file_in_the_place_of_a_checkpoint_is_not_taken_for_the_newest(folder):  # noqa: F811
    (folder.out / "checkpoint-9").write_text("")
    plan = folder.plan()
    assert point(plan.state, "state.passed").values["checkpoint"] == "checkpoint-9"
    assert "state.leftover" not in names(plan.state) and plan.best.name == "checkpoint-8"


def test_what_a_resume_reads_in_place_of_the_adapter(folder):  # noqa: F811
    shutil.copy(folder.newest / "adapter_model.safetensors", folder.newest / "model.safetensors")
    plan = folder.plan()
    assert point(plan.stands, "stands.wrong").values["why"].startswith("model.safetensors lies beside it")
    assert plan.best.name == "checkpoint-4" and plan.verdict == "continues exactly"
    asked = folder.plan(asked="8")
    assert asked.verdict == "warm start only" and "weights" not in asked.fate.restored


def test_no_dataset_info_is_not_another_entry(folder, tmp_path):  # noqa: F811
    plan = folder.plan(dataset_dir=str(tmp_path / "nowhere"))
    assert "agree.unknown" in names(plan.points) and "agree.entry" not in names(plan.points)
