"""`llamafactory-obs mask`: words, exit codes, terminal, page; and all rows of a real data set."""

import argparse
import json
import os
import re
from html import unescape

import pytest
import yaml
from conftest import SHARED
from mask_config import chat_model as chat_model
from mask_config import judge as judge
from mask_config import write as write
from test_mask_numbers import TEMPLATES, counted_again
from tiny import tiny_config

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.mask import command
from llamafactory_obs.preflight.mask.gate import mask_gate
from llamafactory_obs.preflight.run_config import read_run_config
from llamafactory_obs.texts import speaking

pytestmark = pytest.mark.usefixtures("llamafactory")


def call(*words) -> int:
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    return command.run(command.request(parser.parse_args([str(word) for word in words])))


def test_json_is_one_object_and_nothing_else(write, capsys):
    assert call(write(), "--json", "--samples", 5) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["name"] == "mask" and result["status"] == "pass"
    assert {"name", "status", "value", "want", "detail"} == set(result["checks"][0])
    (one,) = result["datasets"]
    assert one["dataset"] == "talks" and one["rows"] == 5 and one["by_role"]["call"]["in_loss"] > 0


def test_exit_codes_and_overrides(write, capsys):
    path = write()
    assert call(path, "train_on_prompt=true", "--rows", 0) == 1
    out = capsys.readouterr().out
    assert "likely cause: train_on_prompt" in out and "--confirm mask" in out.replace("\n", " ")
    with pytest.raises(ConfigError, match="samples"):
        call(path, "--samples", 0)
    with pytest.raises(ConfigError, match="no such folder"):
        call(path, "--html", path.parent / "nope" / "x.html")
    with pytest.raises(ConfigError, match="key=value"):
        call(path, "=3")


def test_confirm_on_the_command_line(write, capsys):
    path = write(obs={"mask_range": [0.01, 0.02]})
    assert [call(path, "--rows", 0, *more) for more in ((), ("--confirm",), ())] == [1, 0, 0]
    assert json.loads((path.parent / "run.confirmed.json").read_text())["mask"]["accepted"] == []
    (path.parent / "run.confirmed.json").write_text("{")
    with pytest.raises(ConfigError, match="not readable"):
        call(path)


def test_rows_for_a_person(write, capsys, tmp_path):
    call(write(), "--json", "--rows", 0)
    longest = json.loads(capsys.readouterr().out)["splits"][0]["longest"]
    path = write(cutoff_len=longest - 6)
    assert call(path, "--rows", 2, "--html", tmp_path / "mask.html") == 1
    out = capsys.readouterr().out
    assert "[user]" in out and "[call]" in out and "worst first" in out and "cut by cutoff_len" in out
    html = (tmp_path / "mask.html").read_text()
    assert html.count("<h3>") == 2 and "<span class=in" in html and "<span class=out" in html
    assert "http" not in html.replace("<!doctype html>", ""), "nothing is loaded from elsewhere"
    assert "&lt;|im_start|&gt;" in html and "<|im_start|>" not in html
    with speaking("zh"):
        call(path, "--rows", 2, "--html", tmp_path / "mask.html")
    html = (tmp_path / "mask.html").read_text(encoding="utf-8")
    read = unescape(re.sub("<style.*?</style>|<pre>.*?</pre>|<code>.*?</code>|<[^>]+>", "\n", html, flags=re.DOTALL))
    assert "<html lang=zh>" in html and "各行，问题最大的在前" in read and "未通过" in read
    assert not re.search(r"[a-z]+ [a-z]+ [a-z]+", read), read


def test_data_with_markup_stays_text(write, capsys, tmp_path):
    row = {"instruction": "[bold]x[/nope] <script>alert(1)</script>", "input": "", "output": "alpha [red]"}
    path = write(data={"rows": ([row] * 3, {})})
    assert call(path, "--html", tmp_path / "mask.html") == 0
    assert "[bold]x[/nope]" in capsys.readouterr().out
    assert "<script>" not in (tmp_path / "mask.html").read_text()


@pytest.mark.shared
@pytest.mark.parametrize("template", TEMPLATES)
def test_all_rows_of_a_real_data_set(model, tmp_path, template):
    """Judged: equal to LlamaFactory's own labels, counted independently, over all rows."""
    given = {"dataset": "glaive_toolcall_zh_demo", "template": template, "cutoff_len": 2048}
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(tiny_config(model, SHARED / "data", tmp_path / "out", **given)))
    (one,) = mask_gate(read_run_config(path), show=0).datasets
    rows = counted_again(path)["train"]
    assert one["rows"] == len(rows) == 300
    assert (one["tokens"], one["supervised"]) == (sum(t for t, _ in rows), sum(n for _, n in rows))
    assert one["calls"] == 216 and one["missing"] == one["stray"] == one["altered"] == 0


def test_verbosity_is_given_back(judge):
    before = os.environ.get("LLAMAFACTORY_VERBOSITY")
    judge()
    assert os.environ.get("LLAMAFACTORY_VERBOSITY") == before
