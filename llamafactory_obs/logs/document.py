"""A JSON document that holds rows: trainer_state.json, a bare list, a wrapper, several in a row, a torn one."""

import json
import re

import orjson

_HISTORY = re.compile(r"\"log_history\"\s*:\s*\[")
_SPACE = re.compile(r"[\s,]*")
FACTS = (
    "max_steps",
    "logging_steps",
    "eval_steps",
    "save_steps",
    "num_train_epochs",
    "train_batch_size",
    "global_step",
)


def read_document(text: str) -> tuple[list[dict], dict, bool] | None:
    """Rows, facts of the state around them, and whether the end was torn off. None where it is no such document."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return _piecewise(text)
    rows = rows_of(value)
    return None if rows is None else (rows, facts_of(value), False)


def rows_of(value: object, depth: int = 0) -> list[dict] | None:
    """The rows in a JSON value: those of a `log_history`, or of a list of rows; None where there are none."""
    if isinstance(value, list):
        rows = [row for row in value if isinstance(row, dict)]
        nested = [rows_of(row) for row in rows if isinstance(row.get("log_history"), list)]
        if nested:
            return [row for part in nested for row in part or ()]
        return rows if rows or not value else None
    if not isinstance(value, dict) or depth > 2:
        return None
    history = value.get("log_history")
    if isinstance(history, list):
        return [row for row in history if isinstance(row, dict)]
    for inner in value.values():
        if isinstance(inner, dict) and (rows := rows_of(inner, depth + 1)) is not None:
            return rows
    return None


def facts_of(value: object) -> dict:
    """What the state says about the run besides its rows."""
    if isinstance(value, list):
        facts: dict = {}
        for item in value:
            if isinstance(item, dict) and "log_history" in item:
                facts |= facts_of(item)
        return facts
    if not isinstance(value, dict):
        return {}
    if not isinstance(value.get("log_history"), list):
        for inner in value.values():
            if isinstance(inner, dict) and isinstance(inner.get("log_history"), list):
                return facts_of(inner)
    return {name: value[name] for name in FACTS if isinstance(value.get(name), (int, float))}


def _piecewise(text: str) -> tuple[list[dict], dict, bool] | None:
    """Documents in a row, or one whose end is missing: what can be read of it."""
    decoder = json.JSONDecoder()
    values, at = [], _SPACE.match(text).end()
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        values.append(value)
        at = _SPACE.match(text, end).end()
    rows = [row for value in values for row in (rows_of(value) or ([value] if isinstance(value, dict) else []))]
    torn = at < len(text)
    if torn:
        history = _HISTORY.search(text, at)
        if history is not None:
            rows += _items(text, history.end(), decoder)
        elif text[at] == "[":
            rows += _items(text, at + 1, decoder)
        elif not values:
            return None
    return rows, facts_of(values), torn


def _items(text: str, at: int, decoder: json.JSONDecoder) -> list[dict]:
    rows = []
    while at < len(text):
        at = _SPACE.match(text, at).end()
        try:
            row, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        if isinstance(row, dict):
            rows.append(row)
    return rows
