"""Will over-fitting be seen?"""

from ... import texts
from ..result import PASS, SKIPPED, WARN, Check
from .effective import Effective


def check_evaluation(run: Effective) -> list[Check]:
    """`eval_set`: rows that are never trained on, and looked at during the run."""
    name, size, sets = "eval_set", run.get("val_size"), run.get("eval_dataset")
    strategy, every, total = run.word("eval_strategy"), run.interval("eval_steps"), run.total_steps
    if run.is_short:
        return [Check(name, SKIPPED, None, None, texts.text("ahead.eval.too_short", steps=run.steps_text))]
    if not sets and size < 1e-6:  # LlamaFactory's own limit
        text = texts.text("ahead.eval.none", why=texts.text("ahead.eval.unseen"))
        return [Check(name, WARN, 0, None, text, "val_size: 0.02, eval_strategy: steps, eval_steps: as save_steps")]
    what = ",".join(sets) if sets else f"val_size {size:g}"
    if strategy == "no":
        text = texts.text("ahead.eval.off", what=what, why=texts.text("ahead.eval.unseen"))
        return [Check(name, WARN, "no", "steps", text, "eval_strategy: steps, eval_steps: as save_steps")]
    if strategy == "steps" and total is not None and every is not None and every > total:
        text = texts.text("ahead.eval.too_rare", every=every, steps=run.steps_text, why=texts.text("ahead.eval.unseen"))
        return [Check(name, WARN, every, total, text, f"eval_steps: {max(total // 7, 1)}")]
    if strategy == "steps" and total is not None and run.get("eval_delay") > total:
        text = texts.text(
            "ahead.eval.delay", delay=run.get("eval_delay"), steps=run.steps_text, why=texts.text("ahead.eval.unseen")
        )
        return [Check(name, WARN, run.get("eval_delay"), total, text, "eval_delay: 0")]
    often = (
        texts.text("ahead.eval.every", every=every)
        if every is not None
        else texts.text("ahead.eval.share", share=run.get("eval_steps"))
    )
    when = {"steps": often, "epoch": texts.text("ahead.eval.epoch")}.get(strategy, strategy)
    return [Check(name, PASS, what, None, texts.text("ahead.eval.evaluated", what=what, when=when))]
