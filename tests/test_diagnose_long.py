"""Very long logs: the same findings as row by row, and the time it takes."""

import time

import pytest
from conftest import SHARED
from diagnose_curves import curves, falling, random_log, schedule

from llamafactory_obs.detect.numbers import as_number
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


def test_a_row_costs_under_50_microseconds():
    rows = 3000
    losses, rates = falling(rows), schedule(rows)
    given = [
        (
            i + 1,
            {
                "train/loss": losses[i],
                "train/lr": rates[i],
                "train/grad_norm": 1 + losses[i],
                "train/epoch": i / 1000,
                "time/step_s": 1.0,
                "system/allocated_gib": 20.0,
            },
        )
        for i in range(rows)
    ]
    chunks, shapes = [], Shapes(RunFacts())
    for start in range(0, rows, 100):
        began = time.process_time()
        for step, values in given[start : start + 100]:
            shapes.update(step, values)
        spent = (time.process_time() - began) / 100
        began = time.process_time()
        for value in [1.0] * 50_000:
            as_number(value)
        busy = max(1.0, (time.process_time() - began) / 3e-3)  # an idle core takes about 3 ms for so many calls
        chunks.append(spent / busy)
    usual = sorted(chunks)[len(chunks) // 4]
    assert usual < 50e-6, f"{usual * 1e6:.0f} us a row"


def test_200_000_rows_take_a_fraction_of_a_second_and_one_spike_is_found():
    losses = falling(200_000, noise=0.05)
    losses[150_000] *= 3
    log = curves(losses, lr=schedule(200_000, warm=1000), epoch=[i / 50_000 for i in range(200_000)])
    start = time.process_time()
    said = judge(log)
    spent = time.process_time() - start
    assert said.verdict == "spike" and said.findings[0].evidence["since"] == 150_001
    assert spent < 4, f"{spent:.1f} s"  # a tenth of it on an idle core
