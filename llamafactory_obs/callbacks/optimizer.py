"""`optimizer`: size of the weights and of their updates, health of the moments, clipping, loss scale, learning rate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from ..detect import ClipRateDetector, LossScaleDetector, MomentsDetector
from ..record.schema import OPTIMIZER, Key
from .base import ObsCallback
from .learning_rates import LearningRates
from .moments import Moments, first_moments, moments_of
from .weight_change import WeightChange


@dataclass(eq=False)
class OptimizerHealth(ObsCallback):
    """Columns for the whole model, and `optimizer.jsonl` with the same numbers for each parameter group.

    The update ratio is |w_after - w_before| / |w_before| of the weights themselves, weight decay included. What takes
    passes over weights and moments is done every `every` steps; the other columns stand in every row.
    """

    yaml_name: ClassVar[str] = "optimizer"
    keys: ClassVar[tuple[Key, ...]] = (
        Key("train/param_norm", "1", "norm of the trainable weights before the update"),
        Key("train/update_ratio", "1", "norm of the weights' change / train/param_norm"),
        Key("train/exp_avg_norm", "1", "norm of the first moments (momentum) after the update"),
        Key("train/exp_avg_sq_tiny", "0..1", "share of second moments with sqrt(v') < eps: eps rules their step"),
        Key("train/adam_step_max", "1", "largest abs(m') / (sqrt(v') + eps): Adam's step, 1 = the rate"),
        Key("train/moments_bad", "values", "moments that are not finite, and second moments that are negative"),
        Key("train/clip_rate", "0..1", "share of the last `window` updates whose gradients were clipped"),
        Key("train/loss_scale", "1", "scale of the GradScaler after the step (fp16 only)"),
        Key("train/steps_skipped", "steps", "updates that the GradScaler skipped since this start (fp16 only)", "max"),
    )

    every: int = 100
    """Norms of weights, updates and moments: every N optimizer steps; 0 = never."""

    window: int = 100
    """Steps over which the clip rate is taken."""

    snapshot_limit_mib: int = 1024
    """The update ratio needs a copy of the trainable weights for the length of one update: not above this size."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 0 or self.snapshot_limit_mib < 0:
            raise ValueError("every and snapshot_limit_mib must be 0 or more")
        if self.window < 1:
            raise ValueError(f"window must be 1 or more, got {self.window}")

    def begin(self) -> None:
        trainer = self.run.trainer
        self._optimizer = trainer.optimizer
        self._said: set[str] = set()
        self._rates = LearningRates(self.run, self.yaml_name)
        self._clipping = ClipRateDetector(window=self.window)
        self._scale, self._moments = LossScaleDetector(), MomentsDetector()
        self._change: WeightChange | None = None
        self._parameters: list[torch.nn.Parameter] = []
        self._skipped = 0
        self._limit = trainer.args.max_grad_norm
        self._hidden = _why_hidden(trainer)
        self._fresh = trainer.state.global_step > 0 and not self._hidden and self._is_fresh()

    # ---- the hot path ---------------------------------------------------------------------------------------------

    def gradients(self, gradients) -> None:
        if not self._is_looking():
            return
        trainable = {id(p) for p in self.run.trainer.model.parameters() if p.requires_grad}
        held = [p for group in self._optimizer.param_groups for p in group["params"]]
        self._parameters = [p for p in held if id(p) in trainable and p.numel()]
        reason = self._hidden
        if not reason and not self._parameters:
            reason = "the optimizer's groups do not hold the model's weights (a layer-wise or lazy optimizer)"
        if reason:
            text = f"no norms of weights and moments: {reason}; learning rate and clip rate are recorded"
            self._say_once("unavailable", "no weights seen", text)
            self._parameters = []
            return
        self._change = WeightChange.before_update(self.run, self._parameters, self.snapshot_limit_mib)

    def updated(self) -> None:
        self._rates.read()
        if self._fresh:
            self._fresh = False
            if first_moments(self._optimizer.state):
                step = self.run.step
                text = (
                    f"The optimizer's state is fresh at step {step}, right after a resume from {step - 1}: the moments"
                )
                text += (
                    " were lost (optimizer.pt missing, or save_only_model), so the next steps are like those after a"
                )
                text += " start without warm-up. Resume from a checkpoint that has its optimizer's state."
                self.run.event("alert", self.yaml_name, "optimizer state fresh", text, level="warn", step=step)
        if self._change is not None:
            self._look()

    def step(self) -> None:
        scaler = getattr(self.run.trainer.accelerator, "scaler", None)
        if scaler is None:
            return
        self._skipped += bool(self.run.trainer.accelerator.optimizer_step_was_skipped)
        self.run.put("train/steps_skipped", float(self._skipped))
        scale = getattr(scaler, "_scale", None)  # get_scale() would wait for the device
        if isinstance(scale, torch.Tensor):
            self.run.defer([scale], lambda row, number: row.values.update({"train/loss_scale": number}))

    def _is_looking(self) -> bool:
        return bool(self.every) and self.run.step % self.every == 0

    def _look(self) -> None:
        change, groups = self._change, self._optimizer.param_groups
        self._change = None
        places, places_of = change.places(self._parameters), {}
        for place, parameter in zip(places, self._parameters, strict=True):
            places_of[id(parameter)] = place
        members = [[places_of[id(p)] for p in group["params"] if id(p) in places_of] for group in groups]
        updates, moments = change.after_update(), moments_of(groups, self._optimizer.state)
        if updates is None:
            text = f"no update ratio: the trainable weights take {change.size >> 20} MiB, above snapshot_limit_mib"
            self._say_once("unavailable", "no update ratio", text)
        if moments is None:
            text = "this optimizer keeps no moments" if not self._optimizer.state else "its moments are not known to us"
            self._say_once("note", "no moments", f"{type(_inner(self._optimizer)).__name__}: {text}")
        elif moments.quantised:
            text = f"{moments.quantised} moments are kept in 8 bits and are not looked at: their health is unknown"
            self._say_once("unavailable", "moments in 8 bits", text)
        facts = [_facts(group, self.run) for group in groups]
        tensors = [change.weights, *_present(updates)]
        if moments is not None:
            tensors += [moments.counts, moments.largest, *_present(moments.norms)]

        def finish(row, weights: list[float], *rest) -> None:
            rest = list(rest)
            changes = rest.pop(0) if updates is not None else None
            rows = [dict(fact) for fact in facts]
            for one, places in zip(rows, members, strict=True):
                one["param_norm"] = _root([weights[i] for i in places])
                if changes is not None:
                    one["update_ratio"] = _ratio(_root([changes[i] for i in places]), one["param_norm"])
            whole = {"train/param_norm": _root([weights[i] for i in places_of.values()])}
            if changes is not None:
                size = _root([changes[i] for i in places_of.values()])
                whole["train/update_ratio"] = size / whole["train/param_norm"] if whole["train/param_norm"] else 0.0
            if moments is not None:
                _take_moments(moments, rest, rows, whole)
            row.values.update(whole)
            row.facts["optimizer_groups"] = rows

        self.run.defer(tensors, finish)

    # ---- finished rows --------------------------------------------------------------------------------------------

    def derive(self, values: dict) -> None:
        rate = self._clipping.rate_with(values.get("train/clip_coef"))
        if rate is not None:
            values["train/clip_rate"] = rate

    def row(self, row) -> None:
        values = row.values
        if "optimizer_groups" in row.facts:
            self.run.append(OPTIMIZER, {"step": row.step, "groups": row.facts["optimizer_groups"]})
        self._rates.follow(row)
        findings = [
            self._clipping.update(row.step, values.get("train/clip_coef"), self._limit),
            self._scale.update(row.step, values.get("train/loss_scale")),
        ]
        if "train/moments_bad" in values:
            bad, tiny = values["train/moments_bad"], values.get("train/exp_avg_sq_tiny")
            findings += self._moments.update(row.step, bad, tiny)
        for finding in filter(None, findings):
            self.run.alert(self.yaml_name, finding)

    def summary(self) -> dict:
        values = self.run.last.values
        names = ("update_ratio", "clip_rate", "loss_scale")
        return {name: values[f"train/{name}"] for name in names if f"train/{name}" in values}

    def _is_fresh(self) -> bool:
        """Has the optimizer, which should go on, no first moments, or only zeros? (Asked once, at the beginning.)"""
        return not any(bool(tensor.any()) for tensor in first_moments(self._optimizer.state))

    def _say_once(self, kind: str, title: str, text: str) -> None:
        if title not in self._said:
            self._said.add(title)
            self.run.event(kind, self.yaml_name, title, text, level="info" if kind == "note" else "warn")


def _take_moments(moments: Moments, values: list, rows: list[dict], whole: dict) -> None:
    """The host's values of `Moments` into the groups' rows and the columns of the whole."""
    counts, largest = values[0], values[1]
    whole["train/moments_bad"] = float(sum(count[0] for count in counts))
    for one, (bad, tiny, known), most in zip(rows, counts, largest, strict=True):
        one["moments_bad"] = bad
        if known:
            one["exp_avg_sq_tiny"], one["adam_step_max"] = tiny / known, most
    known = sum(count[2] for count in counts)
    if known:
        whole["train/exp_avg_sq_tiny"] = sum(count[1] for count in counts) / known
        most = [one["adam_step_max"] for one in rows if "adam_step_max" in one]
        whole["train/adam_step_max"] = math.nan if any(map(math.isnan, most)) else max(most)
    if moments.norms is not None:
        norms = values[2]
        whole["train/exp_avg_norm"] = _root(norms)
        for number, one in enumerate(rows):
            mine = [norm for norm, member in zip(norms, moments.members, strict=True) if member == number]
            if mine:
                one["exp_avg_norm"] = _root(mine)


def _facts(group: dict, run) -> dict:
    """What a parameter group is: its settings and its first parameter's name."""
    parameters = group["params"]
    first = run.parameter_names(parameters[:1])
    facts = {"first": first[0] if first else None, "parameters": len(parameters)}
    facts["values"] = sum(p.numel() for p in parameters)
    for name in ("lr", "weight_decay", "eps"):
        if isinstance(group.get(name), (int, float)):
            facts[name] = float(group[name])
    return facts


def _why_hidden(trainer) -> str | None:
    """Why the weights that the optimizer works on are not those of the model; None where they are."""
    if getattr(trainer, "is_deepspeed_enabled", False):
        return "DeepSpeed keeps weights and moments in flat parts of its own"
    if getattr(trainer, "is_fsdp_enabled", False) and not getattr(trainer.accelerator, "is_fsdp2", False):
        return "FSDP1 keeps weights and moments in flat shards"
    if trainer.optimizer is None:
        return "this trainer has no optimizer of its own"
    return None


def _inner(optimizer):
    return getattr(optimizer, "optimizer", optimizer)


def _present(tensor: torch.Tensor | None) -> list[torch.Tensor]:
    return [] if tensor is None else [tensor]


def _root(norms: Sequence[float]) -> float:
    """The norm of the whole from the norms of its parts."""
    return math.sqrt(sum(norm * norm for norm in norms))


def _ratio(size: float, whole: float) -> float | None:
    return size / whole if whole else None
