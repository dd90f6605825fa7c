"""Which rows a rehearsal takes, and in which order."""

import itertools

import numpy as np
import pytest

from llamafactory_obs.preflight.rehearsal.choose import Batches, choose, choose_packed, longest, ordinary

LENGTH = np.array([5, 90, 17, 90, 33, 60, 8, 71, 12, 40])
LABELS = np.array([2, 0, 4, 9, 9, 9, 3, 9, 4, 9])
ONE = np.zeros(10, dtype=int)


def micro_batches(step: list[int], batches: Batches) -> dict[int, list[list[int]]]:
    """What accelerate gives to each process: whole micro-batches in turn."""
    parts = [step[i : i + batches.micro] for i in range(0, len(step), batches.micro)]
    return {process: parts[process :: batches.processes] for process in range(batches.processes)}


def test_accelerate_deals_whole_micro_batches_in_turn():
    shard = pytest.importorskip("accelerate.data_loader").BatchSamplerShard
    from torch.utils.data import BatchSampler, SequentialSampler

    batches, step = Batches(1, 2, 3, 2), list(range(12))
    for process in (0, 1):
        given = list(shard(BatchSampler(SequentialSampler(step), 2, False), num_processes=2, process_index=process))
        assert given == micro_batches(step, batches)[process]


@pytest.mark.parametrize(
    "batches", [Batches(10, 2, 1, 1), Batches(10, 1, 4, 1), Batches(10, 2, 3, 2), Batches(2, 1, 1, 1)]
)
def test_the_longest_fill_the_last_micro_batch_of_step_2(batches):
    choice = choose(LENGTH, LABELS, ONE, batches, seed=3)
    assert [len(step) for step in choice.steps] == [batches.per_step] * batches.steps
    count = batches.micro * batches.processes
    top = sorted(LENGTH, reverse=True)[:count]
    for number in choice.longest_in:
        last = {p: parts[-1] for p, parts in micro_batches(choice.steps[number - 1], batches).items()}
        assert sorted((LENGTH[p] for part in last.values() for p in part), reverse=True) == top
        for part in last.values():  # every process meets one of the very longest
            assert max(LENGTH[p] for p in part) >= top[batches.processes - 1]
    assert choice.longest_in[0] == 2, "optimizer state exists only after step 1"
    if batches.steps == 10:
        assert choice.steps[9] == choice.steps[1], "the same rows before and after"


def test_among_rows_of_one_length_those_with_labels_come_first():
    choice = choose(LENGTH, LABELS, ONE, Batches(10, 1, 1, 1), seed=0)
    assert choice.longest == [3], "row 1 is as long, but teaches nothing"


def test_the_rest_is_a_seeded_sample_that_uses_every_row_before_it_repeats_one():
    batches = Batches(10, 1, 1, 1)
    one, two = (choose(LENGTH, LABELS, ONE, batches, seed=7) for _ in range(2))
    assert one == two
    assert one != choose(LENGTH, LABELS, ONE, batches, seed=8)
    sample = [p for number, step in enumerate(one.steps, 1) if number not in (2, 10) for p in step]
    assert len(set(sample)) == len(sample) == 8


def test_too_few_rows_are_repeated():
    choice = choose(LENGTH[:2], LABELS[:2], ONE[:2], Batches(10, 4, 1, 1), seed=0)
    assert all(len(step) == 4 for step in choice.steps)
    assert choice.longest == [1, 0, 1, 0]


def test_rows_of_one_data_set_stand_together_within_a_step():
    names = np.array([0, 1] * 5)
    for step in choose(LENGTH, LABELS, names, Batches(10, 4, 2, 1), seed=1).steps:
        order = [int(names[p]) for p in step[:4]]
        assert len(list(itertools.groupby(order))) <= 2


def test_packing_takes_rows_until_there_are_enough_blocks():
    asked = []

    def blocks(lengths):
        asked.append(len(lengths))
        return sum(lengths) // 100

    choice = choose_packed(LENGTH, ONE, Batches(10, 2, 1, 1), seed=0, blocks=blocks)
    taken = [p for step in choice.steps for p in step]
    assert sum(LENGTH[p] for p in taken) // 100 >= 20
    assert sum(LENGTH[p] for p in taken) < 20 * 100 * 2, "and not many more"
    assert not choice.longest


def test_ordinary_rows_have_labels_and_usual_lengths():
    for seed in range(20):
        rows = ordinary(LENGTH, LABELS, 2, seed)
        assert len(set(rows)) == 2 and all(LABELS[p] for p in rows)
        assert all(8 < LENGTH[p] < 90 for p in rows)
    only = np.array([0, 0, 0, 0, 0, 0, 3, 0, 0, 0])
    assert ordinary(LENGTH, only, 2, 0) == [6, 6], "no row without labels, however usual its length"
    assert ordinary(LENGTH, np.zeros(10), 2, 0) == []
    assert sorted(ordinary(LENGTH[:1], LABELS[:1], 3, 0)) == [0, 0, 0]


def test_the_longest_rows_that_teach_something():
    assert longest(LENGTH, LABELS, 3) == [3, 7, 5]
    assert longest(LENGTH, np.zeros(10), 3) == []
