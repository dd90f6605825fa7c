"""A summary as plain JSON values."""

import dataclasses
import math

from .model import RunSummary


def as_dict(summary: RunSummary) -> dict:
    """All fields by their names, with `cost`; of what is missing the reason and what to do, in English.

    A number that is not finite becomes its word ("nan"), as strict JSON has none.
    """
    plain = {
        field.name: _plain(getattr(summary, field.name))
        for field in dataclasses.fields(summary)
        if field.name != "missing"
    }
    missing = {
        name: {"code": why.code, "why": why.why("en"), "next": why.next("en")} for name, why in summary.missing.items()
    }
    return plain | {"cost": summary.cost, "missing": missing}


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
