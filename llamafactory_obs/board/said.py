"""Words of a record in each language of the page: every viewer has its own."""

from collections.abc import Callable, Mapping

from ..charts.text import cut, visible
from ..texts import LANGUAGES, findings

_LONGEST = 1500
#: what evidence of an unexpected shape makes of a text
_UNFIT = (KeyError, IndexError, TypeError, ValueError, AttributeError)


def title(name: str) -> dict[str, str]:
    """The name of a finding or an alert: language -> words."""
    return _each(lambda lang: findings.title(name, lang), name)


def told(name: str, step: int, english: str, evidence: Mapping, until: int | None = None) -> dict[str, str]:
    """What a finding says: language -> text, see `texts.findings.told`."""
    return _each(lambda lang: findings.told(name, step, english, evidence, until, lang), english)


def shown(value: object, most: int = _LONGEST) -> str:
    """A text of a record for the page: nothing invisible in it, and not too long."""
    return visible(cut(str(value), most))


def _each(say: Callable[[str], str], otherwise: str) -> dict[str, str]:
    out = {}
    for lang in LANGUAGES:
        try:
            out[lang] = shown(say(lang))
        except _UNFIT:
            out[lang] = shown(otherwise)
    return out
