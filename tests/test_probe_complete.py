"""Which saved folders are complete, and what is said about those that are not."""

import json
import os
import struct
import time
import zipfile
from pathlib import Path

import pytest

from llamafactory_obs.probe.complete import QUIET_S, UNREST_S, glance, prove


def safetensors(count: int = 4, fill: bytes = b"\0") -> bytes:
    """A safetensors file with one float32 tensor of `count` numbers."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}}).encode()
    return struct.pack("<Q", len(header)) + header + fill * (4 * count)


def adapter(folder: Path, step: int = 20, weights: bytes | None = None, state: bytes | None = None) -> Path:
    """A LoRA checkpoint, in the order in which transformers writes it."""
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("card")
    (folder / "adapter_model.safetensors").write_bytes(safetensors() if weights is None else weights)
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 8}')
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "training_args.bin").write_bytes(b"x")
    (folder / "optimizer.pt").write_bytes(b"x")
    if state is None:
        state = json.dumps({"global_step": step, "log_history": [{"loss": float("nan")}]}).encode()
    (folder / "trainer_state.json").write_bytes(state)
    return folder


def full(folder: Path, files: dict[str, bytes], step: int = 20) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return folder


def index(*shards: str) -> bytes:
    return json.dumps({"weight_map": {f"w{i}": name for i, name in enumerate(shards)}}).encode()


def torch_zip(folder: Path) -> bytes:
    file = folder / "archive.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"pickled" * 100)
    return file.read_bytes()


def why(folder: Path, step: int | None = 20) -> str:
    proof = prove(folder, step)
    assert not proof.complete
    return proof.why


def test_a_complete_adapter_and_what_inference_needs_of_it(tmp_path):
    proof = prove(adapter(tmp_path / "checkpoint-20"), 20)
    assert proof.complete and proof.why == "" and proof.kind == "adapter" and proof.step == 20
    assert proof.weights == ("adapter_model.safetensors",)
    assert proof.files == (
        *("adapter_config.json", "adapter_model.safetensors", "chat_template.jinja", "tokenizer.json"),
    )
    assert proof.signature == glance(tmp_path / "checkpoint-20") != ""


def test_full_models_whole_sharded_and_bin(tmp_path):
    one = prove(full(tmp_path / "a", {"model.safetensors": safetensors()}), 20)
    assert (one.complete, one.kind, one.weights) == (True, "full", ("model.safetensors",))
    shards = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    files = {name: safetensors() for name in shards} | {"model.safetensors.index.json": index(*shards)}
    two = prove(full(tmp_path / "b", files), 20)
    assert two.complete and two.weights == shards and "model.safetensors.index.json" in two.files
    three = prove(full(tmp_path / "c", {"pytorch_model.bin": torch_zip(tmp_path)}), 20)
    assert three.complete and three.weights == ("pytorch_model.bin",)
    files = {"pytorch_model-1-of-1.bin": torch_zip(tmp_path)}
    four = prove(full(tmp_path / "d", {**files, "pytorch_model.bin.index.json": index(*files)}), 20)
    assert four.complete and four.kind == "full"


def test_files_that_the_real_libraries_write(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    save_file({"lora_A": torch.ones(8, 4), "lora_B": torch.zeros(4, 8)}, tmp_path / "x.safetensors")
    weights = (tmp_path / "x.safetensors").read_bytes()
    assert prove(adapter(tmp_path / "a", weights=weights), 20).complete
    assert "header says" in why(adapter(tmp_path / "b", weights=weights[:-1]))
    torch.save({"w": torch.ones(300)}, tmp_path / "x.bin")
    weights = (tmp_path / "x.bin").read_bytes()
    assert prove(full(tmp_path / "c", {"pytorch_model.bin": weights}), 20).complete
    assert "no whole torch file" in why(full(tmp_path / "d", {"pytorch_model.bin": weights[: len(weights) // 2]}))


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        (b"", "adapter_model.safetensors has 0 bytes"),
        (safetensors(400)[: len(safetensors(400)) // 2], "its header says"),
        (safetensors() + b"\0", "its header says"),
        (b"\0" * 4096, "a header of 0 bytes does not fit"),  # sized in advance, nothing written yet
        (struct.pack("<Q", 5000) + b"{}", "a header of 5000 bytes does not fit a file of 10 bytes"),
        (struct.pack("<Q", 1 << 60) + b"\0" * 100, "does not fit"),
        (struct.pack("<Q", 16) + b"\0" * 100, "its header is no JSON of tensors"),
        (struct.pack("<Q", 2) + b"{}", "adapter_model.safetensors holds no tensor"),
        (struct.pack("<Q", 9) + b'{"w": []}', "its header is no JSON of tensors"),
    ],
)
def test_weights_that_are_not_whole(tmp_path, weights, reason):
    assert reason in why(adapter(tmp_path / "checkpoint-20", weights=weights))


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (b"", "trainer_state.json is empty"),
        (b'{"global_step": 20, "log_his', "trainer_state.json is no whole JSON"),
        (b'{"global_step": 10}', "trainer_state.json is of step 10, not 20"),
        (b"[]", "trainer_state.json says no global_step"),
        (b'{"global_step": "20"}', "trainer_state.json says no global_step"),
    ],
)
def test_states_that_prove_nothing(tmp_path, state, reason):
    assert reason in why(adapter(tmp_path / "checkpoint-20", state=state))


@pytest.mark.parametrize("name", ["trainer_state.json", "adapter_model.safetensors", "adapter_config.json"])
def test_missing_files_are_named(tmp_path, name):
    folder = adapter(tmp_path / "checkpoint-20")
    (folder / name).unlink()
    old = time.time() - 100
    os.utime(folder, (old, old))
    assert f"{name} is missing" in why(folder)


def test_torn_config(tmp_path):
    folder = adapter(tmp_path / "checkpoint-20")
    (folder / "adapter_config.json").write_text('{"r": ')
    assert "adapter_config.json is no whole JSON" in why(folder)


def test_shards_missing_or_without_index(tmp_path):
    shards = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    files = {shards[0]: safetensors(), "model.safetensors.index.json": index(*shards)}
    assert f"{shards[1]} is missing (1 of 2 shards)" in why(full(tmp_path / "a", files))
    assert "the index of the shards is missing" in why(full(tmp_path / "b", {shards[0]: safetensors()}))
    assert "names no shards" in why(full(tmp_path / "c", {"model.safetensors.index.json": b'{"weight_map": {}}'}))


@pytest.mark.parametrize("name", [".tmpAb3xYz", "model.safetensors.tmp"])
def test_a_temporary_file_means_a_save_is_under_way(tmp_path, name):
    folder = adapter(tmp_path / "checkpoint-20")
    (folder / name).write_bytes(b"")
    assert f"{name}: a temporary file" in why(folder)
    old = time.time() - 2 * QUIET_S  # what a killed save left behind, before this state was written
    os.utime(folder / name, (old, old))
    os.utime(folder, (old, old))
    assert prove(folder, 20).complete


def test_saves_without_hugging_face_weights_are_unsupported(tmp_path):
    for name, hint in (("pytorch_model_fsdp_0", "FULL_STATE_DICT"), ("global_step20", "stage3_gather"), ("x", "no we")):
        folder = full(tmp_path / name / "checkpoint-20", {})
        (folder / name).mkdir()
        proof = prove(folder, 20)
        assert not proof.complete and proof.kind == "unsupported" and hint in proof.why


def test_a_folder_that_is_gone_or_being_deleted(tmp_path):
    assert why(tmp_path / "checkpoint-20") == "vanished"
    folder = adapter(tmp_path / "checkpoint-30", 30)
    time.sleep(0.15)
    (folder / "tokenizer.json").unlink()  # rotation has begun: state and weights are still there
    proof = prove(folder, 30)
    assert not proof.complete and "removed after its state" in proof.why
    old = time.time() - 2 * UNREST_S  # somebody has tidied up, long ago
    os.utime(folder, (old, old))
    assert prove(folder, 30).complete


def test_new_weights_beside_an_old_state_are_a_save_under_way(tmp_path):
    folder = adapter(tmp_path / "checkpoint-20")
    old = time.time() - 500
    os.utime(folder / "trainer_state.json", (old, old))
    os.utime(folder, (old, old))
    assert "adapter_model.safetensors is newer than trainer_state.json" in why(folder)
    os.utime(folder / "adapter_model.safetensors", (old + 300, old + 300))  # a copy, made file by file
    assert prove(folder, 20).complete


def test_the_final_model_takes_its_step_from_its_state(tmp_path):
    folder = adapter(tmp_path / "run", 77)
    (folder / "all_results.json").write_text("{}")
    proof = prove(folder, None)
    assert proof.complete and proof.step == 77 and "all_results.json" not in proof.files


def test_proving_changes_nothing(tmp_path):
    folder = adapter(tmp_path / "checkpoint-20")
    before = (os.stat(folder).st_mtime_ns, sorted(os.listdir(folder)))
    prove(folder, 20)
    assert (os.stat(folder).st_mtime_ns, sorted(os.listdir(folder))) == before
