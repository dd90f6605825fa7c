"""Four scores for a person."""

from ...probe.judge import LAYERS
from ...probe.show import View
from ...suite import Suite
from ..result import FAIL
from .compare import check_layers
from .conditions import judgeable

_MEANS = {
    "format": "calls that were tried are well-formed",
    "tool_choice": "the right tools were called, or none",
    "arguments": "with the right arguments",
    "task": "all is right, the answer too",
}


def show(record: dict, suite: Suite, view: View) -> str:
    """Print the scores of a record; returns the status of the check `layers`."""
    layers = check_layers(record["scores"], judgeable(suite), suite.name, "")
    view.say("")
    view.say(f"baseline of {record['model']['name']} on {suite.name} ({len(suite.probes)} probes)", "bold")
    for layer in LAYERS:
        one = record["scores"].get(layer, {"right": 0, "of": 0})
        share = f"{one['right'] / one['of']:.0%}" if one["of"] else "-"
        view.say(f"  {layer:<12} {one['right']:>3} of {one['of']:<3} {share:>5}   {_MEANS[layer]}")
    if layers.status == FAIL:
        view.say(f"  {layers.detail}", "bad")
    elif empty := [layer for layer in LAYERS if not record["scores"][layer]["of"]]:
        view.say(f"  the untuned model tried no call: {', '.join(empty)} could not be judged", "dim")
    return layers.status
