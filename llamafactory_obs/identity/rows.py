"""A content hash of the rows that a run trains on: the token ids and labels themselves, in their order.

It depends on nothing but the numbers: not on Arrow's chunks, on int32 or int64, on the file the rows came from, or on
how a shuffle is stored. Per column, so that a difference says whether the text changed (`input_ids`) or only what
counts in the loss (`labels`).
"""

import contextlib
import hashlib
import random
import sys
import time
from collections.abc import Iterator

from .gather import gather, slices
from .unknown import unknown

MAX_GENERIC_ROWS = 20_000
"""A dataset that can only be read by `dataset[i]` is hashed up to this many rows."""
NULL = -(2**63)


def rows_sha256(dataset: object, budget_s: float | None = None) -> dict:
    """Hash the integer columns (`input_ids`, `labels`, `chosen_*`, `kto_*` ...) of a dataset.

    A `datasets.Dataset` is read from its Arrow table (any thread; the object is not touched, transforms do not run).
    Anything else with a length is read row by row, in the calling thread, with the states of the random number
    generators put back: call it where nobody else draws numbers.

    Args:
        dataset: the dataset; an iterable one is not read.
        budget_s: give up (`{"unknown": ...}`) where reading row by row takes longer, in seconds; None for no limit.

    Returns:
        `{"sha256", "rows", "tokens": number of input ids|None, "columns": {name: sha256}, "left_out": [names]}`, with a
        `note` where rows are transformed after this; or `{"unknown": why}`. Never raises.
    """
    try:
        if dataset is None:
            return unknown("no training dataset was given")
        if any(cls.__name__ == "IterableDataset" for cls in type(dataset).__mro__) or not hasattr(dataset, "__len__"):
            return unknown("streaming: the rows are not known before they are drawn")
        if is_arrow(dataset):
            return _arrow_rows(dataset)
        return _generic_rows(dataset, budget_s)
    except Exception as error:
        return unknown(error)


def is_arrow(dataset: object) -> bool:
    """Whether it is a `datasets.Dataset`, whose rows can be read without running anybody's code."""
    table = getattr(getattr(dataset, "data", None), "table", None)
    return type(table).__module__.startswith("pyarrow") and hasattr(dataset, "_indices")


class ColumnHash:
    """The running hash of one column: its values, and per level of lists the lengths (-1 for a missing list)."""

    def __init__(self) -> None:
        self.lengths = [hashlib.sha256() for _ in range(4)]
        self.values = hashlib.sha256()
        self.count = 0
        """Numbers seen."""
        self.depth: int | None = None

    def update(self, array: object) -> None:
        """Add rows: a pyarrow Array of (lists of) integers or booleans. Batches may be cut anywhere."""
        import pyarrow as pa
        import pyarrow.compute as pc

        level = 0
        while _is_list(array.type):
            lengths = pc.fill_null(pc.list_value_length(array).cast(pa.int64()), -1)
            self.lengths[level].update(_bytes(lengths))
            array = array.flatten()  # leaves out what a missing list covers
            level += 1
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.int8())
        array = array.cast(pa.int64())
        if array.null_count:
            array = pc.fill_null(array, NULL)
        self.values.update(_bytes(array))
        self.count += len(array)
        self.depth = level

    def hexdigest(self) -> str:
        """SHA-256 over the depth, the lengths of each level and the values."""
        parts = [str(self.depth), *(one.hexdigest() for one in self.lengths), self.values.hexdigest()]
        return hashlib.sha256("|".join(parts).encode()).hexdigest()


def _bytes(array: object) -> memoryview:
    """The bytes of an int64 array without missing values, little-endian, without a copy."""
    numbers = array.to_numpy(zero_copy_only=False)
    return memoryview(numbers.astype("<i8", copy=False)).cast("B") if len(numbers) else memoryview(b"")


def _is_list(kind: object) -> bool:
    import pyarrow as pa

    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _is_integer(kind: object) -> bool:
    """Whether the innermost values are integers or booleans (or lists that are all empty)."""
    import pyarrow as pa

    nested = _is_list(kind)
    while _is_list(kind):
        kind = kind.value_type
    return pa.types.is_integer(kind) or pa.types.is_boolean(kind) or (nested and pa.types.is_null(kind))


def _summary(hashes: dict[str, ColumnHash], rows: int, left_out: list[str], note: str | None = None) -> dict:
    columns = {name: hashes[name].hexdigest() for name in sorted(hashes)}
    if not columns:
        return unknown("the dataset has no integer columns: its rows are not tokenized yet")
    whole = hashlib.sha256(f"{rows}\n".encode())
    for name, digest in columns.items():
        whole.update(f"{name}\0{digest}\n".encode())
    tokens = hashes["input_ids"].count if "input_ids" in hashes else None
    row = {"sha256": whole.hexdigest(), "rows": rows, "tokens": tokens, "columns": columns, "left_out": left_out}
    return {**row, "note": note} if note else row


def _arrow_rows(dataset: object) -> dict:
    table = dataset.data.table
    indices = None if dataset._indices is None else dataset._indices.column(0)
    hashes: dict[str, ColumnHash] = {}
    for name in table.column_names:
        if _is_integer(table.schema.field(name).type):
            hashes[name] = ColumnHash()
            column = table.column(name)
            for array in slices(column) if indices is None else gather(column, indices):
                hashes[name].update(array)
    rows = table.num_rows if indices is None else len(indices)
    left_out = sorted(name for name in table.column_names if name not in hashes)
    transformed = getattr(dataset, "_format_type", None) == "custom"
    return _summary(hashes, rows, left_out, "a transform changes the rows after this" if transformed else None)


def _generic_rows(dataset: object, budget_s: float | None) -> dict:
    """Row by row; the columns are those of the first row that hold integers."""
    rows = len(dataset)
    if rows > MAX_GENERIC_ROWS:
        return unknown(f"{rows} rows can only be read one by one (limit {MAX_GENERIC_ROWS})")
    if rows == 0:
        return unknown("the dataset is empty")
    import pyarrow as pa

    started = time.monotonic()
    hashes: dict[str, ColumnHash] = {}
    with random_state_kept():
        for index in range(rows):
            row = dataset[index]
            if not hasattr(row, "keys"):
                return unknown(f"a row is a {type(row).__name__}, not a mapping of columns")
            if index == 0:
                names = list(row.keys())
                arrays = {name: _to_arrow(row[name]) for name in names}
                hashes = {
                    name: ColumnHash() for name, one in arrays.items() if one is not None and _is_integer(one.type)
                }
            for name, one in hashes.items():
                array = _to_arrow(row[name]) if name in row else pa.nulls(1, pa.list_(pa.int64()))
                if array is None or not _is_integer(array.type):
                    return unknown(f"column {name!r} holds integers in some rows and something else in row {index}")
                one.update(array)
            spent = time.monotonic() - started
            if budget_s is not None and spent > budget_s and index + 1 < rows:
                return unknown(
                    f"reading row by row takes about {spent / (index + 1) * rows:.1f} s (limit {budget_s:g} s)"
                )
    return _summary(hashes, rows, sorted(set(names) - set(hashes)))


def _to_arrow(value: object) -> object | None:
    """One cell as an Arrow array of one row; None for what Arrow cannot hold."""
    import pyarrow as pa

    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if hasattr(value, "tolist"):
        value = value.tolist()
    try:
        return pa.array([value])
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return None


@contextlib.contextmanager
def random_state_kept() -> Iterator[None]:
    """Put the states of python's, numpy's and torch's generators back afterwards (those of imported modules)."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    python_state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy else None
    torch_state = torch.get_rng_state() if torch else None
    cuda_state = torch.cuda.get_rng_state_all() if torch and torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        random.setstate(python_state)
        if numpy_state is not None:
            numpy.random.set_state(numpy_state)
        if torch_state is not None:
            torch.set_rng_state(torch_state)
        if cuda_state is not None:
            torch.cuda.set_rng_state_all(cuda_state)
