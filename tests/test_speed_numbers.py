"""The arithmetic of `baseline-speed` on made-up steps, and its screen."""

import io
import random

import pytest

from llamafactory_obs.preflight.speed import workers
from llamafactory_obs.preflight.speed.joined import Joined
from llamafactory_obs.preflight.speed.layers import Layer, Steps
from llamafactory_obs.preflight.speed.report import Report
from llamafactory_obs.preflight.speed.terminal import show


@pytest.mark.parametrize(
    ("load", "step", "wanted"), [(0.1, 0.03, 4), (0.1, 0.1, 1), (0.02, 0.1, 1), (0.0009, 0.1, 0), (0.1, 0.0, 16)]
)
def test_workers_that_hide_loading(load, step, wanted):
    assert workers.needed(load, step) == wanted


def test_cores_bound_workers_that_compute_and_not_those_that_wait():
    assert [workers.room(7.0, share) for share in (1.0, 0.5, 0.01)] == [7, 14, workers.MOST]
    assert workers.room(0.5, 1.0) == 1
    assert workers.candidates(0, 4, 16) == [4, 2]
    assert workers.candidates(0, 4, 1) == [1]
    assert workers.candidates(0, 0, 8) == []
    assert workers.candidates(4, 0, 8) == [0]


def made_up(wait: float, slower: float = 0.0, log: float = 0.0, noise: float = 0.0, workers: int = 0) -> Steps:
    """A model of 1 ms per 10 cells; the batches of a block are the same, their sizes differ."""
    draw, steps, rows = random.Random(1), [], {}

    def add(block, index, cells, waits, factor, other=0.001, then=None):
        step = len(steps) + 1
        compute = cells * 1e-4 * factor * (1 + draw.gauss(0, noise))
        parts = {"time/data_wait_s": waits, "time/h2d_s": 0.0, "time/other_s": other, "time/callbacks_s": 0.01}
        whole = {"time/step_s": compute + waits + 0.01, "time/unusual": 0.0}
        steps.append({"step": step, "block": block, "index": index, "began": False, "cells": cells, "then": then})
        rows[step] = {**parts, **whole, "system/tokens_per_sec": cells / 2 / whole["time/step_s"]}

    sizes = [100, 200, 300, 400, 500, 600, 700, 800]
    for index, cells in enumerate(sizes):
        add(f"loader:{workers}", index, cells, wait, 1 + slower)
    for _ in range(2):
        for index, cells in enumerate(sizes[:4]):  # the others found no room on the device
            add("ready", index, cells, 0.0, 1.0)
    for index in range(4):
        add("log", index, 100, 0.0, 1.0, 0.001 + (log if index else 0.0), "log")
    add("rest", None, 100, 0.0, 1.0, 0.001 + log)
    return Steps(Joined(steps, rows), workers)


def test_layers_of_made_up_steps():
    steps = made_up(wait=0.02, log=0.03)
    assert (steps.cells, steps.tokens) == (450, pytest.approx(225))
    assert steps.model_s == pytest.approx(0.045), "the ready batches are the short ones: in proportion to their cells"
    assert steps.loader(steps.loaded, 0).seconds_per_step == pytest.approx(0.02)
    logging = steps.logging(10)
    assert logging.seconds_per_step == pytest.approx(0.003) and logging.at_most is None
    half = steps.callbacks({"label_mask": 1.0, "throughput": 1.0}, ["label_mask"])
    assert half.seconds_per_step == pytest.approx(0.005)
    assert steps.callbacks({"throughput": 1.0}, []) is None


def test_workers_that_slow_the_model_cost_what_they_slow():
    with_workers = made_up(wait=0.0, slower=0.2, workers=2)
    assert with_workers.loader(with_workers.loaded, 2).seconds_per_step == pytest.approx(0.2 * 0.045, rel=0.1)
    still = made_up(wait=0.0, noise=0.05, workers=2)
    assert still.loader(still.loaded, 2).seconds_per_step < 0.002, "noise is no cost"
    assert made_up(wait=0.0, noise=0.05).noise_s > 10 * made_up(wait=0.0).noise_s


def test_a_log_that_costs_nothing_is_said_to_be_hidden():
    nothing = made_up(wait=0.0).logging(1)
    assert nothing.seconds_per_step == pytest.approx(0.0, abs=1e-9)


def report(**seconds) -> Report:
    found = Report("run.yaml", "cpu", [Layer(name, value, None, None, "as it is") for name, value in seconds.items()])
    found.tokens_per_step, found.whole_run = 100.0, {"steps": 1000, "log_every": 1, "evaluations": 100, "saves": 1}
    return found


def test_the_dearest_layer_is_named_with_its_cure():
    clean = report(model=1.0, loader=0.01)
    assert (clean.exit_code, clean.first) == (0, "nothing: the time goes into the model")
    dear = report(model=1.0, evaluation=1.0, logging=0.3)
    assert dear.exit_code == 1 and "fewer rows" not in dear.first
    # 100 evaluations of 10 s; at every 147th step they take 10 / (10 + 147 * 1.3), which is 5 %
    assert dear.first.endswith("eval_steps: 147")
    assert "logging_steps: 10" in report(model=1.0, logging=0.5).first
    assert "faster disk" in report(model=1.0, saving=0.5).first
    assert "tokenized_path" in report(model=1.0, loader=0.5).first
    assert report(model=1.0, loader=0.2).exit_code == 0 and report(model=1.0, loader=0.3).exit_code == 1
    assert [one["tokens_per_sec"] for one in dear.as_dict()["layers"]] == pytest.approx([100, 50, 100 / 2.3])


def test_the_screen_of_a_run_that_broke_off():
    out = io.StringIO()
    show(Report("run.yaml", failed=["OutOfMemoryError: no"], limits=["a limit " * 20]), out)
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("FAILED") and "  OutOfMemoryError: no" in lines and max(map(len, lines)) <= 80
