"""Collecting the errors of one conversation."""

from collections.abc import Sequence


class Notes:
    """Errors by class; of several of one class the first is told in full and the others are counted."""

    def __init__(self) -> None:
        self._details: dict[str, list[str]] = {}

    def add(self, error: str, detail: str) -> None:
        """Notes one error; `detail` is one line without the class."""
        self._details.setdefault(error, []).append(" ".join(detail.split()))

    def ordered(self, order: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Classes and one line for each; those that `order` does not name come last, as they were noted."""
        known = [error for error in order if error in self._details]
        errors = [*known, *(error for error in self._details if error not in order)]
        return tuple(errors), tuple(self._line(error) for error in errors)

    def _line(self, error: str) -> str:
        first, *more = self._details[error]
        return f"{error}: {first}" + (f" (and {len(more)} more)" if more else "")
