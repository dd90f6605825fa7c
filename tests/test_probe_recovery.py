"""After the tool's error: what counts as asking, what as inventing. Texts that a model could say, both ways."""

import dataclasses

import pytest

from llamafactory_obs.probe.formats import read_calls
from llamafactory_obs.probe.judge import judge
from llamafactory_obs.probe.turns import Turn
from llamafactory_obs.suite import answer, load_suite, shipped_suite

REFUSED = '<tool_call>\n{"name": "query_orders", "arguments": {"region": "华东地区", "month": 8}}\n</tool_call>'
RIGHT = REFUSED.replace("华东地区", "华东区")
CALL, GREETING, ERROR = load_suite(shipped_suite()).probes


def converse(probe, *bodies):
    turns = []
    for body in bodies:
        read = read_calls(body, "qwen", {tool.name: tool.parameters for tool in probe.tools})
        replies = tuple(answer(probe, one.call) for one in read.attempts if one.error is None)
        turns.append(Turn(body + "<|im_end|>", body, "stop", 9, read.attempts, read.says, replies))
    return judge(probe, turns)


@pytest.mark.parametrize(
    "text",
    [
        "没有华东地区，您是指华东区吗？",
        "请问您要查询哪个大区？",
        "合法的大区有华东区、华南区、华北区、西南区、东北区，请选择一个。",
        "没有该大区。合法大区：华东区、华南区。请重新输入。",
        "您要查的是华东区，对吗？",
        "是否查询华东区 8 月的订单？",
        "Did you mean 华东区?",
        "There is no such region. Please choose one of 华东区, 华南区.",
        "Which region do you mean?",
    ],
)
def test_asking_about_the_region_is_a_right_way_out(text):
    assert converse(ERROR, REFUSED, text).passed
    assert converse(ERROR, text).passed, "asking at once is right too"


@pytest.mark.parametrize(
    "text",
    [
        "华东地区 8 月共有 15 笔订单，还需要别的帮助吗？",
        "华东区 8 月共有 15 笔订单，还需要别的帮助吗？",
        "已经查到：订单 15 笔？",
        "好的。",
        "抱歉，没有华东地区。",
        "你好，有什么可以帮您？",
        "我不能帮您，好吗？",
        "Is there anything else I can do for you?",
    ],
)
def test_a_polite_question_is_no_way_out(text):
    assert "not_recovered" in converse(ERROR, REFUSED, text).errors
    assert "missing_call" in converse(ERROR, text).errors


def test_a_longer_word_is_another_thing():
    """A17 stood in the reply, A170 did not."""
    assert converse(CALL, RIGHT, "华东区 8 月的订单：A17、C32。").passed
    assert converse(CALL, RIGHT, "订单A17和C32都在。").passed
    assert converse(CALL, RIGHT, "华东区 8 月的订单：A170、C321。").errors == ("invented_result",)


@pytest.mark.parametrize("text", ["", " ", "\u200b", "\ufeff\u00a0", "。", "...", "\u3000"])
def test_marks_alone_are_no_answer(text):
    assert "empty_answer" in converse(GREETING, text).errors


def test_half_a_surrogate_pair_is_judged_and_does_not_stop_the_conversation():
    from llamafactory_obs.probe.converse import _encodable

    body = RIGHT.replace("华东区", "\\ud800")
    assert "invalid_arguments" in converse(CALL, body).errors
    made = {"role": "tool", "content": "\ud800", "tool_calls": [{"arguments": {"a\udfff": ["\ud800x"]}}]}
    assert _encodable(made) == {"role": "tool", "content": "?", "tool_calls": [{"arguments": {"a?": ["?x"]}}]}


def test_ernie_vl_writes_its_role_before_the_call():
    body = '\nAssistant: Action: query_orders\nAction Input: {"region": "华东区", "month": 8}'
    (attempt,) = read_calls(body, "default", {"query_orders": {}}).attempts
    assert attempt.error is None and attempt.arguments == {"region": "华东区", "month": 8}


def test_the_other_probes_do_not_ask(tmp_path):
    probe = dataclasses.replace(CALL, expect=dataclasses.replace(CALL.expect, invented=None))
    assert "missing_call" in converse(probe, "请问您要查询哪个大区？").errors
