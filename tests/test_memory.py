"""GPU memory from a stand-in for torch's allocator (CI has no GPU), the margin and the peaks (MEM-1, MEM-2)."""

import pytest
import torch

from llamafactory_obs import Vram
from llamafactory_obs.callbacks import memory_source
from llamafactory_obs.callbacks.context import RunContext
from llamafactory_obs.callbacks.memory_source import CudaMemory
from llamafactory_obs.callbacks.pipeline import Row

GIB = 1 << 30


class FakeCard:
    """torch.cuda's counters and NVML's view of one card."""

    def __init__(self, monkeypatch, **stats):
        self.stats, self.used, self.resets = stats, None, 0
        monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: {k: v * GIB for k, v in self.stats.items()})
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: self.reset())
        self.reason = "no NVML here"

    def reset(self):
        self.resets += 1

    def device(self, index):
        return None

    def memory(self, index):
        return None if self.used is None else {"used": self.used * GIB}


def stats(allocated, reserved, peak_allocated, peak_reserved, split=0.0):
    return {
        "allocated_bytes.all.current": allocated,
        "reserved_bytes.all.current": reserved,
        "allocated_bytes.all.peak": peak_allocated,
        "reserved_bytes.all.peak": peak_reserved,
        "inactive_split_bytes.all.current": split,
    }


def test_three_names_for_three_things(monkeypatch):
    card = FakeCard(monkeypatch, **stats(2.47, 16.69, 15.0, 16.69, split=1.669))
    card.used = 20.0
    memory = CudaMemory(torch.device("cuda", 0), reset_peaks=False, nvml=card)
    figures = memory.read()
    memory.close()
    assert figures == pytest.approx(
        {
            "system/allocated_gib": 2.47,
            "system/reserved_gib": 16.69,
            "system/peak_allocated_gib": 15.0,
            "system/peak_reserved_gib": 16.69,
            "system/fragmentation": 0.1,
            "system/device_used_gib": 20.0,
        }
    )
    assert card.resets == 0, "others read the same counters"


def test_peaks_are_reset_only_when_asked(monkeypatch):
    card = FakeCard(monkeypatch, **stats(1, 2, 1, 2))
    memory = CudaMemory(torch.device("cuda", 0), reset_peaks=True, nvml=card)
    assert "system/device_used_gib" not in memory.read() and card.resets == 1
    assert memory.note.startswith("no NVML here; other processes")


class Run:
    """What the callback needs of a recorder."""

    def __init__(self, **arguments):
        state = type("State", (), {"max_steps": 1000, "global_step": 0})
        defaults = {"device": torch.device("cuda", 0), "skip_memory_metrics": True, "per_device_train_batch_size": 4}
        args = type(
            "Args",
            (),
            {**defaults, "gradient_accumulation_steps": 2, "world_size": 1, **arguments, "auto_find_batch_size": False},
        )
        self.trainer = type("Trainer", (), {"state": state, "args": args})
        self.events, self.alerts, self.open_row, self.step, self.replaying = [], [], Row(), 1, False

    def event(self, kind, name, title, text, **more):
        self.events.append((kind, title, text, more))

    def alert(self, name, finding):
        self.alerts.append(finding)

    def put(self, key, value):
        self.open_row.values[key] = value


@pytest.fixture
def start(monkeypatch):
    def make(card, run, **options):
        monkeypatch.setattr(memory_source, "Nvml", lambda: card)
        callback = Vram(**options)
        callback.run, callback.context = run, RunContext()
        callback.begin()
        return callback

    return make


def one_step(callback, run, step, shape):
    run.step, run.open_row = step, Row(step)
    callback.batch({"input_ids": torch.zeros(*shape)})
    callback.step()
    callback.row(run.open_row)
    return run.open_row.values


def test_margin_counts_the_neighbour_on_the_card(monkeypatch, start):
    card, run = FakeCard(monkeypatch, **stats(5, 6, 7, 8)), Run()
    card.used = 6 + 13.2  # vLLM beside it holds 13.2
    callback = start(card, run, limit_gib=24)
    values = one_step(callback, run, 1, (4, 512))
    assert values["system/margin_gib"] == pytest.approx(24 - 8 - 13.2)
    assert not [e for e in run.events if e[0] == "alert"]
    card.stats = stats(5, 6, 10, 10.5)
    for step in (2, 3):
        one_step(callback, run, step, (4, 2048))
    alerts = [e for e in run.events if e[0] == "alert"]
    assert len(alerts) == 1 and "0.30 GiB left of 24" in alerts[0][2]
    assert alerts[0][3]["suggest"] == {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}


def test_the_batch_that_made_each_peak_is_kept(monkeypatch, start):
    card, run = FakeCard(monkeypatch, **stats(5, 6, 7, 8)), Run()
    callback = start(card, run)
    for step, peak, length in [(1, 8, 512), (2, 8, 640), (3, 9, 2048), (4, 9.01, 100)]:
        card.stats = stats(5, 6, 7, peak)
        one_step(callback, run, step, (4, length))
    peaks = [
        (more["step"], more["evidence"]["longest_sequence"]) for kind, _, _, more in run.events if kind == "memory_peak"
    ]
    assert peaks == [(1, 512), (3, 2048)]


def test_a_leak_is_forecast(monkeypatch, start):
    card, run = FakeCard(monkeypatch, **stats(0, 0, 0, 0)), Run()
    callback = start(card, run, limit_gib=39.9)
    for step in range(1, 500):
        card.stats = stats(36 + 0.006 * step, 37, 37, 37)
        one_step(callback, run, step, (4, 512))
    (leak,) = run.alerts
    assert leak.name == "memory_growth" and leak.evidence["limit_at_step"] == pytest.approx(650, rel=0.05)


@pytest.mark.parametrize(("env", "metrics"), [("1", True), ("", False)])
def test_no_reset_where_somebody_else_reads_the_peak(monkeypatch, start, env, metrics):
    monkeypatch.setenv("RECORD_VRAM", env)
    card, run = FakeCard(monkeypatch, **stats(1, 2, 1, 2)), Run(skip_memory_metrics=metrics)
    callback = start(card, run, per_step_peak=True)
    one_step(callback, run, 1, (1, 8))
    assert card.resets == 0 and any(title == "per_step_peak off" for _, title, _, _ in run.events)


def test_a_batch_of_one_is_not_halved(monkeypatch, start):
    card, run = FakeCard(monkeypatch, **stats(1, 2, 1, 2)), Run(per_device_train_batch_size=1)
    callback = start(card, run)
    callback._source.report = lambda: {}
    callback.failed(ValueError("something else"))
    callback.failed(torch.OutOfMemoryError("CUDA out of memory"))
    (oom,) = [e for e in run.events if e[0] == "oom"]
    assert oom[3]["suggest"] == {}
    model_args = type("ModelArgs", (), {"disable_gradient_checkpointing": True})
    callback.context = RunContext(arguments={"model_args": model_args})
    assert callback._smaller_batch() == {"disable_gradient_checkpointing": False}
    run.trainer.args.per_device_train_batch_size = 5  # the total batch stays what it was
    assert callback._smaller_batch() == {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 10}
    assert oom[2].index("1. halve") < oom[2].index("2. gradient") < oom[2].index("3. evaluation")


def test_no_gpu_is_one_word(train):
    from llamafactory_obs import load_record

    record = load_record(train(callbacks=["vram"], max_steps=2))
    notes = [e["text"] for e in record.events if e["name"] == "vram" and e["kind"] == "note"]
    assert len(notes) == 1 and "RSS" in notes[0]
    assert all(0.01 < rss < 100 for rss in record.steps["system/rss_gib"])
