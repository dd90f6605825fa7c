"""Configs for the tests that train in a process of its own."""

import json
from pathlib import Path

import pytest
import yaml
from tiny import WORDS, tiny_config

from llamafactory_obs.preflight.run_config import read_run_config


@pytest.fixture
def config(model, data, tmp_path):
    """`config(**overrides)` reads a run config for the tiny model and data; it is also `run.yaml` in `tmp_path`."""

    def make(**overrides):
        path = tmp_path / "run.yaml"
        given = tiny_config(model, overrides.pop("data", data), tmp_path / "out", **overrides)
        path.write_text(yaml.safe_dump(given))
        return read_run_config(path)

    return make


def two_sets(folder: Path) -> Path:
    """`rows` in the alpaca form and `talks` in the sharegpt form with tags of its own; the longest are in `talks`."""
    folder.mkdir()
    rows = [{"instruction": f"say {word}", "input": "", "output": f"{word} {word}"} for word in WORDS]
    talks = [
        {"talk": [{"who": "u", "text": f"tell {word}"}, {"who": "a", "text": f"{word} " * (5 + 3 * i)}]}
        for i, word in enumerate(WORDS)
    ]
    tags = {"role_tag": "who", "content_tag": "text", "user_tag": "u", "assistant_tag": "a"}
    info = {
        "rows": {"file_name": "rows.json"},
        "talks": {"file_name": "talks.json", "formatting": "sharegpt", "columns": {"messages": "talk"}, "tags": tags},
    }
    for name, content in {"rows": rows, "talks": talks, "dataset_info": info}.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def lengths_by_hand(model: Path, data: Path) -> list[int]:
    """Tokens of the rows of both sets, by the chat format written out here."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)

    def length(question: str, answer: str) -> int:
        text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    rows = json.loads((data / "rows.json").read_text())
    talks = [row["talk"] for row in json.loads((data / "talks.json").read_text())]
    pairs = [(row["instruction"], row["output"]) for row in rows]
    return [length(*pair) for pair in [*pairs, *((one["text"], two["text"]) for one, two in talks)]]
