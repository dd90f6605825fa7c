"""The values in a checkpoint's weights: not finite, all zero, equal to the base model's; one tensor at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..probe.complete import Proof
from .files import Incomplete
from .headers import read_tensors
from .scan import scan
from .torch_file import load_safely, tensors_in

#: peft begins with zeros there (`reset_lora_parameters`; OFT's skew-symmetric blocks)
_ZERO_AT_FIRST = (".lora_B.", ".lora_embedding_A", ".oft_R.")
#: elements that are looked at in one go
_PIECE = 1 << 22


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

    def add(self, file: str, name: str, dimensions: int, finite: bool, zero: bool) -> None:
        """One tensor more."""
        self.names.append(name)
        if not finite:
            self.nonfinite.setdefault(file, []).append(name)
        if any(part in name for part in _ZERO_AT_FIRST):
            self.lora_b += 1
            self.lora_b_zero += zero
        elif dimensions > 1:
            self.matrices += 1
            if zero:
                self.zero.setdefault(file, []).append(name)


def read_values(folder: Path, proof: Proof) -> Values:
    """Read all weights once: safetensors in blocks, torch's own files one tensor in memory at a time.

    Raises:
        Incomplete: a file cannot be read; it is named.
    """
    values = Values()
    tensors = read_tensors(folder, proof.weights)
    for name, numbers in scan(folder, tensors).items():
        values.add(tensors[name].file, name, len(tensors[name].shape), numbers.finite, numbers.zero)
    others = tuple(file for file in proof.weights if not file.endswith(".safetensors"))
    for file, name, tensor in walk(folder, others):
        values.add(file, name, tensor.dim(), finite(tensor), not bool(tensor.any()))
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


def finite(tensor) -> bool:
    """Is there neither NaN nor infinity in it? In pieces: the answer takes no memory to speak of."""
    import torch

    if not tensor.is_floating_point():
        return True
    for piece in tensor.flatten().split(_PIECE):
        if not bool(torch.isfinite(piece.float() if piece.element_size() < 2 else piece).all()):
            return False
    return True


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
