"""The verb `memory`: the card, the remedies, the comparison with a record, what is printed."""

import json
import re

import pytest
from fake_nvml import FakeNvml
from memory_config import TWO_LAYERS, config_only, run_yaml

from llamafactory_obs.cli import main
from llamafactory_obs.errors import ConfigError
from llamafactory_obs.gpu.nvml import Nvml
from llamafactory_obs.preflight.run_config import read_run_config

pytest.importorskip("llamafactory", reason='LlamaFactory is not installed: pip install "llamafactory-obs[train]"')


@pytest.fixture
def config(tmp_path):
    def write(**overrides):
        return run_yaml(tmp_path, config_only(tmp_path / "model", TWO_LAYERS), **overrides)

    return write


def test_the_card_is_what_the_callback_says_then_the_block_then_24(config):
    from llamafactory_obs.preflight.memory.room import room

    none = Nvml(object())
    assert room(read_run_config(config()), nvml=none).card_gib == 24
    both = config(callbacks=[{"vram": {"limit_gib": 16, "margin_gib": 2}}], obs={"limit_gib": 10})
    found = room(read_run_config(both), nvml=none)
    assert (found.card_gib, found.margin_gib) == (16, 2)
    assert room(read_run_config(config(obs={"limit_gib": 10})), nvml=none).card_gib == 10


def test_vllm_takes_its_share_of_the_card(config):
    from llamafactory_obs.preflight.memory.room import room

    given = read_run_config(config())
    assert room(given, vllm_share=0.55, nvml=Nvml(object())).free_gib == pytest.approx(10.8)
    assert room(given, beside_gib=4, nvml=Nvml(object())).free_gib == 20
    assert room(given, beside_gib=30, nvml=Nvml(object())).free_gib == 0


def test_remedies_stop_when_it_fits_and_the_neighbour_is_last(config):
    from llamafactory_obs.preflight.memory.estimate import estimate
    from llamafactory_obs.preflight.memory.remedies import remedies

    keys = {"per_device_train_batch_size": 16, "disable_gradient_checkpointing": True, "cutoff_len": 512}
    given = read_run_config(config(**keys))
    made = estimate(given)
    assert remedies(given, made, made.total_gib) == []
    some = remedies(given, made, made.total_gib / 2)
    assert some[0].change == {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 64}
    assert [r.fits for r in some] == [False] * (len(some) - 1) + [True]
    all_of_them = remedies(given, made, 0.01, others_gib=13)
    order = [
        "batch",
        "checkpointing",
        "liger",
        "4 bit",
        "8-bit optimizer",
        "neighbour",
    ]  # what saves little is left out
    names = [r.name for r in all_of_them]
    assert names == [name for name in order if name in names] and {"batch", "neighbour"} <= set(names)
    total = made.total_gib
    for one in all_of_them[:-1]:  # each on top of the one before
        total -= one.saves_gib
        assert one.total_gib == pytest.approx(total) and one.saves_gib > 0
    # recomputed: the estimate of the changed config is the one that was promised
    changed = read_run_config(config(**keys | all_of_them[0].change))
    assert estimate(changed).total_gib == pytest.approx(all_of_them[0].total_gib)


def test_exit_codes_and_json(config, capsys):
    path = str(config())
    assert main(["memory", path, "--json", "--beside", "0"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"] == "fits" and answer["remedies"] == []
    assert answer["total_gib"] == pytest.approx(sum(line["gib"] for line in answer["lines"]))
    assert main(["memory", path, "obs={limit_gib: 0.3}"]) == 1
    shown = capsys.readouterr().out
    assert "DOES NOT FIT" in shown and re.search(r"total +0\.\d\d", shown)
    for wrong in (["--vllm-share", "55"], ["--longest", "0"], ["--beside", "-1"], ["--against", "nowhere"]):
        assert main(["memory", path, *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def record(folder, length, **peaks):
    """A run's record as the callback `vram` writes it."""
    from llamafactory_obs.record.schema import encode

    (folder / "obs").mkdir(parents=True)
    rows = [
        {"step": n, "time": 1.0, "segment": 0, **{f"system/{k}": v * n / 2 for k, v in peaks.items()}} for n in (1, 2)
    ]
    (folder / "obs" / "steps.jsonl").write_bytes(b"".join(encode(row) for row in rows))
    event = {"step": 2, "time": 1.0, "segment": 0, "kind": "memory_peak", "level": "info", "name": "vram"}
    event |= {
        "title": "new peak",
        "text": "",
        "evidence": {"longest_sequence": length},
        "action": "none",
        "suggest": {},
    }
    (folder / "obs" / "events.jsonl").write_bytes(encode(event))
    return folder


def test_against_a_record_says_how_far_off(config, tmp_path, capsys):
    from llamafactory_obs.preflight.memory.against import against
    from llamafactory_obs.preflight.memory.estimate import estimate

    given = read_run_config(config())
    lines = {line.name: line.gib for line in estimate(given, longest_tokens=128).lines}
    tensors = sum(gib for name, gib in lines.items() if name not in ("CUDA context", "allocator"))
    measured = {"peak_allocated_gib": tensors * 1.25, "peak_reserved_gib": tensors + lines["allocator"]}
    folder = record(tmp_path / "run", 128, **measured)
    low, exact = against(given, folder)
    assert (low.what, low.tokens) == ("peak allocated", 128) and low.off == pytest.approx(-0.2)
    assert str(low).endswith("20.0% low")
    assert exact.what == "peak reserved" and exact.off == pytest.approx(0, abs=1e-6)
    main(["memory", str(given.path), "--against", str(folder)])
    assert "20.0% low" in capsys.readouterr().out.replace("\n", " ")


def test_a_record_without_gpu_memory_is_refused(config, tmp_path):
    from llamafactory_obs.preflight.memory.against import against

    with pytest.raises(ConfigError, match="no GPU memory"):
        against(read_run_config(config()), record(tmp_path / "run", 8, rss_gib=3.0))


def test_the_card_with_the_least_room_counts(config):
    from llamafactory_obs.preflight.memory.room import room

    fake = Nvml(FakeNvml())
    memory = fake.memory(0)
    found = room(read_run_config(config()), world=1, nvml=fake)
    assert found.card_gib == memory["total"] / 2**30 and found.others_gib == memory["used"] / 2**30
    assert found.card_source == "the card's size"
