"""What LlamaFactory will do with this config and this `output_dir`: start anew, resume, refuse.

The rules are those of LlamaFactory 0.9.5 (`hparams/parser.py` from "can_resume_from_checkpoint" on, `LogCallback`) and
transformers 5.6.0 (`Trainer.train`).
"""

from dataclasses import dataclass, field
from pathlib import Path

from .effective import Effective

#: in `output_dir`; deleted with `overwrite_output_dir`
LOG = "trainer_log.jsonl"


@dataclass(frozen=True)
class Start:
    """How a run will begin.

    Attributes:
        kind: "new" | "resume" | "refused".
        why: in words, for people.
        checkpoint: what is resumed; None where nothing is.
        asked: the config names the checkpoint itself.
        checkpoints: names of those in `output_dir`, by step.
        deletes_log: `trainer_log.jsonl` of the run before will be deleted.
    """

    kind: str
    why: str
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
    can = not (run.get("stage") in ("rm", "ppo") and run.get("finetuning_type") in ("full", "freeze"))

    def start(kind: str, why: str, checkpoint: Path | None = None) -> Start:
        return Start(kind, why, checkpoint, bool(asked), found, deletes)

    if asked is not None and not can:
        why = f"starts new: LlamaFactory ignores resume_from_checkpoint with stage: {run.get('stage')} and full tuning"
        return start("new", why)
    if asked is True:  # left to transformers
        if not found:
            return start("refused", f"resume_from_checkpoint: true, and there is no checkpoint in {output}")
        return start("resume", f"will resume from {found[-1]}, the newest", output / found[-1])
    if asked:
        folder = Path(str(asked))
        if not folder.is_dir():
            return start("refused", f"resume_from_checkpoint: no such folder {folder}")
        return start("resume", f"will resume from {folder.name}, as asked", folder)
    if asked is not None:  # false
        return start("new", "starts new: resume_from_checkpoint is off")
    if not output.is_dir():
        return start("new", f"starts new: {output} does not exist yet")
    if overwrite:
        return start("new", "starts new: overwrite_output_dir is on" if found or deletes else "starts new")
    if not can:
        return start("new", "starts new: LlamaFactory cannot resume this stage")
    if found:
        return start("resume", f"will resume from {found[-1]}, which lies in output_dir, unasked", output / found[-1])
    from llamafactory.extras.constants import CHECKPOINT_NAMES

    names = sorted(name for name in CHECKPOINT_NAMES if (output / name).is_file())
    if names:
        return start("refused", f"{output} holds {names[0]} and no checkpoint: LlamaFactory refuses to start")
    return start("new", "starts new: no checkpoint in output_dir")


def checkpoints_in(output: Path) -> list[str]:
    """Names of the folders that transformers takes for checkpoints, by step; complete or not."""
    from transformers.trainer_utils import _re_checkpoint

    try:
        names = [entry.name for entry in output.iterdir() if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    matches = [match for name in names if (match := _re_checkpoint.search(name))]
    return [match.string for match in sorted(matches, key=lambda match: int(match[1]))]
