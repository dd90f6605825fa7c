"""Real LlamaFactory runs with one fault each: the verdict and the first cause, from the record alone; twins stay quiet.

All runs are made in this process by one fixture, of a model with 0.6M parameters that learns.
"""

import json

import pytest
from fault_runs import RATE, RESUME_AT, SHIFTED_AT, make_data, make_model, own, planted, resumable, train

from llamafactory_obs import load_record

pytestmark = pytest.mark.slow

LONG_AT = 101


@pytest.fixture(scope="module")
def runs(llamafactory, tmp_path_factory):
    """`runs(name)` makes the run of that name once and returns its folder."""
    folder = tmp_path_factory.mktemp("faults")
    model, data = make_model(folder / "model"), make_data(folder / "data")
    made = {}

    def resume(out, without=()):
        source = runs_of("healthy")
        resumable(source, out, without)
        checkpoint = out / f"checkpoint-{RESUME_AT}"
        return train(model, data, out, resume_from_checkpoint=str(checkpoint), overwrite_output_dir=False)

    constant = {"lr_scheduler_type": "constant", "warmup_steps": None}
    makers = {
        "healthy": lambda out: train(model, data, out),
        "constant": lambda out: train(model, data, out, **constant),
        "resumed": resume,
        "rate": lambda out: train(model, data, out, learning_rate=20 * RATE, **constant),
        "rate_later": lambda out: train(model, data, out, more=(planted("rate.RaiseRate", factor=20, at=81),)),
        "labels": lambda out: train(model, data, out, more=(planted("batches.ShiftLabels", at=SHIFTED_AT),)),
        "labels_unseen": lambda out: train(model, data, out, more=(own("ShiftLabelsUnseen", at=SHIFTED_AT),)),
        "state_lost": lambda out: resume(out, ("optimizer.pt",)),
        "slow_save": lambda out: train(model, data, out, more=(planted("storage.WriteEveryStep", at=91),)),
        "long_rows": lambda out: train(model, make_data(out.parent / "long", long=True), out),
    }

    def runs_of(name):
        if name not in made:
            made[name] = makers[name](folder / name)
        return made[name]

    return runs_of


def diagnosed(run, capsys) -> dict:
    """What the verb says of the record, as JSON."""
    from llamafactory_obs import cli

    capsys.readouterr()
    assert cli.main(["diagnose", str(run), "--json"]) in (0, 1)
    return json.loads(capsys.readouterr().out)


def causes_of(run) -> list[tuple[str, list]]:
    """The findings and their causes, the gravest first."""
    from llamafactory_obs.diagnosis.judge import judge
    from llamafactory_obs.logs.read import read

    said = judge(read(run))
    return [(finding.name, said.causes.get(place, [])) for place, finding in enumerate(said.findings)]


@pytest.mark.parametrize("name", ["healthy", "constant", "resumed"])
def test_a_healthy_twin_stays_quiet(runs, name, capsys):
    said = diagnosed(runs(name), capsys)
    assert said["verdict"] == "healthy" and said["action"] != "kill", said["findings"]
    assert all(one["level"] != "error" for one in said["findings"])


@pytest.mark.parametrize(
    "name, verdicts, cause",
    [
        ("rate", {"lr_anomaly", "spike", "diverged", "flat"}, "lr_too_high"),
        ("rate_later", {"lr_anomaly", "spike", "diverged"}, "lr_change"),
        ("labels", {"spike"}, "special_batch"),
        ("labels_unseen", {"spike"}, "special_batch"),
        ("state_lost", {"resume_gap"}, "optimizer_state_lost"),
        ("slow_save", {"throughput_drop"}, "storage"),
        ("long_rows", {"spike"}, "special_batch"),
    ],
)
def test_a_fault_has_its_verdict_and_its_cause(runs, name, verdicts, cause, capsys):
    run = runs(name)
    said = diagnosed(run, capsys)
    assert said["verdict"] in verdicts, said["findings"]
    first = causes_of(run)[0]
    written = max(filter(None, load_record(run).steps["system/disk_write_mib_s"]), default=0.0)
    if name == "slow_save" and written < 10:  # a folder in memory: nothing reaches a disk
        cause = "other_callback"
    assert first[0] in verdicts and first[1][0].name == cause, first
    if cause == "special_batch":
        at = SHIFTED_AT if name.startswith("labels") else LONG_AT
        assert f"--step {at}" in first[1][0].next


@pytest.mark.parametrize("name", ["labels", "state_lost", "healthy"])
def test_the_live_verdict_is_that_of_the_verb(runs, name, capsys):
    events = load_record(runs(name)).events
    live = [event for event in events if event["kind"] == "diagnosis" and event["title"] == "verdict"]
    said = diagnosed(runs(name), capsys)
    assert live[-1]["evidence"]["verdict"] == said["verdict"]
    assert not [event for event in events if event["kind"] == "callback_off"]


def test_live_the_cause_is_named_when_it_happens(runs):
    events = load_record(runs("labels")).events
    told = [event for event in events if event["name"] == "diagnose" and event["step"] in (SHIFTED_AT, SHIFTED_AT + 1)]
    assert any(event["evidence"].get("causes", [{}])[0].get("name") == "special_batch" for event in told)
    quiet = load_record(runs("healthy")).events
    assert not [event for event in quiet if event["name"] == "diagnose" and event["level"] != "info"]
