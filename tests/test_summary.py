"""The facts of a run, each against a number worked out by hand; what is missing says why."""

import copy
import json
import random
import subprocess
import sys

import pytest
from summary_record import BEGIN, Record, whole

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.kept import keep
from llamafactory_obs.preflight.run_config import RunConfig
from llamafactory_obs.record.gates import gates_file, read_gates
from llamafactory_obs.report.sheet import sheet
from llamafactory_obs.settings import Settings
from llamafactory_obs.summary import OtherSuite, Price, as_dict, summarize
from llamafactory_obs.texts import texts


def test_every_number_of_a_run_that_was_killed_once(tmp_path):
    found = summarize(whole(tmp_path))
    assert [(one.ended, one.first_step, one.last_step) for one in found.sessions] == [
        ("killed", 1, 12),
        ("finished", 9, 20),
    ]
    first, second = found.sessions
    assert (first.load_s, first.train_s, first.wall_s) == pytest.approx((30, 24, 54))
    assert (second.load_s, second.train_s, second.wall_s) == pytest.approx((20, 24, 44))
    assert first.pause_s == pytest.approx(80), "from its last row to the next process, which loads for 20 s"
    assert first.repeated_steps == found.repeated_steps == 4
    assert found.machine_hours == pytest.approx(98 / 3600) and found.train_s == pytest.approx(48)
    assert (found.steps, found.planned_steps, found.epoch, found.going) == (20, 20, 2.0, False)
    assert (found.step_s.mean, found.step_s.rows, found.mean_tokens_per_s) == (2.0, 20, 75.0)
    assert found.memory.reserved_gib == 15.5, "of the start that was killed: its rows are no more in the curves"
    assert (found.memory.limit_gib, found.memory.limit_from) == (22.0, "")
    assert found.memory.share == pytest.approx(15.5 / 22)
    assert found.gpu_util == pytest.approx((8 * 0.5 + 2 * 0.5 + 10 * 0.9) / 20)
    data = found.data
    assert (data.tokens, data.tokens_all, data.supervised_tokens, data.fully_masked) == (3000, 3600, 900, 0)
    assert (data.supervised_ratio, data.padding_ratio) == pytest.approx((0.3, 0.25))
    assert data.truncated_ratio == pytest.approx(1 / 480) and data.wanted_ratio == (0.2, 0.4)
    assert found.train_loss == pytest.approx((2.85, 1.05)), "means of two: a tenth of the run"
    used = found.used
    assert (used.cutoff_len, used.longest_row, used.total_batch, used.precision) == (128, 110, 24, "bf16")
    assert (found.machine.ram_gib, found.machine.gpus) == (32.0, ["NVIDIA L4"]), "the container's limit counts"


def test_the_best_evaluation_gives_the_epochs_of_the_next_run(tmp_path):
    found = summarize(whole(tmp_path)).evaluations
    assert (found.best, found.last, found.count) == ((10, 1.0, 1.5), (20, 2.0, 2.2), 4)
    assert (found.next_epochs, found.next_sure) == (1.0, True)


@pytest.mark.parametrize(
    ("losses", "code"),
    [
        ({}, "no_eval_yet"),
        ({5: 2.0}, "one_eval"),
        ({5: 2.0, 10: 1.9, 20: 1.8}, "still_falling"),
        ({5: float("nan"), 10: float("inf")}, "eval_not_finite"),
    ],
)
def test_there_is_no_number_of_epochs_but_a_reason(tmp_path, losses, code):
    record = Record(tmp_path)
    record.start()
    record.steps(1, 20, **{"train/epoch": lambda step: step / 10})
    for step, loss in losses.items():
        record.evaluation(step, loss)
    found = summarize(record.write())
    assert found.evaluations.next_epochs is None and found.missing["evaluations.next_epochs"].code == code


def test_a_minimum_within_the_noise_is_given_with_doubt(tmp_path):
    record = Record(tmp_path)
    record.start()
    record.steps(1, 20)
    for step, loss in ((4, 1.5), (8, 1.2), (12, 1.19), (16, 1.195), (20, 1.192)):
        record.evaluation(step, loss)
    found = summarize(record.write()).evaluations
    assert found.next_epochs == pytest.approx(12 * 2 / 20), "without train/epoch: by the plan of 2 epochs in 20 steps"
    assert not found.next_sure


def test_what_is_missing_is_none_with_a_reason_in_both_languages(tmp_path):
    record = Record(tmp_path)
    record.run["hardware"] |= {"gpu_count": 0, "gpus": [], "driver": None}
    record.run["unknown"] = [{"what": "code.sha", "why": "no repository"}]
    record.run["code"] = {}
    record.start()
    record.steps(1, 3)
    found = summarize(record.write())
    assert found.data.tokens is None and found.memory.reserved_gib is None and found.gpu_util is None
    codes = {name: why.code for name, why in found.missing.items()}
    assert codes["data.tokens"] == codes["tokens_per_s"] == "no_callback"
    assert codes["memory.reserved_gib"] == codes["gpu_util"] == codes["machine.gpus"] == "no_gpu"
    assert found.missing["brief.code_sha"].why("en") == "the record says: no repository"
    assert codes["gates"] == "no_gates" and codes["probes"] == "no_probes" and codes["checkpoints"] == "no_checkpoint"
    for lang in ("en", "zh"):
        known = {name.split(".")[1] for name in texts("summary", lang) if name.startswith("missing.")}
        assert set(codes.values()) <= known
        for why in found.missing.values():
            assert "{" not in why.why(lang).replace("{price", "").replace("{per_hour", "")
    assert json.dumps(as_dict(found), allow_nan=False)


def test_a_plain_log_says_that_it_is_one(tmp_path):
    rows = [{"current_steps": step, "total_steps": 10, "loss": 2.0 - step / 10, "lr": 1e-4} for step in range(1, 11)]
    (tmp_path / "trainer_log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = summarize(tmp_path)
    assert (found.source, found.steps, found.planned_steps, found.sessions) == ("trainer_log", 10, 10, [])
    assert found.machine_hours is None and found.missing["machine_hours"].code == "no_record"
    assert found.missing["machine.cpu"].code == "no_record"
    with pytest.raises(ConfigError):
        summarize(tmp_path / "nothing")


def test_gates_of_before_the_run_count_and_say_what_was_changed(tmp_path):
    record = Record(tmp_path / "run")
    record.run["config"]["given"] |= {"learning_rate": 1e-4, "output_dir": "elsewhere"}
    record.start()
    record.steps(1, 3)
    folder = record.write()
    checks = [{"name": "share", "status": "fail"}, {"name": "other", "status": "pass"}]
    mask = {"name": "mask", "status": "fail", "checks": checks, "fix": "look", "time": BEGIN - 60}
    late = {"name": "smoke", "status": "pass", "checks": [], "fix": "", "time": BEGIN + 60}
    given = {"stage": "sft", "learning_rate": "2e-4"}
    gates_file(folder).write_text(json.dumps({"given": given, "gates": [mask, late]}))
    found = summarize(folder)
    assert [(one.name, one.status, one.failed, one.changed) for one in found.gates] == [
        ("mask", "fail", ["share"], ["learning_rate"])
    ]
    gates_file(folder).write_text(json.dumps({"given": given | {"learning_rate": "0.0001"}, "gates": [mask]}))
    assert summarize(folder).gates[0].changed == []


def test_preflight_keeps_what_its_gates_said(tmp_path):
    config = RunConfig(tmp_path / "run.yaml", {"output_dir": str(tmp_path / "new" / "run"), "stage": "sft"}, Settings())
    mask, smoke = ({"name": name, "status": "pass", "checks": [], "fix": ""} for name in ("mask", "smoke"))
    file = keep(config, [mask], str)
    assert file == gates_file(tmp_path / "new" / "run") and not (tmp_path / "new" / "run").exists()
    keep(config, [smoke], str)
    assert [gate["name"] for gate in read_gates(file)["gates"]] == ["mask", "smoke"], "asked for one after the other"
    config.given["stage"] = "pt"
    keep(config, [smoke | {"status": "fail"}], str)
    assert [(gate["name"], gate["status"]) for gate in read_gates(file)["gates"]] == [("smoke", "fail")]
    assert keep(RunConfig(tmp_path, {}, Settings()), [mask], str) is None


def test_probes_alerts_checkpoints_and_the_price(tmp_path):
    record = Record(tmp_path)
    record.run["config"]["given"]["obs"] = {"price": {"per_hour": 7.2, "currency": "CNY"}}
    record.start()
    record.steps(1, 10, 360.0)
    life = {"id": "vram/growth", "state": "raised", "level": "warn", "since": 4, "count": 1, "open": True, "told": True}
    record.event(4, "alert", "growth", "it grows", name="vram", level="warn", alert=life)
    record.event(9, "alert", "growth_over", "over", name="vram", alert=life | {"state": "resolved", "open": False})
    record.event(
        6, "alert", "nan", "NaN", name="grad_norm_spike", level="error", alert={**life, "id": "g/nan", "since": 6}
    )
    record.event(5, "checkpoint")
    record.more["checkpoints"] = [
        {"step": 5, "time": BEGIN, "segment": 0, "path": "x", "verdict": "resumes exactly", "bytes": 9, "save_s": 0.5}
    ]
    rows = [("base", 0, "a", True), ("checkpoint-5", 5, "a", False), ("checkpoint-5", 5, "b", True)]
    rows += [("checkpoint-9", 9, "a", True), ("checkpoint-9", 9, "b", True)]
    record.more["probes"] = [
        {"step": step, "time": BEGIN, "checkpoint": name, "probe": probe, "passed": passed, "suite": "s"}
        for name, step, probe, passed in rows
    ]
    golden = {"step": 9, "time": BEGIN, "checkpoint": "checkpoint-9", "suite": "g", "suite_name": "golden"}
    record.more["probes"] += [golden | {"probe": f"q{i}", "passed": i < 3} for i in range(4)]
    (tmp_path / "checkpoint-5").mkdir()
    (tmp_path / "checkpoint-5" / "w").write_bytes(b"1234")
    found = summarize(record.write())
    assert found.price == Price(7.2, "CNY", "obs: price") and found.cost == pytest.approx(7.2)
    assert {(one.id, one.level, one.since, one.open, one.text) for one in found.alerts} == {
        ("vram/growth", "warn", 4, False, "it grows"),
        ("g/nan", "error", 6, True, "NaN"),
    }
    assert [one.id for one in found.open_alerts] == ["g/nan"]
    (saved,) = found.checkpoints
    assert (saved.on_disk, saved.bytes, saved.verdict, saved.save_s) == (True, 4, "resumes exactly", 0.5)
    matrix = found.probes
    assert (matrix.columns, matrix.best) == (["base", "checkpoint-5", "checkpoint-9"], "checkpoint-9")
    assert matrix.totals == [(1, 1), (1, 2), (2, 2)] and matrix.passed["b"] == [None, True, True]
    assert matrix.others == [OtherSuite("golden", "checkpoint-9", 3, 4)], "asked once, after all others"


@pytest.mark.parametrize("price", ["12", -1, True, {"per_hour": 1, "unit": "h"}, {"currency": "CNY"}, float("nan")])
def test_a_price_that_is_none_is_refused(price):
    with pytest.raises(ConfigError, match="obs: price"):
        Settings.parse({"price": price})
    assert Settings.parse({"price": 0}).price == (0.0, "")


def test_it_needs_neither_torch_nor_numpy(tmp_path):
    folder = whole(tmp_path)
    code = (
        f"import sys; from llamafactory_obs.summary import summarize; summarize({str(folder)!r});"
        "print([m for m in ('torch', 'numpy', 'transformers', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_evaluation_loss_of_zero_is_no_crash(tmp_path):
    record = Record(tmp_path)
    record.start()
    record.steps(1, 20)
    for step, loss in ((5, 0.0), (10, 0.3), (15, 0.4)):
        record.evaluation(step, loss)
    assert summarize(record.write()).evaluations.best[2] == 0.0


WRONG = [None, True, -1, 3.5, 10**30, "x", [], [1], {}, {"a": 1}]


def _places(value: object, path: tuple = ()) -> list[tuple]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for name, one in inner for place in _places(one, (*path, name))]


def test_a_record_with_any_value_of_a_wrong_type_is_no_crash(tmp_path):
    """Every place of `run.json` and of each kind of event, with values of each type."""
    order = {"order": {"stop": True}, "results": [{"what": "stop", "status": "done"}], "by": {"pid": 1, "host": "h"}}
    life = {"id": "a", "state": "raised", "level": "warn", "since": 1, "count": 1, "open": True}
    record = Record(tmp_path)
    record.start(loading=5.0)
    record.steps(1, 3)
    record.event(3, "control", evidence=order)
    record.event(3, "alert", level="warn", alert=life)
    record.event(3, "notice", evidence={"signal": "S"})
    record.event(3, "end")
    whole_run, whole_events = copy.deepcopy(record.run), copy.deepcopy(record.events)
    chance = random.Random(7)
    for place in _places(whole_run):
        record.run = copy.deepcopy(whole_run)
        _set(record.run, place, chance.choice(WRONG))
        assert json.dumps(as_dict(summarize(record.write())), allow_nan=False), place
    record.run = whole_run
    for place in _places(whole_events):
        record.events = copy.deepcopy(whole_events)
        if len(place) > 1:
            _set(record.events, place, chance.choice(WRONG))
        sheet(summarize(record.write()))


def _set(node: dict | list, place: tuple, value: object) -> None:
    for name in place[:-1]:
        node = node[name]
    node[place[-1]] = value
