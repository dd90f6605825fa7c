"""Repetition and leaking template tokens: found where they are (TPL-7), and nowhere in real answers."""

import json

import pytest
from conftest import SHARED

from llamafactory_obs.probe.formats import CALL_MARKS
from llamafactory_obs.probe.signals import REPETITION_THRESHOLD, leaks, repetition

ROWS = [{"id": i, "name": f"用户{i}", "region": "华东区", "paid": True, "total": i * 7.5} for i in range(60)]
PROSE = (
    "华东区八月份的订单一共有两笔，分别是第一笔和第二笔。第一笔订单已经发货，预计三天之内送到；第二笔订单还在等待付款，"
    "如果客户没有在七天之内付款，系统会自动取消这笔订单。需要我帮您联系客户吗？"
)
SICK = {
    "a line 20 times": "查询到 2 条订单。\n" * 20,
    "a sentence": "I am sorry, I cannot help with that. " * 15,
    "two characters": "好的" * 40,
    "one character": "啊" * 100,
    "late": PROSE + "请稍等。" * 30,
    "calls": '<tool_call>\n{"name": "query_orders", "arguments": {"region": "华东区", "month": 8}}\n</tool_call>\n' * 8,
    "long laps": (PROSE + "\n") * 6,
}
HEALTHY = {
    "nothing": "",
    "prose": PROSE,
    "a JSON list": json.dumps(ROWS, ensure_ascii=False),
    "an indented JSON list": json.dumps(ROWS, ensure_ascii=False, indent=2),
    "a table": "| 订单 | 区域 | 金额 |\n|------|------|------|\n"
    + "".join(f"| A{i} | 华东区 | {i * 9} |\n" for i in range(40)),
    "a ruled line": "标题\n" + "-" * 300 + "\n正文",
    "a numbered list": "".join(f"{i}. Check the order of customer number {i}.\n" for i in range(1, 40)),
    "twice": PROSE * 2,
    "laughing": "哈哈哈哈哈哈哈哈，真好笑。",
    "two calls": SICK["calls"][: len(SICK["calls"]) // 8 * 2],
}


@pytest.mark.parametrize("name", SICK)
def test_a_loop_is_found(name):
    assert repetition(SICK[name]) >= REPETITION_THRESHOLD


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_text_is_left_alone(name):
    assert repetition(HEALTHY[name]) < REPETITION_THRESHOLD / 2


def test_the_share_is_a_share():
    assert repetition("a b c d e f g h i j " * 20) == pytest.approx(0.95)
    assert repetition("x" * 100_000) == 0.0  # one word
    assert 0.9 < repetition("x " * 50_000) <= 1.0


@pytest.mark.shared
def test_no_false_alarm_on_real_answers():
    """Every answer in LlamaFactory's demo data that nobody rejected."""
    texts = []
    for file in sorted((SHARED / "data").glob("*.json")):
        for row in json.loads(file.read_text()):
            texts += _answers(row)
    assert len(texts) > 3500
    flagged = [text for text in texts if repetition(text) >= REPETITION_THRESHOLD]
    assert not flagged
    assert not [text for text in texts if leaks(text, ["<s>", "</s>", "<unk>", "<pad>"])]


@pytest.mark.shared
def test_the_loops_among_the_rejected_answers_are_found():
    rows = json.loads((SHARED / "data" / "kto_en_demo.json").read_text())
    rejected = [message["content"] for row in rows if not row["label"] for message in row["messages"][-1:]]
    assert sum(repetition(text) >= REPETITION_THRESHOLD for text in rejected) == 2


def _answers(row) -> list[str]:
    if not isinstance(row, dict) or row.get("label") is False:
        return []
    turns = [*row.get("conversations", []), *row.get("messages", [])]
    answers = [t["value"] for t in turns if t.get("from") in ("gpt", "function_call")]
    answers += [t["content"] for t in turns if t.get("role") == "assistant"]
    if isinstance(row.get("output"), str):
        answers.append(row["output"])
    if isinstance(row.get("chosen"), dict):
        answers.append(row["chosen"]["value"])
    return answers


def test_template_tokens_are_found_once_each():
    assert leaks("好的<|im_end|>\n<|im_start|>user\n<|im_end|>") == ["<|im_start|>", "<|im_end|>"]
    assert leaks("a [/INST] b") == ["[/INST]"]
    assert leaks("<tool_response>\n{}\n</tool_response>") == ["<tool_response>", "</tool_response>"]
    assert leaks("a </s> b <extra_id_0>", ["</s>", "<extra_id_0>", "<pad>"]) == ["</s>", "<extra_id_0>"]


def test_marks_of_calls_and_thinking_are_no_leak():
    text = "<think>x</think><tool_call>{}</tool_call><|tool_call_start|>[f()]<|tool_call_end|>[TOOL_CALLS]"
    assert leaks(text, ["<tool_call>", "</tool_call>", "<think>", "</think>", "<|tool_call_start|>"]) == []
    assert {"<tool_call>", "</tool_call>", "<think>", "</think>"} <= CALL_MARKS


def test_special_tokens_that_are_plain_text_are_no_leak():
    assert leaks("Hello! unk", ["!", "", "unk", "He"]) == []
