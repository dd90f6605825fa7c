"""Lines of a width that is counted in cells of the terminal: a Chinese character takes two of them."""

import textwrap
import unicodedata

#: characters that begin no line and that end none
_NOT_FIRST = frozenset("\uff0c\u3002\uff1b\uff1a\uff01\uff1f\u3001\uff09\u300b\u300d\u300f\u3011\u201d\u2026%,.;:!?)]}")
_NOT_LAST = frozenset("\uff08\u300a\u300c\u300e\u3010\u201c([{")

#: cells of a line, where nobody asks the terminal
COLUMNS = 80

_SPACES = dict.fromkeys(map(ord, "\t\n\r\v\f"), " ")


def wrapped(text: str, width: int, first: str = "", then: str = "") -> list[str]:
    """The text in lines of at most `width` cells, like `textwrap.wrap`; at least one line.

    Between Chinese characters a line may end anywhere, in other writing at a space. A word that is too long for a line
    (a path, a command) stays whole.

    Args:
        first, then: what the first line and the others begin with.
    """
    if text.isascii() and first.isascii():
        return textwrap.wrap(
            text, width, initial_indent=first, subsequent_indent=then, break_long_words=False, break_on_hyphens=False
        ) or [first]
    lines, line, used, begun = [], first, cells(first), False
    for piece in _pieces(text):
        size = cells(piece.rstrip())
        if begun and used + size > width:
            lines.append(line.rstrip())
            line, used = then, cells(then)
            piece = piece.lstrip()
        line, used, begun = line + piece, used + cells(piece), True
    return [*lines, line.rstrip()]


def labelled(label: str, text: str) -> list[str]:
    """The text behind its label in lines of `COLUMNS` cells; a line that goes on is indented as far."""
    return wrapped(text, COLUMNS, label, " " * cells(label))


def cells(text: str) -> int:
    """How many cells of a terminal a text takes."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def padded(text: str, width: int) -> str:
    """The text with spaces up to `width` cells."""
    return text + " " * max(width - cells(text), 0)


def right(text: str, width: int) -> str:
    """The text behind spaces up to `width` cells."""
    return " " * (width - cells(text)) + text


def _pieces(text: str) -> list[str]:
    """Parts between which a line may end; each with the spaces that follow it."""
    pieces: list[str] = []
    for char in text.translate(_SPACES).rstrip():
        before = pieces[-1][-1] if pieces else ""
        glued = (
            not before
            or char == " "
            or char in _NOT_FIRST
            or before in _NOT_LAST
            or (before != " " and not _is_wide(char) and not _is_wide(before))
        )
        if pieces and glued:
            pieces[-1] += char
        else:
            pieces.append(char)
    return pieces


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in "WF"
