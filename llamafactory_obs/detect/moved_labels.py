"""Labels that are not the tokens at their own positions."""

from .finding import Finding
from .numbers import as_number

_LIMITS = (
    "It compares the labels with the input ids of the same batch. It holds where the model (or its loss) moves the"
    " labels by one itself, as every causal language model of transformers does."
)


class MovedLabelsDetector:
    """For a causal language model a label is the token at its own position, or left out; anything else is a fault.

    One such label is enough: a healthy run has none. Each episode is reported when it begins and when it is over, up
    to `most` episodes; how many steps there were is in `steps`.
    """

    def __init__(self, most: int = 5) -> None:
        self._most = most
        self._since: int | None = None
        self._episodes = 0
        self.steps = 0
        self.last: int | None = None

    def update(self, step: int, moved: float | None) -> Finding | None:
        """Takes one step's number of such labels; None where it is not known."""
        moved = as_number(moved)
        if moved is None:
            return None
        if moved > 0:
            self.steps += 1
            self.last = step
            if self._since is not None:
                return None
            self._since = step
            self._episodes += 1
            if self._episodes > self._most:
                return None
            text = (
                f"{moved:.0f} labels of step {step} are not the token at their own position: the model is taught"
                " something else than the text"
            )
            return Finding("labels_moved", "error", step, text, {"labels_moved": int(moved)}, "keep", {}, _LIMITS)
        if self._since is None:
            return None
        since, self._since = self._since, None
        if self._episodes > self._most:
            return None
        text = f"labels are the tokens at their positions again since step {step}; before that from step {since} on"
        return Finding("labels_moved_over", "info", step, text, {"since": since, "last": self.last}, "keep")
