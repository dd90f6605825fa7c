"""qwen3_5, seed_oss, minimax2: a function mark that holds one mark per argument, inside a mark for the call.

The values stand there as text. A text and a number look alike, so a value is read as JSON unless the tool's schema says
that it is a text; LlamaFactory's own extractors read JSON always.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..turns import Attempt
from .build import from_json, unclosed
from .json_text import Broken, decode, shown

_SPACE = re.compile(r"\s*")


@dataclass(frozen=True)
class Marks:
    """The marks of one format.

    Attributes:
        open, close: around a call; `wrapped` says that they must be there (LlamaFactory's formatter for minimax2 leaves
            them out, its extractor wants them, and so does vLLM).
        function, parameter: how those marks begin, up to the name; `named` ends them.
        function_end, parameter_end: their closing marks.
        line: is a value written on lines of its own?
        bare_function: LlamaFactory's formatter leaves out what ends the function's mark.
    """

    open: str
    close: str
    wrapped: bool
    function: str
    parameter: str
    named: str
    function_end: str
    parameter_end: str
    line: bool
    bare_function: bool = False

    @property
    def stray(self) -> tuple[str, ...]:
        """Marks that have no place outside of a call."""
        return self.close, self.function_end, self.parameter_end


QWEN3_5 = Marks(
    "<tool_call>", "</tool_call>", True, "<function=", "<parameter=", ">", "</function>", "</parameter>", True
)
SEED_OSS = replace(QWEN3_5, open="<seed:tool_call>", close="</seed:tool_call>", line=False, bare_function=True)
MINIMAX2 = Marks(
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    False,
    '<invoke name="',
    '<parameter name="',
    '">',
    "</invoke>",
    "</parameter>",
    False,
)


def reader(marks: Marks) -> Callable[[str, Mapping[str, dict]], tuple[Attempt, ...]]:
    """The scanner of a format with these marks."""

    def read(body: str, tools: Mapping[str, dict]) -> tuple[Attempt, ...]:
        return tuple(_Reading(body, tools, marks).attempts())

    return read


class _Reading:
    """One pass over one text."""

    def __init__(self, body: str, tools: Mapping[str, dict], marks: Marks):
        self.body, self.tools, self.marks = body, tools, marks
        parameter, function = re.escape(marks.parameter), re.escape(marks.function)
        ends = "|".join(map(re.escape, (marks.function_end, marks.close)))
        # Places are searched once, not anew per call: that would be quadratic.
        self.value_ends = self._places(rf"{re.escape(marks.parameter_end)}(?=\s*(?:{parameter}|{ends}|\Z))")
        last = re.escape(marks.close) if marks.wrapped else rf"(?:{re.escape(marks.close)}|{function}|\Z)"
        self.call_ends = self._places(
            rf"{re.escape(marks.function_end)}(?=\s*{last})|{re.escape(marks.open)}(?=\s*{function})"
        )
        self.parameters = self._places(rf"\n[ \t]*{parameter}")
        self.starts = self._places(f"{re.escape(marks.open)}|{function}")
        self.bounds = self._places(f"{re.escape(marks.open)}|{re.escape(marks.close)}")

    def _places(self, pattern: str) -> list[int]:
        return [found.start() for found in re.finditer(pattern, self.body)]

    def _next(self, places: list[int], at: int) -> int:
        index = bisect_left(places, at)
        return places[index] if index < len(places) else len(self.body)

    def _skip(self, at: int) -> int:
        return _SPACE.match(self.body, at).end()

    def attempts(self) -> list[Attempt]:
        """All calls that are begun."""
        body, marks, attempts, at = self.body, self.marks, [], 0
        wrapped = False
        while (start := self._next(self.starts, at)) < len(body):
            inner = start
            if body.startswith(marks.open, start):
                wrapped, inner = True, self._skip(start + len(marks.open))
            if not body.startswith(marks.function, inner):
                attempt, at = self._other(start, inner)
                wrapped = False
            else:
                attempt, at, wrapped = self._call(start, inner, wrapped)
            attempts.append(attempt)
        return attempts

    def _other(self, start: int, inner: int) -> tuple[Attempt, int]:
        """A block that does not begin with a function."""
        body, marks = self.body, self.marks
        limit = self._next(self.bounds, inner)
        closed = body.startswith(marks.close, limit)
        end = limit + len(marks.close) if closed else limit
        text = body[start:end]
        if body.startswith(("{", "["), inner):
            attempt = from_json(text, body[inner:limit])
            also = f"; {attempt.detail}" if attempt.error else ""
            detail = f"JSON in the block where {marks.function}…{marks.named} should be{also}"
            attempt = replace(attempt, error="no_markup", detail=detail)
        else:
            attempt = Attempt(text, True, "no_name", f"no {marks.function}…{marks.named} in the block: {shown(text)}")
        return (attempt if closed else unclosed(attempt, marks.close)), end

    def _call(self, start: int, inner: int, wrapped: bool) -> tuple[Attempt, int, bool]:
        body, marks = self.body, self.marks
        name, at = self._name(inner, marks.function)
        arguments: dict = {}
        error, detail = "unclosed", repr(marks.named)
        if name is not None:
            error, detail, at = self._arguments(at, name, arguments)
        if error is None:
            return self._ended(start, at, name, arguments, wrapped)
        attempt = Attempt(body[start:at], error != "unclosed", error, detail, name or None, arguments)
        return (unclosed(replace(attempt, error=None), detail) if error == "unclosed" else attempt), at, False

    def _ended(self, start: int, at: int, name: str, arguments: dict, wrapped: bool) -> tuple[Attempt, int, bool]:
        """A function whose own closing mark is there: what about the mark around it?"""
        body, marks = self.body, self.marks
        after = self._skip(at)
        closed = body.startswith(marks.close, after)
        another = body.startswith(marks.function, after)
        if another and not marks.wrapped:
            return self._made(start, at, name, arguments), at, wrapped  # the last function closes the block
        if another and wrapped:
            limit = self._next(self.bounds, after)
            closed = body.startswith(marks.close, limit)
            at = limit + len(marks.close) if closed else limit
            attempt = replace(
                self._made(start, at, name, arguments), error="several_in_block", detail="two functions in one block"
            )
        else:
            at = after + len(marks.close) if closed else at
            attempt = self._made(start, at, name, arguments)
        if marks.wrapped and not wrapped:
            detail = f"{marks.function}…{marks.named} without {marks.open} before it"
            attempt = replace(attempt, error="stray_markup", detail=detail)
        elif wrapped and not closed:
            attempt = unclosed(attempt, marks.close)
        return attempt, at, False

    def _made(self, start: int, end: int, name: str, arguments: dict) -> Attempt:
        text = self.body[start:end]
        if not name:
            return Attempt(text, True, "no_name", f"nothing after {self.marks.function}", None, arguments)
        return Attempt(text, True, None, "", name, arguments)

    def _name(self, at: int, mark: str) -> tuple[str | None, int]:
        """The name in a mark and where the mark ends; None where it does not end on its line."""
        begin = at + len(mark)
        line = self.body.find("\n", begin, begin + 300)
        line = line if line >= 0 else min(len(self.body), begin + 300)
        end = self.body.find(self.marks.named, begin, line)
        if end < 0 and self.marks.bare_function and mark == self.marks.function:
            return self.body[begin:line].strip(), line
        return (self.body[begin:end].strip(), end + len(self.marks.named)) if end >= 0 else (None, line)

    def _arguments(self, at: int, name: str, arguments: dict) -> tuple[str | None, str, int]:
        """Fills `arguments`; returns what is wrong, in words, and where it ends."""
        body, marks = self.body, self.marks
        while True:
            here = self._skip(at)
            if body.startswith(marks.function_end, here):
                return None, "", here + len(marks.function_end)
            if not body.startswith(marks.parameter, here):
                limit = self._next(self.bounds, here)
                if here == len(body) or body.startswith((marks.close, marks.open), here):
                    return "unclosed", marks.function_end, self._past(here)
                end = limit + len(marks.close) if body.startswith(marks.close, limit) else limit
                return "invalid_syntax", f"no argument's mark: {shown(body[here:limit])}", end
            key, begin = self._name(here, marks.parameter)
            if key is None:
                return "unclosed", f"{marks.named!r} of {marks.parameter}…", begin
            end = self._next(self.value_ends, begin)
            wall = min(self._next(self.call_ends, begin), self._next(self.parameters, begin))
            if end == len(body) or wall < end:
                return "unclosed", f"{marks.parameter_end} of {key!r}", self._past(wall)
            arguments[key] = self._value(name, key, body[begin:end])
            at = end + len(marks.parameter_end)

    def _past(self, stop: int) -> int:
        """Behind the block that a broken argument stands in, or before the next one."""
        body, marks = self.body, self.marks
        if body.startswith(marks.function_end, stop):
            stop += len(marks.function_end)
            after = self._skip(stop)
            return after + len(marks.close) if body.startswith(marks.close, after) else stop
        limit = self._next(self.bounds, stop)
        return limit + len(marks.close) if body.startswith(marks.close, limit) else limit

    def _value(self, name: str, key: str, text: str) -> object:
        if self.marks.line:
            text = text.removeprefix("\n").removesuffix("\n")
        return typed(text, self.tools.get(name, {}), key)


def typed(text: str, parameters: dict, key: str) -> object:
    """A value that stands there as text: JSON, where it is some and the schema does not say that it is a text."""
    schema = parameters.get("properties", {}).get(key, {}) if isinstance(parameters, dict) else {}
    if isinstance(schema, dict) and schema.get("type") == "string":
        return text
    stripped = text.strip()
    try:
        value, end = decode(stripped)
    except Broken:
        return text
    return value if end == len(stripped) else text
