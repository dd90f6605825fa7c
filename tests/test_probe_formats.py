"""Reading calls: all that LlamaFactory's formatters write, and each way to get the form wrong, by class."""

import json

import pytest

from llamafactory_obs.probe.formats import FORM_ERRORS, FORMATS, read_calls

TOOLS = {"query_orders": {}, "f": {}}
NASTY = [
    {"region": "华东区", "month": 8},
    {},
    {
        "quote": 'say "hi", ok',
        "lines": "a\nb\n\nc",
        "none": None,
        "yes": True,
        "real": 1.5,
        "deep": {"a": {"b": [1, []]}},
    },
    {
        "q": "x</tool_call>y",
        "open": "<tool_call>",
        "p": "</parameter>z",
        "func": "</function> </invoke> q",
        "m1": "</tool_calls>",
        "lfm": "<|tool_call_end|>",
        "gem": "<tool_call|>",
        "glm": "</arg_value> more",
        "t": "</think>",
        "u": "<think>",
    },
    {
        "empty": "",
        "single": "it's 'q'",
        "typographic": "引号“好”",
        "emoji": "😀",
        "brace": "} ] {",
        "list": ["华", {"k": "v"}],
    },
    {"name": "f", "arguments": {"name": "query_orders"}},
]
BATCHES = [[one] for one in NASTY] + [[NASTY[0], NASTY[2]], [NASTY[3], NASTY[4], NASTY[0]], [{}, {}]]


def written(tool_format, batch, name="query_orders"):
    from llamafactory.data.tool_utils import FunctionCall, get_tool_utils

    calls = [FunctionCall(name, json.dumps(one, ensure_ascii=False)) for one in batch]
    return get_tool_utils(tool_format).function_formatter(calls)


def read(body, tool_format, tools=TOOLS):
    reading = read_calls(body, tool_format, tools)
    at = 0
    for attempt in reading.attempts:  # every piece stands in the answer, in order
        at = body.index(attempt.text, at) + len(attempt.text)
        assert attempt.error is None or (attempt.error in FORM_ERRORS and attempt.detail)
        assert attempt.text
    return reading


def errors(body, tool_format, tools=TOOLS):
    return [attempt.error for attempt in read(body, tool_format, tools).attempts]


@pytest.mark.parametrize("tool_format", FORMATS)
@pytest.mark.parametrize("batch", BATCHES, ids=range(len(BATCHES)))
def test_what_training_teaches_is_read_back(llamafactory, tool_format, batch):
    if tool_format == "glm4" and len(batch) > 1:
        pytest.skip("glm4 has one call per answer")
    reading = read(written(tool_format, batch), tool_format)
    assert [(one.error, one.name, one.arguments) for one in reading.attempts] == [
        (None, "query_orders", arguments) for arguments in batch
    ]
    assert reading.says == ""


@pytest.mark.parametrize("tool_format", FORMATS)
def test_thinking_goes_and_words_around_a_call_stay(llamafactory, tool_format):
    call = written(tool_format, [NASTY[0]])
    for thought in ("<think>\nquery_orders? " + call + "\n</think>\n\n", "query_orders? " + call + "</think>\n"):
        reading = read(thought + call, tool_format)
        assert [(one.error, one.arguments) for one in reading.attempts] == [(None, NASTY[0])]
        assert reading.says == ""
    assert read(call + "\n好的", tool_format).says == "好的"
    unfinished = read("<think>\n我要调用 " + call, tool_format)
    assert unfinished.attempts == () and unfinished.says == ""


@pytest.mark.parametrize("tool_format", FORMATS)
def test_a_cut_call_is_unclosed_wherever_it_is_cut(llamafactory, tool_format):
    call = written(tool_format, [{"region": "华东区", "text": "some words"}]).lstrip()
    cut = call[: call.index("words") + 2]
    (attempt,) = read(cut, tool_format).attempts
    assert (attempt.error, attempt.closed, attempt.name) == ("unclosed", False, "query_orders")
    for end in range(1, len(call) - 1):
        found = errors(call[:end], tool_format)
        assert set(found) <= {"unclosed", "no_name", "invalid_syntax"} or tool_format == "glm4_moe", call[:end]


@pytest.mark.parametrize("tool_format", FORMATS)
@pytest.mark.parametrize(
    "prose",
    [
        "",
        "我可以用 query_orders 查询订单，参数是 region 和 month。",
        "I would call query_orders(region, month) now.\nAction is needed: name it.",
        '订单：{"orders": ["A17", "C32"], "name": "list"}',
        '{"orders": [{"id": 1}], "total": 2}',
        "[1, 2, 3]",
        "[A17](https://example.org/f(1))",
        "1 < 2, a[0] = {x}",
        "query_orders\n是一个工具。",
        "```python\ndef f(a=1):\n    return {'name': a}\n```",
    ],
)
def test_prose_is_no_attempt(tool_format, prose):
    reading = read(prose, tool_format)
    assert reading.attempts == () and reading.says == prose


# TPL-5: the four texts
@pytest.mark.parametrize(
    ("body", "error", "detail"),
    [
        ('<tool_call>{"name":"f","arguments":{"a":1}</tool_call>', "invalid_json", 'closing brace "}" missing'),
        (
            '<tool_call>\n{"name":"f","arguments":{}}\n{"name":"g","arguments":{}}\n</tool_call>',
            "several_in_block",
            'extra data after the first object: {"name":"g","arguments":{}}',
        ),
        ('<tool_call>{"name":"f"}</tool_call>', "no_arguments", "keys: name"),
        ('<tool_call>{"name":"f","arguments":"{\\"a\\":1}"}</tool_call>', "arguments_as_text", "holds an object"),
    ],
)
@pytest.mark.parametrize("tool_format", ["qwen", "ling"])
def test_the_four_known_texts(tool_format, body, error, detail):
    (attempt,) = read(body, tool_format).attempts
    assert attempt.error == error and detail in attempt.detail
    assert (attempt.name, attempt.closed, attempt.text, attempt.call) == ("f", True, body, None)


CALL = '{"name": "f", "arguments": {"a": 1}}'
PARAMETER = "<parameter=a>\n1\n</parameter>\n"
M2 = '<parameter name="a">1</parameter>\n'
FORMS = [
    ("qwen", f"<tool_call>{CALL}", "unclosed"),
    ("qwen", '<tool_call>{"name": "f", "arguments": {"a"', "unclosed"),
    ("qwen", f"<tool_call>{CALL}\n<tool_call>{CALL}</tool_call>", "unclosed None"),
    ("qwen", "<tool_call></tool_call>", "invalid_json"),
    ("qwen", "<tool_call>query_orders</tool_call>", "invalid_json"),
    ("qwen", "<tool_call>{'name': 'f', 'arguments': {}}</tool_call>", "invalid_json"),
    ("qwen", '<tool_call>{"name": "f", "arguments": {"a": 1,}}</tool_call>', "invalid_json"),
    ("qwen", f"<tool_call>{CALL}}}</tool_call>", "invalid_json"),
    ("qwen", '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>', "invalid_json"),
    ("qwen", '<tool_call>{"name": "f", "arguments": {"a": "x\ny"}}</tool_call>', "invalid_json"),
    ("qwen", "<tool_call>{“name”: “f”, “arguments”: {}}</tool_call>", "invalid_json"),
    ("qwen", f"<tool_call>[{CALL}, {CALL}]</tool_call>", "several_in_block"),
    ("qwen", '<tool_call>{"arguments": {}}</tool_call>', "no_name"),
    ("qwen", '<tool_call>{"name": 7, "arguments": {}}</tool_call>', "no_name"),
    ("qwen", "<tool_call>7</tool_call>", "no_name"),
    ("qwen", '<tool_call>{"name": "f", "parameters": {}}</tool_call>', "no_arguments"),
    ("qwen", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', "arguments_not_object"),
    ("qwen", '<tool_call>{"name": "f", "arguments": "x"}</tool_call>', "arguments_not_object"),
    ("qwen", f"好的 {CALL} 完成", "no_markup"),
    ("qwen", f"```json\n{CALL}\n```", "no_markup"),
    ("qwen", "Action: f\nAction Input: {}", "no_markup"),
    ("qwen", f"[TOOL_CALLS] [{CALL}]", "no_markup"),
    ("qwen", f"<tool_call>\n<function=f>\n{PARAMETER}</function>\n</tool_call>", "no_markup"),
    ("qwen", f"<tool_calls>\n{CALL}\n</tool_calls>", "no_markup"),
    ("qwen", "<|tool_call_start|>[f(a=1)]<|tool_call_end|>", "no_markup"),
    ("qwen", f"{CALL}\n</tool_call>", "stray_markup"),
    ("qwen", f"<tool_call>{CALL}</tool_call></tool_call>", "None stray_markup"),
    ("qwen", f"a<tool_call>{CALL}</tool_call>b<tool_call>{CALL}</tool_call>", "None None"),
    ("minimax1", f"<tool_calls>\n{CALL}\n{CALL}", "unclosed unclosed"),
    ("minimax1", f"<tool_calls>\n{CALL}\n{CALL[:-1]}\n</tool_calls>", "None invalid_json"),
    ("minimax1", f"<tool_calls>\n{CALL} {CALL}\n</tool_calls>", "several_in_block"),
    ("minimax1", "<tool_calls>\n</tool_calls>", "invalid_json"),
    ("minimax1", "</tool_calls>", "stray_markup"),
    ("llama3", '{"name": "f", "parameters": {"a": 1}', "unclosed"),
    ("llama3", '{"name": "f", "parameters": {}} {"name": "f", "parameters": {}}', "several_in_block"),
    ("llama3", '[{"name": "f", "parameters": {}}, {"name": "f"}]', "None no_arguments"),
    ("llama3", '{"name": "f", "parameters": "{}"}', "arguments_as_text"),
    ("llama3", '{"parameters": {}}', "no_name"),
    ("llama3", "{'name': 'f', 'parameters': {}}", "invalid_json"),
    ("llama3", '{"name": "f", "parameters": {"a": 1,}}', "invalid_json"),
    ("llama3", CALL, "no_arguments"),
    ("llama3", 'ok {"name": "f", "parameters": {}}', "no_markup"),
    ("llama3", f"<tool_call>{CALL}</tool_call>", "no_markup"),
    ("llama3", '<|python_tag|>{"name": "f", "parameters": {}}', "None"),
    ("mistral", f"[TOOL_CALLS] [{CALL}, {CALL}]", "None None"),
    ("mistral", f"[TOOL_CALLS] [{CALL[:-1]}", "unclosed"),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"a": 1}', "no_markup"),
    ("mistral", "[TOOL_CALLS] f", "invalid_json"),
    ("glm4", 'f\n{"a": 1', "unclosed"),
    ("glm4", 'f\n{"a": 1,}', "invalid_json"),
    ("glm4", 'f\n"{\\"a\\": 1}"', "arguments_as_text"),
    ("glm4", "f\n[1]", "arguments_not_object"),
    ("glm4", '好的\nf\n{"a": 1}', "no_markup"),
    ("glm4", 'f\n{"a": 1}\nf\n{"a": 2}', "None no_markup"),
    ("default", 'Action: f\nAction Input: {"a": 1', "unclosed"),
    ("default", "Action: f\nAction In", "unclosed"),
    ("default", "Action: f\n我看看", "no_arguments"),
    ("default", "Action: f\nAction Input: a=1", "invalid_json"),
    ("default", 'Action: f\nAction Input: "{\\"a\\": 1}"', "arguments_as_text"),
    ("default", 'Action: f\nAction Input: ```json\n{"a": 1}\n```', "None"),
    ("default", f"<tool_call>{CALL}</tool_call>", "no_markup"),
    ("qwen3_5", f"<tool_call>\n<function=f>\n{PARAMETER}</function>", "unclosed"),
    ("qwen3_5", f"<tool_call>\n<function=f>\n{PARAMETER}</tool_call>", "unclosed"),
    ("qwen3_5", f"<tool_call>\n<function=f>\n<parameter=a>\n1\n{PARAMETER}</function>\n</tool_call>", "unclosed"),
    ("qwen3_5", "<tool_call>\n<function=f>\nfoo\n</function>\n</tool_call>", "invalid_syntax"),
    ("qwen3_5", "<tool_call>\n<function=>\n</function>\n</tool_call>", "no_name"),
    ("qwen3_5", "<tool_call>\nf\n</tool_call>", "no_name"),
    ("qwen3_5", f"<tool_call>{CALL}</tool_call>", "no_markup"),
    ("qwen3_5", f"<function=f>\n{PARAMETER}</function>\n</tool_call>", "stray_markup"),
    (
        "qwen3_5",
        f"<tool_call>\n<function=f>\n{PARAMETER}</function>\n<function=f>\n{PARAMETER}</function>\n</tool_call>",
        "several_in_block",
    ),
    ("seed_oss", "<seed:tool_call>\n<function=f>\n<parameter=a>1</parameter>\n</function>\n</seed:tool_call>", "None"),
    ("seed_oss", "<seed:tool_call>\n<function=f\n<parameter=a>1", "unclosed"),
    ("minimax2", f'<minimax:tool_call>\n<invoke name="f">\n{M2}</invoke>\n</minimax:tool_call>', "None"),
    (
        "minimax2",
        f'<minimax:tool_call>\n<invoke name="f">\n{M2}</invoke>\n<invoke name="f">\n</invoke>\n</minimax:tool_call>',
        "None None",
    ),
    ("minimax2", f'<minimax:tool_call>\n<invoke name="f">\n{M2}</invoke>', "unclosed"),
    ("minimax2", f'<invoke name="f">\n{M2}', "unclosed"),
    ("glm4_moe", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>", "None"),
    ("glm4_moe", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1", "unclosed"),
    ("glm4_moe", f"<tool_call>{CALL}</tool_call>", "no_markup"),
    ("glm4_moe", '<tool_call>f\n{"a": 1}</tool_call>', "invalid_syntax"),
    ("glm4_moe", "<tool_call></tool_call>", "no_name"),
    ("lfm2", "<|tool_call_start|>[f(a=1), f(a=2)]", "unclosed unclosed"),
    ("lfm2", '<|tool_call_start|>[f(a="x', "unclosed"),
    ("lfm2", "<|tool_call_start|>[f(1)]<|tool_call_end|>", "invalid_syntax"),
    ("lfm2", "<|tool_call_start|>[f(a={'k': True}), f(b='x')]<|tool_call_end|>", "None None"),
    ("lfm2", f"<|tool_call_start|>{CALL}<|tool_call_end|>", "no_markup"),
    ("lfm2", "[f(a=1)]", "no_markup"),
    ("gemma4", "<|tool_call>call:f{a:1}", "unclosed"),
    ("gemma4", "<|tool_call>call:f{a=1}<tool_call|>", "invalid_syntax"),
    ("gemma4", '<|tool_call>call:f{{"a": 1}}<tool_call|>', "arguments_as_text"),
    ("gemma4", "<|tool_call>call:{a:1}<tool_call|>", "no_name"),
    ("gemma4", "<|tool><|tool_call>call:f{a:1}<tool_call|><tool|>", "None"),
    ("gemma4", "<tool_call|>", "stray_markup"),
]


@pytest.mark.parametrize(("tool_format", "body", "expected"), FORMS)
def test_each_class_of_form(tool_format, body, expected):
    assert " ".join(map(str, errors(body, tool_format))) == expected


def test_every_class_of_form_is_tested():
    assert {error for _, _, found in FORMS for error in found.split()} >= set(FORM_ERRORS)


def test_details_tell_the_place_and_what_was_meant():
    def detail(block):
        return read(f"<tool_call>{block}</tool_call>", "qwen").attempts[0].detail

    assert detail('{"name": "f", "arguments": {"a" 1}}') == ("Expecting ':' delimiter at character 32 of 35 near 1}}")
    assert detail('{"name": "f", "arguments": {"a": 1') == 'closing brackets "}}" missing at the end; repairable'
    assert detail('{"name": "f", "arguments": {"a": "x') == "the text ends within a string (character 33 of 35)"
    assert detail("{'name': 'f', 'arguments': {}}").endswith("repairable")
    unclosed = read('<tool_call>{"name": "f", "arguments": {"a": 1}', "qwen").attempts[0].detail
    assert unclosed == '</tool_call> is missing; closing brace "}" missing at the end; repairable'
    foreign = read(f"<tool_calls>\n{CALL}\n</tool_calls>", "qwen").attempts[0]
    assert foreign.detail == "written in the format of minimax1"
    assert (foreign.name, foreign.arguments) == ("f", {"a": 1})


def test_a_bare_object_counts_only_with_a_known_name():
    assert errors(CALL, "qwen") == ["no_markup"]
    assert errors(CALL, "qwen", ["other"]) == errors(CALL, "qwen", []) == []
    assert errors('{"name": "f", "count": 3}', "qwen") == []


def test_words_after_an_unclosed_call_are_said():
    assert read(f"<tool_call>\n{CALL}\n订单如下", "qwen").says == "订单如下"
    assert read("<|tool_call_start|>[f(a=1)] 订单如下", "lfm2").says == "订单如下"
    assert read('{"name": "f", "parameters": {}}\n订单如下', "llama3").says == "订单如下"


def test_a_schema_keeps_a_text_that_looks_like_a_number():
    values = "<parameter=a>\n8\n</parameter>\n<parameter=b>\n8\n</parameter>"
    body = f"<tool_call>\n<function=f>\n{values}\n</function>\n</tool_call>"
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
    assert read(body, "qwen3_5", {"f": schema}).attempts[0].arguments == {"a": "8", "b": 8}
    assert read(body, "qwen3_5", ["f"]).attempts[0].arguments == {"a": 8, "b": 8}


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="no tool format 'qwen9'; there are default, gemma4"):
        read_calls("", "qwen9", [])
