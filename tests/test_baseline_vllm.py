"""The baseline through a real vLLM server: what it serves, what it answers, whether it loads adapters."""

import json

import pytest
import vllm_server
from baseline_config import bad, detail, statuses, write_config
from vllm_server import VllmProcess

from llamafactory_obs.cli import main
from llamafactory_obs.preflight.baseline.gate import baseline_gate
from llamafactory_obs.preflight.run_config import read_run_config
from llamafactory_obs.probe.backends.vllm import GREEDY

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not vllm_server.python(), reason="VLLM_PYTHON names no python that has vLLM: make test-vllm"),
]
SHORT = """\
name: short
max_new_tokens: 8
max_turns: 1
tools:
  - {name: add, description: adds, parameters: {type: object, properties: {a: {type: integer}}, required: [a]}}
probes:
  - {name: call, messages: [{role: user, content: add 1}], expect: {calls: [{name: add, arguments: {a: 1}}]}}
  - {name: one_word, messages: [{role: user, content: "Reply with the single word: yes"}], expect: {contains: "Yes"}}
"""


@pytest.fixture(scope="module")
def server(smollm2, tmp_path_factory):
    process = VllmProcess(smollm2, tmp_path_factory.mktemp("vllm") / "server.log").begin()
    try:
        yield process.ready()
    finally:
        process.kill()


def test_measured_through_the_server_and_judged_by_the_gate(server, smollm2, model, data, tmp_path):
    path = write_config(tmp_path / "run", smollm2, data, SHORT, template="smollm2", finetuning_type="lora")
    assert main(["baseline", str(path), "--endpoint", server.endpoint]) == 0
    record = json.loads(path.with_name("run.baseline.json").read_text())
    assert record["backend"]["name"] == "vllm" and record["sampling"]["settings"] == GREEDY

    report = baseline_gate(read_run_config(path), endpoint=server.endpoint)
    assert bad(report) == set() and statuses(report)["server_model"] == "pass"
    assert "it has the route that loads LoRA adapters at run time" in detail(report, "server")
    assert "up to 2048 tokens" in detail(report, "server")

    # the same model, generated here: greedy, so the first words are the same
    assert main(["baseline", str(path), "--backend", "local", "--device", "cpu"]) == 0
    here = json.loads(path.with_name("run.baseline.json").read_text())
    assert [row["output"][:12] for row in here["probes"]] == [row["output"][:12] for row in record["probes"]]

    other = write_config(tmp_path / "other", model, data, SHORT)
    assert main(["baseline", str(other), "--endpoint", server.endpoint]) == 2
    report = baseline_gate(read_run_config(other), endpoint=server.endpoint)
    assert {"server_model", "baseline_recorded"} == bad(report)
    assert str(smollm2) in detail(report, "server_model") and str(model) in detail(report, "server_model")
