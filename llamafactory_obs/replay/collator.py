"""LlamaFactory's own collator of a stage, made as its workflow makes it (0.9.5, `train/*/workflow.py`)."""

from .training_set import TrainingSet

#: labels that the loss leaves out
IGNORE = -100


def collator_of(data: TrainingSet, model=None):
    """The function that makes a batch of rows.

    Args:
        model: images and videos get their positions from it; None where batches are only looked at.
    """
    from llamafactory.data import (
        KTODataCollatorWithPadding,
        PairwiseDataCollatorWithPadding,
        SFTDataCollatorWith4DAttentionMask,
    )
    from transformers import DataCollatorForLanguageModeling

    if data.stage == "pt":
        return DataCollatorForLanguageModeling(tokenizer=data.tokenizer, mlm=False)
    arguments = data.arguments
    pad_label = IGNORE if arguments.data.ignore_pad_token_for_loss else data.tokenizer.pad_token_id
    words = {
        "template": data.template,
        "model": model,
        "pad_to_multiple_of": 8,
        "tokenizer": data.tokenizer,
        "processor": data.processor,
    }
    if data.stage == "rm":
        return PairwiseDataCollatorWithPadding(**words)
    if data.stage in ("dpo", "kto"):
        kind = PairwiseDataCollatorWithPadding if data.stage == "dpo" else KTODataCollatorWithPadding
        return kind(label_pad_token_id=pad_label, **words)
    return SFTDataCollatorWith4DAttentionMask(
        label_pad_token_id=pad_label,
        block_diag_attn=arguments.model.block_diag_attn,
        neat_packing=arguments.data.neat_packing,
        attn_implementation=getattr(getattr(model, "config", None), "_attn_implementation", None),
        compute_dtype=_compute_dtype(arguments),
        **words,
    )


def _compute_dtype(arguments):
    """Float32 until the model is loaded: then LlamaFactory has put its own there."""
    import torch

    return arguments.model.compute_dtype or torch.float32
