"""The model's origin and size: real safetensors files, a hub cache as it lies on disk, small real modules."""

import hashlib
import json
from math import prod
from types import SimpleNamespace as Row

import pytest

from llamafactory_obs.identity import files, model
from llamafactory_obs.identity.model import count_parameters, find_folder, model_identity, weights_sha256
from llamafactory_obs.identity.unknown import Unknowns

COMMIT = "c" * 40


def sha(data):
    return hashlib.sha256(data).hexdigest()


def ask(model_=None, tokenizer=None, args=None):
    unknown = Unknowns()
    fields, jobs = model_identity(model_, tokenizer, args, unknown)
    done = {field: job() for field, job in jobs}
    return fields, done, {row["what"]: row["why"] for row in unknown.rows}


@pytest.fixture
def folder(tmp_path):
    """A local model folder with a real safetensors file."""
    save_file = pytest.importorskip("safetensors.numpy").save_file
    numpy = pytest.importorskip("numpy")
    place = tmp_path / "my model"
    place.mkdir()
    save_file({"w": numpy.arange(6, dtype="float32")}, place / "model-00001-of-00002.safetensors")
    save_file({"v": numpy.ones(2, dtype="float32")}, place / "model-00002-of-00002.safetensors")
    (place / "config.json").write_text('{"a": 1}')
    (place / "tokenizer.json").write_text("{}")
    (place / "training_args.bin").write_bytes(b"no weights")
    (place / "optimizer.bin").write_bytes(b"no weights")
    return place


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A hub cache: big files are blobs named by their SHA-256, small ones by a git hash."""
    monkeypatch.setattr(model, "_hub_cache", lambda given: tmp_path / "hub")
    repository = tmp_path / "hub" / "models--org--tiny"
    (repository / "blobs").mkdir(parents=True)
    (repository / "refs").mkdir()
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    for name, blob, data in (
        ("model.safetensors", sha(b"weights"), b"weights"),
        ("config.json", "d" * 40, b"{}"),
        ("tokenizer.json", sha(b"tok"), b"tok"),
    ):
        (repository / "blobs" / blob).write_bytes(data)
        (snapshot / name).symlink_to(f"../../blobs/{blob}")
    return snapshot


def test_a_local_folder(folder):
    fields, done, unknown = ask(args=Row(model_name_or_path=str(folder)))
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    rows = done["model.weights"]["files"]
    assert [row["file"] for row in rows] == names
    assert [row["sha256"] for row in rows] == [sha((folder / name).read_bytes()) for name in names]
    lines = "".join(f"{row['file']}\0{row['sha256']}\n" for row in rows)
    assert done["model.weights"]["sha256"] == sha(lines.encode())
    assert fields["config_sha256"] == sha(b'{"a": 1}')
    assert fields["revision"] is None and "local folder" in unknown["model.revision"]


def test_one_changed_number_changes_the_hash(folder):
    before = weights_sha256(folder)["sha256"]
    path = folder / "model-00002-of-00002.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert weights_sha256(folder)["sha256"] != before


def test_a_cached_hub_model_is_hashed_without_reading_it(cache, monkeypatch):
    monkeypatch.setattr(files, "sha256_file", lambda path: pytest.fail(f"{path} was read"))
    fields, done, unknown = ask(args=Row(model_name_or_path="org/tiny", model_revision="main"))
    assert done["model.weights"]["files"] == [
        {"file": "model.safetensors", "bytes": 7, "sha256": sha(b"weights"), "source": "hub blob name"}
    ]
    assert fields["revision"] == COMMIT and "model.revision" not in unknown


def test_a_hub_name_is_found_by_commit_branch_or_not_at_all(cache, folder):
    assert find_folder("org/tiny", None, None) == cache
    assert find_folder("org/tiny", COMMIT, None) == cache
    assert find_folder("org/tiny", "nowhere", COMMIT) == cache  # the config knows what was loaded
    for name, revision in (("org/tiny", "v2"), ("org/other", None), ("", None), ("../x/y", None), ("/no/such", None)):
        assert find_folder(name, revision, None) is None
    assert find_folder(str(folder), "main", None) == folder


def test_a_model_that_is_not_here_is_unknown(cache):
    fields, done, unknown = ask(args=Row(model_name_or_path="org/other"))
    assert done == {} and fields["weights"] is None
    assert "model.weights" in unknown and "model.revision" in unknown


def test_a_folder_without_weights_and_a_dangling_link(tmp_path, cache):
    (tmp_path / "empty").mkdir()
    assert "no weight file" in weights_sha256(tmp_path / "empty")["unknown"]
    (cache / "model.safetensors").unlink()
    (cache / "model.safetensors").symlink_to("../../blobs/gone")
    assert "cannot be read" in weights_sha256(cache)["unknown"]


def test_adapters(folder, tmp_path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_model.safetensors").write_bytes(b"lora")
    args = Row(model_name_or_path=str(folder), adapter_name_or_path=[str(adapter), "org/none"])
    fields, done, _ = ask(args=args)
    assert fields["adapters"] == [str(adapter), "org/none"]
    got = done["model.adapter_weights"]
    assert got[str(adapter)]["files"][0]["sha256"] == sha(b"lora") and "unknown" in got["org/none"]


class Tokenizer:
    special_tokens_map = {"eos_token": "</s>"}  # noqa: RUF012
    padding_side = "left"
    chat_template = "{{ x }}"
    name_or_path = ""

    def __len__(self):
        return 17


def test_the_tokenizer(folder):
    fields, _, unknown = ask(tokenizer=Tokenizer(), args=Row(model_name_or_path=str(folder)))
    got = fields["tokenizer"]
    assert (got["class"], got["size"], got["padding_side"]) == ("Tokenizer", 17, "left")
    assert got["chat_template_sha256"] == sha(b"{{ x }}") and got["files"] == {"tokenizer.json": sha(b"{}")}
    assert got["special_tokens"] == {"eos_token": "</s>"}
    other = Tokenizer()
    other.chat_template = {"default": "{{ y }}"}
    again = ask(tokenizer=Row(tokenizer=other), args=Row(model_name_or_path=str(folder)))[0]["tokenizer"]
    assert again["chat_template_sha256"] not in (None, got["chat_template_sha256"])
    assert again["class"] == "Tokenizer"
    assert "model.tokenizer" not in unknown and "model.tokenizer" in ask()[2]
    assert "model.tokenizer.files" in ask(tokenizer=Tokenizer())[2]


def test_nothing_given_names_everything():
    fields, done, unknown = ask()
    assert done == {} and fields["class"] is None
    assert {"model.name_or_path", "model.weights", "model.parameters", "model.attn_implementation"} <= set(unknown)
    json.dumps(fields, allow_nan=False)


def parameter(shape, dtype="torch.float32", trainable=True, **more):
    return Row(numel=lambda: prod(shape), dtype=dtype, requires_grad=trainable, **more)


def model_of(*parameters, modules=()):
    return Row(parameters=lambda: iter(parameters), modules=lambda: iter(modules))


def test_counts_of_a_real_module_with_tied_weights():
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4))
    net[1].weight = net[0].weight
    net[1].bias.requires_grad_(False)
    net[1].bias.data = net[1].bias.data.to(torch.bfloat16)
    assert count_parameters(net) == {"total": 20, "trainable": 16, "dtypes": {"bfloat16": 4, "float32": 16}}


def test_counts_of_sharded_and_packed_parameters():
    shard = parameter((0,), "torch.bfloat16", ds_numel=1000)  # ZeRO-3 leaves an empty tensor behind
    packed = parameter((50, 1), "torch.uint8", False, quant_state=Row(shape=(10, 10)))
    assert count_parameters(model_of(shard, packed)) == {
        "total": 1100,
        "trainable": 1000,
        "dtypes": {"bfloat16": 1000, "uint8": 100},
    }


@pytest.mark.slow
def test_a_dtensor_counts_globally():
    torch = pytest.importorskip("torch")
    import torch.distributed as dist

    if not dist.is_available():
        pytest.skip("torch was built without torch.distributed")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (4,))
        net = torch.nn.Linear(8, 4, bias=False)
        net.weight = torch.nn.Parameter(distribute_tensor(net.weight.detach(), mesh, [Shard(0)]))
        assert net.weight.to_local().numel() == 8
        assert count_parameters(net)["total"] == 32
    finally:
        dist.destroy_process_group()


def test_fsdp1_shards_are_unknown_not_miscounted():
    class FullyShardedDataParallel:
        pass

    sharded = model_of(parameter((3,)), modules=[FullyShardedDataParallel()])
    fields, _, unknown = ask(sharded)
    assert fields["parameters"] is None and "FSDP1" in unknown["model.parameters"]


def test_attention_quantisation_and_peft_are_read():
    config = Row(_attn_implementation="sdpa", quantization_config={"load_in_4bit": True}, _name_or_path="org/tiny")
    net = model_of(parameter((3,)))
    net.config = config
    net.peft_config = {"default": Row(to_dict=lambda: {"r": 8, "target_modules": {"v", "q"}})}
    fields, _, unknown = ask(net, args=Row(model_name_or_path=None, quantization_bit=4, quantization_method="bnb"))
    assert fields["name_or_path"] == "org/tiny" and fields["attn_implementation"] == "sdpa"
    assert fields["quantization"] == {"bits": 4, "method": "bnb", "config": {"load_in_4bit": True}}
    assert fields["peft"] == {"default": {"r": 8, "target_modules": ["q", "v"]}}
    assert "model.attn_implementation" not in unknown
