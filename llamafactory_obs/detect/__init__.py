"""Streaming detectors over plain numbers: no torch, no numpy, no I/O, no clock and no random numbers.

The callbacks feed them live and `diagnose` feeds them from the run record, so both say the same. Their state is a
function of the values seen: replaying the earlier (step, value) pairs through `update` restores it.
"""

from .band import BandDetector
from .clip_rate import ClipRateDetector
from .desync import DesyncDetector
from .epoch_steps import EpochStepsDetector
from .eval_turn import EvalTurnDetector
from .finding import Action, Finding, Level
from .growth import GrowthDetector
from .idle_reason import Facts
from .loss_scale import LossScaleDetector
from .loss_shape import LossShapeDetector
from .loss_spike import LossSpikeDetector
from .low_gpu_util import LowGpuUtilDetector
from .low_room import LowRoomDetector
from .lr_anomaly import LrAnomalyDetector
from .lr_schedule import LrScheduleDetector
from .moments import MomentsDetector
from .moved_labels import MovedLabelsDetector
from .nonfinite import NonFiniteDetector
from .normaliser import NormaliserDetector
from .overfitting import OverfittingDetector
from .preference import PreferenceDetector
from .resume_gap import ResumeGapDetector
from .rl_signals import KlJumpDetector, RewardCollapseDetector
from .saves import SavesDetector
from .spike import SpikeDetector
from .stalled import StalledDetector
from .straggler import StragglerDetector
from .throttled import ThrottledDetector
from .throughput_drop import ThroughputDropDetector
from .zero_loss import ZeroLossDetector

__all__ = [
    "Action",
    "BandDetector",
    "ClipRateDetector",
    "DesyncDetector",
    "EpochStepsDetector",
    "EvalTurnDetector",
    "Facts",
    "Finding",
    "GrowthDetector",
    "KlJumpDetector",
    "Level",
    "LossScaleDetector",
    "LossShapeDetector",
    "LossSpikeDetector",
    "LowGpuUtilDetector",
    "LowRoomDetector",
    "LrAnomalyDetector",
    "LrScheduleDetector",
    "MomentsDetector",
    "MovedLabelsDetector",
    "NonFiniteDetector",
    "NormaliserDetector",
    "OverfittingDetector",
    "PreferenceDetector",
    "ResumeGapDetector",
    "RewardCollapseDetector",
    "SavesDetector",
    "SpikeDetector",
    "StalledDetector",
    "StragglerDetector",
    "ThrottledDetector",
    "ThroughputDropDetector",
    "ZeroLossDetector",
]
