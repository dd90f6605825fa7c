"""Text where LlamaFactory needs a number or true/false: told before anything is parsed."""

import json

import pytest
import yaml
from tiny import tiny_config

from llamafactory_obs.cli import main
from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.run_config import parsed, read_run_config

pytestmark = pytest.mark.usefixtures("llamafactory")


@pytest.fixture
def read(model, data, tmp_path):
    """`read(overrides, suffix, **keys)`: LlamaFactory's training arguments for a config file."""

    def make(overrides=(), suffix="json", **keys):
        given = tiny_config(model, data, tmp_path / "out", **keys)
        path = tmp_path / f"run.{suffix}"
        path.write_text(json.dumps(given) if suffix == "json" else yaml.safe_dump(given))
        with parsed(read_run_config(path, overrides)) as arguments:
            return arguments

    return make


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("learning_rate", "1e-4"),
        ("save_steps", "100"),
        ("max_steps", "700"),
        ("lora_rank", "32"),
        ("val_size", "0.1"),
        ("num_train_epochs", "3"),
        ("cutoff_len", "128"),
        ("save_total_limit", "3"),
        ("quantization_bit", "4"),
        ("warmup_ratio", "a tenth"),
    ],
)
def test_a_number_as_text(read, key, text):
    with pytest.raises(ConfigError, match=f"{key} is the text '{text}': write a number without quotes"):
        read(**{key: text})


@pytest.mark.parametrize(("key", "text"), [("overwrite_output_dir", "false"), ("do_train", "true"), ("bf16", "no")])
def test_true_or_false_as_text(read, key, text):
    with pytest.raises(ConfigError, match=f"{key} is the text '{text}', which counts as true: write true or false"):
        read(**{key: text})


def test_all_are_named_at_once(read):
    with pytest.raises(ConfigError, match=r"learning_rate .* packing .*converts nothing"):
        read(learning_rate="1e-4", packing="true")


def test_what_is_no_number_is_left_alone(read):
    keys = {"warmup_steps": 0.1, "save_steps": 0.5, "val_size": 3, "include_num_input_tokens_seen": "all"}
    keys |= {"lora_target": "q_proj", "report_to": ["none"], "max_samples": None}
    assert read(**keys).training.save_steps == 0.5


def test_yaml_and_the_command_line_read_an_exponent_as_a_number(read):
    """PyYAML alone would read `1e-4` as text; LlamaFactory's OmegaConf does not."""
    assert read(suffix="yaml", learning_rate="1e-4").training.learning_rate == 1e-4
    assert read(["learning_rate=1e-5", "lora_rank=16"]).training.learning_rate == 1e-5


def test_the_verbs_say_it_in_one_line(read, model, data, tmp_path, capsys):
    (tmp_path / "run.json").write_text(json.dumps(tiny_config(model, data, tmp_path / "out", max_steps="5")))
    assert main(["preflight", str(tmp_path / "run.json")]) == 2
    assert "max_steps is the text '5'" in capsys.readouterr().err


@pytest.mark.parametrize("callbacks", [{"vram": {}}, {}, 5])
def test_callbacks_that_are_no_list(tmp_path, callbacks):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"stage": "sft", "callbacks": callbacks}))
    with pytest.raises(ConfigError, match="callbacks: must be a list"):
        read_run_config(path)


def test_a_config_remembers_how_it_was_called(tmp_path):
    path = tmp_path / "run one.json"
    path.write_text(json.dumps({"stage": "sft", "obs": {}}))
    config = read_run_config(path, ["lora_rank=8"])
    assert config.words == [str(path), "lora_rank=8"] and config.ours == ("obs",)
