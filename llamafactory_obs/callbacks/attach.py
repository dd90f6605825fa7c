"""From a launch's plan to the list of callbacks that LlamaFactory hands to its Trainer."""

import contextlib

from ..identity.redact import secrets_in
from ..plugin.patches import Plan
from .base import ObsCallback
from .context import RunContext
from .failures import guard
from .recorder import Recorder


def attach(plan: Plan) -> tuple[list, Recorder]:
    """The plan's callbacks and, last, their recorder."""
    hidden = frozenset(plan.hidden | secrets_in(plan.given) | plan.settings.alerts.hidden)
    recorder = Recorder(RunContext(plan.given, plan.arguments, plan.settings, hidden))
    for callback, name in zip(plan.callbacks, plan.names, strict=True):
        if isinstance(callback, ObsCallback):
            callback.context = recorder.context
        else:
            guard(callback, name, recorder.callback_off)
    return [*plan.callbacks, recorder], recorder


@contextlib.contextmanager
def watching(plan: Plan, recorder: Recorder):
    """Around LlamaFactory's workflow: the callbacks' own contexts, and an exception that leaves it is on record."""
    try:
        with contextlib.ExitStack() as stack:
            for callback in plan.callbacks:
                if isinstance(callback, ObsCallback):
                    try:
                        stack.enter_context(callback.workflow(plan.arguments))
                    except Exception as error:
                        recorder.callback_off(callback.yaml_name, error)
            yield
    except BaseException as error:
        recorder.failure(error)
        raise
