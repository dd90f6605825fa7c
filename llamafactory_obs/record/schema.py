"""What the record's files are called and how one row becomes one line of strict JSON.

A non-finite number is written as null and named in the row's `nonfinite` map: `{"train/loss": "nan"}`; inside a list
or mapping by its path: `{"grad_norm[3]": "inf"}`, `{"evidence.norm": "nan"}`. `decode` puts the numbers back.
"""

import json
import math
from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1

FOLDER = "obs"
RUN, STEPS, LAYERS, EVENTS = "run.json", "steps.jsonl", "layers.jsonl", "events.jsonl"
PROBES, RANKS, OPTIMIZER = "probes.jsonl", "ranks.jsonl", "optimizer.jsonl"
CHECKPOINTS = "checkpoints.jsonl"
NOTES = "notes.jsonl"
"""Words of people, `report --note`: a file of its own, as the training writes the others."""
PREFLIGHT = "preflight.json"
"""In a bundle: what the gates said before this run; else it lies beside the output folder, see `record.gates`."""
BASE = "base"
"""The `checkpoint` of a probe's row that is of the untuned base model; it stands at step 0."""
UNSENT = "webhook-unsent.jsonl"
"""Messages of webhooks that are not sent yet: they outlive the record, a later start sends them."""
PROBE = "probe"
"""The folder in `obs/` that belongs to the probe: its lock, ledger and private copies. It outlives the record."""
CONTROL = "control"
"""The folder in `obs/` for commands to the job that runs. It belongs to the output folder, not to one run's record."""

Reduce = Literal["sum", "mean", "min", "max", "same"]


@dataclass(frozen=True)
class Key:
    """One column of `steps.jsonl`.

    `reduce` says how the ranks' values become one: "same" takes rank 0's, for numbers that are equal on all ranks.
    """

    name: str
    unit: str
    doc: str
    reduce: Reduce = "same"


def encode(row: dict, indent: int | None = None) -> bytes:
    """One row as one line of strict JSON (or, with `indent`, one object for people), with its newline."""
    nonfinite: dict[str, str] = {}
    clean = {key: _clean(value, str(key), nonfinite) for key, value in row.items()}
    if nonfinite:
        clean["nonfinite"] = nonfinite
    separators = (",", ":") if indent is None else None
    text = json.dumps(clean, ensure_ascii=False, allow_nan=False, separators=separators, indent=indent)
    return text.encode("utf-8", "replace") + b"\n"


def decode(line: bytes | str) -> dict:
    """The row of one line, non-finite numbers restored.

    Raises:
        ValueError: the line is torn or no JSON object.
    """
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("a row must be a JSON object")
    for path, word in (row.pop("nonfinite", None) or {}).items():
        _restore(row, path, float(word))
    return row


def _clean(value, path: str, nonfinite: dict):
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        nonfinite[path] = "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
        return None
    if isinstance(value, dict):
        return {str(k): _clean(v, f"{path}.{k}", nonfinite) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(v, f"{path}[{i}]", nonfinite) for i, v in enumerate(value)]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return str(value)


def _restore(node, path: str, number: float) -> None:
    """Set the number at `path`; keys may themselves hold dots and brackets, so the longest key that fits is taken."""
    if isinstance(node, dict):
        for key in sorted(node, key=len, reverse=True):
            if path == key:
                node[key] = number
                return
            if path.startswith((f"{key}.", f"{key}[")):
                _restore(node[key], path[len(key) :].removeprefix("."), number)
                return
    elif isinstance(node, list):
        index, _, rest = path[1:].partition("]")
        if rest:
            _restore(node[int(index)], rest.removeprefix("."), number)
        else:
            node[int(index)] = number
