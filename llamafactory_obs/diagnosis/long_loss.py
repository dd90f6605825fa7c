"""`LossSpikeDetector` on very many rows, see `long`."""

from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..detect import Finding, LossSpikeDetector

_SIGMA = 1.4826 / np.sqrt(2)
_FIRST, _MOST = 2048, 65536  # rows looked at in bulk; doubled while nothing happens


def loss_spikes(detector: LossSpikeDetector, table) -> list[tuple[int, Finding | None]]:
    """What the detector says of the losses in a `long.Table`, with the row of each."""
    loss, there = table.column("train/loss")
    with np.errstate(invalid="ignore"):
        rows = np.flatnonzero(there & np.isfinite(loss) & (loss > 0))
    y, steps = np.log(loss[rows]), table.steps[rows]
    found, at, chunk = [], 0, _FIRST
    while at < len(y):
        quiet = 0
        if detector.is_open:
            quiet = _stays_up(detector, y[at : at + chunk], steps[at:])
        elif detector.accepted % detector.RENEW_NOISE == 0 and len(detector.off) == detector.NOISE:
            quiet = _ordinary(detector, y[at : at + chunk], steps[at:])
        at += quiet
        chunk = min(2 * chunk, _MOST) if quiet >= chunk else _FIRST
        for row in _until_ready(detector, at, len(y)):
            finding = detector.update(int(steps[row]), float(loss[rows[row]]))
            at = row + 1
            if finding is not None:
                found.append((int(rows[row]), finding))
    return found


def _until_ready(detector: LossSpikeDetector, at: int, stop: int) -> Iterator[int]:
    """Rows to feed one by one: at least one, until rows can be taken in bulk again."""
    for row in range(at, stop):
        yield row
        full = len(detector.off) == detector.NOISE
        if detector.is_open and detector.told != "spike":
            return
        if not detector.is_open and full and detector.accepted % detector.RENEW_NOISE == 0:
            return


def _stays_up(detector: LossSpikeDetector, y: np.ndarray, steps: np.ndarray) -> int:
    """Takes rows of an excursion that has been told, up to where it comes back; returns how many."""
    if detector.told == "spike" or len(y) < detector.patience:
        return 0
    back = y - detector.level <= detector.back_below
    calm = back[:-2] & back[1:-1] & back[2:]
    calm[:2] |= back[:2] if detector.calm else False  # the rows before may count
    first = int(np.argmax(calm)) if calm.any() else len(y)
    taken = max(0, first - 3)
    if taken < 3:
        return 0
    part = y[:taken]
    detector.rows = [*detector.rows, *part.tolist()][-detector.patience :]
    detector.last_five.extend(part[-5:].tolist())
    detector.count += taken
    detector.peak = max(detector.peak, float(part.max()))
    up = np.flatnonzero(~back[:taken])
    detector.up += len(up)
    if len(up):
        detector.last_up = int(steps[up[-1]])
        detector.calm = taken - 1 - int(up[-1])
    else:
        detector.calm += taken
    return taken


def _middle(rows: np.ndarray) -> np.ndarray:
    """Median of each row; numpy's own also looks for NaN, which takes as long again."""
    half = rows.shape[1] // 2
    if rows.shape[1] % 2:
        return np.partition(rows, half, axis=1)[:, half]
    two = np.partition(rows, (half - 1, half), axis=1)
    return (two[:, half - 1] + two[:, half]) / 2


def _ordinary(detector: LossSpikeDetector, y: np.ndarray, steps: np.ndarray) -> int:
    """Takes rows up to the first that opens an episode; returns how many."""
    noise_every, level_every = detector.RENEW_NOISE, detector.RENEW
    past = np.array(detector.values)
    n = len(y)
    all_values = np.concatenate([past, y])
    first = len(past)
    blocks = -(-n // noise_every)
    # noise of block b: from the values before its first row
    ends = first + noise_every * np.arange(blocks)
    moves = sliding_window_view(np.diff(all_values), detector.NOISE)[ends - 1 - detector.NOISE]
    center = _middle(moves)[:, None]
    noise = np.maximum(_SIGMA * _middle(np.abs(moves - center)), 0.03)
    # level of block b
    ends = first + level_every * np.arange(-(-n // level_every))
    long = _middle(sliding_window_view(all_values, detector.LEVEL)[ends - detector.LEVEL])
    off = np.concatenate([np.array(detector.off), y - np.repeat(long, level_every)[:n]])
    far = sliding_window_view(off, detector.NOISE)[noise_every * np.arange(blocks)]
    spread = np.maximum(noise, np.minimum(2 * noise, 1.4826 * _middle(np.abs(far - _middle(far)[:, None]))))
    noise[0], spread[0] = detector.noise, detector.spread  # what it holds now
    per_row, spread = (np.repeat(values, noise_every)[:n] for values in (noise, spread))
    short = _middle(sliding_window_view(all_values, 8)[ends - 8])
    at_block = np.repeat(noise, noise_every // level_every)[: len(ends)]
    levels = np.minimum(long, short + 0.5 * at_block)
    levels[0] = detector.level
    level = np.repeat(levels, level_every)[:n]
    above = y - level
    # reach of block b: the largest `above` of the last 128 rows
    history = np.concatenate([np.full(detector.NOISE - len(detector.above), -np.inf), np.array(detector.above), above])
    pad = (-len(history)) % noise_every
    tops = np.concatenate([history, np.full(pad, -np.inf)]).reshape(-1, noise_every).max(axis=1)
    windows = sliding_window_view(tops, detector.NOISE // noise_every)
    reach = np.repeat(windows.max(axis=1)[:blocks], noise_every)[:n]
    reach[:noise_every] = detector.reach
    sums = detector.cusum + np.cumsum(np.minimum(above / spread, 4.0) - 0.75)
    cusum = sums - np.minimum(np.minimum.accumulate(sums), 0.0)
    rise = np.exp(y) - np.exp(level)
    least = np.maximum(np.maximum(np.log(1.5), 6 * per_row), 1.5 * reach)
    fast = (rise > detector.floor) & (above > least)
    opens = fast.copy()
    high = np.flatnonzero(cusum >= 8.0 - 1e-9)
    if len(high):
        five = np.concatenate([past[-4:], y])
        middle = _middle(sliding_window_view(five, 5)[high]) - level[high]
        lift = np.exp(level[high] + middle) - np.exp(level[high])
        opens[high] |= (middle > np.log(1.15)) & (lift > detector.floor)
        opens[high] |= middle > np.maximum(np.log(2.0), 5 * per_row[high])
    taken = int(np.argmax(opens)) if opens.any() else n
    taken -= taken % noise_every if taken == n else 0  # end where all three are renewed
    if taken == 0:
        return 0
    part = y[:taken]
    detector.values.extend(part[-detector.NOISE - 1 :].tolist())
    detector.above.extend(above[max(0, taken - detector.NOISE) : taken].tolist())
    detector.off.extend(off[len(detector.off) + max(0, taken - detector.NOISE) : len(detector.off) + taken].tolist())
    detector.last_five.extend(part[-5:].tolist())
    detector.accepted += taken
    detector.cusum = float(cusum[taken - 1])
    zero = np.flatnonzero(cusum[:taken] <= 0.0)
    if detector.cusum <= 0.0:
        detector.cusum, detector.rises_from = 0.0, None
    elif len(zero):
        detector.rises_from = int(steps[zero[-1] + 1])
    elif detector.rises_from is None:
        detector.rises_from = int(steps[0])
    last = taken - 1
    detector.middle = float(long[last // level_every])
    detector.noise, detector.spread = float(per_row[last]), float(spread[last])
    detector.level, detector.reach, detector.fast = float(level[last]), float(reach[last]), float(least[last])
    if taken % level_every == 0:
        detector.renew(noise=taken % noise_every == 0)
    return taken
