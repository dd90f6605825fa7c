"""Will over-fitting be seen?"""

from ..result import PASS, SKIPPED, WARN, Check
from .effective import Effective

_WHY = "over-fitting will not be seen"


def check_evaluation(run: Effective) -> list[Check]:
    """`eval_set`: rows that are never trained on, and looked at during the run."""
    name, size, sets = "eval_set", run.get("val_size"), run.get("eval_dataset")
    strategy, every, total = run.word("eval_strategy"), run.interval("eval_steps"), run.total_steps
    if run.is_short:
        return [Check(name, SKIPPED, None, None, f"a run of {run.steps_text}: too short to over-fit")]
    if not sets and size < 1e-6:  # LlamaFactory's own limit
        text = f"no eval_dataset and val_size: 0; {_WHY}"
        return [Check(name, WARN, 0, None, text, "val_size: 0.02, eval_strategy: steps, eval_steps: as save_steps")]
    what = ",".join(sets) if sets else f"val_size {size:g}"
    if strategy == "no":
        text = f"{what} is held back, but eval_strategy is no: {_WHY}"
        return [Check(name, WARN, "no", "steps", text, "eval_strategy: steps, eval_steps: as save_steps")]
    if strategy == "steps" and total is not None and every is not None and every > total:
        text = f"eval_steps {every} in {run.steps_text}: not one evaluation before the end; {_WHY}"
        return [Check(name, WARN, every, total, text, f"eval_steps: {max(total // 7, 1)}")]
    if strategy == "steps" and total is not None and run.get("eval_delay") > total:
        text = f"eval_delay {run.get('eval_delay'):g} in {run.steps_text}: not one evaluation; {_WHY}"
        return [Check(name, WARN, run.get("eval_delay"), total, text, "eval_delay: 0")]
    often = f"every {every} steps" if every is not None else f"every {run.get('eval_steps')} of the run"
    when = {"steps": often, "epoch": "after each epoch"}.get(strategy, strategy)
    return [Check(name, PASS, what, None, f"{what} is evaluated {when}")]
