"""`init`: writes, keeps what is there, and the data is in the package."""

import json
import tomllib

from conftest import ROOT

from llamafactory_obs import cli, init

TEMPLATES = ["full_with_vllm.yaml", "full_without_vllm.yaml", "resume.yaml", "smoke.yaml"]
FILES = [*TEMPLATES, "probes/order_query.yaml"]


def test_writes_everything_and_says_what_next(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init"]) == 0
    out = capsys.readouterr().out
    for name in FILES:
        assert (tmp_path / name).stat().st_size > 500 and f"wrote {name}" in out
    for command in ("baseline full_without_vllm.yaml", "preflight full_without_vllm.yaml --run-smoke"):
        assert f"llamafactory-obs {command}\n" in out
    assert "llamafactory-cli train full_without_vllm.yaml" in out


def test_keeps_what_exists_unless_forced(tmp_path, capsys):
    folder = tmp_path / "new" / "run"
    assert cli.main(["init", str(folder)]) == 0
    (folder / "smoke.yaml").write_text("mine")
    (folder / "resume.yaml").unlink()
    capsys.readouterr()
    assert cli.main(["init", str(folder), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["written"] == ["resume.yaml"] and "smoke.yaml" in result["kept"]
    assert (folder / "smoke.yaml").read_text() == "mine"
    assert result["next"][-1] == f"llamafactory-cli train {folder}/full_without_vllm.yaml"
    assert cli.main(["init", str(folder), "--force"]) == 0
    assert (folder / "smoke.yaml").read_text() != "mine"
    assert "kept" not in capsys.readouterr().out


def test_a_folder_that_is_none(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["init", str(tmp_path / "file")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("llamafactory-obs: cannot write ") and err.count("\n") == 1


def test_the_wheel_has_every_file_that_is_no_module():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    listed = {
        file
        for package, patterns in tool["package-data"].items()
        for pattern in patterns
        for file in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    files = {path for path in (ROOT / "llamafactory_obs").rglob("*.*") if path.suffix not in {".py", ".pyc"}}
    assert files and files - listed == set()


def test_the_wheel_has_every_package_and_the_data():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    inits = (ROOT / "llamafactory_obs").rglob("__init__.py")
    tree = {".".join(path.parent.relative_to(ROOT).parts) for path in inits}
    data = {f"llamafactory_obs.{name}" for name in init.SOURCES}
    assert set(tool["packages"]) == tree | data
    for name in init.SOURCES:
        assert tool["package-dir"][f"llamafactory_obs.{name}"] == name
        assert list(init.data_folder(name).glob("*.yaml"))
