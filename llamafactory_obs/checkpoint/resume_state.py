"""What a resume needs besides the weights: optimizer, scheduler, scaler, RNG, trainer state; by content, file by file.

File names and rules are those of transformers 5.6 (`Trainer._save_checkpoint`, `_load_optimizer_and_scheduler`,
`_load_scaler`, `_load_rng_state`), accelerate 1.11 (`save_fsdp_model`, `save_fsdp_optimizer`) and DeepSpeed's engine
(`latest`, `global_stepN/`). Whatever is loaded is loaded with `weights_only`, as the Trainer does.
"""

import math
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..probe.complete import STATE, Incomplete, read_json

GOOD, MISSING, BROKEN, DOUBTFUL = "good", "missing", "broken", "doubtful"
Layout = Literal["plain", "fsdp", "deepspeed"]

#: names under which optimizers keep a state of the parameter's own shape: torch's, LlamaFactory's Muon, bitsandbytes
_OF_FULL_SHAPE = ("exp_avg", "momentum_buffer", "moment1", "state1")
#: keys of the Trainer's RNG file that every machine writes
_RNG_KEYS = ("python", "numpy", "cpu")


@dataclass(frozen=True)
class Expected:
    """What the run says must be there.

    Attributes:
        step: the checkpoint's number.
        fp16: a loss scaler was in use.
        ranks: processes that trained together.
        trainable: trainable parameters (elements); None where not known.
    """

    step: int
    fp16: bool = False
    ranks: int = 1
    trainable: int | None = None


@dataclass(frozen=True)
class Part:
    """One thing that a resume reads.

    Attributes:
        name: optimizer | scheduler | scaler | rng | trainer_state | training_args.
        state: good | missing | broken | doubtful (there, but not what was expected).
        file: where it lies, or would lie.
        why: in one line, the file's name in it; empty for a good one.
        needed: without it the Trainer does not resume, or silently begins anew with this part. Else it is only not
            bit-exact.
    """

    name: str
    state: str
    file: str
    why: str = ""
    needed: bool = True


def layout_of(folder: Path) -> Layout:
    """How the engine saved: DeepSpeed's `global_stepN`, FSDP's folders of shards, or plain files."""
    names = [entry.name for entry in folder.iterdir()]
    if any(re.fullmatch(r"global_step\d+", name) for name in names) or "latest" in names:
        return "deepspeed"
    if any(re.fullmatch(r"(pytorch_model_fsdp|optimizer)_\d+|pytorch_model_fsdp\.bin", name) for name in names):
        return "fsdp"
    return "plain"


def resume_parts(folder: Path, expected: Expected) -> list[Part]:
    """Look at each part of one checkpoint. Nothing is raised for a file that is missing or broken.

    Raises:
        OSError: the folder cannot be listed.
    """
    layout = layout_of(folder)
    parts = [{"plain": _optimizer, "fsdp": _fsdp_optimizer, "deepspeed": _deepspeed}[layout](folder, expected)]
    own_scheduler = layout == "deepspeed" and not (folder / "scheduler.pt").exists()  # then it is in DeepSpeed's shards
    if not own_scheduler:
        parts.append(_scheduler(folder, expected))
    if expected.fp16 and layout != "deepspeed":
        parts.append(_scaler(folder))
    return [*parts, *_rng(folder, expected), _trainer_state(folder, expected), _training_args(folder)]


def load_safely(file: Path) -> object:
    """A torch file, on the CPU, mapped and not read at once, and never anything but tensors and plain values.

    Raises:
        Incomplete: it is missing, cut off, no torch file, or holds other objects.
    """
    import torch

    if not file.is_file():
        raise Incomplete(f"{file.name} is missing")
    try:
        if not zipfile.is_zipfile(file):
            raise Incomplete(f"{file.name} is no whole torch file ({file.stat().st_size} bytes)")
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except (Incomplete, MemoryError):
        raise
    except Exception as error:  # torch and pickle raise many kinds for a damaged file
        said = " ".join(str(error).split())[:120]
        raise Incomplete(f"{file.name} cannot be loaded: {type(error).__name__}: {said}") from None


def tensors_in(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """All tensors of a state dict with their places, e.g. `state.3.exp_avg`."""
    import torch

    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from tensors_in(one, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, one in enumerate(value):
            yield from tensors_in(one, f"{path}.{index}" if path else str(index))


def _optimizer(folder: Path, expected: Expected) -> Part:
    name = "optimizer.pt" if (folder / "optimizer.pt").exists() else "optimizer.bin"  # FSDP's FULL_STATE_DICT
    if not (folder / name).exists():
        return Part("optimizer", MISSING, "optimizer.pt", "optimizer.pt is missing")
    try:
        state, why = _judge_optimizer(load_safely(folder / name), name, expected)
    except Incomplete as reason:
        state, why = BROKEN, str(reason)
    return Part("optimizer", state, name, why)


def _judge_optimizer(found: object, name: str, expected: Expected) -> tuple[str, str]:
    import torch

    state = found.get("state") if isinstance(found, dict) else None
    groups = found.get("param_groups") if isinstance(found, dict) else None
    if not isinstance(state, dict) or not isinstance(groups, list):
        return BROKEN, f"{name} is no optimizer's state: neither `state` nor `param_groups`"
    parameters = sum(len(group.get("params", ())) for group in groups)
    if not state and not all(group.get("momentum") == 0 and "dampening" in group for group in groups):  # plain SGD
        return BROKEN, f"{name} holds no state for any of {parameters} parameters: no step was made with it"
    for place, tensor in tensors_in(state):
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return BROKEN, f"{name}: {place} is not finite"
    if state and len(state) < parameters:
        lacking = parameters - len(state)
        return DOUBTFUL, f"{name} has no state for {lacking} of {parameters} parameters: they never got a gradient"
    elements = _elements(state)
    if expected.trainable and elements is not None and elements != expected.trainable:
        return BROKEN, f"{name} is for {elements} parameters, the run trains {expected.trainable}"
    steps = [float(one["step"]) for one in state.values() if isinstance(one, dict) and "step" in one]
    if steps and not expected.fp16 and max(steps) != expected.step:
        return DOUBTFUL, f"{name} has made {max(steps):g} steps, the checkpoint is of step {expected.step}"
    return GOOD, ""


def _elements(state: dict) -> int | None:
    """Elements of all parameters that the states belong to; None where a state does not have its parameter's shape."""
    sizes = []
    for one in state.values():
        kept = [one[key] for key in _OF_FULL_SHAPE if key in one] if isinstance(one, dict) else []
        if not kept or not hasattr(kept[0], "numel"):
            return None
        sizes.append(kept[0].numel())
    return sum(sizes) or None


def _scheduler(folder: Path, expected: Expected) -> Part:
    name = "scheduler.pt"
    if not (folder / name).exists():
        return Part("scheduler", MISSING, name, f"{name} is missing: the learning rate would start anew")
    try:
        found = load_safely(folder / name)
    except Incomplete as reason:
        return Part("scheduler", BROKEN, name, str(reason))
    if not isinstance(found, dict):
        return Part("scheduler", BROKEN, name, f"{name} is no scheduler's state")
    rates = [rate for rate in found.get("_last_lr") or [] if isinstance(rate, (int, float))]
    if not all(map(math.isfinite, rates)):
        return Part("scheduler", BROKEN, name, f"{name}: its learning rate is not finite")
    at = found.get("last_epoch")
    if isinstance(at, int) and at != expected.step and not expected.fp16:
        return Part("scheduler", DOUBTFUL, name, f"{name} is at step {at}, the checkpoint at {expected.step}")
    return Part("scheduler", GOOD, name)


def _scaler(folder: Path) -> Part:
    name = "scaler.pt"
    if not (folder / name).exists():
        return Part("scaler", MISSING, name, f"{name} is missing: fp16's loss scale would start anew at 65536")
    try:
        scale = (load_safely(folder / name) or {}).get("scale")
    except (Incomplete, AttributeError) as reason:
        return Part("scaler", BROKEN, name, str(reason))
    if not isinstance(scale, (int, float)) or not math.isfinite(scale) or scale <= 0:
        return Part("scaler", BROKEN, name, f"{name}: its scale is {scale!r}")
    return Part("scaler", GOOD, name)


def _rng(folder: Path, expected: Expected) -> list[Part]:
    """One part for each rank. A missing file costs the bit-exact order; one that cannot be read ends the resume."""
    names = [f"rng_state_{rank}.pth" for rank in range(expected.ranks)] if expected.ranks > 1 else ["rng_state.pth"]
    parts = []
    for name in names:
        file = folder / name
        if not file.exists():
            parts.append(Part("rng", MISSING, name, f"{name} is missing: a resume is not bit-exact", needed=False))
            continue
        try:
            found = _load_rng(file)
            lacking = [key for key in _RNG_KEYS if not isinstance(found, dict) or key not in found]
            why = f"{name} lacks {', '.join(lacking)}" if lacking else ""
        except Incomplete as reason:
            why = str(reason)
        parts.append(Part("rng", BROKEN if why else GOOD, name, why))
    return parts


def _load_rng(file: Path) -> object:
    """NumPy's state is an array: allowed for this one file, by the list that transformers itself allows."""
    from transformers.trainer_pt_utils import safe_globals

    with safe_globals():
        return load_safely(file)


def _trainer_state(folder: Path, expected: Expected) -> Part:
    try:
        found = read_json(folder / STATE)
    except Incomplete as reason:
        state = MISSING if not (folder / STATE).exists() else BROKEN
        return Part("trainer_state", state, STATE, str(reason))
    step = found.get("global_step") if isinstance(found, dict) else None
    if step != expected.step:
        return Part("trainer_state", BROKEN, STATE, f"{STATE} is of step {step}, not {expected.step}")
    return Part("trainer_state", GOOD, STATE)


def _training_args(folder: Path) -> Part:
    """A pickle of a class: never loaded, only looked at from outside."""
    name = "training_args.bin"
    if not (folder / name).is_file():
        why = f"{name} is missing: a resume cannot be compared with it"
        return Part("training_args", MISSING, name, why, needed=False)
    if not zipfile.is_zipfile(folder / name):
        return Part("training_args", BROKEN, name, f"{name} is no whole torch file", needed=False)
    return Part("training_args", GOOD, name)


def _fsdp_optimizer(folder: Path, expected: Expected) -> Part:
    """FSDP: `optimizer_0/` holds a `.metadata` and a `.distcp` file for each rank; or one `optimizer.bin`."""
    place = folder / "optimizer_0"
    if not place.is_dir():
        return _optimizer(folder, expected)
    try:
        shards = [file for file in place.glob("*.distcp") if file.stat().st_size]
        whole = (place / ".metadata").is_file() and (place / ".metadata").stat().st_size > 0
    except OSError as error:
        return Part("optimizer", BROKEN, "optimizer_0", f"optimizer_0 cannot be read: {error.strerror}")
    if not whole:
        return Part(
            "optimizer", BROKEN, "optimizer_0/.metadata", "optimizer_0/.metadata is missing: a save was cut off"
        )
    if len(shards) < expected.ranks:
        why = f"optimizer_0 holds {len(shards)} of {expected.ranks} ranks' shards"
        return Part("optimizer", BROKEN, "optimizer_0", why)
    return Part("optimizer", GOOD, "optimizer_0")


def _deepspeed(folder: Path, expected: Expected) -> Part:
    """DeepSpeed: `latest` names the folder with each rank's optimizer state and the model's states."""
    try:
        tag = (folder / "latest").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return Part("optimizer", MISSING, "latest", "`latest` is missing: DeepSpeed does not find its own state")
    place = folder / tag
    if not tag or not place.is_dir():
        return Part("optimizer", MISSING, tag, f"`latest` names {tag!r}, which is not there")
    optim = sorted(place.glob("*optim_states.pt"))
    models = sorted(place.glob("*model_states.pt"))
    bad = [file.name for file in (*optim, *models) if not zipfile.is_zipfile(file)]
    if bad:
        return Part("optimizer", BROKEN, f"{tag}/{bad[0]}", f"{tag}/{bad[0]} is no whole torch file")
    if len(optim) < expected.ranks or not models:
        why = (
            f"{tag} holds the optimizer state of {len(optim)} of {expected.ranks} ranks and {len(models)} model states"
        )
        return Part("optimizer", BROKEN, tag, why)
    return Part("optimizer", GOOD, tag)
