"""Gate 3: judge a finished smoke run by what it left behind."""

from dataclasses import dataclass, field
from pathlib import Path

from ...errors import ConfigError
from ...record.reader import Layers, RunRecord
from ...texts import text
from ..result import SKIPPED, Check, as_gate
from ..run_config import RunConfig
from .ended import check_ended, no_folder, no_record
from .evidence import Evidence, read_evidence
from .learning import check_finite, check_gradients, check_moves
from .loads import check_loads
from .lora import check_target
from .memory import check_longest, check_peak
from .same_config import check_same_config
from .saved import check_complete, check_resume, check_saved

#: all checks in their order, but the first, which decides whether there is anything to look at
_NAMES = (
    "same_config vram_peak longest_rows loss_finite loss_moves gradients lora_target checkpoint_saved "
    "checkpoint_complete checkpoint_resume checkpoint_loads"
)


@dataclass
class SmokeReport:
    """What the gate found.

    Attributes:
        checks: in the order in which a run goes wrong.
        folder: the smoke run's folder; None where none was named.
        steps: optimizer steps on record.
        losses: step -> training loss.
        mask_share: share of the smoke run's real tokens that were in the loss; the mask gate judges it. None where it
            is not on record.
        peak_gib: what torch reserved at most; None on a CPU and where it is not on record.
    """

    checks: list[Check]
    folder: Path | None = None
    steps: int = 0
    losses: dict[int, float] = field(default_factory=dict)
    mask_share: float | None = None
    peak_gib: float | None = None

    def gate(self) -> dict:
        """The gate of the contract."""
        return as_gate("smoke", self.checks)

    def as_dict(self) -> dict:
        """The gate with what it rests on; a loss that is not finite is null."""
        losses = {str(step): loss if abs(loss) < float("inf") else None for step, loss in self.losses.items()}
        return {
            **self.gate(),
            "folder": None if self.folder is None else str(self.folder),
            "steps": self.steps,
            "losses": losses,
            "mask_share": self.mask_share,
            "peak_gib": self.peak_gib,
        }


def smoke_gate(
    config: RunConfig,
    folder: Path | None,
    *,
    longest_tokens: int | None = None,
    limit_gib: float,
    margin_gib: float,
    estimate_gib: float | None = None,
    step: int = 10,
    device: str = "auto",
) -> SmokeReport:
    """Judge a finished smoke run. Nothing is trained and nothing in the folder is changed.

    Args:
        config: the run config that it is to vouch for.
        folder: the smoke run's output folder; None where there is none.
        longest_tokens: longest row of the training split after `cutoff_len`, by the mask gate.
        limit_gib, margin_gib: the card's size, and what must stay free of it at the peak.
        estimate_gib: what was estimated before; shown beside the measured peak.
        step: steps of the smoke run, and the number of its checkpoint.
        device: where the checkpoint is loaded: auto (the GPU only where there is room) | cpu | cuda ...

    Raises:
        ConfigError: `device` is none that torch has.
    """
    if folder is None or not folder.is_dir():
        return SmokeReport(_nothing_but(no_folder(config, folder, step)), folder)
    try:
        run = read_evidence(config, folder, step)
    except ConfigError as error:
        unborn = Evidence(config, folder, RunRecord(folder, {}, {}, [], Layers()), step)
        target = check_target(unborn)  # a name that fits nothing ends a run before its record begins
        checks = _nothing_but(no_record(config, folder, step, error))
        return SmokeReport([target if one.name == target.name else one for one in checks], folder)
    checks = [
        check_ended(run),
        check_same_config(run),
        check_peak(run, limit_gib, margin_gib, estimate_gib),
        check_longest(run, longest_tokens),
        check_finite(run),
        check_moves(run),
        check_gradients(run),
        check_target(run),
        check_saved(run),
        check_complete(run),
        check_resume(run),
        check_loads(run, device),
    ]
    peak = max(run.finite("system/peak_reserved_gib").values(), default=None)
    return SmokeReport(checks, folder, run.last_step, run.column("train/loss"), _mask_share(run), peak)


def _nothing_but(first: Check) -> list[Check]:
    return [first, *(Check(name, SKIPPED, None, None, text("smoke.none")) for name in _NAMES.split())]


def _mask_share(run: Evidence) -> float | None:
    supervised, tokens = run.column("data/supervised_tokens"), run.column("data/tokens")
    total = sum(tokens.values())
    return round(sum(supervised.values()) / total, 4) if total else None
