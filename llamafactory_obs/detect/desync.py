"""Numbers that must be equal on all ranks and are not."""

import math

from .finding import Finding
from .numbers import plain

_LIMITS = (
    "Equal numbers do not prove equal ranks: gradient norms are compared every step, weights only now and then. On"
    " different kinds of cards the last bits may differ without harm at first."
)

#: relative difference up to which norms of equal gradients may differ (other kernels on other cards)
_TOLERANCE = 1e-5


class DesyncDetector:
    """Compares what synchronous training keeps equal: gradient norm, learning rate, epoch, and the weights themselves.

    Under DDP the reduced gradients are the same bits on every rank, so are the updates and the weights. A rank that is
    out of step trains another model; the average of the two is what is saved. Each key is reported once until it is
    equal again.

    Args:
        exact: keys compared bit by bit; all others up to 1e-5.
    """

    def __init__(self, exact: frozenset[str] = frozenset()) -> None:
        self._exact = exact
        self._differs: dict[str, int] = {}

    def update(self, step: int, per_rank: dict[str, list[float | None]]) -> list[Finding]:
        """Takes, of one step, the numbers that must be equal: key -> value on each rank, None where a rank has none."""
        findings = []
        for key, numbers in per_rank.items():
            apart = self._apart(key, numbers)
            if apart and key not in self._differs:
                self._differs[key] = step
                findings.append(_found(step, key, numbers))
            elif not apart and key in self._differs:
                since = self._differs.pop(key)
                text = f"{key} is the same on all ranks again; it differed since step {since}"
                evidence = {"column": key, "since": since}
                findings.append(Finding("desync_over", "info", step, text, evidence, "keep", {}, _LIMITS))
        return findings

    def _apart(self, key: str, numbers: list[float | None]) -> bool:
        known = [number for number in numbers if number is not None]  # where a callback is off, there is no number
        finite = [number for number in known if math.isfinite(number)]
        if len(finite) < len(known):
            return bool(finite)  # some ranks have NaN, others not
        if key in self._exact or not finite:
            return len(set(finite)) > 1
        return max(finite) - min(finite) > _TOLERANCE * max(map(abs, finite))


def _found(step: int, key: str, numbers: list[float | None]) -> Finding:
    shown = ", ".join("none" if number is None else f"{number:.6g}" for number in numbers[:8])
    text = (
        f"{key} differs between ranks since step {step} ({shown}): they no longer train the same model. Stop, resume"
        " from the last checkpoint before it, and look for a rank with other code, data, seed or a callback of its own"
        " that changes gradients or weights"
    )
    evidence = {"column": key, "values": [plain(number, 17) for number in numbers]}
    return Finding("desync", "error", step, text, evidence, "kill", {}, _LIMITS)
