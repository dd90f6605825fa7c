"""An estimate beside what a run's record says was measured."""

from dataclasses import asdict, dataclass
from pathlib import Path

from ...errors import ConfigError
from ...record.reader import load_record
from ..run_config import RunConfig
from .estimate import Estimate, estimate


@dataclass(frozen=True)
class Comparison:
    """One number against its measurement.

    Attributes:
        what: `peak allocated` (tensors) or `peak reserved` (with the allocator's gaps), without the CUDA context.
        estimate_gib, measured_gib: the two.
        off: estimate / measured - 1; negative is too low.
        tokens: the longest row of the batch that made the peak, where the record says; the estimate is for it.
    """

    what: str
    estimate_gib: float
    measured_gib: float
    off: float
    tokens: int | None

    def as_dict(self) -> dict:
        """For `--json`."""
        return asdict(self)

    def __str__(self) -> str:
        way = f"{abs(self.off):.1%} {'low' if self.off < 0 else 'high'}"
        return f"{self.what}: estimate {self.estimate_gib:.1f} GiB, measured {self.measured_gib:.1f} GiB: {way}"


def against(config: RunConfig, folder: Path) -> list[Comparison]:
    """Compare with the peaks in a run's `steps.jsonl` (written by the callback `vram` on a GPU).

    The estimate is made for the longest row of the batch that set the run's peak, so that a run on short rows is not
    compared with one on full ones.

    Raises:
        ConfigError: no record, or no GPU memory in it.
    """
    record = load_record(folder)
    peaks = {key: _highest(record.steps.get(f"system/{key}")) for key in ("peak_allocated_gib", "peak_reserved_gib")}
    if not any(peaks.values()):
        raise ConfigError(f"{folder}: its record has no GPU memory (callback `vram` on a GPU writes it)")
    tokens = _longest_at_peak(record.events)
    made = estimate(config, longest_tokens=tokens)
    found = []
    for what, key, without in (
        ("peak allocated", "peak_allocated_gib", ("CUDA context", "allocator")),
        ("peak reserved", "peak_reserved_gib", ("CUDA context",)),
    ):
        if peaks[key]:
            mine = _without(made, without)
            found.append(Comparison(what, mine, peaks[key], mine / peaks[key] - 1, tokens))
    return found


def _without(made: Estimate, names: tuple[str, ...]) -> float:
    return sum(line.gib for line in made.lines if line.name not in names)


def _highest(column: list | None) -> float | None:
    numbers = [value for value in column or [] if isinstance(value, (int, float)) and value > 0]
    return max(numbers) if numbers else None


def _longest_at_peak(events: list[dict]) -> int | None:
    """Of the last `memory_peak` event (each is higher than those before it)."""
    found = [e.get("evidence", {}).get("longest_sequence") for e in events if e.get("kind") == "memory_peak"]
    return found[-1] if found and isinstance(found[-1], int) and found[-1] > 0 else None
