"""What cannot be known about a run is said, with the reason; never guessed, never left out in silence."""

from collections.abc import Callable

from .redact import redact_text


class Unknowns:
    """Collects `{"what": dotted field, "why": one line}`; a field is named once."""

    def __init__(self) -> None:
        self.rows: list[dict[str, str]] = []

    def add(self, what: str, why: object) -> None:
        """Note that `what` is not known and why; the first reason stays."""
        if all(row["what"] != what for row in self.rows):
            self.rows.append({"what": what, "why": _line(why)})

    def guard(self, what: str, function: Callable[[], object], default: object = None) -> object:
        """The function's value; where it raises, `default` and an entry for `what`."""
        try:
            return function()
        except Exception as error:
            self.add(what, error)
            return default


def unknown(why: object) -> dict[str, str]:
    """The value that stands for "cannot be known" as the result of a slow job: `{"unknown": why}`."""
    return {"unknown": _line(why)}


def is_unknown(value: object) -> bool:
    """Whether a slow job gave up with `unknown(why)`."""
    return isinstance(value, dict) and set(value) == {"unknown"}


def _line(why: object) -> str:
    text = f"{type(why).__name__}: {why}" if isinstance(why, BaseException) else str(why)
    return redact_text(" ".join(text.split()))[:300]
