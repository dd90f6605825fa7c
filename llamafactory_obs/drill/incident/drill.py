"""The drill: a healthy training, one for each incident, and what `diagnose` says of their records."""

import io
import tempfile
import time
from pathlib import Path

from ... import texts
from ...errors import ConfigError
from ...preflight.ahead.disk import save_size
from ...preflight.rehearsal import child
from ...preflight.rehearsal.derive import name_of
from ...preflight.run_config import RunConfig, parsed
from ...preflight.signals import signals_raise
from ..folder import check_folder, default_folder, drill_folder, require_room
from ..training import Say, progress, train
from . import blind
from .incidents import HEALTHY, INCIDENTS
from .outcome import NOT_MADE, RIGHT, UNFIT, WRONG, Made, Outcome
from .plan import Plan, derive, keep_record, notes
from .planted import VARIABLE, read_planted
from .report import write
from .score import is_quiet, score
from .where import in_memory, unfit_device

#: what `throughput` writes, bytes
_DUMP = 512 << 20
_WIDTH = 100


def drill(config: RunConfig, *, name: str, steps: int, at: int, out: Path | None, keep: bool, say: Say) -> Outcome:
    """Make the drill and write its report; nothing of the user's is written to.

    Args:
        config: of the real run.
        name: of an incident, or `all`.
        steps, at: of each training; the step of the incident.
        out: the drill's folder, new or empty; None for one beside `output_dir`.
        keep: the trainings' folders stay whole.
        say: takes a line of progress.

    Raises:
        ConfigError: the config cannot be drilled, the folder is another's, or the disk is too small.
    """
    begun = time.monotonic()
    if config.given.get("stage") == "ppo":
        raise ConfigError("stage ppo: a drill covers pt, sft, rm, dpo and kto; ppo has a loop of its own")
    folder = (out or default_folder(config, "incident")).absolute()
    check_folder(folder)
    with parsed(config):  # what LlamaFactory refuses ends here, in one line
        pass
    ranks, told = child.processes()
    wanted = tuple(INCIDENTS) if name == "all" else (name,)
    unfit = {one: INCIDENTS[one].unfit(config) or unfit_device(one, config) for one in wanted}
    if name != "all" and unfit[name]:
        raise ConfigError(f"drill {name}: {texts.text(f'drill.{unfit[name]}', 'en')}")
    plan = Plan(config, folder, tuple(one for one in wanted if not unfit[one]), steps, at, ranks, keep)
    outcome = Outcome(name, config.path, folder, steps, at, ranks, Made(HEALTHY, plan.output_dir(HEALTHY).name))
    outcome.listed = [name_of(entry) for entry in config.callbacks]
    outcome.changed = derive(plan, HEALTHY).changed
    outcome.notes = [*notes(plan), *(("note.plain", {"text": one}) for one in told), *_room(plan)]
    for note in outcome.notes:
        say(f"drill: {_spoken(note)}")
    scratch = tempfile.TemporaryDirectory(prefix="llamafactory-obs-")
    with signals_raise(), drill_folder(folder, keep), scratch:
        made = _Trainings(plan, Path(scratch.name), say)
        outcome.healthy = made.healthy()
        if outcome.healthy.status == NOT_MADE:
            wanted = ()  # nothing to compare with, and the others would fail as well
        for one in wanted:
            outcome.incidents.append(_unfit(one, unfit[one]) if unfit[one] else made.incident(one))
        outcome.seconds = round(time.monotonic() - begun, 1)
        write(outcome)
    return outcome


class _Trainings:
    """Makes them one after the other; each is judged as soon as it has ended."""

    def __init__(self, plan: Plan, scratch: Path, say: Say):
        self.plan, self.scratch, self.say = plan, scratch, say

    def healthy(self) -> Made:
        """The twin: all its steps, and nothing to say about it."""
        made = self._train(HEALTHY)
        if made.said is None or made.exit_code or made.said.steps < self.plan.steps:
            steps = made.said.steps if made.said is not None else 0
            made.why = ("why.twin", {"steps": steps, "of": self.plan.steps, "code": made.exit_code})
        elif is_quiet(made.said):
            made.status = RIGHT
        else:
            made.status, made.why = WRONG, ("why.flagged", {"verdict": made.said.verdict})
        return made

    def incident(self, name: str) -> Made:
        """One training with its fault, and the score."""
        plan, incident = self.plan, INCIDENTS[name]
        made = self._train(name)
        made.onset = plan.onset(name)
        facts = read_planted(plan.told(name))
        plan.told(name).unlink(missing_ok=True)
        ended = bool(made.exit_code)
        if facts is None or made.said is None or ended != incident.ends:
            made.why = ("why.no_record" if made.said is None else "why.not_made", {"code": made.exit_code})
            return made
        also = ("other_callback",) if name == "throughput" and in_memory(plan.folder) else ()
        made.facts = facts | ({"in_memory": True} if also else {})
        made.score = score(incident, made.said, made.onset, also)
        made.status = RIGHT if made.score.right else WRONG
        if made.status == WRONG:
            made.why = _what_was_wrong(made)
        return made

    def _train(self, name: str) -> Made:
        plan = self.plan
        derived, folder = derive(plan, name), plan.output_dir(name)
        made = Made(name, folder.name)
        self.say(f"drill: {_spoken((f'said.{name}', {}))}: {folder.name}")
        env = child.environment(self.scratch, plan.config.given, derived.given)
        env.pop(VARIABLE, None)
        env |= plan.variables(name)
        on_step = progress(folder.name, plan.steps, self.say)
        ended = train(derived, plan.folder / f"{folder.name}.yaml", plan.log(name), env, on_step)
        made.exit_code, made.seconds, made.last_words = ended.exit_code, round(ended.seconds, 1), ended.last_words
        with texts.speaking("en"):
            found = blind.diagnose(folder)
        if found is not None:
            made.said, curves, diagnosis = found
            made.spoken = made.said if texts.language() == "en" else blind.diagnose(folder)[0]
            made.timeline = _timeline(name, curves, diagnosis, plan)
        keep_record(plan, name)
        return made


def _timeline(name: str, curves, diagnosis, plan: Plan) -> list[str]:
    """The lanes that show the incident, and what happened around it."""
    from rich.console import Console

    from ...timeline import terminal, timeline

    out = io.StringIO()
    around, lanes = None, ()
    if name != HEALTHY:
        around = min(max(plan.onset(name), min(curves.steps)), max(curves.steps))
        lanes = tuple(one for one in INCIDENTS[name].lanes if curves.has(one))
    pieces = _WIDTH - terminal.LABEL - terminal.RANGE - 4
    made = timeline.make(curves, pieces=pieces, around=around, wanted=lanes, findings=diagnosis.findings)
    terminal.show(made, Console(file=out, width=_WIDTH, highlight=False, soft_wrap=True, no_color=True), _WIDTH)
    return [line.rstrip() for line in out.getvalue().splitlines()[1:]]  # the first one names the folder


def _what_was_wrong(made: Made) -> tuple[str, dict]:
    wrong = next(part for part in ("cause", "verdict", "action", "onset") if not getattr(made.score, part))
    incident, said = INCIDENTS[made.name], made.said
    return f"why.{wrong}", {
        "verdict": said.verdict,
        "action": said.action,
        "cause": said.cause or "-",
        "since": "-" if said.since is None else said.since,
        "onset": made.onset,
        "verdicts": " | ".join(incident.verdicts),
        "causes": " | ".join(incident.causes),
        "actions": " | ".join(incident.actions),
    }


def _unfit(name: str, why: str) -> Made:
    return Made(name, "", status=UNFIT, why=(why, {}))


def _room(plan: Plan) -> list[tuple[str, dict]]:
    """A final model for each training while it is judged, all of them where they are kept; a note where not known."""
    try:
        size = save_size(plan.config)
    except ConfigError as error:
        return [("note.room", {"error": str(error)})]
    models = len(plan.trainings) if plan.keep else 1
    require_room(plan.folder, models * size.weights + _DUMP, "its trainings")
    return []


def _spoken(note: tuple[str, dict]) -> str:
    return texts.text(f"drill.{note[0]}", **note[1])
