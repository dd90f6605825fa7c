"""The verb `timeline`: lanes, marks, numbers, the picture, JSON; our record and other logs."""

import json
import re
import statistics
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import SHARED
from log_curves import BAD, STEPS, event, found, log, noisy, up

from llamafactory_obs import cli
from llamafactory_obs.timeline.happened import happenings
from llamafactory_obs.timeline.lanes import Axis, choose, lane, whole_axis
from llamafactory_obs.timeline.picture import svg
from llamafactory_obs.timeline.timeline import make

NAN = float("nan")


@pytest.fixture
def run(tmp_path) -> Path:
    """An output folder with a record: a spike at step 90, NaN at step 100, a checkpoint, an alert."""
    folder = tmp_path / "run"
    (folder / "obs").mkdir(parents=True)
    rows = []
    for step, loss in enumerate(up(noisy()), start=1):
        row = {"step": step, "time": 1.0 * step, "segment": 0, "train/loss": loss, "train/grad_norm": 1.0}
        if step == 100:
            row |= {"train/loss": None, "nonfinite": {"train/loss": "nan"}}
        rows.append(row)
    events = [
        event(50, "checkpoint saved", kind="checkpoint", name="recorder", level="info"),
        event(BAD, "spike <b>&", name="grad_norm_spike", level="error"),
        event(3, "first rate", kind="lr_change", level="info"),
    ]
    for name, lines in (("steps", rows), ("events", events)):
        (folder / "obs" / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def show(capsys, *words: str) -> str:
    assert cli.main(["timeline", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("first, last, pieces", [(1, 1, 1), (1, 120, 40), (10, 6750, 41), (0, 99, 100), (7, 30, 5)])
def test_the_pieces_of_an_axis_hold_each_step_once(first, last, pieces):
    axis = Axis(first, last, pieces)
    of_step = [axis.piece(step) for step in range(first, last + 1)]
    assert of_step == sorted(of_step) and set(of_step) == set(range(pieces))
    assert [axis.start(piece) for piece in range(pieces)] == [first + of_step.index(piece) for piece in range(pieces)]
    assert axis.piece(first - 1) is None and axis.piece(last + 1) is None


def test_a_single_bad_step_is_seen_in_a_long_run():
    curves = log(up([1.5 + 0.01 * (step % 7) for step in range(5000)], at=3333))
    axis = whole_axis(curves, 40)
    loss = lane(curves, "train/loss", axis)
    heights = [loss.height(loss.value(piece)) for piece in loss.pieces]
    assert heights.index(max(heights)) == axis.piece(3333) and max(heights) == 1.0
    assert loss.pieces[0].mean == pytest.approx(statistics.fmean(curves.columns["train/loss"].values[:125]))
    slow = log(system_tokens_per_sec=[10.0 if step == 60 else 900.0 for step in range(1, STEPS + 1)])
    speed = lane(slow, "system/tokens_per_sec", whole_axis(slow, 12))
    assert min(range(12), key=lambda place: speed.value(speed.pieces[place])) == 5  # the dip is drawn, not the peak


def test_what_is_missing_or_not_finite_is_told_apart():
    values = [1.0 if step % 2 else None for step in range(1, STEPS + 1)]
    values[BAD - 2] = NAN
    curves = log(data_max_length=values)
    drawn = lane(curves, "data/max_length", whole_axis(curves, STEPS))
    assert drawn.pieces[BAD - 2].bad == "nan" and drawn.pieces[1] is None and drawn.pieces[0].high == 1.0
    assert "data/max_length" in choose(curves) and "train/lr" not in choose(curves)


def test_in_the_terminal(run, capsys):
    out = show(capsys, str(run), "--width", "80")
    lines = out.splitlines()
    assert max(map(len, lines[1:])) <= 80 and "steps 1 to 120 in 120 rows" in lines[0]
    loss = next(line for line in lines if line.startswith("train/loss"))
    bars = loss[22 : 22 + 38]
    assert bars.count("█") == 1 and bars.index("█") == (BAD - 1) * 38 // 120 and "x" in bars
    errors = next(line for line in lines if line.startswith("errors"))
    assert errors[22 + (BAD - 1) * 38 // 120] == "!"
    assert any(line.startswith("checkpoints") for line in lines)
    assert "spike <b>& at 90." in out and "checkpoint saved at 50" not in out  # quiet kinds only near a step


def test_around_a_step(run, capsys):
    out = show(capsys, str(run), "--around", str(BAD), "--width", "80")
    row = re.search(r"^train/loss +([\d.]+) +([\d.]+) +([\d.]+) +\+([\d.]+)  <-$", out, re.MULTILINE)
    before = statistics.median(noisy()[BAD - 65 : BAD - 1])
    assert float(row[1]) == pytest.approx(before, rel=1e-3)
    assert float(row[2]) == pytest.approx(up(noisy())[BAD - 1], rel=1e-3) and float(row[4]) > 20
    assert f"v{BAD}" in out and "first rate at 3" not in out


def test_as_json_it_is_strict(run, capsys):
    out = show(capsys, str(run), "--json")
    result = json.loads(out, parse_constant=lambda word: pytest.fail(word))
    assert result["first_step"] == 1 and result["last_step"] == STEPS and result["around"] is None
    loss = next(one for one in result["lanes"] if one["name"] == "train/loss")
    assert loss["high"] == max(up(noisy())) and any(piece.get("not_finite") == "nan" for piece in loss["pieces"])
    covered = [step for piece in loss["pieces"] for step in range(piece["from"], piece["to"] + 1)]
    assert covered == list(range(1, STEPS + 1))
    near = json.loads(
        show(capsys, str(run), "--json", "--around", "100"), parse_constant=lambda word: pytest.fail(word)
    )
    assert next(one for one in near["numbers"] if one["name"] == "train/loss")["at"] == "nan"
    assert {"error", "lr", "checkpoint"} <= {one["kind"] for one in result["events"]}


def test_the_picture(run, tmp_path, capsys):
    file = tmp_path / "run.svg"
    show(capsys, str(run), "--svg", str(file))
    text = file.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    width, height = float(root.get("width")), float(root.get("height"))
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|<script|<image|@import", text)
    for node in root.iter():
        for name in ("x", "cx", "x1", "x2"):
            assert 0 <= float(node.get(name, 0)) <= width
        for name in ("y", "cy", "y1", "y2"):
            assert 0 <= float(node.get(name, 0)) <= height
    titles = [node.text for node in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any("spike <b>& at 90." in title for title in titles)  # escaped, so that it is still there
    assert cli.main(["timeline", str(run), "--svg", str(file)]) == 2
    assert "exists and is not overwritten" in capsys.readouterr().err and file.read_text(encoding="utf-8") == text


def test_the_picture_of_a_text_with_control_characters_is_still_xml():
    curves = log(up(noisy()))
    curves.events = [event(BAD, "up \x1b[31mred\x00")]
    root = ElementTree.fromstring(svg(make(curves, pieces=STEPS)))
    assert any(r"\x1b[31mred\x00" in (node.text or "") for node in root.iter())


def test_the_picture_of_a_gap_has_no_line_through_it():
    values = [1.0 + step / 100 for step in range(STEPS)]
    values[59] = NAN
    broken = svg(make(log(values), pieces=STEPS, wanted=["train/loss"]))
    whole = svg(make(log([1.0 + step / 100 for step in range(STEPS)]), pieces=STEPS, wanted=["train/loss"]))
    assert broken.count("<polyline") == 2 and whole.count("<polyline") == 1 and ">×<" in broken


def test_a_log_that_is_not_ours(tmp_path, capsys):
    file = tmp_path / "trainer_state.json"
    history = [{"step": step, "loss": loss, "learning_rate": 1e-4} for step, loss in enumerate(noisy(), start=1)]
    history.append({"step": STEPS, "eval_loss": 1.4})
    file.write_text(json.dumps({"global_step": STEPS, "log_history": history}))
    out = show(capsys, str(file))
    assert "train/loss" in out and "eval/loss" in out and "evaluations" in out


def test_findings_are_marked_from_where_they_began_and_not_twice():
    curves = log()
    finding = found("resume_gap", step=110, since=90)
    marks = happenings(curves, [finding])
    assert [(one.step, one.until, one.kind) for one in marks] == [(90, 110, "finding")]
    curves.events = [{**event(90, "x"), "text": finding.text}]
    assert [one.kind for one in happenings(curves, [finding])] == ["warn"]
    twice = [event(81, "unexplained jump"), event(81, "unexplained jump", kind="lr_change", level="info")]
    curves.events = twice
    assert [one.kind for one in happenings(curves)] == ["warn"]


@pytest.mark.parametrize(
    "words, said",
    [
        (["--around", "900"], "the log has the steps 1 to 120"),
        (["--around", "-1"], "from 0 on"),
        (["--width", "20"], "between 60 and 400"),
        (["--metric", "train/los"], "train/loss"),
        (["--svg", "no/such/x.svg"], "no such folder"),
    ],
)
def test_wrong_words(run, capsys, words, said):
    assert cli.main(["timeline", str(run), *words]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_no_log(tmp_path, capsys):
    assert cli.main(["timeline", str(tmp_path)]) == 2
    assert cli.main(["timeline", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.count("\n") == 2


@pytest.mark.shared
def test_every_public_log_gives_a_timeline():
    from llamafactory_obs.errors import ConfigError
    from llamafactory_obs.logs.read import read

    files = [file for folder in ("raw", "series") for file in sorted((SHARED / "logs" / folder).iterdir())]
    drawn = 0
    for file in files:
        try:
            curves = read(file)
        except ConfigError:
            continue
        if len(curves) and choose(curves):
            timeline = make(curves, pieces=40, around=curves.steps[len(curves) // 2])
            json.dumps(timeline.as_dict(), allow_nan=False)
            ElementTree.fromstring(svg(timeline))
            drawn += 1
    assert drawn >= 60
