"""What the trainer's and the server's own parsers see, against ours; and our mirror of vLLM against the real one."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from llamafactory_obs.probe.formats import FORMATS, read_calls
from llamafactory_obs.probe.views import disagreements, llamafactory_view, vllm_view
from llamafactory_obs.suite import Call

GOOD = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
UNCLOSED = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}'
BROKEN = '<tool_call>\n{"name": "f", "arguments": {"a": 1}\n</tool_call>'
CALL = Call("f", {"a": 1})
LOST = "it gives the whole text as content"

HERMES_BLOCKS = [
    '{"name": "f", "arguments": {"a": 1}}',
    '{"name": "f", "arguments": {"a": 1}',
    '{"name": "f", "arguments": "{\\"a\\": 1}"}',
    '{"name": "f", "arguments": null}',
    '{"name": "f"}',
    '{"name": 7, "arguments": {}}',
    '{"name": null, "arguments": {}}',
    '{"arguments": {}}',
    '{"name": "f", "arguments": {}} {"name": "g", "arguments": {}}',
    '[{"name": "f", "arguments": {}}]',
    '"f"',
    "",
    "7",
    '{"name": "f", "arguments": {"a": NaN}}',
    '{"name": "f", "arguments": {"a": "</tool_call>"}}',
    '{"name": "f", "arguments": {"a": "华东区\\n"}}',
    '{"name": "f", "arguments": {"a": "x\ny"}}',
]
HERMES = [
    text
    for block in HERMES_BLOCKS
    for text in (
        f"<tool_call>\n{block}\n</tool_call>",
        f"好的<tool_call>{block}",
        f"{GOOD}\n<tool_call>{block}</tool_call>",
    )
] + ["", "好的", "</tool_call>", GOOD + "完成", f"a{GOOD}b{GOOD}c", '{"name": "f", "arguments": {}}', "[" * 5000]
LLAMA3 = [
    '{"name": "f", "parameters": {"a": 1}}',
    '{"name": "f", "arguments": {"a": 1}}',
    '<|python_tag|>{"name": "f", "parameters": {"a": {"b": {}}}}',
    '好的 {"name": "f", "parameters": {}} 完成',
    '{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}',
    '{"name": "f", "parameters": {}}{"name": "g", "parameters": {}}',
    '{"name": "f", "parameters": {}}  {"name": "g", "parameters": {}}',
    '[{"name": "f", "parameters": {}}, {"name": "g", "parameters": {}}]',
    '{"name": "f", "parameters": {}',
    '{"name": "f"}',
    '{"orders": [1]}',
    '{"name": 7, "parameters": {}}',
    '{"name": "f", "parameters": {}} and {',
    "好的",
    "",
    "{" * 3000,
    '{"a":' * 3000,
]


def read(body, tool_format="qwen"):
    return disagreements(read_calls(body, tool_format, ["f"]).attempts, body, tool_format)


def test_vllm_takes_an_unclosed_block_and_drops_all_for_one_broken():
    assert vllm_view(GOOD, "qwen") == [CALL]
    assert vllm_view(UNCLOSED, "ling") == [CALL]
    assert vllm_view(GOOD + BROKEN, "qwen") == GOOD + BROKEN
    assert vllm_view("hello", "qwen") == "hello"
    assert vllm_view(GOOD, "minimax2") is None


def test_where_all_agree_nothing_is_said(llamafactory):
    assert read(GOOD) == []
    assert read("好的") == []
    assert read(BROKEN) == []


def test_each_parser_that_sees_something_else_is_named(llamafactory):
    assert read(GOOD + "\n完成") == [f"LlamaFactory's extractor sees no call: {LOST} (text after the call)"]
    assert read(UNCLOSED) == ["vLLM's hermes parser sees 1 calls, 0 are well-formed (unclosed)"]
    assert read(GOOD + "\n" + BROKEN) == [
        f"LlamaFactory's extractor sees no call: {LOST} (another call is broken)",
        f"vLLM's hermes parser sees no call: {LOST} (one broken call hides the others)",
    ]
    assert read('{"name": "f", "parameters": {}} ok', "llama3") == [
        f"LlamaFactory's extractor sees no call: {LOST} (text after the call)"
    ]


def test_faults_of_llamafactorys_extractors_are_named(llamafactory):
    assert read("<tool_call>7</tool_call>")[0].startswith("LlamaFactory's extractor raises TypeError: ")
    assert read('<tool_calls>\n{"name": "f"}\n</tool_calls>', "minimax1")[0].endswith("raises KeyError: 'arguments'")
    minimax2 = '<invoke name="f">\n<parameter name="a">1</parameter>\n</invoke>'  # as its own formatter writes it
    assert read(minimax2, "minimax2") == [f"LlamaFactory's extractor sees no call: {LOST}"]
    glm4_moe = "\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>"
    assert read(glm4_moe, "glm4_moe") == [f"LlamaFactory's extractor sees no call: {LOST}"]


@pytest.mark.parametrize("tool_format", FORMATS)
@pytest.mark.parametrize(
    "body", ["", "[" * 5000, '{"a":' * 5000, '["f"]', "7", "x\n7", "<tool_calls>\n7\n</tool_calls>"]
)
def test_no_view_raises(tool_format, body):
    llamafactory_view(body, tool_format)
    vllm_view(body, tool_format)
    disagreements(read_calls(body, tool_format, ["f"]).attempts, body, tool_format)


REAL = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser
from vllm.tool_parsers.llama_tool_parser import Llama3JsonToolParser

def seen(parser, text):
    found = parser.__new__(parser).extract_tool_calls(text, None)  # no tokenizer: it is not used for a whole text
    if not found.tools_called:
        return found.content
    return [[call.function.name, json.loads(call.function.arguments)] for call in found.tool_calls]

texts = json.load(sys.stdin)
parsers = {"qwen": Hermes2ProToolParser, "llama3": Llama3JsonToolParser}
print(json.dumps({name: [seen(parsers[name], text) for text in texts[name]] for name in parsers}))
"""


@pytest.mark.vllm
def test_the_mirror_sees_what_vllm_sees():
    python = os.environ.get("VLLM_PYTHON") or (sys.executable if importlib.util.find_spec("vllm") else None)
    if python is None:
        pytest.skip("vLLM is not importable here and VLLM_PYTHON is not set: make test-vllm")
    texts = {"qwen": HERMES, "llama3": LLAMA3}
    done = subprocess.run([python, "-c", REAL], input=json.dumps(texts), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    real = json.loads(done.stdout.strip().splitlines()[-1])
    for tool_format, bodies in texts.items():
        for body, theirs in zip(bodies, real[tool_format], strict=True):
            ours = vllm_view(body, tool_format)
            if not isinstance(ours, str):
                ours = [[call.name, call.arguments] for call in ours]
            assert repr(ours) == repr(theirs), body  # repr: NaN is not equal to itself
