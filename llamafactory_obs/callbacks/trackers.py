"""Numbers that arrive late, into the tracker that the run reports to, at the step they belong to.

A tracker that takes only rising steps (wandb) gets a step axis of its own, `obs/step`: a value for step 200 that comes
when training is at 249 would be dropped otherwise (wandb issue 10628).
"""

import contextlib
from collections.abc import Callable


class Trackers:
    """The trackers of one Trainer, as transformers connected them. Opens no run of its own.

    Args:
        callbacks: the Trainer's list of callbacks.
        on_error: told the tracker's class and the exception when one fails; it is left out from then on.
    """

    def __init__(self, callbacks: list, on_error: Callable[[str, BaseException], None]):
        self._on_error = on_error
        self._sinks = []
        for callback in callbacks:
            sink = next((_SINKS[cls.__name__] for cls in type(callback).__mro__ if cls.__name__ in _SINKS), None)
            if sink is not None:
                with contextlib.suppress(Exception):  # a tracker that is not there has said so itself
                    self._sinks.append((type(callback).__name__, sink(callback)))

    @property
    def names(self) -> list[str]:
        """The classes of the trackers that are written to."""
        return [name for name, _ in self._sinks]

    def log(self, values: dict[str, float], step: int) -> None:
        """Write values at a step, which may lie behind the current one."""
        for name, write in list(self._sinks):
            try:
                write(values, step)
            except Exception as error:
                self._sinks.remove((name, write))
                self._on_error(name, error)


def _wandb(callback):
    run = callback._wandb.run
    defined: set[str] = set()

    def write(values: dict[str, float], step: int) -> None:
        for name in values.keys() - defined:
            run.define_metric(name, step_metric="obs/step")
            defined.add(name)
        run.log({**values, "obs/step": step})

    return write


def _tensorboard(callback):
    from torch.utils.tensorboard import SummaryWriter

    folder = callback.tb_writer.log_dir

    def write(values: dict[str, float], step: int) -> None:
        writer = callback.tb_writer or SummaryWriter(folder)  # closed at the end of training
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()
        if writer is not callback.tb_writer:
            writer.close()

    return write


def _swanlab(callback):
    import swanlab

    return lambda values, step: swanlab.log(values, step=step)


def _trackio(callback):
    return lambda values, step: callback._trackio.log(values, step=step)


def _mlflow(callback):
    return lambda values, step: callback._ml_flow.log_metrics(values, step=step)


#: class name of transformers' integration -> what makes a writer from it
_SINKS = {
    "WandbCallback": _wandb,
    "TensorBoardCallback": _tensorboard,
    "SwanLabCallback": _swanlab,
    "TrackioCallback": _trackio,
    "MLflowCallback": _mlflow,
}
