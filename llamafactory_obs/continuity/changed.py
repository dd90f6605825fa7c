"""Which settings of a resume differ from the start before, of those that the course of training depends on."""

_OF_THE_DATA = (
    "dataset",
    "dataset_dir",
    "template",
    "cutoff_len",
    "max_samples",
    "mix_strategy",
    "interleave_probs",
    "packing",
    "neat_packing",
    "disable_shuffling",
    "streaming",
    "val_size",
    "group_by_length",
    "dataloader_drop_last",
    "ignore_data_skip",
    "train_on_prompt",
    "mask_history",
)
_OF_THE_STEP = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "world_size",
    "seed",
    "data_seed",
    "optim",
    "learning_rate",
    "lr_scheduler_type",
    "warmup_steps",
    "warmup_ratio",
    "max_steps",
    "num_train_epochs",
    "lora_dropout",
)
_WANTED = frozenset((*_OF_THE_DATA, *_OF_THE_STEP))


def changed_settings(run: dict, segment: int) -> list[dict]:
    """`{"key", "a", "b"}` for each of them, as the `segments` of `run.json` say; empty where they do not (yet).

    A setting as it was written goes before the same one as it was resolved.
    """
    segments = run.get("segments")
    mine = [one for one in segments or [] if isinstance(one, dict) and one.get("segment") == segment]
    changes = mine[-1].get("changed") if mine else None
    found: dict[str, dict] = {}
    for one in changes if isinstance(changes, list) else ():
        key = one.get("key") if isinstance(one, dict) else None
        name = str(key).rpartition(".")[2]
        if name in _WANTED and name not in found:
            found[name] = {"key": str(key), "a": one.get("a"), "b": one.get("b")}
    return list(found.values())
