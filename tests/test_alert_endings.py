"""Every finding in the code is known to the life of alerts: as lasting, as a moment, or as the end of another."""

import ast
from fnmatch import fnmatch
from pathlib import Path

import pytest

import llamafactory_obs
from llamafactory_obs.alerts.options import parse_alerts
from llamafactory_obs.detect import BandDetector, Finding, GrowthDetector
from llamafactory_obs.detect.endings import ENDINGS, LASTING, MOMENTS, ended_by, goes_on
from llamafactory_obs.errors import ConfigError

HERE = Path(llamafactory_obs.__file__).parent
KNOWN = set(LASTING) | MOMENTS


def titles(tree: ast.AST) -> set[tuple[str, str]]:
    """(title pattern, level) of every `Finding(...)` and every event of kind alert; `*` where a level is made up."""
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("Finding", "_report", "_finding") and len(node.args) >= 3:
            title, level = node.args[0], node.args[1]
        elif called in ("event", "_say_once") and node.args and getattr(node.args[0], "value", "") == "alert":
            title = node.args[2] if called == "event" else node.args[1]
            level = next((keyword.value for keyword in node.keywords if keyword.arg == "level"), ast.Constant("*"))
        else:
            continue
        if isinstance(title, ast.JoinedStr):
            pattern = "".join(part.value if isinstance(part, ast.Constant) else "*" for part in title.values)
        elif isinstance(title, ast.Constant) and isinstance(title.value, str):
            pattern = title.value
        else:
            continue  # a name that is given from elsewhere: see NAMED
        found.add((pattern, level.value if isinstance(level, ast.Constant) else "*"))
    return found


def discovered() -> set[tuple[str, str]]:
    files = [file for folder in ("detect", "callbacks", "diagnosis") for file in sorted((HERE / folder).glob("*.py"))]
    return {one for file in files for one in titles(ast.parse(file.read_text(encoding="utf-8")))}


#: infos of `LrScheduleDetector` become events of kind `lr_change`, not alerts
SCHEDULE = {"first rate", "jump"}
#: names that are made of others: `diagnosis/shapes.py` gives older detectors the names of the verdicts
RENAMED = {"grad_norm_spike", "vram_growth", "low_gpu_use"}


def test_the_search_finds_what_it_should():
    found = dict(discovered())
    for title in ("spike", "spike_over", "*_over", "*_back", "desync", "little memory left", "fully masked samples"):
        assert title in found
    assert len(found) > 30


def test_every_finding_is_lasting_or_a_moment_or_an_ending():
    unknown = []
    for title, level in discovered():
        ends = ended_by(title.replace("*", "x"))
        named = any(fnmatch(name, title) for name in KNOWN) or title in SCHEDULE
        if level in ("warn", "error") and not named:
            unknown.append((title, level))
        if level == "info" and not ends and not named:
            unknown.append((title, level))
        if ends and "*" not in title:
            assert set(ends) & KNOWN, f"{title} ends {ends}, which nothing is called"
    assert unknown == [], "put these into detect/endings.py: LASTING if something ends them, else MOMENTS"


def test_every_lasting_finding_has_its_ending_in_the_code():
    endings = [title for title, _ in discovered() if ended_by(title.replace("*", "x"))]
    for name in set(LASTING) - RENAMED:
        assert any(
            any(fnmatch(name, end.replace("x", "*")) or end == name for end in ended_by(title.replace("*", "x")))
            for title in endings
        ), name
    assert set(ENDINGS) - {"nan_over"} <= {title for title, _ in discovered()}


def test_the_live_diagnosis_has_its_endings():
    """Its own names for older detectors, and an ending for each that has one."""
    from llamafactory_obs.diagnosis.shapes import _NAMES, as_norm

    for old, new in _NAMES.items():
        if ended_by(old):
            assert set(ended_by(new)) <= set(LASTING), new
        else:
            assert LASTING[new] == LASTING[old]
    renamed = as_norm(Finding("spike", "error", 1, "", {}))
    assert renamed.name in LASTING and ended_by(as_norm(Finding("spike_over", "info", 1, "", {})).name) == (
        renamed.name,
    )


@pytest.mark.parametrize("detector", [BandDetector(), GrowthDetector()])
def test_names_that_are_defaults(detector):
    names = {f"{detector.name}_low", f"{detector.name}_high"} if isinstance(detector, BandDetector) else {detector.name}
    assert names <= set(LASTING)


def test_room_detectors_are_known_by_the_names_that_callbacks_give():
    for file in (HERE / "callbacks").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            called = getattr(getattr(node, "func", None), "id", "")
            if called == "LowRoomDetector":
                assert node.args[0].value in LASTING, node.args[0].value


def test_the_level_decides():
    assert goes_on("spike", "error") and not goes_on("spike", "warn")
    assert goes_on("memory_growth", "warn") and goes_on("something of mine", "error")
    assert not goes_on("something of mine", "warn")


def test_all_of_them_may_be_named_under_stop_on():
    assert parse_alerts({"stop_on": [*KNOWN, "error", "my_callback/my alert"]}).stop_on
    with pytest.raises(ConfigError, match="did you mean 'stalled'"):
        parse_alerts({"stop_on": ["staled"]})
