"""`diagnose` on what is no file, on names that act on a terminal, and on targets that must not be replaced."""

import io
import json
import math
import os
import stat
import subprocess
import sys
from dataclasses import replace

import pytest
from diagnose_curves import curves, falling

from llamafactory_obs.cli import main
from llamafactory_obs.detect import Finding
from llamafactory_obs.diagnosis.causes.ordinary import short
from llamafactory_obs.diagnosis.judge import judge
from llamafactory_obs.diagnosis.page import render
from llamafactory_obs.diagnosis.remedies import Known, with_remedies
from llamafactory_obs.diagnosis.result import Diagnosis
from llamafactory_obs.diagnosis.show import show
from llamafactory_obs.logs.join import join
from llamafactory_obs.logs.read import read
from llamafactory_obs.logs.record import sound


def _log(folder, name="log.jsonl", **more):
    rows = [{"step": i + 1, "loss": loss, **more} for i, loss in enumerate(falling(60))]
    (folder / name).write_text("\n".join(map(json.dumps, rows)))
    return folder / name


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.mark.parametrize("verb", ["diagnose", "timeline"])
def test_a_pipe_is_refused_and_not_waited_for(verb, pipe, capsys):
    assert main([verb, str(pipe)]) == 2
    told = capsys.readouterr().err.strip()
    assert "no regular file" in told and "\n" not in told


def test_a_pipe_is_no_config(tmp_path, pipe, capsys):
    words = ["diagnose", str(_log(tmp_path)), "--write-config", str(tmp_path / "next.yaml"), "--from", str(pipe)]
    assert main(words) == 2 and "is no file" in capsys.readouterr().err
    assert not (tmp_path / "next.yaml").exists()


@pytest.mark.parametrize("text", ["[" * 5000, "a: 2024-99-99"])
def test_a_config_that_yaml_chokes_on_is_one_line(text, tmp_path, capsys):
    (tmp_path / "run.yaml").write_text(text)
    words = ["diagnose", str(_log(tmp_path)), "--write-config", str(tmp_path / "next.yaml")]
    assert main([*words, "--from", str(tmp_path / "run.yaml")]) == 2
    assert "is no YAML" in capsys.readouterr().err


def test_the_page_never_replaces_what_is_no_file(tmp_path, pipe, capsys):
    """A pipe stands here for a device: root could replace /dev/null with a page."""
    assert main(["diagnose", str(_log(tmp_path)), "--html", str(pipe)]) == 2
    assert "not overwritten" in capsys.readouterr().err and stat.S_ISFIFO(pipe.stat().st_mode)


def test_the_page_goes_where_a_link_leads(tmp_path, capsys):
    (tmp_path / "link.html").symlink_to("page.html")
    assert main(["diagnose", str(_log(tmp_path)), "--html", str(tmp_path / "link.html")]) == 0
    assert (tmp_path / "link.html").is_symlink() and (tmp_path / "page.html").read_text().startswith("<!doctype")


@pytest.mark.parametrize("text", ["[]", '{"log_history": []}', '{"log_history": [1, null]}'])
def test_a_log_without_rows_is_not_called_healthy(text, tmp_path, capsys):
    (tmp_path / "trainer_state.json").write_text(text)
    assert main(["diagnose", str(tmp_path / "trainer_state.json")]) == 2
    told = capsys.readouterr()
    assert "nothing has been logged" in told.err and "healthy" not in told.out


@pytest.mark.parametrize("verb", ["diagnose", "timeline"])
def test_names_from_outside_do_not_reach_the_terminal_raw(verb, tmp_path, capsys):
    rows = [{"step": i + 1, "loss": loss} for i, loss in enumerate(falling(60))]
    for i, row in enumerate(rows[5::6]):
        row["eval_\x1b[31mset_loss"] = 1.0 + 0.1 * i
    log = tmp_path / "a\x1b[2Jb.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)))
    main([verb, str(log)])
    told = capsys.readouterr()
    assert "\x1b[2J" not in told.out and "\x1b[31m" not in told.out and "\\x1b[2J" in told.out


def test_a_folder_is_preference_where_one_of_its_two_logs_shows_it():
    log, state = curves(falling(30)), curves(falling(30), kind="preference")
    assert join(log, state).kind == "preference"
    assert join(curves(falling(30)), curves(falling(30), kind="not_a_training_log")).kind == "sft"


def test_many_findings_fold_and_an_unknown_cause_is_no_probability():
    losses = falling(400)
    losses[300:] = [8 * loss for loss in losses[300:]]
    run = curves(losses, lr=[1e-4] * 400)
    out = io.StringIO()
    show(run, judge(run), out)
    text = " ".join(out.getvalue().split())
    page = render(run, judge(run))
    assert "not enough evidence for any" in page and "<b>unknown</b>" not in page
    assert "cause: not enough evidence. Log next time:" in text and "unknown (" not in text
    assert "for the next run's YAML: learning_rate: 5e-05" in text
    assert "a resume keeps the old rate whatever the YAML says" in text


WRONG = [None, True, "x", [], [1], {"a": 1}, -1, 1e308, 10**400, math.nan]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_record_whose_parts_have_other_types(wrong, tmp_path):
    """Each part of run.json that others rely on, and a number per layer, is replaced in turn."""
    rows = [{"step": i + 1, "train/loss": loss, "train/lr": 0.3} for i, loss in enumerate(falling(60))]
    rows[30]["train/loss"] *= 9
    parts = {
        "model": {"parameters": {"total": 37_648, "trainable": 100, "dtypes": {"float32": 37_648}}},
        "hardware": {"gpus": [{"memory_gib": 80}]},
        "world": {"world_size": 1, "engine": "single"},
        "precision": {"compute": "bf16"},
    }
    ways = [(name,) for name in parts]
    ways += [(name, key) for name, part in parts.items() for key in part]
    ways += [("model", "parameters", "total"), ("model", "parameters", "trainable")]
    (tmp_path / "obs").mkdir()
    (tmp_path / "obs" / "steps.jsonl").write_text("\n".join(map(json.dumps, rows)))
    layers = [{"segment": 0, "names": ["a", "b"], "modules": []}]
    layers += [{"segment": 0, "step": 10, "update_ratio": [wrong, 0.1], "weight_norm": [2.0, wrong]}]
    (tmp_path / "obs" / "layers.jsonl").write_text("\n".join(map(json.dumps, layers)))
    for way in ways:
        run = json.loads(json.dumps(parts))
        place = run
        for key in way[:-1]:
            place = place[key]
        place[way[-1]] = wrong
        (tmp_path / "obs" / "run.json").write_text(json.dumps(run))
        assert judge(read(tmp_path)).verdict == "spike"


def test_a_sound_record_keeps_its_parts(tmp_path):
    whole = {"model": {"parameters": {"total": 3, "dtypes": {"float32": 3}}}, "world": {"world_size": 2, "engine": "x"}}
    assert sound(whole) == whole


def test_a_closed_stdout_is_no_crash(tmp_path):
    for more in ([], ["--json"]):
        words = [sys.executable, "-m", "llamafactory_obs.cli", "diagnose", str(_log(tmp_path)), *more]
        done = subprocess.run(["bash", "-c", 'exec "$@" >&-', "bash", *words], capture_output=True, text=True)
        assert "Traceback" not in done.stderr and done.returncode == 0


def test_huge_numbers_are_readable():
    assert short(2e32) == "2e+32" and short(1_234_567.0) == "1,234,567"


def test_of_many_findings_the_worst_are_told_and_the_rest_fold():
    names = ["overfit", "lr_anomaly", "jitter", "throughput_drop", "low_gpu_use", "plateau", "stairs", "vram_growth"]
    found = [Finding(name, "warn", 9, f"{name} is told. At length.", {"since": 9}, "keep") for name in names]
    diagnosis = Diagnosis("run", "obs", "sft", 60, "overfit", "keep", "", findings=found)
    out = io.StringIO()
    show(curves(falling(60)), diagnosis, out)
    full, also = out.getvalue().split("Also seen:")
    assert full.count("At length.") == 5 and "At length." not in also
    assert [name for name in names if f"{name} is told" in also] == names[5:]


def test_a_recorded_run_is_told_how_to_halve_its_rate_on_a_resume(tmp_path):
    known = Known(peak_rate=1e-4, checkpoints={40: tmp_path / "checkpoint-40"}, recorded=tmp_path)
    kill = Finding("diverged", "error", 60, "It diverged.", {"since": 50}, "kill")
    told = with_remedies(kill, known).text
    assert f"`llamafactory-obs control {tmp_path} --lr-scale 0.5 --queue`" in told and "checkpoint-40" in told
    assert "control" not in with_remedies(kill, replace(known, recorded=None)).text
