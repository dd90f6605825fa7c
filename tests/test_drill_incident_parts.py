"""The parts of the incident drills without any training: configs, scores, the report, the screen."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from llamafactory_obs import texts
from llamafactory_obs.cli import main
from llamafactory_obs.diagnosis.result import Cause
from llamafactory_obs.drill.incident import report, terminal
from llamafactory_obs.drill.incident.blind import Said, diagnose
from llamafactory_obs.drill.incident.incidents import HEALTHY, INCIDENTS
from llamafactory_obs.drill.incident.outcome import NOT_MADE, RIGHT, UNFIT, WRONG, Made, Outcome
from llamafactory_obs.drill.incident.plan import Plan, added, derive, notes
from llamafactory_obs.drill.incident.planted import VARIABLE
from llamafactory_obs.drill.incident.score import is_quiet, score
from llamafactory_obs.drill.incident.words import say
from llamafactory_obs.plugin.entries import parse_entries
from llamafactory_obs.preflight.run_config import RunConfig
from llamafactory_obs.settings import Settings
from llamafactory_obs.texts.wrap import cells


def plan(tmp_path: Path, callbacks=(), obs=None, **given) -> Plan:
    given = {"output_dir": str(tmp_path / "out"), "stage": "sft", **given}
    config = RunConfig(tmp_path / "run.yaml", given, Settings.parse(obs), tuple(callbacks))
    return Plan(config, tmp_path / "drill", tuple(INCIDENTS), 120, 81)


# ---- what is trained ----------------------------------------------------------------------------------------------


def test_all_trainings_have_one_config_and_the_environment_says_the_rest(tmp_path):
    made = plan(tmp_path)
    configs = [{**derive(made, name).given, "output_dir": ""} for name in made.trainings]
    assert len({json.dumps(one, sort_keys=True) for one in configs}) == 1
    assert made.variables(HEALTHY) == {}
    told = {name: json.loads(made.variables(name)[VARIABLE]) for name in INCIDENTS}
    assert {name: one["fault"] for name, one in told.items()} == {name: name for name in INCIDENTS}
    assert {name: one["at"] for name, one in told.items()} == dict.fromkeys(INCIDENTS, 81) | {"lora_off": 1}
    for name in INCIDENTS:
        assert not any(word in str(made.output_dir(name).name) for word in INCIDENTS)
        assert not made.told(name).is_relative_to(made.output_dir(name)), "outside of what diagnose reads"


def test_what_would_end_it_early_or_act_by_itself_is_off(tmp_path):
    listed = [
        {"grad_norm_spike": {"action": "stop", "z": 9}},
        {"samples": {"every": 50}},
        {"name": "early_stopping", "args": {"early_stopping_patience": 1}},
        "probe",
        {"my.own.Callback": {"action": "stop"}},
    ]
    obs = {"limit_gib": 24, "control": {"auto": "scale_lr"}, "alerts": {"stop_on": ["nan"]}}
    made = plan(
        tmp_path, listed, obs, warmup_steps=100, auto_find_batch_size=True, save_steps=5, eval_strategy="steps",
        eval_steps=5, report_to="wandb", resume_from_checkpoint="x",
    )  # fmt: skip
    given = derive(made, "nan").given
    assert given["callbacks"][1:3] == [
        {"grad_norm_spike": {"action": "warn", "z": 9}},
        {"my.own.Callback": {"action": "stop"}},
    ]
    names = [next(iter(one)) if isinstance(one, dict) else one for one in given["callbacks"]]
    assert "early_stopping" not in names and "probe" not in names and names.count("samples") == 1
    assert set(added(made.config)) <= set(names) and names[0].endswith("plant.Plant")
    assert given["obs"] == {"limit_gib": 24.0, "control": {"listen": False}}
    assert (given["save_strategy"], given["eval_strategy"], given["warmup_steps"]) == ("no", "no", 12)
    assert not {"auto_find_batch_size", "resume_from_checkpoint", "eval_steps"} & set(given)
    told = " ".join(say(name, "en", **values) for name, values in notes(made))
    assert all(
        word in told for word in ("warmup_steps: 12 instead of 100", "auto_find", "scale_lr", "probe is left out")
    )


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"warmup_steps": 12}, None),
        ({"warmup_steps": 0.1}, None),
        ({"warmup_steps": 0.3}, ("warmup_steps", 12)),
        ({"warmup_ratio": 0.5}, ("warmup_ratio", 0.1)),
        ({"warmup_ratio": 0.05}, None),
        ({}, None),
    ],
)
def test_the_warm_up_is_over_before_the_incident(tmp_path, given, wanted):
    changed = {key: one["to"] for key, one in derive(plan(tmp_path, **given), HEALTHY).changed.items()}
    assert {key: changed[key] for key in changed if key.startswith("warmup")} == (dict([wanted]) if wanted else {})


def test_where_an_incident_does_not_apply(tmp_path):
    assert INCIDENTS["labels"].unfit(plan(tmp_path, stage="dpo").config) and INCIDENTS["nan"].unfit(
        plan(tmp_path, fp16=True).config
    )
    assert not any(one.unfit(plan(tmp_path).config) for one in INCIDENTS.values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nan", "run.yaml", "--steps", "93"], "--steps must be at least 94"),
        (["nan", "run.yaml", "--at", "40"], "--at must be at least 41"),
        (["all", "run.yaml", "--at", "90"], "--at must be at most 89 of 120"),
        (["spike", "no_such.yaml"], "no such file"),
        (["lora_of", "run.yaml"], "lora_off"),
    ],
)
def test_wrong_words_end_in_one_line(words, message, capsys, llamafactory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["drill", *words]) == 2
    said = capsys.readouterr().err.strip()
    assert message in said and len(said.splitlines()) == 1 and not list(tmp_path.iterdir())


def test_every_check_is_a_line_that_works(llamafactory):
    for incident in INCIDENTS.values():
        for check in incident.checks:
            if check.where == "callbacks":
                [entry] = parse_entries(yaml.safe_load(check.line))
                assert entry.name == check.name
            elif check.where == "obs":
                Settings.parse(yaml.safe_load(check.line))
            else:
                assert check.line.startswith("llamafactory-obs ") and check.line.split()[1] in ("preflight", "mask")


# ---- the score ----------------------------------------------------------------------------------------------------


def said(verdict="nan", action="kill", cause="attention_or_kernel", since=81, **more) -> Said:
    causes = [Cause(cause, 0.9, ["It is so."], ["Or not."], [], "Look.")] if cause else []
    alerts = [{"step": 20, "level": "warn", "name": "vram", "title": "x"}]
    alerts.append({"step": 83, "level": "error", "name": "grad_norm_spike", "title": "inf"})
    return Said(
        120, verdict, action, "Headline.", "nan", since, since, "It is dead.", {}, causes, alerts=alerts, **more
    )


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (said(), None),
        (said(since=82), None),
        (said(since=84), "onset"),
        (said(verdict="spike"), "verdict"),
        (said(action="keep"), "action"),
        (said(cause="overflow"), "cause"),
        (said(cause=None), "cause"),
        (said(verdict="healthy", action="keep", cause=None, since=None), "verdict"),
    ],
)
def test_the_score(answer, wrong):
    found = score(INCIDENTS["nan"], answer, 81)
    assert found.right is (wrong is None) and found.told == 2
    assert wrong is None or getattr(found, wrong) is False


def test_a_folder_in_memory_has_another_right_cause():
    answer = said("throughput_drop", "keep", "other_callback", 83)
    assert not score(INCIDENTS["throughput"], answer, 81).right
    assert score(INCIDENTS["throughput"], answer, 81, ("other_callback",)).right


def test_the_twin_is_quiet_or_it_is_not():
    healthy = replace(said("healthy", "keep", None, None), alerts=[], finding=None)
    assert is_quiet(healthy) and is_quiet(replace(healthy, alerts=[{"step": 3, "level": "warn"}]))
    assert not is_quiet(replace(healthy, alerts=[{"step": 3, "level": "error"}]))
    assert not is_quiet(replace(healthy, verdict="plateau"))


def test_a_training_without_a_record_is_not_judged(tmp_path):
    assert diagnose(tmp_path) is None


def outcome(tmp_path, healthy=RIGHT, **incidents) -> Outcome:
    quiet = replace(said("healthy", "keep", None, None), alerts=[], finding=None, text="")
    twin = Made(HEALTHY, "training-1", status=healthy, said=quiet, spoken=quiet, timeline=["loss ▁"])
    found = Outcome(
        "all", tmp_path / "run.yaml", tmp_path, 120, 81, 1, twin, listed=["vram"], changed={"a": {"from": 1, "to": 2}}
    )
    facts = {
        "oom": {"step": 81, "tokens": 5_000_000, "room_gib": 1.0, "limit_gib": 6.2, "ordinary": 48, "card": False},
        "spike": {"step": 81, "factor": 20.0, "before": 1e-4, "after": 2e-3},
        "labels": {"step": 81, "labels": 15},
        "throughput": {"step": 81, "mib": 64, "seconds": 0.25, "in_memory": True},
        "nan": {"step": 81, "parameter": "layers.1.q_proj.weight"},
        "lora_off": {"step": 1, "layers": 21, "weights": 42, "by_passed": True},
    }
    for name, status in incidents.items():
        answer = said(INCIDENTS[name].verdicts[0], INCIDENTS[name].actions[0], INCIDENTS[name].causes[0])
        made = Made(name, "training-2", 81, status, None, facts[name], answer, answer, timeline=["loss ▁▂"])
        if status == UNFIT:
            made.why, made.said = ("unfit.nan", {}), None
        elif status == NOT_MADE:
            made.why, made.last_words = ("why.not_made", {"code": 1}), ["ValueError: no"]
        elif status == WRONG:
            made.why = ("why.cause", {"cause": "overflow", "causes": "attention_or_kernel"})
        if status in (RIGHT, WRONG):
            made.score = score(INCIDENTS[name], answer, 81)
        found.incidents.append(made)
    return found


@pytest.mark.parametrize(
    ("healthy", "incidents", "code"),
    [
        (RIGHT, {"oom": RIGHT, "nan": RIGHT}, 0),
        (RIGHT, {"oom": RIGHT, "nan": UNFIT}, 0),
        (RIGHT, {"oom": RIGHT, "nan": WRONG}, 1),
        (WRONG, {"oom": RIGHT}, 1),
        (RIGHT, {"oom": RIGHT, "nan": NOT_MADE}, 2),
        (RIGHT, {"nan": UNFIT}, 2),
        (NOT_MADE, {}, 2),
    ],
)
def test_the_exit_code(tmp_path, healthy, incidents, code):
    assert outcome(tmp_path, healthy, **incidents).exit_code == code


# ---- what a person sees -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", texts.LANGUAGES)
@pytest.mark.parametrize("status", [RIGHT, WRONG, NOT_MADE, UNFIT])
def test_report_and_screen_in_both_languages(tmp_path, lang, status):
    found = outcome(tmp_path, **dict.fromkeys(INCIDENTS, status))
    found.notes = [("note.added", {"names": "vram, samples " * 9})]
    with texts.speaking(lang):
        report.write(found)
        written, out = (tmp_path / "report.md").read_text(), io.StringIO()
        terminal.show(found, out)
    screen = out.getvalue().splitlines()
    assert max(cells(line) for line in screen if str(tmp_path) not in line) <= 80
    with texts.speaking(lang):
        for name in INCIDENTS:
            assert f"## {say(f'title.{name}')}" in written
            assert (say(f"lasting.{name}") in written) is (status in (RIGHT, WRONG))
    assert "{" not in re.sub(r"`[^`]*`|```.*?```", "", written, flags=re.S), "a value that nobody filled in"
    assert json.loads((tmp_path / "report.json").read_text())["exit_code"] == found.exit_code
    json.dumps(found.as_dict(lambda one: say(one[0], "en", **one[1])), allow_nan=False)


def test_one_incident_on_the_screen(tmp_path):
    found = outcome(tmp_path, spike=RIGHT)
    found.name, out = "spike", io.StringIO()
    with texts.speaking("en"):
        terminal.show(found, out)
    shown = " ".join(out.getvalue().split())
    assert "1 of 1 incidents judged right; the healthy twin is left in peace" in shown
    assert "0.002 instead of 0.0001" in shown and "now Take the change of the rate back" in shown
    assert "check obs: alerts: {stop_on: [lr_anomaly]}" in shown


def test_both_languages_have_the_same_texts_with_the_same_names():
    for feature in ("drill", "oom"):
        one, other = (texts.texts(feature, lang) for lang in texts.LANGUAGES)
        assert one.keys() == other.keys()
        for key in one:
            assert _names(one[key]) == _names(other[key]), key
            assert one[key] != other[key] or key == "note.plain"


def _names(text: str) -> set[str]:
    return set(re.findall(r"(?<!\{)\{(\w+)", text))
