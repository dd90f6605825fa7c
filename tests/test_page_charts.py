"""The building blocks of pages: no spike is lost, what is not finite is marked, a heat map's cells are its values."""

import base64
import math
import re
import struct
import zlib

import numpy as np
import pytest
from page_folder import Strict, chart, curves_of, data, diagnosis, layers, points, probe, row

from llamafactory_obs.charts import (
    Cell,
    Limit,
    Mark,
    Series,
    Span,
    check_matrix,
    decimate,
    ema,
    event_list,
    heat_map,
    line_chart,
    stacked_area,
)
from llamafactory_obs.charts.axis import Axis, axis_for
from llamafactory_obs.charts.matrix import BUDGET
from llamafactory_obs.charts.plot import HEIGHT
from llamafactory_obs.diagnosis.page import render


def path_of(html: str, kind: str = "line") -> list[tuple[int, int]]:
    """The points of the first path of a kind."""
    shape = re.search(rf'<path class="{kind}[^"]*" d="([^"]*)"', html)[1]
    return [(int(x), int(y)) for x, y in re.findall(r"(-?\d+) (-?\d+)", shape)]


@pytest.mark.parametrize("place", [0, 1, 777, 12_344, 19_998, 19_999])
@pytest.mark.parametrize("height", [100.0, -100.0])
def test_the_highest_and_the_lowest_of_many_points_are_drawn(place, height):
    values = np.random.default_rng(0).normal(size=20_000)
    values[place] = height
    steps = np.arange(1, 20_001)
    html = line_chart("x", "X", [Series("s", steps, values)], Span(1, 20_000))
    drawn = points(data(html)["series"][0])
    assert drawn[place + 1] == height, "with its own step and value"
    assert len(drawn) < 1000
    ys = [y for _, y in path_of(html)]
    axis = axis_for([values])
    assert (min(ys) if height > 0 else max(ys)) == round(HEIGHT * (1 - (height - axis.low) / (axis.high - axis.low)))


def test_every_bucket_keeps_its_extremes():
    rng = np.random.default_rng(1)
    steps, values = np.cumsum(rng.integers(1, 9, 30_000)), rng.standard_cauchy(30_000)
    kept = set(decimate(steps, values, 300).tolist())
    bucket = (steps - steps[0]) * 300 // (steps[-1] - steps[0] + 1)
    for number in range(300):
        inside = np.flatnonzero(bucket == number)
        assert {inside[values[inside].argmin()], inside[values[inside].argmax()]} <= kept
    assert {0, 29_999} <= kept and list(decimate(steps[:600], values[:600], 300)) == list(range(600))


def test_a_value_that_is_not_finite_is_a_mark_and_never_a_point():
    values = [1.0, 2.0, math.nan, 1.5, math.inf, -math.inf, 1.2]
    html = line_chart("x", "X", [Series("s", range(1, 8), values)], Span(1, 7))
    assert len(path_of(html)) == 4, "the finite ones"
    assert html.count('class="odd') == 3
    nan, inf = (re.search(rf'class="odd {word}" d="M\d+ (\d+)v(-?\d+)"', html) for word in ("nan", "inf"))
    assert (int(nan[1]), int(nan[2]) < 0) == (HEIGHT, True) and (int(inf[1]), int(inf[2]) > 0) == (0, True)
    assert points(data(html)["series"][0]) == {1: 1, 2: 2, 3: "nan", 4: 1.5, 5: "inf", 6: "-inf", 7: 1.2}
    assert "3 values are not finite" in html
    assert "not finite" not in line_chart("x", "X", [Series("s", [1, 2], [1.0, 2.0])], Span(1, 2))


def test_rare_values_that_are_not_finite_survive_the_decimation():
    values = np.ones(50_000)
    values[[13, 25_000, 49_000]] = [math.nan, math.inf, -math.inf]
    drawn = points(data(line_chart("x", "X", [Series("s", np.arange(50_000), values)], Span(0, 49_999)))["series"][0])
    assert (drawn[13], drawn[25_000], drawn[49_000]) == ("nan", "inf", "-inf")


def test_all_of_it_nan_is_still_a_chart():
    html = line_chart("x", "X", [Series("s", [1, 2], [math.nan, math.nan])], Span(1, 2), log=True)
    assert 'class="line' not in html and "2 values, none finite" in html


def test_the_mean_stops_where_a_value_is_not_finite_and_begins_anew_after_a_resume():
    assert np.isnan(ema(np.array([1.0, math.nan, 1.0]), 5)).tolist() == [False, True, False]
    assert ema(np.array([3.0, 1.0]), 3).tolist() == [3.0, pytest.approx((0.5 * 0.5 * 3 + 0.5 * 1) / 0.75)]


def test_one_point_alone_is_a_dot():
    html = line_chart("x", "X", [Series("s", [1, 2, 3], [math.nan, 5.0, math.nan])], Span(1, 3))
    assert re.search(r'<path class="line[^"]*" d="M\d+ \d+h0"', html)


def test_steps_that_fall_back_begin_a_new_part():
    html = line_chart("x", "X", [Series("s", [1, 2, 3, 1, 2], [1.0, 2.0, 3.0, 4.0, 5.0])], Span(1, 3))
    assert data(html)["series"][0]["b"] == [0, 3] and re.search(r'class="line[^"]*" d="[^"]*"', html)[0].count("M") == 2


@pytest.mark.parametrize(
    "low, high, log, ticks",
    [
        (0.0, 10.5, False, [0, 5, 10]),
        (-1.0, 1.0, False, [-1, -0.5, 0, 0.5, 1]),
        (0.0, 1.1e-4, False, [0, 5e-5, 1e-4]),
        (0.5, 2000.0, True, [1, 10, 100, 1000]),
        (1.5, 4.0, True, [2, 3]),
        (1e-30, 1e30, True, None),
        (-1.7e308, 1.7e308, False, None),
        (5.0, 5.0000001, False, None),
    ],
)
def test_ticks_are_round_and_few(low, high, log, ticks):
    found = Axis(low, high, log).ticks()
    if ticks is not None:
        assert found == pytest.approx(ticks)
    assert 1 <= len(found) <= 12 and all(low <= tick <= high * (1 + 1e-9) for tick in found)


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [-3.0], [1e300, -1e300], [1e-320, 1e-310], [math.inf], []])
@pytest.mark.parametrize("log", [False, True])
def test_an_axis_holds_whatever_there_is(values, log):
    axis = axis_for([np.array(values)], log=log)
    finite = [v for v in values if math.isfinite(v)]
    assert axis.low < axis.high and math.isfinite(axis.high - axis.low / 2)
    assert all(-0.001 <= place <= 1.001 for place in axis.at(np.array(finite)))
    axis.ticks()


def test_a_limit_is_always_on_the_axis():
    html = line_chart("x", "X", [Series("s", [1, 2], [0.5, 0.6])], Span(1, 2), limits=[Limit("limit", 24.0)])
    y = int(re.search(r'class="limit" d="M0 (\d+)', html)[1])
    assert 0 < y < HEIGHT / 5


def read_png(uri: str) -> tuple[np.ndarray, list[bytes]]:
    """Pixels and palette by the specification, apart from the writer."""
    raw = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(raw):
        size, kind = struct.unpack(">I4s", raw[at : at + 8])
        body = raw[at + 8 : at + 8 + size]
        assert zlib.crc32(kind + body) == struct.unpack(">I", raw[at + 8 + size : at + 12 + size])[0]
        chunks[kind], at = body, at + 12 + size
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), dtype=np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    palette = [chunks[b"PLTE"][i : i + 3] for i in range(0, len(chunks[b"PLTE"]), 3)]
    return rows[:, 1:], palette


def heat_values(html: str) -> np.ndarray:
    """The values that the page's script shows, (names, columns); -1 not measured, -2 zero, -3 NaN, -4 inf."""
    heat = data(html)["heat"]
    codes = np.frombuffer(base64.b64decode(heat["codes"]), dtype="<u2").reshape(len(heat["names"]), heat["columns"])
    low, high, first, last = heat["scale"]
    values = low * (high / low) ** ((codes - float(first)) / (last - first))
    return np.where(codes < 4, -1.0 - codes, values)


def test_a_heat_map_shows_each_cell_s_value():
    values = np.ma.masked_array([[1.0, 10.0], [math.nan, 0.0], [100.0, math.inf], [5.0, 5.0]])
    values[3, 1] = np.ma.masked
    html = heat_map("h", "H", [1, 2, 3, 4], ["a", "b"], values, Span(1, 4))
    assert heat_values(html) == pytest.approx(np.array([[1, -3, 100, 5], [10, -2, -4, -1]]), rel=1e-3)
    pixels, palette = read_png(re.search(r'href="(data:[^"]+)"', html)[1])
    assert pixels.shape == (2, 4) and pixels[0, 2] == pixels.max() and len(palette) <= 256
    assert palette[pixels[0, 2]] == bytes.fromhex("fde725") and palette[pixels[0, 0]] == bytes.fromhex("440154")
    for words in ("NaN", "inf", "not measured", ">0<"):
        assert words in html
    assert "NaN" not in heat_map("h", "H", [1], ["a"], np.ma.masked_array([[1.0]]), Span(1, 1))


def test_of_more_steps_than_cells_the_highest_counts():
    values = np.ma.masked_array(np.full((5000, 2), 0.5))
    values[3332, 1], values[7, 0], values[9, 0] = 500.0, math.nan, math.inf
    shown = heat_values(heat_map("h", "H", range(1, 5001), ["a", "b"], values, Span(1, 5000)))
    assert shown.shape[1] <= 320 and (shown[1] > 100).sum() == 1 and shown[1].max() == pytest.approx(500, rel=1e-3)
    assert shown[0, 0] == -4 and (shown[0] == -3).sum() == 0, "infinity above NaN"


def test_no_spike_is_lost_in_a_heat_map_of_many_steps(tmp_path):
    def value(step, layer):
        return 500.0 if (step, layer) == (3333, 2) else 0.5

    names = [f"layers.{i}" for i in range(4)]
    rows = layers(list(range(1, 5001)), names, value)
    curves = curves_of(tmp_path, steps=[row(1), row(5000)], layers=rows)
    html = chart(render(curves, diagnosis(curves)), "layers-grad-norm")
    values, width = heat_values(html), data(html)["heat"]["width"]
    assert values.max() == pytest.approx(500, rel=1e-3) and (values > 100).sum() == 1
    assert values[2, (3333 - 1) // width] == values.max() and values.shape[1] <= 320


def test_the_newest_segment_s_layers_count(tmp_path):
    rows = layers([1, 2, 3, 4], ["a"], lambda step, layer: 3.0)
    for step in (3, 4):
        rows.append({"step": step, "time": 0.0, "segment": 1, "grad_norm": [2.0]})
    rows.insert(5, {**rows[0], "segment": 1})
    rows += [{"step": 2, "time": 0.0, "segment": 0, "grad_norm": ["x"]}, {"step": 4, "segment": 1, "grad_norm": [9, 9]}]
    curves = curves_of(tmp_path, steps=[row(step) for step in range(1, 5)], layers=rows)
    html = chart(render(curves, diagnosis(curves)), "layers-grad-norm")
    assert heat_values(html)[0] == pytest.approx([3, 3, 2, 2], rel=1e-3)


def test_one_long_step_does_not_flatten_the_stack():
    whole = np.ones(100)
    whole[60] = 50.0
    parts = {"a": whole * 0.75, "b": whole * 0.25}
    html = stacked_area("t", "T", np.arange(100), parts, whole, Span(0, 99), unit="s")
    assert "axis cut: 1 steps are higher, up to 50 s at step 60" in html and data(html)["y"][1] == 1.5
    assert "75.0%" in html
    assert "axis cut" not in stacked_area("t", "T", np.arange(100), parts, np.ones(100), Span(0, 99))


def test_flags_at_one_step_lie_below_each_other():
    marks = [Mark(5, None, str(i), "", "warn", f"f{i}") for i in range(3)]
    html = line_chart("x", "X", [Series("s", [1, 10], [1.0, 2.0])], Span(1, 10), marks=marks)
    assert len(set(re.findall(r"top:([\d.]+)em", html))) == 3


def test_a_matrix_stays_within_its_budget_and_says_what_is_cut():
    cells = [[Cell(False, "bad", ["why"], f"{i} {j} " + "答" * 4000) for j in range(8)] for i in range(200)]
    html = check_matrix("m", "M", [(f"p{i}", "ask") for i in range(200)], [str(j) for j in range(8)], cells)
    Strict(html)
    assert BUDGET / 2 < len(html.encode()) < BUDGET * 2
    assert (
        "more characters" in data(html)["texts"][1]
        and data(html)["texts"][data(html)["rows"][7][1][3][0]][:4] == "7 3 "
    )
    many = check_matrix("m", "M", [("p", "ask")], [str(j) for j in range(20_000)], [[Cell(True)] * 20_000])
    assert "12000 earlier checkpoints" in many and many.count("<button") == 8000
    one = check_matrix("m", "M", [("p", "ask")], ["1"], [[Cell(True, output="short")]])
    assert "more characters" not in one and "earlier" not in one


def test_of_many_events_the_grave_ones_stay():
    events = [{"step": i, "level": "info", "kind": "checkpoint"} for i in range(5000)]
    events[3] = {"step": 3, "level": "error", "kind": "crash", "text": "it broke"}
    html = event_list("e", "E", events)
    Strict(html)
    assert "it broke" in html and "4999" in html and "4700 more" in html and html.count("<li") == 300
    assert "more of low level" not in event_list("e", "E", events[:5])
    Strict(event_list("e", "E", [{"step": None}, {"step": "x", "level": 3}, {}]))


def test_a_page_of_a_long_run_is_small(tmp_path):
    steps = 20_000
    rows = [row(step, **{"eval/loss": 1.0} if step % 500 == 0 else {}) for step in range(1, steps + 1)]
    rows[12_344]["train/loss"] = 97.5
    names = [f"layers.{i}.lora_{c}" for i in range(40) for c in "AB"]
    norms = layers(list(range(1, steps + 1, 10)), names, lambda step, layer: 0.1 + (step * 31 + layer * 17) % 97)
    text = "<tool_call>" + "数据 data " * 300
    probes = [probe(step, f"p{i}", i % 3 == 0, f"{step} {i} {text}") for step in (10, 20, 30, 40) for i in range(200)]
    curves = curves_of(tmp_path, steps=rows, layers=norms, probes=probes)
    page = render(curves, diagnosis(curves))
    assert len(page.encode()) < 1_500_000
    loss = data(chart(page, "loss"))["series"][0]
    assert points(loss)[12_345] == 97.5 and len(loss["v"]) < 1000
