"""All processes of a run as one: a single asynchronous collective a step carries every key.

It runs on a gloo group of its own, between host values, so that neither the training stream nor the training's own
process group sees it. Every rank takes part in it for every step, whatever has failed in its callbacks.
"""

import math
import socket
from datetime import timedelta

import torch
import torch.distributed as dist

from ..record.schema import Key


class Ranks:
    """The exchange between ranks.

    Args:
        keys: the columns of a row; the same on every rank, because the config is.
    """

    def __init__(self, keys: list[Key]):
        self._keys = sorted(keys, key=lambda key: key.name)
        self._group = dist.new_group(backend="gloo", timeout=timedelta(minutes=10))
        self._size = dist.get_world_size()

    def hosts(self) -> list[str]:
        """The host name of each rank. All ranks must call it."""
        names: list = [None] * self._size
        dist.all_gather_object(names, socket.gethostname(), group=self._group)
        return names

    @staticmethod
    def needed() -> bool:
        return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

    def start(self, values: dict[str, float]) -> "Exchange":
        """Send this rank's row on its way; numbers missing here are marked as missing, not as 0."""
        numbers = [float(values.get(key.name, 0.0)) for key in self._keys]
        present = [float(key.name in values) for key in self._keys]
        mine = torch.tensor(numbers + present, dtype=torch.float64)
        everyone = [torch.empty_like(mine) for _ in range(self._size)]
        work = dist.all_gather(everyone, mine, group=self._group, async_op=True)
        return Exchange(self._keys, work, everyone)


class Exchange:
    """One step's row, on its way between the ranks."""

    def __init__(self, keys: list[Key], work, everyone: list[torch.Tensor]):
        self._keys, self._work, self._everyone = keys, work, everyone

    def ready(self) -> bool:
        return self._work.is_completed()

    def wait(self) -> None:
        self._work.wait()

    def result(self) -> dict[str, float]:
        """One row for the run: each key reduced over the ranks that have it."""
        return {
            key.name: reduce(key.reduce, [number for number in numbers if number is not None])
            for key, numbers in self._numbers()
        }

    def per_rank(self) -> dict[str, list[float | None]]:
        """Key -> its value on each rank, None where a rank has none; keys that no rank has are left out."""
        return {key.name: numbers for key, numbers in self._numbers()}

    def _numbers(self):
        rows, count = [tensor.tolist() for tensor in self._everyone], len(self._keys)
        for i, key in enumerate(self._keys):
            numbers = [row[i] if row[count + i] else None for row in rows]
            if any(number is not None for number in numbers):
                yield key, numbers


def reduce(how: str, numbers: list[float]) -> float:
    """Reduce one key over the ranks. A NaN on any rank stays visible."""
    if how == "same":
        return numbers[0]
    if any(math.isnan(number) for number in numbers):
        return math.nan
    if how == "mean":
        return sum(numbers) / len(numbers)
    return {"sum": sum, "min": min, "max": max}[how](numbers)
