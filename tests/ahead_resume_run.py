"""A run with checkpoints, for the tests on what becomes of `output_dir`."""

import os
import shutil

import pytest

from llamafactory_obs.preflight.ahead.output_dir import check_output_dir

FIRST = {"max_steps": 8, "save_steps": 4, "callbacks": ["grad_norm_spike"], "lr_scheduler_type": "cosine"}
FIRST |= {"warmup_steps": 2, "overwrite_output_dir": None, "val_size": None, "eval_strategy": None, "eval_steps": None}
LATER = FIRST | {"max_steps": 12}


@pytest.fixture(scope="module")
def trained(llamafactory, model, data, tmp_path_factory):
    """8 steps with a record; checkpoint-4 and checkpoint-8."""
    from llamafactory.train.tuner import run_exp
    from tiny import tiny_config

    out = tmp_path_factory.mktemp("trained") / "out"
    run_exp(tiny_config(model, data, out, **FIRST))
    return out


@pytest.fixture
def out(trained, tmp_path):
    """A copy of it, where the configs of `effective` save to; quiet since a minute."""
    shutil.copytree(trained, tmp_path / "out")
    return settle(tmp_path / "out")


def settle(out):
    """Nothing was written a moment ago: a folder that changes is taken for one that is being saved or deleted."""
    for folder in (out, *out.glob("checkpoint-*")):
        state = folder / "trainer_state.json"
        os.utime(folder, (state.stat().st_mtime, state.stat().st_mtime))
    return out


def judge(effective, **overrides):
    with effective(**(LATER | overrides)) as run:
        return check_output_dir(run)
