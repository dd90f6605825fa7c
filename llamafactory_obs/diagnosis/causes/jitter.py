"""A loss that jumps about while it falls: too high a rate, or batches that differ too much."""

from ... import texts
from .evidence import FAIR, STRONG, WEAK, Case
from .ordinary import Ordinary, middle, short
from .place import Place
from .rate import against_the_size, lr_too_high, updates


def noisy_rate(place: Place) -> Case:
    """The rate, over the whole run: what a single place in it shows does not count here."""
    case = Case("lr_too_high", lr_too_high(place).next)
    against_the_size(place, case)
    updates(place, case, range(len(place.curves)))
    return case


def small_batches(place: Place) -> Case:
    """Few labels in a batch, and a loss that goes with what the batch holds.

    The standard error of a mean over n labels falls with the root of n; under about 1,000 labels the
    noise of a batch is that of a few conversations.
    """
    case = Case("small_batches", texts.text("causes.jitter.next"))
    labels = place.values("data/supervised_tokens", range(len(place.curves)))
    if not labels:
        case.lacks(texts.text("causes.jitter.lacks_labels"))
        return case
    usual = middle(labels)
    if usual < 1000:
        case.supports(FAIR, texts.text("causes.jitter.few", count=short(usual)))
    else:
        case.against(WEAK, texts.text("causes.jitter.usual", count=short(usual)))
    past = Ordinary.of(labels)
    if past is not None and past.spread > 0.5 * past.median:
        text = texts.text("causes.jitter.differ", low=short(min(labels)), high=short(max(labels)))
        case.supports(STRONG if past.spread > past.median else FAIR, text)
    return case
