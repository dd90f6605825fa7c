"""Streaming detectors over plain numbers: no torch, no numpy, no I/O, no clock and no random numbers.

The callbacks feed them live and `diagnose` feeds them from the run record, so both say the same. Their state is a
function of the values seen: replaying the earlier (step, value) pairs through `update` restores it.
"""

from .band import BandDetector
from .finding import Action, Finding, Level
from .growth import GrowthDetector
from .nonfinite import NonFiniteDetector
from .spike import SpikeDetector
from .stalled import StalledDetector

__all__ = [
    "Action",
    "BandDetector",
    "Finding",
    "GrowthDetector",
    "Level",
    "NonFiniteDetector",
    "SpikeDetector",
    "StalledDetector",
]
