"""Going on in the tracker's old run: environment variables and overrides for each tracker that the config reports to.

What each integration reads: transformers 5.6.0 (`integrations/integration_utils.py`), LlamaFactory 0.9.5
(`get_swanlab_callback`), wandb 0.31 and SwanLab 0.10 (`WANDB_RUN_ID`, `SWANLAB_RUN_ID`, and `_RESUME` of both), trackio
0.43 (a run is its name), MLflow 3.17 (`MLFLOW_RUN_ID`, taken by `start_run`), TensorBoard (a run is a folder).
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from ..plugin.tracker_project import LLAMAFACTORYS
from ..preflight.ahead.effective import Effective
from ..preflight.ahead.tracker import trackers
from .point import INFO, WARN, Point

_WANDB_RUN = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-(\w+)")
#: bytes of a wandb log in which the run's config stands
_HEAD = 4 << 20


@dataclass
class Continued:
    """How the trackers' runs go on.

    Attributes:
        environment: variables to set.
        overrides: `key -> value` of the config.
        points: one for each tracker.
    """

    environment: dict[str, str] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)


def continued(run: Effective, record: dict, folder: Path) -> Continued:
    """Find the old run of each tracker.

    Args:
        record: `run.json` of the run that is resumed; {} where there is none.
        folder: its output folder.
    """
    found = Continued()
    names = [name for name in trackers(run) if isinstance(name, str)]
    if run.get("use_swanlab"):
        names = [name for name in names if name != "swanlab"] + ["swanlab"]
    known = recorded_runs(record)
    for name in names:
        of = known.get(name) or _by_files(name, folder)
        _WAYS.get(name, _unsupported)(found, name, of, run)
    return found


def recorded_runs(record: dict) -> dict[str, dict]:
    """The newest run of each tracker that the record names: `{"wandb": {"id", "project", ...}}`."""
    runs: dict[str, dict] = {}
    for segment in record.get("segments") or []:
        of = segment.get("trackers") if isinstance(segment, dict) else None
        for name, one in (of or {}).items():
            if isinstance(one, dict):
                runs[name] = one
    return runs


def _by_files(name: str, folder: Path) -> dict:
    """What the tracker's own local files say; {} for nothing."""
    if name == "wandb":
        return _wandb_files(folder)
    if name == "tensorboard":
        events = sorted(folder.glob("runs/*/events.out.tfevents.*"), key=lambda file: file.stat().st_mtime)
        return {"dir": str(events[-1].parent)} if events else {}
    return {}


def _wandb_files(folder: Path) -> dict:
    """The newest local wandb run whose log names this output folder: the Trainer puts all its arguments there."""
    place = Path(os.environ.get("WANDB_DIR") or ".") / "wandb"
    wanted = [str(folder).encode(), str(folder.resolve()).encode()]
    for one in sorted(place.glob("*run-*-*"), key=lambda path: path.name.removeprefix("offline-"), reverse=True):
        match = _WANDB_RUN.fullmatch(one.name)
        if match is None:
            continue
        try:
            with open(one / f"run-{match[1]}.wandb", "rb") as file:
                head = file.read(_HEAD)
        except OSError:
            continue
        if any(b'"' + name + b'"' in head for name in wanted):
            return {"id": match[1], "offline": one.name.startswith("offline-")}
    return {}


def _set(found: Continued, name: str, values: dict, **environment: str) -> None:
    """Set variables; what the user has set himself to another value is left alone, and named."""
    for variable, value in environment.items():
        own = os.environ.get(variable)
        if own and own not in (value, LLAMAFACTORYS) and not variable.endswith("_RESUME"):
            point = {**values, "variable": variable, "own": own}
            found.points.append(Point("tracker.own", INFO, point))
            return
    found.environment |= environment
    found.points.append(Point(f"tracker.{name}", INFO, values))


def _unknown(found: Continued, name: str) -> None:
    found.points.append(Point("tracker.unknown", WARN, {"tracker": name}))


def _unsupported(found: Continued, name: str, of: dict, run: Effective) -> None:
    found.points.append(Point("tracker.unsupported", WARN, {"tracker": name}))


def _wandb(found: Continued, name: str, of: dict, run: Effective) -> None:
    if not of.get("id"):
        return _unknown(found, name)
    place = {f"WANDB_{key.upper()}": of[key] for key in ("project", "entity") if of.get(key)}
    values = {"tracker": name, "id": of["id"]}
    _set(found, name, values, WANDB_RUN_ID=of["id"], WANDB_RESUME="allow", **place)
    if of.get("offline"):
        found.points.append(Point("tracker.offline", INFO, values))


def _swanlab(found: Continued, name: str, of: dict, run: Effective) -> None:
    if not of.get("id"):
        return _unknown(found, name)
    values = {"tracker": name, "id": of["id"]}
    _set(found, name, values, SWANLAB_RUN_ID=of["id"], SWANLAB_RESUME="allow")


def _mlflow(found: Continued, name: str, of: dict, run: Effective) -> None:
    if not of.get("id"):
        return _unknown(found, name)
    _set(found, name, {"tracker": name, "id": of["id"]}, MLFLOW_RUN_ID=of["id"])


def _tensorboard(found: Continued, name: str, of: dict, run: Effective) -> None:
    if not of.get("dir"):
        return _unknown(found, name)
    _set(found, name, {"tracker": name, "dir": of["dir"]}, TENSORBOARD_LOGGING_DIR=of["dir"])


def _trackio(found: Continued, name: str, of: dict, run: Effective) -> None:
    """Runs are told apart by their names; without `run_name` trackio makes up a new one."""
    old = of.get("name") or run.get("run_name")
    if not old:
        return _unknown(found, name)
    if run.get("run_name") != old:
        found.overrides["run_name"] = old
    if of.get("project") and run.get("project") != of["project"]:
        found.overrides["project"] = of["project"]
    found.points.append(Point("tracker.trackio", INFO, {"tracker": name, "id": old}))


_WAYS = {
    "wandb": _wandb,
    "swanlab": _swanlab,
    "mlflow": _mlflow,
    "tensorboard": _tensorboard,
    "trackio": _trackio,
}
