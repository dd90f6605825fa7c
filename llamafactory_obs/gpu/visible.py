"""What `CUDA_VISIBLE_DEVICES` says, entry by entry. Pure text in, plain values out; never an `int()` on a UUID.

Rules (CUDA C++ Programming Guide, "CUDA Environment Variables", and `torch.cuda._parse_visible_devices`):
unset means every device; the empty string means none; the first entry that is invalid (`-1`, `NoDevFiles`, another
kind than the first entry) ends the list; a repeated entry empties it.
"""

import re
from dataclasses import dataclass

_INTEGER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Entry:
    """One entry of `CUDA_VISIBLE_DEVICES`."""

    kind: str
    """`index` | `gpu` (a UUID or the beginning of one) | `mig`."""
    text: str
    """The entry as written, without blanks."""
    index: int | None = None
    """The CUDA ordinal, for kind `index` only."""

    @property
    def mig_parent(self) -> tuple[str, int, int] | None:
        """`(parent GPU UUID, GPU instance, compute instance)` of the older form `MIG-GPU-<uuid>/<gi>/<ci>`."""
        match = re.fullmatch(r"MIG-(GPU-[0-9a-fA-F-]+)/(\d+)/(\d+)", self.text)
        return (match[1], int(match[2]), int(match[3])) if match else None


def parse_visible(value: str | None) -> tuple[list[Entry] | None, str | None]:
    """Split the value into entries.

    Args:
        value: the content of the variable; None where it is not set.

    Returns:
        `(entries, note)`: entries is None for "every device" (not set); note says why the list ended early, or None.
    """
    if value is None:
        return None, None
    entries: list[Entry] = []
    for raw in value.split(","):
        entry = _entry(raw.strip())
        if entry is None:
            return entries, _ended(raw, value)
        if entries and entry.kind != entries[0].kind:
            return entries, f"{raw.strip()!r} is another kind of id than the first entry: CUDA stops there"
        if any(entry.text.lower() == other.text.lower() for other in entries) or (
            entry.index is not None and any(entry.index == other.index for other in entries)
        ):
            return [], f"{raw.strip()!r} is listed twice: CUDA then shows no device at all"
        entries.append(entry)
    return entries, None


def _ended(raw: str, value: str) -> str:
    if not value.strip():
        return "CUDA_VISIBLE_DEVICES is empty: no device is visible"
    return f"CUDA_VISIBLE_DEVICES entry {raw.strip()!r} ends the list of visible devices"


def _entry(text: str) -> Entry | None:
    """One entry, or None where it ends the list."""
    if text.startswith("MIG-"):
        return Entry("mig", text)
    if text.startswith("GPU-"):
        return Entry("gpu", text)
    match = _INTEGER.match(text)  # like strtoul: "1gpu2" counts as 1
    if match is None or int(match[0]) < 0:
        return None
    return Entry("index", text, int(match[0]))
