"""`ranks`: a slow rank and ranks that are out of step, in two real processes; the detectors on plain numbers."""

import math

import pytest
import torch
from test_ranks import two  # noqa: F401  (a fixture)

from llamafactory_obs.callbacks.checksum import checksum
from llamafactory_obs.detect import DesyncDetector, StragglerDetector
from llamafactory_obs.record.reader import read_rows


def alerts(record, *titles: str) -> list[tuple[str, int]]:
    return [(e["title"], e["step"]) for e in record.events if e["kind"] == "alert" and e["title"] in titles]


# ---- in real runs ---------------------------------------------------------------------------------------------------

DESYNC, STRAGGLER = ("desync", "desync_over"), ("straggler", "straggler_over")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["full", "lora"])
def test_healthy_ranks_are_quiet_and_each_has_its_numbers(two, engine):  # noqa: F811
    callbacks = [{"ranks": {"weights_every": 2, "window": 4}}, "throughput", "label_mask", "grad_norm_spike"]
    record, _ = two(callbacks=callbacks, max_steps=12, finetuning_type=engine)
    assert alerts(record, *DESYNC) == []
    rows, _ = read_rows(record.folder / "ranks.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 13))
    for row, tokens in zip(rows, record.steps["data/tokens"], strict=True):
        assert sum(row["values"].get("data/tokens", [tokens / 2] * 2)) == tokens
        assert any("data/tokens" in row["values"] for row in rows), "two different batches"
        assert "train/grad_norm" not in row["values"], "equal on all ranks"
    have = [number is not None for number in record.steps["ranks/weights_checksum"]]
    assert have == [step == 1 or step % 2 == 0 for step in range(1, 13)]


@pytest.mark.slow
def test_a_slow_rank_is_named(two):  # noqa: F811
    callbacks = [{"ranks": {"window": 5}}, "throughput"]
    record, _ = two(callbacks=callbacks, max_steps=10, slow_rank=1)
    ((_, step),) = alerts(record, *STRAGGLER)
    assert 6 <= step <= 8
    (event,) = [e for e in record.events if e["title"] == "straggler"]
    evidence = event["evidence"]
    assert (evidence["rank"], evidence["part"]) == (1, "forward")
    assert evidence["lost_s"] == pytest.approx(0.2, abs=0.08)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drift", "more", "key", "steps"),
    [
        ("weight", {}, "ranks/weights_checksum", (4, 6)),
        ("rate", {}, "train/lr", (4, 4)),
    ],
)
def test_a_rank_out_of_step_is_an_error(two, drift, more, key, steps):  # noqa: F811
    record, _ = two(callbacks=[{"ranks": {"weights_every": 2}}], max_steps=8, extra={"drift": drift}, **more)
    found = [e for e in record.events if e["title"] == "desync"]
    assert found[0]["evidence"]["column"] == key and steps[0] <= found[0]["step"] <= steps[1]
    assert found[0]["level"] == "error" and found[0]["action"] == "kill"


# ---- on plain numbers -----------------------------------------------------------------------------------------------


def test_one_process_has_nothing_to_compare(train):
    from llamafactory_obs import load_record

    record = load_record(train(callbacks=["ranks"], max_steps=2))
    assert [e["title"] for e in record.events if e["name"] == "ranks"] == ["one process"]
    assert not (record.folder / "ranks.jsonl").exists()


def flip(model: torch.nn.Module, name: str, element: int) -> None:
    dict(model.named_parameters())[name].detach().view(-1).view(torch.int16)[element] ^= 1


def test_the_checksum_sees_every_single_bit():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(7, 5), torch.nn.Linear(5, 3, bias=False), torch.nn.Linear(3, 3).bfloat16()]
    model = torch.nn.Sequential(*layers)
    parameters = list(model.parameters())
    first = checksum(parameters).item()
    assert first == checksum(parameters).item() and float(first) == first
    for name, parameter in model.named_parameters():
        for element in (0, parameter.numel() - 1):
            flip(model, name, element)
            assert checksum(parameters).item() != first, (name, element)
            flip(model, name, element)
    assert checksum(parameters).item() == first


def test_the_checksum_tells_exchanged_parameters_apart():
    a, b = torch.nn.Parameter(torch.randn(8)), torch.nn.Parameter(torch.randn(8))
    assert checksum([a, b]).item() != checksum([b, a]).item()


def test_a_parameter_within_a_shared_buffer():
    buffer = torch.arange(20, dtype=torch.float32)
    whole, part = torch.nn.Parameter(buffer[1:9].clone()), torch.nn.Parameter(buffer[1:9])
    assert checksum([whole]).item() == checksum([part]).item()


@pytest.mark.parametrize(
    ("numbers", "apart"),
    [
        ([1.0, 1.0], False),
        ([1.0, 1.0 + 1e-8], False),
        ([1.0, 1.001], True),
        ([math.nan, math.nan], False),
        ([math.nan, 1.0], True),
        ([math.inf, math.inf], False),
        ([None, 1.0], False),  # a callback is off there
        ([None, None], False),
        ([0.0, 0.0], False),
    ],
)
def test_what_counts_as_apart(numbers, apart):
    findings = DesyncDetector().update(3, {"train/grad_norm": numbers})
    assert [f.name for f in findings] == (["desync"] if apart else [])


def test_a_desync_is_said_once_and_when_it_is_over():
    detector = DesyncDetector(exact=frozenset({"c"}))
    said = [f.name for step in range(4) for f in detector.update(step, {"c": [1.0, 2.0 if step < 2 else 1.0]})]
    assert said == ["desync", "desync_over"]


def parts(forward: list[float]) -> dict[str, list[float]]:
    return {"forward": forward, "data_wait": [0.01] * len(forward)}


def test_a_straggler_is_the_same_rank_again_and_again():
    slow = StragglerDetector(["a", "b", "c"], window=10)
    found = [slow.update(step, parts([0.1, 0.13, 0.1])) for step in range(1, 15)]
    names = [f.name for f in found if f is not None]
    assert names == ["straggler"] and found[9].evidence["rank"] == 1 and found[9].evidence["host"] == "b"
    assert found[9].evidence["lost_share"] == pytest.approx(0.03 / 0.14)


def test_ranks_that_take_turns_are_no_stragglers():
    """Other batches each step: another rank is slow each time."""
    turns = StragglerDetector(["a", "b"], window=10)
    assert not any(turns.update(step, parts([0.1, 0.2] if step % 2 else [0.2, 0.1])) for step in range(60))


def test_a_small_difference_costs_nothing():
    close = StragglerDetector(["a", "b"], window=10)
    assert not any(close.update(step, parts([0.1, 0.11])) for step in range(60))


def test_a_straggler_that_keeps_up_again():
    slow = StragglerDetector(["a", "b"], window=6)
    names = [f.name for step in range(30) if (f := slow.update(step, parts([0.1, 0.2 if step < 12 else 0.1])))]
    assert names == ["straggler", "straggler_over"]


@pytest.mark.parametrize("option", [{"share": 0.0}, {"share": 1.0}, {"window": 0}, {"weights_every": -1}])
def test_options_that_make_no_sense(option):
    from llamafactory_obs import RankWatch

    with pytest.raises(ValueError, match=next(iter(option))):
        RankWatch(**option)
