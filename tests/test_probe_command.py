"""`llamafactory-obs probe` as a person or a script calls it, on real checkpoints of a real run."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

import pytest
import yaml
from conftest import ROOT

from llamafactory_obs.cli import main
from llamafactory_obs.record.reader import read_rows

SUITE = {
    "name": "quick",
    "max_new_tokens": 4,
    "max_turns": 1,
    "probes": [
        {"name": "one", "messages": [{"role": "user", "content": "alpha"}]},
        {"name": "two", "messages": [{"role": "user", "content": "beta"}], "expect": {"contains": "never said"}},
    ],
}


@pytest.fixture(scope="module")
def trained(llamafactory, model, data, tmp_path_factory):
    """A finished LoRA run with three checkpoints and a record."""
    from llamafactory.train.tuner import run_exp
    from tiny import tiny_config

    out = tmp_path_factory.mktemp("run") / "out"
    options = {"finetuning_type": "lora", "lora_rank": 4, "save_steps": 2, "learning_rate": 0.05}
    run_exp(tiny_config(model, data, out, callbacks=["vram"], **options))
    return out


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def suite(tmp_path):
    return write_suite(tmp_path, SUITE)


def write_suite(folder, content, name="quick.yaml"):
    (folder / name).write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    return folder / name


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def probe(capsys):
    """`probe(words...)` calls the command line in this process: LlamaFactory's import takes longer than a probe."""

    def call(*words) -> Done:
        capsys.readouterr()
        code = main(["probe", *map(str, words)])
        shown = capsys.readouterr()
        return Done(code, shown.out, shown.err)

    return call


LOCAL = ("--backend", "local", "--device", "cpu")


def test_what_is_there_is_probed_and_shown(probe, run, suite):
    done = probe(run, "--suite", suite, *LOCAL)
    assert done.returncode == 1, done.stderr  # probe `two` cannot pass
    text = done.stdout
    for name in ("the untuned base model", "checkpoint-2", "checkpoint-4", "checkpoint-6"):
        assert text.count(f"── {name} ──") == 1, name
    assert "LlamaFactory's template qwen3_nothink (the run's own)" in text and "asked for by --backend local" in text
    assert text.count("missing_text") >= 4 and "same against checkpoint-4" in text
    assert text.rstrip().splitlines()[-3].split() == ["probe", "base", "2", "4", "6"]
    assert text.rstrip().splitlines()[-1].split()[0] == "two"

    again = probe(run, "--suite", suite, *LOCAL)
    assert "── checkpoint" not in again.stdout and again.stdout.rstrip().splitlines()[-3].split()[0] == "probe"
    assert again.returncode == 1
    rows, _ = read_rows(run / "obs" / "probes.jsonl")
    assert len(rows) == 8

    anew = probe(run / "checkpoint-4", "--suite", suite, "--again", "--no-baseline", *LOCAL)
    assert anew.stdout.count("── checkpoint-") == 1, anew.stdout
    rows, _ = read_rows(run / "obs" / "probes.jsonl")
    assert [row["checkpoint"] for row in rows[8:]] == ["checkpoint-4"] * 2


def test_json_is_one_object_a_line_and_nothing_else(probe, run, suite):
    done = probe(run, "--suite", suite, "--json", *LOCAL)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["step"], row["checkpoint"], row["probe"]) for row in rows[:3]] == [
        (0, "base", "one"),
        (0, "base", "two"),
        (2, "checkpoint-2", "one"),
    ]
    assert len(rows) == 8
    for row in rows:
        assert {"checkpoint", "step", "probe", "passed", "errors", "output", "turns", "seconds"} <= row.keys()
        assert isinstance(row["passed"], bool) and isinstance(row["turns"], list) and row["seconds"] >= 0
    assert "checkpoint-6" in done.stderr
    recorded = probe(run, "--suite", suite, "--json", *LOCAL)
    assert [json.loads(line)["output"] for line in recorded.stdout.splitlines()] == [row["output"] for row in rows]


@pytest.fixture(scope="module")
def learned(llamafactory, model, tmp_path_factory):
    """A whole model that has learned to answer "alpha" with "beta", as `checkpoint-40` of its run."""
    from llamafactory.train.tuner import run_exp
    from tiny import tiny_config

    folder = tmp_path_factory.mktemp("learned")
    (folder / "rows.json").write_text(json.dumps([{"instruction": "alpha", "input": "", "output": "beta"}] * 48))
    (folder / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json"}}))
    options = {"max_steps": 40, "learning_rate": 0.01, "save_steps": 40, "logging_steps": 40, "callbacks": ["vram"]}
    run_exp(tiny_config(model, folder, folder / "out", **options))
    return folder / "out"


ANSWERS_BETA = {
    "name": "beta",
    "max_new_tokens": 8,
    "probes": [
        {"name": "answer", "messages": [{"role": "user", "content": "alpha"}], "expect": {"contains": "beta"}},
    ],
}


def test_fixed_broke_and_the_exit_code(probe, learned, model, tmp_path):
    """0: the newest checkpoint passes. A later one with the untrained weights broke, and brings 1."""
    run = tmp_path / "run"
    shutil.copytree(learned, run, ignore=shutil.ignore_patterns("model.safetensors.tmp"))
    suite = write_suite(tmp_path, ANSWERS_BETA)
    done = probe(run, "--suite", suite, *LOCAL)
    assert done.returncode == 0, done.stdout
    assert "fixed against the base model" in done.stdout and "beta<|im_end|>" in done.stdout

    shutil.copytree(run / "checkpoint-40", run / "checkpoint-60")
    shutil.copy(model / "model.safetensors", run / "checkpoint-60" / "model.safetensors")
    state = run / "checkpoint-60" / "trainer_state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "global_step": 60}))
    done = probe(run, "--suite", suite, *LOCAL)
    assert done.returncode == 1 and "broke against checkpoint-40" in done.stdout
    assert "another text altogether" in done.stdout
    event = read_rows(run / "obs" / "events.jsonl")[0][-1]
    assert (event["title"], event["level"], event["step"]) == ("verdict", "warn", 60)
    assert event["evidence"]["broke"] == ["answer"] and event["evidence"]["passed"] == {"answer": False}
    assert event["evidence"]["scores"]["task"] == {"right": 0, "of": 1}

    other = {**ANSWERS_BETA, "max_new_tokens": 7}
    done = probe(run / "checkpoint-60", "--suite", write_suite(tmp_path, other), "--no-baseline", *LOCAL)
    assert "against checkpoint-40" not in done.stdout, "another suite is another comparison"


def test_a_scorer_of_the_users_own(probe, learned, tmp_path, monkeypatch):
    shutil.copytree(learned, tmp_path / "run")
    (tmp_path / "judge_by.py").write_text("def height(probe, turns):\n    return ['too_tall']\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    suite = {**ANSWERS_BETA, "probes": [{**ANSWERS_BETA["probes"][0], "expect": {"scorer": "judge_by.height"}}]}
    done = probe(tmp_path / "run", "--suite", write_suite(tmp_path, suite), "--no-baseline", *LOCAL)
    assert done.returncode == 1 and "too_tall: found by judge_by.height" in done.stdout


def test_as_a_command_of_its_own_with_nothing_but_json_on_stdout(run, suite):
    """LlamaFactory logs to stdout."""
    words = ["probe", run / "checkpoint-6", "--suite", suite, "--json", *LOCAL]
    environment = {**os.environ, "LLAMAFACTORY_VERBOSITY": "INFO"}
    command = [sys.executable, "-m", "llamafactory_obs.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and [row["checkpoint"] for row in rows] == ["base"] * 2 + ["checkpoint-6"] * 2
    assert "Traceback" not in done.stderr and "Loading weights" not in done.stderr, done.stderr
    assert done.stderr.count("── checkpoint-6 ──") == 1


def test_watch_ends_by_itself_when_the_record_says_so(probe, run, suite):
    done = probe("--watch", run, "--suite", suite, *LOCAL, "--no-baseline", "--poll", "0.2")
    assert done.returncode == 1 and done.stdout.count("── checkpoint-") == 3
    assert "the final model (step 6): same content as checkpoint-6" in done.stdout


def test_two_probes_of_one_folder(probe, run, suite):
    from llamafactory_obs.probe.ledger import Lock

    lock = Lock(run / "obs" / "probe")
    lock.acquire()
    try:
        done = probe(run, "--suite", suite, *LOCAL)
    finally:
        lock.release()
    assert done.returncode == 2 and f"pid {os.getpid()}" in done.stderr and len(done.stderr.splitlines()) == 1


def test_without_any_record_the_adapter_names_its_base(probe, run, suite):
    shutil.rmtree(run / "obs")
    done = probe(run, "--suite", suite, "--template", "qwen3_nothink", *LOCAL)
    assert done.returncode == 1 and done.stdout.count("── checkpoint-") == 3, done.stderr
    assert "given by --template" in done.stdout and "untuned base model" in done.stdout


def test_an_incomplete_checkpoint_is_named(probe, run, suite):
    (run / "checkpoint-4" / "trainer_state.json").unlink()
    weights = run / "checkpoint-6" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    done = probe(run, "--suite", suite, "--no-baseline", *LOCAL)
    assert done.stdout.count("── checkpoint-") == 1 and "checkpoint-4" in done.stdout
    assert "trainer_state.json" in done.stdout and "adapter_model.safetensors" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["/no/such/folder"], "no such folder"),
        ([ROOT / "README.md"], "is a file"),
        ([ROOT, "--suite", "/none.yaml"], "cannot be read"),
        ([ROOT, "--poll", "0"], "--poll"),
        ([ROOT, "--backend", "vlm"], "invalid choice"),
        ([ROOT, "--tool-format", "qwem"], "did you mean 'qwen'"),
        ([ROOT, "--template", "qwen33"], "did you mean 'qwen3"),
        ([], "DIR"),
        (["x/checkpoint-4", "--watch"], "leave --watch out"),
    ],
)
def test_a_wrong_call_is_one_line(probe, llamafactory, words, said):
    done = probe(*words)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_folder_without_checkpoints(probe, tmp_path, suite):
    (tmp_path / "empty").mkdir()
    done = probe(tmp_path / "empty", "--suite", suite, *LOCAL)
    assert done.returncode == 1 and "no checkpoint was probed" in done.stdout


def test_one_checkpoint_is_about_that_one(probe, learned, model, tmp_path):
    """The exit code and the rows are those of the checkpoint that was named, whatever the others do."""
    run, suite = tmp_path / "run", write_suite(tmp_path, ANSWERS_BETA)
    shutil.copytree(learned, run)
    shutil.copytree(run / "checkpoint-40", run / "checkpoint-20")
    shutil.copy(model / "model.safetensors", run / "checkpoint-20" / "model.safetensors")
    state = run / "checkpoint-20" / "trainer_state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "global_step": 20}))
    assert probe(run, "--suite", suite, "--no-baseline", *LOCAL).returncode == 0
    done = probe(run / "checkpoint-20", "--suite", suite, "--json", *LOCAL, "--no-baseline")
    assert done.returncode == 1
    assert [json.loads(line)["checkpoint"] for line in done.stdout.splitlines()] == ["checkpoint-20"]


def test_a_newer_checkpoint_that_is_no_good_is_not_fine(probe, learned, tmp_path):
    run, suite = tmp_path / "run", write_suite(tmp_path, ANSWERS_BETA)
    shutil.copytree(learned, run)
    shutil.copytree(run / "checkpoint-40", run / "checkpoint-60")
    (run / "checkpoint-60" / "trainer_state.json").write_text("")
    done = probe(run, "--suite", suite, "--no-baseline", *LOCAL)
    assert done.returncode == 1 and "checkpoint-60" in done.stdout


def test_another_template_asks_anew(probe, run, suite):
    words = (run / "checkpoint-2", "--suite", suite, "--no-baseline", *LOCAL)
    probe(*words, "--template", "default")
    done = probe(*words, "--template", "qwen3")
    assert done.stdout.count("── checkpoint-2 ──") == 1
    rows, _ = read_rows(run / "obs" / "probes.jsonl")
    assert [row["rendering"]["name"] for row in rows] == ["default"] * 2 + ["qwen3"] * 2


def test_nothing_is_written_into_a_checkpoint(probe, run, suite, monkeypatch):
    """However it is named."""
    before = (run / "checkpoint-2").stat().st_mtime_ns
    (run / "latest").symlink_to(run / "checkpoint-2")
    monkeypatch.chdir(run / "checkpoint-2")
    for place in (".", run / "latest"):
        done = probe(place, "--suite", suite, "--no-baseline", "--again", *LOCAL)
        assert done.stdout.count("── checkpoint-2 ──") == 1 and "final" not in done.stdout
    assert (run / "checkpoint-2").stat().st_mtime_ns == before
    for words in ([run, "--copies", run / "checkpoint-4" / "x"], [run / "checkpoint-4" / "obs"]):
        (run / "checkpoint-4" / "obs").mkdir(exist_ok=True)
        done = probe(*words, "--suite", suite, *LOCAL)
        assert done.returncode == 2 and "lies in a checkpoint" in done.stderr


def test_a_wrong_device_is_the_calls_fault(probe, run, suite):
    for device in ("zzz", "cuda:9"):
        done = probe(run, "--suite", suite, "--no-baseline", "--backend", "local", "--device", device)
        assert done.returncode == 2 and "--device" in done.stderr and len(done.stderr.splitlines()) == 1
    assert probe(run, "--suite", suite, "--no-baseline", *LOCAL).stdout.count("── checkpoint-") == 3


def test_a_scorer_that_does_not_import_is_said_at_once(probe, run, tmp_path):
    suite = {**SUITE, "probes": [{**SUITE["probes"][0], "expect": {"scorer": "no_such_module.judge"}}]}
    done = probe(run, "--suite", write_suite(tmp_path, suite), *LOCAL)
    assert done.returncode == 2 and "no_such_module" in done.stderr and done.stdout == ""


def test_a_template_that_this_llamafactory_does_not_know(probe, run, suite):
    """The run's own: the chat template is used and the reason said."""
    file = run / "obs" / "run.json"
    identity = json.loads(file.read_text())
    identity["config"]["resolved"]["data_args"]["template"] = "of_tomorrow"
    file.write_text(json.dumps(identity))
    done = probe(run / "checkpoint-2", "--suite", suite, "--no-baseline", *LOCAL)
    assert "of_tomorrow" in done.stdout + done.stderr and "Traceback" not in done.stderr


def test_results_that_cannot_be_written_are_not_done(probe, run, suite, monkeypatch):
    """A full disk: asked again later, and never called done."""
    from llamafactory_obs.record import writer

    whole = writer.write_whole

    def full(handle, line):
        if b'"turns"' in line:
            raise OSError(28, "No space left on device")
        whole(handle, line)

    monkeypatch.setattr(writer, "write_whole", full)
    done = probe(run / "checkpoint-2", "--suite", suite, "--no-baseline", *LOCAL, "--patience", "0")
    assert done.returncode == 1 and "cannot be written" in done.stdout
    monkeypatch.setattr(writer, "write_whole", whole)
    done = probe(run / "checkpoint-2", "--suite", suite, "--no-baseline", *LOCAL)
    assert done.stdout.count("── checkpoint-2 ──") == 1 and len(read_rows(run / "obs" / "probes.jsonl")[0]) == 2


def test_a_base_model_that_is_gone_fails_the_checkpoint_with_a_cure(probe, run, suite):
    done = probe(run / "checkpoint-2", "--suite", suite, "--model", "/no/such/model", "--no-baseline", *LOCAL)
    assert done.returncode == 1 and "--model" in done.stdout and "Traceback" not in done.stderr
    assert "checkpoint-2 was not probed" in done.stdout
