"""The values in a checkpoint's weights: not finite, all zero, equal to the base model's; one tensor at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..probe.complete import Incomplete, Proof
from .torch_file import load_safely, tensors_in

#: peft begins with zeros there (`reset_lora_parameters`; OFT's skew-symmetric blocks)
_ZERO_AT_FIRST = (".lora_B.", ".lora_embedding_A", ".oft_R.")


@dataclass
class Values:
    """What the weights of one checkpoint hold.

    Attributes:
        names: of all tensors.
        nonfinite: file -> names of the tensors with a NaN or an infinity.
        lora_b: how many tensors begin as zeros (LoRA's B); `lora_b_zero`: how many of them are all zero.
        zero: file -> names of other tensors of two dimensions or more that hold nothing but zeros.
        matrices: how many others of two dimensions or more there are.
    """

    names: list[str] = field(default_factory=list)
    nonfinite: dict[str, list[str]] = field(default_factory=dict)
    lora_b: int = 0
    lora_b_zero: int = 0
    zero: dict[str, list[str]] = field(default_factory=dict)
    matrices: int = 0


def read_values(folder: Path, proof: Proof) -> Values:
    """Read all weights once, one tensor in memory at a time.

    Raises:
        Incomplete: a file cannot be read; it is named.
    """
    values = Values()
    for file, name, tensor in walk(folder, proof.weights):
        values.names.append(name)
        if not _finite(tensor):
            values.nonfinite.setdefault(file, []).append(name)
        if any(part in name for part in _ZERO_AT_FIRST):
            values.lora_b += 1
            values.lora_b_zero += not bool(tensor.any())
        elif tensor.dim() > 1:
            values.matrices += 1
            if not bool(tensor.any()):
                values.zero.setdefault(file, []).append(name)
    return values


def zero_in(base: Path, names: list[str]) -> set[str]:
    """Those of the names whose tensor is all zero in the base model, too.

    Args:
        base: folder of the base model, in safetensors.
    """
    held = dict(_names(base))
    return {name for name in names if name in held and not bool(_read(base / held[name], name).any())}


def changed_tensor(folder: Path, weights: tuple[str, ...], base: Path) -> str | None:
    """The first tensor that differs from the base model's, in the checkpoint's own dtype; None where all are equal.

    Args:
        folder, weights: a whole model and the names of its weight files.
        base: folder of the base model, in safetensors.

    Raises:
        Incomplete: the two cannot be compared: no tensor of the same name and shape.
    """
    import torch

    held = dict(_names(base))
    compared = 0
    for _, name, tensor in walk(folder, weights):
        if name not in held:
            continue
        original = _read(base / held[name], name)
        if original.shape == tensor.shape:
            compared += 1
            if not torch.equal(original.to(tensor.dtype), tensor):
                return name
    if not compared:
        raise Incomplete("no weight file of the base model that could be compared")
    return None


def walk(folder: Path, weights: tuple[str, ...]) -> Iterator[tuple[str, str, object]]:
    """`(file, tensor's name, tensor)` of all weight files, on the CPU.

    Raises:
        Incomplete: a file cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    for file in weights:
        if not file.endswith(".safetensors"):
            for name, tensor in tensors_in(load_safely(folder / file)):
                yield file, name, tensor
            continue
        try:
            with safe_open(folder / file, framework="pt", device="cpu") as handle:
                for name in handle.keys():  # noqa: SIM118 - no mapping
                    yield file, name, handle.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise Incomplete(f"{file} cannot be read: {' '.join(str(error).split())[:160]}") from None


def _finite(tensor) -> bool:
    import torch

    return not tensor.is_floating_point() or bool(
        torch.isfinite(tensor.float() if tensor.element_size() < 2 else tensor).all()
    )


def _names(base: Path) -> Iterator[tuple[str, str]]:
    """Tensor name -> file of a model's folder."""
    from safetensors import safe_open

    for file in sorted(base.glob("model*.safetensors")):
        with safe_open(file, framework="pt") as handle:
            for name in handle.keys():  # noqa: SIM118 - no mapping
                yield name, file.name


def _read(file: Path, name: str):
    from safetensors import safe_open

    with safe_open(file, framework="pt", device="cpu") as handle:
        return handle.get_tensor(name)
