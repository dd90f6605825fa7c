"""What may be asked of the gates."""

from dataclasses import dataclass
from pathlib import Path

#: in the order of the work; each that is skipped can waste a whole run
GATES = ("baseline", "mask", "smoke")


@dataclass(frozen=True)
class Wish:
    """What is asked of the gates.

    Attributes:
        gates: which ones, in any order.
        samples: rows per split for the mask gate; None takes all.
        suite, evidence, endpoint: of the baseline; None for the config's own or the default.
        smoke: the smoke run's output folder; None for the config's own or `<output_dir>-smoke`.
        run_smoke: make the smoke run first.
        confirm: gates whose failures are accepted where they may be.
        device: where checkpoint-10 is loaded, see `smoke_gate`.
    """

    gates: tuple[str, ...] = GATES
    samples: int | None = None
    suite: Path | None = None
    evidence: Path | None = None
    endpoint: str | None = None
    smoke: Path | None = None
    run_smoke: bool = False
    confirm: tuple[str, ...] = ()
    device: str = "auto"
