"""What LlamaFactory will do with this config and this `output_dir`: start anew, resume, refuse.

The rules are those of LlamaFactory 0.9.5 (`hparams/parser.py` from "can_resume_from_checkpoint" on, `LogCallback`) and
transformers 5.6.0 (`Trainer.train`).
"""

from dataclasses import dataclass, field
from pathlib import Path

from ...texts import text
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
            why = text("ahead.start.stage_ends", why=why, stage=run.get("stage"))
        return Start(kind, why, reason, checkpoint, bool(asked), found, deletes)

    if asked is not None and not can:
        return start("new", "stage_ignores", text("ahead.start.stage_ignores", stage=run.get("stage")))
    if asked is True:  # left to transformers
        if not found:
            return start("refused", "none_there", text("ahead.start.none_there", output=output))
        why = text("ahead.start.asked_newest", checkpoint=found[-1])
        return start("resume", "asked_newest", why, output / found[-1])
    if asked is False:
        return start("new", "off", text("ahead.start.off"))
    if asked is not None:  # a word that is no folder, be it 0 or "", is taken for one
        folder = Path(str(asked))
        if asked == "" or not folder.is_dir():
            return start("refused", "no_such_folder", text("ahead.start.no_such_folder", folder=folder))
        return start("resume", "asked", text("ahead.start.asked", checkpoint=folder.name), folder)
    if not output.is_dir():
        return start("new", "no_folder", text("ahead.start.no_folder", output=output))
    if overwrite:
        why = text("ahead.start.overwrite") if found or deletes else text("ahead.start.new")
        return start("new", "overwrite", why)
    if not can:
        return start("new", "stage", text("ahead.start.stage"))
    if found:
        why = text("ahead.start.unasked", checkpoint=found[-1])
        return start("resume", "unasked", why, output / found[-1])
    from llamafactory.extras.constants import CHECKPOINT_NAMES

    names = sorted(name for name in CHECKPOINT_NAMES if (output / name).is_file())
    if names:
        why = text("ahead.start.model_there", output=output, name=names[0])
        return start("refused", "model_there", why)
    return start("new", "empty", text("ahead.start.empty"))


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
    matches.reverse()  # of two with one number (checkpoint-8, checkpoint-08) it takes the one that is listed first
    return [match.string for match in sorted(matches, key=lambda match: int(match[1]))]
