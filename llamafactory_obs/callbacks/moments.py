"""What an optimizer remembers: the health of its first and second moments, per parameter group, on the device.

Adam's step is lr * m' / (sqrt(v') + eps) with m' = m / (1 - beta1^t), v' = v / (1 - beta2^t) (Kingma and Ba 2015,
algorithm 1). The quotient without lr is small where gradients disagree, near 1 where they agree, and has the bound
(1 - beta1) / sqrt(1 - beta2), 3.2 by default, which a value meets that has seen its first gradient after a long time.
Where sqrt(v') < eps the division no longer normalises: eps rules the step.
"""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from .taps import norms_of
from .weight_change import local

#: names of the first and the second moment: torch's and most others', LlamaFactory's Muon, bitsandbytes
_PAIRS = (("exp_avg", "exp_avg_sq"), ("moment1", "moment2"), ("state1", "state2"))
_FIRST = ("exp_avg", "moment1", "state1", "momentum_buffer")
#: second moments that belong to rows and columns (Adafactor), or to no first one
_OTHER = ("exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col")
#: values looked at in one go: the temporaries stay within a CPU's cache, or within 16 MiB of a device's memory
_CHUNK_CPU, _CHUNK_DEVICE = 1 << 16, 1 << 20


@dataclass
class Moments:
    """The moments of all parameter groups at one step, still on the device.

    Attributes:
        norms: shape [M], the norm of each first moment; None where there is none.
        members: the parameter group of each of them.
        counts: int64, shape [G, 3]: values that are not finite or, of a second moment, negative; values with
            sqrt(v') < eps; values of second moments that have the parameter's own shape.
        largest: float32, shape [G]: largest |m'| / (sqrt(v') + eps); -1 in a group without such a pair.
        quantised: tensors that are kept in 8 bits and are not looked at.
    """

    norms: torch.Tensor | None
    members: list[int]
    counts: torch.Tensor
    largest: torch.Tensor
    quantised: int = 0


@dataclass
class _Group:
    bad: list = field(default_factory=list)
    tiny: list = field(default_factory=list)
    largest: list = field(default_factory=list)
    values: int = 0


@torch.no_grad()
def moments_of(groups: list[dict], state) -> Moments | None:
    """Look at every moment; nothing is changed and nothing waits for the device. With sharded parameters two
    collectives, which all ranks join.

    Args:
        groups: the optimizer's `param_groups`.
        state: its `state`: parameter -> its mapping.

    Returns:
        None where the optimizer keeps no tensors that are known as moments (plain SGD).
    """
    found = [_Group() for _ in groups]
    firsts, members, quantised, sharded, device = [], [], 0, False, None
    for number, group in enumerate(groups):
        for parameter in group["params"]:
            mine = state.get(parameter) or {}
            known = {k: t for k, t in mine.items() if k in {*_FIRST, *_OTHER, "moment2", "state2"} and _is_tensor(t)}
            quantised += sum(not t.is_floating_point() for t in known.values())
            known = {k: t for k, t in known.items() if t.is_floating_point()}
            for tensor in known.values():
                sharded, device = sharded or tensor is not local(tensor), tensor.device
            for name in _FIRST:
                if name in known:
                    firsts.append(known[name])
                    members.append(number)
            pair = next((p for p in _PAIRS if all(name in known for name in p)), ())
            if pair:
                _look_at_pair(found[number], known[pair[0]], known[pair[1]], group, mine.get("step", group.get("step")))
            for name in known.keys() - set(pair):
                _look_at_one(found[number], known[name], squared=name in (*_OTHER, "moment2"))
    if device is None:
        return (
            Moments(None, [], torch.zeros(len(groups), 3), torch.zeros(len(groups)), quantised) if quantised else None
        )
    counts = torch.stack([_row(group, device) for group in found])
    largest = torch.stack([_most(group.largest, device) for group in found])
    if sharded:
        dist.all_reduce(counts)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
    return Moments(norms_of(firsts) if firsts else None, members, counts, largest, quantised)


def first_moments(state) -> list[torch.Tensor]:
    """All first moments that an optimizer holds, this rank's part of them."""
    known = (mine.get(name) for mine in state.values() if isinstance(mine, dict) for name in _FIRST)
    return [local(tensor) for tensor in known if _is_tensor(tensor)]


def _is_tensor(value) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and value.numel() > 0


def _look_at_pair(found: _Group, first: torch.Tensor, second: torch.Tensor, group: dict, step) -> None:
    beta1, beta2 = group.get("betas") or group.get("adamw_betas") or (0.0, 0.0)
    eps = group.get("eps", group.get("adamw_eps", 1e-8))
    eps = eps if isinstance(eps, float) else 1e-8
    step = _number(step)
    left1, left2 = (1.0, 1.0) if step is None else (1 - beta1**step, 1 - beta2**step)
    root2 = left2**0.5
    first, second = local(first).reshape(-1), local(second).reshape(-1)
    found.values += second.numel()
    for m, v in _chunks(first, second):
        root = v.float().sqrt().div_(root2)  # negative: NaN
        found.tiny.append((root < eps).sum())
        quotient = m.float().abs().div_(root + eps).div_(left1)
        found.largest.append(quotient.amax())
        found.bad.append((~quotient.add_(root).isfinite()).sum())


def _look_at_one(found: _Group, tensor: torch.Tensor, squared: bool) -> None:
    for (chunk,) in _chunks(local(tensor).reshape(-1)):
        found.bad.append((~(chunk.sqrt() if squared else chunk).isfinite()).sum())


def _chunks(*tensors: torch.Tensor):
    size = _CHUNK_CPU if tensors[0].device.type == "cpu" else _CHUNK_DEVICE
    return zip(*(tensor.split(size) for tensor in tensors), strict=True)


def _number(step):
    """A counter as it is of use here: on the host as a number, on a device as the tensor; None where unknown or 0."""
    if isinstance(step, torch.Tensor):
        return step if step.device.type != "cpu" else step.item() or None
    return step or None


def _row(group: _Group, device) -> torch.Tensor:
    values = torch.full((), group.values, dtype=torch.int64, device=device)  # a fill, no copy from the host
    return torch.stack([_sum(group.bad, device), _sum(group.tiny, device), values])


def _sum(counts: list[torch.Tensor], device) -> torch.Tensor:
    if not counts:
        return torch.zeros((), dtype=torch.int64, device=device)
    return torch.stack([count.to(device) for count in counts]).sum()


def _most(numbers: list[torch.Tensor], device) -> torch.Tensor:
    if not numbers:
        return torch.full((), -1.0, device=device)
    return torch.stack([number.to(device) for number in numbers]).amax()
