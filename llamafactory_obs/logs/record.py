"""Our own record as Curves: the segments are the breaks, the newest segment of a step wins."""

from pathlib import Path

from ..record.reader import decode_run, read_rows
from ..record.schema import EVENTS, PROBES, RUN, STEPS
from .assemble import assemble
from .curves import Curves
from .jsonl import blocks, parse_block
from .raw import Raw
from .table import Table
from .values import number

_STARTS = ("start", "resume")


def read_record(folder: Path) -> Curves:
    """The record in this `obs/` folder."""
    events, torn = read_rows(folder / EVENTS)
    probes, torn_probes = read_rows(folder / PROBES)
    run = decode_run(folder / RUN)
    table, torn_steps = _steps(folder / STEPS)
    raw = Raw(table, "obs")
    if torn := torn + torn_probes + torn_steps:
        raw.notes.append(f"{torn} torn lines skipped")
    for event in events:
        if event.get("kind") in _STARTS and isinstance(event.get("evidence"), dict):
            raw.facts["max_steps"] = number(event["evidence"].get("max_steps"))
    curves = assemble(folder, raw, settings_of(run))
    curves.events, curves.probes, curves.run = events, probes, run
    return curves


def settings_of(run: dict) -> dict:
    """The training arguments in `run.json`, flat: LlamaFactory's five argument objects, then what was written."""
    config = run.get("config")
    config = config if isinstance(config, dict) else {}
    resolved = config.get("resolved")
    settings: dict = {}
    for part in resolved.values() if isinstance(resolved, dict) else ():
        settings |= part if isinstance(part, dict) else {}
    given = config.get("given")
    return settings or (dict(given) if isinstance(given, dict) else {})


def _steps(file: Path) -> tuple[Table, int]:
    table, torn = Table(), 0
    try:
        handle = open(file, "rb")  # noqa: SIM115 (a missing file is a record without steps)
    except OSError:
        return table, 0
    with handle:
        for block in blocks(handle):
            rows, bad = parse_block(block)
            good = [row for row in rows if type(row) is dict and type(row.get("step")) is int and _restored(row)]
            torn += bad + len(rows) - len(good)
            table.add(good)
    return table, torn


def _restored(row: dict) -> bool:
    """Put the non-finite numbers back. False where the row's map of them is broken."""
    names = row.pop("nonfinite", None)
    if names is None:
        return True
    try:
        row |= {name: float(word) for name, word in names.items()}
    except (AttributeError, TypeError, ValueError):
        return False
    return True
