"""Whatever a model, a log or a config holds stays text: escaped in the page, and inert in a real browser."""

import json
import re

import pytest
from chromium import Browser
from page_folder import Strict, cause, curves_of, data, diagnosis, event, layers, probe, row, spike

from llamafactory_obs.charts.text import escape, visible
from llamafactory_obs.diagnosis.page import render, write
from llamafactory_obs.logs.read import read

ATTACKS = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 2'>",
    '"><svg onload="window.hacked = 3">',
    "' autofocus onfocus='window.hacked = 4",
    "<!--<script>window.hacked = 5</script>",
    "javascript:window.hacked = 6",
    "]]></style><style>body{display:none}</style>",
    "a\x1b[31m\u202eevil\u2028\ud800\x00b",
    '<a href="https://example.org/leak">x</a><iframe src="https://example.org"></iframe>',
)


def hostile(folder):
    """Every text of a record is an attack."""
    attack = " ".join(ATTACKS)
    steps = [row(step, **{f"reward/{attack}": 1.0, attack: 2.0}) for step in range(1, 30)]
    run = {
        "config": {"given": {"stage": attack, "learning_rate": attack}},
        "model": {"name_or_path": attack, "class": attack, "parameters": {"total": attack}},
        "data": {"datasets": [{"name": attack}]},
        "packages": {"main": {"torch": attack}},
        "segments": [{"segment": attack, "changed": [{"key": attack, "a": attack, "b": [attack]}]}],
    }
    curves = curves_of(
        folder,
        steps=steps,
        layers=layers(list(range(1, 30)), [attack, "</script>"]),
        events=[event(5, "warn", name=attack, title=attack, text=attack, kind=attack), event(6, attack)],
        probes=[probe(10, attack, False, attack, prompt=attack, errors=[attack], details=[attack], suite_name=attack)],
        run=run,
    )
    curves.kind = "rl"
    curves.notes.append(attack)
    finding = spike(9, text=attack, name=attack, limits=attack, evidence={attack: attack}, suggest={attack: attack})
    why = cause(name=attack, supports=[attack], against=[attack], missing=[attack], next=attack)
    return curves, diagnosis(curves, finding, headline=attack, verdict=attack, causes={0: [why]}, unseen=[attack])


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    curves, verdict = hostile(tmp_path_factory.mktemp("hostile"))
    file = tmp_path_factory.mktemp("page") / "page.html"
    write(curves, verdict, file)
    return file


def test_the_markup_is_ours_alone(page):
    html = Strict(page.read_text(encoding="utf-8"))
    ours = {"script", "style", "svg", "image"}
    assert [tag for tag, _ in html.elements].count("style") == 1
    scripts = [attrs for tag, attrs in html.elements if tag == "script"]
    assert [attrs for attrs in scripts if attrs.get("type") != "application/json"] == [{}], "one script, ours"
    assert not ours & {tag for tag, attrs in html.elements if any(name.startswith("on") for name in attrs)}
    assert not [tag for tag, _ in html.elements if tag in ("img", "iframe", "object", "embed", "form", "base", "link")]
    hrefs = [attrs["href"] for _, attrs in html.elements if "href" in attrs]
    assert all(href.startswith(("#", "data:image/png;base64,")) for href in hrefs)


def test_the_texts_are_all_there_as_text(page):
    html = page.read_text(encoding="utf-8")
    shown = "".join(Strict(html).text)
    for attack in ATTACKS:
        assert visible(attack) in shown, attack
    matrix = re.search(r'<section class="matrix".*?</section>', html, re.S)[0]
    assert any(visible(ATTACKS[0]) in text for text in data(matrix)["texts"]), "the raw output, for the click"
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)


def test_the_script_never_makes_markup_from_text():
    from importlib import resources

    own = resources.files("llamafactory_obs.charts")
    script = "".join(own.joinpath(name).read_text(encoding="utf-8") for name in ("values.js", "page.js"))
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "fetch(",
        "http:",
    ):
        assert word not in script.replace("http://www.w3.org/2000/svg", ""), word


@pytest.mark.parametrize("text", ["\x1b[2J", "\u202e", "\ud800", "\x00", "\x85", "\ufeff", "\u2066"])
def test_what_acts_unseen_is_written_out(text):
    assert text not in escape(f"a{text}b") and escape(f"a{text}b").encode("utf-8")
    assert escape("中文 – ok\n") == "中文 – ok\n"


def test_nothing_runs_and_nothing_leaves_in_a_real_browser(page, tmp_path):
    with Browser() as browser:
        browser.open(page)
        assert browser.evaluate("window.hacked") is None
        button = "document.querySelector('.matrix tbody button')"
        browser.evaluate(f"{button}.click()")
        assert visible(ATTACKS[0]) in browser.evaluate("document.querySelector('.detail').textContent")
        for box in range(browser.evaluate("document.querySelectorAll('figure.chart').length")):
            browser.evaluate(f"document.querySelectorAll('figure.chart')[{box}].focus()")
            browser.evaluate(
                "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}))"
            )
        assert browser.evaluate("window.hacked") is None
        assert browser.evaluate("getComputedStyle(document.body).display") == "block"
        assert browser.evaluate("document.querySelectorAll('img, iframe').length") == 0
        asked = [one["request"]["url"] for one in browser.methods("Network.requestWillBeSent")]
        assert [url for url in asked if not url.startswith(("data:image/png", page.resolve().as_uri()))] == []
        assert browser.methods("Runtime.exceptionThrown") == []

        # the same browser does run what is not escaped, and the policy alone would hold it back: the test can fail
        bare = tmp_path / "bare.html"
        bare.write_text(f"<!doctype html><body>{ATTACKS[0].removeprefix('</script>')}")
        browser.open(bare)
        assert browser.evaluate("window.hacked") == 1
        text = page.read_text(encoding="utf-8")
        leaky = tmp_path / "leaky.html"
        leaky.write_text(text.replace("<main>", f"<main>{''.join(ATTACKS[:3])}"), encoding="utf-8", errors="replace")
        browser.open(leaky)
        assert browser.evaluate("window.hacked") is None, "the policy"


def test_a_console_log_with_markup_in_it_is_only_text(tmp_path):
    lines = [json.dumps({"loss": 1.0, "step": i, "<script>alert(1)</script>": 1.0}) for i in range(1, 9)]
    log = tmp_path / "<img src=x onerror=alert(1)>.jsonl"
    log.write_text("\n".join(lines))
    curves = read(log)
    page = render(curves, diagnosis(curves))
    Strict(page)
    assert "<img" not in page and "<script>alert" not in page
