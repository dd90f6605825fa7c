"""The record of the run that is resumed, as far as it is what a record should be: it may be torn or written by hand."""

from pathlib import Path

from ..record.reader import decode_run
from ..record.schema import FOLDER, RUN


def recorded(folder: Path) -> dict:
    """`run.json` of an output folder; {} for none. Parts of another kind than a record has are left out."""
    record = _mapping(decode_run(folder / FOLDER / RUN))
    if not record:
        return {}
    for part in ("world", "data", "model"):
        record[part] = _mapping(record.get(part))
    data = record["data"]
    for part in ("files", "settings", "rows"):
        data[part] = _mapping(data.get(part))
    data["files"] = {name: one for name, one in data["files"].items() if isinstance(one, dict)}
    data["datasets"] = _mappings(data.get("datasets"))
    weights = record["model"]["weights"] = _mapping(record["model"].get("weights"))
    if isinstance(weights.get("files"), list):
        weights["files"] = _mappings(weights["files"])
    record["segments"] = _mappings(record.get("segments"))
    for segment in record["segments"]:
        segment["trackers"] = _mapping(segment.get("trackers"))
    return record


def _mapping(value: object) -> dict:
    return dict(value) if isinstance(value, dict) else {}


def _mappings(value: object) -> list[dict]:
    return [dict(one) for one in value if isinstance(one, dict)] if isinstance(value, list) else []
