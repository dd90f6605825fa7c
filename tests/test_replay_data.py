"""`replay` on data that changed, moved or is packed; other stages and methods; wrong calls."""

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from replay_run import (
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
from llamafactory_obs.preflight.run_config import parsed
from llamafactory_obs.replay import weights
from llamafactory_obs.replay.recorded_run import recorded_run
from llamafactory_obs.replay.training_set import training_set

pytestmark = pytest.mark.usefixtures("llamafactory")

SHORT = {"max_steps": 24, "save_steps": 12}
QUICK = ("lora", "packed", "pt")
KINDS = {
    "lora": {"finetuning_type": "lora", "lora_rank": 8},
    "freeze": {"finetuning_type": "freeze", "freeze_trainable_layers": 1},
    "packed": {"packing": True},
    "neat": {"neat_packing": True},
    "pt": {"stage": "pt", "dataset": "text", "packing": False},
    "pt_packed": {"stage": "pt", "dataset": "text", "packing": True, "cutoff_len": 32},
    "bf16": {"bf16": True, "use_cpu": True},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("replay_data")


@pytest.fixture(scope="module")
def data(place) -> Path:
    return make_data(place / "data")


@pytest.fixture(scope="module")
def run(llamafactory, model, data, place) -> Path:
    return train_run(model, data, place / "run", [shift(), "samples"])


@pytest.fixture
def moved(data, tmp_path):
    """A copy of the run's data, to be changed, and how the run is told of it."""
    copy = tmp_path / "data"
    shutil.copytree(data, copy)

    def change(function) -> dict:
        rows = json.loads((copy / "rows.json").read_text())
        (copy / "rows.json").write_text(json.dumps(function(rows)))
        return {"overrides": (f"dataset_dir={copy}",)}

    return change


def rows_of(run: Path, step: int) -> list[int]:
    return [sample["row"] for sample in samples_of(log_rows(run), step)]


@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_the_trainings_own_numbers_come_out_again(kind, model, data, place):
    """The whole chain against the Trainer's own loss and gradient norm, on the weights of the very step."""
    out = train_run(model, data, place / kind, [shift(18), "samples"], **{**SHORT, **KINDS[kind]})
    report = replay(out, 13)
    assert report.weights.step == 12 and set(report.statuses) == {"exact"}
    close = 2e-2 if kind == "bf16" else 1e-5
    assert report.figures.loss == pytest.approx(report.figures.recorded_loss, rel=close)
    assert report.figures.grad_norm == pytest.approx(report.figures.recorded_grad_norm, rel=close)
    planted = replay(out, 18)
    assert planted.verdict == "data" and set(planted.statuses) == {"labels_changed"}


def test_the_bad_conversation_of_a_packed_row_is_named(model, place):
    bad, data = 200, make_data(place / "bad", (200,))
    more = {"packing": True, "max_steps": 40, "save_steps": 10}
    out = train_run(model, data, place / "packed_bad", ["samples"], **more)
    steps = [row for row in log_rows(out) if row["step"] > 20]  # an epoch has 20
    step = next(
        row["step"] for row in steps if any(["rows", bad] in one["sources"] for one in samples_of([row], row["step"]))
    )
    report = replay(out, step)
    assert report.verdict == "data", report.title
    assert report.as_dict()["carriers"] == [["rows", bad]]
    assert f"rows row {bad}" in report.advice


def test_rows_that_moved_are_found_by_their_content(run, moved):
    report = replay(run, CLEAN_STEP, **moved(lambda rows: [*rows[200:], *rows[:200]]))
    assert report.statuses == {"exact": 4} and report.verdict == "not_data"
    wanted = [(row + 40) % 240 for row in rows_of(run, CLEAN_STEP)]
    assert [sample.position for sample in report.batch.samples] == wanted


def test_an_edited_row_is_left_out_and_the_file_is_named(run, moved):
    edited = rows_of(run, CLEAN_STEP)[1]

    def edit(rows):
        rows[edited]["output"] = "something else"
        return rows

    report = replay(run, CLEAN_STEP, **moved(edit))
    assert report.statuses == {"exact": 3, "data_changed": 1}
    assert [sample.status for sample in report.batch.samples][1] == "data_changed"
    assert report.verdict == "unclear" and report.exit_code == 1
    assert any("rows.json" in cause for cause in report.changes)


def test_another_cutoff_is_named(run):
    report = replay(run, CLEAN_STEP, overrides=("cutoff_len=20",))
    assert report.verdict == "unclear" and "data_changed" in report.statuses
    assert any("cutoff_len is 20" in cause for cause in report.changes)


def test_rows_of_a_stream_are_found_by_their_content(run, tmp_path):
    copy = copy_run(run, tmp_path / "run")
    rows = log_rows(copy)
    for row in rows:
        for sample in samples_of([row], row["step"]):
            sample["row"] = None
    write_log(copy, rows)
    report = replay(copy, SHIFTED_STEP)
    assert report.statuses == {"labels_changed": 4} and report.verdict == "data"


@pytest.mark.parametrize("stage", ["dpo", "kto", "rm"])
def test_preference_stages_are_rebuilt_and_shown(stage, model, data, place):
    more = {"stage": stage, "dataset": "votes" if stage == "kto" else "pairs", "max_steps": 6, "save_steps": 100}
    more |= {"gradient_accumulation_steps": 1, "finetuning_type": "lora"}
    report = replay(train_run(model, data, place / stage, ["samples"], **more), 3, show_all=True)
    assert set(report.statuses) == {"exact"} and len(report.batch.samples) == 2
    assert report.verdict == "unclear" and stage in report.title
    assert report.figures.loss is None and report.figures.tokens > 0 and report.texts[0].stretches


def test_wrong_calls_say_what_to_do(run, tmp_path, capsys):
    def error(*words) -> str:
        assert main(["replay", *map(str, words)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err.splitlines()[-1]

    assert "no such folder" in error(tmp_path / "nothing", "--step", 3)
    assert "no run record" in error(tmp_path, "--step", 3)
    assert "it holds 56 steps from 1 to 56; nearest: 53, 54, 55, 56" in error(run, "--step", 99)
    assert "at least 1" in error(run, "--step", 0)
    assert "checkpoint-40" in error(run, "--step", 3, "--checkpoint", "17")
    assert "key=value" in error(run, "--step", 3, "--override", "dataset_dir")
    assert "--beside" in error(run, "--step", 3, "--beside", 2)
    assert "dataset_dir=PLACE" in error(run, "--step", 3, "--override", f"dataset_dir={tmp_path}/gone")
    assert "model_name_or_path=PLACE" in error(run, "--step", 3, "--override", f"model_name_or_path={tmp_path}/gone")
    bare = copy_run(run, tmp_path / "bare")
    (bare / "obs" / "samples.jsonl").unlink()
    assert "`samples` under `callbacks:`" in error(bare, "--step", 3)


def test_the_newest_start_of_a_resumed_run_counts(run, tmp_path):
    copy = copy_run(run, tmp_path / "run")
    rows = log_rows(copy)
    again = [{**row, "segment": 1} for row in rows if row["step"] == CLEAN_STEP + 1]
    again[0] = {**again[0], "step": CLEAN_STEP}
    write_log(copy, [*rows, *again])
    assert [s.logged.row for s in replay(copy, CLEAN_STEP).batch.samples] == rows_of(run, CLEAN_STEP + 1)


def test_a_torn_last_line_is_survived(run, tmp_path):
    copy = copy_run(run, tmp_path / "run")
    file = copy / "obs" / "samples.jsonl"
    file.write_text(file.read_text()[:-40])
    assert replay(copy, 50).verdict == "not_data"
    with pytest.raises(ConfigError, match="1 lines near it cannot be read"):
        replay(copy, 56)


def test_leaving_a_sample_out_is_running_the_rest(run, model):
    """Loss and gradient norm without a sample, against a run of the batch that never had it."""
    whole = replay(run, SHIFTED_STEP)
    part = whole.carriers.parts[1]
    from llamafactory_obs.replay.collator import collator_of
    from llamafactory_obs.replay.passes import Passes

    recorded = recorded_run(run, ())
    with contextlib.ExitStack() as stack:
        arguments = stack.enter_context(parsed(recorded.config))
        rows = stack.enter_context(training_set(arguments))
        loaded = weights.load(weights.choose(run, SHIFTED_STEP, None), rows, recorded.config.given, "cpu")
        rest = replace(whole.batch, ranks={0: [[whole.batch.samples[0]], whole.batch.samples[2:]]})
        alone = Passes(loaded, rows, collator_of(rows, loaded.model)).run(rest)
    assert part.loss_without == pytest.approx(alone.loss, rel=1e-5)
    assert part.grad_norm_without == pytest.approx(alone.grad_norm, rel=1e-4)
