"""Will vLLM load the adapter that a run saves? Told from the YAML alone; each fault with a plain LoRA beside it."""

import pytest
from ahead_config import effective  # noqa: F401

from llamafactory_obs.preflight.ahead.adapter import check_adapter

LORA = {"finetuning_type": "lora", "lora_rank": 8}
VLLM = [{"probe": {"backend": "vllm"}}]


@pytest.mark.parametrize(
    ("rank", "limit", "status"), [(8, None, "pass"), (16, None, "pass"), (24, 32, "warn"), (300, 320, "warn")]
)
def test_rank(effective, rank, limit, status):  # noqa: F811
    with effective(**LORA | {"lora_rank": rank}) as run:
        (check,) = check_adapter(run, "http://localhost:8000/v1")
    assert (check.status, check.value) == (status, rank)
    if limit:
        assert f"--max-lora-rank {limit}" in check.fix and f"--max-lora-rank {limit}" in check.detail


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"lora_rank": 1024}, "rank 1024"),
        ({"use_dora": True}, "DoRA"),
        ({"pissa_init": True}, "pissa_niter_16"),
        ({"pissa_init": True, "pissa_convert": True}, "the checkpoints stay PiSSA"),
        ({"use_dora": True, "lora_rank": 24}, "--max-lora-rank 32 as well"),
        ({"additional_target": "embed_tokens,lm_head"}, "modules_to_save"),
        ({"resize_vocab": True}, "resize_vocab"),
        ({"finetuning_type": "oft"}, "OFT"),
        ({"lora_target": "q_proj,lm_head"}, "lm_head"),
    ],
)
def test_vllm_refuses_the_adapter(effective, keys, word):  # noqa: F811
    with effective(**LORA | keys) as run:
        local = check_adapter(run, None)[-1]
    with effective(**LORA | keys | {"callbacks": VLLM}) as run:
        served = check_adapter(run, None)[-1]
    assert (local.status, served.status) == ("warn", "fail")
    assert word in served.detail and served.fix


def test_a_trained_adapter_keeps_its_own_config(effective, tmp_path):  # noqa: F811
    before = tmp_path / "before"
    before.mkdir()
    (before / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 8, "rank_pattern": {"q_proj": 64}}')
    keys = LORA | {"adapter_name_or_path": str(before)}
    with effective(**keys) as run:
        assert check_adapter(run, None)[0].value == 64
    with effective(**keys, create_new_adapter=True) as run:  # it is merged into the base then
        (check,) = check_adapter(run, "http://x/v1")
        assert check.status == "fail" and "merges before" in check.detail
    (before / "adapter_config.json").write_text("{")
    with effective(**keys) as run:
        assert check_adapter(run, "http://x/v1")[0].status == "fail"
    with effective(**LORA | {"adapter_name_or_path": "nobody/nothing"}) as run:
        assert check_adapter(run, None)[0].status == "error"


def test_full_tuning_saves_no_adapter(effective):  # noqa: F811
    with effective() as run:
        assert [check_adapter(run, where)[0].status for where in (None, "http://x/v1")] == ["skipped", "warn"]
