"""The tensors of a checkpoint by its headers alone: names, types, shapes and places, without any of their data."""

import math
from dataclasses import dataclass
from pathlib import Path

from .files import Incomplete, read_header, read_json

#: bits of an element, by the safetensors library's names for types
BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16}
BITS |= {"BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64}
BITS |= {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}


@dataclass(frozen=True)
class Tensor:
    """One tensor's entry.

    Attributes:
        file: the weight file's name.
        dtype: safetensors' name, e.g. BF16.
        shape: of the tensor.
        start, end: its bytes in the file.
    """

    file: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def read_tensors(folder: Path, files: tuple[str, ...]) -> dict[str, Tensor]:
    """All tensors of the safetensors files; other files (torch's `.bin`) have no header and are left out.

    Raises:
        Incomplete: a header does not match its file, its tensors leave gaps or overlap, a size does not fit its shape,
            or two files hold a tensor of the same name.
    """
    tensors: dict[str, Tensor] = {}
    for name in files:
        if not name.endswith(".safetensors"):
            continue
        first, header = read_header(folder / name)
        for key, one in _entries(name, first, header):
            if key in tensors:
                raise Incomplete(f"{key} is in {tensors[key].file} and in {name}: two saves were mixed")
            tensors[key] = one
    return tensors


def _entries(name: str, first: int, header: dict) -> list[tuple[str, Tensor]]:
    try:
        entries = [
            (key, Tensor(name, str(e["dtype"]), tuple(e["shape"]), first + e["data_offsets"][0],
                         first + e["data_offsets"][1]))
            for key, e in header.items()
            if key != "__metadata__"
        ]  # fmt: skip
        entries.sort(key=lambda entry: (entry[1].start, entry[1].end))
        for key, one in entries:
            if not all(type(number) is int and number >= 0 for number in (*one.shape, one.start, one.end)):
                raise ValueError(key)
            bits = BITS.get(one.dtype)
            if bits is not None and one.elements * bits != (one.end - one.start) * 8:
                raise Incomplete(f"{name}: {key} has {one.end - one.start} bytes, its shape says {list(one.shape)}")
    except (TypeError, KeyError, IndexError, ValueError, AttributeError):
        raise Incomplete(f"{name}: its header is no JSON of tensors") from None
    at = first
    for key, one in entries:
        if one.start != at:
            raise Incomplete(f"{name}: {key} begins at byte {one.start}, the tensor before it ends at {at}")
        at = one.end
    return entries


def check_index(folder: Path, index: str, tensors: dict[str, Tensor]) -> None:
    """Compare `*.index.json` with what the shards really hold.

    Raises:
        Incomplete: a tensor is missing, or is in another shard than the index says.
    """
    table = read_json(folder / index)["weight_map"]
    if any(not file.endswith(".safetensors") for file in table.values()):
        return
    lacking = [name for name in table if name not in tensors]
    if lacking:
        file = table[lacking[0]]
        raise Incomplete(f"{file} lacks {lacking[0]}, which {index} names ({len(lacking)} of {len(table)} tensors)")
    moved = [name for name, file in table.items() if tensors[name].file != file]
    if moved:
        name = moved[0]
        raise Incomplete(f"{index} says {name} is in {table[name]}, but it is in {tensors[name].file}")
    unnamed = [name for name in tensors if name not in table]
    if unnamed:
        raise Incomplete(f"{index} does not name {unnamed[0]} of {tensors[unnamed[0]].file}: it is of another save")


def stale_shards(folder: Path, weights: tuple[str, ...]) -> list[str]:
    """Shards beside those in use: left over from a save with another number of shards."""
    return sorted(one.name for one in folder.glob("model-*-of-*.safetensors") if one.name not in weights)


def base_tensors(folder: Path) -> dict[str, Tensor]:
    """Tensors of a base model's folder; {} where it is not in safetensors or cannot be read."""
    try:
        return read_tensors(folder, tuple(sorted(one.name for one in folder.glob("model*.safetensors"))))
    except (Incomplete, OSError):
        return {}
