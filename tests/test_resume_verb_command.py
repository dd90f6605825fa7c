"""`resume`: the command it prints, the trackers' runs, the screen in two languages, and `--exec`."""

import json
import os
import re
import shlex
import string
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from resume_folder import RUN, cut, folder, killed, names, point  # noqa: F401
from rich.cells import cell_len
from tiny import tiny_config

import llamafactory_obs.resume
from llamafactory_obs import cli
from llamafactory_obs.resume.changes import short
from llamafactory_obs.resume.launch import Launch, environment_of, override, survives_torchrun
from llamafactory_obs.resume.show import duration, wrapped
from llamafactory_obs.texts import texts

pytest.importorskip("torch")


def call(monkeypatch, capsys, *words, lang="en"):
    """`(exit code, stdout, stderr)` of the verb."""
    monkeypatch.setenv("LLAMAFACTORY_OBS_LANG", lang)
    code = cli.main(["resume", *map(str, words)])
    return code, *capsys.readouterr()


# ---- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["out/checkpoint-8", "a b/c", "x: y", "a#b #c", "it's", "{x}", "[1]", "${HOME}", "~/x", "a=b,c", "1e5", "a'b\"c"],
)
def test_llamafactory_reads_the_path_back(path):
    from omegaconf import OmegaConf

    word = override("resume_from_checkpoint", path)
    (line,) = Launch(["run.yaml", word]).text.splitlines()
    assert shlex.split(line) == ["llamafactory-obs", "train", "run.yaml", word]
    assert OmegaConf.to_container(OmegaConf.merge({}, OmegaConf.from_cli([word]))) == {"resume_from_checkpoint": path}


def test_torchrun_gets_its_words_joined_with_blanks():
    assert survives_torchrun(["run.yaml", "a=b"]) and not survives_torchrun(["my run.yaml"])


def test_as_many_processes_as_before(monkeypatch):
    for name in ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    plain = {"launcher": "plain", "local_world_size": 1, "nodes": 1}
    assert environment_of(plain) == ({}, []) == environment_of({})
    two = {"launcher": "torchrun", "local_world_size": 2, "nodes": 1}
    assert environment_of(two) == ({"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": "2"}, [])
    environment, open_ = environment_of(two | {"nodes": 2})
    assert environment["NNODES"] == "2" and open_ == ["NODE_RANK", "MASTER_ADDR", "MASTER_PORT"]
    assert environment_of({"launcher": "ray"}) == ({"USE_RAY": "1"}, [])
    lines = Launch(["run.yaml", "a=b"], environment, open_).lines
    assert lines[0] == "FORCE_TORCHRUN=1 \\" and "NODE_RANK=... \\" in lines and lines[-1] == "  a=b"


def edit_record(folder, change):  # noqa: F811
    file = folder.out / "obs" / "run.json"
    record = json.loads(file.read_text())
    change(record)
    file.write_text(json.dumps(record))


def test_two_processes_go_on_as_two(folder, monkeypatch):  # noqa: F811
    world = {"launcher": "torchrun", "world_size": 2, "local_world_size": 2, "nodes": 1}
    edit_record(folder, lambda record: record["world"].update(world))
    for rank in (0, 1):
        (folder.newest / f"rng_state_{rank}.pth").write_bytes((folder.newest / "rng_state.pth").read_bytes())
    (folder.newest / "rng_state.pth").unlink()
    plan = folder.plan()
    assert plan.launch.environment == {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": "2"} and plan.changes == []
    assert point(plan.stands, "stands.processes").values == {"now": 1, "before": 2}
    monkeypatch.setenv("FORCE_TORCHRUN", "1")
    monkeypatch.setenv("NPROC_PER_NODE", "4")
    plan = folder.plan()  # four are asked for
    assert plan.launch.environment == {} and names(plan.changes) == ["changed.larger_batch"]
    same = folder.plan(per_device_train_batch_size=1)
    assert names(same.changes) == ["changed.same_batch_processes"] and same.exit_code == 1


# ---- trackers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "run", "environment", "overrides"),
    [
        (
            "wandb",
            {"id": "abc", "project": "p", "entity": None, "offline": False},
            {"WANDB_RUN_ID": "abc", "WANDB_RESUME": "allow", "WANDB_PROJECT": "p"},
            [],
        ),
        ("mlflow", {"id": "abc", "experiment": "0"}, {"MLFLOW_RUN_ID": "abc"}, []),
        ("tensorboard", {"dir": "out/runs/x"}, {"TENSORBOARD_LOGGING_DIR": "out/runs/x"}, []),
        ("trackio", {"name": "dainty-0", "project": "huggingface"}, {}, ["run_name=dainty-0"]),
        ("swanlab", {"id": "abc"}, {"SWANLAB_RUN_ID": "abc", "SWANLAB_RESUME": "allow"}, []),
    ],
)
def test_a_tracker_goes_on_in_its_old_run(folder, monkeypatch, name, run, environment, overrides):  # noqa: F811
    keys = {"use_swanlab": True} if name == "swanlab" else {"report_to": name}
    if name == "swanlab":
        pytest.importorskip("swanlab", reason="swanlab is not installed: make test-slow")
    monkeypatch.chdir(folder.place)
    unknown = folder.plan(**keys)
    assert names(unknown.trackers.points) == ["tracker.unknown"] and unknown.exit_code == 1
    edit_record(folder, lambda record: record["segments"][-1].update(trackers={name: run}))
    plan = folder.plan(**keys)
    assert plan.launch.environment == environment and plan.launch.words[2:] == overrides
    assert names(plan.trackers.points) == [f"tracker.{name}"] and plan.exit_code == 0
    for variable in environment:
        if variable.endswith(("_ID", "_DIR")):
            monkeypatch.setenv(variable, "mine")
            assert names(folder.plan(**keys).trackers.points) == ["tracker.own"]


def test_wandb_by_its_local_files(folder, monkeypatch):  # noqa: F811
    monkeypatch.chdir(folder.place)
    for name, out in (("run-20260101_000000-other", "/else"), ("offline-run-20250101_000000-mine", folder.out)):
        place = folder.place / "wandb" / name
        place.mkdir(parents=True)
        (place / f"run-{name.rpartition('-')[2]}.wandb").write_bytes(
            b'\x0a\x05output_dir\x12"%s"\x00' % str(out).encode()
        )
    plan = folder.plan(report_to="wandb")
    assert plan.launch.environment["WANDB_RUN_ID"] == "mine"
    assert names(plan.trackers.points) == ["tracker.wandb", "tracker.offline"]


# ---- what is shown --------------------------------------------------------------------------------------------------


def test_one_screen_in_both_languages(folder, monkeypatch, capsys):  # noqa: F811
    cut(folder.newest / "optimizer.pt")
    monkeypatch.chdir(folder.place)  # a path cannot be broken
    config = folder.config(output_dir="out", learning_rate=1e-5, max_steps=20, report_to="tensorboard").name
    first = {}
    for lang in ("en", "zh"):
        code, out, _ = call(monkeypatch, capsys, config, "per_device_train_batch_size=4", lang=lang)
        assert code == 1
        screen, _, command = out.partition(f"\n{texts('resume', lang)['label.command']}\n")
        to_copy = texts("resume", lang)["label.do"]  # a command stays whole
        lines = [line for line in screen.splitlines() if to_copy not in line]
        assert max(map(cell_len, lines)) <= 80 and len(screen.splitlines()) < 45
        words = shlex.split(command.replace("\\\n", ""))
        assert words[:3] == ["llamafactory-obs", "train", "run.yaml"]
        assert words[-1] == "resume_from_checkpoint=out/checkpoint-4" and "\x1b" not in out
        first[lang] = screen.splitlines()[0]
    assert first["en"].startswith("CONTINUES, BUT NOT EXACTLY") and "checkpoint-4" in first["zh"] != first["en"]


def test_json_is_one_object_in_english(folder, monkeypatch, capsys):  # noqa: F811
    code, out, _ = call(monkeypatch, capsys, folder.config(learning_rate=1e-5), "--json", lang="zh")
    found = json.loads(out)
    assert (code, found["verdict"], found["may_start"]) == (1, "continues, changed", False)
    assert found["as_it_stands"]["does"] == "resume" and found["checkpoint"]["step"] == 8
    assert found["left"]["steps"] == 4 and found["command"]["words"][:2] == ["llamafactory-obs", "train"]
    assert out.isascii() and found["points"][0]["fix"].startswith("llamafactory-obs control")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothere.yaml"], "no such file"),
        (["run.yaml", "--from", "99"], "there are checkpoint-4, checkpoint-8"),
        (["run.yaml", "--accept"], "--accept is for --exec"),
        (["run.yaml", "do_train=false"], "do_train is not true"),
        (["run.yaml", "learning_rate=fast"], "learning_rate"),
    ],
)
def test_a_wrong_call_is_one_line(folder, monkeypatch, capsys, words, said):  # noqa: F811
    folder.config()
    monkeypatch.chdir(folder.place)
    code, out, err = call(monkeypatch, capsys, *words)
    assert code == 2 and out == "" and said in err and err.count("\n") == 1


def test_every_text_is_there_in_both_languages():
    english, chinese = texts("resume", "en"), texts("resume", "zh")
    fields = {lang: {key: _fields(said) for key, said in of.items()} for lang, of in (("en", english), ("zh", chinese))}
    assert fields["en"] == fields["zh"]
    source = "".join(file.read_text() for file in Path(llamafactory_obs.resume.__file__).parent.glob("*.py"))
    used = set(re.findall(r'"((?:stands|state|lost|changed|agree|left|tracker)\.\w+)"', source))
    assert used and used <= set(english)


def _fields(said):
    return {name for _, name, _, _ in string.Formatter().parse(said) if name}


def test_words_for_numbers_and_lines():
    assert [duration(one) for one in (42, 600, 19200, 183600)] == ["42 s", "10 min", "5 h 20 min", "2 d 3 h"]
    assert [short(one) for one in (1e-5, None, True, ["a", "b"])] == ["1e-05", "null", "true", "a,b"]
    said = "学习率曲线会重新计算，一步之后发生跳变。" * 6
    lines = wrapped("  ", said)
    assert all(cell_len(line) <= 80 for line in lines) and "".join(line.strip() for line in lines) == said
    assert not any(line.strip()[0] in "，。" for line in lines)


# ---- --exec ---------------------------------------------------------------------------------------------------------


def test_exec_starts_only_what_continues(folder, monkeypatch, capsys):  # noqa: F811
    started = []
    monkeypatch.setattr(Launch, "start", lambda launch, to_stderr: started.append((launch.text, to_stderr)))
    config = folder.config()
    code, _, err = call(monkeypatch, capsys, config, "learning_rate=1e-5", "--exec")
    assert (code, started) == (1, []) and "--accept" in err
    call(monkeypatch, capsys, config, "learning_rate=1e-5", "--exec", "--accept", "--json")
    call(monkeypatch, capsys, config, "--exec")
    assert [one[1] for one in started] == [True, False] and "learning_rate=1e-5" in started[0][0]
    started.clear()
    code, _, err = call(monkeypatch, capsys, config, "max_steps=8", "--exec", "--accept")
    assert (code, started) == (1, []) and "cannot be resumed" in err


@pytest.mark.slow
def test_a_killed_run_goes_on_in_its_wandb_run(llamafactory, model, data, tmp_path):
    """kill -9 at step 6 of 10, the newest checkpoint torn, `resume --exec` with a callback that ends with code 7."""
    pytest.importorskip("wandb", reason="wandb is not installed: make test-slow")
    (tmp_path / "ends.py").write_text(
        "import os\n"
        "from transformers import TrainerCallback\n"
        "class Ends(TrainerCallback):\n"
        "    def on_step_end(self, args, state, control, **kwargs):\n"
        "        if state.global_step == 7 and not os.path.exists('killed'):\n"
        "            open('killed', 'w').close()\n"
        "            os.kill(os.getpid(), 9)\n"
        "    def on_train_end(self, args, state, control, **kwargs):\n"
        "        os._exit(7)\n"
    )
    keys = RUN | {"max_steps": 10, "save_steps": 3, "report_to": "wandb"}
    keys["callbacks"] = ["grad_norm_spike", f"{tmp_path}/ends.py:Ends"]
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(tiny_config(model, data, tmp_path / "out", **keys)))
    environment = os.environ | {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_PROJECT": "tiny"}

    def verb(*words):
        line = [sys.executable, "-m", "llamafactory_obs.cli", *words]
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)

    assert verb("train", "run.yaml").returncode == -9
    cut(tmp_path / "out" / "checkpoint-6" / "optimizer.pt")
    ended = verb("resume", "run.yaml", "--exec", "--json")
    assert ended.returncode == 7, ended.stderr  # the training's own
    plan = json.loads(ended.stdout)
    assert (plan["exact"], plan["checkpoint"]["name"]) == (True, "checkpoint-3")
    rows = [json.loads(line) for line in (tmp_path / "out" / "trainer_log.jsonl").read_text().splitlines()]
    rates = [(row["current_steps"], row["lr"]) for row in rows if "lr" in row]
    first, again = dict(rates[:-7]), rates[-7:]
    assert [step for step, _ in again] == [4, 5, 6, 7, 8, 9, 10]
    assert all(rate == first[step] for step, rate in again if step in first) and 4 in first
    segments = json.loads((tmp_path / "out" / "obs" / "run.json").read_text())["segments"]
    ids = {one["trackers"]["wandb"]["id"] for one in segments}
    assert len(segments) == 2 and len(ids) == 1
    folders = sorted(one.name.rpartition("-")[2] for one in (tmp_path / "wandb").glob("offline-run-*"))
    assert folders == [*ids] * 2
