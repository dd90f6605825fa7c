"""The alerts of a run: each once, with how often it came and whether it goes on."""

from ..detect.endings import RANK
from .model import RaisedAlert


def alerts_of(events: list[dict]) -> list[RaisedAlert]:
    """The alerts in the order in which they were first found; of those that a resume threw away nothing is left."""
    kept: list[dict] = []
    for event in events:
        if type(event.get("step")) is not int:
            continue
        if event.get("kind") == "resume":
            kept = [one for one in kept if one["step"] <= event["step"]]
        elif event.get("kind") == "alert":
            kept.append(event)
    found: dict[str, RaisedAlert] = {}
    for event in kept:
        life = event.get("alert") if isinstance(event.get("alert"), dict) else {}
        id_ = str(life.get("id") or f"{event.get('name')}/{event.get('title')}")
        held = found.get(id_)
        told = held if held is not None and life.get("state") == "resolved" else None
        evidence = event.get("evidence") if isinstance(event.get("evidence"), dict) else {}
        title = held.title if held is not None else str(event.get("title", ""))
        level = max(held.level if held else "info", str(event.get("level")), key=lambda word: RANK.get(word, 0))
        is_open = life.get("open")
        found[id_] = RaisedAlert(
            id=id_,
            name=str(event.get("name", "")),
            title=title,
            level=level,
            since=held.since if held is not None else _since(life, event),
            last=event["step"],
            count=life["count"] if type(life.get("count")) is int else (held.count if held else 0) + 1,
            open=is_open if isinstance(is_open, bool) else None,
            text=told.text if told else str(event.get("text", "")),
            evidence=told.evidence if told else evidence,
        )
    return list(found.values())


def _since(life: dict, event: dict) -> int:
    return life["since"] if type(life.get("since")) is int else event["step"]
