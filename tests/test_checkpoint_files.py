"""Files of a checkpoint, against independent readers: numbers, headers, pickles that are only disassembled, shards."""

import json
import os
import tracemalloc

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
from checkpoint_damage import Evil  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from llamafactory_obs.checkpoint import scan as scanning  # noqa: E402
from llamafactory_obs.checkpoint.base_shapes import adapter_flaw, full_flaw, lora_flaw  # noqa: E402
from llamafactory_obs.checkpoint.files import Incomplete, read_json  # noqa: E402
from llamafactory_obs.checkpoint.headers import Tensor, read_tensors  # noqa: E402
from llamafactory_obs.checkpoint.pickle_words import training_args, words  # noqa: E402
from llamafactory_obs.checkpoint.scan import scan  # noqa: E402
from llamafactory_obs.checkpoint.tokenizer import check_tokenizer  # noqa: E402

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
FILE = "model.safetensors"


def scanned(folder, tensors) -> dict[str, tuple[bool, bool]]:
    save_file(tensors, folder / FILE)
    return {name: (one.finite, one.zero) for name, one in scan(folder, read_tensors(folder, (FILE,))).items()}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("at", [0, 500, 1016, -1])
def test_one_bad_number_is_found_wherever_it_is(tmp_path, monkeypatch, dtype, at):
    monkeypatch.setattr(scanning, "BLOCK", 256)
    monkeypatch.setattr(scanning, "PIECE", 1024)
    torch.manual_seed(0)
    good = torch.randn(1017).clamp(-9, 9).to(dtype)
    values = {"nan": float("nan"), "inf": float("inf"), "minus": float("-inf"), "largest": torch.finfo(dtype).max}
    tensors = {"good": good}
    for name, value in values.items():
        tensors[name] = good.to(torch.float64).clone()
        tensors[name][at] = value
        tensors[name] = tensors[name].to(dtype)
    wanted = {name: bool(torch.isfinite(one.double()).all()) for name, one in tensors.items()}
    assert {name: finite for name, (finite, _) in scanned(tmp_path, tensors).items()} == wanted
    assert wanted["good"] and wanted["largest"] and not wanted["nan"]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int8, torch.int64, torch.bool])
def test_zeros_are_told_with_either_sign(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr(scanning, "BLOCK", 256)
    one = torch.zeros(999).to(dtype)
    one[998] = 1
    tensors = {"zero": torch.zeros(999).to(dtype), "one": one, "empty": torch.zeros(0).to(dtype)}
    if dtype.is_floating_point:
        tensors["minus"] = torch.full((999,), -0.0).to(dtype)
    assert {name: zero for name, (_, zero) in scanned(tmp_path, tensors).items()} == {
        name: not bool((tensor.double() != 0).any()) for name, tensor in tensors.items()
    }


def test_memory_is_a_few_blocks(tmp_path):
    save_file({"w": torch.ones(16 << 20)}, tmp_path / FILE)
    tracemalloc.start()
    scan(tmp_path, read_tensors(tmp_path, (FILE,)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24 << 20, "64 MiB of weights"


def test_headers_say_what_the_library_says(full_smoke):
    folder = full_smoke.checkpoint()
    found = read_tensors(folder, (FILE,))
    with safe_open(folder / FILE, framework="pt") as handle:
        assert set(found) == set(handle.keys())
        for name, one in found.items():
            there = handle.get_slice(name)
            assert (list(one.shape), one.dtype) == (there.get_shape(), there.get_dtype())


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"dtype": "F32", "shape": [3], "data_offsets": [0, 16]}, "its shape says"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}, "begins at byte"),
        ({"dtype": "F32", "shape": "x", "data_offsets": [0, 16]}, "no JSON of tensors"),
        ({"dtype": "F32", "shape": [4], "data_offsets": [0]}, "no JSON of tensors"),
        (7, "no JSON of tensors"),
    ],
)
def test_a_header_that_does_not_fit(tmp_path, entry, said):
    raw = json.dumps({"w": entry}).encode()
    (tmp_path / FILE).write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(16))
    with pytest.raises(Incomplete, match=said):
        read_tensors(tmp_path, (FILE,))


def test_arguments_are_read_without_loading_them(lora_smoke, tmp_path, monkeypatch):
    file = lora_smoke.checkpoint() / "training_args.bin"
    found, real = training_args(file), torch.load(file, weights_only=False)
    names = "seed data_seed learning_rate max_steps output_dir fp16 bf16 per_device_train_batch_size save_only_model"
    for name in f"{names} ignore_data_skip weight_decay warmup_steps logging_steps".split():
        assert found[name] == getattr(real, name), name
    monkeypatch.chdir(tmp_path)
    torch.save(Evil(), tmp_path / "args.bin")
    training_args(tmp_path / "args.bin")
    assert not (tmp_path / "evil").exists()
    for raw in (b"", b"x" * 400, file.read_bytes()[:-60]):
        (tmp_path / "args.bin").write_bytes(raw)
        with pytest.raises(Incomplete, match=r"args\.bin is no whole torch file"):
            training_args(tmp_path / "args.bin")


@pytest.mark.parametrize("protocol", range(6))
def test_words_of_every_protocol(protocol):
    import pickle

    held = {"a": 1, "b": "a", "c": -70000, "d": 2.5, "e": None, "f": True, "a2": 1 << 70}
    found = [word for word in words(pickle.dumps(held, protocol)) if isinstance(word, (str, int, float, type(None)))]
    flat = [one for pair in held.items() for one in pair]
    assert [one for one in found if one in flat] == flat


def lora(module: str, rank: int = 4, shape=(64, 32)) -> dict[str, Tensor]:
    name = f"base_model.model.{module}"
    return {
        f"{name}.lora_A.weight": Tensor("a", "F32", (rank, shape[1]), 0, 0),
        f"{name}.lora_B.weight": Tensor("a", "F32", (shape[0], rank), 0, 0),
    }


def test_an_adapter_against_its_config():
    config = {"peft_type": "LORA", "r": 4, "rank_pattern": {"q_proj": 8}}
    assert lora_flaw(lora("m.k_proj") | lora("m.q_proj", 8), config) == ""
    assert "m.q_proj has rank 4" in lora_flaw(lora("m.q_proj"), config)
    assert "none of its 1" in lora_flaw({"x": Tensor("a", "F32", (1,), 0, 0)}, config)
    assert lora_flaw({"x": Tensor("a", "F32", (1,), 0, 0)}, {"peft_type": "OFT"}) == ""


def test_an_adapter_against_its_base():
    base = {"m.q.weight": Tensor("b", "BF16", (64, 32), 0, 0), "m.p.weight": Tensor("b", "U8", (1024, 1), 0, 0)}
    assert adapter_flaw(lora("m.q"), base) == ("", True)
    assert adapter_flaw(lora("m.q", shape=(32, 64)), base) == ("", True)  # Conv1D
    assert "is for a weight of [64, 16]" in adapter_flaw(lora("m.q", shape=(64, 16)), base)[0]
    assert adapter_flaw(lora("m.p"), base) == ("", True), "a packed weight has another shape"
    assert adapter_flaw(lora("m.q") | lora("x.q"), base)[1] is True
    assert adapter_flaw(lora("x.q"), base)[1] is False, "perhaps only names differ"
    assert adapter_flaw(lora("m.q"), {}) == ("", True)
    assert adapter_flaw(lora("m.q") | lora("lm_head"), base) == ("", True), "a tied head is not saved"


def test_a_model_against_its_base():
    base = {f"l.{i}.weight": Tensor("b", "F32", (4, 4), 0, 0) for i in range(20)}
    base["embed_tokens.weight"] = base["lm_head.weight"] = Tensor("b", "F32", (100, 4), 0, 0)
    whole = dict(base)
    whole.pop("lm_head.weight")  # tied
    assert full_flaw(whole, base) == ""
    assert full_flaw(whole | {"embed_tokens.weight": Tensor("b", "F32", (104, 4), 0, 0)}, base) == ""
    assert "l.3.weight has shape [8, 4]" in full_flaw(whole | {"l.3.weight": Tensor("b", "F32", (8, 4), 0, 0)}, base)
    whole.pop("l.7.weight")
    assert "1 of 22" in full_flaw(whole, base) and "l.7.weight" in full_flaw(whole, base)
    assert full_flaw({f"other.{name}": one for name, one in base.items()}, base) == ""


def test_tokenizers_of_any_kind(tmp_path):
    file = tmp_path / "tokenizer.json"
    assert check_tokenizer(tmp_path, 10).state == "missing"
    for model in ({"vocab": {"a": 0, "b": 9}}, {"vocab": [["a", -1.0]] * 10}):
        file.write_text(json.dumps({"model": model, "added_tokens": [{"id": 3}]}))
        assert check_tokenizer(tmp_path, 10).state == check_tokenizer(tmp_path, None).state == "good"
        assert "ids up to 9, the model has 9 rows" in check_tokenizer(tmp_path, 9).why
    for odd in ({}, [], {"model": 3}, {"model": {"vocab": "x"}}):
        file.write_text(json.dumps(odd))
        assert check_tokenizer(tmp_path, 10).state == "good"


def test_what_is_no_file_is_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "loop.json").symlink_to("loop.json")
    said = {"pipe.json": "a pipe", "folder.json": "a folder", "loop.json": "itself", "none.json": "missing"}
    for name, word in said.items():
        with pytest.raises(Incomplete, match=word):
            read_json(tmp_path / name)
