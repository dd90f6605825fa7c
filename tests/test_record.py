"""The record's files: strict JSON, torn tails, segments, columns."""

import json
import math
import os
import signal
import subprocess
import sys

import pytest

from llamafactory_obs import load_record
from llamafactory_obs.errors import ConfigError
from llamafactory_obs.record.schema import EVENTS, LAYERS, STEPS, decode, encode
from llamafactory_obs.record.writer import RecordWriter


def strict(line: bytes) -> dict:
    def refuse(token):
        raise AssertionError(f"not strict JSON: {token}")

    return json.loads(line, parse_constant=refuse)


@pytest.mark.parametrize(
    "row",
    [
        {"step": 1, "train/loss": math.nan, "train/lr": -math.inf, "b": True, "n": None},
        {"grad_norm": [1.0, math.inf, math.nan], "evidence": {"a.b": math.nan, "c": [math.inf, {"d[0]": math.nan}]}},
        {"text": "华东区 8 月 \ud800 \n \u2028", "x": 1e-300},
    ],
)
def test_nonfinite_numbers_survive_strict_json(row):
    line = encode(row)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    strict(line)
    assert repr(decode(line)).replace("?", "\\ud800") == repr(row)


def test_nonfinite_map_is_as_the_contract_says():
    assert strict(encode({"step": 3, "train/loss": math.nan})) == {
        "step": 3,
        "train/loss": None,
        "nonfinite": {"train/loss": "nan"},
    }


def open_writer(folder, resumed=False):
    return RecordWriter(folder, resumed, on_error=lambda reason: pytest.fail(str(reason)))


def test_newest_segment_wins_and_rows_of_one_step_join(tmp_path):
    first = open_writer(tmp_path)
    for step in range(1, 7):
        first.append(STEPS, {"step": step, "train/loss": float(step)})
    first.append(STEPS, {"step": 6, "eval/loss": 0.5})
    first.append(EVENTS, {"step": 6, "kind": "eval"})
    first.close()
    second = open_writer(tmp_path, resumed=True)
    assert second.segment == 1
    second.append(STEPS, {"step": 5, "train/loss": 50.0})
    second.close()
    record = load_record(tmp_path)
    assert record.steps["step"] == [1, 2, 3, 4, 5, 6]
    assert record.steps["train/loss"] == [1.0, 2.0, 3.0, 4.0, 50.0, 6.0]
    assert record.steps["segment"] == [0, 0, 0, 0, 1, 0]
    assert record.steps["eval/loss"] == [None] * 5 + [0.5]
    assert load_record(tmp_path / "obs").steps == record.steps


def test_a_new_run_in_the_same_folder_keeps_the_old_record(tmp_path):
    for run in range(3):
        writer = open_writer(tmp_path)
        assert writer.segment == 0
        writer.append(STEPS, {"step": 1, "train/loss": float(run)})
        writer.close()
    assert load_record(tmp_path).steps["train/loss"] == [2.0]
    old = sorted((tmp_path / "obs" / "archive").iterdir(), key=lambda folder: folder.stat().st_mtime_ns)
    assert sorted(load_record(folder).steps["train/loss"][0] for folder in old) == [0.0, 1.0]


def test_a_torn_tail_is_skipped_and_cut_off_by_the_next_writer(tmp_path):
    writer = open_writer(tmp_path)
    for step in (1, 2):
        writer.append(STEPS, {"step": step})
    writer.close()
    file = tmp_path / "obs" / STEPS
    file.write_bytes(file.read_bytes() + b'{"step":3,"train/lo')
    record = load_record(tmp_path)
    assert record.steps["step"] == [1, 2] and record.torn == 1
    writer = open_writer(tmp_path, resumed=True)
    writer.append(STEPS, {"step": 3})
    record = load_record(tmp_path)
    assert record.steps["step"] == [1, 2, 3] and record.torn == 0


KILLED = """
import sys
from llamafactory_obs.record.writer import RecordWriter
writer = RecordWriter(sys.argv[1], False, print)
step = 0
while True:
    step += 1
    writer.append("steps.jsonl", {"step": step, "train/loss": 1 / step, "text": "x" * 500})
    print(step, flush=True)
"""


def test_sigkill_loses_no_row_that_was_handed_over(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE)
    acknowledged = [int(process.stdout.readline()) for _ in range(300)][-1]
    process.send_signal(signal.SIGKILL)
    process.wait()
    steps = load_record(tmp_path).steps["step"]
    assert steps == list(range(1, len(steps) + 1)) and len(steps) >= acknowledged


def test_layers_of_another_model_are_not_mixed_in(tmp_path):
    writer = open_writer(tmp_path)
    writer.append(LAYERS, {"step": 1, "names": ["a"], "modules": ["m"]})
    writer.append(LAYERS, {"step": 1, "grad_norm": [1.0], "module_grad_norm": [1.0]})
    writer.close()
    writer = open_writer(tmp_path, resumed=True)
    writer.append(LAYERS, {"step": 2, "names": ["a", "b"], "modules": ["m"]})
    writer.append(LAYERS, {"step": 2, "grad_norm": [2.0, math.nan], "module_grad_norm": [2.0]})
    layers = load_record(tmp_path).layers
    assert layers.names == ["a", "b"] and layers.column("grad_norm", "a") == {2: 2.0}
    assert math.isnan(layers.column("grad_norm", "b")[2]) and layers.column("grad_norm", "m") == {2: 2.0}


def test_frame(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    writer = open_writer(tmp_path)
    writer.append(STEPS, {"step": 1, "train/loss": 2.0})
    frame = load_record(tmp_path).frame()
    assert isinstance(frame, pandas.DataFrame) and frame.loc[1, "train/loss"] == 2.0


@pytest.mark.parametrize("make", [lambda p: p / "missing", lambda p: p])
def test_no_record_is_one_clear_line(tmp_path, make):
    with pytest.raises(ConfigError, match="no run record here"):
        load_record(make(tmp_path))


def test_binary_and_foreign_lines_do_not_stop_the_reader(tmp_path):
    folder = tmp_path / "obs"
    folder.mkdir()
    damaged = [b"[1,2]", b'{"step":"x"}', b'{"step":7,"nonfinite":[1]}', b'{"step":6,"segment":null}', b"[" * 100_000]
    damaged += [b'{"step":4,"train/loss":null}', b'{"step":8,"nonfinite":{"a":"word"}}', b""]
    (folder / STEPS).write_bytes(os.urandom(4000) + b"\n" + b"\n".join(damaged))
    record = load_record(tmp_path)
    assert record.steps["step"] == [4] and record.torn >= 6
