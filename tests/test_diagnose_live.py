"""The callback `diagnose`: alerts with causes, nothing said twice, resume by replay, the verdict, its cost."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from log_curves import BAD, STEPS, cosine, lengths, noisy, up

from llamafactory_obs import load_record

pytest.importorskip("torch", reason='torch is not installed: pip install "llamafactory-obs[train]"')


class Run:
    """What a callback sees of the recorder: rows in, alerts and events out."""

    def __init__(self, folder: Path, others: tuple[str, ...] = (), start: int = 0, is_main: bool = True):
        from llamafactory_obs.callbacks.context import RunContext

        state = SimpleNamespace(global_step=start, max_steps=STEPS, is_world_process_zero=is_main)
        args = SimpleNamespace(output_dir=str(folder), fp16=False, bf16=True, learning_rate=1e-4, warmup_steps=10)
        self.trainer = SimpleNamespace(state=state, args=args)
        self.context = RunContext()
        self.callbacks = [SimpleNamespace(yaml_name=name) for name in others]
        self.replaying = False
        self.alerts, self.events, self.requests = [], [], []

    def alert(self, name, finding):
        self.alerts.append(finding)

    def event(self, kind, name, title, text, **about):
        self.events.append({"kind": kind, "title": title, "text": text, **about})

    def request(self, what, step):
        self.requests.append((what, step))


def started(folder: Path, others: tuple[str, ...] = (), start: int = 0, is_main: bool = True, **options):
    from llamafactory_obs.callbacks.diagnose import Diagnose

    callback = Diagnose(**options)
    callback.run = Run(folder, others, start, is_main)
    callback.context = callback.run.context
    callback.begin()
    return callback


def feed(callback, rows: list[dict], first: int = 1, replaying: bool = False, planned: list | None = None) -> None:
    callback.run.replaying = replaying
    for step, values in enumerate(rows, start=first):
        facts = {"rates": ([values["train/lr"]], [planned[step - first]])} if planned else {}
        callback.row(SimpleNamespace(step=step, values=values, facts=facts))
    callback.run.replaying = False


def rows_of(loss: list[float], **columns: list) -> list[dict]:
    columns = {name.replace("_", "/", 1): values for name, values in columns.items()}
    return [{"train/loss": value, **{name: v[i] for name, v in columns.items()}} for i, value in enumerate(loss)]


def spiked() -> list[dict]:
    long = [9000.0 if step == BAD else value for step, value in enumerate(lengths(), start=1)]
    return rows_of(up(noisy()), data_max_length=long, train_lr=cosine())


def test_an_alert_names_its_cause(tmp_path):
    callback = started(tmp_path)
    feed(callback, spiked())
    alerts = [one for one in callback.run.alerts if one.name == "spike"]
    assert alerts and alerts[0].step in range(BAD, BAD + 3)
    assert alerts[0].evidence["causes"][0]["name"] == "special_batch"
    assert "Likely cause: special_batch" in alerts[0].text and f"--step {BAD}" in alerts[0].text
    quiet = started(tmp_path)
    feed(quiet, rows_of(noisy(), data_max_length=lengths(), train_lr=cosine()))
    assert quiet.run.alerts == [] and quiet.run.events == []


def test_what_another_callback_raises_is_not_raised_again(tmp_path):
    norms = [20.0 if step == BAD else 1.0 + 0.01 * (step % 7) for step in range(1, STEPS + 1)]
    rows = [row | {"train/grad_norm": norm} for row, norm in zip(spiked(), norms, strict=True)]
    alone, beside = started(tmp_path), started(tmp_path, others=("grad_norm_spike",))
    for callback in (alone, beside):
        feed(callback, rows)
    names = {one.name for one in alone.run.alerts}
    assert {"spike", "grad_norm_spike"} <= names
    assert not {one.name for one in beside.run.alerts} & {"spike", "grad_norm_spike"}
    told = [event for event in beside.run.events if event["title"] == "causes"]
    assert len(told) == 1 and told[0]["evidence"]["causes"][0]["name"] == "special_batch"  # its cause is, once
    only_loss = started(tmp_path, others=("grad_norm_spike",))  # the norm was calm: nobody else has said it
    feed(only_loss, [row | {"train/grad_norm": 1.0 + 0.01 * (i % 7)} for i, row in enumerate(spiked())])
    assert "spike" in {one.name for one in only_loss.run.alerts}


def test_a_rate_from_outside_is_told_by_the_optimizer_callback_and_a_planned_jump_is_not(tmp_path):
    rates = [1e-4 if step < BAD else 5e-3 for step in range(1, STEPS + 1)]
    rows = rows_of(noisy(), train_lr=rates)
    alone, beside, as_planned = started(tmp_path), started(tmp_path, ("optimizer",)), started(tmp_path, ("optimizer",))
    feed(alone, rows)
    feed(beside, rows, planned=[1e-4] * STEPS)
    feed(as_planned, rows, planned=rates)
    for callback in (alone, as_planned):
        jump = next(one for one in callback.run.alerts if one.name == "lr_anomaly")
        assert "Likely cause: lr_change. The rate went from 0.0001 to 0.005 (50 times) at step" in jump.text
        assert "0 rows" not in jump.text
    assert "lr_anomaly" not in {one.name for one in beside.run.alerts}
    assert [event["evidence"]["finding"] for event in beside.run.events if event["title"] == "causes"] == ["lr_anomaly"]


def test_the_first_sentence_of_a_reason_is_whole():
    from llamafactory_obs.callbacks.diagnose import _in_words
    from llamafactory_obs.diagnosis.result import Cause

    reason = "The rate is 55 times the usual one (Kaplan et al. 2020). A second sentence."
    words = _in_words([Cause("lr_too_high", 1.0, [reason], [], [], "Halve it.")])
    assert words == f"Likely cause: lr_too_high. {reason.removesuffix(' A second sentence.')} Next: Halve it."


def test_a_nan_is_told_by_who_is_there(tmp_path):
    dead = [value if step < BAD else float("nan") for step, value in enumerate(noisy(), start=1)]
    rows = rows_of(dead, data_supervised_tokens=[300.0 if step < BAD else 0.0 for step in range(1, STEPS + 1)])
    alone, beside = started(tmp_path, action="stop"), started(tmp_path, others=("grad_norm_spike",))
    feed(alone, rows)
    feed(beside, rows)
    nan = [one for one in alone.run.alerts if one.name == "nan"]
    assert len(nan) == 1 and nan[0].evidence["causes"][0]["name"] == "all_labels_masked"
    assert alone.run.requests == [("stop", nan[0].step)]  # weights that are lost are not saved
    assert beside.run.alerts == [] and beside.run.requests == []
    assert beside.run.events[0]["evidence"]["causes"][0]["name"] == "all_labels_masked"


def test_all_ranks_raise_the_same_and_only_the_first_looks_for_causes(tmp_path):
    first, second = started(tmp_path), started(tmp_path, is_main=False)
    feed(first, spiked())
    feed(second, spiked())
    assert [(one.name, one.step, one.level) for one in first.run.alerts] == [
        (one.name, one.step, one.level) for one in second.run.alerts
    ]
    assert "causes" in first.run.alerts[0].evidence and "causes" not in second.run.alerts[0].evidence


def test_after_a_resume_it_goes_on_where_it_was(tmp_path):
    rows = spiked()
    whole, resumed = started(tmp_path), started(tmp_path, start=60)
    feed(whole, rows)
    feed(resumed, rows[:60], replaying=True)
    assert resumed.run.alerts == []
    feed(resumed, rows[60:], first=61)
    spikes = [[(one.name, one.step) for one in c.run.alerts if one.name == "spike"] for c in (whole, resumed)]
    assert spikes[0] == spikes[1] != []
    assert resumed._recent.curves(STEPS).breaks[0].row == 60


def test_what_control_did_to_the_rate_is_no_anomaly(tmp_path):
    rates = [rate * (0.5 if step > 60 else 1.0) for step, rate in enumerate(cosine(), start=1)]
    scales = [0.5 if step > 60 else 1.0 for step in range(1, STEPS + 1)]
    known = started(tmp_path)
    feed(known, rows_of(noisy(), train_lr=rates, train_lr_scale=scales))
    unknown = started(tmp_path)
    feed(unknown, rows_of(noisy(), train_lr=rates))
    assert not [one for one in known.run.alerts if one.name == "lr_anomaly"]
    assert [one for one in unknown.run.alerts if one.name == "lr_anomaly"]


def test_options_are_checked():
    from llamafactory_obs.callbacks.diagnose import Diagnose

    with pytest.raises(ValueError, match="64 rows"):
        Diagnose(window=10)
    with pytest.raises(ValueError, match="action"):
        Diagnose(action="kill")


def test_a_row_costs_little(tmp_path):
    """Measured on a laptop's core 0.06 to 0.1 ms a row; the bound leaves room for a busy machine."""
    callback = started(tmp_path)
    rows = rows_of(noisy(), train_lr=cosine(), train_grad_norm=[1.0] * STEPS, time_step_s=[1.0] * STEPS)
    many = [row for _ in range(20) for row in rows]
    feed(callback, many[:500])
    costs = []
    for step, row in enumerate(many[500:], start=501):
        one = SimpleNamespace(step=step, values=row, facts={})
        begin = time.perf_counter()
        callback.row(one)
        costs.append(time.perf_counter() - begin)
    assert sorted(costs)[len(costs) // 2] < 1e-3


def test_in_a_real_run_the_record_holds_the_verdict(train, capsys):
    from llamafactory_obs import cli

    out = train(callbacks=["diagnose", "label_mask"], max_steps=16)
    events = load_record(out).events
    verdict = [event for event in events if event["kind"] == "diagnosis"]
    assert [event["title"] for event in verdict] == ["verdict"] and verdict[0]["step"] == 16
    assert not [event for event in events if event["kind"] == "callback_off"]
    capsys.readouterr()
    assert cli.main(["diagnose", str(out), "--json"]) in (0, 1)
    assert f'"verdict": "{verdict[0]["evidence"]["verdict"]}"' in capsys.readouterr().out
