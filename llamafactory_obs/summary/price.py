"""What the machine costs by the run's own settings: `obs: {price: ...}`."""

from dataclasses import replace

from ..errors import ConfigError
from ..logs.curves import Curves
from ..settings import parse_price
from .identity_facts import pick
from .model import Price, RunSummary


def price_of(curves: Curves) -> Price | None:
    """The price in the config that the run used; None where there is none."""
    try:
        parsed = parse_price(pick(curves.run, "config", "given", "obs", "price"))
    except ConfigError:  # a record of somebody else's making
        return None
    return None if parsed is None else Price(*parsed, "obs: price")


def priced(summary: RunSummary, price: Price) -> RunSummary:
    """The summary with another price than the config's."""
    missing = {name: why for name, why in summary.missing.items() if name != "cost"}
    return replace(summary, price=price, missing=missing)
