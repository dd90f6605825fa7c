"""The page with what runs really leave: huge values, endless names, wrong types, nothing at all; and the pointer."""

import time

import pytest
from board_server import Board, append, until, visit
from chromium import Browser
from page_folder import event, full, probe, record, row
from test_board_page import area, legend, shown, well

LIFE = {"id": "x/y", "state": "raised", "level": "warn", "since": 3, "count": 1, "open": True, "told": True}
WRONG = [None, True, 5, -1.5, "x", [], {}, [1, {}], {"a": 1}, "constructor", "__proto__", 1e300, 2**62, "nan"]


@pytest.fixture(scope="module")
def light():
    with Browser() as browser:
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
        yield browser


def frames(browser) -> None:
    browser.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")


def test_the_pointer_stops_at_a_step_that_is_recorded(light, tmp_path):
    record(tmp_path / "run", steps=[row(step) for step in range(10, 101, 10)])
    with Board(tmp_path / "run") as board:
        visit(light, board.url, lang="en")
        left, top, width, height = area(light, "loss")
        for aim, step in ((12, 10), (17, 20), (44, 40), (46, 50), (99, 100)):
            light.mouse("mouseMoved", left + width * (aim - 9.5) / 91, top + height / 2)
            assert shown(light, "#here") == f"step {step}", aim
            cursor = light.evaluate("document.querySelector('#chart-loss .cursor').getBoundingClientRect().left")
            assert cursor == pytest.approx(left + width * (step - 9.5) / 91, abs=1.5)
        well(light)


@pytest.mark.parametrize("big", [1.7e308, -1.7e308, 5e-324])
def test_a_value_at_the_end_of_what_a_number_can_be(light, tmp_path, big):
    values = {step: {7: big, 8: -big}.get(step, float(step)) for step in range(1, 31)}
    record(tmp_path / "run", steps=[row(step, **{"train/loss": value}) for step, value in values.items()])
    with Board(tmp_path / "run") as board:
        visit(light, board.url, lang="en")
        for _ in range(2):  # linear, then logarithmic
            light.evaluate("document.querySelectorAll('.log')[0].click()")
            frames(light)
            labels = light.evaluate("document.querySelector('#chart-loss canvas').getAttribute('aria-label')")
            assert "30 values from step 1 to 30" in labels
            for line in ("loss", "norm"):
                colours = light.evaluate(
                    f"(n => [...new Uint32Array(n.getContext('2d').getImageData(0, 0, n.width, n.height).data.buffer)])"
                    f"(document.querySelector('#chart-{line} canvas')).filter(c => c === 0xffb27200).length"
                )
                assert colours > 20, f"{line} is drawn, in the colour of the first run"
        well(light)


def test_steps_beyond_what_a_script_can_count(light, tmp_path):
    record(tmp_path / "run", steps=[row(2**62 + step * 4096) for step in range(3)])
    with Board(tmp_path / "run") as board:
        visit(light, board.url, lang="en")
        frames(light)
        assert light.evaluate("import('./values.js').then(m => m.ticks(1, Infinity, true, 5).length)") <= 100
        well(light)


def test_a_run_without_a_step_is_not_said_to_be_examined(light, tmp_path):
    append(tmp_path / "run", "events.jsonl", event(0, kind="start", time=time.time(), evidence={"max_steps": 9}))
    with Board(tmp_path / "run") as board:
        visit(light, board.url, lang="en")
        assert "no step is recorded" in shown(light, "#findings")
        append(tmp_path / "run", "steps.jsonl", row(1, time=time.time()))
        until(light, "!document.querySelector('#findings').innerText.includes('no step is recorded')")
        well(light)


@pytest.mark.parametrize("width", [360, 1280])
def test_names_without_end_leave_room_for_the_rest(light, tmp_path, width):
    for name in ("x" * 200, "长名字训练" * 12, "short"):
        full(tmp_path / name)
        append(tmp_path / name, "probes.jsonl", probe(50, "call", False, "", errors=["e" * 300]))
    with Board(tmp_path) as board:
        visit(light, board.url, width, lang="zh")
        assert light.evaluate("document.documentElement.scrollWidth") <= width
        boxes = light.evaluate(
            "[...document.querySelectorAll('#runs label')].map(n => n.getBoundingClientRect().height)"
        )
        assert len(boxes) == 3 and max(boxes) < 45, "one line each"
        sizes = light.evaluate(
            "[...document.querySelectorAll('#runs input')].map(n => n.getBoundingClientRect().width)"
        )
        assert min(sizes) > 12
        assert (
            light.evaluate("Math.max(...[...document.querySelectorAll('.matrix button')].map(n => n.offsetWidth))")
            < 300
        )
        assert light.evaluate("document.querySelector('#chart-loss .legend').offsetHeight") < 160
        assert set(legend(light, "loss")) >= {"x" * 200, "short"}
        well(light)


def test_values_of_a_wrong_kind_hide_nothing_else(light, tmp_path):
    """Each field of each file, each with every kind of value, in runs beside a healthy one."""
    saved = {"step": 1, "time": 1.0, "segment": 0, "path": "/x/checkpoint-1", "verdict": "serves", "save_s": 1.0}
    saved |= {"bytes": 5, "good": True, "deleted": False}
    endless = saved | {"step": 999, "save_s": float("nan")}
    alert, asked = event(3, "warn", alert=LIFE), probe(1, "p", False, "o")
    about = ("name_or_path", "engine", "nodes")

    def spoilt(base: dict) -> list[dict]:
        return [base | {key: value} for key in base for value in WRONG]

    record(tmp_path / "events", steps=[row(1)], events=spoilt(alert))
    lives = [alert | {"alert": life | {"id": f"a{n}"}} for n, life in enumerate(spoilt(LIFE))]
    record(tmp_path / "lives", steps=[row(1)], events=lives)
    more = [one | {"step": n + 2} for n, one in enumerate(spoilt(saved)) if one["step"] == 1]
    record(tmp_path / "saves", steps=[row(1)], checkpoints=[*spoilt(saved), *more, endless])
    record(tmp_path / "probes", steps=[row(1)], probes=spoilt(asked))
    full(tmp_path / "well")
    for number, value in enumerate(WRONG):
        run = {"model": dict.fromkeys(about, value), "world": dict.fromkeys((*about, "world_size"), value)}
        config = {"given": {"run_name": value, "obs": {"price": value}}, "resolved": {"stage": value}}
        record(tmp_path / f"settings{number}", steps=[row(1)], run=run | {"config": config, "segments": value})
    folders = sorted(tmp_path.iterdir(), key=lambda folder: folder.name != "well")
    for begin in range(1, len(folders), 7):
        with Board(folders[0], *folders[begin : begin + 7]) as board:
            visit(light, board.url, lang="en")
            until(light, f"document.querySelectorAll('#cards article').length === {len(board.runs)}")
            assert "cannot be read" not in shown(light, "main") and "[object" not in shown(light, "main")
            assert legend(light, "eval") == {"well": "1.25"}
            well(light)
