"""Every template is really run on a tiny model: only model, data, folder, device and number of steps are changed."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from test_init import TEMPLATES

from llamafactory_obs import init, load_record
from llamafactory_obs.plugin.entries import parse_entries
from llamafactory_obs.settings import Settings

#: bf16 is left to the smoke run: slow on a CPU, and its setting stays in the process's environment
FEW = {"bf16": False, "save_steps": 2, "eval_steps": 2, "gradient_accumulation_steps": 1, "disable_tqdm": True}

SMOKE = ["grad_norm_spike", "layer_norms", "label_mask", "vram"]
FULL = [*SMOKE, "throughput", "system", "optimizer", "quality", "samples", "diagnose", "checkpoint_guard"]


def read(name: str) -> dict:
    return yaml.safe_load((init.data_folder("yaml_templates") / name).read_text(encoding="utf-8"))


def overrides(model: Path, data: Path, output_dir: Path) -> dict:
    return {
        "model_name_or_path": str(model),
        "dataset": "rows",
        "dataset_dir": str(data),
        "output_dir": str(output_dir),
        "preprocessing_num_workers": 1,
        "use_cpu": True,  # without a GPU the Trainer takes `bf16: true` only with it
    }


def run(name: str, model: Path, data: Path, output_dir: Path, **changes):
    from llamafactory.train.tuner import run_exp

    config = {**read(name), **overrides(model, data, output_dir), **FEW, **changes}
    run_exp({key: value for key, value in config.items() if value is not None})
    return load_record(output_dir)


@pytest.mark.parametrize("name", TEMPLATES)
def test_keys_are_ours_and_lines_are_explained(llamafactory, name):
    config = read(name)
    names = {"smoke.yaml": SMOKE, "full_with_vllm.yaml": [*FULL, "probe"]}.get(name, FULL)
    assert [entry.name for entry in parse_entries(config["callbacks"])] == names
    assert Settings.parse(config["obs"]).mask_range == (0.2, 0.4)
    text = (init.data_folder("yaml_templates") / name).read_text(encoding="utf-8")
    assert text.count("#") >= 25 and max(map(len, text.splitlines())) <= 120


@pytest.mark.slow
def test_smoke_by_the_unmodified_command_after_init(model, data, tmp_path):
    init.write(tmp_path)
    words = [f"{key}={value}" for key, value in overrides(model, data, tmp_path / "out").items()]
    code = "from llamafactory.cli import main; main()"  # what the command `llamafactory-cli` runs
    command = [sys.executable, "-c", code, "train", "smoke.yaml", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # a tiny model is faster so
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    record = load_record(tmp_path / "out")
    assert record.steps["step"] == list(range(1, 11))
    assert None not in record.steps["train/grad_norm"] and record.layers.rows and record.run
    assert (tmp_path / "out" / "checkpoint-10" / "adapter_model.safetensors").is_file()


def test_full_without_vllm_then_resume(model, data, tmp_path):
    record = run("full_without_vllm.yaml", model, data, tmp_path / "out", max_steps=4)
    assert record.steps["step"] == [1, 2, 3, 4]
    assert record.steps["eval/loss"][1] is not None and record.steps["eval/loss"][3] is not None
    first = record.steps["train/loss"]

    checkpoint = str(tmp_path / "out" / "checkpoint-2")
    record = run("resume.yaml", model, data, tmp_path / "out", max_steps=4, resume_from_checkpoint=checkpoint)
    assert record.steps["step"] == [1, 2, 3, 4] and record.steps["segment"] == [0, 0, 1, 1]
    assert any(event["kind"] == "resume" for event in record.events)
    assert record.steps["train/loss"][2:] == first[2:]


def test_resume_is_the_full_run_but_for_its_own_keys():
    full, resume = read("full_without_vllm.yaml"), read("resume.yaml")
    assert {key for key in full | resume if full.get(key) != resume.get(key)} == {
        "resume_from_checkpoint",
        "ignore_data_skip",
    }


def test_full_with_vllm(model, data, tmp_path):
    assert read("full_with_vllm.yaml")["quantization_bit"] == 4
    without = {"quantization_bit": None, "quantization_method": None}  # they need bitsandbytes and a GPU
    without["callbacks"] = [entry for entry in read("full_with_vllm.yaml")["callbacks"] if "probe" not in entry]
    record = run("full_with_vllm.yaml", model, data, tmp_path / "out", max_steps=2, **without)
    assert record.steps["step"] == [1, 2]
    assert record.steps["data/supervised_ratio"][0] > 0


# ---- the probes -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def suite() -> dict:
    return yaml.safe_load((init.data_folder("probes") / "order_query.yaml").read_text(encoding="utf-8"))


def test_probes_word_for_word(suite):
    asked = [probe["messages"][-1]["content"] for probe in suite["probes"]]
    assert asked == ["查一下华东区 8 月的订单", "你好，你是谁？", "查华东地区 8 月的订单"]
    first, second, third = (probe["expect"] for probe in suite["probes"])
    assert first["calls"] == [{"name": "query_orders", "arguments": {"region": "华东区", "month": 8}}]
    assert second["calls"] == []
    assert third["after_error"]["no_repeat"] == {"region": ["华东地区"]}


def test_the_simulated_tool_knows_the_legal_values(suite):
    legal, month, region = suite["tool_replies"]
    properties = suite["tools"][0]["parameters"]["properties"]
    assert legal["when"]["region"] == month["when"]["region"] == properties["region"]["enum"]
    assert legal["when"]["month"] == list(range(properties["month"]["minimum"], properties["month"]["maximum"] + 1))
    assert "when" not in region and region["reply"]["regions"] == properties["region"]["enum"]


def test_probes_use_the_tool_and_prompt_of_the_demo_data(suite):
    path = ROOT / "demo" / "make_data.py"
    spec = importlib.util.spec_from_file_location("make_data", path)
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    assert suite["system"] == demo.SYSTEM and suite["tools"] == [demo.TOOL]
    right, *_, wrong = (json.dumps(row["reply"], ensure_ascii=False) for row in suite["tool_replies"])
    assert right == demo.result_text(["A17", "C32"]) and wrong == demo.error_text("{region}")
