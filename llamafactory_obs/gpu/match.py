"""Which NVML handle is `cuda:0`, `cuda:1` ...: by torch's UUID or PCI bus id, else by the visible list and the order.

NVML counts by PCI bus. CUDA does so only with `CUDA_DEVICE_ORDER=PCI_BUS_ID`; its default puts the fastest first. With
equal cards both orders agree; with different cards an index alone tells nothing, so the handle stays unknown.
"""

import os
import sys

from .visible import Entry, parse_visible

MIG_REASON = "a MIG slice: NVML's numbers are those of the whole card, use torch's"


def match_devices(
    nvml: object, value: str | None, torch: object | None, *, use_torch: bool
) -> tuple[list[dict], str | None]:
    """Match the visible devices with NVML's.

    Args:
        nvml: the `Nvml` that asks (its `ask` never raises).
        value: `CUDA_VISIBLE_DEVICES`, None for "not set".
        torch: a torch-like module, None to take an imported one.
        use_torch: whether torch in this process sees the same devices (the value is this process's own).

    Returns:
        `(rows, note)`: rows are the fields of `Device` without `logical`; note says why there are fewer, or None.
    """
    cards = _cards(nvml)
    if use_torch:
        rows = _by_torch(nvml, cards, torch if torch is not None else sys.modules.get("torch"))
        if rows is not None:
            return rows, None
    entries, note = parse_visible(value)
    names = {card["name"] for card in cards}
    sizes = {round(card["total"] / 2**30) for card in cards if card["total"] is not None}
    same = len(names) <= 1 and len(sizes) <= 1
    by_bus = os.environ.get("CUDA_DEVICE_ORDER", "FASTEST_FIRST") == "PCI_BUS_ID"
    if entries is None:
        entries = [Entry("index", str(index), index) for index in range(len(cards))]
    rows: list[dict] = []
    for entry in entries:
        if entry.kind == "index":
            if entry.index >= len(cards):
                return rows, f"CUDA device {entry.index} does not exist ({len(cards)} cards): CUDA stops there"
            row = _row(cards[entry.index], "index")
            if not (same or by_bus) and len(cards) > 1:
                why = "the cards differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID: which one it is is unknown"
                row = {"kind": "unknown", "reason": why}
        else:
            row = _by_uuid(nvml, cards, entry)
        if row is None:
            return rows, f"no single device matches {entry.text!r}: CUDA stops there"
        if row.get("uuid") and any(row["uuid"] == other.get("uuid") for other in rows):
            return [], f"{entry.text!r} names a device a second time: CUDA then shows no device at all"
        rows.append(row)
    return rows, note


def _cards(nvml: object) -> list[dict]:
    """All cards that NVML lists, in PCI order; a card that does not answer keeps its place without a handle."""
    cards = []
    for index in range(nvml.ask("count", "nvmlDeviceGetCount") or 0):
        handle = nvml.ask(f"handle[{index}]", "nvmlDeviceGetHandleByIndex", index)
        card = {"handle": handle, "name": None, "total": None, "uuid": None, "pci": None, "mig": False}
        if handle is not None:
            card["name"] = _text(nvml.ask(f"card_name[{index}]", "nvmlDeviceGetName", handle))
            card["uuid"] = _text(nvml.ask(f"card_uuid[{index}]", "nvmlDeviceGetUUID", handle))
            pci = nvml.ask(f"card_pci[{index}]", "nvmlDeviceGetPciInfo", handle)
            card["pci"] = _text(getattr(pci, "busId", None))
            memory = nvml.ask(f"card_memory[{index}]", "nvmlDeviceGetMemoryInfo", handle)
            card["total"] = getattr(memory, "total", None)
            mode = nvml.ask(f"card_mig[{index}]", "nvmlDeviceGetMigMode", handle)  # NotSupported on most cards
            card["mig"] = bool(mode and mode[0] == 1)
        cards.append(card)
    return cards


def _row(card: dict, how: str) -> dict:
    """The `Device` fields of a whole card; with MIG switched on, CUDA sees a slice of it."""
    row = {"handle": card["handle"], "uuid": card["uuid"], "pci_bus_id": card["pci"], "how": how}
    if card["handle"] is None:
        row.update(kind="unknown", reason="NVML gives no access to this card")
    elif card["mig"]:
        row.update(kind="mig", uuid=None, reason=MIG_REASON)
    return row


def _by_uuid(nvml: object, cards: list[dict], entry: Entry) -> dict | None:
    """The device of a `GPU-...` or `MIG-...` entry; None where none or several match."""
    if entry.kind == "gpu":
        hits = [card for card in cards if (card["uuid"] or "").lower().startswith(entry.text.lower())]
        return _row(hits[0], "visible_uuid") if len(hits) == 1 else None
    row = {"kind": "mig", "how": "visible_uuid", "uuid": entry.text, "reason": MIG_REASON}
    if entry.mig_parent:
        parent = entry.mig_parent[0].lower()
        hits = [card for card in cards if (card["uuid"] or "").lower().startswith(parent)]
        return {**row, "handle": hits[0]["handle"], "pci_bus_id": hits[0]["pci"]} if len(hits) == 1 else None
    return {**row, "handle": nvml.ask(f"handle[{entry.text}]", "nvmlDeviceGetHandleByUUID", entry.text)}


def _by_torch(nvml: object, cards: list[dict], torch: object | None) -> list[dict] | None:
    """Match by what torch says of its own devices; None where torch has not started CUDA (we never start it)."""
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    except Exception:
        return None
    rows = []
    for index, one in enumerate(properties):
        uuid = _bare(getattr(one, "uuid", None))
        bus = _bus(one)
        by_uuid = [card for card in cards if uuid and _bare(card["uuid"]) == uuid]
        by_bus = [card for card in cards if bus and card["pci"] and card["pci"].lower().endswith(bus)]
        if len(by_uuid) == 1:
            rows.append(_row(by_uuid[0], "uuid"))
        elif len(by_bus) == 1:
            rows.append(_row(by_bus[0], "pci_bus_id"))
        elif uuid and (slice_ := nvml.ask(f"mig[{index}]", "nvmlDeviceGetHandleByUUID", f"MIG-{uuid}")) is not None:
            fields = {"handle": slice_, "uuid": f"MIG-{uuid}", "kind": "mig", "how": "uuid", "reason": MIG_REASON}
            rows.append(fields)
        else:
            rows.append({"kind": "unknown", "reason": "no card that NVML lists has torch's UUID or PCI bus id"})
    return rows


def _bus(properties: object) -> str | None:
    """`dddd:bb:dd.0` in lower case, the tail of NVML's bus id; None where torch does not say."""
    numbers = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    return "{:04x}:{:02x}:{:02x}.0".format(*numbers) if all(isinstance(n, int) for n in numbers) else None


def _bare(uuid: object) -> str | None:
    """A UUID without its prefix, in lower case."""
    return str(uuid).lower().removeprefix("gpu-").removeprefix("mig-") if uuid else None


def _text(value: object) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else (str(value) if value else None)
