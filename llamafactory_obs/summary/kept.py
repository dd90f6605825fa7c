"""What lies beside the curves: checkpoints, results, gates, notes, earlier runs."""

import json
from pathlib import Path

from ..record.checkpoints import merge_checkpoints
from ..record.gates import changed_keys, gates_file, read_gates
from ..record.reader import read_rows
from ..record.schema import CHECKPOINTS, NOTES, PREFLIGHT
from .identity_facts import mappings, number, pick
from .loaded import Loaded
from .model import Gate, Note, SavedCheckpoint
from .parts import Why
from .sessions import moment

RESULTS = ("all_results.json", "train_results.json", "eval_results.json", "predict_results.json")


def checkpoints_of(loaded: Loaded) -> tuple[list[SavedCheckpoint], dict[str, Why]]:
    """Every checkpoint that was saved or lies there, by step."""
    rows = {}
    if loaded.record is not None:
        rows = {row["step"]: row for row in merge_checkpoints(read_rows(loaded.record / CHECKPOINTS)[0])}
    saved = {event["step"] for event in loaded.curves.events if event.get("kind") == "checkpoint" and "step" in event}
    there = loaded.curves.checkpoints
    losses = dict(zip(*loaded.curves.points("eval/loss"), strict=True))
    found = [
        _checkpoint(step, rows.get(step, {}), there.get(step), losses.get(step))
        for step in sorted(saved | set(rows) | set(there))
    ]
    if not found:
        return [], {"checkpoints": Why("no_checkpoint")}
    missing = {}
    if all(one.verdict is None for one in found):
        missing["checkpoints.verdict"] = Why("no_callback", {"callback": "checkpoint_guard"})
    return found, missing


def _checkpoint(step: int, row: dict, folder: Path | None, eval_loss: float | None) -> SavedCheckpoint:
    size = None if folder is None else _bytes(folder)
    return SavedCheckpoint(
        step=step,
        name=f"checkpoint-{step}",
        on_disk=folder is not None,
        bytes=number(row.get("bytes")) if size is None else size,
        save_s=number(row.get("save_s")),
        verdict=_text(row.get("verdict")) or None,
        check=_text(row.get("check")) or None,
        flaw=_text(row.get("flaw")),
        deleted=_text(row.get("deleted")),
        notice=row.get("notice") is True,
        sha256=_text(row.get("sha256")) or None,
        eval_loss=eval_loss,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _bytes(folder: Path) -> int | None:
    try:
        return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    except OSError:  # it is being deleted
        return None


def results_of(output_dir: Path) -> dict[str, float]:
    """The numbers that the Trainer leaves at the end; `all_results.json` has them all where it is there."""
    for name in RESULTS:
        try:
            content = json.loads((output_dir / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(content, dict):
            return {str(key): value for key, value in content.items() if number(value) is not None}
    return {}


def gates_of(loaded: Loaded, started: float | None) -> tuple[list[Gate], dict[str, Why]]:
    """The gates as `preflight` kept them before this run began; what was said later is of another run.

    Args:
        started: Unix seconds of the run's first start.
    """
    content = read_gates(gates_place(loaded))
    given = pick(loaded.curves.run, "config", "given")
    changed = changed_keys(content.get("given", {}), given) if content and isinstance(given, dict) else []
    found = [
        _gate(gate, changed) for gate in content.get("gates", ()) if (number(gate.get("time")) or 0) <= (started or 0)
    ]
    return found, {} if found else {"gates": Why("no_gates")}


def gates_place(loaded: Loaded) -> Path:
    """Where the gates' answers lie: in the record of a bundle, else beside the output folder."""
    inside = None if loaded.record is None else loaded.record / PREFLIGHT
    return inside if inside is not None and inside.is_file() else gates_file(loaded.output_dir)


def _gate(gate: dict, changed: list[str]) -> Gate:
    checks = mappings(gate, "checks")
    failed = [str(check.get("name")) for check in checks if check.get("status") in ("fail", "error")]
    return Gate(
        gate["name"], str(gate.get("status")), failed, _text(gate.get("fix")), number(gate.get("time")), changed
    )


def notes_of(loaded: Loaded) -> list[Note]:
    """The words that people added, in the order of time."""
    if loaded.record is None:
        return []
    rows = [row for row in read_rows(loaded.record / NOTES)[0] if isinstance(row.get("text"), str)]
    notes = [Note(moment(row.get("time")) or 0.0, row.get("step", 0), row["text"]) for row in rows]
    return sorted(notes, key=lambda note: note.time)


def earlier_runs(loaded: Loaded) -> int:
    """Records of runs that were in this folder before."""
    folder = None if loaded.record is None else loaded.record / "archive"
    return sum(1 for one in folder.iterdir() if one.is_dir()) if folder is not None and folder.is_dir() else 0
