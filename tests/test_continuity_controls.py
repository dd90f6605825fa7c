"""Real trainings that are killed between two saves and resumed as they were: what goes on is predicted and quiet, and
what is taken away is named before the start and seen after it."""

import json
import shutil

import pytest
import yaml
from tiny import tiny_config, tiny_data

from llamafactory_obs import load_record
from llamafactory_obs.continuity.offline import continuity
from llamafactory_obs.logs.read import read
from llamafactory_obs.preflight.run_config import read_run_config
from llamafactory_obs.resume.plan import make_plan

pytestmark = pytest.mark.slow

SAVED, KILLED, AGAIN, STEPS = 4, 7, 11, 16
_LORA = {"finetuning_type": "lora", "lora_rank": 4, "lora_target": "q_proj,v_proj", "lora_dropout": 0.1}
_RUN = {"lr_scheduler_type": "cosine", "warmup_steps": 2, "max_steps": STEPS, "save_steps": SAVED}
_RUN |= {"overwrite_output_dir": None, "callbacks": ["samples"], **_LORA}
#: 18 rows to train on: an epoch ends within step 5, whose last micro batches are missing; after step 9 of pairs
KINDS = {
    "accum": {"gradient_accumulation_steps": 4, "per_device_train_batch_size": 1, "logging_steps": 3, "val_size": 6,
              "eval_strategy": "steps", "eval_steps": 2},
    "dpo": {"stage": "dpo", "dataset": "pairs", "val_size": 6, "lora_dropout": 0.0},
}  # fmt: skip


class Runs:
    def __init__(self, model, folder):
        self.model, self.folder, self.data = model, folder, tiny_data(folder / "data", 24)

    def config(self, kind, out, **overrides):
        return tiny_config(self.model, self.data, out, **{**_RUN, **KINDS[kind], **overrides})

    def train(self, kind, out, kill_at=0, **overrides):
        """A start of training; killed at a step, it ends there without its end."""
        from llamafactory.train.tuner import run_exp
        from transformers import TrainerCallback

        class Killed(BaseException):
            pass

        class Kill(TrainerCallback):
            def on_step_end(self, args, state, control, **kwargs):
                if state.global_step == kill_at + 1:
                    raise Killed

        try:
            run_exp(self.config(kind, out, **overrides), callbacks=[Kill()])
            assert not kill_at
        except Killed:
            pass
        return out

    def killed(self, kind, name):
        """A copy of the killed run of this kind."""
        if not (self.folder / kind).exists():
            self.train(kind, self.folder / kind, kill_at=KILLED)
        shutil.copytree(self.folder / kind, self.folder / f"{kind}-{name}")
        return self.folder / f"{kind}-{name}"

    def plan(self, kind, out, **overrides):
        file = self.folder / "run.yaml"
        file.write_text(yaml.safe_dump(self.config(kind, out, **overrides)))
        return make_plan(read_run_config(file))


@pytest.fixture(scope="module")
def runs(llamafactory, model, tmp_path_factory):
    return Runs(model, tmp_path_factory.mktemp("controls"))


def events(run):
    """Those of the newest start."""
    found = load_record(run).events
    newest = max(event["segment"] for event in found)
    return [event for event in found if event["segment"] == newest]


@pytest.mark.parametrize("kind", KINDS)
def test_what_goes_on_is_predicted_and_quiet_twice_in_a_row(runs, kind):
    run = runs.killed(kind, "control")
    for saved, kill_at in ((SAVED, AGAIN), (2 * SAVED, 0)):
        plan = runs.plan(kind, run)
        assert (plan.exit_code, plan.best.step, plan.left.steps) == (0, saved, STEPS - saved)
        runs.train(kind, run, kill_at)
        assert {event["kind"] for event in events(run) if event["level"] != "info"} == ({"crash"} if kill_at else set())
    (said,) = [event for event in events(run) if event["kind"] == "continuity"]
    assert said["evidence"]["verdict"] == "continues exactly"
    assert {one["status"] for one in said["evidence"]["columns"].values()} == {"equal"}
    resumes = continuity(read(run))
    assert [(one.step, one.verdict) for one in resumes] == [
        (SAVED + 1, "continues exactly"), (2 * SAVED + 1, "continues exactly"),
    ]  # fmt: skip
    assert min(one.made_twice for one in resumes) >= 2
    for one in continuity(read(run / "trainer_log.jsonl")):
        assert one.verdict in ("continues exactly", "not enough rows yet") and not one.reasons


TAKEN = {
    "optimizer": ("accum", "optimizer.pt", {}, {"optimizer", "scheduler"}),
    "rng": ("accum", "rng_state.pth", {}, {"rng"}),
    "order": ("accum", None, {"ignore_data_skip": True}, {"data_order"}),
    "pairs": ("dpo", "scheduler.pt", {}, {"optimizer", "scheduler"}),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken_away_is_named_before_the_start_and_seen_after_it(runs, name):
    kind, file, overrides, parts = TAKEN[name]
    run = runs.killed(kind, name)
    if file:
        (run / f"checkpoint-{SAVED}" / file).unlink()
    plan = runs.plan(kind, run, **overrides)
    said = " ".join(point.say("en") for point in plan.points)
    assert plan.exit_code == 1 and (file or "ignore_data_skip") in said
    runs.train(kind, run, **overrides)
    begun, judged = (next(one for one in events(run) if one["kind"] == which) for which in ("resume", "continuity"))
    assert begun["level"] == "warn" and {one["part"] for one in begun["evidence"]["not_restored"]} == parts
    assert {one["part"] for one in judged["evidence"]["not_restored"]} == parts
    (after,) = continuity(read(run))
    seen = {column for column, one in after.columns.items() if one.status not in ("equal", "unknown")}
    changed = {"optimizer": {"learning_rate", "loss"}, "rng": {"loss"}, "order": {"samples", "epoch"}}
    assert changed.get(name, {"learning_rate", "loss"}) <= seen, json.dumps(after.as_dict())
    assert (judged["level"] == "warn") == (parts != {"rng"})
