"""Numbers that are NaN or infinite, and a loss of 0: what made them so."""

import math

from .batch import about_columns
from .evidence import DECISIVE, FAIR, STRONG, WEAK, Case
from .ordinary import short
from .place import Place

_FIRST_ROWS = 3


def all_labels_masked(place: Place) -> Case:
    """No token had a label: the loss is 0/0, or 0."""
    case = Case("all_labels_masked", "llamafactory-obs mask RUN.yaml: which tokens are in the loss.")
    tokens, masked = place.at("data/supervised_tokens"), place.at("data/fully_masked")
    samples = place.at("data/samples")
    if tokens is None:
        case.lacks("`label_mask` (tokens with a label in each batch)")
    elif tokens == 0:
        case.supports(DECISIVE, f"No token of step {place.step} had a label.")
    else:
        case.against(STRONG, f"{tokens:.0f} tokens of step {place.step} had a label.")
        if masked and samples and masked >= 0.5 * samples:
            case.supports(FAIR, f"{masked:.0f} of {samples:.0f} conversations had none.")
    return case


def broken_weights(place: Place) -> Case:
    """Weights that were not finite before this run changed them, or that the update made so."""
    case = Case(
        "broken_weights", f"llamafactory-obs checkpoint {place.dir}: which checkpoint is sound; load it in bf16."
    )
    named = place.finding.evidence.get("nonfinite_weights") or _named(place, "nonfinite_weights")
    if named:
        case.supports(STRONG, f"Weights that are not finite: {', '.join(map(str, named[:3]))}.")
    if place.row <= 1:
        case.supports(FAIR, "It was so from the first step on, before any update could do it.")
    elif place.row > _FIRST_ROWS:
        case.against(FAIR, f"The numbers were finite for {place.row} rows: the weights were sound at the start.")
    if place.events("broken moments", before=50, after=1):
        case.supports(FAIR, "The optimizer's moments were broken before.")
    return case


def bad_gradient(place: Place) -> Case:
    """One layer's backward pass gave the first number that was not finite: attention backend, kernel, custom loss."""
    case = Case("attention_or_kernel", "flash_attn: sdpa, and enable_liger_kernel: false; run the step again.")
    named = place.finding.evidence.get("nonfinite_gradients") or _named(place, "nonfinite_gradients")
    count = place.finding.evidence.get("gradient_count") or 0
    if named and count and len(named) < count:
        text = f"The first gradients that were not finite: {', '.join(map(str, named[:3]))} ({len(named)} of {count})."
        case.supports(STRONG, text)
    losses = place.near("train/loss", 1, 0)
    if losses and math.isfinite(losses[-1]) and losses[-1] != 0:
        case.supports(WEAK, f"The loss of the step was finite ({short(losses[-1])}): it came in the backward pass.")
    settings = place.curves.settings
    if settings.get("neat_packing") is True:
        case.supports(FAIR, "neat_packing is on: it needs an attention backend that knows block masks.")
    if not named:
        case.lacks("`grad_norm_spike` (names the first gradient that is not finite)")
    return case


def bad_batch(place: Place) -> Case:
    """NaN that came in with the data of one batch."""
    case = Case("special_batch", f"llamafactory-obs replay {place.dir} --step {place.step}")
    about_columns(place, case)
    moved = place.at("data/labels_moved")
    if moved:
        case.supports(DECISIVE, f"{moved:.0f} labels of step {place.step} are not the token at their own position.")
    if place.at("data/max_length") is None:
        case.lacks("`label_mask` (lengths and share of labels of each batch)")
    return case


def grew_until(place: Place, case: Case) -> Case:
    """Adds to a rate that is too high: loss or norm had been growing before the first NaN."""
    for name, words in (("train/loss", "loss"), ("train/grad_norm", "gradient norm")):
        values = place.values(name, range(max(place.row - 40, 0), place.row))
        if len(values) < 8:
            continue
        low, last = min(values), sorted(values[-3:])[1]
        if last >= 2 * low and last - low > 0.5:
            case.supports(STRONG, f"The {words} had grown from {short(low)} to {short(last)} before.")
        else:
            case.against(
                FAIR, f"The {words} did not grow before it: {short(low)} to {short(last)} over {len(values)} rows."
            )
        return case
    return case


def memorised(place: Place) -> Case:
    """A loss of 0 that is honest: everything is known by heart, and the log rounds."""
    case = Case("memorised", "Stop here, or train on more rows; take the checkpoint with the lowest eval loss.")
    values = place.values("train/loss", range(max(place.row - 20, 0), place.row))
    above = [value for value in values if value > 0]
    if above and above[-1] < 0.02:
        case.supports(STRONG, f"The loss had come down to {short(above[-1])} before it read 0.")
    elif above:
        case.against(STRONG, f"The loss was {short(above[-1])} just before it read 0: nobody learns that fast.")
    norms = place.values("train/grad_norm", range(place.row, min(place.row + 5, len(place.curves))))
    if norms and max(norms) > 0:
        case.supports(WEAK, f"The gradient norm is finite and above 0 ({short(max(norms))}).")
    return case


def filtered_nan(place: Place) -> Case:
    """A loss of 0 that stands for NaN: `logging_nan_inf_filter` replaces it."""
    case = Case(
        "nan_behind_zero", "Stop; resume from the last checkpoint with finite weights; logging_nan_inf_filter: false."
    )
    norms = [place.at("train/grad_norm", row) for row in range(place.row, min(place.row + 5, len(place.curves)))]
    known = [value for value in norms if value is not None]
    if any(not math.isfinite(value) for value in known):
        case.supports(DECISIVE, "The gradient norm is not finite on the rows that read 0.")
    elif known:
        case.against(STRONG, "The gradient norm is finite on the rows that read 0.")
    else:
        case.lacks("the gradient norm (trainer_log.jsonl has none; trainer_state.json and our record do)")
    before = place.values("train/loss", range(max(place.row - 5, 0), place.row))
    if before and before[-1] > 0.1:
        case.supports(STRONG, f"The loss read {short(before[-1])} on the row before and exactly 0 from then on.")
    return case


def _named(place: Place, key: str) -> list:
    for event in place.curves.events:
        named = (event.get("evidence") or {}).get(key)
        if named and abs(event.get("step", -9) - place.step) <= 3:
            return named
    return []
