"""The board in a real browser: what is drawn is recorded, it lives, it fits a phone, hostile texts do nothing."""

import json
import time

import pytest
from board_server import Board, append, until, visit
from chromium import Browser
from page_folder import event, full, probe, record, row
from test_page_browser import contrast

from llamafactory_obs.charts.text import number


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


@pytest.fixture
def light(browser):
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    browser.evaluate("(() => { try { localStorage.clear(); } catch { } })()")
    return browser


def well(browser) -> None:
    """No exception, nothing that the policy had to stop, no request but to the board."""
    assert browser.methods("Runtime.exceptionThrown") == []
    texts = [one["entry"]["text"] for one in browser.methods("Log.entryAdded")]
    assert not [text for text in texts if "Content Security Policy" in text], texts
    urls = [one["request"]["url"] for one in browser.methods("Network.requestWillBeSent")]
    assert urls and all(url.startswith(("http://127.0.0.1:", "data:,")) for url in urls), urls


def legend(browser, line: str) -> dict[str, str]:
    """Run -> value as the legend of a chart shows it."""
    items = f"[...document.querySelectorAll('#chart-{line} .legend li')]"
    return dict(
        browser.evaluate(f"{items}.map(n => [n.querySelector('.name').textContent, n.querySelector('b').textContent])")
    )


def key(browser, name: str, shift: bool = False) -> None:
    words = json.dumps({"key": name, "bubbles": True, "shiftKey": shift})
    browser.evaluate(f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {words}))")


def area(browser, line: str) -> tuple[float, float, float, float]:
    """Left, top, width and height of what is drawn of a chart, without its axis."""
    left, top, width, height = browser.evaluate(
        f"(() => {{ const n = document.querySelector('#chart-{line} .curve'); n.scrollIntoView({{block: 'center'}});"
        "const b = n.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()"
    )
    return left + 54, top, width - 62, height


def shown(browser, selector: str) -> str:
    """The text of an element as it is seen, "" where it is hidden."""
    return browser.evaluate(
        f"(n => n?.checkVisibility() ? n.innerText : '')(document.querySelector({json.dumps(selector)}))"
    )


def test_the_curves_are_those_of_the_record(light, tmp_path):
    full(tmp_path / "run")
    last = row(60)
    with Board(tmp_path / "run", price=2) as board:
        visit(light, board.url, lang="en")
        assert legend(light, "loss") == {"run": number(last["train/loss"])}
        assert legend(light, "norm") == {"run": number(last["train/grad_norm"])}
        assert legend(light, "eval") == {"run": "1.25"} and legend(light, "speed") == {"run": "3004"}
        left, top, width, height = area(light, "loss")
        light.mouse("mouseMoved", left + width * 29.5 / 60, top + height / 2)
        assert legend(light, "loss") == {"run": number(row(30)["train/loss"])}
        assert legend(light, "norm") == {"run": number(row(30)["train/grad_norm"])}, "in all charts"
        assert "growth at 30" in shown(light, "#here"), "and what happened there"
        light.mouse("mouseMoved", 2, 2)
        assert legend(light, "eval") == {"run": "1.25"}
        card = shown(light, "#cards")
        for words in ("step 60 of 60", "VRAM peak 16 GiB", "GPU use 90 %", "padding 10 %", "cost"):
            assert words in card, card
        painted = light.evaluate(
            "[...document.querySelectorAll('canvas')].map(n => new Set(new Uint32Array("
            "n.getContext('2d').getImageData(0, 0, n.width, n.height).data.buffer)).size)"
        )
        assert len(painted) == 4 and min(painted) > 5, "something is drawn in each"
        well(light)


def test_a_peak_is_drawn_where_it_is(light, tmp_path):
    """The highest and the lowest point of a line, found in the pixels of its colour."""
    losses = {step: 1.0 + (step == 30) * 4 - (step == 45) * 0.9 for step in range(1, 61)}
    record(tmp_path / "run", steps=[row(step, **{"train/loss": loss}) for step, loss in losses.items()])
    with Board(tmp_path / "run") as board:
        visit(light, board.url, lang="en")
        light.evaluate("document.getElementById('smooth').click()")
        light.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        for scale in ("linear", "log"):
            width, height, top, bottom = light.evaluate("""(() => {
                const n = document.querySelector('#chart-loss canvas'), w = n.width, h = n.height;
                const data = n.getContext('2d').getImageData(0, 0, w, h - 22).data, found = [];
                for (let i = 0; i < data.length; i += 4)
                    if (data[i] < 40 && Math.abs(data[i + 1] - 114) < 20 && Math.abs(data[i + 2] - 178) < 20)
                        found.push([(i / 4) % w, Math.floor(i / 4 / w)]);
                return [w, h, found[0], found.at(-1)];
            })()""")
            place = {step: 54 + (step - 0.5) / 60 * (width - 62) for step in (30, 45)}
            assert top[0] == pytest.approx(place[30], abs=3) and 8 <= top[1] < 30, scale
            assert bottom[0] == pytest.approx(place[45], abs=3) and height - 50 < bottom[1] <= height - 20, scale
            light.evaluate("document.querySelector('#chart-loss .log').click()")
            light.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")


def test_keys_zoom_and_scale(light, tmp_path):
    full(tmp_path / "run")
    with Board(tmp_path / "run") as board:
        visit(light, board.url, lang="en")
        light.evaluate("document.getElementById('chart-loss').focus()")
        key(light, "ArrowRight")
        assert shown(light, "#here").startswith("step 1")
        key(light, "ArrowRight", shift=True)
        key(light, "ArrowLeft")
        assert shown(light, "#here").startswith("step 10")
        assert legend(light, "norm") == {"run": number(row(10)["train/grad_norm"])}
        assert "Gradient norm" in light.evaluate("document.getElementById('spoken').textContent"), "said aloud"
        key(light, "+")
        assert light.evaluate("document.getElementById('reset').hidden") is False
        key(light, "Escape")
        assert light.evaluate("document.getElementById('reset').hidden") is True
        left, top, width, _ = area(light, "norm")
        light.mouse("mouseMoved", left + width * 0.5, top + 50)
        light.mouse("mousePressed", left + width * 0.5, top + 50, buttons=1)
        light.mouse("mouseMoved", left + width * 0.75, top + 50, buttons=1)
        light.mouse("mouseReleased", left + width * 0.75, top + 50)
        light.mouse("mouseMoved", left + width * 0.5, top + 50)
        assert legend(light, "loss") == {"run": number(row(38)["train/loss"])}, "the middle of what is shown"
        light.evaluate("document.getElementById('reset').click()")
        button = "document.querySelector('#chart-loss .log')"
        before = light.evaluate("document.querySelector('#chart-loss canvas').toDataURL()")
        light.evaluate(f"{button}.click()")
        until(light, f"document.querySelector('#chart-loss canvas').toDataURL() !== {json.dumps(before)}")
        assert light.evaluate(f"{button}.getAttribute('aria-pressed')") == "true"
        visit(light, board.url, lang="en")
        assert light.evaluate(f"{button}.getAttribute('aria-pressed')") == "true", "it is remembered"
        well(light)


def test_it_lives(light, tmp_path, monkeypatch):
    monkeypatch.setattr("llamafactory_obs.board.feed._SEARCH", 0.5)
    saves = tmp_path / "saves"
    saves.mkdir()
    with Board(saves) as board:
        visit(light, board.url, lang="en")
        assert "No run here yet" in shown(light, "#empty")
        now = time.time()
        append(saves / "a", "events.jsonl", event(0, kind="start", time=now, evidence={"max_steps": 100}))
        append(saves / "a", "steps.jsonl", row(1, time=now), row(2, time=now))
        until(light, "document.querySelector('#cards')?.innerText.includes('training')")
        assert legend(light, "loss") == {"a": number(row(2)["train/loss"])} and shown(light, "#empty") == ""
        life = {"id": "x/y", "state": "raised", "level": "error", "since": 3, "count": 1, "open": True, "told": True}
        alert = event(3, "error", time=now, alert=life, title="spike", text="Halve the rate.", action="kill")
        append(saves / "a", "steps.jsonl", row(3, time=now, **{"train/loss": 7.5}))
        append(saves / "a", "events.jsonl", alert)
        until(light, "document.querySelector('#alerts .alert')?.innerText.includes('Halve the rate.')")
        assert "advice: end the run" in shown(light, "#alerts") and light.evaluate("document.title").startswith("(1) ")
        assert "spike" in light.evaluate("document.getElementById('spoken').textContent")
        until(light, "document.querySelector('#chart-loss .legend b').textContent === '7.5'")
        full(saves / "b")
        until(light, "document.querySelectorAll('#runs input').length === 2")
        until(light, "document.querySelectorAll('#chart-loss .legend li').length === 2")
        light.evaluate("document.querySelectorAll('#runs input')[0].click()")
        until(light, "document.querySelectorAll('#cards article').length === 1")
        assert set(legend(light, "loss")) == {"b"} and shown(light, "#alerts") == "", "only what is chosen"
        light.evaluate("document.querySelectorAll('#runs input')[0].click()")
        until(light, "document.querySelectorAll('#chart-loss .legend li').length === 2")
        assert legend(light, "loss")["a"] == "7.5"
        well(light)


def test_a_killed_run_says_so(light, tmp_path):
    from llamafactory_obs.control.presence import machine

    now = time.time() - 30
    append(tmp_path / "run", "events.jsonl", event(0, kind="start", time=now, evidence={"max_steps": 100}))
    append(tmp_path / "run", "steps.jsonl", row(1, time=now))
    (tmp_path / "run" / "obs" / "control").mkdir()
    job = {"pid": 2**22 + 1, "started": now, "locked": True, **machine()}
    (tmp_path / "run" / "obs" / "control" / "job.json").write_text(json.dumps(job))
    with Board(tmp_path / "run") as board:
        visit(light, board.url, lang="en")
        assert "killed" in shown(light, "#cards h3")
        well(light)


def test_the_board_goes_away_and_comes_back(light, tmp_path):
    from llamafactory_obs.board.address import listen
    from llamafactory_obs.board.server import Visits

    full(tmp_path / "run")
    with Board(tmp_path / "run") as board:
        visit(light, board.url, lang="en")
        port = board.port
    until(light, "document.getElementById('lost').innerText.includes('does not answer')")
    assert legend(light, "eval") == {"run": "1.25"}, "what was known stays"
    with Board(tmp_path / "run") as board:
        append(tmp_path / "run", "steps.jsonl", row(61, **{"eval/loss": 1.125}))
        second = listen("127.0.0.1", port, Visits(board.feed, board.access))
        import threading

        threading.Thread(target=second.serve_forever, daemon=True).start()
        try:
            until(light, "document.getElementById('lost').hidden", 30)
            until(light, "document.querySelector('#chart-eval .legend b').textContent === '1.125'")
        finally:
            second.shutdown()
            second.server_close()


def test_hostile_texts_are_only_shown(light, tmp_path):
    evil = "</script><img src=http://evil.example/x onerror=alert(1)><svg onload=alert(2)>\u202e"
    life = {"id": evil, "state": "raised", "level": "error", "since": 1, "count": 1, "open": True, "told": True}
    folder = tmp_path / "<img src=x onerror=alert(3)>"
    record(
        folder,
        steps=[row(step) for step in range(1, 5)],
        events=[event(1, "error", title=evil, text=evil, name=evil, alert=life)],
        probes=[probe(1, evil, False, evil, errors=[evil], checkpoint=evil)],
        checkpoints=[{"step": 1, "time": 1.0, "segment": 0, "path": f"/x/{evil}", "verdict": evil, "save_s": 1.0}],
        run={"model": {"name_or_path": evil}, "config": {"given": {"run_name": evil, "stage": evil}}},
    )
    with Board(folder) as board:
        visit(light, board.url, lang="en")
        until(light, "document.querySelectorAll('.matrix button').length")
        light.evaluate("document.querySelector('.matrix button').click()")
        until(light, "document.querySelectorAll('.matrix .detail pre').length >= 2")
        assert "<svg onload=alert(2)>\\u202e" in shown(light, ".matrix .detail")
        assert "<img src=http" in shown(light, "#alerts")
        assert light.evaluate("document.querySelectorAll('main img, main svg, main script').length") == 0
        assert light.methods("Page.javascriptDialogOpening") == []
        assert light.evaluate("document.documentElement.scrollWidth") <= 1280
        well(light)


def test_a_raw_output_stays_open_when_new_results_come(light, tmp_path):
    full(tmp_path / "run")
    with Board(tmp_path / "run") as board:
        visit(light, board.url, lang="en")
        light.evaluate("document.querySelector('.matrix .f button').click()")
        until(light, "document.querySelectorAll('.matrix .detail pre').length")
        for words in ("wrong_arguments", "ask call", "wrong", "month is 7, expected 8", '{"orders": []}'):
            assert words in shown(light, ".matrix .detail")
        append(tmp_path / "run", "probes.jsonl", probe(60, "call", True, "newest"))
        until(light, "document.querySelectorAll('.matrix thead th').length === 4")
        assert "month is 7" in shown(light, ".matrix .detail")
        light.evaluate("document.querySelector('.matrix button[aria-expanded=true]').click()")
        assert light.evaluate("document.querySelector('.matrix .detail').hidden") is True
        well(light)


def test_the_token_leaves_the_address(light, tmp_path):
    full(tmp_path / "run")
    with Board(tmp_path / "run", token="a-token-of-some-length") as board:
        light.call("Page.navigate", url=board.url)
        until(light, "document.body?.innerText.includes('holds the token')")
        visit(light, f"{board.url}?token=a-token-of-some-length")
        assert light.evaluate("location.search + document.cookie") == ""
        assert legend(light, "eval") == {"run": "1.25"}
        light.call("Network.clearBrowserCookies")
        until(light, "document.getElementById('lost').innerText.includes('token')")


@pytest.mark.parametrize(("width", "scheme", "lang"), [(360, "dark", "zh"), (390, "light", "zh"), (1280, "dark", "en")])
def test_it_fits_and_is_readable(browser, tmp_path, width, scheme, lang):
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    for name in ("first", "second-with-a-name-that-is-far-too-long-for-a-phone-" * 3, "third"):
        full(tmp_path / name)
        life = {"id": "a", "state": "raised", "level": "warn", "since": 3, "count": 2, "open": True, "told": True}
        append(tmp_path / name, "events.jsonl", event(50, "warn", alert=life, text="x" * 300))
    with Board(tmp_path) as board:
        visit(browser, board.url, width, lang=lang)
        until(browser, "document.querySelectorAll('#alerts .alert').length === 3")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, "no scrolling sideways"
        texts = browser.evaluate("""[...document.querySelectorAll(
            'h1, h2, h3, h4, p, li, td, th, a, button, small, em, span, label, legend, b, bdi')]
            .filter(n => n.offsetParent && n.textContent.trim() && !n.closest('.unseen')).map(n => {
              let back = n;
              while (back && getComputedStyle(back).backgroundColor === 'rgba(0, 0, 0, 0)') back = back.parentElement;
              const style = getComputedStyle(n);
              return [style.color, getComputedStyle(back || document.body).backgroundColor, parseFloat(style.fontSize)];
            })""")
        assert min(size for _, _, size in texts) >= 10
        for front, back in {(front, back) for front, back, _ in texts}:
            assert contrast(front, back) >= 4.5, (front, back)  # WCAG 2.2, 1.4.3
        unnamed = browser.evaluate("""[...document.querySelectorAll('button, input, select, canvas, [tabindex="0"], a')]
            .filter(n => n.offsetParent && !n.getAttribute('aria-label') && !n.textContent.trim())
            .filter(n => !n.closest('label'))
            .map(n => n.outerHTML)""")
        assert unnamed == [], "each control has a name"
        assert browser.evaluate("document.documentElement.lang") == {"zh": "zh-CN", "en": "en"}[lang]
        well(browser)


@pytest.mark.slow
def test_a_three_hour_record_opens_at_once(light, tmp_path):
    rows = [row(step) for step in range(1, 20_001)]
    rows[12_344]["train/loss"] = 97.5
    probes = [probe(step, f"p{i}", i % 3 == 0, f"{step} {i}" * 40) for step in (10, 20) for i in range(200)]
    record(tmp_path / "run", steps=rows, probes=probes, events=[event(s, "warn") for s in range(0, 20_000, 50)])
    with Board(tmp_path / "run") as board:
        board.state()  # the first reading is the board's own start, measured in bench/board.py
        light.call("Performance.enable", timeDomain="threadTicks")  # the page's own time, not that of others on the box
        took = []
        for _ in range(2):
            visit(light, board.url)
            metrics = {one["name"]: one["value"] for one in light.call("Performance.getMetrics")["metrics"]}
            took.append(metrics["TaskDuration"])
        light.call("Performance.disable")
        assert 0.01 < min(took) < 1.0, took
        assert light.evaluate("document.querySelectorAll('.matrix button').length") == 400
        told = light.evaluate("document.querySelector('#chart-loss canvas').getAttribute('aria-label')")
        assert "from step 1 to 20000" in told
        left, top, width, height = area(light, "loss")
        light.evaluate("document.getElementById('chart-loss').focus({ preventScroll: true })")
        light.mouse("mouseMoved", left + width * 12_320.5 / 20_000, top + height / 2)
        near = [float(legend(light, "loss")["run"])]
        for _ in range(25):  # the lowest and the highest value of each stretch are among the points
            key(light, "ArrowRight")
            near.append(float(legend(light, "loss")["run"]))
        assert 97.5 in near
        well(light)
