"""How many loader processes could pay: a pipeline runs as fast as its slowest stage.

One process makes a step's batches in `load_s`, so `w` of them deliver `w / load_s` steps a second (Little's law). The
model takes `1 / step_s`. Loading is hidden behind the model when w / load_s >= 1 / step_s. Without workers the stages
take turns: load_s + step_s.
"""

import math

#: loading that takes less than this share of the model's time is not worth a process
CHEAP = 0.01
#: more are not proposed: each holds a copy of what the data set's code makes, and `prefetch_factor` batches
MOST = 16


def needed(load_s: float, step_s: float) -> int:
    """Workers that hide loading behind the model, were there a core for each.

    Args:
        load_s: seconds for the batches of one optimizer step in one process.
        step_s: seconds of the model for them.
    """
    if step_s <= 0:
        return MOST
    return 0 if load_s < CHEAP * step_s else math.ceil(load_s / step_s)


def room(cores: float, cpu_share: float) -> int:
    """Workers that these cores can keep busy.

    Args:
        cores: that the training itself leaves over.
        cpu_share: of a worker's time in which it computes rather than waits (for a disk, a network).
    """
    return max(1, min(MOST, math.floor(max(cores, 1.0) / max(cpu_share, 0.01))))


def candidates(current: int, wanted: int, most: int) -> list[int]:
    """Numbers of workers worth a measurement beside the current one, the most promising first."""
    best = min(wanted, most)
    found = [best]
    if best > 1:
        found.append(max(1, best // 2))
    return [number for number in found if number != current]
