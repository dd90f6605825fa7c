"""The number that a loss is divided by must be one number in all micro-batches of a step."""

from collections.abc import Sequence

from .finding import Finding
from .numbers import as_number

_LIMITS = "The loss and the gradients of such a step are weighted wrongly; what that did to the model is not measured."


class NormaliserDetector:
    """Warns once when the micro-batches of one optimizer step are divided by different token counts.

    The Trainer counts the labels of a whole accumulation window and hands that number to each of its micro-batches
    (`num_items_in_batch`). Counts that differ, as 279, 279, 470, 470, give some samples of a step more weight than
    others (LlamaFactory issue 6639).

    Args:
        version: of transformers, for the text.
    """

    def __init__(self, *, version: str) -> None:
        self.version = version
        self._reported = False

    def update(self, step: int, counts: Sequence[float | None]) -> Finding | None:
        """Takes the counts of one step's micro-batches in their order; None where the loss is a mean of its own."""
        seen = [as_number(count) for count in counts]
        if self._reported or len(set(seen)) <= 1:
            return None
        self._reported = True
        listed = ", ".join("none" if count is None else f"{count:g}" for count in seen[:8])
        text = f"Normaliser not constant within a step: the micro-batches of step {step} are divided by {listed} tokens"
        text += f" (transformers {self.version}). The loss then depends on how the batch is cut: change the version of"
        text += " transformers, or train without accumulation."
        evidence = {"counts": seen[:64], "transformers": self.version}
        return Finding("normaliser not constant", "warn", step, text, evidence, "keep", {}, _LIMITS)
