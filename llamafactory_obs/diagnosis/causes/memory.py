"""Memory that grows: longer batches, fragments, something that is kept, or another process on the card."""

from ... import texts
from .evidence import DECISIVE, FAIR, STRONG, Case
from .ordinary import short
from .place import Place

_OWN = ("system/allocated_gib", "system/rss_gib", "system/process_ram_gib")


def growth(place: Place) -> list[Case]:
    """Candidates for memory that grows over the finding's rows."""
    leak = Case("leak", texts.text("causes.memory.next_leak"))
    longer = Case("longer_batches", texts.text("causes.memory.next_longer"))
    fragments = Case("fragmentation", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    other = Case("other_process", texts.text("causes.memory.next_other"))
    own = next((name for name in _OWN if place.curves.has(name)), None)
    memory = [] if own is None else _trend(place, own)
    lengths = _trend(place, "data/max_length")
    if own is None:
        leak.lacks(texts.text("causes.memory.lacks_vram"))
    elif memory and memory[1] > memory[0] * 1.01:
        text = texts.text(
            "causes.memory.grew", what=own.partition("/")[2], before=short(memory[0]), now=short(memory[1])
        )
        if lengths and lengths[1] <= 1.1 * lengths[0]:
            leak.supports(STRONG, texts.text("causes.memory.same_length", text=text, length=short(lengths[1])))
            longer.against(
                STRONG, texts.text("causes.memory.not_longer", before=short(lengths[0]), now=short(lengths[1]))
            )
        else:
            leak.supports(FAIR, f"{text}.")
    if not lengths:
        longer.lacks(texts.text("causes.memory.lacks_length"))
    elif lengths[1] > 1.2 * lengths[0]:
        longer.supports(STRONG, texts.text("causes.memory.longer", before=short(lengths[0]), now=short(lengths[1])))
        leak.against(FAIR, texts.text("causes.memory.with_it"))
    split = _trend(place, "system/fragmentation")
    if split and split[1] > split[0] + 0.1:
        fragments.supports(STRONG, texts.text("causes.memory.split", before=split[0], now=split[1]))
    reserved, used = _trend(place, "system/reserved_gib"), _trend(place, "system/device_used_gib")
    if reserved and used:
        mine, all_of_it = reserved[1] - reserved[0], used[1] - used[0]
        if all_of_it > 0.2 and mine < 0.3 * all_of_it:
            other.supports(DECISIVE, texts.text("causes.memory.card", more=short(all_of_it), ours=short(mine)))
    return [leak, longer, fragments, other]


def _trend(place: Place, name: str) -> list[float]:
    """Highest of the first quarter and of the last quarter of the finding's rows, or of all rows up to its step."""
    rows = place.during if len(place.during) >= 8 else range(place.seen + 1)
    values = place.values(name, rows)
    quarter = len(values) // 4
    return [max(values[:quarter]), max(values[-quarter:])] if quarter else []
