"""The drill: an unbroken training, one that is killed, its resume, and the unbroken one a second time."""

import tempfile
from pathlib import Path

from ...checkpoint.files import Incomplete
from ...errors import ConfigError
from ...preflight.rehearsal import child
from ...preflight.rehearsal.child import Ended
from ...preflight.run_config import RunConfig, parsed
from ...preflight.signals import signals_raise
from ...probe.complete import prove
from ...texts import remembering
from ...texts.sentences import sentence
from ..folder import check_folder, default_folder
from ..training import Say
from . import take_away as taking
from .before import losses_before
from .curves import Curves, read_curves
from .end_state import compare_states
from .folder import check_room, drill_folder, prune
from .judge import judge_curves, judge_generators, judge_state, judge_weights, largest_tensors, same_start
from .limits import limits, settings
from .lost import joined, losses_after
from .markdown import write_reports
from .outcome import DIFFERS, EQUAL, EXACTLY, NOISE, NOT_JUDGED, PARTS, UNKNOWN, WITHIN_NOISE, Outcome
from .plan import AGAIN, BROKEN, RESUMED, UNBROKEN, Plan, derive, notes
from .trainings import train
from .weights import compare_weights
from .words import called, named
from .words import say as words


def drill(
    config: RunConfig, *, steps: int, extra: int, out: Path | None, take_away: str | None, keep: bool, say: Say
) -> Outcome:
    """Make the drill and write its report; nothing of the user's is written to.

    Args:
        config: of the real run.
        steps, extra: before and after the break.
        out: the drill's folder, new or empty; None for one beside `output_dir`.
        take_away: see `command.PARTS`.
        keep: the trainings' folders stay.
        say: takes a line of progress.

    Raises:
        ConfigError: the config cannot be drilled, the folder is another's, or the disk is too small.
    """
    if config.given.get("stage") == "ppo":
        raise ConfigError("stage ppo: a drill covers pt, sft, rm, dpo and kto; ppo has a loop of its own")
    taking.check(config, take_away)
    folder = (out or default_folder(config, "resume")).absolute()
    check_folder(folder)
    with parsed(config):  # what LlamaFactory refuses ends here, in one line
        pass
    with remembering() as english:
        ranks, told = child.processes()
        plan = Plan(config, folder, steps, extra, take_away, ranks, keep)
        told = [*notes(plan), *told]
        if note := check_room(plan):
            told.append(note)
        outcome = Outcome(
            NOT_JUDGED, "", config.path, folder, steps, extra, plan.held, take_away, ranks=ranks, notes=told
        )
        outcome.changed = derive(plan, UNBROKEN).changed
        for note in told:
            say(words("progress.note", note=sentence(note)))
        say(words("progress.plan", total=plan.total, held=plan.held, steps=steps))
        with signals_raise(), drill_folder(plan), tempfile.TemporaryDirectory(prefix="llamafactory-obs-") as scratch:
            _Trainings(plan, outcome, Path(scratch), say).run()
            write_reports(outcome, english)
    return outcome


class _Trainings:
    """Runs them in their order, and compares as soon as there is something to compare."""

    def __init__(self, plan: Plan, outcome: Outcome, scratch: Path, say: Say):
        self.plan, self.outcome, self.scratch, self.say = plan, outcome, scratch, say

    def run(self) -> None:
        plan, outcome = self.plan, self.outcome
        if not self._whole(UNBROKEN):
            return
        unbroken = read_curves(plan.output_dir(UNBROKEN), 0)
        outcome.settings = settings(plan, plan.output_dir(UNBROKEN))
        prune(plan, UNBROKEN)
        if not self._broken():
            return
        broken = read_curves(plan.output_dir(BROKEN), 0)
        before = self._before()
        ended = self._train(RESUMED)
        resumed = read_curves(plan.output_dir(RESUMED), 1)
        if not resumed.steps and not ended.exit_code:  # it began anew, and so did the record
            resumed = read_curves(plan.output_dir(RESUMED), 0)
        if ended.exit_code or not resumed.steps or resumed.steps[-1] != plan.total:
            self._no_resume(ended, resumed, before)
            return
        if resumed.steps[0] != plan.steps + 1:
            self._began_elsewhere(resumed, before)
            return
        ends = [plan.checkpoint(name, plan.total) for name in (UNBROKEN, RESUMED, AGAIN)]
        gap = _weights(ends[0], ends[1])
        states = compare_states(ends[0], ends[1], plan.ranks)
        prune(plan, RESUMED)
        if not self._whole(AGAIN):
            return
        again = read_curves(plan.output_dir(AGAIN), 0)
        floor, floor_states = _weights(ends[0], ends[2]), compare_states(ends[0], ends[2], plan.ranks)
        measures = judge_curves(unbroken, resumed, again, broken, plan.after)
        measures.append(judge_weights(gap, floor))
        for name in ("optimizer", "scheduler"):
            measures.append(judge_state(f"{name} state", states[name], floor_states[name]))
        measures.append(judge_generators(states["rng"], floor_states["rng"]))
        outcome.measures = measures
        outcome.tensors = [] if isinstance(gap, str) else largest_tensors(gap, floor)
        outcome.before_break = same_start(unbroken, broken, range(1, plan.steps + 1))
        outcome.twice = same_start(broken, resumed, plan.after)
        outcome.curves = _curves(plan, unbroken, resumed, again)
        outcome.lost = joined(before, losses_after(unbroken, resumed, measures, states))
        outcome.limits = limits(plan, measures, outcome.settings)
        _conclude(outcome)

    def _train(self, name: str) -> Ended:
        self.say(words("progress.training", training=words(f"training.{name}"), log=self.plan.log(name)))
        ended = train(self.plan, name, self.scratch, self.say)
        self.outcome.seconds[name] = round(ended.seconds, 1)
        return ended

    def _whole(self, name: str) -> bool:
        """A training without a break; one that does not come to its end leaves nothing to judge."""
        plan, outcome = self.plan, self.outcome
        ended = self._train(name)
        steps = read_curves(plan.output_dir(name), 0).steps
        if not ended.exit_code and steps and steps[-1] == plan.total and plan.checkpoint(name, plan.total).is_dir():
            return True
        outcome.failed, outcome.log, outcome.last_words = name, plan.log(name), ended.last_words
        training = words(f"training.{name}")
        if ended.exit_code:
            outcome.why = words("why.broke_off", training=training, code=ended.exit_code)
        elif steps:
            outcome.why = words("why.ended", training=training, step=steps[-1], total=plan.total)
        else:
            outcome.why = words("why.ended_unrecorded", training=training)
        return False

    def _broken(self) -> bool:
        """The training that is killed; its checkpoint must be whole."""
        plan, outcome = self.plan, self.outcome
        ended = self._train(BROKEN)
        checkpoint = plan.checkpoint(BROKEN, plan.steps)
        if not plan.told.exists():
            outcome.failed, outcome.log, outcome.last_words = BROKEN, plan.log(BROKEN), ended.last_words
            outcome.why = words("why.not_killed", step=plan.held, code=ended.exit_code)
            return False
        proof = prove(checkpoint, plan.steps)
        if not proof.complete:
            outcome.verdict, outcome.failed, outcome.log = PARTS, BROKEN, plan.log(BROKEN)
            outcome.why = words("why.not_whole", why=proof.why)
            return False
        self.say(words("progress.killed", step=plan.held, checkpoint=checkpoint.name))
        return True

    def _before(self) -> dict[str, str]:
        plan, outcome = self.plan, self.outcome
        checkpoint = plan.checkpoint(BROKEN, plan.steps)
        if plan.take_away:
            outcome.taken = taking.take_away(checkpoint, plan.take_away)
        before = losses_before(plan, checkpoint)
        for part, why in before.items():
            self.say(words("progress.before", part=called("part", part), why=why))
        return before

    def _no_resume(self, ended: Ended, resumed: Curves, before: dict[str, str]) -> None:
        plan, outcome = self.plan, self.outcome
        outcome.verdict, outcome.failed, outcome.log = PARTS, RESUMED, plan.log(RESUMED)
        if resumed.steps:
            outcome.why = words("why.no_resume", step=resumed.steps[-1], total=plan.total, code=ended.exit_code)
        else:
            outcome.why = words("why.no_resume_at_all", code=ended.exit_code)
        outcome.lost = joined(before, {"resume": outcome.why})
        outcome.last_words = ended.last_words

    def _began_elsewhere(self, resumed: Curves, before: dict[str, str]) -> None:
        outcome, start = self.outcome, resumed.steps[0]
        outcome.verdict, outcome.first = PARTS, start
        outcome.why = words("why.elsewhere", step=start, wanted=self.plan.steps + 1)
        outcome.lost = joined(before, {"trainer_state": outcome.why})


def _weights(one: Path, other: Path) -> list | str:
    try:
        return compare_weights(one, other)
    except (Incomplete, OSError) as error:
        return str(error)


def _curves(plan: Plan, unbroken: Curves, resumed: Curves, again: Curves) -> dict[str, dict]:
    runs = {"unbroken": unbroken, "resumed": resumed, "again": again}
    return {
        column: {
            "steps": list(plan.after),
            **{name: [run.columns[column].get(step) for step in plan.after] for name, run in runs.items()},
        }
        for column in ("train/loss", "train/grad_norm", "train/lr")
    }


def _conclude(outcome: Outcome) -> None:
    """The verdict of all measures."""
    by_status = {
        status: [one for one in outcome.measures if one.status == status] for status in (EQUAL, NOISE, DIFFERS, UNKNOWN)
    }
    after = {"first": outcome.steps + 1, "last": outcome.steps + outcome.extra}
    if by_status[DIFFERS]:
        outcome.verdict = PARTS
        outcome.first = min((one.first for one in by_status[DIFFERS] if one.first is not None), default=None)
        where = words("why.in_checkpoint")
        if outcome.first is not None:
            where = words("why.from_step", step=outcome.first)
        parts = [one.part for one in outcome.lost if one.after] or [one.part for one in outcome.lost]
        if parts:
            outcome.why = words("why.lost", where=where, parts=named("part", parts))
        else:
            outcome.why = words("why.lost_unknown", where=where)
        return
    if outcome.lost:  # equal by luck: what is not restored may show in another step
        outcome.verdict = PARTS
        parts = named("part", [one.part for one in outcome.lost])
        outcome.why = words("why.not_restored", parts=parts, **after)
        return
    lacking = [one.name for one in by_status[UNKNOWN]]
    if {"loss", "gradient norm"} & set(lacking):
        outcome.verdict, outcome.why = NOT_JUDGED, words("why.not_compared", names=named("measure", lacking))
        return
    if by_status[NOISE]:
        names = named("measure", [one.name for one in by_status[NOISE]])
        outcome.verdict, outcome.why = WITHIN_NOISE, words("why.noise", names=names, **after)
    else:
        names = named("measure", [one.name for one in by_status[EQUAL]])
        outcome.verdict, outcome.why = EXACTLY, words("why.equal", names=names, **after)
    if lacking:
        outcome.why = words("why.lacking", why=outcome.why, names=named("measure", lacking))
