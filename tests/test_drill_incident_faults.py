"""The faults of the incident drills, on small tensors: each does what its name says, in its step alone."""

import json
import os

import pytest

from llamafactory_obs.drill.incident.incidents import INCIDENTS
from llamafactory_obs.drill.incident.planted import VARIABLE, read_planted


@pytest.fixture
def torch(llamafactory):
    return pytest.importorskip("torch")


def test_the_plant_is_nothing_unless_the_environment_says_so(torch, tmp_path, monkeypatch):
    from llamafactory_obs.drill.incident.plant import FAULTS, Plant

    assert type(Plant()) is Plant
    assert list(FAULTS) == list(INCIDENTS)
    for name, (_, cls) in FAULTS.items():
        monkeypatch.setitem(os.environ, VARIABLE, json.dumps({"fault": name, "at": 7, "told": str(tmp_path / "told")}))
        assert type(Plant()).__name__ == cls


def batch(torch):
    """Two rows of 5 and 3 tokens; the answer begins at the third token."""
    ids = torch.tensor([[5, 6, 7, 8, 9], [3, 4, 2, 0, 0]])
    mask = (ids != 0).long()
    labels = torch.where(torch.arange(5) >= 2, ids, -100).masked_fill(mask == 0, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def test_labels_are_shifted_by_one(torch, tmp_path):
    from llamafactory_obs.drill.incident.faults.batches import ShiftLabels

    given = batch(torch)
    kept = given["labels"].clone()
    made = ShiftLabels(3, str(tmp_path / "told")).spoil(given, None)
    assert made["labels"].tolist() == [[-100, -100, -100, 7, 8], [-100] * 5]
    assert torch.equal(given["labels"], kept) and torch.equal(made["input_ids"], given["input_ids"])
    assert read_planted(tmp_path / "told") == {"step": 3, "labels": 2}


def test_a_sample_becomes_long(torch):
    from llamafactory_obs.drill.incident.faults.batches import _repeated

    given = batch(torch) | {"position_ids": torch.arange(5).repeat(2, 1), "pixel_values": torch.zeros(1, 3)}
    made = _repeated(given, given["input_ids"].shape, 12)
    assert made["input_ids"].shape == (2, 12) and made["input_ids"][0].tolist() == [5, 6, 7, 8, 9] * 2 + [5, 6]
    assert made["attention_mask"][0].sum() == 12 and made["attention_mask"][1].tolist() == [1] * 3 + [0] * 9
    assert (made["labels"][1, 5:] == -100).all() and (made["labels"][0, 5:] != -100).any()
    assert "position_ids" not in made and made["pixel_values"] is given["pixel_values"]
    packed = {**given, "attention_mask": torch.ones(2, 1, 5, 5)}
    assert "attention_mask" not in _repeated(packed, given["input_ids"].shape, 12)


class _State:
    def __init__(self, step: int):
        self.global_step = step
        self.is_local_process_zero = True


class _Args:
    world_size = 1


def test_one_gradient_is_infinite_in_one_step(torch, tmp_path):
    from llamafactory_obs.drill.incident.faults.gradients import InfiniteGradient

    model, fault = torch.nn.Linear(3, 2), InfiniteGradient(2, str(tmp_path / "told"))
    finite = []
    for step in range(3):
        fault.on_step_begin(_Args(), _State(step), None, model=model)
        model.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        fault.on_step_end(_Args(), _State(step + 1), None)
        finite.append(torch.isfinite(model.weight.grad).sum().item())
    assert finite == [6, 5, 6] and read_planted(tmp_path / "told") == {"step": 2, "parameter": "weight"}


def test_without_an_adapter_no_gradient_comes(torch, tmp_path):
    from llamafactory_obs.drill.incident.faults.gradients import AdapterOff

    model = torch.nn.Linear(3, 2)
    AdapterOff(1, str(tmp_path / "told")).on_train_begin(_Args(), _State(0), None, model=model)
    model(torch.ones(1, 3)).sum().backward()
    assert not model.weight.grad.any() and not model.bias.grad.any()
    assert read_planted(tmp_path / "told")["by_passed"] is False


def test_the_disk_is_waited_for(torch, tmp_path):
    from llamafactory_obs.drill.incident.faults.storage import WriteEveryStep

    fault, args = WriteEveryStep(3, seconds=0.05, told=str(tmp_path / "told")), _Args()
    args.output_dir = str(tmp_path)
    for step in range(3):
        fault.on_step_begin(args, _State(step), None)
        fault.on_step_end(args, _State(step + 1), None)
        assert (tmp_path / "dump.bin").exists() is (step == 2)
    facts = read_planted(tmp_path / "told")
    assert facts["step"] == 3 and facts["mib"] >= 16 and (tmp_path / "dump.bin").stat().st_size >= 16 << 20
