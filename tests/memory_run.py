"""A real LlamaFactory run on the CPU whose tensors are measured, and a config and data for it."""

import gc
import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import TrainerCallback


def storages(tensors) -> int:
    """Bytes of the distinct storages behind these tensors."""
    found = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t is not None}
    return sum(found.values())


@dataclass
class Measured(TrainerCallback):
    """Measures the first two steps of a run; all numbers in bytes.

    Attributes:
        weights, trained, gradients, states: storages of all parameters, trained ones, `.grad`, optimizer states.
        saved: distinct storages that autograd saved in the forward pass of step 1, parameters excluded. The hooks that
            see them keep them alive for longer, so step 2 runs without them.
        peak: the CPU allocator's highest level in forward and backward of step 2, from its start, less the random
            states that checkpointing copies for each layer: they are in RAM, whatever card trains.
        length, rows: of the batch.
    """

    weights: int = 0
    trained: int = 0
    gradients: int = 0
    states: int = 0
    saved: int = 0
    peak: int = 0
    length: int = 0
    rows: int = 0
    _checkpointed: int = 0
    _profile: object = field(default=None, repr=False)

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        parameters = list(model.parameters())
        self.weights = storages(parameters)
        self.trained = storages(p for p in parameters if p.requires_grad)
        known = {p.untyped_storage().data_ptr() for p in parameters}
        known |= {b.untyped_storage().data_ptr() for b in model.buffers()}
        self._checkpointed = sum(bool(getattr(m, "gradient_checkpointing", False)) for m in model.modules()) - 1
        forward = model.forward

        def measured(*words, **batch):
            self.rows, self.length = batch["input_ids"].shape
            if self.saved:
                return forward(*words, **batch)
            kept = []

            def pack(tensor):
                kept.append(tensor)
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                result = forward(*words, **batch)
            self.saved = storages(t for t in kept if t.untyped_storage().data_ptr() not in known)
            return result

        model.forward = measured

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 1:
            gc.collect()
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
            self.peak -= max(0, self._checkpointed) * torch.get_rng_state().nbytes
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


def measured_config(folder: Path, model: Path | str, length: int, **keys) -> dict:
    """Two steps of two rows: one fills `length`, one is short, so that the batch is padded."""
    rows = [{"instruction": "go on", "input": "", "output": "one two three " * n} for n in (length, 1) * 4]
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json"}}))
    given = {"model_name_or_path": str(model), "template": "default", "stage": "sft", "do_train": True}
    given |= {"dataset": "rows", "dataset_dir": str(folder), "cutoff_len": length, "output_dir": str(folder / "out")}
    given |= {"per_device_train_batch_size": 2, "max_steps": 2, "logging_steps": 1, "save_strategy": "no"}
    given |= {"report_to": "none", "bf16": True, "use_cpu": True, "disable_tqdm": True, "disable_shuffling": True}
    return given | keys
