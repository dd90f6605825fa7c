"""How much of the card this run may use."""

from dataclasses import dataclass

from ...gpu.nvml import Nvml
from ...texts import text
from ..card import limit_gib, margin_gib
from ..run_config import RunConfig
from .estimate import GIB, Estimate

#: `others_source` where the figure is 0 because nobody could look
NOBODY_LOOKED = "not known here: --beside GIB or --vllm-share S"
FITS, CLOSE, TOO_LARGE, UNKNOWN = "fits", "close", "does not fit", "cannot be judged"


@dataclass(frozen=True)
class Room:
    """The card.

    Attributes:
        card_gib, card_source: its size and who says so.
        others_gib, others_source: what other processes hold.
        margin_gib: what should stay free at the peak.
    """

    card_gib: float
    card_source: str
    others_gib: float
    others_source: str
    margin_gib: float

    @property
    def free_gib(self) -> float:
        """What is left for this run."""
        return max(0.0, self.card_gib - self.others_gib)

    def judge(self, estimate: Estimate) -> str:
        """`fits` (the upper end, and the middle with the margin), `does not fit` (the middle), or `close`.

        `cannot be judged` where the activations are not known.
        """
        if estimate.total_gib > self.free_gib:
            return TOO_LARGE
        if not estimate.complete:
            return UNKNOWN
        margin = self.free_gib - self.margin_gib
        return FITS if estimate.high_gib <= self.free_gib and estimate.total_gib <= margin else CLOSE

    def as_dict(self) -> dict:
        """For `--json`."""
        return {**self.__dict__, "free_gib": self.free_gib}


def room(
    config: RunConfig,
    *,
    beside_gib: float | None = None,
    vllm_share: float | None = None,
    world: int = 1,
    nvml: Nvml | None = None,
) -> Room:
    """Find out.

    Args:
        beside_gib: what others hold, given by hand.
        vllm_share: vLLM's `--gpu-memory-utilization`, a share of the whole card, given by hand.
        world: cards that are used; of several the one with the least free memory counts.
        nvml: where the card is looked up; None asks the machine.
    """
    nvml = nvml or Nvml()
    card = _fullest(nvml, world)
    size, source = limit_gib(config, nvml)  # of several cards, the first one
    whole = card["total"] / GIB if card is not None else size
    if beside_gib is not None or vllm_share is not None:
        parts = [text("memory.room.beside", gib=beside_gib)] if beside_gib is not None else []
        parts += [text("memory.room.share", share=vllm_share, whole=whole)] if vllm_share is not None else []
        others, who = (beside_gib or 0.0) + (vllm_share or 0.0) * whole, " + ".join(parts)
    elif card is not None:
        others, who = card["used"] / GIB, text("memory.room.nvml")
    else:
        others, who = 0.0, NOBODY_LOOKED
    return Room(size, source, others, who, margin_gib(config))


def _fullest(nvml: Nvml, world: int) -> dict | None:
    """`{"total", "used", "free"}` in bytes of the card with the least free memory; None where NVML says nothing."""
    seen = [nvml.memory(index) for index in range(min(world, len(nvml.devices_for_process())))]
    known = [memory for memory in seen if memory is not None]
    return min(known, key=lambda memory: memory["free"]) if known else None
