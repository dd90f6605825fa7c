"""What a finding says to people, from what the record holds of it.

The English text of a finding stands in its detector and goes into the record. The Chinese one is made from the
finding's name and evidence (`zh/findings.toml`), so that a record reads in Chinese too, whenever and wherever it was
written.
"""

import string
from collections.abc import Mapping

from ..detect.endings import ended_by
from . import language, text, texts
from .sentences import sentence


class _Lenient(string.Formatter):
    """Leaves out a format that a value does not take: a number that is not finite is the word "nan" in the evidence."""

    def format_field(self, value: object, spec: str) -> str:
        try:
            return format(value, spec)
        except (TypeError, ValueError):
            return str(value)


_FORMATTER = _Lenient()


def title(name: str, lang: str | None = None) -> str:
    """A finding's name in words: `grad_norm_spike` is `grad norm spike`, or what it is called in Chinese."""
    if (lang or language()) == "en":
        return name.replace("_", " ")
    known = texts("findings", "zh")
    if f"{name}.title" in known:
        return known[f"{name}.title"]
    ends = [end for end in ended_by(name) if f"{end}.title" in known]
    if ends:
        return text("finding.over", "zh", title=known[f"{ends[0]}.title"])
    shown = name.replace("_", " ")
    return sentence(name, "zh") if sentence(name, "zh") != name else sentence(shown, "zh")


def cause_title(name: str) -> str:
    """A cause in words; a name that nobody here has given stays as it is."""
    return texts("causes", language()).get(f"title.{name}", name)


def told(
    name: str, step: int, english: str, evidence: Mapping, until: int | None = None, lang: str | None = None
) -> str:
    """What happened, since when, and the one thing to do now.

    Args:
        name, step, evidence, until: as in the record; with `until` it is told as over, where there are words for that.
        english: its text there; said where there is no other, as for a callback of somebody else, see `sentence`.
    """
    if (lang or language()) == "en":
        return english
    known = texts("findings", "zh")
    if name in ("causes", "verdict"):
        return _diagnosed(name, evidence) or sentence(english, "zh")
    if until is not None and f"{name}_over.what" in known:
        name = f"{name}_over"
    values = {"step": evidence.get("seen_at", step)}
    values |= {key: value for key, value in evidence.items() if value is not None} | _listed(evidence)
    what = _first_that_fits(known.get(f"{name}.what"), values)
    if what is None:
        ended = ended_by(name)
        if not ended or f"{ended[0]}.title" not in known:
            return sentence(english, "zh")
        since = "finding.over_since" if "since" in values else "finding.over_at"
        return text(
            since, "zh", title=known[f"{ended[0]}.title"], **{key: values.get(key) for key in ("step", "since")}
        )
    more = (
        _first_that_fits(known.get(f"{name}.do"), values),
        text("finding.checkpoint", "zh", checkpoint=values["checkpoint"]) if "checkpoint" in values else None,
        _cause(evidence.get("causes")),
    )
    return what + "".join(part for part in more if part)


def _diagnosed(name: str, evidence: Mapping) -> str:
    """What the live diagnosis says at a finding of another callback, and at the end of the run."""
    if name == "causes":
        cause = _cause(evidence.get("causes"))
        return cause and text("finding.of", "zh", title=title(str(evidence.get("finding")), "zh"), said=cause)
    findings = evidence.get("findings")
    if not isinstance(findings, list) or "verdict" not in evidence:
        return ""  # a probe's verdict
    verdict = str(evidence["verdict"])
    said = texts("diagnose", "zh").get(f"verdict.{verdict}") or title(verdict, "zh")
    first = findings[0] if findings and verdict != "healthy" else None
    if first is None:
        return f"{said}。"
    about = (first.get("evidence") or {}) | {"causes": first.get("causes")}
    words = told(str(first.get("name")), first.get("step"), first.get("text", ""), about, first.get("until"), "zh")
    return text("finding.of", "zh", title=said, said=words)


def _listed(evidence: Mapping) -> dict[str, str]:
    """What the recorder's own events list, as one value each: parts that were not restored, alerts that go on."""
    found = {}
    if parts := [one.get("part") for one in evidence.get("not_restored") or () if isinstance(one, dict)]:
        known = texts("continuity", "zh")
        found["lost"] = "、".join(known.get(f"part.{part}", str(part)) for part in parts)
    if alerts := [one for one in evidence.get("open_alerts") or () if isinstance(one, dict)]:
        said = [text("finding.open", "zh", id=one.get("id"), since=one.get("since")) for one in alerts]
        found["open"] = "、".join(said)
    return found


def _cause(causes: object) -> str:
    """The likeliest cause, as the live diagnosis puts it into the evidence of an alert."""
    first = causes[0] if isinstance(causes, list) and causes and isinstance(causes[0], dict) else {}
    title = texts("causes", "zh").get(f"title.{first.get('name')}")
    return text("finding.cause", "zh", cause=title) if title else ""


def names(template: str) -> set[str]:
    """The {names} in a text."""
    return {name.partition("[")[0].partition(".")[0] for _, name, _, _ in string.Formatter().parse(template) if name}


def _first_that_fits(entry: str | list[str] | None, values: Mapping) -> str | None:
    """An entry is one text or several: the first one whose {names} are all known is said."""
    for template in [entry] if isinstance(entry, str) else entry or ():
        if names(template) <= values.keys():
            return _FORMATTER.vformat(template, (), values)
    return None
