"""What is left of an answer once the calls in its own format are out: marks of other formats and stray ones."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..turns import Attempt
from . import bare, default, gemma4, glm4_moe, lfm2, minimax1, qwen, tagged

Scanner = Callable[[str, Mapping[str, dict]], tuple[Attempt, ...]]

# Format, a pattern that shows that it was meant, its scanner. Three share `<tool_call>`: what follows tells them apart.
_OTHERS: tuple[tuple[str, re.Pattern, Scanner], ...] = (
    ("seed_oss", re.compile("<seed:tool_call>"), tagged.reader(tagged.SEED_OSS)),
    ("qwen3_5", re.compile(r"<tool_call>\s*<function="), tagged.reader(tagged.QWEN3_5)),
    ("qwen3_5", re.compile(r"<function=[^<>\n]+>"), tagged.reader(replace(tagged.QWEN3_5, wrapped=False))),
    ("qwen", re.compile(r"<tool_call>\s*[{\[]"), qwen.read),
    ("glm4_moe", re.compile(r"<tool_call>\s*[\w.-]+\s*<arg_key>"), glm4_moe.read),
    ("qwen", re.compile("<tool_call>"), qwen.read),
    ("minimax2", re.compile("<minimax:tool_call>|<invoke name="), tagged.reader(tagged.MINIMAX2)),
    ("minimax1", re.compile("<tool_calls>"), minimax1.read),
    ("lfm2", re.compile(r"<\|tool_call_start\|>"), lfm2.read),
    ("gemma4", re.compile(r"<\|tool_call>"), gemma4.read),
    ("mistral", re.compile(r"\[TOOL_CALLS\]"), bare.read_mistral),
    ("llama3", re.compile(r"<\|python_tag\|>"), bare.read_llama3),
    ("default", re.compile(r"^[ \t]*Action:.*\n\s*Action Input:", re.MULTILINE), default.read),
)


def others(tool_format: str) -> list[Scanner]:
    """Scanners for every other format; what they find is `no_markup`, for its own marks are missing."""
    return [_as_foreign(*other) for other in _OTHERS if other[0] != tool_format]


def _as_foreign(name: str, shows: re.Pattern, scanner: Scanner) -> Scanner:
    def read(text: str, tools: Mapping[str, dict]) -> tuple[Attempt, ...]:
        return tuple(_renamed(attempt, name) for attempt in scanner(text, tools)) if shows.search(text) else ()

    return read


def _renamed(attempt: Attempt, name: str) -> Attempt:
    also = f"; {attempt.error}: {attempt.detail}" if attempt.error else ""
    return replace(attempt, error="no_markup", detail=f"written in the format of {name}{also}")


def stray(marks: tuple[str, ...]) -> Scanner:
    """A scanner for marks that close what was not opened; those that stand together are one attempt."""
    one = "|".join(map(re.escape, marks))
    pattern = re.compile(rf"(?:{one})(?:\s*(?:{one}))*")

    def read(text: str, tools: Mapping[str, dict]) -> tuple[Attempt, ...]:
        return tuple(
            Attempt(found[0], False, "stray_markup", f"{found[0].split()[0]} outside of a call")
            for found in pattern.finditer(text)
        )

    return read
