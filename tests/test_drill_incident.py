"""`drill all` on a tiny model: real trainings, each with one real fault, diagnosed from their records alone."""

import json

import pytest
import yaml
from drill_runs import forked
from tiny import tiny_config

from llamafactory_obs.drill.incident.incidents import INCIDENTS
from llamafactory_obs.identity.difference import difference
from llamafactory_obs.preflight.rehearsal import child
from llamafactory_obs.record.reader import decode_run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("llamafactory")]

STEPS, AT = 73, 42
LORA = {
    "finetuning_type": "lora", "lora_rank": 4, "lora_target": "all", "learning_rate": 5e-3,
    "lr_scheduler_type": "cosine", "warmup_ratio": 0.3, "callbacks": ["vram", {"grad_norm_spike": {"action": "stop"}}],
    "obs": {"control": {"auto": "stop"}, "alerts": {"stop_on": ["error"], "webhook": "http://127.0.0.1:9/nobody"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def all_of_them(llamafactory, model, data, tmp_path_factory):
    """(exit code, the drill's folder, what `--json` printed)."""
    import contextlib
    import io

    from llamafactory_obs.cli import main

    folder = tmp_path_factory.mktemp("drill")
    (folder / "run.yaml").write_text(yaml.safe_dump(tiny_config(model, data, folder / "out", **LORA)))
    words = ["--steps", str(STEPS), "--at", str(AT), "--out", str(folder / "all"), "--json"]
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(child, "train", forked)
        code = main(["drill", "all", str(folder / "run.yaml"), *words])
    assert not (folder / "out").exists(), "the real run's folder is not touched"
    return code, folder / "all", json.loads(printed.getvalue())


def test_each_cause_is_named_and_the_twin_is_left_in_peace(all_of_them):
    code, _, found = all_of_them
    told = {one["name"]: (one["status"], one["why"], one["last_words"]) for one in found["incidents"]}
    assert all(status == "right" for status, _, _ in told.values()) and list(told) == list(INCIDENTS), told
    assert found["healthy"]["status"] == "right" and found["healthy"]["said"]["verdict"] == "healthy"
    assert code == 0 and found["exit_code"] == 0
    first = {one["name"]: one["said"]["causes"][0]["name"] for one in found["incidents"]}
    disk = {first.pop("throughput")}
    assert disk <= {"storage", "other_callback"}
    assert first == {
        "oom": "special_batch", "spike": "lr_change", "labels": "special_batch", "nan": "attention_or_kernel",
        "lora_off": "nothing_trainable",
    }  # fmt: skip


def test_the_faults_were_real(all_of_them):
    _, _, found = all_of_them
    facts = {one["name"]: one["facts"] for one in found["incidents"]}
    assert facts["oom"]["tokens"] * facts["oom"]["rows"] * 32 * 4 > facts["oom"]["room_gib"] * 2**30
    assert facts["spike"]["after"] == pytest.approx(20 * facts["spike"]["before"])
    assert facts["labels"]["labels"] > 0 and facts["throughput"]["mib"] >= 16
    assert facts["lora_off"] == {"step": 1, "layers": 21, "weights": 42, "by_passed": True}
    exits = {one["name"]: one["exit_code"] for one in found["incidents"]}
    assert exits.pop("oom") == 1 and set(exits.values()) == {0}
    steps = {one["name"]: one["said"]["steps"] for one in found["incidents"]}
    assert steps.pop("oom") == AT - 1 and set(steps.values()) == {STEPS}, "no alert stops the others"


def test_nothing_on_record_says_what_was_planted(all_of_them):
    """Neither the config nor any file of a record differs from the healthy twin's by a fault's name or options."""
    _, folder, found = all_of_them
    trainings = [found["healthy"]["training"], *(one["training"] for one in found["incidents"])]
    configs = [yaml.safe_load((folder / f"{name}.yaml").read_text()) for name in trainings]
    assert len({json.dumps({**one, "output_dir": ""}, sort_keys=True) for one in configs}) == 1
    twin, *others = (_identity(folder / name / "obs" / "run.json", folder / name) for name in trainings)
    assert [row for other in others for row in difference(twin, other) if not row["key"].startswith(_CHECKOUT)] == []
    words = (
        "incident.faults",
        "OBS_DRILL",
        "fault.json",
        "planted",
        "RaiseRate",
        "ShiftLabels",
        "OverLong",
        "AdapterOff",
    )
    for name in trainings:
        for file in (folder / name / "obs").iterdir():
            text = file.read_text()
            assert not [word for word in words if word in text], (name, file.name)


#: this checkout, in which somebody may be working meanwhile
_CHECKOUT = ("code.", "packages.sources.")


def _identity(file, folder) -> dict:
    found = decode_run(file)
    del found["segments"]  # when it was
    return json.loads(json.dumps(found).replace(str(folder), "DIR"))


def test_the_folder_keeps_the_records_and_the_report(all_of_them):
    _, folder, found = all_of_them
    names = [f"training-{n}" for n in range(1, 8)]
    kept = {*names, *(f"{n}.yaml" for n in names), *(f"{n}.log" for n in names), "report.md", "report.json"}
    assert {one.name for one in folder.iterdir()} == kept
    assert all([one.name for one in (folder / name).iterdir()] == ["obs"] for name in names)
    report = (folder / "report.md").read_text()
    assert "6 of 6 incidents judged right; the healthy twin is left in peace" in report
    for one in found["incidents"]:
        section = report.split(f"training-{names.index(one['training']) + 1}\n")[0].rpartition("\n## ")[2]
        assert one["said"]["causes"][0]["supports"][0] in section, one["name"]
        assert all(
            f"\n### {part}\n" in section for part in ("Evidence", "Timeline", "What to do now", "The lasting fix")
        )
        assert all(check.line in section for check in INCIDENTS[one["name"]].checks), one["name"]
    assert json.loads((folder / "report.json").read_text())["incidents"] == found["incidents"]


def test_diagnose_says_the_same_of_a_kept_record(all_of_them, capsys):
    from llamafactory_obs.cli import main

    _, folder, found = all_of_them
    for one in found["incidents"][:2]:
        capsys.readouterr()
        code = main(["diagnose", str(folder / one["training"]), "--json"])
        said = json.loads(capsys.readouterr().out)
        assert (said["verdict"], said["action"]) == (one["said"]["verdict"], one["said"]["action"])
        assert code == (1 if said["action"] == "kill" else 0)
