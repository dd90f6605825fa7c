"""Names of runs that say what they changed: `lr2e-5`, `r32`, `no-packing`. Pure text."""

import re

LONGEST = 64
#: values shown at most
MOST = 5
#: key -> its short form; "" where the value says enough
SHORT = {
    "lora_rank": "r",
    "lora_alpha": "a",
    "learning_rate": "lr",
    "per_device_train_batch_size": "bs",
    "gradient_accumulation_steps": "ga",
    "num_train_epochs": "ep",
    "max_steps": "s",
    "warmup_ratio": "wu",
    "warmup_steps": "wu",
    "val_size": "val",
    "save_steps": "save",
    "cutoff_len": "c",
    "dataloader_num_workers": "workers",
    "stage": "",
    "finetuning_type": "",
    "model_name_or_path": "",
    "dataset": "",
    "template": "",
    "optim": "",
    "lr_scheduler_type": "",
    "quantization_bit": "q",
    "seed": "seed",
    "rows": "data-",
    "weights": "weights-",
    "code": "code-",
    "callbacks": "",
}
#: keys whose value is a hash: text, also where all its digits happen to be decimal
_HASHES = frozenset({"rows", "weights", "code"})


def changed_name(changes: dict[str, object]) -> str:
    """The values that changed as one name, in the order given: `lr2e-5_r32`.

    Returns:
        ASCII letters, digits, `.`, `-` and `_`, at most `MOST` values and `LONGEST` characters: safe as a folder's
        name. "" for no change. What does not fit is counted: `lr2e-5_r32_and-3`. The same changes give the same name.
    """
    parts = [text for key, value in changes.items() if (text := value_name(key, value))]
    for count in range(min(len(parts), MOST), 0, -1):
        left = len(parts) - count
        name = "_".join([*parts[:count], *([f"and-{left}"] if left else [])])
        if len(name) <= LONGEST:
            return name
    return parts[0][:LONGEST].rstrip("-._") if parts else ""


def value_name(key: str, value: object) -> str:
    """One value: `lr2e-5`, `packing`, `no-packing`, `cosine`; of a key without a short form its initials, `wd0.1`."""
    short = SHORT.get(key)
    if short is None:
        short = "".join(word[0] for word in key.split("_") if word)
    if value is None:
        return f"no-{short or slug(key)}"
    if isinstance(value, bool):
        return slug(key) if value else f"no-{slug(key)}"
    if isinstance(value, (list, tuple)):
        value = "-".join(map(str, value))
    if key == "model_name_or_path":
        value = str(value).replace("\\", "/").rstrip("/").rpartition("/")[2]
    said = str(value) if key in _HASHES else number_name(value)
    return slug(f"{short}{said}")[:24].strip("-.")


def number_name(value: object) -> str:
    """2e-5 for 0.00002, 3 for 3.0; a text that is a number likewise."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return value
    if not isinstance(value, (int, float)):
        return str(value)
    text = f"{value:g}" if abs(value) >= 0.01 or value == 0 else f"{value:e}"
    if "e" not in text:
        return text
    digits, exponent = text.split("e")
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{digits}e{int(exponent)}"


def slug(value: object) -> str:
    """Lower-case ASCII words joined by hyphens."""
    text = re.sub(r"[^a-z0-9.]+", "-", str(value).lower())
    return re.sub(r"\.{2,}", ".", re.sub(r"[.\-]*-[.\-]*", "-", text)).strip("-.")
