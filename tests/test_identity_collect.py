"""The whole identity: complete, plain JSON, quick, and able to say what two runs had apart (ID-1)."""

import copy
import json
import random
import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace as Row

import pytest

from llamafactory_obs.identity import collect, difference, patch, statement

KEYS = {"code", "packages", "data", "model", "config", "seeds", "precision", "hardware", "world", "determinism"}
KEYS |= {"unknown"}


@dataclass
class TrainingArgs:
    """As much of TrainingArguments as is read."""

    output_dir: str = "out"
    seed: int = 42
    data_seed: int | None = None
    full_determinism: bool = False
    bf16: bool = False
    fp16: bool = False
    world_size: int = 1
    n_gpu: int = 1
    per_device_train_batch_size: int = 1
    gradient_accumulation_steps: int = 1
    hub_token: str | None = None
    _private: object = None
    state: object = field(default=None, init=False)


def finished(*args, **options):
    identity, jobs = collect(*args, **options)
    for name, job in jobs:
        patch(identity, name, job())
    return identity


def whats(identity):
    return {row["what"] for row in identity["unknown"]}


def test_a_plain_trainer_has_every_key_and_names_what_is_missing(tmp_path):
    args = TrainingArgs(hub_token="s3cret", _private="private thing")
    args.state = Row()
    identity, jobs = collect(args, cwd=tmp_path)
    assert set(identity) == KEYS and jobs == []
    text = json.dumps(identity, allow_nan=False)
    assert "s3cret" not in text and "private thing" not in text
    assert identity["config"]["resolved"]["training_args"]["hub_token"] == "***"
    assert "state" not in identity["config"]["resolved"]["training_args"]
    want = (
        "code data data.rows model.weights model.name_or_path model.tokenizer config.given config.resolved.model_args"
    )
    assert set(want.split()) <= whats(identity)
    assert len(whats(identity)) == len(identity["unknown"])


class Broken:
    def __getattribute__(self, name):
        raise RuntimeError("broken")


def test_nothing_raises_whatever_is_given(tmp_path):
    broken = Broken()
    identity, jobs = collect(
        broken,
        given_config={"a": object()},
        model_args=broken,
        data_args=broken,
        finetuning_args=broken,
        generating_args=broken,
        model=broken,
        tokenizer=broken,
        train_dataset=broken,
        cwd=tmp_path / "gone",
    )
    assert set(identity) == KEYS
    json.dumps([identity, [(name, job()) for name, job in jobs]], allow_nan=False)
    assert {"code", "data.rows", "config.resolved.training_args", "world.world_size"} <= whats(identity)


def llamafactory_like(tmp_path):
    (tmp_path / "one.json").write_text("[]")
    (tmp_path / "dataset_info.json").write_text('{"one.v2": {"file_name": "one.json"}, "hub": {"hf_hub_url": "o/n"}}')
    weights = tmp_path / "model"
    weights.mkdir(exist_ok=True)
    (weights / "model.safetensors").write_bytes(b"w")
    (weights / "config.json").write_text("{}")
    return {
        "model_args": Row(model_name_or_path=str(weights), hf_hub_token="s3cret"),
        "data_args": Row(dataset=["one.v2", "hub"], dataset_dir=str(tmp_path), template="qwen"),
    }


def test_slow_fields_wait_in_unknown_until_they_are_patched(tmp_path):
    pytest.importorskip("pyarrow")
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"input_ids": [[1, 2]], "labels": [[-100, 2]]})
    identity, jobs = collect(TrainingArgs(), train_dataset=rows, cwd=tmp_path, **llamafactory_like(tmp_path))
    names = [name for name, _ in jobs]
    assert names == ["data.files", "data.rows", "model.weights"]
    assert set(names) <= whats(identity)
    assert identity["data"]["rows"] is None and identity["model"]["weights"] is None
    for name, job in jobs:
        patch(identity, name, job())
    assert not set(names) & whats(identity)
    assert identity["data"]["rows"]["tokens"] == 2 and len(identity["model"]["weights"]["sha256"]) == 64
    assert identity["data"]["files"]["one.v2"]["files"][0]["bytes"] == 2  # a dot in a name is no path
    assert identity["data"]["files"]["hub"] is None and "data.files.hub" in whats(identity)
    assert "s3cret" not in json.dumps(identity, allow_nan=False)


def test_a_job_that_fails_stays_unknown_with_its_new_reason(tmp_path):
    identity, jobs = collect(TrainingArgs(), cwd=tmp_path, **llamafactory_like(tmp_path))
    (tmp_path / "model" / "model.safetensors").unlink()
    patch(identity, "model.weights", dict(jobs)["model.weights"]())
    rows = [row for row in identity["unknown"] if row["what"] == "model.weights"]
    assert len(rows) == 1 and "no weight file" in rows[0]["why"] and identity["model"]["weights"] is None


def test_nothing_is_drawn(tmp_path):
    collect(TrainingArgs(), cwd=tmp_path)
    state = random.getstate()
    collect(TrainingArgs(), cwd=tmp_path, **llamafactory_like(tmp_path))
    assert random.getstate() == state


def test_equal_starts_have_no_difference(tmp_path):
    first, second = (finished(TrainingArgs(), cwd=tmp_path, **llamafactory_like(tmp_path)) for _ in range(2))
    assert difference(first, second) == []
    assert difference(json.loads(json.dumps(first)), second) == []


def test_id_1_every_difference_is_listed_and_repeatability_is_stated(tmp_path):
    """ID-1: equal config and seed, another loss. Only data_seed, GPU count, attention and one version differ."""
    pytest.importorskip("torch")
    net = Row(config=Row(_attn_implementation="sdpa"), parameters=lambda: [], modules=lambda: [])
    files = llamafactory_like(tmp_path)
    first = finished(TrainingArgs(data_seed=1), model=net, cwd=tmp_path, **files)
    net.config._attn_implementation = "eager"
    second = finished(TrainingArgs(data_seed=2, world_size=2), model=net, cwd=tmp_path, **files)
    second = copy.deepcopy(second)
    gpu = {"name": "NVIDIA H200", "memory_gib": 139.8}
    second["hardware"].update(gpu_count=1, gpus=[gpu])
    second["packages"]["list"] = [
        "transformers==9.9.9" if row.startswith("transformers==") else row for row in second["packages"]["list"]
    ] + ["vllm==1.0"]
    second["packages"]["sha256"] = "other"
    got = {row["key"]: (row["a"], row["b"]) for row in difference(first, second)}
    version = next(row.split("==")[1] for row in first["packages"]["list"] if row.startswith("transformers=="))
    assert got["seeds.data_seed"] == (1, 2) and got["world.world_size"] == (1, 2)
    assert got["model.attn_implementation"] == ("sdpa", "eager")
    assert got["packages.transformers"] == (version, "9.9.9") and got["packages.vllm"] == (None, "1.0")
    assert got["hardware.gpu_count"][1] == 1 and got["hardware.gpus.NVIDIA H200"] == (None, gpu)
    assert "packages.sha256" not in got and "seeds.seed" not in got
    related = ("seeds", "world", "model.attn", "packages", "hardware.gpu", "config.resolved.training_args", "unknown")
    assert [key for key in got if not key.startswith(related)] == []
    assert statement(first).startswith("deterministic: no (torch.use_deterministic_algorithms is off")


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        ({"x": None}, {}, []),
        ({"x": 1}, {"x": True}, [{"key": "x", "a": 1, "b": True}]),
        ({"x": 1}, {"x": 1.0}, []),
        ({"x": {"y": 1}}, {"x": None}, [{"key": "x", "a": {"y": 1}, "b": None}]),
        ({"x": {"y": {"z": None}}}, {}, []),
        ({"x": {"y": 1}}, {"x": 2}, [{"key": "x", "a": {"y": 1}, "b": 2}]),
        ({"x": [1, 2]}, {"x": [2, 1]}, [{"key": "x", "a": [1, 2], "b": [2, 1]}]),
        ({"u": [{"what": "p", "why": "q"}]}, {"u": []}, [{"key": "u.p", "a": {"what": "p", "why": "q"}, "b": None}]),
        (
            {"gpus": [{"name": "H200", "uuid": "1"}, {"name": "H200", "uuid": "2"}]},
            {"gpus": [{"name": "H200", "uuid": "1"}, {"name": "H200", "uuid": "3"}]},
            [{"key": "gpus.1.uuid", "a": "2", "b": "3"}],
        ),
        (
            {"d": [{"role": "train", "name": "x", "n": 1}, {"role": "eval", "name": "x", "n": 1}]},
            {"d": [{"role": "eval", "name": "x", "n": 2}, {"role": "train", "name": "x", "n": 1}]},
            [{"key": "d.eval.x.n", "a": 1, "b": 2}],
        ),
    ],
)
def test_difference_of_small_things(a, b, want):
    assert difference(a, b) == want


def test_it_imports_and_runs_without_torch_transformers_and_llamafactory():
    code = """
import sys
for name in ("torch", "transformers", "llamafactory", "datasets", "pyarrow", "pynvml", "psutil"):
    sys.modules[name] = None
from llamafactory_obs.identity import collect
identity, jobs = collect(type("A", (), {"seed": 1})())
assert identity["seeds"]["seed"] == 1 and jobs == [], jobs
print(identity["determinism"]["deterministic"])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "unknown", result.stderr
