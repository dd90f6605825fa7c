"""The recorder: one per training run, last in the Trainer's list of callbacks, on every rank.

It feeds our callbacks and closes each step's row. Whatever fails in it or in a callback is said once and switched off;
the training goes on.
"""

import contextlib
import socket

import torch
from transformers import TrainerCallback

from ..detect import Finding
from ..record.schema import STEPS
from ..texts import speaking
from .arrivals import HostCopy
from .base import ObsCallback, find_trainer
from .basics import Basics
from .console import Console
from .context import RunContext
from .continuity import ContinuityCheck
from .control import Control
from .exchange import Ranks
from .failures import guard_trackers, record_failure, will_retry
from .guarded import Guarded
from .identify import Identification
from .journal import Journal
from .parameter_names import ParameterNames
from .phases import Phases
from .pipeline import MAX_LAG, Pipeline, Row
from .replay import Previous, continues_here, read_previous, restore
from .survives import survives
from .taps import Gradients, Taps
from .told import tell_begin, tell_end
from .trackers import Trackers


class Recorder(TrainerCallback):
    """Runs our callbacks and keeps the record.

    Attributes:
        context: what the run was asked to do.
        trainer: the Trainer, once training has begun.
        last: the newest finished row.
        costs, each: those of `Guarded`: seconds spent in each callback; `each(hook, ...)` calls a hook of all of them.
        phases: where the time goes, while a callback wants to know; None where nobody does.
        of_batch: what callbacks share about the micro-batch that is being looked at; `normaliser`: the Trainer's
            `num_items_in_batch`, the number that its loss is divided by (None where it is the mean of means).
        hosts: the host name of each rank.
        parameter_names: `parameter_names(parameters)`, see `ParameterNames`.
        trackers: what the run reports to; none on other ranks than the first.
        previous: what was recorded before a resume.
        ALWAYS: the names of the callbacks that every record has.
        event, append: those of the `Journal`, for callbacks.
    """

    ALWAYS = (Basics.yaml_name, ContinuityCheck.yaml_name)

    def __init__(self, context: RunContext):
        self.context = context
        self.callbacks: list[ObsCallback] = []
        self.active = False
        self.trainer = None
        self.journal: Journal | None = None
        self.last = Row()
        self.phases: Phases | None = None
        self.of_batch: dict[str, object] = {}
        self.previous = Previous()
        self._cost = 0.0
        self._guarded = Guarded([], self.callback_off)
        self.costs, self.each = self._guarded.costs, self._guarded.each
        self._taps: Taps | None = None
        self._broke_off = False
        self._early: list[tuple[str, BaseException]] = []
        self._continuity = ContinuityCheck()
        self.register(Basics())
        self.register(self._continuity)

    # ---- what callbacks use -------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The optimizer step that is being made, counted from 1."""
        return self.trainer.state.global_step + 1

    @property
    def replaying(self) -> bool:
        """Are the rows those of before a resume? Nothing is recorded or shown then."""
        return self.journal.muted

    @property
    def open_row(self) -> Row:
        """The row of the step that is being made."""
        return self._pipeline.open

    def put(self, key: str, value: float) -> None:
        """A number of the current step, already on the host."""
        self.open_row.values[key] = value

    def defer(self, tensors: list[torch.Tensor], finish, copier=HostCopy) -> None:
        """Device values of the current step: `finish(row, *values)` is called once they are on the host.

        Args:
            copier: what brings them there; `HostCopy` for tensors.
        """
        owner = self._guarded.current  # what fails when the values arrive is still this callback's fault
        self.open_row.defer(tensors, lambda row, *values: self._guarded.call(owner, finish, row, *values), copier)

    def timing(self, part: str):
        """A context in which time goes to this part of the step, see `Phases`."""
        return contextlib.nullcontext() if self.phases is None else self.phases.part(part)

    @property
    def lr_scale(self) -> float:
        """Product of the factors by which `control` has scaled the schedule of the learning rate; 1: not at all."""
        return self._control.lr_scale

    def alert(self, name: str, finding: Finding) -> None:
        """Record and show what a callback's detector found; with `auto` on it may have a consequence."""
        self.journal.alert(name, finding)
        if not self.replaying:
            self._control.heard(name, finding, self.last.step or 0, self._due(self.last.step or 0))

    def request(self, what: str, step: int) -> None:
        """Ask the Trainer for a `save` or a `stop`, because of `step`'s row.

        All ranks get the same rows and so ask the same, but not at the same moment; with several ranks or a device
        whose values come late it is therefore done `MAX_LAG` steps after `step`, on all of them at once.
        """
        if not self.replaying:
            self._control.request(what, self._due(step))

    def propose(self, what: str, step: int) -> None:
        """Ask for a `save` or a `stop` because of `step`, from the first rank alone; all ranks do it together."""
        if self._pipeline.ranks is None:
            self.request(what, step)
        else:
            self._control.propose(what)

    def _due(self, step: int) -> int:
        late = self._pipeline.ranks is not None or self.trainer.args.device.type != "cpu"
        return step + (MAX_LAG if late else 0)

    def callback_off(self, name: str, error: BaseException) -> None:
        """Somebody else's callback failed and is called no more; said as soon as there is a record to say it in."""
        if self.active:
            self.journal.callback_off(name, error)
        else:
            self._early.append((name, error))

    def register(self, callback: ObsCallback) -> None:
        """Take a callback in, before training begins."""
        callback.run, callback.context = self, self.context
        if not any(c is callback for c in self.callbacks):
            self.callbacks.append(callback)

    # ---- training begins ----------------------------------------------------------------------------------------

    def on_init_end(self, args, state, control, **kwargs):
        trainer = find_trainer(self)  # trackers connect when training begins, before we hear of it
        if trainer is not None:
            guard_trackers(trainer.callback_handler.callbacks, self.callback_off)

    def on_train_begin(self, args, state, control, **kwargs):
        try:
            with speaking("en"):  # as in `survives`
                self._begin(find_trainer(self), state)
        except Exception as error:
            self._switch_off(error)

    def _begin(self, trainer, state) -> None:
        self._leave_broken_off(trainer)
        retried = self._broke_off  # auto_find_batch_size: the same run, with a smaller batch
        self._broke_off = False
        self.trainer, self._cost, self.parameter_names = trainer, 0.0, ParameterNames(trainer)
        self._guarded, self.phases = Guarded(self.callbacks, lambda *about: self.journal.callback_off(*about)), None
        self.costs, self.each = self._guarded.costs, self._guarded.each
        keys = [key for callback in self.callbacks for key in callback.keys]
        ranks = Ranks(keys) if Ranks.needed() else None  # all ranks join: before anything that can fail on one of them
        self.hosts = ranks.hosts() if ranks is not None else [socket.gethostname()]
        self._pipeline = Pipeline(ranks, self._complete)
        self._control = Control(self)
        is_main, continues = state.is_world_process_zero, continues_here(trainer)
        self.previous = read_previous(trainer.args.output_dir, state.global_step if continues else 0, is_main)
        connected = trainer.callback_handler.callbacks if is_main else []
        self.trackers = Trackers(connected, self.callback_off)
        self.journal = self._open_journal(continues or retried, is_main)
        self.event, self.append = self.journal.event, self.journal.append
        self._identification = self._identify() if is_main else None
        self.active = True
        guard_trackers(trainer.callback_handler.callbacks, self.callback_off)
        while self._early:
            self.journal.callback_off(*self._early.pop(0))
        self.each("begin")
        restore(self, state.global_step)
        self._taps = Taps(trainer, self)
        self._taps.install()
        if self._identification is not None:
            self._identification.tell(self.trackers)
        tell_begin(self, state, self._continuity.lacks)
        self._control.begin(continues)

    def _open_journal(self, continues: bool, is_main: bool) -> Journal:
        hidden, options = self.context.hidden, self.context.settings.alerts
        post = self.journal.post if self.journal is not None else None  # of the training before in this process
        return Journal(self.trainer, continues, is_main, self.trackers, hidden, options, self.propose, post)

    def _identify(self) -> Identification | None:
        try:
            return Identification(self.trainer, self.context, self.journal.writer)
        except Exception as error:  # the alerts do not depend on it
            self._early.append(("identity", error))
            return None

    @property
    def folder(self) -> str:
        """The record's; "" on other ranks than the first."""
        return str(self.journal.writer.folder) if self.journal.writer is not None else ""

    # ---- one step, in its order ---------------------------------------------------------------------------------

    @survives
    def micro_batch(self, inputs, normaliser) -> None:
        self.of_batch = {"normaliser": normaliser}
        self.each("batch", inputs)
        self.of_batch = {}

    @survives
    def micro_loss(self, loss) -> None:
        self.each("loss", loss)

    @survives
    def gradients(self, gradients: Gradients) -> None:
        self.each("gradients", gradients)

    @survives
    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        gradients = self._guarded.call(self.callbacks[0], self.callbacks[0].unclipped)
        if gradients is not None:
            self.each("gradients", gradients)
        self._control.ask()

    @survives
    def on_optimizer_step(self, args, state, control, **kwargs):
        self.each("updated")

    @survives
    def on_step_end(self, args, state, control, **kwargs):
        self.each("step")
        if self.phases is None:
            self.put("time/callbacks_s", self._cost)
        self._cost = 0.0
        self._pipeline.close_step(state.global_step)
        flush = control.should_log or control.should_save or control.should_evaluate or control.should_training_stop
        self._pipeline.advance(state.global_step, flush=flush)
        self._control.act(state.global_step, control)
        self._drain_before_the_end(state, control)

    def _complete(self, row: Row) -> None:
        """A row is finished: write it, then let the callbacks judge it."""
        self.each("derive", row.values)
        self.append(STEPS, {"step": row.step, "time": row.time, **row.values})
        self.trackers.row(row.values, row.step)
        self.last = row
        self.each("row", row)
        self.journal.step(row.step)

    def _drain_before_the_end(self, state, control) -> None:
        """Finish every row while the trackers are still open; all ranks stop at the same step."""
        if control.should_training_stop or state.global_step >= state.max_steps:
            self._pipeline.drain(state.global_step)

    # ---- between steps, and the end -----------------------------------------------------------------------------

    @survives
    def on_log(self, args, state, control, logs=None, **kwargs):
        self.each("logged", logs or {})
        if "loss" in (logs or {}):
            numbers: dict = {}
            for callback in list(self._guarded.live):
                numbers |= self._guarded.call(callback, callback.summary) or {}
            self.journal.console.summary(state.global_step, numbers)
        if self._identification is not None:
            self._identification.tell(self.trackers)

    @survives
    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.each("evaluated", metrics or {})
        self._control.evaluated(metrics or {})
        self._drain_before_the_end(state, control)  # early stopping

    @survives
    def on_save(self, args, state, control, **kwargs):
        path = f"{args.output_dir}/checkpoint-{state.global_step}"
        self.event("checkpoint", "recorder", "checkpoint saved", path, evidence={"path": path}, show=False)
        self._control.saved(path)
        self.each("saved", path, control.should_training_stop or state.global_step >= state.max_steps)

    @survives
    def on_train_end(self, args, state, control, **kwargs):
        self._pipeline.drain(state.global_step)
        self._control.ended(state.global_step)
        self.each("end")
        tell_end(self, state)
        self._close()

    @survives
    def failure(self, error: BaseException) -> None:
        """An exception is on its way out of the Trainer: keep what is known, once."""
        if getattr(error, "_llamafactory_obs_seen", False):
            return
        error._llamafactory_obs_seen = True
        self._pipeline.rescue()
        self.journal.join()  # the first rank may know nothing of it
        self.each("failed", error)
        record_failure(self.trainer, self.journal, error)
        self._close()
        self._broke_off = will_retry(self.trainer.args, error)

    def _leave_broken_off(self, trainer) -> None:
        """A training that ended where nobody told us: a batch on its way to the device, a save, another's callback."""
        if not self.active or self._taps is None or not self._taps.installed:
            return
        self._pipeline.rescue()
        self._broke_off = bool(trainer.args.auto_find_batch_size)
        kind = "retry" if self._broke_off else "crash"
        text = f"training broke off after step {self.last.step or 0}, outside of a step; it begins again"
        self.event(kind, "recorder", "training begins again", text, level="warn", step=self.last.step or 0)
        self._close()

    def _close(self) -> None:
        self.each("off")
        self._control.off()
        self._taps.remove()
        if self._identification is not None:
            self._identification.finish()
            self._identification.tell(self.trackers)
        self.journal.close()

    # ---- inside -------------------------------------------------------------------------------------------------

    def _switch_off(self, error: BaseException) -> None:
        """The recorder itself failed: say so once, let go of the Trainer, be silent from here on."""
        self.active, self.phases = False, None
        if self._taps is not None:
            self._taps.remove()
        Console(enabled=True).line(f"recorder switched off after {error!r}; training goes on", "warn")
