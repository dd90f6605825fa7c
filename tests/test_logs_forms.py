"""Every form of log, by its content: JSON Lines, states, consoles, encodings; what is none is one clear line."""

import gzip
import json
import math
import os
import pickle
import struct

import pytest

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.logs.read import read

ROWS = [
    {"step": 10 * n, "loss": 2.0 / n, "learning_rate": 1e-4, "grad_norm": 0.5, "epoch": n / 10} for n in range(1, 9)
]
LOSSES = [row["loss"] for row in ROWS]
PRINTED = "".join(f"{row}\n" for row in ROWS)
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
STATE = json.dumps({"global_step": 80, "max_steps": 100, "logging_steps": 10, "log_history": ROWS}, indent=2)


def curves(tmp_path, content, name="a.bin"):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read(file)


def refusal(tmp_path, content):
    with pytest.raises(ConfigError) as caught:
        curves(tmp_path, content)
    assert "\n" not in str(caught.value)
    return str(caught.value)


FORMS = {
    "json lines": LINES,
    "state": STATE,
    "state in one line": json.dumps(json.loads(STATE)),
    "bare list": json.dumps(ROWS),
    "wrapper": json.dumps({"per_epoch": [{"a": 1}], "log_history": ROWS}),
    "wrapper in a wrapper": json.dumps({"run": "x", "state": {"max_steps": 100, "log_history": ROWS}}),
    "list of states": json.dumps([{"log_history": ROWS[:4]}, {"log_history": ROWS[4:]}]),
    "documents in a row": json.dumps({"log_history": ROWS[:4]}) + "\n" + json.dumps({"log_history": ROWS[4:]}),
    "objects over several lines": "\n".join(json.dumps(row, indent=1) for row in ROWS),
    "printed": PRINTED,
    "printed with text as values": "".join(f"{ {key: str(value) for key, value in row.items()} }\n" for row in ROWS),
    "printed with a prefix": "".join(f"INFO 12:00 >> {row}\n" for row in ROWS),
    "typographic quotes": PRINTED.replace("'", "\u2019"),
    "typographic double quotes": PRINTED.replace(" '", " \u201c").replace("{'", "{\u201c").replace("':", "\u201d:"),
    "colours": "".join(f"\x1b[32m{row}\x1b[0m\n" for row in ROWS),
    "colours within": PRINTED.replace("'loss': ", "'loss': \x1b[1m").replace(", 'learning", "\x1b[0m, 'learning"),
    "printed rows among json lines": LINES.replace(json.dumps(ROWS[4]), str(ROWS[4])),
    "bare carriage returns": "".join(f"\r 1%| | 3/9 [00:01<00:02, 1.0it/s]\r{row}\r" for row in ROWS),
    "tensors": PRINTED.replace("'grad_norm': 0.5", "'grad_norm': tensor(0.5000, device='cuda:0')"),
    "windows lines": LINES.replace("\n", "\r\n"),
    "bom": "\ufeff" + LINES,
    "bom and state": "\ufeff" + STATE,
    "utf-16": LINES.encode("utf-16"),
    "utf-16 state": STATE.encode("utf-16"),
    "utf-16 without a mark": LINES.encode("utf-16-le"),
    "utf-16 console": ("begin\n" + PRINTED).encode("utf-16"),
    "blank lines": "\n\n" + LINES.replace("\n", "\n \n"),
    "latin-1 in between": b"\xe9t\xe9\n" + PRINTED.encode(),
    "null bytes of a crash": LINES.encode() + b"\x00" * 300,
    "no newline at the end": LINES[:-1],
    "long lines": "x" * 30_000 + "\n" + PRINTED + "{'a': " + "y" * 30_000 + "\n",
    "code and configs before": "config = {'loss': None, 'a': {'b': 1}}\n{'lora': 8}\n" + PRINTED,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_read_by_its_content(tmp_path, form):
    found = curves(tmp_path, FORMS[form])
    assert found.points("train/loss") == ([10, 20, 30, 40, 50, 60, 70, 80], pytest.approx(LOSSES)), form
    assert found.points("train/grad_norm")[1] == [0.5] * 8
    assert (found.kind, found.breaks, found.overlaps, found.logging_steps) == ("sft", [], [], 10)


def test_the_source_is_told_by_the_content(tmp_path):
    log = "".join(
        json.dumps({"current_steps": n, "total_steps": 9, "loss": 1.0, "lr": 0.1}) + "\n" for n in range(1, 9)
    )
    assert curves(tmp_path, log).source == "trainer_log"
    assert curves(tmp_path, LINES).source == "logging_jsonl"
    assert curves(tmp_path, STATE).source == "trainer_state"
    assert curves(tmp_path, PRINTED).source == "console"
    assert curves(tmp_path, STATE).max_steps == 100
    assert curves(tmp_path, log).max_steps == 9


def test_nan_and_infinity_are_numbers_and_null_is_none(tmp_path):
    text = (
        '{"step": 1, "loss": NaN, "grad_norm": Infinity}\n{"step": 2, "loss": -Infinity, "grad_norm": null}\n'
        '{"step": 3, "loss": 0.0, "grad_norm": NaN}\n'
    )
    printed = (
        "{'loss': nan, 'grad_norm': inf}\n{'loss': '-inf', 'grad_norm': None}\n{'loss': 0.0, 'grad_norm': 'nan'}\n"
    )
    for found in (curves(tmp_path, text), curves(tmp_path, printed)):
        loss, norm = list(found.columns["train/loss"]), list(found.columns["train/grad_norm"])
        assert math.isnan(loss[0]) and loss[1] == -math.inf and loss[2] == 0.0
        assert norm[0] == math.inf and norm[1] is None and math.isnan(norm[2])


def test_what_is_missing_is_neither_zero_nor_nan(tmp_path):
    """LOSS-9: the last row of LlamaFactory's log has no loss and no rate."""
    log = '{"current_steps": 3230, "total_steps": 3235, "loss": 0.5, "lr": 1e-5}\n'
    log += '{"current_steps": 3235, "total_steps": 3235, "epoch": 1.0}\n'
    found = curves(tmp_path, log)
    assert found.points("train/loss") == ([3230], [0.5]) and len(found) == 1
    nulls = '{"current_steps": 5, "loss": 1.0, "reward": null, "eval_loss": null}\n'
    found = curves(tmp_path, nulls + '{"current_steps": 10, "loss": null, "reward": null, "eval_loss": null}\n')
    assert list(found.columns) == ["train/loss"] and len(found) == 1 and found.kind == "sft"


def test_numbers_as_text(tmp_path):
    """ms-swift: steps as "10/438", shares, durations."""
    rows = [
        {"loss": "0.00", "token_acc": "27.81%", "elapsed_time": "8h 8m 1s", "global_step/max_steps": "10/438"},
        {"loss": "1.5e-3", "token_acc": "30%", "elapsed_time": "4 days, 7:18:24", "global_step/max_steps": "20/438"},
        {"loss": " 2 ", "token_acc": "n/a", "elapsed_time": "4 days, 7:19:24", "global_step/max_steps": "30/438"},
    ]
    found = curves(tmp_path, "".join(json.dumps(row) + "\n" for row in rows))
    assert (list(found.steps), found.max_steps) == ([10, 20, 30], 438)
    assert list(found.columns["train/loss"]) == [0.0, 0.0015, 2.0]
    assert list(found.columns["token_acc"]) == [27.81, 30.0, None]
    assert list(found.columns["time/elapsed_s"]) == [29281.0, 371904.0, 371964.0]
    assert any("as text" in note for note in found.notes)


def test_a_last_line_with_a_whole_history_adds_no_rows(tmp_path):
    last = json.dumps({"last_model_checkpoint": "x", "max_steps": 90, "log_history": ROWS}) + "\n"
    found = curves(tmp_path, LINES + last)
    assert len(found) == 8 and found.max_steps == 90 and "log_history" in found.notes[0]
    assert len(curves(tmp_path, '{"epoch": 0.1, "memory(GiB)": 3.0}\n' + last)) == 8


def test_the_summary_at_the_end_is_no_step(tmp_path):
    summary = {"step": 80, "train_runtime": 3.0, "train_loss": 0.7, "total_flos": 1e9, "epoch": 1.0}
    found = curves(tmp_path, json.dumps({"log_history": [*ROWS, summary]}))
    assert len(found) == 8 and not {"train_loss", "train_runtime", "total_flos"} & set(found.columns)
    swift = summary | {"memory(GiB)": 3.0, "step": 81}
    assert len(curves(tmp_path, json.dumps({"log_history": [*ROWS, swift]}))) == 8
    stripped = {"step": 80, "epoch": 1.0, "train_loss": 0.7}
    assert list(curves(tmp_path, json.dumps([*ROWS, stripped])).columns["train/loss"]) == LOSSES


def test_torn_ends_are_read_up_to_there(tmp_path):
    found = curves(tmp_path, LINES + '{"step": 90, "lo')
    assert len(found) == 8 and found.notes == ["1 torn or foreign lines skipped"]
    found = curves(tmp_path, STATE[: STATE.index('"step": 60')])
    assert list(found.steps) == [10, 20, 30, 40, 50] and "torn" in found.notes[0]


@pytest.mark.filterwarnings("error")
def test_odd_literals_bring_no_warning(tmp_path):
    assert len(curves(tmp_path, "{'loss': 1if x else 2}\n" + PRINTED)) == 8


def test_no_log_is_one_clear_line(tmp_path):
    safetensors = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    safetensors = struct.pack("<Q", len(safetensors)) + safetensors + struct.pack("<2f", 1.0, 2.0)
    assert "empty" in refusal(tmp_path, b"") and "empty" in refusal(tmp_path, "\n \n")
    assert "git-LFS" in refusal(tmp_path, "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12\n")
    assert "gzip" in refusal(tmp_path, gzip.compress(LINES.encode()))
    assert "pickle" in refusal(tmp_path, pickle.dumps(ROWS))
    assert "binary" in refusal(tmp_path, safetensors)
    assert "picture" in refusal(tmp_path, b"\x89PNG\r\n\x1a\n" + os.urandom(500))
    assert "binary" in refusal(tmp_path, os.urandom(4000))
    for text in (
        "hello\nworld\n",
        "[]x",
        '{"model_type": "llama", "vocab_size": 3}',
        "[1, 2, 3]",
        '"loss"',
        "{" * 5000,
    ):
        assert "expected" in refusal(tmp_path, text), text
    with pytest.raises(ConfigError, match="no such file"):
        read(tmp_path / "nothing")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    (tmp_path / "log").write_text(LINES)
    (tmp_path / "log").chmod(0)
    with pytest.raises(ConfigError, match="cannot be read"):
        read(tmp_path / "log")


def test_a_predict_run_is_no_training_log(tmp_path):
    log = "".join(
        f'{{"current_steps": {5 * n}, "total_steps": 99, "elapsed_time": "0:00:{n:02}"}}\n' for n in range(1, 9)
    )
    found = curves(tmp_path, log)
    assert (found.kind, len(found)) == ("not_a_training_log", 8)
    console = "[INFO] x >> ***** Running Prediction *****\n  Num examples = 9\n"
    assert (curves(tmp_path, console).kind, len(curves(tmp_path, console))) == ("not_a_training_log", 0)
    began = curves(tmp_path, "***** Running training *****\n  Total optimization steps = 1,000\n")
    assert (began.kind, len(began), began.max_steps) == ("sft", 0, 1000)


def test_llamafactorys_running_log(tmp_path):
    """Its rows have no step and no bar: the total, the epoch and the number of rows tell the stride."""
    head = "[INFO|2025-03-06 08:42:56] trainer.py:2369 >> ***** Running training *****\n"
    head += "[INFO|2025-03-06 08:42:56] trainer.py:2371 >>   Num Epochs = 3\n"
    head += "[INFO|2025-03-06 08:42:56] trainer.py:2376 >>   Total optimization steps = 1,200\n"
    rows = [
        f"[INFO|2025-03-06 09:{n:02}:00] logging.py:143 >> {{'loss': {2 / n:.4f}, 'learning_rate': 1.5000e-05, "
        f"'epoch': {n / 40:.2f}, 'throughput': 1234.56}}\n"
        for n in range(1, 31)
    ]
    found = curves(tmp_path, head + "\n".join(rows))
    assert (list(found.steps), found.max_steps, found.source) == (list(range(10, 310, 10)), 1200, "console")
    assert set(found.points("time/per_step_s")[1]) == {6.0} and found.breaks == []


def test_a_console_without_the_total_takes_the_bar_that_moves_with_the_losses(tmp_path):
    text = "Tokenizing: 100%|##| 500/500 [00:10<00:00, 50 examples/s]\n"
    for n in range(1, 6):
        text += f"  {n}%| | {10 * n}/700 [{n:02}:00<59:59, 6s/it]\r\r{{'loss': {1 / n}, 'epoch': 0.1}}\n"
        text += "\r".join(f" {k}/40 [00:0{k}<00:09, 4it/s]" for k in range(1, 9)) + f"\n{{'eval_loss': {2 / n}}}\n"
    found = curves(tmp_path, text)
    assert (list(found.steps), found.max_steps) == ([10, 20, 30, 40, 50], 700)
    assert found.points("eval/loss")[0] == [10, 20, 30, 40, 50]
    assert found.points("time/elapsed_s")[1] == [60.0, 120.0, 180.0, 240.0, 300.0]


@pytest.mark.parametrize("content", [LINES, STATE, PRINTED, FORMS["bare list"], FORMS["utf-16"]], ids=range(5))
def test_no_cut_and_no_flipped_byte_ends_in_a_traceback(tmp_path, content):
    content = content if isinstance(content, bytes) else content.encode()
    for at in range(0, len(content), 97 if len(content) > 97 * 20 else 23):
        flipped = content[:at] + bytes([content[at] ^ 0x5A]) + content[at + 1 :]
        for hostile in (content[:at], flipped, content[at:]):
            try:
                assert len(curves(tmp_path, hostile)) <= 8 + 1
            except ConfigError as error:
                assert "\n" not in str(error)
