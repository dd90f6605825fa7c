"""Why a GPU idles, by the shares of the time that the parts of a step take."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

#: a part of this share of the time is worth naming; waiting for other ranks is a part of every multi-GPU step
_SHARE = {"data_wait": 0.1, "eval": 0.1, "checkpoint": 0.1, "communication": 0.2, "h2d": 0.1, "callbacks": 0.1}
_SHARE |= {"other": 0.15}
_MODEL = ("forward", "backward", "optimizer")
#: host_cpu_percent from which the CPUs count as all busy
_CPUS_BUSY = 90.0
_MANY_WORKERS = 8


@dataclass(frozen=True)
class Facts:
    """What is known of a run beside its rows; None where unknown.

    Attributes:
        cpus: CPUs that all processes of the run on this node may use.
        local_ranks: processes of the run on this node.
        workers: `dataloader_num_workers`.
        batch, accumulation: `per_device_train_batch_size`, `gradient_accumulation_steps`.
        eval_steps, save_steps: whole numbers where they are given as steps.
    """

    #: names that are means over a step and not seconds of it
    MEANS: ClassVar[frozenset[str]] = frozenset({"gpu_throttled", "gpu_other_processes", "host_cpu_percent"})

    cpus: float | None = None
    local_ranks: int = 1
    workers: int | None = None
    batch: int | None = None
    accumulation: int | None = None
    eval_steps: int | None = None
    save_steps: int | None = None


@dataclass(frozen=True)
class Reason:
    """`name` of the part or the cause, "unknown" where nothing supports one; `text`: what to do; `suggest`: YAML."""

    name: str
    text: str
    suggest: dict[str, Any] = field(default_factory=dict)


def explain(shares: dict[str, float], facts: Facts) -> Reason:
    """The reason that the shares support best; others that stand out are named after it.

    Args:
        shares: part of a step -> share of the time; the names of `Facts.MEANS` -> their mean.
    """
    timed = any(name not in Facts.MEANS for name in shares)
    if not timed:
        beside = _beside(shares)
        text = "The reason cannot be told: add `throughput` to callbacks, it times the parts of each step."
        return Reason(beside[0].name, f"{beside[0].text} {text}") if beside else Reason("unknown", text)
    parts = {name: share for name, share in shares.items() if name in _SHARE and share >= _SHARE[name]}
    ranked = sorted(parts, key=lambda name: -parts[name])
    reasons = [_of_part(name, parts[name], shares, facts) for name in ranked]
    reasons += _beside(shares)
    model = sum(shares.get(part, 0.0) for part in _MODEL)
    if not reasons and model >= 0.5:
        reasons = [_small_kernels(model, shares, facts)]
    if not reasons:
        return Reason("unknown", "No part of the steps stands out: the time/ columns of the record show where it goes.")
    first, *others = reasons
    also = "; also: " + ", ".join(_short(reason.name, shares) for reason in others) if others else ""
    return Reason(first.name, first.text.rstrip(".") + also + ".", first.suggest)


def _of_part(name: str, share: float, shares: dict[str, float], facts: Facts) -> Reason:
    if name == "data_wait":
        return _data(share, shares, facts)
    if name == "eval":
        suggest = {"eval_steps": 2 * facts.eval_steps} if facts.eval_steps else {}
        return Reason(
            name, f"Evaluation takes {share:.0%} of the time: evaluate less often, or on fewer rows.", suggest
        )
    if name == "checkpoint":
        suggest = {"save_steps": 2 * facts.save_steps} if facts.save_steps else {}
        return Reason(name, f"Saving checkpoints takes {share:.0%} of the time: save less often.", suggest)
    text = {
        "communication": "Waiting for other ranks takes {}: one rank is slower or has longer rows (callback `ranks`).",
        "h2d": "Moving batches to the device takes {}: dataloader_pin_memory: true.",
        "callbacks": "Our own callbacks take {}: the end event says which; give them a larger `every`.",
        "other": "What is outside the model and its data takes {}: logging, trackers that wait for the network, other"
        " callbacks.",
    }[name]
    suggest = {"dataloader_pin_memory": True} if name == "h2d" else {}
    return Reason(name, text.format(f"{share:.0%} of the time"), suggest)


def _data(share: float, shares: dict[str, float], facts: Facts) -> Reason:
    text = f"Waiting for data takes {share:.0%} of the time"
    if facts.workers is None or facts.cpus is None:
        return Reason("data_wait", f"{text}: raise dataloader_num_workers, up to the CPUs that are free.")
    room = max(1, min(_MANY_WORKERS, int(facts.cpus / facts.local_ranks) - 1))
    cpus = f"{facts.cpus:g} CPUs for {facts.local_ranks} rank{'s' if facts.local_ranks > 1 else ''}"
    if facts.workers < room and not _busy(shares):
        text += f" with dataloader_num_workers: {facts.workers}; there are {cpus}: try {room}."
        return Reason("data_wait", text, {"dataloader_num_workers": room})
    text += f" with dataloader_num_workers: {facts.workers}, and there are only {cpus}: more workers will not help."
    return Reason("data_wait", f"{text} Preprocess the data beforehand (tokenized_path), or get more CPUs.")


def _beside(shares: dict[str, float]) -> list[Reason]:
    """Causes that are no part of a step."""
    found = []
    if shares.get("gpu_throttled", 0.0) >= 0.2:
        share = f"{shares['gpu_throttled']:.0%}"
        text = f"The card is slowed down by heat or hardware {share} of the time: look at its cooling."
        found.append(Reason("throttled", text))
    if shares.get("gpu_other_processes", 0.0) >= 0.5:
        count = max(1, round(shares["gpu_other_processes"]))
        text = f"{count} other process{'es are' if count > 1 else ' is'} on the card (a vLLM server, another run): they"
        text += " take turns with this one, whose own share is lower still."
        found.append(Reason("others", text))
    return found


def _small_kernels(model: float, shares: dict[str, float], facts: Facts) -> Reason:
    text = f"Forward, backward and update take {model:.0%} of the time, and the card idles within them: "
    if _busy(shares):
        text += "the host's CPUs are all busy, so kernels are launched late: leave it some CPUs."
        return Reason("cpu_busy", text)
    text += "its kernels end sooner than the CPU launches new ones. Raise per_device_train_batch_size where memory"
    text += " allows (vram: system/margin_gib), or pack short rows (packing: true)."
    suggest = {}
    if facts.batch and facts.accumulation and facts.accumulation % 2 == 0:
        suggest = {
            "per_device_train_batch_size": 2 * facts.batch,
            "gradient_accumulation_steps": facts.accumulation // 2,
        }
    return Reason("small_kernels", text, suggest)


def _busy(shares: dict[str, float]) -> bool:
    return shares.get("host_cpu_percent", 0.0) >= _CPUS_BUSY


def _short(name: str, shares: dict[str, float]) -> str:
    words = {"data_wait": "waiting for data", "eval": "evaluation", "checkpoint": "checkpoints"}
    words |= {"communication": "waiting for ranks", "h2d": "copies to the device", "callbacks": "our callbacks"}
    words |= {"throttled": "throttling", "others": "other processes on the card", "other": "logging and the rest"}
    share = f" {shares[name]:.0%}" if name in shares else ""
    return words[name] + share
