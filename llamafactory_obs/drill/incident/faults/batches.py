"""Faults that come with the data: the batches of one step, as they leave the data loader."""

import functools
from collections.abc import Iterator

import torch
from transformers import TrainerCallback

from ....callbacks.base import find_trainer
from ..planted import Planted

_IGNORED = -100
#: the address space that ordinary steps get beside what the process holds, bytes; and for how many steps it is tried
HEADROOM, TRIED_STEPS = 1 << 30, 5
#: how much more than there is the long sample asks for
_BEYOND = 1.2


class SpoilBatches(TrainerCallback):
    """Changes the batches of one optimizer step before anybody counts or sees them.

    Args:
        at: the step, counted from 1.
        told: a file for what was done; None for none.
    """

    def __init__(self, at: int, told: str | None = None):
        self.at, self.planted = at, Planted(told)

    def on_train_begin(self, args, state, control, **kwargs):
        trainer = find_trainer(self)
        original = trainer.get_batch_samples

        @functools.wraps(original)
        def get_batch_samples(epoch_iterator, *words, **more):
            if trainer.state.global_step == self.at - 1:
                epoch_iterator = self._spoiled(epoch_iterator, trainer)
            return original(epoch_iterator, *words, **more)

        trainer.get_batch_samples = get_batch_samples

    def _spoiled(self, batches: Iterator[dict], trainer) -> Iterator[dict]:
        for batch in batches:
            yield self.spoil(batch, trainer)

    def spoil(self, batch: dict, trainer) -> dict:
        """The batch as it is handed on."""
        raise NotImplementedError


class ShiftLabels(SpoilBatches):
    """In one step every label stands one position too late: a collator that shifts what the model shifts as well."""

    def spoil(self, batch: dict, trainer) -> dict:
        labels = batch["labels"]
        shifted = torch.full_like(labels, _IGNORED)
        shifted[:, 1:] = labels[:, :-1]
        mask = batch.get("attention_mask")
        if mask is not None and mask.shape == labels.shape:
            shifted[mask == 0] = _IGNORED
        self.planted.tell(step=self.at, labels=int((shifted != _IGNORED).sum()))
        return type(batch)({**batch, "labels": shifted})


class OverLongSample(SpoilBatches):
    """One sample that no `cutoff_len` has cut: its text again and again, until the model cannot hold it.

    On CUDA it is so long that the inputs of the layers alone are more than the card. On a CPU the kernel would promise
    any amount and then kill somebody. So the process gets a limit of its own (RLIMIT_AS): what it holds `TRIED_STEPS`
    steps before, and `HEADROOM`. The ordinary steps up to `at` are made under it; the sample's embeddings alone are
    more, and torch's allocator is refused.
    """

    def on_step_begin(self, args, state, control, **kwargs):
        if args.device.type == "cpu" and state.global_step == max(self.at - 1 - TRIED_STEPS, 0):
            import resource

            with open("/proc/self/statm", encoding="ascii") as file:
                held = int(file.read().split()[0]) * resource.getpagesize()
            self._limit = held + HEADROOM
            resource.setrlimit(resource.RLIMIT_AS, (self._limit, resource.getrlimit(resource.RLIMIT_AS)[1]))

    def spoil(self, batch: dict, trainer) -> dict:
        if self.planted.was_told:  # one of the step's micro-batches is enough
            return batch
        ids = batch["input_ids"]
        embedding = trainer.model.get_input_embeddings().weight
        width = embedding.shape[-1] * embedding.element_size()
        cuda = ids.device.type == "cuda" or trainer.args.device.type == "cuda"
        if cuda:
            room = torch.cuda.get_device_properties(trainer.args.device).total_memory
            width *= _layers(trainer.model)
        else:
            room = HEADROOM
        length = int(_BEYOND * room / width / len(ids)) + 1
        self.planted.tell(
            step=self.at, tokens=length, rows=len(ids), ordinary=ids.shape[-1], room_gib=room / 2**30, card=cuda,
            limit_gib=None if cuda else self._limit / 2**30,
        )  # fmt: skip
        return type(batch)(_repeated(batch, ids.shape, length))


def _repeated(batch: dict, shape: torch.Size, length: int) -> dict:
    """Everything that has one value for each token, again and again; the first row is as long, the others end."""
    found = {}
    for name, value in batch.items():
        if name == "position_ids":
            continue  # the model counts itself
        if isinstance(value, torch.Tensor) and value.shape == shape:
            times = -(-length // shape[-1])
            value = value.repeat(1, times)[:, :length]
            if name == "attention_mask":
                value[0], value[1:, shape[-1] :] = 1, 0
            elif name == "labels":
                value[1:, shape[-1] :] = _IGNORED
        elif name == "attention_mask":
            continue  # of packed rows, one for each pair of tokens
        found[name] = value
    return found


def _layers(model) -> int:
    config = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return max(1, int(getattr(text, "num_hidden_layers", 1)))
