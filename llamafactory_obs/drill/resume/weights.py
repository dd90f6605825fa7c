"""The weights of two checkpoints, tensor by tensor and in blocks: never a whole model in memory. NumPy, no torch."""

import math
from dataclasses import dataclass
from pathlib import Path

from ...checkpoint.files import Incomplete, reading
from ...checkpoint.headers import Tensor, read_tensors
from .words import say

#: elements that are compared at a time
_BLOCK = 1 << 20
#: safetensors' types that NumPy can count with; BF16 is the upper half of a float32
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass
class TensorDifference:
    """One tensor of two checkpoints.

    Attributes:
        name: of the tensor.
        elements: in it.
        unequal: elements that differ in any bit.
        largest: absolute difference; infinite where one is not finite; None for types without a number (8 bits ...)
            and for a tensor that one of them lacks.
        squares: sum of the squared differences; `norm2`: of the squared values of the first.
    """

    name: str
    elements: int
    unequal: int = 0
    largest: float | None = 0.0
    squares: float = 0.0
    norm2: float = 0.0


def compare_weights(one: Path, other: Path) -> list[TensorDifference]:
    """Compare all safetensors files of two folders; shards may be cut differently.

    Raises:
        Incomplete: a folder has none, or a file is not whole.
    """
    a, b = (read_tensors(folder, _files(folder)) for folder in (one, other))
    found = []
    for name in sorted({*a, *b}):
        here, there = a.get(name), b.get(name)
        if here is None or there is None or (here.dtype, here.shape) != (there.dtype, there.shape):
            elements = (here or there).elements
            found.append(TensorDifference(name, elements, elements, None))
        else:
            found.append(_compare(name, one / here.file, here, other / there.file, there))
    return found


def _files(folder: Path) -> tuple[str, ...]:
    files = tuple(sorted(file.name for file in folder.glob("*.safetensors")))
    if not files:
        raise Incomplete(say("why.no_weights", folder=folder.name))
    return files


def _compare(name: str, file: Path, here: Tensor, other_file: Path, there: Tensor) -> TensorDifference:
    import numpy as np

    found = TensorDifference(name, here.elements)
    code = _TYPES.get(here.dtype)
    if code is None:
        found.largest = None
    size = here.end - here.start
    width = np.dtype(code or "u1").itemsize
    with reading(file.name), file.open("rb") as first, other_file.open("rb") as second:
        first.seek(here.start)
        second.seek(there.start)
        for at in range(0, size, _BLOCK * width):
            count = min(_BLOCK * width, size - at)
            x, y = first.read(count), second.read(count)
            if len(x) != count or len(y) != count:
                raise Incomplete(say("why.ends_early", file=file.name))
            _block(found, x, y, code, width)
    return found


def _block(found: TensorDifference, x: bytes, y: bytes, code: str | None, width: int) -> None:
    import numpy as np

    bits = f"<u{width}"
    if x != y:
        found.unequal += int((np.frombuffer(x, bits) != np.frombuffer(y, bits)).sum())
    if code is None:
        return
    a = _numbers(x, code)
    with np.errstate(over="ignore", invalid="ignore"):
        found.norm2 += float(np.dot(a, a))
        if x != y:
            same = np.frombuffer(x, bits) == np.frombuffer(y, bits)
            gap = np.where(same, 0.0, np.abs(a - _numbers(y, code)))
            gap[np.isnan(gap)] = math.inf
            found.largest = max(found.largest, float(gap.max(initial=0.0)))
            found.squares += float(np.dot(gap, gap))


def _numbers(raw: bytes, code: str):
    """As float64."""
    import numpy as np

    values = np.frombuffer(raw, code)
    if code == "<u2":
        values = (values.astype("<u4") << 16).view("<f4")
    return values.astype(np.float64)
