"""Is the loss finite, does it move, did a parameter change, and did every trainable layer get a gradient?"""

import math
import statistics

from ... import texts
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
        return Check(name, ERROR, None, want, texts.text("smoke.learning.no_loss"), texts.text("smoke.learning.again"))
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
        when = (
            texts.text("smoke.learning.from_first")
            if since == first
            else texts.text("smoke.learning.after", steps=since - first)
        )
        cure = texts.text("smoke.learning.cure")
        cure = cure if since == first else texts.text("smoke.learning.lower", cure=cure)
        return Check(
            name, FAIL, dead[0].name, want, texts.text("smoke.learning.dead", said=dead[0].text, when=when), cure
        )
    zero = [step for step, loss in losses.items() if loss == 0.0]
    if zero:
        text = texts.text("smoke.learning.zero", step=zero[0])
        return Check(name, FAIL, 0.0, "finite, not 0", text, texts.text("smoke.learning.mask"))
    low, high = min(losses.values()), max(losses.values())
    text = texts.text("smoke.learning.finite", count=len(losses), low=low, high=high)
    if not norms:
        return Check(name, WARN, want, want, texts.text("smoke.learning.no_norm", text=text))
    count = int(sum(skipped.values())) or len(found)
    text += texts.text("smoke.learning.skipped", count=count) if found else ""
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
        text = texts.text("smoke.learning.few", count=len(losses))
        return Check(
            name, SKIPPED if done else ERROR, None, None, text + (texts.text("smoke.learning.before") if done else "")
        )
    values = [losses[step] for step in sorted(losses)]
    spread = max(values) - min(values)
    value, want = round(spread, 6), "> 0"
    if spread <= _CONSTANT * max(abs(one) for one in values):
        text = texts.text("smoke.learning.same_loss", loss=values[0], steps=len(values))
        fix = texts.text("smoke.learning.check_labels")
        return Check(name, FAIL, value, want, text, fix)
    third = max(2, len(values) // 3)
    start, end = values[:third], statistics.median(values[-third:])
    if end > _RISE * max(start) and end - max(start) > _RISE_NATS:
        text = texts.text("smoke.learning.away", start=max(start), third=third, end=end)
        limit = max(_RISE * max(start), max(start) + _RISE_NATS)
        return Check(name, FAIL, round(end, 4), f"<= {limit:.4g}", text, _lower(run))
    rates = run.column("train/lr")
    if rates and not any(rates.values()):
        text = texts.text("smoke.learning.rate_zero")
        return Check(name, FAIL, 0.0, want, text, texts.text("smoke.learning.check_rate"))
    changed, why = _changed(run)
    text = texts.text("smoke.learning.goes", first=values[0], last=values[-1], low=min(values), high=max(values))
    if changed is None:
        fix = texts.text("smoke.learning.layer_norms")
        return Check(name, ERROR, None, None, texts.text("smoke.learning.not_known", text=text, why=why), fix)
    if not changed:
        fix = texts.text("smoke.learning.rate_small")
        return Check(
            name, FAIL, 0, want, texts.text("smoke.learning.no_change", steps=len(values), why=why, text=text), fix
        )
    return Check(name, PASS, value, want, texts.text("smoke.learning.moves", text=text, why=why))


def _lower(run: Evidence) -> str:
    rate = max(run.column("train/lr").values(), default=0.0)
    return (
        texts.text("smoke.learning.tenth", new=rate / 10, rate=rate)
        if rate
        else texts.text("smoke.learning.lower_rate")
    )


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
        return top > 0, texts.text("smoke.learning.update", top=top)
    reasons.append(
        texts.text("smoke.learning.no_ratio")
        if whole
        else texts.text("smoke.learning.no_whole", name=run.checkpoint.name)
    )
    return None, "; ".join(reasons)


def _by_weights(run: Evidence) -> tuple[bool, str] | None:
    """LoRA begins with B = 0 (peft's default), a whole model with the base model's weights."""
    if run.proof.kind == "adapter":
        values, start = run.values, run.identity("model", "peft", "default", "init_lora_weights")
        if not values.lora_b or run.continues or start not in (True, None, "gaussian"):
            return None
        if values.lora_b_zero == values.lora_b:
            return False, texts.text("smoke.learning.lora_zero", count=values.lora_b, name=run.checkpoint.name)
        return True, texts.text(
            "smoke.learning.lora_moved", moved=values.lora_b - values.lora_b_zero, count=values.lora_b
        )
    folder = run.base_folder
    scratch = truth(run.config.given.get("train_from_scratch"))
    if run.proof.kind != "full" or folder is None or run.base.adapters or scratch:
        return None
    changed = changed_tensor(run.checkpoint, run.proof.weights, folder)
    if changed is None:
        return False, texts.text("smoke.learning.base_weights", name=run.checkpoint.name)
    return True, texts.text("smoke.learning.changed", changed=changed)


def check_gradients(run: Evidence) -> Check:
    """Parameters are trainable, and each trainable layer got a finite gradient that is not zero in some step.

    LoRA's A has a gradient of zero until B is no longer zero: in the first step, and as long as the learning rate is 0
    in a warm-up. So one step with a gradient is enough.
    """
    name = "gradients"
    trainable, total = (run.identity("model", "parameters", key) for key in ("trainable", "total"))
    if trainable == 0:
        text = texts.text("smoke.learning.nothing")
        return Check(name, FAIL, 0, "> 0", text, texts.text("smoke.learning.check_type"))
    if trainable is None:
        text = texts.text("smoke.learning.not_recorded")
        return Check(name, ERROR, None, "> 0", text, texts.text("smoke.learning.again"))
    share = texts.text("smoke.learning.share", trainable=trainable, total=total)
    norms = [norm for norm in run.column("train/grad_norm").values() if math.isfinite(norm)]
    if not norms:
        text = texts.text("smoke.learning.no_norms", share=share)
        return Check(name, ERROR, trainable, "> 0", text, texts.text("smoke.learning.see_loss"))
    if max(norms) < _NO_GRADIENT:
        text = texts.text("smoke.learning.cut", share=share, norm=max(norms))
        return Check(name, FAIL, max(norms), f">= {_NO_GRADIENT:g}", text, texts.text("smoke.learning.check_graph"))
    layers = run.record.layers
    if not any(row.get("grad_norm") for row in layers.rows):
        text = texts.text("smoke.learning.norms", share=share, low=min(norms), high=max(norms))
        return Check(name, WARN, trainable, "> 0", text, "callbacks: [layer_norms]")
    views = {"grad_norm": layers.names, "module_grad_norm": layers.modules}
    without = [name for measure, names in views.items() for name in _without(layers, measure, names)]
    other = [one for one in without if any(word in one for word in _OTHER_INPUT)]
    grave = [one for one in without if one not in other]
    if grave:
        text = texts.text("smoke.learning.no_gradient", share=share, count=len(grave), names=", ".join(grave[:6]))
        text += ", ..." if len(grave) > 6 else ""
        fix = texts.text("smoke.learning.detached")
        return Check(name, FAIL, len(grave), 0, text, fix)
    text = texts.text("smoke.learning.all_groups", share=share, groups=len(layers.names), modules=len(layers.modules))
    if other:
        text = texts.text("smoke.learning.no_input", share=share, names=", ".join(other[:4]), steps=run.last_step)
        return Check(name, WARN, trainable, "> 0", text)
    return Check(name, PASS, trainable, "> 0", text)


def _without(layers, measure: str, names: list[str]) -> list[str]:
    """Groups of parameters that had no finite gradient above 0 in any step."""
    columns = [row[measure] for row in layers.rows if row.get(measure)]
    reached = [any(c[i] is not None and math.isfinite(c[i]) and c[i] > 0 for c in columns) for i in range(len(names))]
    return [name for name, seen in zip(names, reached, strict=True) if not seen]
