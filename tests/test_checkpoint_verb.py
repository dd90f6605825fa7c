"""`llamafactory-obs checkpoint DIR`: runs in one folder, the newest good one, exit codes, JSON, the terminal."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from checkpoint_folder import at_rest, edit, listing, plant, rewrite

from llamafactory_obs.checkpoint.examine import Depth
from llamafactory_obs.checkpoint.folder import examine_folder
from llamafactory_obs.checkpoint.show import age, size
from llamafactory_obs.cli import main

QUICK, READ = Depth(values=False), Depth()


def verb(capsys, *words: str) -> tuple[int, str]:
    capsys.readouterr()  # a fixture's training prints, too
    code = main(["checkpoint", *map(str, words)])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("which", ["lora_smoke", "full_smoke"])
def test_a_real_run_is_fine(request, which, capsys):
    folder = request.getfixturevalue(which).folder
    before = listing(folder)
    code, out = verb(capsys, folder, "--no-load", "--json")
    found = json.loads(out)
    assert code == 0 and found["fine"] and found["run_told_by"] == "the record"
    [one] = found["checkpoints"]
    assert one["verdict"] == "resumes exactly" and one["run"] == "this" and one["lost"] == []
    assert one["resumes"] and one["serves"] and one["epoch"] > 0 and one["loaded"]["loaded"] is None
    assert {part["name"] for part in one["parts"]} >= {"weights", "tokenizer", "optimizer", "scheduler", "rng", "data"}
    assert found["final"]["verdict"] == "serves"
    assert found["newest_good"]["resume"]["step"] == 10 and found["newest_good"]["serve"]["name"] == "final"
    assert listing(folder) == before


def test_one_checkpoint_under_any_name(lora_smoke, tmp_path, capsys):
    code, out = verb(capsys, lora_smoke.checkpoint(), "--quick", "--json")
    [one] = json.loads(out)["checkpoints"]
    assert code == 0 and one["step"] == 10 and one["run"] == "this" and json.loads(out)["final"] is None
    shutil.copytree(lora_smoke.checkpoint(), tmp_path / "my best")
    at_rest(tmp_path / "my best")
    code, out = verb(capsys, tmp_path / "my best", "--no-load", "--json")
    [one] = json.loads(out)["checkpoints"]
    assert code == 0 and one["step"] == 10 and one["verdict"] == "resumes exactly"


def test_the_newest_good_one_is_found_below_broken_ones(lora_smoke, tmp_path, capsys):
    for step in (10, 20, 30, 40):
        plant(lora_smoke.checkpoint(), tmp_path, step)
    (tmp_path / "checkpoint-40" / "trainer_state.json").unlink()
    os.truncate(tmp_path / "checkpoint-30" / "optimizer.pt", 100)
    code, out = verb(capsys, tmp_path, "--no-load", "--json")
    found = json.loads(out)
    assert code == 1 and "checkpoint-40" in found["flaw"]
    assert found["newest_good"]["resume"]["name"] == "checkpoint-20"
    assert found["newest_good"]["serve"]["name"] == "checkpoint-40"  # its weights are whole
    code, out = verb(capsys, tmp_path, "--no-load")
    assert "to resume from: checkpoint-20" in out and "not fine: checkpoint-40" in out and "optimizer.pt" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_run_that_saves_the_model_only_is_good_for_serving(warm_smoke, capsys):
    code, out = verb(capsys, warm_smoke.folder, "--no-load", "--json")
    found = json.loads(out)
    [one] = found["checkpoints"]
    assert one["verdict"] == "warm start only" and set(one["lost"]) == {"optimizer", "scheduler", "rng"}
    assert one["resumes"] and found["newest_good"]["resume"] is None and code == 0


def test_without_the_rng_it_is_warned_of_only(lora_smoke, tmp_path):
    plant(lora_smoke.checkpoint(), tmp_path, 20)
    (tmp_path / "checkpoint-20" / "rng_state.pth").unlink()
    at_rest(tmp_path / "checkpoint-20")
    report = examine_folder(tmp_path, depth=READ)
    [one] = report.checkpoints
    assert one.verdict.verdict == "warm start only" and one.verdict.lost == ["rng"] and not one.verdict.grave
    assert report.flaw == "" and report.resume is one


def test_data_that_is_not_skipped_is_a_loss(lora_smoke, tmp_path, monkeypatch):
    plant(lora_smoke.checkpoint(), tmp_path, 20)
    real = examine_folder(tmp_path, depth=QUICK)
    assert real.checkpoints[0].verdict.lost == []
    from llamafactory_obs.checkpoint import run_of

    told = run_of.training_args
    monkeypatch.setattr(run_of, "training_args", lambda file: {**told(file), "ignore_data_skip": True})
    report = examine_folder(tmp_path, depth=QUICK)
    assert report.checkpoints[0].verdict.lost == ["data"] and report.flaw


def test_checkpoints_of_an_older_run_are_told_apart_by_their_log(lora_smoke, full_smoke, tmp_path):
    for step in (10, 20):
        plant(lora_smoke.checkpoint(), tmp_path, step)
    old = plant(full_smoke.checkpoint(), tmp_path, 30)  # a higher number, as an older and longer run leaves it
    for path in old.iterdir():
        os.utime(path, (time.time() - 9e4,) * 2)
    report = examine_folder(tmp_path, depth=QUICK)
    assert [one.run for one in report.checkpoints] == ["this", "this", "older"]
    assert "another than checkpoint-20's from step 1 on" in report.checkpoints[2].run_why
    assert report.resume.name == "checkpoint-20" and "checkpoint-30 is of another run" in report.flaw
    # copied just now, without its times: LlamaFactory's own log knows better
    at_rest(old)
    shutil.copy(lora_smoke.folder / "trainer_log.jsonl", tmp_path)
    report = examine_folder(tmp_path, depth=QUICK)
    assert [one.run for one in report.checkpoints] == ["this", "this", "older"] and report.source == "trainer_log.jsonl"


def test_the_record_says_which_run_it_is(lora_smoke, full_smoke, tmp_path):
    folder = lora_smoke.copy(tmp_path).folder
    shutil.copytree(full_smoke.checkpoint(), folder / "checkpoint-11")
    edit(folder / "checkpoint-11" / "trainer_state.json", lambda state: state.update(global_step=11))
    report = examine_folder(folder, depth=QUICK)
    assert [one.run for one in report.checkpoints] == ["this", "older"]
    assert "not that of the record" in report.checkpoints[1].run_why
    # a log without a line in common: then the times say it
    edit(folder / "checkpoint-11" / "trainer_state.json", lambda state: state.update(log_history=[]))
    os.utime(folder / "checkpoint-11" / "trainer_state.json", (1e9, 1e9))
    report = examine_folder(folder, depth=QUICK)
    assert report.checkpoints[1].run == "older" and "before this run began" in report.checkpoints[1].run_why


def test_a_resumed_run_is_one_run(lora_smoke, tmp_path):
    plant(lora_smoke.checkpoint(), tmp_path, 10)
    late = plant(lora_smoke.checkpoint(), tmp_path, 20)
    more = {"step": 20, "loss": 1.0, "learning_rate": 5.0, "grad_norm": 1.0, "epoch": 2.0}
    edit(late / "trainer_state.json", lambda state: (state["log_history"].append(more), state.update(max_steps=40)))
    at_rest(late)
    assert [one.run for one in examine_folder(tmp_path, depth=QUICK).checkpoints] == ["this", "this"]


def test_a_save_under_way_is_not_called_good(lora_smoke, tmp_path):
    one = plant(lora_smoke.checkpoint(), tmp_path, 20)
    (one / ".tmpA1b2C3").write_bytes(b"x")
    report = examine_folder(tmp_path, depth=QUICK)
    assert report.checkpoints[0].verdict.verdict == "broken" and ".tmpA1b2C3" in report.flaw
    (one / ".tmpA1b2C3").unlink()
    at_rest(one)
    assert not examine_folder(tmp_path, depth=QUICK).flaw
    os.utime(one / "adapter_model.safetensors")  # a resumed run writes the same step anew
    report = examine_folder(tmp_path, depth=QUICK)
    assert report.checkpoints[0].moving and report.resume is None and "being written" in report.flaw


def test_a_base_model_can_be_named(lora_smoke, tmp_path, capsys):
    from tiny import tiny_model

    other = tiny_model(tmp_path / "other", layers=2)
    code, out = verb(capsys, lora_smoke.checkpoint(), "--base", other, "--quick", "--json")
    [one] = json.loads(out)["checkpoints"]
    assert code == 1 and "7 of its 21 modules are not in the base model" in one["reasons"][0]
    plant(lora_smoke.checkpoint(), tmp_path, 20)
    edit(tmp_path / "checkpoint-20/adapter_config.json", lambda c: c.update(base_model_name_or_path="nobody/none"))
    one = examine_folder(tmp_path, depth=READ, loader=None).checkpoints[0]
    assert one.verdict.serves and one.verdict.verdict == "resumes exactly"  # by its files


def test_the_final_model_is_judged_too(full_smoke, tmp_path):
    folder = full_smoke.copy(tmp_path).folder
    rewrite(folder / "model.safetensors", lambda t: {k: v * float("nan") for k, v in t.items()})
    report = examine_folder(folder, depth=READ)
    assert report.final.verdict.verdict == "broken" and "NaN" in report.final.verdict.reasons[0]
    assert report.serve.name == "checkpoint-10" and report.flaw == ""


def test_hashes_of_all_files(lora_smoke, capsys):
    import hashlib

    _, out = verb(capsys, lora_smoke.checkpoint(), "--no-load", "--hash", "--json")
    [one] = json.loads(out)["checkpoints"]
    rows = {row["file"]: row["sha256"] for row in one["files"]["files"]}
    for name in ("optimizer.pt", "adapter_model.safetensors"):
        assert rows[name] == hashlib.sha256((lora_smoke.checkpoint() / name).read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "no such folder"),
        (["run.yaml"], "a file, not a folder"),
        (["."], "no checkpoint-N and no model"),
        ([".", "--quick", "--hash"], "name one of them"),
        ([".", "--quick", "--no-load"], "not allowed with"),
        ([".", "--base", "nobody/none"], "no such model"),
    ],
)
def test_a_wrong_call_is_one_line(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").touch()
    assert main(["checkpoint", *words]) == 2
    told = capsys.readouterr()
    assert said in told.err and len(told.err.splitlines()) == 1 and not told.out


def test_a_quick_look_imports_no_torch(lora_smoke):
    code = "import sys; from llamafactory_obs.cli import main; main(['checkpoint', sys.argv[1], '--quick']); "
    code += "print({'torch', 'transformers', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code, lora_smoke.folder], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()", done.stdout


def test_the_last_step_of_a_run_and_its_copy_under_another_number(lora_smoke, tmp_path):
    end = plant(lora_smoke.checkpoint(), tmp_path, 20)
    edit(end / "trainer_state.json", lambda state: state.update(max_steps=20))
    shutil.copytree(end, tmp_path / "checkpoint-30")
    over, copy = examine_folder(tmp_path, depth=QUICK).checkpoints
    said = next(part.why for part in over.parts if part.name == "data")
    assert said == "nothing is left to train: step 20 of 20; a resume makes one step more, past the schedule"
    assert "nothing is left" not in " ".join(part.why for part in copy.parts) and copy.verdict.verdict == "broken"


def test_sizes_and_ages():
    assert [size(n) for n in (12, 524_000, 16_000_000_000)] == ["12 B", "524 kB", "16 GB"]
    assert [age(100.0 - s, 100.0) for s in (5, -5)] == ["5 s", "?"] and age(0.0, 9.0) == "?"
    assert [age(1e6, 1e6 + s) for s in (90, 7200, 864000)] == ["1.5 min", "2 h", "10 d"]


@pytest.mark.slow
def test_it_is_loaded_in_a_process_of_its_own(full_smoke, capsys):
    code, out = verb(capsys, full_smoke.folder, "--device", "cpu", "--json")
    loaded = json.loads(out)["checkpoints"][0]["loaded"]
    assert code == 0 and loaded["loaded"] and loaded["nonfinite"] == 0 and loaded["logits"] == 8 * loaded["shape"][-1]


@pytest.mark.slow
@pytest.mark.parametrize("saved", ["FULL_STATE_DICT", "SHARDED_STATE_DICT"])
def test_fsdp_saves_of_two_ranks(model, data, tmp_path, saved):
    from test_ranks import torchrun
    from tiny import tiny_config

    config = tiny_config(model, data, tmp_path / "out", max_steps=4, save_steps=4)
    done = torchrun("train", {**config, "fsdp2": saved})
    assert done.returncode == 0, done.stderr[-2000:]
    folder = tmp_path / "out" / "checkpoint-4"
    one = examine_folder(folder, depth=READ).checkpoints[0]
    assert one.verdict.verdict == "resumes exactly" and one.verdict.serves is (saved == "FULL_STATE_DICT")
    assert [part.state for part in one.parts if part.name == "rng"] == ["good", "good"]
    victim = "optimizer.bin" if saved == "FULL_STATE_DICT" else "optimizer_0/__1_0.distcp"
    os.truncate(folder / victim, 1000)
    one = examine_folder(folder, depth=READ).checkpoints[0]
    assert one.verdict.verdict == "broken" and victim in one.verdict.reasons[0]
