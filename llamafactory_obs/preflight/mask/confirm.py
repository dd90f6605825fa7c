"""A person's word that another share is meant, bound to what it was given for.

It lies beside the run config, `RUN.confirmed.json`, so that it is reviewed and versioned with it.
"""

import hashlib
import json
import math
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError
from ...identity.data import SETTINGS, template_sha256
from ...identity.files import sha256_json

GATE = "mask"
#: how far a confirmed range reaches to both sides of the share
MARGIN = 0.05
_IRRELEVANT = {"overwrite_cache", "preprocessing_batch_size", "tokenized_path"}


@dataclass(frozen=True)
class Confirmation:
    """What was confirmed.

    Attributes:
        bound_to: hash of data, template and data settings.
        low, high: the confirmed share.
        accepted: names of checks that fail and are meant.
    """

    bound_to: str
    low: float
    high: float
    accepted: tuple[str, ...] = ()


def place(config: Path) -> Path:
    """The file beside a run config."""
    return config.with_name(f"{config.stem}.confirmed.json")


def around(share: float) -> tuple[float, float]:
    """The range that is confirmed for a share: two decimals, within 0..1."""
    return max(0.0, math.floor((share - MARGIN) * 100) / 100), min(1.0, math.ceil((share + MARGIN) * 100) / 100)


def read(config: Path) -> Confirmation | None:
    """What is confirmed for this config; None where nothing is.

    Raises:
        ConfigError: the file is not what `write` wrote.
    """
    path = place(config)
    if not path.exists():
        return None
    try:
        entry = json.loads(path.read_text(encoding="utf-8")).get(GATE)
        if entry is None:
            return None
        low, high = entry["range"]
        return Confirmation(str(entry["bound_to"]), float(low), float(high), tuple(entry["accepted"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not readable: {error}; delete it and confirm again") from None


def write(config: Path, confirmation: Confirmation, share: float | None) -> Path:
    """Write it beside the config, other gates' entries kept; returns the file."""
    path = place(config)
    try:
        whole = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not readable: {error}; delete it and confirm again") from None
    whole[GATE] = {
        "bound_to": confirmation.bound_to,
        "range": [confirmation.low, confirmation.high],
        "accepted": list(confirmation.accepted),
        "share": share,
        "time": int(time.time()),
    }
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(whole, indent=2, sort_keys=True) + "\n")
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    return path


def bound_to(collected, samples: int | None) -> str:
    """SHA-256 of what decides the mask: the rows' tokens (so the tokenizer too), the templates, the data settings.

    Args:
        collected: see `collect.Collected`.
        samples: as given; a confirmation over a sample is not one over all rows.
    """
    data = collected.arguments.data
    settings = {name: _plain(getattr(data, name, None)) for name in SETTINGS.split() if name not in _IRRELEVANT}
    digest = hashlib.sha256(sha256_json(settings).encode())
    digest.update(f"{collected.arguments.finetuning.stage}\0{samples}\0".encode())
    digest.update((template_sha256(data.template) or "").encode())
    digest.update(str(collected.original.chat_template).encode())
    for source in collected.sources:
        attributes = vars(source.attributes) if source.attributes is not None else {}
        digest.update(sha256_json({name: _plain(value) for name, value in attributes.items()}).encode())
        digest.update(source.name.encode() + b"\0")
    for split in collected.splits:
        for array in (split.dataset, split.row, split.figures):
            digest.update(array.astype("<i8").tobytes())
    return digest.hexdigest()


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
