"""Numbers of a safetensors file, read once in pieces: is one not finite, is all of it zero? NumPy, without torch."""

import contextvars
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .files import Incomplete, open_file, reading
from .headers import Tensor

#: bytes that are read at a time: large enough for the disk, small enough for the cache that the test runs in
BLOCK = 2 << 20
#: bytes that one thread takes at a time
PIECE = 64 << 20
#: more than cores, perhaps: while one waits for the disk another one looks
_THREADS = 4

#: type -> (NumPy's unsigned type of the same size, all bits but the sign, the least of those values that is no finite
#: number). F8_E4M3 has no infinity and NaN is 0x7F; F8_E8M0 has no sign and NaN is 0xFF (OCP Microscaling 5.3, 5.4).
_FLOATS = {
    "F64": ("<u8", 0x7FFF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000),
    "F32": ("<u4", 0x7FFF_FFFF, 0x7F80_0000),
    "C64": ("<u4", 0x7FFF_FFFF, 0x7F80_0000),
    "F16": ("<u2", 0x7FFF, 0x7C00),
    "BF16": ("<u2", 0x7FFF, 0x7F80),
    "F8_E5M2": ("u1", 0x7F, 0x7C),
    "F8_E4M3": ("u1", 0x7F, 0x7F),
    "F8_E8M0": ("u1", 0xFF, 0xFF),
}


@dataclass
class Numbers:
    """What a tensor holds.

    Attributes:
        finite: no NaN and no infinity; integers and packed types always are.
        zero: nothing but zeros; an empty tensor is.
    """

    finite: bool = True
    zero: bool = True


def scan(folder: Path, tensors: dict[str, Tensor]) -> dict[str, Numbers]:
    """Read all tensors once. Memory: one block for each of at most four threads.

    Raises:
        Incomplete: a file cannot be read to its end.
    """
    found = {name: Numbers() for name in tensors}
    local = threading.local()
    pieces = [
        (name, one, start, min(start + PIECE, one.end))
        for name, one in tensors.items()
        for start in range(one.start, one.end, PIECE)
    ]

    def look(piece) -> tuple[str, bool, bool]:
        name, one, start, end = piece
        return name, *_look(folder / one.file, one.dtype, start, end, local)

    with ThreadPoolExecutor(_THREADS) as pool:  # each job in a copy of this context: what it says is in its language
        jobs = [(contextvars.copy_context(), piece) for piece in pieces]
        for name, finite, zero in pool.map(lambda job: job[0].run(look, job[1]), jobs):
            found[name].finite &= finite
            found[name].zero &= zero
    return found


def _look(file: Path, dtype: str, start: int, end: int, local: threading.local) -> tuple[bool, bool]:
    """`(finite, zero)` of one piece."""
    import numpy as np

    if not hasattr(local, "buffer"):
        local.buffer, local.work = np.empty(BLOCK, np.uint8), np.empty(BLOCK, np.uint8)
    kind, bits, limit = _FLOATS.get(dtype, ("u1", 0xFF, 0x100))
    finite, zero = True, True
    with reading(file.name), open_file(file) as handle:
        number = handle.fileno()
        for at in range(start, end, BLOCK):
            size = min(BLOCK, end - at)
            if _fill(number, memoryview(local.buffer)[:size], at) != size:
                raise Incomplete(f"{file.name} ends before byte {end}")
            block = local.buffer[:size].view(kind)
            work = np.bitwise_and(block, block.dtype.type(bits), out=local.work[:size].view(kind))
            largest = int(work.max(initial=0))
            finite, zero = finite and largest < limit, zero and not largest
    return finite, zero


def _fill(handle: int, view: memoryview, at: int) -> int:
    """Read into `view` from byte `at`; the number of bytes that came."""
    done = 0
    while done < len(view):
        size = os.preadv(handle, [view[done:]], at + done)
        if not size:
            break
        done += size
    return done
