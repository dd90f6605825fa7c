"""What a training is told to plant, and what the fault says of itself: both where `diagnose` never looks."""

import json
import os
from pathlib import Path

#: variable of a training's environment: `{"fault": name, "at": step, "told": file}` as JSON; not set in a healthy one
VARIABLE = "LLAMAFACTORY_OBS_DRILL"


class Planted:
    """Takes the facts of a fault, in the first process of a training.

    Args:
        told: the note's file; None for none.

    Attributes:
        was_told: the fault has happened.
    """

    def __init__(self, told: str | None):
        self._told = told
        self.was_told = False

    def tell(self, **facts) -> None:
        """Write the facts; the newest ones hold."""
        self.was_told = True
        if self._told is not None and os.environ.get("RANK", "0") == "0":
            Path(self._told).write_text(json.dumps(facts), encoding="utf-8")


def read_planted(told: Path) -> dict | None:
    """The facts; None where the fault did not happen."""
    try:
        return json.loads(told.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
