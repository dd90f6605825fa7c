"""How much of the card a run may use, and what must stay free of it."""

from ..gpu.nvml import Nvml
from ..settings import LIMIT_GIB, MARGIN_GIB
from ..texts import text
from .run_config import RunConfig

_GIB = 2**30


def limit_gib(config: RunConfig, nvml: Nvml | None = None) -> tuple[float, str]:
    """GiB of the card, and where the number is from.

    The first of: the option of the `vram` callback, `obs: {limit_gib: ...}`, the first card's total by NVML, 24.
    """
    given = (config.options_of("vram") or {}).get("limit_gib")
    if isinstance(given, (int, float)) and not isinstance(given, bool) and given > 0:
        return float(given), text("preflight.card.vram")
    if config.settings.limit_gib is not None:
        return config.settings.limit_gib, text("preflight.card.obs")
    memory = (nvml or Nvml()).memory(0)
    if memory is not None:
        return memory["total"] / _GIB, text("preflight.card.size")
    return LIMIT_GIB, text("preflight.card.default")


def margin_gib(config: RunConfig) -> float:
    """GiB that must stay free at the peak: the option of the `vram` callback, `obs: {margin_gib: ...}`, or 1."""
    given = (config.options_of("vram") or {}).get("margin_gib")
    if isinstance(given, (int, float)) and not isinstance(given, bool) and given >= 0:
        return float(given)
    return MARGIN_GIB if config.settings.margin_gib is None else config.settings.margin_gib
