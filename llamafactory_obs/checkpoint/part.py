"""What a resume reads of a checkpoint, part by part, and what the run says must be in it."""

from dataclasses import dataclass

#: of a part. stale: whole, but of another step. doubtful: whole, but less than was expected
GOOD, MISSING, BROKEN, STALE, DOUBTFUL = "good", "missing", "broken", "stale", "doubtful"


@dataclass(frozen=True)
class Expected:
    """What the run says must be there.

    Attributes:
        step: the checkpoint's number.
        fp16: a loss scaler was in use: it may skip steps of the optimizer and the scheduler.
        ranks: processes that trained together.
        trainable: trainable parameters (elements); None where not known.
        least, most: bounds of it, by the checkpoint's own weights; None where not known.
        own_steps: the optimizer is rebuilt or kept for each parameter during the run (BAdam, GaLore and APOLLO layer by
            layer), so its count of steps is not the run's.
    """

    step: int
    fp16: bool = False
    ranks: int = 1
    trainable: int | None = None
    least: int | None = None
    most: int | None = None
    own_steps: bool = False


@dataclass(frozen=True)
class Part:
    """One thing that a resume reads.

    Attributes:
        name: weights | tokenizer | optimizer | scheduler | scaler | rng | data | trainer_state | training_args.
        state: good | missing | broken | stale | doubtful.
        file: where it lies, or would lie.
        why: in one line, the file's name in it; empty for a good one.
        needed: without it the Trainer does not resume, or silently begins anew with this part. Else it is only not
            bit-exact, or a convenience.
    """

    name: str
    state: str
    file: str
    why: str = ""
    needed: bool = True
