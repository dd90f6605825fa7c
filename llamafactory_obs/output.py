"""What a verb prints for programs."""

import json
from typing import TextIO


def as_json(value: object, out: TextIO, indent: int | None = None) -> str:
    """A value as JSON that `out` can hold: Chinese as it is where the stream is UTF-8, escaped elsewhere."""
    unicode = (out.encoding or "").lower().startswith("utf")
    return json.dumps(value, ensure_ascii=not unicode, indent=indent)
