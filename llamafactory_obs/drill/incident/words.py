"""Sentences and cells that the terminal and the report share."""

from ... import texts
from .outcome import NOT_MADE, RIGHT, UNFIT, WRONG, Made, Outcome


def say(name: str, lang: str | None = None, /, **values: object) -> str:
    """A text of `drill.toml`."""
    return texts.text(f"drill.{name}", lang, **values)


def cause(name: str) -> str:
    """A cause in words."""
    return texts.texts("causes", texts.language()).get(f"title.{name}", name.replace("_", " "))


def result(outcome: Outcome) -> str:
    """The score in one sentence, and what of the twin."""
    made = [one for one in outcome.incidents if one.status != UNFIT]
    twin = say(f"result.twin_{_KEY[outcome.healthy.status]}")
    if not made:
        return twin
    return say("result.score", right=len(outcome.right), of=len(made), twin=twin)


def reason(made: Made) -> str:
    """Why it is not right; empty where it is."""
    return say(made.why[0], **made.why[1]) if made.why else ""


def row(made: Made) -> list[str]:
    """Incident, verdict, first cause, where it began, first alert, score."""
    status, said = say(f"status.{made.status}"), made.said
    if said is None or made.status in (UNFIT, NOT_MADE):
        return [made.name, "-", "-", "-", "-", status]
    first = said.causes[0] if said.causes else None
    begins = "-" if said.since is None else str(said.since)
    if made.onset is not None:
        begins += f" ({made.onset})"
    alert = said.first_alert(made.onset or 1) if made.onset else None
    return [
        made.name,
        f"{said.verdict}, {said.action}",
        first.name if first else "-",
        begins,
        str(alert["step"]) if alert else "-",
        status,
    ]


#: status -> its part of a text's name
_KEY = {RIGHT: "quiet", WRONG: "flagged", NOT_MADE: "broken"}
