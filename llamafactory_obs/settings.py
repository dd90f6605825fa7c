"""The optional `obs:` block of a LlamaFactory YAML: settings shared by all verbs and callbacks."""

from dataclasses import dataclass, field, fields
from pathlib import Path

from .alerts.options import AlertOptions, parse_alerts
from .control.options import ControlOptions, parse_control
from .errors import ConfigError
from .plugin.names import did_you_mean

#: the common card, and what should stay free of it: a choice
LIMIT_GIB, MARGIN_GIB = 24.0, 1.0


@dataclass(frozen=True)
class Settings:
    """What may stand under `obs:`."""

    mask_range: tuple[float, float] | None = None
    """Wanted share of real tokens in the loss, two fractions; None leaves it to the callback or gate."""

    limit_gib: float | None = None
    """The card's size, or what this run may use of it; None: the `vram` callback's, or the card's own, or 24."""

    margin_gib: float | None = None
    """What must stay free of it at the peak; None: the `vram` callback's, or 1."""

    suite: Path | None = None
    """The suite that the baseline is measured with; None: the three fixed probes."""

    baseline: Path | None = None
    """The recorded baseline, or a table filled in by hand; None: `RUN.baseline.json` beside the config."""

    smoke: Path | None = None
    """The output folder of the smoke run; None: `<output_dir>-smoke`."""

    tracker_project: str | None = None
    """The tracker's project (`obs: {tracker: {project: NAME}}`), set before the tracker starts."""

    price: tuple[float, str] | None = None
    """What the whole machine costs per hour, and the currency (`price: 12.5`, `{per_hour: 12.5, currency: CNY}`)."""

    alerts: AlertOptions = field(default_factory=AlertOptions)
    """When alerts are told, to whom, and which ones stop the run, see `docs/alerts.md`."""

    control: ControlOptions = field(default_factory=ControlOptions)
    """Commands to the run, and what it does by itself, see `docs/control.md`."""

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
        known = [field.name for field in fields(cls) if field.name != "tracker_project"] + ["tracker"]
        for key in block:
            if key not in known:
                raise ConfigError(
                    f"obs: unknown key {key!r}{did_you_mean(str(key), known)} (known: {', '.join(known)})"
                )
        return cls(
            mask_range=parse_range("obs: mask_range", block.get("mask_range")),
            **{name: _gib(name, block.get(name)) for name in ("limit_gib", "margin_gib")},
            **{name: _path(name, block.get(name)) for name in ("suite", "baseline", "smoke")},
            price=parse_price(block.get("price")),
            tracker_project=_project(block.get("tracker")),
            alerts=parse_alerts(block.get("alerts")),
            control=parse_control(block.get("control")),
        )


def first_given(*values: float | None) -> float:
    """The first value that is not None."""
    return next(value for value in values if value is not None)


def _gib(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
        raise ConfigError(f"obs: {name} must be a number of GiB above 0, such as 24, got {value!r}")
    return float(value)


def _path(name: str, value: object) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"obs: {name} must be a path, got {value!r}")
    return Path(value).expanduser()


def _project(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, dict) or set(value) - {"project"}:
        raise ConfigError(f"obs: tracker must be a mapping such as {{project: agents}}, got {value!r}")
    project = value.get("project")
    if not isinstance(project, str) or not project.strip():
        raise ConfigError(f"obs: tracker: project must be a name, got {project!r}")
    return project


def parse_price(value: object) -> tuple[float, str] | None:
    """`price: 12.5` or `price: {per_hour: 12.5, currency: CNY}`: (per hour, currency), the currency "" where not given.

    Raises:
        ConfigError: no number of 0 or above, an unknown key, or a currency that is no short word.
    """
    given = value if isinstance(value, dict) else {"per_hour": value}
    per_hour, currency = given.get("per_hour"), given.get("currency", "")
    if value is None:
        return None
    number = isinstance(per_hour, (int, float)) and not isinstance(per_hour, bool) and 0 <= per_hour < 1e9
    word = isinstance(currency, str) and len(currency) <= 8 and currency.isprintable()
    if not number or not word or set(given) - {"per_hour", "currency"}:
        raise ConfigError(f"obs: price must be 12.5 (per hour) or {{per_hour: 12.5, currency: CNY}}, got {value!r}")
    return float(per_hour), currency


def parse_price_words(per_hour: float | None, currency: str = "") -> None:
    """Check `--price` and `--currency`, by the rule of `parse_price`.

    Raises:
        ConfigError: they are no price.
    """
    if currency and per_hour is None:
        raise ConfigError("--currency belongs to --price")
    try:
        parse_price(None if per_hour is None else {"per_hour": per_hour, "currency": currency})
    except ConfigError:
        raise ConfigError(
            "--price must be a number from 0 to below 1e9, for one hour, --currency a word of at most 8 characters; "
            f"got {per_hour:g}{f' {currency!r}' if currency else ''}"
        ) from None


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
