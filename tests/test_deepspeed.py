"""DeepSpeed itself, ZeRO 1 to 3, two processes on the CPU: one record, equal ranks, the same numbers as without it."""

import importlib.util
import json

import pytest
from test_ranks import two  # noqa: F401  (a fixture)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="no deepspeed here: make test-deepspeed"),
]
CALLBACKS = [{"ranks": {"weights_every": 1}}, "throughput", "label_mask", "grad_norm_spike", "vram"]


def zero_config(path, stage: int):
    auto = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
    zero = {"stage": stage, "overlap_comm": False}
    config = {name: "auto" for name in auto} | {"zero_allow_untested_optimizer": True, "zero_optimization": zero}
    path.write_text(json.dumps(config | {"zero_force_ds_cpu_optimizer": False}))
    return str(path)


def test_zero_1_to_3(two, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    plain, _ = two(callbacks=CALLBACKS)
    for stage in (1, 2, 3):
        sharded, _ = two(callbacks=CALLBACKS, deepspeed=zero_config(tmp_path / "zero.json", stage))
        kinds = [event["kind"] for event in sharded.events]
        assert "callback_off" not in kinds and kinds.count("start") == kinds.count("end") == 1
        assert not [event for event in sharded.events if event["title"] == "desync"]
        assert sharded.run["world"]["engine"] == "deepspeed"
        assert sharded.steps["step"] == [1, 2, 3, 4, 5, 6]
        assert sharded.steps["data/tokens"] == plain.steps["data/tokens"]
        for key in ("train/loss", "train/grad_norm"):
            assert sharded.steps[key] == pytest.approx(plain.steps[key], rel=1e-3), key
        assert ("ranks/weights_checksum" in sharded.steps) is (stage < 3), "ZeRO-3 shards the weights"
