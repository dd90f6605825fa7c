"""Streaming detectors over plain numbers: no torch, no numpy, no I/O, no clock and no random numbers.

The callbacks feed them live and `diagnose` feeds them from the run record, so both say the same. Their state is a
function of the values seen: replaying the earlier (step, value) pairs through `update` restores it.
"""

from .band import BandDetector
from .clip_rate import ClipRateDetector
from .desync import DesyncDetector
from .finding import Action, Finding, Level
from .growth import GrowthDetector
from .idle_reason import Facts
from .loss_scale import LossScaleDetector
from .low_gpu_util import LowGpuUtilDetector
from .low_room import LowRoomDetector
from .lr_schedule import LrScheduleDetector
from .moments import MomentsDetector
from .moved_labels import MovedLabelsDetector
from .nonfinite import NonFiniteDetector
from .normaliser import NormaliserDetector
from .overfitting import OverfittingDetector
from .spike import SpikeDetector
from .stalled import StalledDetector
from .straggler import StragglerDetector
from .throttled import ThrottledDetector

__all__ = [
    "Action",
    "BandDetector",
    "ClipRateDetector",
    "DesyncDetector",
    "Facts",
    "Finding",
    "GrowthDetector",
    "Level",
    "LossScaleDetector",
    "LowGpuUtilDetector",
    "LowRoomDetector",
    "LrScheduleDetector",
    "MomentsDetector",
    "MovedLabelsDetector",
    "NonFiniteDetector",
    "NormaliserDetector",
    "OverfittingDetector",
    "SpikeDetector",
    "StalledDetector",
    "StragglerDetector",
    "ThrottledDetector",
]
