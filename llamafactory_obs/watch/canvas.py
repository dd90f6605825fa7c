"""A screen of cells, and the bytes that turn one screen into the next: only what changed is sent."""

from .writing import Writing

#: style -> SGR parameters; colours are left out where there are none, weight stays
_WEIGHT = {"bold": "1", "dim": "2"}
_COLOUR = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36"}
#: unchanged cells between two changed ones that are sent again, rather than moving the cursor
_GAP = 8
_BLANK = (" ", "")


class Canvas:
    """Cells of `(text, style)`; the second cell of a wide character is `("", style)`.

    A style is words from `bold dim red green yellow blue magenta cyan`.
    """

    def __init__(self, width: int, height: int, writing: Writing):
        self.width, self.height, self.writing = width, height, writing
        self.rows = [[_BLANK] * width for _ in range(height)]

    def put(self, row: int, column: int, text: str, style: str = "", until: int | None = None) -> int:
        """Write a text; what does not fit before the right edge, or before the column `until`, ends in `...`.

        Returns:
            The column behind it.
        """
        edge = self.width if until is None else min(until, self.width)
        cells = self.rows[row]
        if column < edge and cells[column][0] == "":  # the left half of a wide character stays behind
            cells[column - 1] = _BLANK
        for char, width in self.writing.cut(text, edge - column):
            cells[column : column + width] = [(char, style), ("", style)][:width]
            column += width
        if column < self.width and cells[column][0] == "":
            cells[column] = _BLANK
        return column

    def put_cells(self, row: int, column: int, cells: list[tuple[str, str]]) -> None:
        """Characters of one cell each, with their styles."""
        self.rows[row][column : column + len(cells)] = cells

    def text(self) -> str:
        """What a person sees, without styles."""
        return "\n".join("".join(char for char, _ in row).rstrip() for row in self.rows)

    def changes(self, before: "Canvas | None") -> str:
        """What to send where `before` is on the screen; None: the screen is to be cleared first."""
        out = [] if before is not None else ["\x1b[0m\x1b[2J"]
        for place, row in enumerate(self.rows):
            old = before.rows[place] if before is not None else [_BLANK] * self.width
            for begin, end in _runs(old, row):
                out.append(f"\x1b[{place + 1};{begin + 1}H{self._run(row[begin:end])}")
        return "".join(out)

    def _run(self, cells: list[tuple[str, str]]) -> str:
        out, style = [], ""
        for char, wanted in cells:
            if wanted != style:
                out.append(self._sgr(wanted))
                style = wanted
            out.append(char)
        return "".join(out) + ("\x1b[0m" if self._sgr(style) else "")

    def _sgr(self, style: str) -> str:
        """Turns a style on, and every other one off."""
        words = style.split()
        codes = [_WEIGHT[word] for word in words if word in _WEIGHT]
        if self.writing.colour:
            codes += [_COLOUR[word] for word in words if word in _COLOUR]
        return f"\x1b[{';'.join(['0', *codes])}m" if codes or not style else ""


def _runs(old: list, new: list) -> list[tuple[int, int]]:
    """Stretches of columns that differ. None begins on the second half of a wide character: its first half differs."""
    runs: list[list[int]] = []
    for column, (before, after) in enumerate(zip(old, new, strict=True)):
        if before != after:
            if runs and column - runs[-1][1] <= _GAP:
                runs[-1][1] = column + 1
            else:
                runs.append([column, column + 1])
    return [(begin, end) for begin, end in runs]
