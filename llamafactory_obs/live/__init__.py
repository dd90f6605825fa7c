"""Follows a run's record while it grows: cheap, incremental, into one snapshot. No torch.

from llamafactory_obs.live import Follower

follower = Follower("saves/run", price=2.5)
snapshot = follower.update()  # again and again; `snapshot.as_dict()` is JSON
"""

from .follower import CURVES, Follower
from .snapshot import Alert, Checkpoint, Event, Points, Probe, ProbeRound, Snapshot

__all__ = ["CURVES", "Alert", "Checkpoint", "Event", "Follower", "Points", "Probe", "ProbeRound", "Snapshot"]
