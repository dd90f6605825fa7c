"""The parts of `samples`: digests, the index of the training set, the writing thread, the reader, the detector."""

import hashlib
import json
import threading

import numpy as np
import pytest

from llamafactory_obs.detect import MovedLabelsDetector
from llamafactory_obs.record.samples import read_samples, sample_files, samples_file
from llamafactory_obs.record.writer import RecordWriter
from llamafactory_obs.samples.content import IGNORE, digest, keys, shift_of

datasets = pytest.importorskip("datasets")

from llamafactory_obs.samples import log as log_module  # noqa: E402
from llamafactory_obs.samples.carry import SOURCES, Carrying  # noqa: E402
from llamafactory_obs.samples.index import RowIndex  # noqa: E402
from llamafactory_obs.samples.log import SampleLog, Step  # noqa: E402
from llamafactory_obs.samples.micro_batch import MicroBatch  # noqa: E402
from llamafactory_obs.samples.segment import rank_writer  # noqa: E402
from llamafactory_obs.samples.source_rows import DATASET, ROW, tagged, take_row_numbers, with_row_numbers  # noqa: E402


def test_the_digest_is_that_of_the_format():
    ids = [1, 2, 300000, -100]
    wanted = hashlib.blake2b(b"".join(i.to_bytes(8, "little", signed=True) for i in ids)).hexdigest()[:16]
    assert digest(np.array(ids, dtype=np.int32)) == wanted


def test_keys_tell_sequences_apart_and_do_not_depend_on_their_neighbours():
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 50, rng.integers(0, 9)).tolist() for _ in range(20_000)]
    rows += [[1, 2], [2, 1], [0], [0, 0], [], [1, 2, 0], [-100]]
    found = keys(np.concatenate([np.array(r, dtype=np.int64) for r in rows]), np.array([len(r) for r in rows]))
    by_row = {}
    for row, key in zip(rows, found.tolist(), strict=True):
        assert by_row.setdefault(tuple(row), key) == key
    assert len(set(by_row.values())) == len(by_row) > 10_000
    assert keys(np.array(rows[5], dtype=np.int32), np.array([len(rows[5])]))[0] == found[5]


def find(index: RowIndex, ids: list[int]):
    index.wait(60)
    return index.find(keys(np.array(ids), np.array([len(ids)]))[0])


def test_the_index_finds_rows_and_counts_their_like():
    rows = [[5, 6, 7], [8], [5, 6], [8], [9, 9, 9, 9], [8]]
    dataset = datasets.Dataset.from_dict({"input_ids": rows, "labels": rows})
    index = RowIndex(dataset)
    assert [find(index, ids) for ids in ([5, 6, 7], [5, 6], [9, 9, 9, 9])] == [(0, 0), (2, 0), (4, 0)]
    assert find(index, [8]) == (1, 2) and find(index, [8, 8]) == (None, 0)
    shuffled = RowIndex(dataset.select([4, 2, 0]))  # stored as a list of indices
    assert [find(shuffled, ids) for ids in ([9, 9, 9, 9], [5, 6], [5, 6, 7])] == [(0, 0), (1, 0), (2, 0)]


def test_the_index_over_many_rows_read_in_pieces(monkeypatch):
    from llamafactory_obs.samples import index as index_module

    monkeypatch.setattr(index_module, "_BYTES", 500)
    rows = [[i, i + 1, i + 2][: 1 + i % 3] for i in range(300)]
    dataset = datasets.Dataset.from_dict({"input_ids": rows})
    both = datasets.concatenate_datasets([dataset, dataset.select(range(10))])  # several chunks
    index = RowIndex(both)
    assert [find(index, ids)[0] for ids in rows] == list(range(300))
    assert find(index, rows[4]) == (4, 1) and index.rows == 310


def test_the_index_leaves_out_the_padding_of_packed_rows():
    dataset = datasets.Dataset.from_dict(
        {
            "input_ids": [[5, 6, 7, 8, 0, 0], [5, 6, 7, 8, 9, 0], [0, 5, 6, 0, 0, 0], [1, 2], [7, 3, 4]],
            "position_ids": [[0, 1, 0, 1, 0, 0], [0, 1, 2, 3, 4, 0], [0, 1, 2, 0, 0, 0], [0, 1], [2, 0, 1]],
            "attention_mask": [[1] * 6, [1] * 6, [0, 1, 1, 1, 1, 1], [1] * 2, [1] * 3],
        }
    )
    index = RowIndex(dataset)
    assert [find(index, ids)[0] for ids in ([5, 6, 7, 8], [5, 6, 7, 8, 9], [5, 6], [3, 4])] == [0, 1, 2, 4]


@pytest.mark.parametrize("dataset", [[{"input_ids": [1]}], datasets.Dataset.from_dict({"text": ["a"]})])
def test_what_cannot_be_indexed_is_said(dataset):
    index = RowIndex(dataset)
    index.wait(60)
    assert index.ready and index.why and find(index, [1]) == (None, 0)


def test_shifts():
    ids = np.arange(100, 130)
    labels = np.full(30, IGNORE)
    for k in (1, -1, 2, -7):
        labels[10:20] = ids[10 + k : 20 + k]
        assert shift_of(ids, labels) == k
    labels[10:20] = ids[10:20]
    assert shift_of(ids, labels) == 0
    labels[10:20] = 7
    assert shift_of(ids, labels) is None
    assert shift_of(ids, np.full(30, IGNORE)) is None


def test_the_detector_reports_each_episode_once_and_a_few_of_many():
    detector = MovedLabelsDetector(most=2)
    found = [detector.update(step, moved) for step, moved in enumerate([0, 3, 4, 0, 0, 5, 0, 6, 0, None], 1)]
    assert [f and (f.name, f.step) for f in found] == [
        None,
        ("labels_moved", 2),
        None,
        ("labels_moved_over", 4),
        None,
        ("labels_moved", 6),
        ("labels_moved_over", 7),
        None,
        None,
        None,
    ]
    assert detector.steps == 4 and detector.last == 8
    assert all(MovedLabelsDetector().update(step, 0) is None for step in range(9))


# ---- the source rows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[17], [4, 2, 9], [3, 4, 5], [0, 1]])
def test_row_numbers_go_through_selections(rows):
    raw = datasets.Dataset.from_dict({"text": [f"row {i}" for i in range(20)]})
    selected, numbers = take_row_numbers(with_row_numbers(raw).select(rows))
    assert numbers.tolist() == rows and selected.column_names == ["text"]
    aligned = tagged(selected, 3, numbers)
    assert aligned[:] == {"text": [f"row {i}" for i in rows], DATASET: [3] * len(rows), ROW: rows}


class Packing:
    """A processor as LlamaFactory's packed one, that drops rows of length 3 and packs the longest first."""

    def _encode_data_example(self, prompt, response):
        ids = list(range(len(prompt)))
        return ids, ids

    def preprocess_dataset(self, examples):
        made = [self._encode_data_example(prompt=p, response=None)[0] for p in examples["_prompt"] if len(p) != 3]
        made = sorted((m for m in made), key=len, reverse=True)
        packed = [made[i : i + 2] for i in range(0, len(made), 2)]
        ids = [[i for one in pack for i in one] + [0, 0] for pack in packed]
        return {"input_ids": ids, "labels": ids, "position_ids": ids}


def test_packed_rows_are_told_apart_by_what_was_encoded():
    prompts = [["a"] * count for count in (2, 3, 4, 2)]
    out = Carrying(Packing()).preprocess_dataset({"_prompt": prompts, DATASET: [0, 0, 1, 1], ROW: [10, 11, 12, 13]})
    assert out[SOURCES] == [[1, 12, 1, 13], [0, 10]]


def test_a_processor_that_does_other_things_gives_no_wrong_sources():
    class Other(Packing):
        def preprocess_dataset(self, examples):
            self._encode_data_example("ab", None)
            return {"input_ids": [[7, 7], [8]]}

    out = Carrying(Other()).preprocess_dataset({"_prompt": ["ab", "c"], DATASET: [0, 0], ROW: [0, 1]})
    assert out["input_ids"] == [[7, 7], [8]] and out[SOURCES] == [[-1, -1], [-1, -1]]


# ---- the writing thread ---------------------------------------------------------------------------------------------


def batch(*rows: list[int]) -> MicroBatch:
    width = max(map(len, rows))
    ids = np.array([row + [0] * (width - len(row)) for row in rows], dtype=np.int32)
    real = np.array([[i < len(row) for i in range(width)] for row in rows])
    return MicroBatch(ids, real, np.where(real, ids, IGNORE))


def index_of(*rows: list[int]) -> RowIndex:
    return RowIndex(datasets.Dataset.from_dict({"input_ids": list(rows)}))


def test_more_than_it_can_hold_is_dropped_and_counted_and_never_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(log_module, "_WAITING_BYTES", 200)
    go = threading.Event()

    def slow(on_error):
        go.wait(60)
        return RecordWriter.joining(tmp_path, on_error)

    log = SampleLog(slow, 0, index_of([5, 6]), None, None)
    for step in range(1, 60):
        log.add(Step(step, 0.0, [batch([5, 6])]))
    assert 0 < log.dropped < 59
    go.set()
    log.close()
    written = read_samples(tmp_path)
    assert len(written) == 59 - log.dropped and log.placed == len(written)


def test_rows_wait_for_the_index_only_so_long(tmp_path, monkeypatch):
    monkeypatch.setattr(log_module, "_WAITING_SAMPLES", 5)
    monkeypatch.setattr(log_module, "_PATIENCE_S", 0.1)
    ready = threading.Event()
    monkeypatch.setattr(RowIndex, "_read", lambda self: ready.wait(60))
    log = SampleLog(lambda tell: RecordWriter.joining(tmp_path, tell), 0, RowIndex(None), None, None)
    for step in range(1, 9):
        log.add(Step(step, 0.0, [batch([5, 6])]))
    log.close()
    ready.set()
    assert sorted(read_samples(tmp_path)) == list(range(1, 9)) and log.unplaced == 8


def test_a_disk_that_is_full_is_said_and_what_ends_the_thread_is_kept(tmp_path):
    (tmp_path / "file").write_text("")
    log = SampleLog(lambda tell: RecordWriter.joining(tmp_path / "file", tell), 0, index_of([5]), None, None)
    log.add(Step(1, 0.0, [batch([5])]))
    log.close()
    assert "cannot be written" in log.problem and log.error is None

    def broken(tell):
        raise OSError("planted")

    log = SampleLog(broken, 0, index_of([5]), None, None)
    log.close()
    log.add(Step(1, 0.0, [batch([5])]))
    assert isinstance(log.error, OSError) and log.dropped == 1


def test_each_rank_has_its_own_file_and_segment(tmp_path):
    folder = tmp_path / "obs"
    own = rank_writer(tmp_path, 1, None, False, print)
    own.append(samples_file(1), {"step": 1})
    own.close()
    again = rank_writer(tmp_path, 1, None, True, print)  # a resume on a node of its own
    assert again.segment == 1
    assert rank_writer(tmp_path, 1, 4, True, print).segment == 4, "rank 0 says which"
    fresh = rank_writer(tmp_path, 1, None, False, print)
    assert fresh.segment == 0 and not (folder / samples_file(1)).exists()
    assert len(list((folder / "archive").glob("*/samples.rank-1.jsonl"))) == 1
    RecordWriter(tmp_path, False, print).append("events.jsonl", {"step": 0})
    assert rank_writer(tmp_path, 1, None, False, print).segment == 0


def test_the_reader_takes_the_newest_segment_of_all_ranks(tmp_path):
    folder = tmp_path / "obs"
    folder.mkdir()

    def write(rank, *rows):
        lines = [
            json.dumps({"step": s, "segment": g, "rank": rank, "micro_batches": [[{"row": r}]]}) for s, g, r in rows
        ]
        (folder / samples_file(rank)).write_text("\n".join(lines) + "\n{torn")

    write(0, (1, 0, 10), (2, 0, 20), (2, 1, 21))
    write(1, (1, 0, 11), (2, 0, 22), (3, 0, 33))  # the resume went on with one process
    assert sorted(sample_files(folder)) == [0, 1]
    wanted = {1: {0: [[{"row": 10}]], 1: [[{"row": 11}]]}, 2: {0: [[{"row": 21}]]}, 3: {1: [[{"row": 33}]]}}
    assert read_samples(tmp_path) == wanted and read_samples(folder) == wanted
    assert read_samples(tmp_path, {2}) == {2: wanted[2]}
