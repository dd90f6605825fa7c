"""Are checkpoints saved often enough, and with all that a resume needs?"""

import contextlib
import io
import math
import tempfile

from ..result import FAIL, PASS, SKIPPED, WARN, Check
from .effective import Effective

#: Saves that a run on a machine that can be taken back should have: one lost interval is then a sixth of the run.
WANTED_SAVES = 6


def check_saves(run: Effective) -> list[Check]:
    """`save_steps`, `save_only_model`, `save_total_limit`, `load_best_model_at_end`."""
    checks = [_interval(run), _only_model(run), _limit(run)]
    if run.get("load_best_model_at_end"):
        checks.append(_best(run))
    return checks


def lost_steps(run: Effective) -> int | None:
    """Steps between two saves: what an interruption costs at most. None where that is not known."""
    kind, total = run.word("save_strategy"), run.total_steps
    if kind == "steps":
        return run.interval("save_steps")
    if kind == "epoch":
        return run.steps_per_epoch
    if kind == "best":
        return run.interval("eval_steps") if run.word("eval_strategy") == "steps" else None
    return total


def number_of_saves(run: Effective) -> int | None:
    """Checkpoints that the run writes, the one at its end included; None where that is not known."""
    kind, total, every = run.word("save_strategy"), run.total_steps, lost_steps(run)
    if kind == "no":
        return 0
    if _at_the_end_only(run):
        return 1
    if kind == "epoch" and run.get("max_steps") <= 0:
        return math.ceil(run.get("num_train_epochs"))
    if kind == "steps" and total is None and run.get("save_steps") < 1:
        return math.ceil(1 / run.get("save_steps"))
    return None if total is None or every is None else math.ceil(total / every)


def _at_the_end_only(run: Effective) -> bool:
    """transformers never saves on the way with `save_steps: 0`, and takes a negative one."""
    return run.word("save_strategy") == "steps" and run.get("save_steps") <= 0


def _interval(run: Effective) -> Check:
    name, kind, total = "save_steps", run.word("save_strategy"), run.total_steps
    saves, every = number_of_saves(run), lost_steps(run)
    fix = _fix(total)
    if kind == "no":
        text = "save_strategy: no; nothing is saved before the end, an interruption loses the whole run"
        return Check(name, WARN if run.is_short else FAIL, 0, WANTED_SAVES, text, fix)
    default = "" if run.given("save_steps") or kind != "steps" else f" (not set: the default, {run.get('save_steps')})"
    how = _how(run, kind, every) + default
    if saves is None:
        unknown = f"{how}; how many that are is not known: the rows are not counted here"
        if kind == "steps" and default:
            text = f"save_steps is not set: {unknown}"
            return Check(name, WARN, run.get("save_steps"), None, text, "set save_steps to a sixth of the run or less")
        return Check(name, SKIPPED, every, None, unknown)
    lost = total if saves <= 1 else every
    text = f"{how}, {saves} in {run.steps_text}" if total is not None else f"{how}, {saves} in all"
    if saves >= WANTED_SAVES or run.is_short:
        return Check(name, PASS, saves, WANTED_SAVES, text)
    if saves <= 1:
        where = f"the first in {run.steps_text}" if total is not None else "the first"
        text = f"{how}: {where} is at its end, an interruption loses the whole run"
        return Check(name, FAIL, saves, WANTED_SAVES, text, fix)
    part = "a whole epoch" if kind == "epoch" else f"1/{saves} of it"
    costs = f"up to {lost} steps" if lost is not None else f"up to {part}"
    return Check(name, WARN, saves, WANTED_SAVES, f"{text}: an interruption loses {costs}", fix)


def _how(run: Effective, kind: str, every: int | None) -> str:
    if _at_the_end_only(run):
        return f"save_steps: {run.get('save_steps'):g}: no checkpoint on the way"
    if kind == "steps":
        share = f"{run.get('save_steps'):g} of the run"
        return f"a checkpoint every {f'{every} steps' if every is not None else share}"
    if kind == "epoch":
        return "a checkpoint after each epoch"
    return "a checkpoint after each evaluation that is the best so far"


def _fix(total: int | None) -> str:
    steps = f"save_steps: {max(total // (WANTED_SAVES + 1), 1)}" if total else "save_steps: a sixth of the run or less"
    return f"save_strategy: steps, {steps}, and save_total_limit to hold the disk"


def _only_model(run: Effective) -> Check:
    if not run.get("save_only_model"):
        return Check("save_only_model", PASS, False, False, "optimizer, scheduler and RNG state are saved too")
    text = "save_only_model: true; no optimizer, scheduler or RNG state: a resume would be a warm start"
    if run.is_short:
        return Check("save_only_model", WARN, True, False, text, "set save_only_model: false")
    return Check("save_only_model", FAIL, True, False, text, "set save_only_model: false")


def _limit(run: Effective) -> Check:
    limit, name = run.get("save_total_limit"), "save_total_limit"
    if limit is None or limit <= 0:
        return Check(name, PASS, None, None, "all checkpoints are kept")
    if limit == 1:
        text = "save_total_limit: 1; one broken save and nothing is left"
        if run.config.options_of("probe") is not None:
            text += ", and a checkpoint may be gone before the probe has asked it"
        return Check(name, WARN, 1, 2, text, "save_total_limit: 3")
    return Check(name, PASS, limit, 2, f"the newest {limit} checkpoints are kept")


def _best(run: Effective) -> Check:
    """transformers refuses some combinations of saving and evaluating; asked for its own words."""
    from transformers import TrainingArguments

    names = ("save_strategy", "save_steps", "eval_strategy", "eval_steps", "metric_for_best_model", "max_steps")
    given = {name: run.config.given[name] for name in names if run.given(name)}
    name = "load_best_model_at_end"
    if run.get("stage") in ("rm", "ppo"):
        text = f"LlamaFactory refuses {name} with stage: {run.get('stage')}"
        return Check(name, FAIL, True, False, text, f"set {name}: false")
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        try:
            TrainingArguments(folder, use_cpu=True, report_to="none", load_best_model_at_end=True, **given)
        except ValueError as error:
            text = f"{name} does not go with these settings: {' '.join(str(error).split())}"
            return Check(name, FAIL, True, None, text, "make save_steps a multiple of eval_steps, same strategy")
    if run.word("save_strategy") == "no":
        return Check(name, SKIPPED, True, None, "nothing is saved")
    return Check(name, PASS, True, None, "saving and evaluating go together")
