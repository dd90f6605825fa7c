"""The page of a diagnosis: sound HTML that needs no network, the record's own numbers, and what it says is missing."""

import re

import pytest
import yaml
from page_folder import Strict as Page
from page_folder import cause, chart, curves_of, data, diagnosis, event, full, layers, points, probe, row, spike

from llamafactory_obs.diagnosis.page import render, write
from llamafactory_obs.errors import ConfigError
from llamafactory_obs.logs.read import read

CHARTS = ("loss", "grad-norm", "lr", "mask", "layers-grad-norm", "vram", "tokens", "step-time", "gpu")


@pytest.fixture
def curves(tmp_path):
    return full(tmp_path / "run")


def test_every_part_is_there_once_and_sound(curves):
    page = render(curves, diagnosis(curves, spike(), causes={0: [cause()]}))
    html = Page(page)
    ids = html.ids()
    assert len(ids) == len(set(ids)), "an id is unique"
    assert set(CHARTS) <= set(ids) and {"probe-matrix", "event-list", "finding-1", "run"} <= set(ids)
    links = [attrs["href"] for tag, attrs in html.elements if tag == "a"]
    assert links and {link.removeprefix("#") for link in links} <= set(ids), "every link leads somewhere"
    assert "Not in this log" not in page


def test_nothing_outside_is_named_and_the_policy_forbids_it(curves):
    page = render(curves, diagnosis(curves, spike()))
    for tag, attrs in Page(page).elements:
        for name in ("src", "href", "action", "data", "poster", "srcset", "xlink:href"):
            value = attrs.get(name)
            assert value is None or value.startswith(("#", "data:image/png;base64,")), (tag, name, value)
        assert not [name for name in attrs if name.startswith("on")], (tag, attrs)
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org/2000/svg)", page)
    policy = next(a["content"] for _, a in Page(page).elements if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy and "unsafe-eval" not in policy
    assert re.search(r"script-src 'sha256-[\w+/=]+'", policy), "only our script, by its hash"


def test_the_numbers_are_the_record_s(curves):
    page = render(curves, diagnosis(curves))
    for name, column, index in (
        ("loss", "train/loss", 0),
        ("loss", "eval/loss", 2),
        ("grad-norm", "train/grad_norm", 0),
        ("lr", "train/lr", 0),
        ("mask", "data/supervised_ratio", 0),
        ("vram", "system/peak_reserved_gib", 3),
        ("tokens", "system/tokens_per_sec", 0),
    ):
        drawn = points(data(chart(page, name))["series"][index])
        steps, values = curves.points(column)
        assert list(drawn) == steps
        assert list(drawn.values()) == pytest.approx(values, rel=1e-5), column


def test_the_loss_has_its_mean_and_the_parts_of_the_time_add_up(curves):
    page = render(curves, diagnosis(curves))
    raw, mean = (points(one) for one in data(chart(page, "loss"))["series"][:2])
    expected, weight, keep = 0.0, 0.0, 1 - 2 / 6  # span 5: the definition, written out
    for step, value in raw.items():
        expected, weight = keep * expected + (1 - keep) * value, keep * weight + (1 - keep)
        assert mean[step] == pytest.approx(expected / weight, rel=1e-4)
    parts = data(chart(page, "step-time"))["series"]
    assert [part["n"] for part in parts] == ["data_wait", "forward", "backward", "optimizer", "other"]
    assert sum(part["v"][0] for part in parts) == pytest.approx(1.0)
    assert "50.0%" in chart(page, "step-time"), "backward's share of all time"


def test_the_wanted_range_and_the_limit_are_the_run_s_own(curves, tmp_path):
    page = render(curves, diagnosis(curves))
    assert "wanted <b>0.25 to 0.45</b>" in chart(page, "mask")
    assert "limit <b>24</b>" in chart(page, "vram")
    given = {"callbacks": [{"name": "vram", "args": {"limit_gib": 40}}, {"label_mask": {"range": [0.5, 0.9]}}]}
    other = curves_of(tmp_path / "b", steps=[row(1), row(2)], run={"config": {"given": given}})
    page = render(other, diagnosis(other))
    assert "wanted <b>0.5 to 0.9</b>" in chart(page, "mask") and "limit <b>40</b>" in chart(page, "vram")
    pairs = curves_of(tmp_path / "c", steps=[row(1), row(2)], run={"config": {"given": {"stage": "dpo"}}})
    assert "wanted" not in chart(render(pairs, diagnosis(pairs)), "mask")


def test_the_verdict_and_the_findings_say_what_to_do(curves):
    finding = spike(limits="says nothing of the data", until=40)
    page = render(curves, diagnosis(curves, finding, action="kill", causes={0: [cause(next="run it again")]}))
    text = " ".join(Page(page).text)
    assert '<span class="word">KILL</span>' in page and "One spike, gone again." in text
    for words in ("step 33 to 40", "confidence 90%", "says nothing of the data", "rate rose", "slowly", "run it again"):
        assert words in text
    assert yaml.safe_load(re.search(r"<pre>(.*?)</pre>", page, re.S)[1]) == {"learning_rate": 5e-05}
    flags = re.findall(r'<a class="flag[^>]*data-step="33"[^>]*href="#finding-1"', page)
    assert len(flags) == 1, "one flag, on the first chart"
    assert chart(page, "grad-norm").count('class="at error"') == 1, "and a line in the others"
    assert 'class="at error"' not in render(curves, diagnosis(curves))


def test_of_many_findings_the_later_ones_are_folded_away(curves):
    page = render(curves, diagnosis(curves, *(spike(step) for step in range(10, 30))))
    assert "15 more findings" in page and page.count('class="card error"') == 20
    assert page.index("finding-5") < page.index("15 more findings") < page.index('id="finding-6"')
    assert "more findings" not in render(curves, diagnosis(curves, *(spike(step) for step in range(10, 16))))


def test_a_mean_that_decays_does_not_stretch_a_logarithmic_axis(tmp_path):
    losses = [5.0, 0.2, 0.1, 0.1] + [0.0] * 200
    steps = [{"step": i, "segment": 0, "time": 0.0, "train/loss": loss} for i, loss in enumerate(losses, 1)]
    html = chart(render(curves := curves_of(tmp_path, steps=steps), diagnosis(curves)), "loss")
    low, high, log = data(html)["y"]
    assert log == 1 and 0.05 < low < 0.1 and 5 < high < 10
    assert "0 stands at the lower edge" in html


def test_keep_is_not_kill(curves):
    page = render(curves, diagnosis(curves, action="keep"))
    assert '<span class="word">KEEP</span>' in page and ">KILL<" not in page


@pytest.mark.parametrize(
    "prefix, chart_, words",
    [
        ("eval/", None, "evaluation loss"),
        ("train/grad_norm", "grad-norm", "gradient norm"),
        ("train/lr", "lr", "learning rate"),
        ("data/", "mask", "mask ratio"),
        ("system/", "vram", "GPU memory"),
        ("system/", "tokens", "tokens/s"),
        ("time/", "step-time", "parts of the step time"),
        ("system/gpu", "gpu", "use of the GPU"),
    ],
)
def test_a_missing_part_is_named_and_not_drawn(tmp_path, prefix, chart_, words):
    rows = [{k: v for k, v in row(step).items() if not k.startswith(prefix)} for step in range(1, 30)]
    page = render(curves := curves_of(tmp_path, steps=rows), diagnosis(curves))
    Page(page)
    assert chart_ is None or chart_ not in Page(page).ids()
    missing = re.search(r'<p class="absent">Not in this log: (.*?)\.</p>', page)[1]
    assert words in missing
    assert page.count('class="absent"') == 1, "all of it in one line"
    for words in ("norms by layer", "probe results", "events", "identity"):
        assert words in missing, "this record has none of these either"


def test_a_log_without_a_row_still_gives_a_page(tmp_path):
    curves = curves_of(tmp_path, steps=[], events=[event(0, kind="crash", level="error", text="it broke")])
    page = render(curves, diagnosis(curves, verdict="not_a_training_log", action="none"))
    assert "no chart is drawn" in page and "it broke" in page and "<figure" not in page
    assert "NO VERDICT" in " ".join(Page(page).text)


def test_one_row_is_enough(tmp_path):
    curves = curves_of(tmp_path, steps=[row(7)], layers=layers([7], ["layers.0"]))
    page = render(curves, diagnosis(curves, spike(7)))
    Page(page)
    assert points(data(chart(page, "loss"))["series"][0]) == {7: pytest.approx(row(7)["train/loss"], rel=1e-5)}


def test_a_foreign_log_with_nothing_but_a_loss(tmp_path):
    log = tmp_path / "trainer_log.jsonl"
    log.write_text(
        "".join(f'{{"current_steps": {i}, "total_steps": 40, "loss": {3 - i / 40}}}\n' for i in range(1, 31))
    )
    curves = read(log)
    page = render(curves, diagnosis(curves))
    Page(page)
    assert re.findall(r'<figure class="chart[^"]*" id="([^"]+)"', page) == ["loss"]
    assert "30 of 40" in " ".join(Page(page).text)


def test_a_resume_breaks_the_line_and_is_marked(tmp_path):
    steps = [row(step, segment=int(step > 20)) for step in range(1, 41)]
    page = render(curves := curves_of(tmp_path, steps=steps), diagnosis(curves))
    loss = chart(page, "loss")
    assert data(loss)["series"][0]["b"] == [0, 20] and data(loss)["series"][1]["b"] == [0, 20]
    assert re.search(r'class="flag resume"[^>]*>resume<', loss) and 'class="at resume"' in chart(page, "lr")


def test_the_probe_matrix_is_of_the_suite_that_was_asked_most_often(tmp_path):
    old = probe(10, "ancient", True, "x", suite="other")
    rows = [old, probe(20, "call", False, "first"), probe(20, "call", False, "again"), probe(40, "call", True, "ok")]
    rows.append(probe(40, "ancient", True, "asked once, at the end", suite="golden"))
    page = render(curves := curves_of(tmp_path, steps=[row(1)], probes=rows), diagnosis(curves))
    assert "ancient" not in page and "are left out: 2." in page
    matrix = re.search(r'<section class="matrix".*?</section>', page, re.S)[0]
    spec = data(matrix)
    assert [[spec["texts"][cell[0]] for cell in cells] for _, cells in spec["rows"]] == [["again", "ok"]]
    assert re.findall(r"<td>(\d+/\d+)</td>", matrix) == ["0/1", "1/1"]


def test_the_identity_is_shown_and_what_a_later_start_changed(tmp_path):
    changed = [{"key": "config.given.max_steps", "a": 80, "b": 120}, {"key": "config.resolved.x", "a": 1, "b": 2}]
    run = {
        "model": {"name_or_path": "Qwen/Qwen3-4B", "parameters": {"total": 4000, "trainable": 40}},
        "packages": {"main": {"torch": "2.14.1"}},
        "segments": [{"segment": 0}, {"segment": 1, "from_step": 40, "changed": changed}],
    }
    text = " ".join(Page(render(c := curves_of(tmp_path, steps=[row(1)], run=run), diagnosis(c))).text)
    for words in ("Qwen/Qwen3-4B", "40 trainable, 1.00%", "torch 2.14.1", "config.given.max_steps", "80 → 120"):
        assert words in text, words
    assert "config.resolved" not in text


@pytest.mark.parametrize("run", [{"model": 3, "segments": "x", "data": [1]}, {"hardware": {"gpus": [None, 3]}}, {}])
def test_an_odd_run_json_breaks_nothing(tmp_path, run):
    Page(render(c := curves_of(tmp_path, steps=[row(1)], run=run), diagnosis(c)))


def test_write_keeps_what_is_not_its_own(curves, tmp_path):
    file = tmp_path / "page.html"
    write(curves, diagnosis(curves), file)
    write(curves, diagnosis(curves, spike()), file)
    assert "finding-1" in file.read_text(encoding="utf-8") and list(tmp_path.glob(".page*")) == []
    config = tmp_path / "run.yaml"
    config.write_text("stage: sft\n")
    for path, words in (
        (config, "not overwritten"),
        (tmp_path / "no" / "x.html", "no such folder"),
        (tmp_path, "folder"),
    ):
        with pytest.raises(ConfigError, match=words):
            write(curves, diagnosis(curves), path)
    assert config.read_text() == "stage: sft\n"
