"""Gate 1: a baseline that holds, and each way in which one is missing, stale, partial or damaged."""

import json
import os
import shutil

import pytest
from baseline_config import SUITE, Caller, bad, copy_model, detail, edit, statuses, write_config

from llamafactory_obs.cli import main
from llamafactory_obs.preflight.baseline.gate import baseline_gate
from llamafactory_obs.preflight.run_config import read_run_config

pytestmark = pytest.mark.usefixtures("llamafactory")
MEASURED = ("baseline_recorded", "model", "suite", "template", "sampling", "layers")


@pytest.fixture(scope="module")
def measured(model, data, tmp_path_factory):
    """A folder with a model of its own, a config and its recorded baseline; to be copied."""
    folder = tmp_path_factory.mktemp("measured")
    copy_model(model, folder / "base")
    path = write_config(folder / "run", folder / "base", data)
    server = Caller(folder / "base")
    try:
        assert main(["baseline", str(path), "--endpoint", server.url]) == 0
    finally:
        server.close()
    return folder


@pytest.fixture
def place(measured, data, tmp_path):
    """`place(**overrides)`: a config beside a copy of the baseline and its own copy of the model; returns its path."""

    def make(suite: str = SUITE, **overrides):
        shutil.copytree(measured / "base", tmp_path / "base", dirs_exist_ok=True)
        path = write_config(tmp_path / "run", overrides.pop("model", tmp_path / "base"), data, suite, **overrides)
        whole = json.loads((measured / "run" / "run.baseline.json").read_text())
        whole["model"]["name"] = str(tmp_path / "base")
        stat = (tmp_path / "base" / "model.safetensors").stat()
        whole["model"]["files"][0].update(mtime_ns=stat.st_mtime_ns, ctime_ns=stat.st_ctime_ns)
        path.with_name("run.baseline.json").write_text(json.dumps(whole))
        return path

    return make


def judge(path, **words):
    return baseline_gate(read_run_config(path), **words)


def record(path):
    return path.with_name("run.baseline.json")


def test_a_baseline_that_holds_passes(place):
    path = place()
    report = judge(path)
    assert [statuses(report)[name] for name in MEASURED] == ["pass"] * 6
    assert report.gate()["status"] == "pass" and report.gate()["fix"] == "" and not report.by_hand
    assert report.scores == {"format": 1.0, "tool_choice": 2 / 3, "arguments": 2 / 3, "task": 1 / 3}
    assert json.loads(json.dumps(report.as_dict()))["evidence"] == str(record(path))


def test_missing_names_the_command_that_makes_it(place, tmp_path):
    path = place()
    record(path).unlink()
    report = judge(path, endpoint="http://127.0.0.1:9/v1", suite=tmp_path / "run" / "suite.yaml")
    assert statuses(report)["baseline_recorded"] == "fail"
    suite = tmp_path / "run" / "suite.yaml"
    command = f"llamafactory-obs baseline {path} --suite {suite} --endpoint http://127.0.0.1:9/v1"
    fixes = {check.name: check.fix for check in report.checks}
    assert fixes["baseline_recorded"] == command and command in report.gate()["fix"]
    assert "missing" in detail(report, "baseline_recorded")


def test_the_command_repeats_the_overrides(place, tmp_path):
    path = place()
    report = baseline_gate(read_run_config(path, ["template=qwen", "default_system=Be brief."]))
    command = f"llamafactory-obs baseline {path} template=qwen 'default_system=Be brief.'"
    assert bad(report) == {"template"} and report.gate()["fix"] == command


def test_a_model_that_is_not_on_this_machine(place):
    report = baseline_gate(read_run_config(place(), ["model_name_or_path=nobody/nothing"]))
    assert statuses(report)["model"] == "fail" and statuses(report)["template"] == "error"
    assert "hf download nobody/nothing" in detail(report, "template")


def test_another_model_is_named(place, model, tmp_path):
    other = copy_model(model, tmp_path / "other")
    weights = other / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    path = place(model=other)
    report = judge(path)
    assert bad(report) == {"model"}
    assert f"{tmp_path / 'base'} -> {other}" in detail(report, "model")


def test_the_same_model_elsewhere_is_the_same(place, tmp_path):
    path = place(model=tmp_path / "moved")
    (tmp_path / "base").rename(tmp_path / "moved")
    report = judge(path)
    assert bad(report) == set() and "recorded as" in detail(report, "model")


@pytest.mark.parametrize("stamps", ["new", "kept"])
def test_weights_changed_in_place_are_stale(place, tmp_path, stamps):
    """Same path, same size, one byte; also where somebody sets the time of change back."""
    path = place()
    weights = tmp_path / "base" / "model.safetensors"
    assert bad(judge(path)) == set()
    before = weights.stat()
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    if stamps == "kept":
        os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    report = judge(path)
    assert bad(report) == {"model"} and "model.safetensors" in detail(report, "model")


def test_a_changed_config_json_is_stale(place, tmp_path):
    path = place()
    edit(tmp_path / "base" / "config.json", lambda config: config.update(rope_theta=5e5))
    report = judge(path)
    assert bad(report) == {"model"} and "config.json" in detail(report, "model")


def test_untouched_weights_are_not_read_again(place, monkeypatch):
    from llamafactory_obs.preflight.baseline import base_model

    path = place()
    read = []
    hashed = base_model.sha256_file
    monkeypatch.setattr(base_model, "sha256_file", lambda file: read.append(file.name) or hashed(file))
    assert bad(judge(path)) == set() and read == ["config.json"]


def test_another_suite_is_named(place):
    path = place(SUITE.replace("add 2", "add two"))
    report = judge(path)
    assert bad(report) == {"suite"} and "the suite sums has changed: " in detail(report, "suite")
    other = path.with_name("other.yaml")
    other.write_text(SUITE.replace("name: sums", "name: others", 1).replace("add 2", "add two"))
    report = judge(path, suite=other)
    assert bad(report) == {"suite"} and " -> others " in detail(report, "suite")


def test_comments_in_the_suite_do_not_count(place):
    assert bad(judge(place("# a word\n" + SUITE))) == set()


def test_a_suite_of_the_probe_callback_that_is_another_one_is_a_warning(place, tmp_path):
    other = tmp_path / "probes.yaml"
    other.write_text(SUITE.replace("add 2", "add two"))
    report = judge(place(callbacks=[{"probe": {"suite": str(other), "backend": "local"}}]))
    assert bad(report) == set() and statuses(report)["suite"] == "warn"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"template": "qwen"}, "template llamafactory:qwen3_nothink -> llamafactory:qwen"),
        ({"tool_format": "default"}, "tool format qwen -> default"),
        ({"default_system": "Be brief."}, "default_system not recorded -> Be brief."),
    ],
)
def test_another_template_is_named(place, change, said):
    report = judge(place(**change))
    assert bad(report) == {"template"} and said in detail(report, "template")


def test_another_tokenizer_under_the_same_template_is_stale(place, tmp_path):
    path = place()

    def change(tokenizer):
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]

    edit(tmp_path / "base" / "tokenizer.json", change)
    report = judge(path)
    assert bad(report) == {"template"} and "makes other prompts" in detail(report, "template")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r["sampling"]["settings"].update(temperature=0.7), "temperature 0.7 -> 0.0"),
        (lambda r: r["sampling"]["settings"].pop("top_p"), "top_p not recorded -> 1.0"),
        (lambda r: r["sampling"]["settings"].update(best_of=4), "best_of 4 -> none"),
        (lambda r: r["sampling"].update(max_new_tokens=64), "max_new_tokens 64 -> 12"),
        (lambda r: r.pop("sampling"), "temperature not recorded -> 0.0"),
        (lambda r: r["backend"].update(name="magic"), "magic"),
    ],
)
def test_other_sampling_is_named(place, change, said):
    path = place()
    edit(record(path), change)
    report = judge(path)
    assert bad(report) == {"sampling"} and said in detail(report, "sampling")


@pytest.mark.parametrize("layer", ["format", "tool_choice", "arguments", "task"])
def test_three_layers_are_partial(place, layer):
    path = place()
    edit(record(path), lambda r: r["scores"].pop(layer))
    report = judge(path)
    assert bad(report) == {"layers"} and f"missing: {layer}" in detail(report, "layers")
    assert report.gate()["fix"].endswith("--again")


def test_a_layer_without_a_number_is_missing(place):
    path = place()
    edit(record(path), lambda r: r["scores"].update(task=None))
    assert bad(judge(path)) == {"layers"}


def test_another_program_may_have_written_the_numbers_anew(place):
    """0.0 as 0, keys in another order: nothing has changed."""
    path = place()
    edit(record(path), lambda r: r["sampling"]["settings"].update(temperature=0, top_p=1))
    record(path).write_text(json.dumps(json.loads(record(path).read_text()), sort_keys=True))
    assert bad(judge(path)) == set()


def test_probes_that_were_not_asked_are_partial(place):
    path = place()

    def drop(r):
        r["probes"] = [row for row in r["probes"] if row["probe"] != "none"]
        r["scores"] = {name: {"right": n, "of": 2} for name, n in zip(r["scores"], (2, 2, 1, 1), strict=True)}

    edit(record(path), drop)
    report = judge(path)
    assert bad(report) == {"suite"} and "2 of 3 probes" in detail(report, "suite") and "none" in detail(report, "suite")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], "no whole JSON"),
        (lambda text: "", "no whole JSON"),
        (lambda text: "\0\0", "no whole JSON"),
        (lambda text: "[]", "no baseline of llamafactory-obs"),
        (lambda text: '{"a": 1}', "no baseline of llamafactory-obs"),
        (lambda text: text.replace('"suite": {', '"suite": [], "was": {', 1), "'suite' is no mapping"),
        (lambda text: _changed(text, lambda r: r["scores"].update(task={"right": 4, "of": 3})), "score for task"),
        (lambda text: _changed(text, lambda r: r["scores"].update(task={"right": 3, "of": 3})), "its probes give 1/3"),
        (lambda text: _changed(text, lambda r: r["scores"].update(task=True)), "score for task"),
        (lambda text: _changed(text, lambda r: r["scores"].update(task={"right": 0.5, "of": 1})), "score for task"),
        (lambda text: _changed(text, lambda r: r.pop("probes")), "'probes'"),
        (lambda text: _changed(text, lambda r: r["probes"].append(None)), "not whole"),
        (lambda text: _changed(text, lambda r: r["probes"][0].pop("layers")), "not whole"),
        (lambda text: _changed(text, lambda r: r["probes"][0].update(layers={"format": 1})), "not whole"),
    ],
)
def test_a_damaged_file_is_named(place, change, said):
    path = place()
    record(path).write_text(change(record(path).read_text()))
    report = judge(path)
    assert bad(report) == {"baseline_recorded"}
    assert str(record(path)) in detail(report, "baseline_recorded") and said in detail(report, "baseline_recorded")


def _changed(text, change):
    whole = json.loads(text)
    change(whole)
    return json.dumps(whole)


def test_a_folder_in_its_place_is_named(place):
    path = place()
    record(path).unlink()
    record(path).mkdir()
    assert bad(judge(path)) == {"baseline_recorded"}


@pytest.mark.parametrize("section", ["model", "rendering", "suite", "backend"])
def test_a_section_that_is_missing_is_stale_never_a_pass(place, section):
    path = place()
    edit(record(path), lambda r: r.pop(section))
    name = {"rendering": "template", "backend": "sampling"}.get(section, section)
    assert name in bad(judge(path))


def test_weights_that_were_not_seen_are_an_error(place):
    path = place()
    edit(record(path), lambda r: r["model"].update(weights_sha256=None, config_sha256=None, files=[]))
    report = judge(path)
    assert statuses(report)["model"] == "error" and report.gate()["status"] == "error"


def test_a_base_model_that_calls_nothing_is_a_warning_and_passes(model, data, tmp_path):
    path = write_config(tmp_path / "run", model, data)
    assert main(["baseline", str(path), "--backend", "local", "--device", "cpu"]) == 0
    report = judge(path)
    assert report.gate()["status"] == "pass" and statuses(report)["layers"] == "warn"
    assert "format" in detail(report, "layers") and "no call" in detail(report, "layers")


def test_the_evidence_may_lie_elsewhere(place, tmp_path):
    path = place()
    moved = record(path).rename(tmp_path / "elsewhere.json")
    assert bad(judge(path)) == {"baseline_recorded"}
    assert bad(judge(path, evidence=moved)) == set()
    assert bad(judge(place(obs={"baseline": str(moved)}), evidence=None)) == set()
