"""Commands to this run, from outside and from within: heard, agreed on by all ranks, carried out, recorded."""

import math
import shlex
from dataclasses import replace
from pathlib import Path

from ..control.auto import Auto
from ..control.folder import control_folder
from ..control.history import History, history
from ..control.inbox import TOGETHER, Inbox, Sent
from ..control.order import Order
from ..detect import Finding
from ..probe.scan import find_checkpoints
from .agree import Agreement
from .carry_out import Result, carry_out
from .exchange import Ranks
from .journal import one_line
from .lr_scale import schedule_is_fresh
from .outcomes import Outcome, Outcomes
from .requests import Requests, Wish


class Control:
    """One per training, on every rank; with several processes all ranks must make it together.

    While nobody commands, a step costs a few attribute reads; with several processes one asynchronous broadcast.

    Args:
        run: the Recorder.

    Attributes:
        lr_scale: product of the factors that the running schedule carries.
    """

    def __init__(self, run):
        self._run, self._options = run, run.context.settings.control
        self.lr_scale = 1.0
        self._planned_steps = run.trainer.state.max_steps
        self._is_main = run.trainer.state.is_world_process_zero
        self._requests = Requests()
        self._outcomes = Outcomes(self._answer, run.trainer.args.save_strategy == "best")
        self._auto = Auto(self._options)
        self._inbox: Inbox | None = None
        self._off = False
        self._proposed: list[str] = []  # what the first rank alone wishes, until it has told the others
        self._agreement = Agreement(run.trainer.args.ddp_timeout) if Ranks.needed() else None

    # ---- training begins ------------------------------------------------------------------------------------------

    def begin(self, continues: bool) -> None:
        """Open the inbox; carry out what has waited for this start.

        Args:
            continues: training goes on from a checkpoint of this folder.
        """
        content = self._guarded(self._open, continues) if self._is_main else None
        if self._agreement is not None:
            self._agreement.offer(content)
            content = self._agreement.settle()
        listens = content is not None and content["listens"]
        if not listens and not self._run.context.settings.alerts.stop_on:
            self._agreement = None  # on all ranks: there will be nothing to agree on
        if content is None:
            return
        self._guarded(self._begin_with, content)
        if self._inbox is not None:
            self._inbox.start()

    def _open(self, continues: bool) -> dict:
        state, record = self._run.trainer.state, control_folder(self._run.trainer.args.output_dir).parent
        known = history(record, state.global_step) if continues else History()
        queued = []
        if self._options.listen:
            try:
                inbox = Inbox(control_folder(self._run.trainer.args.output_dir), {"from_step": state.global_step})
                queued = [sent.to_dict() for sent in inbox.open()]
                self._inbox = inbox
            except OSError as error:
                reason = error.strerror or str(error)
                text = f"`llamafactory-obs control` cannot reach this run: {reason}"
                self._run.event("unavailable", "control", "no control", text, level="warn")
        before = [known.lr_scale, known.auto_times, known.auto_last]
        return {"history": before, "queued": queued, "listens": self._inbox is not None}

    def _begin_with(self, content: dict) -> None:
        scale, times, last = content["history"]
        if scale != 1 and not schedule_is_fresh(self._run.trainer):
            self.lr_scale = scale
        self._auto = Auto(self._options, times, last)
        if self._options.auto != "off":
            self._announce()
        step, control = self._run.trainer.state.global_step, self._run.trainer.control
        for packed in content["queued"]:
            self._carry_out_sent(Sent.from_dict(packed), step, control, before_first_step=True)
        self._tell_problems()

    def _announce(self) -> None:
        options = self._options
        what = "saves a checkpoint and stops"
        if options.auto == "scale_lr":
            what = f"multiplies the learning rate by {options.lr_scale:g}, at most {options.max_times} times"
            what += f" and not within {options.cooldown_steps} steps of the last time"
        text = f"auto: {options.auto} is on: on an error `spike` or `diverged` this run {what}."
        text += " On NaN it stops without a checkpoint." if options.auto == "stop" else " On NaN it does nothing."
        heard = {"grad_norm_spike", "diagnose"} & {callback.yaml_name for callback in self._run.callbacks}
        if not heard:
            text += " But no callback here raises them: name grad_norm_spike under `callbacks:`."
        self._run.event("note", "control", "auto is on", text, level="info" if heard else "warn")

    # ---- one step -------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Before the update: rank 0 tells the others what it has heard."""
        if self._agreement is not None:
            proposed, self._proposed = self._proposed, []
            self._agreement.offer([*(sent.to_dict() for sent in self._taken()), *({"wish": what} for what in proposed)])

    def act(self, step: int, control) -> None:
        """The step ends: carry out what is due, on all ranks."""
        inbox = self._inbox
        heard = inbox is not None and (inbox.waiting or inbox.problems)
        if self._agreement is None and not (heard or self._requests.waiting or self._outcomes.open):
            return
        if self._agreement is not None:
            if not self._agreement.offered:  # a loop that has no hook before the update
                self.ask()
            agreed = self._agreement.settle() or ()
            sent = [Sent.from_dict(packed) for packed in agreed if "wish" not in packed]
            for wish in (packed["wish"] for packed in agreed if "wish" in packed):
                self.request(wish, step)
        else:
            sent = self._taken()
        wishes = self._requests.due(step)
        if self._outcomes.open:
            self._guarded(self._outcomes.settle_before, step)
        for one in sent:
            self._guarded(self._carry_out_sent, one, step, control)
        for wish in wishes:
            self._carry_out_wish(wish, control)  # also when commands are switched off
        if self._inbox is not None and self._inbox.problems:
            self._guarded(self._tell_problems)

    def request(self, what: str, due: int) -> None:
        """A callback wishes for a `save` or a `stop` at the end of step `due`."""
        self._requests.add(Wish(due, Order(**{what: True})))

    def propose(self, what: str) -> None:
        """The first of several ranks wishes for a `save` or a `stop`: the others hear of it, and all do it together."""
        self._proposed.append(what)

    def heard(self, name: str, finding: Finding, step: int, due: int) -> None:
        """A callback has raised an alert for the row of `step`; is there something to do about it, at `due`?"""
        if self._options.auto != "off":
            self._guarded(self._remedy, name, finding, step, due)

    def _remedy(self, name: str, finding: Finding, step: int, due: int) -> None:
        order = self._auto.decide(step, finding)
        if order is None:
            return
        since = finding.evidence.get("since")
        since = since if isinstance(since, int) else finding.step
        before = [found for found in _checkpoints_of(self._run.trainer) if found.step < since]
        back = str(before[-1].folder) if before else None
        because = f"auto: {finding.name} since step {since} ({name})"
        if back is None:
            advice = "There is no checkpoint before it"
        else:
            queue = f"control {shlex.quote(self._run.trainer.args.output_dir)} --lr-scale 0.5 --queue"
            halved = f"`llamafactory-obs {queue}` before the start halves its rate"
            advice = f"{'To go on' if order.stop else 'If it does not come back'}, resume from {back}; {halved}"
        evidence = {"finding": finding.name, "since": since, "resume_from": back}
        suggest = {"resume_from_checkpoint": back} if back else {}
        self._requests.add(Wish(due, order, because, f" {advice}.", evidence, suggest))

    def _taken(self) -> list[Sent]:
        """What rank 0 has heard, claimed: nobody carries it out a second time."""
        taken: list[Sent] = []
        if self._inbox is None or not self._inbox.waiting:
            return taken
        try:
            while self._inbox.waiting and len(taken) < TOGETHER:
                sent = self._inbox.waiting.popleft()
                if self._inbox.claim(sent):
                    stop = sent.order.stop and not self._is_dead()
                    taken.append(replace(sent, order=replace(sent.order, save=True)) if stop else sent)
        except Exception as error:
            self._fail(error)
        return taken

    def _is_dead(self) -> bool:
        """Were loss or gradients of the newest finished step not finite, and the update not skipped?"""
        values = self._run.last.values
        numbers = [values.get(name, 0.0) for name in ("train/loss", "train/grad_norm")]
        return not all(map(math.isfinite, numbers)) and values.get("train/step_skipped") != 1

    # ---- carrying out ---------------------------------------------------------------------------------------------

    def _carry_out_sent(self, sent: Sent, step: int, control, before_first_step: bool = False) -> None:
        results = self._do(sent.order, control)
        if sent.order.stop and not sent.order.save:
            results[-1].text += "; no checkpoint, because the last step's loss or gradients were not finite"
        who = f"pid {sent.by['pid']} on {sent.by.get('host', '?')}" if "pid" in sent.by else "a file in the inbox"
        more = {"id": sent.id, "by": sent.by} | ({"before_first_step": True} if before_first_step else {})
        level = "warn" if any(result.status == "refused" for result in results) else "info"
        because = f"{sent.order.words()}, asked for by {who}"
        self._record(results, Wish(step, sent.order, because, evidence=more), step, "carried out", level)
        self._outcomes.add(Outcome(sent, step, results))

    def _carry_out_wish(self, wish: Wish, control) -> None:
        try:
            results = self._do(wish.order, control)
            if wish.reason is not None:
                self._record(results, wish, self._run.trainer.state.global_step, "auto", "warn")
        except Exception as error:
            self._fail(error)

    def _do(self, order: Order, control) -> list[Result]:
        own_loop = self._run.context.stage == "ppo"
        results = carry_out(order, self._run.trainer, control, self._planned_steps, own_loop)
        if any(result.change is not None for result in results):
            self.lr_scale *= order.lr_scale
        return results

    def _record(self, results: list[Result], wish: Wish, step: int, title: str, level: str) -> None:
        said = "; ".join(f"refused: {one.text}" if one.status == "refused" else one.text for one in results)
        about = {"order": wish.order.given(), "results": [one.to_dict() for one in results], **(wish.evidence or {})}
        change = next((result.change for result in results if result.change is not None), None)
        if change is not None:
            about["lr_scale"] = self.lr_scale
        text = f"{wish.reason}: {said}{'.' + wish.advice if wish.advice else ''}"
        how = {"level": level, "step": step, "evidence": about, "suggest": wish.suggest}
        self._run.event("control", "control", title, text, **how)
        if change is not None:
            factor, by = wish.order.lr_scale, "auto" if title == "auto" else "command"
            text = f"learning rate {change.before[0]:.4g} -> {change.after[0]:.4g}: scaled by {factor:g}; {wish.reason}"
            rates = {"lr": change.after[0], "before": change.before[0], "group": 0, "rates": change.after[:64]}
            about = {"step": step, "evidence": rates | {"factor": factor, "by": by}}
            self._run.event("lr_change", "control", "scaled", text, show=False, **about)

    # ---- what came of it ------------------------------------------------------------------------------------------

    def saved(self, path: str) -> None:
        """The Trainer has saved a checkpoint."""
        self._guarded(self._outcomes.came_true, "save", f"{path} is saved")

    def evaluated(self, metrics: dict) -> None:
        """An evaluation has ended."""
        loss = metrics.get("eval_loss")
        text = f"evaluated: eval_loss {loss:.4g}" if isinstance(loss, float) else "evaluated"
        self._guarded(self._outcomes.came_true, "eval", text)

    def ended(self, step: int) -> None:
        """Training has ended after this step."""
        best = self._run.trainer.args.load_best_model_at_end and self._run.trainer.state.best_model_checkpoint
        text = f"training has ended after step {step}; the final model has the weights of {best or f'step {step}'}"
        self._guarded(self._outcomes.came_true, "stop", text)
        self._guarded(self._outcomes.settle_before, step + 1)

    def off(self) -> None:
        """Nothing more will be called."""
        if self._inbox is not None:
            inbox, self._inbox = self._inbox, None
            self._guarded(inbox.close, self._run.trainer.state.global_step)

    def _answer(self, id: str, answer: dict) -> None:
        if self._inbox is not None:
            self._inbox.answer(id, answer)

    def _tell_problems(self) -> None:
        while self._inbox is not None and self._inbox.problems:
            self._run.event("control", "control", "not carried out", self._inbox.problems.popleft(), level="warn")

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _guarded(self, function, *args, **kwargs):
        """What fails here is said once and switched off; the agreement of the ranks goes on."""
        if self._off:
            return None
        try:
            return function(*args, **kwargs)
        except Exception as error:
            self._fail(error)
            return None

    def _fail(self, error: Exception) -> None:
        self._off = True
        text = f"switched off after {one_line(error, 300)}; training goes on, commands are not heard any more"
        self._run.event("callback_off", "control", "control switched off", text, level="warn")
        inbox, self._inbox = self._inbox, None
        if inbox is not None:
            inbox.close(self._run.trainer.state.global_step)


def _checkpoints_of(trainer) -> list:
    """The run's checkpoints by step; none where its folder cannot be listed."""
    try:
        return find_checkpoints(Path(trainer.args.output_dir))
    except OSError:
        return []
