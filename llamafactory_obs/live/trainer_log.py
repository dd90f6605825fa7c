"""LlamaFactory's own `trainer_log.jsonl`, for a run without a record: loss, rate, progress and its own clock."""

import re

#: its name -> our column
_COLUMNS = {"loss": "train/loss", "lr": "train/lr", "eval_loss": "eval/loss", "epoch": "train/epoch"}
_CLOCK = re.compile(r"^(?:(\d+) days?, )?(\d+):(\d\d):(\d\d)$")


def as_row(row: dict) -> tuple[dict, int | None, float | None] | None:
    """One of its rows as `(a row as in steps.jsonl, all steps, seconds since the start)`; None for anything else.

    The first part has no `time`: the log has only the seconds since the start (`elapsed_time`, `[D days, ]H:MM:SS`,
    made by `datetime.timedelta`), whole ones.
    """
    step, most = row.get("current_steps"), row.get("total_steps")
    if type(step) is not int or step < 0:
        return None
    values = {ours: row[its] for its, ours in _COLUMNS.items() if type(row.get(its)) in (int, float)}
    return {"step": step, **values}, most if type(most) is int and most > 0 else None, _seconds(row.get("elapsed_time"))


def _seconds(text: object) -> float | None:
    found = _CLOCK.match(text) if isinstance(text, str) else None
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
