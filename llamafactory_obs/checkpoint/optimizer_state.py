"""An optimizer's saved state: is there one for each parameter, finite, not wiped out, and of this step?"""

from ..texts import text
from .part import BROKEN, DOUBTFUL, GOOD, STALE, Expected
from .tensors import finite
from .torch_file import tensors_in

#: names under which optimizers keep a state of the parameter's own shape: torch's, LlamaFactory's Muon, bitsandbytes
_OF_FULL_SHAPE = ("exp_avg", "momentum_buffer", "moment1", "state1")


def judge_optimizer(found: object, name: str, expected: Expected) -> tuple[str, str]:
    """The state of the part and the reason.

    Args:
        found: what `torch.load` gave.
        name: the file's, for the reason.
    """
    state = found.get("state") if isinstance(found, dict) else None
    groups = found.get("param_groups") if isinstance(found, dict) else None
    whole = isinstance(groups, list) and all(isinstance(group, dict) for group in groups)
    if not isinstance(state, dict) or not whole:
        return BROKEN, text("checkpoint.optimizer.no_state", name=name)
    parameters = sum(len(group.get("params", ())) for group in groups)
    if not parameters:
        return BROKEN, text("checkpoint.optimizer.no_parameter", name=name)
    if not state and not all(group.get("momentum") == 0 and "dampening" in group for group in groups):  # plain SGD
        return BROKEN, text("checkpoint.optimizer.none", name=name, parameters=parameters)
    tensors = [(place, one) for place, one in tensors_in(state) if one.is_floating_point() and one.dim()]
    for place, tensor in tensors_in(state):
        if not finite(tensor):
            return BROKEN, text("checkpoint.optimizer.not_finite", name=name, place=place)
    if tensors and not any(bool(tensor.any()) for _, tensor in tensors):
        return BROKEN, text("checkpoint.optimizer.zeros", name=name, tensors=len(tensors))
    if state and len(state) < parameters:
        lacking = parameters - len(state)
        return DOUBTFUL, text("checkpoint.optimizer.lacking", name=name, lacking=lacking, parameters=parameters)
    elements = _elements(state)
    if expected.trainable and elements is not None and elements != expected.trainable:
        return BROKEN, text("checkpoint.optimizer.for_run", name=name, elements=elements, trainable=expected.trainable)
    if elements is not None and not (expected.least or 0) <= elements <= (expected.most or elements):
        return BROKEN, text("checkpoint.optimizer.for_weights", name=name, elements=elements, most=expected.most)
    steps = [float(one["step"]) for one in state.values() if isinstance(one, dict) and "step" in one]
    if steps and not expected.fp16 and not expected.own_steps and max(steps) != expected.step:
        return STALE, text("checkpoint.optimizer.steps", name=name, steps=max(steps), step=expected.step)
    return GOOD, ""


def _elements(state: dict) -> int | None:
    """Elements of all parameters that the states belong to; None where a state does not have its parameter's shape."""
    sizes = []
    for one in state.values():
        kept = [one[key] for key in _OF_FULL_SHAPE if key in one] if isinstance(one, dict) else []
        if not kept or not hasattr(kept[0], "numel"):
            return None
        sizes.append(kept[0].numel())
    return sum(sizes) or None
