"""The sheet's page in a real browser: it opens at once, asks the network for nothing, and fits a phone."""

import sys

import pytest
from chromium import Browser
from conftest import ROOT
from summary_record import whole

from llamafactory_obs import cli

sys.path.insert(0, str(ROOT / "bench"))


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The sheet of a small run in both languages, and of a long one."""
    from report_speed import write_record

    folder = tmp_path_factory.mktemp("sheets")
    small, long = whole(folder / "run"), write_record(folder / "long", 20_000, 40, 200, 10_000)
    made = {}
    for name, run, lang in (("en", small, "en"), ("zh", small, "zh"), ("long", long, "en")):
        made[name] = folder / f"{name}.html"
        assert cli.main(["report", str(run), "--lang", lang, "--html", str(made[name])]) == 0
    return made


@pytest.mark.parametrize("name", ["en", "zh", "long"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_error_and_without_network(browser, pages, name, width, scheme):
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(pages[name], width)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    asked = [one["request"]["url"] for one in browser.methods("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert not browser.methods("Runtime.exceptionThrown") and not browser.methods("Log.entryAdded")
    heads = browser.evaluate("[...document.querySelectorAll('h2')].map(node => node.textContent)")
    assert heads[0] == ("记录表" if name == "zh" else "Record sheet")
    colours = browser.evaluate(
        "[document.body, document.querySelector('.facts-table td')].map(n => getComputedStyle(n).color)"
    )
    assert all((int(colour[4:].split(",")[0]) > 128) == (scheme == "dark") for colour in colours)


def test_the_page_of_a_long_run_opens_in_two_seconds(browser, pages):
    assert pages["long"].stat().st_size < 2 << 20

    def milliseconds() -> float:
        browser.open(pages["long"])
        return browser.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")

    assert min(milliseconds() for _ in range(3)) < 2000
    assert browser.evaluate("document.querySelectorAll('.chart svg').length") > 5
    text = browser.evaluate("document.querySelector('main').innerText")
    for fact in ("20,000 of 20,000 planned", "19.25 GiB reserved of 79.3 GiB", "1.2 at step 14,000, epoch 2.10"):
        assert fact in text
