"""`llamafactory-obs baseline`: real generation by the tiny model, a server whose answers are known, what is kept."""

import json

import pytest
from baseline_config import KNOWN, SUITE, Caller, copy_model, edit, write_config

from llamafactory_obs.cli import main
from llamafactory_obs.probe.backends import local, vllm

pytestmark = pytest.mark.usefixtures("llamafactory")
LOCAL = ["--backend", "local", "--device", "cpu"]


@pytest.fixture(scope="module")
def run_yaml(model, data, tmp_path_factory):
    """A config and its baseline, measured here; both may be read only."""
    path = write_config(tmp_path_factory.mktemp("measured"), model, data)
    assert main(["baseline", str(path), *LOCAL]) == 0
    return path


@pytest.fixture
def fresh(model, data, tmp_path):
    return write_config(tmp_path / "run", model, data)


@pytest.fixture
def caller(model):
    server = Caller(model)
    yield server
    server.close()


def record_of(path):
    return json.loads(path.with_name("run.baseline.json").read_text())


def scores(record):
    return {layer: [one["right"], one["of"]] for layer, one in record["scores"].items()}


def test_what_is_recorded_by_the_local_model(run_yaml, model):
    record = record_of(run_yaml)
    assert [row["probe"] for row in record["probes"]] == ["right", "wrong", "none"]
    assert all(row["turns"][0]["tokens"] == 12 and row["turns"][0]["raw"] for row in record["probes"])
    # a random model calls nothing: right where no call is right, and its text does not end
    assert scores(record) == {"format": [0, 0], "tool_choice": [1, 3], "arguments": [0, 2], "task": [0, 3]}
    assert record["model"]["name"] == str(model) and len(record["model"]["weights_sha256"]) == 64
    assert record["model"]["covers"] == "config.json and the content of every weight file"
    assert record["rendering"]["key"] == "llamafactory:qwen3_nothink" and record["rendering"]["tool_format"] == "qwen"
    assert record["suite"]["name"] == "sums" and record["backend"]["name"] == "local" and record["time"] > 1e9
    assert {"llamafactory", "transformers", "torch", "llamafactory-obs"} <= set(record["versions"])


def test_sampling_is_stored_and_the_models_own_defaults_do_not_count(run_yaml, model, data, tmp_path):
    """TPL-4: a generation_config.json with a temperature changes neither what is stored nor what is generated."""
    warm = copy_model(model, tmp_path / "warm")
    (warm / "generation_config.json").write_text(
        json.dumps({"do_sample": True, "temperature": 0.7, "repetition_penalty": 1.5, "eos_token_id": 2})
    )
    path = write_config(tmp_path / "run", warm, data)
    assert main(["baseline", str(path), *LOCAL]) == 0
    cold, warm = record_of(run_yaml), record_of(path)
    assert cold["sampling"] == warm["sampling"] == {"settings": local.GREEDY, "max_new_tokens": 12}
    assert [row["output"] for row in cold["probes"]] == [row["output"] for row in warm["probes"]]


def test_a_servers_scores_are_those_counted_by_hand(fresh, caller, capsys):
    assert main(["baseline", str(fresh), "--endpoint", caller.url]) == 0
    record = record_of(fresh)
    assert scores(record) == KNOWN
    assert record["sampling"]["settings"] == vllm.GREEDY and record["sampling"]["settings"]["temperature"] == 0.0
    sent = caller.bodies("/completions")[0]
    assert {key: sent[key] for key in vllm.GREEDY} == record["sampling"]["settings"] and sent["max_tokens"] == 12
    shown = capsys.readouterr().out
    assert "3 of 3" in shown and "33%" in shown and "recorded:" in shown and "tool_call" in shown


def test_json_is_the_record_and_nothing_else(fresh, caller, capsys):
    assert main(["baseline", str(fresh), "--endpoint", caller.url, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == record_of(fresh) and "recorded:" in err


def test_the_same_baseline_is_not_measured_twice(run_yaml, capsys):
    before = run_yaml.with_name("run.baseline.json").read_bytes()
    assert main(["baseline", str(run_yaml), *LOCAL]) == 0
    assert "recorded already" in capsys.readouterr().out
    assert run_yaml.with_name("run.baseline.json").read_bytes() == before


@pytest.mark.parametrize("how", ["suite", "again", "torn", "backend"])
def test_an_earlier_baseline_is_kept_under_its_date(fresh, caller, capsys, how):
    words = ["baseline", str(fresh), "--endpoint", caller.url]
    assert main(words) == 0
    file = fresh.with_name("run.baseline.json")
    if how == "suite":
        fresh.with_name("suite.yaml").write_text(SUITE.replace("add 2", "add two"))
    if how == "again":
        words.append("--again")
    if how == "torn":
        file.write_text(file.read_text()[:200])
    if how == "backend":
        words = ["baseline", str(fresh), *LOCAL]
    before = file.read_bytes()
    capsys.readouterr()
    assert main(words) == 0
    (kept,) = fresh.parent.glob("run.baseline.2*.json")
    assert kept.read_bytes() == before and file.read_bytes() != before
    assert f"the earlier one is kept: {kept.name}" in capsys.readouterr().out


def test_a_suite_that_judges_no_call_is_recorded_and_not_fine(model, data, tmp_path, capsys):
    talk = "name: talk\nmax_new_tokens: 4\nprobes:\n  - {name: hello, messages: [{role: user, content: hello}]}\n"
    path = write_config(tmp_path / "run", model, data, talk)
    assert main(["baseline", str(path), *LOCAL]) == 1
    assert "no probe of the suite talk judges format, tool_choice, arguments" in capsys.readouterr().out
    assert scores(record_of(path))["task"] == [0, 1]


def test_a_server_of_another_model_is_refused_by_name(fresh, caller, model, capsys):
    caller.root = "/models/llama-8b"
    assert main(["baseline", str(fresh), "--endpoint", caller.url]) == 2
    said = capsys.readouterr().err
    assert "/models/llama-8b" in said and str(model) in said and "--served-model-name" in said
    assert not fresh.with_name("run.baseline.json").exists() and caller.bodies("/completions") == []


def test_a_server_at_the_default_that_nobody_named_is_left_alone(fresh, caller, monkeypatch, capsys):
    caller.root = "/models/llama-8b"
    monkeypatch.setattr("llamafactory_obs.preflight.baseline.server.DEFAULT_ENDPOINT", caller.url)
    assert main(["baseline", str(fresh), "--device", "cpu"]) == 0
    assert "is not asked" in capsys.readouterr().out and record_of(fresh)["backend"]["name"] == "local"
    caller.root = json.loads(json.dumps(record_of(fresh)["model"]["name"]))
    assert main(["baseline", str(fresh), "--device", "cpu", "--again"]) == 0
    assert record_of(fresh)["backend"]["name"] == "vllm"


def test_the_probe_callback_names_the_server(model, data, caller, tmp_path):
    path = write_config(tmp_path / "run", model, data, callbacks=[{"probe": {"endpoint": caller.url}}])
    assert main(["baseline", str(path)]) == 0 and record_of(path)["backend"]["name"] == "vllm"


def test_a_server_that_breaks_off_records_nothing(fresh, caller, capsys, monkeypatch):
    monkeypatch.setattr(Caller, "stream", property(lambda self: (503, {"error": "busy"}), lambda self, value: None))
    assert main(["baseline", str(fresh), "--endpoint", caller.url]) == 2
    assert "no baseline" in capsys.readouterr().err and not list(fresh.parent.glob("*.json"))


def test_an_adapter_is_not_what_is_scored(model, data, caller, tmp_path, capsys):
    path = write_config(tmp_path / "run", model, data, finetuning_type="lora", adapter_name_or_path="old/adapter")
    assert main(["baseline", str(path), "--endpoint", caller.url]) == 0
    assert "without the adapter old/adapter" in " ".join(capsys.readouterr().out.split())
    assert any("old/adapter" in note for note in record_of(path)["notes"])


def test_a_table_by_hand_is_not_overwritten(model, data, caller, tmp_path, capsys):
    table = tmp_path / "table.md"
    table.write_text("| a |\n")
    path = write_config(tmp_path / "run", model, data, obs={"baseline": str(table)})
    assert main(["baseline", str(path), "--endpoint", caller.url]) == 0
    assert table.read_text() == "| a |\n" and record_of(path)
    assert "the gate reads obs: {baseline:" in " ".join(capsys.readouterr().out.split())
    assert main(["baseline", str(path), "--endpoint", caller.url, "--out", str(table)]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "{folder}/other.json"], "is not overwritten"),
        (["--out", "{folder}/no/where.json"], "no folder"),
        (["--suite", "{folder}/no.yaml"], "no.yaml"),
        (["--endpoint", "http://127.0.0.1:9/v1"], "does not answer"),
        (["--backend", "local", "--endpoint", "http://x"], "leave one out"),
        (["template=no_such_template"], "no_such_template"),
        (["model_name_or_path=/no/such/model"], "/no/such/model"),
    ],
)
def test_wrong_words_are_one_line(fresh, capsys, words, said):
    (fresh.parent / "other.json").write_text('{"mine": 1}')
    assert main(["baseline", str(fresh), *(word.format(folder=fresh.parent) for word in words)]) == 2
    err = capsys.readouterr().err
    assert said in err and "Traceback" not in err and len(err.strip().splitlines()) <= 2
    assert (fresh.parent / "other.json").read_text() == '{"mine": 1}'


def test_a_disk_that_fills_up_leaves_the_old_one_whole(fresh, caller, monkeypatch, capsys):
    assert main(["baseline", str(fresh), "--endpoint", caller.url]) == 0
    file = fresh.with_name("run.baseline.json")
    edit(file, lambda record: record["sampling"]["settings"].update(temperature=1.0))
    before = file.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("llamafactory_obs.preflight.baseline.recorded.os.fsync", full)
    assert main(["baseline", str(fresh), "--endpoint", caller.url]) == 2
    assert "No space left" in capsys.readouterr().err
    assert file.read_bytes() == before and [one.name for one in fresh.parent.glob("*.json*")] == [file.name]
    assert not list(fresh.parent.glob(".run.baseline*"))
