"""All checkpoints of an output folder: each one's verdict, and the newest that can be trusted."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..probe.scan import step_of
from ..texts import text
from .context import Context, read_context
from .examine import Depth, Examined, examine, examine_final
from .files import STATE, Incomplete, read_step
from .loading import Loader
from .run_of import OLDER, Witness, reference, run_of, witness
from .verdict import DAMAGED


@dataclass
class Report:
    """What was found in one folder.

    Attributes:
        dir: the folder that was named.
        checkpoints: by step.
        final: the model in the output folder itself; None where there is none.
        source: what tells this run from others.
        quick: headers and sizes only.
        serving_only: `save_only_model`: they were never meant to be resumed from.
    """

    dir: Path
    checkpoints: list[Examined]
    final: Examined | None = None
    source: str = ""
    quick: bool = False
    serving_only: bool = False

    @property
    def _own(self) -> list[Examined]:
        return [one for one in self.checkpoints if one.run != OLDER]

    @property
    def newest(self) -> Examined | None:
        """The one with the highest number: LlamaFactory resumes from it, whatever it holds and whoever saved it."""
        return self.checkpoints[-1] if self.checkpoints else self.final

    @property
    def resume(self) -> Examined | None:
        """The newest of this run from which training goes on as if nothing had been."""
        return next((one for one in reversed(self._own) if one.good), None)

    @property
    def serve(self) -> Examined | None:
        """The newest of this run that serves; the final model before all others."""
        if self.final is not None and self.final.verdict.serves:
            return self.final
        return next((one for one in reversed(self._own) if one.verdict.serves and not one.moving), None)

    @property
    def flaw(self) -> str:
        """Why the newest is not good for what it is for; "" where it is."""
        newest = self.newest
        if newest.run == OLDER:
            return text("checkpoint.folder.other_run", name=newest.name, why=newest.run_why)
        if newest.moving:
            return text("checkpoint.folder.moving", name=newest.name, why=newest.moving)
        if newest.final or self.serving_only:
            return "" if newest.verdict.serves and newest.verdict.verdict != DAMAGED else _said(newest)
        return "" if newest.good else _said(newest)

    def as_dict(self) -> dict:
        """For `--json`."""
        good = {"resume": self.resume, "serve": self.serve}
        return {
            "dir": str(self.dir),
            "checkpoints": [one.as_dict() for one in self.checkpoints],
            "final": self.final.as_dict() if self.final is not None else None,
            "newest_good": {
                what: None if one is None else {"path": str(one.path), "name": one.name, "step": one.step}
                for what, one in good.items()
            },
            "newest": self.newest.name,
            "fine": not self.flaw,
            "flaw": self.flaw,
            "run_told_by": self.source,
            "quick": self.quick,
        }


def _said(one: Examined) -> str:
    return f"{one.name}: {one.verdict.verdict}" + (f": {one.verdict.reasons[0]}" if one.verdict.reasons else "")


def examine_folder(
    folder: Path,
    *,
    base: str | None = None,
    depth: Depth = Depth(),  # noqa: B008 - frozen
    loader: Loader | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Examine an output folder, or one checkpoint. Nothing is written, moved or deleted.

    Args:
        folder: an `output_dir`, or a checkpoint, whatever its name.
        base: a base model in place of the recorded one.
        loader: loads each one; None for a look at the files only.
        say: is told what is going on.

    Raises:
        ConfigError: there is no such folder, or no checkpoint in it.
    """
    if not folder.is_dir():
        what = "a file, not a folder" if folder.exists() else "no such folder"
        raise ConfigError(f"{folder}: {what}; name a run's output_dir or one checkpoint-N")
    try:
        found = _found(folder)
        single = not found and _is_checkpoint(folder)
        around = folder.resolve().parent if single else folder
        witnesses = {path.name: witness(path, step) for step, path in (_found(around) if single else found)}
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read: {error.strerror}") from None
    context = read_context(around, base)
    of = reference(around, list(witnesses.values()))
    paths = [folder] if single else [path for _, path in found]
    checkpoints: list[Examined] = []
    for number, path in enumerate(paths, 1):
        say(text("checkpoint.folder.progress", name=path.name, number=number, of=len(paths)))
        one = witnesses.get(folder.resolve().name if single else path.name) or witness(path, _own_step(path))
        checkpoints.append(examine(one, path, context, run_of(one, of), depth, loader))
    final = None
    if not single:
        say(text("checkpoint.folder.final"))
        final = examine_final(Witness(folder.name, None, _saved_at(folder)), folder, context, depth, loader)
    say("")
    if not checkpoints and final is None:
        raise ConfigError(f"{folder}: no checkpoint-N and no model in it; name a run's output_dir or one checkpoint-N")
    source, serving = of.source if of is not None else "", _serving_only(context, witnesses.values())
    return Report(folder, checkpoints, final, source, quick=not depth.values, serving_only=serving)


def _found(folder: Path) -> list[tuple[int, Path]]:
    """`(step, path)` of all that is called `checkpoint-N`, folder or not, by step."""
    with os.scandir(folder) as entries:
        found = [(step_of(entry.name), folder / entry.name) for entry in entries]
    return sorted((step, path) for step, path in found if step is not None)


def _is_checkpoint(folder: Path) -> bool:
    """One checkpoint under any name: called so, or with the files of a resume in it."""
    names = ("optimizer.pt", "scheduler.pt", "rng_state.pth", "latest")
    return step_of(folder.resolve().name) is not None or any((folder / name).exists() for name in names)


def _own_step(folder: Path) -> int:
    """The step of a checkpoint that is not called after it."""
    try:
        return read_step(folder)
    except Incomplete:
        return 0


def _saved_at(folder: Path) -> float:
    try:
        return (folder / STATE).stat().st_mtime
    except OSError:
        return 0.0


def _serving_only(context: Context, witnesses) -> bool:
    """`save_only_model`, by the record or by the checkpoints themselves."""
    if context.value("config", "given", "save_only_model") in (True, "true", "True"):
        return True
    told = [one.arguments["save_only_model"] for one in witnesses if "save_only_model" in one.arguments]
    return bool(told) and told[-1] is True
