"""One look at the output folder: what is complete is taken, what is gone or never gets complete is written down."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from .complete import QUIET_S, UNREST_S, Proof, changed_within, glance, prove
from .copies import Blocked, Lost, Taken, discard, take
from .ledger import SETTLED, WAITING, Entry, Ledger
from .scan import FINAL, Found, Run, due_steps, find_checkpoints, find_final, step_of

#: Times of our ledger, of the files and of the training's record come from up to three clocks, and an event about a
#: folder is delivered late: an entry this much older than a save may still be about it.
CLOCKS_S = 5.0
#: An incomplete checkpoint that has changed since is looked at more often than `poll_s`.
SAVING_S = 30.0
#: What cannot be taken now is tried again after this many seconds, then after twice as many ...
BLOCKED_S, BLOCKED_MAX_S = 2.0, 60.0


class Collector:
    """Brings the ledger up to date with the folder. Takes copies; probes nothing.

    Attributes:
        incomplete: name -> why, of what was there at the last look and not complete.
        saving: a save seems to be under way: something incomplete has changed in the last seconds.
        unsettled: another look is needed to tell what becomes of something, also when no more checkpoints come.
        blocked: names of what is complete and cannot be taken now.
        final_settled: the final model has its entry in the ledger.
        final_changed_at: the newest mtime of the files in the output folder, where the final model is looked for.

    Args:
        copies: the folder for private copies.
        stale_s: an incomplete checkpoint in which nothing has changed for so long is abandoned.
        only: the name of the one checkpoint that counts.
        retry_limit: after the training's end, what could not be taken so often has failed.
    """

    def __init__(
        self,
        output_dir: Path,
        copies: Path,
        say: Callable[[str], None],
        *,
        latest_only: bool,
        hard_links: bool,
        stale_s: float,
        retry_limit: int,
        only: str | None = None,
    ):
        self._output_dir, self._copies, self._say = output_dir, copies, say
        self._latest_only, self._hard_links = latest_only, hard_links
        self._stale_s, self._retry_limit, self._only = stale_s, retry_limit, only
        self.incomplete: dict[str, str] = {}
        self.saving = self.unsettled = self._unlisted = False
        self.blocked: dict[str, tuple[int, float, str]] = {}  # attempts, not before, why
        self.final_settled, self.final_changed_at = False, 0.0
        self._proofs: dict[str, Proof] = {}
        self._sightings: dict[str, float] = {}  # folders that were seen and have no entry yet -> when saved
        self._since = 0.0  # what was written down before is about an older output folder of the same name
        self._first = True

    def begin_anew(self) -> None:
        """The output folder is a new one: what was in the old one says nothing about what is missing here."""
        self._proofs.clear()
        self.blocked.clear()
        self._since = time.time()

    def look(self, ledger: Ledger, run: Run, hints: dict[str, float], over: bool, live: bool) -> None:
        """One look.

        Args:
            run, hints: read *before* this call: what they name was there before the folder is listed.
            over: no more checkpoints will come; what is incomplete stays so.
            live: a training may be going on. Otherwise the steps alone tell which checkpoint is the newest: the files
                may have been copied.
        """
        self.unsettled = False
        try:
            found = find_checkpoints(self._output_dir)
        except OSError as error:
            self.unsettled = True
            if not self._unlisted:
                self._say(f"{self._output_dir} cannot be listed, later again: {error.strerror or error}")
            self._unlisted = True
            return
        self._unlisted = False
        found = [item for item in found if self._only in (None, item.name)]
        proofs = {item.name: self._prove(item) for item in found}
        present = {item.name for item in found if proofs[item.name].why != "vanished"}
        for name in present:
            self._sightings.setdefault(name, proofs[name].changed_at)
        for name, when in hints.items():
            self._sightings.setdefault(name, when)

        self.incomplete = {name: proof.why for name, proof in proofs.items() if not proof.complete}
        complete = [item for item in found if proofs[item.name].complete]
        rank = {item.name: (proofs[item.name].saved_at if live else 0.0, item.step) for item in complete}
        newest = max(complete, key=lambda item: rank[item.name], default=None)
        for item in complete:
            proof = proofs[item.name]
            if self._latest_only and item is not newest:
                self._skip(ledger, item, proof, newest)
            else:
                self._take(ledger, item, proof, over)
        final = self._final(ledger, run, over) if self._only is None else {}
        self.incomplete |= {name: proof.why for name, proof in final.items() if not proof.complete}
        for item in found:
            if item.name in present and not proofs[item.name].complete:
                saved_later = [proofs[other.name].saved_at for other in complete]
                self._abandon(ledger, item, proofs[item.name], max(saved_later, default=0.0), over)
        young = [max(p.changed_at, p.folder_changed_at) > time.time() - SAVING_S for p in proofs.values() if p.why]
        self.saving = any(young)
        present = {name for name in present if (self._output_dir / name).is_dir()}  # some may have been lost just now
        if self._only is None:
            self._miss(ledger, run, present, newest)
        self._first = False

    def _prove(self, item: Found) -> Proof:
        """The proof; of a complete folder in which nothing has changed, the one made before."""
        known = self._proofs.get(item.name)
        if known is None or not known.complete or known.signature != glance(item.folder):
            self._proofs[item.name] = prove(item.folder, item.step)
        return self._proofs[item.name]

    # ---- complete: take it --------------------------------------------------------------------------------------

    def _take(self, ledger: Ledger, item: Found, proof: Proof, over: bool) -> None:
        if _is_handled(ledger, item.name, proof.signature):
            self._settle(item.name)
            return
        attempts, not_before, before = self.blocked.get(item.name, (0, 0.0, ""))
        if time.time() < not_before:
            return
        try:
            taken = take(item.folder, proof, self._copies, self._hard_links)
        except Lost as reason:
            self._proofs.pop(item.name, None)
            self.incomplete[item.name] = str(reason)
            self.unsettled = True
            return
        except Blocked as reason:
            self._block(ledger, item, proof, attempts + 1, str(reason), said=str(reason) == before, over=over)
            return
        self._settle(item.name)
        if entry := ledger.renew(taken):
            if entry.state in SETTLED or entry.taken is None or entry.taken.path != taken.path:
                discard(taken)
        elif twin := self._twin(ledger, taken):
            state = twin.state if twin.state in SETTLED else "done"
            ledger.put(state, taken.name, taken.step, f"same content as {twin.key.name}", taken)
            discard(taken)
            self._say(f"{_place(taken)}: same content as {twin.key.name}, probed once")
        else:
            ledger.put("taken", taken.name, taken.step, taken=taken)

    @staticmethod
    def _twin(ledger: Ledger, taken: Taken) -> Entry | None:
        """The checkpoint that the final model is equal to: the last one, or the best one that was loaded at the end."""
        if taken.name != FINAL:
            return None
        twins = [e for e in ledger.all() if e.key.content == taken.content and e.state in SETTLED + WAITING]
        return max(twins, key=lambda entry: entry.key.step, default=None)

    def _block(
        self, ledger: Ledger, item: Found, proof: Proof, attempts: int, why: str, said: bool, over: bool
    ) -> None:
        if over and attempts >= self._retry_limit:
            ledger.put("failed", item.name, proof.step, why, signature=proof.signature)
            self._say(f"{item.name} failed: {why}")
            self._settle(item.name)
            return
        not_before = time.time() + min(BLOCKED_MAX_S, BLOCKED_S * 2 ** (attempts - 1))
        self.blocked[item.name] = (attempts, not_before, why)
        if not said:
            ledger.put("retry", item.name, proof.step, why, attempt=attempts, not_before=not_before)
            self._say(f"{item.name} is complete and cannot be taken: {why}")

    def _settle(self, name: str) -> None:
        self._sightings.pop(name, None)
        self.blocked.pop(name, None)

    def _skip(self, ledger: Ledger, item: Found, proof: Proof, newest: Found) -> None:
        self._settle(item.name)
        if not _is_handled(ledger, item.name, proof.signature):
            why = f"--latest-only: {newest.name} is newer"
            ledger.put("skipped", item.name, proof.step, why, signature=proof.signature)

    def _final(self, ledger: Ledger, run: Run, over: bool) -> dict[str, Proof]:
        """The model in the output folder: not while a training goes on, nor what an older one left there."""
        self.final_settled = False
        if run.known and not run.ended and not over:
            return {}
        item = find_final(self._output_dir)
        proof = self._prove(item)
        self.final_changed_at = proof.changed_at
        if proof.saved_at < run.began or proof.kind in (None, "unsupported"):
            return {}
        if proof.complete:
            self._take(ledger, item, proof, over)
            self.final_settled = any(e.signature == proof.signature for e in ledger.of(FINAL))
        elif over and not changed_within(QUIET_S, proof.changed_at):
            self._abandon(ledger, replace(item, step=proof.step or 0), proof, 0.0, over)
        return {FINAL: proof}

    # ---- incomplete or gone: write it down ----------------------------------------------------------------------

    def _abandon(self, ledger: Ledger, item: Found, proof: Proof, saved_later: float, over: bool) -> None:
        """Give an incomplete checkpoint up, once. Should it get complete after all, it is taken all the same."""
        changed = max(proof.changed_at, proof.folder_changed_at)
        idle = time.time() - changed
        if changed_within(UNREST_S, changed):  # it is being written, or deleted: then it is missed
            self.unsettled = True
            return
        if proof.kind == "unsupported":
            reason = "it cannot be probed"
        elif saved_later > proof.changed_at:
            reason = "a newer one is complete"
        elif over:
            reason = "the training is over"
        elif idle > self._stale_s:
            reason = f"nothing has changed in it for {idle:.0f} s"
        else:
            return
        since = max(proof.changed_at, proof.saved_at)  # what was written down after that was this save
        if any(e.time >= since and _accounts(e) for e in ledger.of(item.name)):
            self._settle(item.name)
            return
        ledger.put("abandoned", item.name, item.step, f"{proof.why}; {reason}", signature=proof.signature)
        self._settle(item.name)
        self._say(f"{item.name} abandoned: {proof.why}; {reason}")

    def _miss(self, ledger: Ledger, run: Run, present: set[str], newest: Found | None) -> None:
        """Write down what was there once and is gone without having been taken."""
        gone: dict[str, tuple[float, str]] = {}
        for name, when in self._sightings.items():
            _, _, blocked = self.blocked.get(name, (0, 0.0, ""))
            last = self.incomplete.get(name) or getattr(self._proofs.get(name), "why", "")
            why = blocked or ("" if last == "vanished" else last)
            gone[name] = (when, "deleted before it could be taken" + (f" ({why})" if why else ""))
        for step, since in run.saved.items():
            gone.setdefault(f"checkpoint-{step}", (since, "saved according to the run's record, and gone"))
        if not run.known and newest is not None:
            seen = [s for s in (step_of(name) for name in {*present, *(e.key.name for e in ledger.all())}) if s]
            steps, every = due_steps(newest.folder, seen)
            for step in steps:
                gone.setdefault(f"checkpoint-{step}", (self._since, f"was due (save_steps: {every}), and is gone"))
        before = []
        for name, (since, why) in sorted(gone.items(), key=lambda item: step_of(item[0])):
            if name in present:
                continue
            self._settle(name)
            self._proofs.pop(name, None)
            if any(e.time >= since - CLOCKS_S and _accounts(e) for e in ledger.of(name)):
                continue
            ledger.put("missed", name, step_of(name), why)
            before.append(str(step_of(name)))
            if not self._first:
                self._say(f"{name} missed: {why}")
        if self._first and before:
            self._say(f"gone before this watch began, never probed: checkpoint {', '.join(before)}")


def _is_handled(ledger: Ledger, name: str, signature: str) -> bool:
    same = [entry for entry in ledger.of(name) if entry.signature == signature]
    return any(e.state in SETTLED or (e.state in WAITING and e.taken is not None) for e in same)


def _accounts(entry: Entry) -> bool:
    """Does this entry say what became of the checkpoint? Not where it only could not be taken so far."""
    return entry.state != "retry" or entry.taken is not None


def _place(taken: Taken) -> str:
    return f"the final model (step {taken.step})" if taken.name == FINAL else taken.name
