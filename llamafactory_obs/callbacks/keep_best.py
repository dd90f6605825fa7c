"""Retention at work: judges what lies in the output folder, in a thread, and deletes between two steps.

The names are taken away on the training thread alone: transformers lists and sorts checkpoints there, and would end the
training over one that vanishes meanwhile. Removing the files is left to the thread. Nothing is kept in memory that a
resume needs: the metric of a checkpoint stands in its own trainer state.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from ..checkpoint.files import Incomplete
from ..checkpoint.run_of import THIS, reference, run_of, witness
from ..checkpoint.trainer_state import read_state
from ..probe.scan import Found, find_checkpoints
from ..record.checkpoints import read_checkpoints
from .aside import Aside
from .in_use import opened, wanted_by_probe
from .remove_checkpoint import leftovers, move_aside, remove
from .retention import Candidate, Plan, TopK, plan
from .verify_save import Saved, Wanted, check_quick, identity, saved_at

#: the probe's companion needs so long to start, at most
_COMPANION_S = 120.0


@dataclass
class _Judged:
    """A decision on its way to the training thread: the plan, which save each name was, and who waits for what."""

    plan: Plan
    identities: dict[str, tuple | None]
    waiting: dict[str, str] = field(default_factory=dict)


class KeepBest:
    """One training's retention, on the first rank.

    Args:
        guard: the callback; its `told(kind, title, text, ...)` takes events and `wrote(row)` rows.
        trainer: the Trainer. While we are at work its `save_total_limit` is not: see `begin`.
        wanted: what saves must hold.
        aside: the thread.
    """

    def __init__(self, guard, trainer, top_k: TopK, wanted: Wanted, aside: Aside):
        self._guard, self._trainer, self._top_k, self._wanted, self._aside = guard, trainer, top_k, wanted, aside
        self._folder = Path(trainer.args.output_dir)
        self._began = time.monotonic()
        self._limit: int | None = None
        self._values: dict[int, list[float]] = {}
        self._own: dict[tuple, bool] = {}
        self._known: dict[tuple, Saved] = {}
        self._said_waiting: set[str] = set()
        self._flawed: set[tuple] = set()
        self._to_judge = False

    def begin(self) -> str:
        """Take over from transformers' rotation, which deletes by age, the best too. Returns what to say of it."""
        for row in self._trainer.state.log_history:
            if isinstance(row, dict):  # it comes from a file
                self._evaluated(row.get("step"), row)
        for row in read_checkpoints(self._folder):
            if row.get("good") is False:
                self._flawed.add((row["step"], row.get("saved_at")))
        self._aside.submit(self._sweep)
        if self._trainer.state.global_step > 0:  # a killed training may have left more than is to be kept
            self.look()
        top, args = self._top_k, self._trainer.args
        better = "lowest" if top.mode == "min" else "highest"
        text = f"the best {top.k} checkpoints by {top.metric} ({better}) are kept,"
        text += " and the newest that resumes"
        self._limit = args.save_total_limit
        if self._limit:
            args.save_total_limit = None  # read at each save; put back by `off`
            text += f"; save_total_limit {self._limit} is set aside while this run trains, because it deletes by age"
        return text

    def off(self) -> None:
        """Training is over, or retention is: what was asked of transformers holds again."""
        if self._limit:
            self._trainer.args.save_total_limit = self._limit

    def evaluated(self, step: int, metrics: dict) -> None:
        """An evaluation has ended after this step."""
        self._evaluated(step, metrics)

    def _evaluated(self, step: int | None, metrics: dict) -> None:
        value = self._top_k.value_in(metrics)
        if value is not None and isinstance(step, int):
            self._values.setdefault(step, []).append(value)

    def saved(self, which: tuple | None) -> None:
        """A checkpoint has just been saved by this run; `which`: its `identity`."""
        if which is not None:
            self._own[which] = True

    def look(self) -> None:
        """Judge everything in the folder, later, and delete what is not to be kept."""
        if not self._to_judge:
            self._to_judge = True
            self._aside.submit(self._judge)

    def read(self, one: Saved) -> None:
        """In the thread: a checkpoint was read back, so more is known of it than its headers tell."""
        if one.flaw:
            self._flawed.add((one.step, saved_at(one.identity)))

    # ---- in the thread -------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        for aside in leftovers(self._folder):
            remove(aside)

    def _judge(self):
        self._to_judge = False
        found = find_checkpoints(self._folder)
        identities = {one.name: identity(one.folder) for one in found}
        found = [one for one in found if identities[one.name] is not None]  # no links
        self._learn_whose([one for one in found if identities[one.name] not in self._own], identities)
        candidates = [self._candidate(one, identities[one.name]) for one in found]
        decided = plan(candidates, self._top_k, self._protected())
        if not decided.delete:
            return None
        judged = _Judged(decided, identities)
        times = {one.name: one.saved_at for one in candidates if one.name in decided.delete}
        for name in wanted_by_probe(self._folder, times, self._probe_starts()) & set(times):
            judged.waiting[name] = "the probe has not taken it yet"
        for name in opened([self._folder / name for name in times]):
            judged.waiting[name] = "a process has files in it open"
        return lambda: self._delete(judged)

    def _learn_whose(self, found: list[Found], identities: dict) -> None:
        """Those that were there before this start: of this run, or of an older one in the same folder?"""
        if not found:
            return
        of = reference(self._folder, [])
        for one in found:
            self._own[identities[one.name]] = run_of(witness(one.folder, one.step), of)[0] == THIS

    def _candidate(self, one: Found, which: tuple) -> Candidate:
        key = (which, _signature(one.folder))
        if key not in self._known:
            self._known[key] = check_quick(one.folder, one.step, self._wanted)
        saved = self._known[key]
        return Candidate(
            one.name,
            one.step,
            saved_at(which),
            good=not saved.flaw and (one.step, saved_at(which)) not in self._flawed,
            resumes=saved.resumes,
            own=self._own.get(which, False),
            value=self._value(one),
        )

    def _value(self, one: Found) -> float | None:
        """The metric at its step, by its own state; by the last evaluation there, if that was of the same course."""
        try:
            rows = [row for row in read_state(one.folder)["log_history"] if row.get("step") == one.step]
        except Incomplete:
            return None
        own = [value for row in rows if (value := self._top_k.value_in(row)) is not None]
        here = self._values.get(one.step, [])
        if not own:  # evaluated after it was saved
            return here[-1] if here and self._own.get(identity(one.folder)) else None
        return here[-1] if own[-1] in here else own[-1]

    def _protected(self) -> set[str]:
        best = self._trainer.state.best_model_checkpoint
        return {os.path.basename(os.path.normpath(best))} if best else set()

    def _probe_starts(self) -> bool:
        probes = [one for one in self._guard.run.callbacks if one.yaml_name == "probe" and one.companion]
        return bool(probes) and time.monotonic() - self._began < _COMPANION_S

    # ---- on the training thread ----------------------------------------------------------------------------------

    def _delete(self, judged: _Judged) -> None:
        kept = [*judged.plan.best, *judged.plan.newest]
        if any(identity(self._folder / name) != judged.identities[name] for name in kept):
            return  # the folder is another one by now: the next save is judged anew
        for name, why in judged.plan.delete.items():
            if name in self._protected():
                continue
            if name in judged.waiting:
                self._say_waiting(name, judged.waiting[name])
                continue
            self._delete_one(name, why, judged)

    def _delete_one(self, name: str, why: str, judged: _Judged) -> None:
        folder, step = self._folder / name, int(name.rpartition("-")[2])
        try:
            aside = move_aside(folder, judged.identities[name])
        except OSError as error:
            text = f"{name} cannot be deleted: {error.strerror or error}"
            self._guard.told("note", "not deleted", text, level="warn", step=step)
            return
        if aside is None:
            return
        evidence = {"path": str(folder), "reason": why, "best": judged.plan.best, "newest": judged.plan.newest}
        self._guard.told("deleted", "checkpoint deleted", f"{name} is deleted: {why}", step=step, evidence=evidence)
        self._guard.wrote({"step": step, "path": str(folder), "deleted": why})

        def removing():
            failed = remove(aside)
            text = f"{aside} (once {name}) is not all gone: {failed}"
            return (lambda: self._guard.told("note", "not deleted", text, level="warn", step=step)) if failed else None

        self._aside.submit(removing)

    def _say_waiting(self, name: str, why: str) -> None:
        if name not in self._said_waiting:
            self._said_waiting.add(name)
            text = f"{name} is no longer wanted and stays for now: {why}"
            self._guard.told("note", "deletion waits", text, step=int(name.rpartition("-")[2]), show=False)


def _signature(folder: Path) -> tuple:
    """Names, sizes and times of all files: has anything in it changed?"""
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                entry = os.lstat(os.path.join(place, name))
            except OSError:
                continue
            found.append((place, name, entry.st_size, entry.st_mtime_ns))
    return tuple(sorted(found))
