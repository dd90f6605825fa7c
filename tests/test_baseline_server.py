"""The server that stays up: does it answer, for this base model, and is there room beside it?"""

import sys

import pytest
from baseline_config import Caller, bad, copy_model, detail, edit, statuses, write_config
from fake_nvml import GIB, FakeNvml

from llamafactory_obs.preflight.baseline.base_model import BaseModel
from llamafactory_obs.preflight.baseline.gate import baseline_gate
from llamafactory_obs.preflight.baseline.served_model import serves
from llamafactory_obs.preflight.baseline.server import Endpoint
from llamafactory_obs.preflight.run_config import read_run_config

pytestmark = pytest.mark.usefixtures("llamafactory")
DOWN = "http://127.0.0.1:9/v1"
TABLE = "format,tool choice,arguments,task\n1,1,1,1\n"


@pytest.fixture
def server(model):
    server = Caller(model)
    yield server
    server.close()


@pytest.fixture
def judge(model, data, tmp_path, monkeypatch):
    """`judge(callbacks, nvml=..., **words)` with a good table as evidence, so that only the server can fail."""

    def run(callbacks=(), nvml=None, given=None, **words):
        monkeypatch.setitem(sys.modules, "pynvml", nvml)  # None: it does not import
        table = tmp_path / "table.csv"
        table.write_text(TABLE)
        path = write_config(tmp_path / "run", model, data, callbacks=list(callbacks) or None, **(given or {}))
        return baseline_gate(read_run_config(path), evidence=table, **words)

    return run


def fix(report, name):
    return next(check.fix for check in report.checks if check.name == name)


# ---- does it answer? -----------------------------------------------------------------------------------------------


def test_a_server_that_answers(judge, server, model):
    report = judge(endpoint=server.url)
    assert statuses(report)["server"] == statuses(report)["server_model"] == "pass"
    assert "0.0.stub" in detail(report, "server") and "serving base" in detail(report, "server")
    assert str(model) in detail(report, "server_model") and server.requests == []


def test_a_named_server_that_is_down_fails(judge):
    report = judge(endpoint=DOWN)
    assert bad(report) == {"server"} and "127.0.0.1:9" in detail(report, "server")
    report = judge([{"probe": {"endpoint": DOWN}}])
    assert bad(report) == {"server"} and "named by the probe callback" in detail(report, "server")
    report = judge([{"probe": {"backend": "vllm"}}])
    assert bad(report) == {"server"} and "localhost:8000" in detail(report, "server")


@pytest.mark.parametrize("callbacks", [[], ["probe"], [{"probe": {"backend": "local", "endpoint": DOWN}}]])
def test_a_server_that_nobody_named_is_skipped_with_the_reason(judge, callbacks, monkeypatch):
    monkeypatch.setattr("llamafactory_obs.preflight.baseline.server.DEFAULT_ENDPOINT", DOWN)
    report = judge(callbacks)
    assert statuses(report)["server"] == "skipped" and "does not answer" in detail(report, "server")
    assert "server_model" not in statuses(report) and report.gate()["status"] == "pass"


def test_no_vllm_server_at_the_named_endpoint(judge, server):
    server.version = None
    assert "no vLLM server" in detail(judge(endpoint=server.url), "server")


@pytest.mark.parametrize(
    ("routes", "lora", "status", "said"),
    [
        ({"/v1/load_lora_adapter": {}, "/v1/models": {}}, "lora", "pass", "has the route"),
        ({"/v1/models": {}}, "lora", "warn", "cannot load LoRA adapters"),
        ({"/v1/models": {}}, "full", "pass", "cannot load LoRA adapters"),
        (None, "lora", "pass", "does not say"),
    ],
)
def test_whether_it_loads_adapters(judge, server, monkeypatch, routes, lora, status, said):
    from llamafactory_obs.probe.backends.vllm import VllmServer

    call = VllmServer._call

    def answer(self, method, path, body=None):
        if path.endswith("/openapi.json"):
            server.list = {"paths": routes} if routes is not None else {"other": 1}
            try:
                return call(self, method, path, body)
            finally:
                server.list = None
        return call(self, method, path, body)

    monkeypatch.setattr(VllmServer, "_call", answer)
    report = judge(endpoint=server.url, given={"finetuning_type": lora})
    assert statuses(report)["server"] == status and said in detail(report, "server")
    assert bool(fix(report, "server")) == (status == "warn")


# ---- for this model? -----------------------------------------------------------------------------------------------


def test_another_model_fails_where_it_would_be_asked(judge, server, model, monkeypatch):
    server.root = "/models/llama-8b"
    report = judge(endpoint=server.url)
    assert bad(report) == {"server_model"}
    assert "/models/llama-8b" in detail(report, "server_model") and str(model) in detail(report, "server_model")
    assert "--served-model-name" in fix(report, "server_model")
    monkeypatch.setattr("llamafactory_obs.preflight.baseline.server.DEFAULT_ENDPOINT", server.url)
    assert bad(judge(["probe"])) == {"server_model"}
    assert statuses(judge())["server_model"] == "warn"


def served(root, name="base"):
    return type("Server", (), {"root": str(root), "base": name})()


def test_a_copy_of_the_model_is_the_model_and_another_folder_of_its_name_is_not(model, tmp_path):
    base = BaseModel(str(model), None, model)
    copy = copy_model(model, tmp_path / "copy")
    assert serves(served(copy), base)[0] and serves(served(model), base)[0]
    edit(copy / "config.json", lambda config: config.update(rope_theta=1.0))
    same, text, by_files = serves(served(copy, model.name), base)
    assert (same, by_files) == (False, True) and "another config.json" in text


@pytest.mark.parametrize("layer", ["model.layers.0.", "model.layers.2.mlp", "model.norm"])
def test_a_tuned_model_of_the_same_size_is_not_the_base_model(judge, server, model, tmp_path, layer):
    """Same config.json, same file size; only some tensors were trained."""
    from safetensors.torch import load_file, save_file

    tuned = copy_model(model, tmp_path / "tuned")
    file = tuned / "model.safetensors"
    weights = {name: value + 1e-4 if name.startswith(layer) else value for name, value in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})
    assert file.stat().st_size == (model / "model.safetensors").stat().st_size
    server.root = str(tuned)
    report = judge(endpoint=server.url)
    assert bad(report) == {"server_model"} and "other weights in model.safetensors" in detail(report, "server_model")
    assert "--served-model-name" not in fix(report, "server_model")  # the files decide


@pytest.mark.parametrize(
    "endpoint", ["localhost:8000", "127.0.0.1:9/v1", "http://", "ftp://x", "  ", "file:///etc/passwd"]
)
def test_an_endpoint_that_is_no_url_is_told_so(judge, endpoint):
    report = judge(endpoint=endpoint)
    assert (
        bad(report) == {"server"} and "no URL" in detail(report, "server") and "http://HOST" in detail(report, "server")
    )
    assert "correct the endpoint" in fix(report, "server")


def test_a_server_that_wants_a_key(judge, server, monkeypatch):
    from llamafactory_obs.probe.backends.vllm import VllmServer

    call = VllmServer._call

    def locked(self, method, path, body=None):
        answer = call(self, method, path, body)
        answer.status_code = 401
        return answer

    monkeypatch.setattr(VllmServer, "_call", locked)
    report = judge(endpoint=server.url)
    assert bad(report) == {"server"} and "VLLM_API_KEY" in fix(report, "server")


def test_a_lora_beside_the_base_model_is_not_taken_for_it(judge, server, model):
    rows = [
        {"id": "sql", "root": "/adapters/sql", "parent": "base"},
        {"id": "base", "root": str(model), "parent": None},
    ]
    server.list = {"data": rows}
    assert statuses(judge(endpoint=server.url))["server_model"] == "pass"


@pytest.mark.parametrize(
    ("root", "name", "base", "same"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "Qwen/Qwen3-8B", True),
        ("qwen/qwen3-8b", "x", "Qwen/Qwen3-8B", True),
        ("/data/models/Qwen3-8B/", "x", "Qwen/Qwen3-8B", True),
        ("Qwen/Qwen3-8B", "x", "/data/Qwen3-8B", True),
        ("/cache/models--Qwen--Qwen3-8B/snapshots/" + "a" * 40, "x", "Qwen/Qwen3-8B", True),
        ("/model", "Qwen/Qwen3-8B", "Qwen/Qwen3-8B", True),
        ("Qwen/Qwen3-8B", "x", "Qwen/Qwen3-4B", False),
        ("other/Qwen3-8B", "x", "Qwen/Qwen3-8B", False),
        ("/model", "/model", "Qwen/Qwen3-8B", False),
        ("/data/Qwen3-8B-Instruct", "x", "Qwen/Qwen3-8B", False),
        ("/cache/models--Qwen--Qwen3-4B/snapshots/" + "a" * 40, "x", "Qwen/Qwen3-8B", False),
    ],
)
def test_by_name_where_the_files_are_elsewhere(root, name, base, same):
    found, text, by_files = serves(served(root, name), BaseModel(base, None, None))
    assert not by_files
    assert found is same
    assert root in text and (same or base in text)


# ---- is there room? ------------------------------------------------------------------------------------------------


class Card(FakeNvml):
    """One card of 80 GiB; `used` of it by vLLM and others."""

    def __init__(self, used, vllm=None, count=1):
        super().__init__(names=("NVIDIA A100",) * count)
        self._used, self._vllm = used, vllm

    def nvmlDeviceGetMemoryInfo(self, card):
        used = self._used * GIB if card.index == len(self.cards) - 1 else GIB
        return type("Memory", (), {"total": 80 * GIB, "used": used, "free": 80 * GIB - used})()


@pytest.mark.parametrize(("used", "status"), [(60.0, "pass"), (60.5, "fail")])
def test_free_memory_against_the_estimate(judge, server, used, status):
    """PRB-2: 20 GiB are needed on a card of 80."""
    report = judge(endpoint=server.url, nvml=Card(used), needed_gib=20.0)
    assert statuses(report)["room_beside_server"] == status
    room = next(check for check in report.checks if check.name == "room_beside_server")
    assert (room.value, room.want) == (80 - used, 20.0)
    # 80 - 20 - 1 GiB of margin leave 59 of 80: 0.7375
    assert ("--gpu-memory-utilization 0.73" in room.fix) == (status == "fail")


def test_the_tightest_card_counts(judge, server):
    report = judge(endpoint=server.url, nvml=Card(70.0, count=2), needed_gib=20.0)
    assert bad(report) == {"room_beside_server"} and "GPU 1" in detail(report, "room_beside_server")


def test_no_share_leaves_room(judge, server):
    report = judge(endpoint=server.url, nvml=Card(60.0), needed_gib=79.5)
    assert "no --gpu-memory-utilization leaves room" in fix(report, "room_beside_server")


def test_without_a_server_the_card_is_to_be_freed(judge, monkeypatch):
    monkeypatch.setattr("llamafactory_obs.preflight.baseline.server.DEFAULT_ENDPOINT", DOWN)
    report = judge(nvml=Card(70.0), needed_gib=20.0)
    assert bad(report) == {"room_beside_server"} and "--gpu-memory" not in fix(report, "room_beside_server")


def test_a_server_elsewhere_is_not_to_be_restarted():
    at = [
        Endpoint(url, "", False).at_home for url in ("http://localhost:8000/v1", "127.0.0.1:8000", "http://gpu7:8000")
    ]
    assert at == [True, True, False]


def test_what_cannot_be_known_is_skipped_with_the_reason(judge, server):
    report = judge(endpoint=server.url, needed_gib=20.0)
    assert statuses(report)["room_beside_server"] == "skipped" and "pynvml" in detail(report, "room_beside_server")
    report = judge(endpoint=server.url, nvml=Card(60.0))
    assert statuses(report)["room_beside_server"] == "skipped" and "20.0 GiB" in detail(report, "room_beside_server")
    report = judge(endpoint=server.url, nvml=FakeNvml(mig={0, 1, 2, 3}), needed_gib=20.0)
    assert statuses(report)["room_beside_server"] == "skipped" and "MIG" in detail(report, "room_beside_server")


def test_a_card_that_does_not_answer_is_an_error(judge, server):
    report = judge(endpoint=server.url, nvml=FakeNvml(broken={"nvmlDeviceGetMemoryInfo"}), needed_gib=20.0)
    assert statuses(report)["room_beside_server"] == "error" and "NoPermission" in detail(report, "room_beside_server")
