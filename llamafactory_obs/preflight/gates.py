"""The three gates in their order, and what one tells the next."""

import contextlib
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .. import texts
from ..errors import ConfigError
from ..pipes import nobody_reads
from .card import limit_gib, margin_gib
from .result import ERROR, FAIL, PASS, SKIPPED, Check, as_gate
from .run_config import RunConfig
from .wish import GATES, Wish


@dataclass
class Preflight:
    """What the gates found.

    Attributes:
        gates: as in the contract, in the order of `GATES`.
        notes: what else is worth a line, by gate.
        seconds: how long each took.
    """

    gates: list[dict] = field(default_factory=list)
    notes: dict[str, list[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """No gate failed, none could not be judged."""
        return bool(self.gates) and all(gate["status"] in (PASS, SKIPPED) for gate in self.gates)

    def as_dict(self) -> dict:
        """The object of the contract, with how long each gate took."""
        return {"passed": self.passed, "gates": self.gates, "notes": self.notes, "seconds": self.seconds}


def preflight(config: RunConfig, wish: Wish, say: Callable[[str], None]) -> Preflight:
    """Judge the gates that are wished for.

    The mask comes first, because it reads the data: its longest row decides the memory, and the memory (measured by
    the smoke run, else estimated) decides whether the server beside it leaves room. The result is in the order of
    `GATES`.

    Args:
        say: told what is being done, one line each.

    Raises:
        ConfigError: the config, the data, the suite or the model cannot be read.
    """
    return _Flight(config, wish, say).run()


class _Flight:
    def __init__(self, config: RunConfig, wish: Wish, say: Callable[[str], None]):
        self.config, self.wish, self.say = config, wish, say
        self.found = Preflight()
        self.longest: int | None = None
        self.rows: int | None = None
        self.mask_status = ""
        self.peak: float | None = None

    def run(self) -> Preflight:
        self._refuse()
        gates = {}
        steps = {"mask": self._mask, "smoke": self._smoke, "baseline": self._baseline}
        for name in sorted(self.wish.gates, key=list(steps).index):
            self.say(texts.text("preflight.gate", name=name))
            start = time.monotonic()
            gates[name] = self._guarded(name, steps[name])
            self.found.seconds[name] = round(time.monotonic() - start, 1)
        self.found.gates = [gates[name] for name in GATES if name in gates]
        return self.found

    def _refuse(self) -> None:
        """What a later gate would refuse, before the first one writes a confirmation or makes a smoke run."""
        from ..probe.backends.device import pick_device
        from .baseline.conditions import suite_of
        from .baseline.server import endpoint_of
        from .rehearsal.folder import check_folder

        if "baseline" in self.wish.gates:
            suite_of(self.config, self.wish.suite)
            endpoint_of(self.config, self.wish.endpoint)
        if "smoke" in self.wish.gates and self.wish.device != "auto":
            pick_device(self.wish.device, None)
        if self.wish.run_smoke:
            check_folder(self.config, self.wish.smoke or smoke_folder(self.config))

    def _guarded(self, name: str, judge: Callable[[], dict]) -> dict:
        """A fault of ours in one gate must not take the others' answers away; it is never a pass."""
        try:
            return judge()
        except ConfigError:
            raise
        except Exception as error:
            if nobody_reads(error):
                raise
            said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            check = Check(
                f"{name}_judged",
                ERROR,
                None,
                None,
                texts.text("preflight.judged", said=said),
                texts.text("preflight.bug"),
            )
            return as_gate(name, [check])

    # ---- the gates ----------------------------------------------------------------------------------------------

    def _mask(self) -> dict:
        from .mask.gate import mask_gate

        report = mask_gate(self.config, self.wish.samples, show=0, accept="mask" in self.wish.confirm)
        train = next((split for split in report.splits if split["split"] == "train"), None)
        if train is not None:
            self.longest = train["longest_used"] or None
            self.rows = train["rows"] if self.wish.samples is None else None
        if report.note:
            self.found.notes["mask"] = [report.note]
        gate = report.gate()
        self.mask_status = gate["status"]
        return gate

    def _smoke(self) -> dict:
        from .ahead.checks import ahead_checks
        from .smoke.gate import smoke_gate

        folder = self.wish.smoke or smoke_folder(self.config)
        checks = []
        if self.wish.run_smoke:
            if self.mask_status in (FAIL, ERROR):
                text = texts.text("preflight.smoke.mask_first")
                checks.append(Check("smoke_run", ERROR, None, None, text, texts.text("preflight.smoke.repair_mask")))
            else:
                self._run_smoke(folder)
        if not checks:
            report = smoke_gate(
                self.config,
                folder,
                longest_tokens=self.longest,
                limit_gib=limit_gib(self.config)[0],
                margin_gib=margin_gib(self.config),
                estimate_gib=self._estimate,
                device=self.wish.device,
            )
            self.peak = report.peak_gib
            checks += report.checks
        checks += ahead_checks(self.config, endpoint=self.wish.endpoint, train_rows=self.rows)
        return as_gate("smoke", checks)

    def _run_smoke(self, folder: Path) -> None:
        from .rehearsal.smoke import run_smoke

        run = run_smoke(self.config, folder, say=self.say)
        took = (
            texts.text("preflight.smoke.took", seconds=run.seconds)
            if run.exit_code == 0
            else texts.text("preflight.smoke.exit", code=run.exit_code)
        )
        self.found.notes["smoke"] = [texts.text("preflight.smoke.run", took=took, log=run.log)]

    def _baseline(self) -> dict:
        from .baseline.gate import baseline_gate

        report = baseline_gate(
            self.config,
            suite=self.wish.suite,
            evidence=self.wish.evidence,
            endpoint=self.wish.endpoint,
            needed_gib=self.peak or self._estimate,
        )
        return report.gate()

    @functools.cached_property
    def _estimate(self) -> float | None:
        """What the training needs on the card by calculation, GiB; None where it cannot be told."""
        from .memory.estimate import estimate

        with contextlib.suppress(ConfigError):
            made = estimate(self.config, longest_tokens=self.longest)
            return made.total_gib if made.complete else None
        return None


def smoke_folder(config: RunConfig) -> Path:
    """Where this config's smoke run lies: `obs: {smoke: ...}`, or `<output_dir>-smoke`."""
    if config.settings.smoke is not None:
        return config.settings.smoke
    output_dir = Path(str(config.given.get("output_dir") or config.path.stem))
    return output_dir.with_name(f"{output_dir.name}-smoke")
