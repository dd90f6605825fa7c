"""What a running job can be asked to do, in one order; the words of the verb and the `order` of a command file."""

import math
from dataclasses import dataclass, fields

from ..errors import ConfigError
from ..plugin.names import did_you_mean

#: factor of one `lr_scale`: a choice, wide enough for any remedy and narrow enough to catch a slip of the keyboard
SMALLEST_SCALE, LARGEST_SCALE = 1e-4, 100.0
#: steps: no run is longer
MOST_STEPS = 10**9


@dataclass(frozen=True)
class Order:
    """All that is wanted at once: it is carried out at the end of one and the same step.

    Attributes:
        lr_scale: factor for the learning rate of every parameter group, of this and all later steps.
        logging_steps, save_steps, eval_steps: the new interval.
        max_steps: end after this step.
        eval, save, stop: once, at the end of the step.
    """

    lr_scale: float | None = None
    logging_steps: int | None = None
    save_steps: int | None = None
    eval_steps: int | None = None
    max_steps: int | None = None
    eval: bool = False
    save: bool = False
    stop: bool = False

    def given(self) -> dict:
        """What is asked for, by name, in the order in which it is carried out."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None and value is not False}

    def words(self) -> str:
        """As the verb's options: `--lr-scale 0.5 --save`."""
        return " ".join(option(name) + ("" if value is True else f" {value:g}") for name, value in self.given().items())


#: of these the last one holds until it is changed again, so that it can wait for the next start of training
LASTING = ("lr_scale", "logging_steps", "save_steps", "eval_steps", "max_steps")


def option(name: str) -> str:
    """`lr_scale` as the verb's option."""
    return "--" + name.replace("_", "-")


def parse(block: object) -> Order:
    """An order from what stands in a command file.

    Raises:
        ConfigError: no mapping, nothing asked for, an unknown name, or a value out of range.
    """
    if not isinstance(block, dict):
        raise ConfigError(f"an order must be a mapping such as {{save: true}}, got {_short(block)}")
    known = [field.name for field in fields(Order)]
    for name in block:
        if name not in known:
            raise ConfigError(
                f"unknown order {_short(name)}{did_you_mean(str(name), known)} (known: {', '.join(known)})"
            )
    order = Order(**{name: _checked(name, value) for name, value in block.items()})
    if not order.given():
        raise ConfigError(f"nothing is asked for; give at least one of {', '.join(option(name) for name in known)}")
    return order


def _checked(name: str, value: object):
    if name == "lr_scale":
        number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
        if not SMALLEST_SCALE <= number <= LARGEST_SCALE:
            limits = f"from {SMALLEST_SCALE:g} to {LARGEST_SCALE:g}"
            raise ConfigError(f"--lr-scale must be a factor {limits}, such as 0.5, got {_short(value)}")
        return float(number)
    if name.endswith("_steps"):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_STEPS:
            raise ConfigError(f"{option(name)} must be a whole number from 1 to {MOST_STEPS}, got {_short(value)}")
        return value
    if not isinstance(value, bool):
        raise ConfigError(f"{option(name)} must be true or false, got {_short(value)}")
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
