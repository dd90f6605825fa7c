"""What two last checkpoints hold beside the weights: optimizer, scheduler, random numbers; value by value."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...checkpoint.files import Incomplete
from ...checkpoint.torch_file import load_rng, load_safely
from .words import say

#: an optimizer above this is not read twice
_MOST_BYTES = 16 << 30
#: elements that are compared at a time
_PIECE = 1 << 22


@dataclass
class StateDifference:
    """One part of two checkpoints.

    Attributes:
        compared: values (a tensor is one).
        unequal: values that differ.
        largest: absolute difference; infinite where one is not finite or is no number.
        squares: sum of the squared differences; `norm2`: of the squared values of the first.
        counts: the largest `step` (optimizer) or `last_epoch` (scheduler) of each; None where there is none.
        why: why nothing was compared; empty where it was.
    """

    compared: int = 0
    unequal: int = 0
    largest: float = 0.0
    squares: float = 0.0
    norm2: float = 0.0
    counts: tuple[float, float] | None = None
    why: str = ""


def compare_states(one: Path, other: Path, ranks: int) -> dict[str, StateDifference]:
    """`optimizer`, `scheduler`, `rng` of two checkpoint folders."""
    rng = ["rng_state.pth"] if ranks == 1 else [f"rng_state_{rank}.pth" for rank in range(ranks)]
    return {
        "optimizer": _compare(one, other, ["optimizer.pt"], load_safely, "step"),
        "scheduler": _compare(one, other, ["scheduler.pt"], load_safely, "last_epoch"),
        "rng": _compare(one, other, rng, load_rng, None),
    }


def _compare(one: Path, other: Path, files: list[str], load, counter: str | None) -> StateDifference:
    found = StateDifference()
    counts: list[list[float]] = [[], []]
    for name in files:
        for folder in (one, other):
            if not (folder / name).is_file():
                return StateDifference(why=say("why.no_file", folder=folder.name, name=name))
        if (size := (one / name).stat().st_size) > _MOST_BYTES:
            return StateDifference(why=say("why.too_large", name=name, gib=size / 2**30))
        try:
            a, b = dict(_leaves(load(one / name))), dict(_leaves(load(other / name)))
        except Incomplete as error:
            return StateDifference(why=str(error))
        for place in [*a, *(place for place in b if place not in a)]:
            _add(found, a.get(place), b.get(place))
        for held, kept in ((a, counts[0]), (b, counts[1])):
            kept += [float(value) for place, value in held.items() if place.rpartition(".")[2] == counter]
    if counts[0] and counts[1]:
        found.counts = max(counts[0]), max(counts[1])
    return found


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """All values of nested dicts and lists that are none, by their places."""
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, (list, tuple)):
        pairs = enumerate(value)
    else:
        yield path, value
        return
    for key, one in pairs:
        yield from _leaves(one, f"{path}.{key}" if path else str(key))


def _add(found: StateDifference, a: object, b: object) -> None:
    import torch

    found.compared += 1
    if not all(isinstance(one, (torch.Tensor, int, float)) for one in (a, b)):
        if not _same(a, b):
            found.unequal, found.largest = found.unequal + 1, math.inf
        return
    a, b = (one if isinstance(one, torch.Tensor) else torch.tensor(one, dtype=torch.float64) for one in (a, b))
    if a.shape != b.shape or a.dtype != b.dtype:
        found.unequal, found.largest = found.unequal + 1, math.inf
        return
    unequal = False
    for x, y in zip(a.flatten().split(_PIECE), b.flatten().split(_PIECE), strict=True):
        x, y = x.double(), y.double()
        found.norm2 += float((x * x).sum())
        gap = (x - y).abs()
        gap[(x == y) | (x.isnan() & y.isnan())] = 0.0
        gap[gap.isnan()] = math.inf
        if bool(gap.any()):
            unequal = True
            found.largest = max(found.largest, float(gap.max()))
            found.squares += float((gap * gap).sum())
    found.unequal += unequal


def _same(a: object, b: object) -> bool:
    import numpy as np

    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and np.array_equal(a, b)
    return type(a) is type(b) and a == b
