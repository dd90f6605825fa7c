"""The norm of each weight before an update and of its change by it, computed once a step for all who ask."""

import torch

from .taps import norms_of


class WeightChange:
    """One update of some parameters.

    It needs a copy of them for the length of the update. Callbacks that look in the same step share it.

    Attributes:
        weights: shape [P], norm of each parameter before the update; of sharded parameters: of the whole.
        size: bytes of the copy on this rank.
    """

    def __init__(self, parameters: list[torch.nn.Parameter]):
        self._parameters = parameters
        self._place = {id(p): i for i, p in enumerate(parameters)}
        self._before: list[torch.Tensor] | None = None
        self._change: torch.Tensor | None = None
        with torch.no_grad():
            self.weights = norms_of([p.detach() for p in parameters])
        self.size = sum(local(p).numel() * p.element_size() for p in parameters)

    @classmethod
    def before_update(cls, run, parameters: list[torch.nn.Parameter], limit_mib: int) -> "WeightChange":
        """The one of the step that is being made; to be called before its update.

        Args:
            run: the Recorder.
            limit_mib: no copy, hence no change, above this size.
        """
        held = run.open_row.facts.get("weight_change")
        if held is None or any(id(p) not in held._place for p in parameters):
            held = run.open_row.facts["weight_change"] = cls(parameters)
        if held._before is None and held.size <= limit_mib << 20:
            with torch.no_grad():
                held._before = [p.detach().clone() for p in held._parameters]
        return held

    def places(self, parameters: list[torch.nn.Parameter]) -> list[int]:
        """Where these parameters stand in the norms."""
        return [self._place[id(p)] for p in parameters]

    def after_update(self) -> torch.Tensor | None:
        """Norm of each parameter's change, shape [P]; None where there was no copy. The copy is let go."""
        if self._change is None and self._before is not None:
            with torch.no_grad():
                for before, after in zip(self._before, self._parameters, strict=True):
                    before.sub_(after.detach())
                self._change = norms_of(self._before)
            self._before = None
        return self._change


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a DTensor; any other tensor as it is."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
