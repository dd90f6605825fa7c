"""The weights that the batches are run on: a checkpoint of the run, or the model that it started from."""

import contextlib
import io
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ConfigError
from ..probe.backends.device import pick_device
from ..probe.complete import prove
from ..probe.scan import find_checkpoints, step_of
from ..texts import text
from .training_set import TrainingSet

#: LlamaFactory's methods whose checkpoints hold an adapter
_ADAPTERS = ("lora", "oft")


@dataclass(frozen=True)
class Weights:
    """Which weights.

    Attributes:
        folder: of the checkpoint; None for the model that the run started from.
        step: after which they were saved, 0 for the start; None where the folder's name does not say.
        kind: "adapter" or "full"; "" for the start.
        passed_over: checkpoints before the step that cannot be used, each with the reason.
    """

    folder: Path | None = None
    step: int | None = 0
    kind: str = ""
    passed_over: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """For people."""
        return text("replay.weights.start") if self.folder is None else self.folder.name

    def distance(self, step: int) -> str:
        """What these weights are beside those that the step was computed with."""
        if self.step is None:
            return text("replay.weights.unknown", name=self.name)
        if self.step == step - 1:
            return text("replay.weights.same", name=self.name, step=step)
        if self.step >= step:
            return text("replay.weights.later", name=self.name, steps=self.step - step + 1, step=step)
        return text("replay.weights.older", name=self.name, steps=step - 1 - self.step, step=step)


def choose(output_dir: Path, step: int, checkpoint: str | None) -> Weights:
    """The checkpoint asked for, else the newest complete one before the step, else the start.

    Args:
        checkpoint: a folder, `checkpoint-N`, N, or `start`.

    Raises:
        ConfigError: the one asked for is not there or not complete.
    """
    if checkpoint == "start":
        return Weights()
    if checkpoint is not None:
        return _asked(output_dir, checkpoint)
    passed_over = []
    for found in reversed([one for one in find_checkpoints(output_dir) if one.step < step]):
        proof = prove(found.folder, found.step)
        if proof.complete and proof.kind in ("adapter", "full"):
            return Weights(found.folder, found.step, proof.kind, tuple(passed_over))
        passed_over.append(
            f"{found.name}: {proof.why or 'its weights are in shards that only the run itself can load'}"
        )
    return Weights(passed_over=tuple(passed_over))


def _asked(output_dir: Path, checkpoint: str) -> Weights:
    name = f"checkpoint-{checkpoint}" if checkpoint.isdigit() else checkpoint
    folder = next((one for one in (output_dir / name, Path(name).expanduser()) if one.is_dir()), None)
    if folder is None:
        known = ", ".join(found.name for found in find_checkpoints(output_dir)) or "none"
        raise ConfigError(f"--checkpoint {checkpoint}: no such folder (checkpoints in {output_dir}: {known})")
    step = step_of(folder.resolve().name)
    proof = prove(folder, step)
    if not proof.complete or proof.kind not in ("adapter", "full"):
        raise ConfigError(
            f"--checkpoint {checkpoint}: {proof.why or 'its weights are in no layout that can be loaded'}"
        )
    return Weights(folder, step, proof.kind)


@dataclass
class Loaded:
    """A model that is ready to be run.

    Attributes:
        model: trainable as in the run, dropout off.
        device: of it.
        autocast: the dtype of mixed precision; None without.
        notes: what is not as in the run.
    """

    model: object
    device: str
    autocast: object = None
    notes: list[str] = field(default_factory=list)


def load(weights: Weights, data: TrainingSet, given: dict, device: str) -> Loaded:
    """Load with LlamaFactory's own loader: precision, frozen parts and adapter as in the run.

    Args:
        given: the run's config; its machine keys say the precision.
        device: "auto" takes a GPU only where there is room.

    Raises:
        ConfigError: it does not load, or there is no such device.
    """
    import torch
    from llamafactory.model import load_model

    model_args, finetuning = data.arguments.model, data.arguments.finetuning
    base = model_args.model_name_or_path
    place, _ = pick_device(device, str(weights.folder) if weights.kind == "full" else base)
    adapter = finetuning.finetuning_type in _ADAPTERS
    if weights.folder is not None and adapter != (weights.kind == "adapter"):
        holds, needs = ("an adapter", "a model") if weights.kind == "adapter" else ("a model", "an adapter")
        raise ConfigError(f"{weights.folder}: {holds}; the run trains {needs} ({finetuning.finetuning_type})")
    if weights.kind == "full":
        model_args.model_name_or_path, model_args.train_from_scratch = str(weights.folder), False
    elif weights.kind == "adapter":
        model_args.adapter_name_or_path = [*_merged_before(model_args, finetuning), str(weights.folder)]
        finetuning.create_new_adapter = False
    pure = bool(given.get("pure_bf16"))
    if given.get("bf16") or pure:
        model_args.compute_dtype = torch.bfloat16
    finetuning.pure_bf16 = pure
    model_args.device_map = {"": torch.device(place)}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            model = load_model(data.tokenizer, model_args, finetuning, True).to(place)
    except torch.OutOfMemoryError as error:
        raise ConfigError(f"no memory for the model on {place}: take --device cpu") from error
    except Exception as error:  # files, hubs, peft: whatever a loader raises
        why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        moved = "if the base model moved: --override model_name_or_path=PLACE"
        raise ConfigError(f"{weights.name} cannot be loaded: {why}; {moved}") from error
    _no_dropout(model)
    autocast, notes = _precision(given)
    return Loaded(model, place, autocast, notes + _other_machine(given))


def _merged_before(model_args, finetuning) -> list[str]:
    """Adapters that LlamaFactory merges into the base model; without `create_new_adapter` the last is trained on."""
    adapters = list(model_args.adapter_name_or_path or [])
    return adapters if finetuning.create_new_adapter else adapters[:-1]


def _no_dropout(model) -> None:
    """Evaluation mode, but layers go on to recompute their activations in the backward pass, which saves memory."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    model.eval()
    for module in model.modules():
        drops = any("drop" in name and isinstance(value, float) for name, value in vars(module).items())
        if isinstance(module, GradientCheckpointingLayer) and not drops:
            module.training = True  # of this module alone: its dropout modules stay in evaluation mode


def _precision(given: dict) -> tuple[object, list[str]]:
    """As accelerate's mixed precision; `pure_bf16` has none, and fp16 needs the run's own loss scale."""
    import torch

    if given.get("bf16") and not given.get("pure_bf16"):
        return torch.bfloat16, []
    if given.get("fp16"):
        return None, [text("replay.weights.fp16")]
    return None, []


def _other_machine(given: dict) -> list[str]:
    notes = []
    if given.get("quantization_bit"):
        notes.append(text("replay.weights.quantised"))
    if given.get("enable_liger_kernel") or given.get("use_unsloth"):
        notes.append(text("replay.weights.kernels"))
    return notes
