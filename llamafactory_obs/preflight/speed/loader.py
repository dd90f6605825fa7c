"""The Trainer's own data loader, built anew with any number of workers; each one gives the same rows from the start."""

import contextlib
import copy
import time

import torch


class Loader:
    """An endless iterator over the batches of `trainer.get_train_dataloader()`.

    Two loaders give the same batches in the same order, whatever their workers: their sampler draws from one seed. Only
    a stream that is divided among workers may come in another order.

    Args:
        trainer: it has begun to train.
        workers: in place of `dataloader_num_workers`.

    Attributes:
        starts: seconds from each start of a pass over the data to its first batch; with workers their start.
    """

    def __init__(self, trainer, workers: int):
        self.workers = workers
        self.starts: list[float] = []
        self._trainer, self._batches = trainer, None
        torch.manual_seed(trainer.args.seed)  # accelerate's sampler takes it when it is made
        with arguments(trainer.args, **_keys(workers)):
            self._loader = trainer.get_train_dataloader()

    def __iter__(self):
        return self

    def __next__(self):
        if self._batches is None:
            return self._start()
        try:
            return next(self._batches)
        except StopIteration:
            return self._start()

    def _start(self):
        """The first batch of a pass.

        Raises:
            NoBatchError: the data has none.
        """
        began = time.perf_counter()
        torch.manual_seed(self._trainer.args.seed + len(self.starts))
        self._batches = iter(self._loader)
        try:
            batch = next(self._batches)
        except StopIteration:
            raise NoBatchError(f"the data loader gives no batch with dataloader_num_workers: {self.workers}") from None
        self.starts.append(time.perf_counter() - began)
        return batch

    def close(self) -> None:
        """End its workers."""
        if self._batches is not None:
            self._batches.close()
            self._loader.end()  # accelerate: it is no longer the active one
        self._batches = self._loader = None


class NoBatchError(RuntimeError):
    """A data loader without a batch. It is no StopIteration: that would end a generator in silence."""


class Ready:
    """The batches of one step, on the device, as `Trainer.get_batch_samples` returned them."""

    def __init__(self, batches: list, normaliser):
        self._batches, self._normaliser = batches, normaliser

    def hand_out(self) -> tuple[list, object]:
        """The same again; copies of the mappings, so that a training step that takes keys out does no harm."""
        return [copy.copy(batch) for batch in self._batches], self._normaliser

    @property
    def nbytes(self) -> int:
        """Of all tensors."""
        tensors = (value for batch in self._batches for value in batch.values() if isinstance(value, torch.Tensor))
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    @property
    def cells(self) -> int:
        """Places for tokens, padding included."""
        return cells_of(self._batches)


def cells_of(batches: list) -> int:
    """Places for tokens in all micro-batches of a step; 0 where there are no `input_ids`."""
    ids = (batch.get("input_ids") for batch in batches)
    return sum(tensor.numel() for tensor in ids if isinstance(tensor, torch.Tensor))


def seconds_to_load(trainer, batches: int, budget_s: float) -> dict | None:
    """How long the main process takes for one batch, with no worker and no training beside it.

    Args:
        batches: at most so many are loaded.
        budget_s: ... and as long as this.

    Returns:
        `{"wall_s", "cpu_s", "batches"}`, the first two per batch; None where the data gives no batch without workers
        (LlamaFactory 0.9.5 splits a stream of local files into as many parts as there are workers).
    """
    loader = Loader(trainer, 0)
    try:
        next(loader)
        wall, cpu, count = time.perf_counter(), time.process_time(), 0
        while count < batches and time.perf_counter() - wall < budget_s:
            next(loader)
            count += 1
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    except NoBatchError:
        return None
    finally:
        loader.close()
    return {"wall_s": wall / count, "cpu_s": cpu / count, "batches": count}


@contextlib.contextmanager
def arguments(args, **values):
    """Within the block these training arguments have other values."""
    before = {name: getattr(args, name) for name in values}
    for name, value in values.items():
        setattr(args, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(args, name, value)


def _keys(workers: int) -> dict:
    """torch refuses two of these without workers."""
    if workers:
        return {"dataloader_num_workers": workers}
    return {
        "dataloader_num_workers": 0,
        "dataloader_prefetch_factor": None,
        "dataloader_persistent_workers": False,
    }
