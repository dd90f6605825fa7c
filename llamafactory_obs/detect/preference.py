"""Preference training (DPO, KTO, ORPO, SimPO, reward models) by its own numbers."""

import math
from statistics import median

from .finding import Finding
from .numbers import as_number, plain

_LIMITS = (
    "rewards/accuracies says how often the chosen answer is preferred on the training pairs; it knows nothing of what "
    "the model writes."
)


class PreferenceDetector:
    """Tells where the pairs are not told apart: accuracies stay near 0.5 and margins do not grow.

    A DPO loss starts at ln 2 = 0.693 with accuracies of 0 or 0.5 and margins of 0; ORPO and SimPO start elsewhere, so
    the loss alone is not judged here. Compared are the first and the last quarter of the rows, at least `rows` of them.
      preference_flat      (warn) the last quarter's accuracy is below 0.55 and its margin not above the first's noise
      preference_reversed  (error) the last quarter's accuracy is below 0.4: chosen and rejected may be swapped
      chosen_falls         (info) the reward of the chosen answers falls below its start by 1 nat and more: the margin
                           grows by making both less likely
    """

    def __init__(self, *, rows: int = 40) -> None:
        if rows < 8:
            raise ValueError("rows must be at least 8")
        self.rows = rows
        self.restart()

    def restart(self) -> None:
        """Forgets all: another run begins."""
        self._rows: list[tuple[int, float, float | None, float | None]] = []
        self._every, self._seen = 1, 0

    def update(self, step: int, accuracy: float | None, margin: float | None, chosen: float | None) -> None:
        """Takes one logged row: rewards/accuracies, rewards/margins, rewards/chosen."""
        accuracy, margin, chosen = as_number(accuracy), as_number(margin), as_number(chosen)
        if accuracy is None or not math.isfinite(accuracy):
            return
        self._seen += 1
        if self._seen % self._every:
            return
        self._rows.append((step, accuracy, margin, chosen))
        if len(self._rows) == 1024:
            self._rows, self._every = self._rows[::2], self._every * 2

    def finish(self, step: int) -> list[Finding]:
        """The log ends here."""
        if len(self._rows) < self.rows:
            return []
        quarter = len(self._rows) // 4
        first, last = self._rows[:quarter], self._rows[-quarter:]
        accuracy = sum(row[1] for row in last) / quarter
        start = sum(row[1] for row in first) / quarter
        evidence = {"since": self._rows[0][0], "accuracy_start": plain(start, 3), "accuracy": plain(accuracy, 3)}
        margins = [[row[2] for row in part if row[2] is not None] for part in (first, last)]
        grows = None
        if all(margins):
            old, new = median(margins[0]), median(margins[1])
            evidence |= {"margin_start": plain(old, 3), "margin": plain(new, 3)}
            grows = new > old + 2 * median(abs(v - old) for v in margins[0])
        if accuracy < 0.4:
            text = (
                f"The chosen answer is preferred in only {accuracy:.0%} of the pairs: are chosen and rejected swapped?"
            )
            return [Finding("preference_reversed", "error", step, text, evidence, "kill", {}, _LIMITS, None, 0.7)]
        if accuracy < 0.55 and not grows:
            text = f"The pairs are not told apart: accuracy {accuracy:.0%}, as by chance. Check the rate and the pairs."
            return [Finding("preference_flat", "warn", step, text, evidence, "keep", {}, _LIMITS, None, 0.6)]
        chosen = [[row[3] for row in part if row[3] is not None] for part in (first, last)]
        if all(chosen) and median(chosen[1]) < median(chosen[0]) - 1.0:
            evidence |= {"chosen_start": plain(median(chosen[0]), 3), "chosen": plain(median(chosen[1]), 3)}
            text = (
                f"The reward of the chosen answers falls from {median(chosen[0]):.3g} to {median(chosen[1]):.3g}: the "
                "margin grows by making both answers less likely. A higher pref_beta or pref_ftx holds it."
            )
            return [Finding("chosen_falls", "info", step, text, evidence, "keep", {}, _LIMITS, None, 0.6)]
        return []
