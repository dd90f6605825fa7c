"""All that is known about a resume before it starts: what would happen, what should be done, and what that costs."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..checkpoint.examine import Examined
from ..checkpoint.files import Incomplete
from ..checkpoint.trainer_state import read_state
from ..preflight.ahead.adapter_settings import adapter_of
from ..preflight.ahead.effective import Effective
from ..preflight.ahead.output_dir import no_folder
from ..preflight.ahead.resume_changes import (
    DATA,
    LENGTH,
    MODEL,
    base_rates,
    cadence,
    find_changes,
    read_before,
    whole_run,
)
from ..preflight.ahead.start import NEVER as STAGES
from ..preflight.ahead.start import Start, how_it_starts
from ..preflight.run_config import Arguments, RunConfig, parsed
from .agree import Agreement, agreement
from .as_it_stands import as_it_stands
from .changes import batches, judge_changes, length
from .choose import Choice, choose, deep, named
from .fate import Fate, fate_of
from .folder import around
from .launch import Launch, environment_of, override, survives_torchrun
from .left import Left, left_of
from .point import GRAVE, WARN, Point, worst
from .recorded import recorded
from .trackers import Continued, continued

#: verdicts, from best to worst
EXACT, CHANGED, WARM = "continues exactly", "continues, changed", "warm start only"
MISFIT, DONE = "does not fit", "nothing left to train"
NONE, NEVER = "nothing to resume", "stage never resumes"


@dataclass
class Plan:
    """A resume, before it starts.

    Attributes:
        config: what was given.
        output: the run's output folder.
        start: what LlamaFactory would do as it stands; stands: the same as points, the first says it.
        choice: the checkpoint to resume from. fate: what becomes of it.
        state: points about the checkpoint and the folder. changes: about keys that differ.
        agreement: data, template, model ... by content.
        left: what is left to train; None without a checkpoint.
        trackers: how their runs go on.
        launch: the command; None where there is nothing to resume from, or no command can say it.
        stage: sft, dpo ...; never: it is one that LlamaFactory does not resume.
    """

    config: RunConfig
    output: Path
    start: Start
    choice: Choice
    stands: list[Point] = field(default_factory=list)
    fate: Fate = field(default_factory=Fate)
    state: list[Point] = field(default_factory=list)
    changes: list[Point] = field(default_factory=list)
    agreement: Agreement = field(default_factory=Agreement)
    left: Left | None = None
    trackers: Continued = field(default_factory=Continued)
    launch: Launch | None = None
    stage: str = "sft"
    never: bool = False

    @property
    def best(self) -> Examined | None:
        """The checkpoint to resume from."""
        return self.choice.best

    @property
    def points(self) -> list[Point]:
        """All that weighs on the resume by `launch`; `stands` is about another start."""
        left = self.left.points() if self.left is not None else []
        return [*self.state, *self.changes, *self.agreement.points, *left, *self.trackers.points]

    @property
    def verdict(self) -> str:
        """One of the words above."""
        if self.never:
            return NEVER
        if self.best is None or self.fate.ends is not None:
            return NONE
        if self.left is not None and self.left.steps == 0:
            return DONE
        if any(point.name == "changed.model" for point in self.changes):
            return MISFIT
        if not self.choice.good:
            return WARM
        return EXACT if worst(self.points) not in (GRAVE, WARN) else CHANGED

    @property
    def may_start(self) -> bool:
        """May `--exec` start it without `--accept`?"""
        return self.verdict in (EXACT, CHANGED) and worst(self.points) != GRAVE and self.launch is not None

    @property
    def can_start(self) -> bool:
        """Can it be started at all? A training that ends at once, or a second one in the same folder, cannot."""
        ready = self.launch is not None and not self.launch.open
        return ready and self.verdict not in (NONE, NEVER, DONE) and not self.choice.running

    @property
    def exit_code(self) -> int:
        """0: it continues exactly as asked; 1: something is lost, ignored, changed or not known."""
        return 0 if self.verdict == EXACT else 1


def make_plan(config: RunConfig, asked: str | None = None, say: Callable[[str], None] = lambda line: None) -> Plan:
    """Look at everything; nothing is written.

    Args:
        config: of `read_run_config`.
        asked: `--from`.
        say: is told what is going on.

    Raises:
        ConfigError: LlamaFactory refuses the config, or there is no such checkpoint.
    """
    with parsed(config) as arguments:
        run = Effective(config, arguments)
        start, output = how_it_starts(run), run.output_dir
        if no_folder(output):
            plan = Plan(config, output, start, Choice(output))
            plan.stands = as_it_stands(run, start, deep, None)
            return plan
        wanted = named(output, asked) if asked is not None else start.checkpoint if start.reason == "asked" else None
        folder = wanted.parent if wanted is not None else output
        choice = choose(folder, wanted, say)
        if not choice.good and wanted is not None and not asked:  # the config's own choice: a good one is better
            for place in dict.fromkeys((folder, output)):  # `resume_from_checkpoint` may name the output folder itself
                if not choice.good and (other := choose(place, None, say)).good:
                    choice = other
        stage = run.get("stage")
        plan = Plan(config, output, start, choice, stage=stage, never=stage in STAGES)
        known = {} if choice.best is None else {choice.best.path.resolve(): choice.best}

        def examined(path: Path) -> tuple[Examined, Fate]:
            one = known.get(path.resolve()) or deep(path, say)
            return one, fate_of(one)

        if choice.best is not None and not plan.never:
            plan.fate = fate_of(choice.best)
            _judge(plan, run, arguments)
        total = plan.left.total if plan.left is not None else run.total_steps
        plan.stands = as_it_stands(run, start, examined, total)
        if start.kind == "resume":
            _unfit(plan, run)
        plan.state += around(run, plan)
    return plan


def _unfit(plan: Plan, run: Effective) -> None:
    """What else is wrong with a resume as it stands: it does not fit, or other processes are started than before."""
    itself = find_changes(run, adapter_of(plan.start.checkpoint, run), [])
    keys = [point.values["key"] for point in plan.changes if point.name == "changed.model"]
    if keys := list(dict.fromkeys([*keys, *(key for key in itself if key in MODEL)])):
        plan.stands = [point for point in plan.stands if point.name not in ("stands.loses", "stands.wrong")]
        plan.stands.append(Point("stands.misfit", GRAVE, {"keys": ", ".join(keys)}))
    before = recorded(plan.start.checkpoint.parent).get("world") or {}
    if isinstance(before.get("world_size"), int) and before["world_size"] != run.processes:
        values = {"now": run.processes, "before": before["world_size"]}
        plan.stands.append(Point("stands.processes", GRAVE, values))


def _judge(plan: Plan, run: Effective, arguments: Arguments) -> None:
    """Everything about the chosen checkpoint."""
    best = plan.best
    folder = best.path.parent
    record = recorded(folder)
    try:
        state = read_state(best.path)
    except Incomplete:
        return
    step = state["global_step"]
    environment, open_ = _environment(record.get("world") or {})
    with _set(environment):
        changes = find_changes(run, read_before(run, best.path, state), base_rates(best.path))
        rows = ((record.get("data") or {}).get("rows") or {}).get("rows")
        if isinstance(rows, int) and not run.packs and not set(changes) & set(DATA):
            run = Effective(run.config, arguments, rows)
        total, _ = whole_run(run, state, changes)
        constant = run.word("lr_scheduler_type").startswith("constant")
        if total is not None and step < total:
            changes = length(changes, state.get("max_steps"), total, constant)
        else:  # nothing left, or not known: that is said, and not that the curve changes
            changes = {key: change for key, change in changes.items() if total is None or key not in LENGTH}
        changes |= cadence(run, state, total)
        plan.agreement = agreement(run, record, changes, arguments.data)
        plan.changes = judge_changes(run, changes, plan.output, step)
        if run.get("ignore_data_skip"):
            plan.changes.append(Point("changed.data_skip", GRAVE))
        plan.left = left_of(folder, state, total, batches(run, changes))
        plan.trackers = continued(run, record, folder)
    if plan.fate.ends is None:
        plan.launch = _launch(plan, run, environment, open_)


def _environment(world: dict) -> tuple[dict[str, str], list[str]]:
    """Variables that start as many processes as before; none where this machine has fewer cards, or the number is set
    already: then it is meant."""
    import torch

    if any(os.environ.get(name) for name in ("NPROC_PER_NODE", "WORLD_SIZE", "NNODES")):
        return {}, []
    environment, open_ = environment_of(world)
    cards, local = torch.cuda.device_count(), world.get("local_world_size")
    if isinstance(local, int) and 0 < cards < local:
        return {}, []
    if not environment and cards > 1 and local == 1:  # LlamaFactory would start one process for each card
        return {"NPROC_PER_NODE": "1"}, []
    return environment, open_


@contextlib.contextmanager
def _set(environment: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _launch(plan: Plan, run: Effective, environment: dict[str, str], open_: list[str]) -> Launch | None:
    keys = {"resume_from_checkpoint": str(plan.best.path), **plan.trackers.overrides}
    given = [word for word in plan.config.overrides if word.partition("=")[0] not in (*keys, "overwrite_output_dir")]
    said = [override(key, value) for key, value in keys.items()]
    if run.get("overwrite_output_dir"):
        said.append("overwrite_output_dir=false")
    words = [str(plan.config.path), *given, *said]
    torchrun = "FORCE_TORCHRUN" in environment or "NPROC_PER_NODE" in environment or run.local_processes > 1
    if torchrun and not survives_torchrun(words):
        plan.state.append(Point("state.blanks", GRAVE, {"checkpoint": str(plan.best.path)}))
        return None
    return Launch(words, {**environment, **plan.trackers.environment}, open_)
