"""How each start of training ended, and how long it took whatever the clock did."""

import time

import pytest
from summary_record import BEGIN, Record

from llamafactory_obs.control.folder import control_folder
from llamafactory_obs.control.presence import Presence
from llamafactory_obs.summary import summarize


def started(tmp_path, last: int = 10, planned: int = 20, **columns) -> Record:
    record = Record(tmp_path)
    record.start(planned=planned)
    record.steps(1, last, **columns)
    return record


def of(record: Record):
    (session,) = summarize(record.write()).sessions
    return session


AUTO = {"order": {"stop": True}, "results": [{"what": "stop", "status": "asked"}], "finding": "spike"}
STOP = {"order": {"stop": True}, "results": [{"what": "stop", "status": "asked"}], "by": {"pid": 7, "host": "box"}}
REFUSED = STOP | {"results": [{"what": "stop", "status": "refused"}]}


@pytest.mark.parametrize(
    ("events", "ended", "by"),
    [
        ([("oom", {}), ("crash", {})], "oom", ""),
        ([("crash", {})], "crashed", ""),
        ([("interrupted", {})], "interrupted", ""),
        ([("retry", {})], "retried", "auto_find_batch_size"),
        ([], "killed", ""),
        ([("control", {"evidence": STOP}), ("end", {})], "stopped", "control, pid 7 on box"),
        (
            [("control", {"evidence": STOP | {"finding": "spike"}, "title": "auto"}), ("end", {})],
            "stopped",
            "auto (spike)",
        ),
        ([("control", {"evidence": REFUSED}), ("end", {})], "stopped", ""),
        ([("stop", {"evidence": {"alert": "stalled"}}), ("end", {})], "stopped", "alert stalled"),
        ([("notice", {"evidence": {"signal": "SIGTERM"}}), ("end", {})], "notice", "SIGTERM"),
        ([("end", {})], "stopped", ""),
    ],
)
def test_each_way_to_end(tmp_path, events, ended, by):
    record = started(tmp_path)
    for kind, more in events:
        record.event(10, kind, text=f"words of {kind}", **more)
    session = of(record)
    assert (session.ended, session.by) == (ended, by)
    if ended in ("oom", "crashed", "interrupted", "notice") or by:
        assert session.why.startswith("words of")


def test_the_end_of_the_plan_is_no_stop(tmp_path):
    record = started(tmp_path, last=20)
    record.event(20, "end")
    assert of(record).ended == "finished"
    shorter = started(tmp_path / "shorter", last=12)
    order = {"order": {"max_steps": 12}, "results": [{"what": "max_steps", "status": "done"}]}
    shorter.event(8, "control", evidence=order)
    shorter.event(12, "end")
    assert of(shorter).ended == "finished", "the plan was changed by a command"


@pytest.mark.parametrize("name", ["settings", "callback", "action"])
def test_what_stopped_it_is_found_in_the_config(tmp_path, name):
    record = started(tmp_path)
    if name == "settings":
        record.run["config"]["resolved"]["training_args"]["early_stopping_steps"] = 3
    if name == "callback":
        record.run["config"]["given"]["callbacks"] = ["early_stopping"]
    if name == "action":
        record.run["config"]["given"]["callbacks"] = [{"grad_norm_spike": {"action": "stop"}}]
        record.event(9, "alert", "spike", "it spikes", name="grad_norm_spike", level="error")
    record.event(10, "end")
    session = of(record)
    assert session.ended == "stopped"
    assert session.by == ("grad_norm_spike, action: stop" if name == "action" else "early_stopping")


def test_a_run_that_goes_on_is_told_by_its_lock(tmp_path):
    record = started(tmp_path)
    folder = record.write()
    control_folder(folder).mkdir()
    presence = Presence(control_folder(folder), {})
    assert presence.take()
    try:
        found = summarize(folder)
        assert found.going and found.sessions[0].ended == "going"
    finally:
        presence.leave(10)
    assert summarize(folder).sessions[0].ended == "killed", "the job is gone and its record has no end"


def test_without_a_lock_fresh_rows_tell_it(tmp_path):
    folder = started(tmp_path).write()
    assert summarize(folder, now=BEGIN + 20 + 60).going
    assert not summarize(folder, now=BEGIN + 20 + 600).going
    assert not summarize(folder, now=BEGIN - 1e6).going, "a clock that is behind proves nothing"


def test_a_clock_that_is_set_back_makes_no_negative_time(tmp_path):
    record = started(tmp_path, last=5)
    record.clock -= 3600
    record.steps(6, 10)
    record.event(10, "end")
    found = summarize(record.write())
    assert found.sessions[0].train_s == pytest.approx(20)
    assert any("set back" in remark for remark in found.remarks)
    clean = started(tmp_path / "clean")
    clean.event(10, "end")
    found = summarize(clean.write())
    assert found.sessions[0].train_s == pytest.approx(20) and not found.remarks


def test_a_clock_that_jumps_forward_is_told_by_the_steps_own_seconds(tmp_path):
    record = started(tmp_path, last=5, **{"time/step_s": 2.0})
    record.clock += 7200
    record.steps(6, 10, **{"time/step_s": 2.0})
    record.event(10, "end")
    found = summarize(record.write())
    assert found.sessions[0].train_s == pytest.approx(20) and any("measurement" in one for one in found.remarks)
    blind = started(tmp_path / "blind", last=5)
    blind.clock += 7200
    blind.steps(6, 10)
    blind.event(10, "end")
    assert summarize(blind.write()).sessions[0].train_s == pytest.approx(7220), "nothing says that it was no pause"


def test_an_evaluation_does_not_make_a_clock_wrong_and_stands_beside_the_training(tmp_path):
    """As LlamaFactory does it: the evaluation of the last step is in no step's seconds, another one follows the end."""
    record = started(tmp_path, **{"time/step_s": 2.0})
    record.clock += 300
    record.evaluation(10, 1.0)
    record.rows[-1]["time"] = BEGIN + record.clock
    record.event(10, "end")
    record.clock += 200
    record.evaluation(10, 1.0)
    record.rows[-1]["time"] = BEGIN + record.clock
    record.event(10, "eval")
    found = summarize(record.write())
    (session,) = found.sessions
    assert not [one for one in found.remarks if "clock" in one]
    assert (session.train_s, session.after_s, session.wall_s) == pytest.approx((320, 200, 520))


def test_what_others_write_later_is_no_sign_of_life(tmp_path):
    record = started(tmp_path)
    record.event(10, "crash", text="boom")
    record.clock += 5000
    record.event(10, "probe", "verdict", name="probe")
    session = of(record)
    assert session.train_s == pytest.approx(20) and session.last == pytest.approx(BEGIN + 20)


def test_a_start_without_a_step_and_torn_lines(tmp_path):
    record = Record(tmp_path)
    record.start()
    record.event(0, "crash", text="no memory")
    record.clock += 60
    record.start()
    record.steps(1, 4)
    folder = record.write()
    with open(folder / "obs" / "steps.jsonl", "a") as file:
        file.write('{"step": 5, "ti')
    first, second = summarize(folder, now=time.time()).sessions
    assert (first.first_step, first.ended, first.pause_s) == (None, "crashed", 60)
    assert (second.last_step, second.ended) == (4, "killed")
