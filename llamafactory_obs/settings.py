"""The optional `obs:` block of a LlamaFactory YAML: settings shared by all verbs and callbacks."""

from dataclasses import dataclass, fields

from .errors import ConfigError
from .plugin.names import did_you_mean


@dataclass(frozen=True)
class Settings:
    """What may stand under `obs:`."""

    mask_range: tuple[float, float] | None = None
    """Wanted share of real tokens in the loss, two fractions; None leaves it to the callback or gate."""

    @classmethod
    def parse(cls, block: object) -> "Settings":
        """Read the block as it stands in the config.

        Raises:
            ConfigError: not a mapping, an unknown key, or a value out of range.
        """
        if block is None:
            return cls()
        if not isinstance(block, dict):
            raise ConfigError(f"obs: must be a mapping such as {{mask_range: [0.2, 0.4]}}, got {block!r}")
        known = [field.name for field in fields(cls)]
        for key in block:
            if key not in known:
                raise ConfigError(
                    f"obs: unknown key {key!r}{did_you_mean(str(key), known)} (known: {', '.join(known)})"
                )
        return cls(mask_range=parse_range("obs: mask_range", block.get("mask_range")))


def parse_range(where: str, value: object) -> tuple[float, float] | None:
    """Two fractions `[low, high]` with 0 <= low < high <= 1, or None."""
    if value is None:
        return None
    numbers = list(value) if isinstance(value, (list, tuple)) else []
    if len(numbers) != 2 or not all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in numbers):
        raise ConfigError(f"{where} must be two fractions such as [0.2, 0.4], got {value!r}")
    low, high = float(numbers[0]), float(numbers[1])
    if not 0 <= low < high <= 1:
        raise ConfigError(f"{where} must be two fractions with 0 <= low < high <= 1, got {value!r}")
    return low, high
