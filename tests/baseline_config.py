"""A run config on the tiny model, a suite whose scores are known, and a server that answers as the test says."""

import json
import shutil
from pathlib import Path

import yaml
from tiny import tiny_config
from vllm_stub import Stub

SUITE = """\
name: sums
max_new_tokens: 12
max_turns: 2
system: You add.
tools:
  - name: add
    description: adds one
    parameters: {type: object, properties: {a: {type: integer}}, required: [a]}
tool_replies:
  - {tool: add, reply: {sum: 3}}
probes:
  - {name: right, messages: [{role: user, content: add 1}], expect: {calls: [{name: add, arguments: {a: 1}}]}}
  - {name: wrong, messages: [{role: user, content: add 2}], expect: {calls: [{name: add, arguments: {a: 2}}]}}
  - {name: none, messages: [{role: user, content: hello}], expect: {calls: []}}
"""
#: what a model scores on it that always calls add(1) and then says a word, counted by hand: the call is well-formed
#: three times; the tool is right for two of three; the argument is wrong once (where none is wanted it fits the schema)
KNOWN = {"format": [3, 3], "tool_choice": [2, 3], "arguments": [2, 3], "task": [1, 3]}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


class Caller(Stub):
    """Serves a model that calls add(1), and answers `alpha` once the tool has replied."""

    def __init__(self, model: Path):
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(model)
        super().__init__()
        self.root = str(model)

    @property
    def stream(self):
        prompt = self._tokenizer.decode(self.requests[-1][1]["prompt"])
        text = "alpha" if "<tool_response>" in prompt else CALL
        ids = self._tokenizer.encode(text + "<|im_end|>", add_special_tokens=False)
        return [{"choices": [{"token_ids": ids, "finish_reason": "stop", "stop_reason": ids[-1]}]}]

    @stream.setter
    def stream(self, value): ...


def write_config(folder: Path, model: Path, data: Path, suite: str = SUITE, **overrides) -> Path:
    """`run.yaml` and `suite.yaml` in a folder; the probe callback is not listed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "suite.yaml").write_text(suite, encoding="utf-8")
    obs = {"suite": str(folder / "suite.yaml"), **(overrides.pop("obs", None) or {})}
    config = tiny_config(model, data, folder / "out", obs=obs, **overrides)
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def copy_model(model: Path, folder: Path) -> Path:
    """The tiny model in a folder of its own, to be changed."""
    shutil.copytree(model, folder)
    return folder


def edit(path: Path, change) -> None:
    """`change(record)` on a JSON file."""
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def statuses(report) -> dict[str, str]:
    return {check.name: check.status for check in report.checks}


def bad(report) -> set[str]:
    return {check.name for check in report.checks if check.status in ("fail", "error")}


def detail(report, name: str) -> str:
    return next(check.detail for check in report.checks if check.name == name)
