"""A machine that others keep busy: it is told as such, never taken for the disk, and hides nothing of the training."""

import random
from collections.abc import Callable, Container

import pytest
from log_curves import STEPS, log, noisy

from llamafactory_obs import texts
from llamafactory_obs.detect import Finding, ThroughputDropDetector
from llamafactory_obs.diagnosis.causes import causes
from llamafactory_obs.diagnosis.judge import judge
from llamafactory_obs.diagnosis.verdict import order
from llamafactory_obs.texts.findings import told

FILE_AT, USUAL_S = 81, 0.5
FULL = [99.5] * STEPS


def run(busy: Container[int] = (), share: float = 0.4, file_at: int = STEPS + 1, wrote_s: float = 0.75, **columns):
    """The record of a training that computes on one CPU, all of which it has.

    Args:
        busy: steps in which it gets this `share` of that CPU only, because others are on the machine.
        file_at: from this step on each step writes a file, and waits `wrote_s` for the disk.
        columns: instead of those made here.
    """
    draw, made = random.Random(4), {}
    for step in range(1, STEPS + 1):
        had = share if step in busy else 1.0
        work = USUAL_S * draw.uniform(0.95, 1.05)
        waits = {"data_wait": 0.005 / had, "callbacks": 0.005 / had, "other": 0.01 / had}
        written = wrote_s * draw.uniform(1, 1.1) if step >= file_at else 0.0
        waits["other"] += written
        parts = {"forward": 0.3 * work / had, "backward": 0.68 * work / had, "optimizer": 0.02 * work / had, **waits}
        row = {f"time_{name}_s": seconds for name, seconds in parts.items()}
        row["time_step_s"] = seconds = sum(parts.values())
        row["system_cpu_percent"] = 100 * (work + 0.2 * written) / seconds
        row["system_host_cpu_percent"] = 99.5 if step in busy else 55.0
        row["system_disk_write_mib_s"] = 0.01 + 100 * written / seconds
        for name, value in row.items():
            made.setdefault(name, []).append(value)
    return log(noisy(), **{**made, "data_tokens": [400.0] * STEPS, **columns})


def first(said) -> tuple[str, str | None, int]:
    """The verdict, its first cause, and where it begins."""
    cause = said.causes[0][0].name if 0 in said.causes else None
    return said.verdict, cause, said.findings[0].evidence["since"] if said.findings else 0


@pytest.mark.parametrize(
    "busy",
    [range(42, STEPS + 1), range(60, 90), [step for step in range(30, STEPS + 1) if step // 12 % 2], range(106, 113)],
    ids=["to the end", "for a while", "on and off", "short, at the end"],
)
def test_a_busy_machine_is_a_remark(busy):
    said = judge(run(busy, 0.3))
    assert said.verdict == "healthy" and said.action == "keep"
    assert {one.level for one in said.findings} == {"info"}
    for one in said.findings:
        assert one.name == "throughput_drop" and one.text.startswith("The machine was busy "), one.text
        assert one.evidence["without_cpu"] > 0.8


def test_its_cause_is_named():
    busy = run(range(60, STEPS + 1))
    drop = Finding("throughput_drop", "warn", STEPS, "", {"since": 60, "usual": 0.52, "seconds_per_step": 1.3})
    cause, *others = causes(busy, drop)
    assert cause.name == "other_process" and "had 38% of a CPU, 96% before" in cause.supports[0]
    assert "storage" not in [one.name for one in others]


@pytest.mark.parametrize(
    "columns",
    [
        {"system_cpu_percent": [99.0] * STEPS, "system_host_cpu_percent": FULL},  # it had its CPU all the time
        {"system_host_cpu_percent": [70.0] * STEPS},  # CPUs were free
        {"system_host_cpu_percent": FULL, "system_gpu_util": [0.9] * STEPS},  # as full as before; a card works
        {"system_cpu_percent": []},  # not known
    ],
    ids=["own work", "free CPUs", "a slower card", "not recorded"],
)
def test_what_is_not_the_machine_stays_a_slowdown(columns):
    said = judge(run(range(60, STEPS + 1), **columns))
    assert said.verdict == "throughput_drop" and first(said)[1] != "other_process"


def test_one_that_had_been_busy_all_along_may_get_busier():
    """Of a CPU it had a quarter before as well: what it lost of that is little, but it did no more work either."""
    usual = run()
    slow = range(60, STEPS + 1)
    times = {name: usual.columns[f"time/{name}"] for name in ("step_s", "forward_s", "backward_s", "other_s")}
    longer = {
        f"time_{name}": [value * (1.7 if step in slow else 1.0) for step, value in enumerate(column, start=1)]
        for name, column in times.items()
    }
    percent = [20.0 if step in slow else 25.0 for step in range(1, STEPS + 1)]
    said = judge(run(system_cpu_percent=percent, system_host_cpu_percent=FULL, **longer))
    assert said.verdict == "healthy" and [one.name for one in said.findings] == ["throughput_drop"]


def test_a_node_that_became_full_counts_beside_a_card():
    said = judge(run(range(60, STEPS + 1), system_gpu_util=[0.9] * STEPS))
    assert next(one for one in said.findings if one.name == "throughput_drop").level == "info"


@pytest.mark.parametrize(
    ("busy", "share"),
    [
        ((), 1.0),
        (range(42, STEPS + 1), 0.5),
        (range(42, FILE_AT), 0.4),
        (range(74, STEPS + 1), 0.4),
        (range(60, 78), 0.4),
        (range(FILE_AT, STEPS + 1), 0.2),  # computing takes more than the file
        (range(95, STEPS + 1), 0.3),
        ([step for step in range(30, STEPS + 1) if step // 12 % 2], 0.4),
    ],
    ids=["quiet", "from before", "until then", "just before", "over by then", "at once", "later", "on and off"],
)
def test_a_file_in_every_step_is_named_on_a_busy_machine_too(busy, share):
    verdict, cause, since = first(judge(run(busy, share, FILE_AT)))
    assert (verdict, cause) == ("throughput_drop", "storage") and abs(since - FILE_AT) <= 5


def test_what_always_takes_the_time_is_told_on_a_busy_machine_too():
    """The slowdown that goes on is the machine's; saving took a third of the time before it as well."""
    saves = [0.4] * STEPS
    curves = run(range(90, STEPS + 1), 0.4)
    steps = [seconds + 0.4 for seconds in curves.columns["time/step_s"]]
    said = judge(run(range(90, STEPS + 1), 0.4, time_other_s=saves, time_step_s=steps))
    [told_of] = [one for one in said.findings if one.level == "warn"]
    assert told_of.evidence["part"] == "time/other_s" and said.verdict == "throughput_drop"


# ---- the detector


def feed(seconds: Callable[[int], float], waited: Callable[[int], float] | None) -> list[Finding]:
    """200 steps with a little noise."""
    detector, draw, found = ThroughputDropDetector(), random.Random(2), []
    for step in range(1, 201):
        much = draw.uniform(0.97, 1.03)
        wait = None if waited is None else waited(step) * much
        found.append(detector.update(step, seconds(step) * much + (wait or 0.0), False, wait))
    return [one for one in found if one is not None]


def slower(step: int) -> float:
    return 2.4 if step >= 97 else 1.0


def test_a_slowdown_within_a_slowdown_is_one_of_its_own():
    machine, over, disk = feed(slower, lambda step: 1.5 if step >= 139 else 0.02)
    assert (machine.name, machine.evidence["since"]) == ("throughput_drop", 97)
    assert (over.name, over.until, over.evidence["since"]) == ("throughput_drop_over", 138, 97)
    assert (disk.name, disk.until, disk.evidence["since"]) == ("throughput_drop", None, 139)
    assert disk.evidence["ratio"] == pytest.approx(3.9, abs=0.2), "times the usual, not times the slow one"


@pytest.mark.parametrize(
    "waited",
    [lambda step: 0.05 if step < 97 else 0.12, lambda step: 1.0 if step < 141 else 1.4, None],
    ids=["waits grow with it", "waits vary", "parts are not known"],
)
def test_otherwise_it_stays_one(waited):
    assert [one.evidence["since"] for one in feed(slower, waited)] == [97]


# ---- what is said


def test_what_goes_on_comes_before_what_is_over():
    def drop(since, until, name="throughput_drop"):
        return Finding(name, "warn", since, "", {"since": since}, until=until)

    over, goes_on, later = drop(10, 40), drop(60, None), drop(90, None)
    assert order([later, over, goes_on]) == [goes_on, later, over]
    assert order([goes_on, drop(80, 90, "lr_anomaly")])[0].name == "lr_anomaly", "the gravest is first all the same"


@pytest.mark.parametrize("busy", [range(60, STEPS + 1), range(60, 90)])
def test_in_chinese_too(busy):
    with texts.speaking("zh"):
        [one] = judge(run(busy)).findings
        said = told(one.name, one.step, one.text, one.evidence, one.until)
    assert "机器繁忙" in said and "其他进程占用了 CPU" in said
