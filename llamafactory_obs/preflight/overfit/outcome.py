"""What the single-batch test found."""

from dataclasses import asdict, dataclass, field

LEARNED, NOT_LEARNED, KNOWN, FAILED = "learned", "not_learned", "known", "failed"


@dataclass(frozen=True)
class Cause:
    """A likely cause: name for programs, what was seen, what to do."""

    name: str
    detail: str
    fix: str = ""


@dataclass
class Outcome:
    """The verdict and what it rests on.

    Attributes:
        status: learned | not_learned | known (before the training) | failed (the training broke off).
        batch: its rows: data set, row number from 0, tokens.
        limit: steps it was given.
        target: the loss to come under, None where no loss was seen.
        losses: of each step, before that step's update.
        learning_rate: as trained with.
        seconds: of the training, with loading.
        causes: likely ones, in order; empty where it learned.
        last_words: of the log, where the training broke off.
        notes: what this leaves open.
    """

    status: str
    batch: list[dict]
    limit: int
    target: float | None = None
    losses: list[float] = field(default_factory=list)
    learning_rate: float | None = None
    seconds: float = 0.0
    causes: list[Cause] = field(default_factory=list)
    last_words: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 where it learned, else 1; also where the batch was known: nothing was shown."""
        return int(self.status != LEARNED)

    def as_dict(self) -> dict:
        """For `--json`; a loss that is not finite is its name as text."""
        losses = [loss if abs(loss) < float("inf") else str(loss) for loss in self.losses]
        ends = {"first_loss": losses[0], "last_loss": losses[-1]} if losses else {"first_loss": None, "last_loss": None}
        learned = {LEARNED: True, KNOWN: None}.get(self.status, False)
        return {"learned": learned, **asdict(self), **ends, "step": len(losses), "losses": losses}
