"""What DeepSpeed ZeRO and FSDP divide by the number of cards."""

from dataclasses import dataclass

from .setup import Setup


@dataclass(frozen=True)
class Shares:
    """Divisors for one card, and how DeepSpeed holds the trained weights.

    Attributes:
        itemsize: bytes of a trained weight and its gradient where that is not the parameter's own; else None.
        master: fp32 copies of the trained weights are part of the optimizer's states.
    """

    weights: int = 1
    gradients: int = 1
    optimizer: int = 1
    itemsize: int | None = None
    master: bool = False
    notes: tuple[str, ...] = ()


def shares(setup: Setup) -> Shares:
    """ZeRO 1 shards optimizer states, 2 the gradients too, 3 and FSDP's full shard the weights as well."""
    n = setup.world
    if setup.shard == "none":
        return Shares()
    notes = ["not modelled: the gather and reduce buffers of ZeRO and FSDP (a few hundred MiB, one layer's weights)"]
    if setup.offload_parameters or setup.offload_optimizer:
        notes.append("offloaded tensors are in RAM; the pinned buffers they pass through are not modelled")
    if setup.shard.startswith("fsdp"):
        full = setup.shard == "fsdp"
        return Shares(n if full else 1, n, n, notes=tuple(notes))
    stage = int(setup.shard[-1])
    half = setup.precision != "none"  # DeepSpeed casts the whole module when bf16 or fp16 is on
    return Shares(
        weights=n if stage == 3 else 1,
        gradients=n if stage >= 2 else 1,
        optimizer=n,
        itemsize=2 if half else None,
        master=half,
        notes=tuple(notes),
    )
