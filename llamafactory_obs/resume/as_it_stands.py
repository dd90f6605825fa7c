"""What LlamaFactory will do with this config and this folder as they stand, before anything is done about it."""

from collections.abc import Callable
from pathlib import Path

from ..checkpoint.examine import Examined
from ..checkpoint.run_of import OLDER
from ..preflight.ahead.effective import Effective
from ..preflight.ahead.output_dir import no_folder
from ..preflight.ahead.start import LOG, Start
from .fate import Fate
from .folder import inside
from .point import GRAVE, INFO, WARN, Point


def as_it_stands(
    run: Effective, start: Start, examined: Callable[[Path], tuple[Examined, Fate]], total: int | None
) -> list[Point]:
    """The points, the first of which says what it does.

    Args:
        start: of `how_it_starts`.
        examined: a checkpoint by its content, and what becomes of it.
        total: steps that the run will have; None where that is not known.
    """
    output = run.output_dir
    if why := no_folder(output):
        return [Point("stands.no_room", GRAVE, {"why": why})]
    values = {"output": str(output), "stage": run.get("stage"), "count": len(start.checkpoints)}
    values["asked"] = str(run.config.given.get("resume_from_checkpoint"))
    values["checkpoint"] = start.checkpoint.name if start.checkpoint is not None else ""
    if start.kind == "refused":
        return [Point(f"stands.{start.reason}", GRAVE, values)]
    if start.kind == "new":
        return [Point(f"stands.{start.reason}", GRAVE if start.checkpoints else INFO, values), *_over(start, values)]
    points = [Point(f"stands.{start.reason}", INFO, values)]
    one, fate = examined(start.checkpoint)
    points += _fate(one, fate, values)
    points += _around(output, start, values)
    if fate.ends is None and total is not None and one.step is not None and one.step >= total:
        points.append(Point("stands.nothing_left", GRAVE, {**values, "step": one.step, "total": total}))
    return points


def _over(start: Start, values: dict) -> list[Point]:
    """A new run over an old one."""
    points = []
    if start.checkpoints:
        first, last = start.checkpoints[0], start.checkpoints[-1]
        name = "stands.mixed_one" if first == last else "stands.mixed"
        points.append(Point(name, GRAVE, {**values, "first": first, "last": last}))
    if start.deletes_log:
        points.append(Point("stands.deletes_log", GRAVE, {**values, "log": LOG}))
    return points


def _fate(one: Examined, fate: Fate, values: dict) -> list[Point]:
    points = []
    if one.run == OLDER:
        points.append(Point("stands.older", GRAVE, {**values, "why": one.run_why}))
    if fate.ends is not None:
        return [*points, Point("stands.ends", GRAVE, {**values, "why": fate.ends.why})]
    lost = list(dict.fromkeys(part.name for part in fate.lost))
    if lost:
        level = WARN if lost == ["rng"] else GRAVE
        points.append(Point("stands.loses", level, {**values, "parts": ", ".join(lost)}))
    if fate.wrong:
        points.append(Point("stands.wrong", GRAVE, {**values, "why": fate.wrong[0].why}))
    return points


def _around(output: Path, start: Start, values: dict) -> list[Point]:
    """What happens to log and folder."""
    if not inside(start.checkpoint, output):
        return [Point("stands.outside", WARN, values)]
    points = []
    if start.deletes_log:
        points.append(Point("stands.loses_log", WARN, {**values, "log": LOG}))
    return points
