"""The verb `preflight`: three gates, one screen, one JSON object, exit codes; end to end on the tiny model."""

import contextlib
import io
import json
import shutil

import pytest
import smoke_folder
import yaml
from mask_config import CHAT, talk
from rich.console import Console
from tiny import tiny_config

from llamafactory_obs import cli
from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight import gates
from llamafactory_obs.preflight.result import Check, as_gate
from llamafactory_obs.preflight.run_config import RunConfig
from llamafactory_obs.preflight.screen import show
from llamafactory_obs.preflight.wish import Wish
from llamafactory_obs.settings import Settings


@pytest.fixture(scope="module")
def ready(llamafactory, model, tmp_path_factory):
    """A run config whose three gates are green, baseline measured and smoke run made by the verbs; what they said."""
    folder = tmp_path_factory.mktemp("ready")
    (folder / "data").mkdir()
    (folder / "data" / "talks.json").write_text(json.dumps([talk(i) for i in range(12)]))
    (folder / "data" / "dataset_info.json").write_text(json.dumps({"talks": {"file_name": "talks.json", **CHAT}}))
    given = tiny_config(
        model,
        folder / "data",
        folder / "out",
        dataset="talks",
        cutoff_len=1024,
        max_steps=60,
        save_steps=10,
        val_size=2,
    )
    given |= {"eval_strategy": "steps", "eval_steps": 20, "run_name": "first", "overwrite_output_dir": False}
    callbacks = ["grad_norm_spike", "label_mask", "vram", {"probe": {"backend": "local"}}]
    given |= {"obs": {"mask_range": [0.05, 0.95]}, "callbacks": callbacks}
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(given))
    assert cli.main(["baseline", str(path), "--backend", "local", "--json"]) == 0
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert cli.main(["preflight", str(path), "--run-smoke", "--json"]) == 0
    return path, json.loads(out.getvalue())


@pytest.fixture(autouse=True)
def loaded_here(monkeypatch):
    """The checkpoint is loaded in this process; `ready` has loaded it in one of its own."""
    monkeypatch.setattr("llamafactory_obs.preflight.smoke.loads.try_to_load", smoke_folder.load_here)


@pytest.fixture
def again(ready, tmp_path):
    """`again(**overrides)`: the same config with other keys, beside copies of its baseline and its smoke run."""

    def make(**overrides):
        file, _ = ready
        given = yaml.safe_load(file.read_text()) | {"output_dir": str(tmp_path / "out")} | overrides
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump({key: value for key, value in given.items() if value is not None}))
        shutil.copy(file.with_name("run.baseline.json"), tmp_path)
        shutil.copytree(file.with_name("out-smoke"), tmp_path / "out-smoke", dirs_exist_ok=True)
        return path

    return make


def judge(path, capsys, *words):
    code = cli.main(["preflight", str(path), "--json", *words])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if found["passed"] else 1)
    return found, {gate["name"]: gate for gate in found["gates"]}


def bad(gate) -> set[str]:
    return {check["name"] for check in gate["checks"] if check["status"] in ("fail", "error")}


def test_all_three_are_green_and_the_screen_says_how_to_start(ready, capsys, monkeypatch):
    path, said = ready
    monkeypatch.setattr(gates, "preflight", lambda *words: gates.Preflight(said["gates"], said["notes"]))
    capsys.readouterr()
    assert cli.main(["preflight", str(path)]) == 0
    out = capsys.readouterr().out
    assert [line.split()[:3] for line in out.splitlines() if "GREEN" in line] == [
        ["1", "baseline", "GREEN"],
        ["2", "mask", "GREEN"],
        ["3", "smoke", "GREEN"],
    ]
    assert f"ready: llamafactory-cli train {path}" in out and "RED" not in out
    assert not any(line.strip().startswith(("✗", "?")) for line in out.splitlines())


def test_the_object_of_the_contract(ready):
    _, found = ready
    assert found["passed"] and [gate["name"] for gate in found["gates"]] == ["baseline", "mask", "smoke"]
    for gate in found["gates"]:
        assert set(gate) == {"name", "status", "checks", "fix"} and gate["status"] == "pass" and gate["fix"] == ""
        for check in gate["checks"]:
            assert set(check) == {"name", "status", "value", "want", "detail"}
            assert check["status"] in ("pass", "warn", "skipped") and check["detail"]


def test_without_any_evidence_two_gates_are_red_and_say_what_makes_it(again, tmp_path, capsys):
    path = again()
    (tmp_path / "run.baseline.json").unlink()
    shutil.rmtree(tmp_path / "out-smoke")
    found, by_name = judge(path, capsys, "--gate", "baseline", "--gate", "smoke")
    assert not found["passed"] and list(by_name) == ["baseline", "smoke"]
    assert by_name["baseline"]["status"] == "fail" and "llamafactory-obs baseline" in by_name["baseline"]["fix"]
    assert by_name["smoke"]["status"] in ("fail", "error") and "--run-smoke" in by_name["smoke"]["fix"]


def test_one_gate_alone(again, capsys):
    found, by_name = judge(again(cutoff_len=96), capsys, "--gate", "mask")
    assert list(by_name) == ["mask"] and bad(by_name["mask"]) and not found["passed"]
    found, by_name = judge(again(), capsys, "--gate", "mask")
    assert found["passed"]


def test_another_cutoff_makes_mask_and_smoke_red(again, capsys):
    _, by_name = judge(again(), capsys, "--gate", "smoke")
    assert by_name["smoke"]["status"] == "pass"  # that of `ready` vouches for the same config
    _, by_name = judge(again(cutoff_len=96), capsys, "--gate", "mask", "--gate", "smoke")
    assert by_name["mask"]["status"] == "fail" and "same_config" in bad(by_name["smoke"])


def test_the_smoke_run_waits_for_the_mask(again, tmp_path, capsys):
    before = sorted(p.name for p in (tmp_path).glob("out-smoke/*"))
    found, by_name = judge(again(train_on_prompt=True), capsys, "--run-smoke", "--gate", "mask", "--gate", "smoke")
    assert by_name["mask"]["status"] == "fail" and not found["passed"]
    run = next(check for check in by_name["smoke"]["checks"] if check["name"] == "smoke_run")
    assert run["status"] == "error" and "mask" in run["detail"]
    assert by_name["smoke"]["status"] == "error"
    assert before in ([], sorted(p.name for p in (tmp_path / "out-smoke").iterdir()))


def test_confirm_writes_and_a_later_change_asks_again(again, tmp_path, capsys):
    narrow = {"mask_range": [0.001, 0.002]}  # neither share is in it: 0.12, and 0.010 with mask_history
    path = again(obs=narrow)
    found, by_name = judge(path, capsys, "--gate", "mask")
    assert (
        bad(by_name["mask"]) == {"share", "eval_share"} and f"preflight {path} --confirm mask" in by_name["mask"]["fix"]
    )
    found, by_name = judge(path, capsys, "--gate", "mask", "--confirm", "mask")
    assert found["passed"] and (tmp_path / "run.confirmed.json").is_file()
    assert judge(path, capsys, "--gate", "mask")[0]["passed"]
    assert not judge(again(obs=narrow, mask_history=True), capsys, "--gate", "mask")[0]["passed"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["nowhere.yaml"], "no such file"),
        (["nowhere.yaml", "--gate", "masks"], "did you mean 'mask'"),
        (["nowhere.yaml", "--confirm", "smoke"], "known: mask"),
        (["nowhere.yaml", "--samples", "0"], "--samples must be at least 1"),
        (["nowhere.yaml", "--gate", "mask", "--run-smoke"], "--run-smoke needs that gate"),
        (["nowhere.yaml", "--gate", "smoke", "--confirm", "mask"], "--confirm mask needs that gate"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(llamafactory, capsys, words, part):
    assert cli.main(["preflight", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and part in err


def test_a_fault_of_ours_in_one_gate_is_red_and_the_others_are_still_judged(monkeypatch, tmp_path):
    def green(name):
        return lambda self: as_gate(name, [Check("all", "pass", 1, 1, "fine")])

    def broken(self):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(gates._Flight, "_baseline", green("baseline"))
    monkeypatch.setattr(gates._Flight, "_mask", broken)
    monkeypatch.setattr(gates._Flight, "_smoke", green("smoke"))
    found = gates.preflight(RunConfig(tmp_path / "run.yaml", {}, Settings()), Wish(), lambda text: None)
    assert not found.passed and [gate["status"] for gate in found.gates] == ["pass", "error", "pass"]
    assert "RuntimeError: two lines" in found.gates[1]["checks"][0]["detail"]
    monkeypatch.setattr(gates._Flight, "_mask", lambda self: (_ for _ in ()).throw(ConfigError("no data")))
    with pytest.raises(ConfigError, match="no data"):
        gates.preflight(RunConfig(tmp_path / "run.yaml", {}, Settings()), Wish(), lambda text: None)


def screen(found: gates.Preflight, width: int = 80) -> str:
    out = io.StringIO()
    show(found, "llamafactory-cli train run.yaml", Console(file=out, width=width, highlight=False, markup=False))
    return out.getvalue()


RED = [
    Check("smoke_run", "pass", 10, 10, "10 steps were made"),
    Check("loss_moves", "fail", 0.0, "> 0", "the loss is 2.5 in all 10 steps", "look at the labels"),
    Check("vram_peak", "error", None, "<= 23", "the GPU's memory is not on record", "callbacks: [vram]"),
    Check("checkpoint_saved", "fail", None, "checkpoint-10", "there is only checkpoint-100", "save_steps: 10"),
]


def test_a_red_gate_shows_each_failing_check_its_numbers_and_its_cure():
    out = screen(gates.Preflight([as_gate("smoke", RED)]), 200)
    assert "RED" in out and "not ready: smoke first" in out and "GREEN" not in out
    for check in RED[1:]:
        line = next(line for line in out.splitlines() if line.strip().startswith(("✗", "?")) and check.name in line)
        assert check.detail in line and f"wanted {check.want}" in line
        assert f"→ {check.name}: {check.fix}" in out
    assert "is 0," in out  # it stands in `10`, but not as a number of its own
    places = [out.index(f"→ {name}") for name in ("loss_moves", "checkpoint_saved", "vram_peak")]
    assert places == sorted(places)  # what failed comes before what could not be judged


def test_one_cure_for_several_checks_stands_once():
    same = [Check("a", "fail", 1, 0, "x", "do this"), Check("b", "fail", 1, 0, "y", "do this")]
    assert as_gate("mask", same)["fix"] == "do this"


@pytest.mark.parametrize("width", [30, 40, 80])
def test_no_line_is_wider_than_the_terminal(width):
    checks = [*RED, Check("disk", "fail", 1, 2, "one " * 60, "two " * 60)]
    lines = screen(gates.Preflight([as_gate("smoke", checks)]), width).splitlines()
    assert max(len(line) for line in lines if line.startswith("   ")) <= width


def test_checks_that_do_not_apply_for_one_reason_share_a_line():
    checks = [*RED, *(Check(name, "skipped", None, None, "there is no smoke run") for name in ("a", "b"))]
    assert "- a, b: there is no smoke run" in screen(gates.Preflight([as_gate("smoke", checks)]))
