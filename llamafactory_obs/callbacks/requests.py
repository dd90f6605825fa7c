"""What callbacks, and `auto`, ask of the Trainer, until its step comes."""

from dataclasses import dataclass

from ..control.order import Order


@dataclass(frozen=True)
class Wish:
    """An order from inside the run.

    Attributes:
        due: the step at whose end it is carried out.
        reason: why, for the record; None where the callback has said so itself.
        advice: what the person should do, after what was done.
        evidence: the numbers behind it.
        suggest: YAML keys to change.
    """

    due: int
    order: Order
    reason: str | None = None
    advice: str = ""
    evidence: dict | None = None
    suggest: dict | None = None


class Requests:
    """Wishes, each with the step at which it is due; `waiting`: those whose step has not come."""

    def __init__(self):
        self.waiting: list[Wish] = []

    def add(self, wish: Wish) -> None:
        """Ask for it."""
        self.waiting.append(wish)

    def due(self, step: int) -> list[Wish]:
        """Take what is due by the end of this step."""
        due = [wish for wish in self.waiting if wish.due <= step]
        self.waiting = [wish for wish in self.waiting if wish.due > step]
        return due
