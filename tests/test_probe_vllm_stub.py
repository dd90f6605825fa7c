"""The vLLM backend against a server that misbehaves: each refusal has its cure, an outage is no refusal."""

import json
import struct

import pytest
from vllm_stub import Stub

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.probe.backends import Refused, Unavailable
from llamafactory_obs.probe.backends.adapter_check import changes_nothing, check, needed_limit, needed_rank
from llamafactory_obs.probe.backends.vllm import VllmServer
from llamafactory_obs.probe.copies import Taken

LORA = {"peft_type": "LORA", "r": 8, "base_model_name_or_path": "/trained/on/base"}


@pytest.fixture
def stub():
    server = Stub()
    yield server
    server.close()


def adapter(folder, zero=False, **config) -> Taken:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({**LORA, **config}))
    header = json.dumps({"q.lora_B.weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    numbers = struct.pack("<2f", *((0.0, 0.0) if zero else (0.0, 1.0)))
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + numbers)
    return Taken("checkpoint-8", 8, "adapter", folder, "ab" * 32, "s", ("adapter_model.safetensors",))


def generate(model):
    return model.generate([1, 2, 3], [2], 16, lambda n: None)


def test_load_generate_unload_under_a_name_of_its_own(stub, tmp_path):
    server = VllmServer(stub.url.removesuffix("/v1"))
    assert "0.0.stub" in server.where
    with server.open(adapter(tmp_path / "a")) as model:
        made = generate(model)
        assert (made.ids, made.finish, model.notes) == ([5, 6, 2], "stop", [])
    (load,) = stub.bodies("/load_lora_adapter")
    assert load == {"lora_name": "obs-checkpoint-8-abababababab", "lora_path": str(tmp_path / "a")}
    assert stub.bodies("/unload_lora_adapter") == [{"lora_name": load["lora_name"]}] and stub.models == {}


def test_every_sampling_setting_is_sent(stub, tmp_path):
    """TPL-4: the server would take what is missing from the model's generation_config.json."""
    with VllmServer(stub.url).open(None) as model:
        generate(model)
    (body,) = stub.bodies("/completions")
    assert body["temperature"] == 0 and body["top_p"] == 1 and body["top_k"] == -1 and body["seed"] == 0
    assert body["repetition_penalty"] == 1 and body["min_p"] == 0 and body["max_tokens"] == 16
    assert body["prompt"] == [1, 2, 3] and body["model"] == "base" and body["skip_special_tokens"] is False


def test_an_end_token_that_the_server_keeps_to_itself_is_put_back(stub):
    stub.stream = [{"choices": [{"token_ids": [5, 6], "finish_reason": "stop", "stop_reason": 2}]}]
    with VllmServer(stub.url).open(None) as model:
        assert generate(model).ids == [5, 6, 2]
    stub.stream = [{"choices": [{"token_ids": [5, 6], "finish_reason": "length"}]}]
    with VllmServer(stub.url).open(None) as model:
        assert generate(model) and generate(model).finish == "length"


REFUSALS = [
    ((404, {"detail": "Not Found"}), "no such route", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"),
    (
        (500, {"error": {"message": "Worker failed with error 'LoRA rank 64 is greater than max_lora_rank 16.'"}}),
        "above the server's max_lora_rank 16",
        "--max-lora-rank 64",
    ),
    ((404, {"error": {"message": "Loading lora x failed: No adapter found for /p"}}), "no adapter at", "--copies"),
    ((500, {"error": {"message": "error '/p doesn't contain tensors'"}}), "no adapter at", "--copies"),
    (
        (500, {"error": {"message": "LoRA is not enabled. Use --enable-lora to enable LoRA."}}),
        "without LoRA",
        "--enable-lora",
    ),
    ((500, {"error": {"message": "expected target modules in ['q'] but received ['x']"}}), "cannot fit", "base model"),
    ((418, "what?"), "HTTP 418", "what?"),
]


@pytest.mark.parametrize(("load", "why", "cure"), REFUSALS)
def test_each_refusal_has_its_cure(stub, tmp_path, load, why, cure):
    stub.load = load
    with pytest.raises(Refused) as refused, VllmServer(stub.url).open(adapter(tmp_path / "a", r=64)):
        pass
    assert why in str(refused.value) and cure in str(refused.value) and "\n" not in str(refused.value)


def test_a_server_that_says_yes_and_does_nothing_is_found_out(stub, tmp_path):
    """LORA-5: an old server answers 200 for a path that does not exist."""
    stub.lists = False
    with pytest.raises(Refused, match="does not list it"), VllmServer(stub.url).open(adapter(tmp_path / "a")):
        pass


def test_an_adapter_that_is_listed_but_not_applied(stub, tmp_path):
    stub.completion = lambda name: (200, {"choices": [{"logprobs": {"top_logprobs": [{"a": -1.0}]}}]})
    with VllmServer(stub.url).open(adapter(tmp_path / "a")) as model:
        generate(model)
        assert "changes nothing" in model.notes[0] and "really served" in model.notes[0]
    with VllmServer(stub.url).open(adapter(tmp_path / "b", zero=True)) as model:
        generate(model)
        assert "lora_B is all zero" in model.notes[0]


def test_left_over_from_a_killed_probe_is_loaded_from_the_new_copy(stub, tmp_path):
    """Its old path may be gone, and the server reads it again when it needs the slot."""
    stub.models["obs-checkpoint-8-abababababab"] = "/copy/that/is/gone"
    with VllmServer(stub.url).open(adapter(tmp_path / "a")) as model:
        assert stub.models == {"obs-checkpoint-8-abababababab": str(tmp_path / "a")}
        assert generate(model).ids == [5, 6, 2]


@pytest.mark.parametrize(
    "stream",
    [
        (503, "busy"),
        (500, {"error": {"message": "EngineDead"}}),
        (404, {"error": {"message": "The model `x` does not exist."}}),
        [{"error": {"message": "engine died"}}],
        [{"choices": [{"token_ids": [5], "finish_reason": None}]}],
    ],
)
def test_an_outage_is_not_the_checkpoints_fault(stub, tmp_path, stream):
    stub.stream = stream
    with pytest.raises(Unavailable), VllmServer(stub.url).open(adapter(tmp_path / "a")) as model:
        generate(model)


def test_no_server_and_no_vllm(tmp_path):
    with pytest.raises(Unavailable, match="does not answer"):
        VllmServer("http://127.0.0.1:9/v1")
    with pytest.raises(Unavailable):
        VllmServer("no url at all")


@pytest.mark.parametrize("models", [{"data": [{"name": "x"}]}, {"data": ["gpt"]}, {"a": 1}, []])
def test_another_kind_of_server_is_told_apart(stub, models, monkeypatch):
    """LlamaFactory's own API server listens on port 8000 too."""
    stub.list = models
    with pytest.raises(Unavailable, match="is it a vLLM server"):
        VllmServer(stub.url)
    stub.list, stub.version = None, None
    with pytest.raises(Unavailable, match="no vLLM server"):
        VllmServer(stub.url)


def test_a_request_that_the_base_model_refuses_is_no_outage(stub):
    stub.stream = (404, {"error": {"message": "The model `base` does not exist."}})
    with pytest.raises(Refused), VllmServer(stub.url).open(None) as model:
        generate(model)


def test_no_proxy_and_no_password_for_a_server_at_home(stub, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    server = VllmServer(stub.url.replace("http://", "http://user:hidden@"))
    assert "hidden" not in server.where and "hidden" not in server.endpoint
    with server.open(None) as model:
        assert generate(model).ids == [5, 6, 2]


def test_a_rank_that_is_no_number(stub, tmp_path):
    with pytest.raises(Refused, match="no rank"), VllmServer(stub.url).open(adapter(tmp_path / "a", r="8")):
        pass


def test_a_prompt_that_is_too_long_is_a_refusal(stub):
    stub.stream = (400, {"error": {"message": "This model's maximum context length is 2048 tokens"}})
    with pytest.raises(Refused, match="max-model-len"), VllmServer(stub.url).open(None) as model:
        generate(model)


def test_another_base_model_is_named(stub, tmp_path):
    stub.root = "/models/other"
    with VllmServer(stub.url).open(adapter(tmp_path / "a")) as model:
        assert "/models/other" in model.notes[0]
    stub.root = "/elsewhere/base"
    with VllmServer(stub.url).open(adapter(tmp_path / "b")) as model:
        assert model.notes == []


def test_whole_checkpoints_are_not_for_vllm(stub, tmp_path):
    taken = Taken("checkpoint-8", 8, "full", tmp_path, "ab" * 32, "s", ())
    with pytest.raises(Refused, match="--backend local"), VllmServer(stub.url).open(taken):
        pass
    assert stub.requests == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"peft_type": "IA3"}, "IA3"),
        ({"use_dora": True}, "DoRA"),
        ({"modules_to_save": ["embed_tokens", "lm_head"]}, "resize_vocab"),
        ({"bias": "all"}, "bias"),
        ({"init_lora_weights": "pissa_niter_4"}, "pissa_convert"),
        ({"r": 600}, "512"),
        ({"layer_replication": [[0, 1]]}, "layer_replication"),
    ],
)
def test_what_no_server_can_load_is_said_before_it_is_asked(stub, tmp_path, config, words):
    """LORA-2"""
    with pytest.raises(Refused, match=words), VllmServer(stub.url).open(adapter(tmp_path / "a", **config)):
        pass
    assert stub.requests == []


def test_an_empty_adapter_is_refused_not_taken_for_the_base_model(stub, tmp_path):
    """40 bytes: a header without tensors, as ZeRO-3 leaves it when nothing was gathered."""
    taken = adapter(tmp_path / "a")
    header = b'{"__metadata__":{"format":"pt"}} '
    (taken.path / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(Refused, match="none of LoRA"), VllmServer(stub.url).open(taken):
        pass
    assert stub.requests == []


def test_the_needed_rank_counts_the_patterns_and_is_rounded_up():
    """LORA-1"""
    assert needed_rank({"r": 32}) == 32
    assert needed_rank({"r": 8, "rank_pattern": {"q_proj": 64}}) == 64
    assert [needed_limit(rank) for rank in (1, 8, 24, 32, 257, 512, 513)] == [1, 8, 32, 32, 320, 512, None]
    check({**LORA, "modules_to_save": ["score"]})


def test_an_adapter_that_learned_nothing(tmp_path):
    assert changes_nothing(adapter(tmp_path / "a", zero=True).path)
    assert not changes_nothing(adapter(tmp_path / "b").path)
    assert not changes_nothing(tmp_path)


def test_auto_takes_what_is_there_and_says_why(stub, monkeypatch):
    from llamafactory_obs.probe.backends import choose

    made = choose.choose("auto", stub.url, True, "base", "cpu", False, whole=False)
    assert made.backend.name == "vllm" and "answers" in made.backend.why
    monkeypatch.setattr(choose, "local_available", lambda: False)
    with pytest.raises(ConfigError, match="llamafactory-obs\\[local\\]"):
        choose.choose("auto", "http://127.0.0.1:9/v1", False, "base", "cpu", False, whole=False)
    with pytest.raises(Unavailable):
        choose.choose("auto", "http://127.0.0.1:9/v1", True, "base", "cpu", False, whole=False)
    with pytest.raises(ConfigError, match="--backend local"):
        choose.choose("local", stub.url, False, "base", "cpu", False, whole=False)
    with pytest.raises(Unavailable):
        choose.choose("vllm", "http://127.0.0.1:9/v1", False, "base", "cpu", False, whole=False)
