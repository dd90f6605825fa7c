"""What LlamaFactory does with the data before step 1, timed; and at most some rows of it, so that it takes no hours."""

import functools
import time


class Preparation:
    """Stands around two functions of `llamafactory.data.loader` (0.9.5) in a process that only measures.

    Args:
        limit: rows of each split that are tokenised at most, evenly spread over it; a stream is left alone.

    Attributes:
        read_s: seconds in which the data sets were read and brought into one form.
        splits: one per split that was tokenised: `{"evaluation", "rows", "taken", "sequences", "seconds"}`; the first
            numbers are None for a stream. Sequences are what came out: without the rows that LlamaFactory drops, and
            packed where it packs.
    """

    def __init__(self, limit: int):
        self.read_s = 0.0
        self.splits: list[dict] = []
        self._limit = limit

    def install(self) -> None:
        """Begin; before LlamaFactory reads its data."""
        from llamafactory.data import loader

        loader._get_merged_dataset = self._timed_reading(loader._get_merged_dataset)
        loader._get_preprocessed_dataset = self._limited(loader._get_preprocessed_dataset)

    def _timed_reading(self, original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            start = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                self.read_s += time.perf_counter() - start

        return call

    def _limited(self, original):
        @functools.wraps(original)
        def call(dataset, *args, is_eval=False, **kwargs):
            rows = len(dataset) if hasattr(dataset, "__len__") else None
            taken = min(rows, self._limit) if rows is not None else None
            if rows is not None and taken < rows:
                dataset = dataset.select([i * rows // taken for i in range(taken)])
            start = time.perf_counter()
            done = original(dataset, *args, is_eval=is_eval, **kwargs)
            if dataset is not None:
                sequences = len(done) if hasattr(done, "__len__") else None
                seconds = time.perf_counter() - start
                self.splits.append(
                    {"evaluation": is_eval, "rows": rows, "taken": taken, "sequences": sequences, "seconds": seconds}
                )
            return done

        return call
