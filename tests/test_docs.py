"""The pages in docs/ and the READMEs: links lead somewhere, tables are the code's, commands exist."""

import importlib.util
import re
from pathlib import Path

import pytest

from llamafactory_obs.cli import _parser
from llamafactory_obs.plugin.registry import OWN

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+://", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


def test_pages_of_callbacks_are_the_codes():
    spec = importlib.util.spec_from_file_location("make_keys", ROOT / "docs" / "make_keys.py")
    make_keys = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_keys)
    folder = ROOT / "docs" / "callbacks"
    assert {file.stem for file in folder.glob("*.md")} == set(OWN)
    for name in OWN:
        text = (folder / f"{name}.md").read_text(encoding="utf-8")
        assert text == make_keys.page(name), f"run `python docs/make_keys.py` ({name})"
        for part in ("**What it tells you.**", "**What it costs.**", "**Why th", "**Limits.**"):
            assert part in text, f"{name}.md lacks {part}"
        assert f"callbacks/{name}.md" in (ROOT / "docs" / "callbacks.md").read_text(encoding="utf-8")


def test_the_probe_of_the_page_is_a_suite(tmp_path):
    from llamafactory_obs.suite import load_suite

    blocks = re.findall(r"^```yaml\n(probes:.*?)^```", (ROOT / "docs/extending.md").read_text("utf-8"), re.M | re.S)
    (tmp_path / "refunds.yaml").write_text(blocks[0], encoding="utf-8")
    (probe,) = load_suite(tmp_path / "refunds.yaml").probes
    assert probe.expect.calls[0].arguments == {"order": ["A17"]} and probe.tools[0].name == "find_order"


def test_commands_that_pages_name_exist():
    verbs = next(action for action in _parser()._actions if action.dest == "verb").choices
    for page in PAGES:
        for verb in re.findall(r"llamafactory-obs ([a-z][a-z-]+)", page.read_text(encoding="utf-8")):
            assert verb in verbs, f"{page.name}: {verb}"


def test_each_command_is_in_both_readmes():
    verbs = next(action for action in _parser()._actions if action.dest == "verb").choices
    for readme in ROOT.glob("README*.md"):
        text = readme.read_text(encoding="utf-8")
        missing = [verb for verb in verbs if f"`llamafactory-obs {verb}" not in text]
        assert not missing, readme.name
