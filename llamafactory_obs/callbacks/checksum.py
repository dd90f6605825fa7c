"""A checksum of weights that is the same number on every machine when the weights are the same bits."""

import torch

#: what a float64 holds exactly
_BITS = (1 << 53) - 1


def checksum(parameters: list[torch.nn.Parameter]) -> torch.Tensor:
    """Sum of the weights' bytes, read as 64-bit integers, each parameter times its own odd number; modulo 2^53.

    Integer sums do not depend on their order, so equal bits give equal numbers on any device. One pass over the
    weights, no copy of them, no host sync.

    Returns:
        A 0-d int64 tensor on the first parameter's device.
    """
    total = torch.zeros((), dtype=torch.int64, device=parameters[0].device)
    for index, parameter in enumerate(parameters):
        total += (_sum(parameter) * (2 * index + 1)).to(total.device)
    return total & _BITS


def _sum(parameter: torch.Tensor) -> torch.Tensor:
    flat = parameter.detach().reshape(-1).view(torch.uint8)
    if flat.storage_offset() % 8:
        flat = flat.clone()  # a view into a shared buffer, not aligned
    whole = flat.numel() // 8 * 8
    return flat[:whole].view(torch.int64).sum() + flat[whole:].sum(dtype=torch.int64)
