"""Configs and conversations for the mask gate's tests."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from tiny import WORDS, tiny_config

from llamafactory_obs.preflight.mask.gate import mask_gate
from llamafactory_obs.preflight.run_config import read_run_config

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CHAT = {"formatting": "sharegpt", "columns": {"messages": "conversations", "tools": "tools"}}
CALL = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
TOOLS = '[{"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {}}}]'


def talk(i: int) -> dict:
    """A conversation with a tool call and its reply, then a second question."""
    turns = [
        ("human", f"add {i}"),
        ("function_call", CALL),
        ("observation", '{"sum": 3}'),
        ("gpt", f"it is {WORDS[i]}"),
    ]
    turns += [("human", "and once more, please"), ("gpt", f"still {WORDS[i]}")]
    return {"conversations": [{"from": role, "value": text} for role, text in turns], "tools": TOOLS}


@pytest.fixture
def write(model, tmp_path):
    """`write(**overrides)` makes a config over 12 conversations with tools; `data={name: (rows, entry)}` other ones."""

    def make(data: dict | None = None, **overrides) -> Path:
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        data = data or {"talks": ([talk(i) for i in range(12)], CHAT)}
        info = {}
        for name, (rows, entry) in data.items():
            (folder / f"{name}.json").write_text(json.dumps(rows), encoding="utf-8")
            info[name] = {"file_name": f"{name}.json", **entry}
        (folder / "dataset_info.json").write_text(json.dumps(info), encoding="utf-8")
        obs = overrides.pop("obs", {"mask_range": [0.0, 0.95]})
        given = {"dataset": ",".join(data), "cutoff_len": 1024, "obs": obs, "callbacks": ["label_mask"], **overrides}
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(tiny_config(given.pop("model", model), folder, tmp_path / "out", **given)))
        return path

    return make


@pytest.fixture
def judge(write):
    def run(samples=None, accept=False, show=3, **overrides):
        return mask_gate(read_run_config(write(**overrides)), samples, show, accept)

    return run


@pytest.fixture
def chat_model(model, tmp_path):
    """The tiny model with a chat template of its own."""
    shutil.copytree(model, tmp_path / "chat")
    (tmp_path / "chat" / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    return tmp_path / "chat"


def failed(report) -> set[str]:
    return {check.name for check in report.checks if check.status in ("fail", "error")}
