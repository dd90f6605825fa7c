"""Real trainings that are resumed: each part of the state is taken away in turn; the record says so, live and after."""

import json
import shutil

import pytest

from llamafactory_obs import load_record
from llamafactory_obs.continuity.offline import continuity
from llamafactory_obs.logs.read import read

pytestmark = pytest.mark.slow

STEPS, SAVED = 30, 10
CONFIG = {"lr_scheduler_type": "linear", "max_steps": STEPS, "save_steps": SAVED, "callbacks": ["samples"]}
DROPOUT = {"finetuning_type": "lora", "lora_rank": 4, "lora_dropout": 0.1, "lora_target": "all"}


@pytest.fixture(scope="module")
def runs(llamafactory, model, tmp_path_factory):
    """`runs(kind, name, ...)` resumes a copy of the run of that kind from its checkpoint-10: steps 11 to 30 again."""
    from llamafactory.train.tuner import run_exp
    from tiny import tiny_config, tiny_data

    folder = tmp_path_factory.mktemp("continuity")
    data = tiny_data(folder / "data", 96)
    kinds = {"plain": {}, "dropout": DROPOUT, "constant": {"lr_scheduler_type": "constant"}}

    def train(out, **overrides):
        run_exp(tiny_config(model, data, out, **{**CONFIG, **overrides}))
        return out

    def resumed(kind, name, without=(), saved=SAVED, source=None, **overrides):
        whole = folder / kind
        if not whole.exists():
            train(whole, **kinds[kind])
        out = folder / name
        shutil.copytree(source or whole, out)
        for newer in out.glob("checkpoint-*"):
            if int(newer.name.rpartition("-")[2]) > saved:
                shutil.rmtree(newer)
        for file in without:
            (out / f"checkpoint-{saved}" / file).unlink()
        more = {"resume_from_checkpoint": str(out / f"checkpoint-{saved}"), "overwrite_output_dir": False}
        return train(out, **{**kinds[kind], **more, **overrides})

    return resumed


def told(run) -> tuple[dict, dict]:
    """The newest start's own event, and that of its verdict."""
    events = load_record(run).events
    newest = max(event["segment"] for event in events)
    assert not [event for event in events if event["kind"] == "callback_off"]
    mine = [event for event in events if event["segment"] == newest]
    (begun,) = [event for event in mine if event["kind"] == "resume"]
    (said,) = [event for event in mine if event["kind"] == "continuity"]
    return begun, said


def lost(event) -> set[str]:
    return {one["part"] for one in event["evidence"]["not_restored"]}


def offline(run):
    return continuity(read(run))[-1]


@pytest.mark.parametrize("kind", ["plain", "dropout"])
def test_what_really_continues_is_quiet(runs, kind):
    run = runs(kind, f"{kind}-control")
    begun, said = told(run)
    assert begun["level"] == said["level"] == "info" and lost(begun) == lost(said) == set()
    assert said["evidence"]["verdict"] == offline(run).verdict == "continues exactly"
    assert {one["status"] for one in said["evidence"]["columns"].values()} == {"equal"}
    logged = continuity(read(run / "trainer_log.jsonl"))[-1]
    assert (logged.verdict, logged.made_twice) == ("continues exactly", STEPS - SAVED)
    events = load_record(run).events
    assert {event["kind"] for event in events if event["level"] != "info"} == set()


FAULTS = {
    "optimizer": ("plain", {"without": ("optimizer.pt",)}, {"optimizer", "scheduler"}, "does not continue"),
    "scheduler": ("plain", {"without": ("scheduler.pt",)}, {"optimizer", "scheduler"}, "does not continue"),
    "constant": ("constant", {"without": ("optimizer.pt",)}, {"optimizer", "scheduler"}, "does not continue"),
    "rng": ("plain", {"without": ("rng_state.pth",)}, {"rng"}, "continues within noise"),
    "dropout": ("dropout", {"without": ("rng_state.pth",)}, {"rng"}, "continues within noise"),
    "order": ("plain", {"ignore_data_skip": True}, {"data_order"}, "does not continue"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_was_taken_away_is_named_at_the_start_and_seen_after_it(runs, name):
    kind, how, parts, verdict = FAULTS[name]
    run = runs(kind, f"without-{name}", **how)
    begun, said = told(run)
    assert begun["level"] == "warn" and lost(begun) == parts and "not restored" in begun["text"]
    assert lost(said) == parts and said["evidence"]["verdict"] == offline(run).verdict == verdict
    assert said["level"] == ("warn" if verdict == "does not continue" else "info")
    columns = {column: one["status"] for column, one in offline(run).as_dict()["columns"].items()}
    expected = {
        "optimizer": {"learning_rate": "differs", "loss": "differs", "samples": "equal"},
        "scheduler": {"learning_rate": "differs", "loss": "differs", "samples": "equal"},
        "constant": {"learning_rate": "equal", "loss": "differs", "samples": "equal"},
        "rng": {"learning_rate": "equal", "loss": "equal", "samples": "equal"},
        "dropout": {"learning_rate": "equal", "loss": "within noise", "samples": "equal"},
        "order": {"learning_rate": "equal", "samples": "differs", "epoch": "differs"},
    }[name]
    assert expected.items() <= columns.items()
    first = offline(run).columns["loss"].first
    assert first == {"optimizer": 12, "scheduler": 12, "constant": 12, "rng": None}.get(name, 11)
    if parts == {"rng"}:
        seen = "not visible in these numbers" if name == "rng" else "other random numbers (dropout)"
        assert seen in said["text"]
    if name in ("optimizer", "order"):
        assert said["step"] == SAVED + 3, "a rate or an epoch that is another one is told at once"


@pytest.mark.parametrize(
    "name, setting, column",
    [("seed", {"seed": 7}, "samples"), ("rows", {"max_samples": 64}, "samples"), ("longer", {"max_steps": 40}, "rate")],
)
def test_a_change_on_purpose_is_named(runs, name, setting, column):
    run = runs("plain", f"changed-{name}", **setting)
    begun, said = told(run)
    assert begun["level"] == "info" and lost(begun) == set()
    assert said["evidence"]["verdict"] == "does not continue"
    assert lost(said) == {"scheduler" if column == "rate" else "data_order"}
    assert f"{next(iter(setting))} was changed" in " ".join(offline(run).as_dict()["notes"])


def test_a_new_rate_is_ignored_and_said_to_be(runs):  # RES-3
    run = runs("plain", "changed-rate", learning_rate=1e-5)
    assert offline(run).verdict == "continues exactly"
    assert "learning_rate was changed from 0.001 to 1e-05, without effect" in " ".join(offline(run).as_dict()["notes"])


def test_a_resume_of_a_resume_and_then_an_older_checkpoint(runs):
    second = runs("plain", "second", saved=20)
    third = runs("plain", "third", source=second)
    said = continuity(read(third))
    assert [(one.step, one.segment, one.verdict) for one in said] == [
        (21, 1, "continues exactly"), (11, 2, "continues exactly"),
    ]  # fmt: skip
    assert [one["evidence"]["step"] for one in load_record(third).events if one["kind"] == "continuity"] == [21, 11]


def test_a_checkpoint_of_a_run_that_was_not_recorded(runs, tmp_path):
    """Only the Trainer's own log says what was before: no step was made twice, and the lost schedule is seen."""
    source = tmp_path / "source"
    shutil.copytree(runs("plain", "source"), source)
    shutil.rmtree(source / "obs")
    run = runs("plain", "unrecorded", source=source, without=("scheduler.pt",))
    begun, said = told(run)
    assert lost(begun) == {"optimizer", "scheduler"} and said["evidence"]["made_twice"] == 0
    assert said["evidence"]["columns"]["learning_rate"]["status"] == "differs"
    good = runs("plain", "unrecorded-control", source=source)
    assert told(good)[1]["evidence"]["verdict"] == "continues within noise"


def test_a_judge_that_fails_is_off_and_the_training_goes_on(runs, monkeypatch):
    from llamafactory_obs.callbacks import continuity as module

    monkeypatch.setattr(module, "judge", lambda *args: 1 / 0)
    run = runs("plain", "failing")
    events = load_record(run).events
    off = [event for event in events if event["kind"] == "callback_off"]
    assert [event["name"] for event in off] == ["continuity"] and events[-1]["kind"] == "end"
    whole = load_record(run.parent / "plain")
    assert load_record(run).steps["train/loss"] == whole.steps["train/loss"]


def test_an_alert_that_stops_the_run_stops_it(runs):
    stop = {"alerts": {"stop_on": ["resume_gap"]}}
    run = runs("plain", "stopped", without=("optimizer.pt",), obs=stop)
    events = load_record(run).events
    assert [event["evidence"]["alert"] for event in events if event["kind"] == "stop"] == ["resume_gap"]
    assert max(load_record(run).steps["step"]) == STEPS  # those of the first start
    newest = [json.loads(line) for line in (run / "obs" / "steps.jsonl").read_text().splitlines()]
    assert max(row["step"] for row in newest if row["segment"] == 1) < STEPS
