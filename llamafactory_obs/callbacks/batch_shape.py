"""Where the real tokens of a batch are and which conversation each belongs to, packed or not, without a host sync."""

from dataclasses import dataclass

import torch


@dataclass
class Segments:
    """The layout of one batch of shape [B, L].

    Attributes:
        real: bool [B, L], True at real tokens.
        index: int64 [B, L], which conversation within its row a token belongs to (0 when nothing is packed).
        slots: upper bound of conversations per row.
        note: what a reader should know of how padding was found; empty where the attention mask says it.
    """

    real: torch.Tensor
    index: torch.Tensor | None
    slots: int
    note: str = ""

    def per_sample(self, flags: torch.Tensor) -> torch.Tensor:
        """Count True per conversation; int64, shape [B * slots], unused slots are 0."""
        if self.index is None:
            return flags.sum(-1)
        rows = torch.arange(flags.shape[0], device=flags.device).unsqueeze(1) * self.slots
        counts = torch.zeros(flags.shape[0] * self.slots, dtype=torch.int64, device=flags.device)
        return counts.scatter_add_(0, (rows + self.index).flatten(), flags.flatten().to(torch.int64))


def segments_for(run, inputs, pad_token_id: int | None) -> Segments:
    """`segments_of` the micro-batch that is being looked at, worked out once for all callbacks that ask.

    Args:
        run: the recorder.
    """
    if "segments" not in run.of_batch:
        run.of_batch["segments"] = segments_of(inputs, pad_token_id)
    return run.of_batch["segments"]


def segments_of(inputs, pad_token_id: int | None) -> Segments:
    """Read the layout from what the collator left in the batch.

    * attention mask [B, L]: 0 is padding.
    * attention mask [B, 1, L, L] (`neat_packing` without flash attention): two neighbours belong together when the
      later one may attend to the earlier one; a token that may not attend to itself is padding.
    * no mask: position ids; they restart at 0 with each conversation (flash attention with `neat_packing`).
    * plain `packing`: the mask covers the padding as well; position ids tell conversations and padding (all 0) apart.
    * neither: the pad token.
    """
    ids = inputs["input_ids"]
    mask = inputs.get("attention_mask")
    positions = _positions(inputs, ids)
    if mask is not None and mask.dim() == 4:
        allowed = mask if mask.dtype == torch.bool else mask == 0
        real = allowed[:, 0].diagonal(dim1=1, dim2=2)
        joined = torch.zeros_like(real)
        joined[:, 1:] = allowed[:, 0].diagonal(offset=-1, dim1=1, dim2=2)
        return _numbered(real, ~joined)
    if positions is not None:
        follows = torch.zeros_like(positions, dtype=torch.bool)
        follows[:, 1:] = positions[:, 1:] == positions[:, :-1] + 1
        continues = torch.zeros_like(follows)
        continues[:, :-1] = follows[:, 1:]
        real = follows | continues  # padding stays at 0: it neither follows nor is followed
        if mask is not None and mask.dim() == 2:
            real = real & (mask != 0)
        return _numbered(real, positions == 0)
    if mask is not None and mask.dim() == 2:
        return Segments(mask != 0, None, 1)
    if pad_token_id is not None:
        note = f"batches have no attention mask: tokens equal to the pad token ({pad_token_id}) count as padding"
        return Segments(ids != pad_token_id, None, 1, note)
    return Segments(
        torch.ones_like(ids, dtype=torch.bool), None, 1, "batches have no mask and no pad token: all is text"
    )


def _positions(inputs, ids: torch.Tensor) -> torch.Tensor | None:
    """Position ids of shape [B, L], filled up with 0 where only the ids were padded; None where there are none."""
    positions = inputs.get("position_ids")
    if not isinstance(positions, torch.Tensor) or positions.dim() != 2:
        return None  # those of images and videos have several axes and do not count one by one
    if positions.shape[0] != ids.shape[0] or positions.shape[1] > ids.shape[1]:
        return None
    return torch.nn.functional.pad(positions, (0, ids.shape[1] - positions.shape[1]))


def _numbered(real: torch.Tensor, starts: torch.Tensor) -> Segments:
    index = ((starts & real).cumsum(-1) - 1).clamp(min=0)
    return Segments(real, torch.where(real, index, torch.zeros_like(index)), real.shape[1])
