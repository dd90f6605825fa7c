"""Device values on their way to the host, without the host or the device ever waiting for the other."""

import torch


class HostCopy:
    """A copy of some tensors to host memory.

    On CUDA the copy goes to pinned memory on the current stream and an event marks its end; `ready` asks, `wait`
    blocks. On CPU the values are there at once. Other accelerators have no portable asynchronous copy: there the
    tensors are kept and read when asked for, at the earliest one step later.
    """

    def __init__(self, tensors: list[torch.Tensor]):
        self._event = None
        self._host = [tensor.detach() for tensor in tensors]
        self._on_host = all(tensor.device.type == "cpu" for tensor in self._host)
        if not self._on_host and all(tensor.is_cuda or tensor.device.type == "cpu" for tensor in self._host):
            self._host = [_to_pinned(tensor) for tensor in self._host]
            self._event = torch.cuda.Event()
            self._event.record()

    def ready(self) -> bool:
        """Have the values arrived?"""
        return self._event.query() if self._event is not None else self._on_host

    def wait(self) -> None:
        """Block until they have."""
        if self._event is not None:
            self._event.synchronize()

    def values(self) -> list:
        """The values as numbers or nested lists, one item per tensor."""
        return [tensor.tolist() for tensor in self._host]


def _to_pinned(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_cuda:
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
