"""The suite format: what is read, what is refused and with which line, the hash, the simulated tool."""

import dataclasses

import pytest
import yaml

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.suite import Call, answer, load_suite, shipped_suite
from llamafactory_obs.suite.values import fits, same

GOOD = """\
name: small
system: be brief
tools:
  - name: f
    description: does f
    parameters:
      type: object
      properties:
        x: {type: integer, minimum: 1}
        unit: {type: string, enum: [m, km]}
      required: [x]
tool_replies:
  - tool: f
    when: {x: [1, 2]}
    reply: {value: "{x} {unit}"}
  - tool: f
    reply: {error: "no {x}"}
probes:
  - name: one
    messages:
      - {role: user, content: call f with 1}
    expect:
      calls:
        - {name: f, arguments: {x: 1}, optional: [unit]}
  - name: two
    messages:
      - {role: user, content: hi}
    expect: {calls: [], answer: non_empty}
"""


def write(folder, text):
    file = folder / "suite.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def refused(folder, text) -> str:
    with pytest.raises(ConfigError) as error:
        load_suite(write(folder, text))
    message = str(error.value)
    assert "\n" not in message
    return message


def test_the_shipped_probes_are_word_for_word():
    suite = load_suite(shipped_suite())
    assert [probe.prompt for probe in suite.probes] == [
        "查一下华东区 8 月的订单",
        "你好，你是谁？",
        "查华东地区 8 月的订单",
    ]
    call, greeting, error = suite.probes
    assert [(c.name, c.arguments) for c in call.expect.calls] == [
        ("query_orders", {"region": ["华东区"], "month": [8]})
    ]
    assert greeting.expect.calls == ()
    assert error.expect.after_error.retry == {"region": ["华东区"], "month": [8]}
    refused_call = answer(error, Call("query_orders", {"region": "华东地区", "month": 8}))
    assert refused_call.error and "华东区" in refused_call.text
    assert not answer(error, Call("query_orders", {"region": "华东区", "month": 8})).error


def test_the_reply_depends_on_the_call(tmp_path):
    probe = load_suite(write(tmp_path, GOOD)).probes[0]
    assert answer(probe, Call("f", {"x": 2, "unit": "km"})).text == '{"value": "2 km"}'
    assert answer(probe, Call("f", {"x": 1})).text == '{"value": "1 "}'
    assert answer(probe, Call("f", {"x": 9})).text == '{"error": "no 9"}'
    assert answer(probe, Call("g", {"x": 1})).error and "g" in answer(probe, Call("g", {})).text
    assert answer(probe, Call("f", {"x": "1"})).error, "the text '1' is not the number 1"


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [(8, 8.0, True), (8, "8", False), (True, 1, False), ([1, {"a": 2}], [1.0, {"a": 2}], True), ({"a": 1}, {}, False)],
)
def test_values_are_compared_as_json_schema_does(one, other, equal):
    assert same(one, other) is equal and same(other, one) is equal


def test_fits_wants_the_argument_to_be_there():
    assert fits({"x": 1, "y": 2}, {"x": [3, 1]}) and not fits({"y": 1}, {"x": [1]}) and fits({}, {})


def changed(text, **fields):
    tree = yaml.safe_load(text)
    for path, value in fields.items():
        node = tree
        *parents, last = path.split("__")
        for step in parents:
            node = node[int(step) if step.isdigit() else step]
        node[last] = value
    return yaml.safe_dump(tree, allow_unicode=True, sort_keys=True)


def test_the_hash_is_of_the_content_and_not_of_how_it_is_written(tmp_path):
    first = load_suite(write(tmp_path, GOOD)).sha256
    assert load_suite(write(tmp_path, "# a comment\n" + GOOD.replace("be brief", '"be brief"'))).sha256 == first
    assert load_suite(write(tmp_path, changed(GOOD))).sha256 == first, "the order of keys"
    assert load_suite(write(tmp_path, changed(GOOD, probes__0__about="other words", name="other"))).sha256 == first
    for change in (
        {"system": "be long"},
        {"probes__0__name": "uno"},
        {"probes__0__max_turns": 2},
        {"max_new_tokens": 8},
        {"tool_replies__0__reply": {"value": 3}},
        {"probes__1__expect": {"calls": []}},
        {"tools__0__description": "does g"},
    ):
        assert load_suite(write(tmp_path, changed(GOOD, **change))).sha256 != first, change


def test_every_field_of_a_probe_counts_in_the_hash(tmp_path):
    """A new field must not be forgotten: only `about` and `line` are left out."""
    probe = load_suite(write(tmp_path, GOOD)).probes[0]
    assert {field.name for field in dataclasses.fields(probe)} == {
        *("name", "about", "messages", "system", "tools", "tool_replies", "max_turns", "expect", "line")
    }


BAD = [
    ("name: small", "nam: small", 1, "did you mean 'name'"),
    ("    parameters:\n      type: object", "    parameters:\n      type: strin", 7, "JSON Schema"),
    ("x: {type: integer, minimum: 1}", "x: {type: integr}", 9, "JSON Schema"),
    ("when: {x: [1, 2]}", "when: {z: [1, 2]}", 14, "'z'"),
    ('reply: {value: "{x} {unit}"}', 'reply: {value: "{y}"}', 15, "{y}"),
    ("  - tool: f\n    reply", "  - tool: g\n    reply", 16, "no tool 'g'"),
    ("{role: user, content: call f with 1}", "{role: usr, content: x}", 21, "must be user"),
    ("{role: user, content: call f with 1}", "{role: assistant, content: x}", 21, "the first message is user"),
    ("{role: user, content: call f with 1}", "{role: user}", 21, "'content' is missing"),
    ("{role: user, content: call f with 1}", "{role: user, content: ''}", 21, "non-empty"),
    ("arguments: {x: 1}, optional", "arguments: {x: 0}, optional", 24, "does not allow"),
    ("arguments: {x: 1}, optional", "arguments: {}, optional", 24, "requires 'x'"),
    ("{name: f, arguments: {x: 1}", "{name: ff, arguments: {x: 1}", 24, "did you mean 'f'"),
    ("answer: non_empty", "answer: something", 28, "non_empty"),
    ("  - name: two", "  - name: one", 25, "two probes named"),
    ("system: be brief", "system: [a]", 2, "text"),
    ("system: be brief", "system: be brief\nsystem: again", 3, "stands here twice"),
    ("system: be brief", "system: be brief\nmax_turns: 0", 3, "from 1 to"),
    ("system: be brief", "system: be brief\nmax_new_tokens: many", 3, "whole number"),
    ("system: be brief", "system: 'be brief", None, "no valid YAML"),
    ("system: be brief", "system: &a [*a]", 2, "alias"),
    ("expect: {calls: [], answer: non_empty}", "expect: {calls: [], invented: '['}", 28, "regular expression"),
    ("expect: {calls: [], answer: non_empty}", "expect: {scorer: score}", 28, "dotted path"),
    ('reply: {value: "{x} {unit}"}', "reply: {value: 2026-08-01}", 15, "put it in quotes"),
    ('reply: {value: "{x} {unit}"}', "reply: {value: !!binary aGk=}", 15, "put it in quotes"),
    ('reply: {value: "{x} {unit}"}', "reply: {1: a}", 15, "put it in quotes"),
    ('reply: {value: "{x} {unit}"}', f"reply: {{value: {'9' * 5000}}}", None, "cannot be read"),
    ("x: {type: integer, minimum: 1}", "x: {$ref: '#/nowhere'}", 7, "cannot be used"),
    ("expect: {calls: [], answer: non_empty}", "expect: {after_error: {or_ask: false}}", 28, "nothing would be right"),
    ("expect: {calls: [], answer: non_empty}", "expect: {after_error: {no_repeat: {q: 1}}}", 28, "'q'"),
]


@pytest.mark.parametrize(("old", "new", "line", "words"), BAD, ids=[new.strip()[:40] for _, new, _, _ in BAD])
def test_a_bad_suite_is_named_with_its_line(tmp_path, old, new, line, words):
    assert GOOD.count(old) >= 1
    message = refused(tmp_path, GOOD.replace(old, new, 1))
    assert words in message
    if line is not None:
        assert f"suite.yaml:{line}:" in message, message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"# only a comment", "empty"),
        (b"- a list", "must be a mapping"),
        (b"probes: []", "at least one probe"),
        (b"system: x", "'probes' is missing"),
        (b"probes: \xff\xfe", "UTF-8"),
        (b"probes:\n\t- x", "no valid YAML"),
        (b"[" * 5000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_suite(tmp_path, content, words):
    file = tmp_path / "suite.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load_suite(file)


def test_a_missing_file_and_a_folder(tmp_path):
    for place in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            load_suite(place)


def test_history_openai_tools_and_alternatives(tmp_path):
    text = changed(
        GOOD,
        tools=[{"type": "function", "function": yaml.safe_load(GOOD)["tools"][0]}],
        probes__0__messages=[
            {"role": "user", "content": "f of 9"},
            {"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"x": 9}}]},
            {"role": "tool", "content": {"error": "no 9"}},
        ],
        probes__0__expect={"calls": [{"name": "f", "one_of": {"x": [1, 2]}}], "contains": "1"},
    )
    probe = load_suite(write(tmp_path, text)).probes[0]
    assert probe.messages[1]["tool_calls"] == [{"name": "f", "arguments": {"x": 9}}]
    assert probe.messages[2] == {"role": "tool", "content": '{"error": "no 9"}'}
    assert probe.expect.calls[0].arguments == {"x": [1, 2]} and probe.expect.contains == ("1",)
    assert probe.prompt == "f of 9"


def test_merge_keys_are_read(tmp_path):
    text = GOOD.replace("  - name: two\n", "  - name: two\n    <<: &base {max_turns: 2}\n")
    assert load_suite(write(tmp_path, text)).probes[1].max_turns == 2


def test_a_suite_may_be_json(tmp_path):
    import json

    text = json.dumps(yaml.safe_load(GOOD))
    assert load_suite(write(tmp_path, text)).sha256 == load_suite(write(tmp_path, GOOD)).sha256
