"""Alerts of real trainings: told once, recorded always, by webhook too, and the run is the same with or without it."""

import json
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from webhook_server import SECRET, Service

from llamafactory_obs import load_record
from llamafactory_obs.alerts import post as post_module
from llamafactory_obs.alerts import sender as sender_module
from llamafactory_obs.record.schema import UNSENT

PLANTS = str(Path(__file__).with_name("alert_plants.py"))
#: a spike of the norm alone, again, then one that counts, then its end; at a cooldown of 50 steps
LIFE = "spike:warn:2,spike:warn:3,spike:error:4,spike_over:info:5,odd thing:warn:5"


def planted(plan=LIFE, **more):
    return {"name": f"{PLANTS}:Planted", "args": {"plan": plan, **more}}


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.setattr(sender_module, "_FIRST_S", 0.05)
    monkeypatch.setattr(post_module, "AT_END_S", 5.0)
    monkeypatch.setattr(post_module, "AT_EXIT_S", 0.0)
    made = []

    def start(kind, **options):
        made.append(Service(kind, **options))
        return made[-1]

    yield start
    for service in made:
        service.close()


def alerts(record) -> list[tuple]:
    return [
        (e["step"], e["title"], e["alert"]["state"], e["alert"]["count"], e["alert"]["told"])
        for e in record.events
        if e["kind"] == "alert"
    ]


def test_one_message_each_and_bit_equal_weights(train, serve, capfd, monkeypatch):
    service = serve("feishu", secret=SECRET)
    monkeypatch.setenv("HOOK_OF_THIS_TEST", service.url)
    webhook = {"url": "${HOOK_OF_THIS_TEST}", "kind": "feishu", "secret": SECRET, "title": "夜间训练"}
    without = train(finetuning_type="lora", lora_dropout=0.1)
    capfd.readouterr()
    options = {"report_to": "tensorboard"} if _has("tensorboard") else {}
    out = train(
        callbacks=["grad_norm_spike", planted()],
        obs={"alerts": {"webhook": webhook}},
        finetuning_type="lora",
        lora_dropout=0.1,
        **options,
    )
    a, b = (load_file(folder / "adapter_model.safetensors") for folder in (without, out))
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    record = load_record(out)
    assert alerts(record) == [
        (2, "spike", "raised", 1, True),
        (3, "spike", "repeated", 2, False),
        (4, "spike", "escalated", 3, True),
        (5, "spike_over", "resolved", 3, True),
        (5, "odd thing", "raised", 1, True),
    ]
    shown = capfd.readouterr()
    lines = [line for line in shown.out.splitlines() if "planted:" in line]
    assert [line.count("lower the learning rate") for line in lines] == [1] * 4 and "step 3 " not in "".join(lines)
    text = "\n".join(service.texts())
    for step, title in ((2, "spike"), (4, "spike"), (5, "spike_over"), (5, "odd thing")):
        assert text.count(f"{title} at step {step}: 请降低学习率") == 1
    assert "spike at step 3" not in text and text.count("夜间训练") == len(service.taken)
    assert not (record.folder / UNSENT).exists()
    kept = "\n".join(p.read_bytes().decode("utf-8", "replace") for p in out.rglob("*") if p.is_file())
    for secret in (service.url, "0123456789abcdef", "fedcba9876543210", SECRET):
        assert secret not in kept and secret not in shown.out + shown.err


def _has(name: str) -> bool:
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def test_what_goes_on_is_said_at_the_end_and_after_a_resume_its_life_goes_on(train, tmp_path):
    plan = "stalled:error:2,straggler:warn:3,straggler_over:info:4"
    out = train(tmp_path / "run", callbacks=[planted(plan)], max_steps=6, save_steps=3)
    [end] = [e for e in load_record(out).events if e["kind"] == "end"]
    assert [one["id"] for one in end["evidence"]["open_alerts"]] == ["planted/stalled"]
    assert end["text"].endswith("still open: planted/stalled since step 2")
    plan = "stalled:error:5,straggler_over:info:5,learning_again:info:6"
    resume = {"resume_from_checkpoint": str(out / "checkpoint-3"), "overwrite_output_dir": False}
    train(out, callbacks=[planted(plan)], max_steps=6, save_steps=3, **resume)
    record = load_record(out)
    again = [e["alert"] for e in record.events if e["kind"] == "alert" and e["segment"] == 1]
    assert [(one["state"], one["since"], one["told"]) for one in again] == [
        ("repeated", 2, False),
        ("resolved", 3, True),  # open at checkpoint 3; that it was over at 4 was thrown away
        ("resolved", 2, True),
    ]
    assert "still open" not in [e for e in record.events if e["kind"] == "end"][-1]["text"]


@pytest.mark.parametrize(
    ("plan", "stop_on", "last", "saved"),
    [
        ("odd thing:warn:3", ["planted/odd thing"], 3, [3]),
        ("stalled:error:3", ["stalled"], 3, [3]),
        ("stalled:error:3", ["error"], 3, [3]),
        ("stalled:warn:3", ["error"], 6, [6]),
        ("stalled:error:3", [], 6, [6]),
        ("nan:error:3", ["nan"], 3, []),  # a checkpoint of such weights would only bury the last good one
        ("nan:error:2,stalled:error:3", ["stalled"], 3, []),
        ("nan:error:2,finite_again:info:3,stalled:error:4", ["stalled"], 4, [4]),
    ],
)
def test_stop_on(train, plan, stop_on, last, saved):
    out = train(callbacks=[planted(plan)], obs={"alerts": {"stop_on": stop_on}}, save_steps=100)
    record = load_record(out)
    assert record.steps["step"][-1] == last
    assert [int(p.name.split("-")[1]) for p in out.glob("checkpoint-*")] == saved
    stops = [e for e in record.events if e["kind"] == "stop"]
    assert len(stops) == (last < 6)
    assert not stops or ("without a checkpoint" in stops[0]["text"]) == (not saved)


def test_levels(train, capfd):
    plan = "odd thing:info:2,stalled:error:3,learning_again:info:4"
    out = train(callbacks=[planted(plan)], obs={"alerts": {"min_level": "warn"}})
    assert [told for *_, told in alerts(load_record(out))] == [False, True, True]
    said = [line for line in capfd.readouterr().out.splitlines() if "planted:" in line]
    assert len(said) == 2, "what ends an error is told, though it is an info"


def test_a_hanging_server_slows_no_step_and_the_next_start_sends(train, serve, tmp_path, monkeypatch):
    monkeypatch.setattr(post_module, "AT_END_S", 0.5)
    service = serve("slack")
    service.script.extend(["hang"] * 10)
    plan = ",".join(f"odd thing {step}:error:{step}" for step in range(2, 12))
    run = {"obs": {"alerts": {"webhook": {"url": service.url, "kind": "slack"}}}, "max_steps": 12}
    out = train(tmp_path / "run", callbacks=[planted(plan)], **run)
    record = load_record(out)
    assert max(record.steps["time/callbacks_s"][1:]) < 0.1, "no step waits for a webhook"
    rows = [json.loads(line) for line in (record.folder / UNSENT).read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 10 and service.taken == []
    time.sleep(0.1)
    service.script.clear()
    train(tmp_path / "run", callbacks=[planted("odd thing:warn:99")], **run)  # begins anew in the same folder
    text = "\n".join(service.texts())
    assert [text.count(f"odd thing {step} at step {step}:") for step in range(2, 12)] == [1] * 10
    assert not (record.folder / UNSENT).exists()


def test_a_crash_is_told(train, serve):
    from transformers import TrainerCallback

    class Crash(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 3:
                raise RuntimeError("planted crash")

    service = serve("wecom")
    with pytest.raises(RuntimeError, match="planted crash"):
        train(
            callbacks=["label_mask"],
            obs={"alerts": {"webhook": {"url": service.url, "kind": "wecom"}}},
            extra_callbacks=[Crash()],
        )
    [text] = [text for text in service.texts() if "planted crash" in text]
    assert "[ALERT]" in text and "recorder: training ends: crash" in text


def test_a_bad_webhook_is_refused_before_the_model_loads(train, capfd):
    with pytest.raises(SystemExit) as caught:
        train(callbacks=["label_mask"], obs={"alerts": {"webhook": {"url": "${NOT_SET_AT_ALL}"}}})
    assert caught.value.code == 2
    assert "environment variable NOT_SET_AT_ALL is not set" in capfd.readouterr().err
