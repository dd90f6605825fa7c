"""Non-finite gradient norms and losses: a skipped step, or a run that is numerically dead."""

import math

from .finding import Finding
from .numbers import as_number, plain

_LIMITS = (
    "It says when the first non-finite value was seen, not which layer or sample made it. A logged loss can look "
    "finite or exactly 0.0 meanwhile, because the Trainer hides NaN losses by default (logging_nan_inf_filter)."
)
_WORD = {"nan": "NaN", "inf": "infinite"}


class NonFiniteDetector:
    """Finds NaN and infinity in the gradient norm or the loss, and tells fp16 step skipping from a dead run.

    Without a loss scaler (bf16, fp32) the first bad step is an error: the optimizer has used the bad gradients. With a
    scaler (`scaler_active`), or when the step is known to have been skipped, it is an info "skipped_step", once per run
    of bad steps; `patience` bad steps in a row are an error. `scaler_active` with `step_skipped=False` (the scaler
    let the step through) is an error at once. A dead run is reported once; `recover_after` good steps in a row
    close it with the info "finite_again".

    `scaler_active=None` means not known, as in a log read afterwards: the first bad step is a warn, an error follows
    with `unknown_patience` bad steps in a row or a loss that is non-finite or 0.0 beside the bad norm.

    10 in a row: the fp16 scaler halves its scale at each skip, so 10 skips are a factor of 1024, more than the search
    for the first scale of a healthy run needs. Scattered skips are normal (10 of 34,000 steps in ftdoctor's survey).

    A missing norm (None) is not non-finite. A step with neither norm nor loss is ignored. A good step is one with a
    finite norm; where the bad steps had no norm either, one with a finite loss other than 0.0.
    """

    def __init__(self, *, patience: int = 10, unknown_patience: int = 3, recover_after: int = 3) -> None:
        if min(patience, unknown_patience, recover_after) < 1:
            raise ValueError("patience, unknown_patience and recover_after must be at least 1")
        self.patience, self.unknown_patience, self.recover_after = patience, unknown_patience, recover_after
        self._since: int | None = None  # first step of the present run of bad steps
        self._bad_run = self._good_run = 0
        self._dead = False
        self._norm_was_bad = False

    @property
    def is_dead(self) -> bool:
        """Has the run been reported as dead, and not come back?"""
        return self._dead

    @property
    def is_open(self) -> bool:
        """Whether the next step is of interest even if it is a good one."""
        return self._since is not None

    def update(
        self,
        step: int,
        norm: float | None,
        loss: float | None,
        scaler_active: bool | None = False,
        step_skipped: bool | None = None,
    ) -> Finding | None:
        """Takes the norm before clipping and the loss of one optimizer step; either may be None (not known)."""
        norm, loss = as_number(norm), as_number(loss)
        bad_norm = norm is not None and not math.isfinite(norm)
        bad_loss = loss is not None and not math.isfinite(loss)
        if not (bad_norm or bad_loss):
            return self._good(step, norm, loss)
        if self._since is None:
            self._since = step
        self._bad_run, self._good_run = self._bad_run + 1, 0
        self._norm_was_bad = self._norm_was_bad or bad_norm
        if self._dead:
            return None
        evidence = {
            "norm": plain(norm),
            "loss": plain(loss),
            "since": self._since,
            "steps_in_a_row": self._bad_run,
            "scaler_active": scaler_active,
            "step_skipped": step_skipped,
        }
        name = "nan" if any(v is not None and math.isnan(v) for v in (norm, loss)) else "inf"
        unknown = scaler_active is None and step_skipped is None
        if unknown:
            dead = bad_loss or loss == 0.0 or self._bad_run >= self.unknown_patience
        else:
            may_be_skipped = step_skipped is True or (scaler_active and step_skipped is None)
            dead = not may_be_skipped or self._bad_run >= self.patience
        if dead:
            return self._report_dead(step, name, bad_norm, bool(scaler_active), evidence)
        if self._bad_run > 1:
            return None
        if unknown:
            text = (
                f"Step {step} has a non-finite gradient norm. In fp16 a single one is a step that the loss scaler "
                f"skipped; in bf16 or fp32 the run is lost from here: look at the steps after it."
            )
            return Finding(name, "warn", step, text, evidence, "keep", {}, _LIMITS)
        text = (
            f"Step {step} had a non-finite gradient and was skipped by the loss scaler. Nothing to do: single skipped "
            f"steps are normal in fp16."
        )
        return Finding("skipped_step", "info", step, text, evidence, "none", {}, _LIMITS)

    def _report_dead(self, step: int, name: str, bad_norm: bool, scaler_active: bool, evidence: dict) -> Finding:
        self._dead = True
        what = "gradient norm" if bad_norm else "loss"
        text = f"The run is numerically dead since step {self._since}: the {what} is {_WORD[name]}"
        text += f", {self._bad_run} steps in a row. " if self._bad_run > 1 else ". "
        if evidence["loss"] == 0.0:
            text += "The loss of 0.0 is NaN too, not convergence. "
        text += f"Stop it and go back to the last checkpoint before step {self._since} (or start anew); "
        if scaler_active:
            text += "train in bf16 instead of fp16."
            suggest = {"fp16": False, "bf16": True}
        else:
            text += "check the attention backend, the data type and the samples of that step."
            suggest = {"flash_attn": "sdpa"}
        return Finding(name, "error", step, text, evidence, "kill", suggest, _LIMITS)

    def _good(self, step: int, norm: float | None, loss: float | None) -> Finding | None:
        if self._since is None:
            return None
        if norm is None and (self._norm_was_bad or loss is None or loss == 0.0):
            return None  # nothing that could vouch for this step
        self._good_run += 1
        if self._dead and self._good_run < self.recover_after:
            return None
        was_dead, since = self._dead, self._since
        self._since, self._bad_run, self._good_run, self._dead, self._norm_was_bad = None, 0, 0, False, False
        if not was_dead:
            return None
        text = (
            f"Finite values are back at step {step}; they were non-finite since step {since}. Compare the loss with "
            f"that of before step {since} and keep the checkpoint from before it."
        )
        evidence = {"norm": plain(norm), "loss": plain(loss), "since": since}
        return Finding("finite_again", "info", step, text, evidence, "keep", {}, _LIMITS)
