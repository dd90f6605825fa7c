"""All ranks carry out the same order at the end of the same step: rank 0 says what, all the others hear it in time.

One number a step goes from rank 0 to the others, on a gloo group of its own: the size of what there is to say, nearly
always 0. It is sent before the update and awaited after it, so nobody waits for it; only an order itself, which is
rare, is waited for. (The exchange of rows cannot carry it: a row may come two steps late.)
"""

import json
from datetime import timedelta

import torch
import torch.distributed as dist


class Agreement:
    """All ranks must make it, and call `offer` and `settle` in each step.

    Args:
        timeout: seconds that the training's own collectives wait for a slow rank.
    """

    def __init__(self, timeout: float):
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        self._size = torch.zeros(1, dtype=torch.int64)
        self._text = b""
        self._work = None

    def offer(self, content: list | dict | None) -> None:
        """Send what rank 0 has to say on its way; the others give None."""
        self._text = json.dumps(content).encode() if content else b""
        self._size[0] = len(self._text)
        self._work = self._group.broadcast(self._size, 0)  # half the cost of dist.broadcast

    @property
    def offered(self) -> bool:
        return self._work is not None

    def settle(self) -> list | dict | None:
        """What rank 0 has offered; None for nothing."""
        self._work.wait()
        self._work = None
        size = int(self._size[0])
        if not size:
            return None
        text = torch.frombuffer(bytearray(self._text or bytes(size)), dtype=torch.uint8)
        dist.broadcast(text, src=0, group=self._group)
        return json.loads(bytes(text.tolist()))
