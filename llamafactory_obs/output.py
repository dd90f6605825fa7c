"""What a verb prints for programs."""

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def own_stdout() -> Iterator[TextIO]:
    """Yields stdout for the verb's own answer; whatever is printed meanwhile goes to stderr (LlamaFactory prints)."""
    stdout = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        yield stdout


def as_json(value: object, out: TextIO, indent: int | None = None) -> str:
    """A value as JSON that `out` can hold: Chinese as it is where the stream is UTF-8, escaped elsewhere."""
    unicode = (getattr(out, "encoding", None) or "").lower().startswith("utf")
    return json.dumps(value, ensure_ascii=not unicode, indent=indent)
