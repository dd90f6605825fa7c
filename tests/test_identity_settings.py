"""Seeds, precision, layout and the statement on repeatability."""

import json
import sys
from types import SimpleNamespace as Row

import pytest

from llamafactory_obs.gpu.nvml import Nvml
from llamafactory_obs.identity import settings
from llamafactory_obs.identity.hardware import hardware_identity, short_uuid
from llamafactory_obs.identity.unknown import Unknowns

ENVIRONMENT = (
    "WORLD_SIZE LOCAL_WORLD_SIZE LOCAL_RANK TORCHELASTIC_RUN_ID FLASH_ATTENTION_DETERMINISTIC ACCELERATE_USE_FSDP "
    "CUBLAS_WORKSPACE_CONFIG PYTHONHASHSEED NCCL_ALGO NVIDIA_TF32_OVERRIDE"
)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ENVIRONMENT.split():
        monkeypatch.delenv(name, raising=False)
    for name in ("ray", "deepspeed", "unsloth", "liger_kernel"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def fake_torch(monkeypatch, deterministic=True, warn_only=False, cuda=False, benchmark=False, tf32=False):
    torch = Row(
        cuda=Row(is_available=lambda: cuda, is_initialized=lambda: False),
        backends=Row(
            cudnn=Row(benchmark=benchmark), cuda=Row(matmul=Row(allow_tf32=tf32)), mps=Row(is_available=lambda: False)
        ),
        are_deterministic_algorithms_enabled=lambda: deterministic,
        is_deterministic_algorithms_warn_only_enabled=lambda: warn_only,
        get_float32_matmul_precision=lambda: "highest",
        version=Row(cuda="13.0", hip=None),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


def verdict(args=None, model=None, size=1):
    return settings.determinism(args or Row(full_determinism=True), model, size)


def test_seeds():
    got = settings.seeds(Row(seed=42, data_seed=None, full_determinism=False))
    assert got["data_seed_used"] == 42 and got["data_seed"] is None
    assert settings.seeds(Row(seed=42, data_seed=0))["data_seed_used"] == 0


@pytest.mark.parametrize(
    ("options", "size", "model", "want", "reason"),
    [
        ({}, 1, None, "yes", "same hardware"),
        ({"deterministic": False}, 1, None, "no", "use_deterministic_algorithms is off"),
        ({"warn_only": True}, 1, None, "no", "only warns"),
        ({"cuda": True, "benchmark": True}, 1, None, "no", "benchmark"),
        ({"benchmark": True}, 1, None, "yes", ""),  # cudnn plays no part on a CPU
        ({"cuda": True, "tf32": True}, 1, None, "yes", "TF32"),
        ({"cuda": True}, 2, None, "unknown", "all-reduce"),
        ({}, None, None, "unknown", "number of processes"),
        ({}, 1, Row(config=Row(_attn_implementation="flash_attention_2")), "no", "flash_attention_2"),
    ],
)
def test_the_statement(monkeypatch, options, size, model, want, reason):
    fake_torch(monkeypatch, **options)
    got = verdict(model=model, size=size)
    assert got["deterministic"] == want and any(reason in text for text in got["reasons"])


def test_flash_attention_may_be_deterministic(monkeypatch):
    fake_torch(monkeypatch)
    monkeypatch.setenv("FLASH_ATTENTION_DETERMINISTIC", "1")
    got = verdict(model=Row(config=Row(_attn_implementation="flash_attention_2")))
    assert got["deterministic"] == "yes" and got["environment"] == {"FLASH_ATTENTION_DETERMINISTIC": "1"}


def test_kernels_that_torch_does_not_govern_are_a_doubt(monkeypatch):
    fake_torch(monkeypatch)
    monkeypatch.setitem(sys.modules, "liger_kernel", Row())
    assert verdict()["deterministic"] == "unknown"


def test_without_torch_nothing_is_claimed(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert verdict()["deterministic"] == "unknown"
    unknown = Unknowns()
    assert settings.precision(Row(bf16=True), None, None, unknown)["tf32"] is None
    assert unknown.rows[0]["what"] == "precision.tf32"


@pytest.mark.parametrize(
    ("args", "finetuning", "want"),
    [
        (Row(bf16=True, fp16=False), None, "bf16"),
        (Row(bf16=False, fp16=True), None, "fp16"),
        (Row(), None, "fp32"),
        (Row(bf16=True), Row(pure_bf16=True), "pure_bf16"),
    ],
)
def test_precision(monkeypatch, args, finetuning, want):
    fake_torch(monkeypatch, tf32=True)
    got = settings.precision(args, Row(quantization_bit=4), finetuning, Unknowns())
    assert got["compute"] == want and got["tf32"] is True and got["quantization_bit"] == 4


def world(**fields):
    unknown = Unknowns()
    defaults = {"world_size": 1, "n_gpu": 1, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    return settings.world(Row(**{**defaults, **fields}), unknown), {row["what"] for row in unknown.rows}


def test_one_process():
    got, unknown = world()
    assert (got["launcher"], got["engine"], got["nodes"], got["global_batch"]) == ("plain", "single", 1, 8)
    assert unknown == set()


def test_torchrun_over_two_nodes(monkeypatch):
    for name, value in (("LOCAL_WORLD_SIZE", "4"), ("LOCAL_RANK", "0"), ("TORCHELASTIC_RUN_ID", "x")):
        monkeypatch.setenv(name, value)
    got, _ = world(world_size=8)
    assert (got["launcher"], got["engine"], got["nodes"], got["global_batch"]) == ("torchrun", "ddp", 2, 64)


def test_several_gpus_in_one_process_are_data_parallel():
    got, _ = world(n_gpu=2)
    assert (got["engine"], got["global_batch"]) == ("data_parallel", 16)


def test_ray_and_fsdp(monkeypatch):
    got, _ = world(use_ray=True, fsdp=["full_shard", "auto_wrap"], fsdp_config={"fsdp_version": 2})
    assert (got["launcher"], got["engine"]) == ("ray", "fsdp")
    assert got["fsdp"] == {"options": ["full_shard", "auto_wrap"], "config": {"fsdp_version": 2}}


def test_a_deepspeed_file_is_read_not_only_named(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 3}}))
    got, _ = world(deepspeed=str(path))
    assert got["engine"] == "deepspeed" and got["deepspeed"]["zero_stage"] == 3
    assert got["deepspeed"]["config"] == {"zero_optimization": {"stage": 3}}
    got, unknown = world(deepspeed=str(tmp_path / "gone.json"))
    assert "world.deepspeed" in unknown and got["engine"] == "deepspeed"


def test_an_object_that_answers_nothing():
    class Broken:
        def __getattr__(self, name):
            raise RuntimeError(name)

    unknown = Unknowns()
    got = settings.world(Broken(), unknown)
    assert got["world_size"] is None and got["global_batch"] is None
    assert {"world.world_size", "world.local_world_size"} <= {row["what"] for row in unknown.rows}
    assert settings.seeds(Broken())["seed"] is None


def test_the_machine_without_names(monkeypatch):
    fake_torch(monkeypatch)
    import os
    import platform

    unknown = Unknowns()
    got = hardware_identity(unknown)
    assert (
        got["cores_usable"] <= got["cores_logical"] and got["ram_gib"] > 0 and got["python"] == sys.version.split()[0]
    )
    text = json.dumps(got)
    assert platform.node() not in text and os.path.expanduser("~") not in text


def test_cards_by_nvml_and_by_torch(monkeypatch):
    from fake_nvml import GIB, UUIDS, FakeNvml

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    torch = fake_torch(monkeypatch)
    fake = FakeNvml()
    fake.nvmlDeviceGetCudaComputeCapability = lambda card: (9, 0)
    unknown = Unknowns()
    got = hardware_identity(unknown, Nvml(fake))
    want = {"name": "NVIDIA H200", "memory_gib": 140.0, "uuid": "GPU-3a88aa00", "compute_capability": "9.0"}
    assert got["gpus"] == [want] and got["driver"] == "570.86.15" and got["cuda_driver"] == "12.8"
    one = Row(name="NVIDIA H200", total_memory=16 * GIB, uuid=UUIDS[3].removeprefix("GPU-"), major=9, minor=0)
    torch.cuda = Row(
        is_initialized=lambda: True,
        is_available=lambda: True,
        device_count=lambda: 1,
        get_device_properties=lambda index: one,
        nccl=Row(version=lambda: (2, 30, 7)),
    )
    torch.backends.cudnn.version = lambda: 92400
    got = hardware_identity(Unknowns(), Nvml(fake))  # a slice of the card: torch's size counts
    assert got["gpus"] == [{**want, "memory_gib": 16.0}] and got["nccl"] == "2.30.7" and got["gpu_count"] == 1


def test_a_lost_driver_is_unknown(monkeypatch):
    from fake_nvml import FakeNvml

    fake_torch(monkeypatch)
    unknown = Unknowns()
    hardware_identity(unknown, Nvml(FakeNvml(broken={"nvmlSystemGetDriverVersion"})))
    assert "NoPermission" in next(row["why"] for row in unknown.rows if row["what"] == "hardware.driver")


@pytest.mark.parametrize(
    ("uuid", "want"),
    [
        ("GPU-5a88aaaa-1111", "GPU-5a88aaaa"),
        ("5a88aaaa-1111", "GPU-5a88aaaa"),
        ("MIG-fe59aaaa-1", "MIG-fe59aaaa"),
        ("MIG-GPU-5a88aaaa-1111/1/0", "MIG-5a88aaaa"),
        (None, None),
    ],
)
def test_short_uuids(uuid, want):
    assert short_uuid(uuid) == want
