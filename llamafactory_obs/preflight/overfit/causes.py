"""Why a batch was not learned: each cause is looked for in the record of the training, in the order of its weight."""

import math
from statistics import fmean, median

from ... import texts
from ...record.reader import RunRecord
from .outcome import Cause

#: relative movement of the weights over the whole test under which nothing can be learned. AdamW moves a weight by
#: about `learning_rate` per step: weights of 0.02 at 1e-5 by 5e-4 of their size. Such a run learns a batch in tens of
#: steps, having moved by some 1e-2
_MOVED = 1e-3
#: what a useful rate moves in one step
_USEFUL = 5e-4
_ZERO_GRADIENT = 1e-7


def causes_of(record: RunRecord, given: dict) -> list[Cause]:
    """Causes that the record shows; the last resort where it shows none.

    Args:
        record: with at least one step.
        given: the keys that were trained with.
    """
    steps = record.steps
    looks = (_masked, _nothing_trainable, _not_finite, _no_gradient, _no_movement, _frozen, _too_high, _falling)
    found = [cause for look in looks if (cause := look(record, steps, given)) is not None]
    if not found:
        losses = _finite(steps["train/loss"])
        flat = max(losses) - min(losses) <= 1e-3 * abs(losses[0])
        text = texts.text("overfit.cause.not_moving") if flat else texts.text("overfit.cause.not_falling")
        fix = texts.text("overfit.cause.look", labels=texts.text("overfit.cause.see_mask"))
        found = [Cause("code_or_labels", texts.text("overfit.cause.at_fault", text=text), fix)]
    return found


def causes_of_log(last_words: list[str], given: dict) -> list[Cause]:
    """Causes of a training that broke off, from its last words."""
    text = " ".join(last_words).lower()
    if "target modules" in text or "no modules were targeted" in text:
        return [Cause("lora_on_nothing", texts.text("overfit.cause.no_module"), _target(given))]
    if "does not require grad" in text or "empty parameter list" in text:
        return [Cause("nothing_trainable", texts.text("overfit.cause.nothing"), _freezing(given))]
    if "out of memory" in text:
        batch = given.get("per_device_train_batch_size", 8)
        return [
            Cause("memory", texts.text("overfit.cause.does_not_fit", batch=batch), texts.text("overfit.cause.smaller"))
        ]
    return []


def _masked(record: RunRecord, steps: dict, given: dict) -> Cause | None:
    tokens = [n for n in steps.get("data/supervised_tokens", []) if n is not None]
    if tokens and not max(tokens):
        return Cause("labels_masked", texts.text("overfit.cause.no_label"), texts.text("overfit.cause.see_mask"))
    return None


def _nothing_trainable(record: RunRecord, steps: dict, given: dict) -> Cause | None:
    parameters = ((record.run.get("model") or {}).get("parameters")) or {}
    if parameters.get("trainable") == 0:
        return Cause("nothing_trainable", texts.text("overfit.cause.nothing"), _freezing(given))
    names = record.layers.names
    if given.get("finetuning_type", "lora") == "lora" and names and not any("lora" in name for name in names):
        return Cause("lora_on_nothing", texts.text("overfit.cause.to_none"), _target(given))
    return None


def _not_finite(record: RunRecord, steps: dict, given: dict) -> Cause | None:
    for key, what in (("train/loss", "loss"), ("train/grad_norm", "gradient")):
        for step, value in zip(steps["step"], steps.get(key, []), strict=False):
            if value is not None and not math.isfinite(value):
                fix = texts.text("overfit.cause.precision")
                return Cause(
                    "not_finite", texts.text("overfit.cause.nonfinite", what=what, value=value, step=step), fix
                )
    return None


def _no_gradient(record: RunRecord, steps: dict, given: dict) -> Cause | None:
    norms = _finite(steps.get("train/grad_norm", []))
    if norms and max(norms) < _ZERO_GRADIENT:
        return Cause(
            "no_gradient",
            texts.text("overfit.cause.no_norm", norm=max(norms)),
            texts.text("overfit.cause.labels", labels=texts.text("overfit.cause.see_mask")),
        )
    return None


def _no_movement(record: RunRecord, steps: dict, given: dict) -> Cause | None:
    rates = _finite(steps.get("train/lr", []))
    rate = max(rates, default=0.0)
    if not rate:
        return Cause(
            "learning_rate", texts.text("overfit.cause.rate_zero"), "learning_rate: 1e-4 (LoRA) or 1e-5 (full)"
        )
    ratio = _update_ratio(record)
    if ratio is None:
        return None
    count = len(steps["step"])
    if ratio == 0:
        text = texts.text("overfit.cause.rounding", rate=rate)
        return Cause("learning_rate", text, texts.text("overfit.cause.larger"))
    if ratio * count >= _MOVED:
        return None
    text = texts.text("overfit.cause.moves", rate=rate, ratio=ratio, all=ratio * count)
    return Cause(
        "learning_rate", text, texts.text("overfit.cause.try", rate=_round(rate * _USEFUL / ratio), useful=_USEFUL)
    )


def _update_ratio(record: RunRecord) -> float | None:
    """The usual change of a layer per step, relative to its weights. `lora_B` starts at 0 and tells nothing."""
    keep = [i for i, name in enumerate(record.layers.names) if "lora_B" not in name]
    rows = [row["update_ratio"] for row in record.layers.rows if row.get("update_ratio")]
    values = [row[i] for row in rows for i in keep if row[i] is not None and math.isfinite(row[i])]
    return median(values) if values else None


def _frozen(record: RunRecord, steps: dict, given: dict) -> Cause | None:
    parameters = ((record.run.get("model") or {}).get("parameters")) or {}
    trainable, total = parameters.get("trainable"), parameters.get("total")
    if not trainable or not total or given.get("finetuning_type", "lora") == "lora" or trainable / total > 0.5:
        return None
    text = texts.text("overfit.cause.trainable", share=trainable / total, names=", ".join(record.layers.names[:3]))
    return Cause("frozen", text, _freezing(given))


def _too_high(record: RunRecord, steps: dict, given: dict) -> Cause | None:
    losses = _finite(steps["train/loss"])
    if len(losses) > 3 and max(losses[1:]) > 1.5 * losses[0]:
        text = texts.text("overfit.cause.rises", high=max(losses), first=losses[0])
        return Cause("learning_rate", text, texts.text("overfit.cause.tenth"))
    return None


def _falling(record: RunRecord, steps: dict, given: dict) -> Cause | None:
    losses = _finite(steps["train/loss"])
    part = max(1, len(losses) // 10)
    if len(losses) < 10:
        return None
    before, now = fmean(losses[-2 * part : -part]), fmean(losses[-part:])
    if now < 0.98 * before and now < 0.9 * losses[0]:
        text = texts.text("overfit.cause.slowly", before=before, now=now, part=part)
        return Cause("too_short", text, texts.text("overfit.cause.more"))
    return None


def _freezing(given: dict) -> str:
    keys = (
        "finetuning_type",
        "freeze_trainable_layers",
        "freeze_trainable_modules",
        "freeze_extra_modules",
        "lora_target",
    )
    return texts.text("overfit.cause.look_at") + ", ".join(f"{key}: {given[key]}" for key in keys if key in given)


def _target(given: dict) -> str:
    return texts.text("overfit.cause.target", target=given.get("lora_target", "all"))


def _finite(values: list) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def _round(number: float) -> str:
    return f"{float(f'{number:.0e}'):g}"
