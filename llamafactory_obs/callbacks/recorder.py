"""The recorder: one per training run, last in the Trainer's list of callbacks, on every rank.

It feeds our callbacks, closes each step's row, writes the record and prints. Whatever fails in it or in a callback is
said once and switched off; the training goes on.
"""

import functools
import math
import time

import torch
from transformers import TrainerCallback

from ..detect import Finding
from ..record.schema import EVENTS, STEPS, Key
from ..record.writer import RecordWriter
from .base import ObsCallback, find_trainer
from .console import Console
from .context import RunContext
from .failures import guard_foreign, record_failure
from .identify import Identification
from .pipeline import MAX_LAG, Pipeline, Row
from .ranks import Ranks
from .replay import previous_rows
from .taps import Gradients, Taps, gradients_of

#: Columns that every record has, whatever callbacks are named.
CORE_KEYS = (
    Key("train/loss", "nats", "training loss of this one step (not the logged window's mean)", "mean"),
    Key("train/lr", "1", "learning rate that made this step's update (first parameter group)"),
    Key("train/epoch", "epochs", "position in the data"),
    Key("train/grad_norm", "1", "global gradient norm before clipping"),
    Key("train/clip_coef", "1", "factor that clipping applied to the gradients, 1 = not clipped"),
    Key("train/step_skipped", "0 or 1", "the GradScaler skipped this update (fp16 only)", "max"),
    Key("time/callbacks_s", "s", "time spent in our callbacks since the last step's end", "max"),
)


def _survives(method):
    """Guard and time one entry point of the recorder."""

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        if not self.active:
            return
        start = time.perf_counter()
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self._switch_off(error)
        finally:
            self._cost += time.perf_counter() - start

    return call


class Recorder(TrainerCallback):
    """Runs our callbacks and keeps the record.

    Attributes:
        context: what the run was asked to do.
        trainer: the Trainer, once training has begun.
        is_main: is this the process that writes and prints?
        last: the newest finished row.
    """

    def __init__(self, context: RunContext):
        self.context = context
        self.callbacks: list[ObsCallback] = []
        self.active = False
        self.trainer = None
        self.is_main = True
        self.last = Row()
        self.console = Console(enabled=False)
        self._cost = 0.0
        self._current: ObsCallback | None = None
        self._writer: RecordWriter | None = None

    # ---- what callbacks use -------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The optimizer step that is being made, counted from 1."""
        return self.trainer.state.global_step + 1

    @property
    def replaying(self) -> bool:
        """Are the rows those of before a resume? Nothing is recorded or shown then."""
        return self._muted

    def put(self, key: str, value: float) -> None:
        """A number of the current step, already on the host."""
        self._pipeline.open.values[key] = value

    def defer(self, tensors: list[torch.Tensor], finish) -> None:
        """Device values of the current step: `finish(row, *values)` is called once they are on the host."""
        owner = self._current
        if owner is not None:  # what fails when the values arrive is still this callback's fault
            self._pipeline.open.defer(tensors, lambda row, *values: self._call(owner, finish, row, *values))
        else:
            self._pipeline.open.defer(tensors, finish)

    def append(self, file: str, row: dict) -> None:
        """A row of another file of the record."""
        if self.is_main and not self._muted and self._writer is not None:
            self._writer.append(file, row)

    def event(
        self,
        kind: str,
        name: str,
        title: str,
        text: str,
        *,
        level: str = "info",
        step: int | None = None,
        evidence: dict | None = None,
        action: str = "none",
        suggest: dict | None = None,
        show: bool = True,
    ) -> None:
        """Record one event (and show it). On ranks other than the first nothing happens."""
        if self._muted or not self.is_main:
            return
        step = self.trainer.state.global_step if step is None else step
        row = {"step": step, "time": time.time(), "kind": kind, "level": level, "name": name, "title": title}
        row |= {"text": text, "evidence": evidence or {}, "action": action, "suggest": suggest or {}}
        if self._writer is not None:
            self._writer.append(EVENTS, row)
        if show:
            self.console.line(f"step {step} {name}: {text}", level)

    def alert(self, name: str, finding: Finding) -> None:
        """Record and show what a detector found."""
        self.event(
            "alert",
            name,
            finding.name,
            finding.text,
            level=finding.level,
            step=finding.step,
            evidence=finding.evidence | {"limits": finding.limits},
            action=finding.action,
            suggest=finding.suggest,
        )

    def request(self, what: str, step: int) -> None:
        """Ask the Trainer to `save`, or to `save` and `stop`, because of `step`'s row.

        All ranks get the same rows and so ask the same, but not at the same moment; with several ranks or a device whose
        values come late it is therefore done `MAX_LAG` steps after `step`, on all of them at once.
        """
        if not self._muted:
            late = self._pipeline.ranks is not None or self.trainer.args.device.type != "cpu"
            self._requests.append((step + (MAX_LAG if late else 0), what))

    def parameter_names(self, parameters: list) -> list[str]:
        """The names of parameters, as in `model.named_parameters()`."""
        if any(id(p) not in self._names for p in parameters):
            self._names = {id(p): name for name, p in self.trainer.model.named_parameters()}
        return [self._names.get(id(p), "?") for p in parameters]

    def register(self, callback: ObsCallback) -> None:
        """Take a callback in, before training begins."""
        callback.run, callback.context = self, self.context
        if not any(c is callback for c in self.callbacks):
            self.callbacks.append(callback)

    # ---- the Trainer's events -----------------------------------------------------------------------------------

    def on_train_begin(self, args, state, control, **kwargs):
        try:
            self._begin(find_trainer(self), state)
        except Exception as error:
            self._switch_off(error)

    def _begin(self, trainer, state) -> None:
        self.trainer, self.is_main = trainer, state.is_world_process_zero
        self._muted, self._requests, self._names, self._cost = False, [], {}, 0.0
        self._seen: Gradients | None = None
        self._lr: float | None = None
        self.console = Console(enabled=self.is_main)
        self._live = list(self.callbacks)
        self.costs = {callback.yaml_name: 0.0 for callback in self._live}
        keys = [*CORE_KEYS, *(key for callback in self._live for key in callback.keys)]
        ranks = Ranks(keys) if Ranks.needed() else None  # all ranks join: before anything that can fail on one of them
        self._pipeline = Pipeline(ranks, self._complete)
        rows = previous_rows(trainer.args.output_dir, state.global_step, self.is_main)
        if self.is_main:
            self._writer = RecordWriter(trainer.args.output_dir, state.global_step > 0, self._writing)
            self._identification = Identification(trainer, self.context, self._writer)
        self.active = True
        guard_foreign(trainer.callback_handler.callbacks, self)
        self._each("begin")
        self._restore(rows, state.global_step)
        self._taps = Taps(trainer, self)
        self._taps.install()
        resumed = state.global_step > 0
        names = ", ".join(callback.yaml_name for callback in self._live)
        self.event(
            "resume" if resumed else "start",
            "recorder",
            "training resumes" if resumed else "training starts",
            f"{names or 'no own callbacks'}; record: {self._writer.folder if self._writer else ''}",
            evidence={"callbacks": names, "max_steps": state.max_steps, "rows_replayed": len(rows)},
        )

    def _restore(self, rows: list[dict], step: int) -> None:
        """Bring the detectors to where they were at the checkpoint, by showing them the rows again."""
        self._muted = True
        for values in rows:
            self._each("row", Row(values["step"], values))
        self._muted = False
        if step > 0 and not rows:
            self.event(
                "restore",
                "recorder",
                "detectors start empty",
                f"no recorded steps up to {step} in this folder: the detectors' windows fill anew",
                level="warn",
            )

    @_survives
    def micro_batch(self, inputs) -> None:
        self._each("batch", inputs)

    @_survives
    def micro_loss(self, loss) -> None:
        self.defer([loss], _add_loss)

    @_survives
    def gradients(self, gradients: Gradients) -> None:
        self._seen = gradients
        row = self._pipeline.open
        if isinstance(gradients.total, (int, float)):
            self._take_norm(row, float(gradients.total), gradients.max_norm)
        elif gradients.total is not None:
            tensors = [gradients.total] + ([gradients.norms] if gradients.norms is not None else [])
            limit = gradients.max_norm
            row.defer(tensors, lambda row, total, *norms: self._take_norm(row, total, limit, *norms))
        row.facts["parameters"] = gradients.parameters
        self._each("gradients", gradients)

    def _take_norm(self, row: Row, total: float, max_norm: float, norms: list | None = None) -> None:
        row.values["train/grad_norm"] = total
        clips = math.isfinite(max_norm) and max_norm > 0
        row.values["train/clip_coef"] = min(1.0, max_norm / (total + 1e-6)) if clips else 1.0
        row.facts["norms"] = norms

    @_survives
    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        scaled = getattr(self.trainer.accelerator, "scaler", None) is not None
        if self._seen is None and not scaled:
            gradients = gradients_of(self.trainer.model)
            if gradients is not None:
                self.gradients(gradients)

    @_survives
    def on_optimizer_step(self, args, state, control, **kwargs):
        scheduler = kwargs.get("lr_scheduler")
        self._lr = scheduler.get_last_lr()[0] if scheduler is not None else None
        self._each("updated")

    @_survives
    def on_step_end(self, args, state, control, **kwargs):
        if self._lr is not None:
            self.put("train/lr", float(self._lr))
        if state.epoch is not None:
            self.put("train/epoch", float(state.epoch))
        if getattr(self.trainer.accelerator, "scaler", None) is not None:
            self.put("train/step_skipped", float(self.trainer.accelerator.optimizer_step_was_skipped))
        self._each("step")
        self.put("time/callbacks_s", self._cost)
        self._cost, self._seen = 0.0, None
        self._pipeline.close_step(state.global_step)
        flush = control.should_log or control.should_save or control.should_evaluate or control.should_training_stop
        self._pipeline.advance(state.global_step, flush=flush)
        self._obey(state.global_step, control)

    @_survives
    def on_log(self, args, state, control, logs=None, **kwargs):
        self._each("logged", logs or {})
        if self.last.step is None and logs and "loss" in logs:  # PPO has its own loop: only its logs are to be had
            self.append(STEPS, {"step": state.global_step, "train/loss": logs["loss"]})
        if "loss" in (logs or {}):
            numbers: dict = {}
            for callback in list(self._live):
                numbers |= self._call(callback, callback.summary) or {}
            self.console.summary(state.global_step, numbers)

    @_survives
    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        numbers = {k: v for k, v in (metrics or {}).items() if isinstance(v, (int, float))}
        row = {k.replace("eval_", "eval/", 1): float(v) for k, v in numbers.items() if k.startswith("eval_")}
        self.append(STEPS, {"step": state.global_step, **row})
        self.event("eval", "recorder", "evaluation", f"{row.get('eval/loss')}", evidence=row, show=False)
        self._each("evaluated", metrics or {})

    @_survives
    def on_save(self, args, state, control, **kwargs):
        path = f"{args.output_dir}/checkpoint-{state.global_step}"
        self.event("checkpoint", "recorder", "checkpoint saved", path, evidence={"path": path}, show=False)

    @_survives
    def on_train_end(self, args, state, control, **kwargs):
        self._pipeline.drain(state.global_step)
        self._each("end")
        self._taps.remove()
        costs = {name: round(seconds, 4) for name, seconds in self.costs.items()}
        text = f"{state.global_step} steps; record: {self._writer.folder if self._writer else ''}"
        self.event("end", "recorder", "training ended", text, evidence={"callbacks_s": costs})
        if self._writer is not None:
            self._identification.finish()
            self._writer.close()

    @_survives
    def failure(self, error: BaseException) -> None:
        """An exception is on its way out of the Trainer: keep what is known, once."""
        if getattr(error, "_llamafactory_obs_seen", False):
            return
        error._llamafactory_obs_seen = True
        self._pipeline.ranks = None  # other ranks may never answer
        self._each("failed", error)
        record_failure(self, error)
        if self._writer is not None:
            self._writer.close()

    # ---- inside -------------------------------------------------------------------------------------------------

    def _complete(self, row: Row) -> None:
        for callback in list(self._live):
            self._call(callback, callback.derive, row.values)
        self.append(STEPS, {"step": row.step, "time": row.time, **row.values})
        self.last = row
        self._each("row", row)

    def _each(self, hook: str, *args) -> None:
        for callback in list(self._live):
            self._call(callback, getattr(callback, hook), *args)

    def _call(self, callback: ObsCallback, function, *args):
        """Call one of a callback's functions, guarded and timed."""
        start, outer, self._current = time.perf_counter(), self._current, callback
        try:
            return function(*args)
        except Exception as error:
            if any(c is callback for c in self._live):
                self._live = [c for c in self._live if c is not callback]
                self._report_off(callback.yaml_name, error)
        finally:
            self._current = outer
            self.costs[callback.yaml_name] += time.perf_counter() - start

    def _report_off(self, name: str, error: BaseException) -> None:
        text = f"switched off after {type(error).__name__}: {' '.join(str(error).split())[:300]}; training goes on"
        self._muted = False
        self.event("callback_off", name, f"{name} switched off", text, level="warn")

    def _switch_off(self, error: BaseException) -> None:
        """The recorder itself failed: say so once, let go of the Trainer, be silent from here on."""
        was_active, self.active = self.active, False
        if hasattr(self, "_taps"):
            self._taps.remove()
        if was_active or self.trainer is not None:
            Console(enabled=True).line(f"recorder switched off after {error!r}; training goes on", "warn")

    def _writing(self, problem: str | None) -> None:
        if problem is not None:
            self.console.line(f"{problem}; training goes on, rows are lost until it works again", "warn")
        else:
            lost = self._writer.dropped
            self.event("record_gap", "recorder", "rows lost", f"writing works again; {lost} rows were lost", level="warn")

    def _obey(self, step: int, control) -> None:
        due = [what for when, what in self._requests if when <= step]
        self._requests = [(when, what) for when, what in self._requests if when > step]
        if "save" in due:
            control.should_save = True
        if "stop" in due:
            control.should_training_stop = True


def _add_loss(row: Row, loss: float) -> None:
    """A step's loss is the sum over its micro-batches: the Trainer has already divided each by their number."""
    row.values["train/loss"] = row.values.get("train/loss", 0.0) + loss
