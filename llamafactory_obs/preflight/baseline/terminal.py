"""Four scores for a person."""

from ...probe.judge import LAYERS
from ...probe.show import View
from ...suite import Suite
from ...texts import text
from ..result import FAIL
from .compare import check_layers
from .conditions import judgeable


def show(record: dict, suite: Suite, view: View) -> str:
    """Print the scores of a record; returns the status of the check `layers`."""
    layers = check_layers(record["scores"], judgeable(suite), suite.name, "")
    view.say("")
    view.say(text("baseline.head", model=record["model"]["name"], suite=suite.name, probes=len(suite.probes)), "bold")
    for layer in LAYERS:
        one = record["scores"].get(layer, {"right": 0, "of": 0})
        share = f"{one['right'] / one['of']:.0%}" if one["of"] else "-"
        means = text(f"baseline.means.{layer}")
        view.say(text("baseline.layer", layer=layer, right=one["right"], of=one["of"], share=share, means=means))
    if layers.status == FAIL:
        view.say(f"  {layers.detail}", "bad")
    elif empty := [layer for layer in LAYERS if not record["scores"][layer]["of"]]:
        view.say(text("baseline.no_call", layers=", ".join(empty)), "dim")
    return layers.status
