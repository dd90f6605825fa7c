"""Very long logs: the same findings as row by row, and the time it takes."""

import sys
import time

import pytest
from conftest import SHARED
from diagnose_curves import curves, falling, random_log, schedule

from llamafactory_obs.diagnosis.judge import facts_of, feed, judge
from llamafactory_obs.diagnosis.long import feed_long
from llamafactory_obs.diagnosis.run_facts import RunFacts
from llamafactory_obs.diagnosis.shapes import Shapes
from llamafactory_obs.logs.read import read


def found(way, log) -> list[tuple]:
    shapes = Shapes(facts_of(log))
    way(shapes, log)
    shapes.finish()
    return sorted(
        (f.name, f.level, f.action, f.step, f.until or -1, f.evidence.get("since", -1)) for f in shapes.findings()
    )


@pytest.mark.parametrize("seed", range(30))
def test_bulk_and_row_by_row_find_the_same(seed):
    log = random_log(seed)
    assert found(feed_long, log) == found(feed, log)


def test_the_random_logs_hold_all_sorts_of_findings():
    names = {entry[0] for seed in range(30) for entry in found(feed, random_log(seed))}
    assert names >= {
        "spike",
        "diverged",
        "nan",
        "grad_norm_spike",
        "throughput_drop",
        "lr_anomaly",
        "overfit",
        "zero_loss",
    }


@pytest.mark.shared
def test_the_same_on_public_logs():
    import csv

    with (SHARED / "logs" / "LABELS.csv").open(encoding="utf-8", newline="") as table:
        files = [entry["file"] for entry in csv.DictReader(table)]
    for file in files[::3]:
        log = read(SHARED / "logs" / file)
        if log.kind != "not_a_training_log":
            assert found(feed_long, log) == found(feed, log), file


def test_a_late_row_costs_no_more_than_an_early_one():
    """Counted in calls of functions, which no other process changes; `bench/row_cost.py` takes the time."""
    rows = 3000
    losses, rates = falling(rows), schedule(rows)
    shapes, calls = Shapes(RunFacts()), [0]

    def counted(frame, kind, _):
        calls[0] += kind == "call"

    spent = []
    for i in range(rows):
        values = {"train/loss": losses[i], "train/lr": rates[i], "train/grad_norm": 1 + losses[i]}
        values |= {"train/epoch": i / 1000, "time/step_s": 1.0, "system/allocated_gib": 20.0}
        calls[0] = 0
        sys.setprofile(counted)
        try:
            shapes.update(i + 1, values)
        finally:
            sys.setprofile(None)
        spent.append(calls[0])
    early, late = spent[500:1000], spent[-500:]
    assert 0 < sum(late) <= 1.1 * sum(early) and max(late) <= 2 * max(early)


def test_200_000_rows_take_a_fraction_of_a_second_and_one_spike_is_found():
    losses = falling(200_000, noise=0.05)
    losses[150_000] *= 3
    log = curves(losses, lr=schedule(200_000, warm=1000), epoch=[i / 50_000 for i in range(200_000)])
    start = time.process_time()
    said = judge(log)
    spent = time.process_time() - start
    assert said.verdict == "spike" and said.findings[0].evidence["since"] == 150_001
    assert spent < 20, f"{spent:.1f} s"  # 0.4 s on an idle core
