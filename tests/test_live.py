"""The follower against the reader of whole records, and what a record may do while it is followed."""

import json
import os
import shutil

import numpy as np
import pytest
from live_record import LiveRecord, row

from llamafactory_obs import load_record
from llamafactory_obs.charts.decimate import ema
from llamafactory_obs.live import CURVES, Follower
from llamafactory_obs.live.curve import Curve
from llamafactory_obs.record.schema import CHECKPOINTS, EVENTS, PROBES, STEPS

LOSS, EVAL = "train/loss", "eval/loss"


def curve(snapshot, name=LOSS):
    points = snapshot.curves[name]
    return dict(zip(points.steps.tolist(), points.values.tolist(), strict=True))


def whole(output_dir, name=LOSS):
    """The column as `load_record` has it."""
    steps = load_record(output_dir).steps
    pairs = zip(steps["step"], steps.get(name, [None] * len(steps["step"])), strict=True)
    return {step: value for step, value in pairs if value is not None}


def test_nothing_is_there_yet_then_a_training_begins(tmp_path):
    output = tmp_path / "later" / "run"
    follower = Follower(output)
    first = follower.update()
    assert (first.status, first.source, first.step, first.seconds) == ("waiting", None, 0, None)
    assert set(first.curves) == set(CURVES)
    record = LiveRecord(output, max_steps=50)
    assert follower.update().status == "training"
    record.steps(3)
    seen = follower.update()
    assert (seen.source, seen.step, seen.max_steps, seen.segment) == ("record", 3, 50, 0)
    assert curve(seen) == whole(output)


def test_a_growing_record_reads_as_a_whole_one(tmp_path):
    record, follower = LiveRecord(tmp_path, max_steps=400), Follower(tmp_path)
    for i in range(40):
        record.steps(1 + i % 7)
        if i % 5 == 4:
            record.evaluate(2.0 - i / 100)
        grown = follower.update()
        assert curve(grown) == whole(tmp_path)
    assert curve(grown, EVAL) == whole(tmp_path, EVAL)
    anew = Follower(tmp_path).update()
    for name in CURVES:
        assert grown.curves[name].values.tolist() == anew.curves[name].values.tolist()
    values = np.array(list(whole(tmp_path).values()))
    assert np.allclose(grown.curves[LOSS].means, ema(values, 10), rtol=1e-12)  # 400 steps / 40
    assert grown.latest["system/gpu_util"] == 0.93 and grown.mask["padding_ratio"] == 0.1


def test_many_points_are_thinned_and_none_that_matters_is_lost(tmp_path):
    record, follower = LiveRecord(tmp_path, max_steps=9000), Follower(tmp_path, points=400)
    record.steps(6000)
    record.steps(1, **{LOSS: 99.0})
    record.steps(2, **{LOSS: float("nan")})
    record.steps(500)
    for _ in range(30):
        record.steps(11)
        points = follower.update().curves[LOSS]
        assert len(points.values) <= 400 + 4
        assert points.values.max(initial=0, where=np.isfinite(points.values)) == 99.0
        assert np.isnan(points.values).sum() >= 1
        assert points.last == row(record.at)[LOSS]
        assert (np.diff(points.steps) > 0).all()
    assert points.count == record.at


def test_a_resume_takes_steps_back_when_its_first_step_is_there(tmp_path):
    plan = {"eval_strategy": "steps", "eval_steps": 10}
    first, follower = LiveRecord(tmp_path, max_steps=100, settings=plan), Follower(tmp_path)
    first.steps(80)
    first.evaluate(1.5)
    follower.update()
    second = LiveRecord(tmp_path, max_steps=100, from_step=50)
    resumed = follower.update()
    assert (resumed.step, resumed.segment, resumed.status, len(curve(resumed))) == (50, 1, "training", 80)
    second.steps(10, **{LOSS: 7.0})
    seen = follower.update()
    assert (seen.step, len(curve(seen)), curve(seen, EVAL)) == (60, 60, {})
    assert all(value == 7.0 for step, value in curve(seen).items() if step > 50)
    second.steps(40)
    assert curve(follower.update()) == whole(tmp_path) == curve(Follower(tmp_path).update())


def test_a_row_of_an_older_start_that_comes_late_changes_nothing(tmp_path):
    first = LiveRecord(tmp_path)
    first.steps(20)
    second = LiveRecord(tmp_path, from_step=10)
    second.steps(3, **{LOSS: 7.0})
    first.steps(1, **{LOSS: 1000.0})
    assert 1000.0 not in curve(Follower(tmp_path).update()).values()


def test_a_record_that_is_archived_and_begun_anew(tmp_path):
    old, follower = LiveRecord(tmp_path, max_steps=100), Follower(tmp_path)
    old.steps(30)
    old.probe("call", True, "x")
    old.alert("vram", "memory_growth", "grows")
    before = follower.update()
    assert before.probes and before.alerts
    LiveRecord(tmp_path, max_steps=7).steps(2)
    assert list((tmp_path / "obs/archive").iterdir())
    seen = follower.update()
    assert (seen.step, seen.max_steps, curve(seen)) == (2, 7, whole(tmp_path))
    assert seen.probes is None and not seen.alerts and seen.version > before.version


@pytest.mark.parametrize("file", [STEPS, EVENTS])
def test_a_file_that_is_cut_short_is_read_anew(tmp_path, file):
    record, follower = LiveRecord(tmp_path), Follower(tmp_path)
    record.steps(20)
    follower.update()
    path = tmp_path / "obs" / file
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))
    assert curve(follower.update()) == whole(tmp_path) == curve(Follower(tmp_path).update())


def test_a_file_that_is_written_over_in_place_is_read_anew(tmp_path):
    record, follower = LiveRecord(tmp_path), Follower(tmp_path)
    record.steps(5)
    follower.update()
    path = tmp_path / "obs" / STEPS
    text = b"".join(
        b'{"step":%d,"time":1.0,"segment":0,"train/loss":5.0,"pad":"%s"}\n' % (i, b"x" * 900) for i in range(1, 9)
    )
    with open(path, "r+b") as handle:  # the same inode, and longer than before
        handle.write(text)
        handle.truncate()
    assert set(curve(follower.update()).values()) == {5.0}


def test_another_file_in_its_place_is_read_anew(tmp_path):
    record, follower = LiveRecord(tmp_path), Follower(tmp_path)
    record.steps(5)
    follower.update()
    path = tmp_path / "obs" / STEPS
    lines = path.read_bytes().splitlines(keepends=True)
    other = tmp_path / "other"
    other.write_bytes(b"".join([lines[0], *(b'{"step":%d,"segment":0,"train/loss":8.0}\n' % i for i in range(2, 99))]))
    other.replace(path)  # as a copying tool does; it begins like the old one
    assert curve(follower.update()) == whole(tmp_path) and follower.update().step == 98


def test_rows_that_come_out_of_order_stand_in_order():
    grown = Curve(400, span=5)
    for step in (1, 2, 5, 4, 3, 5, 9, 7):
        grown.add(step, float(step) if step != 9 else 90.0)
    points = grown.points()
    assert points.steps.tolist() == [1, 2, 3, 4, 5, 7, 9]
    assert np.allclose(points.means, ema(np.array([1, 2, 3, 4, 5, 7, 90.0]), 5))


def test_a_torn_line_is_read_once_it_is_whole_and_a_dead_one_is_cut_off(tmp_path):
    record, follower = LiveRecord(tmp_path), Follower(tmp_path)
    record.steps(3)
    with open(tmp_path / "obs" / STEPS, "ab") as handle:
        handle.write(b'{"step":4,"time":1.0,"segme')
        handle.flush()
        assert follower.update().step == 3
        handle.write(b'nt":0,"train/loss":4.5}\n')
        handle.flush()
        assert curve(follower.update())[4] == 4.5
        handle.write(b'{"step":5,"tim')  # killed here
    assert follower.update().step == 4
    LiveRecord(tmp_path, from_step=4).steps(1)  # cuts the torn tail off
    seen = follower.update()
    assert (seen.step, seen.torn, curve(seen)) == (5, 0, whole(tmp_path))


def test_lines_that_are_no_rows_are_counted_and_skipped(tmp_path):
    record = LiveRecord(tmp_path)
    record.steps(2)
    for file in (STEPS, EVENTS, PROBES):
        with open(tmp_path / "obs" / file, "ab") as handle:
            handle.write(b'[1]\n\x00\xff\n{"step":"7"}\n{"step":9,"time":"x"}\n{"nonfinite":3}\n"text"\n')
    record.steps(1)
    seen = Follower(tmp_path).update()
    assert seen.step == 3 and seen.torn >= 12
    json.dumps(seen.as_dict(), allow_nan=False)


def test_counts_of_two_suites_are_not_added_up(tmp_path):
    record = LiveRecord(tmp_path)
    record.steps(20)
    row = {"segment": 0, "time": 1.79e9, "content": "c", "errors": []}
    with open(tmp_path / "obs" / PROBES, "a") as handle:
        for step in (10, 20):
            for suite, asked in (("small", 3), ("large", 5)):
                for number in range(asked):
                    about = {
                        "checkpoint": f"checkpoint-{step}",
                        "step": step,
                        "suite": suite,
                        "probe": f"{suite} {number}",
                    }
                    handle.write(json.dumps(row | about | {"passed": step == 20 or number > 0}) + "\n")
    found = Follower(tmp_path).update().probes
    assert (found.checkpoint, found.passed, len(found.probes)) == ("checkpoint-20", 5, 5)
    assert [one[2:] for one in found.history] == [(4, 5), (5, 5)]
    assert [one.name for one in found.probes if one.change == "fixed"] == ["large 0"]


def test_values_of_a_wrong_type_or_beyond_any_number_are_no_crash(tmp_path):
    record = LiveRecord(tmp_path)
    record.steps(2)
    strange = [[1], {"a": 1}, None, "\ud800", True, 10**400, -(10**400), 1e308, "nan"]
    names = ("step", "segment", "time", "kind", "level", "name", "title", "text", "action", "alert", "evidence")
    names += ("train/loss", "time/step_s", "checkpoint", "probe", "passed", "errors", "seconds", "suite", "path")
    for file in (STEPS, EVENTS, PROBES, CHECKPOINTS):
        with open(tmp_path / "obs" / file, "a") as handle:
            for name in names:
                for kind in ("alert", "control", "verdict", "start"):
                    row = {"step": 1, "segment": 0, "time": 1.79e9, "kind": kind, "probe": "a", "passed": True}
                    handle.writelines(json.dumps(row | {name: value}) + "\n" for value in strange)
    segments = [{"segment": value, "process_started": value} for value in strange]
    (tmp_path / "obs" / "run.json").write_text(json.dumps({"segments": segments, "world": {"nodes": 10**400}}))
    json.dumps(Follower(tmp_path).update().as_dict(), allow_nan=False)


def test_the_folder_vanishes_and_comes_back(tmp_path):
    output = tmp_path / "run"
    LiveRecord(output).steps(5)
    follower = Follower(output)
    assert follower.update().step == 5
    shutil.rmtree(output)
    assert follower.update().status == "waiting"
    LiveRecord(output, max_steps=9).steps(2)
    assert (follower.update().step, follower.update().max_steps) == (2, 9)


def test_the_obs_folder_may_be_named(tmp_path):
    LiveRecord(tmp_path).steps(5)
    assert Follower(tmp_path / "obs").update().step == 5


def test_only_new_bytes_are_read(tmp_path):
    record, follower = LiveRecord(tmp_path, max_steps=3000), Follower(tmp_path)
    record.steps(3000)
    follower.update()
    record.steps(1)
    tail, taken = follower._tails[STEPS], []
    real = tail._parsed
    tail._parsed = lambda lines: taken.append(len(lines)) or real(lines)
    follower.update()
    follower.update()
    last = os.path.getsize(tmp_path / "obs" / STEPS) - sum(
        map(len, (tmp_path / "obs" / STEPS).read_bytes().splitlines(True)[:-1])
    )
    assert taken == [last]


def test_a_log_of_llamafactory_only_where_there_is_no_record(tmp_path):
    log = tmp_path / "trainer_log.jsonl"

    def write(step, clock, **values):
        row = {"current_steps": step, "total_steps": 40, "epoch": step / 10, "elapsed_time": clock} | values
        with log.open("a") as handle:
            handle.write(json.dumps(row) + "\n")

    follower = Follower(tmp_path)
    for step in range(1, 11):
        write(step, f"0:00:{2 * step:02}", loss=3.0 / step, lr=1e-4)
    write(10, "0:00:30", eval_loss=1.25)
    seen = follower.update()
    assert (seen.source, seen.status, seen.step, seen.max_steps) == ("trainer_log", "training", 10, 40)
    assert seen.step_seconds == pytest.approx(2.0) and seen.seconds_to_go == pytest.approx(60.0)
    assert curve(seen) == {step: 3.0 / step for step in range(1, 11)} and curve(seen, EVAL) == {10: 1.25}
    write(8, "0:00:01", loss=9.0)  # resumed from 7: the clock begins anew
    again = follower.update()
    assert (again.step, again.segment, curve(again)[8], curve(again, EVAL)) == (8, 1, 9.0, {})
    write(40, "1 day, 1:00:00")
    done = follower.update()
    assert (done.status, done.ending) == ("ended", "finished")
    LiveRecord(tmp_path, max_steps=5).steps(1)
    seen = follower.update()
    assert (seen.source, seen.step, curve(seen)) == ("record", 1, whole(tmp_path))


def test_a_snapshot_is_strict_json(tmp_path):
    record = LiveRecord(tmp_path)
    record.steps(1, **{LOSS: float("nan"), "train/grad_norm": float("inf")})
    record.alert("vram", "memory_growth", "grows", evidence={"peak_gib": float("nan")})
    record.probe("call", False, "\ud800 half of a pair")
    plain = json.loads(json.dumps(Follower(tmp_path, price=1.0).update().as_dict(), allow_nan=False))
    assert plain["curves"][LOSS]["values"] == ["nan"] and plain["latest"]["train/grad_norm"] == "inf"
    assert plain["machine"]["gpu_util"] == 0.93 and plain["alerts"][0]["event"]["title"] == "memory_growth"
    assert plain["cost"] == pytest.approx(1 / 3600)
