"""What has come of the commands that were carried out: some parts the Trainer does later, after the step's end."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ..control.inbox import Sent
from .carry_out import Result


@dataclass
class Outcome:
    """A command that was carried out at the end of `step`. `awaited`: the parts that the Trainer has yet to do."""

    sent: Sent
    step: int
    results: list[Result]
    awaited: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.awaited = {result.what for result in self.results if result.status == "asked"}


class Outcomes:
    """Answers each command, and again when a part of it has come true.

    Args:
        answer: takes a command's id and its answer.
        best: with `save_strategy: best` the Trainer drops a save where it evaluates in the same step and is no better.
    """

    def __init__(self, answer: Callable[[str, dict], None], best: bool):
        self._answer, self._best = answer, best
        self.open: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        """A command was carried out."""
        if outcome.awaited:
            self.open.append(outcome)
        self._tell(outcome)

    def came_true(self, what: str, text: str) -> None:
        """The Trainer has done this part."""
        for outcome in list(self.open):
            if what not in outcome.awaited:
                continue
            outcome.awaited.discard(what)
            for result in outcome.results:
                if result.what == what:
                    result.status, result.text = "done", text
            if not outcome.awaited:
                self.open.remove(outcome)
            self._tell(outcome)

    def settle_before(self, step: int) -> None:
        """What the Trainer should have done after an earlier step and has not, it will not do any more."""
        for outcome in [one for one in self.open if one.step < step]:
            self.open.remove(outcome)
            for result in outcome.results:
                if result.what in outcome.awaited:
                    why = ": with save_strategy best the evaluation of the same step decided so"
                    why = why if self._best and result.what == "save" else ""
                    result.status, result.text = "refused", f"the Trainer has not done it{why}"
            outcome.awaited.clear()
            self._tell(outcome)

    def _tell(self, outcome: Outcome) -> None:
        state = "applied" if outcome.awaited else "finished"
        results = [result.to_dict() for result in outcome.results]
        about = {"state": state, "step": outcome.step, "order": outcome.sent.order.given(), "results": results}
        self._answer(outcome.sent.id, about)
