"""Is the loss finite, does it move, did a parameter change, and did every trainable layer get a gradient?"""

import math
import statistics

from ...checkpoint.files import STATE, Incomplete, read_json
from ...checkpoint.tensors import changed_tensor
from ...detect.nonfinite import NonFiniteDetector
from ..result import ERROR, FAIL, PASS, SKIPPED, WARN, Check
from .evidence import Evidence, truth

#: losses of different batches never agree to this many digits; float32 has seven
_CONSTANT = 1e-6
#: the last third's median is above every loss of the first third by this factor and by this many nats: diverging.
#: Batches alone spread less: of 8 healthy steps of LoRA on tool calls the highest loss was 2.9 times the lowest, 0.55
#: nats apart, and the last ones were not the high ones.
_RISE, _RISE_NATS = 1.5, 1.0
#: below it a gradient norm is nothing (`detect.stalled`)
_NO_GRADIENT = 1e-6
#: towers that text alone gives no gradient
_OTHER_INPUT = ("visual", "vision", "audio", "projector")


def check_finite(run: Evidence) -> Check:
    """No loss and no gradient norm is NaN or infinite, and none is exactly 0.0, which a hidden NaN looks like."""
    name, want = "loss_finite", "finite"
    losses, norms = run.column("train/loss"), run.column("train/grad_norm")
    if not losses:
        return Check(name, ERROR, None, want, "no loss is on record", "run the smoke again with our callbacks")
    losses, norms = _with_logged(run, losses, "loss"), _with_logged(run, norms, "grad_norm")
    skipped, detector, found = run.column("train/step_skipped"), NonFiniteDetector(), []
    for step in sorted(losses.keys() | norms.keys()):
        was_skipped = bool(skipped[step]) if step in skipped else None
        seen = detector.update(step, norms.get(step), losses.get(step), run.fp16, was_skipped)
        found += [seen] if seen is not None and seen.name != "finite_again" else []
    dead = [one for one in found if one.level == "error"]
    if dead:
        since = dead[0].evidence["since"]
        first = min(losses.keys() | norms.keys())
        when = "from the first step on" if since == first else f"after {since - first} finite steps"
        cure = "flash_attn: sdpa, bf16 instead of fp16, and look at that step's rows"
        cure = cure if since == first else f"a lower learning_rate or a warm-up; {cure}"
        return Check(name, FAIL, dead[0].name, want, f"{dead[0].text} It is so {when}", cure)
    zero = [step for step, loss in losses.items() if loss == 0.0]
    if zero:
        text = f"the loss is exactly 0.0 in step {zero[0]}: a NaN that a log hid, or a batch with nothing in the loss"
        return Check(
            name, FAIL, 0.0, "finite, not 0", text, "look at the mask gate, then at flash_attn and the data type"
        )
    low, high = min(losses.values()), max(losses.values())
    text = f"all {len(losses)} losses are finite, {low:.3g} to {high:.3g}"
    if not norms:
        return Check(name, WARN, want, want, f"{text}; no gradient norm is on record to tell more")
    count = int(sum(skipped.values())) or len(found)
    text += f"; {count} step(s) skipped by fp16's loss scaler, which is normal" if found else ""
    return Check(name, PASS, want, want, text)


def _with_logged(run: Evidence, column: dict[int, float], key: str) -> dict[int, float]:
    """The column with what the Trainer itself logged, where only that is not finite."""
    try:
        rows = read_json(run.checkpoint / STATE).get("log_history") or []
        logged = {row["step"]: row[key] for row in rows if isinstance(row.get(key), float)}
    except (Incomplete, AttributeError, KeyError, TypeError):
        return column  # checkpoint_complete says it
    return column | {step: value for step, value in logged.items() if not math.isfinite(value)}


def check_moves(run: Evidence) -> Check:
    """The loss is no constant and does not run away, and the steps really changed a parameter.

    Each step sees another batch, so the loss differs between steps even where nothing is learned: that it moves can
    only show that the batches get through. What tells a frozen model apart is whether a parameter changed. That the
    model *can* learn is what `overfit` shows.
    """
    name = "loss_moves"
    losses = {step: loss for step, loss in run.column("train/loss").items() if math.isfinite(loss)}
    if len(losses) < 3:
        done = run.last_step < run.step or len(run.column("train/loss")) > len(losses)
        text = f"{len(losses)} finite losses are too few to see a movement"
        return Check(name, SKIPPED if done else ERROR, None, None, text + (": see the checks before" if done else ""))
    values = [losses[step] for step in sorted(losses)]
    spread = max(values) - min(values)
    value, want = round(spread, 6), "> 0"
    if spread <= _CONSTANT * max(abs(one) for one in values):
        text = f"the loss is {values[0]:.6g} in all {len(values)} steps: the same number for different batches"
        fix = "nothing reaches the loss: check the labels, the data (one row?) and the learning rate"
        return Check(name, FAIL, value, want, text, fix)
    third = max(2, len(values) // 3)
    start, end = values[:third], statistics.median(values[-third:])
    if end > _RISE * max(start) and end - max(start) > _RISE_NATS:
        text = f"the loss runs away: {max(start):.3g} at most in the first {third} steps, {end:.3g} in the last {third}"
        limit = max(_RISE * max(start), max(start) + _RISE_NATS)
        return Check(name, FAIL, round(end, 4), f"<= {limit:.4g}", text, _lower(run))
    rates = run.column("train/lr")
    if rates and not any(rates.values()):
        text = "the learning rate is 0 in every step: nothing can be learned"
        return Check(name, FAIL, 0.0, want, text, "learning_rate, lr_scheduler_type, warmup_steps")
    changed, why = _changed(run)
    text = (
        f"the loss goes from {values[0]:.3g} to {values[-1]:.3g}, {min(values):.3g} to {max(values):.3g} over batches"
    )
    if changed is None:
        fix = "callbacks: [layer_norms], then run the smoke again"
        return Check(name, ERROR, None, None, f"{text}; whether a parameter changed is not known: {why}", fix)
    if not changed:
        fix = "learning_rate, lr_scheduler_type and warmup_steps; for pure_bf16 the rate is too small for bf16's digits"
        return Check(name, FAIL, 0, want, f"no parameter changed in {len(values)} steps: {why}; {text}", fix)
    return Check(name, PASS, value, want, f"{text}; {why}")


def _lower(run: Evidence) -> str:
    rate = max(run.column("train/lr").values(), default=0.0)
    return f"learning_rate: {rate / 10:.1e} (now {rate:.1e}), or a warm-up" if rate else "a lower learning_rate"


def _changed(run: Evidence) -> tuple[bool | None, str]:
    """Did the steps change a parameter, and how that is known. The checkpoint's word counts before the record's."""
    whole = run.checkpoint.is_dir() and run.proof.complete
    reasons = []
    if whole:
        try:
            found = _by_weights(run)
            if found is not None:
                return found
        except Incomplete as reason:
            reasons.append(str(reason))
    ratios = [ratio for row in run.record.layers.rows for ratio in row.get("update_ratio") or [] if ratio is not None]
    ratios += list(run.column("train/update_ratio").values())
    if ratios:
        top = max(ratios)
        return top > 0, f"an update changes the weights by {top:.2g} of their norm at most"
    reasons.append("no update ratio is on record" if whole else f"there is no whole {run.checkpoint.name}")
    return None, "; ".join(reasons)


def _by_weights(run: Evidence) -> tuple[bool, str] | None:
    """LoRA begins with B = 0 (peft's default), a whole model with the base model's weights."""
    if run.proof.kind == "adapter":
        values, start = run.values, run.identity("model", "peft", "default", "init_lora_weights")
        if not values.lora_b or run.continues or start not in (True, None, "gaussian"):
            return None
        if values.lora_b_zero == values.lora_b:
            return False, f"all {values.lora_b} lora_B of {run.checkpoint.name} are still zero"
        return True, f"{values.lora_b - values.lora_b_zero} of {values.lora_b} lora_B are no longer zero"
    folder = run.base_folder
    scratch = truth(run.config.given.get("train_from_scratch"))
    if run.proof.kind != "full" or folder is None or run.base.adapters or scratch:
        return None
    changed = changed_tensor(run.checkpoint, run.proof.weights, folder)
    if changed is None:
        return False, f"{run.checkpoint.name} holds the base model's weights, to the bit"
    return True, f"the weights are no longer those of the base model ({changed})"


def check_gradients(run: Evidence) -> Check:
    """Parameters are trainable, and each trainable layer got a finite gradient that is not zero in some step.

    LoRA's A has a gradient of zero until B is no longer zero: in the first step, and as long as the learning rate is 0
    in a warm-up. So one step with a gradient is enough.
    """
    name = "gradients"
    trainable, total = (run.identity("model", "parameters", key) for key in ("trainable", "total"))
    if trainable == 0:
        text = "no parameter is trainable"
        return Check(name, FAIL, 0, "> 0", text, "check finetuning_type, lora_target and freeze_trainable_layers")
    if trainable is None:
        text = "how many parameters are trainable is not on record (run.json, model.parameters)"
        return Check(name, ERROR, None, "> 0", text, "run the smoke again with our callbacks")
    share = f"{trainable} of {total} parameters are trainable"
    norms = [norm for norm in run.column("train/grad_norm").values() if math.isfinite(norm)]
    if not norms:
        text = f"{share}; no finite gradient norm is on record"
        return Check(name, ERROR, trainable, "> 0", text, "see loss_finite, and use our callbacks")
    if max(norms) < _NO_GRADIENT:
        text = (
            f"{share}, but the gradient norm is {max(norms):.2g} at most: the graph is cut, or nothing is in the loss"
        )
        return Check(
            name, FAIL, max(norms), f">= {_NO_GRADIENT:g}", text, "check the labels (mask gate) and use_reentrant_gc"
        )
    layers = run.record.layers
    if not any(row.get("grad_norm") for row in layers.rows):
        text = f"{share}, gradient norm {min(norms):.3g} to {max(norms):.3g}; not on record layer by layer"
        return Check(name, WARN, trainable, "> 0", text, "callbacks: [layer_norms]")
    views = {"grad_norm": layers.names, "module_grad_norm": layers.modules}
    without = [name for measure, names in views.items() for name in _without(layers, measure, names)]
    other = [one for one in without if any(word in one for word in _OTHER_INPUT)]
    grave = [one for one in without if one not in other]
    if grave:
        text = f"{share}, but no gradient ever reached {len(grave)} of their groups: {', '.join(grave[:6])}"
        text += ", ..." if len(grave) > 6 else ""
        fix = "a detached graph, a frozen or unused module, or a learning rate of 0 (lora_A then stays at zero)"
        return Check(name, FAIL, len(grave), 0, text, fix)
    text = f"{share}; a gradient reached all {len(layers.names)} groups by layer, all {len(layers.modules)} by module"
    if other:
        text = f"{share}; no gradient reached {', '.join(other[:4])}: no such input in {run.last_step} steps?"
        return Check(name, WARN, trainable, "> 0", text)
    return Check(name, PASS, trainable, "> 0", text)


def _without(layers, measure: str, names: list[str]) -> list[str]:
    """Groups of parameters that had no finite gradient above 0 in any step."""
    columns = [row[measure] for row in layers.rows if row.get(measure)]
    reached = [any(c[i] is not None and math.isfinite(c[i]) and c[i] > 0 for c in columns) for i in range(len(names))]
    return [name for name, seen in zip(names, reached, strict=True) if not seen]
