"""Resumes, restarts, repeated and lost steps, two writers, evaluations out of place: the order of training."""

import json
import random

import pytest

from llamafactory_obs.logs.read import read


def written(tmp_path, rows, name="log"):
    (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read(tmp_path / name)


def run(steps, *, loss=lambda step: 2 - step / 1000, total=1000, per_epoch=100, rate=None, start=0, **more):
    """Rows as LlamaFactory writes them; the elapsed time counts from `start`, 3 s a step."""
    rate = rate or (lambda step: 1e-4 * (1 - step / total))
    for step in steps:
        passed = 3 * (step - start)
        yield {
            "current_steps": step,
            "total_steps": total,
            "loss": loss(step),
            "lr": rate(step),
            "epoch": step / per_epoch,
            "elapsed_time": f"{passed // 3600}:{passed // 60 % 60:02}:{passed % 60:02}",
            **more,
        }


def rounded(points):
    return [round(value, 6) for value in points]


def test_a_run_without_a_break_has_none(tmp_path):
    rows = list(run(range(10, 1010, 10)))
    rows += [{**rows[-1], "eval_loss": 1.5}, {"current_steps": 1000, "total_steps": 1000, "epoch": 10.0}]
    found = written(tmp_path, rows)
    assert (list(found.steps), found.breaks, found.overlaps) == (list(range(10, 1010, 10)), [], [])


def test_a_resume_that_falls_back_takes_the_place_of_what_was_after_it(tmp_path):
    """F10: steps after the checkpoint stand twice in trainer_log.jsonl; the newest start wins."""
    again = run(range(310, 410, 10), start=300, loss=lambda step: 1.0)
    found = written(tmp_path, [*run(range(10, 360, 10)), *again])
    assert list(found.steps) == list(range(10, 410, 10))
    assert found.points("train/loss")[1][29:31] == [1.7, 1.0]
    (resume,) = found.breaks
    assert (resume.kind, resume.row, found.steps[resume.row]) == ("resume", 30, 310)
    assert (resume.evidence["step_before"], resume.evidence["step"]) == (350, 310)
    assert "elapsed time begins again" in resume.evidence["why"] and "step falls" in resume.evidence["why"]
    assert [(step, round(old, 3), new) for step, old, new in found.overlaps] == [
        (310, 1.69, 1.0), (320, 1.68, 1.0), (330, 1.67, 1.0), (340, 1.66, 1.0), (350, 1.65, 1.0),
    ]  # fmt: skip
    elapsed = found.points("time/elapsed_s")[1]
    assert elapsed == sorted(elapsed) and elapsed[-1] == 3 * 350 + 3 * 100


def test_rows_that_the_new_start_has_not_reached_are_left_out(tmp_path):
    found = written(tmp_path, [*run(range(10, 360, 10)), *run([310, 320], start=300)])
    assert list(found.steps)[-3:] == [300, 310, 320]
    assert any("3 rows of steps that a later start has not reached" in note for note in found.notes)


def test_a_resume_without_repeated_steps_is_seen_by_the_clock(tmp_path):
    found = written(tmp_path, [*run(range(10, 310, 10)), *run(range(310, 410, 10), start=300)])
    assert [(b.kind, b.row, b.evidence["why"]) for b in found.breaks] == [
        ("resume", 30, "the elapsed time begins again")
    ]
    assert list(found.steps) == list(range(10, 410, 10))


def test_several_resumes_of_a_run_that_crashes_again_and_again(tmp_path):
    rows = []
    for begin in range(0, 1000, 50):
        rows += run(range(begin + 10, begin + 80, 10), start=begin)
    found = written(tmp_path, rows)
    assert list(found.steps) == list(range(10, 1030, 10))
    assert len(found.breaks) == 19 and {b.kind for b in found.breaks} == {"resume"}
    assert [found.steps[b.row] for b in found.breaks] == list(range(60, 1000, 50))


def test_the_epoch_falls_where_the_data_has_changed(tmp_path):
    found = written(tmp_path, [*run(range(10, 310, 10)), *run(range(310, 410, 10), per_epoch=1000, total=5000)])
    (resume,) = found.breaks
    assert (resume.kind, resume.evidence["epoch_before"], resume.evidence["epoch"]) == ("resume", 3.0, 0.31)
    assert found.max_steps == 5000 and "total" in resume.evidence["why"]


def test_a_rate_that_begins_a_schedule_anew_is_another_start(tmp_path):
    state = [{"step": s, "loss": 1.0, "learning_rate": 1e-4 * (1 - s / 200)} for s in range(1, 201)]
    more = [{"step": s, "loss": 1.2, "learning_rate": 3e-5 * (1 - (s - 201) / 100)} for s in range(201, 301)]
    found = written(tmp_path, state + more)
    assert [(b.kind, found.steps[b.row]) for b in found.breaks] == [("resume", 201)]
    assert "rate" in found.breaks[0].evidence["why"]


def test_the_schedulers_own_restarts_are_none(tmp_path):
    waves = [{"step": s, "loss": 1.0, "learning_rate": 1e-4 * (1 - (s % 100) / 100)} for s in range(1, 401)]
    assert written(tmp_path, waves).breaks == []
    warm = [{"step": s, "loss": 1.0, "learning_rate": min(s, 100 - s) * 1e-6} for s in range(0, 101)]
    assert written(tmp_path, warm).breaks == []


def test_another_run_in_the_same_log_is_a_restart(tmp_path):
    found = written(tmp_path, [*run(range(10, 310, 10)), *run(range(20, 420, 20), total=400)])
    (restart,) = found.breaks
    assert (restart.kind, restart.row) == ("restart", 30)
    assert list(found.steps) == [*range(10, 310, 10), *range(20, 420, 20)] and found.overlaps == []
    assert found.max_steps == 400


def test_a_restart_that_evaluates_first(tmp_path):
    first = {"current_steps": 0, "total_steps": 1000, "eval_loss": 3.0, "epoch": 0}
    rows = [first, *run(range(10, 310, 10)), first, *run(range(10, 210, 10))]
    found = written(tmp_path, rows)
    assert [(b.kind, b.row) for b in found.breaks] == [("restart", 31)]
    assert found.points("eval/loss") == ([0, 0], [3.0, 3.0])


def test_steps_that_begin_anew_in_each_epoch_are_counted_through(tmp_path):
    rows = [{"epoch": e, "step": s, "loss": 3 - e - s / 100} for e in range(3) for s in range(0, 100, 10)]
    found = written(tmp_path, rows)
    assert (list(found.steps), found.breaks) == (list(range(0, 300, 10)), [])
    rows = [{"epoch": e + s / 50, "step": s, "loss": 1.0} for e in range(2) for s in range(1, 51)]
    assert list(written(tmp_path, rows).steps) == list(range(1, 101))


def test_two_runs_that_write_to_one_log_are_not_mixed(tmp_path):
    one = list(run(range(10, 1010, 10), loss=lambda step: 2.0))
    other = list(run(range(10, 510, 10), loss=lambda step: 7.0, total=500, per_epoch=37))
    shuffled, left, right = [], one[:], other[:]
    pick = random.Random(3)
    while left or right:
        source = left if not right or (left and pick.random() < 0.6) else right
        shuffled.append(source.pop(0))
    found = written(tmp_path, shuffled)
    assert list(found.steps) == list(range(10, 1010, 10)) and set(found.points("train/loss")[1]) == {2.0}
    assert found.breaks == [] and any("same time" in note for note in found.notes)


def test_ranks_that_all_write_are_not_mixed(tmp_path):
    pairs = [row for s in range(1, 101) for row in ({"step": s, "loss": 1.0}, {"step": s, "loss": 1.5})]
    found = written(tmp_path, pairs)
    assert (len(found), found.breaks) == (100, []) and len(set(found.points("train/loss")[1])) == 1


def test_rows_that_stand_twice_count_once(tmp_path):
    rows = [row for row in run(range(10, 210, 10)) for _ in range(2)]
    found = written(tmp_path, rows)
    assert (len(found), found.breaks, found.notes) == (20, [], ["20 rows stood twice"])


def test_a_step_that_is_repeated_with_another_loss_is_a_resume(tmp_path):
    rows = [{"step": s, "loss": 1 - s / 1000} for s in range(10, 210, 10)]
    found = written(
        tmp_path, [*rows, {"step": 200, "loss": 5.0}, *({"step": s, "loss": 0.5} for s in range(210, 300, 10))]
    )
    assert [(b.kind, found.steps[b.row]) for b in found.breaks] == [("resume", 200)]
    assert found.overlaps == [(200, 0.8, 5.0)] and len(found) == 29


def test_an_evaluation_joins_its_step_and_never_breaks(tmp_path):
    rows = [{"step": s, "loss": 1.0} for s in range(10, 110, 10)]
    rows.insert(5, {"step": 50, "eval_loss": 0.9})
    rows.insert(9, {"step": 65, "eval_loss": 0.8})  # late, and of a step without a row
    rows += [{"step": 100, "eval_loss": 0.7}, {"step": 100, "eval_loss": 0.3}]  # the second is of the best checkpoint
    found = written(tmp_path, rows)
    assert found.points("eval/loss") == ([50, 65, 100], [0.9, 0.8, 0.7])
    assert list(found.steps) == [10, 20, 30, 40, 50, 60, 65, 70, 80, 90, 100] and found.breaks == []


def test_several_evaluation_sets(tmp_path):
    rows = [{"step": 10, "loss": 1.0}]
    rows += [{"step": 10, "eval_en_loss": 1.0, "eval_en_runtime": 9.0}, {"step": 10, "eval_zh_loss": 2.0}]
    rows += [{"step": 20, "loss": 1.0}, {"step": 20, "eval_en_loss": 1.0}]
    found = written(tmp_path, rows)
    assert found.points("eval/en_loss") == ([10, 20], [1.0, 1.0]) and found.points("eval/zh_loss") == ([10], [2.0])
    assert found.points("eval/loss") == ([10], [1.5]) and any("mean of" in note for note in found.notes)


def test_rows_without_a_step(tmp_path):
    found = written(tmp_path, [{"loss": 1.0, "epoch": e / 10} for e in range(1, 11)])
    assert list(found.steps) == list(range(1, 11)) and "no step" in found.notes[0]
    rows = [{"step": 5, "loss": 1.0}, {"eval_loss": 2.0}, {"step": 10, "loss": 1.0}]
    found = written(tmp_path, rows)
    assert (list(found.steps), found.points("eval/loss")) == ([5, 10], ([5], [2.0]))


def test_keys_of_other_programs(tmp_path):
    rows = [{"global_step": 3, "train/loss": 1.0, "val_loss": 2.0, "gradient_norm": 0.1, "train/learning_rate": 0.2}]
    found = written(tmp_path, rows)
    assert {name: column[0] for name, column in found.columns.items()} == {
        "train/loss": 1.0, "eval/loss": 2.0, "train/grad_norm": 0.1, "train/lr": 0.2,
    }  # fmt: skip
    means = [{"epoch": e, "step": 10 * e, "train_loss": 3.0 / e, "val_loss": 1.0} for e in range(1, 5)]
    assert written(tmp_path, means).points("train/loss")[1] == pytest.approx([3.0, 1.5, 1.0, 0.75])


def test_of_two_keys_for_the_step_the_trainers_own_counts(tmp_path):
    rows = [{"_step": n, "step": 10 * n, "loss": 1.0} for n in range(1, 5)]
    assert list(written(tmp_path, rows).steps) == [10, 20, 30, 40]
    assert list(written(tmp_path, [dict(reversed(row.items())) for row in rows]).steps) == [10, 20, 30, 40]


def test_places_that_are_no_numbers_are_missing(tmp_path):
    nan, inf = float("nan"), float("inf")
    rows = [{"step": n, "loss": 1.0, "epoch": 0.1 * n, "total_steps": 99} for n in range(1, 9)]
    rows[3] |= {"step": nan, "epoch": inf, "total_steps": inf}
    rows[5] |= {"step": 10**30}
    found = written(tmp_path, rows)
    assert list(found.steps) == [1, 2, 3, 5, 7, 8] and found.max_steps == 99
    assert any("2 rows without a step" in note for note in found.notes)


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"loss": 1.0, "accuracy": 0.5}, "sft"),
        ({"loss": 1.0, "rewards/margins": 0.1, "rewards/chosen": 1}, "preference"),
        ({"total_steps": 9, "loss": 1.0, "accuracy": 0.5, "lr": 0.1}, "preference"),
        ({"loss": 1.0, "rewards/chosen": 1.0, "kl": 0.5}, "preference"),
        ({"loss": 0.1, "reward": 0.2, "rewards/format/mean": 0.1, "kl": 0.1}, "rl"),
        ({"loss": 0.1, "objective/kl": 0.2, "rewards/chosen": 1.0}, "rl"),
        ({"loss": 0.1, "completions/mean_length": 20}, "rl"),
        ({"loss": 0.1, "reward": None, "kl": None}, "sft"),
        ({"eval_loss": 0.1, "eval_runtime": 3.0}, "not_a_training_log"),
    ],
)
def test_kinds_by_their_keys(tmp_path, row, kind):
    step = "current_steps" if "total_steps" in row else "step"
    assert written(tmp_path, [{step: 1, **row}, {step: 2, **row}]).kind == kind


@pytest.mark.parametrize(("stage", "kind"), [("pt", "sft"), ("rm", "preference"), ("ppo", "rl"), ("nonsense", "sft")])
def test_kinds_by_the_settings_beside(tmp_path, stage, kind):
    (tmp_path / "run.yaml").write_text(f"model_name_or_path: x\nstage: {stage}\noutput_dir: y\n")
    assert written(tmp_path, [{"step": 1, "loss": 1.0}]).kind == kind
