"""The folder of a smoke run is its own: everything else is refused in one line."""

import json

import pytest

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.rehearsal.folder import MARKER, check_folder, prepare, read_marker
from llamafactory_obs.preflight.run_config import RunConfig
from llamafactory_obs.settings import Settings


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("a: 1")
    model = tmp_path / "model"
    model.mkdir()
    return RunConfig(path, {"output_dir": str(tmp_path / "out"), "model_name_or_path": str(model)}, Settings())


def marked(folder, **content):
    folder.mkdir(parents=True)
    (folder / MARKER).write_text(json.dumps({"kind": "smoke", "steps": 10, **content}))
    return folder


def test_new_empty_and_own_folders_are_taken(config, tmp_path):
    (tmp_path / "empty").mkdir()
    own = marked(tmp_path / "own")
    (own / "checkpoint-10").mkdir()
    for name in ("new", "deep/new", "empty", "own"):
        check_folder(config, tmp_path / name)
    (own / "obs").mkdir()
    prepare(own)
    assert own.is_dir() and not list(own.iterdir())


def test_foreign_folders_are_refused_and_untouched(config, tmp_path):
    for name in ("photos", "out", "out/smoke_is_parent"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    (tmp_path / "photos" / "cat.png").write_text("cat")
    (tmp_path / "file").write_text("x")
    (marked(tmp_path / "resumed") / "checkpoint-500").mkdir()
    (marked(tmp_path / "other_marker", kind="real") / "x").mkdir()
    marked(tmp_path / "holder")
    inside = RunConfig(config.path, {**config.given, "output_dir": str(tmp_path / "holder" / "run")}, Settings())
    refused = [(config, "photos"), (config, "out"), (config, "file"), (config, "resumed"), (config, "other_marker")]
    for one, name in [*refused, (config, "."), (config, "model"), (inside, "holder")]:
        with pytest.raises(ConfigError, match="another folder") as error:
            check_folder(one, tmp_path / name)
        assert "\n" not in str(error.value)
    assert (tmp_path / "photos" / "cat.png").read_text() == "cat"


def test_a_torn_marker_is_none(tmp_path):
    folder = marked(tmp_path / "a")
    assert read_marker(folder)["steps"] == 10
    (folder / MARKER).write_text('{"kind": "smo')
    assert read_marker(folder) is None and read_marker(tmp_path / "none") is None
