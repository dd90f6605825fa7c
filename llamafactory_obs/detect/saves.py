"""Saves that are broken, that do not come, or that take longer than the notice before a machine is taken back."""

from .finding import Finding

_LATE_LIMITS = "Only saves by save_steps are waited for; one that raises ends the training and is no alert."


class SavesDetector:
    """Judges the saves of one run.

    Args:
        grace_s: seconds from the notice to the end; None where nobody waits for a notice.
    """

    def __init__(self, grace_s: float | None = None) -> None:
        self._grace_s = grace_s
        self._broken_since: int | None = None
        self._told: set[int] = set()
        self._late_since: int | None = None
        self._too_slow = False
        self._waits_for: int | None = None

    def step(self, step: int, due: bool) -> Finding | None:
        """An optimizer step has ended.

        Args:
            due: a checkpoint is to be saved right after it.
        """
        waited, self._waits_for = self._waits_for, step if due else None
        if waited is None or self._late_since is not None:
            return None
        self._late_since = waited
        text = (
            f"checkpoint-{waited} was due after step {waited} (save_steps) and was not saved; training went on. Ask for"
            " one now (`llamafactory-obs control DIR --save`) and look for a callback that takes the save back."
        )
        return Finding("checkpoint_late", "warn", step, text, {"due": waited}, "keep", limits=_LATE_LIMITS)

    def saved(self, step: int) -> Finding | None:
        """A checkpoint was saved."""
        self._waits_for = None
        if self._late_since is None:
            return None
        since, self._late_since = self._late_since, None
        text = f"checkpoint-{step} is saved; one was missing since step {since}."
        return Finding("checkpoint_late_over", "info", step, text, {"since": since}, "keep")

    def judged(self, step: int, flaw: str, good: str | None) -> Finding | None:
        """A checkpoint was looked at; an older one may be looked at again.

        Args:
            flaw: why it cannot be used for what it is for; "" where it can.
            good: name of the newest checkpoint that can, for the advice.
        """
        if flaw and step not in self._told:
            self._told.add(step)
            self._broken_since = step
            back = f"The newest good one is {good}" if good else "There is no good one"
            text = (
                f"checkpoint-{step} is broken: {flaw}. {back}; LlamaFactory would resume from the broken one by itself:"
                f" save again now (`llamafactory-obs control DIR --save`), and move checkpoint-{step} away."
            )
            evidence = {"flaw": flaw, "newest_good": good}
            return Finding("checkpoint_broken", "error", step, text, evidence, "keep")
        if not flaw and self._broken_since is not None and step > self._broken_since:
            since, self._broken_since = self._broken_since, None
            text = f"checkpoint-{step} is good again; checkpoint-{since} was broken."
            return Finding("checkpoint_broken_over", "info", step, text, {"since": since}, "keep")
        return None

    def took(self, step: int, save_s: float, step_s: float) -> Finding | None:
        """How long saving took, and a step before it: is a notice long enough for both? Said once."""
        if self._grace_s is None or self._too_slow or save_s + step_s <= self._grace_s:
            return None
        self._too_slow = True
        text = (
            f"Saving takes {save_s:.1f} s and a step {step_s:.1f} s, a notice allows {self._grace_s:g} s (grace_s):"
            " when the machine is taken back its last checkpoint may be cut off. Save more often, on a faster disk, or"
            " arrange for a longer notice."
        )
        evidence = {"save_s": save_s, "step_s": step_s, "grace_s": self._grace_s}
        limits = "Both are the longest seen so far; what LlamaFactory writes after the last checkpoint is not in it."
        return Finding("notice_too_short", "warn", step, text, evidence, "keep", limits=limits)
