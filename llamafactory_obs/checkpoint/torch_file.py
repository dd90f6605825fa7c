"""Torch files of a checkpoint, read so that nothing in them is run."""

import re
from collections.abc import Iterator
from pathlib import Path

from .files import Incomplete, check_torch_file

#: how torch names what it does not load (`torch/_weights_only_unpickler.py`)
_REFUSED = re.compile(r"[Uu]nsupported (?:global: |class: )?(?:GLOBAL )?(\S+)|GLOBAL (\S+) was not an allowed")


def load_safely(file: Path) -> object:
    """A torch file, on the CPU, mapped and not read at once, and never anything but tensors and plain values.

    Raises:
        Incomplete: it is missing, cut off, no torch file, or holds other objects.
    """
    import torch

    check_torch_file(file)
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except MemoryError:
        raise
    except Exception as error:  # torch and pickle raise many kinds for a damaged file
        said = " ".join(str(error).split())
        refused = _REFUSED.search(said)
        if refused:
            what = refused[1] or refused[2]
            raise Incomplete(
                f"{file.name} holds {what}, which is not loaded (weights_only): it could run code"
            ) from None
        said = said[:120]
        raise Incomplete(f"{file.name} cannot be loaded: {type(error).__name__}: {said}") from None


def load_rng(file: Path) -> object:
    """`load_safely` for the RNG file: NumPy's state is an array, allowed by transformers' own list."""
    from transformers.trainer_pt_utils import safe_globals

    with safe_globals():
        return load_safely(file)


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
