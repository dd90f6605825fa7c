"""Gradients that are not what the backward pass should bring."""

import torch
from transformers import TrainerCallback

from ..planted import Planted


class InfiniteGradient(TrainerCallback):
    """In one step one element of one weight's gradient is infinite, as a broken kernel would leave it.

    Args:
        at: the step, counted from 1.
        told: a file for what was done; None for none.
    """

    def __init__(self, at: int, told: str | None = None):
        self.at, self.planted = at, Planted(told)
        self._hook = None

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.at - 1:
            named = [(name, one) for name, one in model.named_parameters() if one.requires_grad and one.ndim > 1]
            name, parameter = named[len(named) // 2]

            def spoil(gradient):
                self.planted.tell(step=self.at, parameter=name)
                gradient = gradient.clone()
                gradient.view(-1)[0] = torch.inf
                return gradient

            self._hook = parameter.register_hook(spoil)

    def on_step_end(self, args, state, control, **kwargs):
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


class AdapterOff(TrainerCallback):
    """The adapter takes no part in the model: its layers are passed by, as if LoRA had been attached to nothing.

    Without an adapter, and between several processes (which wait for every gradient), all gradients are 0 instead: the
    weights that are trained have no part in the loss either.

    Args:
        at: not used: it is so from the first step on.
        told: a file for what was done; None for none.
    """

    def __init__(self, at: int = 1, told: str | None = None):
        self.planted = Planted(told)

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        layers = [one for one in model.modules() if hasattr(one, "_disable_adapters") and hasattr(one, "base_layer")]
        trained = [one for one in model.parameters() if one.requires_grad]
        by_passed = bool(layers) and args.world_size == 1
        if by_passed:
            for layer in layers:
                layer._disable_adapters = True
            model.enable_input_require_grads()  # as LlamaFactory does for checkpointing: else the loss has no graph
        else:
            for one in trained:
                one.register_hook(torch.zeros_like)
        self.planted.tell(step=1, layers=len(layers), weights=len(trained), by_passed=by_passed)
