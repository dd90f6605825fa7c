"""The page in a real browser: it opens at once, the cursor and the zoom tell the truth, it fits a phone."""

import json

import pytest
from chromium import Browser
from page_folder import chart, curves_of, data, diagnosis, event, full, layers, points, probe, row, spike

from llamafactory_obs.charts.axis import Axis
from llamafactory_obs.charts.text import number
from llamafactory_obs.diagnosis.page import render, write


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    curves = full(folder / "run")
    file = folder / "page.html"
    write(curves, diagnosis(curves, spike()), file)
    return file


def key(browser, name, shift=False):
    event_ = json.dumps({"key": name, "bubbles": True, "shiftKey": shift})
    browser.evaluate(f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {event_}))")


def held(browser, name, index=0):
    """The value and its step as the legend of a chart shows them."""
    node = f"document.querySelector('#{name} [data-series=\"{index}\"]')"
    return browser.evaluate(f"[{node}.textContent, {node}.nextElementSibling.textContent.trim()]")


def frame(browser, name):
    return browser.evaluate(
        f"(() => {{ const n = document.querySelector('#{name} .area'); n.scrollIntoView({{block: 'center'}});"
        "const b = n.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()"
    )


def test_the_pointer_shows_step_and_value_in_every_chart(browser, page):
    browser.open(page)
    drawn = points(data(chart(page.read_text(encoding="utf-8"), "loss"))["series"][0])
    assert held(browser, "loss") == [number(drawn[60]), "last"]
    left, top, width, height = frame(browser, "loss")
    browser.mouse("mouseMoved", left + width * 29.5 / 60, top + height / 2)
    assert held(browser, "loss") == [number(drawn[30]), "at 30"]
    assert held(browser, "lr")[1] == "at 30", "and in the others"
    assert held(browser, "loss", 2) == ["1.5", "at 20"], "the nearest evaluation, with its own step"
    cursors = browser.evaluate("[...document.querySelectorAll('.cursor')].map(n => [n.hidden, n.style.left])")
    assert len(cursors) >= 8 and {json.dumps(one) for one in cursors} == {json.dumps([False, cursors[0][1]])}
    assert float(cursors[0][1].rstrip("%")) == pytest.approx(29.5 / 60 * 100, abs=0.01)
    left, top, width, height = frame(browser, "layers-grad-norm")
    browser.mouse("mouseMoved", left + width * 9.5 / 60, top + height * 0.5)
    assert browser.evaluate("document.querySelector('[data-heat]').textContent") == "layers.1 at 10: 0.2"
    browser.mouse("mouseMoved", 2, 2)
    assert held(browser, "loss") == [number(drawn[60]), "last"]


def test_keys_do_what_the_pointer_does(browser, page):
    browser.open(page)
    browser.evaluate("document.getElementById('loss').focus()")
    key(browser, "ArrowRight")
    assert held(browser, "grad-norm")[1] == "at 1"
    key(browser, "ArrowRight", shift=True)
    assert held(browser, "grad-norm")[1] == "at 11"
    key(browser, "ArrowLeft")
    assert held(browser, "grad-norm")[1] == "at 10"
    key(browser, "+")
    assert browser.evaluate("document.getElementById('reset').hidden") is False
    key(browser, "Escape")
    assert browser.evaluate("document.getElementById('reset').hidden") is True
    assert held(browser, "grad-norm")[1] == "last"


def test_a_drag_zooms_all_charts_and_back(browser, page):
    browser.open(page)
    labels = "[...document.querySelectorAll('#lr .x span')].map(n => Number(n.textContent))"
    before = browser.evaluate(labels)
    heights = browser.evaluate("[...document.querySelectorAll('#lr .y span')].map(n => n.textContent)")
    left, top, width, height = frame(browser, "loss")
    browser.mouse("mouseMoved", left + width * 0.25, top + height / 2)
    browser.mouse("mousePressed", left + width * 0.25, top + height / 2, buttons=1)
    browser.mouse("mouseMoved", left + width * 0.5, top + height / 2, buttons=1)
    browser.mouse("mouseReleased", left + width * 0.5, top + height / 2)
    zoomed = browser.evaluate(labels)
    assert zoomed != before and all(15 <= label <= 31 for label in zoomed)
    browser.mouse("mouseMoved", left + width * 0.5, top + height / 2)
    assert held(browser, "lr")[1] in ("at 22", "at 23"), "the middle of what is shown"
    shape = "document.querySelector('#loss path.line').getBoundingClientRect()"
    seen = browser.evaluate(f"[{shape}.left, {shape}.right]")
    assert seen[1] - seen[0] == pytest.approx(width * 4 * 59 / 60, rel=0.02), "four times as wide"
    browser.evaluate("document.getElementById('reset').click()")
    assert browser.evaluate(labels) == before
    assert browser.evaluate("[...document.querySelectorAll('#lr .y span')].map(n => n.textContent)") == heights
    assert browser.methods("Runtime.exceptionThrown") == []


def test_a_click_on_a_probe_shows_its_raw_text_and_on_an_event_its_step(browser, page):
    browser.open(page)
    browser.evaluate("document.querySelector('.matrix .f button').click()")
    assert browser.evaluate("document.querySelector('.detail').offsetHeight") > 50, "it is to be seen"
    text = browser.evaluate("document.querySelector('.detail').textContent")
    for words in ("call, 20: wrong_arguments", "ask call", "wrong", "month is 7, expected 8", '{"orders": []}'):
        assert words in text
    browser.evaluate("document.querySelector('.matrix .f button').click()")
    assert browser.evaluate("document.querySelector('.detail').hidden") is True
    browser.evaluate("document.querySelector('li.error .go').click()")
    assert held(browser, "lr")[1] == "at 40"
    assert browser.evaluate("document.activeElement.id") == "loss"
    assert 0 <= browser.evaluate("document.getElementById('loss').getBoundingClientRect().top") < 200
    browser.evaluate("document.querySelector('.filter input[value=warn]').click()")
    shown = browser.evaluate("[...document.querySelectorAll('.events li')].map(n => n.offsetParent !== null)")
    assert shown == [True, False, True]


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_is_readable(browser, page, width, scheme):
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(page, width)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "no scrolling sideways"
    texts = browser.evaluate("""[...document.querySelectorAll('h1, h2, h3, p, li, td, th, a, button, small, em, span')]
        .filter(n => n.offsetParent && n.textContent.trim()).map(n => {
          let back = n;
          while (back && getComputedStyle(back).backgroundColor === 'rgba(0, 0, 0, 0)') back = back.parentElement;
          const style = getComputedStyle(n);
          return [style.color, getComputedStyle(back || document.body).backgroundColor, parseFloat(style.fontSize)];
        })""")
    assert min(size for _, _, size in texts) >= 10
    for front, back in {(front, back) for front, back, _ in texts}:
        assert contrast(front, back) >= 4.5, (front, back)  # WCAG 2.2, 1.4.3


def contrast(front: str, back: str) -> float:
    """WCAG 2.2: (L1 + 0.05) / (L2 + 0.05)."""

    def luminance(colour: str) -> float:
        parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((luminance(front), luminance(back)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_a_flag_leads_to_its_card_where_it_is_folded_away(browser, tmp_path):
    curves = full(tmp_path / "run")
    write(curves, diagnosis(curves, *(spike(step) for step in range(10, 30))), tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    card = "document.getElementById('finding-20')"
    assert browser.evaluate(f"{card}.closest('details').open") is False, "folded away"
    browser.evaluate("document.querySelector('a.flag[href=\"#finding-20\"]').click()")
    browser.evaluate("new Promise(done => setTimeout(() => done(1), 300))")
    assert 0 <= browser.evaluate(f"{card}.getBoundingClientRect().top") < 900
    assert browser.evaluate(f"{card}.closest('details').open") is True


def test_it_prints_with_everything_open(browser, page):
    browser.open(page)
    browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.evaluate("[...document.querySelectorAll('details')].every(n => n.open)")
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.call("Emulation.setEmulatedMedia", media="")


def test_the_script_writes_numbers_and_ticks_as_the_server_does(browser, page):
    """The two functions of `values.js`, which the board loads too."""
    browser.open(page)
    values = [
        0,
        1,
        -1,
        0.5,
        0.001,
        0.00099,
        9.999e-5,
        1.25e-7,
        999999.4,
        1e6,
        -2.5e12,
        3.14159,
        123.456,
        1e-300,
        0.1 + 0.2,
    ]
    assert browser.evaluate(f"{json.dumps(values)}.map(number)") == [number(value) for value in values]
    for low, high, log in [(0, 10.5, 0), (0, 1.1e-4, 0), (0.5, 2000, 1), (1.5, 4, 1), (-3, 7, 0), (1e-12, 1e3, 1)]:
        assert browser.evaluate(f"ticks({low}, {high}, {log}, 5)") == pytest.approx(Axis(low, high, bool(log)).ticks())


def test_a_long_run_opens_at_once(browser, tmp_path):
    rows = [row(step) for step in range(1, 20_001)]
    rows[12_344]["train/loss"] = 97.5
    names = [f"layers.{i}" for i in range(40)]
    norms = layers(list(range(1, 20_001, 20)), names, lambda step, layer: 0.1 + (step * 31 + layer * 17) % 97)
    probes = [probe(step, f"p{i}", i % 3 == 0, f"{step} {i}" * 40) for step in (10, 20) for i in range(200)]
    events = [event(step) for step in range(0, 20_000, 50)]
    curves = curves_of(tmp_path, steps=rows, layers=norms, probes=probes, events=events)
    file = tmp_path / "page.html"
    file.write_text(render(curves, diagnosis(curves)), encoding="utf-8")
    browser.call("Performance.enable", timeDomain="threadTicks")  # the page's own time, not that of others on the box
    took = []
    for _ in range(3):
        browser.open(file)
        browser.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(() => done(1))))")
        metrics = {one["name"]: one["value"] for one in browser.call("Performance.getMetrics")["metrics"]}
        took.append(metrics["TaskDuration"])
    browser.call("Performance.disable")
    assert 0.01 < min(took) < 1.0, took
    assert browser.evaluate("document.querySelectorAll('.matrix button').length") == 400
