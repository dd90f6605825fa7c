"""`obs: {control: {...}}` in a run's YAML."""

from dataclasses import dataclass, fields
from typing import Literal, get_args

from ..errors import ConfigError
from ..plugin.names import did_you_mean
from .order import SMALLEST_SCALE

Mode = Literal["off", "scale_lr", "stop"]


@dataclass(frozen=True)
class ControlOptions:
    """How a run may be commanded, and whether it helps itself."""

    listen: bool = True
    """Take commands of `llamafactory-obs control`."""

    auto: Mode = "off"
    """What the run does by itself on a spike, a divergence or NaN that is worth a kill."""

    lr_scale: float = 0.5
    """Factor of `auto: scale_lr`."""

    max_times: int = 2
    """`auto: scale_lr` is done so often in a run, not more."""

    cooldown_steps: int = 50
    """Steps between two of them."""


def parse_control(block: object) -> ControlOptions:
    """Read the block as it stands under `obs:`.

    Raises:
        ConfigError: not a mapping, an unknown key, or a value out of range.
    """
    if block is None:
        return ControlOptions()
    if not isinstance(block, dict):
        raise ConfigError(f"obs: control must be a mapping such as {{auto: scale_lr}}, got {block!r}")
    known = [field.name for field in fields(ControlOptions)]
    for key in block:
        if key not in known:
            hint = f"{did_you_mean(str(key), known)} (known: {', '.join(known)})"
            raise ConfigError(f"obs: control: unknown key {key!r}{hint}")
    values = dict(block)
    if values.get("auto", "off") is False:  # YAML 1.1 reads `off` as false
        values["auto"] = "off"
    options = ControlOptions(**values)
    if options.auto not in get_args(Mode):
        _refuse("auto", " or ".join(get_args(Mode)), options.auto)
    if not isinstance(options.listen, bool):
        _refuse("listen", "true or false", options.listen)
    scale = options.lr_scale
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not SMALLEST_SCALE <= scale < 1:
        _refuse("lr_scale", f"a factor from {SMALLEST_SCALE:g} to below 1", scale)
    for name, least in (("max_times", 1), ("cooldown_steps", 0)):
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            _refuse(name, f"a whole number of at least {least}", value)
    return options


def _refuse(name: str, wanted: str, value: object):
    raise ConfigError(f"obs: control: {name} must be {wanted}, got {value!r}")
