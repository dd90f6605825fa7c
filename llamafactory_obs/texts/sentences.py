"""Sentences that stand in a record in English, and are read by people in their language.

`zh/sentences.toml` has the English as its keys, with {names} for what is filled in. So a record that was written in
English, by whatever version, reads in Chinese as well. A sentence that is not in it stays as it is: errors of other
programs, notes of a backend, what a callback of somebody else says.
"""

import functools
import re
import string

from . import language, remember, texts


def sentence(english: str, lang: str | None = None) -> str:
    """A sentence in `lang` (default: `language()`). What is filled in may be a sentence, too."""
    if (lang or language()) == "en":
        return english
    said = _in_chinese(english)
    remember(said, english)
    return said


def _in_chinese(english: str) -> str:
    parts = english.split("; ")
    told = [sentence(part, "zh") for part in parts] if len(parts) > 1 else parts
    if not any(one == part for one, part in zip(told, parts, strict=True)):  # several in a row
        return "；".join(told)
    for pattern, chinese in _patterns():
        if found := pattern.fullmatch(english):
            return chinese.format(**{name: sentence(one, "zh") for name, one in found.groupdict().items()})
    return english


@functools.cache
def _patterns() -> list[tuple[re.Pattern, str]]:
    """One with more words of its own goes first: `{problem}; training goes on` is told of what no other tells."""
    known = texts("sentences", "zh")
    return [(_pattern(english), known[english]) for english in sorted(known, key=_own, reverse=True)]


def _own(template: str) -> int:
    return sum(len(literal) for literal, *_ in string.Formatter().parse(template))


def _pattern(template: str) -> re.Pattern:
    seen: set[str] = set()
    parts = (
        re.escape(literal) + (_filled(name, seen) if name else "")
        for literal, name, *_ in string.Formatter().parse(template)
    )
    return re.compile("".join(parts), re.DOTALL)


def _filled(name: str, seen: set[str]) -> str:
    """A name that comes again holds the same again."""
    if name in seen:
        return f"(?P={name})"
    seen.add(name)
    return f"(?P<{name}>.+?)"
