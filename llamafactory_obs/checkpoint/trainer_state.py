"""`trainer_state.json`, read by one rule: which kind each field has, and at which wrong kinds the Trainer ends.

transformers 5.6.0 makes `TrainerState(**json)` of it and computes with what stands there: `global_step` places the run,
`DefaultFlowCallback` divides by the cadences, `log` appends to `log_history`.
"""

import json
import math
from dataclasses import fields
from pathlib import Path

from ..texts import text
from .files import STATE, Incomplete, read_json

#: kind -> is a value of it
_IS = {
    "whole": lambda value: type(value) is int and value >= 0,
    "number": lambda value: type(value) in (int, float) and math.isfinite(value),
    "list": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
#: without these a resume ends with an error: its start, its first step, its first log or its next save
_ENDS = {
    "global_step": "whole",
    "logging_steps": "number",
    "save_steps": "number",
    "train_batch_size": "whole",
    "total_flos": "number",
    "log_history": "list",
    "stateful_callbacks": "object",
}
#: these the Trainer computes anew, or reads with some settings only
_READ = {
    "epoch": "number",
    "max_steps": "whole",
    "num_train_epochs": "whole",
    "eval_steps": "number",
}
#: all of `TrainerState`
_FIELDS = {*_ENDS, *_READ, "num_input_tokens_seen", "best_metric", "best_global_step", "best_model_checkpoint"}
_FIELDS |= {"is_local_process_zero", "is_world_process_zero", "is_hyper_param_search", "trial_name", "trial_params"}
#: the Trainer begins it anew where it is null
_MAY_BE_NULL = ("log_history",)


def read_state(folder: Path) -> dict:
    """The fields above, each of its own kind; one of another kind is left out, and so are rows that are no objects.

    Raises:
        Incomplete: it is missing, torn, no object, or says no `global_step`.
    """
    state = read_json(folder / STATE)
    if not isinstance(state, dict) or not _IS["whole"](state.get("global_step")):
        raise Incomplete(text("checkpoint.files.no_step", file=STATE))
    found = {name: state[name] for name, kind in (_ENDS | _READ).items() if name in state and _IS[kind](state[name])}
    found["log_history"] = [row for row in found.get("log_history", ()) if isinstance(row, dict)]
    return found


def wrong_kind(state: object) -> str:
    """Why the Trainer does not go on with this content, in one line; "" where it does."""
    if not isinstance(state, dict):
        return text("checkpoint.state.no_object", name=STATE)
    for field, kind in _ENDS.items():
        value = state.get(field)
        absent = field not in state or (value is None and field in _MAY_BE_NULL)
        if not absent and not _IS[kind](value):
            shown = json.dumps(value)
            said = shown if len(shown) <= 40 else f"{shown[:37]}..."
            return text(f"checkpoint.state.{kind}", name=STATE, field=field, value=said)
    if strange := _unknown(state):
        return text("checkpoint.state.unknown", name=STATE, field=strange)
    return ""


def _unknown(state: dict) -> str | None:
    """A field that the installed transformers does not know, e.g. of a newer one; None where there is none."""
    strange = state.keys() - _FIELDS
    if not strange:
        return None
    try:
        from transformers import TrainerState
    except ImportError:
        return None
    return min(map(str, strange - {field.name for field in fields(TrainerState)}), default=None)
