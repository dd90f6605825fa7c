"""The command line: starts light, one object with --json, exit codes, errors in one line."""

import json
import os
import subprocess
import sys

import pytest

from llamafactory_obs import __version__, cli, load_record
from llamafactory_obs.errors import ConfigError
from llamafactory_obs.plugin import launch, registry

WITHOUT_AUTOLOAD = {"LLAMAFACTORY_OBS_AUTOLOAD": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def assert_one_line(capsys, *parts: str) -> None:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("llamafactory-obs: ") and err.count("\n") == 1, err
    for part in parts:
        assert part in err


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from llamafactory_obs import cli; code = cli.main(['--help']);"
        "print(code, [m for m in ('torch', 'transformers', 'yaml', 'llamafactory') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"
    for verb in ("train", "board", "callbacks", "doctor", "init"):
        assert verb in done.stdout


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"llamafactory-obs {__version__}\n"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "no verb given"),
        (["doctro"], "did you mean 'doctor'"),
        (["zzz"], "known: train"),
        (["doctor", "--jsno"], "--jsno"),
        (["init", "a", "b"], "unrecognized arguments: b"),
        (["init", "a", "--force", "b=1"], "unrecognized arguments: b=1"),
        (["mask", "a.yaml", "--json", "b"], "unrecognized arguments: b"),
        (["resume", "a.yaml", "--exec", "--x"], "unrecognized arguments: --x"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(capsys, words, part):
    assert cli.main(words) == 2
    assert_one_line(capsys, part)


def test_overrides_may_follow_an_option(monkeypatch):
    from llamafactory_obs.preflight import command

    seen = []
    monkeypatch.setattr(command, "run", lambda request: seen.append(request) or 0)
    assert cli.main(["preflight", "run.yaml", "a=1", "--gate", "mask", "b=2", "--json", "c.d=3"]) == 0
    assert seen[0].overrides == ("a=1", "b=2", "c.d=3") and seen[0].wish.gates == ("mask",) and seen[0].as_json


@pytest.mark.parametrize("error, code", [(ConfigError("two\nlines"), 2), (KeyboardInterrupt(), 130)])
def test_errors_of_a_verb(capsys, monkeypatch, error, code):
    def fail(args):
        raise error

    monkeypatch.setattr(cli, "_doctor", fail)
    assert cli.main(["doctor"]) == code
    if code == 2:
        assert_one_line(capsys, "two lines")
    else:
        assert capsys.readouterr() == ("", "")


def test_a_reader_that_stops_is_no_error(tmp_path):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "llamafactory_obs.cli", "init", str(tmp_path), "--json"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


# ---- callbacks ------------------------------------------------------------------------------------------------------


@pytest.fixture
def transformers():
    return pytest.importorskip("transformers", reason="transformers is not installed")


def test_callbacks_as_json(capsys, monkeypatch, transformers):
    monkeypatch.setattr(registry, "third_party", lambda: {"theirs": "no_such_module:Theirs"})
    assert cli.main(["callbacks", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in result["callbacks"]}
    assert set(rows) == {*registry.OWN, "early_stopping", "theirs"}
    names = {"grad_norm_spike", "layer_norms", "optimizer", "label_mask", "vram", "throughput", "system", "ranks"}
    assert names | {"samples", "probe", "quality", "diagnose", "checkpoint_guard"} == set(registry.OWN)
    for name in registry.OWN:
        assert rows[name]["doc"] and rows[name]["error"] is None
        assert all(option["doc"] and option["type"] for option in rows[name]["options"]), name
    action = next(o for o in rows["grad_norm_spike"]["options"] if o["name"] == "action")
    assert action["type"] == "warn | save | stop" and action["default"] == "warn" and not action["required"]
    assert {"name", "unit", "reduce", "doc"} == set(rows["vram"]["keys"][0])
    assert any(key["name"] == "train/grad_norm" for key in result["core_keys"])
    assert "no_such_module" in rows["theirs"]["error"]
    assert rows["early_stopping"]["options"][0]["name"] == "early_stopping_patience"


def test_callbacks_on_a_screen(capsys, transformers):
    assert cli.main(["callbacks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "    limit_gib: float | None, default null" in lines
    assert any(line.strip().startswith("system/margin_gib (GiB; min): ") for line in lines)


def test_callbacks_without_transformers(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert cli.main(["callbacks"]) == 2
    assert_one_line(capsys, "transformers", 'pip install "llamafactory-obs[train]"')


# ---- train ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "no such file"),
        ("- a\n- b\n", "one mapping"),
        ("a: [\n", "not readable YAML"),
    ],
)
def test_train_refuses_a_config_it_cannot_read(llamafactory, capsys, tmp_path, content, part):
    path = tmp_path / "run.yaml"
    if content is not None:
        path.write_text(content)
    assert cli.main(["train", str(path)]) == 2
    assert_one_line(capsys, part, "run.yaml")


def test_train_needs_a_config(llamafactory, capsys, tmp_path):
    assert cli.main(["train"]) == 2
    assert_one_line(capsys, "RUN.yaml")
    assert cli.main(["train", "run.txt"]) == 2
    assert_one_line(capsys, "run.txt", ".yaml")


def test_train_without_llamafactory(capsys, monkeypatch):
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None)
    assert cli.main(["train", "run.yaml"]) == 2
    assert_one_line(capsys, 'pip install "llamafactory-obs[train]"')


@pytest.fixture
def launcher(llamafactory, monkeypatch, tmp_path):
    """`launcher(main)`: LlamaFactory's command line replaced by `main`; returns the words of a `train` call."""
    import llamafactory.cli
    import llamafactory.launcher

    config = tmp_path / "run.yaml"
    config.write_text("stage: sft\n")

    def replace(main):
        monkeypatch.setattr(llamafactory.cli, "main", main)
        return ["train", str(config), "max_steps=3"]

    replace.module = llamafactory.launcher
    return replace


def test_train_gives_the_launcher_our_worker(launcher, monkeypatch):
    for name in WITHOUT_AUTOLOAD:
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("USE_RAY", "1")
    monkeypatch.setenv("PATH", "")
    file, argv, seen = launcher.module.__file__, sys.argv, {}

    def main():
        seen.update(file=launcher.module.__file__, argv=sys.argv, env=dict(os.environ))

    words = launcher(main)
    assert cli.main(words) == 0
    assert seen["file"] == str(launch.WORKER)
    assert seen["argv"] == ["llamafactory-cli", *words]
    assert {seen["env"][name] for name in WITHOUT_AUTOLOAD} == {"1"}  # for Ray's workers
    assert (launcher.module.__file__, sys.argv) == (file, argv)


def test_train_says_how_torchrun_ended(launcher, capsys):
    def fails():
        raise subprocess.CalledProcessError(1, ["torchrun"])

    assert cli.main(launcher(fails)) == 1
    assert_one_line(capsys, "torchrun ended with exit code 1")

    def missing():
        raise FileNotFoundError(2, "No such file or directory", "torchrun")

    assert cli.main(launcher(missing)) == 2
    assert_one_line(capsys, "torchrun is not on PATH")


def test_train_keeps_the_traceback_of_a_failed_training(launcher):
    def fails():
        raise ValueError("in the middle of training")

    with pytest.raises(ValueError, match="in the middle"):
        cli.main(launcher(fails))


def _train(tmp_path, config: dict, **environment: str) -> subprocess.CompletedProcess:
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    command = [sys.executable, "-m", "llamafactory_obs.cli", "train", str(path), "max_steps=3"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_train_for_real_without_automatic_loading(model, data, tmp_path):
    from tiny import tiny_config

    config = tiny_config(model, data, tmp_path / "out", callbacks=["vram", "label_mask"])
    done = _train(tmp_path, config, **WITHOUT_AUTOLOAD)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len((tmp_path / "out" / "obs" / "steps.jsonl").read_text().splitlines()) == 3


def test_train_says_in_one_line_which_argument_llamafactory_refuses(model, data, tmp_path, monkeypatch, capfd):
    from tiny import tiny_config

    monkeypatch.delenv("FORCE_TORCHRUN", raising=False)
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(tiny_config(model, data, tmp_path / "out")))
    assert cli.main(["train", str(path), "learning_rte=1"]) == 2
    err = capfd.readouterr().err
    assert "learning_rte" in err.splitlines()[-1] and "Traceback" not in err


@pytest.mark.slow
def test_train_for_real_under_torchrun(model, data, tmp_path):
    from tiny import tiny_config

    config = tiny_config(model, data, tmp_path / "out", callbacks=["grad_norm_spike", "label_mask"])
    done = _train(tmp_path, config, FORCE_TORCHRUN="1", NPROC_PER_NODE="2", **WITHOUT_AUTOLOAD)
    assert done.returncode == 0, done.stderr[-3000:]
    steps = load_record(tmp_path / "out").steps
    assert steps["step"] == [1, 2, 3]
    assert steps["data/samples"] == [4, 4, 4]  # two rows on each of two ranks
