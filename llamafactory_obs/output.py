"""What a verb prints for programs."""

import contextlib
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
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


def print_json(value: object, out: TextIO) -> None:
    """The one object that a verb prints with `--json`."""
    print(as_json(value, out, indent=2), file=out)


def progress(line: str) -> None:
    """What a verb says to a person while it works."""
    print(line, file=sys.stderr, flush=True)


def plain(value: object) -> object:
    """As strict JSON has it: a dataclass as its fields, a number that is not finite as its word, a path as its text."""
    if is_dataclass(value) and not isinstance(value, type):
        value = vars(value)
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
