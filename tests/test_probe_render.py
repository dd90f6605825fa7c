"""The probe's prompts against LlamaFactory's own pipeline, and the parity check against the chat template."""

import dataclasses
import json

import pytest
from conftest import ROOT

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.probe.facts import RunFacts, read_facts
from llamafactory_obs.suite import Tool, load_suite, shipped_suite


@pytest.fixture(scope="module")
def suite():
    return load_suite(shipped_suite())


@pytest.fixture
def folder(llamafactory, model, tmp_path):
    """The tiny model's tokenizer in a folder of its own, without a chat template."""
    import shutil

    shutil.copytree(model, tmp_path / "model")
    return tmp_path / "model"


def facts_for(folder, template="qwen3_nothink", **rendering):
    return RunFacts(model=str(folder), rendering={"template": template, **rendering})


def encoded_by_llamafactory(row: dict, folder, tmp_path, **settings) -> list[dict]:
    """The rows as LlamaFactory's own data pipeline gives them to the Trainer."""
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import get_train_args
    from transformers import AutoTokenizer

    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "rows.json").write_text(json.dumps([row]), encoding="utf-8")
    info = {"rows": {"file_name": "rows.json", "formatting": "sharegpt", "columns": {}}}
    info["rows"]["columns"] = {"messages": "conversations", "system": "system", "tools": "tools"}
    (tmp_path / "data" / "dataset_info.json").write_text(json.dumps(info), encoding="utf-8")
    given = {
        "model_name_or_path": str(folder),
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "full",
        "dataset_dir": str(tmp_path / "data"),
        "dataset": "rows",
        "cutoff_len": 100000,
        "overwrite_cache": True,
        "output_dir": str(tmp_path / "run"),
        "report_to": "none",
        **settings,
    }
    model_args, data_args, training_args, _, _ = get_train_args(given)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    template = get_template_and_fix_tokenizer(tokenizer, data_args)
    return get_dataset(template, model_args, data_args, training_args, "sft", tokenizer=tokenizer)["train_dataset"]


def as_messages(conversation: list[dict]) -> list[dict]:
    roles = {"human": "user", "gpt": "assistant", "observation": "tool"}
    messages = []
    for turn in conversation:
        if turn["from"] == "function_call":
            calls = json.loads(turn["value"])
            messages.append({"role": "assistant", "tool_calls": calls if isinstance(calls, list) else [calls]})
        else:
            messages.append({"role": roles[turn["from"]], "content": turn["value"]})
    return messages


@pytest.mark.parametrize("template", ["qwen3_nothink", "qwen3", "llama3", "glm4", "mistral", "smollm2"])
def test_prompts_are_the_tokens_that_were_trained(folder, tmp_path, suite, template):
    """Each turn's prompt, in a dialogue with an error and a second call, is a prefix of the training row."""
    from llamafactory_obs.probe.render.choose import choose

    rows = json.loads((ROOT / "demo" / "data" / "orders.json").read_text(encoding="utf-8"))
    row = max(rows, key=lambda row: len(row["conversations"]))
    assert [turn["from"] for turn in row["conversations"]].count("function_call") >= 2
    (encoded,) = encoded_by_llamafactory(row, folder, tmp_path, template=template)
    renderer = choose(folder, facts_for(folder, template), None, None)
    tools = tuple(Tool(t["name"], t["description"], t["parameters"]) for t in json.loads(row["tools"]))
    probe = dataclasses.replace(suite.probes[0], system=row["system"], tools=tools)
    messages = as_messages(row["conversations"])
    prompts = [renderer.encode(messages[:end], probe) for end in range(1, len(messages), 2)]
    assert len(prompts) >= 3
    for prompt in prompts:
        assert encoded["input_ids"][: len(prompt)] == prompt
    starts = [
        i for i, (a, b) in enumerate(zip([-100, *encoded["labels"]], encoded["labels"], strict=False)) if a == -100 != b
    ]
    if template != "qwen3":  # a reasoning template trains an empty thought before the answer: generated, not prompted
        assert [len(prompt) for prompt in prompts] == starts, "the model speaks where the loss begins"


def test_settings_of_the_run_count(folder, suite):
    from llamafactory_obs.probe.render.choose import choose

    probe = dataclasses.replace(suite.probes[1], system="", tools=())
    plain = choose(folder, facts_for(folder), None, None)
    with_system = choose(folder, facts_for(folder, default_system="be brief"), None, None)
    assert "be brief" in with_system.text(with_system.encode(list(probe.messages), probe))
    assert plain.rendering.tool_format == "qwen"
    other = choose(folder, facts_for(folder, tool_format="llama3"), None, None)
    assert other.rendering.tool_format == "llama3"


def test_facts_come_from_the_record(train):
    out = train(callbacks=["vram"], template="qwen3", enable_thinking=False, default_system="x")
    facts = read_facts(out)
    assert facts.rendering["template"] == "qwen3" and facts.rendering["enable_thinking"] is False
    assert facts.rendering["default_system"] == "x" and facts.writes_by_rename and not facts.quantized
    assert facts.model.endswith("model0")


def test_without_a_record_nothing_is_known(tmp_path):
    assert read_facts(tmp_path) == RunFacts()


CHATML = (
    "{%- if tools %}<|im_start|>system\n{{ messages[0].content }}"
    "{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|im_end|>\n{% set messages = messages[1:] %}{%- endif %}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}"
)


def give_template(folder, text):
    (folder / "chat_template.jinja").write_text(text, encoding="utf-8")


def test_another_chat_template_is_a_finding_with_the_first_difference(folder, suite):
    from llamafactory_obs.probe.render.choose import choose, compare

    give_template(folder, CHATML)
    renderer = choose(folder, facts_for(folder), None, None)
    (found,) = compare(renderer, folder, facts_for(folder), suite)
    assert found.what == "prompt" and found.evidence["probe"] == "call"
    assert "# Tools" in found.evidence["trained"] and "# Tools" not in found.evidence["served"]


def test_the_same_prompts_are_no_finding(folder, suite):
    """The demo's chat template is written to agree with qwen3_nothink, tools and all."""
    import sys

    from llamafactory_obs.probe.render.choose import choose, compare

    sys.path.insert(0, str(ROOT / "demo"))
    try:
        from make_model import CHAT_TEMPLATE
    finally:
        sys.path.remove(str(ROOT / "demo"))
    give_template(folder, CHAT_TEMPLATE)
    renderer = choose(folder, facts_for(folder), None, None)
    assert compare(renderer, folder, facts_for(folder), suite) == []


def test_a_chat_template_that_fails_and_a_stop_token_that_no_server_knows(folder, suite):
    from llamafactory_obs.probe.render.choose import choose, compare

    give_template(folder, "{{ raise_exception('no tools, please') }}")
    for name in ("config.json", "generation_config.json"):
        path = folder / name
        settings = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**settings, "eos_token_id": 0}))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**tokenizer, "eos_token": "<|endoftext|>"}))
    renderer = choose(folder, facts_for(folder), None, None)
    found = {mismatch.what: mismatch for mismatch in compare(renderer, folder, facts_for(folder), suite)}
    assert set(found) == {"cannot_render", "stop_token"}
    assert "no tools, please" in found["cannot_render"].text
    assert found["stop_token"].evidence["trained"] == "<|im_end|>"


def test_a_chat_template_that_is_not_the_base_models(folder, suite, tmp_path):
    """TPL-2"""
    import shutil

    from llamafactory_obs.probe.render.choose import choose, compare

    shutil.copytree(folder, tmp_path / "base")
    give_template(tmp_path / "base", CHATML + "{# an older one #}")
    give_template(folder, CHATML)
    facts = facts_for(tmp_path / "base")
    found = compare(choose(folder, facts, None, None), folder, facts, suite)
    assert [mismatch.what for mismatch in found] == ["prompt", "chat_template_changed"]
    give_template(tmp_path / "base", CHATML + "\n")
    found = compare(choose(folder, facts, None, None), folder, facts, suite)
    assert [mismatch.what for mismatch in found] == ["prompt"]


def test_no_chat_template_is_a_finding(folder, suite):
    from llamafactory_obs.probe.render.choose import choose, compare

    renderer = choose(folder, facts_for(folder), None, None)
    (found,) = compare(renderer, folder, facts_for(folder), suite)
    assert found.what == "no_chat_template"


def test_without_llamafactory_the_chat_template_is_used_and_the_reason_said(folder, suite, monkeypatch):
    from llamafactory_obs.probe.render import trained
    from llamafactory_obs.probe.render.choose import choose, compare

    monkeypatch.setattr(trained, "available", lambda: False)
    with pytest.raises(ConfigError, match="no chat template"):
        choose(folder, facts_for(folder), None, None)
    give_template(folder, CHATML)
    renderer = choose(folder, facts_for(folder), None, None)
    assert renderer.rendering.by == "chat_template" and "qwen3_nothink" in renderer.rendering.why
    assert compare(renderer, folder, facts_for(folder), suite) == []
    with pytest.raises(ConfigError, match="not installed"):
        choose(folder, facts_for(folder), "qwen3", None)


def test_template_names(folder):
    from llamafactory_obs.probe.render.choose import choose

    with pytest.raises(ConfigError, match="did you mean 'qwen3"):
        choose(folder, facts_for(folder), "qwen33", None)
    with pytest.raises(ConfigError, match="tool format"):
        choose(folder, facts_for(folder), "qwen3", "json")
    give_template(folder, CHATML)
    assert choose(folder, facts_for(folder), "chat", None).rendering.why == "asked for by --template chat"


def test_raw_text_keeps_special_tokens(folder):
    from llamafactory_obs.probe.render.choose import choose

    renderer = choose(folder, facts_for(folder), None, None)
    text = "<|im_start|>assistant\n你好 <tool_call>{}</tool_call> ,.<|im_end|>"
    assert renderer.text(renderer._tokenizer.encode(text, add_special_tokens=False)) == text
