"""From a launch's plan to the list of callbacks that LlamaFactory hands to its Trainer."""

import contextlib

from ..plugin.patches import Plan
from .base import ObsCallback
from .context import RunContext
from .recorder import Recorder


def attach(plan: Plan) -> tuple[list, Recorder]:
    """The plan's callbacks and, last, their recorder."""
    recorder = Recorder(RunContext(given=plan.given, arguments=plan.arguments, settings=plan.settings))
    for callback, name in zip(plan.callbacks, plan.names, strict=True):
        if isinstance(callback, ObsCallback):
            callback.context = recorder.context
        else:
            callback._llamafactory_obs_named = name  # guarded once training begins
    return [*plan.callbacks, recorder], recorder


@contextlib.contextmanager
def recording_failures(recorder: Recorder):
    """An exception that leaves LlamaFactory's workflow is on record before it goes on."""
    try:
        yield
    except BaseException as error:
        recorder.failure(error)
        raise
