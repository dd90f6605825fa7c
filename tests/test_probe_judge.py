"""Conversations and the exact errors that the judge finds in them."""

import dataclasses
import json

import pytest
from conftest import ROOT

from llamafactory_obs.probe.formats import read_calls
from llamafactory_obs.probe.judge import LAYERS, ORDER, judge
from llamafactory_obs.probe.scores import scores
from llamafactory_obs.probe.turns import Turn
from llamafactory_obs.suite import AfterError, Expect, ExpectedCall, answer, load_suite

PROBES = {probe.name: probe for probe in load_suite(ROOT / "probes" / "order_query.yaml").probes}
SUMMARY = "华东区 8 月共有 2 笔订单：A17 和 C32。"


def call(region="华东区", month=8, name="query_orders", **more):
    arguments = {"region": region, "month": month, **more}
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def talk(probe, *bodies, finish="stop", special_tokens=()):
    """The conversation with these answers, read and answered as a real run does it."""
    tools = {tool.name: tool.parameters for tool in probe.tools}
    turns = []
    for body in bodies:
        reading = read_calls(body, "qwen", tools)
        broken = any(attempt.error for attempt in reading.attempts)
        calls = [] if broken else [attempt.call for attempt in reading.attempts]
        replies = tuple(answer(probe, one) for one in calls)
        turns.append(Turn(body + "<|im_end|>", body, "stop", 30, reading.attempts, reading.says, replies))
    if turns:
        turns[-1] = dataclasses.replace(turns[-1], finish=finish)
    return judge(probe, turns, special_tokens)


def expecting(**expect):
    return dataclasses.replace(PROBES["call"], expect=Expect(**expect))


ONE = ExpectedCall("query_orders", {"region": ["华东区"], "month": [8]})
TWO = ExpectedCall("query_orders", {"region": ["华南区"], "month": [8, 9]}, ("page",))

CONVERSATIONS = [
    # the three shipped probes, healthy
    ("call", [call(), SUMMARY], "", "TTTT expected"),
    ("call", [call(month=8.0), "There are two orders, A17 and C32."], "", "TTTT expected"),
    ("call", ["<think>\n要调用\n</think>\n\n" + call(), SUMMARY], "", "TTTT expected"),
    ("no_call", ["你好，我是订单助手。"], "", "-T-T none"),
    ("no_call", ["Hello! I am an assistant for orders. How can I help?"], "", "-T-T none"),
    ("tool_error", [call("华东地区"), call(), SUMMARY], "", "TTTT known_name"),
    ("tool_error", [call("华东地区"), "没有华东地区，您是指华东区吗？"], "", "TT-T known_name"),
    ("tool_error", [call("华东地区"), "There is no such region. Please choose one of the five"], "", "TT-T known_name"),
    ("tool_error", [call(), SUMMARY], "", "TTTT expected"),
    ("tool_error", ["请问您是指华东区吗？"], "", "-T-T none"),
    ("tool_error", [call("华东地区"), call("华东"), call(), SUMMARY], "invalid_arguments", "TTTF known_name"),
    # the call probe, sick
    ("call", ["好的，我来查。"], "missing_call", "-FFF none"),
    ("call", ["华东区 8 月有 A17 和 B02 两笔订单。"], "missing_call invented_result", "-FFF none"),
    ("call", [""], "missing_call", "-FFF none"),
    ("call", [], "missing_call empty_answer", "-FFF none"),
    ("call", [call("西南区"), SUMMARY], "wrong_arguments", "TTFF valid_arguments"),
    ("call", [call(month="8"), "工具出错了。"], "invalid_arguments", "TTFF known_name"),
    ("call", [call("华东", 9), "出错了。"], "invalid_arguments wrong_arguments", "TTFF known_name"),
    ("call", [call(limit=5), SUMMARY], "wrong_arguments", "TTFF valid_arguments"),
    ("call", [call(name="get_orders"), "出错了。"], "unknown_tool", "TFFF parsed"),
    ("call", [call() + call(), SUMMARY], "extra_call", "TFTF expected"),
    ("call", [call(), "共 3 笔：A17、C32 和 D99。"], "invented_result", "TTTF expected"),
    ("call", ["订单是 A17。" + call(), SUMMARY], "invented_result", "TTTF expected"),
    ("call", [call()[:-12]], "unclosed", "FTFF attempted"),
    ("call", [call().replace("}}", "}")], "invalid_json", "FTFF closed"),
    ("call", ['<tool_call>\n{"name": "query_orders"}\n</tool_call>'], "no_arguments", "FTFF parsed"),
    ("call", [call()[12:-13]], "no_markup", "FTFF attempted"),
    ("call", [call() * 2 + "</tool_call>"], "stray_markup extra_call", "FFTF expected"),
    ("call", [call(), call(), call(), call()], "extra_call too_many_turns", "TFTF expected"),
    ("call", [call(), "订单如下。\n" + "A17、C32 已查到。\n" * 20], "repetition", "TTTF expected"),
    ("call", [call(), SUMMARY + "<|im_start|>user\n再查一次"], "template_leak", "TTTF expected"),
    # no call expected
    ("no_call", [call(), SUMMARY], "unexpected_call", "TFTF valid_arguments"),
    ("no_call", [""], "empty_answer", "-T-F none"),
    ("no_call", ["<think>\n没完没了"], "empty_answer", "-T-F none"),
    ("no_call", ["你好！您的订单 A17 已发货。"], "invented_result", "-T-F none"),
    ("no_call", [call("?")[:-14]], "unclosed unexpected_call empty_answer", "FFFF attempted"),
    # the tool's error
    ("tool_error", [call("华东地区"), call("华东地区"), call(), SUMMARY], "repeated_refused", "TTTF known_name"),
    (
        "tool_error",
        [call("华东地区"), call("华东地区"), "没有查到。"],
        "repeated_refused not_recovered",
        "TTFF known_name",
    ),
    ("tool_error", [call("华东地区")] * 4, "repeated_refused not_recovered too_many_turns", "TTFF known_name"),
    ("tool_error", [call("华东地区"), "没有查到。"], "not_recovered", "TTFF known_name"),
    ("tool_error", [call("华东地区"), "查到了 A17 和 C32。"], "not_recovered invented_result", "TTFF known_name"),
    ("tool_error", [call("华东地区"), call()[:-13]], "unclosed not_recovered", "FTFF known_name"),
    ("tool_error", [call("华南区"), SUMMARY], "wrong_arguments", "TTFF valid_arguments"),
    ("tool_error", ["好的。"], "missing_call", "-FFF none"),
    ("tool_error", ["查到了 A17。"], "missing_call invented_result", "-FFF none"),
    ("tool_error", [call("华东地区", name="search"), "没有。"], "unknown_tool not_recovered", "TFFF parsed"),
]
SIGN = {True: "T", False: "F", None: "-"}


def shape(verdict):
    return "".join(SIGN[verdict.layers[layer]] for layer in LAYERS) + " " + verdict.rung


@pytest.mark.parametrize(("name", "bodies", "errors", "layers"), CONVERSATIONS)
def test_exactly_these_errors(name, bodies, errors, layers):
    verdict = talk(PROBES[name], *bodies)
    assert " ".join(verdict.errors) == errors
    assert shape(verdict) == layers
    assert verdict.passed is (not errors)
    assert len(verdict.details) == len(verdict.errors)
    for error, detail in zip(verdict.errors, verdict.details, strict=True):
        assert detail.startswith(f"{error}: ") and "\n" not in detail and len(detail) > len(error) + 4


def test_details_give_the_values():
    def details(name, *bodies):
        return list(talk(PROBES[name], *bodies).details)

    assert details("call", call("西南区"), SUMMARY) == ['wrong_arguments: region is "西南区", expected "华东区"']
    assert details("call", call("华东", "8"), "出错了。") == [
        'invalid_arguments: month: "8" is a text, not integer (and 1 more)'
    ]
    assert details("call", call("华东"), "出错了。") == [
        'invalid_arguments: region: "华东" is none of "华东区", "华南区", "华北区", "西南区", "东北区"'
    ]
    assert details(
        "call", '<tool_call>{"name": "query_orders", "arguments": {"region": "华东区"}}</tool_call>', "?"
    ) == ["invalid_arguments: the arguments: month is missing"]
    assert details("call", "好的。") == [
        "missing_call: no call; query_orders(region=\"华东区\", month=8) was expected; the answer is '好的。'"
    ]
    assert details("call", call(name="f"), "x") == ["unknown_tool: 'f'; there is query_orders"]
    assert details("tool_error", call("华东地区"), call("华东地区"), call(), SUMMARY) == [
        'repeated_refused: query_orders(region="华东地区", month=8) again, after it was refused'
    ]
    assert details("call", call(), "D99") == ["invented_result: D99 in answer 2, which no reply contained before"]


def test_calls_are_compared_in_order():
    probe = expecting(calls=(ONE, TWO))
    assert talk(probe, call() + call("华南区", 9), SUMMARY).passed
    assert talk(probe, call(), call("华南区", 8, page=2), SUMMARY).passed
    assert talk(probe, call(), SUMMARY).errors == ("missing_later_call",)
    assert talk(probe, call("华南区"), call(), SUMMARY).errors == ("wrong_arguments",)
    assert talk(probe, call(), call("华南区"), call(), SUMMARY).errors == ("extra_call",)
    other = dataclasses.replace(PROBES["call"].tools[0], name="other")
    probe = dataclasses.replace(probe, tools=(*probe.tools, other))
    assert talk(probe, call(name="other"), call("华南区"), SUMMARY).errors == ("wrong_tool",)


def test_text_expectations():
    probe = expecting(answer="non_empty", contains=("A17", "C32"))
    assert talk(probe, SUMMARY).passed
    assert talk(probe, "A17").details == ("missing_text: 'C32' is not in the last answer: 'A17'",)
    assert talk(probe, "").errors == ("empty_answer", "missing_text")


def test_what_the_user_said_is_not_invented():
    probe = dataclasses.replace(PROBES["no_call"], messages=({"role": "user", "content": "A17 是什么？"},))
    assert talk(probe, "A17 是您的订单号。").passed


def test_a_cut_answer_has_no_end_token():
    verdict = talk(PROBES["call"], call(), SUMMARY, finish="length")
    assert verdict.details == ("no_end_token: answer 2 was cut after 30 tokens",)
    assert talk(PROBES["call"], call()[:-20], finish="length").errors == ("no_end_token", "unclosed")


def test_special_tokens_of_the_tokenizer_leak():
    assert talk(PROBES["call"], call(), SUMMARY + "</s>", special_tokens=["</s>"]).errors == ("template_leak",)
    assert talk(PROBES["call"], call(), SUMMARY + "</s>").passed
    assert talk(PROBES["call"], call(), SUMMARY, special_tokens=["<tool_call>", "</tool_call>"]).passed


def test_one_turn_suites_may_end_with_the_expected_call():
    probe = dataclasses.replace(expecting(calls=(ONE,)), max_turns=1)
    assert talk(probe, call()).passed
    assert talk(probe, call() + call()).errors == ("extra_call", "too_many_turns")


def test_only_asking_or_only_not_repeating_can_be_expected():
    ask = dataclasses.replace(PROBES["tool_error"], expect=Expect(after_error=AfterError(or_ask=True)))
    assert talk(ask, call("华东地区"), "您是指哪个大区").passed
    assert talk(ask, call("华东地区"), "没有。").errors == ("not_recovered",)
    quiet = AfterError(no_repeat={"region": ["华东地区"]})
    quiet = dataclasses.replace(PROBES["tool_error"], expect=Expect(after_error=quiet))
    assert talk(quiet, call("华东地区"), "没有。").passed
    assert talk(quiet, call("华东地区"), call("华东地区"), "没有。").errors == ("repeated_refused",)


def scorer(probe, turns):
    return ["too_polite"] if "您" in turns[-1].says else []


def broken_scorer(probe, turns):
    raise RuntimeError("no\nluck")


def wrong_scorer(probe, turns):
    return [1]


@pytest.mark.parametrize(
    ("path", "says", "details"),
    [
        ("test_probe_judge.scorer", "您好", ("too_polite: found by test_probe_judge.scorer",)),
        ("test_probe_judge.scorer", "你好", ()),
        (
            "test_probe_judge.broken_scorer",
            "",
            ("scorer_failed: test_probe_judge.broken_scorer: RuntimeError: no luck",),
        ),
        ("test_probe_judge.nothing", "", None),
        ("no_such_module.f", "", None),
        ("nodots", "", None),
        ("test_probe_judge.wrong_scorer", "", None),
    ],
)
def test_a_scorer_adds_its_classes_and_never_breaks_the_judge(path, says, details):
    verdict = talk(expecting(scorer=path), says)
    if details is None:
        assert verdict.errors == ("scorer_failed",) and path in verdict.details[0]
    else:
        assert verdict.details == details


def test_a_schema_that_cannot_be_used_is_named_and_nothing_raises():
    tool = dataclasses.replace(PROBES["call"].tools[0], parameters={"$ref": "#/nowhere"})
    probe = dataclasses.replace(PROBES["call"], tools=(tool,))
    verdict = talk(probe, call(), SUMMARY)
    assert verdict.errors == ("invalid_arguments",) and "cannot be checked" in verdict.details[0]


def test_every_class_has_its_place_and_is_tested():
    found = {error for _, _, errors, _ in CONVERSATIONS for error in errors.split()}
    elsewhere = {"no_end_token", "missing_later_call", "wrong_tool", "missing_text"}
    of_form = {"invalid_syntax", "several_in_block", "no_name", "arguments_as_text", "arguments_not_object"}
    assert found | elsewhere | of_form == set(ORDER)


def test_scores_count_layer_by_layer():
    verdicts = {
        "call": talk(PROBES["call"], call("西南区"), SUMMARY),
        "no_call": talk(PROBES["no_call"], "你好！"),
        "tool_error": talk(PROBES["tool_error"], call("华东地区"), "查到了 A17。"),
    }
    result = scores(verdicts)
    assert result == {
        "format": {"right": 2, "of": 2},
        "tool_choice": {"right": 3, "of": 3},
        "arguments": {"right": 0, "of": 2},
        "task": {"right": 1, "of": 3},
        "errors": {"invented_result": 1, "not_recovered": 1, "wrong_arguments": 1},
    }
    assert list(result) == [*LAYERS, "errors"]
    assert scores({})["task"] == {"right": 0, "of": 0}
