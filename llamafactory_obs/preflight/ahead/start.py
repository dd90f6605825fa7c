"""What LlamaFactory will do with this config and this `output_dir`: start anew, resume, refuse.

The rules are those of LlamaFactory 0.9.5 (`hparams/parser.py` from "can_resume_from_checkpoint" on, `LogCallback`) and
transformers 5.6.0 (`Trainer.train`).
"""

from dataclasses import dataclass, field
from pathlib import Path

from .effective import Effective

#: in `output_dir`; deleted with `overwrite_output_dir`
LOG = "trainer_log.jsonl"


#: with these stages nothing is resumed. ppo: `CustomPPOTrainer.ppo_train` refuses; rm: the Trainer looks for weights of
#: the model with its value head, and only an adapter was saved; with full tuning neither looks at checkpoints
NEVER = ("rm", "ppo")


@dataclass(frozen=True)
class Start:
    """How a run will begin.

    Attributes:
        kind: "new" | "resume" | "refused".
        why: in words, for people.
        reason: the same as one word, for who says it in a language of his own.
        checkpoint: what is resumed; None where nothing is.
        asked: the config names the checkpoint itself.
        checkpoints: names of those in `output_dir`, by step.
        deletes_log: `trainer_log.jsonl` of the run before will be deleted.
    """

    kind: str
    why: str
    reason: str
    checkpoint: Path | None = None
    asked: bool = False
    checkpoints: list[str] = field(default_factory=list)
    deletes_log: bool = False


def how_it_starts(run: Effective) -> Start:
    """Tell how a run will begin."""
    output = run.output_dir
    found = checkpoints_in(output)
    overwrite = bool(run.get("overwrite_output_dir"))
    deletes = overwrite and (output / LOG).exists()
    asked = run.config.given.get("resume_from_checkpoint")
    can = can_resume(run)

    def start(kind: str, reason: str, why: str, checkpoint: Path | None = None) -> Start:
        if kind == "resume" and run.get("stage") in NEVER:
            kind, reason = "refused", "stage_ends"
            why = f"{why}; but LlamaFactory ends with an error: stage: {run.get('stage')} cannot resume"
        return Start(kind, why, reason, checkpoint, bool(asked), found, deletes)

    if asked is not None and not can:
        why = f"starts new: LlamaFactory ignores resume_from_checkpoint with stage: {run.get('stage')} and full tuning"
        return start("new", "stage_ignores", why)
    if asked is True:  # left to transformers
        if not found:
            why = f"resume_from_checkpoint: true, and there is no checkpoint in {output}"
            return start("refused", "none_there", why)
        return start("resume", "asked_newest", f"will resume from {found[-1]}, the newest", output / found[-1])
    if asked:
        folder = Path(str(asked))
        if not folder.is_dir():
            return start("refused", "no_such_folder", f"resume_from_checkpoint: no such folder {folder}")
        return start("resume", "asked", f"will resume from {folder.name}, as asked", folder)
    if asked is not None:  # false
        return start("new", "off", "starts new: resume_from_checkpoint is off")
    if not output.is_dir():
        return start("new", "no_folder", f"starts new: {output} does not exist yet")
    if overwrite:
        why = "starts new: overwrite_output_dir is on" if found or deletes else "starts new"
        return start("new", "overwrite", why)
    if not can:
        return start("new", "stage", "starts new: LlamaFactory cannot resume this stage")
    if found:
        why = f"will resume from {found[-1]}, which lies in output_dir, unasked"
        return start("resume", "unasked", why, output / found[-1])
    from llamafactory.extras.constants import CHECKPOINT_NAMES

    names = sorted(name for name in CHECKPOINT_NAMES if (output / name).is_file())
    if names:
        why = f"{output} holds {names[0]} and no checkpoint: LlamaFactory refuses to start"
        return start("refused", "model_there", why)
    return start("new", "empty", "starts new: no checkpoint in output_dir")


def can_resume(run: Effective) -> bool:
    """Does LlamaFactory look at checkpoints at all? With some stages it does not, also where one is named."""
    return not (run.get("stage") in NEVER and run.get("finetuning_type") in ("full", "freeze"))


def checkpoints_in(output: Path) -> list[str]:
    """Names of the folders that transformers takes for checkpoints, by step; complete or not."""
    from transformers.trainer_utils import _re_checkpoint

    try:
        names = [entry.name for entry in output.iterdir() if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    matches = [match for name in names if (match := _re_checkpoint.search(name))]
    return [match.string for match in sorted(matches, key=lambda match: int(match[1]))]
