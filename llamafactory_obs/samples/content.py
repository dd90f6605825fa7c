"""What a sequence of tokens is, whatever row it came from: digests of its real ids and labels."""

import hashlib

import numpy as np

#: labels that cross entropy leaves out (LlamaFactory's IGNORE_INDEX)
IGNORE = -100
#: how far labels may be shifted against their tokens to be recognised
_FARTHEST = 16
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def digest(numbers: np.ndarray) -> str:
    """First 16 hex digits of BLAKE2b over whole numbers as 64-bit little-endian."""
    return hashlib.blake2b(np.ascontiguousarray(numbers, dtype="<i8").data).hexdigest()[:16]


def keys(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each sequence, for looking it up: many sequences at once, outside Python's lock.

    Multilinear: the sum over positions of a mixed value times an odd number of its position, modulo 2^64, mixed with
    the length. Two different sequences agree by chance once in about 2^63.

    Args:
        values: the sequences put together, whole numbers, shape [sum of lengths].
        lengths: shape [N].

    Returns:
        uint64, shape [N].
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    ends = np.cumsum(lengths)
    positions = (np.arange(len(values), dtype=np.int64) - np.repeat(ends - lengths, lengths)).astype(np.uint64)
    terms = _mixed(np.asarray(values).astype(np.int64).view(np.uint64))
    terms *= _mixed(positions + _GOLDEN) | np.uint64(1)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    return _mixed(sums[ends] - sums[ends - lengths] + _mixed(lengths.astype(np.uint64)))


def joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """One key of two, in their order: of a pair of answers."""
    return _mixed(first * np.uint64(3) + second)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014), a bijection of 64-bit numbers."""
    mixed = numbers + _GOLDEN
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def shift_of(ids: np.ndarray, labels: np.ndarray) -> int | None:
    """By how much labels are shifted: k where the label at i is the token at i + k; None where no k fits.

    Asked over real tokens. It fits when at least 90 % of the labels that have a partner agree, and there are labels
    enough (half of them, and two) that have one.
    """
    at = np.flatnonzero(labels != IGNORE)
    best, share = None, 0.9
    for k in sorted(range(-_FARTHEST, _FARTHEST + 1), key=abs):
        inside = at[(at + k >= 0) & (at + k < len(ids))]
        if len(inside) < max(2, len(at) / 2):
            continue
        agree = float(np.mean(labels[inside] == ids[inside + k]))
        if agree >= share and (best is None or agree > share):
            best, share = k, agree
    return best
