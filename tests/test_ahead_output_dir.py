"""An `output_dir` in which nothing can be saved; a free place beside each."""

import os

import pytest
from ahead_config import effective, write  # noqa: F401

from llamafactory_obs.preflight.ahead.output_dir import check_output_dir
from llamafactory_obs.preflight.run_config import read_run_config


def judge(effective):  # noqa: F811
    with effective() as run:
        return check_output_dir(run)


@pytest.mark.parametrize("below", ["", "/x", "/x/y"])
def test_a_file_where_the_folder_should_be(effective, tmp_path, below):  # noqa: F811
    (tmp_path / "taken").write_text("")
    with effective() as run:
        run.config.given["output_dir"] = f"{tmp_path / 'taken'}{below}"
        (check,) = check_output_dir(run)
        assert check.status == "fail" and "taken is not a folder" in check.detail and check.fix
        run.config.given["output_dir"] = f"{tmp_path / 'free'}{below}"
        assert check_output_dir(run)[0].status == "pass"


def test_a_link_to_nothing_and_one_to_a_folder(effective, tmp_path):  # noqa: F811
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    assert "a link to nothing" in judge(effective)[0].detail
    (tmp_path / "disk").mkdir()
    assert judge(effective)[0].status == "pass"


def test_a_folder_without_the_right_to_write(effective, tmp_path, monkeypatch):  # noqa: F811
    (tmp_path / "out").mkdir()
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / "out" and real(path, mode))
    (check,) = judge(effective)
    assert check.status == "fail" and f"no right to read and write in {tmp_path / 'out'}" in check.detail


def test_the_home_folder_is_expanded_as_transformers_does(tmp_path, monkeypatch, llamafactory, model, data):
    from transformers import TrainingArguments

    monkeypatch.setenv("HOME", str(tmp_path))
    path = write(tmp_path / "home.yaml", model, data, "~/out")
    wanted = TrainingArguments("~/out", use_cpu=True).output_dir
    assert read_run_config(path).given["output_dir"] == wanted == str(tmp_path / "out")
    assert read_run_config(path, ["output_dir=~/out/x"]).given["output_dir"] == str(tmp_path / "out" / "x")
