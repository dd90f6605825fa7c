"""How a trainer's and a server's own parser see the same answer, and where they see something else than `formats` does.

They are looser or stricter than the format, and some have faults. A client of the server gets what the server's parser
makes of an answer, so an empty list of calls there can mean "not tried" as well as "tried and broken".
"""

import importlib.util
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ..suite.model import Call
from ..suite.values import same
from .turns import Attempt

_RAISED = "raised "
_LOST = "sees no call: it gives the whole text as content"
_HERMES = re.compile(r"<tool_call>(.*?)</tool_call>|<tool_call>(.*)", re.DOTALL)
_VLLM_NAMES = {"qwen": "hermes", "ling": "hermes", "llama3": "llama3_json"}


def llamafactory_view(body: str, tool_format: str) -> list[Call] | str | None:
    """What LlamaFactory's extractor of this format makes of an answer; never raises.

    Returns:
        The calls; or the text that it gives as content; or "raised <error>" where it does; None where LlamaFactory is
        not installed or has no such format.
    """
    extractor = _extractors().get(tool_format)
    if extractor is None:
        return None
    try:
        seen = extractor.tool_extractor(body)
        return seen if isinstance(seen, str) else [Call(name, _loaded(arguments)) for name, arguments in seen]
    except Exception as error:
        return f"{_RAISED}{type(error).__name__}: {str(error)[:80]}"


@cache
def _extractors() -> dict:
    """LlamaFactory's table of formats, from that one file: importing the package takes half a minute and torch."""
    package = importlib.util.find_spec("llamafactory")
    for folder in (package.submodule_search_locations or []) if package else []:
        try:
            spec = importlib.util.spec_from_file_location(
                "_llamafactory_tool_utils", Path(folder, "data", "tool_utils.py")
            )
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return dict(module.TOOLS)
        except Exception:  # another version, laid out differently: no view
            continue
    return {}


def _loaded(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except ValueError:  # gemma4's extractor hands on what it cannot read
        return arguments


def vllm_view(body: str, tool_format: str) -> list[Call] | str | None:
    """What vLLM's parser for this format makes of a whole answer (0.32.0, without streaming); never raises.

    Mirrored are `hermes` (qwen, ling) and `llama3_json` (llama3). Both give the whole text as content as soon as one
    call is broken; neither looks at the tools.

    Returns:
        The calls, or the text given as content; None for a format that is not mirrored.
    """
    parser = {"hermes": _hermes, "llama3_json": _llama3_json}.get(_VLLM_NAMES.get(tool_format, ""))
    if parser is None:
        return None
    try:
        return parser(body) or body
    except Exception:  # as there: any error at all, RecursionError included
        return body


def _hermes(body: str) -> list[Call]:
    blocks = [json.loads(closed or unclosed) for closed, unclosed in _HERMES.findall(body)]
    return [_call(block["name"], block["arguments"]) for block in blocks]


def _llama3_json(body: str) -> list[Call]:
    calls, end, decoder = [], -1, json.JSONDecoder()
    for brace in re.finditer(r"\{", body):
        if brace.start() <= end:
            continue
        block, length = decoder.raw_decode(body[brace.start() :])
        end = brace.start() + length
        calls.append(_call(block["name"], block["arguments"] if "arguments" in block else block["parameters"]))
    return calls


def _call(name: object, arguments: object) -> Call:
    if not isinstance(name, str):
        raise TypeError("the server's model of a call wants a text")
    return Call(name, arguments)


def disagreements(attempts: Sequence[Attempt], body: str, tool_format: str) -> list[str]:
    """One line for each parser that sees other calls than ours are.

    Args:
        attempts: what `formats.read_calls` found in `body`.
    """
    ours = [attempt.call for attempt in attempts if attempt.error is None]
    views = [("LlamaFactory's extractor", llamafactory_view(body, tool_format), _why_llamafactory)]
    if tool_format in _VLLM_NAMES:
        name = f"vLLM's {_VLLM_NAMES[tool_format]} parser"
        views.append((name, vllm_view(body, tool_format), _why_vllm))
    lines = []
    for name, view, why in views:
        said = _difference(ours, view, attempts)
        if said:
            lines.append(f"{name} {said}{why(attempts, body) if said.endswith(_LOST) else ''}")
    return lines


def _difference(ours: list[Call], view: list[Call] | str | None, attempts: Sequence[Attempt]) -> str:
    if view is None:
        return ""
    if isinstance(view, str):
        if view.startswith(_RAISED) and (ours or attempts):
            return view.replace(_RAISED, "raises ", 1)
        return _LOST if ours else ""
    if len(view) != len(ours):
        wrong = ", ".join(dict.fromkeys(attempt.error for attempt in attempts if attempt.error))
        return f"sees {len(view)} calls, {len(ours)} are well-formed{f' ({wrong})' if wrong else ''}"
    for number, (theirs, own) in enumerate(zip(view, ours, strict=True), 1):
        if theirs.name != own.name:
            return f"reads the name of call {number} as {theirs.name!r}"
        if not same(theirs.arguments, own.arguments):
            return f"reads the arguments of call {number} as {json.dumps(theirs.arguments, ensure_ascii=False)[:120]}"
    return ""


def _why_llamafactory(attempts: Sequence[Attempt], body: str) -> str:
    if any(attempt.error for attempt in attempts):
        return " (another call is broken)"
    after = body[body.rfind(attempts[-1].text) + len(attempts[-1].text) :].strip() if attempts else ""
    before = body[: body.find(attempts[0].text)].strip() if attempts else ""
    return " (text after the call)" if after else " (text before the call)" if before else ""


def _why_vllm(attempts: Sequence[Attempt], body: str) -> str:
    return " (one broken call hides the others)" if any(attempt.error for attempt in attempts) else ""
