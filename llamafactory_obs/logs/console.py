"""A console log: rows between progress bars, colours and other lines. Steps come from the training's progress bar."""

import re
from dataclasses import dataclass, field
from datetime import datetime

from .printed import find_dicts, parse_printed
from .values import number

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
_BAR = re.compile(r"(\d+)/(\d+) \[((?:\d+:)?\d+:\d\d(?::\d\d)?)<")
_TOTAL = re.compile(r"Total optimization steps = ([\d,]+)")
_EPOCHS = re.compile(r"Num Epochs = ([\d,]+)")
_RESUMED = re.compile(r"Continuing training from global step (\d+)")
_WORK = re.compile(r"\*{3,} *Running (\w+) *\*{3,}")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")
_LINES = re.compile(r"[\r\n]+")
ROW_KEYS = frozenset(
    (
        "loss",
        "eval_loss",
        "grad_norm",
        "learning_rate",
        "lr",
        "train_runtime",
        "train_loss",
        "val_loss",
        "reward",
        "rewards/margins",
        "predict_loss",
        "current_steps",
        "eval_runtime",
    )
)
"""A dict with none of these is somebody's config."""


@dataclass
class Console:
    """What was found. `work` are the words after "Running": training, Prediction, Evaluation."""

    rows: list[dict] = field(default_factory=list)
    total: int | None = None
    epochs: float | None = None
    work: set[str] = field(default_factory=set)
    resumed: list[int] = field(default_factory=list)


def read_console(text: str) -> Console:
    """Every row in the text. A row gets `step`, `total_steps`, `elapsed_time` from the bar of the training, if any."""
    found = Console()
    bars: dict[int, re.Match] = {}  # total -> the last bar with this total
    behind: list[dict[int, re.Match]] = []  # of each row: the bars that had been seen
    for line in _LINES.split(text):
        if "\x1b" in line:
            line = _ANSI.sub("", line)
        _headers(line, found)
        if "<" in line and "/" in line:
            for match in _BAR.finditer(line):
                bars[int(match[2])] = match
        if "{" in line:
            rows = [row for row in map(parse_printed, find_dicts(line)) if row and not ROW_KEYS.isdisjoint(row)]
            if rows and (match := _STAMP.search(line)) and (stamp := _unix(match)) is not None:
                rows = [{"time": stamp, **row} for row in rows]
            found.rows += rows
            behind += [dict(list(bars.items())[-8:])] * len(rows)
    _give_steps(found, behind)
    return found


def _unix(stamp: re.Match) -> float | None:
    """Seconds of a line's date and time, as if it were UTC: only differences are used."""
    try:
        return datetime.fromisoformat(f"{stamp[1]}T{stamp[2]}+00:00").timestamp()
    except ValueError:
        return None


def _headers(line: str, found: Console) -> None:
    if "Total optimization steps" in line and (match := _TOTAL.search(line)):
        found.total = int(match[1].replace(",", ""))
    elif "Num Epochs" in line and (match := _EPOCHS.search(line)):
        found.epochs = number(match[1].replace(",", ""))
    elif "Running" in line and (match := _WORK.search(line)):
        found.work.add(match[1].lower())
    elif "Continuing training" in line and (match := _RESUMED.search(line)):
        found.resumed.append(int(match[1]))


def _give_steps(found: Console, behind: list[dict[int, re.Match]]) -> None:
    """The training's bar is the one that moves on from loss to loss; evaluations and data sets have bars as well."""
    places: dict[int, set[str]] = {}
    losses = 0
    for row, bars in zip(found.rows, behind, strict=True):
        if "loss" in row:
            losses += 1
            for total, bar in bars.items():
                places.setdefault(total, set()).add(bar[1])
    if not places or any("step" in row or "current_steps" in row or "global_step" in row for row in found.rows):
        return
    training = found.total if found.total in places else max(places, key=lambda total: len(places[total]))
    if training != found.total and len(places[training]) * 2 < losses:
        return  # no bar goes along with the rows
    found.total = training
    for at, (row, bars) in enumerate(zip(found.rows, behind, strict=True)):
        if bar := bars.get(training):
            found.rows[at] = {**row, "step": int(bar[1]), "total_steps": training, "elapsed_time": bar[3]}
