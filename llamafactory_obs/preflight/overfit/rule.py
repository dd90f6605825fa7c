"""When a batch counts as learned."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Rule:
    """Loss under a tenth of the first.

    A loss is the mean of -ln p over the label tokens, so 0.05 means p of 0.95 for each: such a batch is known before
    the training, and that it can be learned is not shown by it. Below 0.01 (p of 0.99) it is known by heart, and no
    tenth is asked for.
    """

    share: ClassVar[float] = 0.1
    known_below: ClassVar[float] = 0.05
    by_heart: ClassVar[float] = 0.01

    @classmethod
    def target(cls, first: float) -> float:
        """The loss to come under."""
        return max(cls.share * first, cls.by_heart)

    @classmethod
    def known(cls, first: float) -> bool:
        """Whether the batch was known before."""
        return first < cls.known_below

    @classmethod
    def learned(cls, first: float, loss: float) -> bool:
        """Whether it was learned; a loss of nan is neither."""
        return not cls.known(first) and loss < cls.target(first)
