"""Reading tool calls out of a model's raw answer, one scanner per `tool_format` of LlamaFactory.

A scanner accepts what LlamaFactory's formatter of that name writes, for that is what training teaches, and finds every
other try at a call with the class of what is wrong with its form:

    class                what is wrong
    unclosed             a closing mark (or closing bracket, where the format has no marks) is missing
    invalid_json         the JSON does not parse; `detail` says where, what and whether it is only repairable
    invalid_syntax       the same in formats whose arguments are no JSON (gemma4, glm4_moe, lfm2, minimax2, qwen3_5,
                         seed_oss)
    several_in_block     two calls where one is expected ("extra data")
    no_name              no name
    no_arguments         no arguments, or under another key than the format's
    arguments_as_text    the arguments are a JSON text that holds an object
    arguments_not_object the arguments are a list, a number, ...
    no_markup            a call without the format's marks: a bare JSON object that names a known tool, or the marks of
                         another format (`detail` names it)
    stray_markup         a closing mark without an opening one, or an inner mark without the outer one

Where several hold, the one that stands higher in the table is the class and `detail` tells the rest. A call must have
been tried: a tool's name in prose is none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..turns import Attempt
from . import bare, default, foreign, gemma4, glm4, glm4_moe, lfm2, minimax1, qwen, tagged, thinking

FORM_ERRORS = (
    "unclosed",
    "invalid_json",
    "invalid_syntax",
    "several_in_block",
    "no_name",
    "no_arguments",
    "arguments_as_text",
    "arguments_not_object",
    "no_markup",
    "stray_markup",
)

# LlamaFactory's `tool_format` -> (scanner, marks that mean nothing by themselves).
_SCANNERS: dict[str, tuple[foreign.Scanner, tuple[str, ...]]] = {
    "default": (default.read, ()),
    "gemma4": (gemma4.read, gemma4.STRAY),
    "glm4": (glm4.read, ()),
    "glm4_moe": (glm4_moe.read, glm4_moe.STRAY),
    "lfm2": (lfm2.read, lfm2.STRAY),
    "ling": (qwen.read, qwen.STRAY),
    "llama3": (bare.read_llama3, ()),
    "minimax1": (minimax1.read, minimax1.STRAY),
    "minimax2": (tagged.reader(tagged.MINIMAX2), tagged.MINIMAX2.stray),
    "mistral": (bare.read_mistral, ()),
    "qwen": (qwen.read, qwen.STRAY),
    "qwen3_5": (tagged.reader(tagged.QWEN3_5), tagged.QWEN3_5.stray),
    "seed_oss": (tagged.reader(tagged.SEED_OSS), tagged.SEED_OSS.stray),
}
FORMATS = tuple(_SCANNERS)

# Every format's own marks and the thinking's: they are no leak of the chat template.
CALL_MARKS = frozenset(
    {mark for _, marks in _SCANNERS.values() for mark in marks}
    | {module.OPEN for module in (gemma4, glm4_moe, lfm2, minimax1, qwen)}
    | {gemma4.OUTER_OPEN, gemma4.OUTER_CLOSE, '<|"|>', bare.LLAMA3_OPEN, bare.MISTRAL_OPEN, "[ARGS]"}
    | {tagged.QWEN3_5.open, tagged.SEED_OSS.open, tagged.MINIMAX2.open}
    | {mark.strip() for pair in thinking.MARKS for mark in pair}
    | {"<|channel>"}
)


@dataclass(frozen=True)
class Reading:
    """What an answer holds.

    Attributes:
        attempts: the calls tried in it, in order; each `text` is a piece of the answer.
        says: the text outside of calls and thinking, stripped.
    """

    attempts: tuple[Attempt, ...]
    says: str


def read_calls(body: str, tool_format: str, tool_names: Iterable[str] | Mapping[str, dict]) -> Reading:
    """Finds the calls in an answer. Raises ValueError for an unknown format, and nothing whatever the answer is.

    Args:
        body: the answer without its end token.
        tool_format: one of `FORMATS`.
        tool_names: the functions that the model may call. A mapping name -> parameters (their JSON Schema) lets the
            formats that write all values as text keep a text that looks like a number a text.
    """
    if tool_format not in _SCANNERS:
        raise ValueError(f"no tool format {tool_format!r}; there are {', '.join(FORMATS)}")
    tools = tool_names if isinstance(tool_names, Mapping) else {name: {} for name in tool_names}
    scanner, stray = _SCANNERS[tool_format]
    pieces: list[str | Attempt] = [thinking.without(body, lambda text: _well_formed(text, scanner(text, tools)))]
    pieces = _expanded(pieces, scanner, tools)
    for other in foreign.others(tool_format):
        pieces = _expanded(pieces, other, tools)
    close = stray[0] if stray else None
    pieces = _expanded(pieces, lambda text, known: bare.find(text, known, close), tools)
    if stray:
        pieces = _expanded(pieces, foreign.stray(stray), tools)
    attempts = tuple(piece for piece in pieces if isinstance(piece, Attempt))
    said = (piece.strip() for piece in pieces if isinstance(piece, str))
    return Reading(attempts, "\n".join(piece for piece in said if piece))


def _expanded(pieces: list[str | Attempt], scanner: foreign.Scanner, tools: Mapping[str, dict]) -> list[str | Attempt]:
    """The same pieces with the calls that the scanner finds in the texts cut out."""
    done: list[str | Attempt] = []
    for piece in pieces:
        if isinstance(piece, Attempt):
            done.append(piece)
            continue
        at = 0
        for attempt in scanner(piece, tools):
            start = piece.index(attempt.text, at)
            done += [piece[at:start], attempt]
            at = start + len(attempt.text)
        done.append(piece[at:])
    return done


def _well_formed(body: str, attempts: tuple[Attempt, ...]) -> list[tuple[int, int]]:
    spans = []
    at = 0
    for attempt in attempts:
        start = body.index(attempt.text, at)
        at = start + len(attempt.text)
        if attempt.error is None:
            spans.append((start, at))
    return spans
