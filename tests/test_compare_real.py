"""Real LlamaFactory runs: the same start twice, another learning rate, another batch."""

import os

import pytest
from fault_runs import make_data, make_model, train

from llamafactory_obs.compare.compare import compare
from llamafactory_obs.compare.runs import read_runs

pytestmark = pytest.mark.slow
STEPS = 48


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    before = os.getcwd()
    os.chdir(folder)  # no git here: the code is not what is compared
    model, data = make_model(folder / "model"), make_data(folder / "data")
    kinds = {
        "a": {},
        "again": {},
        "rate": {"learning_rate": 2e-4},
        "wide": {"per_device_train_batch_size": 8, "max_steps": STEPS // 2},
    }
    for name, changes in kinds.items():
        train(model, data, folder / name, **{"max_steps": STEPS, "save_steps": 1000, "seed": 1} | changes)
    os.chdir(before)
    return folder


def test_real_runs(runs):
    found = compare(read_runs([runs / name for name in ("a", "again", "rate", "wide")]))
    again, rate, wide = found.pairs
    assert again.relation == "identical" and again.exact.steps == STEPS and again.run_name == ""
    assert {"train/loss", "train/grad_norm", "data/tokens"} <= set(again.exact.columns)

    assert [(row.key, row.a, row.b) for row in rate.differences.rows] == [("learning_rate", 2e-3, 2e-4)]
    assert rate.run_name == "lr2e-4" and rate.differences.folded == ["output_dir"]
    first = {one.column: one.step for one in rate.exact.first}
    # the rate of step 1 is 0 (warm-up), so step 2 sees the same weights: the first loss that differs is that of step 3
    assert rate.exact.last_equal == 1 and (first["train/lr"], first["train/loss"]) == (2, 3)
    assert rate.curves[0].parting.kind == "parted" and 3 <= rate.curves[0].since <= 20
    assert rate.verdict.better == "A" and rate.layers.rows > 10

    assert (wide.axis.name, wide.axis.factor, wide.axis.high) == ("samples", 2.0, STEPS)
    assert {row.key for row in wide.differences.rows} == {"max_steps", "per_device_train_batch_size"}
    assert wide.run_name == "bs8_s24" or wide.run_name == "s24_bs8"
