"""The simulated tool: its reply depends on the call that was made."""

import json
import re
from dataclasses import dataclass

from .model import Call, Probe
from .values import fits

_PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class ToolReply:
    """What the model is shown after a call.

    Attributes:
        text: JSON.
        error: is it an error?
    """

    text: str
    error: bool


def answer(probe: Probe, call: Call) -> ToolReply:
    """The first reply of the probe that fits the call; an error where none does, as a real tool host would say."""
    for rule in probe.tool_replies:
        if rule.tool == call.name and fits(call.arguments, rule.when):
            filled = _fill(rule.reply, call.arguments)
            return ToolReply(json.dumps(filled, ensure_ascii=False), isinstance(filled, dict) and "error" in filled)
    known = [tool.name for tool in probe.tools]
    said = f"no tool {call.name!r}" if call.name not in known else f"{call.name} cannot answer these arguments"
    return ToolReply(json.dumps({"error": said}, ensure_ascii=False), True)


def _fill(reply: object, arguments: dict) -> object:
    if isinstance(reply, str):
        return _PLACE.sub(lambda place: _shown(arguments.get(place[1], "")), reply)
    if isinstance(reply, dict):
        return {key: _fill(value, arguments) for key, value in reply.items()}
    if isinstance(reply, list):
        return [_fill(value, arguments) for value in reply]
    return reply


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
