"""The text of a sample in pieces: what is in the loss, what is not, and labels that are not their token."""

from dataclasses import dataclass

from .collator import IGNORE
from .rebuilt import Sample


@dataclass(frozen=True)
class Stretch:
    """Neighbouring tokens with the same fate.

    Attributes:
        text: of the tokens.
        in_loss: they have labels.
        taught: text of the labels, where these are not the tokens.
    """

    text: str
    in_loss: bool
    taught: str = ""


@dataclass(frozen=True)
class Shown:
    """One sample to be shown; of a pair its chosen answer."""

    sample: Sample
    stretches: list[Stretch]


def shown(sample: Sample, tokenizer) -> Shown:
    """The sample's text as it is run; of a row that changed the text that it has now."""

    def fate(place: int) -> tuple[bool, bool]:
        label = sample.labels[place]
        return label != IGNORE, label not in (IGNORE, sample.ids[place])

    stretches, start = [], 0
    while start < len(sample.ids):
        stop = start + 1
        while stop < len(sample.ids) and fate(stop) == fate(start):
            stop += 1
        in_loss, altered = fate(start)
        taught = tokenizer.decode(sample.labels[start:stop], skip_special_tokens=False) if altered else ""
        text = tokenizer.decode(sample.ids[start:stop], skip_special_tokens=False)
        stretches.append(Stretch(text, in_loss, taught))
        start = stop
    return Shown(sample, stretches)
