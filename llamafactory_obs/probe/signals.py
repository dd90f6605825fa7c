"""Signs of a sick answer that need no expectation: it repeats itself, or tokens of the chat template leak into it."""

import re
from collections.abc import Iterable

from .formats import CALL_MARKS

# Of the 5074 assistant texts in LlamaFactory's demo data (English, Chinese, code, tool calls) two have any share at
# all: rejected answers that loop indeed, 0.99 and 0.31. A line said 20 times has 0.95. tests/test_probe_signals.py
# holds both.
REPETITION_THRESHOLD = 0.2
_WINDOW = 8  # tokens that must be equal to be taken for the same place
_LONGEST = 200  # tokens of one lap
_LAPS = 4  # a refrain comes less often
_LEAST = 40  # repeated tokens: "ha ha ha" is no loop
_TOKEN = re.compile(r"[A-Za-z0-9_]+|[^\sA-Za-z0-9_]")
_RULES = frozenset("-=_*+|:.#~")

ROLE_MARKERS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "[INST]",
    "[/INST]",
    "<<SYS>>",
    "[TOOL_RESULTS]",
    "[AVAILABLE_TOOLS]",
    "<tool_response>",
    "</tool_response>",
)


def repetition(text: str) -> float:
    """The share of a text, 0 to 1, that goes round in circles: the same laps one right after the other.

    The text is cut into tokens (a word, or one other character). A stretch counts where it repeats what stood up to
    200 tokens before, at least 4 laps long and without a break; its first lap is no repetition. Rows of a table or of a
    JSON list share most tokens, but each differs somewhere, and so breaks the circle. Stretches below 40 tokens and
    ruled lines ("-----", "|---|") do not count. Sick is `REPETITION_THRESHOLD` or more.
    """
    tokens = _TOKEN.findall(text)
    last: dict[tuple[str, ...], int] = {}
    covered = begin = lap = 0
    for at in range(len(tokens) - _WINDOW + 2):
        window = tuple(tokens[at : at + _WINDOW])
        back = at - last.get(window, at) if len(window) == _WINDOW else 0
        last[window] = at
        if back == lap:
            continue
        covered += _covered(tokens, begin, at + _WINDOW - 1, lap)
        begin, lap = at, back
    return covered / len(tokens) if tokens else 0.0


def _covered(tokens: list[str], begin: int, end: int, lap: int) -> int:
    """The tokens of a stretch in which each equals the one `lap` before, where it is a circle; else 0."""
    length = end - begin
    if not 0 < lap <= _LONGEST or length < max((_LAPS - 1) * lap, _LEAST):
        return 0
    return 0 if _RULES.issuperset(tokens[begin : begin + lap]) else length


def leaks(body: str, special_tokens: Iterable[str] = ()) -> list[str]:
    """Tokens of the chat template that stand in an answer, without doubles; the marks of calls and thinking are none.

    Args:
        special_tokens: of the tokenizer. Those that are no marks ("!", "a") are left out, for prose has them.
    """
    marks = [token for token in special_tokens if len(token) > 2 and not token.isalnum()]
    return [mark for mark in dict.fromkeys([*ROLE_MARKERS, *marks]) if mark not in CALL_MARKS and mark in body]
