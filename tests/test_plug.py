"""The plug in every launch path, and what it refuses before a model loads (INJ-1 to INJ-4)."""

import json
import os
import subprocess
import sys

import pytest
import yaml
from tiny import tiny_config

from llamafactory_obs import load_record
from llamafactory_obs.errors import ConfigError
from llamafactory_obs.plugin import config
from llamafactory_obs.plugin.entries import parse_entries
from llamafactory_obs.settings import Settings

MINE = """
from transformers import TrainerCallback

class Mine(TrainerCallback):
    def __init__(self, path, word="none", finetuning_args=None):
        self.path, self.text = path, f"{word} {getattr(finetuning_args, 'stage', '-')}"
    def on_train_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            open(self.path, "w").write(self.text)

class Strict(TrainerCallback):
    def __init__(self, needed):
        raise RuntimeError("no good")

class NotACallback:
    pass
"""


@pytest.fixture
def command(model, data, tmp_path):
    """`command(config, *words, env=..., form="yaml")` runs the unmodified `llamafactory-cli train` in tmp_path."""
    (tmp_path / "my_callbacks.py").write_text(MINE)

    def run(*words, env=None, form="yaml", form_argv=False, **overrides):
        settings = tiny_config(model, data, tmp_path / "out", max_steps=2, **overrides)
        file = tmp_path / f"run.{form}"
        file.write_text(yaml.safe_dump(settings) if form == "yaml" else json.dumps(settings))
        arguments = [str(file)]
        if form_argv:
            arguments = [
                w for k, v in settings.items() for w in (f"--{k}", json.dumps(v) if isinstance(v, list) else str(v))
            ]
        bin_folder = os.path.dirname(sys.executable)
        environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", **(env or {})}
        return subprocess.run(
            [os.path.join(bin_folder, "llamafactory-cli"), "train", *arguments, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return run


def test_the_unmodified_command_and_every_form_of_entry(command, tmp_path):
    done = command(
        callbacks=[
            "label_mask",
            {"layer_norms": {"every": 2}},
            {"my_callbacks.Mine": {"path": str(tmp_path / "a")}},
            {
                "name": f"{tmp_path}/my_callbacks.py:Mine",
                "args": {"path": str(tmp_path / "b"), "word": "${MY_WORD:-nothing}"},
            },
        ],
        obs={"mask_range": [0.3, 0.9]},
        env={"MY_WORD": "hello"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "a").read_text() == "none sft" and (tmp_path / "b").read_text() == "hello sft"
    record = load_record(tmp_path / "out")
    assert record.steps["step"] == [1, 2] and [row["step"] for row in record.layers.rows] == [2]
    assert "label_mask, layer_norms; record:" in done.stdout, "one line proves that it is on"
    assert record.run["config"]["given"]["obs"] == {"mask_range": [0.3, 0.9]}


@pytest.mark.slow
def test_json_config_with_command_line_override(command, tmp_path):
    done = command("callbacks=[vram,{layer_norms: {every: 2}}]", form="json", callbacks=["label_mask"])
    assert done.returncode == 0, done.stderr[-2000:]
    record = load_record(tmp_path / "out")
    assert "system/rss_gib" in record.steps and "data/tokens" not in record.steps and record.layers.rows


@pytest.mark.slow
def test_words_of_a_command_line_as_the_web_ui_shows_them(command, tmp_path):
    done = command(form_argv=True, callbacks=["vram"])
    assert done.returncode == 0, done.stderr[-2000:]
    assert load_record(tmp_path / "out").steps["step"] == [1, 2]


def test_off_switch_gives_stock_behaviour(command):
    done = command(callbacks=["vram"], env={"LLAMAFACTORY_OBS_AUTOLOAD": "0"})
    assert done.returncode == 1 and "not used by the HfArgumentParser: ['callbacks']" in done.stderr


@pytest.mark.slow
def test_torchrun_with_two_processes(command, tmp_path):
    env = {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": "2"}
    done = command(
        callbacks=["label_mask", "grad_norm_spike", {"my_callbacks.Mine": {"path": str(tmp_path / "a")}}], env=env
    )
    assert done.returncode == 0, done.stderr[-3000:]
    record = load_record(tmp_path / "out")
    assert record.steps["step"] == [1, 2] and record.steps["data/samples"] == [4.0, 4.0]
    assert record.run["world"]["world_size"] == 2
    assert (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "env", [{}, pytest.param({"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": "2"}, marks=pytest.mark.slow)]
)
def test_an_unknown_name_is_one_line_and_exit_2(command, env):
    done = command(callbacks=["label_mask", "grad_norm_spik"], env=env)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line.startswith("llamafactory-obs")]
    assert lines == done.stderr.strip().splitlines()[-1:] and "Traceback" not in done.stderr
    assert "callbacks[1]" in lines[0] and "did you mean 'grad_norm_spike'" in lines[0]


@pytest.mark.slow
def test_v1_is_refused_in_one_line(command):
    done = command(callbacks=["vram"], env={"USE_V1": "1"})
    assert done.returncode == 2 and "USE_V1" in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("grad_norm_spik", ["callbacks[0]", "did you mean 'grad_norm_spike'"]),
        ({"layer_norms": {"evry": 3}}, ["layer_norms has no option 'evry'", "did you mean 'every'"]),
        ({"layer_norms": {"every": 0}}, ["every must be 1 or more, got 0"]),
        ({"layer_norms": {"every": "ten"}}, ["every must be a whole number, got 'ten'"]),
        ({"vram": {"limit_gib": True}}, ["limit_gib must be a number or null, got True"]),
        ({"grad_norm_spike": {"z": float("nan")}}, ["z must be a number, got nan"]),
        ({"grad_norm_spike": {"action": "die"}}, ["action must be 'warn' or 'save' or 'stop', got 'die'"]),
        ({"label_mask": {"range": [0.4, 0.2]}}, ["range must be two fractions"]),
        ({"args": {}}, ["callbacks[0]", "args"]),
        ({"vram": {}, "label_mask": {}}, ["has no `name`"]),
        ({"name": "vram", "arg": {}}, ["unknown key 'arg'"]),
        ({"name": 3}, ["name must be text, got 3"]),
        ({"vram": 24}, ["options must be a mapping, got 24"]),
        (None, ["must be a name or a mapping"]),
        ("no_such_package.callbacks.Mine", ["cannot import 'no_such_package.callbacks'"]),
        ("json.JSONEncoder", ["not a subclass of transformers.TrainerCallback"]),
        ("transformers.TrainerCallbak", ["has no class 'TrainerCallbak'", "did you mean 'TrainerCallback'"]),
        ("/nowhere/x.py:Mine", ["no such file: /nowhere/x.py"]),
        ({"vram": {"limit_gib": "${NO_SUCH_VARIABLE}"}}, ["environment variable NO_SUCH_VARIABLE is not set"]),
    ],
)
def test_every_fault_names_the_entry(llamafactory, entry, words):
    with pytest.raises(ConfigError) as error:
        parse_entries([entry])
    text = str(error.value)
    assert "\n" not in text and all(word in text for word in ["callbacks[0]", *words]), text


def test_own_names_cannot_be_given_twice(llamafactory):
    with pytest.raises(ConfigError, match=r"callbacks\[1\]: vram is already named in callbacks\[0\]"):
        parse_entries(["vram", {"vram": {"limit_gib": 16}}])


def test_file_form_faults_and_injection(llamafactory, tmp_path):
    file = tmp_path / "my_callbacks.py"
    file.write_text(MINE)
    with pytest.raises(ConfigError, match="needs the option 'path'"):
        parse_entries([f"{file}:Mine"])
    with pytest.raises(ConfigError, match="is not a subclass"):
        parse_entries([f"{file}:NotACallback"])
    (entry,) = parse_entries([{"name": f"{file}:Strict", "args": {"needed": 1}}])
    with pytest.raises(ConfigError, match=r"callbacks\[0\].*no good"):
        entry.build()
    (entry,) = parse_entries([{f"{file}:Mine": {"path": "p"}}])
    assert entry.build({"finetuning_args": type("F", (), {"stage": "dpo"})}).text == "none dpo"
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)")
    with pytest.raises(ConfigError, match="does not import: SystemExit"):
        parse_entries([f"{tmp_path}/leaves.py:Mine"])
    (tmp_path / "bad.py").write_text("import no_such_thing")
    with pytest.raises(ConfigError, match="does not import: ModuleNotFoundError"):
        parse_entries([f"{tmp_path}/bad.py:Mine"])


def test_early_stopping_is_a_short_name(llamafactory):
    from transformers import EarlyStoppingCallback

    (entry,) = parse_entries([{"early_stopping": {"early_stopping_patience": 2}}])
    assert isinstance(entry.build(), EarlyStoppingCallback)


def test_another_distribution_adds_names_through_the_entry_point_group(llamafactory, tmp_path, monkeypatch):
    (tmp_path / "my_pack.py").write_text(MINE)
    info = tmp_path / "my_pack-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-pack\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[llamafactory_obs.callbacks]\nmine = my_pack:Mine\nvram = my_pack:Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    mine, vram = parse_entries([{"mine": {"path": "p"}}, "vram"])
    assert mine.cls.__module__ == "my_pack" and vram.cls.__module__.startswith("llamafactory_obs")
    with pytest.raises(ConfigError, match="did you mean 'mine'"):
        parse_entries(["mini"])


def test_early_stopping_without_a_metric_is_refused_before_anything_loads(train, capfd):
    with pytest.raises(SystemExit) as left:
        train(callbacks=["early_stopping"])
    assert (
        left.value.code == 2 and "callbacks[0]: early_stopping needs `metric_for_best_model`" in capfd.readouterr().err
    )


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"mask_rang": [0.2, 0.4]}, "did you mean 'mask_range'"),
        ({"mask_range": [20, 40]}, "two fractions"),
        ({"mask_range": 0.3}, "two fractions"),
        ([1], "must be a mapping"),
    ],
)
def test_obs_block_faults(block, words):
    with pytest.raises(ConfigError, match=words):
        Settings.parse(block)


def test_words_are_split_out_and_the_rest_is_untouched():
    rest, ours = config.split(
        ["--stage", "sft", "--callbacks", "[vram]", "--obs={mask_range: [0.1, 0.9]}", "--lr", "1"]
    )
    assert rest == ["--stage", "sft", "--lr", "1"]
    assert ours == {"callbacks": ["vram"], "obs": {"mask_range": [0.1, 0.9]}}
    with pytest.raises(ConfigError, match="is not YAML"):
        config.split(["--callbacks", "[vram"])


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["vram"], "vram"),
        (["vram", "label_mask"], ["vram", "label_mask"]),
        (["[vram,", "label_mask]"], ["vram", "label_mask"]),
        (
            ["vram", "{layer_norms:", "{every:", "2}}"],
            ["vram", {"layer_norms": {"every": 2}}],
        ),  # quotes lost in a shell
    ],
)
def test_lists_as_the_web_ui_s_preview_shows_them(words, wanted):
    rest, ours = config.split(["--callbacks", *words, "--stage", "sft"])
    assert ours == {"callbacks": wanted} and rest == ["--stage", "sft"]


def test_an_override_with_blanks_survives_torchrun_s_splitting(monkeypatch):
    word = config.without_blanks("callbacks=[vram, {layer_norms: {every: 2}}]")
    assert word == 'callbacks=["vram",{"layer_norms":{"every":2}}]'
    assert config.without_blanks("output_dir=a b") == "output_dir=a b"
    with pytest.raises(ConfigError, match=r"is not YAML.*blank belongs after each colon"):
        config.without_blanks("callbacks=[{layer_norms:{every:2}}")
    monkeypatch.setenv("FORCE_TORCHRUN", "1")
    with pytest.raises(ConfigError, match="has blanks"):
        config.without_blanks('callbacks=[{a.B: {word: "two words"}}]')


def test_secrets_on_a_command_line_are_known_by_their_name():
    from llamafactory_obs.identity import redact

    given = config.as_mapping(["--stage", "sft", "--swanlab_api_key", "abcdefgh", "--bf16", "--image", "a", "b"])
    assert redact(given) == {"stage": "sft", "swanlab_api_key": "***", "bf16": True, "image": "a b"}


def test_importing_torch_costs_next_to_nothing_and_imports_nothing_of_us_but_the_hook():
    code = (
        "import torch, sys; ours = sorted(m for m in sys.modules if m.startswith('llamafactory'));"
        "from llamafactory_obs.plugin import autoload; print(autoload.is_live(), ours)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split(" ", 1)[0] == "True"
    assert eval(done.stdout.split(" ", 1)[1]) == [
        "llamafactory_obs",
        "llamafactory_obs.plugin",
        "llamafactory_obs.plugin.autoload",
    ]


def test_one_yaml_may_serve_inference_too(llamafactory, model):
    from llamafactory.hparams import get_infer_args

    given = {"model_name_or_path": str(model), "template": "qwen3_nothink", "callbacks": ["vram"], "obs": {}}
    model_args, *_ = get_infer_args(given)
    assert model_args.model_name_or_path == str(model) and "callbacks" in given


def test_without_our_keys_nothing_is_attached(train, capfd):
    out = train()
    assert not (out / "obs").exists() and "obs" not in capfd.readouterr().out


@pytest.mark.slow
def test_ray_actor(model, data, tmp_path):
    """LlamaFactory's own Ray launch wants a GPU; its `_training_function` in an actor is what it comes down to."""
    ray = pytest.importorskip("ray", reason="ray is not installed")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        settings = tiny_config(model, data, tmp_path / "out", max_steps=2, callbacks=["label_mask", "vram"])
        # in the actor's process nothing of LlamaFactory is imported before the function arrives
        from llamafactory.train.tuner import Worker

        actor = ray.remote(Worker)
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29572"}  # as LlamaFactory gives them to its workers
        env = {"env_vars": {"RANK": "0", "WORLD_SIZE": "1", **where}}
        worker = actor.options(runtime_env=env).remote()
        ray.get(worker._training_function.remote(config={"args": settings, "callbacks": []}), timeout=240)
    finally:
        ray.shutdown()
    assert load_record(tmp_path / "out").steps["step"] == [1, 2]
