"""What is wrong with the texts of a conversation, as texts and against what the probe expects of them."""

import json
import re
from collections.abc import Sequence

from ..suite.model import Probe
from . import signals
from .formats.json_text import shown
from .notes import Notes
from .turns import Turn

# A question to the user. A mark is enough; without one these ask all the same.
_ASKS = re.compile(
    r"[?？]|请问|请您?(?:告诉|告知|提供|确认|选择|指定|说明|明确)|哪一?[个些]|(?:您|你)是指"
    r"|\b(?:do|did) you mean\b|\b(?:could|can|would) you\b|\bplease (?:tell|provide|confirm|specify|choose|clarify|let)"
    r"|\blet me know\b|\bwhich (?:one|of|region|do)\b",
    re.IGNORECASE,
)


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
    if not turns or (probe.expect.answer == "non_empty" and not last):
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
        matches = dict.fromkeys(found[0] for found in re.finditer(pattern, turn.says) if found[0])
        invented = [match for match in matches if match not in known]
        if invented:
            notes.add("invented_result", f"{', '.join(invented)} in answer {number}, which no reply contained before")
        told += [reply.text for reply in turn.replies]


def asks(turns: Sequence[Turn]) -> bool:
    """Does the conversation end in a question to the user, without a call?"""
    return bool(turns) and not turns[-1].attempts and bool(_ASKS.search(turns[-1].says))
