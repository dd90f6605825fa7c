"""How large the updates were, as a share of the weights: from `optimizer`, or summed up over `layer_norms`."""

import math

from ...detect.numbers import as_number
from ...record.reader import read_rows
from ...record.schema import LAYERS
from .place import Place

_MOST_BYTES = 256 << 20


def update_ratios(place: Place) -> list[tuple[int, float]]:
    """(step, |update| / |weights| of the whole model) in the order of training; empty where nobody logged it."""
    steps, values = place.curves.points("train/update_ratio")
    found = {step: value for step, value in zip(steps, values, strict=True) if math.isfinite(value)}
    file = place.record / LAYERS if place.record is not None else None
    if file is None or not file.is_file() or file.stat().st_size > _MOST_BYTES:
        return sorted(found.items())
    for row in read_rows(file)[0]:
        ratios, norms = row.get("update_ratio"), row.get("weight_norm")
        if isinstance(ratios, list) and isinstance(norms, list) and len(ratios) == len(norms):
            pairs = zip(map(as_number, ratios), map(as_number, norms), strict=True)
            both = [(ratio, norm) for ratio, norm in pairs if ratio is not None and norm]
            update, whole = math.hypot(*(r * n for r, n in both)), math.hypot(*(n for _, n in both))
            if whole and math.isfinite(update / whole):
                found.setdefault(row["step"], update / whole)
    return sorted(found.items())
