"""Ranks that are out of step, or one of which had a bad batch."""

from ... import texts
from ...record.reader import read_rows
from ...record.schema import RANKS
from .evidence import DECISIVE, FAIR, STRONG, Case, quoted
from .ordinary import middle, short
from .place import Place


def ranks(place: Place) -> Case:
    """Weights or gradients that differ between ranks."""
    case = Case("ranks", texts.text("causes.ranks.next"))
    world = (place.curves.run.get("world") or {}).get("world_size")
    if world == 1:
        return case
    apart = place.events("desync", before=200, after=2)
    if apart:
        weight = DECISIVE if place.step - apart[0]["step"] <= 50 else FAIR
        case.supports(weight, quoted(apart[0]))
    elif world is not None and place.curves.source == "obs":
        if (place.curves.columns.get("ranks/weights_checksum")) is not None:
            case.against(STRONG, texts.text("causes.ranks.same"))
        else:
            case.lacks(texts.text("causes.ranks.lacks"))
    if place.events("straggler", before=50, after=2):
        case.supports(FAIR, texts.text("causes.ranks.slower"))
    return case


def one_rank_alone(place: Place, case: Case) -> None:
    """Adds to a special batch: the loss of one rank was far above the others' in this step."""
    if place.record is None or ((place.curves.run.get("world") or {}).get("world_size") or 1) == 1:
        return
    rows = read_rows(place.record / RANKS)[0]
    here = [row["values"].get("train/loss") for row in rows if row.get("step") == place.step and "values" in row]
    losses = [value for value in (here[-1] or []) if value is not None] if here else []
    if len(losses) < 2:
        return
    rest = middle(sorted(losses)[:-1])
    if max(losses) > 1.5 * rest and max(losses) - rest > 0.3:
        rank = (here[-1] or []).index(max(losses))
        text = texts.text("causes.ranks.alone", rank=rank, loss=short(max(losses)), others=short(rest))
        case.supports(STRONG, text)
        case.next = case.next.replace(f"--step {place.step}", f"--step {place.step} --rank {rank}")
