"""Configs for the tests on what would fail later."""

import contextlib

import pytest
import yaml
from tiny import tiny_config

from llamafactory_obs.preflight.ahead.effective import Effective
from llamafactory_obs.preflight.run_config import parsed, read_run_config


@pytest.fixture
def effective(llamafactory, model, data, tmp_path):
    """`with effective(**overrides) as run`: the arguments of a config over the tiny model; `rows=` train rows."""

    @contextlib.contextmanager
    def make(rows: int | None = None, **overrides):
        config = read_run_config(write(tmp_path / "run.yaml", model, data, tmp_path / "out", **overrides))
        with parsed(config) as arguments:
            yield Effective(config, arguments, rows)

    return make


def write(path, model, data, output, **overrides):
    """A run of 700 steps that is in order but for the overrides; None removes a key."""
    good = {
        "max_steps": 700,
        "save_steps": 100,
        "val_size": 0.1,
        "eval_strategy": "steps",
        "eval_steps": 100,
        "overwrite_output_dir": None,
        "callbacks": ["grad_norm_spike", {"probe": {"backend": "local"}}],
    }
    path.write_text(yaml.safe_dump(tiny_config(model, data, output, **(good | overrides))))
    return path


def statuses(checks) -> dict[str, str]:
    return {check.name: check.status for check in checks}


def named(checks, name):
    """The one check of this name."""
    (found,) = [check for check in checks if check.name == name]
    return found
