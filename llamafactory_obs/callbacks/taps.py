"""Where we listen inside a Trainer: its micro-batches, its losses and its gradients before clipping.

Instance attributes of this one Trainer and its accelerator are wrapped while it trains and put back afterwards; no
class and no other Trainer is touched. The wrapped calls return what they returned before, bit for bit.

transformers calls `on_pre_optimizer_step` after clipping, so the norm before clipping exists only inside
`accelerator.clip_grad_norm_`. Clipping computes the norm of every gradient there; we keep those instead of computing
them again.
"""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from accelerate import data_loader


@dataclass
class Gradients:
    """The gradients of one optimizer step, seen before they were clipped.

    Attributes:
        total: the global norm, a 0-d tensor (or a number where the engine gives one), None where it cannot be seen.
        norms: shape [P], the norm of each parameter's gradient, in the order of `parameters`; None where the engine
            keeps gradients to itself (DeepSpeed ZeRO, FSDP1). Of sharded parameters (FSDP2): of the whole parameter.
        parameters: the P parameters that have a gradient.
        max_norm: the clipping limit, `inf` when nothing is clipped.
    """

    total: torch.Tensor | float | None
    norms: torch.Tensor | None
    parameters: list[torch.nn.Parameter]
    max_norm: float


class Taps:
    """The wrapped calls of one Trainer."""

    def __init__(self, trainer, recorder):
        self._trainer, self._recorder = trainer, recorder
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        trainer = self._trainer
        self._wrap(trainer, "training_step", self._training_step)
        self._wrap(trainer, "evaluate", self._reporting_failures)
        self._wrap(trainer.accelerator, "clip_grad_norm_", self._clip_grad_norm)
        if getattr(trainer, "optimizer", None) is not None:
            self._wrap(trainer.optimizer, "step", self._reporting_failures)
        if self._recorder.phases is not None:
            self._time_parts()

    def _time_parts(self) -> None:
        """Tell the parts of a step apart for `Phases`; the outer wrapper starts first and ends last."""
        trainer, accelerator = self._trainer, self._trainer.accelerator
        for owner, name, part in (
            (trainer, "_prepare_inputs", "h2d"),
            (trainer, "compute_loss", "forward"),
            (trainer, "evaluate", "eval"),
            (trainer, "_save_checkpoint", "checkpoint"),
            (accelerator, "clip_grad_norm_", "optimizer"),
            (accelerator, "gather", "communication"),
            (getattr(trainer, "optimizer", None), "step", "optimizer"),
        ):
            if owner is not None:
                self._wrap(owner, name, functools.partial(self._timed, part))
        self._wrap(trainer, "get_batch_samples", self._timed_data)
        self._wrap(accelerator, "backward", self._timed_backward)

    def _timed(self, part: str, original):
        def call(*args, **kwargs):
            with self._recorder.timing(part):
                return original(*args, **kwargs)

        return call

    def _timed_data(self, original):
        """accelerate moves each batch to the device inside the data loader; its function is wrapped meanwhile."""

        def call(*args, **kwargs):
            move = data_loader.send_to_device
            data_loader.send_to_device = self._timed("h2d", move)
            try:
                with self._recorder.timing("data_wait"):
                    return original(*args, **kwargs)
            finally:
                data_loader.send_to_device = move

        return call

    def _timed_backward(self, original):
        """With several processes what is left when this process' own gradients are done is waiting for the others.

        The engine calls queued functions at the end of the backward pass, in their order. Ours is queued when the pass
        begins, so it comes before that of DDP and FSDP2, which waits for their communication.
        """
        several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

        def own_part_is_done():
            if self._recorder.phases is not None:
                self._recorder.phases.enter("communication")

        def begins(gradient):
            torch.autograd.Variable._execution_engine.queue_callback(own_part_is_done)

        def call(loss, *args, **kwargs):
            if several and loss.requires_grad:
                loss.register_hook(begins)
            with self._recorder.timing("backward"):
                return original(loss, *args, **kwargs)

        return call

    @property
    def installed(self) -> bool:
        return bool(self._undo)

    def remove(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _wrap(self, owner, name: str, make: Callable) -> None:
        original = getattr(owner, name)
        had_own, own = name in vars(owner), vars(owner).get(name)
        setattr(owner, name, functools.wraps(original)(make(original)))
        self._undo.append(lambda: setattr(owner, name, own) if had_own else delattr(owner, name))

    def _training_step(self, original):
        def training_step(model, inputs, *args, **kwargs):
            normaliser = args[0] if args else kwargs.get("num_items_in_batch")
            self._recorder.micro_batch(inputs, normaliser)
            try:
                loss = original(model, inputs, *args, **kwargs)
            except BaseException as error:
                self._recorder.failure(error)
                raise
            self._recorder.micro_loss(loss)
            return loss

        return training_step

    def _clip_grad_norm(self, original):
        def clip_grad_norm_(parameters, max_norm, *args, **kwargs):
            captured: list[Gradients] = []
            with _shared_norms(captured):
                total = original(parameters, max_norm, *args, **kwargs)
            self._recorder.gradients(captured[-1] if captured else Gradients(total, None, [], float(max_norm)))
            return total

        return clip_grad_norm_

    def _reporting_failures(self, original):
        def call(*args, **kwargs):
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                self._recorder.failure(error)
                raise

        return call


@contextlib.contextmanager
def _shared_norms(captured: list[Gradients]):
    """Within the block `torch.nn.utils.clip_grad_norm_` keeps the norms it computes. Same kernels, same order."""
    real = torch.nn.utils.clip_grad_norm_

    @torch.no_grad()
    def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        with_grad = [p for p in parameters if p.grad is not None]
        grads = [p.grad for p in with_grad]
        if not grads or float(norm_type) != 2.0 or error_if_nonfinite or foreach is not None:
            return real(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
        if len({(g.device, g.dtype, type(g)) for g in grads}) == 1:
            norms = torch.stack(_each_norm(grads))
            total = torch.linalg.vector_norm(norms, 2.0)
            torch.nn.utils.clip_grads_with_norm_(with_grad, max_norm, total)
        else:  # several devices or dtypes: torch groups and orders them its own way, so we take a pass of our own
            norms = norms_of(grads)
            total = real(parameters, max_norm, norm_type)
        whole = _whole(norms)  # of DTensors
        seen_total = total if whole is norms else torch.linalg.vector_norm(whole, 2.0)
        captured.append(Gradients(seen_total, whole, with_grad, float(max_norm)))
        return total

    torch.nn.utils.clip_grad_norm_ = clip_grad_norm_
    try:
        yield
    finally:
        torch.nn.utils.clip_grad_norm_ = real


def gradients_of(model: torch.nn.Module) -> Gradients | None:
    """The gradients of a model that nobody clips (no call of `clip_grad_norm_` was seen in this step)."""
    with torch.no_grad():
        parameters = [p for p in model.parameters() if p.grad is not None]
        if not parameters:
            return None
        norms = norms_of([p.grad for p in parameters])
        return Gradients(torch.linalg.vector_norm(norms, 2.0), norms, parameters, float("inf"))


def norms_of(tensors: list[torch.Tensor]) -> torch.Tensor:
    """The norm of each tensor; shape [P], float32, on the first one's device. Of sharded tensors: of the whole."""
    device = tensors[0].device
    if len({(t.device, t.dtype, type(t)) for t in tensors}) == 1:
        return _whole(torch.stack(_each_norm(tensors))).float()
    return torch.stack([_whole(_each_norm([t])[0]).to(device, torch.float32) for t in tensors])


def _each_norm(grads: list[torch.Tensor]) -> list[torch.Tensor]:
    """As `torch.nn.utils.clip_grad_norm_` does it: fused for plain tensors, one by one for DTensors."""
    if type(grads[0]) is torch.Tensor:
        return list(torch._foreach_norm(grads, 2.0))
    return [torch.linalg.vector_norm(g, 2.0) for g in grads]


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """The full value of a sharded DTensor (`.item()` would give this rank's shard); one collective, all ranks join."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
