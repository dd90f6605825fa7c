"""Where in the training set a content stands: a sorted list of 64-bit hashes of all rows, made in a thread."""

import threading

import numpy as np

from ..identity.rows import is_arrow
from .content import joined, keys

#: about how many bytes of a table are looked at together
_BYTES = 4 << 20


class RowIndex:
    """The index of one training set.

    Args:
        dataset: what the Trainer was given. Only a `datasets.Dataset` is read, from its Arrow table: whatever else
            it is, it may draw numbers, be without end or not be there twice.

    Attributes:
        dataset: that.
        why: the reason why rows cannot be found, "" where they can.
        rows: how many there are.
    """

    def __init__(self, dataset):
        self.dataset, self.why, self.rows = dataset, "", 0
        self._keys = self._positions = None
        self._done, self._stopped = threading.Event(), False
        self._thread = threading.Thread(target=self._read, name="llamafactory-obs-rows", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Is it finished, or given up?"""
        return self._done.is_set()

    def wait(self, seconds: float) -> None:
        """Wait until it is, for so long."""
        self._done.wait(seconds)

    def stop(self) -> None:
        """It is not needed any more."""
        self._stopped = True

    def find(self, key: np.uint64) -> tuple[int | None, int]:
        """The first row with this content, and how many others have it too; (None, 0) where there is none."""
        if self._keys is None:
            return None, 0
        first, end = (int(np.searchsorted(self._keys, key, side)) for side in ("left", "right"))
        return (int(self._positions[first]), end - first - 1) if end > first else (None, 0)

    def _read(self) -> None:
        try:
            if not is_arrow(self.dataset):
                kind = type(self.dataset).__name__
                self.why = f"the training set is a {kind}, not a table: rows have no place that could be looked up"
                return
            found = self._hashes()
            self.rows = len(found)
            order = np.argsort(found, kind="stable")
            self._positions, self._keys = order.astype(np.int64), found[order]
        except Exception as error:
            self.why = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
        finally:
            self._done.set()

    def _hashes(self) -> np.ndarray:
        names = self.dataset.column_names
        prefixes = ("chosen_", "rejected_") if "chosen_input_ids" in names else ("",)
        wanted = [f"{prefix}{name}" for prefix in prefixes for name in ("input_ids", "attention_mask", "position_ids")]
        wanted = [name for name in wanted if name in names]
        if f"{prefixes[0]}input_ids" not in wanted:
            raise ValueError("its rows have no input_ids: they are tokenized after this")
        rows = self.dataset.with_format("arrow", columns=wanted)
        count = len(rows)
        step = max(1, int(_BYTES / max(self.dataset.data.nbytes / max(self.dataset.data.num_rows, 1), 1)))
        parts = [np.zeros(0, np.uint64)]
        for begin in range(0, count, step):
            if self._stopped:
                raise InterruptedError("stopped")
            table = rows[begin : min(begin + step, count)]
            each = [keys(*_real(table, prefix)) for prefix in prefixes]
            parts.append(each[0] if len(each) == 1 else joined(*each))
        return np.concatenate(parts)


def _real(table, prefix: str) -> tuple[np.ndarray, np.ndarray]:
    """The real ids of all rows put together, and their lengths; by the rules of `callbacks.batch_shape`."""
    ids, lengths = _flat(table, f"{prefix}input_ids")
    real = None
    if f"{prefix}position_ids" in table.column_names:
        positions, same = _flat(table, f"{prefix}position_ids")
        if np.array_equal(same, lengths):
            real = _in_a_conversation(positions, lengths)
    if f"{prefix}attention_mask" in table.column_names:
        mask, same = _flat(table, f"{prefix}attention_mask")
        if np.array_equal(same, lengths):
            real = mask != 0 if real is None else real & (mask != 0)
    if real is None or real.all():
        return ids, lengths
    counted = np.concatenate([[0], np.cumsum(real)])
    ends = np.cumsum(lengths)
    return ids[real], counted[ends] - counted[ends - lengths]


def _in_a_conversation(positions: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """A packed row's padding stays at position 0: it neither follows another position nor is followed by one."""
    follows = np.zeros(len(positions), dtype=bool)
    follows[1:] = positions[1:] == positions[:-1] + 1
    starts = (np.cumsum(lengths) - lengths)[lengths > 0]
    follows[starts] = False
    continues = np.zeros_like(follows)
    continues[:-1] = follows[1:]
    return follows | continues


def _flat(table, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The values of a column of lists, and the lengths of the lists."""
    import pyarrow.compute as pc

    column = table.column(name).combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return column.flatten().to_numpy(zero_copy_only=False), lengths
