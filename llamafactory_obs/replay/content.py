"""The real tokens of a collated batch, and of a row of the training set before it is collated."""

from ..callbacks.batch_shape import segments_of


def real_tokens(inputs: dict, pad_token_id: int | None):
    """bool [B, L]: where a collated batch has text, as the callbacks see it."""
    return segments_of(inputs, pad_token_id).real


def row_ids(row: dict, name: str = "input_ids") -> list[int]:
    """The real ids of a row of a tokenized data set; a packed row ends in padding, which its position ids tell."""
    import torch

    ids = row[name]
    if not row.get("position_ids"):
        return ids
    batch = {key: torch.tensor([row[key]]) for key in ("input_ids", "attention_mask", "position_ids") if row.get(key)}
    return batch["input_ids"][0][segments_of(batch, None).real[0]].tolist()
