"""Memory that grows: longer batches, fragments, something that is kept, or another process on the card."""

from .evidence import DECISIVE, FAIR, STRONG, Case
from .ordinary import short
from .place import Place

_OWN = ("system/allocated_gib", "system/rss_gib", "system/process_ram_gib")


def growth(place: Place) -> list[Case]:
    """Candidates for memory that grows over the finding's rows."""
    leak = Case("leak", "Look for tensors or lists that a callback or a collator keeps; torch.cuda.memory_snapshot().")
    longer = Case("longer_batches", "A smaller cutoff_len, or group_by_length: the peak is then met at the start.")
    fragments = Case("fragmentation", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    other = Case("other_process", "See with nvidia-smi what else runs on the card.")
    own = next((name for name in _OWN if place.curves.has(name)), None)
    memory = [] if own is None else _trend(place, own)
    lengths = _trend(place, "data/max_length")
    if own is None:
        leak.lacks("`vram` (allocated and reserved memory of each step)")
    elif memory and memory[1] > memory[0] * 1.01:
        text = f"{own.partition('/')[2]} grew from {short(memory[0])} to {short(memory[1])} GiB"
        if lengths and lengths[1] <= 1.1 * lengths[0]:
            leak.supports(STRONG, f"{text} while the batches stayed as long ({short(lengths[1])} tokens).")
            longer.against(STRONG, f"The longest conversations did not grow: {short(lengths[0])}, {short(lengths[1])}.")
        else:
            leak.supports(FAIR, f"{text}.")
    if not lengths:
        longer.lacks("`label_mask` (lengths of each batch)")
    elif lengths[1] > 1.2 * lengths[0]:
        longer.supports(
            STRONG, f"The longest conversation grew from {short(lengths[0])} to {short(lengths[1])} tokens."
        )
        leak.against(FAIR, "The batches grew with it.")
    split = _trend(place, "system/fragmentation")
    if split and split[1] > split[0] + 0.1:
        fragments.supports(
            STRONG, f"Free but split memory went from {split[0]:.0%} to {split[1]:.0%} of what is reserved."
        )
    reserved, used = _trend(place, "system/reserved_gib"), _trend(place, "system/device_used_gib")
    if reserved and used:
        mine, all_of_it = reserved[1] - reserved[0], used[1] - used[0]
        if all_of_it > 0.2 and mine < 0.3 * all_of_it:
            other.supports(
                DECISIVE, f"{short(all_of_it)} GiB more are used on the card, {short(mine)} GiB of them by this run."
            )
    return [leak, longer, fragments, other]


def _trend(place: Place, name: str) -> list[float]:
    """Highest of the first quarter and of the last quarter of the finding's rows, or of all rows up to its step."""
    rows = place.during if len(place.during) >= 8 else range(place.seen + 1)
    values = place.values(name, rows)
    quarter = len(values) // 4
    return [max(values[:quarter]), max(values[-quarter:])] if quarter else []
