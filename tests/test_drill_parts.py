"""The parts of the resume drill on made-up numbers: comparing, judging, naming what was lost, the folder."""

import io
import json
import math
import re
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from llamafactory_obs.cli import main
from llamafactory_obs.drill.resume import folder as folders
from llamafactory_obs.drill.resume.curves import SAMPLES, Curves, compare
from llamafactory_obs.drill.resume.drill import _conclude
from llamafactory_obs.drill.resume.end_state import StateDifference
from llamafactory_obs.drill.resume.judge import judge_curves, judge_generators, judge_state, judge_weights
from llamafactory_obs.drill.resume.limits import limits
from llamafactory_obs.drill.resume.lost import joined, losses_after
from llamafactory_obs.drill.resume.markdown import write_reports
from llamafactory_obs.drill.resume.outcome import EXACTLY, NOT_JUDGED, PARTS, WITHIN_NOISE, Measure, Outcome
from llamafactory_obs.drill.resume.plan import BROKEN, RESUMED, UNBROKEN, Plan, derive, notes
from llamafactory_obs.drill.resume.terminal import show
from llamafactory_obs.drill.resume.weights import TensorDifference, compare_weights
from llamafactory_obs.drill.resume.words import marks, sparklines
from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.run_config import RunConfig
from llamafactory_obs.settings import Settings
from llamafactory_obs.texts import remembering, speaking
from llamafactory_obs.texts.wrap import cells

AFTER = range(7, 27)


def run_config(tmp_path: Path, callbacks=(), obs=None, **given) -> RunConfig:
    given = {"output_dir": str(tmp_path / "out"), "stage": "sft", "learning_rate": 1e-3, **given}
    return RunConfig(tmp_path / "run.yaml", given, Settings.parse(obs), tuple(callbacks))


# ---- weights ----------------------------------------------------------------------------------------------------


def save(folder: Path, shards: list[dict]) -> Path:
    from safetensors.torch import save_file

    folder.mkdir()
    for number, tensors in enumerate(shards, 1):
        save_file(tensors, folder / f"model-{number:05d}-of-{len(shards):05d}.safetensors")
    return folder


def test_weights_against_torch(tmp_path):
    """bf16, fp16, float32, integers; shards cut differently; the same numbers by torch."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    a = {
        "bf": torch.randn(300, 7).bfloat16(), "half": torch.randn(5).half(),
        "full": torch.randn(11, 13), "count": torch.arange(9),
    }  # fmt: skip
    b = {name: tensor.clone() for name, tensor in a.items()}
    b["bf"][3, 2] += 0.5
    b["bf"][299, 6] -= 0.25
    b["full"][0, 0] = float("nan")
    b["count"][4] = 7
    one = save(tmp_path / "one", [a])
    other = save(tmp_path / "other", [{"bf": b["bf"], "count": b["count"]}, {"half": b["half"], "full": b["full"]}])
    found = {tensor.name: tensor for tensor in compare_weights(one, other)}
    gap = (a["bf"].double() - b["bf"].double()).abs()
    assert (found["bf"].unequal, found["bf"].largest) == (2, gap.max().item())
    assert found["bf"].squares == pytest.approx(gap.square().sum().item(), rel=1e-12)
    assert found["bf"].norm2 == pytest.approx(a["bf"].double().square().sum().item(), rel=1e-12)
    assert (found["full"].unequal, found["full"].largest) == (1, math.inf)
    assert (found["half"].unequal, found["half"].largest) == (0, 0.0)
    assert (found["count"].unequal, found["count"].largest) == (1, None)
    assert not any(tensor.unequal for tensor in compare_weights(one, save(tmp_path / "same", [a])))


def test_weights_larger_than_a_block(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("llamafactory_obs.drill.resume.weights._BLOCK", 64)
    a = torch.arange(1000, dtype=torch.float32)
    b = a.clone()
    b[[63, 64, 999]] += 2
    [found] = compare_weights(save(tmp_path / "a", [{"w": a}]), save(tmp_path / "b", [{"w": b}]))
    assert (found.unequal, found.largest, found.squares) == (3, 2.0, 12.0)


def test_a_tensor_that_is_gone_or_has_another_shape_differs(tmp_path):
    torch = pytest.importorskip("torch")
    one = save(tmp_path / "one", [{"a": torch.zeros(4), "b": torch.zeros(2, 3)}])
    other = save(tmp_path / "other", [{"b": torch.zeros(3, 2), "c": torch.zeros(1)}])
    found = compare_weights(one, other)
    assert [(tensor.name, tensor.unequal, tensor.largest) for tensor in found] == [
        ("a", 4, None), ("b", 6, None), ("c", 1, None),
    ]  # fmt: skip
    assert judge_weights(found, []).status == "differs"


# ---- curves and the verdict -------------------------------------------------------------------------------------


def curves(seed: int, noise: float = 0.0, first: int = 1, **shift) -> Curves:
    """26 steps; `noise` on loss and norm, by the seed; `shift`: column -> (step, value) added from there on."""
    rng = np.random.default_rng(seed)
    columns: dict = {name: {} for name in ("train/loss", "train/grad_norm", "train/lr", "train/epoch", SAMPLES)}
    for step in range(1, 27):
        wave = math.sin(step)
        values = {
            "train/loss": 2.0 + 0.1 * wave + noise * rng.normal(),
            "train/grad_norm": 1.0 + wave / 9 + noise * rng.normal(),
            "train/lr": 1e-3 * (1 - step / 30),
            "train/epoch": step / 13,
        }
        for name, value in values.items():
            at, more = shift.get(name.partition("/")[2], (99, 0.0))
            if step >= first:
                columns[name][step] = value + (more if step >= at else 0.0)
        if step >= first:
            columns[SAMPLES][step] = ((0, ((f"row{step + shift.get('rows', 0)}",),)),)
    return Curves(columns)


def verdict(first, resumed, again, broken, states=None, weights=()) -> Outcome:
    """The last steps of a drill, as `drill._Trainings.run` makes them."""
    same = StateDifference(compared=5, counts=(26, 26))
    states = {"optimizer": same, "scheduler": same, "rng": StateDifference(compared=5)} | (states or {})
    measures = judge_curves(first, resumed, again, broken, AFTER)
    measures.append(judge_weights(list(weights) or [TensorDifference("w", 9)], [TensorDifference("w", 9)]))
    measures += [judge_state(f"{name} state", states[name], same) for name in ("optimizer", "scheduler")]
    measures.append(judge_generators(states["rng"], StateDifference(compared=5)))
    outcome = Outcome(NOT_JUDGED, "", Path("run.yaml"), Path("drill"), 6, 20, 11, measures=measures)
    outcome.lost = joined({}, losses_after(first, resumed, measures, states))
    _conclude(outcome)
    return outcome


def test_equal_and_within_the_noise():
    exact = verdict(curves(0), curves(0, first=7), curves(0), curves(0))
    assert exact.verdict == EXACTLY and exact.lost == []
    for seed in range(20):
        runs = [curves(4 * seed + k, noise=1e-4) for k in range(4)]
        noisy = verdict(*runs)
        assert noisy.verdict == WITHIN_NOISE, (seed, noisy.why)
    assert noisy.exit_code == 0 and "loss" in noisy.why


def test_a_step_out_of_the_noise_is_seen():
    """20 times: a gap of ten times the noise, and the same without noise at all."""
    for seed in range(20):
        base = [curves(4 * seed + k, noise=1e-4) for k in range(4)]
        base[1] = curves(4 * seed + 1, noise=1e-4, loss=(9, 1e-3))
        found = verdict(*base)
        assert found.verdict == PARTS and 7 <= found.first <= 10, (seed, found.why)
    tiny = verdict(curves(0), curves(0, loss=(12, 1e-12)), curves(0), curves(0))
    assert tiny.verdict == PARTS and tiny.first == 12, "without noise there is no smallest difference"


def test_noise_of_the_killed_training_counts():
    """By luck the two unbroken ones agree; the killed one parted from them before its checkpoint."""
    apart = curves(1, noise=1e-4)
    found = verdict(curves(0), curves(0, loss=(7, 1e-4)), curves(0), apart)
    assert {one.name: one.status for one in found.measures}["loss"] == "noise"


@pytest.mark.parametrize(
    ("resumed", "states", "part", "word"),
    [
        (curves(0, lr=(7, 3e-4), loss=(8, 0.1)), {}, "scheduler", "learning rate 0.001067 instead of"),
        (curves(0), {"scheduler": StateDifference(compared=5, unequal=1, counts=(26, 20))}, "scheduler", "20 instead"),
        (curves(0, loss=(8, 0.1), grad_norm=(8, 0.1)),
         {"optimizer": StateDifference(compared=5, unequal=2, counts=(26, 20))}, "optimizer", "20 instead of 26"),
        (curves(0, loss=(8, 0.1), grad_norm=(8, 0.1)),
         {"optimizer": StateDifference(compared=5, unequal=2, squares=1.0)}, "optimizer", "step 7 are the same"),
        (curves(0, rows=1, loss=(7, 0.1)), {"rng": StateDifference(compared=5, unequal=3)}, "data_order", "step 7"),
        (curves(0, loss=(7, 0.1)), {"rng": StateDifference(compared=5, unequal=3)}, "rng", "another loss at once"),
        (curves(0), {"rng": StateDifference(compared=5, unequal=3)}, "rng", "nothing in these steps drew"),
        (curves(0, loss=(7, 0.1)), {}, "weights", "the same samples and random numbers"),
        (curves(0, loss=(7, 0.1)),
         {"optimizer": StateDifference(compared=5, unequal=2, squares=1.0)}, "weights", "at once"),
    ],
    ids=["rate", "constant rate", "adam", "no count", "data", "dropout", "no dropout", "weights", "no count, weights"],
)  # fmt: skip
def test_each_loss_has_its_mark(resumed, states, part, word):
    resumed = Curves({name: {s: v for s, v in column.items() if s >= 7} for name, column in resumed.columns.items()})
    found = verdict(curves(0), resumed, curves(0), curves(0), states)
    assert found.verdict == PARTS and [one.part for one in found.lost] == [part], found.lost
    assert word in found.lost[0].after


def test_what_is_not_recorded_is_no_pass():
    resumed = curves(0)
    del resumed.columns["train/loss"][20], resumed.columns[SAMPLES][20]
    found = verdict(curves(0), resumed, curves(0), curves(0))
    assert found.verdict == NOT_JUDGED and found.exit_code == 2 and "loss" in found.why
    assert compare(curves(0), resumed, "train/loss", AFTER).missing == 1


def test_nan_equals_nan():
    one, other = curves(0, loss=(9, math.nan)), curves(0, loss=(9, math.nan))
    assert not compare(one, other, "train/loss", AFTER).unequal
    assert compare(one, curves(0), "train/loss", AFTER).largest == math.inf


# ---- what is trained ----------------------------------------------------------------------------------------------


def test_the_config_keeps_what_matters(tmp_path):
    listed = ["vram", "probe", {"samples": {"every": 50}}, "my.own.Callback"]
    obs = {"limit_gib": 24, "alerts": {"webhook": "http://127.0.0.1:9/x"}}
    config = run_config(
        tmp_path, listed, obs, val_size=0.1, eval_steps=5, eval_strategy="steps", save_only_model=True,
        report_to="wandb", save_strategy="epoch", num_train_epochs=3, tokenized_path=str(tmp_path / "not_yet"),
        resume_from_checkpoint="elsewhere", early_stopping_steps=3,
    )  # fmt: skip
    plan = Plan(config, tmp_path / "drill", 100, 20)
    made = {name: derive(plan, name).given for name in (UNBROKEN, BROKEN, RESUMED)}
    one = made[UNBROKEN]
    assert (one["max_steps"], one["save_steps"], one["save_strategy"], one["save_only_model"]) == (
        120,
        100,
        "steps",
        False,
    )
    assert one["val_size"] == 0.1, "the evaluation set decides which rows are left to train on"
    assert one["eval_strategy"] == "no" and one["report_to"] == "none"
    assert not {"tokenized_path", "resume_from_checkpoint", "early_stopping_steps", "eval_steps"} & set(one)
    assert one["callbacks"] == ["vram", "my.own.Callback", "samples"] and one["obs"]["limit_gib"] == 24
    assert "alerts" not in one["obs"]
    assert (
        made[BROKEN]["callbacks"][-1]["args"]["step"] == 105
        and made[BROKEN]["output_dir"] == made[RESUMED]["output_dir"]
    )
    assert made[RESUMED]["resume_from_checkpoint"].endswith("broken/checkpoint-100")
    differ = {key for key in {*one, *made[RESUMED]} if one.get(key) != made[RESUMED].get(key)}
    assert differ == {"output_dir", "resume_from_checkpoint", "overwrite_output_dir"}, "nothing else changes"
    told = " ".join(notes(plan))
    assert all(word in told for word in ("save_only_model", "probe is left out", "resume_from_checkpoint elsewhere"))
    best = replace(config, given={**config.given, "load_best_model_at_end": True})
    assert derive(replace(plan, config=best), UNBROKEN).given["eval_steps"] == 100
    other = replace(plan, take_away="data_order")
    assert derive(other, RESUMED).given["data_seed"] == 43 and "data_seed" not in derive(other, BROKEN).given
    ordered = replace(other, config=replace(config, given={**config.given, "disable_shuffling": True}))
    assert derive(ordered, RESUMED).given["ignore_data_skip"] is True


def test_a_folder_that_holds_something_and_a_wrong_config_are_refused(tmp_path, capsys, llamafactory):
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"stage": "sft", "output_dir": "out"}))
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["drill", "resume", str(tmp_path / "run.yaml"), "--out", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["drill", "resume", str(tmp_path / "run.yaml")]) == 2
    said = capsys.readouterr().err
    assert "LlamaFactory refuses" in said and "model_name_or_path" in said and len(said.strip().splitlines()) == 1
    assert {one.name for one in tmp_path.iterdir()} == {"run.yaml", "notes.txt"}
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_disk_that_is_too_small(tmp_path, monkeypatch):
    from llamafactory_obs.preflight.ahead.disk import Size

    size = Size(weights=1 << 30, state=2 << 30)
    monkeypatch.setattr(folders, "save_size", lambda config: size)
    free = namedtuple("Usage", "total used free")
    plan = Plan(run_config(tmp_path), tmp_path / "drill", 100, 20)
    needed = int((4 * 3 + 1) * 2**30 * 1.1)  # two last checkpoints, and the last training with two and its model
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free(0, 0, needed))
    assert folders.check_room(plan) == ""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free(0, 0, needed - 1))
    with pytest.raises(ConfigError, match=r"needs 14.3 GiB .* --out"):
        folders.check_room(plan)


def test_an_interruption_leaves_nothing(tmp_path):
    plan = Plan(run_config(tmp_path), tmp_path / "out-drill" / "resume-1", 6, 4)
    with pytest.raises(KeyboardInterrupt), folders.drill_folder(plan):
        (plan.folder / "unbroken" / "checkpoint-6").mkdir(parents=True)
        (plan.folder / "unbroken.log").write_text("step 1")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["drill", "resme", "run.yaml"], "unknown drill 'resme'"),
        (["drill", "resume", "run.yaml", "--extra", "1"], "--extra must be at least 2"),
        (["drill", "resume", "run.yaml", "--steps", "0"], "--steps must be at least 1"),
        (["drill", "resume", "no_such.yaml"], "no such file"),
        (["drill", "resume", "run.yaml", "--take-away", "luck"], "invalid choice: 'luck'"),
    ],
)
def test_wrong_words(words, message, capsys, llamafactory):
    assert main(words) == 2
    said = capsys.readouterr()
    assert message in said.err and said.out == "" and len(said.err.strip().splitlines()) == 1


# ---- what people see -------------------------------------------------------------------------------------------------


def test_sparklines_share_one_scale():
    one, other = sparklines([[1.0, 2.0, 3.0], [1.0, 2.0, 2.0]], 60)
    assert one[0] == other[0] and one[1] == other[1] and one[2] > other[2]
    assert marks([1, 2, 3], [1, 2, 2], 60) == "==x" and marks([1, 2, 3, 4], [1, 2, 3, 5], 2) == "=x"
    assert marks([math.nan, 1.0], [math.nan, math.nan], 60) == "=x"
    assert sparklines([[1.0, None, math.nan], [1.0, 1.0, 1.0]], 60)[0][1:] == "xx"


def test_the_screen_is_80_columns_wide_and_the_json_is_strict():
    found = verdict(curves(0), curves(0, loss=(8, math.inf), lr=(7, 1e-4), first=7), curves(0), curves(0))
    found.measures.append(Measure("another state", "values", "unknown", why="the checkpoint has no such file " * 3))
    found.notes = ["a note " * 30]
    found.curves = {"train/loss": {"steps": [7, 8], "unbroken": [1.0, 2.0], "resumed": [1.0, 3.0], "again": [1.0, 2.0]}}
    out = io.StringIO()
    show(found, out)
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("DOES NOT CONTINUE: from step 7 on; lost: scheduler") and max(map(len, lines)) <= 80
    text = json.dumps(found.as_dict(), allow_nan=False)
    assert json.loads(text)["measures"][0]["largest"] == "inf"


def test_people_read_it_in_chinese_and_programs_in_english(tmp_path, monkeypatch):
    """Screen and report are Chinese; report.json is, to the letter, that of an English drill."""
    reports = {}
    for lang in ("en", "zh"):
        with speaking(lang), remembering() as english:
            found = verdict(curves(0), curves(0, loss=(8, math.inf), lr=(7, 1e-4), first=7), curves(0), curves(0))
            plan = Plan(run_config(tmp_path, save_only_model=True), tmp_path, 6, 20)
            found.notes, found.folder, found.take_away = notes(plan), tmp_path, "rng"
            found.settings = [{"setting": "full_determinism", "drill": "off", "run": "on"}]
            found.limits = limits(plan, found.measures, found.settings)
            found.curves = {"train/loss": {"steps": [7]} | {key: [1.0] for key in ("unbroken", "resumed", "again")}}
            write_reports(found, english)
            show(found, out := io.StringIO())
        data = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
        reports[lang] = out.getvalue(), (tmp_path / "report.md").read_text(encoding="utf-8"), data
    (screen, report, data), (screen_zh, report_zh, data_zh) = reports["en"], reports["zh"]
    assert data == data_zh and data["lost"][0]["after"].startswith("learning rate 0.00") and data["notes"]
    assert screen.startswith("DOES NOT CONTINUE: from step 7 on; lost: scheduler")
    assert screen_zh.startswith("没有衔接上：从第 7 步起分开；丢失：调度器状态")
    assert max(map(cells, screen_zh.splitlines())) <= 80 + len(str(tmp_path))
    assert "# Resume drill: does not continue" in report and "| full_determinism | off | on |" in report
    assert "# 断点续训演练：没有衔接上" in report_zh and "| full_determinism | 关 | 开 |" in report_zh
    for said in (screen_zh, report_zh):
        assert [line for line in said.splitlines() if re.search(r"\b[a-z]{2,} [a-z]{2,} [a-z]{2,}\b", line)] == []
    assert not re.search("[\u3000-\u9fff]", screen + report)
