"""The content hash of the rows: it sees every number and their order, and nothing else."""

import itertools
import random
import time

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
datasets = pytest.importorskip("datasets")

from llamafactory_obs.identity import gather, rows  # noqa: E402
from llamafactory_obs.identity.rows import rows_sha256  # noqa: E402

IDS = [[5, 6, 7], [], [8], [9, 10, 11, 12], [13, 14]]
LABELS = [[-100, 6, 7], [], [8], [-100, -100, 11, 12], [13, 14]]


PLAIN = pa.list_(pa.int64())


def dataset(ids=IDS, labels=LABELS, kind=PLAIN, chunks=(5,), **more):
    columns = {"input_ids": ids, "labels": labels}
    arrays = {}
    for name, values in columns.items():
        ends = np.cumsum([0, *chunks])
        parts = [pa.array(values[a:b], kind) for a, b in itertools.pairwise(ends)]
        arrays[name] = pa.chunked_array(parts, kind)
    arrays.update(more)
    return datasets.Dataset(pa.table(arrays))


BASE = rows_sha256(dataset())


def test_what_it_says():
    assert BASE["rows"] == 5 and BASE["tokens"] == 10 and set(BASE["columns"]) == {"input_ids", "labels"}
    assert len(BASE["sha256"]) == 64 and BASE["left_out"] == []


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.large_list(pa.int16()), pa.list_(pa.int8())]
)
@pytest.mark.parametrize("chunks", [(5,), (1, 1, 1, 1, 1), (2, 0, 3)])
def test_neither_width_nor_chunks_matter(kind, chunks):
    assert rows_sha256(dataset(kind=kind, chunks=chunks)) == BASE


@pytest.mark.parametrize(
    ("ids", "labels", "changed"),
    [
        ([[5, 6, 7], [], [8], [9, 10, 11, 99], [13, 14]], LABELS, {"input_ids"}),
        (IDS, [[-100, -100, 7], *LABELS[1:]], {"labels"}),
        ([IDS[1], IDS[0], *IDS[2:]], LABELS, {"input_ids"}),  # another order
        ([[5, 6, 7, 8], [], [], *IDS[3:]], LABELS, {"input_ids"}),  # same numbers, other borders
        ([None if row == [] else row for row in IDS], LABELS, {"input_ids"}),  # missing is not empty
        ([[[5, 6, 7]], [[]], [[8]], [[9, 10, 11, 12]], [[13, 14]]], LABELS, {"input_ids"}),  # one level deeper
    ],
)
def test_every_change_is_seen_in_its_column(ids, labels, changed):
    deeper = pa.list_(pa.list_(pa.int64())) if ids[0] and isinstance(ids[0][0], list) else pa.list_(pa.int64())
    table = pa.table({"input_ids": pa.array(ids, deeper), "labels": pa.array(labels, pa.list_(pa.int64()))})
    got = rows_sha256(datasets.Dataset(table))
    assert got["sha256"] != BASE["sha256"]
    assert {name for name in got["columns"] if got["columns"][name] != BASE["columns"][name]} == changed


def test_a_missing_number_is_not_a_number():
    one, two = (datasets.Dataset(pa.table({"input_ids": pa.array([[1, x]])})) for x in (None, 0))
    assert rows_sha256(one)["sha256"] != rows_sha256(two)["sha256"]


def test_a_column_more_or_another_name_is_another_hash():
    mask = dataset(attention_mask=pa.array([[1] * len(row) for row in IDS]))
    got = rows_sha256(mask)
    assert got["sha256"] != BASE["sha256"] and got["columns"]["labels"] == BASE["columns"]["labels"]
    renamed = rows_sha256(dataset().rename_column("labels", "kl_labels"))
    assert renamed["sha256"] != BASE["sha256"]


def test_columns_that_are_not_numbers_are_named():
    more = {
        "images": pa.nulls(5, pa.list_(pa.string())),
        "text": pa.array(list("abcde")),
        "reward": pa.array([0.5] * 5),
        "kto_tags": pa.array([True, False, True, True, False]),
    }
    got = rows_sha256(dataset(**more))
    assert got["left_out"] == ["images", "reward", "text"] and "kto_tags" in got["columns"]
    assert got["columns"]["input_ids"] == BASE["columns"]["input_ids"]


@pytest.mark.parametrize("gather_bytes", [1, 200, 64 << 20])
@pytest.mark.parametrize("chunks", [(5,), (2, 0, 3), (1, 1, 1, 1, 1)])
def test_a_stored_order_equals_the_rows_written_in_that_order(gather_bytes, chunks, monkeypatch):
    monkeypatch.setattr(gather, "GATHER_BYTES", gather_bytes)
    order = [3, 0, 0, 4, 1, 2]
    nested = pa.array([[[1, 2], []], [], [[3]], [[4], [5, 6]], [[7]]])
    flags = pa.array([True, False, True, True, False])
    ends = list(itertools.pairwise(np.cumsum([0, *chunks])))
    more = {
        "nested": pa.chunked_array([nested[a:b] for a, b in ends]),
        "flags": pa.chunked_array([flags[a:b] for a, b in ends]),
    }
    chosen = dataset(kind=pa.list_(pa.int32()), chunks=chunks, **more).select(order)
    assert chosen._indices is not None
    written = datasets.Dataset(
        pa.table(
            {
                "input_ids": [IDS[i] for i in order],
                "labels": [LABELS[i] for i in order],
                "nested": nested.take(pa.array(order)),
                "flags": flags.take(pa.array(order)),
            }
        )
    )
    assert rows_sha256(chosen) == rows_sha256(written)
    assert rows_sha256(dataset(chunks=chunks).select(range(1, 4))) == rows_sha256(dataset(IDS[1:4], LABELS[1:4]))


def test_the_dataset_is_not_disturbed():
    data = dataset().shuffle(seed=1)
    data.set_format("torch", columns=["input_ids"])
    before = (data.format, data._fingerprint, data._indices, data.data, random.getstate(), str(np.random.get_state()))
    rows_sha256(data)
    after = (data.format, data._fingerprint, data._indices, data.data, random.getstate(), str(np.random.get_state()))
    assert before == after


def test_a_transform_does_not_run_and_is_said():
    data = dataset().with_transform(lambda batch: 1 / 0)
    got = rows_sha256(data)
    assert got["sha256"] == BASE["sha256"] and "transform" in got["note"]


class Rows:
    """A dataset that can only be read row by row; it draws random numbers as it goes."""

    def __init__(self, make=list, count=5):
        self.make, self.count, self.read = make, count, 0

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.read += 1
        random.random(), np.random.rand()
        return {"input_ids": self.make(IDS[index % 5]), "labels": self.make(LABELS[index % 5]), "text": "x"}


@pytest.mark.parametrize("make", [list, np.array, lambda row: np.array(row, np.int32)])
def test_a_generic_dataset_of_the_same_rows_has_the_same_hash(make):
    got = rows_sha256(Rows(lambda row: make(row) if row else []))
    assert (got["sha256"], got["tokens"], got["left_out"]) == (BASE["sha256"], 10, ["text"])


def test_tensors_count_as_their_numbers_and_torchs_generator_stays():
    torch = pytest.importorskip("torch")

    class Noisy(Rows):
        def __getitem__(self, index):
            torch.rand(1)
            return super().__getitem__(index)

    states = random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()
    assert rows_sha256(Noisy(lambda row: torch.tensor(row, dtype=torch.int64)))["sha256"] == BASE["sha256"]
    assert (random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()) == states


def test_long_or_slow_generic_datasets_are_unknown():
    many = Rows(count=rows.MAX_GENERIC_ROWS + 1)
    assert "one by one" in rows_sha256(many)["unknown"] and many.read == 0

    class Slow(Rows):
        def __getitem__(self, index):
            time.sleep(0.02)
            return super().__getitem__(index)

    slow = Slow(count=1000)
    assert "row by row takes about" in rows_sha256(slow, budget_s=0.05)["unknown"] and slow.read < 20


def test_streams_are_not_read():
    def never():
        raise AssertionError("read")
        yield {}

    stream = datasets.IterableDataset.from_generator(never)
    assert "streaming" in rows_sha256(stream)["unknown"]
    torch = pytest.importorskip("torch")

    class Stream(torch.utils.data.IterableDataset):
        def __len__(self):
            return 3

        def __iter__(self):
            raise AssertionError("read")

    assert "streaming" in rows_sha256(Stream())["unknown"]


@pytest.mark.parametrize("bad", [None, 7, [], [1, 2], [{"input_ids": [1]}, {"input_ids": "text"}], {"train": 1}])
def test_anything_else_is_unknown_and_never_raises(bad):
    assert set(rows_sha256(bad)) == {"unknown"}


def test_text_that_is_not_tokenized_is_unknown():
    assert "no integer columns" in rows_sha256(datasets.Dataset.from_dict({"text": ["a"]}))["unknown"]


def test_it_is_fast_enough():
    """200 MB/s of an idle core; row by row in Python it would be 2."""
    count = 4_000_000
    ends = np.arange(0, count + 1, 500, dtype=np.int32)
    numbers = pa.array(np.arange(count, dtype=np.int32))
    data = datasets.Dataset(pa.table({"input_ids": pa.ListArray.from_arrays(ends, numbers)}))
    for one in (data, data.shuffle(seed=0)):
        started = time.process_time()
        rows_sha256(one)
        assert count * 4 / 1e6 / (time.process_time() - started) > 15
