"""Many verdicts in a few numbers."""

from collections import Counter
from collections.abc import Mapping

from .judge import LAYERS, Verdict


def scores(verdicts: Mapping[str, Verdict]) -> dict:
    """Counts what is right, layer by layer.

    Args:
        verdicts: name of the probe -> its verdict.

    Returns:
        {"format": {"right": n, "of": m}, "tool_choice": ..., "arguments": ..., "task": ..., "errors": {class: probes}},
        always in this order; `of` counts the probes to which the layer applies, `errors` has the most frequent first.
    """
    result: dict = {}
    for layer in LAYERS:
        applies = [verdict.layers[layer] for verdict in verdicts.values() if verdict.layers[layer] is not None]
        result[layer] = {"right": sum(applies), "of": len(applies)}
    counted = Counter(error for verdict in verdicts.values() for error in verdict.errors)
    result["errors"] = dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))
    return result
