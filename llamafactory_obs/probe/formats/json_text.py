"""Reading JSON that a model wrote: strictly, and where that fails, saying what is wrong and what was probably meant."""

import ast
import json
import re
import warnings
from dataclasses import dataclass

# `ast` builds a tree of Python objects; a longer text is not worth it, and deep ones are refused by depth anyway.
LONGEST_LITERAL = 1000
TOO_DEEP = "nested too deeply"
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]{1,200})"')
_CURLY = str.maketrans({"“": '"', "”": '"', "„": '"', "＂": '"'})
_SHOWN = 40


class Broken(ValueError):
    """The text is no JSON; `position` is where reading stopped."""

    def __init__(self, reason: str, position: int):
        super().__init__(reason)
        self.reason, self.position = reason, position


@dataclass(frozen=True)
class Parsed:
    """What a text holds.

    Attributes:
        value: the JSON value; where `error` is set, what was probably meant, or None.
        error: None, "invalid_json" or "several_in_block".
        detail: what is wrong, and whether it is only repairable.
    """

    value: object = None
    error: str | None = None
    detail: str = ""


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_STRICT = json.JSONDecoder(parse_constant=_refuse)  # Python's own takes NaN and Infinity
_LOOSE = json.JSONDecoder(strict=False, parse_constant=_refuse)


def decode(text: str, start: int = 0) -> tuple[object, int]:
    """The JSON value that begins at `start` (no space before it) and where it ends; raises `Broken`, nothing else."""
    try:
        return _STRICT.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise Broken(error.msg, error.pos) from None
    except RecursionError:
        raise Broken(TOO_DEEP, start) from None
    except ValueError as error:  # NaN; an integer with more digits than Python converts
        raise Broken(str(error).split(":", 1)[0], start) from None


def parse(text: str) -> Parsed:
    """Reads one JSON value from a whole text."""
    text = text.strip()
    if not text:
        return Parsed(None, "invalid_json", "nothing where the JSON should be")
    try:
        value, end = decode(text)
    except Broken as broken:
        return _repaired(text, broken)
    rest = text[end:].strip()
    if not rest:
        return Parsed(value)
    if rest.lstrip(",; ").startswith(("{", "[")):
        return Parsed(value, "several_in_block", f"extra data after the first object: {shown(rest)}")
    if not rest.strip("}] \n"):
        return Parsed(value, "invalid_json", f'closing "{rest}" too many at the end; repairable')
    return Parsed(value, "invalid_json", f"text after the object: {shown(rest)}")


def name_in(text: str) -> str | None:
    """The value of the first "name" in a broken object."""
    found = _NAME.search(text)
    return found[1] if found else None


def shown(text: str) -> str:
    """A text on one line, cut."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"


def extent(text: str, start: int) -> tuple[int, str]:
    """Where the bracket that opens at `start` closes, and which closing brackets are missing ("" where it closes).

    Brackets within strings do not count. A text that ends within a string misses its quote as well.
    """
    missing: list[str] = []
    quoted = False
    place = start
    while place < len(text):
        char = text[place]
        if quoted:
            if char == "\\":
                place += 1
            elif char == '"':
                quoted = False
        elif char == '"':
            quoted = True
        elif char in "{[":
            missing.append("}" if char == "{" else "]")
        elif char in "}]" and missing:
            missing.pop()
            if not missing:
                return place + 1, ""
        place += 1
    return len(text), ('"' if quoted else "") + "".join(reversed(missing))


def _repaired(text: str, broken: Broken) -> Parsed:
    _, missing = extent(text, 0)
    if missing and not missing.startswith('"'):
        value = _tried(text + missing)
        if value is not None:
            number = "brace" if len(missing) == 1 else "brackets"
            return Parsed(value, "invalid_json", f'closing {number} "{missing}" missing at the end; repairable')
    for reason, repair in (
        ("a raw line break or tab within a text", lambda: _LOOSE.decode(text)),
        ("a comma before a closing bracket", lambda: _STRICT.decode(re.sub(r",(\s*[}\]])", r"\1", text))),
        ("single quotes, True or None: a Python literal", lambda: literal(text)),
        ("typographic quotes", lambda: _STRICT.decode(text.translate(_CURLY))),
    ):
        try:
            value = repair()
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        return Parsed(value, "invalid_json", f"{reason}, not JSON; repairable")
    place = f"character {broken.position} of {len(text)}"
    near = f" near {shown(text[broken.position : broken.position + _SHOWN])}" if broken.position < len(text) else ""
    if missing.startswith('"'):
        return Parsed(None, "invalid_json", f"the text ends within a string ({place})")
    return Parsed(None, "invalid_json", f"{broken.reason} at {place}{near}")


def _tried(text: str) -> object:
    try:
        return _STRICT.decode(text)
    except (ValueError, RecursionError):
        return None


def literal(text: str) -> object:
    """A JSON value that is written as a Python literal; raises what `ast.literal_eval` raises where it is none."""
    if len(text) > LONGEST_LITERAL or not text.startswith(("{", "[")):
        raise ValueError("not tried")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the model's escapes are none of ours
        value = ast.literal_eval(text)
    json.dumps(value)  # sets, bytes and complex numbers are no JSON values: TypeError
    return value
