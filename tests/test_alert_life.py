"""The life of an alert: what is raised, repeated, escalated, over; what of it a person hears."""

from dataclasses import asdict

import pytest

from llamafactory_obs.alerts.acting import demands
from llamafactory_obs.alerts.life import Life


class Run:
    """Ten seconds a step; `find` gives (state, told)."""

    def __init__(self, cooldown_steps=10, cooldown_s=0.0):
        self.life, self.events = Life(cooldown_steps, cooldown_s), []

    def find(self, step, title="spike", level="warn", name="grad_norm_spike", evidence=None, **more):
        place = (name, title, level, step, step * 10.0)
        told = self.life.update(*place, evidence, keep=f"kept {step}", **more)
        row = dict(zip(("name", "title", "level", "step", "time"), place, strict=True))
        self.events.append(row | {"kind": "alert", "evidence": evidence or {}, "alert": asdict(told)})
        return told.state, told.told


def test_repeats_within_the_cooldown_are_counted_and_not_told():
    run = Run()
    assert run.find(100) == ("raised", True)
    assert [run.find(step) for step in (101, 105, 109)] == [("repeated", False)] * 3
    assert run.find(110) == ("repeated", True), "the cooldown is over"
    told = run.events[-1]["alert"]
    assert told["count"] == 5 and told["since"] == 100 and told["id"] == "grad_norm_spike/spike"
    assert run.find(119) == ("repeated", False)
    assert run.find(200) == ("raised", True), "long after: another one"
    assert run.events[-1]["alert"]["since"] == 200 and run.events[-1]["alert"]["count"] == 1


def test_seconds_count_as_well_as_steps():
    run = Run(cooldown_steps=2, cooldown_s=100.0)
    assert run.find(1)[1] and not run.find(5)[1] and run.find(12)[1]
    assert Run(cooldown_steps=0).find(1) == ("raised", True)
    run = Run(cooldown_steps=0)
    assert run.find(1)[1] and run.find(1)[1], "no cooldown at all: each is told"


def test_an_escalation_is_told_whatever_the_cooldown_says():
    run = Run()
    assert run.find(100) == ("raised", True)
    assert run.find(101, level="error") == ("escalated", True)
    assert run.find(102, level="error") == ("repeated", False)
    assert run.events[-1]["alert"]["level"] == "error"


@pytest.mark.parametrize(
    ("opening", "level", "ending"),
    [
        ("spike", "error", "spike_over"),
        ("spike", "error", "new_level"),
        ("nan", "error", "finite_again"),
        ("inf", "error", "finite_again"),
        ("stalled", "error", "learning_again"),
        ("memory_growth", "warn", "growth_over"),
        ("supervised_ratio_high", "warn", "supervised_ratio_back"),
        ("overfitting", "warn", "overfitting over"),
        ("disk_nearly_full", "warn", "disk_nearly_full_over"),
    ],
)
def test_an_ending_closes_it(opening, level, ending):
    run = Run()
    run.find(100, opening, level)
    assert [one["since"] for one in run.life.still_open()] == [100]
    assert run.find(103, ending, "info") == ("resolved", True), "good news does not wait for the cooldown"
    closed = run.events[-1]["alert"]
    assert closed["id"] == run.events[0]["alert"]["id"] and closed["since"] == 100 and not closed["open"]
    assert run.life.still_open() == []


def test_a_warning_without_an_ending_is_one_moment():
    run = Run()
    run.find(100)  # a spike of the norm alone: nothing will ever say that it is over
    run.find(100, "little memory left", name="vram")
    run.find(100, "memory_growth", name="vram", is_over=True)
    assert run.life.still_open() == []
    run.find(101, "broken moments", "error", name="optimizer")  # nothing ends it, and it does not pass
    assert [one["id"] for one in run.life.still_open()] == ["optimizer/broken moments"]


def test_what_comes_and_goes_is_told_once_and_what_stays_is_told_again():
    run = Run()
    heard = [run.find(100, "straggler", name="ranks", evidence={"rank": 1})]
    for step in (101, 103, 105):
        heard.append(run.find(step, "straggler_over", "info", name="ranks", evidence={"rank": 1}))
        heard.append(run.find(step + 1, "straggler", name="ranks", evidence={"rank": 1}))
    assert heard[:3] == [("raised", True), ("resolved", True), ("repeated", False)]
    assert [told for _, told in heard[3:]] == [False] * 4, "the person believes that it is over: no news"
    assert run.life.overdue(109, 1090.0) == []
    [(told, kept)] = run.life.overdue(110, 1100.0)
    assert told.told and told.open and told.since == 100 and kept == "kept 106"
    assert run.life.overdue(111, 1110.0) == [], "once"
    assert run.find(112, "straggler_over", "info", name="ranks", evidence={"rank": 1}) == ("resolved", True)


def test_two_of_one_name_live_apart():
    run = Run()
    run.find(5, "desync", "error", "ranks", {"column": "train/lr"})
    assert run.find(6, "desync", "error", "ranks", {"column": "train/epoch"}) == ("raised", True)
    run.find(7, "desync_over", "info", "ranks", {"column": "train/lr"})
    assert [one["id"] for one in run.life.still_open()] == ["ranks/desync[column=train/epoch]"]
    run.find(8, "spike", "error", "mine")
    run.find(9, "spike_over", "info", "theirs")
    assert "mine/spike" in [one["id"] for one in run.life.still_open()], "another callback's spike"


def test_too_low_and_too_high_are_not_open_together():
    run = Run()
    run.find(5, "supervised_ratio_low", name="label_mask")
    run.find(9, "supervised_ratio_high", name="label_mask")
    assert [one["title"] for one in run.life.still_open()] == ["supervised_ratio_high"]


def test_the_end_of_a_moment_is_told_where_the_moment_was():
    run = Run()
    run.find(10, "spike", name="diagnose")
    assert run.find(14, "spike_over", "info", name="diagnose") == ("resolved", True)
    assert run.events[-1]["alert"]["since"] == 10
    run.find(16, "spike", name="diagnose")
    assert run.find(18, "spike_over", "info", name="diagnose") == ("resolved", False), "nobody has heard of it"


def test_an_ending_of_something_unknown_stands_for_itself():
    run = Run()
    told = run.life.update("system", "gpu_util_back", "info", 50, 0.0, {"view": "run", "since": 12})
    assert (told.state, told.since, told.told, told.count) == ("resolved", 12, True, 0)


def test_after_a_resume_the_life_goes_on_without_what_was_thrown_away():
    run = Run()
    run.find(10, "stalled", "error")
    run.find(12, "spike")
    start = {"kind": "resume", "step": 15, "time": 0.0}
    thrown_away = Run()
    thrown_away.find(18, "learning_again", "info")  # after checkpoint 15, from which training went on
    events = [{"kind": "start", "step": 0}, *run.events, *thrown_away.events, start, {"kind": "alert", "step": 16}]
    life = Life(10, 0.0)
    life.restore(events, until=20)
    assert [(one["id"], one["since"]) for one in life.still_open()] == [("grad_norm_spike/stalled", 10)]
    assert life.update("grad_norm_spike", "spike", "warn", 21, 210.0).told is False
    assert life.update("grad_norm_spike", "learning_again", "info", 22, 220.0).told is True
    fresh = Life(10, 0.0)
    fresh.restore(events, until=9)
    assert fresh.still_open() == []


def test_a_checkpoint_of_lost_weights_is_not_asked_for():
    assert demands("warn", "spike") == ()
    assert demands("save", "spike") == ("save",) and demands("stop", "spike") == ("save", "stop")
    for title in ("nan", "inf", "broken moments"):
        assert demands("save", title) == () and demands("stop", title) == ("stop",)
    assert demands("stop", "stalled", lost=True) == ("stop",)
