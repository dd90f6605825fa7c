"""From a parsed value to an `Attempt`: the checks that every JSON format shares."""

from dataclasses import replace

from ..turns import Attempt
from .json_text import Broken, decode, name_in, parse

_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", int: "a number", float: "a number"}


def kind(value: object) -> str:
    """The JSON type in words."""
    return _KINDS.get(type(value), "null")


def from_json(text: str, inner: str, key: str = "arguments") -> Attempt:
    """An attempt whose piece of the answer is `text` and whose JSON is `inner`.

    Args:
        key: under which the format writes the arguments.
    """
    parsed = parse(inner)
    attempt = from_value(text, parsed.value, key)
    if parsed.error is None:
        return attempt
    name = attempt.name or name_in(inner)
    return replace(attempt, error=parsed.error, detail=parsed.detail, name=name)


def from_value(text: str, value: object, key: str = "arguments") -> Attempt:
    """An attempt from the JSON value of one call."""
    if isinstance(value, list) and len(value) > 1:
        first = from_value(text, value[0], key)
        return replace(first, error="several_in_block", detail=f"a list of {len(value)} in one block")
    if not isinstance(value, dict):
        return Attempt(text, True, "no_name", f"{kind(value)} where an object with a name should be")
    name, keys = value.get("name"), ", ".join(map(str, list(value)[:8])) or "none"
    if not isinstance(name, str) or not name.strip():
        return Attempt(text, True, "no_name", f'no text under "name"; keys: {keys}', None, value.get(key))
    if key not in value:
        return Attempt(text, True, "no_arguments", f'no "{key}"; keys: {keys}', name)
    return from_arguments(text, name, value[key], key)


def from_arguments(text: str, name: str, arguments: object, key: str = "arguments") -> Attempt:
    """An attempt from a name and the JSON value of its arguments."""
    if isinstance(arguments, str):
        try:
            held, _ = decode(arguments.strip())
        except Broken:
            held = None
        if isinstance(held, dict):
            detail = f'"{key}" is a text that holds an object'
            return Attempt(text, True, "arguments_as_text", detail, name, arguments)
    if not isinstance(arguments, dict):
        detail = f'"{key}" is {kind(arguments)}, not an object'
        return Attempt(text, True, "arguments_not_object", detail, name, arguments)
    return Attempt(text, True, None, "", name, arguments)


def unclosed(attempt: Attempt, mark: str) -> Attempt:
    """The same without its closing mark. Whatever else is wrong stays in the detail."""
    also = f"; {attempt.detail}" if attempt.error else ""
    return replace(attempt, closed=False, error="unclosed", detail=f"{mark} is missing{also}")
