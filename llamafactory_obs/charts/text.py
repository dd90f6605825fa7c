"""Text and numbers for HTML. What comes from a record is hostile: a model can answer `</script><img onerror=...>`."""

import html
import json
import math
import re

from ..texts import text as said

#: control characters and marks that turn the direction of writing: shown, never sent
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def visible(value: object) -> str:
    """A text in which nothing invisible acts: control and direction marks are written out as `\\x1b`, `\\u202e`."""
    text = _CONTROL.sub(lambda mark: _written(ord(mark[0])), str(value))
    return _SURROGATE.sub("\ufffd", text)


def _written(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def cut(text: str, most: int) -> str:
    """A text of at most about so many characters; what is left out is said."""
    if len(text) <= most:
        return text
    return said("charts.more_characters", start=text[:most], count=len(text) - most)


def escape(value: object, most: int = 4000) -> str:
    """Any value as text for HTML, in an element or within a quoted attribute; cut at `most` characters."""
    return html.escape(cut(visible(value), most), quote=True)


def prose(value: object) -> str:
    """A sentence as HTML: what stands in backquotes is set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(value))


def number(value: float | None) -> str:
    """A number for people: four digits, `NaN`, `inf`, and a dash for one that is missing.

    values.js has the same function; a test holds the two together.
    """
    if value is None:
        return "–"
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e6):
        mantissa, _, exponent = f"{value:.3e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    if value == int(value):
        return str(int(value))
    digits = max(0, 3 - math.floor(math.log10(size)))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def compact(value: float) -> float | int | str:
    """A number for a data block: six digits; a non-finite one as the word."""
    value = float(value)
    if not math.isfinite(value):
        return number(value).lower()
    short = float(f"{value:.6g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def data_block(value: object, name: str = "data") -> str:
    """Plain values as a block that the page's script reads. Nothing in it can end the block: no `<`, `>` or `&`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = _SURROGATE.sub("\ufffd", text).translate(_IN_SCRIPT)
    return f'<script type="application/json" class="{escape(name)}">{text}</script>'
