"""The verdict on one checkpoint as one line."""

from ..texts import language, text, texts
from ..texts.sentences import sentence
from .judge import headline


def in_words(evidence: dict, lang: str | None = None) -> str:
    """How many probes are right, which are not and why, and what has changed; as far as the evidence says so.

    Args:
        evidence: of the event `verdict` of a probe.
        lang: default `language()`.
    """
    passed, errors = evidence.get("passed") or {}, evidence.get("errors") or {}
    wrong = [
        text("probe.verdict.wrong", lang, probe=probe, error=error_in_words(headline(errors.get(probe, ())), lang))
        for probe, right in passed.items()
        if not right
    ]
    counts = {"right": sum(passed.values()), "of": len(passed)}
    said = [text("probe.verdict.right", lang, checkpoint=evidence.get("checkpoint", "?"), **counts)]
    said += [text("probe.verdict.comma", lang).join(wrong)] if wrong else []
    said += [
        text(f"probe.verdict.{what}", lang, probes=text("probe.verdict.comma", lang).join(evidence[what]))
        for what in ("broke", "fixed", "runs_on")
        if evidence.get(what)
    ]
    return text("probe.verdict.and", lang).join(said)


def error_in_words(error: str, lang: str | None = None) -> str:
    """A class of errors, short enough for a column; one of somebody's own scorer as it is called."""
    return texts("probe", lang or language()).get(f"error.{error}", error)


def detail_in_words(detail: str, lang: str | None = None) -> str:
    """What is wrong with an answer, as it stands in a result row: `wrong_arguments: month is 7, expected 8`."""
    if (lang or language()) == "en":
        return detail
    error, colon, said = detail.partition(": ")
    if not colon or f"error.{error}" not in texts("probe", "zh"):
        return sentence(detail, "zh")
    return text("probe.detail", "zh", error=error_in_words(error, "zh"), said=sentence(said, "zh"))
