"""`resume`: the adapter in the checkpoint is for other modules, of another rank, or no adapter at all.

LlamaFactory was seen to end with an error for another rank, for a whole model, and for an optimizer of other modules.
"""

import json
import shutil

import pytest
from resume_folder import folder, killed, names, point  # noqa: F401
from safetensors.torch import load_file, save_file

pytest.importorskip("torch")


def adapter(checkpoint, **changes):
    """Rewrite adapter_config.json, and for another rank the tensors, too."""
    file = checkpoint / "adapter_config.json"
    config = json.loads(file.read_text()) | changes
    file.write_text(json.dumps(config))
    weights = load_file(checkpoint / "adapter_model.safetensors")
    if "r" in changes:
        weights = {
            name: (one.repeat(2, 1) if "lora_A" in name else one.repeat(1, 2)).contiguous()
            for name, one in weights.items()
        }
    if "target_modules" in changes:
        weights = {
            name: one for name, one in weights.items() if any(f".{t}." in name for t in config["target_modules"])
        }
    save_file(weights, checkpoint / "adapter_model.safetensors")


@pytest.mark.parametrize(
    ("changes", "key"),
    [({"r": 8, "lora_alpha": 8}, "lora_rank"), ({"target_modules": ["q_proj", "v_proj"]}, "lora_target")],
)
def test_another_adapter_in_the_newest_checkpoint(folder, changes, key):  # noqa: F811
    """The record says the config's own rank; the checkpoint's files say another one."""
    adapter(folder.newest, **changes)
    plan = folder.plan()
    assert names(plan.stands) == ["stands.unasked", "stands.misfit"] and key in plan.stands[1].values["keys"]
    assert (plan.best.name, plan.verdict) == ("checkpoint-4", "continues exactly")
    asked = folder.plan("8")
    assert (
        asked.verdict == "does not fit"
        and not asked.may_start
        and key in point(asked.changes, "changed.model").say("en")
    )


def test_a_whole_model_in_place_of_the_adapter(folder):  # noqa: F811
    for file in folder.newest.glob("adapter_*"):
        file.unlink()
    shutil.copy(folder.model / "model.safetensors", folder.newest)
    shutil.copy(folder.model / "config.json", folder.newest)
    plan = folder.plan()
    assert "finetuning_type" in point(plan.stands, "stands.misfit").values["keys"]
    assert plan.verdict == "does not fit"


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize(
    ("keys", "fits"),
    [
        ({"lora_target": "q_proj,v_proj"}, False),
        ({"additional_target": "embed_tokens"}, False),
        ({"lora_target": "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"}, True),  # all of them by name
        ({}, True),
    ],
)
def test_other_modules_in_the_config(folder, recorded, keys, fits):  # noqa: F811
    if not recorded:
        shutil.rmtree(folder.out / "obs")
    plan = folder.plan(**keys)
    assert (plan.verdict == "does not fit") == (not fits)
    assert ("stands.misfit" in names(plan.stands)) == (not fits)
    if fits and recorded:
        assert plan.exit_code == 0


def test_an_adapter_that_is_gone_on_with_has_its_own_rank(folder, tmp_path):  # noqa: F811
    """With adapter_name_or_path LlamaFactory takes rank and modules from there, and not from the config."""
    shutil.copytree(folder.newest, tmp_path / "first")
    shutil.rmtree(folder.out / "obs")
    plan = folder.plan(adapter_name_or_path=str(tmp_path / "first"), lora_rank=16)
    assert plan.verdict == "continues, changed" and "stands.misfit" not in names(plan.stands)


@pytest.mark.parametrize("config", [None, "ds.json"])
def test_deepspeed_reads_its_own_shards_alone(folder, config):  # noqa: F811
    """transformers 5.6.0, `deepspeed_load_checkpoint`: without `global_step*` it ends with an error."""
    plan = folder.plan(deepspeed=config)
    assert (plan.verdict == "does not fit") == (config is not None)
    assert ("deepspeed" in [one.values.get("keys") for one in plan.stands]) == (config is not None)


_DECAY = {"num_stable_steps": 3, "num_decay_steps": 7}


@pytest.mark.parametrize(
    ("recorded", "keys", "key"),
    [
        ({"resize_vocab": True, "additional_target": ["embed_tokens"]}, {"resize_vocab": True}, None),
        ({"additional_target": ["embed_tokens"]}, {}, "additional_target"),
        ({"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": _DECAY}, {}, None),
        (
            {"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": _DECAY},
            {"lr_scheduler_kwargs": {"num_decay_steps": 5}},
            "lr_scheduler_kwargs",
        ),
        ({"stage": "dpo"}, {}, "stage"),
    ],
)
def test_values_that_llamafactory_fills_in_are_no_change(folder, recorded, keys, key):  # noqa: F811
    file = folder.out / "obs" / "run.json"
    record = json.loads(file.read_text())
    for group in record["config"]["resolved"].values():
        group.update({name: value for name, value in recorded.items() if name in group})
    file.write_text(json.dumps(record))
    if "additional_target" in recorded:
        adapter(folder.newest, modules_to_save=["embed_tokens"])
    given = {name: recorded[name] for name in ("lr_scheduler_type",) if name in recorded} | keys
    plan = folder.plan(**given)
    changed = [one.values.get("key") for one in plan.changes]
    assert changed == ([key] if key else [])
