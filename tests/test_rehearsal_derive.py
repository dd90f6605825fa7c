"""What a rehearsal changes in a config."""

from pathlib import Path

import pytest
import yaml

from llamafactory_obs.preflight.rehearsal.derive import derive, write_config
from llamafactory_obs.preflight.run_config import RunConfig
from llamafactory_obs.settings import Settings

pytestmark = pytest.mark.usefixtures("llamafactory")
GIVEN = {
    "model_name_or_path": "m",
    "stage": "sft",
    "bf16": True,
    "deepspeed": "z3.json",
    "quantization_bit": 4,
    "save_only_model": True,
    "learning_rate": 1e-4,
    "lr_scheduler_type": "cosine",
    "warmup_ratio": 0.1,
    "report_to": "wandb",
    "push_to_hub": True,
    "resume_from_checkpoint": "out/checkpoint-500",
    "val_size": 0.1,
    "eval_strategy": "steps",
    "load_best_model_at_end": True,
    "early_stopping_steps": 3,
    "mask_history": True,
    "cutoff_len": 512,
    "streaming": True,
    "output_dir": "out",
}


def make(given=None, callbacks=(), obs=None):
    return RunConfig(Path("run.yaml"), GIVEN if given is None else given, Settings.parse(obs), tuple(callbacks))


def derived(config, **changes):
    return derive(config, {"dataset": "001_a"}, Path("/x/smoke"), ["vram", {"label_mask": {"min_steps": 3}}], changes)


def test_machine_method_and_rendering_are_kept_and_the_rest_is_named():
    result = derived(make(), max_steps=10)
    given = result.given
    for key in (
        "bf16",
        "deepspeed",
        "quantization_bit",
        "save_only_model",
        "learning_rate",
        "mask_history",
        "cutoff_len",
    ):
        assert given[key] == GIVEN[key] and key not in result.changed
    gone = ("resume_from_checkpoint", "val_size", "warmup_ratio", "early_stopping_steps")
    assert not [key for key in gone if key in given]
    assert given["report_to"] == "none" and given["push_to_hub"] is False and given["eval_strategy"] == "no"
    assert given["load_best_model_at_end"] is False and given["disable_shuffling"] is True
    assert given["output_dir"] == "/x/smoke" and given["max_steps"] == 10
    assert result.changed["lr_scheduler_type"] == {"from": "cosine", "to": "constant"}
    for key in set(given) | set(GIVEN):
        if given.get(key) != GIVEN.get(key) and key not in ("obs", "callbacks"):
            assert key in result.changed or given.get(key) in (False, 0, "none", "no", "concat"), key


def test_their_callbacks_and_our_probe_are_left_out_and_named():
    listed = ["vram", {"probe": {"wait_s": 1}}, "my.pkg.Callback", {"name": "/a.py:B", "args": {}}]
    result = derived(make(callbacks=listed, obs={"limit_gib": 40, "mask_range": [0.1, 0.9]}))
    assert result.left_out == ["probe", "my.pkg.Callback", "/a.py:B"]
    assert result.given["callbacks"] == ["vram", {"label_mask": {"min_steps": 3}}]
    assert result.given["obs"] == {"limit_gib": 40.0, "mask_range": [0.1, 0.9]}


def test_it_is_plain_yaml(tmp_path):
    write_config(derived(make()), tmp_path / "x.yaml", "note")
    assert yaml.safe_load((tmp_path / "x.yaml").read_text())["learning_rate"] == 1e-4
