"""The verdict, big; each finding as a card: what, since when, why, what to do now."""

from ...charts import escape, number, prose
from ...continuity.words import in_words
from ...detect import Finding
from ...logs.curves import Curves
from ...texts import text
from ...texts.findings import cause_title, title, told
from ...texts.sentences import sentence
from ..headline import verdict_in_words
from ..result import Cause, Diagnosis
from .identity import run_name

#: cards that are not folded away
_SHOWN = 5
_SOURCES = ("obs", "trainer_log", "trainer_state", "logging_jsonl", "console")


def header(curves: Curves, diagnosis: Diagnosis) -> str:
    """Name of the run, verdict and action, the facts in one line."""
    action = diagnosis.action if diagnosis.action in ("kill", "keep") else "none"
    steps = text("diagnose.page.of", step=diagnosis.steps, of=curves.max_steps) if curves.max_steps else diagnosis.steps
    source = text(f"diagnose.page.source.{diagnosis.source}") if diagnosis.source in _SOURCES else diagnosis.source
    facts = [
        ("steps", str(steps)),
        ("read_from", source),
        ("kind", diagnosis.kind.replace("_", " ")),
        ("rows", str(len(curves))),
        ("starts", str(len(curves.breaks) + 1) if curves.breaks else ""),
    ]
    items = "".join(
        f"<li>{escape(text(f'diagnose.page.{name}'))} <b>{escape(value)}</b></li>" for name, value in facts if value
    )
    return (
        f"<header><h1>{escape(run_name(curves))}</h1>"
        f'<div class="verdict {action}" role="status"><span class="word">{text(f"diagnose.page.word.{action}")}</span>'
        f'<span class="name">{escape(verdict_in_words(diagnosis.verdict))}</span>'
        f"<p>{prose(diagnosis.headline)}</p></div>"
        f'<ul class="facts">{items}</ul></header>'
    )


def findings_section(curves: Curves, diagnosis: Diagnosis) -> str:
    """The cards, then what could not be seen and what was odd about the file."""
    cards = [
        _card(number_, finding, diagnosis.causes.get(number_ - 1, []))
        for number_, finding in enumerate(diagnosis.findings, 1)
    ]
    if not cards:
        cards = [f"<p>{escape(text('diagnose.page.nothing'))}</p>"]
    if len(cards) > _SHOWN + 1:
        folded = "".join(cards[_SHOWN:])
        more = text("diagnose.page.more", count=len(cards) - _SHOWN)
        cards[_SHOWN:] = [f"<details><summary>{escape(more)}</summary>{folded}</details>"]
    unseen = _list(text("diagnose.page.unseen"), diagnosis.unseen)
    notes = _list(
        text("diagnose.page.notes"), [sentence(one) for one in dict.fromkeys([*diagnosis.notes, *curves.notes])]
    )
    resumes = _list(text("diagnose.page.resumes"), [in_words(one) for one in diagnosis.resumes])
    return "".join(cards) + resumes + unseen + notes


def _list(heading: str, lines: list[str]) -> str:
    if not lines:
        return ""
    items = "".join(f"<li>{prose(line)}</li>" for line in lines)
    return f'<details open><summary>{heading} ({len(lines)})</summary><ul class="plain">{items}</ul></details>'


def _card(place: int, finding: Finding, causes: list[Cause]) -> str:
    level = finding.level if finding.level in ("error", "warn", "info") else "info"
    span = {"step": int(finding.step), "until": finding.until}
    at = text("diagnose.page.at" if finding.until in (None, finding.step) else "diagnose.page.span", **span)
    sure = ""
    if finding.confidence is not None:
        sure = f' <span class="note">{text("diagnose.confidence", confidence=finding.confidence)}</span>'
    tag = (
        f' <span class="tag {finding.action}">{text(f"diagnose.page.word.{finding.action}")}</span>'
        if finding.action in ("kill", "keep")
        else ""
    )
    said = told(finding.name, finding.step, finding.text, finding.evidence, finding.until)
    step = f'<button type="button" class="go" data-step="{int(finding.step)}">{at}</button>'
    return (
        f'<article class="card {level}" id="finding-{place}"><h3>{place}. {escape(title(finding.name))}'
        f"{tag} {step}{sure}</h3><p>{prose(said)}</p>{_causes(causes, place == 1)}{_suggest(finding.suggest)}"
        f"{_evidence(finding)}</article>"
    )


def _causes(causes: list[Cause], unfolded: bool) -> str:
    if not causes:
        return ""
    items = "".join(
        f"<li>{_name(cause)}"
        f"<ul>{_lines('for', cause.supports)}{_lines('against', cause.against)}{_lines('missing', cause.missing)}</ul>"
        f"{_next(cause)}</li>"
        for cause in causes
    )
    folded = "<details open>" if unfolded else "<details>"
    return f'{folded}<summary>{text("diagnose.page.causes")}</summary><ol class="causes">{items}</ol></details>'


def _name(cause: Cause) -> str:
    """What leads where nothing stands out is no candidate, and its number no probability."""
    if cause.name == "unknown":
        return f"<b>{escape(text('diagnose.page.no_cause'))}</b>"
    score = text("diagnose.page.score", score=cause.score)
    return f'<b>{escape(cause_title(cause.name))}</b> <span class="note">{score}</span>'


def _next(cause: Cause) -> str:
    return f"<p>{prose(text('diagnose.page.next', next=cause.next))}</p>" if cause.next else ""


def _lines(kind: str, lines: list[str]) -> str:
    return "".join(f'<li class="{kind}">{prose(line)}</li>' for line in lines)


def _suggest(suggest: dict) -> str:
    if not suggest:
        return ""
    import yaml

    keys = yaml.safe_dump(suggest, sort_keys=False, allow_unicode=True, width=1000)
    return (
        f'<h4>{escape(text("diagnose.page.suggest"))}</h4><div class="snippet">'
        f'<button type="button" class="copy">{text("diagnose.page.copy")}</button><pre>{escape(keys)}</pre></div>'
    )


def _evidence(finding: Finding) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(_value(value), 600)}</td></tr>'
        for name, value in finding.evidence.items()
        if name != "limits"
    )
    table = f'<table class="facts-table"><tbody>{rows}</tbody></table>' if rows else ""
    limits = finding.limits or str(finding.evidence.get("limits") or "")
    limit = f"<h4>{text('diagnose.page.limits')}</h4><p>{prose(limits)}</p>" if limits else ""
    return (
        f"<details><summary>{text('diagnose.page.evidence')}</summary>{table}{limit}</details>"
        if table or limit
        else ""
    )


def _value(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(part)}" for name, part in value.items())
    if isinstance(value, (list, tuple)):
        more = text("page.in_all", count=len(value)) if len(value) > 12 else ""
        return ", ".join(_value(part) for part in value[:12]) + more
    return str(value)
