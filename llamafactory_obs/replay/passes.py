"""A batch forward and backward, micro-batch by micro-batch, with the loss divided as the Trainer divides it.

transformers 5.6, `Trainer.get_batch_samples`, `training_step`, `compute_loss`: where the model's forward takes loss
arguments, the step's loss is the sum over all label tokens of all micro-batches and ranks, divided by their number
(`average_tokens_across_devices`, the default; else by each rank's own, and the mean over ranks). Where it does not
(LlamaFactory says so for models with a processor), it is the mean of the micro-batches' means.
"""

import inspect
import math
from dataclasses import dataclass, field

from ..callbacks.batch_shape import segments_of
from .collator import IGNORE
from .content import real_tokens
from .rebuilt import Batch, Sample
from .training_set import TrainingSet
from .weights import Loaded


@dataclass
class Passed:
    """What a batch gave.

    Attributes:
        loss: of the step, in nats, as the Trainer would report it.
        grad_norm: L2 norm of the gradient of all trainable parameters, before clipping.
        sums, counts: of each sample that ran, by its `id`: sum of its tokens' losses, and how many.
        inside: of a packed sample, the same two numbers of each conversation in it, in order.
        items: label tokens that the loss is divided by.
    """

    loss: float = 0.0
    grad_norm: float = math.nan
    sums: dict[int, float] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    inside: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    items: int = 0

    def mean(self, sample: Sample) -> float | None:
        """Mean loss of a sample's label tokens; None where it has none."""
        count = self.counts.get(id(sample), 0)
        return self.sums[id(sample)] / count if count else None

    def loss_without(self, left_out: list[Sample]) -> float | None:
        """Mean loss over the other samples' label tokens; None where no other has any."""
        gone = {id(sample) for sample in left_out}
        count = sum(number for one, number in self.counts.items() if one not in gone)
        return sum(value for one, value in self.sums.items() if one not in gone) / count if count else None


class Passes:
    """Runs batches on one set of weights.

    Args:
        collator: made with the model.
    """

    def __init__(self, loaded: Loaded, data: TrainingSet, collator):
        self._loaded, self._data, self._collator = loaded, data, collator
        self._parameters = [one for one in loaded.model.parameters() if one.requires_grad]
        self._by_items = data.processor is None and _takes_loss_arguments(loaded.model)
        self._across = getattr(data.arguments.training, "average_tokens_across_devices", True)

    @property
    def trainable(self) -> int:
        """Parameters that have a gradient."""
        return sum(one.numel() for one in self._parameters)

    def run(self, batch: Batch) -> Passed:
        """Forward and backward over all of it; its gradient stays in place for `grad_norm_without`."""
        self._clear()
        inputs = {
            (rank, number): self._collated(samples)
            for rank, batches in batch.ranks.items()
            for number, samples in enumerate(map(_running, batches))
            if samples
        }
        shares, passed = self._shares(inputs), Passed()
        for (rank, number), collated in inputs.items():
            share = shares[rank, number]
            losses, counted = self._losses(collated)
            (losses.sum() * share).backward()
            passed.loss += float(losses.detach().double().sum()) * share
            sums, counts = losses.detach().double().sum(-1).tolist(), counted.sum(-1).tolist()
            for sample, value, count in zip(_running(batch.ranks[rank][number]), sums, counts, strict=True):
                passed.sums[id(sample)], passed.counts[id(sample)] = value, count
            passed.items += _items(collated)
            passed.inside |= self._inside(_running(batch.ranks[rank][number]), collated, losses.detach(), counted)
            del losses, counted
        passed.grad_norm = self._norm()
        self._shares_of = shares
        return passed

    def grad_norm_without(self, sample: Sample, passed: Passed) -> float | None:
        """Take a sample's part out of the gradient in place, for good; the norm of what is left, as a mean again.

        None where nothing is left.
        """
        collated = self._collated([sample])
        left = passed.items - sum(self._taken) - _items(collated)
        self._taken.append(_items(collated))
        if left <= 0:
            return None
        losses, _ = self._losses(collated)
        (losses.sum() * -self._shares_of[sample.rank, sample.micro_batch]).backward()
        return self._norm() * passed.items / left

    def put_back(self, sample: Sample) -> None:
        """Undo the last `grad_norm_without`."""
        self._taken.pop()
        losses, _ = self._losses(self._collated([sample]))
        (losses.sum() * self._shares_of[sample.rank, sample.micro_batch]).backward()

    def _clear(self) -> None:
        self._taken: list[int] = []
        for parameter in self._parameters:
            parameter.grad = None

    def _collated(self, samples: list[Sample]) -> dict:
        """The micro-batch as the model got it: with the labels of the log where they were changed on the way."""
        import torch

        inputs = self._collator([dict(sample.row) for sample in samples])
        real = real_tokens(inputs, self._data.tokenizer.pad_token_id)
        for place, sample in enumerate(samples):
            if sample.changes_labels:
                inputs["labels"][place][real[place]] = torch.tensor(sample.labels, dtype=inputs["labels"].dtype)
        return {
            name: value.to(self._loaded.device) if isinstance(value, torch.Tensor) else value
            for name, value in inputs.items()
        }

    def _losses(self, inputs: dict):
        """Cross entropy of each token, [B, L-1] float32, 0 where there is no label; and which ones have a label."""
        import torch

        words = {name: value for name, value in inputs.items() if name != "labels"}
        dtype, device = self._loaded.autocast, self._loaded.device
        with torch.autocast(torch.device(device).type, dtype=dtype, enabled=dtype is not None):
            logits = self._loaded.model(**words).logits
        targets = inputs["labels"][:, 1:]
        losses = torch.nn.functional.cross_entropy(
            logits[:, :-1].float().flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="none"
        )
        return losses.view(targets.shape), targets != IGNORE

    def _inside(self, samples: list[Sample], inputs: dict, losses, counted) -> dict[int, list[tuple[float, int]]]:
        """Sum and number of each conversation's losses; none where their number is not that of the sources."""
        index = segments_of(inputs, self._data.tokenizer.pad_token_id).index
        if index is None:
            return {}
        sums = losses.new_zeros(index.shape).scatter_add_(1, index[:, 1:], losses)
        counts = counted.new_zeros(index.shape, dtype=index.dtype).scatter_add_(
            1, index[:, 1:], counted.to(index.dtype)
        )
        found = {}
        for place, sample in enumerate(samples):
            size = int(index[place].max()) + 1
            if size > 1 and size == len(sample.logged.sources or ()):
                found[id(sample)] = list(zip(sums[place, :size].tolist(), counts[place, :size].tolist(), strict=True))
        return found

    def _shares(self, inputs: dict[tuple[int, int], dict]) -> dict[tuple[int, int], float]:
        """What a micro-batch's summed loss is multiplied with in the loss of the step."""
        ranks = sorted({rank for rank, _ in inputs})
        items = {place: _items(collated) for place, collated in inputs.items()}
        if self._by_items and self._across:
            return dict.fromkeys(inputs, 1 / max(sum(items.values()), 1))
        of_rank = {rank: [place for place in inputs if place[0] == rank] for rank in ranks}
        if self._by_items:
            totals = {rank: max(sum(items[place] for place in of_rank[rank]), 1) for rank in ranks}
            return {place: 1 / totals[place[0]] / len(ranks) for place in inputs}
        predicted = {place: int((one["labels"][:, 1:] != IGNORE).sum()) for place, one in inputs.items()}
        return {place: 1 / max(predicted[place], 1) / len(of_rank[place[0]]) / len(ranks) for place in inputs}

    def _norm(self) -> float:
        import torch

        norms = [torch.linalg.vector_norm(one.grad.float()) for one in self._parameters if one.grad is not None]
        return float(torch.linalg.vector_norm(torch.stack([norm.double() for norm in norms]))) if norms else math.nan


def _running(samples: list[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.runs]


def _items(inputs: dict) -> int:
    """Labels as `num_items_in_batch` counts them: also one at the first position, which nothing predicts."""
    return int((inputs["labels"] != IGNORE).sum())


def _takes_loss_arguments(model) -> bool:
    """The Trainer's question to the model itself, below peft."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    if hasattr(base, "accepts_loss_kwargs"):
        return bool(base.accepts_loss_kwargs)
    return any(one.kind == inspect.Parameter.VAR_KEYWORD for one in inspect.signature(base.forward).parameters.values())
