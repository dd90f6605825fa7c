"""A word-level diff of two texts: words of letters and digits, single Chinese characters, single marks."""

import difflib
import re

_WORD = re.compile(r"<\|?[\w/]+\|?>|[A-Za-z0-9_]+|\s+|.", re.DOTALL)
#: words compared at most: difflib takes time by their product
_MOST = 2000


def diff(old: str, new: str) -> list[tuple[str, str]]:
    """Pieces `(" " | "-" | "+", text)`: kept, only in the old text, only in the new one."""
    before, after = (_WORD.findall(text)[:_MOST] for text in (old, new))
    pieces: list[tuple[str, str]] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            pieces.append((" ", "".join(before[a:b])))
            continue
        pieces += [(sign, "".join(part)) for sign, part in (("-", before[a:b]), ("+", after[c:d])) if part]
    return pieces


def likeness(pieces: list[tuple[str, str]]) -> float:
    """Share of characters that were kept, of the longer of the two texts; 1 for equal ones."""
    sizes = {sign: sum(len(text) for other, text in pieces if other == sign) for sign in (" ", "-", "+")}
    longer = sizes[" "] + max(sizes["-"], sizes["+"])
    return sizes[" "] / longer if longer else 1.0


def shorten(pieces: list[tuple[str, str]], around: int = 24) -> list[tuple[str, str]]:
    """Long kept pieces cut to what stands around the changes."""
    short = []
    for number, (sign, text) in enumerate(pieces):
        if sign == " " and len(text) > 2 * around + 5:
            head = text[:around] if number else ""
            tail = text[-around:] if number + 1 < len(pieces) else ""
            text = f"{head} ... {tail}"
        short.append((sign, text))
    return short
