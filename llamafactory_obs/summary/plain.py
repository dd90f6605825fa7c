"""A summary as plain JSON values."""

import dataclasses

from ..output import plain
from .model import RunSummary


def as_dict(summary: RunSummary) -> dict:
    """All fields by their names, with `cost`; of what is missing the reason and what to do, in English.

    A number that is not finite becomes its word ("nan"), as strict JSON has none.
    """
    fields = {
        field.name: plain(getattr(summary, field.name))
        for field in dataclasses.fields(summary)
        if field.name != "missing"
    }
    missing = {
        name: {"code": why.code, "why": why.why("en"), "next": why.next("en")} for name, why in summary.missing.items()
    }
    return fields | {"cost": summary.cost, "missing": missing}
