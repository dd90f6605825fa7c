"""A real vLLM server on the CPU, SmolLM2-135M and LoRA checkpoints of a real LlamaFactory run. `make test-vllm`."""

import io
import json
import shutil
import threading
from pathlib import Path

import pytest
import vllm_server
from lora_run import WEIGHTS, derive, place, taken_of, train_lora
from vllm_server import VllmProcess

from llamafactory_obs.cli import main
from llamafactory_obs.probe.backends import Refused
from llamafactory_obs.probe.backends.vllm import VllmServer
from llamafactory_obs.probe.facts import read_facts
from llamafactory_obs.probe.render.choose import choose
from llamafactory_obs.probe.session import Options, Session
from llamafactory_obs.probe.show import View
from llamafactory_obs.probe.watcher import Watcher
from llamafactory_obs.record.reader import read_rows
from llamafactory_obs.record.schema import FOLDER, PROBES
from llamafactory_obs.suite import load_suite

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not vllm_server.python(), reason="VLLM_PYTHON names no python that has vLLM: make test-vllm"),
]

#: two logits that are this close may come out in another order in another implementation
TIE = 1e-3
SHORT = """\
name: short
max_new_tokens: 6
max_turns: 1
probes:
  - {name: one_word, messages: [{role: user, content: "Reply with the single word: yes"}], expect: {contains: "Yes"}}
"""
WITH_A_TOOL = """\
name: with a tool
max_new_tokens: 12
max_turns: 1
tools:
  - name: query_orders
    description: 按大区和月份查询订单
    parameters: {type: object, properties: {region: {type: string}, month: {type: integer}}, required: [region, month]}
probes:
  - name: call
    messages: [{role: user, content: 查一下华东区 8 月的订单}]
    expect: {calls: [{name: query_orders, arguments: {region: 华东区, month: 8}}]}
  - {name: one_word, messages: [{role: user, content: "Reply with the single word: yes"}], expect: {contains: "Yes"}}
"""


# ---- what there is to work with ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def started(smollm2, tmp_path_factory):
    """The server, which need not be up yet: the training goes on meanwhile."""
    process = VllmProcess(smollm2, tmp_path_factory.mktemp("vllm") / "server.log").begin()
    yield process
    process.kill()


@pytest.fixture(scope="module")
def run(smollm2, started, tmp_path_factory) -> Path:
    """Four steps of LoRA on the demo's data, each saved."""
    out = train_lora(smollm2, tmp_path_factory.mktemp("run") / "out")
    assert Path(out, "checkpoint-4", WEIGHTS).stat().st_mode & 0o777 == 0o600, "as safetensors saves"
    return out


@pytest.fixture(scope="module")
def unwilling(smollm2, tmp_path_factory):
    """A server that loads nothing at run time; need not be up yet. It needs a core for a minute."""
    log = tmp_path_factory.mktemp("unwilling") / "server.log"
    process = VllmProcess(smollm2, log, updating=False, words=("--load-format", "dummy")).begin()
    yield process
    process.kill()


@pytest.fixture
def server(started, run):
    """The server, up; a test leaves nothing loaded behind."""
    yield started.ready()
    left = started.models()[1:]
    for name in left:  # the next test need not suffer for it
        started.post("/unload_lora_adapter", {"lora_name": name})
    assert left == []


@pytest.fixture(scope="module")
def local(smollm2):
    from llamafactory_obs.probe.backends.local import LocalModels

    return LocalModels(str(smollm2), "cpu")


@pytest.fixture
def short(tmp_path) -> Path:
    return _written(tmp_path / "short.yaml", SHORT)


@pytest.fixture
def with_a_tool(tmp_path):
    return load_suite(_written(tmp_path / "with_a_tool.yaml", WITH_A_TOOL))


def _written(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    return file


def probe(out: Path, suite: Path, *words: str) -> int:
    return main(["probe", str(out), "--suite", str(suite), "--json", "--no-baseline", "--patience", "0", *words])


def through(server: VllmProcess) -> list[str]:
    return ["--backend", "vllm", "--endpoint", server.endpoint]


def rows_of(out: Path) -> list[dict]:
    rows, torn = read_rows(out / FOLDER / PROBES)
    assert torn == 0
    return rows


def states(out: Path) -> dict[str, tuple[str, str]]:
    """Checkpoint -> its last state in the ledger, and why."""
    rows, _ = read_rows(out / FOLDER / "probe" / "ledger.jsonl")
    return {row["name"]: (row["state"], row.get("why", "")) for row in rows}


class Prompts:
    """The prompts of a suite, as token ids, and what a backend makes of them."""

    def __init__(self, run: Path, suite):
        self.renderer = choose(run / "checkpoint-4", read_facts(run), None, None)
        self._prompts = [self.renderer.encode(list(probe.messages), probe) for probe in suite.probes]
        self._most = suite.max_new_tokens

    def ask(self, backend, taken) -> tuple[list[list[int]], list[str]]:
        with backend.open(taken) as model:
            made = [model.generate(p, self.renderer.stop_ids, self._most, lambda n: None) for p in self._prompts]
            return [one.ids for one in made], model.notes

    def explain(self, local, taken, here: list[list[int]], there: list[list[int]]) -> None:
        """The same ids; or, where they part, two tokens between which rounding decides."""
        import torch

        for prompt, a, b in zip(self._prompts, here, there, strict=True):
            if a == b:
                continue
            at = next(i for i in range(min(len(a), len(b))) if a[i] != b[i])
            with local.open(taken) as model, torch.inference_mode():
                logits = model._model(input_ids=torch.tensor([prompt + a[:at]])).logits[0, -1]
            gap = float(logits[a[at]] - logits[b[at]])
            assert 0 <= gap < TIE, f"token {at}: {a[at]} here, {b[at]} there, and their logits are {gap} apart"


# ---- one checkpoint ------------------------------------------------------------------------------------------------


def test_the_same_text_here_and_there(server, run, local, with_a_tool, tmp_path):
    prompts = Prompts(run, with_a_tool)
    backend = VllmServer(server.endpoint)
    texts = {}
    for step in (None, 1, 4):
        taken = taken_of(run / f"checkpoint-{step}", tmp_path / "copies") if step else None
        there, notes = prompts.ask(backend, taken)
        assert notes == [] and server.models() == [backend.base]
        here, _ = prompts.ask(local, taken)
        prompts.explain(local, taken, here, there)
        texts[step] = there
    assert texts[4] != texts[None], "the fine-tuning is seen"
    assert all(ids for ids in texts[4])


def test_an_adapter_that_changes_nothing_is_noted(server, run, short, tmp_path):
    prompts, backend = Prompts(run, load_suite(short)), VllmServer(server.endpoint)
    zero = taken_of(derive(run, place(run, tmp_path / "out"), 7, 0.0), tmp_path / "copies")
    there, notes = prompts.ask(backend, zero)
    assert there == prompts.ask(backend, None)[0]
    assert len(notes) == 1 and "changes nothing" in notes[0] and "lora_B is all zero" in notes[0]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"modules_to_save": ["embed_tokens"]}, "modules_to_save"),
        ({"lora_bias": True}, "biases"),
    ],
)
def test_what_we_refuse_vllm_refuses_too(server, run, tmp_path, config, words):
    """The rules are those of one version of vLLM: a newer one may have learned something."""
    taken = taken_of(derive(run, place(run, tmp_path / "out"), 7, 1.0, **config), tmp_path / "copies")
    with pytest.raises(Refused, match=words), VllmServer(server.endpoint).open(taken):
        pass
    status, said = server.post("/load_lora_adapter", {"lora_name": "asked", "lora_path": str(taken.path)})
    server.post("/unload_lora_adapter", {"lora_name": "asked"})
    assert status >= 400, said


def test_a_rank_that_is_too_high(server, run, short, tmp_path, capsys):
    """The other checkpoints go on; with --backend auto the refused one is generated here."""
    out = place(run, tmp_path / "out", record=False)
    derive(run, out, 1, 1.0, rank=32)
    derive(run, out, 2, 1.0)
    assert probe(out, short, *through(server)) == 1
    told = capsys.readouterr().err
    state, why = states(out)["checkpoint-1"]
    assert state == "failed" and "rank 32" in why and "start vLLM with --max-lora-rank 32" in why and why in told
    assert [(row["checkpoint"], row["backend"]["name"]) for row in rows_of(out)] == [("checkpoint-2", "vllm")]

    probe(out, short, "--endpoint", server.endpoint, "--device", "cpu", "--again")
    high, plain = rows_of(out)[1:]
    assert (high["checkpoint"], high["backend"]["name"]) == ("checkpoint-1", "local")
    assert (plain["checkpoint"], plain["backend"]["name"]) == ("checkpoint-2", "vllm")
    assert high["output"] == plain["output"], "it is the same model, padded"
    assert "--max-lora-rank 32" in capsys.readouterr().err


# ---- many, and trouble ---------------------------------------------------------------------------------------------


def test_deleted_while_it_is_being_loaded(server, run, short, tmp_path, monkeypatch):
    """The server gets a private copy that it may read; of the checkpoint itself nothing is needed any more."""
    out = place(run, tmp_path / "out", record=False)
    derive(run, out, 1, 1.0)
    derive(run, out, 2, 2.0)
    call, modes = VllmServer._call, []

    def rotate(self, method, path, body=None):
        if path == "/load_lora_adapter":
            copy = Path(body["lora_path"])
            modes.append({f"{copy.stat().st_mode & 0o777:o}", f"{(copy / WEIGHTS).stat().st_mode & 0o777:o}"})
            if copy.name.startswith("checkpoint-1-"):
                shutil.rmtree(out / "checkpoint-1")
            else:
                shutil.rmtree(copy)  # and here the copy itself
        return call(self, method, path, body)

    monkeypatch.setattr(VllmServer, "_call", rotate)
    probe(out, short, *through(server))
    assert modes == [{"755", "644"}] * 2
    assert [row["checkpoint"] for row in rows_of(out)] == ["checkpoint-1"]
    found = states(out)
    assert found["checkpoint-1"][0] == "done"
    assert found["checkpoint-2"][0] == "failed" and "the server finds no adapter at" in found["checkpoint-2"][1]


def test_twenty_in_a_row_and_a_step_that_comes_again(server, run, local, short, tmp_path, capsys):
    out = place(run, tmp_path / "out", record=False)
    scales = {step: 0.25 * step for step in range(1, 21)}
    for step, scale in scales.items():
        derive(run, out, step, scale)
    probe(out, short, *through(server))
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["checkpoint"], row["probe"]) for row in rows] == [(f"checkpoint-{n}", "one_word") for n in scales]
    assert [row["notes"] for row in rows] == [[]] * 20 and len({row["content"] for row in rows}) == 20
    assert {state for state, _ in states(out).values()} == {"done"}
    assert probe(out, short, *through(server)) in (0, 1) and len(rows_of(out)) == 20, "nothing is asked twice"

    prompts = Prompts(run, load_suite(short))
    backend = VllmServer(server.endpoint)
    by_hand = {}
    for step in (1, 4, 20):
        taken = taken_of(out / f"checkpoint-{step}", tmp_path / "copies")
        (ids,), _ = prompts.ask(local, taken)
        by_hand[step] = prompts.renderer.text(ids)
        if by_hand[step] != rows[step - 1]["turns"][0]["raw"]:
            prompts.explain(local, taken, [ids], prompts.ask(backend, taken)[0])
    assert len(set(by_hand.values())) > 1, "another adapter is another text"

    shutil.rmtree(out / "checkpoint-20")
    derive(run, out, 20, scales[1])  # a resumed run saves another model under a name that was served before
    probe(out, short, *through(server))
    again = rows_of(out)[20:]
    assert [row["checkpoint"] for row in again] == ["checkpoint-20"]
    assert again[0]["output"] == rows[0]["output"] and again[0]["content"] == rows[0]["content"]


def test_killed_and_started_again_while_it_is_watched(server, run, short, tmp_path, monkeypatch, unwilling):
    """`unwilling` is for the next test: two servers can start at the same time."""
    monkeypatch.setattr("llamafactory_obs.probe.attempt.LATER_MAX_S", 2.0)
    out = place(run, tmp_path / "out")
    for step in range(1, 5):
        derive(run, out, step, 0.5 * step)
    rows, said, second = [], io.StringIO(), threading.Event()

    def seen(row):
        rows.append(row)
        if len(rows) == 2:
            second.set()

    suite = load_suite(short)
    session = Session(out, suite, Options(backend="vllm", endpoint=server.endpoint, baseline=False), View(said), seen)
    watcher = Watcher(out, suite.sha256, session.probe, say=session.view.say, recorded=session.recorded, poll_s=0.2)
    watching = threading.Thread(target=watcher.watch, daemon=True)
    watching.start()
    try:
        assert second.wait(120), said.getvalue()
        server.kill()
        derive(run, out, 5, 2.5)  # saved while there is no server
        server.begin().ready()
        watching.join(180)
        assert not watching.is_alive(), said.getvalue()
    finally:
        session.close()
        if not server.healthy():
            server.begin().ready()
    assert "has to wait" in said.getvalue() and len(rows) == 5
    assert [row["checkpoint"] for row in rows_of(out)] == [f"checkpoint-{n}" for n in range(1, 6)]
    found = states(out)
    assert {name: state for name, (state, _) in found.items()} == {f"checkpoint-{n}": "done" for n in range(1, 6)}
    assert not any((out / FOLDER / "probe" / "copies").rglob("*.safetensors"))


def test_a_server_that_may_not_load_at_run_time(unwilling, run, tmp_path):
    taken = taken_of(run / "checkpoint-4", tmp_path / "copies")
    unwilling.ready()
    cure = pytest.raises(Refused, match=r"start vLLM with .*VLLM_ALLOW_RUNTIME_LORA_UPDATING=True")
    with cure, VllmServer(unwilling.endpoint).open(taken):
        pass
