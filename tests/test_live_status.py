"""What a training does, how long it will take, and what is told of its alerts, probes and checkpoints."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from live_record import LiveRecord, hold

from llamafactory_obs.live import Follower
from llamafactory_obs.summary import summarize

PLAN = {"eval_strategy": "steps", "eval_steps": 10, "save_strategy": "steps", "save_steps": 20, "run_name": "mine"}


def test_evaluating_and_saving_are_what_is_due_and_not_there_yet(tmp_path):
    record, follower = LiveRecord(tmp_path, max_steps=35, settings=PLAN), Follower(tmp_path)

    def status():
        return follower.update().status

    record.steps(9)
    assert status() == "training" and follower.update().name == "mine"
    record.steps(1)
    assert status() == "evaluating"
    record.evaluate(1.0)
    assert status() == "training"
    record.steps(10)
    assert status() == "evaluating"
    record.evaluate(1.0)
    assert status() == "saving"
    record.save()
    assert status() == "training"
    record.steps(15)  # the last step: both, although neither divides it
    assert status() == "evaluating"
    record.save()  # without an evaluation, as other versions of transformers have it
    assert status() == "training"
    record.end()
    done = follower.update()
    assert (done.status, done.ending, done.seconds_to_go) == ("ended", "finished", None)


def test_a_run_without_evaluations_never_evaluates(tmp_path):
    record = LiveRecord(tmp_path, settings={"eval_strategy": "no", "save_strategy": "no", "eval_steps": 10})
    record.steps(10)
    assert Follower(tmp_path).update().status == "training"


@pytest.mark.parametrize(
    ("kinds", "ending"),
    [
        (["end"], "stopped"),
        (["notice", "end"], "notice"),
        (["crash"], "crashed"),
        (["oom", "crash"], "oom"),
        (["interrupted"], "interrupted"),
    ],
)
def test_how_it_ended_as_the_summary_says_it(tmp_path, kinds, ending):
    record = LiveRecord(tmp_path, max_steps=100, settings={})
    record.steps(40)
    for kind in kinds:
        record.event(kind, "recorder", kind, "words")
    seen = Follower(tmp_path).update()
    assert (seen.status, seen.ending) == ("ended", ending)
    assert summarize(tmp_path).sessions[-1].ended == ending


def test_a_killed_process_is_known_by_its_lock_and_a_living_one_too(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(tmp_path)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
    )
    try:
        assert child.stdout.readline() == b"ready\n"
        follower = Follower(tmp_path)
        alive = follower.update()
        assert (alive.status, alive.alive) == ("training", True)
        child.send_signal(signal.SIGKILL)
        child.wait()
        time.sleep(1.1)  # the lock is looked at once a second
        dead = follower.update()
        assert (dead.status, dead.ending, dead.alive, dead.seconds_to_go) == ("ended", "killed", False, None)
        assert dead.version > alive.version
        LiveRecord(tmp_path, max_steps=100, from_step=3).steps(1)
        assert follower.update().status == "training"
    finally:
        child.kill()


_CHILD = """
import sys, time
from live_record import LiveRecord, hold
record = LiveRecord(sys.argv[1], max_steps=100, begun=time.time() - 8)
presence = hold(sys.argv[1])
record.steps(5)
print("ready", flush=True)
time.sleep(60)
"""


def test_the_lock_of_an_older_training_says_nothing(tmp_path):
    hold(tmp_path).leave(5)
    job = tmp_path / "obs/control/job.json"
    job.write_text(json.dumps(json.loads(job.read_text()) | {"ended": time.time() - 5000}))
    record = LiveRecord(tmp_path, begun=time.time() - 10)  # control: {listen: false}
    record.steps(5)
    seen = Follower(tmp_path).update()
    assert (seen.status, seen.alive) == ("training", None)


def test_no_news_is_told_by_the_runs_own_pace(tmp_path):
    fast = LiveRecord(tmp_path / "fast", begun=time.time() - 400)
    fast.steps(300)  # silent for 100 seconds, one second a step
    quiet = Follower(tmp_path / "fast").update()
    assert (quiet.status, quiet.alive) == ("quiet", None) and 95 < quiet.now - quiet.heard < 110
    slow = LiveRecord(tmp_path / "slow", begun=time.time() - 400, step_s=60.0)
    slow.steps(5)
    assert Follower(tmp_path / "slow").update().status == "training"
    evaluates = LiveRecord(tmp_path / "eval", begun=time.time() - 400, settings=PLAN)
    evaluates.steps(10, seconds=30.0)  # the evaluation behind step 10 has gone on for 100 seconds
    assert Follower(tmp_path / "eval").update().status == "evaluating"


def test_time_to_go_has_evaluations_and_saves_in_it_and_no_hitch(tmp_path):
    record = LiveRecord(tmp_path, max_steps=2000, settings=PLAN | {"eval_steps": 50, "save_steps": 100})
    for step in range(1, 1001):
        record.steps(1, seconds=2.0 + (600.0 if step == 970 else 0.0))  # one disk that hangs for ten minutes
        if step % 50 == 0:
            record.evaluate(1.0, seconds=30.0)
        if step % 100 == 0:
            record.save(seconds=20.0)
    seen = Follower(tmp_path, price=3.6).update()
    true = 1000 * 2.0 + 20 * 30.0 + 10 * 20.0
    assert seen.seconds_to_go == pytest.approx(true, rel=0.08)
    assert seen.cost_to_go == pytest.approx(seen.seconds_to_go / 1000)
    naive = 1000 * seen.seconds / 1000
    assert abs(naive - true) > 500  # the mean of everything is not that good


def test_time_used_is_the_summarys(tmp_path):
    first = LiveRecord(tmp_path, max_steps=100, begun=1e9, settings={})
    first.steps(50)
    second = LiveRecord(tmp_path, max_steps=100, begun=1e9 + 5000, from_step=40)
    second.steps(20)
    second.time -= 300  # the clock is set back
    second.steps(20)
    second.time += 7200  # and forward, by far
    second.steps(20)
    second.event("eval", "basics", "evaluation", "", evidence={})
    second.end()
    seen, summary = Follower(tmp_path).update(), summarize(tmp_path)
    assert seen.seconds == pytest.approx(summary.wall_s, abs=2.0) == pytest.approx(110, abs=3)


def test_a_clock_that_is_set_back_takes_no_time_away(tmp_path):
    record = LiveRecord(tmp_path, max_steps=100, begun=1e9, settings={})
    record.steps(50, **{"time/step_s": None})
    record.time -= 40
    record.steps(50, **{"time/step_s": None})
    record.end()
    assert (
        Follower(tmp_path).update().seconds
        == pytest.approx(summarize(tmp_path).wall_s, abs=1.5)
        == pytest.approx(100, abs=2)
    )


def test_alerts_live_and_end(tmp_path):
    record, follower = LiveRecord(tmp_path), Follower(tmp_path)
    record.steps(5)
    record.alert("vram", "memory_growth", "grows")
    record.steps(5)
    record.alert("grad_norm_spike", "spike", "up", level="error", action="kill")
    record.alert("quality", "memorising", "a moment", is_open=False)
    seen = follower.update()
    assert [one.id for one in seen.alerts] == ["grad_norm_spike/spike", "vram/memory_growth"]
    assert (seen.alerts[1].since, seen.alerts[0].event.action) == (5, "kill")
    assert [one.title for one in seen.events][-3:] == ["memory_growth", "spike", "memorising"]
    record.alert("grad_norm_spike", "spike", "over", state="resolved", is_open=False)
    assert [one.id for one in follower.update().alerts] == ["vram/memory_growth"]
    for _ in range(200):
        record.event("note", "x", "noise", "n" * 5000)
    seen = follower.update()
    assert len(seen.events) == 50 and len(seen.events[-1].text) == 500 and len(seen.alerts) == 1


def test_probes_of_the_newest_checkpoint_and_what_changed(tmp_path):
    record, follower = LiveRecord(tmp_path), Follower(tmp_path)
    record.probe("call", False, "base", step=0)
    assert follower.update().probes.checkpoint == "base"
    for name, passed in (("call", True), ("chat", False)):
        record.probe(name, passed, "old", step=10)
    for name, passed in (("call", False), ("chat", True), ("new", True)):
        record.probe(name, passed, "x" * 9000, step=20, errors=("missing_call",))
    seen = follower.update().probes
    assert (seen.checkpoint, seen.passed) == ("checkpoint-20", 2)
    assert {one.name: one.change for one in seen.probes} == {"call": "broke", "chat": "fixed", "new": None}
    assert {len(one.output) for one in seen.probes} == {2000}
    assert seen.history == ((0, "base", 0, 1), (10, "checkpoint-10", 1, 2), (20, "checkpoint-20", 2, 3))
    record.probe("call", True, "again", step=20)  # probed once more
    assert follower.update().probes.passed == 3


def test_checkpoints_with_their_verdicts(tmp_path):
    record, follower = LiveRecord(tmp_path), Follower(tmp_path)
    for verdict in ("resumes exactly", "broken", None):
        record.steps(10)
        record.save(seconds=1.5, verdict=verdict)
    record.writer.append("checkpoints.jsonl", {"step": 10, "time": record.time, "deleted": "not among the best"})
    seen = follower.update().checkpoints
    assert [(one.step, one.verdict, one.good, one.deleted) for one in seen] == [
        (10, "resumes exactly", True, True),
        (20, "broken", False, False),
        (30, None, None, False),
    ]
    assert seen[0].save_s == 1.5 and seen[0].path.endswith("checkpoint-10")


def test_the_plan_that_control_has_changed(tmp_path):
    record = LiveRecord(tmp_path, max_steps=100)
    record.steps(10)
    done = {"order": {"max_steps": 60}, "results": [{"what": "max_steps", "status": "done"}]}
    record.event("control", "control", "carried out", "max_steps 60", evidence=done)
    assert Follower(tmp_path).update().max_steps == 60
    record.steps(50)
    record.end()
    assert Follower(tmp_path).update().ending == "finished"
