"""Where a local model goes: on a GPU only if it fits beside what runs there already."""

import re
from pathlib import Path

from ...errors import ConfigError

#: free memory that must be there, as a multiple of the weights: activations, the cache and torch's own context
_ROOM = 1.3
_CONTEXT_BYTES = 1 << 30
#: share of the card left free beside that: what is free now the training may want for its next long batch
_LEFT = 0.25


def pick_device(wanted: str, base: str | None) -> tuple[str, str]:
    """The device for `--device`, and why.

    Args:
        wanted: "auto", or a torch device, which is taken as it is.
        base: the base model's path, to weigh it.
    """
    import torch

    if wanted != "auto":
        try:
            device = torch.device(wanted)
        except RuntimeError:
            raise ConfigError(f"--device: {wanted!r} is no torch device; use auto, cpu, cuda or cuda:1") from None
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise ConfigError(f"--device {wanted}: torch sees {torch.cuda.device_count()} CUDA devices here")
        return wanted, "as asked"
    if not torch.cuda.is_available():
        return "cpu", "no GPU"
    memory = _memory()
    if memory is None:
        return "cpu", "the GPU's free memory cannot be read"
    free, total = memory
    need = weights_bytes(base)
    if need is None:
        return "cpu", "the model's size is not known; --device cuda takes the GPU all the same"
    gib = 1 << 30
    wanted_bytes = need * _ROOM + _CONTEXT_BYTES + _LEFT * total
    said = f"{free / gib:.1f} GiB free, {wanted_bytes / gib:.1f} GiB wanted, a quarter of the card left to the training"
    return ("cuda", said) if free >= wanted_bytes else ("cpu", f"no room on the GPU: {said}")


def weights_bytes(name: str | None) -> int | None:
    """Size of a model's weight files; None where no folder with any is found here."""
    from ...identity.model import WEIGHTS, find_folder

    folder = find_folder(name, None, None) if name else None
    if folder is None:
        return None
    return sum(file.stat().st_size for file in Path(folder).iterdir() if re.fullmatch(WEIGHTS, file.name)) or None


def _memory() -> tuple[int, int] | None:
    """Free and total bytes of the first GPU by NVML, which needs no CUDA context of ours; else torch's word."""
    from ...gpu.nvml import Nvml

    memory = Nvml().memory(0)
    if memory is not None:
        return memory["free"], memory["total"]
    import torch

    try:
        return torch.cuda.mem_get_info()
    except RuntimeError:
        return None
