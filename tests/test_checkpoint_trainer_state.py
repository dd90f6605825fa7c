"""`trainer_state.json` with fields of a wrong kind: each reader says it or goes on without it, and none breaks down."""

import json
import math
import shutil

import pytest
from resume_folder import folder, killed, names, point  # noqa: F401

from llamafactory_obs.callbacks.continuity import _logged
from llamafactory_obs.checkpoint.files import Incomplete
from llamafactory_obs.checkpoint.folder import examine_folder
from llamafactory_obs.checkpoint.trainer_state import read_state, wrong_kind
from llamafactory_obs.logs.read import read
from llamafactory_obs.preflight.ahead.effective import Effective
from llamafactory_obs.preflight.ahead.output_dir import check_output_dir
from llamafactory_obs.preflight.run_config import parsed, read_run_config
from llamafactory_obs.probe.scan import due_steps
from llamafactory_obs.resume.report import as_dict
from llamafactory_obs.summary import summarize

pytest.importorskip("torch")

GOOD = {"global_step": 8, "logging_steps": 1, "save_steps": 4, "total_flos": 1e9, "log_history": []}
#: seen with transformers 5.6.0: the resume ends with an error
ENDS = [
    {"global_step": None}, {"global_step": "8"}, {"global_step": []}, {"logging_steps": "x"}, {"save_steps": None},
    {"train_batch_size": "x"}, {"train_batch_size": None}, {"total_flos": "x"}, {"log_history": 5}, {"log_history": {}},
    {"stateful_callbacks": 5}, {"stateful_callbacks": None},
]  # fmt: skip
#: it goes on as if nothing were wrong
HARMLESS = [
    {"log_history": None, "epoch": "x", "max_steps": "x", "eval_steps": None,
     "best_metric": "x", "num_train_epochs": []},
    {"log_history": [1, None, {"step": "x", "loss": []}], "epoch": math.nan, "max_steps": math.inf},
]  # fmt: skip


def damage(checkpoint, change):
    file = checkpoint / "trainer_state.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))


def ahead(folder, **keys):  # noqa: F811
    """What `preflight --ahead` says of the folder: by name."""
    config = read_run_config(folder.config(**keys), ())
    with parsed(config) as arguments:
        return {check.name: check for check in check_output_dir(Effective(config, arguments))}


@pytest.mark.parametrize("change", ENDS, ids=str)
def test_the_kinds_are_told_by_name(change):
    (field,) = change
    assert wrong_kind(GOOD) == ""
    assert wrong_kind(GOOD | change).startswith(f"trainer_state.json: {field} is {json.dumps(change[field])}, not a")


@pytest.mark.parametrize("change", [ENDS[0], ENDS[4], ENDS[8]], ids=str)
def test_a_kind_at_which_the_trainer_ends(folder, change):  # noqa: F811
    field = next(iter(change))
    damage(folder.newest, change)
    (_, newest) = examine_folder(folder.out).checkpoints
    assert newest.verdict.verdict == "broken" and not newest.verdict.resumes
    assert wrong_kind(GOOD | change) in newest.verdict.reasons[0]
    plan = folder.plan()
    assert plan.best.name == "checkpoint-4" and names(plan.stands) == ["stands.unasked", "stands.ends"]
    assert field in point(plan.stands, "stands.ends").say("en") and json.dumps(as_dict(plan), allow_nan=False)
    checks = ahead(folder)
    assert {"error"}.isdisjoint(check.status for check in checks.values())
    (failed,) = [check for check in checks.values() if check.status == "fail"]
    assert field in failed.detail
    assert due_steps(folder.newest, [4, 8]) in (([4], 4), ([], 0))
    read(folder.out), summarize(folder.out)


@pytest.mark.parametrize("change", HARMLESS, ids=["types", "numbers"])
def test_a_kind_that_does_no_harm(folder, change):  # noqa: F811
    damage(folder.newest, change)
    (_, newest) = examine_folder(folder.out).checkpoints
    assert newest.verdict.verdict == "resumes exactly"
    plan = folder.plan()
    assert (plan.best.name, plan.exit_code, plan.changes) == ("checkpoint-8", 0, [])
    assert plan.left.steps == 4 and json.dumps(as_dict(plan), allow_nan=False)
    checks = ahead(folder)
    assert {check.status for check in checks.values()} <= {"pass", "warn"} and wrong_kind(GOOD | change) == ""
    assert checks["resume_left"].status == "pass" and checks["resume_keys"].status == "pass"


def test_without_a_record_a_wrong_kind_is_no_change(folder):  # noqa: F811
    shutil.rmtree(folder.out / "obs")
    damage(folder.newest, {"epoch": math.nan, "max_steps": None})
    assert names(folder.plan().changes) == []
    plan = folder.plan(max_steps=None, num_train_epochs=1.0)
    assert plan.left.total is None and json.dumps(as_dict(plan), allow_nan=False)
    assert "resume_rows" not in ahead(folder)


def test_another_cadence_is_named_as_the_old_one_going_on(folder):  # noqa: F811
    checks = ahead(folder, save_steps=3, logging_steps=2)
    check = checks["resume_cadence"]
    assert (check.status, check.value, check.want) == (
        "warn", {"save_steps": 3, "logging_steps": 2}, {"save_steps": 4, "logging_steps": 1},
    )  # fmt: skip
    assert check.detail.startswith("save_steps 4 -> 3, logging_steps 1 -> 2: a resume ignores it")
    assert "resume_cadence" not in ahead(folder)
    assert "resume_cadence" not in ahead(folder, save_steps=1 / 3), "a share of 12 steps: the same 4"
    assert "resume_cadence" not in ahead(folder, save_strategy="epoch", save_steps=None), "no longer counted in steps"


def test_the_whole_file(tmp_path):
    for content in ([], 5, "x", None):
        (tmp_path / "trainer_state.json").write_text(json.dumps(content))
        assert "no JSON object" in wrong_kind(content)
        with pytest.raises(Incomplete):
            read_state(tmp_path)
    assert wrong_kind({}) == "", "what is not there the Trainer takes as 0"


def test_the_trainers_own_log_with_rows_of_other_kinds():
    rows = [None, 5, {"step": "x", "learning_rate": 1}, {"step": 7, "learning_rate": 0.1, "epoch": 0.5}]
    assert _logged(rows) == [{"step": 7, "train/lr": 0.1, "train/epoch": 0.5}]
