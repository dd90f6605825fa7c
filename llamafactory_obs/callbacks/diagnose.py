"""`diagnose`: the shapes of `llamafactory-obs diagnose`, live, with what may have caused each of them."""

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from ..alerts.acting import demands
from ..detect import Finding
from ..diagnosis.causes import causes
from ..diagnosis.judge import judge
from ..diagnosis.planned import planned_row
from ..diagnosis.result import Cause
from ..diagnosis.run_facts import RunFacts
from ..diagnosis.shapes import Shapes
from ..errors import ConfigError
from ..logs.kinds import STAGES
from ..logs.read import read
from ..record.schema import Key
from ..texts import speaking
from .base import ObsCallback
from .recent import Recent

#: finding -> the callback that raises it already, where it is on
_TOLD_BY = {
    "nan": "grad_norm_spike",
    "inf": "grad_norm_spike",
    "skipped_step": "grad_norm_spike",
    "grad_norm_spike": "grad_norm_spike",
    "stalled": "grad_norm_spike",
    "overfit": "quality",
    "vram_growth": "vram",
    "low_gpu_use": "system",
    "resume_gap": "continuity",
}
#: steps within which a spike of the loss and an alarm of the gradient norm are the same thing
_SAME = 8
#: candidates named in an alert
_NAMED = 3
#: between two sentences; not the one in "et al. 2020"
_SENTENCE = re.compile(r"\. (?=[A-Z`])")


@dataclass(eq=False)
class Diagnose(ObsCallback):
    """Judges the curve of every step as `llamafactory-obs diagnose` does afterwards: the same detectors, on one row
    after the other. Each alert names the likeliest causes; when training ends one event, `diagnosis`, has the verdict.

    What another callback of the run raises already is not raised twice: a non-finite number, a stalled norm, and a
    spike of the loss with an alarm of the norm (`grad_norm_spike`), over-fitting (`quality`), growing memory (`vram`),
    a card that waits (`system`), a learning rate that the scheduler has not set (`optimizer`), a resume that does not
    go on (the record itself, event `continuity`). Its causes are recorded all the same.
    """

    yaml_name: ClassVar[str] = "diagnose"
    keys: ClassVar[tuple[Key, ...]] = ()

    action: Literal["warn", "save", "stop"] = "warn"
    """What a finding that calls for the end of the run does besides: save a checkpoint, or save one and stop."""

    window: int = 512
    """Rows in which the cause of a finding is looked for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window < 64:
            raise ValueError(f"window must be at least 64 rows, got {self.window}")

    def begin(self) -> None:
        trainer = self.run.trainer
        args = trainer.args
        self._is_main = trainer.state.is_world_process_zero
        self._max_steps = trainer.state.max_steps or None
        self._others = {callback.yaml_name for callback in self.run.callbacks}
        settings = {name: getattr(args, name, None) for name in ("fp16", "bf16", "learning_rate", "warmup_steps")}
        kind = STAGES.get(self.context.stage or "", "sft")
        self._shapes = Shapes(RunFacts(kind=kind, max_steps=self._max_steps, settings=settings))
        self._recent = Recent(Path(args.output_dir), kind, self.window)
        self._resumed = trainer.state.global_step
        self._norm_alarm = -_SAME
        self._outside = self._newly_outside = False
        self._said: dict[str, int] = {}
        self._ended = False

    def row(self, row) -> None:
        values = row.values
        if self._resumed and row.step > self._resumed and not self.run.replaying:
            self._shapes.begin("resume")
            self._recent.resume(self._resumed)
            self._resumed = 0
        self._recent.add(row.step, values)
        outside = _is_set_from_outside(row.facts.get("rates"))
        self._newly_outside, self._outside = outside and not self._outside, outside
        self._tell(self._shapes.update(row.step, planned_row(values)))

    def evaluated(self, metrics: dict) -> None:
        numbers = {f"eval/{name[5:]}": float(v) for name, v in metrics.items() if _is_number(v) and name[:5] == "eval_"}
        if numbers and not self._ended:
            self._tell(self._shapes.update(self.run.trainer.state.global_step, numbers))

    def end(self) -> None:
        self._ended = True
        self._tell(self._shapes.finish())
        if self._is_main:
            self._conclude()

    # ---- what is said -------------------------------------------------------------------------------------------

    def _tell(self, found: Iterable[Finding]) -> None:
        for finding in found:
            if self.run.replaying:
                continue
            if finding.name == "grad_norm_spike" and finding.level == "error":
                self._norm_alarm = finding.step
            if finding.level == "info":
                if not self._is_told(finding):
                    self.run.alert(self.yaml_name, finding)
                continue
            candidates = self._causes(finding)
            if self._is_told(finding):
                self._say_causes(finding, candidates)
            else:
                self.run.alert(self.yaml_name, _with_causes(finding, candidates))
            if finding.action == "kill":
                for what in demands(self.action, finding.name):
                    self.run.request(what, finding.step)

    def _is_told(self, finding: Finding) -> bool:
        """Does another callback raise it?"""
        name = finding.name.removesuffix("_over")
        if name == "lr_anomaly":  # `optimizer` says it once, when it begins
            return self._newly_outside and finding.evidence.get("what") == "jump" and "optimizer" in self._others
        if name in ("spike", "diverged") and finding.action != "kill":
            return "grad_norm_spike" in self._others and finding.step - self._norm_alarm <= _SAME
        return _TOLD_BY.get(name) in self._others

    def _causes(self, finding: Finding) -> list[Cause]:
        """From the rows so far; on the first rank, which alone writes."""
        if not self._is_main:
            return []
        with speaking("en"):  # they go into the record
            return causes(self._recent.curves(self._max_steps), finding)

    def _say_causes(self, finding: Finding, candidates: list[Cause]) -> None:
        """What another callback has raised: only why, where that is known; the same is not said twice."""
        first = candidates[0] if candidates else None
        if first is None or first.name == "unknown" or self._said.get(first.name, -_SAME) > finding.step - _SAME:
            return
        self._said[first.name] = finding.step
        text = f"The {finding.name.replace('_', ' ')} of step {finding.step}: {_in_words(candidates)}"
        evidence = {"finding": finding.name, "causes": [asdict(one) for one in candidates[:_NAMED]]}
        self.run.event("diagnosis", self.yaml_name, "causes", text, step=finding.step, evidence=evidence)

    def _conclude(self) -> None:
        """The verdict on the whole record, as `llamafactory-obs diagnose` gives it."""
        try:
            curves = read(self._recent.folder)
        except ConfigError:
            curves = self._recent.curves(self._max_steps)
        with speaking("en"):
            said = judge(curves)
        listed = [
            finding.to_dict() | {"causes": [asdict(one) for one in said.causes.get(place, [])[:_NAMED]]}
            for place, finding in enumerate(said.findings)
        ]
        text = f"{said.verdict}: {said.headline}"
        candidates = said.causes.get(0) if said.verdict != "healthy" else None
        if candidates:
            text += f" {_in_words(candidates)}"
        evidence = {"verdict": said.verdict, "findings": listed, "unseen": said.unseen}
        suggest = said.findings[0].suggest if said.verdict != "healthy" and said.findings else {}
        about = {"level": "warn" if said.action == "kill" else "info", "evidence": evidence, "suggest": suggest}
        self.run.event("diagnosis", self.yaml_name, "verdict", text, action=said.action, **about)


def _is_set_from_outside(rates: tuple[list, list] | None) -> bool:
    """Is the first group's rate another one than the scheduler's? `optimizer` puts both into the row."""
    if not rates or not rates[0] or None in (rates[0][0], rates[1][0]):
        return False
    return not math.isclose(rates[0][0], rates[1][0], rel_tol=1e-6, abs_tol=1e-18)


def _with_causes(finding: Finding, candidates: list[Cause]) -> Finding:
    if not candidates:
        return finding
    evidence = finding.evidence | {"causes": [asdict(one) for one in candidates[:_NAMED]]}
    return replace(finding, text=f"{finding.text} {_in_words(candidates)}", evidence=evidence)


def _in_words(candidates: list[Cause]) -> str:
    """The likeliest cause, the first sentence of what speaks for it, and what to do."""
    first = candidates[0]
    if first.name == "unknown":
        return f"Its cause is not known. {first.next}"
    why = _SENTENCE.split(first.supports[0], 1)[0].rstrip(".")
    return f"Likely cause: {first.name}. {why}. Next: {first.next}"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
