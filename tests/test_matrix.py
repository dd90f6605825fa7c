"""Every callback that there is, through real fits of every stage. A new callback is found here by itself."""

import pytest

from llamafactory_obs import load_record
from llamafactory_obs.plugin.registry import OWN, resolve

STAGES = {
    "sft": {},
    "pt": {"stage": "pt", "dataset": "text", "cutoff_len": 32},
    "dpo": {"stage": "dpo", "dataset": "pairs"},
    "rm": {"stage": "rm", "dataset": "pairs", "finetuning_type": "lora"},
    "kto": {"stage": "kto", "dataset": "votes"},
}
SHAPES = {
    "plain": {},
    "accumulation": {"gradient_accumulation_steps": 2},
    "packing": {"packing": True, "cutoff_len": 64},
    "eval": {"val_size": 0.2, "eval_strategy": "steps", "eval_steps": 2},
    "checkpointing": {"finetuning_type": "lora", "disable_gradient_checkpointing": False},
    "sparse_log": {"logging_steps": 50},
}
#: options that keep a matrix run short (the probe's companion has tests of its own: test_probe_callback.py), or let
#: every step have every number (what takes passes over the weights is made at every 100th step by itself)
OPTIONS = {"probe": {"companion": False}, "optimizer": {"every": 1}}
ALL = [{name: OPTIONS[name]} if name in OPTIONS else name for name in OWN]
ROW = {"step", "time", "segment"}
#: columns of an evaluation or of a probed checkpoint: they stand at its step alone
AT_TIMES = ("eval/", "quality/", "probe_")
#: with a GradScaler only
FP16 = ("train/loss_scale", "train/steps_skipped")


def check(out, names, steps=4):
    from llamafactory_obs.callbacks.basics import Basics

    record = load_record(out)
    off = [event for event in record.events if event["kind"] == "callback_off"]
    assert off == [], off
    assert record.steps["step"] == list(range(1, steps + 1))
    declared = {key.name for name in names for key in resolve(name, name).keys} | {key.name for key in Basics.keys}
    columns = {column for column in record.steps if not column.startswith(AT_TIMES)}
    assert columns <= declared | ROW, "every logged key is declared"
    assert {"train/loss", "train/lr", "train/grad_norm", "train/clip_coef"} <= columns
    assert all(None not in record.steps[c] for c in columns), "every step has every number"
    kinds = [event["kind"] for event in record.events]
    assert kinds.count("start") == kinds.count("end") == 1
    return record


@pytest.mark.parametrize("stage", STAGES)
def test_all_callbacks_in_every_stage(train, stage):
    record = check(train(callbacks=ALL, max_steps=4, **STAGES[stage]), OWN)
    if stage != "rm":  # LlamaFactory's reward model run gives labels too; its value head has no tokens to supervise
        assert all(0 < share <= 1 for share in record.steps["data/supervised_ratio"])


@pytest.mark.parametrize("shape", SHAPES)
def test_all_callbacks_in_every_shape(train, shape):
    record = check(train(callbacks=ALL, max_steps=4, **SHAPES[shape]), OWN)
    if shape == "eval":
        assert [x is not None for x in record.steps["eval/loss"]] == [False, True, False, True]


@pytest.mark.parametrize("name", OWN)
def test_each_callback_alone(train, name):
    record = check(
        train(callbacks=[{name: OPTIONS.get(name)}], max_steps=4, report_to="tensorboard", plot_loss=False), [name]
    )
    hardware = ("system/fragmentation", "system/gpu_", "system/sm_", "system/pcie_", "system/host_disk")
    everywhere = {key.name for key in resolve(name, name).keys if "gib" not in key.name}
    assert not {
        column
        for column in everywhere - set(record.steps)
        if not column.startswith((*hardware, *AT_TIMES, *FP16, "ranks/"))  # tests/test_ranks_watch.py
    }


@pytest.mark.parametrize("stage", ["sft", "dpo", "pt"])
def test_all_callbacks_after_a_resume(train, stage):
    out = train(callbacks=ALL, max_steps=4, save_steps=2, **STAGES[stage])
    again = {"output_dir": out, "resume_from_checkpoint": str(out / "checkpoint-2"), "overwrite_output_dir": False}
    train(callbacks=ALL, max_steps=6, **STAGES[stage], **again)
    record = load_record(out)
    assert "callback_off" not in [event["kind"] for event in record.events]
    assert record.steps["step"] == [1, 2, 3, 4, 5, 6] and record.steps["segment"] == [0, 0, 1, 1, 1, 1]
    columns = [column for column in record.steps if not column.startswith(AT_TIMES)]
    assert all(None not in record.steps[column] for column in columns)


@pytest.mark.parametrize("name", OWN)
def test_each_callback_in_a_plain_trainer(model, tmp_path, name):
    import torch
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    rows = [{"input_ids": torch.arange(3, 11), "labels": torch.arange(3, 11)} for _ in range(8)]
    arguments = TrainingArguments(tmp_path, max_steps=4, report_to="none", use_cpu=True, save_strategy="no")
    callback = resolve(name, name)(**OPTIONS.get(name, {}))
    Trainer(AutoModelForCausalLM.from_pretrained(model), arguments, train_dataset=rows, callbacks=[callback]).train()
    check(tmp_path, [name])


def test_the_key_table_in_the_docs_is_the_code_s():
    from pathlib import Path

    from llamafactory_obs.callbacks.basics import Basics

    text = (Path(__file__).parent.parent / "docs" / "keys.md").read_text(encoding="utf-8")
    rows = [
        tuple(cell.strip() for cell in line.strip("|\n ").split("|"))
        for line in text.splitlines()
        if line.startswith("| `")
    ]
    documented = [(row[0].strip("`"), row[1], row[2], row[3], row[4].strip("`")) for row in rows]
    wanted = [(key.name, key.unit, key.reduce, key.doc, "every record") for key in Basics.keys]
    for name in OWN:
        wanted += [(key.name, key.unit, key.reduce, key.doc, name) for key in resolve(name, name).keys]
    for name in OWN:
        who = f"{name}`, tracker only"
        wanted += [(key.name, key.unit, key.reduce, key.doc, who) for key in resolve(name, name).tracker_keys]
    assert documented == wanted
