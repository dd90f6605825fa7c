"""The thread that writes one rank's `samples.jsonl`: hashing, looking up and writing while training goes on."""

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ..record.samples import samples_file
from ..record.writer import RecordWriter
from .index import RowIndex
from .micro_batch import MicroBatch
from .provenance import Provenance

#: batches that wait to be looked at take at most so much memory
_WAITING_BYTES = 64 << 20
#: samples that wait until the training set's index is ready
_WAITING_SAMPLES = 50_000
#: how long the end of training waits for the index and for the last rows
_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Step:
    """The batches of one optimizer step of one rank. `incomplete`: training broke off in it."""

    step: int
    time: float
    micro_batches: list[MicroBatch]
    incomplete: bool = False


class SampleLog:
    """Writes the rows of one rank.

    Args:
        open_writer: gives the writer of this rank's part of the record; called in the thread, with the function to call
            with one line when rows begin to get lost (and with None when writing works again).
        rank: this process.
        index: of the training set.
        sources: whose rows they are, None where that was not followed.
        head: ids -> the text to show; None for no text.

    Attributes:
        dropped: steps that are missing because batches came faster than they could be written.
        placed, unplaced: samples that were found in the training set, and those that were not.
        problem: newest line about the file, None when all is well.
        error: what ended the thread.
    """

    def __init__(
        self,
        open_writer: Callable[[Callable], RecordWriter],
        rank: int,
        index: RowIndex,
        sources: Provenance | None,
        head: Callable | None,
    ):
        self._open, self._rank, self._index, self._sources, self._head = open_writer, rank, index, sources, head
        self.dropped, self.unplaced, self.placed = 0, 0, 0
        self.problem: str | None = None
        self.error: Exception | None = None
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._waiting: deque[tuple[Step, list, list]] = deque()
        self._bytes = self._samples = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="llamafactory-obs-samples", daemon=True)
        self._thread.start()

    def add(self, step: Step) -> None:
        """Take one step's batches; they are dropped, and counted, where too many wait already."""
        size = sum(batch.nbytes for batch in step.micro_batches)
        with self._lock:
            if self.error is not None or (self._bytes and self._bytes + size > _WAITING_BYTES):
                self.dropped += 1
                return
            self._bytes += size
        self._queue.put((step, size))

    def close(self) -> None:
        """Write what is left; waits for it, but not for ever."""
        self._queue.put(None)
        self._thread.join(2 * _PATIENCE_S)
        self._index.stop()

    def place(self, key, sample: dict) -> dict:
        """The sample with its row in the training set and the sources of that."""
        row, same = self._index.find(key)
        found = {"row": row, "sources": None}
        if row is not None and self._sources is not None and self._index.rows == len(self._sources.column or ()):
            found["sources"] = self._sources.of(row)
        return found | sample | ({"same": same} if same else {})

    # ---- in the thread ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        writer = None
        try:
            writer = self._open(self._tell)
            while (item := self._queue.get()) is not None:
                step, size = item
                self._describe(step)
                with self._lock:
                    self._bytes -= size
                if self._index.ready or self._samples > _WAITING_SAMPLES:
                    self._write(writer)
            self._index.wait(_PATIENCE_S)
            self._write(writer)
        except Exception as error:
            self.error = error
        finally:
            if writer is not None:
                with contextlib.suppress(OSError):
                    writer.close()

    def _describe(self, step: Step) -> None:
        samples, keys = [], []
        for batch in step.micro_batches:
            found = list(batch.samples())
            if self._head is not None:
                found = [(sample | {"text": self._head(rows[0].ids)}, key, rows) for sample, key, rows in found]
            samples.append([sample for sample, _, _ in found])
            keys.append([key for _, key, _ in found])
        done = Step(step.step, step.time, [], step.incomplete)  # without the batches themselves
        self._waiting.append((done, samples, keys))
        self._samples += sum(map(len, samples))

    def _write(self, writer: RecordWriter) -> None:
        while self._waiting:
            step, samples, keys = self._waiting.popleft()
            placed = [
                [self.place(key, sample) for sample, key in zip(*pair, strict=True)]
                for pair in zip(samples, keys, strict=True)
            ]
            found = [sample["row"] is not None for batch in placed for sample in batch]
            self._samples -= len(found)
            self.placed += sum(found)
            self.unplaced += len(found) - sum(found)
            row = {"step": step.step, "time": step.time, "segment": writer.segment, "rank": self._rank}
            broken = {"incomplete": True} if step.incomplete else {}
            writer.append(samples_file(self._rank), row | broken | {"micro_batches": placed})

    def _tell(self, problem: str | None) -> None:
        self.problem = problem or "writing works again; rows in between are lost"
