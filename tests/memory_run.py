"""A real LlamaFactory run whose tensors are measured: weights, gradients, states, what is saved, and the peak."""

from dataclasses import dataclass, field

import torch
from transformers import TrainerCallback


def storages(tensors) -> int:
    """Bytes of the distinct storages behind these tensors."""
    found = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t is not None}
    return sum(found.values())


@dataclass
class Measured(TrainerCallback):
    """Measures step 2 of a run; all numbers in bytes.

    Attributes:
        weights, trained, gradients, states: storages of all parameters, trained ones, `.grad`, optimizer states.
        saved: distinct storages that autograd saved in the forward pass, parameters excluded.
        peak: the CPU allocator's highest level between the start of the step and the optimizer, from its start.
        length: tokens of the row.
    """

    weights: int = 0
    trained: int = 0
    gradients: int = 0
    states: int = 0
    saved: int = 0
    peak: int = 0
    length: int = 0
    rows: int = 0
    _profile: object = field(default=None, repr=False)

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        parameters = list(model.parameters())
        self.weights = storages(parameters)
        self.trained = storages(p for p in parameters if p.requires_grad)
        known = {p.untyped_storage().data_ptr() for p in parameters}
        known |= {b.untyped_storage().data_ptr() for b in model.buffers()}
        forward = model.forward

        def measured(*words, **batch):
            kept = []

            def pack(tensor):
                kept.append(tensor)
                return tensor

            self.rows, self.length = batch["input_ids"].shape
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                result = forward(*words, **batch)
            self.saved = storages(t for t in kept if t.untyped_storage().data_ptr() not in known)
            return result

        model.forward = measured

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 1:
            self._profile = torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
            )
            self._profile.start()

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if state.global_step == 1:
            self._profile.stop()
            level = 0
            for event in self._profile.profiler.kineto_results.events():
                if event.name() == "[memory]":
                    level += event.nbytes()
                    self.peak = max(self.peak, level)
            self.gradients = storages(p.grad for p in model.parameters())

    def on_optimizer_step(self, args, state, control, optimizer=None, **kwargs):
        states = optimizer.state.values()
        self.states = storages(v for one in states for v in one.values() if torch.is_tensor(v) and v.numel() > 1)


def train_measured(config: dict) -> Measured:
    """Run LlamaFactory in this process on this config."""
    from llamafactory.train.tuner import run_exp

    found = Measured()
    run_exp(dict(config), callbacks=[found])
    return found
