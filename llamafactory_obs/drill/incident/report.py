"""The incident report: Markdown for people, in their language, and the same as JSON, in English."""

from ...texts.findings import title, told
from ...texts.sentences import sentence
from .. import markdown
from ..markdown import REPORT, changes, table
from .incidents import HEALTHY, INCIDENTS, Check
from .outcome import NOT_MADE, UNFIT, Made, Outcome
from .words import cause, reason, result, row, say


def write(outcome: Outcome) -> None:
    """Write both into the drill's folder; a disk that is full by now is a note, the score stands."""
    outcome.report = outcome.folder / REPORT
    data = outcome.as_dict(lambda one: say(one[0], "en", **one[1]))
    if failed := markdown.write_reports(outcome.folder, _report(outcome), data):
        outcome.notes.append(("note.plain", {"text": failed}))
        outcome.report = None


def _report(outcome: Outcome) -> list[str]:
    head = say(f"title.{outcome.name}")
    lines = [f"# {head}", "", result(outcome), "", f"- {say('report.config', config=outcome.config)}"]
    lines.append("- " + say("report.made", steps=outcome.steps, at=outcome.at, ranks=outcome.ranks))
    lines.append("- " + say("report.blind"))
    lines += [f"- {sentence(say(name, **values))}" for name, values in outcome.notes]
    columns = ("incident", "verdict", "cause", "begins", "alert", "score")
    made = [outcome.healthy, *outcome.incidents]
    lines += ["", *table([say(f"column.{name}") for name in columns], [row(one) for one in made])]
    lines += ["", say("report.columns")]
    for one in outcome.incidents:
        lines += _incident(one, outcome)
    lines += _healthy(outcome.healthy)
    lines += ["", f"## {say('report.changed')}", "", say("report.else"), "", *changes(outcome.changed)]
    return lines


def _incident(made: Made, outcome: Outcome) -> list[str]:
    lines = ["", f"## {say(f'title.{made.name}')}", ""]
    if made.status == UNFIT:
        return [*lines, reason(made)]
    if made.facts:
        lines.append(f"**{say('report.what')}** {happened(made)}")
    if made.why:
        lines += ["", f"**{say(f'status.{made.status}')}:** {reason(made)}"]
    if made.status == NOT_MADE:
        return [*lines, "", *_last_words(made)]
    lines += _diagnosed(made)
    lines += _timeline(made)
    for part in ("now", "lasting"):
        lines += ["", f"### {say(f'report.{part}')}", "", say(f"{part}.{made.name}")]
    lines += _checks(made, outcome)
    again = f"llamafactory-obs diagnose {outcome.folder / made.training}"
    return [*lines, "", say("report.again"), "", "```", again, "```"]


def happened(made: Made) -> str:
    """What the fault did, with its own figures."""
    facts, name = made.facts, made.name
    kind = {"oom": "oom_card" if facts.get("card") else "oom_cpu"}.get(name, name)
    if name == "lora_off":
        kind = "lora_off_passed" if facts.get("by_passed") else "lora_off_zero"
    text = say(f"what.{kind}", **facts)
    return text + say("what.in_memory") if facts.get("in_memory") else text


def _diagnosed(made: Made) -> list[str]:
    """The answer, its evidence, and what else was weighed."""
    said, lines = made.spoken, ["", f"### {say('report.evidence')}", ""]
    lines.append(say("report.said", verdict=title(said.verdict), action=said.action, step=said.since or "-"))
    if said.finding is not None:
        lines += ["", f"> {told(said.finding, said.seen, said.text, said.evidence)}"]
    if not said.causes:
        return [*lines, "", say("report.no_cause")]
    first = said.causes[0]
    lines += ["", say("report.cause", cause=cause(first.name), score=first.score), ""]
    lines += [f"- {say('report.for')}: {one}" for one in first.supports]
    lines += [f"- {say('report.against')}: {one}" for one in first.against]
    if first.next:
        lines.append(f"- {say('report.next')}: {first.next}")
    others = [f"{cause(one.name)} ({one.score:.2f})" for one in said.causes[1:4]]
    return [*lines, "", say("report.others", names=", ".join(others))] if others else lines


def _timeline(made: Made) -> list[str]:
    return ["", f"### {say('report.timeline')}", "", "```", *made.timeline, "```"] if made.timeline else []


def _checks(made: Made, outcome: Outcome) -> list[str]:
    """What would have caught it, ready to be copied; and what did catch it here."""
    lines = ["", f"### {say('report.check')}", ""]
    for one in INCIDENTS[made.name].checks:
        lines += [_where(one, outcome.listed), "", "```", *_line(one), "```", ""]
    alerts = [one for one in made.said.alerts if one["step"] >= made.onset]
    if not alerts:
        return [*lines, say("report.no_alert")]
    named = dict.fromkeys(f"`{one['name']}`: {title(one['title'])}, {one['step']}" for one in alerts)
    return [*lines, say("report.alerts", alerts="; ".join(list(named)[:5]))]


def _where(check: Check, listed: list[str]) -> str:
    if check.where == "callbacks":
        return say("check.listed" if check.name in listed else "check.callbacks", name=check.name)
    return say(f"check.{check.where}")


def _line(check: Check) -> list[str]:
    return [check.line] if check.where == "gate" else [f"{check.where}:", f"  {check.line}"]


def _healthy(made: Made) -> list[str]:
    lines = ["", f"## {say(f'title.{HEALTHY}')}", ""]
    if made.why:
        lines += [reason(made), ""]
    if made.status == NOT_MADE:
        return lines + _last_words(made)
    lines.append(say("report.twin", headline=made.spoken.headline))
    if made.said.also:
        also = ", ".join(f"{title(name)} ({step})" for name, step in made.said.also)
        lines += ["", say("report.also", names=also)]
    return lines + _timeline(made)


def _last_words(made: Made) -> list[str]:
    return [say("report.last_words"), "", "```", *made.last_words, "```"] if made.last_words else []
