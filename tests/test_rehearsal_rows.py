"""Rows as LlamaFactory reads them, and the folder that they are written to."""

import json
import os
import signal
import tempfile
import time

import numpy as np
import pytest
import yaml
from mask_config import CHAT, talk, write  # noqa: F401
from tiny import tiny_config

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.rehearsal import data as folders
from llamafactory_obs.preflight.rehearsal.choose import Batches, choose_packed
from llamafactory_obs.preflight.rehearsal.packing import blocks_of
from llamafactory_obs.preflight.rehearsal.rows import training_rows
from llamafactory_obs.preflight.run_config import parsed, read_run_config

pytestmark = pytest.mark.usefixtures("llamafactory")


@pytest.fixture
def config(model, data, tmp_path):
    def make(**overrides):
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(tiny_config(model, data, tmp_path / "out", **overrides)))
        return read_run_config(path)

    return make


def tokenized(config):
    """LlamaFactory's own train set for a config, independent of ours."""
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
    from llamafactory.model import load_tokenizer

    with parsed(config) as arguments:
        module = load_tokenizer(arguments.model)
        template = get_template_and_fix_tokenizer(module["tokenizer"], arguments.data)
        stage = {"dpo": "rm"}.get(arguments.finetuning.stage, arguments.finetuning.stage)
        given = (template, arguments.model, arguments.data, arguments.training)
        return get_dataset(*given, stage=stage, **module)["train_dataset"]


@pytest.mark.parametrize(
    ("stage", "dataset", "columns"),
    [
        ("sft", "rows", ["input_ids"]),
        ("dpo", "pairs", ["chosen_input_ids", "rejected_input_ids"]),
        ("rm", "pairs", ["chosen_input_ids", "rejected_input_ids"]),
        ("kto", "votes", ["input_ids"]),
    ],
)
def test_lengths_are_llamafactorys(config, stage, dataset, columns):
    one = config(stage=stage, dataset=dataset, cutoff_len=40)
    wanted = [max(len(row[name]) for name in columns) for row in tokenized(one)]
    with training_rows(one) as rows:
        assert rows.length.tolist() == wanted and rows.row.tolist() == list(range(48))
        assert max(wanted) == 40 or stage != "sft"
        assert (rows.labels > 0).any()


def test_pt_blocks_are_counted_as_llamafactory_makes_them(config):
    one = config(stage="pt", dataset="text", cutoff_len=16, preprocessing_batch_size=10)
    made = tokenized(one)
    with training_rows(one) as rows:
        assert rows.block == 16
        assert blocks_of(rows.arguments)(rows.length.tolist()) == len(made)


def test_packs_are_counted_as_llamafactory_makes_them(config):
    one = config(packing=True, preprocessing_batch_size=20)
    made = tokenized(one)
    with training_rows(one) as rows:
        assert rows.block == len(made[0]["input_ids"]) == 128
        assert blocks_of(rows.arguments)(rows.length.tolist()) == len(made)
        batches = Batches(10, 2, 1, 1)
        choice = choose_packed(rows.length, rows.dataset, batches, 0, blocks_of(rows.arguments))
        assert blocks_of(rows.arguments)([int(rows.length[p]) for step in choice.steps for p in step]) >= 20


def test_written_rows_give_the_same_tokens_in_the_chosen_order(write, tmp_path):  # noqa: F811
    swapped = {"tags": {"role_tag": "who", "content_tag": "text", "user_tag": "u", "assistant_tag": "a"}}
    other = {"formatting": "sharegpt", "columns": {"messages": "talk"}, **swapped}
    lines = [{"talk": [{"who": "u", "text": f"q {i}"}, {"who": "a", "text": f"2024-01-0{i}"}]} for i in range(1, 5)]
    given = {"talks": ([talk(i) for i in range(6)], CHAT), "my/other": (lines, other)}
    (tmp_path / "data" / "my").mkdir(parents=True)
    one = read_run_config(write(data=given, cutoff_len=512))
    whole = [row["input_ids"] for row in tokenized(one)]
    order = [[7, 2, 2], [9, 0]]
    with training_rows(one) as rows:
        keys = folders.write(rows, order, tmp_path / "chosen")
    assert keys["dataset"] == "001_my_other,002_talks,003_my_other,004_talks"
    path = tmp_path / "again.yaml"
    path.write_text(yaml.safe_dump({**one.given, **keys}))
    again = [row["input_ids"] for row in tokenized(read_run_config(path))]
    assert again == [whole[p] for step in order for p in step]


def test_what_json_would_change_is_written_as_parquet(write, tmp_path):  # noqa: F811
    """Alone, an answer that is a date would come back as a point in time."""
    lines = [{"instruction": "when?", "input": "", "output": text} for text in ("2024-01-01 10:00:00", "never")]
    one = read_run_config(write(data={"dates": (lines, {})}))
    with training_rows(one) as rows:
        for position, suffix in ((0, "parquet"), (1, "jsonl")):
            folder = tmp_path / f"chosen{position}"
            folders.write(rows, [[position]], folder)
            assert [file.suffix for file in folder.glob("001*")] == [f".{suffix}"]
        import datasets

        back = datasets.Dataset.from_parquet(str(tmp_path / "chosen0" / "001_dates.parquet"), cache_dir=str(tmp_path))
        assert back.to_list() == [lines[0]]


def test_rows_tokenized_earlier_stay_tokens(config, tmp_path):
    import datasets

    made = tokenized(config())
    datasets.DatasetDict({"train": made}).save_to_disk(str(tmp_path / "tok"))
    one = config(tokenized_path=str(tmp_path / "tok"))
    with training_rows(one) as rows:
        assert rows.length.tolist() == [len(row) for row in made["input_ids"]]
        keys = folders.write(rows, [[5, 5, 1]], tmp_path / "chosen")
    back = datasets.load_from_disk(keys["tokenized_path"])["train"]
    assert back["input_ids"][:] == [made[i]["input_ids"] for i in (5, 5, 1)]


def test_a_stream_of_local_files_is_read_whole(config):
    with training_rows(config(streaming=True, buffer_size=8)) as rows:
        assert len(rows) == 48 and "streaming" in rows.notes[0]


def test_the_evaluation_split_is_not_trained_on(config):
    split = config(val_size=0.25, eval_strategy="steps", eval_steps=5)
    with training_rows(split) as rows:
        assert len(rows) == 36
        assert rows.content([0])[0]["instruction"].startswith(f"row {rows.row[0]}:")


def test_what_cannot_be_rehearsed_is_said_in_one_line(config, write):  # noqa: F811
    bad = read_run_config(write(data={"odd": ([{"conversations": [{"from": "human", "value": "x"}]}], CHAT)}))
    for one, word in ((config(stage="ppo", reward_model="x"), "ppo"), (bad, "odd")):
        with pytest.raises(ConfigError, match=word) as error, training_rows(one):
            pass
        assert "\n" not in str(error.value)


def test_numbers_of_rows_are_plain(config):
    with training_rows(config()) as rows:
        assert json.dumps(rows.named(np.int64(3))) == json.dumps(
            {"dataset": "rows", "row": 3, "length": int(rows.length[3])}
        )


def test_sigterm_while_rows_are_read_leaves_no_scratch(config, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with pytest.raises(SystemExit) as end, training_rows(config()):
        assert list(scratch.iterdir()), "something to leave behind"
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, "else the test itself would end here"
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
    assert end.value.code == 143 and not list(scratch.iterdir())
