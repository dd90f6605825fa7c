"""A killed training that is resumed, beside one without a break: real trainings of the tiny model."""

import json
from dataclasses import replace

import pytest
from drill_runs import Runs
from tiny import tiny_config

from llamafactory_obs.drill.resume.outcome import EXACTLY, NOT_JUDGED, PARTS

pytestmark = pytest.mark.usefixtures("llamafactory")

#: 48 rows, 2 a step: the break lies within an epoch; dropout draws random numbers in each forward pass
LORA = {
    "finetuning_type": "lora",
    "lora_rank": 4,
    "lora_target": "all",
    "lora_dropout": 0.2,
    "lr_scheduler_type": "cosine",
    "save_only_model": True,
    "report_to": "tensorboard",
    "callbacks": ["grad_norm_spike", {"samples": {"every": 5}}],
    "obs": {"alerts": {"webhook": "http://127.0.0.1:9/nobody"}},
}


@pytest.fixture(scope="module")
def patch():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def runs(llamafactory, model, data, tmp_path_factory, patch):
    folder = tmp_path_factory.mktemp("lora")
    made = Runs(tiny_config(model, data, folder / "out", **LORA), folder, patch)
    made.outcome = made.first()
    return made


def lost(outcome) -> dict:
    return {one.part: (bool(one.before), bool(one.after)) for one in outcome.lost}


def status(outcome) -> dict:
    return {one.name: one.status for one in outcome.measures}


def test_with_everything_saved_it_continues_bit_for_bit(runs):
    outcome = runs.outcome
    assert outcome.verdict == EXACTLY and outcome.exit_code == 0, (outcome.why, outcome.last_words)
    assert set(status(outcome).values()) == {"equal"} and outcome.lost == []
    compared = {one.name: one.compared for one in outcome.measures}
    assert all(compared[name] == 4 for name in ("loss", "gradient norm", "learning rate", "epoch", "samples")), compared
    assert compared["weights"] == 42 and compared["optimizer state"] > 84
    assert {one.compared for one in outcome.before_break} == {6} and not any(o.unequal for o in outcome.before_break)
    assert {one.compared for one in outcome.twice} == {3}, "three steps were made, lost and made again"
    assert any("save_only_model" in note for note in outcome.notes)


def test_it_was_really_killed_and_resumed(runs):
    first = runs.folder / "first"
    rows = [json.loads(line) for line in (first / "broken" / "obs" / "steps.jsonl").read_text().splitlines()]
    assert [(row["segment"], row["step"]) for row in rows] == [(0, n) for n in range(1, 10)] + [
        (1, n) for n in range(7, 11)
    ]
    assert not (runs.folder / "out").exists(), "the real run's folder is not touched"
    state = json.loads((first / "broken" / "checkpoint-10" / "trainer_state.json").read_text())
    assert state["max_steps"] == 10 and not list(first.rglob("events.out.tfevents*"))


def test_the_report_says_it(runs):
    report = (runs.folder / "first" / "report.md").read_text()
    assert "# Resume drill: continues exactly" in report and "| loss | equal | all 4 equal |" in report
    assert "| `max_steps` | `6` | `10` |" in report and "lora_dropout 0.2" in report
    found = json.loads((runs.folder / "first" / "report.json").read_text())
    assert found["verdict"] == "continues exactly" and found["exit_code"] == 0
    assert found["curves"]["train/loss"]["unbroken"] == found["curves"]["train/loss"]["resumed"]


def test_without_the_optimizer(runs, patch):
    outcome = runs.again(patch, "optimizer")
    assert outcome.verdict == PARTS and outcome.exit_code == 1 and outcome.taken == ["optimizer.pt"]
    assert lost(outcome) == {"optimizer": (True, True), "scheduler": (True, True)}, "transformers loads both or none"
    assert outcome.first == 7 and status(outcome)["samples"] == "equal" and status(outcome)["rng state"] == "equal"
    assert not (outcome.folder / "broken").exists() and (outcome.folder / "resumed.log").is_file()


@pytest.mark.slow
def test_without_the_scheduler(runs, patch):
    outcome = runs.again(patch, "scheduler")
    assert outcome.verdict == PARTS and outcome.taken == ["scheduler.pt"]
    assert lost(outcome) == {"optimizer": (True, True), "scheduler": (True, True)}
    assert "learning rate 0.001 instead of" in next(one.after for one in outcome.lost if one.part == "scheduler")


def test_without_the_random_numbers(runs, patch):
    outcome = runs.again(patch, "rng")
    assert outcome.verdict == PARTS and outcome.first == 7
    assert lost(outcome) == {"rng": (True, True)} and status(outcome)["learning rate"] == "equal"
    assert "another loss at once" in outcome.lost[0].after


@pytest.mark.slow
def test_without_the_place_in_the_data(runs, patch):
    outcome = runs.again(patch, "data_order")
    assert outcome.verdict == PARTS and outcome.first == 7
    assert lost(outcome) == {"data_order": (True, True)} and "data_seed 42 (seed) -> 43" in outcome.lost[0].before
    assert status(outcome)["samples"] == "differs" and status(outcome)["learning rate"] == "equal"


@pytest.mark.slow
def test_a_part_that_is_lost_without_being_taken(runs, patch):
    """A checkpoint copied by hand, one file forgotten."""
    outcome = runs.again(patch, damage=lambda plan: (plan.checkpoint("broken", 6) / "rng_state.pth").unlink())
    assert outcome.verdict == PARTS and [one.part for one in outcome.lost] == ["rng"]


@pytest.mark.slow
def test_other_weights_are_named(runs, patch):
    from safetensors.numpy import load_file, save_file

    def damage(plan):
        file = plan.checkpoint("broken", 6) / "adapter_model.safetensors"
        tensors = load_file(file)
        name = next(name for name in sorted(tensors) if "lora_B" in name)
        save_file(tensors | {name: tensors[name] + 0.01}, file, metadata={"format": "pt"})

    outcome = runs.again(patch, damage=damage)
    assert outcome.verdict == PARTS and lost(outcome) == {"weights": (False, True)}, outcome.lost
    assert outcome.first == 7 and outcome.tensors[0]["largest"] > 0


@pytest.mark.slow
def test_a_resume_that_breaks_off_is_the_answer(runs, patch):
    def damage(plan):
        file = plan.checkpoint("broken", 6) / "optimizer.pt"
        file.write_bytes(file.read_bytes()[:200])

    outcome = runs.again(patch, damage=damage)
    assert outcome.verdict == PARTS and outcome.failed == "resumed" and outcome.exit_code == 1
    assert outcome.last_words and "before its first step" in outcome.why and outcome.log.is_file()


@pytest.mark.slow
def test_an_early_end_is_not_judged(runs, patch):
    """The unbroken training of a config that cannot train: nothing to compare with."""
    from llamafactory_obs.drill.resume import drill as module
    from llamafactory_obs.drill.resume.trainings import train

    patch.setattr(module, "train", train)
    bad = replace(runs.config, given={**runs.config.given, "learning_rate": 1e-3, "template": "no_such_template"})
    outcome = module.drill(
        bad, steps=6, extra=4, out=runs.folder / "bad", take_away=None, keep=False, say=lambda line: None
    )
    assert outcome.verdict == NOT_JUDGED and outcome.exit_code == 2 and outcome.failed == "unbroken"
    assert any("no_such_template" in line for line in outcome.last_words)
    assert (runs.folder / "bad" / "report.md").is_file() and not (runs.folder / "bad" / "unbroken").exists()


@pytest.mark.slow
def test_a_resume_that_begins_anew(model, data, tmp_path, monkeypatch):
    """LlamaFactory leaves `resume_from_checkpoint` out for reward models with full tuning, with a warning only."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    for part in (
        AutoModelForCausalLM.from_pretrained(model, tie_word_embeddings=False),  # tied ones it cannot save at all
        AutoTokenizer.from_pretrained(model),
    ):
        part.save_pretrained(tmp_path / "untied")
    given = tiny_config(tmp_path / "untied", data, tmp_path / "out", stage="rm", dataset="pairs")
    outcome = Runs(given, tmp_path, monkeypatch).first()
    assert outcome.verdict == PARTS and "began at step 1, not at 7" in outcome.why, (outcome.why, outcome.last_words)
    assert lost(outcome) == {"trainer_state": (False, True)}


@pytest.mark.slow
def test_what_is_not_restored_is_no_pass_though_nothing_shows(model, data, tmp_path, monkeypatch):
    """No dropout: the generators of a fresh start and those of the checkpoint stand at the same place."""
    runs = Runs(tiny_config(model, data, tmp_path / "out", optim="sgd"), tmp_path, monkeypatch)
    assert runs.first().verdict == EXACTLY
    outcome = runs.again(monkeypatch, "rng")
    assert outcome.verdict == PARTS and outcome.first is None and lost(outcome) == {"rng": (True, False)}
    assert set(status(outcome).values()) == {"equal"} and "not restored: rng" in outcome.why
