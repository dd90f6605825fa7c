"""Four numbers filled in by hand: what is read, and what is named instead of guessed."""

import pytest
from baseline_config import bad, detail, statuses, write_config

from llamafactory_obs.preflight.baseline.gate import baseline_gate
from llamafactory_obs.preflight.baseline.hand_table import read_table
from llamafactory_obs.preflight.run_config import read_run_config

RIGHT = {"format": 0.9, "tool_choice": 0.85, "arguments": 0.5, "task": 1.0}
MARKDOWN = """\
# Baseline of the base model

Measured on Monday.

| layer | score | remark |
|---|---:|:--|
| format | 0.9 | 18 of 20 calls |
| tool choice | **85 %** | |
| arguments | 10/20 | dates are hard |
| task | 1 | |
| latency | 3.1 | s |
"""
GOOD = {
    "markdown rows": MARKDOWN,
    "markdown header": (
        "| model | task | arguments | tool_choice | format | s |\n|-|-|-|-|-|-|\n| q | 100% | 0.5 | 17/20 | 90% | 3.1 |"
    ),
    "chinese rows": (
        "| 层 | 得分 | 题数 |\n"
        "|---|---|---|\n"
        "| 格式 | 90% | 20 |\n"
        "| 选工具 | 85% | 20 |\n"
        "| 参数 | 50% | 20 |\n"
        "| 任务 | 100% | 20 |"
    ),
    "chinese header csv": "模型,格式,工具选择,参数,任务\nqwen,0.9,0.85,0.5,1\n",
    "full width": (
        "｜格式｜工具选择｜参数｜任务｜\n｜－－｜－－｜－－｜－－｜\n｜９０％｜１７／２０｜０．５｜１００\u3000％｜\n"
    ),
    "full-width commas": "格式，工具选择，参数，任务\n0.9，0.85，0.5，1\n",
    "mark of Excel": "\ufeffformat,tool_choice,arguments,task\r\n0.9,0.85,0.5,1\r\n",
    "semicolons": "Layer;Score\nFORMAT;0.9\nTool-Choice;.85\nArgs;50%\nTask success rate;1.0\n",
    "tabs": "format\t0.9\ntool choice\t85%\narguments\t10 / 20\ntask\t1\n",
    "two languages, numbered": (
        "| 1. 格式 (format) | 90% |\n"
        "| 2. 工具选择 (tool choice) | 85% |\n"
        "| 3. 参数 (arguments) | 50% |\n"
        "| 4. 任务完成率 | 100% |"
    ),
    "percent in the heading": (
        "| layer | score (%) |\n|-|-|\n| format | 90 |\n| tool choice | 85 |\n| arguments | 50 |\n| task | 100 |"
    ),
    "percent in the names": "format %,tool choice %,arguments %,task %\n90,85,50,100\n",
    "one row called baseline": ("model,format,tool choice,arguments,task\ntuned,1,1,1,1\nbaseline,0.9,0.85,0.5,1\n"),
    "one column called base": (
        "| | base | tuned |\n"
        "|-|-|-|\n"
        "| format | 0.9 | 1 |\n"
        "| tool choice | 0.85 | 1 |\n"
        "| arguments | 0.5 | 1 |\n"
        "| task | 1 | 1 |"
    ),
    "an index before": ("#,layer,score\n1,format,0.9\n2,tool choice,0.85\n3,arguments,0.5\n4,task,1\n"),
    "quoted, with a newline": (
        'layer,score,note\nformat,0.9,"a, b\nc"\n"tool choice",0.85,\narguments,0.5,\ntask,1,\n'
    ),
}


def table(tmp_path, text, encoding="utf-8", name="table.md"):
    file = tmp_path / name
    file.write_bytes(text.encode(encoding))
    return file


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_right_tables(tmp_path, text):
    found = read_table(table(tmp_path, text))
    assert found.problems == []
    assert {layer: one["share"] for layer, one in found.scores.items()} == pytest.approx(RIGHT)


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16", "utf-8-sig"])
def test_what_excel_writes_in_china(tmp_path, encoding):
    found = read_table(table(tmp_path, GOOD["chinese header csv"], encoding, "table.csv"))
    assert {layer: one["share"] for layer, one in found.scores.items()} == pytest.approx(RIGHT)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("| 0.9 |", "| 85 |", "format: line 7: 85 is out of range 0 to 1: is it 85 %?"),
        ("| 0.9 |", "| 1.01 |", "format: line 7: 1.01 is out of range"),
        ("| 0.9 |", "| -0.1 |", "format: line 7: -0.1 is out of range"),
        ("| 0.9 |", "| 101% |", "format: line 7: 101% is out of range"),
        ("| 0.9 |", "| 21/20 |", "format: line 7: 21/20 is out of range"),
        ("| 0.9 |", "| 0/0 |", "format: line 7: 0/0 is out of range"),
        ("| 0.9 |", "| 0,9 |", "format: line 7: '0,9' is no score (a decimal comma?)"),
        ("| 0.9 |", "| nan |", "format: line 7: 'nan' is no score"),
        ("| 0.9 |", "| n/a |", "format: line 7: 'n/a' is no score"),
        ("| 0.9 |", "| |", "format: line 7: the cell is empty"),
        ("| 0.9 |", "| 0.9 or so |", "format: line 7: '0.9 or so' is no score"),
        ("| arguments | 10/20 | dates are hard |\n", "", "arguments: missing (the others stand in lines 7-9)"),
        ("| latency |", "| task |", "task: named 2 times (line 10, 11)"),
    ],
)
def test_a_wrong_number_is_named_with_its_line(tmp_path, old, new, said):
    found = read_table(table(tmp_path, MARKDOWN.replace(old, new)))
    assert len(found.problems) == 1 and found.problems[0].startswith(said)
    assert len(found.scores) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no table"),
        ("just words\n", "no row or column is called"),
        ("| a | b |\n|-|-|\n| c | 1 |\n", "no row or column is called format, tool_choice, arguments, task or 格式"),
        ("format,tool choice,arguments,task\n", "line 1: there are no numbers"),
        ("m,format,tool choice,arguments,task\na,1,1,1,1\nb,0,0,0,0\n", "lines 2, 3: which is the untuned model's?"),
        ("x,a,b\nformat,1,0\ntool choice,1,0\narguments,1,0\ntask,1,0\n", "lines 2-5: several columns of numbers"),
        (MARKDOWN + "\n| format | task | x |\n|-|-|-|\n| 1 | 1 | 1 |\n| format | task | y |\n", "several tables"),
    ],
)
def test_what_is_not_clear_is_said(tmp_path, text, said):
    with pytest.raises(ValueError, match=said.replace("?", "[?]")):
        read_table(table(tmp_path, text))


def test_under_a_percent_heading_a_fraction_may_mean_two_things(tmp_path):
    found = read_table(table(tmp_path, GOOD["percent in the heading"].replace("| 50 |", "| 0.5 |")))
    assert found.problems == [
        "arguments: line 5: 0.5 below a heading with %: is it 50% or 0.5 %? write 0.85, 85% or 17/20"
    ]


def test_no_text(tmp_path):
    file = tmp_path / "table.csv"
    file.write_bytes(b"PK\x03\x04\0\0\0\xff\xfe")
    with pytest.raises(ValueError, match="no text"):
        read_table(file)


# ---- as evidence for the gate --------------------------------------------------------------------------------------


@pytest.fixture
def judge(llamafactory, model, data, tmp_path):
    def run(text, name="table.md", **obs):
        file = table(tmp_path, text, name=name) if text is not None else tmp_path / name
        path = write_config(tmp_path / "run", model, data, obs={"baseline": str(file)} if obs else {})
        return baseline_gate(read_run_config(path), evidence=None if obs else file)

    return run


@pytest.mark.parametrize("obs", [{}, {"baseline": True}])
def test_a_table_is_accepted_and_marked(judge, obs):
    report = judge(MARKDOWN, **obs)
    assert report.gate()["status"] == "pass" and report.by_hand and report.as_dict()["by_hand"] is True
    found = statuses(report)
    assert (found["baseline_recorded"], found["layers"], found["baseline_by_hand"]) == ("pass", "pass", "warn")
    assert "cannot be proven" in detail(report, "baseline_by_hand")
    assert report.scores == pytest.approx(RIGHT)


def test_three_numbers_fail_and_the_layer_is_named(judge):
    report = judge(MARKDOWN.replace("| task | 1 | |\n", ""))
    assert bad(report) == {"layers"} and "task: missing" in detail(report, "layers")
    assert report.scores["task"] is None


@pytest.mark.parametrize(("text", "said"), [(None, "missing"), ("", "no table"), ("words", "no row or column")])
def test_no_table_is_a_failure_that_names_the_file(judge, tmp_path, text, said):
    report = judge(text)
    assert bad(report) == {"baseline_recorded"}
    assert said in detail(report, "baseline_recorded") and "table.md" in detail(report, "baseline_recorded")
