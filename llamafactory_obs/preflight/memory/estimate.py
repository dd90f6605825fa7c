"""How many GiB a run config needs on one card, line by line."""

from dataclasses import asdict, dataclass, field

from ..run_config import RunConfig, parsed
from .activations import moments
from .check import checked
from .optimizer import name_of, states
from .parameters import Built, build
from .reserve import reserve
from .setup import Setup, read_setup
from .sharding import Shares, shares
from .weights import frozen_quantised, plain

GIB = 1 << 30


@dataclass(frozen=True)
class Line:
    """One component.

    Attributes:
        name: for programs and people, e.g. `weights`.
        gib: what it adds to the total.
        formula: how it comes about, in words and numbers.
        numbers: the numbers of the formula.
        low_gib, high_gib: its range.
    """

    name: str
    gib: float
    formula: str
    numbers: dict = field(default_factory=dict)
    low_gib: float | None = None
    high_gib: float | None = None


@dataclass(frozen=True)
class Estimate:
    """What one card must hold at the highest moment of training.

    Attributes:
        lines: the components; their sum is the total.
        total_gib, low_gib, high_gib: the estimate and its range.
        moment: when the total is reached.
        parameters, trainable: counts of the whole model with its adapter.
        tokens: of one micro-batch on one card (both rows of a pair counted).
        model_type: as in the model's config.
        setup: the keys it rests on.
        checked: independent counts beside the numbers used.
        notes: what is rough or not modelled.
        complete: False where activations, or an evaluation that may be the highest moment, are left out.
    """

    lines: tuple[Line, ...]
    total_gib: float
    low_gib: float
    high_gib: float
    moment: str
    parameters: int
    trainable: int
    tokens: int
    model_type: str
    setup: Setup
    checked: tuple[dict, ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = True

    def line(self, name: str) -> Line | None:
        """The line of this name."""
        return next((line for line in self.lines if line.name == name), None)

    def as_dict(self) -> dict:
        """For `--json`: every field, numbers unrounded."""
        return asdict(self)


def estimate(config: RunConfig, *, longest_tokens: int | None = None) -> Estimate:
    """Estimate the memory of a run before any weight is loaded.

    Args:
        config: the run config.
        longest_tokens: tokens of the longest row after the cutoff, where it is known; replaces `cutoff_len`.

    Raises:
        ConfigError: LlamaFactory refuses the config, the model's config is not on this machine, or the stage is not
            modelled.
    """
    with parsed(config) as arguments:
        setup = read_setup(config, arguments, longest_tokens)
        built = build(arguments, setup)
        part = shares(setup)
        trained = [p for p in built.parameters if p.trainable]
        optimizer = states(setup.optim, arguments.finetuning, trained)
        lines = _weights(built, setup, part, arguments.finetuning)
        lines += _gradients(trained, setup, part, arguments.finetuning)
        optimizer_name = name_of(setup.optim, arguments.finetuning)
        lines.append(_optimizer(optimizer, optimizer_name, trained, setup, part))
        gradients = lines_bytes(lines, "gradients")
        found = moments(built, setup, gradients, round(optimizer.step_bytes / part.optimizer))
    lines += [Line(name, value / GIB, text, numbers) for name, value, text, numbers in found.lines]
    lines += [Line(name, mid, text, {}, low, high) for name, mid, low, high, text in reserve(found.moving)]
    notes = [*setup.notes, *built.notes, *part.notes, *found.notes]
    notes += [optimizer.note] if optimizer.note else []
    total = sum(line.gib for line in lines)
    low = sum(line.gib if line.low_gib is None else line.low_gib for line in lines)
    high = sum(line.gib if line.high_gib is None else line.high_gib for line in lines)
    return Estimate(
        lines=tuple(line for line in lines if line.gib > 0 or line.name == "activations"),
        total_gib=total,
        low_gib=low,
        high_gib=high,
        moment=found.moment,
        parameters=built.total,
        trainable=built.trainable,
        tokens=setup.rows * setup.length,
        model_type=getattr(built.model.config, "model_type", ""),
        setup=setup,
        checked=tuple(checked(built, setup, found.traced)),
        notes=tuple(dict.fromkeys(notes)),
        complete=found.complete,
    )


def lines_bytes(lines: list[Line], name: str) -> int:
    """Bytes of the line of this name, 0 where there is none."""
    return round(sum(line.gib for line in lines if line.name == name) * GIB)


def _weights(built: Built, setup: Setup, part: Shares, finetuning) -> list[Line]:
    frozen = [p for p in built.parameters if not p.trainable and not p.quantised]
    trained = [p for p in built.parameters if p.trainable]
    lines = []
    quantised = frozen_quantised(built, setup)
    if quantised:
        text = f"{quantised.count:,} x {quantised.text}"
        lines.append(Line(f"weights, {setup.bits} bit", quantised.bytes / part.weights / GIB, text))
    for name, group in (("weights, frozen", frozen), ("weights, trained", trained)):
        held = plain(group, part.itemsize if name == "weights, trained" else None)
        if held.bytes:
            text = held.text + (f" / {part.weights} cards" if part.weights > 1 else "")
            on_card = 0 if setup.offload_parameters else held.bytes / part.weights
            lines.append(Line(name, on_card / GIB, text, {"parameters": held.count}))
    second = reference(built, setup, finetuning)
    if second:
        lines.append(second)
    return lines


def reference(built: Built, setup: Setup, finetuning) -> Line | None:
    """The reference model of dpo and kto: none with LoRA (the adapter is switched off), else a frozen copy."""
    needed = setup.stage == "kto" or (setup.stage == "dpo" and finetuning.pref_loss not in ("orpo", "simpo"))
    if not needed or (setup.method == "lora" and finetuning.ref_model is None):
        return None
    count = sum(p.count for p in built.parameters if "lora_" not in p.name)
    size = count * built.stored.itemsize
    text = f"{count:,} x {built.stored.itemsize} B, as stored"
    text += f"; counted as a copy of the model, not as {finetuning.ref_model}" if finetuning.ref_model else ""
    return Line("reference model", size / GIB, text)


def _gradients(trained, setup: Setup, part: Shares, finetuning) -> list[Line]:
    held = plain(trained, part.itemsize)
    if finetuning.use_badam or (finetuning.use_galore and finetuning.galore_layerwise):
        return []
    size = held.bytes / part.gradients
    over = f" / {part.gradients} cards" if part.gradients > 1 else ""
    lines = [Line("gradients", size / GIB, held.text + over, {"parameters": held.count})]
    if setup.world > 1 and setup.shard == "none":  # DistributedDataParallel, gradient_as_bucket_view=False
        lines.append(Line("gradient buckets", held.bytes / GIB, "DistributedDataParallel's copy of the gradients"))
    return lines


def _optimizer(optimizer, name: str, trained, setup: Setup, part: Shares) -> Line:
    size, text = optimizer.bytes, f"{name}: {optimizer.formula}"
    if part.master:  # DeepSpeed keeps fp32 weights and moments beside the 16-bit weights
        count = sum(p.count for p in trained)
        size, text = 12 * count, f"fp32 weights + 2 fp32 moments x {count:,}"
    size = 0 if setup.offload_optimizer else size / part.optimizer
    text += f" / {part.optimizer} cards" if part.optimizer > 1 else ""
    text += "; in RAM (offloaded)" if setup.offload_optimizer else ""
    return Line("optimizer states", size / GIB, text)
