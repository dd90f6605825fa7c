"""Files as they may be passed on: what looks like a secret is replaced, whatever else is there stays byte for byte."""

import json
from pathlib import Path

from ...identity.redact import redact, redact_text

_JSON, _LINES = (".json",), (".jsonl",)


def copy_clean(source: Path, target: Path) -> int:
    """Copy a text file without its secrets.

    A line of JSON is taken apart first: a pattern that ends at a space would otherwise run into the next value.

    Returns:
        How many lines (of a `.json` file: 0 or 1) had one.

    Raises:
        OSError: it cannot be read or written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix in _JSON:
        text = source.read_text(encoding="utf-8", errors="replace")
        cleaned = clean(text, indent=2)
        target.write_text(cleaned, encoding="utf-8", errors="replace", newline="")
        return int(cleaned != text)
    changed = 0
    lines = source.suffix in _LINES
    with (
        open(source, encoding="utf-8", errors="replace", newline="") as read,
        open(target, "w", encoding="utf-8", errors="replace", newline="") as write,
    ):
        for line in read:
            cleaned = clean(line) if lines else redact_text(line)
            changed += cleaned != line
            write.write(cleaned)
    return changed


def clean(text: str, indent: int | None = None) -> str:
    """JSON without secrets in its values; a text that is none, or that has no secret, as a text."""
    if redact_text(text) == text:
        return text
    try:
        value = redact(json.loads(text))
    except (ValueError, RecursionError):
        return redact_text(text)
    end = text[len(text.rstrip()) :]
    return json.dumps(value, ensure_ascii=False, indent=indent) + end
