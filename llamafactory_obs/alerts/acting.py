"""What an alert may do to the run: save a checkpoint, or save one and stop."""

from typing import Literal

#: after one of these the weights are lost: a checkpoint of them would only bury the last good one
LOST = frozenset({"nan", "inf", "broken moments"})


def demands(action: Literal["warn", "save", "stop"], title: str, lost: bool = False) -> tuple[str, ...]:
    """What to ask of the Trainer, in this order: `save`, `stop`, or nothing.

    Args:
        action: what is configured for an alert of this kind.
        title: the alert's.
        lost: the weights are known to be non-finite already.
    """
    if action == "warn":
        return ()
    save = () if lost or title in LOST else ("save",)
    return (*save, "stop") if action == "stop" else save
