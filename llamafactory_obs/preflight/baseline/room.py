"""Is there room for the training beside what is on the card already, the vLLM server above all?"""

import math

from ... import texts
from ...gpu.nvml import Nvml
from ...probe.backends.device import weights_bytes
from ..card import margin_gib
from ..result import ERROR, FAIL, PASS, SKIPPED, Check
from ..run_config import RunConfig
from .base_model import BaseModel

_GIB = 2**30
#: a server needs its weights and room for some tokens; below this multiple of the weights a share is no use
_SERVER_ROOM = 1.2


def check_room(config: RunConfig, base: BaseModel, needed_gib: float | None, server: bool) -> Check:
    """The check `room_beside_server`: free memory by NVML on the tightest visible card against the estimate.

    Args:
        needed_gib: of the training on one card, see the verb `memory`; None where nobody knows.
        server: a vLLM server answers on this machine.
    """
    nvml = Nvml()
    try:
        devices = nvml.devices_for_process()
        if not devices:
            why = nvml.reason or texts.text("baseline.room.no_gpu")
            return Check("room_beside_server", SKIPPED, None, needed_gib, texts.text("baseline.room.unknown", why=why))
        found = {device.logical: nvml.memory(device.logical) for device in devices}
        unknown = [device for device in devices if found[device.logical] is None]
        if unknown:
            why = (
                unknown[0].reason
                or nvml.errors.get(f"memory[{unknown[0].logical}]")
                or texts.text("baseline.room.no_figures")
            )
            text = texts.text("baseline.room.card", index=unknown[0].logical, why=why)
            status = SKIPPED if unknown[0].kind == "mig" else ERROR
            return Check("room_beside_server", status, None, needed_gib, text)
        index = min(found, key=lambda one: found[one]["free"])
        memory = {name: number / _GIB for name, number in found[index].items()}
        free, others = memory["free"], _others(nvml, index)
    finally:
        nvml.close()
    if needed_gib is None:
        text = texts.text("baseline.room.nobody", free=free)
        return Check("room_beside_server", SKIPPED, round(free, 1), None, text, "llamafactory-obs memory RUN.yaml")
    card = texts.text("baseline.room.gpu", index=index) if len(found) > 1 else texts.text("baseline.room.the_gpu")
    text = texts.text("baseline.room.free", free=free, total=memory["total"], card=card, needed=needed_gib)
    value, want = round(free, 1), round(needed_gib, 1)
    if free >= needed_gib:
        return Check("room_beside_server", PASS, value, want, text)
    fix = _fix(memory["total"], needed_gib, others, margin_gib(config), base, server)
    return Check("room_beside_server", FAIL, value, want, text, fix)


def _others(nvml: Nvml, index: int) -> float:
    """GiB held by processes that are known not to be vLLM's; 0 where names or figures are hidden."""
    rows = nvml.processes(index) or []
    if not any("vllm" in (row["name"] or "").lower() for row in rows):
        return 0.0
    return sum(row["used"] or 0 for row in rows if row["name"] and "vllm" not in row["name"].lower()) / _GIB


def _fix(total: float, needed: float, others: float, margin: float, base: BaseModel, server: bool) -> str:
    """The share that leaves room, rounded down; or that none does."""
    less = texts.text("baseline.room.less")
    if not server:
        return texts.text("baseline.room.free_card", less=less)
    share = math.floor((total - needed - others - margin) / total * 100) / 100
    weights = (weights_bytes(base.source) or 0) / _GIB
    if share <= 0 or share * total < weights * _SERVER_ROOM:
        left = max(0.0, share) * total
        why = texts.text("baseline.room.left", left=left) + (
            texts.text("baseline.room.weights", weights=weights) if weights else ""
        )
        return texts.text("baseline.room.no_share", why=why, less=less)
    return texts.text(
        "baseline.room.restart", share=share, total=total, needed=needed, spare=others + margin, less=less
    )
