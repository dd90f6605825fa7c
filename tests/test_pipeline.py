"""Device values that arrive late: no waiting before its time, rows complete and in order (DESIGN section 5, rule 3)."""

import pytest

from llamafactory_obs.callbacks.exchange import reduce
from llamafactory_obs.callbacks.pipeline import MAX_LAG, Pipeline, Row
from llamafactory_obs.record.schema import Key


class Device:
    """A device that is `behind` steps behind the host."""

    def __init__(self, behind: int):
        self.behind, self.now, self.waits = behind, 0, []

    def copy(self, step):
        device = self

        class Copy:
            def __init__(self, tensors):
                self.tensors = tensors

            def ready(self):
                return device.now - step >= device.behind

            def wait(self):
                if not self.ready():
                    device.waits.append((step, device.now))

            def values(self):
                return self.tensors

        return Copy


def drive(pipeline, device, steps, flush_at=()):
    for step in range(1, steps + 1):
        device.now = step
        for part in (1, 2):
            finish = lambda row, value: row.values.__setitem__("x", row.values.get("x", 0) + value)  # noqa: E731
            pipeline.open.defer([step * part], finish, copier=device.copy(step))
        pipeline.close_step(step)
        pipeline.advance(step, flush=step in flush_at)


@pytest.mark.parametrize("behind", [0, 1, 2, 5])
def test_rows_are_at_most_two_steps_late_and_in_order(behind):
    done, device = [], Device(behind)
    pipeline = Pipeline(None, lambda row: done.append((row.step, row.values["x"], device.now)))
    drive(pipeline, device, 10)
    late = min(behind, MAX_LAG)
    assert done == [(step, 3 * step, step + late) for step in range(1, 11 - late)]
    assert all(now - step == MAX_LAG for step, now in device.waits)
    assert (device.waits != []) == (behind > MAX_LAG), "the host waits only for what is already too old"
    pipeline.drain(10)
    assert [row[0] for row in done] == list(range(1, 11))


def test_a_log_step_takes_in_everything():
    done, device = [], Device(5)
    drive(Pipeline(None, lambda row: done.append((row.step, device.now))), device, 4, flush_at=(3,))
    assert done == [(1, 3), (2, 3), (3, 3)]


class SlowRanks:
    """An exchange that is done `delay` steps after it was started."""

    def __init__(self, device, delay):
        self.device, self.delay, self.waits = device, delay, 0

    def start(self, values):
        ranks, begun = self, self.device.now

        class Exchange:
            def ready(self):
                return ranks.device.now - begun >= ranks.delay

            def wait(self):
                ranks.waits += 1

            def result(self):
                return {key: 2 * value for key, value in values.items()}

            def per_rank(self):
                return {key: [value, value] for key, value in values.items()}

        return Exchange()


@pytest.mark.parametrize(("behind", "delay"), [(0, 0), (0, 1), (1, 1), (2, 9)])
def test_with_several_ranks_every_row_is_there_after_two_steps(behind, delay):
    done, device = [], Device(behind)
    pipeline = Pipeline(SlowRanks(device, delay), lambda row: done.append((row.step, row.values["x"], device.now)))
    drive(pipeline, device, 8)
    assert [row[:2] for row in done] == [(step, 6 * step) for step in range(1, len(done) + 1)]
    assert all(now - step <= MAX_LAG for step, _, now in done) and len(done) >= 8 - MAX_LAG


def test_when_training_breaks_off_nobody_is_waited_for():
    done, device = [], Device(1)
    ranks = SlowRanks(device, 99)
    pipeline = Pipeline(ranks, lambda row: done.append((row.step, row.values["x"])))
    drive(pipeline, device, 2)
    pipeline.rescue()
    assert done == [(1, 3)] and ranks.waits == 0  # step 1 has its own values, step 2's are still on the device


def test_row_defers_in_order_when_an_earlier_copy_is_late():
    row, device, seen = Row(), Device(1), []
    row.defer([1], lambda row, value: seen.append(value), copier=device.copy(0))
    device.now = 1
    row.defer([2], lambda row, value: seen.append(value), copier=device.copy(0))
    assert seen == [] and row.harvest(force=False) and seen == [1, 2]


@pytest.mark.parametrize(("how", "wanted"), [("sum", 6.0), ("mean", 2.0), ("min", 1.0), ("max", 3.0), ("same", 2.0)])
def test_reduction_over_ranks(how, wanted):
    assert reduce(how, [2.0, 1.0, 3.0]) == wanted
    assert how == "same" or reduce(how, [1.0, float("nan")]) != reduce(how, [1.0, float("nan")]), "a NaN stays visible"
    assert Key("k", "1", "d", how).reduce == how
