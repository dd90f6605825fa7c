"""The base class of our callbacks: a transformers TrainerCallback with the hooks that transformers does not have."""

import contextlib
import math
import sys
from dataclasses import fields
from typing import ClassVar, get_args, get_type_hints

from transformers import TrainerCallback

from ..record.schema import Key
from .context import RunContext


class ObsCallback(TrainerCallback):
    """A callback that takes part in the run record.

    A subclass is a dataclass (`eq=False`): each public field is an option with its default, and a docstring under it.
    All hooks are called by the `Recorder`, guarded and timed: an exception switches this one callback off and the
    training goes on. Values go to `self.run` (the Recorder): `put`, `defer`, `event`, `append`.

    The hooks, in the order of a step: `batch`, `loss`, `gradients`, `updated` and `step` run on the hot path of every
    rank; `row` receives the finished row: at once in one process on CPU, else at most two steps later.
    """

    #: name in the YAML
    yaml_name: ClassVar[str] = ""
    #: the columns of `steps.jsonl` that this callback fills
    keys: ClassVar[tuple[Key, ...]] = ()
    #: what it brings into the tracker alone, at the step that it belongs to
    tracker_keys: ClassVar[tuple[Key, ...]] = ()

    context: RunContext | None = None
    run = None

    def workflow(self, arguments: dict) -> contextlib.AbstractContextManager:
        """A context around LlamaFactory's whole workflow, entered before it loads the data; not under other trainers.

        Args:
            arguments: LlamaFactory's argument objects, see `RunContext`.
        """
        return contextlib.nullcontext()

    def begin(self) -> None:
        """Training starts; `self.run` is ready."""

    def batch(self, inputs: dict) -> None:
        """One micro-batch, on the device, before its forward pass."""

    def loss(self, loss) -> None:
        """The loss of that micro-batch, a 0-d tensor on the device."""

    def gradients(self, gradients) -> None:
        """The gradients of the step (`taps.Gradients`), before clipping; weights are those before the update."""

    def updated(self) -> None:
        """The optimizer has updated the weights; the (clipped) gradients still exist."""

    def step(self) -> None:
        """The step ends; last chance to put values into its row."""

    def derive(self, values: dict) -> None:
        """Add columns that follow from columns summed over all ranks."""

    def row(self, row) -> None:
        """A finished row: judge it here. Runs on every rank with the same values, so that all decide the same."""

    def logged(self, logs: dict) -> None:
        """The Trainer logs."""

    def evaluated(self, metrics: dict) -> None:
        """An evaluation has ended."""

    def saved(self, folder: str, last: bool) -> None:
        """The Trainer has saved a checkpoint to `folder`; `last`: training ends after it."""

    def failed(self, error: BaseException) -> None:
        """Training ends with this exception, which goes on its way afterwards."""

    def summary(self) -> dict:
        """Short name -> number, shown at every log step."""
        return {}

    def end(self) -> None:
        """Training has ended."""

    def off(self) -> None:
        """Nothing more will be called: training is over, or this callback was switched off. Let go of what it holds."""

    def on_train_begin(self, args, state, control, **kwargs):
        from .recorder import Recorder

        trainer = find_trainer(self)
        if trainer is None:
            print(f"llamafactory-obs: {self.yaml_name}: not called by a transformers Trainer; off", file=sys.stderr)
            return
        handler = trainer.callback_handler
        recorder = next((c for c in handler.callbacks if isinstance(c, Recorder)), None)
        if recorder is None:  # plain Trainer: the first of our callbacks brings the recorder, last in the list
            recorder = Recorder(self.context or RunContext())
            handler.callbacks.append(recorder)
        recorder.register(self)

    def __post_init__(self) -> None:
        check_types(self)


def find_trainer(callback: TrainerCallback):
    """The Trainer whose event is being handled: callbacks are not given it, but it is on the stack."""
    frame = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        handler = getattr(owner, "callback_handler", None) if owner is not callback else None
        if handler is not None and any(c is callback for c in handler.callbacks):
            return owner
        frame = frame.f_back
    return None


def check_types(options) -> None:
    """Check each dataclass field against its annotation (int, float, bool, str, Literal, unions with None).

    Raises:
        ValueError: naming the option, the wanted type and the value.
    """
    hints = get_type_hints(type(options))
    for option in fields(options):
        value, hint = getattr(options, option.name), hints[option.name]
        if not _fits(value, hint):
            raise ValueError(f"{option.name} must be {_describe(hint)}, got {value!r}")


def _fits(value, hint) -> bool:
    choices = get_args(hint)
    if hint in (int, float, bool, str, type(None)):
        if hint is float:
            return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    if choices and not any(isinstance(choice, type) or get_args(choice) for choice in choices):
        return value in choices  # Literal
    if isinstance(hint, type):
        return isinstance(value, hint)
    return any(_fits(value, choice) for choice in choices)


def _describe(hint) -> str:
    if isinstance(hint, type):
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
        return words.get(hint, hint.__name__)
    return " or ".join(_describe(c) if isinstance(c, type) or get_args(c) else repr(c) for c in get_args(hint))
