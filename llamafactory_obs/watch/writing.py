"""How text can be written on this terminal: its characters, its colours, the language; and how wide a text is."""

import os
import re
import unicodedata
from dataclasses import dataclass

from rich.cells import cell_len

from ..charts.text import visible
from ..texts import language

_LINES = re.compile(r"\s")


@dataclass(frozen=True)
class Writing:
    """What a stream can show.

    Attributes:
        encoding: of the stream.
        unicode: it has braille, for curves. The Linux console speaks UTF-8 and has no braille.
        colour: none with NO_COLOR, on a dumb terminal, or where the stream is no terminal.
        dumb: the cursor cannot be moved.
        language: of the texts; English where the encoding has no Chinese.
    """

    encoding: str = "utf-8"
    unicode: bool = True
    colour: bool = True
    dumb: bool = False
    language: str = "en"

    @classmethod
    def of(cls, stream) -> "Writing":
        """Of a stream and the environment."""
        encoding = stream.encoding or "ascii"
        terminal = os.environ.get("TERM", "")
        dumb = terminal in ("", "dumb")
        spoken = language()
        return cls(
            encoding=encoding,
            unicode=_can(encoding, "⣿") and terminal != "linux",
            colour=not os.environ.get("NO_COLOR") and not dumb and stream.isatty(),
            dumb=dumb,
            language=spoken if spoken == "en" or (_can(encoding, "步") and terminal != "linux") else "en",
        )

    def clean(self, text: object) -> list[tuple[str, int]]:
        """A text as characters with their widths, 1 or 2 cells. It may come from anywhere.

        Control and direction marks are written out (`\\x1b`), lines are joined, characters without a width (joiners,
        accents that do not combine) are left out, and what the encoding lacks is `?`.
        """
        out = []
        for char in unicodedata.normalize("NFC", visible(_LINES.sub(" ", str(text)))):
            width = 1 if " " <= char <= "~" else cell_len(char)
            if width > 0:
                out.append((char, width) if char <= "~" or _can(self.encoding, char) else ("?", 1))
        return out

    def cut(self, text: object, cells: int) -> list[tuple[str, int]]:
        """As `clean`, at most so many cells; it ends in `...` where there was more."""
        chars = self.clean(text)
        if sum(width for _, width in chars) <= cells:
            return chars
        dots = [(".", 1)] * (3 if cells > 8 else 0)
        room, out = cells - len(dots), []
        for char, width in chars:
            room -= width
            if room < 0:
                break
            out.append((char, width))
        return out + dots

    def fold(self, text: object, cells: int, most: int) -> list[str]:
        """At most so many lines of so many cells, broken at a space where there is one; the last one may be longer."""
        chars, lines = self.clean(text), []
        while len(lines) < most - 1 and sum(width for _, width in chars) > cells:
            end = room = 0
            while room + chars[end][1] <= cells:
                room += chars[end][1]
                end += 1
            spaces = [place for place in range(end * 2 // 3, end + 1) if chars[place][0] == " "]
            end = spaces[-1] if spaces else max(1, end)
            lines.append("".join(char for char, _ in chars[:end]))
            chars = chars[end + (chars[end][0] == " ") :]
        return [*lines, "".join(char for char, _ in chars)]


def _can(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeError, LookupError):
        return False
    return True
