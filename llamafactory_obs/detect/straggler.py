"""One rank that is slower than the others, again and again."""

from collections import deque
from statistics import median

from .finding import Finding

_LIMITS = (
    "Times of a rank are its own work without waiting for others. A batch with more tokens takes longer too: compare"
    " data/tokens per rank. One rank being slow says nothing of why the others are fast."
)

#: part of a step -> what to look at when the slow rank loses its time there
_CURES = {
    "data_wait": "its data loader is slow: disk and free CPUs of that host, dataloader_num_workers",
    "h2d": "its copies to the device are slow: pinned memory, PCIe link of that card",
    "forward": "its compute is slow: clocks and temperature of that card, another process on it, longer samples",
    "backward": "its compute is slow: clocks and temperature of that card, another process on it, longer samples",
    "optimizer": "its update is slow: clocks of that card, CPU offload",
    "callbacks": "our callbacks are slow there: see the costs in the end event",
    "checkpoint": "saving is slow there: that host's disk",
    "other": "something outside the Trainer's parts is slow there: trackers, other callbacks, the host's CPU",
}


class StragglerDetector:
    """Finds a rank that is the slowest in most of the last steps and costs the others a share of the step.

    With synchronous training every step takes as long as its slowest rank. Each step the slowest rank's own time is
    compared with the median of the others; the finding needs the same rank in `often` of the last `window` steps with a
    median excess of `share` of the step. It is over when the median excess is below half of that.

    Args:
        hosts: the host name of each rank.
        share: of a step that the slow rank costs.
        window: steps.
        often: share of these steps in which it is the slowest.
    """

    def __init__(self, hosts: list[str], *, share: float = 0.15, window: int = 20, often: float = 0.8) -> None:
        if not (share > 0 and 0 < often <= 1 and window >= 1):
            raise ValueError("share must be above 0, often from 0 to 1 and window at least 1")
        self._hosts, self._share, self._often = hosts, share, often
        self._steps: deque[tuple[int, float, str, float]] = deque(maxlen=window)  # rank, excess, part, seconds
        self._slow: int | None = None
        self._since = 0

    def update(self, step: int, parts: dict[str, list[float]]) -> Finding | None:
        """Takes one ordinary step (no evaluation, no checkpoint).

        Args:
            parts: part of the step -> seconds on each rank; `communication` is left out by the caller.
        """
        own = [sum(seconds) for seconds in zip(*parts.values(), strict=True)]
        slowest = max(range(len(own)), key=own.__getitem__)
        usual = median(time for rank, time in enumerate(own) if rank != slowest)
        lost = {
            part: seconds[slowest] - median(time for rank, time in enumerate(seconds) if rank != slowest)
            for part, seconds in parts.items()
        }
        part = max(lost, key=lost.__getitem__)
        excess = (own[slowest] - usual) / own[slowest] if own[slowest] > 0 else 0.0
        self._steps.append((slowest, excess, part, own[slowest] - usual))
        if self._slow is not None:
            return self._over(step)
        if len(self._steps) < self._steps.maxlen:
            return None
        ranks = [rank for rank, *_ in self._steps]
        rank = max(set(ranks), key=ranks.count)
        mine = [entry for entry in self._steps if entry[0] == rank]
        excess = median(entry[1] for entry in mine)
        if len(mine) < self._often * len(self._steps) or excess < self._share:
            return None
        self._slow, self._since = rank, step
        return self._found(step, rank, mine, excess)

    def _found(self, step: int, rank: int, mine: list, excess: float) -> Finding:
        parts = [entry[2] for entry in mine]
        part = max(set(parts), key=parts.count)
        seconds = median(entry[3] for entry in mine)
        text = (
            f"rank {rank} ({self._hosts[rank]}) is slow: {len(mine)} of the last {len(self._steps)} steps waited"
            f" {seconds:.3g} s for it, {excess:.0%} of a step; mostly in {part}: {_CURES.get(part, 'look there')}"
        )
        evidence = {
            "rank": rank,
            "host": self._hosts[rank],
            "steps": len(mine),
            "of_steps": len(self._steps),
            "lost_share": excess,
            "lost_s": seconds,
            "part": part,
        }
        return Finding("straggler", "warn", step, text, evidence, "keep", {}, _LIMITS)

    def _over(self, step: int) -> Finding | None:
        mine = [excess if rank == self._slow else 0.0 for rank, excess, *_ in self._steps]
        if median(mine) >= self._share / 2:
            return None
        rank, self._slow = self._slow, None
        text = f"rank {rank} keeps up again; it was slow since step {self._since}"
        return Finding("straggler_over", "info", step, text, {"rank": rank, "since": self._since}, "keep", {}, _LIMITS)
