"""Are checkpoints saved often enough, and with all that a resume needs?"""

import contextlib
import io
import math
import tempfile

from ... import texts
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
        text = texts.text("ahead.saves.none")
        return Check(name, WARN if run.is_short else FAIL, 0, WANTED_SAVES, text, fix)
    default = (
        ""
        if run.given("save_steps") or kind != "steps"
        else texts.text("ahead.saves.default", steps=run.get("save_steps"))
    )
    how = _how(run, kind, every) + default
    if saves is None:
        unknown = texts.text("ahead.saves.unknown", how=how)
        if kind == "steps" and default:
            text = texts.text("ahead.saves.not_set", unknown=unknown)
            return Check(name, WARN, run.get("save_steps"), None, text, texts.text("ahead.saves.sixth_or_less"))
        return Check(name, SKIPPED, every, None, unknown)
    lost = total if saves <= 1 else every
    text = (
        texts.text("ahead.saves.count_in", how=how, saves=saves, steps=run.steps_text)
        if total is not None
        else texts.text("ahead.saves.count", how=how, saves=saves)
    )
    if saves >= WANTED_SAVES or run.is_short:
        return Check(name, PASS, saves, WANTED_SAVES, text)
    if saves <= 1:
        where = (
            texts.text("ahead.saves.first_in", steps=run.steps_text)
            if total is not None
            else texts.text("ahead.saves.first")
        )
        text = texts.text("ahead.saves.at_the_end", how=how, where=where)
        return Check(name, FAIL, saves, WANTED_SAVES, text, fix)
    part = texts.text("ahead.saves.whole_epoch") if kind == "epoch" else texts.text("ahead.saves.part", saves=saves)
    costs = (
        texts.text("ahead.saves.lost_steps", lost=lost)
        if lost is not None
        else texts.text("ahead.saves.up_to", part=part)
    )
    return Check(name, WARN, saves, WANTED_SAVES, texts.text("ahead.saves.costs", text=text, costs=costs), fix)


def _how(run: Effective, kind: str, every: int | None) -> str:
    if _at_the_end_only(run):
        return texts.text("ahead.saves.none_on_way", steps=run.get("save_steps"))
    if kind == "steps":
        if every is not None:
            return texts.text("ahead.saves.every_steps", every=every)
        return texts.text("ahead.saves.every_share", share=run.get("save_steps"))
    if kind == "epoch":
        return texts.text("ahead.saves.epoch")
    return texts.text("ahead.saves.best")


def _fix(total: int | None) -> str:
    steps = f"save_steps: {max(total // (WANTED_SAVES + 1), 1)}" if total else texts.text("ahead.saves.sixth")
    return texts.text("ahead.saves.hold", steps=steps)


def _only_model(run: Effective) -> Check:
    if not run.get("save_only_model"):
        return Check("save_only_model", PASS, False, False, texts.text("ahead.saves.all_saved"))
    text = texts.text("ahead.saves.model_only")
    if run.is_short:
        return Check("save_only_model", WARN, True, False, text, texts.text("ahead.saves.full"))
    return Check("save_only_model", FAIL, True, False, text, texts.text("ahead.saves.full"))


def _limit(run: Effective) -> Check:
    limit, name = run.get("save_total_limit"), "save_total_limit"
    if limit is None or limit <= 0:
        return Check(name, PASS, None, None, texts.text("ahead.saves.all_kept"))
    if limit == 1:
        text = texts.text("ahead.saves.one_kept")
        if run.config.options_of("probe") is not None:
            text += texts.text("ahead.saves.probe_late")
        return Check(name, WARN, 1, 2, text, "save_total_limit: 3")
    return Check(name, PASS, limit, 2, texts.text("ahead.saves.kept", limit=limit))


def _best(run: Effective) -> Check:
    """transformers refuses some combinations of saving and evaluating; asked for its own words."""
    from transformers import TrainingArguments

    names = ("save_strategy", "save_steps", "eval_strategy", "eval_steps", "metric_for_best_model", "max_steps")
    given = {name: run.config.given[name] for name in names if run.given(name)}
    name = "load_best_model_at_end"
    if run.get("stage") in ("rm", "ppo"):
        text = texts.text("ahead.saves.refuses", name=name, stage=run.get("stage"))
        return Check(name, FAIL, True, False, text, texts.text("ahead.saves.set_false", name=name))
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        try:
            TrainingArguments(folder, use_cpu=True, report_to="none", load_best_model_at_end=True, **given)
        except ValueError as error:
            text = texts.text("ahead.saves.does_not_go", name=name, error=" ".join(str(error).split()))
            return Check(name, FAIL, True, None, text, texts.text("ahead.saves.multiple"))
    if run.word("save_strategy") == "no":
        return Check(name, SKIPPED, True, None, texts.text("ahead.saves.nothing"))
    return Check(name, PASS, True, None, texts.text("ahead.saves.together"))
