"""Lines by cells of the terminal: what is Chinese breaks anywhere but before its marks, what is not at spaces."""

import subprocess
import sys
import textwrap
import unicodedata

import pytest
from rich.cells import cell_len

from llamafactory_obs.texts.wrap import cells, padded, wrapped

CHINESE = "损失从第 1,089 步起持续上升:开始 11.18,最低 6.156,现在 15.49,学到的东西正在丢失(见 `trainer_state.json`)。"
MIXED = (
    "设置 disable_shuffling: false(并混合数据集:mix_strategy: interleave_under),再看 llamafactory-obs mask RUN.yaml。"
)


@pytest.mark.parametrize("said", [CHINESE, MIXED, CHINESE * 5])
@pytest.mark.parametrize("width", [40, 57, 80])
def test_no_line_is_too_wide_and_nothing_is_lost(said, width):
    lines = wrapped(said, width, "  - ", "    ")
    assert all(cells(line) <= width for line in lines), lines
    together = "".join(line.strip() for line in lines).removeprefix("- ")
    assert together.replace(" ", "") == said.replace(" ", "")
    assert lines[0].startswith("  - ") and all(line.startswith("    ") for line in lines[1:])


@pytest.mark.parametrize("width", range(30, 80))
def test_marks_stand_at_no_wrong_end(width):
    for line in wrapped(CHINESE * 3 + MIXED, width):
        assert line.strip()[0] not in ",。:)、" and line[-1] not in "("


def test_words_and_numbers_stay_whole():
    lines = wrapped(MIXED, 30)
    assert sum("disable_shuffling:" in line for line in lines) == 1
    assert any("interleave_under" in line for line in lines)
    path = "/data/" + "很长的路径" * 3 + "x" * 60
    assert any("x" * 60 in line for line in wrapped(f"见 {path}", 40)), "longer than a line: whole, to be copied"


def test_english_is_as_textwrap_has_it():
    said = (
        "The loss is up since step 9: look at the samples, then at llamafactory-obs mask, which shows the labels. " * 3
    )
    assert wrapped(said, 60, "  - ", "    ") == textwrap.wrap(
        said, 60, initial_indent="  - ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    assert wrapped("", 60, "note: ") == ["note: "]


def test_spaces_within_a_line_are_kept():
    assert wrapped("缺少         这里没有", 60, "vllm  ") == ["vllm  缺少         这里没有"]


def test_cells_are_those_of_rich():
    for said in (CHINESE, MIXED, "abc", "▁▂▃", "é", unicodedata.normalize("NFD", "é"), "──", "✓ 通过"):
        assert cells(said) == cell_len(said), said
    assert padded("通过", 8) == "通过    " and padded("abc", 2) == "abc"


#: what takes long to load, and what only some verbs need
HEAVY = ("yaml", "rich", "numpy", "torch", "transformers", "llamafactory", "httpx", "orjson", "psutil")


@pytest.mark.parametrize("words", [["--help"], ["diagnose", "--help"]])
def test_help_loads_nothing_heavy(words):
    code = f"import sys, llamafactory_obs.cli as c\ntry: c.main({words})\n"
    code += f"finally: print('loaded', [name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("loaded []"), done.stdout[-200:]
