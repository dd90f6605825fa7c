"""What fails in one check must not hide the others, and is never a pass."""

from collections.abc import Callable

from ...errors import ConfigError
from ...texts import text
from ..result import ERROR, Check


def guarded(name: str, judge: Callable[[], list[Check]]) -> list[Check]:
    """The checks, or one of this name that says why they could not be made."""
    try:
        return judge()
    except ConfigError as error:
        why = str(error)
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
    return [Check(name, ERROR, None, None, text("ahead.not_judged", why=why))]
