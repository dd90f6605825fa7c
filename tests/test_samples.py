"""`samples` in real runs, against an independent witness of what the model was given."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sample_runs import IN_TEXT, Shifted, Witness, numbered_data
from tiny import tiny_config

from llamafactory_obs import load_record, read_samples


@pytest.fixture(scope="session")
def numbered(tmp_path_factory) -> Path:
    return numbered_data(tmp_path_factory.mktemp("numbered"))


@pytest.fixture
def run(llamafactory, model, numbered, tmp_path):
    """`run(name, **overrides)` -> (output folder, witness)."""

    def run(name: str = "out", callbacks=("samples",), **overrides):
        from llamafactory.train.tuner import run_exp

        witness, out = Witness(), tmp_path / name
        config = {"dataset": "one", "max_steps": 3, **overrides}
        config["callbacks"] = list(callbacks) or None
        run_exp(tiny_config(model, numbered, out, **config), callbacks=[witness])
        return out, witness

    return run


def sources_in_text(sample: dict) -> list[tuple[str, int]]:
    return [(IN_TEXT.get(name, name), row) for name, row in sample["sources"]]


def agree(ranks: list[list[dict]], seen: list[list], rows: list) -> int:
    """Each logged sample has the source and the row that the model was given; returns how many there were."""
    count = 0
    for batch, given in zip(ranks, seen, strict=True):
        for sample, names in zip(batch, given[: len(batch)], strict=True):  # of pairs the chosen ones come first
            assert [list(name) for name in sources_in_text(sample)] == [list(name) for name in names]
            assert [list(name) for name in rows[sample["row"]]] == [list(name) for name in names]
            count += 1
    return count


CASES = {
    "shuffled, rows dropped": {},
    "concat, split, max_samples, workers, accumulation": {
        "dataset": "one,two",
        "max_samples": 20,
        "val_size": 0.2,
        "dataloader_num_workers": 2,
        "gradient_accumulation_steps": 4,
    },
    "interleaved, two tokenizing processes": {
        "dataset": "one,two",
        "mix_strategy": "interleave_over",
        "preprocessing_num_workers": 2,
    },
    "num_samples, one of it alone": {"dataset": "drawn,single", "max_steps": 20},
    "packing": {"dataset": "one,two", "packing": True, "cutoff_len": 128, "preprocessing_batch_size": 16},
    "neat packing": {"dataset": "one,two", "neat_packing": True, "cutoff_len": 128},
    "an eval set of its own": {"eval_dataset": "two", "eval_strategy": "steps", "eval_steps": 2},
    "dpo": {"stage": "dpo", "dataset": "pairs"},
    "kto": {"stage": "kto", "dataset": "votes"},
    "rm": {"stage": "rm", "dataset": "pairs", "finetuning_type": "lora"},
    "texts": {"stage": "pt", "dataset": "text", "packing": False},
}


@pytest.mark.parametrize("case", CASES)
def test_the_log_names_what_the_model_was_given(run, case):
    overrides = CASES[case]
    out, witness = run(**overrides)
    log = read_samples(out)
    steps = overrides.get("max_steps", 3)
    assert sorted(log) == list(range(1, steps + 1))
    count = sum(agree(log[step][0], witness.seen[step], witness.rows) for step in log)
    assert count == steps * 2 * overrides.get("gradient_accumulation_steps", 1)
    record = load_record(out)
    assert record.steps["data/labels_moved"] == [0] * steps
    assert [e for e in record.events if e["name"] == "samples"] == []
    assert not any(column.startswith("_obs") for column in witness.columns)


def test_all_rows_of_an_epoch_once(run, numbered):
    out, _ = run(dataset="one", max_steps=-1, num_train_epochs=1)
    samples = [sample for ranks in read_samples(out).values() for batch in ranks[0] for sample in batch]
    wanted = [i for i, row in enumerate(json.loads((numbered / "one.json").read_text())) if row["output"]]
    assert sorted(sample["row"] for sample in samples) == list(range(len(wanted)))
    assert sorted(row for sample in samples for _, row in sample["sources"]) == wanted


def test_blocks_of_texts(run, numbered, model):
    """`pt` packs texts into blocks: each block names all texts that it has a token of, by a count of our own."""
    from transformers import AutoTokenizer

    out, _ = run(stage="pt", dataset="text", cutoff_len=48, max_steps=-1, num_train_epochs=1)
    tokenizer = AutoTokenizer.from_pretrained(model)
    owner = []
    for number, row in enumerate(json.loads((numbered / "text.json").read_text())):
        owner += [number] * len(tokenizer(row["text"] + tokenizer.eos_token, add_special_tokens=False)["input_ids"])
    samples = [sample for ranks in read_samples(out).values() for batch in ranks[0] for sample in batch]
    assert len(samples) == len(owner) // 48 > 10
    for sample in samples:
        block = owner[sample["row"] * 48 : (sample["row"] + 1) * 48]
        assert sample["sources"] == [["text", number] for number in sorted(set(block))]
        assert sample["tokens"] == sample["supervised"] == 48


def test_after_a_resume(run):
    out, first = run(max_steps=6, save_steps=2)
    whole = read_samples(out)
    run(max_steps=6, save_steps=2, resume_from_checkpoint=str(out / "checkpoint-2"))
    again = read_samples(out)
    assert again == whole, "the same rows as in the uninterrupted run"
    lines = [json.loads(line) for line in (out / "obs" / "samples.jsonl").read_text().splitlines()]
    assert [(line["step"], line["segment"]) for line in lines] == [(s, 0) for s in range(1, 7)] + [
        (s, 1) for s in range(3, 7)
    ]
    assert sum(agree(again[step][0], first.seen[step], first.rows) for step in again) == 12
    run(max_steps=2)  # a new training: the old log is set aside with the record
    assert sorted(read_samples(out)) == [1, 2]
    assert list((out / "obs" / "archive").glob("*/samples.jsonl"))


def test_the_training_is_bit_equal_and_its_rows_are_the_same(run, tmp_path):
    import datasets
    from safetensors.torch import load_file

    shape = {"dataset": "one,two", "packing": True, "dataloader_num_workers": 1, "val_size": 0.2}
    folders = {}
    for name, callbacks in {"with": ["samples"], "without": ["vram"]}.items():
        saved = tmp_path / f"tokenized-{name}"
        out, _ = run(name, callbacks, tokenized_path=str(saved), **shape)
        folders[name] = out, datasets.load_from_disk(saved)
    weights = [load_file(out / "model.safetensors") for out, _ in folders.values()]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])
    mine, theirs = (saved for _, saved in folders.values())
    assert list(mine) == list(theirs) == ["train", "validation"]
    for split in mine:
        assert mine[split].features == theirs[split].features
        assert mine[split].to_list() == theirs[split].to_list()

    out, _ = run("again", tokenized_path=str(tmp_path / "tokenized-with"), **shape)
    samples = [sample for ranks in read_samples(out).values() for batch in ranks[0] for sample in batch]
    assert all(sample["sources"] is None and sample["row"] is not None for sample in samples)
    notes = [e for e in load_record(out).events if e["name"] == "samples"]
    assert [(e["title"], e["level"]) for e in notes] == [("sources not known", "info")]
    assert "tokenized_path" in notes[0]["text"]


@pytest.mark.parametrize("broken", ["tagging", "carrying"])
def test_what_fails_in_following_the_rows_costs_only_the_sources(run, monkeypatch, broken):
    from llamafactory_obs.samples import carry, provenance

    def fail(*args, **kwargs):
        raise OSError("planted")

    target = (provenance, "tagged") if broken == "tagging" else (carry.Carrying, "preprocess_dataset")
    monkeypatch.setattr(*target, fail)
    out, _ = run(overwrite_cache=True)
    log = read_samples(out)
    assert all(s["sources"] is None and s["row"] is not None for ranks in log.values() for b in ranks[0] for s in b)
    notes = [e for e in load_record(out).events if e["name"] == "samples"]
    assert [(e["title"], e["level"]) for e in notes] == [("sources not known", "warn")] and "planted" in notes[0][
        "text"
    ]


# ---- labels that are not their tokens -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [{}, {"neat_packing": True}, {"stage": "dpo", "dataset": "pairs"}])
@pytest.mark.parametrize("by", [1, -1])
def test_a_batch_with_shifted_labels_is_found(run, shape, by):
    with Shifted(3, by):
        out, witness = run(max_steps=5, **shape)
    record = load_record(out)
    assert [count > 0 for count in record.steps["data/labels_moved"]] == [False, False, True, False, False]
    alerts = [e for e in record.events if e["kind"] == "alert"]
    assert [(e["title"], e["level"], e["step"]) for e in alerts] == [
        ("labels_moved", "error", 3),
        ("labels_moved_over", "info", 4),
    ]
    assert alerts[0]["evidence"]["shift"] == by and f"shifted by {by:+d}" in alerts[0]["text"]
    log = read_samples(out)
    batch = log[3][0][0]
    assert [one["row"] for one in alerts[0]["evidence"]["samples"]] == [sample["row"] for sample in batch]
    name, row = batch[0]["sources"][0]
    assert f"{name} row {row}" in alerts[0]["text"] and "--step 3" in alerts[0]["text"]
    agree(log[3][0], witness.seen[3], witness.rows)  # the rows are still found: by their ids
    parts = [part for sample in batch for part in (sample, sample.get("rejected")) if part]
    assert all(len(part["labels"]) == part["tokens"] for part in parts)
    others = [s for step in log if step != 3 for b in log[step][0] for s in b]
    assert others and not any("labels" in s or "labels" in s.get("rejected", {}) for s in others)


def test_a_damaged_batch_between_logged_steps_is_logged(run):
    with Shifted(3):
        out, _ = run(callbacks=[{"samples": {"every": 2, "text": True}}], max_steps=5)
    log = read_samples(out)
    assert sorted(log) == [2, 3, 4]
    sample = log[2][0][0][0]
    name, row = sample["sources"][0]
    assert f"{name} row {row}:" in sample["text"] and len(sample["text"]) <= 120


def test_the_batch_in_which_training_breaks_off_is_on_record(run, tmp_path):
    from transformers import TrainerCallback

    class Break(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **kwargs):
            def fail(*_):
                if state.global_step == 2:
                    raise RuntimeError("planted")

            self.handle = model.register_forward_hook(fail)

    from llamafactory.train.tuner import run_exp

    config = json.loads(json.dumps({"dataset": "one", "callbacks": ["samples"]}))
    witness = Witness()
    out, _ = run("healthy")
    healthy = read_samples(out)
    from tiny import tiny_model

    base = tiny_config(tiny_model(tmp_path / "m"), numbered_data(tmp_path / "d"), tmp_path / "broken", **config)
    with pytest.raises(RuntimeError, match="planted"):
        run_exp(base, callbacks=[witness, Break()])
    lines = [json.loads(line) for line in (tmp_path / "broken" / "obs" / "samples.jsonl").read_text().splitlines()]
    assert [(line["step"], line.get("incomplete", False)) for line in lines] == [(1, False), (2, False), (3, True)]
    assert lines[2]["micro_batches"] == healthy[3][0]
    agree(lines[2]["micro_batches"], witness.seen[3], witness.rows)


# ---- several processes ----------------------------------------------------------------------------------------------


def torchrun(config: dict, folder: Path, shifted: dict | None = None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29583"]
    command += [str(Path(__file__).parent / "samples_worker.py"), json.dumps(config), str(folder), json.dumps(shifted)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DISABLE_VERSION_CHECK": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-3000:]
    return done


@pytest.mark.slow
def test_two_processes(llamafactory, model, numbered, tmp_path):
    config = tiny_config(
        model,
        numbered,
        tmp_path / "two",
        callbacks=["samples"],
        dataset="one,two",
        packing=True,
        gradient_accumulation_steps=4,
        dataloader_num_workers=2,
        max_steps=3,
        save_steps=2,
        save_only_model=True,  # this torch does not load an optimizer's state onto the device `cpu:0` of such a run
    )
    torchrun(config, tmp_path)
    torchrun({**config, "resume_from_checkpoint": str(tmp_path / "two" / "checkpoint-2")}, tmp_path)
    log = read_samples(tmp_path / "two")
    assert sorted(log) == [1, 2, 3] and all(sorted(ranks) == [0, 1] for ranks in log.values())
    for rank in (0, 1):
        found = json.loads((tmp_path / f"witness-{rank}.json").read_text())  # of the second start
        assert agree(log[3][rank], found["seen"]["3"], found["rows"]) == 8
        lines = (tmp_path / "two" / "obs" / ("samples.jsonl", "samples.rank-1.jsonl")[rank]).read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        assert [(row["step"], row["segment"], row["rank"]) for row in rows] == [
            (1, 0, rank),
            (2, 0, rank),
            (3, 0, rank),
            (3, 1, rank),
        ]
        assert rows[2]["micro_batches"] == rows[3]["micro_batches"]


@pytest.mark.slow
def test_two_nodes_that_share_no_folder_and_a_fault_on_the_other_rank(llamafactory, model, numbered, tmp_path):
    config = tiny_config(model, numbered, tmp_path / "out", callbacks=["samples"], dataset="one", max_steps=4)
    torchrun({**config, "own_folders": True}, tmp_path)
    torchrun({**config, "own_folders": True}, tmp_path, {"rank": 1, "step": 3})
    first, second = tmp_path / "out-0" / "obs", tmp_path / "out-1" / "obs"
    assert [sorted(ranks) for ranks in (read_samples(first)[3], read_samples(second)[3])] == [[0], [1]]
    assert len((second / "samples.rank-1.jsonl").read_text().splitlines()) == 4, "the older log was set aside"
    assert len(list((second / "archive").glob("*/samples.rank-1.jsonl"))) == 1
    alert = next(e for e in load_record(first).events if e["title"] == "labels_moved")
    assert alert["step"] == 3 and alert["evidence"]["ranks"] == [1] and "rank 1 of 2" in alert["text"]
    assert "labels" in read_samples(second)[3][1][0][0] and "labels" not in read_samples(first)[3][0][0][0]
