"""`SpikeDetector` (gradient norm) on very many rows, see `long`."""

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..detect import Finding, SpikeDetector

_EVERY = 8
_CHUNK = 65536


def norm_spikes(detector: SpikeDetector, table) -> list[tuple[int, Finding | None]]:
    """What the detector says of the norms in a `long.Table`, with the row of each.

    Within eight rows at most seven of the window's values are replaced, so its median stays above what is seven places
    under it now. A norm under `coupled_ratio` (or `ratio`) times that cannot be a spike.
    """
    norm, there = table.column("train/grad_norm")
    loss, has_loss = table.column("train/loss")
    with np.errstate(invalid="ignore"):
        rows = np.flatnonzero(there & np.isfinite(norm) & (norm > 0))
    y, steps, window = np.log(norm[rows]), table.steps[rows], detector.window
    losses = np.where(has_loss & np.isfinite(loss), loss, np.nan)[rows]
    least = math.log(min(detector.coupled_ratio, detector.ratio))
    found, at, plain_from = [], 0, window  # from `plain_from` on the detector's window is the last rows as they are

    def feed(i: int) -> None:
        value = None if math.isnan(losses[i]) else float(losses[i])
        if (finding := detector.update(int(steps[i]), float(norm[rows[i]]), value)) is not None:
            found.append((int(rows[i]), finding))

    while at < len(y):
        if detector.is_open or at < plain_from:
            feed(at)
            at += 1
            plain_from = at + window if detector.is_open else plain_from
            continue
        ahead = min(len(y), at + _CHUNK)
        begins = np.arange(at, ahead, _EVERY)
        low = window // 2 - _EVERY
        under = np.partition(sliding_window_view(y, window)[begins - window], low, axis=1)[:, low]
        suspects = np.flatnonzero(y[at:ahead] - np.repeat(under, _EVERY)[: ahead - at] >= least) + at
        for i in [*suspects.tolist(), ahead]:
            past = losses[max(at, i - 4 * window) : i]
            detector.skip(y[max(at, i - window) : i].tolist(), past[~np.isnan(past)].tolist(), i - at)
            at = i
            if i < ahead:
                feed(i)
                at = i + 1
                if detector.is_open:
                    break
    return found
