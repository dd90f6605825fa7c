"""What a notice makes of a run: one more checkpoint and a clean stop, on all ranks after the same step."""

import time

from ..control.order import Order
from .carry_out import carry_out
from .exchange import Ranks
from .notice import Notice, Notices, grace_s, together_s
from .verify_save import Saved

KEY = "checkpoint/notice"


class LastSave:
    """One training's answer to a notice, on every rank.

    A single process acts by itself. Of several ranks the first proposes it, and all hear of it within the step; what
    another rank has heard comes to all with the row of the step.

    Args:
        guard: the callback: its `told(kind, title, text, ...)` takes events.
        stops: does training end after that checkpoint?
        names: of the signals.
        grace: seconds from the notice to the end; None where that is not given.
    """

    def __init__(self, guard, stops: bool, names: list[str], grace: float | None):
        self._guard, self._run, self._trainer = guard, guard.run, guard.run.trainer
        self._is_main, self._several = self._trainer.state.is_world_process_zero, Ranks.needed()
        self._own_loop = guard.context.stage == "ppo"
        self._stops, self._wishes = stops, ["save", "stop"] if stops else ["save"]
        self.grace_s = grace_s() if grace is None else grace
        self._names = list(names)
        self._signals: Notices | None = None
        self.open: Notice | None = None
        """The notice whose checkpoint has not landed yet; of the first rank."""

    def begin(self) -> str:
        """Listen. Returns what to say of it; "" where nothing is caught."""
        if getattr(self._trainer.args, "enable_jit_checkpoint", False) and "SIGTERM" in self._names:
            self._names.remove("SIGTERM")
            text = "transformers' enable_jit_checkpoint handles SIGTERM: this callback leaves it alone"
            self._guard.told("note", "notice", text)
        if not self._names:
            return ""
        signals = Notices(self._names, together_s())
        why = signals.install()
        if why:
            self._guard.told("unavailable", "no notice", f"a signal does not save a checkpoint: {why}", level="warn")
            return ""
        self._signals = signals
        does = "saves and stops" if self._stops else "saves"
        return f"on {' or '.join(self._names)} the run {does} at the end of the step ({self.grace_s:g} s are assumed)"

    @property
    def hurried(self) -> bool:
        """Is the machine about to go? Then nothing is waited for."""
        return self._stops and self._signals is not None and self._signals.heard

    def before_update(self) -> None:
        """The last moment at which the other ranks hear of it within this step."""
        if self._several:
            self._heed()

    def step(self) -> None:
        """The step ends."""
        self._run.open_row.values.setdefault(KEY, 0.0)  # it may have come before the update
        self._heed()

    def row(self, row) -> None:
        """A finished row, the same on all ranks."""
        if not self._several or self._run.replaying or not row.values.get(KEY):
            return
        if self._is_main and self.open is None:
            self._begin(Notice("a signal on another rank", row.time))
        for what in self._wishes:
            self._run.request(what, row.step)

    def evaluated(self) -> None:
        """An evaluation has ended; what came during it is obeyed before the next step."""
        strategy = getattr(self._trainer.args.save_strategy, "value", self._trainer.args.save_strategy)
        if not self._several and strategy != "best":  # the Trainer then decides on the save after this
            self._heed()

    def saved(self) -> None:
        """A checkpoint was saved; a signal that came meanwhile wants this very one."""
        notice = self._take() if not self._several else None
        if notice is not None:
            self._begin(notice)
            self._act([what for what in self._wishes if what != "save"])
        if self._signals is not None and not self._stops:
            self._signals.rearm()

    def landed(self, saved: Saved) -> None:
        """The checkpoint of an open notice was looked at."""
        notice, self.open = self.open, None
        after = time.time() - notice.time
        text = f"checkpoint-{saved.step} has landed {after:.1f} s after the notice: {saved.flaw or saved.verdict}"
        if self._stops:
            text += ". What comes now (the final model) is not needed to go on: start the same command again"
        evidence = {"signal": notice.signal, "path": str(saved.path), "after_s": after, "grace_s": self.grace_s}
        self._guard.told("notice", "checkpoint landed", text, level="warn", step=saved.step, evidence=evidence)

    def end(self) -> None:
        """Training has ended."""
        if self.open is not None:
            text = "no checkpoint was saved since the notice; resume from the last one before it"
            self._guard.told("notice", "no checkpoint", text, level="error")

    def off(self) -> None:
        """Put back the handlers that were there before."""
        if self._signals is not None:
            self._signals.remove()

    # ---- inside -------------------------------------------------------------------------------------------------

    def _take(self) -> Notice | None:
        return self._signals.take() if self._signals is not None else None

    def _heed(self) -> None:
        notice = self._take()
        if notice is None:
            return
        if self._is_main:
            self._begin(notice)
        if not self._several:
            self._act(self._wishes)
            return
        self._run.put(KEY, 1.0)
        if self._is_main and self._stops:  # sooner than the row; a save alone would be made twice
            for what in self._wishes:
                self._run.propose(what, self._trainer.state.global_step)

    def _begin(self, notice: Notice) -> None:
        self.open = notice
        then = "a checkpoint is saved at the end of the step"
        then += " and training stops" if self._stops else " and training goes on"
        text = f"{notice.signal}: the notice that the machine is taken back; {then}. A second one ends the run at once"
        evidence = {"signal": notice.signal, "came": notice.time, "grace_s": self.grace_s}
        self._guard.told("notice", "notice", text, level="warn", evidence=evidence)

    def _act(self, wishes: list[str]) -> None:
        """In one process, between two steps."""
        control, step = self._trainer.control, self._trainer.state.global_step
        carry_out(Order(**dict.fromkeys(wishes, True)), self._trainer, control, step, self._own_loop)
        if "stop" in wishes:
            control.should_evaluate = False  # the time is for the checkpoint
