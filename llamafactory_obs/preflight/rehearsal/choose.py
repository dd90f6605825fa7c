"""Which rows a rehearsal trains on, and in which order.

The peak of a training lies where the longest rows fill a whole micro-batch while the optimizer's state (it exists after
the first step) and the gradients of the step's earlier micro-batches are in memory: the last micro-batch of a step that
is not the first. A sample by chance rarely has such a batch.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Batches:
    """How a training cuts its rows into steps.

    Attributes:
        steps: optimizer steps.
        micro: rows of one forward pass in one process.
        accumulation: micro-batches of one step in one process.
        processes: that train in parallel.
    """

    steps: int
    micro: int
    accumulation: int
    processes: int

    @property
    def per_step(self) -> int:
        """Rows of one step in all processes."""
        return self.micro * self.accumulation * self.processes


@dataclass(frozen=True)
class Choice:
    """The rows of a rehearsal.

    Attributes:
        steps: per step the positions of its rows, in the order in which the loader must meet them. With packing the
            parts only keep the data sets mixed: a row of a part may be trained on in another step.
        longest: positions of the longest rows, one micro-batch for each process; empty with packing.
        longest_in: the steps (from 1) whose last micro-batch they are.
    """

    steps: list[list[int]]
    longest: list[int]
    longest_in: list[int]


def choose(length: np.ndarray, labels: np.ndarray, dataset: np.ndarray, batches: Batches, seed: int) -> Choice:
    """Rows for a training without packing.

    The longest rows come in step 2, and all rows of that step again in the last one: the loss of the same rows before
    and after. The others are a sample. Where rows are too few they are repeated.

    Args:
        length, labels, dataset: (rows,) see `rows.Rows`; among rows of one length those with labels come first.
    """
    rng = np.random.default_rng(seed)
    longest = _longest(length, labels, batches.micro * batches.processes)
    sample = _endless(rng, len(length))
    special = min(2, batches.steps)
    steps = []
    for number in range(1, batches.steps + 1):
        if number == batches.steps >= 4:
            steps.append(steps[special - 1])
            continue
        last = longest if number == special else []
        others = [next(sample) for _ in range(batches.per_step - len(last))]
        steps.append(sorted(others, key=lambda p: int(dataset[p])) + _dealt(last, batches))
    return Choice(steps, longest, [special, batches.steps] if batches.steps >= 4 else [special])


def choose_packed(
    length: np.ndarray, dataset: np.ndarray, batches: Batches, seed: int, blocks: Callable[[list[int]], int]
) -> Choice:
    """Rows for a training that packs them into blocks, all of the same length: a sample that fills enough of them.

    Args:
        blocks: lengths of rows in their order -> blocks that LlamaFactory makes of them.
    """
    sample = _endless(np.random.default_rng(seed), len(length))
    wanted, chosen = batches.steps * batches.per_step, []
    while (made := blocks([int(length[p]) for p in chosen])) < wanted:
        per_block = len(chosen) / made if made else 1.0
        chosen += [next(sample) for _ in range(max(8, math.ceil((wanted - made) * per_block)))]
    size = math.ceil(len(chosen) / batches.steps)
    parts = [chosen[start : start + size] for start in range(0, len(chosen), size)]
    return Choice([sorted(part, key=lambda p: int(dataset[p])) for part in parts], [], [])


def ordinary(length: np.ndarray, labels: np.ndarray, count: int, seed: int) -> list[int]:
    """`count` rows of usual length: the middle half of those that teach something. Too few are repeated."""
    taught = np.flatnonzero(labels > 0)
    if not len(taught):
        return []
    low, high = np.quantile(length[taught], [0.25, 0.75])
    usual = taught[(length[taught] >= low) & (length[taught] <= high)]
    pool = usual if len(usual) >= count else taught
    order = np.random.default_rng(seed).permutation(pool)
    return [int(order[i % len(order)]) for i in range(count)]


def longest(length: np.ndarray, labels: np.ndarray, count: int) -> list[int]:
    """The `count` longest rows that teach something, the longest first."""
    taught = np.flatnonzero(labels > 0)
    return [int(taught[i]) for i in _longest(length[taught], labels[taught], count)] if len(taught) else []


def _longest(length: np.ndarray, labels: np.ndarray, count: int) -> list[int]:
    order = np.lexsort((np.arange(len(length)), labels == 0, -length))
    return [int(order[i % len(order)]) for i in range(count)]


def _dealt(rows: list[int], batches: Batches) -> list[int]:
    """Rows dealt to the processes like cards: each gets one of the very longest.

    The loader gives one micro-batch to each process in turn (accelerate's `BatchSamplerShard`).
    """
    return [row for process in range(batches.processes) for row in rows[process :: batches.processes]]


def _endless(rng: np.random.Generator, count: int):
    while True:
        yield from (int(p) for p in rng.permutation(count))
