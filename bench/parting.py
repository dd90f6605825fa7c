"""How often `compare` calls healthy curves apart, and how soon it finds a change: `python bench/parting.py [PAIRS]`.

Synthetic curves: ln(loss) of an exponential fall plus noise of a known kind, 8.5 % in the difference of two runs. The
numbers in docs/compare.md are of 300 pairs a row.
"""

import math
import random
import sys
from statistics import median

from llamafactory_obs.detect.parting import part

SIGMA = 0.06


def noise(draw: random.Random, rows: int, kind: str) -> list[float]:
    """ln(loss) around its level."""
    if kind == "heavy":  # Student's t, 3 degrees of freedom
        return [
            SIGMA / math.sqrt(3) * draw.gauss(0, 1) / math.sqrt(draw.gammavariate(1.5, 1 / 1.5)) for _ in range(rows)
        ]
    phi = {"white": 0.0, "alike 0.5": 0.5, "alike 0.9": 0.9, "alike 0.97": 0.97}[kind]
    value, out = 0.0, []
    for _ in range(rows):
        value = phi * value + draw.gauss(0, SIGMA * math.sqrt(1 - phi * phi))
        out.append(value)
    return out


def curve(draw: random.Random, rows: int, kind: str) -> list[float]:
    return [(1 + math.exp(-6 * i / rows)) * math.exp(e) for i, e in enumerate(noise(draw, rows, kind))]


def main(pairs: int) -> None:
    draw = random.Random(0)
    print("| noise | rows | pairs | parted | apart for a while |\n|---|---|---|---|---|")
    for kind in ("white", "alike 0.5", "alike 0.9", "alike 0.97", "heavy"):
        for rows in (40, 400, 2000):
            kinds = [part(curve(draw, rows, kind), curve(draw, rows, kind)).kind for _ in range(pairs)]
            print(
                f"| {kind} | {rows} | {pairs} | {kinds.count('parted')} | {kinds.count('apart_for_a_while')} |",
                flush=True,
            )
    print("\n| change | found | sure after, rows (median, worst) | start off by (median) |\n|---|---|---|---|")
    tried = max(20, pairs // 10)
    for size in (1.02, 1.05, 1.1, 1.3, 2.0):
        delays, errors = [], []
        for _ in range(tried):
            a, b = curve(draw, 2000, "white"), curve(draw, 2000, "white")
            found = part(a, [x * size if i >= 1000 else x for i, x in enumerate(b)])
            if found.kind == "parted":
                delays.append(found.seen - 1000)
                errors.append(abs(found.since - 1000))
        said = f"{median(delays):.0f}, {max(delays)} | {median(errors):.0f}" if delays else "– | –"
        print(f"| {size - 1:.0%} | {len(delays)} of {tried} | {said} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
