"""Files that a verb writes for a person: what is refused is refused before anything is written, in every verb."""

import json
import os

import pytest
from mask_config import write as write
from summary_record import whole

from llamafactory_obs import cli
from llamafactory_obs.errors import ConfigError
from llamafactory_obs.output_file import begins_with, check_apart, check_output, replace_file, write_new


@pytest.fixture
def folder(tmp_path):
    return whole(tmp_path / "run")


def call(capsys, *words) -> tuple[int, str, str]:
    code = cli.main([str(word) for word in words])
    return code, *capsys.readouterr()


def refused(capsys, *words) -> str:
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "") and err.count("\n") == 1, err
    return err


def files(folder) -> dict:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("option", ["--html", "--markdown", "--bundle"])
@pytest.mark.parametrize("place", ["no/such/x.zip", "theirs.zip", "folder.zip", "x" * 250 + ".zip"])
def test_report_refuses_before_it_writes(folder, tmp_path, capsys, option, place):
    (tmp_path / "theirs.zip").write_text("mine")
    (tmp_path / "folder.zip").mkdir()
    good = {"--html": "a.html", "--markdown": "a.md", "--bundle": "a.zip"} | {option: place}
    outputs = [word for name, file in good.items() for word in (name, tmp_path / file)]
    before = files(tmp_path)
    refused(capsys, "report", folder, "--note", "x", *outputs)
    assert files(tmp_path) == before
    assert call(capsys, "report", folder, "--note", "x", "--html", tmp_path / "a.html")[0] == 0
    assert len(files(tmp_path)) == len(before) + 2, "the page, and the note"


def test_report_refuses_a_note_before_it_writes(folder, tmp_path, capsys):
    before = files(tmp_path)
    assert "--note" in refused(capsys, "report", folder, "--note", "x" * 20_000, "--html", tmp_path / "a.html")
    assert files(tmp_path) == before
    rows = [{"current_steps": step, "total_steps": 30, "loss": 2.0} for step in range(1, 31)]
    log = tmp_path / "trainer_log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "no run record" in refused(capsys, "report", log, "--note", "x", "--html", tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()


def test_one_file_for_two_things(folder, tmp_path, capsys):
    (tmp_path / "link").symlink_to("a.html")
    outputs = ["--html", tmp_path / "a.html", "--markdown", tmp_path / "link"]
    assert "two things" in refused(capsys, "report", folder, "--note", "x", *outputs)
    assert not (tmp_path / "a.html").exists() and not (folder / "obs" / "notes.jsonl").exists()


def test_diagnose_refuses_before_it_writes(folder, tmp_path, capsys):
    """The next config: its place, its source, and that there is nothing to change."""
    (tmp_path / "theirs.yaml").write_text("mine")
    (tmp_path / "run.yaml").write_text("learning_rate: 1.0e-4\n")
    good = tmp_path / "trainer_log.jsonl"
    rows = [{"current_steps": step, "total_steps": 100, "loss": 2.0 - step / 100} for step in range(1, 101)]
    good.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = tmp_path / "a.html"
    for path, target, *more in (
        (folder, "theirs.yaml"),
        (folder, "a.html"),
        (folder, "next.yaml", "--from", "nowhere.yaml"),
        (good, "next.yaml", "--from", tmp_path / "run.yaml"),
    ):
        refused(capsys, "diagnose", path, "--html", page, "--write-config", tmp_path / target, *more)
        assert not page.exists() and not (tmp_path / "next.yaml").exists()
    assert (tmp_path / "theirs.yaml").read_text() == "mine"
    assert call(capsys, "diagnose", folder, "--html", page, "--write-config", tmp_path / "next.yaml")[0] == 0
    assert page.exists() and (tmp_path / "next.yaml").exists()


@pytest.mark.parametrize(
    ("words", "work"),
    [
        (["compare", "RUN", "RUN", "--html", "theirs"], "compare.runs.read_runs"),
        (["diagnose", "RUN", "--html", "theirs"], "logs.read.read"),
        (["timeline", "RUN", "--svg", "theirs"], "logs.read.read"),
        (["report", "RUN", "--bundle", "theirs.zip"], "summary.load"),
        (["replay", "RUN", "--step", "3", "--out", "theirs"], "replay.replay.replay"),
    ],
)
def test_no_work_is_done_for_what_is_refused(folder, tmp_path, capsys, monkeypatch, words, work):
    monkeypatch.chdir(tmp_path)
    for name in ("theirs", "theirs.zip"):
        (tmp_path / name).write_text("mine")
    monkeypatch.setattr(f"llamafactory_obs.{work}", lambda *args, **kwargs: pytest.fail("work was done"))
    assert "overwritten" in refused(capsys, *[folder if word == "RUN" else word for word in words])
    assert (tmp_path / "theirs").read_text() == "mine"


def test_mask_overwrites_nothing_and_confirms_nothing_for_it(llamafactory, write, capsys):
    path = write(obs={"mask_range": [0.01, 0.02]})
    config = path.read_text()
    assert "not overwritten" in refused(capsys, "mask", path, "--confirm", "--html", path)
    assert path.read_text() == config and not (path.parent / "run.confirmed.json").exists()
    page = path.parent / "mask.html"
    for more in ([], ["--confirm"]):
        call(capsys, "mask", path, *more, "--rows", 0, "--html", page)
        assert "The mask of" in page.read_text(), "our own page is replaced"
    assert (path.parent / "run.confirmed.json").exists()


@pytest.mark.parametrize(
    "more",
    [["--suite", "nowhere.yaml"], ["--device", "nonsense"], ["--run-smoke", "--smoke", "."]],
)
def test_preflight_refuses_before_it_confirms(llamafactory, write, capsys, monkeypatch, more):
    path = write(obs={"mask_range": [0.01, 0.02]})
    monkeypatch.chdir(path.parent)
    refused(capsys, "preflight", path, "--confirm", "mask", *more)
    assert not (path.parent / "run.confirmed.json").exists()


def test_init_refuses_before_it_writes(tmp_path, capsys):
    (tmp_path / "probes").write_text("a file")
    assert "probes" in refused(capsys, "init", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["probes"]
    (tmp_path / "new" / "smoke.yaml").mkdir(parents=True)
    assert "smoke.yaml" in refused(capsys, "init", tmp_path / "new", "--force")
    assert not list((tmp_path / "new").glob("full*"))


def test_it_is_judged_once(folder, tmp_path, capsys, monkeypatch):
    """A page in Chinese beside JSON, which is English, is all that needs two judgments."""
    from llamafactory_obs.diagnosis import judge as judging

    told, judge = [], judging.judge
    monkeypatch.setattr(judging, "judge", lambda curves: told.append(1) or judge(curves))
    for words, times in ((["--json"], 1), ([], 1), (["--json", "--html", tmp_path / "a.html"], 2)):
        told.clear()
        assert call(capsys, "report", folder, "--lang", "zh", *words)[0] == 0
        assert len(told) == times, words
    english = [call(capsys, "report", folder, "--json", "--lang", lang)[1] for lang in ("zh", "en")]
    assert english[0] == english[1]


# ---- the parts ------------------------------------------------------------------------------------------------------


def test_where_a_file_may_go(tmp_path):
    mark = "<!-- ours -->"
    file = tmp_path / "a"
    assert check_output(file) == file and not file.exists() and not list(tmp_path.iterdir())
    replace_file(file, mark + "one")
    assert check_output(file, ours=begins_with(mark)) == file
    replace_file(file, mark + "\ud800")
    assert file.read_text() == mark + "?" and file.stat().st_mode & 0o777 == 0o666 & ~umask()
    for more in ({}, {"ours": begins_with("<!-- theirs"), "kind": "page"}):
        with pytest.raises(ConfigError, match=r"--out .*not overwritten"):
            check_output(file, option="--out", **more)
    with pytest.raises(ConfigError, match="cannot be written"):
        write_new(file, "x")
    (tmp_path / "link").symlink_to("b")
    assert check_output(tmp_path / "link") == tmp_path / "b", "what the link leads to"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not overwritten"):  # and not waited for
        check_output(tmp_path / "pipe", ours=begins_with(mark))
    check_apart(file, None, None, tmp_path / "b")
    with pytest.raises(ConfigError, match="two things"):
        check_apart(file, None, file)


def test_a_folder_that_takes_no_file(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    with pytest.raises(ConfigError, match="No space left"):
        check_output(tmp_path / "a")
    with pytest.raises(ConfigError, match="No space left"):
        replace_file(tmp_path / "a", "x")
    assert not list(tmp_path.iterdir())


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
