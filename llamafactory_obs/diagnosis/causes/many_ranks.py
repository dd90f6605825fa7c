"""Ranks that are out of step, or one of which had a bad batch."""

from ...record.reader import read_rows
from ...record.schema import RANKS
from .evidence import DECISIVE, FAIR, STRONG, Case
from .ordinary import middle, short
from .place import Place


def ranks(place: Place) -> Case:
    """Weights or gradients that differ between ranks."""
    case = Case("ranks", "Stop; look for a rank with other code, data, seed or a callback of its own.")
    world = (place.curves.run.get("world") or {}).get("world_size")
    if world == 1:
        return case
    apart = place.events("desync", before=200, after=2)
    if apart:
        weight = DECISIVE if place.step - apart[0]["step"] <= 50 else FAIR
        case.supports(weight, f"Step {apart[0]['step']}: {apart[0]['text']}")
    elif world is not None and place.curves.source == "obs":
        if (place.curves.columns.get("ranks/weights_checksum")) is not None:
            case.against(STRONG, "The weights' checksum was the same on all ranks.")
        else:
            case.lacks("`ranks` (are weights and gradients the same on all ranks?)")
    if place.events("straggler", before=50, after=2):
        case.supports(FAIR, "One rank was slower than the others (event of `ranks`).")
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
        text = f"Rank {rank} alone had a loss of {short(max(losses))}, the others {short(rest)}: its own batch."
        case.supports(STRONG, text)
        case.next = case.next.replace(f"--step {place.step}", f"--step {place.step} --rank {rank}")
