"""The incidents: what is right for `diagnose` to say of each, where it applies, and what would have caught it."""

from collections.abc import Callable
from dataclasses import dataclass

from ...preflight.run_config import RunConfig

HEALTHY = "healthy"


@dataclass(frozen=True)
class Check:
    """An automatic check that catches the incident.

    Attributes:
        where: callbacks | obs | gate: a line for one of our two keys, or a command before the start.
        line: ready to be copied.
        name: of the callback; empty for the others.
    """

    where: str
    line: str
    name: str = ""


@dataclass(frozen=True)
class Incident:
    """One of them.

    Attributes:
        verdicts, causes, actions: what is right for the verdict, the first cause of the first finding, the action.
        within: steps by which the beginning that is named may be off.
        lanes: columns that show it.
        checks: what would have caught it, the earliest first.
        ends: the training ends in it.
        from_start: it is so from the first step on.
        unfit: why a config has no such incident, as the name of a text; empty where it has.
    """

    name: str
    verdicts: tuple[str, ...]
    causes: tuple[str, ...]
    actions: tuple[str, ...]
    within: int
    lanes: tuple[str, ...]
    checks: tuple[Check, ...]
    ends: bool = False
    from_start: bool = False
    unfit: Callable[[RunConfig], str] = lambda config: ""


def _no_labels(config: RunConfig) -> str:
    return "" if config.given.get("stage", "sft") in ("pt", "sft") else "unfit.labels"


def _scaled(config: RunConfig) -> str:
    return "unfit.nan" if config.given.get("fp16") else ""


_PREFLIGHT = "llamafactory-obs preflight RUN.yaml --run-smoke"

INCIDENTS: dict[str, Incident] = {
    one.name: one
    for one in (
        Incident(
            "oom",
            verdicts=("oom",),
            causes=("special_batch",),
            actions=("kill",),
            within=1,
            lanes=("train/loss", "data/max_length", "system/rss_gib", "system/peak_reserved_gib"),
            checks=(Check("gate", _PREFLIGHT), Check("callbacks", "- vram", "vram")),
            ends=True,
        ),
        Incident(
            "spike",
            verdicts=("lr_anomaly", "spike", "diverged"),
            causes=("lr_change",),
            actions=("keep", "kill"),
            within=3,
            lanes=("train/loss", "train/grad_norm", "train/lr"),
            checks=(
                Check("callbacks", "- grad_norm_spike: {action: save}", "grad_norm_spike"),
                Check("callbacks", "- diagnose", "diagnose"),
                Check("obs", "alerts: {stop_on: [lr_anomaly]}"),
            ),
        ),
        Incident(
            "labels",
            verdicts=("spike", "labels_moved"),
            causes=("special_batch",),
            actions=("keep",),
            within=3,
            lanes=("train/loss", "train/grad_norm", "data/labels_moved"),
            checks=(
                Check("gate", "llamafactory-obs mask RUN.yaml"),
                Check("callbacks", "- samples", "samples"),
                Check("obs", "alerts: {stop_on: [labels_moved]}"),
            ),
            unfit=_no_labels,
        ),
        Incident(
            "throughput",
            verdicts=("throughput_drop",),
            causes=("storage",),
            actions=("keep",),
            within=5,
            lanes=("time/step_s", "time/other_s", "system/disk_write_mib_s", "system/tokens_per_sec"),
            checks=(
                Check("callbacks", "- throughput", "throughput"),
                Check("callbacks", "- system", "system"),
                Check("callbacks", "- diagnose", "diagnose"),
            ),
        ),
        Incident(
            "nan",
            verdicts=("nan",),
            causes=("attention_or_kernel",),
            actions=("kill",),
            within=1,
            lanes=("train/loss", "train/grad_norm", "train/param_norm"),
            checks=(
                Check("callbacks", "- grad_norm_spike: {action: stop}", "grad_norm_spike"),
                Check("obs", "alerts: {stop_on: [nan, inf]}"),
            ),
            unfit=_scaled,
        ),
        Incident(
            "lora_off",
            verdicts=("flat",),
            causes=("nothing_trainable",),
            actions=("kill",),
            within=3,
            lanes=("train/loss", "train/grad_norm", "train/lr"),
            checks=(
                Check("gate", _PREFLIGHT),
                Check("callbacks", "- grad_norm_spike: {action: stop}", "grad_norm_spike"),
                Check("obs", "alerts: {stop_on: [stalled, flat]}"),
            ),
            from_start=True,
        ),
    )
}
