"""Exceptions: other people's callbacks must not end the run, and what does end it must be on record."""

import functools
import traceback

import torch
from transformers import TrainerCallback

from ..detect.out_of_memory import says_out_of_memory
from .journal import Journal, one_line

#: modules that tracker callbacks come from; the Trainer's own and LlamaFactory's callbacks are left alone
_TRACKERS = ("transformers.integrations", "swanlab", "wandb", "trackio", "mlflow")

_EVENTS = [name for name in vars(TrainerCallback) if name.startswith("on_")]


def guard_trackers(callbacks: list[TrainerCallback], report) -> None:
    """Guard the host's tracker callbacks (`report_to`): a dead one is named once and switched off."""
    for callback in callbacks:
        if type(callback).__module__.startswith(_TRACKERS):
            guard(callback, type(callback).__name__, report)


def guard(callback: TrainerCallback, name: str, report) -> None:
    """Wrap the event methods of one callback instance. `report(name, error)` is called at its first exception.

    The instance itself is changed, not wrapped in another object: the Trainer looks callbacks up by their class.
    """
    if "_llamafactory_obs_guarded" in vars(callback):
        return
    off = []

    def guarded(method):
        @functools.wraps(method)
        def call(*args, **kwargs):
            if off:
                return None
            try:
                return method(*args, **kwargs)
            except Exception as error:
                off.append(error)
                report(name, error)
                return None

        return call

    object.__setattr__(callback, "_llamafactory_obs_guarded", True)  # also where the class refuses (a frozen dataclass)
    for event in _EVENTS:
        object.__setattr__(callback, event, guarded(getattr(callback, event)))


def is_out_of_memory(error: BaseException) -> bool:
    """An exception of a device, or of the host, that has no memory left, under whatever name."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or says_out_of_memory(str(error))


def will_retry(args, error: BaseException) -> bool:
    """Will the Trainer catch this exception and begin again with a smaller batch?"""
    return bool(args.auto_find_batch_size) and is_out_of_memory(error)


def record_failure(trainer, journal: Journal, error: BaseException) -> None:
    """One event for the exception that ends the training; on whatever rank it happens."""
    by_hand = isinstance(error, (KeyboardInterrupt, SystemExit))
    kind, level = ("interrupted", "info") if by_hand else ("crash", "error")
    title = f"training ends: {kind}"
    if will_retry(trainer.args, error):
        kind, level, title = "retry", "warn", "out of memory: the Trainer begins again with a smaller batch"
    text = one_line(error, 500)
    where = [f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno} {f.name}" for f in traceback.extract_tb(error.__traceback__)]
    evidence = {"rank": trainer.args.process_index, "traceback": where[-6:]}
    journal.event(kind, "recorder", title, text, level=level, evidence=evidence)
