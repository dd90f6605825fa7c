"""Which tensors are alive while a model runs: bytes by kind, and what they were at the highest moment."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: kinds of what is alive; parameters and buffers are not among them
GRADIENTS, LOGITS, COPIES, ACTIVATIONS = "gradients", "logits", "weight copies", "activations"
KINDS = (GRADIENTS, LOGITS, COPIES, ACTIVATIONS)


class Live(TorchDispatchMode):
    """Follows every storage from the operator that made it until it is freed.

    Args:
        model: its parameters and buffers are left out.
        vocabulary: a tensor whose last dimension has this size and that has one row per token is of kind `logits`.
        tokens: real and padded tokens of the batch.

    Attributes:
        now: kind -> bytes alive.
        peaks: phase -> kind -> bytes at the moment of the phase with the highest sum. Phases are named by the caller.
        backward: set by the caller while autograd's engine runs.
    """

    def __init__(self, model: torch.nn.Module, vocabulary: int, tokens: int):
        super().__init__()
        self._constant = {_key(t): t for t in [*model.parameters(), *model.buffers()]}
        self._vocabulary, self._tokens = vocabulary, tokens
        self._alive: dict[int, tuple[int, str]] = {}
        self.now = dict.fromkeys(KINDS, 0)
        self.peaks: dict[str, dict[str, int]] = {}
        self.backward = False
        self.enter("forward")

    def enter(self, phase: str) -> None:
        """From here on a peak belongs to this phase."""
        self._phase = phase
        if phase not in self.peaks:
            self.peaks[phase] = dict(self.now)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self._look()
        result = func(*args, **(kwargs or {}))
        copy = func is torch.ops.aten._to_copy.default and _key(args[0]) in self._constant
        for tensor in _tensors(result):
            self.add(tensor, COPIES if copy else self._kind(tensor))
        if not self._accumulates(func, args):
            self._look()
        return result

    def _accumulates(self, func, args) -> bool:
        """Two gradients of one tensor are added by the engine, in place where nobody else holds the first one.

        Under a dispatch mode it does not work in place (`can_accumulate_inplace` in torch/csrc/autograd/input_buffer):
        so the sum is looked at when the next operator comes, and the first one, if nobody else held it, is gone.
        A view holds its base, so there the sum is new: the gradient of a weight that is head and embedding at once.
        """
        adds = self.backward and func is torch.ops.aten.add.Tensor and not torch.is_grad_enabled()
        return adds and not args[0]._is_view()

    def _look(self) -> None:
        if sum(self.now.values()) > sum(self.peaks[self._phase].values()):
            self.peaks[self._phase] = dict(self.now)

    def add(self, tensor: torch.Tensor, kind: str) -> None:
        """Count the tensor's storage once; one that is counted already may still become a gradient."""
        key = _key(tensor)
        if key in self._constant:
            return
        known = self._alive.get(key)
        if known is not None:
            if kind == GRADIENTS and known[1] != GRADIENTS:
                self.now[known[1]] -= known[0]
                self.now[GRADIENTS] += known[0]
                self._alive[key] = (known[0], GRADIENTS)
            return
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        self._alive[key] = (size, kind)
        self.now[kind] += size
        weakref.finalize(storage, self._freed, key).atexit = False

    def gradient(self, parameter: torch.Tensor) -> None:
        """For `register_post_accumulate_grad_hook`: what stands in `.grad` now is a gradient."""
        self.add(parameter.grad, GRADIENTS)

    def _freed(self, key: int) -> None:
        size, kind = self._alive.pop(key)
        self.now[kind] -= size

    def _kind(self, tensor: torch.Tensor) -> str:
        rows = tensor.numel() // self._vocabulary
        wide = tensor.dim() >= 2 and tensor.shape[-1] == self._vocabulary and rows != 0
        return LOGITS if wide and rows <= self._tokens and tensor.is_floating_point() else ACTIVATIONS


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _tensors(result) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (list, tuple)):
        return [tensor for part in result for tensor in _tensors(part)]
    return []
