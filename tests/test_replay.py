"""`replay`: planted bad batches are found from the audit log alone, clean ones are not accused."""

import json
import math
from pathlib import Path

import pytest
from replay_run import (
    BAD_ROWS,
    BAD_STEP,
    CLEAN_STEP,
    SHIFTED_STEP,
    copy_run,
    log_rows,
    make_data,
    replay,
    samples_of,
    shift,
    train_run,
    write_log,
)

from llamafactory_obs.cli import main
from llamafactory_obs.errors import ConfigError

pytestmark = pytest.mark.usefixtures("llamafactory")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("replay")


@pytest.fixture(scope="module")
def bad_rows(llamafactory, model, place) -> Path:
    """A run in the order of its data, two rows of which are noise."""
    data = make_data(place / "bad_data", BAD_ROWS)
    return train_run(model, data, place / "bad", ["samples"], disable_shuffling=True)


@pytest.fixture(scope="module")
def shifted(llamafactory, model, place) -> Path:
    """A shuffled run on clean rows, with the labels of one step shifted by one on their way to the model."""
    data = make_data(place / "good_data")
    return train_run(model, data, place / "shifted", [shift(), "samples"])


def test_bad_rows_on_disk_are_found_and_named(bad_rows, capsys):
    assert main(["replay", str(bad_rows), "--step", str(BAD_STEP), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "data" and found["rebuilt"] == {"exact": 4}
    carrying = [sample for sample in found["samples"] if sample["carries"]]
    assert sorted(sample["row"] for sample in carrying) == list(BAD_ROWS)
    assert sorted(found["carriers"]) == [["rows", row] for row in BAD_ROWS]
    assert found["compared"]["loss"]["z"] > 10 and found["without_carriers"]["ordinary_without"] is True
    assert all(str(row) in found["advice"] for row in BAD_ROWS)
    assert found["weights"]["step"] == 40 and len(found["ordinary"]) == 8


def test_labels_shifted_in_training_are_found(shifted):
    report = replay(shifted, SHIFTED_STEP)
    assert report.verdict == "data" and report.exit_code == 1
    assert report.statuses == {"labels_changed": 4}
    assert report.compared["loss"].out and report.compared["altered_ratio"].out
    assert "not in the data" in report.advice
    for sample in report.batch.samples:  # the labels that are run are those one position too late
        kept = [place for place, label in enumerate(sample.labels) if label != -100]
        assert [sample.labels[i] for i in kept] == [sample.ids[i - 1] for i in kept]
    assert report.figures.loss == pytest.approx(report.figures.recorded_loss, rel=0.5)
    texts = [stretch for shown in report.texts for stretch in shown.stretches if stretch.taught]
    assert len(report.texts) == 3 and texts


@pytest.mark.parametrize("run", ["bad_rows", "shifted"])
def test_clean_steps_are_not_accused(run, request, capsys):
    folder = request.getfixturevalue(run)
    for step in (CLEAN_STEP, 42, 49):
        report = replay(folder, step)
        assert (report.verdict, report.exit_code) == ("not_data", 0), (step, report.title)
        assert report.statuses == {"exact": 4}
        assert not report.carriers.found


def test_the_log_is_enough(bad_rows, tmp_path):
    """Neither the recorded curves nor events are needed."""
    run = copy_run(bad_rows, tmp_path / "run")
    for name in ("steps.jsonl", "events.jsonl"):
        (run / "obs" / name).unlink()
    report = replay(run, BAD_STEP)
    assert report.verdict == "data" and {part.sample.logged.row for part in report.carriers.found} == set(BAD_ROWS)


def test_weights_of_the_very_step_give_the_trainings_own_numbers(shifted):
    report = replay(shifted, 41)
    assert report.weights.step == 40
    assert report.figures.loss == pytest.approx(report.figures.recorded_loss, rel=1e-6)
    assert report.figures.grad_norm == pytest.approx(report.figures.recorded_grad_norm, rel=1e-5)
    assert "comes out again" in report.rebuilt_loss


def test_start_and_given_checkpoints(shifted):
    first = replay(shifted, 1)
    assert first.weights.folder is None and first.weights.step == 0
    assert first.figures.loss == pytest.approx(first.figures.recorded_loss, rel=1e-6)
    far = replay(shifted, CLEAN_STEP, checkpoint="start")
    assert far.verdict == "unclear" and "far from the run's" in far.title and far.exit_code == 1
    later = replay(shifted, CLEAN_STEP, checkpoint="56")
    assert later.verdict == "unclear" and "learned from it" in later.title


def test_a_checkpoint_that_is_not_whole_is_passed_over(shifted, tmp_path):
    run = copy_run(shifted, tmp_path / "run")
    (run / "checkpoint-40" / "trainer_state.json").unlink()
    report = replay(run, 45)
    assert report.weights.step == 20 and "checkpoint-40" in report.weights.passed_over[0]
    with pytest.raises(ConfigError, match="checkpoint 40"):
        replay(run, 45, checkpoint="40")


def test_two_ranks_are_one_step(shifted, tmp_path):
    """The same samples, logged as if two processes had each taken one micro-batch."""
    whole, run = replay(shifted, SHIFTED_STEP), copy_run(shifted, tmp_path / "run")
    rows = log_rows(run)
    for rank in (0, 1):
        write_log(run, [{**row, "rank": rank, "micro_batches": [row["micro_batches"][rank]]} for row in rows], rank)
    both = replay(run, SHIFTED_STEP)
    assert both.figures.loss == pytest.approx(whole.figures.loss, rel=1e-9)
    assert both.figures.grad_norm == pytest.approx(whole.figures.grad_norm, rel=1e-6)
    assert [sample.rank for sample in both.batch.samples] == [0, 0, 1, 1]
    second = replay(run, SHIFTED_STEP, rank=1)
    assert [sample.logged.hash for sample in second.batch.samples] == [
        sample.logged.hash for sample in whole.batch.samples[2:]
    ]
    with pytest.raises(ConfigError, match="--rank 2"):
        replay(run, SHIFTED_STEP, rank=2)


def test_a_rank_whose_log_is_missing_is_named(shifted, tmp_path):
    run = copy_run(shifted, tmp_path / "run")
    identity = json.loads((run / "obs" / "run.json").read_text())
    identity["world"]["world_size"] = 2
    (run / "obs" / "run.json").write_text(json.dumps(identity))
    assert any("rank 1 is not in it" in limit for limit in replay(run, CLEAN_STEP).limits)
    assert not any("rank" in limit for limit in replay(shifted, CLEAN_STEP).limits)


def test_labels_that_the_log_does_not_hold(shifted, tmp_path):
    run = copy_run(shifted, tmp_path / "run")
    rows = log_rows(run)
    samples_of(rows, CLEAN_STEP)[0]["labels_hash"] = "0" * 16
    write_log(run, rows)
    report = replay(run, CLEAN_STEP)
    assert report.statuses == {"labels_unknown": 1, "exact": 3} and report.verdict == "unclear"


def test_too_few_ordinary_batches(bad_rows, tmp_path):
    run = copy_run(bad_rows, tmp_path / "run")
    write_log(run, [row for row in log_rows(run) if BAD_STEP <= row["step"] <= BAD_STEP + 3])
    report = replay(run, BAD_STEP)
    assert report.verdict == "unclear" and "only 3 ordinary batches" in report.title
    write_log(run, [row for row in log_rows(bad_rows) if BAD_STEP <= row["step"] <= BAD_STEP + 4])
    assert replay(run, BAD_STEP).verdict == "data"


def test_nothing_of_the_run_is_written(shifted, tmp_path, capsys):
    def state() -> dict:
        return {str(file): file.stat().st_mtime_ns for file in sorted(shifted.parent.rglob("*"))}

    before, out = state(), tmp_path / "report.json"
    assert main(["replay", str(shifted), "--step", str(CLEAN_STEP), "--out", str(out)]) == 0
    assert state() == before
    text = capsys.readouterr().out
    assert text.startswith("NOT THE DATA") and max(map(len, text.splitlines())) <= 80
    assert json.loads(out.read_text())["verdict"] == "not_data"
    assert main(["replay", str(shifted), "--step", str(CLEAN_STEP), "--out", str(out)]) == 2


def test_what_a_person_reads(bad_rows, capsys):
    assert main(["replay", str(bad_rows), "--step", str(BAD_STEP)]) == 1
    text = capsys.readouterr().out
    table = text.split("\ndo this")[0].splitlines()
    assert text.startswith("DATA: the loss") and max(map(len, table)) <= 80
    starred = [line for line in table if line.startswith("*")]
    assert len(starred) == 2 and all(f"rows row {row}" in text for row in BAD_ROWS)
    assert "[[" in text and "\x1b" not in text  # piped: what is in the loss is marked without colour


def test_a_loss_that_is_not_finite_is_the_datas_where_others_are(shifted):
    from llamafactory_obs.replay.ordinary import judge

    assert judge("loss", math.nan, [1.0, 1.1, 0.9, 1.0]).out
    assert judge("loss", math.nan, [math.nan] * 8) is None
