"""Low GPU utilisation: when it is an alert, every reason with a clean control, and its end."""

import pytest

from llamafactory_obs.detect import Facts, LowGpuUtilDetector
from llamafactory_obs.detect.idle_reason import explain

FACTS = Facts(cpus=16, local_ranks=2, workers=0, batch=2, accumulation=4, eval_steps=50, save_steps=100)
BUSY = {"data_wait": 0.01, "h2d": 0.01, "forward": 0.3, "backward": 0.6, "optimizer": 0.05, "other": 0.03}


def feed(detector, count, util, parts, *, start=1, seconds=1.0, unusual=False, **means):
    """`count` steps whose parts are shares of `seconds`."""
    found = []
    for step in range(start, start + count):
        timed = {name: share * seconds for name, share in parts.items()}
        finding = detector.update(step, seconds, util, timed | means, unusual)
        found += [finding] if finding else []
    return found


def parts(**changes):
    """Shares of a step; what is given to one part is taken from the model."""
    taken = sum(changes.values()) / 0.95
    model = {name: BUSY[name] * (1 - taken) for name in ("forward", "backward", "optimizer")}
    return BUSY | model | changes


CASES = {
    "data_wait": (parts(data_wait=0.4), {}, {"dataloader_num_workers": 7}, "16 CPUs for 2 ranks: try 7"),
    "communication": (parts(communication=0.4), {}, {}, "one rank is slower"),
    "h2d": (parts(h2d=0.3), {}, {"dataloader_pin_memory": True}, "pin"),
    "callbacks": (parts(callbacks=0.3), {}, {}, "Our own callbacks take 30%"),
    "other": (parts(other=0.5), {}, {}, "trackers"),
    "small_kernels": (
        BUSY,
        {},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
        "kernels end sooner",
    ),
    "cpu_busy": (BUSY, {"host_cpu_percent": 97.0}, {}, "CPUs are all busy"),
    "others": (BUSY, {"gpu_other_processes": 1.0}, {}, "1 other process is on the card (a vLLM server"),
    "throttled": (BUSY, {"gpu_throttled": 0.6}, {}, "slowed down by heat or hardware 60%"),
    "unknown": ({"forward": 0.1}, {}, {}, "No part of the steps stands out"),
}


@pytest.mark.parametrize("reason", CASES)
def test_every_reason_and_its_control(reason):
    shares, means, suggest, words = CASES[reason]
    assert feed(LowGpuUtilDetector(facts=FACTS), 200, 0.9, shares, **means) == [], "the same steps, a busy card"
    (finding,) = feed(LowGpuUtilDetector(facts=FACTS), 200, 0.45, shares, **means)
    assert (finding.name, finding.level) == ("low_gpu_util", "warn")
    assert finding.evidence["reason"] == reason and words in finding.text and "45%" in finding.text
    assert finding.suggest == suggest and finding.limits


def test_the_largest_part_comes_first_and_the_others_are_named():
    (finding,) = feed(LowGpuUtilDetector(), 100, 0.3, parts(data_wait=0.3, other=0.4), gpu_other_processes=1.0)
    assert finding.evidence["reason"] == "other"
    assert finding.text.endswith("also: waiting for data 30%, other processes on the card.")


@pytest.mark.parametrize(
    ("facts", "means", "words", "suggest"),
    [
        (Facts(cpus=2, workers=1), {}, "only 2 CPUs for 1 rank: more workers will not help", {}),
        (Facts(cpus=8, workers=2), {"host_cpu_percent": 99.0}, "more workers will not help", {}),
        (Facts(cpus=8, workers=2), {"host_cpu_percent": 30.0}, "try 7", {"dataloader_num_workers": 7}),
        (Facts(cpus=0.5, workers=0), {}, "0.5 CPUs for 1 rank: try 1", {"dataloader_num_workers": 1}),
        (Facts(), {}, "raise dataloader_num_workers, up to the CPUs that are free", {}),
    ],
)
def test_workers_are_suggested_only_where_there_are_cpus_for_them(facts, means, words, suggest):
    (finding,) = feed(LowGpuUtilDetector(facts=facts), 100, 0.3, parts(data_wait=0.5), **means)
    assert words in finding.text and finding.suggest == suggest


def test_without_the_parts_the_reason_is_unknown_and_what_to_add_is_said():
    (finding,) = feed(LowGpuUtilDetector(facts=FACTS), 100, 0.3, {}, host_cpu_percent=20.0)
    assert finding.evidence["reason"] == "unknown" and "add `throughput` to callbacks" in finding.text
    (finding,) = feed(LowGpuUtilDetector(facts=FACTS), 100, 0.3, {}, gpu_other_processes=2.0)
    assert finding.evidence["reason"] == "others" and "2 other processes are" in finding.text
    assert "add `throughput`" in finding.text


def test_a_minute_and_ten_steps_and_not_the_first_ones():
    (finding,) = feed(LowGpuUtilDetector(), 400, 0.3, BUSY, seconds=0.25)
    assert finding.step == 5 + 240, "60 s after the warm-up"
    (finding,) = feed(LowGpuUtilDetector(), 400, 0.3, BUSY, seconds=30.0)
    assert finding.step == 5 + 10
    detector = LowGpuUtilDetector()
    assert feed(detector, 5, 0.0, BUSY, seconds=40.0) == [], "the first steps compile and fill caches"
    assert feed(detector, 100, 0.9, BUSY, start=6, seconds=2.0) == []
    assert feed(LowGpuUtilDetector(), 100, 0.3, BUSY, seconds=0.1) == [], "ten seconds are no minute"


def test_the_mean_is_weighted_by_time():
    detector = LowGpuUtilDetector(warmup=0)
    found = []
    for step in range(1, 400, 2):  # short idle steps between long busy ones
        found += [detector.update(step, 0.1, 0.0, {}), detector.update(step + 1, 3.0, 0.9, {})]
    assert not any(found)
    detector = LowGpuUtilDetector(warmup=0)
    for step in range(1, 400, 2):
        found += [detector.update(step, 3.0, 0.5, {}), detector.update(step + 1, 0.1, 1.0, {})]
    assert sum(bool(finding) for finding in found) == 1


def test_it_ends_once_and_may_come_again():
    detector = LowGpuUtilDetector()
    assert [f.name for f in feed(detector, 100, 0.4, BUSY)] == ["low_gpu_util"]
    assert feed(detector, 100, 0.81, BUSY, start=101) == [], "on the edge nothing flickers"
    (back,) = feed(detector, 100, 0.95, BUSY, start=201)
    assert (back.name, back.level) == ("gpu_util_back", "info") and 201 < back.step < 261
    assert [f.name for f in feed(detector, 100, 0.4, BUSY, start=301)] == ["low_gpu_util"]


def cycles(detector, count, *, train_s, train_util, break_s, break_util, part, steps=50):
    """Training with an evaluation (or a checkpoint) in every 50th step."""
    found, step = [], 0
    for _ in range(count):
        for i in range(steps):
            step += 1
            if i == 0 and step > 1:
                whole = break_s + train_s
                util = (break_util * break_s + train_util * train_s) / whole
                found.append(detector.update(step, whole, util, {part: break_s, "forward": train_s}))
            else:
                found.append(detector.update(step, train_s, train_util, {"forward": train_s}))
    return [finding for finding in found if finding]


@pytest.mark.parametrize("part", ["eval", "checkpoint"])
def test_too_many_evaluations_and_checkpoints(part):
    often = {"train_s": 1.0, "train_util": 0.95, "break_s": 25.0, "break_util": 0.1, "part": part}
    (finding,) = cycles(LowGpuUtilDetector(facts=FACTS), 8, **often)
    assert finding.evidence["reason"] == part and finding.evidence["view"] == "run"
    assert finding.suggest == ({"eval_steps": 100} if part == "eval" else {"save_steps": 200})
    busy = often | {"break_util": 0.95}
    assert cycles(LowGpuUtilDetector(facts=FACTS), 8, **busy) == [], "an evaluation that keeps the card busy"
    rare = often | {"steps": 2000}
    assert cycles(LowGpuUtilDetector(facts=FACTS), 5, **rare) == [], "the same evaluation, 40 times as seldom"
    assert cycles(LowGpuUtilDetector(facts=FACTS), 3, **often) == [], "two of them are no habit"


def test_an_evaluation_that_is_not_timed_is_left_out():
    detector = LowGpuUtilDetector(warmup=0)
    found = []
    for step in range(1, 300):
        eval_now = step % 50 == 0
        found.append(detector.update(step, 61.0 if eval_now else 1.0, 0.1 if eval_now else 0.95, {}, eval_now))
    assert not any(found)


@pytest.mark.parametrize("seconds, util", [(None, 0.1), (1.0, None), (float("nan"), 0.1), (0.0, 0.1), (1.0, "low")])
def test_what_is_missing_changes_nothing(seconds, util):
    detector = LowGpuUtilDetector()
    assert all(detector.update(step, seconds, util, {}) is None for step in range(200))
    assert len(feed(detector, 100, 0.3, BUSY)) == 1


def test_a_replay_brings_it_to_the_same_state():
    first, second = LowGpuUtilDetector(), LowGpuUtilDetector()
    feed(first, 150, 0.4, BUSY)
    feed(second, 150, 0.4, BUSY)
    assert feed(first, 100, 0.9, BUSY, start=151) == feed(second, 100, 0.9, BUSY, start=151) != []


def test_memory_stays_small_however_long_the_run():
    detector = LowGpuUtilDetector()
    feed(detector, 20_000, 0.9, BUSY, seconds=0.5)
    assert len(detector._window) <= 121
    assert detector._training["util"] == pytest.approx(0.9 * detector._training["seconds"], rel=1e-9)


@pytest.mark.parametrize("bad", [{"threshold": 0}, {"threshold": 1.2}, {"min_steps": 0}, {"min_seconds": -1}])
def test_wrong_arguments(bad):
    with pytest.raises(ValueError):
        LowGpuUtilDetector(**bad)


def test_every_part_that_may_be_a_reason_has_words():
    for name in ("data_wait", "eval", "checkpoint", "communication", "h2d", "callbacks", "other"):
        found = explain({name: 0.9, "other" if name != "other" else "eval": 0.2}, Facts())
        assert found.name == name and found.text.endswith(".") and "also: " in found.text
