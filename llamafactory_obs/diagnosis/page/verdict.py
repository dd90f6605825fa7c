"""The verdict, big; each finding as a card: what, since when, why, what to do now."""

from ...charts import escape, number, prose
from ...detect import Finding
from ...logs.curves import Curves
from ..result import Cause, Diagnosis
from .identity import run_name

_WORDS = {"kill": "KILL", "keep": "KEEP", "none": "NO VERDICT"}
#: cards that are not folded away
_SHOWN = 5
_SOURCES = {
    "obs": "our record",
    "trainer_log": "trainer_log.jsonl",
    "trainer_state": "trainer_state.json",
    "logging_jsonl": "logging.jsonl",
    "console": "console log",
}


def header(curves: Curves, diagnosis: Diagnosis) -> str:
    """Name of the run, verdict and action, the facts in one line."""
    action = diagnosis.action if diagnosis.action in _WORDS else "none"
    of = f" of {curves.max_steps}" if curves.max_steps else ""
    facts = [
        ("steps", f"{diagnosis.steps}{of}"),
        ("read from", _SOURCES.get(diagnosis.source, diagnosis.source)),
        ("kind", diagnosis.kind.replace("_", " ")),
        ("rows", str(len(curves))),
        ("starts", str(len(curves.breaks) + 1) if curves.breaks else ""),
    ]
    items = "".join(f"<li>{escape(name)} <b>{escape(value)}</b></li>" for name, value in facts if value)
    return (
        f"<header><h1>{escape(run_name(curves))}</h1>"
        f'<div class="verdict {action}" role="status"><span class="word">{_WORDS[action]}</span>'
        f'<span class="name">{escape(diagnosis.verdict.replace("_", " "))}</span>'
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
        cards = ["<p>Nothing was found.</p>"]
    if len(cards) > _SHOWN + 1:
        folded = "".join(cards[_SHOWN:])
        cards[_SHOWN:] = [f"<details><summary>{len(cards) - _SHOWN} more findings</summary>{folded}</details>"]
    unseen = _list("What could not be seen", diagnosis.unseen)
    notes = _list("About the file", list(dict.fromkeys([*diagnosis.notes, *curves.notes])))
    return "".join(cards) + unseen + notes


def _list(title: str, lines: list[str]) -> str:
    if not lines:
        return ""
    items = "".join(f"<li>{prose(line)}</li>" for line in lines)
    return f'<details open><summary>{title} ({len(lines)})</summary><ul class="plain">{items}</ul></details>'


def _card(place: int, finding: Finding, causes: list[Cause]) -> str:
    level = finding.level if finding.level in ("error", "warn", "info") else "info"
    until = f" to {finding.until}" if finding.until is not None and finding.until != finding.step else ""
    sure = f' <span class="note">confidence {finding.confidence:.0%}</span>' if finding.confidence is not None else ""
    tag = (
        f' <span class="tag {finding.action}">{finding.action.upper()}</span>'
        if finding.action in ("kill", "keep")
        else ""
    )
    step = f'<button type="button" class="go" data-step="{int(finding.step)}">step {int(finding.step)}{until}</button>'
    return (
        f'<article class="card {level}" id="finding-{place}"><h3>{place}. {escape(finding.name.replace("_", " "))}'
        f"{tag} {step}{sure}</h3><p>{prose(finding.text)}</p>{_causes(causes, place == 1)}{_suggest(finding.suggest)}"
        f"{_evidence(finding)}</article>"
    )


def _causes(causes: list[Cause], unfolded: bool) -> str:
    if not causes:
        return ""
    items = "".join(
        f"<li>{_name(cause)}"
        f"<ul>{_lines('for', cause.supports)}{_lines('against', cause.against)}{_lines('missing', cause.missing)}</ul>"
        f"{f'<p>Next: {prose(cause.next)}</p>' if cause.next else ''}</li>"
        for cause in causes
    )
    folded = "<details open>" if unfolded else "<details>"
    return f'{folded}<summary>Likely causes, the likeliest first</summary><ol class="causes">{items}</ol></details>'


def _name(cause: Cause) -> str:
    """What leads where nothing stands out is no candidate, and its number no probability."""
    if cause.name == "unknown":
        return "<b>not enough evidence for any</b>"
    return f'<b>{escape(cause.name.replace("_", " "))}</b> <span class="note">score {cause.score:.2f}</span>'


def _lines(kind: str, lines: list[str]) -> str:
    return "".join(f'<li class="{kind}">{prose(line)}</li>' for line in lines)


def _suggest(suggest: dict) -> str:
    if not suggest:
        return ""
    import yaml

    text = yaml.safe_dump(suggest, sort_keys=False, allow_unicode=True, width=1000)
    return (
        '<h4>For the next run\'s YAML</h4><div class="snippet"><button type="button" class="copy">copy</button>'
        f"<pre>{escape(text)}</pre></div>"
    )


def _evidence(finding: Finding) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(_value(value), 600)}</td></tr>'
        for name, value in finding.evidence.items()
        if name != "limits"
    )
    table = f'<table class="facts-table"><tbody>{rows}</tbody></table>' if rows else ""
    limits = finding.limits or str(finding.evidence.get("limits") or "")
    limit = f"<h4>Limits</h4><p>{prose(limits)}</p>" if limits else ""
    return f"<details><summary>Evidence and limits</summary>{table}{limit}</details>" if table or limit else ""


def _value(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(part)}" for name, part in value.items())
    if isinstance(value, (list, tuple)):
        more = f" … ({len(value)} in all)" if len(value) > 12 else ""
        return ", ".join(_value(part) for part in value[:12]) + more
    return str(value)
