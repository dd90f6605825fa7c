"""Whatever the answer is: reading calls neither raises nor takes long, and every piece found stands in the answer."""

import random
import time

import pytest

from llamafactory_obs.probe.formats import FORM_ERRORS, FORMATS, read_calls

PIECES = [
    *(
        "<tool_call>",
        "</tool_call>",
        "{",
        "}",
        "[",
        "]",
        '"',
        ":",
        ",",
        "\n",
        " ",
        "'",
        "\\",
        "=",
        "(",
        ")",
        ">",
        "华",
        "1",
    ),
    *("name", '"name": "f"', '"arguments": ', "<function=", "<parameter=", "</parameter>", "</function>", "<think>"),
    *("</think>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|tool_call_start|>", "<|tool_call_end|>"),
    *("f(", "a=", "Action: f\n", "Action Input: ", "<|tool_call>call:f{", "<tool_call|>", '<|"|>', "[TOOL_CALLS]"),
    *(
        "<tool_calls>",
        "</tool_calls>",
        '<invoke name="',
        '">',
        "</invoke>",
        "<minimax:tool_call>",
        "<seed:tool_call>",
        "f\n",
    ),
]
LONG = [
    *(
        "{",
        "[",
        '"',
        "\\",
        "\n",
        "-",
        '{"a":',
        '{"name":',
        "<tool_call>",
        "<tool_call>{",
        "<tool_call>[",
        "</tool_call>",
    ),
    *("<think>", "</think>", '{"name": "f" ', '{"name": "f", "arguments": ', "<tool_call><function=a><parameter=b>"),
    *(
        "f\n{",
        "<tool_call>f<arg_key>a</arg_key><arg_value>",
        "<|tool_call_start|>[f(a={",
        '<|tool_call_start|>[f(a="x", ',
    ),
    *(
        "<|tool_call>call:f{a:{",
        "[TOOL_CALLS][{",
        '<tool_calls>\n{"a',
        "Action: f\nAction Input: {",
        "<seed:tool_call>",
    ),
]


def test_nothing_raises_whatever_the_text():
    rng = random.Random(0)
    for number in range(600):
        pieces = PIECES if number % 3 else [chr(rng.randrange(1, 0xD7FF)) for _ in range(20)]
        body = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 60)))
        for tool_format in FORMATS:
            at = 0
            for attempt in read_calls(body, tool_format, ["f"]).attempts:
                assert attempt.text and (attempt.error is None or attempt.error in FORM_ERRORS)
                if "think" not in body:  # what is cut out of the middle joins its two sides
                    at = body.index(attempt.text, at) + len(attempt.text)


@pytest.mark.parametrize("piece", LONG)
def test_long_texts_take_linear_time(piece):
    """30,000 characters take 0.3 s at most on one slow core; reading in quadratic time takes several seconds."""
    body = (piece * (30_000 // len(piece) + 1))[:30_000]
    for tool_format in ("qwen", "qwen3_5"):
        began = time.process_time()
        read_calls(body, tool_format, ["f"])
        assert time.process_time() - began < 2
