"""What people read in the terminal and on pages, in English and in Chinese.

One TOML file for each feature and language: `en/<feature>.toml` and `zh/<feature>.toml` with the same keys and the same
{names}. `text("report.vram_peak", gib=9.4)` is the entry `vram_peak` of `report.toml`. What programs read (JSON, the
record) is not translated.
"""

import contextlib
import contextvars
import functools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

LANGUAGES = ("en", "zh")

_SPOKEN: contextvars.ContextVar[str | None] = contextvars.ContextVar("language", default=None)
_TWINS: contextvars.ContextVar[dict[str, str] | None] = contextvars.ContextVar("twins", default=None)


@contextlib.contextmanager
def speaking(lang: str | None) -> Iterator[None]:
    """Within it `language()` is `lang`, in this thread: for `--json`, and for what is written into a record.

    None is what people of this process read: what tells them something amid the work on a record.
    """
    before = _SPOKEN.set(lang)
    try:
        yield
    finally:
        _SPOKEN.reset(before)


@contextlib.contextmanager
def remembering() -> Iterator[Callable[[str], str]]:
    """For what is told to a person and kept for programs as well: yields what says in English what was said within it.

    It also takes texts that were joined. Not those of other threads.
    """
    twins: dict[str, str] = {}
    before = _TWINS.set(twins)
    try:
        yield lambda said: _in_english(said, twins)
    finally:
        _TWINS.reset(before)


def remember(said: str, english: str) -> None:
    """A text that was made otherwise, and what it says in English: for `remembering`."""
    twins = _TWINS.get()
    if twins is not None and not said.isascii() and said != english:
        twins[said] = english


def _in_english(said: str, twins: dict[str, str]) -> str:
    if said.isascii() or not twins:
        return said
    parts = sorted((one for one in twins if one in said), key=len, reverse=True)  # a whole text before its parts
    return re.sub("|".join(map(re.escape, parts)), lambda found: twins[found[0]], said) if parts else said


def language() -> str:
    """`zh` or `en`: LLAMAFACTORY_OBS_LANG, else the locale (LC_ALL, LC_MESSAGES, LANG; the first that is set).

    Any other language is English.
    """
    if spoken := _SPOKEN.get():
        return spoken
    for name in ("LLAMAFACTORY_OBS_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name):
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


def text(key: str, /, lang: str | None = None, **values: object) -> str:
    """One text with its values filled in, in `lang` (default: `language()`).

    Args:
        key: `<feature>.<name>`; a name may hold further dots for tables in the TOML file.
        values: what `str.format` fills in; format specs like `{loss:.4g}` stand in the text.

    Raises:
        KeyError: no such text; a test compares the keys that the code uses with those of both languages.
    """
    feature, _, name = key.partition(".")
    lang = lang or language()
    entry = texts(feature, lang)[name]
    said = entry.format(**values) if values else entry
    twins = _TWINS.get()
    if twins is not None and lang != "en" and not said.isascii():
        english = {name: _in_english(one, twins) if isinstance(one, str) else one for name, one in values.items()}
        twins[said] = text(key, "en", **english)
    return said


@functools.cache
def texts(feature: str, lang: str) -> dict[str, str]:
    """All texts of a feature in one language, tables flattened to dotted names."""
    import tomllib

    with (Path(__file__).parent / lang / f"{feature}.toml").open("rb") as file:
        return dict(_flat(tomllib.load(file)))


def _flat(table: dict, prefix: str = ""):
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
