"""What the detectors of `diagnose` cost for each row of a record, beside writing that row: `python bench/row_cost.py`.

Live they run on the training thread, once a step. The row is that of a run with all parts of a step.
"""

import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from llamafactory_obs.diagnosis.run_facts import RunFacts
from llamafactory_obs.diagnosis.shapes import Shapes
from llamafactory_obs.record.schema import encode

ROWS, ROUNDS = 3000, 5


def row(step: int) -> dict[str, float]:
    """One row of a healthy run whose loss falls."""
    loss = 1 + 2 * math.exp(-step / 500) + 0.05 * math.sin(step * 12.9898)
    parts = {"time/forward_s": 0.3, "time/backward_s": 0.5, "time/optimizer_s": 0.1, "time/step_s": 1.0}
    rate = 1e-4 * min(1.0, step / 100) * (1 - step / ROWS)
    seen = {"train/loss": loss, "train/lr": rate, "train/grad_norm": loss, "train/epoch": step / 1000}
    return seen | parts | {"system/allocated_gib": 20.0}


def best(work: Callable[[], None]) -> float:
    """Microseconds of the processor a row, the least of some rounds."""
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found) / ROWS * 1e6


def main() -> None:
    rows = [(step, row(step)) for step in range(1, ROWS + 1)]

    def judge() -> None:
        shapes = Shapes(RunFacts())
        for step, values in rows:
            shapes.update(step, values)

    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "steps.jsonl", "ab", buffering=0) as file:

        def write() -> None:
            for step, values in rows:
                file.write(encode({"step": step, "time": 0.0, "segment": 0, **values}))

        ours, beside = best(judge), best(write)
    print(f"all detectors {ours:.0f} us a row, writing the row {beside:.0f} us, ratio {ours / beside:.1f}")


if __name__ == "__main__":
    sys.exit(main())
