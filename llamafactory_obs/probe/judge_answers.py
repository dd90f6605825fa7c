"""What is wrong with the texts of a conversation, as texts and against what the probe expects of them."""

import json
import re
from collections.abc import Sequence

from ..suite.model import Probe
from . import signals
from .formats.json_text import shown
from .notes import Notes
from .turns import Turn

# Asks for what is missing or wrong, with or without a question mark. A polite closing question does not.
_ASKS = re.compile(
    r"请(?:您|你)?(?:先|再|重新)?(?:告诉|告知|提供|确认|选择|选|指定|说明|明确|输入|重试|换)|哪一?[个些]|(?:您|你)(?:说的|要的)?是指"
    r"|\b(?:do|did) you mean\b|\bplease (?:tell|provide|confirm|specify|choose|clarify|try|use|let me know which)"
    r"|\bwhich (?:one|of|region|do)\b",
    re.IGNORECASE,
)
_MARK = re.compile(r"[?？]")
_CLAUSE = re.compile(r"[^，,。.！!；;\n?？]*[?？]?")
_TAG = re.compile(r"\s*(?:对|是|好|可以|行)(?:吗|吧|么)?[?？]|\s*(?:right|correct|ok)[?？]", re.IGNORECASE)


def generation(turns: Sequence[Turn], special_tokens: tuple[str, ...], notes: Notes) -> None:
    """Notes `no_end_token`, `repetition` and `template_leak`: errors whatever was asked."""
    for number, turn in enumerate(turns, 1):
        if turn.finish == "length":
            notes.add("no_end_token", f"answer {number} was cut after {turn.tokens} tokens")
        share = signals.repetition(turn.body)
        if share >= signals.REPETITION_THRESHOLD:
            notes.add("repetition", f"{share:.0%} of answer {number} repeats itself: {shown(turn.body[-60:])}")
        leaked = signals.leaks(turn.body, special_tokens)
        if leaked:
            notes.add("template_leak", f"{', '.join(leaked)} in answer {number}")


def content(probe: Probe, turns: Sequence[Turn], notes: Notes) -> None:
    """Notes `empty_answer`, `missing_text` and `invented_result`."""
    last = turns[-1].says if turns else ""
    if not turns or (probe.expect.answer == "non_empty" and not any(mark.isalnum() for mark in last)):
        notes.add("empty_answer", "the last answer has no text" if turns else "there is no answer at all")
    for text in probe.expect.contains:
        if text not in last:
            notes.add("missing_text", f"{text!r} is not in the last answer: {shown(last)!r}")
    if probe.expect.invented:
        _invented(probe, turns, probe.expect.invented, notes)


def _invented(probe: Probe, turns: Sequence[Turn], pattern: str, notes: Notes) -> None:
    """What only the tool can know must have stood in a reply before it is told; a later reply does not excuse it."""
    told = [probe.system, *(json.dumps(tool.as_dict(), ensure_ascii=False) for tool in probe.tools)]
    told += [json.dumps(message, ensure_ascii=False, default=str) for message in probe.messages]
    told += [str(message.get("content") or "") for message in probe.messages]
    for number, turn in enumerate(turns, 1):
        known = "\n".join(told)
        matches = dict.fromkeys(_whole(turn.says, found) for found in re.finditer(pattern, turn.says) if found[0])
        invented = [match for match in matches if not _stands_in(match, known)]
        if invented:
            notes.add("invented_result", f"{', '.join(invented)} in answer {number}, which no reply contained before")
        told += [reply.text for reply in turn.replies]


def _whole(text: str, found: re.Match) -> str:
    """The match with the rest of its word: of A170 a pattern may match A17, which is another order."""
    start, end = found.span()
    while start > 0 and _in_word(text[start - 1]) and _in_word(text[start]):
        start -= 1
    while end < len(text) and _in_word(text[end]) and _in_word(text[end - 1]):
        end += 1
    return text[start:end]


def _stands_in(word: str, text: str) -> bool:
    """Does the text hold this word, and not only inside a longer one?"""
    before = r"(?<![A-Za-z0-9])" if _in_word(word[0]) else ""
    after = r"(?![A-Za-z0-9])" if _in_word(word[-1]) else ""
    return bool(re.search(before + re.escape(word) + after, text))


def _in_word(mark: str) -> bool:
    return mark.isascii() and mark.isalnum()


def asks(probe: Probe, turns: Sequence[Turn]) -> bool:
    """Does the conversation end in a question to the user about what the tool refused, without a call?

    It asks for a choice or a correction, or a clause with a question mark names a value that is legal here. "Anything
    else?" at the end of an answer is no such question.
    """
    if not turns or turns[-1].attempts:
        return False
    says = turns[-1].says
    if _ASKS.search(says):
        return True
    clauses = [clause for clause in _CLAUSE.findall(says) if clause.strip()]
    questions = [
        (clauses[at - 1] if at and _TAG.fullmatch(clause) else "") + clause
        for at, clause in enumerate(clauses)
        if _MARK.search(clause)
    ]
    return any(value in question for question in questions for value in _legal(probe))


def _legal(probe: Probe) -> set[str]:
    """The texts that would be right in a retry, and those that the tools' schemas list."""
    values = {v for right in (probe.expect.after_error.retry or {}).values() for v in right if isinstance(v, str)}
    for tool in probe.tools:
        for schema in (tool.parameters.get("properties") or {}).values():
            if isinstance(schema, dict):
                values |= {v for v in schema.get("enum") or [] if isinstance(v, str)}
    return values
