"""The demo's data set, tokenizer and probes, without any training."""

import importlib.util
import itertools
import json
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parent.parent / "demo"
DATA = DEMO / "data"


@pytest.fixture(autouse=True)
def demo_on_path(monkeypatch):
    """Let the demo's scripts import each other, as they do when run as scripts."""
    monkeypatch.syspath_prepend(str(DEMO))
    yield
    for name in ("make_data", "make_model"):
        sys.modules.pop(name, None)


@pytest.fixture
def make_data():
    return importlib.import_module("make_data")


@pytest.fixture(scope="module")
def rows():
    """All dialogues, trained and held out."""
    return {name: json.loads((DATA / f"{name}.json").read_text("utf-8")) for name in ("orders", "orders_heldout")}


def need(*modules):
    """Skip where the training side is not installed."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed (pip install 'llamafactory-obs[train]')")


def first_calls_and_errors(row):
    """Yield (call, replies to it) for each call of a dialogue."""
    for turn, after in itertools.pairwise(row["conversations"]):
        if turn["from"] == "function_call":
            assert after["from"] == "observation"
            yield json.loads(turn["value"]), json.loads(after["value"])


def test_generator_reproduces_the_committed_files_byte_for_byte(make_data):
    first, second = make_data.render_files(), make_data.render_files()
    assert first == second
    assert {path.name for path in DATA.iterdir()} == set(first)
    for name, text in first.items():
        assert (DATA / name).read_bytes() == text.encode(), f"run python demo/make_data.py: {name} is stale"


def test_data_stays_small():
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 1_000_000


def test_every_call_is_legal_or_is_answered_by_an_error_that_lists_the_legal_regions(rows, make_data):
    legal = recovered = 0
    for row in itertools.chain(*rows.values()):
        assert json.loads(row["tools"]) == [make_data.TOOL]
        calls = list(first_calls_and_errors(row))
        for index, (call, reply) in enumerate(calls):
            assert call["name"] == "query_orders"
            assert set(call["arguments"]) == {"region", "month"}
            region, month = call["arguments"]["region"], call["arguments"]["month"]
            assert type(month) is int and 1 <= month <= 12
            if region in make_data.REGIONS:
                assert set(reply) == {"orders"}
                legal += 1
            else:
                assert reply["regions"] == list(make_data.REGIONS)
                follow_up = calls[index + 1][0]["arguments"]
                assert follow_up == {"region": region[:2] + "区", "month": month}
                recovered += 1
    assert legal > 500 and recovered > 200


def test_every_kind_of_turn_occurs_and_roles_alternate(rows, make_data):
    users = set()
    for row in itertools.chain(*rows.values()):
        for index, turn in enumerate(row["conversations"]):
            assert turn["from"] in (("human", "observation"), ("gpt", "function_call"))[index % 2]
            users.add(turn["value"])
        assert row["conversations"][-1]["from"] == "gpt"
    assert {question for question, _ in make_data.CHAT} <= users


def test_held_out_pairs_occur_only_in_the_held_out_file(rows, make_data):
    pairs = {
        name: {
            (call["arguments"]["region"][:2], call["arguments"]["month"])
            for row in part
            for call, _ in first_calls_and_errors(row)
        }
        for name, part in rows.items()
    }
    assert pairs["orders_heldout"] <= set(make_data.HELD_OUT)
    assert pairs["orders"].isdisjoint(make_data.HELD_OUT)
    assert len(pairs["orders"]) == len(make_data.AREAS) * 12 - len(make_data.HELD_OUT)
    assert ("华东", 8) in make_data.HELD_OUT  # what the probes ask for


def test_the_golden_set_asks_about_the_held_out_pairs_only(make_data):
    from llamafactory_obs.suite import load_suite, shipped_suite

    golden, shipped = load_suite(DATA / "golden.yaml"), load_suite(shipped_suite())
    assert golden.probes[0].tools == shipped.probes[0].tools and golden.probes[0].system == make_data.SYSTEM
    assert golden.probes[0].tool_replies == shipped.probes[0].tool_replies
    asked = set()
    for probe in golden.probes:
        if probe.expect.calls:
            asked.add((probe.expect.calls[0].arguments["region"][0][:2], probe.expect.calls[0].arguments["month"][0]))
        elif probe.expect.after_error:
            retry = probe.expect.after_error.retry
            asked.add((retry["region"][0][:2], retry["month"][0]))
    assert asked == set(make_data.HELD_OUT)
    assert len(golden.probes) == 32 and sum(probe.expect.calls == () for probe in golden.probes) == 8


def test_supervised_share_and_template_in_llamafactorys_own_pipeline(rows, tmp_path):
    need("torch", "llamafactory")
    make_model = importlib.import_module("make_model")
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import get_train_args

    tokenizer = make_model.make_tokenizer(rows["orders"])
    tokenizer.save_pretrained(tmp_path / "model")
    settings = {
        "model_name_or_path": str(tmp_path / "model"),
        "template": "qwen3_nothink",
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "full",
        "dataset_dir": str(DATA),
        "dataset": "orders",
        "cutoff_len": 1024,
        "overwrite_cache": True,
        "output_dir": str(tmp_path / "run"),
        "report_to": "none",
    }
    model_args, data_args, training_args, _, _ = get_train_args(settings)
    template = get_template_and_fix_tokenizer(tokenizer, data_args)
    dataset = get_dataset(template, model_args, data_args, training_args, "sft", tokenizer=tokenizer)["train_dataset"]
    assert len(dataset) == len(rows["orders"])

    tokens = supervised = 0
    for row, encoded in zip(rows["orders"], dataset, strict=True):
        tokens += len(encoded["input_ids"])
        supervised += sum(label != -100 for label in encoded["labels"])
        rendered = tokenizer.apply_chat_template(
            make_model.chat_messages(row), tools=json.loads(row["tools"]), tokenize=False
        )
        assert tokenizer.decode(encoded["input_ids"]) == rendered
    assert max(len(encoded["input_ids"]) for encoded in dataset) < 1024
    assert 0.2 < supervised / tokens < 0.4
