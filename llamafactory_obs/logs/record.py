"""Our own record as Curves: the segments are the breaks, the newest segment of a step wins."""

from collections.abc import Callable
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
_SECTIONS = (
    "model", "world", "hardware", "precision", "config", "data", "code", "packages", "seeds", "determinism",
)  # fmt: skip
_LISTS = ("segments", "unknown")


def read_record(folder: Path) -> Curves:
    """The record in this `obs/` folder."""
    return curves_of(folder, *read_steps(folder / STEPS))


def curves_of(folder: Path, table: Table, torn_steps: int) -> Curves:
    """The record in this `obs/` folder, whose `steps.jsonl` is read already; the table is used up."""
    events, torn = read_rows(folder / EVENTS)
    probes, torn_probes = read_rows(folder / PROBES)
    run = sound(decode_run(folder / RUN))
    raw = Raw(table, "obs")
    if torn := torn + torn_probes + torn_steps:
        raw.notes.append(f"{torn} torn lines skipped")
    for event in events:
        if event.get("kind") in _STARTS and isinstance(event.get("evidence"), dict):
            raw.facts["max_steps"] = number(event["evidence"].get("max_steps"))
    curves = assemble(folder, raw, settings_of(run))
    curves.events, curves.probes, curves.run = events, probes, run
    return curves


def sound(run: dict) -> dict:
    """Without the parts of a `run.json` that have not the type that others rely on."""
    kinds = dict.fromkeys(_SECTIONS, dict) | dict.fromkeys(_LISTS, list)
    run = {name: part for name, part in run.items() if isinstance(part, kinds.get(name, object))}
    for section, fits in (
        ("model", {"parameters": lambda value: isinstance(value, dict)}),
        ("world", {"world_size": _is_count}),
        ("hardware", {"gpus": lambda value: isinstance(value, list)}),
    ):
        if section in run:
            run[section] = _fitting(run[section], fits)
    if "parameters" in run.get("model", {}):
        counts = _fitting(run["model"]["parameters"], {"total": _is_count, "trainable": _is_count})
        run["model"] = run["model"] | {"parameters": counts}
    return run


def _fitting(part: dict, fits: dict[str, Callable]) -> dict:
    return {name: value for name, value in part.items() if name not in fits or fits[name](value)}


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < 1e18  # NaN is none


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


def read_steps(file: Path) -> tuple[Table, int]:
    """All rows of a `steps.jsonl` in the file's order, and the number of torn lines."""
    table, torn = Table(), 0
    try:
        handle = open(file, "rb")  # noqa: SIM115 (a missing file is a record without steps)
    except OSError:
        return table, 0
    with handle:
        for block in blocks(handle):
            rows, bad = parse_block(block)
            good = [row for row in rows if type(row) is dict and type(row.get("step")) is int and restored(row)]
            torn += bad + len(rows) - len(good)
            table.add(good)
    return table, torn


def restored(row: dict) -> bool:
    """Put the non-finite numbers back. False where the row's map of them is broken."""
    names = row.pop("nonfinite", None)
    if names is None:
        return True
    try:
        row |= {name: float(word) for name, word in names.items()}
    except (AttributeError, TypeError, ValueError):
        return False
    return True
